/* LLaDA2.1's joint filling and editing: a pass fills masks and replaces tokens that the model no longer prefers.
 *
 * A mask is filled when the probability of its token is above accept_threshold, and the mask with the highest
 * probability is always filled. A filled position is replaced when the probability of another token is now above
 * edit_threshold. A pass that changes nothing ends the block. Two limits make sure that every block ends: see
 * um_edit_timed_out and um_edit_exhausted. When um_edit_exhausted ends a block, the changes of that pass are dropped,
 * so that the block consists of tokens that the model has seen together.
 *
 * At each position penalty_lambda is subtracted from the logit of the token that precedes it within the block. */
#include "decode/samplers/samplers.h"

const um_option um_edit_options[1] = {
    {"max_post_edit_steps", "max_post_steps", UM_OPT_INT, UM_FIELD(um_decoding, max_post_edit_steps), 0, 65536, NULL,
     "16", NULL, "N", "Decoding (editing)", "largest number of passes that edit a block without masks"},
};

const um_option um_edit_threshold_options[1] = {
    {"edit_threshold", "editing_threshold", UM_OPT_FLOAT, UM_FIELD(um_decoding, edit_threshold), 0, 1, NULL, "0", NULL,
     "P", "Decoding (editing)", "replace a token if the model prefers another one with a probability above this"},
};

static const um_option params[] = {
    {"penalty_lambda", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, penalty_lambda), 0, 1000, NULL, "0", NULL, "X",
     "Decoding (editing)", "subtract this from the logit of the token on the left, within a block; 0 means off"},
};

bool um_edit_timed_out(const um_sampler_input *c) {
    return c->total_steps >= c->block_len + c->how->max_post_edit_steps;
}
bool um_edit_exhausted(const um_sampler_input *c) { return c->post_edit_steps > c->how->max_post_edit_steps; }

void um_edit_write(um_decision *d, const um_sampler_input *c, int32_t i, int32_t id) {
    id = um_edit_id(c, id);
    if (id == c->token[i]) return;
    d->at[d->n] = i;
    d->id[d->n++] = id;
}

/* ---- Preferred tokens -------------------------------------------------------------------------------------------- */

/* compat: with a penalty the best id is taken instead of a draw. */
static bool is_greedy(const um_decoding *how, const um_compat *compat) {
    return compat->literal_edits && how->penalty_lambda > 0;
}

static int32_t preferred(const um_sampler_input *c, int32_t i) {
    const um_answer *a = &c->answer[i];
    return um_edit_id(c, is_greedy(c->how, c->compat) ? a->best : a->sample);
}

static float probability(const um_sampler_input *c, int32_t i) {
    const um_answer *a = &c->answer[i];
    return is_greedy(c->how, c->compat) ? a->p_best : a->p_sample;
}

static uint32_t edit_want(const um_req *r) {
    return is_greedy(&r->how, r->compat) ? UM_WANT_SAMPLE | UM_WANT_BEST : UM_WANT_SAMPLE;
}

static int32_t edit_edits_max(const um_req *r) { return r->how.penalty_lambda > 0; }

static int32_t edit_edit(const um_sampler_input *c, int32_t i, um_edit *out) {
    if (c->how->penalty_lambda == 0) return 0;
    int32_t before = i > 0 ? c->token[i - 1] : c->previous;
    if (i > 0 && before == UM_MASKED) before = c->mask_id;
    if (before == UM_MASKED) return 0; /* the position is the first of its block */
    *out = (um_edit){.id = before, .add = -c->how->penalty_lambda};
    return 1;
}

/* ---- Decision ---------------------------------------------------------------------------------------------------- */

static int32_t surest_mask(const um_sampler_input *c) {
    int32_t best = -1;
    for (int32_t i = c->n_fixed; i < c->n; i++)
        if (c->token[i] == UM_MASKED && (best < 0 || probability(c, i) > probability(c, best))) best = i;
    return best;
}

static float share_kept(const um_sampler_input *c) {
    int32_t filled = 0, kept = 0;
    for (int32_t i = c->n_fixed; i < c->n; i++) {
        filled += c->token[i] != UM_MASKED;
        kept += c->token[i] != UM_MASKED && c->token[i] == preferred(c, i);
    }
    return filled ? (float)kept / (float)filled : 1;
}

static void edit_accept(const um_sampler_input *c, um_decision *d) {
    const float edit_above = c->compat->literal_edits ? 0 : c->how->edit_threshold;
    const int32_t surest = surest_mask(c);
    const bool timed_out = um_edit_timed_out(c);
    bool changes = false;
    if (surest < 0 && um_edit_exhausted(c) && !timed_out) {
        *d = (um_decision){.at = d->at, .id = d->id, .committable = true, .same_token_ratio = share_kept(c)};
        return;
    }
    for (int32_t i = c->n_fixed; i < c->n; i++) {
        float p = probability(c, i);
        bool fill = c->token[i] == UM_MASKED && (i == surest || p > c->how->accept_threshold || timed_out);
        bool edit = c->token[i] != UM_MASKED && p > edit_above && preferred(c, i) != c->token[i];
        if (fill || edit) um_edit_write(d, c, i, preferred(c, i));
        changes |= fill || edit; /* compat: filling a mask with the mask id counts as a change */
    }
    d->committable = timed_out || !changes;
    d->same_token_ratio = timed_out ? 1 : share_kept(c);
}

const um_sampler um_sampler_edit = {
    .name = "edit",
    .aliases = "joint_threshold,JointThreshold",
    .summary = "fills masks above accept_threshold and always the surest one, and replaces a token when another "
               "one is above edit_threshold",
    .source = "LLaDA2.1, arXiv 2602.08676 (joint threshold decoding); Diffulex edit mode (revision 184ba97)",
    .params = {{um_threshold_options, UM_LEN(um_threshold_options)},
               {um_edit_options, UM_LEN(um_edit_options)},
               {um_edit_threshold_options, UM_LEN(um_edit_threshold_options)},
               {params, UM_LEN(params)}},
    .edits = true,
    .block_only = true,
    .want = edit_want,
    .edits_max = edit_edits_max,
    .edit = edit_edit,
    .accept = edit_accept,
};
