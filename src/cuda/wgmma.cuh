/* wgmma: the asynchronous matrix products of Hopper GPUs (sm_90a), as functions. Used inside the room cuda only.
 *
 * Operands lie in shared memory, K-major with the 128-byte swizzle: rows of 64 elements of bf16 or 128 of e4m3, whose
 * eight pieces of 16 bytes are at position piece ^ (row % 8). Groups of 8 rows are 1024 bytes apart and aligned to 1024
 * bytes. */
#ifndef UM_CUDA_WGMMA_CUH
#define UM_CUDA_WGMMA_CUH

#include <stdint.h>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define UM_CU_HAS_WGMMA 1

/* Returns the low half of the descriptor of an operand whose first row is at this address in shared memory. The
 * operand n bytes behind it has the low half + n / 16. The high half is the same for all. */
static __device__ __forceinline__ uint32_t um_cu_operand_low(uint32_t address) { return address >> 4 | 1u << 16; }
#define UM_CU_OPERAND_HIGH "0x40000040" /* swizzle of 128 bytes; 1024 bytes between groups of rows, in units of 16 */

/* Orders the accesses of registers and shared memory before the products that follow. */
static __device__ __forceinline__ void um_cu_products_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/* Closes a group of products. */
static __device__ __forceinline__ void um_cu_products_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most N groups are not finished. */
template <int N> static __device__ __forceinline__ void um_cu_products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Results and operands in registers belong to the products until the wait. These keep the compiler from using them
 * before: called behind the wait, with results that it may then read, or operands that it may then overwrite. */
template <int N> static __device__ __forceinline__ void um_cu_hold_results(float *d) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
template <int N> static __device__ __forceinline__ void um_cu_hold_operands(uint32_t *a) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(a[i])::"memory");
}

/* Lists of operands: %0 to %(n - 1), and d[i] to d[i + n - 1]. */
#define UM_CU_L4     "%0, %1, %2, %3"
#define UM_CU_L8     UM_CU_L4 ", %4, %5, %6, %7"
#define UM_CU_L12    UM_CU_L8 ", %8, %9, %10, %11"
#define UM_CU_L16    UM_CU_L12 ", %12, %13, %14, %15"
#define UM_CU_L24    UM_CU_L16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define UM_CU_L32    UM_CU_L24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define UM_CU_L36    UM_CU_L32 ", %32, %33, %34, %35"
#define UM_CU_L48    UM_CU_L36 ", %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define UM_CU_L64    UM_CU_L48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define UM_CU_L72    UM_CU_L64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define UM_CU_L84    UM_CU_L72 ", %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83"
#define UM_CU_L96    UM_CU_L84 ", %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define UM_CU_D4(i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define UM_CU_D8(i)  UM_CU_D4(i), UM_CU_D4(i + 4)
#define UM_CU_D16(i) UM_CU_D8(i), UM_CU_D8(i + 8)
#define UM_CU_D32(i) UM_CU_D16(i), UM_CU_D16(i + 16)
/* The same for a result that replaces d. */
#define UM_CU_NEW4(i)  "=f"(d[i]), "=f"(d[i + 1]), "=f"(d[i + 2]), "=f"(d[i + 3])
#define UM_CU_NEW8(i)  UM_CU_NEW4(i), UM_CU_NEW4(i + 4)
#define UM_CU_NEW16(i) UM_CU_NEW8(i), UM_CU_NEW8(i + 8)

/* A product of two operands in shared memory, whose descriptors are the operands %a and %b. */
#define UM_CU_PRODUCT(kind, list, a, b, flags, ...)                                                                    \
    asm volatile("{\n"                                                                                                 \
                 ".reg .b64 da, db;\n"                                                                                 \
                 "mov.b64 da, {%" #a ", " UM_CU_OPERAND_HIGH "};\n"                                                    \
                 "mov.b64 db, {%" #b ", " UM_CU_OPERAND_HIGH "};\n"                                                    \
                 "wgmma.mma_async.sync.aligned." kind " {" list "}, da, db, " flags ";\n"                              \
                 "}"                                                                                                   \
                 : __VA_ARGS__                                                                                         \
                 : "r"(x), "r"(w))

/* d = d + x w with ADD, else d = x w, for x [64, K] and w [N, K]. K is 16 elements of bf16, or with F8 32 elements of
 * e4m3. Products of bf16 exist with ADD only. Thread i of the warpgroup holds, for the columns 8 j + 2 (i % 4) + {0,
 * 1}, row 16 (i / 32) + i % 32 / 4 in d[4 j], d[4 j + 1], and the row 8 below in d[4 j + 2], d[4 j + 3]. */
template <int N, bool F8, bool ADD>
static __device__ __forceinline__ void um_cu_multiply(float *d, uint32_t x, uint32_t w);

#define UM_CU_DEFINE_MULTIPLY(n, list, a, b, ...)                                                                      \
    template <> __device__ __forceinline__ void um_cu_multiply<n, false, true>(float *d, uint32_t x, uint32_t w) {     \
        UM_CU_PRODUCT("m64n" #n "k16.f32.bf16.bf16", list, a, b, "1, 1, 1, 0, 0", __VA_ARGS__);                        \
    }                                                                                                                  \
    template <> __device__ __forceinline__ void um_cu_multiply<n, true, true>(float *d, uint32_t x, uint32_t w) {      \
        UM_CU_PRODUCT("m64n" #n "k32.f32.e4m3.e4m3", list, a, b, "1, 1, 1", __VA_ARGS__);                              \
    }                                                                                                                  \
    template <> __device__ __forceinline__ void um_cu_multiply<n, true, false>(float *d, uint32_t x, uint32_t w) {     \
        UM_CU_PRODUCT("m64n" #n "k32.f32.e4m3.e4m3", list, a, b, "0, 1, 1", __VA_ARGS__);                              \
    }

UM_CU_DEFINE_MULTIPLY(8, UM_CU_L4, 4, 5, UM_CU_D4(0))
UM_CU_DEFINE_MULTIPLY(16, UM_CU_L8, 8, 9, UM_CU_D8(0))
UM_CU_DEFINE_MULTIPLY(24, UM_CU_L12, 12, 13, UM_CU_D8(0), UM_CU_D4(8))
UM_CU_DEFINE_MULTIPLY(32, UM_CU_L16, 16, 17, UM_CU_D16(0))
UM_CU_DEFINE_MULTIPLY(48, UM_CU_L24, 24, 25, UM_CU_D16(0), UM_CU_D8(16))
UM_CU_DEFINE_MULTIPLY(64, UM_CU_L32, 32, 33, UM_CU_D32(0))
UM_CU_DEFINE_MULTIPLY(72, UM_CU_L36, 36, 37, UM_CU_D32(0), UM_CU_D4(32))
UM_CU_DEFINE_MULTIPLY(96, UM_CU_L48, 48, 49, UM_CU_D32(0), UM_CU_D16(32))
UM_CU_DEFINE_MULTIPLY(128, UM_CU_L64, 64, 65, UM_CU_D32(0), UM_CU_D32(32))
UM_CU_DEFINE_MULTIPLY(144, UM_CU_L72, 72, 73, UM_CU_D32(0), UM_CU_D32(32), UM_CU_D8(64))

/* d = x w, or with `add` d += x w, as um_cu_multiply<192> for bf16. Without `add` d may be undefined. */
static __device__ __forceinline__ void um_cu_multiply_or_begin_192(float *d, uint32_t x, uint32_t w, bool add) {
    asm volatile("{\n"
                 ".reg .b64 da, db;\n"
                 ".reg .pred adds;\n"
                 "mov.b64 da, {%96, " UM_CU_OPERAND_HIGH "};\n"
                 "mov.b64 db, {%97, " UM_CU_OPERAND_HIGH "};\n"
                 "setp.ne.u32 adds, %98, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" UM_CU_L96 "}, da, db, adds, 1, 1, 0, 0;\n"
                 "}"
                 : UM_CU_D32(0), UM_CU_D32(32), UM_CU_D32(64)
                 : "r"(x), "r"(w), "r"((uint32_t)add));
}

/* ---- The first operand in registers ------------------------------------------------------------------------------ */

/* A thread holds four pairs of adjacent elements of a [64, 16], with the columns 2 (i % 4) + {0, 1}: of its row, of the
 * row 8 below, and of both again 8 columns further. */

/* d = a b, or with ADD d += a b, for b [64, 16]; of bf16, or with HALF of fp16. */
template <bool HALF, bool ADD>
static __device__ __forceinline__ void um_cu_multiply_64(float *d, const uint32_t a[4], uint32_t b);

#define UM_CU_DEFINE_MULTIPLY_64(half, add, type, flag, ...)                                                           \
    template <>                                                                                                        \
    __device__ __forceinline__ void um_cu_multiply_64<half, add>(float *d, const uint32_t a[4], uint32_t b) {          \
        asm volatile("{\n"                                                                                             \
                     ".reg .b64 db;\n"                                                                                 \
                     "mov.b64 db, {%36, " UM_CU_OPERAND_HIGH "};\n"                                                    \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" UM_CU_L32                        \
                     "}, {%32, %33, %34, %35}, db, " flag ", 1, 1, 0;\n"                                               \
                     "}"                                                                                               \
                     : __VA_ARGS__                                                                                     \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));                                            \
    }

UM_CU_DEFINE_MULTIPLY_64(false, true, "bf16", "1", UM_CU_D32(0))
UM_CU_DEFINE_MULTIPLY_64(false, false, "bf16", "0", UM_CU_NEW16(0), UM_CU_NEW16(16))
UM_CU_DEFINE_MULTIPLY_64(true, true, "f16", "1", UM_CU_D32(0))
UM_CU_DEFINE_MULTIPLY_64(true, false, "f16", "0", UM_CU_NEW16(0), UM_CU_NEW16(16))

/* d += a b for b [128, 16]. */
static __device__ __forceinline__ void um_cu_multiply_rows_128(float *d, const uint32_t a[4], uint32_t b) {
    asm volatile("{\n"
                 ".reg .b64 db;\n"
                 "mov.b64 db, {%68, " UM_CU_OPERAND_HIGH "};\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" UM_CU_L64
                 "}, {%64, %65, %66, %67}, db, 1, 1, 1, 0;\n"
                 "}"
                 : UM_CU_D32(0), UM_CU_D32(32)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
}

/* Returns the low half of the descriptor of an operand [N, 16] that lies transposed: 16 rows of N elements, in blocks
 * of 64 elements that are `block` bytes apart. The 16 rows behind have the low half + 2048 / 16. */
static __device__ __forceinline__ uint32_t um_cu_transposed_low(uint32_t address, uint32_t block) {
    return address >> 4 | block >> 4 << 16;
}
/* d += a b for b [128, 16], which lies transposed; of bf16, or with HALF of fp16. */
template <bool HALF>
static __device__ __forceinline__ void um_cu_multiply_transposed_128(float *d, const uint32_t a[4], uint32_t b);

#define UM_CU_DEFINE_MULTIPLY_TRANSPOSED(half, type)                                                                   \
    template <>                                                                                                        \
    __device__ __forceinline__ void um_cu_multiply_transposed_128<half>(float *d, const uint32_t a[4], uint32_t b) {   \
        asm volatile("{\n"                                                                                             \
                     ".reg .b64 db;\n"                                                                                 \
                     "mov.b64 db, {%68, " UM_CU_OPERAND_HIGH "};\n"                                                    \
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" UM_CU_L64                       \
                     "}, {%64, %65, %66, %67}, db, 1, 1, 1, 1;\n"                                                      \
                     "}"                                                                                               \
                     : UM_CU_D32(0), UM_CU_D32(32)                                                                     \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));                                            \
    }

UM_CU_DEFINE_MULTIPLY_TRANSPOSED(false, "bf16")
UM_CU_DEFINE_MULTIPLY_TRANSPOSED(true, "f16")

#endif
#endif
