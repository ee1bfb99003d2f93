/* Many short requests of every kind, aborted at random, under a pool of pages that is too small for them: every one of
 * them ends exactly once, nothing keeps a page, and a step never allocates.
 *
 * UM_TEST_REQUESTS sets how many (100,000 in `make soak`). */
#include "support.h"

enum { PENDING_MAX = 24, IDS_MAX = 48 };

typedef struct world {
    um_engine *engine;
    int64_t n_added, n_ended, n_aborted, open[PENDING_MAX];
    int n_open;
} world;

static uint64_t seed, counter;

static uint32_t draw(uint32_t below) { return (uint32_t)(um_rng_u64(seed, counter++) % below); }

static void on_event(void *arg, const um_event *ev) {
    world *w = (world *)arg;
    if (ev->type != UM_EVENT_FINISH) return;
    int i = 0;
    while (i < w->n_open && w->open[i] != ev->id) i++;
    if (i == w->n_open) fail_msg("request %lld ended twice", (long long)ev->id);
    w->open[i] = w->open[--w->n_open];
    w->n_ended++;
    w->n_aborted += ev->result->finish == UM_FINISH_ABORTED;
    for (size_t k = 0; k < ev->result->n_tokens; k++) assert_int_not_equal(ev->result->token_ids[k], 500);
}

static void add(world *w, const char *const *strategies, int n) {
    um_request r;
    um_err err;
    int32_t ids[IDS_MAX];
    um_request_init(w->engine, &r);
    r.n_ids = 1 + draw(IDS_MAX);
    for (size_t i = 0; i < r.n_ids; i++) ids[i] = draw(8) ? (int32_t)i : (int32_t)draw(480);
    r.ids = ids;
    r.on_event = on_event;
    r.arg = w;
    r.sampling.max_tokens = 1 + (int32_t)draw(24);
    r.sampling.temperature = (float)draw(2);
    r.decoding.accept_threshold = 0.02F;
    r.decoding.block_size = 4 << draw(3);
    r.decoding.buffer_size = 2 + (int32_t)draw(2);
    snprintf(r.decoding.strategy, sizeof(r.decoding.strategy), "%s", strategies[draw((uint32_t)n)]);
    if (um_engine_add(w->engine, &r, &w->open[w->n_open], &err)) fail_msg("%s", err.msg);
    w->n_open++;
    w->n_added++;
}

static void abort_one(world *w) {
    int64_t id = w->open[draw((uint32_t)w->n_open)];
    assert_int_equal(um_engine_abort(w->engine, id, NULL), UM_OK);
}

static void step(world *w) {
    um_err err;
    int64_t before = um_alloc_count();
    if (um_engine_step(w->engine, &err)) fail_msg("%s", err.msg);
    assert_int_equal(um_alloc_count(), before);
}

static void check_model(const char *model, const char *const *strategies, int n, int64_t requests) {
    char path[128];
    um_config c;
    um_stats s;
    test_engine t;
    test_config(&c, model, path, sizeof(path));
    c.page_size = 16;
    c.num_pages = 9;
    c.max_num_reqs = 12;
    c.max_num_batched_tokens = 256;
    c.threads = 1;
    test_open(&t, &c);
    world w = {.engine = t.engine};
    while (w.n_ended < requests) {
        while (w.n_added < requests && w.n_open < PENDING_MAX && draw(3)) add(&w, strategies, n);
        if (w.n_open && draw(20) == 0) abort_one(&w);
        step(&w);
    }
    um_engine_get_stats(t.engine, &s);
    print_message("# %-13s %lld requests, %lld aborted, %lld preemptions, %lld of %lld prompt tokens found\n", model,
                  (long long)w.n_ended, (long long)w.n_aborted, (long long)s.preemptions, (long long)s.prefix_hits,
                  (long long)s.prefix_queries);
    assert_int_equal(w.n_open, 0);
    assert_int_equal(w.n_ended, w.n_added);
    assert_int_equal(s.requests, w.n_added);
    assert_int_equal(um_engine_pending(t.engine), 0);
    assert_int_equal(s.pages_used, 0);
    test_close(&t);
}

static void every_request_ends_once_and_no_page_is_kept(void **state) {
    (void)state;
    static const char *const blocks[] = {"multi_bd"}, *const edits[] = {"multi_bd", "dmax"},
                             *const whole[] = {"full", "prefix_cache", "dual_cache", "sparse", "d2f"};
    const char *env = getenv("UM_TEST_REQUESTS");
    int64_t requests = env ? strtoll(env, NULL, 10) : 1200;
    seed = test_seed();
    check_model("sdar", blocks, UM_LEN(blocks), requests / 2);
    check_model("llada2", edits, UM_LEN(edits), requests / 4);
    check_model("llada", whole, UM_LEN(whole), requests / 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_request_ends_once_and_no_page_is_kept)};
    return cmocka_run_group_tests_name("pressure", tests, NULL, NULL);
}
