/* Frames that a worker sent before it died are handled: finished answers, and the reason of the failure. The test is
 * its own worker, as a thread (it defines um_worker_run) and as a process (the pool starts /proc/self/exe). */
#include "support.h"

#include <event2/event.h>

#include "server/workers/internal.h"

enum { FIRST_TEXTS = 1000, SECOND_TEXTS = 700, EXIT_STATUS = 3 };

/* ---- The worker -------------------------------------------------------------------------------------------------- */

#define SPEAKS "LAST_WORDS_TEST_SPEAKS" /* in the environment: the worker sends FAILED before it ends */

typedef struct fake_worker {
    um_port *port;
    uint16_t index, incarnation;
} fake_worker;

static void say(const fake_worker *w, um_msg msg) {
    um_buf frame = {0};
    msg.worker = w->index;
    msg.incarnation = w->incarnation;
    um_wire_write(&frame, &msg);
    um_port_send(w->port, &frame);
    um_buf_free(&frame);
}

/* Waits for the next generation; returns its request number. */
static uint64_t await_generation(const fake_worker *w) {
    um_arena arena;
    um_str frame;
    um_msg m = {0};
    um_arena_init(&arena, 0);
    while (m.type != UM_MSG_GENERATE) {
        while (!um_port_receive(w->port, &frame)) um_port_wait(w->port, 1);
        if (um_wire_read(&m, &arena, frame, NULL)) abort();
    }
    uint64_t rid = m.generate.rid;
    um_arena_free(&arena);
    return rid;
}

static void say_texts(const fake_worker *w, uint64_t rid, int n) {
    for (int i = 0; i < n; i++) say(w, (um_msg){.type = UM_MSG_TEXT, .text = {.rid = rid, .text = UM_STR("text")}});
}

/* Finishes the first of two generations, answers the second in part, and ends. */
static void work_and_die(const fake_worker *w) {
    say(w, (um_msg){.type = UM_MSG_HELLO, .hello = {1, UM_STR("test")}});
    say(w, (um_msg){.type = UM_MSG_READY, .ready = {.page_size = 4, .strategy = UM_STR("multi_bd")}});
    uint64_t first = await_generation(w), second = await_generation(w);
    say_texts(w, first, FIRST_TEXTS);
    say_texts(w, second, SECOND_TEXTS);
    say(w, (um_msg){.type = UM_MSG_FINISH, .finish = {.rid = first, .stop_id = -1}});
    if (getenv(SPEAKS))
        say(w, (um_msg){.type = UM_MSG_FAILED, .failed = {UM_EDEVICE, UM_STR("the device is on fire")}});
}

um_status um_worker_run(const um_worker_config *c, um_err *err) {
    work_and_die(&(fake_worker){c->port, c->index, c->incarnation});
    return um_fail(err, UM_EIO, "the thread has ended");
}

/* Returns the argument after an option. */
static const char *value_of(int argc, char **argv, const char *option) {
    for (int i = 1; i + 1 < argc; i++)
        if (um_streq(argv[i], option)) return argv[i + 1];
    abort();
}

static int be_process(int argc, char **argv) {
    fake_worker w = {.index = (uint16_t)atoi(value_of(argc, argv, "--index")),
                     .incarnation = (uint16_t)atoi(value_of(argc, argv, "--incarnation"))};
    if (um_port_open_zmq(&w.port, value_of(argc, argv, "--zmq-command-addr"), value_of(argc, argv, "--zmq-event-addr"),
                         w.index, w.incarnation, NULL))
        abort();
    work_and_die(&w);
    um_port_close(w.port);
    return EXIT_STATUS;
}

/* ---- The server's side ------------------------------------------------------------------------------------------- */

typedef struct recorder {
    int n_texts, n_finished, status;
    um_err err;
} recorder;

static void on_text(void *arg, const um_msg_text *m) {
    (void)m;
    ((recorder *)arg)->n_texts++;
}

static void on_finish(void *arg, const um_msg_finish *m) {
    (void)m;
    ((recorder *)arg)->n_finished++;
}

static void on_fail(void *arg, int status, const um_err *err) {
    ((recorder *)arg)->status = status;
    ((recorder *)arg)->err = *err;
}

static const um_submission_listener listener = {.text = on_text, .finish = on_finish, .fail = on_fail};

static struct event_base *base;
static um_worker_pool *pool;

static void submit(recorder *e) {
    int32_t id = 1;
    int status = 0;
    um_err err = {0};
    um_msg_generate g = {.n = 1, .ids = &id, .n_ids = 1};
    if (!um_worker_pool_submit(pool, &g, &listener, e, &status, &err)) fail_msg("%s", err.msg);
}

#define UNTIL(condition)                                                                                               \
    do {                                                                                                               \
        double end = um_now() + 60;                                                                                    \
        while (!(condition) && um_now() < end) event_base_loop(base, EVLOOP_ONCE);                                     \
        if (!(condition)) fail_msg("this did not come: %s", #condition);                                               \
    } while (0)

/* The worker ends before the event loop handles any of its frames. */
static void check(bool in_process, bool speaks, const char *why) {
    um_server_config config;
    um_config engine;
    um_err err = {0};
    recorder first = {0}, second = {0};
    if (speaks) setenv(SPEAKS, "1", 1);
    else unsetenv(SPEAKS);
    um_options_init(um_server_options, UM_SERVER_OPTIONS, &config);
    um_config_init(&engine);
    config.engine = &engine;
    config.engine_yaml = "";
    config.in_process = in_process;
    config.restart_backend = 0;
    base = event_base_new();
    if (um_worker_pool_new(&pool, base, &config, NULL, NULL, &err)) fail_msg("%s", err.msg);
    UNTIL(um_worker_pool_is_up(pool));
    submit(&first);
    submit(&second);
    assert_true(um_worker_instance_wait(pool->slot[0].instance, 60));
    UNTIL(second.status);
    assert_int_equal(first.n_texts, FIRST_TEXTS);
    assert_int_equal(first.n_finished, 1);
    assert_int_equal(first.status, 0);
    assert_int_equal(second.n_texts, SECOND_TEXTS);
    assert_int_equal(second.n_finished, 0);
    assert_int_equal(second.status, 503);
    assert_string_equal(second.err.msg, why);
    um_worker_pool_free(pool);
    event_base_free(base);
}

static void what_a_thread_said_before_its_end_counts(void **state) {
    (void)state;
    check(true, false, "worker 0 died: the thread has ended");
}

static void what_a_thread_said_of_its_end_is_told(void **state) {
    (void)state;
    check(true, true, "worker 0 died: the device is on fire");
}

static void what_a_process_said_before_its_end_counts(void **state) {
    (void)state;
    check(false, false, "worker 0 died: exited with status 3");
}

static void what_a_process_said_of_its_end_is_told(void **state) {
    (void)state;
    check(false, true, "worker 0 died: the device is on fire");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_thread_said_before_its_end_counts),
        cmocka_unit_test(what_a_thread_said_of_its_end_is_told),
        cmocka_unit_test(what_a_process_said_before_its_end_counts),
        cmocka_unit_test(what_a_process_said_of_its_end_is_told),
    };
    if (argc > 1 && um_streq(argv[1], "worker")) return be_process(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
