/* grammar: regular expressions, choices, and the check of rules. */
#include "grammar/grammar.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

typedef struct row {
    const char *pattern, *text;
    bool matches;
} row;

static void check_rows(const row *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        um_rules r;
        um_err err = {.code = UM_OK};
        um_rules_init(&r);
        if (um_rules_from_regex(&r, um_str_of(rows[i].pattern), &err)) fail_msg("%s: %s", rows[i].pattern, err.msg);
        if (um_rules_match(&r, um_str_of(rows[i].text)) != rows[i].matches)
            fail_msg("/%s/ and \"%s\": expected %d", rows[i].pattern, rows[i].text, rows[i].matches);
        um_rules_free(&r);
    }
}

static void matches_whole_texts(void **state) {
    (void)state;
    static const row rows[] = {
        {"", "", true},
        {"", "a", false},
        {"abc", "abc", true},
        {"abc", "abcd", false},
        {"a|bc|", "bc", true},
        {"a|bc|", "", true},
        {"a|bc|", "b", false},
        {"(a|b)c", "bc", true},
        {"(?:a|b)*c", "abbac", true},
        {"(?P<x>a)(?<y_1>b)", "ab", true},
        {"a*", "", true},
        {"a+", "", false},
        {"a+?b??", "aaab", true},
        {"a{3}", "aaa", true},
        {"a{3}", "aaaa", false},
        {"a{2,}", "aaaaa", true},
        {"a{2,}", "a", false},
        {"a{,2}", "aa", true},
        {"a{,2}", "aaa", false},
        {"a{1,3}?", "aa", true},
        {"(a{2}b){2}", "aabaab", true},
        {"a{", "a{", true},
        {"a{x}", "a{x}", true},
        {"a{}", "a{}", true},
        {"(a*)*b", "aaab", true},
        {"(|a)+", "aa", true},
        {"^a$", "a", true},
        {"\\Aa\\Z", "a", true},
        {"(^a|b)c", "ac", true},
        {"^(?:a|b$)|^$", "", true},
    };
    check_rows(rows, UM_LEN(rows));
}

static void knows_characters_and_classes(void **state) {
    (void)state;
    static const row rows[] = {
        {".", "\n", false},
        {".", "\xE2\x82\xAC", true},
        {".", "\xE2\x82", false},
        {"..",
         "\xF0\x9F\x98\x80"
         "a",
         true},
        {"\\n\\t\\r\\f\\v", "\n\t\r\f\v", true},
        {"\\.\\*\\[\\\\", ".*[\\", true},
        {"\\x41\\u20ac\\x{1F600}\\U0001F600", "A\xE2\x82\xAC\xF0\x9F\x98\x80\xF0\x9F\x98\x80", true},
        {"\\uD83D\\uDE00", "\xF0\x9F\x98\x80", true},
        {"\\d\\w\\s", "7_ ", true},
        {"\\D\\W\\S", "a-b", true},
        {"\\D", "7", false},
        {"[a-c]+", "abcd", false},
        {"[^a-c]", "\xC3\xA9", true},
        {"[^a-c]", "\n", true},
        {"[^a-c]", "b", false},
        {"[]a]+", "]a", true},
        {"[^]a]", "]", false},
        {"[a-]+", "a-", true},
        {"[\\d-]+", "7-", true},
        {"[\\]\\-x]+", "]-x", true},
        {"[\\W\\d]", "a", false},
        {"[\xC3\xA0-\xC3\xBF]", "\xC3\xA9", true},
        {"[\xC3\xA0-\xC3\xBF]", "\xC3\x9F", false},
        {"[\\u0000-\\U0010FFFF]", "\xEF\xBF\xBF", true},
        {"[\\ud7f0-\\ue010]", "\xED\x9F\xBF", true},
        {"[\\ud7f0-\\ue010]", "\xED\xA0\x80", false},
        {"[\\b]", "\b", true},
    };
    check_rows(rows, UM_LEN(rows));
}

/* The bytes of a set are those of its code points and no others. */
static void sets_hold_exactly_their_code_points(void **state) {
    (void)state;
    static const um_chars ranges[] = {{0x7FFE, 0x10005}, {0x41, 0x43}, {0x7F, 0x81}, {0x1F600, 0x2F601}, {0x42, 0x90}};
    for (int negated = 0; negated < 2; negated++) {
        um_rules r;
        um_rules_init(&r);
        r.root = um_rule_add(&r, UM_STR("root"));
        um_rule_set(&r, r.root, um_expr_chars(&r, ranges, UM_LEN(ranges), negated));
        for (uint32_t c = 0; c <= 0x10FFFF; c += c < 0x11000 ? 1 : 61) {
            char text[4];
            bool member = negated;
            if (c >= 0xD800 && c <= 0xDFFF) continue;
            for (size_t i = 0; i < UM_LEN(ranges); i++)
                if (c >= ranges[i].first && c <= ranges[i].last) member = !negated;
            const int n = um_utf8_put(c, text);
            if (um_rules_match(&r, (um_str){text, (size_t)n}) != member) fail_msg("U+%04X", c);
        }
        um_rules_free(&r);
    }
}

static void refuses_with_the_column(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *message;
        um_status status;
    } rows[] = {
        {"a(", "column 2 of the regular expression: this group has no closing )", UM_EINVAL},
        {"\xC3\xA9)", "column 2 of the regular expression: this ) closes no group", UM_EINVAL},
        {"*a", "column 1 of the regular expression: nothing to repeat", UM_EINVAL},
        {"a**", "column 3 of the regular expression: multiple repeat", UM_EINVAL},
        {"a{2,1}", "column 2", UM_EINVAL},
        {"a{65537}", "column 2", UM_ELIMIT},
        {"[a", "column 1 of the regular expression: this class has no closing ]", UM_EINVAL},
        {"[b-a]", "column 2", UM_EINVAL},
        {"[a-\\d]", "column 2", UM_EINVAL},
        {"a\\", "column 2", UM_EINVAL},
        {"\\q", "column 1 of the regular expression: unknown escape", UM_EINVAL},
        {"\\x4", "column 1", UM_EINVAL},
        {"\\ud800", "column 1", UM_EINVAL},
        {"\\bword", "column 1 of the regular expression: word boundaries", UM_EUNSUPPORTED},
        {"(a)\\1", "column 4 of the regular expression: back references", UM_EUNSUPPORTED},
        {"(?=a)", "column 1 of the regular expression: look-ahead", UM_EUNSUPPORTED},
        {"(?<!a)", "column 1 of the regular expression: look-behind", UM_EUNSUPPORTED},
        {"(?i)a", "column 1 of the regular expression: flags", UM_EUNSUPPORTED},
        {"\\p{L}", "column 1 of the regular expression: Unicode properties", UM_EUNSUPPORTED},
        {"a^b", "column 2 of the regular expression: ^", UM_EUNSUPPORTED},
        {"a$b", "column 3 of the regular expression: $", UM_EUNSUPPORTED},
        {"(^a)*", "column 5", UM_EUNSUPPORTED},
        {"a++", "column 3 of the regular expression: possessive", UM_EUNSUPPORTED},
        {"a\xFF", "byte 2 of the regular expression is not UTF-8", UM_EINVAL},
    };
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        um_rules r;
        um_err err = {.code = UM_OK};
        um_rules_init(&r);
        const um_status s = um_rules_from_regex(&r, um_str_of(rows[i].pattern), &err);
        if (s != rows[i].status || !strstr(err.msg, rows[i].message))
            fail_msg("/%s/: %d, \"%s\"", rows[i].pattern, s, err.msg);
        um_rules_free(&r);
    }
}

static void bounds_the_nesting_of_groups(void **state) {
    (void)state;
    um_buf b = {0};
    um_rules r;
    um_err err = {.code = UM_OK};
    for (int i = 0; i < 100000; i++) um_buf_puts(&b, "(");
    um_rules_init(&r);
    assert_int_equal(um_rules_from_regex(&r, (um_str){b.data, b.len}, &err), UM_ELIMIT);
    assert_non_null(strstr(err.msg, "250 nested groups"));
    um_rules_free(&r);
    um_buf_free(&b);
}

static void bounds_the_expressions(void **state) {
    (void)state;
    um_buf b = {0};
    um_rules r;
    um_err err = {.code = UM_OK};
    for (int i = 0; i < UM_RULES_EXPRS_MAX; i++) um_buf_puts(&b, "a*");
    um_rules_init(&r);
    assert_int_equal(um_rules_from_regex(&r, (um_str){b.data, b.len}, &err), UM_ELIMIT);
    assert_non_null(strstr(err.msg, "262144 expressions"));
    um_rules_free(&r);
    um_buf_free(&b);
}

/* ---- Searches, strings of JSON, choices -------------------------------------------------------------------------- */

static void searches_and_quotes(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *text;
        bool anchored, quoted, matches;
    } rows[] = {
        {"b", "abc", false, false, true},       {"^b", "abc", false, false, false},
        {"^a", "abc", false, false, true},      {"c$", "abc", false, false, true},
        {"b$", "abc", false, false, false},     {"^ab|bc$", "xxbc", false, false, true},
        {"^(a|b$)", "axx", false, false, true}, {"^(a|b$)", "bxx", false, false, false},
        {"b", "a\nb\nc", false, false, true},   {"^.$", "\\n", false, true, false},
        {"^.$", "\\t", false, true, true},      {"^\\s$", "\\n", false, true, true},
        {"\"", "\\\"", true, true, true},       {"\"", "\"", true, true, false},
        {"\\\\", "\\\\", true, true, true},     {"\\x01", "\\u0001", true, true, true},
        {"\\x1f", "\\u001F", true, true, true}, {"[^a]", "\"", true, true, false},
        {"[^a]", "\\\"", true, true, true},     {"b", "\\u0061b", false, true, true},
        {"b", "a\"b", false, true, false},
    };
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        um_rules r;
        um_err err = {.code = UM_OK};
        const um_expr *e = NULL;
        um_rules_init(&r);
        um_status s = um_regex_parse(&r, um_str_of(rows[i].pattern), rows[i].anchored, rows[i].quoted, &e, &err);
        if (s) fail_msg("%s: %s", rows[i].pattern, err.msg);
        r.root = um_rule_add(&r, UM_STR("root"));
        um_rule_set(&r, r.root, e);
        if (um_rules_match(&r, um_str_of(rows[i].text)) != rows[i].matches)
            fail_msg("/%s/ and %s: expected %d", rows[i].pattern, rows[i].text, rows[i].matches);
        um_rules_free(&r);
    }
}

static void a_choice_is_one_of_its_texts(void **state) {
    (void)state;
    const um_str choice[] = {UM_STR("yes"), UM_STR("no"), UM_STR("")};
    um_rules r;
    um_err err = {.code = UM_OK};
    um_rules_init(&r);
    assert_int_equal(um_rules_from_choice(&r, choice, UM_LEN(choice), &err), UM_OK);
    assert_true(um_rules_match(&r, UM_STR("no")));
    assert_true(um_rules_match(&r, UM_STR("")));
    assert_false(um_rules_match(&r, UM_STR("yesno")));
    um_rules_free(&r);
    um_rules_init(&r);
    assert_int_equal(um_rules_from_choice(&r, choice, 0, &err), UM_EINVAL);
    um_rules_free(&r);
}

/* ---- The check --------------------------------------------------------------------------------------------------- */

static void refuses_incomplete_rules_and_left_recursion(void **state) {
    (void)state;
    um_rules r;
    um_err err = {.code = UM_OK};
    um_rules_init(&r);
    assert_int_equal(um_rules_check(&r, &err), UM_EINVAL);
    const int32_t a = um_rule_add(&r, UM_STR("a")), b = um_rule_add(&r, UM_STR("b"));
    r.root = a;
    const um_expr *maybe = um_expr_repeat(&r, um_expr_text(&r, UM_STR("x")), 0, -1);
    um_rule_set(&r, a, um_expr_join(&r, (const um_expr *[]){maybe, um_expr_call(&r, b)}, 2));
    assert_int_equal(um_rules_check(&r, &err), UM_EINVAL);
    assert_string_equal(err.msg, "rule b is used but not defined");
    um_rule_set(&r, b, um_expr_either(&r, (const um_expr *[]){um_expr_text(&r, UM_STR("y")), um_expr_call(&r, a)}, 2));
    assert_int_equal(um_rules_check(&r, &err), UM_EINVAL);
    assert_non_null(strstr(err.msg, "rule a begins with itself"));
    assert_false(um_rules_match(&r, UM_STR("y")));
    um_rule_set(
        &r, b,
        um_expr_join(
            &r, (const um_expr *[]){um_expr_text(&r, UM_STR("y")), um_expr_repeat(&r, um_expr_call(&r, a), 0, 1)}, 2));
    assert_int_equal(um_rules_check(&r, &err), UM_OK);
    assert_true(um_rules_match(&r, UM_STR("xxyxy")));
    assert_int_equal(um_rule_find(&r, UM_STR("b")), b);
    assert_int_equal(um_rule_find(&r, UM_STR("c")), -1);
    um_rules_free(&r);
}

static void refuses_a_chain_of_rules_that_is_too_deep(void **state) {
    (void)state;
    um_rules r;
    um_err err = {.code = UM_OK};
    um_rules_init(&r);
    for (int i = 0; i < 10000; i++) r.root = um_rule_add(&r, UM_STR("x"));
    for (int i = 0; i < 9999; i++) um_rule_set(&r, i, um_expr_call(&r, i + 1));
    um_rule_set(&r, 9999, um_expr_text(&r, UM_STR("x")));
    assert_int_equal(um_rules_check(&r, &err), UM_ELIMIT);
    assert_non_null(strstr(err.msg, "nested more than 1000 deep"));
    um_rules_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_whole_texts),
        cmocka_unit_test(knows_characters_and_classes),
        cmocka_unit_test(sets_hold_exactly_their_code_points),
        cmocka_unit_test(refuses_with_the_column),
        cmocka_unit_test(bounds_the_nesting_of_groups),
        cmocka_unit_test(bounds_the_expressions),
        cmocka_unit_test(searches_and_quotes),
        cmocka_unit_test(a_choice_is_one_of_its_texts),
        cmocka_unit_test(refuses_incomplete_rules_and_left_recursion),
        cmocka_unit_test(refuses_a_chain_of_rules_that_is_too_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
