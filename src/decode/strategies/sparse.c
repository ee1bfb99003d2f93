/* sparse: whole-sequence decoding that keeps, for each block, the keys that matter most to it.
 *
 * The passes of a block are counted from 0. Those up to number delay_step feed everything and keep their keys in
 * scratch pages. Pass delay_step also selects keys in every layer: of those outside the block it copies the share
 * retention_ratio that the retention rule ranks highest to the request's pages. Later passes feed only the block, which
 * sees the kept keys and itself.
 *
 * Kept keys already include their rotary position, so their order does not matter. In the page table of a later pass
 * they come first, in any order; the block's own keys follow in scratch pages. */
#include <math.h>

#include "decode/canvas.h"

const um_retention um_retention_attention = {
    .name = "attention",
    .summary = "keeps the keys with the largest attention scores from the block's queries",
    .source = "dLLM-Serve, arXiv 2512.17077; Sparse-dLLM, arXiv 2508.02558",
};

typedef struct sparse {
    um_canvas canvas;
    const um_retention *rule;
    float *prior;      /* [canvas.length] values of the rule's prior; NULL when the rule has no prior */
    int32_t *table[2]; /* page tables of passes that feed only the block: the request's pages, then scratch pages */
    int32_t *vis;      /* [block_size] visibility indices of the block's tokens in these passes */
} sparse;

static const um_option params[] = {
    {"sparse", NULL, UM_OPT_BOOL, UM_FIELD(um_decoding, sparse), 0, 0, NULL, "true", NULL, NULL, "Decoding (sparse)",
     "keep only a share of the keys outside each block; false feeds the whole sequence in every pass"},
    {"retention", NULL, UM_OPT_NAME, UM_FIELD(um_decoding, retention), 0, 0, NULL, "attention", NULL, "NAME",
     "Decoding (sparse)", "which keys outside a block are kept (`unmask list retentions`)"},
    {"retention_ratio", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, retention_ratio), 0, 1, NULL, "0.5", NULL, "SHARE",
     "Decoding (sparse)", "share of the keys outside a block that is kept; must be above 0"},
    {"delay_step", NULL, UM_OPT_INT, UM_FIELD(um_decoding, delay_step), 0, 65535, NULL, "auto", "-1", "N",
     "Decoding (sparse)",
     "number of passes over a block before the pass that chooses the kept keys; must be less than block_size; auto "
     "means 1, or 0 if block_size is 1"},
    {"pool_kernel", NULL, UM_OPT_INT, UM_FIELD(um_decoding, pool_kernel), 1, 255, NULL, "3", NULL, "N",
     "Decoding (sparse)",
     "score each key by the best of this many neighbouring keys; must be odd; 1 means the key alone"},
    {"head_select", NULL, UM_OPT_BOOL, UM_FIELD(um_decoding, head_select), 0, 0, NULL, "false", NULL, NULL,
     "Decoding (sparse)", "let each KV head choose its own keys"},
};

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

/* Returns the ratio as the user wrote it: the float nearest to 0.7 is smaller, so its share of 10 would be below 7. */
static double ratio(const um_req *r) { return round((double)r->how.retention_ratio * 1e6) / 1e6; }

/* Returns the number of keys that the current block keeps: a share of the positions outside it, at least one. */
static int32_t n_kept(const um_req *r, const um_canvas *c) {
    int32_t outside = c->length - c->block.len;
    return UM_MAX(1, (int32_t)floor(outside * ratio(r) + 1e-9));
}

/* Returns the largest number of keys that a block may keep. */
static int32_t n_slots(const um_req *r, const um_canvas *c) { return UM_MAX(1, (int32_t)ceil(c->length * ratio(r))); }

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

/* Checks the parameters against the requested block_size. Blocks of a short canvas are shorter, and may be complete
 * before pass delay_step. */
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
    int32_t longest = um_req_first_scratch(r, n_slots(r, &s->canvas)) + r->how.block_size;
    size_t pages = (size_t)UM_CEIL_DIV(longest, r->traits->page_size);
    for (int i = 0; i < 2; i++) s->table[i] = UM_NEW_ARRAY(int32_t, pages);
    s->vis = UM_NEW_ARRAY(int32_t, (size_t)r->how.block_size);
    if (s->rule->prior) s->prior = UM_NEW_ARRAY(float, (size_t)s->canvas.length);
    return UM_OK;
}

static um_need need(const um_req *r) {
    const um_canvas *c = (const um_canvas *)r->state;
    bool reuses = c->keys == UM_KEYS_STORED;
    int32_t tokens = reuses ? c->block.len : c->length;
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
    const um_range block = {c->block.start, um_canvas_stop(c)};
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

/* Places the block's keys after the kept keys. */
static void join_kept(sparse *s, um_req *r, um_pass *pass) {
    const int32_t n = n_kept(r, &s->canvas), first = um_req_first_scratch(r, n), page = pass->page_size;
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
        um_canvas_feed(r, pass, UM_PASS_DENOISE, c->block.start, um_canvas_stop(c));
        join_kept(s, r, pass);
        um_canvas_add_rows(c, r, pass, c->block.start);
    } else {
        um_canvas_feed(r, pass, UM_PASS_DENOISE, 0, c->length);
        use_scratch(pass, c->length);
        if (r->how.sparse && c->block.total_steps == r->how.delay_step) {
            um_canvas_save_fed(c, r);
            keep_keys(r, s, pass);
        }
        um_canvas_add_rows(c, r, pass, 0);
    }
}

/* A pass over everything always writes the block's first position, because with shifted predictions a pass that feeds
 * only the block could not predict it. */
static void apply(um_req *r, const um_answer *answer) {
    um_canvas *c = (um_canvas *)r->state;
    if (um_canvas_rebuilt(c)) return;
    bool lead = r->how.sparse && c->keys == UM_KEYS_NONE;
    if (lead && c->block.total_steps > r->how.delay_step) c->keys = UM_KEYS_STORED;
    um_canvas_apply(c, r, answer, lead);
}

const um_strategy um_strategy_sparse = {
    .name = "sparse",
    .aliases = "sparse_dllm",
    .summary = "whole-sequence decoding that keeps, for each block, only the keys that matter most to it",
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
