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

void um_ref_norm_add(um_dev *dev, float *y, const um_norm *norm, int32_t n_tokens, int32_t n, float scale, float *x) {
    um_ref_norm(dev, y, norm, n_tokens, n, y);
    for (size_t i = 0; i < (size_t)n_tokens * (size_t)n; i++) x[i] = (x[i] + y[i]) * scale;
}
