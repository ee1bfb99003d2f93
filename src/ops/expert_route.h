/* Routing: chooses the experts of each token and their weights. This is scalar code that all CPU backends share: the
 * time for the E scores of a token is negligible against the products of its experts. */
#ifndef UM_OPS_EXPERT_ROUTE_H
#define UM_OPS_EXPERT_ROUTE_H

#include "ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the number of floats of scratch that um_expert_route_tokens needs. */
static inline size_t um_expert_route_scratch(int32_t n_experts) { return 3 * (size_t)n_experts; }

/* Chooses the experts of n_tokens tokens. The arguments are as in um_moe. Writes expert [T, top_k], ascending within a
 * token, and their weights, weight [T, top_k]. scratch has um_expert_route_scratch floats.
 *
 * The choice of a token depends only on its own logits, or with route->capacity on the logits of its routing block. All
 * tokens of a block must be in one call. */
void um_expert_route_tokens(const um_expert_route *route, const float *logits, const float *bias,
                            const float *expert_scale, const int32_t *block, int32_t n_tokens, float *scratch,
                            int32_t *expert, float *weight);

#ifdef __cplusplus
}
#endif
#endif
