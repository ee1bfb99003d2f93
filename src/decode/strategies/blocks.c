/* Block diffusion: a pass from plan to apply. */
#include <math.h>

#include "decode/strategies/blocks.h"

const um_option um_block_options[4] = {
    {"buffer_size", NULL, UM_OPT_INT, UM_FIELD(um_decoding, buffer_size), 1, UM_BUFFER_MAX - 1, NULL, "auto", "0", "N",
     "Decoding (blocks)",
     "largest number of blocks that are denoised at once; auto means 1, or 4 for d2f. For fast_dllm_v2: sub-blocks "
     "per block, at least 2; auto gives the block size that the model was trained with"},
    {"add_block_threshold", "block_add_threshold", UM_OPT_FLOAT, UM_FIELD(um_decoding, add_block_threshold), 0, 1, NULL,
     "0.1", NULL, "SHARE", "Decoding (blocks)", "start the next block when this share of the last one is filled"},
    {"semi_complete_threshold", "decoded_token_threshold", UM_OPT_FLOAT, UM_FIELD(um_decoding, semi_complete_threshold),
     0, 1, NULL, "0.9", NULL, "SHARE", "Decoding (blocks)",
     "force a block to accept at least one token in each pass once this share of the previous block is filled"},
    {"token_stability_threshold", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, token_stability_threshold), 0, 1, NULL, "0",
     NULL, "SHARE", "Decoding (blocks)",
     "start the next block only when the model would keep this share of the last one; unless the sampler edits, any "
     "value above 0 waits until that block is complete"},
};

/* ---- The usual rules --------------------------------------------------------------------------------------------- */

int32_t um_blocks_anchor_zero(const um_req *r, int32_t block_len) {
    (void)r;
    (void)block_len;
    return 0;
}

um_visibility um_blocks_see(const um_req *r, const um_blocks *s, bool storing_prompt) {
    (void)r;
    (void)storing_prompt;
    return (um_visibility){.see = UM_SEE_BLOCK_CAUSAL, .block = s->buffer.block_len, .anchor = s->buffer.anchor};
}

int32_t um_blocks_whole_none(const um_req *r, const um_blocks *s) {
    (void)r;
    (void)s;
    return 0;
}

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

static um_status check_sampler(const um_sampler *s, um_err *err) {
    if (s->schedule == UM_SCHEDULE_NONE || s->schedule == UM_SCHEDULE_EVEN) return UM_OK;
    return um_fail_param(err, UM_EUNSUPPORTED, "sampler",
                         "%s follows a schedule over a whole canvas; block diffusion needs a sampler that decides by "
                         "the predictions for one block, see `unmask list samplers`",
                         s->name);
}

/* A sampler that edits replaces tokens itself, so remasking would have no effect. */
static um_status check_remasking(const um_req *r, const um_sampler *s, um_err *err) {
    if (!s->edits || isnan(r->how.remask_threshold) || r->compat->no_remasking) return UM_OK;
    return um_fail_param(err, UM_EUNSUPPORTED, "remask_threshold",
                         "%g is not for sampler %s, which replaces doubted tokens itself; set it to off",
                         (double)r->how.remask_threshold, s->name);
}

static um_status resolve_sampler(um_req *r, const um_sampler **sampler, um_err *err) {
    const char *name = r->how.sampler;
    /* A model with full attention has an automatic sampler for whole-sequence decoding; blocks use `confidence`. */
    if (um_streq(name, "auto")) name = r->traits->see == UM_SEE_FULL ? "confidence" : r->traits->sampler;
    um_status st = um_sampler_find(sampler, name, err);
    return st ? st : check_sampler(*sampler, err);
}

static um_status resolve(um_req *r, um_err *err) {
    um_decoding *d = &r->how;
    const um_status st = um_req_resolve_block_size(r, r->traits->block > 0 ? r->traits->block : 32, err);
    if (st) return st;
    if (r->traits->route_block && d->block_size % r->traits->route_block)
        return um_fail_param(err, UM_ERANGE, "block_size",
                             "%d; this model chooses experts for groups of %d positions, so block_size must be a "
                             "multiple of that",
                             d->block_size, r->traits->route_block);
    if (d->buffer_size == 0) d->buffer_size = 1;
    if (isnan(d->accept_threshold)) d->accept_threshold = r->traits->accept_threshold;
    if (!isnan(r->compat->threshold)) d->accept_threshold = r->compat->threshold;
    return UM_OK;
}

/* With a sampler that edits or with remasking, tokens of the blocks that are being denoised may still change. */
static void update_settled(um_req *r, const um_blocks *s) {
    const um_buffer *b = &s->buffer;
    if (!r->sampler->edits && !um_remasks(r)) return;
    r->settled = um_buffer_start(b) + um_buffer_first_active(b) * b->block_len;
}

um_status um_blocks_init(um_req *r, const um_block_rules *rules, const um_sampler *sampler, um_err *err) {
    um_status st = sampler ? UM_OK : resolve_sampler(r, &sampler, err);
    if (!st) st = check_remasking(r, sampler, err);
    if (!st) st = resolve(r, err);
    if (!st && sampler->init) st = sampler->init(r, err);
    if (st) return st;
    um_blocks *s = UM_NEW(um_blocks);
    const um_decoding *d = &r->how;
    s->rules = rules;
    r->sampler = sampler;
    /* One block more than the blocks that are denoised, for the block that is being stored. */
    int32_t n = r->compat->separate_commit ? d->buffer_size : d->buffer_size + 1;
    int32_t limit = r->compat->allocated_limits ? INT32_MAX : r->limit;
    um_buffer_init(&s->buffer, n, d->block_size, rules->anchor(r, d->block_size), limit, r->n_prompt);
    um_candidates_init(&s->candidates, r, d->block_size, n);
    r->state = s;
    r->may_choose_mask = sampler->edits && r->compat->literal_edits;
    update_settled(r, s);
    return UM_OK;
}

void um_blocks_free(um_req *r) {
    um_blocks *s = (um_blocks *)r->state;
    um_candidates_deinit(&s->candidates);
    um_free(s->own);
    um_free(s);
    r->state = NULL;
}

/* ---- Fed positions and needs ------------------------------------------------------------------------------------- */

/* compat: if the prompt ends at the end of a block, its prefill is a separate pass. */
static bool prefills_alone(const um_req *r, const um_blocks *s) {
    return r->compat->separate_commit && !s->prefilled && s->buffer.run == 0;
}

/* Returns the end of the positions that a pass feeds if `run` blocks run and nothing is cut off. */
static int32_t feed_end(const um_req *r, const um_blocks *s, int32_t run) {
    return prefills_alone(r, s) ? r->n_prompt : um_buffer_start(&s->buffer) + run * s->buffer.block_len;
}

/* Returns the end of the largest chunk of at most `budget` tokens, or of the smallest chunk if all are larger. */
static int32_t chunk_end(const um_req *r, const um_blocks *s, int32_t budget) {
    const um_buffer *b = &s->buffer;
    int32_t from = r->stored, whole = s->rules->whole(r, s);
    int32_t first = from < whole ? whole : b->anchor + ((from - b->anchor) / b->block_len + 1) * b->block_len;
    int32_t spare = UM_MAX(0, from + budget - first);
    return UM_MIN(first + spare / b->block_len * b->block_len, um_buffer_start(b));
}

static int32_t window_max(const um_blocks *s) { return UM_MIN(s->buffer.run + 1, s->buffer.n); }

/* Sets the bounds of all passes of the request. */
static void add_bounds(const um_req *r, const um_blocks *s, um_need *n) {
    const um_buffer *b = &s->buffer;
    int32_t B = b->block_len, whole = s->rules->whole(r, s), window = b->n * B, behind = r->limit - b->anchor;
    /* compat: blocks run past the limit until the allocated length reaches it. */
    if (r->compat->allocated_limits)
        behind = r->n_prompt / B * B - b->anchor + r->sampling.max_tokens + B * (r->how.buffer_size + 2);
    n->slots_max = b->anchor + UM_CEIL_DIV(behind, B) * B;
    /* compat: a pass that stores the whole prompt also feeds the window. */
    n->tokens_max = whole && r->compat->separate_commit ? r->n_prompt + window : UM_MAX(window, whole);
    n->rows_max = window;
    n->edits_max = um_candidates_edits_max(r, window);
    n->positions_max = n->slots_max + window;
    n->tables = 1;
}

/* Returns the number of tokens of the smallest partial pass, or INT32_MAX if no partial pass is possible. */
static int32_t least_chunk(const um_req *r, const um_blocks *s) {
    int32_t whole = s->rules->whole(r, s), end = chunk_end(r, s, 0);
    if (r->stored >= um_buffer_start(&s->buffer)) return INT32_MAX;
    if (r->stored < whole && r->compat->separate_commit && !s->prefilled) return INT32_MAX;
    return (r->stored < whole ? UM_MAX(end, r->n_prompt) : end) - r->stored;
}

um_need um_blocks_need(const um_req *r) {
    const um_blocks *s = (const um_blocks *)r->state;
    const um_buffer *b = &s->buffer;
    um_need n = {0};
    int32_t run = window_max(s), end = feed_end(r, s, run), rows = run * b->block_len;
    add_bounds(r, s, &n);
    n.tokens = end - r->stored;
    n.least = UM_MIN(n.tokens, least_chunk(r, s));
    n.rows = rows;
    n.slots = UM_MIN(end, n.slots_max);
    n.edits = um_candidates_edits_max(r, rows);
    return n;
}

/* ---- Plan -------------------------------------------------------------------------------------------------------- */

static int32_t count_active(const um_buffer *b) { return b->run - um_buffer_first_active(b); }

/* Tells whether the next block may start: enough of the last block is filled and stable, and the buffer has room. */
static bool may_grow(const um_req *r, const um_blocks *s) {
    const um_buffer *b = &s->buffer;
    if (b->run == 0 || b->run == b->n) return false;
    if (!r->compat->separate_commit && count_active(b) >= r->how.buffer_size) return false;
    const um_block *last = &b->block[b->run - 1];
    return um_block_progress(last) >= r->how.add_block_threshold &&
           last->same_token_ratio >= r->how.token_stability_threshold && last->type != UM_BLOCK_LAST_IN_CONTEXT;
}

/* Tells whether the first block must start, because no block runs. */
static bool must_start(const um_req *r, const um_blocks *s) {
    if (s->buffer.run > 0 || prefills_alone(r, s)) return false;
    return !(r->compat->eos_drains && um_req_eos_compat(r));
}

static void prepare(um_req *r, um_blocks *s) {
    um_buffer *b = &s->buffer;
    for (int32_t i = um_buffer_first_active(b); i < b->run; i++) b->block[i].total_steps++;
    if (!may_grow(r, s) && !must_start(r, s)) return;
    if (b->block[b->run].start >= r->limit && !r->compat->allocated_limits) return;
    um_buffer_grow(b);
    um_candidates_clear_memory(&s->candidates, &b->block[b->run - 1]);
}

/* Returns the end of the block's positions that may be written. */
static int32_t block_end(const um_req *r, const um_block *b) {
    int32_t end = b->start + b->len;
    return r->compat->allocated_limits ? end : UM_MIN(end, r->limit);
}

/* In families that shift, the last stored position predicts the next position: saves its final hidden row. */
static void save_hidden_row(um_req *r, um_segment *seg, int32_t first, int32_t stored_end) {
    if (r->traits->shift == 0 || stored_end <= first) return;
    seg->save_src = stored_end - 1 - first;
    seg->save_to = r->saved;
}

static bool is_silent(const um_req *r, const um_blocks *s) {
    return !s->prefilled && (r->traits->prefill_is_silent || prefills_alone(r, s));
}

static um_segment *feed(um_req *r, um_blocks *s, um_pass *pass, um_pass_kind kind, int32_t end) {
    bool storing_prompt = !s->prefilled || r->stored < s->rules->whole(r, s);
    int32_t first = r->stored;
    um_segment *seg = um_pass_add(pass, r, kind, first, end, s->rules->see(r, s, storing_prompt));
    if (s->rules->feed) s->rules->feed(r, s, pass, seg, first);
    return seg;
}

/* Plans a partial pass that stores a chunk of known tokens. */
static void plan_chunk(um_req *r, um_blocks *s, um_pass *pass) {
    int32_t whole = s->rules->whole(r, s);
    const int32_t chunk = chunk_end(r, s, r->stored < whole ? whole - r->stored : pass->budget);
    /* A prompt whose positions all see each other is fed whole, including the part in a block of the answer. */
    int32_t end = r->stored < whole ? UM_MAX(chunk, r->n_prompt) : chunk;
    um_segment *seg = feed(r, s, pass, s->prefilled ? UM_PASS_COMMIT : UM_PASS_PREFILL, end);
    save_hidden_row(r, seg, r->stored, chunk);
    um_pass_store(pass, r, chunk);
}

/* Tells whether block i may be forced to accept a token: its predecessor is semi-complete. Blocks before the buffer are
 * stored. */
static bool may_be_forced(const um_req *r, const um_buffer *b, int32_t i) {
    return i == 0 || r->traits->always_forced || um_block_progress(&b->block[i - 1]) >= r->how.semi_complete_threshold;
}

void um_blocks_plan(um_req *r, um_pass *pass) {
    um_blocks *s = (um_blocks *)r->state;
    um_buffer *b = &s->buffer;
    int32_t first = r->stored, whole = s->rules->whole(r, s);
    um_pass_store(pass, r, 0);
    /* After preemption a prompt that one pass must store together is stored first, in a separate pass. Tokens that do
     * not fit into the budget are stored in chunks. */
    bool rebuild = s->prefilled && first < whole;
    if (rebuild || (first < um_buffer_start(b) && feed_end(r, s, window_max(s)) - first > pass->budget)) {
        plan_chunk(r, s, pass);
        return;
    }
    prepare(r, s);
    int32_t active = um_buffer_first_active(b), stored_end = um_buffer_start(b) + active * b->block_len;
    um_pass_kind kind = !s->prefilled ? UM_PASS_PREFILL : active < b->run ? UM_PASS_DENOISE : UM_PASS_COMMIT;
    um_segment *seg = feed(r, s, pass, kind, feed_end(r, s, b->run));
    save_hidden_row(r, seg, first, stored_end);
    if (is_silent(r, s)) return;
    um_req_prepare_rows(r, stored_end, um_buffer_end(b));
    for (int32_t i = active; i < b->run; i++) {
        um_candidates_find(&s->candidates, r, &b->block[i], block_end(r, &b->block[i]));
        s->candidates.input.forced = may_be_forced(r, b, i);
        um_candidates_add_rows(&s->candidates, r, pass, first);
    }
}

/* ---- Apply ------------------------------------------------------------------------------------------------------- */

/* Lets the sampler decide one ACTIVE block, writes the tokens, and returns the number of answers that the block used.
 * `forced`: the block may be forced to accept a token. */
static int32_t decide(um_req *r, um_blocks *s, um_block *b, const um_answer *answer, bool forced) {
    um_candidates *v = &s->candidates;
    um_candidates_find(v, r, b, block_end(r, b));
    if (v->input.n == 0 && !r->sampler->edits) return 0;
    v->input.forced = forced;
    const um_decision *d = um_candidates_decide(v, r, answer);
    um_candidates_commit(v, r, b);
    if (s->rules->decided) s->rules->decided(r, s, &v->input);
    if (r->sampler->edits) {
        b->commit_ready = d->committable;
        b->same_token_ratio = d->same_token_ratio;
    }
    return v->input.n + v->n_filled;
}

static void decide_all(um_req *r, um_blocks *s, const um_answer *answer) {
    um_buffer *b = &s->buffer;
    bool forced = may_be_forced(r, b, 0);
    for (int32_t i = 0; i < b->run; i++) {
        /* The decisions of a pass depend on the blocks as they were before it. */
        const bool next_forced = may_be_forced(r, b, i + 1);
        if (b->block[i].status == UM_BLOCK_ACTIVE) answer += decide(r, s, &b->block[i], answer, forced);
        forced = next_forced;
    }
}

/* A block without masks is complete. Samplers that edit decide this themselves. */
static void mark_complete(const um_req *r, um_blocks *s) {
    um_buffer *b = &s->buffer;
    for (int32_t i = um_buffer_first_active(b); i < b->run && !r->sampler->edits; i++) {
        if (b->block[i].n_masks > 0) continue;
        b->block[i].commit_ready = true;
        b->block[i].same_token_ratio = 1;
    }
}

/* compat: once a stop condition holds, no further block starts after the last running one. */
static void mark_terminal(um_req *r, um_buffer *b) {
    if (!r->compat->eos_drains || !um_req_truncated_compat(r, um_buffer_allocated(b))) return;
    for (int32_t i = 0; i < b->n; i++) {
        if (i < b->run - 1) b->block[i].type = UM_BLOCK_IN_CONTEXT;
        else if (i >= b->run) b->block[i].type = UM_BLOCK_OUT_OF_CONTEXT;
        else if (b->block[i].type == UM_BLOCK_IN_CONTEXT) b->block[i].type = UM_BLOCK_LAST_IN_CONTEXT;
    }
    b->terminal = true;
}

/* Drops the first block, which this pass has stored. */
static void shift(um_buffer *b) {
    b->block[0].status = UM_BLOCK_IN_CACHE;
    um_buffer_shift(b, b->terminal || b->block[b->n - 1].type != UM_BLOCK_IN_CONTEXT);
}

/* Drops TO_CACHE blocks, which this pass has stored. A complete block whose predecessors are all TO_CACHE or stored
 * becomes TO_CACHE. */
static void transition(um_req *r, um_blocks *s) {
    um_buffer *b = &s->buffer;
    bool previous_done = true;
    for (int32_t i = 0; i < b->run;) {
        um_block *k = &b->block[i];
        if (k->status == UM_BLOCK_TO_CACHE) {
            assert(i == 0);
            shift(b);
            continue;
        }
        if (k->n_masks == 0 && k->commit_ready && previous_done) k->status = UM_BLOCK_TO_CACHE;
        previous_done = k->status == UM_BLOCK_TO_CACHE;
        i++;
    }
    r->stored = um_buffer_start(b);
    mark_terminal(r, b);
    update_settled(r, s);
}

void um_blocks_apply(um_req *r, const um_answer *answer) {
    um_blocks *s = (um_blocks *)r->state;
    if (um_req_store(r)) return;
    bool silent = is_silent(r, s);
    r->end = um_buffer_end(&s->buffer);
    r->n_new = 0;
    if (!silent) decide_all(r, s, answer);
    mark_complete(r, s);
    r->prefill_passes += !s->prefilled;
    s->prefilled = true;
    transition(r, s);
    r->end = um_buffer_end(&s->buffer);
    if (r->compat->allocated_limits)
        um_req_check_stop_compat(r, um_buffer_allocated(&s->buffer), um_buffer_complete(&s->buffer));
    else um_req_check_stop(r);
}

/* ---- Sharing and traces ------------------------------------------------------------------------------------------ */

/* Keys of a stored position depend on the tokens up to the end of its block, and thus on the block length. Families
 * that shift must feed at least one position, whose hidden row predicts the first position of the window. */
uint64_t um_blocks_share(const um_req *r, int32_t *most) {
    const um_blocks *s = (const um_blocks *)r->state;
    const int32_t B = s->buffer.block_len;
    *most = (um_buffer_start(&s->buffer) - r->traits->shift) / B * B;
    if (r->compat->separate_commit) *most = 0;
    return *most && r->traits->page_size % B == 0 ? (uint64_t)B : 0;
}

int32_t um_blocks_list(const um_req *r, um_block_view *out) {
    const um_blocks *s = (const um_blocks *)r->state;
    const um_buffer *b = &s->buffer;
    int32_t n = 0;
    for (int32_t i = 0; i < b->run; i++) {
        const um_block *k = &b->block[i];
        n += um_req_view_block(r, k->start, k->start + k->len, um_block_status_name(k->status), &out[n]);
    }
    return n;
}

void um_blocks_trace(const um_req *r, um_trace_space *space, um_trace *out) {
    const um_blocks *s = (const um_blocks *)r->state;
    const um_buffer *b = &s->buffer;
    int32_t n = UM_MAX(b->run, r->how.buffer_size);
    for (int32_t i = 0; i < n; i++) {
        space->block[i] = b->block[i].id;
        space->masks[i] = b->block[i].n_masks;
        space->status[i] = um_block_status_name(b->block[i].status);
    }
    out->n_new = r->n_new;
    out->n_blocks = n;
    out->block = space->block;
    out->masks = space->masks;
    out->status = space->status;
    out->token = r->token + um_buffer_start(b);
    out->n_tokens = (out->prefill ? b->run : n) * b->block_len;
}
