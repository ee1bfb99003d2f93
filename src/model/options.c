/* The options that um_model_open reads. */
#include "model/model.h"

#define C(field) UM_FIELD(um_config, field)

const um_option um_model_options[] = {
    {"model", "m,model_path", UM_OPT_STR, C(model), 0, 0, NULL, NULL, NULL, "DIR", "Model",
     "folder of a checkpoint, GGUF file, name of a bundled model (tiny-block, tiny-full), or name of a model in the "
     "local Hugging Face cache (ORG/NAME); NAME:Q8_0 chooses one of several GGUF files"},
    {"model_name", NULL, UM_OPT_NAME, C(model_name), 0, 0, NULL, "auto", "auto", "NAME", "Model",
     "model family (`unmask list families`); auto detects it"},
    {"mask_token_id", NULL, UM_OPT_INT, C(mask_token_id), 0, 16777215, NULL, "auto", "-1", "N", "Model",
     "token id of the mask; auto takes it from the checkpoint"},
    {"device", NULL, UM_OPT_NAME, C(device), 0, UM_DEVICES_MAX, "cpu|cuda|cuda:N|ref", "cpu", NULL, "NAME,...", "Model",
     "backend that computes; cuda:1 is the second NVIDIA GPU; cuda gives each engine of --data-parallel-size a GPU of "
     "its own, from cuda:0 on; cuda:0,cuda:2 names a GPU for each engine; ref is a slow reference in plain C"},
    {"device_ids", NULL, UM_OPT_NAME, C(device_ids), 0, UM_DEVICES_MAX, "N", "auto", "auto", "N,...", "Model",
     "numbers of the GPUs of --device cuda, one for each engine: 0,2 means cuda:0,cuda:2"},
    {"dtype", NULL, UM_OPT_NAME, C(dtype), 0, 0, "auto|float32|bfloat16", "auto", NULL, "TYPE", "Model",
     "number type of matrix products; auto means the type of the stored weights"},
    {"quantization", NULL, UM_OPT_NAME, C(quantization), 0, 0, "auto|none|q8|q4|fp8", "auto", NULL, "TYPE", "Model",
     "how the weights are kept; q8 and q4 round them to integers of 8 or 4 bits with a scale for each 32: a half or a "
     "quarter of the memory of bfloat16, and faster products with few rows (devices cpu and ref); fp8 rounds weights "
     "and the activations that they multiply to floats of 8 bits (e4m3) with a scale for each row; FP8 weights with a "
     "scale for each block of 128 x 128 stay as they are: half the memory and faster products (device cuda, Hopper "
     "GPUs); auto keeps them as the checkpoint stores them; none keeps or converts them to --dtype"},
    {"deterministic", NULL, UM_OPT_BOOL, C(deterministic), 0, 0, NULL, "true", NULL, NULL, "Model",
     "keep answers independent of the other requests in a step; with --no-deterministic a GPU may use faster products "
     "whose order of sums depends on those requests"},
    {"chat_template", NULL, UM_OPT_STR, C(chat_template), 0, 0, NULL, NULL, NULL, "FILE", "Model",
     "chat template to use instead of the model's own: a file, the text of a template, or a "
     "name: " UM_CHAT_BUILTIN_NAMES},
    {"special_in_content", NULL, UM_OPT_CHOICE, C(special_in_content), 0, 0, "auto|parse|text|strict|reject", "auto",
     NULL, "LEVEL", "Model",
     "what to do with text that spells a special token: convert it to the token (parse), keep it as text in messages "
     "of users and tools (text) or in nearly all messages (strict), or refuse the request (reject); auto means text "
     "for messages and parse for raw prompts"},
    {"load_format", NULL, UM_OPT_CHOICE, C(load_format), 0, 0, "auto|safetensors|dummy", "auto", NULL, "FORMAT",
     "Model",
     "where the weights come from: auto and safetensors read the files of the checkpoint; dummy makes random weights "
     "in "
     "the shapes of config.json, to measure speed and memory without a download; --model may then name a released "
     "shape, such as llada-8b or sdar-1.7b"},
    {"check_weights", NULL, UM_OPT_CHOICE, C(check_weights), 0, 0, "off|warn|error", "warn", NULL, "WHAT", "Model",
     "what to do about weights that are NaN or infinite: nothing, warn, or refuse to load; error also compares the "
     "checksums of packed folders"},
    {"lora", "lora_path,lora_modules", UM_OPT_STR, C(lora), 0, 0, NULL, NULL, NULL, "NAME=DIR,...", "Model",
     "LoRA adapters to load, as folders in PEFT's format; without NAME= the name is the last part of the path"},
    {"lora_merge", "pre_merge_lora", UM_OPT_BOOL, C(lora_merge), 0, 0, NULL, "false", NULL, NULL, "Model",
     "add the single adapter of --lora to the weights when loading, so that every request uses it"},
    {"max_loras", NULL, UM_OPT_INT, C(max_loras), 0, 64, NULL, "0", NULL, "N", "Model",
     "places for adapters that are loaded while the program runs (devices cpu and ref); a server with --lora-dir has 8 "
     "unless this option says otherwise"},
    {"max_lora_rank", NULL, UM_OPT_INT, C(max_lora_rank), 1, 256, NULL, "64", NULL, "N", "Model",
     "largest rank of the adapters in these places"},
    {"threads", "t", UM_OPT_INT, C(threads), 1, 1024, NULL, "auto", "0", "N", "Engine",
     "compute threads per engine; auto divides the available CPUs (affinity mask and cgroup quota) among the engines "
     "of --data-parallel-size"},
    {"tensor_parallel_size", "tensor_parallel,tp_size,tp", UM_OPT_INT, C(tensor_parallel_size), 1, UM_RANKS_MAX, NULL,
     "1", NULL, "N", "Engine",
     "devices that compute each engine's passes together: each has a part of the heads, of the feed-forward layers and "
     "of the vocabulary; on the CPU they are groups of threads of one process, or processes (--nnodes)"},
    {"enable_expert_parallel", NULL, UM_OPT_BOOL, C(enable_expert_parallel), 0, 0, NULL, "false", NULL, NULL, "Engine",
     "let each rank of --tensor-parallel-size have an equal number of the experts as a whole, in place of a part "
     "of the width of each expert; for mixtures of experts"},
    {"distributed_timeout_seconds", "dist_timeout", UM_OPT_FLOAT, C(distributed_timeout_seconds), 0.01, 86400, NULL,
     "300", NULL, "SECONDS", "Engine",
     "how long the ranks of --tensor-parallel-size wait for each other before the engine fails"},
    {"nnodes", "world_size", UM_OPT_INT, C(nnodes), 1, UM_RANKS_MAX, NULL, "1", "0", "N", "Engine",
     "processes, on one or more hosts, that compute the ranks of --tensor-parallel-size, one each; with device cuda "
     "each has one GPU; 1 means that this process computes all; auto takes WORLD_SIZE, OMPI_COMM_WORLD_SIZE, PMI_SIZE, "
     "SLURM_NTASKS or LWS_GROUP_SIZE from the environment"},
    {"rank", "node_rank", UM_OPT_INT, C(rank), 0, UM_RANKS_MAX - 1, NULL, "auto", "-1", "R", "Engine",
     "rank of this process among those of --nnodes; rank 0 takes the requests, and a process of another rank computes "
     "with it, whatever its command is; auto takes RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID or "
     "LWS_WORKER_INDEX from the environment, else 0"},
    {"master_addr", NULL, UM_OPT_NAME, C(master_addr), 0, 0, NULL, "auto", "auto", "HOST", "Engine",
     "host name or address at which rank 0 listens for the other ranks; auto takes MASTER_ADDR or LWS_LEADER_ADDRESS "
     "from the environment, else 127.0.0.1; ranks are not authenticated, so use a network that you trust"},
    {"master_port", NULL, UM_OPT_INT, C(master_port), 1, 65535, NULL, "auto", "0", "N", "Engine",
     "TCP port of rank 0 for the other ranks; auto takes MASTER_PORT from the environment, else 2333"},
    {"pin", NULL, UM_OPT_CHOICE, C(pin), 0, 0, "auto|on|off", "auto", NULL, "WHEN", "Engine",
     "keep each compute thread on a CPU of its own; auto does so when an engine has a thread for every CPU that the "
     "process may use, and at least 8; engines never share such a CPU, and several worker processes never pin"},
    {"max_num_batched_tokens", NULL, UM_OPT_INT, C(max_num_batched_tokens), 1, 1048576, NULL, "auto", "0", "N",
     "Engine",
     "largest number of tokens in one step; auto means 4096, and on a GPU up to 16384 where each of max_num_reqs "
     "requests may feed two blocks; for run and chat it means as many as prompt and answer need"},
};
const size_t um_n_model_options = UM_LEN(um_model_options);

um_status um_config_check(const um_config *c, um_err *err) {
    um_config copy; /* a set points to a struct that is not const */
    if (c->size != sizeof(*c))
        return um_fail(err, UM_EINVAL,
                       "um_config: size is %zu, expected %zu; call um_config_init first, with the header of this "
                       "library",
                       c->size, sizeof(*c));
    copy = *c;
    return um_options_check(&(um_option_set){um_model_options, um_n_model_options, &copy}, 1, err);
}
