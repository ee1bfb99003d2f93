/* Any bytes as a safetensors file: the parser answers, and every tensor that it accepts lies inside the file. */
#include <stdlib.h>

#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static volatile uint8_t sink;

static void touch(const um_safetensors *s) {
    for (size_t i = 0; i < um_safetensors_count(s); i++) {
        const um_tensor *t = um_safetensors_at(s, i);
        size_t bytes = t->type == UM_DTYPE_OTHER ? 0 : um_dtype_size(t->type);
        for (int32_t d = 0; d < t->n_dims && d < 4; d++) bytes *= (size_t)t->dim[d];
        if (bytes && t->n_dims <= 4) sink = ((const uint8_t *)t->data)[0] ^ ((const uint8_t *)t->data)[bytes - 1];
        if (um_safetensors_find(s, t->name) != t) abort();
    }
}

static void parse(const uint8_t *data, size_t n) {
    um_safetensors *s = um_safetensors_new();
    um_err err;
    if (!um_safetensors_parse(s, data, n, "fuzz", &err)) touch(s);
    um_safetensors_close(s);
}

/* Once as it is, once as the header of a file with 64 bytes of data, so that the length need not be guessed. */
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
