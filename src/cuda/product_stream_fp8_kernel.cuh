/* product_stream_fp8_kernel: the kernels of product_stream for e4m3. Tiles of 192 rows have too many sums for the
 * registers of a thread. */
#ifndef UM_CUDA_PRODUCT_STREAM_FP8_KERNEL_CUH
#define UM_CUDA_PRODUCT_STREAM_FP8_KERNEL_CUH

#include "cuda/product_stream_kernel.cuh"

static const int32_t tile_rows[] = {16, 32, 48, 64, 96, 128, 144};
static const int32_t gated_rows[] = {32, 64, 96, 128};

template <bool BLOCKS> static cudaError_t start_gated(const um_cu_stream *p, int n, cudaStream_t s) {
    switch (um_cu_tile_rows(2 * p->rows, p->T, gated_rows, UM_LEN(gated_rows), n)) {
    case 32: return start_rows<32, true, true, BLOCKS>(p, n, s);
    case 64: return start_rows<64, true, true, BLOCKS>(p, n, s);
    case 96: return start_rows<96, true, true, BLOCKS>(p, n, s);
    default: return start_rows<128, true, true, BLOCKS>(p, n, s);
    }
}

template <bool BLOCKS> static cudaError_t start_plain(const um_cu_stream *p, int n, cudaStream_t s) {
    switch (um_cu_tile_rows(p->rows, p->T, tile_rows, UM_LEN(tile_rows), n)) {
    case 16: return start_rows<16, false, true, BLOCKS>(p, n, s);
    case 32: return start_rows<32, false, true, BLOCKS>(p, n, s);
    case 48: return start_rows<48, false, true, BLOCKS>(p, n, s);
    case 64: return start_rows<64, false, true, BLOCKS>(p, n, s);
    case 96: return start_rows<96, false, true, BLOCKS>(p, n, s);
    case 128: return start_rows<128, false, true, BLOCKS>(p, n, s);
    default: return start_rows<144, false, true, BLOCKS>(p, n, s);
    }
}

#endif
