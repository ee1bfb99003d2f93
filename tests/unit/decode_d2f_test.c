/* d2f, pass by pass: a prompt with full attention, and blocks behind it. */
#include "decode_script.h"

static const int32_t prompt5[] = {11, 12, 13, 14, 15};

static void set_up_shifted(bench *b) {
    set_up(b, &um_strategy_d2f, prompt5, 5, 4, 2);
    b->traits.shift = 1;
}

/* Checks the first position that each fed query does not see. */
static void check_seen(const bench *b, const int32_t *want) {
    const um_segment *s = &b->seg[0];
    for (int32_t i = 0; i < s->n; i++)
        if (seen_end(s, i) != want[i])
            fail_msg("position %d sees [0, %d), expected [0, %d)", s->pos[i], seen_end(s, i), want[i]);
}

/* ---- The worked example ------------------------------------------------------------------------------------------ */

static const line script[] = {
    {1, 5, 0, .95F},  {1, 6, 0, .60F},  {1, 7, 0, .92F},  {1, 8, 0, .50F},    {1, 9, 0, .97F},
    {1, 10, 0, .40F}, {1, 11, 0, .30F}, {2, 6, 0, .70F},  {2, 8, 0, .91F},    {2, 10, 0, .40F},
    {2, 11, 0, .35F}, {3, 10, 0, .50F}, {3, 11, 0, .60F}, {4, 10, EOS, .80F}, {4, 12, 0, .85F},
    {5, 12, 0, .6F},  {5, 14, 0, .93F}, {6, 12, 0, .95F}, {6, 13, 0, .94F},   {6, 15, 0, .96F},
};

/* compat: blocks lie on a grid from position 0, so position 4, of the prompt, shares a block with the answer. */
static void compat_runs_the_example(void **state) {
    (void)state;
    static const want passes[] = {
        {PREFILL, 0, "11 12 13 14 15 M M M M M M M", "5<4 6<5 7<6 8<7 9<8 10<9 11<10", "", "105 M 107 M 109 M M",
         "1A 2A", 3, 4},
        {DENOISE, 4, "15 105 M 107 M 109 M M", "6<1 8<3 10<5 11<6", "", "105 106 107 108 109 M M", "1T 2A", 2, 0},
        {DENOISE, 4, "15 105 106 107 108 109 M M", "10<5 11<6", "", "105 106 107 108 109 M 111", "2A 3D", 1, 4},
        {DENOISE, 8, "108 109 M 111 M M M M", "10<1 12<3 13<4 14<5 15<6", "", "105 106 107 108 109 E 111 M M M M",
         "2T 3A", 1, 0},
        {DENOISE, 8, "108 109 E 111 M M M M", "12<3 13<4 14<5 15<6", "", "105 106 107 108 109 E 111 M M 114 M", "3A 4D",
         1, 4},
        {DENOISE, 12, "M M 114 M", "12<c 13<0 15<2", "", "105 106 107 108 109 E 111 112 113 114 115", "3T 4D", 3, 0},
    };
    bench b;
    set_up_shifted(&b);
    SCRIPT(&b, script);
    start_as(&b, true);
    CHECK_PASSES(&b, passes);
    check_end(&b, UM_FINISH_EOS, "105 106 107 108 109", 6);
    end(&b);
}

static void compat_lets_the_prompt_see_itself_in_the_first_pass_alone(void **state) {
    (void)state;
    bench b;
    set_up_shifted(&b);
    SCRIPT(&b, script);
    start_as(&b, true);
    step(&b);
    check_seen(&b, (const int32_t[]){5, 5, 5, 5, 5, 8, 8, 8, 12, 12, 12, 12});
    /* Position 4 now sees its whole block. Pass 3 stores these keys. */
    for (int32_t i = 2; i <= 3; i++) {
        step(&b);
        check_seen(&b, (const int32_t[]){8, 8, 8, 8, 12, 12, 12, 12});
    }
    end(&b);
}

/* Block 0 is positions 5..8, so no position of the prompt is fed twice. Block 2 starts in the pass that stores block 0.
 * The answer ends before the end of sequence. */
static void counts_blocks_from_the_end_of_the_prompt(void **state) {
    (void)state;
    static const line lines[] = {{1, 5, 0, .95F}, {1, 6, 0, .6F},  {1, 7, 0, .92F}, {2, 6, 0, .7F},
                                 {2, 8, 0, .91F}, {2, 9, 0, .97F}, {3, 6, 0, .7F},  {4, 10, EOS, .8F}};
    static const want passes[] = {
        {PREFILL, 0, "11 12 13 14 15 M M M M", "5<4 6<5 7<6 8<7", "", "105 M 107 M", "0A 1D", 2, 5},
        {DENOISE, 5, "105 M 107 M M M M M", "6<0 8<2 9<3 10<4 11<5 12<6", "", "105 M 107 108 109 M M M", "0A 1A", 2, 0},
        {DENOISE, 5, "105 M 107 108 109 M M M", "6<0 10<4 11<5 12<6", "", "105 106 107 108 109 M M M", "0T 1A", 1, 0},
        {DENOISE, 5, "105 106 107 108 109 M M M M M M M", "10<4 11<5 12<6 13<7 14<8 15<9 16<10", "",
         "105 106 107 108 109 E M M M M M M", "1A 2A", 1, 4},
    };
    bench b;
    set_up_shifted(&b);
    SCRIPT(&b, lines);
    start(&b);
    step(&b);
    check_pass(&b, &passes[0]);
    check_seen(&b, (const int32_t[]){5, 5, 5, 5, 5, 9, 9, 9, 9});
    assert_int_equal(b.req.stored, 5);
    for (int32_t i = 1; i < 4; i++) {
        step(&b);
        check_pass(&b, &passes[i]);
        check_seen(&b, (const int32_t[]){9, 9, 9, 9, 13, 13, 13, 13, 17, 17, 17, 17});
    }
    check_end(&b, UM_FINISH_EOS, "105 106 107 108 109", 4);
    end(&b);
}

/* ---- Storing ----------------------------------------------------------------------------------------------------- */

/* All positions of the prompt are stored together. A step without room for the window stores only the prompt. */
static void the_prompt_is_stored_whole(void **state) {
    (void)state;
    int32_t prompt[19];
    for (int32_t i = 0; i < 19; i++) prompt[i] = 11 + i;
    bench b;
    set_up(&b, &um_strategy_d2f, prompt, 19, 4, 2);
    b.budget = 1;
    start(&b);
    assert_int_equal(b.strategy->need(&b.req).least, 19);
    step(&b);
    assert_true(b.pass.partial);
    assert_int_equal(b.pass.n_tokens, 19);
    assert_int_equal(b.req.stored, 19);
    assert_int_equal(b.req.nfe, 0);
    step(&b);
    assert_false(b.pass.partial);
    assert_int_equal(b.seg[0].pos[0], 19);
    end(&b);
}

/* compat: a pass over the whole prompt restores the keys that were stored with it, block-causal passes the others. */
static void compat_rebuilds_keys_as_they_were(void **state) {
    (void)state;
    key before[CAP];
    bench b;
    set_up_shifted(&b);
    SCRIPT(&b, script);
    start_as(&b, true);
    steps(&b, 4);
    assert_int_equal(b.req.stored, 8);
    memcpy(before, b.key, sizeof before);
    uint64_t saved = b.saved;
    take_pages_away(&b);
    step(&b);
    assert_true(b.pass.partial);
    assert_int_equal(b.req.stored, 4);
    check_seen(&b, (const int32_t[]){5, 5, 5, 5, 5});
    step(&b);
    assert_int_equal(b.req.nfe, 5);
    assert_int_equal(b.req.stored, 12);
    for (int32_t i = 0; i < 8; i++) {
        assert_true(b.key[i].embedding == before[i].embedding);
        assert_true(b.key[i].hidden == before[i].hidden);
    }
    assert_true(b.saved != saved); /* block 2 was stored */
    run_to_end(&b);
    check_end(&b, UM_FINISH_EOS, "105 106 107 108 109", 6);
    end(&b);
}

/* Keys have seen the whole prompt, so only answers to the same prompt share them. */
static void only_answers_to_one_prompt_share(void **state) {
    (void)state;
    for (int32_t way = 0; way < 3; way++) {
        int32_t most = -1;
        bench b;
        set_up(&b, &um_strategy_d2f, prompt5, 5, 4, 2);
        b.traits.shift = way == 1;
        b.compat.zero_anchor = way == 2;
        start(&b);
        assert_int_equal(b.strategy->share(&b.req, &most), 0);
        assert_int_equal(most, way == 0 ? 5 : 0);
        end(&b);
    }
}

static void four_blocks_are_in_flight_unless_said_otherwise(void **state) {
    (void)state;
    bench b;
    set_up(&b, &um_strategy_d2f, prompt5, 5, 4, 0);
    start(&b);
    assert_int_equal(b.req.how.buffer_size, 4);
    end(&b);
}

static void refuses_a_model_that_is_block_causal(void **state) {
    (void)state;
    bench b;
    um_err err;
    set_up(&b, &um_strategy_d2f, prompt5, 5, 4, 2);
    b.traits.see = UM_SEE_BLOCK_CAUSAL;
    assert_int_equal(try_start(&b, &err), UM_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "multi_bd"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compat_runs_the_example),
        cmocka_unit_test(compat_lets_the_prompt_see_itself_in_the_first_pass_alone),
        cmocka_unit_test(counts_blocks_from_the_end_of_the_prompt),
        cmocka_unit_test(the_prompt_is_stored_whole),
        cmocka_unit_test(compat_rebuilds_keys_as_they_were),
        cmocka_unit_test(only_answers_to_one_prompt_share),
        cmocka_unit_test(four_blocks_are_in_flight_unless_said_otherwise),
        cmocka_unit_test(refuses_a_model_that_is_block_causal),
    };
    return cmocka_run_group_tests_name("d2f", tests, NULL, NULL);
}
