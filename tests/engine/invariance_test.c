/* A request's answer does not depend on its neighbours, the order of arrival, the budget of a step, the pages or the
 * number of threads: greedy and sampled, for every family and strategy at hand. */
#include "support.h"

enum { REQUESTS = 16, PROMPT_MAX = 40 };

typedef struct plan {
    int32_t prompt[PROMPT_MAX], n_prompt, max_tokens, blocks, block_size;
    float temperature, top_p;
    int64_t seed;
    bool full;
    uint32_t sampler; /* of full */
    float cfg, alg_temp;
} plan;

static uint32_t draw(uint64_t seed, uint64_t *counter, uint32_t below) {
    return (uint32_t)(um_rng_u64(seed, (*counter)++) % below);
}

static plan make_plan(uint64_t seed, uint64_t *c, bool full) {
    plan p = {.full = full};
    p.n_prompt = 1 + (int32_t)draw(seed, c, PROMPT_MAX);
    for (int32_t i = 0; i < p.n_prompt; i++) p.prompt[i] = (int32_t)draw(seed, c, 498);
    p.max_tokens = 1 + (int32_t)draw(seed, c, 32);
    p.blocks = 1 + (int32_t)draw(seed, c, 4);
    p.block_size = 4 << draw(seed, c, 3);
    p.temperature = draw(seed, c, 2) ? 0.0F : 1.0F;
    p.top_p = draw(seed, c, 3) ? 1.0F : 0.8F;
    p.seed = draw(seed, c, 1000);
    p.sampler = draw(seed, c, 8);
    p.alg_temp = draw(seed, c, 2) ? 0.0F : 0.5F;
    p.cfg = draw(seed, c, 2) ? 0.0F : 0.7F;
    return p;
}

static void add(um_engine *e, const plan *p, test_answer *a) {
    um_request r;
    um_err err = {0};
    um_request_init(e, &r);
    r.ids = p->prompt;
    r.n_ids = (size_t)p->n_prompt;
    r.sampling.max_tokens = p->max_tokens;
    r.sampling.temperature = p->temperature;
    r.sampling.top_p = p->top_p;
    r.sampling.seed = p->seed;
    r.decoding.block_size = p->block_size;
    r.decoding.accept_threshold = 0.3F;
    if (p->full) {
        r.decoding.cfg_scale = p->cfg;
        snprintf(r.decoding.sampler, sizeof r.decoding.sampler, "%s", um_samplers[p->sampler]->name);
        r.decoding.alg_temp = p->alg_temp;
    } else r.decoding.buffer_size = p->blocks;
    r.events = UM_EVENT_TEXT;
    r.on_event = test_collect;
    r.arg = a;
    if (um_engine_add(e, &r, NULL, &err)) fail_msg("%s", err.msg);
}

static void check_equal(const test_answer *want, const test_answer *have, const char *what, int i) {
    if (want->n != have->n || memcmp(want->token, have->token, (size_t)want->n * sizeof(int32_t)) != 0 ||
        want->finish != have->finish || want->nfe != have->nfe)
        fail_msg("request %d differs %s: %d tokens in %d passes (%s), alone %d in %d (%s)", i, what, have->n, have->nfe,
                 um_finish_name(have->finish), want->n, want->nfe, um_finish_name(want->finish));
    assert_string_equal(want->text, have->text);
    assert_string_equal(have->text, have->streamed);
}

/* Runs the plans in a random order on an engine of its own kind. */
static void run_shuffled(const um_config *c, const plan *plans, const test_answer *want, uint64_t seed,
                         const char *what) {
    static test_answer have[REQUESTS];
    int order[REQUESTS];
    uint64_t counter = 0;
    test_engine t;
    memset(have, 0, sizeof(have));
    test_open(&t, c);
    for (int i = 0; i < REQUESTS; i++) order[i] = i;
    for (uint32_t i = REQUESTS - 1; i > 0; i--) {
        uint32_t k = draw(seed, &counter, i + 1);
        int swap = order[i];
        order[i] = order[k];
        order[k] = swap;
    }
    for (int i = 0; i < REQUESTS; i++) {
        add(t.engine, &plans[order[i]], &have[order[i]]);
        /* Some arrive while others are already under way. */
        for (uint32_t n = draw(seed, &counter, 3); n > 0; n--) assert_int_equal(um_engine_step(t.engine, NULL), UM_OK);
    }
    test_drain(t.engine);
    um_stats s;
    um_engine_get_stats(t.engine, &s);
    assert_int_equal(s.pages_used, 0);
    for (int i = 0; i < REQUESTS; i++) check_equal(&want[i], &have[i], what, i);
    test_close(&t);
}

static void check_family(const char *name, bool full, const char *dtype) {
    static test_answer want[REQUESTS];
    plan plans[REQUESTS];
    uint64_t seed = test_seed(), counter = 0;
    char path[128];
    um_config c;
    test_engine t;
    memset(want, 0, sizeof(want));
    test_config(&c, name, path, sizeof(path));
    snprintf(c.dtype, sizeof(c.dtype), "%s", dtype);
    c.threads = 1;
    c.page_size = 16;
    test_open(&t, &c);
    for (int i = 0; i < REQUESTS; i++) {
        plans[i] = make_plan(seed, &counter, full);
        add(t.engine, &plans[i], &want[i]);
        test_drain(t.engine);
    }
    test_close(&t);
    run_shuffled(&c, plans, want, seed + 1, "in a batch");
    c.threads = 2;
    run_shuffled(&c, plans, want, seed + 2, "with 2 threads");
    c.threads = 4;
    c.max_num_batched_tokens = 300;
    run_shuffled(&c, plans, want, seed + 3, "with 4 threads and a small budget");
    c.num_pages = 20;
    c.max_num_reqs = 3;
    run_shuffled(&c, plans, want, seed + 4, "with few pages and places");
}

static void sdar_is_invariant(void **state) {
    (void)state;
    check_family("sdar", false, "float32");
}
static void sdar_is_invariant_in_bfloat16(void **state) {
    (void)state;
    check_family("sdar", false, "bfloat16");
}
static void fast_dllm_v2_is_invariant(void **state) {
    (void)state;
    check_family("fast_dllm_v2", false, "float32");
}
static void stable_diffcoder_is_invariant(void **state) {
    (void)state;
    check_family("stable_diffcoder", false, "float32");
}
static void llada_is_invariant(void **state) {
    (void)state;
    check_family("llada", true, "float32");
}
static void llada_is_invariant_in_bfloat16(void **state) {
    (void)state;
    check_family("llada", true, "bfloat16");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sdar_is_invariant),         cmocka_unit_test(sdar_is_invariant_in_bfloat16),
        cmocka_unit_test(fast_dllm_v2_is_invariant), cmocka_unit_test(stable_diffcoder_is_invariant),
        cmocka_unit_test(llada_is_invariant),        cmocka_unit_test(llada_is_invariant_in_bfloat16),
    };
    return cmocka_run_group_tests_name("batch invariance", tests, NULL, NULL);
}
