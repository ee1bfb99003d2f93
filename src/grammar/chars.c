/* Lists of expressions, and sets of code points as expressions over the bytes of UTF-8. */
#include <stdlib.h>

#include "grammar/internal.h"

#define CHAR_MAX_POINT 0x10FFFFu
#define SURROGATE_MIN  0xD800u
#define SURROGATE_MAX  0xDFFFu

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

void um_exprs_push(um_exprs *l, const um_expr *e) {
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 8;
        l->part = (const um_expr **)um_realloc(l->part, um_mul(l->cap, sizeof *l->part));
    }
    l->part[l->n++] = e;
}

static void free_list(um_exprs *l) {
    um_free(l->part);
    *l = (um_exprs){0};
}

const um_expr *um_exprs_join(um_rules *r, um_exprs *l) {
    const um_expr *e = um_expr_join(r, l->part, l->n);
    free_list(l);
    return e;
}

const um_expr *um_exprs_either(um_rules *r, um_exprs *l) {
    const um_expr *e = um_expr_either(r, l->part, l->n);
    free_list(l);
    return e;
}

const um_expr *um_expr_join2(um_rules *r, const um_expr *a, const um_expr *b) {
    return um_expr_join(r, (const um_expr *[]){a, b}, 2);
}

const um_expr *um_expr_join3(um_rules *r, const um_expr *a, const um_expr *b, const um_expr *c) {
    return um_expr_join(r, (const um_expr *[]){a, b, c}, 3);
}

const um_expr *um_expr_either2(um_rules *r, const um_expr *a, const um_expr *b) {
    return um_expr_either(r, (const um_expr *[]){a, b}, 2);
}

const um_expr *um_expr_nothing(um_rules *r) { return um_expr_join(r, NULL, 0); }

static void set_range(uint64_t bytes[4], unsigned first, unsigned last) {
    for (unsigned b = first; b <= last; b++) bytes[b / 64] |= UINT64_C(1) << b % 64;
}

const um_expr *um_expr_one_of(um_rules *r, const char *set) {
    uint64_t bytes[4] = {0};
    for (const char *p = set; *p; p++) set_range(bytes, (unsigned char)*p, (unsigned char)*p);
    return um_expr_bytes(r, bytes);
}

const um_expr *um_expr_between(um_rules *r, char first, char last) {
    uint64_t bytes[4] = {0};
    set_range(bytes, (unsigned char)first, (unsigned char)last);
    return um_expr_bytes(r, bytes);
}

void um_charset_add(um_charset *s, uint32_t first, uint32_t last) {
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 8;
        s->range = (um_chars *)um_realloc(s->range, um_mul(s->cap, sizeof *s->range));
    }
    s->range[s->n++] = (um_chars){first, last};
}

void um_charset_add_all(um_charset *s, const um_chars *range, size_t n, bool negated) {
    um_chars *own = UM_NEW_ARRAY(um_chars, n + 1), *inverse = UM_NEW_ARRAY(um_chars, n + 1);
    if (n) memcpy(own, range, n * sizeof *own);
    const size_t n_own = um_chars_normalize(own, n), n_inverse = um_chars_invert(own, n_own, inverse);
    const um_chars *added = negated ? inverse : own;
    for (size_t i = 0; i < (negated ? n_inverse : n_own); i++) um_charset_add(s, added[i].first, added[i].last);
    um_free(own);
    um_free(inverse);
}

void um_charset_free(um_charset *s) {
    um_free(s->range);
    *s = (um_charset){0};
}

/* ---- Ranges as bytes --------------------------------------------------------------------------------------------- */

/* The alternatives of a set. */
typedef struct alternatives {
    um_rules *r;
    um_exprs list;
} alternatives;

/* Adds the code points whose bytes are all between those of `first` and of `last`, byte by byte. */
static void push_block(alternatives *a, const char *first, const char *last, int n) {
    const um_expr *part[4];
    for (int i = 0; i < n; i++) {
        uint64_t bytes[4] = {0};
        set_range(bytes, (unsigned char)first[i], (unsigned char)last[i]);
        part[i] = um_expr_bytes(a->r, bytes);
    }
    um_exprs_push(&a->list, um_expr_join(a->r, part, (size_t)n));
}

/* Adds a range whose code points have UTF-8 of the same length. A range is a block when, for some k, its ends differ
 * in byte k, and behind it the first ends in the least bytes and the last in the greatest. Other ranges are cut at the
 * next border. */
static void push_range(alternatives *a, uint32_t first, uint32_t last) {
    for (int shift = 18; shift >= 6; shift -= 6) {
        const uint32_t low = (UINT32_C(1) << shift) - 1;
        if ((first & ~low) == (last & ~low)) continue;
        if (first & low) {
            push_range(a, first, first | low);
            push_range(a, (first | low) + 1, last);
            return;
        }
        if ((last & low) != low) {
            push_range(a, first, (last & ~low) - 1);
            push_range(a, last & ~low, last);
            return;
        }
    }
    char from[4], to[4];
    const int n = um_utf8_put(first, from);
    um_utf8_put(last, to);
    push_block(a, from, to, n);
}

/* Adds the part of the range that lies in [min, max]. */
static void push_within(alternatives *a, um_chars range, uint32_t min, uint32_t max) {
    const uint32_t first = UM_MAX(range.first, min), last = UM_MIN(range.last, max);
    if (first <= last) push_range(a, first, last);
}

static int by_first(const void *x, const void *y) {
    const uint32_t a = ((const um_chars *)x)->first, b = ((const um_chars *)y)->first;
    return (a > b) - (a < b);
}

/* Sorts the ranges and joins those that touch. Drops empty ones. Returns their number. */
static size_t normalize(um_chars *range, size_t n) {
    size_t kept = 0;
    qsort(range, n, sizeof *range, by_first);
    for (size_t i = 0; i < n; i++) {
        if (range[i].first > range[i].last) continue;
        if (kept && range[i].first <= range[kept - 1].last + 1)
            range[kept - 1].last = UM_MAX(range[kept - 1].last, range[i].last);
        else range[kept++] = range[i];
    }
    return kept;
}

size_t um_chars_normalize(um_chars *range, size_t n) {
    for (size_t i = 0; i < n; i++) range[i].last = UM_MIN(range[i].last, CHAR_MAX_POINT);
    return n ? normalize(range, n) : 0;
}

size_t um_chars_invert(const um_chars *range, size_t n, um_chars *out) {
    uint32_t next = 0;
    size_t n_out = 0;
    for (size_t i = 0; i < n; i++) {
        if (range[i].first > next) out[n_out++] = (um_chars){next, range[i].first - 1};
        next = range[i].last + 1;
    }
    if (next <= CHAR_MAX_POINT) out[n_out++] = (um_chars){next, CHAR_MAX_POINT};
    return n_out;
}

/* Adds the characters of a range above ASCII. */
static void push_above(alternatives *a, um_chars range) {
    push_within(a, range, 0x80, 0x7FF);
    push_within(a, range, 0x800, SURROGATE_MIN - 1);
    push_within(a, range, SURROGATE_MAX + 1, 0xFFFF);
    push_within(a, range, 0x10000, CHAR_MAX_POINT);
}

/* A call of the rule of all characters above ASCII. Most sets that leave something out have all of them. */
static const um_expr *any_above(um_rules *r) {
    if (r->above < 0) {
        alternatives all = {.r = r};
        r->above = um_rule_add(r, UM_STR("character above ASCII"));
        push_above(&all, (um_chars){0x80, CHAR_MAX_POINT});
        um_rule_set(r, r->above, um_exprs_either(r, &all.list));
    }
    return um_expr_call(r, r->above);
}

/* Adds normalized ranges. All ASCII characters are one set of bytes. */
static void push_all(alternatives *a, const um_chars *range, size_t n) {
    uint64_t ascii[4] = {0};
    for (size_t i = 0; i < n && range[i].first < 0x80; i++)
        set_range(ascii, range[i].first, UM_MIN(range[i].last, 0x7Fu));
    if (ascii[0] | ascii[1]) um_exprs_push(&a->list, um_expr_bytes(a->r, ascii));
    if (n && range[n - 1].first <= 0x80 && range[n - 1].last == CHAR_MAX_POINT)
        um_exprs_push(&a->list, any_above(a->r));
    else
        for (size_t i = 0; i < n; i++) push_above(a, range[i]);
}

/* A single character is a text. Surrogates are in no text. */
static void push_one(alternatives *a, uint32_t c) {
    char utf8[4];
    if (c >= SURROGATE_MIN && c <= SURROGATE_MAX) return;
    const int n = um_utf8_put(c, utf8);
    um_exprs_push(&a->list, um_expr_text(a->r, (um_str){utf8, (size_t)n}));
}

const um_expr *um_expr_chars(um_rules *r, const um_chars *range, size_t n, bool negated) {
    alternatives a = {.r = r};
    um_charset set = {0};
    um_charset_add_all(&set, range, n, negated);
    const bool is_one = set.n == 1 && set.range[0].first == set.range[0].last;
    if (is_one) push_one(&a, set.range[0].first);
    else push_all(&a, set.range, set.n);
    um_charset_free(&set);
    return um_exprs_either(r, &a.list);
}
