/* Tests of scores: refusals, statistics, sharing of prefixes, and their life in an engine. tests/golden/scores_test.c
 * compares the values with an independent evaluation. */
#include <malloc.h>
#include <math.h>

#include "support.h"

typedef struct outcome {
    um_score_result r; /* its arrays are gone */
    int32_t n;
} outcome;

static void take(void *arg, const um_score_result *r) {
    outcome *o = (outcome *)arg;
    o->r = *r;
    o->n++;
}

static test_engine llada, sdar;

static void open_one(test_engine *t, const char *name, bool without_prefixes) {
    char path[128];
    um_config c;
    test_config(&c, name, path, sizeof path);
    c.max_num_reqs = 6;
    c.num_pages = 60;
    c.disable_prefix_caching = without_prefixes;
    test_open(t, &c);
}

static int open_both(void **state) {
    (void)state;
    open_one(&llada, "llada", false);
    open_one(&sdar, "sdar", false);
    return 0;
}

static int close_both(void **state) {
    (void)state;
    test_close(&llada);
    test_close(&sdar);
    return 0;
}

static const int32_t prompt[] = {231, 443, 286, 438, 473};
static const int32_t answer[] = {12, 406, 77, 310, 5, 248, 91, 133, 402, 3};

static um_score_request score(const test_engine *t, outcome *o) {
    um_score_request s;
    um_score_init(t->engine, &s);
    s.ids = prompt;
    s.n_ids = UM_LEN(prompt);
    s.answer_ids = answer;
    s.n_answer_ids = UM_LEN(answer);
    s.on_score = take;
    s.arg = o;
    return s;
}

static int64_t add(const test_engine *t, const um_score_request *s) {
    um_err err;
    int64_t id;
    if (um_engine_score(t->engine, s, &id, &err)) fail_msg("%s", err.msg);
    return id;
}

static um_score_result run(const test_engine *t, um_score_request *s) {
    outcome o = {0};
    s->arg = &o;
    const int64_t id = add(t, s);
    test_drain(t->engine);
    assert_int_equal(o.n, 1);
    assert_int_equal(o.r.id, id);
    assert_int_equal(o.r.finish, UM_FINISH_STEPS);
    return o.r;
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static void check_refused(const test_engine *t, const um_score_request *s, um_status code, const char *param,
                          const char *part) {
    um_err err = {0};
    assert_int_equal(um_engine_score(t->engine, s, NULL, &err), code);
    if (!strstr(err.msg, part)) fail_msg("expected \"%s\" in: %s", part, err.msg);
    assert_string_equal(err.param, param);
    assert_int_equal(um_engine_pending(t->engine), 0);
}

static void refuses_wrong_prompts_and_answers(void **state) {
    static const int32_t outside[] = {1, 512}, many[2100] = {0};
    (void)state;
    um_score_request s = score(&llada, NULL);
    s.n_answer_ids = 0;
    check_refused(&llada, &s, UM_EINVAL, "answer", "the answer is empty");
    s = score(&llada, NULL);
    s.answer = "";
    check_refused(&llada, &s, UM_EINVAL, "answer", "both were given");
    s.answer_ids = NULL;
    check_refused(&llada, &s, UM_EINVAL, "answer", "the answer is empty");
    s.answer = NULL;
    check_refused(&llada, &s, UM_EINVAL, "answer", "none was given");
    s.answer = "t1 \xff";
    s.answer_len = 4;
    check_refused(&llada, &s, UM_EINVAL, "answer", "3");
    s = score(&llada, NULL);
    s.answer_ids = outside;
    s.n_answer_ids = 2;
    check_refused(&llada, &s, UM_ERANGE, "answer", "answer token 1 is 512");
    s = score(&llada, NULL);
    s.answer_ids = many;
    s.n_answer_ids = 252;
    check_refused(&llada, &s, UM_ELIMIT, "answer", "prompt 5 + answer 252 tokens, but max_model_len is 256");
    s = score(&llada, NULL);
    s.n_ids = 0;
    check_refused(&llada, &s, UM_EINVAL, "ids", "the prompt is empty");
    s.text = "t1";
    s.text_len = 2;
    check_refused(&llada, &s, UM_EINVAL, "ids", "exactly one");
    s = score(&llada, NULL);
    s.adapter = "none";
    um_err err;
    assert_int_equal(um_engine_score(llada.engine, &s, NULL, &err), UM_EINVAL);
    s = score(&llada, NULL);
    s.size--;
    check_refused(&llada, &s, UM_EINVAL, "", "um_score_init");
}

static void refuses_wrong_parameters(void **state) {
    (void)state;
    um_err err;
    um_score_request s = score(&llada, NULL);
    s.params.samples = 0;
    check_refused(&llada, &s, UM_ERANGE, "samples", "samples");
    s = score(&llada, NULL);
    s.params.samples = 30;
    s.params.batch = 7;
    check_refused(&llada, &s, UM_ERANGE, "batch", "7 does not divide the number of samples, 30");
    s = score(&llada, NULL);
    s.params.method = 3;
    check_refused(&llada, &s, UM_EINVAL, "method", "method");
    s = score(&llada, NULL);
    s.params.cfg_scale = NAN;
    check_refused(&llada, &s, UM_EINVAL, "cfg_scale", "cfg_scale");
    s = score(&sdar, NULL);
    s.params.cfg_scale = 1;
    check_refused(&sdar, &s, UM_EUNSUPPORTED, "cfg_scale", "full attention");
    s = score(&sdar, NULL);
    s.params.block_size = 257;
    check_refused(&sdar, &s, UM_ERANGE, "block_size", "257");
    assert_int_equal(um_score_set(&s, "sample", "3", &err), UM_EINVAL);
    assert_non_null(strstr(err.msg, "samples"));
    assert_int_equal(um_score_set(&s, "samples", "0", &err), UM_ERANGE);
    assert_int_equal(um_score_set(&s, "method", "exact", &err), UM_EINVAL);
    assert_int_equal(um_score_set(&s, "method", "confidence", &err), UM_OK);
    assert_int_equal(s.params.method, UM_SCORING_CONFIDENCE);
}

static void refuses_passes_that_never_fit(void **state) {
    char path[128];
    um_config c;
    test_engine t;
    (void)state;
    test_config(&c, "llada", path, sizeof path);
    c.max_num_batched_tokens = 40;
    c.decoding.gen_length = 8;
    test_open(&t, &c);
    um_score_request s = score(&t, NULL);
    s.params.cfg_scale = 1;
    int32_t ids[30] = {0};
    s.ids = ids;
    s.n_ids = UM_LEN(ids);
    check_refused(&t, &s, UM_ELIMIT, "", "feeds 80 tokens (prompt and answer 40, all of it twice for cfg_scale)");
    s.params.cfg_scale = 0;
    (void)run(&t, &s);
    test_close(&t);
}

static void refuses_causal_models(void **state) {
    char path[128];
    um_config c;
    test_engine t;
    (void)state;
    test_config(&c, "reference/wedlm", path, sizeof path);
    test_open(&t, &c);
    um_score_request s = score(&t, NULL);
    const int32_t ids[] = {1, 2};
    s.ids = s.answer_ids = ids;
    s.n_ids = s.n_answer_ids = 2;
    check_refused(&t, &s, UM_EUNSUPPORTED, "", "causal attention");
    test_close(&t);
}

/* ---- Defaults and texts ------------------------------------------------------------------------------------------ */

static void takes_the_defaults_of_the_engine(void **state) {
    char path[128];
    um_config c;
    test_engine t;
    (void)state;
    um_score_request s = score(&llada, NULL);
    assert_int_equal(s.params.samples, 128);
    assert_int_equal(s.params.seed, 0); /* a score is the same each time, although answers are not */
    test_config(&c, "llada", path, sizeof path);
    c.sampling.seed = 7;
    c.decoding.cfg_scale = 0.5F;
    c.decoding.block_size = 16;
    test_open(&t, &c);
    um_score_init(t.engine, &s);
    assert_int_equal(s.params.seed, 7);
    assert_true(s.params.cfg_scale == 0.5F);
    assert_int_equal(s.params.block_size, 16);
    test_close(&t);
}

static void texts_are_encoded_like_ids(void **state) {
    static const int32_t ids[] = {3, 1, 4}, known[] = {1, 5, 9};
    (void)state;
    um_score_request s = score(&llada, NULL);
    s.ids = ids;
    s.answer_ids = known;
    s.n_ids = s.n_answer_ids = 3;
    const um_score_result by_ids = run(&llada, &s);
    s.ids = s.answer_ids = NULL;
    s.text = "t3 t1 t4";
    s.answer = "t1 t5 t9";
    s.text_len = s.answer_len = 8;
    const um_score_result by_text = run(&llada, &s);
    assert_int_equal(by_text.n_tokens, 3);
    assert_true(by_text.logprob == by_ids.logprob);
}

/* ---- Statistics -------------------------------------------------------------------------------------------------- */

/* Runs a score with many seeds. The estimates scatter around the exact value as their standard errors say. Returns the
 * root of the mean squared error that they report. */
static double check_scatter(const test_engine *t, um_score_request s, double exact) {
    enum { SEEDS = 60 };
    double mean = 0, squares = 0, errors = 0;
    for (int64_t seed = 0; seed < SEEDS; seed++) {
        s.params.seed = seed;
        const um_score_result r = run(t, &s);
        assert_true(r.standard_error > 0);
        mean += r.logprob / SEEDS;
        squares += (r.logprob - exact) * (r.logprob - exact) / SEEDS;
        errors += r.standard_error * r.standard_error / SEEDS;
    }
    assert_true(fabs(mean - exact) < 4 * sqrt(squares / SEEDS));
    /* The variance of SEEDS estimates and the mean of their squared errors, of 7 degrees each, agree within 4
     * standard deviations: sqrt(2 / 60 + 2 / (60 * 7)) = 0.2. */
    assert_in_range((int)(100 * errors / squares), 20, 180);
    return sqrt(errors);
}

/* Returns the score of all sets of masks. */
static double exact_score(const test_engine *t, um_score_request s, int32_t passes) {
    s.params.samples = 1023;
    const um_score_result all = run(t, &s);
    assert_int_equal(all.passes, passes);
    assert_true(all.standard_error == 0);
    return all.logprob;
}

static void estimates_scatter_as_their_errors_say(void **state) {
    const test_engine *const engine[] = {&llada, &sdar};
    (void)state;
    for (size_t k = 0; k < UM_LEN(engine); k++) {
        um_score_request s = score(engine[k], NULL);
        s.params.block_size = 16; /* one block: the prompt has 5 tokens, the answer 10 */
        const double exact = exact_score(engine[k], s, 1023);
        s.params.samples = 32;
        const double error = check_scatter(engine[k], s, exact);
        s.params.samples = 800;
        const um_score_result large = run(engine[k], &s);
        assert_true(fabs(large.logprob - exact) < 4 * large.standard_error);
        assert_true(large.standard_error < error / 2);
    }
}

static void variances_of_blocks_add_up(void **state) {
    (void)state;
    um_score_request s = score(&sdar, NULL);
    s.params.block_size = 10; /* two blocks with five tokens of the answer each */
    const double exact = exact_score(&sdar, s, 2 * 31);
    s.params.samples = 16;
    (void)check_scatter(&sdar, s, exact);
}

static void all_methods_agree_on_one_token(void **state) {
    const test_engine *const engine[] = {&llada, &sdar};
    (void)state;
    for (size_t k = 0; k < UM_LEN(engine); k++) {
        um_score_request s = score(engine[k], NULL);
        s.n_answer_ids = 1;
        const um_score_result first = run(engine[k], &s);
        for (int method = UM_SCORING_LEFT_TO_RIGHT; method <= UM_SCORING_CONFIDENCE; method++) {
            s.params.method = method;
            const um_score_result r = run(engine[k], &s);
            assert_true(r.logprob == first.logprob && r.standard_error == 0 && r.passes == 1);
            assert_true(r.is_greedy >= 0 && r.is_greedy == first.is_greedy);
        }
    }
}

/* ---- In the engine ----------------------------------------------------------------------------------------------- */

/* Choices behind one prompt: the later ones find its keys, and so does a request that continues the answer. */
static void choices_share_their_prompt(void **state) {
    enum { CHOICES = 4 };
    int32_t ids[70], token[CHOICES][6];
    double value[2][CHOICES];
    (void)state;
    for (int32_t i = 0; i < 70; i++) ids[i] = i * 37 % 490;
    for (int32_t i = 0; i < CHOICES * 6; i++) token[i / 6][i % 6] = i * 101 % 490;
    for (int without = 0; without < 2; without++) {
        test_engine t;
        open_one(&t, "sdar", without);
        for (int32_t i = 0; i < CHOICES; i++) {
            um_score_request s = score(&t, NULL);
            s.ids = ids;
            s.n_ids = UM_LEN(ids);
            s.answer_ids = token[i];
            s.n_answer_ids = 6;
            const um_score_result r = run(&t, &s);
            value[without][i] = r.logprob;
            assert_int_equal(r.cached_tokens, without || i == 0 ? 0 : 64);
        }
        test_close(&t);
    }
    assert_memory_equal(value[0], value[1], sizeof value[0]);
}

/* Sets of masks of a long sequence, and of a block, share passes: of 12 segments of a step a score takes 3. */
static void sets_share_passes(void **state) {
    const test_engine *const engine[] = {&llada, &sdar};
    (void)state;
    for (size_t k = 0; k < UM_LEN(engine); k++) {
        um_score_request s = score(engine[k], NULL);
        outcome o = {0};
        um_err err;
        int32_t steps = 0;
        s.arg = &o;
        s.params.samples = 30;
        (void)add(engine[k], &s);
        for (; um_engine_pending(engine[k]->engine); steps++)
            assert_int_equal(um_engine_step(engine[k]->engine, &err), UM_OK);
        assert_true(o.r.passes >= 29);
        assert_true(steps * 5 <= o.r.passes * 2);
    }
}

static void runs_beside_requests(void **state) {
    const test_engine *const engine[] = {&llada, &sdar};
    (void)state;
    for (size_t k = 0; k < UM_LEN(engine); k++) {
        test_answer alone = {0}, beside = {0};
        um_score_request s = score(engine[k], NULL);
        outcome o = {0};
        um_request r;
        um_request_init(engine[k]->engine, &r);
        r.ids = prompt;
        r.n_ids = UM_LEN(prompt);
        r.sampling.max_tokens = 24;
        r.on_event = test_collect;
        const double expected = run(engine[k], &s).logprob;
        r.arg = &alone;
        assert_int_equal(um_engine_add(engine[k]->engine, &r, NULL, NULL), UM_OK);
        test_drain(engine[k]->engine);
        s.arg = &o;
        (void)add(engine[k], &s);
        r.arg = &beside;
        assert_int_equal(um_engine_add(engine[k]->engine, &r, NULL, NULL), UM_OK);
        test_drain(engine[k]->engine);
        assert_true(o.n == 1 && o.r.logprob == expected);
        assert_int_equal(beside.n, alone.n);
        assert_memory_equal(beside.token, alone.token, (size_t)alone.n * sizeof(int32_t));
    }
}

static void an_abort_ends_a_score_that_runs_or_waits(void **state) {
    outcome o[8] = {{.n = 0}};
    int64_t id[8];
    um_err err;
    um_slot slot[8];
    (void)state;
    um_score_request s = score(&sdar, NULL);
    for (size_t i = 0; i < UM_LEN(o); i++) {
        s.arg = &o[i];
        id[i] = add(&sdar, &s);
    }
    assert_int_equal(um_engine_step(sdar.engine, &err), UM_OK);
    assert_int_equal(um_engine_slots(sdar.engine, slot, UM_LEN(slot)), 8);
    assert_string_equal(slot[0].strategy, "score");
    assert_int_equal(slot[0].max_tokens, UM_LEN(answer));
    assert_int_equal(um_engine_abort(sdar.engine, id[0], &err), UM_OK);
    assert_int_equal(um_engine_abort(sdar.engine, id[7], &err), UM_OK);
    test_drain(sdar.engine);
    for (size_t i = 0; i < UM_LEN(o); i++) {
        const bool aborted = i == 0 || i == 7;
        assert_int_equal(o[i].n, 1);
        assert_int_equal(o[i].r.finish, aborted ? UM_FINISH_ABORTED : UM_FINISH_STEPS);
        assert_int_equal(isnan(o[i].r.logprob) != 0, aborted);
        assert_int_equal(o[i].r.is_greedy, -1);
    }
}

static void a_score_needs_no_callback(void **state) {
    (void)state;
    um_score_request s = score(&llada, NULL);
    s.on_score = NULL;
    (void)add(&llada, &s);
    test_drain(llada.engine);
}

static void a_step_allocates_nothing(void **state) {
    const test_engine *const engine[] = {&llada, &sdar};
    (void)state;
    for (size_t k = 0; k < UM_LEN(engine); k++) {
        um_score_request s = score(engine[k], NULL);
        um_err err;
        outcome o = {0};
        s.arg = &o;
        s.params.check_greedy = true;
        (void)add(engine[k], &s);
        assert_int_equal(um_engine_step(engine[k]->engine, &err), UM_OK);
        const int64_t before = um_alloc_count();
        while (um_engine_pending(engine[k]->engine)) assert_int_equal(um_engine_step(engine[k]->engine, &err), UM_OK);
        assert_int_equal(um_alloc_count(), before);
        assert_int_equal(o.n, 1);
    }
}

extern size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

/* Sanitizers have an allocator of their own. */
static size_t allocated_bytes(void) {
    if (__sanitizer_get_current_allocated_bytes) return __sanitizer_get_current_allocated_bytes();
    const struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* A request over HTTP may ask for 1,024 scores with a million samples each. */
static void memory_does_not_grow_with_samples(void **state) {
    enum { SCORES = 16 };
    int64_t id[SCORES];
    um_err err;
    (void)state;
    um_score_request s = score(&llada, NULL);
    s.on_score = NULL;
    s.params.samples = 1000000;
    s.params.batch = 1;
    const size_t before = allocated_bytes();
    for (int i = 0; i < SCORES; i++) id[i] = add(&llada, &s);
    assert_true(allocated_bytes() - before < SCORES * (size_t)65536);
    for (int i = 0; i < SCORES; i++) assert_int_equal(um_engine_abort(llada.engine, id[i], &err), UM_OK);
    test_drain(llada.engine);
}

static void a_router_runs_scores_in_its_engines(void **state) {
    enum { SCORES = 6 };
    outcome o[SCORES] = {{.n = 0}};
    char path[128];
    um_config c;
    um_router *router = NULL;
    um_model *m = NULL;
    um_err err;
    (void)state;
    um_score_request s = score(&sdar, NULL);
    const double expected = run(&sdar, &s).logprob;
    test_config(&c, "sdar", path, sizeof path);
    c.data_parallel_size = 2;
    c.route_policy = UM_ROUTE_ROUND_ROBIN;
    if (um_model_open(&m, &c, &err) || um_router_new(&router, m, &c, &err)) fail_msg("%s", err.msg);
    for (int32_t i = 0; i < SCORES; i++) {
        int64_t id;
        s.arg = &o[i];
        assert_int_equal(um_router_score(router, &s, &id, &err), UM_OK);
        assert_int_equal(id, i + 1);
    }
    while (um_router_pending(router)) assert_int_equal(um_router_step(router, &err), UM_OK);
    for (int32_t i = 0; i < SCORES; i++) assert_true(o[i].n == 1 && o[i].r.logprob == expected);
    for (int32_t i = 0; i < 2; i++) {
        um_stats stats;
        um_engine_get_stats(um_router_engine(router, i), &stats);
        assert_int_equal(stats.requests, SCORES / 2);
    }
    um_router_free(router);
    um_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_wrong_prompts_and_answers),
        cmocka_unit_test(refuses_wrong_parameters),
        cmocka_unit_test(refuses_passes_that_never_fit),
        cmocka_unit_test(refuses_causal_models),
        cmocka_unit_test(takes_the_defaults_of_the_engine),
        cmocka_unit_test(texts_are_encoded_like_ids),
        cmocka_unit_test(estimates_scatter_as_their_errors_say),
        cmocka_unit_test(variances_of_blocks_add_up),
        cmocka_unit_test(all_methods_agree_on_one_token),
        cmocka_unit_test(choices_share_their_prompt),
        cmocka_unit_test(sets_share_passes),
        cmocka_unit_test(runs_beside_requests),
        cmocka_unit_test(an_abort_ends_a_score_that_runs_or_waits),
        cmocka_unit_test(a_score_needs_no_callback),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(memory_does_not_grow_with_samples),
        cmocka_unit_test(a_router_runs_scores_in_its_engines),
    };
    return cmocka_run_group_tests_name("score", tests, open_both, close_both);
}
