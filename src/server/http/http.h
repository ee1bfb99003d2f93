/* http: HTTP/1.1 over libevent's bufferevents, a server and a client. It knows requests, responses and connections;
 * what they are about is its callers' business.
 *
 * The parser is strict (RFC 9112): what could be read in two ways is refused. Everything here belongs to the thread of
 * its event_base. */
#ifndef UM_HTTP_H
#define UM_HTTP_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct event_base;

/* ---- Server (server.c, connection.c, exchange.c) ----------------------------------------------------------------- */

typedef struct um_http_server um_http_server;
/* A request and its answer. It is there from the arrival of its head, and lives until its close callback returned. */
typedef struct um_exchange um_exchange;

typedef struct um_http_config {
    const char *host; /* address or name to listen at */
    int32_t port;     /* 0: any free one */
    int32_t max_connections;
    size_t max_head_bytes, max_body_bytes;
    /* Seconds; 0 = any. */
    double head_timeout;     /* for a whole head, from its first byte; also until that, on a new connection */
    double body_timeout;     /* without a byte of a body */
    double idle_timeout;     /* between requests of a connection; 0 = each answer closes it */
    double write_timeout;    /* in which a client takes nothing of what waits for it */
    size_t max_unread_bytes; /* a client that leaves more than this of a stream unread is dropped */
} um_http_config;
void um_http_config_init(um_http_config *c);

/* A whole request is there. The handler answers now or later; it must not keep what it borrows longer than the
 * exchange. */
typedef void (*um_http_fn)(void *arg, um_exchange *x);
/* Answered here: requests that are malformed, too large or too slow never reach the handler. `error` writes the body of
 * such an answer (its type is application/json) and may add headers; of the request it finds what had been read of its
 * head. NULL: a plain sentence. */
typedef void (*um_http_error_fn)(void *arg, um_exchange *x, int status, const char *message, um_buf *body);

/* Listens. SIGPIPE is ignored by the process from now on. Errors: UM_EIO with address and reason. */
um_status um_http_server_new(um_http_server **out, struct event_base *base, const um_http_config *c, um_http_fn handler,
                             um_http_error_fn error, void *arg, um_err *err);
/* Takes no more connections; open ones end with the answer that is being given. */
void um_http_server_stop(um_http_server *s);
void um_http_server_free(um_http_server *s); /* drops what is open; close callbacks run */
int32_t um_http_server_port(const um_http_server *s);
int32_t um_http_server_connections(const um_http_server *s);

/* The request. All borrowed from the exchange. */
um_str um_exchange_method(const um_exchange *x); /* "" of a request that was refused before it was known */
/* Decoded: UTF-8 without control characters, begins with '/'; "*" for OPTIONS *; "" like the method. */
const char *um_exchange_path(const um_exchange *x);
/* The decoded value of a query parameter, or NULL. */
const char *um_exchange_query(um_exchange *x, const char *name);
/* The value of a header (name in any case), several of one name joined by ", "; NULL: there is none. */
const char *um_exchange_header(um_exchange *x, const char *name);
um_str um_exchange_body(const um_exchange *x);
/* The body becomes the caller's, and the exchange's is empty; um_buf_free. */
um_buf um_exchange_take_body(um_exchange *x);
const char *um_exchange_peer(const um_exchange *x); /* "127.0.0.1:53122" */
double um_exchange_began(const um_exchange *x);     /* um_now() at its first byte */

/* The answer: either um_exchange_send, or begin, write..., end. Headers are added before; Date, Content-Length,
 * Transfer-Encoding and Connection are the room's. HEAD gets a head alone: what is written is dropped, and `body` may
 * be NULL, n saying how long it would be. None of these calls a callback: what they cause is said from the loop, so the
 * exchange is there until the caller returns to it. */
void um_exchange_add_header(um_exchange *x, const char *name, const char *value);
void um_exchange_send(um_exchange *x, int status, const char *type, const void *body, size_t n);
void um_exchange_begin(um_exchange *x, int status, const char *type);
void um_exchange_write(um_exchange *x, const void *data, size_t n);
void um_exchange_end(um_exchange *x);
bool um_exchange_begun(const um_exchange *x);    /* the head is on its way: the status can't change any more */
int um_exchange_status(const um_exchange *x);    /* of the answer; 0 before */
int64_t um_exchange_sent(const um_exchange *x);  /* bytes of the answer's body so far */
size_t um_exchange_unread(const um_exchange *x); /* bytes that wait for the client */
/* Breaks the connection without a proper end, when a begun answer can't be finished. */
void um_exchange_abort(um_exchange *x);

/* Called once, when the answer is handed over (complete) or the client is gone; behind it the exchange does not exist.
 * A hang-up is noticed while nothing is being sent; a client that says it will send no more counts as gone. */
typedef void (*um_exchange_close_fn)(void *arg, um_exchange *x, bool complete);
void um_exchange_on_close(um_exchange *x, um_exchange_close_fn fn, void *arg);
/* Called once nothing of what was written waits any more, also when it never had to: whoever writes bit by bit goes on
 * from here. */
typedef void (*um_exchange_drain_fn)(void *arg, um_exchange *x);
void um_exchange_on_drain(um_exchange *x, um_exchange_drain_fn fn, void *arg);

/* A slot for what the handler keeps beside an exchange; NULL at first. */
void um_exchange_set_note(um_exchange *x, void *note);
void *um_exchange_get_note(const um_exchange *x);
/* Called with the server's arg for every exchange that reached the handler or was refused, behind its close callback
 * and as the last thing before it is gone: for logs and counters. */
void um_http_server_on_end(um_http_server *s, um_exchange_close_fn fn);

/* The phrase of a status code ("Not Found"). */
const char *um_http_reason(int status);

/* ---- Client (client.c, url.c, sse_reader.c) ---------------------------------------------------------------------- */

typedef struct um_http_call um_http_call;

typedef struct um_url {
    char host[256];
    char path[1024]; /* begins with '/', with its query; without a slash at its end, so "" for "http://host/" */
    int32_t port;
} um_url;
/* "http://host:port/path"; https is refused with the advice to use a proxy. UM_EINVAL. */
um_status um_url_parse(um_url *out, const char *text, um_err *err);

typedef struct um_http_answer {
    int status;
    const char *type; /* Content-Type or "" */
    const char *request_id;
} um_http_answer;
typedef struct um_http_listener {
    void (*head)(void *arg, const um_http_answer *a);     /* may be NULL */
    void (*data)(void *arg, const char *bytes, size_t n); /* of the body, as it comes */
    /* The end, once: UM_OK, or why it did not come. The call does not exist behind it. */
    void (*done)(void *arg, um_status s, const um_err *err);
} um_http_listener;
/* The addresses of the url's host, for many requests to it; the caller waits while it is looked up. UM_EIO; ends with
 * freeaddrinfo. */
struct addrinfo;
um_status um_http_lookup(struct addrinfo **out, const um_url *url, um_err *err);

typedef struct um_http_request {
    const um_url *url;
    const struct addrinfo *addresses; /* of its host; they outlive the call. NULL: it is looked up */
    const char *method, *path;        /* path: replaces url->path; NULL: that one */
    const char *type;                 /* of the body; NULL: application/json */
    um_str body;
    const char *api_key; /* sent as a bearer token, or NULL */
    const char *accept;  /* or NULL */
    double timeout;      /* seconds without a byte from the server, 0 = none */
} um_http_request;
/* Starts a request on a connection of its own. Everything else in `r` is copied. A host without addresses is looked up
 * while the caller waits. Callbacks come from the loop, never from inside; they may cancel the call. */
um_http_call *um_http_call_start(struct event_base *base, const um_http_request *r, const um_http_listener *l,
                                 void *arg);
/* Hangs up; `done` is not called. */
void um_http_call_cancel(um_http_call *c);

/* Splits a stream of server-sent events. */
typedef struct um_sse_reader {
    um_buf line, data;
    bool after_cr;
} um_sse_reader;
/* Feeds bytes; calls fn for the data of every whole event ("data: " taken off, lines joined by newlines). Zero
 * is a fresh one. An event above 16 MiB: UM_ELIMIT. */
um_status um_sse_read(um_sse_reader *r, const char *bytes, size_t n, void (*fn)(void *arg, um_str data), void *arg,
                      um_err *err);
void um_sse_reader_free(um_sse_reader *r);

#ifdef __cplusplus
}
#endif
#endif
