/* SDAR and TraDo, dense: Qwen3's layout (norms of queries and keys, no biases) with block-causal attention.
 *
 * The block length is a property of the checkpoint: releases were trained with 4, variants with 8 to 64. The system
 * that --compat imitates ignores the configured threshold for this family and always accepts above 0.95. */
#include <jansson.h>
#include <math.h>

#include "model/config.h"

#define DEFAULT_BLOCK 4

static um_status configure(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = um_hf_llama(a, config, where, err);
    /* Variants that prefill the prompt with causal attention are not supported: they need another mask in each pass. */
    if (!s) s = um_hf_only_bool(config, "use_regular_causal", where, false, err);
    a->qk_norm = true;
    a->see = UM_SEE_BLOCK_CAUSAL;
    a->block = DEFAULT_BLOCK;
    return s ? s : um_json_get_int32(config, "block_size", where, 1, a->max_position, &a->block, err);
}

const um_family um_family_sdar = {
    .name = "sdar",
    .aliases = "trado",
    .summary = "SDAR 1.7B, 4B, 8B and TraDo: Qwen3 layout, block-causal",
    .source = "JetLM/SDAR-*-Chat, Gen-Verse/TraDo-*",
    .architectures = "SDARForCausalLM",
    .model_types = "sdar",
    .names = &um_hf_llama_names,
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
