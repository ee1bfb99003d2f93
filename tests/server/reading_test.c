/* server: bodies that are read beside the loop. What must take a while waits at a pipe: one thread, one loop, and the
 * threads that read; nothing depends on timing. */
#include "asking.h"

#include <jansson.h>
#include <pthread.h>
#include <unistd.h>

#include "server/frontend.h"
#include "server/reading.h"

#define TEXT "/v1/completions"

/* ---- Readers that wait ------------------------------------------------------------------------------------------- */

static int begun[2], go[2]; /* pipes: a reader says that it has begun; each waits for a byte */
static um_http_server *slow_http;

static um_status wait_read(um_reading *r, um_err *err) {
    char c = 0;
    (void)err;
    if (write(begun[1], &c, 1) != 1 || read(go[0], &c, 1) != 1) return UM_EIO;
    um_buf_puts(&r->out, "{}");
    return UM_OK;
}

static void on_slow(void *arg, um_exchange *x) {
    static const um_reader reader = {.read = wait_read, .answer = um_answer_out};
    um_read(arg, x, &reader, NULL);
}

static int begin(void **state) {
    um_http_config c;
    (void)state;
    open_server();
    n_script = 0;
    um_http_config_init(&c);
    assert_int_equal(um_http_server_new(&slow_http, um_server_base(server), &c, on_slow, NULL, server, NULL), UM_OK);
    return pipe(begun) || pipe(go);
}

static int end(void **state) {
    (void)state;
    um_http_server_free(slow_http);
    um_server_free(server);
    for (int i = 0; i < 2; i++) close(begun[i]), close(go[i]);
    return 0;
}

static size_t n_open(void) { return um_jobs_open(server->readers); }

/* A JSON object of about so many bytes: `members`, and a text. */
static um_buf body_of(const char *members, size_t n) {
    um_buf b = {0};
    um_buf_printf(&b, "{%s\"prompt\":\"", members);
    while (b.len < n) um_buf_puts(&b, "What is 12 + 30? ");
    um_buf_puts(&b, "\"}");
    return b;
}

static void post(answer *a, const char *path, const um_buf *body) {
    ask_at(a, um_server_port(server), "POST", path, (um_str){body->data, body->len});
}

/* A request that a thread has begun to read. */
static void hold(answer *a) {
    char c;
    size_t n = n_open();
    um_buf body = body_of("", UM_READ_AT_ONCE + 1);
    ask_at(a, um_http_server_port(slow_http), "POST", "/", (um_str){body.data, body.len});
    PUMP_UNTIL(n_open() == n + 1);
    assert_int_equal(read(begun[0], &c, 1), 1);
    um_buf_free(&body);
}

static void let_go(int n) {
    for (int i = 0; i < n; i++) assert_int_equal(write(go[1], "", 1), 1);
}

/* Holds all threads. */
static void hold_all(answer *a) {
    for (int i = 0; i < UM_READ_THREADS; i++) hold(&a[i]);
}

static void free_all(answer *a) {
    let_go(UM_READ_THREADS);
    for (int i = 0; i < UM_READ_THREADS; i++) {
        PUMP_UNTIL(a[i].done);
        assert_int_equal(a[i].status, 200);
        forget_answer(&a[i]);
    }
}

static void say(int32_t i, const char *text, bool last) {
    um_msg_text m = {.rid = script[i].rid, .text = um_str_of(text), .nfe = 1};
    um_msg_finish f = {.rid = script[i].rid, .text = um_str_of(text), .finish = UM_FINISH_EOS, .stop_id = -1};
    if (last) script[i].listener.finish(script[i].arg, &f);
    else script[i].listener.text(script[i].arg, &m);
}

/* ---- The loop goes on -------------------------------------------------------------------------------------------- */

static void a_stream_and_health_go_on_while_huge_bodies_are_read(void **state) {
    (void)state;
    answer held[UM_READ_THREADS], stream, huge, health, quick;
    um_buf large = body_of("\"max_tokens\":8,", 1 << 20), small = body_of("\"stream\":true,", 64);
    post(&stream, TEXT, &small);
    PUMP_UNTIL(n_script == 1);
    hold_all(held);
    post(&huge, TEXT, &large);
    PUMP_UNTIL(n_open() == UM_READ_THREADS + 1);
    um_buf page = {0};
    um_put_metrics(server, &page);
    assert_non_null(strstr(page.data, "\nunmask_bodies_reading{model_name=\"tiny-block\"} 3\n"));
    um_buf_free(&page);
    say(0, "one ", false);
    PUMP_UNTIL(stream.body.data && strstr(stream.body.data, "\"one \""));
    ask_at(&health, um_server_port(server), "GET", "/health", UM_STR(""));
    PUMP_UNTIL(health.done);
    assert_int_equal(health.status, 200);
    um_buf_clear(&small);
    um_buf_puts(&small, "{\"prompt\":\"Hi\"}");
    post(&quick, TEXT, &small); /* a short one does not wait behind long ones */
    PUMP_UNTIL(n_script == 2);
    say(1, "two", true);
    PUMP_UNTIL(quick.done);
    say(0, "one two", true);
    PUMP_UNTIL(stream.done);
    assert_int_equal(huge.status, 0);
    assert_int_equal(n_script, 2);
    free_all(held);
    PUMP_UNTIL(huge.done);
    assert_int_equal(huge.status, 400); /* 1,024 tokens are what the model has room for */
    assert_non_null(strstr(huge.body.data, "context_length_exceeded"));
    forget_answer(&stream), forget_answer(&huge), forget_answer(&health), forget_answer(&quick);
    um_buf_free(&large);
    um_buf_free(&small);
}

/* However short it is. */
static void a_template_of_the_request_runs_beside_the_loop(void **state) {
    (void)state;
    answer held[UM_READ_THREADS], a;
    um_buf body = {0};
    um_buf_puts(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"u\"}],\"chat_template\":\"{{ 7 }}\"}");
    hold_all(held);
    post(&a, "/apply-template", &body);
    PUMP_UNTIL(n_open() == UM_READ_THREADS + 1);
    assert_false(a.done);
    free_all(held);
    PUMP_UNTIL(a.done);
    assert_string_equal(a.body.data, "{\"prompt\":\"7\"}");
    forget_answer(&a);
    um_buf_free(&body);
}

/* ---- Ends -------------------------------------------------------------------------------------------------------- */

static void who_hangs_up_is_not_read(void **state) {
    (void)state;
    answer held[UM_READ_THREADS], a;
    um_buf body = body_of("\"max_tokens\":8,", UM_READ_AT_ONCE + 1);
    hold_all(held);
    post(&a, TEXT, &body);
    PUMP_UNTIL(n_open() == UM_READ_THREADS + 1);
    um_http_call_cancel(a.call);
    PUMP_UNTIL(n_open() <= UM_READ_THREADS + 1 && !server->n_open); /* only its release is left to do */
    free_all(held);
    PUMP_UNTIL(n_open() == 0);
    assert_int_equal(n_script, 0);
    um_buf_free(&body);
}

static void who_hangs_up_while_it_is_read_is_forgotten(void **state) {
    (void)state;
    answer a;
    hold(&a);
    um_http_call_cancel(a.call);
    PUMP_UNTIL(um_http_server_connections(slow_http) == 0);
    assert_int_equal(n_open(), 1);
    let_go(1);
    PUMP_UNTIL(n_open() == 0);
}

static void the_server_may_end_meanwhile(void **state) {
    (void)state;
    answer held[UM_READ_THREADS], waiting;
    um_buf body = body_of("\"max_tokens\":8,", UM_READ_AT_ONCE + 1);
    hold_all(held);
    post(&waiting, TEXT, &body);
    PUMP_UNTIL(n_open() == UM_READ_THREADS + 1);
    for (int i = 0; i < UM_READ_THREADS; i++) um_http_call_cancel(held[i].call);
    um_http_call_cancel(waiting.call);
    let_go(UM_READ_THREADS);
    um_buf_free(&body); /* `end` frees the server with three jobs in it */
}

/* ---- Aborts ------------------------------------------------------------------------------------------------------ */

static void expect_aborted(const char *body, int n) {
    answer a;
    char expected[32];
    snprintf(expected, sizeof expected, "{\"aborted\":%d}", n);
    ask_at(&a, um_server_port(server), "POST", "/abort_request", um_str_of(body));
    PUMP_UNTIL(a.done);
    assert_string_equal(a.body.data, expected);
    forget_answer(&a);
}

/* Asks for a text of n words by the name of `rid`; it waits to be read as the k-th. */
static void post_named(answer *a, const char *rid, int n, size_t k) {
    um_buf body = {0};
    um_buf_printf(&body, "{\"rid\":\"%s\",\"text\":\"", rid);
    for (int i = 0; i < n; i++) um_buf_puts(&body, "12 ");
    um_buf_printf(&body, "\"%*s}", (int)UM_READ_AT_ONCE, "");
    post(a, "/generate", &body);
    PUMP_UNTIL(n_open() == UM_READ_THREADS + k);
    um_buf_free(&body);
}

/* Not one of another id, and not one that comes behind the abort. */
static void who_is_aborted_while_it_is_read_ends_so(void **state) {
    (void)state;
    answer held[UM_READ_THREADS], a[3];
    hold_all(held);
    post_named(&a[0], "mine", 1, 1);
    post_named(&a[1], "yours", 10, 2);
    expect_aborted("{\"rid\":\"mine\"}", 0);
    expect_aborted("{\"rid\":\"nobody's\"}", 0);
    post_named(&a[2], "mine", 10, 3);
    free_all(held);
    PUMP_UNTIL(n_script == 3);
    for (int32_t i = 0; i < 3; i++) assert_int_equal(script[i].aborted, script[i].n_ids < 10);
    for (int32_t i = 0; i < 3; i++) say(i, "", true);
    for (int i = 0; i < 3; i++) {
        PUMP_UNTIL(a[i].done);
        assert_int_equal(a[i].status, 200);
        forget_answer(&a[i]);
    }
}

static void everything_that_is_read_may_be_aborted(void **state) {
    (void)state;
    answer held[UM_READ_THREADS], a[2], ids;
    um_buf body = {0};
    um_buf_printf(&body, "{\"prompt\":\"Hi\"%*s}", (int)UM_READ_AT_ONCE, "");
    hold_all(held);
    for (int i = 0; i < 2; i++) post(&a[i], i ? "/v1/generate" : TEXT, &body);
    post(&ids, "/tokenize", &body);
    PUMP_UNTIL(n_open() == UM_READ_THREADS + 3);
    expect_aborted("{\"abort_all\":true}", 2);
    expect_aborted("{\"abort_all\":true}", 0);
    free_all(held);
    PUMP_UNTIL(ids.done && n_open() == 0);
    assert_int_equal(ids.status, 200);
    assert_int_equal(n_script, 2);
    for (int32_t i = 0; i < 2; i++) assert_true(script[i].aborted);
    say(0, "", true), say(1, "", true);
    for (int i = 0; i < 2; i++) {
        PUMP_UNTIL(a[i].done);
        forget_answer(&a[i]);
    }
    forget_answer(&ids);
    um_buf_free(&body);
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

static void what_is_wrong_in_a_large_body_is_said(void **state) {
    (void)state;
    static const struct {
        const char *members, *part;
    } rows[] = {{"\"max_tokens\":0,", "\"param\":\"max_tokens\""},
                {"\"modell\":\"x\",", "did you mean \\\"model\\\""},
                {"\"model\":\"x\",", "\"code\":\"model_not_found\""},
                {"\"a\":}", "body: "}};
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        answer a;
        um_buf body = body_of(rows[i].members, UM_READ_AT_ONCE + 1);
        post(&a, TEXT, &body);
        PUMP_UNTIL(a.done);
        if (a.status != 400 && a.status != 404) fail_msg("%s: %d", rows[i].members, a.status);
        if (!strstr(a.body.data, rows[i].part)) fail_msg("%s: %s", rows[i].members, a.body.data);
        um_buf_free(&body);
        forget_answer(&a);
    }
    assert_int_equal(n_script, 0);
}

static void too_much_at_once_is_told_to_come_again(void **state) {
    (void)state;
    answer held[UM_READ_THREADS], waits, refused;
    um_buf body = body_of("", UM_READ_AT_ONCE + 1);
    um_jobs_free(server->readers);
    assert_int_equal(um_jobs_new(&server->readers, um_server_base(server), UM_READ_THREADS, body.len + 100, NULL), 0);
    hold_all(held);
    post(&waits, "/tokenize", &body);
    PUMP_UNTIL(n_open() == UM_READ_THREADS + 1);
    post(&refused, "/tokenize", &body);
    PUMP_UNTIL(refused.done);
    assert_int_equal(refused.status, 429);
    free_all(held);
    PUMP_UNTIL(waits.done);
    assert_int_equal(waits.status, 200);
    forget_answer(&waits), forget_answer(&refused);
    um_buf_free(&body);
}

/* Several are read by several threads at once, with one tokenizer and one template. */
static void everyone_gets_their_own_answer(void **state) {
    (void)state;
    enum { N = 24 };
    answer a[N];
    um_buf body[N];
    for (int i = 0; i < N; i++) {
        body[i] = body_of("", UM_READ_AT_ONCE + 500 * (size_t)i);
        if (i % 2) {
            um_buf_clear(&body[i]);
            um_buf_puts(&body[i], "{\"messages\":[{\"role\":\"user\",\"content\":\"");
            for (size_t k = 0; k < UM_READ_AT_ONCE + 500 * (size_t)i; k++) um_buf_putc(&body[i], (char)('a' + i % 20));
            um_buf_puts(&body[i], "\"}]}");
        }
        post(&a[i], "/tokenize", &body[i]);
    }
    for (int i = 0; i < N; i++) {
        PUMP_UNTIL(a[i].done);
        json_t *sent = json_loadb(body[i].data, body[i].len, 0, NULL),
               *got = json_loadb(a[i].body.data, a[i].body.len, 0, NULL);
        int32_t *ids = NULL;
        size_t n = 0;
        if (i % 2) {
            um_chat_request q;
            um_chat_init(&q);
            q.messages_json = json_dumps(json_object_get(sent, "messages"), 0);
            assert_int_equal(um_model_render_chat(um_server_model(server), &q, NULL, NULL, &ids, &n, NULL), UM_OK);
            free((void *)(uintptr_t)q.messages_json);
        } else {
            const char *text = json_string_value(json_object_get(sent, "prompt"));
            assert_int_equal(
                um_model_encode_prompt(um_server_model(server), text, strlen(text), 0, true, &ids, &n, NULL), UM_OK);
        }
        const json_t *tokens = json_object_get(got, "tokens");
        assert_int_equal(json_array_size(tokens), n);
        for (size_t k = 0; k < n; k++) assert_int_equal(json_integer_value(json_array_get(tokens, k)), ids[k]);
        um_free(ids);
        json_decref(sent);
        json_decref(got);
        um_buf_free(&body[i]);
        forget_answer(&a[i]);
    }
}

/* ---- Small objects ----------------------------------------------------------------------------------------------- */

static void what_is_read_on_the_loop_is_small(void **state) {
    (void)state;
    answer a;
    um_buf body = body_of("", 70000);
    post(&a, "/abort_request", &body);
    PUMP_UNTIL(a.done);
    assert_int_equal(a.status, 413);
    forget_answer(&a);
    um_buf_free(&body);
}

#define CLAIM(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        CLAIM(a_stream_and_health_go_on_while_huge_bodies_are_read),
        CLAIM(a_template_of_the_request_runs_beside_the_loop),
        CLAIM(who_hangs_up_is_not_read),
        CLAIM(who_hangs_up_while_it_is_read_is_forgotten),
        CLAIM(the_server_may_end_meanwhile),
        CLAIM(who_is_aborted_while_it_is_read_ends_so),
        CLAIM(everything_that_is_read_may_be_aborted),
        CLAIM(what_is_wrong_in_a_large_body_is_said),
        CLAIM(too_much_at_once_is_told_to_come_again),
        CLAIM(everyone_gets_their_own_answer),
        CLAIM(what_is_read_on_the_loop_is_small),
    };
    return cmocka_run_group_tests_name("server_reading", tests, NULL, NULL);
}
