/* DMax: fills masks from the left as long as the probabilities are high, and updates every filled token in every pass.
 *
 * A pass fills all masks before the first one whose probability is below accept_threshold, but at least one mask. A
 * filled position gets the token that the model now prefers, whatever its probability. The block is complete when
 * nothing changes, or when the probability of every position is at least commit_confidence. On the slow path, where
 * filled positions have a confidence too, this may never happen; the limits of editing then end the block, see
 * um_edit_timed_out.
 *
 * The strategy decides what the next pass feeds: blends of the embeddings of the new tokens and the mask. */
#include "decode/samplers/samplers.h"

static const um_option params[] = {
    {"dmax_fast_path", "dmax_sampler_fast_path", UM_OPT_BOOL, UM_FIELD(um_decoding, dmax_fast_path), 0, 0, NULL, "true",
     NULL, NULL, "Decoding (dmax)", "treat filled positions as certain, so that only masks have a confidence"},
    {"commit_confidence", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, commit_confidence), 0, 1, NULL, "0.9", NULL, "P",
     "Decoding (dmax)",
     "finish a block when the confidence of every position is at least this, or when a pass changes nothing"},
};

const um_option um_token_merge_options[] = {
    {"token_merge_mode", NULL, UM_OPT_CHOICE, UM_FIELD(um_decoding, token_merge_mode), 0, 0,
     "dmax_topk|iter_smooth_topk", "dmax_topk", NULL, "MODE", "Decoding (dmax)",
     "what is fed for a new token: a blend with the mask (dmax_topk), or the token plus the most likely ids "
     "(iter_smooth_topk)"},
    {"token_merge_top_k", NULL, UM_OPT_INT, UM_FIELD(um_decoding, token_merge_top_k), 1, UM_TOP_MAX, NULL, "1", NULL,
     "N", "Decoding (dmax)", "number of most likely ids that iter_smooth_topk adds"},
    {"token_merge_renormalize", NULL, UM_OPT_BOOL, UM_FIELD(um_decoding, token_merge_renormalize), 0, 0, NULL, "true",
     NULL, NULL, "Decoding (dmax)", "dmax_topk: scale the blended embedding to the weighted length of its parts"},
    {"token_merge_weight", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, token_merge_weight), 0, 100, NULL, "1", NULL, "X",
     "Decoding (dmax)", "weight of the ids that iter_smooth_topk adds; 0 feeds plain tokens in both modes"},
    {"clean_commit", NULL, UM_OPT_BOOL, UM_FIELD(um_decoding, clean_commit), 0, 0, NULL, "true", NULL, NULL,
     "Decoding (dmax)",
     "compute the stored keys and values of a finished block from its tokens; false stores those of the last blends"},
};

float um_dmax_confidence(const um_sampler_input *c, int32_t i) {
    return c->token[i] != UM_MASKED && c->how->dmax_fast_path ? 1 : c->answer[i].p_sample;
}

/* Returns the number of masks, from the left, that the pass fills. */
static int32_t masks_to_fill(const um_sampler_input *c, bool timed_out) {
    int32_t n = 0;
    for (int32_t i = c->n_fixed; i < c->n; i++) {
        if (c->token[i] != UM_MASKED) continue;
        if (um_dmax_confidence(c, i) < c->how->accept_threshold && !timed_out) return n > 0 ? n : 1;
        n++;
    }
    return n;
}

static bool all_sure(const um_sampler_input *c) {
    for (int32_t i = 0; i < c->n; i++)
        if (!(um_dmax_confidence(c, i) >= c->how->commit_confidence)) return false;
    return true;
}

/* Decides the new tokens and computes the ratio. Tells whether anything changed, including (compat) the prompt. */
static bool update(const um_sampler_input *c, int32_t fill, um_decision *d) {
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

static void dmax_accept(const um_sampler_input *c, um_decision *d) {
    if (c->n == c->n_fixed) { /* compat: all candidates belong to the prompt, so nothing can change */
        d->committable = true;
        d->same_token_ratio = 1;
        return;
    }
    const bool capped = !c->compat->literal_edits, timed_out = capped && um_edit_timed_out(c);
    const int32_t fill = masks_to_fill(c, timed_out);
    const bool changed = update(c, fill, d);
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
    .summary = "fills masks from the left while they reach accept_threshold, and updates every filled token",
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
