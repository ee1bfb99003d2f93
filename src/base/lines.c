/* Reads a file line by line, with one line in memory at a time. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES ((size_t)64 << 10)

void um_lines_from(um_lines *l, int fd, const char *name) {
    *l = (um_lines){.name = name, .fd = fd, .origin = UM_MAX((int64_t)lseek(fd, 0, SEEK_CUR), 0)};
}

um_status um_lines_open(um_lines *l, const char *path, um_err *err) {
    bool standard = um_streq(path, "-");
    int fd = standard ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC), saved = errno;
    struct stat st;
    um_lines_from(l, fd, standard ? "standard input" : path);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        um_lines_close(l);
        return um_fail(err, UM_EIO, "%s is a folder; expected a file with one JSON object per line", path);
    }
    if (fd >= 0) return UM_OK;
    return um_fail(err, saved == ENOENT ? UM_ENOENT : UM_EIO, "cannot read %s: %s", l->name, strerror(saved));
}

void um_lines_close(um_lines *l) {
    if (l->fd >= 0 && l->name) close(l->fd);
    um_buf_free(&l->buf);
    *l = (um_lines){.fd = -1};
}

um_status um_lines_rewind(um_lines *l, um_err *err) {
    if (lseek(l->fd, (off_t)l->origin, SEEK_SET) < 0)
        return um_fail(err, UM_EIO, "cannot go back to the start of %s: %s", l->name, strerror(errno));
    um_buf_free(&l->buf);
    um_lines_from(l, l->fd, l->name);
    return UM_OK;
}

bool um_lines_is_file(const um_lines *l) {
    struct stat st;
    return fstat(l->fd, &st) == 0 && S_ISREG(st.st_mode);
}

/* Removes returned lines from the buffer, so that it never grows beyond one line. Starts skipping a line that is longer
 * than UM_LINE_MAX. */
static void make_room(um_lines *l) {
    if (l->start) {
        memmove(l->buf.data, l->buf.data + l->start, l->buf.len - l->start);
        l->buf.len -= l->start;
        l->looked -= l->start;
        l->start = 0;
    }
    if (l->buf.len > UM_LINE_MAX) l->skipping = true;
    if (l->skipping) {
        l->offset += (int64_t)l->buf.len;
        l->buf.len = l->looked = 0;
    }
    um_buf_reserve(&l->buf, READ_BYTES + 1);
}

/* Reads more bytes. Returns UM_LINES_LINE when the caller should search the buffer again. Polls first because a signal
 * always interrupts poll, but does not interrupt read when its handler was installed with SA_RESTART. */
static um_lines_result read_more(um_lines *l, bool wait, um_err *err) {
    struct pollfd p = {.fd = l->fd, .events = POLLIN};
    int ready = poll(&p, 1, wait ? -1 : 0);
    if (ready == 0 || (ready < 0 && errno == EINTR)) return UM_LINES_AGAIN;
    make_room(l);
    ssize_t n = read(l->fd, l->buf.data + l->buf.len, READ_BYTES);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return UM_LINES_AGAIN;
    if (n < 0) {
        um_fail(err, UM_EIO, "cannot read %s: %s", l->name, strerror(errno));
        return UM_LINES_FAILED;
    }
    l->buf.len += (size_t)n;
    l->eof = n == 0;
    return UM_LINES_LINE;
}

/* Returns the line [start, end) and consumes it together with its newline, if there is one. */
static um_lines_result return_line(um_lines *l, size_t end, um_str *line) {
    *line = (um_str){l->buf.data + l->start, end - l->start};
    l->cut = end == l->buf.len;
    size_t next = end + !l->cut;
    l->offset += (int64_t)(next - l->start);
    l->start = l->looked = next;
    bool too_long = l->skipping || line->n > UM_LINE_MAX;
    l->skipping = false;
    size_t mark = ++l->number == 1 ? um_utf8_mark(*line) : 0;
    *line = (um_str){line->p + mark, line->n - mark};
    return too_long ? UM_LINES_TOO_LONG : UM_LINES_LINE;
}

static bool is_blank(um_str s) {
    size_t i = 0;
    while (i < s.n && (s.p[i] == ' ' || s.p[i] == '\t' || s.p[i] == '\r')) i++;
    return i == s.n;
}

um_lines_result um_lines_next_buffered(um_lines *l, um_str *line) {
    for (;;) {
        size_t n = l->buf.len - l->looked;
        const char *newline = n ? (const char *)memchr(l->buf.data + l->looked, '\n', n) : NULL;
        bool last = !newline && l->eof && (l->start < l->buf.len || l->skipping);
        if (!newline && !last) break;
        um_lines_result got = return_line(l, newline ? (size_t)(newline - l->buf.data) : l->buf.len, line);
        if (got == UM_LINES_TOO_LONG || !is_blank(*line)) return got;
    }
    l->looked = l->buf.len;
    return l->eof ? UM_LINES_END : UM_LINES_AGAIN;
}

um_lines_result um_lines_next(um_lines *l, bool wait, um_str *line, um_err *err) {
    for (;;) {
        um_lines_result got = um_lines_next_buffered(l, line);
        if (got != UM_LINES_AGAIN) return got;
        got = read_more(l, wait, err);
        if (got != UM_LINES_LINE) return got;
    }
}
