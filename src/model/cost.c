/* The bytes that a forward pass must read and the operations that it must do, computed from the sizes of the model. */
#include <math.h>

#include "model/model.h"

/* Returns the weights of the products of queries, keys, values and of the output. */
static double attention_weights(const um_arch *a) {
    const double q = (double)a->n_heads * a->head_dim, kv = (double)a->n_kv_heads * a->head_dim;
    return (q + 2 * kv) * a->hidden + q * a->hidden;
}

/* Returns the weights of gate, up and down of one width. */
static double ffn_weights(const um_arch *a, int32_t width) { return 3.0 * a->hidden * width; }

static double expected_experts(const um_expert_route *r, int64_t tokens) {
    return r->n_experts ? r->n_experts * (1 - pow(1 - (double)r->top_k / r->n_experts, (double)tokens)) : 0;
}

/* The weights that a layer reads for all tokens together, and those that one token is multiplied with. A router is
 * stored in fp32. */
static void layer_cost(const um_arch *a, int32_t layer, double experts, double weight_size, double *bytes,
                       double *per_token) {
    double same = attention_weights(a), routed = 0, router = 0;
    if (um_arch_is_moe(a, layer)) {
        same += ffn_weights(a, a->shared_ff);
        routed = ffn_weights(a, a->expert_ff);
        router = (double)a->route.n_experts * a->hidden;
    } else same += ffn_weights(a, a->n_ff);
    *bytes += weight_size * (same + experts * routed) + sizeof(float) * router;
    *per_token += same + a->route.top_k * routed + router;
}

um_pass_cost um_arch_pass_cost(const um_arch *a, const um_pass_work *p, double weight_size, um_dtype kv) {
    const double head = (double)a->vocab * a->hidden, tokens = (double)p->tokens;
    um_pass_cost c = {.experts = expected_experts(&a->route, p->tokens),
                      .kv_bytes = (double)p->keys * (double)um_arch_kv_bytes(a, kv)};
    double per_token = 0;
    for (int32_t i = 0; i < a->n_layers; i++) layer_cost(a, i, c.experts, weight_size, &c.weight_bytes, &per_token);
    c.weight_bytes += weight_size * tokens * a->hidden; /* rows of the embedding */
    if (p->rows) c.weight_bytes += weight_size * head;
    /* A key costs a product with the query and a product with the value. */
    const double attention = 2.0 * a->n_heads * a->head_dim * a->n_layers;
    c.operations = 2 * (tokens * per_token + (double)p->rows * head + (double)p->seen * attention);
    return c;
}
