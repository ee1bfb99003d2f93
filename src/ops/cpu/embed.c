/* Embeddings: rows of a packed matrix, and blends of such rows. A task is one token. */
#include "ops/cpu/dev.h"

#include "ops/quantize.h"

/* Returns element (r, k) of a q8 or q4 panel. */
static float quantized_element(um_dtype type, const unsigned char *panel, int r, int k) {
    const unsigned char *group = panel + (size_t)(k / UM_QUANT_GROUP) * um_quant_panel_bytes(type);
    const int byte = group[um_quant_at(type, r, k % UM_QUANT_GROUP)];
    const int q = type == UM_Q8 ? byte - 128 : (byte >> (r < UM_PANEL / 2 ? 0 : 4) & 15) - 8;
    return um_f16_to_f32(um_quant_scales(type, group)[r]) * (float)q;
}

static float element(const um_weight *w, const unsigned char *panel, size_t r, size_t k) {
    if (um_is_quantized(w->type)) return quantized_element(w->type, panel, (int)r, (int)k);
    const size_t at = um_panel_at(w->type, r, k);
    return w->type == UM_F32 ? ((const float *)panel)[at] : um_bf16_to_f32(((const uint16_t *)panel)[at]);
}

/* Computes out [n] = scale * elements [first, first + n) of row `id`, read from its panel. */
static void read_row(const um_weight *w, int32_t id, float scale, size_t first, size_t n, float *out) {
    assert(id >= 0 && id < w->rows);
    const unsigned char *panel = w->panel + (size_t)(id / UM_PANEL) * w->panel_bytes;
    size_t r = (size_t)(id % UM_PANEL);
    for (size_t k = first; k < first + n; k++) out[k - first] = scale * element(w, panel, r, k);
}

typedef struct embed_job {
    const um_weight *w;
    const int32_t *id;
    float scale;
    float *x;
} embed_job;

static void embed_token(void *arg, int t, int thread) {
    (void)thread;
    const embed_job *j = (const embed_job *)arg;
    size_t in = (size_t)j->w->in;
    read_row(j->w, j->id[t], j->scale, 0, in, j->x + (size_t)t * in);
}

void um_cpu_embed(um_dev *dev, const um_weight *w, const int32_t *id, int32_t n_tokens, float scale, float *x) {
    embed_job j = {w, id, scale, x};
    um_cpu_run(dev, embed_token, &j, n_tokens, (double)n_tokens * w->in * 4);
}

typedef struct soft_job {
    const um_kernels *k;
    const um_weight *w;
    const um_soft *soft;
    float scale;
    float *x;
} soft_job;

/* Adds `by` times row `id` to x and returns the length of the row. */
static float add_row(const soft_job *j, int32_t id, float by, float *x) {
    enum { PIECE = 1024 };
    float piece[PIECE], squares = 0;
    for (int32_t first = 0; first < j->w->in; first += PIECE) {
        int32_t n = UM_MIN(j->w->in - first, PIECE);
        read_row(j->w, id, 1, (size_t)first, (size_t)n, piece);
        j->k->add_scaled(piece, by, n, x + first);
        squares += j->k->sum_squares(piece, 0, n);
    }
    return sqrtf(squares);
}

static void blend_token(void *arg, int task, int thread) {
    (void)thread;
    const soft_job *j = (const soft_job *)arg;
    const um_soft *soft = &j->soft[task];
    int32_t in = j->w->in;
    float *x = j->x + (size_t)soft->at * (size_t)in, target = 0, by = j->scale;
    memset(x, 0, (size_t)in * sizeof *x);
    for (int32_t i = 0; i < soft->n; i++) target += soft->w[i] * add_row(j, soft->id[i], soft->w[i], x);
    if (soft->renormalize) by *= target / fmaxf(sqrtf(j->k->sum_squares(x, 0, in)), 1e-12f);
    for (int32_t k = 0; k < in; k++) x[k] *= by;
}

void um_cpu_embed_soft(um_dev *dev, const um_weight *w, const um_soft *soft, int32_t n_soft, float scale, float *x) {
    soft_job j = {dev->k, w, soft, scale, x};
    double n = 0;
    for (int32_t i = 0; i < n_soft; i++) n += soft[i].n;
    um_cpu_run(dev, blend_token, &j, n_soft, n * w->in * 4);
}
