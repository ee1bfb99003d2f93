/* y[t, i] = act(gu[t, i]) * gu[t, n + i], silu(v) = v / (1 + exp(-v)) */
#include <math.h>

#include "ops/ref/ref.h"

static float activate(um_act act, float v) {
    if (act == UM_ACT_SILU) return v / (1 + expf(-v));
    /* (1 + tanh t) / 2 = 1 / (1 + exp(-2 t)), without the cancellation */
    return v / (1 + expf(-1.5957691216f * (v + 0.044715f * v * v * v)));
}

void um_ref_gate(um_dev *dev, um_act act, const float *gu, int32_t n_tokens, int32_t n, float *y) {
    (void)dev;
    for (int32_t t = 0; t < n_tokens; t++, gu += 2 * (size_t)n, y += n)
        for (int32_t i = 0; i < n; i++) y[i] = activate(act, gu[i]) * gu[n + i];
}
