/* Tests of the measurement of `unmask bench engine` on tiny checkpoints: the steps that it counts, their sizes, limits
 * and operations. */
#include <math.h>

#include "cli/bench_engine.h"
#include "support.h"

static test_engine opened; /* its engine is not used */
static char path[128];
static um_config config;

static int32_t ranks; /* with whole experts; 0: one */

static void open_model(const char *name) {
    test_config(&config, name, path, sizeof path);
    if (ranks) config.tensor_parallel_size = ranks;
    config.enable_expert_parallel = ranks > 0;
    test_open(&opened, &config);
}

static um_engine_point measured(const char *name, const char *strategy, int32_t batch, int32_t block) {
    open_model(name);
    um_engine_point p = {.shape = um_released_all, .batch = batch, .block = block, .context = 16, .strategy = strategy};
    p.canvas = opened.model->arch.conditioning_ff > 0;
    p.block_passes = p.canvas ? UM_BENCH_CANVAS_PASSES : block;
    const um_engine_plan plan = {.model = opened.model, .config = &config, .passes = 10, .operations = true};
    um_err err = {0};
    if (um_engine_point_measure(&p, &plan, &err)) fail_msg("%s", err.msg);
    test_close(&opened);
    return p;
}

static void check_step(const um_step_result *s, int64_t tokens) {
    assert_true(s->n > 0);
    assert_int_equal(s->size.tokens, tokens);
    assert_true(s->seconds.min > 0 && s->seconds.min <= s->seconds.median && s->seconds.median <= s->seconds.max);
    assert_true(s->gap.min >= 0 && s->gap.max < s->seconds.max);
    assert_true(s->limit > 0);
}

static void check_operations(const um_engine_point *p) {
    double share = 0, seconds = 0;
    assert_int_equal(p->n_profiled, 10);
    for (int32_t i = 0; i < p->n_operations; i++) {
        share += p->operation[i].share;
        seconds += p->operation[i].seconds;
        assert_true(i == 0 || p->operation[i].share <= p->operation[i - 1].share);
    }
    assert_true(fabs(share - 1) < 1e-9);
    assert_true(seconds > 0);
}

/* The step of two ranks is that of one. */
static void ranks_with_whole_experts_are_measured(void **state) {
    (void)state;
    ranks = 2;
    const um_engine_point p = measured("sdar_moe", "multi_bd", 3, 4);
    ranks = 0;
    check_step(&p.step[UM_STEP_DENOISE], 3 * 4);
    check_operations(&p);
}

/* Blocks of 4 tokens: three passes over the block alone, then one that also stores it. */
static void blocks_are_denoised_and_committed(void **state) {
    (void)state;
    const um_engine_point p = measured("sdar", "multi_bd", 3, 4);
    check_step(&p.step[UM_STEP_PREFILL], 3 * (16 + 4));
    check_step(&p.step[UM_STEP_DENOISE], 3 * 4);
    check_step(&p.step[UM_STEP_COMMIT], 3 * 8);
    assert_true(p.step[UM_STEP_DENOISE].n >= 10);
    assert_int_equal(p.step[UM_STEP_REFRESH].n, 0);
    assert_true(p.step[UM_STEP_DENOISE].size.keys >= 3 * (16 + 4));
    assert_true(p.n_burst > 0 && p.burst_seconds > 0 && p.burst_seconds < 0.5);
    check_operations(&p);
}

static void a_canvas_is_refreshed_and_denoised(void **state) {
    (void)state;
    const um_engine_point p = measured("llada", "dual_cache", 2, 8);
    check_step(&p.step[UM_STEP_REFRESH], 2 * (16 + 8));
    check_step(&p.step[UM_STEP_DENOISE], 2 * 8);
    assert_int_equal(p.step[UM_STEP_DENOISE].size.keys, 2 * (16 + 8));
    assert_int_equal(p.step[UM_STEP_DENOISE].size.seen, 2 * 8 * (16 + 8));
    assert_int_equal(p.step[UM_STEP_COMMIT].n, 0);
    check_operations(&p);
}

static void shifted_predictions_and_experts_are_measured(void **state) {
    (void)state;
    check_step(&measured("dream", "dual_cache", 1, 8).step[UM_STEP_DENOISE], 8);
    const um_engine_point p = measured("llada2", "multi_bd", 1, 32);
    check_step(&p.step[UM_STEP_DENOISE], 32);
    assert_true(p.step[UM_STEP_DENOISE].cost.experts > 0);
}

/* Canvases end after a few passes. The first pass over the next one stores the one before. */
static void canvases_are_denoised_and_stored(void **state) {
    (void)state;
    const um_engine_point p = measured("families/diffusion_gemma/models/dgemma_a", "renoising", 2, 8);
    check_step(&p.step[UM_STEP_PREFILL], 2 * 16);
    check_step(&p.step[UM_STEP_DENOISE], 2 * 8);
    check_step(&p.step[UM_STEP_COMMIT], 2 * 2 * 8);
    assert_int_equal(p.step[UM_STEP_DENOISE].size.rows, 2 * 8);
    check_operations(&p);
    assert_true(p.blend_share > 0 && p.condition_share > 0 && p.blend_share + p.condition_share < 1);
}

/* A pass feeds the window, and the tokens that the pass before has made known. */
static void windows_are_denoised(void **state) {
    (void)state;
    const um_engine_point p = measured("families/wedlm/models/wedlm_8b", "causal_window", 3, 4);
    const um_step_result *s = &p.step[UM_STEP_DENOISE];
    assert_true(s->n >= 10 && s->size.tokens > 3 * 4 && s->size.tokens < 3 * 2 * 4);
    assert_int_equal(p.step[UM_STEP_COMMIT].n, 0);
    check_operations(&p);
    assert_true(p.blend_share == 0 && p.condition_share == 0);
}

static void blocks_with_seeds_are_denoised_and_stored(void **state) {
    (void)state;
    const um_engine_point p = measured("families/nemotron/models/nemotron_c", "seeded_bd", 1, 8);
    check_step(&p.step[UM_STEP_PREFILL], 16);
    check_step(&p.step[UM_STEP_DENOISE], 8);
    check_step(&p.step[UM_STEP_COMMIT], 8);
    assert_int_equal(p.step[UM_STEP_COMMIT].size.rows, 1);
}

static void edited_blocks_are_denoised(void **state) {
    (void)state;
    const um_engine_point p = measured("families/llada22/models/llada22_a", "levenshtein", 1, 8);
    check_step(&p.step[UM_STEP_DENOISE], 8);
    assert_true(p.step[UM_STEP_DENOISE].cost.experts > 0);
}

/* The model was opened without the rates of the device. */
static void without_rates_the_fastest_passes_are_the_limit(void **state) {
    (void)state;
    const um_engine_point p = measured("sdar", "multi_bd", 1, 4);
    double most = 0;
    assert_true(p.limits_of_passes);
    for (int i = 0; i < UM_N_STEP_KINDS; i++)
        if (p.step[i].n) most = UM_MAX(most, p.step[i].limit / p.step[i].seconds.min);
    assert_true(fabs(most - 1) < 1e-9);
}

/* The host's rates are those of an ordinary machine. */
static void the_host_measures_its_rates(void **state) {
    um_device_limits limits;
    um_err err = {0};
    (void)state;
    open_model("sdar");
    const um_backend *b = opened.model->backend;
    if (b->limits(opened.model->device, &limits, &err)) fail_msg("%s", err.msg);
    assert_true(limits.read_bytes > 1e8 && limits.read_bytes < 1e13);
    assert_true(limits.operations > 1e7 && limits.operations < 1e16);
    test_close(&opened);
}

/* Two requests, blocks of 8 tokens, 2 tokens per pass: a block takes 3 passes of 10 ms and a commit of 20 ms. */
static void tokens_per_second_count_the_first_step_of_a_block(void **state) {
    um_engine_point p = {.batch = 2, .block = 8, .context = 24};
    (void)state;
    p.step[UM_STEP_DENOISE] = (um_step_result){.n = 1, .seconds = {0.01, 0.01, 0.01}};
    p.step[UM_STEP_COMMIT] = (um_step_result){.n = 1, .seconds = {0.02, 0.02, 0.02}};
    assert_true(fabs(um_engine_point_tokens_per_second(&p, 2, false) - 2 * 2 / 0.01) < 1e-6);
    assert_true(fabs(um_engine_point_tokens_per_second(&p, 2, true) - 2 * 8 / (3 * 0.01 + 0.02)) < 1e-6);
    /* A step that refreshes one of the two requests is needed twice. */
    p.step[UM_STEP_REFRESH] = p.step[UM_STEP_COMMIT];
    p.step[UM_STEP_REFRESH].size.tokens = 32;
    p.step[UM_STEP_COMMIT].n = 0;
    assert_true(fabs(um_engine_point_tokens_per_second(&p, 2, true) - 2 * 8 / (3 * 0.01 + 0.04)) < 1e-6);
}

/* ---- Report ------------------------------------------------------------------------------------------------------ */

static void put(um_buf *out, um_engine_point *p,
                void (*print)(um_buf *, const um_engine_header *, const um_engine_point *)) {
    const um_engine_header h = {
        .device = {.name = "GPU", .memory = 1}, .commit = "c0ffee", .tokens_per_pass = 3, .config = &config};
    um_buf_clear(out);
    if (print) print(out, &h, p);
    else um_engine_put_svg(out, &h, p, 2);
}

static void has(const um_buf *out, const char *part) {
    if (!strstr(out->data, part)) fail_msg("no \"%s\" in %s", part, out->data);
}

/* A denoising step of 10 ms with a limit of 6 ms on a device that has a clock. */
static um_engine_point reported(void) {
    um_engine_point p = {.shape = um_released_all,
                         .batch = 2,
                         .block = 32,
                         .context = 512,
                         .layers = 2,
                         .all_layers = 32,
                         .strategy = "dual_cache",
                         .sampler = "s",
                         .dtype = "bfloat16",
                         .kv_dtype = "bfloat16"};
    p.step[UM_STEP_DENOISE] = (um_step_result){.n = 50,
                                               .seconds = {0.009, 0.01, 0.012},
                                               .gap = {1e-6, 2e-6, 3e-6},
                                               .n_gaps = 50,
                                               .device_seconds = 0.0099,
                                               .size = {64, 34, 1024, 32768},
                                               .cost = {.experts = 61.5},
                                               .limit = 0.006,
                                               .reads = true};
    return p;
}

static void the_report_has_the_numbers_of_the_point(void **state) {
    um_engine_point p = reported();
    um_buf out = {0};
    (void)state;
    put(&out, &p, um_engine_put_point);
    has(&out, "2 of 32 layers");
    has(&out, "context 512, block 32, dual_cache, sampler s;\nbatch 2\n");
    has(&out, "  denoise   50     64    34    10.000    9.000   12.000    6.000  60.0% reading\n");
    has(&out, "  denoise gap 2.0 us (median), 3.0 us (max); 9.900 ms on the device\n");
    has(&out, "61.5 experts per layer, if tokens choose at random");
    has(&out, "at 3 tokens per forward: 600.0 tokens/s");
    for (char *line = strtok(out.data, "\n"); line; line = strtok(NULL, "\n")) assert_in_range(strlen(line), 1, 80);
    put(&out, &p, um_engine_put_json);
    has(&out, "\"device_ms\":9.9");
    has(&out, "\"share_of_limit\":0.6");
    has(&out, "\"commit\":\"c0ffee\"");
    um_buf_free(&out);
}

static void the_chart_leaves_out_points_without_times(void **state) {
    um_engine_point p[2] = {{.shape = um_released_all, .batch = 1}, reported()};
    um_buf out = {0};
    (void)state;
    put(&out, p, NULL);
    has(&out, "llada-8b, 2 at once");
    has(&out, "10.00 ms, limit 6.00 (60 %)");
    has(&out, "GPU, bfloat16, context 512, commit c0ffee");
    assert_null(strstr(out.data, "llada-8b, 1 at once"));
    um_buf_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_with_whole_experts_are_measured),
        cmocka_unit_test(blocks_are_denoised_and_committed),
        cmocka_unit_test(a_canvas_is_refreshed_and_denoised),
        cmocka_unit_test(shifted_predictions_and_experts_are_measured),
        cmocka_unit_test(canvases_are_denoised_and_stored),
        cmocka_unit_test(windows_are_denoised),
        cmocka_unit_test(blocks_with_seeds_are_denoised_and_stored),
        cmocka_unit_test(edited_blocks_are_denoised),
        cmocka_unit_test(without_rates_the_fastest_passes_are_the_limit),
        cmocka_unit_test(the_host_measures_its_rates),
        cmocka_unit_test(tokens_per_second_count_the_first_step_of_a_block),
        cmocka_unit_test(the_report_has_the_numbers_of_the_point),
        cmocka_unit_test(the_chart_leaves_out_points_without_times),
    };
    return cmocka_run_group_tests_name("bench_engine", tests, NULL, NULL);
}
