/* The instances of product_stream for bf16, and the choice of the type. */
#include "cuda/product_stream_kernel.cuh"

/* Numbers of weight rows of a tile. */
static const int32_t tile_rows[] = {16, 32, 48, 64, 96, 128, 144, 192};
static const int32_t gated_rows[] = {32, 64, 96, 128, 192};

bool um_cu_stream_suits(const um_cu_stream *p) {
    return p->rows % 2 == 0 && p->in % (p->w_scale ? 16 : 8) == 0 && p->T <= UM_CU_STREAM_TOKENS && p->stride % 2 == 0;
}

static cudaError_t start_gated(const um_cu_stream *p, int n, cudaStream_t s) {
    switch (um_cu_tile_rows(2 * p->rows, p->T, gated_rows, UM_LEN(gated_rows), n)) {
    case 32: return start_rows<32, true, false>(p, n, s);
    case 64: return start_rows<64, true, false>(p, n, s);
    case 96: return start_rows<96, true, false>(p, n, s);
    case 128: return start_rows<128, true, false>(p, n, s);
    default: return start_rows<192, true, false>(p, n, s);
    }
}

static cudaError_t start_plain(const um_cu_stream *p, int n, cudaStream_t s) {
    switch (um_cu_tile_rows(p->rows, p->T, tile_rows, UM_LEN(tile_rows), n)) {
    case 16: return start_rows<16, false, false>(p, n, s);
    case 32: return start_rows<32, false, false>(p, n, s);
    case 48: return start_rows<48, false, false>(p, n, s);
    case 64: return start_rows<64, false, false>(p, n, s);
    case 96: return start_rows<96, false, false>(p, n, s);
    case 128: return start_rows<128, false, false>(p, n, s);
    case 144: return start_rows<144, false, false>(p, n, s);
    default: return start_rows<192, false, false>(p, n, s);
    }
}

um_status um_cu_stream_product(const um_cu_stream *p, int n_processors, cudaStream_t s) {
    assert(um_cu_stream_suits(p) && p->T > 0);
    cudaError_t e;
    if (p->w_block) e = um_cu_stream_blocks(p, n_processors, s);
    else if (p->w_scale) e = um_cu_stream_fp8(p, n_processors, s);
    else e = p->gated ? start_gated(p, n_processors, s) : start_plain(p, n_processors, s);
    return e == cudaSuccess ? UM_OK : UM_EDEVICE;
}
