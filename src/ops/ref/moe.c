/* Mixture of experts: y[t] += sum over the chosen e of weight_e * down_e (act(gate_e x[t]) * up_e x[t]) */
#include "ops/ref/ref.h"

#include "ops/expert_route.h"

/* Adds the weighted output of one expert for one token to y. */
static void add_expert(um_dev *dev, const um_moe *a, int32_t e, float weight, const float *x, float *y) {
    um_ref_linear(dev, a->gate_up[e], NULL, x, 1, false, dev->expert_gate_up);
    um_ref_gate(dev, a->act, dev->expert_gate_up, 1, a->n_ff, dev->expert_gated);
    um_ref_linear(dev, a->down[e], NULL, dev->expert_gated, 1, false, dev->expert_out);
    for (int32_t i = 0; i < a->hidden; i++) y[i] += weight * dev->expert_out[i];
}

void um_ref_moe(um_dev *dev, const um_moe *a) {
    const size_t K = (size_t)a->route->top_k, H = (size_t)a->hidden;
    um_expert_route_tokens(a->route, a->logits, a->bias, a->expert_scale, a->block, a->n_tokens, dev->route_scratch,
                           dev->expert, dev->weight);
    for (size_t t = 0; t < (size_t)a->n_tokens; t++)
        for (size_t k = 0; k < K; k++) {
            const int32_t e = dev->expert[t * K + k];
            if (a->gate_up[e]) add_expert(dev, a, e, dev->weight[t * K + k], a->x + t * H, a->y + t * H);
        }
}
