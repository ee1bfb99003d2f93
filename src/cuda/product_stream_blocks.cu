/* The instances of product_stream for e4m3 with factors of blocks. */
#include "cuda/product_stream_fp8_kernel.cuh"

cudaError_t um_cu_stream_blocks(const um_cu_stream *p, int n_processors, cudaStream_t s) {
    return p->gated ? start_gated<true>(p, n_processors, s) : start_plain<true>(p, n_processors, s);
}
