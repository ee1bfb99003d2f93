/* Whole-sequence decoding against recordings of Dream's sampler (tools/reference/dream_sampler.py): tokens, their
 * positions and the passes that committed them, on both backends. */
#include <jansson.h>
#include <math.h>

#include "support.h"

enum { TOKENS = 64 };

static int64_t number(const json_t *obj, const char *key) { return json_integer_value(json_object_get(obj, key)); }

static int32_t read_prompt(const json_t *run, int32_t *ids) {
    const json_t *prompt = json_object_get(run, "prompt");
    size_t n = json_array_size(prompt);
    assert_in_range(n, 1, TOKENS);
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)json_integer_value(json_array_get(prompt, i));
    return (int32_t)n;
}

/* Reads, for each position of the canvas, the token and the number of the pass that committed it, from 1. Recorded
 * passes that commit nothing are not counted, because the engine skips them. Returns the number of passes. */
static int32_t read_passes(const json_t *run, int32_t n_prompt, int32_t *token, int32_t *pass) {
    const json_t *passes = json_object_get(run, "passes");
    int32_t n_passes = 0;
    for (size_t i = 0; i < json_array_size(passes); i++) {
        const json_t *fixed = json_array_get(passes, i);
        n_passes += json_array_size(fixed) > 0;
        for (size_t k = 0; k < json_array_size(fixed); k++) {
            const json_t *pair = json_array_get(fixed, k);
            int64_t at = json_integer_value(json_array_get(pair, 0)) - n_prompt;
            assert_in_range(at, 0, TOKENS - 1);
            token[at] = (int32_t)json_integer_value(json_array_get(pair, 1));
            pass[at] = n_passes;
        }
    }
    return n_passes;
}

/* A recorded run that is being replayed. */
typedef struct expected {
    const char *what, *rule;
    int32_t n, n_passes, token[TOKENS], pass[TOKENS];
    bool finished;
} expected;

static void check_result(void *arg, const um_event *ev) {
    expected *e = (expected *)arg;
    if (ev->type != UM_EVENT_FINISH) return;
    const um_result *res = ev->result;
    assert_int_equal(res->n_tokens, e->n);
    assert_int_equal(res->nfe, e->n_passes);
    for (int32_t i = 0; i < e->n; i++)
        if (res->token_ids[i] != e->token[i] || res->pass[i] != e->pass[i])
            fail_msg("%s: %s: position %d: expected token %d in pass %d, found %d in pass %d", e->what, e->rule, i,
                     e->token[i], e->pass[i], res->token_ids[i], res->pass[i]);
    e->finished = true;
}

static void replay(const test_engine *t, const json_t *run, const char *what) {
    int32_t ids[TOKENS], n_prompt = read_prompt(run, ids);
    expected e = {.what = what, .n = (int32_t)number(run, "gen_length")};
    um_request r;
    um_err err;
    e.rule = json_string_value(json_object_get(run, "alg"));
    e.n_passes = read_passes(run, n_prompt, e.token, e.pass);
    um_request_init(t->engine, &r);
    r.ids = ids;
    r.n_ids = (size_t)n_prompt;
    r.sampling.max_tokens = e.n;
    r.sampling.ignore_eos = true;
    r.sampling.temperature = 0;
    r.decoding.gen_length = e.n;
    r.decoding.steps = (int32_t)number(run, "steps");
    r.decoding.eps = (float)json_real_value(json_object_get(run, "eps"));
    snprintf(r.decoding.sampler, sizeof r.decoding.sampler, "%s", e.rule);
    r.on_event = check_result;
    r.arg = &e;
    if (um_engine_add(t->engine, &r, NULL, &err)) fail_msg("%s: %s", what, err.msg);
    test_drain(t->engine);
    assert_true(e.finished);
}

/* The sampler `origin` draws, so its recording holds the share of the masks that each pass commits. */
static void check_shares(const json_t *run) {
    const json_t *share = json_object_get(run, "share");
    int32_t n = (int32_t)json_array_size(share);
    assert_int_equal(n, number(run, "steps"));
    for (int32_t i = 0; i < n; i++)
        assert_true(fabs(um_schedule_rate(json_real_value(json_object_get(run, "eps")), i, n) -
                         json_number_value(json_array_get(share, (size_t)i))) < 1e-6);
}

static void replay_folder(const char *folder) {
    char path[256];
    json_t *root;
    um_err err;
    snprintf(path, sizeof path, "%s/dream_sampler.json", folder);
    if (um_json_load(&root, path, &err)) fail_msg("%s", err.msg);
    const json_t *runs = json_object_get(root, "runs");
    size_t n_runs = json_array_size(runs), replayed = 0;
    for (const um_ops *const *ops = um_ops_all; *ops; ops++) {
        um_config c;
        test_engine t;
        um_config_init(&c);
        c.model = folder;
        snprintf(c.device, sizeof c.device, "%s", (*ops)->name);
        snprintf(c.dtype, sizeof c.dtype, "float32");
        test_open(&t, &c);
        for (size_t i = 0; i < n_runs; i++) {
            const json_t *run = json_array_get(runs, i);
            if (!json_object_get(run, "passes")) check_shares(run);
            else replay(&t, run, path), replayed++;
        }
        test_close(&t);
    }
    print_message("# %s: %zu runs equal, pass for pass\n", path, replayed);
    assert_true(replayed > 0);
    json_decref(root);
}

static void dream_equals_its_own_sampler(void **state) {
    (void)state;
    replay_folder("build/data/reference/dream");
}

static void rnd1_runs_them_too(void **state) {
    (void)state;
    replay_folder("build/data/reference/rnd1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dream_equals_its_own_sampler),
        cmocka_unit_test(rnd1_runs_them_too),
    };
    return cmocka_run_group_tests_name("dream sampler", tests, NULL, NULL);
}
