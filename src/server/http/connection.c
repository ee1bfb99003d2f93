/* A connection: reads a request, waits until its response is sent, reads the next request.
 *
 * Reading stays on while a response is pending, because a disconnect is noticed only by reading. Bytes that arrive
 * meanwhile wait in the bufferevent. When there are too many, reading pauses, and an EV_CLOSED event notices a
 * disconnect. */
#include <sys/socket.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>

#include "server/http/internal.h"

/* Bytes after a request at which reading pauses; also the most that is read at once. */
#define PIPELINED_MAX ((size_t)64 << 10)
/* Bytes that arrive prolong the lingering of a connection up to this time. */
#define LINGER_SECONDS_MAX 30.0
/* A body up to this size is read even if all bodies together take more memory than they may. Otherwise a few clients
 * that send large bodies slowly would keep all others out. */
#define SMALL_BODY ((size_t)64 << 10)
/* Timeouts of a connection that is refused. */
#define REFUSED_SECONDS 2.0
/* The largest amount of memory that is reserved for a body before it arrives. */
#define BODY_RESERVE_MAX ((size_t)256 << 10)

/* Sets the timeout of the current state. The timeout of a head runs from its first byte and is not restarted by further
 * bytes. */
static void set_timer(um_http_conn *c) {
    const um_http_config *f = &c->server->config;
    const double seconds[] = {[UM_CONN_IDLE] = c->n_requests ? f->idle_timeout : f->head_timeout,
                              [UM_CONN_HEAD] = f->head_timeout,
                              [UM_CONN_BODY] = f->body_timeout,
                              [UM_CONN_RESPONSE] = 0,
                              [UM_CONN_LINGER] = f->linger_timeout};
    double wait = seconds[c->state];
    if (c->refused && c->state < UM_CONN_RESPONSE) wait = REFUSED_SECONDS;
    struct timeval t = um_timeval(wait);
    if (c->state == UM_CONN_HEAD && c->is_head_timed) return;
    c->is_head_timed = c->state == UM_CONN_HEAD;
    if (wait > 0) event_add(c->timer, &t);
    else event_del(c->timer);
}

size_t um_http_conn_unread(const um_http_conn *c) { return evbuffer_get_length(bufferevent_get_output(c->bev)); }

void um_http_conn_close(um_http_conn *c) {
    if (c->x) um_exchange_close(c->x, false);
    c->x = NULL;
    um_http_server_remove(c->server, c);
    if (c->timer) event_free(c->timer);
    if (c->continue_event) event_free(c->continue_event);
    if (c->disconnect_event) event_free(c->disconnect_event);
    bufferevent_free(c->bev);
    um_http_parser_free(&c->parser);
    um_free(c);
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* Tries the socket before the bufferevent: most responses fit into the socket's buffer, which saves a turn of the loop.
 * Errors are ignored here; the bufferevent reports them when it writes the rest. */
void um_http_conn_write(um_http_conn *c, const struct iovec *v, int n) {
    struct evbuffer *out = bufferevent_get_output(c->bev);
    size_t done = 0;
    if (!evbuffer_get_length(out)) {
        struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = (size_t)n};
        ssize_t sent = sendmsg(bufferevent_getfd(c->bev), &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        done = sent > 0 ? (size_t)sent : 0;
    }
    for (int i = 0; i < n; i++) {
        size_t skip = UM_MIN(done, v[i].iov_len);
        if (skip < v[i].iov_len) evbuffer_add(out, (const char *)v[i].iov_base + skip, v[i].iov_len - skip);
        done -= skip;
    }
}

static void put_text(um_http_conn *c, const char *text) {
    struct iovec v = {(void *)(uintptr_t)text, strlen(text)};
    um_http_conn_write(c, &v, 1);
}

/* ---- Disconnects ------------------------------------------------------------------------------------------------- */

/* The client sends no more. This counts as a disconnect, unless the response is complete but not yet delivered. */
static void on_eof(um_http_conn *c) {
    c->got_eof = true;
    if (c->disconnect_event) event_del(c->disconnect_event);
    if (c->state != UM_CONN_RESPONSE || !c->x->ended || c->x->aborted) um_http_conn_close(c);
}

static void on_disconnect(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    on_eof((um_http_conn *)arg);
}

/* Stops reading from a client that sends too much while a response is pending. A high-water mark of the bufferevent
 * does not work: libevent 2.1 calls the read callback in a loop while it is reached. */
static void pause_reading(um_http_conn *c) {
    bufferevent_disable(c->bev, EV_READ);
    if (!c->disconnect_event)
        c->disconnect_event =
            event_new(c->server->base, bufferevent_getfd(c->bev), EV_CLOSED | EV_PERSIST, on_disconnect, c);
    if (c->disconnect_event) event_add(c->disconnect_event, NULL);
}

static void resume_reading(um_http_conn *c) {
    if (!c->disconnect_event || !event_pending(c->disconnect_event, EV_CLOSED, NULL)) return;
    event_del(c->disconnect_event);
    bufferevent_enable(c->bev, EV_READ);
}

/* ---- End of a response ------------------------------------------------------------------------------------------- */

/* Shuts down the sending side, and reads on for a while. Closing at once while the client sends would reset the
 * connection, and the client could lose the response. Returns false if the connection was closed. */
static bool linger(um_http_conn *c) {
    if (c->got_eof) {
        um_http_conn_close(c);
        return false;
    }
    c->state = UM_CONN_LINGER;
    c->linger_began = um_now();
    bufferevent_disable(c->bev, EV_WRITE);
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    evbuffer_drain(bufferevent_get_input(c->bev), SIZE_MAX);
    set_timer(c);
    return true;
}

static void wait_for_request(um_http_conn *c) {
    um_http_parser_next(&c->parser);
    c->state = UM_CONN_IDLE;
    c->client = c->peer;
}

/* Ends the exchange when its response is sent. Returns false if the connection was closed. */
static bool finish_exchange(um_http_conn *c) {
    um_exchange *x = c->x;
    if (!x) return true;
    if (x->aborted) {
        um_http_conn_close(c);
        return false;
    }
    if (!x->ended || um_http_conn_unread(c)) return true;
    bool keep_alive = x->keep_alive;
    c->x = NULL;
    um_exchange_close(x, true); /* the close callback may stop the server */
    resume_reading(c);
    if (!keep_alive || !c->server->listener || c->got_eof) return linger(c);
    wait_for_request(c);
    return true;
}

void um_http_conn_finish_soon(um_http_conn *c) {
    if (!c->in_handler) event_active(c->continue_event, 0, 0);
}

void um_http_conn_drain_soon(um_http_conn *c) { event_active(c->continue_event, 0, 0); }

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static void handle(um_http_conn *c) {
    c->state = UM_CONN_RESPONSE;
    c->n_requests++;
    c->x->is_handled = true;
    c->in_handler = true;
    c->server->handler(c->server->arg, c->x);
    c->in_handler = false;
}

static void reject(um_http_conn *c, int status, const char *message) {
    c->state = UM_CONN_RESPONSE;
    if (!c->x) c->x = um_exchange_new(c);
    c->in_handler = true;
    um_exchange_reject(c->x, status, message);
    c->in_handler = false;
}

static void reject_refused(um_http_conn *c, int status) {
    um_exchange_add_header(c->x, "Retry-After", "1");
    reject(c, status,
           status == 429 ? "too many connections from this address" : "all connections of the server are taken");
}

/* On a spare connection only the vital path gets so far. A body that arrives slowly would hold the connection. */
static bool needs_body(const um_http_conn *c) {
    const um_http_server *s = c->server;
    if (c->refused) return false;
    return !s->on_body || s->on_body(s->arg, c->x);
}

/* Starts the exchange when the head is complete. Calls the handler at once if nobody needs the body. Otherwise reserves
 * memory for the body, and sends 100 Continue if the client asked for it. */
static void begin_body(um_http_conn *c) {
    const um_http_head *h = &c->parser.head;
    c->state = UM_CONN_BODY;
    c->body_began = um_now();
    c->x = um_exchange_new(c);
    int client = um_http_limit_of_client(c), refused = c->refused ? c->refused : client;
    if (refused && !um_streq(um_exchange_path(c->x), c->server->config.vital_path)) {
        reject_refused(c, refused);
        return;
    }
    if (h->length <= 0 && !h->is_chunked) return;
    if (!needs_body(c)) {
        c->x->keep_alive = false;
        handle(c);
        return;
    }
    if (h->length > 0) um_buf_reserve(&c->x->body, UM_MIN((size_t)h->length, BODY_RESERVE_MAX));
    if (h->expects_continue) put_text(c, "HTTP/1.1 100 Continue\r\n\r\n");
}

static void begin_head(um_http_conn *c) {
    c->state = UM_CONN_HEAD;
    c->began = um_now();
    c->is_head_timed = false;
}

/* Returns whether the body has taken longer than its bytes may take. */
static bool is_too_slow(const um_http_conn *c) {
    const um_http_config *f = &c->server->config;
    if (f->body_timeout <= 0 || f->min_body_rate <= 0) return false;
    return um_now() - c->body_began > f->body_timeout + (double)c->x->body.len / f->min_body_rate;
}

/* Bytes count when they have arrived, not when a head announces them. Otherwise a client could take all the memory for
 * bodies without sending one. */
static void add_piece(um_http_conn *c) {
    um_http_server *s = c->server;
    um_str piece = c->parser.piece;
    const bool is_small = c->x->body.len + piece.n <= SMALL_BODY;
    if (!is_small && s->bodies_bytes + piece.n > s->config.max_bodies_bytes) {
        um_exchange_add_header(c->x, "Retry-After", "1");
        reject(c, 503, "the bodies of other requests take the memory that bodies may take; retry later");
        return;
    }
    um_buf_append(&c->x->body, piece.p, piece.n);
    s->bodies_bytes += piece.n;
    if (is_too_slow(c)) reject(c, 408, "the body arrives too slowly");
}

/* Feeds the parser once. Returns whether it can be fed again without waiting for bytes. */
static bool read_some(um_http_conn *c, struct evbuffer *in) {
    struct evbuffer_iovec v = {(void *)(uintptr_t) "", 0};
    size_t used;
    evbuffer_peek(in, -1, NULL, &v, 1);
    if (c->state == UM_CONN_IDLE && v.iov_len) begin_head(c);
    um_http_got got = um_http_feed(&c->parser, (const char *)v.iov_base, v.iov_len, &used);
    if (got == UM_HTTP_BODY) add_piece(c);
    evbuffer_drain(in, used);
    switch (got) {
    case UM_HTTP_HEAD: begin_body(c); break;
    case UM_HTTP_DONE: handle(c); break;
    case UM_HTTP_BAD: reject(c, c->parser.status, c->parser.message); break;
    case UM_HTTP_NEED_MORE:
    case UM_HTTP_BODY: break;
    }
    return got != UM_HTTP_NEED_MORE || evbuffer_get_length(in);
}

/* Reads and handles as many requests as have arrived. */
static void read_requests(um_http_conn *c) {
    struct evbuffer *in = bufferevent_get_input(c->bev);
    bool more = true;
    while (more && c->state < UM_CONN_RESPONSE) {
        more = read_some(c, in);
        if (c->state == UM_CONN_RESPONSE && !finish_exchange(c)) return;
    }
    set_timer(c);
    if (c->state == UM_CONN_RESPONSE && evbuffer_get_length(in) >= PIPELINED_MAX) pause_reading(c);
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

static void on_read(struct bufferevent *bev, void *arg) {
    um_http_conn *c = (um_http_conn *)arg;
    if (c->state == UM_CONN_LINGER) {
        evbuffer_drain(bufferevent_get_input(bev), SIZE_MAX);
        if (um_now() - c->linger_began < LINGER_SECONDS_MAX) set_timer(c);
        return;
    }
    read_requests(c);
}

/* Continues when the output buffer has drained or a response has ended: calls the drain callback, finishes the
 * exchange, and reads the next request. */
static void continue_exchange(um_http_conn *c) {
    um_exchange *x = c->x;
    if (c->state != UM_CONN_RESPONSE) return;
    if (x->has_written && !um_http_conn_unread(c) && !x->ended && !x->aborted) {
        x->has_written = false;
        if (x->on_drain) x->on_drain(x->drain_arg, x);
    }
    if (finish_exchange(c)) read_requests(c);
}

static void on_drained(struct bufferevent *bev, void *arg) {
    (void)bev;
    continue_exchange((um_http_conn *)arg);
}

static void on_continue(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    continue_exchange((um_http_conn *)arg);
}

/* End of file, an error, or write_timeout. */
static void on_event(struct bufferevent *bev, short what, void *arg) {
    um_http_conn *c = (um_http_conn *)arg;
    (void)bev;
    if (what & BEV_EVENT_EOF) on_eof(c);
    else um_http_conn_close(c);
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    um_http_conn *c = (um_http_conn *)arg;
    (void)fd, (void)what;
    if (c->state == UM_CONN_IDLE || c->state == UM_CONN_LINGER) {
        um_http_conn_close(c);
        return;
    }
    reject(c, 408, c->state == UM_CONN_HEAD ? "timeout while reading the head" : "timeout while reading the body");
    finish_exchange(c);
}

/* ---- Opening and closing ----------------------------------------------------------------------------------------- */

bool um_http_conn_new(um_http_server *s, int fd, const um_http_peer *peer) {
    struct bufferevent *bev = bufferevent_socket_new(s->base, fd, BEV_OPT_CLOSE_ON_FREE);
    struct timeval write_timeout = um_timeval(s->config.write_timeout);
    if (!bev) {
        close(fd);
        return false;
    }
    um_http_conn *c = UM_NEW(um_http_conn);
    c->server = s;
    c->bev = bev;
    c->opened = um_now();
    c->refused = um_http_limit_of(s, peer);
    c->next = s->conns;
    if (c->next) c->next->prev = c;
    s->conns = c;
    s->n_conns++;
    c->peer = c->client = *peer;
    c->timer = evtimer_new(s->base, on_timer, c);
    c->continue_event = event_new(s->base, -1, 0, on_continue, c);
    um_http_parser_init(&c->parser, UM_HTTP_REQUEST,
                        (um_http_limits){s->config.max_head_bytes, s->config.max_body_bytes});
    if (!c->timer || !c->continue_event) {
        um_http_conn_close(c);
        return false;
    }
    bufferevent_setcb(bev, on_read, on_drained, on_event, c);
    bufferevent_set_max_single_read(bev, PIPELINED_MAX);
    if (s->config.write_timeout > 0) bufferevent_set_timeouts(bev, NULL, &write_timeout);
    set_timer(c);
    bufferevent_enable(bev, EV_READ | EV_WRITE);
    return true;
}

bool um_http_conn_is_idle(const um_http_conn *c) {
    return c->state == UM_CONN_IDLE && !evbuffer_get_length(bufferevent_get_input(c->bev));
}

void um_http_conn_close_idle(um_http_conn *c) {
    if (um_http_conn_is_idle(c)) um_http_conn_close(c);
}
