/* checkpoint: the parts of a checkpoint, which is a folder or a GGUF file. For whoever opens one by its path. */
#ifndef UM_MODEL_CHECKPOINT_H
#define UM_MODEL_CHECKPOINT_H

#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns whether the path of a checkpoint is that of a file. A folder has the files of Hugging Face's libraries. */
bool um_checkpoint_is_gguf(const char *path);
/* Reads config.json, or makes one from a GGUF file. *where is the name of the file for messages (um_free), also after
 * an error. *out is released with json_decref. Errors: UM_ENOENT, UM_EPARSE, those of um_gguf_config. */
um_status um_checkpoint_config(struct json_t **out, char **where, const char *path, um_err *err);
/* Does the work of um_tok_open. */
um_status um_checkpoint_tok(um_tok **out, const char *path, um_err *err);
/* Does the work of um_chat_open. */
um_status um_checkpoint_chat(um_chat **out, const char *path, const um_tok *t, const char *given, const char *builtin,
                             um_err *err);
/* Opens the weights of a model of the family f, which um_arch_load has found. Tensors have the names of the family,
 * also where the files have a second name (um_family.alias). *out is released with um_store_close. Errors: those of
 * um_store_open and um_gguf_open. */
um_status um_checkpoint_weights(um_store **out, const char *path, const um_family *f, um_err *err);
/* Appends the texts of the tokenizer.json and the tokenizer_config.json that say the same as a GGUF file. NULL leaves
 * out the first one. */
um_status um_checkpoint_texts(const char *path, um_buf *tokenizer, um_buf *config, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
