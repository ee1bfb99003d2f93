/* Fuzzes packed folders: every element of an accepted tensor can be read, and its checksum can be computed. */
#include <stdlib.h>

#include "model/packed.h"

enum { DATA_BYTES = 8192, ELEMENTS_MAX = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static volatile float sink;

static void read_all(const um_tensor *t) {
    const size_t n = um_tensor_elements(t);
    if (!um_tensor_format(t) || !n || n > ELEMENTS_MAX) return;
    float *x = UM_NEW_ARRAY(float, n);
    um_tensor_to_f32(t, x);
    sink = x[n - 1];
    um_free(x);
}

static void touch(const um_store *s) {
    static um_pool *pool;
    um_err err;
    if (!pool && um_pool_new(&pool, 1, &err)) abort();
    for (size_t i = 0; i < um_store_count(s); i++) read_all(um_store_at(s, i));
    (void)um_store_verify(s, pool, &err);
}

/* Parses the input as the header of a file with DATA_BYTES of data. Its length is always right. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const size_t padded = UM_CEIL_DIV(n + 8, UM_PACKED_ALIGN) * UM_PACKED_ALIGN - 8;
    void *file;
    if (posix_memalign(&file, UM_PACKED_ALIGN, 8 + padded + DATA_BYTES)) return 0;
    uint8_t *p = file;
    memset(p, ' ', 8 + padded + DATA_BYTES);
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)(padded >> (8 * i));
    if (n) memcpy(p + 8, data, n);
    um_store *s = um_store_new();
    um_err err;
    if (!um_packed_parse(s, p, 8 + padded + DATA_BYTES, "fuzz", &err)) touch(s);
    um_store_close(s);
    free(file);
    return 0;
}
