/* Makes a config.json from the metadata of a GGUF file and from its tensors.
 *
 * The keys of an architecture begin with its name: "llada.block_count". The converters leave out numbers that the
 * shapes of tensors tell, so the size of the vocabulary, the widths of the experts, biases, norms of queries and keys
 * and a separate head are taken from the tensors. Keys that change the forward pass are compared with what the family
 * computes. */
#include <jansson.h>
#include <math.h>

#include "model/config.h"
#include "model/gguf_model.h"

/* The architectures that unmask runs, and the family of each. */
static const struct {
    const char *name; /* general.architecture */
    const um_family *family;
} known[] = {
    {"llada", &um_family_llada}, {"llada-moe", &um_family_llada_moe}, {"dream", &um_family_dream},
    {"rnd1", &um_family_rnd1},   {"llada2", &um_family_llada2},
};

enum { NAME_SIZE = 32, KEY_SIZE = 96 };

typedef struct reader {
    const um_gguf *g;
    const char *where;    /* path of the file, for messages */
    char name[NAME_SIZE]; /* general.architecture */
    const um_family *family;
    json_t *config;
    um_err *err;
    int32_t n_layers, n_heads, hidden;
    int32_t dense, sparse; /* the first layer without experts and the first one with experts, or -1 */
} reader;

/* ---- Recognition ------------------------------------------------------------------------------------------------- */

static um_status refuse_architecture(const reader *r) {
    um_buf list = {0};
    for (size_t i = 0; i < UM_LEN(known); i++) um_buf_printf(&list, "%s%s", i ? ", " : "", known[i].name);
    um_status s = um_fail(
        r->err, UM_EUNSUPPORTED,
        "%s: the model is of the architecture \"%s\", %s; unmask runs diffusion language models, from "
        "GGUF files those of %s",
        r->where, r->name, um_is_autoregressive(r->name) ? "an autoregressive model" : "which is not known", list.data);
    um_buf_free(&list);
    return s;
}

static um_status recognise(reader *r) {
    um_str name = {0};
    if (!um_gguf_string(r->g, "general.architecture", &name))
        return um_fail(r->err, UM_EMODEL, "%s: general.architecture is missing: the file holds no model", r->where);
    snprintf(r->name, sizeof r->name, "%.*s", (int)UM_MIN(name.n, sizeof r->name), name.p);
    for (size_t i = 0; i < UM_LEN(known); i++)
        if (um_str_eq(name, um_str_of(known[i].name))) r->family = known[i].family;
    return r->family ? UM_OK : refuse_architecture(r);
}

/* ---- Keys -------------------------------------------------------------------------------------------------------- */

/* Writes a key of the architecture: "llada.block_count". */
static const char *key_of(const reader *r, const char *name, char key[KEY_SIZE]) {
    snprintf(key, KEY_SIZE, "%s.%s", r->name, name);
    return key;
}

static void set(const reader *r, const char *field, json_t *value) { json_object_set_new(r->config, field, value); }
static void set_text(const reader *r, const char *field, const char *value) { set(r, field, json_string(value)); }
static void set_bool(const reader *r, const char *field, bool value) { set(r, field, json_boolean(value)); }

static um_status missing(const reader *r, const char *key) {
    return um_fail(r->err, UM_EMODEL, "%s: %s is missing or not a number; convert the checkpoint again", r->where, key);
}

/* Reads an integer, or a list with an integer for each layer, which must be equal. Keeps *out when there is none. */
static um_status read_int(const reader *r, const char *name, int64_t *out) {
    char key[KEY_SIZE];
    um_gguf_type type;
    size_t n;
    if (um_gguf_int(r->g, key_of(r, name, key), out)) return UM_OK;
    if (!um_gguf_array(r->g, key, &type, &n) || !n || type == UM_GGUF_F32 || type == UM_GGUF_F64 ||
        type == UM_GGUF_STRING)
        return UM_OK;
    *out = um_gguf_array_int(r->g, key, 0);
    for (size_t i = 1; i < n; i++)
        if (um_gguf_array_int(r->g, key, i) != *out)
            return um_fail(r->err, UM_EUNSUPPORTED, "%s: %s differs between the layers, which %s does not support",
                           r->where, key, r->family->name);
    return UM_OK;
}

/* Reads a number of at least 1. */
static um_status need_int(const reader *r, const char *name, int32_t max, int32_t *out) {
    char key[KEY_SIZE];
    int64_t v = INT64_MIN;
    um_status s = read_int(r, name, &v);
    if (s) return s;
    if (v == INT64_MIN) return missing(r, key_of(r, name, key));
    if (v < 1 || v > max)
        return um_fail(r->err, UM_EPARSE, "%s: %s is %lld, expected 1 to %d", r->where, key_of(r, name, key),
                       (long long)v, max);
    *out = (int32_t)v;
    return UM_OK;
}

/* Copies a number to a field of config.json. */
static um_status copy_int(const reader *r, const char *name, const char *field, int32_t max) {
    int32_t v;
    um_status s = need_int(r, name, max, &v);
    if (!s) set(r, field, json_integer(v));
    return s;
}

static um_status copy_float(const reader *r, const char *name, const char *field) {
    char key[KEY_SIZE];
    double v;
    if (!um_gguf_float(r->g, key_of(r, name, key), &v) || !isfinite(v)) return missing(r, key);
    set(r, field, json_real(v));
    return UM_OK;
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

static const um_gguf_tensor *layer_tensor(const reader *r, int32_t layer, const char *role) {
    char name[KEY_SIZE];
    snprintf(name, sizeof name, "blk.%d.%s", layer, role);
    return um_gguf_find(r->g, name);
}

/* Returns dimension `dim` of a tensor of a layer, or 0. layer -1 has no tensors. */
static int64_t layer_dim(const reader *r, int32_t layer, const char *role, int32_t dim) {
    const um_gguf_tensor *t = layer < 0 ? NULL : layer_tensor(r, layer, role);
    return t && dim < t->n_dims ? t->dim[dim] : 0;
}

static void find_experts(reader *r) {
    r->dense = r->sparse = -1;
    for (int32_t i = r->n_layers - 1; i >= 0; i--)
        *(layer_tensor(r, i, "ffn_gate_inp.weight") ? &r->sparse : &r->dense) = i;
}

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

/* LLaDA's config.json has OLMo's fields, that of the other families has Llama's. */
static const char *field(const reader *r, const char *olmo, const char *llama) {
    return r->family == &um_family_llada ? olmo : llama;
}

/* The number of rows of the embedding is the size of the vocabulary, and its type stands for that of the weights. */
static um_status set_embedding(const reader *r) {
    static const char *const types[] = {[0] = "float32", [1] = "float16", [30] = "bfloat16"}; /* by ggml type */
    const um_gguf_tensor *t = um_gguf_find(r->g, "token_embd.weight");
    if (!t || t->n_dims != 2 || t->dim[0] < 1 || t->dim[0] > UM_HF_VOCAB_MAX)
        return um_fail(r->err, UM_EMODEL, "%s: the tensor token_embd.weight is missing or no matrix", r->where);
    set(r, "vocab_size", json_integer(t->dim[0]));
    if (t->type < UM_LEN(types) && types[t->type]) set_text(r, "torch_dtype", types[t->type]);
    set_bool(r, field(r, "weight_tying", "tie_word_embeddings"), !um_gguf_find(r->g, "output.weight"));
    return UM_OK;
}

/* Sets the number of heads and their size. llama.cpp's default of the size is embedding_length / head_count. */
int64_t um_gguf_head_dim(const um_gguf *g) {
    um_str name = {0};
    char key[KEY_SIZE];
    int64_t hidden = 0, heads = 0, dim = 0;
    um_gguf_string(g, "general.architecture", &name);
    const int n = (int)UM_MIN(name.n, (size_t)NAME_SIZE);
    snprintf(key, sizeof key, "%.*s.attention.key_length", n, name.p);
    if (um_gguf_int(g, key, &dim)) return dim;
    snprintf(key, sizeof key, "%.*s.embedding_length", n, name.p);
    um_gguf_int(g, key, &hidden);
    snprintf(key, sizeof key, "%.*s.attention.head_count", n, name.p);
    um_gguf_int(g, key, &heads);
    return heads > 0 ? hidden / heads : 0;
}

static um_status set_heads(const reader *r, int64_t *head_dim) {
    char key[KEY_SIZE];
    int64_t kv_heads = r->n_heads, value = INT64_MIN;
    *head_dim = r->hidden / r->n_heads;
    um_status s = read_int(r, "attention.head_count_kv", &kv_heads);
    if (!s) s = read_int(r, "attention.key_length", head_dim);
    if (!s) s = read_int(r, "attention.value_length", &value);
    if (s) return s;
    if (value != INT64_MIN && value != *head_dim)
        return um_fail(r->err, UM_EUNSUPPORTED, "%s: %s is %lld, but keys have %lld dimensions", r->where,
                       key_of(r, "attention.value_length", key), (long long)value, (long long)*head_dim);
    if (r->family == &um_family_llada && *head_dim != r->hidden / r->n_heads)
        return um_fail(r->err, UM_EUNSUPPORTED, "%s: %s is %lld; unmask supports embedding_length / head_count, %d",
                       r->where, key_of(r, "attention.key_length", key), (long long)*head_dim, r->hidden / r->n_heads);
    set(r, field(r, "n_heads", "num_attention_heads"), json_integer(r->n_heads));
    set(r, field(r, "n_kv_heads", "num_key_value_heads"), json_integer(kv_heads));
    if (r->family != &um_family_llada) set(r, "head_dim", json_integer(*head_dim));
    return UM_OK;
}

/* The share is half a dimension larger than the number in the file, because um_hf_rope rounds the product with the size
 * of a head down. */
static um_status set_rope(const reader *r, int64_t head_dim) {
    char key[KEY_SIZE];
    int64_t rotated = head_dim;
    um_str scaling = UM_STR("none");
    um_status s = copy_float(r, "rope.freq_base", "rope_theta");
    if (!s) s = read_int(r, "rope.dimension_count", &rotated);
    if (s) return s;
    if (rotated < 1 || rotated > head_dim)
        return um_fail(r->err, UM_EPARSE, "%s: %s is %lld, expected 1 to %lld", r->where,
                       key_of(r, "rope.dimension_count", key), (long long)rotated, (long long)head_dim);
    if (rotated != head_dim) set(r, "partial_rotary_factor", json_real(((double)rotated + 0.5) / (double)head_dim));
    um_gguf_string(r->g, key_of(r, "rope.scaling.type", key), &scaling);
    if (um_str_eq(scaling, UM_STR("none"))) return UM_OK;
    return um_fail(r->err, UM_EUNSUPPORTED, "%s: %s is \"%.*s\"; unmask supports unscaled rotary embeddings only",
                   r->where, key, (int)UM_MIN(scaling.n, (size_t)NAME_SIZE), scaling.p);
}

static void set_biases(const reader *r) {
    const bool qkv = layer_tensor(r, 0, "attn_q.bias") || layer_tensor(r, 0, "attn_qkv.bias");
    const bool o = layer_tensor(r, 0, "attn_output.bias"), mlp = layer_tensor(r, 0, "ffn_gate.bias");
    set_bool(r, "include_qkv_bias", qkv); /* llada */
    set_bool(r, "include_bias", mlp);
    set_bool(r, "attention_bias", qkv); /* the others */
    set_bool(r, "mlp_bias", mlp);
    set_bool(r, "use_qkv_bias", qkv); /* llada2 */
    set_bool(r, "use_bias", o);
    set_bool(r, "qk_layernorm", layer_tensor(r, 0, "attn_q_norm.weight")); /* llada_moe */
}

/* Sets the fields that say in words what the forward pass of the family computes. */
static void set_words(const reader *r) {
    set_bool(r, "rope", true);
    set_text(r, "block_type", "llama");
    set_text(r, "layer_norm_type", "rms");
    set_text(r, "activation_type", "silu");
    set_text(r, "hidden_act", "silu");
}

static um_status set_sizes(reader *r) {
    int64_t head_dim;
    um_status s = need_int(r, "block_count", UM_LAYERS_MAX, &r->n_layers);
    if (!s) s = need_int(r, "embedding_length", UM_HF_HIDDEN_MAX, &r->hidden);
    if (!s) s = need_int(r, "attention.head_count", UM_HF_HEADS_MAX, &r->n_heads);
    if (!s) s = set_embedding(r);
    if (!s) s = set_heads(r, &head_dim);
    if (!s) s = set_rope(r, head_dim);
    if (!s)
        s = copy_int(r, "context_length", field(r, "max_sequence_length", "max_position_embeddings"),
                     UM_HF_POSITIONS_MAX);
    if (!s) s = copy_float(r, "attention.layer_norm_rms_epsilon", "rms_norm_eps");
    if (s) return s;
    set(r, field(r, "n_layers", "num_hidden_layers"), json_integer(r->n_layers));
    set(r, field(r, "d_model", "hidden_size"), json_integer(r->hidden));
    find_experts(r);
    set_biases(r);
    set_words(r);
    return UM_OK;
}

/* ---- Feed-forward layers ----------------------------------------------------------------------------------------- */

/* The files of models with experts may lack the width of dense layers, or state it without having such layers. */
static um_status set_dense(const reader *r) {
    int64_t width = layer_dim(r, r->dense, "ffn_gate.weight", 0);
    if (r->family->experts && r->dense < 0) return UM_OK;
    if (!width && !r->family->experts)
        return copy_int(r, "feed_forward_length", field(r, "mlp_hidden_size", "intermediate_size"), UM_HF_HIDDEN_MAX);
    set(r, field(r, "mlp_hidden_size", "intermediate_size"), json_integer(width));
    set(r, "dense_intermediate_size", json_integer(width)); /* llada_moe */
    return UM_OK;
}

static um_status set_groups(const reader *r) {
    um_status s = copy_int(r, "expert_group_count", "n_group", UM_HF_EXPERTS_MAX);
    return s ? s : copy_int(r, "expert_group_used_count", "topk_group", UM_HF_EXPERTS_MAX);
}

/* Sets the width of the shared expert: llada_moe has a field for the width, llada2 one for the number of experts. */
static um_status set_shared(const reader *r, int64_t expert_width) {
    int64_t width = layer_dim(r, r->sparse, "ffn_gate_shexp.weight", 0);
    set(r, "shared_expert_intermediate_size", json_integer(width));
    set(r, "num_shared_experts", json_integer(width / expert_width));
    if (width % expert_width == 0) return UM_OK;
    return um_fail(r->err, UM_EUNSUPPORTED,
                   "%s: the shared expert has %lld rows, no multiple of the other experts' %lld", r->where,
                   (long long)width, (long long)expert_width);
}

/* The tensors tell which layers have experts. */
static void set_dense_layers(const reader *r) {
    json_t *list = json_array();
    for (int32_t i = 0; i < r->n_layers; i++)
        if (!layer_tensor(r, i, "ffn_gate_inp.weight")) json_array_append_new(list, json_integer(i));
    set(r, "mlp_only_layers", list);
}

static um_status set_experts(const reader *r) {
    char key[KEY_SIZE];
    double scale = 0;
    bool normalize;
    int64_t width = layer_dim(r, r->sparse, "ffn_down_exps.weight", 2);
    um_status s = copy_int(r, "expert_count", "num_experts", UM_HF_EXPERTS_MAX);
    if (!s) s = copy_int(r, "expert_used_count", "num_experts_per_tok", UM_HF_EXPERTS_MAX);
    if (!s && !width)
        s = um_fail(r->err, UM_EMODEL, "%s: no layer has a tensor ffn_down_exps.weight of three dimensions", r->where);
    if (!s) s = set_shared(r, width);
    if (!s && r->family == &um_family_llada2) s = set_groups(r);
    if (s) return s;
    set(r, "moe_intermediate_size", json_integer(width));
    set_dense_layers(r);
    set_bool(r, "moe_router_enable_expert_bias",
             r->sparse >= 0 &&
                 (layer_tensor(r, r->sparse, "exp_probs_b.bias") || layer_tensor(r, r->sparse, "exp_probs_b.weight") ||
                  layer_tensor(r, r->sparse, "exp_probs_b")));
    if (um_gguf_bool(r->g, key_of(r, "expert_weights_norm", key), &normalize)) set_bool(r, "norm_topk_prob", normalize);
    /* llama.cpp takes a scale of 0 as none. */
    if (!um_gguf_float(r->g, key_of(r, "expert_weights_scale", key), &scale) && r->family == &um_family_llada2)
        return missing(r, key);
    set(r, "routed_scaling_factor", json_real(scale == 0 ? 1 : scale));
    return UM_OK;
}

/* ---- Special ids ------------------------------------------------------------------------------------------------- */

/* Reads an id. -1, also as an unsigned number, means that there is none. */
static um_status read_id(const reader *r, const char *key, int64_t *id) {
    const int64_t vocab = json_integer_value(json_object_get(r->config, "vocab_size"));
    *id = -1;
    if (!um_gguf_int(r->g, key, id) || *id == -1 || *id == UINT32_MAX) {
        *id = -1;
        return UM_OK;
    }
    if (*id >= 0 && *id < vocab) return UM_OK;
    return um_fail(r->err, UM_EPARSE, "%s: %s is %lld, but the model has ids from 0 to %lld", r->where, key,
                   (long long)*id, (long long)vocab - 1);
}

/* Sets the mask, pad and BOS ids, and the ids that end an answer: those of the ends of a text and of a turn. */
static um_status set_ids(const reader *r) {
    static const char *const ids[][2] = {{"tokenizer.ggml.mask_token_id", "mask_token_id"},
                                         {"tokenizer.ggml.padding_token_id", "pad_token_id"},
                                         {"tokenizer.ggml.bos_token_id", "bos_token_id"}};
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"};
    json_t *stop = json_array();
    um_status s = UM_OK;
    int64_t id;
    for (size_t i = 0; i < UM_LEN(ids) && !s; i++)
        if (!(s = read_id(r, ids[i][0], &id)) && id >= 0) set(r, ids[i][1], json_integer(id));
    for (size_t i = 0; i < UM_LEN(ends) && !s; i++)
        if (!(s = read_id(r, ends[i], &id)) && id >= 0) json_array_append_new(stop, json_integer(id));
    set(r, "eos_token_id", stop);
    return s;
}

/* ---- Contradictions ---------------------------------------------------------------------------------------------- */

/* Reads a bool, which some tools store as text. */
static bool read_bool(const um_gguf *g, const char *key, bool *out) {
    um_str text = {0};
    if (um_gguf_bool(g, key, out)) return true;
    if (!um_gguf_string(g, key, &text)) return false;
    *out = um_str_eq(text, UM_STR("true"));
    return *out || um_str_eq(text, UM_STR("false"));
}

/* llama.cpp takes a missing diffusion.shift_logits as true for every architecture. The family's value is used instead.
 */
static um_status check_attention(const reader *r, const um_arch *a) {
    char key[KEY_SIZE];
    bool causal = false, shift = a->shift;
    read_bool(r->g, key_of(r, "attention.causal", key), &causal);
    if (causal)
        return um_fail(r->err, UM_EUNSUPPORTED, "%s: %s is true, but %s sees later positions; this is another model",
                       r->where, key, r->family->name);
    read_bool(r->g, "diffusion.shift_logits", &shift);
    if (shift != a->shift)
        return um_fail(r->err, UM_EUNSUPPORTED,
                       "%s: diffusion.shift_logits is %s, but a row of %s predicts %s position; this is another model",
                       r->where, shift ? "true" : "false", r->family->name, a->shift ? "the next" : "its own");
    return UM_OK;
}

static um_status check_route(const reader *r, const um_arch *a) {
    char key[KEY_SIZE];
    const int64_t score = a->route.score == UM_SCORE_SIGMOID ? 2 : 1; /* numbers of llama.cpp; 0 is its default */
    int64_t gating = 0;
    double scale = 0;
    if (!a->route.n_experts) return UM_OK;
    if (um_gguf_int(r->g, key_of(r, "expert_gating_func", key), &gating) && gating && gating != score)
        return um_fail(r->err, UM_EUNSUPPORTED, "%s: %s is %lld; unmask supports %lld, %s, for %s", r->where, key,
                       (long long)gating, (long long)score, score == 1 ? "softmax" : "sigmoid", r->family->name);
    if (um_gguf_float(r->g, key_of(r, "expert_weights_scale", key), &scale) && scale != 0 &&
        (float)scale != a->route.scale)
        return um_fail(r->err, UM_EUNSUPPORTED, "%s: %s is %g; unmask supports %g only for %s", r->where, key, scale,
                       (double)a->route.scale, r->family->name);
    return UM_OK;
}

/* rope_freqs holds divisors of the rotary frequencies. Unscaled ones are all 1. */
static um_status check_frequencies(const reader *r) {
    const um_gguf_tensor *t = um_gguf_find(r->g, "rope_freqs.weight");
    if (!t) return UM_OK;
    bool plain = t->type == 0; /* F32 */
    for (size_t i = 0; plain && i + sizeof(float) <= t->bytes; i += sizeof(float)) {
        float v;
        memcpy(&v, t->data + i, sizeof v);
        plain = v == 1;
    }
    if (plain) return UM_OK;
    return um_fail(r->err, UM_EUNSUPPORTED,
                   "%s: the tensor rope_freqs.weight scales the rotary embeddings; unmask "
                   "supports unscaled ones only",
                   r->where);
}

/* Checks the result as the rest of the program reads it. */
static um_status check(const reader *r) {
    um_arch a;
    um_status s = um_arch_parse(&a, r->config, r->where, NULL, r->err);
    if (!s) s = check_attention(r, &a);
    if (!s) s = check_route(r, &a);
    return s ? s : check_frequencies(r);
}

/* ---- Functions of gguf_model.h ----------------------------------------------------------------------------------- */

/* Sets the first word of a list "a|b". */
static json_t *first_word(const char *list) { return json_stringn(list, strcspn(list, "|")); }

um_status um_gguf_config(const um_gguf *g, json_t **out, um_err *err) {
    reader r = {.g = g, .where = um_gguf_path(g), .config = json_object(), .err = err};
    *out = NULL;
    um_status s = recognise(&r);
    if (!s) {
        set(&r, "architectures", json_pack("[o]", first_word(r.family->architectures)));
        set(&r, "model_type", first_word(r.family->model_types));
        s = set_sizes(&r);
    }
    if (!s) s = set_dense(&r);
    if (!s && r.family->experts) s = set_experts(&r);
    if (!s) s = set_ids(&r);
    if (!s) s = check(&r);
    if (s) json_decref(r.config);
    else *out = r.config;
    return s;
}
