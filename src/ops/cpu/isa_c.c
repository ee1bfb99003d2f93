/* The kernels for any processor. */
#include "ops/cpu/kernels.h"

#include "ops/cpu/vec_c.inc"

#include "ops/cpu/kernels_body.inc"

const um_kernels um_kernels_c = {.name = "plain C", COMMON_KERNELS};
