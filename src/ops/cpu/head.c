/* The head: the product with the vocabulary, fused with the reduction to answers.
 *
 * A task computes the logits of a tile of UM_HEAD_TILE ids for all rows of a group. Most rows are reduced at once: only
 * their partial answers are stored, and they are merged in the order of the tiles. All logits are stored for a row with
 * a filter, whose likeliest ids are wanted, or from which a blend is made. A group has at most UM_WHOLE_ROWS such rows.
 *
 * A blend is a sum over the whole vocabulary. A task computes some of its columns for all rows of a group, so the
 * embedding is read once for the group. Without tiles, sums of ids at a distance of UM_BLEND_LANES are added in the
 * end.
 *
 * In a group of ranks the products with the vocabulary are computed before, and the tasks read them. */
#include <math.h>

#include "ops/cpu/dev.h"
#include "ops/panels.h"
#include "ops/quantize.h"

enum { TILE_PANELS = UM_HEAD_TILE / UM_PANEL };

typedef struct head_job {
    um_dev *dev;
    const um_head *a;
    const um_product *p;
    um_left x;
    const um_row *row; /* [n] the rows of the group */
    um_answer *answer; /* [n] */
    int32_t n, n_tiles;
    float *whole[UM_HEAD_ROWS]; /* [n] all logits of the row, in dev->logit; NULL: not stored */
} head_job;

/* Returns the memory for a row's logits of a tile, [UM_HEAD_TILE]. */
static float *tile_logits(const head_job *j, um_thread *t, int32_t tile, int32_t row) {
    return j->whole[row] ? j->whole[row] + (size_t)tile * UM_HEAD_TILE : t->z + row * UM_HEAD_TILE;
}

/* Copies the products that were computed before. */
static void take_logits(const head_job *j, um_thread *t, int32_t tile) {
    const um_head *a = j->a;
    const int32_t first = tile * UM_HEAD_TILE, n = UM_MIN(a->vocab - first, UM_HEAD_TILE);
    for (int32_t row = 0; row < j->n; row++) {
        float *z = tile_logits(j, t, tile, row);
        const size_t at = (size_t)(j->row + row - a->row) * (size_t)a->vocab + (size_t)first;
        memset(z, 0, UM_HEAD_TILE * sizeof *z);
        memcpy(z, a->logits + at, (size_t)n * sizeof *z);
        j->dev->k->scale_to(z, a->scale, UM_HEAD_TILE, z);
        if (a->cap > 0) j->dev->k->cap(z, a->cap, UM_HEAD_TILE);
        for (int32_t i = n; i < UM_HEAD_TILE; i++) z[i] = -INFINITY;
    }
}

static void compute_logits(const head_job *j, um_thread *t, int32_t tile) {
    const um_head *a = j->a;
    int32_t first = tile * UM_HEAD_TILE;
    int n_panels = UM_MIN(UM_CEIL_DIV(a->vocab - first, UM_PANEL), TILE_PANELS);
    um_product_begin(j->p);
    um_product_panels(j->p, a->w, first / UM_PANEL, n_panels, j->x, t->acc);
    um_product_end(j->p);
    for (int32_t row = 0; row < j->n; row++) {
        float *z = tile_logits(j, t, tile, row);
        for (int i = 0; i < n_panels; i++)
            j->dev->k->scale_to(t->acc + (i * j->n + row) * UM_PANEL, a->scale, UM_PANEL, z + i * UM_PANEL);
        if (a->cap > 0) j->dev->k->cap(z, a->cap, n_panels * UM_PANEL);
        for (int32_t i = UM_MIN(a->vocab - first, UM_HEAD_TILE); i < UM_HEAD_TILE; i++) z[i] = -INFINITY;
    }
}

static void tile_task(void *arg, int tile, int thread) {
    const head_job *j = (const head_job *)arg;
    um_thread *t = &j->dev->thread[thread];
    int32_t first = tile * UM_HEAD_TILE;
    if (j->a->logits) take_logits(j, t, tile);
    else compute_logits(j, t, tile);
    for (int32_t row = 0; row < j->n; row++) {
        const um_row *r = &j->row[row];
        float *z = tile_logits(j, t, tile, row);
        um_logits_edit(r, first, UM_MIN(UM_HEAD_TILE, j->a->vocab - first), z);
        if (j->whole[row]) continue;
        um_partial *p = &j->dev->partial[(size_t)tile * UM_HEAD_ROWS + (size_t)row];
        *p = um_partial_of(j->dev, t, r, UM_KEPT_ALL, first, z);
    }
}

/* Merges the partial answers of a row. */
static void merge_partials(const head_job *j, int row) {
    const um_row *r = &j->row[row];
    um_partial p = um_partial_none();
    for (int32_t tile = 0; tile < j->n_tiles; tile++)
        p = um_partial_merge(p, j->dev->partial[(size_t)tile * UM_HEAD_ROWS + (size_t)row], r->how.temperature);
    j->answer[row] = um_partial_answer(r, UM_KEPT_ALL, &p);
}

/* Filters and reduces a row whose logits are stored. */
static void reduce_whole(const head_job *j, um_thread *t, int row) {
    const um_row *r = &j->row[row];
    const float *z = j->whole[row];
    int32_t n = j->n_tiles * UM_HEAD_TILE;
    float max = j->dev->k->max(z, n);
    um_kept_ids cut = max == -INFINITY ? UM_KEPT_ALL : um_filter(j->dev, t, &r->how, z, n, max);
    um_partial p = um_partial_none();
    for (int32_t tile = 0; tile < n; tile += UM_HEAD_TILE)
        p = um_partial_merge(p, um_partial_of(j->dev, t, r, cut, tile, z + tile), r->how.temperature);
    j->answer[row] = um_partial_answer(r, cut, &p);
    if (r->n_top > 0) um_find_top(j->dev->k, r, cut, &p, z, n);
}

static void answer_task(void *arg, int row, int thread) {
    const head_job *j = (const head_job *)arg;
    if (j->whole[row]) reduce_whole(j, &j->dev->thread[thread], row);
    else merge_partials(j, row);
}

/* Computes the weighted sum of the hidden rows of a row into dev->mix. */
static void mix_task(void *arg, int row, int thread) {
    (void)thread;
    const head_job *j = (const head_job *)arg;
    const um_head *a = j->a;
    size_t h = (size_t)a->hidden_size;
    const um_row *r = &j->row[row];
    float *to = j->dev->mix + (size_t)row * h;
    for (int k = 0; k < 2; k++) {
        if (k == 1 && r->w[1] == 0) break;
        int64_t src = r->src[k];
        const float *x = src >= 0 ? a->hidden + (size_t)src * h : a->saved + (size_t)(-1 - src) * h;
        for (size_t i = 0; i < h; i++) to[i] = k == 0 ? r->w[0] * x[i] : to[i] + r->w[1] * x[i];
    }
}

static bool needs_whole(const um_row *r) { return um_has_filter(&r->how) || r->n_top > 0 || r->blend; }

/* ---- Blends ---- */

/* Columns of a task, without and with tiles; panels that stay in the cache. */
enum { BLEND_COLUMNS = 32, BLEND_WIDE = 128, BLEND_PANELS = 64 };
_Static_assert(UM_TILE_ROWS *BLEND_WIDE <= UM_HEAD_ROWS * UM_HEAD_TILE && (int)UM_WHOLE_ROWS <= (int)UM_TILE_ROWS,
               "the sums of a task of tiles fit, too");
_Static_assert(UM_WHOLE_ROWS *BLEND_COLUMNS *UM_BLEND_LANES <= UM_HEAD_ROWS * UM_HEAD_TILE,
               "the sums of a task fit into the logits of a tile");
_Static_assert(BLEND_COLUMNS % UM_QUANT_GROUP == 0, "a task has whole groups of quantised embeddings");
/* Smaller probabilities are left out: those of a million ids together change a blend by less than a rounding. */
#define BLEND_LEAST 1e-13f

/* The blends of a group: the rows that have one, and the panels of the embedding that any of them needs. */
typedef struct blend_job {
    const head_job *head;
    const float *weight[UM_WHOLE_ROWS]; /* [n] weights of all ids */
    float *to[UM_WHOLE_ROWS];           /* [n] the blends */
    int n, n_panels;
    int n_columns;        /* of a task: BLEND_WIDE for tiles */
    const int32_t *panel; /* [n_panels] ascending */
} blend_job;

/* Replaces the logits of a row by the weights of its blend. */
static void weigh_task(void *arg, int row, int thread) {
    const head_job *j = (const head_job *)arg;
    const um_row *r = &j->row[row];
    float *z = j->whole[row];
    const int32_t n = j->n_tiles * UM_HEAD_TILE;
    (void)thread;
    if (!r->blend) return;
    const float max = j->dev->k->max(z, n);
    double sum = 0;
    if (max == -INFINITY) memset(z, 0, (size_t)n * sizeof *z);
    else j->dev->k->exps(z, n, max, r->how.temperature > 0 ? 1 / r->how.temperature : 1, z);
    for (int32_t v = 0; v < n; v += UM_HEAD_TILE) sum += (double)j->dev->k->sum(z + v, UM_HEAD_TILE);
    const float by = sum > 0 ? (float)(1 / sum) : 0;
    for (int32_t v = 0; v < n; v++) {
        const float p = z[v] * by;
        z[v] = p < BLEND_LEAST ? 0 : j->dev->config.dtype == UM_BF16 ? um_bf16_to_f32(um_f32_to_bf16(p)) : p;
    }
}

/* Computes columns of the blends from the panels of dense embeddings. */
static void blend_dense(const blend_job *b, int32_t first, int32_t n, float *sums) {
    const um_weight *w = b->head->a->embed;
    const um_kernels *k = b->head->dev->k;
    const char *panels = (const char *)w->panel + um_panel_at(w->type, 0, (size_t)first) * um_dtype_size(w->type);
    const int columns = UM_CEIL_DIV(n, 2) * 2; /* bf16 columns are stored in pairs */
    memset(sums, 0, (size_t)(b->n * columns * UM_BLEND_LANES) * sizeof *sums);
    for (int i = 0; i < b->n_panels; i += BLEND_PANELS) {
        const um_blend part = {.first = panels,
                               .stride = w->panel_bytes,
                               .panel = b->panel + i,
                               .n_panels = UM_MIN(BLEND_PANELS, b->n_panels - i),
                               .weight = b->weight,
                               .n_rows = b->n,
                               .n_columns = columns,
                               .n_held = n,
                               .sums = sums};
        if (w->type == UM_F32) k->blend_f32(&part);
        else k->blend_pairs(&part);
    }
    for (int row = 0; row < b->n; row++)
        for (int32_t i = 0; i < n; i++) {
            const float *lane = sums + (row * columns + i) * UM_BLEND_LANES;
            float sum = 0;
            for (int l = 0; l < UM_BLEND_LANES; l++) sum += lane[l];
            b->to[row][first + i] = sum;
        }
}

/* Does the same with tiles. Their cost does not depend on the number of rows, but they are used for few rows too, so
 * that a row has the same bits in every group. */
static void blend_tiles(const blend_job *b, int32_t first, int32_t n, float *sums) {
    const um_weight *w = b->head->a->embed;
    const um_blend all = {.first = (const char *)w->panel + um_panel_at(w->type, 0, (size_t)first) * sizeof(uint16_t),
                          .stride = w->panel_bytes,
                          .panel = b->panel,
                          .n_panels = b->n_panels,
                          .weight = b->weight,
                          .n_rows = b->n,
                          .n_columns = n,
                          .sums = sums};
    memset(sums, 0, (size_t)(UM_TILE_ROWS * n) * sizeof *sums);
    b->head->dev->k->blend_matrix(&all);
    for (int row = 0; row < b->n; row++) memcpy(b->to[row] + first, sums + row * n, (size_t)n * sizeof *sums);
}

/* Does the same from quantised embeddings. */
static void blend_quantized(const blend_job *b, int32_t first, int32_t n) {
    const um_weight *w = b->head->a->embed;
    float part[BLEND_COLUMNS];
    for (int row = 0; row < b->n; row++) memset(b->to[row] + first, 0, (size_t)n * sizeof(float));
    for (int p = 0; p < b->n_panels; p++)
        for (int i = 0; i < UM_PANEL; i++) {
            const int32_t id = b->panel[p] * UM_PANEL + i;
            bool is_read = false;
            for (int row = 0; row < b->n; row++) {
                if (b->weight[row][id] == 0) continue;
                if (!is_read)
                    um_panel_read(w->type, w->panel + (size_t)b->panel[p] * w->panel_bytes, i, first, n, part);
                is_read = true;
                b->head->dev->k->add_scaled(part, b->weight[row][id], n, b->to[row] + first);
            }
        }
}

static void blend_task(void *arg, int task, int thread) {
    const blend_job *b = (const blend_job *)arg;
    const um_head *a = b->head->a;
    const int32_t H = a->embed->in, first = task * b->n_columns, n = UM_MIN(b->n_columns, H - first);
    if (um_is_quantized(a->embed->type)) blend_quantized(b, first, n);
    else if (b->n_columns == BLEND_WIDE) blend_tiles(b, first, n, b->head->dev->thread[thread].z);
    else blend_dense(b, first, n, b->head->dev->thread[thread].z);
    for (int row = 0; row < b->n; row++)
        for (int32_t i = 0; i < n; i++) b->to[row][first + i] *= a->embed_scale;
}

/* Lists the panels with an id that has a weight in some row. Predictions that are sure need few of them. */
static void find_panels(blend_job *b) {
    const um_dev *dev = b->head->dev;
    int32_t *list = (int32_t *)(void *)dev->thread[0].candidate; /* filters are done with it */
    for (int32_t panel = 0; panel < UM_CEIL_DIV(b->head->a->vocab, UM_PANEL); panel++) {
        int row = 0;
        while (row < b->n && dev->k->max(b->weight[row] + (size_t)panel * UM_PANEL, UM_PANEL) == 0) row++;
        if (row < b->n) list[b->n_panels++] = panel;
    }
    b->panel = list;
}

static void blend_group(head_job *j) {
    blend_job b = {.head = j};
    const um_head *a = j->a;
    for (int32_t row = 0; row < j->n; row++) {
        if (!j->row[row].blend) continue;
        b.weight[b.n] = j->whole[row];
        b.to[b.n++] = a->blend + (size_t)(j->row[row].blend - 1) * (size_t)a->embed->in;
    }
    if (!b.n) return;
    const double since = a->profile ? um_profile_enter(a->profile) : 0;
    um_cpu_run(j->dev, weigh_task, j, j->n, 20.0 * b.n * a->vocab);
    find_panels(&b);
    const bool has_tiles = j->dev->k->blend_matrix && a->embed->type == UM_BF16 && j->dev->config.dtype == UM_BF16 &&
                           a->embed->in % UM_PANEL == 0;
    b.n_columns = has_tiles ? BLEND_WIDE : BLEND_COLUMNS;
    um_cpu_run(j->dev, blend_task, &b, UM_CEIL_DIV(a->embed->in, b.n_columns),
               (double)b.n * b.n_panels * UM_PANEL * a->embed->in);
    if (a->profile) um_profile_leave(a->profile, since, "blend", b.n);
}

/* Starts a group with as many of the n rows as fit. */
static void set_group(head_job *j, const um_row *row, int32_t n) {
    int32_t n_whole = 0;
    j->row = row;
    for (j->n = 0; j->n < UM_MIN(n, UM_HEAD_ROWS); j->n++) {
        bool whole = needs_whole(&row[j->n]);
        if (whole && n_whole == UM_WHOLE_ROWS) return;
        assert(row[j->n].n_top >= 0 && row[j->n].n_top <= UM_TOP_MAX);
        j->whole[j->n] = whole ? j->dev->logit + (size_t)n_whole++ * (size_t)j->n_tiles * UM_HEAD_TILE : NULL;
    }
}

static void answer_group(head_job *j) {
    um_dev *dev = j->dev;
    int32_t h = j->a->hidden_size;
    if (!j->a->logits) {
        um_cpu_run(dev, mix_task, j, j->n, 2.0 * j->n * h);
        j->x = um_product_pack(dev, j->p, dev->mix, (size_t)h, NULL, j->n, h,
                               (um_start){j->a->w->panel, TILE_PANELS * j->a->w->panel_bytes, j->n_tiles});
    }
    um_cpu_run(dev, tile_task, j, j->n_tiles, (double)j->n * h * j->a->vocab);
    um_cpu_run(dev, answer_task, j, j->n, (double)j->n * j->n_tiles * 100);
    blend_group(j);
}

void um_cpu_head(um_dev *dev, const um_head *a) {
    assert(a->n_rows <= dev->config.max_rows && a->hidden_size <= dev->config.max_hidden);
    assert(a->vocab <= dev->config.max_vocab && a->hidden_size == a->w->in);
    assert(a->logits || a->vocab <= a->w->rows);
    head_job j = {.dev = dev, .a = a, .p = um_product_for(dev, a->w)};
    j.n_tiles = UM_CEIL_DIV(a->vocab, UM_HEAD_TILE);
    for (int32_t i = 0; i < a->n_rows; i += j.n) {
        j.answer = a->answer + i;
        set_group(&j, a->row + i, a->n_rows - i);
        answer_group(&j);
    }
}
