/* When and why an answer ends: limits, end of sequence, runs of equal tokens. Also penalties and remasking. */
#include "decode/candidates.h"
#include "decode_script.h"

static const int32_t prompt5[] = {11, 12, 13, 14, 15};
static const int32_t prompt8[] = {11, 12, 13, 14, 15, 16, 17, 18};

/* One block of 4 in flight behind a prompt of 5 tokens: the first pass predicts positions 5, 6 and 7. */
static void set_up_one(bench *b) { set_up(b, &um_strategy_multi_bd, prompt5, 5, 4, 1); }

/* Predicts 100 + pos with probability .99. */
static um_answer sure(const bench *b, const um_row *row, int32_t pos, uint64_t seen) {
    (void)b;
    (void)row;
    (void)seen;
    return answer_with(100 + pos, .99F);
}

/* ---- Length ------------------------------------------------------------------------------------------------------ */

static void max_tokens_is_exact(void **state) {
    (void)state;
    for (int32_t n = 1; n <= 20; n++) {
        bench b; /* no prediction is sure: one forced token a pass */
        set_up(&b, &um_strategy_multi_bd, prompt5, 5, 4, 2);
        b.sampling.max_tokens = n;
        start(&b);
        run_to_end(&b);
        assert_int_equal(b.req.finish, UM_FINISH_MAX_TOKENS);
        assert_int_equal(b.req.n_answer, n);
        for (int32_t i = 0; i < n; i++) assert_int_equal(b.token[5 + i], 105 + i);
        for (int32_t i = 5 + n; i < CAP; i++) assert_true(um_req_masked(&b.req, i));
        end(&b);
    }
}

/* A prompt that ends with a block, and a limit within the buffer. Diffulex ends the answer before its first token. */
static void an_aligned_prompt_gets_its_tokens(void **state) {
    (void)state;
    for (int32_t compat = 0; compat <= 1; compat++) {
        bench b;
        set_up(&b, &um_strategy_multi_bd, prompt8, 8, 4, 2);
        b.sampling.max_tokens = 8;
        b.model = sure;
        start_as(&b, compat);
        run_to_end(&b);
        if (compat) check_end(&b, UM_FINISH_MAX_TOKENS, "", 1);
        else check_end(&b, UM_FINISH_MAX_TOKENS, "108 109 110 111 112 113 114 115", 2);
        end(&b);
    }
}

static void max_len_counts_the_prompt(void **state) {
    (void)state;
    for (int32_t compat = 0; compat <= 1; compat++) {
        bench b;
        set_up_one(&b);
        b.max_len = 12;
        b.model = sure;
        start_as(&b, compat);
        run_to_end(&b);
        /* compat: ends as soon as 12 positions are allocated */
        if (compat) assert_int_equal(b.req.finish, UM_FINISH_MAX_LEN);
        else check_end(&b, UM_FINISH_MAX_LEN, "105 106 107 108 109 110 111", 2);
        end(&b);
    }
}

/* A block behind the limit never starts, and positions behind the limit are not predicted. */
static void nothing_behind_the_limit_is_asked_about(void **state) {
    (void)state;
    bench b;
    char rows[TEXT];
    set_up(&b, &um_strategy_multi_bd, prompt5, 5, 4, 4);
    b.sampling.max_tokens = 5;
    b.how.add_block_threshold = 0;
    start(&b);
    step(&b);
    put_rows(rows, &b);
    assert_string_equal(rows, "5<5 6<6 7<7 8<8 9<9");
    while (!b.req.finish) {
        step(&b);
        assert_true(b.seg[0].keys.end <= 12);
    }
    assert_int_equal(b.req.n_answer, 5);
    end(&b);
}

/* ---- Passes ------------------------------------------------------------------------------------------------------ */

static void max_nfe_ends_after_that_many_passes(void **state) {
    (void)state;
    for (int32_t compat = 0; compat <= 1; compat++) {
        bench b;
        set_up_one(&b);
        b.sampling.max_nfe = 2;
        start_as(&b, compat);
        step(&b);
        assert_int_equal(b.req.nfe, 1);
        assert_int_equal(b.req.finish, UM_FINISH_NONE);
        step(&b);
        check_end(&b, UM_FINISH_MAX_NFE, "105 106", 2);
        end(&b);
    }
}

/* A token behind a mask is not part of the answer, with --compat neither. */
static void max_nfe_ends_with_the_filled_prefix(void **state) {
    (void)state;
    static const line script[] = {{1, 5, 0, .99F}, {1, 7, 0, .99F}};
    for (int32_t compat = 0; compat <= 1; compat++) {
        bench b;
        set_up_one(&b);
        SCRIPT(&b, script);
        b.sampling.max_nfe = 1;
        start_as(&b, compat);
        step(&b);
        check_end(&b, UM_FINISH_MAX_NFE, "105", 1);
        end(&b);
    }
}

/* 4 tokens a pass at first, then one. No limit depends on the speed of the first passes. */
static void a_slow_end_is_no_reason_to_stop(void **state) {
    (void)state;
    line script[32];
    for (int32_t i = 0; i < 32; i++) script[i] = (line){1 + i / 4, 8 + i, 0, .99F};
    bench b;
    set_up(&b, &um_strategy_multi_bd, prompt8, 8, 4, 1);
    SCRIPT(&b, script);
    b.sampling.max_tokens = 48;
    b.sampling.max_nfe = 0;
    start(&b);
    run_to_end(&b);
    assert_int_equal(b.req.finish, UM_FINISH_MAX_TOKENS);
    assert_int_equal(b.req.n_answer, 48);
    assert_int_equal(b.req.nfe, 8 + 16);
    end(&b);
}

/* ---- End of sequence --------------------------------------------------------------------------------------------- */

static void eos_behind_a_mask_does_not_end_the_answer(void **state) {
    (void)state;
    static const line script[] = {{1, 7, EOS, .99F}};
    bench b;
    set_up_one(&b);
    SCRIPT(&b, script);
    start(&b);
    step(&b);
    assert_int_equal(b.token[7], EOS);
    assert_int_equal(b.req.finish, UM_FINISH_NONE);
    steps(&b, 2);
    check_end(&b, UM_FINISH_EOS, "105 106", 3);
    assert_int_equal(b.req.stop_id, EOS);
    end(&b);
}

/* An end of sequence in a later block does not keep blocks from starting while an earlier block has masks. Diffulex
 * stops growing and still decodes the running blocks. */
static void an_early_end_does_not_stop_growth(void **state) {
    (void)state;
    static const line script[] = {{1, 9, EOS, .99F}, {1, 8, 0, .99F}, {2, 6, 0, .99F}, {2, 7, EOS, .99F}};
    for (int32_t compat = 0; compat <= 1; compat++) {
        bench b;
        set_up(&b, &um_strategy_multi_bd, prompt5, 5, 4, 3);
        SCRIPT(&b, script);
        start_as(&b, compat);
        step(&b);
        assert_int_equal(b.seg[0].keys.end, 12);
        step(&b);
        assert_int_equal(b.seg[0].keys.end, compat ? 12 : 16);
        if (!compat) check_end(&b, UM_FINISH_EOS, "105 106", 2); /* the first of two ends */
        end(&b);
    }
}

static void eos_is_text_when_ignored(void **state) {
    (void)state;
    static const line script[] = {{1, 5, EOS, .99F}};
    for (int32_t compat = 0; compat <= 1; compat++) {
        bench b;
        set_up_one(&b);
        SCRIPT(&b, script);
        b.sampling.max_tokens = 11;
        b.sampling.ignore_eos = true;
        b.model = sure;
        start_as(&b, compat);
        run_to_end(&b);
        assert_int_equal(b.req.finish, UM_FINISH_MAX_TOKENS);
        assert_int_equal(b.token[5], EOS);
        assert_true(compat || b.req.n_answer == 11);
        end(&b);
    }
}

static void eos_in_the_prompt_is_text(void **state) {
    (void)state;
    static const int32_t prompt[] = {11, EOS, 13, 14, EOS};
    for (int32_t compat = 0; compat <= 1; compat++) {
        bench b;
        set_up(&b, &um_strategy_multi_bd, prompt, 5, 4, 1);
        start_as(&b, compat);
        steps(&b, 6);
        assert_int_equal(b.req.finish, UM_FINISH_NONE);
        end(&b);
    }
}

/* One pass reaches a limit and writes the end of sequence. The end comes first in the answer, so it is the reason. */
static void an_end_before_a_limit_is_the_reason(void **state) {
    (void)state;
    static const line script[] = {{1, 5, 0, .99F}, {1, 6, EOS, .99F}, {1, 7, 0, .99F}};
    bench b;
    set_up_one(&b);
    SCRIPT(&b, script);
    b.sampling.max_tokens = 3;
    b.sampling.max_nfe = 1;
    start(&b);
    step(&b);
    check_end(&b, UM_FINISH_EOS, "105", 1);
    end(&b);
}

static void compat_overwrites_the_reason(void **state) {
    (void)state;
    static const line script[] = {{1, 5, 0, .99F}, {1, 6, EOS, .99F}, {1, 7, 0, .99F}};
    bench b;
    set_up_one(&b);
    SCRIPT(&b, script);
    b.sampling.max_nfe = 1;
    start_as(&b, true);
    step(&b);
    check_end(&b, UM_FINISH_MAX_NFE, "105", 1);
    end(&b);
}

/* The end of sequence would be written right behind the limit, so the limit is the reason. */
static void an_end_behind_the_limit_is_not_seen(void **state) {
    (void)state;
    static const line script[] = {{1, 5, 0, .99F}, {1, 6, 0, .99F}, {1, 7, EOS, .99F}};
    bench b;
    set_up_one(&b);
    SCRIPT(&b, script);
    b.sampling.max_tokens = 2;
    start(&b);
    step(&b);
    check_end(&b, UM_FINISH_MAX_TOKENS, "105 106", 1);
    end(&b);
}

static void several_ids_may_end_an_answer(void **state) {
    (void)state;
    static const int32_t model_stops[] = {EOS, 901}, asked[] = {902};
    for (int32_t i = 0; i < 3; i++) {
        line script[] = {{1, 5, 0, .99F}, {1, 6, EOS + i, .99F}};
        bench b;
        set_up_one(&b);
        SCRIPT(&b, script);
        start(&b);
        b.traits.stop = model_stops;
        b.traits.n_stop = 2;
        b.req.stop_ids = asked;
        b.req.n_stop_ids = 1;
        step(&b);
        check_end(&b, i < 2 ? UM_FINISH_EOS : UM_FINISH_STOP_ID, "105", 1);
        assert_int_equal(b.req.stop_id, EOS + i);
        end(&b);
    }
}

static bool bans(const um_row *row, int32_t id) {
    for (int32_t i = 0; i < row->n_edit; i++)
        if (row->edit[i].id == id && row->edit[i].ban) return true;
    return false;
}

static void no_end_before_min_tokens(void **state) {
    (void)state;
    bench b;
    set_up_one(&b);
    b.sampling.min_tokens = 2;
    start(&b);
    step(&b);
    for (int32_t i = 0; i < b.pass.n_rows; i++) assert_int_equal(bans(&b.row[i], EOS), position_of(&b, &b.row[i]) < 7);
    end(&b);
}

/* ---- Repetition -------------------------------------------------------------------------------------------------- */

static void a_run_of_equal_tokens_ends_the_answer(void **state) {
    (void)state;
    static const line script[] = {{1, 5, 7, .99F}, {1, 6, 8, .99F}, {1, 7, 8, .99F},
                                  {2, 8, 8, .99F}, {2, 9, 8, .99F}, {2, 10, 8, .99F}};
    bench b;
    set_up(&b, &um_strategy_multi_bd, prompt5, 5, 4, 2);
    SCRIPT(&b, script);
    b.sampling.max_repetition_run = 4;
    start(&b);
    run_to_end(&b);
    check_end(&b, UM_FINISH_REPETITION, "7 8 8 8 8", 2);
    end(&b);
}

static void a_run_of_the_limit_itself_is_enough(void **state) {
    (void)state;
    static const line script[] = {{1, 5, 7, .99F}, {1, 6, 8, .99F}, {1, 7, 8, .99F}};
    for (int32_t limit = 2; limit <= 3; limit++) {
        bench b;
        set_up_one(&b);
        SCRIPT(&b, script);
        b.sampling.max_repetition_run = limit;
        start(&b);
        step(&b);
        assert_int_equal(b.req.finish, limit == 2 ? UM_FINISH_REPETITION : UM_FINISH_NONE);
        end(&b);
    }
}

/* Masks are not tokens, so they are no repetition. Diffulex counts a block of masks as a run. */
static void masks_are_no_run(void **state) {
    (void)state;
    for (int32_t compat = 0; compat <= 1; compat++) {
        bench b;
        set_up_one(&b);
        b.sampling.max_repetition_run = 2;
        start_as(&b, compat);
        step(&b);
        if (compat) check_end(&b, UM_FINISH_REPETITION, "105", 1);
        else assert_int_equal(b.req.finish, UM_FINISH_NONE);
        end(&b);
    }
}

static void the_prompt_is_no_part_of_a_run(void **state) {
    (void)state;
    static const line script[] = {{1, 5, 15, .99F}, {1, 6, 15, .99F}, {1, 7, 7, .99F}};
    bench b;
    set_up_one(&b); /* the prompt ends with 15 */
    SCRIPT(&b, script);
    b.sampling.max_repetition_run = 3;
    start(&b);
    step(&b);
    assert_int_equal(b.req.finish, UM_FINISH_NONE);
    end(&b);
}

/* ---- Penalties --------------------------------------------------------------------------------------------------- */

static const um_edit *edit_of(const um_row *row, int32_t id) {
    for (int32_t i = 0; i < row->n_edit; i++)
        if (row->edit[i].id == id && !row->edit[i].ban) return &row->edit[i];
    return NULL;
}

/* Tokens count once their block is final. Those of a block that is being denoised do not, not even the prompt's. */
static void penalties_count_what_is_final(void **state) {
    (void)state;
    static const line script[] = {{1, 5, 7, .99F}, {1, 6, 7, .99F}, {1, 7, 14, .99F}, {2, 8, 8, .99F}};
    bench b;
    set_up_one(&b);
    SCRIPT(&b, script);
    b.sampling.repetition_penalty = 1.5F;
    b.sampling.presence_penalty = .5F;
    b.sampling.frequency_penalty = .25F;
    start(&b);
    step(&b);
    for (int32_t id = 11; id <= 14; id++) {
        assert_true(edit_of(&b.row[0], id)->scale == 1.5F);
        assert_true(edit_of(&b.row[0], id)->add == 0); /* a token of the prompt */
    }
    assert_null(edit_of(&b.row[0], 15));
    steps(&b, 2);
    const um_row *row = &b.row[0];
    assert_true(edit_of(row, 7)->scale == 1.5F && edit_of(row, 7)->add == -1); /* twice */
    assert_true(edit_of(row, 14)->add == -.75F);
    assert_true(edit_of(row, 15)->add == 0);
    assert_null(edit_of(row, 8)); /* its block is not final */
    end(&b);
}

/* ---- Remasking --------------------------------------------------------------------------------------------------- */

/* A pass remasks fewer tokens than it fills: if it fills one, a doubted token stays. */
static void every_pass_leaves_fewer_masks(void **state) {
    (void)state;
    static const line script[] = {{1, 8, 0, .95F}, {2, 8, 0, .2F}, {2, 9, 0, .95F}};
    bench b;
    char text[TEXT];
    set_up(&b, &um_strategy_multi_bd, prompt8, 8, 4, 1);
    b.how.remask_threshold = .3F;
    SCRIPT(&b, script);
    start(&b);
    step(&b);
    assert_int_equal(b.req.settled, 8); /* the block's tokens may become masks again */
    step(&b);
    put_ids(text, &b, b.token + 8, 4, 8);
    assert_string_equal(text, "108 109 M M");
    end(&b);
}

/* Tokens whose probability is now below remask_threshold become masks again, the least probable first. */
static void the_most_doubted_go_first(void **state) {
    (void)state;
    static const line script[] = {{1, 8, 0, .95F},  {1, 9, 0, .95F}, {1, 10, 0, .95F}, {2, 8, 0, .2F},
                                  {2, 9, 0, .1F},   {2, 10, 0, .3F}, {2, 11, 0, .95F}, {2, 12, 0, .95F},
                                  {2, 13, 0, .95F}, {2, 14, 0, .95F}};
    bench b;
    char text[TEXT];
    set_up(&b, &um_strategy_multi_bd, prompt8, 8, 8, 1);
    b.how.remask_threshold = .3F;
    SCRIPT(&b, script);
    start(&b);
    steps(&b, 2);
    put_ids(text, &b, b.token + 8, 8, 8);
    assert_string_equal(
        text,
        "M M 110 111 112 113 114 M"); /* four were filled, so up to three may be remasked; one equals the threshold */
    assert_int_equal(b.req.filled, 8);
    end(&b);
}

static void samplers_that_edit_take_nothing_back(void **state) {
    (void)state;
    bench b;
    um_err err = {0};
    set_up_one(&b);
    choose_sampler(&b, "edit");
    b.how.remask_threshold = 1;
    assert_int_equal(try_start(&b, &err), UM_EUNSUPPORTED);
    assert_string_equal(err.msg, "remask_threshold: 1 is not for sampler edit, which replaces doubted tokens "
                                 "itself; set it to off");
}

/* Diffulex ignores remask_threshold. */
static void compat_accepts_remask_threshold_and_ignores_it(void **state) {
    (void)state;
    static const line script[] = {{2, 8, 0, .95F},  {2, 9, 0, .95F}, {2, 10, 0, .95F}, {3, 8, 0, .2F},
                                  {3, 9, 0, .1F},   {3, 10, 0, .3F}, {3, 11, 0, .95F}, {3, 12, 0, .95F},
                                  {3, 13, 0, .95F}, {3, 14, 0, .95F}};
    bench b;
    char text[TEXT];
    set_up(&b, &um_strategy_multi_bd, prompt8, 8, 8, 1);
    b.how.remask_threshold = .3F;
    SCRIPT(&b, script);
    start_as(&b, true);
    steps(&b, 3); /* the first pass stores the prompt */
    put_ids(text, &b, b.token + 8, 8, 8);
    assert_string_equal(text, "108 109 110 111 112 113 114 M");
    end(&b);
    set_up_one(&b);
    choose_sampler(&b, "edit");
    b.how.remask_threshold = 1;
    start_as(&b, true);
    end(&b);
}

/* ---- Room in a step ---------------------------------------------------------------------------------------------- */

/* 256 words of 1,024 tokens in a block of 8,192: so many edits are more than any step has room for. */
static void many_bad_words_need_no_small_room(void **state) {
    (void)state;
    static const int32_t ends[] = {1 << 18};
    static const um_sampler plain;
    const um_req r = {.sampler = &plain, .n_bad = 1, .bad_end = ends};
    assert_int_equal(um_candidates_edits_max(&r, 10), 10 << 18);
    assert_int_equal(um_candidates_edits_max(&r, 8192), INT32_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(max_tokens_is_exact),
        cmocka_unit_test(an_aligned_prompt_gets_its_tokens),
        cmocka_unit_test(max_len_counts_the_prompt),
        cmocka_unit_test(nothing_behind_the_limit_is_asked_about),
        cmocka_unit_test(max_nfe_ends_after_that_many_passes),
        cmocka_unit_test(max_nfe_ends_with_the_filled_prefix),
        cmocka_unit_test(a_slow_end_is_no_reason_to_stop),
        cmocka_unit_test(eos_behind_a_mask_does_not_end_the_answer),
        cmocka_unit_test(an_early_end_does_not_stop_growth),
        cmocka_unit_test(eos_is_text_when_ignored),
        cmocka_unit_test(eos_in_the_prompt_is_text),
        cmocka_unit_test(an_end_before_a_limit_is_the_reason),
        cmocka_unit_test(compat_overwrites_the_reason),
        cmocka_unit_test(an_end_behind_the_limit_is_not_seen),
        cmocka_unit_test(several_ids_may_end_an_answer),
        cmocka_unit_test(no_end_before_min_tokens),
        cmocka_unit_test(a_run_of_equal_tokens_ends_the_answer),
        cmocka_unit_test(a_run_of_the_limit_itself_is_enough),
        cmocka_unit_test(masks_are_no_run),
        cmocka_unit_test(the_prompt_is_no_part_of_a_run),
        cmocka_unit_test(penalties_count_what_is_final),
        cmocka_unit_test(every_pass_leaves_fewer_masks),
        cmocka_unit_test(the_most_doubted_go_first),
        cmocka_unit_test(samplers_that_edit_take_nothing_back),
        cmocka_unit_test(compat_accepts_remask_threshold_and_ignores_it),
        cmocka_unit_test(many_bad_words_need_no_small_room),
    };
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
