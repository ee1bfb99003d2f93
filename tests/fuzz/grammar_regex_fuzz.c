/* Fuzzes regular expressions. The first byte of the input chooses how the pattern is read; a newline ends the pattern,
 * and the rest is a text. A refusal has a message, and a pattern that is read is not left-recursive. */
#include <stdlib.h>

#include "grammar/internal.h"

/* Nested repetitions multiply the steps of the matcher. */
#define WORK_MAX 2000000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool claim) {
    if (!claim) abort();
}

/* Reads the pattern as that of a schema. */
static void read_pattern(um_str pattern, bool anchored) {
    um_rules r;
    um_err err = {.code = UM_OK};
    const um_expr *e = NULL;
    um_rules_init(&r);
    const um_status s = um_regex_parse(&r, pattern, anchored, true, &e, &err);
    if (s) require(err.code == s && err.msg[0]);
    else require(e != NULL);
    um_rules_free(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    um_rules r;
    um_err err = {.code = UM_OK};
    if (!size) return 0;
    const char *start = (const char *)data + 1, *end = memchr(start, '\n', size - 1);
    const um_str pattern = {start, end ? (size_t)(end - start) : size - 1};
    const um_str text = {end ? end + 1 : start, end ? UM_MIN(size - 2 - pattern.n, 40u) : 0};
    read_pattern(pattern, data[0] & 1);
    um_rules_init(&r);
    const um_status s = um_rules_from_regex(&r, pattern, &err);
    if (s) require(err.code == s && err.msg[0] && !strstr(err.msg, "begins with itself"));
    else {
        int64_t work = WORK_MAX;
        bool matches;
        um_rules_match_within(&r, text, &work, &matches);
    }
    um_rules_free(&r);
    return 0;
}
