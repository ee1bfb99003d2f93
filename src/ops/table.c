/* The lists of backends and of tables of operations. */
#include "ops/backend.h"
#include "ops/cpu/cpu.h"
#include "ops/plugin.h"
#include "ops/ref/ref.h"

const um_backend *const um_backends_all[] = {&um_backend_cpu, &um_backend_ref, &um_backend_cuda, NULL};
const um_ops *const um_ops_all[] = {&um_ops_cpu, &um_ops_ref, NULL};
