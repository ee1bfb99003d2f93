/* A matcher that follows the meaning of the expressions directly. Tests compare the automaton with it.
 *
 * It works on sets of places in the text. Place p stands before byte p. */
#include "grammar/internal.h"

typedef struct matcher {
    const um_rules *r;
    um_str text;
    int64_t work;     /* steps that are left; negative: the match was given up */
    bool **rule_ends; /* [r->n * (text.n + 1)]: the ends of the rule's texts that start at a place, NULL: unknown */
} matcher;

static size_t n_places(const matcher *m) { return m->text.n + 1; }
static bool *new_set(const matcher *m) { return UM_NEW_ARRAY(bool, n_places(m)); }

/* Adds the places of `more`. Returns whether one of them was new. */
static bool add_places(const matcher *m, bool *set, const bool *more) {
    bool grew = false;
    for (size_t p = 0; p < n_places(m); p++) {
        grew = grew || (more[p] && !set[p]);
        set[p] = set[p] || more[p];
    }
    return grew;
}

static void advance(matcher *m, const um_expr *e, const bool *from, bool *to);

static void advance_bytes(const matcher *m, const um_expr *e, const bool *from, bool *to) {
    for (size_t p = 0; p < m->text.n; p++) {
        const unsigned char b = (unsigned char)m->text.p[p];
        if (from[p] && (e->bytes[b / 64] >> b % 64 & 1)) to[p + 1] = true;
    }
}

static void advance_text(const matcher *m, const um_expr *e, const bool *from, bool *to) {
    const size_t n = (size_t)e->n;
    for (size_t p = 0; p + n <= m->text.n; p++)
        if (from[p] && memcmp(m->text.p + p, e->text, n) == 0) to[p + n] = true;
}

static void advance_join(matcher *m, const um_expr *e, const bool *from, bool *to) {
    bool *at = new_set(m);
    add_places(m, at, from);
    for (int32_t i = 0; i < e->n; i++) {
        bool *next = new_set(m);
        advance(m, e->part[i], at, next);
        um_free(at);
        at = next;
    }
    add_places(m, to, at);
    um_free(at);
}

static void advance_repeat(matcher *m, const um_expr *e, const bool *from, bool *to) {
    bool *at = new_set(m), *reached = new_set(m);
    add_places(m, at, from);
    for (int32_t i = 0;; i++) {
        if (i >= e->min && !add_places(m, reached, at)) break; /* further rounds would add nothing */
        if (i == e->max || m->work < 0) break;
        bool *next = new_set(m);
        advance(m, e->part[0], at, next);
        const bool is_same = memcmp(next, at, n_places(m) * sizeof *at) == 0;
        um_free(at);
        at = next;
        if (is_same && i < e->min) i = e->min - 1; /* so are the sets of all later rounds */
    }
    add_places(m, to, reached);
    um_free(reached);
    um_free(at);
}

static void advance_call(matcher *m, const um_expr *e, const bool *from, bool *to) {
    for (size_t p = 0; p < n_places(m); p++) {
        if (!from[p]) continue;
        bool **ends = &m->rule_ends[(size_t)e->rule * n_places(m) + p];
        if (!*ends) {
            bool *start = new_set(m), *found = new_set(m);
            start[p] = true;
            advance(m, m->r->rule[e->rule].body, start, found);
            um_free(start);
            *ends = found;
        }
        add_places(m, to, *ends);
    }
}

/* Adds to `to` the ends of the expression's texts that start at a place of `from`. */
static void advance(matcher *m, const um_expr *e, const bool *from, bool *to) {
    m->work -= (int64_t)n_places(m);
    if (m->work < 0 || !memchr(from, true, n_places(m))) return;
    switch (e->kind) {
    case UM_EXPR_BYTES: advance_bytes(m, e, from, to); break;
    case UM_EXPR_TEXT: advance_text(m, e, from, to); break;
    case UM_EXPR_JOIN: advance_join(m, e, from, to); break;
    case UM_EXPR_EITHER:
        for (int32_t i = 0; i < e->n; i++) advance(m, e->part[i], from, to);
        break;
    case UM_EXPR_REPEAT: advance_repeat(m, e, from, to); break;
    case UM_EXPR_CALL: advance_call(m, e, from, to); break;
    }
}

static bool match(matcher *m) {
    const size_t n_known = um_mul((size_t)m->r->n, n_places(m));
    m->rule_ends = UM_NEW_ARRAY(bool *, n_known);
    bool *from = new_set(m), *to = new_set(m);
    from[0] = true;
    advance(m, m->r->rule[m->r->root].body, from, to);
    const bool matches = to[m->text.n];
    for (size_t i = 0; i < n_known; i++) um_free(m->rule_ends[i]);
    um_free(m->rule_ends);
    um_free(from);
    um_free(to);
    return matches;
}

bool um_rules_match(const um_rules *r, um_str text) {
    matcher m = {.r = r, .text = text, .work = INT64_MAX};
    return um_rules_check(r, NULL) == UM_OK && match(&m);
}

bool um_rules_match_within(const um_rules *r, um_str text, int64_t *work, bool *matches) {
    matcher m = {.r = r, .text = text, .work = *work};
    *matches = false;
    if (text.n > UM_MATCH_WITHIN_MAX || (int64_t)r->n * (int64_t)n_places(&m) > *work) return false;
    *matches = match(&m);
    *work = m.work;
    return m.work >= 0;
}
