/* Linear layers, y[t] = W x[t] + bias, and gated linear layers, y[t, i] = act(z[i]) * z[n + i] with z = W x[t] + bias.
 *
 * A task is a run of panels of y's columns for one group of rows. A panel of W is multiplied by all rows of the group
 * while it is in the cache. The inputs of the gate never leave the cache. */
#include "ops/cpu/dev.h"

typedef struct linear_job {
    const um_dev *dev;
    const um_weight *w;
    const um_product *p;
    const float *bias;
    float *y; /* output of the first row of the wave */
    um_left x;
    int columns; /* number of columns of y */
    int n_panels, panels_at_once;
    int group_rows, n_runs; /* rows of a group, and tasks of a group */
    bool add;
    um_act act;
} linear_job;

/* The part of the output that a task computes: rows, and a run of panels of y's columns. */
typedef struct linear_part {
    um_left x;
    float *y;
    int begin, end; /* panels */
} linear_part;

static linear_part part_of(const linear_job *j, int task) {
    int first = task / j->n_runs * j->group_rows, run = task % j->n_runs;
    return (linear_part){.x = um_left_rows(j->x, first, UM_MIN(j->group_rows, j->x.n_rows - first)),
                         .y = j->y + (size_t)first * (size_t)j->columns,
                         .begin = um_share_begin(j->n_panels, run, j->n_runs),
                         .end = um_share_begin(j->n_panels, run + 1, j->n_runs)};
}

/* Writes the products of a panel, [n_rows, UM_PANEL], to the columns of y from `column` on. */
static void write_columns(const linear_job *j, const linear_part *p, int32_t column, const float *acc) {
    int n = UM_MIN(UM_PANEL, j->columns - column);
    const float *bias = j->bias ? j->bias + column : NULL;
    for (int t = 0; t < p->x.n_rows; t++, acc += UM_PANEL)
        j->dev->k->finish(acc, bias, j->add, n, p->y + (size_t)t * (size_t)j->columns + column);
}

/* Lets a matrix unit write whole panels directly to y, and returns the first panel that is left. Vector instructions
 * between tile instructions cost more than their own time: 128 rows of 320 -> 1920 took a core 155 us with
 * write_columns and 105 us without (family 6 model 167). */
static int write_direct(const linear_job *j, const linear_part *p) {
    int panel = p->begin, end = UM_MIN(p->end, j->columns / UM_PANEL);
    if (!j->p->matrix || j->bias) return panel;
    for (int n; panel < end; panel += n) {
        n = UM_MIN(j->panels_at_once, end - panel);
        um_product_columns(j->p, j->w, panel, n, p->x, j->add, p->y + panel * UM_PANEL, (size_t)j->columns);
    }
    return panel;
}

static void linear_task(void *arg, int task, int thread) {
    const linear_job *j = (const linear_job *)arg;
    const linear_part p = part_of(j, task);
    float *acc = j->dev->thread[thread].acc;
    um_product_begin(j->p);
    int panel = write_direct(j, &p);
    for (int n; panel < p.end; panel += n) {
        n = UM_MIN(j->panels_at_once, p.end - panel);
        um_product_panels(j->p, j->w, panel, n, p.x, acc);
        for (int i = 0; i < n; i++)
            write_columns(j, &p, (panel + i) * UM_PANEL, acc + (size_t)(i * p.x.n_rows) * UM_PANEL);
    }
    um_product_end(j->p);
}

/* ---- Gated ---- */

/* Writes gated columns. gate is [n_rows, UM_PANEL]. The columns of up start at `lane` of their panel and end in the
 * next panel. */
static void write_gated(const linear_job *j, const linear_part *p, int32_t column, float *gate, float *up, int lane) {
    const um_kernels *k = j->dev->k;
    const int n = UM_MIN(UM_PANEL, j->columns - column), here = UM_MIN(UM_PANEL - lane, n);
    const float *next = up + p->x.n_rows * UM_PANEL, *bias = j->bias ? j->bias + column : NULL;
    for (int t = 0; t < p->x.n_rows; t++, gate += UM_PANEL, up += UM_PANEL, next += UM_PANEL) {
        float joined[UM_PANEL], *u = lane ? joined : up;
        if (lane) memcpy(joined, up + lane, (size_t)here * sizeof(float));
        if (here < n) memcpy(joined + here, next, (size_t)(n - here) * sizeof(float));
        if (bias) k->finish(gate, bias, false, n, gate);
        if (bias) k->finish(u, bias + j->columns, false, n, u);
        um_cpu_gate_row(j->dev, j->act, gate, u, n, p->y + (size_t)t * (size_t)j->columns + column);
    }
}

/* Computes and writes the gated columns of the panels [panel, panel + n). */
static void multiply_gated(const linear_job *j, const linear_part *p, int panel, int n, float *acc) {
    const int lane = j->columns % UM_PANEL, up = j->columns / UM_PANEL + panel;
    const int n_up = UM_MIN(n + (lane > 0), UM_CEIL_DIV(j->w->rows, UM_PANEL) - up);
    const size_t of_panel = (size_t)p->x.n_rows * UM_PANEL;
    float *of_up = acc + (size_t)n * of_panel;
    um_product_panels(j->p, j->w, panel, n, p->x, acc);
    um_product_panels(j->p, j->w, up, n_up, p->x, of_up);
    for (int i = 0; i < n; i++, panel++, acc += of_panel, of_up += of_panel)
        write_gated(j, p, panel * UM_PANEL, acc, of_up, lane);
}

static void gated_task(void *arg, int task, int thread) {
    const linear_job *j = (const linear_job *)arg;
    const linear_part p = part_of(j, task);
    um_product_begin(j->p);
    for (int panel = p.begin, n; panel < p.end; panel += n) {
        n = UM_MIN(j->panels_at_once, p.end - panel);
        multiply_gated(j, &p, panel, n, j->dev->thread[thread].acc);
    }
    um_product_end(j->p);
}

/* ---- Groups of rows ---- */

/* Returns the number of tasks of a group, which are equal runs of its panels. The number of all groups' tasks is a
 * multiple of the number of threads, so that the threads finish at the same time. */
static int count_runs(const um_dev *dev, const linear_job *j, int n_groups) {
    double work = (double)j->group_rows * j->w->in * j->w->rows;
    int most = UM_CEIL_DIV(j->n_panels, j->panels_at_once), of_threads = 1;
    int n = work < most * j->p->task_work ? (int)(work / j->p->task_work) : most;
    while (n_groups * of_threads % dev->n_threads) of_threads++;
    return UM_MIN(UM_CEIL_DIV(UM_MAX(n, 1), of_threads) * of_threads, j->n_panels);
}

/* Returns the number of groups into which n_rows rows are divided.
 *
 * With one group, each thread reads a part of the weights and all rows, which other threads have written. With more
 * groups, a thread works on the same rows in one operation after another, and these stay in its own cache, but the
 * weights are read once for each group. So groups save reading the bytes of the rows and cost reading the bytes of the
 * weights. The weights are read in order with prefetching, which is three times as fast. (Family 6 model 167: 128 to
 * 512 rows of tiny-block take 75 to 80 % of the time; 256 rows of 5632 -> 2048 would lose a tenth.) */
static int count_groups(const um_dev *dev, const linear_job *j, int n_rows) {
    double of_rows = (double)n_rows * (sizeof(uint16_t) * (size_t)j->w->in + sizeof(float) * (size_t)j->columns);
    double of_weight = (double)um_cpu_weight_bytes(j->w);
    int useful = 1 + (int)(3 * of_rows / of_weight), most = UM_MIN(dev->n_threads, n_rows / UM_OWN_ROWS);
    return UM_MAX(UM_CEIL_DIV(n_rows, UM_GROUP_ROWS), UM_MIN(useful, most));
}

static void multiply_wave(um_dev *dev, linear_job *j, um_task_fn task, const float *x, int n_rows) {
    int n_groups = count_groups(dev, j, n_rows);
    j->group_rows = UM_CEIL_DIV(UM_CEIL_DIV(n_rows, n_groups), UM_TILE_ROWS) * UM_TILE_ROWS;
    n_groups = UM_CEIL_DIV(n_rows, j->group_rows);
    j->n_runs = count_runs(dev, j, n_groups);
    const um_start start = {j->w->panel, j->w->panel_bytes, n_groups == 1 ? j->n_panels : 0};
    j->x = um_product_pack(dev, j->p, x, (size_t)j->w->in, NULL, n_rows, j->w->in, start);
    um_cpu_run(dev, task, j, n_groups * j->n_runs, (double)n_rows * j->w->in * j->w->rows);
}

static void multiply(um_dev *dev, linear_job *j, um_task_fn task, const float *x, int32_t n_tokens) {
    int n_waves = UM_CEIL_DIV(n_tokens, dev->wave_rows);
    j->dev = dev;
    j->p = um_product_for(dev, j->w);
    j->n_panels = UM_CEIL_DIV(j->columns, UM_PANEL);
    for (int i = 0; i < n_waves; i++) {
        int n_rows = n_tokens / n_waves + (i < n_tokens % n_waves);
        multiply_wave(dev, j, task, x, n_rows);
        x += (size_t)n_rows * (size_t)j->w->in;
        j->y += (size_t)n_rows * (size_t)j->columns;
    }
}

/* Up to this number, rows stay in the cache anyway, and prefetching works best with one panel at a time. More rows are
 * read once for several panels. */
enum { FEW_ROWS = 48 };

void um_cpu_linear(um_dev *dev, const um_weight *w, const float *bias, const float *x, int32_t n_tokens, bool add,
                   float *y) {
    linear_job j = {.w = w, .bias = bias, .add = add, .y = y, .columns = w->rows};
    j.panels_at_once = n_tokens > FEW_ROWS ? 4 : 1;
    multiply(dev, &j, linear_task, x, n_tokens);
}

/* Multiplies two panels of the gate and two of up at once. If up starts inside of a panel, multiplies one panel of the
 * gate and two of up. */
void um_cpu_linear_gate(um_dev *dev, um_act act, const um_weight *w, const float *bias, const float *x,
                        int32_t n_tokens, float *y) {
    linear_job j = {.w = w, .bias = bias, .act = act, .y = y, .columns = w->rows / 2};
    j.panels_at_once = n_tokens > FEW_ROWS && j.columns % UM_PANEL == 0 ? 2 : 1;
    multiply(dev, &j, gated_task, x, n_tokens);
}
