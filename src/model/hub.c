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

/* Reads the names of the GGUF files of a folder without a config.json. Returns their number. */
static int list_gguf(const char *dir, struct dirent ***entry) {
    char *config = um_path_join(dir, "config.json");
    const int n = um_file_exists(config) ? 0 : scandir(dir, entry, is_gguf_entry, alphasort);
    um_free(config);
    return UM_MAX(n, 0);
}

static void free_entries(struct dirent **entry, int n) {
    for (int i = 0; i < n; i++) free(entry[i]); /* scandir's */
    free(entry);
}

/* Returns whether the folder has a config.json or GGUF files. */
static bool is_checkpoint(const char *dir) {
    struct dirent **entry = NULL;
    char *config = um_path_join(dir, "config.json");
    const int n = list_gguf(dir, &entry);
    const bool is_one = n > 0 || um_file_exists(config);
    free_entries(entry, n);
    um_free(config);
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
                   "'huggingface-cli download %s'",
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
    if (!*path && !s)
        s = um_fail(err, UM_ENOENT,
                    "%.80s: no such folder, and no model of that name in the Hugging Face cache (looked in "
                    "%.160s); unmask downloads nothing: fetch it with 'huggingface-cli download %.80s'%s",
                    name, n ? looked.data : "no folder, HOME is unset", name, bundled.len ? bundled.data : "");
    um_buf_free(&looked);
    um_buf_free(&bundled);
    return s;
}

static um_status fail_unknown(const char *name, um_err *err) {
    um_buf bundled = {0};
    put_bundled(&bundled);
    um_status s = um_fail(err, UM_ENOENT,
                          "%.200s: no such folder; name the folder of a checkpoint, or ORG/NAME of one in the local "
                          "Hugging Face cache%s",
                          name, bundled.len ? bundled.data : "");
    um_buf_free(&bundled);
    return s;
}

/* ---- Paths ------------------------------------------------------------------------------------------------------- */

/* Returns whether the file begins with the mark of the format. */
static bool is_gguf_file(const char *path) {
    char mark[4] = {0};
    FILE *f = fopen(path, "rbe");
    const bool is_read = f && fread(mark, 1, sizeof mark, f) == sizeof mark;
    if (f) fclose(f);
    return is_read && !memcmp(mark, "GGUF", sizeof mark);
}

/* Finds the GGUF file of a folder without a config.json. Such a folder must hold one only. */
static um_status find_in_folder(char **path, const char *dir, um_err *err) {
    struct dirent **entry = NULL;
    const int n = list_gguf(dir, &entry);
    um_status s = UM_OK;
    um_buf names = {0};
    for (int i = 0; i < n; i++) um_buf_printf(&names, "%s%s", i ? ", " : "", entry[i]->d_name);
    if (n > 1) s = um_fail(err, UM_EINVAL, "%s holds %d GGUF files: name one of %s", dir, n, names.data);
    else *path = n == 1 ? um_path_join(dir, entry[0]->d_name) : um_strdup(dir);
    free_entries(entry, n);
    um_buf_free(&names);
    return s;
}

static um_status find_file(char **path, const char *name, um_err *err) {
    if (!is_gguf_name(name) && !is_gguf_file(name))
        return um_fail(err, UM_EINVAL,
                       "%s is not a GGUF file; a model is such a file or a folder with config.json, tokenizer.json and "
                       "model.safetensors: give the folder",
                       name);
    *path = um_strdup(name);
    return UM_OK;
}

um_status um_model_find(char **path, const char *name, um_err *err) {
    *path = NULL;
    if (!name || !*name) return um_fail(err, UM_EINVAL, "no model given: name a checkpoint folder with --model");
    if (um_dir_exists(name)) return find_in_folder(path, name, err);
    if (um_file_exists(name)) return find_file(path, name, err);
    *path = um_bundled_find(name);
    if (*path) return UM_OK;
    if (is_gguf_name(name)) return um_fail(err, UM_ENOENT, "%.200s: no such file", name);
    if (!is_hub_name(name)) return fail_unknown(name, err);
    char *snapshot = NULL;
    um_status s = find_hub(&snapshot, name, err);
    if (!s) s = find_in_folder(path, snapshot, err);
    um_free(snapshot);
    return s;
}
