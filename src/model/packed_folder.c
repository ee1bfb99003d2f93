/* The files of a packed folder besides its weights: copies of the checkpoint's small files, and a model card. */
#include "model/packed_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/checkpoint.h"

#define SMALL_FILE_MAX ((size_t)256 << 20)
#define CARD           "README.md"
#define CARD_OF_SOURCE "README.original.md"

/* ---- The folder -------------------------------------------------------------------------------------------------- */

/* Returns whether a name fits one of the patterns [n]. */
static bool fits(const char *name, const char *const *pattern, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!fnmatch(pattern[i], name, FNM_CASEFOLD)) return true;
    return false;
}

/* The small files of a checkpoint that a packed folder takes over, besides the card. */
static bool is_copied(const char *name) {
    static const char *const patterns[] = {"config.json",
                                           "generation_config.json",
                                           "tokenizer.json",
                                           "tokenizer_config.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "added_tokens.json",
                                           "*.tiktoken",
                                           "special_tokens_map.json",
                                           "tokenizer.model",
                                           "chat_template*",
                                           "licen[cs]e*",
                                           "copying*",
                                           "notice*",
                                           "*use_policy*"};
    return fits(name, patterns, UM_LEN(patterns));
}

/* Weights that are not those of a packed folder. */
static bool is_foreign(const char *name) {
    static const char *const patterns[] = {"*.safetensors", "*.safetensors.index.json", "*.gguf", "*.bin", "*.pth"};
    return strcmp(name, UM_PACKED_FILE) && fits(name, patterns, UM_LEN(patterns));
}

/* Calls fn for each file of a folder until one call fails. */
static um_status each_file(const char *dir, um_status (*fn)(void *arg, const char *name, um_err *err), void *arg,
                           um_err *err) {
    DIR *d = opendir(dir);
    um_status s = d ? UM_OK : um_fail(err, UM_EIO, "%s: cannot read the folder: %s", dir, strerror(errno));
    for (struct dirent *e = d ? readdir(d) : NULL; e && !s; e = readdir(d))
        if (!um_streq(e->d_name, ".") && !um_streq(e->d_name, "..")) s = fn(arg, e->d_name, err);
    if (d) closedir(d);
    return s;
}

typedef struct target {
    const char *dir;
    bool overwrite;
} target;

static um_status check_file(void *arg, const char *name, um_err *err) {
    const target *t = arg;
    if (!t->overwrite)
        return um_fail(err, UM_EINVAL, "%s is not empty: name another folder, or use --overwrite", t->dir);
    return is_foreign(name) ? um_fail(err, UM_EINVAL, "%s holds other weights, %s: name another folder", t->dir, name)
                            : UM_OK;
}

static bool is_same_folder(const char *a, const char *b) {
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

um_status um_packed_folder_make(const struct um_model *m, const char *dir, bool overwrite, bool *is_new, um_err *err) {
    target t = {dir, overwrite};
    *is_new = !mkdir(dir, 0777);
    if (!*is_new && errno != EEXIST)
        return um_fail(err, UM_EIO, "%s: cannot make the folder: %s", dir, strerror(errno));
    if (!um_dir_exists(dir)) return um_fail(err, UM_EINVAL, "%s: expected a folder, found a file", dir);
    if (is_same_folder(m->path, dir))
        return um_fail(err, UM_EINVAL, "%s is the folder of the model itself: name another one", dir);
    return each_file(dir, check_file, &t, err);
}

/* ---- Small files ------------------------------------------------------------------------------------------------- */

/* Removes a file of the model that was in the folder before. Only the name goes: a link may lead into another folder.
 */
static um_status remove_old(void *arg, const char *name, um_err *err) {
    char *path = um_path_join(arg, name);
    const bool is_old = is_copied(name) || um_streq(name, CARD) || um_streq(name, CARD_OF_SOURCE);
    um_status s = UM_OK;
    if (is_old && unlink(path) && errno != EISDIR)
        s = um_fail(err, UM_EIO, "%s: cannot remove: %s", path, strerror(errno));
    um_free(path);
    return s;
}

static um_status copy_file(const char *from_dir, const char *from, const char *to_dir, const char *to, um_err *err) {
    char *source = um_path_join(from_dir, from), *path = um_path_join(to_dir, to);
    um_buf text = {0};
    um_status s = UM_OK;
    if (um_file_exists(source)) {
        s = um_file_read(source, SMALL_FILE_MAX, &text, err);
        if (!s) s = um_file_replace(path, (um_str){text.data, text.len}, err);
    }
    um_buf_free(&text);
    um_free(source);
    um_free(path);
    return s;
}

typedef struct copying {
    const char *from, *to;
} copying;

static um_status write_text(const char *dir, const char *name, um_str text, um_err *err) {
    char *path = um_path_join(dir, name);
    um_status s = um_file_replace(path, text, err);
    um_free(path);
    return s;
}

static um_status write_json(const char *dir, const char *name, const json_t *json, um_err *err) {
    char *text = json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    um_status s = write_text(dir, name, um_str_of(text), err);
    free(text); /* jansson's */
    return s;
}

/* Writes config.json without the field that says how the source is quantised, if the source has it. */
static um_status copy_config(const char *from, const char *to, um_err *err) {
    json_t *config;
    char *where;
    um_status s = um_checkpoint_config(&config, &where, from, err);
    if (!s && !json_object_del(config, "quantization_config")) s = write_json(to, "config.json", config, err);
    else if (!s) s = copy_file(from, "config.json", to, "config.json", err);
    json_decref(config);
    um_free(where);
    return s;
}

static um_status copy_small(void *arg, const char *name, um_err *err) {
    const copying *c = arg;
    if (um_streq(name, "config.json")) return copy_config(c->from, c->to, err);
    return is_copied(name) ? copy_file(c->from, name, c->to, name, err) : UM_OK;
}

static um_status copy_template(void *arg, const char *name, um_err *err) {
    const copying *c = arg;
    return copy_file(c->from, name, c->to, name, err);
}

/* Copies the named chat templates, which have a folder of their own. */
static um_status copy_templates(const char *from, const char *to, um_err *err) {
    static const char folder[] = "additional_chat_templates";
    char *source = um_path_join(from, folder), *path = um_path_join(to, folder);
    copying c = {source, path};
    um_status s = UM_OK;
    if (um_dir_exists(source)) {
        if (mkdir(path, 0777) && errno != EEXIST)
            s = um_fail(err, UM_EIO, "%s: cannot make the folder: %s", path, strerror(errno));
        if (!s) s = each_file(source, copy_template, &c, err);
    }
    um_free(source);
    um_free(path);
    return s;
}

static um_status copy_files(const char *from, const char *to, um_err *err) {
    copying c = {from, to};
    um_status s = each_file(from, copy_small, &c, err);
    if (!s) s = copy_templates(from, to, err);
    return s ? s : copy_file(from, CARD, to, CARD_OF_SOURCE, err);
}

/* Writes the files that say the same as the metadata of a GGUF file. */
static um_status convert_files(const char *from, const char *to, um_err *err) {
    json_t *config;
    char *where;
    um_buf tokenizer = {0}, side = {0};
    um_status s = um_checkpoint_config(&config, &where, from, err);
    if (!s) s = um_checkpoint_texts(from, &tokenizer, &side, err);
    if (!s) s = write_json(to, "config.json", config, err);
    if (!s) s = write_text(to, "tokenizer.json", (um_str){tokenizer.data, tokenizer.len}, err);
    if (!s) s = write_text(to, "tokenizer_config.json", (um_str){side.data, side.len}, err);
    um_buf_free(&tokenizer);
    um_buf_free(&side);
    json_decref(config);
    um_free(where);
    return s;
}

/* ---- The model card ---------------------------------------------------------------------------------------------- */

/* Appends the lines about the licence from the head of the source's card: those between two lines "---". */
static void put_licence(const char *dir, um_buf *out) {
    char *path = um_path_join(dir, CARD);
    um_buf card = {0};
    const char *p = um_file_exists(path) && !um_file_read(path, SMALL_FILE_MAX, &card, NULL) ? card.data : "";
    bool is_head = p && !strncmp(p, "---\n", 4);
    for (p = is_head ? p + 4 : p; is_head && *p;) {
        const size_t n = strcspn(p, "\n");
        is_head = n != 3 || strncmp(p, "---", 3) != 0;
        if (is_head && !strncmp(p, "license", 7)) um_buf_printf(out, "%.*s\n", (int)n, p);
        p += n + (p[n] == '\n');
    }
    um_buf_free(&card);
    um_free(path);
}

static void put_examples(const um_card *c, um_buf *out) {
    if (c->n_examples) um_buf_puts(out, "examples:\n");
    for (int32_t i = 0; i < c->n_examples; i++) {
        um_buf_puts(out, "  - ");
        um_yaml_put_quoted(out, c->example[i]);
        um_buf_putc(out, '\n');
    }
}

static bool has_card(const char *dir) {
    char *path = um_path_join(dir, CARD);
    const bool has = um_file_exists(path);
    um_free(path);
    return has;
}

static const char *describe_type(um_dtype type) {
    switch (type) {
    case UM_Q8: return "q8: integers of 8 bits with an fp16 scale for each 32, 8.5 bits per weight";
    case UM_Q4: return "q4: integers of 4 bits with an fp16 scale for each 32, 4.5 bits per weight";
    default: return "bfloat16";
    }
}

static void put_card(const struct um_model *m, const char *name, um_dtype type, const um_packed_report *r,
                     um_buf *out) {
    const char *type_name = type == UM_BF16 ? "bf16" : um_dtype_name(type);
    char in[UM_BYTES_TEXT], size[UM_BYTES_TEXT], parameters[UM_COUNT_TEXT];
    um_buf_puts(out, "---\n");
    put_licence(m->path, out);
    put_examples(&m->card, out);
    if (strchr(name, '/') && name[0] != '/' && name[0] != '.' && !um_dir_exists(name))
        um_buf_printf(out, "base_model: %.*s\n", (int)strcspn(name, ":"), name);
    um_buf_puts(out, UM_PACKED_CARD_LINE "\n---\n\n");
    const char *slash = strrchr(name, '/');
    const char *last = slash && slash[1] ? slash + 1 : name;
    um_buf_printf(out, "# %s, %s\n\n", last, type_name);
    um_buf_printf(
        out,
        "The weights of the diffusion language model %s, packed for the engine unmask. They are mapped and used "
        "as they lie.\n\n| | |\n| --- | --- |\n",
        last);
    um_buf_printf(out, "| family | %s |\n| parameters | %s |\n| matrices | %s |\n", m->arch.family->name,
                  um_count_text(parameters, (double)r->n_params), describe_type(type));
    um_buf_printf(out, "| size | %s; the source has %s |\n", um_bytes_text(size, (double)r->bytes_out),
                  um_bytes_text(in, (double)r->bytes_in));
    um_buf_printf(out, "| rounding error | %.2f %% of the weights (root mean square, of a sample of each matrix)%s |\n",
                  100 * r->error,
                  r->is_rounded ? "; the source was rounded before, and its own error is not known" : "");
    if (m->merged) um_buf_printf(out, "| adapter | %s, added to the weights |\n", m->adapter[0].name);
    um_buf_printf(out,
                  "\nMade with unmask %s:\n\n    unmask quantize --model %s --type %s --out DIR\n\nUsed with:\n\n    "
                  "unmask run --model DIR \"a prompt\"\n",
                  um_version(), last, type_name);
    if (has_card(m->path)) um_buf_puts(out, "\nThe card of the source is in " CARD_OF_SOURCE ".\n");
}

um_status um_packed_folder_fill(const struct um_model *m, const char *name, const char *dir, um_dtype type,
                                const um_packed_report *report, um_err *err) {
    um_buf card = {0};
    um_status s = each_file(dir, remove_old, (void *)(uintptr_t)dir, err);
    if (!s) s = um_checkpoint_is_gguf(m->path) ? convert_files(m->path, dir, err) : copy_files(m->path, dir, err);
    put_card(m, name, type, report, &card);
    if (!s) s = write_text(dir, CARD, (um_str){card.data, card.len}, err);
    um_buf_free(&card);
    return s;
}
