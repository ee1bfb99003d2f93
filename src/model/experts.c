/* Reads the fields of config.json that describe a mixture of experts. The checkpoints come from several code bases, so
 * a number can have several names. A message uses the name in the file. */
#include <jansson.h>

#include "model/config.h"

const um_expert_names um_hf_expert_layouts[] = {
    {.gate = "model.layers.%d.mlp.experts.%d.gate_proj.weight",
     .up = "model.layers.%d.mlp.experts.%d.up_proj.weight",
     .down = "model.layers.%d.mlp.experts.%d.down_proj.weight"},
    /* stacked for training, with gate and up in two tensors or in one */
    {.gate = "model.layers.%d.mlp.experts.gate_proj",
     .up = "model.layers.%d.mlp.experts.up_proj",
     .down = "model.layers.%d.mlp.experts.down_proj",
     .stacked = true},
    {.gate = "model.layers.%d.mlp.experts.gate_up_proj",
     .down = "model.layers.%d.mlp.experts.down_proj",
     .stacked = true},
    /* written by dInfer's conversion */
    {.gate = "model.layers.%d.mlp.w1", .down = "model.layers.%d.mlp.w2", .stacked = true},
    {.gate = NULL},
};

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* The possible names of a field. */
typedef struct synonyms {
    const char *name[3];
} synonyms;

/* Returns the first of the names that the file contains, else the first name. */
static const char *name_in_file(const json_t *config, synonyms s) {
    for (size_t i = 0; i < UM_LEN(s.name); i++)
        if (um_hf_has(config, s.name[i])) return s.name[i];
    return s.name[0];
}

static um_status too_many(const char *where, const char *key, int32_t n, const char *of_key, int32_t of, um_err *err) {
    return um_fail(err, UM_EMODEL, "%s: \"%s\" is %d, more than \"%s\" %d", where, key, n, of_key, of);
}

static um_status read_numbers(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_expert_route *r = &a->route;
    const char *experts = name_in_file(config, (synonyms){{"num_experts", "n_routed_experts", "num_local_experts"}});
    const char *top_k = name_in_file(config, (synonyms){{"num_experts_per_tok", "moe_top_k", "top_k"}});
    const char *width =
        name_in_file(config, (synonyms){{"moe_intermediate_size", "expert_intermediate_size", "intermediate_size"}});
    um_status s = um_hf_need_int(config, experts, where, 1, UM_HF_EXPERTS_MAX, &r->n_experts, err);
    if (!s) s = um_hf_need_int(config, top_k, where, 1, UM_HF_EXPERTS_MAX, &r->top_k, err);
    if (!s) s = um_hf_need_int(config, width, where, 1, UM_HF_HIDDEN_MAX, &a->expert_ff, err);
    if (!s && r->top_k > r->n_experts) s = too_many(where, top_k, r->top_k, experts, r->n_experts, err);
    if (!s && (int64_t)r->n_experts * a->expert_ff > UM_HF_EXPERT_ROWS_MAX)
        s = um_fail(err, UM_EUNSUPPORTED, "%s: \"%s\" %d times \"%s\" %d is more than the supported %d", where, experts,
                    r->n_experts, width, a->expert_ff, UM_HF_EXPERT_ROWS_MAX);
    r->n_group = r->topk_group = 1;
    r->scale = 1;
    return s;
}

um_status um_hf_expert_groups(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_expert_route *r = &a->route;
    um_status s = um_hf_need_int(config, "n_group", where, 1, UM_HF_EXPERTS_MAX, &r->n_group, err);
    if (!s) s = um_hf_need_int(config, "topk_group", where, 1, UM_HF_EXPERTS_MAX, &r->topk_group, err);
    if (s) return s;
    if (r->n_experts % r->n_group)
        return um_fail(err, UM_EMODEL, "%s: \"num_experts\" %d can't be cut into \"n_group\" %d equal groups", where,
                       r->n_experts, r->n_group);
    if (r->topk_group > r->n_group) return too_many(where, "topk_group", r->topk_group, "n_group", r->n_group, err);
    const int32_t eligible = r->n_experts / r->n_group * r->topk_group;
    if (r->top_k > eligible)
        return um_fail(err, UM_EMODEL,
                       "%s: \"num_experts_per_tok\" is %d, but \"topk_group\" %d of \"n_group\" %d groups hold only %d "
                       "of the %d experts",
                       where, r->top_k, r->topk_group, r->n_group, eligible, r->n_experts);
    return UM_OK;
}

/* ---- Which layers ------------------------------------------------------------------------------------------------ */

static void set_moe(um_arch *a, int32_t layer, bool moe) {
    uint64_t bit = 1ull << (layer % 64);
    if (moe) a->moe_layers[layer / 64] |= bit;
    else a->moe_layers[layer / 64] &= ~bit;
}

/* Reads decoder_sparse_step (every n-th layer has experts, counted from 1) and first_k_dense_replace (the number of
 * dense layers at the start). */
static um_status read_regular(um_arch *a, const json_t *config, const char *where, um_err *err) {
    int32_t step = 1, first = 0;
    um_status s = um_json_get_int32(config, "decoder_sparse_step", where, 1, UM_LAYERS_MAX, &step, err);
    if (!s) s = um_json_get_int32(config, "first_k_dense_replace", where, 0, UM_LAYERS_MAX, &first, err);
    if (s) return s;
    if (first > a->n_layers)
        return too_many(where, "first_k_dense_replace", first, "num_hidden_layers", a->n_layers, err);
    for (int32_t i = 0; i < a->n_layers; i++) set_moe(a, i, i >= first && (i + 1) % step == 0);
    return UM_OK;
}

/* Reads mlp_only_layers, a list of dense layers. */
static um_status read_dense_list(um_arch *a, const json_t *config, const char *where, um_err *err) {
    json_t *list = json_object_get(config, "mlp_only_layers"), *v;
    size_t i;
    if (!list || json_is_null(list)) return UM_OK;
    if (!json_is_array(list)) return um_fail(err, UM_EPARSE, "%s: \"mlp_only_layers\" must be a list of layers", where);
    json_array_foreach(list, i, v) {
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= a->n_layers)
            return um_fail(err, UM_EPARSE, "%s: \"mlp_only_layers\": entry %zu is not a layer from 0 to %d", where, i,
                           a->n_layers - 1);
        set_moe(a, (int32_t)json_integer_value(v), false);
    }
    return UM_OK;
}

/* Reads moe_layer_freq, a list with 1 for each layer with experts and 0 for each dense one. */
static um_status read_layer_list(um_arch *a, const json_t *config, const char *where, um_err *err) {
    json_t *list = json_object_get(config, "moe_layer_freq"), *v;
    size_t i;
    if (!list || json_is_null(list)) return UM_OK;
    if (!json_is_array(list) || json_array_size(list) != (size_t)a->n_layers)
        return um_fail(err, UM_EPARSE,
                       "%s: \"moe_layer_freq\" has %zu entries, expected a 0 or 1 for each of \"num_hidden_layers\" %d",
                       where, json_array_size(list), a->n_layers);
    json_array_foreach(list, i, v) {
        if (!json_is_integer(v) || (json_integer_value(v) != 0 && json_integer_value(v) != 1))
            return um_fail(err, UM_EPARSE, "%s: \"moe_layer_freq\": entry %zu is neither 0 nor 1", where, i);
        if (!json_integer_value(v)) set_moe(a, (int32_t)i, false);
    }
    return UM_OK;
}

static bool all_moe(const um_arch *a) {
    for (int32_t i = 0; i < a->n_layers; i++)
        if (!um_arch_is_moe(a, i)) return false;
    return true;
}

um_status um_hf_experts(um_arch *a, const json_t *config, const char *where, const char *dense_ff, um_err *err) {
    um_status s = read_numbers(a, config, where, err);
    if (!s) s = read_regular(a, config, where, err);
    if (!s) s = read_dense_list(a, config, where, err);
    if (!s) s = read_layer_list(a, config, where, err);
    if (s || all_moe(a)) return s;
    return um_hf_need_int(config, dense_ff, where, 1, UM_HF_HIDDEN_MAX, &a->n_ff, err);
}

um_status um_hf_qwen3_moe(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = um_hf_body(a, config, where, err);
    if (!s) s = um_hf_experts(a, config, where, "intermediate_size", err);
    if (!s) s = um_json_get_bool(config, "norm_topk_prob", where, &a->route.normalize, err);
    a->route.score = UM_SCORE_SOFTMAX;
    a->qk_norm = true;
    return s;
}
