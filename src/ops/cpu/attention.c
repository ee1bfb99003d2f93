/* Attention over paged keys.
 *
 * A task is one span, one KV head and up to UM_QUERY_ROWS queries: tokens of the span times the query heads that share
 * the KV head. A task reads the keys once, in tiles of UM_PANEL that start at fixed multiples of the visibility index,
 * with an online softmax for each query. A tile in which a query sees no key leaves the query's sums bit-identical, so
 * results don't depend on which queries share a task. */
#include <math.h>

#include "ops/cpu/dev.h"

enum { TASK_ROWS = 16 }; /* smallest number of queries for which a head is divided */

typedef struct attention_job {
    const um_dev *dev;
    const um_kv *kv;
    const um_attention *a;
    const um_product *p;
    int group;      /* query heads of a KV head */
    int most_tasks; /* of a KV head, unless its queries need more */
} attention_job;

/* The queries of a task. */
typedef struct query_block {
    const um_span *span;
    int32_t kv_head, first, n; /* rows [first, first + n) of the span's tokens x group */
    int32_t seen_end;          /* the largest seen_end of the rows */
} query_block;

/* Few heads are divided further, so that every thread has a task; each task reads the keys again. */
static int32_t tasks_of_head(const attention_job *j, const um_span *s) {
    const int32_t n = s->n * j->group;
    return UM_MAX(UM_CEIL_DIV(n, UM_QUERY_ROWS), UM_MIN(n / TASK_ROWS, j->most_tasks));
}

static query_block find_block(const attention_job *j, int task) {
    const um_batch *b = j->a->batch;
    int32_t lo = 0, hi = b->n_spans; /* finds the last span whose first task is at or before this task */
    while (hi - lo > 1) {
        int32_t mid = (lo + hi) / 2;
        if (j->dev->first_task[mid] <= task) lo = mid;
        else hi = mid;
    }
    const um_span *s = &b->span[lo];
    int32_t local = task - j->dev->first_task[lo], per_head = tasks_of_head(j, s);
    int32_t n = s->n * j->group, part = local % per_head; /* the rows are split evenly */
    query_block q = {.span = s, .kv_head = local / per_head, .first = (int32_t)((int64_t)n * part / per_head)};
    q.n = (int32_t)((int64_t)n * (part + 1) / per_head) - q.first;
    return q;
}

/* Return the token and the query head of a row of the block. */
static int32_t row_token(const attention_job *j, const query_block *q, int32_t row) {
    return q->span->first + (q->first + row) / j->group;
}

static int32_t row_head(const attention_job *j, const query_block *q, int32_t row) {
    return q->kv_head * j->group + (q->first + row) % j->group;
}

/* The query rows of one block of words are adjacent in memory. */
void um_query_pack(const um_product *p, um_thread *t, int row, const float *x, int d) {
    int step = UM_BLOCK_WORDS * p->per_word;
    uint32_t *to = t->query + row * UM_X_STRIDE;
    for (int i = 0; i < d; i += step, to += UM_QUERY_ROWS * UM_X_STRIDE) p->pack(x + i, UM_MIN(step, d - i), to);
}

/* Multiplies a panel by n rows, at most as many as the product takes. Writes acc [n, UM_PANEL] if `first`, else adds to
 * it. */
static void multiply_tile(const um_product *p, const unsigned char *panel, const uint32_t *x, int words, int n,
                          float *acc, bool first) {
    const unsigned char *next = panel + (size_t)words * p->bytes_per_word;
    if (p->matrix) p->matrix(panel, next, x, words, n, acc, UM_PANEL, first);
    else p->tile(panel, x, words, n, acc, first);
}

void um_query_products(const um_product *p, const um_thread *t, const unsigned char *key, int d, int row, int n,
                       float *s) {
    int words = um_product_words(p, d);
    const uint32_t *x = t->query + row * UM_X_STRIDE;
    for (int at = 0; at < words; at += UM_BLOCK_WORDS, x += UM_QUERY_ROWS * UM_X_STRIDE)
        multiply_tile(p, key + (size_t)at * p->bytes_per_word, x, UM_MIN(UM_BLOCK_WORDS, words - at), n, s, at == 0);
}

/* Packs the queries and resets the sums. */
static void init_rows(const attention_job *j, query_block *q, um_thread *t) {
    const um_attention *a = j->a;
    int d = a->head_dim;
    q->seen_end = 0;
    for (int32_t row = 0; row < q->n; row++) {
        int32_t token = row_token(j, q, row);
        const float *x = a->q + (size_t)token * (size_t)a->stride + (size_t)row_head(j, q, row) * (size_t)d;
        um_query_pack(j->p, t, row, x, d);
        t->max[row] = -INFINITY;
        t->sum[row] = 0;
        t->seen_end[row] = a->batch->seen_end[token];
        q->seen_end = UM_MAX(q->seen_end, t->seen_end[row]);
    }
    memset(t->out, 0, (size_t)UM_CEIL_DIV(d, UM_PANEL) * UM_QUERY_ROWS * UM_PANEL * sizeof(float));
}

/* Scales the sums of a row whose maximum rose. */
static void rescale_row(const attention_job *j, um_thread *t, int row, float by) {
    for (int p = 0; p < UM_CEIL_DIV(j->a->head_dim, UM_PANEL); p++) {
        float *out = t->out + (p * UM_QUERY_ROWS + row) * UM_PANEL;
        j->dev->k->scale_to(out, by, UM_PANEL, out);
    }
}

/* Returns the range of words of a tile's values that are multiplied. Slots outside of [lo, hi) may contain anything,
 * even NaN, so they are left out. A pair that lo or hi splits is multiplied as a whole, and so is the whole tile of a
 * matrix unit; um_kv_find has put zeros in their other slots. */
static um_range seen_words(const attention_job *j, int lo, int hi) {
    if (j->p->matrix) return (um_range){0, UM_TILE_WORDS};
    int from = (j->kv->shape.type == UM_F32 ? lo : lo - lo % 2) / j->p->per_word;
    return (um_range){from, from + um_product_words(j->p, hi - from * j->p->per_word)};
}

/* Updates the rows [row, row + n) with the keys [lo, hi) of the tile. */
static void attend(const attention_job *j, um_thread *t, const um_kv_tile *keys, int32_t tile, int lo, int hi, int row,
                   int n) {
    int panels = UM_CEIL_DIV(j->a->head_dim, UM_PANEL);
    float *s = t->acc, shrink[UM_QUERY_ROWS];
    int end[UM_QUERY_ROWS];
    um_query_products(j->p, t, keys->key, j->a->head_dim, row, n, s);
    for (int i = 0; i < n; i++) end[i] = UM_MIN(hi, t->seen_end[row + i] - tile);
    j->p->softmax(s, n, j->a->scale, lo, end, keys->key_scale, keys->value_scale, t->max + row, t->sum + row, shrink,
                  t->weight);
    for (int i = 0; i < n; i++)
        if (shrink[i] != 1) rescale_row(j, t, row + i, shrink[i]);
    um_range seen = seen_words(j, lo, hi);
    const unsigned char *value = keys->value + (size_t)seen.start * j->p->bytes_per_word;
    for (int p = 0; p < panels; p++, value += keys->value_panel_bytes)
        multiply_tile(j->p, value, t->weight + seen.start, seen.end - seen.start, n,
                      t->out + (p * UM_QUERY_ROWS + row) * UM_PANEL, false);
}

static int32_t largest(const int32_t *v, int n) {
    int32_t max = v[0];
    for (int i = 1; i < n; i++) max = UM_MAX(max, v[i]);
    return max;
}

/* Updates all rows of the block with the keys of a range that are in one tile. */
static void process_tile(const attention_job *j, um_thread *t, const query_block *q, um_range keys, int32_t tile) {
    int32_t lo = UM_MAX(keys.start - tile, 0), hi = UM_MIN(keys.end - tile, UM_PANEL);
    um_kv_tile found =
        um_kv_find(j->dev, j->kv, t, j->a->layer, q->kv_head, q->span->page, tile, lo, hi, j->p->matrix != NULL);
    int n_tiles = UM_CEIL_DIV(q->n, j->p->tile_rows);
    for (int i = 0, row = 0; i < n_tiles; i++) {
        int n = q->n / n_tiles + (i < q->n % n_tiles);
        if (largest(t->seen_end + row, n) > tile) attend(j, t, &found, tile, lo, hi, row, n);
        row += n;
    }
}

/* Divides the sums of the rows by the sums of weights and writes them to the output. */
static void finish_rows(const attention_job *j, const query_block *q, const um_thread *t) {
    const um_attention *a = j->a;
    for (int32_t row = 0; row < q->n; row++) {
        size_t at = (size_t)row_token(j, q, row) * (size_t)a->n_heads + (size_t)row_head(j, q, row);
        float *out = a->out + at * (size_t)a->head_dim, *sums = t->out + row * UM_PANEL;
        float share = t->sum[row] > 0 ? 1 / t->sum[row] : 0;
        for (int i = 0; i < a->head_dim; i += UM_PANEL, sums += UM_QUERY_ROWS * UM_PANEL) {
            j->dev->k->scale_to(sums, share, UM_PANEL, sums);
            memcpy(out + i, sums, (size_t)UM_MIN(UM_PANEL, a->head_dim - i) * sizeof *out);
        }
    }
}

static void attention_task(void *arg, int task, int thread) {
    const attention_job *j = (const attention_job *)arg;
    um_thread *t = &j->dev->thread[thread];
    query_block q = find_block(j, task);
    init_rows(j, &q, t);
    um_product_begin(j->p);
    um_range keys[2]; /* before and after the hole; a tile that contains keys of both is processed twice */
    int n_ranges = um_range_without(q.span->keys, q.span->hole, keys);
    for (int i = 0; i < n_ranges; i++)
        for (int32_t tile = keys[i].start / UM_PANEL * UM_PANEL; tile < UM_MIN(keys[i].end, q.seen_end);
             tile += UM_PANEL)
            process_tile(j, t, &q, keys[i], tile);
    um_product_end(j->p);
    finish_rows(j, &q, t);
}

void um_cpu_attention(um_dev *dev, const um_kv *kv, const um_attention *a) {
    const um_batch *b = a->batch;
    attention_job j = {dev, kv, a, um_product_kv(dev, kv), .group = a->n_heads / a->n_kv_heads};
    j.most_tasks = dev->n_threads / UM_MAX(a->n_kv_heads * b->n_spans, 1);
    assert(a->n_heads % a->n_kv_heads == 0 && a->head_dim <= dev->config.max_head_dim);
    assert(b->n_spans <= dev->config.max_tokens && a->page_size == kv->shape.page_size);
    int n_tasks = 0;
    double work = 0;
    for (int32_t i = 0; i < b->n_spans; i++) {
        const um_span *s = &b->span[i];
        dev->first_task[i] = n_tasks;
        n_tasks += tasks_of_head(&j, s) * a->n_kv_heads;
        work += 2.0 * s->n * a->n_heads * a->head_dim * (s->keys.end - s->keys.start);
    }
    um_cpu_run(dev, attention_task, &j, n_tasks, work);
}
