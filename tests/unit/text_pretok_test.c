/* text: normalizers, pre-tokenizers and their expressions. */
#include <utf8proc.h>

#include "text_vectors.h"

/* NFC sends only the stretches to the library that it may change; the result must be that of the whole text. */
static void nfc_in_stretches_equals_nfc_of_the_whole(void **state) {
    (void)state;
    static const uint32_t lively[] = {'a',    'e',    ' ',    0xE9,   0x301,  0x323,  0x307,  0x338,   0x212B, 0x1100,
                                      0x1161, 0x11A8, 0xAC00, 0xAC01, 0x4E2D, 0x9BE,  0x9C7,  0x1F4A9, 0xFB1D, 0x344,
                                      0x1EBF, 0x0F73, 0x3099, 0x304B, '=',    0x2126, 0x1B35, 0x1B05,  0xF900, 0x1D15E};
    const char *given = getenv("UM_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)um_rng_seed();
    print_message("UM_TEST_SEED=%llu\n", (unsigned long long)seed);
    json_t *json = json_pack("{s:s}", "type", "NFC");
    um_normalizer norm;
    um_err err;
    assert_int_equal(um_norm_load(&norm, json, NULL, "file", &err), UM_OK);
    for (uint64_t round = 0; round < 20000; round++) {
        um_buf text = {0}, buf[2] = {{0}, {0}};
        um_match_state scan = {0};
        um_str got;
        for (uint64_t i = 0; i < 1 + round % 9; i++) {
            char c[4];
            uint32_t cp = lively[um_rng_u64(seed + round, i) % UM_LEN(lively)];
            um_buf_append(&text, c, (size_t)um_utf8_put(cp, c));
        }
        utf8proc_uint8_t *whole = utf8proc_NFC((const utf8proc_uint8_t *)text.data);
        assert_int_equal(um_norm_apply(&norm, &scan, buf_str(&text), buf, &got, &err), UM_OK);
        assert_text(got, um_str_of((const char *)whole));
        free(whole);
        um_buf_free(&text);
        um_buf_free(&buf[0]);
        um_buf_free(&buf[1]);
        um_scan_free(&scan);
    }
    um_norm_free(&norm);
    json_decref(json);
}

static void split_by(um_pretok *pre, const char *regex) {
    json_t *json = json_pack("{s:s, s:{s:s}, s:s}", "type", "Split", "pattern", "Regex", regex, "behavior", "Isolated");
    um_err err;
    if (um_pretok_load(pre, json, NULL, "file", &err)) fail_msg("%s", err.msg);
    json_decref(json);
}

static void constructs_with_another_meaning_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"\\h",         "\\H+",    "\\X",  "\\R",          "\\K",    "\\G",   "^a",
                                      "a$",          "(?m:a)",  "\\Z",  "[a&&b]",       "\\g<1>", "a{,3}", "a{1,2}+",
                                      "[[:alpha:]]", "(*UTF)a", "(?R)", "\\p",          "\\p{Lu", "a\\",   "(?s).",
                                      "\\Qa\\E",     "(a",      "[a",   "\\p{Nonsense}"};
    for (size_t i = 0; i < UM_LEN(bad); i++) {
        um_pattern p;
        um_err err;
        um_status st = um_pattern_regex(&p, um_str_of(bad[i]), "some/file", &err);
        if (st == UM_OK) fail_msg("%s is accepted", bad[i]);
        if (!strstr(err.msg, "some/file")) fail_msg("%s: %s", bad[i], err.msg);
        um_pattern_free(&p);
    }
}

static bool matches_whole(const char *regex, um_str text) {
    um_pattern p;
    um_match_state scan = {0};
    um_err err;
    size_t start, end;
    bool found;
    if (um_pattern_regex(&p, um_str_of(regex), "file", &err)) fail_msg("%s", err.msg);
    assert_int_equal(um_pattern_next(&p, &scan, text, 0, &start, &end, &found, &err), UM_OK);
    um_pattern_free(&p);
    um_scan_free(&scan);
    return found && start == 0 && end == text.n;
}

static void classes_mean_what_they_mean_to_the_reference(void **state) {
    (void)state;
    assert_false(matches_whole("\\s", UM_STR("\xE1\xA0\x8E"))); /* U+180E is no white space */
    assert_true(matches_whole("[\\S]", UM_STR("\xE1\xA0\x8E")));
    assert_true(matches_whole("\\s+", UM_STR("\xC2\x85\xE3\x80\x80\x0B")));
    assert_true(matches_whole("\\w+", UM_STR("e\xCC\x81_\xC2\xBD"))); /* marks and all numbers are word characters */
    assert_true(matches_whole("(?i:'s)", UM_STR("'\xC5\xBF")));       /* long s folds to s */
    assert_true(matches_whole("\\p{L}", UM_STR("\xE1\xB2\x8A")));     /* new in Unicode 16 */
    assert_false(matches_whole("\\p{Han}", UM_STR("\xE3\x80\x81")));  /* the script, not its extensions */
    assert_true(matches_whole("\\u00e9", UM_STR("\xC3\xA9")));
}

static void long_runs_are_cut_without_hitting_a_limit(void **state) {
    (void)state;
    um_pretok pre;
    um_buf text = {0};
    um_pieces p = {0};
    um_match_state scan = {0};
    um_err err;
    split_by(&pre, "\\p{L}+| ?[^\\s\\p{L}]+|\\s+(?!\\S)|\\s+");
    for (int i = 0; i < 1 << 20; i++) um_buf_putc(&text, ' ');
    um_buf_putc(&text, 'x');
    assert_int_equal(um_pretok_run(&pre, &scan, buf_str(&text), true, &p, &err), UM_OK);
    assert_int_equal(p.n, 3);
    um_pieces_free(&p);
    um_scan_free(&scan);
    um_buf_free(&text);
    um_pretok_free(&pre);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nfc_in_stretches_equals_nfc_of_the_whole),
        cmocka_unit_test(constructs_with_another_meaning_are_refused),
        cmocka_unit_test(classes_mean_what_they_mean_to_the_reference),
        cmocka_unit_test(long_runs_are_cut_without_hitting_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
