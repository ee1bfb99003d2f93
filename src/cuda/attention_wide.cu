/* attention_wide: attention on the matrix units for heads of 256 and 512 elements, with or without a window.
 *
 * A CTA computes ROWS rows of a tile: its tokens times the query heads of one KV head. Two warps share 16 rows, whose
 * results are too wide for the registers of one: each computes the scores of half of a group's keys, and the products
 * of all probabilities with half of the elements of the values. Probabilities go through shared memory.
 *
 * The CTA goes through the keys in groups of GROUP at fixed multiples of the visibility index, one after another, so
 * the bits of a row depend on the keys that it sees alone. A group in which a row sees no key does not change the row.
 * The next keys arrive while probabilities are multiplied with values, and these while scores are computed.
 *
 * Bytes: keys and values once for each CTA. Operations: 4 d for each row and key. */
#include "cuda/attention.cuh"

static constexpr int WARP = 32, WARPS = 8, THREADS = WARPS * WARP, ROWS = 64, GROUP = 32, PAD = 8;
static constexpr int WEIGHTS = GROUP + PAD; /* distance of rows of probabilities */
static_assert(ROWS == WARPS / 2 * 16, "two warps share 16 rows");

struct wide_args {
    um_cu_attention a;
    um_cu_kv_view kv;
};

/* The memory that the warps of a CTA share; the distance of its rows avoids conflicts of the lanes. */
template <int D> struct wide_memory {
    um_bf16 query[ROWS][D + PAD], key[GROUP][D + PAD], value[GROUP][D + PAD], weight[ROWS][WEIGHTS];
    float most[2][ROWS]; /* of the two halves of a group's keys */
    um_cu_place place[2][GROUP];
};

/* The two rows of a thread, lane / 4 and lane / 4 + 8 of its warp's 16, and its half of the elements. */
template <int D> struct wide_rows {
    int32_t token[2], head[2]; /* token -1: no row */
    int32_t start[2], end[2];  /* the keys that the row sees, but for the hole */
    float largest[2], sum[2];  /* the sums are those of the warp's half of the keys */
    float acc[D / 16][4];
};

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

template <int D>
static __device__ __forceinline__ void start_rows(wide_rows<D> &s, const um_cu_batch &b, const wide_args &w,
                                                  const um_message_tile &tile, const um_message_span &span) {
    const int lane = threadIdx.x % WARP, pair = threadIdx.x / WARP / 2;
    const int32_t group = w.a.n_heads / w.a.n_kv_heads;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int32_t row = (int32_t)blockIdx.z * ROWS + pair * 16 + lane / 4 + 8 * r, t = row / group;
        const bool there = t < tile.n;
        const int32_t seen_end = there ? b.seen_end[tile.first + t] : 0;
        s.token[r] = there ? tile.first + t : -1;
        s.head[r] = (int32_t)blockIdx.y * group + row % group;
        s.start[r] = um_cu_seen_start(span, w.a.window, seen_end);
        s.end[r] = min(span.keys.end, seen_end);
        s.largest[r] = -INFINITY;
        s.sum[r] = 0;
    }
#pragma unroll
    for (int i = 0; i < D / 16; i++) s.acc[i][0] = s.acc[i][1] = s.acc[i][2] = s.acc[i][3] = 0;
}

/* Brings the queries to shared memory. Rows that are not there are zero. */
template <int D>
static __device__ void load_queries(wide_memory<D> &m, const wide_args &w, const um_message_tile &tile) {
    constexpr int CHUNKS = D / 8;
    const int32_t group = w.a.n_heads / w.a.n_kv_heads;
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
        const int32_t row = i / CHUNKS, at = i % CHUNKS * 8, of = (int32_t)blockIdx.z * ROWS + row, t = of / group;
        const um_bf16 *q = (const um_bf16 *)w.a.qkv +
                           (size_t)(tile.first + t) * (size_t)(w.a.n_heads + 2 * w.a.n_kv_heads) * D +
                           (size_t)((int32_t)blockIdx.y * group + of % group) * D + at;
        *(uint4 *)&m.query[row][at] = t < tile.n ? *(const uint4 *)q : make_uint4(0, 0, 0, 0);
    }
}

/* ---- Groups of keys ---------------------------------------------------------------------------------------------- */

/* Starts the copies of a group's keys or values. Those that are not read become zero. */
template <int D>
static __device__ __forceinline__ void fetch(um_bf16 (*to)[D + PAD], const char *base, const um_cu_place *place) {
    constexpr int CHUNKS = D / 8;
#pragma unroll 4
    for (int i = threadIdx.x; i < GROUP * CHUNKS; i += THREADS) {
        const int64_t at = place[i / CHUNKS].at;
        um_cu_copy_async(&to[i / CHUNKS][i % CHUNKS * 8], base + (at < 0 ? 0 : at + i % CHUNKS * 16), at >= 0);
    }
    um_cu_copies_commit();
}

/* Computes the scores of the warp's half of the keys: two tiles of 8. */
template <int D> static __device__ __forceinline__ void score_keys(const wide_memory<D> &m, float score[2][4]) {
    const int lane = threadIdx.x % WARP, pair = threadIdx.x / WARP / 2, half = threadIdx.x / WARP % 2;
    const um_bf16 *q = &m.query[pair * 16 + lane % 16][lane / 16 * 8];
    const um_bf16 *k = &m.key[half * 16 + lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8];
#pragma unroll
    for (int i = 0; i < 4; i++) score[0][i] = score[1][i] = 0;
#pragma unroll 8
    for (int c = 0; c < D; c += 16) {
        uint32_t a[4], b[4];
        um_cu_load_matrix(a, q + c);
        um_cu_load_matrix(b, k + c);
        um_cu_multiply_16(score[0], a, b[0], b[1]);
        um_cu_multiply_16(score[1], a, b[2], b[3]);
    }
}

/* Waits for the other warp of the rows. */
static __device__ __forceinline__ void meet_other() {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + (int)threadIdx.x / WARP / 2), "n"(2 * WARP) : "memory");
}

/* Turns the scores into probabilities relative to the largest score so far, scales the results to it, and stores the
 * probabilities. first: the group's first key. */
template <int D>
static __device__ __forceinline__ void weigh(wide_rows<D> &s, float score[2][4], wide_memory<D> &m,
                                             const um_message_span &span, int32_t first, float scale) {
    const int lane = threadIdx.x % WARP, pair = threadIdx.x / WARP / 2, half = threadIdx.x / WARP % 2;
    const int32_t row = pair * 16 + lane / 4, column = half * 16 + lane % 4 * 2;
    float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int32_t key = first + column + i / 4 * 8 + i % 2;
        float &v = score[i / 4][i % 4];
        const int r = i % 4 / 2;
        if (key < s.start[r] || !um_cu_sees(span, key, s.end[r])) v = -INFINITY;
        most[r] = fmaxf(most[r], v);
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 1));
        most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 2));
        if (lane % 4 == 0) m.most[half][row + 8 * r] = most[r];
    }
    meet_other();
    float base[2], factor[2], sum[2] = {0, 0};
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float all = fmaxf(s.largest[r], fmaxf(m.most[0][row + 8 * r], m.most[1][row + 8 * r]) * scale);
        base[r] = all == -INFINITY ? 0 : all;
        factor[r] = um_cu_power_of_two(s.largest[r] - base[r]);
        s.largest[r] = all;
    }
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float low = um_cu_power_of_two(fmaf(score[j][2 * r], scale, -base[r])),
                        high = um_cu_power_of_two(fmaf(score[j][2 * r + 1], scale, -base[r]));
            sum[r] += low + high;
            *(__nv_bfloat162 *)&m.weight[row + 8 * r][column + 8 * j] = __floats2bfloat162_rn(low, high);
        }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
        sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
        s.sum[r] = fmaf(s.sum[r], factor[r], sum[r]);
    }
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        s.acc[i][0] *= factor[0], s.acc[i][1] *= factor[0];
        s.acc[i][2] *= factor[1], s.acc[i][3] *= factor[1];
    }
}

/* Adds the products of the probabilities and the warp's half of the values' elements. */
template <int D> static __device__ __forceinline__ void add_values(wide_rows<D> &s, const wide_memory<D> &m) {
    const int lane = threadIdx.x % WARP, pair = threadIdx.x / WARP / 2, half = threadIdx.x / WARP % 2;
#pragma unroll
    for (int c = 0; c < GROUP; c += 16) {
        uint32_t p[4], v[4];
        um_cu_load_matrix(p, &m.weight[pair * 16 + lane % 16][c + lane / 16 * 8]);
#pragma unroll
        for (int n = 0; n < D / 32; n++) {
            um_cu_load_transposed(v,
                                  &m.value[c + lane / 8 % 2 * 8 + lane % 8][half * (D / 2) + n * 16 + lane / 16 * 8]);
            um_cu_multiply_16(s.acc[2 * n], p, v[0], v[1]);
            um_cu_multiply_16(s.acc[2 * n + 1], p, v[2], v[3]);
        }
    }
}

template <int D> static __device__ void write_rows(const wide_rows<D> &s, wide_memory<D> &m, const um_cu_attention &a) {
    const int lane = threadIdx.x % WARP, pair = threadIdx.x / WARP / 2, half = threadIdx.x / WARP % 2;
    const int32_t row = pair * 16 + lane / 4;
    if (lane % 4 == 0)
        for (int r = 0; r < 2; r++) m.most[half][row + 8 * r] = s.sum[r];
    meet_other();
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (s.token[r] < 0) continue;
        const float sum = m.most[0][row + 8 * r] + m.most[1][row + 8 * r], by = sum == 0 ? 0 : __frcp_rn(sum);
        um_bf16 *out =
            (um_bf16 *)a.out + ((size_t)s.token[r] * a.n_heads + s.head[r]) * D + half * (D / 2) + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < D / 16; i++)
            *(__nv_bfloat162 *)(out + i * 8) =
                __floats2bfloat162_rn((s.acc[i][2 * r] + 0.0f) * by, (s.acc[i][2 * r + 1] + 0.0f) * by);
    }
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* Grid: tiles, KV heads, groups of ROWS rows of a tile. */
template <int D> static __global__ void __launch_bounds__(THREADS) attend_wide(const um_cu_batch b, const wide_args w) {
    extern __shared__ __align__(16) char memory[];
    wide_memory<D> &m = *(wide_memory<D> *)memory;
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    const um_message_tile tile = b.tile[blockIdx.x];
    if (tile.n * (w.a.n_heads / w.a.n_kv_heads) <= (int32_t)blockIdx.z * ROWS) return;
    um_message_span span = b.span[tile.span];
    const um_cu_bounds bounds = um_cu_tile_bounds(b, tile, span, w.a.window);
    const int32_t *page = um_cu_page_of(b, span, w.a.window);
    wide_rows<D> s;
    start_rows(s, b, w, tile, span);
    load_queries(m, w, tile);
    span.keys.start = bounds.first;              /* no row of the tile sees a key before */
    const float scale = w.a.scale * 1.44269504f; /* powers of two are used in place of exp */
    const int32_t from = span.keys.start / GROUP * GROUP, to = bounds.most;
    auto find = [&](int32_t first, int which) {
        if (threadIdx.x < GROUP)
            m.place[which][threadIdx.x] = um_cu_find(w.kv, page, span, blockIdx.y, first + (int32_t)threadIdx.x, to);
    };
    find(from, 0);
    __syncthreads();
    fetch<D>(m.key, w.kv.key, m.place[0]);
    fetch<D>(m.value, w.kv.value, m.place[0]);
    for (int32_t first = from, now = 0; first < to; first += GROUP, now ^= 1) {
        float score[2][4];
        um_cu_copies_wait<1>();
        __syncthreads(); /* the keys are there */
        score_keys(m, score);
        find(first + GROUP, now ^ 1); /* none behind the last group is read */
        __syncthreads();              /* all warps are done with the keys */
        fetch<D>(m.key, w.kv.key, m.place[now ^ 1]);
        weigh(s, score, m, span, first, scale);
        um_cu_copies_wait<1>();
        __syncthreads(); /* the values are there, and the probabilities */
        add_values(s, m);
        __syncthreads(); /* all warps are done with the values */
        fetch<D>(m.value, w.kv.value, m.place[now ^ 1]);
    }
    um_cu_copies_wait<0>();
    write_rows(s, m, w.a);
}

/* ---- Launch ------------------------------------------------------------------------------------------------------ */

size_t um_cu_wide_shared(int32_t head_dim) {
    return head_dim == 256 ? sizeof(wide_memory<256>) : head_dim == 512 ? sizeof(wide_memory<512>) : 0;
}

int32_t um_cu_wide_tile_tokens(int32_t group) { return UM_MAX(1, ROWS / group); }

template <int D> static void launch(const um_cu_batch *b, const wide_args *w, cudaStream_t s) {
    const int32_t rows = b->capacity.tile_tokens * (w->a.n_heads / w->a.n_kv_heads);
    const dim3 grid((unsigned)b->capacity.n_tiles, (unsigned)w->a.n_kv_heads, (unsigned)UM_CEIL_DIV(rows, ROWS));
    cudaFuncSetAttribute(attend_wide<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(wide_memory<D>));
    um_cu_start(attend_wide<D>, grid, dim3(THREADS), sizeof(wide_memory<D>), s, *b, *w);
}

void um_cu_attend_wide(const um_cu_batch *b, const um_cu_attention *a, const um_cu_kv *kv, cudaStream_t s) {
    const wide_args w = {*a, um_cu_kv_of(kv, a->layer)};
    assert(w.kv.type == UM_BF16 && a->type == UM_BF16 && um_cu_wide_shared(a->head_dim));
    if (a->head_dim == 256) launch<256>(b, &w, s);
    else launch<512>(b, &w, s);
}
