/* fast_dllm_v2: blocks that are filled sub-block by sub-block, with keys of the block kept between passes.
 *
 * Attention is causal over blocks of L = block_size * buffer_size positions. The block that is being decoded is called
 * the buffer; all of its positions see each other. Predictions are shifted: the row of a position predicts the next
 * position. The sub-blocks of the buffer are filled from left to right, by passes of three modes:
 *
 *     FULL_BUFFER_INIT   feeds the buffer and samples the current sub-block. Used first, and as long as the first
 *                        position of the sub-block is a mask, because the row before it must be fed to predict it
 *     SUB_BLOCK_REFINE   feeds and samples the current sub-block. It reads the other keys of the buffer as the last
 *                        FULL_BUFFER_INIT left them, which is an approximation. Without block_cache it feeds the whole
 *                        buffer instead
 *     FINAL_COMMIT       feeds the complete buffer. Its keys are final. Its last row predicts the first token of the
 *                        next buffer, the seed
 *
 * If the prompt ends at the end of a block, a PREFILL pass stores it and predicts the seed. Otherwise the first
 * FULL_BUFFER_INIT stores the prompt: it starts at r->stored, wherever that is, and thus also restores keys after
 * preemption. Only SUB_BLOCK_REFINE needs keys that are not final; `fed` holds the tokens to compute them from. */
#include <math.h>

#include "decode/strategies/blocks.h"

enum { SUB_BLOCK = 8, SUB_BLOCKS = 4 }; /* the published setting of Fast-dLLM v2 */

typedef enum { PREFILL, FULL_BUFFER_INIT, SUB_BLOCK_REFINE, FINAL_COMMIT } pass_mode;

typedef struct fast_dllm_v2 {
    um_block block; /* the current sub-block; its masks end at the request's limit */
    um_candidates candidates;
    int32_t start;    /* start of the buffer */
    int32_t known;    /* end of the given tokens in the buffer (prompt or seed); == start: the seed is still missing */
    bool initialised; /* this buffer had a FULL_BUFFER_INIT */
    bool has_keys;    /* keys of this buffer, final or not, are in the pages */
    int32_t fed[];    /* [L] the buffer's tokens in the last FULL_BUFFER_INIT */
} fast_dllm_v2;

static const um_option params[] = {
    {"block_cache", "fdv2_use_block_cache", UM_OPT_BOOL, UM_FIELD(um_decoding, block_cache), 0, 0, NULL, "true", NULL,
     NULL, "Decoding (fast_dllm_v2)",
     "reuse the stored keys of the other sub-blocks in passes over one of them; false feeds the whole block"},
};

static int32_t block_len(const um_req *r) { return r->how.block_size * r->how.buffer_size; }

/* Returns the end of the buffer's positions that may be written. */
static int32_t buffer_end(const um_req *r, const fast_dllm_v2 *s) { return UM_MIN(s->start + block_len(r), r->limit); }

/* Returns the end of the current sub-block's positions that may be written. */
static int32_t sub_end(const um_req *r, const fast_dllm_v2 *s) {
    return UM_MIN(s->block.start + s->block.len, r->limit);
}

/* ---- Sub-blocks -------------------------------------------------------------------------------------------------- */

static void enter_sub_block(const um_req *r, fast_dllm_v2 *s, int32_t start) {
    int32_t B = r->how.block_size;
    s->block = (um_block){.id = start / B, .start = start, .len = B, .status = UM_BLOCK_ACTIVE};
    s->block.editable_start = UM_MAX(0, UM_MIN(s->known - start, B));
    s->block.n_masks = UM_MAX(0, sub_end(r, s) - start - s->block.editable_start);
    um_candidates_clear_memory(&s->candidates, &s->block);
}

/* Goes on to the first sub-block that has masks, or to the last one. */
static void skip_complete(const um_req *r, fast_dllm_v2 *s) {
    int32_t last = s->start + block_len(r) - r->how.block_size;
    while (s->block.n_masks == 0 && s->block.start < last) enter_sub_block(r, s, s->block.start + s->block.len);
}

/* Goes on to the buffer at `start`, whose tokens are known up to `known`. */
static void enter_buffer(const um_req *r, fast_dllm_v2 *s, int32_t start, int32_t known) {
    s->start = start;
    s->known = known;
    s->initialised = s->has_keys = false;
    enter_sub_block(r, s, start);
    skip_complete(r, s);
}

/* Remasking may turn the tokens of this sub-block back into masks. */
static void update_settled(um_req *r, const fast_dllm_v2 *s) {
    if (!um_remasks(r)) return;
    r->settled = s->block.n_masks ? s->block.start + s->block.editable_start : buffer_end(r, s);
}

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

static um_status resolve_sampler(um_req *r, const um_sampler **sampler, um_err *err) {
    um_status st =
        um_sampler_find(sampler, um_streq(r->how.sampler, "auto") ? r->traits->sampler : r->how.sampler, err);
    if (st) return st;
    const um_sampler *s = *sampler;
    if (s->edits)
        return um_fail_param(err, UM_EUNSUPPORTED, "sampler",
                             "%s edits filled positions, which strategy fast_dllm_v2 does not support: a sub-block is "
                             "complete when no mask is left; use confidence",
                             s->name);
    if (s->schedule != UM_SCHEDULE_NONE && s->schedule != UM_SCHEDULE_EVEN)
        return um_fail_param(err, UM_EUNSUPPORTED, "sampler",
                             "%s follows a schedule over a whole canvas, and strategy fast_dllm_v2 fills sub-blocks; "
                             "use confidence",
                             s->name);
    return s->init ? s->init(r, err) : UM_OK;
}

static um_status resolve_lengths(um_req *r, um_err *err) {
    um_decoding *d = &r->how;
    const um_status st = um_req_resolve_block_size(r, SUB_BLOCK, err);
    if (st) return st;
    /* The automatic size gives the block length of the training, if that length can be cut into sub-blocks. */
    int32_t trained = r->traits->block;
    bool cuts = trained % d->block_size == 0 && trained / d->block_size > 1;
    if (d->buffer_size == 0) d->buffer_size = cuts ? trained / d->block_size : SUB_BLOCKS;
    if (d->buffer_size < 2 || d->buffer_size >= UM_BUFFER_MAX)
        return um_fail_param(err, UM_ERANGE, "buffer_size",
                             "%d is outside 2..%d; strategy fast_dllm_v2 cuts a block into that many sub-blocks of "
                             "block_size %d",
                             d->buffer_size, UM_BUFFER_MAX - 1, d->block_size);
    return UM_OK;
}

static um_status init(um_req *r, um_err *err) {
    const um_sampler *sampler;
    if (r->traits->see != UM_SEE_BLOCK_CAUSAL || !r->traits->shift)
        return um_fail_param(err, UM_EUNSUPPORTED, "decoding_strategy",
                             "fast_dllm_v2 needs a block-causal model whose rows predict the next position, such as "
                             "Fast-dLLM v2; use --decoding-strategy auto");
    um_status st = resolve_lengths(r, err);
    if (st) return st;
    if (isnan(r->how.accept_threshold)) r->how.accept_threshold = r->traits->accept_threshold;
    if (!isnan(r->compat->threshold)) r->how.accept_threshold = r->compat->threshold;
    st = resolve_sampler(r, &sampler, err);
    if (st) return st;
    int32_t L = block_len(r);
    fast_dllm_v2 *s = (fast_dllm_v2 *)um_zalloc(sizeof(*s) + um_mul((size_t)L, sizeof(int32_t)));
    r->sampler = sampler;
    um_candidates_init(&s->candidates, r, r->how.block_size, 1);
    enter_buffer(r, s, r->n_prompt / L * L, r->n_prompt);
    r->state = s;
    update_settled(r, s);
    return UM_OK;
}

static void free_state(um_req *r) {
    fast_dllm_v2 *s = (fast_dllm_v2 *)r->state;
    um_candidates_deinit(&s->candidates);
    um_free(s);
    r->state = NULL;
}

/* ---- Fed positions and needs ------------------------------------------------------------------------------------- */

static pass_mode next_mode(const um_req *r, const fast_dllm_v2 *s) {
    if (s->known == s->start) return PREFILL;
    if (s->block.n_masks == 0) return FINAL_COMMIT;
    if (!s->initialised || um_req_masked(r, s->block.start)) return FULL_BUFFER_INIT;
    return SUB_BLOCK_REFINE;
}

/* The next pass feeds [start, end). */
typedef struct feed {
    pass_mode mode;
    int32_t start, end;
    bool partial; /* the pass only stores keys */
} feed;

/* Cuts a pass that exceeds the budget down to a chunk of whole blocks. The buffer is never cut. */
static feed cut(const um_req *r, const fast_dllm_v2 *s, feed f, int32_t budget) {
    int32_t L = block_len(r);
    if (f.end - f.start <= budget || f.start >= s->start) return f;
    int32_t end = UM_MAX(f.start + budget, f.start / L * L + L) / L * L;
    if (end >= f.end) return f;
    f.end = UM_MIN(end, s->start);
    f.partial = true;
    return f;
}

static feed next_feed(const um_req *r, const fast_dllm_v2 *s, int32_t budget) {
    feed f = {.mode = next_mode(r, s), .start = r->stored, .end = buffer_end(r, s)};
    if (f.mode == PREFILL) f.end = s->start;
    if (f.mode == SUB_BLOCK_REFINE && r->how.block_cache) {
        if (s->has_keys) return (feed){f.mode, s->block.start, sub_end(r, s), false};
        f.partial = true;
    }
    return cut(r, s, f, budget);
}

static um_need need(const um_req *r) {
    const fast_dllm_v2 *s = (const fast_dllm_v2 *)r->state;
    feed f = next_feed(r, s, INT32_MAX), least = next_feed(r, s, 0);
    int32_t B = r->how.block_size;
    return (um_need){.tokens = f.end - f.start,
                     .least = least.end - least.start,
                     .rows = B,
                     .slots = buffer_end(r, s),
                     .edits = um_candidates_edits_max(r, B),
                     .tokens_max = UM_MIN(block_len(r), r->limit),
                     .rows_max = B,
                     .slots_max = r->limit,
                     .edits_max = um_candidates_edits_max(r, B),
                     .positions_max = r->limit,
                     .tables = 1};
}

/* ---- Plan -------------------------------------------------------------------------------------------------------- */

/* Tells whether all passes of the request so far were partial. */
static bool is_prefill(const um_req *r) { return r->nfe == 0; }

static um_pass_kind kind_of(const um_req *r, const feed *f) {
    if (is_prefill(r)) return UM_PASS_PREFILL;
    return f->partial || f->mode == FINAL_COMMIT ? UM_PASS_COMMIT : UM_PASS_DENOISE;
}

/* A FULL_BUFFER_INIT saves the buffer's tokens, a partial pass feeds the saved tokens again. */
static void feed_buffer(const um_req *r, fast_dllm_v2 *s, const um_pass *p, const um_segment *seg, const feed *f) {
    if (f->end <= s->start) return;
    int32_t n = f->end - s->start, first = UM_MAX(s->start - f->start, 0);
    if (f->partial) memcpy(p->id + (seg->id - p->id) + first, s->fed, (size_t)n * sizeof(int32_t));
    else if (f->mode == FULL_BUFFER_INIT) memcpy(s->fed, r->token + s->start, (size_t)n * sizeof(int32_t));
}

static void plan(um_req *r, um_pass *pass) {
    fast_dllm_v2 *s = (fast_dllm_v2 *)r->state;
    feed f = next_feed(r, s, pass->budget);
    const um_visibility rule = {.see = UM_SEE_BLOCK_CAUSAL, .block = block_len(r)};
    um_segment *seg = um_pass_add(pass, r, kind_of(r, &f), f.start, f.end, rule);
    feed_buffer(r, s, pass, seg, &f);
    if (um_pass_store(pass, r, f.partial ? f.end : 0)) return;
    if (f.mode == PREFILL || f.mode == FINAL_COMMIT) {
        um_req_prepare_rows(r, f.end, f.end + 1);
        um_pass_row(pass, r, f.end - 1 - f.start, f.end, 0);
        return;
    }
    if (f.mode == SUB_BLOCK_REFINE) seg->keys.end = buffer_end(r, s);
    s->block.total_steps++;
    um_req_prepare_rows(r, s->block.start, sub_end(r, s));
    um_candidates_find(&s->candidates, r, &s->block, sub_end(r, s));
    um_candidates_add_rows(&s->candidates, r, pass, f.start);
}

/* ---- Apply ------------------------------------------------------------------------------------------------------- */

static void write_seed(um_req *r, fast_dllm_v2 *s, int32_t at, const um_answer *answer) {
    if (um_req_accepts(r, at, answer->sample)) um_req_write(r, at, answer->sample, answer);
    enter_buffer(r, s, at, at + 1);
}

static void decide(um_req *r, fast_dllm_v2 *s, const um_answer *answer) {
    um_candidates_decide(&s->candidates, r, answer);
    um_candidates_commit(&s->candidates, r, &s->block);
    /* A first token can't be remasked, because refining passes do not feed the row that predicts it. */
    if (!um_req_masked(r, s->block.start)) s->block.editable_start = UM_MAX(s->block.editable_start, 1);
    skip_complete(r, s);
}

static void apply(um_req *r, const um_answer *answer) {
    fast_dllm_v2 *s = (fast_dllm_v2 *)r->state;
    if (r->storing) {
        r->stored = UM_MIN(r->storing, s->start);
        s->has_keys = r->storing > s->start;
        return;
    }
    pass_mode mode = next_mode(r, s);
    r->n_new = 0;
    r->prefill_passes += is_prefill(r);
    if (mode == PREFILL) write_seed(r, s, s->start, answer);
    else if (mode == FINAL_COMMIT) write_seed(r, s, s->start + block_len(r), answer);
    else {
        s->initialised = s->has_keys = true;
        decide(r, s, answer);
    }
    r->stored = s->start;
    r->end = buffer_end(r, s);
    update_settled(r, s);
    um_req_check_stop(r);
}

static void preempt(um_req *r) { ((fast_dllm_v2 *)r->state)->has_keys = false; }

/* ---- Sharing and traces ------------------------------------------------------------------------------------------ */

/* Final keys depend on the tokens up to the end of their block, and thus on the block length. While the seed is
 * missing, the block whose last row predicts it must be fed. */
static uint64_t share(const um_req *r, int32_t *most) {
    const fast_dllm_v2 *s = (const fast_dllm_v2 *)r->state;
    *most = s->known > s->start ? s->start : s->start - 1;
    return r->traits->page_size % block_len(r) == 0 ? (uint64_t)block_len(r) : 0;
}

/* DUMMY: the sub-block was not fed yet. TO_CACHE: the prompt covers the sub-block, so nothing is to be filled. */
static um_block_status status_of(const fast_dllm_v2 *s, int32_t start, int32_t end) {
    if (!s->initialised && s->known <= start) return UM_BLOCK_DUMMY;
    return s->known >= end ? UM_BLOCK_TO_CACHE : UM_BLOCK_ACTIVE;
}

static int32_t blocks(const um_req *r, um_block_view *out) {
    const fast_dllm_v2 *s = (const fast_dllm_v2 *)r->state;
    int32_t B = r->how.block_size, n = 0;
    for (int32_t i = 0; i < r->how.buffer_size; i++) {
        int32_t start = s->start + i * B;
        const char *status = um_block_status_name(status_of(s, start, start + B));
        n += um_req_view_block(r, start, start + B, status, &out[n]);
    }
    return n;
}

static void trace(const um_req *r, um_trace_space *space, um_trace *out) {
    const fast_dllm_v2 *s = (const fast_dllm_v2 *)r->state;
    int32_t B = r->how.block_size;
    out->n_blocks = r->how.buffer_size;
    for (int32_t i = 0; i < out->n_blocks; i++) {
        int32_t start = s->start + i * B;
        space->block[i] = start / B;
        space->status[i] = um_block_status_name(status_of(s, start, start + B));
        space->masks[i] = 0;
        for (int32_t p = start; p < UM_MIN(start + B, r->limit); p++) space->masks[i] += um_req_masked(r, p);
    }
    out->n_new = r->n_new;
    out->block = space->block;
    out->masks = space->masks;
    out->status = space->status;
    out->token = r->token + s->start;
    out->n_tokens = buffer_end(r, s) - s->start;
}

const um_strategy um_strategy_fast_dllm_v2 = {
    .name = "fast_dllm_v2",
    .aliases = "hierarchy_block",
    .summary = "decoding of Fast-dLLM v2: blocks filled sub-block by sub-block, which reuse each other's keys",
    .source = "Fast-dLLM v2, arXiv 2509.26328; Diffulex fast_dllm_v2 (revision 184ba97)",
    .params = {{um_block_options, 1}, {params, UM_LEN(params)}}, /* only buffer_size of um_block_options */
    .init = init,
    .need = need,
    .plan = plan,
    .apply = apply,
    .blocks = blocks,
    .trace = trace,
    .preempt = preempt,
    .share = share,
    .free = free_state,
};
