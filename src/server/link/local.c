/* The link within one process: queues behind one lock. An eventfd wakes the hub's event loop, a condition variable
 * wakes a worker. The admission of requests bounds the queues. */
#include <errno.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "server/link/kind.h"

typedef struct local_hub local_hub;

typedef struct local_port {
    um_port base;
    local_hub *hub;
    uint16_t worker, incarnation;
    um_frame_queue commands; /* guarded by the hub's lock */
    pthread_cond_t wake;
    um_buf current; /* the frame that was received last */
} local_port;

struct local_hub {
    um_hub base;
    pthread_mutex_t lock; /* guards events, is_readable, port[] and the ports' commands */
    um_frame_queue events;
    bool is_readable;  /* state of the eventfd */
    local_port **port; /* [n] */
    int32_t n;
    int fd;
    um_buf current; /* the frame that was received last; used by the hub's thread only */
};

/* ---- The frontend's end ------------------------------------------------------------------------------------------ */

/* Makes the eventfd readable if the queue of events has frames, else not. */
static void update_eventfd(local_hub *h) {
    uint64_t one = 1;
    bool want = h->events.first != NULL;
    if (want == h->is_readable) return;
    ssize_t n = want ? write(h->fd, &one, sizeof one) : read(h->fd, &one, sizeof one);
    assert(n == sizeof one); /* the counter is 0 or 1, so neither call can fail */
    (void)n;
    h->is_readable = want;
}

static bool hub_send(um_hub *base, uint16_t worker, uint16_t incarnation, um_buf *frame) {
    local_hub *h = (local_hub *)base;
    pthread_mutex_lock(&h->lock);
    local_port *p = worker < h->n ? h->port[worker] : NULL;
    bool is_there = p && p->incarnation == incarnation;
    if (is_there) {
        um_frame_queue_push(&p->commands, frame);
        pthread_cond_signal(&p->wake);
    }
    pthread_mutex_unlock(&h->lock);
    return is_there;
}

static bool hub_receive(um_hub *base, um_str *frame) {
    local_hub *h = (local_hub *)base;
    um_buf_free(&h->current);
    pthread_mutex_lock(&h->lock);
    bool is_some = um_frame_queue_pop(&h->events, &h->current);
    if (!is_some) update_eventfd(h);
    pthread_mutex_unlock(&h->lock);
    *frame = (um_str){h->current.data, h->current.len};
    return is_some;
}

static void hub_forget(um_hub *base, uint16_t worker, uint16_t incarnation) {
    local_hub *h = (local_hub *)base;
    pthread_mutex_lock(&h->lock);
    if (worker < h->n && h->port[worker] && h->port[worker]->incarnation == incarnation) {
        um_frame_queue_clear(&h->port[worker]->commands);
        h->port[worker] = NULL;
    }
    pthread_mutex_unlock(&h->lock);
}

static int hub_fd(const um_hub *base) { return ((const local_hub *)base)->fd; }

static const char *hub_addr(const um_hub *base) {
    (void)base;
    return "";
}

static void hub_close(um_hub *base) {
    local_hub *h = (local_hub *)base;
    um_frame_queue_clear(&h->events);
    um_buf_free(&h->current);
    pthread_mutex_destroy(&h->lock);
    close(h->fd);
    um_free(h->port);
    um_free(h);
}

um_status um_hub_open_local(um_hub **out, int32_t n, um_err *err) {
    static const um_hub_kind kind = {.close = hub_close,
                                     .command_addr = hub_addr,
                                     .event_addr = hub_addr,
                                     .send = hub_send,
                                     .receive = hub_receive,
                                     .fd = hub_fd,
                                     .forget = hub_forget};
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) return um_fail(err, UM_EIO, "eventfd: %s", strerror(errno));
    local_hub *h = UM_NEW(local_hub);
    h->base.kind = &kind;
    h->fd = fd;
    h->n = n;
    h->port = UM_NEW_ARRAY(local_port *, (size_t)n);
    pthread_mutex_init(&h->lock, NULL);
    *out = &h->base;
    return UM_OK;
}

/* ---- A worker's end ---------------------------------------------------------------------------------------------- */

static void port_send(um_port *base, um_buf *frame) {
    local_port *p = (local_port *)base;
    local_hub *h = p->hub;
    pthread_mutex_lock(&h->lock);
    um_frame_queue_push(&h->events, frame);
    update_eventfd(h);
    pthread_mutex_unlock(&h->lock);
}

static bool port_receive(um_port *base, um_str *frame) {
    local_port *p = (local_port *)base;
    um_buf_free(&p->current);
    pthread_mutex_lock(&p->hub->lock);
    bool is_some = um_frame_queue_pop(&p->commands, &p->current);
    pthread_mutex_unlock(&p->hub->lock);
    *frame = (um_str){p->current.data, p->current.len};
    return is_some;
}

static struct timespec in_seconds(double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    seconds = UM_MAX(0, UM_MIN(seconds, 1e6)) + 1e-9 * (double)t.tv_nsec;
    t.tv_sec += (time_t)seconds;
    t.tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds));
    return t;
}

static void port_wait(um_port *base, double seconds) {
    local_port *p = (local_port *)base;
    const struct timespec end = in_seconds(seconds);
    int rc = 0;
    pthread_mutex_lock(&p->hub->lock);
    while (!p->commands.first && rc == 0) rc = pthread_cond_timedwait(&p->wake, &p->hub->lock, &end);
    pthread_mutex_unlock(&p->hub->lock);
}

static void port_close(um_port *base) {
    local_port *p = (local_port *)base;
    local_hub *h = p->hub;
    pthread_mutex_lock(&h->lock);
    if (h->port[p->worker] == p) h->port[p->worker] = NULL;
    um_frame_queue_clear(&p->commands);
    pthread_mutex_unlock(&h->lock);
    pthread_cond_destroy(&p->wake);
    um_buf_free(&p->current);
    um_free(p);
}

um_port *um_port_open_local(um_hub *base, uint16_t worker, uint16_t incarnation) {
    static const um_port_kind kind = {
        .close = port_close, .send = port_send, .receive = port_receive, .wait = port_wait};
    local_hub *h = (local_hub *)base;
    local_port *p = UM_NEW(local_port);
    pthread_condattr_t clock;
    assert(worker < h->n);
    p->base.kind = &kind;
    p->hub = h;
    p->worker = worker;
    p->incarnation = incarnation;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&p->wake, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_lock(&h->lock);
    h->port[worker] = p;
    pthread_mutex_unlock(&h->lock);
    return &p->base;
}
