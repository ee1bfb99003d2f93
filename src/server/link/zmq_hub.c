/* The frontend's end of a ZeroMQ link: a ROUTER for commands, a PULL for events.
 *
 * Commands and events use two connections, so events of a worker may arrive before the ROUTER knows the worker. Each
 * worker sends a probe to the ROUTER when it connects. The hub holds a worker's frames back until the probe has
 * arrived, so that its caller can always send to a worker from which it has received a frame.
 *
 * The descriptor of a ZeroMQ socket is edge-triggered: it signals changes, not waiting messages, and any call on the
 * socket clears the signal. So one epoll descriptor watches the descriptors of both sockets and an eventfd. The eventfd
 * is set while frames may be left, and after a send that may have cleared the signal of a probe. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "server/link/wire.h"
#include "server/link/zmq.h"

#define HELD_MAX 64 /* frames held for a worker without a probe; a healthy worker sends only a few before its probe */

typedef struct peer {
    bool is_connected;
    uint16_t incarnation, before; /* before: the incarnation that was connected earlier and is dead */
    um_frame_queue held;          /* frames that arrived before the probe */
} peer;

typedef struct zmq_hub {
    um_hub base;
    void *context, *commands, *events;
    char *command_addr, *event_addr;
    char *folder; /* folder of automatic addresses, or NULL */
    int fd;       /* epoll */
    int wake_fd;  /* eventfd */
    bool is_wake_set;
    peer *peer; /* [n] */
    int32_t n;
    um_frame_queue released; /* frames that were held back and are returned next */
    um_buf current;          /* the last frame returned from `released` */
    zmq_msg_t message;       /* the last frame returned from the socket */
} zmq_hub;

/* ---- Waking the loop --------------------------------------------------------------------------------------------- */

static void set_wake(zmq_hub *h, bool on) {
    uint64_t one = 1;
    if (h->is_wake_set == on) return;
    ssize_t n = on ? write(h->wake_fd, &one, sizeof one) : read(h->wake_fd, &one, sizeof one);
    assert(n == sizeof one); /* the counter is 0 or 1, so neither call can fail */
    (void)n;
    h->is_wake_set = on;
}

static um_status watch(zmq_hub *h, int fd, um_err *err) {
    struct epoll_event e = {.events = EPOLLIN};
    if (epoll_ctl(h->fd, EPOLL_CTL_ADD, fd, &e) == 0) return UM_OK;
    return um_fail(err, UM_EIO, "epoll: %s", strerror(errno));
}

static um_status watch_socket(zmq_hub *h, void *socket, um_err *err) {
    int fd = -1;
    size_t size = sizeof fd;
    zmq_getsockopt(socket, ZMQ_FD, &fd, &size);
    return watch(h, fd, err);
}

static um_status watch_all(zmq_hub *h, um_err *err) {
    h->fd = epoll_create1(EPOLL_CLOEXEC);
    h->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (h->fd < 0 || h->wake_fd < 0) return um_fail(err, UM_EIO, "can't watch the ZeroMQ sockets: %s", strerror(errno));
    um_status st = watch(h, h->wake_fd, err);
    if (!st) st = watch_socket(h, h->commands, err);
    if (!st) st = watch_socket(h, h->events, err);
    return st;
}

/* ---- Frames ------------------------------------------------------------------------------------------------------ */

static bool has_probes(void *commands) {
    int events = 0, rc;
    size_t size = sizeof events;
    do rc = zmq_getsockopt(commands, ZMQ_EVENTS, &events, &size);
    while (um_zmq_is_interrupted(rc));
    return events & ZMQ_POLLIN;
}

static bool hub_send(um_hub *base, uint16_t worker, uint16_t incarnation, um_buf *frame) {
    zmq_hub *h = (zmq_hub *)base;
    char name[UM_ZMQ_NAME_MAX];
    um_zmq_put_name(name, worker, incarnation);
    bool is_sent = um_zmq_send(h->commands, name, strlen(name), ZMQ_SNDMORE) &&
                   um_zmq_send(h->commands, frame->data, frame->len, 0);
    um_buf_free(frame);
    if (has_probes(h->commands)) set_wake(h, true);
    return is_sent;
}

static void connect_peer(zmq_hub *h, um_str name) {
    uint16_t worker, incarnation;
    if (!um_zmq_read_name(name, &worker, &incarnation) || worker >= h->n) {
        um_warn("ignored a connection to %s: it is not of a worker of this server", h->command_addr);
        return;
    }
    peer *p = &h->peer[worker];
    if (p->incarnation != incarnation) p->before = p->incarnation;
    p->is_connected = true;
    p->incarnation = incarnation;
    um_frame_queue_append(&h->released, &p->held);
}

/* Receives the probes that have arrived. A probe is a worker's name and an empty part. Workers send the ROUTER nothing
 * else. */
static void receive_probes(zmq_hub *h) {
    zmq_msg_t m;
    zmq_msg_init(&m);
    while (um_zmq_receive_part(h->commands, &m)) {
        connect_peer(h, um_zmq_bytes(&m));
        while (zmq_msg_more(&m) && um_zmq_receive_part(h->commands, &m)) {}
    }
    zmq_msg_close(&m);
}

/* Returns the peer that sent a frame if it can't be sent to yet, else NULL. Frames of the previous incarnation are not
 * held back, because nothing is sent to it. */
static peer *unreachable_sender(zmq_hub *h, const um_msg *head) {
    if (head->worker >= h->n) return NULL;
    peer *p = &h->peer[head->worker];
    bool is_known = head->incarnation == p->incarnation || head->incarnation == p->before;
    return p->is_connected && is_known ? NULL : p;
}

static void hold_frame(peer *p, const um_msg *head, um_str frame) {
    um_buf copy = {0};
    if (p->held.n >= HELD_MAX && head->type != UM_MSG_FAILED) return;
    um_buf_append(&copy, frame.p, frame.n);
    um_frame_queue_push(&p->held, &copy);
}

static bool next_released(zmq_hub *h, um_str *frame) {
    if (!um_frame_queue_pop(&h->released, &h->current)) return false;
    *frame = (um_str){h->current.data, h->current.len};
    return true;
}

/* Returns the next event. Holds back the events of workers that can't be sent to yet. FAILED releases them, because
 * nothing is sent to a worker that failed. */
static bool next_event(zmq_hub *h, um_str *frame) {
    while (um_zmq_receive(h->events, &h->message)) {
        um_msg head;
        *frame = um_zmq_bytes(&h->message);
        peer *p = um_wire_peek(*frame, &head) ? unreachable_sender(h, &head) : NULL;
        if (!p) return true;
        hold_frame(p, &head, *frame);
        if (head.type == UM_MSG_FAILED) um_frame_queue_append(&h->released, &p->held);
        else receive_probes(h);
        if (next_released(h, frame)) return true;
    }
    return false;
}

static bool hub_receive(um_hub *base, um_str *frame) {
    zmq_hub *h = (zmq_hub *)base;
    um_buf_free(&h->current);
    bool is_some = next_released(h, frame) || next_event(h, frame);
    if (!is_some) {
        receive_probes(h);
        is_some = next_released(h, frame);
    }
    set_wake(h, is_some);
    return is_some;
}

static void hub_forget(um_hub *base, uint16_t worker, uint16_t incarnation) {
    zmq_hub *h = (zmq_hub *)base;
    if (worker >= h->n || h->peer[worker].incarnation != incarnation) return;
    h->peer[worker].is_connected = false;
    um_frame_queue_clear(&h->peer[worker].held);
}

/* ---- Opening ---------------------------------------------------------------------------------------------------- */

/* Listens on an address, or on a new ipc socket `file` if `addr` is empty. *at becomes the address to connect to. */
static um_status listen_on(zmq_hub *h, void *socket, const char *addr, const char *file, char **at, um_err *err) {
    char found[256];
    size_t size = sizeof found;
    um_buf made = {0};
    um_status st = UM_OK;
    if (!addr || !*addr) {
        st = h->folder ? UM_OK : um_zmq_folder(&h->folder, err);
        if (!st) um_buf_printf(&made, "ipc://%s/%s", h->folder, file);
        addr = made.data;
    }
    if (!st) st = um_zmq_check_addr(addr, err);
    if (!st) st = um_zmq_check_file(addr, err);
    if (!st) st = um_zmq_bind(socket, addr, err);
    if (!st && zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, found, &size)) /* has the port that was chosen for * */
        st = um_fail(err, UM_EIO, "can't read the address that %s stands for: %s", addr, zmq_strerror(errno));
    if (!st) *at = um_strdup(found);
    um_buf_free(&made);
    return st;
}

static int hub_fd(const um_hub *base) { return ((const zmq_hub *)base)->fd; }
static const char *hub_command_addr(const um_hub *base) { return ((const zmq_hub *)base)->command_addr; }
static const char *hub_event_addr(const um_hub *base) { return ((const zmq_hub *)base)->event_addr; }

static void hub_close(um_hub *base) {
    zmq_hub *h = (zmq_hub *)base;
    for (int32_t i = 0; i < h->n; i++) um_frame_queue_clear(&h->peer[i].held);
    um_frame_queue_clear(&h->released);
    um_buf_free(&h->current);
    zmq_msg_close(&h->message);
    if (h->fd >= 0) close(h->fd);
    if (h->wake_fd >= 0) close(h->wake_fd);
    if (h->commands) zmq_close(h->commands);
    if (h->events) zmq_close(h->events);
    um_zmq_end(h->context);
    um_zmq_remove_file(h->command_addr);
    um_zmq_remove_file(h->event_addr);
    if (h->folder) rmdir(h->folder);
    um_free(h->folder);
    um_free(h->peer);
    um_free(h->command_addr);
    um_free(h->event_addr);
    um_free(h);
}

static um_status open_sockets(zmq_hub *h, um_err *err) {
    const int on = 1;
    um_status st = um_zmq_socket(&h->commands, h->context, ZMQ_ROUTER, 0, err);
    if (!st) st = um_zmq_socket(&h->events, h->context, ZMQ_PULL, 0, err);
    if (st) return st;
    zmq_setsockopt(h->commands, ZMQ_ROUTER_MANDATORY, &on, sizeof on); /* sending to an unknown worker fails */
    zmq_setsockopt(h->commands, ZMQ_ROUTER_HANDOVER, &on, sizeof on);  /* a worker may connect again */
    return UM_OK;
}

um_status um_hub_open_zmq(um_hub **out, int32_t n, const char *command_addr, const char *event_addr, um_err *err) {
    static const um_hub_kind kind = {.close = hub_close,
                                     .command_addr = hub_command_addr,
                                     .event_addr = hub_event_addr,
                                     .send = hub_send,
                                     .receive = hub_receive,
                                     .fd = hub_fd,
                                     .forget = hub_forget};
    zmq_hub *h = UM_NEW(zmq_hub);
    h->base.kind = &kind;
    h->n = n;
    h->fd = h->wake_fd = -1;
    h->peer = UM_NEW_ARRAY(peer, (size_t)n);
    zmq_msg_init(&h->message);
    h->context = zmq_ctx_new();
    um_status st = open_sockets(h, err);
    if (!st) st = listen_on(h, h->commands, command_addr, "commands", &h->command_addr, err);
    if (!st) st = listen_on(h, h->events, event_addr, "events", &h->event_addr, err);
    if (!st) st = watch_all(h, err);
    if (st) hub_close(&h->base);
    else *out = &h->base;
    return st;
}
