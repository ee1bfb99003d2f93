/* The products of experts with long lists, on Hopper GPUs. Weights are the first operand of wgmma and pairs the second,
 * so that a list is padded by a few pairs only.
 *
 * A CTA computes items: 128 rows of an expert's weights, 64 for each of its warpgroups, for a chunk of the expert's
 * pairs. The chunks of a list are of equal size. Weights and rows of x arrive by copies of 16 bytes in a ring of stages
 * of 64 columns. The results go through the ring to stores of 16 bytes. Two CTAs share a multiprocessor: while one
 * copies or stores, the other multiplies.
 *
 * A sum runs over the columns in ascending order, 16 at a time, and has the bits of the kernel in moe.cu.
 *
 * Bytes: the weights once from HBM, and x once for each tile of rows from the L2 cache. */
#include "cuda/mma.cuh"
#include "cuda/moe.cuh"
#include "cuda/wgmma.cuh"

typedef um_cu_expert_product product;

enum {
    WARP = 32,
    GROUPS = 2, /* warpgroups of a CTA */
    THREADS = GROUPS * 128,
    GROUP_ROWS = 64, /* of a warpgroup; with gate and up, half of them are up rows */
    ROWS = GROUPS * GROUP_ROWS,
    PAIRS_MAX = 144, /* of a chunk */
    EXPERTS_MAX = 1024,
    ROW_BYTES = 128,            /* of a row in a stage, in 8 pieces of 16 bytes, swizzled for wgmma */
    W_BYTES = ROWS * ROW_BYTES, /* the pairs of a stage follow its weights */
    RING_BYTES = 3 * (W_BYTES + PAIRS_MAX * ROW_BYTES)
};

/* Results of an item for each pair. */
template <bool GATED> static constexpr int n_results = GATED ? ROWS / 2 : ROWS;
/* Bytes between the results of two pairs in shared memory, at which neither they nor the stores have bank conflicts. */
template <bool GATED> static constexpr int pitch = n_results<GATED> * 2 + 16;
static_assert(PAIRS_MAX * pitch<false> <= RING_BYTES, "the ring has room for the results");

/* Bytes of a stage with N pairs, and number of stages. */
template <int N> static constexpr int stage_bytes = W_BYTES + N *ROW_BYTES;
template <int N> static constexpr int n_stages = UM_MIN(RING_BYTES / stage_bytes<N>, 5);

/* An item of work. */
typedef struct item {
    const char *w;       /* the expert's weights */
    const int32_t *pair; /* [n_pairs] pairs of the chunk */
    int32_t n_pairs;
    int32_t tile; /* number of the tile of rows */
} item;

typedef struct state {
    int32_t end[EXPERTS_MAX]; /* chunks of the experts up to and including this */
    int32_t pair[PAIRS_MAX];  /* of the item */
    float weight[PAIRS_MAX];  /* of its pairs; unused with gate and up */
} state;

#ifdef UM_CU_HAS_WGMMA

/* ---- The list of items ------------------------------------------------------------------------------------------- */

/* Counts the chunks of all experts. */
static __device__ void count_chunks(const int32_t *count, int n_experts, int32_t *end) {
    for (int e = threadIdx.x; e < n_experts; e += blockDim.x) end[e] = UM_CEIL_DIV(count[e], PAIRS_MAX);
    __syncthreads();
    if (threadIdx.x < WARP) {
        int32_t before = 0;
        for (int first = 0; first < n_experts; first += WARP) {
            const int e = first + threadIdx.x;
            int32_t n = e < n_experts ? end[e] : 0;
#pragma unroll
            for (int d = 1; d < WARP; d *= 2) {
                const int32_t below = __shfl_up_sync(0xffffffffu, n, d);
                if ((int)threadIdx.x >= d) n += below;
            }
            if (e < n_experts) end[e] = before + n;
            before += __shfl_sync(0xffffffffu, n, WARP - 1);
        }
    }
    __syncthreads();
}

/* Finds an item: experts in ascending order, then tiles of rows, then chunks, so that the CTAs that run at the same
 * time share weights and rows of x in the L2 cache. */
static __device__ item item_of(const product &p, const int32_t *end, int n_experts, int n_tiles, int at) {
    int low = 0, high = n_experts - 1;
    const int chunk_at = at / n_tiles;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (end[middle] > chunk_at) high = middle;
        else low = middle + 1;
    }
    const int before = low ? end[low - 1] : 0, n_chunks = end[low] - before, i = at - before * n_tiles;
    const int count = p.count[low], chunk = i % n_chunks, from = count * chunk / n_chunks;
    item t;
    t.w = (const char *)p.w[low];
    t.pair = p.pair + (size_t)low * p.n_tokens + from;
    t.n_pairs = count * (chunk + 1) / n_chunks - from;
    t.tile = i / n_chunks;
    return t;
}

/* ---- Copies ------------------------------------------------------------------------------------------------------ */

/* The copies of a thread: a piece of every 16th row per warpgroup. With gate and up, 16 rows of a stage are 8 gate rows
 * and the up rows of the same numbers. */
template <bool GATED, int N> struct copies {
    static constexpr int step = 16 * GROUPS, n_w = ROWS / step, n_x = UM_CEIL_DIV(N, step);
    const char *w, *x;
    uint32_t row[n_x];        /* rows of x */
    uint32_t to;              /* place of the first row in a stage */
    int32_t w_step;           /* bytes between two rows of weights */
    int32_t w_there, x_there; /* rows of weights that exist, and of x that are wanted */
    int32_t bytes, at;        /* of a row; of the piece in it */

    __device__ __forceinline__ copies(const product &p, const item &t) {
        const int s = threadIdx.x / 8, piece = threadIdx.x % 8;
        const int first = GATED ? t.tile * (ROWS / 2) + s / 16 * 8 + s % 8 : t.tile * ROWS + s;
        const int w_rows = GATED ? step / 2 : step;
        bytes = p.in * 2;
        at = piece * 16;
        to = s * ROW_BYTES + ((piece ^ (s & 7)) << 4);
        w = t.w + (size_t)(first + (GATED && s % 16 >= 8 ? p.n : 0)) * bytes;
        w_step = w_rows * bytes;
        w_there = first < p.n ? UM_CEIL_DIV(p.n - first, w_rows) : 0;
        x_there = s < t.n_pairs ? UM_CEIL_DIV(t.n_pairs - s, step) : 0;
        x = (const char *)p.x;
#pragma unroll
        for (int i = 0; i < n_x; i++) {
            row[i] = 0;
            if (i < x_there) row[i] = GATED ? t.pair[s + step * i] / p.top_k : t.pair[s + step * i];
        }
    }
    /* Rows that do not exist, and columns beyond the rows, become 0. */
    __device__ __forceinline__ void start(int number, uint32_t stage) const {
        const int k = number * ROW_BYTES + at;
        const bool inside = k < bytes;
#pragma unroll
        for (int i = 0; i < n_w; i++)
            um_cu_copy16(stage + to + i * step * ROW_BYTES, w + (size_t)i * w_step + k, inside && i < w_there);
#pragma unroll
        for (int i = 0; i < n_x; i++)
            if (N % step == 0 || i + 1 < n_x || (int)threadIdx.x / 8 + step * i < N)
                um_cu_copy16(stage + W_BYTES + to + i * step * ROW_BYTES, x + (size_t)row[i] * bytes + k,
                             inside && i < x_there);
    }
};

/* Makes the copies of this thread that have arrived visible to wgmma. */
static __device__ __forceinline__ void copies_visible() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* ---- Stores ------------------------------------------------------------------------------------------------------ */

static __device__ __forceinline__ uint32_t bf16_pair(float low, float high) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&both;
}

/* Writes results of the pairs [8 j, 8 j + 16) to shared memory. Four sums of a thread belong to two adjacent pairs.
 * With gate and up they are a gate row and the up row of the same number; else they are a row of the warp's 16 and the
 * row 8 below. */
template <bool GATED>
static __device__ __forceinline__ void write_results(const product &p, const state &s, int j, uint32_t ring,
                                                     const float *sum) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    uint32_t v[GATED ? 2 : 4];
    if constexpr (GATED) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float *c = sum + 4 * (j + i);
            v[i] = bf16_pair(um_cu_activate(p.act, c[0]) * c[2], um_cu_activate(p.act, c[1]) * c[3]);
        }
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(
                         ring + (8 * j + lane % 16) * pitch<true> + warp * 16),
                     "r"(v[0]), "r"(v[1])
                     : "memory");
    } else {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float *c = sum + 4 * (j + i);
            const float2 by = *(const float2 *)(s.weight + 8 * (j + i) + lane % 4 * 2);
            v[2 * i] = bf16_pair(c[0] * by.x, c[1] * by.y);
            v[2 * i + 1] = bf16_pair(c[2] * by.x, c[3] * by.y);
        }
        const int pair = 8 * j + lane / 16 * 8 + lane % 8;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                         ring + pair * pitch<false> + warp * 32 + lane / 8 % 2 * 16),
                     "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                     : "memory");
    }
}

/* Stores the results of an item. */
template <bool GATED, int N>
static __device__ __forceinline__ void store(const product &p, const item &t, const state &s, uint32_t ring,
                                             const float *sum) {
    constexpr int PIECES = n_results<GATED> / 8;
#pragma unroll
    for (int j = 0; j < N / 8; j += 2) write_results<GATED>(p, s, j, ring, sum);
    __syncthreads();
    const int piece = threadIdx.x % PIECES, row = t.tile * n_results<GATED> + piece * 8;
    if (row >= p.n) return;
#pragma unroll 4
    for (int i = threadIdx.x / PIECES; i < t.n_pairs; i += THREADS / PIECES)
        *(uint4 *)((um_bf16 *)p.y + (size_t)s.pair[i] * p.n + row) =
            um_cu_load_sixteen(ring + i * pitch<GATED> + piece * 16);
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* Computes an item of at most N pairs. While the products of a stage run, the copies of a later stage start into the
 * one that was read before. */
template <bool GATED, int N>
static __device__ __forceinline__ void compute(const product &p, const item &t, state *s, uint32_t ring) {
    constexpr int S = n_stages<N>, BYTES = stage_bytes<N>;
    const int n_steps = UM_CEIL_DIV(p.in * 2, ROW_BYTES);
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    const copies<GATED, N> c(p, t);
    float sum[N / 2] = {};
#pragma unroll
    for (int i = 0; i < S - 1; i++) {
        if (i < n_steps) c.start(i, ring + i * BYTES);
        um_cu_copies_commit();
    }
    if ((int)threadIdx.x < t.n_pairs) {
        s->pair[threadIdx.x] = t.pair[threadIdx.x];
        if constexpr (!GATED) s->weight[threadIdx.x] = p.weight[t.pair[threadIdx.x]];
    }
    const uint32_t w_low = um_cu_operand_low(ring + group * GROUP_ROWS * ROW_BYTES);
    const uint32_t x_low = um_cu_operand_low(ring + W_BYTES);
    for (int i = 0, now = 0, next = S - 1; i < n_steps; i++) {
        um_cu_copies_wait<S - 2>();
        copies_visible();
        um_cu_products_wait<0>();
        __syncthreads(); /* step i has arrived for all warps, and all products of step i - 1 have ended */
        const uint32_t stage = now * (BYTES / 16);
        um_cu_products_begin();
#pragma unroll
        for (int k = 0; k < ROW_BYTES / 32; k++)
            um_cu_multiply<N, false, true>(sum, w_low + stage + k * 2, x_low + stage + k * 2);
        um_cu_products_commit();
        if (i + S - 1 < n_steps) c.start(i + S - 1, ring + next * BYTES);
        um_cu_copies_commit();
        now = now + 1 == S ? 0 : now + 1;
        next = next + 1 == S ? 0 : next + 1;
    }
    um_cu_products_wait<0>();
    um_cu_hold_results<N / 2>(sum);
    __syncthreads(); /* the ring is free */
    store<GATED, N>(p, t, *s, ring, sum);
    __syncthreads();
}

#endif

template <bool GATED>
static __global__ void __launch_bounds__(THREADS, 2) tiles_kernel(product p, int n_experts, int n_tiles) {
#ifdef UM_CU_HAS_WGMMA
    extern __shared__ char shared[];
    __shared__ state s;
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    const uint32_t ring = ((uint32_t)__cvta_generic_to_shared(shared) + 1023) & ~1023u;
    count_chunks(p.count, n_experts, s.end);
    const int n_items = s.end[n_experts - 1] * n_tiles;
    for (int at = blockIdx.x; at < n_items; at += gridDim.x) {
        const item t = item_of(p, s.end, n_experts, n_tiles, at);
        if (t.n_pairs <= 32) compute<GATED, 32>(p, t, &s, ring);
        else if (t.n_pairs <= 64) compute<GATED, 64>(p, t, &s, ring);
        else if (t.n_pairs <= 96) compute<GATED, 96>(p, t, &s, ring);
        else if (t.n_pairs <= 128) compute<GATED, 128>(p, t, &s, ring);
        else compute<GATED, 144>(p, t, &s, ring);
    }
#endif
}

bool um_cu_expert_tiles_suit(const um_cu_expert_product *p, int32_t n_experts) {
    cudaFuncAttributes kernel; /* only code for Hopper GPUs has the state in shared memory */
    return n_experts <= EXPERTS_MAX && p->in % 8 == 0 && p->n % 8 == 0 &&
           cudaFuncGetAttributes(&kernel, tiles_kernel<true>) == cudaSuccess && kernel.sharedSizeBytes > 0;
}

template <bool GATED> static void start(const product *p, int32_t n_experts, cudaStream_t s) {
    enum { SHARED = RING_BYTES + 1024 };
    const int n_tiles = UM_CEIL_DIV(p->n, ROWS / (GATED ? 2 : 1));
    int device = 0, n_processors = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n_processors, cudaDevAttrMultiProcessorCount, device);
    cudaFuncSetAttribute(tiles_kernel<GATED>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    um_cu_start(tiles_kernel<GATED>, dim3(2 * n_processors), dim3(THREADS), SHARED, s, *p, n_experts, n_tiles);
}

void um_cu_expert_tiles(const um_cu_expert_product *p, int32_t n_experts, bool gated, cudaStream_t s) {
    if (gated) start<true>(p, n_experts, s);
    else start<false>(p, n_experts, s);
}
