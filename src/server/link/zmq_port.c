/* A worker's end of a ZeroMQ link: a DEALER for commands, a PUSH for events, and a monitor that reports when the DEALER
 * loses its connection. ZeroMQ reconnects by itself, perhaps to another server that does not know this worker. */
#include <errno.h>

#include "server/link/zmq.h"

/* The time that closing waits for the delivery of the last events, above all FAILED. */
#define LINGER_MS 2000
/* Heartbeats notice a host that has vanished without closing its connections. */
#define HEARTBEAT_MS         5000
#define HEARTBEAT_TIMEOUT_MS 30000

#define MONITOR_ADDR "inproc://monitor"

typedef struct zmq_port {
    um_port base;
    char *command_addr, *event_addr;
    void *context, *commands, *events, *monitor;
    zmq_msg_t current; /* the frame that was received last */
} zmq_port;

/* ---- Sockets ----------------------------------------------------------------------------------------------------- */

static um_status connect_to(void *socket, const char *addr, um_err *err) {
    um_status st = um_zmq_check_addr(addr, err);
    return st ? st : um_zmq_connect(socket, addr, err);
}

static um_status open_monitor(zmq_port *p, um_err *err) {
    um_status st = um_zmq_socket(&p->monitor, p->context, ZMQ_PAIR, 0, err);
    int rc;
    if (st) return st;
    do rc = zmq_socket_monitor(p->commands, MONITOR_ADDR, ZMQ_EVENT_DISCONNECTED);
    while (um_zmq_is_interrupted(rc));
    if (rc) return um_fail(err, UM_EIO, "can't open a ZeroMQ monitor: %s", zmq_strerror(errno));
    return um_zmq_connect(p->monitor, MONITOR_ADDR, err);
}

static um_status open_sockets(zmq_port *p, uint16_t worker, uint16_t incarnation, um_err *err) {
    const int on = 1, beat = HEARTBEAT_MS, timeout = HEARTBEAT_TIMEOUT_MS;
    char name[UM_ZMQ_NAME_MAX];
    p->context = zmq_ctx_new();
    um_status st = um_zmq_socket(&p->commands, p->context, ZMQ_DEALER, 0, err);
    if (!st) st = um_zmq_socket(&p->events, p->context, ZMQ_PUSH, LINGER_MS, err);
    if (!st) st = open_monitor(p, err);
    if (st) return st;
    um_zmq_put_name(name, worker, incarnation);
    zmq_setsockopt(p->commands, ZMQ_ROUTING_ID, name, strlen(name));
    zmq_setsockopt(p->commands, ZMQ_PROBE_ROUTER, &on, sizeof on); /* tells the hub that it can send */
    zmq_setsockopt(p->commands, ZMQ_HEARTBEAT_IVL, &beat, sizeof beat);
    zmq_setsockopt(p->commands, ZMQ_HEARTBEAT_TIMEOUT, &timeout, sizeof timeout);
    st = connect_to(p->commands, p->command_addr, err);
    return st ? st : connect_to(p->events, p->event_addr, err);
}

static void close_sockets(zmq_port *p) {
    if (p->commands) zmq_socket_monitor(p->commands, NULL, 0);
    if (p->monitor) zmq_close(p->monitor);
    if (p->commands) zmq_close(p->commands);
    if (p->events) zmq_close(p->events);
    um_zmq_end(p->context);
    p->context = p->commands = p->events = p->monitor = NULL;
}

/* ---- Frames ------------------------------------------------------------------------------------------------------ */

static void port_send(um_port *base, um_buf *frame) {
    zmq_port *p = (zmq_port *)base;
    bool is_sent = um_zmq_send(p->events, frame->data, frame->len, 0);
    assert(is_sent); /* its queue is unbounded */
    (void)is_sent;
    um_buf_free(frame);
}

static bool port_receive(um_port *base, um_str *frame) {
    zmq_port *p = (zmq_port *)base;
    bool is_some = um_zmq_receive(p->commands, &p->current);
    *frame = is_some ? um_zmq_bytes(&p->current) : (um_str){0};
    return is_some;
}

static void port_wait(um_port *base, double seconds) {
    zmq_port *p = (zmq_port *)base;
    zmq_pollitem_t items[] = {{.socket = p->commands, .events = ZMQ_POLLIN},
                              {.socket = p->monitor, .events = ZMQ_POLLIN}};
    zmq_poll(items, UM_LEN(items), (long)(1000 * UM_MAX(0, UM_MIN(seconds, 1e6))));
}

/* ---- Connection -------------------------------------------------------------------------------------------------- */

static bool port_is_lost(um_port *base) {
    zmq_port *p = (zmq_port *)base;
    zmq_msg_t m;
    bool is_lost = false;
    zmq_msg_init(&m);
    while (um_zmq_receive_part(p->monitor, &m)) is_lost = true; /* ZMQ_EVENT_DISCONNECTED */
    zmq_msg_close(&m);
    return is_lost;
}

static um_status port_join_again(um_port *base, uint16_t worker, uint16_t incarnation, um_err *err) {
    zmq_port *p = (zmq_port *)base;
    const int none = 0;
    zmq_setsockopt(p->events, ZMQ_LINGER, &none, sizeof none); /* drops the frames for the lost server */
    close_sockets(p);
    return open_sockets(p, worker, incarnation, err);
}

static void port_close(um_port *base) {
    zmq_port *p = (zmq_port *)base;
    zmq_msg_close(&p->current);
    close_sockets(p);
    um_free(p->command_addr);
    um_free(p->event_addr);
    um_free(p);
}

um_status um_port_open_zmq(um_port **out, const char *command_addr, const char *event_addr, uint16_t worker,
                           uint16_t incarnation, um_err *err) {
    static const um_port_kind kind = {.close = port_close,
                                      .send = port_send,
                                      .receive = port_receive,
                                      .wait = port_wait,
                                      .is_lost = port_is_lost,
                                      .join_again = port_join_again};
    zmq_port *p = UM_NEW(zmq_port);
    p->base.kind = &kind;
    p->command_addr = um_strdup(command_addr);
    p->event_addr = um_strdup(event_addr);
    zmq_msg_init(&p->current);
    um_status st = open_sockets(p, worker, incarnation, err);
    if (st) port_close(&p->base);
    else *out = &p->base;
    return st;
}
