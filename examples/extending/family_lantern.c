/* Lantern, an invented family: SDAR's layout under other names of tensors and fields. */
#include <jansson.h>
#include <math.h>

#include "extending.h"

/* %d stands for the layer. The loader appends ".weight" or ".bias". */
static const um_tensor_names names = {
    .embed = "lantern.tokens",
    .final_norm = "lantern.norm",
    .head = "lantern.head",
    .attn_norm = "lantern.block.%d.norm_1",
    .ffn_norm = "lantern.block.%d.norm_2",
    .q = "lantern.block.%d.attention.query",
    .k = "lantern.block.%d.attention.key",
    .v = "lantern.block.%d.attention.value",
    .o = "lantern.block.%d.attention.out",
    .q_norm = "lantern.block.%d.attention.query_norm",
    .k_norm = "lantern.block.%d.attention.key_norm",
    .gate = "lantern.block.%d.mlp.gate",
    .up = "lantern.block.%d.mlp.up",
    .down = "lantern.block.%d.mlp.down",
};

static um_status configure(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = um_hf_llama(a, config, where, err);
    if (s) return s;
    a->qk_norm = true;
    a->see = UM_SEE_BLOCK_CAUSAL;
    /* A number that shapes the model has no default. If it is missing, the error names the field. */
    return um_hf_need_int(config, "denoising_block", where, 1, a->max_position, &a->block, err);
}

const um_family family_lantern = {
    .name = "lantern",
    .summary = "Lantern: SDAR's layout under other names",
    .source = "docs/extending.md",
    .architectures = "LanternForDiffusionLM",
    .model_types = "lantern",
    .names = &names,
    .mask_id = -1, /* config.json must name it */
    .strategies = "multi_bd|left_to_right",
    .sampler = "confidence",
    .gate = "previous",
    .accept_threshold = 0.95F,
    .compat_threshold = NAN,
    .configure = configure,
};
