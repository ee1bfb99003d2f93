/* Selects the keys that matter most to a block. The mean queries are multiplied by the keys in tiles, as in attention,
 * but in fp32. A score is the sum (or the maximum) over the heads in their order, so results don't depend on threads or
 * tiles. */
#include "ops/select.h"
#include "ops/cpu/dev.h"

enum { TASK_KEYS = 256 }; /* keys that a task scores */

typedef struct select_job {
    um_dev *dev;
    um_kv *kv;
    const um_attention *a;
    const um_span *span;
    const um_kv_select *s;
    const um_product *p;
    int32_t n_keys, n_block;
    int group; /* query heads of a KV head */
} select_job;

/* Returns where the scratch list of a KV head starts. */
static size_t list_at(const select_job *j, int32_t kv_head) {
    return (size_t)kv_head * (size_t)j->dev->config.max_tokens;
}

static void mean_task(void *arg, int head, int thread) {
    (void)thread;
    const select_job *j = (const select_job *)arg;
    size_t at = (size_t)head * (size_t)j->a->head_dim;
    float *mean = j->dev->mean + at;
    memset(mean, 0, (size_t)j->a->head_dim * sizeof *mean);
    for (int32_t i = 0; i < j->n_block; i++) {
        const float *q = j->a->q + (size_t)j->dev->block[i] * (size_t)j->a->stride + at;
        j->dev->k->add_scaled(q, 1 / (float)j->n_block, j->a->head_dim, mean);
    }
}

/* Merges the products s [n, UM_PANEL] of n query heads with the key in column `lane` into its score. */
static float merge_heads(const select_job *j, const float *s, int lane, int n, float score, bool first) {
    for (int i = 0; i < n; i++) {
        float product = s[i * UM_PANEL + lane];
        score = first && i == 0 ? product : j->s->per_head ? UM_MAX(score, product) : score + product;
    }
    return score;
}

/* Scores the keys [begin, end) of the list, which are in one tile, with the packed query heads. */
static void score_tile(const select_job *j, um_thread *t, int32_t kv_head, int32_t begin, int32_t end, int n,
                       bool first) {
    const int32_t *vis = j->dev->key;
    float *score = j->dev->score + list_at(j, kv_head), *s = t->acc;
    int32_t tile = vis[begin] / UM_PANEL * UM_PANEL;
    um_kv_tile keys = um_kv_find(j->dev, j->kv, t, 0, j->a->layer, kv_head, j->span->page, tile, vis[begin] - tile,
                                 vis[end - 1] + 1 - tile, false);
    um_query_products(j->p, t, keys.key, j->a->head_dim, 0, n, s);
    for (int i = 0; keys.key_scale && i < n * UM_PANEL; i++) s[i] *= keys.key_scale[i % UM_PANEL];
    for (int32_t i = begin; i < end; i++) score[i] = merge_heads(j, s, vis[i] - tile, n, score[i], first);
}

/* Returns the end of the run of adjacent keys of one tile that starts at `begin`. */
static int32_t run_end(const int32_t *vis, int32_t begin, int32_t end) {
    int32_t i = begin + 1;
    while (i < end && vis[i] == vis[i - 1] + 1 && vis[i] % UM_PANEL) i++;
    return i;
}

static void score_task(void *arg, int task, int thread) {
    const select_job *j = (const select_job *)arg;
    um_thread *t = &j->dev->thread[thread];
    int32_t kv_head = task % j->a->n_kv_heads, rows = j->dev->k->tile_rows, d = j->a->head_dim;
    int32_t begin = task / j->a->n_kv_heads * TASK_KEYS, end = UM_MIN(begin + TASK_KEYS, j->n_keys);
    for (int32_t head = 0; head < j->group; head += rows) {
        int n = UM_MIN(rows, j->group - head);
        for (int i = 0; i < n; i++)
            um_query_pack(j->p, t, i, j->dev->mean + (size_t)(kv_head * j->group + head + i) * (size_t)d, d);
        for (int32_t i = begin, next; i < end; i = next) {
            next = run_end(j->dev->key, i, end);
            score_tile(j, t, kv_head, i, next, n, head == 0);
        }
    }
}

/* Adds the scores of all KV heads to the list of the first. */
static void sum_heads(const select_job *j, float *score) {
    for (int32_t c = 1; c < j->a->n_kv_heads; c++)
        for (int32_t i = 0; i < j->n_keys; i++) score[i] += j->dev->score[list_at(j, c) + (size_t)i];
}

/* Chooses the keys of one KV head, or of all KV heads together. */
static void choose_task(void *arg, int list, int thread) {
    (void)thread;
    const select_job *j = (const select_job *)arg;
    size_t at = list_at(j, list);
    float *score = j->dev->score + at;
    if (j->s->blind) memset(score, 0, (size_t)j->n_keys * sizeof *score);
    um_select_pool(score, j->n_keys, j->s->pool, j->dev->pooled + at);
    um_select_prior(j->dev->pooled + at, j->n_keys, j->a->head_dim, j->dev->key, j->s);
    um_select_largest(j->dev->pooled + at, j->n_keys, j->s->n_keep, j->dev->best + at);
}

static void keep_task(void *arg, int kv_head, int thread) {
    (void)thread;
    const select_job *j = (const select_job *)arg;
    const int32_t *best = j->dev->best + list_at(j, j->s->per_head ? kv_head : 0);
    const int32_t page_size = j->a->page_size;
    for (int32_t t = 0; t < j->s->n_keep; t++)
        um_kv_move(j->kv, j->a->layer, kv_head, um_slot_of(j->span->page, page_size, j->dev->key[best[t]]),
                   um_slot_of(j->s->page, page_size, t));
}

/* Scores every key of the list, once for each KV head. */
static void score_keys(select_job *j) {
    um_dev *dev = j->dev;
    const um_attention *a = j->a;
    double work = (double)j->n_keys * a->head_dim;
    for (int32_t i = 0; i < j->n_block; i++)
        dev->block[i] = um_select_token(a->batch, j->span, a->page_size, j->s->block.start + i);
    um_cpu_run(dev, mean_task, j, a->n_heads, (double)j->n_block * a->n_heads * a->head_dim / 4);
    um_cpu_run(dev, score_task, j, a->n_kv_heads * UM_CEIL_DIV(j->n_keys, TASK_KEYS), work * a->n_heads);
    if (!j->s->per_head) sum_heads(j, dev->score);
    if (a->merge_scores) a->merge_scores(a->merge_arg, dev->score, j->n_keys, j->s->per_head);
}

static void select_span(um_dev *dev, um_kv *kv, const um_attention *a, const um_span *span) {
    const um_kv_select *s = span->select;
    select_job j = {.dev = dev, .kv = kv, .a = a, .span = span, .s = s, .group = a->n_heads / a->n_kv_heads};
    j.p = kv->shape.type == UM_F32 ? &dev->exact_f32 : &dev->exact_bf16;
    j.n_block = s->block.end - s->block.start;
    assert(span->keys.end - span->keys.start - j.n_block <= dev->config.max_tokens && j.n_block <= span->n);
    j.n_keys = um_select_keys(span, dev->key);
    assert(s->n_keep <= j.n_keys);
    if (!s->blind) score_keys(&j);
    um_cpu_run(dev, choose_task, &j, s->per_head ? a->n_kv_heads : 1, 16.0 * j.n_keys * a->n_kv_heads);
    um_cpu_run(dev, keep_task, &j, a->n_kv_heads, 2.0 * s->n_keep * a->n_kv_heads * a->head_dim);
}

void um_cpu_kv_select(um_dev *dev, um_kv *kv, const um_attention *a) {
    for (int32_t i = 0; i < a->batch->n_spans; i++)
        if (a->batch->span[i].select) select_span(dev, kv, a, &a->batch->span[i]);
}
