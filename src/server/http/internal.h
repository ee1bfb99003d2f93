/* internal: what server.c, connection.c and exchange.c share. A server owns connections, a connection owns at most one
 * exchange at a time: the request that it read last, until its answer is out. */
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

struct um_http_server {
    struct event_base *base;
    um_http_config config;
    um_http_fn handler;
    um_http_error_fn error;
    um_exchange_close_fn on_end; /* or NULL */
    void *arg;
    struct evconnlistener *listener; /* NULL: stopped */
    struct event *pause;             /* accepts again when files were all in use */
    um_http_conn *conns;             /* a list */
    int32_t n_conns, port;
    time_t date_second; /* that `date` stands for */
    char date[32];
    um_buf head; /* of an answer while it is written */
};

typedef enum {
    UM_CONN_IDLE,   /* no byte of a request yet */
    UM_CONN_HEAD,   /* some of its head */
    UM_CONN_BODY,   /* its head */
    UM_CONN_ANSWER, /* all of it; what else comes waits in the bufferevent */
    UM_CONN_LINGER  /* the last answer is out: reads on until the client has it */
} um_conn_state;

struct um_http_conn {
    um_http_server *server;
    um_http_conn *prev, *next;
    struct bufferevent *bev;
    struct event *timer;  /* of the state */
    struct event *settle; /* made active when an answer ended outside of the handler */
    struct event *hangup; /* watches while so much is pipelined that reading pauses; NULL before */
    um_http_parser parser;
    um_exchange *x; /* from the head's arrival */
    um_conn_state state;
    double began;       /* first byte of the request */
    int64_t n_requests; /* that reached the handler */
    bool is_head_timed; /* the timer is that of the head that is being read */
    bool got_eof;       /* the client sends no more */
    bool in_handler;    /* settles when that returns */
    char peer[64];
};

struct um_exchange {
    um_http_conn *conn;
    um_buf body;
    um_arena strings; /* what accessors made up */
    um_buf headers;   /* of the answer, whole lines */
    int status;
    int64_t sent;
    bool keep_alive; /* the connection goes on behind this answer */
    bool is_head;    /* no body is sent */
    bool is_chunked;
    bool is_handled;  /* the handler has had it */
    bool has_written; /* since the drain callback came last */
    bool ended, broken;
    void *note;
    um_exchange_close_fn on_close;
    void *close_arg;
    um_exchange_drain_fn on_drain;
    void *drain_arg;
};

/* ---- server.c ---------------------------------------------------------------------------------------------------- */
const char *um_http_date(um_http_server *s); /* for the header Date */
/* A connection ended: takes it off the list, accepts again. */
void um_http_server_forget(um_http_server *s, um_http_conn *c);
void um_http_ignore_sigpipe(void);

/* ---- connection.c ------------------------------------------------------------------------------------------------ */
/* Takes the socket over; false: it could not (memory of the loop), the socket is closed. */
bool um_http_conn_new(um_http_server *s, int fd, const char *peer);
/* At once; an exchange that is open hears of it. */
void um_http_conn_close(um_http_conn *c);
/* Ends what waits for a request. */
void um_http_conn_retire(um_http_conn *c);
/* Hands bytes to the client: what the socket does not take waits. */
void um_http_conn_put(um_http_conn *c, const struct iovec *v, int n);
size_t um_http_conn_unread(const um_http_conn *c);
/* The exchange ended or broke: sees to it when nobody is in the middle of it. */
void um_http_conn_settle_soon(um_http_conn *c);
/* The socket took all that was written: says so from the loop. */
void um_http_conn_drain_soon(um_http_conn *c);

/* ---- exchange.c -------------------------------------------------------------------------------------------------- */
um_exchange *um_exchange_new(um_http_conn *c);
void um_exchange_close(um_exchange *x, bool complete); /* runs its callback, frees it */
/* Answers with the server's words. */
void um_exchange_refuse(um_exchange *x, int status, const char *message);

#ifdef __cplusplus
}
#endif
#endif
