/* ops: the table of tensor operations of the host backend (backend.h). Only its pass (host/transformer.c) calls the
 * operations, and it does not depend on any particular table.
 *
 * There are two tables. `ref` (ops/ref) computes the formulas in plain C on one thread in fp32; it is the reference
 * for tests. `cpu` (ops/cpu) uses threads and AVX2, AVX-512 or AMX, chosen at run time. tests/ops compares their
 * results.
 *
 * Activations are fp32, row-major, in memory from `buffer`. Shapes in brackets use T for tokens, H for the hidden size,
 * V for vocabulary rows and d for the head size.
 *
 * Invariance: for one device and build, an output element depends only on its own inputs. The order of each reduction
 * is fixed per element. It never depends on T, on the other rows of a batch or on the number of threads. Attention
 * reads keys in tiles that start at fixed multiples of the visibility index.
 *
 * Threads: one thread uses a um_dev; operations run on the device's own thread pool. No operation allocates. Sizes and
 * pointers come from this program, so they are asserted and cause no errors. */
#ifndef UM_OPS_H
#define UM_OPS_H

#include "base/base.h"
#include "ops/batch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element types. UM_F8 are 8-bit floats e4m3 (4 bits exponent, 3 bits mantissa, maximum 448, no infinity). They are
 * used only for stored keys and values; each stored head vector has its own fp32 scale: its largest magnitude / 448.
 * UM_Q8 and UM_Q4 are used only for the matrices of a backend (quantize.h). */
typedef enum { UM_F32, UM_BF16, UM_F16, UM_F8, UM_Q8, UM_Q4 } um_dtype;
size_t um_dtype_size(um_dtype t);      /* bytes of an element; not for UM_Q8 and UM_Q4 */
const char *um_dtype_name(um_dtype t); /* "float32", "bfloat16", "float16", "float8_e4m3", "q8", "q4" */
float um_bf16_to_f32(uint16_t v);
uint16_t um_f32_to_bf16(float v); /* round to nearest even; NaN stays NaN */
float um_f16_to_f32(uint16_t v);
uint16_t um_f32_to_f16(float v); /* round to nearest even; too large values become infinite; NaN stays NaN */
float um_f8_to_f32(uint8_t v);
uint8_t um_f32_to_f8(float v); /* round to nearest even; clamps to +-448; NaN stays NaN */
/* Returns the scale of a vector that is stored in 8 bits: 0 for zeros, NaN unless all elements are finite. */
float um_f8_scale(const float *x, size_t n);
/* Returns the stored code of an element of a vector in 8 bits: v / scale, or 0 when the scale is 0 or NaN. */
uint8_t um_f8_code(float v, float scale);

/* The type of a tensor that does not store plain numbers. */
#define UM_DTYPE_OTHER ((um_dtype)255)

/* A tensor as the checkpoint stores it: matrices [rows, in], stacks of them [n, rows, in], vectors, scalars. data is
 * borrowed, may be unaligned, and is valid while the model's files are mapped. */
typedef struct um_tensor {
    const char *name;
    um_dtype type; /* UM_F32, UM_BF16, UM_F16, or UM_DTYPE_OTHER */
    int32_t n_dims;
    int64_t dim[4];
    const void *data;
    const struct um_format *format; /* of UM_DTYPE_OTHER (format.h); NULL: no operation reads the tensor */
    const void *extra;              /* what the format needs besides the data, or NULL */
    bool stays;                     /* the data outlive the device that loads the tensor */
} um_tensor;

typedef struct um_dev um_dev;       /* an instance of a table of operations */
typedef struct um_weight um_weight; /* a matrix [out, in] in the backend's layout */
typedef struct um_kv um_kv;         /* keys and values of all layers in the backend's layout */

typedef struct um_dev_config {
    int32_t number;             /* which device of this kind, from 0 */
    const int32_t *rank_number; /* of a group of ranks: the numbers of its devices */
    int threads;                /* 0: one per usable CPU */
    int32_t pin;                /* UM_PIN_* of unmask.h: whether threads stay on CPUs of their own */
    um_dtype dtype;     /* UM_F32: weights are not rounded. UM_BF16: weights and the left operand of each product are
                           rounded to bf16, sums are fp32 */
    um_dtype weights;   /* type of the products of matrices: dtype, UM_Q8, UM_Q4 or UM_F8 */
    bool deterministic; /* a row's bits do not depend on the other rows of a batch */
    bool eager;         /* run kernel by kernel, without recorded graphs */
    int32_t max_tokens; /* largest T of a pass */
    int32_t max_rows;   /* largest number of wanted rows of a pass */
    int32_t max_in;     /* widest input of a linear layer */
    int32_t max_head_dim, max_heads; /* head size, query heads */
    int32_t max_vocab;               /* vocabulary rows */
    int32_t max_hidden;
    int32_t max_experts, max_top_k, max_expert_ff; /* for a mixture of experts; 0 when the model has none */
} um_dev_config;

typedef enum { UM_KV_UNIFIED, UM_KV_DISTINCT } um_kv_layout; /* keys and values in one pool, or in two */
typedef struct um_kv_shape {
    int32_t n_layers, n_kv_heads, head_dim, page_size;
    int64_t n_slots;         /* pages * page_size */
    int64_t n_scratch_slots; /* slots [n_slots, n_slots + n_scratch_slots) of the scratch pages, which hold one layer */
    um_dtype type;           /* UM_F32, UM_BF16, UM_F8 */
    um_kv_layout layout;
} um_kv_shape;

/* A norm. Without bias it is the root mean square norm x / rms(x) * w. With bias it is LayerNorm:
 * (x - mean) / deviation * w + bias. */
typedef struct um_norm {
    const float *w, *bias; /* [n]; bias may be NULL */
    float eps;
} um_norm;

/* Arguments of rope_kv, which normalizes and rotates queries and keys in place and writes keys and values to their
 * slots. */
typedef struct um_rope_kv {
    int32_t layer, n_tokens, n_heads, n_kv_heads, head_dim,
        rope_dim;                          /* rope_dim: number of leading dims that are rotated, half-split */
    float *qkv;                            /* [T, (n_heads + 2 * n_kv_heads) * head_dim]: queries | keys | values */
    const float *q_norm, *k_norm, *v_norm; /* [d] or NULL */
    float eps;
    float clip;                /* > 0: queries, keys and values are clamped to [-clip, clip] before the rotation */
    const float *cos, *sin;    /* [max position, rope_dim / 2] */
    const float *query;        /* [max position] factor of the rotated queries; NULL: 1 */
    const int32_t *pos, *slot; /* [T]; for slot -1 nothing is written */
} um_rope_kv;

typedef struct um_attention {
    int32_t layer, n_heads, n_kv_heads, head_dim, page_size;
    int32_t stride; /* floats from a token's queries to those of the next token */
    const float *q; /* [T, stride]: each row starts with the queries */
    float *out;     /* [T, n_heads * d] */
    float scale;
    int32_t window;        /* keys that a query sees at most, see um_seen_start; 0: no limit */
    const um_batch *batch; /* spans, seen_end */
    /* For kv_select in a group of ranks: adds the scores of other ranks to score [n] or, with per_head, takes the
     * largest ones of the ranks that have the same KV head. NULL: there are no other ranks. */
    void (*merge_scores)(void *arg, float *score, int32_t n, bool per_head);
    void *merge_arg;
} um_attention;

/* The function of a gated feed-forward layer: act(gate) * up. The second is gelu with a tangent:
 * x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
typedef enum { UM_ACT_SILU, UM_ACT_GELU_TANH } um_act;

/* The rule by which a token's experts are chosen. Scores are the softmax or sigmoid of the router's logits. */
typedef enum { UM_SCORE_SOFTMAX, UM_SCORE_SIGMOID } um_score;
typedef enum {
    UM_BIAS_NONE,
    UM_BIAS_CHOICE, /* the correction bias counts only for the choice of experts */
    UM_BIAS_SCORE   /* the correction bias counts for the choice and for the weights */
} um_expert_bias;
typedef struct um_expert_route {
    int32_t n_experts, top_k;
    um_score score;
    um_expert_bias bias;
    bool normalize;  /* divide the chosen weights by their sum */
    float scale;     /* factor of the weights, applied last */
    float sharpness; /* factor of the logits of the router; 0: 1 */
    /* The experts form n_group groups of equal size. A token may choose only from topk_group groups: those with the
     * largest sums of their two best scores. 1, 1: no groups. */
    int32_t n_group, topk_group;
    int32_t capacity; /* most different experts that the tokens of a routing block may use; 0: no limit */
} um_expert_route;

/* Arguments of moe: y[t] += sum over the chosen experts e of weight_e * down_e (act(gate_e x[t]) * up_e x[t]).
 * Contributions are added in ascending order of the experts. Of equal scores the lower expert wins. Experts without
 * matrices add nothing: another rank of a group has them. */
typedef struct um_moe {
    const um_expert_route *route;
    const float *logits;       /* [T, E] logits of the router */
    const float *bias;         /* [E], or NULL when route->bias is UM_BIAS_NONE */
    const float *expert_scale; /* [E] factors of the experts' weights; NULL: 1 */
    um_act act;
    const int32_t *block;            /* [T] routing block of each token; tokens of a block are adjacent. NULL when
                                        route->capacity is 0 */
    const um_weight *const *gate_up; /* [E] of [2 * n_ff, H]: gate rows, then up rows; NULL: another rank has it */
    const um_weight *const *down;    /* [E] of [H, n_ff] */
    const float *x;                  /* [T, H] */
    int32_t n_tokens, hidden, n_ff;
    float *y; /* [T, H] */
} um_moe;

typedef struct um_head {
    const um_weight *w;         /* [V, H] */
    const float *logits;        /* [n_rows, vocab] products W h, which are then not computed here; NULL: they are */
    const float *hidden;        /* [T, H] after the final norm */
    const float *saved;         /* [n_saved, H] */
    int32_t hidden_size, vocab; /* ids are below vocab; w may have more rows */
    float scale;                /* factor of the logits */
    float cap;                  /* > 0: a logit z becomes cap * tanh(z / cap) */
    const um_weight *embed;     /* [V, H] for blends (um_row.blend); NULL: no row asks for one */
    float embed_scale;
    float *blend;        /* [n_blends, H] */
    um_profile *profile; /* records the blends as a span; NULL: nothing does */
    const um_row *row;   /* [n_rows] */
    int32_t n_rows;
    um_answer *answer; /* [n_rows] */
} um_head;

typedef struct um_ops {
    const char *name;
    /* The largest number of rows whose intermediate results of a feed-forward layer stay in the caches. The layer is
     * computed in groups of at most this many rows. 0: all rows at once. */
    int32_t rows_at_once;
    um_status (*open)(um_dev **out, const um_dev_config *c, um_err *err);
    void (*close)(um_dev *dev); /* dev may be NULL */
    int (*threads)(const um_dev *dev);
    const char *(*isa)(const um_dev *dev); /* the chosen instruction set: "plain C", "avx2", "amx_bf16" */
    size_t (*scratch_bytes)(const um_dev *dev);
    /* Measures how many additions and multiplications per second all threads do with the instruction that products of
     * this type use, on numbers in registers. *instruction receives its name. 0: it is not known for this instruction
     * set. NULL: for none. */
    double (*peak)(um_dev *dev, um_dtype type, const char **instruction);

    /* Allocates zeroed memory that operations can read and write. */
    um_status (*buffer)(um_dev *dev, void **out, size_t bytes, const char *what, um_err *err);
    void (*buffer_free)(um_dev *dev, void *p);

    /* Copies the rows of `part` [n_parts] into one matrix; part i is [rows_i, in]. Their data may be freed afterwards.
     * type is the arithmetic of the products: the device's dtype, UM_Q8, UM_Q4, or UM_F32 for a layer that stays exact
     * (routers). */
    um_status (*weight)(um_dev *dev, um_weight **out, const um_tensor *part, int n_parts, um_dtype type, um_err *err);
    void (*weight_free)(um_dev *dev, um_weight *w);
    size_t (*weight_bytes)(const um_weight *w); /* memory, allocated or of a file */

    um_status (*kv_new)(um_dev *dev, um_kv **out, const um_kv_shape *shape, um_err *err);
    void (*kv_free)(um_dev *dev, um_kv *kv);
    size_t (*kv_bytes)(const um_kv_shape *shape);         /* memory of the pages that requests own */
    size_t (*kv_scratch_bytes)(const um_kv_shape *shape); /* memory of the scratch pages */
    /* Copies the first n slots of a page to another page in all layers. Neither may be a scratch page. */
    void (*kv_copy)(um_dev *dev, um_kv *kv, int32_t from_page, int32_t to_page, int32_t n);

    /* x[t] = scale * W[id[t]]; W [V, H]. */
    void (*embed)(um_dev *dev, const um_weight *w, const int32_t *id, int32_t n_tokens, float scale, float *x);
    /* Overwrites x[soft[i].at] with `scale` times the blend of embeddings. */
    void (*embed_soft)(um_dev *dev, const um_weight *w, const um_soft *soft, int32_t n_soft, float scale, float *x);
    /* y[t] = norm(x[t]); x, y [T, n], y may be x. */
    void (*norm)(um_dev *dev, const float *x, const um_norm *norm, int32_t n_tokens, int32_t n, float *y);
    /* x[t] = (x[t] + norm(y[t])) * scale; x, y [T, n]. Overwrites y. */
    void (*norm_add)(um_dev *dev, float *y, const um_norm *norm, int32_t n_tokens, int32_t n, float scale, float *x);
    /* y[i] = part[0][i] + part[1][i] + ..., or y[i] += that when `add` is set; part [n_parts] of n elements. */
    void (*sum)(um_dev *dev, const float *const *part, int n_parts, size_t n, bool add, float *y);
    /* y[to[i]] = x[from[i]], by ascending i: copies the first n floats of rows that are `stride` floats apart. NULL for
     * a list means i itself. y may be x when no copy overwrites a row that a later one reads. */
    void (*copy_rows)(um_dev *dev, const float *x, const int32_t *from, const int32_t *to, int32_t n_rows,
                      int32_t stride, int32_t n, float *y);
    /* y[t] = W x[t] + bias, or y[t] += that when `add` is set; W [out, in], bias [out] or NULL. */
    void (*linear)(um_dev *dev, const um_weight *w, const float *bias, const float *x, int32_t n_tokens, bool add,
                   float *y);
    void (*rope_kv)(um_dev *dev, um_kv *kv, const um_rope_kv *a);
    void (*attention)(um_dev *dev, const um_kv *kv, const um_attention *a);
    /* Executes span[i].select of every span that has one, with the queries and keys of the preceding rope_kv. Reads
     * keys as attention reads them; the rest of the arithmetic is fp32. A span may have at most max_tokens keys outside
     * the block. */
    void (*kv_select)(um_dev *dev, um_kv *kv, const um_attention *a);
    /* y[t, i] = act(gu[t, i]) * gu[t, n + i]; gu [T, 2n], y [T, n]. */
    void (*gate)(um_dev *dev, um_act act, const float *gu, int32_t n_tokens, int32_t n, float *y);
    /* linear and gate fused, with bit-identical results: y[t, i] = act(z[i]) * z[n + i], z = W x[t] + bias;
     * W [2n, in], y [T, n]. NULL: the backend has no fused operation. */
    void (*linear_gate)(um_dev *dev, um_act act, const um_weight *w, const float *bias, const float *x,
                        int32_t n_tokens, float *y);
    void (*moe)(um_dev *dev, const um_moe *a);
    /* Computes the answers of the rows without storing logits [rows, V]. The product and its reduction are fused over
     * vocabulary tiles; partial answers are merged in the order of the tiles. */
    void (*head)(um_dev *dev, const um_head *a);

    /* For backends whose operations return before they are done. Both are NULL when an operation is done on return.
     * `submit` starts the operations since the last submit on the device. `wait` returns when the device has finished
     * them. UM_EDEVICE: an operation failed, and the results are undefined. */
    um_status (*submit)(um_dev *dev, um_err *err);
    um_status (*wait)(um_dev *dev, um_err *err);
} um_ops;

/* A wrapper that calls the operations of another table and records each as a span of a profile (timed.c). A span has
 * the operation's name; its size is the number of tokens, rows or blends. The wrapper's um_dev is a um_timed. It wraps
 * only the operations of a pass; the functions that create and free objects are NULL. */
typedef struct um_timed {
    const um_ops *ops;
    um_dev *dev;
    um_profile *profile;
} um_timed;
extern const um_ops um_ops_timed;

/* The list of tables; NULL ends it. */
extern const um_ops *const um_ops_all[];

#ifdef __cplusplus
}
#endif
#endif
