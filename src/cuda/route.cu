/* Routing on the device: the formulas of ops/expert_route.c, with the same order of operations in fp32. One warp routes
 * a token: in registers, or in shared memory when there are many experts or groups. Then one CTA per expert lists its
 * tokens, so that the lists are in ascending order without atomics. */
#include "cuda/mma.cuh"
#include "cuda/route.cuh"

enum { WARPS_MAX = 4, LIST_WARPS = 8 };

/* ---- Helpers of a warp ------------------------------------------------------------------------------------------- */

/* Maps a float to an integer of the same order. Never returns 0. */
static __device__ __forceinline__ uint32_t order_of(float v) {
    const uint32_t u = __float_as_uint(v), key = u & 0x80000000u ? ~u : u | 0x80000000u;
    return key ? key : 1;
}

/* Finds a largest key among the elements lane, lane + 32, ... of key [n]; the first among equals. */
static __device__ __forceinline__ void lane_largest(const uint32_t *key, int n, int lane, uint32_t *top, int *at) {
    *top = 0;
    *at = lane;
    for (int i = lane; i < n; i += 32)
        if (key[i] > *top) {
            *top = key[i];
            *at = i;
        }
}

/* Replaces the `count` largest elements of key [n] with 0, the first among equals. */
static __device__ void take_largest(uint32_t *key, int n, int count, int lane) {
    uint32_t top;
    int at;
    lane_largest(key, n, lane, &top, &at);
    for (int k = 0; k < count; k++) {
        const uint32_t best = __reduce_max_sync(0xffffffffu, top);
        const int first = (int)__reduce_min_sync(0xffffffffu, top == best ? (uint32_t)at : 0x7fffffffu);
        if (first == at && top) {
            key[at] = 0;
            lane_largest(key, n, lane, &top, &at);
        }
    }
    __syncwarp();
}

static __device__ float softmax_max(const float *z, int E, int lane) {
    float max = -INFINITY;
    for (int e = lane; e < E; e += 32) max = fmaxf(max, z[e]);
    for (int d = 16; d; d /= 2) max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, d));
    return max;
}

/* Computes the scores of a token's experts. The weights are computed from `score`, the choice is made by `choice`. */
static __device__ void token_scores(const um_expert_route &r, const float *z, const float *bias, float *score,
                                    float *choice, int lane) {
    const int E = r.n_experts;
    if (r.score == UM_SCORE_SOFTMAX) {
        const float max = softmax_max(z, E, lane), by = r.sharpness == 0 ? 1 : r.sharpness;
        for (int e = lane; e < E; e += 32) score[e] = expf((z[e] - max) * by);
        __syncwarp();
        float sum = 0; /* in the order of the experts */
#pragma unroll 8
        for (int e = 0; e < E; e++) sum += score[e];
        __syncwarp();
        for (int e = lane; e < E; e += 32) score[e] /= sum;
    } else
        for (int e = lane; e < E; e += 32) score[e] = 1 / (1 + expf(-z[e]));
    for (int e = lane; e < E; e += 32) {
        if (r.bias == UM_BIAS_SCORE) score[e] += bias[e];
        choice[e] = score[e] + (r.bias == UM_BIAS_CHOICE ? bias[e] : 0);
    }
    __syncwarp();
}

/* ---- Pools of blocks --------------------------------------------------------------------------------------------- */

/* Writes to top [E] the largest choice score of each expert for the tokens of a warp: first + warp, first + warp +
 * n_warps and so on, up to the end of the block. */
static __device__ void largest_scores(const um_expert_route &r, const float *logits, const float *bias,
                                      const int32_t *block, int first, int n_tokens, float *score, float *choice,
                                      float *top) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_warps = blockDim.x / 32, E = r.n_experts;
    for (int e = lane; e < E; e += 32) top[e] = -INFINITY;
    for (int t = first + warp; t < n_tokens && block[t] == block[first]; t += n_warps) {
        token_scores(r, logits + (size_t)t * E, bias, score, choice, lane);
        for (int e = lane; e < E; e += 32) top[e] = UM_MAX(top[e], choice[e]);
    }
}

/* Chooses the pool of a block: the `capacity` experts with the largest choice scores of the block's tokens. One CTA per
 * token; only the CTA of a block's first token works. */
static __global__ void pool_kernel(um_cu_batch b, um_expert_route r, const float *logits, const float *bias,
                                   uint32_t *pool) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    extern __shared__ float shared[];
    const int E = r.n_experts, words = UM_CEIL_DIV(E, 32), first = blockIdx.x;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
    const int n_tokens = um_cu_header(b)->n_tokens;
    const int32_t *block = b.route_block;
    if (first >= n_tokens || (first > 0 && block[first] == block[first - 1])) return;

    float *own = shared + (size_t)warp * 3 * E;
    largest_scores(r, logits, bias, block, first, n_tokens, own, own + E, own + 2 * E);
    __syncthreads();
    uint32_t *key = (uint32_t *)shared; /* replaces the scores of the first warp, which are not needed any more */
    for (int e = threadIdx.x; e < E; e += blockDim.x) {
        float top = shared[2 * E + e];
        for (int w = 1; w < n_warps; w++) top = UM_MAX(top, shared[(size_t)w * 3 * E + 2 * E + e]);
        key[e] = order_of(top);
    }
    __syncthreads();
    uint32_t *bitmap = key + E; /* [words] replaces choice scores of the first warp */
    for (int word = warp; word < words; word += n_warps) {
        const int e = word * 32 + lane;
        const uint32_t mine = e < E ? key[e] : 0;
        int rank = 0;
        for (int i = 0; i < E; i++) rank += key[i] > mine || (key[i] == mine && i < e);
        const uint32_t bits = __ballot_sync(0xffffffffu, e < E && rank < r.capacity);
        if (lane == 0) bitmap[word] = bits;
    }
    __syncthreads();
    for (int t = first + warp; t < n_tokens && block[t] == block[first]; t += n_warps)
        for (int word = lane; word < words; word += 32) pool[(size_t)t * words + word] = bitmap[word];
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

/* Returns the sum of the two largest elements of v [n]. */
static __device__ float best_two(const float *v, int n) {
    float a = -INFINITY, b = -INFINITY;
    for (int i = 0; i < n; i++) {
        if (v[i] > a) {
            b = a;
            a = v[i];
        } else if (v[i] > b) b = v[i];
    }
    return n > 1 ? a + b : a;
}

/* Excludes the experts outside of the topk_group best groups. group is scratch [n_group]. */
static __device__ void limit_to_groups(const um_expert_route &r, float *choice, uint32_t *group, int lane) {
    const int width = r.n_experts / r.n_group;
    for (int g = lane; g < r.n_group; g += 32) group[g] = order_of(best_two(choice + g * width, width));
    __syncwarp();
    take_largest(group, r.n_group, r.topk_group, lane);
    for (int e = lane; e < r.n_experts; e += 32)
        if (group[e / width]) choice[e] = -INFINITY;
    __syncwarp();
}

/* Writes the bitmap of the experts whose key is 0, in words `step` apart, and their weights in ascending order.
 * Replaces the keys by the experts. list is scratch [top_k]. */
static __device__ void write_experts(const um_expert_route &r, uint32_t *key, const float *score,
                                     const float *expert_scale, float *list, uint32_t *chosen, size_t step,
                                     float *weight, int lane) {
    int n = 0;
    for (int from = 0; from < r.n_experts; from += 32) {
        const int e = from + lane;
        const bool mine = e < r.n_experts && !key[e];
        const uint32_t bits = __ballot_sync(0xffffffffu, mine);
        if (mine) {
            const int at = n + __popc(bits & ((1u << lane) - 1)); /* at most e, so all lanes have read this key */
            key[at] = (uint32_t)e;
            list[at] = score[e];
        }
        if (lane == 0) chosen[from / 32 * step] = bits;
        n += __popc(bits);
    }
    __syncwarp();
    float sum = 0;
    for (int k = 0; k < r.top_k; k++) sum += list[k];
    for (int k = lane; k < r.top_k; k += 32) {
        const float by = expert_scale ? expert_scale[key[k]] : 1;
        weight[k] = (r.normalize ? list[k] / (sum + 1e-20f) : list[k]) * r.scale * by;
    }
}

static __global__ void route_kernel(um_cu_batch b, um_expert_route r, const float *logits, const float *bias,
                                    const float *expert_scale, um_cu_routes out) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    extern __shared__ float shared[];
    const int E = r.n_experts, words = UM_CEIL_DIV(E, 32);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int t = blockIdx.x * (blockDim.x / 32) + warp;
    if (t >= um_cu_header(b)->n_tokens) return;
    float *score = shared + (size_t)warp * 3 * E, *choice = score + E, *extra = choice + E;
    token_scores(r, logits + (size_t)t * E, bias, score, choice, lane);
    if (r.capacity) {
        const uint32_t *pool = out.pool + (size_t)t * words;
        for (int e = lane; e < E; e += 32)
            if (!(pool[e / 32] >> (e % 32) & 1)) choice[e] = -INFINITY;
    } else if (r.n_group > 1) limit_to_groups(r, choice, (uint32_t *)extra, lane);
    uint32_t *key = (uint32_t *)choice;
    for (int e = lane; e < E; e += 32) key[e] = order_of(choice[e]);
    __syncwarp();
    take_largest(key, E, r.top_k, lane);
    write_experts(r, key, score, expert_scale, extra, out.chosen + t, (size_t)b.capacity.n_tokens,
                  out.weight + (size_t)t * r.top_k, lane);
}

/* ---- Tokens, in registers ---------------------------------------------------------------------------------------- */

/* The same for at most 32 * N experts and 32 groups. Lane i has the experts i, i + 32, and so on. */

/* Returns the float whose order_of is key. */
static __device__ __forceinline__ float float_of(uint32_t key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/* Computes the scores of a token's experts as token_scores does. shared is scratch [E]. */
template <int N>
static __device__ __forceinline__ void lane_scores(const um_expert_route &r, const float z[N], const float bias[N],
                                                   float *shared, float score[N], float choice[N], int lane) {
    const int E = r.n_experts;
    if (r.score == UM_SCORE_SOFTMAX) {
        const float by = r.sharpness == 0 ? 1 : r.sharpness;
        float max = -INFINITY, sum = 0;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (lane + 32 * i < E) max = fmaxf(max, z[i]);
        for (int d = 16; d; d /= 2) max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, d));
#pragma unroll
        for (int i = 0; i < N; i++) {
            score[i] = expf((z[i] - max) * by);
            if (lane + 32 * i < E) shared[lane + 32 * i] = score[i];
        }
        __syncwarp();
#pragma unroll 8
        for (int e = 0; e < E; e++) sum += shared[e]; /* in the order of the experts */
        __syncwarp();
#pragma unroll
        for (int i = 0; i < N; i++) score[i] /= sum;
    } else
#pragma unroll
        for (int i = 0; i < N; i++) score[i] = 1 / (1 + expf(-z[i]));
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (r.bias == UM_BIAS_SCORE) score[i] += bias[i];
        choice[i] = score[i] + (r.bias == UM_BIAS_CHOICE ? bias[i] : 0);
    }
}

/* Returns the bitmap of the topk_group best groups. */
template <int N>
static __device__ __forceinline__ uint32_t best_groups(const um_expert_route &r, const float choice[N], int lane) {
    const int width = r.n_experts / r.n_group;
    uint32_t mine = 0, best = 0; /* the key of the group of this lane's number */
    for (int g = 0; g < r.n_group; g++) {
        uint32_t top[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < N; i++) {
            const bool inside = (unsigned)(lane + 32 * i - g * width) < (unsigned)width;
            const uint32_t key = inside ? order_of(choice[i]) : 0;
            top[1] = UM_MAX(top[1], UM_MIN(top[0], key));
            top[0] = UM_MAX(top[0], key);
        }
        const uint32_t first = __reduce_max_sync(0xffffffffu, top[0]);
        const int owner = __ffs((int)__ballot_sync(0xffffffffu, top[0] == first)) - 1;
        const uint32_t second = __reduce_max_sync(0xffffffffu, lane == owner ? top[1] : top[0]);
        const float sum = width > 1 ? float_of(first) + float_of(second) : float_of(first);
        if (lane == g) mine = order_of(sum);
    }
    for (int k = 0; k < r.topk_group; k++) {
        const uint32_t most = __reduce_max_sync(0xffffffffu, mine);
        const int owner = __ffs((int)__ballot_sync(0xffffffffu, mine == most)) - 1;
        best |= 1u << owner;
        if (lane == owner) mine = 0;
    }
    return best;
}

/* Replaces the top_k largest keys with 0, the first among equals. */
template <int N> static __device__ __forceinline__ void take_best(uint32_t key[N], int top_k, int lane) {
    for (int k = 0; k < top_k; k++) {
        uint32_t top = key[0];
#pragma unroll
        for (int i = 1; i < N; i++) top = UM_MAX(top, key[i]);
        top = __reduce_max_sync(0xffffffffu, top);
        int first = 32 * N;
#pragma unroll
        for (int i = N - 1; i >= 0; i--)
            if (key[i] == top) first = lane + 32 * i;
        first = (int)__reduce_min_sync(0xffffffffu, (uint32_t)first);
#pragma unroll
        for (int i = 0; i < N; i++)
            if (first == lane + 32 * i) key[i] = 0;
    }
}

/* Writes the bitmap of the experts whose key is 0, and their weights in ascending order. shared is scratch [2 top_k].
 */
template <int N>
static __device__ __forceinline__ void write_best(const um_expert_route &r, const uint32_t key[N], const float score[N],
                                                  const float *expert_scale, float *shared, uint32_t *chosen,
                                                  size_t step, float *weight, int lane) {
    int n = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int e = lane + 32 * i;
        const bool mine = e < r.n_experts && !key[i];
        const uint32_t bits = __ballot_sync(0xffffffffu, mine);
        if (mine) {
            const int at = n + __popc(bits & ((1u << lane) - 1));
            shared[at] = score[i];
            if (expert_scale) shared[r.top_k + at] = expert_scale[e];
        }
        if (lane == 0 && 32 * i < r.n_experts) chosen[i * step] = bits;
        n += __popc(bits);
    }
    __syncwarp();
    float sum = 0;
    for (int k = 0; k < r.top_k; k++) sum += shared[k];
    for (int k = lane; k < r.top_k; k += 32) {
        const float by = expert_scale ? shared[r.top_k + k] : 1;
        weight[k] = (r.normalize ? shared[k] / (sum + 1e-20f) : shared[k]) * r.scale * by;
    }
}

template <int N>
static __global__ void __launch_bounds__(WARPS_MAX * 32)
    route_lanes_kernel(um_cu_batch b, um_expert_route r, const float *logits, const float *bias,
                       const float *expert_scale, um_cu_routes out) {
    extern __shared__ float shared[];
    const int E = r.n_experts, lane = threadIdx.x % 32, warp = threadIdx.x / 32, t = blockIdx.x * WARPS_MAX + warp;
    float z[N] = {}, shift[N] = {}, score[N], choice[N];
    uint32_t key[N];
    um_cu_let_next_start();
#pragma unroll
    for (int i = 0; i < N; i++)
        if (r.bias != UM_BIAS_NONE && lane + 32 * i < E) shift[i] = bias[lane + 32 * i];
    um_cu_wait_for_previous();
    if (t >= um_cu_header(b)->n_tokens) return;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (lane + 32 * i < E) z[i] = logits[(size_t)t * E + lane + 32 * i];
    float *own = shared + (size_t)warp * UM_MAX(E, 2 * r.top_k);
    lane_scores<N>(r, z, shift, own, score, choice, lane);
    const bool grouped = !r.capacity && r.n_group > 1;
    const uint32_t groups = grouped ? best_groups<N>(r, choice, lane) : 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int e = lane + 32 * i;
        if (r.capacity && e < E && !(out.pool[(size_t)t * UM_CEIL_DIV(E, 32) + i] >> lane & 1)) choice[i] = -INFINITY;
        if (grouped && !(groups >> e / (E / r.n_group) & 1)) choice[i] = -INFINITY;
        key[i] = e < E ? order_of(choice[i]) : 0;
    }
    take_best<N>(key, r.top_k, lane);
    write_best<N>(r, key, score, expert_scale, own, out.chosen + t, (size_t)b.capacity.n_tokens,
                  out.weight + (size_t)t * r.top_k, lane);
}

typedef void (*route_lanes)(um_cu_batch, um_expert_route, const float *, const float *, const float *, um_cu_routes);

/* Returns the kernel that keeps all experts in registers; NULL: there are too many experts or groups. */
static route_lanes lanes_kernel(const um_expert_route *r) {
    if (r->n_group > 32) return NULL;
    return r->n_experts <= 64    ? route_lanes_kernel<2>
           : r->n_experts <= 128 ? route_lanes_kernel<4>
           : r->n_experts <= 256 ? route_lanes_kernel<8>
           : r->n_experts <= 512 ? route_lanes_kernel<16>
                                 : NULL;
}

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

/* Lists the pairs of an expert. Each warp reads one of LIST_WARPS equal parts of the tokens, first to count, then to
 * write. One CTA per expert, from first_expert on. */
static __global__ void __launch_bounds__(LIST_WARPS * 32)
    list_kernel(um_cu_batch b, int top_k, int first_expert, const uint32_t *chosen, int32_t *count, int32_t *pair) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    __shared__ int found[LIST_WARPS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, e = first_expert + blockIdx.x;
    const int n = um_cu_header(b)->n_tokens;
    const int part = UM_CEIL_DIV(UM_CEIL_DIV(n, 32), LIST_WARPS) * 32;
    const int from = UM_MIN(warp * part, n), end = UM_MIN(from + part, n);
    const size_t step = (size_t)b.capacity.n_tokens;
    const uint32_t *word = chosen + e / 32 * step, bit = 1u << (e % 32);
    int mine = 0;
#pragma unroll 4
    for (int t = from + lane; t < end; t += 32) mine += (word[t] & bit) != 0;
    mine = __reduce_add_sync(0xffffffffu, mine);
    if (lane == 0) found[warp] = mine;
    __syncthreads();
    int at = 0, all = 0;
    for (int w = 0; w < LIST_WARPS; w++) {
        if (w < warp) at += found[w];
        all += found[w];
    }
    if (threadIdx.x == 0) count[e] = all;
    if (!mine) return;
    int32_t *list = pair + e * step;
#pragma unroll 4
    for (int i = from; i < end; i += 32) {
        const int t = i + lane;
        const bool hit = t < end && word[t] & bit;
        const uint32_t bits = __ballot_sync(0xffffffffu, hit);
        if (hit) list[at + __popc(bits & ((1u << lane) - 1))] = t * top_k + um_cu_experts_below(chosen + t, step, e);
        at += __popc(bits);
    }
}

void um_cu_route(const um_cu_batch *b, const um_cu_moe *a, const um_cu_routes *out, cudaStream_t s) {
    const um_expert_route *r = &a->route;
    const int T = b->capacity.n_tokens, warp_bytes = 3 * (int)sizeof(float) * r->n_experts;
    const int n_warps = UM_MAX(1, UM_MIN(WARPS_MAX, (48 << 10) / warp_bytes));
    const size_t bytes = (size_t)n_warps * warp_bytes;
    if (r->capacity)
        um_cu_start(pool_kernel, dim3(T), dim3(n_warps * 32), bytes, s, *b, *r, a->logits, a->bias, out->pool);
    const route_lanes lanes = lanes_kernel(r);
    if (lanes) {
        const size_t shared = WARPS_MAX * sizeof(float) * (size_t)UM_MAX(r->n_experts, 2 * r->top_k);
        um_cu_start(lanes, dim3(UM_CEIL_DIV(T, WARPS_MAX)), dim3(WARPS_MAX * 32), shared, s, *b, *r, a->logits, a->bias,
                    a->expert_scale, *out);
    } else
        um_cu_start(route_kernel, dim3(UM_CEIL_DIV(T, n_warps)), dim3(n_warps * 32), bytes, s, *b, *r, a->logits,
                    a->bias, a->expert_scale, *out);
    um_cu_start(list_kernel, dim3(a->n_own), dim3(LIST_WARPS * 32), 0, s, *b, r->top_k, a->first_own, out->chosen,
                out->count, out->pair);
}
