/* x[t] = scale * W[id[t]], or scale times a blend of rows of W. */
#include <math.h>

#include "ops/ref/ref.h"

static const float *row_of(const um_weight *w, int32_t id) {
    assert(id >= 0 && id < w->rows);
    return w->data + (size_t)id * (size_t)w->in;
}

void um_ref_embed(um_dev *dev, const um_weight *w, const int32_t *id, int32_t n_tokens, float scale, float *x) {
    (void)dev;
    for (int32_t t = 0; t < n_tokens; t++) {
        const float *row = row_of(w, id[t]);
        for (int32_t i = 0; i < w->in; i++) x[(size_t)t * (size_t)w->in + (size_t)i] = scale * row[i];
    }
}

static float length(const float *x, int32_t n) { return sqrtf(um_ref_dot(x, x, n)); }

/* x = scale * s with s = sum over i of w[i] * E[id[i]]. When renormalized, s is first scaled to the length
 * sum over i of w[i] * |E[id[i]]|; it stays zero when s is zero. */
static void blend(const um_weight *w, const um_soft *soft, float scale, float *x) {
    float target = 0;
    for (int32_t i = 0; i < w->in; i++) x[i] = 0;
    for (int32_t k = 0; k < soft->n; k++) {
        const float *row = row_of(w, soft->id[k]);
        for (int32_t i = 0; i < w->in; i++) x[i] += soft->w[k] * row[i];
        target += soft->w[k] * length(row, w->in);
    }
    float by = soft->renormalize ? target / fmaxf(length(x, w->in), 1e-12f) : 1;
    for (int32_t i = 0; i < w->in; i++) x[i] *= scale * by;
}

void um_ref_embed_soft(um_dev *dev, const um_weight *w, const um_soft *soft, int32_t n_soft, float scale, float *x) {
    (void)dev;
    for (int32_t i = 0; i < n_soft; i++) {
        assert(soft[i].at >= 0 && (i == 0 || soft[i - 1].at < soft[i].at));
        blend(w, &soft[i], scale, x + (size_t)soft[i].at * (size_t)w->in);
    }
}
