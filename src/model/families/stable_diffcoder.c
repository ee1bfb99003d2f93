/* Stable-DiffCoder: Llama's layout with block-causal attention. Its config.json has the model_type "llama", so only the
 * architecture distinguishes it from an autoregressive model. Only the tokenizer names the mask token. */
#include <jansson.h>
#include <math.h>

#include "model/config.h"

#define DEFAULT_BLOCK 4 /* a run-time argument of the reference, not a field of the file */

static um_status configure(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = um_hf_llama(a, config, where, err);
    a->see = UM_SEE_BLOCK_CAUSAL;
    a->block = DEFAULT_BLOCK;
    return s;
}

const um_family um_family_stable_diffcoder = {
    .name = "stable_diffcoder",
    .aliases = "stablediffcoder",
    .summary = "Stable-DiffCoder 8B: Llama layout, block-causal",
    .source = "ByteDance-Seed/Stable-DiffCoder-8B-*",
    .architectures = "StableDiffcoderForCausalLM",
    .names = &um_hf_llama_names,
    .tokens = um_tokens_seed,
    .tokenizer_size = UM_TOKENS_SEED_SIZE,
    .mask_id = -1,
    .mask_token = "<[MASK_TOKEN]>",
    .strategies = "multi_bd",
    .sampler = "confidence",
    .gate = "always",
    .accept_threshold = 0.9f,
    .compat_threshold = NAN,
    .configure = configure,
};
