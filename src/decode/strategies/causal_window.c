/* causal_window: a window of masks over a reordered sequence with causal attention (WeDLM).
 *
 * The window covers the first mask of the answer and the positions behind it, block_size in all. Some of them are
 * filled already. A pass feeds the known tokens before the window whose keys are not stored yet, then the filled
 * positions of the window, then its masks, each group from left to right. Every token sees those fed before it, and
 * keeps the rotary position of its place in the text:
 *
 *     text            A B C _ E _ _      C was the last mask before E in the pass before
 *     fed             C E _ _ _          positions 2 4 3 5 6; keys of A and B are stored
 *     stored after    A B C              E is fed again: its place in the order can still change
 *
 * A token becomes part of the answer when everything left of it is known. Its key is computed in the next pass, from
 * the tokens before it in the text and no others. Stored keys are therefore those of plain causal attention: they can
 * be cut anywhere, computed again, and shared.
 *
 * The window does not end at the limit of the answer, so a shorter limit cuts the same text. A constraint plans the
 * text up to the limit, and then the window ends there. */
#include <math.h>

#include "decode/candidates.h"
#include "decode/strategies/causal.h"

typedef struct window {
    um_block block; /* the window of the last planned pass; its first position was a mask */
    um_candidates candidates;
} window;

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

static um_status check_sampler(const um_sampler *s, um_err *err) {
    if (!s->edits && !s->memory && s->schedule == UM_SCHEDULE_NONE) return UM_OK;
    return um_fail_param(err, UM_EUNSUPPORTED, "sampler",
                         "%s %s, but the window of strategy causal_window moves with every pass; use entropy_distance, "
                         "entropy_threshold or confidence",
                         s->name,
                         s->edits    ? "edits filled positions"
                         : s->memory ? "remembers the positions of a block"
                                     : "follows a schedule over a block");
}

static um_status check_remasking(const um_req *r, um_err *err) {
    if (isnan(r->how.remask_threshold)) return UM_OK;
    return um_fail_param(err, UM_EUNSUPPORTED, "remask_threshold",
                         "strategy causal_window streams a token as soon as everything left of it is known, so no "
                         "token becomes a mask again; leave it off");
}

static um_status init(um_req *r, um_err *err) {
    um_decoding *d = &r->how;
    const um_sampler *sampler;
    um_status st = um_causal_check(r, "causal_window", err);
    if (!st) st = um_sampler_find(&sampler, um_streq(d->sampler, "auto") ? r->traits->sampler : d->sampler, err);
    if (!st) st = check_sampler(sampler, err);
    if (!st) st = check_remasking(r, err);
    if (!st) st = um_req_resolve_block_size(r, r->traits->block, err);
    if (st) return st;
    if (isnan(d->accept_threshold)) d->accept_threshold = r->traits->accept_threshold;
    if (sampler->init) st = sampler->init(r, err);
    if (st) return st;
    window *s = UM_NEW(window);
    s->block = (um_block){.start = r->n_prompt, .len = d->block_size, .status = UM_BLOCK_ACTIVE};
    r->sampler = sampler;
    r->may_choose_mask = r->compat->keeps_masks;
    um_candidates_init(&s->candidates, r, d->block_size, 1);
    r->state = s;
    return UM_OK;
}

static void free_state(um_req *r) {
    window *s = (window *)r->state;
    um_candidates_deinit(&s->candidates);
    um_free(s);
    r->state = NULL;
}

/* ---- Fed positions and needs ------------------------------------------------------------------------------------- */

/* Returns the end of a window whose first mask is at `start`. */
static int32_t window_end(const um_req *r, int32_t start) {
    const int64_t last = r->fill ? r->limit : r->max_len;
    return (int32_t)UM_MIN((int64_t)start + r->how.block_size, last);
}

/* Returns the end of the largest pass of at most `budget` tokens, or of the smallest pass. Only a prompt and keys that
 * were lost are stored in chunks: tokens that the last pass has made known are fewer than a window, and are fed with
 * it. */
static int32_t fed_end(const um_req *r, int32_t budget) {
    const int32_t known = r->filled, end = window_end(r, known);
    if (end - r->stored <= budget || known - r->stored <= r->how.block_size) return end;
    return UM_MIN(r->stored + UM_MAX(budget, 1), known);
}

static um_need need(const um_req *r) {
    const int32_t end = window_end(r, r->filled), longest = window_end(r, r->limit), W = r->how.block_size;
    return (um_need){.tokens = end - r->stored,
                     .least = fed_end(r, 0) - r->stored,
                     .rows = end - r->filled,
                     .slots = end,
                     .edits = um_candidates_edits_max(r, W),
                     .tokens_max = 2 * W,
                     .rows_max = W,
                     .slots_max = longest,
                     .edits_max = um_candidates_edits_max(r, W),
                     .positions_max = longest,
                     .tables = 1};
}

/* ---- Plan -------------------------------------------------------------------------------------------------------- */

/* The masks are the last tokens of the segment, so the rows of the candidates are its last rows. */
static void plan_rows(um_req *r, window *s, um_pass *pass, const um_segment *seg) {
    um_candidates *v = &s->candidates;
    const int32_t start = s->block.start, end = window_end(r, start);
    s->block.total_steps++;
    um_req_prepare_rows(r, start, end);
    um_candidates_find(v, r, &s->block, end);
    if (r->compat->keeps_masks) v->input.mask_id = UM_MASKED; /* the mask id is written like any other */
    um_candidates_add_rows(v, r, pass, start);
    for (int32_t i = 0; i < v->input.n; i++) pass->row[i].src[0] = seg->n - v->input.n + i;
}

static void plan(um_req *r, um_pass *pass) {
    window *s = (window *)r->state;
    const int32_t end = fed_end(r, pass->budget);
    const um_pass_kind kind = um_causal_is_prefill(r) ? UM_PASS_PREFILL : UM_PASS_DENOISE;
    um_segment *seg = um_pass_add(pass, r, kind, r->stored, end, (um_visibility){.see = UM_SEE_CAUSAL});
    if (um_pass_store(pass, r, end <= r->filled ? end : 0)) return;
    um_pass_feed_masks_last(pass, r, seg, r->filled);
    s->block.start = r->filled;
    plan_rows(r, s, pass, seg);
}

/* ---- Apply ------------------------------------------------------------------------------------------------------- */

static void apply(um_req *r, const um_answer *answer) {
    window *s = (window *)r->state;
    if (um_req_store(r)) return;
    r->n_new = 0;
    r->prefill_passes += um_causal_is_prefill(r);
    r->stored = s->block.start;
    um_candidates_decide(&s->candidates, r, answer);
    um_candidates_commit(&s->candidates, r, &s->block);
    um_req_check_stop(r);
    r->end = window_end(r, r->filled);
}

/* ---- Sharing and traces ------------------------------------------------------------------------------------------ */

static uint64_t share(const um_req *r, int32_t *most) {
    *most = r->filled;
    return UM_CAUSAL_SHARE;
}

static int32_t blocks(const um_req *r, um_block_view *out) {
    const int32_t start = r->filled;
    return um_req_view_block(r, start, window_end(r, start), um_block_status_name(UM_BLOCK_ACTIVE), out);
}

/* The trace shows the window that the pass predicted. */
static void trace(const um_req *r, um_trace_space *space, um_trace *out) {
    const window *s = (const window *)r->state;
    const int32_t start = s->block.start, end = window_end(r, start);
    space->block[0] = start - r->n_prompt;
    space->status[0] = um_block_status_name(UM_BLOCK_ACTIVE);
    space->masks[0] = s->block.n_masks;
    out->n_new = r->n_new;
    out->n_blocks = 1;
    out->block = space->block;
    out->masks = space->masks;
    out->status = space->status;
    out->token = r->token + start;
    out->n_tokens = end - start;
}

const um_strategy um_strategy_causal_window = {
    .name = "causal_window",
    .aliases = "wedlm,streaming_parallel",
    .summary = "a window of masks behind all known tokens, over causal keys; streams token by token",
    .source = "WeDLM: wedlm/engine of Tencent/WeDLM",
    .init = init,
    .need = need,
    .plan = plan,
    .apply = apply,
    .blocks = blocks,
    .trace = trace,
    .share = share,
    .free = free_state,
};
