/* Mixture of experts. Its speed is limited by memory: with 32 tokens and 8 of 256 experts each, an expert has one or
 * two tokens. So the weights of an expert are read only once for all of its tokens, by all threads together.
 *
 * The pairs (token, expert) are sorted by expert and processed in waves of up to UM_GROUP_ROWS pairs, so that scratch
 * stays small for any batch. In a wave, each pair is a row of a left operand and each expert a run of rows:
 *   gate_up   a task is a run of an expert's panels, so that even a single expert keeps all threads busy
 *   gate      a task is a row; the result is packed as the next left operand
 *   down      a task is a run of output columns; it adds the results of all experts of the wave to y
 * So a single task adds to an output element, in ascending order of the experts, and waves follow this order too.
 * Results are bit-identical for any batch and any number of threads. */
#include "ops/cpu/dev.h"

#include "ops/expert_route.h"

struct um_moe_scratch {
    int32_t *expert; /* [max_tokens, max_top_k] chosen experts */
    float *weight;   /* [max_tokens, max_top_k] their weights */
    int32_t *first;  /* [max_experts + 1] first pair of each expert */
    int32_t *token;  /* [max_tokens * max_top_k] token of each pair; pairs are sorted by expert, then by token */
    float *share;    /* [max_tokens * max_top_k] weight of each pair */
    float *gate_up;  /* [UM_GROUP_ROWS, 2 * max_expert_ff] results of a wave */
    float *route;    /* [threads][um_expert_route_scratch] */
};

size_t um_moe_lay_out(const um_dev_config *c, int n_threads, void *base) {
    struct um_moe_scratch *s = (struct um_moe_scratch *)base, unused;
    size_t pairs = um_mul((size_t)c->max_tokens, (size_t)c->max_top_k), E = (size_t)c->max_experts;
    um_scratch at = {(unsigned char *)base, 0};
    um_scratch_take(&at, 1, sizeof *s);
    if (!s) s = &unused;
    s->expert = (int32_t *)um_scratch_take(&at, pairs, sizeof(int32_t));
    s->weight = (float *)um_scratch_take(&at, pairs, sizeof(float));
    s->first = (int32_t *)um_scratch_take(&at, E + 1, sizeof(int32_t));
    s->token = (int32_t *)um_scratch_take(&at, pairs, sizeof(int32_t));
    s->share = (float *)um_scratch_take(&at, pairs, sizeof(float));
    s->gate_up = (float *)um_scratch_take(&at, um_mul(UM_GROUP_ROWS * 2, (size_t)c->max_expert_ff), sizeof(float));
    s->route = (float *)um_scratch_take(&at, um_mul((size_t)n_threads, um_expert_route_scratch(c->max_experts)),
                                        sizeof(float));
    return at.used;
}

/* The pairs [first, first + n) of one expert. */
typedef struct expert_run {
    int32_t expert, first, n;
} expert_run;

typedef struct moe_job {
    um_dev *dev;
    struct um_moe_scratch *s;
    const um_moe *a;
    um_left x;                     /* packed rows of the wave */
    const um_product *p;           /* the product for these rows; the weights of all experts have the same type */
    int32_t first, n_runs;         /* first pair of the wave, number of experts in the wave */
    int n_parts, panels_per_part;  /* gate_up: number of tasks of an expert, panels of a task */
    int panels_per_task;           /* down: panels of a task */
    expert_run run[UM_GROUP_ROWS]; /* [n_runs] experts of the wave */
} moe_job;

/* ---- Pairs and waves ---- */

enum { ROUTE_TOKENS = 8 };

/* Returns the first token at or after t that may start a call of um_expert_route_tokens. A call needs whole routing
 * blocks. */
static int32_t route_start(const um_moe *a, int32_t t) {
    t = UM_MIN(t, a->n_tokens);
    while (a->route->capacity && t > 0 && t < a->n_tokens && a->block[t] == a->block[t - 1]) t++;
    return t;
}

static void route_task(void *arg, int task, int thread) {
    const moe_job *j = (const moe_job *)arg;
    const um_moe *a = j->a;
    const um_expert_route *r = a->route;
    int32_t begin = route_start(a, task * ROUTE_TOKENS), n = route_start(a, (task + 1) * ROUTE_TOKENS) - begin;
    size_t pair = (size_t)begin * (size_t)r->top_k;
    um_expert_route_tokens(r, a->logits + (size_t)begin * (size_t)r->n_experts, a->bias, a->expert_scale,
                           a->block ? a->block + begin : NULL, n,
                           j->s->route + (size_t)thread * um_expert_route_scratch(j->dev->config.max_experts),
                           j->s->expert + pair, j->s->weight + pair);
}

/* Sorts the pairs by expert, and the pairs of an expert by token. Leaves out experts that another rank has. Returns the
 * number of pairs. */
static int32_t sort_pairs(const moe_job *j) {
    struct um_moe_scratch *s = j->s;
    int32_t E = j->a->route->n_experts, K = j->a->route->top_k, n_pairs = j->a->n_tokens * K, sum = 0;
    memset(s->first, 0, ((size_t)E + 1) * sizeof *s->first);
    for (int32_t i = 0; i < n_pairs; i++) s->first[s->expert[i]] += j->a->gate_up[s->expert[i]] != NULL;
    for (int32_t e = 0; e <= E; e++) {
        int32_t n = s->first[e];
        s->first[e] = sum;
        sum += n;
    }
    for (int32_t i = 0; i < n_pairs; i++) {
        if (!j->a->gate_up[s->expert[i]]) continue;
        int32_t to = s->first[s->expert[i]]++;
        s->token[to] = i / K;
        s->share[to] = s->weight[i];
    }
    for (int32_t e = E; e > 0; e--) s->first[e] = s->first[e - 1]; /* first[e - 1] is at the end of expert e - 1 */
    s->first[0] = 0;
    return s->first[E];
}

/* Chooses the next wave, which starts at pair `first` of *expert. Takes whole experts as long as they fit. Splits only
 * an expert that is larger than a wave. Returns the first pair after the wave. */
static int32_t choose_wave(moe_job *j, int32_t first, int32_t *expert) {
    const int32_t *start = j->s->first, E = j->a->route->n_experts;
    int32_t at = first;
    j->first = first;
    for (j->n_runs = 0; *expert < E; ++*expert) {
        int32_t left = start[*expert + 1] - at, room = UM_GROUP_ROWS - (at - first);
        if (left > room && j->n_runs > 0) break;
        int32_t n = UM_MIN(left, room);
        if (n > 0) j->run[j->n_runs++] = (expert_run){*expert, at, n};
        at += n;
        if (n < left) break;
    }
    return at;
}

/* ---- Computation of a wave ---- */

/* Computes acc [r->n, UM_PANEL], the product of a panel of an expert's w with the rows of its pairs. */
static void multiply_panel(const moe_job *j, const expert_run *r, const um_weight *w, int panel, float *acc) {
    assert(um_product_for(j->dev, w) == j->p);
    um_product_panels(j->p, w, panel, 1, um_left_rows(j->x, r->first - j->first, r->n), acc);
}

static void pack_rows(moe_job *j, const um_weight *w, const float *x, size_t stride, const int32_t *row, int n_rows) {
    j->p = um_product_for(j->dev, w);
    j->x = um_product_pack(j->dev, j->p, x, stride, row, n_rows, w->in, UM_START_NONE);
}

/* Multiplies some panels of one expert's gate_up. */
static void gate_up_task(void *arg, int task, int thread) {
    const moe_job *j = (const moe_job *)arg;
    const expert_run *r = &j->run[task / j->n_parts];
    const um_weight *w = j->a->gate_up[r->expert];
    float *acc = j->dev->thread[thread].acc;
    int begin = task % j->n_parts * j->panels_per_part;
    int end = UM_MIN(begin + j->panels_per_part, UM_CEIL_DIV(w->rows, UM_PANEL));
    um_product_begin(j->p);
    for (int panel = begin; panel < end; panel++) {
        int32_t column = panel * UM_PANEL, n = UM_MIN(UM_PANEL, w->rows - column);
        float *to = j->s->gate_up + (size_t)(r->first - j->first) * (size_t)w->rows + column;
        multiply_panel(j, r, w, panel, acc);
        for (int32_t i = 0; i < r->n; i++, to += w->rows) memcpy(to, acc + i * UM_PANEL, (size_t)n * sizeof(float));
    }
    um_product_end(j->p);
}

static void gate_task(void *arg, int row, int thread) {
    (void)thread;
    const moe_job *j = (const moe_job *)arg;
    float *g = j->s->gate_up + (size_t)row * 2 * (size_t)j->a->n_ff;
    um_cpu_gate_row(j->dev, j->a->act, g, g + j->a->n_ff, j->a->n_ff, g);
}

/* Adds a panel of an expert's output columns to y. */
static void add_panel(const moe_job *j, const expert_run *r, int panel, float *acc) {
    int32_t column = panel * UM_PANEL, n = UM_MIN(UM_PANEL, j->a->hidden - column);
    multiply_panel(j, r, j->a->down[r->expert], panel, acc);
    for (int32_t i = 0; i < r->n; i++) {
        float *y = j->a->y + (size_t)j->s->token[r->first + i] * (size_t)j->a->hidden + column;
        j->dev->k->add_scaled(acc + i * UM_PANEL, j->s->share[r->first + i], n, y);
    }
}

/* Adds the outputs of the wave's experts to a run of output columns. Multiplies several panels of an expert in
 * succession, because a panel prefetches the next one. */
static void down_task(void *arg, int task, int thread) {
    const moe_job *j = (const moe_job *)arg;
    int begin = task * j->panels_per_task, n_panels = UM_CEIL_DIV(j->a->hidden, UM_PANEL);
    um_product_begin(j->p);
    for (const expert_run *r = j->run; r < j->run + j->n_runs; r++)
        for (int panel = begin; panel < UM_MIN(begin + j->panels_per_task, n_panels); panel++)
            add_panel(j, r, panel, j->dev->thread[thread].acc);
    um_product_end(j->p);
}

static void run_wave(moe_job *j, int n_rows) {
    um_dev *dev = j->dev;
    const um_moe *a = j->a;
    const um_weight *gate_up = a->gate_up[j->run[0].expert], *down = a->down[j->run[0].expert];
    int n_panels = UM_CEIL_DIV(gate_up->rows, UM_PANEL), n_down = UM_CEIL_DIV(a->hidden, UM_PANEL);
    int tasks_min = 4 * dev->n_threads;
    double work = (double)n_rows * a->hidden * a->n_ff;
    j->n_parts = UM_MIN(UM_CEIL_DIV(tasks_min, j->n_runs), n_panels);
    j->panels_per_part = UM_CEIL_DIV(n_panels, j->n_parts);
    pack_rows(j, gate_up, a->x, (size_t)a->hidden, j->s->token + j->first, n_rows);
    um_cpu_run(dev, gate_up_task, j, j->n_parts * j->n_runs, 2 * work);
    um_cpu_run(dev, gate_task, j, n_rows, (double)n_rows * a->n_ff * 4);
    pack_rows(j, down, j->s->gate_up, 2 * (size_t)a->n_ff, NULL, n_rows);
    j->panels_per_task = UM_CEIL_DIV(n_down, UM_MIN(tasks_min, n_down));
    um_cpu_run(dev, down_task, j, UM_CEIL_DIV(n_down, j->panels_per_task), work);
}

void um_cpu_moe(um_dev *dev, const um_moe *a) {
    const um_dev_config *c = &dev->config;
    const um_expert_route *r = a->route;
    assert(a->n_tokens <= c->max_tokens && r->n_experts <= c->max_experts && r->top_k <= c->max_top_k);
    assert(a->n_ff <= c->max_expert_ff && a->hidden <= c->max_hidden);
    moe_job j = {.dev = dev, .s = dev->moe, .a = a};
    um_cpu_run(dev, route_task, &j, UM_CEIL_DIV(a->n_tokens, ROUTE_TOKENS), (double)a->n_tokens * r->n_experts * 40);
    int32_t n_pairs = sort_pairs(&j), expert = 0;
    for (int32_t first = 0, end; first < n_pairs; first = end) {
        end = choose_wave(&j, first, &expert);
        run_wave(&j, end - first);
    }
}
