/* Tests of the sets of masks that Monte Carlo scores draw. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "decode/mask_sets.h"

enum { N_MAX = 64 };

static um_mask_sets sets_of(int32_t n, int32_t samples, int32_t batch, uint64_t seed) {
    um_mask_sets s = {.n = n, .first = 3, .samples = samples, .batch = batch, .seed = seed};
    um_mask_sets_init(&s);
    return s;
}

/* Each batch has every number of masks equally often when the batch is a multiple of the block. */
static void spreads_the_numbers_of_masks_evenly(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        const um_mask_sets s = sets_of(12, 96, 24, seed);
        for (int32_t b = 0; b < 4; b++) {
            int32_t times[13] = {0};
            bool masked[12];
            double weight;
            for (int32_t i = 0; i < 24; i++) {
                const int32_t l = um_mask_sets_get(&s, 24 * b + i, masked, &weight);
                assert_in_range(l, 1, 12);
                assert_true(fabs(weight - 12.0 / l / 96) < 1e-12);
                times[l]++;
            }
            for (int32_t l = 1; l <= 12; l++) assert_int_equal(times[l], 2);
        }
    }
}

/* A batch that is shorter than the block: its numbers of masks lie at equal distances, modulo the block. */
static void spreads_few_samples_over_a_long_block(void **state) {
    (void)state;
    const um_mask_sets s = sets_of(40, 32, 8, 1);
    bool masked[40];
    double weight;
    for (int32_t i = 1; i < 32; i++) {
        if (i % 8 == 0) continue;
        const int32_t a = um_mask_sets_get(&s, i - 1, masked, &weight);
        const int32_t b = um_mask_sets_get(&s, i, masked, &weight);
        assert_int_equal((b - a + 40) % 40, 5);
    }
}

/* Over many seeds each number of masks has the probability 1 / n, also in one sample, and with a given number of masks
 * each pair of positions is masked together equally often. A binomial deviates by 5 standard deviations in fewer than
 * one of a million cases. */
static void every_set_of_a_size_is_equally_likely(void **state) {
    enum { N = 6, SEEDS = 40000 };
    int32_t size[N + 1] = {0}, pair[N][N] = {{0}}, of_three = 0;
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const um_mask_sets s = sets_of(N, 4, 4, seed);
        bool masked[N];
        double weight;
        const int32_t l = um_mask_sets_get(&s, (int32_t)(seed % 4), masked, &weight);
        size[l]++;
        of_three += l == 3;
        for (int32_t a = 0; a < N && l == 3; a++)
            for (int32_t b = 0; b < a; b++) pair[a][b] += masked[a] && masked[b];
    }
    for (int32_t l = 1; l <= N; l++) {
        const double p = 1.0 / N, deviation = sqrt(SEEDS * p * (1 - p));
        assert_true(fabs(size[l] - SEEDS * p) < 5 * deviation);
    }
    for (int32_t a = 0; a < N; a++)
        for (int32_t b = 0; b < a; b++) {
            const double p = 4.0 / 20, deviation = sqrt(of_three * p * (1 - p)); /* 4 of the 20 sets of three */
            assert_true(fabs(pair[a][b] - of_three * p) < 5 * deviation);
        }
}

/* Each token has the weight 1 in the sum over all sets, and no set occurs twice. */
static void short_blocks_have_every_set_once(void **state) {
    (void)state;
    for (int32_t n = 1; n <= 7; n++) {
        const um_mask_sets s = sets_of(n, 127, 127, 9);
        double sum[7] = {0}, weight;
        bool seen[128] = {false}, masked[7];
        assert_true(s.exact);
        assert_int_equal(s.count, (1 << n) - 1);
        for (int32_t i = 0; i < s.count; i++) {
            int32_t bits = 0;
            um_mask_sets_get(&s, i, masked, &weight);
            for (int32_t k = 0; k < n; k++) {
                bits |= masked[k] << k;
                if (masked[k]) sum[k] += weight;
            }
            assert_false(seen[bits]);
            seen[bits] = true;
        }
        for (int32_t k = 0; k < n; k++) assert_true(fabs(sum[k] - 1) < 1e-12);
    }
    assert_false(sets_of(7, 126, 126, 9).exact);
    assert_false(sets_of(N_MAX, 1000, 10, 9).exact);
}

/* The weights of a batch add up to the same for every token on average, and to the number of tokens exactly. */
static void the_weights_of_all_masks_add_up_to_the_tokens(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        const um_mask_sets s = sets_of(N_MAX, 40, 8, seed);
        bool masked[N_MAX];
        double sum = 0, weight;
        for (int32_t i = 0; i < s.count; i++) sum += um_mask_sets_get(&s, i, masked, &weight) * weight;
        assert_true(fabs(sum - N_MAX) < 1e-9);
    }
}

static bool equal(const um_mask_sets *a, const um_mask_sets *b, int32_t i) {
    bool x[N_MAX], y[N_MAX];
    double weight;
    return um_mask_sets_get(a, i, x, &weight) == um_mask_sets_get(b, i, y, &weight) &&
           memcmp(x, y, (size_t)a->n * sizeof *x) == 0;
}

static void sets_depend_on_seed_sample_and_block(void **state) {
    (void)state;
    um_mask_sets a = sets_of(N_MAX, 16, 4, 1), b = a;
    assert_true(equal(&a, &b, 5));
    b.seed = 2;
    assert_false(equal(&a, &b, 5));
    b = a;
    b.first++;
    assert_false(equal(&a, &b, 5));
}

static void the_automatic_batch_leaves_eight(void **state) {
    static const int32_t batch[][2] = {{1, 1},    {7, 1},    {8, 1},   {16, 2},     {30, 3},
                                       {100, 10}, {128, 16}, {127, 1}, {1024, 128}, {1000000, 125000}};
    (void)state;
    for (size_t i = 0; i < UM_LEN(batch); i++) assert_int_equal(um_mask_sets_batch(batch[i][0]), batch[i][1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spreads_the_numbers_of_masks_evenly),
        cmocka_unit_test(spreads_few_samples_over_a_long_block),
        cmocka_unit_test(every_set_of_a_size_is_equally_likely),
        cmocka_unit_test(short_blocks_have_every_set_once),
        cmocka_unit_test(the_weights_of_all_masks_add_up_to_the_tokens),
        cmocka_unit_test(sets_depend_on_seed_sample_and_block),
        cmocka_unit_test(the_automatic_batch_leaves_eight),
    };
    return cmocka_run_group_tests_name("mask_sets", tests, NULL, NULL);
}
