/* Measures the speed of a backend's operations and prints one table.
 *
 *   ops_bench [operations] [threads] [instruction set] [backend]
 *   ops_bench linear,moe 2 avx512             (default: all, one per core, the best, cpu)
 *
 * The measured time is that of the operation as the forward pass calls it, including the packing of activations. It
 * does not include packing weights or filling KV. Calls alternate between copies of the weights, CYCLE_BYTES in all, so
 * that weights are read from memory as in a model. Rates are medians [worst..best] of windows (timing.c). GF/s counts 2
 * operations per multiply-add. GB/s counts weights, keys and values, or activations read and written, once.
 *
 * Linear layers are compared with oneDNN in the same run and in alternating windows: with the faster of its matmul and
 * inner product and the same number of threads. Where our x is fp32, oneDNN gets it in bf16. ratio is ours / oneDNN. A
 * `*` marks a row in which other processes took more than a twentieth of the time. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench.h"
#include "ops/backend.h"
#include "ops/cpu/cpu.h"
#include "ops/expert_route.h"

enum { COPIES_MAX = 100, V_BENCH = 32768, TOKENS_MAX = 512, KEYS_MAX = 4096 };
#define CYCLE_BYTES ((size_t)400 << 20)

static const um_ops *ops;
static um_dev *dev;
static const char *wanted; /* comma-separated operations to measure; NULL: all */

static void stop(const um_err *err) {
    fprintf(stderr, "ops_bench: %s\n", err->msg);
    exit(1);
}

static bool is_wanted(const char *operation) {
    size_t n = strlen(operation);
    for (const char *at = wanted; at; at = strchr(at, ','), at += at != NULL)
        if (strncmp(at, operation, n) == 0 && (at[n] == ',' || !at[n])) return true;
    return !wanted;
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
    return (um_tensor){"bench", type, 2, {rows, in}, data};
}

static um_weight *new_weight(const um_tensor *t) {
    um_err err;
    um_weight *w;
    if (ops->weight(dev, &w, t, 1, t->type, &err)) stop(&err);
    return w;
}

/* ---- The table ---- */

typedef struct row {
    const char *operation, *shape;
    double flops, bytes; /* per call */
} row;

static void print_head(void) {
    printf("%-11s %-46s  %-29s%8s  %-29s%6s\n", "operation", "shape", "ours: median [worst..best]", "GB/s",
           "oneDNN: median [worst..best]", "ratio");
}

/* Prints the relevant rate: GF/s for operations with much arithmetic, GB/s for others. */
static void print_rate(const row *r, const um_bench_time *t) {
    double n = (r->flops > 0 ? r->flops : r->bytes) * 1e-9;
    char range[40];
    snprintf(range, sizeof range, "[%.1f..%.1f]", n / t->worst, n / t->best);
    printf(" %8.1f %s %-15s", n / t->median, r->flops > 0 ? "GF/s" : "GB/s", range);
}

/* Measures our operation and its rivals for the same work. Prints one line. */
static void report(const row *r, const um_bench_task *task, int n) {
    um_bench_time time[UM_BENCH_RIVALS];
    um_bench_measure(task, n, time);
    printf("%-11s %-46s", r->operation, r->shape);
    print_rate(r, &time[0]);
    printf(" %7.1f", r->bytes / time[0].median * 1e-9);
    if (n > 1) {
        const um_bench_time *rival = n > 2 && time[2].median < time[1].median ? &time[2] : &time[1];
        print_rate(r, rival);
        printf(" %5.2f", rival->median / time[0].median);
    }
    printf("%s\n", time[0].waited > UM_BENCH_WAITED_MAX ? " *" : "");
    fflush(stdout);
}

static void report_alone(const row *r, void (*run)(void *arg, int round), void *arg) {
    const um_bench_task task = {run, arg};
    report(r, &task, 1);
}

/* ---- Linear ---- */

typedef struct linear_bench {
    um_weight *w[COPIES_MAX];
    int n_copies, n_tokens;
    float *x, *y;
} linear_bench;

static void run_linear(void *arg, int round) {
    linear_bench *b = (linear_bench *)arg;
    ops->linear(dev, b->w[round % b->n_copies], NULL, b->x, b->n_tokens, false, b->y);
}

static void bench_tokens(linear_bench *b, const um_tensor *t, int n_tokens) {
    int in = (int)t->dim[1], out = (int)t->dim[0], n = 1;
    double size = (double)in * out * (double)um_dtype_size(t->type);
    um_bench_task task[UM_BENCH_RIVALS] = {{run_linear, b}};
    um_onednn *rival[] = {
        um_onednn_new(UM_ONEDNN_MATMUL, t->type, n_tokens, in, out, t->data, b->n_copies),
        um_onednn_new(UM_ONEDNN_INNER_PRODUCT, t->type, n_tokens, in, out, t->data, b->n_copies),
    };
    char shape[64];
    snprintf(shape, sizeof shape, "%s %d -> %d, T=%d", um_dtype_name(t->type), in, out, n_tokens);
    b->n_tokens = n_tokens;
    for (size_t i = 0; i < UM_LEN(rival); i++)
        if (rival[i]) task[n++] = (um_bench_task){um_onednn_run, rival[i]};
    report(&(row){"linear", shape, 2.0 * n_tokens * in * out, size}, task, n);
    for (size_t i = 0; i < UM_LEN(rival); i++) um_onednn_free(rival[i]);
}

static void bench_linear(um_dtype type, int32_t in, int32_t out) {
    static const int tokens[] = {1, 4, 8, 32, 256, 512};
    if (!is_wanted("linear")) return;
    linear_bench b = {.x = random_floats((size_t)TOKENS_MAX * (size_t)in),
                      .y = random_floats(TOKENS_MAX * (size_t)out)};
    um_tensor t = new_tensor(type, out, in);
    b.n_copies = (int)UM_MIN(CYCLE_BYTES / ((size_t)in * (size_t)out * um_dtype_size(type)) + 1, COPIES_MAX);
    for (int i = 0; i < b.n_copies; i++) b.w[i] = new_weight(&t);
    for (size_t i = 0; i < UM_LEN(tokens); i++) bench_tokens(&b, &t, tokens[i]);
    for (int i = 0; i < b.n_copies; i++) ops->weight_free(dev, b.w[i]);
    um_free((void *)t.data);
    ops->buffer_free(dev, b.x);
    ops->buffer_free(dev, b.y);
}

static void run_linear_gate(void *arg, int round) {
    linear_bench *b = (linear_bench *)arg;
    ops->linear_gate(dev, b->w[round % b->n_copies], NULL, b->x, b->n_tokens, b->y);
}

/* Measures the first half of a feed-forward layer. There is one copy of the weights, so they stay in the caches if they
 * fit. */
static void bench_linear_gate(um_dtype type, int32_t in, int32_t n) {
    static const int tokens[] = {8, 32, 256};
    if (!is_wanted("linear_gate") || !ops->linear_gate) return;
    um_tensor t = new_tensor(type, 2 * n, in);
    linear_bench b = {.n_copies = 1, .x = random_floats((size_t)TOKENS_MAX * (size_t)in)};
    b.y = random_floats(TOKENS_MAX * (size_t)n);
    b.w[0] = new_weight(&t);
    for (size_t i = 0; i < UM_LEN(tokens); i++) {
        char shape[64];
        double products = 2.0 * in * n;
        b.n_tokens = tokens[i];
        snprintf(shape, sizeof shape, "%s %d -> 2 x %d, T=%d", um_dtype_name(type), in, n, tokens[i]);
        report_alone(&(row){"linear_gate", shape, 2 * products * tokens[i], products * (double)um_dtype_size(type)},
                     run_linear_gate, &b);
    }
    ops->weight_free(dev, b.w[0]);
    um_free((void *)t.data);
    ops->buffer_free(dev, b.x);
    ops->buffer_free(dev, b.y);
}

/* ---- Mixture of experts ---- */

enum { EXPERTS_MAX = 256, ROUTINGS = 8 };

typedef struct moe_bench {
    um_weight *gate_up[EXPERTS_MAX], *down[EXPERTS_MAX];
    um_moe a;
    float *logits; /* [ROUTINGS][n_tokens, n_experts] */
} moe_bench;

static void run_moe(void *arg, int round) {
    moe_bench *b = (moe_bench *)arg;
    um_moe a = b->a;
    a.logits = b->logits + (size_t)(round % ROUTINGS) * (size_t)a.n_tokens * (size_t)a.route->n_experts;
    ops->moe(dev, &a);
}

/* Returns the average number of experts that a routing uses. */
static double used_experts(const moe_bench *b) {
    static int32_t expert[TOKENS_MAX * 8];
    static float weight[TOKENS_MAX * 8], scratch[3 * EXPERTS_MAX];
    const um_expert_route *r = b->a.route;
    int used = 0;
    for (int i = 0; i < ROUTINGS; i++) {
        bool seen[EXPERTS_MAX] = {false};
        um_expert_route_tokens(r, b->logits + (size_t)i * (size_t)b->a.n_tokens * (size_t)r->n_experts, NULL, NULL,
                               b->a.n_tokens, scratch, expert, weight);
        for (int32_t k = 0; k < b->a.n_tokens * r->top_k; k++) {
            used += !seen[expert[k]];
            seen[expert[k]] = true;
        }
    }
    return (double)used / ROUTINGS;
}

static void bench_moe(um_dtype type, const char *model, int32_t n_experts, int32_t top_k, int32_t hidden,
                      int32_t n_ff) {
    static const int tokens[] = {1, 32, 256};
    if (!is_wanted("moe")) return;
    const um_expert_route route = {n_experts, top_k, UM_SCORE_SOFTMAX, UM_BIAS_NONE, true, 1, 1, 1, 0};
    static moe_bench b;
    um_tensor up = new_tensor(type, 2 * n_ff, hidden), down = new_tensor(type, hidden, n_ff);
    for (int32_t e = 0; e < n_experts; e++) b.gate_up[e] = new_weight(&up), b.down[e] = new_weight(&down);
    float *x = random_floats(TOKENS_MAX * (size_t)hidden), *y = random_floats(TOKENS_MAX * (size_t)hidden);
    b.logits = random_floats(ROUTINGS * TOKENS_MAX * (size_t)n_experts);
    for (size_t i = 0; i < UM_LEN(tokens); i++) {
        char shape[64];
        double expert_bytes = 3.0 * hidden * n_ff * (double)um_dtype_size(type);
        b.a = (um_moe){
            &route,    NULL,   NULL, NULL, (const um_weight *const *)b.gate_up, (const um_weight *const *)b.down, x,
            tokens[i], hidden, n_ff, y};
        snprintf(shape, sizeof shape, "%s %s, E=%d k=%d ff=%d, T=%d", um_dtype_name(type), model, n_experts, top_k,
                 n_ff, tokens[i]);
        report_alone(&(row){"moe", shape, 6.0 * tokens[i] * top_k * hidden * n_ff, used_experts(&b) * expert_bytes},
                     run_moe, &b);
    }
    for (int32_t e = 0; e < n_experts; e++) {
        ops->weight_free(dev, b.gate_up[e]);
        ops->weight_free(dev, b.down[e]);
    }
    um_free((void *)up.data);
    um_free((void *)down.data);
    ops->buffer_free(dev, x);
    ops->buffer_free(dev, y);
    ops->buffer_free(dev, b.logits);
}

/* ---- Attention ---- */

enum { PAGE = 32, LAYERS = 8 };

typedef struct attention_bench {
    um_kv *kv;
    um_rope_kv rope;
    um_attention a;
    um_batch batch;
    um_span span;
    float *qkv, *out, *angle;
    int32_t page[KEYS_MAX], index[KEYS_MAX], seen_end[KEYS_MAX];
    double kv_bytes; /* per layer */
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

/* Sets up attention of n queries, the last of n_keys tokens, to keys and values that rope_kv has written. */
static void set_up_attention(attention_bench *b, um_dtype type, int32_t heads, int32_t kv_heads, int32_t d, int32_t n,
                             int32_t n_keys) {
    um_kv_shape shape = {
        .n_layers = LAYERS, .n_kv_heads = kv_heads, .head_dim = d, .page_size = PAGE, .n_slots = n_keys, .type = type};
    size_t width = (size_t)(heads + 2 * kv_heads) * (size_t)d, half = (size_t)n_keys * (size_t)d / 2;
    um_err err;
    if (ops->kv_new(dev, &b->kv, &shape, &err)) stop(&err);
    b->kv_bytes = (double)ops->kv_bytes(&shape) / LAYERS;
    for (int32_t i = 0; i < n_keys; i++) b->page[i] = i, b->index[i] = i, b->seen_end[i] = n_keys;
    b->qkv = random_floats((size_t)n_keys * width);
    b->out = random_floats((size_t)n * (size_t)(heads * d));
    b->angle = random_floats(2 * half);
    b->rope = (um_rope_kv){0,     n_keys, heads,    kv_heads,        d,        d,       b->qkv, NULL, NULL,
                           1e-6f, 0,      b->angle, b->angle + half, b->index, b->index};
    for (int32_t layer = 0; layer < LAYERS; layer++) run_rope(b, layer);
    b->rope.n_tokens = n;
    b->rope.slot = b->rope.pos = b->index + n_keys - n;
    b->span = (um_span){.n = n, .page = b->page, .keys = {0, n_keys}, .adapter = -1};
    b->batch = (um_batch){.n_tokens = n, .n_spans = 1, .span = &b->span, .seen_end = b->seen_end};
    b->a = (um_attention){0, heads, kv_heads, d, PAGE, (int32_t)width, b->qkv, b->out, 0.1f, &b->batch};
}

static void take_down_attention(attention_bench *b) {
    ops->kv_free(dev, b->kv);
    ops->buffer_free(dev, b->qkv);
    ops->buffer_free(dev, b->out);
    ops->buffer_free(dev, b->angle);
}

static void bench_attention(um_dtype type, int32_t heads, int32_t kv_heads, int32_t n, int32_t n_keys) {
    enum { D = 128 };
    if (!is_wanted("attention")) return;
    static attention_bench b;
    char shape[64];
    set_up_attention(&b, type, heads, kv_heads, D, n, n_keys);
    snprintf(shape, sizeof shape, "KV %s %d/%d x %d, T=%d, %d keys", um_dtype_name(type), heads, kv_heads, D, n,
             n_keys);
    report_alone(&(row){"attention", shape, 4.0 * n * heads * D * n_keys, b.kv_bytes}, run_attention, &b);
    take_down_attention(&b);
}

static void bench_rope(um_dtype type, int32_t heads, int32_t kv_heads, int32_t n) {
    enum { D = 128 };
    if (!is_wanted("rope_kv")) return;
    static attention_bench b;
    char shape[64];
    double rotated = (double)(heads + kv_heads) * D * 2 * sizeof(float);
    double stored = (double)kv_heads * D * (sizeof(float) + 2 * (double)um_dtype_size(type));
    set_up_attention(&b, type, heads, kv_heads, D, n, TOKENS_MAX);
    snprintf(shape, sizeof shape, "KV %s %d/%d x %d, T=%d", um_dtype_name(type), heads, kv_heads, D, n);
    report_alone(&(row){"rope_kv", shape, 0, n * (rotated + stored)}, run_rope, &b);
    take_down_attention(&b);
}

/* ---- Head ---- */

static void run_head(void *arg, int round) {
    (void)round;
    ops->head(dev, (const um_head *)arg);
}

static void bench_head(um_dtype type, int32_t h, int32_t n_rows, const char *kind, um_sampling how, int32_t n_top) {
    if (!is_wanted("head")) return;
    um_row rows[64];
    um_answer answer[64];
    static um_top top[64][UM_TOP_MAX];
    const um_edit ban = {.id = 7, .ban = true};
    for (int32_t i = 0; i < n_rows; i++) {
        rows[i] = (um_row){.src = {i, 0}, .w = {1, 0}, .edit = &ban, .n_edit = 1, .how = how};
        rows[i].n_top = n_top;
        rows[i].top = top[i];
        rows[i].want = UM_WANT_BEST | UM_WANT_SAMPLE | UM_WANT_ENTROPY;
        rows[i].how.key = um_rng_key(1, (uint64_t)i, 0, 0);
    }
    um_tensor t = new_tensor(type, V_BENCH, h);
    um_weight *w = new_weight(&t);
    float *hidden = random_floats(64 * (size_t)h);
    float spread =
        9 / sqrtf((float)h); /* logits with a standard deviation of 3: a few hundred ids have most of the probability */
    um_head a = {w, hidden, NULL, h, V_BENCH, spread, rows, n_rows, answer};
    char text[64];
    snprintf(text, sizeof text, "%s %d -> %d, %d rows, %s", um_dtype_name(type), h, V_BENCH, n_rows, kind);
    report_alone(&(row){"head", text, 2.0 * n_rows * h * V_BENCH, (double)V_BENCH * h * (double)um_dtype_size(type)},
                 run_head, &a);
    ops->weight_free(dev, w);
    ops->buffer_free(dev, hidden);
    um_free((void *)t.data);
}

/* ---- Elementwise ---- */

typedef struct vector_bench {
    float *x, *y;
    um_norm norm;
    int32_t n_tokens, n;
} vector_bench;

static void run_norm(void *arg, int round) {
    (void)round;
    vector_bench *b = (vector_bench *)arg;
    ops->norm(dev, b->x, &b->norm, b->n_tokens, b->n, b->y);
}

static void run_gate(void *arg, int round) {
    (void)round;
    vector_bench *b = (vector_bench *)arg;
    ops->gate(dev, b->x, b->n_tokens, b->n, b->y);
}

static void bench_vectors(int32_t n_tokens, int32_t h, int32_t ff) {
    size_t T = (size_t)n_tokens;
    float *w = random_floats((size_t)h);
    vector_bench b = {random_floats(T * 2 * (size_t)ff), random_floats(T * (size_t)ff), {w, NULL, 1e-6f}, n_tokens, h};
    char text[64];
    snprintf(text, sizeof text, "H=%d, T=%d", h, n_tokens);
    if (is_wanted("norm")) report_alone(&(row){"norm", text, 0, 8.0 * n_tokens * h}, run_norm, &b);
    b.n = ff;
    snprintf(text, sizeof text, "n=%d, T=%d", ff, n_tokens);
    if (is_wanted("gate")) report_alone(&(row){"gate", text, 0, 12.0 * n_tokens * ff}, run_gate, &b);
    ops->buffer_free(dev, b.x);
    ops->buffer_free(dev, b.y);
    ops->buffer_free(dev, w);
}

/* ---- All operations ---- */

static void bench_bf16(void) {
    const um_sampling greedy = {.top_p = 1}, warm = {.temperature = 1, .top_p = 1};
    const um_sampling nucleus = {.temperature = 1, .top_p = 0.9f, .top_k = 50};
    bench_linear(UM_BF16, 4096, 4096);
    bench_linear(UM_BF16, 4096, 12288);
    bench_linear(UM_BF16, 12288, 4096);
    bench_linear(UM_BF16, 4096, 126464);
    bench_linear(UM_BF16, 2048, 2048);
    bench_linear(UM_BF16, 2048, 5632);
    bench_linear(UM_BF16, 5632, 2048);
    bench_linear_gate(UM_BF16, 320, 960);
    bench_linear_gate(UM_BF16, 2048, 5632);
    bench_moe(UM_BF16, "LLaDA2-mini", 256, 8, 2048, 512);
    bench_moe(UM_BF16, "SDAR-30B", 128, 8, 2048, 768);
    static const um_dtype kv_types[] = {UM_F32, UM_BF16, UM_F8};
    for (size_t i = 0; i < UM_LEN(kv_types); i++) {
        um_dtype kv = kv_types[i];
        for (int32_t keys = 512; keys <= KEYS_MAX; keys *= 2) bench_attention(kv, 32, 32, 32, keys);
        for (int32_t keys = 512; keys <= KEYS_MAX; keys *= 2) bench_attention(kv, 28, 4, 32, keys);
        bench_attention(kv, 32, 32, 512, 512);
        bench_rope(kv, 32, 32, 32);
        bench_rope(kv, 28, 4, 32);
        bench_rope(kv, 32, 32, 512);
    }
    bench_head(UM_BF16, 2048, 1, "greedy", greedy, 0);
    bench_head(UM_BF16, 2048, 32, "greedy", greedy, 0);
    bench_head(UM_BF16, 2048, 32, "warm", warm, 0);
    bench_head(UM_BF16, 2048, 32, "top-p, top-k", nucleus, 0);
    bench_head(UM_BF16, 2048, 32, "likeliest 20", greedy, 20);
    bench_vectors(32, 4096, 12288);
}

static void bench_f32(void) {
    bench_linear(UM_F32, 4096, 4096);
    bench_linear(UM_F32, 4096, 12288);
    bench_linear(UM_F32, 12288, 4096);
    bench_linear(UM_F32, 2048, 2048);
    bench_attention(UM_F32, 32, 32, 32, 512);
    bench_attention(UM_BF16, 32, 32, 32, 512);
    bench_head(UM_F32, 2048, 32, "greedy", (um_sampling){.top_p = 1}, 0);
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
    um_err err;
    int threads = argc > 2 ? atoi(argv[2]) : 0;
    if (threads == 0) threads = um_cpu_count();
    count_threads(argv, threads);
    if (argc > 1 && !um_streq(argv[1], "all")) wanted = argv[1];
    if (argc > 3) um_cpu_use_isa(argv[3]);
    const um_backend *backend;
    int32_t number;
    if (um_backend_find(&backend, &number, argc > 4 ? argv[4] : "cpu", &err)) stop(&err);
    ops = backend->ops;
    um_dev_config c = {.threads = threads,
                       .max_tokens = KEYS_MAX,
                       .max_rows = 64,
                       .max_in = 12288,
                       .max_head_dim = 128,
                       .max_heads = 32,
                       .max_vocab = V_BENCH,
                       .max_hidden = 4096,
                       .max_experts = EXPERTS_MAX,
                       .max_top_k = 8,
                       .max_expert_ff = 768};
    for (c.dtype = UM_F32; c.dtype <= UM_BF16; c.dtype++) {
        if (ops->open(&dev, &c, &err)) stop(&err);
        if (c.dtype == UM_F32) {
            const char *version = um_bench_onednn_version();
            printf("%s; backend %s, %s, %d threads; oneDNN %s\n", um_bench_machine(), ops->name, ops->isa(dev),
                   ops->threads(dev), version ? version : "is missing: install libdnnl-dev (tools/deps.sh bench)");
            printf("memory: %.1f GB/s read by %d threads, %.1f by one\n", um_bench_read_bandwidth(threads), threads,
                   um_bench_read_bandwidth(1));
        }
        printf("\nproducts in %s\n", um_dtype_name(c.dtype));
        print_head();
        if (c.dtype == UM_BF16) bench_bf16();
        else bench_f32();
        ops->close(dev);
    }
    return 0;
}
