/* Attention over paged keys.
 *
 * A block is one span, one KV head and some queries: tokens of the span times the query heads that share the KV head. A
 * task reads the keys of a block once, in groups of UM_GROUP_KEYS, with one step of an online softmax for each group.
 * Groups consist of KV units, which the products read one after another.
 *
 * The sums of UM_SEGMENT_KEYS keys are computed on their own and merged in the order of the keys. So segments can be
 * computed by different threads: few queries of a long context still fill all threads. Groups and segments start at
 * fixed multiples of the visibility index, and a group or segment in which a query sees no key leaves the query's sums
 * bit-identical. So results depend neither on the queries that share a block, nor on the number of threads. */
#include <math.h>

#include "ops/cpu/dev.h"

#define LOG2_E 1.44269504f

enum { ROW_TILES_MAX = UM_QUERY_ROWS / 6 };

_Static_assert(UM_KEY_GROUP % (int)UM_SEGMENT_KEYS == 0,
               "keys that move by a multiple of UM_KEY_GROUP keep their place in a segment");

typedef struct attention_job {
    um_dev *dev;
    const um_kv *kv;
    const um_attention *a;
    const um_product *p;
    int group;      /* query heads of a KV head */
    int block_rows; /* largest number of queries of a block */
    int n_blocks;
    /* When threads share the keys of a block: a round computes the segments [first_segment, first_segment + n_segments)
     * of all blocks. */
    int first_segment, n_segments, end_segment;
} attention_job;

/* Rows of a block that are multiplied together. */
typedef struct row_tile {
    int first, n;
    int n_multiplied; /* n, or whole tiles of a matrix unit */
    int32_t seen_end; /* the largest of the rows, at most the end of the span's keys */
} row_tile;

/* The queries of a block. */
typedef struct query_block {
    const um_span *span;
    int32_t kv_head, first, n; /* rows [first, first + n) of the span's tokens x group */
    int32_t seen_end;          /* the largest of the rows */
    int32_t seen_start;        /* the smallest of the rows */
    int n_tiles;
    row_tile tile[ROW_TILES_MAX];
} query_block;

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

static int32_t blocks_of_head(const attention_job *j, const um_span *s) {
    return UM_CEIL_DIV(s->n * j->group, j->block_rows);
}

/* Divides the queries into blocks of up to block_rows rows. */
static void count_blocks(attention_job *j, int block_rows) {
    const um_batch *b = j->a->batch;
    j->block_rows = block_rows;
    j->n_blocks = 0;
    for (int32_t i = 0; i < b->n_spans; i++) {
        j->dev->first_block[i] = j->n_blocks;
        j->n_blocks += blocks_of_head(j, &b->span[i]) * j->a->n_kv_heads;
    }
}

/* Return the token and the query head of a row of the block. */
static int32_t row_token(const attention_job *j, const query_block *q, int32_t row) {
    return q->span->first + (q->first + row) / j->group;
}

static int32_t row_head(const attention_job *j, const query_block *q, int32_t row) {
    return q->kv_head * j->group + (q->first + row) % j->group;
}

/* Divides the rows into tiles of equal size, or into whole tiles of a matrix unit. */
static void set_tiles(const attention_job *j, query_block *q, const int32_t *seen_end) {
    const bool is_matrix = j->p->matrix != NULL;
    q->n_tiles = UM_CEIL_DIV(q->n, j->p->tile_rows);
    q->seen_end = 0;
    assert(q->n_tiles <= ROW_TILES_MAX);
    for (int i = 0, row = 0; i < q->n_tiles; row += q->tile[i++].n) {
        row_tile *t = &q->tile[i];
        *t = (row_tile){row, q->n / q->n_tiles + (i < q->n % q->n_tiles), 0, 0};
        if (is_matrix) t->n = UM_MIN(UM_TILE_ROWS, q->n - row);
        t->n_multiplied = is_matrix ? UM_CEIL_DIV(t->n, UM_TILE_WORDS) * UM_TILE_WORDS : t->n;
        for (int k = 0; k < t->n; k++) t->seen_end = UM_MAX(t->seen_end, UM_MIN(seen_end[row + k], q->span->keys.end));
        q->seen_end = UM_MAX(q->seen_end, t->seen_end);
    }
}

static query_block find_block(const attention_job *j, int block) {
    const um_batch *b = j->a->batch;
    int32_t lo = 0, hi = b->n_spans; /* finds the last span whose first block is at or before this block */
    while (hi - lo > 1) {
        int32_t mid = (lo + hi) / 2;
        if (j->dev->first_block[mid] <= block) lo = mid;
        else hi = mid;
    }
    const um_span *s = &b->span[lo];
    int32_t local = block - j->dev->first_block[lo], per_head = blocks_of_head(j, s);
    query_block q = {.span = s, .kv_head = local / per_head, .first = local % per_head * j->block_rows};
    q.n = UM_MIN(j->block_rows, s->n * j->group - q.first);
    return q;
}

/* The query rows of one block of words are adjacent in memory. */
void um_query_pack(const um_product *p, um_thread *t, int row, const float *x, int d) {
    int step = UM_BLOCK_WORDS * p->per_word;
    uint32_t *to = t->query + row * UM_X_STRIDE;
    for (int i = 0; i < d; i += step, to += UM_QUERY_ROWS * UM_X_STRIDE) p->pack(x + i, UM_MIN(step, d - i), to);
}

/* Finds a block and packs its queries. */
static query_block begin_block(const attention_job *j, um_thread *t, int block) {
    query_block q = find_block(j, block);
    const um_attention *a = j->a;
    int d = a->head_dim;
    for (int32_t row = 0; row < q.n; row++) {
        int32_t token = row_token(j, &q, row);
        const float *x = a->q + (size_t)token * (size_t)a->stride + (size_t)row_head(j, &q, row) * (size_t)d;
        um_query_pack(j->p, t, row, x, d);
        t->seen_end[row] = a->batch->seen_end[token];
        t->seen_start[row] = um_seen_start(q.span, a->window, t->seen_end[row]);
        q.seen_start = row == 0 ? t->seen_start[0] : UM_MIN(q.seen_start, t->seen_start[row]);
    }
    set_tiles(j, &q, t->seen_end);
    return q;
}

/* ---- Sums -------------------------------------------------------------------------------------------------------- */

static float *sums_of_row(const um_sums *s, int panel, int row) { return s->out + (panel * s->rows + row) * UM_PANEL; }

static void clear_sums(const attention_job *j, um_sums *s, int n_rows) {
    for (int row = 0; row < n_rows; row++) s->max[row] = -INFINITY, s->sum[row] = 0;
    for (int p = 0; p < UM_CEIL_DIV(j->a->head_dim, UM_PANEL); p++)
        memset(sums_of_row(s, p, 0), 0, (size_t)n_rows * UM_PANEL * sizeof(float));
}

/* Multiplies the sums of a row whose maximum rose. */
static void rescale_row(const attention_job *j, const um_sums *s, int row, float by) {
    for (int p = 0; p < UM_CEIL_DIV(j->a->head_dim, UM_PANEL); p++)
        j->dev->k->scale_to(sums_of_row(s, p, row), by, UM_PANEL, sums_of_row(s, p, row));
}

/* Adds the sums of a segment to those of the keys before it. */
static void merge_row(const attention_job *j, um_sums *to, const um_sums *from, int row) {
    const float old = to->max[row], max = UM_MAX(old, from->max[row]);
    if (from->max[row] == -INFINITY) return; /* the row sees no key of the segment */
    const float keep = old == max ? 1 : exp2f(old - max), by = from->max[row] == max ? 1 : exp2f(from->max[row] - max);
    to->max[row] = max;
    to->sum[row] = to->sum[row] * keep + from->sum[row] * by;
    if (keep != 1) rescale_row(j, to, row, keep);
    for (int p = 0; p < UM_CEIL_DIV(j->a->head_dim, UM_PANEL); p++)
        j->dev->k->add_scaled(sums_of_row(from, p, row), by, UM_PANEL, sums_of_row(to, p, row));
}

/* Divides the sums of the rows by the sums of weights and writes them to the output. */
static void finish_rows(const attention_job *j, const query_block *q, const um_sums *s) {
    const um_attention *a = j->a;
    for (int32_t row = 0; row < q->n; row++) {
        size_t at = (size_t)row_token(j, q, row) * (size_t)a->n_heads + (size_t)row_head(j, q, row);
        float *out = a->out + at * (size_t)a->head_dim;
        const float by = s->sum[row] > 0 ? 1 / s->sum[row] : 0;
        int i = 0;
        for (; i + UM_PANEL <= a->head_dim; i += UM_PANEL)
            j->dev->k->scale_to(sums_of_row(s, i / UM_PANEL, row), by, UM_PANEL, out + i);
        for (; i < a->head_dim; i++) out[i] = sums_of_row(s, i / UM_PANEL, row)[i % UM_PANEL] * by;
    }
}

/* ---- Groups of keys ---------------------------------------------------------------------------------------------- */

/* The keys of a group that a block sees. Numbers of keys count from `base`, a multiple of UM_PANEL. */
typedef struct key_group {
    int32_t base;
    int lo, hi;  /* the keys; 0 <= lo < UM_PANEL */
    int n_units; /* units that contain seen keys */
    um_kv_tile unit[UM_GROUP_UNITS];
} key_group;

/* Multiplies a panel by n rows, at most as many as the product takes. Writes s [n, UM_PANEL]. */
void um_query_products(const um_product *p, const um_thread *t, const unsigned char *key, int d, int row, int n,
                       float *s) {
    int words = um_product_words(p, d);
    const uint32_t *x = t->query + row * UM_X_STRIDE;
    for (int at = 0; at < words; at += UM_BLOCK_WORDS, x += UM_QUERY_ROWS * UM_X_STRIDE) {
        const unsigned char *panel = key + (size_t)at * p->bytes_per_word;
        const int n_words = UM_MIN(UM_BLOCK_WORDS, words - at);
        if (p->matrix)
            p->matrix(panel, panel + (size_t)n_words * p->bytes_per_word, x, n_words, n, s, UM_PANEL, at == 0);
        else p->tile(panel, x, n_words, n, s, at == 0);
    }
}

/* Returns the range of words of a unit's values that are multiplied. Slots outside of [lo, hi) may contain anything,
 * even NaN, so they are left out. A pair that lo or hi splits is multiplied as a whole, and so is the whole unit of a
 * matrix unit; um_kv_find has put zeros in their other slots. */
static um_range seen_words(const attention_job *j, int lo, int hi) {
    if (j->p->matrix) return (um_range){0, UM_TILE_WORDS};
    int from = (j->kv->shape.type == UM_F32 ? lo : lo - lo % 2) / j->p->per_word;
    return (um_range){from, from + um_product_words(j->p, hi - from * j->p->per_word)};
}

/* Finds the keys of a range in the group that starts at `first`. */
static void find_group(const attention_job *j, um_thread *t, const query_block *q, um_range keys, int32_t first,
                       key_group *g) {
    g->base = UM_MAX(first, keys.start / UM_PANEL * UM_PANEL);
    g->lo = UM_MAX(keys.start - g->base, 0);
    g->hi = UM_MIN(keys.end, first + UM_GROUP_KEYS) - g->base;
    g->n_units = UM_CEIL_DIV(UM_MIN(g->hi, q->seen_end - g->base), UM_PANEL);
    for (int i = 0; i < g->n_units; i++)
        g->unit[i] = um_kv_find(j->dev, j->kv, t, i, j->a->layer, q->kv_head, um_span_page(q->span, j->a->window),
                                g->base + i * UM_PANEL, i == 0 ? g->lo : 0, UM_MIN(g->hi - i * UM_PANEL, UM_PANEL),
                                j->p->matrix != NULL);
}

/* Returns the number of units of the group that some row of the tile sees. */
static int units_of_tile(const row_tile *t, const key_group *g) {
    return UM_MAX(0, UM_MIN(g->n_units, UM_CEIL_DIV(t->seen_end - g->base, UM_PANEL)));
}

/* Computes the scores s [units, rows, UM_PANEL]. All rows are multiplied by a unit while it is in the cache. */
static void score(const attention_job *j, const um_thread *t, const query_block *q, const key_group *g, int rows) {
    for (int u = 0; u < g->n_units; u++)
        for (int i = 0; i < q->n_tiles; i++)
            if (u < units_of_tile(&q->tile[i], g))
                um_query_products(j->p, t, g->unit[u].key, j->a->head_dim, q->tile[i].first, q->tile[i].n_multiplied,
                                  t->acc + (u * rows + q->tile[i].first) * UM_PANEL);
}

/* Requests the values of the group, which are needed after the softmax. */
static void prefetch_values(const key_group *g, int panels) {
    for (int u = 0; u < g->n_units; u++)
        for (size_t i = 0; i < (size_t)panels * g->unit[u].value_panel_bytes; i += 64)
            __builtin_prefetch(g->unit[u].value + i, 0, 2);
}

/* Returns the first key of the group that a row may see. */
static int first_seen(const um_thread *t, const key_group *g, int row) {
    return UM_MIN(UM_MAX(g->lo, t->seen_start[row] - g->base), g->n_units * UM_PANEL);
}

/* Replaces scores by weights, and scales the sums of rows whose maximum rises. */
static void weigh(const attention_job *j, um_thread *t, const query_block *q, const key_group *g, um_sums *to) {
    float shrink[UM_QUERY_ROWS];
    int end[UM_QUERY_ROWS];
    for (int row = 0; row < q->n; row++) end[row] = UM_MIN(g->hi, t->seen_end[row] - g->base);
    for (int row = 0, n; row < q->n; row += n) {
        const int lo = first_seen(t, g, row);
        for (n = 1; row + n < q->n && first_seen(t, g, row + n) == lo;) n++;
        j->p->softmax(t->acc + row * UM_PANEL, (size_t)to->rows * UM_PANEL, n, j->a->scale * LOG2_E, lo, end + row,
                      g->n_units * UM_PANEL, g->unit[0].key_scale, g->unit[0].value_scale, to->max + row, to->sum + row,
                      shrink + row, t->weight + row * UM_X_STRIDE);
    }
    for (int row = 0; row < q->n; row++)
        if (shrink[row] != 1) rescale_row(j, to, row, shrink[row]);
}

/* Adds the products of weights and values to the sums. */
static void add_values(const attention_job *j, const um_thread *t, const query_block *q, const key_group *g,
                       um_sums *to) {
    um_piece piece[UM_GROUP_UNITS];
    for (int p = 0; p < UM_CEIL_DIV(j->a->head_dim, UM_PANEL); p++) {
        for (int u = 0; u < g->n_units; u++) {
            const um_range words = seen_words(j, u == 0 ? g->lo : 0, UM_MIN(g->hi - u * UM_PANEL, UM_PANEL));
            piece[u] = (um_piece){g->unit[u].value + (size_t)p * g->unit[u].value_panel_bytes +
                                      (size_t)words.start * j->p->bytes_per_word,
                                  u * UM_PANEL / j->p->per_word + words.start, words.end - words.start};
        }
        for (int i = 0; i < q->n_tiles; i++) {
            const row_tile *rows = &q->tile[i];
            const int n = units_of_tile(rows, g);
            if (n > 0)
                j->p->chain(piece, n, t->weight + rows->first * UM_X_STRIDE, rows->n_multiplied,
                            sums_of_row(to, p, rows->first));
        }
    }
}

/* Updates the sums of a block with the keys of a range that are in the group that starts at `first`. */
static void process_group(const attention_job *j, um_thread *t, const query_block *q, um_range keys, int32_t first,
                          um_sums *to) {
    enum { FEW_ROWS = 4 }; /* products with few rows prefetch on their own */
    key_group g;
    find_group(j, t, q, keys, first, &g);
    if (g.n_units <= 0) return; /* the range starts behind the last key that the block sees */
    score(j, t, q, &g, to->rows);
    if (q->n > FEW_ROWS) prefetch_values(&g, UM_CEIL_DIV(j->a->head_dim, UM_PANEL));
    weigh(j, t, q, &g, to);
    add_values(j, t, q, &g, to);
}

/* Computes the sums of a segment. */
static void process_segment(const attention_job *j, um_thread *t, const query_block *q, int segment, um_sums *to) {
    const int32_t first = segment * UM_SEGMENT_KEYS;
    um_range keys[2]; /* before and after the hole; a group that contains keys of both is processed twice */
    const int n_ranges = um_range_without(q->span->keys, q->span->hole, keys);
    for (int i = 0; i < n_ranges; i++) {
        keys[i].start = UM_MAX(keys[i].start, q->seen_start);
        if (keys[i].start >= keys[i].end) continue;
        const int32_t begin = UM_MAX(first, keys[i].start / UM_GROUP_KEYS * UM_GROUP_KEYS);
        const int32_t end = UM_MIN(UM_MIN(keys[i].end, q->seen_end), first + UM_SEGMENT_KEYS);
        for (int32_t group = begin; group < end; group += UM_GROUP_KEYS) process_group(j, t, q, keys[i], group, to);
    }
}

/* ---- Tasks ------------------------------------------------------------------------------------------------------- */

/* Return the first segment of a block's keys, and the segment after the last. */
static int segments_begin(const query_block *q) { return UM_MAX(q->span->keys.start, q->seen_start) / UM_SEGMENT_KEYS; }
static int segments_end(const query_block *q) {
    return UM_CEIL_DIV(UM_MIN(q->span->keys.end, q->seen_end), UM_SEGMENT_KEYS);
}

/* Computes the first segment directly as the sums of all keys: merging with no keys would not change a bit. */
static void block_task(void *arg, int block, int thread) {
    const attention_job *j = (const attention_job *)arg;
    um_thread *t = &j->dev->thread[thread];
    const query_block q = begin_block(j, t, block);
    const int begin = segments_begin(&q), end = segments_end(&q);
    um_product_begin(j->p);
    clear_sums(j, &t->sums[0], q.n);
    for (int i = begin; i < end; i++) {
        um_sums *to = &t->sums[i > begin];
        if (i > begin) clear_sums(j, to, q.n);
        process_segment(j, t, &q, i, to);
        for (int row = 0; row < q.n && i > begin; row++) merge_row(j, &t->sums[0], to, row);
    }
    um_product_end(j->p);
    finish_rows(j, &q, &t->sums[0]);
}

/* The sums of a block are followed by those of the segments of a round. */
static um_sums *parts_of(const attention_job *j, int block) { return j->dev->part + block * (j->n_segments + 1); }

static void segment_task(void *arg, int task, int thread) {
    const attention_job *j = (const attention_job *)arg;
    um_thread *t = &j->dev->thread[thread];
    const int block = task / j->n_segments, i = task % j->n_segments, segment = j->first_segment + i;
    const query_block q = begin_block(j, t, block);
    um_sums *to = &parts_of(j, block)[1 + i];
    clear_sums(j, to, q.n);
    if (segment < segments_begin(&q) || segment >= segments_end(&q)) return;
    um_product_begin(j->p);
    process_segment(j, t, &q, segment, to);
    um_product_end(j->p);
}

static void merge_task(void *arg, int block, int thread) {
    const attention_job *j = (const attention_job *)arg;
    const query_block q = begin_block(j, &j->dev->thread[thread], block);
    um_sums *all = parts_of(j, block);
    if (j->first_segment == 0) clear_sums(j, all, q.n);
    for (int i = 1; i <= j->n_segments; i++)
        for (int row = 0; row < q.n; row++) merge_row(j, all, &all[i], row);
    if (j->first_segment + j->n_segments >= j->end_segment) finish_rows(j, &q, all);
}

/* Divides the keys of the blocks among the threads, in rounds of as many segments as there is memory for. */
static void run_split(attention_job *j, double work) {
    j->n_segments = UM_MIN(j->dev->n_parts / j->n_blocks - 1, j->end_segment);
    for (; j->first_segment < j->end_segment; j->first_segment += j->n_segments) {
        um_cpu_run(j->dev, segment_task, j, j->n_blocks * j->n_segments, work);
        um_cpu_run(j->dev, merge_task, j, j->n_blocks, work);
    }
}

/* Chooses the size of blocks. Larger ones read the keys less often; smaller ones keep all threads busy until the end.
 */
static void choose_blocks(attention_job *j) {
    static const int sizes[] = {UM_QUERY_ROWS, UM_QUERY_ROWS / 2, UM_SPLIT_ROWS};
    enum { BLOCKS_PER_THREAD = 8 };
    for (size_t i = 0; i < UM_LEN(sizes); i++) {
        count_blocks(j, sizes[i]);
        if (j->dev->n_threads == 1 || j->n_blocks >= BLOCKS_PER_THREAD * j->dev->n_threads) return;
    }
}

void um_cpu_attention(um_dev *dev, const um_kv *kv, const um_attention *a) {
    const um_batch *b = a->batch;
    attention_job j = {.dev = dev, .kv = kv, .a = a, .p = um_product_kv(dev, kv), .group = a->n_heads / a->n_kv_heads};
    assert(a->n_heads % a->n_kv_heads == 0 && a->head_dim <= dev->config.max_head_dim && a->scale > 0);
    assert(b->n_spans <= dev->config.max_tokens && a->page_size == kv->shape.page_size);
    double work = 0;
    for (int32_t i = 0; i < b->n_spans; i++) {
        const um_span *s = &b->span[i];
        work += 2.0 * s->n * a->n_heads * a->head_dim * (s->keys.end - s->keys.start);
        j.end_segment = UM_MAX(j.end_segment, UM_CEIL_DIV(s->keys.end, UM_SEGMENT_KEYS));
    }
    choose_blocks(&j);
    if (j.n_blocks > 0 && j.n_blocks < 2 * dev->n_threads && dev->n_parts > 0 && j.end_segment > 1) run_split(&j, work);
    else um_cpu_run(dev, block_task, &j, j.n_blocks, work);
}
