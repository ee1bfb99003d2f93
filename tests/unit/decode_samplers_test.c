/* Scheduled samplers, properties that all samplers share, and the tables of strategies, samplers and rules. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "decode/decode.h"

/* Lets the sampler decide. Writes the chosen candidates to out and returns their number. */
static int32_t run(const um_sampler *s, const um_sampler_input *c, int32_t *out) {
    int32_t id[64];
    um_decision d = {.at = out, .id = id};
    s->accept(c, &d);
    return d.n;
}

/* Lets a scheduled sampler commit `keep` of four candidates, with `alg_temp` and `seed`. */
static int32_t fix(const um_sampler *s, const um_answer *a, int32_t keep, float alg_temp, uint64_t seed, int32_t *out) {
    static const int32_t position[] = {10, 11, 12, 13};
    float score[4];
    um_decoding how = {.alg_temp = alg_temp};
    um_sampler_input c = {
        .answer = a, .position = position, .n = 4, .how = &how, .seed = seed, .keep = keep, .rate = .5, .score = score};
    return run(s, &c, out);
}

static void equal_scores_go_to_the_left_position(void **state) {
    (void)state;
    um_answer a[] = {{.p_sample = .1F}, {.p_sample = .9F}, {.p_sample = .5F}, {.p_sample = .9F}};
    int32_t out[4];
    assert_int_equal(fix(&um_sampler_low_confidence, a, 3, 0, 0, out), 3);
    assert_int_equal(out[0], 1);
    assert_int_equal(out[1], 3);
    assert_int_equal(out[2], 2);
}

/* Four candidates. Each sampler prefers a different one. */
static void samplers_rank_by_their_own_score(void **state) {
    (void)state;
    um_answer a[] = {{.p_sample = .9F, .q_sample = .1F, .q_best = .5F, .q_second = .4F, .entropy = 3},
                     {.p_sample = .1F, .q_sample = .9F, .q_best = .9F, .q_second = .8F, .entropy = 2},
                     {.p_sample = .1F, .q_sample = .2F, .q_best = .6F, .q_second = .1F, .entropy = 4},
                     {.p_sample = .1F, .q_sample = .3F, .q_best = .5F, .q_second = .4F, .entropy = 1}};
    const um_sampler *s[] = {&um_sampler_low_confidence, &um_sampler_maskgit_plus, &um_sampler_topk_margin,
                             &um_sampler_entropy, &um_sampler_linear_entropy};
    const int32_t first[] = {0, 1, 2, 3, 3};
    for (size_t i = 0; i < UM_LEN(s); i++) {
        int32_t out[4];
        assert_int_equal(fix(s[i], a, 1, 0, 0, out), 1);
        assert_int_equal(out[0], first[i]);
    }
}

/* A model with broken weights predicts NaN. Each position is still committed once. */
static void scores_that_are_no_numbers_come_last(void **state) {
    (void)state;
    um_answer a[] = {{.p_sample = NAN}, {.p_sample = -INFINITY}, {.p_sample = .5F}, {.p_sample = NAN}};
    int32_t out[4];
    assert_int_equal(fix(&um_sampler_low_confidence, a, 4, 0, 0, out), 4);
    assert_int_equal(out[0], 2);
    assert_int_equal(out[1], 0);
    assert_int_equal(out[2], 1);
    assert_int_equal(out[3], 3);
}

/* With scores ln w and alg_temp 1, candidate i comes first in a share w_i / sum(w) of all draws. */
static void alg_temp_draws_positions_by_their_scores(void **state) {
    (void)state;
    um_answer a[4];
    int32_t out[4], count[4] = {0};
    for (int i = 0; i < 4; i++) a[i].entropy = -logf((float)(i + 1));
    for (uint64_t seed = 0; seed < 20000; seed++) {
        fix(&um_sampler_entropy, a, 1, 1, seed, out);
        count[out[0]]++;
    }
    for (int i = 0; i < 4; i++) assert_true(abs(count[i] - 2000 * (i + 1)) < 250); /* more than 5 standard deviations */
}

static void origin_fixes_each_position_by_itself(void **state) {
    (void)state;
    um_answer a[4] = {{0}};
    int32_t out[4], count[4] = {0}, all = 0;
    for (uint64_t seed = 0; seed < 10000; seed++) {
        int32_t n = fix(&um_sampler_origin, a, 0, 0, seed, out);
        for (int32_t i = 0; i < n; i++) count[out[i]]++;
        all += n == 4;
    }
    for (int i = 0; i < 4; i++) assert_true(abs(count[i] - 5000) < 250);
    assert_true(abs(all - 625) < 125);
}

/* Dream's schedule for 8 masks, 4 passes and eps 0.001. */
static void the_time_schedule_is_dreams(void **state) {
    (void)state;
    static const double rate[] = {.24975, .33289, .49900, 1};
    static const int32_t count[] = {1, 2, 2, 3};
    int32_t masks = 8;
    for (int32_t i = 0; i < 4; i++) {
        assert_true(fabs(um_schedule_rate(.001, i, 4) - rate[i]) < 1e-5);
        int32_t n = um_schedule_count(UM_SCHEDULE_TIME, .001, i, 4, masks, 8);
        assert_int_equal(n, count[i]);
        masks -= n;
    }
}

/* Runs a schedule to its end, when no mask may be left. */
static void expect_counts(um_schedule s, int32_t len, const int32_t *want, int32_t n) {
    int32_t masks = len;
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(um_schedule_count(s, .001, i, n, masks, len), want[i]);
        masks -= want[i];
    }
    assert_int_equal(masks, 0);
}

static void even_and_linear_schedules_round_differently(void **state) {
    (void)state;
    expect_counts(UM_SCHEDULE_EVEN, 10, (int32_t[]){3, 3, 2, 2}, 4);
    expect_counts(UM_SCHEDULE_LINEAR, 10, (int32_t[]){3, 2, 3, 2}, 4);
    expect_counts(UM_SCHEDULE_EVEN, 32, (int32_t[]){4, 4, 3, 3, 3, 3, 3, 3, 3, 3}, 10);
    expect_counts(UM_SCHEDULE_LINEAR, 2, (int32_t[]){1, 0, 1, 0}, 4);
}

/* ---- All samplers ------------------------------------------------------------------------------------------------ */

enum { MASK = 500, VOCAB = 6, MAX = 24 };

/* A block that a sampler decodes with a model that answers at random. */
typedef struct block {
    um_req req;
    um_compat compat;
    um_sampler_input c;
    int32_t len, token[MAX];        /* of the block */
    int32_t position[MAX], is[MAX]; /* of its candidates */
    um_answer answer[MAX];
    um_top top[MAX][UM_TOP_MAX];
    float score[MAX];
} block;

/* Starts a block at position 37, which is no multiple of a block length. */
static void start(block *b, const um_sampler *s, int32_t len, uint64_t seed) {
    um_option_set sets[UM_DECODE_SETS_MAX];
    *b = (block){.len = len};
    size_t n = um_decode_option_sets(sets, &b->req.how, &b->req.sampling);
    for (size_t i = 0; i < n; i++) um_options_init(sets[i].rows, sets[i].n, sets[i].base);
    b->req.how.accept_threshold = .9F;
    b->req.how.denoising_steps = (int32_t)(seed % 7);
    b->req.how.confidence = (int32_t)(seed % 3);
    b->req.how.max_post_edit_steps = (int32_t)(seed % 5);
    b->req.how.dmax_fast_path = seed % 2;
    b->req.compat = &b->compat;
    for (int32_t i = 0; i < len; i++) b->token[i] = UM_MASKED;
    b->c = (um_sampler_input){.answer = b->answer,

                              .position = b->position,
                              .token = b->is,
                              .previous = UM_MASKED,
                              .block_len = len,
                              .how = &b->req.how,
                              .compat = &b->compat,
                              .seed = seed,
                              .mask_id = MASK,
                              .forced = true,
                              .score = b->score,
                              .memory = s->memory ? um_zalloc(s->memory(&b->req, len)) : NULL};
}

/* Answers candidate i with random probabilities of VOCAB ids, one in a hundred of them broken. */
static void answer(block *b, int32_t i) {
    um_answer *a = &b->answer[i];
    float p[VOCAB], sum = 0;
    *a = (um_answer){0};
    for (int32_t v = 0; v < VOCAB; v++) {
        uint64_t key = um_rng_key(b->c.seed, (uint64_t)i, (uint64_t)b->c.count, 77);
        p[v] = expf(6 * (float)um_rng_uniform(key, (uint64_t)v));
        sum += p[v];
    }
    for (int32_t v = 0; v < VOCAB; v++) {
        p[v] = b->c.seed % 100 == 99 ? NAN : p[v] / sum;
        a->entropy -= p[v] * logf(p[v]);
        if (p[v] > p[a->best]) a->best = v;
        b->top[i][v] = (um_top){.id = v, .p = p[v], .q = p[v]};
    }
    b->top[i][VOCAB].id = -1;
    a->top = b->top[i];
    a->sample = a->best;
    a->second = (a->best + 1) % VOCAB;
    a->p_best = a->p_sample = a->q_best = a->q_sample = p[a->best];
    a->p_second = a->q_second = p[a->second];
}

/* Runs one pass. Tells whether the block is complete. */
static bool pass(block *b, const um_sampler *s) {
    int32_t at[MAX], id[MAX], masks = 0;
    um_decision d = {.at = at, .id = id};
    um_edit *edit = s->edits_max ? um_zalloc(sizeof(um_edit) * (size_t)UM_MAX(s->edits_max(&b->req), 1)) : NULL;
    b->c.n = b->c.n_masks = 0;
    for (int32_t i = 0; i < b->len; i++) {
        b->c.n_masks += b->token[i] == UM_MASKED;
        if (b->token[i] != UM_MASKED && !s->edits) continue;
        b->position[b->c.n] = 37 + i;
        b->is[b->c.n++] = b->token[i];
    }
    masks = b->c.n_masks;
    b->c.post_edit_steps += masks == 0;
    b->c.keep = um_schedule_count(s->schedule, .001, b->c.count, b->len, masks, b->len);
    b->c.rate = um_schedule_rate(.001, b->c.count, b->len);
    for (int32_t i = 0; i < b->c.n; i++) {
        if (s->edit) assert_in_range(s->edit(&b->c, i, edit), 0, s->edits_max(&b->req));
        answer(b, i);
    }
    um_free(edit);
    s->accept(&b->c, &d);
    assert_in_range(d.n, 0, b->c.n);
    for (int32_t k = 0; k < d.n; k++) {
        int32_t *token = &b->token[b->position[at[k]] - 37];
        assert_in_range(at[k], 0, b->c.n - 1);
        assert_in_range(id[k], 0, VOCAB - 1);
        assert_int_not_equal(*token, id[k]); /* no position is written twice or with the token it has */
        masks -= *token == UM_MASKED;
        *token = id[k];
    }
    bool unscheduled = s->schedule == UM_SCHEDULE_NONE;
    assert_true(!unscheduled || b->c.n_masks == 0 || masks < b->c.n_masks);
    b->c.count++;
    b->c.total_steps++;
    return masks == 0 && (!s->edits || d.committable);
}

/* Every block ends within a bound: one pass per position, and for samplers that edit max_post_edit_steps + 1 more. */
static void every_sampler_ends_whatever_the_model_says(void **state) {
    (void)state;
    for (size_t k = 0; um_samplers[k]; k++) {
        for (uint64_t seed = 0; seed < 300; seed++) {
            block b;
            start(&b, um_samplers[k], 1 + (int32_t)(seed % MAX), seed);
            int32_t passes = 1, most = b.len + (um_samplers[k]->edits ? b.req.how.max_post_edit_steps + 1 : 0);
            while (!pass(&b, um_samplers[k])) assert_true(++passes <= most);
            um_free(b.c.memory);
        }
    }
}

static void every_sampler_takes_a_block_without_candidates(void **state) {
    (void)state;
    for (size_t k = 0; um_samplers[k]; k++) {
        for (int forced = 0; forced < 2; forced++) {
            block b;
            int32_t at[1], id[1];
            um_decision d = {.at = at, .id = id};
            start(&b, um_samplers[k], 4, 0);
            b.c.forced = forced;
            um_samplers[k]->accept(&b.c, &d);
            assert_int_equal(d.n, 0);
            um_free(b.c.memory);
        }
    }
}

/* A forced block accepts everything that a block accepts which may not be forced. */
static void force_only_adds(void **state) {
    (void)state;
    for (size_t k = 0; um_samplers[k]; k++) {
        const um_sampler *s = um_samplers[k];
        if (s->schedule != UM_SCHEDULE_NONE || s->edits) continue;
        for (uint64_t seed = 0; seed < 99; seed++) {
            bool taken[2][MAX] = {{0}};
            int32_t n[2];
            for (int forced = 0; forced < 2; forced++) {
                block b;
                start(&b, s, MAX, seed);
                b.c.forced = forced;
                int32_t at[MAX], id[MAX];
                um_decision d = {.at = at, .id = id};
                for (b.c.n = 0; b.c.n < MAX; b.c.n++) {
                    b.position[b.c.n] = 37 + b.c.n;
                    b.is[b.c.n] = UM_MASKED;
                    answer(&b, b.c.n);
                }
                s->accept(&b.c, &d);
                for (int32_t i = 0; i < d.n; i++) taken[forced][at[i]] = true;
                n[forced] = d.n;
                um_free(b.c.memory);
            }
            for (int32_t i = 0; i < MAX; i++) assert_true(!taken[0][i] || taken[1][i]);
            assert_true(n[1] > 0);
        }
    }
}

/* ---- Tables ------------------------------------------------------------------------------------------------------ */

/* Every row has what `unmask list` prints (name, summary, source), and defaults within their range. */
static void tables_are_whole(void **state) {
    (void)state;
    for (size_t i = 0; um_strategies[i]; i++) {
        const um_strategy *s = um_strategies[i], *found = NULL;
        assert_true(s->name && s->summary && s->source);
        assert_int_equal(um_strategy_find(&found, s->name, NULL), UM_OK);
        assert_ptr_equal(found, s);
        for (size_t k = i + 1; um_strategies[k]; k++) assert_string_not_equal(s->name, um_strategies[k]->name);
    }
    for (size_t i = 0; um_samplers[i]; i++) {
        const um_sampler *s = um_samplers[i], *found = NULL;
        assert_true(s->name && s->summary && s->source);
        assert_int_equal(um_sampler_find(&found, s->name, NULL), UM_OK);
        assert_ptr_equal(found, s);
        for (size_t k = 0; um_samplers[k]; k++) {
            assert_true(k == i || !um_streq(s->name, um_samplers[k]->name));
            assert_false(um_name_in(um_samplers[k]->aliases, s->name));
        }
    }
}

static void option_names_are_unique_over_all_sets(void **state) {
    (void)state;
    um_decoding d = {0};
    um_sampling_params p = {0};
    um_option_set sets[UM_DECODE_SETS_MAX];
    size_t n = um_decode_option_sets(sets, &d, &p);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < sets[i].n; k++)
            for (size_t j = i; j < n; j++)
                for (size_t m = j == i ? k + 1 : 0; m < sets[j].n; m++)
                    assert_string_not_equal(sets[i].rows[k].name, sets[j].rows[m].name);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_scores_go_to_the_left_position),
        cmocka_unit_test(samplers_rank_by_their_own_score),
        cmocka_unit_test(scores_that_are_no_numbers_come_last),
        cmocka_unit_test(alg_temp_draws_positions_by_their_scores),
        cmocka_unit_test(origin_fixes_each_position_by_itself),
        cmocka_unit_test(the_time_schedule_is_dreams),
        cmocka_unit_test(even_and_linear_schedules_round_differently),
        cmocka_unit_test(every_sampler_ends_whatever_the_model_says),
        cmocka_unit_test(every_sampler_takes_a_block_without_candidates),
        cmocka_unit_test(force_only_adds),
        cmocka_unit_test(tables_are_whole),
        cmocka_unit_test(option_names_are_unique_over_all_sets),
    };
    return cmocka_run_group_tests_name("samplers and tables", tests, NULL, NULL);
}
