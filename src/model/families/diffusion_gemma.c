/* DiffusionGemma: Gemma 4's layout with a dense branch beside experts, and layers with and without a window. The stack
 * has two modes with factors of their own: a causal one, whose keys are stored, and one for the canvas that is
 * denoised, which sees itself as a whole and is conditioned on the predictions of its last pass. Images are not
 * supported. */
#include <jansson.h>
#include <math.h>

#include "model/config.h"

#define LAYER "model.decoder.layers.%d."

static const um_expert_names experts[] = {
    {.gate = LAYER "experts.gate_up_proj", .down = LAYER "experts.down_proj", .stacked = true},
    {.gate = NULL},
};

static const um_tensor_names names = {
    .embed = "model.decoder.embed_tokens",
    .final_norm = "model.decoder.norm",
    .head = "lm_head",
    .attn_norm = LAYER "input_layernorm",
    .attn_post_norm = LAYER "post_attention_layernorm",
    .ffn_norm = LAYER "pre_feedforward_layernorm",
    .ffn_post_norm = LAYER "post_feedforward_layernorm",
    .dense_post_norm = LAYER "post_feedforward_layernorm_1",
    .expert_norm = LAYER "pre_feedforward_layernorm_2",
    .expert_post_norm = LAYER "post_feedforward_layernorm_2",
    .q = LAYER "self_attn.q_proj",
    .k = LAYER "self_attn.k_proj",
    .v = LAYER "self_attn.v_proj",
    .o = LAYER "self_attn.o_proj",
    .q_norm = LAYER "self_attn.q_norm",
    .k_norm = LAYER "self_attn.k_norm",
    .gate = LAYER "mlp.gate_proj",
    .up = LAYER "mlp.up_proj",
    .down = LAYER "mlp.down_proj",
    .router = LAYER "router.proj",
    .router_norm = LAYER "router.scale",
    .expert_scale = LAYER "router.per_expert_scale",
    .scale = {"model.encoder.language_model.layers.%d.layer_scalar", LAYER "layer_scalar"},
    .cond_norm = "model.decoder.self_conditioning.pre_norm",
    .cond_gate = "model.decoder.self_conditioning.gate_proj",
    .cond_up = "model.decoder.self_conditioning.up_proj",
    .cond_down = "model.decoder.self_conditioning.down_proj",
    .experts = experts,
};

enum { SLIDING, FULL }; /* the kinds of layers */

static const char *const type_name[] = {"sliding_attention", "full_attention"};

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

static um_status read_sizes(um_arch *a, const json_t *t, const char *where, um_err *err) {
    um_status s = um_hf_need_int(t, "hidden_size", where, 1, UM_HF_HIDDEN_MAX, &a->hidden, err);
    if (!s) s = um_hf_need_int(t, "num_hidden_layers", where, 1, UM_LAYERS_MAX, &a->n_layers, err);
    if (!s) s = um_hf_need_int(t, "vocab_size", where, 1, UM_HF_VOCAB_MAX, &a->vocab, err);
    if (!s) s = um_hf_need_int(t, "max_position_embeddings", where, 1, UM_HF_POSITIONS_MAX, &a->max_position, err);
    if (!s) s = um_hf_need_int(t, "num_attention_heads", where, 1, UM_HF_HEADS_MAX, &a->n_heads, err);
    if (!s) s = um_hf_need_int(t, "num_key_value_heads", where, 1, UM_HF_HEADS_MAX, &a->n_kv_heads, err);
    if (!s) s = um_hf_need_int(t, "head_dim", where, 1, UM_HF_HEAD_DIM_MAX, &a->head_dim, err);
    if (!s) s = um_hf_need_int(t, "intermediate_size", where, 1, UM_HF_HIDDEN_MAX, &a->n_ff, err);
    return s ? s : um_hf_need_eps(a, t, "rms_norm_eps", where, err);
}

/* Refuses switches that no release uses. */
static um_status refuse_variants(const json_t *t, const char *where, um_err *err) {
    int32_t per_layer = 0;
    um_status s = um_hf_only_str(t, "hidden_activation", where, "gelu_pytorch_tanh", err);
    if (!s) s = um_hf_only_bool(t, "attention_bias", where, false, err);
    if (!s) s = um_hf_only_bool(t, "tie_word_embeddings", where, true, err);
    if (!s) s = um_hf_only_str(t, "use_bidirectional_attention", where, "vision", err);
    if (!s) s = um_json_get_int32(t, "hidden_size_per_layer_input", where, 0, INT32_MAX, &per_layer, err);
    if (!s && per_layer)
        s = um_fail(err, UM_EUNSUPPORTED, "%s: \"hidden_size_per_layer_input\" is %d; unmask supports 0 only", where,
                    per_layer);
    return s;
}

static um_status read_route(um_arch *a, const json_t *t, const char *where, um_err *err) {
    um_expert_route *r = &a->route;
    um_status s = um_hf_need_int(t, "num_experts", where, 1, UM_HF_EXPERTS_MAX, &r->n_experts, err);
    if (!s) s = um_hf_need_int(t, "top_k_experts", where, 1, UM_HF_EXPERTS_MAX, &r->top_k, err);
    if (!s) s = um_hf_need_int(t, "moe_intermediate_size", where, 1, UM_HF_HIDDEN_MAX, &a->expert_ff, err);
    if (!s && r->top_k > r->n_experts)
        s = um_fail(err, UM_EMODEL, "%s: \"top_k_experts\" is %d, more than \"num_experts\" %d", where, r->top_k,
                    r->n_experts);
    if (!s && (int64_t)r->n_experts * a->expert_ff > UM_HF_EXPERT_ROWS_MAX)
        s = um_fail(err, UM_EUNSUPPORTED, "%s: \"num_experts\" %d times \"moe_intermediate_size\" %d is more than %d",
                    where, r->n_experts, a->expert_ff, UM_HF_EXPERT_ROWS_MAX);
    r->score = UM_SCORE_SOFTMAX;
    r->normalize = true;
    r->scale = 1;
    r->n_group = r->topk_group = 1;
    r->sharpness = 1 / sqrtf((float)a->hidden);
    return s;
}

/* ---- Kinds of layers --------------------------------------------------------------------------------------------- */

/* Returns the layers of a kind: 0 or more. */
static int32_t count_layers(const um_arch *a, int kind) {
    int32_t n = 0;
    for (int32_t i = 0; i < a->n_layers; i++) n += a->of_layer[i] == kind;
    return n;
}

/* Reads layer_types. Without it, every sixth layer is full. The last layer always is. */
static um_status read_types(um_arch *a, const json_t *t, const char *where, um_err *err) {
    const json_t *list = json_object_get(t, "layer_types"), *v;
    size_t i;
    const int32_t n = a->n_layers;
    const bool is_given = list && !json_is_null(list);
    for (int32_t k = 0; k < n; k++) a->of_layer[k] = k % 6 == 5 ? FULL : SLIDING;
    if (is_given) {
        if (!json_is_array(list) || json_array_size(list) != (size_t)n)
            return um_fail(err, UM_EPARSE,
                           "%s: \"layer_types\" has %zu entries, expected one for each of \"num_hidden_layers\" %d",
                           where, json_array_size(list), n);
        json_array_foreach(list, i, v) {
            const char *name = json_string_value(v);
            int kind = SLIDING;
            while (kind <= FULL && (!name || strcmp(name, type_name[kind]))) kind++;
            if (kind > FULL)
                return um_fail(err, UM_EUNSUPPORTED, "%s: \"layer_types\": entry %zu is neither \"%s\" nor \"%s\"",
                               where, i, type_name[SLIDING], type_name[FULL]);
            a->of_layer[i] = (uint8_t)kind;
        }
    }
    if (is_given && a->of_layer[n - 1] != FULL)
        um_warn("%s: \"layer_types\" says that the last layer is %s; it is %s", where, type_name[SLIDING],
                type_name[FULL]);
    a->of_layer[n - 1] = FULL;
    return UM_OK;
}

/* Reads the heads of full layers from the fields of older files. */
static um_status read_global_heads(um_arch_kind *full, const json_t *t, const char *where, um_err *err) {
    enum { DEFAULT_DIM = 512 };
    full->head_dim = DEFAULT_DIM;
    um_status s = um_json_get_int32(t, "global_head_dim", where, 1, UM_HF_HEAD_DIM_MAX, &full->head_dim, err);
    return s ? s
             : um_json_get_int32(t, "num_global_key_value_heads", where, 1, UM_HF_HEADS_MAX, &full->n_kv_heads, err);
}

/* Reads an entry of per_layer_config. All layers of a kind must agree. */
static um_status read_layer(const um_arch *a, um_arch_kind *full, const char *key, const json_t *entry, bool first,
                            const char *where, um_err *err) {
    int64_t layer;
    int32_t head_dim = a->head_dim, n_kv_heads = a->n_kv_heads;
    if (!um_parse_int(key, &layer) || layer < 0 || layer >= a->n_layers || !json_is_object(entry))
        return um_fail(err, UM_EPARSE, "%s: \"per_layer_config\": \"%s\" is no layer from 0 to %d with an object",
                       where, key, a->n_layers - 1);
    um_status s = um_json_get_int32(entry, "head_dim", where, 1, UM_HF_HEAD_DIM_MAX, &head_dim, err);
    if (!s) s = um_json_get_int32(entry, "num_key_value_heads", where, 1, UM_HF_HEADS_MAX, &n_kv_heads, err);
    if (s) return s;
    const um_arch_kind sliding = {.head_dim = a->head_dim, .n_kv_heads = a->n_kv_heads};
    const um_arch_kind *want = a->of_layer[layer] == FULL ? (first ? NULL : full) : &sliding;
    if (want && (want->head_dim != head_dim || want->n_kv_heads != n_kv_heads))
        return um_fail(
            err, UM_EUNSUPPORTED,
            "%s: \"per_layer_config\": layer %s has %d KV heads of %d, but other layers of its type have %d of "
            "%d",
            where, key, n_kv_heads, head_dim, want->n_kv_heads, want->head_dim);
    if (a->of_layer[layer] != FULL) return UM_OK;
    full->head_dim = head_dim;
    full->n_kv_heads = n_kv_heads;
    return UM_OK;
}

/* Reads per_layer_config, the form of newer files, in which full layers without an entry have the sizes of the
 * others. */
static um_status read_layers(um_arch *a, um_arch_kind *full, const json_t *all, const char *where, um_err *err) {
    const char *key;
    json_t *entry;
    int32_t n = 0;
    um_status s = UM_OK;
    if (!json_is_object(all)) return um_fail(err, UM_EPARSE, "%s: \"per_layer_config\" must be an object", where);
    json_object_foreach((json_t *)all, key, entry) {
        int64_t layer;
        s = read_layer(a, full, key, entry, n == 0, where, err);
        if (s) return s;
        n += um_parse_int(key, &layer) && a->of_layer[layer] == FULL;
    }
    const bool is_same = full->head_dim == a->head_dim && full->n_kv_heads == a->n_kv_heads;
    if (n == 0 || n == count_layers(a, FULL) || is_same) return UM_OK;
    return um_fail(err, UM_EUNSUPPORTED, "%s: \"per_layer_config\" has only %d of %d full layers", where, n,
                   count_layers(a, FULL));
}

static um_status read_heads(um_arch *a, um_arch_kind *full, const json_t *t, const char *where, um_err *err) {
    static const char *const old[] = {"global_head_dim", "num_global_key_value_heads"};
    const json_t *layers = json_object_get(t, "per_layer_config");
    if (!layers || json_is_null(layers)) return read_global_heads(full, t, where, err);
    for (size_t i = 0; i < UM_LEN(old); i++)
        if (um_hf_has(t, old[i]))
            return um_fail(err, UM_EMODEL,
                           "%s: both \"per_layer_config\" and \"%s\" are there; the file mixes two formats: remove the "
                           "one that does not fit the tensors",
                           where, old[i]);
    return read_layers(a, full, layers, where, err);
}

/* Reads rope_parameters of a type of layers. `default` turns a share of the dimensions. `proportional` has the
 * frequencies of the whole head, of which only the first ones turn. */
static um_status read_rope(um_arch_kind *k, const json_t *t, int kind, const char *where, um_err *err) {
    const json_t *p = json_object_get(json_object_get(t, "rope_parameters"), type_name[kind]);
    double share = 1;
    k->rope_factor = 1;
    if (!json_is_object(p))
        return um_fail(err, UM_EMODEL, "%s: \"rope_parameters\" lacks the object \"%s\"; the model needs it", where,
                       type_name[kind]);
    const char *type = json_string_value(json_object_get(p, "rope_type"));
    const bool proportional = type && !strcmp(type, "proportional");
    if (type && !proportional && strcmp(type, "default"))
        return um_fail(err, UM_EUNSUPPORTED, "%s: \"rope_type\" of %s is \"%s\", expected default or proportional",
                       where, type_name[kind], type);
    um_status s = um_hf_need_double(p, "rope_theta", where, &k->rope_theta, err);
    if (!s) s = um_json_get_double(p, "partial_rotary_factor", where, &share, err);
    if (!s && proportional) s = um_json_get_double(p, "factor", where, &k->rope_factor, err);
    if (s) return s;
    if (!(k->rope_theta >= 1 && k->rope_theta <= 1e15 && share > 0 && share <= 1 && k->rope_factor >= 1e-6 &&
          k->rope_factor <= 1e6))
        return um_fail(err, UM_EPARSE,
                       "%s: rotary embeddings of %s: theta %g, share %g, factor %g are outside 1.., 0..1, above 0",
                       where, type_name[kind], k->rope_theta, share, k->rope_factor);
    k->rope_dim = proportional ? k->head_dim : (int32_t)(k->head_dim * share);
    k->rope_pairs = proportional ? (int32_t)(share * k->head_dim / 2) : k->rope_dim / 2;
    if (k->rope_dim < 2 || k->rope_dim % 2)
        return um_fail(err, UM_EMODEL, "%s: %s layers rotate %d of %d dimensions; their number must be even", where,
                       type_name[kind], k->rope_dim, k->head_dim);
    return UM_OK;
}

static um_status read_window(um_arch *a, const json_t *t, int32_t *out, const char *where, um_err *err) {
    um_status s = um_hf_need_int(t, "sliding_window", where, 1, UM_HF_POSITIONS_MAX, out, err);
    if (s || *out <= a->max_position) return s;
    return um_fail(err, UM_EMODEL, "%s: \"sliding_window\" is %d, more than \"max_position_embeddings\" %d", where,
                   *out, a->max_position);
}

static um_status read_kinds(um_arch *a, const json_t *t, const char *where, um_err *err) {
    um_arch_kind *sliding = &a->kind[SLIDING], *full = &a->kind[FULL];
    *sliding = (um_arch_kind){.n_heads = a->n_heads,
                              .n_kv_heads = a->n_kv_heads,
                              .head_dim = a->head_dim,
                              .attn_scale = 1,
                              .v_norm = true,
                              .post_norms = true,
                              .act = UM_ACT_GELU_TANH,
                              .n_ff = a->n_ff,
                              .expert_ff = a->expert_ff};
    um_status s = read_types(a, t, where, err);
    *full = *sliding;
    full->v_is_k = true;
    if (!s) s = read_window(a, t, &sliding->window, where, err);
    if (!s) s = read_heads(a, full, t, where, err);
    if (!s) s = read_rope(sliding, t, SLIDING, where, err);
    if (!s) s = read_rope(full, t, FULL, where, err);
    if (!s && full->n_heads % full->n_kv_heads)
        s = um_fail(err, UM_EMODEL, "%s: %d query heads can't share %d key and value heads of full layers evenly",
                    where, full->n_heads, full->n_kv_heads);
    a->n_kinds = 2;
    a->rope_dim = sliding->rope_dim;
    a->rope_theta = sliding->rope_theta;
    return s;
}

/* ---- The rest ---------------------------------------------------------------------------------------------------- */

static um_status read_cap(um_arch *a, const json_t *t, const char *where, um_err *err) {
    double cap = 0;
    um_status s = um_json_get_double(t, "final_logit_softcapping", where, &cap, err);
    if (!s && um_hf_has(t, "final_logit_softcapping") && !(cap > 0 && cap < 1e6))
        s = um_fail(err, UM_EPARSE, "%s: \"final_logit_softcapping\" is %g, expected null or above 0", where, cap);
    a->logit_cap = (float)cap;
    return s;
}

static um_status configure(um_arch *a, const json_t *config, const char *where, um_err *err) {
    const json_t *t = json_object_get(config, "text_config");
    if (!json_is_object(t))
        return um_fail(err, UM_EMODEL, "%s: the object \"text_config\" is missing; the model needs it", where);
    um_status s = read_sizes(a, t, where, err);
    if (!s) s = refuse_variants(t, where, err);
    if (!s) s = um_hf_only_bool(config, "tie_word_embeddings", where, true, err);
    if (!s) s = read_route(a, t, where, err);
    if (!s) s = read_kinds(a, t, where, err);
    if (!s) s = read_cap(a, t, where, err);
    if (!s) s = um_hf_need_int(config, "canvas_length", where, 1, a->max_position, &a->block, err);
    a->qk_norm = a->tied = a->tied_stated = a->has_modes = a->embed_scale_rounds = true;
    a->embed_scale = sqrtf((float)a->hidden);
    a->conditioning_ff = a->n_ff;
    a->see = UM_SEE_CAUSAL;
    for (int32_t i = 0; i < a->n_layers; i++) a->moe_layers[i / 64] |= 1ull << (i % 64);
    return s;
}

const um_family um_family_diffusion_gemma = {
    .name = "diffusion_gemma",
    .aliases = "diffusiongemma|dgemma",
    .summary = "DiffusionGemma 26B-A4B: Gemma 4 layout, canvases of random tokens that are denoised as a whole",
    .source = "google/diffusiongemma-26B-A4B-it",
    .architectures = "DiffusionGemmaForBlockDiffusion",
    .model_types = "diffusion_gemma",
    .names = &names,
    .experts = true,
    .alias = "model.encoder.language_model.",
    .alias_of = "model.decoder.",
    .ignored = "model.encoder.vision_tower.|model.encoder.embed_vision.",
    .ignored_part = "vision tower (images are not supported)",
    .has_no_mask = true,
    .mask_id = 4,
    .turn_end = "<turn|>",
    .chat = "gemma4",
    .strategies = "renoising",
    .sampler = "auto",
    .gate = "always",
    .accept_threshold = 0.9f, /* not read */
    .compat_threshold = NAN,
    .configure = configure,
};
