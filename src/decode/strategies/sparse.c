/* sparse: whole-sequence decoding that keeps, for each block, the keys that matter most to it.
 *
 * Of a block's passes those before number delay_step feed everything, from scratch pages. That one does too and, layer
 * by layer, copies the keys outside the block that its queries weigh most to the request's pages, retention_ratio of
 * them. Later passes feed the block alone; it sees the kept keys and itself. Kept keys carry their rotary phase, so
 * their order means nothing: they lie first in the page table of such a pass, in any order, and the block's own keys in
 * scratch pages behind them. */
#include <math.h>

#include "decode/canvas.h"

const um_retention um_retention_attention = {
    .name = "attention",
    .summary = "the keys that the block's queries weigh most",
    .source = "dLLM-Serve, arXiv 2512.17077; Sparse-dLLM, arXiv 2508.02558",
};

typedef struct sparse {
    um_canvas canvas;
    const um_retention *rule;
    float *prior;      /* [canvas.length] of the rule; NULL when it has none */
    int32_t *table[2]; /* page tables of passes over the block alone: the request's pages, then scratch pages */
    int32_t *vis;      /* [block_size] of such a pass */
} sparse;

static const um_option params[] = {
    {"sparse", NULL, UM_OPT_BOOL, UM_FIELD(um_decoding, sparse), 0, 0, NULL, "true", NULL, NULL, "Decoding (sparse)",
     "keep a share of the keys for each block; false feeds everything in every pass"},
    {"retention", NULL, UM_OPT_NAME, UM_FIELD(um_decoding, retention), 0, 0, NULL, "attention", NULL, "NAME",
     "Decoding (sparse)", "which keys outside a block are kept, see `unmask list retentions`"},
    {"retention_ratio", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, retention_ratio), 0, 1, NULL, "0.5", NULL, "SHARE",
     "Decoding (sparse)", "share of the keys outside a block that is kept, above 0"},
    {"delay_step", NULL, UM_OPT_INT, UM_FIELD(um_decoding, delay_step), 0, 65535, NULL, "auto", "-1", "N",
     "Decoding (sparse)",
     "passes of a block before the one that chooses what is kept, less than block_size; auto is 1 where that is"},
    {"pool_kernel", NULL, UM_OPT_INT, UM_FIELD(um_decoding, pool_kernel), 1, 255, NULL, "3", NULL, "N",
     "Decoding (sparse)", "a key scores as the best of this many neighbours; odd, 1 is itself alone"},
    {"head_select", NULL, UM_OPT_BOOL, UM_FIELD(um_decoding, head_select), 0, 0, NULL, "false", NULL, NULL,
     "Decoding (sparse)", "each head of keys keeps a choice of its own"},
};

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

/* The ratio as it was written: 0.7, not the float next to it, whose share of 10 is below 7. */
static double ratio(const um_req *r) { return round((double)r->how.retention_ratio * 1e6) / 1e6; }

/* Rows that the current block keeps: a share of the positions outside it, at least one. */
static int32_t n_kept(const um_req *r, const um_canvas *c) {
    int32_t outside = c->length - (um_canvas_stop(c, r) - um_canvas_start(c, r));
    return UM_MAX(1, (int32_t)floor(outside * ratio(r) + 1e-9));
}

/* Rows that any block may keep. */
static int32_t n_slots(const um_req *r, const um_canvas *c) { return UM_MAX(1, (int32_t)ceil(c->length * ratio(r))); }

/* Index of the block's first key: behind n kept rows, where a page begins and a group of keys, so that the length of
 * pages does not change what attention sums up together. */
static int32_t first_of_block(const um_req *r, int32_t n) {
    int32_t step = r->traits->page_size;
    while (step % UM_KEY_GROUP) step += r->traits->page_size;
    return UM_CEIL_DIV(n, step) * step;
}

/* ---- Life -------------------------------------------------------------------------------------------------------- */

/* block_size: as it was asked for; a short canvas has shorter blocks, which choose nothing when they end before that.
 */
static um_status check(const um_req *r, int32_t block_size, const um_retention **rule, um_err *err) {
    const um_decoding *d = &r->how;
    if (!(d->retention_ratio > 0))
        return um_fail_param(err, UM_ERANGE, "retention_ratio", "%g keeps nothing; it is a share above 0, up to 1",
                             (double)d->retention_ratio);
    if (d->delay_step >= block_size)
        return um_fail_param(err, UM_ERANGE, "delay_step", "%d is outside 0..%d (block_size %d)", d->delay_step,
                             block_size - 1, block_size);
    if (d->pool_kernel % 2 == 0)
        return um_fail_param(err, UM_ERANGE, "pool_kernel", "%d is not odd; it takes 1, 3, 5 .. 255", d->pool_kernel);
    return um_retention_find(rule, d->retention, err);
}

static void free_state(um_req *r) {
    sparse *s = (sparse *)r->state;
    for (int i = 0; s && i < 2; i++) um_free(s->table[i]);
    if (s) um_free(s->vis);
    if (s) um_free(s->prior);
    um_canvas_free(r);
}

static um_status init(um_req *r, um_err *err) {
    sparse *s = UM_NEW(sparse);
    const int32_t block_size = r->how.block_size ? r->how.block_size : UM_CANVAS_AUTO_BLOCK;
    um_status st = um_canvas_init(&s->canvas, r, r->how.sparse, err);
    if (st) {
        um_free(s);
        return st;
    }
    r->state = s;
    if (!r->how.sparse) return UM_OK;
    if (r->how.delay_step < 0) r->how.delay_step = UM_MIN(1, r->how.block_size - 1);
    st = check(r, block_size, &s->rule, err);
    if (st) {
        free_state(r);
        return st;
    }
    int32_t longest = first_of_block(r, n_slots(r, &s->canvas)) + r->how.block_size;
    size_t pages = (size_t)UM_CEIL_DIV(longest, r->traits->page_size);
    for (int i = 0; i < 2; i++) s->table[i] = UM_NEW_ARRAY(int32_t, pages);
    s->vis = UM_NEW_ARRAY(int32_t, (size_t)r->how.block_size);
    if (s->rule->prior) s->prior = UM_NEW_ARRAY(float, (size_t)s->canvas.length);
    return UM_OK;
}

static um_need need(const um_req *r) {
    const um_canvas *c = (const um_canvas *)r->state;
    bool reuses = c->keys == UM_KEYS_STORED;
    int32_t tokens = reuses ? um_canvas_stop(c, r) - um_canvas_start(c, r) : c->length;
    um_need n = um_canvas_need(c, r, tokens);
    n.scratch = um_canvas_scratch(r, tokens);
    n.scratch_max = um_canvas_scratch(r, c->length);
    n.refresh = r->how.sparse && !reuses;
    if (r->how.sparse) n.slots = n.slots_max = n_slots(r, c);
    else n.tables = 0;
    return n;
}

/* ---- Plan -------------------------------------------------------------------------------------------------------- */

static void keep_keys(um_req *r, const sparse *s, um_pass *pass) {
    const um_canvas *c = &s->canvas;
    const um_range block = {um_canvas_start(c, r), um_canvas_stop(c, r)};
    if (s->prior) s->rule->prior(&r->how, r->n_prompt, block, c->length, s->prior);
    for (int32_t i = 0; i < pass->n_seg; i++)
        *um_pass_select(pass, &pass->seg[i]) = (um_kv_select){.block = block,
                                                              .n_keep = n_kept(r, c),
                                                              .pool = r->how.pool_kernel,
                                                              .per_head = r->how.head_select,
                                                              .page = r->page[i],
                                                              .prior = s->prior,
                                                              .blind = s->rule->blind};
}

static void use_scratch(um_pass *pass, int32_t end) {
    for (int32_t i = 0; i < pass->n_seg; i++) um_pass_use_scratch(pass, &pass->seg[i], end);
}

/* The block's keys go behind the kept ones. */
static void join_kept(sparse *s, um_req *r, um_pass *pass) {
    const int32_t n = n_kept(r, &s->canvas), first = first_of_block(r, n), page = pass->page_size;
    const size_t kept_pages = (size_t)UM_CEIL_DIV(n, page), pages = (size_t)UM_CEIL_DIV(pass->seg[0].n, page);
    for (int32_t i = 0; i < pass->seg[0].n; i++) s->vis[i] = first + i;
    for (int32_t i = 0; i < pass->n_seg; i++) {
        um_segment *seg = &pass->seg[i];
        um_pass_use_scratch(pass, seg, seg->n);
        memcpy(s->table[i], r->page[i], kept_pages * sizeof(int32_t));
        memcpy(s->table[i] + first / page, seg->page, pages * sizeof(int32_t));
        seg->page = s->table[i];
        seg->vis = s->vis;
        seg->keys = (um_range){0, first + seg->n};
        seg->hole = (um_range){n, first};
    }
}

static void plan(um_req *r, um_pass *pass) {
    sparse *s = (sparse *)r->state;
    um_canvas *c = &s->canvas;
    if (c->keys == UM_KEYS_LOST) {
        um_canvas_rebuild(c, r, pass);
        use_scratch(pass, c->length);
        keep_keys(r, s, pass);
    } else if (c->keys == UM_KEYS_STORED) {
        um_canvas_feed(r, pass, UM_PASS_DENOISE, um_canvas_start(c, r), um_canvas_stop(c, r));
        join_kept(s, r, pass);
        um_canvas_ask(c, r, pass, um_canvas_start(c, r));
    } else {
        um_canvas_feed(r, pass, UM_PASS_DENOISE, 0, c->length);
        use_scratch(pass, c->length);
        if (r->how.sparse && c->pass == r->how.delay_step) {
            um_canvas_keep(c, r);
            keep_keys(r, s, pass);
        }
        um_canvas_ask(c, r, pass, 0);
    }
}

/* A pass over everything writes the block's first position in any case: with shifted predictions the passes that feed
 * the block alone could not. */
static void apply(um_req *r, const um_answer *answer) {
    um_canvas *c = (um_canvas *)r->state;
    if (um_canvas_rebuilt(c)) return;
    bool lead = r->how.sparse && c->keys == UM_KEYS_NONE;
    if (lead && c->pass == r->how.delay_step) c->keys = UM_KEYS_STORED;
    um_canvas_apply(c, r, answer, lead);
}

const um_strategy um_strategy_sparse = {
    .name = "sparse",
    .aliases = "sparse_dllm",
    .summary = "whole-sequence decoding that keeps, for each block, the share of keys that matter most to it",
    .source = "dLLM-Serve, arXiv 2512.17077; Sparse-dLLM, arXiv 2508.02558",
    .params = {{um_canvas_options, UM_N_CANVAS_OPTIONS}, {params, UM_LEN(params)}},
    .fills_gaps = true,
    .init = init,
    .need = need,
    .plan = plan,
    .apply = apply,
    .blocks = um_canvas_blocks,
    .trace = um_canvas_trace,
    .preempt = um_canvas_preempt,
    .free = free_state,
};
