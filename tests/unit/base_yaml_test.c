/* base: configuration files in YAML. */
#include "base/base.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

static um_yaml y;
static um_arena strings;
static um_err err;

static int begin(void **state) {
    (void)state;
    um_arena_init(&strings, 0);
    y = (um_yaml){0};
    return 0;
}

static int end(void **state) {
    (void)state;
    um_yaml_free(&y);
    um_arena_free(&strings);
    return 0;
}

static um_status parse_n(const char *text, size_t n) { return um_yaml_parse(&y, &strings, text, n, "f", &err); }
static um_status parse(const char *text) { return parse_n(text, strlen(text)); }

static void refuse(const char *text, const char *message) {
    assert_true(parse(text) < 0);
    assert_string_equal(err.msg, message);
    um_yaml_free(&y);
}

static void scalars_stay_text_with_their_places(void **state) {
    (void)state;
    assert_int_equal(parse("a: 012\nb:   no\n\nc: 'x'\nd: ~\ne: |\n  two\n  lines\nf: \"~\"\n"), UM_OK);
    const struct {
        const char *key, *value;
        um_yaml_kind kind;
        int line, column;
    } want[] = {{"a", "012", UM_YAML_PLAIN, 1, 4},
                {"b", "no", UM_YAML_PLAIN, 2, 6},
                {"c", "x", UM_YAML_QUOTED, 4, 4},
                {"d", NULL, UM_YAML_NULL, 5, 4},
                {"e", "two\nlines\n", UM_YAML_QUOTED, 6, 4},
                {"f", "~", UM_YAML_QUOTED, 9, 4}};
    assert_int_equal(y.n, UM_LEN(want));
    for (size_t i = 0; i < y.n; i++) {
        assert_string_equal(y.entry[i].section, "");
        assert_string_equal(y.entry[i].key, want[i].key);
        assert_true(um_streq(y.entry[i].value, want[i].value));
        assert_int_equal(y.entry[i].kind, want[i].kind);
        assert_int_equal(y.entry[i].line, want[i].line);
        assert_int_equal(y.entry[i].column, want[i].column);
    }
}

static void sections_have_paths(void **state) {
    (void)state;
    assert_int_equal(parse("a:\n  b: 1\n  c:\n    d: 2\ne: {f: 3}\n"), UM_OK);
    const char *want[][2] = {{"", "a"}, {"a", "b"}, {"a", "c"}, {"a.c", "d"}, {"", "e"}, {"e", "f"}};
    assert_int_equal(y.n, UM_LEN(want));
    for (size_t i = 0; i < y.n; i++) {
        assert_string_equal(y.entry[i].section, want[i][0]);
        assert_string_equal(y.entry[i].key, want[i][1]);
    }
    assert_int_equal(y.entry[2].kind, UM_YAML_SECTION);
    assert_int_equal(y.entry[3].key_line, 4);
    assert_int_equal(y.entry[3].key_column, 5);
}

static void json_is_read_too(void **state) {
    (void)state;
    assert_int_equal(parse("{\"a\": 1, \"b\": true, \"c\": null}"), UM_OK);
    assert_int_equal(y.n, 3);
    assert_string_equal(y.entry[1].value, "true");
}

static void what_has_no_meaning_is_refused_with_its_place(void **state) {
    (void)state;
    refuse("a: [1]", "f:1:4: a list is not supported here; an option has one value");
    refuse("- a", "f:1:1: a list is not supported here; an option has one value");
    refuse("a: &x 1", "f:1:4: an anchor (&x) is not supported here");
    refuse("a: *x", "f:1:4: an alias (*x) is not supported here");
    refuse("a: !!int 1", "f:1:4: a tag (tag:yaml.org,2002:int) is not supported here");
    refuse("a: !x {b: 1}", "f:1:4: a tag (!x) is not supported here");
    refuse("a: 1\n---\nb: 1", "f:2:1: a second document is not supported here");
    refuse("word", "f:1:1: expected options, one \"name: value\" per line, found \"word\"");
    refuse("? {a: 1}\n: 2", "f:1:3: expected the name of an option, found a mapping");
    refuse("a: \"x\\0\"", "f:1:4: a text must not contain U+0000");
    refuse("a: {b: {c: {d: 1}}}", "f:1:12: mappings are nested deeper than 3");
}

static void doubled_names_are_refused(void **state) {
    (void)state;
    refuse("a: 1\nb: 2\na: 3", "f:3:1: a is given twice, first in line 1");
    refuse("a: {b: 1}\na: {c: 1}", "f:2:1: a is given twice, first in line 1");
    assert_int_equal(parse("a: {b: 1}\nb: 1"), UM_OK);
}

static void broken_text_is_refused_with_its_place(void **state) {
    (void)state;
    refuse("a: 1\n b: 2", "f:2:3: mapping values are not allowed in this context");
    refuse("a: 'x", "f:1:6: found unexpected end of stream while scanning a quoted scalar from line 1");
    refuse("a: x\xFF", "f: byte 4: invalid leading UTF-8 octet");
    refuse("a: \x01", "f: byte 3: control characters are not allowed");
    refuse("a:\n\tb: 1", "f:2:1: found character that cannot start any token while scanning for the next token from "
                         "line 2");
}

static void number_of_entries_is_bounded(void **state) {
    (void)state;
    um_buf text = {0};
    for (int i = 0; i < UM_YAML_ENTRIES_MAX; i++) um_buf_printf(&text, "a%d: 1\n", i);
    assert_int_equal(parse_n(text.data, text.len), UM_OK);
    um_yaml_free(&y);
    um_buf_puts(&text, "b: 1\n");
    assert_int_equal(parse_n(text.data, text.len), UM_EPARSE);
    assert_string_equal(err.msg, "f:1001:1: more than 1000 entries");
    um_buf_free(&text);
}

static void quoted_text_reads_back(void **state) {
    (void)state;
    um_buf text = {0};
    const char *s = "\"a\\b\": # \t\r\n\x01\x7F\xC2\x80\xC2\xA0\xE2\x80\xA9\xEF\xBB\xBF\xEF\xBF\xBF\xF0\x9F\x98\x80'";
    um_buf_puts(&text, "a: ");
    um_yaml_put_quoted(&text, s);
    assert_int_equal(parse_n(text.data, text.len), UM_OK);
    assert_string_equal(y.entry[0].value, s);
    um_buf_free(&text);
}

static void comment_stays_on_its_line(void **state) {
    (void)state;
    um_buf text = {0};
    um_yaml_put_comment(&text, "a\nb\xFF\xC3\xBC");
    assert_string_equal(text.data, "a?b?\xC3\xBC");
    um_buf_free(&text);
}

#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(scalars_stay_text_with_their_places),
        T(sections_have_paths),
        T(json_is_read_too),
        T(what_has_no_meaning_is_refused_with_its_place),
        T(doubled_names_are_refused),
        T(broken_text_is_refused_with_its_place),
        T(number_of_entries_is_bounded),
        T(quoted_text_reads_back),
        T(comment_stays_on_its_line),
    };
    return cmocka_run_group_tests_name("base_yaml", tests, NULL, NULL);
}
