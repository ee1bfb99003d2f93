/* Names that other programs (vLLM, SGLang, llama.cpp, Diffulex, dLLM-Serve) give to options of this one. The values of
 * these options have other forms or other meanings here, so the names are no aliases: the message about an unknown
 * option names the option that the user needs. */
#include "cli/cli.h"

static const struct {
    const char *peer; /* names, comma-separated */
    const char *own;
} rows[] = {
    /* vllm bench serve, bench_serving */
    {"base_url,server_url", "url"},
    {"num_prompts,num_requests,num_prompt", "requests"},
    {"max_concurrency", "concurrency"},
    {"random_input_len,random_input,input_len,sonnet_input_len", "prompt_words"},
    {"random_output_len,random_output,output_len,sharegpt_output_len,sonnet_output_len,hf_output_len", "max_tokens"},
    {"dataset_path,dataset_name,dataset", "prompts"},
    {"num_warmups,warmup_requests,warmup", "warm_up"},
    {"num_iters,num_runs,repetitions", "runs"},
    {"result_filename,result_dir,save_result,output_file,output_json", "report"},
    {"goodput", "slo_ttft"},
    {"extra_body,extra_request_body", "body"},
    {"disable_stream,disable_streaming", "no_stream"},
    {"disable_tqdm,disable_log,silent", "quiet"},
    {"backend,endpoint_type", "endpoint"},
    {"request_timeout", "timeout"},

    /* vllm serve, sglang.launch_server */
    {"tp", "tensor_parallel_size"},
    {"dist_init_addr", "master_addr"},
    {"dllm_algorithm", "sampler"},
    {"dllm_algorithm_config", "accept_threshold"},

    /* llama.cpp */
    {"hf,hf_repo,hfr", "model"},
    {"ctx_size,n_ctx", "max_model_len"},
    {"n,predict,n_predict", "max_tokens"},
    {"ngl,gpu_layers,n_gpu_layers,dev", "device"},
    {"b,batch_size,ub,ubatch_size", "max_num_batched_tokens"},
    {"np,parallel", "max_num_reqs"},
    {"s", "seed"},
    {"temp", "temperature"},
    {"sys,system_prompt", "system"},
    {"repeat_penalty", "repetition_penalty"},
    {"ctk,cache_type_k,ctv,cache_type_v", "kv_cache_dtype"},
    {"f,file", "input"},
    {"diffusion_steps", "steps"},
    {"diffusion_block_length", "block_size"},
    {"diffusion_algorithm", "sampler"},
    {"diffusion_alg_temp", "alg_temp"},
    {"diffusion_eps", "eps"},
    {"diffusion_cfg_scale", "cfg_scale"},
    {"diffusion_visual", "view"},

    /* Diffulex, dLLM-Serve */
    {"denoising_steps,diffusion_step,num_diffusion_steps", "steps"},
    {"confidence_threshold,unmask_threshold", "accept_threshold"},
    {"lora_dir", "lora"},
    {"nproc,num_gpus,dp", "data_parallel_size"},
};

const char *um_cli_peer_name(const char *name) {
    um_str at;
    for (size_t i = 0; i < UM_LEN(rows); i++)
        if (um_word_index(rows[i].peer, ',', name, &at) >= 0) return rows[i].own;
    return NULL;
}
