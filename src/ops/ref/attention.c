/* out[t, h] = sum over visible j of softmax_j(scale * q[t, h] . k[j, g]) v[j, g], with g = h / (n_heads / n_kv_heads).
 * Key j of a span is visible to token t when j is in span->keys, not in span->hole, below seen_end[t], and in the
 * window. */
#include <math.h>

#include "ops/ref/ref.h"

/* Computes attention of one query over the keys of its span that it sees. The result is zero when the query sees no
 * key.
 */
static void attend(const um_dev *dev, const um_kv *kv, const um_attention *a, const um_span *span, const float *q,
                   int32_t kv_head, um_range seen, float *out) {
    int32_t d = a->head_dim;
    float max = -INFINITY, sum = 0;
    for (int32_t i = 0; i < d; i++) out[i] = 0;
    for (int pass = 0; pass < 2; pass++) { /* pass 0 finds the largest score, pass 1 computes the weighted sum */
        for (int32_t j = seen.start; j < seen.end; j++) {
            if (j >= span->hole.start && j < span->hole.end) continue;
            int64_t slot = um_slot_of(um_span_page(span, a->window), a->page_size, j);
            size_t at = um_ref_kv_at(kv, a->layer, slot) + (size_t)kv_head * (size_t)d;
            float score = a->scale * um_ref_dot(q, kv->key + at, d);
            if (pass == 0) {
                max = fmaxf(max, score);
                continue;
            }
            float p = expf(score - max), rounded = um_ref_round(dev, p);
            sum += p;
            for (int32_t i = 0; i < d; i++) out[i] += rounded * kv->value[at + (size_t)i];
        }
    }
    for (int32_t i = 0; i < d && sum > 0; i++) out[i] /= sum;
}

void um_ref_attention(um_dev *dev, const um_kv *kv, const um_attention *a) {
    const um_batch *b = a->batch;
    int32_t d = a->head_dim, group = a->n_heads / a->n_kv_heads;
    for (int32_t s = 0; s < b->n_spans; s++) {
        const um_span *span = &b->span[s];
        for (int32_t t = span->first; t < span->first + span->n; t++) {
            const um_range seen = {UM_MAX(span->keys.start, um_seen_start(span, a->window, b->seen_end[t])),
                                   UM_MIN(span->keys.end, b->seen_end[t])};
            for (int32_t h = 0; h < a->n_heads; h++) {
                const float *q = um_ref_operand(dev, a->q + (size_t)t * (size_t)a->stride + (size_t)(h * d), d);
                attend(dev, kv, a, span, q, h / group, seen,
                       a->out + ((size_t)t * (size_t)a->n_heads + (size_t)h) * (size_t)d);
            }
        }
    }
}
