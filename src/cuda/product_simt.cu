/* product_simt: y = W x without tensor cores: fp32 fused multiply-adds, for weights that stay exact and for shapes that
 * cuBLASLt does not support.
 *
 * The order of a sum is the same in all kernels of this file, so a result does not depend on the kernel that is chosen
 * for T. The columns are cut into SLICES slices of equal length, a multiple of STAGE_BYTES. The products of a slice are
 * added in ascending order, from 0. The sums of the slices are then added in ascending order, from 0.
 *
 * Both kernels stream stages of rows through a ring of buffers in shared memory: STAGE_BYTES of each row of a tile, at
 * a distance of ROW_BYTES, at which eight adjacent rows use all banks once. `few` computes a small tile; each of its 8
 * warps has a slice. `many` computes a tile of 128 tokens and 128 weight rows; its threads go through the slices. */
#include <assert.h>

#include "cuda/mma.cuh"
#include "cuda/product.cuh"

enum { SLICES = 8, STAGE_BYTES = 64, ROW_BYTES = 80, PIECE_BYTES = 16, WARP = 32, QUAD = 4 };
enum { FEW_THREADS = SLICES * WARP, MANY_THREADS = 256, MANY_SIDE = 16, MANY_TILE = 128, TOKENS_MIN = 8 };

typedef struct job {
    const void *w, *x;
    void *y;
    int32_t rows, in, T, stride;
    int32_t slice;    /* columns of a slice */
    bool aligned;     /* all rows of w and x are aligned to 16 bytes */
    bool add, narrow; /* narrow: y is bf16 */
} job;

/* ---- Stages ------------------------------------------------------------------------------------------------------ */

/* Copies the columns from `column` on of the rows [first, first + n) of a matrix [rows, in] to a stage, by n_threads
 * threads, of which this is number `i`. Elements outside of the matrix are 0. */
template <typename E>
static __device__ __forceinline__ void load_rows(char *stage, const E *matrix, int32_t rows, int32_t in, bool aligned,
                                                 int32_t first, int32_t n, int32_t column, int i, int n_threads) {
    constexpr int PIECES = STAGE_BYTES / PIECE_BYTES, ELEMENTS = PIECE_BYTES / (int)sizeof(E);
    for (int q = i; q < n * PIECES; q += n_threads) {
        const int32_t row = first + q / PIECES, k = column + q % PIECES * ELEMENTS;
        char *to = stage + q / PIECES * ROW_BYTES + q % PIECES * PIECE_BYTES;
        const E *from = matrix + (size_t)row * in + k;
        if (aligned) {
            const bool there = row < rows && k < in;
            um_cu_copy_async(to, there ? from : matrix, there);
        } else {
#pragma unroll
            for (int e = 0; e < ELEMENTS; e++) ((E *)to)[e] = row < rows && k + e < in ? from[e] : E(0.0f);
        }
    }
}

static __device__ __forceinline__ void load_quad(const float *p, float v[QUAD]) {
    const float4 a = *(const float4 *)p;
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
}
static __device__ __forceinline__ void load_quad(const um_bf16 *p, float v[QUAD]) {
    const uint2 a = *(const uint2 *)p; /* the upper half of a float is the bf16 */
    v[0] = __uint_as_float(a.x << 16), v[1] = __uint_as_float(a.x & 0xffff0000u);
    v[2] = __uint_as_float(a.y << 16), v[3] = __uint_as_float(a.y & 0xffff0000u);
}

/* Adds the products of a stage to the sums of a thread: tokens at a distance of TOKEN_STEP rows from x on, weight rows
 * at a distance of ROW_STEP rows from w on. */
template <typename E, int TOKENS, int ROWS, int TOKEN_STEP, int ROW_STEP>
static __device__ __forceinline__ void multiply(const char *x, const char *w, float sum[TOKENS][ROWS]) {
#pragma unroll
    for (int k = 0; k < STAGE_BYTES / (int)sizeof(E); k += QUAD) {
        float wide[ROWS][QUAD], token[QUAD];
#pragma unroll
        for (int b = 0; b < ROWS; b++) load_quad((const E *)(w + b * ROW_STEP * ROW_BYTES) + k, wide[b]);
#pragma unroll
        for (int a = 0; a < TOKENS; a++) {
            load_quad((const E *)(x + a * TOKEN_STEP * ROW_BYTES) + k, token);
#pragma unroll
            for (int e = 0; e < QUAD; e++)
#pragma unroll
                for (int b = 0; b < ROWS; b++) sum[a][b] = fmaf(token[e], wide[b][e], sum[a][b]);
        }
    }
}

static __device__ __forceinline__ void put(const job &p, int32_t t, int32_t row, float sum) {
    if (t >= p.T || row >= p.rows) return;
    const size_t at = (size_t)t * p.stride + row;
    if (p.narrow) {
        um_bf16 *y = (um_bf16 *)p.y + at;
        *y = __float2bfloat16_rn(p.add ? __bfloat162float(*y) + sum : sum);
    } else {
        float *y = (float *)p.y + at;
        *y = p.add ? *y + sum : sum;
    }
}

/* ---- Few tokens or few rows -------------------------------------------------------------------------------------- */

/* Bytes of shared memory of a warp: a ring of stages, and later its sums. */
template <int TOKENS, int ROWS, int RING> static constexpr int few_warp_bytes() {
    return RING * (TOKENS + ROWS) * ROW_BYTES;
}

/* A block computes TOKENS tokens x ROWS weight rows, each warp the whole tile over the columns of its slice. The lanes
 * of a warp form a grid of 4 tokens x 8 rows. Grid: [tiles of tokens, tiles of rows]. */
template <typename E, int TOKENS, int ROWS, int RING> static __global__ void __launch_bounds__(FEW_THREADS) few(job p) {
    constexpr int LANE_TOKENS = 4, LANE_ROWS = 8, A = TOKENS / LANE_TOKENS, B = ROWS / LANE_ROWS;
    constexpr int STAGE = (TOKENS + ROWS) * ROW_BYTES, COLUMNS = STAGE_BYTES / (int)sizeof(E);
    constexpr int WARP_BYTES = few_warp_bytes<TOKENS, ROWS, RING>();
    static_assert(TOKENS * ROWS * (int)sizeof(float) <= WARP_BYTES, "the sums must fit");
    extern __shared__ __align__(16) char shared[];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, i = lane / LANE_ROWS, j = lane % LANE_ROWS;
    const int32_t t0 = blockIdx.x * TOKENS, row0 = blockIdx.y * ROWS;
    const int32_t start = warp * p.slice, end = min(start + p.slice, p.in);
    char *mine = shared + warp * WARP_BYTES;
    float sum[A][B] = {};
    auto load = [&](int32_t k, int at) {
        if (k < end) {
            char *stage = mine + at * STAGE;
            load_rows(stage, (const E *)p.x, p.T, p.in, p.aligned, t0, TOKENS, k, lane, WARP);
            load_rows(stage + TOKENS * ROW_BYTES, (const E *)p.w, p.rows, p.in, p.aligned, row0, ROWS, k, lane, WARP);
        }
        um_cu_copies_commit();
    };
    for (int at = 0; at < RING - 1; at++) load(start + at * COLUMNS, at);
    for (int32_t k = start, at = 0, to = RING - 1; k < end; k += COLUMNS) {
        load(k + (RING - 1) * COLUMNS, to);
        um_cu_copies_wait<RING - 1>();
        __syncwarp();
        const char *x = mine + at * STAGE, *w = x + TOKENS * ROW_BYTES;
        multiply<E, A, B, LANE_TOKENS, LANE_ROWS>(x + i * ROW_BYTES, w + j * ROW_BYTES, sum);
        __syncwarp(); /* the next load overwrites this stage */
        to = at;
        at = at + 1 < RING ? at + 1 : 0;
    }
#pragma unroll
    for (int a = 0; a < A; a++)
#pragma unroll
        for (int b = 0; b < B; b++) ((float *)mine)[(i + a * LANE_TOKENS) * ROWS + j + b * LANE_ROWS] = sum[a][b];
    __syncthreads();
    for (int e = threadIdx.x; e < TOKENS * ROWS; e += FEW_THREADS) {
        float total = 0;
#pragma unroll
        for (int s = 0; s < SLICES; s++) total += ((const float *)(shared + s * WARP_BYTES))[e];
        put(p, t0 + e / ROWS, row0 + e % ROWS, total);
    }
}

/* ---- Many tokens and rows ---------------------------------------------------------------------------------------- */

/* Threads form a grid of 16 x 16; each has 8 tokens and 8 rows at distances of 16. Grid: [tiles of tokens, tiles of
 * rows]. The end of a slice adds the sum so far to the total; an addition of 0 changes nothing, because a total never
 * is -0. */
template <typename E> static __global__ void __launch_bounds__(MANY_THREADS) many(job p) {
    constexpr int N = MANY_TILE / MANY_SIDE, COLUMNS = STAGE_BYTES / (int)sizeof(E);
    constexpr int HALF = MANY_TILE * ROW_BYTES; /* bytes of a stage for x or w */
    __shared__ __align__(16) char shared[2][2][HALF];
    const int i = threadIdx.x / MANY_SIDE, j = threadIdx.x % MANY_SIDE;
    const int32_t t0 = blockIdx.x * MANY_TILE, row0 = blockIdx.y * MANY_TILE;
    float sum[N][N] = {}, total[N][N] = {};
    auto load = [&](int32_t k, int at) {
        if (k < p.in) {
            load_rows(shared[at][0], (const E *)p.x, p.T, p.in, p.aligned, t0, MANY_TILE, k, threadIdx.x, MANY_THREADS);
            load_rows(shared[at][1], (const E *)p.w, p.rows, p.in, p.aligned, row0, MANY_TILE, k, threadIdx.x,
                      MANY_THREADS);
        }
        um_cu_copies_commit();
    };
    load(0, 0);
    for (int32_t k = 0, at = 0, left = p.slice; k < p.in; k += COLUMNS, at ^= 1) {
        load(k + COLUMNS, at ^ 1);
        um_cu_copies_wait<1>();
        __syncthreads();
        multiply<E, N, N, MANY_SIDE, MANY_SIDE>(shared[at][0] + i * ROW_BYTES, shared[at][1] + j * ROW_BYTES, sum);
        __syncthreads(); /* the next load overwrites this stage */
        left -= COLUMNS;
        if (left > 0 && k + COLUMNS < p.in) continue;
        left = p.slice;
#pragma unroll
        for (int a = 0; a < N; a++)
#pragma unroll
            for (int b = 0; b < N; b++) {
                total[a][b] += sum[a][b];
                sum[a][b] = 0;
            }
    }
#pragma unroll
    for (int a = 0; a < N; a++)
#pragma unroll
        for (int b = 0; b < N; b++) put(p, t0 + i + a * MANY_SIDE, row0 + j + b * MANY_SIDE, total[a][b]);
}

/* ---- Choice of the kernel ---------------------------------------------------------------------------------------- */

typedef void (*kernel)(job p);
typedef struct tile {
    kernel run[2]; /* for fp32, bf16 */
    int32_t tokens, rows;
    int threads, shared_bytes;
} tile;

template <int TOKENS, int ROWS, int RING> static constexpr tile few_tile() {
    return {{few<float, TOKENS, ROWS, RING>, few<um_bf16, TOKENS, ROWS, RING>},
            TOKENS,
            ROWS,
            FEW_THREADS,
            SLICES * few_warp_bytes<TOKENS, ROWS, RING>()};
}
/* From the largest to the smallest. A ring is as long as the shared memory of small devices (99 KiB) allows, so that
 * the copies of a warp cover their latency. Such devices don't run the tile of 64 tokens and 64 rows. */
static const tile tiles[] = {{{many<float>, many<um_bf16>}, MANY_TILE, MANY_TILE, MANY_THREADS, 0},
                             few_tile<64, 64, 2>(),
                             few_tile<32, 32, 2>(),
                             few_tile<TOKENS_MIN, 32, 3>(),
                             few_tile<32, 8, 3>(),
                             few_tile<TOKENS_MIN, 8, 6>()};

/* Returns the bytes of shared memory that the current device allows a block. */
static int shared_most() {
    int device = 0, bytes = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return bytes;
}

/* Returns the largest tile that is not mostly padding and of which there are enough to occupy the device. */
static const tile *choose(const um_cu_simt *p, int n_processors) {
    const int most = shared_most();
    for (size_t i = 0; i + 1 < UM_LEN(tiles); i++) {
        if (tiles[i].shared_bytes > most) continue;
        const int64_t columns = UM_CEIL_DIV(p->T, tiles[i].tokens), rows = UM_CEIL_DIV(p->rows, tiles[i].rows);
        if ((p->T > tiles[i].tokens / 2 || tiles[i].tokens == TOKENS_MIN) && columns * rows >= n_processors * 3 / 4)
            return &tiles[i];
    }
    return &tiles[UM_LEN(tiles) - 1];
}

um_status um_cu_simt_prepare(um_err *err) {
    const int most = shared_most();
    for (size_t i = 0; i < UM_LEN(tiles); i++)
        for (int type = 0; type < 2 && tiles[i].shared_bytes <= most; type++)
            UM_CU_TRY(cudaFuncSetAttribute(tiles[i].run[type], cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           tiles[i].shared_bytes),
                      err);
    return UM_OK;
}

void um_cu_simt_product(const um_cu_simt *p, int n_processors, cudaStream_t s) {
    const tile *t = choose(p, n_processors);
    const int32_t size = (int32_t)um_dtype_size(p->type), columns = STAGE_BYTES / size;
    assert(p->T > 0 && p->rows > 0 && p->in > 0);
    job j = {};
    j.w = p->w, j.x = p->x, j.y = p->y;
    j.rows = p->rows, j.in = p->in, j.T = p->T, j.stride = p->stride;
    j.slice = UM_CEIL_DIV(UM_CEIL_DIV(p->in, SLICES), columns) * columns;
    j.aligned = (int64_t)p->in * size % PIECE_BYTES == 0;
    j.add = p->add;
    j.narrow = p->out_type == UM_BF16;
    const dim3 grid((unsigned)UM_CEIL_DIV(p->T, t->tokens), (unsigned)UM_CEIL_DIV(p->rows, t->rows));
    t->run[p->type == UM_BF16]<<<grid, t->threads, t->shared_bytes, s>>>(j);
}
