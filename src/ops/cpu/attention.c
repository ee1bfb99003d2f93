/* Attention over paged keys.
 *
 * A block is one span, one KV head and some queries: tokens of the span times the query heads that share the KV head. A
 * task reads the keys of a block once, in groups of 128 keys, or 256 with a matrix unit, with one step of an online
 * softmax for each group. Groups consist of KV units, which the products read one after another.
 *
 * The sums of UM_SEGMENT_KEYS keys are computed on their own and merged in the order of the keys. So segments can be
 * computed by different threads: few queries of a long context still fill all threads. Groups and segments start at
 * fixed multiples of the visibility index, and a group or segment in which a query sees no key leaves the query's sums
 * bit-identical. So results depend neither on the queries that share a block, nor on the number of threads. */
#include <math.h>

#include "ops/cpu/dev.h"

#define LOG2_E 1.44269504f

enum { ROW_TILES_MAX = UM_QUERY_ROWS / 6 };

_Static_assert(UM_GROUP_UNITS *UM_TILE_ROWS <= UM_ACC_ROWS && UM_GROUP_UNITS / 2 * UM_BLOCK_ROWS <= UM_ACC_ROWS,
               "scores of a group, with and without a matrix unit, fit");
_Static_assert(UM_KEY_GROUP % (int)UM_SEGMENT_KEYS == 0,
               "keys that move by a multiple of UM_KEY_GROUP keep their place in a segment");

typedef struct attention_job {
    um_dev *dev;
    const um_kv *kv;
    const um_attention *a;
    const um_product *p;
    int group;      /* query heads of a KV head */
    int group_keys; /* keys of a group */
    int block_rows; /* largest number of queries of a block */
    int n_blocks;
    /* When threads share the keys of a block: a round computes the segments [first_segment, first_segment + n_segments)
     * of all blocks. */
    int first_segment, n_segments, end_segment;
} attention_job;

/* Rows of a block that are multiplied together. */
typedef struct row_tile {
    int first, n;
    int32_t seen_end; /* the largest of the rows, at most the end of the span's keys */
} row_tile;

/* The queries of a block. */
typedef struct query_block {
    const um_span *span;
    int32_t kv_head, first, n; /* rows [first, first + n) of the span's tokens x group */
    int32_t seen_end;          /* the largest of the rows */
    int32_t seen_start;        /* the smallest of the rows */
    bool is_cached;            /* the keys and values are in the caches of this thread's core */
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
        *t = (row_tile){row, q->n / q->n_tiles + (i < q->n % q->n_tiles), 0};
        if (is_matrix) t->n = UM_MIN(UM_TILE_ROWS, q->n - row);
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
    for (int i = 0; i < d; i += step, to += UM_QUERY_ROWS * UM_X_STRIDE) p->pack(x + i, 0, UM_MIN(step, d - i), to);
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

/* Sums of a row that has seen no key are undefined. */
static void clear_sums(um_sums *s, int n_rows) {
    for (int row = 0; row < n_rows; row++) s->max[row] = -INFINITY, s->sum[row] = 0;
}

static bool has_seen(const um_sums *s, int row) { return s->max[row] != -INFINITY; }

static size_t panels_of(const attention_job *j) { return (size_t)UM_CEIL_DIV(j->a->head_dim, UM_PANEL); }

static size_t panel_floats(const um_sums *s) { return (size_t)s->rows * UM_PANEL; }

/* Multiplies the sums of a row. */
static void rescale_row(const attention_job *j, const um_sums *s, int row, float by) {
    float *out = sums_of_row(s, 0, row);
    j->dev->k->scale_panels(out, panel_floats(s), by, panels_of(j), out, panel_floats(s));
}

/* Adds the sums of a segment to those of the keys before it. */
static void merge_row(const attention_job *j, um_sums *to, const um_sums *from, int row) {
    if (!has_seen(from, row)) return;
    const float old = to->max[row], *x = sums_of_row(from, 0, row);
    const float max = old + UM_SOFTMAX_SLACK < from->max[row] ? from->max[row] : old;
    const float keep = old == max ? 1 : exp2f(old - max), by = from->max[row] == max ? 1 : exp2f(from->max[row] - max);
    to->max[row] = max;
    to->sum[row] = to->sum[row] * keep + from->sum[row] * by;
    if (old == -INFINITY) {
        j->dev->k->scale_panels(x, panel_floats(from), by, panels_of(j), sums_of_row(to, 0, row), panel_floats(to));
        return;
    }
    if (keep != 1) rescale_row(j, to, row, keep);
    j->dev->k->add_panels(x, panel_floats(from), by, panels_of(j), sums_of_row(to, 0, row), panel_floats(to));
}

/* Divides the sums of the rows by the sums of weights and writes them to the output. */
static void finish_rows(const attention_job *j, const query_block *q, const um_sums *s) {
    const um_attention *a = j->a;
    const int whole = a->head_dim / UM_PANEL * UM_PANEL;
    for (int32_t row = 0; row < q->n; row++) {
        size_t at = (size_t)row_token(j, q, row) * (size_t)a->n_heads + (size_t)row_head(j, q, row);
        float *out = a->out + at * (size_t)a->head_dim;
        if (s->sum[row] <= 0) {
            memset(out, 0, (size_t)a->head_dim * sizeof *out);
            continue;
        }
        const float by = 1 / s->sum[row];
        j->dev->k->scale_panels(sums_of_row(s, 0, row), panel_floats(s), by, (size_t)(whole / UM_PANEL), out, UM_PANEL);
        for (int i = whole; i < a->head_dim; i++) out[i] = sums_of_row(s, whole / UM_PANEL, row)[i - whole] * by;
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
 * even NaN, so they are left out. A pair that lo or hi splits is multiplied as a whole; um_kv_find has put zero in its
 * other slot. (A matrix unit multiplies whole units, whose other slots are zero.) */
static um_range seen_words(const attention_job *j, int lo, int hi) {
    int from = (j->kv->shape.type == UM_F32 ? lo : lo - lo % 2) / j->p->per_word;
    return (um_range){from, from + um_product_words(j->p, hi - from * j->p->per_word)};
}

/* Finds the keys of a range in the group that starts at `first`. */
static void find_group(const attention_job *j, um_thread *t, const query_block *q, um_range keys, int32_t first,
                       key_group *g) {
    g->base = UM_MAX(first, keys.start / UM_PANEL * UM_PANEL);
    g->lo = UM_MAX(keys.start - g->base, 0);
    g->hi = UM_MIN(keys.end, first + j->group_keys) - g->base;
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

/* The rows of a block for which the three steps of a group follow one another: one tile of a matrix unit, so that
 * scores and weights stay in the first-level cache. Otherwise all tiles of the block, because a tile has few rows, and
 * a unit stays in that cache for all of them. */
typedef struct strip {
    const row_tile *tile;
    int n_tiles;
    int first, n; /* rows of the block */
    int n_units;  /* units of the group that some row sees */
    int rows;     /* rows between the scores of one unit and those of the next */
} strip;

/* Returns the strip that starts with a tile. */
static strip find_strip(const attention_job *j, const query_block *q, const key_group *g, int first_tile, int rows) {
    const bool is_matrix = j->p->matrix != NULL;
    strip s = {.tile = &q->tile[first_tile], .first = q->tile[first_tile].first};
    s.n_tiles = is_matrix ? 1 : q->n_tiles;
    s.rows = is_matrix ? UM_TILE_ROWS : UM_MIN(rows, UM_BLOCK_ROWS);
    for (int i = 0; i < s.n_tiles; i++) {
        s.n += s.tile[i].n;
        s.n_units = UM_MAX(s.n_units, units_of_tile(&s.tile[i], g));
    }
    return s;
}

/* Computes the scores [units, s->rows, UM_PANEL]. All rows are multiplied by a unit while it is in the cache. */
static void score(const attention_job *j, const um_thread *t, const strip *s, const key_group *g) {
    for (int u = 0; u < s->n_units; u++)
        for (int i = 0; i < s->n_tiles; i++)
            if (u < units_of_tile(&s->tile[i], g))
                um_query_products(j->p, t, g->unit[u].key, j->a->head_dim, s->tile[i].first, s->tile[i].n,
                                  t->acc + (u * s->rows + s->tile[i].first - s->first) * UM_PANEL);
}

/* Requests the values of the group, which are needed after the softmax. */
static void prefetch_values(const key_group *g, size_t panels) {
    for (int u = 0; u < g->n_units; u++)
        for (size_t i = 0; i < panels * g->unit[u].value_panel_bytes; i += 64)
            __builtin_prefetch(g->unit[u].value + i, 0, 2);
}

/* Returns the first key of the group that a row may see. */
static int first_seen(const um_thread *t, const key_group *g, int row) {
    return UM_MIN(UM_MAX(g->lo, t->seen_start[row] - g->base), g->n_units * UM_PANEL);
}

/* Computes the weights [s->n, UM_X_STRIDE] from the scores, and scales the sums of rows whose maximum rises. */
static void weigh(const attention_job *j, um_thread *t, const strip *s, const key_group *g, um_sums *to) {
    float shrink[UM_QUERY_ROWS];
    int end[UM_QUERY_ROWS];
    for (int i = 0; i < s->n; i++) end[i] = UM_MIN(g->hi, t->seen_end[s->first + i] - g->base);
    for (int i = 0, n; i < s->n; i += n) {
        const int row = s->first + i, lo = first_seen(t, g, row);
        for (n = 1; i + n < s->n && first_seen(t, g, row + n) == lo;) n++;
        j->p->softmax(t->acc + i * UM_PANEL, (size_t)s->rows * UM_PANEL, n, j->a->scale * LOG2_E, lo, end + i,
                      s->n_units * UM_PANEL, g->unit[0].key_scale, g->unit[0].value_scale, to->max + row, to->sum + row,
                      shrink + i, t->weight + i * UM_X_STRIDE);
    }
    for (int i = 0; i < s->n; i++)
        if (shrink[i] != 1) rescale_row(j, to, s->first + i, shrink[i]);
}

/* Adds the products of weights and values to the sums. */
static void add_values(const attention_job *j, const um_thread *t, const strip *s, const key_group *g, um_sums *to) {
    um_piece piece[UM_GROUP_UNITS];
    for (int p = 0; p < UM_CEIL_DIV(j->a->head_dim, UM_PANEL); p++) {
        for (int u = 0; u < s->n_units; u++) {
            const um_range words = seen_words(j, u == 0 ? g->lo : 0, UM_MIN(g->hi - u * UM_PANEL, UM_PANEL));
            piece[u] = (um_piece){g->unit[u].value + (size_t)p * g->unit[u].value_panel_bytes +
                                      (size_t)words.start * j->p->bytes_per_word,
                                  u * UM_PANEL / j->p->per_word + words.start, words.end - words.start};
        }
        for (int i = 0; i < s->n_tiles; i++) {
            const row_tile *rows = &s->tile[i];
            const int n = units_of_tile(rows, g);
            if (n > 0)
                j->p->chain(piece, n, t->weight + (rows->first - s->first) * UM_X_STRIDE, rows->n,
                            sums_of_row(to, p, rows->first));
        }
    }
}

/* Returns the products of a strip for a matrix unit. */
static um_attend attend_of(const attention_job *j, const um_thread *t, const strip *s, const key_group *g, bool is_cold,
                           const um_sums *to) {
    um_attend a = {.n_units = s->n_units,
                   .head_dim = j->a->head_dim,
                   .n_rows = s->n,
                   .is_cold = is_cold,
                   .query = t->query + s->first * UM_X_STRIDE,
                   .score = t->acc,
                   .weight = t->weight,
                   .out = sums_of_row(to, 0, s->first),
                   .out_panel = panel_floats(to)};
    for (int u = 0; u < s->n_units; u++) a.key[u] = g->unit[u].key, a.value[u] = g->unit[u].value;
    return a;
}

/* Sets the sums of the rows that have seen no key to zero. */
static void clear_new_rows(const attention_job *j, const strip *s, um_sums *to) {
    const int end = s->first + s->n;
    for (int row = s->first, n; row < end; row += UM_MAX(n, 1)) {
        for (n = 0; row + n < end && !has_seen(to, row + n);) n++;
        for (size_t p = 0; p < panels_of(j) && n > 0; p++)
            memset(sums_of_row(to, (int)p, row), 0, (size_t)n * UM_PANEL * sizeof(float));
    }
}

/* Updates the sums of a strip. With is_cold, keys and values come from memory. */
static void process_strip(const attention_job *j, um_thread *t, const strip *s, const key_group *g, bool is_cold,
                          um_sums *to) {
    enum { FEW_ROWS = 4 }; /* their products prefetch on their own */
    int n_new = 0;
    for (int i = 0; i < s->n; i++) n_new += !has_seen(to, s->first + i);
    if (!j->p->matrix || n_new < s->n) clear_new_rows(j, s, to);
    if (j->p->matrix) {
        um_attend a = attend_of(j, t, s, g, is_cold, to);
        a.first = n_new == s->n;
        j->dev->k->matrix_scores(&a);
        weigh(j, t, s, g, to);
        j->dev->k->matrix_values(&a);
        return;
    }
    score(j, t, s, g);
    if (is_cold && s->n > FEW_ROWS) prefetch_values(g, panels_of(j));
    weigh(j, t, s, g, to);
    add_values(j, t, s, g, to);
}

/* Updates the sums of a block with the keys of a range that are in the group that starts at `first`. */
static void process_group(const attention_job *j, um_thread *t, const query_block *q, um_range keys, int32_t first,
                          um_sums *to) {
    key_group g;
    find_group(j, t, q, keys, first, &g);
    if (g.n_units <= 0) return; /* the range starts behind the last key that the block sees */
    for (int i = 0; i < q->n_tiles;) {
        const strip s = find_strip(j, q, &g, i, to->rows);
        if (s.n_units > 0) process_strip(j, t, &s, &g, i == 0 && !q->is_cached, to);
        i += s.n_tiles;
    }
}

/* Computes the sums of a segment. */
static void process_segment(const attention_job *j, um_thread *t, const query_block *q, int segment, um_sums *to) {
    const int32_t first = segment * UM_SEGMENT_KEYS;
    um_range keys[2]; /* before and after the hole; a group that contains keys of both is processed twice */
    const int n_ranges = um_range_without(q->span->keys, q->span->hole, keys);
    for (int i = 0; i < n_ranges; i++) {
        keys[i].start = UM_MAX(keys[i].start, q->seen_start);
        if (keys[i].start >= keys[i].end) continue;
        const int32_t begin = UM_MAX(first, keys[i].start / j->group_keys * j->group_keys);
        const int32_t end = UM_MIN(UM_MIN(keys[i].end, q->seen_end), first + UM_SEGMENT_KEYS);
        for (int32_t group = begin; group < end; group += j->group_keys) process_group(j, t, q, keys[i], group, to);
    }
}

/* ---- Tasks ------------------------------------------------------------------------------------------------------- */

/* Return the first segment of a block's keys, and the segment after the last. */
static int segments_begin(const query_block *q) { return UM_MAX(q->span->keys.start, q->seen_start) / UM_SEGMENT_KEYS; }
static int segments_end(const query_block *q) {
    return UM_CEIL_DIV(UM_MIN(q->span->keys.end, q->seen_end), UM_SEGMENT_KEYS);
}

/* Keys and values of a head that stay in the second-level cache of every processor with fast vectors. */
#define CACHED_BYTES ((size_t)256 << 10)

static size_t segment_bytes(const um_kv *kv) { return UM_SEGMENT_KEYS / UM_PANEL * (kv->key_bytes + kv->value_bytes); }

/* Computes the first segment directly as the sums of all keys: merging with no keys would not change a bit. */
static void block_task(void *arg, int block, int thread) {
    const attention_job *j = (const attention_job *)arg;
    um_thread *t = &j->dev->thread[thread];
    query_block q = begin_block(j, t, block);
    const int begin = segments_begin(&q), end = segments_end(&q);
    const int first_of_head = block - q.first / j->block_rows;
    q.is_cached = t->head_block == first_of_head && (size_t)(end - begin) * segment_bytes(j->kv) <= CACHED_BYTES;
    t->head_block = first_of_head;
    um_product_begin(j->p);
    clear_sums(&t->sums[0], q.n);
    for (int i = begin; i < end; i++) {
        um_sums *to = &t->sums[i > begin];
        if (i > begin) clear_sums(to, q.n);
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
    clear_sums(to, q.n);
    if (segment < segments_begin(&q) || segment >= segments_end(&q)) return;
    um_product_begin(j->p);
    process_segment(j, t, &q, segment, to);
    um_product_end(j->p);
}

static void merge_task(void *arg, int block, int thread) {
    const attention_job *j = (const attention_job *)arg;
    const query_block q = begin_block(j, &j->dev->thread[thread], block);
    um_sums *all = parts_of(j, block);
    if (j->first_segment == 0) clear_sums(all, q.n);
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

/* Returns whether keys and values of a head are widened for each block, or leave the second-level cache before the next
 * block needs them. */
static bool costly_keys(const attention_job *j) {
    return j->kv->shape.type == UM_F8 || (size_t)j->end_segment * segment_bytes(j->kv) > 4 * CACHED_BYTES;
}

/* Chooses the size of blocks. Larger ones read the keys less often; smaller ones keep all threads busy until the end,
 * and their queries and sums stay in the caches. */
static void choose_blocks(attention_job *j) {
    static const int sizes[] = {UM_QUERY_ROWS, UM_BLOCK_ROWS, UM_BLOCK_ROWS / 2, UM_SPLIT_ROWS};
    enum { BLOCKS_PER_THREAD = 8 };
    for (size_t i = j->p->matrix && costly_keys(j) ? 0 : 1; i < UM_LEN(sizes); i++) {
        count_blocks(j, sizes[i]);
        if (j->dev->n_threads == 1 || j->n_blocks >= BLOCKS_PER_THREAD * j->dev->n_threads) return;
    }
}

void um_cpu_attention(um_dev *dev, const um_kv *kv, const um_attention *a) {
    const um_batch *b = a->batch;
    attention_job j = {.dev = dev, .kv = kv, .a = a, .p = um_product_kv(dev, kv), .group = a->n_heads / a->n_kv_heads};
    assert(a->n_heads % a->n_kv_heads == 0 && a->head_dim <= dev->config.max_head_dim && a->scale > 0);
    assert(b->n_spans <= dev->config.max_tokens && a->page_size == kv->shape.page_size);
    j.group_keys = j.p->matrix ? UM_GROUP_KEYS : UM_GROUP_KEYS / 2;
    double work = 0;
    for (int32_t i = 0; i < b->n_spans; i++) {
        const um_span *s = &b->span[i];
        work += 2.0 * s->n * a->n_heads * a->head_dim * (s->keys.end - s->keys.start);
        j.end_segment = UM_MAX(j.end_segment, UM_CEIL_DIV(s->keys.end, UM_SEGMENT_KEYS));
    }
    choose_blocks(&j);
    if (j.n_blocks > 0 && j.n_blocks < 2 * dev->n_threads && dev->n_parts > 0 && j.end_segment > 1) run_split(&j, work);
    else {
        for (int i = 0; i < dev->n_threads; i++) dev->thread[i].head_block = -1;
        um_cpu_run(dev, block_task, &j, j.n_blocks, work);
    }
}
