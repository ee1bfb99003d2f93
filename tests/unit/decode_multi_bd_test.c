/* multi_bd, pass by pass: block diffusion behind a stored prefix. The positions and probabilities are worked examples
 * with traces of Diffulex. Each example runs with and without --compat. */
#include "decode_script.h"

static const int32_t prompt5[] = {11, 12, 13, 14, 15};
static const int32_t prompt8[] = {11, 12, 13, 14, 15, 16, 17, 18};

/* ---- Two blocks, a prompt that ends within one ------------------------------------------------------------------- */

static const line two_blocks[] = {
    {1, 5, 0, .95F},  {1, 6, 0, .60F},  {1, 7, 0, .92F},  {1, 8, 0, .50F},    {1, 9, 0, .97F},
    {1, 10, 0, .40F}, {1, 11, 0, .30F}, {2, 6, 0, .70F},  {2, 8, 0, .91F},    {2, 10, 0, .40F},
    {2, 11, 0, .35F}, {3, 10, 0, .50F}, {3, 11, 0, .60F}, {4, 10, EOS, .80F}, {4, 12, 0, .85F},
    {4, 13, 0, .2F},  {4, 14, 0, .2F},  {4, 15, 0, .2F},  {5, 12, 0, .6F},    {5, 13, 0, .5F},
    {5, 14, 0, .93F}, {5, 15, 0, .2F},  {6, 12, 0, .95F}, {6, 13, 0, .94F},   {6, 15, 0, .96F},
};

static void set_up_two_blocks(bench *b) {
    set_up(b, &um_strategy_multi_bd, prompt5, 5, 4, 2);
    SCRIPT(b, two_blocks);
}

static void compat_runs_the_example_of_two_blocks(void **state) {
    (void)state;
    static const want passes[] = {
        {PREFILL, 0, "11 12 13 14 15 M M M M M M M", "5<5 6<6 7<7 8<8 9<9 10<10 11<11", "", "105 M 107 M 109 M M",
         "1A 2A", 3, 0},
        {DENOISE, 4, "15 105 M 107 M 109 M M", "6<2 8<4 10<6 11<7", "", "105 106 107 108 109 M M", "1T 2A", 2, 0},
        {DENOISE, 4, "15 105 106 107 108 109 M M", "10<6 11<7", "", "105 106 107 108 109 M 111", "2A 3D", 1, 0},
        {DENOISE, 8, "108 109 M 111 M M M M", "10<2 12<4 13<5 14<6 15<7", "", "105 106 107 108 109 E 111 M M M M",
         "2T 3A", 1, 0},
        {DENOISE, 8, "108 109 E 111 M M M M", "12<4 13<5 14<6 15<7", "", "105 106 107 108 109 E 111 M M 114 M", "3A 4D",
         1, 0},
        /* Block 3 became terminal when the end of sequence was written: no block grows behind it. */
        {DENOISE, 12, "M M 114 M", "12<0 13<1 15<3", "", "105 106 107 108 109 E 111 112 113 114 115", "3T 4D", 3, 0},
    };
    bench b;
    set_up_two_blocks(&b);
    start_as(&b, true);
    CHECK_PASSES(&b, passes);
    check_end(&b, UM_FINISH_EOS, "105 106 107 108 109", 6);
    end(&b);
}

/* Block 3 starts in the pass that stores block 1, because buffer_size limits only the blocks that are denoised. The
 * answer ends in pass 4, when everything before the end of sequence is filled. */
static void runs_the_example_of_two_blocks_in_fewer_passes(void **state) {
    (void)state;
    static const want passes[] = {
        {PREFILL, 0, "11 12 13 14 15 M M M M M M M", "5<5 6<6 7<7 8<8 9<9 10<10 11<11", "", "105 M 107 M 109 M M",
         "1A 2A", 3, 0},
        {DENOISE, 4, "15 105 M 107 M 109 M M", "6<2 8<4 10<6 11<7", "", "105 106 107 108 109 M M", "1T 2A", 2, 0},
        {DENOISE, 4, "15 105 106 107 108 109 M M M M M M", "10<6 11<7 12<8 13<9 14<10 15<11", "",
         "105 106 107 108 109 M 111 M M M M", "2A 3A", 1, 0},
        {DENOISE, 8, "108 109 M 111 M M M M", "10<2 12<4 13<5 14<6 15<7", "", "105 106 107 108 109 E 111 M M M M",
         "2T 3A", 1, 0},
    };
    bench b;
    set_up_two_blocks(&b);
    start(&b);
    CHECK_PASSES(&b, passes);
    check_end(&b, UM_FINISH_EOS, "105 106 107 108 109", 4);
    end(&b);
}

/* Diffulex counts the 12 - 5 allocated slots as tokens. The answer ends before its first mask. */
static void compat_counts_allocated_slots(void **state) {
    (void)state;
    bench b;
    set_up_two_blocks(&b);
    b.sampling.max_tokens = 7;
    start_as(&b, true);
    step(&b);
    check_end(&b, UM_FINISH_MAX_TOKENS, "105", 1);
    end(&b);
}

static void a_limit_counts_tokens_that_are_there(void **state) {
    (void)state;
    bench b;
    set_up_two_blocks(&b);
    b.sampling.max_tokens = 7;
    b.sampling.ignore_eos = true;
    start(&b);
    run_to_end(&b);
    assert_int_equal(b.seg[0].keys.end, 12); /* no block behind the limit starts */
    check_end(&b, UM_FINISH_MAX_TOKENS, "105 106 107 108 109 E 111", 4);
    end(&b);
}

/* ---- One block, a prompt that ends with one ---------------------------------------------------------------------- */

static const line one_block[] = {{2, 8, 0, .5F},   {2, 9, 0, .95F},    {2, 10, 0, .3F},  {2, 11, 0, .2F},
                                 {3, 8, 0, .6F},   {3, 10, 0, .91F},   {3, 11, 0, .93F}, {4, 8, 0, .7F},
                                 {6, 12, 0, .95F}, {6, 13, EOS, .97F}, {6, 14, 0, .92F}, {6, 15, 0, .94F}};

static void compat_runs_the_example_of_one_block(void **state) {
    (void)state;
    static const want passes[] = {
        {PREFILL, 0, "11 12 13 14 15 16 17 18", "", "", "", "2D", 0, 0},
        {DENOISE, 8, "M M M M", "8<0 9<1 10<2 11<3", "", "M 109 M M", "2A", 1, 0},
        {DENOISE, 8, "M 109 M M", "8<0 10<2 11<3", "", "M 109 110 111", "2A", 2, 0},
        {DENOISE, 8, "M 109 110 111", "8<0", "", "108 109 110 111", "2T", 1, 0},
        {COMMIT, 8, "108 109 110 111", "", "", "108 109 110 111", "3D", 0, 0},
        {DENOISE, 12, "M M M M", "12<0 13<1 14<2 15<3", "", "108 109 110 111 112 E 114 115", "3T", 4, 0},
    };
    bench b;
    set_up(&b, &um_strategy_multi_bd, prompt8, 8, 4, 1);
    SCRIPT(&b, one_block);
    start_as(&b, true);
    CHECK_PASSES(&b, passes);
    check_end(&b, UM_FINISH_EOS, "108 109 110 111 112", 6);
    end(&b);
}

/* The first block starts in the pass that stores the prompt, and block 3 in the pass that stores block 2. Passes 1 to 4
 * thus make the predictions of Diffulex's passes 2, 3, 4 and 6. */
static void no_pass_only_stores(void **state) {
    (void)state;
    static const line script[] = {{1, 8, 0, .5F},   {1, 9, 0, .95F},    {1, 10, 0, .3F},  {1, 11, 0, .2F},
                                  {2, 8, 0, .6F},   {2, 10, 0, .91F},   {2, 11, 0, .93F}, {3, 8, 0, .7F},
                                  {4, 12, 0, .95F}, {4, 13, EOS, .97F}, {4, 14, 0, .92F}, {4, 15, 0, .94F}};
    static const want passes[] = {
        {PREFILL, 0, "11 12 13 14 15 16 17 18 M M M M", "8<8 9<9 10<10 11<11", "", "M 109 M M", "2A", 1, 0},
        {DENOISE, 8, "M 109 M M", "8<0 10<2 11<3", "", "M 109 110 111", "2A", 2, 0},
        {DENOISE, 8, "M 109 110 111", "8<0", "", "108 109 110 111", "2T", 1, 0},
        {DENOISE, 8, "108 109 110 111 M M M M", "12<4 13<5 14<6 15<7", "", "108 109 110 111 112 E 114 115", "3T", 4, 0},
    };
    bench b;
    set_up(&b, &um_strategy_multi_bd, prompt8, 8, 4, 1);
    SCRIPT(&b, script);
    start(&b);
    CHECK_PASSES(&b, passes);
    assert_int_equal(b.req.stored, 12);
    check_end(&b, UM_FINISH_EOS, "108 109 110 111 112", 4);
    end(&b);
}

/* ---- Growth and the gate ----------------------------------------------------------------------------------------- */

static void equal_progress_starts_the_next_block(void **state) {
    (void)state;
    for (int32_t above = 0; above <= 1; above++) {
        bench b;
        set_up(&b, &um_strategy_multi_bd, prompt5, 5, 4, 2);
        b.how.add_block_threshold = above ? .2500001F : .25F; /* a quarter of block 1 is prompt */
        start(&b);
        step(&b);
        assert_int_equal(b.seg[0].n, above ? 8 : 12);
        end(&b);
    }
}

/* The gate: a block may be forced to accept a token if its predecessor was semi-complete before the pass. */
static void equal_progress_opens_the_gate(void **state) {
    (void)state;
    static const line script[] = {{1, 5, 0, .95F}, {1, 6, 0, .95F}};
    for (int32_t above = 0; above <= 1; above++) {
        bench b;
        set_up(&b, &um_strategy_multi_bd, prompt5, 5, 4, 2);
        b.how.semi_complete_threshold = above ? .7500001F : .75F;
        SCRIPT(&b, script);
        start(&b);
        step(&b);
        assert_int_equal(b.req.n_new, 2); /* block 1 was a quarter full, so block 2 accepts nothing */
        step(&b);
        assert_int_equal(b.req.n_new, above ? 1 : 2);
        end(&b);
    }
}

static void a_family_may_force_every_block(void **state) {
    (void)state;
    bench b;
    set_up(&b, &um_strategy_multi_bd, prompt5, 5, 4, 2);
    b.traits.always_forced = true;
    start(&b);
    step(&b);
    assert_int_equal(b.req.n_new, 2);
    end(&b);
}

static void block_zero_is_forced(void **state) {
    (void)state;
    bench b;
    set_up(&b, &um_strategy_multi_bd, prompt5, 3, 4, 1);
    start(&b);
    step(&b);
    assert_int_equal(b.req.n_new, 1);
    assert_int_equal(b.token[3], 103);
    end(&b);
}

static void stability_starts_the_next_block_when_one_is_complete(void **state) {
    (void)state;
    bench b;
    set_up(&b, &um_strategy_multi_bd, prompt5, 5, 4, 2);
    b.how.token_stability_threshold = 0.5F;
    start(&b);
    for (int32_t i = 1; i <= 3; i++) {
        step(&b);
        assert_int_equal(b.seg[0].keys.end, 8);
    }
    step(&b);
    assert_int_equal(b.seg[0].keys.end, 12);
    end(&b);
}

/* A complete block is not stored before its predecessor. */
static void a_block_is_stored_behind_its_predecessor(void **state) {
    (void)state;
    static const line script[] = {{1, 8, 0, .99F}, {1, 9, 0, .99F}, {1, 10, 0, .99F}, {1, 11, 0, .99F}};
    bench b;
    char blocks[TEXT];
    set_up(&b, &um_strategy_multi_bd, prompt5, 5, 4, 2);
    SCRIPT(&b, script);
    start(&b);
    steps(&b, 2);
    put_blocks(blocks, &b);
    assert_string_equal(blocks, "1A 2A");
    step(&b);
    put_blocks(blocks, &b);
    assert_string_equal(blocks, "1T 2T"); /* both complete in one pass */
    step(&b);
    assert_int_equal(b.req.stored, 12); /* and are stored by one pass */
    end(&b);
}

static void a_threshold_is_passed_only_from_above(void **state) {
    (void)state;
    static const line script[] = {{1, 5, 0, .9F}, {1, 6, 0, .9000001F}};
    bench b;
    set_up(&b, &um_strategy_multi_bd, prompt5, 5, 4, 1);
    SCRIPT(&b, script);
    start(&b);
    step(&b);
    assert_int_equal(b.req.n_new, 1);
    assert_int_equal(b.token[6], 106);
    end(&b);
}

static void equal_confidence_forces_the_first_position(void **state) {
    (void)state;
    bench b;
    set_up(&b, &um_strategy_multi_bd, prompt5, 5, 4, 1);
    start(&b);
    step(&b);
    assert_int_equal(b.req.n_new, 1);
    assert_int_equal(b.token[5], 105);
    end(&b);
}

static void compat_has_a_threshold_that_no_option_changes(void **state) {
    (void)state;
    static const line script[] = {{1, 5, 0, .93F}, {1, 6, 0, .93F}};
    for (int32_t compat = 0; compat <= 1; compat++) {
        bench b;
        set_up(&b, &um_strategy_multi_bd, prompt5, 5, 4, 1);
        SCRIPT(&b, script);
        b.compat.threshold = compat ? .95F : NAN;
        start(&b);
        step(&b);
        assert_int_equal(b.req.n_new, compat ? 1 : 2);
        end(&b);
    }
}

/* ---- Fed positions ----------------------------------------------------------------------------------------------- */

/* Of 20 tokens 8 are stored, so the pass feeds positions from 8 on. */
static void a_stored_prefix_is_not_fed(void **state) {
    (void)state;
    int32_t prompt[20];
    bench b;
    for (int32_t i = 0; i < 20; i++) prompt[i] = 11 + i;
    set_up(&b, &um_strategy_multi_bd, prompt, 20, 4, 1);
    start_as(&b, true);
    for (int32_t i = 0; i < 8; i++) b.key[i].id = prompt[i];
    b.req.stored = 8;
    step(&b);
    static const want pass = {PREFILL, 8, "19 20 21 22 23 24 25 26 27 28 29 30", "", "", "", "5D", 0, 0};
    check_pass(&b, &pass);
    end(&b);
}

/* A prompt that is stored already needs no pass: the first pass denoises. */
static void a_stored_prompt_starts_with_its_first_block(void **state) {
    (void)state;
    bench b;
    set_up(&b, &um_strategy_multi_bd, prompt8, 8, 4, 1);
    start(&b);
    for (int32_t i = 0; i < 8; i++) b.key[i].id = prompt8[i];
    b.req.stored = 8;
    step(&b);
    static const want pass = {PREFILL, 8, "M M M M", "8<0 9<1 10<2 11<3", "", "108 M M M", "2A", 1, 0};
    check_pass(&b, &pass);
    end(&b);
}

static void a_mask_id_in_the_prompt_is_a_token(void **state) {
    (void)state;
    static const int32_t prompt[] = {11, MASK, 13, 14, MASK, MASK};
    for (int32_t compat = 0; compat <= 1; compat++) {
        bench b;
        set_up(&b, &um_strategy_multi_bd, prompt, 6, 4, 2);
        b.sampling.max_tokens = 10;
        start_as(&b, compat);
        step(&b);
        assert_int_equal(b.req.stored, 4);
        char rows[TEXT];
        put_rows(rows, &b);
        assert_string_equal(rows, "6<6 7<7 8<8 9<9 10<10 11<11");
        run_to_end(&b);
        for (int32_t i = 0; i < 6; i++) assert_int_equal(b.token[i], prompt[i]);
        for (int32_t i = 0; i < b.req.n_answer; i++) assert_int_equal(b.token[6 + i], 106 + i);
        assert_true(compat || b.req.n_answer == 10);
        end(&b);
    }
}

/* The pass that stores a position saves its hidden row, which predicts the first position of the window. */
static void shifted_rows_come_from_the_position_before(void **state) {
    (void)state;
    static const line script[] = {{1, 9, 0, .99F}, {1, 10, 0, .99F}, {1, 11, 0, .99F}};
    static const want passes[] = {
        {PREFILL, 0, NULL, "8<7 9<8 10<9 11<10", "", "M 109 110 111", "2A", 3, 8},
        {DENOISE, 8, "M 109 110 111", "8<c", "", "108 109 110 111", "2T", 1, 0},
        {DENOISE, 8, "108 109 110 111 M M M M", "12<3 13<4 14<5 15<6", "", "108 109 110 111 112 M M M", "3A", 1, 4},
        {DENOISE, 12, "112 M M M", "13<0 14<1 15<2", "", "108 109 110 111 112 113 M M", "3A", 1, 0},
    };
    bench b;
    set_up(&b, &um_strategy_multi_bd, prompt8, 8, 4, 1);
    b.traits.shift = 1;
    SCRIPT(&b, script);
    start(&b);
    CHECK_PASSES(&b, passes);
    end(&b);
}

/* In a family that shifts, a hidden row of the prompt must predict the first position of the answer, so the last block
 * of the prompt is not shared but fed. */
static void a_shift_family_shares_one_block_less(void **state) {
    (void)state;
    for (int32_t shift = 0; shift <= 1; shift++) {
        bench b;
        int32_t most = -1;
        set_up(&b, &um_strategy_multi_bd, prompt8, 8, 4, 1);
        b.traits.shift = shift;
        start(&b);
        assert_int_not_equal(b.strategy->share(&b.req, &most), 0);
        assert_int_equal(most, shift ? 4 : 8);
        end(&b);
    }
}

/* Stored keys depend on the block length, so requests with different lengths do not share them. A page must hold whole
 * blocks. With --compat nothing is shared. */
static void requests_share_by_block_length(void **state) {
    (void)state;
    uint64_t kind[4];
    int32_t most[4];
    for (int32_t i = 0; i < 4; i++) {
        bench b;
        set_up(&b, &um_strategy_multi_bd, prompt8, 8, i == 1 ? 8 : 4, 1);
        b.traits.page_size = i == 2 ? 6 : 8;
        start_as(&b, i == 3);
        kind[i] = b.strategy->share(&b.req, &most[i]);
        end(&b);
    }
    assert_int_not_equal(kind[0], 0);
    assert_int_equal(most[0], 8);
    assert_int_not_equal(kind[1], kind[0]);
    assert_int_equal(kind[2], 0);
    assert_int_equal(kind[3], 0);
    assert_int_equal(most[3], 0);
}

/* ---- Invalid parameters ------------------------------------------------------------------------------------------ */

/* A model that chooses experts for groups of 8 positions must be fed whole groups. */
static void blocks_do_not_cut_what_is_routed_together(void **state) {
    (void)state;
    bench b;
    um_err err;
    set_up(&b, &um_strategy_multi_bd, prompt5, 5, 4, 1);
    b.traits.route_block = 8;
    assert_int_equal(try_start(&b, &err), UM_ERANGE);
    assert_non_null(strstr(err.msg, "block_size: 4"));
    b.how.block_size = 16;
    start(&b);
    end(&b);
}

static void refuses_a_model_with_full_attention(void **state) {
    (void)state;
    um_err err;
    um_traits t = {.see = UM_SEE_FULL};
    um_compat c = {.threshold = NAN};
    um_req r = {.traits = &t, .compat = &c};
    assert_int_equal(um_strategy_multi_bd.init(&r, &err), UM_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "full"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compat_runs_the_example_of_two_blocks),
        cmocka_unit_test(runs_the_example_of_two_blocks_in_fewer_passes),
        cmocka_unit_test(compat_counts_allocated_slots),
        cmocka_unit_test(a_limit_counts_tokens_that_are_there),
        cmocka_unit_test(compat_runs_the_example_of_one_block),
        cmocka_unit_test(no_pass_only_stores),
        cmocka_unit_test(equal_progress_starts_the_next_block),
        cmocka_unit_test(equal_progress_opens_the_gate),
        cmocka_unit_test(a_family_may_force_every_block),
        cmocka_unit_test(block_zero_is_forced),
        cmocka_unit_test(stability_starts_the_next_block_when_one_is_complete),
        cmocka_unit_test(a_block_is_stored_behind_its_predecessor),
        cmocka_unit_test(a_threshold_is_passed_only_from_above),
        cmocka_unit_test(equal_confidence_forces_the_first_position),
        cmocka_unit_test(compat_has_a_threshold_that_no_option_changes),
        cmocka_unit_test(a_stored_prefix_is_not_fed),
        cmocka_unit_test(a_stored_prompt_starts_with_its_first_block),
        cmocka_unit_test(a_mask_id_in_the_prompt_is_a_token),
        cmocka_unit_test(shifted_rows_come_from_the_position_before),
        cmocka_unit_test(a_shift_family_shares_one_block_less),
        cmocka_unit_test(requests_share_by_block_length),
        cmocka_unit_test(blocks_do_not_cut_what_is_routed_together),
        cmocka_unit_test(refuses_a_model_with_full_attention),
    };
    return cmocka_run_group_tests_name("multi_bd", tests, NULL, NULL);
}
