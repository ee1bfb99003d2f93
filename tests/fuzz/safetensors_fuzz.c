/* Fuzzes safetensors files. The data of every accepted tensor must be inside the file, and its elements can be counted
 * and its shape printed without overflow. */
#include <stdlib.h>

#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static volatile uint8_t sink;

static void touch(const um_store *s) {
    size_t total = 0;
    for (size_t i = 0; i < um_store_count(s); i++) {
        const um_tensor *t = um_store_at(s, i);
        const size_t n = um_tensor_elements(t);
        const size_t bytes = t->type == UM_DTYPE_OTHER ? 0 : um_mul(n, um_dtype_size(t->type));
        char shape[UM_SHAPE_TEXT];
        um_shape_print(shape, t->dim, t->n_dims);
        if (n > INT64_MAX - total) abort();
        total += n;
        if (n && t->type == UM_DTYPE_OTHER) sink = ((const uint8_t *)t->data)[0];
        if (bytes) sink = ((const uint8_t *)t->data)[0] ^ ((const uint8_t *)t->data)[bytes - 1];
        if (um_store_find(s, t->name) != t) abort();
    }
}

static void parse(const uint8_t *data, size_t n) {
    um_store *s = um_store_new();
    um_err err;
    if (!um_safetensors_parse(s, data, n, "fuzz", NULL, &err)) touch(s);
    um_store_close(s);
}

/* Parses the input as a file, and as the header of a file with 64 bytes of data. In the second file the length of the
 * header is always right, so the fuzzer does not have to guess it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    parse(data, n);
    uint8_t *file = calloc(1, n + 8 + 64);
    if (!file) return 0;
    for (int i = 0; i < 8; i++) file[i] = (uint8_t)(n >> (8 * i));
    if (n) memcpy(file + 8, data, n);
    parse(file, n + 8 + 64);
    free(file);
    return 0;
}
