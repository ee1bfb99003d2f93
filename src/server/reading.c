/* A body is read on the loop when it is short, else beside it. A reading belongs to the loop's thread, but for the time
 * that it is a job. */
#include "server/reading.h"

#include <jansson.h>

#include "server/frontend.h"

#if !JSON_HAVE_ATOMIC_BUILTINS && !JSON_HAVE_SYNC_BUILTINS
#error "values of JSON are shared by threads: jansson must count their references atomically"
#endif

/* ---- Release ----------------------------------------------------------------------------------------------------- */

typedef struct waste {
    void (*release)(void *arg);
    void *arg;
} waste;

static um_status release_work(void *arg, um_err *err) {
    waste *w = arg;
    (void)err;
    w->release(w->arg);
    um_free(w);
    return UM_OK;
}

void um_release(um_server *s, size_t bytes, void (*release)(void *arg), void *arg) {
    if (bytes <= UM_READ_AT_ONCE) {
        release(arg);
        return;
    }
    waste *w = UM_NEW(waste);
    *w = (waste){release, arg};
    um_jobs_give(s->readers, &(um_job){release_work, NULL, w, 0});
}

static void free_body(void *arg) {
    um_body_free(arg);
    um_free(arg);
}

void um_body_release(um_body *b) {
    if (b->bytes <= UM_READ_AT_ONCE) {
        um_body_free(b);
        return;
    }
    um_body *own = UM_NEW(um_body);
    *own = *b;
    *b = (um_body){0};
    um_release(own->server, own->bytes, free_body, own);
}

static void reading_free(void *arg) {
    um_reading *r = arg;
    json_decref(r->root);
    um_body_free(&r->body);
    for (size_t i = 0; i < r->n_bodies; i++) um_body_free(&r->bodies[i]);
    um_free(r->bodies);
    um_buf_free(&r->bytes);
    um_buf_free(&r->out);
    um_buf_free(&r->aborted);
    um_free(r);
}

static void forget(um_reading *r) { um_release(r->server, r->bytes.len, reading_free, r); }

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static um_status parse(um_reading *r, um_err *err) {
    um_status st = um_json_parse_request(&r->root, r->bytes.data, r->bytes.len, "body", err);
    if (st || json_is_object(r->root)) return st;
    return um_fail(err, UM_EINVAL, "expected a JSON object, found another JSON value");
}

um_status um_read_body(um_reading *r, const um_api *api, json_t *root, um_body *body, um_err *err) {
    um_status st = um_api_read(api, r->server, &r->room, root, body, err);
    body->bytes = r->bytes.len;
    body->since = r->since;
    return st;
}

um_status um_read_api(um_reading *r, const um_api *a, um_err *err) {
    json_t *root = r->root;
    r->root = NULL;
    r->api = a;
    return um_read_body(r, a, root, &r->body, err);
}

static um_status work(void *arg, um_err *err) {
    um_reading *r = arg;
    um_status st = r->root ? UM_OK : parse(r, err);
    return st ? st : r->reader->read(r, err);
}

/* ---- The answer -------------------------------------------------------------------------------------------------- */

static const char *error_code(const um_reading *r) {
    return r->n_bodies ? r->bodies[r->n_bodies - 1].error_code : r->body.error_code;
}

static void answer(um_reading *r, um_status s, const um_err *err) {
    if (!s) r->reader->answer(r);
    else um_reply_error(r->x, um_http_status_of(s), *err->param ? err->param : NULL, error_code(r), "%s", err->msg);
}

void um_answer_api(um_reading *r) { um_turn_begin(r->server, r->x, &r->body, r->api->shape); }

void um_answer_out(um_reading *r) { um_reply_json(r->x, 200, &r->out); }

/* ---- Beside the loop --------------------------------------------------------------------------------------------- */

static void enter_list(um_reading *r) {
    r->link = &r->server->readings;
    r->next = *r->link;
    if (r->next) r->next->link = &r->next;
    *r->link = r;
}

static void leave_list(um_reading *r) {
    *r->link = r->next;
    if (r->next) r->next->link = r->link;
}

size_t um_readings_abort(um_server *s, const char *id) {
    size_t n = 0, bytes = id ? strlen(id) + 1 : 0;
    for (um_reading *r = s->readings; r; r = r->next) {
        if (!r->x || !r->reader->generates) continue;
        if (id && r->aborted.len + bytes <= UM_READ_ABORTED_MAX) um_buf_append(&r->aborted, id, bytes);
        if (id || r->is_aborted) continue;
        r->is_aborted = true;
        n++;
    }
    return n;
}

/* Its turns are those that are newer than `older`. */
static void abort_late(um_reading *r, const um_turn *older) {
    if (r->is_aborted) um_turns_abort(r->server, older, NULL);
    for (size_t at = 0; at < r->aborted.len; at += strlen(r->aborted.data + at) + 1)
        um_turns_abort(r->server, older, r->aborted.data + at);
}

static void done(void *arg, um_status s, const um_err *err) {
    um_reading *r = arg;
    const um_turn *older = r->server->turns;
    leave_list(r);
    if (r->x) {
        um_exchange_on_close(r->x, NULL, NULL);
        answer(r, s, err);
        abort_late(r, older);
    }
    forget(r);
}

/* A job that has begun comes back by itself. */
static void on_close(void *arg, um_exchange *x, bool complete) {
    um_reading *r = arg;
    (void)x, (void)complete;
    r->x = NULL;
    if (!um_jobs_take_back(r->server->readers, r)) return;
    leave_list(r);
    forget(r);
}

static void read_beside(um_reading *r, size_t weight) {
    um_exchange_on_close(r->x, on_close, r);
    if (um_jobs_give(r->server->readers, &(um_job){work, done, r, weight})) {
        enter_list(r);
        return;
    }
    um_exchange_on_close(r->x, NULL, NULL);
    um_reply_error(r->x, 429, NULL, NULL, "%zu MiB of requests wait to be read already; wait a moment",
                   UM_READ_WAITING_MAX >> 20);
    forget(r);
}

void um_read(um_server *s, um_exchange *x, const um_reader *reader, const void *about) {
    um_err err = {0};
    if (!um_body_is_json(x)) return;
    um_reading *r = UM_NEW(um_reading);
    *r = (um_reading){.server = s, .x = x, .reader = reader, .about = about, .room = um_room_of(s)};
    r->since = um_now();
    r->bytes = um_exchange_take_body(x);
    if (r->bytes.len > UM_READ_AT_ONCE) {
        read_beside(r, r->bytes.len);
        return;
    }
    um_status st = parse(r, &err);
    if (!st && json_object_get(r->root, "chat_template")) {
        read_beside(r, UM_READ_TEMPLATE_WEIGHT);
        return;
    }
    if (!st) st = reader->read(r, &err);
    answer(r, st, &err);
    forget(r);
}

static um_status read_api(um_reading *r, um_err *err) { return um_read_api(r, r->about, err); }

void um_api_serve(um_server *s, um_exchange *x, const um_api *a) {
    static const um_reader reader = {.read = read_api, .answer = um_answer_api, .generates = true};
    um_read(s, x, &reader, a);
}
