/* Tests of the released configurations that open without a checkpoint, and of the cost of a pass. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model_folder.h"

static um_arch arch_of(const char *name, int32_t n_layers) {
    um_arch a;
    um_err err = {0};
    const um_released *r = um_released_find(name);
    assert_non_null(r);
    if (um_released_arch(&a, r, n_layers, &err)) fail_msg("%s", err.msg);
    return a;
}

/* ---- Configurations ---------------------------------------------------------------------------------------------- */

static void configurations_are_those_of_the_releases(void **state) {
    static const char *const file[][2] = {{"llada-8b", "llada_8b"},
                                          {"sdar-8b", "sdar_8b"},
                                          {"sdar-1.7b", "sdar_1_7b"},
                                          {"sdar-30b", "sdar_30b_a3b"},
                                          {"llada2-mini", "llada2_mini"},
                                          {"llada2-flash", "llada2_flash"},
                                          {"dream-7b", "dream_7b"},
                                          {"llada-moe", "llada_moe_7b_a1b"},
                                          {"diffusiongemma-26b", "diffusion_gemma_26b"},
                                          {"wedlm-8b", "wedlm_8b"},
                                          {"nemotron-8b", "nemotron_8b"},
                                          {"llada2.2-flash", "llada2_2_flash"}};
    (void)state;
    for (size_t i = 0; i < UM_LEN(file); i++) {
        char path[128];
        json_t *config = NULL;
        um_arch own = arch_of(file[i][0], 0), released;
        um_err err = {0};
        snprintf(path, sizeof path, "tests/data/released/%s.json", file[i][1]);
        if (um_json_load(&config, path, &err) || um_arch_parse(&released, config, path, NULL, &err))
            fail_msg("%s", err.msg);
        if (released.mask_id < 0) released.mask_id = released.family->mask_id;
        memset(released.declared_dtype, 0, sizeof released.declared_dtype); /* nothing reads it */
        assert_memory_equal(&own, &released, sizeof own);
        json_decref(config);
    }
    assert_null(um_released_all[UM_LEN(file)].name);
}

static void names_are_found_with_underscores(void **state) {
    (void)state;
    assert_ptr_equal(um_released_find("llada2_mini"), um_released_find("llada2-mini"));
    assert_null(um_released_find("llada2"));
}

static void the_first_layers_are_kept(void **state) {
    um_arch a = arch_of("llada-moe", 3);
    um_err err = {0};
    (void)state;
    assert_int_equal(a.n_layers, 3);
    assert_true(um_arch_is_moe(&a, 2));
    assert_int_equal(um_released_arch(&a, um_released_find("llada-8b"), 33, &err), UM_ERANGE);
    assert_says(&err, "32 layers");
}

/* ---- Costs ------------------------------------------------------------------------------------------------------- */

/* A layer of LLaDA 8B has 4 * 4096^2 + 3 * 4096 * 12288 = 218103808 weights, its head 126464 * 4096 = 517996544. A
 * position has 524288 bytes of keys and values. In the last layer, the 16 tokens without a row use 3 * 4096^2 weights.
 */
static void a_dense_pass_costs_what_a_hand_computes(void **state) {
    const um_pass_work block = {.tokens = 32, .rows = 16, .keys = 544, .seen = 32 * 544};
    const um_arch a = arch_of("llada-8b", 0);
    const um_pass_cost c = um_arch_pass_cost(&a, &block, 2, UM_BF16);
    (void)state;
    assert_true(c.weight_bytes == 2 * (32 * 218103808.0 + 517996544 + 32 * 4096));
    assert_true(c.weight_bytes == 14994898944);
    assert_true(c.kv_bytes == 544 * 524288.0);
    const double products = (31 * 32 + 16) * 218103808.0 + 16 * 3 * 4096 * 4096.0 + 16 * 517996544.0;
    assert_true(c.operations == 2 * (products + (31 * 32 + 16) * 544 * 2 * 32 * 128.0));
    assert_true(c.operations == 466867978240);
    assert_true(c.experts == 0);
}

static void wider_types_cost_more_bytes(void **state) {
    const um_pass_work one = {.tokens = 1, .rows = 1, .keys = 10, .seen = 10};
    const um_arch a = arch_of("sdar-8b", 0);
    const um_pass_cost narrow = um_arch_pass_cost(&a, &one, 2, UM_BF16), wide = um_arch_pass_cost(&a, &one, 4, UM_F32);
    (void)state;
    assert_true(wide.weight_bytes == 2 * narrow.weight_bytes);
    assert_true(wide.kv_bytes == 2 * narrow.kv_bytes);
    assert_true(wide.operations == narrow.operations);
    assert_true(um_arch_pass_cost(&a, &one, 2, UM_F8).kv_bytes == 10 * 36 * 2 * 8 * (128 + 4.0)); /* with scales */
}

/* A layer of SDAR-1.7B has 2048^2 weights that the attention output uses, and 3 * 2048 * 6144 in its feed-forward part.
 */
static void a_pass_without_rows_ends_with_the_last_keys(void **state) {
    um_pass_work p = {.tokens = 8, .rows = 1, .keys = 8, .seen = 64};
    const um_arch a = arch_of("sdar-1.7b", 1);
    const um_pass_cost with = um_arch_pass_cost(&a, &p, 2, UM_BF16);
    (void)state;
    p.rows = 0;
    const um_pass_cost without = um_arch_pass_cost(&a, &p, 2, UM_BF16);
    const double rest = 151936.0 * 2048 + 2048.0 * 2048 + 3.0 * 2048 * 6144;
    assert_true(with.weight_bytes - without.weight_bytes == 2 * rest);
    assert_true(with.operations - without.operations == 2 * (rest + 8 * 2 * 2048.0));
}

/* LLaDA2.0-mini: attention has 10485760 weights, the dense first layer 31457280, an expert and the shared expert of the
 * other 19 layers 3145728 each, a router 524288 in fp32, the head 321912832. One token uses 8 experts. */
static void one_token_reads_its_own_experts(void **state) {
    const um_pass_work one = {.tokens = 1, .rows = 1};
    const um_arch a = arch_of("llada2-mini", 0);
    const um_pass_cost c = um_arch_pass_cost(&a, &one, 2, UM_BF16);
    const double used = 20 * 10485760.0 + 31457280 + 19 * 9 * 3145728.0, routers = 19 * 524288.0, head = 321912832;
    (void)state;
    assert_true(fabs(c.experts - 8) < 1e-9);
    assert_true(fabs(c.weight_bytes - (2 * (used + head + 2048) + 4 * routers)) < 1);
    assert_true(fabs(c.operations - 2 * (used + routers + head)) < 1);
}

static void many_tokens_read_most_experts(void **state) {
    const um_pass_work block = {.tokens = 32, .rows = 32}, all = {.tokens = 4096, .rows = 1};
    const um_arch a = arch_of("llada2-mini", 0);
    (void)state;
    /* 256 * (1 - (31/32)^32) */
    assert_true(fabs(um_arch_pass_cost(&a, &block, 2, UM_BF16).experts - 163.31) < 0.01);
    assert_true(fabs(um_arch_pass_cost(&a, &all, 2, UM_BF16).experts - 256) < 1e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configurations_are_those_of_the_releases),
        cmocka_unit_test(names_are_found_with_underscores),
        cmocka_unit_test(the_first_layers_are_kept),
        cmocka_unit_test(a_dense_pass_costs_what_a_hand_computes),
        cmocka_unit_test(wider_types_cost_more_bytes),
        cmocka_unit_test(a_pass_without_rows_ends_with_the_last_keys),
        cmocka_unit_test(one_token_reads_its_own_experts),
        cmocka_unit_test(many_tokens_read_most_experts),
    };
    return cmocka_run_group_tests_name("model_cost", tests, NULL, NULL);
}
