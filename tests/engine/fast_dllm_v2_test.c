/* Tests of fast_dllm_v2 in the engine: an answer is the same alone and beside others, with a prompt that is stored in
 * chunks, after a preemption, and with a prefix that another request stored. */
#include <math.h>

#include "support.h"

enum { REQUESTS = 12, PROMPT_MAX = 80 };

typedef struct plan {
    int32_t prompt[PROMPT_MAX], n_prompt, max_tokens, block_size;
    bool block_cache, ignore_eos;
    float temperature, remask;
} plan;

static uint32_t draw(uint64_t seed, uint64_t *c, uint32_t below) {
    return (uint32_t)(um_rng_u64(seed, (*c)++) % below);
}

/* All prompts have the same first tokens, and some end with a block. The first two requests grow from 3 to 5 pages. */
static plan make_plan(uint64_t seed, uint64_t *c, int i) {
    plan p = {.ignore_eos = i < 2};
    p.n_prompt = i >= 2 && draw(seed, c, 4) ? 1 + (int32_t)draw(seed, c, PROMPT_MAX) : 64;
    for (int32_t k = 0; k < p.n_prompt; k++) p.prompt[k] = k < 40 ? k : (int32_t)draw(seed, c, 498);
    p.max_tokens = i < 2 ? 70 : 1 + (int32_t)draw(seed, c, 70);
    p.block_size = draw(seed, c, 2) ? 8 : 16;
    p.block_cache = draw(seed, c, 4) != 0;
    p.temperature = draw(seed, c, 2) ? 0.0F : 1.0F;
    p.remask = draw(seed, c, 3) ? NAN : 0.3F;
    return p;
}

static void add(um_engine *e, const plan *p, int64_t seed, test_answer *a) {
    um_request r;
    um_err err = {0};
    um_request_init(e, &r);
    r.ids = p->prompt;
    r.n_ids = (size_t)p->n_prompt;
    r.sampling.max_tokens = p->max_tokens;
    r.sampling.temperature = p->temperature;
    r.sampling.seed = seed;
    r.sampling.ignore_eos = p->ignore_eos;
    r.decoding.block_size = p->block_size; /* the automatic buffer_size gives blocks of 32 positions */
    r.decoding.block_cache = p->block_cache;
    r.decoding.accept_threshold = 0.5F;
    r.decoding.remask_threshold = p->remask;
    r.events = UM_EVENT_TEXT;
    r.on_event = test_collect;
    r.arg = a;
    *a = (test_answer){0};
    if (um_engine_add(e, &r, NULL, &err)) fail_msg("%s", err.msg);
}

static void check_equal(const test_answer *want, const test_answer *have, const char *what, int i) {
    if (want->n != have->n || memcmp(want->token, have->token, (size_t)want->n * sizeof(int32_t)) != 0 ||
        want->finish != have->finish || want->nfe != have->nfe)
        fail_msg("request %d differs %s: %d tokens in %d passes (%s), alone %d in %d (%s)", i, what, have->n, have->nfe,
                 um_finish_name(have->finish), want->n, want->nfe, um_finish_name(want->finish));
    assert_string_equal(want->text, have->streamed);
}

/* Runs all requests at once on an engine with this configuration. */
static um_stats run_together(const um_config *c, const plan *plans, const test_answer *want, const char *what) {
    static test_answer have[REQUESTS];
    test_engine t;
    um_stats stats;
    test_open(&t, c);
    for (int i = 0; i < REQUESTS; i++) add(t.engine, &plans[i], i, &have[i]);
    test_drain(t.engine);
    um_engine_get_stats(t.engine, &stats);
    test_close(&t);
    for (int i = 0; i < REQUESTS; i++) check_equal(&want[i], &have[i], what, i);
    return stats;
}

static void the_answer_is_the_same_however_it_is_scheduled(void **state) {
    (void)state;
    static test_answer want[REQUESTS];
    plan plans[REQUESTS];
    uint64_t seed = test_seed(), counter = 0;
    char path[128];
    um_config c;
    test_engine t;
    test_config(&c, "fast_dllm_v2", path, sizeof(path));
    c.disable_prefix_caching = true;
    for (int i = 0; i < REQUESTS; i++) {
        plans[i] = make_plan(seed, &counter, i);
        test_open(&t, &c);
        add(t.engine, &plans[i], i, &want[i]);
        test_drain(t.engine);
        test_close(&t);
    }
    (void)run_together(&c, plans, want, "beside others");
    c.max_num_batched_tokens = 32;
    (void)run_together(&c, plans, want, "in chunks");
    c.max_num_batched_tokens = 400;
    c.num_pages = 7;
    um_stats s = run_together(&c, plans, want, "with few pages");
    assert_true(s.preemptions > 0);
    c.disable_prefix_caching = false;
    (void)run_together(&c, plans, want, "with few pages that are shared");
    c.num_pages = -1;
    c.max_num_reqs = 2;
    s = run_together(&c, plans, want, "with a shared prefix");
    assert_true(s.prefix_hits > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_answer_is_the_same_however_it_is_scheduled)};
    return cmocka_run_group_tests_name("fast_dllm_v2 in the engine", tests, NULL, NULL);
}
