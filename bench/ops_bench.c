/* Times the operations of a backend: numbers only, no pass or fail.
 *
 *   ops_bench [backend] [threads] [instruction set]        (default: cpu, one per core, the best)
 *
 * In the timed window: the operation as the forward pass calls it, packing of activations included. Not in it: packing
 * of weights, filling of KV. Weights and KV are cycled through copies of 256 MiB together, so that large shapes come
 * from memory as in a model. A point is the median of REPS windows of WINDOW_SECONDS; spread is (max - min) / median.
 * GF/s counts 2 operations per multiply-add; GB/s counts the bytes of weights, of keys and values, or of the
 * activations (norm, gate, rope_kv without its rotation) once. */
#include <stdlib.h>

#include "ops/cpu/cpu.h"
#include "ops/ops.h"

enum { REPS = 5, COPIES_MAX = 64, V_BENCH = 32768, TOKENS_MAX = 512 };
#define WINDOW_SECONDS 0.06
#define CYCLE_BYTES    ((size_t)256 << 20)

static const um_ops *ops;
static um_dev *dev;

static void stop(const um_err *err) {
    fprintf(stderr, "ops_bench: %s\n", err->msg);
    exit(1);
}

static float *random_floats(size_t n) {
    static uint64_t counter;
    void *p;
    um_err err;
    if (ops->buffer(dev, &p, n * sizeof(float), "inputs", &err)) stop(&err);
    for (size_t i = 0; i < n; i++) ((float *)p)[i] = (float)(2 * um_rng_uniform(1, counter++) - 1);
    return (float *)p;
}

/* ---- Timing ---- */

typedef void (*op_fn)(void *arg, int round);

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Times op and prints one line. */
static void report(const char *name, const char *shape, op_fn op, void *arg, double flops, double bytes) {
    double seconds[REPS];
    int round = 0;
    op(arg, round++);
    for (int r = 0; r < REPS; r++) {
        int n = 0;
        double begin = um_now(), now;
        do {
            op(arg, round++);
            n++;
        } while ((now = um_now()) - begin < WINDOW_SECONDS);
        seconds[r] = (now - begin) / n;
    }
    qsort(seconds, REPS, sizeof *seconds, by_value);
    double median = seconds[REPS / 2], spread = (seconds[REPS - 1] - seconds[0]) / median;
    printf("%-10s %-44s %10.1f us  %4.0f %%  %8.1f GF/s %8.1f GB/s\n", name, shape, median * 1e6, spread * 100,
           flops / median * 1e-9, bytes / median * 1e-9);
}

/* ---- Linear ---- */

typedef struct linear_bench {
    um_weight *w[COPIES_MAX];
    int n_copies, n_tokens;
    float *x, *y;
} linear_bench;

static um_weight *random_weight(um_dtype type, int64_t rows, int64_t in) {
    size_t n = (size_t)(rows * in);
    um_err err;
    um_weight *w;
    char *data = (char *)um_alloc(n * um_dtype_size(type));
    for (size_t i = 0; i < n; i++) {
        float v = (float)(i * 2654435761u % 1024) / 512 - 1;
        if (type == UM_F32) ((float *)data)[i] = v;
        else ((uint16_t *)data)[i] = um_f32_to_bf16(v);
    }
    um_tensor t = {"bench", type, 2, {rows, in}, data};
    if (ops->weight(dev, &w, &t, 1, t.type == UM_BF16 ? UM_BF16 : UM_F32, &err)) stop(&err);
    um_free(data);
    return w;
}

static void run_linear(void *arg, int round) {
    linear_bench *b = (linear_bench *)arg;
    ops->linear(dev, b->w[round % b->n_copies], NULL, b->x, b->n_tokens, false, b->y);
}

static void bench_linear(um_dtype type, int32_t in, int32_t out) {
    static const int tokens[] = {1, 4, 8, 32, 256};
    linear_bench b = {.x = random_floats((size_t)TOKENS_MAX * (size_t)in),
                      .y = random_floats(TOKENS_MAX * (size_t)out)};
    size_t bytes = (size_t)in * (size_t)out * um_dtype_size(type);
    b.n_copies = (int)UM_MIN(UM_MAX(CYCLE_BYTES / bytes, 1), COPIES_MAX);
    for (int i = 0; i < b.n_copies; i++) b.w[i] = random_weight(type, out, in);
    for (size_t i = 0; i < UM_LEN(tokens); i++) {
        char shape[64];
        b.n_tokens = tokens[i];
        snprintf(shape, sizeof shape, "%s %d -> %d, T=%d", um_dtype_name(type), in, out, b.n_tokens);
        report("linear", shape, run_linear, &b, 2.0 * b.n_tokens * in * out, (double)bytes);
    }
    for (int i = 0; i < b.n_copies; i++) ops->weight_free(dev, b.w[i]);
    ops->buffer_free(dev, b.x);
    ops->buffer_free(dev, b.y);
}

/* ---- Attention ---- */

enum { PAGE = 32, LAYERS = 8 };

typedef struct attention_bench {
    um_kv *kv;
    um_rope_kv rope;
    um_attention a;
    um_batch batch;
    um_span span;
} attention_bench;

static void run_attention(void *arg, int round) {
    attention_bench *b = (attention_bench *)arg;
    b->a.layer = round % LAYERS;
    ops->attention(dev, b->kv, &b->a);
}

static void run_rope(void *arg, int round) {
    attention_bench *b = (attention_bench *)arg;
    b->rope.layer = round % LAYERS;
    ops->rope_kv(dev, b->kv, &b->rope);
}

static void bench_attention(um_dtype type, int32_t heads, int32_t kv_heads, int32_t d, int32_t n, int32_t n_keys) {
    um_kv_shape shape = {LAYERS, kv_heads, d, PAGE, n_keys, type};
    attention_bench b = {.span = {0, n, NULL, {0, n_keys}}};
    um_err err;
    if (ops->kv_new(dev, &b.kv, &shape, &err)) stop(&err);
    int32_t *page = UM_NEW_ARRAY(int32_t, (size_t)n_keys), *index = UM_NEW_ARRAY(int32_t, (size_t)n_keys);
    int32_t *seen_end = UM_NEW_ARRAY(int32_t, (size_t)n);
    for (int32_t i = 0; i < n_keys; i++) page[i] = i, index[i] = i;
    for (int32_t i = 0; i < n; i++) seen_end[i] = n_keys;
    size_t width = (size_t)(heads + 2 * kv_heads) * (size_t)d;
    float *qkv = random_floats((size_t)n_keys * width), *out = random_floats((size_t)n * (size_t)(heads * d));
    b.rope = (um_rope_kv){0, n_keys, heads, kv_heads, d, 0, qkv, NULL, NULL, 1e-6f, 0, qkv, qkv, index, index};
    for (int32_t layer = 0; layer < LAYERS; layer++) run_rope(&b, layer);
    b.span.page = page;
    b.batch = (um_batch){.n_tokens = n, .n_spans = 1, .span = &b.span, .seen_end = seen_end};
    b.a = (um_attention){0, heads, kv_heads, d, PAGE, (int32_t)width, qkv, out, 0.1f, &b.batch};
    char text[64];
    b.rope.n_tokens = n;
    snprintf(text, sizeof text, "%s %d/%d heads of %d, T=%d", um_dtype_name(type), heads, kv_heads, d, n);
    report("rope_kv", text, run_rope, &b, 0, (double)n * (double)width * sizeof(float));
    snprintf(text, sizeof text, "%s %d/%d heads of %d, T=%d, %d keys", um_dtype_name(type), heads, kv_heads, d, n,
             n_keys);
    report("attention", text, run_attention, &b, 4.0 * n * heads * d * n_keys, (double)ops->kv_bytes(&shape) / LAYERS);
    ops->kv_free(dev, b.kv);
    ops->buffer_free(dev, qkv);
    ops->buffer_free(dev, out);
    um_free(page);
    um_free(index);
    um_free(seen_end);
}

/* ---- Head ---- */

static void run_head(void *arg, int round) {
    (void)round;
    ops->head(dev, (const um_head *)arg);
}

static void bench_head(um_dtype type, int32_t h, int32_t n_rows, const char *kind, um_sampling how) {
    um_row row[64];
    um_answer answer[64];
    const um_edit ban = {.id = 7, .ban = true};
    for (int32_t i = 0; i < n_rows; i++)
        row[i] = (um_row){.src = {i, 0},
                          .w = {1, 0},
                          .edit = &ban,
                          .n_edit = 1,
                          .how = how,
                          .want = UM_WANT_BEST | UM_WANT_SAMPLE | UM_WANT_ENTROPY};
    for (int32_t i = 0; i < n_rows; i++) row[i].how.key = um_rng_key(1, (uint64_t)i, 0, 0);
    um_weight *w = random_weight(type, V_BENCH, h);
    float *hidden = random_floats(64 * (size_t)h);
    um_head a = {w, hidden, NULL, h, V_BENCH, 0.05f, row, n_rows, answer};
    char text[64];
    snprintf(text, sizeof text, "%s %d -> %d, %d rows, %s", um_dtype_name(type), h, V_BENCH, n_rows, kind);
    report("head", text, run_head, &a, 2.0 * n_rows * h * V_BENCH, (double)V_BENCH * h * (double)um_dtype_size(type));
    ops->weight_free(dev, w);
    ops->buffer_free(dev, hidden);
}

/* ---- Elementwise ---- */

typedef struct vector_bench {
    float *x, *y, *w;
    int32_t n_tokens, n;
} vector_bench;

static void run_norm(void *arg, int round) {
    (void)round;
    vector_bench *b = (vector_bench *)arg;
    ops->norm(dev, b->x, &(um_norm){b->w, NULL, 1e-6f}, b->n_tokens, b->n, b->y);
}

static void run_gate(void *arg, int round) {
    (void)round;
    vector_bench *b = (vector_bench *)arg;
    ops->gate(dev, b->x, b->n_tokens, b->n, b->y);
}

static void bench_vectors(int32_t n_tokens, int32_t h, int32_t ff) {
    size_t T = (size_t)n_tokens;
    vector_bench b = {random_floats(T * 2 * (size_t)ff), random_floats(T * (size_t)ff), random_floats((size_t)h),
                      n_tokens, h};
    char text[64];
    snprintf(text, sizeof text, "H=%d, T=%d", h, n_tokens);
    report("norm", text, run_norm, &b, 4.0 * n_tokens * h, 8.0 * n_tokens * h);
    b.n = ff;
    snprintf(text, sizeof text, "n=%d, T=%d", ff, n_tokens);
    report("gate", text, run_gate, &b, 4.0 * n_tokens * ff, 12.0 * n_tokens * ff);
    ops->buffer_free(dev, b.x);
    ops->buffer_free(dev, b.y);
    ops->buffer_free(dev, b.w);
}

static void print_machine(void) {
    char line[256], name[200] = "unknown processor";
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %199[^\n]", name) == 1) break;
    if (f) fclose(f);
    printf("%s; backend %s, %d threads, %s\n", name, ops->name, ops->threads(dev), ops->isa(dev));
}

static void bench_all(um_dtype type) {
    const um_sampling greedy = {.top_p = 1}, warm = {.temperature = 1, .top_p = 1};
    const um_sampling nucleus = {.temperature = 1, .top_p = 0.9f, .top_k = 50};
    bench_linear(type, 320, 960);
    bench_linear(type, 4096, 4096);
    bench_linear(type, 4096, 12288);
    bench_attention(type, 6, 2, 64, 32, 512);
    bench_attention(type, 32, 32, 128, 32, 512);
    bench_attention(type, 28, 4, 128, 32, 1024);
    bench_attention(type, 32, 32, 128, 512, 512);
    bench_head(type, 320, 32, "greedy", greedy);
    bench_head(type, 2048, 1, "greedy", greedy);
    bench_head(type, 2048, 32, "greedy", greedy);
    bench_head(type, 2048, 32, "temperature 1", warm);
    bench_head(type, 2048, 32, "top-p and top-k", nucleus);
}

int main(int argc, char **argv) {
    static const um_dtype types[] = {UM_BF16, UM_F32};
    um_err err;
    if (um_ops_find(&ops, argc > 1 ? argv[1] : "cpu", &err)) stop(&err);
    if (argc > 3) um_cpu_use_isa(argv[3]);
    um_dev_config c = {.threads = argc > 2 ? atoi(argv[2]) : 0,
                       .max_tokens = TOKENS_MAX,
                       .max_rows = 64,
                       .max_in = 12288,
                       .max_head_dim = 128,
                       .max_heads = 32,
                       .max_vocab = V_BENCH,
                       .max_hidden = 4096};
    for (size_t i = 0; i < UM_LEN(types); i++) {
        c.dtype = types[i];
        if (ops->open(&dev, &c, &err)) stop(&err);
        if (i == 0) print_machine();
        bench_all(types[i]);
        if (i == 0) bench_vectors(32, 320, 960);
        if (i == 0) bench_vectors(32, 4096, 12288);
        ops->close(dev);
    }
    return 0;
}
