/* Tensors of a checkpoint: sizes, and values as fp32. The reader of a file has checked that a tensor has at most
 * UM_LEN(dim) dimensions, that the number of its elements fits size_t, and that its rows are whole groups. */
#include "ops/format.h"

/* Elements that are converted together. Loops of this fixed length become vector instructions. */
enum { PIECE = 256 };

/* ---- Plain numbers ----------------------------------------------------------------------------------------------- */

static const um_format numbers[] = {
    [UM_F32] = {.name = "F32", .elements = 1, .bytes = 4},
    [UM_BF16] = {.name = "BF16", .elements = 1, .bytes = 2},
    [UM_F16] = {.name = "F16", .elements = 1, .bytes = 2},
};

static void widen_bf16(const uint16_t half[PIECE], float out[PIECE]) {
    uint32_t bits[PIECE];
    for (int i = 0; i < PIECE; i++) bits[i] = (uint32_t)half[i] << 16;
    memcpy(out, bits, sizeof bits);
}

/* Does um_f16_to_f32 for each element without branches. Multiplying by 2^112 corrects the exponent of normal and
 * subnormal numbers, and is exact. */
static void widen_f16(const uint16_t half[PIECE], float out[PIECE]) {
    uint32_t bits[PIECE], sized[PIECE];
    float size[PIECE];
    for (int i = 0; i < PIECE; i++) bits[i] = (uint32_t)(half[i] & 0x7fff) << 13;
    memcpy(size, bits, sizeof bits);
    for (int i = 0; i < PIECE; i++) size[i] *= 0x1p112f;
    memcpy(sized, size, sizeof sized);
    for (int i = 0; i < PIECE; i++) {
        const uint32_t finite = bits[i] < 31u << 23 ? sized[i] : bits[i] | 0x7f800000u;
        bits[i] = finite | (uint32_t)(half[i] & 0x8000) << 16;
    }
    memcpy(out, bits, sizeof bits);
}

static void read_numbers(const um_tensor *t, size_t first, size_t n, float *out) {
    uint16_t half[PIECE] = {0};
    float wide[PIECE];
    if (t->type == UM_F32) {
        memcpy(out, (const char *)t->data + first * sizeof *out, n * sizeof *out);
        return;
    }
    for (size_t at = 0, part; at < n; at += part) {
        part = UM_MIN(n - at, (size_t)PIECE);
        memcpy(half, (const char *)t->data + (first + at) * sizeof *half, part * sizeof *half);
        if (t->type == UM_BF16) widen_bf16(half, wide);
        else widen_f16(half, wide);
        memcpy(out + at, wide, part * sizeof *wide);
    }
}

/* ---- All formats ------------------------------------------------------------------------------------------------- */

const um_format *um_tensor_format(const um_tensor *t) {
    if (t->type == UM_DTYPE_OTHER) return t->format;
    assert((size_t)t->type < UM_LEN(numbers));
    return &numbers[t->type];
}

size_t um_tensor_elements(const um_tensor *t) {
    size_t n = 1;
    assert(t->n_dims >= 0 && t->n_dims <= (int32_t)UM_LEN(t->dim));
    for (int32_t i = 0; i < t->n_dims; i++) n = um_mul(n, (size_t)t->dim[i]);
    return n;
}

int64_t um_tensor_in(const um_tensor *t) { return t->n_dims ? t->dim[t->n_dims - 1] : 1; }

size_t um_tensor_bytes(const um_tensor *t) {
    const um_format *f = um_tensor_format(t);
    const size_t n = um_tensor_elements(t);
    if (!f->matrix_bytes) return um_mul(n / (size_t)f->elements, (size_t)f->bytes);
    const int64_t rows = t->n_dims > 1 ? t->dim[t->n_dims - 2] : 1, in = um_tensor_in(t);
    const size_t matrix = um_mul((size_t)rows, (size_t)in);
    return matrix ? um_mul(n / matrix, f->matrix_bytes(rows, in)) : 0;
}

void um_tensor_read(const um_tensor *t, int64_t row, int64_t k, int64_t n, float *out) {
    const um_format *f = um_tensor_format(t);
    const size_t first = (size_t)row * (size_t)um_tensor_in(t) + (size_t)k;
    if (t->type != UM_DTYPE_OTHER) {
        read_numbers(t, first, (size_t)n, out);
        return;
    }
    if (f->read) {
        f->read(t, row, k, n, out);
        return;
    }
    const char *group = (const char *)t->data + first / (size_t)f->elements * (size_t)f->bytes;
    for (int64_t i = 0; i < n; i += f->elements, group += f->bytes) f->to_f32(group, out + i);
}

void um_tensor_to_f32(const um_tensor *t, float *out) {
    const size_t n = um_tensor_elements(t), in = (size_t)um_tensor_in(t);
    for (size_t row = 0; row * in < n; row++) um_tensor_read(t, (int64_t)row, 0, (int64_t)in, out + row * in);
}

um_tensor um_tensor_slice(const um_tensor *stack, int64_t i) {
    um_tensor t = *stack;
    assert(stack->n_dims == 3);
    t.n_dims = 2;
    t.dim[0] = stack->dim[1];
    t.dim[1] = stack->dim[2];
    t.data = (const char *)stack->data + (size_t)i * um_tensor_bytes(&t);
    return t;
}
