/* The worker pool: creation, submitting and cancelling generations, shutdown. */
#include "server/workers/internal.h"

/* ---- Sending ----------------------------------------------------------------------------------------------------- */

bool um_worker_pool_send(um_worker_slot *slot, um_msg *msg) {
    um_buf frame = {0};
    msg->worker = slot->index;
    msg->incarnation = slot->incarnation;
    um_wire_write(&frame, msg);
    bool sent = um_hub_send(slot->pool->hub, slot->index, slot->incarnation, &frame);
    um_buf_free(&frame);
    return sent;
}

/* ---- Generations ------------------------------------------------------------------------------------------------- */

bool um_worker_pool_is_idle(const um_worker_pool *pool) { return pool->open.n == 0 && !pool->calls; }

void um_worker_pool_on_end(um_worker_pool *pool) {
    um_worker_pool_sleep_if_idle(pool);
    if (pool->is_draining && !pool->is_stopping && um_worker_pool_is_idle(pool))
        evtimer_add(pool->grace_timer, &(struct timeval){0}); /* the grace period is over */
}

/* Updates the load of a worker: a generation was opened (sign 1) or has ended (-1). */
static void update_load(um_worker_pool *pool, const um_submission *g, int sign) {
    um_worker_slot *slot = &pool->slot[g->worker];
    slot->queued_tokens += sign * g->tokens;
    slot->n_requests += sign;
    if (sign < 0) um_worker_pool_on_end(pool);
}

static uint64_t reject(int *status, int with, um_err *err, um_status code, const char *why) {
    *status = with;
    um_fail(err, code, "%s", why);
    return 0;
}

uint64_t um_worker_pool_submit(um_worker_pool *pool, um_msg_generate *g, const um_submission_listener *l, void *arg,
                               int *status, um_err *err) {
    assert(g->n >= 1 && g->n <= UM_ANSWERS_MAX);
    if (pool->is_draining) return reject(status, 503, err, UM_ECANCELED, "the server is shutting down");
    if (pool->config->max_queue && pool->open.n >= pool->config->max_queue)
        return reject(status, 429, err, UM_ELIMIT, "too many requests wait or run; try again later");
    if (!um_worker_pool_is_up(pool)) return reject(status, 503, err, UM_EIO, um_worker_pool_down_reason(pool));
    g->rid = ++pool->last_rid;
    const um_worker_slot *slot = um_worker_pool_assign(pool, g);
    if (!slot) return reject(status, 503, err, UM_EIO, "the connection to the workers is lost; try again");
    um_submission open = {
        .rid = g->rid, .worker = slot->index, .n = g->n, .tokens = um_worker_pool_token_cost(pool, g)};
    open.listener = *l;
    open.arg = arg;
    um_submissions_add(&pool->open, &open);
    update_load(pool, &open, 1);
    return g->rid;
}

um_submission *um_worker_pool_find_submission(const um_worker_pool *pool, uint64_t rid) {
    um_submission *g = um_submissions_find(&pool->open, rid);
    return g ? g : um_submissions_find(&pool->cancelled, rid);
}

bool um_worker_pool_take_submission(um_worker_pool *pool, uint64_t rid, um_submission *g) {
    bool was_open = um_submissions_take(&pool->open, rid, g);
    if (was_open) update_load(pool, g, -1);
    return was_open || um_submissions_take(&pool->cancelled, rid, g);
}

static void send_abort(um_worker_pool *pool, const um_submission *g) {
    um_worker_pool_send(&pool->slot[g->worker], &(um_msg){.type = UM_MSG_ABORT, .abort = {g->rid}});
}

void um_worker_pool_cancel(um_worker_pool *pool, uint64_t rid) {
    um_submission g;
    if (um_worker_pool_take_submission(pool, rid, &g)) send_abort(pool, &g);
}

bool um_worker_pool_cancel_notify(um_worker_pool *pool, uint64_t rid, const um_submission_listener *l, void *arg) {
    um_submission g;
    if (!um_worker_pool_take_submission(pool, rid, &g)) return false;
    g.listener = *l;
    g.arg = arg;
    um_submissions_add(&pool->cancelled, &g);
    send_abort(pool, &g);
    return true;
}

void um_worker_pool_abort(um_worker_pool *pool, uint64_t rid) {
    const um_submission *g = um_submissions_find(&pool->open, rid);
    if (g) send_abort(pool, g);
}

int32_t um_worker_pool_outstanding(const um_worker_pool *pool) { return pool->open.n; }

static void fail_all(um_worker_pool *pool, const um_submissions *t, int32_t worker, int status, const um_err *why) {
    size_t n;
    uint64_t *rid = um_submissions_list(t, worker, &n);
    for (size_t i = 0; i < n; i++) {
        um_submission g;
        if (!um_worker_pool_take_submission(pool, rid[i], &g)) continue; /* a listener cancelled it */
        if (pool->slot[g.worker].state != UM_WORKER_DEAD) send_abort(pool, &g);
        g.listener.fail(g.arg, status, why);
    }
    um_free(rid);
}

/* Fails the open submissions first, since their listeners may cancel others with um_worker_pool_cancel_notify. */
void um_worker_pool_fail_submissions(um_worker_pool *pool, int32_t worker, int status, const um_err *why) {
    fail_all(pool, &pool->open, worker, status, why);
    fail_all(pool, &pool->cancelled, worker, status, why);
}

void um_worker_pool_cancel_all(um_worker_pool *pool, const um_err *why) {
    um_worker_pool_fail_submissions(pool, -1, 503, why);
}

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

/* The grace period is over, or the last generation or call has ended: fails the rest and stops the workers. */
static void on_grace(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    um_worker_pool *pool = arg;
    if (pool->is_stopping) return;
    pool->is_stopping = true;
    um_err why = {0};
    um_fail(&why, UM_ECANCELED, "the server is shutting down");
    um_worker_pool_cancel_all(pool, &why);
    um_worker_pool_fail_all_calls(pool, &why);
    for (int32_t i = 0; i < pool->n_slots; i++) um_worker_slot_stop(&pool->slot[i]);
}

void um_worker_pool_shutdown(um_worker_pool *pool, double grace, void (*done)(void *arg), void *arg) {
    pool->is_draining = true;
    pool->on_stopped = done;
    pool->on_stopped_arg = arg;
    um_worker_pool_update_down_reason(pool);
    struct timeval t = um_timeval(um_worker_pool_is_idle(pool) ? 0 : grace);
    evtimer_add(pool->grace_timer, &t);
}

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

static void on_frames(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    um_worker_pool_receive(arg);
}

static void on_heartbeat(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    um_worker_pool_heartbeat(arg);
}

static void on_sleep_timer(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    um_worker_pool_on_sleep_timer(arg);
}

static int32_t count_workers(const um_server_config *c) {
    if (c->in_process) return 1; /* one thread runs all engines */
    return c->remote_workers ? c->remote_workers : UM_MAX(c->engine->data_parallel_size, 1);
}

static um_status open_hub(um_worker_pool *pool, um_err *err) {
    const um_server_config *c = pool->config;
    return c->in_process ? um_hub_open_local(&pool->hub, pool->n_slots, err)
                         : um_hub_open_zmq(&pool->hub, pool->n_slots, c->zmq_command_addr, c->zmq_event_addr, err);
}

static um_status open_events(um_worker_pool *pool, um_err *err) {
    pool->frame_event = event_new(pool->base, um_hub_fd(pool->hub), EV_READ | EV_PERSIST, on_frames, pool);
    pool->heartbeat_timer = event_new(pool->base, -1, EV_PERSIST, on_heartbeat, pool);
    pool->grace_timer = evtimer_new(pool->base, on_grace, pool);
    pool->sleep_timer = evtimer_new(pool->base, on_sleep_timer, pool);
    /* Each heartbeat looks for silent workers, so several must fit into --backend-timeout. */
    pool->heartbeat_interval = (double)UM_MIN(pool->config->heartbeat, pool->config->backend_timeout / 4);
    struct timeval interval = um_timeval(pool->heartbeat_interval);
    if (!pool->frame_event || !pool->heartbeat_timer || !pool->grace_timer || !pool->sleep_timer ||
        event_add(pool->frame_event, NULL) || event_add(pool->heartbeat_timer, &interval))
        return um_fail(err, UM_EIO, "can't add the events of the worker pool to the event loop");
    return UM_OK;
}

static um_status start_workers(um_worker_pool *pool, um_err *err) {
    um_status st = UM_OK;
    for (int32_t i = 0; i < pool->n_slots && !st; i++) st = um_worker_slot_init(&pool->slot[i], pool, (uint16_t)i, err);
    for (int32_t i = 0; i < pool->n_slots && !st; i++) st = um_worker_slot_start(&pool->slot[i], err);
    return st;
}

um_status um_worker_pool_new(um_worker_pool **out, struct event_base *base, const um_server_config *c,
                             void (*changed)(void *arg, um_worker_pool *pool), void *arg, um_err *err) {
    um_worker_pool *pool = UM_NEW(um_worker_pool);
    pool->base = base;
    pool->config = c;
    pool->n_slots = count_workers(c);
    pool->slot = UM_NEW_ARRAY(um_worker_slot, (size_t)pool->n_slots);
    pool->sums = UM_NEW(um_totals);
    pool->hash_key = (uint64_t)um_rng_seed();
    /* Starts at a random number, since a remote worker may still send events for requests of an earlier server. */
    pool->last_rid = (uint64_t)um_rng_seed() << 10;
    um_arena_init(&pool->arena, 0);
    um_status st = open_hub(pool, err);
    if (!st) st = open_events(pool, err);
    if (!st) st = start_workers(pool, err);
    if (st) {
        um_worker_pool_free(pool);
        return st;
    }
    um_worker_pool_update_down_reason(pool);
    pool->on_change = changed;
    pool->on_change_arg = arg;
    *out = pool;
    return UM_OK;
}

static void free_event(struct event *e) {
    if (e) event_free(e);
}

void um_worker_pool_free(um_worker_pool *pool) {
    if (!pool) return;
    um_err why = {0};
    um_fail(&why, UM_ECANCELED, "the server has ended");
    pool->is_draining = pool->is_stopping = true;
    pool->on_change = NULL;
    pool->on_stopped = NULL;
    um_worker_pool_cancel_all(pool, &why);
    um_worker_pool_fail_all_calls(pool, &why);
    um_worker_pool_stop_now(pool);
    for (int32_t i = 0; i < pool->n_slots; i++) um_worker_slot_free(&pool->slot[i]);
    free_event(pool->frame_event);
    free_event(pool->heartbeat_timer);
    free_event(pool->grace_timer);
    free_event(pool->sleep_timer);
    if (pool->hub) um_hub_close(pool->hub);
    um_worker_pool_forget_all(pool);
    um_submissions_free(&pool->open);
    um_submissions_free(&pool->cancelled);
    um_arena_free(&pool->arena);
    um_buf_free(&pool->down_reason);
    um_free(pool->slot);
    um_free(pool->sums);
    um_free(pool);
}
