/* Regular expressions as rules: the notation and the meaning of Python's re for texts with the flag ASCII, so \d, \w
 * and \s are sets of ASCII characters.
 *
 * An expression marks the start of the text with ^ and its end with $. Inside of the parser an expression is up to four
 * expressions: with or without a mark in front, with or without one behind. So a mark may stand in a group or an
 * alternative, as long as nothing can come before ^ or behind $. */
#include "grammar/internal.h"

#define GROUPS_MAX 250 /* nested groups */

/* marked[s][e]: the texts that begin at the text's start if s is set, and end at its end if e is set. NULL: none. */
typedef struct marked {
    const um_expr *e[2][2];
} marked;

typedef struct parser {
    um_rules *r;
    um_str text;
    size_t at;
    bool quoted, lengths;
    bool inverted; /* the parser is in a class that begins with ^ */
    int depth;
    um_err *err;
} parser;

/* ---- The text ---------------------------------------------------------------------------------------------------- */

static um_status fail_at(parser *p, size_t at, um_status code, const char *what) {
    size_t column = 1;
    for (size_t i = 0; i < at && i < p->text.n; i++) column += ((unsigned char)p->text.p[i] & 0xC0) != 0x80;
    return um_fail(p->err, code, "column %zu of the regular expression: %s", column, what);
}

static bool is_end(const parser *p) { return p->at >= p->text.n; }
static char peek(const parser *p) { return is_end(p) ? 0 : p->text.p[p->at]; }
static bool looking_at(const parser *p, const char *s) {
    const size_t n = strlen(s);
    return p->text.n - p->at >= n && memcmp(p->text.p + p->at, s, n) == 0;
}
static bool skip(parser *p, const char *s) {
    if (!looking_at(p, s)) return false;
    p->at += strlen(s);
    return true;
}

/* Reads one code point. The text was checked to be UTF-8. */
static uint32_t next_char(parser *p) {
    uint32_t c = 0;
    p->at += (size_t)UM_MAX(um_utf8_next(p->text.p + p->at, p->text.n - p->at, &c), 1);
    return c;
}

/* ---- Characters and classes -------------------------------------------------------------------------------------- */

static const um_chars digits[] = {{'0', '9'}};
static const um_chars word_chars[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const um_chars spaces[] = {{'\t', '\r'}, {' ', ' '}};
/* The white space of Unicode that \s has in other programs, too. */
static const um_chars all_spaces[] = {{'\t', '\r'},     {0x1C, ' '},      {0x85, 0x85},     {0xA0, 0xA0},
                                      {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                      {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
static const um_chars line_feed[] = {{'\n', '\n'}};
/* The characters that . leaves out in JSON schemas, whose patterns are those of ECMAScript. */
static const um_chars line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Reads `n` hexadecimal digits; n 0: up to the closing brace. */
static um_status parse_hex(parser *p, size_t start, int n, uint32_t *c) {
    int i = 0;
    *c = 0;
    for (; (n == 0 || i < n) && hex_value(peek(p)) >= 0 && *c <= 0x10FFFF; i++)
        *c = *c * 16 + (uint32_t)hex_value(p->text.p[p->at++]);
    if (n ? i < n : i == 0 || !skip(p, "}"))
        return fail_at(p, start, UM_EINVAL, "expected hexadecimal digits, as in \\x41, \\u0041 or \\x{41}");
    if (*c > 0x10FFFF || (*c >= 0xD800 && *c <= 0xDFFF))
        return fail_at(p, start, UM_EINVAL, "this number is not a character");
    return UM_OK;
}

/* \uD83D\uDE00 is one character. */
static um_status parse_unicode(parser *p, size_t start, uint32_t *c) {
    if (skip(p, "{")) return parse_hex(p, start, 0, c);
    uint32_t high = 0, low = 0;
    const size_t digits_at = p->at;
    for (int i = 0; i < 4 && hex_value(peek(p)) >= 0; i++) high = high * 16 + (uint32_t)hex_value(p->text.p[p->at++]);
    if (p->at - digits_at == 4 && high >= 0xD800 && high <= 0xDBFF && skip(p, "\\u")) {
        const size_t low_at = p->at;
        for (int i = 0; i < 4 && hex_value(peek(p)) >= 0; i++) low = low * 16 + (uint32_t)hex_value(p->text.p[p->at++]);
        if (p->at - low_at == 4 && low >= 0xDC00 && low <= 0xDFFF) {
            *c = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
            return UM_OK;
        }
    }
    p->at = digits_at;
    return parse_hex(p, start, 4, c);
}

static um_status fail_escape(parser *p, size_t start, char c, bool in_class) {
    if (c >= '1' && c <= '9') return fail_at(p, start, UM_EUNSUPPORTED, "back references are not supported");
    if (c == 'k') return fail_at(p, start, UM_EUNSUPPORTED, "back references (\\k) are not supported");
    if (c == 'p' || c == 'P')
        return fail_at(p, start, UM_EUNSUPPORTED, "Unicode properties (\\p) are not supported; list the ranges");
    if (!in_class && (c == 'b' || c == 'B'))
        return fail_at(p, start, UM_EUNSUPPORTED, "word boundaries (\\b, \\B) are not supported");
    return fail_at(p, start, UM_EINVAL, "unknown escape sequence");
}

/* Adds the set that an escape names: \d, \w or \s, or what is outside of it. Validators of JSON schemas differ about
 * the characters above ASCII in these sets. For a schema, only characters that all of them accept are in the set, or in
 * the complement of an inverted class. */
static void add_named(const parser *p, char name, um_charset *set) {
    const bool outside = name == 'D' || name == 'W' || name == 'S';
    const bool wide = p->quoted && outside != p->inverted;
    um_charset own = {0};
    if (name == 'd' || name == 'D') um_charset_add_all(&own, digits, UM_LEN(digits), false);
    else if (name == 'w' || name == 'W') um_charset_add_all(&own, word_chars, UM_LEN(word_chars), false);
    else if (wide) um_charset_add_all(&own, all_spaces, UM_LEN(all_spaces), false);
    else um_charset_add_all(&own, spaces, UM_LEN(spaces), false);
    if (wide && name != 's' && name != 'S') um_charset_add(&own, 0x80, 0x10FFFF);
    um_charset_add_all(set, own.range, own.n, outside);
    um_charset_free(&own);
}

/* Parses what follows a backslash at `start`: a set is added to `set`, a single character goes to *c. */
static um_status parse_escape(parser *p, size_t start, bool in_class, um_charset *set, bool *is_set, uint32_t *c) {
    static const char names[] = "tnrfva0", values[] = "\t\n\r\f\v\a";
    *is_set = false;
    if (is_end(p)) return fail_at(p, start, UM_EINVAL, "a backslash at the end");
    const uint32_t e = next_char(p);
    const char *name = e && e < 0x80 ? strchr(names, (int)e) : NULL;
    if (name) {
        if (e == '0' && peek(p) >= '0' && peek(p) <= '9')
            return fail_at(p, start, UM_EUNSUPPORTED, "octal escapes are not supported; write \\xHH");
        *c = (unsigned char)values[name - names];
        return UM_OK;
    }
    if (e == 'x') return skip(p, "{") ? parse_hex(p, start, 0, c) : parse_hex(p, start, 2, c);
    if (e == 'u') return parse_unicode(p, start, c);
    if (e == 'U') return parse_hex(p, start, 8, c);
    if (in_class && e == 'b') return *c = '\b', UM_OK;
    *is_set = e && e < 0x80 && strchr("dDwWsS", (int)e);
    if (*is_set) return add_named(p, (char)e, set), UM_OK;
    if ((e >= '0' && e <= '9') || (e >= 'A' && e <= 'Z') || (e >= 'a' && e <= 'z'))
        return fail_escape(p, start, (char)e, in_class);
    *c = e;
    return UM_OK;
}

static const um_expr *chars_expr(parser *p, const um_chars *range, size_t n, bool negated) {
    if (p->lengths) return um_expr_between(p->r, 'x', 'x');
    return p->quoted ? um_json_chars(p->r, range, n, negated) : um_expr_chars(p->r, range, n, negated);
}

/* Parses one end of a range in a class, or a set. */
static um_status parse_class_item(parser *p, um_charset *set, bool *is_set, uint32_t *c) {
    const size_t start = p->at;
    *is_set = false;
    if (skip(p, "\\")) return parse_escape(p, start, true, set, is_set, c);
    if (looking_at(p, "[:")) return fail_at(p, start, UM_EUNSUPPORTED, "named classes ([:name:]) are not supported");
    *c = next_char(p);
    return UM_OK;
}

static um_status parse_class_range(parser *p, um_charset *set) {
    const size_t start = p->at;
    uint32_t first, last;
    bool is_set;
    um_status s = parse_class_item(p, set, &is_set, &first);
    if (s || is_set) {
        if (!s && peek(p) == '-' && p->at + 1 < p->text.n && p->text.p[p->at + 1] != ']')
            return fail_at(p, start, UM_EINVAL, "a range begins with a set");
        return s;
    }
    last = first;
    if (peek(p) == '-' && p->at + 1 < p->text.n && p->text.p[p->at + 1] != ']') {
        p->at++;
        s = parse_class_item(p, set, &is_set, &last);
        if (s) return s;
        if (is_set) return fail_at(p, start, UM_EINVAL, "a range ends with a set");
    }
    if (last < first) return fail_at(p, start, UM_EINVAL, "the range is in the wrong order");
    um_charset_add(set, first, last);
    return UM_OK;
}

/* Parses a class behind its opening bracket. A ] in the first place is a character. */
static um_status parse_class(parser *p, size_t start, const um_expr **out) {
    um_charset set = {0};
    const bool negated = skip(p, "^");
    um_status s = UM_OK;
    p->inverted = negated;
    for (bool first = true; !s && (first || peek(p) != ']'); first = false)
        s = is_end(p) ? fail_at(p, start, UM_EINVAL, "this class has no closing ]") : parse_class_range(p, &set);
    p->inverted = false;
    if (!s) {
        p->at++;
        *out = chars_expr(p, set.range, set.n, negated);
    }
    um_charset_free(&set);
    return s;
}

/* ---- Joining and alternatives ------------------------------------------------------------------------------------ */

static marked unmarked(const um_expr *e) { return (marked){.e = {{e}}}; }

static const um_expr *either(parser *p, const um_expr *a, const um_expr *b) {
    if (!a || !b) return a ? a : b;
    return um_expr_either(p->r, (const um_expr *[]){a, b}, 2);
}

/* Adds an alternative to the lists of all alternatives. */
static void push_alternative(um_exprs list[2][2], const marked *m) {
    for (int s = 0; s < 2; s++)
        for (int e = 0; e < 2; e++)
            if (m->e[s][e]) um_exprs_push(&list[s][e], m->e[s][e]);
}

/* Puts b behind a, with texts between them that begin and end anywhere. */
static um_status join(parser *p, size_t at, marked *a, um_exprs *between, const marked *b) {
    marked out = {0};
    if (b->e[1][0] || b->e[1][1])
        return fail_at(p, at, UM_EUNSUPPORTED, "^ is supported only at the start of the expression");
    if (a->e[0][1] || a->e[1][1])
        return fail_at(p, at, UM_EUNSUPPORTED, "$ is supported only at the end of the expression");
    const um_expr *middle = um_exprs_join(p->r, between);
    for (int s = 0; s < 2; s++)
        for (int e = 0; e < 2; e++)
            if (a->e[s][0] && b->e[0][e])
                out.e[s][e] = um_expr_join(p->r, (const um_expr *[]){a->e[s][0], middle, b->e[0][e]}, 3);
    *a = out;
    return UM_OK;
}

/* ---- Expressions ------------------------------------------------------------------------------------------------- */

static um_status parse_alternatives(parser *p, marked *out);

static um_status fail_group(parser *p, size_t start) {
    static const struct {
        const char *prefix, *what;
    } known[] = {
        {"?=", "look-ahead is not supported"},
        {"?!", "look-ahead is not supported"},
        {"?<=", "look-behind is not supported"},
        {"?<!", "look-behind is not supported"},
        {"?P=", "back references (?P=name) are not supported"},
        {"?#", "comments (?#...) are not supported"},
        {"?>", "atomic groups (?>...) are not supported"},
        {"?(", "conditions (?(...)...) are not supported"},
    };
    for (size_t i = 0; i < UM_LEN(known); i++)
        if (looking_at(p, known[i].prefix)) return fail_at(p, start, UM_EUNSUPPORTED, known[i].what);
    return fail_at(p, start, UM_EUNSUPPORTED, "flags (?...) are not supported");
}

/* Skips the name of a group up to its closing bracket. */
static um_status skip_name(parser *p, size_t start) {
    const size_t from = p->at;
    while (!is_end(p) && peek(p) != '>') {
        const char c = peek(p);
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= '0' && c <= '9' && p->at > from)))
            return fail_at(p, start, UM_EINVAL, "a group's name has letters, digits and _");
        p->at++;
    }
    if (p->at == from || !skip(p, ">")) return fail_at(p, start, UM_EINVAL, "the group's name is not complete");
    return UM_OK;
}

static um_status parse_group(parser *p, size_t start, marked *out) {
    um_status s = UM_OK;
    if (p->depth >= GROUPS_MAX) return fail_at(p, start, UM_ELIMIT, "more than 250 nested groups");
    if (peek(p) == '?' && !skip(p, "?:")) {
        const bool is_name =
            looking_at(p, "?P<") || (looking_at(p, "?<") && !looking_at(p, "?<=") && !looking_at(p, "?<!"));
        if (!is_name) return fail_group(p, start);
        p->at += looking_at(p, "?P<") ? 3 : 2;
        s = skip_name(p, start);
    }
    p->depth++;
    if (!s) s = parse_alternatives(p, out);
    p->depth--;
    if (!s && !skip(p, ")")) return fail_at(p, start, UM_EINVAL, "this group has no closing )");
    return s;
}

/* Parses an atom at `start` that begins with a backslash, behind which the parser stands. */
static um_status parse_escaped_atom(parser *p, size_t start, marked *out) {
    const um_expr *empty = um_expr_join(p->r, NULL, 0);
    if (skip(p, "A")) return out->e[1][0] = empty, UM_OK;
    if (skip(p, "Z") || skip(p, "z")) return out->e[0][1] = empty, UM_OK;
    um_charset set = {0};
    bool is_set;
    uint32_t c = 0;
    um_status s = parse_escape(p, start, false, &set, &is_set, &c);
    if (!s && !is_set) um_charset_add(&set, c, c);
    if (!s) *out = unmarked(chars_expr(p, set.range, set.n, false));
    um_charset_free(&set);
    return s;
}

static um_status parse_atom(parser *p, marked *out) {
    const size_t start = p->at;
    const uint32_t c = next_char(p);
    const um_expr *e = NULL;
    um_status s;
    *out = (marked){0};
    switch (c) {
    case '\\': return parse_escaped_atom(p, start, out);
    case '(': return parse_group(p, start, out);
    case '^': out->e[1][0] = um_expr_join(p->r, NULL, 0); return UM_OK;
    case '$': out->e[0][1] = um_expr_join(p->r, NULL, 0); return UM_OK;
    case '*':
    case '+':
    case '?': return fail_at(p, start, UM_EINVAL, "nothing to repeat");
    case '[':
        s = parse_class(p, start, &e);
        if (!s) *out = unmarked(e);
        return s;
    case '.':
        e = p->quoted ? chars_expr(p, line_ends, UM_LEN(line_ends), true)
                      : chars_expr(p, line_feed, UM_LEN(line_feed), true);
        break;
    default: e = chars_expr(p, &(um_chars){c, c}, 1, false);
    }
    *out = unmarked(e);
    return UM_OK;
}

/* Reads a number of a repetition. Returns -1 when there is none; a number beyond UM_REPEAT_MAX is UM_REPEAT_MAX + 1. */
static int32_t parse_count(parser *p) {
    int32_t n = -1;
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++)
        n = UM_MIN(UM_MAX(n, 0) * 10 + (peek(p) - '0'), UM_REPEAT_MAX + 1);
    return n;
}

/* Reads {m}, {m,}, {,n} or {m,n}. Anything else that begins with { is text: *found is false. */
static bool parse_braces(parser *p, int32_t *min, int32_t *max) {
    const size_t start = p->at;
    if (!skip(p, "{")) return false;
    *min = parse_count(p);
    const bool comma = skip(p, ",");
    *max = comma ? parse_count(p) : *min;
    if (skip(p, "}") && (*min >= 0 || comma)) {
        *min = UM_MAX(*min, 0);
        return true;
    }
    p->at = start;
    return false;
}

static bool parse_quantifier(parser *p, int32_t *min, int32_t *max) {
    *min = peek(p) == '+';
    *max = peek(p) == '?' ? 1 : -1;
    return skip(p, "*") || skip(p, "+") || skip(p, "?") || parse_braces(p, min, max);
}

static um_status parse_repeated(parser *p, marked *out) {
    um_status s = parse_atom(p, out);
    const size_t start = p->at;
    int32_t min, max;
    if (s || is_end(p) || !parse_quantifier(p, &min, &max)) return s;
    if (min > UM_REPEAT_MAX || max > UM_REPEAT_MAX)
        return fail_at(p, start, UM_ELIMIT, "a repetition of more than 65536 times");
    if (max >= 0 && max < min) return fail_at(p, start, UM_EINVAL, "the repetition ends below its start");
    if (out->e[0][1] || out->e[1][0] || out->e[1][1])
        return fail_at(p, start, UM_EUNSUPPORTED, "^ and $ can't be repeated");
    if (!skip(p, "?") && peek(p) == '+')
        return fail_at(p, p->at, UM_EUNSUPPORTED, "possessive repetitions are not supported");
    const size_t again = p->at;
    int32_t ignored;
    if (!is_end(p) && parse_quantifier(p, &ignored, &ignored)) return fail_at(p, again, UM_EINVAL, "multiple repeat");
    *out = unmarked(um_expr_repeat(p->r, out->e[0][0], min, max));
    return UM_OK;
}

static bool is_marked(const marked *m) { return m->e[0][1] || m->e[1][0] || m->e[1][1]; }

static um_status parse_sequence(parser *p, marked *out) {
    um_exprs list = {0}; /* the last parts, which have no marks */
    um_status s = UM_OK;
    bool first = true;
    *out = unmarked(um_expr_join(p->r, NULL, 0));
    while (!s && !is_end(p) && peek(p) != '|' && peek(p) != ')') {
        const size_t at = p->at;
        marked m;
        s = parse_repeated(p, &m);
        if (s) break;
        if (first) *out = m;
        else if (is_marked(&m) || out->e[0][1] || out->e[1][1]) s = join(p, at, out, &list, &m);
        else um_exprs_push(&list, m.e[0][0]);
        first = false;
    }
    const marked end = unmarked(um_expr_join(p->r, NULL, 0));
    if (!s && list.n) s = join(p, p->at, out, &list, &end);
    um_free(list.part);
    return s;
}

static um_status parse_alternatives(parser *p, marked *out) {
    um_exprs list[2][2] = {0};
    um_status s;
    do {
        marked m = {0};
        s = parse_sequence(p, &m);
        if (!s) push_alternative(list, &m);
    } while (!s && skip(p, "|"));
    for (int b = 0; b < 2; b++)
        for (int e = 0; e < 2; e++) {
            const bool any = list[b][e].n > 0;
            const um_expr *all = um_exprs_either(p->r, &list[b][e]);
            out->e[b][e] = any ? all : NULL;
        }
    return s;
}

/* ---- Whole expressions ------------------------------------------------------------------------------------------- */

static const um_expr *any_text(parser *p) {
    if (p->quoted) return um_json_any_chars(p->r);
    return um_expr_repeat(p->r, chars_expr(p, NULL, 0, true), 0, -1);
}

/* Adds any text on the sides that have no mark. */
static const um_expr *whole(parser *p, const marked *m, bool anchored) {
    const um_expr *out = NULL;
    for (int s = 0; s < 2; s++)
        for (int e = 0; e < 2; e++) {
            const um_expr *part[3];
            size_t n = 0;
            if (!m->e[s][e]) continue;
            if (!s && !anchored) part[n++] = any_text(p);
            part[n++] = m->e[s][e];
            if (!e && !anchored) part[n++] = any_text(p);
            out = either(p, out, um_expr_join(p->r, part, n));
        }
    return out;
}

static um_status parse_whole(parser *p, bool anchored, const um_expr **out) {
    marked m;
    const size_t bad = um_utf8_check(p->text.p, p->text.n);
    if (bad < p->text.n) return um_fail(p->err, UM_EINVAL, "byte %zu of the regular expression is not UTF-8", bad + 1);
    um_status s = parse_alternatives(p, &m);
    if (!s && !is_end(p)) s = fail_at(p, p->at, UM_EINVAL, "this ) closes no group");
    if (!s) *out = whole(p, &m, anchored);
    return s;
}

um_status um_regex_parse(um_rules *r, um_str pattern, bool anchored, bool quoted, const um_expr **out, um_err *err) {
    parser p = {.r = r, .text = pattern, .quoted = quoted, .err = err};
    return parse_whole(&p, anchored, out);
}

um_status um_regex_parse_lengths(um_rules *r, um_str pattern, bool anchored, const um_expr **out, um_err *err) {
    parser p = {.r = r, .text = pattern, .lengths = true, .err = err};
    return parse_whole(&p, anchored, out);
}

um_status um_rules_from_regex(um_rules *r, um_str pattern, um_err *err) {
    const um_expr *e = NULL;
    um_status s = um_regex_parse(r, pattern, true, false, &e, err);
    if (s) return s;
    r->root = um_rule_add(r, UM_STR("root"));
    um_rule_set(r, r->root, e);
    return um_rules_check(r, err);
}

um_status um_rules_from_choice(um_rules *r, const um_str *choice, size_t n, um_err *err) {
    um_exprs list = {0};
    if (!n) return um_fail(err, UM_EINVAL, "the choice is empty; give at least one text");
    for (size_t i = 0; i < n; i++) um_exprs_push(&list, um_expr_text(r, choice[i]));
    r->root = um_rule_add(r, UM_STR("root"));
    um_rule_set(r, r->root, um_exprs_either(r, &list));
    return um_rules_check(r, err);
}
