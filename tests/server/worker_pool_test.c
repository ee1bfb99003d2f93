/* The worker pool, with fake workers: the test connects to it like a remote worker and sends what each case needs. */
#include "support.h"

#include <event2/event.h>
#include <unistd.h>

#include "server/link/link.h"
#include "server/workers/workers.h"

enum { WORKERS = 2 };

/* A fake worker. */
typedef struct fake_worker {
    um_port *port;
    uint16_t index, incarnation;
    um_arena arena;
    um_msg got; /* the last message that received() found */
} fake_worker;

static struct event_base *base;
static um_worker_pool *pool;
static um_server_config config;
static um_config engine;
static char folder[] = "/tmp/pool-test-XXXXXX", command_addr[64], event_addr[64];
static fake_worker a, b;

/* ---- The loop ---------------------------------------------------------------------------------------------------- */

static void turn(void) {
    event_base_loop(base, EVLOOP_NONBLOCK);
    usleep(1000);
}

/* Runs the event loop until the condition holds, for at most 20 seconds. */
#define UNTIL(condition)                                                                                               \
    do {                                                                                                               \
        bool holds = false;                                                                                            \
        for (double end = um_now() + 20; !(holds = (condition)) && um_now() < end;) turn();                            \
        if (!holds) fail_msg("line %d: this did not come: %s", __LINE__, #condition);                                  \
    } while (0)

/* ---- Actors ------------------------------------------------------------------------------------------------------ */

static void say(fake_worker *w, um_msg msg) {
    um_buf frame = {0};
    msg.worker = w->index;
    msg.incarnation = w->incarnation;
    um_wire_write(&frame, &msg);
    um_port_send(w->port, &frame);
    um_buf_free(&frame);
}

/* Tells whether a command of this type has arrived. Skips others. */
static bool received(fake_worker *w, um_msg_type type) {
    um_str frame;
    um_err err = {0};
    while (um_port_receive(w->port, &frame)) {
        um_arena_reset(&w->arena);
        if (um_wire_read(&w->got, &w->arena, frame, &err)) fail_msg("%s", err.msg);
        assert_int_equal(w->got.worker, w->index);
        assert_int_equal(w->got.incarnation, w->incarnation);
        if (w->got.type == type) return true;
    }
    return false;
}

static void enter(fake_worker *w, uint16_t index, uint16_t incarnation) {
    um_err err = {0};
    *w = (fake_worker){.index = index, .incarnation = incarnation};
    if (um_port_open_zmq(&w->port, command_addr, event_addr, index, incarnation, &err)) fail_msg("%s", err.msg);
    say(w, (um_msg){.type = UM_MSG_HELLO, .hello = {1000 + incarnation, UM_STR("test")}});
}

static void get_ready(fake_worker *w) {
    say(w, (um_msg){.type = UM_MSG_READY, .ready = {.page_size = 4, .strategy = UM_STR("multi_bd")}});
    UNTIL(um_worker_pool_get_status(pool, w->index).pid == 1000 + w->incarnation);
    UNTIL(um_worker_pool_get_status(pool, w->index).state == UM_WORKER_UP);
}

static void leave(fake_worker *w) {
    if (w->port) um_port_close(w->port);
    um_arena_free(&w->arena);
    *w = (fake_worker){0};
}

/* ---- Listeners --------------------------------------------------------------------------------------------------- */

typedef struct recorder {
    int n_texts, n_finished, n_failed, status;
    char text[64];
    um_err err;
    uint64_t cancels;      /* request to cancel at the first event */
    bool submits;          /* submits another request at the end */
    struct recorder *next; /* listener of that request */
    uint64_t submitted;    /* number of that request */
} recorder;

static int32_t prompt[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static int status;
static um_err refusal;
static uint64_t taken[64]; /* requests of the test, cancelled at its end, since the recorders are local variables */
static size_t n_taken;

static uint64_t submit(recorder *e, int32_t n);

static void on_text(void *arg, const um_msg_text *m) {
    recorder *e = arg;
    assert_true(m->text.n < sizeof(e->text));
    snprintf(e->text, sizeof(e->text), "%.*s", (int)m->text.n, m->text.p);
    e->n_texts++;
    if (e->cancels) um_worker_pool_cancel(pool, e->cancels);
}

static void on_finish(void *arg, const um_msg_finish *m) {
    recorder *e = arg;
    assert_int_equal(m->index, e->n_finished);
    e->n_finished++;
    if (e->submits) e->submitted = submit(e->next, 1);
}

static void on_fail(void *arg, int with, const um_err *err) {
    recorder *e = arg;
    e->n_failed++;
    e->status = with;
    e->err = *err;
    if (e->cancels) um_worker_pool_cancel(pool, e->cancels);
    if (e->submits) e->submitted = submit(e->next, 1);
}

static const um_submission_listener listener = {.text = on_text, .finish = on_finish, .fail = on_fail};

static uint64_t submit(recorder *e, int32_t n) {
    um_pair max_tokens = {UM_STR("max_tokens"), UM_STR("10")};
    um_msg_generate g = {.n = n, .ids = prompt, .n_ids = 16, .set = &max_tokens, .n_set = 1};
    refusal = (um_err){0};
    status = 0;
    uint64_t rid = um_worker_pool_submit(pool, &g, &listener, e, &status, &refusal);
    assert_int_equal(rid != 0, status == 0);
    assert_true(n_taken < UM_LEN(taken));
    taken[n_taken++] = rid;
    return rid;
}

static void say_text(fake_worker *w, uint64_t rid, const char *text) {
    say(w, (um_msg){.type = UM_MSG_TEXT, .text = {.rid = rid, .text = um_str_of(text)}});
}

static void say_finish(fake_worker *w, uint64_t rid, int32_t index) {
    say(w, (um_msg){.type = UM_MSG_FINISH, .finish = {.rid = rid, .index = index, .stop_id = -1}});
}

/* ---- Each test --------------------------------------------------------------------------------------------------- */

static bool saw_idle_wake; /* the pool was awake while worker 0 still slept */

static void count_change(void *arg, um_worker_pool *of) {
    assert_non_null(of);
    ++*(int *)arg;
    const bool sleeps = um_worker_pool_get_status(of, 0).state == UM_WORKER_ASLEEP;
    saw_idle_wake |= sleeps && um_worker_pool_get_rest(of) == UM_POOL_AWAKE;
}
static int n_changes;

static int open_pool(void **state) {
    (void)state;
    um_err err = {0};
    um_options_init(um_server_options, UM_SERVER_OPTIONS, &config);
    um_config_init(&engine);
    engine.route_policy = UM_ROUTE_LEAST_LOADED;
    config.engine = &engine;
    config.remote_workers = WORKERS;
    config.zmq_command_addr = command_addr;
    config.zmq_event_addr = event_addr;
    config.heartbeat = 0.05F;
    n_changes = 0;
    n_taken = 0;
    saw_idle_wake = false;
    base = event_base_new();
    if (um_worker_pool_new(&pool, base, &config, count_change, &n_changes, &err)) fail_msg("%s", err.msg);
    return 0;
}

static int open_and_enter(void **state) {
    open_pool(state);
    enter(&a, 0, 1);
    enter(&b, 1, 1);
    get_ready(&a);
    get_ready(&b);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    leave(&a);
    leave(&b);
    while (n_taken) um_worker_pool_cancel(pool, taken[--n_taken]);
    um_worker_pool_free(pool);
    event_base_free(base);
    return 0;
}

/* Opens the pool with a short --backend-timeout. */
static int open_with_short_timeout(void **state) {
    open_and_enter(state);
    config.backend_timeout = 0.3F;
    return 0;
}

static int open_hurried(void **state) {
    open_pool(state);
    config.start_timeout = 0.1F;
    return 0;
}

static void a_worker_that_loads_for_too_long_is_reported(void **state) {
    (void)state;
    enter(&a, 0, 1);
    UNTIL(strstr(um_worker_pool_down_reason(pool), "worker 0 is loading, for more than 0.1 s"));
    assert_int_equal(um_worker_pool_get_status(pool, 0).state, UM_WORKER_LOADING); /* it can't be killed */
    get_ready(&a);
    assert_true(um_worker_pool_is_up(pool));
    enter(&b, 1, 1);
    get_ready(&b); /* in time, so no error is reported later */
    for (double end = um_now() + 0.3; um_now() < end;) turn();
    assert_int_equal(um_worker_pool_get_status(pool, 1).state, UM_WORKER_UP);
    assert_string_equal(um_worker_pool_down_reason(pool), "");
}

static void rejects_with_the_reason_until_a_worker_is_ready(void **state) {
    (void)state;
    recorder e = {0};
    assert_false(um_worker_pool_is_up(pool));
    assert_int_equal(submit(&e, 1), 0);
    assert_int_equal(status, 503);
    assert_string_equal(refusal.msg, "worker 0 is not connected yet; worker 1 is not connected yet");
    enter(&a, 0, 1);
    UNTIL(strstr(um_worker_pool_down_reason(pool), "worker 0 is loading"));
    assert_int_equal(um_worker_pool_get_status(pool, 0).pid, 1001);
    assert_null(um_worker_pool_get_status(pool, 0).ready);
    get_ready(&a);
    assert_true(um_worker_pool_is_up(pool));
    assert_string_equal(um_worker_pool_down_reason(pool), "");
    assert_int_equal(um_worker_pool_get_status(pool, 0).ready->page_size, 4);
    assert_true(um_str_eq(um_worker_pool_get_status(pool, 0).ready->strategy, UM_STR("multi_bd")));
    assert_true(n_changes > 0);
    assert_true(submit(&e, 1) > 0);
    assert_int_equal(e.n_failed, 0);
}

static void passes_events_to_the_listener(void **state) {
    (void)state;
    recorder one = {0}, two = {0};
    uint64_t first = submit(&one, 1), second = submit(&two, 2);
    assert_true(first && second && first != second);
    assert_int_equal(um_worker_pool_outstanding(pool), 2);
    /* The second request goes to the shorter queue. */
    UNTIL(received(&a, UM_MSG_GENERATE));
    assert_int_equal(a.got.generate.rid, first);
    assert_int_equal(a.got.generate.n_ids, 16);
    assert_memory_equal(a.got.generate.ids, prompt, sizeof(prompt));
    UNTIL(received(&b, UM_MSG_GENERATE));
    assert_int_equal(b.got.generate.rid, second);
    assert_int_equal(um_worker_pool_get_status(pool, 0).queued_tokens, 26);
    assert_int_equal(um_worker_pool_get_status(pool, 1).queued_tokens, 36);
    say_text(&b, second, "for two");
    say_text(&a, first, "for one");
    UNTIL(one.n_texts && two.n_texts);
    assert_string_equal(one.text, "for one");
    assert_string_equal(two.text, "for two");
    say_finish(&b, second, 0);
    say_finish(&a, first, 0);
    UNTIL(one.n_finished && two.n_finished);
    assert_int_equal(um_worker_pool_outstanding(pool), 1);
    say_finish(&b, second, 1);
    UNTIL(two.n_finished == 2);
    assert_int_equal(um_worker_pool_outstanding(pool), 0);
    assert_int_equal(um_worker_pool_get_status(pool, 1).queued_tokens, 0);
    assert_int_equal(um_worker_pool_get_status(pool, 1).n_requests, 0);
}

/* Sends a marker frame. When the pool has handled it, it has handled all frames before it. */
static void pass_mark(fake_worker *w) {
    recorder mark = {0};
    uint64_t rid = submit(&mark, 1), other = 0;
    if (um_worker_pool_get_status(pool, w->index).n_requests == 0) other = rid, rid = submit(&mark, 1);
    say_text(w, rid, "mark");
    UNTIL(mark.n_texts);
    um_worker_pool_cancel(pool, rid);
    um_worker_pool_cancel(pool, other);
}

static void a_cancelled_request_gets_no_more_events(void **state) {
    (void)state;
    recorder e = {0};
    uint64_t rid = submit(&e, 1);
    say_text(&a, rid, "before");
    UNTIL(e.n_texts == 1);
    um_worker_pool_cancel(pool, rid);
    um_worker_pool_cancel(pool, rid);
    um_worker_pool_cancel(pool, 12345);
    assert_int_equal(um_worker_pool_outstanding(pool), 0);
    UNTIL(received(&a, UM_MSG_ABORT));
    assert_int_equal(a.got.abort.rid, rid);
    say_text(&a, rid, "after");
    say_finish(&a, rid, 0);
    pass_mark(&a);
    assert_int_equal(e.n_texts, 1);
    assert_int_equal(e.n_finished, 0);
}

static void an_aborted_request_gets_its_finish(void **state) {
    (void)state;
    recorder e = {0};
    uint64_t rid = submit(&e, 2);
    um_worker_pool_abort(pool, rid);
    um_worker_pool_abort(pool, 12345);
    UNTIL(received(&a, UM_MSG_ABORT));
    assert_int_equal(a.got.abort.rid, rid);
    say_finish(&a, rid, 0);
    say_finish(&a, rid, 1);
    UNTIL(e.n_finished == 2);
    assert_int_equal(um_worker_pool_outstanding(pool), 0);
}

/* One answer has ended before the cancellation. Of two such requests, one is finished by its worker and one fails. */
static void a_cancellation_can_notify_another_listener(void **state) {
    (void)state;
    recorder e[2] = {{0}}, other[2] = {{.n_finished = 1}, {.n_finished = 1}};
    uint64_t rid[2];
    for (int i = 0; i < 2; i++) {
        rid[i] = submit(&e[i], 2);
        say_finish(&a, rid[i], 0);
        UNTIL(e[i].n_finished == 1);
        assert_true(um_worker_pool_cancel_notify(pool, rid[i], &listener, &other[i]));
    }
    assert_false(um_worker_pool_cancel_notify(pool, 12345, &listener, &other[0]));
    assert_int_equal(um_worker_pool_outstanding(pool), 0);
    assert_int_equal(um_worker_pool_get_status(pool, 0).n_requests, 0);
    UNTIL(received(&a, UM_MSG_ABORT));
    assert_int_equal(a.got.abort.rid, rid[0]);
    say_text(&a, rid[0], "not asked for by who counts");
    say_finish(&a, rid[0], 1);
    UNTIL(other[0].n_finished == 2);
    um_worker_pool_cancel_all(pool, &(um_err){.code = UM_EIO});
    assert_int_equal(other[1].n_failed, 1);
    assert_int_equal(other[0].n_failed, 0);
    for (int i = 0; i < 2; i++) assert_int_equal(e[i].n_texts + e[i].n_failed + (e[i].n_finished - 1), 0);
}

static void a_worker_can_not_send_events_for_another(void **state) {
    (void)state;
    recorder e = {0};
    uint64_t rid = submit(&e, 1); /* goes to worker a */
    say_text(&b, rid, "forged");
    say(&b, (um_msg){.type = UM_MSG_ERROR, .error = {rid, UM_EIO, {0}, UM_STR("forged")}});
    pass_mark(&b);
    assert_int_equal(e.n_texts + e.n_failed, 0);
    um_worker_pool_cancel(pool, rid);
}

static void an_answer_ends_once_and_must_exist(void **state) {
    (void)state;
    recorder e = {0};
    um_log_level level = um_log_get_level();
    um_log_set_level(UM_LOG_ERROR);
    uint64_t rid = submit(&e, 2);
    static const int32_t said[] = {2, -1, 64, INT32_MAX, 0, 0};
    for (size_t i = 0; i < UM_LEN(said); i++) say_finish(&a, rid, said[i]);
    say_text(&a, rid, "of the first, which has ended");
    say_finish(&a, rid, 1);
    UNTIL(e.n_finished == 2);
    assert_int_equal(e.n_texts, 0);
    assert_int_equal(um_worker_pool_outstanding(pool), 0);
    um_log_set_level(level);
}

static void an_error_of_the_engine_becomes_a_status(void **state) {
    (void)state;
    static const struct {
        um_status code;
        int status;
    } cases[] = {{UM_ERANGE, 400}, {UM_ELIMIT, 400}, {UM_EDEVICE, 500}, {UM_ENOMEM, 503}};
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        recorder e = {0};
        uint64_t rid = submit(&e, 2);
        say(&a, (um_msg){.type = UM_MSG_ERROR, .error = {rid, cases[i].code, UM_STR("max_tokens"), UM_STR("words")}});
        UNTIL(e.n_failed);
        assert_int_equal(e.status, cases[i].status);
        assert_int_equal(e.err.code, cases[i].code);
        assert_string_equal(e.err.msg, "words");
        assert_string_equal(e.err.param, "max_tokens");
        assert_int_equal(um_worker_pool_outstanding(pool), 0);
    }
}

static void more_than_max_queue_are_rejected(void **state) {
    (void)state;
    recorder e[4] = {{0}};
    uint64_t rid[3];
    config.max_queue = 3;
    for (int i = 0; i < 3; i++) assert_true((rid[i] = submit(&e[i], 1)) > 0);
    assert_int_equal(submit(&e[3], 1), 0);
    assert_int_equal(status, 429);
    um_worker_pool_cancel(pool, rid[1]);
    assert_true(submit(&e[3], 1) > 0);
}

static void listeners_may_submit_and_cancel(void **state) {
    (void)state;
    recorder next = {0}, first = {.submits = true, .next = &next}, victim = {0}, killer = {0};
    config.max_queue = 1;
    say_finish(&a, submit(&first, 1), 0);
    UNTIL(first.n_finished);
    assert_true(first.submitted > 0); /* the ended request counted no longer against max_queue */
    config.max_queue = 0;
    killer.cancels = submit(&victim, 1);
    recorder own = {0};
    own.cancels = submit(&own, 1);
    uint64_t rid = submit(&killer, 1);
    for (int i = 0; i < 2; i++) {
        say_text(i ? &a : &b, rid, "now");
        say_text(i ? &a : &b, own.cancels, "now");
    }
    UNTIL(killer.n_texts && own.n_texts);
    assert_int_equal(um_worker_pool_outstanding(pool), 2); /* two requests are still open */
    assert_int_equal(victim.n_failed + own.n_failed, 0);
}

static void another_incarnation_fails_the_requests_of_the_old_one(void **state) {
    (void)state;
    recorder next = {0}, old = {.submits = true, .next = &next}, other = {0};
    uint64_t rid = submit(&old, 1), kept = submit(&other, 1);
    UNTIL(received(&a, UM_MSG_GENERATE));
    fake_worker dead = a;
    enter(&a, 0, 2);
    UNTIL(old.n_failed);
    assert_int_equal(old.status, 503);
    assert_non_null(strstr(old.err.msg, "worker 0 died: another worker took its place"));
    assert_true(old.submitted > 0); /* on the other worker */
    assert_int_equal(um_worker_pool_get_status(pool, 1).n_requests, 2);
    assert_int_equal(other.n_failed, 0);
    say_text(&dead, kept, "from the grave");
    say_text(&dead, rid, "from the grave");
    get_ready(&a);
    assert_int_equal(um_worker_pool_get_status(pool, 0).restarts, 1);
    assert_string_equal(um_worker_pool_get_status(pool, 0).error, "");
    pass_mark(&a);
    assert_int_equal(other.n_texts, 0);
    leave(&dead);
}

static void a_failed_worker_reports_the_reason(void **state) {
    (void)state;
    recorder e[2] = {{0}};
    submit(&e[0], 1);
    submit(&e[1], 1);
    say(&a, (um_msg){.type = UM_MSG_FAILED, .failed = {UM_EDEVICE, UM_STR("the device is gone")}});
    say(&b, (um_msg){.type = UM_MSG_FAILED, .failed = {UM_EDEVICE, UM_STR("so is mine")}});
    UNTIL(e[0].n_failed && e[1].n_failed);
    assert_int_equal(e[0].status, 503);
    assert_string_equal(e[0].err.msg, "worker 0 died: the device is gone");
    assert_false(um_worker_pool_is_up(pool));
    assert_non_null(strstr(um_worker_pool_down_reason(pool), "worker 1 is dead (so is mine)"));
    assert_string_equal(um_worker_pool_get_status(pool, 0).error, "the device is gone");
    assert_false(um_worker_pool_failed(pool, NULL)); /* both workers were ready once and may connect again */
}

/* The loop does not run for longer than --backend-timeout while pings are unanswered, as when the process is stopped.
 */
static void a_delay_of_the_frontend_is_no_silence_of_its_workers(void **state) {
    (void)state;
    config.backend_timeout = 1;
    UNTIL(received(&a, UM_MSG_PING));
    UNTIL(received(&b, UM_MSG_PING));
    usleep(1100000);
    turn(); /* runs the heartbeat before any answer */
    for (uint16_t i = 0; i < WORKERS; i++) assert_int_equal(um_worker_pool_get_status(pool, i).state, UM_WORKER_UP);
    assert_string_equal(um_worker_pool_down_reason(pool), "");
}

/* Worker 0 answers no ping until it counts as silent; worker 1 does. */
static void fall_silent(void) {
    for (double end = um_now() + 20; um_now() < end;) {
        turn();
        if (um_worker_pool_get_status(pool, 0).state == UM_WORKER_SILENT) return;
        if (received(&b, UM_MSG_PING)) say(&b, (um_msg){.type = UM_MSG_PONG, .ping = b.got.ping});
    }
    fail_msg("worker 0 does not count as silent");
}

static void expect_call(fake_worker *w, const char *name) {
    UNTIL(received(w, UM_MSG_CALL));
    if (!um_str_eq(w->got.call.name, um_str_of(name)))
        fail_msg("%.*s, expected %s", (int)w->got.call.name.n, w->got.call.name.p, name);
}

static void a_silent_worker_loses_its_requests_and_may_come_back(void **state) {
    (void)state;
    recorder e = {0}, later = {0};
    uint64_t rid = submit(&e, 1);
    um_worker_pool_remember(pool, "x", "load_lora_adapter", UM_STR("{}"));
    fall_silent();
    assert_int_equal(e.n_failed, 1);
    assert_int_equal(e.status, 503);
    assert_int_equal(um_worker_pool_get_status(pool, 0).state, UM_WORKER_SILENT);
    assert_non_null(strstr(um_worker_pool_get_status(pool, 0).error, "no sign of life"));
    assert_int_equal(um_worker_pool_get_status(pool, 1).state, UM_WORKER_UP);
    UNTIL(received(&a, UM_MSG_ABORT));
    assert_int_equal(a.got.abort.rid, rid);
    say_text(&a, rid, "late");
    expect_call(&a, "wake_up"); /* it might sleep */
    get_ready(&a);
    expect_call(&a, "load_lora_adapter");
    assert_int_equal(e.n_texts, 0);
    assert_true(submit(&later, 1) > 0);
}

static void a_silent_worker_sleeps_with_the_others(void **state) {
    (void)state;
    fall_silent();
    um_worker_pool_sleep(pool);
    expect_call(&b, "sleep");
    say(&b, (um_msg){.type = UM_MSG_RETURN, .ret = {b.got.call.call_id, UM_OK, {0}, UM_STR("{}")}});
    UNTIL(um_worker_pool_get_rest(pool) == UM_POOL_ASLEEP);
    say(&a, (um_msg){.type = UM_MSG_PONG});
    expect_call(&a, "sleep");
    assert_int_equal(um_worker_pool_get_status(pool, 0).state, UM_WORKER_ASLEEP);
    um_worker_pool_wake(pool);
    expect_call(&a, "wake_up");
}

/* ---- Routing ----------------------------------------------------------------------------------------------------- */

/* Returns the worker to which a prompt that begins with `first` goes. */
static int32_t place_of(int32_t first, uint64_t salt) {
    recorder e = {0};
    prompt[0] = first;
    um_msg_generate g = {.n = 1, .ids = prompt, .n_ids = 16, .cache_salt = salt};
    int32_t before = um_worker_pool_get_status(pool, 0).n_requests;
    uint64_t rid = um_worker_pool_submit(pool, &g, &listener, &e, &status, &refusal);
    assert_true(rid > 0);
    int32_t at = um_worker_pool_get_status(pool, 0).n_requests > before ? 0 : 1;
    um_worker_pool_cancel(pool, rid);
    prompt[0] = 1;
    return at;
}

static void answered(void *arg, um_status s, const char *value, const um_err *err) {
    (void)value, (void)err;
    *(um_status *)arg = s;
}

static void a_known_prefix_goes_to_its_worker(void **state) {
    (void)state;
    engine.route_policy = UM_ROUTE_PREFIX;
    recorder e = {0};
    uint64_t busy = submit(&e, 1); /* on worker 0, so the next goes to worker 1 unless a hint prefers worker 0 */
    assert_int_equal(place_of(50, 0), 1);
    um_worker_pool_cancel(pool, busy);
    assert_int_equal(place_of(50, 0), 1);
    assert_int_equal(place_of(50, 9), 0); /* another salt shares nothing, and ties go to worker 0 */
    assert_int_equal(place_of(51, 0), 0);
    /* A flush clears the hints. */
    um_status s = UM_EIO;
    um_worker_pool_call(pool, -1, "flush_cache", UM_STR("{}"), 20, answered, &s);
    for (fake_worker *w = &a; w; w = w == &a ? &b : NULL) {
        UNTIL(received(w, UM_MSG_CALL));
        say(w, (um_msg){.type = UM_MSG_RETURN, .ret = {w->got.call.call_id, UM_OK, {0}, UM_STR("true")}});
    }
    UNTIL(s == UM_OK);
    assert_int_equal(place_of(50, 0), 0);
}

static void routing_policies_are_applied(void **state) {
    (void)state;
    engine.route_policy = UM_ROUTE_ROUND_ROBIN;
    int32_t first = place_of(50, 0);
    assert_int_equal(place_of(50, 0), 1 - first);
    assert_int_equal(place_of(50, 0), first);
    engine.route_policy = UM_ROUTE_LEAST_LOADED;
    recorder e = {0}, f = {0};
    submit(&e, 1);
    submit(&f, 1);
    assert_int_equal(um_worker_pool_get_status(pool, 0).n_requests, 1);
    assert_int_equal(um_worker_pool_get_status(pool, 1).n_requests, 1);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

typedef struct reply {
    int n;
    um_status status;
    char value[UM_ERR_MAX], param[40];
} reply;

static void on_reply(void *arg, um_status s, const char *value, const um_err *err) {
    reply *r = arg;
    r->n++;
    r->status = s;
    snprintf(r->value, sizeof(r->value), "%s", s ? err->msg : value);
    snprintf(r->param, sizeof(r->param), "%s", err->param);
}

static void give_back(fake_worker *w, um_status s, const char *value) {
    UNTIL(received(w, UM_MSG_CALL));
    um_str param = s ? UM_STR("level") : UM_STR("");
    say(w, (um_msg){.type = UM_MSG_RETURN, .ret = {w->got.call.call_id, s, param, um_str_of(value)}});
}

static void a_call_returns_one_value_or_an_array(void **state) {
    (void)state;
    reply one = {0}, all = {0};
    um_worker_pool_call(pool, 1, "echo", UM_STR("{\"x\":1}"), 20, on_reply, &one);
    give_back(&b, UM_OK, "{\"x\":1}");
    assert_true(um_str_eq(b.got.call.name, UM_STR("echo")));
    assert_true(um_str_eq(b.got.call.args, UM_STR("{\"x\":1}")));
    UNTIL(one.n);
    assert_string_equal(one.value, "{\"x\":1}");
    um_worker_pool_call(pool, -1, "echo", UM_STR("{}"), 20, on_reply, &all);
    give_back(&b, UM_OK, "2");
    give_back(&a, UM_OK, "1");
    UNTIL(all.n);
    assert_string_equal(all.value, "[1,2]");
}

#define GENERATE "run_diffusion_generation"

/* Starts a call for all workers, and checks the arguments that each worker gets. */
static void generate(const char *args, reply *r, const char *of_a, const char *of_b) {
    *r = (reply){0};
    um_worker_pool_call(pool, -1, GENERATE, um_str_of(args), 20, on_reply, r);
    UNTIL(received(&a, UM_MSG_CALL));
    if (!um_str_eq(a.got.call.args, um_str_of(of_a))) fail_msg("%.*s", (int)a.got.call.args.n, a.got.call.args.p);
    if (!of_b) return;
    UNTIL(received(&b, UM_MSG_CALL));
    if (!um_str_eq(b.got.call.args, um_str_of(of_b))) fail_msg("%.*s", (int)b.got.call.args.n, b.got.call.args.p);
}

static void reply_with(fake_worker *w, um_status s, const char *value) {
    say(w, (um_msg){.type = UM_MSG_RETURN, .ret = {w->got.call.call_id, s, {0}, um_str_of(value)}});
}

static void prompts_of_a_call_are_spread_and_results_keep_their_order(void **state) {
    (void)state;
    reply r;
    generate("{\"prompts\":[\"p\",[1],\"q\"],\"params\":{\"seed\":123456789012345678901}}", &r,
             "{\"prompts\":[\"p\",\"q\"],\"params\":{\"seed\":123456789012345678901},\"numbers\":[0,2]}",
             "{\"prompts\":[[1]],\"params\":{\"seed\":123456789012345678901},\"numbers\":[1]}");
    reply_with(&b, UM_OK, "[{\"text\":\"one\"}]");
    reply_with(&a, UM_OK, "[{\"text\":\"zero\"},{\"text\":\"two\"}]");
    UNTIL(r.n);
    assert_string_equal(r.value, "[{\"text\":\"zero\"},{\"text\":\"one\"},{\"text\":\"two\"}]");
    /* Each prompt keeps its parameters. The worker with the shorter queue comes first. */
    recorder e = {0};
    submit(&e, 1);
    UNTIL(received(&a, UM_MSG_GENERATE));
    generate("{\"prompts\":[\"p\",\"q\"],\"params\":[{\"top_k\":1},{}]}", &r,
             "{\"prompts\":[\"q\"],\"params\":[{}],\"numbers\":[1]}",
             "{\"prompts\":[\"p\"],\"params\":[{\"top_k\":1}],\"numbers\":[0]}");
    reply_with(&a, UM_OK, "[1]");
    reply_with(&b, UM_OK, "[0]");
    UNTIL(r.n);
    assert_string_equal(r.value, "[0,1]");
}

static void a_call_that_can_not_be_spread_goes_to_one_worker(void **state) {
    (void)state;
    static const char *const whole[] = {"{\"prompts\":[\"p\"]}", "{\"prompts\":7}", "{}",
                                        "{\"prompts\":[\"p\",\"q\"],\"params\":[{}]}"};
    for (size_t i = 0; i < UM_LEN(whole); i++) {
        reply r;
        generate(whole[i], &r, whole[i], NULL);
        reply_with(&a, UM_OK, "[5]");
        UNTIL(r.n);
        assert_string_equal(r.value, "[5]");
        assert_false(received(&b, UM_MSG_CALL));
    }
}

static void a_call_that_was_spread_fails_with_the_first_worker(void **state) {
    (void)state;
    static const char args[] = "{\"prompts\":[0,1]}", first[] = "{\"prompts\":[0],\"numbers\":[0]}",
                      second[] = "{\"prompts\":[1],\"numbers\":[1]}";
    reply r;
    generate(args, &r, first, second);
    reply_with(&b, UM_ERANGE, "prompt 1: too hot");
    UNTIL(r.n);
    assert_int_equal(r.status, UM_ERANGE);
    assert_string_equal(r.value, GENERATE ": worker 1: prompt 1: too hot");
    reply_with(&a, UM_OK, "[1]"); /* the call has already failed */
    /* Results of the wrong length. */
    generate(args, &r, first, second);
    reply_with(&a, UM_OK, "[0]");
    reply_with(&b, UM_OK, "[1,2]");
    UNTIL(r.n);
    assert_int_equal(r.status, UM_EIO);
    assert_non_null(strstr(r.value, "part 0 of the results"));
    generate(args, &r, first, second);
    reply_with(&a, UM_OK, "[0]");
    say(&b, (um_msg){.type = UM_MSG_FAILED, .failed = {UM_EDEVICE, UM_STR("on fire")}});
    UNTIL(r.n);
    assert_int_equal(r.status, UM_EIO);
    assert_non_null(strstr(r.value, "on fire"));
}

static void a_failed_call_names_the_worker(void **state) {
    (void)state;
    reply r = {0}, missing = {0};
    um_worker_pool_call(pool, -1, "echo", UM_STR("{}"), 20, on_reply, &r);
    give_back(&a, UM_OK, "1");
    give_back(&b, UM_EUNSUPPORTED, "not here");
    UNTIL(r.n);
    assert_int_equal(r.status, UM_EUNSUPPORTED);
    assert_string_equal(r.value, "echo: worker 1: not here");
    assert_string_equal(r.param, "level");
    um_worker_pool_call(pool, 7, "echo", UM_STR("{}"), 20, on_reply, &missing);
    assert_int_equal(missing.n, 0); /* `done` is not called from inside */
    UNTIL(missing.n);
    assert_int_equal(missing.status, UM_EINVAL);
}

static void a_call_fails_after_its_timeout_or_with_its_worker(void **state) {
    (void)state;
    reply late = {0}, orphan = {0};
    um_worker_pool_call(pool, 0, "sleep", UM_STR("{}"), 0.05, on_reply, &late);
    UNTIL(late.n);
    assert_int_equal(late.status, UM_ECANCELED);
    give_back(&a, UM_OK, "1"); /* too late, the call has timed out */
    um_worker_pool_call(pool, -1, "sleep", UM_STR("{}"), 20, on_reply, &orphan);
    give_back(&a, UM_OK, "1");
    say(&b, (um_msg){.type = UM_MSG_FAILED, .failed = {UM_EDEVICE, UM_STR("gone")}});
    UNTIL(orphan.n);
    assert_int_equal(orphan.status, UM_EIO);
    assert_non_null(strstr(orphan.value, "gone"));
    assert_int_equal(late.n, 1);
}

static void open_requests_fail_when_the_pool_is_freed(void **state) {
    recorder e = {0};
    reply r = {0}, settled = {0};
    submit(&e, 1);
    um_worker_pool_call(pool, 0, "sleep", UM_STR("{}"), 20, on_reply, &r);
    um_worker_pool_call(pool, 7, "sleep", UM_STR("{}"), 20, on_reply, &settled);
    n_taken = 0;
    close_all(state);
    assert_int_equal(e.n_failed, 1);
    assert_int_equal(e.status, 503);
    assert_int_equal(r.n, 1);
    assert_int_equal(r.status, UM_ECANCELED);
    assert_int_equal(settled.n, 1);
    open_and_enter(state);
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

static void say_stats(fake_worker *w, int64_t tokens, int32_t pages) {
    int64_t steps[UM_STATS_BUCKETS] = {1, 2};
    say(w, (um_msg){.type = UM_MSG_STATS,
                    .stats = {.tokens = tokens,
                              .step_seconds = 0.5,
                              .pages_used = pages,
                              .decode_step = steps,
                              .n_decode_step = UM_STATS_BUCKETS}});
}

static um_msg_stats stats(void) {
    um_msg_stats s;
    um_worker_pool_get_stats(pool, &s);
    return s;
}

static void sums_include_dead_workers(void **state) {
    (void)state;
    assert_int_equal(stats().tokens, 0);
    say_stats(&a, 100, 5);
    say_stats(&b, 10, 2);
    UNTIL(stats().tokens == 110);
    assert_int_equal(stats().pages_used, 7);
    assert_int_equal(um_worker_pool_get_status(pool, 0).stats->tokens, 100);
    fake_worker dead = a;
    enter(&a, 0, 2);
    get_ready(&a);
    assert_int_equal(stats().tokens, 110);
    assert_int_equal(stats().pages_used, 2); /* pages of a dead worker do not count */
    assert_int_equal(um_worker_pool_get_status(pool, 0).stats->tokens, 0);
    say_stats(&a, 3, 1);
    UNTIL(stats().tokens == 113);
    um_msg_stats s = stats();
    assert_int_equal(s.n_decode_step, UM_STATS_BUCKETS);
    assert_int_equal(s.decode_step[1], 6);
    assert_true(s.step_seconds == 1.5);
    leave(&dead);
}

static void say_denoised(fake_worker *w, int64_t tokens, double seconds, int64_t steps) {
    say(w,
        (um_msg){.type = UM_MSG_STATS, .stats = {.decode_tokens = tokens, .decode_seconds = seconds, .steps = steps}});
}

static double rate(void) { return um_worker_pool_get_status(pool, 0).decode_rate; }

static void the_rate_is_of_the_last_report_with_denoising(void **state) {
    (void)state;
    assert_true(rate() == 0);
    say_denoised(&a, 100, 1, 1);
    UNTIL(rate() == 100);
    say_denoised(&a, 400, 2, 2);
    UNTIL(rate() == 300);
    say_denoised(&a, 400, 2, 3); /* only prefill since then */
    UNTIL(stats().steps == 3);
    assert_true(rate() == 300);
    fake_worker dead = a;
    enter(&a, 0, 2);
    get_ready(&a);
    assert_true(rate() == 0);
    say_denoised(&a, 10, 1, 1);
    UNTIL(rate() == 10);
    leave(&dead);
}

/* ---- Sleeping ---------------------------------------------------------------------------------------------------- */

static void workers_sleep_when_no_call_is_open(void **state) {
    (void)state;
    reply r = {0};
    um_worker_pool_call(pool, 0, "score", UM_STR("{}"), 20, on_reply, &r);
    um_worker_pool_sleep(pool);
    for (int i = 0; i < 20; i++) turn();
    assert_false(received(&b, UM_MSG_CALL));
    give_back(&a, UM_OK, "1");
    UNTIL(r.n);
    give_back(&b, UM_OK, "{}");
    give_back(&a, UM_OK, "{}");
    UNTIL(um_worker_pool_get_rest(pool) == UM_POOL_ASLEEP);
}

static void workers_that_are_woken_early_load_at_once(void **state) {
    (void)state;
    um_worker_pool_sleep(pool);
    UNTIL(received(&a, UM_MSG_CALL));
    um_worker_pool_wake(pool);
    reply_with(&a, UM_OK, "{}");
    give_back(&b, UM_OK, "{}");
    UNTIL(um_worker_pool_get_rest(pool) == UM_POOL_AWAKE);
    assert_false(saw_idle_wake);
    assert_int_equal(um_worker_pool_get_status(pool, 0).state, UM_WORKER_LOADING);
}

static void a_worker_that_refuses_to_sleep_is_heard_beside_a_lost_one(void **state) {
    (void)state;
    um_worker_pool_sleep(pool);
    UNTIL(received(&a, UM_MSG_CALL));
    say(&a, (um_msg){.type = UM_MSG_FAILED, .failed = {UM_EDEVICE, UM_STR("gone")}});
    UNTIL(um_worker_pool_get_status(pool, 0).state != UM_WORKER_UP);
    give_back(&b, UM_EUNSUPPORTED, "not here");
    UNTIL(um_worker_pool_get_rest(pool) != UM_POOL_DROWSY);
    assert_int_equal(um_worker_pool_get_rest(pool), UM_POOL_AWAKE);
}

/* ---- Shutting down ----------------------------------------------------------------------------------------------- */

static void count(void *arg) { ++*(int *)arg; }

static void shutdown_waits_for_running_requests(void **state) {
    (void)state;
    recorder e = {0}, late = {0};
    int n_stopped = 0;
    uint64_t rid = submit(&e, 1);
    um_worker_pool_shutdown(pool, 600, count, &n_stopped);
    assert_int_equal(n_stopped, 0);
    assert_false(um_worker_pool_is_up(pool));
    assert_int_equal(submit(&late, 1), 0);
    assert_int_equal(status, 503);
    assert_non_null(strstr(refusal.msg, "shutting down"));
    for (int i = 0; i < 20; i++) turn();
    assert_false(received(&b, UM_MSG_SHUTDOWN));
    say_finish(&a, rid, 0);
    UNTIL(n_stopped);
    assert_int_equal(e.n_finished, 1);
    assert_int_equal(e.n_failed, 0);
    UNTIL(received(&a, UM_MSG_SHUTDOWN));
    UNTIL(received(&b, UM_MSG_SHUTDOWN));
    assert_int_equal(um_worker_pool_get_status(pool, 0).state, UM_WORKER_STOPPED);
    assert_int_equal(n_stopped, 1);
}

static void shutdown_waits_for_calls(void **state) {
    (void)state;
    reply r = {0};
    int n_stopped = 0;
    um_worker_pool_call(pool, 0, "score", UM_STR("{}"), 20, on_reply, &r);
    um_worker_pool_shutdown(pool, 600, count, &n_stopped);
    for (int i = 0; i < 20; i++) turn();
    assert_false(received(&b, UM_MSG_SHUTDOWN));
    give_back(&a, UM_OK, "1");
    UNTIL(n_stopped);
    assert_string_equal(r.value, "1");
}

static void requests_that_outlast_the_grace_period_fail(void **state) {
    (void)state;
    recorder e = {0};
    int n_stopped = 0;
    submit(&e, 1);
    um_worker_pool_shutdown(pool, 600, count, &n_stopped);
    um_worker_pool_shutdown(pool, 0.05, count, &n_stopped);
    UNTIL(n_stopped);
    assert_int_equal(e.n_failed, 1);
    assert_int_equal(e.status, 503);
    UNTIL(received(&a, UM_MSG_SHUTDOWN));
}

/* ---- Bad input --------------------------------------------------------------------------------------------------- */

static void bad_frames_are_dropped(void **state) {
    (void)state;
    recorder e = {0};
    um_log_level level = um_log_get_level();
    um_log_set_level(UM_LOG_ERROR);
    uint64_t rid = submit(&e, 1);
    um_buf frame = {0};
    um_buf_puts(&frame, "no frame at all, but long enough");
    um_port_send(a.port, &frame);
    um_port_send(a.port, &frame); /* empty */
    um_buf_free(&frame);
    fake_worker stranger = {.port = a.port, .index = 9, .incarnation = 1};
    say_text(&stranger, rid, "who am I");
    stranger.index = 0, stranger.incarnation = 9;
    say_text(&stranger, rid, "who was I");
    say(&a, (um_msg){.type = UM_MSG_SHUTDOWN}); /* a command, not an event */
    say_text(&a, rid, "good");
    UNTIL(e.n_texts);
    assert_string_equal(e.text, "good");
    assert_int_equal(e.n_texts, 1);
    um_log_set_level(level);
}

static int make_folder(void **state) {
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(command_addr, sizeof(command_addr), "ipc://%s/c", folder);
    snprintf(event_addr, sizeof(event_addr), "ipc://%s/e", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(command_addr + strlen("ipc://"));
    unlink(event_addr + strlen("ipc://"));
    return rmdir(folder);
}

#define TEST(name, open) cmocka_unit_test_setup_teardown(name, open, close_all)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(rejects_with_the_reason_until_a_worker_is_ready, open_pool),
        TEST(passes_events_to_the_listener, open_and_enter),
        TEST(a_cancelled_request_gets_no_more_events, open_and_enter),
        TEST(a_cancellation_can_notify_another_listener, open_and_enter),
        TEST(an_aborted_request_gets_its_finish, open_and_enter),
        TEST(a_worker_can_not_send_events_for_another, open_and_enter),
        TEST(an_answer_ends_once_and_must_exist, open_and_enter),
        TEST(an_error_of_the_engine_becomes_a_status, open_and_enter),
        TEST(more_than_max_queue_are_rejected, open_and_enter),
        TEST(listeners_may_submit_and_cancel, open_and_enter),
        TEST(a_worker_that_loads_for_too_long_is_reported, open_hurried),
        TEST(another_incarnation_fails_the_requests_of_the_old_one, open_and_enter),
        TEST(a_failed_worker_reports_the_reason, open_and_enter),
        TEST(a_delay_of_the_frontend_is_no_silence_of_its_workers, open_and_enter),
        TEST(a_silent_worker_loses_its_requests_and_may_come_back, open_with_short_timeout),
        TEST(a_silent_worker_sleeps_with_the_others, open_with_short_timeout),
        TEST(a_known_prefix_goes_to_its_worker, open_and_enter),
        TEST(routing_policies_are_applied, open_and_enter),
        TEST(a_call_returns_one_value_or_an_array, open_and_enter),
        TEST(prompts_of_a_call_are_spread_and_results_keep_their_order, open_and_enter),
        TEST(a_call_that_can_not_be_spread_goes_to_one_worker, open_and_enter),
        TEST(a_call_that_was_spread_fails_with_the_first_worker, open_and_enter),
        TEST(a_failed_call_names_the_worker, open_and_enter),
        TEST(a_call_fails_after_its_timeout_or_with_its_worker, open_and_enter),
        TEST(open_requests_fail_when_the_pool_is_freed, open_and_enter),
        TEST(sums_include_dead_workers, open_and_enter),
        TEST(the_rate_is_of_the_last_report_with_denoising, open_and_enter),
        TEST(workers_sleep_when_no_call_is_open, open_and_enter),
        TEST(a_worker_that_refuses_to_sleep_is_heard_beside_a_lost_one, open_and_enter),
        TEST(workers_that_are_woken_early_load_at_once, open_and_enter),
        TEST(shutdown_waits_for_running_requests, open_and_enter),
        TEST(shutdown_waits_for_calls, open_and_enter),
        TEST(requests_that_outlast_the_grace_period_fail, open_and_enter),
        TEST(bad_frames_are_dropped, open_and_enter),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
