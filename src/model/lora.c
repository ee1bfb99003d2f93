/* The folder of an adapter: reads its tensors and checks them against the layers of the base model.
 *
 * A matrix is named "base_model.model.PATH.lora_A.weight", where PATH is the path of the module in the base checkpoint.
 * Some tools omit the prefix or ".weight", or insert the name of the adapter ("lora_A.default.weight"). Paths are
 * compared without a leading "model.", because checkpoints may omit it as well. */
#include <jansson.h>
#include <stdlib.h>

#include "model/loader.h"
#include "model/lora.h"

/* ---- Names ------------------------------------------------------------------------------------------------------- */

const char *um_lora_strip_prefix(const char *path) {
    while (!strncmp(path, "model.", 6)) path += 6;
    return path;
}

static const char *strip_key(const char *key) {
    return um_lora_strip_prefix(strncmp(key, "base_model.", 11) ? key : key + 11);
}

/* Returns 'A' or 'B' when `tail` is "lora_A", "lora_A.weight", "lora_A.NAME" or "lora_A.NAME.weight", or the same with
 * "lora_B"; else 0. */
static char matrix_letter(const char *tail) {
    const char letter = tail[5], *rest = tail + 6, *dot;
    if (letter != 'A' && letter != 'B') return 0;
    if (!*rest || !strcmp(rest, ".weight")) return letter;
    if (*rest++ != '.' || !*rest || !strncmp(rest, "bias", 4)) return 0;
    dot = strchr(rest, '.');
    return !dot || !strcmp(dot, ".weight") ? letter : 0;
}

static um_status fail_kind(const um_lora *a, const um_tensor *t, um_err *err) {
    const char *what = strstr(t->name, "lora_embedding_")         ? "of an embedding"
                       : strstr(t->name, "lora_magnitude_vector") ? "of DoRA"
                       : strstr(t->name, ".bias")                 ? "a bias"
                                                                  : "of a kind that unmask does not know";
    return um_fail(err, UM_EUNSUPPORTED, "%s/%s: tensor %s is %s; unmask supports LoRA of linear layers only", a->dir,
                   UM_LORA_FILE, t->name, what);
}

/* Returns the pair of the module with this path [n bytes], which is created if needed. Tensors are read in the order of
 * their names, so the two matrices of a module follow each other. */
static um_lora_pair *add_pair(um_lora *a, const char *path, size_t n) {
    um_lora_pair *last = a->n_pairs ? &a->pair[a->n_pairs - 1] : NULL;
    if (last && strlen(last->path) == n && !strncmp(last->path, path, n)) return last;
    a->pair[a->n_pairs] = (um_lora_pair){.path = um_arena_strndup(&a->arena, path, n)};
    return &a->pair[a->n_pairs++];
}

static um_status add_matrix(um_lora *a, const um_tensor *t, const char *path, const char *tail, um_err *err) {
    const char letter = matrix_letter(tail + 1);
    if (!letter) return fail_kind(a, t, err);
    um_lora_pair *p = add_pair(a, path, (size_t)(tail - path));
    const um_tensor **to = letter == 'A' ? &p->a : &p->b;
    if (*to)
        return um_fail(err, UM_EMODEL, "%s/%s: tensors %s and %s are the same matrix", a->dir, UM_LORA_FILE,
                       (*to)->name, t->name);
    *to = t;
    return UM_OK;
}

/* Returns the name without its part from `from` up to `rest`. */
static const char *remove_part(um_lora *a, const char *name, const char *from, const char *rest) {
    um_buf b = {0};
    um_buf_append(&b, name, (size_t)(from - name));
    um_buf_puts(&b, rest);
    const char *kept = um_arena_strndup(&a->arena, b.data, b.len);
    um_buf_free(&b);
    return kept;
}

/* Returns the base-model name of a tensor that replaces a tensor of the base model. PEFT wraps modules, and the wrapper
 * may be part of the name: "modules_to_save.NAME" for a saved module, "base_layer" for a head that also has matrices.
 * *stated is then set, and modules_to_save need not name the module. */
static const char *full_name(um_lora *a, const char *key, bool *stated) {
    static const char saved[] = ".modules_to_save.", base[] = ".base_layer.";
    const char *at = strstr(key, saved), *rest = at ? strchr(at + sizeof saved - 1, '.') : NULL;
    *stated = false;
    if (rest) return remove_part(a, key, at, rest);
    at = strstr(key, base);
    *stated = at != NULL;
    return at ? remove_part(a, key, at, at + sizeof base - 2) : key;
}

static um_status add_full(um_lora *a, const um_tensor *t, const char *key, um_err *err) {
    bool is_saved;
    const char *name = full_name(a, key, &is_saved), *dot = strrchr(name, '.');
    char *module = um_strndup(name, dot ? (size_t)(dot - name) : strlen(name));
    is_saved |= um_lora_config_saves(a->config, module);
    um_free(module);
    if (!is_saved)
        return um_fail(err, UM_EMODEL,
                       "%s/%s: tensor %s is no matrix of a linear layer, and \"modules_to_save\" does not name its "
                       "module",
                       a->dir, UM_LORA_FILE, t->name);
    if (um_lora_find_full(a, name))
        return um_fail(err, UM_EMODEL, "%s/%s: duplicate tensor %s", a->dir, UM_LORA_FILE, name);
    a->full[a->n_full++] = (um_lora_full){.name = name, .tensor = t};
    return UM_OK;
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static int by_path(const void *x, const void *y) {
    const um_lora_pair *a = x, *b = y;
    return strcmp(a->path, b->path);
}

static um_status check_pairs(um_lora *a, um_err *err) {
    qsort(a->pair, a->n_pairs, sizeof *a->pair, by_path);
    for (size_t i = 0; i < a->n_pairs; i++) {
        const um_lora_pair *p = &a->pair[i];
        if (!p->a || !p->b)
            return um_fail(err, UM_EMODEL, "%s/%s holds %s, but not lora_%c of the same module", a->dir, UM_LORA_FILE,
                           (p->a ? p->a : p->b)->name, p->a ? 'B' : 'A');
        if (i && !strcmp(p->path, p[-1].path))
            return um_fail(err, UM_EMODEL, "%s/%s: tensors %s and %s are the same matrix", a->dir, UM_LORA_FILE,
                           p[-1].a->name, p->a->name);
        a->has_experts |= strstr(p->path, ".experts.") != NULL;
    }
    return UM_OK;
}

static um_status read_tensors(um_lora *a, um_err *err) {
    const size_t n = um_store_count(a->tensors);
    if (!n) return um_fail(err, UM_EMODEL, "%s/%s holds no tensor", a->dir, UM_LORA_FILE);
    a->pair = UM_NEW_ARRAY(um_lora_pair, n);
    a->full = UM_NEW_ARRAY(um_lora_full, n);
    for (size_t i = 0; i < n; i++) {
        const um_tensor *t = um_store_at(a->tensors, i);
        const char *key = strip_key(t->name), *tail = strstr(key, ".lora_");
        if (!um_tensor_format(t))
            return um_fail(err, UM_EUNSUPPORTED, "%s/%s: tensor %s has type %s; unmask reads BF16, F16 and F32", a->dir,
                           UM_LORA_FILE, t->name, um_store_type(t));
        um_status s = tail ? add_matrix(a, t, key, tail, err) : add_full(a, t, key, err);
        if (s) return s;
        a->n_params += (int64_t)um_tensor_elements(t);
    }
    const char *word = um_lora_config_not_saved(a->config);
    if (word)
        return um_fail(err, UM_EMODEL, "%s/%s: \"modules_to_save\" names %.100s, but %s holds no tensor of it", a->dir,
                       UM_LORA_CONFIG, word, UM_LORA_FILE);
    return check_pairs(a, err);
}

/* Reports a folder without tensors in the format that unmask reads. */
static um_status fail_no_tensors(const um_lora *a, um_err *err) {
    char *bin = um_path_join(a->dir, "adapter_model.bin");
    bool found = um_file_exists(bin);
    um_free(bin);
    if (found)
        return um_fail(err, UM_EUNSUPPORTED,
                       "%s holds adapter_model.bin; unmask reads safetensors only: save the adapter as %s", a->dir,
                       UM_LORA_FILE);
    return um_fail(err, UM_ENOENT, "%s: %s is missing", a->dir, UM_LORA_FILE);
}

static um_status open_files(um_lora *a, um_err *err) {
    json_t *root = NULL;
    const char *kind = um_file_exists(a->dir) ? um_file_kind_at(a->dir) : NULL;
    if (kind) return um_fail(err, UM_EINVAL, "%s is %s; an adapter is a folder with %s", a->dir, kind, UM_LORA_CONFIG);
    if (!um_dir_exists(a->dir)) return um_fail(err, UM_ENOENT, "%s is not a folder", a->dir);
    char *config = um_path_join(a->dir, UM_LORA_CONFIG), *file = um_path_join(a->dir, UM_LORA_FILE);
    um_status s = um_json_load(&root, config, err);
    if (!s) s = um_lora_config_parse(&a->config, root, config, err);
    if (!s && !um_file_exists(file)) s = fail_no_tensors(a, err);
    if (!s) s = um_store_open_file(&a->tensors, a->dir, UM_LORA_FILE, err);
    if (!s) s = read_tensors(a, err);
    json_decref(root);
    um_free(config);
    um_free(file);
    return s;
}

um_status um_lora_open(um_lora *a, const char *name, const char *dir, um_err *err) {
    *a = (um_lora){.name = um_strdup(name), .dir = um_strdup(dir)};
    um_arena_init(&a->arena, 0);
    um_status s = open_files(a, err);
    if (!s) return UM_OK;
    um_lora_close(a);
    return um_fail_in(err, "adapter %s", name);
}

void um_lora_close_file(um_lora *a) {
    um_store_close(a->tensors);
    a->tensors = NULL;
    a->n_pairs = a->n_full = 0;
}

void um_lora_close(um_lora *a) {
    um_lora_close_file(a);
    um_lora_config_free(a->config);
    um_arena_free(&a->arena);
    um_free(a->pair);
    um_free(a->full);
    um_free(a->name);
    um_free(a->dir);
    *a = (um_lora){0};
}

/* ---- Looking up -------------------------------------------------------------------------------------------------- */

um_lora_pair *um_lora_find(const um_lora *a, const char *path) {
    const um_lora_pair key = {.path = um_lora_strip_prefix(path)};
    return a->n_pairs ? bsearch(&key, a->pair, a->n_pairs, sizeof key, by_path) : NULL;
}

um_lora_full *um_lora_find_full(const um_lora *a, const char *name) {
    name = um_lora_strip_prefix(name);
    for (size_t i = 0; i < a->n_full; i++)
        if (!strcmp(a->full[i].name, name)) return &a->full[i];
    return NULL;
}

/* ---- Against the base -------------------------------------------------------------------------------------------- */

/* Returns whether a target may lack matrices in the adapter. A word such as "ff_out" matches the head too, and training
 * programs may leave out the routers, or all experts together. */
static bool may_lack(const um_lora *a, const um_module *m) {
    return m->kind == UM_MODULE_HEAD || m->kind == UM_MODULE_ROUTER || (m->kind == UM_MODULE_EXPERT && !a->has_experts);
}

static um_status check_shape(const um_lora *a, const um_tensor *t, int64_t rows, int64_t cols, const char *why,
                             um_err *err) {
    char found[UM_SHAPE_TEXT];
    if (t->n_dims == 2 && t->dim[0] == rows && t->dim[1] == cols) return UM_OK;
    um_shape_print(found, t->dim, t->n_dims);
    return um_fail(err, UM_EMODEL, "adapter %s: tensor %s: expected [%lld, %lld], %s, found %s", a->name, t->name,
                   (long long)rows, (long long)cols, why, found);
}

static um_status check_pair(const um_lora *a, um_lora_pair *p, const um_module *m, const um_lora_terms *terms,
                            um_err *err) {
    char why[80];
    snprintf(why, sizeof why, "rank %d from %s and the size of the layer", terms->rank, UM_LORA_CONFIG);
    um_status s = check_shape(a, p->a, terms->rank, m->cols, why, err);
    if (!s) s = check_shape(a, p->b, m->rows, terms->rank, why, err);
    p->scale = terms->scale;
    p->used = true;
    return s;
}

um_status um_lora_check(um_lora *a, const um_module *m, bool merge, um_err *err) {
    um_lora_pair *p = um_lora_find(a, m->path);
    um_lora_terms terms;
    um_status s = um_lora_config_find(a->config, m->path, &terms, err);
    if (s) return um_fail_in(err, "adapter %s", a->name);
    if (!p && terms.is_target && !may_lack(a, m))
        return um_fail(err, UM_EMODEL, "adapter %s: %s is a target of %s, but %s has no lora_A and lora_B for it",
                       a->name, m->path, UM_LORA_CONFIG, UM_LORA_FILE);
    if (!p) return UM_OK;
    if (!terms.is_target)
        return um_fail(err, UM_EMODEL, "adapter %s: there is a tensor %s, but its module is no target of %s", a->name,
                       p->a->name, UM_LORA_CONFIG);
    if (!merge && (m->kind == UM_MODULE_EXPERT || m->kind == UM_MODULE_HEAD))
        return um_fail(err, UM_EUNSUPPORTED,
                       "adapter %s changes %s, %s; only a merged adapter can do this: load it alone with --lora-merge",
                       a->name, m->path, m->kind == UM_MODULE_HEAD ? "the head" : "a routed expert");
    return check_pair(a, p, m, &terms, err);
}

um_status um_lora_check_unused(const um_lora *a, const char *family, const char *layers, um_err *err) {
    const char *word = um_lora_config_no_target(a->config);
    if (word)
        return um_fail(err, UM_EMODEL,
                       "adapter %s: \"target_modules\" of %s/%s names %.100s, which is no linear layer of this %s "
                       "model: it has %s",
                       a->name, a->dir, UM_LORA_CONFIG, word, family, layers);
    for (size_t i = 0; i < a->n_pairs; i++)
        if (!a->pair[i].used)
            return um_fail(err, UM_EMODEL, "adapter %s: tensor %s belongs to no linear layer of this %s model", a->name,
                           a->pair[i].a->name, family);
    for (size_t i = 0; i < a->n_full; i++)
        if (!a->full[i].used)
            return um_fail(err, UM_EMODEL, "adapter %s: tensor %s replaces no tensor of this %s model", a->name,
                           a->full[i].tensor->name, family);
    return UM_OK;
}

um_status um_lora_check_values(const um_lora *a, int32_t check, um_err *err) {
    for (size_t i = 0; check != UM_CHECK_OFF && i < um_store_count(a->tensors); i++) {
        const um_tensor *t = um_store_at(a->tensors, i);
        size_t first, n = um_count_not_finite(NULL, t, &first);
        if (!n) continue;
        if (check == UM_CHECK_ERROR)
            return um_fail(err, UM_EMODEL, "adapter %s: %zu values of tensor %s are NaN or infinite; fetch it again",
                           a->name, n, t->name);
        um_warn("adapter %s: %zu values of tensor %s are NaN or infinite; answers will be wrong", a->name, n, t->name);
        return UM_OK;
    }
    return UM_OK;
}
