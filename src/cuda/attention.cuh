/* attention: what both kernels of attention share. Used inside the room cuda only. */
#ifndef UM_CUDA_ATTENTION_CUH
#define UM_CUDA_ATTENTION_CUH

#include "cuda/kv.cuh"

/* Computes attention in fp32, for operands of any type, any head size up to 256 and any type of keys
 * (attention_exact.cu). */
void um_cu_attend_exact(const um_cu_batch *b, const um_cu_attention *a, const um_cu_kv *kv, cudaStream_t s);
/* um_cu_tile_tokens for um_cu_attend_exact, with `group` query heads for each KV head. */
int32_t um_cu_exact_tile_tokens(int32_t group);

#ifdef __CUDACC__
/* Returns whether a key is among those that the span reads, below `end`. */
static __device__ __forceinline__ bool um_cu_sees(const um_message_span &s, int32_t key, int32_t end) {
    return key >= s.keys.start && key < end && !(key >= s.hole.start && key < s.hole.end);
}

/* The smallest and the largest bound of the keys that the tokens of a tile see. */
typedef struct um_cu_bounds {
    int32_t least, most;
} um_cu_bounds;

/* Returns the bounds to all lanes of the warp. */
static __device__ __forceinline__ um_cu_bounds um_cu_tile_bounds(const um_cu_batch &b, const um_message_tile &tile,
                                                                 const um_message_span &span) {
    um_cu_bounds r = {INT32_MAX, 0};
    for (int32_t t = threadIdx.x % 32; t < tile.n; t += 32) {
        const int32_t end = min(span.keys.end, b.seen_end[tile.first + t]);
        r.least = min(r.least, end);
        r.most = max(r.most, end);
    }
#pragma unroll
    for (int step = 16; step; step /= 2) {
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

/* Loads 8 adjacent elements of a vector without its scale. `from` is aligned to their size. */
static __device__ __forceinline__ void um_cu_load_eight(const char *from, um_dtype type, float v[8]) {
    if (type == UM_F32) {
        const float4 a = __ldg((const float4 *)from), b = __ldg((const float4 *)from + 1);
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
        v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else if (type == UM_BF16) {
        const uint4 raw = __ldg((const uint4 *)from);
        const uint32_t pair[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < 4; i++) { /* the upper half of a float is the bf16 */
            v[2 * i] = __uint_as_float(pair[i] << 16);
            v[2 * i + 1] = __uint_as_float(pair[i] & 0xffff0000u);
        }
    } else {
        const uint2 raw = __ldg((const uint2 *)from);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            __nv_fp8_e4m3 code;
            code.__x = (unsigned char)((i < 4 ? raw.x : raw.y) >> 8 * (i % 4));
            v[i] = float(code);
        }
    }
}

/* Returns an element of the output: 0 when no key is seen. Merging may turn -0 into 0, so both become 0. */
static __device__ __forceinline__ float um_cu_divided(float acc, float sum) {
    return sum == 0 ? 0 : __fdiv_rn(__fadd_rn(acc, 0.0f), sum);
}
#endif

#endif
