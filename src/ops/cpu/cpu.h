/* cpu: the fast backend for processors, with threads and vector code chosen at run time. */
#ifndef UM_OPS_CPU_H
#define UM_OPS_CPU_H

#include "ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const um_ops um_ops_cpu;

/* Returns the instruction sets that can be used here, the best first; NULL ends the list. */
const char *const *um_cpu_isas(void);
/* Returns the instruction sets that have kernels but that this processor or its operating system does not support. */
const char *const *um_cpu_isas_missing(void);
/* Sets the instruction set of devices that are opened later, for the whole process: one of um_cpu_isas(). NULL selects
 * the one that the environment variable UM_CPU_ISA names, or the best. For tests and benchmarks. */
void um_cpu_use_isa(const char *name);
/* Returns whether a matrix of um_ops_cpu lies in the memory of a file. */
bool um_cpu_weight_is_mapped(const um_weight *w);

#ifdef __cplusplus
}
#endif
#endif
