/* The kernels for x86-64 with AVX2 and FMA. */
#include "ops/cpu/kernels.h"

#if defined(__x86_64__)
#include "ops/cpu/vec_avx2.inc"

#include "ops/cpu/kernels_body.inc"

const um_kernels um_kernels_avx2 = {.name = "avx2", COMMON_KERNELS};
#endif
