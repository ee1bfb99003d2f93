/* The kernels by which the ranks of a group exchange results. Each rank gets the results of all others over NVLink or
 * PCIe and adds them itself, so one exchange is enough, and all ranks have the same sums. Small results are pushed to
 * the others; large ones are read by the others after all ranks have met. Results of other processes are brought to
 * this GPU first. All ways have the same sums. */
#include "cuda/ranks.cuh"

static constexpr size_t THREADS = 512, BLOCKS_MAX = 264, CHUNK = 8;
static_assert(BLOCKS_MAX <= UM_CU_MEET_BLOCKS, "all blocks can meet");

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
    if (!n) return;
    um_cu_bring(*p, s);
    um_cu_start(sum_kernel, dim3(blocks_of(n / CHUNK)), dim3(THREADS), 0, s, *p, n, add, y);
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
    if (!n) return;
    um_cu_bring(*p, s);
    um_cu_start(merge_kernel, dim3(blocks_of(n)), dim3(THREADS), 0, s, *p, first, end, largest, n, y);
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

/* ---- Rows of several processes ----------------------------------------------------------------------------------- */

/* The rows of each rank lie one behind the other in the exchange, those of rank r from byte at[r] on. */
typedef struct packed_rows {
    um_cu_gather g;
    size_t at[UM_RANKS_MAX + 1];
} packed_rows;

static size_t aligned(size_t bytes) { return UM_CEIL_DIV(bytes, (size_t)16) * 16; }

/* With parts of n ranks, each may end with up to 16 bytes of padding. */
size_t um_cu_gather_bytes(int32_t rows, size_t words) {
    return um_mul(um_mul((size_t)rows, words), sizeof(uint32_t)) + UM_RANKS_MAX * 16;
}

/* Copies the rows of the ranks [first, end) to the exchange, or from there. */
static __global__ void __launch_bounds__(THREADS)
    pack_kernel(const packed_rows p, int32_t first, int32_t end, bool out) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    uint32_t *rows = p.g.base[p.g.at.index];
    for (int32_t r = first; r < end; r++) {
        uint32_t *packed = (uint32_t *)((char *)p.g.exchange + p.at[r]);
        const size_t width = (size_t)(p.g.first[r + 1] - p.g.first[r]), n = width * (size_t)p.g.rows;
        for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (size_t)gridDim.x * THREADS) {
            uint32_t *word = rows + i / width * p.g.stride + (size_t)p.g.first[r] + i % width;
            if (out) packed[i] = *word;
            else *word = packed[i];
        }
    }
}

static void gather_apart(const um_cu_gather *g, cudaStream_t s) {
    packed_rows p = {*g, {}};
    const int32_t own = g->at.index, n = g->at.n;
    for (int32_t r = 0; r < n; r++) {
        const size_t words = r ? (size_t)(g->first[r + 1] - g->first[r]) * (size_t)g->rows : 0;
        p.at[r + 1] = p.at[r] + aligned(words * sizeof(uint32_t));
    }
    const dim3 grid(blocks_of((p.at[n] - p.at[1]) / sizeof(uint32_t)));
    if (own > 0) um_cu_start(pack_kernel, grid, dim3(THREADS), 0, s, p, own, own + 1, true);
    um_cu_comm_collect(g->at.comm, g->exchange, p.at, s);
    if (own == 0) um_cu_start(pack_kernel, grid, dim3(THREADS), 0, s, p, 1, n, false);
}

void um_cu_gather_rows(const um_cu_gather *g, cudaStream_t s) {
    const size_t n = (size_t)(g->first[g->at.n] - g->first[1]) * (size_t)g->rows;
    if (g->at.comm) gather_apart(g, s);
    else um_cu_start(gather_kernel, dim3(blocks_of(n)), dim3(THREADS), 0, s, *g);
}

static __global__ void barrier_kernel(um_cu_meeting at) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    um_cu_meet(at);
}

void um_cu_barrier(const um_cu_meeting *at, cudaStream_t s) {
    if (!at->comm) um_cu_start(barrier_kernel, dim3(1), dim3(32), 0, s, *at);
}
