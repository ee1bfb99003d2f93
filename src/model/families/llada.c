/* LLaDA 8B and 1.5: Llama's arithmetic and OLMo's names, with full attention.
 *
 * The name `ff_out` is used twice: for the down projection of a layer and, at the top level, for the head. Some tools
 * write the names without the prefix "model."; the loader accepts both. */
#include <jansson.h>
#include <math.h>

#include "model/config.h"

static const um_tensor_names names = {
    .embed = "model.transformer.wte",
    .final_norm = "model.transformer.ln_f",
    .head = "model.transformer.ff_out",
    .attn_norm = "model.transformer.blocks.%d.attn_norm",
    .ffn_norm = "model.transformer.blocks.%d.ff_norm",
    .q = "model.transformer.blocks.%d.q_proj",
    .k = "model.transformer.blocks.%d.k_proj",
    .v = "model.transformer.blocks.%d.v_proj",
    .o = "model.transformer.blocks.%d.attn_out",
    .q_norm = "model.transformer.blocks.%d.q_norm",
    .k_norm = "model.transformer.blocks.%d.k_norm",
    .gate = "model.transformer.blocks.%d.ff_proj",
    .up = "model.transformer.blocks.%d.up_proj",
    .down = "model.transformer.blocks.%d.ff_out",
};

/* Refuses the variants of OLMo's configuration that unmask does not support. `rope` and the three words are required,
 * because the defaults of OLMo's Python class describe a model like GPT-2. */
static um_status refuse_variants(const json_t *config, const char *where, um_err *err) {
    static const char *const words[][2] = {
        {"block_type", "llama"}, {"layer_norm_type", "rms"}, {"activation_type", "silu"}};
    static const char *const off[] = {"alibi", "attention_layer_norm", "bias_for_layer_norm"};
    bool rope = false;
    um_status s = um_hf_need_bool(config, "rope", where, &rope, err);
    if (!s) s = um_hf_only_bool(config, "rope", where, true, err);
    for (size_t i = 0; i < UM_LEN(words) && !s; i++) {
        if (!json_is_string(json_object_get(config, words[i][0])))
            return um_fail(err, UM_EMODEL, "%s: \"%s\" is missing; unmask supports \"%s\" only", where, words[i][0],
                           words[i][1]);
        s = um_hf_only_str(config, words[i][0], where, words[i][1], err);
    }
    for (size_t i = 0; i < UM_LEN(off) && !s; i++) s = um_hf_only_bool(config, off[i], where, false, err);
    return s;
}

/* Returns whether the word begins one of the words of the key, which are separated by "_". */
static bool has_word(const char *key, const char *word) {
    for (const char *p = key; p; p = strchr(p, '_'), p = p ? p + 1 : NULL)
        if (!strncmp(p, word, strlen(word))) return true;
    return false;
}

/* Refuses switches of rotary embeddings that no release has. Fine-tuned models with longer contexts have names of their
 * own for the numbers of a stretch, and without them the answers would be wrong. */
static um_status refuse_stretches(const json_t *config, const char *where, um_err *err) {
    static const char *const known[] = {"rope", "rope_theta", "rope_full_precision", "rope_scaling", "rope_parameters"};
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)config, key, v) {
        bool is_known = json_is_null(v) || json_is_false(v);
        for (size_t i = 0; i < UM_LEN(known) && !is_known; i++) is_known = !strcmp(key, known[i]);
        if (is_known || !(has_word(key, "rope") || has_word(key, "yarn") || has_word(key, "ntk"))) continue;
        return um_fail(
            err, UM_EUNSUPPORTED,
            "%s: \"%s\" asks for other rotary embeddings; for this family unmask supports unscaled ones only", where,
            key);
    }
    return UM_OK;
}

static um_status read_heads(um_arch *a, const json_t *config, const char *where, um_err *err) {
    bool one = false;
    um_status s = um_hf_need_int(config, "n_heads", where, 1, UM_HF_HEADS_MAX, &a->n_heads, err);
    if (!s) s = um_json_get_bool(config, "multi_query_attention", where, &one, err);
    if (s) return s;
    a->n_kv_heads = one ? 1 : a->n_heads;
    s = um_json_get_int32(config, "n_kv_heads", where, 1, UM_HF_HEADS_MAX, &a->n_kv_heads, err);
    if (!s && a->hidden % a->n_heads)
        return um_fail(err, UM_EMODEL, "%s: \"d_model\" %d is not a multiple of \"n_heads\" %d", where, a->hidden,
                       a->n_heads);
    a->head_dim = a->hidden / a->n_heads;
    return s;
}

/* A null mlp_hidden_size means mlp_ratio * d_model. */
static um_status read_ff(um_arch *a, const json_t *config, const char *where, um_err *err) {
    int32_t ratio = 0;
    um_status s = um_json_get_int32(config, "mlp_hidden_size", where, 1, UM_HF_HIDDEN_MAX, &a->n_ff, err);
    if (s || a->n_ff) return s;
    if (!json_is_integer(json_object_get(config, "mlp_ratio")))
        return um_fail(err, UM_EMODEL, "%s: \"mlp_hidden_size\" and \"mlp_ratio\" are both missing", where);
    s = um_json_get_int32(config, "mlp_ratio", where, 1, 64, &ratio, err);
    a->n_ff = ratio * a->hidden;
    return s;
}

static um_status read_sizes(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = um_hf_need_int(config, "d_model", where, 1, UM_HF_HIDDEN_MAX, &a->hidden, err);
    if (!s) s = um_hf_need_int(config, "n_layers", where, 1, UM_LAYERS_MAX, &a->n_layers, err);
    if (!s) s = um_hf_need_int(config, "vocab_size", where, 1, UM_HF_VOCAB_MAX, &a->vocab, err);
    if (!s) s = um_json_get_int32(config, "embedding_size", where, a->vocab, UM_HF_VOCAB_MAX, &a->vocab, err);
    if (!s) s = um_hf_need_int(config, "max_sequence_length", where, 1, UM_HF_POSITIONS_MAX, &a->max_position, err);
    return s ? s : um_hf_need_eps(a, config, "rms_norm_eps", where, err);
}

static um_status read_switches(um_arch *a, const json_t *config, const char *where, um_err *err) {
    bool bias = false, qkv_bias = false, scale_embed = false, scale_logits = false;
    um_status s = um_json_get_bool(config, "include_bias", where, &bias, err);
    if (!s) s = um_json_get_bool(config, "include_qkv_bias", where, &qkv_bias, err);
    if (!s) s = um_json_get_bool(config, "input_emb_norm", where, &scale_embed, err);
    if (!s) s = um_json_get_bool(config, "scale_logits", where, &scale_logits, err);
    if (!s) s = um_json_get_bool(config, "weight_tying", where, &a->tied, err);
    if (s) return s;
    a->tied_stated = json_is_boolean(json_object_get(config, "weight_tying"));
    a->qkv_bias = bias || qkv_bias;
    a->o_bias = a->mlp_bias = bias;
    a->embed_scale = scale_embed ? sqrtf((float)a->hidden) : 1;
    a->logit_scale = scale_logits ? 1 / sqrtf((float)a->hidden) : 1;
    return UM_OK;
}

static um_status configure(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = refuse_variants(config, where, err);
    if (!s) s = refuse_stretches(config, where, err);
    if (!s) s = read_sizes(a, config, where, err);
    if (!s) s = read_heads(a, config, where, err);
    if (!s) s = read_ff(a, config, where, err);
    if (!s) s = um_hf_rope(a, config, where, err);
    if (!s) s = um_hf_clip(a, config, where, err);
    if (!s) s = read_switches(a, config, where, err);
    a->see = UM_SEE_FULL;
    return s;
}

const um_family um_family_llada = {
    .name = "llada",
    .aliases = "llada_instruct",
    .summary = "LLaDA 8B and 1.5: Llama arithmetic, full attention",
    .source = "GSAI-ML/LLaDA-8B-*, GSAI-ML/LLaDA-1.5",
    .architectures = "LLaDAModelLM",
    .model_types = "llada",
    .names = &names,
    .tokens = um_tokens_llada,
    .tokenizer_size = UM_TOKENS_LLADA_SIZE,
    .mask_id = 126336,
    .mask_token = "<|mdm_mask|>",
    .turn_end = "<|eot_id|>",
    .chat = "llada",
    .strategies = "full|prefix_cache|dual_cache|sparse|d2f",
    .sampler = "low_confidence",
    .gate = "previous",
    .accept_threshold = 0.9f,
    .compat_threshold = NAN,
    .configure = configure,
};
