/* Fuzzes GGUF files. In an accepted file all values and the data of all tensors can be read, every tensor is found by
 * its name, and the groups of a tensor can be converted. */
#include <stdlib.h>

#include "model/gguf.h"
#include "ops/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static volatile uint8_t sink;

/* Converts the first and the last group of a tensor. */
static void convert(const um_gguf_tensor *t) {
    const um_format *f = um_format_gguf(t->type);
    float out[UM_FORMAT_ELEMENTS_MAX];
    if (!f) return;
    if (t->bytes % (size_t)f->bytes) abort();
    f->to_f32(t->data, out);
    f->to_f32(t->data + t->bytes - f->bytes, out);
    sink = ((const uint8_t *)out)[0];
}

static void touch_tensors(const um_gguf *g) {
    for (size_t i = 0; i < um_gguf_count(g); i++) {
        const um_gguf_tensor *t = um_gguf_at(g, i);
        size_t elements = 1;
        for (int32_t k = 0; k < t->n_dims; k++) elements = um_mul(elements, (size_t)t->dim[k]);
        if (!elements || !t->bytes || um_gguf_find(g, t->name) != t) abort();
        sink = t->data[0] ^ t->data[t->bytes - 1];
        convert(t);
    }
}

static void touch_string(um_str s) {
    if (s.n) sink = (uint8_t)(s.p[0] ^ s.p[s.n - 1]);
}

static void touch_array(const um_gguf *g, const char *key) {
    um_gguf_type type;
    size_t n;
    if (!um_gguf_array(g, key, &type, &n)) return;
    for (size_t i = 0; i < n; i++) {
        if (type == UM_GGUF_STRING) touch_string(um_gguf_array_string(g, key, i));
        else if (type != UM_GGUF_F32 && type != UM_GGUF_F64) sink = (uint8_t)um_gguf_array_int(g, key, i);
    }
}

/* Reads the keys that the seeds use: one letter each. */
static void touch_values(const um_gguf *g) {
    for (char letter = 'a'; letter <= 'z'; letter++) {
        const char key[] = {letter, '\0'};
        int64_t v;
        double d;
        bool is_on;
        um_str s = {0};
        if (um_gguf_int(g, key, &v) && !um_gguf_float(g, key, &d)) abort();
        if (um_gguf_bool(g, key, &is_on)) sink = is_on;
        if (um_gguf_string(g, key, &s)) touch_string(s);
        touch_array(g, key);
    }
}

static void parse(const uint8_t *data, size_t n) {
    um_gguf *g;
    um_err err;
    if (um_gguf_parse(&g, data, n, "fuzz", &err)) return;
    touch_tensors(g);
    touch_values(g);
    um_gguf_close(g);
}

/* Parses the input as a file, and as the pairs and tensors of a file with 1024 bytes of data. In the second file the
 * start is always right: the first two bytes of the input are the numbers of tensors and pairs. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const uint8_t start[24] = {'G', 'G', 'U', 'F', 3};
    parse(data, n);
    if (n < 2) return 0;
    uint8_t *file = calloc(1, sizeof start + n - 2 + 1024);
    if (!file) return 0;
    memcpy(file, start, sizeof start);
    file[8] = data[0];
    file[16] = data[1];
    memcpy(file + sizeof start, data + 2, n - 2);
    parse(file, sizeof start + n - 2 + 1024);
    free(file);
    return 0;
}
