/* A request's answer does not depend on its schedule: tests of every block strategy with every sampler, on a made-up
 * model in which each prediction depends on every key that it sees. Requests run alone, in chunks of one block, with
 * their pages taken away after any pass, and on the stored prefix of another request. The answers are checked against
 * the limits.
 *
 * The tests print their seed. UM_TEST_SEED sets it. */
#include "decode_script.h"

enum { LONGEST = 30 };

/* A random request, determined by the seed. */
typedef struct recipe {
    uint64_t seed;
    const um_strategy *strategy;
    const um_sampler *sampler;
    bool compat;
    int32_t prompt[LONGEST];
} recipe;

static int32_t draw(const recipe *x, uint64_t what, int32_t n) {
    return (int32_t)(um_rng_u64(x->seed, what) % (uint64_t)n);
}
static float pick(const recipe *x, uint64_t what, const float *list, int32_t n) { return list[draw(x, what, n)]; }

static void set_up_recipe(bench *b, recipe *x) {
    static const float shares[] = {0, .1F, .5F, .9F, 1}, thresholds[] = {.2F, .5F, .9F, 1};
    for (int32_t i = 0; i < LONGEST; i++) {
        x->prompt[i] = 1 + draw(x, 100 + (uint64_t)i, 7);
        if (draw(x, 200 + (uint64_t)i, 9) == 0) x->prompt[i] = i % 2 ? MASK : EOS; /* prompts may contain these ids */
    }
    int32_t B = 1 + draw(x, 0, 6);
    set_up(b, x->strategy, x->prompt, 1 + draw(x, 1, LONGEST), B, 1 + draw(x, 2, 4));
    b->model = made_up;
    b->seed = x->seed;
    b->max_len = 40 + draw(x, 3, 20);
    b->traits.shift = is_causal(x->strategy) || is_indel(x->strategy) ? 0 : draw(x, 4, 2);
    b->how.causal_context = draw(x, 35, 3) > 0;
    b->how.draft_threshold = draw(x, 36, 2) ? 0 : .3F;
    if (x->strategy == &um_strategy_fast_dllm_v2) {
        b->traits.shift = 1;
        b->how.buffer_size++;
    }
    b->traits.always_forced = draw(x, 5, 4) == 0;
    b->sampling.max_tokens = 1 + draw(x, 6, 30);
    b->sampling.max_nfe = draw(x, 7, 4) ? 0 : 1 + draw(x, 8, 10);
    b->sampling.max_repetition_run = draw(x, 9, 4) ? 0 : 2 + draw(x, 10, 3);
    b->sampling.ignore_eos = draw(x, 11, 3) == 0;
    b->sampling.temperature = draw(x, 12, 2) ? 0 : .7F;
    b->sampling.min_tokens = draw(x, 13, 3) ? 0 : 5;
    b->sampling.repetition_penalty = draw(x, 14, 3) ? 1 : 1.3F;
    b->sampling.presence_penalty = draw(x, 15, 3) ? 0 : .5F;
    b->n_top = draw(x, 34, 4);
    um_decoding *d = &b->how;
    d->accept_threshold = pick(x, 16, thresholds, UM_LEN(thresholds));
    d->low_threshold = d->accept_threshold / 2;
    d->add_block_threshold = pick(x, 17, shares, UM_LEN(shares));
    d->semi_complete_threshold = pick(x, 18, shares, UM_LEN(shares));
    d->token_stability_threshold = draw(x, 19, 3) ? 0 : pick(x, 20, shares, UM_LEN(shares));
    const bool keeps = x->sampler->edits || x->strategy == &um_strategy_causal_window;
    d->remask_threshold = keeps || draw(x, 21, 2) ? NAN : pick(x, 22, thresholds, UM_LEN(thresholds));
    d->confidence = draw(x, 23, 3);
    d->denoising_steps = draw(x, 24, 2) ? 0 : 1 + draw(x, 25, 5);
    d->entropy_threshold = draw(x, 37, 3) ? .2F * (float)draw(x, 38, 10) : NAN;
    d->position_penalty = draw(x, 39, 2) ? .02F : 0;
    d->edit_threshold = pick(x, 26, shares, UM_LEN(shares));
    d->max_post_edit_steps = draw(x, 27, 4);
    d->max_steps_per_block = draw(x, 40, 2) ? 1 + draw(x, 41, 6) : 20;
    d->penalty_lambda = draw(x, 28, 2) ? 0 : 1.5F;
    d->token_merge_mode = draw(x, 29, 2) ? UM_MERGE_DMAX : UM_MERGE_ITER_SMOOTH;
    d->token_merge_top_k = 1 + draw(x, 30, 4);
    d->token_merge_weight = draw(x, 31, 4) ? 1 : 0;
    d->dmax_fast_path = draw(x, 32, 2);
    d->clean_commit = draw(x, 33, 2);
    choose_sampler(b, x->sampler->name);
    if (!x->compat) return;
    set_compat(b);
    b->sampling.max_nfe = 60; /* under compat a block may wait for ever */
}

/* ---- Every pair -------------------------------------------------------------------------------------------------- */

static uint64_t first_seed(void) {
    const char *s = getenv("UM_TEST_SEED");
    return s ? strtoull(s, NULL, 0) : (uint64_t)um_rng_seed();
}

/* Runs f with n random requests for every block strategy and every sampler that it supports. */
static void each_pair(const char *what, int32_t n, bool compat, void (*f)(recipe *x)) {
    static const um_strategy *const strategies[] = {
        &um_strategy_multi_bd,         &um_strategy_d2f,         &um_strategy_dmax,
        &um_strategy_fast_dllm_v2,     &um_strategy_seeded_bd,   &um_strategy_autoregressive,
        &um_strategy_self_speculation, &um_strategy_levenshtein, &um_strategy_joint_indel,
        &um_strategy_causal_window};
    uint64_t seed = first_seed();
    print_message("%s: UM_TEST_SEED=%llu\n", what, (unsigned long long)seed);
    int32_t pairs = 0;
    for (size_t i = 0; i < UM_LEN(strategies); i++) {
        for (const um_sampler *const *s = um_samplers; *s; s++) {
            bench b;
            um_err err;
            recipe x = {.seed = seed, .strategy = strategies[i], .sampler = *s, .compat = compat};
            set_up_recipe(&b, &x);
            if (try_start(&b, &err) != UM_OK) {
                /* The strategy does not support the sampler. */
                assert_int_equal(err.code, UM_EUNSUPPORTED);
                continue;
            }
            end(&b);
            pairs++;
            for (int32_t k = 0; k < n; k++) {
                x.seed = um_rng_key(seed, (uint64_t)k, i, (uint64_t)(s - um_samplers));
                f(&x);
            }
        }
    }
    assert_true(pairs >= 20);
}

static _Noreturn void complain(const recipe *x, const char *what) {
    fail_msg("%s with %s, request %llu: %s", x->strategy->name, x->sampler->name, (unsigned long long)x->seed, what);
    abort();
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

/* Ids that edit are no part of an answer, and the likeliest ids are those of the pass that wrote the token. */
static void check_moved(const recipe *x, const bench *b, int32_t p) {
    const um_req *r = &b->req;
    bool found = false;
    if (r->token[p] == DELETE || r->token[p] == SPLIT) complain(x, "an id that edits in the answer");
    if (r->written[p] < 1 || r->written[p] > r->nfe) complain(x, "a token of no pass");
    for (int32_t k = 0; k < r->n_top; k++) {
        const um_top *t = &r->top[p * r->n_top + k];
        if (t->id == MASK || t->id == DELETE || t->id == SPLIT) complain(x, "an id that edits among the likeliest");
        found |= t->id == r->token[p];
        if (t->id == r->token[p] && logf(t->p) != b->logprob[p]) complain(x, "the probability of another pass");
    }
    const bool is_likely = x->strategy == &um_strategy_levenshtein && b->sampling.temperature == 0;
    if (is_likely && r->n_top == 3 && !found) complain(x, "the likeliest ids of another token");
}

static void check_answer(const recipe *x, const bench *b) {
    const um_req *r = &b->req;
    for (int32_t i = 0; i < r->n_prompt; i++)
        if (r->token[i] != x->prompt[i]) complain(x, "the prompt was written to");
    /* An answer of Diffulex ends at the end of sequence, even if that lies behind the limit in a running block. */
    if (!x->compat && r->n_prompt + r->n_answer > r->limit) complain(x, "the answer is too long");
    for (int32_t i = 0; i < r->n_answer; i++) {
        int32_t p = r->n_prompt + i;
        if (um_req_masked(r, p) || r->token[p] == MASK) complain(x, "a mask in the answer");
        if (!(b->logprob[p] <= 0) || (r->top && r->top[p * r->n_top].id < 0))
            complain(x, "a token without its probability");
        if (!b->sampling.ignore_eos && r->token[p] == EOS) complain(x, "an end of sequence in the answer");
        if (is_indel(x->strategy)) check_moved(x, b, p);
    }
}

static void check_finish(const recipe *x, const bench *b) {
    const um_req *r = &b->req;
    int32_t last = r->n_prompt + r->n_answer;
    switch (r->finish) {
    case UM_FINISH_MAX_TOKENS:
        if (r->n_answer != b->sampling.max_tokens) complain(x, "max_tokens was not reached");
        break;
    case UM_FINISH_MAX_LEN:
        if (last != b->max_len) complain(x, "max_len was not reached");
        break;
    case UM_FINISH_EOS:
        if (r->token[last] != EOS || r->stop_id != EOS) complain(x, "no end of sequence behind the answer");
        if (r->n_answer < b->sampling.min_tokens) complain(x, "the answer is shorter than min_tokens");
        break;
    case UM_FINISH_MAX_NFE:
        if (r->nfe != b->sampling.max_nfe) complain(x, "max_nfe was not reached");
        break;
    case UM_FINISH_REPETITION:
        for (int32_t i = 1; i < b->sampling.max_repetition_run; i++)
            if (r->token[last - 1 - i] != r->token[last - 1]) complain(x, "no run of equal tokens");
        break;
    default: complain(x, "no reason to finish");
    }
    /* The window of causal_window and the last block of LLaDA2.2 reach beyond the limit. */
    const bool beyond = r->strategy == &um_strategy_causal_window || is_indel(x->strategy);
    for (int32_t p = r->limit; p < r->cap && !beyond; p++)
        if (!um_req_masked(r, p)) complain(x, "a token behind the limit");
}

static void check_blocks(const recipe *x, const bench *b) {
    const um_req *r = &b->req;
    const um_buffer *k = &((const um_blocks *)r->state)->buffer;
    for (int32_t i = 0; i < k->n; i++) {
        int32_t masks = 0;
        for (int32_t p = k->block[i].start; p < UM_MIN(k->block[i].start + k->block_len, k->limit); p++)
            masks += um_req_masked(r, p);
        if (masks != k->block[i].n_masks) complain(x, "a block's masks were miscounted");
        if (i > 0 && k->block[i].status > k->block[i - 1].status) complain(x, "blocks are out of order");
        if ((k->block[i].status == UM_BLOCK_DUMMY) != (i >= k->run)) complain(x, "running blocks were miscounted");
    }
}

/* Runs a pass. Checks that settled tokens stay and the blocks of the buffer keep their order. */
static void step_watched(const recipe *x, bench *b) {
    int32_t before[CAP], filled = b->req.filled;
    memcpy(before, b->token, sizeof before);
    step(b);
    if (b->req.filled < filled) complain(x, "settled text went back");
    for (int32_t p = 0; p < filled; p++)
        if (b->token[p] != before[p]) complain(x, "settled text changed");
    if (x->strategy->plan == um_blocks_plan) check_blocks(x, b);
}

static void run_one(recipe *x) {
    bench b;
    set_up_recipe(&b, x);
    start(&b);
    for (int32_t i = 0; !b.req.finish; i++) {
        if (i > 40 * CAP) complain(x, "it never ends");
        step_watched(x, &b);
    }
    check_answer(x, &b);
    if (!x->compat) check_finish(x, &b);
    end(&b);
}

static void limits_are_exact_and_no_mask_leaves(void **state) {
    (void)state;
    each_pair("limits", 60, false, run_one);
}

static void compat_lets_no_mask_out_either(void **state) {
    (void)state;
    each_pair("limits under compat", 30, true, run_one);
}

/* ---- Schedules --------------------------------------------------------------------------------------------------- */

static void check_same(const recipe *x, const bench *a, const bench *b) {
    const um_req *p = &a->req, *q = &b->req;
    if (p->finish != q->finish || p->n_answer != q->n_answer) complain(x, "another end");
    if (p->nfe != q->nfe) complain(x, "other passes");
    if (x->strategy->plan == um_blocks_plan && p->prefill_passes != q->prefill_passes) complain(x, "other prefills");
    if (memcmp(a->token, b->token, (size_t)p->cap * sizeof(int32_t)) != 0) complain(x, "other tokens");
    if (memcmp(a->written, b->written, (size_t)p->cap * sizeof(int32_t)) != 0) complain(x, "written in other passes");
    if (memcmp(a->logprob, b->logprob, sizeof a->logprob) != 0) complain(x, "other probabilities");
    if (memcmp(a->kept, b->kept, sizeof a->kept) != 0) complain(x, "other likeliest ids");
    for (int32_t i = 0; i < UM_MIN(p->stored, q->stored); i++)
        if (a->key[i].embedding != b->key[i].embedding || a->key[i].hidden != b->key[i].hidden)
            complain(x, "other keys are stored");
}

/* Runs a request in steps of `budget` tokens and takes its pages away after pass `at`. */
static void run_and_lose_pages(const recipe *x, bench *b, int32_t at, int32_t budget) {
    b->budget = budget;
    start(b);
    bool done = false;
    for (int32_t i = 0; !b->req.finish; i++) {
        if (i > 40 * CAP) complain(x, "it never ends");
        if (!done && b->req.nfe == at && at > 0) {
            take_pages_away(b);
            done = true;
        }
        step(b);
    }
}

static void lose_pages_after_each_pass(recipe *x) {
    bench alone, b;
    set_up_recipe(&alone, x);
    start(&alone);
    run_to_end(&alone);
    for (int32_t at = 0; at < alone.req.nfe; at++) {
        for (int32_t budget = 0; budget <= 1; budget++) {
            set_up_recipe(&b, x);
            run_and_lose_pages(x, &b, at, budget ? 1 + draw(x, 50, 12) : 0);
            check_same(x, &alone, &b);
            end(&b);
        }
    }
    end(&alone);
}

static void pages_may_go_after_any_pass(void **state) {
    (void)state;
    each_pair("lost pages", 12, false, lose_pages_after_each_pass);
}

static void compat_pages_may_go_after_any_pass(void **state) {
    (void)state;
    each_pair("lost pages under compat", 6, true, lose_pages_after_each_pass);
}

/* Feeds one block a pass and takes the pages away at random, even right after a chunk was stored. */
static void lose_pages_at_random(recipe *x) {
    bench alone, b;
    set_up_recipe(&alone, x);
    start(&alone);
    run_to_end(&alone);
    set_up_recipe(&b, x);
    b.budget = 1;
    start(&b);
    for (int32_t i = 0; !b.req.finish; i++) {
        if (i > 40 * CAP) complain(x, "it never ends");
        if (um_rng_u64(x->seed, 1000 + (uint64_t)i) % 12 == 0) take_pages_away(&b);
        int32_t nfe = b.req.nfe;
        step(&b);
        if (b.req.nfe != nfe + !b.pass.partial) complain(x, "a chunk counted as a pass");
    }
    check_same(x, &alone, &b);
    end(&alone);
    end(&b);
}

static void chunks_and_lost_pages_change_nothing(void **state) {
    (void)state;
    each_pair("chunks", 20, false, lose_pages_at_random);
}

/* Chunks end at blocks: with room for one block, a partial pass stores each block of the prompt. */
static void a_prompt_is_stored_block_by_block(void **state) {
    (void)state;
    static const int32_t prompt[] = {1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6, 7};
    bench b;
    set_up(&b, &um_strategy_multi_bd, prompt, 14, 4, 1);
    b.budget = 1;
    start(&b);
    for (int32_t i = 1; i <= 3; i++) {
        assert_int_equal(b.strategy->need(&b.req).least, 4);
        step(&b);
        assert_true(b.pass.partial);
        assert_int_equal(b.seg[0].kind, PREFILL);
        assert_int_equal(b.req.stored, 4 * i);
        assert_int_equal(b.req.nfe, 0);
    }
    step(&b);
    assert_false(b.pass.partial);
    assert_int_equal(b.req.nfe, 1);
    assert_int_equal(b.req.n_new, 1);
    end(&b);
}

/* A chunk is as many whole blocks as fit. */
static void a_chunk_takes_the_blocks_that_fit(void **state) {
    (void)state;
    int32_t prompt[40];
    for (int32_t i = 0; i < 40; i++) prompt[i] = 1 + i % 7;
    bench b;
    set_up(&b, &um_strategy_multi_bd, prompt, 40, 4, 1);
    b.budget = 15;
    start(&b);
    step(&b);
    assert_int_equal(b.pass.n_tokens, 12);
    step(&b);
    assert_int_equal(b.req.stored, 24);
    b.budget = 20;
    step(&b); /* feeds the last 16 of the prompt and the first block */
    assert_false(b.pass.partial);
    assert_int_equal(b.pass.n_tokens, 20);
    end(&b);
}

/* ---- Shared prefixes --------------------------------------------------------------------------------------------- */

/* Starts a second request with the same prompt on the keys that the first one stored. */
static void start_on_a_prefix(recipe *x) {
    bench first, b;
    int32_t most = 0;
    set_up_recipe(&first, x);
    start(&first);
    run_to_end(&first);
    set_up_recipe(&b, x);
    start(&b);
    uint64_t kind = x->strategy->share(&b.req, &most);
    if (most > first.req.stored || (most > b.n_prompt)) complain(x, "more is shared than is stored");
    if (kind) most -= draw(x, 60, 2) * UM_MIN(most, b.how.block_size); /* sometimes one block less */
    memcpy(b.key, first.key, (size_t)most * sizeof(key));
    b.req.stored = most;
    while (!b.req.finish) step(&b);
    check_same(x, &first, &b);
    end(&first);
    end(&b);
}

static void a_shared_prefix_changes_nothing(void **state) {
    (void)state;
    each_pair("shared prefix", 40, false, start_on_a_prefix);
}

/* Returns the visibility of stored keys. Strategies over causal keys have passes with another one. */
static um_visibility stored_rule(const bench *b) {
    const bool is_seeded = b->strategy == &um_strategy_seeded_bd;
    if (!is_causal(b->strategy)) return b->seg[0].rule;
    if (!is_seeded || b->how.causal_context) return (um_visibility){.see = UM_SEE_CAUSAL};
    return (um_visibility){.see = UM_SEE_BLOCK_CAUSAL, .block = b->how.block_size, .anchor = b->n_prompt};
}

/* Checks that stored keys equal those of one pass over the final tokens with the strategy's visibility. */
static void recompute(recipe *x) {
    bench b;
    uint64_t hidden[CAP];
    set_up_recipe(&b, x);
    b.how.clean_commit = true;
    start(&b);
    run_to_end(&b);
    int32_t n = b.req.stored;
    for (int32_t i = 0; i < n; i++) hidden[i] = b.key[i].hidden;
    um_segment s = b.seg[0];
    s.id = b.token;
    s.pos = s.vis = b.pos;
    for (int32_t i = 0; i < n; i++) b.pos[i] = i;
    s.n = s.keys.end = n;
    s.n_soft = 0;
    s.rule = stored_rule(&b);
    forward(&b, &s);
    for (int32_t i = 0; i < n; i++)
        if (hidden[i] != b.key[i].hidden) complain(x, "stored keys are not those of the tokens");
    end(&b);
}

static void stored_keys_are_those_of_a_fresh_pass(void **state) {
    (void)state;
    each_pair("fresh keys", 40, false, recompute);
}

/* ---- The worked example of lost pages ---------------------------------------------------------------------------- */

/* Blocks 0 and 1 are stored, block 2 is complete but not stored, block 3 is partly filled. After the pages are lost,
 * blocks 0 and 1 are stored again together with block 2. Block 3 goes on with the tokens it had. */
static void a_finished_block_is_stored_after_its_pages_went(void **state) {
    (void)state;
    static const int32_t prompt[] = {11, 12, 13, 14, 15, 16, 17, 18};
    static const line script[] = {{1, 8, 0, .95F},  {1, 9, 0, .95F},  {1, 10, 0, .95F}, {2, 12, 0, .95F},
                                  {2, 14, 0, .95F}, {2, 11, 0, .95F}, {3, 13, 0, .95F}};
    for (int32_t budget = 0; budget <= 1; budget++) {
        bench b;
        char text[TEXT];
        set_up(&b, &um_strategy_multi_bd, prompt, 8, 4, 2);
        SCRIPT(&b, script);
        start(&b);
        steps(&b, 2);
        put_blocks(text, &b);
        assert_string_equal(text, "2T 3A");
        take_pages_away(&b);
        b.budget = budget;
        while (b.req.nfe == 2) step(&b);
        assert_int_equal(b.n_partial, budget ? 2 : 0);
        assert_int_equal(b.req.stored, 12);
        put_ids(text, &b, b.token + 8, 8, 8);
        assert_string_equal(text, "108 109 110 111 112 113 114 M");
        end(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_exact_and_no_mask_leaves),
        cmocka_unit_test(compat_lets_no_mask_out_either),
        cmocka_unit_test(pages_may_go_after_any_pass),
        cmocka_unit_test(compat_pages_may_go_after_any_pass),
        cmocka_unit_test(chunks_and_lost_pages_change_nothing),
        cmocka_unit_test(a_prompt_is_stored_block_by_block),
        cmocka_unit_test(a_chunk_takes_the_blocks_that_fit),
        cmocka_unit_test(a_shared_prefix_changes_nothing),
        cmocka_unit_test(stored_keys_are_those_of_a_fresh_pass),
        cmocka_unit_test(a_finished_block_is_stored_after_its_pages_went),
    };
    return cmocka_run_group_tests_name("schedules", tests, NULL, NULL);
}
