/* Utilities of workers, called by name. */
#include "server/backend/parts.h"

#include <inttypes.h>

/* What one worker answers. */
typedef struct um_part {
    uint16_t worker;
    bool open;
    um_buf value; /* JSON */
} um_part;

struct um_pending_call {
    um_pending_call *next;
    um_backend *backend;
    uint64_t id;
    char *name;
    double timeout;
    um_part *part; /* [n_parts] */
    int32_t n_parts, n_open;
    bool of_all; /* the value is an array */
    um_err err;  /* the first failure */
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
    um_pending_call **at = &c->backend->calls;
    while (*at != c) at = &(*at)->next;
    *at = c->next;
}

static void put_value(const um_pending_call *c, um_buf *out) {
    if (c->of_all) um_buf_putc(out, '[');
    for (int32_t i = 0; i < c->n_parts; i++) {
        const um_buf *v = &c->part[i].value;
        if (i) um_buf_putc(out, ',');
        if (v->len) um_buf_append(out, v->data, v->len);
        else um_buf_puts(out, "null");
    }
    if (c->of_all) um_buf_putc(out, ']');
}

/* Answers, whoever is still missing; the call does not exist behind it. */
static void finish(um_pending_call *c) {
    um_buf value = {0};
    unlink_call(c);
    if (!c->err.code) put_value(c, &value);
    c->done(c->arg, c->err.code, value.len ? value.data : "", &c->err);
    um_buf_free(&value);
    free_call(c);
}

static void fail_part_as(um_pending_call *c, um_part *p, const um_err *why) {
    p->open = false;
    c->n_open--;
    if (c->err.code) return;
    c->err = *why;
    um_fail_in(&c->err, "%s: worker %u", c->name, p->worker);
}

static void fail_part(um_pending_call *c, um_part *p, um_status code, const char *message) {
    um_err why = {0};
    um_fail(&why, code, "%s", message);
    fail_part_as(c, p, &why);
}

/* Its time is over, or it could not be sent to anyone. */
static void on_time(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    um_pending_call *c = arg;
    if (!c->err.code)
        um_fail(&c->err, UM_ECANCELED, "%s: no answer of %d of %d workers within %g seconds", c->name, c->n_open,
                c->n_parts, c->timeout);
    finish(c);
}

/* ---- Calling ----------------------------------------------------------------------------------------------------- */

/* A worker that has thrown its stored prompts away holds no beginnings any more. */
static void note_flush(um_member *m, const char *name) {
    if (um_streq(name, "flush_cache")) um_recent_clear(m->recent);
}

static void send_part(um_pending_call *c, um_member *m, um_str args) {
    um_part *p = &c->part[c->n_parts++];
    *p = (um_part){.worker = m->index, .open = true};
    c->n_open++;
    um_msg msg = {.type = UM_MSG_CALL, .call = {c->id, um_str_of(c->name), args}};
    note_flush(m, c->name);
    if (m->state != UM_WORKER_UP) fail_part(c, p, UM_EIO, um_worker_state_name(m->state));
    else if (m->backend->ending) fail_part(c, p, UM_ECANCELED, "the server is shutting down");
    else if (!um_backend_send(m, &msg)) fail_part(c, p, UM_EIO, "the connection is lost");
}

void um_backend_call(um_backend *b, int32_t i, const char *name, um_str args, double timeout, um_call_fn done,
                     void *arg) {
    um_pending_call *c = UM_NEW(um_pending_call);
    *c = (um_pending_call){.next = b->calls,
                           .backend = b,
                           .id = ++b->last_call,
                           .name = um_strdup(name),
                           .timeout = timeout,
                           .of_all = i < 0,
                           .done = done,
                           .arg = arg};
    b->calls = c;
    c->part = UM_NEW_ARRAY(um_part, (size_t)b->n_members);
    c->timer = evtimer_new(b->base, on_time, c);
    for (int32_t k = 0; k < b->n_members; k++)
        if (k == i || (i < 0 && b->member[k].state == UM_WORKER_UP)) send_part(c, &b->member[k], args);
    if (c->n_parts == 0 && i < 0) um_fail(&c->err, UM_EIO, "%s: %s", name, um_backend_trouble(b));
    else if (c->n_parts == 0) um_fail(&c->err, UM_EINVAL, "%s: there is no worker %d", name, i);
    /* `done` is never called from inside: what is settled already waits for the loop. */
    struct timeval t = um_timeval(c->n_open ? timeout : 0);
    evtimer_add(c->timer, &t);
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

static um_part *open_part(um_pending_call *c, uint16_t worker) {
    for (int32_t i = 0; i < c->n_parts; i++)
        if (c->part[i].open && c->part[i].worker == worker) return &c->part[i];
    return NULL;
}

void um_backend_returned(um_backend *b, uint16_t worker, const um_msg_return *r) {
    um_pending_call *c = b->calls;
    while (c && c->id != r->call_id) c = c->next;
    um_part *p = c ? open_part(c, worker) : NULL;
    if (!p) {
        um_log(UM_LOG_DEBUG, "worker %u: result of call %" PRIu64 ", which is not open", worker, r->call_id);
        return;
    }
    if (r->status) {
        um_err err = um_backend_error(r->status, r->param, r->value);
        fail_part_as(c, p, &err);
    } else {
        um_buf_append(&p->value, r->value.p, r->value.n);
        p->open = false;
        c->n_open--;
    }
    if (c->n_open == 0) finish(c);
}

static um_pending_call *open_call(um_backend *b, uint16_t worker) {
    um_pending_call *c = b->calls;
    while (c && !open_part(c, worker)) c = c->next;
    return c;
}

/* From the beginning after each: `done` may call again, and others. */
void um_backend_fail_calls(um_backend *b, uint16_t worker, const um_err *why) {
    um_pending_call *c;
    while ((c = open_call(b, worker))) {
        fail_part(c, open_part(c, worker), why->code, why->msg);
        if (c->n_open == 0) finish(c);
    }
}

void um_backend_end_calls(um_backend *b, const um_err *why) {
    while (b->calls) {
        if (!b->calls->err.code) b->calls->err = *why;
        finish(b->calls);
    }
}
