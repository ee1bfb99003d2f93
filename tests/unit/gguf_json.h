/* GGUF files in memory, made of two JSON objects: the metadata, and the shapes of the tensors. */
#ifndef TESTS_GGUF_JSON_H
#define TESTS_GGUF_JSON_H

#include <jansson.h>

#include "gguf_file.h"
#include "model/gguf_model.h"

typedef struct gguf_json {
    um_buf bytes;
    um_gguf *g;
} gguf_json;

/* Returns the type of a value: integers are u32 or, when negative, i32. */
static inline um_gguf_type gguf_json_type(const json_t *v) {
    if (json_is_boolean(v)) return UM_GGUF_BOOL;
    if (json_is_string(v)) return UM_GGUF_STRING;
    if (json_is_real(v)) return UM_GGUF_F32;
    return json_integer_value(v) < 0 ? UM_GGUF_I32 : UM_GGUF_U32;
}

static inline void gguf_json_put_value(um_buf *b, const json_t *v) {
    const float f = (float)json_real_value(v);
    if (json_is_boolean(v)) gguf_put(b, json_is_true(v), 1);
    else if (json_is_string(v)) gguf_put_bytes(b, json_string_value(v), json_string_length(v));
    else if (json_is_real(v)) um_buf_append(b, &f, sizeof f);
    else gguf_put(b, (uint64_t)json_integer_value(v), 4);
}

static inline void gguf_json_put_pair(um_buf *b, const char *key, const json_t *v) {
    const json_t *item;
    size_t i;
    if (!json_is_array(v)) {
        gguf_put_key(b, key, gguf_json_type(v));
        gguf_json_put_value(b, v);
        return;
    }
    gguf_put_array(b, key, gguf_json_type(json_array_get(v, 0)), json_array_size(v));
    json_array_foreach(v, i, item) gguf_json_put_value(b, item);
}

/* Appends a row of the list of tensors. Returns the bytes of its data with padding. */
static inline size_t gguf_json_put_tensor(um_buf *b, const char *name, const json_t *shape, size_t offset) {
    uint64_t dim[4] = {0};
    size_t i, n = sizeof(float);
    const json_t *v;
    json_array_foreach(shape, i, v) n *= (size_t)(dim[i] = (uint64_t)json_integer_value(v));
    gguf_put_tensor(b, name, (uint32_t)json_array_size(shape), dim, GGML_F32, offset);
    return (n + 31) / 32 * 32;
}

/* Opens a file with this metadata. `tensors` has for each name its dimensions, the contiguous one last; all are F32.
 * Either may be NULL. gguf_json_close releases the result. */
static inline gguf_json gguf_json_open(const json_t *metadata, const json_t *tensors) {
    gguf_json f = {0};
    um_err err;
    const char *key;
    json_t *v;
    size_t data = 0;
    gguf_start(&f.bytes, 3, json_object_size(tensors), json_object_size(metadata));
    json_object_foreach((json_t *)(uintptr_t)metadata, key, v) gguf_json_put_pair(&f.bytes, key, v);
    json_object_foreach((json_t *)(uintptr_t)tensors, key, v) data += gguf_json_put_tensor(&f.bytes, key, v, data);
    gguf_finish(&f.bytes, 32, data);
    if (um_gguf_parse(&f.g, (const uint8_t *)f.bytes.data, f.bytes.len, "model.gguf", &err)) fail_msg("%s", err.msg);
    return f;
}

static inline void gguf_json_close(gguf_json *f) {
    um_gguf_close(f->g);
    um_buf_free(&f->bytes);
}

#endif
