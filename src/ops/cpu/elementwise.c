/* The norms, the gated activation, sums and copies of rows. A task is a run of tokens; copies are made in their order.
 */
#include <math.h>

#include "ops/cpu/dev.h"

enum { TASK_TOKENS = 8 };

typedef struct norm_job {
    const um_dev *dev;
    const float *x;
    const um_norm *norm;
    int32_t n_tokens, n, per_task;
    float *y;
} norm_job;

static void norm_task(void *arg, int task, int thread) {
    (void)thread;
    const norm_job *j = (const norm_job *)arg;
    const um_kernels *k = j->dev->k;
    const um_norm *norm = j->norm;
    int32_t end = UM_MIN((task + 1) * j->per_task, j->n_tokens);
    for (int32_t t = task * j->per_task; t < end; t++) {
        const float *x = j->x + (size_t)t * (size_t)j->n;
        float mean = norm->bias ? k->sum(x, j->n) / (float)j->n : 0;
        float r = 1 / sqrtf(k->sum_squares(x, mean, j->n) / (float)j->n + norm->eps);
        k->normalize(x, mean, r, norm->w, norm->bias, j->n, j->y + (size_t)t * (size_t)j->n);
    }
}

void um_cpu_norm(um_dev *dev, const float *x, const um_norm *norm, int32_t n_tokens, int32_t n, float *y) {
    norm_job j = {dev, x, norm, n_tokens, n, um_cpu_rows_per_task(dev, n_tokens, TASK_TOKENS), y};
    um_cpu_run(dev, norm_task, &j, UM_CEIL_DIV(n_tokens, j.per_task), 2.0 * n_tokens * n);
}

typedef struct norm_add_job {
    const um_dev *dev;
    float *y;
    const um_norm *norm;
    int32_t n_tokens, n, per_task;
    float scale, *x;
} norm_add_job;

static void norm_add_task(void *arg, int task, int thread) {
    (void)thread;
    const norm_add_job *j = (const norm_add_job *)arg;
    const um_kernels *k = j->dev->k;
    const int32_t first = task * j->per_task, end = UM_MIN(first + j->per_task, j->n_tokens);
    for (int32_t t = first; t < end; t++) {
        float *y = j->y + (size_t)t * (size_t)j->n, *x = j->x + (size_t)t * (size_t)j->n;
        const float r = 1 / sqrtf(k->sum_squares(y, 0, j->n) / (float)j->n + j->norm->eps);
        k->normalize(y, 0, r, j->norm->w, NULL, j->n, y);
        k->add_scaled(y, 1, j->n, x);
        for (int32_t i = 0; j->scale != 1 && i < j->n; i++) x[i] *= j->scale;
    }
}

void um_cpu_norm_add(um_dev *dev, float *y, const um_norm *norm, int32_t n_tokens, int32_t n, float scale, float *x) {
    norm_add_job j = {dev, y, norm, n_tokens, n, um_cpu_rows_per_task(dev, n_tokens, TASK_TOKENS), scale, x};
    assert(!norm->bias);
    um_cpu_run(dev, norm_add_task, &j, UM_CEIL_DIV(n_tokens, j.per_task), 4.0 * n_tokens * n);
}

typedef struct gate_job {
    const um_dev *dev;
    um_act act;
    const float *gu;
    int32_t n_tokens, n, per_task;
    float *y;
} gate_job;

static void gate_task(void *arg, int task, int thread) {
    (void)thread;
    const gate_job *j = (const gate_job *)arg;
    int32_t end = UM_MIN((task + 1) * j->per_task, j->n_tokens);
    for (int32_t t = task * j->per_task; t < end; t++) {
        const float *g = j->gu + (size_t)t * 2 * (size_t)j->n;
        um_cpu_gate_row(j->dev, j->act, g, g + j->n, j->n, j->y + (size_t)t * (size_t)j->n);
    }
}

void um_cpu_gate(um_dev *dev, um_act act, const float *gu, int32_t n_tokens, int32_t n, float *y) {
    gate_job j = {dev, act, gu, n_tokens, n, um_cpu_rows_per_task(dev, n_tokens, TASK_TOKENS), y};
    um_cpu_run(dev, gate_task, &j, UM_CEIL_DIV(n_tokens, j.per_task), (double)n_tokens * n * 4);
}

void um_cpu_copy_rows(um_dev *dev, const float *x, const int32_t *from, const int32_t *to, int32_t n_rows,
                      int32_t stride, int32_t n, float *y) {
    (void)dev;
    for (int32_t i = 0; i < n_rows; i++) {
        const float *row = x + (size_t)(from ? from[i] : i) * (size_t)stride;
        float *copy = y + (size_t)(to ? to[i] : i) * (size_t)stride;
        if (copy != row) memcpy(copy, row, (size_t)n * sizeof *copy);
    }
}

enum { SUM_PIECE = 4096 };

typedef struct sum_job {
    const float *const *part;
    int n_parts;
    size_t n;
    bool add;
    float *y;
} sum_job;

static void sum_task(void *arg, int task, int thread) {
    (void)thread;
    const sum_job *j = (const sum_job *)arg;
    const size_t first = (size_t)task * SUM_PIECE, n = UM_MIN(j->n - first, (size_t)SUM_PIECE);
    float total[SUM_PIECE];
    memcpy(total, j->part[0] + first, n * sizeof *total);
    for (int p = 1; p < j->n_parts; p++)
        for (size_t i = 0; i < n; i++) total[i] += j->part[p][first + i];
    for (size_t i = 0; i < n; i++) j->y[first + i] = j->add ? j->y[first + i] + total[i] : total[i];
}

void um_cpu_sum(um_dev *dev, const float *const *part, int n_parts, size_t n, bool add, float *y) {
    sum_job j = {part, n_parts, n, add, y};
    um_cpu_run(dev, sum_task, &j, (int)UM_CEIL_DIV(n, SUM_PIECE), (double)n * n_parts);
}
