/* Tests of the engine's options for stored keys and values: their sizes, and the values that are refused. */
#include "support.h"

/* Returns the statistics of an engine with 64 pages of 32 tokens. */
static um_stats stats_with(const char *model, const char *dtype, const char *layout) {
    char path[128];
    um_config c;
    um_stats s;
    test_engine t;
    test_config(&c, model, path, sizeof path);
    snprintf(c.kv_cache_dtype, sizeof c.kv_cache_dtype, "%s", dtype);
    snprintf(c.kv_cache_layout, sizeof c.kv_cache_layout, "%s", layout);
    c.page_size = 32;
    c.num_pages = 64;
    test_open(&t, &c);
    um_engine_get_stats(t.engine, &s);
    test_close(&t);
    return s;
}

static void keys_and_values_take_the_bytes_of_their_type(void **state) {
    (void)state;
    size_t whole = stats_with("llada", "float32", "unified").kv_bytes;
    assert_int_equal(stats_with("llada", "auto", "distinct").kv_bytes, whole);
    assert_int_equal(stats_with("llada", "bfloat16", "unified").kv_bytes, whole / 2);
    static const char *const names[] = {"float8_e4m3", "fp8", "fp8_e4m3"};
    for (size_t i = 0; i < UM_LEN(names); i++) {
        size_t bytes = stats_with("llada", names[i], "distinct").kv_bytes;
        assert_true(bytes > whole / 4 && bytes < whole / 2); /* a quarter, and the scales */
    }
}

/* Whole-sequence strategies keep the keys of a pass in scratch pages, which are counted as workspace. */
static void scratch_pages_do_not_count_as_stored_keys(void **state) {
    (void)state;
    char path[128];
    um_config c;
    test_engine t;
    test_config(&c, "llada", path, sizeof path);
    c.page_size = 32;
    c.num_pages = 64;
    test_open(&t, &c);
    size_t stored = t.engine->model->backend->memory(t.engine->forward).kv;
    assert_true(t.engine->capacity.n_scratch > 0);
    assert_int_equal(stored, um_arch_kv_bytes(&t.model->arch, UM_F32) * 32 * 64);
    assert_true(t.engine->model->backend->memory(t.engine->forward).workspace >
                stored / 64 * (size_t)t.engine->capacity.n_scratch / (size_t)t.model->arch.n_layers);
    test_close(&t);
}

static void refuse(const char *dtype, const char *layout, const char *part) {
    char path[128];
    um_config c;
    um_err err;
    test_engine t = {0};
    test_config(&c, "llada", path, sizeof path);
    snprintf(c.kv_cache_dtype, sizeof c.kv_cache_dtype, "%s", dtype);
    snprintf(c.kv_cache_layout, sizeof c.kv_cache_layout, "%s", layout);
    assert_int_equal(um_model_open(&t.model, &c, &err), UM_OK);
    assert_int_equal(um_engine_new(&t.engine, t.model, &c, &err), UM_EINVAL);
    if (!strstr(err.msg, part)) fail_msg("expected \"%s\" in: %s", part, err.msg);
    test_close(&t);
}

static void unknown_types_and_layouts_are_refused_by_name(void **state) {
    (void)state;
    refuse("int4", "unified",
           "kv_cache_dtype: expected auto, float32, bfloat16, float8_e4m3, fp8 or fp8_e4m3, found \"int4\"");
    refuse("auto", "split", "kv_cache_layout: expected unified or distinct, found \"split\"");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_and_values_take_the_bytes_of_their_type),
        cmocka_unit_test(scratch_pages_do_not_count_as_stored_keys),
        cmocka_unit_test(unknown_types_and_layouts_are_refused_by_name),
    };
    return cmocka_run_group_tests_name("stored keys and values", tests, NULL, NULL);
}
