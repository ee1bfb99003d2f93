/* Helpers of the benchmarks: interleaved timing, the description of the machine, and oneDNN for comparison. */
#ifndef UM_BENCH_H
#define UM_BENCH_H

#include "ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- timing.c ---- */

enum { UM_BENCH_REPS = 7, UM_BENCH_RIVALS = 3 };
#define UM_BENCH_WAITED_MAX 0.05 /* largest share of a window that other processes may take */

/* A function to measure. round counts its calls, so that it can alternate between copies of its data. */
typedef struct um_bench_task {
    void (*run)(void *arg, int round);
    void *arg;
} um_bench_task;

/* Seconds per call in UM_BENCH_REPS windows. */
typedef struct um_bench_time {
    double median, best, worst;
    double waited; /* share of the time in which threads were ready to run but other processes used the cores */
} um_bench_time;

/* Measures n tasks in turns, one window each, so that disturbances of the machine affect all of them. Repeats a window
 * in which other processes took more than UM_BENCH_WAITED_MAX, but only a few times. */
void um_bench_measure(const um_bench_task *task, int n, um_bench_time *out);

/* "AMD EPYC (family 25 model 17), 2 cores, commit abc1234" */
const char *um_bench_machine(void);
/* Returns the GB/s at which n threads read memory once and in order; the best of several passes. */
double um_bench_read_bandwidth(int n_threads);

/* ---- onednn.c: y = x W by oneDNN, weights in its own packed format ---- */

/* Returns the version of oneDNN, "2.6.3", or NULL when the benchmark was built without it. */
const char *um_bench_onednn_version(void);

typedef enum { UM_ONEDNN_MATMUL, UM_ONEDNN_INNER_PRODUCT } um_onednn_kind; /* two primitives for the same product */
typedef struct um_onednn um_onednn;
/* Prepares products of x [n_tokens, in] with `copies` matrices w [out, in] of the type; the results are fp32. Returns
 * NULL when oneDNN does not support them. */
um_onednn *um_onednn_new(um_onednn_kind kind, um_dtype type, int n_tokens, int in, int out, const void *w, int copies);
void um_onednn_free(um_onednn *p);
/* The run function of a um_bench_task whose arg is a um_onednn. Multiplies with copy number round % copies. */
void um_onednn_run(void *arg, int round);

#ifdef __cplusplus
}
#endif
#endif
