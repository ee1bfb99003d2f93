/* left_to_right: writes one token per pass, at the leftmost mask. A pass feeds all positions that are not stored yet,
 * up to the end of the block that it writes to. The earlier blocks are full, and the tokens that they see no longer
 * change. So the keys that this pass stores for them are final. */
#include "extending.h"

typedef struct state {
    int32_t next; /* r->stored after the planned pass */
    bool partial; /* the planned pass only stores keys */
    bool begun;   /* a pass has written a token */
} state;

static int32_t block_start(const um_req *r) { return r->filled / r->how.block_size * r->how.block_size; }

static int32_t block_end(const um_req *r) { return UM_MIN(block_start(r) + r->how.block_size, r->limit); }

static um_status init(um_req *r, um_err *err) {
    if (r->traits->see != UM_SEE_BLOCK_CAUSAL || r->traits->shift)
        return um_fail(err, UM_EUNSUPPORTED,
                       "decoding_strategy: left_to_right needs a block-causal model that predicts in place");
    if (r->how.block_size == 0) r->how.block_size = r->traits->block;
    r->n_top_asked = r->n_top;
    r->state = UM_NEW(state);
    return UM_OK;
}

static um_need need(const um_req *r) {
    const int32_t todo = block_end(r) - r->stored, known = block_start(r) - r->stored;
    return (um_need){.tokens = todo,
                     .least = known > 0 ? UM_MIN(known, r->how.block_size) : todo,
                     .rows = 1,
                     .slots = block_end(r),
                     .tokens_max = r->how.block_size,
                     .rows_max = 1,
                     .slots_max = r->limit,
                     .positions_max = r->limit,
                     .tables = 1};
}

static void plan(um_req *r, um_pass *pass) {
    state *s = (state *)r->state;
    const int32_t B = r->how.block_size, start = block_start(r);
    const um_visibility rule = {.see = UM_SEE_BLOCK_CAUSAL, .block = B};
    s->next = start;
    s->partial = pass->partial = block_end(r) - r->stored > pass->budget;
    if (s->partial) { /* whole blocks, as many as fit */
        s->next = UM_MIN(start, (r->stored + pass->budget) / B * B);
        um_pass_add(pass, r, s->begun ? UM_PASS_COMMIT : UM_PASS_PREFILL, r->stored, s->next, rule);
        return;
    }
    um_pass_add(pass, r, s->begun ? UM_PASS_DENOISE : UM_PASS_PREFILL, r->stored, block_end(r), rule);
    um_req_count_penalties(r, start);
    um_pass_row(pass, r, r->filled - r->stored, r->filled, r->filled - start);
}

static void apply(um_req *r, const um_answer *answer) {
    state *s = (state *)r->state;
    r->stored = s->next;
    if (s->partial) return;
    r->prefill_passes += !s->begun;
    s->begun = true;
    um_req_write(r, r->filled, answer->sample, answer);
    r->n_new = 1;
    r->end = block_end(r);
    um_req_check_stop(r);
}

static void trace(const um_req *r, um_trace_space *space, um_trace *out) {
    const int32_t start = (r->end - 1) / r->how.block_size * r->how.block_size;
    space->block[0] = start / r->how.block_size;
    space->masks[0] = 0;
    space->status[0] = um_block_status_name(UM_BLOCK_ACTIVE);
    for (int32_t p = start; p < r->end; p++) space->masks[0] += um_req_masked(r, p);
    out->n_new = r->n_new;
    out->n_blocks = 1;
    out->n_tokens = r->end - start;
    out->block = space->block;
    out->masks = space->masks;
    out->status = space->status;
    out->token = r->token + start;
}

/* The keys of a position depend on the tokens up to the end of its block, and on the block length. */
static uint64_t share(const um_req *r, int32_t *most) {
    *most = block_start(r);
    return r->traits->page_size % r->how.block_size == 0 ? (uint64_t)r->how.block_size : 0;
}

static void free_state(um_req *r) {
    um_free(r->state);
    r->state = NULL;
}

const um_strategy strategy_left_to_right = {
    .name = "left_to_right",
    .summary = "one token a pass, strictly from left to right",
    .source = "docs/extending.md",
    .init = init,
    .need = need,
    .plan = plan,
    .apply = apply,
    .trace = trace,
    .share = share,
    .free = free_state,
};
