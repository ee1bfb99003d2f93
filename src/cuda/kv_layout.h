/* kv_layout: where a key or value lies on a GPU. All address arithmetic of the KV cache is here, without CUDA, so that
 * tests of any machine can check it. kv.cuh adds the access to single vectors. Any thread.
 *
 * A range holds the vectors of one layer, page and KV head: the keys of the page's slots, then (unified layout) their
 * values. 8-bit vectors are followed by one fp32 scale per slot. Ranges are ordered by layer, page and head. The
 * scratch pages, which hold one layer, follow the pages of the last layer. */
#ifndef UM_CUDA_KV_LAYOUT_H
#define UM_CUDA_KV_LAYOUT_H

#include "base/base.h"
#include "ops/ops.h"

#ifdef __CUDACC__
#define UM_CU_ANYWHERE static inline __host__ __device__
#else
#define UM_CU_ANYWHERE static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_cu_kv {
    um_kv_shape shape;
    /* One range of bytes for each layer, page and KV head: the keys of the page's slots, then their values; in the
     * distinct layout the values lie in the second pool. 8-bit keys are followed by their fp32 scales. */
    char *pool[2];
    size_t pool_bytes[2];
} um_cu_kv;
/* Returns the bytes of each pool; the second is 0 for the unified layout. scratch: of the scratch pages alone. */
void um_cu_kv_bytes(const um_kv_shape *shape, size_t pool[2], size_t *scratch);

/* A KV cache as kernels see it, for one layer. */
typedef struct um_cu_kv_view {
    char *key, *value; /* the first range of the layer's pages; of the values in their own part or pool */
    size_t range;      /* bytes from one range to the next in the pool of the keys, and of the values */
    int64_t scratch;   /* added to the index of a range of a scratch page */
    size_t scales;     /* bytes from the vectors of a range to their scales */
    int32_t n_pages, n_heads, page_size, head_dim;
    um_dtype type;
} um_cu_kv_view;

UM_CU_ANYWHERE size_t um_cu_align(size_t n) { return (n + 15) / 16 * 16; }

/* Returns the bytes of the vectors of a range, and of these with their scales. */
static inline size_t um_cu_vectors_bytes(const um_kv_shape *s) {
    return um_cu_align((size_t)s->page_size * (size_t)s->head_dim * um_dtype_size(s->type));
}
static inline size_t um_cu_part_bytes(const um_kv_shape *s) {
    return um_cu_vectors_bytes(s) + (s->type == UM_F8 ? um_cu_align((size_t)s->page_size * sizeof(float)) : 0);
}

/* Returns the view of a layer. */
um_cu_kv_view um_cu_kv_of(const um_cu_kv *kv, int32_t layer);

/* Returns the bytes from the first range of the layer to the range of a page and head. A scratch page follows the pages
 * of the last layer. */
UM_CU_ANYWHERE size_t um_cu_range_at(const um_cu_kv_view v, int32_t page, int32_t head) {
    const int64_t index = (int64_t)page * v.n_heads + head + (page >= v.n_pages ? v.scratch : 0);
    return (size_t)index * v.range;
}

/* Returns the bytes of an element. */
UM_CU_ANYWHERE size_t um_cu_kv_element(const um_cu_kv_view v) {
    return v.type == UM_F32 ? 4 : v.type == UM_BF16 ? 2 : 1;
}
/* Returns the bytes from the start of a range to the vector in a slot. */
UM_CU_ANYWHERE size_t um_cu_vector_at(const um_cu_kv_view v, int32_t slot) {
    return (size_t)slot * (size_t)v.head_dim * um_cu_kv_element(v);
}
/* Returns the bytes from the start of a range to the scale of the 8-bit vector in a slot. */
UM_CU_ANYWHERE size_t um_cu_scale_at(const um_cu_kv_view v, int32_t slot) {
    return v.scales + (size_t)slot * sizeof(float);
}

#ifdef __cplusplus
}
#endif
#endif
