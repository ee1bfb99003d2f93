/* Grammars in GBNF, the notation of llama.cpp, which the EBNF of other servers shares.
 *
 * A rule is `name ::= alternatives`. It ends where the next rule begins, so alternatives may be on several lines. The
 * answer is a text of the rule `root`. */
#include <jansson.h>

#include "grammar/internal.h"

#define GROUPS_MAX 200 /* nested groups */

typedef struct parser {
    um_rules *r;
    um_str text;
    size_t at;
    int depth;
    json_t *names; /* name -> number of the rule */
    size_t *place; /* [r->n] where the rule is used first, or defined */
    size_t place_cap;
    um_err *err;
} parser;

/* ---- The text ---------------------------------------------------------------------------------------------------- */

static void line_of(const parser *p, size_t at, int *line, int *column) {
    *line = *column = 1;
    for (size_t i = 0; i < at && i < p->text.n; i++) {
        const unsigned char c = (unsigned char)p->text.p[i];
        if (c == '\n') *column = 1, ++*line;
        else if ((c & 0xC0) != 0x80) ++*column;
    }
}

static um_status fail_at(parser *p, size_t at, um_status code, const char *fmt, ...) UM_PRINTF(4, 5);
static um_status fail_at(parser *p, size_t at, um_status code, const char *fmt, ...) {
    char text[UM_ERR_MAX - 64];
    int line, column;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    line_of(p, at, &line, &column);
    return um_fail(p->err, code, "grammar:%d:%d: %s", line, column, text);
}

static bool is_end(const parser *p) { return p->at >= p->text.n; }
static char peek(const parser *p) { return is_end(p) ? 0 : p->text.p[p->at]; }

static bool skip(parser *p, const char *s) {
    const size_t n = strlen(s);
    if (p->text.n - p->at < n || memcmp(p->text.p + p->at, s, n) != 0) return false;
    p->at += n;
    return true;
}

/* Skips white space and comments. */
static void skip_space(parser *p) {
    while (!is_end(p)) {
        const char c = peek(p);
        if (c == '#')
            while (!is_end(p) && peek(p) != '\n') p->at++;
        else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') p->at++;
        else return;
    }
}

static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static um_str parse_name(parser *p) {
    const size_t start = p->at;
    while (!is_end(p) && is_name_char(peek(p))) p->at++;
    return (um_str){p->text.p + start, p->at - start};
}

/* Returns whether a definition begins here. */
static bool at_definition(const parser *p) {
    parser ahead = *p;
    if (!parse_name(&ahead).n) return false;
    skip_space(&ahead);
    return skip(&ahead, "::=");
}

/* ---- Characters -------------------------------------------------------------------------------------------------- */

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static um_status parse_hex(parser *p, size_t start, int n, uint32_t *c) {
    *c = 0;
    for (int i = 0; i < n; i++, p->at++) {
        if (hex_value(peek(p)) < 0) return fail_at(p, start, UM_EINVAL, "expected %d hexadecimal digits", n);
        *c = *c * 16 + (uint32_t)hex_value(peek(p));
    }
    if (*c > 0x10FFFF || (*c >= 0xD800 && *c <= 0xDFFF))
        return fail_at(p, start, UM_EINVAL, "this number is not a character");
    return UM_OK;
}

/* Parses a character of a text or a class. */
static um_status parse_char(parser *p, uint32_t *c) {
    static const char names[] = "nrt\\\"[]'-^/", values[] = "\n\r\t\\\"[]'-^/";
    const size_t start = p->at;
    if (!skip(p, "\\")) {
        p->at += (size_t)UM_MAX(um_utf8_next(p->text.p + p->at, p->text.n - p->at, c), 1);
        return UM_OK;
    }
    const char e = peek(p), *name = e ? strchr(names, e) : NULL;
    p->at++;
    if (name) return *c = (unsigned char)values[name - names], UM_OK;
    if (e == 'x') return parse_hex(p, start, 2, c);
    if (e == 'u') return parse_hex(p, start, 4, c);
    if (e == 'U') return parse_hex(p, start, 8, c);
    return fail_at(p, start, UM_EINVAL, "unknown escape sequence; write \\xHH, \\uHHHH or \\UHHHHHHHH");
}

static um_status parse_text(parser *p, const um_expr **out) {
    const size_t start = p->at++;
    um_buf b = {0};
    um_status s = UM_OK;
    while (!s && peek(p) != '"') {
        uint32_t c;
        char utf8[4];
        s = is_end(p) || peek(p) == '\n' ? fail_at(p, start, UM_EINVAL, "this text has no closing \"")
                                         : parse_char(p, &c);
        if (!s) um_buf_append(&b, utf8, (size_t)um_utf8_put(c, utf8));
    }
    p->at++;
    if (!s) *out = um_expr_text(p->r, (um_str){b.data, b.len});
    um_buf_free(&b);
    return s;
}

static um_status parse_class(parser *p, const um_expr **out) {
    const size_t start = p->at++;
    const bool negated = skip(p, "^");
    um_charset set = {0};
    um_status s = UM_OK;
    while (!s && peek(p) != ']') {
        uint32_t first = 0, last;
        const size_t at = p->at;
        s = is_end(p) || peek(p) == '\n' ? fail_at(p, start, UM_EINVAL, "this class has no closing ]")
                                         : parse_char(p, &first);
        last = first;
        if (!s && peek(p) == '-' && p->at + 1 < p->text.n && p->text.p[p->at + 1] != ']') {
            p->at++;
            s = parse_char(p, &last);
        }
        if (!s && last < first) s = fail_at(p, at, UM_EINVAL, "the range is in the wrong order");
        um_charset_add(&set, first, last);
    }
    if (!s && set.n == 0 && !negated) s = fail_at(p, start, UM_EINVAL, "the class is empty");
    p->at++;
    if (!s) *out = um_expr_chars(p->r, set.range, set.n, negated);
    um_charset_free(&set);
    return s;
}

/* ---- Expressions ------------------------------------------------------------------------------------------------- */

/* Returns the number of the rule with this name; it may be defined later. */
static int32_t rule_of(parser *p, um_str name, size_t at) {
    const json_t *known = json_object_getn(p->names, name.p, name.n);
    if (known) return (int32_t)json_integer_value(known);
    const int32_t rule = um_rule_add(p->r, name);
    json_object_setn_new(p->names, name.p, name.n, json_integer(rule));
    if ((size_t)rule >= p->place_cap) {
        p->place_cap = UM_MAX((size_t)rule + 1, p->place_cap * 2);
        p->place = (size_t *)um_realloc(p->place, um_mul(p->place_cap, sizeof *p->place));
    }
    p->place[rule] = at;
    return rule;
}

static um_status parse_alternatives(parser *p, const um_expr **out);

static um_status parse_group(parser *p, const um_expr **out) {
    const size_t start = p->at++;
    if (p->depth >= GROUPS_MAX) return fail_at(p, start, UM_ELIMIT, "more than %d nested groups", GROUPS_MAX);
    p->depth++;
    um_status s = parse_alternatives(p, out);
    p->depth--;
    if (!s && !skip(p, ")")) s = fail_at(p, start, UM_EINVAL, "this group has no closing )");
    return s;
}

static um_status parse_atom(parser *p, const um_expr **out) {
    const size_t start = p->at;
    const char c = peek(p);
    if (c == '"') return parse_text(p, out);
    if (c == '[') return parse_class(p, out);
    if (c == '(') return parse_group(p, out);
    if (skip(p, ".")) return *out = um_expr_chars(p->r, NULL, 0, true), UM_OK;
    if (c == '<' || c == '!')
        return fail_at(p, start, UM_EUNSUPPORTED, "tokens (<[1]>, <name>) are not supported; write their text");
    if (c == '*' || c == '+' || c == '?' || c == '{') return fail_at(p, start, UM_EINVAL, "nothing to repeat");
    const um_str name = parse_name(p);
    if (name.n) return *out = um_expr_call(p->r, rule_of(p, name, start)), UM_OK;
    return fail_at(p, start, UM_EINVAL,
                   "expected a text in quotes, a class [...], a group (...) or the name of a rule");
}

static int32_t parse_count(parser *p) {
    int32_t n = -1;
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++)
        n = UM_MIN(UM_MAX(n, 0) * 10 + (peek(p) - '0'), UM_REPEAT_MAX + 1);
    skip_space(p);
    return n;
}

/* Parses {m}, {m,}, {,n} or {m,n} behind the brace. */
static um_status parse_braces(parser *p, size_t start, int32_t *min, int32_t *max) {
    skip_space(p);
    *min = *max = parse_count(p);
    const bool comma = skip(p, ",");
    skip_space(p);
    if (comma) *max = parse_count(p);
    if (!skip(p, "}") || (*min < 0 && *max < 0))
        return fail_at(p, start, UM_EINVAL, "expected a repetition: {m}, {m,} or {m,n}");
    *min = UM_MAX(*min, 0);
    if (*max >= 0 && *max < *min) return fail_at(p, start, UM_EINVAL, "the repetition ends below its start");
    if (*min > UM_REPEAT_MAX || *max > UM_REPEAT_MAX)
        return fail_at(p, start, UM_ELIMIT, "a repetition of more than %d times", UM_REPEAT_MAX);
    return UM_OK;
}

static um_status parse_repeated(parser *p, const um_expr **out) {
    um_status s = parse_atom(p, out);
    for (int i = 0; !s; i++) {
        const size_t start = p->at;
        int32_t min = peek(p) == '+', max = peek(p) == '?' ? 1 : -1;
        if (skip(p, "{")) s = parse_braces(p, start, &min, &max);
        else if (!skip(p, "*") && !skip(p, "+") && !skip(p, "?")) break;
        if (i > GROUPS_MAX) s = fail_at(p, start, UM_ELIMIT, "more than %d nested groups", GROUPS_MAX);
        if (!s) *out = um_expr_repeat(p->r, *out, min, max);
    }
    return s;
}

static um_status parse_sequence(parser *p, const um_expr **out) {
    um_exprs list = {0};
    um_status s = UM_OK;
    skip_space(p);
    while (!s && !is_end(p) && peek(p) != '|' && peek(p) != ')' && !at_definition(p)) {
        const um_expr *e = NULL;
        s = parse_repeated(p, &e);
        if (!s) um_exprs_push(&list, e);
        skip_space(p);
    }
    *out = um_exprs_join(p->r, &list);
    return s;
}

static um_status parse_alternatives(parser *p, const um_expr **out) {
    um_exprs list = {0};
    um_status s;
    do {
        const um_expr *e = NULL;
        s = parse_sequence(p, &e);
        if (!s) um_exprs_push(&list, e);
    } while (!s && skip(p, "|"));
    *out = um_exprs_either(p->r, &list);
    return s;
}

/* ---- Rules ------------------------------------------------------------------------------------------------------- */

static um_status parse_rule(parser *p) {
    const size_t start = p->at;
    const um_str name = parse_name(p);
    const um_expr *body = NULL;
    skip_space(p);
    if (!name.n || !skip(p, "::=")) return fail_at(p, start, UM_EINVAL, "expected a rule: name ::= ...");
    const int32_t rule = rule_of(p, name, start);
    if (p->r->rule[rule].body && !p->r->full)
        return fail_at(p, start, UM_EINVAL, "rule %.*s is defined twice", (int)UM_MIN(name.n, 80u), name.p);
    um_status s = parse_alternatives(p, &body);
    if (!s && peek(p) == ')') s = fail_at(p, p->at, UM_EINVAL, "this ) closes no group");
    if (!s) um_rule_set(p->r, rule, body);
    if (!s) p->place[rule] = start;
    return s;
}

static um_status check(parser *p) {
    const int32_t root = um_rule_find(p->r, UM_STR("root"));
    if (root < 0 && !p->r->full)
        return um_fail(p->err, UM_EINVAL, "grammar: the rule root is missing; the answer is one of its texts");
    int32_t rule = -1;
    int line, column;
    p->r->root = root;
    um_status s = um_rules_check_at(p->r, &rule, p->err);
    if (!s || rule < 0 || (size_t)rule >= p->place_cap) return s;
    line_of(p, p->place[rule], &line, &column);
    return um_fail_in(p->err, "grammar:%d:%d", line, column);
}

um_status um_rules_from_gbnf(um_rules *r, um_str grammar, um_err *err) {
    const size_t bad = um_utf8_check(grammar.p, grammar.n);
    if (bad < grammar.n) return um_fail(err, UM_EINVAL, "grammar: byte %zu is not UTF-8", bad + 1);
    parser p = {.r = r, .text = grammar, .err = err, .names = json_object()};
    um_status s = UM_OK;
    for (skip_space(&p); !s && !is_end(&p); skip_space(&p)) s = parse_rule(&p);
    if (!s) s = check(&p);
    json_decref(p.names);
    um_free(p.place);
    return s;
}
