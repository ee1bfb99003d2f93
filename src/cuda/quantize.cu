/* Rows of e4m3: each row is divided by a scale, and rounded to the nearest number of e4m3. A block computes a row: it
 * finds the largest magnitude, then the scale, then the codes. The row is read twice; the second time it comes from the
 * cache. */
#include "cuda/fp8.cuh"
#include "cuda/mma.cuh"

static constexpr int THREADS = 256, WARPS = THREADS / UM_CU_WARP, CHUNK = 8;

template <int W> static __device__ __forceinline__ void load(const float *p, float v[W]) {
#pragma unroll
    for (int i = 0; i < W; i++) v[i] = p[i];
}
template <int W> static __device__ __forceinline__ void load(const um_bf16 *p, float v[W]) {
    if constexpr (W == CHUNK) {
        const uint4 raw = *(const uint4 *)p;
        const uint32_t pair[CHUNK / 2] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < CHUNK / 2; i++) {
            v[2 * i] = __uint_as_float(pair[i] << 16);
            v[2 * i + 1] = __uint_as_float(pair[i] & 0xffff0000u);
        }
    } else {
#pragma unroll
        for (int i = 0; i < W; i++) v[i] = __bfloat162float(p[i]);
    }
}

/* Grid: a block for each row. POWER: the scale is a power of two. W: CHUNK, or 1 for rows that are no multiple of it.
 */
template <typename E, bool POWER, int W>
static __global__ void __launch_bounds__(THREADS)
    quantize_kernel(const E *x, int32_t n, unsigned char *code, float *scale) {
    __shared__ float part[WARPS];
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    const size_t row = (size_t)blockIdx.x * n;
    float most = 0, v[W];
    for (int32_t i = threadIdx.x * W; i < n; i += THREADS * W) {
        load<W>(x + row + i, v);
#pragma unroll
        for (int j = 0; j < W; j++) most = um_cu_larger(most, fabsf(v[j]));
    }
    most = um_cu_block_most(most, part);
    const float by = POWER ? um_cu_power_scale(most) : um_cu_scale(most), inverse = 1 / by;
    for (int32_t i = threadIdx.x * W; i < n; i += THREADS * W) {
        load<W>(x + row + i, v);
#pragma unroll
        for (int j = 0; j < W; j++) v[j] = POWER ? v[j] * inverse : __fdiv_rn(v[j], by);
        if constexpr (W == CHUNK) um_cu_store_codes(code + row + i, v);
        else code[row + i] = um_cu_code(v[0]);
    }
    if (threadIdx.x == 0) scale[blockIdx.x] = by;
}

void um_cu_quantize(const um_bf16 *x, int32_t T, int32_t n, const um_cu_coded *out, cudaStream_t s) {
    if (T == 0) return;
    const dim3 grid((unsigned)T), block(THREADS);
    if (n % CHUNK == 0)
        um_cu_start(quantize_kernel<um_bf16, true, CHUNK>, grid, block, 0, s, x, n, out->code, out->scale);
    else um_cu_start(quantize_kernel<um_bf16, true, 1>, grid, block, 0, s, x, n, out->code, out->scale);
}

void um_cu_quantize_weights(const void *w, um_dtype type, int32_t rows, int32_t in, const um_cu_coded *out,
                            cudaStream_t s) {
    const dim3 grid((unsigned)rows), block(THREADS);
    if (type == UM_BF16)
        um_cu_start(quantize_kernel<um_bf16, false, 1>, grid, block, 0, s, (const um_bf16 *)w, in, out->code,
                    out->scale);
    else um_cu_start(quantize_kernel<float, false, 1>, grid, block, 0, s, (const float *)w, in, out->code, out->scale);
}
