/* Option rows of an engine, and the functions that set parameters by name. */
#include "engine/engine.h"

#define C(field) UM_FIELD(um_config, field)

const um_option um_engine_options[] = {
    {"model", "model_path", UM_OPT_STR, C(model), 0, 0, NULL, NULL, NULL, "DIR", "Model",
     "folder of a checkpoint, or its hub name in the local Hugging Face cache"},
    {"model_name", NULL, UM_OPT_NAME, C(model_name), 0, 0, NULL, "auto", "auto", "NAME", "Model",
     "family to use in place of the detected one"},
    {"mask_token_id", NULL, UM_OPT_INT, C(mask_token_id), 0, 16777215, NULL, "auto", "-1", "N", "Model",
     "id of the mask token; auto is the checkpoint's"},
    {"device", NULL, UM_OPT_NAME, C(device), 0, 0, "cpu|ref", "cpu", NULL, "NAME", "Model",
     "where to compute; ref is plain C, slow and simple"},
    {"dtype", NULL, UM_OPT_NAME, C(dtype), 0, 0, "auto|float32|bfloat16", "auto", NULL, "TYPE", "Model",
     "arithmetic of matrix products; auto is the checkpoint's"},
    {"chat_template", NULL, UM_OPT_STR, C(chat_template), 0, 0, NULL, NULL, NULL, "FILE", "Model",
     "chat template to use in place of the model's: a file, its text, or a name: " UM_CHAT_BUILTIN_NAMES},
    {"special_in_content", NULL, UM_OPT_CHOICE, C(special_in_content), 0, 0, "auto|parse|text|strict|reject", "auto",
     NULL, "LEVEL", "Model",
     "text that spells a special token: parse it, keep it text in messages of users and tools (text) or in nearly all "
     "(strict), or reject it; auto is text for messages, parse for raw prompts"},
    {"check_weights", NULL, UM_OPT_CHOICE, C(check_weights), 0, 0, "off|warn|error", "warn", NULL, "WHAT", "Model",
     "what to do about weights that are NaN or infinite"},
    {"lora", "lora_path,lora_modules", UM_OPT_STR, C(lora), 0, 0, NULL, NULL, NULL, "NAME=DIR,...", "Model",
     "LoRA adapters to load, folders as PEFT writes them; a folder without NAME= is called as its last part"},
    {"lora_merge", "pre_merge_lora", UM_OPT_BOOL, C(lora_merge), 0, 0, NULL, "false", NULL, NULL, "Model",
     "merge the one adapter of --lora into the weights: every request runs through it"},
    {"kv_cache_dtype", NULL, UM_OPT_NAME, C(kv_cache_dtype), 0, 0, "auto|float32|bfloat16|float8_e4m3|fp8|fp8_e4m3",
     "auto", NULL, "TYPE", "Engine",
     "type of stored keys and values; auto follows dtype; float8_e4m3 (fp8, fp8_e4m3) is 8-bit, with a scale for each "
     "head of each token"},
    {"kv_cache_layout", NULL, UM_OPT_NAME, C(kv_cache_layout), 0, 0, "unified|distinct", "unified", NULL, "LAYOUT",
     "Engine", "keys and values in one pool of memory, or in one each; the answers are the same"},
    {"threads", NULL, UM_OPT_INT, C(threads), 1, 1024, NULL, "auto", "0", "N", "Engine",
     "threads; auto is one per core"},
    {"max_num_reqs", "max_num_seqs", UM_OPT_INT, C(max_num_reqs), 1, 4096, NULL, "32", NULL, "N", "Engine",
     "requests that run at once"},
    {"data_parallel_size", "dp_size,data_parallel", UM_OPT_INT, C(data_parallel_size), 1, UM_REPLICAS_MAX, NULL, "1",
     NULL, "N", "Engine", "equal engines that requests are spread over, each with max_num_reqs places and KV pages"},
    {"route_policy", NULL, UM_OPT_CHOICE, C(route_policy), 0, 0, "prefix|least-loaded|round-robin", "prefix", NULL,
     "POLICY", "Engine",
     "which engine gets a request: one that stored its beginning, the one with the least to do, each in turn"},
    {"max_num_batched_tokens", NULL, UM_OPT_INT, C(max_num_batched_tokens), 1, 1048576, NULL, "auto", "0", "N",
     "Engine", "most tokens of one step; auto is what the prompt of run and chat needs, else 4096"},
    {"max_model_len", NULL, UM_OPT_INT, C(max_model_len), 1, 16777216, NULL, "auto", "0", "N", "Engine",
     "most tokens of prompt and answer; auto is the model's"},
    {"page_size", "kvcache_block_size%256", UM_OPT_INT, C(page_size), 1, 65536, NULL, "auto", "0", "N", "Engine",
     "tokens of a KV page; auto is the smallest multiple of the block from 32"},
    {"num_pages", "num_kvcache_blocks,num_gpu_blocks_override", UM_OPT_INT, C(num_pages), 1, 1e9, NULL, "auto", "-1",
     "N", "Engine",
     "KV pages of an engine; auto is enough for max_num_reqs, at most a quarter of the free memory for all engines"},
    {"disable_prefix_caching", NULL, UM_OPT_BOOL, C(disable_prefix_caching), 0, 0, NULL, "false", NULL, NULL, "Engine",
     "compute the beginning of a prompt anew although another request stored the same"},
    {"schedule_policy", NULL, UM_OPT_CHOICE, C(schedule_policy), 0, 0, "mixed|prefill-first", "mixed", NULL, "POLICY",
     "Engine", "mixed runs prompts and answers in the same steps; prefill-first gives prompts steps of their own"},
    {"max_skips", NULL, UM_OPT_INT, C(max_skips), 0, 1e6, NULL, "8", NULL, "N", "Engine",
     "times in a row that a request may be passed over for one that fits"},
    {"max_refresh_per_step", NULL, UM_OPT_INT, C(max_refresh_per_step), 0, 4096, NULL, "0", NULL, "N", "Engine",
     "whole-sequence passes of cached strategies in one step, 0 is any number"},
    {"compat", NULL, UM_OPT_CHOICE, C(compat), 0, 0, "none|diffulex", "none", NULL, "SYSTEM", "Engine",
     "decode exactly as another system does, its defects included"},
};
const size_t um_n_engine_options = UM_LEN(um_engine_options);

size_t um_config_option_sets(um_option_set *sets, um_config *c) {
    sets[0] = (um_option_set){um_engine_options, um_n_engine_options, c};
    return 1 + um_decode_option_sets(sets + 1, &c->decoding, &c->sampling);
}

void um_config_init(um_config *c) {
    *c = (um_config){.size = sizeof(*c)};
    um_option_set sets[UM_CONFIG_SETS_MAX];
    size_t n = um_config_option_sets(sets, c);
    for (size_t i = 0; i < n; i++) um_options_init(sets[i].rows, sets[i].n, sets[i].base);
}

um_status um_config_set(um_config *c, const char *name, const char *value, um_err *err) {
    um_option_set sets[UM_CONFIG_SETS_MAX];
    return um_options_set(sets, um_config_option_sets(sets, c), name, value, err);
}

void um_request_init(const um_engine *e, um_request *r) {
    *r = (um_request){.size = sizeof(*r),
                      .special_in_content = e->config.special_in_content,
                      .n = 1,
                      .decoding = e->config.decoding,
                      .sampling = e->config.sampling};
}

um_status um_request_set(um_request *r, const char *name, const char *value, um_err *err) {
    um_option_set sets[UM_DECODE_SETS_MAX];
    return um_options_set(sets, um_decode_option_sets(sets, &r->decoding, &r->sampling), name, value, err);
}
