/* Finds the checkpoints that come with the program.
 *
 * Their folder is found relative to the executable. So an installation can be moved, and a program in the build tree
 * finds the models of its source tree. */
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/model.h"

#define NAMES_MAX 64

/* Returns whether `dir` is the folder of the bundled checkpoints. That folder also contains eval.jsonl, the questions
 * of `unmask eval`, which tells it from another folder named "models" further up. */
static bool is_bundle(const char *dir) {
    char *questions = um_path_join(dir, "eval.jsonl");
    bool found = um_file_exists(questions);
    um_free(questions);
    return found;
}

/* Returns dir/name if it is the folder of the bundled checkpoints, else NULL. */
static char *bundle_at(const char *dir, const char *name) {
    char *path = um_path_join(dir, name);
    if (is_bundle(path)) return path;
    um_free(path);
    return NULL;
}

/* Removes the last part of a path. Returns false when only the root would be left. */
static bool remove_last_part(char *path) {
    char *slash = strrchr(path, '/');
    if (!slash || slash == path) return false;
    *slash = '\0';
    return true;
}

char *um_bundled_folder(void) {
    char dir[4096], *found = NULL;
    ssize_t n = readlink("/proc/self/exe", dir, sizeof dir - 1);
    if (n <= 0) return NULL;
    dir[n] = '\0';
    if (!remove_last_part(dir)) return NULL;
    while (!found && remove_last_part(dir)) {
        found = bundle_at(dir, "share/unmask/models");
        if (!found) found = bundle_at(dir, "models");
    }
    return found;
}

/* Returns folder/name if it is a checkpoint, else NULL. */
static char *checkpoint_at(const char *folder, const char *name) {
    char *path = um_path_join(folder, name), *config = um_path_join(path, "config.json");
    bool found = um_file_exists(config);
    um_free(config);
    if (found) return path;
    um_free(path);
    return NULL;
}

char *um_bundled_find(const char *name) {
    if (!*name || name[0] == '.' || strchr(name, '/')) return NULL;
    char *folder = um_bundled_folder(), *path = folder ? checkpoint_at(folder, name) : NULL;
    um_free(folder);
    return path;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Reads the names of the checkpoints in a folder, at most NAMES_MAX. The caller frees each name. */
static size_t read_names(const char *folder, char *names[NAMES_MAX]) {
    size_t n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e = d ? readdir(d) : NULL; e && n < NAMES_MAX; e = readdir(d)) {
        char *path = e->d_name[0] == '.' ? NULL : checkpoint_at(folder, e->d_name);
        if (path) names[n++] = um_strdup(e->d_name);
        um_free(path);
    }
    if (d) closedir(d);
    return n;
}

void um_bundled_append_names(um_buf *out) {
    char *names[NAMES_MAX], *folder = um_bundled_folder();
    size_t n = folder ? read_names(folder, names) : 0;
    if (n) qsort(names, n, sizeof names[0], by_name);
    for (size_t i = 0; i < n; i++) {
        um_buf_printf(out, "%s%s", i ? ", " : "", names[i]);
        um_free(names[i]);
    }
    um_free(folder);
}
