/* A checkpoint folder: tokenizer, weights, and at the end the configuration that makes it a checkpoint. */
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint.h"

#define FILE_BYTES_MAX ((size_t)256 << 20) /* of a file of a tokenizer */

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static um_status write_json(const char *dir, const char *name, const json_t *value, um_err *err) {
    char *path = um_path_join(dir, name), *text = json_dumps(value, JSON_INDENT(2));
    um_status s = um_file_replace(path, um_str_of(text), err);
    free(text);
    um_free(path);
    return s;
}

static um_status copy_file(const char *from, const char *dir, const char *name, um_err *err) {
    char *to = um_path_join(dir, name);
    um_buf data = {0};
    um_status s = um_file_read(from, FILE_BYTES_MAX, &data, err);
    if (!s) s = um_file_replace(to, (um_str){data.data, data.len}, err);
    um_buf_free(&data);
    um_free(to);
    return s;
}

/* ---- Tokenizer --------------------------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end) {
    const size_t n = strlen(name), k = strlen(end);
    return n > k && um_streq(name + n - k, end);
}

/* A file of a tokenizer by the names that checkpoints use. */
static bool is_tokenizer_file(const char *name) {
    static const char *const names[] = {"tokenizer.json",          "tokenizer_config.json", "vocab.json",
                                        "special_tokens_map.json", "added_tokens.json",     "merges.txt",
                                        "tokenizer.model",         "chat_template.jinja"};
    for (size_t i = 0; i < UM_LEN(names); i++)
        if (um_streq(name, names[i])) return true;
    return ends_with(name, ".tiktoken");
}

static um_status copy_tokenizer_folder(const char *from, const char *dir, um_err *err) {
    um_status s = UM_OK;
    DIR *d = opendir(from);
    if (!d) return um_fail(err, UM_ENOENT, "%s: cannot open: %s", from, strerror(errno));
    for (struct dirent *e = readdir(d); e && !s; e = readdir(d)) {
        if (!is_tokenizer_file(e->d_name)) continue;
        char *path = um_path_join(from, e->d_name);
        s = copy_file(path, dir, e->d_name, err);
        um_free(path);
    }
    closedir(d);
    return s;
}

/* build/data/tokenizers/NAME of the tree that this program was built in; NULL when it is not there. um_free. */
static char *find_tokenizer(const char *name) {
    char tree[4096];
    const ssize_t n = readlink("/proc/self/exe", tree, sizeof tree - 1);
    tree[n > 0 ? n : 0] = '\0';
    for (char *slash; (slash = strrchr(tree, '/'));) {
        um_buf path = {0};
        *slash = '\0';
        um_buf_printf(&path, "%s/build/data/tokenizers/%s", tree, name);
        if (um_dir_exists(path.data)) return um_buf_take(&path);
        um_buf_free(&path);
    }
    return NULL;
}

/* Writes what the release says of its special tokens into tokenizer_config.json, beside what the file says already. */
static um_status add_special_tokens(const um_release *r, const char *dir, um_err *err) {
    char *path = um_path_join(dir, "tokenizer_config.json");
    um_buf text = {0};
    json_t *config = NULL;
    um_status s = UM_OK;
    um_buf_puts(&text, "{}");
    if (um_file_exists(path)) s = um_file_read(path, FILE_BYTES_MAX, &text, err);
    if (!s) s = um_json_parse_exact(&config, text.data, text.len, path, err); /* some hold an integer of 31 digits */
    if (!s) {
        json_object_update(config, json_object_get(r->facts, "special"));
        um_buf_clear(&text);
        um_json_put_exact(config, &text);
        s = um_file_replace(path, (um_str){text.data, text.len}, err);
    }
    json_decref(config);
    um_buf_free(&text);
    um_free(path);
    return s;
}

static um_status put_own_tokenizer(const um_release *r, const char *dir, um_err *err) {
    const char *name = um_release_tokenizer(r);
    char *from = find_tokenizer(name);
    if (!from)
        return um_fail(err, UM_ENOENT,
                       "build/data/tokenizers/%s is missing: run 'make build/data/tokenizers', or name a tokenizer "
                       "with --tokenizer",
                       name);
    um_status s = copy_tokenizer_folder(from, dir, err);
    if (!s) s = add_special_tokens(r, dir, err);
    um_free(from);
    return s;
}

um_status um_folder_put_tokenizer(const um_release *r, const char *dir, const char *tokenizer, um_err *err) {
    um_tok *tok = NULL;
    um_status s = !tokenizer                 ? put_own_tokenizer(r, dir, err)
                  : um_dir_exists(tokenizer) ? copy_tokenizer_folder(tokenizer, dir, err)
                                             : copy_file(tokenizer, dir, "tokenizer.json", err);
    if (!s) s = um_tok_open(&tok, dir, err);
    if (!s && um_tok_size(tok) > r->arch.vocab)
        s = um_fail(err, UM_EINVAL, "the tokenizer has %d ids, but %s has a vocabulary of %d only", um_tok_size(tok),
                    r->name, r->arch.vocab);
    um_tok_close(tok);
    return s;
}

/* ---- Configuration ----------------------------------------------------------------------------------------------- */

um_status um_folder_put_config(const um_release *r, const char *dir, um_dtype type, um_err *err) {
    const json_t *generation = json_object_get(r->facts, "generation");
    um_status s = generation ? write_json(dir, "generation_config.json", generation, err) : UM_OK;
    json_object_set_new(r->config, "torch_dtype", json_string(um_dtype_name(type)));
    return s ? s : write_json(dir, "config.json", r->config, err);
}

/* ---- The folder -------------------------------------------------------------------------------------------------- */

static bool is_dots(const char *name) { return um_streq(name, ".") || um_streq(name, ".."); }

/* Makes the folder, or takes one that is empty. */
static um_status make_folder(const char *dir, bool *made, um_err *err) {
    *made = mkdir(dir, 0777) == 0;
    if (*made) return UM_OK;
    if (errno != EEXIST) return um_fail(err, UM_EIO, "%s: cannot make the folder: %s", dir, strerror(errno));
    DIR *d = opendir(dir);
    if (!d) return um_fail(err, UM_EINVAL, "%s: cannot open the folder: %s", dir, strerror(errno));
    struct dirent *e = readdir(d);
    while (e && is_dots(e->d_name)) e = readdir(d);
    um_status s = e ? um_fail(err, UM_EINVAL, "%s: the folder is not empty, name a new one", dir) : UM_OK;
    closedir(d);
    return s;
}

/* Removes all files of a folder that was empty at the beginning, and the folder if this run made it. */
static void clear_folder(const char *dir, bool made) {
    DIR *d = opendir(dir);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        char *path = um_path_join(dir, e->d_name);
        if (!is_dots(e->d_name)) unlink(path);
        um_free(path);
    }
    if (d) closedir(d);
    if (made) rmdir(dir);
}

um_status um_folder_write(const um_release *r, const um_folder_options *o, um_err *err) {
    bool made;
    um_status s = make_folder(o->dir, &made, err);
    if (s) return s;
    s = um_folder_put_tokenizer(r, o->dir, o->tokenizer, err);
    if (!s) s = um_weights_write(o->dir, &r->arch, &o->weights, err);
    if (!s) s = um_folder_put_config(r, o->dir, o->weights.type, err);
    if (s) clear_folder(o->dir, made);
    return s;
}
