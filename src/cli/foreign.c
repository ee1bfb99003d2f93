/* Options of other engines (Diffulex, dLLM-Serve, vLLM, SGLang, llama.cpp) that existing scripts use. They have no
 * effect here, or set one of this program's options. Options that only have another name here are aliases in the option
 * rows. */
#include "cli/cli.h"

#define SWITCH UM_FOREIGN_SWITCH
#define NUMBER UM_FOREIGN_NUMBER
#define WORD   UM_FOREIGN_WORD
#define FOLDER UM_FOREIGN_FOLDER

#define ALL_LAYERS  "an engine computes all layers on each of its devices (--tensor-parallel-size)"
#define NO_EXECUTOR "--nnodes says whether the ranks of an engine are processes"
#define NO_GROUP    "the ranks of an engine exchange results over TCP (--master-port)"
#define NO_EXCHANGE "an engine has all experts, so engines exchange no tokens"
#define OWN_EXPERTS "--enable-expert-parallel gives whole experts to the ranks of an engine"
#define NO_GRAPHS   "the CPU runs every pass eagerly; a GPU records graphs unless --enforce-eager is set"
#define NO_CUDA     "--device cuda:N names the GPU"
#define ONE_KERNEL  "a device has one implementation of each operation"
#define NO_SHARE    "the CPU has no separate memory; --kv-memory-share and --num-pages limit the KV pages"
#define ALL_LOADED  "all adapters of --lora stay loaded, of any rank"
#define NO_LOGITS   "logits are never stored, so no buffer needs a limit"
#define EXACT_NFE   "only --max-nfe limits the number of passes"
#define OWN_STEPS   "a prompt that does not fit into a step (--max-num-batched-tokens) is always stored in chunks"
#define OWN_PLAN    "the scheduler plans one step at a time"
#define NO_PROMPTS  "prompts are never logged"
#define ONE_LOOP    "the HTTP frontend is one process"
#define GENERATES   "the models generate text"

const um_foreign um_foreign_options[] = {
    /* several devices */
    {"pipeline_parallel_size,pp_size,pp", NUMBER, "1", NULL, ALL_LAYERS},
    {"expert_parallel_size,ep_size,ep", NUMBER, "1", NULL, OWN_EXPERTS},
    {"moe_dispatcher_backend,moe_a2a_backend", WORD, "standard|naive|none", NULL, NO_EXCHANGE},
    {"deepep_mode", WORD, NULL, NULL, NO_EXCHANGE},
    {"deepep_num_max_dispatch_tokens_per_rank", NUMBER, NULL, NULL, NO_EXCHANGE},
    {"enable_dp_attention", SWITCH, "false", NULL, ALL_LAYERS},
    {"distributed_executor_backend", WORD, "mp|uni", NULL, NO_EXECUTOR},
    {"distributed_backend", WORD, NULL, NULL, NO_GROUP},
    {"nccl_port", NUMBER, NULL, NULL, NO_GROUP},
    {"shm_name", WORD, NULL, NULL, NO_GROUP},
    {"device_start,base_gpu_id", NUMBER, "0", NULL, NO_CUDA},

    /* execution of a pass */
    {"cuda_graph", SWITCH, NULL, "!enforce_eager", "sets enforce_eager to the opposite"},
    {"cuda_graph_max_bs", NUMBER, NULL, NULL,
     "graphs are recorded for up to --max-num-reqs requests; --cuda-graph-sizes lists other sizes"},
    {"max_seq_len_to_capture", NUMBER, NULL, NULL, NO_GRAPHS},
    {"enable_full_static_runner", SWITCH, NULL, NULL, NO_GRAPHS},
    {"disable_full_static_runner", SWITCH, NULL, NULL, NO_GRAPHS},
    {"enable_prefill_cudagraph", SWITCH, NULL, NULL, NO_GRAPHS},
    {"disable_prefill_cudagraph", SWITCH, NULL, NULL, NO_GRAPHS},
    {"prefill_cudagraph_max_len", NUMBER, NULL, NULL, NO_GRAPHS},
    {"enable_torch_compile,torch_compile,compile", SWITCH, NULL, NULL, NO_GRAPHS},
    {"disable_torch_compile", SWITCH, NULL, NULL, NO_GRAPHS},
    {"torch_compile_mode", WORD, NULL, NULL, NO_GRAPHS},
    {"enable_cudagraph_torch_compile", SWITCH, NULL, NULL, NO_GRAPHS},
    {"enable_vllm_layers", SWITCH, NULL, NULL, ONE_KERNEL},
    {"attn_impl,attention_backend", WORD, NULL, NULL, ONE_KERNEL},
    {"moe_gemm_impl,moe_runner_backend", WORD, NULL, NULL, ONE_KERNEL},
    {"sampling_backend", WORD, NULL, NULL, ONE_KERNEL},
    {"disable_custom_all_reduce", SWITCH, NULL, NULL, ALL_LAYERS},
    {"skip_warmup,skip_server_warmup", SWITCH, NULL, NULL, "there is no warm-up"},

    /* memory */
    {"swap_space", NUMBER, NULL, NULL, "a preempted request is computed again, not swapped"},
    {"cpu_offload_gb", NUMBER, "0", NULL, NO_SHARE},
    {"max_num_logits", NUMBER, NULL, NULL, NO_LOGITS},
    {"log_optimize_level", NUMBER, NULL, NULL, NO_LOGITS},
    {"max_logprobs", NUMBER, NULL, NULL, "the range of logprobs is fixed (`unmask list options`)"},
    {"k_cache_hdim_split_factor_x", NUMBER, NULL, NULL, "the backend chooses the layout of a page"},
    {"enable_prefix_caching", SWITCH, NULL, "!disable_prefix_caching", "sets disable_prefix_caching to the opposite"},

    /* the checkpoint */
    {"trust_remote_code", SWITCH, NULL, NULL, "the code of a checkpoint is never run"},
    {"config_format", WORD, "auto|hf", NULL, "a checkpoint has the layout of Hugging Face"},
    {"model_impl", WORD, "auto", NULL, "--model-name chooses the family"},
    {"tokenizer_mode", WORD, "auto|fast|hf", NULL, "the files of the tokenizer choose the format"},
    {"skip_tokenizer_init", SWITCH, "false", NULL, "the tokenizer is always loaded"},
    {"generation_config", WORD, "auto", NULL, "the defaults come from generation_config.json of the checkpoint"},
    {"runner", WORD, "auto|generate", NULL, GENERATES},
    {"task", WORD, "auto|generate", NULL, GENERATES},
    {"is_embedding", SWITCH, "false", NULL, GENERATES},

    /* adapters */
    {"use_lora", FOLDER, NULL, "lora", "--lora names the adapters"},
    {"enable_lora", SWITCH, NULL, NULL, "--lora names the adapters"},
    {"max_loras_per_batch", NUMBER, NULL, NULL, ALL_LOADED},
    {"max_cpu_loras", NUMBER, NULL, NULL, ALL_LOADED},

    /* scheduling and decoding */
    {"enable_chunked_prefill", SWITCH, NULL, NULL, OWN_STEPS},
    {"scheduling_policy", WORD, "fcfs|priority", NULL, "requests of equal priority run in the order of arrival"},
    {"schedule_conservativeness", NUMBER, NULL, NULL, "--max-num-reqs and --num-pages limit the running requests"},
    {"num_scheduler_steps", NUMBER, "1", NULL, OWN_PLAN},
    {"async_scheduling,disable_overlap_schedule", SWITCH, NULL, NULL, OWN_PLAN},
    {"guided_decoding_backend,grammar_backend", WORD, NULL, NULL, "there is one engine of grammars"},
    {"cont_batching", SWITCH, "true", NULL, "requests always share steps; --max-num-reqs limits their number"},
    {"flash_attn", WORD, NULL, NULL, ONE_KERNEL},
    {"jinja", SWITCH, "true", NULL, "a chat template is always rendered as it is"},
    {"stream_interval", NUMBER, "1", NULL, "settled text is sent at once; --snapshot-interval limits snapshots"},
    {"scheduler_cls", WORD, NULL, NULL, "--decoding-strategy chooses how to decode"},
    {"worker_cls", WORD, NULL, NULL, "--decoding-strategy chooses how to decode"},
    {"multi_block_prefix_full", SWITCH, NULL, NULL, "the strategy decides"},
    {"dmax_force_prefill_active", SWITCH, "false", NULL, "the strategy decides"},
    {"enable_vectorized_sampler", SWITCH, NULL, NULL, ONE_KERNEL},
    {"enable_vectorized_sampler_compile", SWITCH, NULL, NULL, ONE_KERNEL},
    {"auto_max_nfe_warmup_steps", NUMBER, NULL, NULL, EXACT_NFE},
    {"auto_max_nfe_tpf_floor", NUMBER, NULL, NULL, EXACT_NFE},

    /* the server */
    {"enable_metrics", SWITCH, NULL, "metrics", "sets metrics to the same value"},
    {"disable_uvicorn_access_log,disable_access_log", SWITCH, NULL, "!access_log", "sets access_log to the opposite"},
    {"enable_log_requests,log_requests", SWITCH, "false", NULL, NO_PROMPTS},
    {"disable_log_requests", SWITCH, NULL, NULL, NO_PROMPTS},
    {"disable_log_stats", SWITCH, NULL, NULL, "statistics are at /metrics; none are logged"},
    {"uvicorn_log_level", WORD, NULL, NULL, "--log-level and --access-log choose what is logged"},
    {"disable_frontend_multiprocessing", SWITCH, NULL, NULL, "--in-process runs the engines in the server's process"},
    {"api_server_count", NUMBER, "1", NULL, ONE_LOOP},
    {"tokenizer_worker_num", NUMBER, "1", NULL, ONE_LOOP},
    {"response_role", WORD, "assistant", NULL, "the role of an answer is always assistant"},
    {"enable_auto_tool_choice", SWITCH, NULL, NULL, "--tool-call-parser turns tool calls on"},
    {"enable_reasoning", SWITCH, NULL, NULL, "--reasoning-parser separates the reasoning"},
};
const size_t um_n_foreign_options = UM_LEN(um_foreign_options);
