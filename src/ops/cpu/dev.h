/* Internals of the cpu backend: device, weights, KV, scratch, and the product that linear layers and the head share. */
#ifndef UM_OPS_CPU_DEV_H
#define UM_OPS_CPU_DEV_H

#include <math.h>

#include "ops/cpu/cpu.h"
#include "ops/cpu/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    UM_GROUP_ROWS = 288,   /* rows of the left operand per pass over the weights: whole tiles of 12 and of 32 */
    UM_WAVE_GROUPS = 4,    /* largest number of groups that are packed together */
    UM_OWN_ROWS = 64,      /* smallest number of rows for which one more group is worth its cost */
    UM_ACC_ROWS = 4 * 288, /* rows of products that a thread holds: panels times rows */
    UM_QUERY_ROWS = 384,   /* largest number of queries of an attention task, for a matrix unit: whole tiles of 32 */
    UM_BLOCK_ROWS = 96,    /* the usual number: whole tiles of 6, of 12 and of 32 */
    UM_SPLIT_ROWS = 32,    /* the same when the keys of a query are divided among tasks */
    UM_SPLIT_PARTS = 8,    /* partial results of such queries, for each thread */
    UM_GROUP_KEYS = UM_GROUP_UNITS * UM_PANEL,
    UM_SEGMENT_KEYS = UM_GROUP_KEYS, /* keys whose sums attention computes on their own and then merges */
    UM_HEAD_TILE = 256,              /* vocabulary ids whose logits are reduced together */
    UM_HEAD_ROWS = 96,               /* rows whose answers are computed in one pass over the vocabulary */
    UM_WHOLE_ROWS = 32 /* largest number of these rows whose logits are stored, for filters and the likeliest ids */
};

/* The way in which a kind of panel is multiplied: the format of the left operand and the kernel. */
typedef struct um_product {
    um_tile_fn tile;
    um_pack_fn pack;
    um_chain_fn chain;     /* `tile` for several panels; NULL with `matrix` */
    um_softmax_fn softmax; /* for attention; packs its result as `pack` does */
    int per_word; /* elements of k in a word: 1, or 2 for pairs; of a q8 or q4 panel a group of 32 counts as a word */
    int block_words;       /* words of a block */
    size_t x_stride;       /* words from one row of a block to the next */
    size_t bytes_per_word; /* bytes of a panel per word */
    int step;              /* the number of words must be a multiple of this */
    int tile_rows;         /* largest number of rows that `tile` takes; with `matrix`, rows that fill its tiles */
    double task_work;      /* multiplications per task, chosen so that a task takes a few microseconds */
    um_matrix_fn matrix;   /* replaces `tile` if not NULL; needs whole tiles, and begin and end around products */
    void (*begin)(void), (*end)(void);
    um_matrix_quant_fn matrix_quant; /* replaces `tile` from UM_QUANT_TILE_LEAST rows on if not NULL */
} um_product;

/* Sums over keys for some queries of attention. `rows` is their number rounded up to whole tiles. */
typedef struct um_sums {
    float *out;       /* [panels of a head][rows, UM_PANEL] */
    float *max, *sum; /* [rows] running values of the online softmax; exponents are of 2 */
    int rows;
} um_sums;

/* Scratch of one thread. */
typedef struct um_thread {
    float *acc; /* [UM_ACC_ROWS, UM_PANEL] */
    /* attention */
    uint32_t *query;                /* [blocks of a head][UM_QUERY_ROWS, UM_X_STRIDE] */
    uint32_t *weight;               /* [UM_BLOCK_ROWS, UM_X_STRIDE] probabilities as a left operand */
    um_sums sums[2];                /* [UM_QUERY_ROWS] of all keys so far, and of a segment */
    int32_t *seen_end, *seen_start; /* [UM_QUERY_ROWS] */
    int head_block;                 /* the first block of the head whose keys the thread read last; -1: none */
    void *unit;                     /* [UM_GROUP_UNITS] KV units collected from scattered slots */
    void *wide;                     /* [UM_GROUP_UNITS] 8-bit KV units widened to bf16 */
    float *scale; /* [2, UM_GROUP_UNITS, UM_PANEL] scales of these units' keys, then of their values */
    /* head */
    float *z;             /* [UM_HEAD_ROWS, UM_HEAD_TILE] logits */
    float *z_cut;         /* [UM_HEAD_TILE] */
    float *candidate;     /* [max_vocab rounded up to UM_HEAD_TILE] for filters */
    struct um_bins *bins; /* for filters */
} um_thread;

struct um_partial;
struct um_moe_scratch;
typedef struct um_slab um_slab;

struct um_dev {
    um_dev_config config;
    const um_kernels *k;
    um_pool *pool;
    int n_threads;
    int *cpu;                         /* [n_threads] the CPUs of pinned threads; NULL when they are not pinned */
    um_product f32, bf16;             /* products with fp32 and bf16 panels in the arithmetic of the device */
    um_product bf16_tiles;            /* like `bf16` for panels of whole tiles; uses the matrix unit if there is one */
    um_product exact_f32, exact_bf16; /* products that don't round the left operand */
    um_product q8, q4;                /* products that round the left operand to groups of integers */
    um_thread *thread;                /* [n_threads] */
    int wave_rows;                    /* largest number of rows that are packed together, a multiple of UM_GROUP_ROWS */
    uint32_t *x;                      /* left operand of a product: [blocks][wave_rows, UM_X_STRIDE] */
    float *mix;                       /* [UM_HEAD_ROWS, max_hidden] weighted sums of hidden rows */
    float *logit;                     /* [UM_WHOLE_ROWS, max_vocab rounded up to UM_HEAD_TILE] */
    int32_t *first_block;             /* [max_tokens + 1] attention: first block of queries of each span */
    um_sums *part;                    /* [n_parts] attention: sums of segments; none with one thread */
    int n_parts;
    /* selection of keys */
    float *mean;                        /* [max_heads, max_head_dim] mean queries of a block */
    float *score, *pooled;              /* [max_heads, max_tokens] scores of the keys outside the block */
    int32_t *best;                      /* [max_heads, max_tokens] the order of these keys by score */
    int32_t *key;                       /* [max_tokens] visibility indices of these keys */
    int32_t *block;                     /* [max_tokens] tokens of the block */
    struct um_partial *partial;         /* [head tiles][UM_HEAD_ROWS] */
    struct um_moe_scratch *moe;         /* mixture of experts (moe.c) */
    um_slab *slab;                      /* memory of the weights that are made next (weight.c), or NULL */
    size_t scratch_bytes, shared_bytes; /* shared_bytes: the part before that of the threads */
    void *scratch;                      /* all of the above in one allocation */
};

/* Panels of several weights. A weight that is smaller than a few huge pages has none by itself, or its last part has
 * none: the experts of LLaDA-MoE in q4 were read an eighth slower (family 6 model 167). The first user of a page
 * decides on its memory node, so weights that share a huge page share a node. */
struct um_slab {
    unsigned char *data;
    size_t used;
    int n_weights;
};

struct um_weight {
    int32_t rows, in;
    um_dtype type;      /* element type of the panels: UM_F32, UM_BF16, UM_Q8 or UM_Q4 */
    bool exact;         /* the left operand is never rounded */
    size_t panel_bytes; /* size of a panel of UM_PANEL rows; the last panel is padded with zeros */
    unsigned char *panel;
    bool is_borrowed; /* the panels are those of a file */
    um_slab *slab;    /* contains the panels, or NULL */
};

/* Returns the index of element (row, k) in a panel. In narrow types (bf16, 8 bits) the elements 2 i and 2 i + 1 of a
 * row are adjacent. */
static inline size_t um_panel_at(um_dtype type, size_t row, size_t k) {
    return type == UM_F32 ? k * UM_PANEL + row : (k / 2 * UM_PANEL + row) * 2 + k % 2;
}

/* Returns the bytes of a group of a q8 or q4 panel. */
static inline size_t um_quant_panel_bytes(um_dtype type) {
    return type == UM_Q8 ? UM_Q8_PANEL_BYTES : UM_Q4_PANEL_BYTES;
}

/* Keys and values are stored in units of UM_PANEL slots, one unit per layer, KV head and run of slots (kv.c). The units
 * of all layers come first, then those of the scratch slots. The keys of unit i are at key + i * key_stride, its values
 * at value + i * value_stride. */
struct um_kv {
    um_kv_shape shape;
    int64_t n_units, n_scratch_units; /* units per layer and head; scratch units per head */
    size_t key_panel_bytes, value_panel_bytes;
    size_t key_bytes, value_bytes; /* size of a unit's keys and values, including scales */
    size_t key_stride, value_stride;
    unsigned char *key, *value;
    void *pool[2]; /* the second pool is used only in the distinct layout */
};

/* An allocator of aligned parts of the scratch. Without a base it only counts bytes. */
typedef struct um_scratch {
    unsigned char *base;
    size_t used;
} um_scratch;
void *um_scratch_take(um_scratch *c, size_t n, size_t size);

/* Returns the number of elements of the widest left operand. */
int32_t um_widest_in(const um_dev_config *c);

/* ---- pin.c ---- */
/* Decides whether n_threads threads are pinned; pin is a UM_PIN_*. If so, chooses their CPUs, cpu [n_threads], and
 * keeps other devices of this process away from them until um_cpu_unclaim. Any thread. */
bool um_cpu_claim(int32_t pin, int n_threads, int *cpu);
void um_cpu_unclaim(const int *cpu, int n);

/* Computes y[i] = act(g[i]) * u[i]; y may be g. */
static inline void um_cpu_gate_row(const um_dev *dev, um_act act, const float *g, const float *u, int n, float *y) {
    (act == UM_ACT_SILU ? dev->k->gate : dev->k->gate_gelu)(g, u, n, y);
}

/* Runs n tasks on the thread pool, or on the calling thread when the work is too small for waking other threads. `work`
 * is the number of multiplications or elements of all tasks. */
void um_cpu_run(um_dev *dev, um_task_fn fn, void *arg, int n, double work);
/* Returns how many of n rows a task takes, so that every thread has a task: at most `most`. */
static inline int um_cpu_rows_per_task(const um_dev *dev, int n, int most) {
    return UM_MAX(UM_MIN(UM_CEIL_DIV(n, dev->n_threads), most), 1);
}

/* Allocates memory for `what`, filled with zeros by all threads in turn, so that its pages are spread over the memory
 * nodes. Released with um_free. UM_ENOMEM. */
um_status um_cpu_alloc(um_dev *dev, void **out, size_t bytes, const char *what, um_err *err);

/* ---- product.c: panels times a left operand ---- */
/* Returns the number of words of a left operand with k elements. */
int um_product_words(const um_product *p, int k);
/* Packed rows of a left operand: row i of block b is at x + b * block_stride + i * row_stride. */
typedef struct um_left {
    const uint32_t *x;
    size_t row_stride, block_stride;
    int n_rows;
} um_left;
/* The panels with which the product after a pack begins: thread t starts with the t-th of n_threads equal shares of the
 * n panels at `first`, `stride` bytes apart. */
typedef struct um_start {
    const unsigned char *first;
    size_t stride;
    int n;
} um_start;
#define UM_START_NONE ((um_start){NULL, 0, 0})
/* Packs n_rows rows of `in` elements into dev->x. Row i is at x[i * stride], or at x[row[i] * stride] if row is not
 * NULL. Each thread also prefetches the beginning of the panels that it reads next. */
um_left um_product_pack(um_dev *dev, const um_product *p, const float *x, size_t stride, const int32_t *row, int n_rows,
                        int in, um_start start);
/* Returns the packed rows [first, first + n). */
static inline um_left um_left_rows(um_left all, int first, int n) {
    return (um_left){all.x + (size_t)first * all.row_stride, all.row_stride, all.block_stride, n};
}
/* A thread calls these before and after its products. */
static inline void um_product_begin(const um_product *p) {
    if (p->begin) p->begin();
}
static inline void um_product_end(const um_product *p) {
    if (p->end) p->end();
}
/* Computes acc [n_panels, n_rows, UM_PANEL], the products of the panels [panel, panel + n_panels) of w with the rows;
 * n_panels * n_rows <= UM_ACC_ROWS. With several panels the rows are read only once. */
void um_product_panels(const um_product *p, const um_weight *w, int panel, int n_panels, um_left x, float *acc);
/* Does the same with a matrix unit and writes directly to n_panels * UM_PANEL columns of y, whose rows are `stride`
 * floats apart. With `add`, y is the first term of the sums. */
void um_product_columns(const um_product *p, const um_weight *w, int panel, int n_panels, um_left x, bool add, float *y,
                        size_t stride);
/* Returns the product for keys and values on this device. 8-bit elements are widened to bf16. */
static inline const um_product *um_product_kv(const um_dev *dev, const um_kv *kv) {
    if (kv->shape.type == UM_F32) return &dev->f32;
    const int32_t d = kv->shape.head_dim;
    return d % (2 * UM_TILE_WORDS) == 0 && d <= 2 * UM_BLOCK_WORDS ? &dev->bf16_tiles : &dev->bf16;
}
/* Returns the product for a weight on this device. */
static inline const um_product *um_product_for(const um_dev *dev, const um_weight *w) {
    if (w->type == UM_Q8) return &dev->q8;
    if (w->type == UM_Q4) return &dev->q4;
    if (w->exact) return w->type == UM_F32 ? &dev->exact_f32 : &dev->exact_bf16;
    return w->type == UM_F32 ? &dev->f32 : &dev->bf16_tiles;
}

/* ---- kv.c ---- */
/* The stored keys and values of UM_PANEL slots of a layer and KV head. */
typedef struct um_unit {
    unsigned char *key, *value;
} um_unit;
/* Returns the unit that contains a slot; the slot's index in the unit is slot % UM_PANEL. */
um_unit um_kv_unit(const um_kv *kv, int32_t layer, int32_t head, int64_t slot);
/* Return the scales [UM_PANEL] of an 8-bit unit. */
static inline float *um_key_scales(const um_kv *kv, um_unit u) { return (float *)(u.key + kv->key_panel_bytes); }
static inline float *um_value_scales(const um_kv *kv, um_unit u) {
    return (float *)(u.value + kv->value_bytes) - UM_PANEL;
}
/* Returns the largest number of elements of a unit, including a row of scales. */
static inline size_t um_copied_elements(int32_t head_dim) {
    const size_t d = (size_t)UM_MAX(head_dim, 1);
    return (d + 1 + UM_CEIL_DIV(d, UM_PANEL) * UM_PANEL) * UM_PANEL;
}
/* Copies key and value of a slot to another slot. */
void um_kv_move(um_kv *kv, int32_t layer, int32_t head, int64_t from, int64_t to);
/* A tile of keys and values in the form that the products take. The scales are factors of the elements, zero outside of
 * the requested keys. They are NULL if the elements need no scales. */
typedef struct um_kv_tile {
    const unsigned char *key, *value;
    size_t value_panel_bytes;
    const float *key_scale, *value_scale; /* [UM_PANEL] */
} um_kv_tile;
/* Returns the keys and values of a page table with the visibility indices [tile + lo, tile + hi); tile is a multiple of
 * UM_PANEL. The result points into the pages if it can. It points to a copy in the thread's scratch if the page size is
 * not a multiple of a tile, if 8-bit elements must be widened, or if the values need zeros beside them. `copy` is the
 * index of that copy, 0..UM_GROUP_UNITS - 1. Scales of copies are adjacent.
 *
 * Keys of the tile outside of [lo, hi) are undefined. Values outside are undefined, too, with two exceptions: when lo
 * or hi splits a pair of values, the value outside is zero; with `whole`, all values outside are zero. */
um_kv_tile um_kv_find(const um_dev *dev, const um_kv *kv, um_thread *t, int copy, int32_t layer, int32_t head,
                      const int32_t *page, int32_t tile, int32_t lo, int32_t hi, bool whole);

/* ---- attention.c ---- */
/* Packs x [d] as a row of the thread's queries. */
void um_query_pack(const um_product *p, um_thread *t, int row, const float *x, int d);
/* Computes s [n, UM_PANEL], the products of the queries [row, row + n) with a panel of keys. */
void um_query_products(const um_product *p, const um_thread *t, const unsigned char *key, int d, int row, int n,
                       float *s);

/* ---- moe.c ---- */
/* Lays out the scratch of a mixture of experts at `base` for the largest model that the configuration allows. Returns
 * its size in bytes. With base NULL, only computes the size. */
size_t um_moe_lay_out(const um_dev_config *c, int n_threads, void *base);

/* ---- filter.c ---- */
/* The result of the filters of a row. They keep the ids with a logit above `value`, and of those with logit `value` the
 * ids from `id` up. */
typedef struct um_kept_ids {
    float value;
    int32_t id;
} um_kept_ids;
#define UM_KEPT_ALL ((um_kept_ids){-INFINITY, 0})
static inline bool um_has_filter(const um_sampling *how) { return how->top_p < 1 || how->top_k > 0 || how->min_p > 0; }
/* Applies top-p, top-k and min-p to the logits z [n]; n is a multiple of UM_HEAD_TILE, max the largest logit. */
um_kept_ids um_filter(const um_dev *dev, um_thread *t, const um_sampling *how, const float *z, int32_t n, float max);
size_t um_bins_bytes(void);

/* ---- answer.c: reductions of logits ---- */
/* The partial answer of a row from one or more tiles of logits z. With x = (z - max) / temperature, `kept` is the sum
 * of exp(x) and `moment` the sum of x exp(x), both over the kept ids. */
typedef struct um_partial {
    float max, second_z, draw_score, draw_z, id_z; /* id_z: logit of the row's `id` */
    int32_t best, second, draw;                    /* ids; -1: none */
    double sum, plain_moment;                      /* sums of exp(z - max) and (z - max) exp(z - max) over all ids */
    double kept, moment;
} um_partial;
um_partial um_partial_none(void);
/* Applies the row's edits and `allow` to the logits z of the ids [first, first + n). */
void um_logits_edit(const um_row *r, int32_t first, int32_t n, float *z);
/* Reduces the logits of UM_HEAD_TILE ids from `first` on. */
um_partial um_partial_of(const um_dev *dev, um_thread *t, const um_row *r, um_kept_ids cut, int32_t first,
                         const float *z);
/* Merges two partial answers; the ids of b are higher than those of a. */
um_partial um_partial_merge(um_partial a, um_partial b, float temperature);
um_answer um_partial_answer(const um_row *r, um_kept_ids cut, const um_partial *p);
/* Writes r->top. z [n] are all logits of the row, from id 0 on, and p their merged partial answer. */
void um_find_top(const um_kernels *k, const um_row *r, um_kept_ids cut, const um_partial *p, const float *z, int32_t n);

/* The operations; arguments as in um_ops. */
double um_cpu_peak(um_dev *dev, um_dtype type, const char **instruction_name);
um_status um_cpu_weight(um_dev *dev, um_weight **out, const um_tensor *part, int n_parts, um_dtype type, um_err *err);
void um_cpu_weight_free(um_dev *dev, um_weight *w);
/* Frees the slab of a device that has no weights any more. */
void um_cpu_slab_close(um_dev *dev);
size_t um_cpu_weight_bytes(const um_weight *w);
um_status um_cpu_kv_new(um_dev *dev, um_kv **out, const um_kv_shape *shape, um_err *err);
void um_cpu_kv_free(um_dev *dev, um_kv *kv);
size_t um_cpu_kv_bytes(const um_kv_shape *shape);
size_t um_cpu_kv_scratch_bytes(const um_kv_shape *shape);
void um_cpu_kv_copy(um_dev *dev, um_kv *kv, int32_t from_page, int32_t to_page, int32_t n);
void um_cpu_embed(um_dev *dev, const um_weight *w, const int32_t *id, int32_t n_tokens, float scale, float *x);
void um_cpu_embed_soft(um_dev *dev, const um_weight *w, const um_soft *soft, int32_t n_soft, float scale, float *x);
void um_cpu_norm(um_dev *dev, const float *x, const um_norm *norm, int32_t n_tokens, int32_t n, float *y);
void um_cpu_sum(um_dev *dev, const float *const *part, int n_parts, size_t n, bool add, float *y);
void um_cpu_copy_rows(um_dev *dev, const float *x, const int32_t *from, const int32_t *to, int32_t n_rows,
                      int32_t stride, int32_t n, float *y);
void um_cpu_linear(um_dev *dev, const um_weight *w, const float *bias, const float *x, int32_t n_tokens, bool add,
                   float *y);
void um_cpu_rope_kv(um_dev *dev, um_kv *kv, const um_rope_kv *a);
void um_cpu_attention(um_dev *dev, const um_kv *kv, const um_attention *a);
void um_cpu_kv_select(um_dev *dev, um_kv *kv, const um_attention *a);
void um_cpu_moe(um_dev *dev, const um_moe *a);
void um_cpu_norm_add(um_dev *dev, float *y, const um_norm *norm, int32_t n_tokens, int32_t n, float scale, float *x);
void um_cpu_gate(um_dev *dev, um_act act, const float *gu, int32_t n_tokens, int32_t n, float *y);
void um_cpu_linear_gate(um_dev *dev, um_act act, const um_weight *w, const float *bias, const float *x,
                        int32_t n_tokens, float *y);
void um_cpu_head(um_dev *dev, const um_head *a);

#ifdef __cplusplus
}
#endif
#endif
