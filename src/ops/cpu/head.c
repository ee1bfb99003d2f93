/* The head: the product with the vocabulary, fused with what rows want of it. A task computes the logits of a tile of
 * UM_HEAD_TILE ids for all rows of a group. Without a filter it reduces them at once; only the partial answers stay,
 * and merge in order of the tiles. Rows with a filter come in smaller groups whose logits are kept. */
#include <math.h>

#include "ops/cpu/dev.h"

typedef struct head_job {
    um_dev *dev;
    const um_head *a;
    const um_product *p;
    um_left x;
    const int32_t *row; /* [n] index of each row of the group */
    int32_t n, n_tiles;
    bool keeps; /* logits go to dev->logit */
} head_job;

static float *kept_logits(const head_job *j, int32_t row) {
    return j->dev->logit + (size_t)row * (size_t)j->n_tiles * UM_HEAD_TILE;
}

/* Where the tile's logits of a row are computed: [UM_HEAD_TILE]. */
static float *tile_logits(const head_job *j, um_thread *t, int32_t tile, int32_t row) {
    return j->keeps ? kept_logits(j, row) + (size_t)tile * UM_HEAD_TILE : t->z + row * UM_HEAD_TILE;
}

static void compute_logits(const head_job *j, um_thread *t, int32_t tile) {
    enum { PANELS = UM_HEAD_TILE / UM_PANEL };
    const um_head *a = j->a;
    int32_t first = tile * UM_HEAD_TILE;
    int n_panels = UM_MIN(UM_CEIL_DIV(a->vocab - first, UM_PANEL), PANELS);
    um_product_panels(j->dev, j->p, a->w, first / UM_PANEL, n_panels, j->x, t->acc);
    for (int32_t row = 0; row < j->n; row++) {
        float *z = tile_logits(j, t, tile, row);
        for (int i = 0; i < n_panels; i++)
            j->dev->k->scale_to(t->acc + (i * j->n + row) * UM_PANEL, a->scale, UM_PANEL, z + i * UM_PANEL);
        for (int32_t i = UM_MIN(a->vocab - first, UM_HEAD_TILE); i < UM_HEAD_TILE; i++) z[i] = -INFINITY;
    }
}

static void tile_task(void *arg, int tile, int thread) {
    const head_job *j = (const head_job *)arg;
    um_thread *t = &j->dev->thread[thread];
    int32_t first = tile * UM_HEAD_TILE;
    compute_logits(j, t, tile);
    for (int32_t row = 0; row < j->n; row++) {
        const um_row *r = &j->a->row[j->row[row]];
        float *z = tile_logits(j, t, tile, row);
        um_logits_edit(r, first, UM_MIN(UM_HEAD_TILE, j->a->vocab - first), z);
        if (j->keeps) continue;
        um_partial *p = &j->dev->partial[(size_t)tile * UM_HEAD_ROWS + (size_t)row];
        *p = um_partial_of(j->dev, t, r, UM_CUT_NONE, first, z);
    }
}

/* Merges the partial answers of a row without a filter. */
static void merge_task(void *arg, int row, int thread) {
    (void)thread;
    const head_job *j = (const head_job *)arg;
    const um_row *r = &j->a->row[j->row[row]];
    um_partial p = um_partial_none();
    for (int32_t tile = 0; tile < j->n_tiles; tile++)
        p = um_partial_merge(p, j->dev->partial[(size_t)tile * UM_HEAD_ROWS + (size_t)row], r->how.temperature);
    j->a->answer[j->row[row]] = um_partial_answer(r, UM_CUT_NONE, &p);
}

/* Filters and reduces the kept logits of a row. */
static void filter_task(void *arg, int row, int thread) {
    const head_job *j = (const head_job *)arg;
    const um_row *r = &j->a->row[j->row[row]];
    um_thread *t = &j->dev->thread[thread];
    const float *z = kept_logits(j, row);
    int32_t n = j->n_tiles * UM_HEAD_TILE;
    float max = j->dev->k->max(z, n);
    um_cut cut = max == -INFINITY ? UM_CUT_NONE : um_filter(j->dev, t, &r->how, z, n, max);
    um_partial p = um_partial_none();
    for (int32_t tile = 0; tile < n; tile += UM_HEAD_TILE)
        p = um_partial_merge(p, um_partial_of(j->dev, t, r, cut, tile, z + tile), r->how.temperature);
    j->a->answer[j->row[row]] = um_partial_answer(r, cut, &p);
}

/* Weighted sums of hidden rows, into dev->mix. */
static void mix_rows(const head_job *j) {
    const um_head *a = j->a;
    size_t h = (size_t)a->hidden_size;
    for (int32_t row = 0; row < j->n; row++) {
        const um_row *r = &a->row[j->row[row]];
        float *to = j->dev->mix + (size_t)row * h;
        for (int k = 0; k < 2; k++) {
            if (k == 1 && r->w[1] == 0) break;
            int64_t src = r->src[k];
            const float *x = src >= 0 ? a->hidden + (size_t)src * h : a->saved + (size_t)(-1 - src) * h;
            for (size_t i = 0; i < h; i++) to[i] = k == 0 ? r->w[0] * x[i] : to[i] + r->w[1] * x[i];
        }
    }
}

static void answer_group(head_job *j) {
    um_dev *dev = j->dev;
    int32_t h = j->a->hidden_size;
    mix_rows(j);
    j->x = um_product_pack(dev, j->p, dev->mix, (size_t)h, NULL, j->n, h);
    um_cpu_run(dev, tile_task, j, j->n_tiles, (double)j->n * h * j->a->vocab);
    um_cpu_run(dev, j->keeps ? filter_task : merge_task, j, j->n, (double)j->n * j->n_tiles * 100);
}

static void answer_rows(head_job *j, const int32_t *row, int32_t n, bool filtered) {
    int32_t group = filtered ? UM_FILTERED_ROWS : UM_HEAD_ROWS;
    j->keeps = filtered;
    for (int32_t i = 0; i < n; i += group) {
        j->row = row + i;
        j->n = UM_MIN(group, n - i);
        answer_group(j);
    }
}

void um_cpu_head(um_dev *dev, const um_head *a) {
    assert(a->n_rows <= dev->config.max_rows && a->hidden_size <= dev->config.max_hidden);
    assert(a->vocab <= dev->config.max_vocab && a->vocab <= a->w->rows && a->hidden_size == a->w->in);
    int32_t n_plain = 0, n_filtered = 0;
    for (int32_t i = 0; i < a->n_rows; i++) /* plain rows from the front, filtered rows from the back */
        dev->row_of[um_has_filter(&a->row[i].how) ? a->n_rows - ++n_filtered : n_plain++] = i;
    head_job j = {.dev = dev, .a = a, .p = um_product_for(dev, a->w)};
    j.n_tiles = UM_CEIL_DIV(a->vocab, UM_HEAD_TILE);
    answer_rows(&j, dev->row_of, n_plain, false);
    answer_rows(&j, dev->row_of + n_plain, n_filtered, true);
}
