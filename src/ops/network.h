/* network: a loaded model as a backend sees it: sizes, the kind of each layer, and handles of weights. Plain data,
 * without names of tensors or families. The model room fills it in; backends read it. */
#ifndef UM_OPS_NETWORK_H
#define UM_OPS_NETWORK_H

#include "ops/ops.h"
#include "ops/ranks.h"

#ifdef __cplusplus
extern "C" {
#endif

/* fp32 values in the backend's memory: norms, biases, rotary tables. */
typedef struct um_vector um_vector;

/* The matrices of an adapter for a linear layer: it adds b (a x) to the layer's output. b contains the adapter's scale.
 * When a is NULL, the adapter does not change the layer. */
typedef struct um_low_rank {
    um_weight *a, *b; /* [rank, in], [out, rank]; where matrices are stacked, rank is the sum of their ranks */
    int32_t in, rank, out;
} um_low_rank;

/* A linear layer: y = w x + bias. */
typedef struct um_linear {
    um_weight *w;
    um_vector *bias;       /* or NULL */
    um_low_rank *low_rank; /* [n_adapters]; NULL: no adapter changes the layer */
} um_linear;

/* The cosines and sines of the rotation of queries and keys. */
typedef struct um_rotary {
    um_vector *cos, *sin; /* [positions, rope_dim / 2] */
    um_vector *query;     /* [positions] factor of the rotated queries; NULL: 1 everywhere */
} um_rotary;

/* What the layers of one kind have in common. */
typedef struct um_layer_kind {
    int32_t n_heads, n_kv_heads, head_dim;
    int32_t kv_copies; /* in a group: number of ranks that have the same KV head; 0 and 1: a rank has its own */
    int32_t rope_dim;  /* rotated dimensions of a head */
    int32_t rotary;    /* index of the rotary tables in um_network.rotary */
    int32_t kv;        /* index of the KV cache: layers of one have the same KV heads, head size and window */
    int32_t window;    /* keys that a query sees at most (um_seen_start); 0: no limit */
    float attn_scale;  /* factor of the products of queries and keys */
    bool v_norm;       /* values are normed per head, without a weight */
    /* The results of attention and feed-forward layers are normed before they are added to the residual stream. A dense
     * branch beside experts is, too, and each of the two has its own norm of the input. */
    bool post_norms;
    um_act act;
    int32_t n_ff; /* width of the dense feed-forward layer; 0: none */
    /* Widths of one routed expert and of the shared expert; 0: none. With experts, um_network.route is the rule. */
    int32_t expert_ff, shared_ff;
} um_layer_kind;

/* A layer. Parts that its kind lacks are NULL. */
typedef struct um_layer {
    int32_t kind; /* index in um_network.kind */
    um_linear qkv, o;
    um_linear gate_up, down;                       /* used by a dense layer */
    um_linear router, shared_gate_up, shared_down; /* used by a mixture of experts */
    um_weight **expert_gate_up, **expert_down;     /* [E]; NULL: another rank has the expert (um_own_experts) */
    um_vector *attn_norm, *ffn_norm, *q_norm, *k_norm;
    um_vector *attn_norm_bias, *ffn_norm_bias;
    um_vector *attn_post_norm, *ffn_post_norm;                   /* with post_norms */
    um_vector *dense_post_norm, *expert_norm, *expert_post_norm; /* with post_norms, of a dense branch and experts */
    um_vector *router_norm;                                      /* norm of the router's input; NULL: expert_norm */
    um_vector *expert_scale;                                     /* [E] factors of the experts' weights */
    um_vector *scale[2];    /* [1] factor of the residual stream after the layer, in the first mode and on a canvas */
    um_vector *router_bias; /* [E] correction bias of the choice of experts; not part of the router's product */
} um_layer;

/* The part of a model that mixes blends of embeddings into those of a canvas:
 * x = norm(x + down(act(gate n) * up n)) with n = norm(blend), also where the blend is 0. */
typedef struct um_conditioning {
    um_vector *norm;
    um_linear gate_up, down;
    int32_t n_ff; /* 0: the model has no such part */
    um_act act;
} um_conditioning;

#define UM_HEAD_UNIT       8 /* rows of the head that are never divided among ranks */
#define UM_LAYER_KINDS_MAX 4
#define UM_ROTARY_MAX      2

typedef struct um_network {
    int32_t n_layers, hidden;
    int32_t vocab; /* ids that an answer may contain; embedding and head may have more rows */
    float norm_eps, embed_scale, logit_scale;
    float logit_cap;       /* > 0: a logit z becomes cap * tanh(z / cap) */
    float clip_qkv;        /* > 0: queries, keys and values are clamped to [-clip, clip] */
    um_expert_route route; /* n_experts 0: no layer has experts */
    int32_t route_block;   /* when route.capacity is set: positions of a routing block, counted from position 0 */
    int32_t n_kinds, n_rotary, n_kv;
    um_layer_kind kind[UM_LAYER_KINDS_MAX];
    um_rotary rotary[UM_ROTARY_MAX];
    um_layer *layer;                         /* [n_layers] */
    um_weight *embed, *head;                 /* head == embed when tied */
    um_vector *final_norm, *final_norm_bias; /* the bias is NULL when there is none */
    um_vector *ones;                         /* [widest norm without a weight]; NULL: there is none */
    um_conditioning conditioning;
    int32_t n_adapters; /* adapters that are kept beside the weights */
    int32_t rank_max;   /* largest um_low_rank.rank; 0 without adapters */
    /* The place of this device in a group that computes the model together: heads, KV heads, widths of feed-forward
     * layers and rows of the head are those of this rank. NULL: the device computes the model alone. */
    const um_rank *rank;
    int32_t cut_grid;     /* see um_cut_unit; 0 and 1: no neighbours have a common scale */
    int32_t head_rows;    /* rows of the head of all ranks, which are divided in units of UM_HEAD_UNIT */
    bool expert_parallel; /* each rank of a group has some of the experts as a whole, not a part of each */
} um_network;

/* Returns the kind of a layer. */
static inline const um_layer_kind *um_kind_of(const um_network *n, int32_t layer) {
    return &n->kind[n->layer[layer].kind];
}

/* Returns the experts that this device has. The matrices of the others are NULL. */
static inline um_cut_range um_own_experts(const um_network *n) {
    const um_cut_part all = {n->route.n_experts, 1};
    const bool divided = n->rank && n->expert_parallel;
    return um_cut_range_of(all, divided ? n->rank->index : 0, divided ? n->rank->n : 1);
}

#ifdef __cplusplus
}
#endif
#endif
