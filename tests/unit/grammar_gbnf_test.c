/* grammar: grammars in GBNF. */
#include "grammar/grammar.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

static void matches_the_texts_of_root(void **state) {
    (void)state;
    static const struct {
        const char *grammar, *text;
        bool matches;
    } rows[] = {
        {"root ::= \"a\" \"b\"", "ab", true},
        {"root ::= \"a\" \"b\"", "a", false},
        {"root ::= \"a\" | \"b\" |", "", true},
        {"root ::= ([0-9]+ | \"x\"){2}", "12x", true},
        {"root ::= \"ab\"*", "abab", true},
        {"root ::= \"ab\"*", "abb", false},
        {"root ::= \"a\"{2,3}", "aaaa", false},
        {"root ::= \"a\"{2,}", "aaaa", true},
        {"root ::= \"a\"{,2}", "aa", true},
        {"root ::= \"a\"?+", "aa", true},
        {"root ::= [^a-c\\n]", "d", true},
        {"root ::= [^a-c\\n]", "\n", false},
        {"root ::= [a\\-\\]-]+", "-]a", true},
        {"root ::= .", "\xF0\x9F\x98\x80", true},
        {"root ::= \"\\x41\\u20ac\\U0001F600\\\"\\n\"", "A\xE2\x82\xAC\xF0\x9F\x98\x80\"\n", true},
        {"# a list\nroot ::= item (\",\" item)* # end\nitem ::= [a-z]\n", "a,b", true},
        {"root ::=\n  one |\n  two\none ::= \"1\"\ntwo ::=\n  \"2\"", "2", true},
        {"root ::= one\n  | two-b\none ::= \"1\"\ntwo-b ::= \"2\"", "2", true},
        {"root ::= \"(\" root \")\" | \"x\"", "((x))", true},
        {"root ::= \"(\" root \")\" | \"x\"", "((x)", false},
        {"root ::= n (\"+\" root)?\nn ::= [0-9]", "1+2+3", true},
        {"root_a::=\"a\"\nroot::=root_a", "a", true},
    };
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        um_rules r;
        um_err err = {.code = UM_OK};
        um_rules_init(&r);
        if (um_rules_from_gbnf(&r, um_str_of(rows[i].grammar), &err)) fail_msg("%s: %s", rows[i].grammar, err.msg);
        if (um_rules_match(&r, um_str_of(rows[i].text)) != rows[i].matches)
            fail_msg("%s and %s: expected %d", rows[i].grammar, rows[i].text, rows[i].matches);
        um_rules_free(&r);
    }
}

static void refuses_with_line_and_column(void **state) {
    (void)state;
    static const struct {
        const char *grammar, *message;
        um_status status;
    } rows[] = {
        {"", "grammar: the rule root is missing", UM_EINVAL},
        {"a ::= \"x\"", "grammar: the rule root is missing", UM_EINVAL},
        {"root ::= a b\na ::= \"x\"", "grammar:1:12: rule b is used but not defined", UM_EINVAL},
        {"root ::= a\na ::= root \"x\" | \"y\"", "grammar:1:1: rule root begins with itself", UM_EINVAL},
        {"root ::= \"y\" | e\n\ne ::= [0-9]* e \"x\"", "grammar:3:1: rule e begins with itself", UM_EINVAL},
        {"root ::= \"a\"\nroot ::= \"b\"", "grammar:2:1: rule root is defined twice", UM_EINVAL},
        {"root ::= \"a", "grammar:1:10: this text has no closing", UM_EINVAL},
        {"root ::= \"a\n\"", "grammar:1:10: this text has no closing", UM_EINVAL},
        {"root ::= [a", "grammar:1:10: this class has no closing", UM_EINVAL},
        {"root ::= []", "grammar:1:10: the class is empty", UM_EINVAL},
        {"root ::= [b-a]", "grammar:1:11: the range", UM_EINVAL},
        {"root ::= (\"a\"", "grammar:1:10: this group has no closing", UM_EINVAL},
        {"root ::= \"a\")", "grammar:1:13: this ) closes no group", UM_EINVAL},
        {"root ::= *", "grammar:1:10: nothing to repeat", UM_EINVAL},
        {"root ::= \"a\"{3,2}", "grammar:1:13: the repetition", UM_EINVAL},
        {"root ::= \"a\"{x}", "grammar:1:13: expected a repetition", UM_EINVAL},
        {"root ::= \"a\"{70000}", "grammar:1:13: a repetition", UM_ELIMIT},
        {"root ::= \"\\q\"", "grammar:1:11: unknown escape", UM_EINVAL},
        {"root ::= \"\\ud800\"", "grammar:1:11: this number", UM_EINVAL},
        {"root ::= \"a\" ; \"b\"", "grammar:1:14: expected a text", UM_EINVAL},
        {"root ::= <[1]>", "grammar:1:10: tokens", UM_EUNSUPPORTED},
        {"root = \"a\"", "grammar:1:1: expected a rule", UM_EINVAL},
        {"root ::= \"\xFF\"", "grammar: byte 11 is not UTF-8", UM_EINVAL},
    };
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        um_rules r;
        um_err err = {.code = UM_OK};
        um_rules_init(&r);
        const um_status s = um_rules_from_gbnf(&r, um_str_of(rows[i].grammar), &err);
        if (s != rows[i].status || strncmp(err.msg, rows[i].message, strlen(rows[i].message)) != 0)
            fail_msg("%s: %d, \"%s\"", rows[i].grammar, s, err.msg);
        um_rules_free(&r);
    }
}

static void check_refused(um_buf *grammar, const char *message) {
    um_rules r;
    um_err err = {.code = UM_OK};
    um_rules_init(&r);
    assert_int_equal(um_rules_from_gbnf(&r, (um_str){grammar->data, grammar->len}, &err), UM_ELIMIT);
    if (!strstr(err.msg, message)) fail_msg("%s", err.msg);
    um_rules_free(&r);
    um_buf_free(grammar);
}

static void bounds_groups_repetitions_and_rules(void **state) {
    (void)state;
    um_buf b = {0};
    um_buf_puts(&b, "root ::= ");
    for (int i = 0; i < 100000; i++) um_buf_putc(&b, '(');
    check_refused(&b, "200 nested groups");
    um_buf_puts(&b, "root ::= \"a\"");
    for (int i = 0; i < 100000; i++) um_buf_putc(&b, '+');
    check_refused(&b, "200 nested groups");
    um_buf_puts(&b, "root ::= ");
    for (int i = 0; i <= UM_RULES_MAX; i++) um_buf_printf(&b, " r%d", i);
    check_refused(&b, "16384 rules");
    um_buf_puts(&b, "root ::= r0\nr2000 ::= \"x\"\n");
    for (int i = 0; i < 2000; i++) um_buf_printf(&b, "r%d ::= r%d\n", i, i + 1);
    check_refused(&b, "nested more than 1000 deep");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_the_texts_of_root),
        cmocka_unit_test(refuses_with_line_and_column),
        cmocka_unit_test(bounds_groups_repetitions_and_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
