/* router: the product of a router, y = W x, by tensor cores without rounding its operands. Routers stay exact, because
 * rounded scores would send tokens to other experts. W is bf16, as most checkpoints store it. x is fp32 and becomes the
 * sum of three bf16 numbers, whose products with W are exact. All sums are fp32.
 *
 * A CTA is a warpgroup with 64 tokens, 128 experts and a slice of the columns. The CTAs of a cluster have the slices of
 * the same tokens and experts, and add the sums of the slices in ascending order. A sum within a slice runs over the
 * columns in ascending order, 16 at a time: first the smallest parts of x, then the middle ones, then the largest. So
 * the bits of a score depend on its token, its expert and the number of columns alone.
 *
 * Weights are constant, so that their copy starts before the kernel before has ended. Each thread loads x from memory
 * into the registers that wgmma reads: of 16 columns, a thread has the four adjacent columns from 4 (i % 4) on, where
 * wgmma has the columns 2 (i % 4) + {0, 1, 8, 9}. The weights are stored with the same order of columns. */
#include "cuda/device.cuh"
#include "cuda/mma.cuh"
#include "cuda/wgmma.cuh"

enum {
    WARP = 32,
    THREADS = 128,
    TOKENS = 64,
    EXPERTS = 128, /* of a tile */
    SLICES = 8,    /* CTAs of a cluster */
    BLOCK = 64,    /* columns of a block of weights */
    STEP = 16,     /* columns of a wgmma */
    STEPS = BLOCK / STEP,
    PARTS = 3,
    ROW_BYTES = BLOCK * 2,
    BLOCK_BYTES = EXPERTS * ROW_BYTES,
    BLOCKS_MAX = 12,     /* of a slice */
    PITCH = EXPERTS + 4, /* floats between the rows of sums in shared memory */
    SUM_BYTES = TOKENS * PITCH * 4,
    SLICE_TOKENS = TOKENS / SLICES /* whose slices a CTA adds */
};

/* Blocks of columns, and of a slice. The last slices may have fewer or none. */
static int32_t n_blocks(int32_t in) { return UM_CEIL_DIV(in, BLOCK); }
static int32_t slice_blocks(int32_t in) { return UM_CEIL_DIV(n_blocks(in), SLICES); }

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

/* Returns the place of a weight in bytes: tiles of experts, blocks of columns, rows with the swizzle of wgmma. */
static __device__ size_t place_of(int32_t row, int32_t column, int32_t blocks) {
    const int within = column % STEP, quad = within / 4, k = 2 * quad + within % 2 + within % 4 / 2 * 8;
    const int at = column % BLOCK / STEP * STEP + k, r = row % EXPERTS;
    const size_t block = (size_t)(row / EXPERTS) * blocks + column / BLOCK;
    return block * BLOCK_BYTES + r * ROW_BYTES + ((at / 8 ^ (r & 7)) << 4) + at % 8 * 2;
}

/* Stores fp32 weights in bf16; rows beyond them are 0. Sets *inexact when a weight is rounded. */
static __global__ void pack_kernel(const float *w, int32_t rows, int32_t in, int32_t all_rows, char *out,
                                   int32_t *inexact) {
    const size_t n = (size_t)all_rows * in;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        const int32_t row = (int32_t)(i / in), column = (int32_t)(i % in);
        const float v = row < rows ? w[i] : 0;
        const um_bf16 narrow = __float2bfloat16_rn(v);
        if (__bfloat162float(narrow) != v) *inexact = 1;
        *(um_bf16 *)(out + place_of(row, column, in / BLOCK)) = narrow;
    }
}

size_t um_cu_router_bytes(int32_t rows, int32_t in) {
    return (size_t)UM_CEIL_DIV(rows, EXPERTS) * (size_t)n_blocks(in) * BLOCK_BYTES;
}

um_status um_cu_router_pack(const um_cu_matrix *w, void *out, bool *exact, cudaStream_t s, um_err *err) {
    int32_t *inexact = NULL, was = 0;
    um_status st = um_cu_alloc((void **)&inexact, sizeof *inexact, "packing a router", err);
    if (!st) st = um_cu_check(cudaMemsetAsync(inexact, 0, sizeof *inexact, s), "packing a router", err);
    if (!st) {
        pack_kernel<<<256, 256, 0, s>>>((const float *)w->data, w->rows, w->in, UM_CEIL_DIV(w->rows, EXPERTS) * EXPERTS,
                                        (char *)out, inexact);
        st = um_cu_launched("packing a router", err);
    }
    if (!st) st = um_cu_check(cudaMemcpyAsync(&was, inexact, sizeof was, cudaMemcpyDeviceToHost, s), "packing", err);
    if (!st) st = um_cu_check(cudaStreamSynchronize(s), "packing a router", err);
    cudaFree(inexact);
    *exact = !st && !was;
    return st;
}

/* ---- The product ------------------------------------------------------------------------------------------------- */

typedef struct job {
    const char *w;
    const float *x;
    float *y;
    int32_t rows, in, T, blocks; /* blocks of a slice */
} job;

#ifdef UM_CU_HAS_WGMMA

static __device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
static __device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* Starts the copies of a slice's weights; block i completes the barrier i. */
static __device__ void copy_weights(const char *from, int n, uint32_t to, uint32_t barrier) {
    for (int i = 0; i < n; i++) {
        um_cu_barrier_expect(barrier + 8 * i, BLOCK_BYTES);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         to + i * BLOCK_BYTES),
                     "l"(from + (size_t)i * BLOCK_BYTES), "r"((int)BLOCK_BYTES), "r"(barrier + 8 * i)
                     : "memory");
    }
}

/* Loads a block of the rows of a thread: x[2 s + h] has four columns of step s, of the lower row for h = 1. */
static __device__ __forceinline__ void load_block(const float *const row[2], int block, float4 x[2 * STEPS]) {
#pragma unroll
    for (int s = 0; s < STEPS; s++)
#pragma unroll
        for (int h = 0; h < 2; h++) x[2 * s + h] = *(const float4 *)(row[h] + block * BLOCK + s * STEP);
}

/* Removes the leading bf16 of two numbers and returns it. */
static __device__ __forceinline__ uint32_t take_part(float *a, float *b) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(*a, *b);
    const uint32_t bits = *(const uint32_t *)&both;
    *a -= __uint_as_float(bits << 16);
    *b -= __uint_as_float(bits & 0xffff0000u);
    return bits;
}

/* Divides a block of x into its parts, the largest first. */
static __device__ __forceinline__ void split_block(float4 x[2 * STEPS], uint32_t part[STEPS][PARTS][4]) {
#pragma unroll
    for (int s = 0; s < STEPS; s++)
#pragma unroll
        for (int p = 0; p < PARTS; p++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float4 *v = &x[2 * s + h];
                part[s][p][h] = take_part(&v->x, &v->y);
                part[s][p][2 + h] = take_part(&v->z, &v->w);
            }
}

/* Adds the products of a block of weights, which lies at w, to the sums of the thread. */
static __device__ __forceinline__ void multiply_block(uint32_t part[STEPS][PARTS][4], uint32_t w,
                                                      float sum[EXPERTS / 2]) {
    const uint32_t low = um_cu_operand_low(w);
    um_cu_products_begin();
#pragma unroll
    for (int s = 0; s < STEPS; s++)
#pragma unroll
        for (int p = PARTS - 1; p >= 0; p--) um_cu_multiply_rows_128(sum, part[s][p], low + 2 * s);
    um_cu_products_commit();
    um_cu_products_wait<0>();
    um_cu_hold_results<EXPERTS / 2>(sum);
    um_cu_hold_operands<STEPS * PARTS * 4>(&part[0][0][0]);
}

/* Adds the products of a slice of n blocks. The loads of the next block of x are under way meanwhile. */
static __device__ __forceinline__ void multiply_slice(const float *const row[2], int n, uint32_t w, uint32_t barrier,
                                                      float sum[EXPERTS / 2]) {
    float4 x[2 * STEPS];
    uint32_t part[STEPS][PARTS][4];
    if (n > 0) load_block(row, 0, x);
    for (int i = 0; i < n; i++) {
        split_block(x, part);
        if (i + 1 < n) load_block(row, i + 1, x);
        um_cu_barrier_wait(barrier + 8 * i, 0);
        multiply_block(part, w + i * BLOCK_BYTES, sum);
    }
}

/* Stores the sums of a slice in shared memory. */
static __device__ __forceinline__ void keep_sums(const float sum[EXPERTS / 2], float *kept) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    float *to = kept + (warp * 16 + lane / 4) * PITCH + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < EXPERTS / 8; j++) {
        *(float2 *)(to + 8 * j) = make_float2(sum[4 * j], sum[4 * j + 1]);
        *(float2 *)(to + 8 * j + 8 * PITCH) = make_float2(sum[4 * j + 2], sum[4 * j + 3]);
    }
}

/* Returns four sums of a CTA of the cluster. */
static __device__ __forceinline__ float4 sums_of(uint32_t at, int rank) {
    float4 v;
    asm volatile("{\n"
                 ".reg .u32 there;\n"
                 "mapa.shared::cluster.u32 there, %4, %5;\n"
                 "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n"
                 "}"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(at), "r"(rank)
                 : "memory");
    return v;
}

/* Adds the slices of the tokens that this CTA stores. */
static __device__ __forceinline__ void add_slices(const job &p, uint32_t kept, int rank, int32_t t0, int32_t e0) {
    constexpr int QUADS = EXPERTS / 4;
#pragma unroll
    for (int i = threadIdx.x; i < SLICE_TOKENS * QUADS; i += THREADS) {
        const int row = rank * SLICE_TOKENS + i / QUADS, e = i % QUADS * 4;
        float4 total = {};
#pragma unroll
        for (int s = 0; s < SLICES; s++) {
            const float4 v = sums_of(kept + (row * PITCH + e) * 4, s);
            total.x += v.x, total.y += v.y, total.z += v.z, total.w += v.w;
        }
        if (t0 + row < p.T && e0 + e < p.rows) *(float4 *)(p.y + (size_t)(t0 + row) * p.rows + e0 + e) = total;
    }
}
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define IN_CLUSTERS /* older GPUs have none, and compile no code for this kernel */
#else
#define IN_CLUSTERS __cluster_dims__(SLICES, 1, 1)
#endif

/* Grid: [slices, tiles of tokens, tiles of experts], in clusters of SLICES CTAs. The sums replace the weights in shared
 * memory. */
static __global__ void IN_CLUSTERS __launch_bounds__(THREADS, 3) router_kernel(job p) {
#ifdef UM_CU_HAS_WGMMA
    extern __shared__ __align__(1024) char shared[];
    __shared__ __align__(8) uint64_t arrived[BLOCKS_MAX];
    um_cu_let_next_start();
    const uint32_t w = (uint32_t)__cvta_generic_to_shared(shared);
    const uint32_t barrier = (uint32_t)__cvta_generic_to_shared(arrived);
    const int blocks = p.in / BLOCK, rank = blockIdx.x, from = UM_MIN(rank * p.blocks, blocks);
    const int n = UM_MIN(p.blocks, blocks - from), lane = threadIdx.x % WARP;
    const int32_t t0 = blockIdx.y * TOKENS, top = t0 + threadIdx.x / WARP * 16 + lane / 4;
    if (threadIdx.x == 0) {
        for (int i = 0; i < n; i++) um_cu_barrier_init(barrier + 8 * i, 1);
        um_cu_barriers_ready();
        copy_weights(p.w + ((size_t)blockIdx.z * blocks + from) * BLOCK_BYTES, n, w, barrier);
    }
    __syncthreads();
    um_cu_wait_for_previous();
    const float *row[2];
#pragma unroll
    for (int h = 0; h < 2; h++)
        row[h] = p.x + (size_t)UM_MIN(top + 8 * h, p.T - 1) * p.in + from * BLOCK + lane % 4 * 4;
    float sum[EXPERTS / 2] = {};
    multiply_slice(row, n, w, barrier, sum);
    __syncthreads(); /* all products have ended, so the weights are not needed any more */
    keep_sums(sum, (float *)shared);
    cluster_arrive();
    cluster_wait();
    add_slices(p, w, rank, t0, blockIdx.z * EXPERTS);
    cluster_arrive();
    cluster_wait(); /* the other CTAs have read the sums of this one */
#endif
}

bool um_cu_router_suits(int32_t rows, int32_t in) {
    cudaFuncAttributes kernel; /* only code for Hopper GPUs has barriers in shared memory */
    return rows % 4 == 0 && in % BLOCK == 0 && slice_blocks(in) <= BLOCKS_MAX &&
           cudaFuncGetAttributes(&kernel, router_kernel) == cudaSuccess && kernel.sharedSizeBytes > 0;
}

void um_cu_router_product(const void *w, int32_t rows, int32_t in, const float *x, int32_t T, float *y,
                          cudaStream_t s) {
    if (T == 0) return;
    const job p = {(const char *)w, x, y, rows, in, T, slice_blocks(in)};
    const int bytes = UM_MAX(p.blocks * (int)BLOCK_BYTES, (int)SUM_BYTES);
    cudaFuncSetAttribute(router_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    um_cu_start(router_kernel, dim3(SLICES, UM_CEIL_DIV(T, TOKENS), UM_CEIL_DIV(rows, EXPERTS)), dim3(THREADS), bytes,
                s, p);
}
