/* While one job writes, further lines are collected for the next one. Each job opens the file anew, so that a program
 * that rotates files can rename it at any time. */
#include "server/respond/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "server/respond/reply.h"

/* Limit of the bytes that wait for the disk. */
#define WAITING_BYTES_MAX ((size_t)16 << 20)

struct um_trace_file {
    char *path;
    char instance[64];
    um_work_queue *queue;
    um_buf waiting, writing; /* the job uses `writing` while it runs */
    bool is_writing;
    bool is_torn;      /* the last line of the file has no end; used by the job only */
    bool has_warned;   /* of the present failure */
    int64_t n_dropped; /* since the last warning */
};

/* With O_NONBLOCK a pipe without a reader is an error. It has no effect on files. */
static int open_file(const char *path) {
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0600);
}

static bool write_all(int fd, const char *p, size_t n) {
    while (n) {
        ssize_t got = write(fd, p, n);
        if (got < 0 && errno != EINTR) return false;
        if (got <= 0) continue;
        p += got;
        n -= (size_t)got;
    }
    return true;
}

/* A line that was cut, by a full disk for example, gets an end, so that the next one can be read. */
static um_status write_lines(void *arg, um_err *err) {
    um_trace_file *f = arg;
    int fd = open_file(f->path);
    bool ok = fd >= 0 && (!f->is_torn || write_all(fd, "\n", 1));
    if (ok) f->is_torn = false;
    if (ok && !write_all(fd, f->writing.data, f->writing.len)) {
        f->is_torn = true;
        ok = false;
    }
    um_status st = ok ? UM_OK : um_fail(err, UM_EIO, "%s: %s", f->path, strerror(errno));
    if (fd >= 0) close(fd);
    return st;
}

static void begin_job(um_trace_file *f);

static void written(void *arg, um_status st, const um_err *err) {
    um_trace_file *f = arg;
    if (st && !f->has_warned) um_warn("--otlp-traces: %s; traces are lost until this file can be written", err->msg);
    f->has_warned = st != UM_OK;
    if (f->n_dropped) um_warn("--otlp-traces: %lld traces were dropped: the disk is slow", (long long)f->n_dropped);
    f->n_dropped = 0;
    f->is_writing = false;
    um_buf_clear(&f->writing);
    if (f->waiting.len) begin_job(f);
}

static void begin_job(um_trace_file *f) {
    um_buf lines = f->waiting;
    f->waiting = f->writing;
    f->writing = lines;
    f->is_writing = true;
    (void)um_work_queue_submit(f->queue, &(um_work){.work = write_lines, .done = written, .arg = f});
}

void um_trace_file_append(um_trace_file *f, um_str lines) {
    if (f->waiting.len + lines.n > WAITING_BYTES_MAX) {
        f->n_dropped++;
        return;
    }
    um_buf_append(&f->waiting, lines.p, lines.n);
    if (!f->is_writing) begin_job(f);
}

const char *um_trace_file_instance(const um_trace_file *f) { return f->instance; }

um_status um_trace_file_new(um_trace_file **out, struct event_base *base, const char *path, um_err *err) {
    int fd = open_file(path);
    if (fd < 0) return um_fail(err, UM_EIO, "--otlp-traces: %s: %s", path, strerror(errno));
    close(fd);
    um_trace_file *f = UM_NEW(um_trace_file);
    f->path = um_strdup(path);
    um_make_id("", f->instance);
    um_status st = um_work_queue_new(&f->queue, base, 1, 0, err);
    if (st) {
        um_trace_file_free(f);
        f = NULL;
    }
    *out = f;
    return st;
}

void um_trace_file_free(um_trace_file *f) {
    if (!f) return;
    um_work_queue_free(f->queue);
    um_buf_free(&f->waiting);
    um_buf_free(&f->writing);
    um_free(f->path);
    um_free(f);
}
