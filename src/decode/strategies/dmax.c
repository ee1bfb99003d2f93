/* dmax: block diffusion that corrects itself. Each pass predicts every position of a running block again. In place of
 * the tokens of a running block, the next pass feeds blends of embeddings. In mode dmax_topk a blend is the token's
 * embedding weighted by its probability p plus the mask's weighted by 1 - p. In mode iter_smooth_topk it is the token's
 * embedding plus those of some of the likeliest ids.
 *
 * With clean_commit the pass that stores a complete block feeds its tokens, so stored keys do not depend on the model's
 * confidence. Diffulex stores the keys of the last blends. */
#include <math.h>

#include "decode/strategies/blocks.h"

/* The blends of all positions of the answer, after the last decision. */
typedef struct merges {
    int32_t per;    /* largest number of ids in a blend */
    int32_t *n;     /* [positions] ids of the blend; 0: the token itself is fed */
    int32_t *id;    /* [positions, per] */
    float *w;       /* [positions, per] weights */
    int32_t data[]; /* memory of the three arrays */
} merges;

static bool is_blended(const um_decoding *d) { return d->token_merge_weight > 0; }

static int32_t ids_per_blend(const um_decoding *d) {
    return d->token_merge_mode == UM_MERGE_DMAX ? 2 : d->token_merge_top_k + 1;
}

static void feed(um_req *r, um_blocks *s, um_pass *pass, um_segment *seg, int32_t first) {
    const merges *m = (const merges *)s->own;
    if (!m) return;
    int32_t done = um_buffer_start(&s->buffer) + um_buffer_first_active(&s->buffer) * s->buffer.block_len;
    int32_t from = UM_MAX(r->n_prompt, r->how.clean_commit ? done : 0);
    for (int32_t i = UM_MAX(0, from - first); i < seg->n; i++) {
        int32_t k = first + i - r->n_prompt, *id;
        float *w;
        if (m->n[k] == 0) continue;
        um_soft *soft = um_pass_soft(pass, seg, i, m->n[k], &id, &w);
        memcpy(id, m->id + (size_t)k * (size_t)m->per, (size_t)m->n[k] * sizeof(int32_t));
        memcpy(w, m->w + (size_t)k * (size_t)m->per, (size_t)m->n[k] * sizeof(float));
        soft->renormalize = r->how.token_merge_mode == UM_MERGE_DMAX && r->how.token_merge_renormalize;
    }
}

/* Blends the token, weighted by p, with the mask, weighted by 1 - p. Returns the number of ids. */
static int32_t blend_with_mask(const um_req *r, int32_t token, float p, int32_t *id, float *w) {
    p = UM_MIN(UM_MAX(p, 0.0F), 1.0F);
    if (p == 1) return 0;
    id[0] = token;
    w[0] = p;
    id[1] = r->traits->mask_id;
    w[1] = 1 - p;
    return 2;
}

/* Blends the token, of weight 1, with the likeliest ids, weighted by their probabilities. Returns the number of ids. */
static int32_t add_likeliest(const um_req *r, int32_t token, const um_top *top, int32_t *id, float *w) {
    int32_t n = 0;
    id[n] = token;
    w[n++] = 1;
    for (int32_t i = 0; i < r->how.token_merge_top_k && top[i].id >= 0; i++) {
        id[n] = top[i].id;
        w[n++] = r->how.token_merge_weight * top[i].p;
    }
    return n;
}

static void decided(um_req *r, um_blocks *s, const um_sampler_input *c) {
    merges *m = (merges *)s->own;
    if (!m) return;
    for (int32_t i = c->n_fixed; i < c->n; i++) {
        int32_t p = c->position[i], k = p - r->n_prompt;
        int32_t *id = m->id + (size_t)k * (size_t)m->per;
        float *w = m->w + (size_t)k * (size_t)m->per;
        if (um_req_masked(r, p)) m->n[k] = 0;
        else if (r->how.token_merge_mode == UM_MERGE_DMAX)
            m->n[k] = blend_with_mask(r, r->token[p], um_dmax_confidence(c, i), id, w);
        else m->n[k] = add_likeliest(r, r->token[p], c->answer[i].top, id, w);
    }
}

static const um_block_rules rules = {
    .anchor = um_blocks_anchor_zero,
    .see = um_blocks_see,
    .whole = um_blocks_whole_none,
    .feed = feed,
    .decided = decided,
};

static const float AUTO_THRESHOLD = 0.5F; /* the published setting */

static um_status check_sampler(const um_req *r, um_err *err) {
    const char *name = r->how.sampler;
    /* Diffulex calls this sampler `edit`. */
    if (um_streq(name, "auto") || um_streq(name, "edit") || um_streq(name, um_sampler_dmax.name)) return UM_OK;
    return um_fail_param(err, UM_EUNSUPPORTED, "sampler", "strategy dmax runs sampler %s only, not %s",
                         um_sampler_dmax.name, name);
}

static merges *new_merges(const um_req *r) {
    size_t n = (size_t)(um_blocks_need(r).positions_max - r->n_prompt), per = (size_t)ids_per_blend(&r->how);
    merges *m = (merges *)um_zalloc(sizeof(merges) + um_mul(n * (1 + 2 * per), sizeof(int32_t)));
    m->per = (int32_t)per;
    m->n = m->data;
    m->id = m->n + n;
    m->w = (float *)(void *)(m->id + n * per);
    return m;
}

/* With clean_commit the blocks that are denoised need blends, otherwise every fed position of the answer. */
static um_need need(const um_req *r) {
    um_need n = um_blocks_need(r);
    int32_t per = is_blended(&r->how) ? ids_per_blend(&r->how) : 0, end = r->stored + n.tokens;
    n.soft = (r->how.clean_commit ? n.rows : end - UM_MIN(end, UM_MAX(r->stored, r->n_prompt))) * per;
    n.soft_max = (r->how.clean_commit ? n.rows_max : n.positions_max - r->n_prompt) * per;
    return n;
}

/* Checks that the engine has room for all blends of a pass. Without clean_commit a pass after preemption feeds the
 * blends of the whole answer. */
static um_status check_blends(const um_req *r, um_err *err) {
    um_need n = need(r);
    int32_t per = ids_per_blend(&r->how);
    if (n.soft_max <= r->traits->blend_ids) return UM_OK;
    return um_fail(err, UM_ELIMIT,
                   "a pass of this request blends %d ids (%d for each of %d positions%s), but a step has room for %d; "
                   "lower token_merge_top_k%s or raise max_num_batched_tokens",
                   n.soft_max, per, n.soft_max / per,
                   r->how.clean_commit ? "" : ": all of the answer without clean_commit", r->traits->blend_ids,
                   r->how.clean_commit ? ", block_size or buffer_size" : " or max_tokens");
}

static um_status init(um_req *r, um_err *err) {
    um_status st = check_sampler(r, err);
    if (st) return st;
    if (isnan(r->how.accept_threshold)) r->how.accept_threshold = AUTO_THRESHOLD;
    if (r->compat->merged_commit) r->how.clean_commit = false;
    st = um_blocks_init(r, &rules, &um_sampler_dmax, err);
    if (st || !is_blended(&r->how)) return st;
    st = check_blends(r, err);
    if (st) um_blocks_free(r);
    else ((um_blocks *)r->state)->own = new_merges(r);
    return st;
}

/* Keys of blends are never shared. */
static uint64_t share(const um_req *r, int32_t *most) {
    uint64_t kind = um_blocks_share(r, most);
    return r->how.clean_commit || !is_blended(&r->how) ? kind : 0;
}

const um_strategy um_strategy_dmax = {
    .name = "dmax",
    .summary = "block diffusion that predicts filled positions again in each pass and feeds blends of embeddings",
    .source = "DMax; Diffulex dmax (revision 184ba97)",
    .params = {{um_block_options, UM_LEN(um_block_options)}},
    .init = init,
    .need = need,
    .plan = um_blocks_plan,
    .apply = um_blocks_apply,
    .blocks = um_blocks_list,
    .trace = um_blocks_trace,
    .share = share,
    .free = um_blocks_free,
};
