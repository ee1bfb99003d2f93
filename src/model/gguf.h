/* gguf: reads GGUF files: their metadata and the list of their tensors. A GGUF file is a checkpoint in a single file,
 * with the configuration and the tokenizer as metadata. Versions 2 and 3 in little-endian are read.
 * Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 *
 * A file is mapped, never copied. It is untrusted: every number is checked against the size of the file before a
 * pointer is computed from it.
 *
 * Only the model room uses this header. Any thread may call the functions that take a const um_gguf. */
#ifndef UM_MODEL_GGUF_H
#define UM_MODEL_GGUF_H

#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_gguf um_gguf;

/* The types of metadata values, with the numbers of the format. */
typedef enum {
    UM_GGUF_U8,
    UM_GGUF_I8,
    UM_GGUF_U16,
    UM_GGUF_I16,
    UM_GGUF_U32,
    UM_GGUF_I32,
    UM_GGUF_F32,
    UM_GGUF_BOOL,
    UM_GGUF_STRING,
    UM_GGUF_ARRAY,
    UM_GGUF_U64,
    UM_GGUF_I64,
    UM_GGUF_F64
} um_gguf_type;

/* A tensor of the file. Its dimensions are in the order of safetensors: elements are adjacent along the last one. All
 * dimensions are at least 1. A tensor without dimensions has one element. */
typedef struct um_gguf_tensor {
    const char *name; /* valid UTF-8, not empty */
    uint32_t type;    /* the number of its ggml type: F32, F16, BF16, an integer, F64, or one of um_format_gguf */
    int32_t n_dims;
    int64_t dim[4];      /* the last one is a multiple of the format's group */
    const uint8_t *data; /* in the map; aligned within the file to general.alignment */
    size_t bytes;        /* the size of the data */
} um_gguf_tensor;

/* Maps the file and checks its header. um_gguf_close releases *out; *out is NULL on an error. Errors: UM_ENOENT,
 * UM_EIO; UM_EPARSE, whose message names the file and the key or tensor; UM_EUNSUPPORTED for another version, a
 * big-endian file, a part of a split file, an array of arrays and a tensor of a type that unmask does not read;
 * UM_ELIMIT for too many keys, strings or tensors. */
um_status um_gguf_open(um_gguf **out, const char *path, um_err *err);
/* Does the same for a file in memory, which must stay valid until um_gguf_close. `path` is its name in messages. */
um_status um_gguf_parse(um_gguf **out, const uint8_t *data, size_t n, const char *path, um_err *err);
void um_gguf_close(um_gguf *g); /* g may be NULL */
const char *um_gguf_path(const um_gguf *g);
/* Hands the map to the caller, who unmaps it. Until then the tensors and strings of g stay valid. */
um_map um_gguf_take_map(um_gguf *g);

/* Tensors. All pointers are valid until um_gguf_close. */
size_t um_gguf_count(const um_gguf *g);
const um_gguf_tensor *um_gguf_at(const um_gguf *g, size_t i); /* i below the count, in the order of the file */
const um_gguf_tensor *um_gguf_find(const um_gguf *g, const char *name); /* or NULL */

/* Metadata. Each function returns whether the file has the key with a value of a fitting type. Otherwise *out keeps its
 * value. um_gguf_int reads integers of all widths, if the value fits int64_t. um_gguf_float reads floats and integers
 * of all widths. */
bool um_gguf_int(const um_gguf *g, const char *key, int64_t *out);
bool um_gguf_float(const um_gguf *g, const char *key, double *out);
bool um_gguf_bool(const um_gguf *g, const char *key, bool *out);
/* The string points into the map. It may hold any bytes. */
bool um_gguf_string(const um_gguf *g, const char *key, um_str *out);
/* Stores the type of the elements and their number. The type is never UM_GGUF_ARRAY. */
bool um_gguf_array(const um_gguf *g, const char *key, um_gguf_type *type, size_t *n);
/* Element i of an array of strings, in constant time. The key must be such an array, and i below its length. */
um_str um_gguf_array_string(const um_gguf *g, const char *key, size_t i);
/* Element i of an array of integers or bools, with the same conditions. A u64 above INT64_MAX becomes INT64_MAX. */
int64_t um_gguf_array_int(const um_gguf *g, const char *key, size_t i);

#ifdef __cplusplus
}
#endif
#endif
