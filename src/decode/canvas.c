/* The canvas: its parameters, and its passes from plan to apply. */
#include "decode/canvas.h"

#include <math.h>

#define FIELD(name) UM_FIELD(um_decoding, name)

const um_option um_canvas_options[UM_N_CANVAS_OPTIONS] = {
    {"gen_length", NULL, UM_OPT_INT, FIELD(gen_length), 1, 65536, NULL, "auto", "0", "N", "Decoding (whole sequence)",
     "length of the canvas in tokens; auto means max_tokens"},
    {"steps", "diffusion_steps", UM_OPT_INT, FIELD(steps), 1, 65536, NULL, "auto", "0", "N",
     "Decoding (whole sequence)", "number of denoising passes for the whole canvas; auto means one per token"},
    {"cfg_scale", "cfg", UM_OPT_FLOAT, FIELD(cfg_scale), 0, 100, NULL, "0", NULL, "X", "Decoding (whole sequence)",
     "strength of classifier-free guidance against the masked prompt; doubles the work; 0 means off"},
};

static int32_t copies(const um_req *r) { return r->how.cfg_scale > 0 ? 2 : 1; }

/* Returns the first position of block k, or the end of the canvas if k is past the last block. */
static int32_t block_start(const um_canvas *c, const um_req *r, int32_t k) {
    return UM_MIN(r->n_prompt + k * r->how.block_size, c->end);
}

/* ---- Parameters -------------------------------------------------------------------------------------------------- */

static um_status find_sampler(const um_req *r, const um_sampler **out, um_err *err) {
    const char *name = um_streq(r->how.sampler, "auto") ? r->traits->sampler : r->how.sampler;
    um_status st = um_sampler_find(out, name, err);
    if (st) return st;
    if ((*out)->edits || (*out)->block_only)
        return um_fail_param(err, UM_EUNSUPPORTED, "sampler",
                             "%s needs the blocks of block diffusion, which strategy %s does not have; see `unmask "
                             "list samplers`",
                             (*out)->name, r->strategy->name);
    return UM_OK;
}

static um_status resolve_length(um_req *r, um_err *err) {
    um_decoding *d = &r->how;
    if (d->gen_length == 0) d->gen_length = r->limit - r->n_prompt;
    if (r->n_suffix && d->gen_length > r->limit - r->n_prompt)
        return um_fail_param(err, UM_ERANGE, "gen_length",
                             "%d, but before a suffix the answer fills the whole canvas, and it may have at most %d "
                             "tokens; raise max_tokens or leave gen_length unset",
                             d->gen_length, r->limit - r->n_prompt);
    if (d->gen_length <= r->max_len - r->n_prompt) return UM_OK;
    return um_fail_param(err, UM_ERANGE, "gen_length", "prompt %d + gen_length %d = %d tokens, but max_model_len is %d",
                         r->n_prompt, d->gen_length, r->n_prompt + d->gen_length, r->max_len);
}

/* LLaDA fills block by block. The samplers of Dream and RND1 fill the canvas as one block, unless keys are reused,
 * which works block by block. */
static int32_t auto_block(const um_decoding *d, const um_sampler *sampler, bool slices) {
    bool whole = sampler->schedule == UM_SCHEDULE_TIME || sampler->schedule == UM_SCHEDULE_LINEAR;
    return whole && !slices ? d->gen_length : UM_CANVAS_AUTO_BLOCK;
}

static um_status resolve_steps(um_req *r, const um_sampler *sampler, um_err *err) {
    um_decoding *d = &r->how;
    int32_t n_blocks = UM_CEIL_DIV(d->gen_length, d->block_size);
    if (sampler->schedule == UM_SCHEDULE_NONE && d->steps)
        return um_fail_param(err, UM_EINVAL, "steps",
                             "%d is set, but sampler %s follows no schedule: it decides by the predictions", d->steps,
                             sampler->name);
    if (d->denoising_steps && sampler->schedule == UM_SCHEDULE_EVEN)
        return um_fail_param(err, UM_EINVAL, "denoising_steps",
                             "%d would have no effect: strategy %s takes the number of passes from steps",
                             d->denoising_steps, r->strategy->name);
    if (d->steps == 0) d->steps = d->gen_length;
    if (d->steps < n_blocks)
        return um_fail_param(err, UM_ERANGE, "steps",
                             "%d passes for %d blocks (gen_length %d, block_size %d); every block needs "
                             "at least one",
                             d->steps, n_blocks, d->gen_length, d->block_size);
    return UM_OK;
}

static um_status resolve(um_req *r, const um_sampler **sampler, bool slices, um_err *err) {
    um_decoding *d = &r->how;
    if (r->traits->see != UM_SEE_FULL)
        return um_fail_param(err, UM_EUNSUPPORTED, "decoding_strategy",
                             "%s needs a model with full attention; this one is block-causal: use multi_bd",
                             r->strategy->name);
    um_status st = find_sampler(r, sampler, err);
    if (!st) st = resolve_length(r, err);
    if (st) return st;
    if (d->block_size == 0) d->block_size = auto_block(d, *sampler, slices);
    d->block_size = UM_MIN(d->block_size, d->gen_length);
    if (isnan(d->accept_threshold)) d->accept_threshold = r->traits->accept_threshold;
    st = resolve_steps(r, *sampler, err);
    if (!st && (*sampler)->init) st = (*sampler)->init(r, err);
    return st;
}

/* Returns the number of passes of block k: one for its first position, and a share of the remaining passes in
 * proportion to its other positions. The shares add up to all passes, and with one pass per position every block gets
 * as many passes as it has positions. */
static int32_t block_steps(const um_canvas *c, const um_req *r, int32_t k) {
    int64_t spare = r->how.steps - c->n_blocks, positions = r->how.gen_length - c->n_blocks;
    if (positions == 0) return 1;
    int64_t before = block_start(c, r, k) - r->n_prompt - k;
    int64_t behind = block_start(c, r, k + 1) - r->n_prompt - (k + 1);
    return 1 + (int32_t)(UM_CEIL_DIV(spare * behind, positions) - UM_CEIL_DIV(spare * before, positions));
}

/* Goes on to block k. After the last block, this is an empty block at the end of the canvas. */
static void start_block(um_canvas *c, um_req *r, int32_t k) {
    const int32_t start = block_start(c, r, k), len = block_start(c, r, k + 1) - start;
    c->block = (um_block){.id = k, .start = start, .len = len, .status = UM_BLOCK_ACTIVE, .n_masks = len};
    c->candidates.n_steps = block_steps(c, r, k);
    c->keys = UM_KEYS_NONE;
    um_candidates_clear_memory(&c->candidates, &c->block);
    if (um_remasks(r)) r->settled = start;
}

um_status um_canvas_init(um_canvas *c, um_req *r, bool slices, um_err *err) {
    const um_sampler *sampler;
    um_status st = resolve(r, &sampler, slices, err);
    if (st) return st;
    r->sampler = sampler;
    *c = (um_canvas){.end = r->n_prompt + r->how.gen_length,
                     .length = r->n_prompt + r->how.gen_length + r->n_suffix,
                     .n_blocks = UM_CEIL_DIV(r->how.gen_length, r->how.block_size),
                     .fed = UM_NEW_ARRAY(int32_t, (size_t)r->how.block_size)};
    um_candidates_init(&c->candidates, r, r->how.block_size, 1);
    start_block(c, r, 0);
    return UM_OK;
}

void um_canvas_deinit(um_canvas *c) {
    um_candidates_deinit(&c->candidates);
    um_free(c->fed);
}

int32_t um_canvas_scratch(const um_req *r, int32_t tokens) {
    const int32_t page = r->traits->page_size;
    return copies(r) * UM_CEIL_DIV(tokens, page) * page;
}

um_need um_canvas_need(const um_canvas *c, const um_req *r, int32_t tokens) {
    int32_t rows = r->how.block_size, most = c->length * copies(r), edits = um_candidates_edits_max(r, rows);
    tokens *= copies(r);
    return (um_need){.tokens = tokens,
                     .rows = rows,
                     .least = tokens,
                     .edits = edits,
                     .tokens_max = most,
                     .rows_max = rows,
                     .edits_max = edits,
                     .positions_max = c->length,
                     .tables = copies(r)};
}

/* ---- Plan -------------------------------------------------------------------------------------------------------- */

void um_canvas_feed(um_req *r, um_pass *pass, um_pass_kind kind, int32_t start, int32_t stop) {
    const um_visibility all = {.see = UM_SEE_FULL};
    um_pass_add(pass, r, kind, start, stop, all);
    if (copies(r) == 1) return;
    int32_t *id = pass->id + pass->n_tokens;
    um_pass_add(pass, r, kind, start, stop, all)->page = r->page[1];
    int32_t suffix = r->cap - r->n_suffix;
    for (int32_t p = start; p < r->n_prompt; p++) id[p - start] = r->traits->mask_id;
    for (int32_t p = UM_MAX(start, suffix); p < stop; p++) id[p - start] = r->traits->mask_id;
}

/* Skips the steps that commit no token. The model's predictions have no influence on which steps these are. */
static void skip_empty_steps(um_canvas *c, um_req *r) {
    um_candidates *v = &c->candidates;
    const bool draws = r->sampler->is_independent;
    while (v->input.n > 0 && (draws ? um_candidates_decide(v, r, NULL)->n == 0 : v->input.keep == 0))
        um_candidates_set_step(v, r, ++c->block.count);
}

/* Under guidance the second segment, without the prompt, predicts the same position. */
static void guide(const um_req *r, const um_pass *pass, um_row *row) {
    const float g = r->how.cfg_scale;
    assert(row->src[0] >= 0); /* strategies with a canvas save no hidden rows */
    if (!(g > 0)) return;
    row->src[1] = row->src[0] + pass->seg[0].n;
    row->w[0] = 1 + g;
    row->w[1] = -g;
}

/* Returns the end of the positions that the block may write. A constraint plans the text up to the limit only. */
static int32_t written_end(const um_canvas *c, const um_req *r) {
    return r->fill ? UM_MIN(um_canvas_stop(c), r->limit) : um_canvas_stop(c);
}

void um_canvas_add_rows(um_canvas *c, um_req *r, um_pass *pass, int32_t first) {
    const int32_t end = written_end(c, r);
    um_req_prepare_rows(r, c->block.start, end);
    c->block.total_steps++;
    um_candidates_find(&c->candidates, r, &c->block, end);
    skip_empty_steps(c, r);
    um_candidates_add_rows(&c->candidates, r, pass, first);
    for (int32_t i = 0; i < pass->n_rows; i++) guide(r, pass, &pass->row[i]);
}

void um_canvas_save_fed(um_canvas *c, const um_req *r) {
    memcpy(c->fed, r->token + c->block.start, (size_t)c->block.len * sizeof(*c->fed));
}

void um_canvas_rebuild(um_canvas *c, um_req *r, um_pass *pass) {
    int32_t *id = pass->id + pass->n_tokens;
    um_canvas_feed(r, pass, UM_PASS_PREFILL, 0, c->length);
    /* Outside the block nothing has changed since that pass: the tokens before it are final, and the positions after it
     * are masks. */
    for (int32_t k = 0; k < copies(r); k++, id += c->length)
        memcpy(id + c->block.start, c->fed, (size_t)c->block.len * sizeof(*c->fed));
    pass->partial = c->rebuilds = true;
}

/* ---- Apply ------------------------------------------------------------------------------------------------------- */

/* Puts the block's first position in front of the decision, if it is a mask. Its token is written first, so no other
 * token of the pass can rule it out. */
static void add_lead(um_canvas *c, const um_req *r) {
    const um_sampler_input *all = &c->candidates.input;
    um_decision *d = &c->candidates.decision;
    /* With shifted predictions the first position can't be remasked, because later passes do not feed the row that
     * predicts it. */
    c->block.editable_start = r->traits->shift;
    if (all->n == 0 || all->position[0] != c->block.start) return;
    int32_t lead = 0;
    while (lead < d->n && d->at[lead] != 0) lead++;
    if (lead == d->n) {
        /* Samplers that commit a given number of tokens decide the best token first, so the last decision is dropped.
         */
        bool counted = r->sampler->schedule != UM_SCHEDULE_NONE && !r->sampler->is_independent;
        if (counted && d->n > 0) d->n--;
        um_decide(d, all, 0);
        lead = d->n - 1;
    }
    const int32_t id = d->id[lead];
    memmove(d->at + 1, d->at, (size_t)lead * sizeof *d->at);
    memmove(d->id + 1, d->id, (size_t)lead * sizeof *d->id);
    d->at[0] = 0;
    d->id[0] = id;
}

bool um_canvas_rebuilt(um_canvas *c) {
    if (!c->rebuilds) return false;
    c->rebuilds = false;
    c->keys = UM_KEYS_STORED;
    return true;
}

void um_canvas_apply(um_canvas *c, um_req *r, const um_answer *answer, bool lead) {
    um_candidates_decide(&c->candidates, r, answer);
    if (lead) add_lead(c, r);
    r->end = c->end;
    r->n_new = 0;
    um_candidates_commit(&c->candidates, r, &c->block);
    if (c->block.n_masks == 0) start_block(c, r, c->block.id + 1);
    um_req_check_stop(r);
    if (r->finish != UM_FINISH_NONE || c->block.id < c->n_blocks) return;
    um_req_finish(r, r->fill ? UM_FINISH_EOS : UM_FINISH_STEPS); /* a constrained text is complete */
}

/* ---- Parts of um_strategy ---------------------------------------------------------------------------------------- */

int32_t um_canvas_blocks(const um_req *r, um_block_view *out) {
    const um_canvas *c = (const um_canvas *)r->state;
    const char *active = um_block_status_name(UM_BLOCK_ACTIVE);
    return um_req_view_block(r, c->block.start, um_canvas_stop(c), active, out);
}

void um_canvas_trace(const um_req *r, um_trace_space *space, um_trace *out) {
    const um_canvas *c = (const um_canvas *)r->state;
    int32_t k = UM_MIN(c->block.id, c->n_blocks - 1), start = block_start(c, r, k);
    space->block[0] = k;
    space->masks[0] = 0;
    space->status[0] = um_block_status_name(UM_BLOCK_ACTIVE);
    out->n_tokens = block_start(c, r, k + 1) - start;
    for (int32_t i = 0; i < out->n_tokens; i++) space->masks[0] += um_req_masked(r, start + i);
    out->n_new = r->n_new;
    out->n_blocks = 1;
    out->block = space->block;
    out->masks = space->masks;
    out->status = space->status;
    out->token = r->token + start;
}

void um_canvas_preempt(um_req *r) {
    um_canvas *c = (um_canvas *)r->state;
    if (c->keys == UM_KEYS_STORED) c->keys = UM_KEYS_LOST;
    c->rebuilds = false;
}

void um_canvas_free(um_req *r) {
    if (r->state) um_canvas_deinit((um_canvas *)r->state);
    um_free(r->state);
    r->state = NULL;
}

/* ---- Reuse of stored keys ---------------------------------------------------------------------------------------- */

um_status um_cached_init(um_req *r, um_err *err) {
    um_canvas *c = UM_NEW(um_canvas);
    um_status st = um_canvas_init(c, r, true, err);
    if (st) um_free(c);
    else r->state = c;
    return st;
}

um_need um_cached_need(const um_req *r, int32_t stop) {
    const um_canvas *c = (const um_canvas *)r->state;
    bool refresh = c->keys != UM_KEYS_STORED;
    um_need n = um_canvas_need(c, r, refresh ? c->length : stop - c->block.start);
    n.refresh = refresh;
    n.slots = n.slots_max = c->length;
    return n;
}

void um_cached_plan(um_req *r, um_pass *pass, int32_t stop) {
    um_canvas *c = (um_canvas *)r->state;
    if (c->keys == UM_KEYS_LOST) {
        um_canvas_rebuild(c, r, pass);
        return;
    }
    int32_t first = 0;
    if (c->keys == UM_KEYS_NONE) {
        um_canvas_save_fed(c, r);
        stop = c->length;
    } else first = c->block.start;
    um_canvas_feed(r, pass, UM_PASS_DENOISE, first, stop);
    for (int32_t i = 0; i < pass->n_seg; i++) pass->seg[i].keys.end = c->length;
    um_canvas_add_rows(c, r, pass, first);
}

void um_cached_apply(um_req *r, const um_answer *answer) {
    um_canvas *c = (um_canvas *)r->state;
    if (um_canvas_rebuilt(c)) return;
    bool lead = c->keys == UM_KEYS_NONE && r->traits->shift;
    c->keys = UM_KEYS_STORED;
    um_canvas_apply(c, r, answer, lead);
}
