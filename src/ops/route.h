/* route: which experts a token goes to, and with what weights. Scalar code shared by the backends that run on the CPU:
 * E scores a token are nothing beside the products of its experts. */
#ifndef UM_OPS_ROUTE_H
#define UM_OPS_ROUTE_H

#include "ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Floats of scratch that um_route_tokens needs. */
static inline size_t um_route_scratch(int32_t n_experts) { return 3 * (size_t)n_experts; }

/* Chooses the experts of n_tokens tokens; arguments as in um_moe. expert [T, top_k] ascending within a token, weight
 * [T, top_k] beside it, scratch [um_route_scratch]. Pure: a token's choice depends on its logits alone, under
 * route->capacity on those of its routing block. Tokens of one block must be in one call. */
void um_route_tokens(const um_route *route, const float *logits, const float *bias, const int32_t *block,
                     int32_t n_tokens, float *scratch, int32_t *expert, float *weight);

#ifdef __cplusplus
}
#endif
#endif
