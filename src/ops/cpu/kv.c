/* The memory of keys and values: layout, copies, and reading tiles.
 *
 * A unit is UM_PANEL slots of one layer and KV head. Its keys are one panel: a row is a slot, and k runs over the dims
 * of the head. Its values are panels of UM_PANEL dims: a row is a dim, and k runs over the slots. So both products of
 * attention use the kernels of the linear layers without transposing.
 *
 * With 8-bit elements, panels have the layout of bf16 panels with one byte per element. The scales of the slots follow
 * the keys and the values. Bytes are widened exactly to bf16 and multiplied by the bf16 kernels. The scale of a key is
 * then applied to its score and the scale of a value to its probability, in fp32. */
#include "ops/cpu/dev.h"

static um_kv lay_out(const um_kv_shape *s) {
    um_kv kv = {.shape = *s, .n_units = UM_CEIL_DIV(s->n_slots, UM_PANEL)};
    size_t d = (size_t)s->head_dim, size = um_dtype_size(s->type);
    size_t scales = s->type == UM_F8 ? UM_PANEL * sizeof(float) : 0;
    assert(s->type == UM_F32 || s->type == UM_BF16 || s->type == UM_F8);
    /* Slot s has index s % UM_PANEL in its unit, also in scratch, which may start inside of a unit. */
    if (s->n_scratch_slots)
        kv.n_scratch_units = UM_CEIL_DIV(s->n_slots + s->n_scratch_slots, UM_PANEL) - s->n_slots / UM_PANEL;
    kv.key_panel_bytes = (s->type == UM_F32 ? d : d + d % 2) * UM_PANEL * size;
    kv.value_panel_bytes = UM_PANEL * UM_PANEL * size;
    kv.key_bytes = kv.key_panel_bytes + scales;
    kv.value_bytes = UM_CEIL_DIV(d, UM_PANEL) * kv.value_panel_bytes + scales;
    bool distinct = s->layout == UM_KV_DISTINCT;
    kv.key_stride = distinct ? kv.key_bytes : kv.key_bytes + kv.value_bytes;
    kv.value_stride = distinct ? kv.value_bytes : kv.key_stride;
    return kv;
}

/* Returns the number of units of all layers, without scratch. */
static size_t count_units(const um_kv *kv) {
    return um_mul(um_mul((size_t)kv->shape.n_layers, (size_t)kv->shape.n_kv_heads), (size_t)kv->n_units);
}

static size_t count_scratch_units(const um_kv *kv) {
    return um_mul((size_t)kv->shape.n_kv_heads, (size_t)kv->n_scratch_units);
}

size_t um_cpu_kv_bytes(const um_kv_shape *shape) {
    um_kv kv = lay_out(shape);
    return um_mul(count_units(&kv), kv.key_bytes + kv.value_bytes);
}

size_t um_cpu_kv_scratch_bytes(const um_kv_shape *shape) {
    um_kv kv = lay_out(shape);
    return um_mul(count_scratch_units(&kv), kv.key_bytes + kv.value_bytes);
}

um_status um_cpu_kv_new(um_dev *dev, um_kv **out, const um_kv_shape *shape, um_err *err) {
    um_kv kv = lay_out(shape);
    size_t n = count_units(&kv) + count_scratch_units(&kv);
    bool distinct = shape->layout == UM_KV_DISTINCT;
    um_status s = um_cpu_alloc(dev, &kv.pool[0], um_mul(n, kv.key_stride), "KV pages", err);
    if (!s && distinct) s = um_cpu_alloc(dev, &kv.pool[1], um_mul(n, kv.value_stride), "KV pages", err);
    *out = UM_NEW(um_kv);
    **out = kv;
    if (s) {
        um_cpu_kv_free(dev, *out);
        *out = NULL;
        return s;
    }
    (*out)->key = (unsigned char *)kv.pool[0];
    (*out)->value = distinct ? (unsigned char *)kv.pool[1] : (*out)->key + kv.key_bytes;
    return UM_OK;
}

void um_cpu_kv_free(um_dev *dev, um_kv *kv) {
    (void)dev;
    for (int i = 0; kv && i < 2; i++) um_free(kv->pool[i]);
    um_free(kv);
}

um_unit um_kv_unit(const um_kv *kv, int32_t layer, int32_t head, int64_t slot) {
    const um_kv_shape *s = &kv->shape;
    assert(layer >= 0 && layer < s->n_layers && head >= 0 && head < s->n_kv_heads);
    assert(slot >= 0 && slot < s->n_slots + s->n_scratch_slots);
    int64_t unit = slot / UM_PANEL;
    if (slot < s->n_slots) unit += ((int64_t)layer * s->n_kv_heads + head) * kv->n_units;
    else /* scratch units follow the units of all layers */
        unit += (int64_t)s->n_layers * s->n_kv_heads * kv->n_units + head * kv->n_scratch_units - s->n_slots / UM_PANEL;
    return (um_unit){kv->key + (size_t)unit * kv->key_stride, kv->value + (size_t)unit * kv->value_stride};
}

/* ---- Copying ----------------------------------------------------------------------------------------------------- */

static void copy(um_dtype type, unsigned char *to, size_t to_at, const unsigned char *from, size_t from_at) {
    if (type == UM_F32) ((float *)to)[to_at] = ((const float *)from)[from_at];
    else if (type == UM_BF16) ((uint16_t *)to)[to_at] = ((const uint16_t *)from)[from_at];
    else to[to_at] = from[from_at];
}

/* Copies key and value of one slot. */
static void copy_slot(const um_kv *kv, um_unit to, size_t to_lane, um_unit from, size_t from_lane) {
    um_dtype type = kv->shape.type;
    for (size_t i = 0; i < (size_t)kv->shape.head_dim; i++) {
        size_t panel = i / UM_PANEL * kv->value_panel_bytes, row = i % UM_PANEL;
        copy(type, to.key, um_panel_at(type, to_lane, i), from.key, um_panel_at(type, from_lane, i));
        copy(type, to.value + panel, um_panel_at(type, row, to_lane), from.value + panel,
             um_panel_at(type, row, from_lane));
    }
    if (type != UM_F8) return;
    um_key_scales(kv, to)[to_lane] = um_key_scales(kv, from)[from_lane];
    um_value_scales(kv, to)[to_lane] = um_value_scales(kv, from)[from_lane];
}

void um_kv_move(um_kv *kv, int32_t layer, int32_t head, int64_t from, int64_t to) {
    copy_slot(kv, um_kv_unit(kv, layer, head, to), (size_t)to % UM_PANEL, um_kv_unit(kv, layer, head, from),
              (size_t)from % UM_PANEL);
}

typedef struct copy_job {
    um_kv *kv;
    int64_t from, to; /* slots */
    int32_t n;
} copy_job;

/* Copies the slots of one layer and KV head: whole units if both pages are aligned to units, else slot by slot. */
static void copy_task(void *arg, int task, int thread) {
    (void)thread;
    const copy_job *j = (const copy_job *)arg;
    um_kv *kv = j->kv;
    int32_t layer = task / kv->shape.n_kv_heads, head = task % kv->shape.n_kv_heads, i = 0;
    bool aligned = j->from % UM_PANEL == 0 && j->to % UM_PANEL == 0;
    for (; aligned && i + UM_PANEL <= j->n; i += UM_PANEL) {
        um_unit to = um_kv_unit(kv, layer, head, j->to + i), from = um_kv_unit(kv, layer, head, j->from + i);
        memcpy(to.key, from.key, kv->key_bytes);
        memcpy(to.value, from.value, kv->value_bytes);
    }
    for (; i < j->n; i++) um_kv_move(kv, layer, head, j->from + i, j->to + i);
}

void um_cpu_kv_copy(um_dev *dev, um_kv *kv, int32_t from_page, int32_t to_page, int32_t n) {
    const um_kv_shape *s = &kv->shape;
    copy_job j = {kv, (int64_t)from_page * s->page_size, (int64_t)to_page * s->page_size, n};
    assert(n <= s->page_size && from_page != to_page);
    assert(UM_MAX(j.from, j.to) + s->page_size <= s->n_slots);
    um_cpu_run(dev, copy_task, &j, s->n_layers * s->n_kv_heads, 2.0 * n * s->n_layers * s->n_kv_heads * s->head_dim);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* Copies the slots [lo, hi) of a tile to a unit at `to`, as if they were adjacent, and sets its other slots to zero. */
static um_unit collect(const um_kv *kv, unsigned char *to, int32_t layer, int32_t head, const int32_t *page,
                       int32_t tile, int32_t lo, int32_t hi) {
    um_unit unit = {to, to + kv->key_bytes};
    memset(to, 0, kv->key_bytes + kv->value_bytes);
    for (int32_t lane = lo; lane < hi; lane++) {
        int64_t slot = um_slot_of(page, kv->shape.page_size, tile + lane);
        copy_slot(kv, unit, (size_t)lane, um_kv_unit(kv, layer, head, slot), (size_t)slot % UM_PANEL);
    }
    return unit;
}

/* Widens an 8-bit unit to a bf16 unit at `key`. Slots outside of [lo, hi) may contain anything, so their scales become
 * zero. */
static um_kv_tile widen(const um_kv *kv, uint32_t *key, float *scale, const um_kernels *k, um_unit unit, int32_t lo,
                        int32_t hi) {
    size_t keys = kv->key_panel_bytes, values = kv->value_bytes - UM_PANEL * sizeof(float);
    uint32_t *value = key + keys / 2;
    float *value_scale = scale + UM_GROUP_KEYS;
    size_t n = (size_t)(hi - lo) * sizeof(float);
    k->widen_f8(unit.key, (int)(keys / 2), key);
    k->widen_f8(unit.value, (int)(values / 2), value);
    memset(scale, 0, UM_PANEL * sizeof(float));
    memset(value_scale, 0, UM_PANEL * sizeof(float));
    memcpy(scale + lo, um_key_scales(kv, unit) + lo, n);
    memcpy(value_scale + lo, um_value_scales(kv, unit) + lo, n);
    return (um_kv_tile){(unsigned char *)key, (unsigned char *)value, UM_PANEL * UM_PANEL * sizeof(uint16_t), scale,
                        value_scale};
}

/* Copies the bf16 values of a unit and sets the slots outside of [lo, hi) to zero. */
static void trim_values(const um_kv *kv, const uint32_t *value, int32_t lo, int32_t hi, uint32_t *to) {
    int32_t n_panels = UM_CEIL_DIV(kv->shape.head_dim, UM_PANEL);
    for (int32_t row = 0; row < n_panels * UM_PANEL / 2; row++, value += UM_PANEL, to += UM_PANEL) {
        int32_t even = row % (UM_PANEL / 2) * 2, odd = even + 1;
        uint32_t kept = (even >= lo && even < hi ? 0xFFFFu : 0) | (odd >= lo && odd < hi ? 0xFFFF0000u : 0);
        for (int i = 0; i < UM_PANEL; i++) to[i] = value[i] & kept;
    }
}

um_kv_tile um_kv_find(const um_dev *dev, const um_kv *kv, um_thread *t, int copy, int32_t layer, int32_t head,
                      const int32_t *page, int32_t tile, int32_t lo, int32_t hi, bool whole) {
    const int32_t page_size = kv->shape.page_size;
    const um_dtype type = kv->shape.type;
    const bool is_unit = page_size % UM_PANEL == 0;
    const bool needs_no_zeros = whole ? lo == 0 && hi == UM_PANEL : lo % 2 == 0 && hi % 2 == 0;
    const size_t elements = um_copied_elements(dev->config.max_head_dim) * (size_t)copy;
    unsigned char *to = (unsigned char *)t->unit + elements * sizeof(float);
    um_unit unit = is_unit ? um_kv_unit(kv, layer, head, um_slot_of(page, page_size, tile))
                           : collect(kv, to, layer, head, page, tile, lo, hi);
    um_kv_tile found = {unit.key, unit.value, kv->value_panel_bytes, NULL, NULL};
    if (type == UM_F8)
        found = widen(kv, (uint32_t *)t->wide + elements / 2, t->scale + copy * UM_PANEL, dev->k, unit, lo, hi);
    if (!is_unit || needs_no_zeros || type == UM_F32) return found;
    trim_values(kv, (const uint32_t *)found.value, lo, hi, (uint32_t *)to);
    found.value = to;
    return found;
}
