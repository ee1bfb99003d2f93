/* multi_bd: block diffusion with several blocks in flight.
 *
 * The request is cut into blocks of B positions on a grid that starts at position 0. Blocks of the prompt are stored in
 * one prefill pass. From then on a window of up to K running blocks is fed in every pass: finished ones (TO_CACHE),
 * whose keys and values this pass stores for good, then those that are being denoised (ACTIVE). A block sees itself and
 * every earlier block, never a later one, so what is stored does not depend on what follows. With K = 1 this is the
 * decoding that block-diffusion checkpoints are trained for; with more, a block starts as soon as its predecessor is
 * partly known.
 *
 * A pass runs prepare -> window -> (forward) -> accept -> transition -> stop. */
#include <math.h>

#include "decode/decode.h"

typedef struct multi_bd {
    um_buffer buffer;
    bool prefilled; /* the prefill pass is done */
    bool has_carry; /* shift families: the row before the window is saved */
} multi_bd;

static const um_option params[] = {
    {"buffer_size", NULL, UM_OPT_INT, UM_FIELD(um_decoding, buffer_size), 1, UM_BUFFER_MAX, NULL, "auto", "0", "N",
     "Decoding (blocks)", "blocks in flight at once; auto is 1, what checkpoints are trained for"},
    {"add_block_threshold", "block_add_threshold", UM_OPT_FLOAT, UM_FIELD(um_decoding, add_block_threshold), 0, 1, NULL,
     "0.1", NULL, "SHARE", "Decoding (blocks)", "start the next block when this share of the last one is filled"},
    {"semi_complete_threshold", "decoded_token_threshold", UM_OPT_FLOAT, UM_FIELD(um_decoding, semi_complete_threshold),
     0, 1, NULL, "0.9", NULL, "SHARE", "Decoding (blocks)",
     "a block may be forced to accept a token when this share of its predecessor is filled"},
    {"token_stability_threshold", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, token_stability_threshold), 0, 1, NULL, "0",
     NULL, "SHARE", "Decoding (blocks)",
     "start the next block when this share of the last one is stable; above 0: when it is complete"},
};

static bool is_mixed(const um_req *r, const multi_bd *s) { return r->n_prompt % s->buffer.block_len != 0; }

static um_visibility visibility(const multi_bd *s) {
    return (um_visibility){.see = UM_SEE_BLOCK_CAUSAL, .block = s->buffer.block_len};
}

static um_status init(um_req *r, um_err *err) {
    um_decoding *d = &r->how;
    if (r->traits->see != UM_SEE_BLOCK_CAUSAL)
        return um_fail(err, UM_EUNSUPPORTED,
                       "strategy multi_bd needs a block-causal model; this one sees all positions "
                       "at once: use --decoding-strategy full");
    if (!um_streq(d->sampler, "auto") && !um_streq(d->sampler, um_sampler_confidence.name))
        return um_fail(
            err, UM_EUNSUPPORTED,
            "sampler: strategy multi_bd runs %s, which decides by what it sees; %s follows a schedule over a "
            "whole canvas: use --decoding-strategy full with a model that sees all positions",
            um_sampler_confidence.name, d->sampler);
    if (d->block_size == 0) d->block_size = r->traits->block > 0 ? r->traits->block : 32;
    if (d->block_size > UM_BLOCK_MAX)
        return um_fail(err, UM_ERANGE, "block_size: %d is outside 1..%d", d->block_size, UM_BLOCK_MAX);
    if (r->traits->route_block && d->block_size % r->traits->route_block)
        return um_fail(err, UM_ERANGE,
                       "block_size: %d; this model chooses its experts for %d positions together, so a block must be a "
                       "multiple of that",
                       d->block_size, r->traits->route_block);
    if (d->buffer_size == 0) d->buffer_size = 1;
    if (isnan(d->accept_threshold)) d->accept_threshold = r->traits->accept_threshold;
    if (!isnan(r->compat->threshold)) d->accept_threshold = r->compat->threshold;
    multi_bd *s = UM_NEW(multi_bd);
    um_buffer_init(&s->buffer, d->buffer_size, d->block_size, r->n_prompt);
    r->state = s;
    return UM_OK;
}

static void free_state(um_req *r) {
    um_free(r->state);
    r->state = NULL;
}

static um_need need(const um_req *r) {
    int32_t B = r->how.block_size, K = r->how.buffer_size, P = r->n_prompt;
    const multi_bd *s = (const multi_bd *)r->state;
    int32_t window = B * UM_MIN(s->buffer.run + 1, K), prompt = P / B * B;
    int32_t tokens = s->prefilled ? window : prompt + window;
    /* Under compat blocks run past the limit until the allocated length reaches it. */
    int32_t slots =
        r->compat->allocated_limits ? prompt + r->sampling.max_tokens + B * (K + 2) : UM_CEIL_DIV(r->limit, B) * B;
    return (um_need){.tokens = tokens,
                     .rows = window,
                     .tokens_max = prompt + B * K,
                     .slots_max = slots,
                     .positions_max = slots + B * K,
                     .least = tokens,
                     .slots = slots,
                     .rows_max = B * K,
                     .tables = 1};
}

/* ---- Plan -------------------------------------------------------------------------------------------------------- */

/* The next block may start: the last one is known well enough, and there is something left to write. */
static bool may_grow(const um_req *r, const multi_bd *s) {
    const um_buffer *b = &s->buffer;
    if (b->run == 0 || b->run == b->n) return false;
    const um_block *last = &b->block[b->run - 1];
    return um_block_progress(last) >= r->how.add_block_threshold &&
           last->same_token_ratio >= r->how.token_stability_threshold && last->type != UM_BLOCK_LAST_IN_CONTEXT;
}

/* Nothing runs and everything before the buffer is stored: the head starts. */
static bool must_start(const um_req *r, const multi_bd *s) {
    if (s->buffer.run > 0 || !s->prefilled) return false;
    return !(r->compat->eos_drains && um_req_eos_compat(r));
}

static void prepare(um_req *r, multi_bd *s) {
    um_buffer *b = &s->buffer;
    if (!may_grow(r, s) && !must_start(r, s)) return;
    if (b->block[b->run].start < r->limit || r->compat->allocated_limits) um_buffer_grow(b);
}

/* Wants a prediction for every mask of the block that may be written. `w0`: first position of the pass. */
static void add_rows(um_req *r, const multi_bd *s, um_block *b, int32_t w0, um_pass *pass) {
    bool wanted = false;
    for (int32_t p = b->start; p < b->start + b->len; p++) {
        if (!um_req_masked(r, p) || (p >= r->limit && !r->compat->allocated_limits)) continue;
        int32_t src = p - r->traits->shift - w0;
        if (src < 0) {
            /* The row before the window was saved by the pass that stored it. Without one the prediction is impossible,
             * which only the very first position of an empty prompt could ask for. */
            assert(s->has_carry);
            src = -1 - r->saved;
        }
        um_row *row = um_pass_row(pass, r, src, p, b->count);
        row->want = um_sampler_confidence.want(r);
        wanted = true;
    }
    if (wanted) b->count++;
}

/* Shift families: keeps the final hidden row of the last stored position, which predicts the position after it. */
static void save_carry(um_req *r, multi_bd *s, um_segment *seg, int32_t stored_end, int32_t w0) {
    if (r->traits->shift == 0 || stored_end == w0) return;
    seg->save_src = stored_end - 1 - w0;
    seg->save_to = r->saved;
    s->has_carry = true;
}

static void plan(um_req *r, um_pass *pass) {
    multi_bd *s = (multi_bd *)r->state;
    um_buffer *b = &s->buffer;
    prepare(r, s);
    int32_t w0 = s->prefilled ? um_buffer_start(b) : 0, stored_end = um_buffer_start(b);
    int32_t end = !s->prefilled && !is_mixed(r, s) ? r->n_prompt : um_buffer_end(b);
    bool silent = !s->prefilled && r->traits->prefill_is_silent, active = false;
    for (int32_t i = 0; i < b->run; i++) {
        if (b->block[i].status == UM_BLOCK_TO_CACHE) stored_end = b->block[i].start + b->block[i].len;
        else active = true;
    }
    um_pass_kind kind = !s->prefilled ? UM_PASS_PREFILL : active ? UM_PASS_DENOISE : UM_PASS_COMMIT;
    um_segment *seg = um_pass_add(pass, r, kind, w0, end, visibility(s));
    save_carry(r, s, seg, stored_end, w0);
    for (int32_t i = 0; i < b->run && !silent; i++)
        if (b->block[i].status == UM_BLOCK_ACTIVE) add_rows(r, s, &b->block[i], w0, pass);
}

/* ---- Apply ------------------------------------------------------------------------------------------------------- */

/* Decides one ACTIVE block; returns the answers that belong to it. `previous_known`: its predecessor was semi-complete
 * before this pass. */
static int32_t accept(um_req *r, um_block *b, const um_answer *answer, bool previous_known) {
    int32_t position[UM_BLOCK_MAX], chosen[UM_BLOCK_MAX], id[UM_BLOCK_MAX], n = 0;
    for (int32_t p = b->start; p < b->start + b->len; p++)
        if (um_req_masked(r, p) && (p < r->limit || r->compat->allocated_limits)) position[n++] = p;
    um_choice c = {.answer = answer,
                   .position = position,
                   .n = n,
                   .how = &r->how,
                   .forced = previous_known || r->traits->always_forced};
    um_decision d = {.at = chosen, .id = id};
    um_sampler_confidence.accept(&c, &d);
    for (int32_t i = 0; i < d.n; i++) um_req_write(r, position[d.at[i]], d.id[i], &answer[d.at[i]]);
    b->n_masks -= d.n;
    if (d.n > 0) b->commit_ready = false;
    return n;
}

static void accept_all(um_req *r, multi_bd *s, const um_answer *answer) {
    um_buffer *b = &s->buffer;
    bool previous_known = true; /* blocks before the buffer are stored */
    for (int32_t i = 0; i < b->run; i++) {
        um_block *k = &b->block[i];
        /* Decisions of a pass see the blocks as they were before it. */
        bool known = um_block_progress(k) >= r->how.semi_complete_threshold;
        if (k->status == UM_BLOCK_ACTIVE && k->n_masks > 0) answer += accept(r, k, answer, previous_known);
        if (k->status == UM_BLOCK_ACTIVE && k->n_masks == 0) {
            k->commit_ready = true;
            k->same_token_ratio = 1;
        }
        previous_known = known;
    }
}

/* compat: growth ends at the last running block once a stop condition holds. */
static void name_terminal(um_req *r, um_buffer *b) {
    if (!r->compat->eos_drains || !um_req_truncated_compat(r, um_buffer_allocated(b))) return;
    for (int32_t i = 0; i < b->n; i++) {
        if (i < b->run - 1) b->block[i].type = UM_BLOCK_IN_CONTEXT;
        else if (i >= b->run) b->block[i].type = UM_BLOCK_OUT_OF_CONTEXT;
        else if (b->block[i].type == UM_BLOCK_IN_CONTEXT) b->block[i].type = UM_BLOCK_LAST_IN_CONTEXT;
    }
    b->terminal = true;
}

/* A complete block whose predecessor is stored or about to be becomes TO_CACHE; a TO_CACHE block was stored by this
 * pass. */
static void transition(um_req *r, multi_bd *s) {
    um_buffer *b = &s->buffer;
    bool previous_done = true;
    for (int32_t i = 0; i < b->run;) {
        um_block *k = &b->block[i];
        if (k->status == UM_BLOCK_TO_CACHE) {
            assert(i == 0);
            k->status = UM_BLOCK_IN_CACHE;
            bool out = b->terminal || b->block[b->n - 1].type != UM_BLOCK_IN_CONTEXT;
            if (r->compat->allocated_limits) {
                int32_t len = um_buffer_allocated(b);
                out |= len - r->n_prompt >= r->sampling.max_tokens || len >= r->max_len;
            }
            um_buffer_shift(b, out);
            continue;
        }
        if (k->n_masks == 0 && k->commit_ready && previous_done) k->status = UM_BLOCK_TO_CACHE;
        previous_done = k->status == UM_BLOCK_TO_CACHE;
        i++;
    }
    name_terminal(r, b);
}

static void apply(um_req *r, const um_answer *answer) {
    multi_bd *s = (multi_bd *)r->state;
    bool prefill = !s->prefilled, silent = prefill && r->traits->prefill_is_silent;
    r->end = um_buffer_end(&s->buffer);
    r->n_new = 0;
    if (!silent) accept_all(r, s, answer);
    r->prefill_passes += prefill;
    s->prefilled = true;
    transition(r, s);
    r->end = um_buffer_end(&s->buffer);
    if (r->compat->allocated_limits)
        um_req_check_stop_compat(r, um_buffer_allocated(&s->buffer), um_buffer_complete(&s->buffer));
    else um_req_check_stop(r);
}

static void trace(const um_req *r, um_trace_space *space, um_trace *out) {
    const multi_bd *s = (const multi_bd *)r->state;
    const um_buffer *b = &s->buffer;
    for (int32_t i = 0; i < b->n; i++) {
        space->block[i] = b->block[i].id;
        space->masks[i] = b->block[i].n_masks;
        space->status[i] = um_block_status_name(b->block[i].status);
    }
    int32_t shown = out->prefill ? b->run : b->n;
    out->n_new = r->n_new;
    out->n_blocks = b->n;
    out->block = space->block;
    out->masks = space->masks;
    out->status = space->status;
    out->token = r->token + um_buffer_start(b);
    out->n_tokens = shown * b->block_len;
}

const um_strategy um_strategy_multi_bd = {
    .name = "multi_bd",
    .aliases = "multi_block_diffusion,block_diffusion,fast_dllm,single_bd",
    .summary = "block diffusion with a stored prefix and up to buffer_size blocks in flight",
    .source = "SDAR, arXiv 2510.06303; Diffulex multi_bd (revision 184ba97)",
    .params = {{params, UM_LEN(params)}},
    .init = init,
    .need = need,
    .plan = plan,
    .apply = apply,
    .trace = trace,
    .free = free_state,
};
