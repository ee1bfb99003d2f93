/* Helpers of the benchmarks: the description of the machine; oneDNN and ggml for comparison. */
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

/* ---- ggml.c: the same product by the library of llama.cpp ---- */

bool um_bench_has_ggml(void);
typedef struct um_ggml um_ggml;
/* Prepares products of x [n_tokens, in] with `copies` matrices w [out, in]: bf16, q8_0 for UM_Q8, or q4_0 for UM_Q4. x
 * and w have the first numbers of `random` [max(n_tokens, out) * in]. Returns NULL for other types, and without ggml.
 */
um_ggml *um_ggml_new(um_dtype type, int threads, int n_tokens, int in, int out, const float *random, int copies);
void um_ggml_free(um_ggml *p);
/* The run function of a um_measure_task whose arg is a um_ggml. */
void um_ggml_run(void *arg, int round);

#ifdef __cplusplus
}
#endif
#endif
