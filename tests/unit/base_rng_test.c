/* base: random numbers. All keys are fixed, so the statistics are the same in every run. */
#include "base/base.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include <math.h>

/* The first outputs of SplitMix64 with state 1234567, computed with its authors' program. */
static void is_splitmix64(void **state) {
    (void)state;
    const uint64_t expected[] = {UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
                                 UINT64_C(9817491932198370423), UINT64_C(4593380528125082431),
                                 UINT64_C(16408922859458223821)};
    for (size_t i = 0; i < UM_LEN(expected); i++) assert_true(um_rng_u64(1234567, i) == expected[i]);
}

static void keys_depend_on_every_part_and_its_place(void **state) {
    (void)state;
    uint64_t keys[5 * 5 * 5 * 5];
    size_t n = 0;
    for (uint64_t a = 0; a < 5; a++)
        for (uint64_t b = 0; b < 5; b++)
            for (uint64_t c = 0; c < 5; c++)
                for (uint64_t d = 0; d < 5; d++) keys[n++] = um_rng_key(a, b, c, d);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++) assert_true(keys[i] != keys[k]);
}

/* A change of one bit of the position changes about 32 of 64 bits of the key. */
static void neighbouring_keys_share_no_bits(void **state) {
    (void)state;
    double flips = 0;
    const int rounds = 1000;
    for (int i = 0; i < rounds; i++)
        flips += __builtin_popcountll(um_rng_key(7, (uint64_t)i, 0, 0) ^ um_rng_key(7, (uint64_t)i ^ 1, 0, 0));
    assert_true(fabs(flips / rounds - 32) < 0.75); /* four standard deviations: 4 * 4 / sqrt(500) */
}

static void uniform_stays_inside_and_fills_the_interval(void **state) {
    (void)state;
    const int n = 1 << 20;
    int cell[64] = {0};
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double u = um_rng_uniform(42, (uint64_t)i);
        assert_true(u > 0 && u < 1);
        cell[(int)(u * 64)]++;
        sum += u;
    }
    double chi2 = 0, expected = n / 64.0;
    for (int i = 0; i < 64; i++) chi2 += (cell[i] - expected) * (cell[i] - expected) / expected;
    assert_true(fabs(sum / n - 0.5) < 0.0015);
    assert_true(chi2 < 110); /* 63 degrees of freedom: larger with a probability of 1 in 5,000 */
}

/* Mean and variance of the Gumbel distribution: Euler's constant and pi^2 / 6. */
static void gumbel_has_its_moments(void **state) {
    (void)state;
    const int n = 1 << 20;
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        double g = (double)um_rng_gumbel(9, (uint64_t)i);
        assert_true(isfinite(g));
        sum += g;
        squares += g * g;
    }
    double mean = sum / n, variance = squares / n - mean * mean;
    assert_true(fabs(mean - 0.5772156649) < 0.006);
    assert_true(fabs(variance - 1.6449340668) < 0.02);
}

static void seeds_differ_and_fit_into_json(void **state) {
    (void)state;
    int64_t a = um_rng_seed(), b = um_rng_seed();
    assert_true(a != b);
    assert_in_range(a, 0, (INT64_C(1) << 53) - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_splitmix64),
        cmocka_unit_test(keys_depend_on_every_part_and_its_place),
        cmocka_unit_test(neighbouring_keys_share_no_bits),
        cmocka_unit_test(uniform_stays_inside_and_fills_the_interval),
        cmocka_unit_test(gumbel_has_its_moments),
        cmocka_unit_test(seeds_differ_and_fit_into_json),
    };
    return cmocka_run_group_tests_name("base_rng", tests, NULL, NULL);
}
