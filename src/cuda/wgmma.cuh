/* wgmma: the asynchronous matrix products of Hopper GPUs (sm_90a), as functions. Used inside the room cuda only.
 *
 * Operands lie in shared memory, K-major with the 128-byte swizzle: rows of 64 bf16 elements, whose eight pieces of 16
 * bytes are at position piece ^ (row % 8). Groups of 8 rows are 1024 bytes apart and aligned to 1024 bytes. */
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

/* d += a b for a [64, 16] and b [N, 16]. Thread i of the warpgroup holds, for the columns 8 j + 2 (i % 4) + {0, 1}, row
 * 16 (i / 32) + i % 32 / 4 in d[4 j], d[4 j + 1], and the row 8 below in d[4 j + 2], d[4 j + 3]. */
template <int N> static __device__ __forceinline__ void um_cu_multiply(float *d, uint32_t a, uint32_t b);

template <> __device__ __forceinline__ void um_cu_multiply<8>(float *d, uint32_t a, uint32_t b) {
    asm volatile("{\n"
                 ".reg .b64 da, db;\n"
                 "mov.b64 da, {%4, " UM_CU_OPERAND_HIGH "};\n"
                 "mov.b64 db, {%5, " UM_CU_OPERAND_HIGH "};\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3}, da, db, 1, 1, 1, 0, 0;\n"
                 "}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a), "r"(b));
}
template <> __device__ __forceinline__ void um_cu_multiply<16>(float *d, uint32_t a, uint32_t b) {
    asm volatile("{\n"
                 ".reg .b64 da, db;\n"
                 "mov.b64 da, {%8, " UM_CU_OPERAND_HIGH "};\n"
                 "mov.b64 db, {%9, " UM_CU_OPERAND_HIGH "};\n"
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7}, da, db, 1, 1, 1, 0, 0;\n"
                 "}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                 : "r"(a), "r"(b));
}
template <> __device__ __forceinline__ void um_cu_multiply<24>(float *d, uint32_t a, uint32_t b) {
    asm volatile("{\n"
                 ".reg .b64 da, db;\n"
                 "mov.b64 da, {%12, " UM_CU_OPERAND_HIGH "};\n"
                 "mov.b64 db, {%13, " UM_CU_OPERAND_HIGH "};\n"
                 "wgmma.mma_async.sync.aligned.m64n24k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11}, da, db, 1, 1, 1, 0, 0;\n"
                 "}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
                 : "r"(a), "r"(b));
}
template <> __device__ __forceinline__ void um_cu_multiply<32>(float *d, uint32_t a, uint32_t b) {
    asm volatile("{\n"
                 ".reg .b64 da, db;\n"
                 "mov.b64 da, {%16, " UM_CU_OPERAND_HIGH "};\n"
                 "mov.b64 db, {%17, " UM_CU_OPERAND_HIGH "};\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, da, db, 1, 1, 1, 0, 0;\n"
                 "}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
                 : "r"(a), "r"(b));
}
template <> __device__ __forceinline__ void um_cu_multiply<48>(float *d, uint32_t a, uint32_t b) {
    asm volatile("{\n"
                 ".reg .b64 da, db;\n"
                 "mov.b64 da, {%24, " UM_CU_OPERAND_HIGH "};\n"
                 "mov.b64 db, {%25, " UM_CU_OPERAND_HIGH "};\n"
                 "wgmma.mma_async.sync.aligned.m64n48k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23}, da, db, 1, 1, 1, 0, 0;\n"
                 "}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
                   "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
                   "+f"(d[23])
                 : "r"(a), "r"(b));
}
template <> __device__ __forceinline__ void um_cu_multiply<64>(float *d, uint32_t a, uint32_t b) {
    asm volatile(
        "{\n"
        ".reg .b64 da, db;\n"
        "mov.b64 da, {%32, " UM_CU_OPERAND_HIGH "};\n"
        "mov.b64 db, {%33, " UM_CU_OPERAND_HIGH "};\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, da, db, 1, 1, 1, 0, 0;\n"
        "}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a), "r"(b));
}
template <> __device__ __forceinline__ void um_cu_multiply<72>(float *d, uint32_t a, uint32_t b) {
    asm volatile("{\n"
                 ".reg .b64 da, db;\n"
                 "mov.b64 da, {%36, " UM_CU_OPERAND_HIGH "};\n"
                 "mov.b64 db, {%37, " UM_CU_OPERAND_HIGH "};\n"
                 "wgmma.mma_async.sync.aligned.m64n72k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35}, da, db, 1, 1, 1, 0, 0;\n"
                 "}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
                   "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
                   "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
                   "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
                 : "r"(a), "r"(b));
}
template <> __device__ __forceinline__ void um_cu_multiply<96>(float *d, uint32_t a, uint32_t b) {
    asm volatile(
        "{\n"
        ".reg .b64 da, db;\n"
        "mov.b64 da, {%48, " UM_CU_OPERAND_HIGH "};\n"
        "mov.b64 db, {%49, " UM_CU_OPERAND_HIGH "};\n"
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, da, db, 1, 1, 1, 0, 0;\n"
        "}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),
          "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),
          "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
        : "r"(a), "r"(b));
}

/* ---- The first operand in registers ------------------------------------------------------------------------------ */

/* A thread holds four pairs of adjacent elements of a [64, 16], with the columns 2 (i % 4) + {0, 1}: of its row, of the
 * row 8 below, and of both again 8 columns further. */

/* d += a b for b [64, 16]. */
static __device__ __forceinline__ void um_cu_multiply_64(float *d, const uint32_t a[4], uint32_t b) {
    asm volatile("{\n"
                 ".reg .b64 db;\n"
                 "mov.b64 db, {%36, " UM_CU_OPERAND_HIGH "};\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, db, 1, 1, 1, 0;\n"
                 "}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
                   "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
                   "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
                   "+f"(d[30]), "+f"(d[31])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
}

/* Returns the low half of the descriptor of an operand [N, 16] that lies transposed: 16 rows of N elements, in blocks
 * of 64 elements that are `block` bytes apart. The 16 rows behind have the low half + 2048 / 16. */
static __device__ __forceinline__ uint32_t um_cu_transposed_low(uint32_t address, uint32_t block) {
    return address >> 4 | block >> 4 << 16;
}
/* d += a b for b [128, 16], which lies transposed. */
static __device__ __forceinline__ void um_cu_multiply_transposed_128(float *d, const uint32_t a[4], uint32_t b) {
    asm volatile("{\n"
                 ".reg .b64 db;\n"
                 "mov.b64 db, {%68, " UM_CU_OPERAND_HIGH "};\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, db, 1, 1, 1, 1;\n"
                 "}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
                   "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
                   "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
                   "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
                   "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
                   "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]),
                   "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]),
                   "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
}

#endif
#endif
