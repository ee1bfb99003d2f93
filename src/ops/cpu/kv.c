/* Keys and values, and the operation that writes them.
 *
 * A unit holds UM_PANEL slots of one layer and KV head: the keys as one panel (a row is a slot, k runs over the head's
 * dims), then the values as panels of UM_PANEL dims (a row is a dim, k runs over the slots). So both products of
 * attention run on the kernels of the linear layers, without a transposition when they read. */
#include <math.h>

#include "ops/cpu/dev.h"

static um_kv lay_out(const um_kv_shape *s) {
    um_kv kv = {.shape = *s, .n_units = UM_CEIL_DIV(s->n_slots, UM_PANEL)};
    size_t d = (size_t)s->head_dim, size = um_dtype_size(s->type);
    assert(s->type == UM_F32 || s->type == UM_BF16);
    kv.key_bytes = (s->type == UM_F32 ? d : d + d % 2) * UM_PANEL * size;
    kv.value_panel_bytes = UM_PANEL * UM_PANEL * size;
    kv.unit_bytes = kv.key_bytes + UM_CEIL_DIV(d, UM_PANEL) * kv.value_panel_bytes;
    return kv;
}

size_t um_cpu_kv_bytes(const um_kv_shape *shape) {
    um_kv kv = lay_out(shape);
    return um_mul(um_mul((size_t)shape->n_layers * (size_t)shape->n_kv_heads, (size_t)kv.n_units), kv.unit_bytes);
}

um_status um_cpu_kv_new(um_dev *dev, um_kv **out, const um_kv_shape *shape, um_err *err) {
    (void)dev;
    void *units;
    um_status s = um_try_alloc(&units, um_cpu_kv_bytes(shape), 64, "KV pages", err);
    if (s) return s;
    *out = UM_NEW(um_kv);
    **out = lay_out(shape);
    (*out)->unit = (unsigned char *)units;
    return UM_OK;
}

void um_cpu_kv_free(um_dev *dev, um_kv *kv) {
    (void)dev;
    if (kv) um_free(kv->unit);
    um_free(kv);
}

unsigned char *um_kv_unit(const um_kv *kv, int32_t layer, int32_t head, int64_t slot) {
    const um_kv_shape *s = &kv->shape;
    assert(layer >= 0 && layer < s->n_layers && head >= 0 && head < s->n_kv_heads && slot >= 0 && slot < s->n_slots);
    size_t run = (size_t)layer * (size_t)s->n_kv_heads + (size_t)head;
    return kv->unit + (run * (size_t)kv->n_units + (size_t)slot / UM_PANEL) * kv->unit_bytes;
}

/* Index of element (row, k) in a panel of the type. */
static size_t panel_at(um_dtype type, size_t row, size_t k) {
    return type == UM_F32 ? k * UM_PANEL + row : (k / 2 * UM_PANEL + row) * 2 + k % 2;
}

static void copy(um_dtype type, unsigned char *to, size_t to_at, const unsigned char *from, size_t from_at) {
    if (type == UM_F32) ((float *)to)[to_at] = ((const float *)from)[from_at];
    else ((uint16_t *)to)[to_at] = ((const uint16_t *)from)[from_at];
}

void um_kv_collect(const um_kv *kv, int32_t layer, int32_t head, const um_span *span, int32_t tile, int32_t lo,
                   int32_t hi, unsigned char *unit) {
    um_dtype type = kv->shape.type;
    int32_t page_size = kv->shape.page_size;
    memset(unit, 0, kv->unit_bytes);
    for (size_t to = (size_t)lo; to < (size_t)hi; to++) {
        int32_t vis = tile + (int32_t)to;
        int64_t slot = (int64_t)span->page[vis / page_size] * page_size + vis % page_size;
        const unsigned char *source = um_kv_unit(kv, layer, head, slot);
        size_t from = (size_t)slot % UM_PANEL;
        for (size_t i = 0; i < (size_t)kv->shape.head_dim; i++) {
            size_t panel = kv->key_bytes + i / UM_PANEL * kv->value_panel_bytes, row = i % UM_PANEL;
            copy(type, unit, panel_at(type, to, i), source, panel_at(type, from, i));
            copy(type, unit + panel, panel_at(type, row, to), source + panel, panel_at(type, row, from));
        }
    }
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* A task is a KV head with its share of the query heads, and a run of tokens. Their slots are neighbours as a rule, so
 * a task writes into one or two units, which stay in its cache: a key touches a line for each of its words, its
 * neighbour the same lines. (Token by token through all heads it was five times slower: 32 heads' units don't fit a
 * cache.) */
enum { TASK_TOKENS = 32 };

typedef struct rope_job {
    const um_kernels *k;
    um_kv *kv;
    const um_rope_kv *a;
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

/* A key is a column of its panel: each word goes to a line of its own. */
static void store_key(const rope_job *j, const float *key, uint32_t *panel, size_t lane) {
    enum { PART = 64 };
    uint32_t word[PART];
    bool is_bf16 = j->kv->shape.type == UM_BF16;
    int d = j->a->head_dim, per_word = is_bf16 ? 2 : 1;
    uint32_t *to = panel + lane;
    for (int i = 0; i < d; i += PART * per_word) {
        int n = UM_MIN(PART * per_word, d - i);
        (is_bf16 ? j->k->pack_pairs : j->k->pack_f32)(key + i, n, word);
        for (int w = 0; w < UM_CEIL_DIV(n, per_word); w++, to += UM_PANEL) *to = word[w];
    }
}

/* A value is a row of its panels in fp32; in bf16 half of a row, whose other half may be another task's. */
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

/* The bf16 values of the slots lane and lane + 1, lane even: whole rows. */
static void store_two_values(const rope_job *j, const float *even, const float *odd, unsigned char *panel,
                             size_t lane) {
    for (int i = 0; i < j->a->head_dim; i += UM_PANEL, panel += j->kv->value_panel_bytes)
        j->k->join_bf16(even + i, odd + i, UM_MIN(UM_PANEL, j->a->head_dim - i),
                        (uint32_t *)panel + lane / 2 * UM_PANEL);
}

/* Keys and values of the tokens [begin, end). */
static void store_tokens(const rope_job *j, int32_t kv_head, int32_t begin, int32_t end) {
    const um_rope_kv *a = j->a;
    int32_t key = a->n_heads + kv_head, value = key + a->n_kv_heads;
    bool is_bf16 = j->kv->shape.type == UM_BF16, done = false; /* done: the value, with that of the token before */
    for (int32_t t = begin; t < end; t++) {
        int32_t slot = a->slot[t];
        bool two = is_bf16 && !done && slot >= 0 && slot % 2 == 0 && t + 1 < end && a->slot[t + 1] == slot + 1;
        if (slot >= 0) {
            size_t lane = (size_t)slot % UM_PANEL;
            unsigned char *unit = um_kv_unit(j->kv, a->layer, kv_head, slot), *values = unit + j->kv->key_bytes;
            store_key(j, head_of(a, t, key), (uint32_t *)unit, lane);
            if (two) store_two_values(j, head_of(a, t, value), head_of(a, t + 1, value), values, lane);
            else if (!done) store_value(j, head_of(a, t, value), values, lane);
        }
        done = two;
    }
}

static void rope_task(void *arg, int task, int thread) {
    (void)thread;
    const rope_job *j = (const rope_job *)arg;
    const um_rope_kv *a = j->a;
    int32_t kv_head = task % a->n_kv_heads, key = a->n_heads + kv_head, value = key + a->n_kv_heads;
    int32_t query = kv_head * a->n_heads / a->n_kv_heads, query_end = (kv_head + 1) * a->n_heads / a->n_kv_heads;
    int32_t begin = task / a->n_kv_heads * TASK_TOKENS, end = UM_MIN(begin + TASK_TOKENS, a->n_tokens);
    for (int32_t t = begin; t < end; t++) {
        for (int32_t h = query; h < query_end; h++) rotate_head(j, t, h, a->q_norm);
        rotate_head(j, t, key, a->k_norm);
        if (a->clip > 0) j->k->clamp(head_of(a, t, value), a->clip, a->head_dim);
    }
    store_tokens(j, kv_head, begin, end);
}

void um_cpu_rope_kv(um_dev *dev, um_kv *kv, const um_rope_kv *a) {
    assert(a->head_dim == kv->shape.head_dim && a->n_kv_heads == kv->shape.n_kv_heads && a->rope_dim <= a->head_dim);
    rope_job j = {dev->k, kv, a};
    double work = (double)a->n_tokens * (a->n_heads + 2 * a->n_kv_heads) * a->head_dim * 4;
    um_cpu_run(dev, rope_task, &j, a->n_kv_heads * UM_CEIL_DIV(a->n_tokens, TASK_TOKENS), work);
}
