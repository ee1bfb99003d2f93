/* Rules over bytes: building expressions, and the check of a finished set of rules. */
#include <stdlib.h>

#include "grammar/internal.h"

#define BYTES_MAX ((size_t)64 << 20) /* memory of all expressions, names and texts */
/* Expressions and rules that are entered one inside the other. The check and the programs that read the rules recurse
 * this deep. */
#define DEPTH_MAX 1000

static const um_expr empty_text = {.kind = UM_EXPR_JOIN};

void um_rules_init(um_rules *r) {
    *r = (um_rules){.root = -1, .above = -1};
    um_arena_init(&r->arena, BYTES_MAX);
}

void um_rules_free(um_rules *r) {
    um_arena_free(&r->arena);
    um_free(r->rule);
    *r = (um_rules){.root = -1, .above = -1};
}

/* ---- Expressions ------------------------------------------------------------------------------------------------- */

/* Returns memory of the rules, or NULL once they are full. */
static void *take(um_rules *r, size_t n) {
    void *p = r->full ? NULL : um_arena_alloc(&r->arena, n);
    if (!p) r->full = true;
    return p;
}

static const um_expr *add(um_rules *r, const um_expr *e) {
    if (r->n_exprs >= UM_RULES_EXPRS_MAX) r->full = true;
    um_expr *copy = (um_expr *)take(r, sizeof *copy);
    if (!copy) return &empty_text;
    *copy = *e;
    r->n_exprs++;
    return copy;
}

static const um_expr *add_parts(um_rules *r, um_expr e, const um_expr *const *part, size_t n) {
    if (n > (size_t)UM_RULES_EXPRS_MAX) r->full = true;
    const um_expr **copy = n ? (const um_expr **)take(r, um_mul(n, sizeof *copy)) : NULL;
    if (n && !copy) return &empty_text;
    if (n) memcpy(copy, part, n * sizeof *copy);
    e.part = copy;
    e.n = (int32_t)n;
    return add(r, &e);
}

const um_expr *um_expr_bytes(um_rules *r, const uint64_t bytes[4]) {
    um_expr e = {.kind = UM_EXPR_BYTES};
    memcpy(e.bytes, bytes, sizeof e.bytes);
    return add(r, &e);
}

const um_expr *um_expr_text(um_rules *r, um_str text) {
    if (!text.n) return &empty_text;
    if (text.n > BYTES_MAX) r->full = true;
    char *copy = (char *)take(r, text.n);
    if (!copy) return &empty_text;
    memcpy(copy, text.p, text.n);
    return add(r, &(um_expr){.kind = UM_EXPR_TEXT, .n = (int32_t)text.n, .text = copy});
}

/* Returns the parts that an expression adds to a sequence. */
static size_t spliced(const um_expr *const *e, const um_expr *const **part) {
    const bool is_join = (*e)->kind == UM_EXPR_JOIN;
    *part = is_join ? (*e)->part : e;
    return is_join ? (size_t)(*e)->n : 1;
}

/* A part that is a sequence itself adds its parts, so that texts which follow each other are neighbours. */
const um_expr *um_expr_join(um_rules *r, const um_expr *const *part, size_t n) {
    const um_expr *const *own;
    size_t total = 0;
    for (size_t i = 0; i < n; i++) total += spliced(&part[i], &own);
    if (total == 0) return &empty_text;
    const um_expr **list = (const um_expr **)um_alloc(um_mul(total, sizeof *list));
    total = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t n_own = spliced(&part[i], &own);
        for (size_t k = 0; k < n_own; k++) list[total++] = own[k];
    }
    const um_expr *e = total == 1 ? list[0] : add_parts(r, (um_expr){.kind = UM_EXPR_JOIN}, list, total);
    um_free(list);
    return e;
}

const um_expr *um_expr_either(um_rules *r, const um_expr *const *part, size_t n) {
    if (n == 1) return part[0];
    return add_parts(r, (um_expr){.kind = UM_EXPR_EITHER}, part, n);
}

static bool is_empty(const um_expr *e) { return (e->kind == UM_EXPR_JOIN || e->kind == UM_EXPR_TEXT) && e->n == 0; }

const um_expr *um_expr_repeat(um_rules *r, const um_expr *part, int32_t min, int32_t max) {
    assert(min >= 0 && min <= UM_REPEAT_MAX && max <= UM_REPEAT_MAX && (max < 0 || max >= min));
    if (max == 0) return &empty_text;
    if (is_empty(part)) return part; /* copies add no node, so the bound of nodes would not end them */
    if (min == 1 && max == 1) return part;
    um_expr e = {.kind = UM_EXPR_REPEAT, .min = min, .max = max < 0 ? -1 : max};
    return add_parts(r, e, &part, 1);
}

const um_expr *um_expr_call(um_rules *r, int32_t rule) {
    return add(r, &(um_expr){.kind = UM_EXPR_CALL, .rule = rule});
}

/* ---- Rules ------------------------------------------------------------------------------------------------------- */

int32_t um_rule_add(um_rules *r, um_str name) {
    if (r->n >= UM_RULES_MAX) r->full = true;
    if (r->full && r->n) return 0;
    if (r->n == r->cap) {
        r->cap = r->cap ? r->cap * 2 : 16;
        r->rule = (um_rule *)um_realloc(r->rule, um_mul((size_t)r->cap, sizeof *r->rule));
    }
    char *copy = um_arena_strndup(&r->arena, name.p, name.n);
    if (!copy) r->full = true;
    r->rule[r->n] = (um_rule){.name = copy ? copy : "?"};
    return r->n++;
}

int32_t um_rule_find(const um_rules *r, um_str name) {
    for (int32_t i = 0; i < r->n; i++)
        if (um_str_eq(um_str_of(r->rule[i].name), name)) return i;
    return -1;
}

void um_rule_set(um_rules *r, int32_t rule, const um_expr *body) {
    assert(rule >= 0 && rule < r->n);
    r->rule[rule].body = body;
}

/* ---- The check --------------------------------------------------------------------------------------------------- */

typedef enum { UNSEEN, OPEN, NOT_EMPTY, MAY_BE_EMPTY } rule_state;

typedef struct checker {
    const um_rules *r;
    rule_state *state; /* [r->n] */
    int64_t visits;
    int32_t blamed;
    um_err *err;
} checker;

/* Checks the calls and the depth of an expression. */
static um_status check_parts(checker *c, const um_expr *e, const char *name, int depth) {
    if (depth > DEPTH_MAX)
        return um_fail(c->err, UM_ELIMIT, "rule %.80s: expressions are nested more than %d deep", name, DEPTH_MAX);
    /* A part of several expressions counts each time. */
    if (++c->visits > 4 * (int64_t)UM_RULES_EXPRS_MAX)
        return um_fail(c->err, UM_ELIMIT, "the constraint has more than %d expressions", UM_RULES_EXPRS_MAX);
    if (e->kind == UM_EXPR_CALL && (e->rule < 0 || e->rule >= c->r->n))
        return um_fail(c->err, UM_EINVAL, "rule %.80s calls a rule that does not exist", name);
    for (int32_t i = 0; e->kind != UM_EXPR_TEXT && i < e->n; i++) {
        um_status s = check_parts(c, e->part[i], name, depth + 1);
        if (s) return s;
    }
    return UM_OK;
}

static um_status enter_rule(checker *c, int32_t rule, int depth, bool *empty);

/* Sets *empty to whether the empty text is one of the expression's. Follows only the calls that can stand at the start
 * of a text. */
static um_status enter(checker *c, const um_expr *e, int depth, bool *empty) {
    bool part = false;
    um_status s = UM_OK;
    switch (e->kind) {
    case UM_EXPR_BYTES: *empty = false; return UM_OK;
    case UM_EXPR_TEXT: *empty = e->n == 0; return UM_OK;
    case UM_EXPR_CALL: return enter_rule(c, e->rule, depth + 1, empty);
    case UM_EXPR_REPEAT:
        s = enter(c, e->part[0], depth + 1, &part);
        *empty = part || e->min == 0;
        return s;
    case UM_EXPR_JOIN:
        *empty = true;
        for (int32_t i = 0; i < e->n && *empty && !s; i++) s = enter(c, e->part[i], depth + 1, empty);
        return s;
    case UM_EXPR_EITHER:
        *empty = false;
        for (int32_t i = 0; i < e->n && !s; i++) {
            s = enter(c, e->part[i], depth + 1, &part);
            *empty = *empty || part;
        }
        return s;
    }
    return s;
}

static um_status enter_rule(checker *c, int32_t rule, int depth, bool *empty) {
    const um_rule *u = &c->r->rule[rule];
    rule_state *state = &c->state[rule];
    *empty = *state == MAY_BE_EMPTY;
    if (*state == NOT_EMPTY || *state == MAY_BE_EMPTY) return UM_OK;
    c->blamed = rule;
    if (*state == OPEN)
        return um_fail(c->err, UM_EINVAL,
                       "rule %.80s begins with itself (left recursion); write it with a repetition, or with the "
                       "recursion at the end",
                       u->name);
    if (depth > DEPTH_MAX)
        return um_fail(c->err, UM_ELIMIT, "rule %.80s: rules are nested more than %d deep", u->name, DEPTH_MAX);
    *state = OPEN;
    um_status s = enter(c, u->body, depth, empty);
    *state = *empty ? MAY_BE_EMPTY : NOT_EMPTY;
    return s;
}

static um_status check_all(checker *c) {
    const um_rules *r = c->r;
    um_status s = UM_OK;
    for (int32_t i = 0; i < r->n && !s; i++) {
        c->blamed = i;
        if (!r->rule[i].body) return um_fail(c->err, UM_EINVAL, "rule %.80s is used but not defined", r->rule[i].name);
        s = check_parts(c, r->rule[i].body, r->rule[i].name, 0);
    }
    for (int32_t i = 0; i < r->n && !s; i++) {
        bool empty;
        s = enter_rule(c, i, 0, &empty);
    }
    return s;
}

um_status um_rules_check_at(const um_rules *r, int32_t *rule, um_err *err) {
    *rule = -1;
    if (r->full)
        return um_fail(err, UM_ELIMIT, "the constraint is larger than %d rules, %d expressions or %zu MiB",
                       UM_RULES_MAX, UM_RULES_EXPRS_MAX, BYTES_MAX >> 20);
    if (r->root < 0 || r->root >= r->n) return um_fail(err, UM_EINVAL, "the constraint has no root rule");
    checker c = {.r = r, .err = err, .state = UM_NEW_ARRAY(rule_state, (size_t)r->n)};
    um_status s = check_all(&c);
    if (s) *rule = c.blamed;
    um_free(c.state);
    return s;
}

um_status um_rules_check(const um_rules *r, um_err *err) {
    int32_t rule;
    return um_rules_check_at(r, &rule, err);
}
