/* Checks of selections against the reference. Queries, keys and priors are multiples of small powers of two, so all
 * scores are exact in any order of summation: the device must keep the same keys in the same order, with many equal
 * scores among them. */
#include "check_pages.cuh"

enum { HEADS, KV_HEADS, DIM, PAGE, KV_TYPE, LAYOUT, SET }; /* meaning of check_case.n */
enum { LAYERS = 2, LAYER = 0, SPANS_MAX = 8 };

/* A span that feeds the last n of its keys, and its selection; n_keep 0: none. */
typedef struct given {
    int32_t n;
    um_range keys, hole, block;
    int32_t n_keep, pool;
    bool per_head, prior, blind;
} given;

static const given small[] = {{8, {0, 40}, {0, 0}, {32, 40}, 8, 1, false, false, false},
                              {4, {0, 21}, {0, 0}, {17, 21}, 17, 3, true, false, false},
                              {6, {0, 30}, {0, 0}, {0, 0}, 0, 0, false, false, false},
                              {16, {3, 60}, {10, 20}, {48, 56}, 5, 4, true, true, false},
                              {1, {0, 2}, {0, 0}, {1, 2}, 1, 0, false, true, false},
                              {8, {5, 50}, {0, 0}, {44, 48}, 33, 7, false, true, true}};
static const given large[] = {{32, {0, 700}, {0, 0}, {668, 700}, 200, 1, false, true, false},
                              {16, {100, 1500}, {200, 333}, {1484, 1500}, 512, 5, true, true, false},
                              {8, {0, 1029}, {0, 0}, {1021, 1029}, 1000, 3, true, false, true},
                              {2, {0, 300}, {0, 0}, {298, 300}, 298, 9, false, false, false}};
static const given timed[] = {{32, {0, 8192}, {0, 0}, {8160, 8192}, 1024, 3, true, true, false}};
static const struct {
    const given *span;
    int n;
} sets[] = {{small, (int)UM_LEN(small)}, {large, (int)UM_LEN(large)}, {timed, (int)UM_LEN(timed)}};
enum { SMALL, LARGE, TIMED };

typedef struct select_data {
    check_pages pages;
    um_span span[SPANS_MAX];
    um_kv_select select[SPANS_MAX];
    um_batch batch;
    um_cu_attention a;
    int32_t n_keys; /* most keys outside of a block */
    float *qkv;
} select_data;

/* Returns a multiple of 1/4 in [-7/4, 7/4]. */
static float quarter(check *c) { return (float)(check_below(c, 15) - 7) / 4; }

/* Writes keys and values to the slots that the span reads. The largest magnitude of a vector is 7/4, so its scale in 8
 * bits is 1/256 and the stored vector is exact. */
static void fill_span(check *c, select_data *d, const um_span *s) {
    const size_t dim = (size_t)d->a.head_dim, width = 2 * (size_t)d->a.n_kv_heads * dim;
    um_range part[2];
    const int n_parts = um_range_without(s->keys, s->hole, part);
    for (int p = 0; p < n_parts; p++) {
        const int32_t n = part[p].end - part[p].start;
        float *kv = (float *)check_host(c, (size_t)n * width * sizeof(float));
        int32_t *slot = (int32_t *)check_host(c, (size_t)n * sizeof(int32_t));
        for (size_t i = 0; i < (size_t)n * width; i++)
            kv[i] = i % dim ? quarter(c) : check_below(c, 2) ? 1.75f : -1.75f;
        for (int32_t i = 0; i < n; i++)
            slot[i] = (int32_t)um_slot_of(s->page, d->pages.shape.page_size, part[p].start + i);
        check_pages_fill(c, &d->pages, LAYER, n, slot, kv);
    }
}

static void new_select(check *c, select_data *d, const given *g, um_span *s, um_kv_select *k, bool scratch) {
    float *prior = (float *)check_host(c, (size_t)g->keys.end * sizeof(float));
    for (int32_t i = 0; i < g->keys.end; i++) prior[i] = (float)(check_below(c, 9) - 4) / 4;
    *k = {g->block,
          g->n_keep,
          g->pool,
          g->per_head,
          check_pages_table(c, &d->pages, g->n_keep, scratch),
          g->prior ? prior : NULL,
          g->blind};
    s->select = k;
    d->n_keys = UM_MAX(d->n_keys, g->keys.end - g->keys.start);
}

static void new_batch(check *c, select_data *d, const given *set, int n_set) {
    um_batch *b = &d->batch;
    for (int i = 0; i < n_set; i++) b->n_tokens += set[i].n;
    const size_t bytes = (size_t)b->n_tokens * sizeof(int32_t);
    int32_t *slot = (int32_t *)check_host(c, bytes), t = 0;
    for (int i = 0; i < n_set; i++) {
        const given *g = &set[i];
        um_span *s = &d->span[i];
        *s = {t, g->n, check_pages_table(c, &d->pages, g->keys.end, false), NULL, g->keys, g->hole, NULL, -1};
        if (g->n_keep) new_select(c, d, g, s, &d->select[i], i % 2);
        fill_span(c, d, s);
        for (int32_t k = 0; k < g->n; k++)
            slot[t++] = (int32_t)um_slot_of(s->page, d->pages.shape.page_size, g->keys.end - g->n + k);
    }
    b->n_spans = n_set;
    b->id = b->pos = b->seen_end = (int32_t *)check_host(c, bytes);
    b->slot = slot;
    b->span = d->span;
}

static select_data *new_data(check *c, const check_case *k) {
    const given *set = sets[k->n[SET]].span;
    select_data *d = (select_data *)check_host(c, sizeof *d);
    int64_t n_slots = 0;
    for (int i = 0; i < sets[k->n[SET]].n; i++) n_slots += set[i].keys.end + set[i].n_keep + 2 * k->n[PAGE];
    const int64_t S = k->n[PAGE], slots = (n_slots + S - 1) / S * S;
    const um_kv_shape shape = {LAYERS,
                               k->n[KV_HEADS],
                               k->n[DIM],
                               k->n[PAGE],
                               slots,
                               slots,
                               (um_dtype)k->n[KV_TYPE],
                               (um_kv_layout)k->n[LAYOUT]};
    d->a = {};
    d->a.layer = LAYER;
    d->a.n_heads = k->n[HEADS];
    d->a.n_kv_heads = k->n[KV_HEADS];
    d->a.head_dim = k->n[DIM];
    d->a.type = k->type;
    d->a.scale = 1 / sqrtf((float)k->n[DIM]);
    d->pages = check_pages_new(c, &shape, true);
    new_batch(c, d, set, sets[k->n[SET]].n);
    const size_t n = (size_t)d->batch.n_tokens * (size_t)(k->n[HEADS] + 2 * k->n[KV_HEADS]) * (size_t)k->n[DIM];
    d->qkv = (float *)check_host(c, n * sizeof(float));
    for (size_t i = 0; i < n; i++) d->qkv[i] = (float)(check_below(c, 5) - 2);
    d->a.qkv = check_operand(c, d->qkv, n, k->type);
    return d;
}

typedef struct select_call {
    um_cu_batch b;
    const char *host;
    um_cu_attention a;
    um_cu_kv kv;
    void *scratch;
    cudaStream_t stream;
} select_call;
static void call_select(void *arg) {
    const select_call *t = (const select_call *)arg;
    um_cu_select(&t->b, t->host, &t->a, &t->kv, NULL, 1, t->scratch, t->stream);
}

/* Compares the kept keys and values of a span, and its own keys, which don't change. */
static void compare_kept(check *c, const select_data *d, const um_span *s) {
    const um_kv_select *k = s->select;
    const int32_t S = d->pages.shape.page_size, n = k->n_keep;
    const size_t width = 2 * (size_t)d->a.n_kv_heads * (size_t)d->a.head_dim;
    int32_t *slot = (int32_t *)check_host(c, (size_t)n * sizeof(int32_t));
    for (int32_t t = 0; t < n; t++) slot[t] = (int32_t)um_slot_of(k->page, S, t);
    const float *got = check_pages_of_device(c, &d->pages, LAYER, n, slot);
    const float *want = check_pages_of_ref(c, &d->pages, LAYER, n, slot);
    for (int32_t t = 0; t < n; t++)
        check_true(c, memcmp(got + (size_t)t * width, want + (size_t)t * width, width * sizeof(float)) == 0,
                   "the span at token %d: kept key %d differs", s->first, t);
    int32_t last = (int32_t)um_slot_of(s->page, S, s->keys.end - 1);
    check_same(c, "the last key of the span", check_pages_of_device(c, &d->pages, LAYER, 1, &last),
               check_pages_of_ref(c, &d->pages, LAYER, 1, &last), width * sizeof(float));
}

static void run_select(check *c, const check_case *k) {
    select_data *d = new_data(c, k);
    const um_message_capacity capacity = {
        d->batch.n_tokens + 3, d->batch.n_spans + 2, um_message_tiles(&d->batch, 16) + 1, 1, 16, 0, 1000, k->n[PAGE]};
    select_call call = {};
    char *host = NULL;
    call.b = check_batch(c, &d->batch, &capacity, &host);
    call.host = host;
    call.a = d->a;
    call.kv = d->pages.device;
    call.scratch = check_device(c, um_cu_select_scratch(k->n[KV_HEADS], k->n[HEADS], k->n[DIM], d->n_keys));
    call.stream = check_stream(c);
    call_select(&call);
    check_cuda(c, cudaGetLastError(), "select");
    const um_attention r = {
        LAYER,  k->n[HEADS], k->n[KV_HEADS], k->n[DIM], k->n[PAGE], (k->n[HEADS] + 2 * k->n[KV_HEADS]) * k->n[DIM],
        d->qkv, NULL,        d->a.scale,     0,         &d->batch};
    um_ref_kv_select(check_ref(c, k->type), d->pages.ref, &r);
    for (int32_t i = 0; i < d->batch.n_spans; i++)
        if (d->span[i].select) compare_kept(c, d, &d->span[i]);
    const double keys = (double)d->n_keys * k->n[KV_HEADS] * k->n[DIM] * um_dtype_size(d->pages.shape.type);
    if (k->n[SET] == TIMED) check_time(c, keys, 0, call_select, &call);
    check_pages_free(&d->pages);
}

static const check_case cases[] = {
    {"select fp32, 4/4 heads, d 16, page 4", run_select, {4, 4, 16, 4, UM_F32, UM_KV_UNIFIED, SMALL}, UM_F32},
    {"select fp32, 8/2 heads, d 64, page 5", run_select, {8, 2, 64, 5, UM_F32, UM_KV_DISTINCT, SMALL}, UM_F32},
    {"select fp32, 6/1 heads, d 64, bf16 KV", run_select, {6, 1, 64, 32, UM_BF16, UM_KV_UNIFIED, LARGE}, UM_F32},
    {"select fp32, 4/4 heads, d 16, 8-bit KV", run_select, {4, 4, 16, 12, UM_F8, UM_KV_UNIFIED, SMALL}, UM_F32},
    {"select bf16, 4/2 heads, d 256", run_select, {4, 2, 256, 256, UM_BF16, UM_KV_UNIFIED, SMALL}, UM_BF16},
    {"select bf16, 8/2 heads, d 64, page 5", run_select, {8, 2, 64, 5, UM_BF16, UM_KV_DISTINCT, LARGE}, UM_BF16},
    {"select bf16, 4/4 heads, d 128", run_select, {4, 4, 128, 32, UM_BF16, UM_KV_UNIFIED, LARGE}, UM_BF16},
    {"select bf16, 8/2 heads, d 64, 8-bit KV", run_select, {8, 2, 64, 32, UM_F8, UM_KV_DISTINCT, LARGE}, UM_BF16},
    {"select bf16, 32/4 heads, 8192 keys", run_select, {32, 4, 128, 32, UM_BF16, UM_KV_UNIFIED, TIMED}, UM_BF16},
};
extern const check_list select_checks = {"check_select", cases, (int)UM_LEN(cases)};
