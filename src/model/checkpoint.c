/* Opens the parts of a checkpoint, which is a folder or a GGUF file. */
#include "model/checkpoint.h"

#include <jansson.h>

#include "model/config.h"
#include "model/gguf_model.h"

bool um_checkpoint_is_gguf(const char *path) { return um_file_exists(path); }

/* ---- Configuration ----------------------------------------------------------------------------------------------- */

static um_status gguf_config(json_t **out, const char *path, um_err *err) {
    um_gguf *g = NULL;
    um_status s = um_gguf_open(&g, path, err);
    if (!s) s = um_gguf_config(g, out, err);
    um_gguf_close(g);
    return s;
}

um_status um_checkpoint_config(json_t **out, char **where, const char *path, um_err *err) {
    const bool is_gguf = um_checkpoint_is_gguf(path);
    *out = NULL;
    *where = is_gguf ? um_strdup(path) : um_path_join(path, "config.json");
    um_status s = is_gguf ? gguf_config(out, path, err) : um_json_load(out, *where, err);
    if (s == UM_ENOENT && !is_gguf)
        return um_fail(err, UM_ENOENT,
                       "%.300s has no config.json; a model is a folder with config.json, tokenizer.json and "
                       "model.safetensors: give this folder, or a GGUF file",
                       path);
    return s;
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

um_status um_checkpoint_texts(const char *path, um_buf *tokenizer, um_buf *config, um_err *err) {
    um_gguf *g = NULL;
    um_status s = um_gguf_open(&g, path, err);
    if (!s) s = um_gguf_tokenizer(g, tokenizer, config, err);
    um_gguf_close(g);
    return s;
}

um_status um_checkpoint_tok(um_tok **out, const char *path, um_err *err) {
    um_buf tokenizer = {0}, config = {0};
    *out = NULL;
    if (!um_checkpoint_is_gguf(path)) return um_tok_open(out, path, err);
    um_status s = um_checkpoint_texts(path, &tokenizer, &config, err);
    if (!s)
        s = um_tok_parse(out, (um_str){tokenizer.data, tokenizer.len}, (um_str){config.data, config.len},
                         (um_str){NULL, 0}, path, err);
    um_buf_free(&tokenizer);
    um_buf_free(&config);
    return s;
}

um_status um_checkpoint_chat(um_chat **out, const char *path, const um_tok *t, const char *given, const char *builtin,
                             um_err *err) {
    um_buf config = {0};
    json_t *json = NULL;
    *out = NULL;
    if (!um_checkpoint_is_gguf(path)) return um_chat_open(out, path, t, given, builtin, err);
    um_status s = um_checkpoint_texts(path, NULL, &config, err);
    if (!s) s = um_json_parse(&json, config.data, config.len, path, err);
    if (!s) s = um_chat_open_own(out, path, json_object_get(json, "chat_template"), t, given, builtin, err);
    json_decref(json);
    um_buf_free(&config);
    return s;
}

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

um_status um_checkpoint_weights(um_store **out, const char *path, const um_family *f, um_err *err) {
    const bool is_file = um_checkpoint_is_gguf(path);
    um_store *s = is_file ? um_store_new() : NULL;
    um_status st = is_file ? um_gguf_store(s, path, f, err) : um_store_open(&s, path, err);
    if (!st) st = um_store_join_aliases(s, f, err);
    if (st) {
        um_store_close(s);
        s = NULL;
    }
    *out = s;
    return st;
}
