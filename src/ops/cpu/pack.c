/* Weights: tensors of a checkpoint, packed once into panels of UM_PANEL rows (layout: kernels.h). */
#include "ops/cpu/dev.h"

#include "ops/quantize.h"

typedef struct pack_job {
    const um_tensor *part;
    int n_parts;
    um_weight *w;
} pack_job;

/* Elements of a row that are packed together. Those of the rows of a panel, and their place in the panel, stay in the
 * caches. */
enum { PIECE = 256 };

/* ---- Reading a tensor -------------------------------------------------------------------------------------------- */

/* A row of the stacked parts: its tensor, and the index of its first element there. */
typedef struct row_at {
    const um_tensor *t;
    size_t first;
} row_at;

/* Returns the address of element i of a row, which may be unaligned. */
static const char *element_at(const row_at *row, size_t i) {
    return (const char *)row->t->data + (row->first + i) * um_dtype_size(row->t->type);
}

/* Copies the elements [k, k + n) of a row as fp32; n <= PIECE. Loops of fixed length become vector instructions. */
static void read_f32(const row_at *row, size_t k, int n, float out[PIECE]) {
    uint16_t half[PIECE] = {0};
    uint32_t bits[PIECE];
    if (row->t->type == UM_F32) {
        memcpy(out, element_at(row, k), (size_t)n * sizeof *out);
        return;
    }
    memcpy(half, element_at(row, k), (size_t)n * sizeof *half);
    if (row->t->type == UM_F16) {
        for (int i = 0; i < n; i++) out[i] = um_f16_to_f32(half[i]);
        return;
    }
    for (int i = 0; i < PIECE; i++) bits[i] = (uint32_t)half[i] << 16;
    memcpy(out, bits, sizeof bits);
}

/* Does the same as bf16. Rounds unless the row is stored in bf16. */
static void read_bf16(const row_at *row, size_t k, int n, uint16_t *out) {
    float wide[PIECE];
    if (row->t->type == UM_BF16) {
        memcpy(out, element_at(row, k), (size_t)n * sizeof *out);
        return;
    }
    read_f32(row, k, n, wide);
    for (int i = 0; i < n; i++) out[i] = um_f32_to_bf16(wide[i]);
}

/* Sets the rows of a panel and returns their number. */
static int find_rows(const pack_job *j, int panel, row_at row[UM_PANEL]) {
    const int n = UM_MIN(UM_PANEL, j->w->rows - panel * UM_PANEL);
    for (int r = 0; r < n; r++) {
        int64_t at = (int64_t)panel * UM_PANEL + r;
        row[r].t = j->part;
        for (; at >= row[r].t->dim[0]; row[r].t++) at -= row[r].t->dim[0];
        row[r].first = (size_t)at * (size_t)j->w->in;
    }
    return n;
}

/* ---- Panels of floats -------------------------------------------------------------------------------------------- */

static void pack_f32(const row_at *row, int r, size_t k, int n, float *panel) {
    float x[PIECE];
    read_f32(row, k, n, x);
    for (int i = 0; i < n; i++) panel[(k + (size_t)i) * UM_PANEL + (size_t)r] = x[i];
}

static void pack_bf16(const row_at *row, int r, size_t k, int n, uint32_t *panel) {
    union {
        uint16_t element[PIECE];
        uint32_t pair[PIECE / 2];
    } x;
    read_bf16(row, k, n, x.element);
    if (n % 2) x.element[n] = 0;
    for (int i = 0; i < UM_CEIL_DIV(n, 2); i++) panel[(k / 2 + (size_t)i) * UM_PANEL + (size_t)r] = x.pair[i];
}

/* Rows and elements that are not there are zeros. */
static void pack_panel(void *arg, int panel, int thread) {
    (void)thread;
    const pack_job *j = (const pack_job *)arg;
    const um_weight *w = j->w;
    void *to = w->panel + (size_t)panel * w->panel_bytes;
    row_at row[UM_PANEL];
    const int n_rows = find_rows(j, panel, row);
    memset(to, 0, w->panel_bytes);
    for (int32_t k = 0; k < w->in; k += PIECE) {
        const int n = UM_MIN(PIECE, w->in - k);
        for (int r = 0; r < n_rows; r++) {
            if (w->type == UM_F32) pack_f32(&row[r], r, (size_t)k, n, to);
            else pack_bf16(&row[r], r, (size_t)k, n, to);
        }
    }
}

/* ---- Panels of integers ------------------------------------------------------------------------------------------ */

/* Writes the integers q [UM_PANEL, PIECE] from `at` on as a group, four of a row at a time. */
static void put_group(um_dtype type, int8_t q[UM_PANEL][PIECE], int at, uint32_t *group) {
    const int rows = type == UM_Q8 ? UM_PANEL : UM_PANEL / 2;
    for (int i = 0; i < UM_QUANT_GROUP; i += 4)
        for (int r = 0; r < rows; r++, group++) {
            uint32_t low, high;
            memcpy(&low, &q[r][at + i], sizeof low);
            if (type == UM_Q8) {
                *group = low ^ 0x80808080u; /* adds 128 to each byte */
                continue;
            }
            memcpy(&high, &q[r + rows][at + i], sizeof high);
            *group = ((low & 0x0f0f0f0fu) ^ 0x08080808u) | ((high & 0x0f0f0f0fu) ^ 0x08080808u) << 4;
        }
}

static void pack_integers(void *arg, int panel, int thread) {
    (void)thread;
    const pack_job *j = (const pack_job *)arg;
    const um_weight *w = j->w;
    unsigned char *group = w->panel + (size_t)panel * w->panel_bytes;
    const size_t bytes = um_quant_panel_bytes(w->type);
    int8_t q[UM_PANEL][PIECE] = {0};
    row_at row[UM_PANEL];
    const int n_rows = find_rows(j, panel, row);
    for (int32_t k = 0; k < w->in; k += PIECE) {
        const int n = UM_MIN(PIECE, w->in - k), n_groups = UM_CEIL_DIV(n, UM_QUANT_GROUP);
        for (int r = 0; r < UM_PANEL; r++) {
            float x[PIECE];
            if (r < n_rows) read_f32(&row[r], (size_t)k, n, x);
            for (int g = 0, at = 0; g < n_groups; g++, at += UM_QUANT_GROUP)
                um_quant_scales(w->type, group + (size_t)g * bytes)[r] =
                    r < n_rows ? um_quantize(w->type, x + at, UM_MIN(UM_QUANT_GROUP, n - at), &q[r][at]) : 0;
        }
        for (int g = 0; g < n_groups; g++, group += bytes) put_group(w->type, q, g * UM_QUANT_GROUP, (void *)group);
    }
}

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

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
    um_status s = um_try_alloc_unset(&panels, um_mul(w.panel_bytes, n_panels), 64, part[0].name, err);
    if (s) return s;
    w.panel = (unsigned char *)panels;
    *out = UM_NEW(um_weight);
    **out = w;
    pack_job j = {part, n_parts, *out};
    um_cpu_run(dev, um_is_quantized(type) ? pack_integers : pack_panel, &j, (int)n_panels, (double)rows * (double)in);
    return UM_OK;
}

void um_cpu_weight_free(um_dev *dev, um_weight *w) {
    (void)dev;
    if (w) um_free(w->panel);
    um_free(w);
}

size_t um_cpu_weight_bytes(const um_weight *w) { return w->panel_bytes * (size_t)UM_CEIL_DIV(w->rows, UM_PANEL); }
