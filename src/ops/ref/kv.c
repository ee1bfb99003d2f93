/* Memory of keys and values: layout, allocation and copies of pages. */
#include "ops/ref/ref.h"

/* Returns the floats of a slot's keys, which is also the number of its values. */
static size_t row_width(const um_kv_shape *s) { return um_mul((size_t)s->n_kv_heads, (size_t)s->head_dim); }

size_t um_ref_kv_bytes(const um_kv_shape *s) {
    return um_mul(um_mul((size_t)s->n_layers, (size_t)s->n_slots), um_mul(row_width(s), 2 * sizeof(float)));
}

size_t um_ref_kv_scratch_bytes(const um_kv_shape *s) {
    return um_mul((size_t)s->n_scratch_slots, um_mul(row_width(s), 2 * sizeof(float)));
}

um_status um_ref_kv_new(um_dev *dev, um_kv **out, const um_kv_shape *shape, um_err *err) {
    size_t bytes = um_ref_kv_bytes(shape) + um_ref_kv_scratch_bytes(shape), width = row_width(shape);
    bool distinct = shape->layout == UM_KV_DISTINCT;
    um_kv kv = {.shape = *shape, .stride = distinct ? width : 2 * width};
    um_status s = um_try_alloc(&kv.pool[0], distinct ? bytes / 2 : bytes, 64, "KV pages", err);
    if (!s && distinct) s = um_try_alloc(&kv.pool[1], bytes / 2, 64, "KV pages", err);
    *out = UM_NEW(um_kv);
    **out = kv;
    if (s) {
        um_ref_kv_free(dev, *out);
        *out = NULL;
        return s;
    }
    (*out)->key = (float *)kv.pool[0];
    (*out)->value = distinct ? (float *)kv.pool[1] : (*out)->key + width;
    return UM_OK;
}

void um_ref_kv_free(um_dev *dev, um_kv *kv) {
    (void)dev;
    for (int i = 0; kv && i < 2; i++) um_free(kv->pool[i]);
    um_free(kv);
}

size_t um_ref_kv_at(const um_kv *kv, int32_t layer, int64_t slot) {
    const um_kv_shape *s = &kv->shape;
    assert(layer >= 0 && layer < s->n_layers && slot >= 0 && slot < s->n_slots + s->n_scratch_slots);
    int64_t first = slot < s->n_slots ? layer * s->n_slots : (s->n_layers - 1) * s->n_slots;
    return (size_t)(first + slot) * kv->stride;
}

void um_ref_kv_copy(um_dev *dev, um_kv *kv, int32_t from_page, int32_t to_page, int32_t n) {
    (void)dev;
    const um_kv_shape *s = &kv->shape;
    size_t bytes = row_width(s) * sizeof(float);
    for (int32_t layer = 0; layer < s->n_layers; layer++) {
        for (int64_t i = 0; i < n; i++) {
            size_t from = um_ref_kv_at(kv, layer, (int64_t)from_page * s->page_size + i);
            size_t to = um_ref_kv_at(kv, layer, (int64_t)to_page * s->page_size + i);
            memcpy(kv->key + to, kv->key + from, bytes);
            memcpy(kv->value + to, kv->value + from, bytes);
        }
    }
}
