/* The folder --state-dir: creates and locks it, and lists its entries. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "server/batch/store.h"

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static um_status make_dirs(const um_batch_store *store, um_err *err) {
    static const char *const inside[] = {"files", "batches"};
    um_status st = UM_OK;
    if (mkdir(store->dir, 0700) && errno != EEXIST)
        st = um_fail(err, UM_EIO, "%s: cannot create the folder: %s", store->dir, strerror(errno));
    for (size_t i = 0; i < UM_LEN(inside) && !st; i++) {
        char *path = um_path_join(store->dir, inside[i]);
        st = um_dir_make_private(path, err);
        um_free(path);
    }
    return st;
}

static um_status lock_dir(um_batch_store *store, um_err *err) {
    char *path = um_path_join(store->dir, "lock");
    um_status st = UM_OK;
    store->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (store->lock < 0) st = um_fail(err, UM_EIO, "%s: cannot write: %s", path, strerror(errno));
    else if (flock(store->lock, LOCK_EX | LOCK_NB) != 0)
        st = um_fail(err, UM_EINVAL, "another server uses %s; each server needs its own folder", store->dir);
    um_free(path);
    return st;
}

um_status um_folder_open(um_batch_store *store, um_err *err) {
    um_status st = make_dirs(store, err);
    if (!st) st = lock_dir(store, err);
    return st ? um_fail_in(err, "--state-dir") : UM_OK;
}

/* ---- Entries ----------------------------------------------------------------------------------------------------- */

um_status um_folder_walk(um_batch_store *store, const char *name, um_entry_fn fn, um_err *err) {
    char *dir = um_path_join(store->dir, name);
    DIR *d = opendir(dir);
    um_status st =
        d ? UM_OK : um_fail(err, UM_EIO, "--state-dir: %s: cannot read the folder: %s", dir, strerror(errno));
    for (struct dirent *e; d && (e = readdir(d));) fn(store, e->d_name);
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
    return um_fail(err, UM_EPARSE, "%s: the id in it is %s", path, id);
}
