/* Built-in templates for checkpoints without a template. The Makefile converts the files of templates/ to C arrays. */
#include "text/chat.h"

static const char llada[] = {
#include "templates/llada.inc"
};
static const char llada2[] = {
#include "templates/llada2.inc"
};
static const char gemma4[] = {
#include "templates/gemma4.inc"
};
static const char qwen2_5[] = {
#include "templates/qwen2_5.inc"
};
static const char qwen3[] = {
#include "templates/qwen3.inc"
};

#define SOURCE(a)                                                                                                      \
    { a, sizeof(a) }

const um_chat_builtin um_chat_builtins[] = {
    {"llada", SOURCE(llada), "<|eot_id|>", NULL},
    {"llada2", SOURCE(llada2), "<|role_end|>", NULL},
    {"gemma4", SOURCE(gemma4), "<turn|>", NULL},
    {"qwen2_5", SOURCE(qwen2_5), "<|im_end|>", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
    {"dream", SOURCE(qwen2_5), "<|im_end|>", "You are a helpful assistant."},
    {"qwen3", SOURCE(qwen3), "<|im_end|>", NULL},
};
const size_t um_n_chat_builtins = UM_LEN(um_chat_builtins);

const um_chat_builtin *um_chat_builtin_find(const char *name) {
    for (size_t i = 0; name && i < um_n_chat_builtins; i++)
        if (um_streq(um_chat_builtins[i].name, name)) return &um_chat_builtins[i];
    return NULL;
}
