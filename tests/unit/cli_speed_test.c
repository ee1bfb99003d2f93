/* speed: histograms and rates, computed from made-up requests and counters. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/speed.h"

static void near(double value, double expected) {
    if (fabs(value - expected) > 1e-9 * fmax(1, fabs(expected))) fail_msg("%.12g, expected %.12g", value, expected);
}

/* A request without time in the queue. */
static um_result answer(size_t tokens, double first, double total) {
    return (um_result){.n_tokens = tokens,
                       .denoise_tokens = (int32_t)tokens,
                       .denoise_passes = 1,
                       .nfe = 1,
                       .finish = UM_FINISH_MAX_TOKENS,
                       .first_token_seconds = first,
                       .total_seconds = total};
}

static void two_requests_of_one_token_in_one_second(void **state) {
    (void)state;
    um_metrics m = {0};
    um_stats none = {0}, after = {.step_seconds = 1, .decode_seconds = 1, .decode_tokens = 2, .steps = 1, .passes = 2};
    um_result r = answer(1, 1, 1);
    um_metrics_add(&m, &r);
    um_metrics_add(&m, &r);
    um_rates rates = um_metrics_rates(&m, &none, &after);
    near(rates.decode_throughput, 2);
    near(rates.tpf, 1);
    near(rates.throughput, 2);
    near(rates.tpot, 0); /* undefined for a single token */
    near(rates.requests_per_step, 2);
}

static void a_prefill_step_and_a_decode_step(void **state) {
    (void)state;
    um_metrics m = {0};
    um_stats none = {0};
    um_stats after = {.step_seconds = 1.5,
                      .prefill_seconds = 0.5,
                      .decode_seconds = 1,
                      .prefill_tokens = 20,
                      .decode_tokens = 6,
                      .steps = 2,
                      .passes = 4};
    um_result two = answer(2, 1.5, 1.5), four = answer(4, 1.5, 1.5);
    two.nfe = four.nfe = 2;
    um_metrics_add(&m, &two);
    um_metrics_add(&m, &four);
    um_rates rates = um_metrics_rates(&m, &none, &after);
    near(rates.tpf, 1.5);
    near(rates.tpf_all, 1.5);
    near(rates.ttft, 1.5);
    near(rates.throughput, 4);
    near(rates.prefill_throughput, 40);
    near(rates.decode_throughput, 6);
}

/* The mean over requests is not the mean over passes. Denoising passes alone don't matter. */
static void tokens_per_forward_counts_all_passes(void **state) {
    (void)state;
    um_metrics m = {0};
    um_stats none = {0};
    um_result quick = answer(30, 1, 1), slow = answer(10, 1, 1);
    quick.nfe = 3;
    slow.nfe = 10;
    slow.denoise_passes = 9;
    um_metrics_add(&m, &quick);
    um_metrics_add(&m, &slow);
    um_rates rates = um_metrics_rates(&m, &none, &none);
    near(rates.tpf, 5.5);
    near(rates.tpf_all, 40.0 / 13);
}

static void prefill_rate_is_zero_without_prefill(void **state) {
    (void)state;
    um_metrics m = {0};
    um_stats none = {0}, after = {.step_seconds = 1, .decode_seconds = 1, .decode_tokens = 3};
    um_rates rates = um_metrics_rates(&m, &none, &after);
    near(rates.prefill_throughput, 0);
    near(rates.tpf, 0);
    near(rates.ttft, 0);
    near(um_histogram_quantile(&m.queue, 0.99), 0);
}

static void only_steps_between_the_readings_count(void **state) {
    (void)state;
    um_metrics m = {0};
    um_stats before = {.step_seconds = 10, .decode_seconds = 8, .decode_tokens = 1000, .forward_seconds = 5};
    um_stats after = {.step_seconds = 12, .decode_seconds = 10, .decode_tokens = 1100, .forward_seconds = 6.5};
    um_rates rates = um_metrics_rates(&m, &before, &after);
    near(rates.decode_throughput, 50);
    near(rates.overhead, 0.25);
}

static void ttft_excludes_the_queue_and_tpot_the_first_token(void **state) {
    (void)state;
    um_metrics m = {0};
    um_stats none = {0};
    um_result r = answer(5, 3, 4), one = answer(1, 1, 9);
    r.queue_seconds = 2;
    um_metrics_add(&m, &r);
    near(um_metrics_rates(&m, &none, &none).ttft, 1);
    near(um_metrics_rates(&m, &none, &none).tpot, 0.25);
    um_metrics_add(&m, &one); /* skipped by tpot */
    near(um_metrics_rates(&m, &none, &none).tpot, 0.25);
    near(um_histogram_mean(&m.first_token), 2);
}

/* Two requests that ran at the same time: 8 tokens in 2 seconds after 1 in the queue, and 3 tokens in 1 second. */
static void rates_per_request_are_means_over_requests(void **state) {
    (void)state;
    um_metrics m = {0};
    um_stats none = {0};
    um_result slow = answer(8, 2, 3), quick = answer(3, 1, 1), stored = answer(2, 0, 0);
    slow.queue_seconds = 1;
    slow.denoise_tokens = 6;
    slow.decode_seconds = 1.5;
    um_metrics_add(&m, &slow);
    um_metrics_add(&m, &quick); /* answered during prefill: no denoising time */
    um_metrics_add(&m, &stored);
    near(um_metrics_rates(&m, &none, &none).run_tps, 3.5);
    near(um_metrics_rates(&m, &none, &none).decode_tps, 4);
    near(m.run_seconds, 3);
}

static void aborted_requests_are_not_counted(void **state) {
    (void)state;
    um_metrics m = {0};
    um_result r = answer(5, 3, 4);
    r.finish = UM_FINISH_ABORTED;
    um_metrics_add(&m, &r);
    assert_int_equal(m.requests, 0);
    assert_int_equal(m.total.n, 0);
}

static void quantiles_are_within_one_percent(void **state) {
    (void)state;
    static um_histogram h;
    for (int i = 1; i <= 1000; i++) um_histogram_add(&h, 0.001 * i);
    const double q[] = {0.5, 0.9, 0.95, 0.99};
    for (size_t i = 0; i < UM_LEN(q); i++) assert_true(fabs(um_histogram_quantile(&h, q[i]) / q[i] - 1) < 0.011);
    assert_true(fabs(um_histogram_quantile(&h, 1) - 1) < 0.011);
    assert_true(um_histogram_quantile(&h, 0) < 0.0011);
    near(um_histogram_mean(&h), 0.5005);
}

static void one_value_is_its_own_quantile(void **state) {
    (void)state;
    static um_histogram h;
    um_histogram_add(&h, 0.123);
    near(um_histogram_quantile(&h, 0.5), 0.123);
    near(um_histogram_quantile(&h, 0.99), 0.123);
}

static void values_outside_the_buckets_count_in_the_end_buckets(void **state) {
    (void)state;
    static um_histogram h;
    um_histogram_add(&h, 0);
    um_histogram_add(&h, 1e9);
    assert_true(um_histogram_quantile(&h, 0.5) < 1.1e-6);
    assert_true(um_histogram_quantile(&h, 0.99) > 9e4);
    assert_int_equal(h.n, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_requests_of_one_token_in_one_second),
        cmocka_unit_test(a_prefill_step_and_a_decode_step),
        cmocka_unit_test(tokens_per_forward_counts_all_passes),
        cmocka_unit_test(prefill_rate_is_zero_without_prefill),
        cmocka_unit_test(only_steps_between_the_readings_count),
        cmocka_unit_test(ttft_excludes_the_queue_and_tpot_the_first_token),
        cmocka_unit_test(rates_per_request_are_means_over_requests),
        cmocka_unit_test(aborted_requests_are_not_counted),
        cmocka_unit_test(quantiles_are_within_one_percent),
        cmocka_unit_test(one_value_is_its_own_quantile),
        cmocka_unit_test(values_outside_the_buckets_count_in_the_end_buckets),
    };
    return cmocka_run_group_tests_name("engine_metrics", tests, NULL, NULL);
}
