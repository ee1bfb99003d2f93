/* Nemotron-Labs-Diffusion: Ministral 3's layout with stretched rotary embeddings. Nemotron-Diffusion-Research: Qwen3's
 * layout under the same names. One set of weights decodes in blocks, token by token, and speculatively. Stored keys are
 * those of causal attention in all three; a block that is being denoised sees itself as a whole.
 *
 * The fields about training (dlm_paradigm, ar_loss_weight) change nothing here. */
#include <jansson.h>
#include <math.h>

#include "model/config.h"

#define DEFAULT_BLOCK 32

static const um_tensor_names names = {
    .embed = "encoder.embed_tokens",
    .final_norm = "encoder.norm",
    .head = "diffusion_head",
    .attn_norm = "encoder.layers.%d.input_layernorm",
    .ffn_norm = "encoder.layers.%d.post_attention_layernorm",
    .q = "encoder.layers.%d.self_attn.q_proj",
    .k = "encoder.layers.%d.self_attn.k_proj",
    .v = "encoder.layers.%d.self_attn.v_proj",
    .o = "encoder.layers.%d.self_attn.o_proj",
    .q_norm = "encoder.layers.%d.self_attn.q_norm",
    .k_norm = "encoder.layers.%d.self_attn.k_norm",
    .gate = "encoder.layers.%d.mlp.gate_proj",
    .up = "encoder.layers.%d.mlp.up_proj",
    .down = "encoder.layers.%d.mlp.down_proj",
};

/* A window that is null or as long as the model limits nothing. */
static um_status check_window(const um_arch *a, const json_t *config, const char *where, um_err *err) {
    int32_t window = a->max_position;
    um_status s = um_json_get_int32(config, "sliding_window", where, 1, UM_HF_POSITIONS_MAX, &window, err);
    if (s || window >= a->max_position) return s;
    return um_fail(err, UM_EUNSUPPORTED, "%s: \"sliding_window\" is %d; unmask supports null only", where, window);
}

static um_status read_rest(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = check_window(a, config, where, err);
    a->see = UM_SEE_CAUSAL;
    a->block = DEFAULT_BLOCK;
    return s ? s : um_json_get_int32(config, "block_size", where, 1, a->max_position, &a->block, err);
}

static um_status configure(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = um_hf_llama_yarn(a, config, where, err);
    return s ? s : read_rest(a, config, where, err);
}

static um_status configure_research(um_arch *a, const json_t *config, const char *where, um_err *err) {
    um_status s = um_hf_llama(a, config, where, err);
    a->qk_norm = true;
    return s ? s : read_rest(a, config, where, err);
}

#define STRATEGIES "seeded_bd|autoregressive|self_speculation"

const um_family um_family_nemotron = {
    .name = "nemotron",
    .aliases = "nemotron_labs_diffusion",
    .summary = "Nemotron-Labs-Diffusion 3B, 8B, 14B: Ministral 3 layout, causal keys, blocks that see themselves",
    .source = "nvidia/Nemotron-Labs-Diffusion-*",
    .architectures = "NemotronLabsDiffusionModel",
    .model_types = "nemotron_labs_diffusion",
    .names = &names,
    .mask_id = 100,
    .strategies = STRATEGIES,
    .sampler = "confidence",
    .gate = "always",
    .accept_threshold = 0.9f,
    .compat_threshold = NAN,
    .configure = configure,
};

const um_family um_family_nemotron_research = {
    .name = "nemotron_research",
    .aliases = "nemotron_diffusion_research",
    .summary = "Nemotron-Diffusion-Research 8B: Qwen3 layout, causal keys, blocks that see themselves",
    .source = "nvidia/Nemotron-Diffusion-Research-8B-v0",
    .architectures = "DiffEncoderModel",
    .names = &names,
    .tokens = um_tokens_qwen3,
    .tokenizer_size = UM_TOKENS_QWEN_SIZE,
    .mask_id = 151662,
    .turn_end = "<|im_end|>",
    .chat = "qwen3",
    .strategies = STRATEGIES,
    .sampler = "confidence",
    .gate = "always",
    .accept_threshold = 0.9f,
    .compat_threshold = NAN,
    .configure = configure_research,
};
