/* An HTTP/1.1 server and client over libevent's bufferevents. This folder handles requests, responses and connections,
 * and knows nothing of the API.
 *
 * The parser is strict (RFC 9112): it rejects anything that could be read in two ways. Everything here belongs to the
 * thread of its event_base. */
#ifndef UM_HTTP_H
#define UM_HTTP_H

#include "server/http/forwarded.h"

#ifdef __cplusplus
extern "C" {
#endif

struct event_base;

/* ---- Server (server.c, connection.c, exchange.c) ----------------------------------------------------------------- */

typedef struct um_http_server um_http_server;
/* A request and its response. It exists from the arrival of the request's head until the close callback returns. */
typedef struct um_exchange um_exchange;

typedef struct um_http_config {
    const char *host;        /* address or host name to listen on */
    int32_t port;            /* 0: any free port */
    const char *unix_socket; /* path of a Unix socket to listen on in place of host and port; NULL: none */
    /* Connections that serve requests. Further ones get 503, except for requests of vital_path. */
    int32_t max_connections;
    int32_t max_connections_per_peer; /* from one address that is not of this machine; 0: no limit */
    const char *vital_path;           /* "/health", or NULL */
    um_http_nets trusted_proxies;     /* borrowed; their connections have no limit per address, but their clients do */
    size_t max_head_bytes, max_body_bytes;
    size_t max_bodies_bytes; /* of the bodies of all exchanges; a body above 64 KiB that exceeds it gets 503 */
    /* Timeouts in seconds; 0: none. */
    double head_timeout;     /* from the first byte of a head to its end; also from the connection to the first byte */
    double body_timeout;     /* longest pause between bytes of the body */
    double min_body_rate;    /* bytes per second of a body that takes longer than body_timeout; 0: any */
    double idle_timeout;     /* longest pause between requests on a connection; 0: it closes after each response */
    double write_timeout;    /* longest pause in sending the output buffer */
    double linger_timeout;   /* longest pause of a client that sends on after its last response */
    size_t max_unread_bytes; /* a client that leaves more of a stream unread is disconnected */
} um_http_config;
void um_http_config_init(um_http_config *c);

/* Called when a whole request has arrived, or its head if nobody needs the body. The handler responds now or later.
 * What it borrows from the exchange is valid as long as the exchange. */
typedef void (*um_http_fn)(void *arg, um_exchange *x);
/* Called before a body is read. Returns whether the handler needs the body. Otherwise the handler is called at once
 * without it, and the connection closes after the response. */
typedef bool (*um_http_body_fn)(void *arg, um_exchange *x);
/* Writes the body of an error response to a request that is malformed, too large or too slow, and never reaches the
 * handler. The content type is application/json. The function may add headers, and can read the arrived part of the
 * request's head. NULL: the server sends the message as plain text. */
typedef void (*um_http_error_fn)(void *arg, um_exchange *x, int status, const char *message, um_buf *body);

/* Listens, and makes the process ignore SIGPIPE. Errors: UM_EIO with address and reason. */
um_status um_http_server_new(um_http_server **out, struct event_base *base, const um_http_config *c, um_http_fn handler,
                             um_http_error_fn error, void *arg, um_err *err);
/* Replaces limits, timeouts and trusted proxies by those of `c`; the addresses stay. Connections that are open keep
 * their timeout for writing. */
void um_http_server_set_limits(um_http_server *s, const um_http_config *c);
/* Accepts no more connections. Closes idle ones now and the others after their current response. */
void um_http_server_stop(um_http_server *s);
/* Closes all connections; close callbacks are called. NULL is fine. */
void um_http_server_free(um_http_server *s);
int32_t um_http_server_port(const um_http_server *s);
int32_t um_http_server_connections(const um_http_server *s);

/* The request. The exchange owns the strings that these functions return. */

/* Returns the method; "" if the request was rejected before it was read. */
um_str um_exchange_method(const um_exchange *x);
/* Returns the decoded path: UTF-8 without control characters that begins with '/', or "*" for OPTIONS *; "" if the
 * request was rejected before the path was read. */
const char *um_exchange_path(const um_exchange *x);
/* Returns the decoded value of a query parameter; NULL: missing. */
const char *um_exchange_query(um_exchange *x, const char *name);
/* Returns the value of a header; NULL: missing. The name may be in any case. Several values are joined by ", ". */
const char *um_exchange_header(um_exchange *x, const char *name);
um_str um_exchange_body(const um_exchange *x);
/* Moves the body to the caller; um_buf_free. The exchange's body is empty afterwards. */
um_buf um_exchange_take_body(um_exchange *x);
/* Returns the client's address: "127.0.0.1:53122" or "unix"; without a port, "192.0.2.1" or "[2001:db8::1]", if a
 * trusted proxy has named it. */
const char *um_exchange_peer(const um_exchange *x);
/* Returns a number of the client's address without its port: of IPv6 the first 64 bits, which one subscriber has. It is
 * above INT64_MAX. All clients of a Unix socket have the same one. */
uint64_t um_exchange_peer_number(const um_exchange *x);
double um_exchange_start_time(const um_exchange *x); /* um_now() at its first byte */

/* The response: either um_exchange_send, or begin, write..., end. Add headers first; the server itself adds Date,
 * Content-Length, Transfer-Encoding and Connection. A response to HEAD has no body: written data is dropped, and `body`
 * may be NULL, with n as the Content-Length. None of these functions calls a callback. Callbacks come from the event
 * loop, so the exchange exists until the caller returns to it. */
void um_exchange_add_header(um_exchange *x, const char *name, const char *value);
bool um_exchange_has_header(const um_exchange *x, const char *name); /* returns whether add_header has added it */
void um_exchange_send(um_exchange *x, int status, const char *type, const void *body, size_t n);
void um_exchange_begin(um_exchange *x, int status, const char *type);
void um_exchange_write(um_exchange *x, const void *data, size_t n);
void um_exchange_end(um_exchange *x);
bool um_exchange_has_begun(const um_exchange *x);  /* the head was sent, so the status can't change any more */
int um_exchange_status(const um_exchange *x);      /* status of the response; 0: not begun */
int64_t um_exchange_sent(const um_exchange *x);    /* bytes of the response body so far */
size_t um_exchange_buffered(const um_exchange *x); /* bytes that wait in the output buffer */
/* Closes the connection in the middle of a response that can't be finished. */
void um_exchange_abort(um_exchange *x);

/* Called once, when the response has been passed to the kernel (complete) or the client has disconnected. The exchange
 * is freed afterwards. A disconnect is noticed even while nothing is being sent. A client that shuts down its sending
 * side before the response is complete counts as disconnected. */
typedef void (*um_exchange_close_fn)(void *arg, um_exchange *x, bool complete);
void um_exchange_on_close(um_exchange *x, um_exchange_close_fn fn, void *arg);
/* Called when the output buffer has drained, or soon after a write if it stayed empty. A handler that writes a long
 * response piece by piece writes the next piece here. */
typedef void (*um_exchange_drain_fn)(void *arg, um_exchange *x);
void um_exchange_on_drain(um_exchange *x, um_exchange_drain_fn fn, void *arg);

/* Set and get a pointer that the handler keeps with the exchange; NULL at first. */
void um_exchange_set_user_data(um_exchange *x, void *user_data);
void *um_exchange_get_user_data(const um_exchange *x);
/* Sets a function for logs and counters. It is called with the server's arg for every exchange that reached the handler
 * or was rejected, after the close callback and just before the exchange is freed. */
void um_http_server_on_end(um_http_server *s, um_exchange_close_fn fn);
/* Sets a function that is asked before each body is read. Without it all bodies are read. */
void um_http_server_on_body(um_http_server *s, um_http_body_fn fn);

/* Returns the reason phrase of a status code, such as "Not Found". */
const char *um_http_reason(int status);

/* ---- Client (client.c, url.c, sse_reader.c) ---------------------------------------------------------------------- */

typedef struct um_http_call um_http_call;

typedef struct um_url {
    char host[256];
    char path[1024]; /* path and query, without slashes at the end: "" for "http://host/"; else begins with '/' */
    int32_t port;
} um_url;
/* Parses "http://host:port/path". https is an error that recommends a proxy. UM_EINVAL. */
um_status um_url_parse(um_url *out, const char *text, um_err *err);

typedef struct um_http_response {
    int status;
    const char *type; /* Content-Type or "" */
    const char *request_id;
} um_http_response;
typedef struct um_http_client_callbacks {
    void (*head)(void *arg, const um_http_response *a);   /* may be NULL */
    void (*data)(void *arg, const char *bytes, size_t n); /* a piece of the body */
    /* Called once: UM_OK for a complete response, else the error. The call is freed afterwards. */
    void (*done)(void *arg, um_status s, const um_err *err);
} um_http_client_callbacks;
struct addrinfo;
/* Looks up the addresses of the URL's host, for many requests to it; freeaddrinfo. Blocks. UM_EIO. */
um_status um_http_lookup(struct addrinfo **out, const um_url *url, um_err *err);

typedef struct um_http_request {
    const um_url *url;
    /* The addresses of the host, which must outlive the call. NULL: um_http_call_start looks them up. */
    const struct addrinfo *addresses;
    const char *method, *path; /* path: replaces url->path unless it is NULL */
    const char *type;          /* Content-Type of the body; NULL: application/json */
    um_str body;
    const char *api_key; /* sent as a bearer token, or NULL */
    const char *accept;  /* value of the Accept header, or NULL */
    double timeout;      /* seconds without a byte from the server; 0: none */
} um_http_request;
/* Starts a request on its own connection. Copies `r`, except r->addresses. Without addresses it looks up the host,
 * which blocks. Callbacks come from the event loop, never from inside this function. They may cancel the call. */
um_http_call *um_http_call_start(struct event_base *base, const um_http_request *r, const um_http_client_callbacks *l,
                                 void *arg);
/* Closes the connection and frees the call; `done` is not called. NULL is fine. */
void um_http_call_cancel(um_http_call *c);

/* Splits a stream of server-sent events. */
typedef struct um_sse_reader {
    um_buf line, data;
    bool after_cr;
} um_sse_reader;
/* Feeds bytes, and calls fn with the data of every complete event, without "data: " and with lines joined by newlines.
 * A zeroed reader is ready for use. Errors: UM_ELIMIT for an event of more than 16 MiB. */
um_status um_sse_read(um_sse_reader *r, const char *bytes, size_t n, void (*fn)(void *arg, um_str data), void *arg,
                      um_err *err);
void um_sse_reader_free(um_sse_reader *r);

#ifdef __cplusplus
}
#endif
#endif
