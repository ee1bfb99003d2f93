/* kv: where a key or value lies. All address arithmetic of the KV cache is here.
 *
 * A range holds the vectors of one layer, page and KV head: the keys of the page's slots, then (unified layout) their
 * values. 8-bit vectors are followed by one fp32 scale per slot. Ranges are ordered by layer, page and head. The
 * scratch pages, which hold one layer, follow the pages of the last layer. */
#ifndef UM_CUDA_KV_CUH
#define UM_CUDA_KV_CUH

#include <cuda_fp8.h>

#include "cuda/kernels.cuh"

/* A KV cache as kernels see it, for one layer. */
typedef struct um_cu_kv_view {
    char *key, *value; /* the first range of the layer's pages; of the values in their own part or pool */
    size_t range;      /* bytes from one range to the next in the pool of the keys, and of the values */
    int64_t scratch;   /* added to the index of a range of a scratch page */
    size_t scales;     /* bytes from the vectors of a range to their scales */
    int32_t n_pages, n_heads, page_size, head_dim;
    um_dtype type;
} um_cu_kv_view;

static inline __host__ __device__ size_t um_cu_align(size_t n) { return (n + 15) / 16 * 16; }

/* Returns the bytes of the vectors of a range, and of these with their scales. */
static inline size_t um_cu_vectors_bytes(const um_kv_shape *s) {
    return um_cu_align((size_t)s->page_size * (size_t)s->head_dim * um_dtype_size(s->type));
}
static inline size_t um_cu_part_bytes(const um_kv_shape *s) {
    return um_cu_vectors_bytes(s) + (s->type == UM_F8 ? um_cu_align((size_t)s->page_size * sizeof(float)) : 0);
}

/* Returns the view of a layer. */
static inline um_cu_kv_view um_cu_kv_of(const um_cu_kv *kv, int32_t layer) {
    const um_kv_shape *s = &kv->shape;
    const bool unified = s->layout == UM_KV_UNIFIED;
    const size_t part = um_cu_part_bytes(s), range = unified ? 2 * part : part;
    const int64_t n_pages = s->n_slots / s->page_size, first = layer * n_pages * s->n_kv_heads;
    um_cu_kv_view v = {};
    v.key = kv->pool[0] + (size_t)first * range;
    v.value = unified ? v.key + part : kv->pool[1] + (size_t)first * range;
    v.range = range;
    v.scratch = (s->n_layers - 1 - layer) * n_pages * s->n_kv_heads;
    v.scales = um_cu_vectors_bytes(s);
    v.n_pages = (int32_t)n_pages;
    v.n_heads = s->n_kv_heads;
    v.page_size = s->page_size;
    v.head_dim = s->head_dim;
    v.type = s->type;
    return v;
}

/* Returns the bytes from the first range of the layer to the range of a page and head. A scratch page follows the pages
 * of the last layer. */
static inline __host__ __device__ size_t um_cu_range_at(const um_cu_kv_view &v, int32_t page, int32_t head) {
    const int64_t index = (int64_t)page * v.n_heads + head + (page >= v.n_pages ? v.scratch : 0);
    return (size_t)index * v.range;
}

/* Returns the bytes of an element. */
static inline __host__ __device__ size_t um_cu_kv_element(const um_cu_kv_view &v) {
    return v.type == UM_F32 ? 4 : v.type == UM_BF16 ? 2 : 1;
}
/* Returns the bytes from the start of a range to the vector in a slot. */
static inline __host__ __device__ size_t um_cu_vector_at(const um_cu_kv_view &v, int32_t slot) {
    return (size_t)slot * (size_t)v.head_dim * um_cu_kv_element(v);
}

/* Returns the scale of the vector in a slot of a range of 8-bit vectors. `range` is v.key or v.value plus
 * um_cu_range_at. */
static inline __host__ __device__ float um_cu_scale_of(const um_cu_kv_view &v, const char *range, int32_t slot) {
    return ((const float *)(range + v.scales))[slot];
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
    ((float *)(range + v.scales))[slot] = scale;
}
#endif

#endif
