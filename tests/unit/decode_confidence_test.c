/* Samplers that decide by the predictions: the rule of each, at its limits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "decode/decode.h"

enum { MAX = 16 };

/* A block whose masks are being decided. */
typedef struct block {
    um_decoding how;
    um_compat compat;
    um_sampler_input c;
    um_answer answer[MAX];
    int32_t position[MAX], token[MAX];
    float score[MAX];
} block;

/* Sets up n masks from position 8 on with these probabilities. The caller sets entropies. */
static block masks(int32_t n, const float *q) {
    block b = {.how = {.accept_threshold = .9F, .low_threshold = .4F, .factor = 1, .entropy_bound = .15F}};
    for (int32_t i = 0; i < n; i++) {
        b.answer[i] = (um_answer){.sample = 100 + i, .q_sample = q ? q[i] : 0};
        b.position[i] = 8 + i;
        b.token[i] = UM_MASKED;
    }
    b.c = (um_sampler_input){.n = n, .n_masks = n, .previous = UM_MASKED, .block_len = n, .forced = true};
    return b;
}

/* Expects the sampler to accept the candidates `want` [n], in any order, each with its sampled token. */
static void expect(block *b, const um_sampler *s, int32_t n, const int32_t *want) {
    int32_t at[MAX], id[MAX];
    um_decision d = {.at = at, .id = id};
    b->c.answer = b->answer;
    b->c.position = b->position;
    b->c.token = b->token;
    b->c.how = &b->how;
    b->c.compat = &b->compat;
    b->c.score = b->score;
    s->accept(&b->c, &d);
    assert_int_equal(d.n, n);
    for (int32_t k = 0; k < n; k++) {
        bool found = false;
        for (int32_t i = 0; i < n; i++) found |= at[i] == want[k];
        assert_true(found);
        assert_int_equal(id[k], 100 + at[k]);
    }
}

#define Q(...) (sizeof((float[]){__VA_ARGS__}) / sizeof(float)), ((const float[]){__VA_ARGS__})
#define TAKES(b, s, ...)                                                                                               \
    expect(b, &um_sampler_##s, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t), (const int32_t[]){__VA_ARGS__})
#define TAKES_NOTHING(b, s) expect(b, &um_sampler_##s, 0, NULL)

/* ---- Thresholds -------------------------------------------------------------------------------------------------- */

static void confidence_takes_every_position_above_the_threshold(void **state) {
    (void)state;
    block b = masks(Q(.96F, .2F, .99F, .9F));
    TAKES(&b, confidence, 0, 2);
}

/* LLaDA, SDAR and Dream: without a token above the threshold, a block accepts one only if it may be forced. */
static void confidence_forces_the_surest_or_takes_nothing(void **state) {
    (void)state;
    block b = masks(Q(.2F, .7F, .4F));
    b.how.accept_threshold = .95F;
    TAKES(&b, confidence, 1);
    b.c.forced = false;
    TAKES_NOTHING(&b, confidence);
}

static void equally_sure_positions_go_by_place(void **state) {
    (void)state;
    block b = masks(Q(.2F, .5F, .5F));
    TAKES(&b, confidence, 1);
    TAKES(&b, dynamic, 1);
    TAKES(&b, static, 1);
    TAKES(&b, factor, 1);
    TAKES(&b, sdar_dynamic, 1);
}

static void dynamic_passes_equality_with_the_threshold(void **state) {
    (void)state;
    block b = masks(Q(.9F, .95F, .9F, .3F));
    TAKES(&b, dynamic, 0, 1, 2);
    TAKES(&b, confidence, 1);
    b.c.forced = false;
    TAKES(&b, dynamic, 0, 1, 2);
}

/* LMDeploy's example: four masks, threshold .85. */
static void dynamic_runs_the_example(void **state) {
    (void)state;
    block b = masks(Q(.95F, .9F, .4F, .3F));
    b.how.accept_threshold = .85F;
    TAKES(&b, dynamic, 0, 1);
    b = masks(Q(.8F, .5F));
    b.how.accept_threshold = .85F;
    TAKES(&b, dynamic, 0);
    b.c.forced = false;
    TAKES_NOTHING(&b, dynamic);
}

/* The threshold is compared with the probability even when margin or entropy ranks the forced choice. */
static void other_scores_rank_the_forced_choice_only(void **state) {
    (void)state;
    block b = masks(Q(.5F, .4F));
    b.answer[0].q_best = .5F;
    b.answer[0].q_second = .45F;
    b.answer[1].q_best = .4F;
    b.answer[1].q_second = .1F;
    b.answer[0].entropy = 2;
    b.answer[1].entropy = .7F;
    for (b.how.confidence = UM_CONFIDENCE_MARGIN; b.how.confidence <= UM_CONFIDENCE_ENTROPY; b.how.confidence++) {
        b.how.accept_threshold = .9F;
        TAKES(&b, confidence, 1);
        TAKES(&b, static, 1);
        TAKES(&b, factor, 1);
        TAKES(&b, hierarchy, 1);
        b.how.accept_threshold = .45F;
        TAKES(&b, confidence, 0);
        TAKES(&b, dynamic, 0, 1); /* the surest is accepted in addition */
    }
}

static void wants_follow_the_score(void **state) {
    (void)state;
    um_req r = {.how = {.confidence = UM_CONFIDENCE_PROBABILITY}};
    assert_int_equal(um_sampler_factor.want(&r), UM_WANT_SAMPLE);
    r.how.confidence = UM_CONFIDENCE_MARGIN;
    assert_int_equal(um_sampler_factor.want(&r), UM_WANT_SAMPLE | UM_WANT_BEST | UM_WANT_SECOND);
    r.how.confidence = UM_CONFIDENCE_ENTROPY;
    assert_int_equal(um_sampler_factor.want(&r), UM_WANT_SAMPLE | UM_WANT_ENTROPY);
    r.how.confidence = UM_CONFIDENCE_PROBABILITY;
    assert_int_equal(um_sampler_entropy_bound.want(&r), UM_WANT_SAMPLE | UM_WANT_ENTROPY);
}

/* ---- A number of positions --------------------------------------------------------------------------------------- */

static void static_takes_its_number_of_the_surest(void **state) {
    (void)state;
    block b = masks(Q(.3F, .99F, .2F, .98F));
    TAKES(&b, static, 1);
    b.how.denoising_steps = 2;
    TAKES(&b, static, 1, 3);
    b.how.denoising_steps = 3; /* rounded down */
    TAKES(&b, static, 1);
    b.how.denoising_steps = 1;
    TAKES(&b, static, 0, 1, 2, 3);
    b.how.denoising_steps = 9;
    TAKES(&b, static, 1);
    b.c.forced = false;
    TAKES_NOTHING(&b, static);
}

static void a_number_is_capped_at_the_masks(void **state) {
    (void)state;
    block b = masks(Q(.3F, .5F, .2F));
    b.c.block_len = 8;
    b.how.denoising_steps = 2;
    TAKES(&b, static, 0, 1, 2);
    TAKES(&b, sequential, 0, 1, 2);
    TAKES(&b, sdar_dynamic, 0, 1, 2);
}

static void sequential_takes_the_first_positions(void **state) {
    (void)state;
    block b = masks(Q(.3F, .99F, .2F, .98F));
    TAKES(&b, sequential, 0);
    b.how.denoising_steps = 2;
    TAKES(&b, sequential, 0, 1);
    b.position[1] = 12; /* positions 9 to 11 are filled and count */
    TAKES(&b, sequential, 0);
    b.c.forced = false;
    TAKES_NOTHING(&b, sequential);
}

/* num_transfer(4, 3) = 2, 1, 1: at least that many, and all that are above the threshold if these are more. */
static void sdar_takes_what_is_scheduled_or_all_that_are_sure(void **state) {
    (void)state;
    block b = masks(Q(.3F, .95F, .2F, .5F));
    b.how.denoising_steps = 3;
    TAKES(&b, sdar_dynamic, 1, 3);
    TAKES(&b, dynamic, 1);
    b.c.count = 1;
    TAKES(&b, sdar_dynamic, 1);
    b.c.count = 7;
    TAKES(&b, sdar_dynamic, 1);
    b = masks(Q(.95F, .96F, .97F, .9F));
    b.how.denoising_steps = 3;
    TAKES(&b, sdar_dynamic, 0, 1, 2); /* equality does not pass */
    b = masks(Q(.3F, .95F, .2F, .5F));
    b.how.denoising_steps = 1;
    b.c.forced = false;
    TAKES(&b, sdar_dynamic, 1);
}

/* ---- Factor, hierarchy ------------------------------------------------------------------------------------------- */

static void factor_runs_the_example(void **state) {
    (void)state;
    block b = masks(Q(.95F, .92F, .6F, .3F));
    TAKES(&b, factor, 0, 1);
    b = masks(Q(.3F, .92F, .9F, .95F)); /* the last one fails and is not accepted */
    TAKES(&b, factor, 1, 2, 3);
}

static void factor_passes_equality(void **state) {
    (void)state;
    block b = masks(Q(.5F, .75F, .1F));
    b.how.factor = 1.5F; /* 1 - 1.5 / 3 */
    TAKES(&b, factor, 0, 1);
    b.how.factor = 1.4F;
    TAKES(&b, factor, 1);
}

static void factor_lets_the_surest_pass_when_it_is_forced_alone(void **state) {
    (void)state;
    block b = masks(Q(.2F, .4F));
    TAKES(&b, factor, 1);
    b.c.forced = false;
    TAKES_NOTHING(&b, factor); /* .4 < 1 - 1 / 2 */
    b.how.factor = 1.5F;
    TAKES(&b, factor, 1);
}

/* The runs 0-2 and 4-7 of the example. Position 3 is filled. */
static void hierarchy_takes_the_surest_of_each_run(void **state) {
    (void)state;
    block b = masks(Q(.5F, .7F, .3F, .45F, .35F, .2F, .65F));
    for (int32_t i = 3; i < 7; i++) b.position[i]++;
    TAKES(&b, hierarchy, 1, 6);
    for (int32_t i = 3; i < 7; i++) b.position[i]--; /* one run */
    TAKES(&b, hierarchy, 1);
}

static void hierarchy_takes_what_is_above_the_threshold_too(void **state) {
    (void)state;
    block b = masks(Q(.91F, .95F, .9F, .3F));
    TAKES(&b, hierarchy, 0, 1);
    b = masks(Q(.4F, .4F, .1F)); /* probabilities equal to low_threshold fail; the surest is forced */
    TAKES(&b, hierarchy, 0);
    b.c.forced = false;
    TAKES_NOTHING(&b, hierarchy);
    b = masks(Q(.6F, .6F, .1F)); /* both of the equal positions are the surest of their run */
    TAKES(&b, hierarchy, 0, 1);
}

static void hierarchy_wants_its_thresholds_in_order(void **state) {
    (void)state;
    um_req r = {.how = {.low_threshold = .5F, .accept_threshold = .4F}};
    um_err err;
    assert_int_equal(um_sampler_hierarchy.init(&r, &err), UM_ERANGE);
    assert_non_null(strstr(err.msg, "low_threshold: 0.5 is above accept_threshold 0.4"));
    r.how.accept_threshold = .5F;
    assert_int_equal(um_sampler_hierarchy.init(&r, &err), UM_OK);
}

/* ---- Entropy ----------------------------------------------------------------------------------------------------- */

static block entropies(int32_t n, const float *h) {
    block b = masks(n, NULL);
    for (int32_t i = 0; i < n; i++) b.answer[i].entropy = h[i];
    return b;
}

static void entropy_bound_runs_the_examples(void **state) {
    (void)state;
    block b = entropies(Q(.02F, .05F, .06F, .4F));
    b.how.entropy_bound = .1F;
    TAKES(&b, entropy_bound, 0, 1, 2);
    b = entropies(Q(.05F, .3F, .02F, .5F));
    b.how.entropy_bound = .1F;
    TAKES(&b, entropy_bound, 0, 1, 2);
    b.how.entropy_bound = 0;
    TAKES(&b, entropy_bound, 2);
}

static void entropy_bound_passes_equality(void **state) {
    (void)state;
    block b = entropies(Q(.25F, .25F, .5F, 1));
    b.how.entropy_bound = .5F;
    TAKES(&b, entropy_bound, 0, 1, 2);
    b.how.entropy_bound = .25F;
    TAKES(&b, entropy_bound, 0, 1);
}

static void entropy_bound_counts_the_first_one_unless_it_is_forced(void **state) {
    (void)state;
    block b = entropies(Q(.7F, .5F));
    TAKES(&b, entropy_bound, 1);
    b.c.forced = false;
    TAKES_NOTHING(&b, entropy_bound);
    b.how.entropy_bound = .5F;
    TAKES(&b, entropy_bound, 0, 1);
}

static void entropy_threshold_takes_what_is_below_it(void **state) {
    (void)state;
    block b = entropies(Q(.5F, .25F, .7F, .1F));
    b.how.entropy_threshold = .5F;
    TAKES(&b, entropy_threshold, 1, 3);
    b.how.entropy_threshold = .1F;
    TAKES(&b, entropy_threshold, 3);
    b.c.forced = false;
    TAKES_NOTHING(&b, entropy_threshold);
}

/* The first candidate is at position 8. Entropies grow by the penalty for each position behind it, masked or not. */
static void entropy_distance_prefers_the_first_masks(void **state) {
    (void)state;
    block b = masks(4, NULL);
    static const float h[] = {.2F, .35F, .37F, .1F};
    for (int32_t i = 0; i < 4; i++) b.answer[i].entropy = h[i];
    b.position[3] = 30;
    b.how.entropy_threshold = .4F;
    b.how.position_penalty = .02F;
    TAKES(&b, entropy_distance, 0, 1); /* .2, .37, .41, .54 */
    b.how.position_penalty = 0;
    TAKES(&b, entropy_distance, 0, 1, 2, 3);
    b.how.entropy_threshold = 0;
    TAKES(&b, entropy_distance, 3);
    b.how.position_penalty = .02F;
    TAKES(&b, entropy_distance, 0);
    b.answer[0].entropy = -1e-9F; /* rounding is no certainty beyond 0 */
    TAKES(&b, entropy_distance, 0);
    b.c.forced = false;
    TAKES_NOTHING(&b, entropy_distance);
}

static void entropy_samplers_have_their_own_thresholds(void **state) {
    (void)state;
    um_req r = {.how = {.entropy_threshold = NAN}};
    assert_int_equal(um_sampler_entropy_threshold.init(&r, NULL), UM_OK);
    assert_true(r.how.entropy_threshold == .45F);
    assert_int_equal(um_sampler_entropy_distance.init(&r, NULL), UM_OK);
    assert_true(r.how.entropy_threshold == .45F); /* a given value stays */
    r.how.entropy_threshold = NAN;
    assert_int_equal(um_sampler_entropy_distance.init(&r, NULL), UM_OK);
    assert_true(r.how.entropy_threshold == .4F);
    assert_int_equal(um_sampler_entropy_distance.want(&r), UM_WANT_SAMPLE | UM_WANT_PLAIN_ENTROPY);
}

/* ---- Remasking --------------------------------------------------------------------------------------------------- */

/* Expects that, of filled positions with these probabilities, `want` [n] become masks again, in this order. */
static void expect_remasked(block *b, int32_t filled, const float *p, float threshold, int32_t most, int32_t n,
                            const int32_t *want) {
    int32_t at[MAX] = {7}, id[MAX] = {7};
    um_decision d = {.n = 1, .at = at, .id = id}; /* remasking appends to one earlier decision */
    b->how.remask_threshold = threshold;
    for (int32_t i = 0; i < filled; i++) b->answer[i].p_id = p[i];
    b->c.n = filled;
    b->c.answer = b->answer;
    b->c.how = &b->how;
    um_remask(&b->c, most, &d);
    assert_int_equal(d.n, n + 1);
    assert_int_equal(at[0], 7);
    for (int32_t k = 0; k < n; k++) {
        assert_int_equal(at[k + 1], want[k]);
        assert_int_equal(id[k + 1], UM_MASKED);
    }
}

static void remasking_takes_the_least_probable_first(void **state) {
    (void)state;
    block b = masks(0, NULL);
    expect_remasked(&b, Q(.3F, .1F, .9F, .2F, .1F), .4F, 9, 4, (int32_t[]){1, 4, 3, 0});
    expect_remasked(&b, Q(.3F, .1F, .9F, .2F, .1F), .4F, 3, 3, (int32_t[]){1, 4, 3});
    expect_remasked(&b, Q(.3F, .1F, .9F, .2F, .1F), .4F, 0, 0, NULL);
}

static void remasking_is_strictly_below_the_threshold_and_off_by_default(void **state) {
    (void)state;
    block b = masks(0, NULL);
    expect_remasked(&b, Q(.4F, .39F, NAN), .4F, 9, 1, (int32_t[]){1});
    expect_remasked(&b, Q(0, 0, NAN), NAN, 9, 0, NULL);
    expect_remasked(&b, Q(0, 0), 0, 9, 0, NULL);
    b.c.n_fixed = 1;
    expect_remasked(&b, Q(.1F, .2F), .4F, 9, 1, (int32_t[]){1});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(confidence_takes_every_position_above_the_threshold),
        cmocka_unit_test(confidence_forces_the_surest_or_takes_nothing),
        cmocka_unit_test(equally_sure_positions_go_by_place),
        cmocka_unit_test(dynamic_passes_equality_with_the_threshold),
        cmocka_unit_test(dynamic_runs_the_example),
        cmocka_unit_test(other_scores_rank_the_forced_choice_only),
        cmocka_unit_test(wants_follow_the_score),
        cmocka_unit_test(static_takes_its_number_of_the_surest),
        cmocka_unit_test(a_number_is_capped_at_the_masks),
        cmocka_unit_test(sequential_takes_the_first_positions),
        cmocka_unit_test(sdar_takes_what_is_scheduled_or_all_that_are_sure),
        cmocka_unit_test(factor_runs_the_example),
        cmocka_unit_test(factor_passes_equality),
        cmocka_unit_test(factor_lets_the_surest_pass_when_it_is_forced_alone),
        cmocka_unit_test(hierarchy_takes_the_surest_of_each_run),
        cmocka_unit_test(hierarchy_takes_what_is_above_the_threshold_too),
        cmocka_unit_test(hierarchy_wants_its_thresholds_in_order),
        cmocka_unit_test(entropy_bound_runs_the_examples),
        cmocka_unit_test(entropy_bound_passes_equality),
        cmocka_unit_test(entropy_bound_counts_the_first_one_unless_it_is_forced),
        cmocka_unit_test(entropy_threshold_takes_what_is_below_it),
        cmocka_unit_test(entropy_distance_prefers_the_first_masks),
        cmocka_unit_test(entropy_samplers_have_their_own_thresholds),
        cmocka_unit_test(remasking_takes_the_least_probable_first),
        cmocka_unit_test(remasking_is_strictly_below_the_threshold_and_off_by_default),
    };
    return cmocka_run_group_tests_name("samplers that decide by what they see", tests, NULL, NULL);
}
