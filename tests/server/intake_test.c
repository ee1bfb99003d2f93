/* server: the intake: request bodies that reader threads parse. Pipes keep the reader threads blocked as long as a test
 * needs it, so nothing depends on timing. Client, server and test share one loop and one thread. */
#include "asking.h"

#include <jansson.h>
#include <pthread.h>
#include <unistd.h>

#include "server/api/apis.h"
#include "server/frontend.h"
#include "server/generate/intake.h"
#include "server/metrics_page.h"

#define TEXT "/v1/completions"

/* ---- Blocked reader threads -------------------------------------------------------------------------------------- */

static int started[2], proceed[2]; /* pipes: a blocked reader writes a byte to the first and reads one of the second */
static um_http_server *slow_http;

static um_status wait_read(um_intake *r, um_err *err) {
    char c = 0;
    (void)err;
    if (write(started[1], &c, 1) != 1 || read(proceed[0], &c, 1) != 1) return UM_EIO;
    um_buf_puts(&r->out, "{}");
    return UM_OK;
}

static void on_slow(void *arg, um_exchange *x) {
    static const um_intake_handler handler = {.read = wait_read, .respond = um_intake_send_json};
    um_intake_start(arg, x, &handler, NULL);
}

static int begin(void **state) {
    um_http_config c;
    (void)state;
    open_server();
    n_script = 0;
    um_http_config_init(&c);
    assert_int_equal(um_http_server_new(&slow_http, server->service.base, &c, on_slow, NULL, &server->service, NULL),
                     UM_OK);
    return pipe(started) || pipe(proceed);
}

static int end(void **state) {
    (void)state;
    um_http_server_free(slow_http);
    um_server_free(server);
    for (int i = 0; i < 2; i++) close(started[i]), close(proceed[i]);
    return 0;
}

static size_t n_open(void) { return um_work_queue_pending(server->service.readers); }

/* Returns a JSON object of at least n bytes: `members`, and a prompt. */
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

/* Sends a request that blocks a reader thread. */
static void block_reader(answer *a) {
    char c;
    size_t n = n_open();
    um_buf body = body_of("", UM_INLINE_BYTES_MAX + 1);
    ask_at(a, um_http_server_port(slow_http), "POST", "/", (um_str){body.data, body.len});
    PUMP_UNTIL(n_open() == n + 1);
    assert_int_equal(read(started[0], &c, 1), 1);
    um_buf_free(&body);
}

/* Lets n blocked reader threads proceed. */
static void release(int n) {
    for (int i = 0; i < n; i++) assert_int_equal(write(proceed[1], "", 1), 1);
}

/* Blocks all reader threads. */
static void block_readers(answer *a) {
    for (int i = 0; i < UM_INTAKE_THREADS; i++) block_reader(&a[i]);
}

static void release_readers(answer *a) {
    release(UM_INTAKE_THREADS);
    for (int i = 0; i < UM_INTAKE_THREADS; i++) {
        PUMP_UNTIL(a[i].done);
        assert_int_equal(a[i].status, 200);
        free_answer(&a[i]);
    }
}

static void send_event(int32_t i, const char *text, bool last) {
    um_msg_text m = {.rid = script[i].rid, .text = um_str_of(text), .nfe = 1};
    um_msg_finish f = {.rid = script[i].rid, .text = um_str_of(text), .finish = UM_FINISH_EOS, .stop_id = -1};
    if (last) script[i].listener.finish(script[i].arg, &f);
    else script[i].listener.text(script[i].arg, &m);
}

/* ---- The loop is never blocked ----------------------------------------------------------------------------------- */

static void streams_and_health_continue_while_huge_bodies_are_parsed(void **state) {
    (void)state;
    answer blocked[UM_INTAKE_THREADS], stream, huge, health, quick;
    um_buf large = body_of("\"max_tokens\":8,", 1 << 20), small = body_of("\"stream\":true,", 64);
    post(&stream, TEXT, &small);
    PUMP_UNTIL(n_script == 1);
    block_readers(blocked);
    post(&huge, TEXT, &large);
    PUMP_UNTIL(n_open() == UM_INTAKE_THREADS + 1);
    um_buf page = {0};
    um_metrics_page_put(&server->service, &page);
    assert_non_null(strstr(page.data, "\nunmask_bodies_reading{model_name=\"tiny-block\"} 3\n"));
    um_buf_free(&page);
    send_event(0, "one ", false);
    PUMP_UNTIL(stream.body.data && strstr(stream.body.data, "\"one \""));
    ask_at(&health, um_server_port(server), "GET", "/health", UM_STR(""));
    PUMP_UNTIL(health.done);
    assert_int_equal(health.status, 200);
    um_buf_clear(&small);
    um_buf_puts(&small, "{\"prompt\":\"Hi\"}");
    post(&quick, TEXT, &small); /* a short body does not wait for long ones */
    PUMP_UNTIL(n_script == 2);
    send_event(1, "two", true);
    PUMP_UNTIL(quick.done);
    send_event(0, "one two", true);
    PUMP_UNTIL(stream.done);
    assert_int_equal(huge.status, 0);
    assert_int_equal(n_script, 2);
    release_readers(blocked);
    PUMP_UNTIL(huge.done);
    assert_int_equal(huge.status, 400); /* the model's context has 1,024 tokens */
    assert_non_null(strstr(huge.body.data, "context_length_exceeded"));
    free_answer(&stream), free_answer(&huge), free_answer(&health), free_answer(&quick);
    um_buf_free(&large);
    um_buf_free(&small);
}

/* Even a short body is parsed on a reader thread if it has a chat template. */
static void a_template_in_the_request_is_rendered_by_a_reader(void **state) {
    (void)state;
    answer blocked[UM_INTAKE_THREADS], a;
    um_buf body = {0};
    um_buf_puts(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"u\"}],\"chat_template\":\"{{ 7 }}\"}");
    block_readers(blocked);
    post(&a, "/apply-template", &body);
    PUMP_UNTIL(n_open() == UM_INTAKE_THREADS + 1);
    assert_false(a.done);
    release_readers(blocked);
    PUMP_UNTIL(a.done);
    assert_string_equal(a.body.data, "{\"prompt\":\"7\"}");
    free_answer(&a);
    um_buf_free(&body);
}

/* ---- Ends -------------------------------------------------------------------------------------------------------- */

static void a_queued_body_is_not_parsed_after_a_disconnect(void **state) {
    (void)state;
    answer blocked[UM_INTAKE_THREADS], a;
    um_buf body = body_of("\"max_tokens\":8,", UM_INLINE_BYTES_MAX + 1);
    block_readers(blocked);
    post(&a, TEXT, &body);
    PUMP_UNTIL(n_open() == UM_INTAKE_THREADS + 1);
    um_http_call_cancel(a.call);
    PUMP_UNTIL(n_open() <= UM_INTAKE_THREADS + 1 && !server->service.n_open); /* at most its release is pending */
    release_readers(blocked);
    PUMP_UNTIL(n_open() == 0);
    assert_int_equal(n_script, 0);
    um_buf_free(&body);
}

static void a_disconnect_while_a_body_is_parsed_frees_it(void **state) {
    (void)state;
    answer a;
    block_reader(&a);
    um_http_call_cancel(a.call);
    PUMP_UNTIL(um_http_server_connections(slow_http) == 0);
    assert_int_equal(n_open(), 1);
    release(1);
    PUMP_UNTIL(n_open() == 0);
}

static void the_server_can_end_with_bodies_in_the_queue(void **state) {
    (void)state;
    answer blocked[UM_INTAKE_THREADS], waiting;
    um_buf body = body_of("\"max_tokens\":8,", UM_INLINE_BYTES_MAX + 1);
    block_readers(blocked);
    post(&waiting, TEXT, &body);
    PUMP_UNTIL(n_open() == UM_INTAKE_THREADS + 1);
    for (int i = 0; i < UM_INTAKE_THREADS; i++) um_http_call_cancel(blocked[i].call);
    um_http_call_cancel(waiting.call);
    release(UM_INTAKE_THREADS);
    um_buf_free(&body); /* `end` frees the server while three jobs are pending */
}

/* ---- Aborts ------------------------------------------------------------------------------------------------------ */

static void expect_aborted(const char *body, int n) {
    answer a;
    char expected[32];
    snprintf(expected, sizeof expected, "{\"aborted\":%d}", n);
    ask_at(&a, um_server_port(server), "POST", "/abort_request", um_str_of(body));
    PUMP_UNTIL(a.done);
    assert_string_equal(a.body.data, expected);
    free_answer(&a);
}

/* Sends a request with the id `rid` and a prompt of n words, and waits until it is number k in the queue. */
static void post_named(answer *a, const char *rid, int n, size_t k) {
    um_buf body = {0};
    um_buf_printf(&body, "{\"rid\":\"%s\",\"text\":\"", rid);
    for (int i = 0; i < n; i++) um_buf_puts(&body, "12 ");
    um_buf_printf(&body, "\"%*s}", (int)UM_INLINE_BYTES_MAX, "");
    post(a, "/generate", &body);
    PUMP_UNTIL(n_open() == UM_INTAKE_THREADS + k);
    um_buf_free(&body);
}

/* Requests with other ids, and requests that arrive after the abort, are not aborted. */
static void an_abort_by_id_reaches_queued_bodies(void **state) {
    (void)state;
    answer blocked[UM_INTAKE_THREADS], a[3];
    block_readers(blocked);
    post_named(&a[0], "mine", 1, 1);
    post_named(&a[1], "yours", 10, 2);
    expect_aborted("{\"rid\":\"mine\"}", 0);
    expect_aborted("{\"rid\":\"nobody's\"}", 0);
    post_named(&a[2], "mine", 10, 3);
    release_readers(blocked);
    PUMP_UNTIL(n_script == 3);
    for (int32_t i = 0; i < 3; i++) assert_int_equal(script[i].aborted, script[i].n_ids < 10);
    for (int32_t i = 0; i < 3; i++) send_event(i, "", true);
    for (int i = 0; i < 3; i++) {
        PUMP_UNTIL(a[i].done);
        assert_int_equal(a[i].status, 200);
        free_answer(&a[i]);
    }
}

static void abort_all_reaches_queued_bodies(void **state) {
    (void)state;
    answer blocked[UM_INTAKE_THREADS], a[2], ids;
    um_buf body = {0};
    um_buf_printf(&body, "{\"prompt\":\"Hi\"%*s}", (int)UM_INLINE_BYTES_MAX, "");
    block_readers(blocked);
    for (int i = 0; i < 2; i++) post(&a[i], i ? "/v1/generate" : TEXT, &body);
    post(&ids, "/tokenize", &body);
    PUMP_UNTIL(n_open() == UM_INTAKE_THREADS + 3);
    expect_aborted("{\"abort_all\":true}", 2);
    expect_aborted("{\"abort_all\":true}", 0);
    release_readers(blocked);
    PUMP_UNTIL(ids.done && n_open() == 0);
    assert_int_equal(ids.status, 200);
    assert_int_equal(n_script, 2);
    for (int32_t i = 0; i < 2; i++) assert_true(script[i].aborted);
    send_event(0, "", true), send_event(1, "", true);
    for (int i = 0; i < 2; i++) {
        PUMP_UNTIL(a[i].done);
        free_answer(&a[i]);
    }
    free_answer(&ids);
    um_buf_free(&body);
}

/* ---- Responses --------------------------------------------------------------------------------------------------- */

static void errors_in_large_bodies_are_reported(void **state) {
    (void)state;
    static const struct {
        const char *members, *part;
    } rows[] = {{"\"max_tokens\":0,", "\"param\":\"max_tokens\""},
                {"\"modell\":\"x\",", "did you mean \\\"model\\\""},
                {"\"model\":\"x\",", "\"code\":\"model_not_found\""},
                {"\"a\":}", "body: "}};
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        answer a;
        um_buf body = body_of(rows[i].members, UM_INLINE_BYTES_MAX + 1);
        post(&a, TEXT, &body);
        PUMP_UNTIL(a.done);
        if (a.status != 400 && a.status != 404) fail_msg("%s: %d", rows[i].members, a.status);
        if (!strstr(a.body.data, rows[i].part)) fail_msg("%s: %s", rows[i].members, a.body.data);
        um_buf_free(&body);
        free_answer(&a);
    }
    assert_int_equal(n_script, 0);
}

static void bodies_beyond_the_queue_limit_get_429(void **state) {
    (void)state;
    answer blocked[UM_INTAKE_THREADS], waits, refused;
    um_buf body = body_of("", UM_INLINE_BYTES_MAX + 1);
    um_work_queue_free(server->service.readers);
    assert_int_equal(
        um_work_queue_new(&server->service.readers, server->service.base, UM_INTAKE_THREADS, body.len + 100, NULL), 0);
    block_readers(blocked);
    post(&waits, "/tokenize", &body);
    PUMP_UNTIL(n_open() == UM_INTAKE_THREADS + 1);
    post(&refused, "/tokenize", &body);
    PUMP_UNTIL(refused.done);
    assert_int_equal(refused.status, 429);
    release_readers(blocked);
    PUMP_UNTIL(waits.done);
    assert_int_equal(waits.status, 200);
    free_answer(&waits), free_answer(&refused);
    um_buf_free(&body);
}

/* Several threads parse bodies at the same time, with one tokenizer and one chat template. */
static void concurrent_bodies_get_their_own_responses(void **state) {
    (void)state;
    enum { N = 24 };
    answer a[N];
    um_buf body[N];
    for (int i = 0; i < N; i++) {
        body[i] = body_of("", UM_INLINE_BYTES_MAX + 500 * (size_t)i);
        if (i % 2) {
            um_buf_clear(&body[i]);
            um_buf_puts(&body[i], "{\"messages\":[{\"role\":\"user\",\"content\":\"");
            for (size_t k = 0; k < UM_INLINE_BYTES_MAX + 500 * (size_t)i; k++)
                um_buf_putc(&body[i], (char)('a' + i % 20));
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
            assert_int_equal(um_model_render_chat(server->service.setup.model, &q, NULL, NULL, &ids, &n, NULL), UM_OK);
            free((void *)(uintptr_t)q.messages_json);
        } else {
            const char *text = json_string_value(json_object_get(sent, "prompt"));
            assert_int_equal(
                um_model_encode_prompt(server->service.setup.model, text, strlen(text), 0, true, &ids, &n, NULL),
                UM_OK);
        }
        const json_t *tokens = json_object_get(got, "tokens");
        assert_int_equal(json_array_size(tokens), n);
        for (size_t k = 0; k < n; k++) assert_int_equal(json_integer_value(json_array_get(tokens, k)), ids[k]);
        um_free(ids);
        json_decref(sent);
        json_decref(got);
        um_buf_free(&body[i]);
        free_answer(&a[i]);
    }
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* Returns a request whose values take more than `mebibytes` of memory: many empty objects. */
static um_buf many_values(int mebibytes) {
    um_buf b = {0};
    um_buf_puts(&b, "{\"prompt\":[{}");
    while (um_json_memory((um_str){b.data, b.len}) < (size_t)mebibytes << 20)
        for (int i = 0; i < 1000; i++) um_buf_puts(&b, ",{}");
    um_buf_puts(&b, "]}");
    return b;
}

static void a_body_of_too_many_values_gets_413(void **state) {
    (void)state;
    answer a;
    um_buf body = many_values(8);
    server->service.held.one = 7 << 20;
    post(&a, TEXT, &body);
    PUMP_UNTIL(a.done);
    assert_int_equal(a.status, 413);
    assert_non_null(strstr(a.body.data, "--max-body-memory"));
    free_answer(&a);
    server->service.held.one = 9 << 20;
    post(&a, TEXT, &body);
    PUMP_UNTIL(a.done && n_open() == 0);
    assert_int_equal(a.status, 400); /* it was parsed: a prompt can't be an object */
    assert_int_equal(server->service.held.used, 0);
    free_answer(&a);
    um_buf_free(&body);
}

/* A running generation holds the memory of its body. */
static void bodies_beyond_the_memory_of_all_get_503(void **state) {
    (void)state;
    answer running, refused, next;
    um_buf body = body_of("", 256);
    server->service.held.all = um_json_memory((um_str){body.data, body.len}) + 100;
    post(&running, TEXT, &body);
    PUMP_UNTIL(n_script == 1);
    assert_int_equal(server->service.held.used, server->service.held.all - 100);
    post(&refused, TEXT, &body);
    PUMP_UNTIL(refused.done);
    assert_int_equal(refused.status, 503);
    assert_non_null(strstr(refused.body.data, "--max-bodies-memory"));
    send_event(0, "one", true);
    PUMP_UNTIL(running.done && server->service.held.used == 0);
    post(&next, TEXT, &body);
    PUMP_UNTIL(n_script == 2);
    send_event(1, "two", true);
    PUMP_UNTIL(next.done);
    assert_int_equal(next.status, 200);
    free_answer(&running), free_answer(&refused), free_answer(&next);
    um_buf_free(&body);
}

/* ---- Small objects ----------------------------------------------------------------------------------------------- */

static void bodies_parsed_on_the_loop_have_a_size_limit(void **state) {
    (void)state;
    answer a;
    um_buf body = body_of("", 70000);
    post(&a, "/abort_request", &body);
    PUMP_UNTIL(a.done);
    assert_int_equal(a.status, 413);
    free_answer(&a);
    um_buf_free(&body);
}

#define CLAIM(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        CLAIM(streams_and_health_continue_while_huge_bodies_are_parsed),
        CLAIM(a_template_in_the_request_is_rendered_by_a_reader),
        CLAIM(a_queued_body_is_not_parsed_after_a_disconnect),
        CLAIM(a_disconnect_while_a_body_is_parsed_frees_it),
        CLAIM(the_server_can_end_with_bodies_in_the_queue),
        CLAIM(an_abort_by_id_reaches_queued_bodies),
        CLAIM(abort_all_reaches_queued_bodies),
        CLAIM(errors_in_large_bodies_are_reported),
        CLAIM(bodies_beyond_the_queue_limit_get_429),
        CLAIM(concurrent_bodies_get_their_own_responses),
        CLAIM(a_body_of_too_many_values_gets_413),
        CLAIM(bodies_beyond_the_memory_of_all_get_503),
        CLAIM(bodies_parsed_on_the_loop_have_a_size_limit),
    };
    return cmocka_run_group_tests_name("server_intake", tests, NULL, NULL);
}
