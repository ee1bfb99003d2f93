/* The kernels for 64-bit ARM. Every such processor has these instructions. */
#include "ops/cpu/kernels.h"

#if defined(__aarch64__)
#include "ops/cpu/vec_neon.inc"

#include "ops/cpu/kernels_body.inc"

const um_kernels um_kernels_neon = {.name = "neon", COMMON_KERNELS};
#endif
