/* Fuzzes grammars in GBNF. A zero byte ends the grammar, and the rest is a text. A refusal has a message; rules that
 * are accepted pass the check again. */
#include <stdlib.h>

#include "grammar/internal.h"

/* Nested repetitions multiply the steps of the matcher. */
#define WORK_MAX 2000000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool claim) {
    if (!claim) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    um_rules r;
    um_err err = {.code = UM_OK};
    const char *start = (const char *)data, *end = size ? memchr(start, 0, size) : NULL;
    const um_str grammar = {start, end ? (size_t)(end - start) : size};
    const um_str text = {end ? end + 1 : start, end ? UM_MIN(size - 1 - grammar.n, 40u) : 0};
    um_rules_init(&r);
    const um_status s = um_rules_from_gbnf(&r, grammar, &err);
    if (s) require(err.code == s && strncmp(err.msg, "grammar", 7) == 0);
    else {
        require(um_rules_check(&r, NULL) == UM_OK);
        int64_t work = WORK_MAX;
        bool matches;
        um_rules_match_within(&r, text, &work, &matches);
    }
    um_rules_free(&r);
    return 0;
}
