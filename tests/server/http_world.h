/* An HTTP server and raw sockets that connect to it, in one thread. The event loop runs while a test waits. */
#ifndef UM_TESTS_HTTP_WORLD_H
#define UM_TESTS_HTTP_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "server/http/http.h"

#define PATIENCE 20.0 /* seconds; only a failing test waits that long */

typedef struct world {
    struct event_base *base;
    um_http_config config;
    um_http_server *server;
    int n_requests, n_complete, n_broken, n_drained, n_ended;
    um_exchange *open; /* the exchange of "/later", which the test answers */
    bool refuses;      /* a function of the test writes the error bodies */
} world;

static inline void turn(world *w) { event_base_loop(w->base, EVLOOP_ONCE | EVLOOP_NONBLOCK); }

/* Runs the event loop until the claim holds. */
#define WAIT_FOR(w, claim)                                                                                             \
    do {                                                                                                               \
        double until_ = um_now() + PATIENCE;                                                                           \
        while (!(claim)) {                                                                                             \
            if (um_now() > until_) fail_msg("never true: %s", #claim);                                                 \
            turn(w);                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline void on_close_world(void *arg, um_exchange *x, bool complete) {
    world *w = (world *)arg;
    *(complete ? &w->n_complete : &w->n_broken) += 1;
    if (w->open == x) w->open = NULL;
}

static inline void on_drain_world(void *arg, um_exchange *x) {
    (void)x;
    ((world *)arg)->n_drained++;
}

static inline void on_end_world(void *arg, um_exchange *x, bool complete) {
    (void)x, (void)complete;
    ((world *)arg)->n_ended++;
}

static inline void echo(um_exchange *x) {
    um_buf b = {0};
    um_str method = um_exchange_method(x), body = um_exchange_body(x);
    um_buf_printf(&b, "%.*s %s [%.*s]", (int)method.n, method.p, um_exchange_path(x), (int)body.n, body.p);
    um_exchange_send(x, 200, "text/plain", b.data, b.len);
    um_buf_free(&b);
}

static inline void stream(um_exchange *x) {
    um_exchange_begin(x, 200, "text/event-stream");
    um_exchange_write(x, "one ", 4);
    um_exchange_write(x, "", 0);
    um_exchange_write(x, "two ", 4);
    um_exchange_write(x, "three", 5);
    um_exchange_end(x);
}

static inline void handle_world(void *arg, um_exchange *x) {
    world *w = (world *)arg;
    const char *path = um_exchange_path(x);
    w->n_requests++;
    um_exchange_on_close(x, on_close_world, w);
    um_exchange_on_drain(x, on_drain_world, w);
    if (um_streq(path, "/later")) w->open = x;
    else if (um_streq(path, "/stream")) stream(x);
    else if (um_streq(path, "/abort")) {
        um_exchange_begin(x, 200, "text/plain");
        um_exchange_write(x, "half", 4);
        um_exchange_abort(x);
    } else echo(x);
}

static inline void error_world(void *arg, um_exchange *x, int status, const char *message, um_buf *body) {
    (void)arg, (void)x;
    um_buf_printf(body, "{\"status\": %d, \"message\": \"%s\"}", status, message);
}

static inline int open_world(void **state) {
    world *w = UM_NEW(world);
    w->base = event_base_new();
    um_http_config_init(&w->config);
    *state = w;
    return 0;
}

/* Starts the server with the configuration of the world. */
static inline void serve(world *w) {
    um_err err = {0};
    if (um_http_server_new(&w->server, w->base, &w->config, handle_world, w->refuses ? error_world : NULL, w, &err))
        fail_msg("%s", err.msg);
    um_http_server_on_end(w->server, on_end_world);
}

static inline int close_world(void **state) {
    world *w = (world *)*state;
    um_http_server_free(w->server);
    event_base_free(w->base);
    um_free(w);
    return 0;
}

/* Skips the test on a machine without IPv6. */
static inline void need_v6(void) {
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool there = fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0;
    if (fd >= 0) close(fd);
    if (!there) skip();
}

/* ---- Raw clients ------------------------------------------------------------------------------------------------- */

/* Opens a non-blocking socket. receive_bytes > 0: size of its receive buffer, for slow readers. */
static inline int dial_with(world *w, int receive_bytes) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)um_http_server_port(w->server))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (receive_bytes) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

static inline int dial(world *w) { return dial_with(w, 0); }

static inline void say_bytes(world *w, int fd, const char *p, size_t n) {
    double until = um_now() + PATIENCE;
    for (size_t done = 0; done < n;) {
        ssize_t sent = send(fd, p + done, n - done, MSG_NOSIGNAL);
        if (sent > 0) done += (size_t)sent;
        else if (errno != EAGAIN) return; /* the server closed the connection; the test checks what it sent */
        if (um_now() > until) fail_msg("the server reads no more");
        turn(w);
    }
}

static inline void say(world *w, int fd, const char *text) { say_bytes(w, fd, text, strlen(text)); }

/* Reads what has arrived; false: the server has closed the connection. */
static inline bool hear_some(int fd, um_buf *out) {
    char bytes[4096];
    ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    if (n > 0) um_buf_append(out, bytes, (size_t)n);
    return n > 0 || (n < 0 && errno == EAGAIN);
}

/* Runs the loop until `text` has arrived; fails if the server closes the connection before. */
static inline void hear(world *w, int fd, um_buf *out, const char *text) {
    double until = um_now() + PATIENCE;
    while (!out->data || !strstr(out->data, text)) {
        turn(w);
        if (!hear_some(fd, out) && (!out->data || !strstr(out->data, text)))
            fail_msg("closed; \"%s\" is not in: %s", text, out->data ? out->data : "");
        if (um_now() > until) fail_msg("\"%s\" never came, but: %s", text, out->data ? out->data : "");
    }
}

/* Reads until the server closes the connection. */
static inline void hear_all(world *w, int fd, um_buf *out) {
    double until = um_now() + PATIENCE;
    while (hear_some(fd, out)) {
        turn(w);
        if (um_now() > until) fail_msg("never closed, but: %s", out->data ? out->data : "");
    }
    um_buf_append(out, "", 0);
}

/* Sends a text on a new connection, and returns everything that comes back; um_free. */
static inline char *ask(world *w, const char *text) {
    um_buf out = {0};
    int fd = dial(w);
    say(w, fd, text);
    hear_all(w, fd, &out);
    close(fd);
    return um_buf_take(&out);
}

#endif
