/* DreamReasoner: Qwen3's layout with block-causal attention. It has only the model_type in common with Dream. */
#include <jansson.h>
#include <math.h>

#include "model/config.h"

#define DEFAULT_BLOCK 32

static um_status configure(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = um_hf_llama(a, config, where, err);
    a->qk_norm = true;
    a->see = UM_SEE_BLOCK_CAUSAL;
    a->block = DEFAULT_BLOCK;
    return s ? s : um_json_get_int32(config, "block_size", where, 1, a->max_position, &a->block, err);
}

const um_family um_family_dream_reasoner = {
    .name = "dream_reasoner",
    .aliases = "dreamreasoner",
    .summary = "DreamReasoner 8B: Qwen3 layout, block-causal",
    .source = "Dream-org/DreamReasoner-8B",
    .architectures = "DreamForCausalLM",
    .names = &um_hf_llama_names,
    .twin = &um_family_dream,
    .stores_qk_norm = true,
    .tokens = um_tokens_qwen3,
    .tokenizer_size = UM_TOKENS_QWEN_SIZE,
    .mask_id = 151669,
    .turn_end = "<|im_end|>",
    .chat = "qwen3",
    .strategies = "multi_bd",
    .sampler = "confidence",
    .gate = "previous",
    .accept_threshold = 0.9f,
    .compat_threshold = NAN,
    .configure = configure,
};
