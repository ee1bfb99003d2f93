/* Tests of levenshtein and joint_indel pass by pass: how tokens move, and what moves with them. The tests of
 * tests/families replay recorded runs, and decode_schedules_test.c runs random requests. */
#include "decode_script.h"

static const int32_t prompt[] = {11, 12, 13, 14};
enum { N = 4, B = 4 };

/* The first pass fills the first block with 21, 22, 23 and 24. Later passes predict the same tokens. */
#define FILL                                                                                                           \
    {1, 4, 21, .95F}, {1, 5, 22, .96F}, {1, 6, 23, .97F}, { 1, 7, 24, .98F }

static void set_up_block(bench *b, const um_strategy *s, const line *script, size_t n) {
    set_up(b, s, prompt, N, B, 1);
    b->sampling.max_tokens = B;
    b->model = confirming;
    b->script = script;
    b->n_script = n;
}
#define SET_UP(b, s, script) set_up_block(b, s, script, UM_LEN(script))

/* Compares the tokens of the first block, and the passes that wrote them (-1: a mask). */
static void assert_block(const bench *b, const char *tokens, const int32_t *written) {
    char text[TEXT];
    put_ids(text, b, b->token + N, B, N);
    assert_string_equal(text, tokens);
    for (int32_t i = 0; i < B; i++) assert_int_equal(b->written[N + i], written[i]);
}

static const um_strategy *const both[] = {&um_strategy_levenshtein, &um_strategy_joint_indel};

/* ---- Moves ------------------------------------------------------------------------------------------------------- */

static void a_deleted_token_lets_the_others_move_left(void **state) {
    (void)state;
    static const line script[] = {FILL, {2, 5, DELETE, .8F}};
    for (size_t i = 0; i < UM_LEN(both); i++) {
        bench b;
        SET_UP(&b, both[i], script);
        start(&b);
        step(&b);
        assert_block(&b, "21 22 23 24", (int32_t[]){1, 1, 1, 1});
        assert_int_equal(b.req.n_new, 4);
        step(&b);
        assert_block(&b, "21 23 24 M", (int32_t[]){1, 1, 1, -1});
        assert_int_equal(b.req.n_new, 0);
        assert_true(b.logprob[5] == logf(.97F) && b.logprob[6] == logf(.98F)); /* they moved with their tokens */
        step(&b);
        assert_block(&b, "21 23 24 70", (int32_t[]){1, 1, 1, 3});
        assert_int_equal(b.req.filled, N); /* nothing is settled before the block is finished */
        step(&b);
        check_end(&b, UM_FINISH_MAX_TOKENS, "21 23 24 70", 4);
        end(&b);
    }
}

static void a_split_inserts_a_mask(void **state) {
    (void)state;
    static const line script[] = {FILL, {2, 5, SPLIT, .8F}};
    for (size_t i = 0; i < UM_LEN(both); i++) {
        bench b;
        SET_UP(&b, both[i], script);
        start(&b);
        steps(&b, 2);
        assert_block(&b, "21 M 22 23", (int32_t[]){1, -1, 1, 1}); /* 24 left the block */
        assert_true(b.logprob[6] == logf(.96F) && b.logprob[7] == logf(.97F));
        run_to_end(&b);
        check_end(&b, UM_FINISH_MAX_TOKENS, "21 50 22 23", 4);
        end(&b);
    }
}

static void one_pass_moves_tokens_both_ways(void **state) {
    (void)state;
    static const int32_t from[] = {-1, 0, 1, 4, 5, -1, -1, -1};
    bench b;
    set_up(&b, &um_strategy_levenshtein, prompt, N, 8, 1);
    b.n_top = 2;
    start(&b);
    for (int32_t p = N; p < 8; p++) b.token[p] = 20 + p;
    for (int32_t i = 0; i < 8; i++) {
        b.token[8 + i] = 30 + i;
        b.written[8 + i] = 1 + i;
        b.logprob[8 + i] = (float)-i;
        b.kept[2 * (8 + i)] = (um_top){.id = 40 + i};
    }
    b.req.settled = b.req.filled = 8;
    um_req_rearrange(&b.req, 8, from, 8);
    for (int32_t i = 0; i < 8; i++) {
        assert_int_equal(b.token[8 + i], from[i] < 0 ? MASK : 30 + from[i]);
        assert_int_equal(b.written[8 + i], from[i] < 0 ? -1 : 1 + from[i]);
        if (from[i] < 0) continue;
        assert_true(b.logprob[8 + i] == (float)-from[i]);
        assert_int_equal(b.kept[2 * (8 + i)].id, 40 + from[i]);
    }
    end(&b);
}

/* Positions beyond the limit are denoised, because their tokens may move into the answer. */
static void tokens_move_into_the_answer(void **state) {
    (void)state;
    static const line script[] = {FILL, {2, 4, DELETE, .8F}};
    for (size_t i = 0; i < UM_LEN(both); i++) {
        bench b;
        SET_UP(&b, both[i], script);
        b.sampling.max_tokens = 2;
        start(&b);
        run_to_end(&b);
        check_end(&b, UM_FINISH_MAX_TOKENS, "22 23", 4);
        end(&b);
    }
}

/* ---- The end of a block ------------------------------------------------------------------------------------------ */

/* The pass that changes nothing has stored the final keys. After the last pass that writes, no prediction is needed. */
static void a_block_is_stored_by_the_pass_that_changes_nothing(void **state) {
    (void)state;
    static const line script[] = {FILL};
    bench b;
    SET_UP(&b, &um_strategy_levenshtein, script);
    b.sampling.max_tokens = 2 * B;
    start(&b);
    step(&b);
    assert_int_equal(b.seg[0].kind, UM_PASS_PREFILL);
    assert_int_equal(b.req.stored, N);
    step(&b);
    assert_int_equal(b.seg[0].kind, UM_PASS_DENOISE);
    assert_int_equal(b.pass.n_rows, B);
    assert_int_equal(b.req.stored, N + B);
    assert_int_equal(b.req.filled, N + B);
    end(&b);
    SET_UP(&b, &um_strategy_levenshtein, script);
    b.how.max_steps_per_block = 1;
    start(&b);
    steps(&b, 2);
    assert_int_equal(b.seg[0].kind, UM_PASS_COMMIT);
    assert_int_equal(b.pass.n_rows, 0);
    check_end(&b, UM_FINISH_MAX_TOKENS, "21 22 23 24", 2);
    end(&b);
}

/* The last pass that writes fills all masks and moves nothing. */
static void the_last_pass_moves_nothing(void **state) {
    (void)state;
    static const line script[] = {FILL, {2, 5, DELETE, .8F}};
    for (size_t i = 0; i < UM_LEN(both); i++) {
        bench b;
        SET_UP(&b, both[i], script);
        b.how.max_steps_per_block = 2;
        b.how.max_post_edit_steps = 1;
        start(&b);
        run_to_end(&b);
        check_end(&b, UM_FINISH_MAX_TOKENS, "21 22 23 24", 2);
        end(&b);
    }
}

/* ---- Tokens that may not stand where they are -------------------------------------------------------------------- */

static void a_stop_id_does_not_move_before_min_tokens(void **state) {
    (void)state;
    static const line script[] = {
        {1, 4, 21, .95F}, {1, 5, 22, .95F}, {1, 6, 23, .95F}, {1, 7, EOS, .95F}, {2, 4, DELETE, .8F}};
    for (size_t i = 0; i < UM_LEN(both); i++) {
        bench b;
        SET_UP(&b, both[i], script);
        b.sampling.min_tokens = 3;
        start(&b);
        steps(&b, 2);
        assert_block(&b, "22 23 M M", (int32_t[]){1, 1, -1, -1});
        run_to_end(&b);
        check_end(&b, UM_FINISH_MAX_TOKENS, "22 23 60 70", b.req.nfe);
        end(&b);
    }
}

static const int32_t bad[] = {21, 23}, bad_end[] = {2};

static void start_with_bad_words(bench *b) {
    start(b);
    b->req.bad = bad;
    b->req.bad_end = bad_end;
    b->req.n_bad = 1;
}

static void a_move_completes_no_bad_words(void **state) {
    (void)state;
    static const line script[] = {FILL, {2, 5, DELETE, .8F}};
    for (size_t i = 0; i < UM_LEN(both); i++) {
        bench b;
        SET_UP(&b, both[i], script);
        start_with_bad_words(&b);
        steps(&b, 2);
        assert_block(&b, "M 23 24 M", (int32_t[]){-1, 1, 1, -1});
        run_to_end(&b);
        check_end(&b, UM_FINISH_MAX_TOKENS, "40 23 24 70", b.req.nfe);
        end(&b);
    }
}

/* The last pass could not write 23 beside 21, so it is not the last one. */
static void a_block_with_masks_is_not_finished(void **state) {
    (void)state;
    static const line script[] = {{1, 4, 21, .95F}, {1, 5, 23, .95F}, {1, 6, 24, .95F}, {1, 7, 25, .95F}};
    for (size_t i = 0; i < UM_LEN(both); i++) {
        bench b;
        SET_UP(&b, both[i], script);
        b.how.max_steps_per_block = 1;
        b.how.max_post_edit_steps = 0;
        start_with_bad_words(&b);
        step(&b);
        assert_block(&b, "21 M 24 25", (int32_t[]){1, -1, 1, 1});
        run_to_end(&b);
        check_end(&b, UM_FINISH_MAX_TOKENS, "21 50 24 25", 3);
        end(&b);
    }
}

/* ---- Refused parameters ------------------------------------------------------------------------------------------ */

static void refuses(bench *b, um_status status, const char *part) {
    um_err err = {0};
    assert_int_equal(try_start(b, &err), status);
    if (!strstr(err.msg, part)) fail_msg("\"%s\" lacks \"%s\"", err.msg, part);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(both); i++) {
        bench b;
        set_up(&b, both[i], prompt, N, B, 1);
        b.traits.delete_id = -1;
        refuses(&b, UM_EUNSUPPORTED, both[i]->name);
        set_up(&b, both[i], prompt, N, B, 1);
        b.traits.see = UM_SEE_FULL;
        refuses(&b, UM_EUNSUPPORTED, "block-causal");
        set_up(&b, both[i], prompt, N, 6, 1);
        b.traits.route_block = 4;
        refuses(&b, UM_ERANGE, "groups of 4");
        set_up(&b, both[i], prompt, N, UM_BLOCK_MAX + 1, 1);
        refuses(&b, UM_ERANGE, "257");
    }
}

/* Keys are those of multi_bd with blocks of the same length. */
static void prefixes_are_shared_with_multi_bd(void **state) {
    (void)state;
    bench a, b;
    int32_t most, other;
    set_up(&a, &um_strategy_levenshtein, prompt, N, B, 1);
    set_up(&b, &um_strategy_multi_bd, prompt, N, B, 1);
    start(&a);
    start(&b);
    assert_int_equal(a.strategy->share(&a.req, &most), b.strategy->share(&b.req, &other));
    assert_int_equal(most, other);
    end(&a);
    end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deleted_token_lets_the_others_move_left),
        cmocka_unit_test(a_split_inserts_a_mask),
        cmocka_unit_test(one_pass_moves_tokens_both_ways),
        cmocka_unit_test(tokens_move_into_the_answer),
        cmocka_unit_test(a_block_is_stored_by_the_pass_that_changes_nothing),
        cmocka_unit_test(the_last_pass_moves_nothing),
        cmocka_unit_test(a_stop_id_does_not_move_before_min_tokens),
        cmocka_unit_test(a_move_completes_no_bad_words),
        cmocka_unit_test(a_block_with_masks_is_not_finished),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(prefixes_are_shared_with_multi_bd),
    };
    return cmocka_run_group_tests_name("insert and delete", tests, NULL, NULL);
}
