/* Writes GGUF files in memory, for tests. The caller states the counts, offsets and types, so that they can be wrong.
 */
#ifndef TESTS_GGUF_FILE_H
#define TESTS_GGUF_FILE_H

#include "model/gguf.h"

/* The numbers of ggml types that the tests use. */
enum { GGML_F32 = 0, GGML_F16 = 1, GGML_Q4_0 = 2, GGML_Q8_0 = 8, GGML_Q4_K = 12, GGML_IQ2_XS = 17, GGML_I64 = 27 };

/* Appends the n lowest bytes of a number. */
static inline void gguf_put(um_buf *b, uint64_t v, size_t n) {
    for (; n; n--, v >>= 8) um_buf_putc(b, (char)(v & 255));
}

static inline void gguf_put_bytes(um_buf *b, const void *data, size_t n) {
    gguf_put(b, n, 8);
    um_buf_append(b, data, n);
}

static inline void gguf_put_text(um_buf *b, const char *text) { gguf_put_bytes(b, text, strlen(text)); }

static inline void gguf_start(um_buf *b, uint32_t version, uint64_t n_tensors, uint64_t n_pairs) {
    um_buf_append(b, "GGUF", 4);
    gguf_put(b, version, 4);
    gguf_put(b, n_tensors, 8);
    gguf_put(b, n_pairs, 8);
}

/* Append a key with the type of its value. The value follows. */
static inline void gguf_put_key(um_buf *b, const char *key, uint32_t type) {
    gguf_put_text(b, key);
    gguf_put(b, type, 4);
}

static inline void gguf_put_array(um_buf *b, const char *key, uint32_t type, uint64_t n) {
    gguf_put_key(b, key, UM_GGUF_ARRAY);
    gguf_put(b, type, 4);
    gguf_put(b, n, 8);
}

static inline void gguf_put_u32(um_buf *b, const char *key, uint32_t v) {
    gguf_put_key(b, key, UM_GGUF_U32);
    gguf_put(b, v, 4);
}

static inline void gguf_put_string(um_buf *b, const char *key, const char *v) {
    gguf_put_key(b, key, UM_GGUF_STRING);
    gguf_put_text(b, v);
}

/* Appends a row of the list of tensors. dim is in the order of um_gguf_tensor, which the file reverses. */
static inline void gguf_put_tensor(um_buf *b, const char *name, uint32_t n_dims, const uint64_t *dim, uint32_t type,
                                   uint64_t offset) {
    gguf_put_text(b, name);
    gguf_put(b, n_dims, 4);
    for (uint32_t i = n_dims; i-- > 0;) gguf_put(b, dim[i], 8);
    gguf_put(b, type, 4);
    gguf_put(b, offset, 8);
}

/* Appends a row for a tensor with one dimension. */
static inline void gguf_put_vector(um_buf *b, const char *name, uint64_t n, uint32_t type, uint64_t offset) {
    gguf_put_tensor(b, name, 1, &n, type, offset);
}

/* Pads the file to the alignment and appends n bytes of data: 0, 1, 2, ... */
static inline void gguf_finish(um_buf *b, size_t alignment, size_t n) {
    while (b->len % alignment) um_buf_putc(b, 0);
    for (size_t i = 0; i < n; i++) um_buf_putc(b, (char)(i & 255));
}

#endif
