/* levenshtein and joint_indel: block diffusion in which a pass deletes and inserts tokens (LLaDA2.2). One block at a
 * time is denoised. Its predictions fill masks and replace tokens. A position may also predict that its token is
 * deleted, or that a mask is inserted before it; the tokens behind it then move. indel_rules.c decides what a pass
 * does.
 *
 * A token moves only within its block and keeps the pass in which it was written and its probability. Nothing of a
 * block is settled before the block is finished. A block is denoised as a whole, also where it reaches beyond the limit
 * of the answer: tokens from there may move into the answer. In the last pass over a block nothing changes, so the keys
 * of that pass are final, and no other pass stores the block.
 *
 *     chunk       stores whole blocks of the prompt that do not fit into the pass over the current block
 *     denoise     feeds everything from r->stored to the end of the current block
 *
 * Under a constraint no token moves, and positions beyond the limit are not written. */
#include <math.h>

#include "decode/best_filling.h"
#include "decode/samplers/samplers.h"
#include "decode/strategies/indel.h"

typedef struct indel {
    um_indel block;
    int32_t start, len; /* the current block */
    int32_t count;      /* passes over it; a part of the random key */
    int32_t shown;      /* start of the block of the last pass; for traces */
    bool begun;
    um_best_filling *filling; /* NULL: each row's own choice counts */
    int32_t *position;        /* [len] for `filling` */
} indel;

static const um_option levenshtein_options[] = {
    {"max_steps_per_block", NULL, UM_OPT_INT, UM_FIELD(um_decoding, max_steps_per_block), 1, 65536, NULL, "1000", NULL,
     "N", "Decoding (editing)", "largest number of passes over a block, besides the one that finds it finished"},
};

/* Returns the end of the block's positions that may be written. */
static int32_t written_end(const um_req *r, const indel *s) {
    const int32_t end = s->start + s->len;
    return r->fill ? UM_MIN(end, r->limit) : end;
}

/* Copies the present tokens of the block to where the rules read them. */
static void load_tokens(const um_req *r, indel *s) {
    for (int32_t p = s->start; p < written_end(r, s); p++)
        s->block.token[p - s->start] = um_req_masked(r, p) ? UM_MASKED : r->token[p];
}

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

static um_status check_model(const um_req *r, um_err *err) {
    const um_traits *t = r->traits;
    if (t->see != UM_SEE_BLOCK_CAUSAL || t->delete_id < 0 || t->split_id < 0)
        return um_fail_param(err, UM_EUNSUPPORTED, "decoding_strategy",
                             "%s needs a block-causal model with ids that delete and insert tokens, like LLaDA2.2; use "
                             "--decoding-strategy auto",
                             r->strategy->name);
    return UM_OK;
}

static um_status check_block_size(const um_req *r, um_err *err) {
    const int32_t B = r->how.block_size, group = r->traits->route_block;
    if (!group || B % group == 0) return UM_OK;
    return um_fail_param(err, UM_ERANGE, "block_size",
                         "%d; this model chooses experts for groups of %d positions, so block_size must be a multiple "
                         "of that",
                         B, group);
}

static um_indel_how how_of(const um_req *r, um_indel_rule rule) {
    const um_decoding *d = &r->how;
    return (um_indel_how){.rule = rule,
                          .threshold = d->accept_threshold,
                          .edit_threshold = d->edit_threshold,
                          .max_post = d->max_post_edit_steps,
                          .steps = d->denoising_steps ? d->denoising_steps : d->block_size,
                          .max_steps = d->max_steps_per_block,
                          .mask_id = r->traits->mask_id,
                          .delete_id = r->traits->delete_id,
                          .split_id = r->traits->split_id};
}

/* Shown likeliest ids leave out the mask and the two ids that edit. */
static int32_t n_top(const um_req *r, int32_t needed) {
    if (r->fills_best) needed = UM_MAX(needed, UM_FILLING_TOKENS);
    return UM_MAX(needed, r->n_top ? UM_MIN(r->n_top + 3, UM_TOP_MAX) : 0);
}

static um_status init(um_req *r, um_indel_rule rule, um_err *err) {
    um_decoding *d = &r->how;
    um_status st = check_model(r, err);
    if (!st) st = um_req_resolve_block_size(r, r->traits->block > 0 ? r->traits->block : 32, err);
    if (!st) st = check_block_size(r, err);
    if (st) return st;
    if (isnan(d->accept_threshold)) d->accept_threshold = r->traits->accept_threshold;
    const um_indel_how how = how_of(r, rule);
    indel *s = UM_NEW(indel);
    s->len = d->block_size;
    s->start = s->shown = r->n_prompt / s->len * s->len;
    um_indel_init(&s->block, &how, s->len);
    if (r->fills_best) {
        s->filling = um_best_filling_new(s->len);
        s->position = UM_NEW_ARRAY(int32_t, (size_t)s->len);
    }
    r->state = s;
    r->may_choose_mask = rule == UM_INDEL_JOINT;
    r->moves_tokens = r->replaces_tokens = true;
    r->n_top_asked = n_top(r, um_indel_n_top_max(&s->block));
    r->settled = r->n_prompt;
    return UM_OK;
}

static um_status init_levenshtein(um_req *r, um_err *err) { return init(r, UM_INDEL_LEVENSHTEIN, err); }
static um_status init_joint(um_req *r, um_err *err) { return init(r, UM_INDEL_JOINT, err); }

static void free_state(um_req *r) {
    indel *s = (indel *)r->state;
    um_indel_deinit(&s->block);
    um_best_filling_free(s->filling);
    um_free(s->position);
    um_free(s);
    r->state = NULL;
}

/* ---- Fed positions and needs ------------------------------------------------------------------------------------- */

/* Returns the end of what a pass of at most `budget` tokens feeds: the end of the block, or that of the largest chunk
 * of stored blocks, at least one. */
static int32_t feed_end(const um_req *r, const indel *s, int32_t budget) {
    const int32_t B = s->len, end = s->start + B, from = r->stored;
    if (from >= s->start || end - from <= budget) return end;
    const int32_t first = (from / B + 1) * B;
    return UM_MIN(first + UM_MAX(0, from + budget - first) / B * B, s->start);
}

static um_need need(const um_req *r) {
    const indel *s = (const indel *)r->state;
    const int32_t B = s->len, end = s->start + B, all = UM_CEIL_DIV(r->limit, B) * B;
    const int32_t edits = (int32_t)UM_MIN((int64_t)um_req_bad_edits_max(r) * B, INT32_MAX);
    return (um_need){.tokens = end - r->stored,
                     .least = feed_end(r, s, 0) - r->stored,
                     .rows = B,
                     .slots = end,
                     .edits = edits,
                     .tokens_max = B,
                     .rows_max = B,
                     .slots_max = all,
                     .edits_max = edits,
                     .positions_max = all,
                     .tables = 1};
}

/* ---- Plan -------------------------------------------------------------------------------------------------------- */

static void begin(const um_req *r, indel *s) {
    const int32_t fixed = UM_MAX(0, r->n_prompt - s->start);
    load_tokens(r, s);
    um_indel_begin(&s->block, written_end(r, s) - s->start, fixed, fixed);
    s->begun = true;
}

static void plan(um_req *r, um_pass *pass) {
    indel *s = (indel *)r->state;
    const um_visibility rule = {.see = UM_SEE_BLOCK_CAUSAL, .block = s->len};
    const int32_t first = r->stored, end = feed_end(r, s, pass->budget);
    const bool partial = end <= s->start;
    if (!s->begun) begin(r, s);
    um_pass_kind kind = r->nfe == 0 ? UM_PASS_PREFILL : partial || s->block.final ? UM_PASS_COMMIT : UM_PASS_DENOISE;
    um_pass_add(pass, r, kind, first, end, rule);
    if (um_pass_store(pass, r, partial ? end : 0) || s->block.final) return;
    um_req_prepare_rows(r, s->start, written_end(r, s));
    for (int32_t p = s->start + s->block.n_kept; p < written_end(r, s); p++)
        um_pass_row(pass, r, p - first, p, s->count);
}

/* ---- Apply ------------------------------------------------------------------------------------------------------- */

/* Moves and writes the tokens of the block as the rules decided. A position keeps its token when the request forbids
 * the new one. */
static void write_block(um_req *r, indel *s, const um_answer *answer) {
    const um_indel *b = &s->block;
    um_req_rearrange(r, s->start, b->from, b->n);
    for (int32_t i = b->n_kept; i < b->n; i++) {
        const int32_t p = s->start + i, id = b->id[i];
        if (b->from[i] < 0) continue;
        if (id == UM_MASKED) {
            if (!um_req_masked(r, p)) um_req_erase(r, p);
        } else if ((um_req_masked(r, p) || r->token[p] != id) && um_req_accepts(r, p, id)) {
            um_req_write(r, p, id, &answer[b->from[i] - b->n_kept]);
        }
    }
    if (r->fill) um_req_write_forced(r, s->start + b->n_kept, s->start + b->n);
}

/* Masks tokens that may not stand where they have moved to: a stop id before min_tokens, a token that completes a bad
 * sequence. */
static void mask_misplaced(um_req *r, const indel *s) {
    const int32_t early = r->n_prompt + r->sampling.min_tokens;
    for (int32_t i = s->block.n_kept; i < s->block.n; i++) {
        const int32_t p = s->start + i;
        if (um_req_masked(r, p)) continue;
        const bool is_early = p < early && um_req_stops_at(r, r->token[p]) != UM_FINISH_NONE;
        if (is_early || um_req_is_bad(r, p, r->token[p])) um_req_erase(r, p);
    }
}

static int32_t count_masks(const um_req *r, const indel *s) {
    int32_t n = 0;
    for (int32_t p = s->start; p < written_end(r, s); p++) n += um_req_masked(r, p);
    return n;
}

/* Goes on to the next block. Everything before it is stored. */
static void enter_next(um_req *r, indel *s) {
    s->start += s->len;
    s->begun = false;
    s->count = 0;
    um_indel_begin(&s->block, 0, 0, 0);
    r->stored = r->settled = s->start;
}

/* Returns the answers with the tokens of the best filling, where the request wants it. */
static const um_answer *fit(const um_req *r, indel *s, const um_answer *answer) {
    const int32_t first = s->start + s->block.n_kept, n = written_end(r, s) - first;
    const um_sampler_input c = {.position = s->position, .n = n};
    if (!s->filling || s->block.final) return answer;
    for (int32_t i = 0; i < n; i++) s->position[i] = first + i;
    return um_best_filling_find(s->filling, r, &c, 0, answer);
}

/* A block with masks is not finished, whatever its rule says: some of its tokens could not be written. */
static void decide(um_req *r, indel *s, const um_answer *answer) {
    um_indel *b = &s->block;
    answer = fit(r, s, answer);
    const bool done = um_indel_step(b, answer, r->n_top_asked);
    if (!done) {
        write_block(r, s, answer);
        mask_misplaced(r, s);
        load_tokens(r, s);
    }
    const int32_t n_masks = count_masks(r, s);
    if (n_masks > 0) b->final = false;
    if (done && n_masks == 0) enter_next(r, s);
    r->n_top_asked = n_top(r, um_indel_n_top(b));
}

static void apply(um_req *r, const um_answer *answer) {
    indel *s = (indel *)r->state;
    if (um_req_store(r)) return;
    r->n_new = 0;
    r->prefill_passes += r->nfe == 0;
    r->stored = s->shown = s->start;
    r->end = s->start + s->len;
    s->count++;
    decide(r, s, answer);
    um_req_check_stop(r);
}

/* ---- Sharing and traces ------------------------------------------------------------------------------------------ */

/* Stored keys are those of multi_bd with blocks of the same length. */
static uint64_t share(const um_req *r, int32_t *most) {
    const indel *s = (const indel *)r->state;
    *most = s->start;
    return s->start && r->traits->page_size % s->len == 0 ? (uint64_t)s->len : 0;
}

static const char *status_of(const indel *s) {
    return um_block_status_name(s->start > s->shown          ? UM_BLOCK_IN_CACHE
                                : s->begun && s->block.final ? UM_BLOCK_TO_CACHE
                                                             : UM_BLOCK_ACTIVE);
}

static int32_t blocks(const um_req *r, um_block_view *out) {
    const indel *s = (const indel *)r->state;
    return um_req_view_block(r, s->shown, s->shown + s->len, status_of(s), out);
}

static void trace(const um_req *r, um_trace_space *space, um_trace *out) {
    const indel *s = (const indel *)r->state;
    space->block[0] = s->shown / s->len;
    space->status[0] = status_of(s);
    space->masks[0] = 0;
    for (int32_t p = s->shown; p < s->shown + s->len; p++) space->masks[0] += um_req_masked(r, p);
    out->n_new = r->n_new;
    out->n_blocks = 1;
    out->block = space->block;
    out->masks = space->masks;
    out->status = space->status;
    out->token = r->token + s->shown;
    out->n_tokens = s->len;
}

const um_strategy um_strategy_levenshtein = {
    .name = "levenshtein",
    .aliases = "joint_decode_block",
    .summary = "block diffusion that also deletes and inserts tokens, with a schedule of filled positions",
    .source = "LLaDA2.2: the decoding loop of the checkpoints, after FluxServe's levenshtein decoder",
    .params = {{levenshtein_options, UM_LEN(levenshtein_options)},
               {um_threshold_options, UM_LEN(um_threshold_options)},
               {um_edit_options, UM_LEN(um_edit_options)},
               {um_edit_threshold_options, UM_LEN(um_edit_threshold_options)},
               {um_denoising_options, UM_LEN(um_denoising_options)}},
    .init = init_levenshtein,
    .need = need,
    .plan = plan,
    .apply = apply,
    .blocks = blocks,
    .trace = trace,
    .share = share,
    .free = free_state,
};

const um_strategy um_strategy_joint_indel = {
    .name = "joint_indel",
    .aliases = "joint_threshold_indel,JointThresholdInDel",
    .summary =
        "block diffusion that also deletes and inserts tokens, with a threshold and at least one filled mask a pass",
    .source = "LLaDA2.2: JointThresholdInDel of SGLang",
    .params = {{um_threshold_options, UM_LEN(um_threshold_options)},
               {um_edit_options, UM_LEN(um_edit_options)},
               {um_edit_threshold_options, UM_LEN(um_edit_threshold_options)}},
    .init = init_joint,
    .need = need,
    .plan = plan,
    .apply = apply,
    .blocks = blocks,
    .trace = trace,
    .share = share,
    .free = free_state,
};
