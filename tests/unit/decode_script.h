/* A test bench for strategies without a model. It runs the passes of a request and checks pass by pass what they feed,
 * predict, write and store. Answers come from a script, which gives tokens and probabilities by pass and position, or
 * from a tiny made-up model. In that model every prediction depends on every key it sees, stored or fed, so that one
 * wrong key changes all later predictions.
 *
 * Every pass is checked against need() and against the invariants of stored positions. */
#ifndef UM_DECODE_SCRIPT_H
#define UM_DECODE_SCRIPT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "decode/decode.h"
#include "decode/strategies/blocks.h"

enum { MASK = 999, EOS = 900, DELETE = 6, SPLIT = 7, VOCAB = 1000, CAP = 512, TEXT = 1024 };

typedef struct line {
    int32_t pass, pos, token; /* token 0: the token of `model` */
    float p;
} line;

/* The content of a KV slot after a pass, and what it was computed from. */
typedef struct key {
    uint64_t embedding, hidden; /* keys of the first and of the second layer */
    int32_t id;
    bool soft;
} key;

typedef struct bench bench;
struct bench {
    /* chosen by the test before start() */
    const um_strategy *strategy;
    const int32_t *prompt;
    int32_t n_prompt;
    um_decoding how;
    um_sampling_params sampling;
    int32_t max_len;
    uint64_t seed;
    um_traits traits;
    um_compat compat;
    const line *script;
    size_t n_script;
    /* Predicts what the script does not contain. NULL: unsure. */
    um_answer (*model)(const bench *b, const um_row *row, int32_t pos, uint64_t seen);
    int32_t budget; /* tokens of a step; 0: as many as the pass needs */
    int32_t n_top;  /* likeliest ids kept for each token */

    um_req req;
    int32_t stop;
    int32_t token[CAP], written[CAP], id[CAP], pos[CAP], vis[CAP], soft_id[8 * CAP], page[CAP], scratch[CAP];
    float soft_w[8 * CAP];
    float logprob[CAP];
    um_top kept[4 * CAP];
    um_row row[CAP];
    um_segment seg[2];
    um_answer answer[CAP];
    um_edit edit[4 * CAP];
    um_top top[8 * CAP];
    um_soft soft[CAP];
    um_kv_select select[2];
    um_pass pass;

    key key[CAP];
    uint64_t out[CAP], saved; /* final hidden rows of the pass; the saved one */
    int32_t stored_before;
    int32_t n_partial;  /* partial passes so far */
    int32_t tokens_fed; /* in all passes */
};

/* ---- Setup ------------------------------------------------------------------------------------------------------- */

/* Tells whether the stored keys of a strategy are those of causal attention. */
static inline bool is_causal(const um_strategy *s) {
    return s == &um_strategy_seeded_bd || s == &um_strategy_autoregressive || s == &um_strategy_self_speculation ||
           s == &um_strategy_causal_window;
}

/* Tells whether the tokens of a strategy's blocks may move. */
static inline bool is_indel(const um_strategy *s) {
    return s == &um_strategy_levenshtein || s == &um_strategy_joint_indel;
}

/* Sets up a request with block size B and buffer size K. Other parameters are those of the worked examples. */
static inline void set_up(bench *b, const um_strategy *s, const int32_t *prompt, int32_t n, int32_t B, int32_t K) {
    um_option_set sets[UM_DECODE_SETS_MAX];
    *b = (bench){.strategy = s, .prompt = prompt, .n_prompt = n, .max_len = 200};
    size_t n_sets = um_decode_option_sets(sets, &b->how, &b->sampling);
    for (size_t i = 0; i < n_sets; i++) um_options_init(sets[i].rows, sets[i].n, sets[i].base);
    b->how.block_size = B;
    b->how.buffer_size = K;
    b->how.accept_threshold = 0.9F;
    b->sampling.temperature = 0;
    b->sampling.max_tokens = 32;
    b->sampling.max_nfe = 50;
    b->compat.threshold = NAN;
    b->traits = (um_traits){.mask_id = MASK,
                            .eos = EOS,
                            .n_stop = 1,
                            .see = is_causal(s)            ? UM_SEE_CAUSAL
                                   : s == &um_strategy_d2f ? UM_SEE_FULL
                                                           : UM_SEE_BLOCK_CAUSAL,
                            .page_size = B,
                            .blend_ids = INT32_MAX,
                            .accept_threshold = 0.9F,
                            .sampler = "confidence",
                            .delete_id = is_indel(s) ? DELETE : -1,
                            .split_id = is_indel(s) ? SPLIT : -1};
}

/* Sets every switch of --compat diffulex. */
static inline void set_compat(bench *b) {
    b->compat = (um_compat){.allocated_limits = true,
                            .no_remasking = true,
                            .eos_drains = true,
                            .separate_commit = true,
                            .literal_edits = true,
                            .merged_commit = true,
                            .zero_anchor = true,
                            .threshold = b->compat.threshold};
}

static inline void choose_sampler(bench *b, const char *name) {
    snprintf(b->how.sampler, sizeof b->how.sampler, "%s", name);
}

static inline um_status try_start(bench *b, um_err *err) {
    um_req *r = &b->req;
    int32_t n = b->n_prompt;
    b->stop = EOS;
    b->traits.stop = &b->stop;
    *r = (um_req){.traits = &b->traits,
                  .compat = &b->compat,
                  .strategy = b->strategy,
                  .how = b->how,
                  .sampling = b->sampling,
                  .seed = b->seed,
                  .n_prompt = n,
                  .max_len = b->max_len,
                  .limit = UM_MIN(b->max_len, n + b->sampling.max_tokens),
                  .page = {b->page, NULL},
                  .saved = 0,
                  .adapter = -1,
                  .n_top = b->n_top,
                  .end = n,
                  .filled = n,
                  .settled = INT32_MAX,
                  .stop_id = -1};
    um_status st = r->strategy->init(r, err);
    if (st) return st;
    r->cap = r->strategy->need(r).positions_max;
    assert_true(r->cap <= CAP);
    r->token = b->token;
    r->written = b->written;
    r->logprob = b->logprob;
    r->top = b->n_top ? b->kept : NULL;
    for (int32_t i = 0; i < CAP; i++) {
        b->token[i] = i < n ? b->prompt[i] : MASK;
        b->written[i] = i < n ? 0 : -1;
    }
    um_req_edits_new(r, NULL, 0, VOCAB);
    return UM_OK;
}

static inline void start(bench *b) {
    um_err err;
    if (try_start(b, &err)) fail_msg("%s", err.msg);
}

/* Starts the request, with --compat diffulex if `compat`. */
static inline void start_as(bench *b, bool compat) {
    if (compat) set_compat(b);
    start(b);
}

static inline void end(bench *b) {
    um_req_edits_free(&b->req);
    b->req.strategy->free(&b->req);
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

static inline um_answer answer_with(int32_t id, float p) {
    return (um_answer){
        .best = id, .sample = id, .p_best = p, .p_sample = p, .q_best = p, .q_sample = p, .p_id = p, .entropy = 1 - p};
}

/* Predicts 100 + pos with a low probability. */
static inline um_answer unsure(const bench *b, const um_row *row, int32_t pos, uint64_t seen) {
    (void)b;
    (void)row;
    (void)seen;
    return answer_with(100 + pos, 0.05F);
}

/* Confirms tokens. For a mask it predicts ten times its position, less sure to the right. */
static inline um_answer confirming(const bench *b, const um_row *row, int32_t pos, uint64_t seen) {
    (void)row;
    (void)seen;
    if (um_req_masked(&b->req, pos)) return answer_with(10 * pos, 0.45F - 0.01F * (float)pos);
    return answer_with(b->token[pos], 0.99F);
}

static inline um_answer answer_for(const bench *b, const um_row *row, int32_t pos, uint64_t seen) {
    um_answer a = b->model ? b->model(b, row, pos, seen) : unsure(b, row, pos, seen);
    for (size_t i = 0; i < b->n_script; i++) {
        const line *l = &b->script[i];
        if (l->pass == b->req.nfe + 1 && l->pos == pos) a = answer_with(l->token ? l->token : a.sample, l->p);
    }
    return a;
}

/* ---- The made-up model ------------------------------------------------------------------------------------------- */

static inline uint64_t mix(uint64_t h, uint64_t x) { return um_rng_key(h, x, 0, 0); }

static inline uint64_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline const um_soft *soft_at(const um_segment *s, int32_t at) {
    for (int32_t i = 0; i < s->n_soft; i++)
        if (s->soft[i].at == at) return &s->soft[i];
    return NULL;
}

static inline key embed(const um_segment *s, int32_t at) {
    key k = {.id = s->id[at], .embedding = mix((uint64_t)s->id[at] + 1, (uint64_t)s->pos[at])};
    const um_soft *soft = soft_at(s, at);
    for (int32_t i = 0; soft && i < soft->n; i++)
        k.embedding = mix(mix(k.embedding, (uint64_t)soft->id[i]), bits_of(soft->w[i]));
    k.soft = soft != NULL;
    return k;
}

static inline int32_t seen_end(const um_segment *s, int32_t at) {
    return UM_MIN(s->keys.end, um_visible_end(s->rule, s->vis[at]));
}

static inline bool exists(const um_segment *s, int32_t k) { return k < s->hole.start || k >= s->hole.end; }

/* Runs two layers. In each, a hidden row mixes all keys that its query sees. */
static inline void forward(bench *b, const um_segment *s) {
    uint64_t hidden[CAP];
    for (int32_t i = 0; i < s->n; i++) b->key[s->vis[i]] = embed(s, i);
    for (int32_t i = 0; i < s->n; i++) {
        hidden[i] = b->key[s->vis[i]].embedding;
        for (int32_t k = s->keys.start; k < seen_end(s, i); k++)
            if (exists(s, k)) hidden[i] = mix(hidden[i], b->key[k].embedding);
    }
    for (int32_t i = 0; i < s->n; i++) b->key[s->vis[i]].hidden = hidden[i];
    for (int32_t i = 0; i < s->n; i++) {
        b->out[i] = hidden[i];
        for (int32_t k = s->keys.start; k < seen_end(s, i); k++)
            if (exists(s, k)) b->out[i] = mix(b->out[i], b->key[k].hidden);
    }
}

enum { IDS = 9 };
static const int32_t some_ids[IDS] = {1, 2, 3, 4, 5, 6, 7, EOS, MASK};

static inline void edit_logits(const um_edit *e, int32_t n, float *logit) {
    for (int32_t k = 0; k < n; k++)
        for (int32_t i = 0; i < IDS; i++) {
            if (some_ids[i] != e[k].id) continue;
            if (e[k].scale > 0) logit[i] = logit[i] > 0 ? logit[i] / e[k].scale : logit[i] * e[k].scale;
            logit[i] = e[k].ban ? -INFINITY : logit[i] + e[k].add;
        }
}

static inline float softmax(const float *logit, float *p) {
    float sum = 0, entropy = 0;
    for (int32_t i = 0; i < IDS; i++) sum += p[i] = expf(logit[i]);
    for (int32_t i = 0; i < IDS; i++) {
        p[i] /= sum;
        if (p[i] > 0) entropy -= p[i] * logf(p[i]);
    }
    return entropy;
}

static inline int32_t likeliest(const float *x, int32_t but) {
    int32_t best = but == 0;
    for (int32_t i = 0; i < IDS; i++)
        if (i != but && x[i] >= x[best]) best = i;
    return best;
}

static inline void list_top(const um_row *row, const float *p) {
    float left[IDS];
    memcpy(left, p, sizeof left);
    for (int32_t t = 0; t < row->n_top; t++) {
        int32_t i = likeliest(left, -1);
        row->top[t] = (um_top){.id = left[i] > 0 ? some_ids[i] : -1, .p = p[i], .q = p[i]};
        left[i] = -1;
    }
}

/* Draws logits of a few ids from the hash of the keys that the row sees. About half of the rows are sure of one id. */
static inline um_answer made_up(const bench *b, const um_row *row, int32_t pos, uint64_t seen) {
    float logit[IDS], noisy[IDS], p[IDS];
    (void)b;
    (void)pos;
    float sure = um_rng_uniform(seen, IDS) < 0.5 ? 12.0F : 3.0F;
    for (int32_t i = 0; i < IDS; i++) logit[i] = sure * (float)um_rng_uniform(seen, (uint64_t)i);
    logit[7] -= 2; /* ends of sequence are less likely */
    edit_logits(row->edit, row->n_edit, logit);
    edit_logits(row->own, row->n_own, logit);
    um_answer a = {.entropy = softmax(logit, p)};
    int32_t best = likeliest(p, -1), second = likeliest(p, best), sample = best;
    if (row->how.temperature > 0) {
        for (int32_t i = 0; i < IDS; i++)
            noisy[i] = logit[i] / row->how.temperature + um_rng_gumbel(row->how.key, (uint64_t)i);
        sample = likeliest(noisy, -1);
    }
    a.best = some_ids[best];
    a.second = some_ids[second];
    a.sample = some_ids[sample];
    a.p_best = a.q_best = p[best];
    a.p_second = a.q_second = p[second];
    a.p_sample = a.q_sample = p[sample];
    for (int32_t i = 0; i < IDS; i++)
        if (some_ids[i] == row->id) a.p_id = p[i];
    list_top(row, p);
    a.top = row->top;
    return a;
}

/* ---- Passes ------------------------------------------------------------------------------------------------------ */

/* Returns the position that a row predicts. */
static inline int32_t position_of(const bench *b, const um_row *row) {
    return (row->src[0] >= 0 ? b->pos[row->src[0]] : b->pos[0] - 1) + b->traits.shift;
}

/* Checks the order of the fed tokens: that of the text or, for causal_window, known tokens before masks. */
static inline void check_order(const um_req *r, const um_segment *s) {
    bool fed[CAP] = {false};
    const bool is_window = r->strategy == &um_strategy_causal_window;
    for (int32_t i = 0; i < s->n; i++) {
        const int32_t pos = s->pos[i];
        assert_int_equal(s->vis[i], (is_window ? r->stored : s->pos[0]) + i);
        if (!is_window) assert_int_equal(pos, s->vis[i]);
        if (!is_window) continue;
        assert_true(pos >= r->stored && pos < r->stored + s->n && !fed[pos]);
        assert_int_equal(s->id[i], r->token[pos]);
        if (i > 0) {
            const bool masked = um_req_masked(r, pos), before = um_req_masked(r, s->pos[i - 1]);
            assert_true(masked == before ? pos > s->pos[i - 1] : masked);
        }
        fed[pos] = true;
    }
}

static inline void check_planned(const bench *b, const um_need *n) {
    const um_pass *p = &b->pass;
    const um_req *r = &b->req;
    assert_int_equal(p->n_seg, 1);
    const um_segment *s = &p->seg[0];
    assert_true(p->n_tokens > 0 && p->n_tokens <= p->budget);
    assert_true(p->n_tokens <= n->tokens && p->n_rows <= n->rows && p->n_rows <= n->rows_max);
    assert_true(p->n_edits <= n->edits && n->edits <= n->edits_max);
    assert_true(p->n_soft_ids <= n->soft && n->soft <= n->soft_max);
    assert_true(s->keys.end <= UM_MAX(n->slots, s->keys.start + 1) && n->slots <= n->slots_max);
    assert_true(!p->partial || p->n_rows == 0);
    check_order(r, s);
    if (r->strategy->plan != um_blocks_plan) return;
    /* Block strategies feed the present tokens from the first position that is not stored. */
    for (int32_t i = 0; i < s->n; i++) assert_int_equal(s->id[i], r->token[s->pos[i]]);
    assert_int_equal(s->pos[0], r->stored);
    assert_int_equal(s->keys.end, r->stored + s->n);
}

/* Checks that the slots of stored positions were written by passes that fed the final tokens. */
static inline void check_stored(const bench *b) {
    const um_req *r = &b->req;
    for (int32_t p = 0; p < r->stored; p++) {
        assert_true(b->compat.keeps_masks || !um_req_masked(r, p));
        assert_int_equal(b->key[p].id, r->token[p]);
    }
}

/* Plans, answers and applies a pass. The pass stays in b for inspection. */
static inline void step(bench *b) {
    um_req *r = &b->req;
    um_need n = r->strategy->need(r);
    assert_true(n.least > 0 && n.least <= n.tokens && n.least <= n.tokens_max);
    b->stored_before = r->stored;
    b->pass = (um_pass){.seg = b->seg,
                        .row = b->row,
                        .id = b->id,
                        .pos = b->pos,
                        .vis = b->vis,
                        .edit = b->edit,
                        .top = b->top,
                        .soft = b->soft,
                        .soft_id = b->soft_id,
                        .soft_w = b->soft_w,
                        .select = b->select,
                        .scratch = b->scratch,
                        .page_size = b->traits.page_size,
                        .budget = b->budget ? UM_MAX(b->budget, n.least) : n.tokens};
    r->strategy->plan(r, &b->pass);
    check_planned(b, &n);
    forward(b, &b->seg[0]);
    for (int32_t i = 0; i < b->pass.n_rows; i++) {
        int32_t src = b->row[i].src[0];
        uint64_t seen = src >= 0 ? b->out[src] : b->saved;
        b->answer[i] = answer_for(b, &b->row[i], position_of(b, &b->row[i]), seen);
    }
    if (b->seg[0].save_src >= 0) b->saved = b->out[b->seg[0].save_src];
    b->n_partial += b->pass.partial;
    b->tokens_fed += b->pass.n_tokens;
    r->strategy->apply(r, b->answer);
    check_stored(b);
}

/* Preempts the request: clears its stored keys and its saved hidden row. */
static inline void take_pages_away(bench *b) {
    um_req *r = &b->req;
    r->stored = 0;
    if (r->strategy->preempt) r->strategy->preempt(r);
    for (int32_t i = 0; i < CAP; i++) b->key[i] = (key){.id = -1};
    b->saved = 0;
}

static inline void steps(bench *b, int32_t n) {
    for (int32_t i = 0; i < n; i++) step(b);
}

static inline void run_to_end(bench *b) {
    for (int32_t i = 0; !b->req.finish; i++) {
        assert_true(i < 4 * CAP);
        step(b);
    }
}

/* ---- Text for comparison ----------------------------------------------------------------------------------------- */

static inline void put_ids(char *out, const bench *b, const int32_t *id, int32_t n, int32_t first) {
    size_t len = 0;
    out[0] = 0;
    for (int32_t i = 0; i < n; i++) {
        const char *gap = i ? " " : "";
        if (um_req_masked(&b->req, first + i)) len += (size_t)snprintf(out + len, TEXT - len, "%sM", gap);
        else if (id[i] == EOS) len += (size_t)snprintf(out + len, TEXT - len, "%sE", gap);
        else len += (size_t)snprintf(out + len, TEXT - len, "%s%d", gap, id[i]);
    }
}

/* Writes the ids and the first letters of the statuses in the buffer: "1A 2A 3D". */
static inline void put_blocks(char *out, const bench *b) {
    um_trace_space space;
    um_trace t = {0};
    size_t len = 0;
    out[0] = 0;
    b->req.strategy->trace(&b->req, &space, &t);
    for (int32_t i = 0; i < t.n_blocks; i++)
        len += (size_t)snprintf(out + len, TEXT - len, "%s%d%c", i ? " " : "", t.block[i], t.status[i][0]);
}

/* Writes for each row the position that it predicts, and its hidden row: an index in the pass, or c for the saved row.
 * Example: "5<4 6<5 8<c". */
static inline void put_rows(char *out, const bench *b) {
    size_t len = 0;
    out[0] = 0;
    for (int32_t i = 0; i < b->pass.n_rows; i++) {
        int32_t src = b->row[i].src[0], pos = position_of(b, &b->row[i]);
        len += (size_t)snprintf(out + len, TEXT - len, "%s%d<", i ? " " : "", pos);
        if (src < 0) len += (size_t)snprintf(out + len, TEXT - len, "c");
        else len += (size_t)snprintf(out + len, TEXT - len, "%d", src);
    }
}

/* Writes the tokens that a pass was fed. */
static inline void put_fed(char *out, const bench *b) {
    size_t len = 0;
    out[0] = 0;
    for (int32_t i = 0; i < b->seg[0].n; i++) {
        const char *gap = i ? " " : "";
        int32_t id = b->seg[0].id[i];
        if (id == MASK) len += (size_t)snprintf(out + len, TEXT - len, "%sM", gap);
        else if (id == EOS) len += (size_t)snprintf(out + len, TEXT - len, "%sE", gap);
        else len += (size_t)snprintf(out + len, TEXT - len, "%s%d", gap, id);
    }
}

/* Writes the blends that were fed: "5:50*0.8+999*0.2". */
static inline void put_blends(char *out, const bench *b) {
    const um_segment *s = &b->seg[0];
    size_t len = 0;
    out[0] = 0;
    for (int32_t i = 0; i < s->n_soft; i++) {
        const um_soft *k = &s->soft[i];
        len += (size_t)snprintf(out + len, TEXT - len, "%s%d:", i ? " " : "", s->pos[k->at]);
        for (int32_t j = 0; j < k->n; j++)
            len += (size_t)snprintf(out + len, TEXT - len, "%s%d*%.3g", j ? "+" : "", k->id[j], (double)k->w[j]);
    }
}

#define PREFILL UM_PASS_PREFILL
#define DENOISE UM_PASS_DENOISE
#define COMMIT  UM_PASS_COMMIT

/* An expected pass. Texts that are NULL are not compared. */
typedef struct want {
    um_pass_kind kind;
    int32_t stored; /* before the pass */
    const char *fed, *rows, *blends;
    const char *tokens;  /* of the answer, up to the end of the window, after the pass */
    const char *blocks;  /* after the pass */
    int32_t n_new, save; /* save: the saved hidden row, from 1; 0: none */
} want;

static inline void compare(int32_t pass, const char *what, const char *have, const char *wanted) {
    if (wanted && !um_streq(have, wanted))
        fail_msg("pass %d: %s: expected \"%s\", found \"%s\"", pass, what, wanted, have);
}

static inline void check_pass(bench *b, const want *w) {
    char text[TEXT];
    int32_t pass = b->req.nfe;
    if (b->seg[0].kind != w->kind) fail_msg("pass %d: kind %d, expected %d", pass, b->seg[0].kind, w->kind);
    if (b->stored_before != w->stored) fail_msg("pass %d: %d are stored", pass, b->stored_before);
    put_fed(text, b);
    compare(pass, "fed", text, w->fed);
    put_rows(text, b);
    compare(pass, "rows", text, w->rows);
    put_blends(text, b);
    compare(pass, "blends", text, w->blends);
    put_ids(text, b, b->token + b->n_prompt, b->req.end - b->n_prompt, b->n_prompt);
    compare(pass, "tokens", text, w->tokens);
    put_blocks(text, b);
    compare(pass, "blocks", text, w->blocks);
    if (b->req.n_new != w->n_new) fail_msg("pass %d: %d new tokens, expected %d", pass, b->req.n_new, w->n_new);
    if (b->seg[0].save_src + 1 != w->save) fail_msg("pass %d: row %d is kept", pass, b->seg[0].save_src);
}

static inline void check_passes(bench *b, const want *w, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (b->req.finish) fail_msg("finished after pass %d", b->req.nfe);
        step(b);
        check_pass(b, &w[i]);
    }
}
#define CHECK_PASSES(b, table) check_passes(b, table, UM_LEN(table))
#define SCRIPT(b, lines)       ((b)->script = (lines), (b)->n_script = UM_LEN(lines))

static inline void check_end(const bench *b, um_finish why, const char *answer, int32_t nfe) {
    char text[TEXT];
    put_ids(text, b, b->token + b->n_prompt, b->req.n_answer, b->n_prompt);
    assert_string_equal(text, answer);
    assert_int_equal(b->req.finish, why);
    assert_int_equal(b->req.nfe, nfe);
}

#endif
