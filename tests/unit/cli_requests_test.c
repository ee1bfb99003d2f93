/* Request lines, lines of files, the set of ids, and result lines. */
#include "cli/requests.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <unistd.h>

#include "cli/result_file.h"

/* ---- Request lines ----------------------------------------------------------------------------------------------- */

static um_request defaults(void) {
    um_config c;
    um_config_init(&c);
    return (um_request){.size = sizeof(um_request), .decoding = c.decoding, .sampling = c.sampling};
}

static um_status parse(um_request_line *q, const char *text, um_err *err) {
    um_request d = defaults();
    return um_request_line_parse(q, um_str_of(text), &d, err);
}

/* Checks that the line is refused, with `part` in the message. */
static void refuse(const char *text, um_status code, const char *part) {
    um_request_line q = {0};
    um_err err = {0};
    assert_int_equal(parse(&q, text, &err), code);
    if (!strstr(err.msg, part)) fail_msg("\"%s\" is not in: %s", part, err.msg);
    um_request_line_free(&q);
}

static void accept(um_request_line *q, const char *text) {
    um_err err = {0};
    if (parse(q, text, &err)) fail_msg("%s", err.msg);
}

static void reads_every_kind_of_prompt(void **state) {
    (void)state;
    um_request_line q = {0};
    accept(&q, "{\"id\": \"a\", \"prompt\": \"x\\u0000y\"}");
    assert_int_equal(q.request.text_len, 3);
    accept(&q, "{\"id\": 7, \"prompt_token_ids\": [3, 0, 5]}");
    assert_null(q.request.text);
    assert_int_equal(q.request.n_ids, 3);
    assert_int_equal(q.request.ids[2], 5);
    accept(&q, "{\"id\": 7, \"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", "
               "\"content\": \"u\"}]}");
    assert_string_equal(q.request.chat->messages_json,
                        "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"}]");
    assert_true(q.request.chat->add_generation_prompt);
    um_request_line_free(&q);
}

static void keeps_string_and_integer_ids_apart(void **state) {
    (void)state;
    um_request_line q = {0};
    accept(&q, "{\"id\": 7, \"prompt\": \"x\"}");
    assert_string_equal(q.id.data, "7");
    accept(&q, "{\"id\": \"7\", \"prompt\": \"x\"}");
    assert_string_equal(q.id.data, "\"7\"");
    um_request_line_free(&q);
}

static void takes_parameters_by_option_name(void **state) {
    (void)state;
    um_request_line q = {0};
    accept(&q,
           "{\"id\": 1, \"prompt\": \"x\", \"max_tokens\": 12, \"temperature\": 0.5, \"ignore_eos\": true, \"seed\": "
           "9007199254740991, \"accept_threshold\": 0.25, \"confidence\": \"margin\", \"decoding_strategy\": "
           "\"full\", \"max_nfe\": 3}");
    assert_int_equal(q.request.sampling.max_tokens, 12);
    assert_int_equal(q.request.sampling.max_nfe, 3);
    assert_true(q.request.sampling.temperature == 0.5f);
    assert_true(q.request.sampling.ignore_eos);
    assert_true(q.request.sampling.seed == 9007199254740991);
    assert_true(q.request.decoding.accept_threshold == 0.25f);
    assert_int_equal(q.request.decoding.confidence, UM_CONFIDENCE_MARGIN);
    assert_string_equal(q.request.decoding.strategy, "full");
    um_request_line_free(&q);
}

static void does_not_keep_values_of_the_previous_line(void **state) {
    (void)state;
    um_request_line q = {0};
    accept(&q, "{\"id\": 1, \"prompt\": \"x\", \"max_tokens\": 12, \"stop\": [\"a\", \"b\"]}");
    assert_int_equal(q.request.n_stop, 2);
    accept(&q, "{\"id\": 2, \"prompt_token_ids\": [1]}");
    assert_int_equal(q.request.n_stop, 0);
    assert_null(q.request.text);
    assert_int_equal(q.request.sampling.max_tokens, defaults().sampling.max_tokens);
    um_request_line_free(&q);
}

static void null_and_auto_mean_the_default(void **state) {
    (void)state;
    um_request_line q = {0};
    accept(&q, "{\"id\": 1, \"prompt\": \"x\", \"messages\": null, \"max_tokens\": null, \"stop\": null, "
               "\"temperature\": \"auto\"}");
    assert_int_equal(q.request.sampling.max_tokens, defaults().sampling.max_tokens);
    assert_true(isnan(q.request.sampling.temperature));
    assert_null(q.request.chat);
    um_request_line_free(&q);
}

static void stop_is_a_string_or_a_list(void **state) {
    (void)state;
    um_request_line q = {0};
    accept(&q, "{\"id\": 1, \"prompt\": \"x\", \"stop\": \"END\"}");
    assert_int_equal(q.request.n_stop, 1);
    assert_string_equal(q.request.stop[0], "END");
    um_request_line_free(&q);
    refuse("{\"id\": 1, \"prompt\": \"x\", \"stop\": [\"a\", \"\"]}", UM_EINVAL, "stop string 1");
    refuse("{\"id\": 1, \"prompt\": \"x\", \"stop\": [1]}", UM_EINVAL, "expected a string, found an integer");
    refuse("{\"id\": 1, \"prompt\": \"x\", \"stop\": 3}", UM_EINVAL, "array of strings");
}

static void names_the_nearest_key(void **state) {
    (void)state;
    refuse("{\"id\": 1, \"prompt\": \"x\", \"max_token\": 3}", UM_EINVAL, "did you mean \"max_tokens\"");
    refuse("{\"id\": 1, \"promt\": \"x\"}", UM_EINVAL, "did you mean \"prompt\"");
    refuse("{\"id\": 1, \"prompt\": \"x\", \"zzzzzzzz\": 3}", UM_EINVAL, "unknown field \"zzzzzzzz\"");
}

static void refuses_values_of_another_type(void **state) {
    (void)state;
    refuse("{\"id\": 1, \"prompt\": \"x\", \"max_tokens\": \"12\"}", UM_EINVAL,
           "\"max_tokens\": expected an integer (1..1000000000, or auto), found a string");
    refuse("{\"id\": 1, \"prompt\": \"x\", \"ignore_eos\": 1}", UM_EINVAL, "true or false");
    refuse("{\"id\": 1, \"prompt\": \"x\", \"confidence\": 1}", UM_EINVAL, "expected a string");
    refuse("{\"id\": 1, \"prompt\": 5}", UM_EINVAL, "\"prompt\": expected a string");
    refuse("{\"id\": 1, \"prompt_token_ids\": [1, \"2\"]}", UM_EINVAL, "\"prompt_token_ids\"[1]");
    refuse("{\"id\": 1, \"messages\": {}}", UM_EINVAL, "expected an array");
    refuse("{\"id\": 1, \"messages\": []}", UM_EINVAL, "must not be empty");
}

static void refuses_values_out_of_range(void **state) {
    (void)state;
    refuse("{\"id\": 1, \"prompt\": \"x\", \"max_tokens\": 0}", UM_ERANGE, "outside");
    refuse("{\"id\": 1, \"prompt\": \"x\", \"max_tokens\": 1.5}", UM_EINVAL, "integer");
    refuse("{\"id\": 1, \"prompt\": \"x\", \"accept_threshold\": 1.5}", UM_ERANGE, "0..1");
    refuse("{\"id\": 1, \"prompt_token_ids\": [-1]}", UM_ERANGE, "not a token id");
    refuse("{\"id\": 1, \"prompt_token_ids\": [4294967296]}", UM_ERANGE, "not a token id");
}

static void takes_stop_ids_and_biases(void **state) {
    (void)state;
    um_request_line q = {0};
    accept(&q, "{\"id\": 1, \"prompt\": \"x\", \"stop_token_ids\": [7, 0], \"logit_bias\": {\"12\": -1.5, \"3\": 100, "
               "\"9\": -100}}");
    assert_int_equal(q.request.n_stop_ids, 2);
    assert_int_equal(q.request.stop_ids[0], 7);
    assert_int_equal(q.request.n_bias, 3);
    for (size_t i = 0; i < 3; i++) {
        const um_bias *b = &q.request.bias[i];
        assert_true(b->id == 12 ? b->value == -1.5f : b->id == 3 ? b->value == 100 : b->id == 9 && isinf(b->value));
    }
    accept(&q, "{\"id\": 1, \"prompt\": \"x\"}");
    assert_int_equal(q.request.n_stop_ids + q.request.n_bias, 0);
    um_request_line_free(&q);
    refuse("{\"id\": 1, \"prompt\": \"x\", \"stop_token_ids\": 7}", UM_EINVAL, "\"stop_token_ids\": expected an array");
    refuse("{\"id\": 1, \"prompt\": \"x\", \"stop_token_ids\": [1, -2]}", UM_ERANGE, "\"stop_token_ids\"[1]: -2");
    refuse("{\"id\": 1, \"prompt\": \"x\", \"logit_bias\": [1]}", UM_EINVAL, "\"logit_bias\": expected an object");
    refuse("{\"id\": 1, \"prompt\": \"x\", \"logit_bias\": {\"a\": 1}}", UM_EINVAL, "\"a\" is not a token id");
    refuse("{\"id\": 1, \"prompt\": \"x\", \"logit_bias\": {\"5\": 101}}", UM_ERANGE, "101 is outside -100..100");
    refuse("{\"id\": 1, \"prompt\": \"x\", \"logit_bias\": {\"5\": \"1\"}}", UM_EINVAL, "expected a number");
}

static void takes_penalties_and_limits(void **state) {
    (void)state;
    um_request_line q = {0};
    accept(&q, "{\"id\": 1, \"prompt\": \"x\", \"repetition_penalty\": 1.25, \"presence_penalty\": -2, "
               "\"frequency_penalty\": 0.5, \"min_tokens\": 3}");
    assert_true(q.request.sampling.repetition_penalty == 1.25f);
    assert_true(q.request.sampling.presence_penalty == -2);
    assert_true(q.request.sampling.frequency_penalty == 0.5f);
    assert_int_equal(q.request.sampling.min_tokens, 3);
    um_request_line_free(&q);
    refuse("{\"id\": 1, \"prompt\": \"x\", \"repetition_penalty\": 0}", UM_ERANGE, "repetition_penalty: 0 is outside");
    refuse("{\"id\": 1, \"prompt\": \"x\", \"presence_penalty\": 2.5}", UM_ERANGE,
           "presence_penalty: 2.5 is outside -2..2");
    refuse("{\"id\": 1, \"prompt\": \"x\", \"min_tokens\": -1}", UM_ERANGE, "min_tokens");
}

static void takes_a_number_of_answers(void **state) {
    (void)state;
    um_request_line q = {0};
    accept(&q, "{\"id\": 1, \"prompt\": \"x\", \"n\": 64}");
    assert_int_equal(q.request.n, 64);
    um_request_line_free(&q);
    refuse("{\"id\": 1, \"prompt\": \"x\", \"n\": 129}", UM_ERANGE, "\"n\": 129 is outside 1..128");
    refuse("{\"id\": 1, \"prompt\": \"x\", \"n\": 0}", UM_ERANGE, "\"n\": 0 is outside");
    refuse("{\"id\": 1, \"prompt\": \"x\", \"n\": 1.5}", UM_EINVAL, "\"n\": expected an integer");
}

static int32_t logprobs_of(const char *members) {
    char line[256];
    um_request_line q = {0};
    snprintf(line, sizeof line, "{\"id\": 1, \"prompt\": \"x\"%s}", members);
    accept(&q, line);
    int32_t n = q.request.sampling.logprobs;
    um_request_line_free(&q);
    return n;
}

static void logprobs_are_a_number_or_a_switch(void **state) {
    (void)state;
    assert_int_equal(logprobs_of(""), -1);
    assert_int_equal(logprobs_of(", \"logprobs\": 0"), 0);
    assert_int_equal(logprobs_of(", \"logprobs\": 5"), 5);
    assert_int_equal(logprobs_of(", \"logprobs\": true"), 0);
    assert_int_equal(logprobs_of(", \"logprobs\": false"), -1);
    assert_int_equal(logprobs_of(", \"logprobs\": true, \"top_logprobs\": 4"), 4);
    assert_int_equal(logprobs_of(", \"top_logprobs\": 4, \"logprobs\": true"), 4);
    refuse("{\"id\": 1, \"prompt\": \"x\", \"logprobs\": 65}", UM_ERANGE, "logprobs: 65 is outside 0..64");
    refuse("{\"id\": 1, \"prompt\": \"x\", \"top_logprobs\": 4, \"logprobs\": false}", UM_EINVAL,
           "\"logprobs\" is false");
}

static void equal_salts_give_equal_numbers(void **state) {
    (void)state;
    um_request_line q = {0};
    uint64_t salt[3];
    const char *lines[] = {"{\"id\": 1, \"prompt\": \"x\", \"cache_salt\": \"a\"}",
                           "{\"id\": 2, \"prompt\": \"y\", \"cache_salt\": \"a\"}",
                           "{\"id\": 3, \"prompt\": \"x\", \"cache_salt\": \"b\"}"};
    for (int i = 0; i < 3; i++) {
        accept(&q, lines[i]);
        salt[i] = q.request.cache_salt;
    }
    assert_true(salt[0] == salt[1] && salt[0] != salt[2] && salt[0] && salt[2]);
    um_request_line_free(&q);
    refuse("{\"id\": 1, \"prompt\": \"x\", \"cache_salt\": 5}", UM_EINVAL, "\"cache_salt\": expected a string");
}

static void optional_parts_of_results_are_requested(void **state) {
    (void)state;
    um_request_line q = {.step_map = true};
    accept(&q, "{\"id\": 1, \"prompt\": \"x\", \"return_timings\": true}");
    assert_true(q.step_map && q.timings);
    accept(&q, "{\"id\": 1, \"prompt\": \"x\", \"return_step_map\": false}");
    assert_false(q.step_map);
    um_request_line_free(&q);
    refuse("{\"id\": 1, \"prompt\": \"x\", \"return_step_map\": 1}", UM_EINVAL, "true or false");
}

#define HI "\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]"

static void conversation_keeps_all_its_fields(void **state) {
    (void)state;
    um_request_line q = {0};
    accept(&q, "{\"id\": 1, \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"x\"}], "
               "\"name\": \"n\"}], \"tools\": [{\"z\": 1, \"a\": 123456789012345678901234567890}], "
               "\"chat_template_kwargs\": {\"enable_thinking\": false}, \"chat_template\": \"{{ x }}\", "
               "\"tool_choice\": \"auto\", \"add_generation_prompt\": false}");
    const um_chat_request *c = q.request.chat;
    assert_string_equal(c->messages_json,
                        "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}],\"name\":\"n\"}]");
    assert_string_equal(c->kwargs_json, "{\"enable_thinking\":false}");
    assert_string_equal(c->chat_template, "{{ x }}");
    assert_false(c->add_generation_prompt);
    json_t *tools;
    um_err err;
    assert_int_equal(um_json_parse_exact(&tools, c->tools_json, strlen(c->tools_json), "tools", &err), UM_OK);
    um_str big = um_json_big_integer(json_object_get(json_array_get(tools, 0), "a"));
    assert_true(um_str_eq(big, UM_STR("123456789012345678901234567890")));
    json_decref(tools);
    accept(&q, "{\"id\": 1, " HI ", \"tools\": [{}], \"tool_choice\": \"none\"}");
    assert_null(q.request.chat->tools_json);
    assert_null(q.request.chat->kwargs_json);
    um_request_line_free(&q);
}

static void continued_message_adds_no_generation_prompt(void **state) {
    (void)state;
    um_request_line q = {0};
    accept(&q, "{\"id\": 1, " HI ", \"continue_final_message\": true}");
    assert_true(q.request.chat->continue_final_message);
    assert_false(q.request.chat->add_generation_prompt);
    accept(&q, "{\"id\": 1, " HI ", \"continue_final_message\": true, \"add_generation_prompt\": true}");
    assert_true(q.request.chat->add_generation_prompt); /* the engine reports this error */
    um_request_line_free(&q);
}

static void refuses_conversation_fields_without_messages(void **state) {
    (void)state;
    refuse("{\"id\": 1, \"prompt\": \"x\", \"tools\": []}", UM_EINVAL, "\"tools\" needs \"messages\"");
    refuse("{\"id\": 1, \"prompt\": \"x\", \"add_generation_prompt\": true}", UM_EINVAL, "needs");
    refuse("{\"id\": 1, " HI ", \"tools\": {}}", UM_EINVAL, "\"tools\": expected an array");
    refuse("{\"id\": 1, " HI ", \"tools\": [{}], \"tool_choice\": \"required\"}", UM_EINVAL, "\"auto\" or \"none\"");
    refuse("{\"id\": 1, " HI ", \"chat_template_kwargs\": []}", UM_EINVAL, "expected an object");
    refuse("{\"id\": 1, " HI ", \"chat_template\": 1}", UM_EINVAL, "\"chat_template\"");
    refuse("{\"id\": 1, " HI ", \"continue_final_message\": 1}", UM_EINVAL, "true or false");
    refuse("{\"id\": 123456789012345678901, " HI "}", UM_EINVAL, "an integer beyond 64 bits");
}

static void wants_exactly_one_prompt(void **state) {
    (void)state;
    refuse("{\"id\": 1}", UM_EINVAL, "found none");
    refuse("{\"id\": 1, \"prompt\": \"x\", \"prompt_token_ids\": [1]}", UM_EINVAL, "more than one prompt field");
}

static void number_of_the_line_is_the_id_of_a_line_without_one(void **state) {
    (void)state;
    um_request_line q = {.number = 12};
    um_err err;
    accept(&q, "{\"prompt\": \"x\"}");
    assert_string_equal(q.id.data, "12");
    accept(&q, "{\"id\": null, \"prompt\": \"x\"}");
    assert_string_equal(q.id.data, "12");
    accept(&q, "{\"id\": \"\", \"prompt\": \"x\"}");
    assert_string_equal(q.id.data, "\"\"");
    assert_int_equal(parse(&q, "{\"promt\": \"x\"}", &err), UM_EINVAL);
    assert_string_equal(q.id.data, "12");
    assert_int_equal(parse(&q, "no JSON", &err), UM_EPARSE);
    assert_int_equal(q.id.len, 0);
    um_request_line_free(&q);
}

static void prompt_is_a_message_if_there_is_a_template_and_raw_is_off(void **state) {
    (void)state;
    um_err err;
    um_request_line q = {.has_template = true};
    accept(&q, "{\"id\": 1, \"prompt\": \"x\"}");
    assert_null(q.request.text);
    assert_int_equal(q.request.n_messages, 1);
    assert_string_equal(q.request.messages[0].role, "user");
    assert_string_equal(q.request.messages[0].content, "x");
    accept(&q, "{\"id\": 1, \"prompt_token_ids\": [1]}");
    assert_null(q.request.messages);
    assert_int_equal(q.request.n_ids, 1);
    assert_int_equal(parse(&q, "{\"id\": 1, \"prompt\": \"x\\u0000y\"}", &err), UM_EINVAL);
    assert_non_null(strstr(err.msg, "U+0000 at byte 1, which chat templates don't support; use --raw"));
    q.raw = true;
    accept(&q, "{\"id\": 1, \"prompt\": \"x\\u0000y\"}");
    assert_null(q.request.messages);
    assert_int_equal(q.request.text_len, 3);
    um_request_line_free(&q);
}

static void wants_a_valid_id(void **state) {
    (void)state;
    refuse("{\"id\": 1.5, \"prompt\": \"x\"}", UM_EINVAL, "\"id\"");
    refuse("[1]", UM_EPARSE, "found an array");
    refuse("nonsense", UM_EPARSE, "invalid JSON");
    refuse("{\"id\": 1, \"prompt\": \"a\", \"prompt\": \"b\"}", UM_EPARSE, "duplicate key \"prompt\"");
}

static void keeps_the_id_of_a_line_that_fails(void **state) {
    (void)state;
    um_request_line q = {0};
    um_err err;
    assert_int_equal(parse(&q, "{\"prompt\": 3, \"id\": \"k\"}", &err), UM_EINVAL);
    assert_string_equal(q.id.data, "\"k\"");
    assert_int_equal(parse(&q, "{\"prompt\": 3", &err), UM_EPARSE);
    assert_int_equal(q.id.len, 0);
    um_request_line_free(&q);
}

/* ---- Lines of files ---------------------------------------------------------------------------------------------- */

/* Opens a reader over an unlinked file with these bytes. */
static void open_text(um_lines *l, const char *text, size_t n) {
    char path[] = "/tmp/unmask-lines-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(write(fd, text, n), n);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    um_lines_from(l, fd, "test");
}

static void expect_line(um_lines *l, const char *text, int64_t number) {
    um_str line;
    assert_int_equal(um_lines_next(l, true, &line, NULL), UM_LINES_LINE);
    assert_int_equal(line.n, strlen(text));
    assert_memory_equal(line.p, text, line.n);
    assert_int_equal(l->number, number);
}

static void skips_blank_lines_but_counts_them(void **state) {
    (void)state;
    um_lines l;
    um_str line;
    static const char text[] = "\xEF\xBB\xBF"
                               "a\n\n \t\r\nb\r\nc";
    open_text(&l, text, sizeof text - 1);
    expect_line(&l, "a", 1);
    expect_line(&l, "b\r", 4);
    assert_false(l.cut);
    assert_int_equal(l.offset, sizeof text - 2);
    expect_line(&l, "c", 5);
    assert_true(l.cut);
    assert_int_equal(um_lines_next(&l, true, &line, NULL), UM_LINES_END);
    assert_int_equal(um_lines_rewind(&l, NULL), UM_OK);
    expect_line(&l, "a", 1);
    um_lines_close(&l);
}

static void continues_after_a_line_that_is_too_long(void **state) {
    (void)state;
    size_t n = UM_LINE_MAX + 200000;
    char *text = (char *)malloc(n);
    um_lines l;
    um_str line;
    memset(text, 'x', n);
    text[n - 3] = '\n';
    memcpy(text + n - 2, "b\n", 2);
    open_text(&l, text, n);
    assert_int_equal(um_lines_next(&l, true, &line, NULL), UM_LINES_TOO_LONG);
    assert_int_equal(l.offset, n - 2);
    assert_true(l.buf.cap < 3 * UM_LINE_MAX / 2 + 200000);
    expect_line(&l, "b", 2);
    assert_int_equal(l.offset, n);
    um_lines_close(&l);
    free(text);
}

static void accepts_a_line_of_the_largest_length(void **state) {
    (void)state;
    char *text = (char *)malloc(UM_LINE_MAX + 2);
    um_lines l;
    um_str line;
    memset(text, 'x', UM_LINE_MAX + 1);
    for (size_t n = UM_LINE_MAX; n <= UM_LINE_MAX + 1; n++) {
        text[n] = '\n';
        open_text(&l, text, n + 1);
        assert_int_equal(um_lines_next(&l, true, &line, NULL), n > UM_LINE_MAX ? UM_LINES_TOO_LONG : UM_LINES_LINE);
        um_lines_close(&l);
        text[n] = 'x';
    }
    free(text);
}

static void does_not_wait_for_a_silent_pipe(void **state) {
    (void)state;
    int end[2];
    um_lines l;
    um_str line;
    assert_int_equal(pipe(end), 0);
    um_lines_from(&l, end[0], "pipe");
    assert_false(um_lines_is_file(&l));
    assert_int_equal(write(end[1], "half", 4), 4);
    assert_int_equal(um_lines_next(&l, false, &line, NULL), UM_LINES_AGAIN);
    assert_int_equal(write(end[1], " line\n", 6), 6);
    expect_line(&l, "half line", 1);
    close(end[1]);
    assert_int_equal(um_lines_next(&l, false, &line, NULL), UM_LINES_END);
    um_lines_close(&l);
}

static void finds_every_id_and_no_other(void **state) {
    (void)state;
    um_idset s = {0};
    char key[32];
    assert_null(um_idset_find(&s, "0"));
    for (int i = 0; i < 5000; i += 2) {
        snprintf(key, sizeof key, "%d", i);
        um_idset_add(&s, key, i);
    }
    for (int i = 0; i < 5000; i++) {
        snprintf(key, sizeof key, "%d", i);
        um_idset_entry *e = um_idset_find(&s, key);
        assert_int_equal(e != NULL, i % 2 == 0);
        if (e) assert_int_equal(e->line, i);
    }
    um_idset_free(&s);
}

/* ---- Result lines ------------------------------------------------------------------------------------------------ */

static um_result some_result(void) {
    static const int32_t ids[] = {4, 5}, pass[] = {2, 1};
    return (um_result){.token_ids = ids,
                       .pass = pass,
                       .n_tokens = 2,
                       .text = "a\"b",
                       .text_len = 3,
                       .finish = UM_FINISH_EOS,
                       .stop_id = -1,
                       .nfe = 6,
                       .prompt_tokens = 3,
                       .seed = 11};
}

/* Returns the result as JSON; the caller releases it with json_decref. */
static json_t *written(const um_result *r, const um_result_extras *x) {
    um_buf out = {0};
    um_jw w;
    um_err err;
    json_t *v = NULL;
    um_jw_init(&w, &out);
    um_jw_begin_object(&w);
    um_result_put(&w, r, x);
    um_jw_end_object(&w);
    if (um_json_parse(&v, out.data, out.len, "result", &err)) fail_msg("%s: %s", err.msg, out.data);
    um_buf_free(&out);
    return v;
}

static void a_result_reads_back(void **state) {
    (void)state;
    um_result r = some_result();
    json_t *v = written(&r, &(um_result_extras){.trace = UM_STR("[{\"new\":2}]")});
    assert_string_equal(json_string_value(json_object_get(v, "text")), "a\"b");
    assert_string_equal(json_string_value(json_object_get(v, "finish_reason")), "eos_token_generated");
    assert_int_equal(json_array_size(json_object_get(v, "token_ids")), 2);
    assert_int_equal(json_integer_value(json_object_get(v, "completion_tokens")), 2);
    assert_int_equal(json_array_size(json_object_get(v, "trace")), 1);
    const char *const unasked[] = {"stop_reason", "logprobs", "step_map", "timings", "cached_tokens"};
    for (size_t i = 0; i < UM_LEN(unasked); i++) assert_null(json_object_get(v, unasked[i]));
    json_decref(v);
}

static void result_has_its_stop_reason(void **state) {
    (void)state;
    um_result r = some_result();
    r.stop_id = 7;
    json_t *v = written(&r, &(um_result_extras){0});
    assert_int_equal(json_integer_value(json_object_get(v, "stop_reason")), 7);
    json_decref(v);
    r.stop = "END";
    v = written(&r, &(um_result_extras){0});
    assert_string_equal(json_string_value(json_object_get(v, "stop_reason")), "END");
    json_decref(v);
}

static void result_has_requested_optional_parts(void **state) {
    (void)state;
    um_result r = some_result();
    r.cached_tokens = 2;
    r.queue_seconds = 0.5;
    json_t *v = written(&r, &(um_result_extras){.step_map = true, .timings = true});
    assert_int_equal(json_integer_value(json_array_get(json_object_get(v, "step_map"), 0)), 2);
    assert_int_equal(json_integer_value(json_object_get(v, "cached_tokens")), 2);
    assert_true(json_real_value(json_object_get(json_object_get(v, "timings"), "queue_seconds")) == 0.5);
    json_decref(v);
}

/* The time in an empty queue is 1e-4 s or less. A writer that drops the exponent would make it seconds. */
static void short_times_are_written_without_an_exponent(void **state) {
    (void)state;
    um_result r = some_result();
    um_buf out = {0};
    um_jw w;
    r.queue_seconds = 9.14e-05;
    r.first_token_seconds = 0.18;
    r.total_seconds = 12;
    um_jw_init(&w, &out);
    um_jw_begin_object(&w);
    um_result_put(&w, &r, &(um_result_extras){.timings = true});
    um_jw_end_object(&w);
    assert_non_null(strstr(out.data, "{\"queue_seconds\":0.000091,\"first_token_seconds\":0.180000,"
                                     "\"total_seconds\":12.000000}"));
    um_buf_free(&out);
}

/* Checks an entry: id, logarithm, and bytes, which are not valid text if they are a part of a character. */
static void check_entry(const json_t *e, const um_tok *tok, int32_t id, double logprob) {
    const json_t *bytes = json_object_get(e, "bytes");
    um_str text = um_tok_bytes(tok, id);
    assert_int_equal(json_integer_value(json_object_get(e, "token_id")), id);
    assert_true(json_number_value(json_object_get(e, "logprob")) == logprob);
    assert_int_equal(json_array_size(bytes), text.n);
    for (size_t i = 0; i < text.n; i++)
        assert_int_equal(json_integer_value(json_array_get(bytes, i)), (unsigned char)text.p[i]);
    if (um_utf8_check(text.p, text.n) == text.n)
        assert_memory_equal(json_string_value(json_object_get(e, "token")), text.p, text.n);
}

static void logprobs_have_the_shape_of_chat_completions(void **state) {
    (void)state;
    um_err err;
    um_tok *tok = NULL;
    if (um_tok_open(&tok, "models/tiny-block", &err)) fail_msg("%s", err.msg);
    const float logprob[] = {-0.25f, -1.5f};
    const um_logprob likeliest[] = {{4, -0.25f}, {200, -2}, {5, -1.5f}, {-1, 0}};
    um_result r = some_result();
    r.logprob = logprob;
    r.likeliest = likeliest;
    r.n_likeliest = 2;
    json_t *v = written(&r, &(um_result_extras){.tok = tok});
    const json_t *content = json_object_get(json_object_get(v, "logprobs"), "content");
    assert_int_equal(json_array_size(content), 2);
    check_entry(json_array_get(content, 0), tok, 4, -0.25);
    check_entry(json_array_get(json_object_get(json_array_get(content, 0), "top_logprobs"), 1), tok, 200, -2);
    assert_int_equal(json_array_size(json_object_get(json_array_get(content, 1), "top_logprobs")), 1);
    json_decref(v);
    um_tok_close(tok);
}

static void error_without_id_has_its_line_number(void **state) {
    (void)state;
    um_buf out = {0};
    um_err e = {.code = UM_EPARSE, .msg = "bad"};
    um_error_line(&out, NULL, 12, &e);
    assert_string_equal(out.data, "{\"id\":null,\"line\":12,\"error\":{\"code\":\"UM_EPARSE\",\"message\":\"bad\"}}");
    um_buf_clear(&out);
    um_error_line(&out, "7", 12, &e);
    assert_string_equal(out.data, "{\"id\":7,\"error\":{\"code\":\"UM_EPARSE\",\"message\":\"bad\"}}");
    um_buf_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_kind_of_prompt),
        cmocka_unit_test(keeps_string_and_integer_ids_apart),
        cmocka_unit_test(takes_parameters_by_option_name),
        cmocka_unit_test(does_not_keep_values_of_the_previous_line),
        cmocka_unit_test(null_and_auto_mean_the_default),
        cmocka_unit_test(stop_is_a_string_or_a_list),
        cmocka_unit_test(names_the_nearest_key),
        cmocka_unit_test(refuses_values_of_another_type),
        cmocka_unit_test(refuses_values_out_of_range),
        cmocka_unit_test(takes_stop_ids_and_biases),
        cmocka_unit_test(takes_penalties_and_limits),
        cmocka_unit_test(takes_a_number_of_answers),
        cmocka_unit_test(logprobs_are_a_number_or_a_switch),
        cmocka_unit_test(equal_salts_give_equal_numbers),
        cmocka_unit_test(optional_parts_of_results_are_requested),
        cmocka_unit_test(conversation_keeps_all_its_fields),
        cmocka_unit_test(continued_message_adds_no_generation_prompt),
        cmocka_unit_test(refuses_conversation_fields_without_messages),
        cmocka_unit_test(wants_exactly_one_prompt),
        cmocka_unit_test(number_of_the_line_is_the_id_of_a_line_without_one),
        cmocka_unit_test(prompt_is_a_message_if_there_is_a_template_and_raw_is_off),
        cmocka_unit_test(wants_a_valid_id),
        cmocka_unit_test(keeps_the_id_of_a_line_that_fails),
        cmocka_unit_test(skips_blank_lines_but_counts_them),
        cmocka_unit_test(continues_after_a_line_that_is_too_long),
        cmocka_unit_test(accepts_a_line_of_the_largest_length),
        cmocka_unit_test(does_not_wait_for_a_silent_pipe),
        cmocka_unit_test(finds_every_id_and_no_other),
        cmocka_unit_test(a_result_reads_back),
        cmocka_unit_test(result_has_its_stop_reason),
        cmocka_unit_test(result_has_requested_optional_parts),
        cmocka_unit_test(short_times_are_written_without_an_exponent),
        cmocka_unit_test(logprobs_have_the_shape_of_chat_completions),
        cmocka_unit_test(error_without_id_has_its_line_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
