/* Adapters: y[t] += B (A x[t]) for the tokens of spans with an adapter. Two kernels compute the two products. A group
 * of 8 tokens shares the reads of the matrices as far as adjacent tokens have the same adapter. The order of a sum
 * depends only on the shape of its matrix. */
#include "cuda/kernels.cuh"

enum { TOKENS = 8, THREADS = 256 };

/* Adjacent tokens of a group with the same adapter. */
typedef struct run {
    int first, end; /* tokens [first, end) of the group */
    um_cu_low_rank m;
} run;

/* Writes to adapter [TOKENS] the adapter of each token of the CTA's group; -1: none that changes this layer. */
static __device__ void find_adapters(const um_cu_batch &b, const um_cu_low_rank *low_rank, int group, int *adapter) {
    const int i = threadIdx.x, t = group * TOKENS + i;
    if (i < TOKENS) {
        const int span = t < b.capacity.n_tokens ? b.span_of[t] : -1;
        const int index = span < 0 ? -1 : b.span[span].adapter;
        adapter[i] = index < 0 || !low_rank[index].a.data ? -1 : index;
    }
    __syncthreads();
}

/* Finds the next run from r->end on. Returns false when there is none. */
static __device__ bool next_run(const int *adapter, const um_cu_low_rank *low_rank, run *r) {
    int i = r->end;
    while (i < TOKENS && adapter[i] < 0) i++;
    if (i == TOKENS) return false;
    r->first = i;
    while (i < TOKENS && adapter[i] == adapter[r->first]) i++;
    r->end = i;
    r->m = low_rank[adapter[r->first]];
    return true;
}

/* Reads N adjacent elements as floats; N elements are 16 bytes, or N is 1. */
template <typename E, int N> static __device__ __forceinline__ void read(const E *from, float v[N]) {
    if constexpr (N == 1) v[0] = um_cu_float(*from);
    else {
        static_assert(N * sizeof(E) == sizeof(uint4), "a read has 16 bytes");
        const uint4 raw = *(const uint4 *)from;
        E e[N];
        memcpy(e, &raw, sizeof raw);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = um_cu_float(e[i]);
    }
}

/* low[t, r] = A[r] x[t], rounded to E. One warp per row of A; N elements per read. */
template <typename E, int N>
static __global__ void __launch_bounds__(THREADS)
    down_kernel(um_cu_batch b, const um_cu_low_rank *low_rank, int in, int rank_max, const E *x, float *low) {
    __shared__ int adapter[TOKENS];
    const int lane = threadIdx.x % 32, row = blockIdx.y * (THREADS / 32) + threadIdx.x / 32;
    const size_t group = (size_t)blockIdx.x * TOKENS;
    find_adapters(b, low_rank, blockIdx.x, adapter);
    for (run r = {}; next_run(adapter, low_rank, &r);) {
        if (row >= r.m.a.rows) continue;
        const E *weights = (const E *)r.m.a.data + (size_t)row * in;
        float sum[TOKENS] = {};
#pragma unroll 2
        for (int k = lane * N; k < in; k += 32 * N) {
            float w[N], v[N];
            read<E, N>(weights + k, w);
#pragma unroll
            for (int i = 0; i < TOKENS; i++) {
                if (i < r.first || i >= r.end) continue;
                read<E, N>(x + (group + i) * in + k, v);
#pragma unroll
                for (int j = 0; j < N; j++) sum[i] = fmaf(w[j], v[j], sum[i]);
            }
        }
#pragma unroll
        for (int i = 0; i < TOKENS; i++) {
            for (int d = 16; d; d /= 2) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], d);
            if (lane == 0 && i >= r.first && i < r.end)
                low[(group + i) * rank_max + row] = um_cu_float(um_cu_operand<E>(sum[i]));
        }
    }
}

/* Computes sum[i] = B[o] low[i] for the tokens of a run, in the order of the rank. low [TOKENS, stride]. */
template <typename E, int N>
static __device__ __forceinline__ void multiply_row(const run &r, int o, const float *low, int stride,
                                                    float sum[TOKENS]) {
    constexpr int M = N == 1 ? 1 : 4; /* floats of low in a read */
    const int rank = r.m.b.in;
    const E *weights = (const E *)r.m.b.data + (size_t)o * rank;
    for (int k = 0; k < rank; k += N) {
        float w[N], v[M];
        read<E, N>(weights + k, w);
#pragma unroll
        for (int i = 0; i < TOKENS; i++) {
            if (i < r.first || i >= r.end) continue;
#pragma unroll
            for (int j = 0; j < N; j++) {
                if (j % M == 0) read<float, M>(low + i * stride + k + j, v);
                sum[i] = fmaf(w[j], v[j % M], sum[i]);
            }
        }
    }
}

/* y[t, o] += B[o] low[t]. One thread per output of a group. */
template <typename E, typename Y>
static __global__ void __launch_bounds__(THREADS)
    up_kernel(um_cu_batch b, const um_cu_low_rank *low_rank, int out, int rank_max, const float *low, Y *y) {
    extern __shared__ __align__(16) float copy[]; /* [TOKENS, stride] of low */
    __shared__ int adapter[TOKENS];
    constexpr int N = 16 / sizeof(E);
    const int o = blockIdx.x * THREADS + threadIdx.x, stride = UM_CEIL_DIV(rank_max, 4) * 4;
    const size_t group = (size_t)blockIdx.y * TOKENS;
    find_adapters(b, low_rank, blockIdx.y, adapter);
    for (int i = 0; i < TOKENS; i++) {
        const int rank = adapter[i] < 0 ? 0 : low_rank[adapter[i]].b.in;
        for (int r = threadIdx.x; r < rank; r += THREADS) copy[i * stride + r] = low[(group + i) * rank_max + r];
    }
    __syncthreads();
    if (o >= out) return;
    for (run r = {}; next_run(adapter, low_rank, &r);) {
        float sum[TOKENS] = {};
        if (r.m.b.in % N) multiply_row<E, 1>(r, o, copy, stride, sum);
        else multiply_row<E, N>(r, o, copy, stride, sum);
#pragma unroll
        for (int i = 0; i < TOKENS; i++) {
            if (i < r.first || i >= r.end) continue;
            Y *to = y + (group + i) * out + o;
            *to = um_cu_operand<Y>(um_cu_float(*to) + sum[i]);
        }
    }
}

typedef struct call {
    const um_cu_batch *b;
    const um_cu_low_rank *low_rank;
    int32_t in, out, rank_max;
    float *low;
    cudaStream_t stream;
} call;

template <typename E, typename Y> static void start(const call *c, const E *x, Y *y) {
    constexpr int N = 16 / sizeof(E);
    const unsigned groups = UM_CEIL_DIV(c->b->capacity.n_tokens, TOKENS);
    const dim3 down(groups, UM_CEIL_DIV(c->rank_max, THREADS / 32)), up(UM_CEIL_DIV(c->out, THREADS), groups);
    if (c->in % N)
        down_kernel<E, 1><<<down, THREADS, 0, c->stream>>>(*c->b, c->low_rank, c->in, c->rank_max, x, c->low);
    else down_kernel<E, N><<<down, THREADS, 0, c->stream>>>(*c->b, c->low_rank, c->in, c->rank_max, x, c->low);
    const int shared = TOKENS * UM_CEIL_DIV(c->rank_max, 4) * 4 * (int)sizeof(float);
    cudaFuncSetAttribute(up_kernel<E, Y>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    up_kernel<E, Y><<<up, THREADS, shared, c->stream>>>(*c->b, c->low_rank, c->out, c->rank_max, c->low, y);
}

void um_cu_low_rank_add(const um_cu_batch *b, const um_cu_low_rank *low_rank, int32_t in, int32_t out, int32_t rank_max,
                        um_dtype type, const void *x, float *low, um_dtype y_type, void *y, cudaStream_t s) {
    const call c = {b, low_rank, in, out, rank_max, low, s};
    if (type == UM_F32 && y_type == UM_F32) start(&c, (const float *)x, (float *)y);
    else if (type == UM_F32) start(&c, (const float *)x, (um_bf16 *)y);
    else if (y_type == UM_F32) start(&c, (const um_bf16 *)x, (float *)y);
    else start(&c, (const um_bf16 *)x, (um_bf16 *)y);
}
