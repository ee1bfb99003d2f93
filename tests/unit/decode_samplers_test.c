/* Samplers are pure functions: their rules at the edges; and the tables of the room. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "decode/decode.h"

static int32_t accept(const float *q, int32_t n, float threshold, bool forced, int32_t *out) {
    um_answer a[8];
    for (int32_t i = 0; i < n; i++) a[i] = (um_answer){.q_sample = q[i]};
    um_choice c = {.answer = a, .n = n, .threshold = threshold, .forced = forced};
    return um_sampler_confidence.accept(&c, out);
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
    um_choice c = {.answer = a, .n = 2, .threshold = .9F, .confidence = UM_CONFIDENCE_MARGIN, .forced = true};
    assert_int_equal(um_sampler_confidence.accept(&c, out), 1);
    assert_int_equal(out[0], 1);
    c.threshold = .45F; /* still compared with the probability */
    assert_int_equal(um_sampler_confidence.accept(&c, out), 1);
    assert_int_equal(out[0], 0);
}

static void entropy_prefers_the_sharpest_distribution(void **state) {
    (void)state;
    um_answer a[] = {{.q_sample = .5F, .entropy = 2}, {.q_sample = .4F, .entropy = .7F}};
    int32_t out[2];
    um_choice c = {.answer = a, .n = 2, .threshold = .9F, .confidence = UM_CONFIDENCE_ENTROPY, .forced = true};
    assert_int_equal(um_sampler_confidence.accept(&c, out), 1);
    assert_int_equal(out[0], 1);
}

static void largest_scores_come_in_order(void **state) {
    (void)state;
    float score[] = {.1F, .9F, .5F, .9F};
    int32_t out[3];
    um_choose_largest(score, 4, 3, out);
    assert_int_equal(out[0], 1);
    assert_int_equal(out[1], 3);
    assert_int_equal(out[2], 2);
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
    for (size_t i = 0; um_samplers[i]; i++)
        assert_true(um_samplers[i]->name && um_samplers[i]->summary && um_samplers[i]->source);
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
        cmocka_unit_test(largest_scores_come_in_order),
        cmocka_unit_test(tables_are_whole),
        cmocka_unit_test(option_names_are_unique_over_all_sets),
    };
    return cmocka_run_group_tests_name("samplers and tables", tests, NULL, NULL);
}
