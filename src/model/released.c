/* The configurations of released models that can be opened without a checkpoint. */
#include <jansson.h>

#include "model/model.h"

const um_released um_released_all[] = {
    {"llada-8b", "GSAI-ML/LLaDA-8B-Instruct",
     "{\"architectures\": [\"LLaDAModelLM\"], \"model_type\": \"llada\", \"d_model\": 4096, \"n_heads\": 32,"
     " \"n_kv_heads\": 32, \"n_layers\": 32, \"mlp_hidden_size\": 12288, \"vocab_size\": 126464,"
     " \"embedding_size\": 126464, \"max_sequence_length\": 4096, \"rope\": true, \"rope_theta\": 500000.0,"
     " \"rms_norm_eps\": 1e-05, \"layer_norm_type\": \"rms\", \"block_type\": \"llama\","
     " \"activation_type\": \"silu\", \"weight_tying\": false, \"mask_token_id\": 126336,"
     " \"eos_token_id\": 126081, \"pad_token_id\": 126081}"},
    {"sdar-8b", "JetLM/SDAR-8B-Chat",
     "{\"architectures\": [\"SDARForCausalLM\"], \"model_type\": \"sdar\", \"hidden_size\": 4096,"
     " \"num_hidden_layers\": 36, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"head_dim\": 128,"
     " \"intermediate_size\": 12288, \"vocab_size\": 151936, \"max_position_embeddings\": 32768,"
     " \"rope_theta\": 1000000, \"rms_norm_eps\": 1e-06, \"hidden_act\": \"silu\", \"attention_bias\": false,"
     " \"tie_word_embeddings\": false, \"block_size\": 4, \"bos_token_id\": 151643,"
     " \"eos_token_id\": 151643, \"pad_token_id\": 151643, \"mask_token_id\": 151669}"},
    {"sdar-1.7b", "JetLM/SDAR-1.7B-Chat",
     "{\"architectures\": [\"SDARForCausalLM\"], \"model_type\": \"sdar\", \"hidden_size\": 2048,"
     " \"num_hidden_layers\": 28, \"num_attention_heads\": 16, \"num_key_value_heads\": 8, \"head_dim\": 128,"
     " \"intermediate_size\": 6144, \"vocab_size\": 151936, \"max_position_embeddings\": 32768,"
     " \"rope_theta\": 1000000, \"rms_norm_eps\": 1e-06, \"hidden_act\": \"silu\", \"attention_bias\": false,"
     " \"tie_word_embeddings\": false, \"block_size\": 4, \"bos_token_id\": 151643,"
     " \"eos_token_id\": 151643, \"pad_token_id\": 151643, \"mask_token_id\": 151669}"},
    {"sdar-30b", "JetLM/SDAR-30B-A3B-Chat",
     "{\"architectures\": [\"SDARMoeForCausalLM\"], \"model_type\": \"sdar_moe\", \"hidden_size\": 2048,"
     " \"num_hidden_layers\": 48, \"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"head_dim\": 128,"
     " \"intermediate_size\": 6144, \"moe_intermediate_size\": 768, \"num_experts\": 128,"
     " \"num_experts_per_tok\": 8, \"norm_topk_prob\": true, \"decoder_sparse_step\": 1, \"mlp_only_layers\": [],"
     " \"vocab_size\": 151936, \"max_position_embeddings\": 32768, \"rope_theta\": 1000000,"
     " \"rms_norm_eps\": 1e-06, \"hidden_act\": \"silu\", \"attention_bias\": false,"
     " \"tie_word_embeddings\": false, \"block_size\": 4, \"mask_token_id\": 151669,"
     " \"eos_token_id\": 151643, \"pad_token_id\": 151643}"},
    {"llada2-mini", "inclusionAI/LLaDA2.0-mini",
     "{\"architectures\": [\"LLaDA2MoeModelLM\"], \"model_type\": \"llada2_moe\", \"hidden_size\": 2048,"
     " \"num_hidden_layers\": 20, \"num_attention_heads\": 16, \"num_key_value_heads\": 4, \"head_dim\": 128,"
     " \"intermediate_size\": 5120, \"moe_intermediate_size\": 512, \"num_experts\": 256,"
     " \"num_experts_per_tok\": 8, \"num_shared_experts\": 1, \"n_group\": 8, \"topk_group\": 4,"
     " \"first_k_dense_replace\": 1, \"score_function\": \"sigmoid\", \"moe_router_enable_expert_bias\": true,"
     " \"norm_topk_prob\": true, \"routed_scaling_factor\": 2.5, \"rms_norm_eps\": 1e-06,"
     " \"rope_theta\": 600000, \"partial_rotary_factor\": 0.5, \"rotary_dim\": 64,"
     " \"max_position_embeddings\": 32768, \"vocab_size\": 157184, \"hidden_act\": \"silu\","
     " \"use_bias\": false, \"use_qkv_bias\": false, \"use_qk_norm\": true, \"tie_word_embeddings\": false,"
     " \"pad_token_id\": 156892, \"eos_token_id\": 156892}"},
    {"llada2-flash", "inclusionAI/LLaDA2.0-flash",
     "{\"architectures\": [\"LLaDA2MoeModelLM\"], \"model_type\": \"llada2_moe\", \"hidden_size\": 4096,"
     " \"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"head_dim\": 128,"
     " \"intermediate_size\": 9216, \"moe_intermediate_size\": 1024, \"num_experts\": 256,"
     " \"num_experts_per_tok\": 8, \"num_shared_experts\": 1, \"n_group\": 8, \"topk_group\": 4,"
     " \"first_k_dense_replace\": 1, \"score_function\": \"sigmoid\", \"moe_router_enable_expert_bias\": true,"
     " \"norm_topk_prob\": true, \"routed_scaling_factor\": 2.5, \"rms_norm_eps\": 1e-06,"
     " \"rope_theta\": 600000, \"partial_rotary_factor\": 0.5, \"rotary_dim\": 64,"
     " \"max_position_embeddings\": 32768, \"vocab_size\": 157184, \"hidden_act\": \"silu\","
     " \"use_bias\": false, \"use_qkv_bias\": false, \"use_qk_norm\": true, \"tie_word_embeddings\": false,"
     " \"pad_token_id\": 156892, \"eos_token_id\": 156892}"},
    {"dream-7b", "Dream-org/Dream-v0-Instruct-7B",
     "{\"architectures\": [\"DreamModel\"], \"model_type\": \"Dream\", \"hidden_size\": 3584,"
     " \"num_hidden_layers\": 28, \"num_attention_heads\": 28, \"num_key_value_heads\": 4,"
     " \"intermediate_size\": 18944, \"vocab_size\": 152064, \"max_position_embeddings\": 131072,"
     " \"rope_theta\": 1000000.0, \"rms_norm_eps\": 1e-06, \"hidden_act\": \"silu\","
     " \"tie_word_embeddings\": false, \"mask_token_id\": 151666, \"bos_token_id\": 151643,"
     " \"eos_token_id\": 151643, \"pad_token_id\": 151643}"},
    {"llada-moe", "inclusionAI/LLaDA-MoE-7B-A1B-Instruct",
     "{\"architectures\": [\"LLaDAMoEModelLM\"], \"model_type\": \"llada\", \"hidden_size\": 2048,"
     " \"num_hidden_layers\": 16, \"num_attention_heads\": 16, \"num_key_value_heads\": 16,"
     " \"num_experts\": 64, \"num_experts_per_tok\": 8, \"expert_intermediate_size\": 1024,"
     " \"dense_intermediate_size\": 8192, \"shared_expert_intermediate_size\": null,"
     " \"moe_layer_freq\": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], \"rope_theta\": 50000.0,"
     " \"max_position_embeddings\": 8192, \"qk_layernorm\": true, \"attention_bias\": false,"
     " \"rms_norm_eps\": 1e-05, \"vocab_size\": 157184, \"hidden_act\": \"silu\","
     " \"tie_word_embeddings\": false, \"mask_token_id\": 156895, \"eos_token_id\": 156892,"
     " \"pad_token_id\": 156892}"},
    {"diffusiongemma-26b", "google/diffusiongemma-26B-A4B-it",
     "{\"architectures\": [\"DiffusionGemmaForBlockDiffusion\"], \"model_type\": \"diffusion_gemma\","
     " \"canvas_length\": 256, \"tie_word_embeddings\": true, \"boi_token_id\": 255999, \"eoi_token_id\":"
     " 258882, \"image_token_id\": 258880, \"text_config\": {\"model_type\": \"diffusion_gemma_text\","
     " \"hidden_size\": 2816, \"intermediate_size\": 2112, \"num_hidden_layers\": 30, \"layer_types\": null,"
     " \"num_attention_heads\": 16, \"num_key_value_heads\": 8, \"head_dim\": 256,"
     " \"num_global_key_value_heads\": 2, \"global_head_dim\": 512, \"num_experts\": 128, \"top_k_experts\":"
     " 8, \"moe_intermediate_size\": 704, \"sliding_window\": 1024, \"final_logit_softcapping\": 30.0,"
     " \"rms_norm_eps\": 1e-06, \"vocab_size\": 262144, \"max_position_embeddings\": 262144,"
     " \"hidden_activation\": \"gelu_pytorch_tanh\", \"attention_bias\": false,"
     " \"hidden_size_per_layer_input\": 0, \"use_bidirectional_attention\": \"vision\", \"rope_parameters\":"
     " {\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 10000.0}, \"full_attention\":"
     " {\"rope_type\": \"proportional\", \"partial_rotary_factor\": 0.25, \"rope_theta\": 1000000.0}},"
     " \"pad_token_id\": 0, \"bos_token_id\": 2, \"eos_token_id\": [1, 106]}}"},
    {"wedlm-8b", "tencent/WeDLM-8B-Instruct",
     "{\"architectures\": [\"WeDLMForCausalLM\"], \"model_type\": \"wedlm\", \"hidden_size\": 4096,"
     " \"num_hidden_layers\": 36, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"head_dim\": 128,"
     " \"intermediate_size\": 12288, \"vocab_size\": 151936, \"max_position_embeddings\": 16384,"
     " \"rope_theta\": 1000000, \"rms_norm_eps\": 1e-06, \"hidden_act\": \"silu\", \"attention_bias\": false,"
     " \"qk_norm\": true, \"tie_word_embeddings\": false, \"bos_token_id\": 151643, \"eos_token_id\": 151643,"
     " \"pad_token_id\": 151643}"},
    {"nemotron-8b", "nvidia/Nemotron-Labs-Diffusion-8B",
     "{\"architectures\": [\"NemotronLabsDiffusionModel\"], \"model_type\": \"nemotron_labs_diffusion\","
     " \"hidden_size\": 4096, \"num_hidden_layers\": 34, \"num_attention_heads\": 32, \"num_key_value_heads\":"
     " 8, \"head_dim\": 128, \"intermediate_size\": 14336, \"vocab_size\": 131072,"
     " \"max_position_embeddings\": 262144, \"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\":"
     " 1000000.0, \"factor\": 16.0, \"original_max_position_embeddings\": 16384, \"beta_fast\": 32.0,"
     " \"beta_slow\": 1.0, \"mscale\": 1.0, \"mscale_all_dim\": 1.0, \"llama_4_scaling_beta\": 0.1},"
     " \"rms_norm_eps\": 1e-05, \"hidden_act\": \"silu\", \"attention_bias\": false, \"mlp_bias\": false,"
     " \"tie_word_embeddings\": false, \"block_size\": 32, \"bos_token_id\": 1, \"eos_token_id\": 11,"
     " \"mask_token_id\": 100}"},
    {"llada2.2-flash", "inclusionAI/LLaDA2.2-flash",
     "{\"architectures\": [\"LLaDA2MoeModelLM\"], \"model_type\": \"llada2_moe\", \"hidden_size\": 4096,"
     " \"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"head_dim\": 128,"
     " \"intermediate_size\": 9216, \"moe_intermediate_size\": 1024, \"num_experts\": 256,"
     " \"num_experts_per_tok\": 8, \"num_shared_experts\": 1, \"n_group\": 8, \"topk_group\": 4,"
     " \"first_k_dense_replace\": 1, \"score_function\": \"sigmoid\", \"moe_router_enable_expert_bias\": true,"
     " \"norm_topk_prob\": true, \"routed_scaling_factor\": 2.5, \"rms_norm_eps\": 1e-06, \"rope_theta\":"
     " 3000000, \"partial_rotary_factor\": 0.5, \"rotary_dim\": 64, \"max_position_embeddings\": 131072,"
     " \"vocab_size\": 157184, \"hidden_act\": \"silu\", \"use_bias\": false, \"use_qkv_bias\": false,"
     " \"use_qk_norm\": true, \"tie_word_embeddings\": false, \"expert_capacity\": 48, \"block_size\": 32,"
     " \"delete_token_id\": 156930, \"split_token_id\": 156931, \"pad_token_id\": 156892, \"eos_token_id\":"
     " 156892}"},
    {NULL, NULL, NULL},
};

/* Compares two names without regard to '-' and '_'. */
static bool same_name(const char *a, const char *b) {
    for (; *a && *b; a++, b++)
        if ((*a == '_' ? '-' : *a) != (*b == '_' ? '-' : *b)) return false;
    return *a == *b;
}

const um_released *um_released_find(const char *name) {
    for (const um_released *r = um_released_all; r->name; r++)
        if (same_name(r->name, name)) return r;
    return NULL;
}

/* Cuts the configuration after n layers, and its list of the kinds of layers. That of a text model may be a part. */
static void keep_layers(json_t *config, int32_t n) {
    static const char *const keys[] = {"num_hidden_layers", "n_layers"};
    json_t *text = json_object_get(config, "text_config");
    if (text) config = text;
    json_t *kinds = json_object_get(config, "moe_layer_freq");
    for (size_t i = 0; i < UM_LEN(keys); i++)
        if (json_object_get(config, keys[i])) json_object_set_new(config, keys[i], json_integer(n));
    while (json_array_size(kinds) > (size_t)n) json_array_remove(kinds, json_array_size(kinds) - 1);
}

um_status um_released_arch(um_arch *out, const um_released *r, int32_t n_layers, um_err *err) {
    json_t *config = NULL;
    um_status s = um_json_parse(&config, r->config, strlen(r->config), r->name, err);
    if (!s) s = um_arch_parse(out, config, r->name, NULL, err);
    if (!s && n_layers > out->n_layers)
        s = um_fail(err, UM_ERANGE, "%s has %d layers, but %d are wanted", r->name, out->n_layers, n_layers);
    if (!s && n_layers) {
        keep_layers(config, n_layers);
        s = um_arch_parse(out, config, r->name, NULL, err);
    }
    if (!s && out->mask_id < 0) out->mask_id = out->family->mask_id;
    json_decref(config);
    return s;
}
