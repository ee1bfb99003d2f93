/* Measures how fast the processor reads memory, and how fast the operations compute a large product. */
#include <unistd.h>

#include "ops/host/host.h"

#define READ_BYTES   ((size_t)512 << 20) /* larger than the caches of most processors */
#define READ_RUNS    3
#define WIDTH_MAX    4096 /* of the product's matrix */
#define TOKENS_MAX   512
#define SECONDS      0.2 /* a product that takes this long is timed well enough */
#define TASKS        256
#define PRODUCT_RUNS 3

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

typedef struct reading {
    uint64_t *data;
    size_t n;
    uint64_t sum[TASKS]; /* keeps the compiler from leaving out the reads */
    bool write;
} reading;

static void read_task(void *arg, int task, int thread) {
    reading *r = (reading *)arg;
    const size_t from = r->n * (size_t)task / TASKS, to = r->n * ((size_t)task + 1) / TASKS;
    uint64_t sum[8] = {0}; /* independent sums, so that additions don't wait for each other */
    (void)thread;
    if (r->write) memset(r->data + from, 1, (to - from) * sizeof *r->data);
    for (size_t i = from; i + 8 <= to; i += 8)
        for (size_t k = 0; k < 8; k++) sum[k] += r->data[i + k];
    for (size_t k = 0; k < 8; k++) r->sum[task] += sum[k];
}

size_t um_host_uncached_bytes(void) {
    size_t cache = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
    cache = (size_t)UM_MAX(sysconf(_SC_LEVEL3_CACHE_SIZE), 0);
#endif
    return UM_MAX(READ_BYTES, UM_MIN(2 * cache, um_memory_available() / 4));
}

um_status um_host_read_rate(int threads, double *rate, um_err *err) {
    const size_t bytes = um_host_uncached_bytes();
    reading r = {.n = bytes / sizeof(uint64_t), .write = true};
    void *data = NULL;
    um_pool *pool = NULL;
    *rate = 0;
    um_status s = um_try_alloc(&data, bytes, 64, "memory to measure its speed", err);
    if (!s) s = um_pool_new(&pool, threads, err);
    r.data = data;
    for (int i = 0; i <= READ_RUNS && !s; i++) {
        const double start = um_now();
        um_pool_run(pool, read_task, &r, TASKS);
        if (!r.write) *rate = UM_MAX(*rate, (double)bytes / (um_now() - start));
        r.write = false; /* the first run only makes the pages */
    }
    um_pool_free(pool);
    um_free(data);
    return s;
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

typedef struct product {
    um_dev *dev;
    um_weight *w;
    void *x, *y; /* [tokens, width] */
    int32_t width, tokens;
} product;

static um_status open_product(product *p, const um_device *d, um_err *err) {
    const size_t n = (size_t)p->width * (size_t)p->width;
    const size_t bytes = (size_t)p->width * (size_t)p->tokens * sizeof(float);
    void *data = NULL;
    um_status s = um_try_alloc(&data, n * sizeof(uint16_t), 64, "a matrix to measure products", err);
    uint16_t *value = data;
    for (size_t i = 0; i < n && !s; i++) value[i] = um_f32_to_bf16((float)(i * 2654435761u % 1024) / 1024 - 0.5f);
    const um_tensor t = {.name = "matrix", .type = UM_BF16, .n_dims = 2, .dim = {p->width, p->width}, .data = data};
    if (!s) s = d->ops->weight(p->dev, &p->w, &t, 1, d->config.weights, err);
    if (!s) s = d->ops->buffer(p->dev, &p->x, bytes, "inputs of products", err);
    if (!s) s = d->ops->buffer(p->dev, &p->y, bytes, "results of products", err);
    for (size_t i = 0; i < bytes / sizeof(float) && !s; i++) ((float *)p->x)[i] = (float)(i % 63) / 64;
    um_free(data);
    return s;
}

static void close_product(product *p, const um_device *d) {
    if (p->y) d->ops->buffer_free(p->dev, p->y);
    if (p->x) d->ops->buffer_free(p->dev, p->x);
    if (p->w) d->ops->weight_free(p->dev, p->w);
}

static double time_product(const product *p, const um_ops *ops, int32_t tokens) {
    const double start = um_now();
    ops->linear(p->dev, p->w, NULL, p->x, tokens, false, p->y);
    return um_now() - start;
}

/* Begins with few tokens and doubles them, because the reference operations need seconds for many. */
static double product_rate(const product *p, const um_ops *ops) {
    const double per_token = 2.0 * p->width * p->width;
    double best = 0, seconds = 0;
    for (int32_t tokens = UM_MIN(8, p->tokens); seconds < SECONDS; tokens = UM_MIN(2 * tokens, p->tokens)) {
        int runs = tokens == p->tokens ? PRODUCT_RUNS : 1;
        for (; runs > 0; runs--) {
            seconds = time_product(p, ops, tokens);
            best = UM_MAX(best, per_token * tokens / seconds);
        }
        if (tokens == p->tokens) break;
    }
    return best;
}

um_status um_host_limits(um_device *d, um_device_limits *out, um_err *err) {
    product p = {.width = UM_MIN(WIDTH_MAX, UM_MIN(d->config.max_in, d->config.max_hidden)),
                 .tokens = UM_MIN(TOKENS_MAX, UM_MAX(d->config.max_tokens, 1))};
    *out = (um_device_limits){0};
    um_status s = um_host_acquire(d, &p.dev, err);
    if (s) return s;
    s = um_host_read_rate(d->ops->threads(p.dev), &out->read_bytes, err);
    if (!s) s = open_product(&p, d, err);
    if (!s) out->operations = product_rate(&p, d->ops);
    close_product(&p, d);
    um_host_release(d, p.dev);
    return s;
}
