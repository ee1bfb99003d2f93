/* Tests of a suffix: with whole-sequence strategies, the answer fills the gap before it to the last position. With a
 * constraint it ends where the text ends. */
#include "model/languages.h"
#include "support.h"

static test_engine full;

static int open_full(void **state) {
    (void)state;
    um_config c;
    um_config_init(&c);
    c.model = "models/tiny-full";
    c.max_model_len = 96;
    c.max_num_batched_tokens = 1024;
    c.num_pages = 64;
    test_open(&full, &c);
    return 0;
}

static int close_full(void **state) {
    (void)state;
    test_close(&full);
    return 0;
}

/* The ids before and after the missing middle of a conversation. */
typedef struct gap {
    int32_t *before, *behind;
    size_t n_before, n_behind;
} gap;

static const char BEFORE[] =
    "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nReverse the word \"lamp\".<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n";
static const char BEHIND[] = "<|eot_id|><|endoftext|>";

static gap make_gap(void) {
    gap g;
    um_err err;
    if (um_model_encode(full.model, BEFORE, strlen(BEFORE), true, &g.before, &g.n_before, &err) ||
        um_model_encode(full.model, BEHIND, strlen(BEHIND), true, &g.behind, &g.n_behind, &err))
        fail_msg("%s", err.msg);
    return g;
}

static void free_gap(gap *g) {
    um_free(g->before);
    um_free(g->behind);
}

static um_request request(const gap *g, int32_t len, test_answer *a) {
    um_request r;
    um_request_init(full.engine, &r);
    r.ids = g->before;
    r.n_ids = g->n_before;
    r.suffix = g->behind;
    r.n_suffix = g->n_behind;
    r.sampling.max_tokens = len;
    r.events = UM_EVENT_TEXT;
    r.on_event = test_collect;
    r.arg = a;
    return r;
}

static void run(const um_request *r) {
    um_err err;
    if (um_engine_add(full.engine, r, NULL, &err)) fail_msg("%s", err.msg);
    test_drain(full.engine);
}

static void check_refused(const um_request *r, um_status code, const char *param, const char *part) {
    um_err err = {0};
    assert_int_equal(um_engine_add(full.engine, r, NULL, &err), code);
    assert_string_equal(err.param, param);
    if (!strstr(err.msg, part)) fail_msg("expected \"%s\" in: %s", part, err.msg);
    assert_int_equal(um_engine_pending(full.engine), 0);
}

static const char *const strategies[] = {"full", "prefix_cache", "dual_cache", "sparse"};

static void set_strategy(um_request *r, const char *name) {
    snprintf(r->decoding.strategy, sizeof r->decoding.strategy, "%s", name);
}

static bool is_padding(int32_t id) { return id == 1013 || id == 1016; }

static void every_strategy_fills_the_gap_and_cuts_its_padding(void **state) {
    (void)state;
    gap g = make_gap();
    for (size_t i = 0; i < UM_LEN(strategies); i++) {
        static test_answer a;
        memset(&a, 0, sizeof a);
        um_request r = request(&g, 12, &a);
        set_strategy(&r, strategies[i]);
        run(&r);
        assert_true(a.done);
        assert_int_equal(a.finish, UM_FINISH_STEPS);
        assert_in_range(a.n, 1, 12);
        assert_false(is_padding(a.token[a.n - 1]));
        assert_string_equal(a.text, a.streamed);
    }
    free_gap(&g);
}

static void what_follows_the_gap_is_read(void **state) {
    (void)state;
    gap g = make_gap();
    static test_answer with, without;
    memset(&with, 0, sizeof with);
    memset(&without, 0, sizeof without);
    um_request r = request(&g, 12, &with);
    run(&r);
    r.n_suffix = 0;
    r.arg = &without;
    run(&r);
    assert_string_not_equal(with.text, without.text);
    free_gap(&g);
}

static void ignore_eos_keeps_all_positions_of_the_gap(void **state) {
    (void)state;
    gap g = make_gap();
    static test_answer a;
    um_request r = request(&g, 12, &a);
    r.sampling.ignore_eos = true;
    run(&r);
    assert_int_equal(a.n, 12);
    free_gap(&g);
}

/* With special tokens in the text, an end-of-sequence token in the middle of the gap is part of the text. Those at the
 * end are not. */
static void padding_is_never_streamed_even_as_special_text(void **state) {
    (void)state;
    gap g = make_gap();
    static test_answer a;
    memset(&a, 0, sizeof a);
    um_request r = request(&g, 16, &a);
    r.keep_special = true;
    run(&r);
    assert_true(a.n > 0 && !is_padding(a.token[a.n - 1]));
    size_t len = strlen(a.text);
    assert_true(len > 0 && a.text[len - 1] != '>');
    assert_string_equal(a.text, a.streamed);
    free_gap(&g);
}

static void a_short_canvas_is_the_gap(void **state) {
    (void)state;
    gap g = make_gap();
    static test_answer a;
    memset(&a, 0, sizeof a);
    um_request r = request(&g, 40, &a);
    r.decoding.gen_length = 7;
    r.sampling.ignore_eos = true;
    run(&r);
    assert_int_equal(a.n, 7);
    assert_int_equal(a.finish, UM_FINISH_STEPS);
    r.decoding.gen_length = 41;
    check_refused(&r, UM_ERANGE, "gen_length", "max_tokens");
    free_gap(&g);
}

static void prompt_gap_and_suffix_share_the_length_of_the_model(void **state) {
    (void)state;
    gap g = make_gap();
    static test_answer a;
    static int32_t long_suffix[96];
    memset(&a, 0, sizeof a);
    um_request r = request(&g, 1000, &a);
    r.sampling.ignore_eos = true;
    run(&r);
    assert_int_equal(a.n, 96 - (int32_t)(g.n_before + g.n_behind));
    r.suffix = long_suffix;
    r.n_suffix = 96 - g.n_before;
    check_refused(&r, UM_ELIMIT, "suffix", "max_model_len is 96");
    free_gap(&g);
}

static void refuses_strategies_that_see_nothing_behind_a_block(void **state) {
    (void)state;
    gap g = make_gap();
    um_request r = request(&g, 12, NULL);
    set_strategy(&r, "d2f");
    check_refused(&r, UM_EUNSUPPORTED, "suffix", "full, prefix_cache, dual_cache, sparse");
    free_gap(&g);
}

static void refuses_ids_outside_the_vocabulary(void **state) {
    (void)state;
    gap g = make_gap();
    um_request r = request(&g, 12, NULL);
    g.behind[1] = 5000;
    check_refused(&r, UM_ERANGE, "suffix", "suffix token 1 is 5000");
    free_gap(&g);
}

static void families_that_see_no_future_have_no_strategy_for_it(void **state) {
    (void)state;
    static const int32_t ids[] = {1, 2, 3};
    test_engine t;
    um_config c;
    um_err err = {0};
    um_request r;
    um_config_init(&c);
    c.model = "models/tiny-block";
    c.max_model_len = 256;
    c.num_pages = 16;
    test_open(&t, &c);
    um_request_init(t.engine, &r);
    r.ids = r.suffix = ids;
    r.n_ids = r.n_suffix = UM_LEN(ids);
    assert_int_equal(um_engine_add(t.engine, &r, NULL, &err), UM_EUNSUPPORTED);
    assert_string_equal(err.param, "suffix");
    assert_non_null(strstr(err.msg, "no strategy fills gaps for the family sdar"));
    test_close(&t);
}

static void the_suffix_counts_as_prompt(void **state) {
    (void)state;
    gap g = make_gap();
    static test_answer a;
    um_slot slot;
    memset(&a, 0, sizeof a);
    um_request r = request(&g, 12, &a);
    assert_int_equal(um_engine_add(full.engine, &r, NULL, NULL), UM_OK);
    assert_int_equal(um_engine_slots(full.engine, &slot, 1), 1);
    assert_int_equal(slot.prompt_tokens, (int32_t)(g.n_before + g.n_behind));
    test_drain(full.engine);
    assert_int_equal(a.prompt_tokens, (int32_t)(g.n_before + g.n_behind));
    free_gap(&g);
}

/* ---- Constraints ------------------------------------------------------------------------------------------------- */

static const um_constraint constraints[] = {
    {.kind = UM_CONSTRAINT_REGEX, .text = "[a-f]{3}( [a-z]{1,4})*"},
    {.kind = UM_CONSTRAINT_REGEX, .text = "[ab]*"},
    {.kind = UM_CONSTRAINT_CHOICE, .text = "[\"yes\", \"no\"]"},
    {.kind = UM_CONSTRAINT_SCHEMA,
     .text = "{\"type\": \"object\", \"required\": [\"a\"], \"properties\": {\"a\": {\"type\": \"integer\", "
             "\"minimum\": 0, \"maximum\": 999}}}"}};

static void check_text(const um_constraint *c, const char *text) {
    um_shared_language *l;
    um_constraint same = *c;
    same.depth = 8;
    same.style.space_max = 1;
    assert_int_equal(um_model_get_language(full.model, &same, &l, NULL), UM_OK);
    if (!um_rules_match(&l->rules, um_str_of(text))) fail_msg("\"%s\" is no text of %s", text, c->text);
    um_model_release_language(full.model, l);
}

/* The canvas is remasked in half of the answers, and sampled in the other half. */
static void a_constraint_holds_for_the_gap(void **state) {
    (void)state;
    gap g = make_gap();
    for (size_t i = 0; i < UM_LEN(strategies) * UM_LEN(constraints) * 2; i++) {
        const um_constraint *c = &constraints[i / 2 % UM_LEN(constraints)];
        static test_answer a;
        memset(&a, 0, sizeof a);
        um_request r = request(&g, 16, &a);
        set_strategy(&r, strategies[i / 2 / UM_LEN(constraints)]);
        snprintf(r.decoding.sampler, sizeof r.decoding.sampler, "confidence");
        if (i % 4 == 1) r.decoding.gen_length = 9; /* an answer that fills it is complete */
        if (i % 2) r.sampling.temperature = 2;
        else r.decoding.remask_threshold = 0.4F;
        r.sampling.seed = (int64_t)i;
        r.constraint = c->kind;
        r.constraint_text = c->text;
        run(&r);
        assert_int_equal(a.finish, UM_FINISH_EOS);
        check_text(c, a.text);
    }
    free_gap(&g);
}

static void a_gap_that_is_too_short_for_a_constraint_is_refused(void **state) {
    (void)state;
    gap g = make_gap();
    um_request r = request(&g, 16, NULL);
    r.decoding.gen_length = 5;
    r.constraint = UM_CONSTRAINT_REGEX;
    r.constraint_text = "[a-f]{300}";
    check_refused(&r, UM_ERANGE, "max_tokens", "may have 5");
    free_gap(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_strategy_fills_the_gap_and_cuts_its_padding),
        cmocka_unit_test(what_follows_the_gap_is_read),
        cmocka_unit_test(ignore_eos_keeps_all_positions_of_the_gap),
        cmocka_unit_test(padding_is_never_streamed_even_as_special_text),
        cmocka_unit_test(a_short_canvas_is_the_gap),
        cmocka_unit_test(prompt_gap_and_suffix_share_the_length_of_the_model),
        cmocka_unit_test(refuses_strategies_that_see_nothing_behind_a_block),
        cmocka_unit_test(refuses_ids_outside_the_vocabulary),
        cmocka_unit_test(families_that_see_no_future_have_no_strategy_for_it),
        cmocka_unit_test(the_suffix_counts_as_prompt),
        cmocka_unit_test(a_constraint_holds_for_the_gap),
        cmocka_unit_test(a_gap_that_is_too_short_for_a_constraint_is_refused),
    };
    return cmocka_run_group_tests_name("infill", tests, open_full, close_full);
}
