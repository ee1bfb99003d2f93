/* full (whole-sequence decoding) against scripted predictions. */
#include "decode_whole.h"

static um_status start(bench *b, um_decoding how, int32_t max_tokens, um_err *err) {
    return start_with(b, &um_strategy_full, how, max_tokens, 0, err);
}

static void fixes_a_scheduled_number_of_the_surest(void **state) {
    (void)state;
    bench b;
    assert_int_equal(start(&b, (um_decoding){.gen_length = 4, .block_size = 4, .steps = 3}, 4, NULL), UM_OK);
    step(&b, (float[]){.90F, .40F, .75F, .20F}); /* 4 masks in 3 passes: 2, 1, 1 */
    assert_int_equal(b.req.n_new, 2);
    assert_int_equal(b.token[P], 103);
    assert_int_equal(b.token[P + 2], 105);
    step(&b, (float[]){0, .60F, 0, .50F});
    assert_int_equal(b.token[P + 1], 104);
    step(&b, (float[]){0, 0, 0, .1F});
    assert_int_equal(b.req.finish, UM_FINISH_MAX_TOKENS);
    assert_int_equal(b.req.nfe, 3);
    assert_int_equal(b.req.n_answer, 4);
    end(&b);
}

static void fills_blocks_from_left_to_right(void **state) {
    (void)state;
    bench b;
    assert_int_equal(start(&b, (um_decoding){.gen_length = 8, .block_size = 4, .steps = 8}, 8, NULL), UM_OK);
    static const float rising[] = {.1F, .2F, .3F, .4F, .5F, .6F, .7F, .8F};
    for (int i = 0; i < 4; i++) {
        step(&b, rising);
        assert_int_equal(b.token[P + 3 - i], 100 + P + 3 - i);
        assert_int_equal(b.token[P + 4], MASK);
        assert_int_equal(b.pass.n_tokens, P + 8); /* everything is fed */
    }
    step(&b, rising);
    assert_int_equal(b.token[P + 7], 110);
    end(&b);
}

static void a_short_last_block_is_filled_too(void **state) {
    (void)state;
    bench b;
    static const float same[16] = {0};
    assert_int_equal(start(&b, (um_decoding){.gen_length = 7, .block_size = 4}, 7, NULL), UM_OK);
    while (!b.req.finish) step(&b, same);
    assert_int_equal(b.req.n_answer, 7);
    assert_int_equal(b.req.nfe, 7);
    end(&b);
}

static void stops_early_when_everything_before_eos_is_known(void **state) {
    (void)state;
    bench b;
    assert_int_equal(start(&b, (um_decoding){.gen_length = 8, .block_size = 8, .steps = 8}, 8, NULL), UM_OK);
    for (int i = 0; i < 2; i++) {
        plan(&b);
        for (int32_t k = 0; k < b.pass.n_rows; k++) {
            int32_t pos = b.pos[b.row[k].src[0]];
            b.answer[k] = (um_answer){.sample = pos == P + 1 ? EOS : 50,
                                      .p_sample = pos == P + 1 ? .9F
                                                  : pos == P   ? .8F
                                                               : .1F};
        }
        b.req.strategy->apply(&b.req, b.answer);
    }
    assert_int_equal(b.req.finish, UM_FINISH_EOS);
    assert_int_equal(b.req.n_answer, 1);
    assert_int_equal(b.req.nfe, 2);
    end(&b);
}

static void guidance_feeds_a_masked_prompt_beside_the_real_one(void **state) {
    (void)state;
    bench b;
    assert_int_equal(start(&b, (um_decoding){.gen_length = 4, .block_size = 4, .cfg_scale = 0.5F}, 4, NULL), UM_OK);
    plan(&b);
    assert_int_equal(b.pass.n_seg, 2);
    assert_int_equal(b.pass.n_tokens, 2 * (P + 4));
    for (int i = 0; i < P; i++) assert_int_equal(b.seg[1].id[i], MASK);
    assert_true(b.seg[1].page[0] != b.seg[0].page[0]);
    assert_int_equal(b.row[0].src[0], P);
    assert_int_equal(b.row[0].src[1], P + 4 + P);
    assert_true(b.row[0].w[0] == 1.5F && b.row[0].w[1] == -0.5F);
    end(&b);
}

static void random_choice_depends_on_the_seed_alone(void **state) {
    (void)state;
    static const float same[16] = {0};
    int32_t first[4][8];
    for (int i = 0; i < 4; i++) {
        bench b;
        um_decoding how = {.gen_length = 8, .block_size = 8, .steps = 2, .sampler = "random"};
        assert_int_equal(start(&b, how, 8, NULL), UM_OK);
        b.req.seed = i < 2 ? 7 : (uint64_t)(8 + i);
        step(&b, same);
        memcpy(first[i], b.token + P, sizeof(first[i]));
        end(&b);
    }
    assert_memory_equal(first[0], first[1], sizeof(first[0]));
    assert_true(memcmp(first[0], first[2], sizeof(first[0])) != 0 || memcmp(first[0], first[3], sizeof(first[0])) != 0);
}

static void names_the_arithmetic_of_what_does_not_fit(void **state) {
    (void)state;
    bench b;
    um_err err;
    assert_int_equal(start(&b, (um_decoding){.gen_length = 62}, 8, &err), UM_ERANGE);
    assert_non_null(strstr(err.msg, "3 + gen_length 62 = 65"));
    assert_int_equal(start(&b, (um_decoding){.gen_length = 8, .block_size = 2, .steps = 3}, 8, &err), UM_ERANGE);
    assert_non_null(strstr(err.msg, "3 passes for 4 blocks"));
}

/* 8 masks in 12 passes of Dream's schedule: the first passes commit nothing and are skipped. */
static void passes_that_would_fix_nothing_are_not_run(void **state) {
    (void)state;
    bench b;
    static const float falling[] = {.9F, .8F, .7F, .6F, .5F, .4F, .3F, .2F};
    um_decoding how = {.gen_length = 8, .steps = 12, .sampler = "maskgit_plus"};
    assert_int_equal(start(&b, how, 8, NULL), UM_OK);
    assert_int_equal(b.req.how.block_size, 8); /* the canvas is one block */
    int32_t left = 8;
    while (!b.req.finish) {
        step(&b, falling);
        assert_true(b.req.n_new > 0);
        left -= b.req.n_new;
    }
    assert_int_equal(left, 0);
    assert_true(b.req.nfe < 12);
    assert_int_equal(b.req.n_answer, 8);
    end(&b);
}

static void origin_runs_no_empty_pass_either(void **state) {
    (void)state;
    static const float same[8] = {0};
    for (uint64_t seed = 0; seed < 50; seed++) {
        bench b;
        assert_int_equal(start(&b, (um_decoding){.gen_length = 8, .sampler = "origin"}, 8, NULL), UM_OK);
        b.req.seed = seed;
        while (!b.req.finish) {
            step(&b, same);
            assert_true(b.req.n_new > 0);
        }
        assert_int_equal(b.req.n_answer, 8);
        end(&b);
    }
}

static void confidence_takes_as_many_passes_as_it_needs(void **state) {
    (void)state;
    bench b;
    um_decoding how = {.gen_length = 8, .block_size = 4, .accept_threshold = .75F, .sampler = "confidence"};
    assert_int_equal(start(&b, how, 8, NULL), UM_OK);
    step(&b, (float[]){.9F, .8F, .1F, .2F, .9F, .9F, .9F, .9F});
    assert_int_equal(b.req.n_new, 2); /* in the first block only */
    step(&b, (float[]){0, 0, .1F, .2F, .9F, .9F, .9F, .9F});
    assert_int_equal(b.req.n_new, 1); /* none is above the threshold: the best one is forced */
    assert_int_equal(b.token[P + 3], 100 + P + 3);
    step(&b, (float[]){0, 0, .1F, 0, .9F, .9F, .9F, .9F});
    step(&b, (float[]){0, 0, 0, 0, .9F, .9F, .9F, .9F});
    assert_int_equal(b.req.n_new, 4);
    assert_int_equal(b.req.finish, UM_FINISH_MAX_TOKENS);
    end(&b);
}

static void steps_contradict_a_sampler_without_a_schedule(void **state) {
    (void)state;
    bench b;
    um_err err;
    um_decoding how = {.gen_length = 8, .steps = 4, .sampler = "confidence"};
    assert_int_equal(start(&b, how, 8, &err), UM_EINVAL);
    assert_non_null(strstr(err.msg, "follows no schedule"));
    strcpy(how.sampler, "gumbel");
    assert_int_equal(start(&b, how, 8, &err), UM_EINVAL);
    assert_non_null(strstr(err.msg, "no sampler is named \"gumbel\""));
}

/* With shifted predictions the row of position p - 1 predicts p: the last row of the prompt predicts the first answer
 * position. */
static void shifted_predictions_come_from_the_left_neighbour(void **state) {
    (void)state;
    bench b;
    um_decoding how = {.gen_length = 4, .sampler = "entropy"};
    assert_int_equal(start_with(&b, &um_strategy_full, how, 4, 1, NULL), UM_OK);
    plan(&b);
    for (int32_t i = 0; i < 4; i++) assert_int_equal(b.row[i].src[0], P + i - 1);
    assert_true(b.row[0].want & UM_WANT_ENTROPY);
    end(&b);
}

/* Nine positions in blocks of four, nine passes: the short last block gets one pass, not a third of them. */
static void a_pass_per_position_is_one_in_short_blocks_too(void **state) {
    (void)state;
    bench b;
    static const float same[16] = {0};
    assert_int_equal(start(&b, (um_decoding){.gen_length = 9, .block_size = 4}, 9, NULL), UM_OK);
    while (!b.req.finish) {
        step(&b, same);
        assert_int_equal(b.req.n_new, 1);
    }
    assert_int_equal(b.req.nfe, 9);
    end(&b);
}

static void no_key_outlives_its_pass(void **state) {
    (void)state;
    bench b;
    assert_int_equal(start(&b, (um_decoding){.gen_length = 8, .cfg_scale = 1}, 8, NULL), UM_OK);
    um_need n = b.req.strategy->need(&b.req);
    assert_int_equal(n.slots_max, 0);
    assert_int_equal(n.tables, 0);
    assert_int_equal(n.tokens, 22);
    assert_int_equal(n.scratch, 2 * 16); /* two pages for each of two segments of 11 */
    plan(&b);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++) assert_int_equal(b.seg[i].page[k], SCRATCH + 2 * i + k);
    assert_int_equal(b.pass.n_scratch, 4);
    end(&b);
}

/* A pass remasks fewer tokens than it commits, the least probable first. Text appears when the block is complete. */
static void remasking_takes_back_what_the_model_doubts(void **state) {
    (void)state;
    bench b;
    um_decoding how = {
        .gen_length = 4, .block_size = 4, .accept_threshold = .6F, .remask_threshold = .3F, .sampler = "confidence"};
    assert_int_equal(start(&b, how, 4, NULL), UM_OK);
    step(&b, (float[]){.9F, .1F, .1F, .1F});
    assert_int_equal(b.pass.n_rows, 4);
    assert_int_equal(b.req.filled, P); /* the first token may still change */
    step(&b, (float[]){.2F, .7F, .1F, .1F});
    assert_int_equal(b.pass.n_rows, 4); /* three masks, and one token that remasking checks */
    assert_true(b.row[3].want & UM_WANT_PROB_OF);
    assert_int_equal(b.row[3].id, 100 + P);
    assert_false(um_req_masked(&b.req, P)); /* one was committed, so none is remasked */
    step(&b, (float[]){.2F, .1F, .8F, .7F});
    assert_int_equal(b.req.finish, UM_FINISH_MAX_TOKENS); /* nothing is remasked in a complete block */
    end(&b);
    assert_int_equal(start(&b, how, 4, NULL), UM_OK);
    step(&b, (float[]){.9F, .1F, .1F, .1F});
    step(&b, (float[]){.2F, .7F, .8F, .1F});
    assert_true(um_req_masked(&b.req, P)); /* two were committed, one is remasked */
    assert_false(b.req.finish);
    step(&b, (float[]){.9F, .1F, .1F, .9F});
    assert_int_equal(b.req.n_answer, 4);
    assert_int_equal(b.written[P], 3);
    end(&b);
}

static void samplers_of_blocks_are_refused(void **state) {
    (void)state;
    bench b;
    um_err err;
    assert_int_equal(start(&b, (um_decoding){.gen_length = 8, .sampler = "edit"}, 8, &err), UM_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "edit needs the blocks of block diffusion, which strategy full does not have"));
}

static void canvas_longer_than_max_tokens_is_cut(void **state) {
    (void)state;
    bench b;
    static const float falling[] = {.9F, .8F, .7F, .6F, .5F, .4F, .3F, .2F};
    assert_int_equal(start(&b, (um_decoding){.gen_length = 8, .block_size = 8}, 3, NULL), UM_OK);
    while (!b.req.finish) step(&b, falling);
    assert_int_equal(b.req.finish, UM_FINISH_MAX_TOKENS);
    assert_int_equal(b.req.n_answer, 3);
    end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixes_a_scheduled_number_of_the_surest),
        cmocka_unit_test(fills_blocks_from_left_to_right),
        cmocka_unit_test(a_short_last_block_is_filled_too),
        cmocka_unit_test(stops_early_when_everything_before_eos_is_known),
        cmocka_unit_test(guidance_feeds_a_masked_prompt_beside_the_real_one),
        cmocka_unit_test(random_choice_depends_on_the_seed_alone),
        cmocka_unit_test(names_the_arithmetic_of_what_does_not_fit),
        cmocka_unit_test(a_pass_per_position_is_one_in_short_blocks_too),
        cmocka_unit_test(no_key_outlives_its_pass),
        cmocka_unit_test(remasking_takes_back_what_the_model_doubts),
        cmocka_unit_test(samplers_of_blocks_are_refused),
        cmocka_unit_test(canvas_longer_than_max_tokens_is_cut),
        cmocka_unit_test(passes_that_would_fix_nothing_are_not_run),
        cmocka_unit_test(origin_runs_no_empty_pass_either),
        cmocka_unit_test(confidence_takes_as_many_passes_as_it_needs),
        cmocka_unit_test(steps_contradict_a_sampler_without_a_schedule),
        cmocka_unit_test(shifted_predictions_come_from_the_left_neighbour),
    };
    return cmocka_run_group_tests_name("full", tests, NULL, NULL);
}
