/* Strategies against an evaluation in NumPy (tools/oracle), on both backends: the tokens, the pass that wrote each of
 * them, and the number of fed tokens. */
#include <jansson.h>

#include "support.h"

enum { TOKENS = 128 };

static json_t *load(const char *name) {
    char path[128];
    um_err err;
    json_t *root = NULL;
    snprintf(path, sizeof(path), "tests/data/oracle/%s.json", name);
    if (um_json_load(&root, path, &err)) fail_msg("%s", err.msg);
    return root;
}

static int32_t read_ids(const json_t *run, const char *key, int32_t *out) {
    const json_t *ids = json_object_get(run, key);
    size_t n = json_array_size(ids);
    assert_in_range(n, 1, TOKENS);
    for (size_t i = 0; i < n; i++) out[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    return (int32_t)n;
}

static void set(um_request *r, const char *name, const json_t *value) {
    char text[64];
    um_err err;
    if (json_is_string(value)) snprintf(text, sizeof(text), "%s", json_string_value(value));
    else if (json_is_boolean(value)) snprintf(text, sizeof(text), "%s", json_is_true(value) ? "true" : "false");
    else snprintf(text, sizeof(text), "%.9g", json_number_value(value));
    if (um_request_set(r, name, text, &err)) fail_msg("%s", err.msg);
}

/* A run that is being replayed. */
typedef struct expected {
    const char *what;
    size_t index;
    int32_t n, token[TOKENS], pass[TOKENS];
    bool finished;
} expected;

static void check_result(void *arg, const um_event *ev) {
    expected *e = (expected *)arg;
    if (ev->type != UM_EVENT_FINISH) return;
    const um_result *res = ev->result;
    e->finished = true;
    assert_int_equal(res->n_tokens, e->n);
    for (int32_t i = 0; i < e->n; i++)
        if (res->token_ids[i] != e->token[i] || res->pass[i] != e->pass[i])
            fail_msg("%s, run %zu: position %d: expected token %d in pass %d, found %d in pass %d", e->what, e->index,
                     i, e->token[i], e->pass[i], res->token_ids[i], res->pass[i]);
}

static void replay(const test_engine *t, const json_t *run, const char *what, size_t index) {
    int32_t ids[TOKENS];
    expected e = {.what = what, .index = index};
    um_request r;
    um_err err;
    um_stats before, after;
    const char *name;
    json_t *value;
    um_request_init(t->engine, &r);
    r.ids = ids;
    r.n_ids = (size_t)read_ids(run, "prompt", ids);
    r.sampling.max_tokens = e.n = read_ids(run, "tokens", e.token);
    r.sampling.ignore_eos = true;
    r.sampling.temperature = 0;
    r.on_event = check_result;
    r.arg = &e;
    assert_int_equal(read_ids(run, "pass", e.pass), e.n);
    set(&r, "decoding_strategy", json_object_get(run, "strategy"));
    json_object_foreach(json_object_get(run, "options"), name, value) set(&r, name, value);
    um_engine_get_stats(t->engine, &before);
    if (um_engine_add(t->engine, &r, NULL, &err)) fail_msg("%s, run %zu: %s", what, index, err.msg);
    test_drain(t->engine);
    um_engine_get_stats(t->engine, &after);
    assert_true(e.finished);
    assert_int_equal(after.forward_tokens - before.forward_tokens, json_integer_value(json_object_get(run, "fed")));
}

static void replay_all(const char *name, const char *device, int32_t page_size) {
    json_t *root = load(name), *runs = json_object_get(root, "runs");
    um_config c;
    test_engine t;
    device = test_device(device);
    um_config_init(&c);
    c.model = json_string_value(json_object_get(root, "model"));
    c.max_model_len = TOKENS;
    c.page_size = page_size;
    snprintf(c.device, sizeof(c.device), "%s", device);
    snprintf(c.dtype, sizeof(c.dtype), "float32");
    test_open(&t, &c);
    assert_true(json_array_size(runs) > 0);
    /* The reference backend is slow, so it runs only every third one. */
    size_t stride = um_streq(device, "ref") ? 3 : 1, n = 0;
    for (size_t i = 0; i < json_array_size(runs); i += stride, n++) replay(&t, json_array_get(runs, i), name, i);
    print_message("# %-6s %-4s pages of %2d: %zu runs equal, pass for pass\n", name, device, page_size, n);
    test_close(&t);
    json_decref(root);
}

static void llada_equals_the_oracle_on_ref(void **state) {
    (void)state;
    replay_all("llada", "ref", 32);
}
static void llada_equals_the_oracle_on_cpu(void **state) {
    (void)state;
    replay_all("llada", "cpu", 32);
    replay_all("llada", "cpu", 4);
}
static void dream_equals_the_oracle_on_ref(void **state) {
    (void)state;
    replay_all("dream", "ref", 32);
}
static void dream_equals_the_oracle_on_cpu(void **state) {
    (void)state;
    replay_all("dream", "cpu", 32);
    replay_all("dream", "cpu", 4);
}
static void fast_dllm_v2_equals_the_oracle_on_ref(void **state) {
    (void)state;
    replay_all("fast_dllm_v2", "ref", 32);
}
static void fast_dllm_v2_equals_the_oracle_on_cpu(void **state) {
    (void)state;
    replay_all("fast_dllm_v2", "cpu", 32);
    replay_all("fast_dllm_v2", "cpu", 4);
}

int main(void) {
    const struct CMUnitTest on_cpu[] = {
        cmocka_unit_test(llada_equals_the_oracle_on_cpu),
        cmocka_unit_test(dream_equals_the_oracle_on_cpu),
        cmocka_unit_test(fast_dllm_v2_equals_the_oracle_on_cpu),
    };
    const struct CMUnitTest on_ref[] = {
        cmocka_unit_test(llada_equals_the_oracle_on_ref),
        cmocka_unit_test(dream_equals_the_oracle_on_ref),
        cmocka_unit_test(fast_dllm_v2_equals_the_oracle_on_ref),
    };
    int failed = cmocka_run_group_tests_name("oracle on cpu", on_cpu, NULL, NULL);
    /* The reference has no instruction sets, so a repetition with another one leaves it out. */
    if (!getenv("UM_CPU_ISA")) failed += cmocka_run_group_tests_name("oracle on ref", on_ref, NULL, NULL);
    return failed;
}
