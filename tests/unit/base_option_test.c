/* base: the option mechanism. */
#include "base/base.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include <math.h>

typedef struct settings {
    bool quiet, cache;
    int32_t threads, block;
    int64_t seed;
    float threshold;
    char device[8];
    int32_t order;
    const char *model;
} settings;

static const um_option rows[] = {
    {"quiet", NULL, UM_OPT_BOOL, UM_FIELD(settings, quiet), 0, 0, NULL, "false", NULL, NULL, "Output", "say nothing"},
    {"prefix_cache", NULL, UM_OPT_BOOL, UM_FIELD(settings, cache), 0, 0, NULL, "true", NULL, NULL, "Memory",
     "share pages"},
    {"threads", "num_threads,cores", UM_OPT_INT, UM_FIELD(settings, threads), 0, 1024, NULL, "0", NULL, "N", "Output",
     "threads that compute"},
    {"block_size", NULL, UM_OPT_INT, UM_FIELD(settings, block), 1, 256, NULL, "auto", "0", "N", "Memory",
     "tokens of a block"},
    {"seed", NULL, UM_OPT_INT64, UM_FIELD(settings, seed), -1, 9e15, NULL, "-1", NULL, "N", "Output", "random seed"},
    {"accept_threshold", NULL, UM_OPT_FLOAT, UM_FIELD(settings, threshold), 0, 1, NULL, "auto", "nan", "P", "Output",
     "probability from which a token is taken"},
    {"device", NULL, UM_OPT_NAME, UM_FIELD(settings, device), 0, 0, "cpu|ref|gpu:N", "cpu", NULL, "NAME", "Memory",
     "what computes"},
    {"order", NULL, UM_OPT_CHOICE, UM_FIELD(settings, order), 0, 0, "low_first|random|none", "random", NULL, "NAME",
     "Memory", "order of tokens"},
    {"model", NULL, UM_OPT_STR, UM_FIELD(settings, model), 0, 0, NULL, NULL, NULL, "DIR", "Memory", "folder"},
};

static settings fresh(void) {
    settings s;
    memset(&s, 0x55, sizeof s);
    um_options_init(rows, UM_LEN(rows), &s);
    return s;
}

static um_status set(settings *s, const char *name, const char *value, um_err *err) {
    um_option_set sets[] = {{rows, 4, s}, {rows + 4, UM_LEN(rows) - 4, s}};
    return um_options_set(sets, 2, name, value, err);
}

static void defaults_come_from_the_rows(void **state) {
    (void)state;
    settings s = fresh();
    assert_true(!s.quiet && s.cache && s.threads == 0 && s.block == 0 && s.seed == -1 && isnan(s.threshold));
    assert_string_equal(s.device, "cpu");
    assert_int_equal(s.order, 1);
    assert_null(s.model);
}

static void sets_each_type_from_text(void **state) {
    (void)state;
    settings s = fresh();
    const char *pairs[][2] = {{"quiet", "true"},    {"prefix-cache", "0"},    {"threads", "8"},
                              {"block_size", "32"}, {"seed", "123456789012"}, {"accept-threshold", "0.9"},
                              {"device", "ref"},    {"order", "low-first"},   {"model", "dir"}};
    for (size_t i = 0; i < UM_LEN(pairs); i++) assert_int_equal(set(&s, pairs[i][0], pairs[i][1], NULL), UM_OK);
    assert_true(s.quiet && !s.cache && s.threads == 8 && s.block == 32 && s.seed == INT64_C(123456789012));
    assert_true(s.threshold == 0.9f && s.order == 0);
    assert_string_equal(s.device, "ref");
    assert_string_equal(s.model, "dir");
}

static void choice_with_a_number_takes_any_number(void **state) {
    (void)state;
    static const char *const refused[] = {"gpu",       "gpu:",  "gpu:x", "gpu:1x", "gpu:-1",
                                          "gpu:12345", "cpu:1", ":1",    "gpu:N"};
    settings s = fresh();
    assert_int_equal(set(&s, "device", "gpu:12", NULL), UM_OK);
    assert_string_equal(s.device, "gpu:12");
    for (size_t i = 0; i < UM_LEN(refused); i++) assert_int_equal(set(&s, "device", refused[i], NULL), UM_EINVAL);
    assert_string_equal(s.device, "gpu:12");
}

static void a_word_with_a_maximum_is_a_list(void **state) {
    (void)state;
    char field[12] = "";
    const um_option row = {"at", NULL,          UM_OPT_NAME, 0,      sizeof field, false,    0,
                           3,    "cpu|gpu:N|N", "auto",      "auto", "NAME,...",   "Memory", "devices"};
    static const char *const taken[][2] = {
        {"cpu", "cpu"}, {"gpu:1,7", "gpu:1,7"}, {"1,2,3", "1,2,3"}, {"auto", "auto"}};
    static const char *const refused[] = {"gpu", "1,2,3,4",    "1,", ",1", "1,,2", "x",
                                          "1;2", "gpu:1,auto", "",   "N",  "gpu:N"};
    for (size_t i = 0; i < UM_LEN(taken); i++) {
        assert_int_equal(um_option_set_text(&row, field, taken[i][0], NULL), UM_OK);
        assert_string_equal(field, taken[i][1]);
    }
    for (size_t i = 0; i < UM_LEN(refused); i++) {
        um_err err;
        assert_int_equal(um_option_set_text(&row, field, refused[i], &err), UM_EINVAL);
        assert_non_null(strstr(err.msg, "expected one or more of cpu, gpu:N or N, or auto"));
    }
    assert_int_equal(um_option_set_text(&row, field, "gpu:1000,gpu:1", NULL), UM_EINVAL); /* longer than the field */
    assert_string_equal(field, "auto");
}

static void finds_rows_by_alias(void **state) {
    (void)state;
    assert_ptr_equal(um_options_find(rows, UM_LEN(rows), "num-threads"), &rows[2]);
    assert_ptr_equal(um_options_find(rows, UM_LEN(rows), "cores"), &rows[2]);
    assert_null(um_options_find(rows, UM_LEN(rows), "core"));
    assert_null(um_options_find(rows, UM_LEN(rows), "num_threads,cores"));
}

static void refuses_bad_values_and_says_why(void **state) {
    (void)state;
    const char *bad[][3] = {
        {"accept_threshold", "1.5", "accept_threshold: 1.5 is outside 0..1"},
        {"accept_threshold", "x", "accept_threshold: expected a number 0..1, or auto, found \"x\""},
        {"accept_threshold", "nan", "accept_threshold: expected a number 0..1, or auto, found \"nan\""},
        {"threads", "-1", "threads: -1 is outside 0..1024"},
        {"threads", "8x", "threads: expected an integer 0..1024, found \"8x\""},
        {"threads", "auto", "threads: expected an integer 0..1024, found \"auto\""},
        {"threads", "99999999999", "threads: expected an integer of 32 bits 0..1024, found \"99999999999\""},
        {"block_size", "0", "block_size: 0 is outside 1..256"},
        {"seed", "-2", "seed: -2 is outside -1 or more"},
        {"quiet", "maybe", "quiet: expected true or false, found \"maybe\""},
        {"device", "gpu", "device: expected cpu, ref or gpu:N, found \"gpu\""},
        {"order", "1", "order: expected low_first, random or none, found \"1\""},
    };
    for (size_t i = 0; i < UM_LEN(bad); i++) {
        settings s = fresh(), untouched = s;
        um_err err;
        assert_true(set(&s, bad[i][0], bad[i][1], &err) < 0);
        assert_string_equal(err.msg, bad[i][2]);
        assert_memory_equal(&s, &untouched, sizeof s);
    }
}

static void words_that_do_not_fit_are_refused(void **state) {
    (void)state;
    const um_option free_word = {"device", NULL, UM_OPT_NAME, UM_FIELD(settings, device), 0, 0, NULL, "cpu", NULL,
                                 NULL,     NULL, NULL};
    settings s = fresh();
    um_err err;
    assert_int_equal(um_option_set_text(&free_word, &s, "1234567", &err), UM_OK);
    assert_string_equal(s.device, "1234567");
    assert_int_equal(um_option_set_text(&free_word, &s, "12345678", &err), UM_EINVAL);
    assert_string_equal(s.device, "1234567");
}

static void suggests_the_nearest_name(void **state) {
    (void)state;
    settings s = fresh();
    um_err err;
    assert_int_equal(set(&s, "accept_treshold", "0.5", &err), UM_EINVAL);
    assert_string_equal(err.msg, "unknown option accept_treshold; did you mean accept_threshold?");
    assert_int_equal(set(&s, "sede", "5", &err), UM_EINVAL);
    assert_string_equal(err.msg, "unknown option sede; did you mean seed?");
    assert_int_equal(set(&s, "zzzzzz", "5", &err), UM_EINVAL);
    assert_string_equal(err.msg, "unknown option zzzzzz");
}

static void nearest_prefers_the_smallest_distance(void **state) {
    (void)state;
    const char *words[] = {"generate", "serve", "run"};
    assert_string_equal(um_nearest("generat", words, 3), "generate");
    assert_string_equal(um_nearest("server", words, 3), "serve");
    assert_null(um_nearest("bench", words, 3));
    assert_null(um_nearest("run", words, 0));
}

static void text_reads_back(void **state) {
    (void)state;
    settings s = fresh();
    const char *values[][3] = {{"accept_threshold", "0.9", "0.9"},
                               {"accept_threshold", "auto", "auto"},
                               {"block_size", "auto", "auto"},
                               {"block_size", "16", "16"},
                               {"order", "none", "none"},
                               {"quiet", "1", "true"},
                               {"seed", "-1", "-1"},
                               {"device", "ref", "ref"},
                               {"model", "x/y", "x/y"}};
    for (size_t i = 0; i < UM_LEN(values); i++) {
        um_buf b = {0};
        assert_int_equal(set(&s, values[i][0], values[i][1], NULL), UM_OK);
        um_option_get_text(um_options_find(rows, UM_LEN(rows), values[i][0]), &s, &b);
        assert_string_equal(b.data, values[i][2]);
        um_buf_free(&b);
    }
}

static void bools_are_read_in_every_spelling(void **state) {
    (void)state;
    const char *words[][2] = {{"true", "false"}, {"yes", "no"}, {"on", "off"}, {"1", "0"}, {"True", "FALSE"}};
    for (size_t i = 0; i < UM_LEN(words); i++) {
        settings s = fresh();
        assert_int_equal(set(&s, "quiet", words[i][0], NULL), UM_OK);
        assert_true(s.quiet);
        assert_int_equal(set(&s, "quiet", words[i][1], NULL), UM_OK);
        assert_false(s.quiet);
    }
}

static void the_word_for_no_value_may_be_another_one(void **state) {
    (void)state;
    const um_option row = {"doubt", NULL, UM_OPT_FLOAT, UM_FIELD(settings, threshold), 0, 1, NULL, "off", "off=nan",
                           NULL,    NULL, NULL};
    settings s;
    um_err err;
    um_buf text = {0};
    um_options_init(&row, 1, &s);
    assert_true(isnan(s.threshold));
    assert_int_equal(um_option_set_text(&row, &s, "0.5", NULL), UM_OK);
    assert_int_equal(um_option_set_text(&row, &s, "auto", &err), UM_EINVAL);
    assert_string_equal(err.msg, "doubt: expected a number 0..1, or off, found \"auto\"");
    assert_int_equal(um_option_set_text(&row, &s, "off", NULL), UM_OK);
    assert_true(isnan(s.threshold));
    um_option_get_text(&row, &s, &text);
    assert_string_equal(text.data, "off");
    um_buf_free(&text);
}

static void minus_one_is_auto_where_auto_is_stored_so(void **state) {
    (void)state;
    const um_option pages = {"pages", NULL, UM_OPT_INT, UM_FIELD(settings, block), 1, 9, NULL, "auto", "-1",
                             NULL,    NULL, NULL};
    settings s = fresh();
    um_err err;
    assert_int_equal(um_option_set_text(&pages, &s, "3", &err), UM_OK);
    assert_int_equal(um_option_set_text(&pages, &s, "-1", &err), UM_OK);
    assert_int_equal(s.block, -1);
    assert_int_equal(um_option_set_text(&pages, &s, "-2", &err), UM_ERANGE);
    assert_int_equal(set(&s, "block_size", "-1", &err), UM_ERANGE); /* "auto" stores 0 in this option */
}

static void every_alias_takes_the_range_of_the_row(void **state) {
    (void)state;
    const um_option size = {"size", "rooms,cells", UM_OPT_INT, UM_FIELD(settings, block), 1, 256, NULL, "auto", "0",
                            NULL,   NULL,          NULL};
    static const char *const names[] = {"size", "rooms", "cells"};
    settings s = fresh();
    um_option_set sets[] = {{&size, 1, &s}};
    um_err err;
    for (size_t i = 0; i < UM_LEN(names); i++) {
        assert_int_equal(um_options_set(sets, 1, names[i], "100", &err), UM_OK);
        assert_int_equal(s.block, 100);
        assert_int_equal(um_options_set(sets, 1, names[i], "257", &err), UM_ERANGE);
        assert_int_equal(um_options_set(sets, 1, names[i], "auto", &err), UM_OK);
        assert_int_equal(s.block, 0);
    }
}

static void alias_names_the_value_in_messages(void **state) {
    (void)state;
    settings s = fresh();
    um_err err;
    assert_int_equal(set(&s, "num-threads", "x", &err), UM_EINVAL);
    assert_string_equal(err.msg, "num-threads: expected an integer 0..1024, found \"x\"");
}

static void help_lists_every_row_by_group_within_the_width(void **state) {
    (void)state;
    settings s = fresh();
    um_option_set sets[] = {{rows, UM_LEN(rows), &s}};
    um_buf b = {0};
    um_options_help(sets, 1, 60, &b);
    const char *expected[] = {"Output:\n  --quiet                       say nothing\n",
                              "  --accept-threshold P          probability from which a\n",
                              "                                token is taken (0..1, or\n",
                              "                                auto; default auto)\n",
                              "\nMemory:\n  --[no-]prefix-cache           share pages (default true)\n",
                              "  --model DIR                   folder\n"};
    for (size_t i = 0; i < UM_LEN(expected); i++) assert_non_null(strstr(b.data, expected[i]));
    for (char *line = strtok(b.data, "\n"); line; line = strtok(NULL, "\n")) assert_in_range(strlen(line), 1, 60);
    um_buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_come_from_the_rows),
        cmocka_unit_test(sets_each_type_from_text),
        cmocka_unit_test(choice_with_a_number_takes_any_number),
        cmocka_unit_test(a_word_with_a_maximum_is_a_list),
        cmocka_unit_test(finds_rows_by_alias),
        cmocka_unit_test(refuses_bad_values_and_says_why),
        cmocka_unit_test(words_that_do_not_fit_are_refused),
        cmocka_unit_test(suggests_the_nearest_name),
        cmocka_unit_test(nearest_prefers_the_smallest_distance),
        cmocka_unit_test(text_reads_back),
        cmocka_unit_test(bools_are_read_in_every_spelling),
        cmocka_unit_test(the_word_for_no_value_may_be_another_one),
        cmocka_unit_test(minus_one_is_auto_where_auto_is_stored_so),
        cmocka_unit_test(every_alias_takes_the_range_of_the_row),
        cmocka_unit_test(alias_names_the_value_in_messages),
        cmocka_unit_test(help_lists_every_row_by_group_within_the_width),
    };
    return cmocka_run_group_tests_name("base_option", tests, NULL, NULL);
}
