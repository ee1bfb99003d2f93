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

static void put(um_dtype type, unsigned char *panel, size_t at, float v) {
    if (type == UM_F32) ((float *)panel)[at] = v;
    else ((uint16_t *)panel)[at] = um_f32_to_bf16(v);
}

static void copy(um_dtype type, unsigned char *to, size_t to_at, const unsigned char *from, size_t from_at) {
    if (type == UM_F32) ((float *)to)[to_at] = ((const float *)from)[from_at];
    else ((uint16_t *)to)[to_at] = ((const uint16_t *)from)[from_at];
}

static void write_slot(const um_kv *kv, unsigned char *unit, size_t lane, const float *key, const float *value) {
    um_dtype type = kv->shape.type;
    for (size_t i = 0; i < (size_t)kv->shape.head_dim; i++) {
        unsigned char *panel = unit + kv->key_bytes + i / UM_PANEL * kv->value_panel_bytes;
        put(type, unit, panel_at(type, lane, i), key[i]);
        put(type, panel, panel_at(type, i % UM_PANEL, lane), value[i]);
    }
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

/* Tokens of a task: neighbours in slots share cache lines, so they had better share a thread. */
enum { TASK_TOKENS = 16 };

typedef struct rope_job {
    const um_kernels *k;
    um_kv *kv;
    const um_rope_kv *a;
} rope_job;

static void rope_token(const rope_job *j, int32_t t) {
    const um_rope_kv *a = j->a;
    size_t d = (size_t)a->head_dim, half = (size_t)a->rope_dim / 2, n_heads = (size_t)a->n_heads;
    size_t n_kv = (size_t)a->n_kv_heads;
    float *row = a->qkv + (size_t)t * (n_heads + 2 * n_kv) * d;
    const float *cos = a->cos + (size_t)a->pos[t] * half, *sin = a->sin + (size_t)a->pos[t] * half;
    for (size_t h = 0; h < n_heads + n_kv; h++) {
        float *x = row + h * d;
        const float *w = h < n_heads ? a->q_norm : a->k_norm;
        float r = w ? 1 / sqrtf(j->k->sum_squares(x, 0, (int)d) / (float)d + a->eps) : 1;
        if (w) j->k->normalize(x, 0, r, w, NULL, (int)d, x);
        if (a->clip > 0) j->k->clamp(x, a->clip, (int)d);
        j->k->rotate(x, cos, sin, (int)half);
    }
    if (a->clip > 0) j->k->clamp(row + (n_heads + n_kv) * d, a->clip, (int)(n_kv * d));
    if (a->slot[t] < 0) return;
    for (size_t h = 0; h < n_kv; h++) {
        const float *key = row + (n_heads + h) * d;
        unsigned char *unit = um_kv_unit(j->kv, a->layer, (int32_t)h, a->slot[t]);
        write_slot(j->kv, unit, (size_t)a->slot[t] % UM_PANEL, key, key + n_kv * d);
    }
}

static void rope_task(void *arg, int task, int thread) {
    (void)thread;
    const rope_job *j = (const rope_job *)arg;
    int32_t end = UM_MIN((task + 1) * TASK_TOKENS, j->a->n_tokens);
    for (int32_t t = task * TASK_TOKENS; t < end; t++) rope_token(j, t);
}

void um_cpu_rope_kv(um_dev *dev, um_kv *kv, const um_rope_kv *a) {
    assert(a->head_dim == kv->shape.head_dim && a->n_kv_heads == kv->shape.n_kv_heads && a->rope_dim <= a->head_dim);
    rope_job j = {dev->k, kv, a};
    double work = (double)a->n_tokens * (a->n_heads + 2 * a->n_kv_heads) * a->head_dim * 4;
    um_cpu_run(dev, rope_task, &j, UM_CEIL_DIV(a->n_tokens, TASK_TOKENS), work);
}
