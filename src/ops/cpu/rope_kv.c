/* Norms, and rotation of queries and keys; then writes keys and values to their slots. */
#include "ops/cpu/dev.h"

/* A task is a KV head with its share of the query heads, and a run of tokens. Their slots are usually adjacent, so a
 * task writes to one or two units, which stay in the cache. This matters because a key touches one cache line for each
 * of its words, and adjacent keys touch the same lines. (Processing all heads token by token was five times slower: the
 * units of 32 heads don't fit into a cache.) */
enum { TASK_TOKENS = 32, FEW_TOKENS = 16 }; /* FEW_TOKENS: when there would be fewer tasks than threads */

typedef struct rope_job {
    const um_kernels *k;
    um_kv *kv;
    const um_rope_kv *a;
    int32_t per_task; /* tokens of a task */
} rope_job;

static float *head_of(const um_rope_kv *a, int32_t t, int32_t head) {
    size_t n_heads = (size_t)a->n_heads + 2 * (size_t)a->n_kv_heads;
    return a->qkv + ((size_t)t * n_heads + (size_t)head) * (size_t)a->head_dim;
}

static void rotate_head(const rope_job *j, int32_t t, int32_t head, const float *norm) {
    const um_rope_kv *a = j->a;
    const um_kernels *k = j->k;
    int d = a->head_dim, half = a->rope_dim / 2;
    float *x = head_of(a, t, head);
    size_t at = (size_t)a->pos[t] * (size_t)half;
    if (norm) k->normalize(x, 0, 1 / sqrtf(k->sum_squares(x, 0, d) / (float)d + a->eps), norm, NULL, d, x);
    if (a->clip > 0) k->clamp(x, a->clip, d);
    k->rotate(x, a->cos + at, a->sin + at, half);
}

static void norm_value(const rope_job *j, int32_t t, int32_t head) {
    const um_rope_kv *a = j->a;
    const um_kernels *k = j->k;
    float *x = head_of(a, t, head);
    k->normalize(x, 0, 1 / sqrtf(k->sum_squares(x, 0, a->head_dim) / (float)a->head_dim + a->eps), a->v_norm, NULL,
                 a->head_dim, x);
}

/* Writes n words UM_PANEL words apart, four per iteration. With one per iteration, the loop takes a third longer when
 * it happens to cross a line of the instruction cache. */
static void scatter(const uint32_t *word, int n, uint32_t *to) {
    int i = 0;
    for (; i + 4 <= n; i += 4, to += 4 * UM_PANEL) {
        to[0] = word[i];
        to[UM_PANEL] = word[i + 1];
        to[2 * UM_PANEL] = word[i + 2];
        to[3 * UM_PANEL] = word[i + 3];
    }
    for (; i < n; i++, to += UM_PANEL) *to = word[i];
}

/* Stores a key, which is a column of its panel: each word goes to a different cache line. */
static void store_key(const rope_job *j, const float *key, uint32_t *panel, size_t lane) {
    enum { PART = 64 };
    uint32_t word[PART];
    bool is_bf16 = j->kv->shape.type == UM_BF16;
    int d = j->a->head_dim, per_word = is_bf16 ? 2 : 1;
    uint32_t *to = panel + lane;
    for (int i = 0; i < d; i += PART * per_word, to += PART * UM_PANEL) {
        int n = UM_MIN(PART * per_word, d - i);
        (is_bf16 ? j->k->pack_pairs : j->k->pack_f32)(key + i, 0, n, word);
        scatter(word, UM_CEIL_DIV(n, per_word), to);
    }
}

/* Stores a value. In fp32 it is a row of its panels. In bf16 it is half of a row; another task may write the other
 * half.
 */
static void store_value(const rope_job *j, const float *value, unsigned char *panel, size_t lane) {
    for (int i = 0; i < j->a->head_dim; i += UM_PANEL, panel += j->kv->value_panel_bytes) {
        int n = UM_MIN(UM_PANEL, j->a->head_dim - i);
        if (j->kv->shape.type == UM_F32) memcpy((float *)panel + lane * UM_PANEL, value + i, (size_t)n * sizeof(float));
        else {
            uint32_t word[UM_PANEL];
            uint16_t *to = (uint16_t *)panel + lane / 2 * UM_PANEL * 2 + lane % 2;
            j->k->join_bf16(value + i, value + i, n, word);
            for (int r = 0; r < n; r++) to[2 * r] = (uint16_t)word[r];
        }
    }
}

/* Stores the bf16 values of the slots lane and lane + 1, which are whole rows; lane is even. */
static void store_two_values(const rope_job *j, const float *even, const float *odd, unsigned char *panel,
                             size_t lane) {
    for (int i = 0; i < j->a->head_dim; i += UM_PANEL, panel += j->kv->value_panel_bytes)
        j->k->join_bf16(even + i, odd + i, UM_MIN(UM_PANEL, j->a->head_dim - i),
                        (uint32_t *)panel + lane / 2 * UM_PANEL);
}

static void store_bytes(const rope_job *j, const float *key, const float *value, um_unit unit, size_t lane) {
    const um_kv *kv = j->kv;
    size_t d = (size_t)j->a->head_dim;
    float key_scale = um_f8_scale(key, d), value_scale = um_f8_scale(value, d);
    um_key_scales(kv, unit)[lane] = key_scale;
    um_value_scales(kv, unit)[lane] = value_scale;
    for (size_t i = 0; i < d; i++) {
        unsigned char *panel = unit.value + i / UM_PANEL * kv->value_panel_bytes;
        unit.key[um_panel_at(UM_F8, lane, i)] = um_f8_code(key[i], key_scale);
        panel[um_panel_at(UM_F8, i % UM_PANEL, lane)] = um_f8_code(value[i], value_scale);
    }
}

/* Returns whether the values of the tokens t and t + 1 fill whole rows together. t + 1 must be before `end`. */
static bool are_pair(const rope_job *j, int32_t t, int32_t end) {
    const um_kv_shape *s = &j->kv->shape;
    if (s->type != UM_BF16 || t + 1 >= end) return false;
    const int32_t *slot = j->a->slot + t;
    return slot[0] >= 0 && slot[0] % 2 == 0 && slot[1] == slot[0] + 1 &&
           slot[1] != s->n_slots; /* the first scratch slot is in another unit */
}

/* Stores keys and values of the tokens [begin, end). */
static void store_tokens(const rope_job *j, int32_t kv_head, int32_t begin, int32_t end) {
    const um_rope_kv *a = j->a;
    const um_dtype type = j->kv->shape.type;
    int32_t key_head = a->n_heads + kv_head, value_head = key_head + a->n_kv_heads;
    for (int32_t t = begin; t < end; t++) {
        if (a->slot[t] < 0) continue;
        size_t lane = (size_t)a->slot[t] % UM_PANEL;
        um_unit unit = um_kv_unit(j->kv, a->layer, kv_head, a->slot[t]);
        const float *key = head_of(a, t, key_head), *value = head_of(a, t, value_head);
        if (type == UM_F8) {
            store_bytes(j, key, value, unit, lane);
            continue;
        }
        store_key(j, key, (uint32_t *)unit.key, lane);
        if (are_pair(j, t, end)) store_two_values(j, value, head_of(a, t + 1, value_head), unit.value, lane);
        else if (t == begin || !are_pair(j, t - 1, end)) store_value(j, value, unit.value, lane);
    }
}

/* Multiplies a query by the factor of its position, which is 1 for most. */
static void scale_query(const um_rope_kv *a, int32_t t, int32_t head) {
    const float by = a->query[a->pos[t]];
    float *x = head_of(a, t, head);
    for (int32_t i = 0; by != 1 && i < a->head_dim; i++) x[i] *= by;
}

static void rope_task(void *arg, int task, int thread) {
    (void)thread;
    const rope_job *j = (const rope_job *)arg;
    const um_rope_kv *a = j->a;
    int32_t kv_head = task % a->n_kv_heads, key = a->n_heads + kv_head, value = key + a->n_kv_heads;
    int32_t query = kv_head * a->n_heads / a->n_kv_heads, query_end = (kv_head + 1) * a->n_heads / a->n_kv_heads;
    int32_t begin = task / a->n_kv_heads * j->per_task, end = UM_MIN(begin + j->per_task, a->n_tokens);
    for (int32_t t = begin; t < end; t++) {
        for (int32_t h = query; h < query_end; h++) rotate_head(j, t, h, a->q_norm);
        for (int32_t h = query; a->query && h < query_end; h++) scale_query(a, t, h);
        rotate_head(j, t, key, a->k_norm);
        if (a->v_norm) norm_value(j, t, value);
        if (a->clip > 0) j->k->clamp(head_of(a, t, value), a->clip, a->head_dim);
    }
    store_tokens(j, kv_head, begin, end);
}

void um_cpu_rope_kv(um_dev *dev, um_kv *kv, const um_rope_kv *a) {
    assert(a->head_dim == kv->shape.head_dim && a->n_kv_heads == kv->shape.n_kv_heads && a->rope_dim <= a->head_dim);
    rope_job j = {dev->k, kv, a, TASK_TOKENS};
    if (a->n_kv_heads * UM_CEIL_DIV(a->n_tokens, TASK_TOKENS) < dev->n_threads) j.per_task = FEW_TOKENS;
    double work = (double)a->n_tokens * (a->n_heads + 2 * a->n_kv_heads) * a->head_dim * 4;
    um_cpu_run(dev, rope_task, &j, a->n_kv_heads * UM_CEIL_DIV(a->n_tokens, j.per_task), work);
}
