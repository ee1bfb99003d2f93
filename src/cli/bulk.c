/* Runs many requests through a window: a ring of requests between a source and a router. */
#include "cli/bulk.h"

#include "cli/cli.h"

/* Requests per slot of the engines. Two keep the queue of the engines filled. Four in memory let short answers finish
 * while an earlier, long one still runs. */
#define QUEUED_PER_SLOT 2
#define WINDOW_PER_SLOT 4

typedef struct um_bulk_state {
    const um_bulk *bulk;
    um_router *router;
    um_bulk_request *ring; /* [cap] requests first .. next - 1 are read and not yet delivered; indices modulo cap */
    int64_t first, next;
    size_t cap, queued_max;
    bool ended, closing;
} um_bulk_state;

static um_bulk_request *request_at(um_bulk_state *s, int64_t number) { return &s->ring[(size_t)number % s->cap]; }

static void on_event(void *arg, const um_event *ev) {
    um_bulk_request *t = (um_bulk_request *)arg;
    if (t->state->closing) return;
    t->state->bulk->event(t->state->bulk->arg, t, ev);
    if (ev->type == UM_EVENT_FINISH) t->n_open--;
}

static void reset_request(um_bulk_state *s, um_bulk_request *t) {
    t->number = s->next;
    t->line = t->engine_id = 0;
    t->n_open = t->n_answers = 0;
    t->step_map = t->timings = t->is_raw = false;
    t->failure = NULL;
    t->err = (um_err){0};
    t->state = s;
    um_buf_clear(&t->id);
    um_buf_clear(&t->out);
}

/* Prepares empty buffers for n answers of a request. */
static void prepare_answers(um_bulk_request *t, int32_t n) {
    if (n > t->n_room) {
        t->answer = (um_bulk_answer *)um_realloc(t->answer, (size_t)n * sizeof(um_bulk_answer));
        memset(t->answer + t->n_room, 0, (size_t)(n - t->n_room) * sizeof(um_bulk_answer));
        t->n_room = n;
    }
    for (int32_t i = 0; i < n; i++) {
        um_buf_clear(&t->answer[i].out);
        um_buf_clear(&t->answer[i].trace);
        um_jw_init(&t->answer[i].writer, &t->answer[i].trace);
    }
    t->n_answers = t->n_open = n;
}

/* Reads a request and submits it. Returns false if there is none at the moment. */
static bool submit_next(um_bulk_state *s) {
    um_bulk_request *t = request_at(s, s->next);
    um_request r;
    reset_request(s, t);
    um_request_init(um_router_engine(s->router, 0), &r);
    bool idle = um_router_pending(s->router) == 0 && s->first == s->next;
    um_bulk_got got = s->bulk->next(s->bulk->arg, t, &r, idle);
    s->ended = got == UM_BULK_END;
    if (got != UM_BULK_REQUEST) return false;
    s->next++;
    r.events = s->bulk->events;
    r.on_event = on_event;
    r.arg = t;
    prepare_answers(t, r.n);
    if (!t->err.code) (void)um_router_add(s->router, &r, &t->engine_id, &t->err);
    return true;
}

static void submit_all(um_bulk_state *s) {
    while (!s->ended && (size_t)(s->next - s->first) < s->cap && um_router_pending(s->router) < s->queued_max)
        if (!submit_next(s)) return;
}

static um_status deliver(um_bulk_state *s, um_err *err) {
    for (; s->first < s->next; s->first++) {
        um_bulk_request *t = request_at(s, s->first);
        if (t->n_open && !t->err.code) return UM_OK;
        um_status st = s->bulk->take(s->bulk->arg, t, err);
        if (st) return st;
    }
    return UM_OK;
}

static um_status run_step(um_bulk_state *s, um_err *err) {
    if (um_cli_interrupted()) return um_fail(err, UM_ECANCELED, "interrupted");
    submit_all(s);
    um_status st = deliver(s, err);
    if (!st) st = um_router_step(s->router, err);
    if (!st) st = deliver(s, err);
    if (s->bulk->tick) s->bulk->tick(s->bulk->arg);
    return st;
}

static void free_request(um_bulk_request *t) {
    for (int32_t i = 0; i < t->n_room; i++) {
        um_buf_free(&t->answer[i].out);
        um_buf_free(&t->answer[i].trace);
    }
    um_free(t->answer);
    um_buf_free(&t->id);
    um_buf_free(&t->out);
}

static void close_state(um_bulk_state *s) {
    s->closing = true;
    for (; s->first < s->next; s->first++) {
        um_bulk_request *t = request_at(s, s->first);
        if (t->engine_id && t->n_open) (void)um_router_abort(s->router, t->engine_id, NULL);
    }
    for (size_t i = 0; i < s->cap; i++) free_request(&s->ring[i]);
    um_free(s->ring);
}

um_status um_bulk_run(um_router *r, int32_t places, const um_bulk *bulk, um_err *err) {
    size_t n = (size_t)places * (size_t)um_router_size(r);
    um_bulk_state s = {.bulk = bulk, .router = r, .cap = n * WINDOW_PER_SLOT, .queued_max = n * QUEUED_PER_SLOT};
    s.ring = UM_NEW_ARRAY(um_bulk_request, s.cap);
    um_status st = UM_OK;
    while (!st && (!s.ended || s.first < s.next)) st = run_step(&s, err);
    close_state(&s);
    return st;
}
