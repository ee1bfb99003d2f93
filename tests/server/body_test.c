/* server: request bodies. Every field is used, checked or ignored as its row says, and errors name the field. */
#include "alone.h"

#include <setjmp.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>

#include "unit/bos_folder.h"

static alone server, with_bos;
static char folder[] = BOS_FOLDER;

static int open_models(void **state) {
    (void)state;
    alone_open(&server, "models/tiny-block");
    bos_folder_make(folder);
    alone_open(&with_bos, folder);
    return 0;
}

static int close_models(void **state) {
    (void)state;
    alone_close(&server);
    alone_close(&with_bos);
    bos_folder_remove(folder);
    return 0;
}

/* The fields of a test API: a prompt of any kind, and `top`, which sets an option under another name. */
static const um_field own[] = {{.name = "prompt", .take = um_body_take_prompt}, {.name = "top", .option = "top_k"}};
static const um_field_set own_fields = {own, UM_LEN(own)};

static um_status read_on(const alone *a, um_body *b, const char *text, um_err *err) {
    const um_field_set *const sets[] = {&own_fields, &um_chat_fields, &um_common_fields, NULL};
    json_t *root = NULL;
    *err = (um_err){0};
    if (um_json_parse_exact(&root, text, strlen(text), "body", err)) fail_msg("%s", err->msg);
    return um_body_read(b, &a->setup, &a->capacity, root, sets, err);
}

static void accept(um_body *b, const char *text) {
    um_err err;
    if (read_on(&server, b, text, &err)) fail_msg("%s: %s", text, err.msg);
}

/* Checks that the body is refused with an error about `param` whose message contains `part`. */
static void refuse(const char *text, um_status code, const char *param, const char *part) {
    um_body b = {0};
    um_err err;
    um_status st = read_on(&server, &b, text, &err);
    if (!st) st = um_body_encode(&b, &err);
    if (st != code) fail_msg("%s: %s, expected %s", text, um_status_name(st), um_status_name(code));
    assert_string_equal(err.param, param);
    if (!strstr(err.msg, part)) fail_msg("\"%s\" is not in: %s", part, err.msg);
    um_body_free(&b);
}

static const char *value_of(const um_body *b, const char *option) {
    for (uint32_t i = 0; i < b->generate.n_set; i++)
        if (um_str_eq(b->generate.set[i].name, um_str_of(option))) return b->generate.set[i].value.p;
    return NULL;
}

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

static void parameters_are_sent_under_the_names_of_their_rows(void **state) {
    (void)state;
    um_body b = {0};
    accept(&b, "{\"prompt\": \"x\", \"max_completion_tokens\": 12, \"temperature\": 0.5, \"ignore_eos\": true, "
               "\"threshold\": 0.25, \"remasking\": \"low_confidence\", \"top\": 5, \"seed\": null}");
    assert_string_equal(value_of(&b, "max_tokens"), "12");
    assert_string_equal(value_of(&b, "temperature"), "0.5");
    assert_string_equal(value_of(&b, "ignore_eos"), "true");
    assert_string_equal(value_of(&b, "accept_threshold"), "0.25");
    assert_string_equal(value_of(&b, "sampler"), "low_confidence");
    assert_string_equal(value_of(&b, "top_k"), "5");
    assert_false(um_body_is_set(&b, "seed"));
    assert_int_equal(b.generate.n_set, 6);
    assert_int_equal(b.checked.sampling.max_tokens, 12);
    um_body_free(&b);
}

static void the_last_value_of_an_option_counts(void **state) {
    (void)state;
    um_body b = {0};
    accept(&b, "{\"prompt\": \"x\", \"max_new_tokens\": 3, \"max_tokens\": 4}");
    assert_int_equal(b.generate.n_set, 1);
    assert_string_equal(value_of(&b, "max_tokens"), "4");
    um_body_free(&b);
}

static void unknown_fields_are_refused_with_the_nearest_name(void **state) {
    (void)state;
    refuse("{\"prompt\": \"x\", \"max_token\": 3}", UM_EINVAL, "max_token", "did you mean \"max_tokens\"");
    refuse("{\"prompt\": \"x\", \"steam\": true}", UM_EINVAL, "steam", "did you mean \"stream\"");
    refuse("{\"prompt\": \"x\", \"zzzzzzzz\": null}", UM_EINVAL, "zzzzzzzz", "unknown field");
}

static void values_of_another_type_or_out_of_range_are_refused(void **state) {
    (void)state;
    char long_stop[1100];
    snprintf(long_stop, sizeof long_stop, "{\"prompt\": \"x\", \"stop\": \"%01025d\"}", 0);
    refuse("{\"prompt\": \"x\", \"max_tokens\": \"12\"}", UM_EINVAL, "max_tokens", "expected an integer");
    refuse("{\"prompt\": \"x\", \"max_completion_tokens\": 0}", UM_ERANGE, "max_completion_tokens", "outside");
    refuse("{\"prompt\": \"x\", \"top\": 1.5}", UM_EINVAL, "top", "integer");
    refuse("{\"prompt\": \"x\", \"accept_threshold\": 1.5}", UM_ERANGE, "accept_threshold", "0..1");
    refuse("{\"prompt\": \"x\", \"n\": 129}", UM_ERANGE, "n", "1..128");
    refuse("{\"prompt\": \"x\", \"n\": \"2\"}", UM_EINVAL, "n", "expected an integer");
    refuse("{\"prompt\": \"x\", \"stream\": 1}", UM_EINVAL, "stream", "true or false");
    refuse("{\"prompt\": \"x\", \"stream_mode\": \"fast\"}", UM_EINVAL, "stream_mode", "block_append");
    refuse("{\"prompt\": \"x\", \"logit_bias\": {\"5\": 101}}", UM_ERANGE, "logit_bias", "-100..100");
    refuse("{\"prompt\": \"x\", \"logit_bias\": {\"a\": 1}}", UM_EINVAL, "logit_bias", "not a token id");
    refuse("{\"prompt\": \"x\", \"stop_token_ids\": [-1]}", UM_ERANGE, "stop_token_ids", "not a token id");
    refuse("{\"prompt\": \"x\", \"stop\": [\"a\", \"\"]}", UM_EINVAL, "stop", "stop string 1 is empty");
    refuse(long_stop, UM_ERANGE, "stop", "stop string 0 has 1025 bytes, at most 1024");
    refuse("{\"prompt\": \"x\", \"stop\": [\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"0\",\"1\",\"2\","
           "\"3\",\"4\",\"5\",\"6\",\"7\"]}",
           UM_ERANGE, "stop", "at most 16");
    refuse("{\"prompt\": \"x\", \"request_id\": \"\"}", UM_ERANGE, "request_id", "1 to 64");
    refuse("{\"prompt\": \"x\", \"stream_options\": {\"include_usage\": true}}", UM_EINVAL, "stream_options",
           "\"stream\": true");
    refuse("{\"prompt\": \"x\", \"stream\": true, \"stream_options\": {\"include\": true}}", UM_EINVAL,
           "stream_options", "unknown");
}

static void unsupported_fields_accept_only_neutral_values(void **state) {
    (void)state;
    um_body b = {0};
    accept(&b, "{\"prompt\": \"x\", \"best_of\": 1, \"use_beam_search\": false, \"length_penalty\": 1.0, "
               "\"response_format\": {\"type\": \"text\"}, \"prompt_logprobs\": null, \"suffix\": null}");
    um_body_free(&b);
    refuse("{\"prompt\": \"x\", \"best_of\": 2}", UM_EINVAL, "best_of", "only 1 or null");
    refuse("{\"prompt\": \"x\", \"use_beam_search\": true}", UM_EINVAL, "use_beam_search", "autoregressive");
    refuse("{\"prompt\": \"x\", \"prompt_logprobs\": 1}", UM_EINVAL, "prompt_logprobs", "only null");
}

/* ---- Constraints ------------------------------------------------------------------------------------------------- */

/* Checks that the body with these fields has the constraint; text NULL: one without text. */
static void constrains(const char *fields, int32_t kind, const char *text) {
    um_body b = {0};
    um_buf all = {0};
    um_err err;
    um_buf_printf(&all, "{\"prompt\": \"x\", %s}", fields);
    accept(&b, all.data);
    if (b.generate.constraint != kind) fail_msg("%s: constraint %d", fields, b.generate.constraint);
    if (text) assert_string_equal(b.generate.constraint_text.p, text);
    else assert_int_equal(b.generate.constraint_text.n, 0);
    if (um_body_check_constraint(&b, &err)) fail_msg("%s: %s", fields, err.msg);
    um_body_free(&b);
    um_buf_free(&all);
}

static void every_field_sets_its_constraint(void **state) {
    (void)state;
    static const char grammar[] = "root ::= \"a\"";
    constrains("\"response_format\": {\"type\": \"text\"}", UM_CONSTRAINT_NONE, NULL);
    constrains("\"response_format\": {\"type\": \"json_object\"}", UM_CONSTRAINT_JSON, NULL);
    constrains("\"response_format\": {\"type\": \"json_object\", \"schema\": {\"type\": \"null\"}}",
               UM_CONSTRAINT_SCHEMA, "{\"type\":\"null\"}");
    constrains("\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"a\", \"strict\": true, "
               "\"schema\": {\"maximum\": 123456789012345678901234567890, \"type\": \"integer\"}}}",
               UM_CONSTRAINT_SCHEMA, "{\"maximum\":123456789012345678901234567890,\"type\":\"integer\"}");
    constrains("\"guided_json\": {\"type\": \"null\"}", UM_CONSTRAINT_SCHEMA, "{\"type\":\"null\"}");
    constrains("\"guided_json\": \"{\\\"type\\\": \\\"null\\\"}\"", UM_CONSTRAINT_SCHEMA, "{\"type\": \"null\"}");
    constrains("\"guided_regex\": \"a+\"", UM_CONSTRAINT_REGEX, "a+");
    constrains("\"guided_choice\": [\"a\", \"b c\"]", UM_CONSTRAINT_CHOICE, "[\"a\",\"b c\"]");
    constrains("\"guided_grammar\": \"root ::= \\\"a\\\"\"", UM_CONSTRAINT_GRAMMAR, grammar);
    constrains("\"json_schema\": true", UM_CONSTRAINT_SCHEMA, "true");
    constrains("\"regex\": \"a+\", \"grammar\": \"\", \"ebnf\": null", UM_CONSTRAINT_REGEX, "a+");
    constrains("\"ebnf\": \"root ::= \\\"a\\\"\"", UM_CONSTRAINT_GRAMMAR, grammar);
    constrains("\"grammar\": \"root ::= \\\"a\\\"\"", UM_CONSTRAINT_GRAMMAR, grammar);
    constrains("\"structured_outputs\": {\"json\": {}, \"regex\": null, \"disable_fallback\": true}",
               UM_CONSTRAINT_SCHEMA, "{}");
    constrains("\"structured_outputs\": {\"regex\": \"a+\"}", UM_CONSTRAINT_REGEX, "a+");
    constrains("\"structured_outputs\": {\"choice\": [\"a\"]}", UM_CONSTRAINT_CHOICE, "[\"a\"]");
    constrains("\"structured_outputs\": {\"grammar\": \"root ::= \\\"a\\\"\"}", UM_CONSTRAINT_GRAMMAR, grammar);
    constrains("\"structured_outputs\": {\"json_object\": true}", UM_CONSTRAINT_JSON, NULL);
    constrains("\"structured_outputs\": {\"json_object\": false}", UM_CONSTRAINT_NONE, NULL);
}

static void wrong_constraints_are_refused(void **state) {
    (void)state;
    refuse("{\"prompt\": \"x\", \"response_format\": {\"type\": \"structural_tag\"}}", UM_EINVAL, "response_format",
           "structural_tag");
    refuse("{\"prompt\": \"x\", \"response_format\": {\"type\": \"json_schema\"}}", UM_EINVAL, "response_format",
           "needs a \"schema\"");
    refuse("{\"prompt\": \"x\", \"response_format\": {}}", UM_EINVAL, "response_format", "type");
    refuse("{\"prompt\": \"x\", \"structural_tag\": {}}", UM_EINVAL, "structural_tag", "whole answer");
    refuse("{\"prompt\": \"x\", \"structured_outputs\": {\"structural_tag\": \"{}\"}}", UM_EINVAL, "structured_outputs",
           "structural_tag");
    refuse("{\"prompt\": \"x\", \"structured_outputs\": {\"disable_additional_properties\": true}}", UM_EINVAL,
           "structured_outputs", "disable_additional_properties");
    refuse("{\"prompt\": \"x\", \"guided_choice\": []}", UM_EINVAL, "guided_choice", "one or more strings");
    refuse("{\"prompt\": \"x\", \"guided_choice\": [\"a\", 1]}", UM_EINVAL, "guided_choice", "one or more strings");
    refuse("{\"prompt\": \"x\", \"guided_json\": 5}", UM_EINVAL, "guided_json", "JSON schema");
    refuse("{\"prompt\": \"x\", \"regex\": \"a\\u0000b\"}", UM_EINVAL, "regex", "U+0000");
    /* Two constraints: the error has both names. */
    refuse("{\"prompt\": \"x\", \"regex\": \"a\", \"guided_json\": {}}", UM_EINVAL, "guided_json", "\"regex\"");
    refuse("{\"prompt\": \"x\", \"structured_outputs\": {\"json\": {}, \"regex\": \"a\"}}", UM_EINVAL,
           "structured_outputs", "already");
}

static void parameters_that_break_a_constraint_are_refused(void **state) {
    (void)state;
    static const char *const fields[][2] = {{"ignore_eos", "true"},
                                            {"min_tokens", "2"},
                                            {"stop", "[\"a\"]"},
                                            {"stop_token_ids", "[1]"},
                                            {"allowed_token_ids", "[1, 2]"},
                                            {"bad_words", "[\"a\"]"},
                                            {"max_nfe", "3"},
                                            {"logit_bias", "{\"5\": -100}"}};
    for (size_t i = 0; i < UM_LEN(fields); i++) {
        um_body b = {0};
        um_buf text = {0};
        um_err err;
        um_buf_printf(&text, "{\"prompt\": \"x\", \"regex\": \"a\", \"%s\": %s}", fields[i][0], fields[i][1]);
        accept(&b, text.data);
        assert_int_equal(um_body_check_constraint(&b, &err), UM_EINVAL);
        assert_string_equal(err.param, fields[i][0]);
        um_body_free(&b);
        um_buf_free(&text);
    }
    um_body b = {0};
    um_err err;
    accept(&b, "{\"prompt\": \"x\", \"regex\": \"a\", \"logit_bias\": {\"5\": -99}, \"logprobs\": 2}");
    assert_int_equal(um_body_check_constraint(&b, &err), UM_OK);
    um_body_free(&b);
}

/* ---- Ignored fields ---------------------------------------------------------------------------------------------- */

static void fields_without_effect_are_ignored(void **state) {
    (void)state;
    um_body b = {0};
    accept(&b, "{\"prompt\": \"x\", \"user\": \"u\", \"metadata\": {\"a\": \"b\"}, \"store\": true, \"service_tier\": "
               "\"auto\", \"prompt_cache_key\": \"k\", \"safety_identifier\": \"s\", "
               "\"spaces_between_special_tokens\": true}");
    assert_int_equal(b.generate.n_set, 0);
    um_body_free(&b);
}

static void lists_and_booleans_reach_the_generation(void **state) {
    (void)state;
    um_body b = {0};
    accept(&b, "{\"prompt\": \"x\", \"stop\": \"END\", \"stop_token_ids\": [7, 0], \"logit_bias\": {\"12\": -1.5, "
               "\"9\": -100}, \"n\": 3, \"priority\": -2, \"cache_salt\": \"s\", \"skip_special_tokens\": false, "
               "\"stream\": true, \"stream_mode\": \"mixed\", \"snapshot_max_hz\": 2.5, \"return_step_map\": true, "
               "\"stream_options\": {\"include_usage\": true, \"continuous_usage_stats\": null}, \"logprobs\": 2}");
    assert_int_equal(b.generate.n_stop, 1);
    assert_memory_equal(b.generate.stop[0].p, "END", 3);
    assert_int_equal(b.generate.n_stop_ids, 2);
    assert_int_equal(b.generate.stop_ids[0], 7);
    assert_int_equal(b.generate.n_bias, 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_true(b.generate.bias_id[i] == 12 ? b.generate.bias[i] == -1.5f : isinf(b.generate.bias[i]));
    assert_int_equal(b.generate.n, 3);
    assert_int_equal(b.generate.priority, -2);
    assert_true(b.generate.cache_salt == um_key_hash(UM_STR("s")));
    assert_true(b.generate.keep_special && b.stream && b.include_usage && !b.continuous_usage && b.return_step_map);
    assert_int_equal(b.stream_mode, UM_STREAM_MIXED);
    assert_true(b.snapshot_max_hz == 2.5);
    assert_int_equal(b.top_logprobs, 2);
    um_body_free(&b);
}

static void a_model_must_be_served_and_may_be_an_adapter(void **state) {
    (void)state;
    um_body b = {0};
    accept(&b, "{\"prompt\": \"x\", \"model\": \"tiny\"}");
    assert_int_equal(b.generate.adapter.n, 0);
    um_body_free(&b);
    accept(&b, "{\"prompt\": \"x\", \"model\": \"pirate\"}");
    assert_memory_equal(b.generate.adapter.p, "pirate", 6);
    um_body_free(&b);
    refuse("{\"prompt\": \"x\", \"model\": \"gpt-4o\"}", UM_ENOENT, "model", "\"gpt-4o\" does not exist");
}

/* ---- Conversations ----------------------------------------------------------------------------------------------- */

#define USER "\"messages\": [{\"role\": \"user\", \"content\": \"u\"}]"
#define TOOLS                                                                                                          \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}, {\"type\": \"function\", "                 \
    "\"function\": {\"name\": \"g\"}}]"

static void conversations_become_a_chat_request(void **state) {
    (void)state;
    um_body b = {0};
    accept(&b, "{" USER ", \"reasoning_effort\": \"low\", \"chat_template_kwargs\": {\"a\": 1}}");
    assert_string_equal(b.chat.messages_json, "[{\"role\":\"user\",\"content\":\"u\"}]");
    assert_string_equal(b.chat.kwargs_json, "{\"a\":1,\"reasoning_effort\":\"low\"}");
    assert_true(b.chat.add_generation_prompt);
    um_body_free(&b);
    accept(&b, "{\"continue_final_message\": true, " USER "}");
    assert_false(b.chat.add_generation_prompt);
    um_body_free(&b);
    refuse("{\"messages\": []}", UM_EINVAL, "messages", "messages must not be empty");
    refuse("{" USER ", \"prompt\": \"x\"}", UM_EINVAL, "prompt", "more than one prompt");
    refuse("{\"prompt\": \"x\", " TOOLS "}", UM_EINVAL, "tools", "needs \"messages\"");
}

static void tool_choice_selects_the_tools_of_the_template(void **state) {
    (void)state;
    um_body b = {0};
    accept(&b, "{" USER ", " TOOLS "}");
    assert_non_null(strstr(b.chat.tools_json, "\"g\""));
    um_body_free(&b);
    accept(&b, "{" USER ", " TOOLS ", \"tool_choice\": \"none\"}");
    assert_null(b.chat.tools_json);
    um_body_free(&b);
    accept(&b, "{" USER ", " TOOLS ", \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"g\"}}}");
    assert_int_equal(b.tool_choice, UM_TOOLS_NAMED);
    assert_string_equal(b.chat.tools_json, "[{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]");
    um_body_free(&b);
    refuse("{" USER ", " TOOLS ", \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"h\"}}}",
           UM_EINVAL, "tool_choice", "unknown tool \"h\"");
    refuse("{" USER ", " TOOLS ", \"tool_choice\": {\"type\": \"custom\", \"function\": {\"name\": \"g\"}}}", UM_EINVAL,
           "tool_choice", "expected \"auto\"");
    refuse("{" USER ", " TOOLS ", \"tool_choice\": {\"function\": {\"name\": \"g\", \"strict\": true}}}", UM_EINVAL,
           "tool_choice", "expected \"auto\"");
    refuse("{" USER ", \"tool_choice\": \"required\"}", UM_EINVAL, "tool_choice", "has no tools");
    refuse("{" USER ", " TOOLS ", \"tool_choice\": \"maybe\"}", UM_EINVAL, "tool_choice", "expected \"auto\"");
    refuse("{" USER ", \"tools\": [{\"type\": \"web_search\"}]}", UM_EINVAL, "tools", "type \"function\"");
    refuse("{" USER ", \"functions\": [{}]}", UM_EINVAL, "functions", "use tools");
}

static void template_errors_are_errors_of_the_request(void **state) {
    (void)state;
    refuse("{" USER ", \"chat_template\": \"{{ raise_exception('no') }}\"}", UM_ETEMPLATE, "messages", "no");
    refuse("{\"messages\": [{\"role\": \"wizard\", \"content\": \"u\"}]}", UM_EINVAL, "messages", "role \"wizard\"");
    refuse("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}", UM_EINVAL, "messages",
           "reads text only");
}

/* ---- Prompts ----------------------------------------------------------------------------------------------------- */

static void prompts_are_texts_or_ids_or_lists_of_them(void **state) {
    (void)state;
    static const struct {
        const char *json;
        size_t n;
        bool one;
    } rows[] = {{"\"a\"", 1, true},          {"[\"a\", \"b\"]", 2, false}, {"[1, 2, 3]", 1, true},
                {"[[1], [2, 3]]", 2, false}, {"[\"a\"]", 1, false},        {"[\"a\", [1]]", 2, false}};
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        um_body b = {0};
        um_err err;
        char text[64];
        snprintf(text, sizeof text, "{\"prompt\": %s}", rows[i].json);
        accept(&b, text);
        assert_int_equal(b.n_prompts, rows[i].n);
        assert_int_equal(b.one_prompt, rows[i].one);
        if (um_body_encode(&b, &err)) fail_msg("%s", err.msg);
        for (size_t k = 0; k < b.n_prompts; k++) assert_true(b.prompt[k].n_ids > 0);
        um_body_free(&b);
    }
    refuse("{\"prompt\": 5}", UM_EINVAL, "prompt", "expected a string or an array");
    refuse("{\"prompt\": [1, \"a\"]}", UM_EINVAL, "prompt", "expected an integer");
    refuse("{\"prompt\": [\"a\", {}]}", UM_EINVAL, "prompt", "prompt 1");
    refuse("{\"prompt\": \"\"}", UM_EINVAL, "prompt", "empty");
    refuse("{\"prompt\": []}", UM_EINVAL, "prompt", "empty");
    refuse("{\"prompt\": [1, 999999]}", UM_ERANGE, "prompt", "prompt token 1 is 999999");
}

static void a_request_has_at_most_1024_prompts(void **state) {
    (void)state;
    um_buf text = {0};
    um_body b = {0};
    um_err err;
    um_buf_puts(&text, "{\"prompt\": [[1]");
    for (int i = 1; i <= UM_PROMPTS_MAX; i++) um_buf_puts(&text, ",[1]");
    um_buf_puts(&text, "]}");
    assert_int_equal(read_on(&server, &b, text.data, &err), UM_ERANGE);
    assert_string_equal(err.param, "prompt");
    um_body_free(&b);
    um_buf_free(&text);
}

static void a_prompt_must_leave_room_for_an_answer(void **state) {
    (void)state;
    um_buf text = {0};
    um_body b = {0};
    um_err err;
    um_buf_puts(&text, "{\"prompt\": [1");
    for (int i = 1; i < 1024; i++) um_buf_puts(&text, ",1");
    um_buf_puts(&text, "]}");
    assert_int_equal(read_on(&server, &b, text.data, &err), UM_OK);
    assert_int_equal(um_body_encode(&b, &err), UM_ELIMIT);
    assert_non_null(strstr(err.msg, "1024 tokens, but max_model_len is 1024"));
    assert_string_equal(b.error_code, "context_length_exceeded");
    um_body_free(&b);
    um_buf_free(&text);
}

#define BARE ", \"chat_template\": \"{{ messages[0].content }}\""

static void bos_is_added_once_or_not_at_all(void **state) {
    (void)state;
    static const struct {
        const char *body;
        size_t n;
    } rows[] = {{"{\"prompt\": \"hi\"}", 1},
                {"{\"prompt\": \"hi\", \"add_special_tokens\": false}", 0},
                {"{\"prompt\": \"<|startoftext|>hi\"}", 1},
                {"{\"prompt\": \"<|startoftext|>hi\", \"add_special_tokens\": false}", 1},
                {"{" USER "}", 1}, /* from the template */
                {"{" USER ", \"add_special_tokens\": true}", 1},
                {"{" USER BARE "}", 0},
                {"{" USER BARE ", \"add_special_tokens\": true}", 1},
                {"{" USER BARE ", \"add_special_tokens\": false}", 0}};
    int32_t bos = 1012;
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        um_body b = {0};
        um_err err;
        size_t n = 0;
        if (read_on(&with_bos, &b, rows[i].body, &err) || um_body_encode(&b, &err)) fail_msg("%s", err.msg);
        for (size_t k = 0; k < b.prompt->n_ids; k++) n += b.prompt->ids[k] == bos;
        if (n != rows[i].n) fail_msg("%s: %zu", rows[i].body, n);
        um_body_free(&b);
    }
}

static void without_max_tokens_an_answer_may_fill_the_model(void **state) {
    (void)state;
    um_body b = {0};
    um_err err;
    accept(&b, "{\"prompt\": [1, 2, 3]}");
    b.fills = true;
    assert_int_equal(um_body_encode(&b, &err), UM_OK);
    assert_string_equal(value_of(&b, "max_tokens"), "1021");
    um_body_free(&b);
    accept(&b, "{\"prompt\": [1, 2, 3], \"decoding_strategy\": \"full\"}");
    b.fills = true;
    assert_int_equal(um_body_encode(&b, &err), UM_OK);
    assert_null(value_of(&b, "max_tokens"));
    um_body_free(&b);
}

static void without_max_tokens_gen_length_limits_the_answer(void **state) {
    (void)state;
    um_body b = {0};
    accept(&b, "{\"prompt\": \"x\", \"gen_length\": 24, \"decoding_strategy\": \"full\"}");
    assert_string_equal(value_of(&b, "gen_length"), "24");
    assert_string_equal(value_of(&b, "max_tokens"), "24");
    um_body_free(&b);
    accept(&b, "{\"prompt\": \"x\", \"gen_length\": 24, \"decoding_strategy\": \"multi_bd\"}");
    assert_null(value_of(&b, "gen_length")); /* this strategy has no canvas */
    assert_string_equal(value_of(&b, "max_tokens"), "24");
    um_body_free(&b);
    accept(&b, "{\"prompt\": \"x\", \"gen_length\": 24, \"max_tokens\": 12}");
    assert_string_equal(value_of(&b, "max_tokens"), "12");
    um_body_free(&b);
    accept(&b, "{\"prompt\": \"x\", \"gen_length\": \"auto\"}");
    assert_null(value_of(&b, "max_tokens"));
    um_body_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_sent_under_the_names_of_their_rows),
        cmocka_unit_test(the_last_value_of_an_option_counts),
        cmocka_unit_test(unknown_fields_are_refused_with_the_nearest_name),
        cmocka_unit_test(values_of_another_type_or_out_of_range_are_refused),
        cmocka_unit_test(unsupported_fields_accept_only_neutral_values),
        cmocka_unit_test(every_field_sets_its_constraint),
        cmocka_unit_test(wrong_constraints_are_refused),
        cmocka_unit_test(parameters_that_break_a_constraint_are_refused),
        cmocka_unit_test(fields_without_effect_are_ignored),
        cmocka_unit_test(lists_and_booleans_reach_the_generation),
        cmocka_unit_test(a_model_must_be_served_and_may_be_an_adapter),
        cmocka_unit_test(conversations_become_a_chat_request),
        cmocka_unit_test(tool_choice_selects_the_tools_of_the_template),
        cmocka_unit_test(template_errors_are_errors_of_the_request),
        cmocka_unit_test(prompts_are_texts_or_ids_or_lists_of_them),
        cmocka_unit_test(a_request_has_at_most_1024_prompts),
        cmocka_unit_test(a_prompt_must_leave_room_for_an_answer),
        cmocka_unit_test(bos_is_added_once_or_not_at_all),
        cmocka_unit_test(without_max_tokens_an_answer_may_fill_the_model),
        cmocka_unit_test(without_max_tokens_gen_length_limits_the_answer),
    };
    return cmocka_run_group_tests_name("server_body", tests, open_models, close_models);
}
