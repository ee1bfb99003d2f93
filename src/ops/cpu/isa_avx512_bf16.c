/* The kernels for x86-64 with AVX-512 and its bf16 dot products. */
#include "ops/cpu/kernels.h"

#if defined(__x86_64__)
#define TARGET "tune=icelake-server,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vnni,fma"
#define HAVE_ROUNDING
#define HAVE_DOTS
#define HAVE_PAIRS
#include "ops/cpu/vec_avx512.inc"

#include "ops/cpu/kernels_body.inc"

const um_kernels um_kernels_avx512_bf16 = {
    .name = "avx512_bf16", COMMON_KERNELS, .tile_pairs = tile_pairs, .chain_pairs = chain_pairs};
#endif
