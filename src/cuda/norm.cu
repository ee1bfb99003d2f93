/* norm: norms of rows. The results of all ranks, or the outputs of experts, can be added to the rows first, in the same
 * kernel. The rate of the memory limits these kernels; with few rows the time to start them does. */
#include <type_traits>

#include "cuda/fp8.cuh"
#include "cuda/ranks.cuh"
#include "cuda/route.cuh"
#include "cuda/rows.cuh"

enum { NORM_BLOCKS_MAX = 396 }; /* as many as an H200 runs at a time for rows of 4096 elements */
static_assert((int)NORM_BLOCKS_MAX <= (int)UM_CU_MEET_BLOCKS, "the blocks of a norm can meet");

/* ---- Norms ------------------------------------------------------------------------------------------------------- */

/* Grid: a block for each row. A thread keeps its first chunk of x and of w in registers. It reads further chunks, of
 * rows wider than 1024 chunks, from the cache again. y32 may be x. */
template <typename E, int W>
static __global__ void __launch_bounds__(1024)
    norm_kernel(const float *x, const float *w, const float *bias, float eps, int32_t H, E *y, float *y32) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    const int32_t first = threadIdx.x * W, step = blockDim.x * W;
    const size_t row = (size_t)blockIdx.x * H;
    float mine[W] = {}, scale[W] = {}, v[W], mean = 0, square = 0;
    x += row;
    if (first < H) {
        load<W>(x + first, mine);
        load<W>(w + first, scale);
    }
    if (bias) {
        float sum = 0;
#pragma unroll
        for (int j = 0; j < W; j++) sum += mine[j];
        for (int32_t i = first + step; i < H; i += step) {
            load<W>(x + i, v);
#pragma unroll
            for (int j = 0; j < W; j++) sum += v[j];
        }
        mean = block_sum(sum) / (float)H;
    }
    if (first < H) {
#pragma unroll
        for (int j = 0; j < W; j++) square += (mine[j] - mean) * (mine[j] - mean);
    }
    for (int32_t i = first + step; i < H; i += step) {
        load<W>(x + i, v);
#pragma unroll
        for (int j = 0; j < W; j++) square += (v[j] - mean) * (v[j] - mean);
    }
    const float r = 1 / sqrtf(block_sum(square) / (float)H + eps);
    for (int32_t i = first; i < H; i += step) {
        if (i != first) {
            load<W>(x + i, mine);
            load<W>(w + i, scale);
        }
#pragma unroll
        for (int j = 0; j < W; j++) v[j] = (mine[j] - mean) * r * scale[j] + (bias ? bias[i + j] : 0);
        if (y) store<W>(y + row + i, v);
        if (y32) store<W>(y32 + row + i, v);
    }
}

/* Rounds a thread's chunk of a row as um_cu_quantize would round it in bf16: v becomes the input of
 * um_cu_store_codes. Returns the row's scale. All threads of the block call it. */
static __device__ __forceinline__ float code_chunk(float v[CHUNK], bool has_chunk, float *part) {
    float most = 0;
#pragma unroll
    for (int j = 0; j < CHUNK; j++) {
        v[j] = __bfloat162float(__float2bfloat16_rn(v[j]));
        if (has_chunk) most = um_cu_larger(most, fabsf(v[j]));
    }
    const float by = um_cu_power_scale(um_cu_block_most(most, part)), inverse = 1 / by;
#pragma unroll
    for (int j = 0; j < CHUNK; j++) v[j] *= inverse;
    return by;
}

/* Returns in v the norm of a row, of which the thread has the chunk x. All threads of the block call it. */
static __device__ __forceinline__ void norm_chunk(const float x[CHUNK], const float scale[CHUNK], float eps, int32_t H,
                                                  float v[CHUNK]) {
    float square = 0;
#pragma unroll
    for (int j = 0; j < CHUNK; j++) square += x[j] * x[j];
    const float r = 1 / sqrtf(block_sum(square) / (float)H + eps);
#pragma unroll
    for (int j = 0; j < CHUNK; j++) v[j] = x[j] * r * scale[j];
}

/* Adds to v the outputs of a token's experts, W elements from element `first` on, in ascending order of the experts. */
template <typename E, int W>
static __device__ __forceinline__ void add_outputs(const um_cu_pairs &p, int32_t t, int32_t first, int32_t H,
                                                   float v[W]) {
    const E *out = (const E *)p.out + (size_t)t * p.top_k * H + first;
    const int2 own = um_cu_own_pairs(p, t);
#pragma unroll 8
    for (int k = own.x; k < own.y; k++) {
        float one[W];
        load<W>(out + (size_t)k * H, one);
#pragma unroll
        for (int j = 0; j < W; j++) v[j] += one[j];
    }
}

/* The results of all ranks, of type P, which are on this device (um_cu_partials with at.comm). Their loads take fewer
 * registers than those of other devices' memory, so more blocks run at a time. */
template <typename P> struct near_parts {
    const P *part[UM_RANKS_MAX];
    int32_t n;
};

/* A kernel adds one of four types of values to x before it computes the norm: nothing, um_cu_partials or near_parts
 * (the results of all ranks) or um_cu_pairs (the outputs of experts). await_more waits until the values can be read;
 * all threads of a block call it. add_more adds to v the values of a chunk, which begins at element `first` of row t.
 */
typedef struct nothing {
} nothing;

static __device__ __forceinline__ void await_more(const nothing &) {}
static __device__ __forceinline__ void await_more(const um_cu_partials &p) { um_cu_await_parts(p); }
template <typename P> static __device__ __forceinline__ void await_more(const near_parts<P> &) {}
static __device__ __forceinline__ void await_more(const um_cu_pairs &) {}

template <typename E>
static __device__ __forceinline__ void add_more(const um_cu_partials &p, int32_t t, int32_t first, int32_t H,
                                                float v[CHUNK]) {
    float sum[CHUNK] = {};
    um_cu_add_parts(p, (size_t)t * H + first, sum);
#pragma unroll
    for (int j = 0; j < CHUNK; j++) v[j] += sum[j];
}

template <typename E, typename P>
static __device__ __forceinline__ void add_more(const near_parts<P> &p, int32_t t, int32_t first, int32_t H,
                                                float v[CHUNK]) {
    constexpr int LOADS = sizeof(P) / 2;
    const size_t at = (size_t)t * H + first;
    float sum[CHUNK] = {};
#pragma unroll 2
    for (int r = 0; r < p.n; r++) {
        const uint4 *from = (const uint4 *)(p.part[r] + at);
        uint4 raw[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; k++) raw[k] = from[k];
        um_cu_add_loaded(raw, P(), sum);
    }
#pragma unroll
    for (int j = 0; j < CHUNK; j++) v[j] += sum[j];
}

template <typename E>
static __device__ __forceinline__ void add_more(const um_cu_pairs &p, int32_t t, int32_t first, int32_t H,
                                                float v[CHUNK]) {
    if (t < um_cu_header(p.b)->n_tokens) add_outputs<E, CHUNK>(p, t, first, H, v); /* padding has no outputs */
}

/* Values that are so many that a block's loads of a next row would not start earlier: a block has one row. */
template <typename M> static constexpr bool has_one_row = false;
template <> constexpr bool has_one_row<um_cu_pairs> = true;
template <typename P> static constexpr bool has_one_row<near_parts<P>> = true;

/* Loads a thread's chunk of a row of x, to which `more` is added first. E is the type of the outputs of experts. */
template <typename E, typename M>
static __device__ __forceinline__ void load_row(float *x, const M &more, int32_t t, int32_t first, int32_t H,
                                                float v[CHUNK]) {
    float *at = x + (size_t)t * H + first;
    load<CHUNK>(at, v);
    if constexpr (!std::is_same_v<M, nothing>) {
        add_more<E>(more, t, first, H, v);
        store<CHUNK>(at, v);
    }
}

/* The same without bias, for rows of at most 1024 chunks: a thread has one chunk of each row of its block. While a row
 * is computed, the block's next row arrives, unless a block has one row only (has_one_row). */
template <typename E, typename M>
static __global__ void __launch_bounds__(1024)
    norm_rows_kernel(float *x, const M more, const float *w, float eps, int32_t n, int32_t H, E *y, float *y32,
                     um_cu_coded coded) {
    __shared__ float most[WARPS_MAX];
    const int32_t first = threadIdx.x * CHUNK;
    const bool has_chunk = first < H;
    float mine[CHUNK] = {}, next[CHUNK] = {}, scale[CHUNK] = {}, v[CHUNK];
    um_cu_let_next_start();
    if (has_chunk) load<CHUNK>(w + first, scale);
    um_cu_wait_for_previous();
    await_more(more);
    if (has_chunk) load_row<E>(x, more, blockIdx.x, first, H, mine);
    for (int32_t t = blockIdx.x; t < n; t += gridDim.x) {
        const size_t at = (size_t)t * H + first;
        if (!has_one_row<M> && has_chunk && t + (int32_t)gridDim.x < n)
            load_row<E>(x, more, t + (int32_t)gridDim.x, first, H, next);
        norm_chunk(mine, scale, eps, H, v);
#pragma unroll
        for (int j = 0; j < CHUNK; j++) mine[j] = next[j];
        if (has_chunk && y) store<CHUNK>(y + at, v);
        if (has_chunk && y32) store<CHUNK>(y32 + at, v);
        if (!coded.code) continue;
        const float by = code_chunk(v, has_chunk, most);
        if (has_chunk) um_cu_store_codes(coded.code + at, v);
        if (threadIdx.x == 0) coded.scale[t] = by;
    }
}

/* Exchanges the chunks of a warp, of 32 neighbouring chunks: lane i gets the quarters i and 32 + i of 64, in the order
 * of the row. Stores of these write whole lines, which other GPUs need. All lanes call it. */
static __device__ __forceinline__ void to_quarters(const float v[CHUNK], float4 quarter[2]) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const int from = (k * WARP + lane) / 2;
        float a[CHUNK / 2], b[CHUNK / 2];
#pragma unroll
        for (int j = 0; j < CHUNK / 2; j++) {
            a[j] = __shfl_sync(0xffffffffu, v[j], from);
            b[j] = __shfl_sync(0xffffffffu, v[CHUNK / 2 + j], from);
        }
        quarter[k] = lane % 2 ? make_float4(b[0], b[1], b[2], b[3]) : make_float4(a[0], a[1], a[2], a[3]);
    }
}

/* The inverse of to_quarters. All lanes call it. */
static __device__ __forceinline__ void from_quarters(const float4 quarter[2], float v[CHUNK]) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int from = (2 * lane + half) % WARP;
        float4 q[2];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            q[k].x = __shfl_sync(0xffffffffu, quarter[k].x, from);
            q[k].y = __shfl_sync(0xffffffffu, quarter[k].y, from);
            q[k].z = __shfl_sync(0xffffffffu, quarter[k].z, from);
            q[k].w = __shfl_sync(0xffffffffu, quarter[k].w, from);
        }
        const float4 own = lane < WARP / 2 ? q[0] : q[1];
        v[4 * half] = own.x, v[4 * half + 1] = own.y, v[4 * half + 2] = own.z, v[4 * half + 3] = own.w;
    }
}

/* Returns the first of a thread's two quarters of a row; the other one is WARP further. */
static __device__ __forceinline__ int32_t first_quarter(void) {
    return (int32_t)(threadIdx.x / WARP * WARP * 2 + threadIdx.x % WARP);
}

/* Stores a row of which each thread has a chunk, on another GPU. quarter: v as to_quarters divides it. */
static __device__ __forceinline__ void store_row(um_bf16 *row, int32_t H, const float v[CHUNK], const float4[2]) {
    const int32_t first = threadIdx.x * CHUNK;
    if (first < H) store<CHUNK>(row + first, v);
}
static __device__ __forceinline__ void store_row(float *row, int32_t H, const float[CHUNK], const float4 quarter[2]) {
    const int32_t first = first_quarter();
    float4 *to = (float4 *)row + first;
    if (first < H / 4) to[0] = quarter[0];
    if (first + WARP < H / 4) to[WARP] = quarter[1];
}

/* The same as load_row for a row of which all threads of the block load a chunk. Parts in fp32 are read in
 * quarters, because a GPU reads the memory of another in units of 32 bytes. */
static __device__ __forceinline__ void load_own_row(float *x, const um_cu_partials &more, int32_t t, int32_t H,
                                                    float v[CHUNK]) {
    enum { AT_ONCE = 4 };
    const int32_t first = threadIdx.x * CHUNK, q = first_quarter();
    const size_t row = (size_t)t * H;
    if (more.type == UM_BF16) {
        if (first < H) load_row<um_bf16>(x, more, t, first, H, v);
        return;
    }
    float4 sum[2] = {};
    for (int begin = 0; begin < more.at.n; begin += AT_ONCE) {
        uint4 raw[AT_ONCE][2];
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++)
#pragma unroll
            for (int k = 0; k < 2; k++)
                if (begin + r < more.at.n && q + k * WARP < H / 4)
                    raw[r][k] =
                        um_cu_load_peer((const uint4 *)((const float *)more.part[begin + r] + row) + q + k * WARP);
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++)
#pragma unroll
            for (int k = 0; k < 2; k++) {
                if (begin + r >= more.at.n || q + k * WARP >= H / 4) continue;
                sum[k].x += __uint_as_float(raw[r][k].x), sum[k].y += __uint_as_float(raw[r][k].y);
                sum[k].z += __uint_as_float(raw[r][k].z), sum[k].w += __uint_as_float(raw[r][k].w);
            }
    }
    float all[CHUNK];
    from_quarters(sum, all);
    if (first >= H) return;
    load<CHUNK>(x + row + first, v);
#pragma unroll
    for (int j = 0; j < CHUNK; j++) v[j] += all[j];
    store<CHUNK>(x + row + first, v);
}

/* The same as norm_rows_kernel with the results of all ranks, but a rank computes only every `ranks`-th row, from row
 * `own` on, and writes these rows to all ranks. The block b of each rank meets the blocks b of the others twice: before
 * it reads their parts, and after it has written its rows. */
template <typename E>
static __global__ void __launch_bounds__(1024)
    norm_divided_kernel(float *x, const um_cu_partials more, const um_cu_copies to, const float *w, float eps,
                        int32_t n, int32_t H) {
    __shared__ float most[WARPS_MAX];
    const int32_t first = threadIdx.x * CHUNK, own = more.at.index, ranks = more.at.n, step = gridDim.x * ranks;
    const bool has_chunk = first < H;
    float mine[CHUNK] = {}, next[CHUNK] = {}, scale[CHUNK] = {}, v[CHUNK];
    float4 quarter[2];
    int32_t t = blockIdx.x * ranks + own;
    um_cu_let_next_start();
    if (has_chunk) load<CHUNK>(w + first, scale);
    um_cu_wait_for_previous();
    um_cu_meet(more.at); /* the parts are there */
    if (t < n) load_own_row(x, more, t, H, mine);
    for (; t < n; t += step) {
        const size_t at = (size_t)t * H + first;
        if (t + step < n) load_own_row(x, more, t + step, H, next);
        norm_chunk(mine, scale, eps, H, v);
#pragma unroll
        for (int j = 0; j < CHUNK; j++) mine[j] = next[j];
        to_quarters(v, quarter);
        for (int k = 0; k < ranks; k++) { /* each rank begins with another */
            const int r = own + k < ranks ? own + k : own + k - ranks;
            if (to.y[r]) store_row((E *)to.y[r] + (size_t)t * H, H, v, quarter);
            if (to.y32[r]) store_row(to.y32[r] + (size_t)t * H, H, v, quarter);
        }
        if (!to.coded[own].code) continue;
        const float by = code_chunk(v, has_chunk, most);
        for (int r = 0; r < ranks; r++) {
            if (has_chunk) um_cu_store_codes(to.coded[r].code + at, v);
            if (threadIdx.x == 0) to.coded[r].scale[t] = by;
        }
    }
    um_cu_meet(more.at); /* all rows are there, and nobody reads the parts any more */
}

/* Returns whether norm_rows_kernel computes the norm, with or without codes. */
static bool suits_rows(const float *bias, int32_t H) {
    return !bias && chunk_of(H) == CHUNK && H / CHUNK <= WARPS_MAX * WARP;
}

/* The operands and outputs of a norm. The values that are added to x first are passed beside it. */
typedef struct norm_job {
    float *x;
    const float *w, *bias;
    float eps;
    int32_t n, H;
    um_dtype type;
    void *y;
    float *y32;
    um_cu_coded coded;
} norm_job;

template <typename E, typename M> static void norm_rows(const norm_job &j, const M &more, cudaStream_t s) {
    const unsigned blocks = (unsigned)(has_one_row<M> ? j.n : UM_MIN(j.n, NORM_BLOCKS_MAX));
    um_cu_start(norm_rows_kernel<E, M>, dim3(blocks), dim3(row_threads(j.H)), 0, s, j.x, more, j.w, j.eps, j.n, j.H,
                (E *)j.y, j.y32, j.coded);
}

template <typename E> static void norm_wide(const norm_job &j, cudaStream_t s) {
    const auto kernel = chunk_of(j.H) == CHUNK ? norm_kernel<E, CHUNK> : norm_kernel<E, 1>;
    um_cu_start(kernel, dim3((unsigned)j.n), dim3(row_threads(j.H)), 0, s, j.x, j.w, j.bias, j.eps, j.H, (E *)j.y,
                j.y32);
}

/* Norms of rows that suit norm_rows_kernel. */
template <typename M> static void norm_suited(const norm_job &j, const M &more, cudaStream_t s) {
    if (j.type == UM_BF16) norm_rows<um_bf16>(j, more, s);
    else norm_rows<float>(j, more, s);
}

/* Adds the values to x in a kernel of their own. */
static void add_whole(const norm_job &, const nothing &, cudaStream_t) {}
static void add_whole(const norm_job &j, const um_cu_partials &p, cudaStream_t s) {
    um_cu_sum(&p, (size_t)j.n * (size_t)j.H, true, j.x, s);
}
static void add_whole(const norm_job &j, const um_cu_pairs &p, cudaStream_t s) {
    um_cu_pairs_add(&p, j.H, true, UM_F32, j.x, s);
}

/* Norms of any rows. */
template <typename M> static void norm(const norm_job &j, const M &more, cudaStream_t s) {
    if (j.n == 0) return;
    if (suits_rows(j.bias, j.H)) {
        norm_suited(j, more, s);
        return;
    }
    add_whole(j, more, s);
    if (j.type == UM_BF16) norm_wide<um_bf16>(j, s);
    else norm_wide<float>(j, s);
    if (j.coded.code) um_cu_quantize((const um_bf16 *)j.y, j.n, j.H, &j.coded, s);
}

/* Norms of rows after the results of all ranks, from element `first` on, are added. */
template <typename P> static void norm_near(const norm_job &j, const um_cu_partials &p, size_t first, cudaStream_t s) {
    near_parts<P> near = {{}, p.at.n};
    for (int32_t r = 0; r < p.at.n; r++) near.part[r] = (const P *)p.part[r] + first;
    norm_suited(j, near, s);
}
static void norm_near(const norm_job &j, const um_cu_partials &p, size_t first, cudaStream_t s) {
    if (p.type == UM_BF16) norm_near<um_bf16>(j, p, first, s);
    else norm_near<float>(j, p, first, s);
}

void um_cu_sum_norm(float *x, const um_cu_partials *more, const float *w, const float *bias, float eps, int32_t n,
                    int32_t H, um_dtype type, void *y, float *y32, const um_cu_coded *coded, cudaStream_t s) {
    const norm_job j = {x, w, bias, eps, n, H, type, y, y32, coded ? *coded : um_cu_coded{}};
    if (more->at.comm && suits_rows(bias, H)) {
        um_cu_bring(*more, s);
        if (n) norm_near(j, *more, 0, s);
    } else norm(j, *more, s);
}

void um_cu_pairs_norm(float *x, const um_cu_pairs *pairs, const float *w, const float *bias, float eps, int32_t n,
                      int32_t H, um_dtype type, void *y, float *y32, const um_cu_coded *coded, cudaStream_t s) {
    assert(pairs->type == type);
    norm(norm_job{x, w, bias, eps, n, H, type, y, y32, coded ? *coded : um_cu_coded{}}, *pairs, s);
}

/* Two ranks copy as much either way. */
bool um_cu_divides(const um_cu_meeting *at, int32_t n, int32_t H) {
    if (at->comm && (at->n == 2 || n % at->n)) return false;
    return suits_rows(NULL, H) && (size_t)n * (size_t)H * sizeof(um_bf16) > UM_CU_PUSH_BYTES;
}

/* The ranks are in several processes: each gets its own rows of all parts, and then copies their norms to the others.
 */
static void divide_apart(const norm_job &j, const um_cu_partials &more, cudaStream_t s) {
    um_cu_comm *comm = more.at.comm;
    const int32_t rows = j.n / more.at.n;
    const size_t own = (size_t)more.at.index, block = (size_t)rows * (size_t)j.H, first = own * block;
    const size_t size = um_dtype_size(j.type);
    norm_job k = j;
    um_cu_comm_swap(comm, (void *)more.part[0], um_cu_distance(more), block * um_dtype_size(more.type), s);
    k.n = rows;
    k.x += first;
    if (j.y) k.y = (char *)j.y + first * size;
    if (j.y32) k.y32 += first;
    if (j.coded.code) k.coded = {j.coded.code + first, j.coded.scale + own * (size_t)rows};
    norm_near(k, more, first, s);
    um_cu_comm_begin(comm);
    if (j.y) um_cu_comm_share(comm, j.y, block * size, s);
    if (j.y32) um_cu_comm_share(comm, j.y32, block * sizeof *j.y32, s);
    if (j.coded.code) um_cu_comm_share(comm, j.coded.code, block, s);
    if (j.coded.code) um_cu_comm_share(comm, j.coded.scale, (size_t)rows * sizeof *j.coded.scale, s);
    um_cu_comm_end(comm);
}

void um_cu_sum_norm_divided(float *x, const um_cu_partials *more, const float *w, float eps, int32_t n, int32_t H,
                            um_dtype type, const um_cu_copies *to, cudaStream_t s) {
    const int32_t own = more->at.index;
    if (more->at.comm) {
        divide_apart({x, w, NULL, eps, n, H, type, to->y[own], to->y32[own], to->coded[own]}, *more, s);
        return;
    }
    const dim3 grid((unsigned)UM_MIN(UM_CEIL_DIV(n, more->at.n), NORM_BLOCKS_MAX)), block(row_threads(H));
    if (type == UM_BF16) um_cu_start(norm_divided_kernel<um_bf16>, grid, block, 0, s, x, *more, *to, w, eps, n, H);
    else um_cu_start(norm_divided_kernel<float>, grid, block, 0, s, x, *more, *to, w, eps, n, H);
}

void um_cu_norm(const float *x, const float *w, const float *bias, float eps, int32_t n, int32_t H, um_dtype type,
                void *y, float *y32, const um_cu_coded *coded, cudaStream_t s) {
    /* x is not written */
    norm(norm_job{(float *)x, w, bias, eps, n, H, type, y, y32, coded ? *coded : um_cu_coded{}}, nothing{}, s);
}

/* ---- Sums of experts --------------------------------------------------------------------------------------------- */

/* Grid: a block for each token. */
template <typename E, typename Y, int W>
static __global__ void __launch_bounds__(1024) pairs_add_kernel(const um_cu_pairs p, int32_t H, bool add, Y *y) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    const int32_t t = blockIdx.x;
    if (t >= um_cu_header(p.b)->n_tokens) return;
    y += (size_t)t * H;
    for (int32_t i = threadIdx.x * W; i < H; i += blockDim.x * W) {
        float v[W] = {};
        if (add) load<W>(y + i, v);
        add_outputs<E, W>(p, t, i, H, v);
        store<W>(y + i, v);
    }
}

template <typename E, typename Y>
static void pairs_add(const um_cu_pairs *p, int32_t H, bool add, Y *y, cudaStream_t s) {
    const dim3 grid((unsigned)p->b.capacity.n_tokens), block(row_threads(H));
    if (!p->b.capacity.n_tokens) return;
    if (chunk_of(H) == CHUNK) um_cu_start(pairs_add_kernel<E, Y, CHUNK>, grid, block, 0, s, *p, H, add, y);
    else um_cu_start(pairs_add_kernel<E, Y, 1>, grid, block, 0, s, *p, H, add, y);
}

void um_cu_pairs_add(const um_cu_pairs *p, int32_t H, bool add, um_dtype type, void *y, cudaStream_t s) {
    assert(type == UM_F32 || type == p->type);
    if (type == UM_BF16) pairs_add<um_bf16>(p, H, add, (um_bf16 *)y, s);
    else if (p->type == UM_BF16) pairs_add<um_bf16>(p, H, add, (float *)y, s);
    else pairs_add<float>(p, H, add, (float *)y, s);
}

/* ---- Norms of branches and canvases ------------------------------------------------------------------------------ */

/* Computes the root mean square norm of a row and gives its elements to put(i, v), W at a time. All threads of the
 * block call it. */
template <int W, typename F>
static __device__ __forceinline__ void norm_row(const float *x, const float *w, float eps, int32_t H, F put) {
    const int32_t first = threadIdx.x * W, step = blockDim.x * W;
    float v[W], scale[W], square = 0;
    for (int32_t i = first; i < H; i += step) {
        load<W>(x + i, v);
#pragma unroll
        for (int j = 0; j < W; j++) square += v[j] * v[j];
    }
    const float r = 1 / sqrtf(block_sum(square) / (float)H + eps);
    for (int32_t i = first; i < H; i += step) {
        load<W>(x + i, v);
        load<W>(w + i, scale);
#pragma unroll
        for (int j = 0; j < W; j++) v[j] = v[j] * r * scale[j];
        put(i, v);
    }
}

/* The kernels of this section have a block for each token. */

template <int W>
static __global__ void __launch_bounds__(1024)
    norm_add_kernel(const um_cu_batch b, const float *y, const float *w, float eps, int32_t H, const float *first_scale,
                    const float *canvas_scale, float *x) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    const int32_t span = b.span_of[blockIdx.x];
    const float *scale = span >= 0 && b.span[span].canvas ? canvas_scale : first_scale;
    const float by = scale ? *scale : 1;
    x += (size_t)blockIdx.x * H;
    norm_row<W>(y + (size_t)blockIdx.x * H, w, eps, H, [&](int32_t i, const float *normed) {
        float v[W];
        load<W>(x + i, v);
#pragma unroll
        for (int j = 0; j < W; j++) v[j] = (v[j] + normed[j]) * by;
        store<W>(x + i, v);
    });
}

void um_cu_norm_add(const um_cu_batch *b, const float *y, const float *w, float eps, int32_t H,
                    const float *const scale[2], float *x, cudaStream_t s) {
    const dim3 grid((unsigned)b->capacity.n_tokens), block(row_threads(H));
    const float *first = scale ? scale[0] : NULL, *canvas = scale ? scale[1] : NULL;
    if (!b->capacity.n_tokens) return;
    if (chunk_of(H) == CHUNK)
        um_cu_start(norm_add_kernel<CHUNK>, grid, block, 0, s, *b, y, w, eps, H, first, canvas, x);
    else um_cu_start(norm_add_kernel<1>, grid, block, 0, s, *b, y, w, eps, H, first, canvas, x);
}

template <typename E, int W>
static __global__ void __launch_bounds__(1024)
    blend_norm_kernel(const um_cu_batch b, const float *blend, const float *w, float eps, int32_t H, E *y) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    const int32_t t = blockIdx.x, span = b.span_of[t], first = span < 0 ? 0 : b.span[span].blend;
    y += (size_t)t * H;
    if (!first) {
        const float zero[W] = {};
        for (int32_t i = threadIdx.x * W; i < H; i += blockDim.x * W) store<W>(y + i, zero);
        return;
    }
    const int32_t row = first - 1 + t - b.span[span].first;
    norm_row<W>(blend + (size_t)row * H, w, eps, H, [&](int32_t i, const float *v) { store<W>(y + i, v); });
}

template <typename E>
static void blend_norm(const um_cu_batch *b, const float *blend, const float *w, float eps, int32_t H, E *y,
                       cudaStream_t s) {
    const dim3 grid((unsigned)b->capacity.n_tokens), block(row_threads(H));
    if (chunk_of(H) == CHUNK) um_cu_start(blend_norm_kernel<E, CHUNK>, grid, block, 0, s, *b, blend, w, eps, H, y);
    else um_cu_start(blend_norm_kernel<E, 1>, grid, block, 0, s, *b, blend, w, eps, H, y);
}

void um_cu_blend_norm(const um_cu_batch *b, const float *blend, const float *w, float eps, int32_t H, um_dtype type,
                      void *y, cudaStream_t s) {
    if (!b->capacity.n_tokens) return;
    if (type == UM_BF16) blend_norm(b, blend, w, eps, H, (um_bf16 *)y, s);
    else blend_norm(b, blend, w, eps, H, (float *)y, s);
}

template <int W>
static __global__ void __launch_bounds__(1024)
    canvas_norm_kernel(const um_cu_batch b, const float *w, float eps, int32_t H, float *x) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    const int32_t span = b.span_of[blockIdx.x];
    if (span < 0 || !b.span[span].canvas) return;
    x += (size_t)blockIdx.x * H;
    norm_row<W>(x, w, eps, H, [&](int32_t i, const float *v) { store<W>(x + i, v); });
}

void um_cu_canvas_norm(const um_cu_batch *b, const float *w, float eps, int32_t H, float *x, cudaStream_t s) {
    const dim3 grid((unsigned)b->capacity.n_tokens), block(row_threads(H));
    if (!b->capacity.n_tokens) return;
    if (chunk_of(H) == CHUNK) um_cu_start(canvas_norm_kernel<CHUNK>, grid, block, 0, s, *b, w, eps, H, x);
    else um_cu_start(canvas_norm_kernel<1>, grid, block, 0, s, *b, w, eps, H, x);
}
