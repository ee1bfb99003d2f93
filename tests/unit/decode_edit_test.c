/* Samplers that edit, pass by pass: the tokens they write, and when a block is complete. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "decode/decode.h"

enum { MASK = 500, MAX = 16 };
#define M UM_MASKED

/* A block that is being decoded: its tokens and the sampler's input. */
typedef struct block {
    um_decoding how;
    um_compat compat;
    um_sampler_input c;
    int32_t token[MAX], position[MAX];
    um_decision d;
    int32_t at[MAX], id[MAX];
} block;

static void set_up(block *b, int32_t n, const int32_t *token) {
    *b = (block){
        .how = {.accept_threshold = .9F, .max_post_edit_steps = 16, .dmax_fast_path = true, .commit_confidence = .9F}};
    memcpy(b->token, token, (size_t)n * sizeof *token);
    for (int32_t i = 0; i < n; i++) b->position[i] = i;
    b->c = (um_sampler_input){.position = b->position,
                              .token = b->token,
                              .n = n,
                              .previous = M,
                              .block_len = n,
                              .how = &b->how,
                              .compat = &b->compat,
                              .mask_id = MASK,
                              .forced = true};
}

/* Lets the sampler decide a pass with these predictions (id, probability) and writes the tokens. */
static void pass(block *b, const um_sampler *s, const int32_t *y, const float *p) {
    um_answer a[MAX];
    for (int32_t i = 0; i < b->c.n; i++)
        a[i] = (um_answer){.sample = y[i], .best = y[i], .p_sample = p[i], .p_best = p[i], .q_sample = p[i]};
    b->c.answer = a;
    b->c.n_masks = 0;
    for (int32_t i = 0; i < b->c.n; i++) b->c.n_masks += b->token[i] == M;
    b->c.post_edit_steps += b->c.n_masks == 0;
    b->d = (um_decision){.at = b->at, .id = b->id};
    s->accept(&b->c, &b->d);
    for (int32_t i = 0; i < b->d.n; i++) {
        assert_true(b->at[i] >= b->c.n_fixed);
        b->token[b->at[i]] = b->id[i];
    }
    b->c.total_steps++;
    b->c.count++;
}

static void expect_tokens(const block *b, const int32_t *want) {
    for (int32_t i = 0; i < b->c.n; i++) assert_int_equal(b->token[i], want[i]);
}

static void expect_state(const block *b, bool committable, float ratio) {
    assert_int_equal(b->d.committable, committable);
    assert_true(fabsf(b->d.same_token_ratio - ratio) < 1e-6F);
}

#define PASS(b, s, y, p) pass(b, s, (const int32_t[])y, (const float[])p)
#define TOKENS(b, ...)   expect_tokens(b, (const int32_t[]){__VA_ARGS__})
#define L(...)                                                                                                         \
    { __VA_ARGS__ }

#define EDIT &um_sampler_edit
#define DMAX &um_sampler_dmax

/* ---- edit -------------------------------------------------------------------------------------------------------- */

/* The worked example: positions 5, 6 and 7 of the block 4..7, behind a prompt of 5 tokens whose last token is 5. */
static void edit_runs_the_worked_example(void **state) {
    (void)state;
    block b;
    set_up(&b, 3, (const int32_t[]){M, M, M});
    b.c.previous = 5;
    b.c.block_len = 4;
    PASS(&b, EDIT, L(50, 60, 70), L(.95F, .4F, .3F));
    TOKENS(&b, 50, M, M);
    expect_state(&b, false, 1);
    PASS(&b, EDIT, L(51, 60, 70), L(.6F, .85F, .92F));
    TOKENS(&b, 51, M, 70);
    expect_state(&b, false, 0);
    PASS(&b, EDIT, L(51, 61, 70), L(.99F, .7F, .99F));
    TOKENS(&b, 51, 61, 70);
    expect_state(&b, false, 1);
    PASS(&b, EDIT, L(51, 61, 70), L(.99F, .99F, .99F));
    TOKENS(&b, 51, 61, 70);
    expect_state(&b, true, 1);
    assert_int_equal(b.d.n, 0);
    assert_int_equal(b.c.post_edit_steps, 1);
}

/* The published example of joint threshold decoding: threshold .5. */
static void edit_runs_the_example_of_joint_threshold(void **state) {
    (void)state;
    block b;
    set_up(&b, 4, (const int32_t[]){M, M, M, M});
    b.how.accept_threshold = .5F;
    PASS(&b, EDIT, L(1, 2, 3, 4), L(.6F, .4F, .9F, .3F));
    TOKENS(&b, 1, M, 3, M);
    PASS(&b, EDIT, L(11, 2, 3, 4), L(.7F, .55F, .9F, .2F));
    TOKENS(&b, 11, 2, 3, M);
    PASS(&b, EDIT, L(11, 2, 3, 4), L(.9F, .9F, .9F, .2F));
    TOKENS(&b, 11, 2, 3, 4);
    expect_state(&b, false, 1);
    PASS(&b, EDIT, L(11, 2, 3, 4), L(.9F, .9F, .9F, .9F));
    expect_state(&b, true, 1);
}

static void edit_fills_strictly_above_the_threshold(void **state) {
    (void)state;
    block b;
    set_up(&b, 3, (const int32_t[]){M, M, M});
    PASS(&b, EDIT, L(1, 2, 3), L(.95F, .9F, .91F));
    TOKENS(&b, 1, M, 3);
}

static void edit_fills_the_first_of_equally_sure_masks(void **state) {
    (void)state;
    block b;
    set_up(&b, 3, (const int32_t[]){M, M, M});
    PASS(&b, EDIT, L(1, 2, 3), L(.2F, .5F, .5F));
    TOKENS(&b, M, 2, M);
}

/* A block does not depend on its predecessor. */
static void edit_always_fills_a_mask(void **state) {
    (void)state;
    block b;
    set_up(&b, 2, (const int32_t[]){M, M});
    b.c.forced = false;
    PASS(&b, EDIT, L(1, 2), L(.1F, .2F));
    TOKENS(&b, M, 2);
}

static void edit_replaces_strictly_above_its_threshold(void **state) {
    (void)state;
    block b;
    set_up(&b, 3, (const int32_t[]){1, 2, 3});
    b.how.edit_threshold = .5F;
    PASS(&b, EDIT, L(10, 20, 30), L(.5F, .6F, .4F));
    TOKENS(&b, 1, 20, 3);
    expect_state(&b, false, 0);
}

static void edit_catalogue_writes_both_masks(void **state) {
    (void)state;
    block b;
    set_up(&b, 2, (const int32_t[]){M, M});
    b.how.accept_threshold = .6F;
    PASS(&b, EDIT, L(1, 2), L(.90F, .90F));
    TOKENS(&b, 1, 2);
}

/* After block_len + max_post_edit_steps passes every mask is filled, and edits are applied too. */
static void edit_times_out(void **state) {
    (void)state;
    block b;
    set_up(&b, 4, (const int32_t[]){1, M, M, M});
    b.how.max_post_edit_steps = 2;
    b.c.total_steps = 5;
    PASS(&b, EDIT, L(9, 2, 3, 4), L(.8F, .1F, .2F, .3F));
    TOKENS(&b, 9, M, M, 4);
    expect_state(&b, false, 0);
    PASS(&b, EDIT, L(8, 2, 3, 5), L(.8F, .1F, .2F, .3F));
    TOKENS(&b, 8, 2, 3, 5);
    expect_state(&b, true, 1);
}

static void edit_drops_the_changes_of_the_pass_that_exhausts_it(void **state) {
    (void)state;
    block b;
    set_up(&b, 4, (const int32_t[]){1, 2, 3, 4});
    b.how.max_post_edit_steps = 2;
    PASS(&b, EDIT, L(10, 2, 3, 4), L(.8F, .8F, .8F, .8F));
    expect_state(&b, false, .75F);
    PASS(&b, EDIT, L(1, 2, 3, 4), L(.8F, .8F, .8F, .8F));
    expect_state(&b, false, .75F);
    PASS(&b, EDIT, L(10, 2, 3, 4), L(.8F, .8F, .8F, .8F));
    TOKENS(&b, 1, 2, 3, 4);
    expect_state(&b, true, .75F);
}

static void edit_penalizes_the_token_before(void **state) {
    (void)state;
    block b;
    um_edit e;
    um_req r = {.how = {.penalty_lambda = 2}};
    set_up(&b, 3, (const int32_t[]){7, M, 9});
    assert_int_equal(um_sampler_edit.edit(&b.c, 1, &e), 0);
    b.how.penalty_lambda = 2;
    assert_int_equal(um_sampler_edit.edits_max(&r), 1);
    assert_int_equal(um_sampler_edit.edit(&b.c, 0, &e), 0); /* no token precedes it in the block */
    assert_int_equal(um_sampler_edit.edit(&b.c, 1, &e), 1);
    assert_int_equal(e.id, 7);
    assert_true(e.add == -2 && e.scale == 0 && !e.ban);
    assert_int_equal(um_sampler_edit.edit(&b.c, 2, &e), 1);
    assert_int_equal(e.id, MASK);
    b.c.previous = 6; /* a token of the prompt in the same block */
    assert_int_equal(um_sampler_edit.edit(&b.c, 0, &e), 1);
    assert_int_equal(e.id, 6);
}

/* compat: with a penalty the draw is discarded, and edit_threshold is ignored. */
static void edit_of_the_compared_system_is_greedy_under_a_penalty(void **state) {
    (void)state;
    um_answer a[] = {{.sample = 1, .p_sample = .95F, .best = 2, .p_best = .3F}};
    block b;
    for (int literal = 0; literal < 2; literal++) {
        set_up(&b, 1, (const int32_t[]){3});
        b.how.penalty_lambda = 1;
        b.how.edit_threshold = .5F;
        b.compat.literal_edits = literal;
        b.c.answer = a;
        b.d = (um_decision){.at = b.at, .id = b.id};
        um_sampler_edit.accept(&b.c, &b.d);
        assert_int_equal(b.d.n, 1);
        assert_int_equal(b.id[0], literal ? 2 : 1);
    }
}

/* compat: a mask that is filled with the mask id stays a mask, and the block is not complete. */
static void edit_of_the_compared_system_may_fill_with_the_mask(void **state) {
    (void)state;
    block b;
    set_up(&b, 3, (const int32_t[]){M, 5, 6});
    b.compat.literal_edits = true;
    PASS(&b, EDIT, L(MASK, 5, MASK), L(.99F, .9F, .3F));
    TOKENS(&b, M, 5, M);
    assert_int_equal(b.d.n, 1);
    expect_state(&b, false, .5F);
}

/* compat: nothing is written; only `dmax` then considers the block complete. */
static void a_mask_that_stays_one_counts_for_edit_alone(void **state) {
    (void)state;
    block b;
    for (int k = 0; k < 2; k++) {
        set_up(&b, 2, (const int32_t[]){M, 5});
        b.compat.literal_edits = true;
        PASS(&b, k ? DMAX : EDIT, L(MASK, 5), L(.3F, .3F));
        assert_int_equal(b.d.n, 0);
        expect_state(&b, k == 1, 1);
    }
}

static void edit_never_writes_the_prompt(void **state) {
    (void)state;
    block b;
    set_up(&b, 3, (const int32_t[]){1, 2, M});
    b.c.n_fixed = 1;
    PASS(&b, EDIT, L(10, 20, 30), L(.99F, .99F, .99F));
    TOKENS(&b, 1, 20, 30);
    expect_state(&b, false, 0);
}

static void blocks_without_a_position_are_done(void **state) {
    (void)state;
    block b;
    for (int k = 0; k < 2; k++) {
        set_up(&b, 0, (const int32_t[]){M});
        b.c.block_len = 4;
        pass(&b, k ? DMAX : EDIT, NULL, NULL);
        expect_state(&b, true, 1);
        set_up(&b, 2, (const int32_t[]){1, 2}); /* compat: both tokens are prompt, and the model prefers others */
        b.c.n_fixed = 2;
        PASS(&b, k ? DMAX : EDIT, L(3, 4), L(.5F, .5F));
        expect_state(&b, true, 1);
    }
}

/* ---- dmax -------------------------------------------------------------------------------------------------------- */

/* The worked example: block 4..7, whose position 4 is prompt, and block 8..11, with accept_threshold .5. */
static void dmax_runs_the_worked_example(void **state) {
    (void)state;
    block b, k;
    set_up(&b, 4, (const int32_t[]){5, M, M, M});
    b.c.n_fixed = 1;
    b.how.accept_threshold = .5F;
    PASS(&b, DMAX, L(5, 50, 60, 70), L(.99F, .8F, .7F, .3F));
    TOKENS(&b, 5, 50, 60, M);
    expect_state(&b, false, 1);
    PASS(&b, DMAX, L(5, 51, 60, 70), L(.99F, .9F, .95F, .6F));
    TOKENS(&b, 5, 51, 60, 70);
    expect_state(&b, false, 2.F / 3);
    PASS(&b, DMAX, L(5, 51, 60, 70), L(.99F, .99F, .99F, .99F));
    expect_state(&b, true, 1);

    set_up(&k, 4, (const int32_t[]){M, M, M, M});
    k.how.accept_threshold = .5F;
    PASS(&k, DMAX, L(80, 90, 100, 110), L(.45F, .45F, .45F, .45F));
    TOKENS(&k, 80, M, M, M);
    expect_state(&k, false, 1);
    PASS(&k, DMAX, L(80, 90, 100, 110), L(.4F, .9F, .45F, .45F));
    TOKENS(&k, 80, 90, M, M);
    expect_state(&k, false, 1);
    PASS(&k, DMAX, L(80, 90, 100, 110), L(.99F, .99F, .95F, .92F));
    TOKENS(&k, 80, 90, 100, 110);
    expect_state(&k, true, 1);
}

static void dmax_passes_equality_with_the_threshold(void **state) {
    (void)state;
    block b;
    set_up(&b, 4, (const int32_t[]){M, M, M, M});
    PASS(&b, DMAX, L(1, 2, 3, 4), L(.95F, .9F, .89F, .99F));
    TOKENS(&b, 1, 2, M, M);
}

/* Rows of three logits, given as the probabilities that result from them. The mask id is 0. */
static void dmax_catalogue_slow_path_refreshes_what_is_filled(void **state) {
    (void)state;
    block b;
    set_up(&b, 3, (const int32_t[]){9, M, M});
    b.how.dmax_fast_path = false;
    PASS(&b, DMAX, L(1, 1, 2), L(.387F, .965F, .909F));
    TOKENS(&b, 1, 1, 2);
    expect_state(&b, false, 0);
    assert_true(um_dmax_confidence(&b.c, 0) < 1);
}

static void dmax_catalogue_keeps_the_prompt(void **state) {
    (void)state;
    block b;
    set_up(&b, 4, (const int32_t[]){11, 12, M, M});
    b.c.n_fixed = 2;
    PASS(&b, DMAX, L(MASK, 1, 1, 2), L(.987F, .987F, .965F, .965F));
    TOKENS(&b, 11, 12, 1, 2);
}

static void dmax_catalogue_counts_a_predicted_mask_as_no_progress(void **state) {
    (void)state;
    block b;
    set_up(&b, 3, (const int32_t[]){9, M, M});
    b.c.n_fixed = 1;
    b.compat.literal_edits = true;
    PASS(&b, DMAX, L(1, MASK, 2), L(.787F, .965F, .965F));
    TOKENS(&b, 9, M, 2);
}

static void dmax_catalogue_fills_a_prefix(void **state) {
    (void)state;
    block b;
    set_up(&b, 3, (const int32_t[]){M, M, M});
    b.how.accept_threshold = .95F;
    PASS(&b, DMAX, L(1, 1, 1), L(.987F, .987F, .356F));
    TOKENS(&b, 1, 1, M);
}

static void dmax_catalogue_refreshes_and_fills(void **state) {
    (void)state;
    block b;
    set_up(&b, 4, (const int32_t[]){7, 8, M, M});
    b.how.accept_threshold = .8F;
    PASS(&b, DMAX, L(2, 1, 1, 1), L(.987F, .965F, .909F, .356F));
    TOKENS(&b, 2, 1, 1, M);
}

/* On the fast path the pass that fills the last masks completes the block if these are sure. */
static void dmax_is_done_when_all_positions_are_sure(void **state) {
    (void)state;
    block b;
    set_up(&b, 2, (const int32_t[]){7, M});
    b.how.accept_threshold = .5F;
    PASS(&b, DMAX, L(8, 1), L(.2F, .9F));
    TOKENS(&b, 8, 1);
    expect_state(&b, true, 0);
    set_up(&b, 2, (const int32_t[]){7, M});
    b.how.accept_threshold = .5F;
    b.how.dmax_fast_path = false;
    PASS(&b, DMAX, L(8, 1), L(.2F, .9F));
    expect_state(&b, false, 0);
    set_up(&b, 2, (const int32_t[]){7, M});
    b.how.commit_confidence = .95F;
    PASS(&b, DMAX, L(8, 1), L(.2F, .92F));
    expect_state(&b, false, 0);
}

/* On the slow path only the limits of editing end the block when the model alternates between tokens. */
static void dmax_ends_by_its_caps(void **state) {
    (void)state;
    block b;
    int32_t passes = 0;
    set_up(&b, 2, (const int32_t[]){1, 2});
    b.how.dmax_fast_path = false;
    b.how.max_post_edit_steps = 3;
    for (b.d.committable = false; !b.d.committable; passes++) {
        int32_t y[] = {b.token[0] == 1 ? 10 : 1, 2};
        pass(&b, DMAX, y, (const float[]){.5F, .5F});
    }
    assert_int_equal(passes, 4);
    TOKENS(&b, 10, 2); /* the changes of the last pass are dropped */

    set_up(&b, 3, (const int32_t[]){1, M, M});
    b.how.max_post_edit_steps = 3;
    b.c.total_steps = 6;
    PASS(&b, DMAX, L(1, 2, 3), L(.5F, .1F, .1F));
    TOKENS(&b, 1, 2, 3);
    assert_true(b.d.committable);
}

static void dmax_of_the_compared_system_has_no_cap(void **state) {
    (void)state;
    block b;
    set_up(&b, 2, (const int32_t[]){1, 2});
    b.how.dmax_fast_path = false;
    b.compat.literal_edits = true;
    b.c.total_steps = b.c.post_edit_steps = 1000;
    PASS(&b, DMAX, L(10, 2), L(.5F, .5F));
    TOKENS(&b, 10, 2);
    assert_false(b.d.committable);
}

/* compat: the prompt is never written, but a prediction that differs from it keeps the block incomplete. */
static void dmax_of_the_compared_system_wants_the_prompt_confirmed(void **state) {
    (void)state;
    block b;
    set_up(&b, 3, (const int32_t[]){1, 2, 3});
    b.c.n_fixed = 1;
    b.how.dmax_fast_path = false;
    b.compat.literal_edits = true;
    PASS(&b, DMAX, L(10, 2, 3), L(.5F, .95F, .95F));
    TOKENS(&b, 1, 2, 3);
    expect_state(&b, false, 2.F / 3);
}

static void dmax_asks_for_likeliest_ids_when_it_smooths(void **state) {
    (void)state;
    um_req r = {.how = {.token_merge_mode = UM_MERGE_DMAX, .token_merge_top_k = 4, .token_merge_weight = 1}};
    assert_int_equal(um_sampler_dmax.n_top(&r), 0);
    r.how.token_merge_mode = UM_MERGE_ITER_SMOOTH;
    assert_int_equal(um_sampler_dmax.n_top(&r), 4);
    r.how.token_merge_weight = 0;
    assert_int_equal(um_sampler_dmax.n_top(&r), 0);
}

/* ---- Both -------------------------------------------------------------------------------------------------------- */

/* With a model that answers at random, every pass fills at least one mask, and every block ends within its limits. */
static void blocks_end_whatever_the_model_says(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        block b;
        int32_t n = 1 + (int32_t)(seed % 12), token[MAX], passes = 0;
        for (int32_t i = 0; i < n; i++) token[i] = M;
        set_up(&b, n, token);
        b.how.max_post_edit_steps = (int32_t)(seed % 5);
        b.how.dmax_fast_path = seed % 3 == 0;
        b.how.edit_threshold = seed % 7 == 0 ? .5F : 0;
        for (bool done = false; !done; passes++) {
            int32_t y[MAX], left = 0;
            float p[MAX];
            for (int32_t i = 0; i < n; i++) {
                uint64_t key = um_rng_key(seed, (uint64_t)i, (uint64_t)passes, 0);
                y[i] = (int32_t)(um_rng_u64(key, 0) % 4);
                p[i] = seed % 11 == 0 ? NAN : (float)um_rng_uniform(key, 1);
            }
            pass(&b, seed % 2 ? DMAX : EDIT, y, p);
            for (int32_t i = 0; i < n; i++) left += b.token[i] == M;
            assert_true(b.c.n_masks == 0 || left < b.c.n_masks);
            assert_true(passes <= n + b.how.max_post_edit_steps);
            done = left == 0 && b.d.committable;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edit_runs_the_worked_example),
        cmocka_unit_test(edit_runs_the_example_of_joint_threshold),
        cmocka_unit_test(edit_fills_strictly_above_the_threshold),
        cmocka_unit_test(edit_fills_the_first_of_equally_sure_masks),
        cmocka_unit_test(edit_always_fills_a_mask),
        cmocka_unit_test(edit_replaces_strictly_above_its_threshold),
        cmocka_unit_test(edit_catalogue_writes_both_masks),
        cmocka_unit_test(edit_times_out),
        cmocka_unit_test(edit_drops_the_changes_of_the_pass_that_exhausts_it),
        cmocka_unit_test(edit_penalizes_the_token_before),
        cmocka_unit_test(edit_of_the_compared_system_is_greedy_under_a_penalty),
        cmocka_unit_test(edit_of_the_compared_system_may_fill_with_the_mask),
        cmocka_unit_test(a_mask_that_stays_one_counts_for_edit_alone),
        cmocka_unit_test(edit_never_writes_the_prompt),
        cmocka_unit_test(blocks_without_a_position_are_done),
        cmocka_unit_test(dmax_runs_the_worked_example),
        cmocka_unit_test(dmax_passes_equality_with_the_threshold),
        cmocka_unit_test(dmax_catalogue_slow_path_refreshes_what_is_filled),
        cmocka_unit_test(dmax_catalogue_keeps_the_prompt),
        cmocka_unit_test(dmax_catalogue_counts_a_predicted_mask_as_no_progress),
        cmocka_unit_test(dmax_catalogue_fills_a_prefix),
        cmocka_unit_test(dmax_catalogue_refreshes_and_fills),
        cmocka_unit_test(dmax_is_done_when_all_positions_are_sure),
        cmocka_unit_test(dmax_ends_by_its_caps),
        cmocka_unit_test(dmax_of_the_compared_system_has_no_cap),
        cmocka_unit_test(dmax_of_the_compared_system_wants_the_prompt_confirmed),
        cmocka_unit_test(dmax_asks_for_likeliest_ids_when_it_smooths),
        cmocka_unit_test(blocks_end_whatever_the_model_says),
    };
    return cmocka_run_group_tests_name("samplers that edit", tests, NULL, NULL);
}
