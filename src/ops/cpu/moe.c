/* Mixture of experts. Its speed is limited by memory: with 32 tokens and 8 of 256 experts each, an expert has one or
 * two tokens. So the weights of an expert are read only once for all of its tokens, by all threads together.
 *
 * The pairs (token, expert) are sorted by expert and processed in waves of up to UM_GROUP_ROWS pairs, so that scratch
 * stays small for any batch. In a wave, each pair is a row of a left operand and each expert a run of rows:
 *   pack      each token of the wave is packed once
 *   gather    a task is some runs; the packed tokens are copied to the rows of their pairs
 *   gate_up   a task is a run of an expert's panels, so that even a single expert keeps all threads busy; it also
 *             computes the gate and packs the result as the next left operand
 *   down      a task is a run of output columns; it adds the results of all experts of the wave to y
 * So a single task adds to an output element, in ascending order of the experts, and waves follow this order too.
 * Results are bit-identical for any batch and any number of threads.
 *
 * Memory is idle while no task reads weights, so there are few and short steps besides the products
 * (docs/kernels/linear.md). */
#include "ops/cpu/dev.h"

#include "ops/expert_route.h"

struct um_moe_scratch {
    int32_t *expert; /* [max_tokens, max_top_k] chosen experts */
    float *weight;   /* [max_tokens, max_top_k] their weights */
    int32_t *first;  /* [max_experts + 1] first pair of each expert */
    int32_t *token;  /* [max_tokens * max_top_k] token of each pair; pairs are sorted by expert, then by token */
    float *share;    /* [max_tokens * max_top_k] weight of each pair */
    int32_t *place;  /* [max_tokens] row of each token among the packed tokens of the wave; -1: it is not in the wave */
    int32_t *packed; /* [UM_GROUP_ROWS] tokens of the wave */
    uint32_t *left;  /* [blocks][UM_GROUP_ROWS, UM_X_STRIDE] packed rows of the wave's pairs */
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
    s->place = (int32_t *)um_scratch_take(&at, (size_t)c->max_tokens, sizeof(int32_t));
    s->packed = (int32_t *)um_scratch_take(&at, UM_GROUP_ROWS, sizeof(int32_t));
    const size_t blocks = (size_t)UM_CEIL_DIV(UM_MAX(c->max_hidden, 1), UM_BLOCK_WORDS);
    const size_t rows = c->max_experts ? um_mul(blocks, UM_GROUP_ROWS) + UM_TILE_ROWS : 0;
    s->left = (uint32_t *)um_scratch_take(&at, um_mul(rows, UM_X_STRIDE), sizeof(uint32_t));
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
    um_left tokens, x, h;          /* packed rows: tokens of the wave; pairs for gate_up; pairs for down */
    const um_product *up, *down;   /* their products, which all experts of the wave have in common */
    int32_t first, n_rows, n_runs; /* first pair of the wave, number of pairs, number of experts */
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

/* Returns whether the weights of two experts have the same types. Checkpoints may store experts in several formats. */
static bool are_alike(const moe_job *j, int32_t a, int32_t b) {
    const um_dev *dev = j->dev;
    const um_weight *const *up = j->a->gate_up, *const *down = j->a->down;
    return um_product_for(dev, up[a]) == um_product_for(dev, up[b]) &&
           um_product_for(dev, down[a]) == um_product_for(dev, down[b]);
}

/* Chooses the next wave, which starts at pair `first` of *expert. Takes whole experts as long as they fit and are of
 * the same types. Splits only an expert that is larger than a wave. Returns the first pair after the wave. */
static int32_t choose_wave(moe_job *j, int32_t first, int32_t *expert) {
    const int32_t *start = j->s->first, E = j->a->route->n_experts;
    int32_t at = first;
    j->first = first;
    for (j->n_runs = 0; *expert < E; ++*expert) {
        int32_t left = start[*expert + 1] - at, room = UM_GROUP_ROWS - (at - first);
        if (left > room && j->n_runs > 0) break;
        if (left > 0 && j->n_runs > 0 && !are_alike(j, j->run[0].expert, *expert)) break;
        int32_t n = UM_MIN(left, room);
        if (n > 0) j->run[j->n_runs++] = (expert_run){*expert, at, n};
        at += n;
        if (n < left) break;
    }
    return at;
}

/* ---- Left operands ---- */

/* Returns the packed rows of an expert's pairs. */
static um_left rows_of(const moe_job *j, um_left all, const expert_run *r) {
    return um_left_rows(all, r->first - j->first, r->n);
}

/* Packs each token of the wave once. */
static void pack_tokens(moe_job *j, const um_weight *gate_up) {
    struct um_moe_scratch *s = j->s;
    int n = 0;
    for (int32_t t = 0; t < j->a->n_tokens; t++) s->place[t] = -1;
    for (int32_t i = j->first; i < j->first + j->n_rows; i++) {
        int32_t *place = &s->place[s->token[i]];
        if (*place >= 0) continue;
        *place = n;
        s->packed[n++] = s->token[i];
    }
    j->up = um_product_for(j->dev, gate_up);
    j->tokens = um_product_pack(j->dev, j->up, j->a->x, (size_t)j->a->hidden, s->packed, n, gate_up->in, UM_START_NONE);
}

/* Copies the packed tokens to the rows of a thread's share of the runs. */
static void gather_task(void *arg, int task, int thread) {
    const moe_job *j = (const moe_job *)arg;
    const int n = j->dev->n_threads;
    const int begin = um_share_begin(j->n_runs, task, n), end = um_share_begin(j->n_runs, task + 1, n);
    const size_t row_bytes = j->x.row_stride * sizeof(uint32_t);
    (void)thread;
    for (const expert_run *r = j->run + begin; r < j->run + end; r++)
        for (int32_t i = r->first; i < r->first + r->n; i++) {
            const uint32_t *from = j->tokens.x + (size_t)j->s->place[j->s->token[i]] * j->tokens.row_stride;
            uint32_t *to = j->s->left + (size_t)(i - j->first) * j->x.row_stride;
            for (int k = 0; k < j->a->hidden; k += j->up->block_words * j->up->per_word) {
                memcpy(to, from, row_bytes);
                from += j->tokens.block_stride;
                to += j->x.block_stride;
            }
        }
}

static um_left left_of(const um_product *p, const uint32_t *x, int n_rows) {
    return (um_left){x, p->x_stride, (size_t)n_rows * p->x_stride, n_rows};
}

/* ---- Computation of a wave ---- */

/* Moves the columns of up from `lane` of their panel on, which end in the next panel, to the start. */
static void join_columns(float *up, int32_t n_rows, int lane) {
    const float *next = up + n_rows * UM_PANEL;
    for (int32_t i = 0; i < n_rows; i++, up += UM_PANEL, next += UM_PANEL) {
        memmove(up, up + lane, (size_t)(UM_PANEL - lane) * sizeof(float));
        memcpy(up + UM_PANEL - lane, next, (size_t)lane * sizeof(float));
    }
}

/* Computes a panel of an expert's gate and the same columns of up, applies the gate, and packs the result. */
static void gate_up_panel(const moe_job *j, const expert_run *r, int panel, float *gate) {
    const um_weight *w = j->a->gate_up[r->expert];
    const um_left x = rows_of(j, j->x, r);
    const int n_ff = j->a->n_ff, lane = n_ff % UM_PANEL, first = n_ff / UM_PANEL + panel;
    const int column = panel * UM_PANEL, n = UM_MIN(UM_PANEL, n_ff - column);
    const int of_block = j->down->block_words * j->down->per_word, row = r->first - j->first;
    float *up = gate + (size_t)r->n * UM_PANEL;
    um_product_panels(j->up, w, panel, 1, x, gate);
    um_product_panels(j->up, w, first, 1, x, up);
    if (lane && (first + 1) * UM_PANEL < w->rows)
        um_product_panels(j->up, w, first + 1, 1, x, up + (size_t)r->n * UM_PANEL);
    if (lane) join_columns(up, r->n, lane);
    uint32_t *h = j->dev->x + (size_t)(column / of_block) * j->h.block_stride + (size_t)row * j->h.row_stride;
    for (int32_t i = 0; i < r->n; i++, gate += UM_PANEL, up += UM_PANEL, h += j->h.row_stride) {
        um_cpu_gate_row(j->dev, j->a->act, gate, up, n, gate);
        j->down->pack(gate, column % of_block, n, h);
    }
}

/* Multiplies some panels of one expert's gate_up. */
static void gate_up_task(void *arg, int task, int thread) {
    const moe_job *j = (const moe_job *)arg;
    const expert_run *r = &j->run[task / j->n_parts];
    const int begin = task % j->n_parts * j->panels_per_part;
    const int end = UM_MIN(begin + j->panels_per_part, UM_CEIL_DIV(j->a->n_ff, UM_PANEL));
    um_product_begin(j->up);
    for (int panel = begin; panel < end; panel++) gate_up_panel(j, r, panel, j->dev->thread[thread].acc);
    um_product_end(j->up);
}

/* Adds a panel of an expert's output columns to y. */
static void add_panel(const moe_job *j, const expert_run *r, int panel, float *acc) {
    int32_t column = panel * UM_PANEL, n = UM_MIN(UM_PANEL, j->a->hidden - column);
    um_product_panels(j->down, j->a->down[r->expert], panel, 1, rows_of(j, j->h, r), acc);
    for (int32_t i = 0; i < r->n; i++) {
        float *y = j->a->y + (size_t)j->s->token[r->first + i] * (size_t)j->a->hidden + column;
        j->dev->k->add_scaled(acc + i * UM_PANEL, j->s->share[r->first + i], n, y);
    }
}

/* Adds the outputs of the wave's experts to a run of output columns. Multiplies several panels of an expert in
 * succession, because a panel prefetches the next one. */
static void down_task(void *arg, int task, int thread) {
    const moe_job *j = (const moe_job *)arg;
    const int begin = task * j->panels_per_task;
    const int end = UM_MIN(begin + j->panels_per_task, UM_CEIL_DIV(j->a->hidden, UM_PANEL));
    um_product_begin(j->down);
    for (const expert_run *r = j->run; r < j->run + j->n_runs; r++)
        for (int panel = begin; panel < end; panel++) add_panel(j, r, panel, j->dev->thread[thread].acc);
    um_product_end(j->down);
}

/* Chooses how the wave's products are divided into tasks. The runs of columns of `down` are long, because a thread
 * reads a part of each expert in turn, and each part begins slowly. */
static void divide_wave(moe_job *j) {
    const int n_threads = j->dev->n_threads, n_ff = UM_CEIL_DIV(j->a->n_ff, UM_PANEL);
    const int n_down = UM_CEIL_DIV(j->a->hidden, UM_PANEL);
    j->n_parts = UM_MIN(UM_CEIL_DIV(4 * n_threads, j->n_runs), n_ff);
    j->panels_per_part = UM_CEIL_DIV(n_ff, j->n_parts);
    j->panels_per_task = UM_CEIL_DIV(n_down, UM_MIN(2 * n_threads, n_down));
}

static void run_wave(moe_job *j) {
    um_dev *dev = j->dev;
    const um_moe *a = j->a;
    const double work = (double)j->n_rows * a->hidden * a->n_ff;
    divide_wave(j);
    pack_tokens(j, a->gate_up[j->run[0].expert]);
    j->x = left_of(j->up, j->s->left, j->n_rows);
    um_cpu_run(dev, gather_task, j, dev->n_threads, (double)j->n_rows * a->hidden);
    j->down = um_product_for(dev, a->down[j->run[0].expert]);
    j->h = left_of(j->down, dev->x, j->n_rows);
    um_cpu_run(dev, gate_up_task, j, j->n_parts * j->n_runs, 2 * work);
    um_cpu_run(dev, down_task, j, UM_CEIL_DIV(UM_CEIL_DIV(a->hidden, UM_PANEL), j->panels_per_task), work);
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
        j.n_rows = end - first;
        run_wave(&j);
    }
}
