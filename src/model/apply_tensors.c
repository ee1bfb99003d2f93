/* Corrects the optional parts of an architecture by the stored tensors. A config.json may omit a part or be wrong about
 * it. The forward pass reads the tensors, so they win. */
#include "model/loader.h"

/* Returns whether a tensor of one of the `patterns` [n] is stored in at least one layer. */
static bool is_stored(const um_loader *l, int32_t n_layers, const char *const *patterns, size_t n, const char *suffix) {
    for (int32_t i = 0; i < n_layers; i++)
        for (size_t k = 0; k < n && patterns[k]; k++)
            if (um_loader_find(l, patterns[k], i, suffix)) return true;
    return false;
}

/* The checkpoint in which is_present looks for optional parts. */
typedef struct checkpoint {
    const um_loader *l;
    int32_t n_layers;
    const char *where; /* path of config.json, for messages */
} checkpoint;

/* Returns whether the model has an optional part: whether at least one layer stores it. Loading then requires it in
 * every layer. Warns when config.json `stated` something else. */
static bool is_present(const checkpoint *c, const char *what, const char *const *patterns, size_t n, const char *suffix,
                       bool stated) {
    bool found = is_stored(c->l, c->n_layers, patterns, n, suffix);
    if (found != stated)
        um_warn("%s: the configuration describes a model %s %s, but the checkpoint stores one %s; the tensors decide",
                c->where, stated ? "with" : "without", what, found ? "with" : "without");
    return found;
}

void um_arch_apply_tensors(um_arch *a, const um_store *s, const char *where) {
    const um_tensor_names *n = a->family->names;
    const um_loader l = {.s = s, .strip = um_loader_strip(n, s)};
    const checkpoint c = {&l, a->n_layers, where};
    const um_expert_bias kind = a->family->router_bias;
    a->qk_norm = is_present(&c, "norms of queries and keys", &n->q_norm, 1, ".weight", a->qk_norm);
    a->qkv_bias =
        is_present(&c, "biases of queries, keys and values", n->qkv ? &n->qkv : &n->q, 1, ".bias", a->qkv_bias);
    a->o_bias = is_present(&c, "a bias of the attention output", &n->o, 1, ".bias", a->o_bias);
    a->mlp_bias = is_present(&c, "biases of the feed-forward layers", &n->gate, 1, ".bias", a->mlp_bias);
    a->layer_norm = is_present(&c, "biases of the norms", &n->attn_norm, 1, ".bias", a->layer_norm);
    if (kind != UM_BIAS_NONE) {
        bool stated = a->route.bias != UM_BIAS_NONE;
        bool found =
            is_present(&c, "correction biases of the routers", n->router_bias, UM_LEN(n->router_bias), "", stated);
        a->route.bias = found ? kind : UM_BIAS_NONE;
    }
    const um_tensor *embed = um_loader_find(&l, n->embed, 0, ".weight");
    if (embed && a->embed_scale_rounds && embed->type == UM_BF16)
        a->embed_scale = um_bf16_to_f32(um_f32_to_bf16(a->embed_scale));
    if (embed && a->embed_scale_rounds && embed->type == UM_F16)
        a->embed_scale = um_f16_to_f32(um_f32_to_f16(a->embed_scale));
    if (!a->tied_stated) a->tied = !um_loader_find(&l, n->head, 0, ".weight");
}

const um_family *um_family_by_tensors(const um_family *f, const um_store *s) {
    const um_loader l = {.s = s, .strip = um_loader_strip(f->names, s)};
    if (!f->twin) return f;
    return !!um_loader_find(&l, f->names->q_norm, 0, ".weight") == f->stores_qk_norm ? f : f->twin;
}
