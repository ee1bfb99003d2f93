/* RND1: Qwen3-MoE's layout with full attention. The hidden row of a position predicts the next position. The release's
 * own reader overwrites most fields of config.json with its defaults, which normalise the weights of the experts. The
 * file may therefore lack "norm_topk_prob". */
#include <jansson.h>
#include <math.h>

#include "model/config.h"

static um_status configure(um_arch *a, const json_t *config, const char *where, um_err *err) {
    a->route.normalize = true;
    um_status s = um_hf_qwen3_moe(a, config, where, err);
    a->see = UM_SEE_FULL;
    a->shift = 1;
    return s;
}

const um_family um_family_rnd1 = {
    .name = "rnd1",
    .aliases = "rnd1_base",
    .summary = "RND1 30B-A3B: Qwen3-MoE layout, full attention, shifted predictions",
    .source = "radicalnumerics/RND1-Base-0910",
    .architectures = "RND1|RND1LM",
    .model_types = "rnd1",
    .names = &um_hf_llama_names,
    .experts = true,
    .tokens = um_tokens_qwen3,
    .tokenizer_size = UM_TOKENS_QWEN_SIZE,
    .mask_id = 151669,
    .turn_end = "<|im_end|>",
    .strategies = "full|prefix_cache|dual_cache|sparse",
    .sampler = "linear_entropy",
    .gate = "previous",
    .accept_threshold = 0.9f,
    .compat_threshold = NAN,
    .configure = configure,
};
