/* What the tensors decide: a config.json may leave optional parts out or be wrong about them, the stored tensors can't.
 */
#include "model/loader.h"

/* Any of `patterns` [n] is stored in any layer. */
static bool stored(const um_loader *l, int32_t n_layers, const char *const *patterns, size_t n, const char *suffix) {
    for (int32_t i = 0; i < n_layers; i++)
        for (size_t k = 0; k < n && patterns[k]; k++)
            if (um_loader_find(l, patterns[k], i, suffix)) return true;
    return false;
}

typedef struct question {
    const um_loader *l;
    int32_t n_layers;
    const char *where; /* of the configuration, for messages */
} question;

/* An optional part is there when any layer stores it; then every layer must. */
static bool decide(const question *q, const char *what, const char *const *patterns, size_t n, const char *suffix,
                   bool stated) {
    bool found = stored(q->l, q->n_layers, patterns, n, suffix);
    if (found != stated)
        um_warn("%s: the configuration says %s %s, the tensors say %s; the tensors decide", q->where,
                stated ? "with" : "without", what, found ? "with" : "without");
    return found;
}

void um_arch_settle(um_arch *a, const um_safetensors *s, const char *where) {
    const um_tensor_names *n = a->family->names;
    const um_loader l = {.s = s, .strip = um_loader_strip(n, s)};
    const question q = {&l, a->n_layers, where};
    const um_route_bias kind = a->family->router_bias;
    a->qk_norm = decide(&q, "norms of queries and keys", &n->q_norm, 1, ".weight", a->qk_norm);
    a->qkv_bias = decide(&q, "biases of queries, keys and values", n->qkv ? &n->qkv : &n->q, 1, ".bias", a->qkv_bias);
    a->o_bias = decide(&q, "a bias of the attention output", &n->o, 1, ".bias", a->o_bias);
    a->mlp_bias = decide(&q, "biases of the feed-forward layers", &n->gate, 1, ".bias", a->mlp_bias);
    a->layer_norm = decide(&q, "biases of the norms", &n->attn_norm, 1, ".bias", a->layer_norm);
    if (kind != UM_BIAS_NONE) {
        bool stated = a->route.bias != UM_BIAS_NONE;
        bool found = decide(&q, "correction biases of the routers", n->router_bias, UM_LEN(n->router_bias), "", stated);
        a->route.bias = found ? kind : UM_BIAS_NONE;
    }
    if (!a->tied_stated) a->tied = !um_loader_find(&l, n->head, 0, ".weight");
}

const um_family *um_family_by_tensors(const um_family *f, const um_safetensors *s) {
    const um_loader l = {.s = s, .strip = um_loader_strip(f->names, s)};
    if (!f->twin) return f;
    return !!um_loader_find(&l, f->names->q_norm, 0, ".weight") == f->stores_qk_norm ? f : f->twin;
}
