/* Fuzzes quantised checkpoints. The input is the text of config.json, a line break, the header of a safetensors file, a
 * line break, and the data. All elements of small tensors must be readable, and so must the last ones of large ones. */
#include <jansson.h>
#include <stdlib.h>

#include "model/quantized.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { ROWS_MAX = 64, COLS_MAX = 4096 };

static volatile uint8_t sink;

/* Reads the elements from column k on, in an array of just their number. */
static void read_row(const um_tensor *t, int64_t row, int64_t k) {
    const int64_t n = UM_MIN(t->dim[1] - k, COLS_MAX);
    float *x = malloc((size_t)n * sizeof *x);
    if (!x) return;
    um_tensor_read(t, row, k, n, x);
    free(x);
}

static void read_tensor(const um_tensor *t) {
    const size_t bytes = um_tensor_bytes(t);
    if (!bytes || t->dim[0] < 1 || t->dim[1] < 1) abort();
    sink = ((const uint8_t *)t->data)[0] ^ ((const uint8_t *)t->data)[bytes - 1];
    for (int64_t row = 0; row < UM_MIN(t->dim[0], ROWS_MAX); row++) read_row(t, row, 0);
    read_row(t, t->dim[0] - 1, t->dim[1] - 1);
    read_row(t, t->dim[0] - 1, UM_MAX(t->dim[1] - 100, 0));
}

static void join(um_store *s, const char *text, size_t n) {
    um_err err;
    json_t *config = NULL;
    if (um_json_parse(&config, text, n, "config.json", &err)) return;
    if (!um_quantized_join(s, config, "config.json", &err))
        for (size_t i = 0; i < um_store_count(s); i++) {
            const um_tensor *t = um_store_at(s, i);
            if (um_store_find(s, t->name) != t) abort();
            if (t->type == UM_DTYPE_OTHER && t->format) read_tensor(t);
        }
    json_decref(config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const uint8_t *header = n ? memchr(data, '\n', n) : NULL;
    if (!header) return 0;
    const size_t config_n = (size_t)(header++ - data), rest = n - config_n - 1;
    uint8_t *break_at = rest ? memchr(header, '\n', rest) : NULL;
    const size_t header_n = break_at ? (size_t)(break_at - header) : rest;
    const size_t data_n = break_at ? rest - header_n - 1 : 0, file_n = 8 + header_n + data_n;
    uint8_t *file = malloc(file_n);
    um_store *s = um_store_new();
    um_err err;
    if (!file) abort();
    for (int i = 0; i < 8; i++) file[i] = (uint8_t)((uint64_t)header_n >> (8 * i));
    memcpy(file + 8, header, header_n);
    if (data_n) memcpy(file + 8 + header_n, break_at + 1, data_n);
    if (!um_safetensors_parse(s, file, file_n, "fuzz", NULL, &err)) join(s, (const char *)data, config_n);
    um_store_close(s);
    free(file);
    return 0;
}
