/* Fuzzes multipart bodies of uploads. The first line of the input is the content type, the rest is the body. The data
 * of every part must be inside the body, after the previous part. The names of a part must be valid UTF-8. */
#include <stdlib.h>

#include "server/batch/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool claim) {
    if (!claim) abort();
}

static void check_part(const um_form_part *p, um_str body, const char **end) {
    require(p->data.p >= *end && p->data.p + p->data.n <= body.p + body.n);
    require(p->name[0] && um_utf8_check(p->name, strlen(p->name)) == strlen(p->name));
    require(um_utf8_check(p->filename, strlen(p->filename)) == strlen(p->filename));
    *end = p->data.p + p->data.n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    const char *newline = size ? memchr(text, '\n', size) : NULL;
    if (!newline) return 0;
    char *type = um_strndup(text, (size_t)(newline - text));
    um_str body = {newline + 1, size - (size_t)(newline + 1 - text)};
    um_multipart m;
    um_form_part part;
    um_err err = {.code = UM_OK};
    const char *end = body.p;
    bool more = true;
    int n = 0;
    um_status st = um_multipart_open(&m, type, body, &err);
    while (!st && more) {
        st = um_multipart_next(&m, &part, &more, &err);
        if (!st && more) check_part(&part, body, &end);
        require(++n <= UM_PARTS_MAX + 1);
    }
    if (st) require(err.code == st && err.msg[0]);
    um_free(type);
    return 0;
}
