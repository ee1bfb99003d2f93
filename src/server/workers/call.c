/* Calls of worker utilities by name. */
#include "server/workers/internal.h"
#include "server/workers/spread.h"

#include <inttypes.h>

/* The result of one worker. */
typedef struct um_call_result {
    uint16_t worker;
    bool open;    /* the worker has not returned yet */
    um_buf value; /* JSON */
} um_call_result;

struct um_pending_call {
    um_pending_call *next;
    um_worker_pool *pool;
    uint64_t id;
    char *name;
    double timeout;
    um_call_result *part; /* [n_parts] */
    int32_t n_parts, n_open;
    bool of_all;    /* the result is an array with one element per worker */
    bool is_spread; /* the prompts are divided among the workers; the result is one list */
    um_err err;     /* set_error */
    struct event *timer;
    um_call_fn done;
    void *arg;
};

static void free_call(um_pending_call *c) {
    for (int32_t i = 0; i < c->n_parts; i++) um_buf_free(&c->part[i].value);
    if (c->timer) event_free(c->timer);
    um_free(c->part);
    um_free(c->name);
    um_free(c);
}

static void unlink_call(um_pending_call *c) {
    um_pending_call **at = &c->pool->calls;
    while (*at != c) at = &(*at)->next;
    *at = c->next;
}

static um_status join_parts(const um_pending_call *c, um_buf *out, um_err *err) {
    um_buf *result = UM_NEW_ARRAY(um_buf, (size_t)c->n_parts);
    for (int32_t i = 0; i < c->n_parts; i++) result[i] = c->part[i].value;
    um_status st = um_spread_join(result, c->n_parts, out, err);
    um_free(result);
    return st;
}

static void put_parts(const um_pending_call *c, um_buf *out) {
    if (c->of_all) um_buf_putc(out, '[');
    for (int32_t i = 0; i < c->n_parts; i++) {
        const um_buf *v = &c->part[i].value;
        if (i) um_buf_putc(out, ',');
        if (v->len) um_buf_append(out, v->data, v->len);
        else um_buf_puts(out, "null");
    }
    if (c->of_all) um_buf_putc(out, ']');
}

/* Tells whether the outcome is certain: all workers returned, or one part of a divided call failed. */
static bool is_decided(const um_pending_call *c) { return c->n_open == 0 || (c->is_spread && c->err.code); }

/* Calls `done` with the result or the error, and frees the call. */
static void finish(um_pending_call *c) {
    um_buf value = {0};
    unlink_call(c);
    if (!c->err.code && c->is_spread) (void)join_parts(c, &value, &c->err);
    else if (!c->err.code) put_parts(c, &value);
    c->done(c->arg, c->err.code, value.len ? value.data : "", &c->err);
    um_buf_free(&value);
    um_worker_pool *pool = c->pool;
    free_call(c);
    um_worker_pool_on_end(pool);
}

/* Sets the error of the call, unless it has one. UM_EIO, most often the loss of a worker, gives way to
 * other errors. */
static void set_error(um_pending_call *c, const um_err *why) {
    if (!c->err.code || (c->err.code == UM_EIO && why->code != UM_EIO)) c->err = *why;
}

static void fail_part_as(um_pending_call *c, um_call_result *p, const um_err *why) {
    um_err named = *why;
    p->open = false;
    c->n_open--;
    um_fail_in(&named, "%s: worker %u", c->name, p->worker);
    set_error(c, &named);
}

static void fail_part(um_pending_call *c, um_call_result *p, um_status code, const char *message) {
    um_err why = {0};
    um_fail(&why, code, "%s", message);
    fail_part_as(c, p, &why);
}

/* The timeout has passed, or the outcome was certain from the start. */
static void on_timeout(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    um_pending_call *c = arg;
    if (!is_decided(c)) {
        um_err why = {0};
        um_fail(&why, UM_ECANCELED, "%s: %d of %d workers did not return within %g seconds", c->name, c->n_open,
                c->n_parts, c->timeout);
        set_error(c, &why);
    }
    finish(c);
}

/* ---- Calling ----------------------------------------------------------------------------------------------------- */

/* Drops the prefix hints of a worker that is about to flush its prefix cache. */
static void clear_flushed_hints(um_worker_slot *slot, const char *name) {
    if (um_streq(name, "flush_cache")) um_prefix_hints_clear(slot->hints);
}

static void send_part(um_pending_call *c, um_worker_slot *slot, um_str args) {
    um_call_result *p = &c->part[c->n_parts++];
    *p = (um_call_result){.worker = slot->index, .open = true};
    c->n_open++;
    um_msg msg = {.type = UM_MSG_CALL, .call = {c->id, um_str_of(c->name), args}};
    clear_flushed_hints(slot, c->name);
    if (slot->state != UM_WORKER_UP) fail_part(c, p, UM_EIO, um_worker_state_name(slot->state));
    else if (slot->pool->is_stopping) fail_part(c, p, UM_ECANCELED, "the server is shutting down");
    else if (!um_worker_pool_send(slot, &msg)) fail_part(c, p, UM_EIO, "the connection is lost");
}

/* Finds the workers that are up, the shortest queue first; returns their number. */
static int32_t find_up(um_worker_pool *pool, um_worker_slot **up) {
    int32_t n = 0;
    for (int32_t k = 0; k < pool->n_slots; k++) {
        um_worker_slot *slot = &pool->slot[k];
        if (slot->state != UM_WORKER_UP) continue;
        int32_t at = n++;
        for (; at > 0 && up[at - 1]->queued_tokens > slot->queued_tokens; at--) up[at] = up[at - 1];
        up[at] = slot;
    }
    return n;
}

/* Divides the prompts among the workers. Arguments that can't be divided go unchanged to the worker with the shortest
 * queue, which reports invalid ones. */
static void send_spread(um_pending_call *c, um_str args) {
    um_worker_pool *pool = c->pool;
    um_worker_slot **up = UM_NEW_ARRAY(um_worker_slot *, (size_t)pool->n_slots);
    um_buf *part = UM_NEW_ARRAY(um_buf, (size_t)pool->n_slots);
    int32_t n = find_up(pool, up), n_parts = n > 1 ? um_spread_divide(args, part, n) : 0;
    c->of_all = false;
    c->is_spread = n_parts > 0;
    if (n && !n_parts) send_part(c, up[0], args);
    for (int32_t p = 0; p < n_parts; p++) {
        send_part(c, up[p], (um_str){part[p].data, part[p].len});
        um_buf_free(&part[p]);
    }
    um_free(part);
    um_free(up);
}

int32_t um_worker_pool_open_calls(const um_worker_pool *pool) {
    int32_t n = 0;
    for (const um_pending_call *c = pool->calls; c; c = c->next) n++;
    return n;
}

/* Returns the number of open calls of a worker. */
static int32_t count_open(const um_worker_pool *pool, uint16_t worker) {
    int32_t n = 0;
    for (const um_pending_call *c = pool->calls; c; c = c->next)
        for (int32_t i = 0; i < c->n_parts; i++) n += c->part[i].open && c->part[i].worker == worker;
    return n;
}

/* Chooses the worker with the fewest open calls, among equals the one with the shortest queue. */
static void send_to_any(um_pending_call *c, um_str args) {
    um_worker_pool *pool = c->pool;
    um_worker_slot **up = UM_NEW_ARRAY(um_worker_slot *, (size_t)pool->n_slots);
    const int32_t n = find_up(pool, up);
    int32_t best = 0;
    for (int32_t k = 1; k < n; k++)
        if (count_open(pool, up[k]->index) < count_open(pool, up[best]->index)) best = k;
    if (n) send_part(c, up[best], args);
    um_free(up);
}

static void send_to_each(um_pending_call *c, int32_t i, um_str args) {
    um_worker_pool *pool = c->pool;
    for (int32_t k = 0; k < pool->n_slots; k++)
        if (k == i || (i < 0 && pool->slot[k].state == UM_WORKER_UP)) send_part(c, &pool->slot[k], args);
}

void um_worker_pool_call(um_worker_pool *pool, int32_t i, const char *name, um_str args, double timeout,
                         um_call_fn done, void *arg) {
    um_pending_call *c = UM_NEW(um_pending_call);
    *c = (um_pending_call){.next = pool->calls,
                           .pool = pool,
                           .id = ++pool->last_call,
                           .name = um_strdup(name),
                           .timeout = timeout,
                           .of_all = i == UM_WORKER_ALL,
                           .done = done,
                           .arg = arg};
    pool->calls = c;
    c->part = UM_NEW_ARRAY(um_call_result, (size_t)pool->n_slots);
    c->timer = evtimer_new(pool->base, on_timeout, c);
    if (i == UM_WORKER_ALL && um_streq(name, UM_SPREAD_NAME)) send_spread(c, args);
    else if (i == UM_WORKER_ANY) send_to_any(c, args);
    else send_to_each(c, i, args);
    if (c->n_parts == 0 && i < 0) um_fail(&c->err, UM_EIO, "%s: %s", name, um_worker_pool_down_reason(pool));
    else if (c->n_parts == 0) um_fail(&c->err, UM_EINVAL, "%s: unknown worker %d", name, i);
    /* `done` is never called from here. A call whose outcome is certain finishes in the next turn of the loop. */
    struct timeval t = um_timeval(is_decided(c) ? 0 : timeout);
    evtimer_add(c->timer, &t);
}

/* ---- Remembered calls -------------------------------------------------------------------------------------------- */

/* Returns the link to the call with this key, or the link at the end. */
static um_remembered_call **find_remembered(um_worker_pool *pool, const char *key) {
    um_remembered_call **at = &pool->remembered;
    while (*at && !um_streq((*at)->key, key)) at = &(*at)->next;
    return at;
}

static void remove_remembered(um_remembered_call **at) {
    um_remembered_call *r = *at;
    *at = r->next;
    um_free(r->key);
    um_free(r->name);
    um_free(r->args);
    um_free(r);
}

void um_worker_pool_forget(um_worker_pool *pool, const char *key) {
    um_remembered_call **at = find_remembered(pool, key);
    if (*at) remove_remembered(at);
}

void um_worker_pool_forget_all(um_worker_pool *pool) {
    while (pool->remembered) remove_remembered(&pool->remembered);
}

void um_worker_pool_remember(um_worker_pool *pool, const char *key, const char *name, um_str args) {
    um_worker_pool_forget(pool, key);
    um_remembered_call *r = UM_NEW(um_remembered_call);
    *r = (um_remembered_call){NULL, um_strdup(key), um_strdup(name), um_strndup(args.p, args.n)};
    *find_remembered(pool, key) = r;
}

/* Number 0 is that of no call, so that the results are dropped. */
void um_worker_slot_call_remembered(um_worker_slot *slot) {
    for (const um_remembered_call *r = slot->pool->remembered; r; r = r->next) {
        um_msg msg = {.type = UM_MSG_CALL, .call = {0, um_str_of(r->name), um_str_of(r->args)}};
        um_worker_pool_send(slot, &msg);
    }
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

static um_call_result *open_part(um_pending_call *c, uint16_t worker) {
    for (int32_t i = 0; i < c->n_parts; i++)
        if (c->part[i].open && c->part[i].worker == worker) return &c->part[i];
    return NULL;
}

void um_worker_pool_on_return(um_worker_pool *pool, uint16_t worker, const um_msg_return *r) {
    um_pending_call *c = pool->calls;
    while (c && c->id != r->call_id) c = c->next;
    um_call_result *p = c ? open_part(c, worker) : NULL;
    if (!p) {
        um_log(UM_LOG_DEBUG, "worker %u: dropped the result of call %" PRIu64 ", which is not open", worker,
               r->call_id);
        return;
    }
    if (r->status) {
        um_err err = um_worker_pool_error(r->status, r->param, r->value);
        fail_part_as(c, p, &err);
    } else {
        um_buf_append(&p->value, r->value.p, r->value.n);
        p->open = false;
        c->n_open--;
    }
    if (is_decided(c)) finish(c);
}

static um_pending_call *open_call(um_worker_pool *pool, uint16_t worker) {
    um_pending_call *c = pool->calls;
    while (c && !open_part(c, worker)) c = c->next;
    return c;
}

/* Searches from the start each time, since `done` may start other calls. */
void um_worker_pool_fail_calls(um_worker_pool *pool, uint16_t worker, const um_err *why) {
    um_pending_call *c;
    while ((c = open_call(pool, worker))) {
        fail_part(c, open_part(c, worker), why->code, why->msg);
        if (is_decided(c)) finish(c);
    }
}

void um_worker_pool_fail_all_calls(um_worker_pool *pool, const um_err *why) {
    while (pool->calls) {
        if (!pool->calls->err.code) pool->calls->err = *why;
        finish(pool->calls);
    }
}
