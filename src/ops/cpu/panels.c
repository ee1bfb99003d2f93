/* Packs tensors of a checkpoint into panels of UM_PANEL rows (layout: kernels.h), and reads panels. */
#include "ops/panels.h"

#include "ops/cpu/dev.h"
#include "ops/quantize.h"

/* Elements of a row that are packed together. Those of the rows of a panel, and their place in the panel, stay in the
 * caches. A multiple of the group of every format. */
enum { PIECE = 256 };

_Static_assert((int)UM_PANEL_ROWS == (int)UM_PANEL, "panels of files are those of the kernels");

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

size_t um_panel_bytes(um_dtype type, int64_t in) {
    enum { TILE = 2 * UM_TILE_WORDS };
    if (um_is_quantized(type)) return um_mul((size_t)UM_CEIL_DIV(in, UM_QUANT_GROUP), um_quant_panel_bytes(type));
    const size_t k = type == UM_F32 ? (size_t)in : (size_t)UM_CEIL_DIV(in, TILE) * TILE;
    return um_mul(k, UM_PANEL * um_dtype_size(type));
}

size_t um_panels_bytes(um_dtype type, int64_t rows, int64_t in) {
    return um_mul((size_t)UM_CEIL_DIV(rows, UM_PANEL), um_panel_bytes(type, in));
}

um_dtype um_panels_choose(um_dtype type, const um_tensor *part, int n_parts) {
    if (type != UM_F32) return type;
    for (int i = 0; i < n_parts; i++)
        if (part[i].type != UM_BF16 && part[i].format != um_panels_format(UM_BF16)) return UM_F32;
    return UM_BF16;
}

/* ---- Places in a panel ------------------------------------------------------------------------------------------- */

/* Returns the index of the byte that holds element i of row `row` in a group of a q8 or q4 panel. */
static size_t byte_at(um_dtype type, int row, int i) {
    const int rows = type == UM_Q8 ? UM_PANEL : UM_PANEL / 2;
    return (size_t)((i / 4 * rows + row % rows) * 4 + i % 4);
}

/* Returns the scales [UM_PANEL] of a group of a q8 or q4 panel. */
static uint16_t *scales_of(um_dtype type, const unsigned char *group) {
    return (uint16_t *)(uintptr_t)(group + um_quant_panel_bytes(type)) - UM_PANEL;
}

bool um_panels_are_finite(um_dtype type, const void *panels, int n, int64_t in) {
    const unsigned char *group = panels;
    if (!um_is_quantized(type)) return true;
    const size_t bytes = um_quant_panel_bytes(type), n_groups = (size_t)n * (size_t)UM_CEIL_DIV(in, UM_QUANT_GROUP);
    for (size_t i = 0; i < n_groups; i++, group += bytes)
        for (int r = 0; r < UM_PANEL; r++)
            if ((scales_of(type, group)[r] & 0x7c00) == 0x7c00) return false;
    return true;
}

/* ---- Reading panels ---------------------------------------------------------------------------------------------- */

/* Reads n <= UM_QUANT_GROUP elements of a row of a group. */
static void read_group(um_dtype type, const unsigned char *group, int r, int n, float *out) {
    const float scale = um_f16_to_f32(scales_of(type, group)[r]);
    for (int i = 0; i < n; i++) {
        const int byte = group[byte_at(type, r, i)];
        out[i] = scale * (float)(type == UM_Q8 ? byte - 128 : (byte >> (r < UM_PANEL / 2 ? 0 : 4) & 15) - 8);
    }
}

void um_panel_read(um_dtype type, const void *panel, int r, int64_t k, int64_t n, float *out) {
    if (um_is_quantized(type)) {
        const size_t bytes = um_quant_panel_bytes(type);
        const unsigned char *group = (const unsigned char *)panel + (size_t)(k / UM_QUANT_GROUP) * bytes;
        for (int64_t i = 0; i < n; i += UM_QUANT_GROUP, group += bytes)
            read_group(type, group, r, (int)UM_MIN(n - i, UM_QUANT_GROUP), out + i);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const size_t at = um_panel_at(type, (size_t)r, (size_t)(k + i));
        out[i] = type == UM_F32 ? ((const float *)panel)[at] : um_bf16_to_f32(((const uint16_t *)panel)[at]);
    }
}

static void read_tensor(um_dtype type, const um_tensor *t, int64_t row, int64_t k, int64_t n, float *out) {
    const int64_t rows = t->n_dims > 1 ? t->dim[t->n_dims - 2] : 1, in = um_tensor_in(t), r = row % rows;
    const char *matrix = (const char *)t->data + (size_t)(row / rows) * um_panels_bytes(type, rows, in);
    const char *panel = matrix + (size_t)(r / UM_PANEL) * um_panel_bytes(type, in);
    um_panel_read(type, panel, (int)(r % UM_PANEL), k, n, out);
}

/* ---- The formats ------------------------------------------------------------------------------------------------- */

#define PANEL_FORMAT(id, type)                                                                                         \
    static void id##_read(const um_tensor *t, int64_t row, int64_t k, int64_t n, float *out) {                         \
        read_tensor(type, t, row, k, n, out);                                                                          \
    }                                                                                                                  \
    static size_t id##_bytes(int64_t rows, int64_t in) { return um_panels_bytes(type, rows, in); }
PANEL_FORMAT(f32, UM_F32)
PANEL_FORMAT(bf16, UM_BF16)
PANEL_FORMAT(q8, UM_Q8)
PANEL_FORMAT(q4, UM_Q4)

static const um_format formats[] = {
    [UM_F32] = {.name = "f32 panels", .elements = 1, .product = UM_F32, .read = f32_read, .matrix_bytes = f32_bytes},
    [UM_BF16] =
        {.name = "bf16 panels", .elements = 1, .product = UM_F32, .read = bf16_read, .matrix_bytes = bf16_bytes},
    [UM_Q8] =
        {.name = "q8 panels", .elements = UM_QUANT_GROUP, .product = UM_Q8, .read = q8_read, .matrix_bytes = q8_bytes},
    [UM_Q4] =
        {.name = "q4 panels", .elements = UM_QUANT_GROUP, .product = UM_Q4, .read = q4_read, .matrix_bytes = q4_bytes},
};

const um_format *um_panels_format(um_dtype type) {
    assert((size_t)type < UM_LEN(formats) && formats[type].name);
    return &formats[type];
}

bool um_panels_type(const um_tensor *t, um_dtype *type) {
    for (size_t i = 0; i < UM_LEN(formats); i++) {
        if (!t->format || t->format != &formats[i]) continue;
        *type = (um_dtype)i;
        return true;
    }
    return false;
}

/* ---- Reading parts ----------------------------------------------------------------------------------------------- */

/* A row of the stacked parts. */
typedef struct row_at {
    const um_tensor *t;
    int64_t row;
} row_at;

/* Copies the elements [k, k + n) of a row as bf16; n <= PIECE. Rounds unless the row is stored in bf16. */
static void read_bf16(const row_at *at, int64_t k, int n, uint16_t *out) {
    float wide[PIECE] = {0};
    if (at->t->type == UM_BF16) {
        const size_t first = (size_t)at->row * (size_t)um_tensor_in(at->t) + (size_t)k;
        memcpy(out, (const char *)at->t->data + first * sizeof *out, (size_t)n * sizeof *out);
        return;
    }
    um_tensor_read(at->t, at->row, k, n, wide);
    for (int i = 0; i < n; i++) out[i] = um_f32_to_bf16(wide[i]);
}

/* Finds the rows of a panel and returns their number. */
static int find_rows(const um_packing *p, int panel, row_at at[UM_PANEL]) {
    const int n = (int)UM_MIN((int64_t)UM_PANEL, p->rows - (int64_t)panel * UM_PANEL);
    for (int r = 0; r < n; r++) {
        int64_t row = (int64_t)panel * UM_PANEL + r;
        const um_tensor *t = p->part;
        for (; row >= t->dim[0]; t++) row -= t->dim[0];
        at[r] = (row_at){t, row};
    }
    return n;
}

/* ---- Panels of floats -------------------------------------------------------------------------------------------- */

static void pack_f32(const row_at *at, int r, int64_t k, int n, float *panel) {
    float x[PIECE];
    um_tensor_read(at->t, at->row, k, n, x);
    for (int i = 0; i < n; i++) panel[(size_t)(k + i) * UM_PANEL + (size_t)r] = x[i];
}

static void pack_bf16(const row_at *at, int r, int64_t k, int n, uint32_t *panel) {
    union {
        uint16_t element[PIECE];
        uint32_t pair[PIECE / 2];
    } x;
    read_bf16(at, k, n, x.element);
    if (n % 2) x.element[n] = 0;
    for (int i = 0; i < UM_CEIL_DIV(n, 2); i++) panel[(size_t)(k / 2 + i) * UM_PANEL + (size_t)r] = x.pair[i];
}

static void write_floats(const um_packing *p, const row_at *at, int n_rows, void *to) {
    memset(to, 0, um_panel_bytes(p->type, p->in));
    for (int64_t k = 0; k < p->in; k += PIECE) {
        const int n = (int)UM_MIN((int64_t)PIECE, p->in - k);
        for (int r = 0; r < n_rows; r++) {
            if (p->type == UM_F32) pack_f32(&at[r], r, k, n, to);
            else pack_bf16(&at[r], r, k, n, to);
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

static void write_integers(const um_packing *p, const row_at *at, int n_rows, unsigned char *group) {
    const size_t bytes = um_quant_panel_bytes(p->type);
    int8_t q[UM_PANEL][PIECE] = {0};
    for (int64_t k = 0; k < p->in; k += PIECE) {
        const int n = (int)UM_MIN((int64_t)PIECE, p->in - k), n_groups = UM_CEIL_DIV(n, UM_QUANT_GROUP);
        for (int r = 0; r < UM_PANEL; r++) {
            float x[PIECE];
            if (r < n_rows) um_tensor_read(at[r].t, at[r].row, k, n, x);
            for (int g = 0, i = 0; g < n_groups; g++, i += UM_QUANT_GROUP)
                scales_of(p->type, group + (size_t)g * bytes)[r] =
                    r < n_rows ? um_quantize(p->type, x + i, UM_MIN(UM_QUANT_GROUP, n - i), &q[r][i]) : 0;
        }
        for (int g = 0; g < n_groups; g++, group += bytes) put_group(p->type, q, g * UM_QUANT_GROUP, (void *)group);
    }
}

/* ---- A matrix ---------------------------------------------------------------------------------------------------- */

um_packing um_packing_of(const um_tensor *part, int n_parts, um_dtype type) {
    um_packing p = {part, n_parts, um_panels_choose(type, part, n_parts), 0, part[0].dim[1]};
    for (int i = 0; i < n_parts; i++) {
        assert(part[i].n_dims == 2 && part[i].dim[1] == p.in);
        p.rows += part[i].dim[0];
    }
    assert(p.rows > 0 && p.rows < INT32_MAX - UM_PANEL && p.in > 0 && p.in < INT32_MAX);
    return p;
}

int um_packing_panels(const um_packing *p) { return (int)UM_CEIL_DIV(p->rows, UM_PANEL); }

void um_packing_write(const um_packing *p, int i, void *to) {
    row_at at[UM_PANEL];
    const int n_rows = find_rows(p, i, at);
    if (um_is_quantized(p->type)) write_integers(p, at, n_rows, to);
    else write_floats(p, at, n_rows, to);
}

const void *um_packing_in_place(const um_packing *p) {
    const char *next = p->part[0].data;
    if ((uintptr_t)next % 64) return NULL;
    for (int i = 0; i < p->n_parts; i++) {
        const um_tensor *t = &p->part[i];
        const bool is_whole = t->dim[0] % UM_PANEL == 0 || i + 1 == p->n_parts;
        if (!t->stays || t->format != um_panels_format(p->type) || t->data != next || !is_whole) return NULL;
        next += um_panels_bytes(p->type, t->dim[0], p->in);
    }
    return p->part[0].data;
}
