/* text: the template language. */
#include <time.h>

#include "text/template.h"
#include "text_vectors.h"

/* 2025-07-26 13:05:09 UTC, the clock of the vectors. */
#define NOW 1753535109

static um_status render_text(um_str source, const json_t *vars, um_buf *out, um_err *err) {
    um_template *t;
    um_buf_clear(out);
    um_status st = um_template_new(&t, source, err);
    if (!st) st = um_template_render_at(t, vars, NOW, out, err);
    um_template_free(t);
    return st;
}

static void assert_renders(const char *source, const char *want) {
    um_buf out = {0};
    um_err err;
    if (render_text(um_str_of(source), NULL, &out, &err)) fail_msg("%s", err.msg);
    assert_text(buf_str(&out), um_str_of(want));
    um_buf_free(&out);
}

static void white_space_is_kept_and_taken_as_in_jinja(void **state) {
    (void)state;
    assert_renders("a\n  {% if true %}\n  b\n  {% endif %}\nc", "a\n  b\nc");
    assert_renders("a {%- if true %} b {%- endif %} c", "a b c");
    assert_renders("  {%+ if true +%}\nx{% endif %}", "  \nx");
    assert_renders("{# one\ntwo #}\nx\n", "x");
    assert_renders("{% raw -%}  {{ x }} {%- endraw %}|", "{{ x }}|");
    assert_renders("{{ '{%' }} {{ '#}' }}", "{% #}");
}

static void scopes_end_where_they_end(void **state) {
    (void)state;
    assert_renders("{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}", "21");
    assert_renders("{% set ns = namespace(x=1) %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
                   "4");
    assert_renders("{% for i in [1, 2, 3] %}{% if loop.last %}{% break %}{% endif %}{{ i }}{% endfor %}", "12");
    assert_renders("{% for i in [1, 2, 3, 4] if i % 2 == 0 %}{{ loop.index }}:{{ i }} {% endfor %}", "1:2 2:4 ");
    assert_renders("{% macro m(n) %}{{ n }}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}", "3210");
    assert_renders(
        "{% macro m() %}[{{ caller(2) }}]{% endmacro %}{% for i in [7] %}{% call(x) m() %}{{ x }}{{ i }}{% endcall %}"
        "{% endfor %}",
        "[27]");
}

/* Source, and what the message must say. */
static const struct {
    const char *source, *says;
} broken[] = {
    {"a\nb {{ x ", "line 2, column 3"},
    {"{% for %}", "line 1, column 8"},
    {"x\n\n {% if true %}", "'{% endif %}'"},
    {"{{ 1 | nosuch }}", "line 1, column 8: there is no filter 'nosuch'"},
    {"{{ 1 is nosuch }}", "there is no test 'nosuch'"},
    {"{% include 'x' %}", "line 1, column 4: '{% include %}' is not known"},
    {"{{ 'abc }}", "a string has no end"},
    {"{{ (1 }}", "closing bracket"},
    {"{% break %}", "loops only"},
    {"{% endif %}", "endif"},
    {"{# never closed", "comment"},
    {"{% set true = 1 %}", "can't be assigned"},
};

static void compile_errors_name_line_column_and_construct(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(broken); i++) {
        um_template *t;
        um_err err;
        assert_int_equal(um_template_new(&t, um_str_of(broken[i].source), &err), UM_ETEMPLATE);
        assert_null(t);
        if (!strstr(err.msg, broken[i].says)) fail_msg("%s: %s", broken[i].source, err.msg);
    }
}

/* Signs nested 90 deep take the most nodes per byte of source: the template is small enough, its tree is not. */
static void a_template_that_needs_too_much_memory_is_reported_at_its_line(void **state) {
    (void)state;
    um_buf source = {0};
    um_template *t;
    um_err err;
    um_buf_puts(&source, "one\ntwo\n{{ [");
    while (source.len < UM_TMPL_SOURCE_MAX - 128) {
        for (int i = 0; i < 90; i++) um_buf_puts(&source, "-");
        um_buf_puts(&source, "1,");
    }
    um_buf_puts(&source, "] }}\nfour");
    assert_int_equal(um_template_new(&t, buf_str(&source), &err), UM_ETEMPLATE);
    assert_non_null(strstr(err.msg, "MiB to compile"));
    if (!strstr(err.msg, "line 3, column")) fail_msg("%s", err.msg);
    um_buf_free(&source);
}

static void run_time_errors_name_the_line_and_discard_the_output(void **state) {
    (void)state;
    um_buf out = {0};
    um_err err;
    assert_int_equal(render_text(UM_STR("text\n{{ raise_exception('roles must alternate') }}"), NULL, &out, &err),
                     UM_ETEMPLATE);
    assert_non_null(strstr(err.msg, "line 2: roles must alternate"));
    assert_int_equal(out.len, 0);
    assert_int_equal(render_text(UM_STR("a\n\n{{ a.b.c }}"), NULL, &out, &err), UM_ETEMPLATE);
    assert_non_null(strstr(err.msg, "line 3: 'a' is undefined"));
    um_buf_free(&out);
}

/* An expression many times over a text of 4 MB and a list of 50,000. */
#define LONG(expression)                                                                                               \
    "{% set s = 'ab' * 2000000 %}{% set t = s ~ '' %}{% set d = {s: 1} %}{% set l = range(50000) | list %}"            \
    "{% for i in range(99999) %}{% set q = " expression " %}{% endfor %}"

/* Each would run, grow or nest without end. */
static const struct {
    const char *source, *says;
} endless[] = {
    {"{% for i in range(100001) %}{% endfor %}", "range"},
    {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "steps"},
    {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deeper"},
    {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "deeper"},
    {"{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "MiB"},
    {"{% set s = 'x' * 1000000 %}{% for i in range(99) %}{{ s }}{% endfor %}", "output"},
    {"{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}", "nested"},
    {"{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}", ""},
    {"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}", "deeper"},
    {"{% set s = ' ' * 200 %}{% for i in range(99999) %}{{ s }}{% endfor %}", "output"},
    /* Much work in few operations. */
    {LONG("s | length"), "steps"},
    {LONG("'zz' in s"), "steps"},
    {LONG("s[1999999]"), "steps"},
    {LONG("s[:1999999]"), "steps"},
    {LONG("s | wordcount"), "steps"},
    {LONG("s.find('zz')"), "steps"},
    {LONG("s.isalpha()"), "steps"},
    {LONG("s == t"), "steps"},
    {LONG("s < t"), "steps"},
    {LONG("d[s]"), "steps"},
    {LONG("'yyyyyyyyyyyyyyyy'.strip(s)"), "steps"},
    {LONG("'yyyyyyyyyyyyyyyy' | trim(s)"), "steps"},
    {LONG("l | sum"), "steps"},
    {LONG("l | reject('number') | first"), "steps"},
    {LONG("-1 in l"), "steps"},
    {"{{ 9223372036854775807 + 1 }}", "64 bits"},
    {"{{ 'x' * 99999999999 }}", "more than"},
};

static void limits_end_what_would_not_end(void **state) {
    (void)state;
    um_buf out = {0};
    um_err err;
    for (size_t i = 0; i < UM_LEN(endless); i++) {
        assert_int_equal(render_text(um_str_of(endless[i].source), NULL, &out, &err), UM_ETEMPLATE);
        if (!strstr(err.msg, endless[i].says)) fail_msg("%s: %s", endless[i].source, err.msg);
    }
    um_buf_free(&out);
}

static void assert_too_deep(const char *open, const char *middle, const char *close, int times) {
    um_buf source = {0};
    um_template *t;
    um_err err;
    for (int i = 0; i < times; i++) um_buf_puts(&source, open);
    um_buf_puts(&source, middle);
    for (int i = 0; i < times; i++) um_buf_puts(&source, close);
    assert_int_equal(um_template_new(&t, buf_str(&source), &err), UM_ETEMPLATE);
    um_buf_free(&source);
}

static void deep_nesting_is_refused(void **state) {
    (void)state;
    assert_too_deep("{% if true %}", "x", "{% endif %}", 5000);
    assert_too_deep("{{ ((((((((((", "1", ")))))))))) }}", 1000);
    assert_too_deep("{{ 1", "", " + 1", 5000);
    assert_too_deep("{{ not not not ", "1", " }}", 5000);
    assert_too_deep("{{ - - - ", "1", " }}", 5000);
    um_template *t;
    um_err err;
    char *big = (char *)um_zalloc((256 << 10) + 2);
    memset(big, 'x', (256 << 10) + 1);
    assert_int_equal(um_template_new(&t, um_str_of(big), &err), UM_ELIMIT);
    um_free(big);
}

static void nothing_internal_is_reachable(void **state) {
    (void)state;
    assert_renders("{{ ''.__class__ }}{{ [].__init__ is defined }}{{ namespace._x is defined }}", "FalseFalse");
}

int main(void) {
    setenv("TZ", "UTC", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(white_space_is_kept_and_taken_as_in_jinja),
        cmocka_unit_test(scopes_end_where_they_end),
        cmocka_unit_test(compile_errors_name_line_column_and_construct),
        cmocka_unit_test(a_template_that_needs_too_much_memory_is_reported_at_its_line),
        cmocka_unit_test(run_time_errors_name_the_line_and_discard_the_output),
        cmocka_unit_test(limits_end_what_would_not_end),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(nothing_internal_is_reachable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
