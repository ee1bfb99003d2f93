/* Weights: tensors of a checkpoint, packed once into panels of UM_PANEL rows (layout: kernels.h). */
#include "ops/cpu/dev.h"

#include "ops/quantize.h"

typedef struct pack_job {
    const um_tensor *part;
    int n_parts;
    um_weight *w;
} pack_job;

/* Returns element i of a tensor, whose data may be unaligned, as bf16. Rounds it unless it is stored in bf16. */
static uint16_t get_bf16(const um_tensor *t, size_t i) {
    uint16_t half;
    float wide;
    if (t->type == UM_F32) {
        memcpy(&wide, (const char *)t->data + i * sizeof wide, sizeof wide);
        return um_f32_to_bf16(wide);
    }
    memcpy(&half, (const char *)t->data + i * sizeof half, sizeof half);
    return t->type == UM_BF16 ? half : um_f32_to_bf16(um_f16_to_f32(half));
}

static float get_f32(const um_tensor *t, size_t i) {
    uint16_t half;
    float wide;
    if (t->type == UM_F32) {
        memcpy(&wide, (const char *)t->data + i * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&half, (const char *)t->data + i * sizeof half, sizeof half);
    return t->type == UM_BF16 ? um_bf16_to_f32(half) : um_f16_to_f32(half);
}

/* Returns the tensor that contains row `row` of the stacked parts. *at receives the index of the row's first element.
 */
static const um_tensor *find_row(const pack_job *j, int64_t row, size_t *at) {
    const um_tensor *t = j->part;
    for (; row >= t->dim[0]; t++) row -= t->dim[0];
    assert(t < j->part + j->n_parts);
    *at = (size_t)row * (size_t)j->w->in;
    return t;
}

static void pack_panel(void *arg, int panel, int thread) {
    (void)thread;
    const pack_job *j = (const pack_job *)arg;
    um_weight *w = j->w;
    unsigned char *to = w->panel + (size_t)panel * w->panel_bytes;
    for (int r = 0; r < UM_PANEL && panel * UM_PANEL + r < w->rows; r++) {
        size_t at;
        const um_tensor *t = find_row(j, (int64_t)panel * UM_PANEL + r, &at);
        for (size_t k = 0; k < (size_t)w->in; k++) {
            const size_t i = um_panel_at(w->type, (size_t)r, k);
            if (w->type == UM_F32) ((float *)to)[i] = get_f32(t, at + k);
            else ((uint16_t *)to)[i] = get_bf16(t, at + k);
        }
    }
}

/* Stores integer q of a row in the byte that it has alone, or with the row 16 before or behind it. */
static void put_integer(um_dtype type, unsigned char *byte, int row, int q) {
    if (type == UM_Q8) *byte = (unsigned char)(q + 128);
    else *byte = (unsigned char)(*byte | (q + 8) << (row < UM_PANEL / 2 ? 0 : 4));
}

/* Writes the groups of row r of a panel, which is zeroed. */
static void pack_groups(const um_weight *w, const um_tensor *t, size_t at, int r, unsigned char *group) {
    for (int k = 0; k < w->in; k += UM_QUANT_GROUP, at += UM_QUANT_GROUP, group += um_quant_panel_bytes(w->type)) {
        const int n = UM_MIN(w->in - k, UM_QUANT_GROUP);
        float x[UM_QUANT_GROUP];
        int8_t q[UM_QUANT_GROUP];
        for (int i = 0; i < n; i++) x[i] = get_f32(t, at + (size_t)i);
        um_quant_scales(w->type, group)[r] = um_quantize(w->type, x, n, q);
        for (int i = 0; i < UM_QUANT_GROUP; i++) put_integer(w->type, group + um_quant_at(w->type, r, i), r, q[i]);
    }
}

static void pack_quantized_panel(void *arg, int panel, int thread) {
    (void)thread;
    const pack_job *j = (const pack_job *)arg;
    unsigned char *to = j->w->panel + (size_t)panel * j->w->panel_bytes;
    for (int r = 0; r < UM_PANEL && panel * UM_PANEL + r < j->w->rows; r++) {
        size_t at;
        const um_tensor *t = find_row(j, (int64_t)panel * UM_PANEL + r, &at);
        pack_groups(j->w, t, at, r, to);
    }
}

/* Returns the element type of the panels: the type to which products round, else bf16 when all parts are stored in it,
 * else fp32. */
static um_dtype panel_type(um_dtype type, const um_tensor *part, int n_parts) {
    if (type != UM_F32) return type;
    for (int i = 0; i < n_parts; i++)
        if (part[i].type != UM_BF16) return UM_F32;
    return UM_BF16;
}

static size_t panel_bytes(um_dtype type, int64_t in) {
    enum { TILE = 2 * UM_TILE_WORDS };
    if (um_is_quantized(type)) return um_mul((size_t)UM_CEIL_DIV(in, UM_QUANT_GROUP), um_quant_panel_bytes(type));
    const size_t k = type == UM_F32 ? (size_t)in : (size_t)UM_CEIL_DIV(in, TILE) * TILE;
    return um_mul(k, UM_PANEL * um_dtype_size(type));
}

um_status um_cpu_weight(um_dev *dev, um_weight **out, const um_tensor *part, int n_parts, um_dtype type, um_err *err) {
    int64_t rows = 0, in = part[0].dim[1];
    for (int i = 0; i < n_parts; i++) {
        assert(part[i].n_dims == 2 && part[i].dim[1] == in);
        rows += part[i].dim[0];
    }
    assert(type == UM_F32 || um_is_quantized(type) || type == dev->config.dtype);
    assert(rows > 0 && rows < INT32_MAX - UM_PANEL && in > 0 && in < INT32_MAX);
    um_weight w = {.rows = (int32_t)rows, .in = (int32_t)in, .type = panel_type(type, part, n_parts)};
    w.exact = type == UM_F32;
    size_t n_panels = (size_t)UM_CEIL_DIV(rows, UM_PANEL);
    w.panel_bytes = panel_bytes(w.type, in);
    void *panels;
    um_status s = um_try_alloc(&panels, um_mul(w.panel_bytes, n_panels), 64, part[0].name, err);
    if (s) return s;
    w.panel = (unsigned char *)panels;
    *out = UM_NEW(um_weight);
    **out = w;
    pack_job j = {part, n_parts, *out};
    um_cpu_run(dev, um_is_quantized(type) ? pack_quantized_panel : pack_panel, &j, (int)n_panels,
               (double)rows * (double)in);
    return UM_OK;
}

void um_cpu_weight_free(um_dev *dev, um_weight *w) {
    (void)dev;
    if (w) um_free(w->panel);
    um_free(w);
}

size_t um_cpu_weight_bytes(const um_weight *w) { return w->panel_bytes * (size_t)UM_CEIL_DIV(w->rows, UM_PANEL); }
