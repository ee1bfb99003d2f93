/* mma: launches, copies, barriers and products by mma.sync that kernels share. Used inside the room cuda only.
 *
 * Programmatic dependent launch (compute capability 9.0): a kernel started with um_cu_start may begin before the kernel
 * before it in the stream has ended. Until um_cu_wait_for_previous it may use its own shared memory, and read memory
 * that no kernel before it may still write: weights, keys and values of earlier passes, and the message. The kernel
 * that copies the message (fetch_message in pass.cu) lets no other start before it has ended. */
#ifndef UM_CUDA_MMA_CUH
#define UM_CUDA_MMA_CUH

#include <stdint.h>

#include "cuda/cuda.cuh"

/* ---- Launch ------------------------------------------------------------------------------------------------------ */

/* Returns whether the current device knows programmatic dependent launch. */
static inline bool um_cu_has_dependent_launch() {
    int device = 0, major = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major >= 9;
}

/* Starts a kernel that calls um_cu_wait_for_previous. */
template <typename... P, typename... A>
static inline cudaError_t um_cu_start(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t s,
                                      A... args) {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = grid;
    c.blockDim = block;
    c.dynamicSmemBytes = shared;
    c.stream = s;
    c.attrs = &early;
    c.numAttrs = um_cu_has_dependent_launch() ? 1 : 0;
    return cudaLaunchKernelEx(&c, kernel, P(args)...);
}

#ifdef __CUDACC__
/* Waits until the kernel before has ended and its writes are visible. */
static __device__ __forceinline__ void um_cu_wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* Lets the kernel behind start as soon as all CTAs of this one have called it or ended. */
static __device__ __forceinline__ void um_cu_let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* ---- Copies and products of a warp, on all GPUs ------------------------------------------------------------------ */

/* Functions with a pointer to shared memory do not call those with an address: that gives attention other machine code,
 * whose time was not measured. */

static __device__ __forceinline__ uint32_t um_cu_shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}
/* Starts a copy of 16 bytes to shared memory. Writes zeros and reads nothing unless `there` is set. */
static __device__ __forceinline__ void um_cu_copy_async(uint32_t to, const void *from, bool there) {
    const int bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void um_cu_copy_async(void *to, const void *from, bool there) {
    const int bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(um_cu_shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}
/* Closes a group of copies. */
static __device__ __forceinline__ void um_cu_copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Waits until at most N groups have not arrived. */
template <int N> static __device__ __forceinline__ void um_cu_copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Loads 16 bytes from shared memory; the address is aligned to them. */
static __device__ __forceinline__ uint4 um_cu_load_sixteen(uint32_t from) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(from)
                 : "memory");
    return v;
}

/* Loads four matrices of 8 x 8 elements of 16 bits. Lane i has the address of row i % 8 of matrix i / 8. */
static __device__ __forceinline__ void um_cu_load_matrix(uint32_t r[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}
static __device__ __forceinline__ void um_cu_load_transposed(uint32_t r[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}
static __device__ __forceinline__ void um_cu_load_matrix(uint32_t r[4], const void *from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(um_cu_shared_address(from))
                 : "memory");
}
static __device__ __forceinline__ void um_cu_load_transposed(uint32_t r[4], const void *from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(um_cu_shared_address(from))
                 : "memory");
}
/* c += a b for bf16, a [16, 16], b [16, 8]. */
static __device__ __forceinline__ void um_cu_multiply_16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#if __CUDA_ARCH__ >= 900
/* ---- Barriers and the copy engine -------------------------------------------------------------------------------- */

static __device__ __forceinline__ void um_cu_barrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/* Makes initialised barriers visible to the copy engine. */
static __device__ __forceinline__ void um_cu_barriers_ready() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
static __device__ __forceinline__ void um_cu_barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/* Arrives, and expects this number of bytes from the copy engine. */
static __device__ __forceinline__ void um_cu_barrier_expect(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/* Waits for the end of the phase of this parity. A barrier that is never completed ends the kernel with an error. The
 * loop is inside of the statement, so that the compiler takes the code behind it for convergent. */
static __device__ __forceinline__ void um_cu_barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile("{\n"
                 ".reg .pred done, more;\n"
                 ".reg .u32 tries;\n"
                 "mov.u32 tries, 0;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra end;\n"
                 "add.u32 tries, tries, 1;\n"
                 "setp.lt.u32 more, tries, 0x4000000;\n"
                 "@more bra again;\n"
                 "trap;\n"
                 "end:\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* Copies the box of a tensor map at (column, row). Rows and columns beyond the tensor are zeros. policy: which data
 * the L2 cache keeps, as createpolicy encodes it. */
static __device__ __forceinline__ void um_cu_copy_tile(uint32_t to, const void *map, int column, int row,
                                                       uint32_t barrier, uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier), "l"(policy)
                 : "memory");
}

/* Copies adjacent bytes, a multiple of 16, between addresses that are aligned to 16 bytes. policy: as um_cu_copy_tile
 * has it. */
static __device__ __forceinline__ void um_cu_copy_bytes(uint32_t to, const void *from, int bytes, uint32_t barrier,
                                                        uint64_t policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
        "%4;" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
        : "memory");
}

/* ---- Clusters ---------------------------------------------------------------------------------------------------- */

/* Returns the number of this CTA in its cluster. */
static __device__ __forceinline__ uint32_t um_cu_cta_of_cluster() {
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
/* Waits for all threads of the cluster. */
static __device__ __forceinline__ void um_cu_cluster_meet() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
/* Returns the address, for the cluster, of the same place in another CTA's shared memory. */
static __device__ __forceinline__ uint32_t um_cu_place_in(uint32_t address, uint32_t cta) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(cta));
    return there;
}
/* Arrives at a barrier of the cluster. It orders no writes of other CTAs' memory: a release for the cluster would wait
 * for all memory operations of the thread, 0.8 us. */
static __device__ __forceinline__ void um_cu_barrier_arrive_there(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/* As um_cu_copy_tile, to the same place in all CTAs of the mask, and to their barriers. */
static __device__ __forceinline__ void um_cu_copy_tile_to(uint32_t to, const void *map, int column, int row,
                                                          uint32_t barrier, uint64_t policy, uint16_t ctas) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::"
                 "cache_hint [%0], [%1, {%2, %3}], [%4], %6, %5;" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier), "l"(policy), "h"(ctas)
                 : "memory");
}
#endif
#endif

#endif
