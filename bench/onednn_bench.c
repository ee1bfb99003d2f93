/* Compares the linear layers of the cpu backend with oneDNN, in the same run and in alternating windows.
 *
 *   onednn_bench [threads] [instruction set] [type of weights]
 *   onednn_bench 2 avx512 q8                         (default: one per core, the best, all types)
 *
 * `unmask bench ops` measures all operations and their limits; this program has only the rival. The time is that of
 * `unmask bench ops`. Rates are medians [least..greatest] of windows. oneDNN runs its faster one of matmul and inner
 * product, with the same number of threads and its own packed weights. Where our x is fp32, oneDNN gets it in bf16. In
 * the rows of q8 it gets 8-bit integers, so it neither rounds x nor scales sums of groups, as ours does. ratio is
 * ours / oneDNN. A `*` marks a row in which other processes took more than a twentieth of the time. */
#include <stdlib.h>
#include <unistd.h>

#include "bench.h"
#include "ops/cpu/cpu.h"

enum { COPIES_MAX = 100, TOKENS_MAX = 512, WIDEST = 12288, WINDOWS = 7 };
#define CYCLE_BYTES    ((size_t)400 << 20)
#define WINDOW_SECONDS 0.06

static const um_ops *const ops = &um_ops_cpu;
static um_dev *dev;

static void stop(const um_err *err) {
    fprintf(stderr, "onednn_bench: %s\n", err->msg);
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

static void print_rate(double operations, const um_measured *t) {
    double n = operations * 1e-9;
    char range[40];
    snprintf(range, sizeof range, "[%.1f..%.1f]", n / t->max, n / t->min);
    printf(" %8.1f GF/s %-15s", n / t->median, range);
}

typedef struct linear_bench {
    um_weight *w[COPIES_MAX];
    int n_copies, n_tokens;
    float *x, *y;
} linear_bench;

static void run_linear(void *arg, int round) {
    linear_bench *b = (linear_bench *)arg;
    ops->linear(dev, b->w[round % b->n_copies], NULL, b->x, b->n_tokens, false, b->y);
}

/* Measures our product and oneDNN's two with weights of a type. Prints one line. oneDNN gets the bytes of the tensor as
 * elements of its type; their values don't change its time. */
static void bench_tokens(linear_bench *b, const um_tensor *t, um_dtype type, int n_tokens) {
    int in = (int)t->dim[1], out = (int)t->dim[0], n = 1;
    um_measure_task task[UM_MEASURE_TASKS] = {{run_linear, b}};
    um_measured time[UM_MEASURE_TASKS];
    um_onednn *rival[] = {
        um_onednn_new(UM_ONEDNN_MATMUL, type, n_tokens, in, out, t->data, b->n_copies),
        um_onednn_new(UM_ONEDNN_INNER_PRODUCT, type, n_tokens, in, out, t->data, b->n_copies),
    };
    char shape[64];
    snprintf(shape, sizeof shape, "%s %d -> %d, T=%d", um_dtype_name(type), in, out, n_tokens);
    b->n_tokens = n_tokens;
    for (size_t i = 0; i < UM_LEN(rival); i++)
        if (rival[i]) task[n++] = (um_measure_task){um_onednn_run, rival[i]};
    um_measure(task, n, WINDOWS, WINDOW_SECONDS, time);
    printf("%-34s", shape);
    print_rate(2.0 * n_tokens * in * out, &time[0]);
    if (n > 1) {
        const um_measured *best = n > 2 && time[2].median < time[1].median ? &time[2] : &time[1];
        print_rate(2.0 * n_tokens * in * out, best);
        printf(" %5.2f", best->median / time[0].median);
    }
    printf("%s\n", time[0].waited > UM_MEASURE_WAITED_MAX ? " *" : "");
    fflush(stdout);
    for (size_t i = 0; i < UM_LEN(rival); i++) um_onednn_free(rival[i]);
}

static void bench_linear(um_dtype type, int32_t in, int32_t out) {
    static const int tokens[] = {1, 4, 8, 32, 128, 512};
    linear_bench b = {.x = random_floats((size_t)TOKENS_MAX * (size_t)in),
                      .y = random_floats(TOKENS_MAX * (size_t)out)};
    um_tensor t = new_tensor(type == UM_Q8 ? UM_BF16 : type, out, in);
    um_err err;
    b.n_copies = (int)UM_MIN(CYCLE_BYTES / ((size_t)in * (size_t)out * (type == UM_Q8 ? 1 : um_dtype_size(type))) + 1,
                             COPIES_MAX);
    for (int i = 0; i < b.n_copies; i++)
        if (ops->weight(dev, &b.w[i], &t, 1, type, &err)) stop(&err);
    for (size_t i = 0; i < UM_LEN(tokens); i++) bench_tokens(&b, &t, type, tokens[i]);
    for (int i = 0; i < b.n_copies; i++) ops->weight_free(dev, b.w[i]);
    um_free((void *)t.data);
    ops->buffer_free(dev, b.x);
    ops->buffer_free(dev, b.y);
}

static void bench_type(um_dtype type, int threads) {
    static bool is_titled;
    um_err err;
    const um_dev_config c = {.threads = threads,
                             .dtype = type == UM_Q8 ? UM_BF16 : type,
                             .weights = type,
                             .max_tokens = TOKENS_MAX,
                             .max_in = WIDEST};
    if (ops->open(&dev, &c, &err)) stop(&err);
    if (!is_titled) {
        is_titled = true;
        const char *version = um_bench_onednn_version();
        printf("%s; %s, %d threads; oneDNN %s\n%-34s %-29s %-29s %s\n", um_bench_machine(), ops->isa(dev),
               ops->threads(dev), version ? version : "is missing: install libdnnl-dev (tools/deps.sh bench)", "linear",
               "ours: median [least..greatest]", "oneDNN: the same", "ratio");
    }
    bench_linear(type, 4096, 4096);
    bench_linear(type, 4096, 12288);
    bench_linear(type, 12288, 4096);
    bench_linear(type, 2048, 2048);
    bench_linear(type, 5632, 2048);
    if (type == UM_BF16) bench_linear(type, 4096, 126464);
    ops->close(dev);
}

/* Sets the number of oneDNN's threads. They are OpenMP threads, and OpenMP reads their number when it is loaded. So
 * this sets the environment and starts the program again. */
static void count_threads(char **argv, int threads) {
    char text[16];
    if (getenv("OMP_NUM_THREADS")) return;
    snprintf(text, sizeof text, "%d", threads);
    setenv("OMP_NUM_THREADS", text, 1);
    execv("/proc/self/exe", argv);
}

int main(int argc, char **argv) {
    static const um_dtype types[] = {UM_F32, UM_BF16, UM_Q8};
    int threads = argc > 1 ? atoi(argv[1]) : 0;
    if (threads == 0) threads = um_cpu_count();
    count_threads(argv, threads);
    if (argc > 2) um_cpu_use_isa(argv[2]);
    for (size_t i = 0; i < UM_LEN(types); i++)
        if (argc < 4 || um_streq(argv[3], um_dtype_name(types[i]))) bench_type(types[i], threads);
    return 0;
}
