/* fast_dllm_v2 without a model: against scripted predictions, and with a made-up model whose predictions show every key
 * that they depend on. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "decode/decode.h"

enum { MASK = 999, EOS = 900, CAP = 256, LAYERS = 2 };

/* The prediction for position `pos` in pass `pass`. */
typedef struct line {
    int32_t pass, pos, token; /* token 0: 100 + pos */
    float p;
} line;

typedef struct bench {
    um_traits traits;
    um_compat compat;
    um_decoding how;
    um_req req;
    const line *script; /* NULL: the made-up model answers */
    size_t n_script;
    int32_t stop, page[1];
    int32_t token[CAP], written[CAP], id[CAP], pos[CAP];
    um_row row[CAP];
    um_segment seg[2];
    um_answer answer[CAP];
    um_pass pass;
    int32_t budget;                         /* 0: as much as the pass needs */
    uint64_t key[LAYERS][CAP], hidden[CAP]; /* of the made-up model: keys in the pages, hidden rows of the pass */
} bench;

static void start(bench *b, int32_t n_prompt, int32_t B, int32_t K, int32_t max_tokens) {
    b->stop = EOS;
    b->traits = (um_traits){.mask_id = MASK,
                            .eos = EOS,
                            .stop = &b->stop,
                            .n_stop = 1,
                            .see = UM_SEE_BLOCK_CAUSAL,
                            .block = 32,
                            .page_size = 5040, /* a multiple of every block length used here */
                            .shift = 1,
                            .accept_threshold = .9F,
                            .sampler = "confidence"};
    b->compat = (um_compat){.threshold = NAN};
    um_req *r = &b->req;
    um_sampling_params sampling = r->sampling;
    sampling.max_tokens = max_tokens;
    if (sampling.repetition_penalty == 0) sampling.repetition_penalty = 1;
    *r = (um_req){.traits = &b->traits,
                  .compat = &b->compat,
                  .strategy = &um_strategy_fast_dllm_v2,
                  .how = b->how,
                  .sampling = sampling,
                  .n_prompt = n_prompt,
                  .max_len = 200,
                  .limit = UM_MIN(200, n_prompt + max_tokens),
                  .cap = CAP,
                  .page = {b->page, NULL},
                  .token = b->token,
                  .written = b->written,
                  .end = n_prompt,
                  .filled = n_prompt,
                  .settled = INT32_MAX,
                  .adapter = -1};
    snprintf(r->how.sampler, sizeof(r->how.sampler), "%s", b->how.sampler[0] ? b->how.sampler : "auto");
    r->how.block_size = B;
    r->how.buffer_size = K;
    r->how.accept_threshold = NAN;
    if (r->how.remask_threshold == 0) r->how.remask_threshold = NAN;
    for (int32_t i = 0; i < CAP; i++) {
        b->token[i] = i < n_prompt ? 11 + i : MASK;
        b->written[i] = i < n_prompt ? 0 : -1;
    }
    b->pass = (um_pass){.seg = b->seg, .row = b->row, .id = b->id, .pos = b->pos, .page_size = CAP};
    um_err err = {0};
    if (r->strategy->init(r, &err)) fail_msg("%s", err.msg);
    um_req_edits_new(r, NULL, 0, 1000);
}

static void start_cached(bench *b, int32_t n_prompt, int32_t B, int32_t K, int32_t max_tokens) {
    b->how.block_cache = true;
    start(b, n_prompt, B, K, max_tokens);
}

static void end(bench *b) {
    um_req_edits_free(&b->req);
    b->req.strategy->free(&b->req);
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

static um_answer from_script(const bench *b, int32_t pass, int32_t pos) {
    um_answer a = {.sample = 100 + pos, .q_sample = .05F, .p_sample = .05F};
    for (size_t i = 0; i < b->n_script; i++) {
        if (b->script[i].pass != pass || b->script[i].pos != pos) continue;
        a.q_sample = b->script[i].p;
        if (b->script[i].token) a.sample = b->script[i].token;
    }
    return a;
}

static uint64_t mix(uint64_t a, uint64_t b) { return um_rng_u64(a, b); }

/* The forward pass of the made-up model. All values are hashes; "attention" sums hashes of the visible keys. */
static void forward(bench *b, const um_segment *s) {
    assert_ptr_equal(s->page, b->page);
    for (int32_t i = 0; i < s->n; i++) b->hidden[i] = mix((uint64_t)s->id[i], (uint64_t)s->pos[i]);
    for (uint64_t l = 0; l < LAYERS; l++) {
        for (int32_t i = 0; i < s->n; i++) b->key[l][s->vis[i]] = mix(b->hidden[i], l);
        for (int32_t i = 0; i < s->n; i++) {
            int32_t n = UM_MIN(um_visible_end(s->rule, s->vis[i]), s->keys.end);
            uint64_t sum = 0;
            for (int32_t k = 0; k < n; k++) sum += mix(b->key[l][k], (uint64_t)k);
            b->hidden[i] = mix(b->hidden[i], sum);
        }
    }
}

static um_answer from_hidden(const um_row *row, uint64_t hidden) {
    for (int32_t i = 0; i < row->n_edit; i++) hidden = mix(hidden, (uint64_t)row->edit[i].id);
    uint64_t drawn = mix(hidden, row->how.temperature > 0 ? row->how.key : 0);
    um_answer a = {.sample = drawn % 61 == 0 ? EOS : 100 + (int32_t)(drawn % 500)};
    a.p_sample = a.q_sample = (float)um_rng_uniform(hidden, 1);
    a.p_id = (float)um_rng_uniform(hidden, (uint64_t)row->id);
    return a;
}

/* Plans, answers and applies a pass. The pass stays in b for inspection. */
static void step(bench *b) {
    um_req *r = &b->req;
    um_need need = r->strategy->need(r);
    assert_true(need.least <= need.tokens && need.least <= need.tokens_max);
    assert_true(need.slots <= need.slots_max && need.slots_max <= r->limit);
    b->pass.n_seg = b->pass.n_rows = b->pass.n_tokens = 0;
    b->pass.partial = false;
    b->pass.budget = b->budget ? UM_MAX(b->budget, need.least) : need.tokens;
    r->strategy->plan(r, &b->pass);
    assert_int_equal(b->pass.n_seg, 1);
    assert_true(b->pass.n_tokens <= b->pass.budget && b->pass.n_rows <= need.rows);
    assert_true(b->seg[0].keys.end <= need.slots);
    assert_true(b->pass.partial || b->pass.n_tokens == need.tokens);
    assert_true(!b->pass.partial || b->pass.n_rows == 0);
    if (!b->script) forward(b, &b->seg[0]);
    for (int32_t i = 0; i < b->pass.n_rows; i++) {
        int32_t src = b->row[i].src[0];
        assert_true(src >= 0 && src < b->pass.n_tokens); /* no prediction needs a row of an earlier pass */
        b->answer[i] =
            b->script ? from_script(b, r->nfe + 1, b->pos[src] + 1) : from_hidden(&b->row[i], b->hidden[src]);
    }
    r->strategy->apply(r, b->answer);
}

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

static void check_fed(const bench *b, um_pass_kind kind, int32_t first, int32_t n, int32_t keys) {
    assert_int_equal(b->seg[0].kind, kind);
    assert_int_equal(b->pos[0], first);
    assert_int_equal(b->seg[0].n, n);
    assert_int_equal(b->seg[0].keys.start, 0);
    assert_int_equal(b->seg[0].keys.end, keys);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(b->seg[0].vis[i], first + i);
        assert_true(um_visible_end(b->seg[0].rule, first + i) >= keys || first + i < b->req.n_prompt);
    }
}

enum { TEXT = 256 };

static void put(char *out, const char *format, int32_t number) {
    size_t n = strlen(out);
    if (n) out[n++] = ' ';
    if (number == MASK) snprintf(out + n, TEXT - n, "M");
    else snprintf(out + n, TEXT - n, format, number);
}

/* Checks the positions that rows predict. */
static void check_rows(const bench *b, const char *want) {
    char have[TEXT] = "";
    for (int32_t i = 0; i < b->pass.n_rows; i++) put(have, "%d", b->pos[b->row[i].src[0]] + 1);
    assert_string_equal(have, want);
}

/* Checks the ids and the first letters of the statuses in the buffer: "1A 2A 3D". */
static void check_blocks(const bench *b, const char *want) {
    um_trace_space space;
    um_trace t = {0};
    char have[TEXT] = "";
    b->req.strategy->trace(&b->req, &space, &t);
    for (int32_t i = 0; i < t.n_blocks; i++) {
        put(have, "%d", t.block[i]);
        snprintf(have + strlen(have), TEXT - strlen(have), "%c", t.status[i][0]);
    }
    assert_string_equal(have, want);
}

/* Checks the tokens from a position on, as many as `want` names. "M" is a mask. */
static void check_tokens(const bench *b, int32_t from, const char *want) {
    char have[TEXT] = "";
    int32_t n = 1;
    for (const char *p = want; *p; p++) n += *p == ' ';
    for (int32_t i = 0; i < n; i++) put(have, "%d", b->token[from + i]);
    assert_string_equal(have, want);
}

/* An expected pass: the positions it feeds, the keys it sees, the positions it predicts (NULL: any), and tokens
 * afterwards. */
typedef struct want {
    um_pass_kind kind;
    int32_t first, n, keys;
    const char *rows;
    int32_t from;
    const char *tokens;
} want;

static void check_passes(bench *b, const want *w, size_t n) {
    for (size_t i = 0; i < n; i++) {
        step(b);
        check_fed(b, w[i].kind, w[i].first, w[i].n, w[i].keys);
        if (w[i].rows) check_rows(b, w[i].rows);
        if (w[i].tokens) check_tokens(b, w[i].from, w[i].tokens);
    }
}
#define CHECK_PASSES(b, passes) check_passes(b, passes, UM_LEN(passes))

static void check_end(const bench *b, um_finish why, int32_t n_answer, int32_t nfe) {
    assert_int_equal(b->req.finish, why);
    assert_int_equal(b->req.n_answer, n_answer);
    assert_int_equal(b->req.nfe, nfe);
}

/* ---- Scripts ----------------------------------------------------------------------------------------------------- */

/* In Diffulex this example has two more passes: an empty prefill first, and a FINAL_COMMIT after the last token. Pass n
 * here is pass n + 1 there. */
static const line example[] = {
    {1, 5, 0, .40F},  {1, 6, 0, .96F},  {1, 7, 0, .30F},  {2, 5, 0, .70F},  {2, 7, 0, .60F},
    {3, 7, 0, .5F},   {4, 8, 200, .2F}, {5, 9, 0, .95F},  {5, 10, 0, .3F},  {5, 11, 0, .2F},
    {6, 10, 0, .97F}, {6, 11, 0, .98F}, {7, 12, 0, .5F},  {7, 13, 0, .4F},  {7, 14, 0, .96F},
    {7, 15, 0, .2F},  {8, 12, 0, .5F},  {8, 13, 0, .99F}, {8, 15, 0, .95F},
};

/* Runs the first buffer: prompt 0..4, answer 5..7. */
static void run_first_buffer(bench *b) {
    static const want passes[] = {
        {UM_PASS_PREFILL, 0, 8, 8, "5 6 7", 4, "15 M 106 M"},
        {UM_PASS_DENOISE, 4, 4, 8, "5 7", 4, "15 105 106 M"},
        {UM_PASS_DENOISE, 4, 4, 8, "7", 4, "15 105 106 107"},
    };
    static const want commit[] = {{UM_PASS_COMMIT, 0, 8, 8, "8", 8, "200 M M M"}};
    check_blocks(b, "0T 1A");
    CHECK_PASSES(b, passes);
    check_blocks(b, "0T 1A");
    assert_int_equal(b->req.stored, 0);
    CHECK_PASSES(b, commit);
    check_blocks(b, "2A 3D");
    assert_int_equal(b->req.n_new, 1);
    assert_int_equal(b->req.stored, 8);
    assert_int_equal(b->written[8], 4);
}

static void follows_the_worked_example(void **state) {
    (void)state;
    static const want passes[] = {
        {UM_PASS_DENOISE, 8, 8, 16, NULL, 8, "200 109 M M M M M M"},
        {UM_PASS_DENOISE, 8, 4, 16, NULL, 8, "200 109 110 111 M M M M"},
        {UM_PASS_DENOISE, 8, 8, 16, NULL, 8, "200 109 110 111 M M 114 M"},
        {UM_PASS_DENOISE, 8, 8, 16, NULL, 8, "200 109 110 111 M 113 114 115"},
        {UM_PASS_DENOISE, 8, 8, 16, NULL, 5, "105 106 107 200 109 110 111 112 113 114 115"},
    };
    bench b = {.script = example, .n_script = UM_LEN(example)};
    start_cached(&b, 5, 4, 2, 11);
    run_first_buffer(&b);
    CHECK_PASSES(&b, passes);
    check_end(&b, UM_FINISH_MAX_TOKENS, 11, 9);
    end(&b);
}

static void feeds_nothing_behind_the_limit(void **state) {
    (void)state;
    static const want passes[] = {{UM_PASS_DENOISE, 8, 4, 12, NULL, 0, NULL},
                                  {UM_PASS_DENOISE, 8, 4, 12, NULL, 5, "105 106 107 200 109 110 111 M"}};
    bench b = {.script = example, .n_script = UM_LEN(example)};
    start_cached(&b, 5, 4, 2, 7);
    run_first_buffer(&b);
    CHECK_PASSES(&b, passes);
    check_end(&b, UM_FINISH_MAX_TOKENS, 7, 6);
    end(&b);
}

static void without_block_cache_every_pass_feeds_the_buffer(void **state) {
    (void)state;
    bench b = {.script = example, .n_script = UM_LEN(example)};
    start(&b, 5, 4, 2, 11);
    while (!b.req.finish) {
        step(&b);
        assert_int_equal(b.seg[0].n, 8);
    }
    check_tokens(&b, 5, "105 106 107 200 109 110 111 112 113 114 115");
    assert_int_equal(b.req.nfe, 9);
    end(&b);
}

static line sure(int32_t pass, int32_t pos) { return (line){pass, pos, 0, .99F}; }

/* The published sizes. Sub-block 0 is prompt. All predictions for the others are above the threshold. */
static void modes_follow_the_first_token_of_the_sub_block(void **state) {
    (void)state;
    line script[32];
    size_t n = 0;
    for (int32_t p = 8; p < 16; p++) script[n++] = sure(1, p);
    for (int32_t p = 16; p < 20; p++) script[n++] = sure(2, p);
    for (int32_t p = 20; p < 24; p++) script[n++] = sure(3, p);
    for (int32_t p = 24; p < 32; p++) script[n++] = sure(4, p);
    script[n++] = (line){5, 32, 777, .1F};
    static const want first[] = {{UM_PASS_PREFILL, 0, 32, 32, NULL, 0, NULL}}; /* fills sub-block 1 */
    static const want others[] = {
        {UM_PASS_DENOISE, 0, 32, 32, NULL, 0, NULL},          /* the first token of sub-block 2 is a mask */
        {UM_PASS_DENOISE, 16, 8, 32, "20 21 22 23", 0, NULL}, /* it is filled; rows are shifted within the sub-block */
        {UM_PASS_DENOISE, 0, 32, 32, NULL, 0, NULL},
        {UM_PASS_COMMIT, 0, 32, 32, NULL, 32, "777"},
    };
    bench b = {.script = script, .n_script = n};
    start_cached(&b, 8, 0, 0, 100);
    assert_int_equal(b.req.how.block_size, 8);
    assert_int_equal(b.req.how.buffer_size, 4);
    assert_int_equal(b.req.strategy->need(&b.req).slots, 32);
    CHECK_PASSES(&b, first);
    check_blocks(&b, "0T 1A 2A 3A");
    CHECK_PASSES(&b, others);
    check_blocks(&b, "4A 5D 6D 7D");
    assert_int_equal(b.req.n_new, 1);
    end(&b);
}

static void an_aligned_prompt_yields_the_seed(void **state) {
    (void)state;
    static const line script[] = {{1, 8, 200, .1F}};
    static const want prefill[] = {{UM_PASS_PREFILL, 0, 8, 8, "8", 8, "200"}};
    static const want next[] = {{UM_PASS_DENOISE, 8, 8, 16, "9 10 11", 0, NULL}};
    bench b = {.script = script, .n_script = 1};
    start_cached(&b, 8, 4, 2, 20);
    CHECK_PASSES(&b, prefill);
    assert_int_equal(b.req.n_new, 1);
    assert_int_equal(b.req.filled, 9);
    assert_int_equal(b.req.prefill_passes, 1);
    CHECK_PASSES(&b, next);
    assert_int_equal(b.req.prefill_passes, 1);
    end(&b);
}

static void a_cut_prompt_is_stored_with_the_first_buffer(void **state) {
    (void)state;
    static const want prefill[] = {{UM_PASS_PREFILL, 0, 24, 24, "21 22 23", 0, NULL}};
    static const want next[] = {{UM_PASS_DENOISE, 20, 4, 24, NULL, 0, NULL}};
    bench b = {.script = example, .n_script = 0};
    start_cached(&b, 21, 4, 2, 20);
    CHECK_PASSES(&b, prefill);
    assert_int_equal(um_visible_end(b.seg[0].rule, 15), 16);
    assert_int_equal(b.req.stored, 16);
    assert_int_equal(b.req.prefill_passes, 1);
    CHECK_PASSES(&b, next);
    end(&b);
}

static void the_seed_obeys_the_request(void **state) {
    (void)state;
    bench b = {.script = example, .n_script = 0};
    b.req.sampling = (um_sampling_params){.temperature = .7F, .top_p = .8F, .top_k = 5};
    start_cached(&b, 8, 4, 2, 20);
    step(&b);
    assert_float_equal(b.row[0].how.temperature, .7F, 0);
    assert_float_equal(b.row[0].how.top_p, .8F, 0);
    assert_int_equal(b.row[0].how.top_k, 5);
    assert_true(b.row[0].how.key == um_req_key(&b.req, 8, 0, UM_USE_SAMPLE));
    assert_int_equal(b.row[0].n_edit, 1);
    assert_true(b.row[0].edit[0].ban && b.row[0].edit[0].id == MASK);
    end(&b);
}

static void eos_ends_the_answer_within_a_sub_block(void **state) {
    (void)state;
    static const line script[] = {{1, 5, 0, .95F}, {1, 6, EOS, .95F}};
    bench b = {.script = script, .n_script = 2};
    start_cached(&b, 5, 4, 2, 20);
    step(&b);
    check_end(&b, UM_FINISH_EOS, 1, 1);
    end(&b);
}

static void eos_as_seed_ends_the_answer(void **state) {
    (void)state;
    static const line script[] = {{1, 8, EOS, .1F}};
    bench b = {.script = script, .n_script = 1};
    start_cached(&b, 8, 4, 2, 20);
    step(&b);
    check_end(&b, UM_FINISH_EOS, 0, 1);
    end(&b);
}

static void max_tokens_is_exact(void **state) {
    (void)state;
    for (int32_t prompt = 1; prompt <= 17; prompt++) {
        for (int32_t budget = 1; budget <= 20; budget++) {
            bench b = {.script = example, .n_script = 0}; /* no prediction is sure: one forced token a pass */
            start_cached(&b, prompt, 4, 2, budget);
            while (!b.req.finish) step(&b);
            assert_int_equal(b.req.finish, UM_FINISH_MAX_TOKENS);
            assert_int_equal(b.req.n_answer, budget);
            for (int32_t i = 0; i < budget; i++) assert_int_equal(b.token[prompt + i], 100 + prompt + i);
            for (int32_t i = prompt + budget; i < CAP; i++) assert_int_equal(b.token[i], MASK);
            end(&b);
        }
    }
}

static void max_nfe_ends_with_the_filled_prefix(void **state) {
    (void)state;
    static const line script[] = {{1, 5, 0, .95F}, {1, 7, 0, .95F}};
    bench b = {.script = script, .n_script = 2};
    b.req.sampling.max_nfe = 1;
    start_cached(&b, 5, 4, 2, 20);
    step(&b);
    check_end(&b, UM_FINISH_MAX_NFE, 1, 1);
    end(&b);
}

static void equal_confidence_forces_the_first_position(void **state) {
    (void)state;
    static const line script[] = {{1, 5, 0, .5F}, {1, 6, 0, .9F}, {1, 7, 0, .9F}};
    bench b = {.script = script, .n_script = 3};
    start_cached(&b, 5, 4, 2, 20);
    step(&b);
    assert_int_equal(b.req.n_new, 1); /* .9 is not above .9 */
    assert_int_equal(b.token[6], 106);
    end(&b);
}

static void a_scheduled_sampler_splits_the_sub_block(void **state) {
    (void)state;
    bench b = {.script = example, .n_script = 0, .how = {.sampler = "low_confidence", .denoising_steps = 2}};
    start_cached(&b, 8, 8, 2, 20);
    step(&b);
    assert_int_equal(b.req.n_new, 4);
    step(&b);
    assert_int_equal(b.req.n_new, 4);
    step(&b);
    assert_int_equal(b.seg[0].kind, UM_PASS_COMMIT);
    end(&b);
}

/* ---- Exactness --------------------------------------------------------------------------------------------------- */

typedef struct life {
    int32_t prompt, B, K, max_tokens;
    bool cache;
    float temperature, penalty, remask;
} life;

enum { UNDISTURBED, PREEMPTED_ALWAYS, PREEMPTED_SOMETIMES, CHUNKED, PREEMPTED_AND_CHUNKED, PREFIX_HIT, WAYS };
static const char *const way_name[] = {"undisturbed", "preempted after every pass", "preempted at random",
                                       "in chunks",   "preempted, in chunks",       "with a shared prefix"};

/* Takes the pages away. Another request's keys lie in them afterwards. */
static void take_pages(bench *b) {
    for (uint64_t l = 0; l < LAYERS; l++)
        for (uint64_t i = 0; i < CAP; i++) b->key[l][i] = mix(12345, i);
    b->req.stored = 0;
    b->req.strategy->preempt(&b->req);
}

/* Stores the keys of n leading positions as another request with the same tokens would. */
static void store_fresh(bench *b, int32_t n) {
    int32_t L = b->req.how.block_size * b->req.how.buffer_size;
    for (int32_t at = 0; at < n; at += L) {
        b->pass.n_seg = b->pass.n_rows = b->pass.n_tokens = 0;
        um_visibility rule = {.see = UM_SEE_BLOCK_CAUSAL, .block = L};
        forward(b, um_pass_add(&b->pass, &b->req, UM_PASS_PREFILL, at, at + L, rule));
    }
}

/* Starts on as many shared positions as are allowed. The slots behind them hold keys of another request. */
static void share_prefix(bench *b) {
    int32_t L = b->req.how.block_size * b->req.how.buffer_size, most = 0;
    assert_true(b->req.strategy->share(&b->req, &most) != 0);
    store_fresh(b, UM_CEIL_DIV(most, L) * L);
    for (uint64_t l = 0; l < LAYERS; l++)
        for (int32_t i = most; i < CAP; i++) b->key[l][i] = mix(12345, (uint64_t)i);
    b->req.stored = most;
}

/* Checks that stored keys equal those of a fresh pass over the tokens. */
static void check_stored_keys(const bench *b) {
    static bench fresh;
    fresh = *b;
    fresh.pass.id = fresh.id;
    fresh.pass.pos = fresh.pos;
    fresh.pass.seg = fresh.seg;
    fresh.req.page[0] = fresh.page;
    store_fresh(&fresh, b->req.stored);
    for (int l = 0; l < LAYERS; l++) assert_memory_equal(fresh.key[l], b->key[l], (size_t)b->req.stored * 8);
}

static void live(bench *b, const life *want, int way, uint64_t seed) {
    uint64_t counter = 0;
    *b = (bench){.how = {.block_cache = want->cache, .remask_threshold = want->remask}};
    b->req.sampling = (um_sampling_params){.temperature = want->temperature, .repetition_penalty = want->penalty};
    start(b, want->prompt, want->B, want->K, want->max_tokens);
    b->req.seed = seed;
    if (way == CHUNKED || way == PREEMPTED_AND_CHUNKED) b->budget = 1;
    if (way == PREFIX_HIT) share_prefix(b);
    while (!b->req.finish) {
        step(b);
        assert_true(b->req.stored % (want->B * want->K) == 0);
        if (way == PREEMPTED_ALWAYS && !b->pass.partial) take_pages(b);
        bool falls = um_rng_u64(seed + 1, counter++) % 4 == 0;
        if (falls && (way == PREEMPTED_SOMETIMES || way == PREEMPTED_AND_CHUNKED)) take_pages(b);
        if (falls && way == PREFIX_HIT) {
            take_pages(b);
            share_prefix(b);
        }
        check_stored_keys(b);
    }
    end(b);
}

static uint32_t draw(uint64_t *counter, uint32_t below) { return (uint32_t)(um_rng_u64(7, (*counter)++) % below); }

static life draw_life(uint64_t *c) {
    life l = {0};
    l.prompt = 1 + (int32_t)draw(c, 40);
    l.B = 1 + (int32_t)draw(c, 6);
    l.K = 2 + (int32_t)draw(c, 3);
    l.max_tokens = 1 + (int32_t)draw(c, 50);
    l.cache = draw(c, 4) != 0;
    l.temperature = draw(c, 2) ? 0.0F : 1.0F;
    l.penalty = draw(c, 3) ? 1.0F : 1.3F;
    l.remask = draw(c, 3) ? NAN : 0.3F;
    return l;
}

static void check_same(const bench *want, const bench *have, const life *l, int way) {
    const um_req *x = &want->req, *y = &have->req;
    bool same = x->nfe == y->nfe && x->finish == y->finish && x->n_answer == y->n_answer &&
                memcmp(want->token, have->token, sizeof(want->token)) == 0 &&
                memcmp(want->written, have->written, sizeof(want->written)) == 0;
    if (!same) fail_msg("prompt %d, %d x %d, cache %d: %s differs", l->prompt, l->K, l->B, l->cache, way_name[way]);
}

static void the_answer_does_not_depend_on_what_happens_to_its_pages(void **state) {
    (void)state;
    static bench want, have;
    uint64_t c = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        life l = draw_life(&c);
        live(&want, &l, UNDISTURBED, seed);
        for (int way = 1; way < WAYS; way++) {
            live(&have, &l, way, seed);
            check_same(&want, &have, &l, way);
        }
    }
}

/* Remasking checks neither the first token of a sub-block, because refining passes do not feed the row that predicts
 * it, nor the seed. */
static void remasking_takes_unlikely_tokens_back(void **state) {
    (void)state;
    static bench b;
    int32_t taken = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        b = (bench){.how = {.block_cache = true, .remask_threshold = 0.6F}};
        start(&b, 9, 6, 2, 40);
        b.req.how.accept_threshold = 0.4F;
        b.req.seed = seed;
        while (!b.req.finish) {
            int32_t was[CAP];
            memcpy(was, b.written, sizeof(was));
            step(&b);
            for (int32_t p = 9; p < CAP; p++) {
                if (was[p] < 0 || b.written[p] >= 0) continue;
                taken++;
                assert_true(p % 6 != 0);
            }
        }
        for (int32_t p = 9; p < 9 + b.req.n_answer; p++) assert_true(b.written[p] > 0);
        end(&b);
    }
    assert_true(taken >= 10);
}

static void only_whole_blocks_in_whole_pages_are_shared(void **state) {
    (void)state;
    int32_t most = 0;
    bench b = {0};
    start(&b, 16, 4, 2, 10);
    b.traits.page_size = 16;
    assert_int_equal(b.req.strategy->share(&b.req, &most), 8);
    assert_int_equal(most, 15); /* the last row of the prompt predicts the seed */
    b.traits.page_size = 12;
    assert_int_equal(b.req.strategy->share(&b.req, &most), 0);
    end(&b);
    start(&b, 17, 4, 2, 10);
    assert_int_not_equal(b.req.strategy->share(&b.req, &most), 0);
    assert_int_equal(most, 16);
    end(&b);
}

/* ---- Invalid parameters ------------------------------------------------------------------------------------------ */

static void refuses(const char *sampler, int32_t B, int32_t K, um_status status, const char *words) {
    bench b = {0};
    um_err err = {0};
    start(&b, 5, 4, 2, 10);
    end(&b);
    b.req.how.block_size = B;
    b.req.how.buffer_size = K;
    snprintf(b.req.how.sampler, sizeof(b.req.how.sampler), "%s", sampler);
    assert_int_equal(b.req.strategy->init(&b.req, &err), status);
    if (!strstr(err.msg, words)) fail_msg("%s", err.msg);
}

static void refuses_what_it_cannot_do(void **state) {
    (void)state;
    refuses("auto", 4, 1, UM_ERANGE, "buffer_size: 1 is outside 2..");
    refuses("auto", 300, 2, UM_ERANGE, "block_size: 300 is outside 1..256");
    refuses("entropy", 4, 2, UM_EUNSUPPORTED, "sampler: entropy follows a schedule over a whole canvas");
    refuses("nothing", 4, 2, UM_EINVAL, "no sampler is named \"nothing\"");
}

static void refuses_models_that_are_not_made_for_it(void **state) {
    (void)state;
    um_compat c = {.threshold = NAN};
    um_traits full = {.see = UM_SEE_FULL, .shift = 1}, in_place = {.see = UM_SEE_BLOCK_CAUSAL};
    um_req r = {.compat = &c};
    um_err err = {0};
    r.traits = &full;
    assert_int_equal(um_strategy_fast_dllm_v2.init(&r, &err), UM_EUNSUPPORTED);
    r.traits = &in_place;
    assert_int_equal(um_strategy_fast_dllm_v2.init(&r, &err), UM_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "fast_dllm_v2 needs"));
}

static void sub_blocks_make_up_the_block_that_was_trained(void **state) {
    (void)state;
    bench b = {0};
    start(&b, 5, 16, 0, 10);
    assert_int_equal(b.req.how.buffer_size, 2);
    end(&b);
    start(&b, 5, 5, 0, 10);
    assert_int_equal(b.req.how.buffer_size, 4);
    end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_the_worked_example),
        cmocka_unit_test(feeds_nothing_behind_the_limit),
        cmocka_unit_test(without_block_cache_every_pass_feeds_the_buffer),
        cmocka_unit_test(modes_follow_the_first_token_of_the_sub_block),
        cmocka_unit_test(an_aligned_prompt_yields_the_seed),
        cmocka_unit_test(a_cut_prompt_is_stored_with_the_first_buffer),
        cmocka_unit_test(the_seed_obeys_the_request),
        cmocka_unit_test(eos_ends_the_answer_within_a_sub_block),
        cmocka_unit_test(eos_as_seed_ends_the_answer),
        cmocka_unit_test(max_tokens_is_exact),
        cmocka_unit_test(max_nfe_ends_with_the_filled_prefix),
        cmocka_unit_test(equal_confidence_forces_the_first_position),
        cmocka_unit_test(a_scheduled_sampler_splits_the_sub_block),
        cmocka_unit_test(the_answer_does_not_depend_on_what_happens_to_its_pages),
        cmocka_unit_test(remasking_takes_unlikely_tokens_back),
        cmocka_unit_test(only_whole_blocks_in_whole_pages_are_shared),
        cmocka_unit_test(refuses_what_it_cannot_do),
        cmocka_unit_test(refuses_models_that_are_not_made_for_it),
        cmocka_unit_test(sub_blocks_make_up_the_block_that_was_trained),
    };
    return cmocka_run_group_tests_name("fast_dllm_v2", tests, NULL, NULL);
}
