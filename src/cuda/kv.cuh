/* kv: the access of kernels to single keys and values. kv_layout.h has their places. */
#ifndef UM_CUDA_KV_CUH
#define UM_CUDA_KV_CUH

#include <cuda_fp8.h>

#include "cuda/kernels.cuh"

/* Returns the scale of the vector in a slot of a range of 8-bit vectors. `range` is v.key or v.value plus
 * um_cu_range_at. */
static inline __host__ __device__ float um_cu_scale_of(const um_cu_kv_view &v, const char *range, int32_t slot) {
    return *(const float *)(range + um_cu_scale_at(v, slot));
}

#ifdef __CUDACC__
/* Returns element i of the vector in a slot of a range, as fp32. */
static __device__ __forceinline__ float um_cu_kv_get(const um_cu_kv_view &v, const char *range, int32_t slot,
                                                     int32_t i) {
    const char *vector = range + um_cu_vector_at(v, slot);
    if (v.type == UM_F32) return ((const float *)vector)[i];
    if (v.type == UM_BF16) return __bfloat162float(((const um_bf16 *)vector)[i]);
    __nv_fp8_e4m3 code;
    code.__x = ((const unsigned char *)vector)[i];
    return float(code) * um_cu_scale_of(v, range, slot);
}

/* Stores element i. scale is that of the vector, for 8 bits; the caller stores it with um_cu_kv_put_scale. */
static __device__ __forceinline__ void um_cu_kv_put(const um_cu_kv_view &v, char *range, int32_t slot, int32_t i,
                                                    float x, float scale) {
    char *vector = range + um_cu_vector_at(v, slot);
    if (v.type == UM_F32) ((float *)vector)[i] = x;
    else if (v.type == UM_BF16) ((um_bf16 *)vector)[i] = __float2bfloat16_rn(x);
    else ((unsigned char *)vector)[i] = scale > 0 ? __nv_fp8_e4m3(__fdiv_rn(x, scale)).__x : 0;
}

static __device__ __forceinline__ void um_cu_kv_put_scale(const um_cu_kv_view &v, char *range, int32_t slot,
                                                          float scale) {
    *(float *)(range + um_cu_scale_at(v, slot)) = scale;
}
#endif

#endif
