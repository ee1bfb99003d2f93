/* dmax, pass by pass: the tokens it writes, the blends it feeds, the keys it stores. */
#include "decode_script.h"

static const int32_t prompt5[] = {1, 2, 3, 4, 5};
static const int32_t prompt8[] = {1, 2, 3, 4, 5, 6, 7, 8};

static void set_up_dmax(bench *b, const int32_t *prompt, int32_t n, int32_t K) {
    set_up(b, &um_strategy_dmax, prompt, n, 4, K);
    b->how.accept_threshold = 0.5F;
    b->model = confirming;
}

/* One block in flight, behind a prompt that ends with a block. */
static void set_up_block(bench *b) { set_up_dmax(b, prompt8, 8, 1); }

/* ---- The worked example ------------------------------------------------------------------------------------------ */

static const line script[] = {
    {1, 5, 50, .8F}, {1, 6, 60, .7F}, {1, 7, 70, .3F}, {1, 8, 80, .45F},  {2, 5, 51, .9F},    {2, 6, 60, .95F},
    {2, 7, 70, .6F}, {2, 8, 80, .4F}, {2, 9, 90, .9F}, {2, 10, 100, .4F}, {3, 10, 100, .95F}, {3, 11, 110, .92F},
};
#define PASS1                                                                                                          \
    { PREFILL, 0, "1 2 3 4 5 M M M M M M M", NULL, "", "50 60 M 80 M M M", "1A 2A", 3, 0 }
#define PASS2                                                                                                          \
    {                                                                                                                  \
        DENOISE, 4, "5 50 60 M 80 M M M", NULL, "5:50*0.8+999*0.2 6:60*0.7+999*0.3 8:80*0.45+999*0.55",                \
            "51 60 70 80 90 M M", "1A 2A", 2, 0                                                                        \
    }
#define PASS3                                                                                                          \
    {                                                                                                                  \
        DENOISE, 4, "5 51 60 70 80 90 M M", NULL, "7:70*0.6+999*0.4 9:90*0.9+999*0.1", "51 60 70 80 90 100 110",       \
            "1T 2T", 2, 0                                                                                              \
    }

static void set_up_example(bench *b) {
    set_up_dmax(b, prompt5, 5, 2);
    SCRIPT(b, script);
}

/* The pass that stores a block is fed the blends of the tokens that were written last. */
static void compat_runs_the_example(void **state) {
    (void)state;
    static const want passes[] = {PASS1,
                                  PASS2,
                                  PASS3,
                                  {COMMIT, 4, "5 51 60 70 80 90 100 110", "",
                                   "10:100*0.95+999*0.05 11:110*0.92+999*0.08", "51 60 70 80 90 100 110", "3D 4D", 0,
                                   0}};
    bench b;
    set_up_example(&b);
    start_as(&b, true);
    step(&b);
    check_pass(&b, &passes[0]);
    step(&b);
    check_pass(&b, &passes[1]);
    /* Positions 4 (of the prompt), 5 and 6 are compared, and 5 changed. */
    assert_true(fabsf(((um_blocks *)b.req.state)->buffer.block[0].same_token_ratio - 2.F / 3) < 1e-6F);
    check_passes(&b, passes + 2, 2);
    assert_int_equal(b.req.stored, 12);
    end(&b);
}

/* The pass that starts block 3 stores both blocks by their tokens. Only positions of the answer are compared. */
static void runs_the_example_and_stores_tokens(void **state) {
    (void)state;
    static const want passes[] = {PASS1,
                                  PASS2,
                                  PASS3,
                                  {DENOISE, 4, "5 51 60 70 80 90 100 110 M M M M", "12<8 13<9 14<10 15<11", "",
                                   "51 60 70 80 90 100 110 120 M M M", "3A 4D", 1, 0}};
    bench b;
    set_up_example(&b);
    start(&b);
    check_passes(&b, passes, 2);
    assert_true(fabsf(((um_blocks *)b.req.state)->buffer.block[0].same_token_ratio - 1.F / 2) < 1e-6F);
    check_passes(&b, passes + 2, 2);
    for (int32_t p = 0; p < b.req.stored; p++) assert_false(b.key[p].soft);
    end(&b);
}

/* ---- Blends ------------------------------------------------------------------------------------------------------ */

static void clean_commit_decides_what_is_stored(void **state) {
    (void)state;
    for (int32_t clean = 0; clean <= 1; clean++) {
        bench b;
        set_up_example(&b);
        b.how.clean_commit = clean;
        start(&b);
        steps(&b, 4);
        assert_int_equal(b.req.stored, 12);
        assert_int_equal(b.key[10].soft, !clean);
        assert_int_equal(b.key[11].soft, !clean);
        assert_false(b.key[9].soft); /* the model confirmed the token, so it is fed itself */
        /* Keys of blends are not shared. */
        int32_t most;
        assert_int_equal(b.strategy->share(&b.req, &most) != 0, clean);
        end(&b);
    }
}

static void without_blends_every_commit_is_shared(void **state) {
    (void)state;
    int32_t most;
    bench b;
    set_up_block(&b);
    b.how.clean_commit = false;
    b.how.token_merge_weight = 0;
    start(&b);
    assert_int_not_equal(b.strategy->share(&b.req, &most), 0);
    end(&b);
}

static void compat_always_stores_blends(void **state) {
    (void)state;
    bench b;
    set_up_dmax(&b, prompt5, 5, 1);
    start_as(&b, true);
    assert_false(b.req.how.clean_commit);
    end(&b);
}

static void no_weight_feeds_tokens(void **state) {
    (void)state;
    for (int32_t mode = UM_MERGE_DMAX; mode <= UM_MERGE_ITER_SMOOTH; mode++) {
        bench b;
        set_up_example(&b);
        b.how.token_merge_mode = mode;
        b.how.token_merge_weight = 0;
        start(&b);
        assert_int_equal(b.strategy->need(&b.req).soft_max, 0);
        for (int32_t i = 0; i < 4; i++) {
            step(&b);
            assert_int_equal(b.pass.n_softs, 0);
        }
        end(&b);
    }
}

static void a_blend_gets_the_length_of_its_parts_when_asked(void **state) {
    (void)state;
    for (int32_t renormalize = 0; renormalize <= 1; renormalize++) {
        bench b;
        set_up_example(&b);
        b.how.token_merge_renormalize = renormalize;
        start(&b);
        steps(&b, 2);
        for (int32_t i = 0; i < b.pass.n_softs; i++) assert_int_equal(b.soft[i].renormalize, renormalize);
        end(&b);
    }
}

/* The likeliest ids of every row are 7 and 8. */
static um_answer with_likeliest(const bench *b, const um_row *row, int32_t pos, uint64_t seen) {
    um_answer a = confirming(b, row, pos, seen);
    for (int32_t i = 0; i < row->n_top; i++) row->top[i] = (um_top){.id = i < 2 ? 7 + i : -1, .p = i ? .25F : .5F};
    a.top = row->top;
    return a;
}

/* iter_smooth_topk: the token has weight 1, the likeliest ids have their probability times token_merge_weight. The
 * fourth likeliest id is missing. The blend is not renormalized. A position that stays masked is fed as the mask. */
static void smoothing_adds_the_likeliest_ids(void **state) {
    (void)state;
    static const want passes[] = {
        {PREFILL, 0, "1 2 3 4 5 6 7 8 M M M M", NULL, "", "80 M M M", "2A", 1, 0},
        {DENOISE, 8, "80 M M M", NULL, "8:80*1+7*0.25+8*0.125", "80 90 M M", "2A", 1, 0},
        {DENOISE, 8, "80 90 M M", NULL, "8:80*1+7*0.25+8*0.125 9:90*1+7*0.25+8*0.125", "80 90 100 M", "2A", 1, 0},
    };
    bench b;
    set_up_block(&b);
    b.model = with_likeliest;
    b.how.token_merge_mode = UM_MERGE_ITER_SMOOTH;
    b.how.token_merge_top_k = 3;
    b.how.token_merge_weight = 0.5F;
    start(&b);
    assert_int_equal(b.req.n_top_asked, 3);
    CHECK_PASSES(&b, passes);
    for (int32_t i = 0; i < b.pass.n_softs; i++) assert_false(b.soft[i].renormalize);
    /* The block is stored by its tokens. */
    while (b.req.stored < 12) step(&b);
    for (int32_t p = 0; p < 12; p++) assert_false(b.key[p].soft);
    end(&b);
}

static void compat_stores_smoothed_keys(void **state) {
    (void)state;
    bench b;
    set_up_block(&b);
    b.model = with_likeliest;
    b.how.token_merge_mode = UM_MERGE_ITER_SMOOTH;
    start_as(&b, true);
    while (b.req.stored < 12) step(&b);
    for (int32_t p = 8; p < 12; p++) assert_true(b.key[p].soft);
    end(&b);
}

/* On the slow path filled positions have a confidence too: a token that was confirmed with .99 is blended by .99. */
static void the_slow_path_blends_filled_positions(void **state) {
    (void)state;
    static const want passes[] = {
        {PREFILL, 0, NULL, NULL, "", "50 60 M 80 M M M", "1A 2A", 3, 0},
        {DENOISE, 4, NULL, NULL, "5:50*0.8+999*0.2 6:60*0.7+999*0.3 8:80*0.45+999*0.55", "51 60 70 80 90 M M", "1A 2A",
         2, 0},
        {DENOISE, 4, NULL, NULL,
         "5:51*0.9+999*0.1 6:60*0.95+999*0.05 7:70*0.6+999*0.4 8:80*0.4+999*0.6 9:90*0.9+999*0.1",
         "51 60 70 80 90 100 110", "1T 2T", 2, 0},
    };
    bench b;
    set_up_example(&b);
    b.how.dmax_fast_path = false;
    start(&b);
    CHECK_PASSES(&b, passes);
    end(&b);
}

/* ---- End of blocks ----------------------------------------------------------------------------------------------- */

/* Alternates between two tokens. */
static um_answer undecided(const bench *b, const um_row *row, int32_t pos, uint64_t seen) {
    (void)row;
    (void)seen;
    return answer_with(1 + (pos + b->req.nfe) % 2, 0.4F);
}

/* On the slow path a block has 4 passes for its masks, max_post_edit_steps more, and one whose edits are dropped. */
static void the_slow_path_ends_every_block(void **state) {
    (void)state;
    bench b;
    set_up_block(&b);
    b.model = undecided;
    b.how.dmax_fast_path = false;
    b.how.max_post_edit_steps = 2;
    b.sampling.max_tokens = 12;
    b.sampling.max_nfe = 0;
    start(&b);
    run_to_end(&b);
    assert_int_equal(b.req.finish, UM_FINISH_MAX_TOKENS);
    assert_int_equal(b.req.n_answer, 12);
    assert_int_equal(b.req.nfe, 3 * (4 + 2 + 1));
    end(&b);
}

static void compat_has_no_such_end(void **state) {
    (void)state;
    bench b;
    set_up_block(&b);
    b.model = undecided;
    b.how.dmax_fast_path = false;
    b.how.max_post_edit_steps = 2;
    start_as(&b, true);
    run_to_end(&b);
    assert_int_equal(b.req.finish, UM_FINISH_MAX_NFE);
    assert_int_equal(b.req.nfe, 50);
    assert_int_equal(b.req.stored, 8);
    end(&b);
}

/* Predicts the mask at position 9 unless the row bans it. */
static um_answer predict_mask(const bench *b, const um_row *row, int32_t pos, uint64_t seen) {
    for (int32_t i = 0; i < row->n_edit; i++)
        if (row->edit[i].id == MASK && row->edit[i].ban) return confirming(b, row, pos, seen);
    return pos == 9 ? answer_with(MASK, .99F) : confirming(b, row, pos, seen);
}

static void compat_may_predict_the_mask(void **state) {
    (void)state;
    bench b;
    set_up_block(&b);
    b.model = predict_mask;
    start_as(&b, true);
    run_to_end(&b);
    assert_true(um_req_masked(&b.req, 9));
    assert_int_equal(b.req.finish, UM_FINISH_MAX_NFE);
    assert_int_equal(b.req.n_answer, 1); /* the tokens before the mask */
    end(&b);
}

static void the_mask_is_never_predicted(void **state) {
    (void)state;
    bench b;
    set_up_block(&b);
    b.model = predict_mask;
    b.sampling.max_tokens = 6;
    start(&b);
    run_to_end(&b);
    check_end(&b, UM_FINISH_MAX_TOKENS, "80 90 100 110 120 130", b.req.nfe);
    end(&b);
}

static void runs_its_own_sampler_alone(void **state) {
    (void)state;
    static const char *const names[] = {"auto", "dmax", "edit", "confidence", "low_confidence"};
    for (size_t i = 0; i < UM_LEN(names); i++) {
        bench b;
        um_err err;
        set_up_block(&b);
        choose_sampler(&b, names[i]);
        um_status st = try_start(&b, &err);
        assert_int_equal(st, i < 3 ? UM_OK : UM_EUNSUPPORTED);
        if (st) assert_non_null(strstr(err.msg, names[i]));
        else end(&b);
    }
}

/* The check comes before memory is allocated. Without clean_commit all positions of the answer need blends. */
static void more_blends_than_a_step_holds_are_refused(void **state) {
    (void)state;
    static const char *const words[] = {
        "a pass of this request blends 72 ids (2 for each of 36 positions: all of the answer without clean_commit), "
        "but "
        "a step has room for 15; lower token_merge_top_k or max_tokens or raise max_num_batched_tokens",
        "a pass of this request blends 16 ids (2 for each of 8 positions), but a step has room for 15; lower "
        "token_merge_top_k, block_size or buffer_size or raise max_num_batched_tokens"};
    for (int32_t clean = 0; clean <= 1; clean++) {
        bench b;
        um_err err;
        set_up_block(&b);
        b.how.clean_commit = clean;
        b.sampling.max_tokens = 26;
        b.traits.blend_ids = 15;
        assert_int_equal(try_start(&b, &err), UM_ELIMIT);
        if (strcmp(err.msg, words[clean]) != 0) fail_msg("%s", err.msg);
        b.traits.blend_ids = clean ? 16 : 72;
        start(&b);
        end(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compat_runs_the_example),
        cmocka_unit_test(runs_the_example_and_stores_tokens),
        cmocka_unit_test(clean_commit_decides_what_is_stored),
        cmocka_unit_test(without_blends_every_commit_is_shared),
        cmocka_unit_test(compat_always_stores_blends),
        cmocka_unit_test(no_weight_feeds_tokens),
        cmocka_unit_test(a_blend_gets_the_length_of_its_parts_when_asked),
        cmocka_unit_test(smoothing_adds_the_likeliest_ids),
        cmocka_unit_test(compat_stores_smoothed_keys),
        cmocka_unit_test(the_slow_path_blends_filled_positions),
        cmocka_unit_test(the_slow_path_ends_every_block),
        cmocka_unit_test(compat_has_no_such_end),
        cmocka_unit_test(compat_may_predict_the_mask),
        cmocka_unit_test(the_mask_is_never_predicted),
        cmocka_unit_test(runs_its_own_sampler_alone),
        cmocka_unit_test(more_blends_than_a_step_holds_are_refused),
    };
    return cmocka_run_group_tests_name("dmax", tests, NULL, NULL);
}
