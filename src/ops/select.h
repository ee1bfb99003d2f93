/* Selection of keys (um_kv_select) without the computation of scores: lists the candidates and chooses among them. All
 * backends use it; each computes the scores in its own way. */
#ifndef UM_OPS_SELECT_H
#define UM_OPS_SELECT_H

#include "ops/batch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the visibility indices of the span's keys outside of the block, in ascending order. Returns their number. */
int32_t um_select_keys(const um_span *span, int32_t *vis);
/* Returns the token of the span whose key is at a visibility index. */
int32_t um_select_token(const um_batch *b, const um_span *span, int32_t page_size, int32_t vis);
/* Sets out[k] to the largest of the `pool` scores around k, starting pool / 2 before it. Ignores NaN. Minus infinity
 * when all are NaN. */
void um_select_pool(const float *score, int32_t n, int32_t pool, float *out);
/* Divides the scores, sums of products over d elements, by sqrt(d) and adds the prior of key vis[k] to score[k]. Does
 * nothing without a prior, because the division does not change the order. */
void um_select_prior(float *score, int32_t n, int32_t d, const int32_t *vis, const um_kv_select *s);
/* Fills order [n] with the indices 0..n-1, the n_keep largest scores first: in descending order, the lower index first
 * among equals. The remaining indices are in no order. No score may be NaN. */
void um_select_largest(const float *score, int32_t n, int32_t n_keep, int32_t *order);

#ifdef __cplusplus
}
#endif
#endif
