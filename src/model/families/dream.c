/* Dream, Dream-Coder and DiffuCoder: Qwen2's layout (biases on queries, keys and values) with full attention. The
 * hidden row of a position predicts the next position. DreamReasoner is another model that also has the model_type
 * "Dream"; its checkpoints store norms of queries and keys, and those of this family do not. */
#include <jansson.h>
#include <math.h>

#include "model/config.h"

static um_status configure(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = um_hf_llama(a, config, where, err);
    if (!s) s = um_hf_only_bool(config, "use_mrope", where, false, err);
    a->qkv_bias = true; /* part of the layout; config.json has no field for it */
    a->o_bias = false;
    a->see = UM_SEE_FULL;
    a->shift = 1;
    return s;
}

const um_family um_family_dream = {
    .name = "dream",
    .aliases = "dream_coder|diffucoder",
    .summary = "Dream 7B, Dream-Coder 7B, DiffuCoder 7B: Qwen2 layout, full attention, shifted predictions",
    .source = "Dream-org/Dream-v0-*-7B, Dream-org/Dream-Coder-v0-*-7B, apple/DiffuCoder-7B-*",
    .architectures = "DreamModel",
    .model_types = "Dream",
    .names = &um_hf_llama_names,
    .twin = &um_family_dream_reasoner,
    .tokens = um_tokens_dream,
    .tokenizer_size = UM_TOKENS_QWEN_SIZE,
    .mask_id = 151666,
    .mask_token = "<|mask|>",
    .turn_end = "<|im_end|>",
    .chat = "dream",
    .strategies = "full|prefix_cache|dual_cache|sparse|d2f",
    .sampler = "entropy",
    .gate = "previous",
    .accept_threshold = 0.9f,
    .compat_threshold = NAN,
    .configure = configure,
};
