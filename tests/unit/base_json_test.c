/* base: reading and writing JSON, numbers as text. */
#include "base/base.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>

static json_t *parse(const char *text) {
    json_t *v = NULL;
    um_err err;
    if (um_json_parse(&v, text, strlen(text), "test.json", &err) != UM_OK) fail_msg("%s", err.msg);
    return v;
}

static void names_file_line_and_column(void **state) {
    (void)state;
    json_t *v = NULL;
    um_err err;
    const char text[] = "{\n  \"a\": 1,\n  \"b\" 2\n}";
    assert_int_equal(um_json_parse(&v, text, strlen(text), "conf.json", &err), UM_EPARSE);
    assert_null(v);
    assert_memory_equal(err.msg, "conf.json:3:", 12);
    assert_int_equal(um_json_parse(&v, "", 0, "conf.json", &err), UM_EPARSE);
    assert_memory_equal(err.msg, "conf.json:1:", 12);
}

static void accepts_nul_in_strings_and_takes_the_last_double(void **state) {
    (void)state;
    json_t *v = parse("{\"a\": \"x\\u0000y\", \"b\": 1, \"b\": 2}");
    int64_t b = 0;
    assert_int_equal(json_string_length(json_object_get(v, "a")), 3);
    assert_int_equal(um_json_get_int(v, "b", "t", 0, 9, &b, NULL), UM_OK);
    assert_int_equal(b, 2);
    json_decref(v);
}

static void refuses_depth_without_end(void **state) {
    (void)state;
    char text[5000];
    memset(text, '[', sizeof text);
    json_t *v = NULL;
    um_err err;
    assert_int_equal(um_json_parse(&v, text, sizeof text, "deep", &err), UM_EPARSE);
}

static void says_which_file_is_missing(void **state) {
    (void)state;
    json_t *v = NULL;
    um_err err;
    assert_int_equal(um_json_load(&v, "/nowhere/config.json", &err), UM_ENOENT);
    assert_non_null(strstr(err.msg, "/nowhere/config.json"));
}

static void reads_each_type(void **state) {
    (void)state;
    json_t *v = parse("{\"i\": -5, \"d\": 2.5, \"n\": 3, \"b\": true, \"s\": \"text\"}");
    int64_t i = 0;
    int32_t i32 = 0;
    double d = 0, n = 0;
    bool b = false;
    const char *s = NULL;
    assert_int_equal(um_json_get_int(v, "i", "t", -5, 5, &i, NULL), UM_OK);
    assert_int_equal(um_json_get_int32(v, "i", "t", -5, 5, &i32, NULL), UM_OK);
    assert_int_equal(um_json_get_double(v, "d", "t", &d, NULL), UM_OK);
    assert_int_equal(um_json_get_double(v, "n", "t", &n, NULL), UM_OK);
    assert_int_equal(um_json_get_bool(v, "b", "t", &b, NULL), UM_OK);
    assert_int_equal(um_json_get_str(v, "s", "t", &s, NULL), UM_OK);
    assert_true(i == -5 && i32 == -5 && d == 2.5 && n == 3 && b);
    assert_string_equal(s, "text");
    json_decref(v);
}

static void leaves_defaults_where_a_key_is_missing_or_null(void **state) {
    (void)state;
    json_t *v = parse("{\"a\": null}");
    int64_t i = 7;
    const char *s = "mine";
    assert_int_equal(um_json_get_int(v, "a", "t", 0, 1, &i, NULL), UM_OK);
    assert_int_equal(um_json_get_int(v, "b", "t", 0, 1, &i, NULL), UM_OK);
    assert_int_equal(um_json_get_str(v, "a", "t", &s, NULL), UM_OK);
    assert_int_equal(i, 7);
    assert_string_equal(s, "mine");
    json_decref(v);
}

static void names_key_expectation_and_finding(void **state) {
    (void)state;
    json_t *v = parse("{\"a\": \"abc\", \"b\": 70000, \"c\": [1], \"d\": 1.5, \"e\": \"x\\u0000\"}");
    um_err err;
    int64_t i = 7;
    int32_t i32 = 7;
    double d = 7;
    bool b = true;
    const char *s = "mine";
    assert_int_equal(um_json_get_int(v, "a", "c.json", 1, 9, &i, &err), UM_EPARSE);
    assert_string_equal(err.msg, "c.json: \"a\": expected an integer 1..9, found \"abc\"");
    assert_int_equal(um_json_get_int32(v, "b", "c.json", 1, 9, &i32, &err), UM_EPARSE);
    assert_string_equal(err.msg, "c.json: \"b\": expected an integer 1..9, found 70000");
    assert_int_equal(um_json_get_double(v, "c", "c.json", &d, &err), UM_EPARSE);
    assert_string_equal(err.msg, "c.json: \"c\": expected a number, found an array");
    assert_int_equal(um_json_get_bool(v, "b", "c.json", &b, &err), UM_EPARSE);
    assert_int_equal(um_json_get_int(v, "d", "c.json", 0, 9, &i, &err), UM_EPARSE);
    assert_int_equal(um_json_get_str(v, "b", "c.json", &s, &err), UM_EPARSE);
    assert_int_equal(um_json_get_str(v, "e", "c.json", &s, &err), UM_EPARSE);
    assert_true(i == 7 && i32 == 7 && d == 7 && b);
    assert_string_equal(s, "mine");
    json_decref(v);
}

static void writes_members_of_each_type(void **state) {
    (void)state;
    um_buf b = {0};
    um_jw w;
    const int32_t ints[] = {3, -4};
    um_jw_init(&w, &b);
    um_jw_begin_object(&w);
    um_jw_put_str(&w, "str", (um_str){"a\"b...", 3});
    um_jw_put_str(&w, "none", (um_str){NULL, 0});
    um_jw_put_cstr(&w, "cstr", "x");
    um_jw_put_cstr(&w, "null", NULL);
    um_jw_put_int(&w, "int", INT64_MIN);
    um_jw_put_double(&w, "double", 0.1);
    um_jw_put_double(&w, "nan", NAN);
    um_jw_put_seconds(&w, "short", 9.14e-05);
    um_jw_put_seconds(&w, "long", 12.9999999);
    um_jw_put_seconds(&w, "never", NAN);
    um_jw_put_seconds(&w, "negative", -1);
    um_jw_put_ratio(&w, "ratio", 1, 4);
    um_jw_put_ratio(&w, "by_zero", 1, 0);
    um_jw_put_ratio(&w, "of_zero", 0, 4);
    um_jw_put_bool(&w, "bool", true);
    um_jw_put_null(&w, "nothing");
    um_jw_put_ints(&w, "ints", ints, UM_LEN(ints));
    um_jw_put_ints(&w, "no_ints", NULL, 0);
    um_jw_put_bytes(&w, "bytes", UM_STR("\xff\x01"));
    um_jw_end_object(&w);
    assert_string_equal(b.data, "{\"str\":\"a\\\"b\",\"none\":\"\",\"cstr\":\"x\",\"null\":null,"
                                "\"int\":-9223372036854775808,\"double\":0.1,\"nan\":null,"
                                "\"short\":0.000091,\"long\":13.000000,\"never\":null,\"negative\":-1,\"ratio\":0.25,"
                                "\"by_zero\":null,\"of_zero\":null,\"bool\":true,\"nothing\":null,"
                                "\"ints\":[3,-4],\"no_ints\":[],\"bytes\":[255,1]}");
    um_buf_free(&b);
}

static void floats_have_no_more_digits_than_they_need(void **state) {
    (void)state;
    um_buf b = {0};
    um_jw w;
    um_jw_init(&w, &b);
    um_jw_begin_array(&w);
    um_jw_float(&w, 0.1F);
    um_jw_float(&w, -INFINITY);
    um_jw_float(&w, NAN);
    um_jw_end_array(&w);
    assert_string_equal(b.data, "[0.1,null,null]");
    um_buf_free(&b);
}

static void writes_commas_where_they_belong(void **state) {
    (void)state;
    um_buf b = {0};
    um_jw w;
    um_jw_init(&w, &b);
    um_jw_begin_object(&w);
    um_jw_key(&w, "a");
    um_jw_begin_array(&w);
    um_jw_int(&w, -1);
    um_jw_begin_object(&w);
    um_jw_end_object(&w);
    um_jw_bool(&w, true);
    um_jw_end_array(&w);
    um_jw_key(&w, "b");
    um_jw_cstr(&w, NULL);
    um_jw_key(&w, "c");
    um_jw_double(&w, 0.1);
    um_jw_end_object(&w);
    assert_string_equal(b.data, "{\"a\":[-1,{},true],\"b\":null,\"c\":0.1}");
    um_buf_free(&b);
}

static const char *written(um_buf *b, const char *s, size_t n) {
    um_jw w;
    um_buf_clear(b);
    um_jw_init(&w, b);
    um_jw_str(&w, s, n);
    return b->data;
}

static void escapes_what_json_forbids(void **state) {
    (void)state;
    um_buf b = {0};
    assert_string_equal(written(&b, "a\"b\\c\n\x01", 7), "\"a\\\"b\\\\c\\n\\u0001\"");
    assert_string_equal(written(&b, "\0", 1), "\"\\u0000\"");
    assert_string_equal(written(&b, "\xE2\x82\xAC", 3), "\"\xE2\x82\xAC\"");
    assert_string_equal(written(&b, NULL, 0), "\"\"");
    um_buf_free(&b);
}

static void replaces_invalid_bytes(void **state) {
    (void)state;
    um_buf b = {0};
    assert_string_equal(written(&b, "a\xFFz\xE2\x82", 5), "\"a\xEF\xBF\xBDz\xEF\xBF\xBD\"");
    um_buf_free(&b);
}

/* Every byte string is written as JSON that jansson accepts. */
static void any_bytes_become_valid_json(void **state) {
    (void)state;
    um_buf b = {0};
    for (uint64_t round = 0; round < 500; round++) {
        char s[24];
        for (size_t i = 0; i < sizeof s; i++) s[i] = (char)(um_rng_u64(round, i) >> (round % 2 ? 56 : 58));
        json_t *v = json_loads(written(&b, s, sizeof s), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_non_null(v);
        json_decref(v);
    }
    um_buf_free(&b);
}

static void numbers_without_json_become_null(void **state) {
    (void)state;
    const double values[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    for (size_t i = 0; i < UM_LEN(values); i++) {
        um_buf b = {0};
        um_jw w;
        um_jw_init(&w, &b);
        um_jw_double(&w, values[i]);
        assert_string_equal(b.data, "null");
        um_buf_free(&b);
    }
}

static void integers_are_whole_to_their_ends(void **state) {
    (void)state;
    um_buf b = {0};
    um_jw w;
    um_jw_init(&w, &b);
    um_jw_begin_array(&w);
    const int64_t values[] = {0, 7, -10, 1000000, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < UM_LEN(values); i++) um_jw_int(&w, values[i]);
    um_jw_end_array(&w);
    assert_string_equal(b.data, "[0,7,-10,1000000,9223372036854775807,-9223372036854775808]");
    um_buf_free(&b);
}

static void shares_have_six_decimals_at_most(void **state) {
    (void)state;
    um_buf b = {0};
    um_jw w;
    um_jw_init(&w, &b);
    um_jw_begin_array(&w);
    const double values[] = {0, 1, 0.5, 0.1234564, 0.1234567, 1e-6, 1e-7, 0.99999949, 0.9999996, 1.5, -0.25, NAN};
    for (size_t i = 0; i < UM_LEN(values); i++) um_jw_share(&w, values[i]);
    um_jw_end_array(&w);
    assert_string_equal(b.data, "[0,1,0.5,0.123456,0.123457,0.000001,0,0.999999,1,1.5,-0.25,null]");
    um_buf_free(&b);
}

static void zero_keeps_its_sign(void **state) {
    (void)state;
    um_buf b = {0};
    um_jw w;
    um_jw_init(&w, &b);
    um_jw_begin_array(&w);
    um_jw_double(&w, 0.0);
    um_jw_double(&w, -0.0);
    um_jw_end_array(&w);
    json_t *v = parse(b.data);
    assert_false(signbit(json_number_value(json_array_get(v, 0))));
    assert_true(signbit(json_number_value(json_array_get(v, 1))));
    json_decref(v);
    um_buf_free(&b);
}

static void numbers_are_short_and_read_back(void **state) {
    (void)state;
    char text[UM_NUMBER_MAX];
    const char *shortest[] = {"0", "0.1", "1", "-2.5", "1e+22", "1e-07", "0.3", "1.7976931348623157e+308"};
    for (size_t i = 0; i < UM_LEN(shortest); i++) {
        um_format_double(strtod(shortest[i], NULL), text);
        assert_string_equal(text, shortest[i]);
    }
    for (uint64_t i = 0; i < 2000; i++) {
        double back, v = (um_rng_uniform(1, i) - 0.5) * pow(10, (double)(i % 600) - 300);
        um_format_double(v, text);
        assert_true(um_parse_double(text, &back) && back == v);
        um_format_float((float)um_rng_uniform(2, i), text);
        assert_true(um_parse_double(text, &back) && (float)back == (float)um_rng_uniform(2, i));
    }
}

static void parsing_takes_whole_numbers_only(void **state) {
    (void)state;
    const char *no_int[] = {"", " 1", "1 ", "1x", "0x10", "1.0", "-", "+-1", "9223372036854775808"};
    const char *no_double[] = {"", " 1", "1 ", "1x", "0x10", "nan", "inf", "1e999", "-", "1.2.3"};
    int64_t i;
    double d;
    for (size_t k = 0; k < UM_LEN(no_int); k++) assert_false(um_parse_int(no_int[k], &i));
    for (size_t k = 0; k < UM_LEN(no_double); k++) assert_false(um_parse_double(no_double[k], &d));
    assert_true(um_parse_int("-9223372036854775808", &i) && i == INT64_MIN);
    assert_true(um_parse_double("+1e3", &d) && d == 1000);
}

static char *exact(const char *text) {
    json_t *v;
    um_err err;
    if (um_json_parse_exact(&v, text, strlen(text), "x.json", &err)) fail_msg("%s", err.msg);
    char *again = json_dumps(v, JSON_COMPACT);
    json_decref(v);
    return again;
}

static void integers_beyond_64_bits_keep_their_digits(void **state) {
    (void)state;
    static const char *const big[] = {"9223372036854775808", "-9223372036854775809", "123456789012345678901234567890"};
    static const char *const other[] = {"9223372036854775807",    "-9223372036854775808",     "1e30",
                                        "12345678901234567890.5", "\"12345678901234567890\"", "0"};
    json_t *v, *again;
    um_err err;
    char text[64];
    for (size_t i = 0; i < UM_LEN(big); i++) {
        snprintf(text, sizeof text, "[%s]", big[i]);
        assert_int_equal(um_json_parse_exact(&v, text, strlen(text), "x.json", &err), UM_OK);
        assert_true(um_str_eq(um_json_big_integer(json_array_get(v, 0)), um_str_of(big[i])));
        char *written = json_dumps(v, 0); /* they also survive writing and parsing again */
        assert_int_equal(um_json_parse_exact(&again, written, strlen(written), "x.json", &err), UM_OK);
        assert_true(um_str_eq(um_json_big_integer(json_array_get(again, 0)), um_str_of(big[i])));
        free(written);
        json_decref(v);
        json_decref(again);
    }
    for (size_t i = 0; i < UM_LEN(other); i++) {
        snprintf(text, sizeof text, "[%s]", other[i]);
        assert_int_equal(um_json_parse_exact(&v, text, strlen(text), "x.json", &err), UM_OK);
        assert_null(um_json_big_integer(json_array_get(v, 0)).p);
        json_decref(v);
    }
    assert_null(um_json_big_integer(NULL).p);
}

static void exact_json_is_written_as_it_was(void **state) {
    (void)state;
    static const char *const texts[] = {
        "123456789012345678901", "{\"a\":[-9223372036854775809,{\"b\":9223372036854775808}],\"c\":1.5}",
        "[\"{\\\"\xEF\xBF\xBFinteger\\\":\\\"123456789012345678901\\\"}\",\"{\",1]", "{\"\xEF\xBF\xBFinteger\":\"12\"}",
        "{\"\xEF\xBF\xBFinteger\":\"123456789012345678901\",\"a\":1}"};
    for (size_t i = 0; i < UM_LEN(texts); i++) {
        json_t *v;
        um_err err;
        um_buf out = {0};
        char text[128];
        snprintf(text, sizeof text, "[%s]", texts[i]);
        assert_int_equal(um_json_parse_exact(&v, text, strlen(text), "x.json", &err), UM_OK);
        um_json_put_exact(v, &out);
        assert_string_equal(out.data, text);
        um_buf_free(&out);
        json_decref(v);
    }
}

static void lone_surrogates_become_replacements(void **state) {
    (void)state;
    char *text = exact("[\"\\ud83d\\ude00\", \"\\ud83d\", \"\\ude00\\ud83d\", \"\\\\ud83d\", \"\\uD83Dx\"]");
    assert_string_equal(text, "[\"\xF0\x9F\x98\x80\",\"\xEF\xBF\xBD\",\"\xEF\xBF\xBD\xEF\xBF\xBD\","
                              "\"\\\\ud83d\",\"\xEF\xBF\xBDx\"]");
    free(text);
}

static void exact_json_is_still_checked(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      "[",
                                      "[1 2]",
                                      "\"",
                                      "[\"\\u12\"]",
                                      "[01234567890123456789012]",
                                      "[--12345678901234567890]",
                                      "[12345678901234567890-]"};
    json_t *v;
    um_err err;
    for (size_t i = 0; i < UM_LEN(bad); i++) {
        assert_int_equal(um_json_parse_exact(&v, bad[i], strlen(bad[i]), "x.json", &err), UM_EPARSE);
        assert_non_null(strstr(err.msg, "x.json"));
        assert_null(v);
    }
}

/* The message has the unescaped key, wherever it is and whatever precedes it. */
static void requests_have_no_key_twice(void **state) {
    (void)state;
    static const struct {
        const char *text, *key;
    } twice[] = {
        {"{\"a\": 1, \"a\": 1}", "a"},
        {"{\"x\": {\"b\": [\"b\", {\"\\u00e9\\\"\": 12345678901234567890, \"\xC3\xA9\\\"\": 2}]}}", "\xC3\xA9\""},
        {"{\"a\": \"\\\\\", \"a longer name than 20 bytes\": 1,\n \"a longer name than 20 bytes\" : 2}",
         "a longer name than 20 bytes"},
        {"{\"\": 1, \"\": 2}", ""}};
    static const char once[] =
        "{\"a\": {\"a\": 1}, \"b\": [{\"a\": 12345678901234567890}, {\"a\": 98765432109876543210}]}";
    json_t *v;
    um_err err;
    for (size_t i = 0; i < UM_LEN(twice); i++) {
        char named[64];
        snprintf(named, sizeof named, "x.json: duplicate key \"%s\" (line", twice[i].key);
        assert_int_equal(um_json_parse_request(&v, twice[i].text, strlen(twice[i].text), "x.json", &err), UM_EPARSE);
        assert_null(v);
        assert_non_null(strstr(err.msg, named));
        assert_string_equal(err.param, twice[i].key);
        assert_int_equal(um_json_parse_exact(&v, twice[i].text, strlen(twice[i].text), "x.json", &err), UM_OK);
        json_decref(v);
    }
    assert_int_equal(um_json_parse_request(&v, once, strlen(once), "x.json", &err), UM_OK);
    json_decref(v);
    assert_int_equal(um_json_parse_request(&v, "[", 1, "x.json", &err), UM_EPARSE);
    assert_string_equal(err.param, "");
}

static void numbers_for_people_have_a_unit_and_few_digits(void **state) {
    static const struct {
        double n;
        const char *bytes, *count;
    } rows[] = {{0, "0 bytes", "0"},
                {999, "999 bytes", "999"},
                {1000, "1.0 kB", "1.00 k"},
                {8187520, "8.2 MB", "8.19 M"},
                {99949999, "99.9 MB", "99.9 M"},
                {99960000, "100 MB", "100 M"},
                {999600000, "1.0 GB", "1.00 B"},
                {2034567890, "2.0 GB", "2.03 B"},
                {9996000000, "10.0 GB", "10.0 B"},
                {4100000000, "4.1 GB", "4.10 B"},
                {1.6e16, "16000 TB", "16000 T"}};
    (void)state;
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        char bytes[UM_BYTES_TEXT], count[UM_COUNT_TEXT];
        assert_string_equal(um_bytes_text(bytes, rows[i].n), rows[i].bytes);
        assert_string_equal(um_count_text(count, rows[i].n), rows[i].count);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_for_people_have_a_unit_and_few_digits),
        cmocka_unit_test(names_file_line_and_column),
        cmocka_unit_test(accepts_nul_in_strings_and_takes_the_last_double),
        cmocka_unit_test(refuses_depth_without_end),
        cmocka_unit_test(says_which_file_is_missing),
        cmocka_unit_test(reads_each_type),
        cmocka_unit_test(leaves_defaults_where_a_key_is_missing_or_null),
        cmocka_unit_test(names_key_expectation_and_finding),
        cmocka_unit_test(writes_commas_where_they_belong),
        cmocka_unit_test(writes_members_of_each_type),
        cmocka_unit_test(floats_have_no_more_digits_than_they_need),
        cmocka_unit_test(escapes_what_json_forbids),
        cmocka_unit_test(replaces_invalid_bytes),
        cmocka_unit_test(any_bytes_become_valid_json),
        cmocka_unit_test(numbers_without_json_become_null),
        cmocka_unit_test(integers_are_whole_to_their_ends),
        cmocka_unit_test(shares_have_six_decimals_at_most),
        cmocka_unit_test(zero_keeps_its_sign),
        cmocka_unit_test(numbers_are_short_and_read_back),
        cmocka_unit_test(parsing_takes_whole_numbers_only),
        cmocka_unit_test(integers_beyond_64_bits_keep_their_digits),
        cmocka_unit_test(lone_surrogates_become_replacements),
        cmocka_unit_test(exact_json_is_written_as_it_was),
        cmocka_unit_test(exact_json_is_still_checked),
        cmocka_unit_test(requests_have_no_key_twice),
    };
    return cmocka_run_group_tests_name("base_json", tests, NULL, NULL);
}
