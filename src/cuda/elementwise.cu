/* elementwise: embedding, rounding to e4m3, gate, biases and saved rows. The rate of the memory limits these
 * operations. */
#include "cuda/fp8.cuh"
#include "cuda/mma.cuh"
#include "cuda/route.cuh"
#include "cuda/rows.cuh"

enum { FLAT_THREADS = 256 };

/* ---- Embedding --------------------------------------------------------------------------------------------------- */

/* Returns the sum over the blend's rows of w[k] * |row k| to all threads. A warp computes the length of one row. */
template <typename E, int W>
static __device__ float blend_length(const E *table, const int32_t *id, const float *weight, int32_t n, int32_t H) {
    __shared__ float length[WARPS_MAX];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, n_warps = blockDim.x / WARP;
    float sum = 0;
    for (int32_t first = 0; first < n; first += n_warps) {
        if (first + warp < n) {
            const E *row = table + (size_t)id[first + warp] * H;
            float square = 0, v[W];
            for (int32_t i = lane * W; i < H; i += WARP * W) {
                load<W>(row + i, v);
#pragma unroll
                for (int j = 0; j < W; j++) square += v[j] * v[j];
            }
            square = warp_sum(square);
            if (lane == 0) length[warp] = sqrtf(square);
        }
        __syncthreads();
        for (int32_t k = first; k < n && k < first + n_warps; k++) sum += weight[k] * length[k - first];
        __syncthreads();
    }
    return sum;
}

/* Grid: a block for each token. A thread reads only those elements of x that it has written itself. */
template <typename E, int W>
static __global__ void __launch_bounds__(1024)
    embed_kernel(um_cu_batch b, const E *table, int32_t H, float scale, float *x) {
    um_cu_wait_for_previous();
    um_cu_let_next_start(); /* after the wait, since later kernels read the message before their own wait */
    const int32_t t = blockIdx.x, soft_at = b.soft[t], first = threadIdx.x * W, step = blockDim.x * W;
    float v[W];
    x += (size_t)t * H;
    if (soft_at < 0) {
        const E *row = table + (size_t)b.id[t] * H;
        for (int32_t i = first; i < H; i += step) {
            load<W>(row + i, v);
#pragma unroll
            for (int j = 0; j < W; j++) v[j] *= scale;
            store<W>(x + i, v);
        }
        return;
    }
    const um_message_soft soft = *um_cu_at<um_message_soft>(b, soft_at);
    const int32_t *id = um_cu_at<int32_t>(b, soft.id);
    const float *weight = um_cu_at<float>(b, soft.w);
    float square = 0, by = scale;
    for (int32_t i = first; i < H; i += step) {
        float sum[W] = {};
        for (int32_t k = 0; k < soft.n; k++) {
            load<W>(table + (size_t)id[k] * H + i, v);
#pragma unroll
            for (int j = 0; j < W; j++) sum[j] += weight[k] * v[j];
        }
        store<W>(x + i, sum);
#pragma unroll
        for (int j = 0; j < W; j++) square += sum[j] * sum[j];
    }
    if (soft.renormalize) {
        const float target = blend_length<E, W>(table, id, weight, soft.n, H);
        by *= target / fmaxf(sqrtf(block_sum(square)), 1e-12f);
    }
    for (int32_t i = first; i < H; i += step) {
        load<W>(x + i, v);
#pragma unroll
        for (int j = 0; j < W; j++) v[j] *= by;
        store<W>(x + i, v);
    }
}

template <typename E>
static void embed(const um_cu_batch *b, const um_cu_matrix *w, float scale, float *x, cudaStream_t s) {
    const unsigned n = (unsigned)b->capacity.n_tokens, threads = row_threads(w->in);
    const E *table = (const E *)w->data;
    if (chunk_of(w->in) == CHUNK)
        um_cu_start(embed_kernel<E, CHUNK>, dim3(n), dim3(threads), 0, s, *b, table, w->in, scale, x);
    else um_cu_start(embed_kernel<E, 1>, dim3(n), dim3(threads), 0, s, *b, table, w->in, scale, x);
}

void um_cu_embed(const um_cu_batch *b, const um_cu_matrix *w, float scale, float *x, cudaStream_t s) {
    if (b->capacity.n_tokens == 0) return;
    if (w->type == UM_BF16) embed<um_bf16>(b, w, scale, x, s);
    else embed<float>(b, w, scale, x, s);
}

/* ---- Rounding to e4m3 -------------------------------------------------------------------------------------------- */

/* Rounds the block's row of n elements: finds the largest magnitude, then the scale, then the codes; the second time
 * the row comes from the cache. POWER: the scale is a power of two. */
template <typename E, bool POWER, int W>
static __device__ __forceinline__ void quantize_row(const E *x, int32_t n, unsigned char *code, float *scale) {
    __shared__ float part[WARPS_MAX];
    const size_t row = (size_t)blockIdx.x * n;
    float most = 0, v[W];
    for (int32_t i = threadIdx.x * W; i < n; i += FLAT_THREADS * W) {
        load<W>(x + row + i, v);
#pragma unroll
        for (int j = 0; j < W; j++) most = um_cu_larger(most, fabsf(v[j]));
    }
    most = um_cu_block_most(most, part);
    const float by = POWER ? um_cu_power_scale(most) : um_cu_scale(most), inverse = 1 / by;
    for (int32_t i = threadIdx.x * W; i < n; i += FLAT_THREADS * W) {
        load<W>(x + row + i, v);
#pragma unroll
        for (int j = 0; j < W; j++) v[j] = POWER ? v[j] * inverse : __fdiv_rn(v[j], by);
        if constexpr (W == CHUNK) um_cu_store_codes(code + row + i, v);
        else code[row + i] = um_cu_code(v[0]);
    }
    if (threadIdx.x == 0) scale[blockIdx.x] = by;
}

/* Grid: a block for each row. */
template <typename E, bool POWER, int W>
static __global__ void __launch_bounds__(FLAT_THREADS)
    quantize_kernel(const E *x, int32_t n, unsigned char *code, float *scale) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    quantize_row<E, POWER, W>(x, n, code, scale);
}

/* Grid: a block for each pair. Padding and the pairs of experts of other ranks are left out. */
template <int W>
static __global__ void __launch_bounds__(FLAT_THREADS)
    quantize_pairs_kernel(um_cu_pairs p, int32_t n, unsigned char *code, float *scale) {
    const int t = blockIdx.x / p.top_k, k = blockIdx.x % p.top_k;
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    if (t >= um_cu_header(p.b)->n_tokens) return;
    const int2 own = um_cu_own_pairs(p, t);
    if (k >= own.x && k < own.y) quantize_row<um_bf16, true, W>((const um_bf16 *)p.out, n, code, scale);
}

template <bool POWER, typename E>
static void quantize(const E *x, int32_t rows, int32_t n, const um_cu_coded *out, cudaStream_t s) {
    const dim3 grid((unsigned)rows), block(FLAT_THREADS);
    if (rows == 0) return;
    if (chunk_of(n) == CHUNK)
        um_cu_start(quantize_kernel<E, POWER, CHUNK>, grid, block, 0, s, x, n, out->code, out->scale);
    else um_cu_start(quantize_kernel<E, POWER, 1>, grid, block, 0, s, x, n, out->code, out->scale);
}

void um_cu_quantize_pairs(const um_cu_pairs *pairs, int32_t n, const um_cu_coded *out, cudaStream_t s) {
    const dim3 grid((unsigned)(pairs->b.capacity.n_tokens * pairs->top_k)), block(FLAT_THREADS);
    if (grid.x == 0) return;
    if (chunk_of(n) == CHUNK)
        um_cu_start(quantize_pairs_kernel<CHUNK>, grid, block, 0, s, *pairs, n, out->code, out->scale);
    else um_cu_start(quantize_pairs_kernel<1>, grid, block, 0, s, *pairs, n, out->code, out->scale);
}

void um_cu_quantize(const um_bf16 *x, int32_t T, int32_t n, const um_cu_coded *out, cudaStream_t s) {
    quantize<true>(x, T, n, out, s);
}

void um_cu_quantize_weights(const void *w, um_dtype type, int32_t rows, int32_t in, const um_cu_coded *out,
                            cudaStream_t s) {
    if (type == UM_BF16) quantize<false>((const um_bf16 *)w, rows, in, out, s);
    else quantize<false>((const float *)w, rows, in, out, s);
}

/* Grid: a block for each row. */
static __global__ void __launch_bounds__(FLAT_THREADS)
    quantize_blocks_kernel(const float *w, int32_t in, const float *block, int32_t stride, unsigned char *code,
                           float *scale) {
    const size_t row = blockIdx.x;
    const float *of_row = block + row / UM_CU_BLOCK * stride;
    for (int32_t i = threadIdx.x; i < in; i += FLAT_THREADS) {
        const float by = of_row[i / UM_CU_BLOCK], v = w[row * in + i];
        code[row * in + i] = um_cu_code(by != 0 ? __fdiv_rn(v, by) : v);
    }
    if (threadIdx.x == 0) scale[row] = 1;
}

void um_cu_quantize_blocks(const float *w, const um_cu_matrix *m, cudaStream_t s) {
    if (m->rows == 0) return;
    quantize_blocks_kernel<<<(unsigned)m->rows, FLAT_THREADS, 0, s>>>(w, m->in, m->block, um_cu_block_stride(m->in),
                                                                      (unsigned char *)m->data, m->scale);
}

/* Grid: [blocks of rows, n]. */
static __global__ void repeat_scales_kernel(const float *scale, int32_t T, float *out) {
    const int32_t t = blockIdx.x * FLAT_THREADS + threadIdx.x;
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    if (t < T) out[(size_t)blockIdx.y * T + t] = scale[t];
}

void um_cu_repeat_scales(const float *scale, int32_t T, int32_t n, float *out, cudaStream_t s) {
    if (T == 0) return;
    um_cu_start(repeat_scales_kernel, dim3((unsigned)UM_CEIL_DIV(T, FLAT_THREADS), (unsigned)n), dim3(FLAT_THREADS), 0,
                s, scale, T, out);
}

/* ---- Gate, biases, saved rows ------------------------------------------------------------------------------------ */

/* Grid of the kernels below: [rows, blocks of FLAT_THREADS chunks of a row]. */
static dim3 flat_grid(int32_t rows, int32_t width) {
    return dim3((unsigned)rows, (unsigned)UM_CEIL_DIV(width / chunk_of(width), FLAT_THREADS));
}
template <int W> static __device__ __forceinline__ int32_t flat_index() {
    return (int32_t)(blockIdx.y * FLAT_THREADS + threadIdx.x) * W;
}

template <typename E, int W> static __global__ void gate_kernel(const E *gu, int32_t n, um_act act, E *y) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    const int32_t i = flat_index<W>();
    const size_t t = blockIdx.x;
    float gate[W], up[W];
    if (i >= n) return;
    load<W>(gu + 2 * t * n + i, gate);
    load<W>(gu + (2 * t + 1) * n + i, up);
#pragma unroll
    for (int j = 0; j < W; j++) gate[j] = um_cu_activate(act, gate[j]) * up[j];
    store<W>(y + t * n + i, gate);
}

static constexpr int GATE_CHUNKS = 2; /* of a thread of gate_codes_kernel, at most */

/* The codes of the gate's output. Grid: a block for each row. */
static __global__ void __launch_bounds__(1024)
    gate_codes_kernel(const um_bf16 *gu, int32_t n, um_act act, um_cu_coded coded) {
    __shared__ float part[WARPS_MAX];
    const size_t t = blockIdx.x;
    float y[GATE_CHUNKS][CHUNK], most = 0;
    um_cu_let_next_start();
    um_cu_wait_for_previous();
#pragma unroll
    for (int c = 0; c < GATE_CHUNKS; c++) {
        const int32_t i = (int32_t)(c * blockDim.x + threadIdx.x) * CHUNK;
        float up[CHUNK];
        if (i >= n) continue;
        load<CHUNK>(gu + 2 * t * n + i, y[c]);
        load<CHUNK>(gu + (2 * t + 1) * n + i, up);
#pragma unroll
        for (int j = 0; j < CHUNK; j++) {
            y[c][j] = __bfloat162float(__float2bfloat16_rn(um_cu_activate(act, y[c][j]) * up[j]));
            most = um_cu_larger(most, fabsf(y[c][j]));
        }
    }
    const float by = um_cu_power_scale(um_cu_block_most(most, part)), inverse = 1 / by;
#pragma unroll
    for (int c = 0; c < GATE_CHUNKS; c++) {
        const int32_t i = (int32_t)(c * blockDim.x + threadIdx.x) * CHUNK;
        if (i >= n) continue;
#pragma unroll
        for (int j = 0; j < CHUNK; j++) y[c][j] *= inverse;
        um_cu_store_codes(coded.code + t * n + i, y[c]);
    }
    if (threadIdx.x == 0) coded.scale[t] = by;
}

template <typename E> static void gate(const E *gu, int32_t T, int32_t n, um_act act, E *y, cudaStream_t s) {
    const dim3 grid = flat_grid(T, n);
    if (chunk_of(n) == CHUNK) um_cu_start(gate_kernel<E, CHUNK>, grid, dim3(FLAT_THREADS), 0, s, gu, n, act, y);
    else um_cu_start(gate_kernel<E, 1>, grid, dim3(FLAT_THREADS), 0, s, gu, n, act, y);
}

void um_cu_gate(const void *gu, int32_t T, int32_t n, um_act act, um_dtype type, void *y, const um_cu_coded *coded,
                cudaStream_t s) {
    if (T == 0) return;
    if (coded && n % CHUNK == 0 && n / CHUNK <= GATE_CHUNKS * WARPS_MAX * WARP) {
        const int32_t warps = UM_CEIL_DIV(UM_CEIL_DIV(n / CHUNK, GATE_CHUNKS), WARP);
        um_cu_start(gate_codes_kernel, dim3((unsigned)T), dim3((unsigned)warps * WARP), 0, s, (const um_bf16 *)gu, n,
                    act, *coded);
        return;
    }
    if (type == UM_BF16) gate((const um_bf16 *)gu, T, n, act, (um_bf16 *)y, s);
    else gate((const float *)gu, T, n, act, (float *)y, s);
    if (coded) um_cu_quantize((const um_bf16 *)y, T, n, coded, s);
}

template <typename E, int W> static __global__ void add_bias_kernel(E *y, const float *bias, int32_t n) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    const int32_t i = flat_index<W>();
    float sum[W], more[W];
    if (i >= n) return;
    y += (size_t)blockIdx.x * n + i;
    load<W>(y, sum);
    load<W>(bias + i, more);
#pragma unroll
    for (int j = 0; j < W; j++) sum[j] += more[j];
    store<W>(y, sum);
}

template <typename E> static void add_bias(E *y, const float *bias, int32_t T, int32_t n, cudaStream_t s) {
    const dim3 grid = flat_grid(T, n);
    if (chunk_of(n) == CHUNK) um_cu_start(add_bias_kernel<E, CHUNK>, grid, dim3(FLAT_THREADS), 0, s, y, bias, n);
    else um_cu_start(add_bias_kernel<E, 1>, grid, dim3(FLAT_THREADS), 0, s, y, bias, n);
}

void um_cu_add_bias(void *y, const float *bias, int32_t T, int32_t n, um_dtype type, cudaStream_t s) {
    if (T == 0) return;
    if (type == UM_BF16) add_bias((um_bf16 *)y, bias, T, n, s);
    else add_bias((float *)y, bias, T, n, s);
}

template <int W>
static __global__ void save_kernel(const int32_t (*save)[2], const float *hidden, float *saved, int32_t H) {
    const int32_t i = flat_index<W>(), from = save[blockIdx.x][0], to = save[blockIdx.x][1];
    float v[W];
    if (from < 0 || i >= H) return;
    load<W>(hidden + (size_t)from * H + i, v);
    store<W>(saved + (size_t)to * H + i, v);
}

void um_cu_save(const um_cu_batch *b, const float *hidden, float *saved, int32_t H, cudaStream_t s) {
    if (b->capacity.n_spans == 0) return;
    const dim3 grid = flat_grid(b->capacity.n_spans, H);
    if (chunk_of(H) == CHUNK) save_kernel<CHUNK><<<grid, FLAT_THREADS, 0, s>>>(b->save, hidden, saved, H);
    else save_kernel<1><<<grid, FLAT_THREADS, 0, s>>>(b->save, hidden, saved, H);
}
