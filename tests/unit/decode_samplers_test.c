/* Samplers are pure functions: their rules at the edges; and the tables of the room. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "decode/decode.h"

/* What the sampler decides: the chosen candidates go to out; returns their number. */
static int32_t run(const um_sampler *s, const um_choice *c, int32_t *out) {
    int32_t id[64];
    um_decision d = {.at = out, .id = id};
    s->accept(c, &d);
    return d.n;
}

static int32_t accept(const float *q, int32_t n, float threshold, bool forced, int32_t *out) {
    um_answer a[8];
    for (int32_t i = 0; i < n; i++) a[i] = (um_answer){.q_sample = q[i]};
    um_decoding how = {.accept_threshold = threshold};
    um_choice c = {.answer = a, .n = n, .how = &how, .forced = forced};
    return run(&um_sampler_confidence, &c, out);
}

static void takes_every_position_above_the_threshold(void **state) {
    (void)state;
    int32_t out[8];
    assert_int_equal(accept((float[]){.96F, .2F, .99F, .95F}, 4, .95F, true, out), 2);
    assert_int_equal(out[0], 0);
    assert_int_equal(out[1], 2);
}

static void forces_the_surest_when_none_passes(void **state) {
    (void)state;
    int32_t out[8];
    assert_int_equal(accept((float[]){.2F, .7F, .4F}, 3, .95F, true, out), 1);
    assert_int_equal(out[0], 1);
}

static void takes_nothing_when_it_may_not_be_forced(void **state) {
    (void)state;
    int32_t out[8];
    assert_int_equal(accept((float[]){.2F, .7F, .4F}, 3, .95F, false, out), 0);
    assert_int_equal(accept((float[]){.2F}, 0, .95F, true, out), 0);
}

static void ties_go_to_the_first_position(void **state) {
    (void)state;
    int32_t out[8];
    assert_int_equal(accept((float[]){.2F, .5F, .5F}, 3, .95F, true, out), 1);
    assert_int_equal(out[0], 1);
}

static void margin_ranks_the_forced_choice_only(void **state) {
    (void)state;
    um_answer a[] = {{.q_sample = .5F, .q_best = .5F, .q_second = .45F},
                     {.q_sample = .4F, .q_best = .4F, .q_second = .1F}};
    int32_t out[2];
    um_decoding how = {.accept_threshold = .9F, .confidence = UM_CONFIDENCE_MARGIN};
    um_choice c = {.answer = a, .n = 2, .how = &how, .forced = true};
    assert_int_equal(run(&um_sampler_confidence, &c, out), 1);
    assert_int_equal(out[0], 1);
    how.accept_threshold = .45F; /* still compared with the probability */
    assert_int_equal(run(&um_sampler_confidence, &c, out), 1);
    assert_int_equal(out[0], 0);
}

static void entropy_prefers_the_sharpest_distribution(void **state) {
    (void)state;
    um_answer a[] = {{.q_sample = .5F, .entropy = 2}, {.q_sample = .4F, .entropy = .7F}};
    int32_t out[2];
    um_decoding how = {.accept_threshold = .9F, .confidence = UM_CONFIDENCE_ENTROPY};
    um_choice c = {.answer = a, .n = 2, .how = &how, .forced = true};
    assert_int_equal(run(&um_sampler_confidence, &c, out), 1);
    assert_int_equal(out[0], 1);
}

/* Runs a scheduled sampler over four candidates; `keep` of them, drawn at `alg_temp` with `seed`. */
static int32_t fix(const um_sampler *s, const um_answer *a, int32_t keep, float alg_temp, uint64_t seed, int32_t *out) {
    static const int32_t position[] = {10, 11, 12, 13};
    float score[4];
    um_decoding how = {.alg_temp = alg_temp};
    um_choice c = {
        .answer = a, .position = position, .n = 4, .how = &how, .seed = seed, .keep = keep, .rate = .5, .score = score};
    return run(s, &c, out);
}

static void equal_scores_go_to_the_left_position(void **state) {
    (void)state;
    um_answer a[] = {{.p_sample = .1F}, {.p_sample = .9F}, {.p_sample = .5F}, {.p_sample = .9F}};
    int32_t out[4];
    assert_int_equal(fix(&um_sampler_low_confidence, a, 3, 0, 0, out), 3);
    assert_int_equal(out[0], 1);
    assert_int_equal(out[1], 3);
    assert_int_equal(out[2], 2);
}

/* Four candidates of which each sampler prefers another one. */
static void samplers_rank_by_their_own_score(void **state) {
    (void)state;
    um_answer a[] = {{.p_sample = .9F, .q_sample = .1F, .q_best = .5F, .q_second = .4F, .entropy = 3},
                     {.p_sample = .1F, .q_sample = .9F, .q_best = .9F, .q_second = .8F, .entropy = 2},
                     {.p_sample = .1F, .q_sample = .2F, .q_best = .6F, .q_second = .1F, .entropy = 4},
                     {.p_sample = .1F, .q_sample = .3F, .q_best = .5F, .q_second = .4F, .entropy = 1}};
    const um_sampler *s[] = {&um_sampler_low_confidence, &um_sampler_maskgit_plus, &um_sampler_topk_margin,
                             &um_sampler_entropy, &um_sampler_linear_entropy};
    const int32_t first[] = {0, 1, 2, 3, 3};
    for (size_t i = 0; i < UM_LEN(s); i++) {
        int32_t out[4];
        assert_int_equal(fix(s[i], a, 1, 0, 0, out), 1);
        assert_int_equal(out[0], first[i]);
    }
}

/* A model with broken weights predicts NaN: each position is still fixed once. */
static void scores_that_are_no_numbers_come_last(void **state) {
    (void)state;
    um_answer a[] = {{.p_sample = NAN}, {.p_sample = -INFINITY}, {.p_sample = .5F}, {.p_sample = NAN}};
    int32_t out[4];
    assert_int_equal(fix(&um_sampler_low_confidence, a, 4, 0, 0, out), 4);
    assert_int_equal(out[0], 2);
    assert_int_equal(out[1], 0);
    assert_int_equal(out[2], 1);
    assert_int_equal(out[3], 3);
}

/* With scores ln w and alg_temp 1 candidate i comes first in w_i / sum(w) of all draws. */
static void alg_temp_draws_positions_by_their_scores(void **state) {
    (void)state;
    um_answer a[4];
    int32_t out[4], count[4] = {0};
    for (int i = 0; i < 4; i++) a[i].entropy = -logf((float)(i + 1));
    for (uint64_t seed = 0; seed < 20000; seed++) {
        fix(&um_sampler_entropy, a, 1, 1, seed, out);
        count[out[0]]++;
    }
    for (int i = 0; i < 4; i++) assert_true(abs(count[i] - 2000 * (i + 1)) < 250); /* over 5 deviations */
}

static void origin_fixes_each_position_by_itself(void **state) {
    (void)state;
    um_answer a[4] = {{0}};
    int32_t out[4], count[4] = {0}, all = 0;
    for (uint64_t seed = 0; seed < 10000; seed++) {
        int32_t n = fix(&um_sampler_origin, a, 0, 0, seed, out);
        for (int32_t i = 0; i < n; i++) count[out[i]]++;
        all += n == 4;
    }
    for (int i = 0; i < 4; i++) assert_true(abs(count[i] - 5000) < 250);
    assert_true(abs(all - 625) < 125);
}

/* The example of the specification: 8 masks, 4 passes, eps 0.001. */
static void the_time_schedule_is_dreams(void **state) {
    (void)state;
    static const double rate[] = {.24975, .33289, .49900, 1};
    static const int32_t count[] = {1, 2, 2, 3};
    int32_t masks = 8;
    for (int32_t i = 0; i < 4; i++) {
        assert_true(fabs(um_schedule_rate(.001, i, 4) - rate[i]) < 1e-5);
        int32_t n = um_schedule_count(UM_SCHEDULE_TIME, .001, i, 4, masks, 8);
        assert_int_equal(n, count[i]);
        masks -= n;
    }
}

/* Runs a schedule to its end; every mask must be fixed by the last pass. */
static void expect_counts(um_schedule s, int32_t len, const int32_t *want, int32_t n) {
    int32_t masks = len;
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(um_schedule_count(s, .001, i, n, masks, len), want[i]);
        masks -= want[i];
    }
    assert_int_equal(masks, 0);
}

static void even_and_linear_schedules_round_differently(void **state) {
    (void)state;
    expect_counts(UM_SCHEDULE_EVEN, 10, (int32_t[]){3, 3, 2, 2}, 4);
    expect_counts(UM_SCHEDULE_LINEAR, 10, (int32_t[]){3, 2, 3, 2}, 4);
    expect_counts(UM_SCHEDULE_EVEN, 32, (int32_t[]){4, 4, 3, 3, 3, 3, 3, 3, 3, 3}, 10);
    expect_counts(UM_SCHEDULE_LINEAR, 2, (int32_t[]){1, 0, 1, 0}, 4);
}

/* Every row of a table can be read by `unmask list`: name, summary, source; defaults within their own range. */
static void tables_are_whole(void **state) {
    (void)state;
    for (size_t i = 0; um_strategies[i]; i++) {
        const um_strategy *s = um_strategies[i], *found = NULL;
        assert_true(s->name && s->summary && s->source);
        assert_int_equal(um_strategy_find(&found, s->name, NULL), UM_OK);
        assert_ptr_equal(found, s);
        for (size_t k = i + 1; um_strategies[k]; k++) assert_string_not_equal(s->name, um_strategies[k]->name);
    }
    for (size_t i = 0; um_samplers[i]; i++) {
        const um_sampler *s = um_samplers[i], *found = NULL;
        assert_true(s->name && s->summary && s->source);
        assert_int_equal(um_sampler_find(&found, s->name, NULL), UM_OK);
        assert_ptr_equal(found, s);
    }
}

static void option_names_are_unique_over_all_sets(void **state) {
    (void)state;
    um_decoding d = {0};
    um_sampling_params p = {0};
    um_option_set sets[UM_DECODE_SETS_MAX];
    size_t n = um_decode_option_sets(sets, &d, &p);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < sets[i].n; k++)
            for (size_t j = i; j < n; j++)
                for (size_t m = j == i ? k + 1 : 0; m < sets[j].n; m++)
                    assert_string_not_equal(sets[i].rows[k].name, sets[j].rows[m].name);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_every_position_above_the_threshold),
        cmocka_unit_test(forces_the_surest_when_none_passes),
        cmocka_unit_test(takes_nothing_when_it_may_not_be_forced),
        cmocka_unit_test(ties_go_to_the_first_position),
        cmocka_unit_test(margin_ranks_the_forced_choice_only),
        cmocka_unit_test(entropy_prefers_the_sharpest_distribution),
        cmocka_unit_test(equal_scores_go_to_the_left_position),
        cmocka_unit_test(samplers_rank_by_their_own_score),
        cmocka_unit_test(scores_that_are_no_numbers_come_last),
        cmocka_unit_test(alg_temp_draws_positions_by_their_scores),
        cmocka_unit_test(origin_fixes_each_position_by_itself),
        cmocka_unit_test(the_time_schedule_is_dreams),
        cmocka_unit_test(even_and_linear_schedules_round_differently),
        cmocka_unit_test(tables_are_whole),
        cmocka_unit_test(option_names_are_unique_over_all_sets),
    };
    return cmocka_run_group_tests_name("samplers and tables", tests, NULL, NULL);
}
