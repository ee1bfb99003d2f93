/* Tests the stored keys and values of block-causal and causal strategies on the reference backend. For committed
 * positions they must be bit-identical to those of a single pass over the final tokens, also when requests share a
 * batch, are preempted or share pages. */
#include "ops/ref/ref.h"
#include "support.h"

enum { REQUESTS = 6, PAGE = 16, LEN = 160 };

static uint64_t seed, counter;
static int64_t n_preempted, n_found; /* totals of all requests */

static uint32_t draw(uint32_t below) { return (uint32_t)(um_rng_u64(seed, counter++) % below); }

/* A separate forward pass for the expected keys and values, with a page table over its first pages. */
typedef struct fresh {
    um_model *model;
    um_forward *forward;
    int32_t page[LEN / PAGE];
    int64_t compared;
} fresh;

static void open_fresh(fresh *f, const test_engine *t) {
    um_err err;
    f->model = t->model;
    um_forward_config c = {
        .max_tokens = LEN, .max_rows = 1, .n_saved = 1, .page_size = PAGE, .n_pages = LEN / PAGE, .kv_type = UM_F32};
    if (t->model->backend->forward_new(&f->forward, t->model->device, &t->model->net, &c, &err))
        fail_msg("%s", err.msg);
    for (int32_t i = 0; i < LEN / PAGE; i++) f->page[i] = i;
}

/* Stores the first n tokens of the request in one pass. */
static void store_at_once(fresh *f, const um_req *r, int32_t n, um_visibility rule) {
    int32_t pos[LEN], slot[LEN], seen[LEN];
    assert_true(n <= LEN);
    for (int32_t i = 0; i < n; i++) {
        pos[i] = slot[i] = i;
        seen[i] = UM_MIN(um_visible_end(rule, i), n);
    }
    um_span span = {.n = n, .page = f->page, .keys = {0, n}, .adapter = -1};
    um_batch b = {
        .n_tokens = n, .n_spans = 1, .id = r->token, .pos = pos, .slot = slot, .seen_end = seen, .span = &span};
    assert_int_equal(f->model->backend->submit(f->forward, &b, NULL), UM_OK);
    assert_int_equal(f->model->backend->wait(f->forward, NULL), UM_OK);
}

static void compare(fresh *f, const um_engine *e, const um_sequence *j) {
    const um_kv *have = um_host_kv(e->forward), *want = um_host_kv(f->forward);
    size_t row = (size_t)want->shape.n_kv_heads * (size_t)want->shape.head_dim * sizeof(float);
    for (int32_t layer = 0; layer < want->shape.n_layers; layer++) {
        for (int32_t p = 0; p < j->req.stored; p++) {
            int64_t slot = (int64_t)j->table[0].page[p / PAGE] * PAGE + p % PAGE;
            size_t a = um_ref_kv_at(have, layer, slot), b = um_ref_kv_at(want, layer, p);
            if (memcmp(have->key + a, want->key + b, row) != 0 || memcmp(have->value + a, want->value + b, row) != 0)
                fail_msg("%s: layer %d, position %d of %d stored: keys or values differ, seed %llu",
                         j->req.strategy->name, layer, p, j->req.stored, (unsigned long long)seed);
            f->compared++;
        }
    }
}

static void check_running(fresh *f, const um_engine *e) {
    for (int32_t i = 0; i < e->n_running; i++) {
        const um_sequence *j = e->running[i];
        const um_decoding *d = &j->req.how;
        int32_t block =
            um_streq(j->req.strategy->name, "fast_dllm_v2") ? d->block_size * d->buffer_size : d->block_size;
        const bool is_causal = e->model->arch.see == UM_SEE_CAUSAL;
        um_visibility rule = {.see = is_causal ? UM_SEE_CAUSAL : UM_SEE_BLOCK_CAUSAL, .block = block};
        if (um_streq(j->req.strategy->name, "d2f")) rule.anchor = j->req.n_prompt;
        if (j->req.stored == 0) continue;
        store_at_once(f, &j->req, j->req.stored, rule);
        compare(f, e, j);
    }
}

static void add(um_engine *e, const char *strategy, const char *sampler) {
    um_request r;
    um_err err;
    int32_t ids[64];
    um_request_init(e, &r);
    r.n_ids = 1 + draw(60);
    for (size_t i = 0; i < r.n_ids; i++) ids[i] = (int32_t)(draw(40) ? 7 * i + 3 : draw(480));
    r.ids = ids;
    r.sampling.max_tokens = 10 + (int32_t)draw(40);
    r.sampling.temperature = (float)draw(2);
    r.sampling.ignore_eos = true;
    r.decoding.block_size = UM_MAX(4 << draw(2), e->traits.route_block);
    r.decoding.buffer_size = 2 + (int32_t)draw(2);
    r.decoding.accept_threshold = 0.05F;
    r.decoding.max_post_edit_steps = 3;
    /* dmax: with 0, blocks end while their last tokens are still fed as blends. */
    r.decoding.commit_confidence = draw(2) ? 0 : 0.9F;
    snprintf(r.decoding.strategy, sizeof(r.decoding.strategy), "%s", strategy);
    snprintf(r.decoding.sampler, sizeof(r.decoding.sampler), "%s", sampler);
    test_drop_unread(&r.decoding);
    if (um_engine_add(e, &r, NULL, &err)) fail_msg("%s", err.msg);
}

static void check_strategy(const char *model, const char *strategy, const char *sampler) {
    char path[128];
    um_config c;
    test_engine t;
    fresh f = {0};
    um_stats s;
    test_config(&c, model, path, sizeof(path));
    snprintf(c.device, sizeof(c.device), "ref");
    c.page_size = PAGE;
    c.num_pages = 30;
    c.max_num_reqs = 4;
    c.max_num_batched_tokens = 200;
    test_open(&t, &c);
    open_fresh(&f, &t);
    for (int i = 0; i < REQUESTS; i++) add(t.engine, strategy, sampler);
    for (int n = 0; um_engine_pending(t.engine); n++) {
        assert_int_equal(um_engine_step(t.engine, NULL), UM_OK);
        if (n % 4 == 0) check_running(&f, t.engine);
        if (t.engine->n_running && draw(12) == 0) {
            um_sequence *j = t.engine->running[draw((uint32_t)t.engine->n_running)];
            j->in_pass = false;
            um_schedule_preempt(t.engine, j);
        }
    }
    print_message("# %-16s %-12s %lld rows equal\n", model, strategy, (long long)f.compared);
    assert_true(f.compared > 0);
    um_engine_get_stats(t.engine, &s);
    n_preempted += s.preemptions;
    n_found += s.prefix_hits;
    f.model->backend->forward_free(f.forward);
    test_close(&t);
}

static void stored_keys_are_those_of_the_final_tokens(void **state) {
    (void)state;
    seed = test_seed();
    check_strategy("sdar", "multi_bd", "confidence");
    check_strategy("sdar_moe", "multi_bd", "credit");
    check_strategy("dream_reasoner", "multi_bd", "confidence");
    check_strategy("stable_diffcoder", "multi_bd", "static");
    check_strategy("llada2", "multi_bd", "edit");
    check_strategy("llada2", "dmax", "dmax");
    check_strategy("families/llada22/models/llada22_a", "levenshtein", "auto");
    check_strategy("families/llada22/models/llada22_a", "joint_indel", "auto");
    check_strategy("fast_dllm_v2", "multi_bd", "confidence");
    check_strategy("fast_dllm_v2", "fast_dllm_v2", "confidence");
    check_strategy("llada", "d2f", "confidence");
    check_strategy("dream", "d2f", "confidence");
    check_strategy("families/wedlm/models/wedlm_7b", "causal_window", "auto");
    check_strategy("families/wedlm/models/wedlm_8b", "causal_window", "confidence");
    assert_true(n_preempted > 0 && n_found > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(stored_keys_are_those_of_the_final_tokens)};
    return cmocka_run_group_tests_name("stored keys", tests, NULL, NULL);
}
