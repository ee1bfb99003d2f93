/* Scores against an evaluation in NumPy (tools/oracle): the drawn sets of masks, and every result. The results are the
 * same bits alone and in a batch, with one thread and with several, in small steps, and after preemption. */
#include <jansson.h>
#include <math.h>

#include "decode/mask_sets.h"
#include "support.h"

enum { TOKENS = 128, SCORES = 256 };

typedef struct scored {
    double logprob, standard_error, token[TOKENS];
    size_t n;
    int32_t is_greedy, passes, preemptions;
    um_finish finish;
    bool done;
} scored;

static json_t *all; /* the recorded scores */

static int load_all(void **state) {
    (void)state;
    um_err err;
    if (um_json_load(&all, "tests/data/oracle/scores.json", &err)) fail_msg("%s", err.msg);
    assert_in_range(json_array_size(all), 1, SCORES);
    return 0;
}

static int free_all(void **state) {
    (void)state;
    json_decref(all);
    return 0;
}

static const json_t *recorded(size_t i) { return json_array_get(all, i); }

static bool is_of(const json_t *r, const char *model) {
    return um_streq(json_string_value(json_object_get(r, "model")), model);
}

static double number(const json_t *r, const char *key) { return json_number_value(json_object_get(r, key)); }

static size_t read_ids(const json_t *r, const char *key, int32_t *out) {
    const json_t *ids = json_object_get(r, key);
    const size_t n = json_array_size(ids);
    assert_in_range(n, 1, TOKENS);
    for (size_t i = 0; i < n; i++) out[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    return n;
}

static void take(void *arg, const um_score_result *r) {
    scored *s = (scored *)arg;
    assert_false(s->done);
    *s = (scored){.logprob = r->logprob,
                  .standard_error = r->standard_error,
                  .n = r->n_tokens,
                  .is_greedy = r->is_greedy,
                  .passes = r->passes,
                  .preemptions = r->preemptions,
                  .finish = r->finish,
                  .done = true};
    assert_in_range(r->n_tokens, 1, TOKENS);
    memcpy(s->token, r->token_logprob, r->n_tokens * sizeof(double));
}

static void add(um_engine *e, const json_t *r, scored *out) {
    int32_t prompt[TOKENS], answer[TOKENS];
    um_score_request s;
    um_err err;
    const char *name;
    json_t *value;
    char text[64];
    um_score_init(e, &s);
    s.ids = prompt;
    s.n_ids = read_ids(r, "prompt", prompt);
    s.answer_ids = answer;
    s.n_answer_ids = read_ids(r, "answer", answer);
    s.on_score = take;
    s.arg = out;
    json_object_foreach(json_object_get(r, "options"), name, value) {
        if (json_is_string(value)) snprintf(text, sizeof text, "%s", json_string_value(value));
        else if (json_is_boolean(value)) snprintf(text, sizeof text, "%s", json_is_true(value) ? "true" : "false");
        else if (json_is_integer(value)) snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        else snprintf(text, sizeof text, "%.9g", json_number_value(value));
        if (um_score_set(&s, name, text, &err)) fail_msg("%s", err.msg);
    }
    *out = (scored){0};
    if (um_engine_score(e, &s, NULL, &err)) fail_msg("%s", err.msg);
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* float32 rounding changes logits of about 20 by a few millionths; a score sums up to 40 of them. */
static void assert_close(const char *what, size_t i, double got, double want) {
    if (!(fabs(got - want) <= 2e-4 + 2e-6 * fabs(want)))
        fail_msg("score %zu: %s is %.9g, expected %.9g", i, what, got, want);
}

static void check(size_t i, const scored *s) {
    const json_t *r = recorded(i), *token = json_object_get(r, "token_logprob"),
                 *error = json_object_get(r, "standard_error");
    double sum = 0;
    assert_true(s->done);
    assert_int_equal(s->finish, UM_FINISH_STEPS);
    assert_int_equal(s->n, json_array_size(token));
    assert_close("logprob", i, s->logprob, number(r, "logprob"));
    for (size_t k = 0; k < s->n; k++) {
        assert_close("token_logprob", i, s->token[k], json_number_value(json_array_get(token, k)));
        sum += s->token[k];
    }
    assert_true(fabs(sum - s->logprob) <= 1e-9 * fabs(sum));
    if (json_is_null(error)) assert_true(isnan(s->standard_error));
    else assert_close("standard_error", i, s->standard_error, json_number_value(error));
    assert_int_equal(s->is_greedy, (int32_t)number(r, "is_greedy"));
    assert_int_equal(s->passes, (int32_t)number(r, "passes"));
}

static void open_model(test_engine *t, const char *name, const char *device, void (*change)(um_config *)) {
    char path[128];
    um_config c;
    test_config(&c, name, path, sizeof path);
    snprintf(c.device, sizeof c.device, "%s", test_device(device));
    c.max_model_len = TOKENS;
    if (change) change(&c);
    test_open(t, &c);
}

/* Runs the scores of a model one after the other. Returns their number. */
static size_t run_alone(const char *name, const char *device, size_t stride, scored *out) {
    test_engine t;
    size_t n = 0;
    open_model(&t, name, device, NULL);
    for (size_t i = 0; i < json_array_size(all); i++) {
        if (!is_of(recorded(i), name) || n++ % stride) continue;
        add(t.engine, recorded(i), &out[i]);
        test_drain(t.engine);
        check(i, &out[i]);
    }
    test_close(&t);
    return n;
}

static const char *const models[] = {"llada", "dream", "sdar", "fast_dllm_v2"};

static void cpu_equals_the_oracle(void **state) {
    scored s[SCORES];
    size_t n = 0;
    (void)state;
    for (size_t m = 0; m < UM_LEN(models); m++) n += run_alone(models[m], "cpu", 1, s);
    assert_int_equal(n, json_array_size(all));
}

static void ref_equals_the_oracle(void **state) {
    scored s[SCORES];
    (void)state;
    for (size_t m = 0; m < UM_LEN(models); m++) assert_true(run_alone(models[m], "ref", 7, s) > 0);
}

/* ---- Sets of masks ----------------------------------------------------------------------------------------------- */

/* Compares the sets of a block with the recorded ones from number `at` on. Returns the number of compared ones. */
static size_t check_sets(const um_mask_sets *s, const json_t *sets, size_t at) {
    bool masked[TOKENS];
    size_t n = 0;
    for (int32_t i = 0; !s->exact && i < s->count && at + n < json_array_size(sets); i++, n++) {
        const char *want = json_string_value(json_array_get(sets, at + n));
        double weight;
        int32_t count = 0;
        const int32_t l = um_mask_sets_get(s, i, masked, &weight);
        assert_int_equal(strlen(want), s->n);
        for (int32_t k = 0; k < s->n; k++) {
            assert_int_equal(masked[k], want[k] == 'M');
            count += masked[k];
        }
        assert_int_equal(count, l);
    }
    return n;
}

static void draws_the_sets_of_the_oracle(void **state) {
    size_t n = 0;
    (void)state;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *r = recorded(i), *how = json_object_get(r, "options"), *sets = json_object_get(r, "sets");
        const int32_t prompt = (int32_t)json_array_size(json_object_get(r, "prompt"));
        const int32_t end = prompt + (int32_t)json_array_size(json_object_get(r, "answer"));
        const int32_t block = (int32_t)number(how, "block_size"), samples = (int32_t)number(how, "samples");
        const int32_t batch = (int32_t)number(how, "batch");
        size_t at = 0;
        if (json_array_size(sets) == 0) continue;
        for (int32_t start = prompt, next; start < end; start = next) {
            next = block ? UM_MIN(end, (start / block + 1) * block) : end;
            um_mask_sets s = {.n = next - start,
                              .first = start - prompt,
                              .samples = samples,
                              .batch = batch ? batch : um_mask_sets_batch(samples),
                              .seed = (uint64_t)json_integer_value(json_object_get(how, "seed"))};
            um_mask_sets_init(&s);
            at += check_sets(&s, sets, at);
        }
        assert_int_equal(at, json_array_size(sets));
        n += at;
    }
    assert_true(n > 500);
}

/* ---- The same bits whatever else runs ---------------------------------------------------------------------------- */

static void assert_same(size_t i, const scored *a, const scored *b) {
    assert_true(a->done && b->done);
    const bool same = memcmp(&a->logprob, &b->logprob, sizeof(double)) == 0 &&
                      memcmp(&a->standard_error, &b->standard_error, sizeof(double)) == 0 && a->n == b->n &&
                      memcmp(a->token, b->token, a->n * sizeof(double)) == 0 && a->is_greedy == b->is_greedy &&
                      a->passes == b->passes && a->finish == b->finish;
    if (!same) fail_msg("score %zu: %.17g, expected %.17g", i, a->logprob, b->logprob);
}

static void together(um_config *c) { c->max_num_reqs = 12; }

static void with_threads(um_config *c) {
    c->threads = 3;
    c->max_num_batched_tokens = 16 * TOKENS;
}

/* A pass under guidance still fits. */
static void in_small_steps(um_config *c) {
    c->max_num_batched_tokens = 2 * 57;
    c->max_num_reqs = 3;
    c->page_size = 16;
}

static void with_few_pages(um_config *c) {
    c->max_num_reqs = 8;
    c->page_size = 16;
    c->num_pages = 6;
}

static void results_do_not_depend_on_the_schedule(void **state) {
    static void (*const changes[])(um_config *) = {together, with_threads, in_small_steps, with_few_pages};
    static scored alone[SCORES], batched[SCORES];
    int32_t preemptions = 0;
    (void)state;
    for (size_t m = 0; m < UM_LEN(models); m++) {
        run_alone(models[m], "cpu", 1, alone);
        for (size_t c = 0; c < UM_LEN(changes); c++) {
            test_engine t;
            open_model(&t, models[m], "cpu", changes[c]);
            for (size_t i = 0; i < json_array_size(all); i++)
                if (is_of(recorded(i), models[m])) add(t.engine, recorded(i), &batched[i]);
            test_drain(t.engine);
            for (size_t i = 0; i < json_array_size(all); i++) {
                if (!is_of(recorded(i), models[m])) continue;
                assert_same(i, &batched[i], &alone[i]);
                preemptions += batched[i].preemptions;
            }
            test_close(&t);
        }
    }
    assert_true(preemptions > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_the_sets_of_the_oracle),
        cmocka_unit_test(ref_equals_the_oracle),
        cmocka_unit_test(cpu_equals_the_oracle),
        cmocka_unit_test(results_do_not_depend_on_the_schedule),
    };
    return cmocka_run_group_tests_name("scores", tests, load_all, free_all);
}
