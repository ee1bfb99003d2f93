/* text: requests of the OpenAI form: what becomes of roles, contents, tools, arguments and variables, and how a message
 * is continued. */
#include "text/chat.h"
#include "text_vectors.h"

static um_tok *tok; /* of models/tiny-block: <|im_start|>, <|im_end|>, <|MASK|> are special */

static int open_tokenizer(void **state) {
    (void)state;
    um_err err;
    if (um_tok_open(&tok, "models/tiny-block", &err)) fail_msg("%s", err.msg);
    return 0;
}

static int close_tokenizer(void **state) {
    (void)state;
    um_tok_close(tok);
    return 0;
}

/* A request and the template that it meets. */
typedef struct given {
    const char *template, *messages, *tools, *kwargs;
    bool continues;
    int32_t level;
} given;

static given at(const char *template, const char *messages) {
    return (given){.template = template, .messages = messages};
}

static given with_tools(const char *template, const char *messages, const char *tools) {
    return (given){.template = template, .messages = messages, .tools = tools};
}

static given continued(const char *template, const char *messages) {
    return (given){.template = template, .messages = messages, .continues = true};
}

static um_status render(const given *g, um_buf *out, um_ids *ids, um_err *err) {
    um_chat *c;
    um_chat_request q;
    *err = (um_err){0};
    if (um_chat_open(&c, "/nonexistent", tok, g->template, NULL, err)) fail_msg("%s", err->msg);
    um_chat_init(&q);
    q.messages_json = g->messages;
    q.tools_json = g->tools;
    q.kwargs_json = g->kwargs;
    q.continue_final_message = g->continues;
    q.add_generation_prompt = !g->continues;
    q.special_in_content = g->level;
    um_status st = um_chat_render(c, &q, out, ids, err);
    um_chat_close(c);
    return st;
}

static void gives(given g, const char *want) {
    um_buf out = {0};
    um_err err;
    if (render(&g, &out, NULL, &err)) fail_msg("%s: %s", g.messages, err.msg);
    assert_text(buf_str(&out), um_str_of(want));
    um_buf_free(&out);
}

static void refused(given g, um_status code, const char *says) {
    um_buf out = {0};
    um_err err;
    assert_int_equal(render(&g, &out, NULL, &err), code);
    assert_int_equal(out.len, 0);
    if (!strstr(err.msg, says)) fail_msg("\"%s\" is not in: %s", says, err.msg);
    um_buf_free(&out);
}

#define CONTENTS   "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
#define USER(text) "[{\"role\": \"user\", \"content\": " text "}]"

static void roles_are_those_that_templates_know(void **state) {
    (void)state;
    gives(at(CONTENTS, "[{\"role\":\"developer\",\"content\":\"a\"},{\"role\":\"function\",\"content\":\"b\"}]"),
          "[system:a][tool:b]");
    gives(at("{# developer #}" CONTENTS, "[{\"role\":\"developer\",\"content\":\"a\"}]"), "[developer:a]");
    refused(at(CONTENTS, "[{\"role\":\"model\",\"content\":\"a\"}]"), UM_EINVAL, "message 0: role \"model\"");
    refused(at(CONTENTS, "[{\"content\":\"a\"}]"), UM_EINVAL, "\"role\"");
    refused(at(CONTENTS, "[1]"), UM_EINVAL, "message 0");
    refused(at(CONTENTS, "[]"), UM_EINVAL, "at least one message");
    refused(at(CONTENTS, "{}"), UM_EINVAL, "messages: expected a JSON array");
    refused(at(CONTENTS, "[{]"), UM_EPARSE, "messages: invalid JSON");
}

#define PARTS(b) USER("[{\"type\":\"text\",\"text\":\"a \"},{\"type\":\"text\",\"text\":\"" b "\"}]")

static void contents_are_strings_unless_the_template_reads_parts(void **state) {
    (void)state;
    gives(at(CONTENTS, USER("null")), "[user:]");
    gives(at(CONTENTS, "[{\"role\":\"user\"}]"), "[user:]");
    gives(at(CONTENTS, PARTS("b")), "[user:a b]");
    gives(at(CONTENTS, USER("[]")), "[user:]");
    const char *reads[] = {
        "{% for m in messages %}{% for p in m.content %}<{{ p.text | trim }}>{% endfor %}{% endfor %}",
        "{% for m in messages %}{% for p in m['content'] %}<{{ p.text | trim }}>{% endfor %}{% endfor %}",
        "{% for m in messages %}{% set c = m.content or [] %}{% for p in c if true %}<{{ p.text | trim }}>{% endfor %}"
        "{% endfor %}",
        "{% macro show(content) %}{% for p in content %}<{{ p.text | trim }}>{% endfor %}{% endmacro %}"
        "{% for m in messages %}{{ show(m.content) }}{% endfor %}",
    };
    for (size_t i = 0; i < UM_LEN(reads); i++) gives(at(reads[i], PARTS("b")), "<a><b>");
    gives(at("{% for m in messages %}{% for l in m.content.split(' ') %}<{{ l }}>{% endfor %}{% endfor %}", PARTS("b")),
          "<a><b>");
    refused(at(CONTENTS, USER("7")), UM_EINVAL, "\"content\"");
    refused(at(CONTENTS, USER("[{\"type\":\"image_url\",\"image_url\":\"x\"}]")), UM_EINVAL, "part 0 is \"image_url\"");
    refused(at(CONTENTS, USER("[{\"type\":\"text\"}]")), UM_EINVAL, "part 0");
}

#define CALL(arguments)                                                                                                \
    "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","   \
    "\"arguments\":" arguments "}}]}]"
#define ARGUMENTS "{{ messages[0].tool_calls[0].function.arguments | tojson }}"

static void arguments_are_objects_with_their_order_and_digits(void **state) {
    (void)state;
    gives(at(ARGUMENTS, CALL("\"{\\\"b\\\": 1.50, \\\"a\\\": 123456789012345678901234567890, \\\"e\\\": 1e-7}\"")),
          "{\"b\": 1.5, \"a\": 123456789012345678901234567890, \"e\": 1e-07}");
    gives(at(ARGUMENTS, CALL("\"\"")), "{}");
    gives(at(ARGUMENTS, CALL("\" \\n\"")), "{}");
    gives(at(ARGUMENTS, CALL("{\"z\": -9223372036854775809, \"a\": 9223372036854775807}")),
          "{\"z\": -9223372036854775809, \"a\": 9223372036854775807}");
    gives(at(ARGUMENTS, CALL("\"[1]\"")), "\"[1]\"");
    gives(at(ARGUMENTS, CALL("\"{broken\"")), "\"{broken\"");
    gives(at(ARGUMENTS, CALL("\"{\\\"a\\\": 1, \\\"b\\\": 2, \\\"a\\\": 3}\"")), "{\"a\": 3, \"b\": 2}");
    refused(at(CONTENTS, "[{\"role\":\"assistant\",\"tool_calls\":{}}]"), UM_EINVAL, "\"tool_calls\"");
    refused(at(CONTENTS, "[{\"role\":\"assistant\",\"tool_calls\":[1]}]"), UM_EINVAL, "\"tool_calls\"");
}

static void big_integers_are_printed_but_not_calculated_with(void **state) {
    (void)state;
    given g = at("{{ n }} {{ n is integer }} {{ [n] }} {{ n == n }} {{ n == 1 }}", USER("\"x\""));
    g.kwargs = "{\"n\": 123456789012345678901}";
    gives(g, "123456789012345678901 True [123456789012345678901] True False");
    g.template = "{{ n + 1 }}";
    refused(g, UM_ETEMPLATE, "can only be printed");
    g.template = "{{ n > 1 }}";
    refused(g, UM_ETEMPLATE, "can only be printed");
    g.template = "{{ range(n) }}";
    refused(g, UM_ETEMPLATE, "can only be printed");
}

static void half_a_surrogate_pair_becomes_a_replacement(void **state) {
    (void)state;
    gives(at(CONTENTS, USER("\"a\\ud800b\\ude00\\ud83d\\ude00\\\\ud800\"")), "[user:a\xEF\xBF\xBD"
                                                                             "b\xEF\xBF\xBD\xF0\x9F\x98\x80\\ud800]");
}

static void tools_are_a_list_or_none(void **state) {
    (void)state;
    const char *shows = "{{ tools is none }} {{ tools | tojson }}";
    gives(at(shows, USER("\"x\"")), "True null");
    gives(with_tools(shows, USER("\"x\""), "[]"), "True null");
    gives(with_tools(shows, USER("\"x\""), "null"), "True null");
    gives(with_tools(shows, USER("\"x\""), "[{\"z\": 1, \"a\": {\"y\": [], \"b\": null}}]"),
          "False [{\"z\": 1, \"a\": {\"y\": [], \"b\": null}}]");
    refused(with_tools(shows, USER("\"x\""), "{}"), UM_EINVAL, "tools: expected a JSON array");
    refused(with_tools(shows, USER("\"x\""), "[1"), UM_EPARSE, "tools");
}

static void reasoning_has_both_of_its_names(void **state) {
    (void)state;
    const char *shows = "{{ messages[0].reasoning }}|{{ messages[0].reasoning_content }}";
    gives(at(shows, "[{\"role\":\"assistant\",\"content\":\"x\",\"reasoning\":\"why\"}]"), "why|why");
    gives(at(shows, "[{\"role\":\"assistant\",\"content\":\"x\",\"reasoning_content\":\"why\"}]"), "why|why");
    gives(at("{{ messages[0].extra.a }}", "[{\"role\":\"user\",\"content\":\"x\",\"extra\":{\"a\":1}}]"), "1");
}

static void variables_of_a_request_win_but_for_two(void **state) {
    (void)state;
    given g = at("{{ enable_thinking }} {{ eos_token }} {{ add_generation_prompt }} {{ documents }}", USER("\"x\""));
    g.kwargs = "{\"enable_thinking\": false, \"eos_token\": \"E\", \"add_generation_prompt\": 5}";
    gives(g, "False E 5 None");
    g.kwargs = "{\"messages\": []}";
    refused(g, UM_EINVAL, "\"messages\"");
    g.kwargs = "{\"tools\": []}";
    refused(g, UM_EINVAL, "\"tools\"");
    g.kwargs = "[]";
    refused(g, UM_EINVAL, "chat_template_kwargs");
}

#define LAST(text) "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":" text "}]"

static void a_final_message_is_continued_where_it_ends(void **state) {
    (void)state;
    const char *plain = CONTENTS "end", *trims = "{% for m in messages %}[{{ m.content | trim }}]{% endfor %}";
    gives(continued(plain, LAST("\"so far, \"")), "[user:q][assistant:so far, ");
    gives(continued(trims, LAST("\"so far, \"")), "[q][so far,");
    gives(continued(plain, LAST("\"\"")), "[user:q][assistant:");
    gives(continued(plain, LAST("[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]")),
          "[user:q][assistant:ab");
    gives(continued("{{ messages[1].content }}/" CONTENTS, LAST("\"twice\"")), "twice/[user:q][assistant:twice");
    gives(continued("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}!{% endfor %}",
                    "[{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}]"),
          "a");
    refused(continued(plain, USER("\"x\"")), UM_EINVAL, "must be the assistant's");
    refused(continued("nothing of it{# #}", LAST("\"x\"")), UM_EINVAL, "does not end with");
}

static void a_continued_turn_excludes_a_new_one(void **state) {
    (void)state;
    um_chat *c;
    um_err err;
    um_message m = {"assistant", "x"};
    um_chat_request q;
    um_chat_init(&q);
    q.messages = &m;
    q.n_messages = 1;
    q.continue_final_message = true;
    assert_int_equal(um_chat_open(&c, "/nonexistent", tok, CONTENTS, NULL, &err), UM_OK);
    assert_int_equal(um_chat_render(c, &q, NULL, NULL, &err), UM_EINVAL);
    assert_non_null(strstr(err.msg, "contradict"));
    um_chat_init(&q);
    q.messages = &m;
    q.messages_json = "[]";
    assert_int_equal(um_chat_render(c, &q, NULL, NULL, &err), UM_EINVAL);
    q = (um_chat_request){.messages = &m, .n_messages = 1};
    assert_int_equal(um_chat_render(c, &q, NULL, NULL, &err), UM_EINVAL);
    assert_non_null(strstr(err.msg, "um_chat_init"));
    um_chat_close(c);
}

/* Special ids of a prompt. */
static size_t n_special(given g) {
    um_ids ids = {0};
    um_err err;
    size_t n = 0;
    if (render(&g, NULL, &ids, &err)) fail_msg("%s", err.msg);
    for (size_t i = 0; i < ids.n; i++) n += um_tok_is_special(tok, ids.data[i]);
    um_ids_free(&ids);
    return n;
}

static void levels_say_whose_tokens_are_text(void **state) {
    (void)state;
    static const struct {
        const char *role, *text;
        size_t parse, normal, strict;
    } rows[] = {
        {"user", "<|im_end|>", 1, 0, 0},      {"tool", "<|im_end|>", 1, 0, 0},      {"system", "<|im_end|>", 1, 1, 0},
        {"developer", "<|im_end|>", 1, 1, 0}, {"assistant", "<|im_end|>", 1, 1, 1}, {"assistant", "<|MASK|>", 1, 0, 0},
        {"system", "<|MASK|>", 1, 0, 0},
    };
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        char messages[160];
        given g = at("{% for m in messages %}{{ m.content }}{% endfor %}", messages);
        snprintf(messages, sizeof messages, "[{\"role\":\"%s\",\"content\":\"a %s b\"}]", rows[i].role, rows[i].text);
        g.level = UM_SPECIAL_PARSE;
        assert_int_equal(n_special(g), rows[i].parse);
        g.level = UM_SPECIAL_TEXT;
        assert_int_equal(n_special(g), rows[i].normal);
        g.level = UM_SPECIAL_AUTO;
        assert_int_equal(n_special(g), rows[i].normal);
        g.level = UM_SPECIAL_STRICT;
        assert_int_equal(n_special(g), rows[i].strict);
        g.level = UM_SPECIAL_REJECT;
        if (rows[i].normal < rows[i].parse) refused(g, UM_EINVAL, rows[i].text);
        else assert_int_equal(n_special(g), 1);
    }
}

static void every_string_of_a_message_is_protected(void **state) {
    (void)state;
    const char *shows = "{{ messages[0] | tojson }}";
    assert_int_equal(n_special(at(shows, "[{\"role\":\"user\",\"content\":\"x\",\"name\":\"<|im_end|>\","
                                         "\"<|im_end|>\":[{\"a\":\"<|im_end|>\"}]}]")),
                     0);
    assert_int_equal(n_special(at(shows, CALL("\"{\\\"a\\\": \\\"<|MASK|>\\\"}\""))), 0);
    assert_int_equal(n_special(at("{% for p in messages[0].content %}{{ p.text | trim }}{% endfor %}",
                                  USER("[{\"type\":\"text\",\"text\":\"<|im_ \"},{\"type\":\"text\",\"text\":"
                                       "\" end|>\"}]"))),
                     0);
}

/* What stands in the prompt is what was written: the text is the same at all levels. */
static void guards_leave_no_trace(void **state) {
    (void)state;
    given g = at(CONTENTS, USER("\"< <|im_end|> <|im_\\n|> end|>\""));
    g.level = UM_SPECIAL_STRICT;
    gives(g, "[user:< <|im_end|> <|im_\n|> end|>]");
    g.level = UM_SPECIAL_PARSE;
    gives(g, "[user:< <|im_end|> <|im_\n|> end|>]");
    gives(at(CONTENTS, USER("\"{{ 7 * 7 }}{% raw %}{# x\"")), "[user:{{ 7 * 7 }}{% raw %}{# x]");
}

static void raw_prompts_have_levels_too(void **state) {
    (void)state;
    static const struct {
        int level;
        size_t special;
    } rows[] = {{UM_SPECIAL_AUTO, 1}, {UM_SPECIAL_PARSE, 1}, {UM_SPECIAL_TEXT, 0}, {UM_SPECIAL_STRICT, 0}};
    um_err err;
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        um_ids ids = {0};
        size_t n = 0;
        assert_int_equal(um_prompt_encode(tok, UM_STR("a<|im_end|>b"), rows[i].level, true, &ids, &err), UM_OK);
        for (size_t k = 0; k < ids.n; k++) n += um_tok_is_special(tok, ids.data[k]);
        assert_int_equal(n, rows[i].special);
        um_ids_free(&ids);
    }
    um_ids none = {0};
    assert_int_equal(um_prompt_encode(tok, UM_STR("a<|im_end|>b"), UM_SPECIAL_REJECT, true, &none, &err), UM_EINVAL);
    assert_non_null(strstr(err.msg, "\"<|im_end|>\""));
    assert_int_equal(um_prompt_encode(tok, UM_STR("a"), 9, true, &none, &err), UM_ERANGE);
    assert_non_null(strstr(err.msg, "special_in_content: 9 is outside 0..4"));
    assert_int_equal(none.n, 0);
    um_ids_free(&none);
}

static void errors_name_template_line_and_message(void **state) {
    (void)state;
    refused(at("a\n{{ raise_exception('roles must alternate') }}", USER("\"x\"")), UM_ETEMPLATE,
            "chat template given as text: line 2: roles must alternate");
    um_chat *c;
    um_err err;
    assert_int_equal(um_chat_open(&c, "/nonexistent", tok, "a\n\n {{ x", NULL, &err), UM_ETEMPLATE);
    assert_non_null(strstr(err.msg, "chat template given as text: line 3, column 2"));
    assert_int_equal(um_chat_open(&c, "/nonexistent", tok, "/nonexistent", NULL, NULL), UM_ENOENT);
    assert_int_equal(um_chat_open(&c, "/nonexistent", tok, "{{ x.y }}", NULL, NULL), UM_OK);
    um_message m = {"user", "x"};
    um_chat_request q;
    um_chat_init(&q);
    q.messages = &m;
    q.n_messages = 1;
    assert_int_equal(um_chat_render(c, &q, NULL, NULL, NULL), UM_ETEMPLATE); /* nobody wants the message */
    um_chat_close(c);
}

int main(void) {
    um_log_set_level(UM_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(roles_are_those_that_templates_know),
        cmocka_unit_test(contents_are_strings_unless_the_template_reads_parts),
        cmocka_unit_test(arguments_are_objects_with_their_order_and_digits),
        cmocka_unit_test(big_integers_are_printed_but_not_calculated_with),
        cmocka_unit_test(half_a_surrogate_pair_becomes_a_replacement),
        cmocka_unit_test(tools_are_a_list_or_none),
        cmocka_unit_test(reasoning_has_both_of_its_names),
        cmocka_unit_test(variables_of_a_request_win_but_for_two),
        cmocka_unit_test(a_final_message_is_continued_where_it_ends),
        cmocka_unit_test(a_continued_turn_excludes_a_new_one),
        cmocka_unit_test(levels_say_whose_tokens_are_text),
        cmocka_unit_test(every_string_of_a_message_is_protected),
        cmocka_unit_test(guards_leave_no_trace),
        cmocka_unit_test(raw_prompts_have_levels_too),
        cmocka_unit_test(errors_name_template_line_and_message),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
