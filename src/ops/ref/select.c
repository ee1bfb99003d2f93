/* Selects the keys that matter most to a block by the formula of um_kv_select. */
#include "ops/select.h"
#include "ops/ref/ref.h"

static void mean_queries(um_dev *dev, const um_attention *a, const um_span *span) {
    um_range block = span->select->block;
    int32_t width = a->n_heads * a->head_dim;
    memset(dev->mean, 0, (size_t)width * sizeof(float));
    for (int32_t vis = block.start; vis < block.end; vis++) {
        const float *q = a->q + (size_t)um_select_token(a->batch, span, a->page_size, vis) * (size_t)a->stride;
        for (int32_t i = 0; i < width; i++) dev->mean[i] += q[i];
    }
    for (int32_t i = 0; i < width; i++) dev->mean[i] /= (float)(block.end - block.start);
}

/* Returns the score of the key in a slot for the query heads [first, end): the sum over the heads, or the largest. Does
 * not divide by sqrt(d); um_select_prior does this where it matters. */
static float score_key(const um_dev *dev, const um_kv *kv, const um_attention *a, int32_t first, int32_t end,
                       int64_t slot, bool largest) {
    int32_t group = a->n_heads / a->n_kv_heads, d = a->head_dim;
    const float *key = kv->key + um_ref_kv_at(kv, a->layer, slot);
    float score = 0;
    for (int32_t h = first; h < end; h++) {
        float product = um_ref_dot(dev->mean + (size_t)h * (size_t)d, key + (size_t)(h / group) * (size_t)d, d);
        score = h == first ? product : largest ? UM_MAX(score, product) : score + product;
    }
    return score;
}

/* Copies keys and values of the KV heads [first, end) from one slot to another. */
static void copy_row(const um_kv *kv, int32_t layer, int64_t from, int64_t to, int32_t first, int32_t end) {
    size_t skip = (size_t)first * (size_t)kv->shape.head_dim, n = (size_t)(end - first) * (size_t)kv->shape.head_dim;
    size_t a = um_ref_kv_at(kv, layer, from) + skip, b = um_ref_kv_at(kv, layer, to) + skip;
    memcpy(kv->key + b, kv->key + a, n * sizeof(float));
    memcpy(kv->value + b, kv->value + a, n * sizeof(float));
}

/* Selects keys for the KV heads [first, end), which keep the same keys. */
static void select_for(um_dev *dev, um_kv *kv, const um_attention *a, const um_span *span, int32_t n_keys,
                       int32_t first, int32_t end) {
    const um_kv_select *s = span->select;
    int32_t group = a->n_heads / a->n_kv_heads;
    for (int32_t k = 0; k < n_keys; k++)
        dev->score[k] = s->blind ? 0
                                 : score_key(dev, kv, a, first * group, end * group,
                                             um_slot_of(span->page, a->page_size, dev->key[k]), s->per_head);
    if (!s->blind && a->merge_scores) a->merge_scores(a->merge_arg, dev->score, n_keys, s->per_head);
    um_select_pool(dev->score, n_keys, s->pool, dev->pooled);
    um_select_prior(dev->pooled, n_keys, a->head_dim, dev->key, s);
    um_select_largest(dev->pooled, n_keys, s->n_keep, dev->best);
    for (int32_t t = 0; t < s->n_keep; t++)
        copy_row(kv, a->layer, um_slot_of(span->page, a->page_size, dev->key[dev->best[t]]),
                 um_slot_of(s->page, a->page_size, t), first, end);
}

void um_ref_kv_select(um_dev *dev, um_kv *kv, const um_attention *a) {
    for (int32_t i = 0; i < a->batch->n_spans; i++) {
        const um_span *span = &a->batch->span[i];
        if (!span->select) continue;
        int32_t n_keys = um_select_keys(span, dev->key);
        assert(n_keys <= dev->config.max_tokens && span->select->n_keep <= n_keys);
        if (!span->select->blind) mean_queries(dev, a, span);
        if (!span->select->per_head) select_for(dev, kv, a, span, n_keys, 0, a->n_kv_heads);
        else
            for (int32_t c = 0; c < a->n_kv_heads; c++) select_for(dev, kv, a, span, n_keys, c, c + 1);
    }
}
