/* Linear layers: y[t] (+)= W x[t] + bias, and the gated ones of feed-forward layers: y[t, i] = silu(z[i]) * z[n + i],
 * z = W x[t] + bias. Tasks are runs of panels of y's columns; a panel of W meets all rows of a group while it is in the
 * cache, and what is gated never leaves it. */
#include "ops/cpu/dev.h"

typedef struct linear_job {
    const um_dev *dev;
    const um_weight *w;
    const um_product *p;
    const float *bias;
    float *y;
    um_left x;
    int columns; /* of y */
    int n_panels, n_tasks, panels_at_once;
    bool add;
} linear_job;

typedef struct panels {
    int begin, end;
} panels;

static panels panels_of(const linear_job *j, int task) {
    return (panels){(int)((int64_t)j->n_panels * task / j->n_tasks),
                    (int)((int64_t)j->n_panels * (task + 1) / j->n_tasks)};
}

/* Writes the products of a panel, [n_rows, UM_PANEL], to their columns of y. */
static void write_columns(const linear_job *j, int32_t column, const float *acc) {
    int n = UM_MIN(UM_PANEL, j->columns - column);
    const float *bias = j->bias ? j->bias + column : NULL;
    for (int t = 0; t < j->x.n_rows; t++, acc += UM_PANEL)
        j->dev->k->finish(acc, bias, j->add, n, j->y + (size_t)t * (size_t)j->columns + column);
}

/* A matrix unit writes whole panels to y by itself, and returns the first panel that is left. Vector instructions in
 * between cost it more than their own time: 320 -> 1920 for 128 rows took a core 155 us with write_columns, 105 without
 * (family 6 model 167). */
static int write_straight(const linear_job *j, panels p) {
    int end = UM_MIN(p.end, j->columns / UM_PANEL);
    if (!j->p->matrix || j->bias) return p.begin;
    for (int n; p.begin < end; p.begin += n) {
        int32_t column = p.begin * UM_PANEL;
        n = UM_MIN(j->panels_at_once, end - p.begin);
        um_product_columns(j->p, j->w, p.begin, n, j->x, j->add, j->y + column, (size_t)j->columns);
    }
    return p.begin;
}

static void linear_task(void *arg, int task, int thread) {
    const linear_job *j = (const linear_job *)arg;
    float *acc = j->dev->thread[thread].acc;
    panels p = panels_of(j, task);
    um_product_begin(j->p);
    p.begin = write_straight(j, p);
    for (int n; p.begin < p.end; p.begin += n) {
        n = UM_MIN(j->panels_at_once, p.end - p.begin);
        um_product_panels(j->p, j->w, p.begin, n, j->x, acc);
        for (int i = 0; i < n; i++)
            write_columns(j, (p.begin + i) * UM_PANEL, acc + (size_t)(i * j->x.n_rows) * UM_PANEL);
    }
    um_product_end(j->p);
}

/* ---- Gated ---- */

/* Writes gated columns. gate [n_rows, UM_PANEL]; up begins in its panel at `lane`, and ends in the next one. */
static void write_gated(const linear_job *j, int32_t column, float *gate, float *up, int lane) {
    const um_kernels *k = j->dev->k;
    const int n = UM_MIN(UM_PANEL, j->columns - column), here = UM_MIN(UM_PANEL - lane, n);
    const float *next = up + j->x.n_rows * UM_PANEL, *bias = j->bias ? j->bias + column : NULL;
    for (int t = 0; t < j->x.n_rows; t++, gate += UM_PANEL, up += UM_PANEL, next += UM_PANEL) {
        float joined[UM_PANEL], *u = lane ? joined : up;
        if (lane) memcpy(joined, up + lane, (size_t)here * sizeof(float));
        if (here < n) memcpy(joined + here, next, (size_t)(n - here) * sizeof(float));
        if (bias) k->finish(gate, bias, false, n, gate);
        if (bias) k->finish(u, bias + j->columns, false, n, u);
        k->gate(gate, u, n, j->y + (size_t)t * (size_t)j->columns + column);
    }
}

/* Gated columns of the panels [panel, panel + n). */
static void multiply_gated(const linear_job *j, int panel, int n, float *acc) {
    const int lane = j->columns % UM_PANEL, up = j->columns / UM_PANEL + panel;
    const int n_up = UM_MIN(n + (lane > 0), UM_CEIL_DIV(j->w->rows, UM_PANEL) - up);
    const size_t of_panel = (size_t)j->x.n_rows * UM_PANEL;
    float *of_up = acc + (size_t)n * of_panel;
    um_product_panels(j->p, j->w, panel, n, j->x, acc);
    um_product_panels(j->p, j->w, up, n_up, j->x, of_up);
    for (int i = 0; i < n; i++, panel++, acc += of_panel, of_up += of_panel)
        write_gated(j, panel * UM_PANEL, acc, of_up, lane);
}

static void gated_task(void *arg, int task, int thread) {
    const linear_job *j = (const linear_job *)arg;
    panels p = panels_of(j, task);
    um_product_begin(j->p);
    for (int n; p.begin < p.end; p.begin += n) {
        n = UM_MIN(j->panels_at_once, p.end - p.begin);
        multiply_gated(j, p.begin, n, j->dev->thread[thread].acc);
    }
    um_product_end(j->p);
}

/* ---- Groups of rows ---- */

/* Tasks are even runs of panels, and a multiple of the threads, so that all of these end together. */
static int count_tasks(const um_dev *dev, const linear_job *j, double work) {
    int most = UM_CEIL_DIV(j->n_panels, j->panels_at_once);
    int n = work < most * j->p->task_work ? (int)(work / j->p->task_work) : most;
    return UM_MIN(UM_CEIL_DIV(UM_MAX(n, 1), dev->n_threads) * dev->n_threads, j->n_panels);
}

/* One group of rows. Few rows stay in the cache by themselves, and one panel after the other is what prefetching wants;
 * many rows are read once for four panels. */
static void multiply_group(um_dev *dev, linear_job *j, um_task_fn task, const float *x, int n_rows) {
    double work = (double)n_rows * j->w->in * j->w->rows;
    j->n_tasks = count_tasks(dev, j, work);
    j->x = um_product_pack(dev, j->p, x, (size_t)j->w->in, NULL, n_rows, j->w->in);
    um_cpu_run(dev, task, j, j->n_tasks, work);
}

static void multiply(um_dev *dev, linear_job *j, um_task_fn task, const float *x, int32_t n_tokens) {
    int n_groups = UM_CEIL_DIV(n_tokens, UM_GROUP_ROWS);
    j->dev = dev;
    j->p = um_product_for(dev, j->w);
    j->n_panels = UM_CEIL_DIV(j->columns, UM_PANEL);
    for (int i = 0; i < n_groups; i++) {
        int n_rows = n_tokens / n_groups + (i < n_tokens % n_groups);
        multiply_group(dev, j, task, x, n_rows);
        x += (size_t)n_rows * (size_t)j->w->in;
        j->y += (size_t)n_rows * (size_t)j->columns;
    }
}

enum { FEW_ROWS = 48 };

void um_cpu_linear(um_dev *dev, const um_weight *w, const float *bias, const float *x, int32_t n_tokens, bool add,
                   float *y) {
    linear_job j = {.w = w, .bias = bias, .add = add, .y = y, .columns = w->rows};
    j.panels_at_once = n_tokens > FEW_ROWS ? 4 : 1;
    multiply(dev, &j, linear_task, x, n_tokens);
}

/* Two panels of the gate with theirs of up, or, when up begins inside of a panel, one with two. */
void um_cpu_linear_gate(um_dev *dev, const um_weight *w, const float *bias, const float *x, int32_t n_tokens,
                        float *y) {
    linear_job j = {.w = w, .bias = bias, .y = y, .columns = w->rows / 2};
    j.panels_at_once = n_tokens > FEW_ROWS && j.columns % UM_PANEL == 0 ? 2 : 1;
    multiply(dev, &j, gated_task, x, n_tokens);
}
