/* Fuzzes JSON schemas. The first byte of the input chooses the white space. A zero byte ends the schema, and the
 * rest is a text: if it matches, it is JSON. A refusal has a message with a place. */
#include <jansson.h>
#include <stdlib.h>

#include "grammar/internal.h"

/* Nested repetitions multiply the steps of the matcher. */
#define WORK_MAX 2000000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool claim) {
    if (!claim) abort();
}

static void check_text(const um_rules *r, um_str text) {
    int64_t work = WORK_MAX;
    bool matches;
    /* jansson refuses numbers that are too large for a double. */
    if (memchr(text.p, 'e', text.n) || memchr(text.p, 'E', text.n)) return;
    if (!um_rules_match_within(r, text, &work, &matches) || !matches) return;
    json_t *v = json_loadb(text.p, text.n, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    require(v != NULL);
    json_decref(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    um_rules r;
    um_err err = {.code = UM_OK};
    if (!size) return 0;
    const um_json_style style = {.space_max = data[0] & 3};
    const char *start = (const char *)data + 1, *end = memchr(start, 0, size - 1);
    const um_str schema = {start, end ? (size_t)(end - start) : size - 1};
    const um_str text = {end ? end + 1 : start, end ? UM_MIN(size - 2 - schema.n, 60u) : 0};
    um_rules_init(&r);
    const um_status s = um_rules_from_schema(&r, schema.p, schema.n, &style, &err);
    if (s) require(err.code == s && err.msg[0]);
    else if (r.n_exprs < 500) check_text(&r, text);
    um_rules_free(&r);
    return 0;
}
