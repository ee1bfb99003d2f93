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
    int n_rows, in, n_blocks, n_tasks;
    um_start start;
} pack_job;

enum { PREFETCH_BYTES = 64 << 10, TASK_BLOCKS = 16 };

/* Packs a block of a row. */
static void pack_block(const pack_job *j, int row, int block) {
    const int step = j->p->block_words * j->p->per_word, k = block * step;
    const float *x = j->x + (size_t)(j->row ? j->row[row] : row) * j->stride;
    uint32_t *to = j->dev->x + ((size_t)block * (size_t)j->n_rows + (size_t)row) * j->p->x_stride;
    j->p->pack(x + k, 0, UM_MIN(step, j->in - k), to);
}

/* Prefetches the beginning of the panels that the thread reads after the pack. The other threads may still be packing
 * then, and memory would be idle. */
static void prefetch_start(const pack_job *j, int thread) {
    const int panel = um_share_begin(j->start.n, thread, j->dev->n_threads);
    const unsigned char *at = j->start.first + (size_t)panel * j->start.stride;
    if (panel >= j->start.n) return;
    for (size_t i = 0, n = UM_MIN(j->start.stride, (size_t)PREFETCH_BYTES); i < n; i += 64)
        __builtin_prefetch(at + i, 0, 2);
}

static void pack_task(void *arg, int task, int thread) {
    const pack_job *j = (const pack_job *)arg;
    const int64_t all = (int64_t)j->n_rows * j->n_blocks;
    const int64_t begin = all * task / j->n_tasks, end = all * (task + 1) / j->n_tasks;
    for (int64_t i = begin; i < end; i++) pack_block(j, (int)(i / j->n_blocks), (int)(i % j->n_blocks));
    if (j->start.n && j->n_tasks == j->dev->n_threads) prefetch_start(j, thread);
}

um_left um_product_pack(um_dev *dev, const um_product *p, const float *x, size_t stride, const int32_t *row, int n_rows,
                        int in, um_start start) {
    assert(n_rows <= dev->wave_rows && in <= um_widest_in(&dev->config));
    pack_job j = {dev, p, x, stride, row, n_rows, in, .start = start};
    j.n_blocks = UM_CEIL_DIV(in, p->block_words * p->per_word);
    j.n_tasks = UM_MAX(n_rows * j.n_blocks / TASK_BLOCKS / dev->n_threads, 1) * dev->n_threads;
    um_cpu_run(dev, pack_task, &j, j.n_tasks, 2.0 * n_rows * in);
    return (um_left){dev->x, p->x_stride, (size_t)n_rows * p->x_stride, n_rows};
}

/* The distance at which a whole panel prefetches itself and the next one. 4 KB is too near, a panel 3 % slower. */
enum { AHEAD_BYTES = 16 << 10 };

/* With fewer rows than a tile, the instructions for bytes are faster. */
static bool uses_matrix_quant(const um_product *p, int n_rows) {
    return p->matrix_quant && n_rows >= UM_QUANT_TILE_LEAST;
}

/* The location of the sums: those of the first row and panel, and the distances to the next row and panel in floats. */
typedef struct sums {
    float *at;
    size_t row, panel;
} sums;

/* Multiplies n_words words of one panel by all rows: a block, or with matrix_quant any number of blocks. `next` is the
 * part of a panel that is multiplied afterwards. */
static void multiply_part(const um_product *p, const unsigned char *w, const unsigned char *next, um_left x,
                          int n_words, float *acc, size_t stride, bool first) {
    if (p->matrix) {
        p->matrix(w, next, x.x, n_words, x.n_rows, acc, stride, first);
        return;
    }
    if (uses_matrix_quant(p, x.n_rows)) {
        const unsigned char *ahead = n_words > p->block_words ? w + UM_MIN(AHEAD_BYTES, next - w) : next;
        p->matrix_quant(w, ahead, x.x, x.block_stride, n_words, x.n_rows, acc, first);
        return;
    }
    int n_tiles = UM_CEIL_DIV(x.n_rows, p->tile_rows);
    for (int tile = 0, row = 0; tile < n_tiles; tile++) { /* rows are split evenly, never padded */
        int n = x.n_rows / n_tiles + (tile < x.n_rows % n_tiles);
        p->tile(w, x.x + (size_t)row * p->x_stride, n_words, n, acc + row * UM_PANEL, first);
        row += n;
    }
}

/* Multiplies panels part by part. A part is a block, which several panels read in turn. A single panel is one part for
 * matrix_quant, whose start and end cost time. */
static void multiply(const um_product *p, const um_weight *w, int panel, int n_panels, um_left x, bool add, sums to) {
    const int words = um_product_words(p, w->in);
    const int part = n_panels == 1 && uses_matrix_quant(p, x.n_rows) ? words : p->block_words;
    const unsigned char *block = w->panel + (size_t)panel * w->panel_bytes;
    for (int at = 0; at < words; at += part) {
        const int n_words = UM_MIN(part, words - at);
        const size_t bytes = (size_t)n_words * p->bytes_per_word;
        const unsigned char *now = block;
        for (int i = 0; i < n_panels; i++, now += w->panel_bytes) {
            const bool is_last = i + 1 == n_panels, ends = at + n_words == words;
            const unsigned char *next = !is_last ? now + w->panel_bytes : ends ? now + bytes : block + bytes;
            multiply_part(p, now, next, x, n_words, to.at + (size_t)i * to.panel, to.row, at == 0 && !add);
        }
        block += bytes;
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
