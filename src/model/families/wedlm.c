/* WeDLM: causal attention over a reordered sequence, with Qwen3's layout (8B) or Qwen2's (7B, with biases on queries,
 * keys and values). Both have the same architecture and model_type in config.json. The tensors tell them apart, because
 * only the 8B stores norms of queries and keys.
 *
 * The training appends masks behind the known tokens, and each predicts the token at its own position. It has no
 * blocks; the block length stands for the number of positions in the window of the strategy. */
#include <jansson.h>
#include <math.h>

#include "model/config.h"

#define DEFAULT_WINDOW 16

static um_status configure(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = um_hf_llama(a, config, where, err);
    a->qk_norm = !a->qkv_bias;
    if (!s && um_hf_has(config, "qk_norm")) s = um_hf_need_bool(config, "qk_norm", where, &a->qk_norm, err);
    a->o_bias = false; /* attention_bias stands for queries, keys and values only */
    a->see = UM_SEE_CAUSAL;
    a->block = DEFAULT_WINDOW;
    return s;
}

const um_family um_family_wedlm = {
    .name = "wedlm",
    .aliases = "wedlm_8b",
    .summary = "WeDLM 8B: Qwen3 layout, causal attention over a reordered window of masks",
    .source = "tencent/WeDLM-8B-Base, tencent/WeDLM-8B-Instruct",
    .architectures = "WeDLMForCausalLM",
    .model_types = "wedlm",
    .names = &um_hf_llama_names,
    .twin = &um_family_wedlm_7b,
    .stores_qk_norm = true,
    .tokens = um_tokens_qwen3,
    .tokenizer_size = UM_TOKENS_QWEN_SIZE,
    .mask_id = 151665,
    .mask_text = "<tool_response>",
    .turn_end = "<|im_end|>",
    .chat = "qwen3",
    .strategies = "causal_window",
    .sampler = "entropy_distance",
    .gate = "always",
    .accept_threshold = 0.9f,
    .compat_threshold = NAN,
    .filters_first = true,
    .configure = configure,
};

const um_family um_family_wedlm_7b = {
    .name = "wedlm_7b",
    .summary = "WeDLM 7B: Qwen2 layout, causal attention over a reordered window of masks",
    .source = "tencent/WeDLM-7B-Base, tencent/WeDLM-7B-Instruct",
    .architectures = "WeDLMForCausalLM",
    .model_types = "wedlm",
    .names = &um_hf_llama_names,
    .twin = &um_family_wedlm,
    .tokens = um_tokens_qwen2,
    .tokenizer_size = UM_TOKENS_QWEN_SIZE,
    .mask_id = 151665,
    .turn_end = "<|im_end|>",
    .chat = "qwen2_5",
    .strategies = "causal_window",
    .sampler = "entropy_distance",
    .gate = "always",
    .accept_threshold = 0.9f,
    .compat_threshold = NAN,
    .filters_first = true,
    .configure = configure,
};
