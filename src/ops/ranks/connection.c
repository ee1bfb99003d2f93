/* Sends and receives frames. Sockets do not block: while one direction of a connection has to wait, the other one and
 * the other connections go on, so ranks can send large frames to each other at the same time. */
#include "ops/ranks/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* A host that answers no probe for IDLE + COUNT * INTERVAL seconds is gone. */
enum { PROBE_IDLE = 30, PROBE_INTERVAL = 5, PROBE_COUNT = 6 };
/* The space of a socket for bytes on their way. With half a MB and more, two ranks of a host exchange the results of a
 * small step without waiting for each other. */
enum { SOCKET_BYTES = 2 << 20 };

um_status um_connection_init(um_connection *c, int fd, int32_t rank, um_err *err) {
    static const struct {
        int level, name, value;
    } option[] = {{IPPROTO_TCP, TCP_NODELAY, 1},           {SOL_SOCKET, SO_KEEPALIVE, 1},
                  {IPPROTO_TCP, TCP_KEEPIDLE, PROBE_IDLE}, {IPPROTO_TCP, TCP_KEEPINTVL, PROBE_INTERVAL},
                  {IPPROTO_TCP, TCP_KEEPCNT, PROBE_COUNT}, {SOL_SOCKET, SO_SNDBUF, SOCKET_BYTES},
                  {SOL_SOCKET, SO_RCVBUF, SOCKET_BYTES}};
    *c = (um_connection){.fd = fd, .rank = rank};
    for (size_t i = 0; i < UM_LEN(option); i++)
        (void)setsockopt(fd, option[i].level, option[i].name, &option[i].value, sizeof option[i].value);
    if (fcntl(fd, F_SETFL, O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC))
        return um_fail(err, UM_EIO, "can't prepare the connection to rank %d: %s", rank, strerror(errno));
    return UM_OK;
}

void um_connection_close(um_connection *c) {
    if (c->fd >= 0) close(c->fd);
    um_buf_free(&c->body);
    c->fd = -1;
}

void um_connection_send(um_connection *c, um_frame_type type, const void *data, size_t n) {
    assert(c->out_at == c->out_all);
    c->out = (um_frame){.magic = UM_FRAME_MAGIC, .type = type, .bytes = n};
    c->data = (const char *)data;
    c->out_at = 0;
    c->out_all = sizeof c->out + n;
}

bool um_connection_drop(um_connection *c) {
    const bool is_in_frame = c->out_at > 0 && c->out_at < c->out_all;
    if (!is_in_frame) c->out_at = c->out_all = 0;
    return !is_in_frame;
}

void um_connection_send_results(um_connection *c, const float *p, size_t n, um_rank_time time) {
    um_connection_send(c, UM_FRAME_DATA, p, n * sizeof *p);
    c->out.time = time;
}

void um_connection_receive(um_connection *c, um_frame_type wanted, void *to, size_t room) {
    assert(!c->receives);
    c->receives = true;
    c->in_at = 0;
    c->wanted = wanted;
    c->to = to;
    c->room = wanted && (to || room) ? room : UM_FRAME_BYTES_MAX;
}

/* ---- One connection ---------------------------------------------------------------------------------------------- */

static bool blame(um_failed *why, int32_t rank, const char *message) {
    *why = (um_failed){.rank = rank};
    snprintf(why->message, sizeof why->message, "%s", message);
    return false;
}

/* Handles a call that moved no bytes. Returns false when the connection is lost. */
static bool may_go_on(const um_connection *c, ssize_t n, um_failed *why) {
    char text[UM_ERR_MAX];
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
    if (n == 0 || errno == ECONNRESET || errno == EPIPE)
        return blame(why, c->rank, "its process has ended, or has closed the connection");
    snprintf(text, sizeof text, "the connection is lost: %s", strerror(errno));
    return blame(why, c->rank, text);
}

static bool send_some(um_connection *c, um_failed *why) {
    const size_t head = sizeof c->out;
    while (c->out_at < c->out_all) {
        struct iovec part[2];
        struct msghdr m = {.msg_iov = part};
        if (c->out_at < head)
            part[m.msg_iovlen++] = (struct iovec){(char *)(void *)&c->out + c->out_at, head - c->out_at};
        const size_t at = UM_MAX(c->out_at, head);
        if (at < c->out_all) part[m.msg_iovlen++] = (struct iovec){(void *)(c->data + (at - head)), c->out_all - at};
        const ssize_t n = sendmsg(c->fd, &m, MSG_NOSIGNAL);
        if (n <= 0) return may_go_on(c, n, why);
        c->out_at += (size_t)n;
    }
    return true;
}

/* Checks a header, and decides where the bytes go. */
static bool take_header(um_connection *c, um_failed *why) {
    const um_frame *f = &c->in;
    if (f->magic != UM_FRAME_MAGIC || f->bytes > UM_FRAME_BYTES_MAX)
        return blame(why, c->rank, "it sent bytes that are no frame of this program");
    const bool is_wanted = !c->wanted || f->type == (uint32_t)c->wanted;
    if (!is_wanted && f->type != UM_FRAME_FAILED && f->type != UM_FRAME_END)
        return blame(why, c->rank, "it sent a frame out of turn");
    if (f->bytes > (is_wanted ? c->room : sizeof(um_failed)))
        return blame(why, c->rank, "it sent a frame that is too long");
    if (!is_wanted || !c->to) {
        um_buf_clear(&c->body);
        um_buf_reserve(&c->body, (size_t)f->bytes + 1);
        c->to = NULL;
    }
    return true;
}

/* Ends a frame. A failed rank, or the end of the group where another frame was expected, ends the transfer. */
static bool take_frame(um_connection *c, um_failed *why) {
    const bool is_failed = c->in.type == UM_FRAME_FAILED;
    c->receives = false;
    if (c->in.type == UM_FRAME_DATA) c->last_time = c->in.time;
    if (!c->to) c->body.len = (size_t)c->in.bytes;
    if (is_failed && c->in.bytes == sizeof *why) {
        memcpy(why, c->body.data, sizeof *why);
        why->message[sizeof why->message - 1] = '\0';
        return false;
    }
    if (is_failed) return blame(why, c->rank, "it has failed");
    if (c->in.type == UM_FRAME_END && c->wanted) return blame(why, c->rank, "it has ended the group");
    return true;
}

static bool receive_some(um_connection *c, um_failed *why) {
    const size_t head = sizeof c->in;
    while (c->receives) {
        const bool in_head = c->in_at < head;
        if (!in_head && c->in_at == head + c->in.bytes) return take_frame(c, why);
        char *to =
            in_head ? (char *)(void *)&c->in + c->in_at : (c->to ? (char *)c->to : c->body.data) + c->in_at - head;
        const ssize_t n = recv(c->fd, to, in_head ? head - c->in_at : head + c->in.bytes - c->in_at, 0);
        if (n <= 0) return may_go_on(c, n, why);
        c->in_at += (size_t)n;
        if (c->in_at == head && !take_header(c, why)) return false;
    }
    return true;
}

bool um_connection_tells_failure(const um_connection *c, um_failed *why) {
    struct {
        um_frame head;
        um_failed failed;
    } next;
    const ssize_t n = recv(c->fd, &next, sizeof next, MSG_PEEK | MSG_DONTWAIT);
    if (n <= 0) return !may_go_on(c, n, why);
    if (n < (ssize_t)sizeof next || next.head.magic != UM_FRAME_MAGIC || next.head.type != UM_FRAME_FAILED ||
        next.head.bytes != sizeof next.failed)
        return false;
    *why = next.failed;
    why->message[sizeof why->message - 1] = '\0';
    return true;
}

void um_connection_answer_ping(um_connection *c) {
    um_frame next;
    um_failed ignored;
    const ssize_t n = recv(c->fd, &next, sizeof next, MSG_PEEK | MSG_DONTWAIT);
    if (n < (ssize_t)sizeof next || next.magic != UM_FRAME_MAGIC || next.type != UM_FRAME_PING || next.bytes) return;
    (void)recv(c->fd, &next, sizeof next, MSG_DONTWAIT);
    um_connection_send(c, UM_FRAME_PONG, NULL, 0);
    (void)um_transfer(c, 1, 0, &ignored);
}

/* ---- All connections --------------------------------------------------------------------------------------------- */

static bool is_busy(const um_connection *c) { return c->receives || c->out_at < c->out_all; }

/* Sends and receives until all sockets would block. *n_busy: connections that have not finished. Each receives first:
 * the words of a failed rank may be there when sending fails. */
static bool move_all(um_connection *c, int32_t n, int32_t *n_busy, um_failed *why) {
    *n_busy = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!is_busy(&c[i])) continue;
        if (!receive_some(&c[i], why) || !send_some(&c[i], why)) return false;
        *n_busy += is_busy(&c[i]);
    }
    return true;
}

static bool time_is_over(const um_connection *c, int32_t n, double seconds, um_failed *why) {
    char text[96];
    int32_t i = 0;
    while (i < n - 1 && !is_busy(&c[i])) i++;
    snprintf(text, sizeof text, "no answer for %g s (--distributed-timeout-seconds)", seconds);
    return blame(why, c[i].rank, text);
}

bool um_transfer(um_connection *c, int32_t n, double seconds, um_failed *why) {
    struct pollfd p[UM_RANKS_MAX];
    const double end = um_now() + seconds;
    for (int32_t n_busy;;) {
        if (!move_all(c, n, &n_busy, why)) return false;
        if (!n_busy) return true;
        const double left = seconds < 0 ? 3600 : end - um_now();
        if (left <= 0) return time_is_over(c, n, seconds, why);
        nfds_t n_polled = 0;
        for (int32_t i = 0; i < n; i++)
            if (is_busy(&c[i]))
                p[n_polled++] = (struct pollfd){
                    .fd = c[i].fd,
                    .events = (short)((c[i].receives ? POLLIN : 0) | (c[i].out_at < c[i].out_all ? POLLOUT : 0))};
        (void)poll(p, n_polled, (int)UM_MIN(left * 1000 + 1, 3600e3));
    }
}
