/* The kernels by which the ranks of a group exchange results. Each rank gets the results of all others over NVLink or
 * PCIe and adds them itself, so one exchange is enough, and all ranks have the same sums. Small results are pushed to
 * the others; large ones are read by the others after all ranks have met. Both ways have the same sums. */
#include "cuda/ranks.cuh"

static constexpr size_t THREADS = 512, BLOCKS_MAX = 264, CHUNK = 8;

static unsigned blocks_of(size_t n) { return (unsigned)UM_MAX(UM_MIN(UM_CEIL_DIV(n, THREADS), BLOCKS_MAX), (size_t)1); }

static __global__ void __launch_bounds__(THREADS) sum_kernel(um_cu_partials p, size_t n, bool add, float *y) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    um_cu_await_parts(p);
    const size_t step = (size_t)gridDim.x * THREADS;
    for (size_t c = (size_t)blockIdx.x * THREADS + threadIdx.x; c < n / CHUNK; c += step) {
        float sum[CHUNK] = {};
        um_cu_add_parts(p, c * CHUNK, sum);
        float4 *to = (float4 *)(y + c * CHUNK);
        float4 a = add ? to[0] : make_float4(0, 0, 0, 0), b = add ? to[1] : a;
        a.x += sum[0], a.y += sum[1], a.z += sum[2], a.w += sum[3];
        b.x += sum[4], b.y += sum[5], b.z += sum[6], b.w += sum[7];
        to[0] = a, to[1] = b;
    }
    for (size_t i = n / CHUNK * CHUNK + blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
        float sum = 0;
        for (int r = 0; r < p.at.n; r++)
            sum += p.type == UM_BF16 ? __bfloat162float(((const volatile um_bf16 *)p.part[r])[i])
                                     : um_cu_load_peer((const float *)p.part[r] + i);
        y[i] = add ? y[i] + sum : sum;
    }
}

void um_cu_sum(const um_cu_partials *p, size_t n, bool add, float *y, cudaStream_t s) {
    if (n) um_cu_start(sum_kernel, dim3(blocks_of(n / CHUNK)), dim3(THREADS), 0, s, *p, n, add, y);
}

static __global__ void __launch_bounds__(THREADS)
    merge_kernel(um_cu_partials p, int32_t first, int32_t end, bool largest, size_t n, float *y) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    um_cu_meet(p.at);
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (size_t)gridDim.x * THREADS) {
        float all = um_cu_load_peer((const float *)p.part[first] + i);
        for (int32_t r = first + 1; r < end; r++) {
            const float one = um_cu_load_peer((const float *)p.part[r] + i);
            all = largest ? fmaxf(all, one) : all + one;
        }
        y[i] = all;
    }
}

void um_cu_merge(const um_cu_partials *p, int32_t first, int32_t end, bool largest, size_t n, float *y,
                 cudaStream_t s) {
    if (n) um_cu_start(merge_kernel, dim3(blocks_of(n)), dim3(THREADS), 0, s, *p, first, end, largest, n, y);
}

static __global__ void __launch_bounds__(THREADS) gather_kernel(um_cu_gather g) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    um_cu_meet(g.at);
    if (g.at.index > 0) return;
    const size_t width = (size_t)(g.first[g.at.n] - g.first[1]), n = width * (size_t)g.rows;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (size_t)gridDim.x * THREADS) {
        const int32_t word = g.first[1] + (int32_t)(i % width);
        const size_t at = i / width * g.stride + (size_t)word;
        int r = 1;
        while (word >= g.first[r + 1]) r++;
        g.base[0][at] = um_cu_load_peer(g.base[r] + at);
    }
}

void um_cu_gather_rows(const um_cu_gather *g, cudaStream_t s) {
    const size_t n = (size_t)(g->first[g->at.n] - g->first[1]) * (size_t)g->rows;
    um_cu_start(gather_kernel, dim3(blocks_of(n)), dim3(THREADS), 0, s, *g);
}

static __global__ void barrier_kernel(um_cu_meeting at) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    um_cu_meet(at);
}

void um_cu_barrier(const um_cu_meeting *at, cudaStream_t s) {
    um_cu_start(barrier_kernel, dim3(1), dim3(32), 0, s, *at);
}
