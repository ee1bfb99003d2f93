/* Matches texts with constraints, for comparisons with other programs: `match_test lines` reads lines of JSON
 * {"kind": "regex"|"schema"|"gbnf", "constraint": TEXT, "texts": [TEXT...], "space_max": N} and prints for each a line:
 * "ok " and 0 or 1 for each text, or the status and the message. Without arguments it tests itself. */
#include <jansson.h>
#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include "grammar/grammar.h"

static um_str text_of(const json_t *v) { return (um_str){json_string_value(v), json_string_length(v)}; }

static um_status build(um_rules *r, const json_t *line, um_err *err) {
    const char *kind = json_string_value(json_object_get(line, "kind"));
    const um_str constraint = text_of(json_object_get(line, "constraint"));
    const int64_t space_max = json_integer_value(json_object_get(line, "space_max"));
    const um_json_style style = {.space_max = (int32_t)space_max};
    if (um_streq(kind, "regex")) return um_rules_from_regex(r, constraint, err);
    if (um_streq(kind, "schema")) return um_rules_from_schema(r, constraint.p, constraint.n, &style, err);
    return um_rules_from_gbnf(r, constraint, err);
}

static void answer(const char *text, size_t n, um_buf *out) {
    json_t *line = NULL;
    um_rules r;
    um_err err = {.code = UM_OK};
    um_rules_init(&r);
    um_status s = um_json_parse(&line, text, n, "line", &err);
    if (!s) s = build(&r, line, &err);
    if (s) um_buf_printf(out, "%s %s\n", um_status_name(s), err.msg);
    else {
        const json_t *texts = json_object_get(line, "texts");
        um_buf_puts(out, "ok ");
        for (size_t i = 0; i < json_array_size(texts); i++)
            um_buf_putc(out, um_rules_match(&r, text_of(json_array_get(texts, i))) ? '1' : '0');
        um_buf_putc(out, '\n');
    }
    um_rules_free(&r);
    json_decref(line);
}

static int answer_lines(void) {
    um_lines lines;
    um_str line;
    um_err err;
    um_lines_from(&lines, 0, "standard input");
    while (um_lines_next(&lines, true, &line, &err) == UM_LINES_LINE) {
        um_buf out = {0};
        answer(line.p, line.n, &out);
        fwrite(out.data, 1, out.len, stdout);
        fflush(stdout);
        um_buf_free(&out);
    }
    um_lines_close(&lines);
    return 0;
}

static void answers_a_line(void **state) {
    (void)state;
    static const struct {
        const char *line, *answer;
    } rows[] = {
        {"{\"kind\":\"regex\",\"constraint\":\"a+\",\"texts\":[\"aa\",\"b\"]}", "ok 10\n"},
        {"{\"kind\":\"schema\",\"constraint\":\"{\\\"type\\\":\\\"null\\\"}\",\"texts\":[\"null\"]}", "ok 1\n"},
        {"{\"kind\":\"gbnf\",\"constraint\":\"root ::= \\\"x\\\"\",\"texts\":[\"x\",\"\"]}", "ok 10\n"},
        {"{\"kind\":\"regex\",\"constraint\":\"(\",\"texts\":[]}",
         "UM_EINVAL column 1 of the regular expression: this group has no closing )\n"},
    };
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        um_buf out = {0};
        answer(rows[i].line, strlen(rows[i].line), &out);
        assert_string_equal(out.data, rows[i].answer);
        um_buf_free(&out);
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && um_streq(argv[1], "lines")) return answer_lines();
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_a_line)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
