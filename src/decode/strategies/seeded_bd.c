/* seeded_bd: block diffusion over causal keys (Nemotron-Labs-Diffusion). Blocks start right behind the prompt. A pass
 * that stores keys is causal, and its last row predicts the next token: the seed, which is the first token of the next
 * block. While a block is denoised, its positions see everything stored and each other, and their keys are provisional.
 *
 *     store       feeds everything before the block, causally; stores its keys and writes the seed
 *     denoise     feeds the block; fills some of its masks
 *     store       feeds the finished block and writes the seed of the next one; and so on
 *
 * Without causal_context there is no seed, and a stored block sees itself as a whole, and so does the prompt.
 *
 * A block is fed whole, also where it reaches beyond the limit of the answer. */
#include <math.h>

#include "decode/candidates.h"
#include "decode/samplers/samplers.h"
#include "decode/strategies/causal.h"

typedef struct seeded {
    um_block block; /* the current block; its masks end at the request's limit */
    um_candidates candidates;
    int32_t first_masks; /* masks of the block when it began to be denoised */
    bool begun;          /* everything before the block was stored, and its seed written */
} seeded;

static const um_option params[] = {
    {"causal_context", NULL, UM_OPT_BOOL, UM_FIELD(um_decoding, causal_context), 0, 0, NULL, "true", NULL, NULL,
     "Decoding (seeded_bd)",
     "store the keys of causal attention, which also predict the first token of each block; false lets the prompt and "
     "each stored block see themselves as a whole"},
};

/* Returns the end of the positions that passes over the block feed. */
static int32_t fed_end(const um_req *r, const seeded *s) { return UM_MIN(s->block.start + s->block.len, r->max_len); }

/* Returns the end of the block's positions that may be written. */
static int32_t written_end(const um_req *r, const seeded *s) { return UM_MIN(s->block.start + s->block.len, r->limit); }

/* Goes on to the block at `start`, which has no token yet. */
static void enter_block(const um_req *r, seeded *s, int32_t start) {
    const int32_t B = r->how.block_size;
    s->block = (um_block){.id = (start - r->n_prompt) / B, .start = start, .len = B, .status = UM_BLOCK_ACTIVE};
    s->block.n_masks = s->first_masks = UM_MAX(0, written_end(r, s) - start);
    s->begun = false;
    um_candidates_clear_memory(&s->candidates, &s->block);
}

/* Remasking may turn the tokens of this block back into masks, but not its seed. */
static void update_settled(um_req *r, const seeded *s) {
    if (um_remasks(r)) r->settled = s->block.start + s->block.editable_start;
}

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

static um_status check_sampler(const um_sampler *s, um_err *err) {
    if (s->edits)
        return um_fail_param(
            err, UM_EUNSUPPORTED, "sampler",
            "%s edits filled positions, which strategy seeded_bd does not support: a block is complete "
            "when no mask is left; use confidence",
            s->name);
    if (s->schedule != UM_SCHEDULE_NONE && s->schedule != UM_SCHEDULE_EVEN)
        return um_fail_param(err, UM_EUNSUPPORTED, "sampler",
                             "%s follows a schedule over a whole canvas, and strategy seeded_bd fills blocks; use "
                             "confidence or low_confidence",
                             s->name);
    return UM_OK;
}

static um_status init(um_req *r, um_err *err) {
    um_decoding *d = &r->how;
    const um_sampler *sampler;
    um_status st = um_causal_check(r, "seeded_bd", err);
    if (!st) st = um_sampler_find(&sampler, um_streq(d->sampler, "auto") ? r->traits->sampler : d->sampler, err);
    if (!st) st = check_sampler(sampler, err);
    if (!st) st = um_req_resolve_block_size(r, r->traits->block, err);
    if (st) return st;
    if (isnan(d->accept_threshold)) d->accept_threshold = r->traits->accept_threshold;
    if (sampler->init) st = sampler->init(r, err);
    if (st) return st;
    seeded *s = UM_NEW(seeded);
    r->sampler = sampler;
    r->may_choose_mask = r->compat->keeps_masks;
    um_candidates_init(&s->candidates, r, d->block_size, 1);
    enter_block(r, s, r->n_prompt);
    r->state = s;
    update_settled(r, s);
    return UM_OK;
}

static void free_state(um_req *r) {
    seeded *s = (seeded *)r->state;
    um_candidates_deinit(&s->candidates);
    um_free(s);
    r->state = NULL;
}

/* ---- Fed positions and needs ------------------------------------------------------------------------------------- */

/* The next pass feeds [start, end). */
typedef struct feed {
    int32_t start, end;
    bool stores;  /* the pass stores the keys of known tokens, else it denoises the block */
    bool partial; /* and does only that */
} feed;

/* Returns the end of the largest pass over at most `budget` known tokens from r->stored on, or of the smallest. Without
 * causal_context the prompt and each block are stored whole. */
static int32_t store_end(const um_req *r, const seeded *s, int32_t budget) {
    const int32_t B = r->how.block_size, from = r->stored, all = s->block.start;
    if (all - from <= budget) return all;
    if (r->how.causal_context) return from + UM_MAX(budget, 1);
    const int32_t first = UM_MAX(from + (from < r->n_prompt ? 0 : B), r->n_prompt);
    return first + UM_MAX(from + budget - first, 0) / B * B;
}

static feed next_feed(const um_req *r, const seeded *s, int32_t budget) {
    if (r->stored == s->block.start) return (feed){.start = s->block.start, .end = fed_end(r, s)};
    feed f = {.start = r->stored, .end = store_end(r, s, budget), .stores = true};
    /* Answers of one request share a prompt that predicts nothing, so the passes that store it don't count. */
    f.partial = s->begun || f.end < s->block.start || (!r->how.causal_context && f.end == r->n_prompt);
    return f;
}

static um_need need(const um_req *r) {
    const seeded *s = (const seeded *)r->state;
    const int32_t B = r->how.block_size, blocks = UM_CEIL_DIV(r->limit - r->n_prompt, B);
    const feed f = next_feed(r, s, INT32_MAX), least = next_feed(r, s, 0);
    const int32_t longest = (int32_t)UM_MIN((int64_t)r->n_prompt + (int64_t)blocks * B, (int64_t)r->max_len);
    return (um_need){.tokens = f.end - f.start,
                     .least = least.end - least.start,
                     .rows = B,
                     .slots = f.end,
                     .edits = um_candidates_edits_max(r, B),
                     .tokens_max = r->how.causal_context ? B : UM_MAX(B, r->n_prompt),
                     .rows_max = B,
                     .slots_max = longest,
                     .edits_max = um_candidates_edits_max(r, B),
                     .positions_max = longest,
                     .tables = 1};
}

/* ---- Plan -------------------------------------------------------------------------------------------------------- */

static um_visibility rule_of(const um_req *r, const feed *f) {
    if (!r->how.causal_context)
        return (um_visibility){.see = UM_SEE_BLOCK_CAUSAL, .block = r->how.block_size, .anchor = r->n_prompt};
    return (um_visibility){.see = f->stores ? UM_SEE_CAUSAL : UM_SEE_FULL};
}

/* compat: the quota of a pass counts from the masks at the start of the block. */
static void set_quota(const um_req *r, seeded *s) {
    um_sampler_input *c = &s->candidates.input;
    const int32_t n = s->candidates.n_steps, step = s->block.count;
    if (!r->compat->keeps_masks || r->sampler->schedule != UM_SCHEDULE_EVEN) return;
    c->keep = UM_MIN(s->first_masks / n + (step < s->first_masks % n), c->n_masks);
}

static void plan_rows(um_req *r, seeded *s, um_pass *pass) {
    const int32_t end = written_end(r, s);
    s->block.total_steps++;
    um_req_prepare_rows(r, s->block.start, end);
    um_candidates_find(&s->candidates, r, &s->block, end);
    set_quota(r, s);
    um_candidates_add_rows(&s->candidates, r, pass, s->block.start);
}

static void plan(um_req *r, um_pass *pass) {
    seeded *s = (seeded *)r->state;
    const feed f = next_feed(r, s, pass->budget);
    um_pass_add(pass, r, f.stores ? um_causal_kind(r) : UM_PASS_DENOISE, f.start, f.end, rule_of(r, &f));
    if (um_pass_store(pass, r, f.partial ? f.end : 0)) return;
    if (!f.stores) plan_rows(r, s, pass);
    else if (r->how.causal_context) {
        um_req_prepare_rows(r, f.end, written_end(r, s));
        um_pass_row(pass, r, f.end - 1 - f.start, f.end, 0);
    }
}

/* ---- Apply ------------------------------------------------------------------------------------------------------- */

/* Begins the block. answer: that of the seed; NULL: nothing predicts one. A seed that may not be written stays a mask,
 * which is denoised like the others. */
static void begin(um_req *r, seeded *s, const um_answer *answer) {
    um_block *b = &s->block;
    const int32_t at = b->start, id = answer ? answer->sample : -1;
    if (id >= 0 && id != r->traits->mask_id && um_req_accepts(r, at, id)) um_req_write(r, at, id, answer);
    b->editable_start = !um_req_masked(r, at);
    if (r->fill) um_req_write_forced(r, at, written_end(r, s));
    b->n_masks = 0;
    for (int32_t p = at; p < written_end(r, s); p++) b->n_masks += um_req_masked(r, p);
    s->first_masks = b->n_masks;
    s->begun = true;
}

/* Tells whether the passes of the block are used up, so that this one fills all masks that are left. Samplers with a
 * schedule see to that themselves, and compat keeps the masks. */
static bool is_last_pass(const um_req *r, const um_block *b) {
    const int32_t n = r->how.denoising_steps;
    return n > 0 && b->count >= n && r->sampler->schedule == UM_SCHEDULE_NONE && !r->compat->keeps_masks;
}

static void decide(um_req *r, seeded *s, const um_answer *answer) {
    um_candidates *v = &s->candidates;
    const bool is_last = is_last_pass(r, &s->block);
    um_decision *d = um_candidates_decide(v, r, answer);
    if (is_last) d->n = 0;
    for (int32_t i = 0; is_last && i < v->input.n; i++) um_decide(d, &v->input, i);
    um_candidates_commit(v, r, &s->block);
}

/* Returns the first position of [start, end) with a stop id, or -1. With `to_mask` the search ends at a mask. */
static int32_t find_stop(const um_req *r, int32_t start, int32_t end, bool to_mask) {
    for (int32_t p = start; p < end; p++) {
        if (to_mask && um_req_masked(r, p)) return -1;
        if (um_req_stops_at(r, r->token[p]) != UM_FINISH_NONE) return p;
    }
    return -1;
}

/* compat: tells whether the block ends with the masks that it has: its passes are used up, or a stop id follows no mask
 * of the block. */
static bool ends_with_masks(const um_req *r, const seeded *s) {
    const um_block *b = &s->block;
    if (!r->compat->keeps_masks) return false;
    const int32_t n = r->sampler->schedule == UM_SCHEDULE_EVEN ? s->candidates.n_steps : r->how.denoising_steps;
    return (n > 0 && b->count >= n) || find_stop(r, b->start, written_end(r, s), true) >= 0;
}

/* compat: ends an answer with masks after its last block, or after the block with a stop id. The answer ends before its
 * first mask. */
static void finish_with_masks(um_req *r, int32_t end) {
    if (r->finish != UM_FINISH_NONE || !r->compat->keeps_masks) return;
    const int32_t stop = find_stop(r, r->n_prompt, end, false);
    if (stop >= 0) um_req_finish(r, um_req_stops_at(r, r->token[stop]));
    else if (end >= r->limit) um_req_finish(r, r->limit == r->max_len ? UM_FINISH_MAX_LEN : UM_FINISH_MAX_TOKENS);
}

static void apply(um_req *r, const um_answer *answer) {
    seeded *s = (seeded *)r->state;
    if (um_req_store(r)) return;
    const bool stores = r->stored < s->block.start;
    r->n_new = 0;
    r->prefill_passes += stores && um_causal_is_prefill(r);
    r->stored = s->block.start;
    if (!s->begun) begin(r, s, stores && r->how.causal_context ? answer : NULL);
    if (!stores) decide(r, s, answer);
    r->end = fed_end(r, s);
    const bool is_done = s->block.n_masks == 0 || (!stores && ends_with_masks(r, s));
    const int32_t end = written_end(r, s);
    if (is_done) enter_block(r, s, s->block.start + s->block.len);
    update_settled(r, s);
    um_req_check_stop(r);
    if (is_done) finish_with_masks(r, end);
}

/* ---- Sharing and traces ------------------------------------------------------------------------------------------ */

/* The last position before a block without a seed must be fed, because its row predicts the seed. */
static uint64_t share(const um_req *r, int32_t *most) {
    const seeded *s = (const seeded *)r->state;
    *most = s->begun || !r->how.causal_context ? s->block.start : s->block.start - 1;
    return r->how.causal_context ? UM_CAUSAL_SHARE : 0;
}

/* Until the next block begins, the finished one is shown. */
static int32_t blocks(const um_req *r, um_block_view *out) {
    const seeded *s = (const seeded *)r->state;
    const int32_t B = r->how.block_size, start = s->begun ? s->block.start : s->block.start - B;
    const char *status = um_block_status_name(s->begun ? UM_BLOCK_ACTIVE : UM_BLOCK_TO_CACHE);
    return start < r->n_prompt ? 0 : um_req_view_block(r, start, start + B, status, out);
}

static void trace(const um_req *r, um_trace_space *space, um_trace *out) {
    const seeded *s = (const seeded *)r->state;
    const int32_t B = r->how.block_size, start = r->end - (r->end - r->n_prompt - 1) % B - 1;
    space->block[0] = (start - r->n_prompt) / B;
    space->status[0] = um_block_status_name(start == s->block.start ? UM_BLOCK_ACTIVE : UM_BLOCK_TO_CACHE);
    space->masks[0] = 0;
    for (int32_t p = start; p < UM_MIN(start + B, r->limit); p++) space->masks[0] += um_req_masked(r, p);
    out->n_new = r->n_new;
    out->n_blocks = 1;
    out->block = space->block;
    out->masks = space->masks;
    out->status = space->status;
    out->token = r->token + start;
    out->n_tokens = r->end - start;
}

const um_strategy um_strategy_seeded_bd = {
    .name = "seeded_bd",
    .aliases = "block_ar,causal_blocks",
    .summary = "block diffusion over causal keys, which predict the first token of each block",
    .source = "Nemotron-Labs-Diffusion: generate() of the checkpoints",
    .params = {{params, UM_LEN(params)}, {um_denoising_options, UM_LEN(um_denoising_options)}},
    .init = init,
    .need = need,
    .plan = plan,
    .apply = apply,
    .blocks = blocks,
    .trace = trace,
    .share = share,
    .free = free_state,
};
