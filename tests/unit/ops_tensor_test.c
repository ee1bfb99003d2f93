/* Tensors of a checkpoint: conversions of plain numbers, sizes, slices, and panels as a format. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ops/panels.h"

enum { ROWS = 70, IN = 88 }; /* three panels, and rows that end within a group */

static void every_half_is_read_as_its_conversion(void **state) {
    (void)state;
    static uint16_t half[65536];
    static float got[65536];
    for (int i = 0; i < 65536; i++) half[i] = (uint16_t)i;
    const um_tensor t = {.type = UM_F16, .n_dims = 2, .dim = {8, 8192}, .data = half};
    um_tensor_to_f32(&t, got);
    for (int i = 0; i < 65536; i++) {
        const float want = um_f16_to_f32((uint16_t)i);
        if (memcmp(&got[i], &want, sizeof want)) fail_msg("half %04x: found %g, expected %g", i, got[i], want);
    }
}

static void unaligned_rows_are_read(void **state) {
    (void)state;
    enum { N = 300 };
    char bytes[1 + 2 * 2 * N];
    float got[N];
    for (int i = 0; i < 2 * N; i++) {
        const uint16_t half = um_f32_to_bf16((float)i);
        memcpy(bytes + 1 + 2 * i, &half, 2);
    }
    const um_tensor t = {.type = UM_BF16, .n_dims = 2, .dim = {2, N}, .data = bytes + 1};
    um_tensor_read(&t, 1, 7, N - 7, got);
    for (int i = 0; i < N - 7; i++) assert_float_equal(got[i], um_bf16_to_f32(um_f32_to_bf16((float)(N + 7 + i))), 0);
}

/* Fills w [ROWS, IN] with numbers that bf16 holds exactly. */
static void fill(float *w) {
    const uint64_t key = um_rng_key(7, 0, 0, 0);
    for (size_t i = 0; i < ROWS * IN; i++) {
        const float x = (float)(int32_t)(um_rng_u64(key, i) % 2001) / 512 - 2;
        w[i] = um_bf16_to_f32(um_f32_to_bf16(x));
    }
}

static char *aligned(size_t bytes) {
    void *p = NULL;
    um_err err;
    assert_int_equal(um_try_alloc(&p, bytes, 64, "panels", &err), UM_OK);
    return p;
}

/* Packs w into panels of the type. The caller frees the result. */
static void *pack(const float *w, um_dtype type, um_tensor *out) {
    const um_tensor t = {.name = "w", .type = UM_F32, .n_dims = 2, .dim = {ROWS, IN}, .data = w};
    um_packing p = um_packing_of(&t, 1, type);
    char *panels = aligned(um_panels_bytes(type, ROWS, IN));
    for (int i = 0; i < um_packing_panels(&p); i++)
        um_packing_write(&p, i, panels + (size_t)i * um_panel_bytes(type, IN));
    *out = (um_tensor){.name = "w",
                       .type = UM_DTYPE_OTHER,
                       .format = um_panels_format(type),
                       .n_dims = 2,
                       .dim = {ROWS, IN},
                       .data = panels,
                       .stays = true};
    return panels;
}

static void panels_are_read_as_what_was_packed(void **state) {
    (void)state;
    static const um_dtype types[] = {UM_F32, UM_BF16, UM_Q8, UM_Q4};
    float *w = UM_NEW_ARRAY(float, ROWS *IN), *got = UM_NEW_ARRAY(float, ROWS *IN);
    fill(w);
    for (size_t i = 0; i < UM_LEN(types); i++) {
        um_tensor t;
        void *panels = pack(w, types[i], &t);
        um_dtype type = UM_F16;
        assert_true(um_panels_type(&t, &type) && type == types[i]);
        um_tensor_to_f32(&t, got);
        for (size_t k = 0; k < ROWS * IN; k++) {
            const float step = types[i] == UM_Q8 ? 2.0f / 127 : types[i] == UM_Q4 ? 2.0f / 8 : 0;
            assert_true(fabsf(got[k] - w[k]) <= step * 0.51f || (types[i] == UM_Q4 && fabsf(got[k] - w[k]) <= step));
        }
        um_free(panels);
    }
    um_free(w);
    um_free(got);
}

/* Panels of integers hold what their rounding makes of their own values, so a second rounding changes no byte. */
static void packing_panels_again_gives_the_same_bytes(void **state) {
    (void)state;
    static const um_dtype types[] = {UM_F32, UM_BF16, UM_Q8, UM_Q4};
    float *w = UM_NEW_ARRAY(float, ROWS *IN);
    fill(w);
    for (size_t i = 0; i < UM_LEN(types); i++) {
        um_tensor t;
        char *panels = pack(w, types[i], &t);
        um_packing p = um_packing_of(&t, 1, types[i] == UM_BF16 ? UM_F32 : types[i]);
        assert_int_equal(p.type, types[i]); /* exact products read bf16 panels too */
        const size_t bytes = um_panel_bytes(types[i], IN);
        char *again = aligned(bytes);
        for (int k = 0; k < um_packing_panels(&p); k++) {
            um_packing_write(&p, k, again);
            assert_memory_equal(again, panels + (size_t)k * bytes, bytes);
        }
        um_free(again);
        um_free(panels);
    }
    um_free(w);
}

static void panels_are_used_in_place_only_where_they_fit(void **state) {
    (void)state;
    float *w = UM_NEW_ARRAY(float, ROWS *IN);
    um_tensor t;
    fill(w);
    char *panels = pack(w, UM_Q8, &t);
    um_packing p = um_packing_of(&t, 1, UM_Q8);
    assert_ptr_equal(um_packing_in_place(&p), panels);
    um_packing other = um_packing_of(&t, 1, UM_Q4);
    assert_null(um_packing_in_place(&other));
    um_tensor parts[2] = {t, t};
    parts[0].dim[0] = 64;
    parts[1].dim[0] = ROWS - 64;
    parts[1].data = panels + um_panels_bytes(UM_Q8, 64, IN);
    um_packing two = um_packing_of(parts, 2, UM_Q8);
    assert_ptr_equal(um_packing_in_place(&two), panels);
    parts[0].dim[0] = 63; /* the second part would begin within a panel */
    two = um_packing_of(parts, 2, UM_Q8);
    assert_null(um_packing_in_place(&two));
    parts[0].dim[0] = 64;
    parts[0].stays = false;
    two = um_packing_of(parts, 2, UM_Q8);
    assert_null(um_packing_in_place(&two));
    um_free(panels);
    um_free(w);
}

static void a_slice_of_a_stack_of_panels_is_one_matrix(void **state) {
    (void)state;
    float *w = UM_NEW_ARRAY(float, 2 * ROWS * IN), one[IN], other[IN];
    fill(w);
    fill(w + ROWS * IN);
    for (size_t i = 0; i < ROWS * IN; i++) w[ROWS * IN + i] *= 2;
    um_tensor first, second;
    void *a = pack(w, UM_Q8, &first), *b = pack(w + ROWS * IN, UM_Q8, &second);
    const size_t bytes = um_tensor_bytes(&first);
    char *both = aligned(2 * bytes);
    memcpy(both, a, bytes);
    memcpy(both + bytes, b, bytes);
    um_tensor stack = first;
    stack.n_dims = 3;
    stack.dim[0] = 2;
    stack.dim[1] = ROWS;
    stack.dim[2] = IN;
    stack.data = both;
    assert_int_equal(um_tensor_bytes(&stack), 2 * bytes);
    const um_tensor slice = um_tensor_slice(&stack, 1);
    for (int64_t row = 0; row < ROWS; row++) {
        um_tensor_read(&slice, row, 0, IN, one);
        um_tensor_read(&second, row, 0, IN, other);
        assert_memory_equal(one, other, sizeof one);
        um_tensor_read(&stack, ROWS + row, 0, IN, one);
        assert_memory_equal(one, other, sizeof one);
    }
    um_free(both);
    um_free(a);
    um_free(b);
    um_free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_is_read_as_its_conversion),
        cmocka_unit_test(unaligned_rows_are_read),
        cmocka_unit_test(panels_are_read_as_what_was_packed),
        cmocka_unit_test(packing_panels_again_gives_the_same_bytes),
        cmocka_unit_test(panels_are_used_in_place_only_where_they_fit),
        cmocka_unit_test(a_slice_of_a_stack_of_panels_is_one_matrix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
