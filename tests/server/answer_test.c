/* server: the parser of answers: reasoning, calls and content are the same wherever the text is cut. */
#include "server/api/answer.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

/* The parts of an answer as one text: content unchanged, reasoning in (), calls as [name arguments], and those in
 * pieces as [name: arguments. */
typedef struct output {
    um_buf out;
    um_answer_part_kind last;
} output;

static void append_part(void *arg, const um_answer_part *p) {
    output *t = arg;
    bool joins = p->kind == t->last && p->kind != UM_ANSWER_CALL;
    if (p->kind == UM_ANSWER_REASONING && !joins) um_buf_puts(&t->out, "(");
    if (t->last == UM_ANSWER_REASONING && !joins) um_buf_puts(&t->out, ")");
    if (p->kind == UM_ANSWER_CALL && p->is_open) um_buf_printf(&t->out, "[%.*s: ", (int)p->name.n, p->name.p);
    else if (p->kind == UM_ANSWER_CALL)
        um_buf_printf(&t->out, "[%.*s %.*s]", (int)p->name.n, p->name.p, (int)p->text.n, p->text.p);
    else um_buf_append(&t->out, p->text.p, p->text.n);
    t->last = p->kind;
}

/* A tool of which some parameters have types. */
#define TOOLS                                                                                                          \
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {"                     \
    "\"s\": {\"type\": \"string\"}, \"n\": {\"type\": [\"integer\", \"null\"]}, \"b\": {\"type\": \"boolean\"}}}}}]"

typedef struct row {
    const char *tools, *reasoning, *text, *want;
} row;

static void check(const row *r, size_t first, size_t step) {
    um_answer_parser a;
    output t = {.last = UM_ANSWER_CONTENT};
    const um_tool_format *tools;
    const um_reasoning_format *reasoning;
    um_err err;
    size_t n = strlen(r->text);
    if (um_streq(r->tools, "pieces")) tools = &um_tool_format_pieces;
    else if (um_tool_format_find(&tools, r->tools, &err)) fail_msg("%s", err.msg);
    if (um_reasoning_format_find(&reasoning, r->reasoning, &err)) fail_msg("%s", err.msg);
    um_answer_parser_init(&a, tools, reasoning);
    a.tools.tools = TOOLS;
    for (size_t at = 0; at < n;) {
        size_t size = UM_MIN(at ? step : first, n - at);
        um_answer_parser_push(&a, (um_str){r->text + at, size}, append_part, &t);
        at += size;
        size_t pending = um_answer_parser_pending(&a);
        assert_true(pending <= at);
        if (um_streq(r->text, r->want)) assert_int_equal(t.out.len + pending, at); /* nothing is dropped */
    }
    um_answer_parser_end(&a, append_part, &t);
    if (t.last == UM_ANSWER_REASONING) um_buf_puts(&t.out, ")");
    const char *got = t.out.data ? t.out.data : "";
    if (strcmp(got, r->want) != 0)
        fail_msg("%s\ncut at %zu, then every %zu: %s\nexpected: %s", r->text, first, step, got, r->want);
    um_buf_free(&t.out);
    um_answer_parser_free(&a);
}

/* Parses each text in one piece, cut once at each byte, and in pieces of one and of three bytes. */
static void check_all(const row *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(rows[i].text);
        for (size_t first = 1; first <= len; first++) check(&rows[i], first, len);
        check(&rows[i], 1, 1);
        check(&rows[i], 2, 3);
    }
}

#define CALL(name, args) "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " args "}\n</tool_call>"

static void calls_between_markers(void **state) {
    (void)state;
    static const row rows[] = {
        {"hermes", NULL, CALL("f", "{\"a\": 1}"), "[f {\"a\": 1}]"},
        {"hermes", NULL, "Let me see.\n\n" CALL("f", "{}"), "Let me see.[f {}]"},
        {"hermes", NULL, CALL("f", "{}") "\n" CALL("g", "{\"x\": [1, {\"y\": \"}\"}], \"z\": 0.10}"),
         "[f {}][g {\"x\": [1, {\"y\": \"}\"}], \"z\": 0.10}]"},
        {"hermes", NULL, CALL("f", "{}") " and so on ", "[f {}]and so on "},
        {"qwen3", NULL, "a < b, <tool, <tool_ca", "a < b, <tool, <tool_ca"},
        {"hermes", NULL, " plain text \n", " plain text \n"},
        {"hermes", NULL, "<tool_call>not json</tool_call> then", "<tool_call>not json</tool_call> then"},
        {"hermes", NULL, "<tool_call>{\"name\": 1}</tool_call>", "<tool_call>{\"name\": 1}</tool_call>"},
        {"hermes", NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 2}}", "[f {\"a\": 2}]"},
        {"hermes", NULL, "x <tool_call>{\"name\": \"f\", \"argum", "x <tool_call>{\"name\": \"f\", \"argum"},
        {"hermes", NULL, CALL("f", "\"{\\\"a\\\": 1}\""), "[f {\"a\": 1}]"},
        {"hermes", NULL, "<tool_call>{\"name\": \"f\"}</tool_call>", "[f {}]"},
        {"hermes", NULL, CALL("f", "{\"n\": 123456789012345678901234567890}"),
         "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 123456789012345678901234567890}}\n</tool_call>"},
        {"hermes", NULL, "\xE2\x82\xAC " CALL("f", "{\"e\": \"\xE2\x82\xAC\"}"),
         "\xE2\x82\xAC[f {\"e\": \"\xE2\x82\xAC\"}]"},
    };
    check_all(rows, UM_LEN(rows));
}

static void whole_answers_can_be_calls(void **state) {
    (void)state;
    static const row rows[] = {
        {"llama3_json", NULL, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "[f {\"a\": 1}]"},
        {"llama3_json", NULL,
         "\n<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"arguments\": {}}", "[f {}][g {}]"},
        {"llama3_json", NULL, "{\"name\": \"f\", \"parameters\": {}} and text",
         "{\"name\": \"f\", \"parameters\": {}} and text"},
        {"llama3_json", NULL, "{\"a\": 1}", "{\"a\": 1}"},
        {"llama3_json", NULL, "{\"name\": \"Rosa\", \"age\": 26}", "{\"name\": \"Rosa\", \"age\": 26}"},
        {"llama3_json", NULL, " Text with {\"name\": \"f\"} in it ", " Text with {\"name\": \"f\"} in it "},
        {"llama3_json", NULL, "<|pyt", "<|pyt"},
        {"llama3_json", NULL, "  ", "  "},
    };
    check_all(rows, UM_LEN(rows));
}

static void calls_can_be_the_rest_of_the_answer(void **state) {
    (void)state;
    static const row rows[] = {
        {"mistral", NULL, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 0.10}}, {\"name\": \"g\"}]",
         "[f {\"a\": 0.10}][g {}]"},
        {"mistral", NULL, "Let me see. [TOOL_CALLS]f{\"a\": [1]}", "Let me see.[f {\"a\": [1]}]"},
        {"mistral", NULL, "[TOOL_CALLS]f[ARGS]{\"a\": \"]\"}[TOOL_CALLS]g_2[ARGS] {}", "[f {\"a\": \"]\"}][g_2 {}]"},
        {"mistral", NULL, "[TOOL_CALLS][{\"name\": \"f\"}, 1]", "[TOOL_CALLS][{\"name\": \"f\"}, 1]"},
        {"mistral", NULL, "[TOOL_CALLS][{\"name\": \"f\"}", "[TOOL_CALLS][{\"name\": \"f\"}"},
        {"mistral", NULL, "[TOOL_CALLS]f{\"a\": 1", "[TOOL_CALLS]f{\"a\": 1"},
        {"mistral", NULL, "[TOOL_CALLS][]", "[TOOL_CALLS][]"},
        {"mistral", NULL, "[TOOL_CALLS]", "[TOOL_CALLS]"},
        {"mistral", NULL, "[TOOL_CALL", "[TOOL_CALL"},
        {"mistral", NULL, "a [1, 2] b ", "a [1, 2] b "},
    };
    check_all(rows, UM_LEN(rows));
}

#define XML(call) "<tool_call>\n" call "\n</tool_call>"

static void calls_can_be_xml(void **state) {
    (void)state;
    static const row rows[] = {
        {"qwen_xml", NULL,
         XML("<function=f>\n<parameter=s>\n12\n</parameter>\n<parameter=n>\n12\n</parameter>\n<parameter=b>\nTrue\n"
             "</parameter>\n</function>"),
         "[f {\"s\":\"12\",\"n\":12,\"b\":true}]"},
        {"qwen_xml", NULL, XML("<function=f><parameter=n>null</parameter></function>"), "[f {\"n\":null}]"},
        {"qwen_xml", NULL, XML("<function=f><parameter=n>twelve</parameter></function>"), "[f {\"n\":\"twelve\"}]"},
        {"qwen3_coder", NULL, "So: " XML("<function=g>\n</function>"), "So:[g {}]"},
        {"qwen_xml", NULL, XML("<function=g><parameter=x>\n{\"y\": 1.50}\n</parameter></function>"),
         "[g {\"x\":{\"y\": 1.50}}]"},
        {"qwen_xml", NULL, XML("<function=g><parameter=x>a\n<b> \"c\"\n\n</parameter></function>"),
         "[g {\"x\":\"a\\n<b> \\\"c\\\"\\n\"}]"},
        {"qwen_xml", NULL, XML("<function=f><parameter=s>1</parameter><parameter=s>2</parameter></function>"),
         XML("<function=f><parameter=s>1</parameter><parameter=s>2</parameter></function>")},
        {"qwen_xml", NULL, XML("<function=f><parameter=s>1</function>"), XML("<function=f><parameter=s>1</function>")},
        {"qwen_xml", NULL, XML("{\"name\": \"f\"}"), XML("{\"name\": \"f\"}")},
        {"qwen_xml", NULL, XML("<function=>\n</function>"), XML("<function=>\n</function>")},
        {"qwen_xml", NULL, XML("<function=f></function> x"), XML("<function=f></function> x")},
        {"seed_xml", NULL, "<seed:tool_call>\n<function=f>\n<parameter=s>a</parameter>\n</function>\n</seed:tool_call>",
         "[f {\"s\":\"a\"}]"},
    };
    check_all(rows, UM_LEN(rows));
}

static void the_template_shows_the_format(void **state) {
    (void)state;
    static const struct {
        const char *tmpl, *want;
    } rows[] = {{"{{ x }}", NULL},
                {"... <tool_call>\n{\"name\": ...", "hermes"},
                {"<tool_call>\n<function=example>\n<parameter=x>", "qwen_xml"},
                {"<seed:tool_call>\n<function=example>", "seed_xml"},
                {"{{ '[TOOL_CALLS][' }}", "mistral"},
                {"{{ '<|python_tag|>' }}", "llama3_json"},
                {NULL, NULL}};
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        const um_tool_format *f = um_tool_format_of("auto", rows[i].tmpl);
        assert_true(f ? um_streq(f->name, rows[i].want) : !rows[i].want);
        f = um_tool_format_of("qwen", rows[i].tmpl);
        assert_string_equal(f->name, "hermes");
        assert_null(um_tool_format_of("none", rows[i].tmpl));
        assert_null(um_tool_format_of(NULL, rows[i].tmpl));
    }
}

static void reasoning_is_split_off_the_start(void **state) {
    (void)state;
    static const row rows[] = {
        {NULL, "think", "<think>\nhm, \n\nwell\n</think>\n\nYes. ", "(hm, \n\nwell)Yes. "},
        {NULL, "think", "\n <think>a</think>b", "(a)b"},
        {NULL, "think", "No <think>a</think>", "No <think>a</think>"},
        {NULL, "think", " <thin", " <thin"},
        {NULL, "think", "<think>\n\n</think>\n\nYes.", "Yes."},
        {NULL, "think", "<think>never done </thin", "(never done </thin)"},
        {NULL, "think_open", "so </think> it is", "(so)it is"},
        {NULL, "think_open", "<think>so</think>it is", "(so)it is"},
        {NULL, "deepseek_r1", "never done", "(never done)"},
        {"hermes", "qwen3", "<think>I call <tool_call>.</think>\n" CALL("f", "{}"), "(I call <tool_call>.)[f {}]"},
        {"hermes", "think", "<think>a</think> b " CALL("f", "{}"), "(a)b[f {}]"},
        {NULL, NULL, "<think>a</think><tool_call>", "<think>a</think><tool_call>"},
    };
    check_all(rows, UM_LEN(rows));
}

/* The bytes at the end of the text that are in no part yet, because they can still become a marker or a call. */
static void pending_bytes_include_their_markers(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t pending;
    } rows[] = {
        {"<thi", 4},
        {"<think>", 0},
        {"<think>\nhm", 0},
        {"<think>hm\n\n", 2},
        {"<think>hm</thi", 5},
        {"<think>hm\n</think>\n", 0},
        {"Yes ", 1},
        {"Yes <to", 4},
        {"Yes <tool_call>{", 13},
        {"Yes " CALL("f", "{}"), 0},
        {"Yes " CALL("f", "{}") "\n", 0},
        {"<tool_call>1</tool_call>", 0},
    };
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        um_answer_parser a;
        output t = {.last = UM_ANSWER_CONTENT};
        um_answer_parser_init(&a, &um_tool_formats[0], &um_reasoning_formats[0]);
        um_answer_parser_push(&a, um_str_of(rows[i].text), append_part, &t);
        if (um_answer_parser_pending(&a) != rows[i].pending)
            fail_msg("%s: %zu bytes are pending, expected %zu", rows[i].text, um_answer_parser_pending(&a),
                     rows[i].pending);
        um_buf_free(&t.out);
        um_answer_parser_free(&a);
    }
}

static void unknown_formats_are_refused(void **state) {
    (void)state;
    const um_tool_format *tools;
    const um_reasoning_format *reasoning;
    um_err err = {0};
    assert_int_equal(um_tool_format_find(&tools, "", &err), UM_OK);
    assert_null(tools);
    assert_int_equal(um_tool_format_find(&tools, "harmony", &err), UM_EINVAL);
    assert_non_null(strstr(err.msg, "auto, none, hermes, llama3_json, mistral"));
    assert_string_equal(err.param, "tool_call_parser");
    assert_int_equal(um_reasoning_format_find(&reasoning, "loud", &err), UM_EINVAL);
    assert_string_equal(err.param, "reasoning_parser");
}

/* ---- Calls in pieces --------------------------------------------------------------------------------------------- */

static void calls_in_pieces(void **state) {
    (void)state;
    static const row rows[] = {
        {"pieces", NULL, "{\"name\": \"f\", \"arguments\": {\"a\": 1}}", "[f: {\"a\": 1}"},
        {"pieces", NULL, " {\"name\":\"f \\\"x\\\"\" ,\n\"parameters\" : {}\n} ", "[f \"x\": {}"},
        {"pieces", NULL, "{\"name\": \"f\", \"arguments\": {\"a\": [\"}\", \"\\\"]\\\\\", {\"b\": {}}]} }",
         "[f: {\"a\": [\"}\", \"\\\"]\\\\\", {\"b\": {}}]}"},
        {"pieces", NULL, "{\"name\": \"f\", \"arguments\": {\"a\": \"x{", "[f: {\"a\": \"x{"},
        {"pieces", NULL, "{\"name\": \"f\", \"argum", ""},
        {"pieces", NULL, "{\"name\": \"\\u00\", \"a\": {}}", ""}, /* no text of the constraint */
    };
    check_all(rows, UM_LEN(rows));
}

/* Each piece of the arguments is passed on at once. */
static void pieces_do_not_wait(void **state) {
    (void)state;
    static const char *const pieces[] = {"{\"name\": \"f\", \"arguments\": {", "\"a\"", ": 1", "}", "}"};
    static const char *const want[] = {"[f: {", "[f: {\"a\"", "[f: {\"a\": 1", "[f: {\"a\": 1}", "[f: {\"a\": 1}"};
    um_answer_parser a;
    output t = {.last = UM_ANSWER_CONTENT};
    um_answer_parser_init(&a, &um_tool_format_pieces, NULL);
    for (size_t i = 0; i < UM_LEN(pieces); i++) {
        assert_int_equal(um_answer_parser_is_cut(&a), i < 4);
        um_answer_parser_push(&a, um_str_of(pieces[i]), append_part, &t);
        assert_string_equal(t.out.data, want[i]);
        assert_int_equal(um_answer_parser_pending(&a), 0);
    }
    um_buf_free(&t.out);
    um_answer_parser_free(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_between_markers),
        cmocka_unit_test(whole_answers_can_be_calls),
        cmocka_unit_test(calls_can_be_the_rest_of_the_answer),
        cmocka_unit_test(calls_can_be_xml),
        cmocka_unit_test(the_template_shows_the_format),
        cmocka_unit_test(reasoning_is_split_off_the_start),
        cmocka_unit_test(pending_bytes_include_their_markers),
        cmocka_unit_test(unknown_formats_are_refused),
        cmocka_unit_test(calls_in_pieces),
        cmocka_unit_test(pieces_do_not_wait),
    };
    return cmocka_run_group_tests_name("server_answer", tests, NULL, NULL);
}
