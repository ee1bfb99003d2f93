/* Adapters: y[t] += B (A x[t]) for the tokens of spans with an adapter. Two kernels compute the two products. A CTA
 * computes 8 tokens, and reads a matrix once for adjacent tokens with the same adapter. The order of a sum depends only
 * on the shape of its matrix. */
#include "cuda/kernels.cuh"
#include "cuda/mma.cuh"

enum { WARP = 32, TOKENS = 8, ROWS = 4, DOWN_THREADS = 256, UP_THREADS = 128 };
static_assert(ROWS * TOKENS == WARP, "a lane has one sum of its CTA");

/* The tokens of a CTA. */
typedef struct group {
    int adapter[TOKENS]; /* -1: none that changes this layer */
    int rank[TOKENS];    /* 0 without an adapter */
} group;

/* Adjacent tokens of a group with the same adapter. */
typedef struct run {
    int first, end; /* tokens [first, end) of the group */
    um_cu_low_rank m;
} run;

static __device__ void find_adapters(const um_cu_batch &b, const um_cu_low_rank *low_rank, int first, group *g) {
    const int i = threadIdx.x, t = first + i;
    if (i < TOKENS) {
        const int span = t < b.capacity.n_tokens ? b.span_of[t] : -1;
        const int index = span < 0 ? -1 : b.span[span].adapter;
        const um_cu_low_rank m = index < 0 ? um_cu_low_rank{} : low_rank[index];
        g->adapter[i] = m.a.data ? index : -1;
        g->rank[i] = m.a.data ? m.b.in : 0;
    }
    __syncthreads();
}

/* Finds the next run from r->end on. Returns false when there is none. */
static __device__ bool next_run(const group *g, const um_cu_low_rank *low_rank, run *r) {
    int i = r->end;
    while (i < TOKENS && g->adapter[i] < 0) i++;
    if (i == TOKENS) return false;
    r->first = i;
    while (i < TOKENS && g->adapter[i] == g->adapter[r->first]) i++;
    r->end = i;
    r->m = low_rank[g->adapter[r->first]];
    return true;
}

static __device__ bool contains(const run &r, int token) { return token >= r.first && token < r.end; }

/* Requests rows [row, row + n) of a matrix for the L2 cache. All threads call it. */
template <typename E> static __device__ void request_rows(const um_cu_matrix &m, int row, int n) {
    enum { LINE = 128 };
    const char *from = (const char *)m.data + (size_t)row * m.in * sizeof(E);
    const size_t bytes = (size_t)max(0, min(n, (int)m.rows - row)) * m.in * sizeof(E);
    for (size_t at = threadIdx.x * LINE; at < bytes; at += blockDim.x * LINE)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from + at));
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

/* Returns in lane i the sum of v[i] over all lanes; N is WARP. Destroys v. */
template <int N> static __device__ __forceinline__ float sum_lanes(float *v) {
    constexpr int half = N / 2;
    if constexpr (N == 1) return v[0];
    else {
        const bool upper = threadIdx.x & half; /* the lane keeps the upper half of the values */
#pragma unroll
        for (int i = 0; i < half; i++) {
            const float a = v[i], b = v[i + half];
            v[i] = (upper ? b : a) + __shfl_xor_sync(0xffffffffu, upper ? a : b, half);
        }
        return sum_lanes<half>(v);
    }
}

/* low[t, r] = A[r] x[t], rounded to E, for ROWS rows and the tokens of a group. Each thread adds every
 * DOWN_THREADS-th chunk of N elements. */
template <typename E, int N>
static __global__ void __launch_bounds__(DOWN_THREADS, 2)
    down_kernel(um_cu_batch b, const um_cu_low_rank *low_rank, int in, int rank_max, const E *x, float *low) {
    __shared__ group g;
    __shared__ float part[DOWN_THREADS / WARP][WARP];
    const int lane = threadIdx.x % WARP, row = blockIdx.y * ROWS, first = blockIdx.x * TOKENS;
    um_cu_let_next_start();
    find_adapters(b, low_rank, first, &g);
    for (run r = {}; next_run(&g, low_rank, &r);) request_rows<E>(r.m.a, row, ROWS);
    um_cu_wait_for_previous();
    for (run r = {}; next_run(&g, low_rank, &r);) {
        if (row >= r.m.a.rows) continue;
        float sum[ROWS * TOKENS] = {};
        for (int k = threadIdx.x * N; k < in; k += DOWN_THREADS * N) {
            float v[TOKENS][N], w[N];
#pragma unroll
            for (int i = 0; i < TOKENS; i++) /* also of other runs: a test would delay the next read */
                read<E, N>(x + (size_t)min(first + i, b.capacity.n_tokens - 1) * in + k, v[i]);
#pragma unroll
            for (int o = 0; o < ROWS; o++) {
                read<E, N>((const E *)r.m.a.data + (size_t)min(row + o, (int)r.m.a.rows - 1) * in + k, w);
#pragma unroll
                for (int i = 0; i < TOKENS; i++)
#pragma unroll
                    for (int j = 0; j < N; j++) sum[o * TOKENS + i] = fmaf(w[j], v[i][j], sum[o * TOKENS + i]);
            }
        }
        part[threadIdx.x / WARP][lane] = sum_lanes<WARP>(sum);
        __syncthreads();
        const int token = lane % TOKENS, o = row + lane / TOKENS;
        if (threadIdx.x < WARP && contains(r, token) && o < r.m.a.rows) {
            float all = 0;
#pragma unroll
            for (int i = 0; i < DOWN_THREADS / WARP; i++) all += part[i][lane];
            low[(size_t)(first + token) * rank_max + o] = um_cu_float(um_cu_operand<E>(all));
        }
        __syncthreads();
    }
}

/* Computes sum[i] = B[o] low[i] for all tokens of a group, in the order of the rank. low [TOKENS, stride]. */
template <typename E, int N>
static __device__ __forceinline__ void multiply_row(const um_cu_matrix &b, int o, const float *low, int stride,
                                                    float sum[TOKENS]) {
    constexpr int M = N == 1 ? 1 : 4; /* floats of low in a read */
    const E *weights = (const E *)b.data + (size_t)o * b.in;
#pragma unroll 4
    for (int k = 0; k < b.in; k += N) {
        float w[N], v[M];
        read<E, N>(weights + k, w);
#pragma unroll
        for (int i = 0; i < TOKENS; i++) {
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
static __global__ void __launch_bounds__(UP_THREADS)
    up_kernel(um_cu_batch b, const um_cu_low_rank *low_rank, int out, int rank_max, const float *low, Y *y) {
    extern __shared__ __align__(16) float copy[]; /* [TOKENS, stride] of low */
    __shared__ group g;
    constexpr int N = 16 / sizeof(E);
    const int o = blockIdx.x * UP_THREADS + threadIdx.x, stride = UM_CEIL_DIV(rank_max, 4) * 4;
    const int first = blockIdx.y * TOKENS;
    um_cu_let_next_start();
    find_adapters(b, low_rank, first, &g);
    for (run r = {}; next_run(&g, low_rank, &r);) request_rows<E>(r.m.b, blockIdx.x * UP_THREADS, UP_THREADS);
    um_cu_wait_for_previous();
    float total[TOKENS];
#pragma unroll
    for (int i = 0; i < TOKENS; i++)
        total[i] = g.rank[i] && o < out ? um_cu_float(y[(size_t)(first + i) * out + o]) : 0;
    for (int i = threadIdx.x; i < TOKENS * rank_max; i += UP_THREADS) {
        const int token = i / rank_max, r = i % rank_max;
        if (r < g.rank[token]) copy[token * stride + r] = low[(size_t)first * rank_max + i];
    }
    __syncthreads();
    if (o >= out) return;
    for (run r = {}; next_run(&g, low_rank, &r);) {
        float sum[TOKENS] = {};
        if (r.m.b.in % N) multiply_row<E, 1>(r.m.b, o, copy, stride, sum);
        else multiply_row<E, N>(r.m.b, o, copy, stride, sum);
#pragma unroll
        for (int i = 0; i < TOKENS; i++)
            if (contains(r, i)) y[(size_t)(first + i) * out + o] = um_cu_operand<Y>(total[i] + sum[i]);
    }
}

template <typename E>
static void start_down(const um_cu_batch *b, const um_cu_low_rank *low_rank, int32_t in, int32_t rank_max, const E *x,
                       float *low, cudaStream_t s) {
    constexpr int N = 16 / sizeof(E);
    const dim3 grid(UM_CEIL_DIV(b->capacity.n_tokens, TOKENS), UM_CEIL_DIV(rank_max, ROWS));
    um_cu_start(in % N ? down_kernel<E, 1> : down_kernel<E, N>, grid, dim3(DOWN_THREADS), 0, s, *b, low_rank, in,
                rank_max, x, low);
}

void um_cu_low_rank_down(const um_cu_batch *b, const um_cu_low_rank *low_rank, int32_t in, int32_t rank_max,
                         um_dtype type, const void *x, float *low, cudaStream_t s) {
    if (type == UM_F32) start_down(b, low_rank, in, rank_max, (const float *)x, low, s);
    else start_down(b, low_rank, in, rank_max, (const um_bf16 *)x, low, s);
}

template <typename E, typename Y>
static void start_up(const um_cu_batch *b, const um_cu_low_rank *low_rank, int32_t out, int32_t rank_max,
                     const float *low, Y *y, cudaStream_t s) {
    const dim3 grid(UM_CEIL_DIV(out, UP_THREADS), UM_CEIL_DIV(b->capacity.n_tokens, TOKENS));
    const size_t shared = (size_t)TOKENS * UM_CEIL_DIV(rank_max, 4) * 4 * sizeof(float);
    cudaFuncSetAttribute(up_kernel<E, Y>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    um_cu_start(up_kernel<E, Y>, grid, dim3(UP_THREADS), shared, s, *b, low_rank, out, rank_max, low, y);
}

void um_cu_low_rank_up(const um_cu_batch *b, const um_cu_low_rank *low_rank, int32_t out, int32_t rank_max,
                       um_dtype type, const float *low, um_dtype y_type, void *y, cudaStream_t s) {
    if (type == UM_F32 && y_type == UM_F32) start_up<float>(b, low_rank, out, rank_max, low, (float *)y, s);
    else if (type == UM_F32) start_up<float>(b, low_rank, out, rank_max, low, (um_bf16 *)y, s);
    else if (y_type == UM_F32) start_up<um_bf16>(b, low_rank, out, rank_max, low, (float *)y, s);
    else start_up<um_bf16>(b, low_rank, out, rank_max, low, (um_bf16 *)y, s);
}
