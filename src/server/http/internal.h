/* The parts that server.c, connection.c and exchange.c share. A server owns connections. A connection owns at most one
 * exchange: the request that it read last, until its response is sent. */
#ifndef UM_HTTP_INTERNAL_H
#define UM_HTTP_INTERNAL_H

#include <sys/uio.h>
#include <time.h>

#include "server/http/http.h"
#include "server/http/parse.h"

#ifdef __cplusplus
extern "C" {
#endif

struct bufferevent;
struct event;
struct evconnlistener;

typedef struct um_http_conn um_http_conn;

typedef struct um_http_peer {
    char text[64];             /* "127.0.0.1:53122", or "unix" */
    unsigned char address[16]; /* IPv6; IPv4 addresses are mapped */
    bool is_local;             /* a loopback address, or a Unix socket */
    bool is_unix;
} um_http_peer;

struct um_http_server {
    struct event_base *base;
    um_http_config config;
    um_http_fn handler;
    um_http_error_fn error;
    um_http_body_fn on_body;     /* the function of um_http_server_on_body, or NULL */
    um_exchange_close_fn on_end; /* the function of um_http_server_on_end, or NULL */
    void *arg;
    struct evconnlistener *listener; /* NULL: stopped */
    struct event *retry_timer;       /* accepts again after an error */
    um_http_conn *conns;             /* a list */
    int32_t n_conns, port;
    size_t bodies_bytes; /* sum of the bodies of all exchanges */
    time_t date_second;  /* the second that `date` shows */
    char date[32];
    um_buf head; /* the response head that is being written */
};

typedef enum {
    UM_CONN_IDLE,     /* waits for the first byte of a request */
    UM_CONN_HEAD,     /* reads the head */
    UM_CONN_BODY,     /* reads the body */
    UM_CONN_RESPONSE, /* the request is complete, or needs no body; further bytes wait in the bufferevent */
    UM_CONN_LINGER    /* the last response is sent; reads and drops bytes until the client has read it */
} um_conn_state;

struct um_http_conn {
    um_http_server *server;
    um_http_conn *prev, *next;
    struct bufferevent *bev;
    struct event *timer;            /* the timeout of the current state */
    struct event *continue_event;   /* made active when a response ended outside of the handler */
    struct event *disconnect_event; /* notices a disconnect while reading is paused; NULL: never paused */
    um_http_parser parser;
    um_exchange *x; /* NULL until the head has arrived */
    um_conn_state state;
    double opened;       /* time of its start */
    double began;        /* time of the request's first byte */
    double body_began;   /* time of the end of its head */
    double linger_began; /* time of the end of its last response */
    int refused;         /* status of requests because of a limit on connections (limits.c); 0: none */
    int64_t n_requests;  /* requests that reached the handler */
    bool is_head_timed;  /* the timer already runs for the current head */
    bool got_eof;        /* the client sends no more */
    bool in_handler;     /* the caller finishes the exchange when the handler returns */
    um_http_peer peer;
    um_http_peer client; /* the client of the current request, if a trusted proxy names it; else `peer` */
};

struct um_exchange {
    um_http_conn *conn;
    um_buf body;      /* counted in server.bodies_bytes */
    um_arena strings; /* memory of the texts that accessors return */
    um_buf headers;   /* header lines that the handler added to the response */
    int status;
    int64_t sent;
    bool keep_alive; /* the connection stays open after this response */
    bool is_head;    /* a HEAD request: no body is sent */
    bool is_chunked;
    bool is_handled;  /* the handler was called */
    bool has_written; /* data was written since the last drain callback */
    bool ended, aborted;
    void *user_data;
    um_exchange_close_fn on_close;
    void *close_arg;
    um_exchange_drain_fn on_drain;
    void *drain_arg;
};

/* ---- server.c ---------------------------------------------------------------------------------------------------- */
/* Writes address and port of a peer into its text; port 0: no port. */
void um_http_name_peer(um_http_peer *p, unsigned port);
/* Returns the value of the Date header. */
const char *um_http_date(um_http_server *s);
/* Removes a closed connection from the list, and accepts again if the limit was reached. */
void um_http_server_remove(um_http_server *s, um_http_conn *c);
void um_http_ignore_sigpipe(void);

/* ---- listen.c ---------------------------------------------------------------------------------------------------- */
/* Opens a listening socket: config.unix_socket, or the first address of the host that allows it. UM_EIO. */
um_status um_http_listen(int *fd, const um_http_config *c, um_err *err);
/* Returns the port of a socket; 0 for a Unix socket. */
int32_t um_http_port_of(int fd);

/* ---- limits.c ---------------------------------------------------------------------------------------------------- */
/* Returns whether no connection can be accepted now, not even a spare one. */
bool um_http_is_full(const um_http_server *s);
/* Returns the status of the requests of a new connection: 503 if all connections are taken, 429 if the peer has too
 * many, else 0. Closes an idle connection, or a spare one without a request, if that makes room. */
int um_http_limit_of(um_http_server *s, const um_http_peer *peer);

/* Finds the client of the connection's request, whose head is complete. Returns 429 if the client has too many
 * requests at a trusted proxy, else 0. */
int um_http_limit_of_client(um_http_conn *c);

/* ---- connection.c ------------------------------------------------------------------------------------------------ */
/* Creates a connection, which takes ownership of the socket. Returns false and closes the socket if libevent could not
 * allocate memory. */
bool um_http_conn_new(um_http_server *s, int fd, const um_http_peer *peer);
/* Closes a connection at once, with its exchange, whose close callback is called. */
void um_http_conn_close(um_http_conn *c);
/* Returns whether a connection waits for a request. */
bool um_http_conn_is_idle(const um_http_conn *c);
/* Closes a connection that waits for a request. */
void um_http_conn_close_idle(um_http_conn *c);
/* Writes to the socket, and buffers what the socket does not take. */
void um_http_conn_write(um_http_conn *c, const struct iovec *v, int n);
/* Returns the size of the output buffer. */
size_t um_http_conn_unread(const um_http_conn *c);
/* Finishes the exchange, which has ended or was aborted, in the next turn of the loop, or when the handler returns. */
void um_http_conn_finish_soon(um_http_conn *c);
/* Calls the drain callback in the next turn of the loop. */
void um_http_conn_drain_soon(um_http_conn *c);

/* ---- exchange.c -------------------------------------------------------------------------------------------------- */
um_exchange *um_exchange_new(um_http_conn *c);
/* Calls the close callback and frees the exchange. */
void um_exchange_close(um_exchange *x, bool complete);
/* Sends an error response. */
void um_exchange_reject(um_exchange *x, int status, const char *message);

#ifdef __cplusplus
}
#endif
#endif
