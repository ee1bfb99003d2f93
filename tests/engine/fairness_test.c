/* Tests of the order of admission: the steps for which a small request waits while others flood the engine. Each
 * fairness test has its counterpart without it (admission = arrival), so that the floods are known to be floods. */
#include "support.h"

enum { FLOODS = 8, PLACES = 12, LARGE = 64, SMALL = 4, ANSWERS = 14, STEPS_MAX = 100000 };

static uint64_t seed, counter;
static uint32_t draw(uint32_t below) { return (uint32_t)(um_rng_u64(seed, counter++) % below); }

static int32_t n_ended;

static void on_event(void *arg, const um_event *ev) {
    if (ev->type != UM_EVENT_FINISH) return;
    assert_int_equal(ev->result->finish == UM_FINISH_ABORTED, 0);
    n_ended++;
    *(int32_t *)arg += 1;
}

static void open_engine(test_engine *t, int32_t admission, int32_t num_pages) {
    char path[128];
    um_config c;
    test_config(&c, "sdar", path, sizeof path);
    c.page_size = 16;
    c.max_model_len = 160;
    c.num_pages = num_pages;
    c.max_num_reqs = PLACES;
    c.max_num_batched_tokens = 1024;
    c.threads = 1;
    c.admission = admission;
    test_open(t, &c);
}

/* Adds a request of a tenant. It is never stopped by an id, so that its length is known. */
static void add(um_engine *e, uint64_t tenant, int32_t n, int32_t max_tokens, int32_t *ended) {
    um_request r;
    um_err err;
    int32_t ids[8];
    um_request_init(e, &r);
    for (int32_t i = 0; i < (int32_t)UM_LEN(ids); i++) ids[i] = max_tokens == SMALL ? i : (int32_t)draw(480);
    r.ids = ids;
    r.n_ids = UM_LEN(ids);
    r.n = n;
    r.tenant = tenant;
    r.sampling.seed = 1;
    r.sampling.max_tokens = r.sampling.min_tokens = max_tokens;
    r.on_event = on_event;
    r.arg = ended;
    if (um_engine_add(e, &r, NULL, &err)) fail_msg("%s", err.msg);
}

static void step(um_engine *e) {
    um_err err;
    int64_t before = um_alloc_count();
    if (um_engine_step(e, &err)) fail_msg("%s", err.msg);
    assert_int_equal(um_alloc_count(), before);
}

/* Adds a small request and runs steps until it ends. Returns their number. */
static int32_t steps_of_small(um_engine *e, uint64_t tenant) {
    int32_t ended = 0, steps = 0;
    add(e, tenant, 1, SMALL, &ended);
    for (; !ended && steps < STEPS_MAX; steps++) step(e);
    return steps;
}

/* Floods the engine, and returns the largest number of steps that one of several small requests took. At the end all
 * requests have ended once. */
static int32_t worst_steps(int32_t admission, int32_t num_pages, int32_t n_tenants, int32_t n) {
    enum { PROBES = 3 };
    test_engine t;
    int32_t flooded = 0, worst = 0, want = PROBES;
    open_engine(&t, admission, num_pages);
    n_ended = 0;
    for (int32_t i = 0; i < n_tenants; i++) {
        for (int32_t k = 0; k < ANSWERS / n; k++) add(t.engine, 1 + (uint64_t)i, n, LARGE, &flooded);
        want += ANSWERS / n * n;
        for (uint32_t k = draw(4); k > 0; k--) step(t.engine); /* the first tenant takes all places */
    }
    for (int32_t i = 0; i < PROBES; i++) {
        for (uint32_t k = draw(6); k > 0; k--) step(t.engine);
        const int32_t steps = steps_of_small(t.engine, 100);
        worst = UM_MAX(worst, steps);
    }
    test_drain(t.engine);
    assert_int_equal(n_ended, want);
    test_close(&t);
    return worst;
}

static int32_t steps_alone(void) {
    test_engine t;
    open_engine(&t, UM_ADMIT_FAIR, 400);
    int32_t n = steps_of_small(t.engine, 100);
    test_close(&t);
    return n;
}

static void expect_bounded(int32_t num_pages, int32_t n_tenants, int32_t n, int32_t more) {
    const int32_t alone = steps_alone(), fair = worst_steps(UM_ADMIT_FAIR, num_pages, n_tenants, n),
                  arrival = worst_steps(UM_ADMIT_ARRIVAL, num_pages, n_tenants, n);
    print_message("# %d pages, %d tenants of n=%d: %d steps alone, %d among them, %d in order of arrival\n", num_pages,
                  n_tenants, n, alone, fair, arrival);
    assert_true(fair <= alone + more);
    assert_true(arrival > 3 * (alone + more));
}

static void a_small_request_waits_a_few_steps_beside_eight_floods(void **state) {
    (void)state;
    seed = test_seed();
    expect_bounded(400, FLOODS, 1, 8);
    expect_bounded(400, FLOODS, ANSWERS, 8);
}

static void a_small_request_gets_pages_that_eight_floods_have_taken(void **state) {
    (void)state;
    seed = test_seed();
    expect_bounded(48, FLOODS, 1, 20);
}

static void a_flood_that_came_first_does_not_keep_all_places(void **state) {
    (void)state;
    seed = test_seed();
    expect_bounded(400, 1, 2, 6);
}

/* The answers of one request don't block the next request of the same tenant. */
static void the_next_request_of_a_tenant_overtakes_the_answers_of_one(void **state) {
    (void)state;
    seed = test_seed();
    for (int32_t admission = UM_ADMIT_FAIR; admission <= UM_ADMIT_ARRIVAL; admission++) {
        test_engine t;
        int32_t flooded = 0;
        open_engine(&t, admission, 400);
        add(t.engine, 7, 40, LARGE, &flooded);
        for (int i = 0; i < 3; i++) step(t.engine);
        const int32_t steps = steps_of_small(t.engine, 7);
        assert_int_equal(steps <= steps_alone() + 6, admission == UM_ADMIT_FAIR);
        test_drain(t.engine);
        assert_int_equal(flooded, 40);
        test_close(&t);
    }
}

/* Two tenants that both have more to do than the engine has places get a like number of tokens, although the answers
 * of one are much longer. */
static void floods_share_the_tokens(void **state) {
    (void)state;
    seed = test_seed();
    test_engine t;
    int32_t ended[2] = {0};
    open_engine(&t, UM_ADMIT_FAIR, 400);
    for (int i = 0; i < 40; i++) add(t.engine, 1, 1, 96, &ended[0]);
    for (int i = 0; i < 320; i++) add(t.engine, 2, 1, 8, &ended[1]);
    while (ended[0] < 30 && ended[1] < 250) step(t.engine);
    const double tokens[2] = {ended[0] * (96.0 + 8), ended[1] * (8.0 + 8)};
    print_message("# tokens of two floods: %.0f and %.0f\n", tokens[0], tokens[1]);
    assert_true(tokens[0] < 3 * tokens[1] && tokens[1] < 3 * tokens[0]);
    test_drain(t.engine);
    test_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_request_waits_a_few_steps_beside_eight_floods),
        cmocka_unit_test(a_small_request_gets_pages_that_eight_floods_have_taken),
        cmocka_unit_test(a_flood_that_came_first_does_not_keep_all_places),
        cmocka_unit_test(the_next_request_of_a_tenant_overtakes_the_answers_of_one),
        cmocka_unit_test(floods_share_the_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
