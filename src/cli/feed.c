/* The window between a source of requests and an engine. */
#include "cli/feed.h"

#include "cli/cli.h"

/* Twice the places keeps the engine's queue filled; four times lets short answers overtake a long one for a while. */
#define QUEUED_PER_PLACE 2
#define WINDOW_PER_PLACE 4

typedef struct um_feed_state {
    const um_feed *feed;
    um_engine *engine;
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
    if (ev->type == UM_EVENT_FINISH) t->finished = true;
}

static void reset(um_feed_state *s, um_ticket *t) {
    t->number = s->next;
    t->line = t->engine_id = 0;
    t->finished = false;
    t->err = (um_err){0};
    t->state = s;
    um_buf_clear(&t->id);
    um_buf_clear(&t->out);
    um_buf_clear(&t->trace);
    um_jw_init(&t->writer, &t->trace);
}

/* Reads one request and hands it to the engine; false when there is none now. */
static bool read_one(um_feed_state *s) {
    um_ticket *t = ticket_at(s, s->next);
    um_request r;
    reset(s, t);
    um_request_init(s->engine, &r);
    bool idle = um_engine_pending(s->engine) == 0 && s->first == s->next;
    um_feed_got got = s->feed->next(s->feed->arg, t, &r, idle);
    s->ended = got == UM_FEED_END;
    if (got != UM_FEED_REQUEST) return false;
    s->next++;
    r.events = s->feed->events;
    r.on_event = on_event;
    r.arg = t;
    if (!t->err.code) (void)um_engine_add(s->engine, &r, &t->engine_id, &t->err);
    return true;
}

static void fill(um_feed_state *s) {
    while (!s->ended && (size_t)(s->next - s->first) < s->cap && um_engine_pending(s->engine) < s->queued_max)
        if (!read_one(s)) return;
}

static um_status drain(um_feed_state *s, um_err *err) {
    for (; s->first < s->next; s->first++) {
        um_ticket *t = ticket_at(s, s->first);
        if (!t->finished && !t->err.code) return UM_OK;
        um_status st = s->feed->take(s->feed->arg, t, err);
        if (st) return st;
    }
    return UM_OK;
}

static um_status turn(um_feed_state *s, um_err *err) {
    if (um_cli_interrupted()) return um_fail(err, UM_ECANCELED, "interrupted");
    fill(s);
    um_status st = drain(s, err);
    if (!st) st = um_engine_step(s->engine, err);
    if (!st) st = drain(s, err);
    if (s->feed->tick) s->feed->tick(s->feed->arg);
    return st;
}

static void close_state(um_feed_state *s) {
    s->closing = true;
    for (; s->first < s->next; s->first++) {
        um_ticket *t = ticket_at(s, s->first);
        if (t->engine_id && !t->finished) (void)um_engine_abort(s->engine, t->engine_id, NULL);
    }
    for (size_t i = 0; i < s->cap; i++) {
        um_buf_free(&s->ticket[i].id);
        um_buf_free(&s->ticket[i].trace);
        um_buf_free(&s->ticket[i].out);
    }
    um_free(s->ticket);
}

um_status um_feed_run(um_engine *e, int32_t places, const um_feed *f, um_err *err) {
    um_feed_state s = {.feed = f,
                       .engine = e,
                       .cap = (size_t)places * WINDOW_PER_PLACE,
                       .queued_max = (size_t)places * QUEUED_PER_PLACE};
    s.ticket = UM_NEW_ARRAY(um_ticket, s.cap);
    um_status st = UM_OK;
    while (!st && (!s.ended || s.first < s.next)) st = turn(&s, err);
    close_state(&s);
    return st;
}
