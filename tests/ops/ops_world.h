/* Helpers of the tests of operations: devices, random inputs, weights, KV with pages, and comparison. */
#ifndef UM_TESTS_OPS_WORLD_H
#define UM_TESTS_OPS_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "ops/backend.h"
#include "ops/cpu/cpu.h"
#include "ops/quantize.h"

/* ---- Random numbers: main prints the seed; UM_TEST_SEED sets it ---- */

static uint64_t world_seed = 1, world_counter;

static inline void seed_world(void) {
    const char *text = getenv("UM_TEST_SEED");
    if (text) world_seed = strtoull(text, NULL, 10);
    printf("seed %llu (UM_TEST_SEED)\n", (unsigned long long)world_seed);
}

static inline double random_unit(void) { return um_rng_uniform(world_seed, world_counter++); }
static inline float random_signed(void) { return (float)(2 * random_unit() - 1); }
static inline int32_t random_below(int32_t n) { return (int32_t)(random_unit() * n); }

static inline float *random_floats(size_t n) {
    float *x = UM_NEW_ARRAY(float, n + 1);
    for (size_t i = 0; i < n; i++) x[i] = random_signed();
    return x;
}

/* Returns an output filled with NaN, so that tests notice elements that were not written. */
static inline float *poisoned_floats(size_t n) {
    float *x = UM_NEW_ARRAY(float, n + 1);
    for (size_t i = 0; i < n; i++) x[i] = NAN;
    return x;
}

static inline float *copy_floats(const float *x, size_t n) {
    float *y = UM_NEW_ARRAY(float, n + 1);
    memcpy(y, x, n * sizeof *x);
    return y;
}

/* ---- Tensors ---- */

/* Converts |v| in [2^-14, 1] to f16, rounding towards zero; smaller values become 0. This suffices for test data. */
static inline uint16_t f16_of(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    int exponent = (int)(bits >> 23 & 255) - 112;
    if (exponent <= 0) return 0;
    return (uint16_t)((bits >> 16 & 0x8000) | (uint32_t)exponent << 10 | (bits >> 13 & 0x3ff));
}

/* Returns a random matrix of the given type. Its data starts at an odd address, because tensors of a file may be
 * unaligned. Free it with free_tensor. */
static inline um_tensor random_tensor(um_dtype type, int64_t rows, int64_t in) {
    size_t n = (size_t)(rows * in), size = um_dtype_size(type);
    char *data = (char *)um_alloc(n * size + 1);
    for (size_t i = 0; i < n; i++) {
        float v = random_signed();
        uint16_t half = type == UM_F16 ? f16_of(v) : um_f32_to_bf16(v);
        if (type == UM_F32) memcpy(data + 1 + i * size, &v, sizeof v);
        else memcpy(data + 1 + i * size, &half, sizeof half);
    }
    return (um_tensor){.name = "random", .type = type, .n_dims = 2, .dim = {rows, in}, .data = data + 1};
}

static inline void free_tensor(um_tensor *t) { um_free((char *)t->data - 1); }

/* ---- Devices ---- */

/* Types of the arithmetic. UM_Q8 and UM_Q4 stand for UM_BF16 with such matrices. */
static const um_dtype world_types[] = {UM_F32, UM_BF16, UM_Q8, UM_Q4};

static const um_dev_config world_config = {.threads = 2,
                                           .dtype = UM_F32,
                                           .max_tokens = 600,
                                           .max_rows = 120,
                                           .max_in = 1100,
                                           .max_head_dim = 300,
                                           .max_heads = 16,
                                           .max_vocab = 1400,
                                           .max_hidden = 320,
                                           .max_experts = 40,
                                           .max_top_k = 10,
                                           .max_expert_ff = 1100};

typedef struct world {
    const um_ops *ops;
    um_dev *dev;
    um_dtype dtype;
    um_dtype weights; /* type of the products of weights: dtype, UM_Q8 or UM_Q4 */
    char label[64];   /* "cpu avx2 bfloat16" */
} world;

static inline world open_world(const um_ops *ops, const char *isa, um_dtype type, int threads) {
    um_err err;
    world w = {.ops = ops, .dtype = um_is_quantized(type) ? UM_BF16 : type, .weights = type};
    um_dev_config c = world_config;
    c.dtype = w.dtype;
    c.weights = w.weights;
    c.threads = threads;
    if (isa) um_cpu_use_isa(isa);
    if (ops->open(&w.dev, &c, &err)) fail_msg("%s", err.msg);
    um_cpu_use_isa(NULL);
    snprintf(w.label, sizeof w.label, "%s %s %s", ops->name, ops->isa(w.dev), um_dtype_name(type));
    return w;
}

static inline void close_world(world *w) { w->ops->close(w->dev); }

static inline const um_ops *ops_named(const char *name) {
    const um_backend *backend;
    int32_t number;
    assert_int_equal(um_backend_find(&backend, &number, name, NULL), UM_OK);
    return backend->ops;
}

/* Returns the instruction sets with which to open a backend; NULL stands for its default. */
static inline const char *const *isas_of(const um_ops *ops) {
    static const char *const none[] = {NULL, NULL};
    return um_streq(ops->name, "cpu") ? um_cpu_isas() : none;
}

/* The results of the reference, in the order of a check. The first instruction set computes them. The others have the
 * same random inputs, so they use the same results. */
enum { RESULTS_MAX = 256 };
static struct {
    float *of[RESULTS_MAX];
    size_t size[RESULTS_MAX], n, at;
} world_results;

/* Returns the next result [n] of the reference, which stays in the list, or NULL if it must be computed. No random
 * number may be drawn to compute it. */
static inline const float *known_result(size_t n) {
    if (world_results.at == world_results.n) return NULL;
    assert_int_equal(world_results.size[world_results.at], n);
    return world_results.of[world_results.at++];
}

/* Adds a result [n] to the list and returns it. The list frees it. */
static inline const float *keep_result(float *result, size_t n) {
    if (world_results.n == RESULTS_MAX) fail_msg("a check has more than %d results", RESULTS_MAX);
    world_results.of[world_results.n] = result;
    world_results.size[world_results.n++] = n;
    world_results.at = world_results.n;
    return result;
}

static inline void drop_results(void) {
    while (world_results.n) um_free(world_results.of[--world_results.n]);
    world_results.at = 0;
}

/* Calls check(device, ref) for every instruction set of the backend, each time with the same random numbers. */
static inline void for_each_isa(const um_ops *ops, um_dtype type, const world *ref,
                                void (*check)(const world *w, const world *ref)) {
    const char *const *isa = isas_of(ops);
    const uint64_t counter = world_counter;
    do {
        world w = open_world(ops, *isa, type, 2);
        world_counter = counter;
        world_results.at = 0;
        check(&w, ref);
        close_world(&w);
    } while (*isa && *++isa);
    drop_results();
}

/* Calls check(device, reference) for every backend except the reference, every instruction set and arithmetic. */
static inline void for_each_world(void (*check)(const world *w, const world *ref)) {
    for (size_t t = 0; t < UM_LEN(world_types); t++) {
        world ref = open_world(ops_named("ref"), NULL, world_types[t], 1);
        for (const um_ops *const *ops = um_ops_all; *ops; ops++)
            if (*ops != ref.ops) for_each_isa(*ops, world_types[t], &ref, check);
        close_world(&ref);
    }
}

/* Does the same, and also calls check(reference, reference). */
static inline void for_each_world_and_reference(void (*check)(const world *w, const world *ref)) {
    for_each_world(check);
    for (size_t t = 0; t < UM_LEN(world_types); t++) {
        world ref = open_world(ops_named("ref"), NULL, world_types[t], 1);
        check(&ref, &ref);
        close_world(&ref);
    }
}

/* Calls check(one, many) for cpu devices with one thread and with several threads. */
static inline void for_each_number_of_threads(void (*check)(const world *one, const world *many)) {
    for (size_t t = 0; t < UM_LEN(world_types); t++) {
        for (const char *const *isa = um_cpu_isas(); *isa; isa++) {
            world one = open_world(ops_named("cpu"), *isa, world_types[t], 1);
            for (int n = 2; n <= 5; n++) {
                world many = open_world(ops_named("cpu"), *isa, world_types[t], n);
                assert_int_equal(many.ops->threads(many.dev), n);
                check(&one, &many);
                close_world(&many);
            }
            close_world(&one);
        }
    }
}

static inline um_weight *make_weight_as(const world *w, const um_tensor *part, int n_parts, um_dtype type) {
    um_err err;
    um_weight *m = NULL;
    if (w->ops->weight(w->dev, &m, part, n_parts, type, &err)) fail_msg("%s", err.msg);
    return m;
}

static inline um_weight *make_weight(const world *w, const um_tensor *part, int n_parts) {
    return make_weight_as(w, part, n_parts, w->weights);
}

/* ---- Comparison ---- */

typedef struct tolerance {
    double atol, rtol;
} tolerance;

/* The element with the largest error relative to its tolerance in all comparisons of a test. */
typedef struct worst {
    double share; /* error / tolerance */
    char text[256];
} worst;
static worst world_worst;

static inline void begin_worst(void) { world_worst = (worst){0}; }
static inline void print_worst(const char *op) {
    printf("    %-10s worst element at %.3f of its tolerance: %s\n", op, world_worst.share, world_worst.text);
}

/* Checks |got - want| <= atol + rtol * |want| for every element. Rows have `columns` elements. */
static inline void compare(const world *w, const char *what, const float *got, const float *want, size_t n,
                           size_t columns, tolerance tol) {
    for (size_t i = 0; i < n; i++) {
        double bound = tol.atol + tol.rtol * fabs((double)want[i]), error = fabs((double)got[i] - (double)want[i]);
        bool same = got[i] == want[i]; /* true for equal infinities too */
        double share = same ? 0 : error / bound;
        if (share > world_worst.share || isnan(share)) {
            world_worst.share = share;
            snprintf(world_worst.text, sizeof world_worst.text, "%s, %s [%zu, %zu] = %.9g, reference %.9g", w->label,
                     what, i / columns, i % columns, (double)got[i], (double)want[i]);
        }
        if (!(share <= 1)) fail_msg("%s: error %.3g, allowed %.3g", world_worst.text, error, bound);
    }
}

static inline void same_bits(const world *w, const char *what, const void *a, const void *b, size_t bytes) {
    if (memcmp(a, b, bytes) == 0) return;
    const unsigned char *x = (const unsigned char *)a, *y = (const unsigned char *)b;
    size_t i = 0;
    while (x[i] == y[i]) i++;
    fail_msg("%s: %s differ from byte %zu of %zu on", w->label, what, i, bytes);
}

/* Compares answers [n]. The bytes between the last number and `top` are padding. */
static inline void same_answers(const world *w, const char *what, const um_answer *a, const um_answer *b, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        same_bits(w, what, &a[i], &b[i], offsetof(um_answer, logsumexp) + sizeof a->logsumexp);
        if (a[i].top != b[i].top) fail_msg("%s: %s: lists of answer %d differ", w->label, what, i);
    }
}

/* ---- Pages ---- */

/* The pages of a request, chosen at random from a pool. They hold the visibility indices [0, n_keys) except for those
 * in the hole. */
typedef struct paged {
    um_kv_shape shape;
    int32_t n_pages, n_keys;
    int32_t *page;
    um_range hole;
} paged;

static inline paged random_pages(um_kv_shape shape, int32_t n_keys) {
    paged p = {.shape = shape, .n_keys = n_keys, .n_pages = UM_CEIL_DIV(n_keys, shape.page_size)};
    int32_t pool = (int32_t)(shape.n_slots / shape.page_size);
    assert(p.n_pages <= pool);
    p.page = UM_NEW_ARRAY(int32_t, (size_t)pool);
    for (int32_t i = 0; i < pool; i++) {
        int32_t j = random_below(i + 1);
        p.page[i] = p.page[j];
        p.page[j] = i;
    }
    return p;
}

static inline int32_t slot_of(const paged *p, int32_t vis) {
    return p->page[vis / p->shape.page_size] * p->shape.page_size + vis % p->shape.page_size;
}

/* Writes keys and values [n_keys, n_kv_heads, d] of the visibility indices from 0 on with rope_kv, without norm and
 * rotation. */
static inline void write_keys(const world *w, um_kv *kv, const paged *p, int32_t layer, const float *key,
                              const float *value) {
    size_t width = (size_t)p->shape.n_kv_heads * (size_t)p->shape.head_dim, d = (size_t)p->shape.head_dim;
    float *qkv = UM_NEW_ARRAY(float, (size_t)p->n_keys *(d + 2 * width) + 1);
    int32_t *pos = UM_NEW_ARRAY(int32_t, (size_t)p->n_keys + 1), *slot = UM_NEW_ARRAY(int32_t, (size_t)p->n_keys + 1);
    for (int32_t i = 0; i < p->n_keys; i++) {
        float *row = qkv + (size_t)i * (d + 2 * width);
        memcpy(row + d, key + (size_t)i * width, width * sizeof *key);
        memcpy(row + d + width, value + (size_t)i * width, width * sizeof *value);
        slot[i] = i >= p->hole.start && i < p->hole.end ? -1 : slot_of(p, i);
    }
    um_rope_kv a = {.layer = layer,
                    .n_tokens = p->n_keys,
                    .n_heads = 1,
                    .n_kv_heads = p->shape.n_kv_heads,
                    .head_dim = p->shape.head_dim,
                    .rope_dim = 0,
                    .qkv = qkv,
                    .eps = 1e-6f,
                    .cos = qkv,
                    .sin = qkv,
                    .pos = pos,
                    .slot = slot};
    w->ops->rope_kv(w->dev, kv, &a);
    um_free(qkv);
    um_free(pos);
    um_free(slot);
}

static inline um_kv *make_kv(const world *w, const um_kv_shape *shape) {
    um_err err;
    um_kv *kv = NULL;
    if (w->ops->kv_new(w->dev, &kv, shape, &err)) fail_msg("%s", err.msg);
    return kv;
}

#endif
