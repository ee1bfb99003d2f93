/* The folder itself: made, locked, walked. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "server/batch/store.h"

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static um_status make_dir(const char *path, um_err *err) {
    if (mkdir(path, 0700) == 0 || errno == EEXIST) return UM_OK;
    return um_fail(err, UM_EIO, "cannot make the folder %s: %s", path, strerror(errno));
}

static um_status make_dirs(const um_batches *all, um_err *err) {
    static const char *const inside[] = {"files", "batches"};
    um_status st = make_dir(all->dir, err);
    for (size_t i = 0; i < UM_LEN(inside) && !st; i++) {
        char *path = um_path_join(all->dir, inside[i]);
        st = make_dir(path, err);
        um_free(path);
    }
    return st;
}

static um_status lock_dir(um_batches *all, um_err *err) {
    char *path = um_path_join(all->dir, "lock");
    um_status st = UM_OK;
    all->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (all->lock < 0) st = um_fail(err, UM_EIO, "cannot write %s: %s", path, strerror(errno));
    else if (flock(all->lock, LOCK_EX | LOCK_NB) != 0)
        st =
            um_fail(err, UM_EINVAL, "--state-dir: another server uses %s; give each one a folder of its own", all->dir);
    um_free(path);
    return st;
}

um_status um_folder_open(um_batches *all, um_err *err) {
    um_status st = make_dirs(all, err);
    return st ? st : lock_dir(all, err);
}

/* ---- Walking ----------------------------------------------------------------------------------------------------- */

um_status um_folder_walk(um_batches *all, const char *name, um_entry_fn fn, um_err *err) {
    char *dir = um_path_join(all->dir, name);
    DIR *d = opendir(dir);
    um_status st = d ? UM_OK : um_fail(err, UM_EIO, "cannot read the folder %s: %s", dir, strerror(errno));
    for (struct dirent *e; d && (e = readdir(d));) fn(all, e->d_name);
    if (d) closedir(d);
    um_free(dir);
    return st;
}

bool um_entry_is_record(const char *entry) {
    size_t n = strlen(entry);
    return n > 5 && strcmp(entry + n - 5, ".json") == 0;
}

um_status um_entry_check(const char *entry, const char *path, const char *id, um_err *err) {
    size_t n = strlen(id);
    if (strncmp(entry, id, n) == 0 && strcmp(entry + n, ".json") == 0) return UM_OK;
    return um_fail(err, UM_EPARSE, "%s is the record of %s", path, id);
}
