/* Tests of the strategies over causal keys, pass by pass: seeded_bd, autoregressive and self_speculation. The tests of
 * tests/families replay recorded runs, and decode_schedules_test.c runs random requests. */
#include "decode_script.h"

static const int32_t prompt[] = {11, 12, 13};
enum { N = 3 };

static void set_up_causal(bench *b, const um_strategy *s, int32_t B) {
    set_up(b, s, prompt, N, B, 1);
    b->traits.block = B;
    b->sampling.max_tokens = 8;
}

/* Runs a pass and checks its kind, what it feeds, its visibility and the tokens that it writes. */
static void passes(bench *b, um_pass_kind kind, int32_t start, int32_t end, um_see see, int32_t n_new) {
    step(b);
    assert_int_equal(b->seg[0].kind, kind);
    assert_int_equal(b->seg[0].pos[0], start);
    assert_int_equal(b->seg[0].n, end - start);
    assert_int_equal(b->seg[0].keys.end, end);
    assert_int_equal(b->seg[0].rule.see, see);
    assert_int_equal(b->req.n_new, n_new);
}

static void assert_tokens(const bench *b, int32_t from, const int32_t *want, int32_t n) {
    for (int32_t i = 0; i < n; i++) assert_int_equal(b->token[from + i], want[i]);
}

/* ---- seeded_bd --------------------------------------------------------------------------------------------------- */

/* A row that seeds predicts the position behind it: the script sees it at its own position. */
static void a_block_begins_with_a_seed(void **state) {
    (void)state;
    static const line script[] = {{1, 2, 21, .1F}, {2, 4, 22, .95F}, {2, 5, 23, .3F}, {2, 6, 24, .2F},
                                  {3, 5, 25, .5F}, {3, 6, 26, .4F},  {4, 6, 27, .1F}, {5, 6, 31, .1F}};
    bench b;
    set_up_causal(&b, &um_strategy_seeded_bd, 4);
    b.script = script;
    b.n_script = UM_LEN(script);
    start(&b);
    passes(&b, UM_PASS_PREFILL, 0, 3, UM_SEE_CAUSAL, 1); /* the seed */
    assert_int_equal(b.token[3], 21);
    passes(&b, UM_PASS_DENOISE, 3, 7, UM_SEE_FULL, 1); /* 22 is above the threshold */
    assert_int_equal(b.req.stored, 3);
    passes(&b, UM_PASS_DENOISE, 3, 7, UM_SEE_FULL, 1); /* the best one */
    passes(&b, UM_PASS_DENOISE, 3, 7, UM_SEE_FULL, 1);
    assert_tokens(&b, 3, (int32_t[]){21, 22, 25, 27}, 4);
    passes(&b, UM_PASS_COMMIT, 3, 7, UM_SEE_CAUSAL, 1); /* stores the block and writes the next seed */
    assert_int_equal(b.req.stored, 7);
    assert_int_equal(b.token[7], 31);
    run_to_end(&b);
    assert_int_equal(b.req.n_answer, 8);
    end(&b);
}

static void without_causal_context_blocks_see_themselves(void **state) {
    (void)state;
    bench b;
    set_up_causal(&b, &um_strategy_seeded_bd, 4);
    b.how.causal_context = false;
    start(&b);
    step(&b);
    assert_true(b.pass.partial); /* the prompt */
    assert_int_equal(b.req.nfe, 0);
    for (int32_t i = 0; i < 4; i++) {
        passes(&b, UM_PASS_DENOISE, 3, 7, UM_SEE_BLOCK_CAUSAL, 1);
        assert_int_equal(b.seg[0].rule.anchor, 3);
    }
    passes(&b, UM_PASS_COMMIT, 3, 7, UM_SEE_BLOCK_CAUSAL, 0);
    passes(&b, UM_PASS_DENOISE, 7, 11, UM_SEE_BLOCK_CAUSAL, 1);
    end(&b);
}

/* When the steps of a block run out before its masks, one more pass fills the masks. With --compat checkpoint they are
 * stored as masks. */
static void denoising_steps_end_a_block(void **state) {
    (void)state;
    bench b;
    set_up_causal(&b, &um_strategy_seeded_bd, 4);
    b.how.denoising_steps = 1;
    start(&b);
    step(&b);
    passes(&b, UM_PASS_DENOISE, 3, 7, UM_SEE_FULL, 1);
    passes(&b, UM_PASS_DENOISE, 3, 7, UM_SEE_FULL, 2);
    passes(&b, UM_PASS_COMMIT, 3, 7, UM_SEE_CAUSAL, 1);
    end(&b);
    set_up_causal(&b, &um_strategy_seeded_bd, 4);
    b.how.denoising_steps = 1;
    b.compat.keeps_masks = true;
    start(&b);
    step(&b);
    passes(&b, UM_PASS_DENOISE, 3, 7, UM_SEE_FULL, 1);
    passes(&b, UM_PASS_COMMIT, 3, 7, UM_SEE_CAUSAL, 1);
    run_to_end(&b);
    assert_int_equal(b.req.finish, UM_FINISH_MAX_TOKENS);
    assert_int_equal(b.req.n_answer, 2); /* the answer ends before its first mask */
    end(&b);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    static const um_strategy *const all[] = {&um_strategy_seeded_bd, &um_strategy_autoregressive,
                                             &um_strategy_self_speculation};
    bench b;
    um_err err;
    for (size_t i = 0; i < UM_LEN(all); i++) {
        set_up_causal(&b, all[i], 4);
        b.traits.see = UM_SEE_BLOCK_CAUSAL;
        assert_int_equal(try_start(&b, &err), UM_EUNSUPPORTED);
        assert_non_null(strstr(err.msg, all[i]->name));
    }
    for (int i = 0; i < 2; i++) {
        set_up_causal(&b, all[2 * i], UM_BLOCK_MAX + 1);
        assert_int_equal(try_start(&b, &err), UM_ERANGE);
    }
    static const char *const samplers[] = {"edit", "linear_entropy"};
    for (size_t i = 0; i < UM_LEN(samplers); i++) {
        set_up_causal(&b, &um_strategy_seeded_bd, 4);
        choose_sampler(&b, samplers[i]);
        assert_int_equal(try_start(&b, &err), UM_EUNSUPPORTED);
        assert_non_null(strstr(err.msg, samplers[i]));
    }
}

/* ---- Token by token ---------------------------------------------------------------------------------------------- */

static void a_pass_writes_one_token(void **state) {
    (void)state;
    bench b;
    set_up_causal(&b, &um_strategy_autoregressive, 4);
    start(&b);
    passes(&b, UM_PASS_PREFILL, 0, 3, UM_SEE_CAUSAL, 1);
    for (int32_t i = 0; i < 7; i++) passes(&b, UM_PASS_COMMIT, 3 + i, 4 + i, UM_SEE_CAUSAL, 1);
    assert_int_equal(b.req.finish, UM_FINISH_MAX_TOKENS);
    assert_int_equal(b.req.nfe, 8);
    end(&b);
}

/* The unsure model predicts 100 + position for a draft, whose row is at its position, and for a verifying row, which is
 * one position before. The script makes the first two drafts right and the third one wrong. */
static void a_draft_is_verified_up_to_the_first_error(void **state) {
    (void)state;
    static const line script[] = {{2, 4, 71, .5F}, {2, 5, 72, .5F}, {2, 6, 73, .5F}, {3, 3, 71, .5F},
                                  {3, 4, 72, .5F}, {3, 5, 79, .5F}, {3, 6, 80, .5F}};
    bench b;
    set_up_causal(&b, &um_strategy_self_speculation, 4);
    b.script = script;
    b.n_script = UM_LEN(script);
    start(&b);
    passes(&b, UM_PASS_PREFILL, 0, 3, UM_SEE_CAUSAL, 1);
    passes(&b, UM_PASS_DENOISE, 3, 7, UM_SEE_FULL, 0);
    assert_int_equal(b.seg[0].id[1], MASK);
    passes(&b, UM_PASS_COMMIT, 3, 7, UM_SEE_CAUSAL, 3);
    for (int32_t i = 0; i < 3; i++) assert_int_equal(b.seg[0].id[1 + i], 71 + i);
    assert_tokens(&b, 4, (int32_t[]){71, 72, 79}, 3);
    assert_int_equal(b.req.stored, 6); /* up to the last right draft */
    passes(&b, UM_PASS_DENOISE, 6, 10, UM_SEE_FULL, 0);
    end(&b);
}

/* A row that verifies a draft can't count the drafts before it, so such a request drafts nothing. */
static void penalties_draft_nothing(void **state) {
    (void)state;
    bench b;
    set_up_causal(&b, &um_strategy_self_speculation, 4);
    b.sampling.frequency_penalty = .5F;
    start(&b);
    passes(&b, UM_PASS_PREFILL, 0, 3, UM_SEE_CAUSAL, 1);
    for (int32_t i = 0; i < 7; i++) passes(&b, UM_PASS_COMMIT, 3 + i, 4 + i, UM_SEE_CAUSAL, 1);
    end(&b);
}

/* The last token of an answer needs no draft. Drafts end at the limit. */
static void drafts_end_at_the_limit(void **state) {
    (void)state;
    bench b;
    set_up_causal(&b, &um_strategy_self_speculation, 8);
    b.sampling.max_tokens = 3;
    start(&b);
    passes(&b, UM_PASS_PREFILL, 0, 3, UM_SEE_CAUSAL, 1);
    passes(&b, UM_PASS_DENOISE, 3, 11, UM_SEE_FULL, 0);
    assert_int_equal(b.pass.n_rows, 1);
    passes(&b, UM_PASS_COMMIT, 3, 5, UM_SEE_CAUSAL, 1);
    passes(&b, UM_PASS_COMMIT, 4, 5, UM_SEE_CAUSAL, 1);
    assert_int_equal(b.req.finish, UM_FINISH_MAX_TOKENS);
    end(&b);
}

/* Requests of all three strategies share keys, except those whose adapter leaves the keys as they are. */
static void requests_share_causal_keys(void **state) {
    (void)state;
    static const um_strategy *const all[] = {&um_strategy_seeded_bd, &um_strategy_autoregressive,
                                             &um_strategy_self_speculation};
    for (size_t i = 0; i < UM_LEN(all); i++) {
        bench b;
        int32_t most = 0;
        set_up_causal(&b, all[i], 4);
        start(&b);
        assert_int_equal(all[i]->share(&b.req, &most), 1);
        assert_int_equal(most, 2);
        b.req.adapter = 0;
        assert_int_equal(all[i]->share(&b.req, &most), all[i] == &um_strategy_self_speculation ? 2 : 1);
        end(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_begins_with_a_seed),  cmocka_unit_test(without_causal_context_blocks_see_themselves),
        cmocka_unit_test(denoising_steps_end_a_block), cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(a_pass_writes_one_token),     cmocka_unit_test(a_draft_is_verified_up_to_the_first_error),
        cmocka_unit_test(penalties_draft_nothing),     cmocka_unit_test(drafts_end_at_the_limit),
        cmocka_unit_test(requests_share_causal_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
