/* Checks of the KV cache: norm, rotation and writes to pages, vectors in 8 bits, copies of pages, sizes. */
#include "check_pages.cuh"

#include "cuda/kv.cuh"

/* ---- Caches ------------------------------------------------------------------------------------------------------ */

check_pages check_pages_new(check *c, const um_kv_shape *shape, bool ref) {
    const int32_t n_pages = (int32_t)(shape->n_slots / shape->page_size);
    check_pages p = {};
    size_t scratch;
    um_err err;
    p.shape = p.device.shape = *shape;
    if (ref) check_status(c, um_ref_kv_new(check_ref(c, UM_F32), &p.ref, shape, &err), &err);
    um_cu_kv_bytes(shape, p.device.pool_bytes, &scratch);
    for (int i = 0; i < 2; i++)
        if (p.device.pool_bytes[i]) p.device.pool[i] = (char *)check_device(c, p.device.pool_bytes[i]);
    p.page = (int32_t *)check_host(c, (size_t)n_pages * sizeof(int32_t));
    for (int32_t i = 0; i < n_pages; i++) {
        const int32_t k = check_below(c, i + 1);
        p.page[i] = p.page[k];
        p.page[k] = i;
    }
    return p;
}

void check_pages_free(check_pages *p) { um_ref_kv_free(NULL, p->ref); }

int32_t *check_pages_table(check *c, check_pages *p, int32_t n, bool scratch) {
    const int32_t S = p->shape.page_size, n_pages = (int32_t)(p->shape.n_slots / S);
    int32_t *table = (int32_t *)check_host(c, (size_t)(n / S + 1) * sizeof(int32_t));
    for (int32_t i = 0; i < UM_CEIL_DIV(n, S); i++)
        table[i] = scratch ? n_pages + p->n_scratch_used++ : p->page[p->n_used++];
    assert(p->n_used <= n_pages && p->n_scratch_used <= p->shape.n_scratch_slots / S);
    return table;
}

/* Returns a batch of n tokens with these slots and positions, on the device. */
static um_cu_batch batch_of_slots(check *c, const um_kv_shape *shape, int32_t n, int32_t capacity, const int32_t *slot,
                                  const int32_t *pos) {
    int32_t *zero = (int32_t *)check_host(c, (size_t)n * sizeof(int32_t));
    um_span span = {};
    um_batch b = {};
    span.n = n;
    span.page = zero;
    span.adapter = -1;
    b.n_tokens = n;
    b.n_spans = 1;
    b.id = b.seen_end = zero;
    b.pos = pos ? pos : zero;
    b.slot = slot;
    b.span = &span;
    const um_message_capacity sizes = {capacity, 1, n, 1, 16, 0, 1000, shape->page_size};
    return check_batch(c, &b, &sizes, NULL);
}

void check_pages_fill(check *c, check_pages *p, int32_t layer, int32_t n, const int32_t *slot, const float *kv) {
    const um_kv_shape *s = &p->shape;
    const size_t all = (size_t)n * 2 * (size_t)s->n_kv_heads * (size_t)s->head_dim;
    const um_cu_batch b = batch_of_slots(c, s, n, n, slot, NULL);
    float *copy = (float *)check_host(c, all * sizeof(float));
    memcpy(copy, kv, all * sizeof(float));
    um_rope_kv r = {};
    r.layer = layer;
    r.n_tokens = n;
    r.n_kv_heads = s->n_kv_heads;
    r.head_dim = s->head_dim;
    r.qkv = copy;
    r.pos = (int32_t *)check_host(c, (size_t)n * sizeof(int32_t));
    r.slot = slot;
    r.cos = r.sin = copy; /* nothing is rotated */
    um_ref_rope_kv(check_ref(c, UM_F32), p->ref, &r);
    um_cu_rope a = {};
    a.layer = layer;
    a.n_kv_heads = s->n_kv_heads;
    a.head_dim = s->head_dim;
    a.qkv = check_upload(c, kv, all * sizeof(float));
    a.cos = a.sin = (const float *)a.qkv;
    um_cu_rope_kv(&b, &a, &p->device, check_stream(c));
    check_cuda(c, cudaGetLastError(), "filling pages");
}

void check_pages_fill_random(check *c, check_pages *p, int32_t layer, const int32_t *table, int32_t from, int32_t to,
                             float value_by) {
    const int32_t n = to - from;
    if (n <= 0) return;
    int32_t *slot = (int32_t *)check_host(c, (size_t)n * sizeof(int32_t));
    for (int32_t i = 0; i < n; i++) slot[i] = (int32_t)um_slot_of(table, p->shape.page_size, from + i);
    const size_t width = 2 * (size_t)p->shape.n_kv_heads * (size_t)p->shape.head_dim;
    float *kv = check_floats(c, (size_t)n * width);
    for (size_t i = 0; i < (size_t)n * width; i++) kv[i] *= i % width < width / 2 ? 1 : value_by;
    for (int32_t i = 5; i < n; i += 11) memset(kv + (size_t)i * width, 0, width * sizeof *kv); /* the scale is 0 too */
    check_pages_fill(c, p, layer, n, slot, kv);
}

float *check_pages_of_ref(check *c, const check_pages *p, int32_t layer, int32_t n, const int32_t *slot) {
    const size_t width = (size_t)p->shape.n_kv_heads * (size_t)p->shape.head_dim;
    float *out = (float *)check_host(c, (size_t)n * 2 * width * sizeof(float));
    for (int32_t i = 0; i < n; i++) {
        const size_t at = um_ref_kv_at(p->ref, layer, slot[i]);
        memcpy(out + (size_t)i * 2 * width, p->ref->key + at, width * sizeof(float));
        memcpy(out + ((size_t)i * 2 + 1) * width, p->ref->value + at, width * sizeof(float));
    }
    return out;
}

/* Returns the device's cache with its pools in host memory. */
static um_cu_kv on_host(check *c, const check_pages *p) {
    um_cu_kv kv = p->device;
    for (int i = 0; i < 2; i++)
        if (kv.pool_bytes[i]) kv.pool[i] = (char *)check_download(c, kv.pool[i], kv.pool_bytes[i]);
    return kv;
}

static float element_of(const um_cu_kv_view *v, const char *range, int32_t slot, int32_t i) {
    const char *vector = range + um_cu_vector_at(*v, slot);
    if (v->type == UM_F32) return ((const float *)vector)[i];
    if (v->type == UM_BF16) return um_bf16_to_f32(((const uint16_t *)vector)[i]);
    return um_f8_to_f32(((const uint8_t *)vector)[i]) * um_cu_scale_of(*v, range, slot);
}

float *check_pages_of_device(check *c, const check_pages *p, int32_t layer, int32_t n, const int32_t *slot) {
    const int32_t heads = p->shape.n_kv_heads, d = p->shape.head_dim, S = p->shape.page_size;
    const um_cu_kv kv = on_host(c, p);
    const um_cu_kv_view v = um_cu_kv_of(&kv, layer);
    float *out = (float *)check_host(c, (size_t)n * 2 * (size_t)heads * (size_t)d * sizeof(float)), *to = out;
    for (int32_t i = 0; i < n; i++)
        for (int part = 0; part < 2; part++)
            for (int32_t h = 0; h < heads; h++) {
                const char *range = (part ? v.value : v.key) + um_cu_range_at(v, slot[i] / S, h);
                for (int32_t k = 0; k < d; k++) *to++ = element_of(&v, range, slot[i] % S, k);
            }
    return out;
}

/* ---- Norm, rotation and writes ----------------------------------------------------------------------------------- */

enum { HEADS, KV_HEADS, DIM, ROPE_DIM, PAGE, KV_TYPE, LAYOUT, EXTRAS }; /* meaning of check_case.n */
enum { NORM = 1, CLIP = 2, QUERY = 4, VALUE = 8, NEAR = 16 };           /* EXTRAS */
enum { LAYERS = 3, TOKENS = 37, ROOM = 41, POSITIONS = 100 };

static double kv_tolerance(um_dtype type) { return type == UM_BF16 ? 1e-3 : 2e-6; }

typedef struct rope_call {
    um_cu_batch b;
    um_cu_rope a;
    um_cu_kv kv;
    cudaStream_t stream;
} rope_call;
static void call_rope(void *arg) {
    const rope_call *r = (const rope_call *)arg;
    um_cu_rope_kv(&r->b, &r->a, &r->kv, r->stream);
}

static um_kv_shape shape_of(const check_case *k, int32_t n_slots, int32_t n_scratch) {
    const int32_t S = k->n[PAGE];
    return {LAYERS,
            k->n[KV_HEADS],
            k->n[DIM],
            S,
            (int64_t)UM_CEIL_DIV(n_slots, S) * S,
            (int64_t)UM_CEIL_DIV(n_scratch, S) * S,
            (um_dtype)k->n[KV_TYPE],
            (um_kv_layout)k->n[LAYOUT]};
}

/* Gives the tokens random positions, and slots of both kinds of pages; some have none. The last token is at the last
 * slot of the cache, so that a table of pages that is too small is found. */
static void new_slots(check *c, check_pages *p, int32_t *slot, int32_t *pos) {
    const int32_t half = TOKENS / 2, S = p->shape.page_size;
    const int32_t *own = check_pages_table(c, p, half, false), *scratch = check_pages_table(c, p, TOKENS - half, true);
    for (int32_t t = 0; t < TOKENS; t++) {
        slot[t] = (int32_t)(t < half ? um_slot_of(own, S, t) : um_slot_of(scratch, S, t - half));
        if (t % 7 == 3) slot[t] = -1;
        pos[t] = check_below(c, POSITIONS);
    }
    slot[TOKENS - 1] = (int32_t)(p->shape.n_slots + p->shape.n_scratch_slots) - 1;
}

static void compare_queries(check *c, const check_case *k, const float *want, const void *qkv) {
    const int32_t n_heads = k->n[HEADS] + 2 * k->n[KV_HEADS], d = k->n[DIM];
    const float *got = check_floats_of(c, qkv, (size_t)TOKENS * n_heads * d, k->type);
    for (int32_t t = 0; t < TOKENS; t++) {
        const size_t at = (size_t)t * n_heads * d;
        check_close(c, "queries", got + at, want + at, (size_t)k->n[HEADS] * d, k->type == UM_BF16 ? 3e-3 : 2e-6);
    }
}

/* Returns whether keys or values are stored as they are given. */
static bool is_exact(const check_case *k, bool value) {
    return value ? !(k->n[EXTRAS] & VALUE) : !(k->n[ROPE_DIM] || k->n[EXTRAS] & NORM);
}

/* Compares numbers that were rounded to 8 bits. The sums of the device differ from the reference in their last bits, so
 * a number close to the middle of two codes may get the other one. Few do, and the two codes are next to each other:
 * they differ by at most an eighth of the number, or by 2^-9 of the scale, which is 1/448 of the largest number. */
static void compare_codes(check *c, const char *what, const float *got, const float *want, size_t n) {
    size_t n_others = 0;
    float largest = 0;
    for (size_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(want[i]));
    for (size_t i = 0; i < n; i++) {
        const float apart = fabsf(got[i] - want[i]), size = fmaxf(fabsf(got[i]), fabsf(want[i]));
        if (apart <= 1e-5f * size) continue;
        n_others++;
        check_true(c, apart <= 0.126f * size + 5e-6f * largest, "%s[%zu] is %g, expected %g", what, i, (double)got[i],
                   (double)want[i]);
    }
    check_true(c, n_others <= 1 + n / 64, "%s: %zu of %zu numbers have another code", what, n_others, n);
}

/* Compares the written slots. */
static void compare_slots(check *c, const check_case *k, const check_pages *p, int32_t layer, const int32_t *slot) {
    const size_t width = (size_t)k->n[KV_HEADS] * (size_t)k->n[DIM];
    int32_t n = 0, *written = (int32_t *)check_host(c, TOKENS * sizeof(int32_t));
    for (int32_t t = 0; t < TOKENS; t++)
        if (slot[t] >= 0) written[n++] = slot[t];
    const float *got = check_pages_of_device(c, p, layer, n, written),
                *want = check_pages_of_ref(c, p, layer, n, written);
    for (int32_t i = 0; i < 2 * n; i++) {
        const char *what = i % 2 ? "values" : "keys";
        const float *got_row = got + (size_t)i * width, *want_row = want + (size_t)i * width;
        if (is_exact(k, i % 2)) check_close(c, what, got_row, want_row, width, 0);
        else if (p->shape.type == UM_F8) compare_codes(c, what, got_row, want_row, width);
        else check_close(c, what, got_row, want_row, width, kv_tolerance(p->shape.type));
    }
}

static um_cu_rope rope_of(const check_case *k) {
    um_cu_rope a = {};
    a.n_heads = k->n[HEADS];
    a.n_kv_heads = k->n[KV_HEADS];
    a.head_dim = k->n[DIM];
    a.rope_dim = k->n[ROPE_DIM];
    a.type = k->type;
    a.eps = 1e-6f;
    return a;
}

static void run_rope(check *c, const check_case *k) {
    const int32_t H = k->n[HEADS], KV = k->n[KV_HEADS], d = k->n[DIM], half = k->n[ROPE_DIM] / 2;
    const size_t all = (size_t)ROOM * (H + 2 * KV) * d, table = (size_t)POSITIONS * (size_t)half;
    const um_kv_shape shape = shape_of(k, TOKENS + 60, TOKENS + 30);
    check_pages p = check_pages_new(c, &shape, true);
    int32_t slot[TOKENS], pos[TOKENS];
    new_slots(c, &p, slot, pos);
    float *q_norm = check_floats(c, (size_t)d), *k_norm = check_floats(c, (size_t)d),
          *v_norm = check_floats(c, (size_t)d);
    float *cosines = check_floats(c, table), *sines = check_floats(c, table), *qkv = NULL;
    float *factors = check_floats(c, POSITIONS);
    rope_call r = {};
    r.b = batch_of_slots(c, &shape, TOKENS, ROOM, slot, pos);
    if (k->n[EXTRAS] & NEAR) r.b.near_slot = r.b.slot, r.b.slot = NULL;
    r.a = rope_of(k);
    r.a.clip = k->n[EXTRAS] & CLIP ? 0.75f : 0;
    r.a.near = k->n[EXTRAS] & NEAR;
    if (k->n[EXTRAS] & QUERY) r.a.query = (float *)check_upload(c, factors, POSITIONS * sizeof(float));
    if (k->n[EXTRAS] & NORM) {
        r.a.q_norm = (float *)check_upload(c, q_norm, (size_t)d * sizeof(float));
        r.a.k_norm = (float *)check_upload(c, k_norm, (size_t)d * sizeof(float));
    }
    if (k->n[EXTRAS] & VALUE) r.a.v_norm = (float *)check_upload(c, v_norm, (size_t)d * sizeof(float));
    r.a.cos = (float *)check_upload(c, cosines, table * sizeof(float));
    r.a.sin = (float *)check_upload(c, sines, table * sizeof(float));
    r.kv = p.device;
    r.stream = check_stream(c);
    for (int32_t i = 0; i < LAYERS; i++) { /* layer 1 last: scratch pages hold it in the end */
        r.a.layer = (i + 2) % LAYERS;
        qkv = check_floats(c, all);
        for (size_t j = (size_t)TOKENS * (H + 2 * KV) * d; j < all; j++) qkv[j] = NAN;
        r.a.qkv = check_operand(c, qkv, all, k->type);
        call_rope(&r);
        check_cuda(c, cudaGetLastError(), "rope_kv");
        const um_rope_kv want = {r.a.layer,
                                 TOKENS,
                                 H,
                                 KV,
                                 d,
                                 r.a.rope_dim,
                                 qkv,
                                 r.a.q_norm ? q_norm : NULL,
                                 r.a.k_norm ? k_norm : NULL,
                                 r.a.v_norm ? v_norm : NULL,
                                 r.a.eps,
                                 r.a.clip,
                                 cosines,
                                 sines,
                                 r.a.query ? factors : NULL,
                                 pos,
                                 slot};
        um_ref_rope_kv(check_ref(c, k->type), p.ref, &want);
        compare_queries(c, k, qkv, r.a.qkv);
    }
    compare_slots(c, k, &p, 1, slot);
    for (int32_t t = 0; t < TOKENS; t++)
        if (slot[t] >= shape.n_slots) slot[t] = -1;
    compare_slots(c, k, &p, 0, slot);
    compare_slots(c, k, &p, 2, slot);
    check_pages_free(&p);
}

/* n: as above, but tokens in place of the size of the page. Measures the time alone. */
static void run_rope_time(check *c, const check_case *k) {
    const int32_t H = k->n[HEADS], KV = k->n[KV_HEADS], d = k->n[DIM], T = k->n[PAGE];
    const size_t all = (size_t)T * (H + 2 * KV) * d, size = um_dtype_size(k->type);
    um_kv_shape shape = {
        1, KV, d, 32, (int64_t)UM_CEIL_DIV(T, 32) * 32, 0, (um_dtype)k->n[KV_TYPE], (um_kv_layout)k->n[LAYOUT]};
    check_pages p = check_pages_new(c, &shape, false);
    int32_t *slot = (int32_t *)check_host(c, (size_t)T * sizeof(int32_t));
    int32_t *pos = (int32_t *)check_host(c, (size_t)T * sizeof(int32_t));
    for (int32_t t = 0; t < T; t++) slot[t] = pos[t] = t;
    const size_t table = (size_t)T * (size_t)k->n[ROPE_DIM] / 2;
    rope_call r = {};
    r.b = batch_of_slots(c, &shape, T, T, slot, pos);
    r.a = rope_of(k);
    r.a.qkv = check_operand(c, check_floats(c, all), all, k->type);
    r.a.cos = (float *)check_upload(c, check_floats(c, table), table * sizeof(float));
    r.a.sin = (float *)check_upload(c, check_floats(c, table), table * sizeof(float));
    if (k->n[EXTRAS] & NORM)
        r.a.q_norm = r.a.k_norm = (float *)check_upload(c, check_floats(c, (size_t)d), (size_t)d * sizeof(float));
    r.kv = p.device;
    r.stream = check_stream(c);
    const double queries = (double)T * H * d * size, keys = 2.0 * T * KV * d;
    check_time(c, 2 * queries + keys * (size + um_dtype_size(shape.type)), 0, call_rope, &r);
    check_pages_free(&p);
}

/* ---- Vectors in 8 bits ------------------------------------------------------------------------------------------- */

/* Fills vectors with the values that are hard to round: not a number, infinity, zeros, subnormal numbers, and the
 * middles between two codes. */
static void hard_vectors(check *c, float *x, int32_t n, int32_t d) {
    for (int32_t i = 0; i < n; i++, x += d) {
        for (int32_t k = 0; k < d; k++) {
            const int32_t code = check_below(c, 126); /* 126 is the largest code, 448 */
            const float low = um_f8_to_f32((uint8_t)code), high = um_f8_to_f32((uint8_t)(code + 1));
            x[k] = (i % 8 == 4 ? (low + high) / 2 : nextafterf((low + high) / 2, i % 8 == 5 ? 0 : 448)) *
                   (check_below(c, 2) ? 1.0f : -1.0f);
        }
        x[0] = 448; /* the scale is 1 */
        if (i % 8 == 0) memset(x, 0, (size_t)d * sizeof(float));
        if (i % 8 == 1) x[d - 1] = i / 8 % 2 ? INFINITY : NAN;
        if (i % 8 == 2)
            for (int32_t k = 0; k < d; k++) x[k] = check_signed(c) * 1e-40f;
        if (i % 8 == 3)
            for (int32_t k = 0; k < d; k++) x[k] = check_signed(c) * (k % 2 ? 1e30f : 1e-3f);
        if (i % 8 == 7) x[1] = -0.0f;
    }
}

/* Fills the slots from bf16 [n, 2 * n_kv_heads * d], which is rounded in place. Keys are rotated by 0. */
static void fill_bf16(check *c, check_pages *p, int32_t n, const int32_t *slot, float *kv) {
    const um_kv_shape *s = &p->shape;
    float *cos = (float *)check_host(c, (size_t)s->head_dim * sizeof(float)), *sin = cos + s->head_dim / 2;
    for (int32_t i = 0; i < s->head_dim / 2; i++) cos[i] = 1, sin[i] = 0;
    const um_cu_batch b = batch_of_slots(c, s, n, n, slot, NULL);
    um_cu_rope a = {};
    a.n_kv_heads = s->n_kv_heads;
    a.head_dim = a.rope_dim = s->head_dim;
    a.type = UM_BF16;
    a.qkv = check_operand(c, kv, (size_t)n * 2 * (size_t)s->n_kv_heads * (size_t)s->head_dim, UM_BF16);
    a.cos = (float *)check_upload(c, cos, (size_t)s->head_dim * sizeof(float));
    a.sin = a.cos + s->head_dim / 2;
    um_cu_rope_kv(&b, &a, &p->device, check_stream(c));
    check_cuda(c, cudaGetLastError(), "filling pages");
}

/* n: page size, head size, KV heads. Codes and scales have the bits of um_f8_code and um_f8_scale. A rotation by 0
 * turns -0 into 0, so from bf16 only the values are compared. */
static void run_f8(check *c, const check_case *k) {
    enum { N = 64 };
    const int32_t S = k->n[0], d = k->n[1], heads = k->n[2];
    const size_t width = 2 * (size_t)heads * (size_t)d;
    const um_kv_shape shape = {1, heads, d, S, (int64_t)UM_CEIL_DIV(N, S) * S, 0, UM_F8, UM_KV_UNIFIED};
    check_pages p = check_pages_new(c, &shape, true);
    float *x = (float *)check_host(c, N * width * sizeof(float));
    int32_t slot[N];
    for (int32_t i = 0; i < N; i++) slot[i] = i;
    hard_vectors(c, x, N * 2 * heads, d);
    if (k->type == UM_BF16) fill_bf16(c, &p, N, slot, x);
    else check_pages_fill(c, &p, 0, N, slot, x);
    const um_cu_kv kv = on_host(c, &p);
    const um_cu_kv_view v = um_cu_kv_of(&kv, 0);
    for (int32_t i = 0; i < N * 2 * heads; i++) {
        const int32_t s = i / (2 * heads), head = i % heads;
        const bool value = i % (2 * heads) >= heads;
        if (k->type == UM_BF16 && !value) continue;
        const char *range = (value ? v.value : v.key) + um_cu_range_at(v, s / S, head);
        const uint8_t *code = (const uint8_t *)range + um_cu_vector_at(v, s % S);
        const float *from = x + (size_t)i * d, want = um_f8_scale(from, (size_t)d),
                    got = um_cu_scale_of(v, range, s % S);
        check_true(c, got == want || (isnan(got) && isnan(want)), "scale %d is %g, expected %g", i, got, want);
        for (int32_t j = 0; j < d; j++)
            check_true(c, code[j] == um_f8_code(from[j], want), "vector %d: code %d of %g with scale %g is %d, not %d",
                       i, j, from[j], want, code[j], um_f8_code(from[j], want));
    }
    check_pages_free(&p);
}

/* ---- Copies of pages and sizes ----------------------------------------------------------------------------------- */

/* n: slots to copy, KV heads, head size, unused, page size, KV type, layout */
static void run_copy(check *c, const check_case *k) {
    const int32_t S = k->n[PAGE], n_pages = 5, n = n_pages * S;
    const size_t width = 2 * (size_t)k->n[KV_HEADS] * (size_t)k->n[DIM];
    const um_kv_shape shape = shape_of(k, n, 2 * S);
    check_pages p = check_pages_new(c, &shape, true);
    int32_t *slot = (int32_t *)check_host(c, (size_t)n * sizeof(int32_t));
    for (int32_t i = 0; i < n; i++) slot[i] = i;
    for (int32_t layer = 0; layer < LAYERS; layer++)
        check_pages_fill(c, &p, layer, n, slot, check_floats(c, (size_t)n * width));
    um_cu_kv_copy(&p.device, 3, 1, k->n[0], check_stream(c));
    check_cuda(c, cudaGetLastError(), "kv_copy");
    um_ref_kv_copy(NULL, p.ref, 3, 1, k->n[0]);
    for (int32_t layer = 0; layer < LAYERS; layer++)
        check_same(c, "pages", check_pages_of_device(c, &p, layer, n, slot), check_pages_of_ref(c, &p, layer, n, slot),
                   (size_t)n * width * sizeof(float));
    check_pages_free(&p);
}

static void run_bytes(check *c, const check_case *k) {
    for (int type = 0; type < 3; type++) {
        const um_dtype of[] = {UM_F32, UM_BF16, UM_F8};
        um_kv_shape s = {5, 3, 64, 16, 7 * 16, 2 * 16, of[type], UM_KV_UNIFIED};
        const size_t slot = 2 * 3 * (64 * um_dtype_size(s.type) + (s.type == UM_F8 ? sizeof(float) : 0));
        size_t pool[2], scratch;
        um_cu_kv_bytes(&s, pool, &scratch);
        check_true(c, pool[0] == slot * (5 * 7 + 2) * 16 && pool[1] == 0, "%s: unified layout", k->name);
        check_true(c, scratch == slot * 2 * 16, "%s: scratch pages", k->name);
        s.layout = UM_KV_DISTINCT;
        um_cu_kv_bytes(&s, pool, &scratch);
        check_true(c, pool[0] == slot / 2 * (5 * 7 + 2) * 16 && pool[1] == pool[0], "%s: distinct layout", k->name);
        check_true(c, scratch == slot * 2 * 16, "%s: scratch pages of two pools", k->name);
    }
}

static const check_case cases[] = {
    {"KV bytes", run_bytes, {}, UM_F32},
    {"rope_kv fp32, no rotation", run_rope, {4, 4, 16, 0, 4, UM_F32, UM_KV_UNIFIED, 0}, UM_F32},
    {"rope_kv fp32, d 64, page 5", run_rope, {8, 2, 64, 64, 5, UM_F32, UM_KV_DISTINCT, 0}, UM_F32},
    {"rope_kv fp32, d 128, norm", run_rope, {4, 1, 128, 128, 32, UM_F32, UM_KV_UNIFIED, NORM}, UM_F32},
    {"rope_kv fp32, part rotated, clip", run_rope, {3, 3, 80, 40, 12, UM_F32, UM_KV_UNIFIED, CLIP}, UM_F32},
    {"rope_kv fp32, d 256, norm, clip, bf16 KV", run_rope, {2, 1, 256, 256, 256, UM_BF16, UM_KV_DISTINCT, 3}, UM_F32},
    {"rope_kv fp32, d 24, 8-bit KV", run_rope, {2, 2, 24, 24, 5, UM_F8, UM_KV_UNIFIED, 0}, UM_F32},
    {"rope_kv bf16, no rotation, 8-bit KV", run_rope, {4, 4, 64, 0, 12, UM_F8, UM_KV_DISTINCT, 0}, UM_BF16},
    {"rope_kv bf16, d 128", run_rope, {8, 8, 128, 128, 32, UM_BF16, UM_KV_UNIFIED, 0}, UM_BF16},
    {"rope_kv bf16, d 128, norm, clip", run_rope, {8, 2, 128, 64, 256, UM_BF16, UM_KV_DISTINCT, 3}, UM_BF16},
    {"rope_kv bf16, d 128 whole, norm, clip", run_rope, {8, 2, 128, 128, 5, UM_BF16, UM_KV_DISTINCT, 3}, UM_BF16},
    {"rope_kv fp32, d 32, factors of queries", run_rope, {4, 2, 32, 32, 8, UM_F32, UM_KV_UNIFIED, QUERY}, UM_F32},
    {"rope_kv bf16, d 128 whole, factors of queries",
     run_rope,
     {8, 2, 128, 128, 8, UM_BF16, UM_KV_UNIFIED, QUERY},
     UM_BF16},
    {"rope_kv bf16, d 128 whole, 3/1 heads", run_rope, {3, 1, 128, 128, 64, UM_BF16, UM_KV_UNIFIED, NORM}, UM_BF16},
    {"rope_kv bf16, d 128 half, 3/1 heads", run_rope, {3, 1, 128, 64, 64, UM_BF16, UM_KV_UNIFIED, NORM}, UM_BF16},
    {"rope_kv bf16, d 128 half, factors of queries",
     run_rope,
     {9, 4, 128, 64, 32, UM_BF16, UM_KV_UNIFIED, QUERY},
     UM_BF16},
    {"rope_kv fp32, d 512, all norms, window", run_rope, {4, 2, 512, 512, 32, UM_F32, UM_KV_UNIFIED, 25}, UM_F32},
    {"rope_kv bf16, d 256, all norms, window", run_rope, {4, 2, 256, 256, 32, UM_BF16, UM_KV_UNIFIED, 25}, UM_BF16},
    {"rope_kv bf16, d 128 whole, all norms, window",
     run_rope,
     {8, 2, 128, 128, 32, UM_BF16, UM_KV_UNIFIED, 25},
     UM_BF16},
    {"rope_kv bf16, d 8, fp32 KV", run_rope, {5, 5, 8, 8, 4, UM_F32, UM_KV_UNIFIED, NORM}, UM_BF16},
    {"rope_kv bf16, d 64, norm, 8-bit KV", run_rope, {8, 4, 64, 64, 32, UM_F8, UM_KV_UNIFIED, NORM}, UM_BF16},
    {"rope_kv bf16, d 128 whole, 8-bit KV", run_rope, {3, 3, 128, 128, 32, UM_F8, UM_KV_UNIFIED, 0}, UM_BF16},
    {"rope_kv bf16, d 128 whole, norm, clip, 8-bit KV",
     run_rope,
     {8, 2, 128, 128, 5, UM_F8, UM_KV_DISTINCT, NORM | CLIP},
     UM_BF16},
    {"rope_kv bf16, d 128 half, all norms, window, 8-bit KV",
     run_rope,
     {4, 1, 128, 64, 64, UM_F8, UM_KV_UNIFIED, NORM | VALUE | NEAR},
     UM_BF16},
    {"rope_kv bf16, 32/32 heads, 32 tokens", run_rope_time, {32, 32, 128, 128, 32, UM_BF16, 0, 0}, UM_BF16},
    {"rope_kv bf16, 32/32 heads, 2048 tokens", run_rope_time, {32, 32, 128, 128, 2048, UM_BF16, 0, 0}, UM_BF16},
    {"rope_kv bf16, 16/4 heads, half, 32 tokens", run_rope_time, {16, 4, 128, 64, 32, UM_BF16, 0, NORM}, UM_BF16},
    {"rope_kv bf16, 16/4 heads, half, 4096 tokens", run_rope_time, {16, 4, 128, 64, 4096, UM_BF16, 0, NORM}, UM_BF16},
    {"rope_kv bf16, 32/32 heads, 2048 tokens, 8-bit KV", run_rope_time, {32, 32, 128, 128, 2048, UM_F8, 0, 0}, UM_BF16},
    {"KV in 8 bits, page 4, d 16", run_f8, {4, 16, 3}, UM_F32},
    {"KV in 8 bits, page 5, d 40", run_f8, {5, 40, 2}, UM_F32},
    {"KV in 8 bits, page 32, d 128", run_f8, {32, 128, 4}, UM_F32},
    {"KV in 8 bits from bf16, page 5, d 128", run_f8, {5, 128, 3}, UM_BF16},
    {"KV copy fp32, 3 of 5 slots", run_copy, {3, 2, 24, 0, 5, UM_F32, UM_KV_UNIFIED}, UM_F32},
    {"KV copy bf16, 32 of 32 slots", run_copy, {32, 4, 64, 0, 32, UM_BF16, UM_KV_DISTINCT}, UM_F32},
    {"KV copy 8 bits, 7 of 12 slots", run_copy, {7, 3, 40, 0, 12, UM_F8, UM_KV_UNIFIED}, UM_F32},
    {"KV copy 8 bits, 1 of 4 slots", run_copy, {1, 1, 8, 0, 4, UM_F8, UM_KV_DISTINCT}, UM_F32},
};
extern const check_list kv_checks = {"check_kv", cases, (int)UM_LEN(cases)};
