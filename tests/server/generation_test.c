/* server: generations: the response of a request, for all orders of worker events. Client, server and test share one
 * loop and one thread, so nothing depends on timing. */
#include "asking.h"

#include <jansson.h>

#include "server/api/apis.h"
#include "server/metrics_page.h"

#define USER  "\"messages\": [{\"role\": \"user\", \"content\": \"u\"}]"
#define TOOLS "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]"
#define CHAT  "/v1/chat/completions"
#define TEXT  "/v1/completions"

/* ---- Worker events ----------------------------------------------------------------------------------------------- */

static void send_text(int32_t i, int32_t index, um_str text) {
    submitted *s = &script[i];
    um_msg_text m = {.rid = s->rid, .index = index, .text = text, .nfe = 1};
    s->listener.text(s->arg, &m);
}

static void send_snapshot(int32_t i, int32_t index, const int32_t *ids, uint32_t n, int32_t nfe) {
    submitted *s = &script[i];
    uint8_t state[16] = {0};
    int32_t pass[16];
    float confidence[16];
    for (uint32_t k = 0; k < n; k++) {
        state[k] = ids[k] < 0 ? UM_TOKEN_MASK : UM_TOKEN_SET;
        pass[k] = ids[k] < 0 ? -1 : nfe;
        confidence[k] = 0.5f;
    }
    um_msg_snapshot m = {.rid = s->rid, .index = index, .nfe = nfe, .ids = ids, .state = state, .pass = pass};
    m.confidence = confidence;
    m.n = n;
    s->listener.snapshot(s->arg, &m);
}

static void send_finish(int32_t i, int32_t index, const char *text, const char *stop) {
    submitted *s = &script[i];
    um_msg_finish m = {.rid = s->rid, .index = index, .text = um_str_of(text), .nfe = 3, .stop_id = -1, .seed = index};
    m.finish = stop ? UM_FINISH_STOP : UM_FINISH_EOS;
    m.stop = um_str_of(stop);
    s->listener.finish(s->arg, &m);
}

static void send_failure(int32_t i, int status, const char *param, const char *message) {
    submitted *s = &script[i];
    um_err err = {0};
    um_fail_about(&err, um_fail(&err, UM_EINVAL, "%s", message), param);
    (s->listener.fail)(s->arg, status, &err); /* cmocka has a macro of this name */
}

/* ---- The client -------------------------------------------------------------------------------------------------- */

static void ask(answer *a, const char *path, const char *body) {
    n_script = 0;
    ask_at(a, um_server_port(server), "POST", path, um_str_of(body));
}

static int begin(void **state) {
    (void)state;
    open_server();
    return 0;
}

static int end(void **state) {
    (void)state;
    um_server_free(server);
    return 0;
}

/* ---- Responses --------------------------------------------------------------------------------------------------- */

static json_t *json_of(const answer *a) {
    json_t *v = json_loadb(a->body.data, a->body.len, 0, NULL);
    if (!v) fail_msg("no JSON: %s", a->body.data);
    return v;
}

static const char *error_of(const json_t *v, const char *key) {
    return json_string_value(json_object_get(json_object_get(v, "error"), key));
}

/* Calls fn with the JSON of each event. Fails unless [DONE] ends the stream. */
static void each_event(const answer *a, void (*fn)(void *arg, const json_t *event), void *arg) {
    bool ended = false;
    for (const char *p = a->body.data; (p = strstr(p, "data: ")); p++) {
        const char *end = strchr(p, '\n');
        um_str data = {p + 6, (size_t)(end - p - 6)};
        assert_false(ended);
        if ((ended = um_str_eq(data, UM_STR("[DONE]")))) continue;
        json_t *v = json_loadb(data.p, data.n, 0, NULL);
        assert_non_null(v);
        fn(arg, v);
        json_decref(v);
    }
    assert_true(ended);
}

/* Appends the delta of a chunk as text: reasoning in (), content, calls in [], the finish reason after a '.'. */
static void put_delta(void *out, const json_t *event) {
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0), *call;
    const json_t *delta = json_object_get(choice, "delta");
    const char *reasoning = json_string_value(json_object_get(delta, "reasoning_content"));
    const char *content = json_string_value(json_object_get(delta, "content"));
    const char *reason = json_string_value(json_object_get(choice, "finish_reason"));
    size_t i;
    if (reasoning) um_buf_printf(out, "(%s)", reasoning);
    if (content) um_buf_puts(out, content);
    json_array_foreach(json_object_get(delta, "tool_calls"), i, call) {
        const json_t *f = json_object_get(call, "function");
        um_buf_printf(out, "[%lld %s %s]", json_integer_value(json_object_get(call, "index")),
                      json_string_value(json_object_get(f, "name")),
                      json_string_value(json_object_get(f, "arguments")));
    }
    if (reason) um_buf_printf(out, ".%s", reason);
}

/* ---- Streams ----------------------------------------------------------------------------------------------------- */

static const char parts[] = "<think>hm</think>\nLet me see.\n<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}"
                            "</tool_call>\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";

/* Joins pieces of reasoning: "(a)(b)" becomes "(ab)". */
static void join(um_buf *b) {
    char *p = b->data;
    while ((p = strstr(p, ")("))) memmove(p, p + 2, strlen(p + 2) + 1);
}

static void a_stream_has_the_same_parts_wherever_it_is_cut(void **state) {
    (void)state;
    for (size_t cut = 0; cut <= strlen(parts); cut++) {
        answer a;
        um_buf got = {0};
        ask(&a, CHAT, "{" USER ", " TOOLS ", \"stream\": true}");
        PUMP_UNTIL(n_script == 1);
        send_text(0, 0, (um_str){parts, cut});
        send_text(0, 0, um_str_of(parts + cut));
        send_finish(0, 0, parts, NULL);
        PUMP_UNTIL(a.done);
        each_event(&a, put_delta, &got);
        join(&got);
        assert_string_equal(got.data, "(hm)Let me see.[0 f {\"a\": 1}][1 f {}].tool_calls");
        um_buf_free(&got);
        free_answer(&a);
    }
}

static void without_parallel_calls_only_the_first_is_kept(void **state) {
    (void)state;
    answer a;
    ask(&a, CHAT, "{" USER ", " TOOLS ", \"parallel_tool_calls\": false, \"include_reasoning\": false}");
    PUMP_UNTIL(n_script == 1);
    send_finish(0, 0, parts, NULL);
    PUMP_UNTIL(a.done);
    json_t *v = json_of(&a);
    const json_t *m = json_object_get(json_array_get(json_object_get(v, "choices"), 0), "message");
    assert_int_equal(json_array_size(json_object_get(m, "tool_calls")), 1);
    assert_string_equal(json_string_value(json_object_get(m, "content")), "Let me see.");
    assert_null(json_object_get(m, "reasoning_content"));
    json_decref(v);
    free_answer(&a);
}

static void markers_are_text_when_no_tools_were_given(void **state) {
    (void)state;
    answer a;
    ask(&a, CHAT, "{" USER "}");
    PUMP_UNTIL(n_script == 1);
    send_finish(0, 0, "<tool_call>{\"name\": \"f\"}</tool_call>", NULL);
    PUMP_UNTIL(a.done);
    assert_non_null(strstr(a.body.data, "\"content\":\"<tool_call>"));
    free_answer(&a);
}

/* ---- Calls that a request requires ------------------------------------------------------------------------------- */

#define FORCED TOOLS ", \"tool_choice\": \"required\""

/* The answer is the JSON of a call, without the markers of the server's format. */
static void a_required_call_is_the_whole_answer(void **state) {
    (void)state;
    answer a;
    um_buf got = {0};
    ask(&a, CHAT, "{" USER ", " FORCED ", \"stream\": true}");
    PUMP_UNTIL(n_script == 1);
    send_text(0, 0, UM_STR("{\"name\":\"f\",\"argum"));
    send_text(0, 0, UM_STR("ents\":{\"a\":\"</tool_call>\"}}"));
    send_finish(0, 0, "{\"name\":\"f\",\"arguments\":{\"a\":\"</tool_call>\"}}", NULL);
    PUMP_UNTIL(a.done);
    each_event(&a, put_delta, &got);
    assert_string_equal(got.data, "[0 f {\"a\":\"</tool_call>\"}].tool_calls");
    um_buf_free(&got);
    free_answer(&a);
}

static void an_answer_without_the_required_call_is_an_error(void **state) {
    (void)state;
    static const char *const texts[] = {"", "f", "{\"name\":\"f\",\"arguments\":{\"a\":"};
    for (size_t i = 0; i < 2 * UM_LEN(texts); i++) {
        answer a;
        const char *text = texts[i / 2];
        const bool stream = i % 2;
        ask(&a, CHAT, stream ? "{" USER ", " FORCED ", \"stream\": true}" : "{" USER ", " FORCED "}");
        PUMP_UNTIL(n_script == 1);
        if (stream) send_text(0, 0, um_str_of(text));
        send_finish(0, 0, text, NULL);
        PUMP_UNTIL(a.done);
        if (!stream) assert_int_equal(a.status, 422);
        assert_non_null(strstr(a.body.data, "ended before the required tool call was complete"));
        assert_non_null(strstr(a.body.data, "\"code\":\"unusable_answer\""));
        assert_null(strstr(a.body.data, "{\\\"name"));
        assert_null(strstr(a.body.data, "finish_reason\":\""));
        free_answer(&a);
    }
}

static void an_included_stop_string_is_the_last_text(void **state) {
    (void)state;
    answer a;
    um_buf got = {0};
    ask(&a, CHAT, "{" USER ", \"stream\": true, \"stop\": \"END\", \"include_stop_str_in_output\": true}");
    PUMP_UNTIL(n_script == 1);
    send_text(0, 0, UM_STR("one "));
    send_finish(0, 0, "one ", "END");
    PUMP_UNTIL(a.done);
    each_event(&a, put_delta, &got);
    assert_string_equal(got.data, "one END.stop");
    um_buf_free(&got);
    free_answer(&a);
}

/* The headers and the first chunk are sent even if the worker has sent no text for a while. */
static void a_stream_begins_before_its_first_text(void **state) {
    (void)state;
    answer a;
    ask(&a, CHAT, "{" USER ", \"stream\": true}");
    PUMP_UNTIL(a.body.len > 0);
    assert_int_equal(a.status, 200);
    assert_false(a.done);
    send_finish(0, 0, "", NULL);
    PUMP_UNTIL(a.done);
    free_answer(&a);
}

static void streams_have_a_limit_of_choices(void **state) {
    (void)state;
    answer a;
    um_buf body = {0};
    um_buf_puts(&body, "{\"stream\": true, \"n\": 64, \"prompt\": [[1]");
    for (int i = 1; i < 5; i++) um_buf_puts(&body, ",[1]");
    um_buf_puts(&body, "]}");
    ask(&a, TEXT, body.data);
    PUMP_UNTIL(a.done);
    json_t *v = json_of(&a);
    assert_int_equal(a.status, 400);
    assert_string_equal(error_of(v, "param"), "stream");
    json_decref(v);
    um_buf_free(&body);
    free_answer(&a);
}

/* ---- Log-probabilities ------------------------------------------------------------------------------------------- */

/* An answer that is sent token by token. The first token has the log-probability -1, the next one -2. */
typedef struct token_stream {
    um_buf text;
    int32_t id[16], text_end[16], pass[16];
    float logprob[16];
    uint32_t n;
} token_stream;

/* Sends tokens, separated by '|', as one event. If `tops` is 1, each token has itself as the most likely token. */
static void send_tokens(token_stream *s, const char *tokens, int32_t tops) {
    const um_str v = um_str_of(tokens);
    uint32_t from = s->n;
    size_t start = s->text.len;
    for (size_t i = 0; i <= v.n; i++) {
        if (i < v.n && v.p[i] != '|') {
            um_buf_putc(&s->text, v.p[i]);
            continue;
        }
        s->id[s->n] = 65 + (int32_t)s->n;
        s->pass[s->n] = 1;
        s->text_end[s->n] = (int32_t)s->text.len;
        s->logprob[s->n] = -1 - (float)s->n;
        s->n++;
    }
    um_msg_text m = {.rid = script[0].rid, .offset = (int32_t)from, .ids = s->id + from, .n_ids = s->n - from};
    m.text_end = s->text_end + from;
    m.logprob = m.likeliest = s->logprob + from;
    m.likeliest_id = m.ids;
    m.n_logprob = m.n_ids;
    m.n_likeliest = tops;
    m.n_likeliest_all = (uint32_t)tops * m.n_ids;
    m.text = (um_str){s->text.data + start, s->text.len - start};
    script[0].listener.text(script[0].arg, &m);
}

static void finish_tokens(token_stream *s, int32_t tops) {
    um_msg_finish m = {.rid = script[0].rid, .ids = s->id, .n_ids = s->n, .finish = UM_FINISH_EOS, .stop_id = -1};
    m.pass = s->pass;
    m.text = (um_str){s->text.data, s->text.len};
    m.text_end = s->text_end;
    m.logprob = m.likeliest = s->logprob;
    m.likeliest_id = m.ids;
    m.n_logprob = m.n_ids;
    m.n_likeliest = tops;
    m.n_likeliest_all = (uint32_t)tops * m.n_ids;
    script[0].listener.finish(script[0].arg, &m);
    um_buf_free(&s->text);
}

/* Appends a delta, the log-probabilities of its chunk, and the number of its token ids: "text{1 2:2}". */
static void put_scores(void *out, const json_t *event) {
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0), *token, *ids;
    size_t i;
    put_delta(out, event);
    ids = json_object_get(choice, "token_ids");
    if (json_is_null(json_object_get(choice, "logprobs"))) {
        assert_int_equal(json_array_size(ids), 0);
        return;
    }
    um_buf_putc(out, '{');
    json_array_foreach(json_object_get(json_object_get(choice, "logprobs"), "content"), i, token)
        um_buf_printf(out, "%g ", -json_number_value(json_object_get(token, "logprob")));
    um_buf_printf(out, ":%zu}", json_array_size(ids));
}

/* The worker sends one token at a time. The text of some is held back until the next ones arrive. */
static void a_chunk_has_the_log_probabilities_of_its_text(void **state) {
    (void)state;
    static const struct {
        const char *more, *tokens, *want;
    } rows[] = {
        {"", "Hi| <|b> |yo", "Hi{1 :1} <{2 :1}b> {3 :1}yo{4 :1}.stop"},
        {TOOLS, "Hi| <|b> |yo", "Hi{1 :1} <b>{2 :1} yo{3 4 :2}.stop"},
        {TOOLS, "A|<tool_call>|{\"name\": \"f\"}|</tool_call>| ", "A{1 :1}[0 f {}]{2 3 4 :3}.tool_calls{5 :1}"},
        {TOOLS, "A <tool_call>{|\"x\"}", "A <tool_call>{\"x\"}{1 2 :2}.stop"},
        {"", "<think>|hm|</think>|Yes", "(hm){1 2 :2}Yes{3 4 :2}.stop"},
        {"\"include_reasoning\": false", "<think>|hm|</think>|Yes", "Yes{1 2 3 4 :4}.stop"},
    };
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        answer a;
        token_stream s = {0};
        um_buf got = {0}, body = {0};
        um_buf_printf(&body, "{" USER "%s%s, \"logprobs\": true, \"return_token_ids\": true, \"stream\": true}",
                      *rows[i].more ? ", " : "", rows[i].more);
        ask(&a, CHAT, body.data);
        PUMP_UNTIL(n_script == 1);
        char *tokens = um_strdup(rows[i].tokens);
        for (char *p = tokens; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL) {
            char one[64];
            snprintf(one, sizeof one, "%.*s", (int)strcspn(p, "|"), p);
            send_tokens(&s, one, 0);
        }
        um_free(tokens);
        finish_tokens(&s, 0);
        PUMP_UNTIL(a.done);
        each_event(&a, put_scores, &got);
        if (!um_streq(got.data, rows[i].want))
            fail_msg("%s: expected %s, found %s", rows[i].tokens, rows[i].want, got.data);
        um_buf_free(&got);
        um_buf_free(&body);
        free_answer(&a);
    }
}

static void text_offsets_continue_from_chunk_to_chunk(void **state) {
    (void)state;
    answer a;
    token_stream s = {0};
    ask(&a, TEXT, "{\"prompt\": \"a\", \"logprobs\": 1, \"stream\": true}");
    PUMP_UNTIL(n_script == 1);
    send_tokens(&s, "h\xC3\xA9|y", 1);
    send_tokens(&s, "\xE2\x82\xAC| ", 1);
    send_tokens(&s, "", 1); /* a token without text */
    finish_tokens(&s, 1);
    PUMP_UNTIL(a.done);
    assert_non_null(strstr(a.body.data, "\"token_logprobs\":[-1,-2],\"top_logprobs\":[{\"b\":-1},{\"c\":-2}],"
                                        "\"text_offset\":[0,2]}"));
    assert_non_null(strstr(a.body.data, "\"token_logprobs\":[-3,-4],\"top_logprobs\":[{\"d\":-3},{\"e\":-4}],"
                                        "\"text_offset\":[3,4]}"));
    assert_non_null(strstr(a.body.data, "\"token_logprobs\":[-5],\"top_logprobs\":[{\"f\":-5}],\"text_offset\":[5]}"));
    assert_non_null(strstr(a.body.data, "\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\""));
    free_answer(&a);
    s = (token_stream){0};
    ask(&a, TEXT, "{\"prompt\": \"a\", \"logprobs\": 1}");
    PUMP_UNTIL(n_script == 1);
    s.n = 0;
    send_tokens(&s, "h\xC3\xA9|y|\xE2\x82\xAC| |", 1);
    finish_tokens(&s, 1);
    PUMP_UNTIL(a.done);
    assert_non_null(strstr(a.body.data, "\"text_offset\":[0,2,3,4,5]}"));
    free_answer(&a);
}

/* Only a broken worker sends events whose log-probabilities have different columns. */
static void inconsistent_columns_are_left_out(void **state) {
    (void)state;
    answer a;
    token_stream s = {0};
    ask(&a, TEXT, "{\"prompt\": \"a\", \"logprobs\": 1, \"stream\": true}");
    PUMP_UNTIL(n_script == 1);
    send_tokens(&s, "one|two", 0);
    send_tokens(&s, "three", 1);
    finish_tokens(&s, 1);
    PUMP_UNTIL(a.done);
    assert_non_null(strstr(a.body.data, "\"token_logprobs\":[-3],\"top_logprobs\":null"));
    free_answer(&a);
}

/* ---- Several answers --------------------------------------------------------------------------------------------- */

static void choices_are_ordered_by_index(void **state) {
    (void)state;
    answer a;
    ask(&a, TEXT, "{\"prompt\": [\"a\", \"b\"], \"n\": 2}");
    PUMP_UNTIL(n_script == 2);
    assert_int_equal(script[0].n, 2);
    send_finish(1, 1, "b1", NULL);
    send_finish(0, 0, "a0", NULL);
    send_finish(0, 1, "a1", NULL);
    assert_false(a.done);
    send_finish(1, 0, "b0", NULL);
    PUMP_UNTIL(a.done);
    json_t *v = json_of(&a), *c;
    size_t i;
    static const char *const want[] = {"a0", "a1", "b0", "b1"};
    json_array_foreach(json_object_get(v, "choices"), i, c) {
        assert_int_equal(json_integer_value(json_object_get(c, "index")), i);
        assert_string_equal(json_string_value(json_object_get(c, "text")), want[i]);
    }
    assert_int_equal(i, 4);
    json_decref(v);
    free_answer(&a);
}

static void a_refused_prompt_cancels_the_others(void **state) {
    (void)state;
    answer a;
    script_limit = 1;
    ask(&a, TEXT, "{\"prompt\": [\"a\", \"b\"]}");
    PUMP_UNTIL(a.done);
    script_limit = SUBMITTED_MAX;
    assert_int_equal(a.status, 429);
    assert_true(script[0].cancelled);
    free_answer(&a);
}

/* ---- Ends -------------------------------------------------------------------------------------------------------- */

static void a_disconnect_cancels_the_generation(void **state) {
    (void)state;
    static const char *const bodies[] = {"{" USER "}", "{" USER ", \"stream\": true}"};
    for (size_t i = 0; i < UM_LEN(bodies); i++) {
        answer a;
        ask(&a, CHAT, bodies[i]);
        PUMP_UNTIL(n_script == 1);
        if (i) send_text(0, 0, UM_STR("begun"));
        um_http_call_cancel(a.call);
        PUMP_UNTIL(script[0].cancelled);
        free_answer(&a);
    }
}

/* Returns the value of the first line of /metrics that begins with `name`. */
static long metric(const char *name) {
    um_buf page = {0};
    um_metrics_page_put(&server->service, &page);
    const char *line = strstr(page.data, name);
    assert_non_null(line);
    long value = strtol(strchr(line, '}') + 1, NULL, 10);
    um_buf_free(&page);
    return value;
}

typedef struct cost {
    long tokens, passes, disconnects;
} cost;

static cost current_cost(void) {
    return (cost){metric("\nunmask_generation_tokens_total{"), metric("\nunmask_nfe_total{"),
                  metric("\nunmask_aborts_total{model_name=\"tiny-block\",reason=\"disconnect\"}")};
}

static void expect_cost(const cost *before, long tokens, long passes, long disconnects) {
    cost now = current_cost();
    assert_int_equal(now.tokens - before->tokens, tokens);
    assert_int_equal(now.passes - before->passes, passes);
    assert_int_equal(now.disconnects - before->disconnects, disconnects);
}

static void disconnect(answer *a) {
    um_http_call_cancel(a->call);
    PUMP_UNTIL(script[0].cancelled);
    free_answer(a);
}

/* If the worker reports no more counts, the tokens of the text that arrived are counted. */
static void streamed_tokens_are_counted_after_a_disconnect(void **state) {
    (void)state;
    static const int32_t ids[] = {7, 8, 9}, ends[] = {1, 3, 5};
    answer a;
    ask(&a, CHAT, "{" USER "}");
    PUMP_UNTIL(n_script == 1);
    disconnect(&a); /* creates the series */
    cost before = current_cost();
    ask(&a, CHAT, "{" USER ", \"stream\": true}");
    PUMP_UNTIL(n_script == 1);
    um_msg_text m = {.rid = script[0].rid, .text = UM_STR("begun"), .ids = ids, .n_ids = 3, .nfe = 4};
    m.text_end = ends;
    script[0].listener.text(script[0].arg, &m);
    disconnect(&a);
    expect_cost(&before, 3, 4, 1);
}

static void reported_tokens_are_counted_after_a_disconnect(void **state) {
    (void)state;
    static const int32_t ids[7] = {0};
    answer a;
    ask(&a, CHAT, "{" USER "}");
    PUMP_UNTIL(n_script == 1);
    disconnect(&a);
    cost before = current_cost();
    script_reports_canceled = true;
    ask(&a, CHAT, "{" USER ", \"n\": 3}");
    PUMP_UNTIL(n_script == 1);
    send_finish(0, 1, "early", NULL);
    disconnect(&a);
    expect_cost(&before, 0, 3, 0);
    for (int32_t index = 0; index < 3; index += 2) {
        um_msg_finish m = {.rid = script[0].rid, .index = index, .ids = ids, .n_ids = 7, .nfe = 5};
        m.finish = UM_FINISH_ABORTED;
        script[0].listener.finish(script[0].arg, &m);
    }
    expect_cost(&before, 14, 13, 2);
    script_reports_canceled = false;
}

static void a_request_that_a_worker_refuses_has_an_error_status(void **state) {
    (void)state;
    answer a;
    ask(&a, CHAT, "{" USER ", \"stream\": true}");
    PUMP_UNTIL(n_script == 1);
    send_failure(0, 400, "steps", "too few");
    PUMP_UNTIL(a.done);
    json_t *v = json_of(&a);
    assert_int_equal(a.status, 400);
    assert_string_equal(error_of(v, "param"), "steps");
    assert_string_equal(error_of(v, "message"), "too few");
    json_decref(v);
    free_answer(&a);
}

static void note_error(void *arg, const json_t *event) {
    const char *message = error_of(event, "message");
    if (message) um_buf_puts(arg, message);
}

static void a_failure_in_a_stream_is_its_last_event(void **state) {
    (void)state;
    answer a;
    um_buf got = {0};
    ask(&a, TEXT, "{\"prompt\": [\"a\", \"b\"], \"stream\": true}");
    PUMP_UNTIL(n_script == 2);
    send_text(0, 0, UM_STR("begun"));
    send_failure(0, 503, "", "the worker died");
    PUMP_UNTIL(a.done);
    assert_int_equal(a.status, 200);
    each_event(&a, note_error, &got);
    assert_string_equal(got.data, "the worker died");
    assert_true(script[1].cancelled);
    um_buf_free(&got);
    free_answer(&a);
}

static void an_answer_past_the_timeout_is_cancelled(void **state) {
    (void)state;
    answer a;
    server->config.request_timeout = 0.05f;
    ask(&a, CHAT, "{" USER "}");
    PUMP_UNTIL(a.done);
    server->config.request_timeout = 0;
    assert_int_equal(a.status, 504);
    assert_true(script[0].cancelled);
    free_answer(&a);
}

/* ---- Snapshots --------------------------------------------------------------------------------------------------- */

static void a_trajectory_has_what_each_pass_changed(void **state) {
    (void)state;
    answer a;
    static const int32_t first[] = {-1, 7, -1}, second[] = {5, 7, -1}, third[] = {5, -1, 9, 4};
    ask(&a, TEXT, "{\"prompt\": \"a\", \"return_trajectory\": true}");
    PUMP_UNTIL(n_script == 1);
    send_snapshot(0, 0, first, 3, 1);
    send_snapshot(0, 0, second, 3, 2);
    send_snapshot(0, 0, third, 4, 3);
    send_finish(0, 0, "x", NULL);
    PUMP_UNTIL(a.done);
    assert_non_null(strstr(a.body.data, "\"trajectory\":[{\"nfe\":1,\"length\":3,\"positions\":[1],\"token_ids\":[7]},"
                                        "{\"nfe\":2,\"length\":3,\"positions\":[0],\"token_ids\":[5]},"
                                        "{\"nfe\":3,\"length\":4,\"positions\":[1,2,3],\"token_ids\":[1015,9,4]}]"));
    free_answer(&a);
}

/* U+0000 is a valid character. In JSON it is \u0000. */
static void provisional_text_can_contain_a_nul(void **state) {
    (void)state;
    answer a;
    static const int32_t ids[] = {64, 188, 64, -1}; /* a, U+0000, a, a mask */
    ask(&a, CHAT, "{" USER ", \"stream\": true, \"stream_mode\": \"mixed\"}");
    PUMP_UNTIL(n_script == 1);
    send_snapshot(0, 0, ids, 4, 1);
    send_finish(0, 0, "x", NULL);
    PUMP_UNTIL(a.done);
    assert_non_null(strstr(a.body.data, "\"provisional_text\":\"a\\u0000a\",\"mask_count\":1"));
    free_answer(&a);
}

static void workers_send_only_the_requested_events(void **state) {
    (void)state;
    static const struct {
        const char *body;
        uint32_t events;
    } rows[] = {
        {"{" USER "}", UM_EVENT_FINISH},
        {"{" USER ", \"stream\": true}", UM_EVENT_FINISH | UM_EVENT_TEXT},
        {"{" USER ", \"stream\": true, \"stream_mode\": \"denoise\"}", UM_EVENT_FINISH | UM_EVENT_SNAPSHOT},
        {"{" USER ", \"stream\": true, \"stream_mode\": \"mixed\"}",
         UM_EVENT_FINISH | UM_EVENT_TEXT | UM_EVENT_SNAPSHOT},
        {"{" USER ", \"return_trajectory\": true}", UM_EVENT_FINISH | UM_EVENT_SNAPSHOT},
    };
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        answer a;
        ask(&a, CHAT, rows[i].body);
        PUMP_UNTIL(n_script == 1);
        assert_int_equal(script[0].events, rows[i].events);
        send_finish(0, 0, "x", NULL);
        PUMP_UNTIL(a.done);
        free_answer(&a);
    }
}

/* ---- Detached generations ---------------------------------------------------------------------------------------- */

typedef struct outcome {
    int status, n;
    um_buf json;
} outcome;

static void on_outcome(void *arg, int status, um_buf *json) {
    outcome *o = arg;
    o->status = status;
    o->n++;
    um_buf_clear(&o->json);
    um_buf_append(&o->json, json->data, json->len);
}

static um_generation *detach(outcome *o, const char *text) {
    um_body b = {0};
    um_err err;
    json_t *root = json_loads(text, 0, NULL);
    n_script = 0;
    um_capacity capacity = um_capacity_get(&server->service);
    if (um_api_read(&um_api_chat, &server->service.setup, &capacity, root, &b, &err)) fail_msg("%s", err.msg);
    return um_generation_start_detached(&server->service, &b, um_api_chat.writer, on_outcome, o);
}

static void a_detached_generation_passes_its_response_on(void **state) {
    (void)state;
    outcome o = {0};
    assert_non_null(detach(&o, "{" USER ", \"stream\": true}"));
    send_finish(0, 0, "hello", NULL);
    assert_int_equal(o.n, 1);
    assert_int_equal(o.status, 200);
    assert_non_null(strstr(o.json.data, "\"content\":\"hello\""));
    assert_non_null(detach(&o, "{" USER "}"));
    send_failure(0, 500, "", "broken");
    assert_int_equal(o.n, 2);
    assert_int_equal(o.status, 500);
    assert_non_null(strstr(o.json.data, "{\"error\":{\"message\":\"broken\""));
    script_limit = 0;
    assert_null(detach(&o, "{" USER "}"));
    script_limit = SUBMITTED_MAX;
    assert_int_equal(o.n, 3);
    assert_int_equal(o.status, 429);
    um_buf_free(&o.json);
}

static void a_cancelled_detached_generation_calls_nothing(void **state) {
    (void)state;
    outcome o = {0};
    um_generation_cancel(detach(&o, "{" USER "}"));
    assert_true(script[0].cancelled);
    assert_int_equal(o.n, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_has_the_same_parts_wherever_it_is_cut),
        cmocka_unit_test(a_required_call_is_the_whole_answer),
        cmocka_unit_test(an_answer_without_the_required_call_is_an_error),
        cmocka_unit_test(without_parallel_calls_only_the_first_is_kept),
        cmocka_unit_test(markers_are_text_when_no_tools_were_given),
        cmocka_unit_test(an_included_stop_string_is_the_last_text),
        cmocka_unit_test(a_stream_begins_before_its_first_text),
        cmocka_unit_test(streams_have_a_limit_of_choices),
        cmocka_unit_test(a_chunk_has_the_log_probabilities_of_its_text),
        cmocka_unit_test(text_offsets_continue_from_chunk_to_chunk),
        cmocka_unit_test(inconsistent_columns_are_left_out),
        cmocka_unit_test(choices_are_ordered_by_index),
        cmocka_unit_test(a_refused_prompt_cancels_the_others),
        cmocka_unit_test(a_disconnect_cancels_the_generation),
        cmocka_unit_test(streamed_tokens_are_counted_after_a_disconnect),
        cmocka_unit_test(reported_tokens_are_counted_after_a_disconnect),
        cmocka_unit_test(a_request_that_a_worker_refuses_has_an_error_status),
        cmocka_unit_test(a_failure_in_a_stream_is_its_last_event),
        cmocka_unit_test(an_answer_past_the_timeout_is_cancelled),
        cmocka_unit_test(a_trajectory_has_what_each_pass_changed),
        cmocka_unit_test(provisional_text_can_contain_a_nul),
        cmocka_unit_test(workers_send_only_the_requested_events),
        cmocka_unit_test(a_detached_generation_passes_its_response_on),
        cmocka_unit_test(a_cancelled_detached_generation_calls_nothing),
    };
    return cmocka_run_group_tests_name("server_generation", tests, begin, end);
}
