/* Sampler `edit` in blocks, pass by pass: when blocks whose tokens are edited are complete, stored and final. */
#include "decode_script.h"

static const int32_t prompt5[] = {1, 2, 3, 4, 5};
static const int32_t prompt8[] = {1, 2, 3, 4, 5, 6, 7, 8};

static void set_up_edit(bench *b, const int32_t *prompt, int32_t n, int32_t K) {
    set_up(b, &um_strategy_multi_bd, prompt, n, 4, K);
    choose_sampler(b, "edit");
    b->model = confirming;
}

/* One block in flight; the prompt ends within it. */
static void set_up_block(bench *b) { set_up_edit(b, prompt5, 5, 1); }

static const um_block *head(const bench *b) { return &((const um_blocks *)b->req.state)->buffer.block[0]; }

/* ---- The worked example ------------------------------------------------------------------------------------------ */

static const line script[] = {{1, 5, 50, .95F}, {1, 6, 60, .4F},  {1, 7, 70, .3F}, {2, 5, 51, .6F},
                              {2, 6, 60, .85F}, {2, 7, 70, .92F}, {3, 6, 61, .7F}};
#define PASSES_1_TO_4                                                                                                  \
    {PREFILL, 0, "1 2 3 4 5 M M M", NULL, "", "50 M M", "1A", 1, 0},                                                   \
        {DENOISE, 4, "5 50 M M", NULL, "", "51 M 70", "1A", 1, 0},                                                     \
        {DENOISE, 4, "5 51 M 70", NULL, "", "51 61 70", "1A", 1, 0}, {                                                 \
        DENOISE, 4, "5 51 61 70", NULL, "", "51 61 70", "1T", 0, 0                                                     \
    }

static void check_counters(const bench *b, int32_t pass) {
    static const float ratio[] = {1, 0, 1, 1};
    assert_int_equal(head(b)->total_steps, pass);
    assert_int_equal(head(b)->post_edit_steps, pass == 4);
    assert_int_equal(head(b)->commit_ready, pass == 4);
    assert_true(head(b)->same_token_ratio == ratio[pass - 1]);
}

static void compat_runs_the_example(void **state) {
    (void)state;
    static const want passes[] = {PASSES_1_TO_4,
                                  {COMMIT, 4, "5 51 61 70", "", "", "51 61 70", "2D", 0, 0},
                                  {DENOISE, 8, "M M M M", "8<0 9<1 10<2 11<3", "", "51 61 70 80 M M M", "2A", 1, 0}};
    bench b;
    set_up_block(&b);
    SCRIPT(&b, script);
    start_as(&b, true);
    for (int32_t i = 0; i < 6; i++) {
        step(&b);
        check_pass(&b, &passes[i]);
        /* Diffulex also predicts the prompt's tokens, but does not count them. */
        if (i < 4) check_counters(&b, i + 1);
    }
    assert_int_equal(head(&b)->total_steps, 0); /* a block's first pass does not count */
    end(&b);
}

/* The next block starts in the pass that stores the first one, and only positions of the answer are predicted. */
static void runs_the_example_in_one_pass_less(void **state) {
    (void)state;
    static const want passes[] = {
        PASSES_1_TO_4, {DENOISE, 4, "5 51 61 70 M M M M", "8<4 9<5 10<6 11<7", "", "51 61 70 80 M M M", "2A", 1, 0}};
    bench b;
    set_up_block(&b);
    SCRIPT(&b, script);
    start(&b);
    for (int32_t i = 0; i < 5; i++) {
        step(&b);
        check_pass(&b, &passes[i]);
        if (i < 4) check_counters(&b, i + 1);
    }
    end(&b);
}

static void only_positions_of_the_answer_are_asked_about(void **state) {
    (void)state;
    for (int32_t compat = 0; compat <= 1; compat++) {
        bench b;
        char rows[TEXT];
        set_up_block(&b);
        start_as(&b, compat);
        step(&b);
        put_rows(rows, &b);
        assert_string_equal(rows, compat ? "4<4 5<5 6<6 7<7" : "5<5 6<6 7<7");
        end(&b);
    }
}

/* ---- Limits of editing ------------------------------------------------------------------------------------------- */

static const line all_at_once[] = {{1, 5, 50, .95F}, {1, 6, 60, .95F}, {1, 7, 70, .95F}, {2, 5, 51, .9F},
                                   {3, 5, 52, .9F},  {4, 5, 53, .9F},  {5, 5, 54, .9F}};

/* The third pass in a row without a mask is one too many: its edit is dropped, and the block is complete. */
static void editing_is_exhausted(void **state) {
    (void)state;
    for (int32_t compat = 0; compat <= 1; compat++) {
        bench b;
        set_up_block(&b);
        b.how.max_post_edit_steps = 2;
        SCRIPT(&b, all_at_once);
        start_as(&b, compat);
        steps(&b, 2);
        assert_int_equal(b.token[5], 51);
        step(&b);
        assert_int_equal(b.token[5], 52);
        assert_int_equal(head(&b)->post_edit_steps, 2);
        assert_int_equal(head(&b)->status, UM_BLOCK_ACTIVE);
        step(&b);
        assert_int_equal(b.token[5], 52);
        assert_int_equal(head(&b)->post_edit_steps, 3);
        assert_int_equal(head(&b)->status, UM_BLOCK_TO_CACHE);
        end(&b);
    }
}

/* When masks are filled one by one, 3 passes of editing are left before the block has had 4 + 2 passes. It then ends
 * with the edits of that pass. */
static void a_block_times_out_with_its_last_edits(void **state) {
    (void)state;
    static const line lines[] = {{4, 5, 51, .9F}, {5, 5, 52, .9F}, {6, 5, 53, .9F}};
    for (int32_t compat = 0; compat <= 1; compat++) {
        bench b;
        set_up_block(&b);
        b.how.max_post_edit_steps = 2;
        SCRIPT(&b, lines);
        start_as(&b, compat);
        for (int32_t i = 1; i <= 5; i++) {
            step(&b);
            assert_int_equal(head(&b)->status, UM_BLOCK_ACTIVE);
        }
        assert_int_equal(head(&b)->total_steps, 5);
        step(&b);
        assert_int_equal(b.token[5], 53);
        assert_int_equal(head(&b)->status, UM_BLOCK_TO_CACHE);
        assert_true(head(&b)->same_token_ratio == 1);
        end(&b);
    }
}

/* Predicts the mask at position 6 unless the row bans it. Under compat it does not, and the block keeps the mask. */
static um_answer predict_mask(const bench *b, const um_row *row, int32_t pos, uint64_t seen) {
    for (int32_t i = 0; i < row->n_edit; i++)
        if (row->edit[i].id == MASK && row->edit[i].ban) return confirming(b, row, pos, seen);
    return pos == 6 ? answer_with(MASK, .99F) : confirming(b, row, pos, seen);
}

static void compat_never_ends_a_block_with_a_predicted_mask(void **state) {
    (void)state;
    bench b;
    set_up_block(&b);
    b.how.max_post_edit_steps = 2;
    b.model = predict_mask;
    start_as(&b, true);
    run_to_end(&b);
    assert_true(um_req_masked(&b.req, 6));
    check_end(&b, UM_FINISH_MAX_NFE, "50", 50);
    end(&b);
}

static void the_mask_is_never_predicted(void **state) {
    (void)state;
    bench b;
    set_up_block(&b);
    b.model = predict_mask;
    b.sampling.max_tokens = 5;
    start(&b);
    run_to_end(&b);
    check_end(&b, UM_FINISH_MAX_TOKENS, "50 60 70 80 90", b.req.nfe);
    end(&b);
}

/* ---- More than one block ----------------------------------------------------------------------------------------- */

/* Every block fills a mask in every pass, whatever the state of its predecessor. The second block is committable first.
 * It waits for the first one and may still change. */
static void a_finished_block_waits_and_may_change(void **state) {
    (void)state;
    static const line lines[] = {{1, 8, 80, .95F},   {1, 9, 90, .95F}, {1, 10, 100, .95F},
                                 {1, 11, 110, .95F}, {3, 9, 91, .9F},  {4, 9, 91, .99F}};
    bench b;
    char text[TEXT];
    set_up_edit(&b, prompt5, 5, 2);
    SCRIPT(&b, lines);
    start(&b);
    const um_block *second = head(&b) + 1;
    step(&b);
    assert_int_equal(b.req.n_new, 5);
    step(&b);
    assert_true(second->commit_ready);
    assert_int_equal(second->status, UM_BLOCK_ACTIVE);
    assert_int_equal(b.req.settled, 4);
    step(&b);
    assert_int_equal(b.token[9], 91);
    assert_false(second->commit_ready);
    step(&b);
    put_blocks(text, &b);
    assert_string_equal(text, "1T 2T");
    assert_int_equal(b.req.settled, 12);
    assert_int_equal(b.req.filled, 12);
    end(&b);
}

/* Passes are counted per block: the second block has had one pass less when the first one times out. */
static void every_block_has_its_own_caps(void **state) {
    (void)state;
    bench b;
    line lines[2 * 20];
    for (int32_t i = 0; i < 20; i++) { /* positions 5 and 8 change in every pass */
        lines[2 * i] = (line){i + 1, 5, 50 + i % 2, .9F};
        lines[2 * i + 1] = (line){i + 1, 8, 80 + i % 2, .9F};
    }
    set_up_edit(&b, prompt5, 5, 2);
    b.how.max_post_edit_steps = 2;
    SCRIPT(&b, lines);
    start(&b);
    for (int32_t i = 1; i <= 6; i++) step(&b);
    assert_int_equal(head(&b)->status, UM_BLOCK_TO_CACHE);
    assert_int_equal((head(&b) + 1)->status, UM_BLOCK_ACTIVE);
    assert_int_equal((head(&b) + 1)->total_steps, 5);
    step(&b);
    assert_int_equal(head(&b)->start, 8);
    assert_int_equal(head(&b)->status, UM_BLOCK_TO_CACHE);
    end(&b);
}

/* ---- End of sequence --------------------------------------------------------------------------------------------- */

static const line eos_that_goes[] = {{1, 5, 50, .95F}, {1, 6, EOS, .95F}, {2, 6, 60, .8F}};

/* A token that may still change does not end the answer. */
static void an_end_that_is_overwritten_was_none(void **state) {
    (void)state;
    for (int32_t K = 1; K <= 2; K++) {
        bench b;
        set_up_edit(&b, prompt5, 5, K);
        b.sampling.max_tokens = 9;
        SCRIPT(&b, eos_that_goes);
        start(&b);
        step(&b);
        assert_int_equal(b.token[6], EOS);
        assert_int_equal(b.req.finish, UM_FINISH_NONE);
        run_to_end(&b);
        check_end(&b, UM_FINISH_MAX_TOKENS, "50 60 70 80 90 100 110 120 130", b.req.nfe);
        end(&b);
    }
}

/* compat: the terminal block stays terminal. The next one starts when that is stored and no block runs. */
static void compat_keeps_the_terminal_block(void **state) {
    (void)state;
    bench b;
    set_up_edit(&b, prompt5, 5, 2);
    b.how.add_block_threshold = 1;
    SCRIPT(&b, eos_that_goes);
    start_as(&b, true);
    step(&b);
    assert_int_equal(head(&b)->type, UM_BLOCK_LAST_IN_CONTEXT);
    assert_int_equal((head(&b) + 1)->type, UM_BLOCK_OUT_OF_CONTEXT);
    step(&b);
    assert_int_equal(b.token[6], 60);
    assert_int_equal(head(&b)->type, UM_BLOCK_LAST_IN_CONTEXT);
    while (head(&b)->status != UM_BLOCK_TO_CACHE) step(&b);
    int32_t nfe = b.req.nfe;
    step(&b);
    assert_int_equal(b.seg[0].kind, COMMIT);
    assert_int_equal(b.seg[0].keys.end, 8);
    assert_int_equal(b.req.finish, UM_FINISH_NONE);
    step(&b);
    assert_int_equal(b.req.nfe, nfe + 2);
    assert_int_equal(b.seg[0].pos[0], 8);
    assert_int_equal(b.req.n_new, 1);
    end(&b);
}

/* compat: with one block in the buffer an end of sequence stops growth only as long as it is not overwritten. */
static void compat_goes_on_when_the_end_is_gone(void **state) {
    (void)state;
    bench b;
    set_up_block(&b);
    b.sampling.max_tokens = 11;
    SCRIPT(&b, eos_that_goes);
    start_as(&b, true);
    run_to_end(&b);
    assert_int_not_equal(b.req.finish, UM_FINISH_EOS);
    assert_true(b.req.n_answer > 3);
    end(&b);
}

static void an_end_counts_when_its_block_is_done(void **state) {
    (void)state;
    static const line lines[] = {{1, 5, 50, .95F}, {1, 6, EOS, .95F}, {1, 7, 70, .95F}};
    bench b;
    set_up_block(&b);
    SCRIPT(&b, lines);
    start(&b);
    step(&b);
    assert_int_equal(b.req.finish, UM_FINISH_NONE);
    assert_int_equal(b.req.filled, 5);
    step(&b);
    check_end(&b, UM_FINISH_EOS, "50", 2);
    end(&b);
}

/* ---- Thresholds and penalty -------------------------------------------------------------------------------------- */

static void an_edit_needs_more_than_its_threshold(void **state) {
    (void)state;
    static const line lines[] = {
        {1, 5, 50, .95F}, {1, 6, 60, .95F}, {1, 7, 70, .95F}, {2, 5, 51, .7F}, {2, 6, 61, .7000001F}};
    for (int32_t compat = 0; compat <= 1; compat++) {
        bench b;
        set_up_block(&b);
        b.how.edit_threshold = .7F;
        SCRIPT(&b, lines);
        start_as(&b, compat);
        steps(&b, 2);
        assert_int_equal(b.token[5], compat ? 51 : 50); /* Diffulex has no such threshold */
        assert_int_equal(b.token[6], 61);
        end(&b);
    }
}

/* Checks the own edit of the row that predicts `pos`: its id, -1 for none. */
static void check_penalty(const bench *b, int32_t pos, int32_t id) {
    for (int32_t i = 0; i < b->pass.n_rows; i++) {
        const um_row *row = &b->row[i];
        if (position_of(b, row) != pos) continue;
        assert_int_equal(row->n_own, id >= 0);
        if (id < 0) return;
        assert_int_equal(row->own[0].id, id);
        assert_true(row->own[0].add == -1.5F && !row->own[0].ban && row->own[0].scale == 0);
        return;
    }
    fail_msg("no row predicts position %d", pos);
}

/* At each position the token before it in the block is penalized: the prompt's token, the mask, the new token. */
static void the_token_before_is_penalized(void **state) {
    (void)state;
    bench b;
    set_up_edit(&b, prompt5, 5, 2);
    b.how.penalty_lambda = 1.5F;
    SCRIPT(&b, script);
    start(&b);
    step(&b);
    check_penalty(&b, 5, 5);
    check_penalty(&b, 6, MASK);
    check_penalty(&b, 8, -1); /* position 8 starts a block */
    step(&b);
    check_penalty(&b, 6, 50);
    check_penalty(&b, 7, MASK);
    step(&b);
    check_penalty(&b, 6, 51);
    check_penalty(&b, 7, MASK);
    end(&b);
}

/* Under a penalty tokens are still drawn. Diffulex takes the best token instead. */
static um_answer drawn(const bench *b, const um_row *row, int32_t pos, uint64_t seen) {
    um_answer a = confirming(b, row, pos, seen);
    a.best = 7;
    a.p_best = .5F;
    return a;
}

static void compat_takes_the_best_under_a_penalty(void **state) {
    (void)state;
    for (int32_t compat = 0; compat <= 1; compat++) {
        bench b;
        set_up_edit(&b, prompt8, 8, 1);
        b.how.penalty_lambda = 1;
        b.model = drawn;
        start_as(&b, compat);
        step(&b);
        if (compat) step(&b);
        assert_int_equal(b.token[8], compat ? 7 : 80);
        end(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compat_runs_the_example),
        cmocka_unit_test(runs_the_example_in_one_pass_less),
        cmocka_unit_test(only_positions_of_the_answer_are_asked_about),
        cmocka_unit_test(editing_is_exhausted),
        cmocka_unit_test(a_block_times_out_with_its_last_edits),
        cmocka_unit_test(compat_never_ends_a_block_with_a_predicted_mask),
        cmocka_unit_test(the_mask_is_never_predicted),
        cmocka_unit_test(a_finished_block_waits_and_may_change),
        cmocka_unit_test(every_block_has_its_own_caps),
        cmocka_unit_test(an_end_that_is_overwritten_was_none),
        cmocka_unit_test(compat_keeps_the_terminal_block),
        cmocka_unit_test(compat_goes_on_when_the_end_is_gone),
        cmocka_unit_test(an_end_counts_when_its_block_is_done),
        cmocka_unit_test(an_edit_needs_more_than_its_threshold),
        cmocka_unit_test(the_token_before_is_penalized),
        cmocka_unit_test(compat_takes_the_best_under_a_penalty),
    };
    return cmocka_run_group_tests_name("edit in blocks", tests, NULL, NULL);
}
