/* The options of an engine, in addition to those of its model, and the functions that set options by name. */
#include "engine/engine.h"
#include "engine/expect.h"

#define C(field) UM_FIELD(um_config, field)

const um_option um_engine_options[] = {
    {"kv_cache_dtype", NULL, UM_OPT_NAME, C(kv_cache_dtype), 0, 0, "auto|float32|bfloat16|float8_e4m3|fp8|fp8_e4m3",
     "auto", NULL, "TYPE", "Engine",
     "number type of stored keys and values; auto means the type of --dtype; float8_e4m3 (fp8, fp8_e4m3) has 8 bits "
     "and a scale for each head of each token"},
    {"kv_cache_layout", NULL, UM_OPT_NAME, C(kv_cache_layout), 0, 0, "unified|distinct", "unified", NULL, "LAYOUT",
     "Engine",
     "keep keys and values in one memory pool (unified) or in one pool each (distinct); the answers are the same"},
    {"max_num_reqs", "max_num_seqs,max_running_requests", UM_OPT_INT, C(max_num_reqs), 1, 4096, NULL, "32", NULL, "N",
     "Engine", "largest number of requests that run at once in an engine"},
    {"data_parallel_size", "dp_size,data_parallel,dp", UM_OPT_INT, C(data_parallel_size), 1, UM_REPLICAS_MAX, NULL, "1",
     NULL, "N", "Engine",
     "number of equal engines that share the requests; each has max_num_reqs slots and its own KV pages"},
    {"route_policy", NULL, UM_OPT_CHOICE, C(route_policy), 0, 0, "prefix|least-loaded|round-robin", "prefix", NULL,
     "POLICY", "Engine",
     "which engine gets a request: one that already stores the beginning of the prompt, the one with the least work, "
     "or each in turn"},
    {"max_model_len", "context_length", UM_OPT_INT, C(max_model_len), 2, 16777216, NULL, "auto", "0", "N", "Engine",
     "largest number of tokens of prompt and answer together; auto means the model's limit"},
    {"page_size", "kvcache_block_size", UM_OPT_INT, C(page_size), 1, 65536, NULL, "auto", "0", "N", "Engine",
     "tokens per KV page; auto means the smallest multiple of the block size that is at least 32; requests "
     "share prefixes only if it is a multiple of the block size"},
    {"num_pages", "num_kvcache_blocks,num_gpu_blocks_override", UM_OPT_INT, C(num_pages), 1, 1e9, NULL, "auto", "-1",
     "N", "Engine",
     "KV pages per engine; auto means enough for max_num_reqs requests of full length, limited by kv_memory_share, or "
     "by gpu_memory_utilization on a GPU"},
    {"kv_memory_share", NULL, UM_OPT_FLOAT, C(kv_memory_share), 0.001, 1, NULL, "0.25", NULL, "SHARE", "Engine",
     "on the CPU, if num_pages is auto: share of the available memory for the KV pages of all engines together"},
    {"gpu_memory_utilization", "mem_fraction_static", UM_OPT_FLOAT, C(gpu_memory_utilization), 0.01, 1, NULL, "0.9",
     NULL, "SHARE", "Engine",
     "on a GPU, if num_pages is auto: share of its memory that weights, activations and KV pages may take"},
    {"enforce_eager", "disable_cuda_graph", UM_OPT_BOOL, C(enforce_eager), 0, 0, NULL, "false", NULL, NULL, "Engine",
     "run every pass on a GPU kernel by kernel, without CUDA graphs"},
    {"cuda_graph_sizes", "cuda_graph_bs,cudagraph_capture_sizes", UM_OPT_NAME, C(cuda_graph_sizes), 0,
     UM_GRAPH_SIZES_MAX, "none|N", "auto", "auto", "N,...", "Engine",
     "numbers of requests for which a GPU records CUDA graphs at the start, in place of when they are first seen; "
     "those above max_num_reqs are left out; auto means 1, 2, 4 ... max_num_reqs"},
    {"disable_prefix_caching", "disable_radix_cache", UM_OPT_BOOL, C(disable_prefix_caching), 0, 0, NULL, "false", NULL,
     NULL, "Engine", "don't reuse stored keys and values of prompts with the same beginning"},
    {"schedule_policy", NULL, UM_OPT_CHOICE, C(schedule_policy), 0, 0, "mixed|prefill-first", "mixed", NULL, "POLICY",
     "Engine",
     "mixed processes prompts and denoises answers in the same steps; prefill-first gives prompts separate steps"},
    {"max_skips", NULL, UM_OPT_INT, C(max_skips), 0, 1e6, NULL, "8", NULL, "N", "Engine",
     "number of times in a row that the scheduler may pass over a request for others that fit"},
    {"admission", NULL, UM_OPT_CHOICE, C(admission), 0, 0, "fair|arrival", "fair", NULL, "ORDER", "Engine",
     "order in which waiting requests of one priority start: tenants (API keys, else addresses of clients) take turns, "
     "and so do the requests of each (fair), or in the order of arrival"},
    {"max_guests", NULL, UM_OPT_INT, C(max_guests), 0, 4096, NULL, "auto", "-1", "N", "Engine",
     "with admission fair: number of requests that run beyond max_num_reqs, in turns with the others, if nothing else "
     "of their tenant or request runs; auto means max_num_reqs, at most 64"},
    {"max_refresh_per_step", NULL, UM_OPT_INT, C(max_refresh_per_step), 0, 4096, NULL, "0", NULL, "N", "Engine",
     "largest number of whole-sequence passes of caching strategies (prefix_cache, dual_cache, sparse) in one step; "
     "0 means no limit"},
    {"chunked_prefill_size", "long_prefill_token_threshold", UM_OPT_INT, C(chunked_prefill_size), 0, 1048576, NULL, "0",
     NULL, "N", "Engine",
     "largest number of tokens of prompts in a step in which other answers denoise; longer prompts are stored over "
     "several "
     "steps, so that those answers wait less; 0 means as many as max_num_batched_tokens leaves"},
    {"compat", NULL, UM_OPT_CHOICE, C(compat), 0, 0, "none|diffulex|checkpoint", "none", NULL, "SYSTEM", "Engine",
     "decode exactly as another system does, bugs included; diffulex ignores remask_threshold; checkpoint means the "
     "code that checkpoints of Nemotron-Labs-Diffusion and WeDLM come with"},
};
const size_t um_n_engine_options = UM_LEN(um_engine_options);

_Static_assert(UM_OPTION_SETS_MAX >= UM_DECODE_SETS_MAX + 2, "room for rows of model and engine beside decoding's");

size_t um_config_option_sets(um_option_set *sets, um_config *c) {
    sets[0] = (um_option_set){um_model_options, um_n_model_options, c};
    sets[1] = (um_option_set){um_engine_options, um_n_engine_options, c};
    return 2 + um_decode_option_sets(sets + 2, &c->decoding, &c->sampling);
}

um_status um_engine_check(const um_config *c, um_err *err) {
    um_option_set sets[UM_OPTION_SETS_MAX];
    um_config copy = *c; /* a set points to a struct that is not const */
    um_status st = um_config_check(c, err);
    return st ? st : um_options_check(sets, um_config_option_sets(sets, &copy), err);
}

_Static_assert(UM_ENGINE_DEVICE_MAX == UM_DEVICE_NAME_MAX, "the model room writes the names");

um_status um_config_engine_device(const um_config *c, int32_t engine, char out[UM_ENGINE_DEVICE_MAX],
                                  int32_t *n_sharing, um_err *err) {
    um_device_list list;
    um_status s = um_model_devices(&list, c, err);
    if (s) return s;
    um_device_name(&list, engine, out);
    *n_sharing = um_backend_is_host(list.backend);
    for (int32_t i = 0; i < list.n && !um_backend_is_host(list.backend); i++)
        *n_sharing += list.number[i * list.n_own] == list.number[engine * list.n_own];
    return UM_OK;
}

void um_config_init(um_config *c) {
    *c = (um_config){.size = sizeof(*c)};
    um_option_set sets[UM_OPTION_SETS_MAX];
    size_t n = um_config_option_sets(sets, c);
    for (size_t i = 0; i < n; i++) um_options_init(sets[i].rows, sets[i].n, sets[i].base);
}

um_status um_config_set(um_config *c, const char *name, const char *value, um_err *err) {
    um_option_set sets[UM_OPTION_SETS_MAX];
    return um_options_set(sets, um_config_option_sets(sets, c), name, value, err);
}

size_t um_request_option_sets(um_option_set *sets, um_request *r) {
    return um_decode_option_sets(sets, &r->decoding, &r->sampling);
}

void um_request_init_config(const um_config *c, um_request *r) {
    *r = (um_request){.size = sizeof(*r),
                      .special_in_content = c->special_in_content,
                      .n = 1,
                      .decoding = c->decoding,
                      .sampling = c->sampling};
}

void um_request_init(const um_engine *e, um_request *r) { um_request_init_config(&e->config, r); }

um_status um_request_set(um_request *r, const char *name, const char *value, um_err *err) {
    um_option_set sets[UM_OPTION_SETS_MAX];
    return um_options_set(sets, um_request_option_sets(sets, r), name, value, err);
}

void um_request_append_readers(const um_option *row, um_buf *out) { um_params_put_readers(row->name, out); }

void um_request_append_names(const um_option *row, um_buf *names, um_buf *aliases) {
    um_decode_put_names(row->name, names, aliases);
}

bool um_strategy_is_whole(const char *name) {
    const um_strategy *strategy;
    return um_strategy_find(&strategy, name, NULL) == UM_OK && strategy->fills_gaps;
}
