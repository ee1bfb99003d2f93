/* The server: listens, accepts, and keeps the list of connections. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>
#include <event2/listener.h>
#include <event2/util.h>

#include "server/http/internal.h"

#define BACKLOG            1024
#define ACCEPT_RETRY       0.2         /* seconds until the next try after an error */
#define NOT_SENT_MAX       (128 << 10) /* unsent bytes in the kernel; a low limit keeps snapshots fresh */
#define MAX_UNREAD_DEFAULT ((size_t)16 << 20)
#define MAX_BODY_DEFAULT   ((size_t)16 << 20)

void um_http_config_init(um_http_config *c) {
    *c = (um_http_config){.host = "127.0.0.1",
                          .max_connections = 4096,
                          .max_head_bytes = UM_HTTP_HEAD_MAX,
                          .max_body_bytes = MAX_BODY_DEFAULT,
                          .head_timeout = 30,
                          .body_timeout = 60,
                          .idle_timeout = 75,
                          .write_timeout = 60,
                          .max_unread_bytes = MAX_UNREAD_DEFAULT};
}

/* Ignores SIGPIPE, so that writing to a client that has disconnected does not kill the process. */
void um_http_ignore_sigpipe(void) { signal(SIGPIPE, SIG_IGN); }

/* ---- Date -------------------------------------------------------------------------------------------------------- */

/* Formats the date once per second, with English names in every locale. */
const char *um_http_date(um_http_server *s) {
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t now = time(NULL);
    struct tm t;
    if (now == s->date_second || !gmtime_r(&now, &t)) return s->date;
    snprintf(s->date, sizeof s->date, "%.3s, %02u %.3s %04u %02u:%02u:%02u GMT", days + 3 * t.tm_wday,
             (unsigned)t.tm_mday % 100, months + 3 * t.tm_mon, (unsigned)(t.tm_year + 1900) % 10000,
             (unsigned)t.tm_hour % 100, (unsigned)t.tm_min % 100, (unsigned)t.tm_sec % 100);
    s->date_second = now;
    return s->date;
}

/* ---- Accepting --------------------------------------------------------------------------------------------------- */

static void format_peer(const struct sockaddr *a, char *out, size_t size) {
    const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)(const void *)a;
    const struct sockaddr_in *a4 = (const struct sockaddr_in *)(const void *)a;
    char host[INET6_ADDRSTRLEN] = "";
    if (a->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a6->sin6_addr)) {
        evutil_inet_ntop(AF_INET, &a6->sin6_addr.s6_addr[12], host, sizeof host);
        snprintf(out, size, "%s:%u", host, ntohs(a6->sin6_port));
    } else if (a->sa_family == AF_INET6) {
        evutil_inet_ntop(AF_INET6, &a6->sin6_addr, host, sizeof host);
        snprintf(out, size, "[%s]:%u", host, ntohs(a6->sin6_port));
    } else {
        evutil_inet_ntop(AF_INET, &a4->sin_addr, host, sizeof host);
        snprintf(out, size, "%s:%u", host, ntohs(a4->sin_port));
    }
}

/* Stops accepting at the connection limit. Further clients wait in the kernel's queue. Responding with 503 would only
 * make them retry at once. */
static void update_accepting(um_http_server *s) {
    if (!s->listener) return;
    if (s->n_conns >= s->config.max_connections) evconnlistener_disable(s->listener);
    else if (!event_pending(s->retry_timer, EV_TIMEOUT, NULL)) evconnlistener_enable(s->listener);
}

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *a, int len, void *arg) {
    um_http_server *s = (um_http_server *)arg;
    int one = 1, not_sent = NOT_SENT_MAX;
    char peer[sizeof s->conns->peer];
    (void)l, (void)len;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &not_sent, sizeof not_sent);
    format_peer(a, peer, sizeof peer);
    um_http_conn_new(s, fd, peer);
    update_accepting(s);
}

static void on_retry(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    update_accepting((um_http_server *)arg);
}

/* Pauses accepting after an error, most likely too many open files. Otherwise the waiting client would make the loop
 * spin. */
static void on_accept_error(struct evconnlistener *l, void *arg) {
    um_http_server *s = (um_http_server *)arg;
    struct timeval delay = um_timeval(ACCEPT_RETRY);
    um_warn("can't accept a connection: %s", evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
    evconnlistener_disable(l);
    event_add(s->retry_timer, &delay);
}

void um_http_server_remove(um_http_server *s, um_http_conn *c) {
    if (c->prev) c->prev->next = c->next;
    else s->conns = c->next;
    if (c->next) c->next->prev = c->prev;
    s->n_conns--;
    update_accepting(s);
}

/* ---- Listening --------------------------------------------------------------------------------------------------- */

/* Returns a listening socket, or -1 with errno. "::" accepts IPv4 too, whatever the system's default is. */
static int listen_on(const struct addrinfo *a) {
    int on = 1, off = 0, fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* Returns advice for an errno of bind or listen, to append to the error message. */
static const char *advice(int why) {
    switch (why) {
    case EADDRINUSE: return "; another program listens there; choose another port, or 0 for any free one";
    case EACCES: return "; ports below 1024 need privileges";
    case EADDRNOTAVAIL: return "; this machine does not have the address";
    default: return "";
    }
}

/* Opens a listening socket on the first address of the host that allows it. */
static um_status open_socket(int *fd, const um_http_config *c, um_err *err) {
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *list = NULL;
    char port[16];
    snprintf(port, sizeof port, "%d", (int)c->port);
    int got = getaddrinfo(c->host, port, &hints, &list);
    if (got) return um_fail(err, UM_EIO, "can't listen on \"%s\": unknown host: %s", c->host, gai_strerror(got));
    *fd = -1;
    for (struct addrinfo *a = list; a && *fd < 0; a = a->ai_next) *fd = listen_on(a);
    int why = errno;
    freeaddrinfo(list);
    if (*fd >= 0) return UM_OK;
    return um_fail(err, UM_EIO, "can't listen on %s port %d: %s%s", c->host, (int)c->port, strerror(why), advice(why));
}

static int32_t port_of(int fd) {
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n)) return 0;
    if (a.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)(void *)&a)->sin6_port);
    return ntohs(((struct sockaddr_in *)(void *)&a)->sin_port);
}

um_status um_http_server_new(um_http_server **out, struct event_base *base, const um_http_config *c, um_http_fn handler,
                             um_http_error_fn error, void *arg, um_err *err) {
    int fd;
    um_status st = open_socket(&fd, c, err);
    if (st) return st;
    um_http_ignore_sigpipe();
    um_http_server *s = UM_NEW(um_http_server);
    s->base = base;
    s->config = *c;
    s->handler = handler;
    s->error = error;
    s->arg = arg;
    s->port = port_of(fd);
    s->retry_timer = evtimer_new(base, on_retry, s);
    s->listener = evconnlistener_new(base, on_accept, s, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    if (!s->retry_timer || !s->listener) {
        if (!s->listener) close(fd);
        um_http_server_free(s);
        return um_fail(err, UM_EIO, "can't add the listening socket to the event loop");
    }
    evconnlistener_set_error_cb(s->listener, on_accept_error);
    *out = s;
    return UM_OK;
}

void um_http_server_stop(um_http_server *s) {
    if (!s->listener) return;
    evconnlistener_free(s->listener);
    s->listener = NULL;
    for (um_http_conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        um_http_conn_close_idle(c);
    }
}

void um_http_server_free(um_http_server *s) {
    if (!s) return;
    if (s->listener) evconnlistener_free(s->listener);
    s->listener = NULL;
    while (s->conns) um_http_conn_close(s->conns);
    if (s->retry_timer) event_free(s->retry_timer);
    um_buf_free(&s->head);
    um_free(s);
}

void um_http_server_on_end(um_http_server *s, um_exchange_close_fn fn) { s->on_end = fn; }
int32_t um_http_server_port(const um_http_server *s) { return s->port; }
int32_t um_http_server_connections(const um_http_server *s) { return s->n_conns; }
