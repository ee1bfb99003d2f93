/* The frontend's end of a ZeroMQ link: a ROUTER for commands, a PULL for events.
 *
 * A worker's events may arrive before the ROUTER knows the worker, since they are two connections. Each worker probes
 * the ROUTER when it connects; until then its frames are kept back, so that whoever heard of a worker can send to it.
 *
 * The descriptors of ZeroMQ sockets tell of changes, not of messages that wait, and a call on the socket swallows what
 * they told. So both are watched by one epoll descriptor, together with an eventfd that is set from the first frame
 * that is received until none is left, and behind a send that may have swallowed something. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "server/link/wire.h"
#include "server/link/zmq.h"

#define HELD_MAX 64 /* frames of a worker that is not there yet: one that says more than a few is broken */

typedef struct peer {
    bool is_connected;
    uint16_t incarnation, before; /* before: the one that was connected then; it is dead */
    um_frames held;
} peer;

typedef struct zmq_hub {
    um_hub base;
    void *context, *commands, *events;
    char *command_addr, *event_addr;
    char *folder; /* made here, or NULL */
    int fd, nudge;
    bool is_nudged;
    peer *peer; /* [n] */
    int32_t n;
    um_frames released; /* were held, come next */
    um_buf current;     /* received last, of them */
    zmq_msg_t message;  /* received last, else */
} zmq_hub;

/* ---- Waking the loop --------------------------------------------------------------------------------------------- */

static void set_nudge(zmq_hub *h, bool on) {
    uint64_t one = 1;
    if (h->is_nudged == on) return;
    ssize_t n = on ? write(h->nudge, &one, sizeof one) : read(h->nudge, &one, sizeof one);
    assert(n == sizeof one); /* it is not blocking, and counts 0 and 1 only */
    (void)n;
    h->is_nudged = on;
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
    h->nudge = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (h->fd < 0 || h->nudge < 0) return um_fail(err, UM_EIO, "no descriptor to watch: %s", strerror(errno));
    um_status st = watch(h, h->nudge, err);
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
    if (has_probes(h->commands)) set_nudge(h, true);
    return is_sent;
}

static void connect_peer(zmq_hub *h, um_str name) {
    uint16_t worker, incarnation;
    if (!um_zmq_read_name(name, &worker, &incarnation) || worker >= h->n) {
        um_warn("somebody who is no worker of this server connected to %s", h->command_addr);
        return;
    }
    peer *p = &h->peer[worker];
    if (p->incarnation != incarnation) p->before = p->incarnation;
    p->is_connected = true;
    p->incarnation = incarnation;
    um_frames_append(&h->released, &p->held);
}

/* Workers send nothing to the ROUTER but probes: a name and an empty part. */
static void take_probes(zmq_hub *h) {
    zmq_msg_t m;
    zmq_msg_init(&m);
    while (um_zmq_receive_part(h->commands, &m)) {
        connect_peer(h, um_zmq_bytes(&m));
        while (zmq_msg_more(&m) && um_zmq_receive_part(h->commands, &m)) {}
    }
    zmq_msg_close(&m);
}

/* A worker to which nothing could be sent yet, or NULL. What the one before left behind needs no answer: whoever
 * receives it knows its incarnation. */
static peer *unreachable_sender(zmq_hub *h, const um_msg *head) {
    if (head->worker >= h->n) return NULL;
    peer *p = &h->peer[head->worker];
    bool is_known = head->incarnation == p->incarnation || head->incarnation == p->before;
    return p->is_connected && is_known ? NULL : p;
}

static void hold(peer *p, const um_msg *head, um_str frame) {
    um_buf copy = {0};
    if (p->held.n >= HELD_MAX && head->type != UM_MSG_FAILED) return;
    um_buf_append(&copy, frame.p, frame.n);
    um_frames_push(&p->held, &copy);
}

static bool next_released(zmq_hub *h, um_str *frame) {
    if (!um_frames_pop(&h->released, &h->current)) return false;
    *frame = (um_str){h->current.data, h->current.len};
    return true;
}

/* The next event of a worker that can be sent to, or that never will be: after FAILED nothing is sent to it. What was
 * held comes before it. */
static bool next_event(zmq_hub *h, um_str *frame) {
    while (um_zmq_receive(h->events, &h->message)) {
        um_msg head;
        *frame = um_zmq_bytes(&h->message);
        peer *p = um_wire_peek(*frame, &head) ? unreachable_sender(h, &head) : NULL;
        if (!p) return true;
        hold(p, &head, *frame);
        if (head.type == UM_MSG_FAILED) um_frames_append(&h->released, &p->held);
        else take_probes(h);
        if (next_released(h, frame)) return true;
    }
    return false;
}

static bool hub_receive(um_hub *base, um_str *frame) {
    zmq_hub *h = (zmq_hub *)base;
    um_buf_free(&h->current);
    bool is_some = next_released(h, frame) || next_event(h, frame);
    if (!is_some) {
        take_probes(h);
        is_some = next_released(h, frame);
    }
    set_nudge(h, is_some);
    return is_some;
}

static void hub_forget(um_hub *base, uint16_t worker, uint16_t incarnation) {
    zmq_hub *h = (zmq_hub *)base;
    if (worker >= h->n || h->peer[worker].incarnation != incarnation) return;
    h->peer[worker].is_connected = false;
    um_frames_clear(&h->peer[worker].held);
}

/* ---- Opening ---------------------------------------------------------------------------------------------------- */

/* Listens; *at becomes the address that others connect to. */
static um_status listen_at(zmq_hub *h, void *socket, const char *addr, const char *file, char **at, um_err *err) {
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
    if (!st && zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, found, &size)) /* with the port that * stands for */
        st = um_fail(err, UM_EIO, "where %s listens is unknown: %s", addr, zmq_strerror(errno));
    if (!st) *at = um_strdup(found);
    um_buf_free(&made);
    return st;
}

static int hub_fd(const um_hub *base) { return ((const zmq_hub *)base)->fd; }
static const char *hub_command_addr(const um_hub *base) { return ((const zmq_hub *)base)->command_addr; }
static const char *hub_event_addr(const um_hub *base) { return ((const zmq_hub *)base)->event_addr; }

static void hub_close(um_hub *base) {
    zmq_hub *h = (zmq_hub *)base;
    for (int32_t i = 0; i < h->n; i++) um_frames_clear(&h->peer[i].held);
    um_frames_clear(&h->released);
    um_buf_free(&h->current);
    zmq_msg_close(&h->message);
    if (h->fd >= 0) close(h->fd);
    if (h->nudge >= 0) close(h->nudge);
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
    zmq_setsockopt(h->commands, ZMQ_ROUTER_MANDATORY, &on, sizeof on); /* else messages to nobody vanish */
    zmq_setsockopt(h->commands, ZMQ_ROUTER_HANDOVER, &on, sizeof on);  /* a worker that connects again is itself */
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
    h->fd = h->nudge = -1;
    h->peer = UM_NEW_ARRAY(peer, (size_t)n);
    zmq_msg_init(&h->message);
    h->context = zmq_ctx_new();
    um_status st = open_sockets(h, err);
    if (!st) st = listen_at(h, h->commands, command_addr, "commands", &h->command_addr, err);
    if (!st) st = listen_at(h, h->events, event_addr, "events", &h->event_addr, err);
    if (!st) st = watch_all(h, err);
    if (st) hub_close(&h->base);
    else *out = &h->base;
    return st;
}
