/* Tests of engines that are short of pages. The first test runs many short requests of every kind with a pool of pages
 * that is too small for them, and aborts some at random. Every answer must end exactly once, all pages must be free in
 * the end, and a step must never allocate. The second test runs few requests on engines of random size. A request that
 * can never run must be refused by um_engine_add, and all others must end.
 *
 * UM_TEST_REQUESTS sets the number of requests (100,000 in `make soak`). */
#include <math.h>

#include "support.h"

enum { PENDING_MAX = 24, IDS_MAX = 48, NAMES_MAX = 5, MASK_ID = 500 };

/* A model with the strategies and samplers that are tested on it. */
typedef struct kind {
    const char *model, *strategy[NAMES_MAX], *sampler[NAMES_MAX];
    bool shares, is_preempted; /* its requests share stored prompts; they are preempted */
} kind;

static const kind kinds[] = {
    {"sdar", {"multi_bd"}, {"confidence", "credit", "hierarchy", "entropy_bound", "random"}, true, true},
    {"llada2", {"multi_bd"}, {"edit"}, true, true},
    {"llada2", {"dmax"}, {"dmax"}, true, true},
    {"families/llada22/models/llada22_a", {"levenshtein", "joint_indel"}, {"auto"}, true, true},
    {"fast_dllm_v2", {"multi_bd", "fast_dllm_v2"}, {"confidence", "credit", "factor", "random"}, true, true},
    {"llada", {"full", "prefix_cache", "dual_cache", "sparse"}, {"low_confidence", "credit", "dynamic"}, false, true},
    {"families/wedlm/models/wedlm_8b", {"causal_window"}, {"auto", "confidence", "hierarchy"}, true, true},
    {"llada", {"d2f"}, {"confidence", "credit", "static"}, false, true},
};

typedef struct open_request {
    int64_t id;
    int32_t n_left; /* unfinished answers */
} open_request;

typedef struct fixture {
    um_engine *engine;
    int64_t n_requests, n_answers, n_ended, n_aborted;
    open_request open[PENDING_MAX];
    int n_open;
} fixture;

static uint64_t seed, counter;

static uint32_t draw(uint32_t below) { return (uint32_t)(um_rng_u64(seed, counter++) % below); }
static bool chance(uint32_t one_in) { return draw(one_in) == 0; }

static const char *one_of(const char *const *names) {
    uint32_t n = 0;
    while (n < NAMES_MAX && names[n]) n++;
    return names[draw(n)];
}

static void on_event(void *arg, const um_event *ev) {
    fixture *w = (fixture *)arg;
    if (ev->type != UM_EVENT_FINISH) return;
    int i = 0;
    while (i < w->n_open && w->open[i].id != ev->id) i++;
    if (i == w->n_open) fail_msg("request %lld ended twice", (long long)ev->id);
    if (--w->open[i].n_left == 0) w->open[i] = w->open[--w->n_open];
    w->n_ended++;
    w->n_aborted += ev->result->finish == UM_FINISH_ABORTED;
    for (size_t k = 0; k < ev->result->n_tokens; k++) assert_int_not_equal(ev->result->token_ids[k], MASK_ID);
}

static void fill_decoding(um_decoding *d, const kind *k) {
    snprintf(d->strategy, sizeof(d->strategy), "%s", one_of(k->strategy));
    snprintf(d->sampler, sizeof(d->sampler), "%s", one_of(k->sampler));
    bool edits = um_streq(d->sampler, "edit") || um_streq(d->sampler, "dmax");
    d->accept_threshold = 0.02F;
    d->low_threshold = 0.01F;
    d->block_size = 4 << draw(3);
    d->buffer_size = 2 + (int32_t)draw(2);
    const bool keeps = edits || um_streq(d->strategy, "causal_window");
    d->remask_threshold = keeps || draw(3) ? NAN : 0.01F;
    d->penalty_lambda = edits ? (float)draw(2) : 0;
    d->token_merge_top_k = 1 + (int32_t)draw(2);
    d->token_merge_mode = draw(2) ? UM_MERGE_DMAX : UM_MERGE_ITER_SMOOTH;
    d->cfg_scale = um_streq(d->strategy, "full") && chance(3) ? 0.5F : 0;
    test_drop_unread(d);
}

static void fill_sampling(um_sampling_params *s) {
    s->max_tokens = 1 + (int32_t)draw(40);
    s->temperature = (float)draw(2);
    s->top_p = chance(3) ? 0.9F : 1;
    s->logprobs = (int32_t)draw(4) - 1;
    s->repetition_penalty = chance(3) ? 1.2F : 1;
    s->frequency_penalty = chance(3) ? 0.5F : 0;
}

/* Adds a random request. The first tokens of the prompts are equal. */
static um_status try_add(fixture *w, const kind *k, um_err *err) {
    static const char *const stop[] = {"t7 t7", "t1"};
    um_request r;
    int32_t ids[IDS_MAX];
    um_request_init(w->engine, &r);
    r.n_ids = 1 + draw(IDS_MAX);
    for (size_t i = 0, equal = draw(IDS_MAX); i < r.n_ids; i++) ids[i] = (int32_t)(i < equal ? i : draw(480));
    r.ids = ids;
    r.n = chance(4) ? 1 + (int32_t)draw(3) : 1;
    r.stop = stop;
    r.n_stop = draw(3);
    r.tenant = draw(4);
    r.priority = chance(4) ? (int32_t)draw(3) - 1 : 0;
    r.events = chance(2) ? UM_EVENT_TEXT | UM_EVENT_SNAPSHOT | UM_EVENT_TRACE : 0;
    r.on_event = on_event;
    r.arg = w;
    fill_sampling(&r.sampling);
    fill_decoding(&r.decoding, k);
    r.decoding.block_size = UM_MAX(r.decoding.block_size, w->engine->traits.route_block);
    open_request *t = &w->open[w->n_open];
    um_status st = um_engine_add(w->engine, &r, &t->id, err);
    if (st) return st;
    t->n_left = r.n;
    w->n_open++;
    w->n_requests++;
    w->n_answers += r.n;
    return UM_OK;
}

static void add(fixture *w, const kind *k) {
    um_err err;
    if (try_add(w, k, &err)) fail_msg("%s", err.msg);
}

static void abort_one(fixture *w) {
    int64_t id = w->open[draw((uint32_t)w->n_open)].id;
    assert_int_equal(um_engine_abort(w->engine, id, NULL), UM_OK);
}

/* Runs a step, and checks that it has planned something if there are requests. */
static int64_t step(fixture *w) {
    um_err err;
    um_stats then, now;
    bool is_idle = um_engine_pending(w->engine) == 0;
    um_engine_get_stats(w->engine, &then);
    int64_t before = um_alloc_count();
    if (um_engine_step(w->engine, &err)) fail_msg("%s", err.msg);
    assert_int_equal(um_alloc_count(), before);
    um_engine_get_stats(w->engine, &now);
    if (now.steps == then.steps && !is_idle) fail_msg("%d requests stall", w->n_open);
    return now.steps;
}

static void check_end(const kind *k, const fixture *w) {
    enum { MANY = 100 }; /* from this number of requests on, aborts, preemptions and prefix hits must have happened */
    um_stats s;
    um_engine_get_stats(w->engine, &s);
    print_message("# %-13s %-9s %lld requests, %lld answers, %lld aborted, %lld preemptions, %lld of %lld prompt "
                  "tokens found\n",
                  k->model, k->strategy[0], (long long)w->n_requests, (long long)w->n_ended, (long long)w->n_aborted,
                  (long long)s.preemptions, (long long)s.prefix_hits, (long long)s.prefix_queries);
    assert_int_equal(w->n_open, 0);
    assert_int_equal(w->n_ended, w->n_answers);
    assert_int_equal(s.requests, w->n_answers);
    assert_int_equal(s.aborted, w->n_aborted);
    assert_int_equal(um_engine_pending(w->engine), 0);
    assert_int_equal(s.pages_used, 0);
    if (w->n_requests < MANY) return;
    assert_true(w->n_aborted > 0);
    assert_int_equal(s.preemptions > 0, k->is_preempted);
    assert_int_equal(s.prefix_hits > 0, k->shares);
}

static void check_kind(const kind *k, int64_t requests) {
    char path[128];
    um_config c;
    test_engine t;
    test_config(&c, k->model, path, sizeof(path));
    c.page_size = 16;
    c.num_pages = 9;
    c.max_num_reqs = 12;
    c.max_num_batched_tokens = 256;
    c.threads = 1;
    test_open(&t, &c);
    fixture w = {.engine = t.engine};
    while (w.n_requests < requests || w.n_open) {
        while (w.n_requests < requests && w.n_open < PENDING_MAX && draw(3)) add(&w, k);
        if (w.n_open && draw(20) == 0) abort_one(&w);
        (void)step(&w);
    }
    check_end(k, &w);
    test_close(&t);
}

static void every_request_ends_once_and_no_page_is_kept(void **state) {
    (void)state;
    const char *env = getenv("UM_TEST_REQUESTS");
    int64_t requests = env ? strtoll(env, NULL, 10) : 1500;
    seed = test_seed();
    for (size_t i = 0; i < UM_LEN(kinds); i++) check_kind(&kinds[i], requests / (int64_t)UM_LEN(kinds));
}

/* ---- Engines of any size ----------------------------------------------------------------------------------------- */

static um_config small_config(const char *model, char *path, size_t path_size) {
    static const int32_t page[] = {1, 3, 4, 8, 16, 32, 48};
    um_config c;
    test_config(&c, model, path, path_size);
    c.page_size = page[draw(UM_LEN(page))];
    c.num_pages = UM_CEIL_DIV(16 + (int32_t)draw(160), c.page_size);
    c.max_num_reqs = 1 + (int32_t)draw(6);
    c.max_num_batched_tokens = 24 + (int32_t)draw(180);
    c.max_skips = (int32_t)draw(3);
    c.admission = chance(3) ? UM_ADMIT_ARRIVAL : UM_ADMIT_FAIR;
    c.max_guests = (int32_t)draw(5) - 1;
    c.max_refresh_per_step = (int32_t)draw(3);
    c.chunked_prefill_size = (int32_t)(draw(2) * draw(40));
    c.schedule_policy = chance(2) ? UM_POLICY_MIXED : UM_POLICY_PREFILL_FIRST;
    c.threads = 1;
    return c;
}

static void step_on(fixture *w) {
    if (step(w) > 20000) fail_msg("%d requests run for ever", w->n_open);
}

/* Runs requests on a small engine. Counts the accepted and the refused ones. */
static void fill_small_engine(um_model *m, const um_config *c, const kind *k, int64_t *n_taken, int64_t *n_refused) {
    fixture w = {0};
    um_err err;
    if (um_engine_new(&w.engine, m, c, &err)) { /* the engine is too small for the model's defaults */
        assert_int_equal(err.code, UM_ELIMIT);
        return;
    }
    for (int i = 0; i < 10; i++) {
        um_status st = try_add(&w, k, &err);
        if (st && st != UM_ELIMIT) fail_msg("%s", err.msg);
        *n_refused += st != UM_OK;
        if (chance(2) && um_engine_pending(w.engine)) step_on(&w);
    }
    *n_taken += w.n_requests;
    while (um_engine_pending(w.engine)) step_on(&w);
    assert_int_equal(w.n_ended, w.n_answers);
    um_engine_free(w.engine);
}

static void what_is_taken_ends_on_an_engine_of_any_size(void **state) {
    (void)state;
    enum { ENGINES = 30 };
    seed = test_seed();
    for (size_t i = 0; i < UM_LEN(kinds); i++) {
        char path[128];
        um_model *m = NULL;
        um_err err;
        um_config c = small_config(kinds[i].model, path, sizeof(path));
        c.max_num_batched_tokens = 256; /* enough for all engines of the model */
        if (um_model_open(&m, &c, &err)) fail_msg("%s", err.msg);
        int64_t n_taken = 0, n_refused = 0;
        for (int n = 0; n < ENGINES; n++) {
            c = small_config(kinds[i].model, path, sizeof(path));
            fill_small_engine(m, &c, &kinds[i], &n_taken, &n_refused);
        }
        print_message("# %-13s %-9s %lld taken, %lld refused\n", kinds[i].model, kinds[i].strategy[0],
                      (long long)n_taken, (long long)n_refused);
        assert_true(n_taken > 0 && n_refused > 0);
        um_model_close(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_ends_once_and_no_page_is_kept),
        cmocka_unit_test(what_is_taken_ends_on_an_engine_of_any_size),
    };
    return cmocka_run_group_tests_name("pressure", tests, NULL, NULL);
}
