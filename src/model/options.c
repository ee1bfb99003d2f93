/* Option rows of what a model is opened with. */
#include "model/model.h"

#define C(field) UM_FIELD(um_config, field)

const um_option um_model_options[] = {
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
    {"threads", NULL, UM_OPT_INT, C(threads), 1, 1024, NULL, "auto", "0", "N", "Engine",
     "threads; auto is one per core"},
    {"max_num_batched_tokens", NULL, UM_OPT_INT, C(max_num_batched_tokens), 1, 1048576, NULL, "auto", "0", "N",
     "Engine", "most tokens of one step; auto is what the prompt of run and chat needs, else 4096"},
};
const size_t um_n_model_options = UM_LEN(um_model_options);

um_status um_config_check(const um_config *c, um_err *err) {
    um_config copy; /* a set is of what may be written */
    if (c->size != sizeof(*c))
        return um_fail(err, UM_EINVAL,
                       "um_config: size is %zu, expected %zu; call um_config_init first, with the header of this "
                       "library",
                       c->size, sizeof(*c));
    copy = *c;
    return um_options_check(&(um_option_set){um_model_options, um_n_model_options, &copy}, 1, err);
}
