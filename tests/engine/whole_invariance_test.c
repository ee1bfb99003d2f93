/* Tests of whole-sequence strategies: an answer does not depend on other requests in the batch, on the size of steps
 * and pages, on threads, or on preemptions. */
#include <math.h>

#include "support.h"

enum { REQUESTS = 14, PROMPT_MAX = 30, SUFFIX_MAX = 9, PAGES = 40 };

typedef struct plan {
    int32_t prompt[PROMPT_MAX], n_prompt, max_tokens;
    int32_t suffix[SUFFIX_MAX], n_suffix;
    um_decoding how;
    float temperature;
    int64_t seed;
} plan;

static uint32_t draw(uint64_t seed, uint64_t *counter, uint32_t below) {
    return (uint32_t)(um_rng_u64(seed, (*counter)++) % below);
}

static plan make_plan(const um_config *c, uint64_t seed, uint64_t *n) {
    static const char *const strategies[] = {"full", "prefix_cache", "dual_cache", "sparse", "sparse"};
    static const char *const samplers[] = {"low_confidence", "confidence", "random", "entropy",
                                           "origin",         "factor",     "credit", "dynamic"};
    static const float ratios[] = {0.05F, 0.3F, 0.5F, 1};
    plan p = {.how = c->decoding};
    um_decoding *d = &p.how;
    p.n_prompt = 1 + (int32_t)draw(seed, n, PROMPT_MAX);
    for (int32_t i = 0; i < p.n_prompt; i++) p.prompt[i] = (int32_t)draw(seed, n, 498);
    p.n_suffix = draw(seed, n, 3) ? 0 : 1 + (int32_t)draw(seed, n, SUFFIX_MAX);
    for (int32_t i = 0; i < p.n_suffix; i++) p.suffix[i] = (int32_t)draw(seed, n, 498);
    p.max_tokens = 1 + (int32_t)draw(seed, n, 24);
    p.temperature = draw(seed, n, 2) ? 0.0F : 1.0F;
    p.seed = draw(seed, n, 1000);
    snprintf(d->strategy, sizeof d->strategy, "%s", strategies[draw(seed, n, UM_LEN(strategies))]);
    snprintf(d->sampler, sizeof d->sampler, "%s", samplers[draw(seed, n, UM_LEN(samplers))]);
    d->accept_threshold = 0.3F;
    d->remask_threshold = draw(seed, n, 3) ? NAN : 0.2F;
    d->cfg_scale = draw(seed, n, 4) ? 0.0F : 0.7F;
    d->block_size = 4 << draw(seed, n, 3);
    d->retention_ratio = ratios[draw(seed, n, UM_LEN(ratios))];
    d->delay_step = (int32_t)draw(seed, n, (uint32_t)UM_MIN(4, UM_MIN(p.max_tokens, d->block_size)));
    d->head_select = draw(seed, n, 2);
    d->sparse = draw(seed, n, 6) > 0;
    test_drop_unread(d);
    return p;
}

static void add(um_engine *e, const plan *p, test_answer *a) {
    um_request r;
    um_err err = {0};
    um_request_init(e, &r);
    r.ids = p->prompt;
    r.n_ids = (size_t)p->n_prompt;
    r.suffix = p->suffix;
    r.n_suffix = (size_t)p->n_suffix;
    r.decoding = p->how;
    r.sampling.max_tokens = p->max_tokens;
    r.sampling.temperature = p->temperature;
    r.sampling.seed = p->seed;
    r.events = UM_EVENT_TEXT;
    r.on_event = test_collect;
    r.arg = a;
    if (um_engine_add(e, &r, NULL, &err)) fail_msg("%s", err.msg);
}

static void check_equal(const plan *p, const test_answer *want, const test_answer *have, const char *what) {
    const um_decoding *d = &p->how;
    if (want->n != have->n || memcmp(want->token, have->token, (size_t)want->n * sizeof(int32_t)) != 0 ||
        want->finish != have->finish || want->nfe != have->nfe)
        fail_msg("%s with %s, blocks of %d, guidance %g, remasking below %g, delay %d, suffix of %d: another answer "
                 "%s: %d tokens in "
                 "%d passes, alone %d in %d",
                 d->strategy, d->sampler, d->block_size, (double)d->cfg_scale, (double)d->remask_threshold,
                 d->delay_step, p->n_suffix, what, have->n, have->nfe, want->n, want->nfe);
    assert_string_equal(want->text, have->text);
}

static void configure(um_config *c, const char *name, const char *dtype, char *path, size_t path_size) {
    test_config(c, name, path, path_size);
    snprintf(c->dtype, sizeof(c->dtype), "%s", dtype);
    c->threads = 1;
    c->page_size = 16;
}

static void run_together(const um_config *c, const plan *plans, const test_answer *want, uint64_t seed,
                         const char *what) {
    static test_answer have[REQUESTS];
    uint64_t counter = 0;
    test_engine t;
    um_stats s;
    memset(have, 0, sizeof(have));
    test_open(&t, c);
    for (int i = 0; i < REQUESTS; i++) {
        add(t.engine, &plans[i], &have[i]);
        for (uint32_t n = draw(seed, &counter, 3); n > 0; n--) assert_int_equal(um_engine_step(t.engine, NULL), UM_OK);
    }
    test_drain(t.engine);
    um_engine_get_stats(t.engine, &s);
    assert_int_equal(s.pages_used, 0);
    for (int i = 0; i < REQUESTS; i++) check_equal(&plans[i], &want[i], &have[i], what);
    test_close(&t);
}

/* Overwrites the keys in every page of the engine. */
static void overwrite_pages(um_engine *e) {
    enum { N = PAGES * 16 };
    static int32_t id[N], pos[N], end[N], page[PAGES];
    um_span span = {.n = N, .page = page, .keys = {0, N}, .adapter = -1};
    um_batch b = {.n_tokens = N, .n_spans = 1, .id = id, .pos = pos, .slot = pos, .seen_end = end, .span = &span};
    for (int32_t i = 0; i < PAGES; i++) page[i] = i;
    for (int32_t i = 0; i < N; i++) {
        id[i] = i % 400;
        pos[i] = i;
        end[i] = N;
    }
    assert_int_equal(e->model->backend->submit(e->forward, &b, NULL), UM_OK);
    assert_int_equal(e->model->backend->wait(e->forward, NULL), UM_OK);
}

/* Runs a request, and preempts it after each step whose bit in `when` is set. Its former pages are overwritten. */
static void run_disturbed(um_engine *e, const plan *p, const test_answer *want, uint64_t when, const char *what) {
    static test_answer have;
    memset(&have, 0, sizeof(have));
    add(e, p, &have);
    for (int step = 0; um_engine_pending(e); step++) {
        assert_int_equal(um_engine_step(e, NULL), UM_OK);
        /* After a pass that only recomputes lost keys there is no preemption, else the request would never advance. */
        if (!(when >> step % 64 & 1) || e->n_running == 0 || e->running[0]->partial) continue;
        um_schedule_preempt(e, e->running[0]);
        overwrite_pages(e);
    }
    check_equal(p, want, &have, what);
}

static void check_family(const char *name, const char *dtype) {
    static test_answer want[REQUESTS];
    plan plans[REQUESTS];
    uint64_t seed = test_seed(), counter = 0;
    char path[128];
    um_config c;
    test_engine t;
    memset(want, 0, sizeof(want));
    configure(&c, name, dtype, path, sizeof(path));
    test_open(&t, &c);
    for (int i = 0; i < REQUESTS; i++) {
        plans[i] = make_plan(&c, seed, &counter);
        add(t.engine, &plans[i], &want[i]);
        test_drain(t.engine);
        assert_true(want[i].done);
    }
    test_close(&t);
    run_together(&c, plans, want, seed + 1, "in a batch");
    c.threads = 2;
    c.max_num_batched_tokens = 150;
    run_together(&c, plans, want, seed + 2, "with 2 threads and a small budget");
    c.max_num_reqs = 3;
    c.page_size = 8;
    c.max_num_batched_tokens = 1024;
    c.num_pages = 2 * UM_CEIL_DIV(PROMPT_MAX + 24 + SUFFIX_MAX, 8) + 2;
    run_together(&c, plans, want, seed + 3, "with few pages and places");
    configure(&c, name, dtype, path, sizeof(path));
    c.num_pages = PAGES;
    test_open(&t, &c);
    for (int i = 0; i < REQUESTS; i++) {
        run_disturbed(t.engine, &plans[i], &want[i], UINT64_MAX, "when its pages are taken away before every pass");
        run_disturbed(t.engine, &plans[i], &want[i], um_rng_u64(seed, counter++), "when its pages are taken away");
    }
    test_close(&t);
}

static void llada_is_invariant(void **state) {
    (void)state;
    check_family("llada", "float32");
}
static void llada_is_invariant_in_bfloat16(void **state) {
    (void)state;
    check_family("llada", "bfloat16");
}
static void dream_is_invariant(void **state) {
    (void)state;
    check_family("dream", "float32");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llada_is_invariant),
        cmocka_unit_test(llada_is_invariant_in_bfloat16),
        cmocka_unit_test(dream_is_invariant),
    };
    return cmocka_run_group_tests_name("invariance over whole sequences", tests, NULL, NULL);
}
