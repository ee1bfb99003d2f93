/* Properties of an architecture, computed from its sizes, and of an open model. */
#include "model/model.h"

/* Returns the parameters of gate, up and down in one feed-forward layer. */
static int64_t ffn_params(const um_arch *a, int32_t width) { return 3LL * a->hidden * width; }

static int64_t attention_params(const um_arch *a, const um_arch_kind *k) {
    int64_t q = (int64_t)k->n_heads * k->head_dim, kv = (int64_t)k->n_kv_heads * k->head_dim;
    int64_t n = (q + (k->v_is_k ? 1 : 2) * kv) * a->hidden + q * a->hidden;
    if (a->qkv_bias) n += q + 2 * kv;
    if (a->o_bias) n += a->hidden;
    if (a->qk_norm) n += 2LL * k->head_dim;
    return n;
}

static int64_t norm_params(const um_arch *a) { return (a->layer_norm ? 2LL : 1LL) * a->hidden; }

/* Returns the parameters of a layer, counting `experts` of its routed experts. Like published counts, it has one factor
 * of a layer with two modes. */
static int64_t layer_params(const um_arch *a, int32_t layer, int64_t experts) {
    const um_arch_kind *k = um_arch_kind_of(a, layer);
    const um_tensor_names *names = a->family->names;
    int64_t n = attention_params(a, k) + (k->post_norms ? 4 : 2) * norm_params(a) + a->has_modes;
    if (k->n_ff) n += ffn_params(a, k->n_ff) + (a->mlp_bias ? 2LL * k->n_ff + a->hidden : 0);
    if (!k->expert_ff) return n;
    if (k->post_norms) n += 3 * norm_params(a);
    if (names->router_norm) n += a->hidden;
    if (names->expert_scale) n += a->route.n_experts;
    n += (int64_t)a->route.n_experts * a->hidden + experts * ffn_params(a, k->expert_ff) + ffn_params(a, k->shared_ff);
    return n + (a->route.bias == UM_BIAS_NONE ? 0 : a->route.n_experts);
}

static int64_t count_params(const um_arch *a, int64_t experts) {
    int64_t n = um_arch_embedding_params(a) + norm_params(a);
    if (a->conditioning_ff) n += ffn_params(a, a->conditioning_ff) + norm_params(a);
    for (int32_t i = 0; i < a->n_layers; i++) n += layer_params(a, i, experts);
    return n;
}

int64_t um_arch_embedding_params(const um_arch *a) { return (int64_t)a->vocab * a->hidden * (a->tied ? 1 : 2); }

int64_t um_arch_params(const um_arch *a) { return count_params(a, a->route.n_experts); }

int64_t um_arch_active_params(const um_arch *a) { return count_params(a, a->route.top_k); }

static size_t layer_kv_bytes(const um_arch_kind *k, um_dtype t) {
    size_t head = um_mul((size_t)k->head_dim, um_dtype_size(t)) + (t == UM_F8 ? sizeof(float) : 0); /* plus scale */
    return um_mul((size_t)k->n_kv_heads, 2 * head);
}

size_t um_arch_window_kv_bytes(const um_arch *a, um_dtype t, bool window) {
    size_t n = 0;
    for (int32_t i = 0; i < a->n_layers; i++) {
        const um_arch_kind *k = um_arch_kind_of(a, i);
        if ((k->window > 0) == window) n += layer_kv_bytes(k, t);
    }
    return n;
}

size_t um_arch_kv_bytes(const um_arch *a, um_dtype t) {
    return um_arch_window_kv_bytes(a, t, false) + um_arch_window_kv_bytes(a, t, true);
}

int32_t um_arch_window(const um_arch *a) {
    int32_t most = 0;
    for (int32_t i = 0; i < a->n_kinds; i++) most = UM_MAX(most, a->kind[i].window);
    return most;
}

static const char *mask_rule(um_see see) {
    switch (see) {
    case UM_SEE_FULL: return "full";
    case UM_SEE_CAUSAL: return "causal";
    case UM_SEE_BLOCK_CAUSAL: return "block-causal";
    }
    return "unknown";
}

void um_model_get_info(const um_model *m, um_model_info *out) {
    const um_arch *a = &m->arch;
    *out = (um_model_info){.path = m->path,
                           .family = a->family->name,
                           .model_type = a->model_type,
                           .architecture = a->architecture,
                           .rule = a->rule,
                           .mask_rule = mask_rule(a->see),
                           .n_layers = a->n_layers,
                           .hidden = a->hidden,
                           .n_heads = a->n_heads,
                           .n_kv_heads = a->n_kv_heads,
                           .head_dim = a->head_dim,
                           .n_ff = a->n_ff,
                           .vocab = a->vocab,
                           .tokenizer_vocab = um_tok_size(m->tok),
                           .max_position = a->max_position,
                           .block_size = a->block,
                           .shift = a->shift,
                           .mask_id = a->mask_id,
                           .n_stop = a->n_stop,
                           .stop = a->stop,
                           .n_params = m->n_params,
                           .bos_id = a->bos_id,
                           .has_chat_template = m->chat != NULL,
                           .chat_template = m->chat ? um_chat_source(m->chat) : NULL,
                           .default_strategy = a->default_strategy,
                           .load_seconds = m->load_seconds,
                           .example = m->card.example,
                           .n_examples = m->card.n_examples,
                           .adapter = m->adapter,
                           .n_adapters = m->n_adapters};
}

int32_t um_arch_answer_tokens(const um_arch *a) { return a->max_new_tokens ? a->max_new_tokens : 512; }
