/* Files: reading, mapping, paths. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static um_status fail_errno(um_err *err, const char *path, const char *verb) {
    int e = errno;
    return um_fail(err, e == ENOENT || e == ENOTDIR ? UM_ENOENT : UM_EIO, "%s: cannot %s: %s", path, verb, strerror(e));
}

/* Appends what is left of fd. The size is not asked for first: it may be a pipe, or grow. */
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

char *um_path_join(const char *dir, const char *name) {
    size_t n = strlen(dir);
    um_buf b = {0};
    um_buf_append(&b, dir, n);
    if (n > 0 && dir[n - 1] != '/') um_buf_putc(&b, '/');
    um_buf_puts(&b, name);
    return um_buf_take(&b);
}
