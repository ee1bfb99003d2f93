/* ref: the formulas in plain C, one thread. It is what the other backends are tested against, so it is written to be
 * read, not to be fast: no tiles, no fused steps, one file an operation.
 *
 * Arithmetic is fp32; row answers, which are the oracle for decoding, sum in double. With UM_BF16 weights are rounded
 * when they are loaded, and the left operand of every product (a layer's input, queries, attention probabilities)
 * where it is used. */
#ifndef UM_OPS_REF_H
#define UM_OPS_REF_H

#include "ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

struct um_dev {
    um_dev_config config;
    float *operand; /* [max(max_in, max_hidden, max_head_dim)] a left operand, rounded */
    float *logit;   /* [max_vocab] logits of one row, as the head and the edits leave them */
    float *scaled;  /* [max_vocab] after temperature and filters */
    int32_t *order; /* [max_vocab] ids, likeliest first */
    /* selection of keys */
    float *mean;           /* [max_heads, max_head_dim] mean queries of a block */
    float *score, *pooled; /* [max_tokens] of the keys outside the block */
    int32_t *key, *best;   /* [max_tokens] their vis indices; the order of their scores */
    /* mixture of experts */
    int32_t *expert;                                                   /* [max_tokens, max_top_k] chosen experts */
    float *weight;                                                     /* beside them */
    float *route_scratch, *expert_gate_up, *expert_gated, *expert_out; /* of one token */
};

struct um_weight {
    int32_t rows, in;
    float *data; /* [rows, in] */
    bool exact;  /* the left operand is not rounded either */
};

struct um_kv {
    um_kv_shape shape;
    /* Rows [n_kv_heads, head_dim], rounded to shape.type, of the slots of all layers, then of the scratch slots. Row i
     * begins at i * stride: unified, a row of values lies behind its row of keys. */
    float *key, *value;
    size_t stride;
    void *pool[2]; /* the second one when they are distinct */
};

extern const um_ops um_ops_ref;

/* Copies x [n] to dev->operand, rounded to bf16 when the device computes in bf16. */
const float *um_ref_operand(um_dev *dev, const float *x, int32_t n);
/* v as a left operand: rounded to bf16 when the device computes in bf16. */
float um_ref_round(const um_dev *dev, float v);
/* Sum over i of a[i] * b[i], in order of i. */
float um_ref_dot(const float *a, const float *b, int32_t n);
/* Where key and value of a slot begin in a layer. */
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
void um_ref_linear(um_dev *dev, const um_weight *w, const float *bias, const float *x, int32_t n_tokens, bool add,
                   float *y);
void um_ref_rope_kv(um_dev *dev, um_kv *kv, const um_rope_kv *a);
void um_ref_attention(um_dev *dev, const um_kv *kv, const um_attention *a);
void um_ref_moe(um_dev *dev, const um_moe *a);
void um_ref_gate(um_dev *dev, const float *gu, int32_t n_tokens, int32_t n, float *y);
void um_ref_head(um_dev *dev, const um_head *a);

#ifdef __cplusplus
}
#endif
#endif
