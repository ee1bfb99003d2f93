/* DMax: fills masks from the left for as long as the model is sure, and refreshes every filled token in every pass.
 *
 * A pass fills the masks before the first one that is less probable than accept_threshold, and one at least. Equality
 * with the threshold passes. A filled position takes what the model prefers now, whatever the probability. The block is
 * done when nothing changes or when every position is as sure as commit_confidence. The slow path, in which filled
 * positions have a confidence too, may go on for ever; the caps of editing end it, see um_edit_timed_out.
 *
 * What is fed next, a blend of the embeddings of the new tokens and of the mask, is the strategy's business. */
#include "decode/samplers/samplers.h"

static const um_option params[] = {
    {"dmax_fast_path", "dmax_sampler_fast_path", UM_OPT_BOOL, UM_FIELD(um_decoding, dmax_fast_path), 0, 0, NULL, "true",
     NULL, NULL, "Decoding (dmax)", "only masks have a confidence, filled positions count as sure"},
    {"commit_confidence", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, commit_confidence), 0, 1, NULL, "0.9", NULL, "P",
     "Decoding (dmax)", "a block is done when every position is as probable as this, or when nothing changes"},
};

const um_option um_token_merge_options[] = {
    {"token_merge_mode", NULL, UM_OPT_CHOICE, UM_FIELD(um_decoding, token_merge_mode), 0, 0,
     "dmax_topk|iter_smooth_topk", "dmax_topk", NULL, "MODE", "Decoding (dmax)",
     "what is fed for a new token: its blend with the mask, or the token plus the likeliest ids"},
    {"token_merge_top_k", NULL, UM_OPT_INT, UM_FIELD(um_decoding, token_merge_top_k), 1, UM_TOP_MAX, NULL, "1", NULL,
     "N", "Decoding (dmax)", "likeliest ids that iter_smooth_topk adds"},
    {"token_merge_renormalize", NULL, UM_OPT_BOOL, UM_FIELD(um_decoding, token_merge_renormalize), 0, 0, NULL, "true",
     NULL, NULL, "Decoding (dmax)", "dmax_topk: a blend gets the length of its parts"},
    {"token_merge_weight", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, token_merge_weight), 0, 100, NULL, "1", NULL, "X",
     "Decoding (dmax)", "weight of what iter_smooth_topk adds; 0 feeds plain tokens in both modes"},
    {"clean_commit", NULL, UM_OPT_BOOL, UM_FIELD(um_decoding, clean_commit), 0, 0, NULL, "true", NULL, NULL,
     "Decoding (dmax)", "keys and values of a finished block are those of its tokens, not of blends"},
};

float um_dmax_confidence(const um_choice *c, int32_t i) {
    return c->token[i] != UM_MASKED && c->how->dmax_fast_path ? 1 : c->answer[i].p_sample;
}

/* Masks that the pass fills, from the left. */
static int32_t masks_to_fill(const um_choice *c, bool timed_out) {
    int32_t n = 0;
    for (int32_t i = c->n_fixed; i < c->n; i++) {
        if (c->token[i] != UM_MASKED) continue;
        if (um_dmax_confidence(c, i) < c->how->accept_threshold && !timed_out) return n > 0 ? n : 1;
        n++;
    }
    return n;
}

static bool all_sure(const um_choice *c) {
    for (int32_t i = 0; i < c->n; i++)
        if (!(um_dmax_confidence(c, i) >= c->how->commit_confidence)) return false;
    return true;
}

/* Fills d and its ratio; returns whether anything changed, the prompt's positions (compat) included. */
static bool refresh(const um_choice *c, int32_t fill, um_decision *d) {
    int32_t compared = 0, same = 0;
    bool changed = false;
    for (int32_t i = 0; i < c->n; i++) {
        const int32_t is = c->token[i];
        if (is == UM_MASKED && fill-- <= 0) continue;
        const int32_t next = um_edit_id(c, c->answer[i].sample);
        compared += is != UM_MASKED && next != UM_MASKED;
        same += is != UM_MASKED && next == is;
        changed |= next != is;
        if (i >= c->n_fixed) um_edit_write(d, c, i, next);
    }
    d->same_token_ratio = compared ? (float)same / (float)compared : 1;
    return changed;
}

static void dmax_accept(const um_choice *c, um_decision *d) {
    if (c->n == c->n_fixed) { /* compat: what the model thinks of the prompt alone ends nothing */
        d->committable = true;
        d->same_token_ratio = 1;
        return;
    }
    const bool capped = !c->compat->literal_edits, timed_out = capped && um_edit_timed_out(c);
    const int32_t fill = masks_to_fill(c, timed_out);
    const bool changed = refresh(c, fill, d);
    const bool exhausted = capped && !timed_out && fill == 0 && um_edit_exhausted(c);
    if (exhausted) d->n = 0;
    d->committable = timed_out || exhausted || !changed || all_sure(c);
}

static uint32_t dmax_want(const um_req *r) {
    (void)r;
    return UM_WANT_SAMPLE;
}

static int32_t dmax_n_top(const um_req *r) {
    bool smooths = r->how.token_merge_mode == UM_MERGE_ITER_SMOOTH && r->how.token_merge_weight > 0;
    return smooths ? r->how.token_merge_top_k : 0;
}

const um_sampler um_sampler_dmax = {
    .name = "dmax",
    .summary = "fill masks from the left while they are above accept_threshold, and refresh every filled token",
    .source = "Diffulex dmax (revision 184ba97)",
    .params = {{um_threshold_options, UM_LEN(um_threshold_options)},
               {um_edit_options, UM_LEN(um_edit_options)},
               {params, UM_LEN(params)},
               {um_token_merge_options, UM_LEN(um_token_merge_options)}},
    .edits = true,
    .block_only = true,
    .want = dmax_want,
    .n_top = dmax_n_top,
    .accept = dmax_accept,
};
