/* Linear layers: y[t] (+)= W x[t] + bias. Tasks are runs of panels; a panel meets all rows of a group while it is in
 * the cache. */
#include "ops/cpu/dev.h"

typedef struct linear_job {
    const um_dev *dev;
    const um_weight *w;
    const um_product *p;
    const float *bias;
    float *y;
    um_left x;
    int panels_per_task, panels_at_once;
    bool add;
} linear_job;

/* Writes the products of a panel, [n_rows, UM_PANEL], to their columns of y. */
static void write_columns(const linear_job *j, int32_t column, const float *acc) {
    int n = UM_MIN(UM_PANEL, j->w->rows - column);
    const float *bias = j->bias ? j->bias + column : NULL;
    for (int t = 0; t < j->x.n_rows; t++, acc += UM_PANEL)
        j->dev->k->finish(acc, bias, j->add, n, j->y + (size_t)t * (size_t)j->w->rows + column);
}

static void linear_task(void *arg, int task, int thread) {
    const linear_job *j = (const linear_job *)arg;
    float *acc = j->dev->thread[thread].acc;
    int n_panels = UM_CEIL_DIV(j->w->rows, UM_PANEL), begin = task * j->panels_per_task;
    int end = UM_MIN(begin + j->panels_per_task, n_panels);
    for (int panel = begin; panel < end;) {
        int n = UM_MIN(j->panels_at_once, end - panel);
        um_product_panels(j->dev, j->p, j->w, panel, n, j->x, acc);
        for (int i = 0; i < n; i++, panel++)
            write_columns(j, panel * UM_PANEL, acc + (size_t)(i * j->x.n_rows) * UM_PANEL);
    }
}

/* One group of rows. Few rows stay in the cache by themselves, and one panel after the other is what prefetching wants;
 * many rows are read once for four panels. */
static void multiply_group(um_dev *dev, linear_job *j, const float *x, int n_rows) {
    const double task_work = 2.5e5; /* multiplications: about 3 us */
    int n_panels = UM_CEIL_DIV(j->w->rows, UM_PANEL);
    double panel_work = (double)n_rows * j->w->in * UM_PANEL;
    j->panels_at_once = n_rows > 48 ? 4 : 1;
    j->panels_per_task = (int)UM_MAX(task_work / panel_work, j->panels_at_once);
    j->x = um_product_pack(dev, j->p, x, (size_t)j->w->in, NULL, n_rows, j->w->in);
    um_cpu_run(dev, linear_task, j, UM_CEIL_DIV(n_panels, j->panels_per_task), panel_work * n_panels);
}

void um_cpu_linear(um_dev *dev, const um_weight *w, const float *bias, const float *x, int32_t n_tokens, bool add,
                   float *y) {
    int n_groups = UM_CEIL_DIV(n_tokens, UM_GROUP_ROWS);
    linear_job j = {.dev = dev, .w = w, .p = um_product_for(dev, w), .bias = bias, .add = add, .y = y};
    for (int i = 0; i < n_groups; i++) {
        int n_rows = n_tokens / n_groups + (i < n_tokens % n_groups);
        multiply_group(dev, &j, x, n_rows);
        x += (size_t)n_rows * (size_t)w->in;
        j.y += (size_t)n_rows * (size_t)w->rows;
    }
}
