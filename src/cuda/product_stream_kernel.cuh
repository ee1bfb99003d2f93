/* product_stream: the kernel for products of up to 128 tokens on Hopper GPUs, which are bound by the reading of the
 * weights. product_stream.cu has its instances for bf16, product_stream_fp8.cu and product_stream_blocks.cu those for
 * e4m3.
 *
 * A CTA owns a tile of weight rows over all of their columns, so no partial sums leave it. One thread streams the tile
 * and the activations of the same columns through a ring in shared memory (bulk tensor copies). Two warpgroups
 * multiply: tokens are the M operand of wgmma, weights the N operand, and each warpgroup has half of the rows. A sum
 * runs over the columns in ascending order, 16 at a time, whatever the tile and the number of tokens, so a row of y has
 * the same bits for every T.
 *
 * With F8, weights and activations are e4m3 with a scale for each row of either. The matrix units add such products
 * with fewer bits than fp32 has, so the products of 128 columns are summed there, and these sums are added in fp32. If
 * the weights have factors of blocks, such a sum is multiplied by the factor of its block. The last sum is multiplied
 * by the scale of the token, a power of two, and then by that of the weight row.
 *
 * With `gated` the weights are gate rows above up rows, a tile takes the same rows of both, and y = silu(gate) * up is
 * computed in registers, from gate and up rounded to bf16.
 *
 * Bytes: the weights, 2 * rows * in, or half of that with F8, plus the activations once per CTA from the L2 cache.
 * Operations: 2 * rows * in * T. */
#ifndef UM_CUDA_PRODUCT_STREAM_KERNEL_CUH
#define UM_CUDA_PRODUCT_STREAM_KERNEL_CUH

#include "cuda/mma.cuh"
#include "cuda/product.cuh"
#include "cuda/sizes.h"
#include "cuda/tensor_map.cuh"
#include "cuda/wgmma.cuh"

static constexpr int WARP = 32;
static constexpr int ROW_BYTES = 128; /* of a chunk of a row */
static constexpr int GROUPS = 2;      /* warpgroups that multiply; a warp behind them copies */
static constexpr int THREADS = GROUPS * 128 + WARP;

/* The ring of a kernel with ROWS weight rows per tile and room for TOKENS tokens. A stage holds the same columns of
 * both: the activations of `chunks` chunks, then the weights. */
template <int ROWS, int TOKENS> struct ring_of {
    static constexpr int chunks = TOKENS == 128 ? (ROWS <= 32 ? 2 : 1) : ROWS <= 32 ? 4 : 2;
    /* The M operand has 64 rows. With 32 tokens the other 32 are the bytes that follow in the stage. Their products are
     * not used. */
    static constexpr int x_rows = TOKENS;
    static constexpr int x_chunk = x_rows * ROW_BYTES, w_chunk = ROWS * ROW_BYTES;
    static constexpr int x_bytes = chunks * x_chunk, w_bytes = chunks * w_chunk, bytes = x_bytes + w_bytes;
    static constexpr int stages = 216 * 1024 / bytes < 12 ? 216 * 1024 / bytes : 12;
    /* Stages whose weights are requested before the kernel before has ended. More would delay the first activations. */
    static constexpr int early = UM_MIN(stages, UM_MAX(2, 80 * 1024 / w_bytes));
    static constexpr int blocks = TOKENS > 64 ? TOKENS / 64 : 1;          /* of 64 rows of the M operand */
    static constexpr int shared = stages * bytes + 1024 + 2 * 8 * stages; /* with alignment and barriers */
    static_assert(stages > 2 && shared <= 227 * 1024, "shared memory of a CTA");
    static_assert(x_bytes % 1024 == 0 || TOKENS == 32, "alignment of operands");
    static_assert(x_rows >= 64 || w_bytes >= 32 * ROW_BYTES, "what follows 32 tokens is inside of the stage");
};

typedef struct args {
    void *y;                        /* [T, rows], rows at a distance of `stride` elements */
    const float *w_scale, *x_scale; /* of the weight rows and of the tokens, with F8 */
    const float *w_block;           /* factors of the blocks of the weights, with F8; NULL: none */
    int32_t rows, in, T;            /* rows: of y; with `gated` half of the rows of the weights */
    int32_t stride, n_tiles;
    bool add, wide; /* add to y; y is fp32 */
} args;

/* Columns of a chunk. */
template <bool F8> static constexpr int chunk_columns = ROW_BYTES / (F8 ? 1 : 2);

#ifdef UM_CU_HAS_WGMMA

/* ---- The ring ---------------------------------------------------------------------------------------------------- */

/* Addresses in shared memory. full[i] is completed by the copies of stage i, empty[i] by the warps that have read it.
 */
struct ring {
    uint32_t base, full, empty;
};

/* A place in the stream of stages: the CTA's tiles one after the other, each with n stages. */
template <int STAGES> struct cursor {
    int tile, step = 0, n, at = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ cursor(int first, int n_steps) : tile(first), n(n_steps) {}
    __device__ __forceinline__ void next() {
        if (++step == n) step = 0, tile += gridDim.x;
        if (++at == STAGES) at = 0, parity ^= 1;
    }
};

template <int ROWS, int TOKENS, bool GATED, bool F8>
static __device__ __forceinline__ void copy_weights(const CUtensorMap *map, const args &a, const ring &r, int at,
                                                    int tile, int step) {
    using R = ring_of<ROWS, TOKENS>;
    const uint64_t evict_first = 0x12f0000000000000ull;
    const uint32_t full = r.full + 8 * at, to = r.base + at * R::bytes + R::x_bytes;
    um_cu_barrier_expect(full, R::bytes);
#pragma unroll
    for (int k = 0; k < R::chunks; k++) {
        const int column = (step * R::chunks + k) * chunk_columns<F8>;
        const uint32_t chunk = to + k * R::w_chunk;
        if constexpr (GATED) {
            um_cu_copy_tile(chunk, map, column, tile * (ROWS / 2), full, evict_first);
            um_cu_copy_tile(chunk + R::w_chunk / 2, map, column, a.rows + tile * (ROWS / 2), full, evict_first);
        } else {
            um_cu_copy_tile(chunk, map, column, tile * ROWS, full, evict_first);
        }
    }
}

template <int ROWS, int TOKENS, bool F8>
static __device__ __forceinline__ void copy_tokens(const CUtensorMap *map, const ring &r, int at, int step) {
    using R = ring_of<ROWS, TOKENS>;
    const uint64_t evict_last = 0x14f0000000000000ull;
#pragma unroll
    for (int k = 0; k < R::chunks; k++)
        um_cu_copy_tile(r.base + at * R::bytes + k * R::x_chunk, map, (step * R::chunks + k) * chunk_columns<F8>, 0,
                        r.full + 8 * at, evict_last);
}

/* Fills the ring. One thread runs it. */
template <int ROWS, int TOKENS, bool GATED, bool F8>
static __device__ void stream(const CUtensorMap *w, const CUtensorMap *x, const args &a, const ring &r) {
    using R = ring_of<ROWS, TOKENS>;
    const int n = UM_CEIL_DIV(a.in, chunk_columns<F8> * R::chunks);
    cursor<R::stages> c(blockIdx.x, n);
    int early = 0;
    for (; early < R::early && c.tile < a.n_tiles; early++, c.next())
        copy_weights<ROWS, TOKENS, GATED, F8>(w, a, r, c.at, c.tile, c.step);
    um_cu_wait_for_previous();
    for (int i = 0; i < early; i++) copy_tokens<ROWS, TOKENS, F8>(x, r, i, i % n);
    for (; c.tile < a.n_tiles; c.next()) {
        um_cu_barrier_wait(r.empty + 8 * c.at, c.parity ^ 1);
        copy_weights<ROWS, TOKENS, GATED, F8>(w, a, r, c.at, c.tile, c.step);
        copy_tokens<ROWS, TOKENS, F8>(x, r, c.at, c.step);
    }
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* The sums of a thread: [blocks of 64 tokens][gate, up][columns of the warpgroup]. */
template <int ROWS, int TOKENS, bool GATED> struct sums {
    static constexpr int parts = GATED ? 2 : 1, n = ROWS / GROUPS / parts;
    float v[ring_of<ROWS, TOKENS>::blocks][parts][n / 2];
};

/* um_cu_hold_results for all sums. */
template <int ROWS, int TOKENS, bool GATED> static __device__ __forceinline__ void hold(sums<ROWS, TOKENS, GATED> &s) {
    using S = sums<ROWS, TOKENS, GATED>;
#pragma unroll
    for (int b = 0; b < ring_of<ROWS, TOKENS>::blocks; b++)
#pragma unroll
        for (int p = 0; p < S::parts; p++) um_cu_hold_results<S::n / 2>(s.v[b][p]);
}

/* Starts the products of chunk c of a stage. x, w: the operands in the terms of um_cu_operand_low. With F8 the sums
 * begin at zero. */
template <int ROWS, int TOKENS, bool GATED, bool F8>
static __device__ __forceinline__ void multiply_chunk(sums<ROWS, TOKENS, GATED> &s, int c, uint32_t x, uint32_t w) {
    using R = ring_of<ROWS, TOKENS>;
    using S = sums<ROWS, TOKENS, GATED>;
#pragma unroll
    for (int k = 0; k < ROW_BYTES / 32; k++)
#pragma unroll
        for (int b = 0; b < R::blocks; b++)
#pragma unroll
            for (int p = 0; p < S::parts; p++) {
                const uint32_t x_at = x + (c * R::x_chunk + b * 64 * ROW_BYTES + k * 32) / 16;
                const uint32_t w_at = w + (c * R::w_chunk + p * R::w_chunk / 2 + k * 32) / 16;
                if (F8 && k == 0) um_cu_multiply<S::n, true, false>(s.v[b][p], x_at, w_at);
                else um_cu_multiply<S::n, F8, true>(s.v[b][p], x_at, w_at);
            }
}

/* The factors of the blocks in the rows of a warpgroup, for gate and up. */
template <int PARTS> struct factors {
    const float *low[PARTS], *high[PARTS]; /* of the first row, and of the row of blocks below */
    int change[PARTS];                     /* groups of 8 rows before the row of blocks below */
};

template <int ROWS, int TOKENS, bool GATED>
static __device__ __forceinline__ factors<sums<ROWS, TOKENS, GATED>::parts> find_factors(const args &a, int tile,
                                                                                         int group) {
    using S = sums<ROWS, TOKENS, GATED>;
    const int stride = um_cu_block_stride(a.in), last = (S::parts * a.rows - 1) / UM_CU_BLOCK;
    factors<S::parts> f = {};
#pragma unroll
    for (int p = 0; p < S::parts; p++) {
        const int first = tile * (ROWS / S::parts) + group * S::n + p * a.rows, block = min(first / UM_CU_BLOCK, last);
        f.low[p] = a.w_block + (size_t)block * stride;
        f.high[p] = f.low[p] + (block < last ? stride : 0);
        f.change[p] = (UM_CU_BLOCK - first % UM_CU_BLOCK) / 8;
    }
    return f;
}

/* Adds the products of a stage, in fp32 chunk by chunk. column: number of its first chunk. Returns when the stage has
 * been read. */
template <int ROWS, int TOKENS, bool GATED, bool BLOCKS>
static __device__ __forceinline__ void add_stage_f8(sums<ROWS, TOKENS, GATED> &s, uint32_t x, uint32_t w,
                                                    const factors<sums<ROWS, TOKENS, GATED>::parts> &f, int column) {
    using R = ring_of<ROWS, TOKENS>;
    using S = sums<ROWS, TOKENS, GATED>;
    S chunk = {};
#pragma unroll
    for (int c = 0; c < R::chunks; c++) {
        um_cu_products_begin();
        multiply_chunk<ROWS, TOKENS, GATED, true>(chunk, c, x, w);
        um_cu_products_commit();
        float low[S::parts], high[S::parts];
#pragma unroll
        for (int p = 0; p < S::parts; p++) {
            low[p] = BLOCKS ? f.low[p][column + c] : 1;
            high[p] = BLOCKS ? f.high[p][column + c] : 1;
        }
        um_cu_products_wait<0>();
        hold(chunk);
#pragma unroll
        for (int b = 0; b < R::blocks; b++)
#pragma unroll
            for (int p = 0; p < S::parts; p++)
#pragma unroll
                for (int i = 0; i < S::n / 2; i++) {
                    const float by = i / 4 < f.change[p] ? low[p] : high[p];
                    s.v[b][p][i] = BLOCKS ? fmaf(chunk.v[b][p][i], by, s.v[b][p][i]) : s.v[b][p][i] + chunk.v[b][p][i];
                }
    }
}

/* Starts the products of a stage. */
template <int ROWS, int TOKENS, bool GATED>
static __device__ __forceinline__ void add_stage(sums<ROWS, TOKENS, GATED> &s, uint32_t x, uint32_t w) {
    um_cu_products_begin();
#pragma unroll
    for (int c = 0; c < ring_of<ROWS, TOKENS>::chunks; c++) multiply_chunk<ROWS, TOKENS, GATED, false>(s, c, x, w);
    um_cu_products_commit();
}

static __device__ __forceinline__ float silu_times_up(float gate, float up) {
    const float g = __bfloat162float(__float2bfloat16_rn(gate)), u = __bfloat162float(__float2bfloat16_rn(up));
    return g / (1 + expf(-g)) * u;
}

/* Multiplies the sums of two adjacent weight rows by their scales. first: the rows of the weights before those of this
 * part. */
static __device__ __forceinline__ void scale_pair(const args &a, int first, int row, float x_scale, float v[2]) {
    if (row >= a.rows) return;
    const float2 w_scale = *(const float2 *)(a.w_scale + first + row); /* row and a.rows are even */
    v[0] = v[0] * x_scale * w_scale.x, v[1] = v[1] * x_scale * w_scale.y;
}

/* Stores two adjacent elements of y. */
static __device__ __forceinline__ void store_pair(const args &a, int token, int row, float v0, float v1) {
    const size_t at = (size_t)token * a.stride + row;
    if (token >= a.T || row >= a.rows) return; /* rows is even */
    if (a.wide) {
        float2 *to = (float2 *)((float *)a.y + at);
        const float2 before = a.add ? *to : make_float2(0, 0);
        *to = a.add ? make_float2(before.x + v0, before.y + v1) : make_float2(v0, v1);
        return;
    }
    __nv_bfloat162 *to = (__nv_bfloat162 *)((um_bf16 *)a.y + at);
    if (a.add) v0 += __bfloat162float(to->x), v1 += __bfloat162float(to->y);
    *to = __floats2bfloat162_rn(v0, v1);
}

template <int ROWS, int TOKENS, bool GATED, bool F8>
static __device__ __forceinline__ void store_tile(const args &a, int tile, int group,
                                                  const sums<ROWS, TOKENS, GATED> &s) {
    using S = sums<ROWS, TOKENS, GATED>;
    const int thread = threadIdx.x % 128, first = thread / WARP * 16 + thread % WARP / 4;
    const int row = tile * (ROWS / S::parts) + group * S::n + thread % 4 * 2;
#pragma unroll
    for (int b = 0; b < ring_of<ROWS, TOKENS>::blocks; b++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int token = b * 64 + first + half * 8;
            const float x_scale = F8 && token < a.T ? a.x_scale[token] : 1;
#pragma unroll
            for (int j = 0; j < S::n / 8; j++) {
                float v[S::parts][2];
#pragma unroll
                for (int p = 0; p < S::parts; p++) {
                    v[p][0] = s.v[b][p][4 * j + 2 * half], v[p][1] = s.v[b][p][4 * j + 2 * half + 1];
                    if constexpr (F8) scale_pair(a, p * a.rows, row + 8 * j, x_scale, v[p]);
                }
                if constexpr (GATED) {
                    v[0][0] = silu_times_up(v[0][0], v[S::parts - 1][0]);
                    v[0][1] = silu_times_up(v[0][1], v[S::parts - 1][1]);
                }
                store_pair(a, token, row + 8 * j, v[0][0], v[0][1]);
            }
        }
}

/* Computes the CTA's tiles. In bf16 a stage is released when the products after it have started, so that the matrix
 * units never wait for a release. */
template <int ROWS, int TOKENS, bool GATED, bool F8, bool BLOCKS>
static __device__ void multiply_tiles(const args &a, const ring &r, int group) {
    using R = ring_of<ROWS, TOKENS>;
    using S = sums<ROWS, TOKENS, GATED>;
    const bool releases = threadIdx.x % WARP == 0;
    cursor<R::stages> c(blockIdx.x, UM_CEIL_DIV(a.in, chunk_columns<F8> * R::chunks));
    const uint32_t x = um_cu_operand_low(r.base), w = um_cu_operand_low(r.base + R::x_bytes + group * S::n * ROW_BYTES);
    while (c.tile < a.n_tiles) {
        const int tile = c.tile;
        int last = -1; /* stage to release */
        S s = {};
        factors<S::parts> f = {};
        if constexpr (BLOCKS) f = find_factors<ROWS, TOKENS, GATED>(a, tile, group);
        do {
            const uint32_t stage = c.at * (R::bytes / 16);
            um_cu_barrier_wait(r.full + 8 * c.at, c.parity);
            if constexpr (F8) {
                add_stage_f8<ROWS, TOKENS, GATED, BLOCKS>(s, x + stage, w + stage, f, c.step * R::chunks);
                if (releases) um_cu_barrier_arrive(r.empty + 8 * c.at);
            } else {
                add_stage<ROWS, TOKENS, GATED>(s, x + stage, w + stage);
                um_cu_products_wait<1>();
                if (releases && last >= 0) um_cu_barrier_arrive(r.empty + 8 * last);
                last = c.at;
            }
            c.next();
        } while (c.step);
        if constexpr (!F8) {
            um_cu_products_wait<0>();
            hold(s);
            if (releases) um_cu_barrier_arrive(r.empty + 8 * last);
        }
        store_tile<ROWS, TOKENS, GATED, F8>(a, tile, group, s);
    }
}

#endif

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* Grid: at most one CTA per multiprocessor. Shared memory: the stages, aligned to 1024 bytes, and the barriers. */
template <int ROWS, int TOKENS, bool GATED, bool F8, bool BLOCKS>
static __global__ void __launch_bounds__(THREADS, 1)
    stream_kernel(const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap x, args a) {
#ifdef UM_CU_HAS_WGMMA
    using R = ring_of<ROWS, TOKENS>;
    extern __shared__ char shared[];
    const uint32_t start = ((uint32_t)__cvta_generic_to_shared(shared) + 1023) & ~1023u;
    const ring r = {start, start + R::stages * R::bytes, start + R::stages * (R::bytes + 8)};
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); /* the same in all lanes, as the compiler sees */
    if (threadIdx.x == 0) {
        for (int i = 0; i < R::stages; i++)
            um_cu_barrier_init(r.full + 8 * i, 1), um_cu_barrier_init(r.empty + 8 * i, GROUPS * 4);
        um_cu_barriers_ready();
    }
    __syncthreads();
    um_cu_let_next_start();
    if (group == GROUPS) {
        if (threadIdx.x == GROUPS * 128) stream<ROWS, TOKENS, GATED, F8>(&w, &x, a, r);
    } else {
        um_cu_wait_for_previous();
        multiply_tiles<ROWS, TOKENS, GATED, F8, BLOCKS>(a, r, group);
    }
#endif
}

/* ---- Launch ------------------------------------------------------------------------------------------------------ */

template <int ROWS, int TOKENS, bool GATED, bool F8, bool BLOCKS>
static cudaError_t start(const um_cu_stream *p, int n_processors, cudaStream_t s) {
    using R = ring_of<ROWS, TOKENS>;
    const int32_t w_rows = GATED ? 2 * p->rows : p->rows;
    const args a = {p->y,
                    p->w_scale,
                    p->x_scale,
                    p->w_block,
                    p->rows,
                    p->in,
                    p->T,
                    p->stride,
                    UM_CEIL_DIV(w_rows, ROWS),
                    p->add,
                    p->out_type == UM_F32};
    CUtensorMap w, x;
    if (!um_cu_describe(&w, F8 ? 1 : 2, p->w, w_rows, p->in, p->in, GATED ? ROWS / 2 : ROWS) ||
        !um_cu_describe(&x, F8 ? 1 : 2, p->x, p->T, p->in, p->x_stride, R::x_rows))
        return cudaErrorNotSupported;
    const auto kernel = stream_kernel<ROWS, TOKENS, GATED, F8, BLOCKS>;
    const cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, R::shared);
    if (e != cudaSuccess) return e;
    return um_cu_start(kernel, dim3((unsigned)UM_MIN(a.n_tiles, n_processors)), dim3(THREADS), R::shared, s, w, x, a);
}

/* BLOCKS: weights in e4m3 with factors of blocks. */
template <int ROWS, bool GATED, bool F8, bool BLOCKS = false>
static cudaError_t start_rows(const um_cu_stream *p, int n, cudaStream_t s) {
    if (p->T <= 32) return start<ROWS, 32, GATED, F8, BLOCKS>(p, n, s);
    if (p->T <= 64) return start<ROWS, 64, GATED, F8, BLOCKS>(p, n, s);
    return start<ROWS, 128, GATED, F8, BLOCKS>(p, n, s);
}

#endif
