/* The bytes that a forward pass must read and the operations that it must do, computed from the sizes of the model. */
#include <math.h>

#include "model/model.h"

/* Returns the weights of gate, up and down of one width. */
static double ffn_weights(const um_arch *a, int32_t width) { return 3.0 * a->hidden * width; }

static double expected_experts(const um_expert_route *r, int64_t tokens) {
    return r->n_experts ? r->n_experts * (1 - pow(1 - (double)r->top_k / r->n_experts, (double)tokens)) : 0;
}

/* Adds the cost of a layer. Of the last layer, all tokens need their keys and values, and only the predicted rows need
 * the rest. The queries belong to the same product as the keys, so they are counted for all tokens. A router is stored
 * in fp32. A key costs a product with the query and a product with the value. */
static void add_layer(const um_arch *a, int32_t layer, const um_pass_work *p, double weight_size, um_pass_cost *c) {
    const bool is_last = layer == a->n_layers - 1;
    const int64_t rows = is_last ? UM_MIN(p->rows, p->tokens) : p->tokens;
    const um_arch_kind *k = um_arch_kind_of(a, layer);
    const double q = (double)k->n_heads * k->head_dim, kv = (double)k->n_kv_heads * k->head_dim,
                 qkv = (q + 2 * kv) * a->hidden, share = p->tokens ? (double)rows / (double)p->tokens : 0;
    const bool has_experts = k->expert_ff > 0;
    const double same = q * a->hidden + ffn_weights(a, k->shared_ff) + ffn_weights(a, k->n_ff),
                 routed = ffn_weights(a, k->expert_ff),
                 router = has_experts ? (double)a->route.n_experts * a->hidden : 0;
    c->weight_bytes += weight_size * qkv;
    if (rows)
        c->weight_bytes += weight_size * (same + expected_experts(&a->route, rows) * routed) + sizeof(float) * router;
    c->operations += 2 * ((double)p->tokens * qkv + (double)rows * (same + a->route.top_k * routed + router) +
                          2 * q * (double)p->seen * share);
}

um_pass_cost um_arch_pass_cost(const um_arch *a, const um_pass_work *p, double weight_size, um_dtype kv) {
    const double head = (double)a->vocab * a->hidden;
    um_pass_cost c = {.experts = expected_experts(&a->route, p->tokens),
                      .kv_bytes = (double)p->keys * (double)um_arch_kv_bytes(a, kv)};
    for (int32_t i = 0; i < a->n_layers; i++) add_layer(a, i, p, weight_size, &c);
    c.weight_bytes += weight_size * (double)p->tokens * a->hidden; /* rows of the embedding */
    if (p->rows) c.weight_bytes += weight_size * head;
    c.operations += 2 * (double)p->rows * head;
    return c;
}
