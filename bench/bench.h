/* Helpers of the benchmarks: the description of the machine, and oneDNN for comparison. */
#ifndef UM_BENCH_H
#define UM_BENCH_H

#include "ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- machine.c ---- */

/* "AMD EPYC (family 25 model 17), 2 cores, commit abc1234" */
const char *um_bench_machine(void);

/* ---- onednn.c: y = x W by oneDNN, weights in its own packed format ---- */

/* Returns the version of oneDNN, "2.6.3", or NULL when the benchmark was built without it. */
const char *um_bench_onednn_version(void);

typedef enum { UM_ONEDNN_MATMUL, UM_ONEDNN_INNER_PRODUCT } um_onednn_kind; /* two primitives for the same product */
typedef struct um_onednn um_onednn;
/* Prepares products of x [n_tokens, in] with `copies` matrices w [out, in] of the type; the results are fp32. UM_Q8
 * stands for 8-bit integers without scales, in x too. Returns NULL when oneDNN does not support them. */
um_onednn *um_onednn_new(um_onednn_kind kind, um_dtype type, int n_tokens, int in, int out, const void *w, int copies);
void um_onednn_free(um_onednn *p);
/* The run function of a um_measure_task whose arg is a um_onednn. Multiplies with copy number round % copies. */
void um_onednn_run(void *arg, int round);

#ifdef __cplusplus
}
#endif
#endif
