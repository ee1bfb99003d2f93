/* The kernels for x86-64 with AVX-512 F, BW, DQ and VL. */
#include "ops/cpu/kernels.h"

#if defined(__x86_64__)
#define TARGET "tune=icelake-server,avx512f,avx512bw,avx512dq,avx512vl,fma"
#include "ops/cpu/vec_avx512.inc"

#include "ops/cpu/kernels_body.inc"

const um_kernels um_kernels_avx512 = {.name = "avx512", COMMON_KERNELS};
#endif
