/* Multiplies panels by a left operand, block by block along k. A block of the operand and of a panel fit into the
 * first-level cache, so all row tiles of a block are multiplied before the next block is read. The sum of an element is
 * stored in memory between blocks and continues in the order of k, so the division into blocks changes no bit. */
#include "ops/cpu/dev.h"

int um_product_words(const um_product *p, int k) {
    int words = UM_CEIL_DIV(k, p->per_word);
    return UM_CEIL_DIV(words, p->step) * p->step;
}

typedef struct pack_job {
    um_dev *dev;
    const um_product *p;
    const float *x;
    size_t stride;
    const int32_t *row;
    int n_rows, in;
} pack_job;

enum { TASK_ROWS = 8 };

/* Packs all blocks of one row. */
static void pack_row(const pack_job *j, int row) {
    int step = j->p->block_words * j->p->per_word;
    const float *x = j->x + (size_t)(j->row ? j->row[row] : row) * j->stride;
    uint32_t *to = j->dev->x + (size_t)row * j->p->x_stride;
    for (int k = 0; k < j->in; k += step, to += (size_t)j->n_rows * j->p->x_stride)
        j->p->pack(x + k, UM_MIN(step, j->in - k), to);
}

static void pack_task(void *arg, int task, int thread) {
    (void)thread;
    const pack_job *j = (const pack_job *)arg;
    int end = UM_MIN((task + 1) * TASK_ROWS, j->n_rows);
    for (int row = task * TASK_ROWS; row < end; row++) pack_row(j, row);
}

um_left um_product_pack(um_dev *dev, const um_product *p, const float *x, size_t stride, const int32_t *row, int n_rows,
                        int in) {
    assert(n_rows <= dev->wave_rows && in <= um_widest_in(&dev->config));
    pack_job j = {dev, p, x, stride, row, n_rows, in};
    um_cpu_run(dev, pack_task, &j, UM_CEIL_DIV(n_rows, TASK_ROWS), (double)n_rows * in / 4);
    return (um_left){dev->x, p->x_stride, (size_t)n_rows * p->x_stride, n_rows};
}

/* The location of the sums: those of the first row and panel, and the distances to the next row and panel in floats. */
typedef struct sums {
    float *at;
    size_t row, panel;
} sums;

/* Multiplies one block of one panel by all rows. */
static void multiply_block(const um_product *p, const unsigned char *w, const uint32_t *x, int n_words, int n_rows,
                           float *acc, size_t stride, bool first) {
    if (p->matrix) {
        p->matrix(w, x, n_words, n_rows, acc, stride, first);
        return;
    }
    int n_tiles = UM_CEIL_DIV(n_rows, p->tile_rows);
    for (int tile = 0, row = 0; tile < n_tiles; tile++) { /* rows are split evenly, never padded */
        int n = n_rows / n_tiles + (tile < n_rows % n_tiles);
        p->tile(w, x + (size_t)row * p->x_stride, n_words, n, acc + row * UM_PANEL, first);
        row += n;
    }
}

static void multiply(const um_product *p, const um_weight *w, int panel, int n_panels, um_left x, bool add, sums to) {
    int words = um_product_words(p, w->in);
    const unsigned char *block = w->panel + (size_t)panel * w->panel_bytes;
    for (int at = 0; at < words; at += p->block_words) {
        int n_words = UM_MIN(p->block_words, words - at);
        for (int i = 0; i < n_panels; i++)
            multiply_block(p, block + (size_t)i * w->panel_bytes, x.x, n_words, x.n_rows, to.at + (size_t)i * to.panel,
                           to.row, at == 0 && !add);
        block += (size_t)n_words * p->bytes_per_word;
        x.x += x.block_stride;
    }
}

void um_product_panels(const um_product *p, const um_weight *w, int panel, int n_panels, um_left x, float *acc) {
    assert(n_panels * x.n_rows <= UM_ACC_ROWS);
    multiply(p, w, panel, n_panels, x, false, (sums){acc, UM_PANEL, (size_t)x.n_rows * UM_PANEL});
}

void um_product_columns(const um_product *p, const um_weight *w, int panel, int n_panels, um_left x, bool add, float *y,
                        size_t stride) {
    assert(p->matrix && (panel + n_panels) * UM_PANEL <= w->rows);
    multiply(p, w, panel, n_panels, x, add, (sums){y, stride, UM_PANEL});
}
