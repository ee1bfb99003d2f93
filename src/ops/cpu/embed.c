/* Embeddings: rows of a packed matrix, and blends of such rows. A task is one token. */
#include "ops/cpu/dev.h"

#include "ops/panels.h"

/* Computes out [n] = scale * elements [first, first + n) of row `id`, read from its panel. */
static void read_row(const um_weight *w, int32_t id, float scale, int32_t first, int32_t n, float *out) {
    assert(id >= 0 && id < w->rows);
    const unsigned char *panel = w->panel + (size_t)(id / UM_PANEL) * w->panel_bytes;
    um_panel_read(w->type, panel, id % UM_PANEL, first, n, out);
    for (int32_t i = 0; i < n && scale != 1; i++) out[i] *= scale;
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
    read_row(j->w, j->id[t], j->scale, 0, j->w->in, j->x + (size_t)t * (size_t)j->w->in);
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
        read_row(j->w, id, 1, first, n, piece);
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
