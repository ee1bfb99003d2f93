/* Checks of attention against the reference: page tables in random order, holes, rules of visibility, scratch pages,
 * shared KV heads, types of keys; on Hopper GPUs with and without the kernels of attention_stream.cu. A query gets the
 * same bits alone, in its span, and among other spans, and for any number of pieces and size of scratch. Slots that no
 * query reads are NaN. Layers with a window have page tables of their own, whose pages before the window are -1; every
 * second span is a canvas there. */
#include "check_pages.cuh"

enum { HEADS, KV_HEADS, DIM, PAGE, KV_TYPE, LAYOUT, SET, SCRATCH }; /* meaning of check_case.n */
enum { WINDOW = SCRATCH };                                          /* of run_window */
enum { LAYERS = 2, LAYER = 0, SPANS_MAX = 8, BLOCK = 8, TIMED_SPANS_MAX = 64, TIMED_BLOCK = 32 };
typedef enum { SEE_NOTHING = UM_SEE_BLOCK_CAUSAL + 1 } see_nothing; /* a rule of these checks */

/* A span: the last n of its keys are fed. */
typedef struct given {
    int32_t n;
    um_range keys, hole;
    int32_t rule;
} given;

static const given tiny[] = {{1, {0, 1}, {0, 0}, UM_SEE_FULL},           {1, {0, 63}, {5, 20}, UM_SEE_FULL},
                             {5, {0, 64}, {0, 0}, UM_SEE_CAUSAL},        {33, {0, 65}, {0, 1}, UM_SEE_BLOCK_CAUSAL},
                             {7, {3, 40}, {0, 0}, UM_SEE_FULL},          {16, {70, 130}, {75, 90}, UM_SEE_CAUSAL},
                             {4, {20, 50}, {0, 0}, (int32_t)SEE_NOTHING}};
static const given middling[] = {
    {32, {0, 511}, {0, 0}, UM_SEE_FULL},           {17, {0, 513}, {100, 164}, UM_SEE_BLOCK_CAUSAL},
    {9, {37, 545}, {0, 0}, UM_SEE_CAUSAL},         {40, {0, 300}, {250, 258}, UM_SEE_CAUSAL},
    {2, {200, 260}, {0, 0}, (int32_t)SEE_NOTHING}, {1, {255, 257}, {0, 0}, UM_SEE_FULL}};
static const given lengthy[] = {{3, {0, 2100}, {0, 0}, UM_SEE_FULL},
                                {12, {300, 2100}, {310, 1500}, UM_SEE_BLOCK_CAUSAL},
                                {1, {0, 1}, {0, 0}, UM_SEE_FULL},
                                {5, {1023, 1290}, {0, 0}, UM_SEE_CAUSAL}};
/* The rows of a tile see numbers of keys beside 4096, 5120 and 8192, where the keys of a piece change. */
static const given longest[] = {{40, {0, 5140}, {0, 0}, UM_SEE_CAUSAL},
                                {33, {0, 4112}, {0, 0}, UM_SEE_CAUSAL},
                                {3, {0, 8193}, {0, 0}, UM_SEE_FULL},
                                {5, {700, 9000}, {1000, 8000}, UM_SEE_FULL},
                                {4, {5000, 5200}, {0, 0}, (int32_t)SEE_NOTHING},
                                {1, {0, 600}, {0, 0}, UM_SEE_FULL}};
static const struct {
    const given *span;
    int n;
} sets[] = {{tiny, (int)UM_LEN(tiny)},
            {middling, (int)UM_LEN(middling)},
            {lengthy, (int)UM_LEN(lengthy)},
            {longest, (int)UM_LEN(longest)}};
enum { TINY, MIDDLING, LENGTHY, LONGEST };

/* A case: the batch, its queries, and where the results go. */
typedef struct attention_data {
    check_pages pages;
    um_span span[TIMED_SPANS_MAX];
    int32_t first[TIMED_SPANS_MAX]; /* first key that a token of the span sees in a layer with a window */
    um_batch batch;
    um_cu_attention a;
    int32_t room_tokens; /* rows of qkv and of the output, with padding */
    float *qkv;          /* as the operands are rounded; keys and values are NaN */
} attention_data;

static int32_t bound_of(const given *g, int32_t token) {
    const int32_t vis = g->keys.end - g->n + token;
    const um_visibility rule = {(um_see)g->rule, BLOCK, g->keys.end - g->n, 0};
    if (g->rule == (int32_t)SEE_NOTHING) return token % 2 ? g->keys.start : 0;
    return um_visible_end(rule, vis);
}

/* Makes every second span a canvas, and gives all spans the page tables of layers with a window. */
static void add_window(check *c, attention_data *d, int32_t window) {
    const um_batch *b = &d->batch;
    const int32_t S = d->pages.shape.page_size;
    for (int32_t i = 0; i < b->n_spans; i++) {
        um_span *s = &d->span[i];
        int32_t *near = check_pages_table(c, &d->pages, s->keys.end, false);
        s->canvas = i % 2;
        s->start = s->keys.end - s->n;
        s->near_page = near;
        d->first[i] = s->keys.end;
        for (int32_t t = s->first; t < s->first + s->n; t++)
            d->first[i] = UM_MIN(d->first[i], um_seen_start(s, window, b->seen_end[t]));
        for (int32_t page = 0; page < d->first[i] / S; page++) near[page] = -1;
    }
    d->a.window = window;
}

/* Lists the spans and tokens of the batch. */
static void new_batch(check *c, attention_data *d, const given *set, int n_set, bool scratch) {
    um_batch *b = &d->batch;
    for (int i = 0; i < n_set; i++) b->n_tokens += set[i].n;
    const size_t bytes = (size_t)b->n_tokens * sizeof(int32_t);
    int32_t *slot = (int32_t *)check_host(c, bytes), *seen = (int32_t *)check_host(c, bytes), t = 0;
    for (int i = 0; i < n_set; i++) {
        const given *g = &set[i];
        um_span *s = &d->span[i];
        *s = {t,    g->n, check_pages_table(c, &d->pages, g->keys.end, scratch && i % 2), NULL, g->keys, g->hole,
              NULL, -1};
        for (int32_t k = 0; k < g->n; k++, t++) {
            slot[t] = (int32_t)um_slot_of(s->page, d->pages.shape.page_size, g->keys.end - g->n + k);
            seen[t] = bound_of(g, k);
        }
    }
    b->n_spans = n_set;
    b->id = b->pos = (int32_t *)check_host(c, bytes);
    b->slot = slot;
    b->seen_end = seen;
    b->span = d->span;
}

/* Draws the queries. Their scores are large enough for the softmax to be far from even. */
static void new_queries(check *c, attention_data *d) {
    const um_cu_attention *a = &d->a;
    const size_t width = (size_t)(a->n_heads + 2 * a->n_kv_heads) * a->head_dim;
    const size_t used = (size_t)a->n_heads * a->head_dim, all = (size_t)d->room_tokens * width;
    d->qkv = check_floats(c, all);
    for (size_t i = 0; i < all; i++)
        d->qkv[i] = i < (size_t)d->batch.n_tokens * width && i % width < used ? 6 * d->qkv[i] : NAN;
    d->a.qkv = check_operand(c, d->qkv, all, a->type);
    d->a.out = check_device(c, (size_t)d->room_tokens * used * um_dtype_size(a->type));
}

static int32_t pieces_of(const attention_data *d) {
    int32_t most = 1;
    for (int32_t i = 0; i < d->batch.n_spans; i++) most = UM_MAX(most, UM_CEIL_DIV(d->span[i].keys.end, UM_CU_PIECE));
    return most;
}

static attention_data *new_data(check *c, const check_case *k, const given *set, int n_set, int64_t n_slots, bool ref) {
    attention_data *d = (attention_data *)check_host(c, sizeof *d);
    const int64_t S = k->n[PAGE], slots = (n_slots + S - 1) / S * S;
    const um_kv_shape shape = {LAYERS,
                               k->n[KV_HEADS],
                               k->n[DIM],
                               k->n[PAGE],
                               slots,
                               k->n[SCRATCH] ? slots : 0,
                               (um_dtype)k->n[KV_TYPE],
                               (um_kv_layout)k->n[LAYOUT]};
    d->pages = check_pages_new(c, &shape, ref);
    new_batch(c, d, set, n_set, k->n[SCRATCH]);
    d->room_tokens = d->batch.n_tokens + 5;
    d->a = {};
    d->a.layer = LAYER;
    d->a.n_heads = k->n[HEADS];
    d->a.n_kv_heads = k->n[KV_HEADS];
    d->a.head_dim = k->n[DIM];
    d->a.type = k->type;
    d->a.scale = 1 / sqrtf((float)k->n[DIM]);
    d->a.n_pieces = pieces_of(d);
    new_queries(c, d);
    return d;
}

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

typedef struct attention_call {
    um_cu_batch b;
    um_cu_attention a;
    um_cu_kv kv;
    cudaStream_t stream;
} attention_call;
static void call_attention(void *arg) {
    const attention_call *t = (const attention_call *)arg;
    um_cu_attend(&t->b, &t->a, &t->kv, t->stream);
}

/* A way to run: as a pass of blocks, with more pieces than needed, and the size of the scratch. */
typedef enum { PLAIN, BLOCKS, MORE_PIECES, NO_SCRATCH, LITTLE_SCRATCH } way;

static attention_call new_call(check *c, const attention_data *d, const um_batch *b, um_cu_attention a, way how) {
    const um_cu_heads heads = {a.n_heads, a.n_kv_heads, a.head_dim, a.window, d->pages.shape.type};
    const int32_t tile = um_cu_tile_tokens(&heads, 1, a.type);
    const int32_t n_tiles = um_message_tiles(b, tile) + 3, large = 128;
    /* A pass with as many spans as tiles is one of blocks, in which tiles share no keys; others are of prompts. */
    const int32_t n_spans = how == BLOCKS || how == NO_SCRATCH || how == MORE_PIECES ? n_tiles : b->n_spans + 2;
    const um_message_capacity capacity = {b->n_tokens + 5,         n_spans, n_tiles, 1, tile, 0, 1000,
                                          d->pages.shape.page_size};
    if (how == MORE_PIECES) a.n_pieces = 2 * a.n_pieces + 1;
    /* The largest tile has 128 rows. */
    const size_t one = (size_t)large * a.n_kv_heads * a.n_pieces * (size_t)(a.head_dim + 2) * sizeof(float);
    a.partial_bytes = how == NO_SCRATCH ? 0 : how == LITTLE_SCRATCH ? one : one * (size_t)n_tiles;
    a.partial = (float *)check_device(c, a.partial_bytes);
    return {check_batch(c, b, &capacity, NULL), a, d->pages.device, check_stream(c)};
}

/* Runs the tokens [from, from + n) of a span as a batch of their own. Returns their output rows. */
static const void *run_part(check *c, const attention_data *d, const um_span *span, int32_t from, int32_t n) {
    const um_cu_attention *a = &d->a;
    const size_t size = um_dtype_size(a->type), row = (size_t)a->n_heads * a->head_dim * size;
    um_span s = *span;
    um_batch b = d->batch;
    s.first = 0;
    s.n = n;
    b.n_tokens = n;
    b.n_spans = 1;
    b.slot += span->first + from;
    b.seen_end += span->first + from;
    b.span = &s;
    um_cu_attention part = *a;
    part.n_pieces = UM_CEIL_DIV(s.keys.end, UM_CU_PIECE);
    part.qkv = (const char *)a->qkv +
               (size_t)(span->first + from) * (size_t)(a->n_heads + 2 * a->n_kv_heads) * a->head_dim * size;
    part.out = check_device(c, (size_t)(n + 5) * row);
    attention_call call = new_call(c, d, &b, part, PLAIN);
    call_attention(&call);
    return check_download(c, part.out, (size_t)n * row);
}

/* Runs the whole batch. Returns the rows of the output. */
static const void *run_batch(check *c, const attention_data *d, way how) {
    const size_t row = (size_t)d->a.n_heads * d->a.head_dim * um_dtype_size(d->a.type);
    um_cu_attention a = d->a;
    a.out = check_device(c, (size_t)d->room_tokens * row);
    attention_call call = new_call(c, d, &d->batch, a, how);
    call_attention(&call);
    return check_download(c, a.out, (size_t)d->batch.n_tokens * row);
}

/* ---- Comparison with the reference, and invariance --------------------------------------------------------------- */

static double tolerance_of(const check_case *k) {
    if (k->type == UM_F32) return 1e-5;
    return k->n[KV_TYPE] == UM_F32 ? 1e-2 : 6e-3; /* keys and values in fp32 are rounded */
}

static const float *reference_of(check *c, const check_case *k, const attention_data *d, const um_batch *b) {
    const um_cu_attention *a = &d->a;
    float *out = (float *)check_host(c, (size_t)b->n_tokens * a->n_heads * a->head_dim * sizeof(float));
    const um_attention r = {
        a->layer, a->n_heads, a->n_kv_heads, a->head_dim, k->n[PAGE], (a->n_heads + 2 * a->n_kv_heads) * a->head_dim,
        d->qkv,   out,        a->scale,      a->window,   b};
    um_ref_attention(check_ref(c, k->type), d->pages.ref, &r);
    return out;
}

static void compare_parts(check *c, const attention_data *d, const char *all) {
    const size_t row = (size_t)d->a.n_heads * d->a.head_dim * um_dtype_size(d->a.type);
    for (int32_t i = 0; i < d->batch.n_spans; i++) {
        const um_span *s = &d->span[i];
        const char *mine = all + (size_t)s->first * row;
        check_same(c, "a span alone", run_part(c, d, s, 0, s->n), mine, (size_t)s->n * row);
        check_same(c, "the last token alone", run_part(c, d, s, s->n - 1, 1), mine + (size_t)(s->n - 1) * row, row);
        if (s->n > 2)
            check_same(c, "tokens in the middle", run_part(c, d, s, 1, s->n - 2), mine + row, (size_t)(s->n - 2) * row);
    }
}

/* Compares the batch with `want`, and with itself computed in other ways. */
static void compare(check *c, const check_case *k, const attention_data *d, const float *want) {
    const size_t n = (size_t)d->batch.n_tokens * d->a.n_heads * d->a.head_dim, bytes = n * um_dtype_size(k->type);
    const char *all = (const char *)run_batch(c, d, PLAIN);
    float *got = (float *)check_host(c, n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        got[i] = k->type == UM_F32 ? ((const float *)all)[i] : um_bf16_to_f32(((const uint16_t *)all)[i]);
    const size_t width = (size_t)d->a.n_heads * d->a.head_dim;
    for (int32_t t = 0; t < d->batch.n_tokens; t++)
        check_close(c, "a token's output", got + t * width, want + t * width, width, tolerance_of(k));
    check_same(c, "as blocks", run_batch(c, d, BLOCKS), all, bytes);
    check_same(c, "more pieces", run_batch(c, d, MORE_PIECES), all, bytes);
    check_same(c, "no scratch", run_batch(c, d, NO_SCRATCH), all, bytes);
    check_same(c, "little scratch", run_batch(c, d, LITTLE_SCRATCH), all, bytes);
    compare_parts(c, d, all);
}

/* Returns the data of a case with random keys and values, whose layer has a window unless it is 0. */
static attention_data *new_filled_data(check *c, const check_case *k, int32_t window, float value_by) {
    const given *set = sets[k->n[SET]].span;
    int64_t n_slots = 0;
    for (int i = 0; i < sets[k->n[SET]].n; i++) n_slots += 2 * (set[i].keys.end + k->n[PAGE]);
    attention_data *d = new_data(c, k, set, sets[k->n[SET]].n, n_slots, true);
    if (window) add_window(c, d, window);
    for (int32_t i = 0; i < d->batch.n_spans; i++) {
        um_range part[2];
        const um_span *s = &d->span[i];
        const int n = um_range_without(s->keys, s->hole, part);
        for (int p = 0; p < n; p++)
            check_pages_fill_random(c, &d->pages, LAYER, um_span_page(s, window), UM_MAX(part[p].start, d->first[i]),
                                    UM_MAX(part[p].end, d->first[i]), value_by);
    }
    return d;
}

static void run_set(check *c, const check_case *k, int32_t window, float value_by) {
    attention_data *d = new_filled_data(c, k, window, value_by);
    const float *want = reference_of(c, k, d, &d->batch);
    compare(c, k, d, want);
    d->a.stream = um_cu_attend_stream_exists();
    if (d->a.stream) compare(c, k, d, want);
    check_pages_free(&d->pages);
}

static void run_attention(check *c, const check_case *k) { run_set(c, k, 0, 1); }

static void run_window(check *c, const check_case *k) {
    check_case shape = *k;
    shape.n[SCRATCH] = 0;
    run_set(c, &shape, k->n[WINDOW], 1);
}

/* The values are as large as numbers of fp16 can be. */
static void run_large_values(check *c, const check_case *k) { run_set(c, k, 0, 65504); }

/* Checks that a query with an element NaN has an output of NaN, and that the other queries have the bits of before. */
static void compare_nan(check *c, attention_data *d) {
    const um_cu_attention *a = &d->a;
    const size_t dim = (size_t)a->head_dim, heads = (size_t)a->n_heads, n = (size_t)d->batch.n_tokens * heads;
    const size_t width = (heads + 2 * (size_t)a->n_kv_heads) * dim, token = (size_t)d->span[0].first, head = heads - 1;
    const uint16_t *before = (const uint16_t *)run_batch(c, d, PLAIN);
    float *qkv = (float *)check_host(c, (size_t)d->room_tokens * width * sizeof(float));
    memcpy(qkv, d->qkv, (size_t)d->room_tokens * width * sizeof(float));
    qkv[token * width + head * dim + 3] = NAN;
    const void *numbers = a->qkv;
    d->a.qkv = check_operand(c, qkv, (size_t)d->room_tokens * width, a->type);
    const uint16_t *got = (const uint16_t *)run_batch(c, d, PLAIN);
    d->a.qkv = numbers;
    for (size_t i = 0; i < n; i++) {
        if (i != token * heads + head) {
            check_same(c, "another query", got + i * dim, before + i * dim, dim * sizeof *got);
            continue;
        }
        for (size_t j = 0; j < dim; j++)
            check_true(c, isnan(um_bf16_to_f32(got[i * dim + j])), "element %zu of the query's output is a number", j);
    }
}

static void run_nan_query(check *c, const check_case *k) {
    attention_data *d = new_filled_data(c, k, 0, 1);
    compare_nan(c, d);
    d->a.stream = um_cu_attend_stream_exists();
    if (d->a.stream) compare_nan(c, d);
    check_pages_free(&d->pages);
}

/* ---- Times ------------------------------------------------------------------------------------------------------- */

/* Returns n codes of magnitude 0.5 to 1.9, random but for every fourth. Four of them are a scale of 2^-9 to 2^-7 too.
 */
static const char *random_codes(check *c, size_t n) {
    char *code = (char *)check_host(c, n);
    for (size_t i = 0; i < n; i++) code[i] = i % 4 == 3 ? 0x3b : (char)((check_below(c, 256) & 0x8f) | 0x30);
    return (const char *)check_upload(c, code, n);
}

/* Fills the pools of the device with 4 Mi random numbers, over and over. */
static void fill_pools(check *c, const attention_data *d) {
    const um_dtype type = d->pages.shape.type;
    const size_t n = (size_t)4 << 20, part = n * um_dtype_size(type);
    const um_cu_kv *kv = &d->pages.device;
    const char *random =
        type == UM_F8 ? random_codes(c, n) : (const char *)check_operand(c, check_floats(c, n), n, type);
    for (int i = 0; i < 2; i++)
        for (size_t at = 0; at < kv->pool_bytes[i]; at += part)
            cudaMemcpy(kv->pool[i] + at, random, UM_MIN(part, kv->pool_bytes[i] - at), cudaMemcpyDeviceToDevice);
    check_cuda(c, cudaGetLastError(), "filling the pools");
}

/* n: query heads, KV heads, head size, page size, KV type, queries of a request, requests, keys. */
static void run_attention_time(check *c, const check_case *k) {
    enum { QUERIES = 5, REQUESTS = 6, KEYS = 7 };
    const int32_t requests = k->n[REQUESTS], keys = k->n[KEYS];
    given set[TIMED_SPANS_MAX];
    assert(requests <= TIMED_SPANS_MAX);
    for (int32_t i = 0; i < requests; i++) set[i] = {k->n[QUERIES], {0, keys}, {0, 0}, UM_SEE_FULL};
    check_case shape = *k;
    shape.n[LAYOUT] = UM_KV_UNIFIED;
    shape.n[SET] = shape.n[SCRATCH] = 0;
    attention_data *d = new_data(c, &shape, set, requests, (int64_t)requests * (keys + k->n[PAGE]), false);
    fill_pools(c, d);
    d->a.stream = um_cu_attend_stream_exists();
    const size_t width = (size_t)d->a.n_heads * d->a.head_dim, n = (size_t)d->batch.n_tokens * width;
    const char *all = (const char *)run_batch(c, d, PLAIN);
    const size_t half = n * um_dtype_size(k->type) / 2; /* an upper half of 16 bits shows a number that is NaN */
    check_same(c, "no scratch", run_batch(c, d, NO_SCRATCH), all, n * um_dtype_size(k->type));
    for (size_t i = k->type == UM_F32; i < half; i += k->type == UM_F32 ? 2 : 1)
        check_true(c, !isnan(um_bf16_to_f32(((const uint16_t *)all)[i])), "output %zu is NaN", i);
    const double queries = 2.0 * (double)n * um_dtype_size(k->type);
    const double bytes = 2.0 * requests * keys * k->n[KV_HEADS] * k->n[DIM] * um_dtype_size((um_dtype)k->n[KV_TYPE]);
    attention_call call = new_call(c, d, &d->batch, d->a, k->n[QUERIES] > TIMED_BLOCK ? PLAIN : BLOCKS);
    check_time(c, queries + bytes, 4.0 * (double)n * keys, call_attention, &call);
    check_pages_free(&d->pages);
}

#define TIMED_CODES(heads, kv_heads, requests, keys)                                                                   \
    {                                                                                                                  \
        "attention bf16, " #heads "/" #kv_heads " heads, " #requests " x " #keys ", 8-bit KV", run_attention_time,     \
            {heads, kv_heads, 128, 32, UM_F8, 32, requests, keys}, UM_BF16                                             \
    }
#define U UM_KV_UNIFIED
#define D UM_KV_DISTINCT
static const check_case cases[] = {
    {"attention fp32, 4/4 heads, d 16, page 4", run_attention, {4, 4, 16, 4, UM_F32, U, TINY}, UM_F32},
    {"attention fp32, 8/2 heads, d 64, page 5", run_attention, {8, 2, 64, 5, UM_F32, D, TINY}, UM_F32},
    {"attention fp32, 2/2 heads, d 24, page 12", run_attention, {2, 2, 24, 12, UM_F32, U, TINY, 1}, UM_F32},
    {"attention fp32, 40/1 heads, d 32", run_attention, {40, 1, 32, 32, UM_BF16, U, TINY}, UM_F32},
    {"attention fp32, 4/4 heads, d 128", run_attention, {4, 4, 128, 32, UM_F32, U, MIDDLING}, UM_F32},
    {"attention fp32, 4/1 heads, d 256, page 256", run_attention, {4, 1, 256, 256, UM_F32, D, MIDDLING}, UM_F32},
    {"attention fp32, 8/2 heads, d 128, bf16 KV", run_attention, {8, 2, 128, 32, UM_BF16, U, MIDDLING, 1}, UM_F32},
    {"attention fp32, 8/2 heads, d 64, 8-bit KV", run_attention, {8, 2, 64, 12, UM_F8, U, MIDDLING}, UM_F32},
    {"attention fp32, 2/1 heads, d 64, 2100 keys", run_attention, {2, 1, 64, 32, UM_F32, U, LENGTHY}, UM_F32},
    {"attention bf16, 4/4 heads, d 16, page 4", run_attention, {4, 4, 16, 4, UM_BF16, U, TINY}, UM_BF16},
    {"attention bf16, 4/2 heads, d 32, page 5", run_attention, {4, 2, 32, 5, UM_BF16, D, TINY, 1}, UM_BF16},
    {"attention bf16, 64/1 heads, d 16", run_attention, {64, 1, 16, 32, UM_BF16, U, TINY}, UM_BF16},
    {"attention bf16, 14/2 heads, d 64", run_attention, {14, 2, 64, 32, UM_BF16, U, MIDDLING}, UM_BF16},
    {"attention bf16, 4/4 heads, d 80, page 12", run_attention, {4, 4, 80, 12, UM_BF16, U, MIDDLING}, UM_BF16},
    {"attention bf16, 4/4 heads, d 96, page 256", run_attention, {4, 4, 96, 256, UM_BF16, D, MIDDLING}, UM_BF16},
    {"attention bf16, 4/4 heads, d 128", run_attention, {4, 4, 128, 32, UM_BF16, U, MIDDLING}, UM_BF16},
    {"attention bf16, 4/4 heads, d 128, scratch pages",
     run_attention,
     {4, 4, 128, 32, UM_BF16, D, MIDDLING, 1},
     UM_BF16},
    {"attention bf16, 4/4 heads, d 128, page 8", run_attention, {4, 4, 128, 8, UM_BF16, U, TINY, 1}, UM_BF16},
    {"attention bf16, 4/4 heads, d 128, page 128", run_attention, {4, 4, 128, 128, UM_BF16, U, LENGTHY, 1}, UM_BF16},
    {"attention bf16, 64/1 heads, d 128, page 16", run_attention, {64, 1, 128, 16, UM_BF16, D, MIDDLING}, UM_BF16},
    {"attention bf16, 8/2 heads, d 128", run_attention, {8, 2, 128, 64, UM_BF16, U, MIDDLING}, UM_BF16},
    {"attention bf16, 8/1 heads, d 128, page 5", run_attention, {8, 1, 128, 5, UM_BF16, U, MIDDLING}, UM_BF16},
    {"attention bf16, 8/2 heads, d 128, 2100 keys", run_attention, {8, 2, 128, 32, UM_BF16, U, LENGTHY}, UM_BF16},
    {"attention bf16, 4/4 heads, d 128, 2100 keys", run_attention, {4, 4, 128, 256, UM_BF16, D, LENGTHY}, UM_BF16},
    {"attention bf16, 8/2 heads, d 128, 9000 keys", run_attention, {8, 2, 128, 32, UM_BF16, U, LONGEST}, UM_BF16},
    {"attention bf16, 4/4 heads, d 128, 9000 keys", run_attention, {4, 4, 128, 64, UM_BF16, D, LONGEST}, UM_BF16},
    {"attention bf16, 4/1 heads, d 256", run_attention, {4, 1, 256, 32, UM_BF16, U, MIDDLING}, UM_BF16},
    {"attention fp32, 4/2 heads, d 512", run_attention, {4, 2, 512, 32, UM_F32, U, MIDDLING}, UM_F32},
    {"attention bf16, 16/2 heads, d 512", run_attention, {16, 2, 512, 32, UM_BF16, U, MIDDLING}, UM_BF16},
    {"attention fp32, 4/4 heads, d 16, window 7", run_window, {4, 4, 16, 4, UM_F32, U, TINY, 7}, UM_F32},
    {"attention fp32, 4/2 heads, d 256, window 100", run_window, {4, 2, 256, 32, UM_F32, U, MIDDLING, 100}, UM_F32},
    {"attention bf16, 2/2 heads, d 256, window 5", run_window, {2, 2, 256, 4, UM_BF16, D, TINY, 5}, UM_BF16},
    {"attention bf16, 40/1 heads, d 512, window 40", run_window, {40, 1, 512, 16, UM_BF16, U, MIDDLING, 40}, UM_BF16},
    {"attention bf16, 8/1 heads, d 512, scratch pages", run_attention, {8, 1, 512, 5, UM_BF16, D, TINY, 1}, UM_BF16},
    {"attention bf16, 4/2 heads, d 512, 2100 keys", run_attention, {4, 2, 512, 32, UM_BF16, U, LENGTHY}, UM_BF16},
    {"attention bf16, 2/1 heads, d 512, 8-bit KV", run_attention, {2, 1, 512, 32, UM_F8, U, TINY}, UM_BF16},
    {"attention bf16, 4/2 heads, d 32, window 40", run_window, {4, 2, 32, 8, UM_BF16, D, MIDDLING, 40}, UM_BF16},
    {"attention bf16, 16/8 heads, d 256, window 1024",
     run_window,
     {16, 8, 256, 32, UM_BF16, U, LENGTHY, 1024},
     UM_BF16},
    {"attention bf16, 4/2 heads, d 256, window 900, 8-bit KV",
     run_window,
     {4, 2, 256, 32, UM_F8, U, LENGTHY, 900},
     UM_BF16},
    {"attention bf16, 4/4 heads, d 40", run_attention, {4, 4, 40, 32, UM_BF16, U, TINY}, UM_BF16},
    {"attention bf16, 4/4 heads, d 128, fp32 KV", run_attention, {4, 4, 128, 32, UM_F32, U, MIDDLING}, UM_BF16},
    {"attention bf16, 4/4 heads, d 128, 8-bit KV", run_attention, {4, 4, 128, 32, UM_F8, U, MIDDLING, 1}, UM_BF16},
    {"attention bf16, 4/4 heads, d 128, 8-bit KV, page 8", run_attention, {4, 4, 128, 8, UM_F8, D, TINY, 1}, UM_BF16},
    {"attention bf16, 8/2 heads, d 128, 8-bit KV", run_attention, {8, 2, 128, 64, UM_F8, U, MIDDLING}, UM_BF16},
    {"attention bf16, 64/1 heads, d 128, 8-bit KV", run_attention, {64, 1, 128, 16, UM_F8, D, LENGTHY}, UM_BF16},
    {"attention bf16, 8/1 heads, d 128, 8-bit KV, page 5", run_attention, {8, 1, 128, 5, UM_F8, U, MIDDLING}, UM_BF16},
    {"attention bf16, 4/4 heads, d 128, 8-bit KV, 9000 keys",
     run_attention,
     {4, 4, 128, 128, UM_F8, U, LONGEST},
     UM_BF16},
    {"attention bf16, 8/2 heads, d 128, 8-bit KV, 9000 keys",
     run_attention,
     {8, 2, 128, 32, UM_F8, D, LONGEST},
     UM_BF16},
    {"attention bf16, 8/2 heads, d 128, 8-bit KV, large values",
     run_large_values,
     {8, 2, 128, 32, UM_F8, U, MIDDLING},
     UM_BF16},
    {"attention bf16, 8/2 heads, d 128, a query of NaN", run_nan_query, {8, 2, 128, 32, UM_BF16, U, MIDDLING}, UM_BF16},
    {"attention bf16, 8/2 heads, d 128, 8-bit KV, a query of NaN",
     run_nan_query,
     {8, 2, 128, 32, UM_F8, U, MIDDLING},
     UM_BF16},
    {"attention bf16, 8/2 heads, d 64, 8-bit KV, page 5", run_attention, {8, 2, 64, 5, UM_F8, D, LENGTHY}, UM_BF16},
    {"attention bf16, 32/32 heads, 1 x 544", run_attention_time, {32, 32, 128, 32, UM_BF16, 32, 1, 544}, UM_BF16},
    {"attention bf16, 32/32 heads, 4 x 544", run_attention_time, {32, 32, 128, 32, UM_BF16, 32, 4, 544}, UM_BF16},
    {"attention bf16, 32/32 heads, 16 x 544", run_attention_time, {32, 32, 128, 32, UM_BF16, 32, 16, 544}, UM_BF16},
    {"attention bf16, 32/32 heads, 64 x 544", run_attention_time, {32, 32, 128, 32, UM_BF16, 32, 64, 544}, UM_BF16},
    {"attention bf16, 32/32 heads, 16 x 2048", run_attention_time, {32, 32, 128, 32, UM_BF16, 32, 16, 2048}, UM_BF16},
    {"attention bf16, 32/32 heads, 1 x 8192", run_attention_time, {32, 32, 128, 32, UM_BF16, 32, 1, 8192}, UM_BF16},
    {"attention bf16, 32/32 heads, 8 x 8192", run_attention_time, {32, 32, 128, 32, UM_BF16, 32, 8, 8192}, UM_BF16},
    {"attention bf16, 32/8 heads, 1 x 544", run_attention_time, {32, 8, 128, 32, UM_BF16, 32, 1, 544}, UM_BF16},
    {"attention bf16, 32/8 heads, 16 x 544", run_attention_time, {32, 8, 128, 32, UM_BF16, 32, 16, 544}, UM_BF16},
    {"attention bf16, 32/8 heads, 64 x 544", run_attention_time, {32, 8, 128, 32, UM_BF16, 32, 64, 544}, UM_BF16},
    {"attention bf16, 32/8 heads, 16 x 2048", run_attention_time, {32, 8, 128, 32, UM_BF16, 32, 16, 2048}, UM_BF16},
    {"attention bf16, 32/8 heads, 16 x 8192", run_attention_time, {32, 8, 128, 32, UM_BF16, 32, 16, 8192}, UM_BF16},
    {"attention bf16, 32/8 heads, 1 x 8192", run_attention_time, {32, 8, 128, 32, UM_BF16, 32, 1, 8192}, UM_BF16},
    {"attention bf16, 32/8 heads, 1 x 24000", run_attention_time, {32, 8, 128, 32, UM_BF16, 32, 1, 24000}, UM_BF16},
    {"attention bf16, 32/8 heads, 1 x 32768", run_attention_time, {32, 8, 128, 32, UM_BF16, 32, 1, 32768}, UM_BF16},
    {"attention bf16, 32/8 heads, 3 x 24000", run_attention_time, {32, 8, 128, 32, UM_BF16, 32, 3, 24000}, UM_BF16},
    {"attention bf16, 32/8 heads, 4 x 8192", run_attention_time, {32, 8, 128, 32, UM_BF16, 32, 4, 8192}, UM_BF16},
    {"attention bf16, 32/8 heads, 8 x 24000", run_attention_time, {32, 8, 128, 32, UM_BF16, 32, 8, 24000}, UM_BF16},
    {"attention bf16, 32/8 heads, 16 x 32768", run_attention_time, {32, 8, 128, 32, UM_BF16, 32, 16, 32768}, UM_BF16},
    {"attention bf16, 32/8 heads, 1 x 2048 prompt",
     run_attention_time,
     {32, 8, 128, 32, UM_BF16, 2048, 1, 2048},
     UM_BF16},
    {"attention bf16, 32/8 heads, 1 x 8192 prompt",
     run_attention_time,
     {32, 8, 128, 32, UM_BF16, 8192, 1, 8192},
     UM_BF16},
    {"attention bf16, 32/8 heads, 1 x 24000 of 256",
     run_attention_time,
     {32, 8, 128, 32, UM_BF16, 256, 1, 24000},
     UM_BF16},
    {"attention bf16, 32/32 heads, 1 x 544 prompt",
     run_attention_time,
     {32, 32, 128, 32, UM_BF16, 544, 1, 544},
     UM_BF16},
    TIMED_CODES(32, 32, 1, 544),
    TIMED_CODES(32, 32, 4, 544),
    TIMED_CODES(32, 32, 16, 544),
    TIMED_CODES(32, 32, 64, 544),
    TIMED_CODES(32, 32, 16, 2048),
    TIMED_CODES(32, 32, 1, 8192),
    TIMED_CODES(32, 32, 8, 8192),
    TIMED_CODES(32, 8, 16, 544),
    TIMED_CODES(32, 8, 64, 544),
    TIMED_CODES(32, 8, 16, 8192),
    TIMED_CODES(32, 8, 1, 24000),
    TIMED_CODES(32, 8, 16, 32768),
    {"attention bf16, 32/8 heads, 1 x 8192 prompt, 8-bit KV",
     run_attention_time,
     {32, 8, 128, 32, UM_F8, 8192, 1, 8192},
     UM_BF16},
    {"attention bf16, 16/8 heads, d 256, 1 x 1280 of 256",
     run_attention_time,
     {16, 8, 256, 32, UM_BF16, 256, 1, 1280},
     UM_BF16},
    {"attention bf16, 16/2 heads, d 512, 1 x 8192 of 256",
     run_attention_time,
     {16, 2, 512, 32, UM_BF16, 256, 1, 8192},
     UM_BF16},
    {"attention fp32, 32/32 heads, 1 x 544", run_attention_time, {32, 32, 128, 32, UM_F32, 32, 1, 544}, UM_F32},
};
extern const check_list attention_checks = {"check_attention", cases, (int)UM_LEN(cases)};
