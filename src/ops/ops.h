/* ops: the table of tensor operations. A backend is one um_ops; transformer.c is the only caller and knows no backend.
 *
 * Backends: `ref` (ops/ref: the formulas in plain C, one thread, fp32: the oracle), `cpu` (ops/cpu: threads, AVX2,
 * AVX-512 and AMX chosen at run time). Both answer the same questions; tests/ops compares them.
 *
 * Activations are fp32, row-major, in memory from `buffer`. Shapes stand beside the names: T tokens, H hidden size,
 * V vocabulary rows, d head size.
 *
 * Invariance: for one device and build, an output element is a function of its own inputs alone. Reduction orders are
 * fixed per element: they never depend on T, on the other rows of a batch, or on the number of threads; attention goes
 * through keys in tiles at fixed multiples of the tile length of the visibility index.
 *
 * Threads: a um_dev belongs to one thread; operations spread over its own pool. No operation allocates. Sizes and
 * pointers are our own business and are asserted, not checked. */
#ifndef UM_OPS_H
#define UM_OPS_H

#include "base/base.h"
#include "ops/batch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* UM_F8: 8-bit floats e4m3 (4 bits exponent, 3 mantissa, largest 448, no infinity), for keys and values alone; each
 * stored head vector has a scale of its own, fp32: largest magnitude / 448. */
typedef enum { UM_F32, UM_BF16, UM_F16, UM_F8 } um_dtype;
size_t um_dtype_size(um_dtype t);
const char *um_dtype_name(um_dtype t); /* "float32", "bfloat16", "float16", "float8_e4m3" */
float um_bf16_to_f32(uint16_t v);
uint16_t um_f32_to_bf16(float v); /* round to nearest even; NaN stays NaN */
float um_f16_to_f32(uint16_t v);
float um_f8_to_f32(uint8_t v);
uint8_t um_f32_to_f8(float v); /* round to nearest even; beyond the largest: the largest; NaN stays NaN */
/* The scale of a vector that is stored in 8 bits; 0 for zeros, NaN when not all elements are finite. */
float um_f8_scale(const float *x, size_t n);
/* What is stored for an element of such a vector: v / scale, 0 when the scale is 0 or NaN. */
uint8_t um_f8_code(float v, float scale);

/* A tensor as the checkpoint stores it; data is borrowed and lives as long as the model's files are mapped. It may be
 * unaligned. */
typedef struct um_tensor {
    const char *name;
    um_dtype type;
    int32_t n_dims;
    int64_t dim[4];
    const void *data;
} um_tensor;

typedef struct um_dev um_dev;       /* a backend's instance */
typedef struct um_weight um_weight; /* a matrix [out, in] in the backend's own layout */
typedef struct um_kv um_kv;         /* keys and values of all layers in the backend's own layout */

typedef struct um_dev_config {
    int threads;        /* 0 = one per core */
    um_dtype dtype;     /* UM_F32: exact products of the stored weights. UM_BF16: weights and the left operand of each
                           product are rounded to bf16, sums are fp32 */
    int32_t max_tokens; /* largest T of a pass */
    int32_t max_rows;   /* largest number of wanted rows */
    int32_t max_in;     /* widest input of a linear layer */
    int32_t max_head_dim, max_heads; /* query heads */
    int32_t max_vocab;               /* vocabulary rows */
    int32_t max_hidden;
    int32_t max_experts, max_top_k, max_expert_ff; /* of a mixture of experts; 0 when the model has none */
} um_dev_config;

typedef enum { UM_KV_UNIFIED, UM_KV_DISTINCT } um_kv_layout; /* keys and values in one pool, or in one each */
typedef struct um_kv_shape {
    int32_t n_layers, n_kv_heads, head_dim, page_size;
    int64_t n_slots;         /* pages * page_size */
    int64_t n_scratch_slots; /* of the scratch pages, which are one layer deep; slots [n_slots, n_slots + this) */
    um_dtype type;           /* UM_F32, UM_BF16, UM_F8 */
    um_kv_layout layout;
} um_kv_shape;

/* Without bias the root mean square norm x / rms(x) * w; with bias LayerNorm: (x - mean) / deviation * w + bias. */
typedef struct um_norm {
    const float *w, *bias; /* [n]; bias may be NULL */
    float eps;
} um_norm;

/* Arguments of rope_kv: normalises and rotates queries and keys in place, writes keys and values to their slots. */
typedef struct um_rope_kv {
    int32_t layer, n_tokens, n_heads, n_kv_heads, head_dim, rope_dim; /* rope_dim: leading dims rotated, half-split */
    float *qkv;                   /* [T, (n_heads + 2 * n_kv_heads) * head_dim]: queries | keys | values */
    const float *q_norm, *k_norm; /* [d] or NULL */
    float eps;
    float clip;                /* > 0: queries, keys and values are clamped to [-clip, clip] before the rotation */
    const float *cos, *sin;    /* [max position, rope_dim / 2] */
    const int32_t *pos, *slot; /* [T]; slot -1 writes nothing */
} um_rope_kv;

typedef struct um_attention {
    int32_t layer, n_heads, n_kv_heads, head_dim, page_size;
    int32_t stride; /* floats from a token's queries to the next token's */
    const float *q; /* [T, stride]: the queries stand first in each row */
    float *out;     /* [T, n_heads * d] */
    float scale;
    const um_batch *batch; /* spans, seen_end */
} um_attention;

/* How a token chooses its experts. Scores are softmax or sigmoid of the router's products. */
typedef enum { UM_SCORE_SOFTMAX, UM_SCORE_SIGMOID } um_score;
typedef enum {
    UM_BIAS_NONE,
    UM_BIAS_CHOICE,
    UM_BIAS_SCORE
} um_route_bias; /* what the correction bias is added to:
          the choice alone, or the weights too */
typedef struct um_route {
    int32_t n_experts, top_k;
    um_score score;
    um_route_bias bias;
    bool normalize;              /* the chosen weights are divided by their sum */
    float scale;                 /* of the weights, last */
    int32_t n_group, topk_group; /* experts in n_group equal runs, of which the topk_group with the largest sums of
                                    their two best are eligible; 1, 1: no groups */
    int32_t capacity;            /* experts that the tokens of a routing block may use together; 0: no limit */
} um_route;

/* y[t] += sum over the chosen experts e of weight_e * down_e (silu(gate_e x[t]) * up_e x[t]).
 * Contributions are added in ascending order of the expert. Equal scores go to the lower expert. */
typedef struct um_moe {
    const um_route *route;
    const float *logits;             /* [T, E] products of the router */
    const float *bias;               /* [E], or NULL when route->bias is UM_BIAS_NONE */
    const int32_t *block;            /* [T] routing block of each token, equal ones stand together; NULL when
                                        route->capacity is 0 */
    const um_weight *const *gate_up; /* [E] of [2 * n_ff, H]: gate rows, then up rows */
    const um_weight *const *down;    /* [E] of [H, n_ff] */
    const float *x;                  /* [T, H] */
    int32_t n_tokens, hidden, n_ff;
    float *y; /* [T, H] */
} um_moe;

typedef struct um_head {
    const um_weight *w;         /* [V, H] */
    const float *hidden;        /* [T, H] after the final norm */
    const float *saved;         /* [n_saved, H] */
    int32_t hidden_size, vocab; /* ids at or above vocab do not exist */
    float scale;                /* of the logits */
    const um_row *row;          /* [n_rows] */
    int32_t n_rows;
    um_answer *answer; /* [n_rows] */
} um_head;

typedef struct um_ops {
    const char *name, *summary;
    /* Rows whose results between the products of a feed-forward layer stay in the caches: the layer is worked off in
     * groups of at most so many. 0: all rows at once. */
    int32_t rows_at_once;
    um_status (*open)(um_dev **out, const um_dev_config *c, um_err *err);
    void (*close)(um_dev *dev); /* NULL is fine */
    int (*threads)(const um_dev *dev);
    const char *(*isa)(const um_dev *dev); /* "plain C", "avx2", "amx_bf16": what was chosen */
    size_t (*scratch_bytes)(const um_dev *dev);

    /* Zeroed memory that operations read and write. */
    um_status (*buffer)(um_dev *dev, void **out, size_t bytes, const char *what, um_err *err);
    void (*buffer_free)(um_dev *dev, void *p);

    /* The rows of `part` [n_parts] stacked into one matrix: part i is [rows_i, in]. Their data may go afterwards.
     * type: arithmetic of its products: that of the device, or UM_F32 for a layer that stays exact (routers). */
    um_status (*weight)(um_dev *dev, um_weight **out, const um_tensor *part, int n_parts, um_dtype type, um_err *err);
    void (*weight_free)(um_dev *dev, um_weight *w);
    size_t (*weight_bytes)(const um_weight *w); /* memory of its own */

    um_status (*kv_new)(um_dev *dev, um_kv **out, const um_kv_shape *shape, um_err *err);
    void (*kv_free)(um_dev *dev, um_kv *kv);
    size_t (*kv_bytes)(const um_kv_shape *shape);         /* of the pages that requests own */
    size_t (*kv_scratch_bytes)(const um_kv_shape *shape); /* of the scratch pages */
    /* Copies the first n slots of a page to another, in all layers. Both below n_pages. */
    void (*kv_copy)(um_dev *dev, um_kv *kv, int32_t from_page, int32_t to_page, int32_t n);

    /* x[t] = scale * W[id[t]]; W [V, H]. */
    void (*embed)(um_dev *dev, const um_weight *w, const int32_t *id, int32_t n_tokens, float scale, float *x);
    /* Overwrites x[soft[i].at] with the blend; rows are not scaled but by `scale`, like embed. */
    void (*embed_soft)(um_dev *dev, const um_weight *w, const um_soft *soft, int32_t n_soft, float scale, float *x);
    /* y[t] = norm(x[t]); x, y [T, n], y may be x. */
    void (*norm)(um_dev *dev, const float *x, const um_norm *norm, int32_t n_tokens, int32_t n, float *y);
    /* y[t] (+)= W x[t] + bias; W [out, in], bias [out] or NULL; add: y is added to. */
    void (*linear)(um_dev *dev, const um_weight *w, const float *bias, const float *x, int32_t n_tokens, bool add,
                   float *y);
    void (*rope_kv)(um_dev *dev, um_kv *kv, const um_rope_kv *a);
    void (*attention)(um_dev *dev, const um_kv *kv, const um_attention *a);
    /* Carries out span[i].select of every span that has one; queries and keys are those that attention just used. Keys
     * are read as attention reads them, all else is fp32. At most max_tokens keys outside a block. */
    void (*kv_select)(um_dev *dev, um_kv *kv, const um_attention *a);
    /* y[t, i] = silu(gu[t, i]) * gu[t, n + i]; gu [T, 2n], y [T, n]. */
    void (*gate)(um_dev *dev, const float *gu, int32_t n_tokens, int32_t n, float *y);
    /* linear and gate in one, with the same bits: y[t, i] = silu(z[i]) * z[n + i], z = W x[t] + bias; W [2n, in],
     * y [T, n]. NULL: the backend has no such thing. */
    void (*linear_gate)(um_dev *dev, const um_weight *w, const float *bias, const float *x, int32_t n_tokens, float *y);
    void (*moe)(um_dev *dev, const um_moe *a);
    /* Answers rows without storing [rows, V]: the product and its reduction are fused over vocabulary tiles, partial
     * answers merge in order of the tiles. */
    void (*head)(um_dev *dev, const um_head *a);
} um_ops;

/* The operations of a pass around those of another backend, each recorded as a span of its own name whose size is its
 * tokens, rows or blends (timed.c). Its um_dev is a um_timed; nothing is made or freed through it, so that part of the
 * table is NULL. */
typedef struct um_timed {
    const um_ops *ops;
    um_dev *dev;
    um_profile *profile;
} um_timed;
extern const um_ops um_ops_timed;

/* All backends; NULL ends the list. */
extern const um_ops *const um_ops_all[];
/* By name ("cpu", "ref"); UM_EUNSUPPORTED names those that exist. */
um_status um_ops_find(const um_ops **out, const char *name, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
