/* rows: chunks and sums of rows, which the kernels that move rows share. A thread moves chunks of 8 elements, 16 bytes
 * at a time. Rows whose width is not a multiple of 8 are moved one element at a time.
 *
 * A block computes rows, and its size depends only on the width of the row. A sum over a row has two levels: each
 * thread adds its elements in ascending order; a tree adds the sums of the threads. Used inside the room cuda only. */
#ifndef UM_CUDA_ROWS_CUH
#define UM_CUDA_ROWS_CUH

#include "cuda/kernels.cuh"

enum { CHUNK = 8, WARP = 32, WARPS_MAX = 32 };

/* ---- Chunks of W elements, W = CHUNK or 1 ------------------------------------------------------------------------ */

template <int W> static __device__ __forceinline__ void load(const float *p, float v[W]) {
    if constexpr (W == 1) {
        v[0] = p[0];
    } else {
        const float4 a = ((const float4 *)p)[0], b = ((const float4 *)p)[1];
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
        v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    }
}

template <int W> static __device__ __forceinline__ void load(const um_bf16 *p, float v[W]) {
    if constexpr (W == 1) {
        v[0] = __bfloat162float(p[0]);
    } else {
        const uint4 raw = *(const uint4 *)p;
        const uint32_t pair[CHUNK / 2] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < CHUNK / 2; i++) { /* the upper half of a float is the bf16 */
            v[2 * i] = __uint_as_float(pair[i] << 16);
            v[2 * i + 1] = __uint_as_float(pair[i] & 0xffff0000u);
        }
    }
}

template <int W> static __device__ __forceinline__ void store(float *p, const float v[W]) {
    if constexpr (W == 1) {
        p[0] = v[0];
    } else {
        ((float4 *)p)[0] = make_float4(v[0], v[1], v[2], v[3]);
        ((float4 *)p)[1] = make_float4(v[4], v[5], v[6], v[7]);
    }
}

template <int W> static __device__ __forceinline__ void store(um_bf16 *p, const float v[W]) {
    if constexpr (W == 1) {
        p[0] = __float2bfloat16_rn(v[0]);
    } else {
        uint32_t pair[CHUNK / 2];
#pragma unroll
        for (int i = 0; i < CHUNK / 2; i++) {
            const uint32_t low = __bfloat16_as_ushort(__float2bfloat16_rn(v[2 * i]));
            const uint32_t high = __bfloat16_as_ushort(__float2bfloat16_rn(v[2 * i + 1]));
            pair[i] = low | high << 16;
        }
        *(uint4 *)p = make_uint4(pair[0], pair[1], pair[2], pair[3]);
    }
}

static int32_t chunk_of(int32_t width) { return width % CHUNK == 0 ? CHUNK : 1; }

/* Returns the threads of a block that computes a row. */
static unsigned row_threads(int32_t width) {
    const int32_t chunks = width / chunk_of(width);
    return (unsigned)UM_MIN(UM_CEIL_DIV(chunks, WARP), WARPS_MAX) * WARP;
}

/* ---- Sums -------------------------------------------------------------------------------------------------------- */

/* Returns the sum of all lanes' values to all lanes. */
static __device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int step = WARP / 2; step; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

/* Returns the sum of all threads' values to all threads. */
static __device__ float block_sum(float v) {
    __shared__ float part[WARPS_MAX];
    const int lane = threadIdx.x % WARP, n_warps = blockDim.x / WARP;
    v = warp_sum(v);
    __syncthreads(); /* all threads have read the sums of the call before */
    if (lane == 0) part[threadIdx.x / WARP] = v;
    __syncthreads();
    return warp_sum(lane < n_warps ? part[lane] : 0);
}

#endif
