/* ranks: how the kernels of a rank wait for those of the other ranks of its group (ops/ranks.h). Used inside the room
 * cuda only. */
#ifndef UM_CUDA_RANKS_CUH
#define UM_CUDA_RANKS_CUH

#include "cuda/comm.cuh"
#include "cuda/kernels.cuh"
#include "cuda/mma.cuh"

/* Loads and stores of memory that several GPUs read and write. They bypass the cache of the multiprocessor, which does
 * not see what other GPUs write. */
static __device__ __forceinline__ uint4 um_cu_load_peer(const uint4 *p) {
    uint4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
static __device__ __forceinline__ void um_cu_store_peer(uint4 *p, uint4 v) {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}
static __device__ __forceinline__ uint32_t um_cu_load_peer(const uint32_t *p) {
    uint32_t v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
static __device__ __forceinline__ float um_cu_load_peer(const float *p) {
    return __uint_as_float(um_cu_load_peer((const uint32_t *)p));
}
static __device__ __forceinline__ uint32_t um_cu_acquire(const uint32_t *p) {
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
static __device__ __forceinline__ void um_cu_release(uint32_t *p, uint32_t v) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(p), "r"(v) : "memory");
}

/* Waits until the block with this number has come here on all ranks. Afterwards it sees what their kernels had written
 * before. All threads of the block call it, in a grid of at most UM_CU_MEET_BLOCKS blocks that is the same on all
 * ranks, after um_cu_wait_for_previous. When the host stops the pass, no block waits. Ranks in several processes do not
 * meet. */
static __device__ __forceinline__ void um_cu_meet(const um_cu_meeting &m) {
    if (m.comm) return;
    const int32_t other = (int32_t)threadIdx.x, block = (int32_t)blockIdx.x;
    const uint32_t now = m.count[block] + 1;
    __syncthreads(); /* all threads have read the count */
    if (other < m.n && other != m.index) {
        um_cu_release(&m.flag[other][m.index * UM_CU_MEET_BLOCKS + block], now);
        const uint32_t *flag = &m.flag[m.index][other * UM_CU_MEET_BLOCKS + block];
        for (int i = 1; (int32_t)(um_cu_acquire(flag) - now) < 0; i++)
            if (i % 1024 == 0 && *m.stop) break;
    }
    if (threadIdx.x == 0) m.count[block] = now;
    __syncthreads();
}

/* Adds 8 elements of a part, as loaded, to sum. */
static __device__ __forceinline__ void um_cu_add_loaded(const uint4 *raw, float, float sum[8]) {
    const uint32_t v[8] = {raw[0].x, raw[0].y, raw[0].z, raw[0].w, raw[1].x, raw[1].y, raw[1].z, raw[1].w};
#pragma unroll
    for (int i = 0; i < 8; i++) sum[i] += __uint_as_float(v[i]);
}
static __device__ __forceinline__ void um_cu_add_loaded(const uint4 *raw, um_bf16, float sum[8]) {
    const uint32_t v[4] = {raw[0].x, raw[0].y, raw[0].z, raw[0].w};
#pragma unroll
    for (int i = 0; i < 4; i++) { /* the upper half of a float is the bf16 */
        sum[2 * i] += __uint_as_float(v[i] << 16);
        sum[2 * i + 1] += __uint_as_float(v[i] & 0xffff0000u);
    }
}

/* Adds the elements [at, at + 8) of all ranks, of type E, to sum. `at` is a multiple of 8. The loads of four ranks are
 * under way at a time, because one takes over a microsecond. */
template <typename E>
static __device__ __forceinline__ void um_cu_pull_parts(const um_cu_partials &p, size_t at, float sum[8]) {
    constexpr int AT_ONCE = 4, LOADS = sizeof(E) / 2;
    for (int first = 0; first < p.at.n; first += AT_ONCE) {
        uint4 raw[AT_ONCE][LOADS];
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++)
#pragma unroll
            for (int k = 0; k < LOADS; k++)
                if (first + r < p.at.n)
                    raw[r][k] = um_cu_load_peer((const uint4 *)((const E *)p.part[first + r] + at) + k);
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++)
            if (first + r < p.at.n) um_cu_add_loaded(raw[r], E(), sum);
    }
}

/* A word of an inbox that has not arrived. No sum is this NaN, and a result that is becomes another NaN. */
static constexpr uint32_t UM_CU_NO_WORD = 0x01010101u * UM_CU_NOT_THERE;

static __device__ __forceinline__ void um_cu_send(uint4 *to, uint4 v) {
    v.x = v.x == UM_CU_NO_WORD ? v.x >> 1 : v.x;
    v.y = v.y == UM_CU_NO_WORD ? v.y >> 1 : v.y;
    v.z = v.z == UM_CU_NO_WORD ? v.z >> 1 : v.z;
    v.w = v.w == UM_CU_NO_WORD ? v.w >> 1 : v.w;
    um_cu_store_peer(to, v);
}

/* Waits until all words have arrived, and empties their place. */
static __device__ __forceinline__ uint4 um_cu_receive(uint4 *from, const volatile int32_t *stop) {
    const uint4 empty = {UM_CU_NO_WORD, UM_CU_NO_WORD, UM_CU_NO_WORD, UM_CU_NO_WORD};
    uint4 v = um_cu_load_peer(from);
    for (int i = 1; v.x == UM_CU_NO_WORD || v.y == UM_CU_NO_WORD || v.z == UM_CU_NO_WORD || v.w == UM_CU_NO_WORD; i++) {
        if (i % 1024 == 0 && *stop) break;
        v = um_cu_load_peer(from);
    }
    *from = empty;
    return v;
}

/* The same as um_cu_pull_parts through the inboxes. It needs no meeting: the words that arrive are the signal. */
template <typename E>
static __device__ __forceinline__ void um_cu_push_parts(const um_cu_partials &p, size_t at, float sum[8]) {
    constexpr int LOADS = sizeof(E) / 2;
    const size_t place = at * sizeof(E);
    uint4 own[LOADS], raw[LOADS];
#pragma unroll
    for (int k = 0; k < LOADS; k++) own[k] = ((const uint4 *)((const E *)p.part[p.at.index] + at))[k];
    for (int r = 0; r < p.at.n; r++) {
        uint4 *to = (uint4 *)(p.inbox[r] + (size_t)p.at.index * UM_CU_PUSH_BYTES + place);
#pragma unroll
        for (int k = 0; k < LOADS; k++)
            if (r != p.at.index) um_cu_send(to + k, own[k]);
    }
    for (int r = 0; r < p.at.n; r++) {
        uint4 *from = (uint4 *)(p.inbox[p.at.index] + (size_t)r * UM_CU_PUSH_BYTES + place);
#pragma unroll
        for (int k = 0; k < LOADS; k++) raw[k] = r == p.at.index ? own[k] : um_cu_receive(from + k, p.at.stop);
        um_cu_add_loaded(raw, E(), sum);
    }
}

/* Returns the distance in bytes of the parts of ranks in several processes. */
static inline size_t um_cu_distance(const um_cu_partials &p) {
    return (size_t)((const char *)p.part[1] - (const char *)p.part[0]);
}

/* Starts to bring the parts of the other ranks to this device, if they are in other processes. */
static inline void um_cu_bring(const um_cu_partials &p, cudaStream_t s) {
    if (p.at.comm) um_cu_comm_share(p.at.comm, (void *)p.part[0], um_cu_distance(p), s);
}

/* Waits until the parts of the other ranks can be read, unless they are pushed. All threads of the block call it. */
static __device__ __forceinline__ void um_cu_await_parts(const um_cu_partials &p) {
    if (!p.pushes) um_cu_meet(p.at);
}

/* Adds the elements [at, at + 8) of all ranks to sum, in the order of the ranks. All ranks call it for the same
 * elements, after um_cu_await_parts. */
static __device__ __forceinline__ void um_cu_add_parts(const um_cu_partials &p, size_t at, float sum[8]) {
    if (p.pushes && p.type == UM_BF16) um_cu_push_parts<um_bf16>(p, at, sum);
    else if (p.pushes) um_cu_push_parts<float>(p, at, sum);
    else if (p.type == UM_BF16) um_cu_pull_parts<um_bf16>(p, at, sum);
    else um_cu_pull_parts<float>(p, at, sum);
}

#endif
