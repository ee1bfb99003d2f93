/* Registered samplers: names and errors of registration, the rules that um_check_sampler tests, and samplers in an
 * engine: a registered copy of `confidence` writes what `confidence` writes, with one call for each step. */
#include <math.h>

#include "support.h"

enum { REQUESTS = 24 };

static int calls, blocks_most;

/* ---- Samplers ---------------------------------------------------------------------------------------------------- */

static void accept_confident(void *arg, const um_sampler_batch *b) {
    (void)arg;
    calls++;
    blocks_most = UM_MAX(blocks_most, b->n_blocks);
    for (int32_t i = 0; i < b->n; i++) b->accept[i] = b->probability[i] > b->param[b->block[i] * b->n_params];
}

/* Leaves the forced choice to the engine. */
static const um_sampler_param threshold = {"mirror_threshold", NULL, 0, 1, 0.9F};
static const um_sampler_def mirror = {.version = UM_SAMPLER_VERSION,
                                      .name = "mirror",
                                      .summary = "a copy of confidence",
                                      .params = &threshold,
                                      .n_params = 1,
                                      .accept = accept_confident};

/* Accepts the candidate with the largest value of `key`, the leftmost among equals. */
static int32_t best_of(const um_sampler_batch *b, int32_t block, const float *key) {
    int32_t best = b->first[block];
    for (int32_t i = best; i < b->first[block + 1]; i++)
        if (key[i] > key[best]) best = i;
    return best;
}

static void accept_all_reads(void *arg, const um_sampler_batch *b) {
    (void)arg;
    assert_int_equal(b->size, sizeof *b);
    for (int32_t k = 0; k < b->n_blocks; k++) {
        int32_t *passes = b->memory[k];
        assert_int_equal(b->pass[k], ++*passes);
        assert_int_equal(b->seed[k], 100 + b->request[k]);
        assert_in_range(b->first[k + 1] - b->first[k], 1, b->length[k]);
        b->accept[best_of(b, k, b->margin)] = true;
    }
    for (int32_t i = 0; i < b->n; i++) {
        const um_logprob *top = &b->top[i * b->n_top];
        assert_true(b->margin[i] >= 0 && b->margin[i] <= 1 && b->entropy[i] >= 0);
        if (b->request[b->block[i]] % 2) { /* greedy */
            assert_int_equal(top[0].id, b->id[i]);
            assert_true(fabsf(expf(top[0].logprob) - b->probability[i]) < 1e-5F);
        }
        assert_true(top[0].logprob >= top[1].logprob);
        assert_true(i == b->first[b->block[i]] || b->position[i] > b->position[i - 1]);
    }
}

static const um_sampler_def reader = {.version = UM_SAMPLER_VERSION,
                                      .name = "reader",
                                      .reads = UM_READ_MARGIN | UM_READ_ENTROPY,
                                      .n_top = 2,
                                      .memory = sizeof(int32_t),
                                      .accept = accept_all_reads};

/* Fails for the request with this number, accepts everything otherwise. */
static int64_t failing_request;
static void accept_or_fail(void *arg, const um_sampler_batch *b) {
    (void)arg;
    for (int32_t k = 0; k < b->n_blocks; k++) {
        b->failed[k] = b->request[k] == failing_request;
        for (int32_t i = b->first[k]; i < b->first[k + 1]; i++) b->accept[i] = true;
    }
}
static const um_sampler_def failing = {.version = UM_SAMPLER_VERSION, .name = "failing", .accept = accept_or_fail};

/* ---- Registration ------------------------------------------------------------------------------------------------ */

static void register_good(const um_sampler_def *def) {
    um_err err;
    if (um_register_sampler(def, &err)) fail_msg("%s", err.msg);
}

static void refuse(const um_sampler_def *def, um_status code, const char *words) {
    um_err err = {0};
    assert_int_equal(um_register_sampler(def, &err), code);
    if (!strstr(err.msg, words)) fail_msg("\"%s\" lacks \"%s\"", err.msg, words);
}

static void bad_definitions_are_refused(void **state) {
    (void)state;
    static um_sampler_param many[UM_SAMPLER_PARAMS_MAX];
    static char names[UM_SAMPLER_PARAMS_MAX][8];
    um_sampler_def d = failing;
    d.name = "other";
    d.version = 99;
    refuse(&d, UM_EUNSUPPORTED, "version 99");
    d.version = UM_SAMPLER_VERSION;
    d.accept = NULL;
    refuse(&d, UM_EINVAL, "accept is missing");
    d.accept = accept_or_fail;
    for (size_t i = 0; i < 5; i++) {
        d.name = (const char *[]){"", "with space", "confidence", "naive", "auto"}[i];
        refuse(&d, UM_EINVAL, i < 2 ? "needs a name" : "taken");
    }
    d.name = "other";
    d.n_top = 65;
    refuse(&d, UM_EINVAL, "0..64");
    d.n_top = 0;
    d.memory = (1 << 20) + 1;
    refuse(&d, UM_EINVAL, "1048576");
    d.memory = 0;
    d.n_params = 1;
    d.params = &(um_sampler_param){"temperature", NULL, 0, 1, 0};
    refuse(&d, UM_EINVAL, "an option has this name");
    d.params = &(um_sampler_param){"mine", NULL, 0, 1, 2};
    refuse(&d, UM_EINVAL, "outside 0..1");
    d.n_params = UM_SAMPLER_PARAMS_MAX; /* the samplers of this program have one already */
    d.params = many;
    for (int i = 0; i < UM_SAMPLER_PARAMS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "p%d", i);
        many[i] = (um_sampler_param){names[i], NULL, 0, 1, 0};
    }
    refuse(&d, UM_ELIMIT, "together");
    many[1].name = "p0";
    refuse(&d, UM_EINVAL, "two parameters are named p0");
}

static void parameters_are_options(void **state) {
    (void)state;
    um_request r = {0};
    um_config c;
    um_err err;
    um_config_init(&c);
    assert_true(c.decoding.registered[0] == 0.9F);
    assert_int_equal(um_config_set(&c, "mirror_threshold", "0.25", &err), UM_OK);
    assert_true(c.decoding.registered[0] == 0.25F);
    assert_int_equal(um_request_set(&r, "mirror_threshold", "1.5", &err), UM_ERANGE);
    assert_string_equal(err.param, "mirror_threshold");
}

/* ---- um_check_sampler -------------------------------------------------------------------------------------------- */

static void looks_at_neighbours(void *arg, const um_sampler_batch *b) {
    (void)arg;
    for (int32_t i = 0; i < b->n; i++) b->accept[i] = b->n_blocks > 1 || b->probability[i] > 0.5F;
}
static void looks_at_order(void *arg, const um_sampler_batch *b) {
    (void)arg;
    for (int32_t i = 0; i < b->n; i++) b->accept[i] = b->block[i] == 0 || b->probability[i] > 0.5F;
}
static void counts_calls(void *arg, const um_sampler_batch *b) {
    static int n;
    (void)arg;
    n++;
    for (int32_t i = 0; i < b->n; i++) b->accept[i] = n % 2 || b->probability[i] > 0.5F;
}
static void overwrites(void *arg, const um_sampler_batch *b) {
    (void)arg;
    for (int32_t i = 0; i < b->n; i++) b->accept[i] = true;
    ((float *)(uintptr_t)b->probability)[0] = 2;
}
static void fails(void *arg, const um_sampler_batch *b) {
    (void)arg;
    b->failed[0] = true;
}

static void broken_rules_are_found(void **state) {
    (void)state;
    static const struct {
        void (*accept)(void *arg, const um_sampler_batch *batch);
        const char *words;
    } broken[] = {{looks_at_neighbours, "the other blocks"},
                  {looks_at_order, "the order"},
                  {counts_calls, "in another way"},
                  {overwrites, "may only read"},
                  {fails, "fails on an ordinary block"}};
    um_err err;
    for (size_t i = 0; i < UM_LEN(broken); i++) {
        const um_sampler_def d = {.version = UM_SAMPLER_VERSION, .name = "broken", .accept = broken[i].accept};
        assert_int_equal(um_check_sampler(&d, &err), UM_EINVAL);
        if (!strstr(err.msg, broken[i].words)) fail_msg("\"%s\" lacks \"%s\"", err.msg, broken[i].words);
    }
}

static void a_good_sampler_keeps_the_rules(void **state) {
    (void)state;
    um_err err;
    const um_sampler_def none = {.version = UM_SAMPLER_VERSION, .name = "none"};
    const um_sampler_def good = {
        .version = UM_SAMPLER_VERSION, .name = "good", .n_top = 3, .memory = 8, .accept = accept_or_fail};
    failing_request = -1;
    if (um_check_sampler(&good, &err)) fail_msg("%s", err.msg);
    assert_int_equal(um_check_sampler(&none, &err), UM_EINVAL);
}

/* ---- In an engine ------------------------------------------------------------------------------------------------ */

typedef struct run {
    const char *model, *strategy, *sampler;
    int32_t max_num_reqs, buffer_size, compat;
} run;

static void add(um_engine *e, const run *how, int32_t i, test_answer *answer) {
    um_request r;
    um_err err;
    int32_t prompt[8];
    um_request_init(e, &r);
    for (int32_t k = 0; k < 8; k++) prompt[k] = 4 + (i * 31 + k * 7) % 400;
    r.ids = prompt;
    r.n_ids = 1 + (size_t)i % 8;
    r.sampling.max_tokens = 20 + i;
    r.sampling.seed = 101 + i;
    r.sampling.temperature = i % 2 ? 0.7F : 0;
    r.sampling.ignore_eos = true;
    r.on_event = test_collect;
    r.arg = answer;
    snprintf(r.decoding.strategy, sizeof r.decoding.strategy, "%s", how->strategy);
    snprintf(r.decoding.sampler, sizeof r.decoding.sampler, "%s", how->sampler);
    if (how->buffer_size) r.decoding.buffer_size = how->buffer_size;
    if (um_streq(how->sampler, "mirror")) r.decoding.registered[0] = 0.3F;
    if (um_streq(how->sampler, "confidence")) r.decoding.accept_threshold = 0.3F;
    if (um_engine_add(e, &r, NULL, &err)) fail_msg("%s", err.msg);
}

/* Runs REQUESTS requests and returns the number of steps. */
static int64_t answer_all(const run *how, test_answer *answer) {
    test_engine t;
    char path[128];
    um_config c;
    um_stats s;
    test_config(&c, how->model, path, sizeof path);
    c.max_num_reqs = how->max_num_reqs;
    c.compat = how->compat;
    test_open(&t, &c);
    memset(answer, 0, REQUESTS * sizeof *answer);
    calls = blocks_most = 0;
    for (int32_t i = 0; i < REQUESTS; i++) add(t.engine, how, i, &answer[i]);
    test_drain(t.engine);
    um_engine_get_stats(t.engine, &s);
    test_close(&t);
    return s.steps;
}

static test_answer want[REQUESTS], have[REQUESTS];

static void compare(run how) {
    how.sampler = "confidence";
    answer_all(&how, want);
    how.sampler = "mirror";
    const int64_t steps = answer_all(&how, have);
    for (int32_t i = 0; i < REQUESTS; i++) {
        assert_int_equal(have[i].nfe, want[i].nfe);
        assert_int_equal(have[i].n, want[i].n);
        assert_memory_equal(have[i].token, want[i].token, (size_t)want[i].n * sizeof(int32_t));
    }
    assert_in_range(calls, 1, steps);
    assert_in_range(blocks_most, how.max_num_reqs, how.max_num_reqs * UM_MAX(1, how.buffer_size));
}

static void a_copy_of_confidence_writes_the_same(void **state) {
    (void)state;
    compare((run){.model = "sdar", .strategy = "multi_bd", .max_num_reqs = 1, .buffer_size = 1});
    compare((run){.model = "sdar", .strategy = "multi_bd", .max_num_reqs = 8, .buffer_size = 1});
    compare((run){.model = "sdar", .strategy = "multi_bd", .max_num_reqs = 8, .buffer_size = 4});
    compare((run){.model = "llada", .strategy = "full", .max_num_reqs = 4});
    compare((run){.model = "llada", .strategy = "dual_cache", .max_num_reqs = 4});
}

static void a_sampler_sees_what_it_reads(void **state) {
    (void)state;
    answer_all(&(run){.model = "sdar", .strategy = "multi_bd", .sampler = "reader", .max_num_reqs = 6}, have);
    for (int32_t i = 0; i < REQUESTS; i++) assert_int_equal(have[i].n, 20 + i);
}

static void a_failure_ends_one_request(void **state) {
    (void)state;
    run how = {.model = "sdar", .strategy = "multi_bd", .sampler = "failing", .max_num_reqs = 6};
    failing_request = 5;
    for (how.compat = UM_COMPAT_NONE; how.compat <= UM_COMPAT_DIFFULEX; how.compat++) {
        answer_all(&how, have);
        for (int32_t i = 0; i < REQUESTS; i++) {
            assert_int_equal(have[i].finish == UM_FINISH_SAMPLER, i == 4);
            if (i == 4 || how.compat == UM_COMPAT_NONE) assert_int_equal(have[i].n, i == 4 ? 0 : 20 + i);
        }
    }
    assert_string_equal(um_finish_name(UM_FINISH_SAMPLER), "sampler_failed");
}

static void fillings_of_a_whole_block_are_refused(void **state) {
    (void)state;
    test_engine t;
    um_config c;
    um_request r;
    um_err err;
    um_config_init(&c);
    c.model = "models/tiny-block";
    test_open(&t, &c);
    um_request_init(t.engine, &r);
    r.text = "Yes or no?";
    r.text_len = strlen(r.text);
    r.constraint = UM_CONSTRAINT_CHOICE;
    r.constraint_text = "[\"yes\", \"no\"]";
    r.sampling.filling = UM_FILLING_BEST;
    assert_int_equal(um_request_set(&r, "sampler", "failing", &err), UM_OK);
    assert_int_equal(um_engine_add(t.engine, &r, NULL, &err), UM_EUNSUPPORTED);
    assert_string_equal(err.param, "filling");
    assert_non_null(strstr(err.msg, "not for registered samplers (failing)"));
    r.sampling.filling = UM_FILLING_EACH;
    assert_int_equal(um_engine_add(t.engine, &r, NULL, &err), UM_OK);
    test_close(&t);
}

static void engines_refuse_samplers_that_come_later(void **state) {
    (void)state;
    test_engine t;
    char path[128];
    um_config c;
    um_err err;
    um_request r;
    um_sampler_def late = failing;
    test_config(&c, "sdar", path, sizeof path);
    test_open(&t, &c);
    late.name = "late";
    register_good(&late);
    um_request_init(t.engine, &r);
    r.ids = (int32_t[]){5};
    r.n_ids = 1;
    assert_int_equal(um_request_set(&r, "sampler", "late", &err), UM_OK);
    assert_int_equal(um_engine_add(t.engine, &r, NULL, &err), UM_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "registered after the engine was made"));
    test_close(&t);
    test_open(&t, &c);
    assert_int_equal(um_engine_add(t.engine, &r, NULL, &err), UM_OK);
    test_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_definitions_are_refused),
        cmocka_unit_test(parameters_are_options),
        cmocka_unit_test(broken_rules_are_found),
        cmocka_unit_test(a_good_sampler_keeps_the_rules),
        cmocka_unit_test(a_copy_of_confidence_writes_the_same),
        cmocka_unit_test(a_sampler_sees_what_it_reads),
        cmocka_unit_test(a_failure_ends_one_request),
        cmocka_unit_test(fillings_of_a_whole_block_are_refused),
        cmocka_unit_test(engines_refuse_samplers_that_come_later),
    };
    register_good(&mirror);
    register_good(&reader);
    register_good(&failing);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
