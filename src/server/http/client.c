/* The client: one request per connection.
 *
 * um_http_call_start calls no callback; its failures are reported in the next turn of the loop. A callback may cancel
 * its call, so the call is not freed while `depth` is not 0. */
#include <errno.h>
#include <netdb.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/util.h>

#include "server/http/internal.h"

struct um_http_call {
    struct event_base *base;
    um_http_client_callbacks listener;
    void *arg;
    struct addrinfo *own;        /* addresses that this call looked up, or NULL */
    const struct addrinfo *next; /* the next address to try */
    struct bufferevent *bev;
    struct event *start_event; /* connects, or reports a failure of the start */
    um_http_parser parser;
    um_buf request;
    um_err err;
    double timeout;
    char where[300]; /* "host port 8000" */
    int depth;       /* number of callbacks that are running */
    bool cancelled, connected;
    bool has_tried; /* a connection to some address was started */
};

static void free_call(um_http_call *c) {
    if (c->bev) bufferevent_free(c->bev);
    if (c->start_event) event_free(c->start_event);
    if (c->own) freeaddrinfo(c->own);
    um_http_parser_free(&c->parser);
    um_buf_free(&c->request);
    um_free(c);
}

void um_http_call_cancel(um_http_call *c) {
    if (!c) return;
    c->cancelled = true;
    if (!c->depth) free_call(c);
}

/* Calls `done` unless the call was cancelled, and frees the call. */
static void finish(um_http_call *c, um_status s) {
    c->depth++;
    if (!c->cancelled) c->listener.done(c->arg, s, s ? &c->err : NULL);
    free_call(c);
}

/* ---- Request ----------------------------------------------------------------------------------------------------- */

static void write_request(um_buf *out, const um_http_request *r) {
    const char *path = r->path ? r->path : r->url->path;
    bool is_v6 = strchr(r->url->host, ':') != NULL;
    um_buf_printf(out, "%s %s HTTP/1.1\r\nHost: %s%s%s:%d\r\nConnection: close\r\n", r->method, *path ? path : "/",
                  is_v6 ? "[" : "", r->url->host, is_v6 ? "]" : "", (int)r->url->port);
    if (r->accept) um_buf_printf(out, "Accept: %s\r\n", r->accept);
    if (r->api_key) um_buf_printf(out, "Authorization: Bearer %s\r\n", r->api_key);
    if (r->body.n || um_streq(r->method, "POST"))
        um_buf_printf(out, "Content-Type: %s\r\nContent-Length: %zu\r\n", r->type ? r->type : "application/json",
                      r->body.n);
    um_buf_puts(out, "\r\n");
    um_buf_append(out, r->body.p, r->body.n);
}

/* ---- Response ---------------------------------------------------------------------------------------------------- */

static void report_head(um_http_call *c) {
    um_http_head *h = &c->parser.head;
    uint32_t i = 0, k = 0;
    um_str type = um_http_head_find(h, "Content-Type", &i), id = um_http_head_find(h, "X-Request-Id", &k);
    char *type_text = um_strndup(type.n ? type.p : "", type.n), *id_text = um_strndup(id.n ? id.p : "", id.n);
    um_http_response a = {h->status, type_text, id_text};
    if (c->listener.head) c->listener.head(c->arg, &a);
    um_free(type_text);
    um_free(id_text);
}

/* Reports a result of the parser. Returns true when the call has ended and is freed. */
static bool report(um_http_call *c, um_http_got got) {
    c->depth++;
    if (got == UM_HTTP_HEAD) report_head(c);
    if (got == UM_HTTP_BODY) c->listener.data(c->arg, c->parser.piece.p, c->parser.piece.n);
    c->depth--;
    if (got == UM_HTTP_BAD) um_fail(&c->err, UM_EIO, "%s: %s", c->where, c->parser.message);
    if (!c->cancelled && got != UM_HTTP_BAD && got != UM_HTTP_DONE) return false;
    finish(c, got == UM_HTTP_BAD ? UM_EIO : UM_OK);
    return true;
}

static void on_read(struct bufferevent *bev, void *arg) {
    um_http_call *c = (um_http_call *)arg;
    struct evbuffer *in = bufferevent_get_input(bev);
    um_http_got got;
    do {
        struct evbuffer_iovec v = {(void *)(uintptr_t) "", 0};
        size_t used;
        evbuffer_peek(in, -1, NULL, &v, 1);
        got = um_http_feed(&c->parser, (const char *)v.iov_base, v.iov_len, &used);
        if (report(c, got)) return;
        evbuffer_drain(in, used);
    } while (got != UM_HTTP_NEED_MORE || evbuffer_get_length(in));
}

/* ---- Connecting -------------------------------------------------------------------------------------------------- */

static void connect_next(um_http_call *c);

static void fail_call(um_http_call *c, const char *what, const char *why) {
    um_fail(&c->err, UM_EIO, "%s: %s%s%s", c->where, what, why ? ": " : "", why ? why : "");
    finish(c, UM_EIO);
}

static void on_event(struct bufferevent *bev, short what, void *arg) {
    um_http_call *c = (um_http_call *)arg;
    (void)bev;
    if (what & BEV_EVENT_CONNECTED) c->connected = true;
    else if (what & BEV_EVENT_TIMEOUT)
        fail_call(c, c->connected ? "the server did not respond in time" : "could not connect in time", NULL);
    else if (what & BEV_EVENT_EOF) report(c, um_http_feed_end(&c->parser));
    else if (c->connected)
        fail_call(c, "the connection was lost", evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
    else connect_next(c);
}

/* Starts to connect. Returns false if the connection failed at once; errno then has the reason, such as no route, no
 * IPv6, or too many open files. Then libevent calls no event callback. */
static bool connect_to(um_http_call *c, const struct addrinfo *a) {
    struct timeval timeout = um_timeval(c->timeout);
    if (c->bev) bufferevent_free(c->bev);
    c->bev = bufferevent_socket_new(c->base, -1, BEV_OPT_CLOSE_ON_FREE);
    if (!c->bev) return false;
    bufferevent_setcb(c->bev, on_read, NULL, on_event, c);
    if (c->timeout > 0) bufferevent_set_timeouts(c->bev, &timeout, &timeout);
    bufferevent_write(c->bev, c->request.data, c->request.len);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
    return bufferevent_socket_connect(c->bev, a->ai_addr, (int)a->ai_addrlen) == 0;
}

/* Tries the next address of the host. When none is left, the error has the reason of the last immediate failure only if
 * every address failed immediately. */
static void connect_next(um_http_call *c) {
    int error = 0;
    while (c->next) {
        const struct addrinfo *a = c->next;
        c->next = a->ai_next;
        if (connect_to(c, a)) {
            c->has_tried = true;
            return;
        }
        error = errno;
    }
    fail_call(c, "can't connect",
              c->has_tried ? "no server listens there, or the host can't be reached" : strerror(error));
}

static void on_start(evutil_socket_t fd, short what, void *arg) {
    um_http_call *c = (um_http_call *)arg;
    (void)fd, (void)what;
    if (c->err.code) finish(c, c->err.code);
    else connect_next(c);
}

um_status um_http_lookup(struct addrinfo **out, const um_url *url, um_err *err) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char port[16];
    *out = NULL;
    snprintf(port, sizeof port, "%d", (int)url->port);
    int got = getaddrinfo(url->host, port, &hints, out);
    return got ? um_fail(err, UM_EIO, "%s: unknown host: %s", url->host, gai_strerror(got)) : UM_OK;
}

um_http_call *um_http_call_start(struct event_base *base, const um_http_request *r, const um_http_client_callbacks *l,
                                 void *arg) {
    um_http_call *c = UM_NEW(um_http_call);
    um_http_ignore_sigpipe();
    *c = (um_http_call){.base = base, .listener = *l, .arg = arg, .timeout = r->timeout};
    snprintf(c->where, sizeof c->where, "%s port %d", r->url->host, (int)r->url->port);
    um_http_parser_init(&c->parser, UM_HTTP_RESPONSE, (um_http_limits){UM_HTTP_HEAD_MAX, SIZE_MAX});
    c->parser.bodiless = um_streq(r->method, "HEAD");
    write_request(&c->request, r);
    if (!r->addresses) (void)um_http_lookup(&c->own, r->url, &c->err); /* on_start reports a failure */
    c->next = r->addresses ? r->addresses : c->own;
    c->start_event = event_new(base, -1, 0, on_start, c);
    assert(c->start_event);
    event_active(c->start_event, 0, 0);
    return c;
}
