/* attention_exact: attention in fp32 without the matrix units, for any head size and any type of keys.
 *
 * A CTA computes up to ROWS rows of a tile: its tokens times the query heads of one KV head. It goes through the keys
 * in groups of 32 at fixed multiples of the visibility index. In a group, each lane computes the score of one key, and
 * then the lanes share the elements of the output. A group in which a row sees no key does not change the row. */
#include "cuda/attention.cuh"

static constexpr int WARP = 32, WARPS = 8, THREADS = WARPS * WARP, ROWS_PER_WARP = 4, ROWS = WARPS * ROWS_PER_WARP,
                     KEYS = 32, DIM_MAX = UM_CU_HEAD_DIM_MAX;
static_assert(KEYS == WARP, "a lane computes the score of one key");

struct exact_args {
    um_cu_attention a;
    um_cu_kv_view kv;
};

/* The rows of a warp. EACH: elements of a row that a lane holds. */
template <int EACH> struct exact_rows {
    int32_t token[ROWS_PER_WARP], head[ROWS_PER_WARP]; /* token -1: no row */
    int32_t start[ROWS_PER_WARP], end[ROWS_PER_WARP];  /* the keys that the row sees, but for the hole */
    float largest[ROWS_PER_WARP], sum[ROWS_PER_WARP], acc[ROWS_PER_WARP][EACH];
};

/* The memory that the warps of a CTA share: queries [ROWS][d], then values [KEYS][d], then keys [KEYS][d + 1]. An odd
 * distance between keys avoids conflicts of the lanes. */
struct exact_memory {
    float *query, *key, *value;
};
static size_t memory_bytes(int32_t d) { return ((size_t)(ROWS + 2 * KEYS) * (size_t)d + KEYS) * sizeof(float); }
static __device__ __forceinline__ exact_memory split_memory(float *memory, int32_t d) {
    return {memory, memory + (ROWS + KEYS) * d, memory + ROWS * d};
}

/* Brings the keys and values of a group to shared memory, as fp32. */
static __device__ void load_group(const exact_args &e, const int32_t *page, const um_message_span &span, int32_t head,
                                  int32_t first, int32_t end, const exact_memory &m) {
    __shared__ um_cu_place place[KEYS];
    const int32_t d = e.a.head_dim, chunks = d / 8;
    const size_t element = um_cu_kv_element(e.kv);
    if (threadIdx.x < KEYS) place[threadIdx.x] = um_cu_find(e.kv, page, span, head, first + (int32_t)threadIdx.x, end);
    __syncthreads(); /* also ends the work with the group before */
    for (int32_t i = threadIdx.x; i < 2 * KEYS * chunks; i += THREADS) {
        const bool value = i >= KEYS * chunks;
        const int32_t of = value ? i - KEYS * chunks : i, key = of / chunks, at = of % chunks * 8;
        const um_cu_place &p = place[key];
        float v[8] = {};
        if (p.at >= 0) um_cu_load_eight((value ? e.kv.value : e.kv.key) + p.at + element * at, e.kv.type, v);
        float *to = value ? m.value + key * d + at : m.key + key * (d + 1) + at;
        const float scale = value ? p.value_scale : p.key_scale;
#pragma unroll
        for (int k = 0; k < 8; k++) to[k] = p.at >= 0 ? v[k] * scale : 0;
    }
    __syncthreads();
}

/* Computes the products of the warp's rows with the lane's key, added in the order of the elements. */
static __device__ __forceinline__ void score_rows(const exact_memory &m, int32_t d, float score[ROWS_PER_WARP]) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const float *key = m.key + lane * (d + 1), *query = m.query + warp * ROWS_PER_WARP * d;
#pragma unroll
    for (int r = 0; r < ROWS_PER_WARP; r++) score[r] = 0;
    for (int32_t i = 0; i < d; i += 4) {
        const float k0 = key[i], k1 = key[i + 1], k2 = key[i + 2], k3 = key[i + 3];
#pragma unroll
        for (int r = 0; r < ROWS_PER_WARP; r++) {
            const float4 q = *(const float4 *)(query + r * d + i);
            score[r] = fmaf(q.w, k3, fmaf(q.z, k2, fmaf(q.y, k1, fmaf(q.x, k0, score[r]))));
        }
    }
}

/* Adds a group to one row. `score` is that of the lane's key. */
template <typename T, int EACH>
static __device__ __forceinline__ void add_group(exact_rows<EACH> &s, int r, float score, bool seen, const float *value,
                                                 int32_t d) {
    const int lane = threadIdx.x % WARP;
    if (!__any_sync(0xffffffffu, seen)) return;
    float most = seen ? score : -INFINITY;
#pragma unroll
    for (int step = WARP / 2; step; step /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
    most = fmaxf(most, s.largest[r]);
    const float factor = s.largest[r] == -INFINITY ? 0 : expf(s.largest[r] - most), p = seen ? expf(score - most) : 0;
    float sum = p;
#pragma unroll
    for (int step = WARP / 2; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    s.sum[r] = fmaf(s.sum[r], factor, sum);
    s.largest[r] = most;
    const float weight = um_cu_float(um_cu_operand<T>(p));
#pragma unroll
    for (int i = 0; i < EACH; i++) s.acc[r][i] *= factor;
    for (int k = 0; k < KEYS; k++) {
        const float w = __shfl_sync(0xffffffffu, weight, k);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (lane + i * WARP < d) s.acc[r][i] = fmaf(w, value[k * d + lane + i * WARP], s.acc[r][i]);
    }
}

/* Sets the rows of the warp and brings their queries to shared memory. */
template <typename T, int EACH>
static __device__ void start_rows(exact_rows<EACH> &s, const um_cu_batch &b, const exact_args &e,
                                  const um_message_tile &tile, const um_message_span &span, const exact_memory &m) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int32_t group = e.a.n_heads / e.a.n_kv_heads, d = e.a.head_dim;
#pragma unroll
    for (int r = 0; r < ROWS_PER_WARP; r++) {
        const int32_t row = (int32_t)blockIdx.z * ROWS + warp * ROWS_PER_WARP + r, t = tile.first + row / group;
        const bool there = row < tile.n * group;
        s.token[r] = there ? t : -1;
        s.head[r] = (int32_t)blockIdx.y * group + row % group;
        s.start[r] = there ? um_cu_seen_start(span, e.a.window, b.seen_end[t]) : 0;
        s.end[r] = there ? min(span.keys.end, b.seen_end[t]) : 0;
        s.largest[r] = -INFINITY;
        s.sum[r] = 0;
        const T *q = (const T *)e.a.qkv + ((size_t)t * (e.a.n_heads + 2 * e.a.n_kv_heads) + s.head[r]) * d;
        for (int i = 0; i < EACH; i++) {
            const int32_t at = lane + i * WARP;
            s.acc[r][i] = 0;
            if (at < d) m.query[(warp * ROWS_PER_WARP + r) * d + at] = there ? um_cu_float(q[at]) : 0;
        }
    }
}

/* Grid: tiles, KV heads, groups of ROWS rows of a tile. */
template <typename T, int EACH>
static __global__ void __launch_bounds__(THREADS) attend_exact(const um_cu_batch b, const exact_args e) {
    extern __shared__ __align__(16) float memory[];
    const um_message_tile tile = b.tile[blockIdx.x];
    const int32_t d = e.a.head_dim, lane = threadIdx.x % WARP;
    if (tile.n * (e.a.n_heads / e.a.n_kv_heads) <= (int32_t)blockIdx.z * ROWS) return;
    um_message_span span = b.span[tile.span];
    const um_cu_bounds bounds = um_cu_tile_bounds(b, tile, span, e.a.window);
    const int32_t *page = um_cu_page_of(b, span, e.a.window), end = bounds.most;
    const exact_memory m = split_memory(memory, d);
    exact_rows<EACH> s;
    start_rows<T>(s, b, e, tile, span, m);
    span.keys.start = bounds.first; /* no row of the tile sees a key before */
    for (int32_t first = span.keys.start / KEYS * KEYS; first < end; first += KEYS) {
        float score[ROWS_PER_WARP];
        load_group(e, page, span, blockIdx.y, first, end, m);
        score_rows(m, d, score);
#pragma unroll
        for (int r = 0; r < ROWS_PER_WARP; r++)
            add_group<T>(s, r, score[r] * e.a.scale,
                         first + lane >= s.start[r] && um_cu_sees(span, first + lane, s.end[r]), m.value, d);
    }
#pragma unroll
    for (int r = 0; r < ROWS_PER_WARP; r++) {
        T *out = (T *)e.a.out + ((size_t)max(s.token[r], 0) * e.a.n_heads + s.head[r]) * d;
        for (int i = 0; i < EACH; i++)
            if (s.token[r] >= 0 && lane + i * WARP < d)
                out[lane + i * WARP] = um_cu_operand<T>(um_cu_divided(s.acc[r][i], s.sum[r]));
    }
}

int32_t um_cu_exact_tile_tokens(int32_t group) { return UM_MAX(1, ROWS / group); }

size_t um_cu_exact_shared(int32_t head_dim) { return memory_bytes(head_dim); }

template <typename T, int EACH> static void launch(const um_cu_batch *b, const exact_args *e, cudaStream_t s) {
    const size_t bytes = memory_bytes(e->a.head_dim);
    const int32_t rows = b->capacity.tile_tokens * (e->a.n_heads / e->a.n_kv_heads);
    const dim3 grid((unsigned)b->capacity.n_tiles, (unsigned)e->a.n_kv_heads, (unsigned)UM_CEIL_DIV(rows, ROWS));
    cudaFuncSetAttribute(attend_exact<T, EACH>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    attend_exact<T, EACH><<<grid, THREADS, bytes, s>>>(*b, *e);
}

template <typename T> static void launch_type(const um_cu_batch *b, const exact_args *e, cudaStream_t s) {
    if (e->a.head_dim <= DIM_MAX / 4) launch<T, DIM_MAX / 4 / WARP>(b, e, s);
    else if (e->a.head_dim <= DIM_MAX / 2) launch<T, DIM_MAX / 2 / WARP>(b, e, s);
    else launch<T, DIM_MAX / WARP>(b, e, s);
}

void um_cu_attend_exact(const um_cu_batch *b, const um_cu_attention *a, const um_cu_kv *kv, cudaStream_t s) {
    const exact_args e = {*a, um_cu_kv_of(kv, a->layer)};
    assert(a->head_dim <= DIM_MAX && a->head_dim % 8 == 0);
    if (a->type == UM_BF16) launch_type<um_bf16>(b, &e, s);
    else launch_type<float>(b, &e, s);
}
