/* Per-head norms, and rotation of queries and keys; then writes keys and values to their slots. */
#include <math.h>

#include "ops/ref/ref.h"

/* x = x * rsqrt(mean(x^2) + eps) * w, over one head. */
static void norm_head(float *x, const float *w, float eps, int32_t d) {
    float r = 1 / sqrtf(um_ref_dot(x, x, d) / (float)d + eps);
    for (int32_t i = 0; i < d; i++) x[i] = x[i] * r * w[i];
}

/* Half-split rotation: [x1 | x2] becomes [x1 cos - x2 sin | x2 cos + x1 sin]. Dims from rope_dim on don't change. */
static void rotate_head(float *x, const float *cos, const float *sin, int32_t rope_dim) {
    int32_t half = rope_dim / 2;
    for (int32_t i = 0; i < half; i++) {
        float a = x[i], b = x[half + i];
        x[i] = a * cos[i] - b * sin[i];
        x[half + i] = b * cos[i] + a * sin[i];
    }
}

static void clamp(float *x, size_t n, float limit) {
    for (size_t i = 0; i < n; i++) x[i] = UM_MIN(UM_MAX(x[i], -limit), limit);
}

/* Stores the vector of one head, rounded to the type. */
static void store(float *to, const float *from, size_t d, um_dtype type) {
    float scale = type == UM_F8 ? um_f8_scale(from, d) : 1;
    for (size_t i = 0; i < d; i++) {
        if (type == UM_F32) to[i] = from[i];
        else if (type == UM_BF16) to[i] = um_bf16_to_f32(um_f32_to_bf16(from[i]));
        else to[i] = um_f8_to_f32(um_f8_code(from[i], scale)) * scale;
    }
}

void um_ref_rope_kv(um_dev *dev, um_kv *kv, const um_rope_kv *a) {
    (void)dev;
    int32_t d = a->head_dim, half = a->rope_dim / 2;
    size_t kv_width = (size_t)a->n_kv_heads * (size_t)d, q_width = (size_t)a->n_heads * (size_t)d;
    for (int32_t t = 0; t < a->n_tokens; t++) {
        float *row = a->qkv + (size_t)t * (q_width + 2 * kv_width);
        const float *cos = a->cos + (size_t)a->pos[t] * (size_t)half, *sin = a->sin + (size_t)a->pos[t] * (size_t)half;
        for (int32_t h = 0; h < a->n_heads + a->n_kv_heads; h++) {
            const float *w = h < a->n_heads ? a->q_norm : a->k_norm;
            if (w) norm_head(row + (size_t)h * (size_t)d, w, a->eps, d);
        }
        for (int32_t h = 0; a->v_norm && h < a->n_kv_heads; h++)
            norm_head(row + q_width + kv_width + (size_t)h * (size_t)d, a->v_norm, a->eps, d);
        if (a->clip > 0) clamp(row, q_width + 2 * kv_width, a->clip);
        for (int32_t h = 0; h < a->n_heads + a->n_kv_heads; h++)
            rotate_head(row + (size_t)h * (size_t)d, cos, sin, a->rope_dim);
        for (size_t i = 0; a->query && i < q_width; i++) row[i] *= a->query[a->pos[t]];
        if (a->slot[t] < 0) continue;
        size_t at = um_ref_kv_at(kv, a->layer, a->slot[t]);
        for (size_t i = 0; i < kv_width; i += (size_t)d) {
            store(kv->key + at + i, row + q_width + i, (size_t)d, kv->shape.type);
            store(kv->value + at + i, row + q_width + kv_width + i, (size_t)d, kv->shape.type);
        }
    }
}
