/* The kernels for 64-bit ARM with dot products of bytes (FEAT_DotProd). */
#include "ops/cpu/kernels.h"

#if defined(__aarch64__)
#if defined(__clang__)
#define TARGET "dotprod"
#else
#define TARGET "arch=armv8.2-a+dotprod"
#endif
#include "ops/cpu/vec_neon.inc"

#include "ops/cpu/kernels_body.inc"

const um_kernels um_kernels_neon_dot = {.name = "neon_dot", COMMON_KERNELS};
#endif
