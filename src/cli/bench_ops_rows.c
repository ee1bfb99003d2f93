/* Measures the operations of `unmask bench ops`. Calls alternate between copies of the weights that are larger than the
 * caches together, so that weights are read from memory as in a model. A quick run has fewer copies. */
#include <math.h>

#include "cli/bench_ops.h"
#include "ops/expert_route.h"
#include "ops/quantize.h"

enum { COPIES_MAX = 512, PAGE = 32, LAYERS = 8, ROUTINGS = 8, HEAD_ROWS_MAX = 128, LIKELIEST = 20 };
#define QUICK_CYCLE_BYTES ((size_t)64 << 20)

static size_t cycle_bytes(const um_ops_bench *b) { return b->quick ? QUICK_CYCLE_BYTES : um_host_uncached_bytes(); }

/* ---- Inputs ------------------------------------------------------------------------------------------------------ */

/* Allocates n random floats of -1..1 in memory for operations. */
static um_status new_floats(um_ops_bench *b, float **out, size_t n, um_err *err) {
    static uint64_t counter;
    void *p = NULL;
    um_status s = b->ops->buffer(b->dev, &p, um_mul(n, sizeof(float)), "inputs of operations", err);
    *out = (float *)p;
    for (size_t i = 0; i < n && !s; i++) (*out)[i] = (float)(2 * um_rng_uniform(1, counter++) - 1);
    return s;
}

static void free_floats(um_ops_bench *b, float *p) {
    if (p) b->ops->buffer_free(b->dev, p);
}

/* Allocates a random matrix as a checkpoint stores it: fp32 for products in fp32, else bf16. A part of it is random,
 * and the rest repeats this part. Its data are freed with um_free. */
static um_status new_tensor(um_ops_bench *b, um_tensor *t, int64_t rows, int64_t in, um_err *err) {
    enum { RANDOM = 1 << 20 };
    const um_dtype type = b->type == UM_F32 ? UM_F32 : UM_BF16;
    const size_t size = um_dtype_size(type), n = um_mul((size_t)rows, (size_t)in), first = UM_MIN(n, (size_t)RANDOM);
    void *data = NULL;
    um_status s = um_try_alloc(&data, um_mul(n, size), 64, "a matrix to measure", err);
    uint32_t random = 1; /* xorshift */
    for (size_t i = 0; i < first && !s; i++) {
        random ^= random << 13, random ^= random >> 17, random ^= random << 5;
        const float v = (float)random * 0x1p-31f - 1;
        if (type == UM_F32) ((float *)data)[i] = v;
        else ((uint16_t *)data)[i] = um_f32_to_bf16(v);
    }
    for (size_t at = first; at < n && !s; at += first)
        memcpy((char *)data + at * size, data, UM_MIN(first, n - at) * size);
    *t = (um_tensor){.name = "matrix", .type = type, .n_dims = 2, .dim = {rows, in}, .data = data};
    return s;
}

static um_status new_weight(um_ops_bench *b, um_weight **w, const um_tensor *t, um_err *err) {
    return b->ops->weight(b->dev, w, t, 1, b->type, err);
}

static void free_weights(um_ops_bench *b, um_weight **w, int32_t n) {
    for (int32_t i = 0; i < n && w; i++)
        if (w[i]) b->ops->weight_free(b->dev, w[i]);
}

/* Allocates a random matrix. */
static um_status new_random_weight(um_ops_bench *b, um_weight **w, int64_t rows, int64_t in, um_err *err) {
    um_tensor t;
    um_status s = new_tensor(b, &t, rows, in, err);
    if (!s) s = new_weight(b, w, &t, err);
    um_free((void *)(uintptr_t)t.data);
    return s;
}

static int32_t most_rows(const um_ops_bench *b) {
    int32_t most = 1;
    for (int32_t i = 0; i < b->n_rows; i++) most = UM_MAX(most, b->rows[i]);
    return most;
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

static void find_limit(um_ops_row *r, const um_ops_header *h) {
    const double peak = h->peak[r->product].operations, read = um_ratio(r->bytes, h->read_bytes),
                 compute = um_ratio(r->operations, peak);
    r->limit = UM_MAX(read, compute);
    r->reads = read >= compute;
}

/* Measures a line whose sizes are set, and reports it. */
static void measure(um_ops_bench *b, um_ops_row *r, void (*run)(void *arg, int round), void *arg) {
    const um_measure_task task = {run, arg};
    um_measure(&task, 1, b->windows, b->window_seconds, &r->seconds);
    find_limit(r, b->header);
    b->report(b->arg, b, r);
}

/* Begins a line whose products have the type of the matrices. */
static um_ops_row new_row(const um_ops_bench *b, const char *operation, int32_t rows) {
    return (um_ops_row){.operation = operation, .type = um_dtype_name(b->type), .rows = rows, .product = b->type};
}

/* ---- Linear ------------------------------------------------------------------------------------------------------ */

typedef struct linear {
    um_ops_bench *b;
    um_weight *w[COPIES_MAX];
    int n_copies;
    int32_t n_tokens;
    bool gate;
    float *x, *y;
} linear;

static void run_linear(void *arg, int round) {
    linear *l = (linear *)arg;
    const um_weight *w = l->w[round % l->n_copies];
    if (l->gate) l->b->ops->linear_gate(l->b->dev, UM_ACT_SILU, w, NULL, l->x, l->n_tokens, l->y);
    else l->b->ops->linear(l->b->dev, w, NULL, l->x, l->n_tokens, false, l->y);
}

/* Makes copies of a random matrix until they are larger than the caches. */
static um_status copy_weights(linear *l, int64_t rows, int64_t in, um_err *err) {
    const size_t all = cycle_bytes(l->b);
    um_tensor t;
    um_status s = new_tensor(l->b, &t, rows, in, err);
    for (size_t bytes = 0; !s && l->n_copies < COPIES_MAX && bytes < all;) {
        s = new_weight(l->b, &l->w[l->n_copies], &t, err);
        if (!s) bytes += l->b->ops->weight_bytes(l->w[l->n_copies++]);
    }
    um_free((void *)(uintptr_t)t.data);
    return s;
}

/* Measures products with a matrix [rows, in]; with `gate`, fused with the gate of its halves. */
static um_status measure_product(um_ops_bench *b, const char *what, int32_t in, int32_t rows, bool gate, um_err *err) {
    linear *l = UM_NEW(linear);
    const size_t most = (size_t)most_rows(b);
    *l = (linear){.b = b, .gate = gate};
    um_status s = copy_weights(l, rows, in, err);
    if (!s) s = new_floats(b, &l->x, most * (size_t)in, err);
    if (!s) s = new_floats(b, &l->y, most * (size_t)rows, err);
    for (int32_t i = 0; i < b->n_rows && !s; i++) {
        um_ops_row r = new_row(b, gate ? "linear_gate" : "linear", b->rows[i]);
        snprintf(r.what, sizeof r.what, "%s, %d to %s%d", what, in, gate ? "2 x " : "", gate ? rows / 2 : rows);
        l->n_tokens = r.rows;
        r.operations = 2.0 * r.rows * in * rows;
        r.bytes = (double)b->ops->weight_bytes(l->w[0]);
        measure(b, &r, run_linear, l);
    }
    free_weights(b, l->w, l->n_copies);
    free_floats(b, l->x);
    free_floats(b, l->y);
    um_free(l);
    return s;
}

static um_status measure_linear(um_ops_bench *b, um_err *err) {
    const um_arch *a = &b->arch;
    const int32_t queries = a->n_heads * a->head_dim;
    um_status s = measure_product(b, "qkv", a->hidden, queries + 2 * a->n_kv_heads * a->head_dim, false, err);
    if (!s) s = measure_product(b, "output", queries, a->hidden, false, err);
    if (!s && a->n_ff) s = measure_product(b, "down", a->n_ff, a->hidden, false, err);
    return s;
}

static um_status measure_linear_gate(um_ops_bench *b, um_err *err) {
    if (!b->arch.n_ff || !b->ops->linear_gate) return UM_OK;
    return measure_product(b, "gate and up", b->arch.hidden, 2 * b->arch.n_ff, true, err);
}

/* ---- Elementwise ------------------------------------------------------------------------------------------------- */

typedef struct vectors {
    um_ops_bench *b;
    float *x, *y, *w;
    um_norm norm;
    int32_t n_tokens, n;
} vectors;

static void run_norm(void *arg, int round) {
    vectors *v = (vectors *)arg;
    (void)round;
    v->b->ops->norm(v->b->dev, v->x, &v->norm, v->n_tokens, v->n, v->y);
}

static void run_gate(void *arg, int round) {
    vectors *v = (vectors *)arg;
    (void)round;
    v->b->ops->gate(v->b->dev, UM_ACT_SILU, v->x, v->n_tokens, v->n, v->y);
}

/* Measures an operation on activations, which are fp32 whatever the type of the matrices is. They stay in the caches,
 * as they do in a pass. */
static um_status measure_vectors(um_ops_bench *b, const char *name, int32_t n, bool gate, um_err *err) {
    vectors v = {.b = b, .n = n, .norm = {.eps = 1e-6f}};
    const size_t most = (size_t)most_rows(b);
    if (!b->first || !n) return UM_OK;
    um_status s = new_floats(b, &v.w, (size_t)n, err);
    if (!s) s = new_floats(b, &v.x, most * 2 * (size_t)n, err);
    if (!s) s = new_floats(b, &v.y, most * (size_t)n, err);
    v.norm.w = v.w;
    for (int32_t i = 0; i < b->n_rows && !s; i++) {
        um_ops_row r = new_row(b, name, b->rows[i]);
        r.type = um_dtype_name(UM_F32);
        snprintf(r.what, sizeof r.what, "%d", n);
        v.n_tokens = r.rows;
        r.bytes = (gate ? 12.0 : 8.0) * r.rows * n;
        measure(b, &r, gate ? run_gate : run_norm, &v);
    }
    free_floats(b, v.w);
    free_floats(b, v.x);
    free_floats(b, v.y);
    return s;
}

static um_status measure_norm(um_ops_bench *b, um_err *err) {
    return measure_vectors(b, "norm", b->arch.hidden, false, err);
}

static um_status measure_gate(um_ops_bench *b, um_err *err) {
    return measure_vectors(b, "gate", b->arch.n_ff ? b->arch.n_ff : b->arch.expert_ff, true, err);
}

/* ---- Attention --------------------------------------------------------------------------------------------------- */

typedef struct attention {
    um_ops_bench *b;
    um_kv *kv;
    um_rope_kv rope;
    um_attention a;
    um_batch batch;
    um_span span;
    float *qkv, *out, *angle;
    int32_t *page, *index, *seen_end; /* [n_keys] */
    int32_t n_keys;
    double kv_bytes; /* of a layer */
} attention;

static void run_attention(void *arg, int round) {
    attention *t = (attention *)arg;
    t->a.layer = round % LAYERS;
    t->b->ops->attention(t->b->dev, t->kv, &t->a);
}

static void run_rope(void *arg, int round) {
    attention *t = (attention *)arg;
    t->rope.layer = round % LAYERS;
    t->b->ops->rope_kv(t->b->dev, t->kv, &t->rope);
}

static void free_attention(attention *t) {
    if (t->kv) t->b->ops->kv_free(t->b->dev, t->kv);
    free_floats(t->b, t->qkv);
    free_floats(t->b, t->out);
    free_floats(t->b, t->angle);
    um_free(t->page);
    um_free(t->index);
    um_free(t->seen_end);
}

/* Makes the keys and values of n_keys tokens in all layers with rope_kv. */
static um_status new_attention(attention *t, um_dtype kv, um_err *err) {
    um_ops_bench *b = t->b;
    const um_arch *a = &b->arch;
    const size_t n = (size_t)t->n_keys, width = (size_t)(a->n_heads + 2 * a->n_kv_heads) * (size_t)a->head_dim;
    const size_t half = n * (size_t)a->rope_dim / 2;
    const um_kv_shape shape = {.n_layers = LAYERS,
                               .n_kv_heads = a->n_kv_heads,
                               .head_dim = a->head_dim,
                               .page_size = PAGE,
                               .n_slots = t->n_keys,
                               .type = kv};
    t->page = UM_NEW_ARRAY(int32_t, n);
    t->index = UM_NEW_ARRAY(int32_t, n);
    t->seen_end = UM_NEW_ARRAY(int32_t, n);
    for (int32_t i = 0; i < t->n_keys; i++) t->page[i] = t->index[i] = i, t->seen_end[i] = t->n_keys;
    um_status s = b->ops->kv_new(b->dev, &t->kv, &shape, err);
    if (!s) s = new_floats(b, &t->qkv, n * width, err);
    if (!s) s = new_floats(b, &t->out, n * (size_t)a->n_heads * (size_t)a->head_dim, err);
    if (!s) s = new_floats(b, &t->angle, 2 * half, err);
    if (s) return s;
    t->kv_bytes = (double)b->ops->kv_bytes(&shape) / LAYERS;
    t->rope = (um_rope_kv){.n_tokens = t->n_keys,
                           .n_heads = a->n_heads,
                           .n_kv_heads = a->n_kv_heads,
                           .head_dim = a->head_dim,
                           .rope_dim = a->rope_dim,
                           .qkv = t->qkv,
                           .eps = 1e-6f,
                           .cos = t->angle,
                           .sin = t->angle + half,
                           .pos = t->index,
                           .slot = t->index};
    for (int32_t layer = 0; layer < LAYERS; layer++) run_rope(t, layer);
    return UM_OK;
}

/* Prepares attention of the last n of the tokens to all of them. */
static void set_queries(attention *t, int32_t n) {
    const um_arch *a = &t->b->arch;
    t->rope.n_tokens = n;
    t->rope.slot = t->rope.pos = t->index + t->n_keys - n;
    t->span = (um_span){.n = n, .page = t->page, .keys = {0, t->n_keys}, .adapter = -1};
    t->batch = (um_batch){.n_tokens = n, .n_spans = 1, .span = &t->span, .seen_end = t->seen_end};
    t->a = (um_attention){.n_heads = a->n_heads,
                          .n_kv_heads = a->n_kv_heads,
                          .head_dim = a->head_dim,
                          .page_size = PAGE,
                          .stride = (a->n_heads + 2 * a->n_kv_heads) * a->head_dim,
                          .q = t->qkv,
                          .out = t->out,
                          .scale = 0.1f,
                          .batch = &t->batch};
}

static void measure_queries(attention *t, um_dtype kv, int32_t n, bool rope) {
    const um_arch *a = &t->b->arch;
    um_ops_row r = new_row(t->b, rope ? "rope_kv" : "attention", n);
    r.type = um_dtype_name(kv);
    set_queries(t, n);
    if (rope) {
        const double heads = a->n_heads + a->n_kv_heads, values = a->n_kv_heads;
        snprintf(r.what, sizeof r.what, "%d/%d x %d", a->n_heads, a->n_kv_heads, a->head_dim);
        r.bytes = (double)n * a->head_dim * (8 * heads + values * (4 + 2 * (double)um_dtype_size(kv)));
        measure(t->b, &r, run_rope, t);
        return;
    }
    snprintf(r.what, sizeof r.what, "%d/%d x %d, %d keys", a->n_heads, a->n_kv_heads, a->head_dim, t->n_keys);
    r.operations = 4.0 * n * a->n_heads * a->head_dim * t->n_keys;
    r.bytes = t->kv_bytes;
    measure(t->b, &r, run_attention, t);
}

/* Measures an operation on keys and values of this type. */
static um_status measure_kv(um_ops_bench *b, um_dtype kv, bool rope, um_err *err) {
    attention t = {.b = b, .n_keys = UM_MAX(b->context, most_rows(b))};
    um_status s = new_attention(&t, kv, err);
    for (int32_t i = 0; i < b->n_rows && !s; i++) measure_queries(&t, kv, b->rows[i], rope);
    free_attention(&t);
    return s;
}

static um_status measure_kv_types(um_ops_bench *b, bool rope, um_err *err) {
    if (um_is_quantized(b->type)) return UM_OK;
    um_status s = measure_kv(b, b->type, rope, err);
    if (!s && b->type == UM_BF16 && !b->quick) s = measure_kv(b, UM_F8, rope, err);
    return s;
}

static um_status measure_attention(um_ops_bench *b, um_err *err) { return measure_kv_types(b, false, err); }
static um_status measure_rope(um_ops_bench *b, um_err *err) { return measure_kv_types(b, true, err); }

/* ---- Mixture of experts ------------------------------------------------------------------------------------------ */

typedef struct experts {
    um_ops_bench *b;
    int32_t n_layers;
    um_weight **gate_up, **down; /* [n_layers, n_experts] */
    um_moe a;
    float *logits; /* [ROUTINGS][n_tokens, n_experts] */
    float *x, *y;
} experts;

static void run_moe(void *arg, int round) {
    experts *e = (experts *)arg;
    um_moe a = e->a;
    const size_t layer = (size_t)(round % e->n_layers) * (size_t)a.route->n_experts;
    a.gate_up += layer;
    a.down += layer;
    a.logits = e->logits + (size_t)(round % ROUTINGS) * (size_t)a.n_tokens * (size_t)a.route->n_experts;
    e->b->ops->moe(e->b->dev, &a);
}

/* Returns the average number of experts that a routing uses. */
static double used_experts(const experts *e) {
    const um_expert_route *r = e->a.route;
    const size_t choices = (size_t)e->a.n_tokens * (size_t)r->top_k;
    int32_t *expert = UM_NEW_ARRAY(int32_t, choices);
    float *weight = UM_NEW_ARRAY(float, choices), *scratch = UM_NEW_ARRAY(float, 3 * (size_t)r->n_experts);
    bool *seen = UM_NEW_ARRAY(bool, (size_t)r->n_experts);
    int used = 0;
    for (int i = 0; i < ROUTINGS; i++) {
        memset(seen, 0, (size_t)r->n_experts * sizeof *seen);
        um_expert_route_tokens(r, e->logits + (size_t)i * (size_t)e->a.n_tokens * (size_t)r->n_experts, NULL, NULL,
                               NULL, e->a.n_tokens, scratch, expert, weight);
        for (size_t k = 0; k < choices; k++) {
            used += !seen[expert[k]];
            seen[expert[k]] = true;
        }
    }
    um_free(expert);
    um_free(weight);
    um_free(scratch);
    um_free(seen);
    return (double)used / ROUTINGS;
}

static um_status new_experts(experts *e, um_err *err) {
    um_ops_bench *b = e->b;
    const um_arch *a = &b->arch;
    const size_t n = (size_t)a->route.n_experts, most = (size_t)most_rows(b), all = cycle_bytes(b);
    um_tensor up = {0}, down = {0};
    e->gate_up = UM_NEW_ARRAY(um_weight *, n * LAYERS);
    e->down = UM_NEW_ARRAY(um_weight *, n * LAYERS);
    um_status s = new_tensor(b, &up, 2 * a->expert_ff, a->hidden, err);
    if (!s) s = new_tensor(b, &down, a->hidden, a->expert_ff, err);
    for (size_t bytes = 0, i = 0; !s && e->n_layers < LAYERS && bytes < all; e->n_layers++)
        for (const size_t end = i + n; i < end && !s; i++) {
            s = new_weight(b, &e->gate_up[i], &up, err);
            if (!s) s = new_weight(b, &e->down[i], &down, err);
            if (!s) bytes += b->ops->weight_bytes(e->gate_up[i]) + b->ops->weight_bytes(e->down[i]);
        }
    um_free((void *)(uintptr_t)up.data);
    um_free((void *)(uintptr_t)down.data);
    if (!s) s = new_floats(b, &e->x, most * (size_t)a->hidden, err);
    if (!s) s = new_floats(b, &e->y, most * (size_t)a->hidden, err);
    if (!s) s = new_floats(b, &e->logits, ROUTINGS * most * n, err);
    return s;
}

static void measure_routing(experts *e, const um_expert_route *route, int32_t n) {
    const um_arch *a = &e->b->arch;
    um_ops_row r = new_row(e->b, "moe", n);
    e->a = (um_moe){.route = route,
                    .gate_up = (const um_weight *const *)e->gate_up,
                    .down = (const um_weight *const *)e->down,
                    .x = e->x,
                    .n_tokens = n,
                    .hidden = a->hidden,
                    .n_ff = a->expert_ff,
                    .y = e->y};
    const double used = used_experts(e);
    snprintf(r.what, sizeof r.what, "%d of %d x %d, %.0f used", route->top_k, route->n_experts, a->expert_ff, used);
    r.operations = 6.0 * n * route->top_k * a->hidden * a->expert_ff;
    r.bytes = used * (double)(e->b->ops->weight_bytes(e->gate_up[0]) + e->b->ops->weight_bytes(e->down[0]));
    measure(e->b, &r, run_moe, e);
}

/* Tokens choose experts at random. */
static um_status measure_moe(um_ops_bench *b, um_err *err) {
    if (!b->arch.route.n_experts) return UM_OK;
    experts e = {.b = b};
    um_expert_route route = b->arch.route;
    route.bias = UM_BIAS_NONE;
    route.capacity = 0;
    um_status s = new_experts(&e, err);
    for (int32_t i = 0; i < b->n_rows && !s; i++) measure_routing(&e, &route, b->rows[i]);
    free_weights(b, e.gate_up, LAYERS * route.n_experts);
    free_weights(b, e.down, LAYERS * route.n_experts);
    um_free(e.gate_up);
    um_free(e.down);
    free_floats(b, e.x);
    free_floats(b, e.y);
    free_floats(b, e.logits);
    return s;
}

/* ---- Head -------------------------------------------------------------------------------------------------------- */

static const struct head_kind {
    const char *name;
    um_sampling how;
    int32_t n_top;
} head_kinds[] = {
    {"greedy", {.top_p = 1}, 0},
    {"temperature 1", {.temperature = 1, .top_p = 1}, 0},
    {"top-p, top-k", {.temperature = 1, .top_p = 0.9f, .top_k = 50}, 0},
    {"likeliest 20", {.top_p = 1}, LIKELIEST},
};

typedef struct head {
    um_ops_bench *b;
    um_weight *w;
    float *hidden;
    um_row row[HEAD_ROWS_MAX];
    um_answer answer[HEAD_ROWS_MAX];
    um_top top[HEAD_ROWS_MAX][UM_TOP_MAX];
    um_head a;
} head;

static void run_head(void *arg, int round) {
    head *h = (head *)arg;
    (void)round;
    h->b->ops->head(h->b->dev, &h->a);
}

static void measure_head_rows(head *h, const struct head_kind *kind, int32_t n) {
    static const um_edit ban = {.id = 7, .ban = true};
    const um_arch *a = &h->b->arch;
    um_ops_row r = new_row(h->b, "head", n);
    for (int32_t i = 0; i < n; i++) {
        h->row[i] = (um_row){.src = {i, 0}, .w = {1, 0}, .edit = &ban, .n_edit = 1, .how = kind->how};
        h->row[i].n_top = kind->n_top;
        h->row[i].top = h->top[i];
        h->row[i].want = UM_WANT_BEST | UM_WANT_SAMPLE | UM_WANT_ENTROPY;
        h->row[i].how.key = um_rng_key(1, (uint64_t)i, 0, 0);
    }
    /* Logits with a standard deviation of 3: a few hundred ids have most of the probability. */
    h->a = (um_head){.w = h->w,
                     .hidden = h->hidden,
                     .hidden_size = a->hidden,
                     .vocab = a->vocab,
                     .scale = 9 / sqrtf((float)a->hidden),
                     .row = h->row,
                     .n_rows = n,
                     .answer = h->answer};
    snprintf(r.what, sizeof r.what, "%d to %d, %s", a->hidden, a->vocab, kind->name);
    r.operations = 2.0 * n * a->hidden * a->vocab;
    r.bytes = (double)h->b->ops->weight_bytes(h->w);
    measure(h->b, &r, run_head, h);
}

/* Measures the choice of the likeliest id at each number of rows, and the other choices at 32. */
static um_status measure_head(um_ops_bench *b, um_err *err) {
    head *h = UM_NEW(head);
    h->b = b;
    um_status s = new_random_weight(b, &h->w, b->arch.vocab, b->arch.hidden, err);
    if (!s) s = new_floats(b, &h->hidden, HEAD_ROWS_MAX * (size_t)b->arch.hidden, err);
    for (int32_t i = 0; i < b->n_rows && !s; i++) {
        if (b->rows[i] > HEAD_ROWS_MAX) continue;
        const size_t kinds = b->rows[i] == 32 && !b->quick ? UM_LEN(head_kinds) : 1;
        for (size_t k = 0; k < kinds; k++) measure_head_rows(h, &head_kinds[k], b->rows[i]);
    }
    free_weights(b, &h->w, 1);
    free_floats(b, h->hidden);
    um_free(h);
    return s;
}

/* ---- All operations ---------------------------------------------------------------------------------------------- */

const um_ops_operation um_ops_operations[] = {
    {"linear", measure_linear},
    {"linear_gate", measure_linear_gate},
    {"gate", measure_gate},
    {"norm", measure_norm},
    {"rope_kv", measure_rope},
    {"attention", measure_attention},
    {"moe", measure_moe},
    {"head", measure_head},
    {NULL, NULL},
};

um_dev_config um_ops_device(const um_ops_bench *b, const um_config *c) {
    um_dev_config config = um_arch_sizes(&b->arch);
    config.threads = c->threads;
    config.pin = c->pin;
    config.dtype = b->type == UM_F32 ? UM_F32 : UM_BF16;
    config.weights = b->type;
    config.max_tokens = UM_MAX(b->context, most_rows(b));
    config.max_rows = HEAD_ROWS_MAX;
    return config;
}
