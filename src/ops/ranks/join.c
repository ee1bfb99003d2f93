/* How the ranks of a group find each other. Rank 0 listens. Every other rank connects, and sends its number and its
 * facts. When all are there, rank 0 welcomes them. */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ops/ranks/link_open.h"

/* How long a rank that has connected may take for its greeting. */
#define HELLO_SECONDS 5.0
/* The pause between two tries to connect. */
#define RETRY_MS 100
/* A rank that waits for others says so after these seconds, and again after as many. */
#define LOG_SECONDS 10.0

/* The longest greeting. */
enum { HELLO_BYTES_MAX = 1 << 16 };

/* The start of UM_FRAME_HELLO. The facts follow. */
typedef struct um_hello {
    int32_t rank, n;
} um_hello;

/* ---- Addresses --------------------------------------------------------------------------------------------------- */

static um_status resolve(const um_launch *launch, const char *host, struct addrinfo **out, um_err *err) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = host ? 0 : AI_PASSIVE};
    char port[16];
    snprintf(port, sizeof port, "%d", launch->port);
    const int code = getaddrinfo(host, port, &hints, out);
    return code ? um_fail_param(err, UM_EDEVICE, "master_addr", "can't resolve \"%.80s\": %s", host ? host : "",
                                code == EAI_SYSTEM ? strerror(errno) : gai_strerror(code))
                : UM_OK;
}

/* Returns a socket that listens at one of these addresses; -1 with errno. */
static int listen_at(const struct addrinfo *a) {
    int fd = -1;
    for (; a && fd < 0; a = a->ai_next) {
        const int on = 1;
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd < 0) continue;
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (!bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, UM_RANKS_MAX)) return fd;
        const int why = errno;
        close(fd);
        errno = why;
        fd = -1;
    }
    return fd;
}

/* Opens the socket of rank 0. Where the address belongs to no interface of this host (a service, address translation),
 * it listens at all interfaces. */
static um_status open_listener(const um_launch *launch, int *out, um_err *err) {
    struct addrinfo *a = NULL;
    um_status s = resolve(launch, launch->addr, &a, err);
    if (s) return s;
    *out = listen_at(a);
    freeaddrinfo(a);
    if (*out < 0 && errno == EADDRNOTAVAIL) {
        s = resolve(launch, NULL, &a, err);
        if (s) return s;
        *out = listen_at(a);
        freeaddrinfo(a);
    }
    if (*out >= 0) return UM_OK;
    return um_fail_param(err, UM_EDEVICE, "master_port", "rank 0 can't listen at %.80s:%d: %s%s", launch->addr,
                         launch->port, strerror(errno),
                         errno == EADDRINUSE ? "; another group may use this port, so choose another one" : "");
}

/* ---- Facts ------------------------------------------------------------------------------------------------------- */

static size_t line_length(const char *s) { return strcspn(s, "\n"); }

/* Returns the value of a line "name: value" of n bytes whose name has `name` bytes. */
static um_str value_of(const char *line, size_t n, size_t name) {
    const size_t first = UM_MIN(name + 2, n);
    return (um_str){line + first, UM_MIN(n - first, (size_t)64)};
}

/* Compares the facts of a rank with those of rank 0. */
static um_status compare_facts(int32_t rank, const char *theirs, const char *ours, um_err *err) {
    const char *a = theirs, *b = ours;
    size_t n = line_length(a), m = line_length(b);
    while (*a && *b && n == m && memcmp(a, b, n) == 0) {
        a += n + (a[n] == '\n');
        b += m + (b[m] == '\n');
        n = line_length(a);
        m = line_length(b);
    }
    const size_t name = strcspn(b, ":\n");
    if (!*a && !*b) return UM_OK;
    if (!*a || !*b || name > n || name > m || memcmp(a, b, name) != 0)
        return um_fail(err, UM_EINVAL, "rank %d is of another version than rank 0", rank);
    const um_str there = value_of(a, n, name), here = value_of(b, m, name);
    return um_fail(
        err, UM_EINVAL,
        "the %.*s of rank %d is %.*s, but that of rank 0 is %.*s; all ranks need the same program, model and "
        "options",
        (int)name, b, rank, (int)there.n, there.p, (int)here.n, here.p);
}

/* ---- Rank 0 ------------------------------------------------------------------------------------------------------ */

static um_connection *connection_of(um_link *l, int32_t rank) { return &l->c[rank - 1]; }

/* Returns whether the process at the other end of a connection has closed it. */
static bool is_gone(const um_connection *c) {
    char byte;
    const ssize_t n = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/* Writes the ranks that are missing: "rank 2", "ranks 1, 3". Returns their number. */
static int32_t put_missing(um_link *l, char *out, size_t size) {
    int32_t n = 0;
    size_t used = 0;
    for (int32_t r = 1; r < l->n; r++) n += connection_of(l, r)->fd < 0;
    out[0] = '\0';
    for (int32_t r = 1; r < l->n && used < size; r++)
        if (connection_of(l, r)->fd < 0)
            used += (size_t)snprintf(out + used, size - used, "%s%d", used ? ", " : n > 1 ? "ranks " : "rank ", r);
    return n;
}

static void refuse(um_connection *c, const char *why) {
    um_failed ignored;
    um_connection_send(c, UM_FRAME_REFUSED, why, strlen(why));
    (void)um_transfer(c, 1, HELLO_SECONDS, &ignored);
}

/* Checks the greeting of a rank. A wrong number is a matter of this rank alone; other differences end the group. */
static um_status check_hello(um_link *l, const um_connection *c, const char *facts, bool *ends_group, um_err *err) {
    um_hello h;
    if (c->body.len < sizeof h) return um_fail(err, UM_EINVAL, "the greeting is too short");
    memcpy(&h, c->body.data, sizeof h);
    *ends_group = h.n != l->n;
    if (h.n != l->n)
        return um_fail(err, UM_EINVAL, "rank %d was started for %d ranks (--nnodes), but rank 0 for %d", h.rank, h.n,
                       l->n);
    if (h.rank < 1 || h.rank >= l->n)
        return um_fail(err, UM_EINVAL, "there is no rank %d in a group of %d", h.rank, l->n);
    um_connection *before = connection_of(l, h.rank);
    if (before->fd >= 0 && is_gone(before)) um_connection_close(before);
    if (before->fd >= 0)
        return um_fail(err, UM_EINVAL, "another process is rank %d already; each needs its own --rank", h.rank);
    *ends_group = true;
    return compare_facts(h.rank, c->body.data + sizeof h, facts, err);
}

/* Takes a new connection, and the place of a rank for it. Only errors that end the group are returned. */
static um_status admit(um_link *l, int fd, const char *facts, um_err *err) {
    um_connection c;
    um_failed why;
    um_err refusal = {0};
    um_hello h;
    bool ends_group = false;
    um_status s = um_connection_init(&c, fd, -1, &refusal);
    um_connection_receive(&c, UM_FRAME_HELLO, NULL, HELLO_BYTES_MAX);
    if (!s && !um_transfer(&c, 1, HELLO_SECONDS, &why))
        s = um_fail(&refusal, UM_EIO, "something connected that is not a rank of this program: %s", why.message);
    if (!s) {
        um_buf_putc(&c.body, '\0'); /* ends the facts */
        s = check_hello(l, &c, facts, &ends_group, &refusal);
        if (s) refuse(&c, refusal.msg);
    }
    if (s) {
        um_connection_close(&c);
        if (!ends_group) um_warn("a rank was refused: %s", refusal.msg);
        return ends_group ? um_fail(err, s, "%s", refusal.msg) : UM_OK;
    }
    memcpy(&h, c.body.data, sizeof h);
    c.rank = h.rank;
    *connection_of(l, h.rank) = c;
    um_log(UM_LOG_INFO, "rank %d of %d has joined", h.rank, l->n);
    return UM_OK;
}

/* Closes the connections of ranks that have ended while they waited for the others. */
static void forget_gone(um_link *l) {
    for (int32_t r = 1; r < l->n; r++) {
        um_connection *c = connection_of(l, r);
        if (c->fd < 0 || !is_gone(c)) continue;
        um_warn("rank %d has ended before the group was complete", r);
        um_connection_close(c);
    }
}

static um_status wait_for_all(um_link *l, const um_launch *launch, int listener, const char *facts, um_err *err) {
    const double start = um_now();
    double logged = start;
    char missing[80];
    um_status s = UM_OK;
    while (!s && put_missing(l, missing, sizeof missing)) {
        struct pollfd p = {.fd = listener, .events = POLLIN};
        const double now = um_now();
        if (now - start >= l->timeout)
            return um_fail(err, UM_EDEVICE,
                           "%s of %d did not join at %.80s:%d within %g s (--distributed-timeout-seconds)", missing,
                           l->n, launch->addr, launch->port, l->timeout);
        if (now - logged >= LOG_SECONDS) {
            logged = now;
            um_warn("waiting for %s of %d at %s:%d", missing, l->n, launch->addr, launch->port);
        }
        if (poll(&p, 1, (int)UM_MIN((start + l->timeout - now) * 1000 + 1, 1000)) > 0) {
            const int fd = accept(listener, NULL, NULL);
            if (fd >= 0) s = admit(l, fd, facts, err);
        }
        forget_gone(l);
    }
    return s;
}

/* Welcomes the ranks, and offers them memory. They use it if all can open it. */
static um_status offer_board(um_link *l, um_err *err) {
    um_board_key key;
    char all = 1;
    l->board = um_board_new(l->n, &key);
    um_status s = um_link_tell(l, UM_FRAME_WELCOME, &key, sizeof key, err);
    if (!s) s = um_link_collect(l, UM_FRAME_BOARD, err);
    if (s) return s;
    for (int32_t i = 0; i < l->n_connections; i++) all &= l->c[i].body.len == 1 && l->c[i].body.data[0] == 1;
    if (!all) {
        um_board_close(l->board);
        l->board = NULL;
    }
    return um_link_tell(l, UM_FRAME_BOARD, &all, 1, err);
}

static um_status gather_ranks(um_link *l, const um_launch *launch, const char *facts, um_err *err) {
    int listener = -1;
    um_err unread;
    if (!err) err = &unread; /* its message is sent to the other ranks */
    um_status s = open_listener(launch, &listener, err);
    for (int32_t r = 1; r < l->n; r++) *connection_of(l, r) = (um_connection){.fd = -1, .rank = r};
    l->n_connections = l->n - 1;
    if (!s) s = wait_for_all(l, launch, listener, facts, err);
    if (listener >= 0) close(listener);
    if (!s) s = offer_board(l, err);
    if (!s) return UM_OK;
    um_link_fail(l, 0, err->msg);
    return s;
}

/* ---- The other ranks --------------------------------------------------------------------------------------------- */

/* A port of this host to which nobody listens can connect to itself. */
static bool is_own_end(int fd) {
    struct sockaddr_storage a = {0}, b = {0};
    socklen_t n = sizeof a, m = sizeof b;
    return getsockname(fd, (struct sockaddr *)&a, &n) || getpeername(fd, (struct sockaddr *)&b, &m) ||
           (n == m && memcmp(&a, &b, n) == 0);
}

/* Returns a socket that is connected to one of these addresses; -1 with errno. */
static int connect_to(const struct addrinfo *a) {
    int fd = -1;
    for (; a && fd < 0; a = a->ai_next) {
        const struct timeval most = {.tv_sec = 5};
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd < 0) continue;
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most); /* of connect */
        if (!connect(fd, a->ai_addr, a->ai_addrlen) && !is_own_end(fd)) return fd;
        const int why = errno ? errno : ECONNREFUSED;
        close(fd);
        errno = why;
        fd = -1;
    }
    return fd;
}

/* Opens the memory that rank 0 offers with its welcome, if this rank is on the same host. */
static um_status take_board(um_link *l, um_err *err) {
    um_connection *c = &l->c[0];
    um_failed why;
    um_board_key key = {0};
    if (c->body.len == sizeof key) memcpy(&key, c->body.data, sizeof key);
    l->board = um_board_open(l->rank, l->n, &key);
    const char has = l->board != NULL;
    um_connection_send(c, UM_FRAME_BOARD, &has, 1);
    um_connection_receive(c, UM_FRAME_BOARD, NULL, 0);
    const bool is_told = um_transfer(c, 1, l->timeout, &why);
    if (is_told && c->body.len == 1 && c->body.data[0]) return UM_OK;
    um_board_close(l->board);
    l->board = NULL;
    return is_told ? UM_OK : um_fail(err, UM_EDEVICE, "%s", why.message);
}

/* Connects once and waits for the welcome. Errors: UM_EDEVICE, which may pass; UM_EINVAL, rank 0 has refused. */
static um_status try_to_join(um_link *l, const um_launch *launch, const um_buf *hello, double seconds, um_err *err) {
    struct addrinfo *a = NULL;
    um_failed why;
    um_connection *c = &l->c[0];
    um_status s = resolve(launch, launch->addr, &a, err);
    if (s) return s;
    errno = 0;
    const int fd = connect_to(a);
    freeaddrinfo(a);
    if (fd < 0) return um_fail(err, UM_EDEVICE, "%s", errno ? strerror(errno) : "nobody listens there");
    s = um_connection_init(c, fd, 0, err);
    if (s) return s;
    um_connection_send(c, UM_FRAME_HELLO, hello->data, hello->len);
    um_connection_receive(c, 0, NULL, 0);
    if (!um_transfer(c, 1, seconds, &why)) s = um_fail(err, UM_EDEVICE, "%s", why.message);
    else if (c->in.type == UM_FRAME_REFUSED)
        s = um_fail(err, UM_EINVAL, "rank 0 refuses this rank: %.*s", (int)c->body.len, c->body.data);
    else if (c->in.type != UM_FRAME_WELCOME) s = um_fail(err, UM_EDEVICE, "it sent a frame out of turn");
    if (!s) s = take_board(l, err);
    if (!s) return UM_OK;
    um_connection_close(c);
    *c = (um_connection){.fd = -1};
    return s;
}

static um_status join(um_link *l, const um_launch *launch, const char *facts, um_err *err) {
    const um_hello h = {l->rank, l->n};
    const double start = um_now();
    double logged = start;
    um_buf hello = {0};
    um_err why = {0};
    um_status s;
    um_buf_append(&hello, &h, sizeof h);
    um_buf_puts(&hello, facts);
    l->n_connections = 1;
    l->c[0] = (um_connection){.fd = -1};
    for (;;) {
        const double now = um_now(), left = start + l->timeout - now;
        s = try_to_join(l, launch, &hello, UM_MAX(left, HELLO_SECONDS), &why);
        if (s != UM_EDEVICE || left <= 0) break;
        if (now - logged >= LOG_SECONDS) {
            logged = now;
            um_warn("waiting for rank 0 at %s:%d: %s", launch->addr, launch->port, why.msg);
        }
        (void)poll(NULL, 0, RETRY_MS);
    }
    um_buf_free(&hello);
    if (s == UM_EDEVICE)
        return um_fail(err, s,
                       "rank %d could not join rank 0 at %.80s:%d within %g s (--distributed-timeout-seconds): %s",
                       l->rank, launch->addr, launch->port, l->timeout, why.msg);
    return s ? um_fail(err, s, "%s", why.msg) : UM_OK;
}

um_status um_link_open(um_link **out, const um_launch *launch, int32_t n, const char *facts, double timeout,
                       um_err *err) {
    um_link *l = UM_NEW(um_link);
    assert(n > 1 && n <= UM_RANKS_MAX && launch->rank >= 0 && launch->rank < n);
    l->rank = launch->rank;
    l->n = n;
    l->timeout = timeout;
    um_status s = l->rank ? join(l, launch, facts, err) : gather_ranks(l, launch, facts, err);
    if (s) {
        l->has_failed = true;
        um_link_close(l);
        l = NULL;
    }
    *out = l;
    return s;
}
