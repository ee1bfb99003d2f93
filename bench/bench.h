/* What the benchmarks share: interleaved timing, the machine's description, oneDNN as a yardstick. Numbers only; no
 * pass or fail. */
#ifndef UM_BENCH_H
#define UM_BENCH_H

#include "ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- timing.c ---- */

enum { UM_BENCH_REPS = 7, UM_BENCH_RIVALS = 3 };
#define UM_BENCH_WAITED_MAX 0.05 /* share of the time that others may take from a window */

/* One call of what is measured; round counts up, so that calls can go through copies of their data. */
typedef struct um_bench_task {
    void (*run)(void *arg, int round);
    void *arg;
} um_bench_task;

/* Seconds of a call over UM_BENCH_REPS windows. */
typedef struct um_bench_time {
    double median, best, worst;
    double waited; /* share of the time that the threads were ready to run and others had their cores */
} um_bench_time;

/* Times n tasks in turns, a window each, so that what disturbs the machine for a while disturbs all of them. A window
 * in which others took more than UM_BENCH_WAITED_MAX is repeated, a few times at most. */
void um_bench_measure(const um_bench_task *task, int n, um_bench_time *out);

/* "AMD EPYC (family 25 model 17), 2 cores, commit abc1234" */
const char *um_bench_machine(void);
/* GB/s of n threads that read memory once, in order; the best of a few passes. */
double um_bench_read_bandwidth(int n_threads);

/* ---- onednn.c: y = x W by oneDNN, weights in its own packed format ---- */

/* "2.6.3", or NULL when the benchmark was built without it. */
const char *um_bench_onednn_version(void);

typedef enum { UM_ONEDNN_MATMUL, UM_ONEDNN_INNER_PRODUCT } um_onednn_kind; /* two primitives for the same product */
typedef struct um_onednn um_onednn;
/* x [n_tokens, in] and `copies` matrices w [out, in] in the type, products fp32. NULL when oneDNN does not have it. */
um_onednn *um_onednn_new(um_onednn_kind kind, um_dtype type, int n_tokens, int in, int out, const void *w, int copies);
void um_onednn_free(um_onednn *p);
/* A um_bench_task's run; arg is a um_onednn. Multiplies with copy number round % copies. */
void um_onednn_run(void *arg, int round);

#ifdef __cplusplus
}
#endif
#endif
