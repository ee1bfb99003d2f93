/* attention: functions that the kernels of attention share. Used inside the room cuda only. */
#ifndef UM_CUDA_ATTENTION_CUH
#define UM_CUDA_ATTENTION_CUH

#include "cuda/kv.cuh"
#include "cuda/mma.cuh"

/* Computes attention in fp32, for operands of any type, any head size up to UM_CU_HEAD_DIM_MAX and any type of keys
 * (attention_exact.cu). */
void um_cu_attend_exact(const um_cu_batch *b, const um_cu_attention *a, const um_cu_kv *kv, cudaStream_t s);
/* um_cu_tile_tokens for um_cu_attend_exact, with `group` query heads for each KV head. */
int32_t um_cu_exact_tile_tokens(int32_t group);
/* The shared memory of a CTA of um_cu_attend_exact. */
size_t um_cu_exact_shared(int32_t head_dim);

/* Computes attention for heads of 256 or 512 elements, with operands and keys in bf16 (attention_wide.cu). */
void um_cu_attend_wide(const um_cu_batch *b, const um_cu_attention *a, const um_cu_kv *kv, cudaStream_t s);
/* um_cu_tile_tokens for um_cu_attend_wide. */
int32_t um_cu_wide_tile_tokens(int32_t group);
/* The shared memory of a CTA of um_cu_attend_wide; 0: it does not compute heads of this size. */
size_t um_cu_wide_shared(int32_t head_dim);

#ifdef __CUDACC__
/* ---- Arithmetic -------------------------------------------------------------------------------------------------- */

/* 2^v; results below 2^-126 are 0. */
static __device__ __forceinline__ float um_cu_power_of_two(float v) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}

/* ---- Keys that are seen ------------------------------------------------------------------------------------------ */

/* Returns whether a key is among those that the span reads, below `end`. */
static __device__ __forceinline__ bool um_cu_sees(const um_message_span &s, int32_t key, int32_t end) {
    return key >= s.keys.start && key < end && !(key >= s.hole.start && key < s.hole.end);
}

/* Returns the page table of layers with this window. */
static __device__ __forceinline__ const int32_t *um_cu_page_of(const um_cu_batch &b, const um_message_span &s,
                                                               int32_t window) {
    return um_cu_at<int32_t>(b, window > 0 ? s.near_page : s.page);
}

/* Returns the first key of a span that a token sees whose keys end at seen_end (um_seen_start). */
static __device__ __forceinline__ int32_t um_cu_seen_start(const um_message_span &s, int32_t window, int32_t seen_end) {
    const int32_t end = s.canvas ? s.start + 1 : seen_end;
    return window > 0 ? max(s.keys.start, end - window) : s.keys.start;
}

/* The bounds of the keys that the tokens of a tile see: each token's lie between the smallest and the largest. */
typedef struct um_cu_bounds {
    int32_t first, last; /* of the first keys */
    int32_t least, most; /* of the ends */
} um_cu_bounds;

/* Returns the bounds to all lanes of the warp. */
static __device__ __forceinline__ um_cu_bounds um_cu_tile_bounds(const um_cu_batch &b, const um_message_tile &tile,
                                                                 const um_message_span &span, int32_t window) {
    um_cu_bounds r = {INT32_MAX, 0, INT32_MAX, 0};
    for (int32_t t = threadIdx.x % 32; t < tile.n; t += 32) {
        const int32_t seen_end = b.seen_end[tile.first + t], end = min(span.keys.end, seen_end);
        const int32_t start = um_cu_seen_start(span, window, seen_end);
        r.first = min(r.first, start);
        r.last = max(r.last, start);
        r.least = min(r.least, end);
        r.most = max(r.most, end);
    }
#pragma unroll
    for (int step = 16; step; step /= 2) {
        r.first = min(r.first, __shfl_xor_sync(0xffffffffu, r.first, step));
        r.last = max(r.last, __shfl_xor_sync(0xffffffffu, r.last, step));
        r.least = min(r.least, __shfl_xor_sync(0xffffffffu, r.least, step));
        r.most = max(r.most, __shfl_xor_sync(0xffffffffu, r.most, step));
    }
    return r;
}

/* Where the vectors of a key lie, relative to the layer's first range of keys and of values. */
typedef struct um_cu_place {
    int64_t at; /* -1: the key is not read; it counts as zeros */
    float key_scale, value_scale;
} um_cu_place;

/* Returns the place of a key. The slots of keys that are not read may contain anything, even NaN. */
static __device__ __forceinline__ um_cu_place um_cu_find(const um_cu_kv_view &kv, const int32_t *page,
                                                         const um_message_span &span, int32_t head, int32_t key,
                                                         int32_t end) {
    um_cu_place p = {-1, 1, 1};
    if (!um_cu_sees(span, key, end)) return p;
    const size_t range = um_cu_range_at(kv, page[key / kv.page_size], head);
    const int32_t slot = key % kv.page_size;
    p.at = (int64_t)(range + um_cu_vector_at(kv, slot));
    if (kv.type == UM_F8) {
        p.key_scale = um_cu_scale_of(kv, kv.key + range, slot);
        p.value_scale = um_cu_scale_of(kv, kv.value + range, slot);
    }
    return p;
}

/* Loads 8 adjacent elements of a vector without its scale, from global or shared memory. `from` is aligned to their
 * size. */
static __device__ __forceinline__ void um_cu_load_eight(const char *from, um_dtype type, float v[8]) {
    if (type == UM_F32) {
        const float4 a = *(const float4 *)from, b = ((const float4 *)from)[1];
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
        v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else if (type == UM_BF16) {
        const uint4 raw = *(const uint4 *)from;
        const uint32_t pair[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < 4; i++) { /* the upper half of a float is the bf16 */
            v[2 * i] = __uint_as_float(pair[i] << 16);
            v[2 * i + 1] = __uint_as_float(pair[i] & 0xffff0000u);
        }
    } else {
        const uint2 raw = *(const uint2 *)from;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const __nv_fp8x2_storage_t pair = (__nv_fp8x2_storage_t)((i < 2 ? raw.x : raw.y) >> 16 * (i % 2));
            const float2 two = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3)));
            v[2 * i] = two.x, v[2 * i + 1] = two.y;
        }
    }
}

/* Returns an element of the output: 0 when no key is seen. -0 becomes 0, as in the kernels that merge pieces. */
static __device__ __forceinline__ float um_cu_divided(float acc, float sum) {
    return sum == 0 ? 0 : __fdiv_rn(__fadd_rn(acc, 0.0f), sum);
}
#endif

#endif
