/* Tests of constraints in the engine: with every strategy and sampler, at any temperature, an answer is a text of its
 * constraint, ends by itself, and has the same tokens alone and among others. */
#include <math.h>

#include "byte_folder.h"
#include "model/languages.h"
#include "support.h"

typedef struct how {
    const char *model, *strategy, *sampler;
    int32_t buffer_size; /* 0: auto */
    float remask_threshold;
} how;

static const how hows[] = {{"tiny-block", "multi_bd", "confidence", 1, NAN},
                           {"tiny-block", "multi_bd", "confidence", 3, NAN},
                           {"tiny-block", "multi_bd", "dynamic", 0, 0.4F},
                           {"tiny-block", "multi_bd", "low_confidence", 0, NAN},
                           {"tiny-block", "multi_bd", "credit", 2, NAN},
                           {"tiny-block", "multi_bd", "edit", 0, NAN},
                           {"tiny-block", "multi_bd", "entropy_bound", 0, NAN},
                           {"tiny-full", "full", "low_confidence", 0, NAN},
                           {"tiny-full", "full", "confidence", 0, 0.4F},
                           {"tiny-full", "full", "origin", 0, NAN},
                           {"tiny-full", "prefix_cache", "entropy", 0, NAN},
                           {"tiny-full", "dual_cache", "factor", 0, NAN},
                           {"tiny-full", "sparse", "random", 0, NAN},
                           {"tiny-full", "d2f", "confidence", 2, NAN},
                           {"fast_dllm_v2", "fast_dllm_v2", "confidence", 0, NAN},
                           {"fast_dllm_v2", "fast_dllm_v2", "confidence", 0, 0.4F},
                           {"llada2", "dmax", "dmax", 0, NAN},
                           {"llada2", "dmax", "dmax", 2, NAN},
                           {"families/wedlm/models/wedlm_8b", "causal_window", "auto", 0, NAN},
                           {"families/wedlm/models/wedlm_7b", "causal_window", "confidence", 0, NAN},
                           {"families/llada22/models/llada22_a", "levenshtein", "auto", 0, NAN},
                           {"families/llada22/models/llada22_a", "joint_indel", "auto", 0, NAN}};

static const um_constraint constraints[] = {
    {.kind = UM_CONSTRAINT_NONE},
    {.kind = UM_CONSTRAINT_JSON},
    {.kind = UM_CONSTRAINT_SCHEMA,
     .text = "{\"type\": \"object\", \"required\": [\"name\", \"age\"], \"properties\": {\"name\": {\"type\": "
             "\"string\", \"maxLength\": 12}, \"age\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": 120}, "
             "\"tags\": {\"type\": \"array\", \"items\": {\"enum\": [\"red\", \"green\"]}, \"maxItems\": 3}}}"},
    {.kind = UM_CONSTRAINT_REGEX, .text = "[A-Z][a-z]{2,8}( [a-z]+){1,3}[.!?]"},
    {.kind = UM_CONSTRAINT_REGEX, .text = "(ab|ba)*"},
    {.kind = UM_CONSTRAINT_GRAMMAR, .text = "root ::= term (\" + \" term)*\nterm ::= [0-9]{1,3} | \"(\" root \")\""},
    {.kind = UM_CONSTRAINT_CHOICE, .text = "[\"yes\", \"no\", \"I am not sure\"]"},
};

enum { KINDS = (int)UM_LEN(constraints), ROUNDS = 2, ANSWERS = KINDS * ROUNDS, TOKENS = 28, STEPS = 8 };

/* Fills a request with a prompt and a constraint. a: receives the answer, or NULL. */
static um_request request(um_engine *e, int32_t kind, const char *text, test_answer *a) {
    um_request r;
    um_request_init(e, &r);
    r.text = "What is 12 + 30?";
    r.text_len = strlen(r.text);
    r.constraint = kind;
    r.constraint_text = text;
    if (!a) return r;
    *a = (test_answer){0};
    r.events = UM_EVENT_TEXT;
    r.on_event = test_collect;
    r.arg = a;
    return r;
}

static void choose(um_request *r, const char *strategy, const char *sampler) {
    snprintf(r->decoding.strategy, sizeof r->decoding.strategy, "%s", strategy);
    snprintf(r->decoding.sampler, sizeof r->decoding.sampler, "%s", sampler);
}

static void add(um_engine *e, const how *h, int32_t i, test_answer *a) {
    const um_constraint *c = &constraints[i % KINDS];
    um_request r = request(e, c->kind, c->text, a);
    um_err err = {0};
    choose(&r, h->strategy, h->sampler);
    r.decoding.accept_threshold = 0.6F;
    r.decoding.buffer_size = h->buffer_size;
    r.decoding.remask_threshold = h->remask_threshold;
    if (!um_streq(h->sampler, "confidence") && !um_streq(h->sampler, "dmax") && !um_streq(h->sampler, "factor"))
        r.decoding.steps = STEPS;
    test_drop_unread(&r.decoding);
    r.sampling.max_tokens = TOKENS;
    r.sampling.temperature = i < KINDS ? 0 : 2;
    if (i < KINDS && (h - hows + i) % 4 < 2) r.sampling.filling = UM_FILLING_BEST;
    r.sampling.seed = i;
    if (um_engine_add(e, &r, NULL, &err)) fail_msg("%s with %s: %s", h->strategy, h->sampler, err.msg);
}

static void step(um_engine *e) {
    um_err err;
    const int64_t before = um_alloc_count();
    if (um_engine_step(e, &err)) fail_msg("%s", err.msg);
    assert_int_equal(um_alloc_count(), before);
}

static void check_text(um_model *m, const how *h, const um_constraint *c, const test_answer *a) {
    um_shared_language *l;
    um_err err;
    um_constraint same = *c;
    same.depth = 8;
    same.style.space_max = 1;
    assert_int_equal(um_model_get_language(m, &same, &l, &err), UM_OK);
    if (!um_rules_match(&l->rules, um_str_of(a->text)))
        fail_msg("%s with %s, temperature %s: \"%s\" is no text of %s", h->strategy, h->sampler, "0 or 2", a->text,
                 c->text ? c->text : "JSON");
    um_model_release_language(m, l);
}

/* Opens a bundled model, or one of random weights whose words are bytes. */
static void open_model(test_engine *t, const char *model) {
    const bool is_bundled = !strncmp(model, "tiny", 4);
    char path[64], *dir = is_bundled ? NULL : byte_folder_new(model);
    um_config c;
    test_config(&c, model, path, sizeof path);
    snprintf(path, sizeof path, "models/%s", model);
    if (dir) {
        c.model = dir;
        c.mask_token_id = BYTE_FOLDER_MASK;
    }
    c.threads = 1;
    test_open(t, &c);
    if (dir) folder_free(dir);
}

/* Half of the answers are also made alone. */
static bool is_compared(size_t number, int32_t i) { return (number + (size_t)i) % 2 == 0; }

static void check_strategy(size_t number) {
    const how *h = &hows[number];
    static test_answer alone[ANSWERS], among[ANSWERS];
    test_engine t;
    open_model(&t, h->model);
    for (int32_t i = 0; i < ANSWERS; i++) {
        if (is_compared(number, i)) add(t.engine, h, i, &alone[i]);
        while (um_engine_pending(t.engine)) step(t.engine);
    }
    for (int32_t i = 0; i < ANSWERS; i++) add(t.engine, h, i, &among[i]);
    while (um_engine_pending(t.engine)) step(t.engine);
    for (int32_t i = 0; i < ANSWERS; i++) {
        const um_constraint *c = &constraints[i % KINDS];
        const test_answer *a = &among[i];
        assert_true(a->done);
        if (is_compared(number, i)) {
            assert_int_equal(alone[i].n, a->n);
            assert_memory_equal(alone[i].token, a->token, (size_t)a->n * sizeof(int32_t));
        }
        if (c->kind == UM_CONSTRAINT_NONE) continue;
        if (a->finish != UM_FINISH_EOS) fail_msg("%s: finish %s", h->strategy, um_finish_name(a->finish));
        check_text(t.model, h, c, a);
    }
    test_close(&t);
}

static void every_strategy_keeps_to_a_constraint(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(hows); i++) check_strategy(i);
}

/* ---- Passes ------------------------------------------------------------------------------------------------------ */

static void fixed_text_costs_no_passes(void **state) {
    (void)state;
    static test_answer a;
    test_engine t;
    um_err err;
    open_model(&t, "tiny-block");
    um_request r = request(t.engine, UM_CONSTRAINT_CHOICE, "[\"The only answer that is allowed has many words.\"]", &a);
    r.sampling.max_tokens = 64;
    assert_int_equal(um_engine_add(t.engine, &r, NULL, &err), UM_OK);
    test_drain(t.engine);
    assert_string_equal(a.text, "The only answer that is allowed has many words.");
    print_message("# %d tokens in %d passes\n", a.n, a.nfe);
    assert_true(a.n > 8);
    assert_true(a.nfe <= (a.n + 3) / 4);
    test_close(&t);
}

/* ---- Parameters beside a constraint ------------------------------------------------------------------------------ */

/* No probability is below 0. */
static void a_remask_threshold_of_0_changes_nothing(void **state) {
    (void)state;
    static test_answer zero, off;
    test_engine t;
    open_model(&t, "tiny-block");
    for (int i = 0; i < 2; i++) {
        um_request r = request(t.engine, UM_CONSTRAINT_REGEX, "[a-z]{2,8}( [a-z]+){1,3}[.!?]", i ? &zero : &off);
        choose(&r, "multi_bd", "confidence");
        r.decoding.remask_threshold = i ? 0 : NAN;
        test_drop_unread(&r.decoding);
        assert_int_equal(um_engine_add(t.engine, &r, NULL, NULL), UM_OK);
        while (um_engine_pending(t.engine)) step(t.engine);
    }
    assert_true(off.n > 1);
    assert_string_equal(zero.text, off.text);
    test_close(&t);
}

/* The sampler accepts the tokens behind the limit, which the constraint has no place for. */
static void a_canvas_may_reach_beyond_the_limit(void **state) {
    (void)state;
    enum { LIMIT = 16, PASSES = 200 };
    static test_answer a;
    test_engine t;
    open_model(&t, "tiny-full");
    um_request r = request(t.engine, UM_CONSTRAINT_REGEX, "[a-z]{2,8}( [a-z]+){1,3}[.!?]", &a);
    choose(&r, "full", "confidence");
    r.decoding.accept_threshold = 0.6F;
    r.decoding.gen_length = r.decoding.block_size = 4 * LIMIT;
    r.sampling.max_tokens = LIMIT;
    test_drop_unread(&r.decoding);
    assert_int_equal(um_engine_add(t.engine, &r, NULL, NULL), UM_OK);
    for (int i = 0; i < PASSES && um_engine_pending(t.engine); i++) step(t.engine);
    assert_true(a.done);
    assert_int_equal(a.finish, UM_FINISH_EOS);
    assert_in_range(a.n, 1, LIMIT);
    test_close(&t);
}

static void repetitions_of_nothing_are_nothing(void **state) {
    (void)state;
    static test_answer a;
    test_engine t;
    open_model(&t, "tiny-block");
    um_request r = request(t.engine, UM_CONSTRAINT_REGEX, "ok((((){60000}){60000}){60000}){60000}", &a);
    assert_int_equal(um_engine_add(t.engine, &r, NULL, NULL), UM_OK);
    test_drain(t.engine);
    assert_string_equal(a.text, "ok");
    test_close(&t);
}

/* ---- Bounds ------------------------------------------------------------------------------------------------------ */

/* Each text of 17 letters has a state of its own. The answers beside it go on. */
static void a_constraint_that_meets_its_bound_ends_its_answer(void **state) {
    (void)state;
    static test_answer large, beside[3], alone;
    const int32_t kinds[] = {UM_CONSTRAINT_REGEX, UM_CONSTRAINT_NONE, UM_CONSTRAINT_NONE};
    const char *const texts[] = {"[a-z]{3}", NULL, NULL};
    test_engine t;
    open_model(&t, "tiny-block");
    um_request r = request(t.engine, UM_CONSTRAINT_NONE, NULL, &alone);
    assert_int_equal(um_engine_add(t.engine, &r, NULL, NULL), UM_OK);
    test_drain(t.engine);
    for (size_t i = 0; i < UM_LEN(kinds); i++) {
        r = request(t.engine, kinds[i], texts[i], &beside[i]);
        assert_int_equal(um_engine_add(t.engine, &r, NULL, NULL), UM_OK);
    }
    r = request(t.engine, UM_CONSTRAINT_REGEX, "[ab]*a[ab]{16}", &large);
    assert_int_equal(um_engine_add(t.engine, &r, NULL, NULL), UM_OK);
    while (um_engine_pending(t.engine)) step(t.engine);
    assert_int_equal(large.finish, UM_FINISH_CONSTRAINT);
    assert_int_equal(beside[0].finish, UM_FINISH_EOS);
    assert_int_equal(beside[0].text[3], '\0');
    for (size_t i = 1; i < UM_LEN(kinds); i++) {
        assert_int_equal(beside[i].n, alone.n);
        assert_memory_equal(beside[i].token, alone.token, (size_t)alone.n * sizeof(int32_t));
    }
    test_close(&t);
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static void refuse(um_engine *e, const um_request *r, um_status status, const char *param, const char *part) {
    um_err err = {0};
    const um_status st = um_engine_add(e, r, NULL, &err);
    if (st != status) fail_msg("status %d, expected %d: %s", st, status, err.msg);
    assert_string_equal(err.param, param);
    if (!strstr(err.msg, part)) fail_msg("\"%s\" lacks \"%s\"", err.msg, part);
}

static void what_can_not_be_kept_is_refused(void **state) {
    (void)state;
    test_engine t;
    open_model(&t, "tiny-block");
    um_request r = request(t.engine, UM_CONSTRAINT_CHOICE, "[\"one\", \"twenty-two letters long\"]", NULL);
    r.sampling.max_tokens = 64;
    r.sampling.min_tokens = 3;
    refuse(t.engine, &r, UM_EINVAL, "min_tokens", "combined");
    r.sampling.min_tokens = 0;
    r.constraint_text = "[\"a text of many letters, for which the tokens don't suffice\"]";
    r.sampling.max_tokens = 4;
    refuse(t.engine, &r, UM_ERANGE, "max_tokens", "the shortest answer");
    r.constraint = UM_CONSTRAINT_REGEX;
    r.constraint_text = "[^\\x00-\\x{10FFFF}]";
    refuse(t.engine, &r, UM_EINVAL, "constraint", "no text matches");
    r.constraint_text = "((a|b){60000}){60000}";
    refuse(t.engine, &r, UM_ELIMIT, "constraint", "too large");
    r.constraint_text = NULL;
    refuse(t.engine, &r, UM_EINVAL, "constraint", "needs a text");
    r.constraint = 99;
    refuse(t.engine, &r, UM_ERANGE, "constraint", "99");
    test_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_strategy_keeps_to_a_constraint),
        cmocka_unit_test(fixed_text_costs_no_passes),
        cmocka_unit_test(a_remask_threshold_of_0_changes_nothing),
        cmocka_unit_test(a_canvas_may_reach_beyond_the_limit),
        cmocka_unit_test(repetitions_of_nothing_are_nothing),
        cmocka_unit_test(a_constraint_that_meets_its_bound_ends_its_answer),
        cmocka_unit_test(what_can_not_be_kept_is_refused),
    };
    return cmocka_run_group_tests_name("constrained", tests, NULL, NULL);
}
