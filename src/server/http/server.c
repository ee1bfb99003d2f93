/* The server: listens, accepts, and keeps the list of connections. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>
#include <event2/listener.h>
#include <event2/util.h>

#include "server/http/internal.h"

#define ACCEPT_RETRY       0.1         /* seconds until the next try after an error or with too many connections */
#define NOT_SENT_MAX       (128 << 10) /* unsent bytes in the kernel; a low limit keeps snapshots fresh */
#define MAX_UNREAD_DEFAULT ((size_t)16 << 20)
#define MAX_BODY_DEFAULT   ((size_t)16 << 20)
#define MAX_BODIES_DEFAULT ((size_t)256 << 20)

void um_http_config_init(um_http_config *c) {
    *c = (um_http_config){.host = "127.0.0.1",
                          .max_connections = 4096,
                          .max_head_bytes = UM_HTTP_HEAD_MAX,
                          .max_body_bytes = MAX_BODY_DEFAULT,
                          .max_bodies_bytes = MAX_BODIES_DEFAULT,
                          .head_timeout = 30,
                          .body_timeout = 60,
                          .min_body_rate = 1000,
                          .linger_timeout = 2,
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

void um_http_name_peer(um_http_peer *p, unsigned port) {
    struct in6_addr ip;
    char host[INET6_ADDRSTRLEN] = "", after[16] = "";
    memcpy(&ip, p->address, sizeof ip);
    bool is_v4 = IN6_IS_ADDR_V4MAPPED(&ip);
    evutil_inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4 ? &ip.s6_addr[12] : ip.s6_addr, host, sizeof host);
    if (port) snprintf(after, sizeof after, ":%u", port);
    snprintf(p->text, sizeof p->text, is_v4 ? "%s%s" : "[%s]%s", host, after);
    p->is_local = is_v4 ? ip.s6_addr[12] == 127 : IN6_IS_ADDR_LOOPBACK(&ip);
}

/* Reads an address. An IPv4 address becomes ::ffff:a.b.c.d, as it arrives at an IPv6 socket. */
static um_http_peer peer_of(const struct sockaddr *a) {
    const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)(const void *)a;
    const struct sockaddr_in *a4 = (const struct sockaddr_in *)(const void *)a;
    um_http_peer p = {.text = "unix", .is_local = true, .is_unix = true};
    struct in6_addr ip = IN6ADDR_ANY_INIT;
    if (a->sa_family != AF_INET && a->sa_family != AF_INET6) return p;
    if (a->sa_family == AF_INET6) {
        ip = a6->sin6_addr;
    } else {
        ip.s6_addr[10] = ip.s6_addr[11] = 0xFF;
        memcpy(&ip.s6_addr[12], &a4->sin_addr, 4);
    }
    p.is_unix = false;
    memcpy(p.address, &ip, sizeof p.address);
    um_http_name_peer(&p, ntohs(a->sa_family == AF_INET6 ? a6->sin6_port : a4->sin_port));
    return p;
}

/* Stops accepting when even the spare connections are taken. Further clients wait in the kernel's queue until the timer
 * finds a spare connection that is late. */
static void update_accepting(um_http_server *s) {
    struct timeval delay = um_timeval(ACCEPT_RETRY);
    if (!s->listener) return;
    if (um_http_is_full(s)) {
        evconnlistener_disable(s->listener);
        event_add(s->retry_timer, &delay);
    } else if (!event_pending(s->retry_timer, EV_TIMEOUT, NULL)) {
        evconnlistener_enable(s->listener);
    }
}

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *a, int len, void *arg) {
    um_http_server *s = (um_http_server *)arg;
    int one = 1, not_sent = NOT_SENT_MAX;
    um_http_peer peer = peer_of(a);
    (void)l, (void)len;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &not_sent, sizeof not_sent);
    um_http_conn_new(s, fd, &peer);
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

/* ---- Start and end ----------------------------------------------------------------------------------------------- */

um_status um_http_server_new(um_http_server **out, struct event_base *base, const um_http_config *c, um_http_fn handler,
                             um_http_error_fn error, void *arg, um_err *err) {
    int fd;
    um_status st = um_http_listen(&fd, c, err);
    if (st) return st;
    um_http_ignore_sigpipe();
    um_http_server *s = UM_NEW(um_http_server);
    s->base = base;
    s->config = *c;
    s->handler = handler;
    s->error = error;
    s->arg = arg;
    s->port = um_http_port_of(fd);
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

static void stop_listening(um_http_server *s) {
    if (!s->listener) return;
    if (s->config.unix_socket) unlink(s->config.unix_socket);
    evconnlistener_free(s->listener);
    s->listener = NULL;
}

void um_http_server_set_limits(um_http_server *s, const um_http_config *c) {
    um_http_config *own = &s->config;
    own->max_connections = c->max_connections;
    own->max_connections_per_peer = c->max_connections_per_peer;
    own->trusted_proxies = c->trusted_proxies;
    own->head_timeout = c->head_timeout;
    own->body_timeout = c->body_timeout;
    own->min_body_rate = c->min_body_rate;
    own->idle_timeout = c->idle_timeout;
    own->write_timeout = c->write_timeout;
}

void um_http_server_stop(um_http_server *s) {
    if (!s->listener) return;
    stop_listening(s);
    for (um_http_conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        um_http_conn_close_idle(c);
    }
}

void um_http_server_free(um_http_server *s) {
    if (!s) return;
    stop_listening(s);
    while (s->conns) um_http_conn_close(s->conns);
    if (s->retry_timer) event_free(s->retry_timer);
    um_buf_free(&s->head);
    um_free(s);
}

void um_http_server_on_end(um_http_server *s, um_exchange_close_fn fn) { s->on_end = fn; }
void um_http_server_on_body(um_http_server *s, um_http_body_fn fn) { s->on_body = fn; }
int32_t um_http_server_port(const um_http_server *s) { return s->port; }
int32_t um_http_server_connections(const um_http_server *s) { return s->n_conns; }
