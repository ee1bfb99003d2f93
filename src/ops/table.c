/* The list of backends. */
#include "ops/cpu/cpu.h"
#include "ops/ops.h"
#include "ops/ref/ref.h"

const um_ops *const um_ops_all[] = {&um_ops_cpu, &um_ops_ref, NULL};
