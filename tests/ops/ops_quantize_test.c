/* Integers with scales: conversion of fp16, quantization of groups, and products with the same bits for all instruction
 * sets. */
#include "ops/quantize.h"

#include "ops_world.h"

static void codes_of_fp16_are_exact(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 0x10000; code++) {
        const float v = um_f16_to_f32((uint16_t)code);
        if (isnan(v)) assert_true(isnan(um_f16_to_f32(um_f32_to_f16(v))));
        else assert_int_equal(um_f32_to_f16(v), code);
    }
}

static void rounding_to_fp16_takes_the_nearest_and_of_two_the_even(void **state) {
    (void)state;
    for (uint16_t code = 0; code < 0x7bff; code++) {
        const float low = um_f16_to_f32(code), high = um_f16_to_f32((uint16_t)(code + 1)), middle = (low + high) / 2;
        assert_int_equal(um_f32_to_f16(middle), code + code % 2);
        assert_int_equal(um_f32_to_f16(nextafterf(middle, 0)), code);
        assert_int_equal(um_f32_to_f16(nextafterf(middle, 1e6f)), code + 1);
    }
    assert_int_equal(um_f32_to_f16(65519), 0x7bff);
    assert_int_equal(um_f32_to_f16(-65520), 0xfc00);
    assert_int_equal(um_f32_to_f16(1e-10f), 0);
}

/* Checks that each element is at most half a step from its integer, and that the largest has the largest integer. For
 * q4 that is -8, and elements of the other sign may be cut to 7. */
static void check_group(um_dtype type, const float *x, int n, float scale, const int8_t *q) {
    const int largest = type == UM_Q8 ? 127 : 8;
    int most = 0;
    for (int i = 0; i < n; i++) {
        const bool is_cut = type == UM_Q4 && q[i] == 7;
        assert_true(fabsf(x[i] - scale * q[i]) <= fabsf(scale) * (is_cut ? 1.02f : 0.51f));
        most = UM_MAX(most, abs(q[i]));
    }
    for (int i = n; i < UM_QUANT_GROUP; i++) assert_int_equal(q[i], 0);
    assert_true(most >= largest - 3 && most <= largest);
    assert_true(type == UM_Q8 || most == 8);
}

static void groups_are_near_their_elements(void **state) {
    (void)state;
    for (int run = 0; run < 2000; run++) {
        const int n = 1 + random_below(UM_QUANT_GROUP);
        const float size = exp2f((float)random_below(20) - 12);
        float x[UM_QUANT_GROUP];
        int8_t q[UM_QUANT_GROUP];
        for (int i = 0; i < n; i++) x[i] = size * random_signed();
        x[random_below(n)] = run % 2 ? size : -size; /* scales below 2^-24 are not exact */
        for (um_dtype type = UM_Q8; type <= UM_Q4; type++) {
            const float scale = um_f16_to_f32(um_quantize(type, x, n, q));
            check_group(type, x, n, scale, q);
        }
        check_group(UM_Q8, x, n, um_quantize_left(x, n, q), q);
    }
}

static void groups_without_a_scale(void **state) {
    (void)state;
    float x[UM_QUANT_GROUP] = {0};
    int8_t q[UM_QUANT_GROUP];
    for (um_dtype type = UM_Q8; type <= UM_Q4; type++)
        assert_true(um_f16_to_f32(um_quantize(type, x, UM_QUANT_GROUP, q)) == 0);
    assert_true(um_quantize_left(x, UM_QUANT_GROUP, q) == 0);
    x[3] = 1e-31f;
    assert_true(um_quantize_left(x, UM_QUANT_GROUP, q) == 0);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < UM_LEN(bad); i++) {
        x[7] = bad[i];
        for (um_dtype type = UM_Q8; type <= UM_Q4; type++)
            assert_true(isnan(um_f16_to_f32(um_quantize(type, x, UM_QUANT_GROUP, q))));
        assert_true(isnan(um_quantize_left(x, UM_QUANT_GROUP, q)));
        for (int k = 0; k < UM_QUANT_GROUP; k++) assert_int_equal(q[k], 0);
    }
}

enum { IN = 1061, OUT = 75, TOKENS = 21 };

/* Returns the products of n_tokens rows of x. */
static float *product_with(const char *isa, um_dtype type, const um_tensor *part, const float *x, int n_tokens) {
    world w = open_world(&um_ops_cpu, isa, type, 2);
    um_weight *m = make_weight(&w, part, 1);
    float *y = poisoned_floats((size_t)n_tokens * OUT);
    w.ops->linear(w.dev, m, NULL, x, n_tokens, false, y);
    assert_int_equal(w.ops->weight_bytes(m), um_quant_bytes(type, UM_CEIL_DIV(OUT, 32) * 32, part->dim[1]));
    w.ops->weight_free(w.dev, m);
    close_world(&w);
    return y;
}

/* Prints the hash of products, so that tests/build/arm64.sh can compare different processors. */
static void print_hash(um_dtype type, const float *y) {
    const um_str bytes = {(const char *)y, (size_t)TOKENS * OUT * sizeof *y};
    printf("    hash of %s products: %016llx\n", um_dtype_name(type), (unsigned long long)um_key_hash(bytes));
}

static void check_isas(um_dtype type, const um_tensor *part, const float *x, const float *want, int n_tokens) {
    for (const char *const *isa = um_cpu_isas(); *isa && !um_streq(*isa, "plain C"); isa++) {
        float *y = product_with(*isa, type, part, x, n_tokens);
        assert_memory_equal(y, want, (size_t)n_tokens * OUT * sizeof *y);
        um_free(y);
    }
}

/* Plain C has no fused multiply-add. */
static void products_have_the_same_bits_for_all_instruction_sets(void **state) {
    (void)state;
    um_tensor part = random_tensor(UM_BF16, OUT, IN);
    float *x = random_floats((size_t)TOKENS * IN);
    for (um_dtype type = UM_Q8; type <= UM_Q4; type++) {
        float *want = product_with(um_cpu_isas()[0], type, &part, x, TOKENS);
        if (!um_streq(um_cpu_isas()[0], "plain C")) print_hash(type, want);
        check_isas(type, &part, x, want, TOKENS);
        um_free(want);
    }
    um_free(x);
    free_tensor(&part);
}

/* The numbers of rows and of groups decide which rows and which groups a matrix unit multiplies. The bits of a row are
 * those that it has alone. */
static void the_number_of_rows_and_of_groups_changes_no_bit(void **state) {
    (void)state;
    static const int in[] = {24, 64, 544, 1061, 1090}, tokens[] = {5, 10, 11, 16, 20, 22, 37, 48, 70};
    enum { MOST = 70 };
    for (size_t i = 0; i < UM_LEN(in); i++) {
        um_tensor part = random_tensor(UM_BF16, OUT, in[i]);
        float *x = random_floats((size_t)MOST * (size_t)in[i]), *want = poisoned_floats((size_t)MOST * OUT);
        for (um_dtype type = UM_Q8; type <= UM_Q4; type++) {
            for (int t = 0; t < MOST; t++) {
                float *one = product_with(um_cpu_isas()[0], type, &part, x + (size_t)t * (size_t)in[i], 1);
                memcpy(want + (size_t)t * OUT, one, OUT * sizeof *one);
                um_free(one);
            }
            for (size_t k = 0; k < UM_LEN(tokens); k++) check_isas(type, &part, x, want, tokens[k]);
        }
        um_free(want);
        um_free(x);
        free_tensor(&part);
    }
}

static void a_row_that_is_not_finite_has_no_finite_product(void **state) {
    (void)state;
    um_tensor part = random_tensor(UM_BF16, OUT, IN);
    float *x = random_floats((size_t)TOKENS * IN);
    x[3 * IN + 700] = NAN;
    x[5 * IN + 1060] = INFINITY;
    for (const char *const *isa = um_cpu_isas(); *isa; isa++) {
        float *y = product_with(*isa, UM_Q4, &part, x, TOKENS);
        for (int t = 0; t < TOKENS; t++)
            for (int i = 0; i < OUT; i++) assert_int_equal(isnan(y[t * OUT + i]) != 0, t == 3 || t == 5);
        um_free(y);
    }
    um_free(x);
    free_tensor(&part);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_of_fp16_are_exact),
        cmocka_unit_test(rounding_to_fp16_takes_the_nearest_and_of_two_the_even),
        cmocka_unit_test(groups_are_near_their_elements),
        cmocka_unit_test(groups_without_a_scale),
        cmocka_unit_test(products_have_the_same_bits_for_all_instruction_sets),
        cmocka_unit_test(the_number_of_rows_and_of_groups_changes_no_bit),
        cmocka_unit_test(a_row_that_is_not_finite_has_no_finite_product),
    };
    seed_world();
    return cmocka_run_group_tests_name("ops_quantize", tests, NULL, NULL);
}
