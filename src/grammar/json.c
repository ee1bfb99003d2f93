/* The parts of JSON as rules. Each is one rule, whatever the number of its calls, so that a language can share the work
 * on them. */
#include "grammar/internal.h"

#define STR(literal) um_expr_text(r, UM_STR(literal))

/* ---- Sets of bytes ----------------------------------------------------------------------------------------------- */

static const um_expr *one_of(um_rules *r, const char *set) {
    uint64_t bytes[4] = {0};
    for (const char *p = set; *p; p++) bytes[(unsigned char)*p / 64] |= UINT64_C(1) << (unsigned char)*p % 64;
    return um_expr_bytes(r, bytes);
}

static const um_expr *hex_digit(um_rules *r) { return one_of(r, "0123456789abcdefABCDEF"); }

/* ---- Characters of strings --------------------------------------------------------------------------------------- */

/* The characters that JSON requires to be escaped. */
static const um_chars special[] = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};

/* An escape of a character below 0x20, of a quote or of a backslash. */
static const um_expr *escaped(um_rules *r, uint32_t c) {
    static const char chars[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    const char *known = c ? strchr(chars, (int)c) : NULL;
    char hex[8];
    if (known) return um_expr_text(r, (um_str){(const char[]){'\\', names[known - chars]}, 2});
    snprintf(hex, sizeof hex, "\\u00%c", c < 16 ? '0' : '1');
    const char digit[] = {"0123456789abcdef"[c % 16], "0123456789ABCDEF"[c % 16], 0};
    return um_expr_join(r, (const um_expr *[]){um_expr_text(r, um_str_of(hex)), one_of(r, digit)}, 2);
}

static bool is_member(const um_charset *s, uint32_t c) {
    for (size_t i = 0; i < s->n; i++)
        if (c >= s->range[i].first && c <= s->range[i].last) return true;
    return false;
}

const um_expr *um_json_chars(um_rules *r, const um_chars *range, size_t n, bool negated) {
    um_charset set = {0}, left_out = {0};
    um_exprs list = {0};
    um_charset_add_all(&set, range, n, negated);
    um_charset_add_all(&left_out, set.range, set.n, true);
    for (size_t i = 0; i < UM_LEN(special); i++) um_charset_add(&left_out, special[i].first, special[i].last);
    um_exprs_push(&list, um_expr_chars(r, left_out.range, left_out.n, true));
    for (size_t i = 0; i < UM_LEN(special); i++)
        for (uint32_t c = special[i].first; c <= special[i].last; c++)
            if (is_member(&set, c)) um_exprs_push(&list, escaped(r, c));
    um_charset_free(&set);
    um_charset_free(&left_out);
    return um_exprs_either(r, &list);
}

/* Adds a rule, or returns false when it is there. */
static bool add_rule(um_rules *r, um_str name, int32_t *rule) {
    *rule = um_rule_find(r, name);
    if (*rule >= 0) return false;
    *rule = um_rule_add(r, name);
    return true;
}

/* \uXXXX of a character that is no surrogate, and \uXXXX\uXXXX of a pair of surrogates. */
static const um_expr *unicode_escapes(um_rules *r) {
    const um_expr *hex = hex_digit(r), *u = STR("\\u"), *d = one_of(r, "dD");
    const um_expr *plain =
        um_expr_either(r,
                       (const um_expr *[]){
                           um_expr_join(r, (const um_expr *[]){one_of(r, "0123456789abcefABCEF"), hex}, 2),
                           um_expr_join(r, (const um_expr *[]){d, one_of(r, "01234567")}, 2),
                       },
                       2);
    const um_expr *high = um_expr_join(r, (const um_expr *[]){d, one_of(r, "89abAB"), hex, hex}, 4);
    const um_expr *low = um_expr_join(r, (const um_expr *[]){u, d, one_of(r, "cdefCDEF"), hex, hex}, 5);
    const um_expr *either = um_expr_either(r,
                                           (const um_expr *[]){
                                               um_expr_join(r, (const um_expr *[]){plain, hex, hex}, 3),
                                               um_expr_join(r, (const um_expr *[]){high, low}, 2),
                                           },
                                           2);
    return um_expr_join(r, (const um_expr *[]){u, either}, 2);
}

const um_expr *um_json_char(um_rules *r) {
    int32_t rule;
    if (add_rule(r, UM_STR("character of a string"), &rule)) {
        const um_expr *plain = um_expr_chars(r, special, UM_LEN(special), true);
        const um_expr *escape = um_expr_join(r, (const um_expr *[]){STR("\\"), one_of(r, "\"\\/bfnrt")}, 2);
        um_rule_set(r, rule, um_expr_either(r, (const um_expr *[]){plain, escape, unicode_escapes(r)}, 3));
    }
    return um_expr_call(r, rule);
}

const um_expr *um_json_any_chars(um_rules *r) {
    int32_t rule;
    if (add_rule(r, UM_STR("characters of a string"), &rule)) {
        const um_expr *c = um_json_char(r);
        um_rule_set(r, rule, um_expr_repeat(r, c, 0, -1));
    }
    return um_expr_call(r, rule);
}
