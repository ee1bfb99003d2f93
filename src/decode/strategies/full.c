/* full: whole-sequence decoding, as LLaDA does it.
 *
 * Prompt and canvas (gen_length masks) are fed whole in every pass, every position sees every other one. The canvas is
 * cut into blocks that are filled from left to right (one block: no order); the passes of a block fix a scheduled
 * number of positions each, those of largest confidence or random ones. A fixed token never changes, so an answer whose
 * end is known ends the request although the rest of the canvas is still masked: the text is the same. */
#include <math.h>

#include "decode/decode.h"

typedef struct full {
    int32_t canvas_end;      /* first position behind the canvas */
    int32_t n_blocks, block; /* blocks of the canvas; the current one */
    int32_t step, n_steps;   /* pass within the block; passes it gets */
    int32_t position[];      /* masks of the current block, as planned; then room for the choice and the scores */
} full;

enum { AUTO_BLOCK = 32 }; /* the block length of LLaDA's own evaluations of the instruct models */

static const um_option params[] = {
    {"gen_length", NULL, UM_OPT_INT, UM_FIELD(um_decoding, gen_length), 1, 65536, NULL, "auto", "0", "N",
     "Decoding (full)", "tokens of the canvas; auto is max_tokens"},
    {"steps", "diffusion_steps", UM_OPT_INT, UM_FIELD(um_decoding, steps), 1, 65536, NULL, "auto", "0", "N",
     "Decoding (full)", "denoising passes for the whole canvas; auto is one per token"},
    {"remasking", NULL, UM_OPT_CHOICE, UM_FIELD(um_decoding, remasking), 0, 0, "low_confidence|random",
     "low_confidence", NULL, "RULE", "Decoding (full)", "which predictions of a pass are kept"},
    {"cfg_scale", "cfg", UM_OPT_FLOAT, UM_FIELD(um_decoding, cfg_scale), 0, 100, NULL, "0", NULL, "X",
     "Decoding (full)", "classifier-free guidance against the masked prompt; doubles the work, 0 is off"},
};

static int32_t block_start(const um_req *r, const full *s, int32_t k) {
    return UM_MIN(r->n_prompt + k * r->how.block_size, s->canvas_end);
}

/* Passes of block k: an even split, the remainder first. */
static int32_t block_steps(const um_req *r, const full *s, int32_t k) {
    return r->how.steps / s->n_blocks + (k < r->how.steps % s->n_blocks);
}

static um_status resolve(um_req *r, um_err *err) {
    um_decoding *d = &r->how;
    if (d->gen_length == 0) d->gen_length = r->limit - r->n_prompt;
    if (d->gen_length > r->max_len - r->n_prompt)
        return um_fail(err, UM_ERANGE, "gen_length: prompt %d + gen_length %d = %d tokens, but max_model_len is %d",
                       r->n_prompt, d->gen_length, r->n_prompt + d->gen_length, r->max_len);
    if (d->block_size == 0) d->block_size = AUTO_BLOCK;
    d->block_size = UM_MIN(d->block_size, d->gen_length);
    int32_t n_blocks = UM_CEIL_DIV(d->gen_length, d->block_size);
    if (d->steps == 0) d->steps = d->gen_length;
    if (d->steps < n_blocks)
        return um_fail(err, UM_ERANGE,
                       "steps: %d passes for %d blocks (gen_length %d, block_size %d); every block needs "
                       "at least one",
                       d->steps, n_blocks, d->gen_length, d->block_size);
    return UM_OK;
}

static um_status init(um_req *r, um_err *err) {
    if (r->traits->see != UM_SEE_FULL)
        return um_fail(err, UM_EUNSUPPORTED,
                       "strategy full needs a model with full attention; this one is block-causal: "
                       "use --decoding-strategy multi_bd");
    um_status st = resolve(r, err);
    if (st) return st;
    /* Positions, choice and scores of one block. */
    full *s = (full *)um_zalloc(sizeof(full) + um_mul((size_t)r->how.block_size, 3 * sizeof(int32_t)));
    s->canvas_end = r->n_prompt + r->how.gen_length;
    s->n_blocks = UM_CEIL_DIV(r->how.gen_length, r->how.block_size);
    s->n_steps = block_steps(r, s, 0);
    r->state = s;
    return UM_OK;
}

static void free_state(um_req *r) {
    um_free(r->state);
    r->state = NULL;
}

static um_need need(const um_req *r) {
    const full *s = (const full *)r->state;
    int32_t twice = r->how.cfg_scale > 0 ? 2 : 1, tokens = s->canvas_end * twice;
    return (um_need){.tokens = tokens,
                     .rows = r->how.block_size,
                     .tokens_max = tokens,
                     .slots_max = s->canvas_end,
                     .positions_max = s->canvas_end,
                     .tables = twice};
}

/* The twin of guidance: the same canvas behind a prompt of masks. */
static void add_unconditional(um_req *r, const full *s, um_pass *pass, um_visibility all) {
    int32_t *id = pass->id + pass->n_tokens;
    um_segment *seg = um_pass_add(pass, r, UM_PASS_DENOISE, 0, s->canvas_end, all);
    for (int32_t i = 0; i < r->n_prompt; i++) id[i] = r->traits->mask_id;
    seg->page = r->page[1];
}

static void plan(um_req *r, um_pass *pass) {
    full *s = (full *)r->state;
    um_visibility all = {UM_SEE_FULL, 0, 0};
    float g = r->how.cfg_scale;
    um_pass_add(pass, r, UM_PASS_DENOISE, 0, s->canvas_end, all);
    if (g > 0) add_unconditional(r, s, pass, all);
    for (int32_t p = block_start(r, s, s->block); p < block_start(r, s, s->block + 1); p++) {
        if (!um_req_masked(r, p)) continue;
        /* With shifted logits row p - 1 predicts p; it is always fed, since a prompt is never empty. */
        int32_t src = p - r->traits->shift;
        um_row *row = um_pass_row(pass, r, src, p, s->step);
        if (g > 0) {
            row->src[1] = src + s->canvas_end;
            row->w[0] = 1 + g;
            row->w[1] = -g;
        }
    }
}

/* Scores of the planned rows: what a pass keeps is largest in it. */
static int32_t score_rows(const um_req *r, full *s, const um_answer *answer, float *score) {
    int32_t n = 0;
    for (int32_t p = block_start(r, s, s->block); p < block_start(r, s, s->block + 1); p++) {
        if (!um_req_masked(r, p)) continue;
        s->position[n] = p;
        score[n] = r->how.remasking == UM_REMASK_RANDOM
                       ? (float)um_rng_uniform(um_req_key(r, p, s->step, UM_USE_REMASK), 0)
                       : answer[n].p_sample;
        n++;
    }
    return n;
}

static void next_block(um_req *r, full *s) {
    s->block++;
    s->step = 0;
    s->n_steps = s->block < s->n_blocks ? block_steps(r, s, s->block) : 0;
}

static void apply(um_req *r, const um_answer *answer) {
    full *s = (full *)r->state;
    int32_t *chosen = s->position + r->how.block_size;
    float *score = (float *)(void *)(chosen + r->how.block_size);
    r->end = s->canvas_end;
    r->n_new = 0;
    int32_t n = score_rows(r, s, answer, score), left = s->n_steps - s->step;
    int32_t keep = UM_CEIL_DIV(n, left);
    um_choose_largest(score, n, keep, chosen);
    for (int32_t i = 0; i < keep; i++) um_req_write(r, s->position[chosen[i]], answer[chosen[i]].sample);
    s->step++;
    if (keep == n) next_block(r, s);
    um_req_check_stop(r);
    if (r->finish == UM_FINISH_NONE && s->block == s->n_blocks) {
        r->finish = UM_FINISH_STEPS;
        r->n_answer = r->filled - r->n_prompt;
    }
}

static void trace(const um_req *r, um_trace_space *space, um_trace *out) {
    const full *s = (const full *)r->state;
    int32_t k = UM_MIN(s->block, s->n_blocks - 1), start = block_start(r, s, k);
    space->block[0] = k;
    space->masks[0] = 0;
    space->status[0] = um_block_status_name(UM_BLOCK_ACTIVE);
    out->n_tokens = block_start(r, s, k + 1) - start;
    for (int32_t i = 0; i < out->n_tokens; i++) space->masks[0] += um_req_masked(r, start + i);
    out->n_new = r->n_new;
    out->n_blocks = 1;
    out->block = space->block;
    out->masks = space->masks;
    out->status = space->status;
    out->token = r->token + start;
}

const um_strategy um_strategy_full = {
    .name = "full",
    .aliases = "llada,whole_sequence",
    .summary = "whole-sequence decoding: every position is fed in every pass, a scheduled number is fixed",
    .source = "LLaDA, arXiv 2502.09992, algorithm 5 and its semi-autoregressive form",
    .params = params,
    .n_params = UM_LEN(params),
    .init = init,
    .need = need,
    .plan = plan,
    .apply = apply,
    .trace = trace,
    .free = free_state,
};
