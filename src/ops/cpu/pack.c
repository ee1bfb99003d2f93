/* Weights: tensors of a checkpoint, packed once into panels of UM_PANEL rows (layout: kernels.h). */
#include "ops/cpu/dev.h"

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

/* Returns the element type of the panels: bf16 when products are rounded to it or when all parts are stored in it, else
 * fp32. */
static um_dtype panel_type(um_dtype type, const um_tensor *part, int n_parts) {
    if (type == UM_BF16) return UM_BF16;
    for (int i = 0; i < n_parts; i++)
        if (part[i].type != UM_BF16) return UM_F32;
    return UM_BF16;
}

um_status um_cpu_weight(um_dev *dev, um_weight **out, const um_tensor *part, int n_parts, um_dtype type, um_err *err) {
    int64_t rows = 0, in = part[0].dim[1];
    for (int i = 0; i < n_parts; i++) {
        assert(part[i].n_dims == 2 && part[i].dim[1] == in);
        rows += part[i].dim[0];
    }
    assert(type == UM_F32 || type == dev->config.dtype);
    assert(rows > 0 && rows < INT32_MAX - UM_PANEL && in > 0 && in < INT32_MAX);
    um_weight w = {.rows = (int32_t)rows, .in = (int32_t)in, .type = panel_type(type, part, n_parts)};
    w.exact = type == UM_F32;
    enum { TILE = 2 * UM_TILE_WORDS };
    size_t k = w.type == UM_F32 ? (size_t)in : (size_t)UM_CEIL_DIV(in, TILE) * TILE;
    size_t n_panels = (size_t)UM_CEIL_DIV(rows, UM_PANEL);
    w.panel_bytes = um_mul(k, UM_PANEL * um_dtype_size(w.type));
    void *panels;
    um_status s = um_try_alloc(&panels, um_mul(w.panel_bytes, n_panels), 64, part[0].name, err);
    if (s) return s;
    w.panel = (unsigned char *)panels;
    *out = UM_NEW(um_weight);
    **out = w;
    pack_job j = {part, n_parts, *out};
    um_cpu_run(dev, pack_panel, &j, (int)n_panels, (double)rows * (double)in);
    return UM_OK;
}

void um_cpu_weight_free(um_dev *dev, um_weight *w) {
    (void)dev;
    if (w) um_free(w->panel);
    um_free(w);
}

size_t um_cpu_weight_bytes(const um_weight *w) { return w->panel_bytes * (size_t)UM_CEIL_DIV(w->rows, UM_PANEL); }
