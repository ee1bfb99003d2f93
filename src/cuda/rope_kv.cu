/* rope_kv: norm, clamp and rotation of queries and keys, and the write of keys and values; copies of pages. */
#include "cuda/kv.cuh"
#include "cuda/mma.cuh"

enum { WARP = 32, WARPS = 4, DIM_MAX = UM_CU_HEAD_DIM_MAX };

/* ---- Copies of pages --------------------------------------------------------------------------------------------- */

/* Copies the vectors and scales of the first n slots of a part of a range. One block per part. */
static __global__ void copy_slots(char *pool, size_t range, size_t part, int n_parts, int64_t ranges_per_layer,
                                  int64_t from, int64_t to, size_t vector_bytes, size_t scales, int32_t n,
                                  bool narrow) {
    const int p = blockIdx.x % n_parts;
    const int64_t head = blockIdx.x / n_parts;
    char *base = pool + (size_t)blockIdx.y * (size_t)ranges_per_layer * range + (size_t)p * part;
    const char *a = base + (size_t)(from + head) * range;
    char *b = base + (size_t)(to + head) * range;
    for (size_t i = threadIdx.x; i < (size_t)n * vector_bytes / 8; i += blockDim.x)
        ((uint2 *)b)[i] = ((const uint2 *)a)[i];
    for (int32_t i = threadIdx.x; narrow && i < n; i += blockDim.x)
        ((float *)(b + scales))[i] = ((const float *)(a + scales))[i];
}

void um_cu_kv_copy(const um_cu_kv *kv, int32_t from_page, int32_t to_page, int32_t n, cudaStream_t s) {
    const um_kv_shape *h = &kv->shape;
    const bool unified = h->layout == UM_KV_UNIFIED;
    const size_t part = um_cu_part_bytes(h), range = unified ? 2 * part : part;
    const int64_t per_layer = h->n_slots / h->page_size * h->n_kv_heads;
    const int n_parts = unified ? 2 : 1;
    const dim3 grid((unsigned)(h->n_kv_heads * n_parts), (unsigned)h->n_layers);
    for (int i = 0; i < (unified ? 1 : 2); i++)
        copy_slots<<<grid, 256, 0, s>>>(kv->pool[i], range, part, n_parts, per_layer,
                                        (int64_t)from_page * h->n_kv_heads, (int64_t)to_page * h->n_kv_heads,
                                        (size_t)h->head_dim * um_dtype_size(h->type), um_cu_vectors_bytes(h), n,
                                        h->type == UM_F8);
}

/* ---- Rotation and write ------------------------------------------------------------------------------------------ */

static __device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int step = WARP / 2; step; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

/* Returns the scale of a vector in 8 bits from the lanes' parts of it: its largest magnitude / 448, NaN unless all
 * elements are finite. */
static __device__ __forceinline__ float f8_scale(float largest, bool finite) {
#pragma unroll
    for (int step = WARP / 2; step; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    return __all_sync(0xffffffffu, finite) ? __fdiv_rn(largest, 448.0f) : __int_as_float(0x7fc00000);
}
static __device__ float f8_scale(const float *x, int32_t d, int lane) {
    float largest = 0;
    bool finite = true;
    for (int32_t i = lane; i < d; i += WARP) {
        finite &= isfinite(x[i]);
        largest = fmaxf(largest, fabsf(x[i]));
    }
    return f8_scale(largest, finite);
}

/* x = x * rsqrt(mean(x^2) + eps) * w. Products and sums are rounded one by one, as on the host. */
static __device__ void norm_head(float *x, const float *w, float eps, int32_t d, int lane) {
    float sum = 0;
    for (int32_t i = lane; i < d; i += WARP) sum += x[i] * x[i];
    const float r = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(warp_sum(sum), (float)d) + eps));
    for (int32_t i = lane; i < d; i += WARP) x[i] = __fmul_rn(__fmul_rn(x[i], r), w[i]);
    __syncwarp();
}

static __device__ void rotate_head(float *x, const float *cos, const float *sin, int32_t half, int lane) {
    for (int32_t i = lane; i < half; i += WARP) {
        const float a = x[i], b = x[half + i];
        x[i] = __fsub_rn(__fmul_rn(a, cos[i]), __fmul_rn(b, sin[i]));
        x[half + i] = __fadd_rn(__fmul_rn(b, cos[i]), __fmul_rn(a, sin[i]));
    }
    __syncwarp();
}

struct rope {
    um_cu_rope a;
    um_cu_kv_view kv;
};

/* Loads and stores four adjacent elements. Heads have a multiple of 8 elements. */
static __device__ __forceinline__ float4 load_four(const float *p) { return *(const float4 *)p; }
static __device__ __forceinline__ float4 load_four(const um_bf16 *p) {
    const uint2 raw = *(const uint2 *)p; /* the upper half of a float is the bf16 */
    return make_float4(__uint_as_float(raw.x << 16), __uint_as_float(raw.x & 0xffff0000u), __uint_as_float(raw.y << 16),
                       __uint_as_float(raw.y & 0xffff0000u));
}
static __device__ __forceinline__ void store_four(float *p, float4 v) { *(float4 *)p = v; }
static __device__ __forceinline__ void store_four(um_bf16 *p, float4 v) {
    const __nv_bfloat162 low = __floats2bfloat162_rn(v.x, v.y), high = __floats2bfloat162_rn(v.z, v.w);
    *(uint2 *)p = make_uint2(*(const uint32_t *)&low, *(const uint32_t *)&high);
}

/* Stores a key or value [d] in a slot of a range. */
static __device__ __forceinline__ void store_vector(const um_cu_kv_view &kv, char *range, int32_t slot, const float *x,
                                                    int32_t d, int lane) {
    char *vector = range + um_cu_vector_at(kv, slot);
    if (kv.type == UM_F8) {
        const float scale = f8_scale(x, d, lane);
        for (int32_t i = lane; i < d; i += WARP) um_cu_kv_put(kv, range, slot, i, x[i], scale);
        if (lane == 0) um_cu_kv_put_scale(kv, range, slot, scale);
        return;
    }
    for (int32_t i = lane * 4; i < d; i += WARP * 4) {
        const float4 v = load_four(x + i);
        if (kv.type == UM_F32) store_four((float *)vector + i, v);
        else store_four((um_bf16 *)vector + i, v);
    }
}

/* A warp computes one head of one token. Grid: tokens, groups of WARPS heads. */
template <typename T> static __global__ void rope_kv(const um_cu_batch b, const rope r) {
    __shared__ __align__(16) float buffer[WARPS][DIM_MAX];
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    const um_cu_rope &a = r.a;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int32_t n_all = a.n_heads + 2 * a.n_kv_heads, d = a.head_dim, half = a.rope_dim / 2;
    const int32_t t = blockIdx.x, h = (int32_t)blockIdx.y * WARPS + warp;
    if (h >= n_all) return;
    const bool query = h < a.n_heads, value = h >= a.n_heads + a.n_kv_heads;
    const int32_t slot = a.near ? b.near_slot[t] : b.slot[t];
    if (!query && slot < 0) return;
    T *row = (T *)a.qkv + (size_t)t * n_all * d + (size_t)h * d;
    float *x = buffer[warp];
    for (int32_t i = lane * 4; i < d; i += WARP * 4) store_four(x + i, load_four(row + i));
    __syncwarp();
    const float *norm = query ? a.q_norm : value ? a.v_norm : a.k_norm;
    if (norm) norm_head(x, norm, a.eps, d, lane);
    if (a.clip > 0) {
        for (int32_t i = lane; i < d; i += WARP) x[i] = fminf(fmaxf(x[i], -a.clip), a.clip);
        __syncwarp();
    }
    if (!value) rotate_head(x, a.cos + (size_t)b.pos[t] * half, a.sin + (size_t)b.pos[t] * half, half, lane);
    if (query) {
        const float by = a.query ? a.query[b.pos[t]] : 1;
        for (int32_t i = lane * 4; i < d; i += WARP * 4) {
            const float4 v = load_four(x + i);
            store_four(row + i, make_float4(v.x * by, v.y * by, v.z * by, v.w * by));
        }
        return;
    }
    const int32_t head = h - a.n_heads - (value ? a.n_kv_heads : 0);
    char *range = (value ? r.kv.value : r.kv.key) + um_cu_range_at(r.kv, slot / r.kv.page_size, head);
    store_vector(r.kv, range, slot % r.kv.page_size, x, d, lane);
}

/* ---- Heads of 128 elements --------------------------------------------------------------------------------------- */

static constexpr int DIM = 128, EACH = 4;

/* The elements of a lane: two pairs of adjacent elements, ROPE / 2 elements apart. The lanes go through the head in
 * parts of ROPE elements. A rotation combines the elements at the same place of the halves of the first part. */
struct quad {
    float2 low, high;
};

static __device__ __forceinline__ float2 load_two(const um_bf16 *p) {
    const uint32_t raw = *(const uint32_t *)p;
    return make_float2(__uint_as_float(raw << 16), __uint_as_float(raw & 0xffff0000u));
}
static __device__ __forceinline__ void store_two(um_bf16 *p, float2 v) {
    *(__nv_bfloat162 *)p = __floats2bfloat162_rn(v.x, v.y);
}

/* norm_head for a lane's elements. w: the weight from the lane's first element on. */
template <int ROPE> static __device__ __forceinline__ void norm_quad(quad &x, const float *w, float eps) {
    const float2 low = *(const float2 *)w, high = *(const float2 *)(w + ROPE / 2);
    const float sum = warp_sum(x.low.x * x.low.x + x.low.y * x.low.y + x.high.x * x.high.x + x.high.y * x.high.y);
    const float r = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(sum, (float)DIM) + eps));
    x.low = make_float2(__fmul_rn(__fmul_rn(x.low.x, r), low.x), __fmul_rn(__fmul_rn(x.low.y, r), low.y));
    x.high = make_float2(__fmul_rn(__fmul_rn(x.high.x, r), high.x), __fmul_rn(__fmul_rn(x.high.y, r), high.y));
}

static __device__ __forceinline__ void clip_two(float2 &v, float most) {
    v = make_float2(fminf(fmaxf(v.x, -most), most), fminf(fmaxf(v.y, -most), most));
}

static __device__ __forceinline__ void rotate(float &low, float &high, float cos, float sin) {
    const float a = low, b = high;
    low = __fsub_rn(__fmul_rn(a, cos), __fmul_rn(b, sin));
    high = __fadd_rn(__fmul_rn(b, cos), __fmul_rn(a, sin));
}

/* Stores the lane's elements of a key or value in 8 bits, from its first element on. All lanes call it. */
template <int ROPE>
static __device__ __forceinline__ void store_codes(const um_cu_kv_view &kv, char *range, int32_t slot, int place,
                                                   const quad &x) {
    const float v[] = {x.low.x, x.low.y, x.high.x, x.high.y};
    const float scale = f8_scale(fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3]))),
                                 isfinite(v[0]) && isfinite(v[1]) && isfinite(v[2]) && isfinite(v[3]));
    uint16_t *to = (uint16_t *)(range + um_cu_vector_at(kv, slot) + place);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float2 two = make_float2(__fdiv_rn(v[2 * i], scale), __fdiv_rn(v[2 * i + 1], scale));
        to[i * (ROPE / 4)] = scale > 0 ? __nv_cvt_float2_to_fp8x2(two, __NV_SATFINITE, __NV_E4M3) : 0;
    }
    if (threadIdx.x % WARP == 0) um_cu_kv_put_scale(kv, range, slot, scale);
}

/* rope_kv for bf16 operands, keys in bf16 or 8 bits and heads of DIM elements, of which the first ROPE are rotated. A
 * warp computes EACH heads of one token. Grid: tokens, groups of WARPS * EACH heads. */
template <int ROPE, bool F8> static __global__ void rope_kv_128(const um_cu_batch b, const rope r) {
    um_cu_let_next_start();
    const um_cu_rope &a = r.a;
    constexpr int LANES = ROPE / 4; /* of a part */
    const int lane = threadIdx.x % WARP, place = lane / LANES * ROPE + lane % LANES * 2;
    const int32_t n_all = a.n_heads + 2 * a.n_kv_heads, n_rotated = a.n_heads + a.n_kv_heads, t = blockIdx.x;
    const int32_t first = ((int32_t)blockIdx.y * WARPS + (int32_t)threadIdx.x / WARP) * EACH;
    const int32_t slot = a.near ? b.near_slot[t] : b.slot[t],
                  n = slot < 0 ? a.n_heads : n_all; /* heads that have a place to go */
    const size_t at = (size_t)b.pos[t] * (ROPE / 2) + lane % LANES * 2;
    const float2 cos = *(const float2 *)(a.cos + at), sin = *(const float2 *)(a.sin + at);
    const float by = a.query ? a.query[b.pos[t]] : 1;
    um_bf16 *row = (um_bf16 *)a.qkv + ((size_t)t * n_all + first) * DIM + place;
    quad x[EACH] = {};
    um_cu_wait_for_previous();
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (first + i < n) x[i] = {load_two(row + i * DIM), load_two(row + i * DIM + ROPE / 2)};
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int32_t h = first + i;
        if (h >= n) return;
        const float *norm = h < a.n_heads ? a.q_norm : h < n_rotated ? a.k_norm : a.v_norm;
        if (norm) norm_quad<ROPE>(x[i], norm + place, a.eps);
        if (a.clip > 0) clip_two(x[i].low, a.clip), clip_two(x[i].high, a.clip);
        if (h < n_rotated && lane < LANES) {
            rotate(x[i].low.x, x[i].high.x, cos.x, sin.x);
            rotate(x[i].low.y, x[i].high.y, cos.y, sin.y);
        }
        if (h < a.n_heads) {
            x[i].low = make_float2(x[i].low.x * by, x[i].low.y * by);
            x[i].high = make_float2(x[i].high.x * by, x[i].high.y * by);
        }
        um_bf16 *to = row + i * DIM;
        if (h >= a.n_heads) {
            const int32_t head = h < n_rotated ? h - a.n_heads : h - n_rotated, key = slot % r.kv.page_size;
            char *range = (h < n_rotated ? r.kv.key : r.kv.value) + um_cu_range_at(r.kv, slot / r.kv.page_size, head);
            if constexpr (F8) {
                store_codes<ROPE>(r.kv, range, key, place, x[i]);
                continue;
            }
            to = (um_bf16 *)(range + um_cu_vector_at(r.kv, key)) + place;
        }
        store_two(to, x[i].low);
        store_two(to + ROPE / 2, x[i].high);
    }
}

/* ---- Launch ------------------------------------------------------------------------------------------------------ */

void um_cu_rope_kv(const um_cu_batch *b, const um_cu_rope *a, const um_cu_kv *kv, cudaStream_t s) {
    const rope r = {*a, um_cu_kv_of(kv, a->layer)};
    const dim3 grid((unsigned)b->capacity.n_tokens, (unsigned)UM_CEIL_DIV(a->n_heads + 2 * a->n_kv_heads, WARPS));
    assert(a->head_dim <= DIM_MAX && a->head_dim % 8 == 0);
    if (b->capacity.n_tokens == 0) return;
    if (a->type == UM_BF16 && r.kv.type != UM_F32 && a->head_dim == DIM &&
        (a->rope_dim == DIM || a->rope_dim == DIM / 2)) {
        const bool f8 = r.kv.type == UM_F8, whole = a->rope_dim == DIM;
        const auto kernel = whole ? (f8 ? rope_kv_128<DIM, true> : rope_kv_128<DIM, false>)
                                  : (f8 ? rope_kv_128<DIM / 2, true> : rope_kv_128<DIM / 2, false>);
        um_cu_start(kernel, dim3(grid.x, UM_CEIL_DIV(grid.y, (unsigned)EACH)), dim3(WARPS * WARP), 0, s, *b, r);
    } else if (a->type == UM_BF16) um_cu_start(rope_kv<um_bf16>, grid, dim3(WARPS * WARP), 0, s, *b, r);
    else um_cu_start(rope_kv<float>, grid, dim3(WARPS * WARP), 0, s, *b, r);
}
