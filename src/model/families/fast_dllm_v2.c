/* Fast-dLLM v2: Qwen2's layout (biases on queries, keys and values) with block-causal attention. The hidden row of a
 * position predicts the next position. */
#include <jansson.h>
#include <math.h>

#include "model/config.h"

#define DEFAULT_BLOCK 32

static um_status configure(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = um_hf_llama(a, config, where, err);
    a->qkv_bias = true; /* part of the layout; config.json has no field for it */
    a->o_bias = false;
    a->see = UM_SEE_BLOCK_CAUSAL;
    a->shift = 1;
    a->block = DEFAULT_BLOCK;
    return s ? s : um_json_get_int32(config, "bd_size", where, 1, a->max_position, &a->block, err);
}

const um_family um_family_fast_dllm_v2 = {
    .name = "fast_dllm_v2",
    .aliases = "fast_dllm|fastdllmv2",
    .summary = "Fast-dLLM v2 1.5B and 7B: Qwen2 layout, block-causal, shifted predictions",
    .source = "Efficient-Large-Model/Fast_dLLM_v2_*",
    .architectures = "Fast_dLLM_QwenForCausalLM",
    .model_types = "Fast_dLLM_Qwen|FastdLLMV2",
    .names = &um_hf_llama_names,
    .tokens = um_tokens_qwen2,
    .tokenizer_size = UM_TOKENS_QWEN_SIZE,
    .mask_id = 151665,
    .mask_token = "|<MASK>|",
    .turn_end = "<|im_end|>",
    .chat = "qwen2_5",
    .strategies = "fast_dllm_v2|multi_bd",
    .sampler = "confidence",
    .gate = "previous",
    .accept_threshold = 0.9f,
    .compat_threshold = NAN,
    .prefill_is_silent = true,
    .configure = configure,
};
