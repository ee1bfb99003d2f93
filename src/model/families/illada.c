/* iLLaDA: Llama's layout and arithmetic with full attention, decoded like LLaDA. If config.json has "layer_norm_eps",
 * all norms are LayerNorms instead of RMSNorms. */
#include <jansson.h>
#include <math.h>

#include "model/config.h"

static um_status configure(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = um_hf_llama(a, config, where, err);
    a->layer_norm = um_hf_has(config, "layer_norm_eps");
    if (!s && a->layer_norm) s = um_hf_need_eps(a, config, "layer_norm_eps", where, err);
    a->see = UM_SEE_FULL;
    return s;
}

const um_family um_family_illada = {
    .name = "illada",
    .aliases = "illada_instruct",
    .summary = "iLLaDA 8B: Llama layout, full attention",
    .source = "GSAI-ML/iLLaDA-8B-*",
    .architectures = "ILLaDAForCausalLM",
    .model_types = "illada",
    .names = &um_hf_llama_names,
    .tokens = um_tokens_seed,
    .tokenizer_size = UM_TOKENS_SEED_SIZE,
    .mask_id = 5,
    .mask_token = "<[MASK_TOKEN]>",
    .strategies = "full|prefix_cache|dual_cache|sparse",
    .sampler = "low_confidence",
    .gate = "previous",
    .accept_threshold = 0.9f,
    .compat_threshold = NAN,
    .configure = configure,
};
