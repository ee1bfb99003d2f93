/* fp8: numbers of 8 bits with 4 bits of exponent (e4m3): scales of rows, and conversions. Used inside the room cuda
 * only. */
#ifndef UM_CUDA_FP8_CUH
#define UM_CUDA_FP8_CUH

#include <cuda_fp8.h>

#include "cuda/kernels.cuh"

enum { UM_CU_WARP = 32 };
#define UM_CU_E4M3_MAX 448.0f

#ifdef __CUDACC__
/* Returns the larger number. A NaN is larger than all others. */
static __device__ __forceinline__ float um_cu_larger(float a, float b) { return a > b || isnan(a) ? a : b; }

/* Returns the largest value of all threads to all threads. part: shared memory, one float for each warp. */
static __device__ __forceinline__ float um_cu_block_most(float v, float *part) {
    const int lane = threadIdx.x % UM_CU_WARP, n_warps = blockDim.x / UM_CU_WARP;
#pragma unroll
    for (int step = UM_CU_WARP / 2; step; step /= 2) v = um_cu_larger(v, __shfl_xor_sync(0xffffffffu, v, step));
    __syncthreads(); /* all threads have read the values of the call before */
    if (lane == 0) part[threadIdx.x / UM_CU_WARP] = v;
    __syncthreads();
    v = lane < n_warps ? part[lane] : 0;
#pragma unroll
    for (int step = UM_CU_WARP / 2; step; step /= 2) v = um_cu_larger(v, __shfl_xor_sync(0xffffffffu, v, step));
    return v;
}

/* Returns the scale of a row of weights whose largest magnitude is `most`: that becomes the largest number of e4m3. A
 * row of zeros gets 1, a row with a value that is not finite NaN. */
static __device__ __forceinline__ float um_cu_scale(float most) {
    if (!(most < INFINITY)) return NAN;
    return most > 0x1p-100f ? __fdiv_rn(most, UM_CU_E4M3_MAX) : 1;
}
/* Returns the least power of two p with most <= 448 p, for a row of activations; 1 and NaN as um_cu_scale does. */
static __device__ __forceinline__ float um_cu_power_scale(float most) {
    const float below = __uint_as_float(__float_as_uint(most) & 0x7f800000u); /* the power of two below `most` */
    if (!(most < INFINITY)) return NAN;
    if (!(most > 0x1p-100f)) return 1;
    return below * (most > UM_CU_E4M3_MAX / 256 * below ? 1 / 128.0f : 1 / 256.0f);
}

static __device__ __forceinline__ unsigned char um_cu_code(float v) { return __nv_fp8_e4m3(v).__x; }

/* Stores the codes of eight numbers; `to` is aligned to 8 bytes. */
static __device__ __forceinline__ void um_cu_store_codes(unsigned char *to, const float v[8]) {
    uint32_t word[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(v[4 * i], v[4 * i + 1]), __NV_SATFINITE, __NV_E4M3);
        const uint32_t high =
            __nv_cvt_float2_to_fp8x2(make_float2(v[4 * i + 2], v[4 * i + 3]), __NV_SATFINITE, __NV_E4M3);
        word[i] = low | high << 16;
    }
    *(uint2 *)to = make_uint2(word[0], word[1]);
}
#endif

#endif
