/* full: whole-sequence decoding, as LLaDA, Dream and RND1 do it.
 *
 * Prompt and canvas (gen_length masks) are fed whole in every pass, every position sees every other one. The canvas is
 * cut into blocks that are filled from left to right (one block: no order); in each pass the sampler fixes some masks
 * of the current block: a scheduled number, or those it is sure of. A fixed token never changes, so an answer whose end
 * is known ends the request although the rest of the canvas is still masked: the text is the same. For the same reason
 * a pass in which the schedule fixes nothing is not run. */
#include <math.h>

#include "decode/decode.h"

typedef struct full {
    const um_sampler *sampler;
    int32_t canvas_end;      /* first position behind the canvas */
    int32_t n_blocks, block; /* blocks of the canvas; the current one */
    int32_t step, n_steps;   /* pass within the block; passes it gets */
    int32_t n_masks;         /* masks of the current block, as planned */
    int32_t position[];      /* [block_size] where they are; then the scores, the decision (at, id) and the tokens */
} full;

enum { AUTO_BLOCK = 32 }; /* the block length of LLaDA's own evaluations of the instruct models */

static const um_option params[] = {
    {"gen_length", NULL, UM_OPT_INT, UM_FIELD(um_decoding, gen_length), 1, 65536, NULL, "auto", "0", "N",
     "Decoding (full)", "tokens of the canvas; auto is max_tokens"},
    {"steps", "diffusion_steps", UM_OPT_INT, UM_FIELD(um_decoding, steps), 1, 65536, NULL, "auto", "0", "N",
     "Decoding (full)", "denoising passes for the whole canvas; auto is one per token"},
    {"eps", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, eps), 0, 0.5, NULL, "0.001", NULL, "X", "Decoding (full)",
     "masked share that the schedule of Dream's samplers ends at"},
    {"alg_temp", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, alg_temp), 0, 100, NULL, "0", NULL, "T", "Decoding (full)",
     "draws the positions of a pass at this temperature of their scores, 0 takes the best"},
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

/* Blocks are LLaDA's; the samplers of Dream and RND1 fill the canvas as one. */
static int32_t auto_block(const um_decoding *d, const um_sampler *sampler) {
    bool whole = sampler->schedule == UM_SCHEDULE_TIME || sampler->schedule == UM_SCHEDULE_LINEAR;
    return whole ? d->gen_length : AUTO_BLOCK;
}

static um_status resolve_steps(um_decoding *d, const um_sampler *sampler, um_err *err) {
    int32_t n_blocks = UM_CEIL_DIV(d->gen_length, d->block_size);
    if (sampler->schedule == UM_SCHEDULE_NONE && d->steps)
        return um_fail(err, UM_EINVAL,
                       "steps: %d is set, but sampler %s follows no schedule: it decides by accept_threshold", d->steps,
                       sampler->name);
    if (d->steps == 0) d->steps = d->gen_length;
    if (d->steps < n_blocks)
        return um_fail(err, UM_ERANGE,
                       "steps: %d passes for %d blocks (gen_length %d, block_size %d); every block needs "
                       "at least one",
                       d->steps, n_blocks, d->gen_length, d->block_size);
    return UM_OK;
}

static um_status resolve(um_req *r, const um_sampler **sampler, um_err *err) {
    um_decoding *d = &r->how;
    um_status st = um_sampler_find(sampler, um_streq(d->sampler, "auto") ? r->traits->sampler : d->sampler, err);
    if (st) return st;
    if (d->gen_length == 0) d->gen_length = r->limit - r->n_prompt;
    if (d->gen_length > r->max_len - r->n_prompt)
        return um_fail(err, UM_ERANGE, "gen_length: prompt %d + gen_length %d = %d tokens, but max_model_len is %d",
                       r->n_prompt, d->gen_length, r->n_prompt + d->gen_length, r->max_len);
    if (d->block_size == 0) d->block_size = auto_block(d, *sampler);
    d->block_size = UM_MIN(d->block_size, d->gen_length);
    if (isnan(d->accept_threshold)) d->accept_threshold = r->traits->accept_threshold;
    return resolve_steps(d, *sampler, err);
}

static um_status init(um_req *r, um_err *err) {
    const um_sampler *sampler;
    if (r->traits->see != UM_SEE_FULL)
        return um_fail(err, UM_EUNSUPPORTED,
                       "strategy full needs a model with full attention; this one is block-causal: "
                       "use --decoding-strategy multi_bd");
    um_status st = resolve(r, &sampler, err);
    if (st) return st;
    /* Positions, choice and scores of one block. */
    full *s = (full *)um_zalloc(sizeof(full) + um_mul((size_t)r->how.block_size, 5 * sizeof(int32_t)));
    for (int32_t i = 0; i < r->how.block_size; i++) s->position[4 * r->how.block_size + i] = UM_MASKED;
    s->sampler = sampler;
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
                     .least = tokens,
                     .slots = s->canvas_end,
                     .rows_max = r->how.block_size,
                     .tables = twice};
}

/* The twin of guidance: the same canvas behind a prompt of masks. */
static void add_unconditional(um_req *r, const full *s, um_pass *pass, um_visibility all) {
    int32_t *id = pass->id + pass->n_tokens;
    um_segment *seg = um_pass_add(pass, r, UM_PASS_DENOISE, 0, s->canvas_end, all);
    for (int32_t i = 0; i < r->n_prompt; i++) id[i] = r->traits->mask_id;
    seg->page = r->page[1];
}

static void find_masks(const um_req *r, full *s) {
    s->n_masks = 0;
    for (int32_t p = block_start(r, s, s->block); p < block_start(r, s, s->block + 1); p++)
        if (um_req_masked(r, p)) s->position[s->n_masks++] = p;
}

/* The masks of the current block as candidates of the current step. */
static um_choice choice(const um_req *r, full *s, const um_answer *answer) {
    const int32_t len = block_start(r, s, s->block + 1) - block_start(r, s, s->block);
    const double eps = (double)r->how.eps;
    const um_schedule schedule = s->sampler->schedule;
    return (um_choice){.answer = answer,
                       .position = s->position,
                       .token = s->position + 4 * r->how.block_size, /* all of them masks */
                       .n = s->n_masks,
                       .n_masks = s->n_masks,
                       .previous = UM_MASKED,
                       .block_len = len,
                       .compat = r->compat,
                       .mask_id = r->traits->mask_id,
                       .how = &r->how,
                       .seed = r->seed,
                       .count = s->step,
                       .forced = true,
                       .keep = um_schedule_count(schedule, eps, s->step, s->n_steps, s->n_masks, len),
                       .rate = um_schedule_rate(eps, s->step, s->n_steps),
                       .score = (float *)(void *)(s->position + r->how.block_size)};
}

/* Room for what the sampler decides. */
static um_decision no_decision(const um_req *r, full *s) {
    int32_t *room = s->position + 2 * r->how.block_size;
    return (um_decision){.at = room, .id = room + r->how.block_size};
}

/* Steps over those in which nothing would be fixed: what they fix does not depend on the model. */
static void skip_empty_steps(const um_req *r, full *s) {
    for (;; s->step++) {
        um_choice c = choice(r, s, NULL);
        um_decision d = no_decision(r, s);
        if (s->sampler->is_independent) s->sampler->accept(&c, &d);
        if (s->sampler->is_independent ? d.n : c.keep) return;
    }
}

static void plan(um_req *r, um_pass *pass) {
    full *s = (full *)r->state;
    um_visibility all = {.see = UM_SEE_FULL};
    float g = r->how.cfg_scale;
    find_masks(r, s);
    skip_empty_steps(r, s);
    um_pass_add(pass, r, UM_PASS_DENOISE, 0, s->canvas_end, all);
    if (g > 0) add_unconditional(r, s, pass, all);
    for (int32_t i = 0; i < s->n_masks; i++) {
        /* With shifted logits row p - 1 predicts p; it is always fed, since a prompt is never empty. */
        int32_t p = s->position[i], src = p - r->traits->shift;
        um_row *row = um_pass_row(pass, r, src, p, s->step);
        row->want = s->sampler->want(r);
        if (g > 0) {
            row->src[1] = src + s->canvas_end;
            row->w[0] = 1 + g;
            row->w[1] = -g;
        }
    }
}

static void next_block(um_req *r, full *s) {
    s->block++;
    s->step = 0;
    s->n_steps = s->block < s->n_blocks ? block_steps(r, s, s->block) : 0;
}

static void apply(um_req *r, const um_answer *answer) {
    full *s = (full *)r->state;
    um_choice c = choice(r, s, answer);
    um_decision d = no_decision(r, s);
    s->sampler->accept(&c, &d);
    r->end = s->canvas_end;
    r->n_new = 0;
    for (int32_t i = 0; i < d.n; i++) um_req_write(r, s->position[d.at[i]], d.id[i], &answer[d.at[i]]);
    s->step++;
    if (d.n == s->n_masks) next_block(r, s);
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
    .aliases = "whole_sequence,llada,dream",
    .summary = "whole-sequence decoding: every position is fed in every pass, a sampler fixes some",
    .source = "LLaDA, arXiv 2502.09992, algorithm 5 and its semi-autoregressive form; Dream, arXiv 2508.15487",
    .params = {{params, UM_LEN(params)}},
    .init = init,
    .need = need,
    .plan = plan,
    .apply = apply,
    .trace = trace,
    .free = free_state,
};
