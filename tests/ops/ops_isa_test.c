/* Instruction sets of the cpu backend: the list, the choice, bounds of logits, and the matrix unit. The matrix unit
 * must not change results in float32, exact layers, rows next to a row of NaN, or the register state of a thread. */
#include "ops/cpu/kernels.h"

#include "ops_world.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static bool names(const char *const *list, const char *name) {
    while (*list && !um_streq(*list, name)) list++;
    return *list != NULL;
}

static void every_instruction_set_is_used_or_said_to_be_missing(void **state) {
    (void)state;
#if defined(__x86_64__)
    static const char *const known[] = {"amx_bf16", "avx512_bf16", "avx512", "avx2", "plain C"};
#elif defined(__aarch64__)
    static const char *const known[] = {"neon_dot", "neon", "plain C"};
#else
    static const char *const known[] = {"plain C"};
#endif
    const char *const *here = um_cpu_isas(), *const *missing = um_cpu_isas_missing();
    for (size_t i = 0; i < UM_LEN(known); i++) {
        printf("    %-11s %s\n", known[i], names(here, known[i]) ? "tested" : "this processor lacks it: not tested");
        assert_true(names(here, known[i]) != names(missing, known[i]));
    }
    assert_true(names(here, "plain C"));
}

static void check_opened_with(const char *want) {
    um_dev *dev = NULL;
    um_err err;
    if (um_ops_cpu.open(&dev, &world_config, &err)) fail_msg("%s", err.msg);
    assert_string_equal(um_ops_cpu.isa(dev), want);
    um_ops_cpu.close(dev);
}

static void environment_names_the_instruction_set(void **state) {
    (void)state;
    const char *const *isa = um_cpu_isas();
    for (int i = 0; isa[i]; i++) {
        setenv("UM_CPU_ISA", isa[i], 1);
        check_opened_with(isa[i]);
    }
    um_cpu_use_isa("plain C"); /* the choice of the program has precedence */
    setenv("UM_CPU_ISA", isa[0], 1);
    check_opened_with("plain C");
    um_cpu_use_isa(NULL);
    setenv("UM_CPU_ISA", "", 1);
    check_opened_with(isa[0]);
    unsetenv("UM_CPU_ISA");
    check_opened_with(isa[0]);
}

static void unknown_instruction_set_is_refused_with_those_there_are(void **state) {
    (void)state;
    um_dev *dev = NULL;
    um_err err;
    setenv("UM_CPU_ISA", "mmx", 1);
    assert_int_equal(um_ops_cpu.open(&dev, &world_config, &err), UM_EUNSUPPORTED);
    unsetenv("UM_CPU_ISA");
    assert_null(dev);
    assert_non_null(strstr(err.msg, "\"mmx\""));
    assert_non_null(strstr(err.msg, "\"plain C\""));
}

/* ---- Bounds of logits ------------------------------------------------------------------------------------------- */

enum { LOGITS = 3 * UM_PANEL };

/* Compares the logits that the functions keep, with the bound `from`, to those of a plain loop. */
static void check_bound(const um_kernels *k, const float *z, float from) {
    float kept[LOGITS], cut[LOGITS];
    int n = k->select(z, LOGITS, from, kept), n_want = 0, last = -1;
    k->cut_below(z, LOGITS, from, cut);
    for (int i = 0; i < LOGITS; i++) {
        assert_true(cut[i] == (z[i] >= from ? z[i] : -INFINITY));
        if (z[i] < from) continue;
        assert_true(n_want < n && kept[n_want] == z[i]);
        n_want++;
        last = i;
    }
    assert_int_equal(n, n_want);
    assert_int_equal(k->last_from(z, LOGITS, from), last);
}

static void logits_equal_to_a_bound_are_kept(void **state) {
    (void)state;
    float *z = random_floats(LOGITS);
    for (int i = 0; i < LOGITS; i += 5) z[i] = z[(i + 41) % LOGITS]; /* equal logits */
    for (const char *const *isa = um_cpu_isas(); *isa; isa++) {
        const um_kernels *k = NULL;
        um_cpu_use_isa(*isa);
        assert_int_equal(um_kernels_choose(&k, NULL), UM_OK);
        for (int i = 0; i < LOGITS; i++) check_bound(k, z, z[i]);
        check_bound(k, z, 2); /* none */
    }
    um_cpu_use_isa(NULL);
    um_free(z);
}

static void every_8_bit_code_is_widened_exactly(void **state) {
    (void)state;
    enum { PAIRS = 128 };
    unsigned char code[2 * PAIRS];
    uint32_t wide[PAIRS];
    for (int i = 0; i < 2 * PAIRS; i++) code[i] = (unsigned char)((i & 0x7f) == 0x7f ? 0 : i); /* 0x7f is NaN */
    for (const char *const *isa = um_cpu_isas(); *isa; isa++) {
        const um_kernels *k = NULL;
        um_cpu_use_isa(*isa);
        assert_int_equal(um_kernels_choose(&k, NULL), UM_OK);
        k->widen_f8(code, PAIRS, wide);
        for (int i = 0; i < 2 * PAIRS; i++)
            assert_true(um_bf16_to_f32((uint16_t)(wide[i / 2] >> i % 2 * 16)) == um_f8_to_f32(code[i]));
    }
    um_cpu_use_isa(NULL);
}

/* The bound is at most 9 % of ln 2 above -ln(1 - u), which is close to the noise when that is large. */
static void check_bounds(const um_kernels *k, const float *z, float temperature, uint64_t key) {
    float bound[LOGITS];
    k->noise_bounds(z, LOGITS, temperature, key, 77, bound);
    for (int i = 0; i < LOGITS; i++) {
        const uint64_t counter = 77 + (uint64_t)i;
        const double score = (double)(z[i] / temperature), rest = 1 - um_rng_uniform(key, counter);
        assert_true((double)bound[i] >= score + (double)um_rng_gumbel(key, counter) - 1e-3);
        assert_true((double)bound[i] <= score - log(rest) + 0.09 * 0.6932 + 1e-3);
    }
    for (int i = 0; i < LOGITS; i += UM_PANEL) {
        const uint32_t mask = k->mask_from(bound + i, bound[i + 5]);
        for (int b = 0; b < UM_PANEL; b++) assert_int_equal(mask >> b & 1, bound[i + b] >= bound[i + 5]);
    }
}

static void bounds_of_noise_hold_and_are_close(void **state) {
    (void)state;
    float *z = random_floats(LOGITS);
    for (const char *const *isa = um_cpu_isas(); *isa; isa++) {
        const um_kernels *k = NULL;
        um_cpu_use_isa(*isa);
        assert_int_equal(um_kernels_choose(&k, NULL), UM_OK);
        for (uint64_t key = 0; key < 2000; key++) check_bounds(k, z, 0.5f, um_rng_u64(1, key));
    }
    um_cpu_use_isa(NULL);
    um_free(z);
}

/* ---- The matrix unit --------------------------------------------------------------------------------------------- */

enum { IN = 333, OUT = 70, TOKENS = 45 };

/* Returns whether this processor has the matrix unit. Prints a message when it does not. */
static bool has_matrix_unit(void) {
    if (names(um_cpu_isas(), "amx_bf16")) return true;
    printf("    skipped: this processor has no amx_bf16\n");
    return false;
}

/* Returns y [TOKENS, OUT] of a bf16 matrix loaded as `type` on a device of `dtype`. */
static float *linear_with(const char *isa, um_dtype dtype, um_dtype type, const um_tensor *part, const float *x) {
    world w = open_world(&um_ops_cpu, isa, dtype, 2);
    um_weight *m = make_weight_as(&w, part, 1, type);
    float *y = poisoned_floats((size_t)TOKENS * OUT);
    w.ops->linear(w.dev, m, NULL, x, TOKENS, false, y);
    w.ops->weight_free(w.dev, m);
    close_world(&w);
    return y;
}

/* The matrix unit computes in bf16. Where fp32 is requested, results must equal those of AVX-512 bit for bit. */
static void matrix_unit_leaves_float32_as_it_is(void **state) {
    (void)state;
    if (!has_matrix_unit()) skip();
    um_tensor part = random_tensor(UM_BF16, OUT, IN);
    float *x = random_floats((size_t)TOKENS * IN);
    for (um_dtype dtype = UM_F32; dtype <= UM_BF16; dtype++) { /* dtype of the device; with bf16 the layer is exact */
        float *got = linear_with("amx_bf16", dtype, UM_F32, &part, x);
        float *want = linear_with("avx512", dtype, UM_F32, &part, x);
        assert_memory_equal(got, want, (size_t)TOKENS * OUT * sizeof *got);
        um_free(got);
        um_free(want);
    }
    um_free(x);
    free_tensor(&part);
}

/* The matrix unit computes 32 rows at a time and reads memory after the last row. */
static void row_of_nan_does_not_reach_its_neighbours(void **state) {
    (void)state;
    um_tensor part = random_tensor(UM_BF16, OUT, IN);
    float *x = random_floats((size_t)TOKENS * IN);
    for (const char *const *isa = um_cpu_isas(); *isa; isa++) {
        world w = open_world(&um_ops_cpu, *isa, UM_BF16, 2);
        um_weight *m = make_weight(&w, &part, 1);
        float *want = poisoned_floats((size_t)TOKENS * OUT), *got = poisoned_floats((size_t)TOKENS * OUT);
        float *bad = copy_floats(x, (size_t)TOKENS * IN);
        for (int k = 0; k < IN; k++) bad[(TOKENS - 1) * IN + k] = NAN;
        w.ops->linear(w.dev, m, NULL, x, TOKENS, false, want);
        w.ops->linear(w.dev, m, NULL, bad, TOKENS, false, got);
        same_bits(&w, "linear: rows beside NaN", got, want, (size_t)(TOKENS - 1) * OUT * sizeof *got);
        w.ops->linear(w.dev, m, NULL, x, TOKENS - 1, false, got); /* NaN of the previous call follows the last row */
        same_bits(&w, "linear: rows before NaN", got, want, (size_t)(TOKENS - 1) * OUT * sizeof *got);
        w.ops->weight_free(w.dev, m);
        close_world(&w);
        um_free(want);
        um_free(got);
        um_free(bad);
    }
    um_free(x);
    free_tensor(&part);
}

#if defined(__x86_64__)
/* Returns the bits of the register state that this thread uses. */
__attribute__((target("xsave"))) static unsigned long long state_in_use(void) { return _xgetbv(1); }
#endif

/* Tile registers must be released: while in use, they prevent deep sleep states and make each context switch copy 8 KB.
 */
static void tile_registers_are_released(void **state) {
    (void)state;
    if (!has_matrix_unit()) skip();
#if defined(__x86_64__)
    enum { TILE_STATE = 3 << 17 };
    um_tensor part = random_tensor(UM_BF16, OUT, IN);
    float *x = random_floats((size_t)TOKENS * IN);
    um_free(linear_with("amx_bf16", UM_BF16, UM_BF16, &part, x));
    assert_int_equal(state_in_use() & TILE_STATE, 0);
    um_free(x);
    free_tensor(&part);
#endif
}

int main(void) {
    seed_world();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_set_is_used_or_said_to_be_missing),
        cmocka_unit_test(environment_names_the_instruction_set),
        cmocka_unit_test(unknown_instruction_set_is_refused_with_those_there_are),
        cmocka_unit_test(logits_equal_to_a_bound_are_kept),
        cmocka_unit_test(every_8_bit_code_is_widened_exactly),
        cmocka_unit_test(bounds_of_noise_hold_and_are_close),
        cmocka_unit_test(matrix_unit_leaves_float32_as_it_is),
        cmocka_unit_test(row_of_nan_does_not_reach_its_neighbours),
        cmocka_unit_test(tile_registers_are_released),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
