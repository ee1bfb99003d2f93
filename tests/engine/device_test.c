/* Tests of a device that fails in a pass: the reaction of the engine, of the router and of a run of many requests. */
#include <unistd.h>

#include "cli/bulk.h"
#include "failing_device.h"
#include "support.h"

enum { REQUESTS = 5, PASSES = 3, ANSWERS = 2 }; /* two requests run and three wait; ANSWERS: of the first request */

static const int32_t prompt[] = {231, 443, 286, 438, 473};

static void configure(um_config *c, char path[128]) {
    test_config(c, "sdar", path, 128);
    c->num_pages = 40;
    c->max_num_reqs = 3;
}

static um_request request(const um_engine *e, um_event_fn on_event, void *arg) {
    um_request r;
    um_request_init(e, &r);
    r.ids = prompt;
    r.n_ids = UM_LEN(prompt);
    r.sampling.max_tokens = 40;
    r.sampling.ignore_eos = true;
    r.decoding.block_size = 4;
    r.events = UM_EVENT_TEXT;
    r.on_event = on_event;
    r.arg = arg;
    return r;
}

static void check_error(um_status st, const um_err *err) {
    assert_int_equal(st, UM_EDEVICE);
    assert_int_equal(err->code, UM_EDEVICE);
    assert_string_equal(err->msg, DEVICE_ERROR);
}

/* Checks that all requests are released and that functions which need no device still work. */
static void check_failed(um_engine *e) {
    um_stats s;
    um_err err = {0};
    um_request r = request(e, NULL, NULL);
    int64_t id = 77;
    assert_int_equal(um_engine_pending(e), 0);
    assert_int_equal(um_engine_slots(e, NULL, 0), 0);
    um_engine_get_stats(e, &s);
    assert_int_equal(s.pages_used, 0);
    check_error(um_engine_step(e, &err), &err);
    assert_int_equal(um_engine_step(e, NULL), UM_EDEVICE);
    err = (um_err){0};
    check_error(um_engine_add(e, &r, &id, &err), &err);
    assert_int_equal(id, 77);
    assert_int_equal(um_engine_abort(e, 1, NULL), UM_ENOENT);
    assert_int_equal(um_engine_flush_cache(e, NULL), UM_OK);
}

/* ---- The engine -------------------------------------------------------------------------------------------------- */

static void a_failed_pass_ends_the_engine_and_all_requests(void **state) {
    (void)state;
    for (int in = FAILS_IN_SUBMIT; in <= FAILS_IN_WAIT; in++) {
        static test_answer a[REQUESTS];
        char path[128];
        um_config c;
        test_engine t;
        um_err err = {0};
        um_stats before, after;
        memset(a, 0, sizeof a);
        configure(&c, path);
        test_open(&t, &c);
        for (int i = 0; i < REQUESTS; i++) {
            um_request r = request(t.engine, test_collect, &a[i]);
            assert_int_equal(um_engine_add(t.engine, &r, NULL, NULL), UM_OK);
        }
        fail_after(in, PASSES);
        for (int i = 0; i < PASSES; i++) assert_int_equal(um_engine_step(t.engine, NULL), UM_OK);
        um_engine_get_stats(t.engine, &before);
        assert_true(before.requests_running == 3 && before.requests_waiting == 2 && before.requests == 0);
        check_error(um_engine_step(t.engine, &err), &err);
        um_engine_get_stats(t.engine, &after);
        assert_true(after.requests == REQUESTS && after.aborted == REQUESTS);
        assert_true(after.steps == before.steps && after.passes == before.passes);
        for (int i = 0; i < REQUESTS; i++) {
            assert_true(a[i].done && a[i].finish == UM_FINISH_ABORTED);
            assert_int_equal(a[i].n, a[i].n_streamed);
            assert_string_equal(a[i].text, a[i].streamed);
        }
        assert_true(a[0].n > 0 && a[REQUESTS - 1].n == 0);
        check_failed(t.engine);
        test_close(&t);
    }
}

typedef struct caller {
    um_engine *engine;
    um_router *router;
    int64_t last; /* the request that the callbacks abort */
    int32_t n_finished;
    bool has_failed;
} caller;

/* Calls add, abort and step in every FINISH callback of the failed step. */
static void call_in_finish(void *arg, const um_event *ev) {
    caller *m = (caller *)arg;
    um_request r = request(m->engine, NULL, NULL);
    if (ev->type != UM_EVENT_FINISH) return;
    assert_int_equal(ev->result->finish, UM_FINISH_ABORTED);
    m->n_finished++;
    m->has_failed = true;
    if (m->router) {
        assert_int_equal(um_router_add(m->router, &r, NULL, NULL), UM_EDEVICE);
        assert_true(um_router_step(m->router, NULL) < 0);
        (void)um_router_abort(m->router, m->last, NULL);
    } else {
        assert_int_equal(um_engine_add(m->engine, &r, NULL, NULL), UM_EDEVICE);
        assert_int_equal(um_engine_step(m->engine, NULL), UM_EDEVICE);
        (void)um_engine_abort(m->engine, m->last, NULL);
    }
}

static void callbacks_of_a_failed_step_can_add_nothing(void **state) {
    (void)state;
    char path[128];
    um_config c;
    test_engine t;
    configure(&c, path);
    test_open(&t, &c);
    for (int last = 0; last < REQUESTS; last++) { /* running and waiting requests */
        caller m = {.engine = t.engine};
        um_engine *e = NULL;
        assert_int_equal(um_engine_new(&e, t.model, &c, NULL), UM_OK);
        m.engine = e;
        m.last = last + 1;
        for (int i = 0; i < REQUESTS; i++) {
            um_request r = request(e, call_in_finish, &m);
            r.n = i == 0 ? ANSWERS : 1;
            assert_int_equal(um_engine_add(e, &r, NULL, NULL), UM_OK);
        }
        fail_after(FAILS_IN_WAIT, PASSES);
        for (int i = 0; i < PASSES; i++) assert_int_equal(um_engine_step(e, NULL), UM_OK);
        assert_int_equal(um_engine_step(e, NULL), UM_EDEVICE);
        assert_int_equal(m.n_finished, REQUESTS - 1 + ANSWERS);
        check_failed(e);
        um_engine_free(e);
    }
    test_close(&t);
}

static void generate_returns_the_error_of_the_device(void **state) {
    (void)state;
    static test_answer a;
    char path[128], *text = NULL;
    um_config c;
    test_engine t;
    um_err err = {0};
    configure(&c, path);
    test_open(&t, &c);
    a = (test_answer){0};
    um_request r = request(t.engine, test_collect, &a);
    fail_after(FAILS_IN_WAIT, PASSES);
    check_error(um_generate(t.engine, &r, &text, &err), &err);
    assert_null(text);
    assert_true(a.done && a.finish == UM_FINISH_ABORTED);
    check_failed(t.engine);
    test_close(&t);
}

static void a_profile_ends_with_a_failed_step(void **state) {
    (void)state;
    char path[128], trace[] = "/tmp/unmask-device-XXXXXX", table[sizeof trace + 4];
    um_config c;
    test_engine t;
    um_err err = {0};
    int fd = mkstemp(trace);
    assert_true(fd >= 0);
    close(fd);
    snprintf(table, sizeof table, "%s.csv", trace);
    configure(&c, path);
    test_open(&t, &c);
    um_request r = request(t.engine, NULL, NULL);
    assert_int_equal(um_engine_profile_start(t.engine, trace, &err), UM_OK);
    assert_int_equal(um_engine_add(t.engine, &r, NULL, NULL), UM_OK);
    fail_after(FAILS_IN_SUBMIT, 1);
    assert_int_equal(um_engine_step(t.engine, NULL), UM_OK);
    check_error(um_engine_step(t.engine, &err), &err);
    if (um_engine_profile_stop(t.engine, &err)) fail_msg("%s", err.msg);
    assert_int_equal(unlink(trace), 0);
    assert_int_equal(unlink(table), 0);
    check_failed(t.engine);
    test_close(&t);
}

/* ---- The router -------------------------------------------------------------------------------------------------- */

static void a_failure_in_one_engine_ends_the_router(void **state) {
    (void)state;
    char path[128];
    um_config c;
    um_model *model = NULL;
    um_router *r = NULL;
    um_stats s;
    um_err err = {0};
    configure(&c, path);
    c.data_parallel_size = 3;
    c.route_policy = UM_ROUTE_ROUND_ROBIN;
    assert_int_equal(um_model_open(&model, &c, &err), UM_OK);
    for (int fails = 0; fails < 3; fails++) { /* the engine that fails in the second step */
        if (um_router_new(&r, model, &c, &err)) fail_msg("%s", err.msg);
        caller m = {.engine = um_router_engine(r, 0), .router = r, .last = REQUESTS};
        for (int i = 0; i < REQUESTS; i++) {
            um_request q = request(um_router_engine(r, 0), call_in_finish, &m);
            assert_int_equal(um_router_add(r, &q, NULL, NULL), UM_OK);
        }
        fail_after(FAILS_IN_WAIT, 3 + fails);
        assert_int_equal(um_router_step(r, NULL), UM_OK);
        assert_false(m.has_failed);
        check_error(um_router_step(r, &err), &err);
        assert_int_equal(m.n_finished, REQUESTS);
        assert_int_equal(um_router_pending(r), 0);
        um_router_get_stats(r, &s);
        assert_true(s.pages_used == 0 && s.aborted == REQUESTS);
        for (int i = 0; i < 3; i++) check_failed(um_router_engine(r, i));
        um_request q = request(um_router_engine(r, 0), NULL, NULL);
        check_error(um_router_add(r, &q, NULL, &err), &err);
        check_error(um_router_step(r, &err), &err);
        um_router_free(r);
    }
    um_model_close(model);
}

/* ---- A run of many requests -------------------------------------------------------------------------------------- */

typedef struct source {
    int n_read, n_finished, n_taken;
} source;

static um_bulk_got next(void *arg, um_bulk_request *t, um_request *r, bool wait) {
    source *s = (source *)arg;
    (void)t, (void)wait;
    if (s->n_read == REQUESTS) return UM_BULK_END;
    s->n_read++;
    r->ids = prompt;
    r->n_ids = UM_LEN(prompt);
    r->sampling.max_tokens = 40;
    r->sampling.ignore_eos = true;
    return UM_BULK_REQUEST;
}

static void count_end(void *arg, um_bulk_request *t, const um_event *ev) {
    (void)t;
    ((source *)arg)->n_finished += ev->type == UM_EVENT_FINISH;
}

static um_status take(void *arg, um_bulk_request *t, um_err *err) {
    (void)t, (void)err;
    ((source *)arg)->n_taken++;
    return UM_OK;
}

/* The command must not write the incomplete answers, so that a later run generates them. */
static void a_run_ends_with_the_error_and_takes_no_cut_answer(void **state) {
    (void)state;
    char path[128];
    um_config c;
    um_model *model = NULL;
    um_router *r = NULL;
    um_err err = {0};
    source s = {0};
    const um_bulk feed = {.arg = &s, .next = next, .event = count_end, .take = take};
    configure(&c, path);
    assert_int_equal(um_model_open(&model, &c, &err), UM_OK);
    assert_int_equal(um_router_new(&r, model, &c, &err), UM_OK);
    fail_after(FAILS_IN_WAIT, PASSES);
    check_error(um_bulk_run(r, c.max_num_reqs, &feed, &err), &err);
    assert_true(s.n_read == REQUESTS && s.n_finished == REQUESTS && s.n_taken == 0);
    um_router_free(r);
    um_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_pass_ends_the_engine_and_all_requests),
        cmocka_unit_test(callbacks_of_a_failed_step_can_add_nothing),
        cmocka_unit_test(generate_returns_the_error_of_the_device),
        cmocka_unit_test(a_profile_ends_with_a_failed_step),
        cmocka_unit_test(a_failure_in_one_engine_ends_the_router),
        cmocka_unit_test(a_run_ends_with_the_error_and_takes_no_cut_answer),
    };
    return cmocka_run_group_tests_name("a device that fails", tests, open_device, NULL);
}
