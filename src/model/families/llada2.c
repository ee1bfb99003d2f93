/* LLaDA2.0, 2.1 and 2.2, mini and flash, CAP: Ling's mixture of experts with block-causal attention. A sigmoid scores
 * the experts, and a correction bias is added for the choice. 2.0 and 2.1 choose among the best groups of experts. 2.2
 * (expert_capacity) has no groups: it chooses from a pool of experts that the tokens of a block share. 2.2 also has two
 * ids that delete and insert tokens. All have the same architecture and model_type, so these two ids tell 2.2 apart. */
#include <jansson.h>
#include <math.h>

#include "model/config.h"

#define DEFAULT_BLOCK 32

static const um_tensor_names names = {
    .embed = "model.word_embeddings",
    .final_norm = "model.norm",
    .head = "lm_head",
    .attn_norm = "model.layers.%d.input_layernorm",
    .ffn_norm = "model.layers.%d.post_attention_layernorm",
    .qkv = "model.layers.%d.attention.query_key_value",
    .o = "model.layers.%d.attention.dense",
    .q_norm = "model.layers.%d.attention.query_layernorm",
    .k_norm = "model.layers.%d.attention.key_layernorm",
    .gate = "model.layers.%d.mlp.gate_proj",
    .up = "model.layers.%d.mlp.up_proj",
    .down = "model.layers.%d.mlp.down_proj",
    .router = "model.layers.%d.mlp.gate",
    .router_bias = {"model.layers.%d.mlp.gate.expert_bias", "model.layers.%d.mlp.gate.e_score_correction_bias"},
    .shared_gate = "model.layers.%d.mlp.shared_experts.gate_proj",
    .shared_up = "model.layers.%d.mlp.shared_experts.up_proj",
    .shared_down = "model.layers.%d.mlp.shared_experts.down_proj",
    .experts = um_hf_expert_layouts,
};

/* Refuses switches of the model's Python class that no release uses. */
static um_status refuse_variants(const json_t *config, const char *where, um_err *err) {
    static const char *const off[] = {"norm_head", "norm_softmax"}, *const on[] = {"use_rmsnorm", "use_qk_norm"};
    um_status s = um_hf_only_str(config, "score_function", where, "sigmoid", err);
    for (size_t i = 0; i < UM_LEN(off) && !s; i++) s = um_hf_only_bool(config, off[i], where, false, err);
    for (size_t i = 0; i < UM_LEN(on) && !s; i++) s = um_hf_only_bool(config, on[i], where, true, err);
    return s;
}

/* Checks that rotary_dim agrees with partial_rotary_factor. */
static um_status check_rotary(const um_arch *a, const json_t *config, const char *where, um_err *err) {
    int32_t stated = a->rope_dim;
    um_status s = um_json_get_int32(config, "rotary_dim", where, 1, UM_HF_HEAD_DIM_MAX, &stated, err);
    if (s || stated == a->rope_dim) return s;
    return um_fail(err, UM_EMODEL,
                   "%s: \"rotary_dim\" is %d, but \"partial_rotary_factor\" of \"head_dim\" %d makes %d", where, stated,
                   a->head_dim, a->rope_dim);
}

/* Reads the capacity of LLaDA2.2. Its routing blocks are the blocks that are denoised. */
static um_status read_capacity(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_expert_route *r = &a->route;
    um_status s = um_hf_need_int(config, "expert_capacity", where, 1, r->n_experts, &r->capacity, err);
    if (!s) s = um_hf_need_int(config, "block_size", where, 1, a->max_position, &a->route_block, err);
    if (!s && r->top_k > r->capacity)
        s = um_fail(err, UM_EMODEL, "%s: \"num_experts_per_tok\" is %d, more than \"expert_capacity\" %d", where,
                    r->top_k, r->capacity);
    return s;
}

static um_status read_route(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_expert_route *r = &a->route;
    int32_t n_shared = 0;
    double scale = 0;
    bool bias = false;
    um_status s = um_hf_experts(a, config, where, "intermediate_size", err);
    if (!s) s = um_json_get_int32(config, "num_shared_experts", where, 0, 64, &n_shared, err);
    if (!s) s = um_hf_need_double(config, "routed_scaling_factor", where, &scale, err);
    if (!s) s = um_json_get_bool(config, "moe_router_enable_expert_bias", where, &bias, err);
    if (s) return s;
    a->shared_ff = n_shared * a->expert_ff;
    r->score = UM_SCORE_SIGMOID;
    r->bias = bias ? UM_BIAS_CHOICE : UM_BIAS_NONE;
    r->normalize = r->top_k > 1; /* whatever "norm_topk_prob" says */
    r->scale = (float)scale;
    return um_hf_has(config, "expert_capacity") ? read_capacity(a, config, where, err)
                                                : um_hf_expert_groups(a, config, where, err);
}

/* Reads the two ids of LLaDA2.2 that a position predicts to have its token deleted, or to have a mask inserted before
 * it. No answer contains them. */
static um_status read_edits(um_arch *a, const json_t *config, const char *where, um_err *err) {
    if (!um_hf_has(config, "delete_token_id") && !um_hf_has(config, "split_token_id")) return UM_OK;
    um_status s = um_hf_need_int(config, "delete_token_id", where, 0, a->vocab - 1, &a->delete_id, err);
    if (!s) s = um_hf_need_int(config, "split_token_id", where, 0, a->vocab - 1, &a->split_id, err);
    if (s) return s;
    if (a->delete_id == a->split_id)
        return um_fail(err, UM_EMODEL, "%s: \"delete_token_id\" and \"split_token_id\" are both %d; they must differ",
                       where, a->delete_id);
    a->ban[a->n_ban++] = a->delete_id;
    a->ban[a->n_ban++] = a->split_id;
    a->family = &um_family_llada2_2;
    return UM_OK;
}

static um_status configure(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = refuse_variants(config, where, err);
    if (!s) s = um_hf_body(a, config, where, err);
    if (!s) s = check_rotary(a, config, where, err);
    if (!s) s = um_json_get_bool(config, "use_qkv_bias", where, &a->qkv_bias, err);
    if (!s) s = um_json_get_bool(config, "use_bias", where, &a->o_bias, err);
    if (!s) s = read_route(a, config, where, err);
    if (!s) s = read_edits(a, config, where, err);
    a->qk_norm = true;
    a->see = UM_SEE_BLOCK_CAUSAL;
    a->block = DEFAULT_BLOCK;
    return s ? s : um_json_get_int32(config, "block_size", where, 1, a->max_position, &a->block, err);
}

static um_status configure_2_2(um_arch *a, const json_t *config, const char *where, um_err *err) {
    static const char *const need[] = {"expert_capacity", "delete_token_id", "split_token_id"};
    for (size_t i = 0; i < UM_LEN(need); i++)
        if (!um_hf_has(config, need[i]))
            return um_fail(err, UM_EMODEL,
                           "%s: the field \"%s\" is missing; LLaDA2.2 needs it, and LLaDA2.0 and 2.1 are the family "
                           "llada2",
                           where, need[i]);
    return configure(a, config, where, err);
}

const um_family um_family_llada2 = {
    .name = "llada2",
    .aliases = "llada2_moe|llada2_mini|llada2dot1_mini",
    .summary = "LLaDA2.0 and 2.1, mini and flash: mixture of experts, block-causal",
    .source = "inclusionAI/LLaDA2.0-*, inclusionAI/LLaDA2.1-*",
    .architectures = "LLaDA2MoeModelLM",
    .model_types = "llada2_moe|llada2_moe_veomni|llada21_moe",
    .names = &names,
    .experts = true,
    .router_bias = UM_BIAS_CHOICE,
    .tokens = um_tokens_ling,
    .tokenizer_size = UM_TOKENS_LING_SIZE,
    .mask_id = 156895,
    .mask_token = "<|mask|>",
    .turn_end = "<|role_end|>",
    .chat = "llada2",
    .strategies = "multi_bd|dmax",
    .sampler = "confidence",
    .gate = "previous",
    .accept_threshold = 0.95f,
    .compat_threshold = NAN,
    .configure = configure,
};

const um_family um_family_llada2_2 = {
    .name = "llada2_2",
    .aliases = "llada2.2|llada2dot2",
    .summary = "LLaDA2.2: LLaDA2 with a pool of experts per block, deletes and inserts tokens",
    .source = "inclusionAI/LLaDA2.2-flash",
    .architectures = "LLaDA2MoeModelLM",
    .variant_of = &um_family_llada2,
    .names = &names,
    .experts = true,
    .router_bias = UM_BIAS_CHOICE,
    .tokens = um_tokens_ling,
    .tokenizer_size = UM_TOKENS_LING_SIZE,
    .mask_id = 156895,
    .mask_token = "<|mask|>",
    .turn_end = "<|role_end|>",
    .chat = "llada2",
    .strategies = "levenshtein|joint_indel|multi_bd|dmax",
    .sampler = "confidence",
    .gate = "previous",
    .accept_threshold = 0.5f,
    .compat_threshold = NAN,
    .configure = configure_2_2,
};
