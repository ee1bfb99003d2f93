/* Tests of the progress of um_model_open: its numbers, and stopping it. */
#include "support.h"

typedef struct progress {
    int n_calls, most; /* most: number of calls after which loading is stopped; 0: none */
    double last;
    size_t bytes, bytes_before, bytes_all;
} progress;

static bool on_load(void *arg, const um_load_progress *p) {
    progress *s = (progress *)arg;
    if (s->n_calls == 0) assert_int_equal(p->bytes, 0);
    if (s->n_calls) assert_int_equal(p->bytes_all, s->bytes_all);
    assert_true(p->bytes >= s->bytes && p->bytes <= p->bytes_all);
    assert_true(p->fraction >= s->last && p->fraction <= 1);
    assert_non_null(strstr(p->path, "models/"));
    s->bytes_before = s->bytes;
    s->bytes = p->bytes;
    s->bytes_all = p->bytes_all;
    s->last = p->fraction;
    return ++s->n_calls != s->most;
}

static um_config config_of(const char *name, char path[128], progress *s) {
    um_config c;
    test_config(&c, name, path, 128);
    c.on_load = on_load;
    c.on_load_arg = s;
    return c;
}

/* The tensors add up to the total, so the last call before the end has all bytes already. The models have separate,
 * fused and tied matrices, biases, and experts of their own and in stacks. */
static void every_tensor_is_counted_once(void **state) {
    static const char *const models[] = {"sdar",   "llada",    "dream",          "fast_dllm_v2",
                                         "llada2", "sdar_moe", "dream_reasoner", "stable_diffcoder"};
    (void)state;
    for (size_t i = 0; i < UM_LEN(models); i++) {
        char path[128];
        progress s = {0};
        um_model *m = NULL;
        um_config c = config_of(models[i], path, &s);
        assert_int_equal(um_model_open(&m, &c, NULL), UM_OK);
        assert_true(s.n_calls > 10);
        assert_true(s.last == 1);
        assert_int_equal(s.bytes, s.bytes_all);
        assert_int_equal(s.bytes_before, s.bytes_all);
        um_model_close(m);
    }
}

static void a_false_result_stops_loading(void **state) {
    static const int calls[] = {1, 2, 5, 12};
    (void)state;
    for (size_t i = 0; i < UM_LEN(calls); i++) {
        char path[128];
        progress s = {.most = calls[i]};
        um_err err = {0};
        um_model *m = NULL;
        um_config c = config_of("sdar_moe", path, &s);
        assert_int_equal(um_model_open(&m, &c, &err), UM_ECANCELED);
        assert_null(m);
        assert_int_equal(s.n_calls, calls[i]);
        assert_non_null(strstr(err.msg, "was canceled"));
    }
}

static void engines_on_one_device_load_once(void **state) {
    (void)state;
    char path[128];
    progress one = {0}, two = {0};
    um_model *m = NULL;
    um_config c = config_of("sdar", path, &one);
    assert_int_equal(um_model_open(&m, &c, NULL), UM_OK);
    um_model_close(m);
    c.on_load_arg = &two;
    c.data_parallel_size = 2;
    assert_int_equal(um_model_open(&m, &c, NULL), UM_OK);
    um_model_close(m);
    assert_int_equal(one.bytes_all, two.bytes_all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_is_counted_once),
        cmocka_unit_test(a_false_result_stops_loading),
        cmocka_unit_test(engines_on_one_device_load_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
