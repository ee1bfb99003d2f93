/* The canvas: parameters, candidates, rows, decisions. */
#include "decode/canvas.h"

#include <math.h>

#include "decode/view.h"

#define FIELD(name) UM_FIELD(um_decoding, name)

const um_option um_canvas_options[UM_N_CANVAS_OPTIONS] = {
    {"gen_length", NULL, UM_OPT_INT, FIELD(gen_length), 1, 65536, NULL, "auto", "0", "N", "Decoding (whole sequence)",
     "tokens of the canvas; auto is max_tokens"},
    {"steps", "diffusion_steps", UM_OPT_INT, FIELD(steps), 1, 65536, NULL, "auto", "0", "N",
     "Decoding (whole sequence)", "denoising passes for the whole canvas; auto is one per token"},
    {"cfg_scale", "cfg", UM_OPT_FLOAT, FIELD(cfg_scale), 0, 100, NULL, "0", NULL, "X", "Decoding (whole sequence)",
     "classifier-free guidance against the masked prompt; doubles the work, 0 is off"},
};

static int32_t copies(const um_req *r) { return r->how.cfg_scale > 0 ? 2 : 1; }

int32_t um_canvas_block(const um_canvas *c, const um_req *r, int32_t k) {
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
                             "%d, but before a suffix all of the canvas is the answer, which may have %d tokens: raise "
                             "max_tokens or leave gen_length to it",
                             d->gen_length, r->limit - r->n_prompt);
    if (d->gen_length <= r->max_len - r->n_prompt) return UM_OK;
    return um_fail_param(err, UM_ERANGE, "gen_length", "prompt %d + gen_length %d = %d tokens, but max_model_len is %d",
                         r->n_prompt, d->gen_length, r->n_prompt + d->gen_length, r->max_len);
}

/* Blocks are LLaDA's; the samplers of Dream and RND1 fill the canvas as one, unless keys are reused, which is done
 * block by block. */
static int32_t auto_block(const um_decoding *d, const um_sampler *sampler, bool slices) {
    bool whole = sampler->schedule == UM_SCHEDULE_TIME || sampler->schedule == UM_SCHEDULE_LINEAR;
    return whole && !slices ? d->gen_length : UM_CANVAS_AUTO_BLOCK;
}

static um_status resolve_steps(um_req *r, const um_sampler *sampler, um_err *err) {
    um_decoding *d = &r->how;
    int32_t n_blocks = UM_CEIL_DIV(d->gen_length, d->block_size);
    if (sampler->schedule == UM_SCHEDULE_NONE && d->steps)
        return um_fail_param(err, UM_EINVAL, "steps",
                             "%d is set, but sampler %s follows no schedule: it decides by what it sees", d->steps,
                             sampler->name);
    if (d->denoising_steps && sampler->schedule == UM_SCHEDULE_EVEN)
        return um_fail_param(err, UM_EINVAL, "denoising_steps",
                             "%d would have no effect: strategy %s spreads steps, the passes of the whole canvas",
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
                             "%s needs a model that sees all positions; this one is block-causal: "
                             "use multi_bd",
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

/* Passes of block k: one for its first position; the others are shared out by the positions that follow first ones, so
 * that with a pass for each position every block gets as many as it has, and no pass is lost to rounding. */
static int32_t block_steps(const um_canvas *c, const um_req *r, int32_t k) {
    int64_t spare = r->how.steps - c->n_blocks, positions = r->how.gen_length - c->n_blocks;
    if (positions == 0) return 1;
    int64_t before = um_canvas_block(c, r, k) - r->n_prompt - k;
    int64_t behind = um_canvas_block(c, r, k + 1) - r->n_prompt - (k + 1);
    return 1 + (int32_t)(UM_CEIL_DIV(spare * behind, positions) - UM_CEIL_DIV(spare * before, positions));
}

static void start_block(um_canvas *c, um_req *r) {
    c->pass = c->step = 0;
    c->keys = UM_KEYS_NONE;
    c->n_steps = c->block < c->n_blocks ? block_steps(c, r, c->block) : 0;
    if (c->memory) memset(c->memory, 0, c->memory_size);
    if (um_remasks(r, c->sampler)) r->settled = um_canvas_start(c, r);
}

um_status um_canvas_init(um_canvas *c, um_req *r, bool slices, um_err *err) {
    const um_sampler *sampler;
    um_status st = resolve(r, &sampler, slices, err);
    if (st) return st;
    size_t n = (size_t)r->how.block_size;
    r->sampler = sampler;
    *c = (um_canvas){.sampler = sampler,
                     .end = r->n_prompt + r->how.gen_length,
                     .length = r->n_prompt + r->how.gen_length + r->n_suffix,
                     .n_blocks = UM_CEIL_DIV(r->how.gen_length, r->how.block_size),
                     .slices = slices,
                     .position = UM_NEW_ARRAY(int32_t, n),
                     .token = UM_NEW_ARRAY(int32_t, n),
                     .fed = UM_NEW_ARRAY(int32_t, n),
                     .score = UM_NEW_ARRAY(float, n),
                     .at = UM_NEW_ARRAY(int32_t, n),
                     .id = UM_NEW_ARRAY(int32_t, n)};
    if (sampler->memory) c->memory_size = sampler->memory(r, r->how.block_size);
    if (c->memory_size) c->memory = um_zalloc(c->memory_size);
    r->n_top_asked = UM_MAX(r->n_top, sampler->n_top ? sampler->n_top(r) : 0);
    start_block(c, r);
    return UM_OK;
}

void um_canvas_deinit(um_canvas *c) {
    void *array[] = {c->position, c->token, c->fed, c->score, c->at, c->id, c->memory};
    for (size_t i = 0; i < UM_LEN(array); i++) um_free(array[i]);
}

int32_t um_canvas_scratch(const um_req *r, int32_t tokens) {
    const int32_t page = r->traits->page_size;
    return copies(r) * UM_CEIL_DIV(tokens, page) * page;
}

um_need um_canvas_need(const um_canvas *c, const um_req *r, int32_t tokens) {
    int32_t rows = r->how.block_size, most = c->length * copies(r);
    int32_t edits = c->sampler->edits_max ? rows * c->sampler->edits_max(r) : 0;
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

static void add_candidate(um_canvas *c, int32_t i, int32_t position, int32_t token) {
    c->position[i] = position;
    c->token[i] = token;
}

/* Where nothing but the block and what follows is fed, shifted predictions miss the row for its first position. */
static bool may_take_back(const um_canvas *c, const um_req *r, int32_t position) {
    return !c->slices || position - r->traits->shift >= um_canvas_start(c, r);
}

static void find_candidates(um_canvas *c, const um_req *r) {
    int32_t start = um_canvas_start(c, r), stop = um_canvas_stop(c, r);
    c->n_masks = c->n_filled = 0;
    for (int32_t p = start; p < stop; p++)
        if (um_req_masked(r, p)) add_candidate(c, c->n_masks++, p, UM_MASKED);
    for (int32_t p = start; p < stop && um_remasks(r, c->sampler); p++)
        if (!um_req_masked(r, p) && may_take_back(c, r, p))
            add_candidate(c, c->n_masks + c->n_filled++, p, r->token[p]);
}

/* The masks of the current block as candidates of the current step. */
static um_choice masks(const um_canvas *c, const um_req *r, const um_answer *answer) {
    const int32_t len = um_canvas_stop(c, r) - um_canvas_start(c, r);
    const double eps = (double)r->how.eps;
    return (um_choice){.answer = answer,
                       .position = c->position,
                       .token = c->token,
                       .n = c->n_masks,
                       .n_masks = c->n_masks,
                       .previous = UM_MASKED,
                       .block_len = len,
                       .how = &r->how,
                       .compat = r->compat,
                       .seed = r->seed,
                       .temperature = r->sampling.temperature,
                       .mask_id = r->traits->mask_id,
                       .count = c->step,
                       .total_steps = c->pass + 1,
                       .forced = true,
                       .keep = um_schedule_count(c->sampler->schedule, eps, c->step, c->n_steps, c->n_masks, len),
                       .rate = um_schedule_rate(eps, c->step, c->n_steps),
                       .score = c->score,
                       .memory = c->memory};
}

/* Steps over those in which nothing would be fixed: what they fix does not depend on the model. */
static void skip_empty_steps(um_canvas *c, const um_req *r) {
    for (;; c->step++) {
        um_choice all = masks(c, r, NULL);
        um_decision d = {.at = c->at, .id = c->id};
        if (c->sampler->is_independent) c->sampler->accept(&all, &d);
        if (c->sampler->is_independent ? d.n : all.keep) return;
    }
}

/* With shifted logits row p - 1 predicts p. */
static um_row *ask(const um_canvas *c, um_req *r, um_pass *pass, int32_t position, int32_t first) {
    const float g = r->how.cfg_scale;
    int32_t src = position - r->traits->shift - first;
    assert(src >= 0);
    um_row *row = um_pass_row(pass, r, src, position, c->step);
    row->want = c->sampler->want(r);
    if (g > 0) {
        row->src[1] = src + pass->seg[0].n;
        row->w[0] = 1 + g;
        row->w[1] = -g;
    }
    return row;
}

void um_canvas_ask(um_canvas *c, um_req *r, um_pass *pass, int32_t first) {
    um_req_penalize(r, um_canvas_start(c, r));
    find_candidates(c, r);
    skip_empty_steps(c, r);
    um_choice all = masks(c, r, NULL);
    for (int32_t i = 0; i < c->n_masks; i++) {
        um_row *row = ask(c, r, pass, c->position[i], first);
        if (!c->sampler->edit) continue;
        int32_t n = c->sampler->edit(&all, i, pass->edit + pass->n_edits);
        if (n) um_pass_edits(pass, row, n);
    }
    for (int32_t i = c->n_masks; i < c->n_masks + c->n_filled; i++) {
        um_row *row = ask(c, r, pass, c->position[i], first);
        row->want |= UM_WANT_PROB_OF;
        row->id = c->token[i];
    }
}

void um_canvas_keep(um_canvas *c, const um_req *r) {
    int32_t start = um_canvas_start(c, r), stop = um_canvas_stop(c, r);
    memcpy(c->fed, r->token + start, (size_t)(stop - start) * sizeof(*c->fed));
}

void um_canvas_rebuild(um_canvas *c, um_req *r, um_pass *pass) {
    int32_t start = um_canvas_start(c, r), stop = um_canvas_stop(c, r);
    int32_t *id = pass->id + pass->n_tokens;
    um_canvas_feed(r, pass, UM_PASS_PREFILL, 0, c->length);
    /* What stands before the block has not changed since then, what follows is masked now as it was. */
    for (int32_t k = 0; k < copies(r); k++, id += c->length)
        memcpy(id + start, c->fed, (size_t)(stop - start) * sizeof(*c->fed));
    pass->partial = c->rebuilds = true;
}

/* ---- Apply ------------------------------------------------------------------------------------------------------- */

/* The block's first position is among what is written, if it was masked. */
static void ensure_lead(const um_canvas *c, const um_req *r, const um_choice *all, um_decision *d) {
    if (c->position[0] != um_canvas_start(c, r)) return;
    for (int32_t i = 0; i < d->n; i++)
        if (d->at[i] == 0) return;
    /* Scheduled samplers name the best first: what they want least makes room. */
    bool counted = c->sampler->schedule != UM_SCHEDULE_NONE && !c->sampler->is_independent;
    if (counted && d->n > 0) d->n--;
    um_decide(d, all, 0);
}

/* Takes back filled positions that the model has come to doubt, fewer than were written, and none when the block is
 * complete. */
static void take_back(const um_canvas *c, um_req *r, const um_choice *all, int32_t written) {
    if (c->n_filled == 0 || written == c->n_masks) return;
    um_choice filled = *all;
    filled.answer += c->n_masks;
    filled.position += c->n_masks;
    filled.token += c->n_masks;
    filled.n = c->n_filled;
    um_decision d = {.at = c->at, .id = c->id};
    um_remask(&filled, written - 1, &d);
    for (int32_t i = 0; i < d.n; i++) um_req_erase(r, filled.position[d.at[i]]);
}

bool um_canvas_rebuilt(um_canvas *c) {
    if (!c->rebuilds) return false;
    c->rebuilds = false;
    c->keys = UM_KEYS_STORED;
    return true;
}

void um_canvas_apply(um_canvas *c, um_req *r, const um_answer *answer, bool lead) {
    um_choice all = masks(c, r, answer);
    um_decision d = {.at = c->at, .id = c->id};
    c->sampler->accept(&all, &d);
    if (lead) ensure_lead(c, r, &all, &d);
    r->end = c->end;
    r->n_new = 0;
    int32_t written = d.n;
    for (int32_t i = 0; i < d.n; i++) um_req_write(r, c->position[d.at[i]], d.id[i], &answer[d.at[i]]);
    take_back(c, r, &all, written);
    c->step++;
    c->pass++;
    if (written == c->n_masks) {
        c->block++;
        start_block(c, r);
    }
    um_req_check_stop(r);
    if (r->finish == UM_FINISH_NONE && c->block == c->n_blocks) {
        um_req_finish(r, UM_FINISH_STEPS);
    }
}

/* ---- Parts of um_strategy ---------------------------------------------------------------------------------------- */

int32_t um_canvas_blocks(const um_req *r, um_block_view *out) {
    const um_canvas *c = (const um_canvas *)r->state;
    const char *active = um_block_status_name(UM_BLOCK_ACTIVE);
    return um_req_view_block(r, um_canvas_start(c, r), um_canvas_stop(c, r), active, out);
}

void um_canvas_trace(const um_req *r, um_trace_space *space, um_trace *out) {
    const um_canvas *c = (const um_canvas *)r->state;
    int32_t k = UM_MIN(c->block, c->n_blocks - 1), start = um_canvas_block(c, r, k);
    space->block[0] = k;
    space->masks[0] = 0;
    space->status[0] = um_block_status_name(UM_BLOCK_ACTIVE);
    out->n_tokens = um_canvas_block(c, r, k + 1) - start;
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

/* ---- Reuse of keys as they are ----------------------------------------------------------------------------------- */

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
    um_need n = um_canvas_need(c, r, refresh ? c->length : stop - um_canvas_start(c, r));
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
        um_canvas_keep(c, r);
        stop = c->length;
    } else first = um_canvas_start(c, r);
    um_canvas_feed(r, pass, UM_PASS_DENOISE, first, stop);
    for (int32_t i = 0; i < pass->n_seg; i++) pass->seg[i].keys.end = c->length;
    um_canvas_ask(c, r, pass, first);
}

void um_cached_apply(um_req *r, const um_answer *answer) {
    um_canvas *c = (um_canvas *)r->state;
    if (um_canvas_rebuilt(c)) return;
    bool lead = c->keys == UM_KEYS_NONE && r->traits->shift;
    c->keys = UM_KEYS_STORED;
    um_canvas_apply(c, r, answer, lead);
}
