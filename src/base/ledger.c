/* Ledgers: append-only files of lines. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

um_status um_ledger_open(um_ledger *l, const char *path, um_err *err) {
    bool standard = um_streq(path, "-");
    struct stat st;
    *l = (um_ledger){.name = standard ? "standard output" : path};
    l->fd = standard ? dup(STDOUT_FILENO) : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (l->fd < 0) return um_fail(err, UM_EIO, "cannot write %s: %s", l->name, strerror(errno));
    l->file = !standard && fstat(l->fd, &st) == 0 && S_ISREG(st.st_mode);
    if (!l->file || flock(l->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return UM_OK;
    close(l->fd);
    l->fd = -1;
    return um_fail(err, UM_EINVAL, "%s is locked by another run; wait for it to end or choose another output file",
                   path);
}

/* Accepts an invalid line if it is the last one: the program may have crashed while writing it. */
static um_status check_last(um_lines *in, um_err *err) {
    long long number = (long long)in->number;
    char why[UM_ERR_MAX / 2];
    um_str line;
    snprintf(why, sizeof why, "%.200s", err->msg);
    um_lines_result got = um_lines_next(in, true, &line, err);
    if (got == UM_LINES_END) return UM_OK;
    return um_fail(err, UM_EPARSE, "%.120s:%lld is not a valid result (%s)", in->name, number, why);
}

/* Passes one line to fn. Sets *more when another line may follow. */
static um_status pass_line(um_ledger *l, um_lines *in, um_str line, um_ledger_fn fn, void *arg, bool *more,
                           um_err *err) {
    *more = !in->cut;
    if (in->cut) return UM_OK; /* incomplete, even if only its newline is missing: not kept, so it is computed again */
    um_status st = fn(arg, line, in->number, err);
    if (!st) l->keep = in->offset;
    if (st != UM_EPARSE) return st;
    *more = false;
    return check_last(in, err);
}

um_status um_ledger_read(um_ledger *l, um_ledger_fn fn, void *arg, um_err *err) {
    um_err own, *e = err ? err : &own;
    um_lines in;
    um_status st = UM_OK;
    um_lines_from(&in, fcntl(l->fd, F_DUPFD_CLOEXEC, 0), l->name); /* child processes must not inherit the lock */
    for (bool more = true; more && !st;) {
        um_str line;
        um_lines_result got = um_lines_next(&in, true, &line, e);
        if (got == UM_LINES_LINE) st = pass_line(l, &in, line, fn, arg, &more, e);
        if (got == UM_LINES_FAILED) st = e->code;
        if (got == UM_LINES_TOO_LONG)
            st = um_fail(e, UM_EINVAL, "%s:%lld is longer than %zu bytes", l->name, (long long)in.number, UM_LINE_MAX);
        if (got == UM_LINES_END) more = false;
    }
    um_lines_close(&in);
    return st;
}

um_status um_ledger_truncate(um_ledger *l, um_err *err) {
    if (!l->file) return UM_OK;
    if (ftruncate(l->fd, (off_t)l->keep) == 0 && lseek(l->fd, (off_t)l->keep, SEEK_SET) >= 0) return UM_OK;
    return um_fail(err, UM_EIO, "cannot truncate %s to %lld bytes: %s", l->name, (long long)l->keep, strerror(errno));
}

um_status um_ledger_write(um_ledger *l, um_str lines, um_err *err) {
    for (size_t at = 0; at < lines.n;) {
        ssize_t n = write(l->fd, lines.p + at, lines.n - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            um_fail(err, UM_EIO, "cannot write %s: %s", l->name, strerror(errno));
            (void)um_ledger_truncate(l, NULL); /* if this fails too, um_ledger_read drops the incomplete last line */
            return UM_EIO;
        }
        at += (size_t)n;
    }
    l->keep += (int64_t)lines.n;
    return UM_OK;
}

/* When fdatasync fails, the lines are truncated away: a second fdatasync could succeed although they are not on disk.
 */
um_status um_ledger_commit(um_ledger *l, um_str lines, um_err *err) {
    int64_t before = l->keep;
    um_status st = um_ledger_write(l, lines, err);
    if (st || fdatasync(l->fd) == 0) return st;
    um_fail(err, UM_EIO, "cannot write %s: %s", l->name, strerror(errno));
    l->keep = before;
    (void)um_ledger_truncate(l, NULL);
    return UM_EIO;
}

um_status um_ledger_close(um_ledger *l, um_err *err) {
    int fd = l->fd;
    l->fd = -1;
    if (fd < 0 || close(fd) == 0) return UM_OK;
    return um_fail(err, UM_EIO, "cannot write %s: %s", l->name, strerror(errno));
}
