/* Inside the cpu backend: device, weights, KV, scratch, and the product that linear layers and the head share. */
#ifndef UM_OPS_CPU_DEV_H
#define UM_OPS_CPU_DEV_H

#include <math.h>

#include "ops/cpu/cpu.h"
#include "ops/cpu/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    UM_GROUP_ROWS = 288, /* rows of the left operand that one walk over the weights serves: whole tiles of 12 and 32 */
    UM_WAVE_GROUPS = 4,  /* most groups that are packed together */
    UM_OWN_ROWS = 64,    /* rows that are worth a group of their own */
    UM_ACC_ROWS = 4 * 288, /* rows of products that a thread holds: panels times rows */
    UM_QUERY_ROWS = 48,    /* queries of an attention task */
    UM_HEAD_TILE = 256,    /* vocabulary ids whose logits are reduced together */
    UM_HEAD_ROWS = 96,     /* rows whose answers are computed in one walk over the vocabulary */
    UM_WHOLE_ROWS = 32     /* of those, rows whose logits are kept whole, for filters and the likeliest ids */
};

/* How a kind of panel is multiplied: the words of the left operand and the kernel. */
typedef struct um_product {
    um_tile_fn tile;
    um_pack_fn pack;
    um_softmax_fn softmax; /* of attention: packs as `pack` does */
    int per_word;          /* elements of k in a word: 1, or 2 for pairs */
    size_t bytes_per_word; /* of a panel */
    int step;              /* the number of words must be a multiple of it */
    int tile_rows;         /* most rows of the left operand that `tile` takes; with `matrix` those of attention */
    double task_work;      /* multiplications of a task: a few us */
    um_matrix_fn matrix;   /* in place of `tile`, or NULL: whole tiles only, with begin and end */
    void (*begin)(void), (*end)(void);
} um_product;

/* Scratch of one thread. */
typedef struct um_thread {
    float *acc; /* [UM_ACC_ROWS, UM_PANEL] */
    /* attention */
    uint32_t *query;   /* [blocks of a head][UM_QUERY_ROWS, UM_X_STRIDE] */
    uint32_t *weight;  /* [UM_QUERY_ROWS, UM_X_STRIDE] probabilities as a left operand */
    float *out;        /* [panels of a head][UM_QUERY_ROWS, UM_PANEL] */
    float *max, *sum;  /* [UM_QUERY_ROWS] of the online softmax */
    int32_t *seen_end; /* [UM_QUERY_ROWS] */
    void *unit;        /* a KV unit collected from scattered slots */
    void *wide;        /* an 8-bit one as bf16 */
    float *scale;      /* [2, UM_PANEL] scales of its keys, of its values */
    /* head */
    float *z;             /* [UM_HEAD_ROWS, UM_HEAD_TILE] logits */
    float *z_cut;         /* [UM_HEAD_TILE] */
    float *candidate;     /* [max_vocab rounded up to UM_HEAD_TILE] of the filters */
    struct um_bins *bins; /* of the filters */
} um_thread;

struct um_partial;
struct um_moe_scratch;

struct um_dev {
    um_dev_config config;
    const um_kernels *k;
    um_pool *pool;
    int n_threads;
    um_product f32, bf16;             /* products with fp32 and bf16 panels, in the arithmetic of the device */
    um_product bf16_tiles;            /* `bf16` where panels are whole tiles: by the matrix unit, if there is one */
    um_product exact_f32, exact_bf16; /* the same with a left operand that is not rounded */
    um_thread *thread;                /* [n_threads] */
    int wave_rows;                    /* most rows that are packed together: a multiple of UM_GROUP_ROWS */
    uint32_t *x;                      /* left operand of a product: [blocks][wave_rows, UM_X_STRIDE] */
    float *mix;                       /* [UM_HEAD_ROWS, max_hidden] weighted sums of hidden rows */
    float *logit;                     /* [UM_WHOLE_ROWS, max_vocab rounded up to UM_HEAD_TILE] */
    int32_t *first_task;              /* [max_tokens + 1] attention: first task of each span */
    /* selection of keys */
    float *mean;                /* [max_heads, max_head_dim] mean queries of a block */
    float *score, *pooled;      /* [max_heads, max_tokens] of the keys outside the block */
    int32_t *best;              /* [max_heads, max_tokens] the order of their scores */
    int32_t *key;               /* [max_tokens] their vis indices */
    int32_t *block;             /* [max_tokens] tokens of the block */
    struct um_partial *partial; /* [head tiles][UM_HEAD_ROWS] */
    struct um_moe_scratch *moe; /* mixture of experts (moe.c) */
    size_t scratch_bytes;
    void *scratch; /* all of the above in one allocation */
};

struct um_weight {
    int32_t rows, in;
    um_dtype type;      /* of the panels: UM_F32 or UM_BF16 */
    bool exact;         /* the left operand is not rounded, whatever the device computes in */
    size_t panel_bytes; /* of one panel of UM_PANEL rows; the last one is padded with zeros */
    unsigned char *panel;
};

/* Index of element (row, k) in a panel: narrow types (bf16, 8 bits) keep the elements 2 i and 2 i + 1 of a row side by
 * side. */
static inline size_t um_panel_at(um_dtype type, size_t row, size_t k) {
    return type == UM_F32 ? k * UM_PANEL + row : (k / 2 * UM_PANEL + row) * 2 + k % 2;
}

/* Keys and values lie in units of UM_PANEL slots, one unit per layer, KV head and run of slots (kv.c). Units of all
 * layers come first, then those of the scratch slots. Unit i has its keys at key + i * key_stride, its values at
 * value + i * value_stride. */
struct um_kv {
    um_kv_shape shape;
    int64_t n_units, n_scratch_units; /* of a layer and head; of a head */
    size_t key_panel_bytes, value_panel_bytes;
    size_t key_bytes, value_bytes; /* of a unit, scales included */
    size_t key_stride, value_stride;
    unsigned char *key, *value;
    void *pool[2]; /* the second one when they are distinct */
};

/* Hands out aligned parts of the scratch; without a base it only counts. */
typedef struct um_scratch {
    unsigned char *base;
    size_t used;
} um_scratch;
void *um_scratch_take(um_scratch *c, size_t n, size_t size);

/* Elements of the widest left operand. */
int32_t um_widest_in(const um_dev_config *c);

/* Runs fn over n tasks, on the calling thread alone when the work (multiplications or elements touched, all tasks
 * together) is too small to be worth waking others. */
void um_cpu_run(um_dev *dev, um_task_fn fn, void *arg, int n, double work);

/* ---- product.c: panels times a left operand ---- */
/* Words of the left operand for k elements. */
int um_product_words(const um_product *p, int k);
/* Packed rows of a left operand: row i of block b stands at x + b * block_stride + i * UM_X_STRIDE. */
typedef struct um_left {
    const uint32_t *x;
    size_t block_stride;
    int n_rows;
} um_left;
/* Packs n_rows rows of `in` elements into dev->x: row i is x[i * stride], with `row` (else NULL) x[row[i] * stride]. */
um_left um_product_pack(um_dev *dev, const um_product *p, const float *x, size_t stride, const int32_t *row, int n_rows,
                        int in);
/* Rows [first, first + n) of packed ones. */
static inline um_left um_left_rows(um_left all, int first, int n) {
    return (um_left){all.x + (size_t)first * UM_X_STRIDE, all.block_stride, n};
}
/* Around products on a thread. */
static inline void um_product_begin(const um_product *p) {
    if (p->begin) p->begin();
}
static inline void um_product_end(const um_product *p) {
    if (p->end) p->end();
}
/* acc [n_panels, n_rows, UM_PANEL] = panels [panel, panel + n_panels) of w times the rows;
 * n_panels * n_rows <= UM_ACC_ROWS. Several panels at once spare reading the rows again for each. */
void um_product_panels(const um_product *p, const um_weight *w, int panel, int n_panels, um_left x, float *acc);
/* The same by a matrix unit straight to n_panels * UM_PANEL columns of y, rows `stride` apart; add: y is added to,
 * which then is the first term of the sums. */
void um_product_columns(const um_product *p, const um_weight *w, int panel, int n_panels, um_left x, bool add, float *y,
                        size_t stride);
/* What multiplies keys and values on this device: 8 bits are widened to bf16. */
static inline const um_product *um_product_kv(const um_dev *dev, const um_kv *kv) {
    if (kv->shape.type == UM_F32) return &dev->f32;
    return kv->shape.head_dim % (2 * UM_TILE_WORDS) == 0 ? &dev->bf16_tiles : &dev->bf16;
}
/* What multiplies a weight on this device. */
static inline const um_product *um_product_for(const um_dev *dev, const um_weight *w) {
    if (w->exact) return w->type == UM_F32 ? &dev->exact_f32 : &dev->exact_bf16;
    return w->type == UM_F32 ? &dev->f32 : &dev->bf16_tiles;
}

/* ---- kv.c ---- */
/* Keys and values of UM_PANEL slots of a layer and KV head, as they are stored. */
typedef struct um_unit {
    unsigned char *key, *value;
} um_unit;
/* The unit that holds a slot, as its slot % UM_PANEL. */
um_unit um_kv_unit(const um_kv *kv, int32_t layer, int32_t head, int64_t slot);
/* [UM_PANEL] scales of a unit in 8 bits. */
static inline float *um_key_scales(const um_kv *kv, um_unit u) { return (float *)(u.key + kv->key_panel_bytes); }
static inline float *um_value_scales(const um_kv *kv, um_unit u) {
    return (float *)(u.value + kv->value_bytes) - UM_PANEL;
}
/* Copies key and value of a slot to another one. */
void um_kv_move(um_kv *kv, int32_t layer, int32_t head, int64_t from, int64_t to);
/* A tile of keys and values as the products take it. Scales are NULL, or factors of the elements, zero outside of the
 * keys that were asked for. */
typedef struct um_kv_tile {
    const unsigned char *key, *value;
    size_t value_panel_bytes;
    const float *key_scale, *value_scale; /* [UM_PANEL] */
} um_kv_tile;
/* The vis indices [tile + lo, tile + hi) of a page table, tile a multiple of UM_PANEL: where they are stored, or in the
 * thread's scratch when pages are no multiple of a tile, or bytes must be widened, or values stand beside others. What
 * lies beside the keys may be anything. Beside the values are zeros in their last pair, with `whole` everywhere. */
um_kv_tile um_kv_find(const um_dev *dev, const um_kv *kv, um_thread *t, int32_t layer, int32_t head,
                      const int32_t *page, int32_t tile, int32_t lo, int32_t hi, bool whole);

/* ---- attention.c ---- */
/* Packs a row of d elements into the thread's queries. */
void um_query_pack(const um_product *p, um_thread *t, int row, const float *x, int d);
/* s [n, UM_PANEL] = products of the queries [row, row + n) with a panel of keys. */
void um_query_products(const um_product *p, const um_thread *t, const unsigned char *key, int d, int row, int n,
                       float *s);

/* ---- moe.c ---- */
/* Scratch of a mixture of experts at `base`, for models as large as the configuration says; returns the bytes it takes.
 * base NULL: counts only. */
size_t um_moe_lay_out(const um_dev_config *c, int n_threads, void *base);

/* ---- filter.c ---- */
/* The kept ids of a row: those with a logit above `value`, and those at `value` from `id` up. */
typedef struct um_cut {
    float value;
    int32_t id;
} um_cut;
#define UM_CUT_NONE ((um_cut){-INFINITY, 0})
static inline bool um_has_filter(const um_sampling *how) { return how->top_p < 1 || how->top_k > 0 || how->min_p > 0; }
/* What top-p, top-k and min-p leave of the logits z [n]; max is the largest of them; n a multiple of UM_HEAD_TILE. */
um_cut um_filter(const um_dev *dev, um_thread *t, const um_sampling *how, const float *z, int32_t n, float max);
size_t um_bins_bytes(void);

/* ---- answer.c: reductions of logits ---- */
/* What a tile of logits, or several merged, says about a row. */
typedef struct um_partial {
    float max, second_z, draw_score, draw_z, id_z; /* id_z: logit of the row's `id` */
    int32_t best, second, draw;                    /* -1: none */
    double sum;                                    /* of exp(z - max) */
    double kept, moment; /* over the kept ids, with x = (z - max) / temperature: of exp(x) and of x exp(x) */
} um_partial;
um_partial um_partial_none(void);
/* Applies the edits and excludes what `allow` excludes; z holds the logits of ids [first, first + n). */
void um_logits_edit(const um_row *r, int32_t first, int32_t n, float *z);
/* Reduces the logits of UM_HEAD_TILE ids from `first` on. */
um_partial um_partial_of(const um_dev *dev, um_thread *t, const um_row *r, um_cut cut, int32_t first, const float *z);
/* a, then b, as if reduced together. */
um_partial um_partial_merge(um_partial a, um_partial b, float temperature);
um_answer um_partial_answer(const um_row *r, um_cut cut, const um_partial *p);
/* Writes r->top from all logits of the row, z [n] from id 0 on, and what they say together. */
void um_find_top(const um_kernels *k, const um_row *r, um_cut cut, const um_partial *p, const float *z, int32_t n);

/* The operations; arguments as in um_ops. */
um_status um_cpu_weight(um_dev *dev, um_weight **out, const um_tensor *part, int n_parts, um_dtype type, um_err *err);
void um_cpu_weight_free(um_dev *dev, um_weight *w);
size_t um_cpu_weight_bytes(const um_weight *w);
um_status um_cpu_kv_new(um_dev *dev, um_kv **out, const um_kv_shape *shape, um_err *err);
void um_cpu_kv_free(um_dev *dev, um_kv *kv);
size_t um_cpu_kv_bytes(const um_kv_shape *shape);
size_t um_cpu_kv_scratch_bytes(const um_kv_shape *shape);
void um_cpu_kv_copy(um_dev *dev, um_kv *kv, int32_t from_page, int32_t to_page, int32_t n);
void um_cpu_embed(um_dev *dev, const um_weight *w, const int32_t *id, int32_t n_tokens, float scale, float *x);
void um_cpu_embed_soft(um_dev *dev, const um_weight *w, const um_soft *soft, int32_t n_soft, float scale, float *x);
void um_cpu_norm(um_dev *dev, const float *x, const um_norm *norm, int32_t n_tokens, int32_t n, float *y);
void um_cpu_linear(um_dev *dev, const um_weight *w, const float *bias, const float *x, int32_t n_tokens, bool add,
                   float *y);
void um_cpu_rope_kv(um_dev *dev, um_kv *kv, const um_rope_kv *a);
void um_cpu_attention(um_dev *dev, const um_kv *kv, const um_attention *a);
void um_cpu_kv_select(um_dev *dev, um_kv *kv, const um_attention *a);
void um_cpu_moe(um_dev *dev, const um_moe *a);
void um_cpu_gate(um_dev *dev, const float *gu, int32_t n_tokens, int32_t n, float *y);
void um_cpu_linear_gate(um_dev *dev, const um_weight *w, const float *bias, const float *x, int32_t n_tokens, float *y);
void um_cpu_head(um_dev *dev, const um_head *a);

#ifdef __cplusplus
}
#endif
#endif
