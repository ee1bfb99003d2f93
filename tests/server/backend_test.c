/* The backend, with workers that this test plays: they connect as remote ones do and say what it wants. */
#include "support.h"

#include <event2/event.h>
#include <unistd.h>

#include "server/backend/backend.h"
#include "server/link/link.h"

enum { WORKERS = 2 };

/* A worker that is played. */
typedef struct actor {
    um_port *port;
    uint16_t index, incarnation;
    um_arena arena;
    um_msg got; /* the latest of heard() */
} actor;

static struct event_base *base;
static um_backend *backend;
static um_server_config config;
static um_config engine;
static char folder[] = "/tmp/backend-test-XXXXXX", command_addr[64], event_addr[64];
static actor a, b;

/* ---- The loop ---------------------------------------------------------------------------------------------------- */

static void turn(void) {
    event_base_loop(base, EVLOOP_NONBLOCK);
    usleep(1000);
}

/* Turns the loop until the condition holds; 20 seconds at most. */
#define UNTIL(condition)                                                                                               \
    do {                                                                                                               \
        bool holds = false;                                                                                            \
        for (double end = um_now() + 20; !(holds = (condition)) && um_now() < end;) turn();                            \
        if (!holds) fail_msg("line %d: this did not come: %s", __LINE__, #condition);                                  \
    } while (0)

/* ---- Actors ------------------------------------------------------------------------------------------------------ */

static void say(actor *w, um_msg msg) {
    um_buf frame = {0};
    msg.worker = w->index;
    msg.incarnation = w->incarnation;
    um_wire_write(&frame, &msg);
    um_port_send(w->port, &frame);
    um_buf_free(&frame);
}

/* Has a command of this type come? Others are passed over. */
static bool heard(actor *w, um_msg_type type) {
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

static void enter(actor *w, uint16_t index, uint16_t incarnation) {
    um_err err = {0};
    *w = (actor){.index = index, .incarnation = incarnation};
    if (um_port_open_zmq(&w->port, command_addr, event_addr, index, incarnation, &err)) fail_msg("%s", err.msg);
    say(w, (um_msg){.type = UM_MSG_HELLO, .hello = {1000 + incarnation, UM_STR("test")}});
}

static void get_ready(actor *w) {
    say(w, (um_msg){.type = UM_MSG_READY, .ready = {.page_size = 4, .strategy = UM_STR("multi_bd")}});
    UNTIL(um_backend_worker(backend, w->index).pid == 1000 + w->incarnation);
    UNTIL(um_backend_worker(backend, w->index).state == UM_WORKER_UP);
}

static void leave(actor *w) {
    if (w->port) um_port_close(w->port);
    um_arena_free(&w->arena);
    *w = (actor){0};
}

/* ---- Listeners --------------------------------------------------------------------------------------------------- */

typedef struct ear {
    int n_texts, n_finished, n_failed, status;
    char text[64];
    um_err err;
    uint64_t cancels;   /* this request when it hears something */
    bool submits;       /* another one when it ends */
    struct ear *heir;   /* which is that one's */
    uint64_t submitted; /* its number */
} ear;

static int32_t prompt[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static int status;
static um_err refusal;
static uint64_t taken[64]; /* requests of the test: ears do not live longer than it */
static size_t n_taken;

static uint64_t submit(ear *e, int32_t n);

static void on_text(void *arg, const um_msg_text *m) {
    ear *e = arg;
    assert_true(m->text.n < sizeof(e->text));
    snprintf(e->text, sizeof(e->text), "%.*s", (int)m->text.n, m->text.p);
    e->n_texts++;
    if (e->cancels) um_backend_cancel(backend, e->cancels);
}

static void on_finish(void *arg, const um_msg_finish *m) {
    ear *e = arg;
    assert_int_equal(m->index, e->n_finished);
    e->n_finished++;
    if (e->submits) e->submitted = submit(e->heir, 1);
}

static void on_fail(void *arg, int with, const um_err *err) {
    ear *e = arg;
    e->n_failed++;
    e->status = with;
    e->err = *err;
    if (e->cancels) um_backend_cancel(backend, e->cancels);
    if (e->submits) e->submitted = submit(e->heir, 1);
}

static const um_listener listener = {.text = on_text, .finish = on_finish, .fail = on_fail};

static uint64_t submit(ear *e, int32_t n) {
    um_pair max_tokens = {UM_STR("max_tokens"), UM_STR("10")};
    um_msg_generate g = {.n = n, .ids = prompt, .n_ids = 16, .set = &max_tokens, .n_set = 1};
    refusal = (um_err){0};
    status = 0;
    uint64_t rid = um_backend_submit(backend, &g, &listener, e, &status, &refusal);
    assert_int_equal(rid != 0, status == 0);
    assert_true(n_taken < UM_LEN(taken));
    taken[n_taken++] = rid;
    return rid;
}

static void say_text(actor *w, uint64_t rid, const char *text) {
    say(w, (um_msg){.type = UM_MSG_TEXT, .text = {.rid = rid, .text = um_str_of(text)}});
}

static void say_finish(actor *w, uint64_t rid, int32_t index) {
    say(w, (um_msg){.type = UM_MSG_FINISH, .finish = {.rid = rid, .index = index, .stop_id = -1}});
}

/* ---- Each test --------------------------------------------------------------------------------------------------- */

static void count_change(void *arg, um_backend *of) {
    assert_non_null(of);
    ++*(int *)arg;
}
static int n_changes;

static int open_backend(void **state) {
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
    base = event_base_new();
    if (um_backend_new(&backend, base, &config, count_change, &n_changes, &err)) fail_msg("%s", err.msg);
    return 0;
}

static int open_and_enter(void **state) {
    open_backend(state);
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
    while (n_taken) um_backend_cancel(backend, taken[--n_taken]);
    um_backend_free(backend);
    event_base_free(base);
    return 0;
}

/* With another time-out than the usual one. */
static int open_impatient(void **state) {
    open_and_enter(state);
    config.backend_timeout = 0.3F;
    return 0;
}

static int open_hurried(void **state) {
    open_backend(state);
    config.start_timeout = 0.1F;
    return 0;
}

static void a_worker_that_loads_for_too_long_is_told_of(void **state) {
    (void)state;
    enter(&a, 0, 1);
    UNTIL(strstr(um_backend_trouble(backend), "worker 0 is loading, for more than 0.1 s"));
    assert_int_equal(um_backend_worker(backend, 0).state, UM_WORKER_LOADING); /* others may end it, we can't */
    get_ready(&a);
    assert_true(um_backend_is_up(backend));
    enter(&b, 1, 1);
    get_ready(&b); /* in time: nothing is said of it later */
    for (double end = um_now() + 0.3; um_now() < end;) turn();
    assert_int_equal(um_backend_worker(backend, 1).state, UM_WORKER_UP);
    assert_string_equal(um_backend_trouble(backend), "");
}

static void refuses_and_says_why_until_a_worker_is_ready(void **state) {
    (void)state;
    ear e = {0};
    assert_false(um_backend_is_up(backend));
    assert_int_equal(submit(&e, 1), 0);
    assert_int_equal(status, 503);
    assert_string_equal(refusal.msg, "worker 0 is not connected yet; worker 1 is not connected yet");
    enter(&a, 0, 1);
    UNTIL(strstr(um_backend_trouble(backend), "worker 0 is loading"));
    assert_int_equal(um_backend_worker(backend, 0).pid, 1001);
    assert_null(um_backend_worker(backend, 0).ready);
    get_ready(&a);
    assert_true(um_backend_is_up(backend));
    assert_string_equal(um_backend_trouble(backend), "");
    assert_int_equal(um_backend_worker(backend, 0).ready->page_size, 4);
    assert_true(um_str_eq(um_backend_worker(backend, 0).ready->strategy, UM_STR("multi_bd")));
    assert_true(n_changes > 0);
    assert_true(submit(&e, 1) > 0);
    assert_int_equal(e.n_failed, 0);
}

static void brings_what_a_worker_says_to_whoever_asked(void **state) {
    (void)state;
    ear one = {0}, two = {0};
    uint64_t first = submit(&one, 1), second = submit(&two, 2);
    assert_true(first && second && first != second);
    assert_int_equal(um_backend_waiting(backend), 2);
    /* The second goes to the shorter queue. */
    UNTIL(heard(&a, UM_MSG_GENERATE));
    assert_int_equal(a.got.generate.rid, first);
    assert_int_equal(a.got.generate.n_ids, 16);
    assert_memory_equal(a.got.generate.ids, prompt, sizeof(prompt));
    UNTIL(heard(&b, UM_MSG_GENERATE));
    assert_int_equal(b.got.generate.rid, second);
    assert_int_equal(um_backend_worker(backend, 0).queued_tokens, 26);
    assert_int_equal(um_backend_worker(backend, 1).queued_tokens, 36);
    say_text(&b, second, "for two");
    say_text(&a, first, "for one");
    UNTIL(one.n_texts && two.n_texts);
    assert_string_equal(one.text, "for one");
    assert_string_equal(two.text, "for two");
    say_finish(&b, second, 0);
    say_finish(&a, first, 0);
    UNTIL(one.n_finished && two.n_finished);
    assert_int_equal(um_backend_waiting(backend), 1);
    say_finish(&b, second, 1);
    UNTIL(two.n_finished == 2);
    assert_int_equal(um_backend_waiting(backend), 0);
    assert_int_equal(um_backend_worker(backend, 1).queued_tokens, 0);
    assert_int_equal(um_backend_worker(backend, 1).n_requests, 0);
}

/* What comes behind a mark has certainly been looked at when the mark arrives. */
static void pass_mark(actor *w) {
    ear mark = {0};
    uint64_t rid = submit(&mark, 1), other = 0;
    if (um_backend_worker(backend, w->index).n_requests == 0) other = rid, rid = submit(&mark, 1);
    say_text(w, rid, "mark");
    UNTIL(mark.n_texts);
    um_backend_cancel(backend, rid);
    um_backend_cancel(backend, other);
}

static void a_cancelled_request_hears_nothing_more(void **state) {
    (void)state;
    ear e = {0};
    uint64_t rid = submit(&e, 1);
    say_text(&a, rid, "before");
    UNTIL(e.n_texts == 1);
    um_backend_cancel(backend, rid);
    um_backend_cancel(backend, rid);
    um_backend_cancel(backend, 12345);
    assert_int_equal(um_backend_waiting(backend), 0);
    UNTIL(heard(&a, UM_MSG_ABORT));
    assert_int_equal(a.got.abort.rid, rid);
    say_text(&a, rid, "after");
    say_finish(&a, rid, 0);
    pass_mark(&a);
    assert_int_equal(e.n_texts, 1);
    assert_int_equal(e.n_finished, 0);
}

static void an_aborted_request_hears_its_end(void **state) {
    (void)state;
    ear e = {0};
    uint64_t rid = submit(&e, 2);
    um_backend_abort(backend, rid);
    um_backend_abort(backend, 12345);
    UNTIL(heard(&a, UM_MSG_ABORT));
    assert_int_equal(a.got.abort.rid, rid);
    say_finish(&a, rid, 0);
    say_finish(&a, rid, 1);
    UNTIL(e.n_finished == 2);
    assert_int_equal(um_backend_waiting(backend), 0);
}

/* One answer has ended before; of two such requests, one ends by its worker's word and one fails. */
static void of_a_dismissed_request_another_hears_the_end(void **state) {
    (void)state;
    ear e[2] = {{0}}, other[2] = {{.n_finished = 1}, {.n_finished = 1}};
    uint64_t rid[2];
    for (int i = 0; i < 2; i++) {
        rid[i] = submit(&e[i], 2);
        say_finish(&a, rid[i], 0);
        UNTIL(e[i].n_finished == 1);
        assert_true(um_backend_dismiss(backend, rid[i], &listener, &other[i]));
    }
    assert_false(um_backend_dismiss(backend, 12345, &listener, &other[0]));
    assert_int_equal(um_backend_waiting(backend), 0);
    assert_int_equal(um_backend_worker(backend, 0).n_requests, 0);
    UNTIL(heard(&a, UM_MSG_ABORT));
    assert_int_equal(a.got.abort.rid, rid[0]);
    say_text(&a, rid[0], "not asked for by who counts");
    say_finish(&a, rid[0], 1);
    UNTIL(other[0].n_finished == 2);
    um_backend_cancel_all(backend, &(um_err){.code = UM_EIO});
    assert_int_equal(other[1].n_failed, 1);
    assert_int_equal(other[0].n_failed, 0);
    for (int i = 0; i < 2; i++) assert_int_equal(e[i].n_texts + e[i].n_failed + (e[i].n_finished - 1), 0);
}

static void a_worker_can_not_answer_for_another(void **state) {
    (void)state;
    ear e = {0};
    uint64_t rid = submit(&e, 1); /* at a */
    say_text(&b, rid, "forged");
    say(&b, (um_msg){.type = UM_MSG_ERROR, .error = {rid, UM_EIO, {0}, UM_STR("forged")}});
    pass_mark(&b);
    assert_int_equal(e.n_texts + e.n_failed, 0);
    um_backend_cancel(backend, rid);
}

static void an_answer_ends_once_and_is_one_that_was_wanted(void **state) {
    (void)state;
    ear e = {0};
    um_log_level level = um_log_get_level();
    um_log_set_level(UM_LOG_ERROR);
    uint64_t rid = submit(&e, 2);
    static const int32_t said[] = {2, -1, 64, INT32_MAX, 0, 0};
    for (size_t i = 0; i < UM_LEN(said); i++) say_finish(&a, rid, said[i]);
    say_text(&a, rid, "of the first, which has ended");
    say_finish(&a, rid, 1);
    UNTIL(e.n_finished == 2);
    assert_int_equal(e.n_texts, 0);
    assert_int_equal(um_backend_waiting(backend), 0);
    um_log_set_level(level);
}

static void an_error_of_the_engine_becomes_a_status(void **state) {
    (void)state;
    static const struct {
        um_status code;
        int status;
    } cases[] = {{UM_ERANGE, 400}, {UM_ELIMIT, 400}, {UM_EDEVICE, 500}, {UM_ENOMEM, 503}};
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        ear e = {0};
        uint64_t rid = submit(&e, 2);
        say(&a, (um_msg){.type = UM_MSG_ERROR, .error = {rid, cases[i].code, UM_STR("max_tokens"), UM_STR("words")}});
        UNTIL(e.n_failed);
        assert_int_equal(e.status, cases[i].status);
        assert_int_equal(e.err.code, cases[i].code);
        assert_string_equal(e.err.msg, "words");
        assert_string_equal(e.err.param, "max_tokens");
        assert_int_equal(um_backend_waiting(backend), 0);
    }
}

static void more_than_max_queue_are_refused(void **state) {
    (void)state;
    ear e[4] = {{0}};
    uint64_t rid[3];
    config.max_queue = 3;
    for (int i = 0; i < 3; i++) assert_true((rid[i] = submit(&e[i], 1)) > 0);
    assert_int_equal(submit(&e[3], 1), 0);
    assert_int_equal(status, 429);
    um_backend_cancel(backend, rid[1]);
    assert_true(submit(&e[3], 1) > 0);
}

static void listeners_may_submit_and_cancel(void **state) {
    (void)state;
    ear heir = {0}, first = {.submits = true, .heir = &heir}, victim = {0}, killer = {0};
    config.max_queue = 1;
    say_finish(&a, submit(&first, 1), 0);
    UNTIL(first.n_finished);
    assert_true(first.submitted > 0); /* its own place was free */
    config.max_queue = 0;
    killer.cancels = submit(&victim, 1);
    ear suicide = {0};
    suicide.cancels = submit(&suicide, 1);
    uint64_t rid = submit(&killer, 1);
    for (int i = 0; i < 2; i++) {
        say_text(i ? &a : &b, rid, "now");
        say_text(i ? &a : &b, suicide.cancels, "now");
    }
    UNTIL(killer.n_texts && suicide.n_texts);
    assert_int_equal(um_backend_waiting(backend), 2); /* the heir and the killer */
    assert_int_equal(victim.n_failed + suicide.n_failed, 0);
}

static void another_incarnation_fails_what_the_old_one_had(void **state) {
    (void)state;
    ear heir = {0}, old = {.submits = true, .heir = &heir}, other = {0};
    uint64_t rid = submit(&old, 1), kept = submit(&other, 1);
    UNTIL(heard(&a, UM_MSG_GENERATE));
    actor dead = a;
    enter(&a, 0, 2);
    UNTIL(old.n_failed);
    assert_int_equal(old.status, 503);
    assert_non_null(strstr(old.err.msg, "worker 0 died: another one took its place"));
    assert_true(old.submitted > 0); /* at the other one */
    assert_int_equal(um_backend_worker(backend, 1).n_requests, 2);
    assert_int_equal(other.n_failed, 0);
    say_text(&dead, kept, "from the grave");
    say_text(&dead, rid, "from the grave");
    get_ready(&a);
    assert_int_equal(um_backend_worker(backend, 0).restarts, 1);
    assert_string_equal(um_backend_worker(backend, 0).error, "");
    pass_mark(&a);
    assert_int_equal(other.n_texts, 0);
    leave(&dead);
}

static void a_worker_that_fails_says_why(void **state) {
    (void)state;
    ear e[2] = {{0}};
    submit(&e[0], 1);
    submit(&e[1], 1);
    say(&a, (um_msg){.type = UM_MSG_FAILED, .failed = {UM_EDEVICE, UM_STR("the device is gone")}});
    say(&b, (um_msg){.type = UM_MSG_FAILED, .failed = {UM_EDEVICE, UM_STR("so is mine")}});
    UNTIL(e[0].n_failed && e[1].n_failed);
    assert_int_equal(e[0].status, 503);
    assert_string_equal(e[0].err.msg, "worker 0 died: the device is gone");
    assert_false(um_backend_is_up(backend));
    assert_non_null(strstr(um_backend_trouble(backend), "worker 1 is dead (so is mine)"));
    assert_string_equal(um_backend_worker(backend, 0).error, "the device is gone");
    assert_false(um_backend_failed(backend, NULL)); /* they had been up, and may come again */
}

static void a_silent_worker_loses_its_requests_and_may_come_back(void **state) {
    (void)state;
    ear e = {0}, later = {0};
    uint64_t rid = submit(&e, 1);
    double end = um_now() + 20;
    while (!e.n_failed && um_now() < end) {
        turn();
        if (heard(&b, UM_MSG_PING)) say(&b, (um_msg){.type = UM_MSG_PONG, .ping = b.got.ping});
    }
    assert_int_equal(e.status, 503);
    assert_int_equal(um_backend_worker(backend, 0).state, UM_WORKER_SILENT);
    assert_non_null(strstr(um_backend_worker(backend, 0).error, "no sign of life"));
    assert_int_equal(um_backend_worker(backend, 1).state, UM_WORKER_UP);
    UNTIL(heard(&a, UM_MSG_ABORT));
    assert_int_equal(a.got.abort.rid, rid);
    say_text(&a, rid, "late");
    UNTIL(um_backend_worker(backend, 0).state == UM_WORKER_UP);
    assert_int_equal(e.n_texts, 0);
    assert_true(submit(&later, 1) > 0);
}

/* ---- Routing ----------------------------------------------------------------------------------------------------- */

/* Where a prompt goes that begins with `first`. */
static int32_t place_of(int32_t first, uint64_t salt) {
    ear e = {0};
    prompt[0] = first;
    um_msg_generate g = {.n = 1, .ids = prompt, .n_ids = 16, .cache_salt = salt};
    int32_t before = um_backend_worker(backend, 0).n_requests;
    uint64_t rid = um_backend_submit(backend, &g, &listener, &e, &status, &refusal);
    assert_true(rid > 0);
    int32_t at = um_backend_worker(backend, 0).n_requests > before ? 0 : 1;
    um_backend_cancel(backend, rid);
    prompt[0] = 1;
    return at;
}

static void answered(void *arg, um_status s, const char *value, const um_err *err) {
    (void)value, (void)err;
    *(um_status *)arg = s;
}

static void a_known_beginning_goes_where_it_was(void **state) {
    (void)state;
    engine.route_policy = UM_ROUTE_PREFIX;
    ear e = {0};
    uint64_t busy = submit(&e, 1); /* at the first one: the next goes to the second, unless it is known */
    assert_int_equal(place_of(50, 0), 1);
    um_backend_cancel(backend, busy);
    assert_int_equal(place_of(50, 0), 1);
    assert_int_equal(place_of(50, 9), 0); /* another salt shares nothing; ties go to the first */
    assert_int_equal(place_of(51, 0), 0);
    /* Flushed: nobody knows it any more. */
    um_status s = UM_EIO;
    um_backend_call(backend, -1, "flush_cache", UM_STR("{}"), 20, answered, &s);
    for (actor *w = &a; w; w = w == &a ? &b : NULL) {
        UNTIL(heard(w, UM_MSG_CALL));
        say(w, (um_msg){.type = UM_MSG_RETURN, .ret = {w->got.call.call_id, UM_OK, {0}, UM_STR("true")}});
    }
    UNTIL(s == UM_OK);
    assert_int_equal(place_of(50, 0), 0);
}

static void policies_of_the_router_hold(void **state) {
    (void)state;
    engine.route_policy = UM_ROUTE_ROUND_ROBIN;
    int32_t first = place_of(50, 0);
    assert_int_equal(place_of(50, 0), 1 - first);
    assert_int_equal(place_of(50, 0), first);
    engine.route_policy = UM_ROUTE_LEAST_LOADED;
    ear e = {0}, f = {0};
    submit(&e, 1);
    submit(&f, 1);
    assert_int_equal(um_backend_worker(backend, 0).n_requests, 1);
    assert_int_equal(um_backend_worker(backend, 1).n_requests, 1);
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

static void give_back(actor *w, um_status s, const char *value) {
    UNTIL(heard(w, UM_MSG_CALL));
    um_str param = s ? UM_STR("level") : UM_STR("");
    say(w, (um_msg){.type = UM_MSG_RETURN, .ret = {w->got.call.call_id, s, param, um_str_of(value)}});
}

static void a_call_brings_one_value_or_an_array(void **state) {
    (void)state;
    reply one = {0}, all = {0};
    um_backend_call(backend, 1, "echo", UM_STR("{\"x\":1}"), 20, on_reply, &one);
    give_back(&b, UM_OK, "{\"x\":1}");
    assert_true(um_str_eq(b.got.call.name, UM_STR("echo")));
    assert_true(um_str_eq(b.got.call.args, UM_STR("{\"x\":1}")));
    UNTIL(one.n);
    assert_string_equal(one.value, "{\"x\":1}");
    um_backend_call(backend, -1, "echo", UM_STR("{}"), 20, on_reply, &all);
    give_back(&b, UM_OK, "2");
    give_back(&a, UM_OK, "1");
    UNTIL(all.n);
    assert_string_equal(all.value, "[1,2]");
}

static void a_call_that_fails_says_where(void **state) {
    (void)state;
    reply r = {0}, missing = {0};
    um_backend_call(backend, -1, "echo", UM_STR("{}"), 20, on_reply, &r);
    give_back(&a, UM_OK, "1");
    give_back(&b, UM_EUNSUPPORTED, "not here");
    UNTIL(r.n);
    assert_int_equal(r.status, UM_EUNSUPPORTED);
    assert_string_equal(r.value, "echo: worker 1: not here");
    assert_string_equal(r.param, "level");
    um_backend_call(backend, 7, "echo", UM_STR("{}"), 20, on_reply, &missing);
    assert_int_equal(missing.n, 0); /* never from inside */
    UNTIL(missing.n);
    assert_int_equal(missing.status, UM_EINVAL);
}

static void a_call_ends_with_its_time_or_its_worker(void **state) {
    (void)state;
    reply late = {0}, orphan = {0};
    um_backend_call(backend, 0, "sleep", UM_STR("{}"), 0.05, on_reply, &late);
    UNTIL(late.n);
    assert_int_equal(late.status, UM_ECANCELED);
    give_back(&a, UM_OK, "1"); /* too late: nobody waits */
    um_backend_call(backend, -1, "sleep", UM_STR("{}"), 20, on_reply, &orphan);
    give_back(&a, UM_OK, "1");
    say(&b, (um_msg){.type = UM_MSG_FAILED, .failed = {UM_EDEVICE, UM_STR("gone")}});
    UNTIL(orphan.n);
    assert_int_equal(orphan.status, UM_EIO);
    assert_non_null(strstr(orphan.value, "gone"));
    assert_int_equal(late.n, 1);
}

static void what_is_open_hears_of_the_end(void **state) {
    ear e = {0};
    reply r = {0}, settled = {0};
    submit(&e, 1);
    um_backend_call(backend, 0, "sleep", UM_STR("{}"), 20, on_reply, &r);
    um_backend_call(backend, 7, "sleep", UM_STR("{}"), 20, on_reply, &settled);
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

static void say_stats(actor *w, int64_t tokens, int32_t pages) {
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
    um_backend_stats(backend, &s);
    return s;
}

static void sums_go_on_when_a_worker_begins_anew(void **state) {
    (void)state;
    assert_int_equal(stats().tokens, 0);
    say_stats(&a, 100, 5);
    say_stats(&b, 10, 2);
    UNTIL(stats().tokens == 110);
    assert_int_equal(stats().pages_used, 7);
    assert_int_equal(um_backend_worker(backend, 0).stats->tokens, 100);
    actor dead = a;
    enter(&a, 0, 2);
    get_ready(&a);
    assert_int_equal(stats().tokens, 110);
    assert_int_equal(stats().pages_used, 2); /* those of the dead are no more */
    assert_int_equal(um_backend_worker(backend, 0).stats->tokens, 0);
    say_stats(&a, 3, 1);
    UNTIL(stats().tokens == 113);
    um_msg_stats s = stats();
    assert_int_equal(s.n_decode_step, UM_STATS_BUCKETS);
    assert_int_equal(s.decode_step[1], 6);
    assert_true(s.step_seconds == 1.5);
    leave(&dead);
}

static void say_denoised(actor *w, int64_t tokens, double seconds, int64_t steps) {
    say(w,
        (um_msg){.type = UM_MSG_STATS, .stats = {.decode_tokens = tokens, .decode_seconds = seconds, .steps = steps}});
}

static double rate(void) { return um_backend_worker(backend, 0).decode_rate; }

static void the_rate_is_that_of_the_last_report_with_any(void **state) {
    (void)state;
    assert_true(rate() == 0);
    say_denoised(&a, 100, 1, 1);
    UNTIL(rate() == 100);
    say_denoised(&a, 400, 2, 2);
    UNTIL(rate() == 300);
    say_denoised(&a, 400, 2, 3); /* it has only read a prompt since */
    UNTIL(stats().steps == 3);
    assert_true(rate() == 300);
    actor dead = a;
    enter(&a, 0, 2);
    get_ready(&a);
    assert_true(rate() == 0);
    say_denoised(&a, 10, 1, 1);
    UNTIL(rate() == 10);
    leave(&dead);
}

/* ---- Shutting down ----------------------------------------------------------------------------------------------- */

static void count(void *arg) { ++*(int *)arg; }

static void shutting_down_waits_for_what_runs(void **state) {
    (void)state;
    ear e = {0}, late = {0};
    int n_stopped = 0;
    uint64_t rid = submit(&e, 1);
    um_backend_shutdown(backend, 600, count, &n_stopped);
    assert_int_equal(n_stopped, 0);
    assert_false(um_backend_is_up(backend));
    assert_int_equal(submit(&late, 1), 0);
    assert_int_equal(status, 503);
    assert_non_null(strstr(refusal.msg, "shutting down"));
    for (int i = 0; i < 20; i++) turn();
    assert_false(heard(&b, UM_MSG_SHUTDOWN));
    say_finish(&a, rid, 0);
    UNTIL(n_stopped);
    assert_int_equal(e.n_finished, 1);
    assert_int_equal(e.n_failed, 0);
    UNTIL(heard(&a, UM_MSG_SHUTDOWN));
    UNTIL(heard(&b, UM_MSG_SHUTDOWN));
    assert_int_equal(um_backend_worker(backend, 0).state, UM_WORKER_STOPPED);
    assert_int_equal(n_stopped, 1);
}

static void what_outlasts_the_grace_fails(void **state) {
    (void)state;
    ear e = {0};
    int n_stopped = 0;
    submit(&e, 1);
    um_backend_shutdown(backend, 600, count, &n_stopped);
    um_backend_shutdown(backend, 0.05, count, &n_stopped);
    UNTIL(n_stopped);
    assert_int_equal(e.n_failed, 1);
    assert_int_equal(e.status, 503);
    UNTIL(heard(&a, UM_MSG_SHUTDOWN));
}

/* ---- Bad input --------------------------------------------------------------------------------------------------- */

static void bad_frames_are_dropped(void **state) {
    (void)state;
    ear e = {0};
    um_log_level level = um_log_get_level();
    um_log_set_level(UM_LOG_ERROR);
    uint64_t rid = submit(&e, 1);
    um_buf frame = {0};
    um_buf_puts(&frame, "no frame at all, but long enough");
    um_port_send(a.port, &frame);
    um_port_send(a.port, &frame); /* empty */
    um_buf_free(&frame);
    actor stranger = {.port = a.port, .index = 9, .incarnation = 1};
    say_text(&stranger, rid, "who am I");
    stranger.index = 0, stranger.incarnation = 9;
    say_text(&stranger, rid, "who was I");
    say(&a, (um_msg){.type = UM_MSG_SHUTDOWN}); /* for workers, not from them */
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
        TEST(refuses_and_says_why_until_a_worker_is_ready, open_backend),
        TEST(brings_what_a_worker_says_to_whoever_asked, open_and_enter),
        TEST(a_cancelled_request_hears_nothing_more, open_and_enter),
        TEST(of_a_dismissed_request_another_hears_the_end, open_and_enter),
        TEST(an_aborted_request_hears_its_end, open_and_enter),
        TEST(a_worker_can_not_answer_for_another, open_and_enter),
        TEST(an_answer_ends_once_and_is_one_that_was_wanted, open_and_enter),
        TEST(an_error_of_the_engine_becomes_a_status, open_and_enter),
        TEST(more_than_max_queue_are_refused, open_and_enter),
        TEST(listeners_may_submit_and_cancel, open_and_enter),
        TEST(a_worker_that_loads_for_too_long_is_told_of, open_hurried),
        TEST(another_incarnation_fails_what_the_old_one_had, open_and_enter),
        TEST(a_worker_that_fails_says_why, open_and_enter),
        TEST(a_silent_worker_loses_its_requests_and_may_come_back, open_impatient),
        TEST(a_known_beginning_goes_where_it_was, open_and_enter),
        TEST(policies_of_the_router_hold, open_and_enter),
        TEST(a_call_brings_one_value_or_an_array, open_and_enter),
        TEST(a_call_that_fails_says_where, open_and_enter),
        TEST(a_call_ends_with_its_time_or_its_worker, open_and_enter),
        TEST(what_is_open_hears_of_the_end, open_and_enter),
        TEST(sums_go_on_when_a_worker_begins_anew, open_and_enter),
        TEST(the_rate_is_that_of_the_last_report_with_any, open_and_enter),
        TEST(shutting_down_waits_for_what_runs, open_and_enter),
        TEST(what_outlasts_the_grace_fails, open_and_enter),
        TEST(bad_frames_are_dropped, open_and_enter),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
