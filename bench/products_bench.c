/* Compares the linear layers of the cpu backend with ggml (llama.cpp), with oneDNN and with the limits of the machine,
 * in the same run and in alternating windows.
 *
 *   products_bench [threads] [instruction set] [type of weights] [in x out]
 *   products_bench 2 amx_bf16 q8 4096x12288           (default: one per core, the best, all types, all shapes)
 *
 * `unmask bench ops` measures all operations; this program has only the rivals. The time is that of `unmask bench ops`.
 * Rates are medians [least..greatest] of windows. The limit of a line is the larger one of two times: reading the
 * weights at the rate measured just before, and computing at the peak of the instruction. ggml gets bf16, q8_0 and
 * q4_0 weights and rounds x itself, as ours does. oneDNN runs its faster one of matmul and inner product, with the same
 * number of threads and its own packed weights. Where our x is fp32, oneDNN gets it in bf16. In the rows of q8 it gets
 * 8-bit integers, so it neither rounds x nor scales sums of groups. A `*` marks a row in which other processes took
 * more than a twentieth of the time. */
#include <stdlib.h>
#include <unistd.h>

#include "bench.h"
#include "ops/backend.h"
#include "ops/cpu/cpu.h"

enum { COPIES_MAX = 100, TOKENS_MAX = 512, WIDEST = 12288, WINDOWS = 7 };
#define WINDOW_SECONDS 0.06

static const um_ops *const ops = &um_ops_cpu;
static um_dev *dev;
static int threads;
static double read_bytes, peak; /* limits: bytes, and operations of the type, in a second */

static void stop(const um_err *err) {
    fprintf(stderr, "products_bench: %s\n", err->msg);
    exit(1);
}

/* ---- Inputs ---- */

static float *random_floats(size_t n) {
    static uint64_t counter;
    void *p;
    um_err err;
    if (ops->buffer(dev, &p, n * sizeof(float), "inputs", &err)) stop(&err);
    for (size_t i = 0; i < n; i++) ((float *)p)[i] = (float)(2 * um_rng_uniform(1, counter++) - 1);
    return (float *)p;
}

/* Returns a random matrix as a checkpoint stores it. Free its data with um_free. */
static um_tensor new_tensor(um_dtype type, int64_t rows, int64_t in) {
    size_t n = (size_t)(rows * in);
    char *data = (char *)um_alloc(n * um_dtype_size(type));
    uint32_t random = 1; /* xorshift is fast enough for the many elements */
    for (size_t i = 0; i < n; i++) {
        random ^= random << 13, random ^= random >> 17, random ^= random << 5;
        float v = (float)random * 0x1p-31f - 1;
        if (type == UM_F32) ((float *)data)[i] = v;
        else ((uint16_t *)data)[i] = um_f32_to_bf16(v);
    }
    return (um_tensor){.name = "bench", .type = type, .n_dims = 2, .dim = {rows, in}, .data = data};
}

/* ---- The table ---- */

static void print_rate(const char *who, double operations, const um_measured *t) {
    double n = operations * 1e-9;
    printf("  %s %.1f [%.1f..%.1f]", who, n / t->median, n / t->max, n / t->min);
}

typedef struct linear_bench {
    um_weight *w[COPIES_MAX];
    int n_copies, n_tokens;
    float *x, *y;
    const float *random; /* for ggml */
} linear_bench;

static void run_linear(void *arg, int round) {
    linear_bench *b = (linear_bench *)arg;
    ops->linear(dev, b->w[round % b->n_copies], NULL, b->x, b->n_tokens, false, b->y);
}

/* Returns the seconds that the product can't go below. */
static double limit_of(um_dtype type, int in, int out, int n_tokens) {
    const double weights = (double)in * out, bits = type == UM_F32    ? 32
                                                    : type == UM_BF16 ? 16
                                                    : type == UM_Q8   ? 8.5
                                                                      : 4.5;
    return UM_MAX(weights * bits / 8 / read_bytes, peak > 0 ? 2 * weights * n_tokens / peak : 0);
}

/* Measures our product, oneDNN's two and ggml's with weights of a type. Prints one line. oneDNN gets the bytes of the
 * tensor as elements of its type; their values don't change its time. */
static void bench_tokens(linear_bench *b, const um_tensor *t, um_dtype type, int n_tokens) {
    const int in = (int)t->dim[1], out = (int)t->dim[0];
    const double operations = 2.0 * n_tokens * in * out;
    int n = 1, matmul = 0, inner = 0, other = 0;
    um_measure_task task[UM_MEASURE_TASKS] = {{run_linear, b}};
    um_measured time[UM_MEASURE_TASKS];
    um_onednn *rival[] = {
        um_onednn_new(UM_ONEDNN_MATMUL, type, n_tokens, in, out, t->data, b->n_copies),
        um_onednn_new(UM_ONEDNN_INNER_PRODUCT, type, n_tokens, in, out, t->data, b->n_copies),
    };
    um_ggml *ggml = um_ggml_new(type, threads, n_tokens, in, out, b->random, b->n_copies);
    b->n_tokens = n_tokens;
    if (rival[0]) task[matmul = n++] = (um_measure_task){um_onednn_run, rival[0]};
    if (rival[1]) task[inner = n++] = (um_measure_task){um_onednn_run, rival[1]};
    if (ggml) task[other = n++] = (um_measure_task){um_ggml_run, ggml};
    um_measure(task, n, WINDOWS, WINDOW_SECONDS, time);
    printf("%s %d -> %d, T=%d:", um_dtype_name(type), in, out, n_tokens);
    print_rate("unmask", operations, &time[0]);
    printf(" (%.0f %% of the limit)", 100 * limit_of(type, in, out, n_tokens) / time[0].median);
    if (other) print_rate("ggml", operations, &time[other]);
    if (matmul && (!inner || time[matmul].median <= time[inner].median)) inner = matmul;
    if (inner) print_rate("oneDNN", operations, &time[inner]);
    printf("%s\n", time[0].waited > UM_MEASURE_WAITED_MAX ? " *" : "");
    fflush(stdout);
    for (size_t i = 0; i < UM_LEN(rival); i++) um_onednn_free(rival[i]);
    um_ggml_free(ggml);
}

static void bench_linear(um_dtype type, int32_t in, int32_t out) {
    static const int tokens[] = {1, 4, 8, 32, 128, 512};
    const bool is_quantised = type == UM_Q8 || type == UM_Q4;
    const size_t bytes = (size_t)in * (size_t)out * (is_quantised ? 1 : um_dtype_size(type));
    linear_bench b = {.x = random_floats((size_t)TOKENS_MAX * (size_t)in),
                      .y = random_floats(TOKENS_MAX * (size_t)out),
                      .n_copies = (int)UM_MIN(um_host_uncached_bytes() / bytes + 1, COPIES_MAX)};
    float *random = um_bench_has_ggml() ? random_floats((size_t)UM_MAX(out, TOKENS_MAX) * (size_t)in) : NULL;
    um_tensor t = new_tensor(is_quantised ? UM_BF16 : type, out, in);
    um_err err;
    b.random = random;
    for (int i = 0; i < b.n_copies; i++)
        if (ops->weight(dev, &b.w[i], &t, 1, type, &err)) stop(&err);
    for (size_t i = 0; i < UM_LEN(tokens); i++) bench_tokens(&b, &t, type, tokens[i]);
    for (int i = 0; i < b.n_copies; i++) ops->weight_free(dev, b.w[i]);
    um_free((void *)t.data);
    ops->buffer_free(dev, b.x);
    ops->buffer_free(dev, b.y);
    if (random) ops->buffer_free(dev, random);
}

static void print_limits(um_dtype type) {
    const char *instruction = NULL, *version = um_bench_onednn_version();
    um_err err;
    peak = ops->peak ? ops->peak(dev, type, &instruction) : 0;
    if (um_host_read_rate(threads, &read_bytes, &err)) stop(&err);
    printf("%s; %s, %d threads; oneDNN %s; ggml %s\n", um_bench_machine(), ops->isa(dev), ops->threads(dev),
           version ? version : "is missing: install libdnnl-dev (tools/deps.sh bench)",
           um_bench_has_ggml() ? "is there" : "is missing: tools/compare_llama_cpp.sh builds it");
    printf("limits: memory is read at %.1f GB/s; %s: %.0f GF/s (%s); rates below in GF/s\n", read_bytes * 1e-9,
           um_dtype_name(type), peak * 1e-9, instruction ? instruction : "unknown");
}

static void bench_type(um_dtype type, const char *shape) {
    static const int32_t shapes[][2] = {{4096, 4096}, {4096, 12288}, {12288, 4096},
                                        {2048, 2048}, {5632, 2048},  {4096, 126464}};
    um_err err;
    const um_dev_config c = {.threads = threads,
                             .dtype = type == UM_F32 ? type : UM_BF16,
                             .weights = type,
                             .max_tokens = TOKENS_MAX,
                             .max_in = WIDEST};
    if (ops->open(&dev, &c, &err)) stop(&err);
    print_limits(type);
    for (size_t i = 0; i < UM_LEN(shapes); i++) {
        char name[32];
        snprintf(name, sizeof name, "%dx%d", (int)shapes[i][0], (int)shapes[i][1]);
        if (shape ? um_streq(shape, name) : type == UM_BF16 || i + 1 < UM_LEN(shapes))
            bench_linear(type, shapes[i][0], shapes[i][1]);
    }
    ops->close(dev);
}

/* Sets the number of the OpenMP threads of oneDNN and ggml. OpenMP reads it when it is loaded, so this sets the
 * environment and starts the program again. */
static void count_threads(char **argv) {
    char text[16];
    if (getenv("OMP_NUM_THREADS")) return;
    snprintf(text, sizeof text, "%d", threads);
    setenv("OMP_NUM_THREADS", text, 1);
    execv("/proc/self/exe", argv);
}

int main(int argc, char **argv) {
    static const um_dtype types[] = {UM_F32, UM_BF16, UM_Q8, UM_Q4};
    threads = argc > 1 ? atoi(argv[1]) : 0;
    if (threads == 0) threads = um_cpu_count();
    count_threads(argv);
    if (argc > 2 && *argv[2]) um_cpu_use_isa(argv[2]);
    for (size_t i = 0; i < UM_LEN(types); i++)
        if (argc < 4 || !*argv[3] || um_streq(argv[3], um_dtype_name(types[i])))
            bench_type(types[i], argc > 4 ? argv[4] : NULL);
    return 0;
}
