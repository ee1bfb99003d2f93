/* Converts config.json, generation_config.json and the tokenizer's data to a um_arch. */
#include <jansson.h>
#include <math.h>

#include "model/checkpoint.h"
#include "model/config.h"
#include "model/quantized.h"

const um_tensor_names um_hf_llama_names = {
    .embed = "model.embed_tokens",
    .final_norm = "model.norm",
    .head = "lm_head",
    .attn_norm = "model.layers.%d.input_layernorm",
    .ffn_norm = "model.layers.%d.post_attention_layernorm",
    .q = "model.layers.%d.self_attn.q_proj",
    .k = "model.layers.%d.self_attn.k_proj",
    .v = "model.layers.%d.self_attn.v_proj",
    .o = "model.layers.%d.self_attn.o_proj",
    .q_norm = "model.layers.%d.self_attn.q_norm",
    .k_norm = "model.layers.%d.self_attn.k_norm",
    .gate = "model.layers.%d.mlp.gate_proj",
    .up = "model.layers.%d.mlp.up_proj",
    .down = "model.layers.%d.mlp.down_proj",
    .router = "model.layers.%d.mlp.gate",
    .router_bias = {"model.layers.%d.mlp.expert_bias"},
    .shared_gate = "model.layers.%d.shared_expert.gate_proj",
    .shared_up = "model.layers.%d.shared_expert.up_proj",
    .shared_down = "model.layers.%d.shared_expert.down_proj",
    .experts = um_hf_expert_layouts,
};

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

bool um_hf_has(const json_t *config, const char *key) {
    json_t *v = json_object_get(config, key);
    return v && !json_is_null(v);
}

static um_status need(const json_t *config, const char *key, const char *where, um_err *err) {
    if (um_hf_has(config, key)) return UM_OK;
    return um_fail(err, UM_EMODEL,
                   "%s: \"%s\" is missing; it shapes the model and has no safe default: take the "
                   "config.json that belongs to the checkpoint",
                   where, key);
}

um_status um_hf_need_int(const json_t *config, const char *key, const char *where, int32_t min, int32_t max,
                         int32_t *out, um_err *err) {
    um_status s = need(config, key, where, err);
    return s ? s : um_json_get_int32(config, key, where, min, max, out, err);
}

um_status um_hf_need_double(const json_t *config, const char *key, const char *where, double *out, um_err *err) {
    um_status s = need(config, key, where, err);
    return s ? s : um_json_get_double(config, key, where, out, err);
}

um_status um_hf_need_eps(um_arch *a, const json_t *config, const char *key, const char *where, um_err *err) {
    double eps = 0;
    um_status s = um_hf_need_double(config, key, where, &eps, err);
    a->norm_eps = (float)eps;
    if (s || (a->norm_eps > 0 && a->norm_eps < 1)) return s;
    return um_fail(err, UM_EPARSE, "%s: \"%s\" is %g, expected above 0 and below 1", where, key, eps);
}

um_status um_hf_need_bool(const json_t *config, const char *key, const char *where, bool *out, um_err *err) {
    um_status s = need(config, key, where, err);
    return s ? s : um_json_get_bool(config, key, where, out, err);
}

um_status um_hf_only_str(const json_t *config, const char *key, const char *where, const char *value, um_err *err) {
    const char *found = value;
    um_status s = um_json_get_str(config, key, where, &found, err);
    if (s || !strcmp(found, value)) return s;
    return um_fail(err, UM_EUNSUPPORTED, "%s: \"%s\" is \"%s\"; unmask supports \"%s\" only", where, key, found, value);
}

um_status um_hf_only_bool(const json_t *config, const char *key, const char *where, bool value, um_err *err) {
    bool found = value;
    um_status s = um_json_get_bool(config, key, where, &found, err);
    if (s || found == value) return s;
    return um_fail(err, UM_EUNSUPPORTED, "%s: \"%s\" is %s, which unmask does not support", where, key,
                   found ? "true" : "false");
}

/* ---- Rotary embedding -------------------------------------------------------------------------------------------- */

/* Reads rope_scaling or rope_parameters: an object, null, or the `false` that some checkpoints write in place of null.
 * The kind is stored under the key "rope_type" or under its older name "type". */
static um_status rope_object(const json_t *config, const char *key, const char *where, const char *wanted, json_t **out,
                             um_err *err) {
    json_t *v = json_object_get(config, key);
    *out = NULL;
    if (!v || json_is_null(v) || json_is_false(v)) return UM_OK;
    if (!json_is_object(v)) return um_fail(err, UM_EPARSE, "%s: \"%s\" must be an object or null", where, key);
    const char *kind = json_string_value(json_object_get(v, "rope_type"));
    if (!kind) kind = json_string_value(json_object_get(v, "type"));
    if (!kind) kind = "default";
    if (strcmp(kind, wanted))
        return um_fail(err, UM_EUNSUPPORTED,
                       "%s: \"%s\" asks for rotary embeddings of type \"%s\"; for this family unmask supports "
                       "%s only",
                       where, key, kind, strcmp(wanted, "default") ? wanted : "unscaled ones");
    *out = v;
    return UM_OK;
}

static const json_t *rope_holder(const json_t *config, const json_t *params, const json_t *scaling, const char *key) {
    if (um_hf_has(config, key)) return config;
    if (params && um_hf_has(params, key)) return params;
    if (scaling && um_hf_has(scaling, key)) return scaling;
    return config;
}

/* Checks rope_theta, and sets the rotated dimensions to a share of the head. */
static um_status set_rope(um_arch *a, double part, const char *where, um_err *err) {
    if (!(a->rope_theta >= 1) || a->rope_theta > 1e15)
        return um_fail(err, UM_EPARSE, "%s: \"rope_theta\" is %g, expected 1 or more", where, a->rope_theta);
    if (part <= 0) part = 1; /* LLaDA-MoE's files contain -1 when the field is unset */
    if (!(part <= 1))
        return um_fail(err, UM_EPARSE, "%s: \"partial_rotary_factor\" is %g, expected at most 1", where, part);
    a->rope_dim = (int32_t)(a->head_dim * part);
    if (a->rope_dim < 2 || a->rope_dim % 2)
        return um_fail(err, UM_EMODEL, "%s: %d rotated dimensions of %d per head; their number must be even", where,
                       a->rope_dim, a->head_dim);
    return UM_OK;
}

um_status um_hf_rope(um_arch *a, const json_t *config, const char *where, um_err *err) {
    json_t *params, *scaling;
    double part = 1;
    um_status s = rope_object(config, "rope_parameters", where, "default", &params, err);
    if (!s) s = rope_object(config, "rope_scaling", where, "default", &scaling, err);
    if (!s)
        s = um_hf_need_double(rope_holder(config, params, scaling, "rope_theta"), "rope_theta", where, &a->rope_theta,
                              err);
    if (!s)
        s = um_json_get_double(rope_holder(config, params, scaling, "partial_rotary_factor"), "partial_rotary_factor",
                               where, &part, err);
    return s ? s : set_rope(a, part, where, err);
}

/* Reads a number of the object of a stretch, which must be in [min, max]. */
static um_status read_stretch(const json_t *params, const char *key, const char *where, double min, double max,
                              double *out, um_err *err) {
    um_status s = um_hf_need_double(params, key, where, out, err);
    if (s || (*out >= min && *out <= max)) return s;
    return um_fail(err, UM_EPARSE, "%s: \"%s\" is %g, expected %g to %g", where, key, *out, min, max);
}

/* Refuses fields that replace the formulas of um_yarn. */
static um_status check_stretch(const um_yarn *y, const json_t *params, const char *where, um_err *err) {
    um_status s = um_hf_only_bool(params, "truncate", where, true, err);
    if (!s && um_hf_has(params, "attention_factor"))
        s = um_fail(err, UM_EUNSUPPORTED, "%s: \"attention_factor\" is not supported; mscale and mscale_all_dim decide",
                    where);
    if (!s && y->beta_fast < y->beta_slow)
        s = um_fail(err, UM_EPARSE, "%s: \"beta_fast\" is %g, expected \"beta_slow\" %g or more", where, y->beta_fast,
                    y->beta_slow);
    return s;
}

um_status um_hf_yarn(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_yarn *y = &a->yarn;
    json_t *params;
    double part = 1;
    um_status s = rope_object(config, "rope_parameters", where, "yarn", &params, err);
    if (!s && !params)
        s = um_fail(err, UM_EMODEL, "%s: the field \"rope_parameters\" is missing; the model needs it", where);
    if (!s)
        s = um_hf_need_double(rope_holder(config, params, NULL, "rope_theta"), "rope_theta", where, &a->rope_theta,
                              err);
    if (!s) s = um_json_get_double(params, "partial_rotary_factor", where, &part, err);
    if (!s) s = set_rope(a, part, where, err);
    if (!s && a->rope_theta <= 1)
        s = um_fail(err, UM_EPARSE, "%s: \"rope_theta\" is %g, expected above 1", where, a->rope_theta);
    if (!s) s = read_stretch(params, "factor", where, 1, 1e6, &y->factor, err);
    if (!s)
        s = um_hf_need_int(params, "original_max_position_embeddings", where, 1, UM_HF_POSITIONS_MAX, &y->original,
                           err);
    if (!s) s = read_stretch(params, "beta_fast", where, 1e-6, 1e6, &y->beta_fast, err);
    if (!s) s = read_stretch(params, "beta_slow", where, 1e-6, 1e6, &y->beta_slow, err);
    if (!s) s = read_stretch(params, "mscale", where, 0, 1e3, &y->mscale, err);
    if (!s) s = read_stretch(params, "mscale_all_dim", where, 0, 1e3, &y->mscale_all_dim, err);
    if (!s) s = read_stretch(params, "llama_4_scaling_beta", where, 0, 1e3, &a->query_beta, err);
    return s ? s : check_stretch(y, params, where, err);
}

um_status um_hf_clip(um_arch *a, const json_t *config, const char *where, um_err *err) {
    double clip = 0;
    um_status s = um_json_get_double(config, "clip_qkv", where, &clip, err);
    if (!s && um_hf_has(config, "clip_qkv") && !(clip > 0 && clip < 1e30))
        s = um_fail(err, UM_EPARSE, "%s: \"clip_qkv\" is %g, expected null or above 0", where, clip);
    a->clip_qkv = (float)clip;
    return s;
}

/* ---- Llama, Qwen2, Qwen3 ----------------------------------------------------------------------------------------- */

/* A missing or null head_dim means hidden_size / num_attention_heads. A stated head_dim is used even when heads times
 * head_dim differs from hidden_size. */
static um_status read_heads(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = um_hf_need_int(config, "num_attention_heads", where, 1, UM_HF_HEADS_MAX, &a->n_heads, err);
    if (!s) s = um_hf_need_int(config, "num_key_value_heads", where, 1, UM_HF_HEADS_MAX, &a->n_kv_heads, err);
    if (s) return s;
    a->head_dim = a->hidden / a->n_heads;
    if (!um_hf_has(config, "head_dim") && a->hidden % a->n_heads)
        return um_fail(err, UM_EMODEL,
                       "%s: \"head_dim\" is missing and \"hidden_size\" %d is not a multiple of "
                       "\"num_attention_heads\" %d",
                       where, a->hidden, a->n_heads);
    return um_json_get_int32(config, "head_dim", where, 1, UM_HF_HEAD_DIM_MAX, &a->head_dim, err);
}

static um_status read_sizes(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = um_hf_need_int(config, "hidden_size", where, 1, UM_HF_HIDDEN_MAX, &a->hidden, err);
    if (!s) s = um_hf_need_int(config, "num_hidden_layers", where, 1, UM_LAYERS_MAX, &a->n_layers, err);
    if (!s) s = um_hf_need_int(config, "vocab_size", where, 1, UM_HF_VOCAB_MAX, &a->vocab, err);
    if (!s) s = um_hf_need_int(config, "max_position_embeddings", where, 1, UM_HF_POSITIONS_MAX, &a->max_position, err);
    return s ? s : um_hf_need_eps(a, config, "rms_norm_eps", where, err);
}

/* Reads the fields of um_hf_body; `rope` reads those of the rotary embeddings. */
static um_status read_body(um_arch *a, const json_t *config, const char *where,
                           um_status (*rope)(um_arch *, const json_t *, const char *, um_err *), um_err *err) {
    um_status s = read_sizes(a, config, where, err);
    if (!s) s = read_heads(a, config, where, err);
    if (!s) s = rope(a, config, where, err);
    if (!s) s = um_hf_only_str(config, "hidden_act", where, "silu", err);
    if (!s) s = um_hf_only_bool(config, "use_sliding_window", where, false, err);
    if (!s) s = um_json_get_bool(config, "attention_bias", where, &a->qkv_bias, err);
    if (!s) s = um_json_get_bool(config, "mlp_bias", where, &a->mlp_bias, err);
    if (!s) s = um_json_get_bool(config, "tie_word_embeddings", where, &a->tied, err);
    a->o_bias = a->qkv_bias;
    a->tied_stated = um_hf_has(config, "tie_word_embeddings");
    return s;
}

static um_status read_width(um_arch *a, const json_t *config, const char *where, um_err *err) {
    return um_hf_need_int(config, "intermediate_size", where, 1, UM_HF_HIDDEN_MAX, &a->n_ff, err);
}

um_status um_hf_body(um_arch *a, const json_t *config, const char *where, um_err *err) {
    return read_body(a, config, where, um_hf_rope, err);
}

um_status um_hf_llama(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = um_hf_body(a, config, where, err);
    return s ? s : read_width(a, config, where, err);
}

um_status um_hf_llama_yarn(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = read_body(a, config, where, um_hf_yarn, err);
    return s ? s : read_width(a, config, where, err);
}

/* ---- Recognition and checks -------------------------------------------------------------------------------------- */

static void copy_word(char *out, size_t size, const char *word) { snprintf(out, size, "%s", word ? word : ""); }

/* Checks the numbers that every family must set. The families read them from different fields, so the check is done
 * here for all of them, and its messages name no field. */
static um_status check_numbers(const um_arch *a, const char *where, um_err *err) {
    if (a->n_heads % a->n_kv_heads)
        return um_fail(err, UM_EMODEL, "%s: %d query heads can't share %d key and value heads evenly", where,
                       a->n_heads, a->n_kv_heads);
    if (a->head_dim < 1 || a->head_dim > UM_HF_HEAD_DIM_MAX || a->n_heads > UM_HF_HEADS_MAX)
        return um_fail(err, UM_EUNSUPPORTED, "%s: %d heads of %d dimensions; unmask runs up to %d of up to %d", where,
                       a->n_heads, a->head_dim, UM_HF_HEADS_MAX, UM_HF_HEAD_DIM_MAX);
    return UM_OK;
}

/* Refuses weights that are quantised by a method that unmask can't read. Without this check they would be refused
 * tensor by tensor, with a message about types. */
static um_status check_quantization(const json_t *config, const char *where, um_err *err) {
    um_quantized q;
    return um_quantized_read(&q, config, where, err);
}

/* Makes the kinds of a family that names none: the layers with experts, and those without. */
static void set_kinds(um_arch *a) {
    if (a->n_kinds) return;
    const um_arch_kind kind = {.n_heads = a->n_heads,
                               .n_kv_heads = a->n_kv_heads,
                               .head_dim = a->head_dim,
                               .rope_dim = a->rope_dim,
                               .rope_pairs = a->rope_dim / 2,
                               .rope_theta = a->rope_theta,
                               .rope_factor = 1};
    a->n_kinds = 2;
    a->kind[0] = a->kind[1] = kind;
    a->kind[0].n_ff = a->n_ff;
    a->kind[1].expert_ff = a->expert_ff;
    a->kind[1].shared_ff = a->shared_ff;
    for (int32_t i = 0; i < a->n_layers; i++) a->of_layer[i] = um_arch_is_moe(a, i);
}

um_status um_arch_parse(um_arch *a, const json_t *config, const char *where, const char *family, um_err *err) {
    memset(a, 0, sizeof *a);
    a->embed_scale = a->logit_scale = 1;
    a->mask_id = a->pad_id = a->bos_id = a->delete_id = a->split_id = -1;
    a->temperature = NAN;
    a->canvas = (um_canvas_defaults){
        .steps = 48, .entropy_bound = 0.1f, .t_min = 0.4f, .t_max = 0.8f, .confidence = 0.005f, .stability = 1};
    if (!json_is_object(config)) return um_fail(err, UM_EPARSE, "%s: expected a JSON object", where);
    um_status s = um_family_detect(&a->family, &a->rule, config, where, family, err);
    if (!s) s = check_quantization(config, where, err);
    if (!s) s = a->family->configure(a, config, where, err);
    if (!s) s = check_numbers(a, where, err);
    if (s) return s;
    set_kinds(a);
    const char *strategies = a->family->strategies;
    snprintf(a->default_strategy, sizeof a->default_strategy, "%.*s", (int)strcspn(strategies, "|"), strategies);
    copy_word(a->model_type, sizeof a->model_type, json_string_value(json_object_get(config, "model_type")));
    copy_word(a->architecture, sizeof a->architecture,
              json_string_value(json_array_get(json_object_get(config, "architectures"), 0)));
    const char *dtype = json_string_value(json_object_get(config, "dtype"));
    if (!dtype) dtype = json_string_value(json_object_get(config, "torch_dtype")); /* older name of the field */
    copy_word(a->declared_dtype, sizeof a->declared_dtype, dtype);
    return um_arch_config_ids(a, config, where, err);
}

/* Recognises the family by the names in config.json. Where two families share a model_type, the tensors decide. */
static um_status parse_with_tensors(um_arch *a, const json_t *config, const char *where, const um_arch_source *from,
                                    um_err *err) {
    um_status s = um_arch_parse(a, config, where, from->family, err);
    if (s || !from->tensors || um_family_is_named(from->family)) return s;
    const um_family *stored = um_family_by_tensors(a->family, from->tensors);
    if (stored == a->family) return UM_OK;
    um_warn("%s: %s says %s, but the tensors are those of %s; the tensors decide", where, a->rule, a->family->name,
            stored->name);
    s = um_arch_parse(a, config, where, stored->name, err);
    a->rule = "norms of queries among the tensors";
    return s;
}

um_status um_arch_load(um_arch *arch, const um_arch_source *from, um_err *err) {
    char *path;
    json_t *config;
    um_arch a;
    um_status s = um_checkpoint_config(&config, &path, from->dir, err);
    if (!s) s = parse_with_tensors(&a, config, path, from, err);
    if (!s) s = um_arch_read_ids(&a, config, path, from, err);
    if (!s && from->tensors) um_arch_apply_tensors(&a, from->tensors, path);
    if (!s) *arch = a;
    json_decref(config);
    um_free(path);
    return s;
}
