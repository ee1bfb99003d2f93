/* Random grammars over the bytes a, b and c, and a vocabulary of short tokens. */
#ifndef RANDOM_LANGUAGE_H
#define RANDOM_LANGUAGE_H

#include "grammar/language.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

static uint64_t random_seed, random_counter;
static int32_t draw(int32_t below) { return (int32_t)(um_rng_u64(random_seed, random_counter++) % (uint64_t)below); }

/* Ids 0..n-1; the last one is no text. */
static const char *const tokens[] = {"a", "b", "c", "ab", "ba", "abc", "cc", "bca", "a", "caca", ""};
enum { N_TOKENS = (int)UM_LEN(tokens), END_ID = N_TOKENS - 1 };

static um_str bytes_of(void *arg, int32_t id) {
    (void)arg;
    return id < N_TOKENS ? um_str_of(tokens[id]) : (um_str){0};
}

static const um_expr *random_expr(um_rules *r, int32_t depth) {
    static const char *const texts[] = {"a", "b", "ab", "ca", "abca", "cc", "bcabc"};
    const um_expr *part[3];
    const int32_t kind = draw(depth > 0 ? 7 : 2), n = 1 + draw(3);
    if (kind == 0) {
        const uint64_t bits[4] = {0, (uint64_t)(1 + draw(7)) << ('a' - 64)};
        return um_expr_bytes(r, bits);
    }
    if (kind == 1) return um_expr_text(r, um_str_of(texts[draw((int32_t)UM_LEN(texts))]));
    if (kind == 6) return um_expr_call(r, draw(r->n));
    for (int32_t i = 0; i < n; i++) part[i] = random_expr(r, depth - 1);
    if (kind == 5) {
        const int32_t min = draw(3);
        return um_expr_repeat(r, part[0], min, draw(2) ? -1 : min + draw(3));
    }
    return kind < 4 ? um_expr_join(r, part, (size_t)n) : um_expr_either(r, part, (size_t)n);
}

/* Draws rules and their language until one has a text. */
static um_language *random_language(um_rules *r, const um_vocabulary *v, int32_t depth) {
    um_language *l = NULL;
    for (;;) {
        um_err err;
        um_rules_init(r);
        const int32_t n = 1 + draw(3);
        static const char *const names[] = {"x", "y", "z"};
        for (int32_t i = 0; i < n; i++) um_rule_add(r, um_str_of(names[i]));
        for (int32_t i = 0; i < n; i++) um_rule_set(r, i, random_expr(r, 3));
        r->root = 0;
        if (!um_rules_check(r, &err) && !um_language_new(&l, r, v, depth, &err)) return l;
        um_rules_free(r);
    }
}

static um_vocabulary *new_vocabulary(void) {
    const um_vocabulary_source source = {.n = N_TOKENS, .bytes = bytes_of};
    um_vocabulary *v;
    um_err err;
    assert_int_equal(um_vocabulary_new(&v, &source, &err), UM_OK);
    return v;
}

#endif
