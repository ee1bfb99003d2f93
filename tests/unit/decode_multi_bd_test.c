/* multi_bd against scripted predictions: the block state machine without a model. A script says, for a pass and a
 * position, which token the model would write and with what probability. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "decode/decode.h"

enum { MASK = 999, EOS = 900, CAP = 256 };

typedef struct line {
    int32_t pass, pos, token; /* token 0: 100 + pos */
    float p;
} line;

typedef struct bench {
    um_traits traits;
    um_compat compat;
    um_req req;
    const line *script;
    size_t n_script;
    int32_t stop;
    int32_t token[CAP], id[CAP], pos[CAP];
    int32_t written[CAP];
    um_row row[CAP];
    um_segment seg[2];
    um_answer answer[CAP];
    um_pass pass;
    int32_t page[CAP];
} bench;

static void start(bench *b, const int32_t *prompt, int32_t n, int32_t B, int32_t K, int32_t max_tokens, bool compat) {
    um_decoding how = {.sampler = "auto",
                       .block_size = B,
                       .buffer_size = K,
                       .accept_threshold = 0.9F,
                       .add_block_threshold = 0.1F,
                       .semi_complete_threshold = 0.9F};
    b->stop = EOS;
    b->traits = (um_traits){.mask_id = MASK, .eos = EOS, .stop = &b->stop, .n_stop = 1, .see = UM_SEE_BLOCK_CAUSAL};
    b->compat = (um_compat){.allocated_limits = compat, .eos_drains = compat, .threshold = NAN};
    um_req *r = &b->req;
    *r = (um_req){.traits = &b->traits,
                  .compat = &b->compat,
                  .strategy = &um_strategy_multi_bd,
                  .how = how,
                  .sampling = {.max_tokens = max_tokens, .max_nfe = 50},
                  .n_prompt = n,
                  .max_len = 200,
                  .limit = UM_MIN(200, n + max_tokens),
                  .cap = CAP,
                  .page = {b->page, NULL},
                  .token = b->token,
                  .written = b->written,
                  .end = n,
                  .filled = n,
                  .settled = INT32_MAX,
                  .adapter = -1};
    for (int32_t i = 0; i < CAP; i++) {
        b->token[i] = i < n ? prompt[i] : MASK;
        b->written[i] = i < n ? 0 : -1;
    }
    b->pass = (um_pass){.seg = b->seg, .row = b->row, .id = b->id, .pos = b->pos};
    assert_int_equal(r->strategy->init(r, NULL), UM_OK);
}

static void end(bench *b) { b->req.strategy->free(&b->req); }

static um_answer answer_for(const bench *b, int32_t pass, int32_t pos) {
    um_answer a = {.sample = 100 + pos, .q_sample = 0.05F};
    for (size_t i = 0; i < b->n_script; i++) {
        if (b->script[i].pass != pass || b->script[i].pos != pos) continue;
        a.q_sample = b->script[i].p;
        if (b->script[i].token) a.sample = b->script[i].token;
    }
    return a;
}

/* Plans, answers from the script, applies. The pass stays in b for inspection. */
static void step(bench *b) {
    um_req *r = &b->req;
    b->pass.n_seg = b->pass.n_rows = b->pass.n_tokens = 0;
    r->strategy->plan(r, &b->pass);
    for (int32_t i = 0; i < b->pass.n_rows; i++) {
        int32_t src = b->row[i].src[0];
        int32_t pos = (src >= 0 ? b->pos[src] : b->pos[0] - 1) + b->traits.shift;
        b->answer[i] = answer_for(b, r->nfe + 1, pos);
    }
    r->strategy->apply(r, b->answer);
}

static void check_fed(const bench *b, um_pass_kind kind, int32_t first, int32_t n) {
    assert_int_equal(b->pass.n_seg, 1);
    assert_int_equal(b->seg[0].kind, kind);
    assert_int_equal(b->seg[0].n, n);
    assert_int_equal(b->pos[0], first);
    assert_int_equal(b->seg[0].keys.end, first + n);
}

/* "1A 2A 3D": ids and first letters of the statuses in the buffer. */
static void check_blocks(const bench *b, const char *want) {
    um_trace_space space;
    um_trace t = {0};
    char have[128] = "";
    b->req.strategy->trace(&b->req, &space, &t);
    for (int32_t i = 0; i < t.n_blocks; i++)
        snprintf(have + strlen(have), sizeof(have) - strlen(have), "%s%d%c", i ? " " : "", t.block[i], t.status[i][0]);
    assert_string_equal(have, want);
}

static void check_tokens(const bench *b, int32_t from, const int32_t *want, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (b->token[from + i] != want[i])
            fail_msg("position %d: expected %d, found %d", from + i, want[i], b->token[from + i]);
}

static const int32_t prompt5[] = {11, 12, 13, 14, 15};
static const line two_blocks[] = {
    {1, 5, 0, .95F},  {1, 6, 0, .60F},  {1, 7, 0, .92F},  {1, 8, 0, .50F},    {1, 9, 0, .97F},
    {1, 10, 0, .40F}, {1, 11, 0, .30F}, {2, 6, 0, .70F},  {2, 8, 0, .91F},    {2, 10, 0, .40F},
    {2, 11, 0, .35F}, {3, 10, 0, .50F}, {3, 11, 0, .60F}, {4, 10, EOS, .80F}, {4, 12, 0, .85F},
    {4, 13, 0, .2F},  {4, 14, 0, .2F},  {4, 15, 0, .2F},  {5, 12, 0, .6F},    {5, 13, 0, .5F},
    {5, 14, 0, .93F}, {5, 15, 0, .2F},  {6, 12, 0, .95F}, {6, 13, 0, .94F},   {6, 15, 0, .96F},
};

/* The first three passes are the same with and without compat. */
static void run_two_blocks(bench *b) {
    static const int32_t after1[] = {105, MASK, 107, MASK, 109, MASK, MASK},
                         after2[] = {105, 106, 107, 108, 109, MASK, MASK};
    step(b);
    check_fed(b, UM_PASS_PREFILL, 0, 12);
    check_tokens(b, 5, after1, 7);
    check_blocks(b, "1A 2A");
    assert_int_equal(b->req.n_new, 3);
    step(b);
    check_fed(b, UM_PASS_DENOISE, 4, 8);
    check_tokens(b, 5, after2, 7);
    check_blocks(b, "1T 2A");
    step(b);
    check_fed(b, UM_PASS_DENOISE, 4, 8);
    assert_int_equal(b->token[11], 111);
    check_blocks(b, "2A 3D");
    step(b);
    check_fed(b, UM_PASS_DENOISE, 8, 8);
    assert_int_equal(b->token[10], EOS);
}

static void ends_when_everything_before_eos_is_known(void **state) {
    (void)state;
    bench b = {.script = two_blocks, .n_script = UM_LEN(two_blocks)};
    start(&b, prompt5, 5, 4, 2, 32, false);
    run_two_blocks(&b);
    assert_int_equal(b.req.finish, UM_FINISH_EOS);
    assert_int_equal(b.req.n_answer, 5);
    assert_int_equal(b.req.nfe, 4);
    end(&b);
}

static void compat_decodes_running_blocks_after_eos(void **state) {
    (void)state;
    bench b = {.script = two_blocks, .n_script = UM_LEN(two_blocks)};
    start(&b, prompt5, 5, 4, 2, 32, true);
    run_two_blocks(&b);
    assert_int_equal(b.req.finish, UM_FINISH_NONE);
    check_blocks(&b, "2T 3A");
    step(&b);
    check_fed(&b, UM_PASS_DENOISE, 8, 8);
    check_blocks(&b, "3A 4D");
    step(&b);
    check_fed(&b, UM_PASS_DENOISE, 12, 4); /* the terminal block lets none grow behind it */
    assert_int_equal(b.req.finish, UM_FINISH_EOS);
    assert_int_equal(b.req.n_answer, 5);
    assert_int_equal(b.req.nfe, 6);
    end(&b);
}

static void max_tokens_is_exact(void **state) {
    (void)state;
    for (int32_t budget = 1; budget <= 20; budget++) {
        bench b = {0}; /* nothing is sure: one forced token a pass */
        start(&b, prompt5, 5, 4, 2, budget, false);
        while (!b.req.finish) step(&b);
        assert_int_equal(b.req.finish, UM_FINISH_MAX_TOKENS);
        assert_int_equal(b.req.n_answer, budget);
        for (int32_t i = 0; i < budget; i++) assert_int_equal(b.token[5 + i], 105 + i);
        for (int32_t i = 5 + budget; i < CAP; i++) assert_int_equal(b.token[i], MASK);
        end(&b);
    }
}

static void compat_counts_allocated_slots(void **state) {
    (void)state;
    bench b = {.script = two_blocks, .n_script = UM_LEN(two_blocks)};
    start(&b, prompt5, 5, 4, 2, 7, true);
    step(&b);
    assert_int_equal(b.req.finish, UM_FINISH_MAX_TOKENS);
    assert_int_equal(b.req.n_answer, 1); /* 105, then a mask */
    end(&b);
}

static const int32_t prompt8[] = {11, 12, 13, 14, 15, 16, 17, 18};

static void single_block_pays_a_commit_pass(void **state) {
    (void)state;
    static const line script[] = {{2, 8, 0, .5F},   {2, 9, 0, .95F},    {2, 10, 0, .3F},  {2, 11, 0, .2F},
                                  {3, 8, 0, .6F},   {3, 10, 0, .91F},   {3, 11, 0, .93F}, {4, 8, 0, .7F},
                                  {6, 12, 0, .95F}, {6, 13, EOS, .97F}, {6, 14, 0, .92F}, {6, 15, 0, .94F}};
    bench b = {.script = script, .n_script = UM_LEN(script)};
    start(&b, prompt8, 8, 4, 1, 32, false);
    step(&b);
    check_fed(&b, UM_PASS_PREFILL, 0, 8);
    assert_int_equal(b.pass.n_rows, 0);
    for (int i = 2; i <= 4; i++) {
        step(&b);
        check_fed(&b, UM_PASS_DENOISE, 8, 4);
    }
    check_blocks(&b, "2T");
    step(&b);
    check_fed(&b, UM_PASS_COMMIT, 8, 4);
    assert_int_equal(b.pass.n_rows, 0);
    check_blocks(&b, "3D");
    step(&b);
    check_fed(&b, UM_PASS_DENOISE, 12, 4);
    assert_int_equal(b.req.finish, UM_FINISH_EOS);
    assert_int_equal(b.req.n_answer, 5);
    assert_int_equal(b.req.nfe, 6);
    end(&b);
}

static void eos_behind_a_mask_does_not_end_the_answer(void **state) {
    (void)state;
    static const line script[] = {{1, 7, EOS, .99F}};
    bench b = {.script = script, .n_script = 1};
    start(&b, prompt5, 5, 4, 1, 32, false);
    step(&b);
    assert_int_equal(b.token[7], EOS);
    assert_int_equal(b.req.finish, UM_FINISH_NONE);
    step(&b);
    step(&b);
    assert_int_equal(b.req.finish, UM_FINISH_EOS);
    assert_int_equal(b.req.n_answer, 2);
    end(&b);
}

static void eos_is_text_when_ignored(void **state) {
    (void)state;
    static const line script[] = {{1, 5, EOS, .99F}};
    bench b = {.script = script, .n_script = 1};
    start(&b, prompt5, 5, 4, 1, 6, false);
    b.req.sampling.ignore_eos = true;
    while (!b.req.finish) step(&b);
    assert_int_equal(b.req.n_answer, 6);
    end(&b);
}

static void a_threshold_is_passed_only_from_above(void **state) {
    (void)state;
    static const line script[] = {{1, 5, 0, .9F}, {1, 6, 0, .9000001F}};
    bench b = {.script = script, .n_script = 2};
    start(&b, prompt5, 5, 4, 1, 32, false);
    step(&b);
    assert_int_equal(b.req.n_new, 1);
    assert_int_equal(b.token[6], 106);
    end(&b);
}

static void equal_confidence_forces_the_first_position(void **state) {
    (void)state;
    bench b = {0};
    start(&b, prompt5, 5, 4, 1, 32, false);
    step(&b);
    assert_int_equal(b.req.n_new, 1);
    assert_int_equal(b.token[5], 105);
    end(&b);
}

static void max_nfe_ends_with_the_filled_prefix(void **state) {
    (void)state;
    static const line script[] = {{1, 5, 0, .99F}, {1, 7, 0, .99F}};
    bench b = {.script = script, .n_script = 2};
    start(&b, prompt5, 5, 4, 1, 32, false);
    b.req.sampling.max_nfe = 1;
    step(&b);
    assert_int_equal(b.req.finish, UM_FINISH_MAX_NFE);
    assert_int_equal(b.req.n_answer, 1); /* the token behind the mask is not part of it */
    end(&b);
}

/* A model that chooses experts for 8 positions together must be fed all 8 of them. */
static void blocks_do_not_cut_what_is_routed_together(void **state) {
    (void)state;
    bench b = {0};
    um_err err;
    start(&b, prompt5, 5, 4, 1, 32, false);
    end(&b);
    b.traits.route_block = 8;
    assert_int_equal(b.req.strategy->init(&b.req, &err), UM_ERANGE);
    assert_non_null(strstr(err.msg, "block_size: 4"));
    b.req.how.block_size = 16;
    assert_int_equal(b.req.strategy->init(&b.req, &err), UM_OK);
    end(&b);
}

static void a_run_of_equal_tokens_ends_the_answer(void **state) {
    (void)state;
    static const line script[] = {{1, 5, 7, .99F}, {1, 6, 8, .99F}, {1, 7, 8, .99F},
                                  {2, 8, 8, .99F}, {2, 9, 8, .99F}, {2, 10, 8, .99F}};
    bench b = {.script = script, .n_script = UM_LEN(script)};
    start(&b, prompt5, 5, 4, 2, 32, false);
    b.req.sampling.max_repetition_run = 4;
    while (!b.req.finish) step(&b);
    assert_int_equal(b.req.finish, UM_FINISH_REPETITION);
    assert_int_equal(b.req.n_answer, 5);
    end(&b);
}

static void shifted_rows_come_from_the_position_before(void **state) {
    (void)state;
    static const line script[] = {{2, 8, 0, .99F}, {2, 9, 0, .99F}, {2, 10, 0, .99F}, {2, 11, 0, .99F}};
    bench b = {.script = script, .n_script = UM_LEN(script)};
    start(&b, prompt8, 8, 4, 1, 32, false);
    b.traits.shift = 1;
    step(&b);
    assert_int_equal(b.seg[0].save_src, 7); /* the last prompt position predicts the first answer position */
    step(&b);
    assert_int_equal(b.row[0].src[0], -1 - b.req.saved);
    assert_int_equal(b.row[1].src[0], 0);
    assert_int_equal(b.seg[0].save_src, -1);
    step(&b); /* commit */
    assert_int_equal(b.seg[0].save_src, 3);
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
        cmocka_unit_test(ends_when_everything_before_eos_is_known),
        cmocka_unit_test(compat_decodes_running_blocks_after_eos),
        cmocka_unit_test(max_tokens_is_exact),
        cmocka_unit_test(compat_counts_allocated_slots),
        cmocka_unit_test(single_block_pays_a_commit_pass),
        cmocka_unit_test(eos_behind_a_mask_does_not_end_the_answer),
        cmocka_unit_test(eos_is_text_when_ignored),
        cmocka_unit_test(a_threshold_is_passed_only_from_above),
        cmocka_unit_test(equal_confidence_forces_the_first_position),
        cmocka_unit_test(max_nfe_ends_with_the_filled_prefix),
        cmocka_unit_test(blocks_do_not_cut_what_is_routed_together),
        cmocka_unit_test(a_run_of_equal_tokens_ends_the_answer),
        cmocka_unit_test(shifted_rows_come_from_the_position_before),
        cmocka_unit_test(refuses_a_model_with_full_attention),
    };
    return cmocka_run_group_tests_name("multi_bd", tests, NULL, NULL);
}
