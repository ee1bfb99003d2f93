/* A connection: reads a request, waits until its answer is out, reads the next one.
 *
 * Reading stays on while an answer is pending, since that is how a hang-up is noticed; what comes meanwhile waits in
 * the bufferevent. When that is full, reading pauses and a watch on the socket's other end takes over. */
#include <sys/socket.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>

#include "server/http/internal.h"

#define PIPELINED_MAX  ((size_t)64 << 10)  /* bytes that wait behind a request; also read at once */
#define LINGER_SECONDS 2.0                 /* given to the client to read its last answer */
#define BODY_AT_ONCE   ((size_t)256 << 10) /* reserved for a body because it is announced */

/* Sets the timer of the state in which the connection now waits. That of a head goes on from its first byte, however
 * slowly the rest comes. */
static void set_timer(um_http_conn *c) {
    const um_http_config *f = &c->server->config;
    const double seconds[] = {[UM_CONN_IDLE] = c->n_requests ? f->idle_timeout : f->head_timeout,
                              [UM_CONN_HEAD] = f->head_timeout,
                              [UM_CONN_BODY] = f->body_timeout,
                              [UM_CONN_ANSWER] = 0,
                              [UM_CONN_LINGER] = LINGER_SECONDS};
    struct timeval t = um_timeval(seconds[c->state]);
    if (c->state == UM_CONN_HEAD && c->is_head_timed) return;
    c->is_head_timed = c->state == UM_CONN_HEAD;
    if (seconds[c->state] > 0) event_add(c->timer, &t);
    else event_del(c->timer);
}

size_t um_http_conn_unread(const um_http_conn *c) { return evbuffer_get_length(bufferevent_get_output(c->bev)); }

void um_http_conn_close(um_http_conn *c) {
    if (c->x) um_exchange_close(c->x, false);
    c->x = NULL;
    um_http_server_forget(c->server, c);
    if (c->timer) event_free(c->timer);
    if (c->settle) event_free(c->settle);
    if (c->hangup) event_free(c->hangup);
    bufferevent_free(c->bev);
    um_http_parser_free(&c->parser);
    um_free(c);
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* The socket first: most answers fit, and then the loop need not hear of them. An error shows when the loop tries. */
void um_http_conn_put(um_http_conn *c, const struct iovec *v, int n) {
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
    um_http_conn_put(c, &v, 1);
}

/* ---- Hanging up -------------------------------------------------------------------------------------------------- */

/* The client sends no more. While an answer is pending that counts as a hang-up; one that is complete is still
 * delivered. */
static void end_of_input(um_http_conn *c) {
    c->got_eof = true;
    if (c->hangup) event_del(c->hangup);
    if (c->state != UM_CONN_ANSWER || !c->x->ended || c->x->broken) um_http_conn_close(c);
}

static void on_hangup(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    end_of_input((um_http_conn *)arg);
}

/* The client sends more and more while it waits for an answer. (A high-water mark of the bufferevent would do, but
 * libevent 2.1 calls the reader again and again as long as it is reached.) */
static void pause_reading(um_http_conn *c) {
    bufferevent_disable(c->bev, EV_READ);
    if (!c->hangup)
        c->hangup = event_new(c->server->base, bufferevent_getfd(c->bev), EV_CLOSED | EV_PERSIST, on_hangup, c);
    if (c->hangup) event_add(c->hangup, NULL);
}

static void resume_reading(um_http_conn *c) {
    if (!c->hangup || !event_pending(c->hangup, EV_CLOSED, NULL)) return;
    event_del(c->hangup);
    bufferevent_enable(c->bev, EV_READ);
}

/* ---- End of an answer -------------------------------------------------------------------------------------------- */

/* Closing while the client still sends would reset the connection and take the answer from it, so the rest is read for
 * a while. */
static bool linger(um_http_conn *c) {
    if (c->got_eof) {
        um_http_conn_close(c);
        return false;
    }
    c->state = UM_CONN_LINGER;
    bufferevent_disable(c->bev, EV_WRITE);
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    evbuffer_drain(bufferevent_get_input(c->bev), SIZE_MAX);
    set_timer(c);
    return true;
}

static void wait_for_request(um_http_conn *c) {
    um_http_parser_next(&c->parser);
    c->state = UM_CONN_IDLE;
}

/* Ends the exchange when its answer is out. False: the connection is gone. */
static bool settle(um_http_conn *c) {
    um_exchange *x = c->x;
    if (!x) return true;
    if (x->broken) {
        um_http_conn_close(c);
        return false;
    }
    if (!x->ended || um_http_conn_unread(c)) return true;
    bool keep_alive = x->keep_alive;
    c->x = NULL;
    um_exchange_close(x, true); /* may have stopped the server */
    resume_reading(c);
    if (!keep_alive || !c->server->listener || c->got_eof) return linger(c);
    wait_for_request(c);
    return true;
}

void um_http_conn_settle_soon(um_http_conn *c) {
    if (!c->in_handler) event_active(c->settle, 0, 0);
}

void um_http_conn_drain_soon(um_http_conn *c) { event_active(c->settle, 0, 0); }

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static void handle(um_http_conn *c) {
    c->state = UM_CONN_ANSWER;
    c->n_requests++;
    c->x->is_handled = true;
    c->in_handler = true;
    c->server->handler(c->server->arg, c->x);
    c->in_handler = false;
}

static void refuse(um_http_conn *c, int status, const char *message) {
    c->state = UM_CONN_ANSWER;
    if (!c->x) c->x = um_exchange_new(c);
    c->in_handler = true;
    um_exchange_refuse(c->x, status, message);
    c->in_handler = false;
}

/* The head is whole: makes room for the body, tells a client that waits for it to go on. */
static void begin_body(um_http_conn *c) {
    const um_http_head *h = &c->parser.head;
    c->state = UM_CONN_BODY;
    c->x = um_exchange_new(c);
    if (h->length > 0) um_buf_reserve(&c->x->body, UM_MIN((size_t)h->length, BODY_AT_ONCE));
    if (h->expects_continue && (h->length > 0 || h->is_chunked)) put_text(c, "HTTP/1.1 100 Continue\r\n\r\n");
}

static void note_first_byte(um_http_conn *c) {
    c->state = UM_CONN_HEAD;
    c->began = um_now();
    c->is_head_timed = false;
}

/* Feeds the parser once. Returns whether there is more to do before bytes come. */
static bool read_some(um_http_conn *c, struct evbuffer *in) {
    struct evbuffer_iovec v = {(void *)(uintptr_t) "", 0};
    size_t used;
    evbuffer_peek(in, -1, NULL, &v, 1);
    if (c->state == UM_CONN_IDLE && v.iov_len) note_first_byte(c);
    um_http_got got = um_http_feed(&c->parser, (const char *)v.iov_base, v.iov_len, &used);
    if (got == UM_HTTP_BODY) um_buf_append(&c->x->body, c->parser.piece.p, c->parser.piece.n);
    evbuffer_drain(in, used);
    switch (got) {
    case UM_HTTP_HEAD: begin_body(c); break;
    case UM_HTTP_DONE: handle(c); break;
    case UM_HTTP_BAD: refuse(c, c->parser.status, c->parser.message); break;
    case UM_HTTP_NEED_MORE:
    case UM_HTTP_BODY: break;
    }
    return got != UM_HTTP_NEED_MORE || evbuffer_get_length(in);
}

/* Goes on as far as the bytes go that are there. */
static void advance(um_http_conn *c) {
    struct evbuffer *in = bufferevent_get_input(c->bev);
    bool more = true;
    while (more && c->state < UM_CONN_ANSWER) {
        more = read_some(c, in);
        if (c->state == UM_CONN_ANSWER && !settle(c)) return;
    }
    set_timer(c);
    if (c->state == UM_CONN_ANSWER && evbuffer_get_length(in) >= PIPELINED_MAX) pause_reading(c);
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

static void on_read(struct bufferevent *bev, void *arg) {
    um_http_conn *c = (um_http_conn *)arg;
    if (c->state == UM_CONN_LINGER) {
        evbuffer_drain(bufferevent_get_input(bev), SIZE_MAX);
        return;
    }
    advance(c);
}

/* Nothing waits for the client, or an answer ended. */
static void go_on(um_http_conn *c) {
    um_exchange *x = c->x;
    if (c->state != UM_CONN_ANSWER) return;
    if (x->has_written && !um_http_conn_unread(c) && !x->ended && !x->broken) {
        x->has_written = false;
        if (x->on_drain) x->on_drain(x->drain_arg, x);
    }
    if (settle(c)) advance(c);
}

static void on_drained(struct bufferevent *bev, void *arg) {
    (void)bev;
    go_on((um_http_conn *)arg);
}

static void on_settle(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    go_on((um_http_conn *)arg);
}

/* End of file, an error, or nothing was taken in write_timeout. */
static void on_event(struct bufferevent *bev, short what, void *arg) {
    um_http_conn *c = (um_http_conn *)arg;
    (void)bev;
    if (what & BEV_EVENT_EOF) end_of_input(c);
    else um_http_conn_close(c);
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    um_http_conn *c = (um_http_conn *)arg;
    (void)fd, (void)what;
    if (c->state == UM_CONN_IDLE || c->state == UM_CONN_LINGER) {
        um_http_conn_close(c);
        return;
    }
    refuse(c, 408, c->state == UM_CONN_HEAD ? "the head did not arrive in time" : "the body did not arrive in time");
    settle(c);
}

/* ---- Doors ------------------------------------------------------------------------------------------------------- */

bool um_http_conn_new(um_http_server *s, int fd, const char *peer) {
    struct bufferevent *bev = bufferevent_socket_new(s->base, fd, BEV_OPT_CLOSE_ON_FREE);
    struct timeval patience = um_timeval(s->config.write_timeout);
    if (!bev) {
        close(fd);
        return false;
    }
    um_http_conn *c = UM_NEW(um_http_conn);
    c->server = s;
    c->bev = bev;
    c->next = s->conns;
    if (c->next) c->next->prev = c;
    s->conns = c;
    s->n_conns++;
    snprintf(c->peer, sizeof c->peer, "%s", peer);
    c->timer = evtimer_new(s->base, on_timer, c);
    c->settle = event_new(s->base, -1, 0, on_settle, c);
    um_http_parser_init(&c->parser, UM_HTTP_REQUEST,
                        (um_http_limits){s->config.max_head_bytes, s->config.max_body_bytes});
    if (!c->timer || !c->settle) {
        um_http_conn_close(c);
        return false;
    }
    bufferevent_setcb(bev, on_read, on_drained, on_event, c);
    bufferevent_set_max_single_read(bev, PIPELINED_MAX);
    if (s->config.write_timeout > 0) bufferevent_set_timeouts(bev, NULL, &patience);
    set_timer(c);
    bufferevent_enable(bev, EV_READ | EV_WRITE);
    return true;
}

void um_http_conn_retire(um_http_conn *c) {
    if (c->state == UM_CONN_IDLE && !evbuffer_get_length(bufferevent_get_input(c->bev))) um_http_conn_close(c);
}
