/* base: UTF-8. */
#include "base/base.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

static void every_code_point_survives_writing_and_reading(void **state) {
    (void)state;
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        if (cp == 0xD800) cp = 0xE000;
        char s[4];
        uint32_t back = 0;
        int n = um_utf8_put(cp, s);
        if (um_utf8_next(s, (size_t)n, &back) != n || back != cp) fail_msg("U+%04X reads back as U+%04X", cp, back);
        if (um_utf8_next(s, (size_t)n - 1, &back) != 0) fail_msg("U+%04X cut is accepted", cp);
    }
}

static void refuses_ill_formed_sequences(void **state) {
    (void)state;
    const char *bad[] = {"\x80",         "\xC0\x80",         "\xC1\xBF",         "\xE0\x9F\xBF",     "\xED\xA0\x80",
                         "\xED\xBF\xBF", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF",
                         "\xE2\x28\xA1"};
    uint32_t cp;
    for (size_t i = 0; i < UM_LEN(bad); i++) assert_int_equal(um_utf8_next(bad[i], strlen(bad[i]), &cp), 0);
}

static void check_finds_the_first_bad_byte(void **state) {
    (void)state;
    assert_int_equal(um_utf8_check("abc", 3), 3);
    assert_int_equal(um_utf8_check("ab\xE2\x82\xAC\xFFz", 7), 5);
    assert_int_equal(um_utf8_check("ab\xE2\x82", 4), 2);
    assert_int_equal(um_utf8_check("", 0), 0);
    assert_int_equal(um_utf8_check("a\0b", 3), 3);
}

/* Table 3-8 of the Unicode standard: 61 | F1 80 80 | E1 80 | C2 | 62 | 80 | 63 | 80 | BF | 64. */
static void replaces_maximal_subparts(void **state) {
    (void)state;
    const char s[] = "\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64";
    const size_t length[] = {1, 3, 2, 1, 1, 1, 1, 1, 1, 1};
    size_t i = 0, n = sizeof s - 1;
    for (size_t k = 0; k < UM_LEN(length); k++) {
        uint32_t cp;
        bool incomplete;
        size_t step = (size_t)um_utf8_next(s + i, n - i, &cp);
        if (!step) step = um_utf8_bad(s + i, n - i, &incomplete);
        assert_int_equal(step, length[k]);
        i += step;
    }
    assert_int_equal(i, n);
}

static void tells_cut_from_wrong(void **state) {
    (void)state;
    bool incomplete;
    assert_int_equal(um_utf8_bad("\xE2\x82", 2, &incomplete), 2);
    assert_true(incomplete);
    assert_int_equal(um_utf8_bad("\xE2\x82x", 3, &incomplete), 2);
    assert_false(incomplete);
    assert_int_equal(um_utf8_bad("\xF0", 1, &incomplete), 1);
    assert_true(incomplete);
    assert_int_equal(um_utf8_bad("\xFF", 1, &incomplete), 1);
    assert_false(incomplete);
}

static void knows_terminal_widths(void **state) {
    (void)state;
    assert_int_equal(um_utf8_width('a'), 1);
    assert_int_equal(um_utf8_width(0x301), 0);   /* combining acute */
    assert_int_equal(um_utf8_width(0x4E2D), 2);  /* CJK */
    assert_int_equal(um_utf8_width(0x1F600), 2); /* emoji */
    assert_int_equal(um_utf8_width('\n'), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_survives_writing_and_reading),
        cmocka_unit_test(refuses_ill_formed_sequences),
        cmocka_unit_test(check_finds_the_first_bad_byte),
        cmocka_unit_test(replaces_maximal_subparts),
        cmocka_unit_test(tells_cut_from_wrong),
        cmocka_unit_test(knows_terminal_widths),
    };
    return cmocka_run_group_tests_name("base_utf8", tests, NULL, NULL);
}
