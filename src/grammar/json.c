/* The parts of JSON as rules. Each is one rule, whatever the number of its calls, so that a language can share the work
 * on them. */
#include "grammar/internal.h"

#define STR(literal) um_expr_text(r, UM_STR(literal))

/* ---- Characters of strings --------------------------------------------------------------------------------------- */

/* The characters that JSON requires to be escaped. */
static const um_chars special[] = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};

static bool is_member(const um_charset *s, uint32_t c) {
    for (size_t i = 0; i < s->n; i++)
        if (c >= s->range[i].first && c <= s->range[i].last) return true;
    return false;
}

/* Adds the escapes of the set's special characters, one for each: \n and its like, or else \u00XX. */
static void push_escapes(um_rules *r, const um_charset *set, um_exprs *list) {
    static const char chars[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    char named[sizeof names] = {0}, hex[2][40] = {{0}};
    for (size_t i = 0; i < UM_LEN(chars) - 1; i++)
        if (is_member(set, (uint32_t)chars[i])) named[strlen(named)] = names[i];
    for (uint32_t c = 0; c < 0x20; c++) {
        char *digits = hex[c / 16];
        if (!is_member(set, c) || (c && strchr(chars, (int)c))) continue;
        digits[strlen(digits)] = "0123456789abcdef"[c % 16];
        if (c % 16 > 9) digits[strlen(digits)] = "0123456789ABCDEF"[c % 16];
    }
    if (strlen(named) == 1) um_exprs_push(list, um_expr_text(r, (um_str){(const char[]){'\\', named[0]}, 2}));
    if (strlen(named) > 1) um_exprs_push(list, um_expr_join2(r, STR("\\"), um_expr_one_of(r, named)));
    if (hex[0][0]) um_exprs_push(list, um_expr_join2(r, STR("\\u000"), um_expr_one_of(r, hex[0])));
    if (hex[1][0]) um_exprs_push(list, um_expr_join2(r, STR("\\u001"), um_expr_one_of(r, hex[1])));
}

const um_expr *um_json_chars(um_rules *r, const um_chars *range, size_t n, bool negated) {
    um_charset set = {0}, left_out = {0}, plain = {0};
    um_exprs list = {0};
    um_charset_add_all(&set, range, n, negated);
    um_charset_add_all(&left_out, set.range, set.n, true);
    for (size_t i = 0; i < UM_LEN(special); i++) um_charset_add(&left_out, special[i].first, special[i].last);
    um_charset_add_all(&plain, left_out.range, left_out.n, true);
    if (plain.n) um_exprs_push(&list, um_expr_chars(r, plain.range, plain.n, false));
    push_escapes(r, &set, &list);
    um_charset_free(&set);
    um_charset_free(&left_out);
    um_charset_free(&plain);
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
    const um_expr *hex = um_expr_one_of(r, "0123456789abcdefABCDEF"), *u = STR("\\u"), *d = um_expr_one_of(r, "dD");
    const um_expr *plain =
        um_expr_either(r,
                       (const um_expr *[]){
                           um_expr_join(r, (const um_expr *[]){um_expr_one_of(r, "0123456789abcefABCEF"), hex}, 2),
                           um_expr_join(r, (const um_expr *[]){d, um_expr_one_of(r, "01234567")}, 2),
                       },
                       2);
    const um_expr *high = um_expr_join(r, (const um_expr *[]){d, um_expr_one_of(r, "89abAB"), hex, hex}, 4);
    const um_expr *low = um_expr_join(r, (const um_expr *[]){u, d, um_expr_one_of(r, "cdefCDEF"), hex, hex}, 5);
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
        const um_expr *escape = um_expr_join(r, (const um_expr *[]){STR("\\"), um_expr_one_of(r, "\"\\/bfnrt")}, 2);
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

const um_expr *um_json_any_string(um_rules *r) {
    int32_t rule;
    if (add_rule(r, UM_STR("string"), &rule))
        um_rule_set(r, rule, um_expr_join3(r, STR("\""), um_json_any_chars(r), STR("\"")));
    return um_expr_call(r, rule);
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

static const um_expr *digits(um_rules *r, int32_t min) {
    return um_expr_repeat(r, um_expr_between(r, '0', '9'), min, -1);
}

/* Zero, or digits that don't begin with zero. */
static const um_expr *natural(um_rules *r) {
    return um_expr_either2(r, STR("0"), um_expr_join2(r, um_expr_between(r, '1', '9'), digits(r, 0)));
}

static const um_expr *maybe(um_rules *r, const um_expr *e) { return um_expr_repeat(r, e, 0, 1); }

const um_expr *um_json_any_integer(um_rules *r) {
    int32_t rule;
    if (add_rule(r, UM_STR("integer"), &rule)) {
        const um_expr *positive = um_expr_join2(r, um_expr_between(r, '1', '9'), digits(r, 0));
        um_rule_set(r, rule, um_expr_either2(r, STR("0"), um_expr_join2(r, maybe(r, STR("-")), positive)));
    }
    return um_expr_call(r, rule);
}

/* Exponents end at 299, so that other programs can store the number. */
const um_expr *um_json_any_number(um_rules *r) {
    int32_t rule;
    if (add_rule(r, UM_STR("number"), &rule)) {
        const um_expr *fraction = um_expr_join2(r, STR("."), digits(r, 1));
        const um_expr *two = um_expr_repeat(r, um_expr_between(r, '0', '9'), 1, 2);
        const um_expr *three =
            um_expr_join2(r, um_expr_one_of(r, "12"), um_expr_repeat(r, um_expr_between(r, '0', '9'), 2, 2));
        const um_expr *exponent = um_expr_join3(r, um_expr_one_of(r, "eE"), maybe(r, um_expr_one_of(r, "+-")),
                                                um_expr_either2(r, two, three));
        const um_expr *part[] = {maybe(r, STR("-")), natural(r), maybe(r, fraction), maybe(r, exponent)};
        um_rule_set(r, rule, um_expr_join(r, part, UM_LEN(part)));
    }
    return um_expr_call(r, rule);
}

const um_expr *um_json_bool(um_rules *r) { return um_expr_either2(r, STR("true"), STR("false")); }

/* ---- Marks and white space --------------------------------------------------------------------------------------- */

const um_expr *um_json_mark(um_rules *r, const um_json_style *style, bool before, um_str text, bool after) {
    const um_expr *e = um_expr_text(r, text);
    if (style->space_max <= 0) return e;
    int32_t rule;
    if (add_rule(r, UM_STR("white space"), &rule))
        um_rule_set(r, rule, um_expr_repeat(r, um_expr_one_of(r, " \n"), 0, UM_MIN(style->space_max, UM_REPEAT_MAX)));
    const um_expr *space = um_expr_call(r, rule), *none = um_expr_nothing(r);
    return um_expr_join3(r, before ? space : none, e, after ? space : none);
}

const um_expr *um_json_enclosed(um_rules *r, const um_json_style *style, char open, const um_expr *part, char close) {
    const um_expr *first = um_json_mark(r, style, false, (um_str){&open, 1}, true);
    const um_expr *last = um_json_mark(r, style, part != NULL, (um_str){&close, 1}, false);
    return part ? um_expr_join3(r, first, part, last) : um_expr_join2(r, first, last);
}

const um_expr *um_json_comma(um_rules *r, const um_json_style *style) {
    return um_json_mark(r, style, true, UM_STR(","), true);
}

const um_expr *um_json_key(um_rules *r, const um_json_style *style, bool comma, um_str name) {
    um_buf text = {0};
    um_jw w;
    const bool spaced = style->space_max > 0;
    if (comma && !spaced) um_buf_putc(&text, ',');
    um_jw_init(&w, &text);
    um_jw_str(&w, name.p, name.n);
    if (!spaced) um_buf_putc(&text, ':');
    const um_expr *e = um_expr_text(r, (um_str){text.data, text.len});
    if (spaced) {
        const um_expr *before = comma ? um_json_comma(r, style) : um_expr_nothing(r);
        e = um_expr_join3(r, before, e, um_json_mark(r, style, true, UM_STR(":"), true));
    }
    um_buf_free(&text);
    return e;
}

/* ---- Any value --------------------------------------------------------------------------------------------------- */

/* The parts with commas between them, or nothing. */
static const um_expr *separated(um_rules *r, const um_json_style *style, const um_expr *part) {
    const um_expr *more = um_expr_join2(r, um_json_comma(r, style), part);
    return um_expr_join2(r, part, um_expr_repeat(r, more, 0, -1));
}

/* An object or array of any values. */
static const um_expr *any_nest(um_rules *r, const um_json_style *style, bool is_object) {
    int32_t rule;
    if (add_rule(r, is_object ? UM_STR("object") : UM_STR("array"), &rule)) {
        const char open = is_object ? '{' : '[', close = is_object ? '}' : ']';
        const um_expr *part = um_json_any_value(r, style);
        if (is_object) {
            const um_expr *colon = um_json_mark(r, style, true, UM_STR(":"), true);
            part = um_expr_join3(r, um_json_any_string(r), colon, part);
        }
        um_rule_set(r, rule,
                    um_expr_either2(r, um_json_enclosed(r, style, open, NULL, close),
                                    um_json_enclosed(r, style, open, separated(r, style, part), close)));
    }
    return um_expr_call(r, rule);
}

const um_expr *um_json_any_value(um_rules *r, const um_json_style *style) {
    int32_t rule;
    if (add_rule(r, UM_STR("value"), &rule)) {
        um_exprs list = {0};
        um_exprs_push(&list, um_json_any_string(r));
        um_exprs_push(&list, um_json_any_number(r));
        um_exprs_push(&list, um_json_bool(r));
        um_exprs_push(&list, STR("null"));
        um_exprs_push(&list, any_nest(r, style, true));
        um_exprs_push(&list, any_nest(r, style, false));
        um_rule_set(r, rule, um_exprs_either(r, &list));
    }
    return um_expr_call(r, rule);
}

const um_expr *um_json_any_object(um_rules *r, const um_json_style *style) { return any_nest(r, style, true); }

const um_expr *um_json_any_array(um_rules *r, const um_json_style *style) { return any_nest(r, style, false); }

um_status um_rules_from_any_json(um_rules *r, const um_json_style *style, um_err *err) {
    const um_expr *e = um_json_any_object(r, style);
    r->root = um_rule_add(r, UM_STR("root"));
    um_rule_set(r, r->root, e);
    return um_rules_check(r, err);
}
