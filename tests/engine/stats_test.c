/* Tests of the statistics of an engine: counts and times of its steps. */
#include "support.h"

static test_engine sdar;
static char sdar_path[128];

enum { PLACES = 40 };

static int open_sdar(void **state) {
    (void)state;
    um_config c;
    test_config(&c, "sdar", sdar_path, sizeof(sdar_path));
    c.max_num_reqs = PLACES;
    c.disable_prefix_caching = true;
    test_open(&sdar, &c);
    return 0;
}

static int close_sdar(void **state) {
    (void)state;
    test_close(&sdar);
    return 0;
}

static const int32_t prompt[] = {231, 443, 286, 438, 473};

static um_request request(int32_t max_tokens) {
    um_request r;
    um_request_init(sdar.engine, &r);
    r.ids = prompt;
    r.n_ids = UM_LEN(prompt);
    r.sampling.max_tokens = max_tokens;
    r.sampling.ignore_eos = true;
    return r;
}

static void add(const um_request *r) {
    um_err err;
    if (um_engine_add(sdar.engine, r, NULL, &err)) fail_msg("%s", err.msg);
}

static um_stats stats(void) {
    um_stats s;
    um_engine_get_stats(sdar.engine, &s);
    return s;
}

static void step(void) {
    um_err err;
    if (um_engine_step(sdar.engine, &err)) fail_msg("%s", err.msg);
}

static void a_step_takes_as_many_requests_as_there_are_places(void **state) {
    (void)state;
    um_request r = request(1);
    um_stats before = stats();
    for (int i = 0; i < PLACES + 3; i++) add(&r);
    step();
    assert_int_equal(stats().passes - before.passes, PLACES);
    assert_int_equal(stats().requests_waiting, 3);
    test_drain(sdar.engine);
}

/* With a single request, the first step stores the prompt, and the others denoise. */
static void seconds_are_of_steps_that_prefill_or_denoise(void **state) {
    (void)state;
    um_request r = request(24);
    um_stats before = stats();
    add(&r);
    step();
    um_stats first = stats();
    assert_true(first.prefill_seconds - before.prefill_seconds == first.step_seconds - before.step_seconds);
    assert_true(first.decode_seconds == before.decode_seconds);
    assert_true(first.prefill_tokens - before.prefill_tokens >= (int64_t)UM_LEN(prompt));
    step();
    um_stats second = stats();
    assert_true(second.prefill_seconds == first.prefill_seconds);
    assert_true(second.decode_seconds > first.decode_seconds);
    test_drain(sdar.engine);
}

/* The second request is added one step later. While it stores its prompt, the first request denoises. */
static void a_mixed_step_counts_for_both(void **state) {
    (void)state;
    um_request r = request(24);
    add(&r);
    step();
    add(&r);
    um_stats before = stats();
    step();
    um_stats after = stats();
    assert_true(after.prefill_seconds > before.prefill_seconds);
    assert_true(after.decode_seconds > before.decode_seconds);
    test_drain(sdar.engine);
}

typedef struct seen {
    int32_t n_events[3], n_results[3];
} seen;

static void watch(void *arg, const um_event *ev) {
    seen *s = (seen *)arg;
    assert_in_range(ev->index, 0, 2);
    s->n_events[ev->index]++;
    if (ev->type != UM_EVENT_FINISH) return;
    assert_int_equal(ev->result->index, ev->index);
    s->n_results[ev->index]++;
}

static void every_event_names_the_answer_it_is_of(void **state) {
    (void)state;
    seen s = {0};
    um_request r = request(5);
    r.n = 3;
    r.sampling.temperature = 1;
    r.events = UM_EVENT_TRACE;
    r.on_event = watch;
    r.arg = &s;
    add(&r);
    test_drain(sdar.engine);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(s.n_results[i], 1);
        assert_true(s.n_events[i] > 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_takes_as_many_requests_as_there_are_places),
        cmocka_unit_test(seconds_are_of_steps_that_prefill_or_denoise),
        cmocka_unit_test(a_mixed_step_counts_for_both),
        cmocka_unit_test(every_event_names_the_answer_it_is_of),
    };
    return cmocka_run_group_tests_name("engine_stats", tests, open_sdar, close_sdar);
}
