/* SwiGLU: y[t, i] = silu(gu[t, i]) * gu[t, n + i], silu(v) = v / (1 + exp(-v)) */
#include <math.h>

#include "ops/ref/ref.h"

void um_ref_gate(um_dev *dev, const float *gu, int32_t n_tokens, int32_t n, float *y) {
    (void)dev;
    for (int32_t t = 0; t < n_tokens; t++, gu += 2 * (size_t)n, y += n)
        for (int32_t i = 0; i < n; i++) y[i] = gu[i] / (1 + expf(-gu[i])) * gu[n + i];
}
