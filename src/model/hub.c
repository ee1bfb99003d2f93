/* Finds the folder of a model by its name: a path, the name of a bundled checkpoint, or a hub name that is looked up in
 * the local Hugging Face cache.
 *
 * In the cache, the file models--ORG--NAME/refs/main contains the name of a revision, and the folder
 * models--ORG--NAME/snapshots/REVISION is the checkpoint. Nothing is ever downloaded. */
#include <dirent.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>

#include "model/model.h"
#include "model/packed.h"

#define CACHES_MAX     4
#define NAME_MAX_BYTES 200

/* Returns whether `name` is "org/name" of letters, digits, '-', '_' and '.'. The hub allows only such names, and a path
 * that is made of one can't leave the folder of the cache. */
static bool is_hub_name(const char *name) {
    int slashes = 0;
    size_t n = strlen(name);
    if (!n || n > NAME_MAX_BYTES || strstr(name, "..") || name[0] == '/' || name[0] == '.' || name[n - 1] == '/')
        return false;
    for (const char *p = name; *p; p++) {
        bool word = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9');
        if (*p == '/') slashes++;
        else if (!word && *p != '-' && *p != '_' && *p != '.') return false;
    }
    return slashes == 1;
}

/* Fills in the cache folders that the hub's own tools use, in their order. */
static int cache_folders(char *folder[CACHES_MAX]) {
    const char *cache = getenv("HF_HUB_CACHE"), *hf = getenv("HF_HOME"), *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int n = 0;
    if (cache && *cache) folder[n++] = um_strdup(cache);
    if (hf && *hf) folder[n++] = um_path_join(hf, "hub");
    if (xdg && *xdg) folder[n++] = um_path_join(xdg, "huggingface/hub");
    if (home && *home) folder[n++] = um_path_join(home, ".cache/huggingface/hub");
    return n;
}

/* Returns the path of models--ORG--NAME inside a cache folder. */
static char *model_folder(const char *cache, const char *name) {
    um_buf b = {0};
    um_buf_puts(&b, "models--");
    for (const char *p = name; *p; p++) {
        if (*p == '/') um_buf_puts(&b, "--");
        else um_buf_putc(&b, *p);
    }
    char *path = um_path_join(cache, b.data);
    um_buf_free(&b);
    return path;
}

static bool is_gguf_name(const char *name) {
    const size_t n = strlen(name);
    return n > 5 && name[0] != '.' && !strcasecmp(name + n - 5, ".gguf");
}

static int is_gguf_entry(const struct dirent *e) { return is_gguf_name(e->d_name); }

/* The GGUF files of a folder, in the order of their names. */
typedef struct gguf_list {
    struct dirent **entry; /* [n] */
    int n;
} gguf_list;

static gguf_list list_gguf(const char *dir) {
    gguf_list l = {0};
    const int n = scandir(dir, &l.entry, is_gguf_entry, alphasort);
    l.n = UM_MAX(n, 0);
    return l;
}

static void free_list(gguf_list *l) {
    for (int i = 0; i < l->n; i++) free(l->entry[i]); /* scandir's */
    free(l->entry);
}

static bool has_file(const char *dir, const char *name) {
    char *path = um_path_join(dir, name);
    const bool has = um_file_exists(path);
    um_free(path);
    return has;
}

/* Returns whether the folder has a configuration and safetensors. */
static bool is_complete(const char *dir) {
    return has_file(dir, "config.json") &&
           (has_file(dir, "model.safetensors") || has_file(dir, "model.safetensors.index.json") ||
            has_file(dir, UM_PACKED_FILE));
}

/* Returns whether the folder has a config.json or GGUF files. */
static bool is_checkpoint(const char *dir) {
    gguf_list l = list_gguf(dir);
    const bool is_one = l.n > 0 || has_file(dir, "config.json");
    free_list(&l);
    return is_one;
}

/* Returns the path of a snapshot, or NULL when it holds no checkpoint. After an interrupted download the folder lacks
 * config.json or has a broken link in its place. */
static char *snapshot_at(const char *snapshots, const char *revision) {
    char *path = um_path_join(snapshots, revision);
    if (is_checkpoint(path)) return path;
    um_free(path);
    return NULL;
}

/* Returns the revision that refs/main names, or NULL when there is none. Released with um_free. */
static char *main_revision(const char *model) {
    char *ref = um_path_join(model, "refs/main"), *revision = NULL;
    um_buf text = {0};
    if (um_file_exists(ref) && !um_file_read(ref, 256, &text, NULL) && text.len) {
        text.data[strcspn(text.data, " \t\r\n/")] = '\0';
        if (text.data[0] && text.data[0] != '.') revision = um_strdup(text.data);
    }
    um_buf_free(&text);
    um_free(ref);
    return revision;
}

/* Returns the snapshot whose folder was modified last, for a model without refs/main. */
static char *newest_snapshot(const char *snapshots) {
    DIR *d = opendir(snapshots);
    char *best = NULL;
    time_t best_time = 0;
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        struct stat st;
        char *path = e->d_name[0] == '.' ? NULL : snapshot_at(snapshots, e->d_name);
        if (path && !stat(path, &st) && (!best || st.st_mtime > best_time)) {
            um_free(best);
            best = path;
            best_time = st.st_mtime;
        } else {
            um_free(path);
        }
    }
    if (d) closedir(d);
    return best;
}

/* Returns the number of unfinished downloads. The hub's tools write a file to blobs/HASH.incomplete first. */
static int count_incomplete(const char *model) {
    static const char suffix[] = ".incomplete";
    char *blobs = um_path_join(model, "blobs");
    DIR *d = opendir(blobs);
    int n = 0;
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        size_t len = strlen(e->d_name);
        n += len >= sizeof suffix && !strcmp(e->d_name + len - (sizeof suffix - 1), suffix);
    }
    if (d) closedir(d);
    um_free(blobs);
    return n;
}

static um_status fail_incomplete(const char *model, const char *revision, const char *name, um_err *err) {
    char what[128] = "no snapshot is complete";
    if (revision) snprintf(what, sizeof what, "snapshots/%.64s has no config.json", revision);
    return um_fail(err, UM_ENOENT,
                   "%s: the download in %s is incomplete: %s, files still *.incomplete in blobs: %d; finish it with "
                   "'hf download %s'",
                   name, model, what, count_incomplete(model), name);
}

/* Looks for the model in one cache folder. Returns UM_OK and leaves *path NULL when the cache does not contain it. */
static um_status find_in_cache(char **path, const char *cache, const char *name, um_err *err) {
    char *model = model_folder(cache, name), *snapshots = um_path_join(model, "snapshots");
    char *revision = main_revision(model);
    um_status s = UM_OK;
    *path = revision ? snapshot_at(snapshots, revision) : newest_snapshot(snapshots);
    if (!*path && um_dir_exists(model)) s = fail_incomplete(model, revision, name, err);
    um_free(revision);
    um_free(snapshots);
    um_free(model);
    return s;
}

/* Appends the names of the bundled checkpoints, for messages about an unknown name. */
static void put_bundled(um_buf *out) {
    um_buf names = {0};
    um_bundled_append_names(&names);
    if (names.len) um_buf_printf(out, "; bundled models, which need no path: %s", names.data);
    um_buf_free(&names);
}

/* ---- Folders of checkpoints -------------------------------------------------------------------------------------- */

#define LISTED_MAX 8

static int is_visible(const struct dirent *e) { return e->d_name[0] != '.'; }

/* Appends the sorted names of the checkpoints in a folder, "tiny-block, tiny-full". */
static void put_checkpoints(const char *dir, um_buf *out) {
    struct dirent **entry = NULL;
    const int n = scandir(dir, &entry, is_visible, alphasort);
    int listed = 0, more = 0;
    for (int i = 0; i < n; i++) {
        char *path = um_path_join(dir, entry[i]->d_name);
        if (um_dir_exists(path) && is_checkpoint(path)) {
            if (listed++ < LISTED_MAX) um_buf_printf(out, "%s%s", out->len ? ", " : "", entry[i]->d_name);
            else more++;
        }
        um_free(path);
        free(entry[i]); /* scandir's */
    }
    free(entry);
    if (more) um_buf_printf(out, " and %d more", more);
}

/* Returns the folder that a path lies in. Released with um_free. */
static char *parent_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return um_strdup(".");
    return slash == path ? um_strdup("/") : um_strndup(path, (size_t)(slash - path));
}

/* Returns whether a name can only mean a path: it begins like one, or the folder that it names is there. */
static bool is_local(const char *name) {
    char *parent = parent_of(name);
    const bool is_path = strchr("./~", name[0]) || (strchr(name, '/') && um_dir_exists(parent));
    um_free(parent);
    return is_path;
}

static um_status fail_unknown(const char *name, um_err *err) {
    um_buf there = {0}, advice = {0};
    const bool is_path = strchr(name, '/') != NULL;
    char *parent = parent_of(name);
    if (is_path) put_checkpoints(parent, &there);
    if (there.len) {
        um_buf_printf(&advice, "the checkpoints in %.80s are: %.200s", parent, there.data);
    } else {
        um_buf_puts(&advice, "name the folder of a checkpoint");
        if (!is_path) um_buf_puts(&advice, ", or ORG/NAME of one in the local Hugging Face cache");
        put_bundled(&advice);
    }
    um_status s = um_fail(err, UM_ENOENT, "%.200s: no such folder; %s", name, advice.data);
    um_buf_free(&there);
    um_buf_free(&advice);
    um_free(parent);
    return s;
}

/* Fails when a folder is no checkpoint itself but holds some. */
static um_status check_folder(const char *dir, const char *name, um_err *err) {
    um_buf there = {0};
    um_status s = UM_OK;
    put_checkpoints(dir, &there);
    if (there.len)
        s = um_fail(err, UM_ENOENT,
                    "%.200s is not a checkpoint, but a folder that holds some; name one of them: %.300s", name,
                    there.data);
    um_buf_free(&there);
    return s;
}

static um_status find_hub(char **path, const char *name, um_err *err) {
    char *folder[CACHES_MAX];
    int n = cache_folders(folder);
    um_buf looked = {0}, bundled = {0};
    um_status s = UM_OK;
    put_bundled(&bundled);
    for (int i = 0; i < n; i++) {
        if (!*path && !s) s = find_in_cache(path, folder[i], name, err);
        um_buf_printf(&looked, "%s%s", i ? ", " : "", folder[i]);
        um_free(folder[i]);
    }
    if (!*path && !s && is_local(name)) s = fail_unknown(name, err);
    else if (!*path && !s)
        s = um_fail(err, UM_ENOENT,
                    "%.80s: no such folder, and no model of that name in the Hugging Face cache (looked in "
                    "%.160s); unmask downloads nothing: fetch it with 'hf download %.80s'%s",
                    name, n ? looked.data : "no folder, HOME is unset", name, bundled.len ? bundled.data : "");
    um_buf_free(&looked);
    um_buf_free(&bundled);
    return s;
}

/* ---- Paths ------------------------------------------------------------------------------------------------------- */

/* Returns whether words of the name of a file are `tag`, whatever their case. Words are separated by '-' and '.'; a tag
 * may also begin behind '_'. */
static bool has_tag(const char *file, const char *tag) {
    const size_t n = strlen(tag);
    for (const char *p = file; (p = strcasestr(p, tag)); p++)
        if ((p == file || strchr("-._", p[-1])) && (!p[n] || strchr("-.", p[n]))) return true;
    return false;
}

/* Returns the length of the words that all names begin with. */
static size_t common_words(const gguf_list *l) {
    const char *first = l->entry[0]->d_name;
    size_t n = strlen(first);
    for (int i = 0; i < l->n; i++)
        while (strncmp(first, l->entry[i]->d_name, n)) n--;
    while (n && !strchr("-.", first[n - 1])) n--;
    return l->n > 1 ? n : 0;
}

/* Appends the shortest tags of the files: the ends of their names, without ".gguf". */
static void put_tags(const gguf_list *l, um_buf *out) {
    const size_t common = common_words(l);
    for (int i = 0; i < l->n; i++) {
        const char *name = l->entry[i]->d_name + common;
        um_buf_printf(out, "%s%.*s", i ? ", " : "", (int)strlen(name) - 5, name);
    }
}

static um_status fail_choice(const gguf_list *l, const char *name, const char *tag, int n_fit, um_err *err) {
    um_buf tags = {0};
    um_status s;
    put_tags(l, &tags);
    if (tag && !n_fit)
        s = um_fail(err, UM_ENOENT, "%s holds no GGUF file of the name \"%s\": write %s:NAME with one of %s", name, tag,
                    name, tags.data);
    else
        s = um_fail(err, UM_EINVAL, "%s holds %d GGUF files%s%s: write %s:NAME with one of %s", name, n_fit,
                    tag ? " for " : "", tag ? tag : "", name, tags.data);
    um_buf_free(&tags);
    return s;
}

/* Finds the GGUF file that `tag` names, or the only one without a tag. `name` is the folder as the user called it. */
static um_status choose_file(char **path, const gguf_list *l, const char *dir, const char *name, const char *tag,
                             um_err *err) {
    int n_fit = 0, last = 0;
    for (int i = 0; i < l->n; i++) {
        if (tag && !has_tag(l->entry[i]->d_name, tag)) continue;
        last = i;
        n_fit++;
    }
    if (n_fit != 1) return fail_choice(l, name, tag, n_fit, err);
    *path = um_path_join(dir, l->entry[last]->d_name);
    return UM_OK;
}

/* Finds the checkpoint in a folder: the folder itself, or a GGUF file in it. */
static um_status find_in_folder(char **path, const char *dir, const char *name, const char *tag, um_err *err) {
    um_status s = UM_OK;
    if (!tag && is_complete(dir)) {
        *path = um_strdup(dir);
        return UM_OK;
    }
    gguf_list l = list_gguf(dir);
    if (l.n) s = choose_file(path, &l, dir, name, tag, err);
    else if (tag)
        s = um_fail(err, UM_ENOENT,
                    "%s holds no GGUF files, so \":%s\" chooses none: leave it out; --quantization q8 or q4 makes "
                    "weights smaller",
                    name, tag);
    else if (!has_file(dir, "config.json")) s = check_folder(dir, name, err);
    if (!s && !*path) *path = um_strdup(dir);
    free_list(&l);
    return s;
}

static um_status find_file(char **path, const char *name, um_err *err) {
    const char *kind = um_file_kind_at(name);
    if (!is_gguf_name(name) && !(kind && um_streq(kind, um_file_kind("GGUF", 4))))
        return um_fail(err, UM_EINVAL,
                       "%s is not a GGUF file%s%s; a model is such a file or a folder with config.json, tokenizer.json "
                       "and model.safetensors: give the folder",
                       name, kind ? " but " : "", kind ? kind : "");
    *path = um_strdup(name);
    return UM_OK;
}

/* Finds ORG/NAME in the cache, and ORG/NAME:TAG or FOLDER:TAG, where the tag chooses a GGUF file. */
static um_status find_named(char **path, const char *name, um_err *err) {
    const char *colon = strrchr(name, ':');
    char *base = colon ? um_strndup(name, (size_t)(colon - name)) : um_strdup(name), *dir = NULL;
    const char *tag = colon && colon[1] ? colon + 1 : NULL;
    um_status s = UM_OK;
    if (colon && um_dir_exists(base)) dir = um_strdup(base);
    else s = is_hub_name(base) ? find_hub(&dir, base, err) : fail_unknown(name, err);
    if (!s) s = find_in_folder(path, dir, base, tag, err);
    um_free(dir);
    um_free(base);
    return s;
}

um_status um_model_find(char **path, const char *name, um_err *err) {
    *path = NULL;
    if (!name || !*name) return um_fail(err, UM_EINVAL, "no model given: name a checkpoint folder with --model");
    if (um_dir_exists(name)) return find_in_folder(path, name, name, NULL, err);
    if (um_file_exists(name)) return find_file(path, name, err);
    *path = um_bundled_find(name);
    if (*path) return UM_OK;
    if (is_gguf_name(name) && !strchr(name, ':')) return um_fail(err, UM_ENOENT, "%.200s: no such file", name);
    return find_named(path, name, err);
}
