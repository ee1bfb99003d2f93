/* cpu: the fast backend for processors: threads, and vector code chosen at run time. */
#ifndef UM_OPS_CPU_H
#define UM_OPS_CPU_H

#include "ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const um_ops um_ops_cpu;

/* Instruction sets that this processor has, best first; NULL ends the list. */
const char *const *um_cpu_isas(void);
/* Those that we have kernels for and this processor, or its operating system, lacks. */
const char *const *um_cpu_isas_missing(void);
/* Devices opened from now on use this instruction set, one of um_cpu_isas(); NULL: the one that the environment
 * names in UM_CPU_ISA, else the best. For tests and benchmarks; process-wide. */
void um_cpu_use_isa(const char *name);

#ifdef __cplusplus
}
#endif
#endif
