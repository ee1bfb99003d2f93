/* Tests of causal_window, pass by pass. The tests of tests/families replay recorded runs, and decode_schedules_test.c
 * runs random requests. */
#include "decode_script.h"

static const int32_t prompt[] = {11, 12, 13};
enum { N = 3 };

static void set_up_window(bench *b, int32_t W) {
    set_up(b, &um_strategy_causal_window, prompt, N, W, 1);
    b->traits.block = W;
    b->traits.sampler = "entropy_distance";
    b->sampling.max_tokens = 8;
}

/* Runs a pass and checks the positions that it feeds, in order, the number of its rows and of the tokens it writes. */
static void passes(bench *b, const int32_t *pos, int32_t n, int32_t rows, int32_t n_new) {
    step(b);
    const um_segment *s = &b->seg[0];
    assert_int_equal(s->n, n);
    for (int32_t i = 0; i < n; i++) assert_int_equal(s->pos[i], pos[i]);
    assert_int_equal(s->rule.see, UM_SEE_CAUSAL);
    assert_int_equal(s->keys.end, s->vis[n - 1] + 1);
    assert_int_equal(b->pass.n_rows, rows);
    for (int32_t i = 0; i < rows; i++) assert_int_equal(b->row[i].src[0], n - rows + i);
    assert_int_equal(b->req.n_new, n_new);
}
#define PASSES(b, rows, n_new, ...)                                                                                    \
    do {                                                                                                               \
        static const int32_t list[] = {__VA_ARGS__};                                                                   \
        passes(b, list, UM_LEN(list), rows, n_new);                                                                    \
    } while (0)

/* The script's probability p stands for the entropy 1 - p. The threshold is 0.4 and the penalty 0.02. The second pass
 * fills 7, whose raised entropy is 0.35, and the third 8, whose is 0.38. */
static void masks_are_fed_behind_known_tokens(void **state) {
    (void)state;
    static const line script[] = {{1, 3, 'A', .9F}, {1, 4, 'B', .72F},  {1, 5, 'x', .1F}, {2, 5, 'C', .8F},
                                  {2, 6, 'x', .1F}, {2, 7, 'E', .69F},  {3, 6, 'D', .9F}, {3, 8, 'F', .66F},
                                  {4, 9, 'G', .9F}, {4, 10, 'H', .75F}, {4, 11, 'x', .1F}};
    bench b;
    set_up_window(&b, 3);
    b.script = script;
    b.n_script = UM_LEN(script);
    start(&b);
    PASSES(&b, 3, 2, 0, 1, 2, 3, 4, 5);
    assert_int_equal(b.seg[0].kind, UM_PASS_PREFILL);
    assert_int_equal(b.req.stored, 3);
    assert_int_equal(b.req.filled, 5); /* A and B are part of the answer before their keys are stored */
    PASSES(&b, 3, 2, 3, 4, 5, 6, 7);
    assert_int_equal(b.seg[0].kind, UM_PASS_DENOISE);
    assert_int_equal(b.req.stored, 5);
    assert_int_equal(b.req.filled, 6);
    PASSES(&b, 2, 2, 5, 7, 6, 8); /* E is known, and so it comes before the mask to its left */
    assert_int_equal(b.req.stored, 6);
    assert_int_equal(b.req.filled, 9);
    PASSES(&b, 3, 2, 6, 7, 8, 9, 10, 11); /* E is fed again, now behind D */
    assert_int_equal(b.req.finish, UM_FINISH_MAX_TOKENS);
    assert_int_equal(b.req.n_answer, 8);
    for (int32_t i = 0; i < 8; i++) assert_int_equal(b.token[N + i], 'A' + i);
    end(&b);
}

static void without_a_sure_mask_the_lowest_is_filled(void **state) {
    (void)state;
    static const line script[] = {{1, 3, 0, .1F}, {1, 4, 0, .11F}, {1, 5, 0, .2F}, {2, 3, 0, .3F}, {2, 4, 0, .3F}};
    bench b;
    set_up_window(&b, 3);
    b.script = script;
    b.n_script = UM_LEN(script);
    start(&b);
    PASSES(&b, 3, 1, 0, 1, 2, 3, 4, 5);
    assert_false(um_req_masked(&b.req, 5)); /* 0.84 is below 0.9 and 0.91 */
    assert_int_equal(b.req.filled, 3);
    PASSES(&b, 2, 1, 5, 3, 4);              /* the prompt is stored; no more masks are appended */
    assert_false(um_req_masked(&b.req, 3)); /* of equal entropies the first is the lowest */
    PASSES(&b, 2, 1, 3, 5, 4, 6);
    end(&b);
}

/* A shorter limit cuts the same text: the window reaches beyond the limit, and what it holds there counts. */
static void the_window_reaches_beyond_the_limit(void **state) {
    (void)state;
    bench b, shorter;
    set_up_window(&b, 4);
    b.model = made_up;
    b.sampling.max_tokens = 20;
    b.sampling.ignore_eos = true;
    start(&b);
    run_to_end(&b);
    for (int32_t n = 1; n < 20; n++) {
        set_up_window(&shorter, 4);
        shorter.model = made_up;
        shorter.sampling.max_tokens = n;
        shorter.sampling.ignore_eos = true;
        start(&shorter);
        run_to_end(&shorter);
        assert_int_equal(shorter.req.n_answer, n);
        for (int32_t i = 0; i < n; i++) assert_int_equal(shorter.token[N + i], b.token[N + i]);
        end(&shorter);
    }
    end(&b);
}

static void the_window_ends_with_the_model(void **state) {
    (void)state;
    bench b;
    set_up_window(&b, 4);
    b.max_len = 8;
    b.sampling.max_tokens = 30;
    start(&b);
    for (int32_t i = 0; i < 5; i++) {
        step(&b);
        assert_int_equal(b.seg[0].keys.end, UM_MIN(7 + i, 8));
    }
    assert_int_equal(b.req.finish, UM_FINISH_MAX_LEN);
    assert_int_equal(b.req.n_answer, 5);
    end(&b);
}

static void a_long_prompt_is_stored_in_chunks(void **state) {
    (void)state;
    bench b;
    set_up_window(&b, 2);
    b.budget = 4;
    start(&b);
    assert_int_equal(b.strategy->need(&b.req).least, 1);
    PASSES(&b, 0, 0, 0, 1, 2);
    assert_true(b.pass.partial);
    assert_int_equal(b.req.stored, 3);
    assert_int_equal(b.strategy->need(&b.req).least, 2);
    PASSES(&b, 2, 1, 3, 4);
    assert_int_equal(b.req.nfe, 1);
    end(&b);
}

/* Otherwise a request would take a step to store a few tokens whenever a step is almost full. */
static void tokens_that_fit_a_window_are_fed_with_it(void **state) {
    (void)state;
    static const line script[] = {{1, 3, 0, .9F}, {1, 4, 0, .9F}};
    bench b;
    set_up_window(&b, 3);
    b.script = script;
    b.n_script = UM_LEN(script);
    start(&b);
    assert_int_equal(b.strategy->need(&b.req).least, 6);
    assert_int_equal(b.strategy->need(&b.req).tokens_max, 6);
    step(&b);
    assert_int_equal(b.strategy->need(&b.req).least, 5);
    PASSES(&b, 3, 1, 3, 4, 5, 6, 7);
    end(&b);
}

/* The mask id is text like any other for the code of the checkpoint. Elsewhere no row may predict it. */
static void the_mask_id_is_written_under_compat_only(void **state) {
    (void)state;
    static const line script[] = {{1, 3, MASK, .9F}};
    for (int compat = 0; compat < 2; compat++) {
        bench b;
        set_up_window(&b, 3);
        b.script = script;
        b.n_script = 1;
        b.compat.keeps_masks = compat;
        start(&b);
        step(&b);
        assert_int_equal(um_req_masked(&b.req, 3), !compat);
        assert_int_equal(b.req.filled, compat ? 4 : 3);
        end(&b);
    }
}

static void refuses(bench *b, um_status status, const char *part) {
    um_err err;
    assert_int_equal(try_start(b, &err), status);
    if (!strstr(err.msg, part)) fail_msg("\"%s\" has no \"%s\"", err.msg, part);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    static const char *const samplers[] = {"edit", "linear_entropy", "low_confidence", "credit"};
    bench b;
    set_up_window(&b, 4);
    b.traits.see = UM_SEE_BLOCK_CAUSAL;
    refuses(&b, UM_EUNSUPPORTED, "causal_window needs a model with causal attention");
    set_up_window(&b, UM_BLOCK_MAX + 1);
    refuses(&b, UM_ERANGE, "");
    set_up_window(&b, 4);
    b.how.remask_threshold = .3F;
    refuses(&b, UM_EUNSUPPORTED, "no token becomes a mask again");
    for (size_t i = 0; i < UM_LEN(samplers); i++) {
        set_up_window(&b, 4);
        choose_sampler(&b, samplers[i]);
        refuses(&b, UM_EUNSUPPORTED, samplers[i]);
    }
}

/* Any token may end the shared part. The keys are those of the other strategies over causal keys. */
static void all_known_tokens_are_shared(void **state) {
    (void)state;
    int32_t most = 0;
    bench b, other;
    set_up_window(&b, 4);
    start(&b);
    assert_int_not_equal(b.strategy->share(&b.req, &most), 0);
    assert_int_equal(most, N);
    set_up(&other, &um_strategy_autoregressive, prompt, N, 4, 1);
    start(&other);
    assert_int_equal(b.strategy->share(&b.req, &most), other.strategy->share(&other.req, &most));
    end(&other);
    end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_fed_behind_known_tokens),
        cmocka_unit_test(without_a_sure_mask_the_lowest_is_filled),
        cmocka_unit_test(the_window_reaches_beyond_the_limit),
        cmocka_unit_test(the_window_ends_with_the_model),
        cmocka_unit_test(a_long_prompt_is_stored_in_chunks),
        cmocka_unit_test(tokens_that_fit_a_window_are_fed_with_it),
        cmocka_unit_test(the_mask_id_is_written_under_compat_only),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(all_known_tokens_are_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
