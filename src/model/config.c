/* config.json, generation_config.json and the tokenizer's side files become one um_arch. */
#include <jansson.h>
#include <math.h>

#include "model/config.h"

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
};

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

static bool has(const json_t *config, const char *key) {
    json_t *v = json_object_get(config, key);
    return v && !json_is_null(v);
}

static um_status need(const json_t *config, const char *key, const char *where, um_err *err) {
    if (has(config, key)) return UM_OK;
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

um_status um_hf_need_bool(const json_t *config, const char *key, const char *where, bool *out, um_err *err) {
    um_status s = need(config, key, where, err);
    return s ? s : um_json_get_bool(config, key, where, out, err);
}

um_status um_hf_only_str(const json_t *config, const char *key, const char *where, const char *value, um_err *err) {
    const char *found = value;
    um_status s = um_json_get_str(config, key, where, &found, err);
    if (s || !strcmp(found, value)) return s;
    return um_fail(err, UM_EUNSUPPORTED, "%s: \"%s\" is \"%s\"; unmask computes \"%s\" only", where, key, found, value);
}

um_status um_hf_only_bool(const json_t *config, const char *key, const char *where, bool value, um_err *err) {
    bool found = value;
    um_status s = um_json_get_bool(config, key, where, &found, err);
    if (s || found == value) return s;
    return um_fail(err, UM_EUNSUPPORTED, "%s: \"%s\" is %s, which unmask does not compute", where, key,
                   found ? "true" : "false");
}

/* ---- Rotary embedding -------------------------------------------------------------------------------------------- */

/* rope_scaling or rope_parameters: an object, or null, or the `false` that some checkpoints write for null. Both its
 * old key "type" and its new one name the kind. */
static um_status rope_object(const json_t *config, const char *key, const char *where, json_t **out, um_err *err) {
    json_t *v = json_object_get(config, key);
    *out = NULL;
    if (!v || json_is_null(v) || json_is_false(v)) return UM_OK;
    if (!json_is_object(v)) return um_fail(err, UM_EPARSE, "%s: \"%s\" must be an object or null", where, key);
    const char *kind = json_string_value(json_object_get(v, "rope_type"));
    if (!kind) kind = json_string_value(json_object_get(v, "type"));
    if (kind && strcmp(kind, "default"))
        return um_fail(err, UM_EUNSUPPORTED,
                       "%s: \"%s\" asks for rotary embeddings of type \"%s\"; unmask computes "
                       "unscaled ones only",
                       where, key, kind);
    *out = v;
    return UM_OK;
}

static const json_t *rope_holder(const json_t *config, const json_t *params, const json_t *scaling, const char *key) {
    if (has(config, key)) return config;
    if (params && has(params, key)) return params;
    if (scaling && has(scaling, key)) return scaling;
    return config;
}

um_status um_hf_rope(um_arch *a, const json_t *config, const char *where, um_err *err) {
    json_t *params, *scaling;
    double part = 1;
    um_status s = rope_object(config, "rope_parameters", where, &params, err);
    if (!s) s = rope_object(config, "rope_scaling", where, &scaling, err);
    if (!s)
        s = um_hf_need_double(rope_holder(config, params, scaling, "rope_theta"), "rope_theta", where, &a->rope_theta,
                              err);
    if (!s)
        s = um_json_get_double(rope_holder(config, params, scaling, "partial_rotary_factor"), "partial_rotary_factor",
                               where, &part, err);
    if (s) return s;
    if (!(a->rope_theta >= 1) || a->rope_theta > 1e15)
        return um_fail(err, UM_EPARSE, "%s: \"rope_theta\" is %g, expected 1 or more", where, a->rope_theta);
    if (!(part > 0 && part <= 1))
        return um_fail(err, UM_EPARSE, "%s: \"partial_rotary_factor\" is %g, expected above 0 and at most 1", where,
                       part);
    a->rope_dim = (int32_t)(a->head_dim * part);
    if (a->rope_dim < 2 || a->rope_dim % 2)
        return um_fail(err, UM_EMODEL, "%s: %d rotated dimensions of %d per head; their number must be even", where,
                       a->rope_dim, a->head_dim);
    return UM_OK;
}

/* ---- Llama, Qwen2, Qwen3 ----------------------------------------------------------------------------------------- */

/* head_dim absent or null means hidden / heads; stated, it wins even where the product differs from hidden. */
static um_status read_heads(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = um_hf_need_int(config, "num_attention_heads", where, 1, UM_HF_HEADS_MAX, &a->n_heads, err);
    if (!s) s = um_hf_need_int(config, "num_key_value_heads", where, 1, UM_HF_HEADS_MAX, &a->n_kv_heads, err);
    if (s) return s;
    a->head_dim = a->hidden / a->n_heads;
    if (!has(config, "head_dim") && a->hidden % a->n_heads)
        return um_fail(err, UM_EMODEL,
                       "%s: \"head_dim\" is missing and \"hidden_size\" %d is no multiple of "
                       "\"num_attention_heads\" %d",
                       where, a->hidden, a->n_heads);
    return um_json_get_int32(config, "head_dim", where, 1, UM_HF_HEAD_DIM_MAX, &a->head_dim, err);
}

static um_status read_sizes(um_arch *a, const json_t *config, const char *where, um_err *err) {
    double eps = 0;
    um_status s = um_hf_need_int(config, "hidden_size", where, 1, UM_HF_HIDDEN_MAX, &a->hidden, err);
    if (!s) s = um_hf_need_int(config, "num_hidden_layers", where, 1, UM_HF_LAYERS_MAX, &a->n_layers, err);
    if (!s) s = um_hf_need_int(config, "intermediate_size", where, 1, UM_HF_HIDDEN_MAX, &a->n_ff, err);
    if (!s) s = um_hf_need_int(config, "vocab_size", where, 1, UM_HF_VOCAB_MAX, &a->vocab, err);
    if (!s) s = um_hf_need_int(config, "max_position_embeddings", where, 1, UM_HF_POSITIONS_MAX, &a->max_position, err);
    if (!s) s = um_hf_need_double(config, "rms_norm_eps", where, &eps, err);
    a->norm_eps = (float)eps;
    return s;
}

um_status um_hf_llama(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = read_sizes(a, config, where, err);
    if (!s) s = read_heads(a, config, where, err);
    if (!s) s = um_hf_rope(a, config, where, err);
    if (!s) s = um_hf_only_str(config, "hidden_act", where, "silu", err);
    if (!s) s = um_hf_only_bool(config, "use_sliding_window", where, false, err);
    if (!s) s = um_json_get_bool(config, "attention_bias", where, &a->qkv_bias, err);
    if (!s) s = um_json_get_bool(config, "mlp_bias", where, &a->mlp_bias, err);
    if (!s) s = um_json_get_bool(config, "tie_word_embeddings", where, &a->tied, err);
    a->o_bias = a->qkv_bias;
    a->tied_stated = has(config, "tie_word_embeddings");
    return s;
}

/* ---- Recognition and checks -------------------------------------------------------------------------------------- */

static void copy_word(char *out, size_t size, const char *word) { snprintf(out, size, "%s", word ? word : ""); }

/* What a family's reader must leave behind. A family reads its own names for these numbers, so they are checked here,
 * once, in the words of the engine. */
static um_status check_numbers(const um_arch *a, const char *where, um_err *err) {
    if (a->n_heads % a->n_kv_heads)
        return um_fail(err, UM_EMODEL, "%s: %d query heads can't share %d key and value heads evenly", where,
                       a->n_heads, a->n_kv_heads);
    if (a->head_dim < 1 || a->head_dim > UM_HF_HEAD_DIM_MAX || a->n_heads > UM_HF_HEADS_MAX)
        return um_fail(err, UM_EUNSUPPORTED, "%s: %d heads of %d dimensions; unmask runs up to %d of up to %d", where,
                       a->n_heads, a->head_dim, UM_HF_HEADS_MAX, UM_HF_HEAD_DIM_MAX);
    if (!(a->norm_eps > 0) || a->norm_eps >= 1)
        return um_fail(err, UM_EPARSE, "%s: \"rms_norm_eps\" is %g, expected above 0 and below 1", where,
                       (double)a->norm_eps);
    return UM_OK;
}

/* Weights packed in another format would fail one by one with a message about types; say it once. */
static um_status check_quantization(const json_t *config, const char *where, um_err *err) {
    json_t *q = json_object_get(config, "quantization_config");
    if (!q || json_is_null(q)) return UM_OK;
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    return um_fail(err, UM_EUNSUPPORTED,
                   "%s: the weights are quantised (%s); unmask reads bf16, f16 and f32: fetch the "
                   "unquantised checkpoint",
                   where, method ? method : "method not stated");
}

um_status um_arch_parse(um_arch *a, const json_t *config, const char *where, const char *family, um_err *err) {
    memset(a, 0, sizeof *a);
    a->embed_scale = a->logit_scale = 1;
    a->mask_id = a->pad_id = -1;
    a->temperature = NAN;
    if (!json_is_object(config)) return um_fail(err, UM_EPARSE, "%s: expected a JSON object", where);
    um_status s = um_family_detect(&a->family, &a->rule, config, where, family, err);
    if (!s) s = check_quantization(config, where, err);
    if (!s) s = a->family->configure(a, config, where, err);
    if (!s) s = check_numbers(a, where, err);
    if (s) return s;
    const char *strategies = a->family->strategies;
    snprintf(a->default_strategy, sizeof a->default_strategy, "%.*s", (int)strcspn(strategies, "|"), strategies);
    copy_word(a->model_type, sizeof a->model_type, json_string_value(json_object_get(config, "model_type")));
    copy_word(a->architecture, sizeof a->architecture,
              json_string_value(json_array_get(json_object_get(config, "architectures"), 0)));
    s = um_json_get_int32(config, "mask_token_id", where, 0, a->vocab - 1, &a->mask_id, err);
    return s ? s : um_json_get_int32(config, "pad_token_id", where, -1, a->vocab - 1, &a->pad_id, err);
}

/* ---- Special ids ------------------------------------------------------------------------------------------------- */

static bool id_exists(const um_arch *a, const um_tok *tok, int64_t id) {
    return id >= 0 && id < a->vocab && (!tok || um_tok_exists(tok, (int32_t)id));
}

static um_status add_stop(um_arch *a, const um_tok *tok, int64_t id, um_err *err) {
    if (!id_exists(a, tok, id)) return UM_OK;
    for (int32_t i = 0; i < a->n_stop; i++)
        if (a->stop[i] == id) return UM_OK;
    if (a->n_stop == UM_STOP_MAX) return um_fail(err, UM_ELIMIT, "more than %d ids end an answer", UM_STOP_MAX);
    a->stop[a->n_stop++] = (int32_t)id;
    return UM_OK;
}

/* eos_token_id is a number or a list of them. */
static um_status add_eos(um_arch *a, const um_tok *tok, const json_t *config, const char *where, um_err *err) {
    json_t *v = json_object_get(config, "eos_token_id");
    if (!v || json_is_null(v)) return UM_OK;
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    for (size_t i = 0; i < n; i++) {
        json_t *id = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_integer(id))
            return um_fail(err, UM_EPARSE, "%s: \"eos_token_id\" must be a whole number or a list of them", where);
        um_status s = add_stop(a, tok, json_integer_value(id), err);
        if (s) return um_fail_in(err, "%s", where);
    }
    return UM_OK;
}

static um_status read_temperature(um_arch *a, const json_t *config, const char *where, um_err *err) {
    double t = NAN;
    um_status s = um_json_get_double(config, "temperature", where, &t, err);
    if (s) return s;
    if (t < 0 || isinf(t)) return um_fail(err, UM_EPARSE, "%s: \"temperature\" is %g, expected 0 or more", where, t);
    a->temperature = json_is_false(json_object_get(config, "do_sample")) ? 0 : (float)t;
    return UM_OK;
}

/* generation_config.json may add ids that end an answer, a temperature and a usual length; many folders have none. */
static um_status read_generation(um_arch *a, const char *dir, const um_tok *tok, um_err *err) {
    char *path = um_path_join(dir, "generation_config.json");
    json_t *g = NULL;
    um_status s = UM_OK;
    if (um_file_exists(path)) {
        s = um_json_load(&g, path, err);
        if (!s) s = add_eos(a, tok, g, path, err);
        if (!s) s = read_temperature(a, g, path, err);
        if (!s) s = um_json_get_int32(g, "max_new_tokens", path, 1, INT32_MAX, &a->max_new_tokens, err);
    }
    json_decref(g);
    um_free(path);
    return s;
}

/* Ids of the tokenizer and of the family: each counts only where the token exists. */
static um_status add_named_stops(um_arch *a, const um_tok *tok, um_err *err) {
    if (!tok) return UM_OK;
    um_status s = add_stop(a, tok, um_tok_special_id(tok, "eos_token"), err);
    if (!s && a->family->turn_end) s = add_stop(a, tok, um_tok_find(tok, um_str_of(a->family->turn_end)), err);
    return s;
}

static int32_t tokenizer_mask(const um_arch *a, const um_tok *tok) {
    int32_t id = um_tok_special_id(tok, "mask_token");
    if (id < 0 && a->family->mask_token) id = um_tok_find(tok, um_str_of(a->family->mask_token));
    return id < a->vocab ? id : -1;
}

/* The id that the family's releases use is a guess about this folder: it is taken only where it can't be the id of an
 * ordinary word. */
static bool family_mask_fits(const um_arch *a, const um_tok *tok) {
    int32_t id = a->family->mask_id;
    if (id < 0 || id >= a->vocab) return false;
    return !tok || !um_tok_exists(tok, id) || um_tok_is_special(tok, id);
}

/* Order: config.json, the tokenizer's mask token, the family's id. */
static um_status resolve_mask(um_arch *a, const json_t *config, const char *where, const um_tok *tok, um_err *err) {
    um_status s = UM_OK;
    json_t *text = json_object_get(config, "text_config");
    if (a->mask_id < 0 && json_is_object(text))
        s = um_json_get_int32(text, "mask_token_id", where, 0, a->vocab - 1, &a->mask_id, err);
    if (s) return s;
    int32_t known = tok ? tokenizer_mask(a, tok) : -1;
    if (a->mask_id >= 0 && known >= 0 && known != a->mask_id)
        um_warn("%s: mask_token_id is %d but the tokenizer's mask token is %d; %d is used", where, a->mask_id, known,
                a->mask_id);
    if (a->mask_id < 0) a->mask_id = known;
    if (a->mask_id < 0 && family_mask_fits(a, tok)) a->mask_id = a->family->mask_id;
    if (a->mask_id >= 0 || !tok) return UM_OK;
    return um_fail(err, UM_EMODEL,
                   "%s: no mask token: \"mask_token_id\" is missing and the tokenizer has no "
                   "\"mask_token\"; set \"mask_token_id\" in config.json or \"mask_token\" in tokenizer_config.json",
                   where);
}

static um_status read_ids(um_arch *a, const json_t *config, const char *where, const char *dir, const um_tok *tok,
                          um_err *err) {
    if (tok && um_tok_size(tok) > a->vocab)
        return um_fail(err, UM_EMODEL,
                       "%s: the tokenizer has ids up to %d, but the model only %d rows; the tokenizer "
                       "belongs to another checkpoint",
                       where, um_tok_size(tok) - 1, a->vocab);
    um_status s = add_eos(a, tok, config, where, err);
    if (!s) s = read_generation(a, dir, tok, err);
    if (!s) s = add_named_stops(a, tok, err);
    if (!s) s = resolve_mask(a, config, where, tok, err);
    if (s) return s;
    if (a->pad_id < 0 && tok) a->pad_id = um_tok_special_id(tok, "pad_token");
    if (!a->n_stop && tok) um_warn("%s: no token ends an answer; answers end at their length", where);
    return UM_OK;
}

um_status um_arch_load(um_arch *arch, const char *dir, const char *family, const um_tok *tok, um_err *err) {
    char *path = um_path_join(dir, "config.json");
    json_t *config = NULL;
    um_arch a;
    um_status s = um_json_load(&config, path, err);
    if (!s) s = um_arch_parse(&a, config, path, family, err);
    if (!s) s = read_ids(&a, config, path, dir, tok, err);
    if (!s) *arch = a;
    json_decref(config);
    um_free(path);
    return s;
}
