/* The layout of 8-bit floats (e4m3): a matrix [out, in] is a tensor X of these floats, and X_scale_inv or X_scale, by
 * which they are multiplied in spite of the first name. There is one scale for the matrix, for each row [out] or
 * [out, 1], or for each block of rows and columns. A stack of matrices [n, out, in] has one scale, or scales with a
 * dimension more: [n], [n, 1] or [n, 1, 1]; [n, out] or [n, out, 1]; or blocks. Scales of activations (X's module with
 * ".input_scale") are not needed: a device that rounds activations computes scales of its own. */
#include "model/quantized.h"

#include "model/model.h"

enum { PIECE = 256 };

typedef struct scales {
    um_dtype type;
    const void *data;   /* [ceil(out / rows), per_row] */
    int64_t rows, cols; /* of a block */
    int64_t per_row;
    const char *codes;  /* of the first matrix */
    int64_t out;        /* rows of a matrix */
    int64_t per_matrix; /* scales of a matrix of a stack; 0: the matrices share them */
} scales;

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* Does um_f8_to_f32 for each element without branches. The conversion of the mantissa to fp32 gives the subnormal
 * numbers. */
static void widen(const uint8_t code[PIECE], float out[PIECE]) {
    uint32_t bits[PIECE], tiny_bits[PIECE];
    float tiny[PIECE];
    for (int i = 0; i < PIECE; i++) tiny[i] = (float)(code[i] & 7) * 0x1p-9f;
    memcpy(tiny_bits, tiny, sizeof tiny);
    for (int i = 0; i < PIECE; i++) {
        const uint32_t size = code[i] & 0x7f, normal = (size << 20) + (120u << 23);
        const uint32_t finite = size < 8 ? tiny_bits[i] : normal;
        bits[i] = (size == 0x7f ? 0x7fc00000 : finite) | (uint32_t)(code[i] & 0x80) << 24;
    }
    memcpy(out, bits, sizeof bits);
}

/* Returns the number of the first scale of a row. */
static size_t scale_at(const um_tensor *t, int64_t row) {
    const scales *s = t->extra;
    const int64_t matrix = ((const char *)t->data - s->codes) / (s->out * t->dim[t->n_dims - 1]) + row / s->out;
    return (size_t)(matrix * s->per_matrix + row % s->out / s->rows * s->per_row);
}

static void read(const um_tensor *t, int64_t row, int64_t k, int64_t n, float *out) {
    const scales *s = t->extra;
    const uint8_t *codes = (const uint8_t *)t->data + (size_t)row * (size_t)um_tensor_in(t) + (size_t)k;
    const size_t first = scale_at(t, row);
    uint8_t code[PIECE] = {0};
    float scale[PIECE] = {0}, value[PIECE];
    for (int64_t at = 0, part; at < n; at += part) {
        part = UM_MIN(n - at, PIECE);
        memcpy(code, codes + at, (size_t)part);
        widen(code, value);
        for (int64_t i = 0; i < part;) {
            const int64_t block = (k + at + i) / s->cols, end = UM_MIN(part, (block + 1) * s->cols - k - at);
            const float v = um_quantized_number(s->type, s->data, first + (size_t)block);
            um_quantized_fill(scale + i, end - i, v);
            i = end;
        }
        for (int i = 0; i < PIECE; i++) value[i] *= scale[i];
        memcpy(out + at, value, (size_t)part * sizeof *out);
    }
}

static size_t bytes_of(int64_t rows, int64_t in) { return um_mul((size_t)rows, (size_t)in); }

static bool read_scales(const um_tensor *t, float *out) {
    const scales *s = t->extra;
    if (s->rows != UM_FORMAT_BLOCK || s->cols != UM_FORMAT_BLOCK || t->n_dims != 2) return false;
    for (int64_t row = 0; out && row < t->dim[0]; row += UM_FORMAT_BLOCK)
        for (int64_t i = 0; i < s->per_row; i++)
            *out++ = um_quantized_number(s->type, s->data, scale_at(t, row) + (size_t)i);
    return true;
}

static const um_format format = {
    .name = "FP8", .elements = 1, .product = UM_Q8, .read = read, .matrix_bytes = bytes_of, .read_scales = read_scales};

/* ---- Joining ----------------------------------------------------------------------------------------------------- */

static bool has_shape(const um_tensor *t, int64_t rows, int64_t cols) {
    return t->n_dims == 2 && t->dim[0] == rows && t->dim[1] == cols;
}

/* Finds the rows and columns that share a scale from the shape of t, the scales of a matrix [out, in]. */
static um_status set_blocks(scales *s, const um_joining *j, const um_tensor *t, int64_t out, int64_t in, um_err *err) {
    const um_quantized *q = j->q;
    const bool are_floats = t->type != UM_DTYPE_OTHER;
    *s = (scales){t->type, t->data, out, in, 1, (const char *)j->main->data, out, 0};
    if (are_floats && um_tensor_elements(t) == 1) return UM_OK;
    if (are_floats && (has_shape(t, out, 1) || (t->n_dims == 1 && t->dim[0] == out))) {
        s->rows = 1;
        return UM_OK;
    }
    if (!q->block_rows) return um_joining_check(j, t, NULL, out, 1, err);
    s->rows = q->block_rows;
    s->cols = q->block_cols;
    s->per_row = UM_CEIL_DIV(in, s->cols);
    return um_joining_check(j, t, NULL, UM_CEIL_DIV(out, s->rows), s->per_row, err);
}

static um_status fail_stack(const um_joining *j, const um_tensor *t, const int64_t want[3], um_err *err) {
    char wanted[UM_SHAPE_TEXT], found[UM_SHAPE_TEXT];
    um_shape_print(wanted, want, 3);
    um_shape_print(found, t->dim, t->n_dims);
    return um_fail(err, UM_EMODEL, "tensor %s in %s: expected floats %s beside %s, found %s %s", t->name,
                   um_store_file(j->s, t), wanted, j->main->name, um_store_type(t), found);
}

/* Tells whether t has the dimensions [n, a, b], of which the last ones may be missing if they are 1. */
static bool has_stack_shape(const um_tensor *t, int64_t n, int64_t a, int64_t b) {
    const int64_t dim[] = {n, a, b};
    const int32_t least = b > 1 ? 3 : a > 1 ? 2 : 1;
    if (t->type == UM_DTYPE_OTHER || t->n_dims < least || t->n_dims > 3) return false;
    for (int32_t i = 0; i < t->n_dims; i++)
        if (t->dim[i] != dim[i]) return false;
    return true;
}

/* Does the same as set_blocks for a stack of matrices. */
static um_status set_stack_blocks(scales *s, const um_joining *j, const um_tensor *t, um_err *err) {
    const int64_t n = j->main->dim[0], out = j->main->dim[1], in = j->main->dim[2];
    const um_quantized *q = j->q;
    const int64_t rows = q->block_rows ? UM_CEIL_DIV(out, q->block_rows) : out,
                  cols = q->block_rows ? UM_CEIL_DIV(in, q->block_cols) : 1;
    *s = (scales){t->type, t->data, out, in, 1, (const char *)j->main->data, out, 1};
    if (has_stack_shape(t, n, 1, 1)) return UM_OK;
    if (has_stack_shape(t, n, out, 1)) {
        s->rows = 1;
        s->per_matrix = out;
    } else if (t->type != UM_DTYPE_OTHER && um_tensor_elements(t) == 1) {
        s->per_matrix = 0;
    } else if (q->block_rows && has_stack_shape(t, n, rows, cols)) {
        *s = (scales){t->type, t->data, q->block_rows, q->block_cols, cols, s->codes, out, rows * cols};
    } else return fail_stack(j, t, (const int64_t[]){n, rows, cols}, err);
    return UM_OK;
}

/* Drops the scale of activations that belongs to X.weight. */
static void drop_input_scale(const um_joining *j) {
    static const char ending[] = ".weight";
    const size_t n = sizeof ending - 1;
    um_joining module = *j;
    if (module.module.n < n || memcmp(module.module.p + module.module.n - n, ending, n)) return;
    module.module.n -= n;
    um_joining_find(&module, ".input_scale");
}

static um_status join(const um_joining *j, um_tensor *to, um_err *err) {
    const um_tensor *t = um_joining_find(j, "_scale");
    const um_tensor *m = j->main;
    const bool is_stack = m->n_dims == 3 && m->dim[0] && m->dim[1] && m->dim[2];
    scales found;
    um_status s = is_stack ? UM_OK : um_joining_check_main(j, err);
    if (!s && !t) s = um_joining_need(j, "_scale_inv", &t, err);
    if (!s) s = is_stack ? set_stack_blocks(&found, j, t, err) : set_blocks(&found, j, t, m->dim[0], m->dim[1], err);
    if (s) return s;
    scales *kept = um_arena_alloc(um_store_arena(j->s), sizeof *kept);
    *kept = found;
    *to = (um_tensor){.type = UM_DTYPE_OTHER, .n_dims = m->n_dims, .data = m->data, .format = &format, .extra = kept};
    memcpy(to->dim, m->dim, sizeof to->dim);
    drop_input_scale(j);
    return UM_OK;
}

const um_quantized_layout um_quantized_fp8 = {NULL, "F8_E4M3", join};
