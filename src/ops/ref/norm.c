/* Root mean square norm: y[t] = x[t] * rsqrt(mean(x[t]^2) + eps) * w */
#include <math.h>

#include "ops/ref/ref.h"

void um_ref_norm(um_dev *dev, const float *x, const float *w, float eps, int32_t n_tokens, int32_t n, float *y) {
    (void)dev;
    for (int32_t t = 0; t < n_tokens; t++, x += n, y += n) {
        float r = 1 / sqrtf(um_ref_dot(x, x, n) / (float)n + eps);
        for (int32_t i = 0; i < n; i++) y[i] = x[i] * r * w[i];
    }
}
