/* Server-sent events on an exchange. */
#include <event2/event.h>

#include "server/respond/sse.h"

/* Proxies close a connection without traffic. A comment goes out after this time without an event. */
#define KEEP_ALIVE_SECONDS 15
/* A client with more unsent bytes is slow. Fewer bytes may just wait for the next iteration of the loop. */
#define SLOW_CLIENT_BYTES ((size_t)16 << 10)

/* The newest snapshot of a choice that was not sent yet. */
typedef struct kept {
    um_buf event; /* empty: no snapshot waits */
    double sent;  /* when a snapshot of this choice was last sent */
    double due;   /* when the next snapshot may be sent */
} kept;

struct um_sse {
    um_exchange *x;
    struct event *keep_alive, *pace;
    um_buf event; /* "data: {…}", being written */
    um_jw writer;
    double last; /* when the last event or comment was sent */
    kept *kept;  /* [n_kept], by choice */
    int32_t n_kept, n_waiting;
    bool has_names; /* events have names; their own last event ends the stream, not [DONE] */
    bool has_ended;
};

/* Returns at least a millisecond: libevent's clock is coarser than ours, and a timer that fires early is set again. */
static struct timeval timeout_of(double seconds) { return um_timeval(UM_MAX(seconds, 0.001)); }

static bool is_slow(const um_sse *s) { return um_exchange_buffered(s->x) > SLOW_CLIENT_BYTES; }

/* ---- Sending ----------------------------------------------------------------------------------------------------- */

static void send_event(um_sse *s, um_str event) {
    s->last = um_now();
    um_exchange_write(s->x, event.p, event.n);
}

static um_str text_of(const um_buf *b) { return (um_str){b->data, b->len}; }

static void send_kept(um_sse *s, kept *k, double now) {
    k->sent = now;
    send_event(s, text_of(&k->event));
    um_buf_clear(&k->event);
    s->n_waiting--;
}

/* Sends the snapshots that are due, and sets the timer for those that are not. */
static void send_due(um_sse *s) {
    double now = um_now(), next = 0;
    for (int32_t i = 0; i < s->n_kept && s->n_waiting && !is_slow(s); i++) {
        kept *k = &s->kept[i];
        if (k->event.len == 0) continue;
        if (k->due <= now) send_kept(s, k, now);
        else if (next == 0 || k->due < next) next = k->due;
    }
    struct timeval wait = timeout_of(next - now);
    if (next > 0) evtimer_add(s->pace, &wait);
}

/* Sends or drops the waiting snapshots before an event is appended, because they are older than the event. Drops them
 * if the client is slow. */
static void flush_kept(um_sse *s) {
    double now = um_now();
    for (int32_t i = 0; i < s->n_kept && s->n_waiting; i++) {
        kept *k = &s->kept[i];
        if (k->event.len == 0) continue;
        if (!is_slow(s)) {
            send_kept(s, k, now);
        } else {
            um_buf_clear(&k->event);
            s->n_waiting--;
        }
    }
}

/* ---- Callbacks --------------------------------------------------------------------------------------------------- */

static void on_drain(void *arg, um_exchange *x) {
    um_sse *s = arg;
    (void)x;
    if (!s->has_ended) send_due(s);
}

static void on_pace(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    send_due(arg);
}

static void on_keep_alive(evutil_socket_t fd, short what, void *arg) {
    um_sse *s = arg;
    (void)fd, (void)what;
    double left = s->last + KEEP_ALIVE_SECONDS - um_now();
    if (left <= 0) {
        s->last = um_now();
        left = KEEP_ALIVE_SECONDS;
        if (um_exchange_buffered(s->x) == 0) um_exchange_write(s->x, ":\n\n", 3);
    }
    struct timeval wait = timeout_of(left);
    evtimer_add(s->keep_alive, &wait);
}

/* ---- The stream -------------------------------------------------------------------------------------------------- */

um_sse *um_sse_new(struct event_base *base, um_exchange *x) {
    um_sse *s = UM_NEW(um_sse);
    struct timeval wait = timeout_of(KEEP_ALIVE_SECONDS);
    s->x = x;
    s->last = um_now();
    s->keep_alive = evtimer_new(base, on_keep_alive, s);
    s->pace = evtimer_new(base, on_pace, s);
    evtimer_add(s->keep_alive, &wait);
    um_exchange_on_drain(x, on_drain, s);
    um_exchange_add_header(x, "Cache-Control", "no-cache");
    um_exchange_add_header(x, "X-Accel-Buffering", "no"); /* else nginx buffers events */
    um_exchange_begin(x, 200, "text/event-stream");
    return s;
}

void um_sse_free(um_sse *s) {
    if (!s) return;
    event_free(s->keep_alive);
    event_free(s->pace);
    for (int32_t i = 0; i < s->n_kept; i++) um_buf_free(&s->kept[i].event);
    um_free(s->kept);
    um_buf_free(&s->event);
    um_free(s);
}

um_jw *um_sse_begin(um_sse *s) {
    um_buf_clear(&s->event);
    um_buf_puts(&s->event, "data: ");
    um_jw_init(&s->writer, &s->event);
    return &s->writer;
}

um_jw *um_sse_begin_event(um_sse *s, const char *name) {
    s->has_names = true;
    um_buf_clear(&s->event);
    um_buf_printf(&s->event, "event: %s\ndata: ", name);
    um_jw_init(&s->writer, &s->event);
    return &s->writer;
}

void um_sse_append(um_sse *s) {
    um_buf_puts(&s->event, "\n\n");
    flush_kept(s);
    send_event(s, text_of(&s->event));
}

void um_sse_send(um_sse *s, um_str events) {
    s->has_names = true;
    flush_kept(s);
    send_event(s, events);
}

static kept *kept_of(um_sse *s, int32_t choice) {
    assert(choice >= 0 && choice < UM_SSE_CHOICES_MAX);
    if (choice >= s->n_kept) {
        s->kept = um_realloc(s->kept, um_mul((size_t)choice + 1, sizeof *s->kept));
        memset(s->kept + s->n_kept, 0, (size_t)(choice + 1 - s->n_kept) * sizeof *s->kept);
        s->n_kept = choice + 1;
    }
    return &s->kept[choice];
}

void um_sse_replace(um_sse *s, int32_t choice, double max_hz) {
    kept *k = kept_of(s, choice);
    um_buf_puts(&s->event, "\n\n");
    if (k->event.len == 0) s->n_waiting++;
    k->due = max_hz > 0 && k->sent > 0 ? k->sent + 1 / max_hz : 0;
    um_buf older = k->event;
    k->event = s->event;
    s->event = older; /* reuses its memory */
    send_due(s);
}

/* um_exchange_end may close the exchange, which frees this stream. */
void um_sse_done(um_sse *s) {
    um_exchange *x = s->x;
    s->has_ended = true;
    evtimer_del(s->keep_alive);
    evtimer_del(s->pace);
    if (!s->has_names) um_exchange_write(x, "data: [DONE]\n\n", 14);
    um_exchange_end(x);
}
