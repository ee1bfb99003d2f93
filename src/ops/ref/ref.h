/* ref: the reference backend, plain C on one thread. Tests compare the other backends with it, so the code favours
 * readability over speed: no tiles, no fused steps, one file per operation.
 *
 * Arithmetic is fp32. The answers of rows, which are the reference for decoding, are summed in double. With UM_BF16,
 * weights are rounded when they are loaded. The left operand of every product (a layer's input, queries, attention
 * probabilities) is rounded when it is used. */
#ifndef UM_OPS_REF_H
#define UM_OPS_REF_H

#include "ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

struct um_dev {
    um_dev_config config;
    float *operand; /* [max(max_in, max_hidden, max_head_dim)] a rounded left operand */
    float *logit;   /* [max_vocab] logits of one row after the edits */
    float *scaled;  /* [max_vocab] the same after temperature and filters */
    int32_t *order; /* [max_vocab] ids, the likeliest first */
    /* selection of keys */
    float *mean;           /* [max_heads, max_head_dim] mean queries of a block */
    float *score, *pooled; /* [max_tokens] scores of the keys outside the block, before and after pooling */
    int32_t *key, *best;   /* [max_tokens] visibility indices of these keys; their order by score */
    /* mixture of experts */
    int32_t *expert;                                                   /* [max_tokens, max_top_k] chosen experts */
    float *weight;                                                     /* [max_tokens, max_top_k] their weights */
    float *route_scratch, *expert_gate_up, *expert_gated, *expert_out; /* intermediate results of one token */
};

struct um_weight {
    int32_t rows, in;
    float *data;   /* [rows, in] as rounded */
    bool exact;    /* neither the weights nor the left operand are rounded */
    um_dtype type; /* of the products */
};

struct um_kv {
    um_kv_shape shape;
    /* Rows [n_kv_heads, head_dim], rounded to shape.type: first the slots of all layers, then the scratch slots. Row i
     * starts at i * stride. In the unified layout, each row of keys is followed by its row of values. */
    float *key, *value;
    size_t stride;
    void *pool[2]; /* the second pool is used only in the distinct layout */
};

extern const um_ops um_ops_ref;

/* Copies x [n] to dev->operand and returns it. Rounds to bf16 when the device computes in bf16. */
const float *um_ref_operand(um_dev *dev, const float *x, int32_t n);
/* Does the same with the rounding of a product with w. */
const float *um_ref_left(um_dev *dev, const um_weight *w, const float *x);
/* Returns v, rounded to bf16 when the device computes in bf16. */
float um_ref_round(const um_dev *dev, float v);
/* Returns the sum over i of a[i] * b[i], added in the order of i. */
float um_ref_dot(const float *a, const float *b, int32_t n);
/* Returns the index of a slot's first element in kv->key and kv->value. */
size_t um_ref_kv_at(const um_kv *kv, int32_t layer, int64_t slot);

/* The operations; arguments as in um_ops. */
um_status um_ref_kv_new(um_dev *dev, um_kv **out, const um_kv_shape *shape, um_err *err);
void um_ref_kv_free(um_dev *dev, um_kv *kv);
size_t um_ref_kv_bytes(const um_kv_shape *shape);
size_t um_ref_kv_scratch_bytes(const um_kv_shape *shape);
void um_ref_kv_copy(um_dev *dev, um_kv *kv, int32_t from_page, int32_t to_page, int32_t n);
void um_ref_kv_select(um_dev *dev, um_kv *kv, const um_attention *a);
void um_ref_embed(um_dev *dev, const um_weight *w, const int32_t *id, int32_t n_tokens, float scale, float *x);
void um_ref_embed_soft(um_dev *dev, const um_weight *w, const um_soft *soft, int32_t n_soft, float scale, float *x);
void um_ref_norm(um_dev *dev, const float *x, const um_norm *norm, int32_t n_tokens, int32_t n, float *y);
void um_ref_norm_add(um_dev *dev, float *y, const um_norm *norm, int32_t n_tokens, int32_t n, float scale, float *x);
void um_ref_sum(um_dev *dev, const float *const *part, int n_parts, size_t n, bool add, float *y);
void um_ref_copy_rows(um_dev *dev, const float *x, const int32_t *from, const int32_t *to, int32_t n_rows,
                      int32_t stride, int32_t n, float *y);
void um_ref_linear(um_dev *dev, const um_weight *w, const float *bias, const float *x, int32_t n_tokens, bool add,
                   float *y);
void um_ref_rope_kv(um_dev *dev, um_kv *kv, const um_rope_kv *a);
void um_ref_attention(um_dev *dev, const um_kv *kv, const um_attention *a);
void um_ref_moe(um_dev *dev, const um_moe *a);
void um_ref_gate(um_dev *dev, um_act act, const float *gu, int32_t n_tokens, int32_t n, float *y);
void um_ref_head(um_dev *dev, const um_head *a);

#ifdef __cplusplus
}
#endif
#endif
