/* The window between a source of requests and a router. */
#include "cli/feed.h"

#include "cli/cli.h"

/* Twice the places keeps the engine's queue filled; four times lets short answers overtake a long one for a while. */
#define QUEUED_PER_PLACE 2
#define WINDOW_PER_PLACE 4

typedef struct um_feed_state {
    const um_feed *feed;
    um_router *router;
    um_ticket *ticket; /* [cap] ring: those read and not yet taken are first .. next - 1, modulo cap */
    int64_t first, next;
    size_t cap, queued_max;
    bool ended, closing;
} um_feed_state;

static um_ticket *ticket_at(um_feed_state *s, int64_t number) { return &s->ticket[(size_t)number % s->cap]; }

static void on_event(void *arg, const um_event *ev) {
    um_ticket *t = (um_ticket *)arg;
    if (t->state->closing) return;
    t->state->feed->event(t->state->feed->arg, t, ev);
    if (ev->type == UM_EVENT_FINISH) t->n_open--;
}

static void reset(um_feed_state *s, um_ticket *t) {
    t->number = s->next;
    t->line = t->engine_id = 0;
    t->n_open = t->n_answers = 0;
    t->step_map = t->timings = t->broken = false;
    t->err = (um_err){0};
    t->state = s;
    um_buf_clear(&t->id);
    um_buf_clear(&t->out);
}

/* Room for the answers of a request, empty. */
static void open_answers(um_ticket *t, int32_t n) {
    if (n > t->n_room) {
        t->answer = (um_gathered *)um_realloc(t->answer, (size_t)n * sizeof(um_gathered));
        memset(t->answer + t->n_room, 0, (size_t)(n - t->n_room) * sizeof(um_gathered));
        t->n_room = n;
    }
    for (int32_t i = 0; i < n; i++) {
        um_buf_clear(&t->answer[i].out);
        um_buf_clear(&t->answer[i].trace);
        um_jw_init(&t->answer[i].writer, &t->answer[i].trace);
    }
    t->n_answers = t->n_open = n;
}

/* Reads one request and hands it to the engine; false when there is none now. */
static bool read_one(um_feed_state *s) {
    um_ticket *t = ticket_at(s, s->next);
    um_request r;
    reset(s, t);
    um_request_init(um_router_engine(s->router, 0), &r);
    bool idle = um_router_pending(s->router) == 0 && s->first == s->next;
    um_feed_got got = s->feed->next(s->feed->arg, t, &r, idle);
    s->ended = got == UM_FEED_END;
    if (got != UM_FEED_REQUEST) return false;
    s->next++;
    r.events = s->feed->events;
    r.on_event = on_event;
    r.arg = t;
    open_answers(t, r.n);
    if (!t->err.code) (void)um_router_add(s->router, &r, &t->engine_id, &t->err);
    return true;
}

static void fill(um_feed_state *s) {
    while (!s->ended && (size_t)(s->next - s->first) < s->cap && um_router_pending(s->router) < s->queued_max)
        if (!read_one(s)) return;
}

static um_status drain(um_feed_state *s, um_err *err) {
    for (; s->first < s->next; s->first++) {
        um_ticket *t = ticket_at(s, s->first);
        if (t->n_open && !t->err.code) return UM_OK;
        um_status st = s->feed->take(s->feed->arg, t, err);
        if (st) return st;
    }
    return UM_OK;
}

static um_status turn(um_feed_state *s, um_err *err) {
    if (um_cli_interrupted()) return um_fail(err, UM_ECANCELED, "interrupted");
    fill(s);
    um_status st = drain(s, err);
    if (!st) st = um_router_step(s->router, err);
    if (!st) st = drain(s, err);
    if (s->feed->tick) s->feed->tick(s->feed->arg);
    return st;
}

static void free_ticket(um_ticket *t) {
    for (int32_t i = 0; i < t->n_room; i++) {
        um_buf_free(&t->answer[i].out);
        um_buf_free(&t->answer[i].trace);
    }
    um_free(t->answer);
    um_buf_free(&t->id);
    um_buf_free(&t->out);
}

static void close_state(um_feed_state *s) {
    s->closing = true;
    for (; s->first < s->next; s->first++) {
        um_ticket *t = ticket_at(s, s->first);
        if (t->engine_id && t->n_open) (void)um_router_abort(s->router, t->engine_id, NULL);
    }
    for (size_t i = 0; i < s->cap; i++) free_ticket(&s->ticket[i]);
    um_free(s->ticket);
}

um_status um_feed_run(um_router *r, int32_t places, const um_feed *f, um_err *err) {
    size_t n = (size_t)places * (size_t)um_router_size(r);
    um_feed_state s = {.feed = f, .router = r, .cap = n * WINDOW_PER_PLACE, .queued_max = n * QUEUED_PER_PLACE};
    s.ticket = UM_NEW_ARRAY(um_ticket, s.cap);
    um_status st = UM_OK;
    while (!st && (!s.ended || s.first < s.next)) st = turn(&s, err);
    close_state(&s);
    return st;
}
