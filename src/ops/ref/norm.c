/* Root mean square norm without bias, LayerNorm with bias. */
#include <math.h>

#include "ops/ref/ref.h"

static float mean(const float *x, int32_t n) {
    float sum = 0;
    for (int32_t i = 0; i < n; i++) sum += x[i];
    return sum / (float)n;
}

void um_ref_norm(um_dev *dev, const float *x, const um_norm *norm, int32_t n_tokens, int32_t n, float *y) {
    (void)dev;
    for (int32_t t = 0; t < n_tokens; t++, x += n, y += n) {
        float m = norm->bias ? mean(x, n) : 0, square = 0;
        for (int32_t i = 0; i < n; i++) square += (x[i] - m) * (x[i] - m);
        float r = 1 / sqrtf(square / (float)n + norm->eps);
        for (int32_t i = 0; i < n; i++) y[i] = (x[i] - m) * r * norm->w[i] + (norm->bias ? norm->bias[i] : 0);
    }
}
