/* SDAR as a mixture of experts: Qwen3-MoE's layout with block-causal attention, decoded like the dense SDAR. */
#include <jansson.h>
#include <math.h>

#include "model/config.h"

#define DEFAULT_BLOCK 4

static um_status configure(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = um_hf_only_bool(config, "use_regular_causal", where, false, err);
    /* The field is required, because a guess would change every output. */
    if (!s) s = um_hf_need_bool(config, "norm_topk_prob", where, &a->route.normalize, err);
    if (!s) s = um_hf_qwen3_moe(a, config, where, err);
    a->see = UM_SEE_BLOCK_CAUSAL;
    a->block = DEFAULT_BLOCK;
    return s ? s : um_json_get_int32(config, "block_size", where, 1, a->max_position, &a->block, err);
}

const um_family um_family_sdar_moe = {
    .name = "sdar_moe",
    .aliases = "sdarmoe",
    .summary = "SDAR 30B-A3B: Qwen3-MoE layout, block-causal",
    .source = "JetLM/SDAR-30B-A3B-*",
    .architectures = "SDARMoeForCausalLM",
    .model_types = "sdar_moe",
    .names = &um_hf_llama_names,
    .experts = true,
    .tokens = um_tokens_qwen3,
    .tokenizer_size = UM_TOKENS_QWEN_SIZE,
    .mask_id = 151669,
    .mask_token = "<|MASK|>",
    .turn_end = "<|im_end|>",
    .chat = "qwen3",
    .strategies = "multi_bd",
    .sampler = "confidence",
    .gate = "previous",
    .accept_threshold = 0.95f,
    .compat_threshold = 0.95f,
    .configure = configure,
};
