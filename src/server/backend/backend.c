/* The backend: requests go to workers, what they say comes back. */
#include "server/backend/parts.h"

/* ---- Sending ----------------------------------------------------------------------------------------------------- */

bool um_backend_send(um_member *m, um_msg *msg) {
    um_buf frame = {0};
    msg->worker = m->index;
    msg->incarnation = m->incarnation;
    um_wire_write(&frame, msg);
    bool sent = um_hub_send(m->backend->hub, m->index, m->incarnation, &frame);
    um_buf_free(&frame);
    return sent;
}

/* ---- Generations ------------------------------------------------------------------------------------------------- */

/* A generation is open (sign 1), or is no more (-1). */
static void account(um_backend *b, const um_generation *g, int sign) {
    um_member *m = &b->member[g->worker];
    m->queued_tokens += sign * g->tokens;
    m->n_requests += sign;
    /* The last one has ended: there is nothing to be graceful about any more. */
    if (b->stopping && !b->ending && b->open.n == 0) evtimer_add(b->grace, &(struct timeval){0});
}

static uint64_t refuse(int *status, int with, um_err *err, um_status code, const char *why) {
    *status = with;
    um_fail(err, code, "%s", why);
    return 0;
}

uint64_t um_backend_submit(um_backend *b, um_msg_generate *g, const um_listener *l, void *arg, int *status,
                           um_err *err) {
    assert(g->n >= 1 && g->n <= UM_ANSWERS_MAX);
    if (b->stopping) return refuse(status, 503, err, UM_ECANCELED, "the server is shutting down");
    if (b->config->max_queue && b->open.n >= b->config->max_queue)
        return refuse(status, 429, err, UM_ELIMIT, "too many requests wait or run; try again later");
    if (!um_backend_is_up(b)) return refuse(status, 503, err, UM_EIO, um_backend_trouble(b));
    g->rid = ++b->last_rid;
    const um_member *m = um_backend_post(b, g);
    if (!m) return refuse(status, 503, err, UM_EIO, "the connection to the workers is lost; try again");
    um_generation open = {.rid = g->rid, .worker = m->index, .n = g->n, .tokens = um_backend_tokens(b, g)};
    open.listener = *l;
    open.arg = arg;
    um_generations_add(&b->open, &open);
    account(b, &open, 1);
    return g->rid;
}

um_generation *um_backend_find(const um_backend *b, uint64_t rid) {
    um_generation *g = um_generations_find(&b->open, rid);
    return g ? g : um_generations_find(&b->dismissed, rid);
}

bool um_backend_take(um_backend *b, uint64_t rid, um_generation *g) {
    bool was_open = um_generations_take(&b->open, rid, g);
    if (was_open) account(b, g, -1);
    return was_open || um_generations_take(&b->dismissed, rid, g);
}

static void tell_abort(um_backend *b, const um_generation *g) {
    um_backend_send(&b->member[g->worker], &(um_msg){.type = UM_MSG_ABORT, .abort = {g->rid}});
}

void um_backend_cancel(um_backend *b, uint64_t rid) {
    um_generation g;
    if (um_backend_take(b, rid, &g)) tell_abort(b, &g);
}

bool um_backend_dismiss(um_backend *b, uint64_t rid, const um_listener *l, void *arg) {
    um_generation g;
    if (!um_backend_take(b, rid, &g)) return false;
    g.listener = *l;
    g.arg = arg;
    um_generations_add(&b->dismissed, &g);
    tell_abort(b, &g);
    return true;
}

void um_backend_abort(um_backend *b, uint64_t rid) {
    const um_generation *g = um_generations_find(&b->open, rid);
    if (g) tell_abort(b, g);
}

int32_t um_backend_waiting(const um_backend *b) { return b->open.n; }

static void fail_all(um_backend *b, const um_generations *t, int32_t worker, int status, const um_err *why) {
    size_t n;
    uint64_t *rid = um_generations_list(t, worker, &n);
    for (size_t i = 0; i < n; i++) {
        um_generation g;
        if (!um_backend_take(b, rid[i], &g)) continue; /* a listener cancelled it */
        if (b->member[g.worker].state != UM_WORKER_DEAD) tell_abort(b, &g);
        g.listener.fail(g.arg, status, why);
    }
    um_free(rid);
}

/* Those that are open first: their listeners may dismiss others. */
void um_backend_fail_open(um_backend *b, int32_t worker, int status, const um_err *why) {
    fail_all(b, &b->open, worker, status, why);
    fail_all(b, &b->dismissed, worker, status, why);
}

void um_backend_cancel_all(um_backend *b, const um_err *why) { um_backend_fail_open(b, -1, 503, why); }

int um_http_status_of(um_status s) {
    switch (s) {
    case UM_OK: return 200;
    case UM_ENOENT: return 404; /* a model, an adapter */
    case UM_EINVAL:
    case UM_EPARSE:
    case UM_EUNSUPPORTED:
    case UM_ERANGE:
    case UM_ELIMIT:
    case UM_ETEMPLATE: return 400;
    case UM_ENOMEM:
    case UM_ECANCELED: return 503;
    case UM_EIO:
    case UM_EMODEL:
    case UM_EDEVICE: return 500;
    }
    return 500;
}

/* ---- Shutting down ----------------------------------------------------------------------------------------------- */

/* The grace is over, or there is nothing left that would need it. */
static void on_grace(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    um_backend *b = arg;
    if (b->ending) return;
    b->ending = true;
    um_err why = {0};
    um_fail(&why, UM_ECANCELED, "the server is shutting down");
    um_backend_cancel_all(b, &why);
    um_backend_end_calls(b, &why);
    for (int32_t i = 0; i < b->n_members; i++) um_member_end(&b->member[i]);
}

void um_backend_shutdown(um_backend *b, double grace, void (*done)(void *arg), void *arg) {
    b->stopping = true;
    b->stopped = done;
    b->stopped_arg = arg;
    um_backend_describe(b);
    struct timeval t = um_timeval(b->open.n ? grace : 0);
    evtimer_add(b->grace, &t);
}

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

static void on_frames(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    um_backend_drain(arg);
}

static void on_heartbeat(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    um_backend_beat(arg);
}

static int32_t count_workers(const um_server_config *c) {
    if (c->in_process) return 1; /* engines share it */
    return c->remote_workers ? c->remote_workers : UM_MAX(c->engine->data_parallel_size, 1);
}

static um_status open_hub(um_backend *b, um_err *err) {
    const um_server_config *c = b->config;
    return c->in_process ? um_hub_open_local(&b->hub, b->n_members, err)
                         : um_hub_open_zmq(&b->hub, b->n_members, c->zmq_command_addr, c->zmq_event_addr, err);
}

static um_status open_events(um_backend *b, um_err *err) {
    b->frames = event_new(b->base, um_hub_fd(b->hub), EV_READ | EV_PERSIST, on_frames, b);
    b->heartbeat = event_new(b->base, -1, EV_PERSIST, on_heartbeat, b);
    b->grace = evtimer_new(b->base, on_grace, b);
    /* Silence is looked for at each beat, so there must be several in its time. */
    struct timeval beat = um_timeval(UM_MIN(b->config->heartbeat, b->config->backend_timeout / 4));
    if (!b->frames || !b->heartbeat || !b->grace || event_add(b->frames, NULL) || event_add(b->heartbeat, &beat))
        return um_fail(err, UM_EIO, "the event loop refused the workers' events");
    return UM_OK;
}

static um_status start_workers(um_backend *b, um_err *err) {
    um_status st = UM_OK;
    for (int32_t i = 0; i < b->n_members && !st; i++) st = um_member_init(&b->member[i], b, (uint16_t)i, err);
    for (int32_t i = 0; i < b->n_members && !st; i++) st = um_member_start(&b->member[i], err);
    return st;
}

um_status um_backend_new(um_backend **out, struct event_base *base, const um_server_config *c,
                         void (*changed)(void *arg, um_backend *b), void *arg, um_err *err) {
    um_backend *b = UM_NEW(um_backend);
    b->base = base;
    b->config = c;
    b->n_members = count_workers(c);
    b->member = UM_NEW_ARRAY(um_member, (size_t)b->n_members);
    b->sums = UM_NEW(um_totals);
    b->hash_key = (uint64_t)um_rng_seed();
    /* Not from 1: a worker on another host may still answer the requests of a frontend that is gone. */
    b->last_rid = (uint64_t)um_rng_seed() << 10;
    um_arena_init(&b->arena, 0);
    um_status st = open_hub(b, err);
    if (!st) st = open_events(b, err);
    if (!st) st = start_workers(b, err);
    if (st) {
        um_backend_free(b);
        return st;
    }
    um_backend_describe(b);
    b->changed = changed;
    b->changed_arg = arg;
    *out = b;
    return UM_OK;
}

static void free_event(struct event *e) {
    if (e) event_free(e);
}

void um_backend_free(um_backend *b) {
    if (!b) return;
    um_err why = {0};
    um_fail(&why, UM_ECANCELED, "the server has ended");
    b->stopping = b->ending = true;
    b->changed = NULL;
    b->stopped = NULL;
    um_backend_cancel_all(b, &why);
    um_backend_end_calls(b, &why);
    um_backend_end_now(b);
    for (int32_t i = 0; i < b->n_members; i++) um_member_free(&b->member[i]);
    free_event(b->frames);
    free_event(b->heartbeat);
    free_event(b->grace);
    if (b->hub) um_hub_close(b->hub);
    um_generations_free(&b->open);
    um_generations_free(&b->dismissed);
    um_arena_free(&b->arena);
    um_buf_free(&b->trouble);
    um_free(b->member);
    um_free(b->sums);
    um_free(b);
}
