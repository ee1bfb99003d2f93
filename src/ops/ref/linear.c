/* y[t, o] = sum over i of W[o, i] x[t, i] + bias[o], or y[t, o] += that when `add` is set */
#include "ops/ref/ref.h"

void um_ref_linear(um_dev *dev, const um_weight *w, const float *bias, const float *x, int32_t n_tokens, bool add,
                   float *y) {
    for (int32_t t = 0; t < n_tokens; t++, x += w->in, y += w->rows) {
        const float *operand = um_ref_left(dev, w, x);
        for (int32_t o = 0; o < w->rows; o++) {
            float sum = um_ref_dot(w->data + (size_t)o * (size_t)w->in, operand, w->in);
            if (bias) sum += bias[o];
            y[o] = add ? y[o] + sum : sum;
        }
    }
}
