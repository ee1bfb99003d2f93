/* Tokens that have the same id in all releases of a family. If a tokenizer of the same size has other ids for them, the
 * folder contains files of another model. Added tokens of only some releases are left out where their ids differ. */
#include "model/config.h"

const um_known_token um_tokens_llada[] = {
    {"<|startoftext|>", 126080},     {"<|endoftext|>", 126081}, {"<|mdm_mask|>", 126336},
    {"<|start_header_id|>", 126346}, /* the last three exist in the instruct models only */
    {"<|end_header_id|>", 126347},   {"<|eot_id|>", 126348},    {NULL, 0},
};

const um_known_token um_tokens_ling[] = {
    {"<|startoftext|>", 156891}, {"<|endoftext|>", 156892}, {"<|mask|>", 156895},
    {"<tool_call>", 156896},     {"</tool_call>", 156897},  {"<|role_end|>", 156900},
    {"<role>", 157151},          {"</role>", 157152},       {NULL, 0},
};

const um_known_token um_tokens_qwen2[] = {
    {"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645},
    {"<tool_call>", 151657},   {"</tool_call>", 151658}, {NULL, 0},
};

const um_known_token um_tokens_dream[] = {
    {"<|endoftext|>", 151643}, {"<|im_start|>", 151644},    {"<|im_end|>", 151645}, {"<tool_call>", 151657},
    {"</tool_call>", 151658},  {"<|beginoftext|>", 151665}, {"<|mask|>", 151666},   {NULL, 0},
};

const um_known_token um_tokens_qwen3[] = {
    {"<|endoftext|>", 151643},    {"<|im_start|>", 151644},
    {"<|im_end|>", 151645},       {"<tool_call>", 151657},
    {"</tool_call>", 151658},     {"<tool_response>", 151665},
    {"</tool_response>", 151666}, {"<think>", 151667},
    {"</think>", 151668},         {NULL, 0},
};

const um_known_token um_tokens_seed[] = {
    {"<[begin\u2581of\u2581sentence]>", 0},
    {"<[PAD\u2581TOKEN]>", 1},
    {"<[end\u2581of\u2581sentence]>", 2},
    {"<[MASK_TOKEN]>", 5},
    {NULL, 0},
};
