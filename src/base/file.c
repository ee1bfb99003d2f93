/* Files: reading, mapping, replacing, paths. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static um_status fail_errno(um_err *err, const char *path, const char *verb) {
    int e = errno;
    return um_fail(err, e == ENOENT || e == ENOTDIR ? UM_ENOENT : UM_EIO, "%s: cannot %s: %s", path, verb, strerror(e));
}

/* Appends the bytes of fd up to its end. Does not rely on a file size: fd may be a pipe, or the file may grow. */
static um_status read_rest(int fd, const char *path, size_t max, um_buf *out, um_err *err) {
    for (;;) {
        um_buf_reserve(out, (size_t)64 << 10);
        ssize_t n = read(fd, out->data + out->len, out->cap - out->len - 1);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno(err, path, "read");
        if (n == 0) return UM_OK;
        out->len += (size_t)n;
        out->data[out->len] = '\0';
        if (out->len > max)
            return um_fail(err, UM_ELIMIT, "%s: the file is longer than the limit of %zu bytes", path, max);
    }
}

um_status um_file_read(const char *path, size_t max, um_buf *out, um_err *err) {
    um_buf_clear(out);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_errno(err, path, "open");
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (size_t)st.st_size <= max)
        um_buf_reserve(out, (size_t)st.st_size + ((size_t)64 << 10));
    um_status s = read_rest(fd, path, max, out, err);
    close(fd);
    return s;
}

um_status um_file_read_text(const char *path, size_t max, um_buf *out, um_err *err) {
    um_status st = um_file_read(path, max, out, err);
    um_buf_puts(out, ""); /* ends the text with NUL also if the file is empty */
    size_t mark = um_utf8_mark((um_str){out->data, out->len});
    if (mark) memmove(out->data, out->data + mark, out->len + 1 - mark);
    out->len -= mark;
    return st;
}

bool um_file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

bool um_dir_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

um_status um_map_open(um_map *m, const char *path, um_err *err) {
    *m = (um_map){0};
    um_status s = UM_OK;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_errno(err, path, "open");
    if (fstat(fd, &st) != 0) {
        s = fail_errno(err, path, "stat");
    } else if (!S_ISREG(st.st_mode)) {
        s = um_fail(err, UM_EIO, "%s: expected a file, found a directory or device", path);
    } else if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) s = fail_errno(err, path, "map");
        else *m = (um_map){(const uint8_t *)p, (size_t)st.st_size};
    }
    close(fd);
    return s;
}

void um_map_close(um_map *m) {
    if (m->data) munmap((void *)(uintptr_t)m->data, m->size);
    *m = (um_map){0};
}

/* ---- Replacing --------------------------------------------------------------------------------------------------- */

static um_status write_all(int fd, const char *path, um_str data, um_err *err) {
    for (size_t at = 0; at < data.n;) {
        ssize_t n = write(fd, data.p + at, data.n - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno(err, path, "write");
        at += (size_t)n;
    }
    return UM_OK;
}

/* Writes data to a new file and flushes it to disk. */
static um_status write_new(const char *path, um_str data, mode_t mode, um_err *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (fd < 0) return fail_errno(err, path, "create");
    um_status s = write_all(fd, path, data, err);
    if (!s && fsync(fd) != 0) s = fail_errno(err, path, "write");
    if (close(fd) != 0 && !s) s = fail_errno(err, path, "write");
    if (s) unlink(path); /* this file may be the one that fills the disk */
    return s;
}

um_status um_dir_make_private(const char *path, um_err *err) {
    if (mkdir(path, 0700) && errno != EEXIST) return fail_errno(err, path, "create the folder");
    char *inside = um_path_join(path, "."); /* a file gets ENOTDIR */
    const bool works = !faccessat(AT_FDCWD, inside, R_OK | W_OK | X_OK, AT_EACCESS);
    um_free(inside);
    return works ? UM_OK : fail_errno(err, path, "write to the folder");
}

um_status um_dir_sync(const char *path, um_err *err) {
    um_status s = UM_OK;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fail_errno(err, path, "open");
    /* Some file systems can't sync a folder. This is not an error. */
    if (fsync(fd) != 0 && errno != EINVAL) s = fail_errno(err, path, "write");
    close(fd);
    return s;
}

static char *dir_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? um_strndup(path, UM_MAX((size_t)(slash - path), 1)) : um_strdup(".");
}

static um_status sync_dir_of(const char *path, um_err *err) {
    char *dir = dir_of(path);
    um_status s = um_dir_sync(dir, err);
    um_free(dir);
    return s;
}

static um_status replace_file(const char *path, um_str data, mode_t mode, um_err *err) {
    um_buf other = {0};
    um_buf_printf(&other, "%s.new", path);
    um_status s = write_new(other.data, data, mode, err);
    if (!s && rename(other.data, path) != 0) s = fail_errno(err, path, "replace");
    if (!s) s = sync_dir_of(path, err);
    um_buf_free(&other);
    return s;
}

static um_status write_into(const char *path, um_str data, um_err *err) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return fail_errno(err, path, "open");
    um_status s = write_all(fd, path, data, err);
    if (close(fd) != 0 && !s) s = fail_errno(err, path, "write");
    return s;
}

um_status um_file_replace(const char *path, um_str data, um_err *err) {
    struct stat there;
    if (stat(path, &there)) return replace_file(path, data, 0666, err);
    if (!S_ISREG(there.st_mode)) return write_into(path, data, err);
    char *file = realpath(path, NULL);
    um_status s = replace_file(file ? file : path, data, 0666, err);
    free(file);
    return s;
}

/* Checks whether entries can be made in the folder of a file. The message names the file. */
static um_status check_dir_of(const char *path, um_err *err) {
    char *dir = dir_of(path), *inside = um_path_join(dir, "."); /* a file in place of the folder gets ENOTDIR */
    if (!*path) errno = ENOENT;
    const bool works = *path && !faccessat(AT_FDCWD, inside, W_OK | X_OK, AT_EACCESS);
    um_status s = works ? UM_OK : fail_errno(err, path, "write");
    um_free(inside);
    um_free(dir);
    return s;
}

um_status um_file_check_write(const char *path, um_err *err) {
    struct stat there;
    if (stat(path, &there)) return errno == ENOENT ? check_dir_of(path, err) : fail_errno(err, path, "write");
    if (S_ISDIR(there.st_mode)) errno = EISDIR;
    const bool works = !S_ISDIR(there.st_mode) && !faccessat(AT_FDCWD, path, W_OK, AT_EACCESS);
    return works ? UM_OK : fail_errno(err, path, "write");
}

um_status um_file_check_replace(const char *path, um_err *err) {
    struct stat there;
    if (stat(path, &there) || !S_ISREG(there.st_mode)) return um_file_check_write(path, err);
    char *file = realpath(path, NULL);
    um_status s = check_dir_of(file ? file : path, err);
    free(file);
    return s;
}

um_status um_file_replace_private(const char *path, um_str data, um_err *err) {
    return replace_file(path, data, 0600, err);
}

char *um_path_join(const char *dir, const char *name) {
    size_t n = strlen(dir);
    um_buf b = {0};
    um_buf_append(&b, dir, n);
    if (n > 0 && dir[n - 1] != '/') um_buf_putc(&b, '/');
    um_buf_puts(&b, name);
    return um_buf_take(&b);
}
