/* prefix_cache, dual_cache and sparse against scripted predictions: what passes feed and which keys they see. */
#include "decode_whole.h"

enum { N = P + 8 };

static const float falling[8] = {.9F, .8F, .7F, .6F, .5F, .4F, .3F, .2F};
static const float rising[8] = {.2F, .3F, .4F, .5F, .6F, .7F, .8F, .9F};

/* Starts a request with eight masks in blocks of four, one pass for each mask. */
static void start(bench *b, const um_strategy *s, um_decoding how, int32_t shift) {
    um_err err;
    how.gen_length = 8;
    how.block_size = 4;
    if (s == &um_strategy_sparse && how.pool_kernel == 0) how.pool_kernel = 3;
    if (start_with(b, s, how, 8, shift, &err)) fail_msg("%s", err.msg);
}

static void assert_fed(const bench *b, int seg, int32_t first, int32_t stop) {
    const um_segment *s = &b->seg[seg];
    assert_int_equal(s->n, stop - first);
    for (int32_t i = 0; i < s->n; i++) assert_int_equal(s->pos[i], first + i);
}

static void assert_keys(const bench *b, int seg, int32_t stop, int32_t hole, int32_t hole_end) {
    assert_int_equal(b->seg[seg].keys.start, 0);
    assert_int_equal(b->seg[seg].keys.end, stop);
    assert_int_equal(b->seg[seg].hole.start, hole);
    assert_int_equal(b->seg[seg].hole.end, hole_end);
}

/* ---- prefix_cache, dual_cache ------------------------------------------------------------------------------------ */

static void check_passes(const um_strategy *s, int32_t stop_of_first, int32_t stop_of_second) {
    bench b;
    start(&b, s, (um_decoding){0}, 0);
    for (int32_t pass = 0; pass < 8; pass++) {
        um_need n = s->need(&b.req);
        int32_t first = pass % 4 ? P + pass / 4 * 4 : 0;
        int32_t stop = pass % 4 == 0 ? N : pass < 4 ? stop_of_first : stop_of_second;
        assert_int_equal(n.refresh, pass % 4 == 0);
        assert_int_equal(n.tokens, stop - first);
        assert_int_equal(n.slots, N);
        assert_int_equal(n.scratch, 0);
        step(&b, falling);
        assert_fed(&b, 0, first, stop);
        assert_keys(&b, 0, N, 0, 0);
        assert_ptr_equal(b.seg[0].page, b.page[0]);
        assert_int_equal(b.pass.n_rows, 4 - pass % 4); /* of the block only */
        assert_int_equal(b.req.n_new, 1);
    }
    assert_int_equal(b.req.finish, UM_FINISH_MAX_TOKENS);
    end(&b);
}

static void prefix_cache_feeds_the_block_and_what_follows(void **state) {
    (void)state;
    check_passes(&um_strategy_prefix_cache, N, N);
}

static void dual_cache_feeds_the_block_alone(void **state) {
    (void)state;
    check_passes(&um_strategy_dual_cache, P + 4, P + 8);
}

/* The schedules of Dream and RND1 cover the whole canvas. Where keys are reused they run block by block, as in
 * Fast-dLLM for Dream; otherwise nothing could be reused. */
static void schedules_over_the_canvas_run_in_blocks_where_keys_are_reused(void **state) {
    const um_strategy *const reuse[] = {&um_strategy_prefix_cache, &um_strategy_dual_cache, &um_strategy_sparse};
    static const char *const samplers[] = {"origin", "maskgit_plus", "topk_margin", "entropy", "linear_entropy"};
    (void)state;
    for (size_t i = 0; i < UM_LEN(samplers); i++) {
        um_decoding how = {.gen_length = 48, .sparse = true, .retention_ratio = .5F, .pool_kernel = 3};
        snprintf(how.sampler, sizeof how.sampler, "%s", samplers[i]);
        um_err err;
        bench b;
        assert_int_equal(start_with(&b, &um_strategy_full, how, 48, 1, &err), UM_OK);
        assert_int_equal(b.req.how.block_size, 48);
        end(&b);
        for (size_t k = 0; k < UM_LEN(reuse); k++) {
            assert_int_equal(start_with(&b, reuse[k], how, 48, 1, &err), UM_OK);
            assert_int_equal(b.req.how.block_size, 32);
            end(&b);
        }
    }
}

static void guidance_keeps_keys_of_both_copies(void **state) {
    (void)state;
    bench b;
    start(&b, &um_strategy_dual_cache, (um_decoding){.cfg_scale = 1}, 0);
    assert_int_equal(um_strategy_dual_cache.need(&b.req).tables, 2);
    step(&b, falling);
    for (int i = 0; i < P; i++) assert_int_equal(b.seg[1].id[i], MASK);
    step(&b, falling);
    assert_int_equal(b.pass.n_seg, 2);
    for (int i = 0; i < 2; i++) {
        assert_fed(&b, i, P, P + 4);
        assert_keys(&b, i, N, 0, 0);
        assert_ptr_equal(b.seg[i].page, b.page[i]);
    }
    assert_int_equal(b.row[0].src[1] - b.row[0].src[0], 4);
    assert_int_equal(b.seg[1].id[0], 100 + P); /* both segments have the same tokens behind the prompt */
    end(&b);
}

/* Only the first pass of a block feeds the row before it, so that pass always commits the block's first position. */
static void shifted_predictions_fix_the_first_position_at_once(void **state) {
    (void)state;
    bench b;
    start(&b, &um_strategy_dual_cache, (um_decoding){.steps = 4}, 1);
    step(&b, rising); /* two positions a pass: the best one and the first one */
    assert_int_equal(b.req.n_new, 2);
    assert_false(um_req_masked(&b.req, P));
    assert_false(um_req_masked(&b.req, P + 3));
    step(&b, rising);
    assert_int_equal(b.row[0].src[0], 0); /* position P + 1, from the block's own first row */
    assert_false(um_req_masked(&b.req, P + 2));
    end(&b);

    start(&b, &um_strategy_dual_cache, (um_decoding){.accept_threshold = .45F, .sampler = "confidence"}, 1);
    step(&b, rising);
    assert_int_equal(b.req.n_new, 2); /* the first position is committed in addition to those above the threshold */
    end(&b);

    start(&b, &um_strategy_dual_cache, (um_decoding){.steps = 4}, 0);
    step(&b, rising);
    assert_true(um_req_masked(&b.req, P)); /* without shift the first position has no privilege */
    end(&b);
}

/* A partial pass computes the lost keys again, from the tokens that were fed when they were stored. */
static void check_rebuild(const um_strategy *s, um_decoding how) {
    bench b, undisturbed;
    start(&b, s, how, 0);
    start(&undisturbed, s, how, 0);
    for (int i = 0; i < 6; i++) {
        step(&b, falling);
        step(&undisturbed, falling);
    }
    s->preempt(&b.req);
    um_need n = s->need(&b.req);
    assert_int_equal(n.tokens, N);
    plan(&b);
    assert_true(b.pass.partial);
    assert_int_equal(b.pass.n_rows, 0);
    assert_fed(&b, 0, 0, N);
    for (int32_t p = 0; p < P + 4; p++) assert_int_equal(b.seg[0].id[p], b.token[p]);
    /* Pass 5 started the second block and committed its first position. With delay_step 1 pass 6 selected keys. */
    assert_int_equal(b.seg[0].id[P + 4], s == &um_strategy_sparse ? 100 + P + 4 : MASK);
    for (int32_t p = P + 5; p < N; p++) assert_int_equal(b.seg[0].id[p], MASK);
    s->apply(&b.req, NULL);
    assert_int_equal(b.req.nfe, 6);
    for (int i = 0; i < 2; i++) {
        step(&b, falling);
        step(&undisturbed, falling);
        assert_int_equal(b.pass.n_tokens, undisturbed.pass.n_tokens);
        assert_memory_equal(b.token, undisturbed.token, sizeof(b.token));
        assert_memory_equal(b.written, undisturbed.written, sizeof(b.written));
    }
    assert_int_equal(b.req.finish, UM_FINISH_MAX_TOKENS);
    end(&b);
    end(&undisturbed);
}

static void lost_keys_are_computed_as_they_were(void **state) {
    (void)state;
    check_rebuild(&um_strategy_prefix_cache, (um_decoding){0});
    check_rebuild(&um_strategy_dual_cache, (um_decoding){0});
    check_rebuild(&um_strategy_sparse, (um_decoding){.sparse = true, .retention_ratio = .5F, .delay_step = 1});
}

static void nothing_is_lost_before_a_block_has_begun(void **state) {
    (void)state;
    bench b;
    start(&b, &um_strategy_prefix_cache, (um_decoding){0}, 0);
    for (int i = 0; i < 4; i++) step(&b, falling);
    um_strategy_prefix_cache.preempt(&b.req);
    plan(&b);
    assert_false(b.pass.partial);
    assert_int_equal(b.pass.n_rows, 4);
    end(&b);
}

/* ---- sparse ------------------------------------------------------------------------------------------------------ */

static void sparse_keeps_keys_once_a_block(void **state) {
    (void)state;
    for (int32_t delay = 0; delay < 4; delay++) {
        bench b;
        start(&b, &um_strategy_sparse, (um_decoding){.sparse = true, .retention_ratio = .5F, .delay_step = delay}, 0);
        for (int32_t pass = 0; pass < 8; pass++) {
            int32_t start_of_block = P + pass / 4 * 4;
            bool all = pass % 4 <= delay;
            um_need n = um_strategy_sparse.need(&b.req);
            step(&b, falling);
            assert_int_equal(n.refresh, all);
            assert_int_equal(b.pass.n_selects, pass % 4 == delay);
            assert_fed(&b, 0, all ? 0 : start_of_block, all ? N : start_of_block + 4);
            assert_true(b.seg[0].page[0] == SCRATCH || !all);
        }
        assert_int_equal(b.req.finish, UM_FINISH_MAX_TOKENS);
        end(&b);
    }
}

static void sparse_says_what_is_kept(void **state) {
    (void)state;
    bench b;
    um_decoding how = {.sparse = true, .retention_ratio = .5F, .pool_kernel = 5, .head_select = true, .cfg_scale = 1};
    start(&b, &um_strategy_sparse, how, 0);
    um_need n = um_strategy_sparse.need(&b.req);
    assert_int_equal(n.slots_max, 6); /* half of 11, rounded up */
    assert_int_equal(n.tables, 2);
    plan(&b);
    assert_int_equal(b.pass.n_selects, 2);
    for (int i = 0; i < 2; i++) {
        const um_kv_select *s = b.seg[i].select;
        assert_int_equal(s->block.start, P);
        assert_int_equal(s->block.end, P + 4);
        assert_int_equal(s->n_keep, 3); /* half of the 7 outside the block, rounded down */
        assert_int_equal(s->pool, 5);
        assert_true(s->per_head);
        assert_ptr_equal(s->page, b.page[i]);
    }
    end(&b);
    start(&b, &um_strategy_sparse, (um_decoding){.sparse = true, .retention_ratio = .01F}, 0);
    plan(&b);
    assert_int_equal(b.seg[0].select->n_keep, 1);
    end(&b);
}

/* Kept keys come first in the page table. The block's own keys lie in scratch pages from the next key group on. */
static void sparse_sees_kept_keys_and_the_block(void **state) {
    (void)state;
    bench b;
    start(&b, &um_strategy_sparse, (um_decoding){.sparse = true, .retention_ratio = .5F}, 0);
    assert_int_equal(um_strategy_sparse.need(&b.req).scratch, 16);
    step(&b, falling);
    assert_int_equal(um_strategy_sparse.need(&b.req).scratch, 8);
    plan(&b);
    const um_segment *s = &b.seg[0];
    assert_fed(&b, 0, P, P + 4);
    assert_keys(&b, 0, UM_KEY_GROUP + 4, 3, UM_KEY_GROUP);
    for (int32_t i = 0; i < 4; i++) assert_int_equal(s->vis[i], UM_KEY_GROUP + i);
    assert_int_equal(s->page[0], 10);
    assert_int_equal(s->page[UM_KEY_GROUP / PAGE], SCRATCH);
    assert_int_equal(b.pass.n_scratch, 1);
    end(&b);
}

static void sparse_fixes_the_first_position_in_passes_over_everything(void **state) {
    (void)state;
    bench b;
    start(&b, &um_strategy_sparse, (um_decoding){.sparse = true, .retention_ratio = .5F, .delay_step = 1}, 0);
    step(&b, rising);
    assert_int_equal(b.req.n_new, 1);
    assert_false(um_req_masked(&b.req, P));
    step(&b, rising);
    assert_false(um_req_masked(&b.req, P + 3));
    end(&b);
}

static void sparse_switched_off_is_full(void **state) {
    (void)state;
    bench b;
    start(&b, &um_strategy_sparse, (um_decoding){.retention_ratio = 0, .delay_step = 99}, 0);
    assert_int_equal(um_strategy_sparse.need(&b.req).slots_max, 0);
    assert_int_equal(um_strategy_sparse.need(&b.req).tables, 0);
    for (int i = 0; i < 8; i++) {
        step(&b, rising);
        assert_fed(&b, 0, 0, N);
        assert_int_equal(b.pass.n_selects, 0);
        assert_false(um_req_masked(&b.req, P + i / 4 * 4 + 3 - i % 4)); /* the best of the block */
    }
    end(&b);
}

static void parameters_that_mean_nothing_are_refused(void **state) {
    (void)state;
    bench b;
    um_err err;
    const struct {
        um_decoding how;
        const char *message;
    } wrong[] = {
        {{.pool_kernel = 3}, "retention_ratio: 0 keeps nothing; it is a share above 0, up to 1"},
        {{.retention_ratio = .5F, .pool_kernel = 3, .delay_step = 4}, "delay_step: 4 is outside 0..3 (block_size 4)"},
        {{.retention_ratio = .5F, .pool_kernel = 2}, "pool_kernel: 2 is not odd; it takes 1, 3, 5 .. 255"},
    };
    for (size_t i = 0; i < UM_LEN(wrong); i++) {
        um_decoding how = wrong[i].how;
        how.sparse = true;
        how.block_size = 4;
        assert_int_equal(start_with(&b, &um_strategy_sparse, how, 8, 0, &err), UM_ERANGE);
        assert_string_equal(err.msg, wrong[i].message);
    }
}

static void an_unknown_retention_rule_is_refused_with_those_there_are(void **state) {
    (void)state;
    bench b;
    um_err err;
    um_decoding how = {.sparse = true, .retention = "furthest", .retention_ratio = .5F, .pool_kernel = 3};
    assert_int_equal(start_with(&b, &um_strategy_sparse, how, 8, 0, &err), UM_EINVAL);
    assert_string_equal(err.msg, "retention: no rule is named \"furthest\"; there are: attention");
}

static void models_with_blocks_are_refused(void **state) {
    (void)state;
    const um_strategy *all[] = {&um_strategy_full, &um_strategy_prefix_cache, &um_strategy_dual_cache,
                                &um_strategy_sparse};
    for (size_t i = 0; i < UM_LEN(all); i++) {
        bench b;
        um_err err;
        (void)start_with(&b, all[i], (um_decoding){.retention_ratio = 1, .pool_kernel = 1}, 8, 0, NULL);
        end(&b);
        b.traits.see = UM_SEE_BLOCK_CAUSAL;
        assert_int_equal(all[i]->init(&b.req, &err), UM_EUNSUPPORTED);
        assert_non_null(strstr(err.msg, all[i]->name));
        assert_non_null(strstr(err.msg, "use multi_bd"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefix_cache_feeds_the_block_and_what_follows),
        cmocka_unit_test(dual_cache_feeds_the_block_alone),
        cmocka_unit_test(schedules_over_the_canvas_run_in_blocks_where_keys_are_reused),
        cmocka_unit_test(guidance_keeps_keys_of_both_copies),
        cmocka_unit_test(shifted_predictions_fix_the_first_position_at_once),
        cmocka_unit_test(lost_keys_are_computed_as_they_were),
        cmocka_unit_test(nothing_is_lost_before_a_block_has_begun),
        cmocka_unit_test(sparse_keeps_keys_once_a_block),
        cmocka_unit_test(sparse_says_what_is_kept),
        cmocka_unit_test(sparse_sees_kept_keys_and_the_block),
        cmocka_unit_test(sparse_fixes_the_first_position_in_passes_over_everything),
        cmocka_unit_test(sparse_switched_off_is_full),
        cmocka_unit_test(parameters_that_mean_nothing_are_refused),
        cmocka_unit_test(an_unknown_retention_rule_is_refused_with_those_there_are),
        cmocka_unit_test(models_with_blocks_are_refused),
    };
    return cmocka_run_group_tests_name("reuse of keys over whole sequences", tests, NULL, NULL);
}
