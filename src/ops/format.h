/* format: how a checkpoint stores numbers. Plain numbers have a um_dtype. Every other encoding is a row of its own: a
 * um_format, which converts it to fp32. */
#ifndef UM_OPS_FORMAT_H
#define UM_OPS_FORMAT_H

#include "ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A format of stored numbers. Most formats divide each row into groups, which follow each other in memory. */
typedef struct um_format {
    const char *name;        /* "Q4_K" */
    int32_t elements, bytes; /* of a group; its elements are adjacent along a row */
    /* Converts one group, which may be unaligned, to `elements` numbers. The two must not overlap. */
    void (*to_f32)(const void *group, float *out);
    /* The type of products that suits a matrix in this format: UM_Q8 or UM_Q4. UM_F32: the device's dtype. */
    um_dtype product;
    /* For formats of another layout; NULL for groups that follow each other. `read` is um_tensor_read, and
     * `matrix_bytes` returns the bytes of a matrix. */
    void (*read)(const um_tensor *t, int64_t row, int64_t k, int64_t n, float *out);
    size_t (*matrix_bytes)(int64_t rows, int64_t in);
    /* For matrices of 8-bit floats (e4m3): stores the scales of blocks of UM_FORMAT_BLOCK rows and columns, out
     * [ceil(rows / UM_FORMAT_BLOCK), ceil(in / UM_FORMAT_BLOCK)]. Returns false when the matrix has no scales of this
     * kind. out NULL: only tells. NULL: no matrix of the format has them. */
    bool (*read_scales)(const um_tensor *t, float *out);
} um_format;
enum { UM_FORMAT_BLOCK = 128 };

/* ---- The formats of ggml (format_gguf.c) ---- */
/* Their results have the same bits as those of the package `gguf` of PyPI (tools/reference/gguf_vectors.py). */
enum { UM_FORMAT_ELEMENTS_MAX = 256, UM_FORMAT_BYTES_MAX = 210 }; /* the largest group */
extern const um_format um_format_q8_0, um_format_q4_0, um_format_q4_1, um_format_q5_0, um_format_q5_1, um_format_q2_k,
    um_format_q3_k, um_format_q4_k, um_format_q5_k, um_format_q6_k, um_format_iq4_nl, um_format_iq4_xs, um_format_mxfp4;
/* Returns the format with this number of a ggml type. Returns NULL for types that have none: F32, F16 and BF16, which
 * are a um_dtype, and types that the engine does not read. */
const um_format *um_format_gguf(uint32_t ggml_type);
/* Returns the name of any ggml type for messages: "IQ2_XS"; "unknown" for a number that ggml does not use. */
const char *um_format_gguf_name(uint32_t ggml_type);

/* ---- Tensors of a checkpoint (tensor.c) ---- */
/* Returns the format of t. Plain numbers are groups of one element. NULL: no operation reads the tensor. */
const um_format *um_tensor_format(const um_tensor *t);
/* Returns the number of elements of t, 1 for a scalar. */
size_t um_tensor_elements(const um_tensor *t);
/* Returns the length of a row, the last dimension; 1 for a scalar. */
int64_t um_tensor_in(const um_tensor *t);
/* Returns the bytes of the data of t, which has a format. */
size_t um_tensor_bytes(const um_tensor *t);
/* Converts the elements [k, k + n) of a row to fp32. Rows are counted over all matrices of a stack. k is a multiple of
 * the format's group, and so is n unless the row ends at k + n. Threads: any number at once. */
void um_tensor_read(const um_tensor *t, int64_t row, int64_t k, int64_t n, float *out);
/* Converts all elements of t to fp32. */
void um_tensor_to_f32(const um_tensor *t, float *out);
/* Returns matrix i of a stack [n, rows, in]. */
um_tensor um_tensor_slice(const um_tensor *stack, int64_t i);

#ifdef __cplusplus
}
#endif
#endif
