/* route: chooses the experts of the tokens on the device and lists the tokens of each expert. */
#ifndef UM_CUDA_ROUTE_CUH
#define UM_CUDA_ROUTE_CUH

#include "cuda/kernels.cuh"

/* A pair is a token and one of its experts. Pair token * top_k + k is the token's k-th expert in ascending order. */
typedef struct um_cu_routes {
    uint32_t *chosen; /* [ceil(E / 32), T] bitmap of the experts of each token */
    float *weight;    /* [T, top_k] */
    uint32_t *pool;   /* [T, ceil(E / 32)] bitmap of the experts that a token may use; unused without a capacity */
    int32_t *count;   /* [E] number of pairs of each expert that is computed */
    int32_t *pair;    /* [E, T] pairs of each expert in ascending order */
} um_cu_routes;

#ifdef __CUDACC__
/* Returns the number of a token's experts below e, 0..E. word: the token's bitmap, in words `step` apart. */
static __device__ __forceinline__ int um_cu_experts_below(const uint32_t *word, size_t step, int e) {
    int n = 0;
    for (int i = 0; i < e / 32; i++) n += __popc(word[i * step]);
    return e % 32 ? n + __popc(word[e / 32 * step] & ((1u << (e % 32)) - 1)) : n;
}

/* Returns the first of a token's pairs that have outputs, and the one behind the last. */
static __device__ __forceinline__ int2 um_cu_own_pairs(const um_cu_pairs &p, int t) {
    const size_t step = (size_t)p.b.capacity.n_tokens;
    if (!p.chosen) return make_int2(0, p.top_k);
    return make_int2(um_cu_experts_below(p.chosen + t, step, p.first_own),
                     um_cu_experts_below(p.chosen + t, step, p.first_own + p.n_own));
}
#endif

/* Routes the tokens of the batch. Uses the route, logits, bias and expert_scale of a, and lists the pairs of the
 * experts that are computed. Padding gets no pairs, and its elements of chosen and weight stay undefined. T is
 * capacity.n_tokens. Starts its kernels on s. */
void um_cu_route(const um_cu_batch *b, const um_cu_moe *a, const um_cu_routes *out, cudaStream_t s);

#endif
