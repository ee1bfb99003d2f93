/* x[t] = scale * W[id[t]] */
#include "ops/ref/ref.h"

void um_ref_embed(um_dev *dev, const um_weight *w, const int32_t *id, int32_t n_tokens, float scale, float *x) {
    (void)dev;
    for (int32_t t = 0; t < n_tokens; t++) {
        assert(id[t] >= 0 && id[t] < w->rows);
        const float *row = w->data + (size_t)id[t] * (size_t)w->in;
        for (int32_t i = 0; i < w->in; i++) x[(size_t)t * (size_t)w->in + (size_t)i] = scale * row[i];
    }
}
