/* LLaDA-MoE: a mixture of experts with norms of queries and keys, and full attention. Its files contain
 * "norm_topk_prob", but the released model never divides the weights of the chosen experts by their sum, so the field
 * is not read. A correction bias, if there is one, also changes the weights of the experts. */
#include <jansson.h>
#include <math.h>

#include "model/config.h"

/* Refuses switches of the model's Python class that no release uses. */
static um_status refuse_variants(const json_t *config, const char *where, um_err *err) {
    double scale = 1;
    um_status s = um_hf_only_str(config, "moe_router_score_function", where, "softmax", err);
    if (!s) s = um_json_get_double(config, "routed_scaling_factor", where, &scale, err);
    if (!s && scale != 1)
        s = um_fail(err, UM_EUNSUPPORTED, "%s: \"routed_scaling_factor\" is %g; unmask supports only 1 for llada_moe",
                    where, scale);
    return s;
}

static um_status configure(um_arch *a, const json_t *config, const char *where, um_err *err) {
    bool bias = false;
    um_status s = refuse_variants(config, where, err);
    if (!s) s = um_hf_body(a, config, where, err);
    if (!s) s = um_hf_experts(a, config, where, "dense_intermediate_size", err);
    if (!s)
        s = um_json_get_int32(config, "shared_expert_intermediate_size", where, 0, UM_HF_HIDDEN_MAX, &a->shared_ff,
                              err);
    if (!s) s = um_json_get_bool(config, "moe_router_enable_expert_bias", where, &bias, err);
    if (!s) s = um_hf_need_bool(config, "qk_layernorm", where, &a->qk_norm, err);
    if (!s) s = um_hf_clip(a, config, where, err);
    a->route.score = UM_SCORE_SOFTMAX;
    a->route.bias = bias ? UM_BIAS_SCORE : UM_BIAS_NONE;
    a->see = UM_SEE_FULL;
    return s;
}

const um_family um_family_llada_moe = {
    .name = "llada_moe",
    .aliases = "lladamoe",
    .summary = "LLaDA-MoE 7B-A1B: mixture of experts, full attention",
    .source = "inclusionAI/LLaDA-MoE-7B-A1B-*",
    .architectures = "LLaDAMoEModelLM|LLaDAMoEModel|FusedLLaDAMoEModelLM|FusedOlmoeForCausalLM",
    .model_types = "lladamoe|llada",
    .names = &um_hf_llama_names,
    .experts = true,
    .router_bias = UM_BIAS_SCORE,
    .tokens = um_tokens_ling,
    .tokenizer_size = UM_TOKENS_LING_SIZE,
    .mask_id = 156895,
    .mask_token = "<|mask|>",
    .turn_end = "<|role_end|>",
    .chat = "llada2",
    .strategies = "full|prefix_cache|dual_cache|sparse",
    .sampler = "low_confidence",
    .gate = "previous",
    .accept_threshold = 0.9f,
    .compat_threshold = NAN,
    .configure = configure,
};
