/* Selection of keys (um_kv_select), beside the scores: which keys there are, and which are kept. Both backends use it;
 * they differ in how they compute the scores. */
#ifndef UM_OPS_SELECT_H
#define UM_OPS_SELECT_H

#include "ops/batch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the vis indices of the keys that exist outside of the span's block, ascending; returns how many. */
int32_t um_select_keys(const um_span *span, int32_t *vis);
/* The token of the span whose key lies at a vis index. */
int32_t um_select_token(const um_batch *b, const um_span *span, int32_t page_size, int32_t vis);
/* out[k] = the largest of the `pool` scores around k, half of them in front, NaN left out; minus infinity when there is
 * none. */
void um_select_pool(const float *score, int32_t n, int32_t pool, float *out);
/* Divides the scores, sums of products over d elements, by sqrt(d) and adds the prior of key vis[k] to score[k].
 * Nothing without a prior: the factor alone changes no order. */
void um_select_prior(float *score, int32_t n, int32_t d, const int32_t *vis, const um_kv_select *s);
/* Sorts the first n_keep of the indices 0..n-1 by falling score into order [n], ties lower index first; the rest of
 * `order` is in no order. No score is NaN. */
void um_select_largest(const float *score, int32_t n, int32_t n_keep, int32_t *order);

#ifdef __cplusplus
}
#endif
#endif
