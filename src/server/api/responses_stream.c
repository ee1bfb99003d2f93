/* Streams of stored responses: a client follows a response that runs, or gets the events of one that has finished. The
 * events have the numbers that the first stream of the response had, so a client can go on where it lost the stream. */
#include <jansson.h>

#include "server/api/responses.h"
#include "server/api/result_store.h"

/* A client that follows a response. It is freed when its exchange closes. */
struct um_follower {
    um_stored *stored; /* NULL: the stream has ended */
    um_follower *next;
    um_sse *sse;
    int64_t after;  /* number of the last event that the client has; -1: none */
    int64_t number; /* number of the next event of the items */
    size_t at;      /* its offset in the events */
};

/* ---- Events ------------------------------------------------------------------------------------------------------ */

void um_response_put_event(um_buf *out, const char *name, int64_t number, um_str response) {
    um_jw w;
    um_buf_printf(out, "event: %s\ndata: ", name);
    um_jw_init(&w, out);
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "type", name);
    um_jw_put_int(&w, "sequence_number", number);
    um_jw_key(&w, "response");
    um_jw_raw(&w, response.p, response.n);
    um_jw_end_object(&w);
    um_buf_puts(out, "\n\n");
}

static json_t *response_of(const um_stored *e) {
    json_t *v = NULL;
    um_json_parse_exact(&v, e->json.data, e->json.len, "response", NULL);
    return v;
}

/* Sends an event with a response, unless the client has it. */
static void send_response(um_follower *f, const char *name, int64_t number, const json_t *response) {
    um_buf json = {0}, event = {0};
    if (number <= f->after) return;
    um_json_put_exact(response, &json);
    um_response_put_event(&event, name, number, (um_str){json.data, json.len});
    um_sse_send(f->sse, (um_str){event.data, event.len});
    um_buf_free(&json);
    um_buf_free(&event);
}

/* Sends the first events, with the response as it was at its start. */
static void send_start(um_follower *f) {
    static const char *const unknown[] = {"completed_at", "error", "incomplete_details", "usage"};
    json_t *response = response_of(f->stored);
    json_object_set_new(response, "status", json_string("in_progress"));
    json_object_set_new(response, "output", json_array());
    for (size_t i = 0; i < UM_LEN(unknown); i++) json_object_set_new(response, unknown[i], json_null());
    send_response(f, "response.created", 0, response);
    send_response(f, "response.in_progress", 1, response);
    json_decref(response);
}

/* Sends the events of the items that came since the last call, and that the client does not have. */
static void send_new(um_follower *f) {
    const um_buf *events = &f->stored->events;
    while (f->at < events->len) {
        const char *from = events->data + f->at;
        const char *end = (const char *)memmem(from, events->len - f->at, "\n\n", 2);
        if (!end) return;
        size_t n = (size_t)(end - from) + 2;
        if (f->number++ > f->after) um_sse_send(f->sse, (um_str){from, n});
        f->at += n;
    }
}

static void send_end(um_follower *f) {
    json_t *response = response_of(f->stored);
    const char *status = json_string_value(json_object_get(response, "status"));
    char name[40];
    snprintf(name, sizeof name, "response.%s", status ? status : "failed");
    send_response(f, name, f->number, response);
    json_decref(response);
}

/* ---- Followers --------------------------------------------------------------------------------------------------- */

static void leave(um_follower *f) {
    um_follower **at = f->stored ? &f->stored->followers : NULL;
    while (at && *at != f) at = &(*at)->next;
    if (at) *at = f->next;
    f->stored = NULL;
}

static void on_close(void *arg, um_exchange *x, bool complete) {
    um_follower *f = arg;
    (void)x, (void)complete;
    leave(f);
    um_sse_free(f->sse);
    um_free(f);
}

/* May free the follower. */
static void go_on(um_follower *f) {
    um_sse *sse = f->sse;
    send_new(f);
    if (!f->stored->is_finished) return;
    send_end(f);
    leave(f);
    um_sse_done(sse);
}

void um_followers_wake(um_stored *e) {
    for (um_follower *f = e->followers, *next; f; f = next) {
        next = f->next;
        go_on(f);
    }
}

void um_followers_end(um_stored *e) {
    while (e->followers) {
        um_follower *f = e->followers;
        leave(f);
        um_sse_done(f->sse);
    }
}

void um_response_follow(um_service *s, um_exchange *x, um_stored *e, int64_t after) {
    um_follower *f = UM_NEW(um_follower);
    *f = (um_follower){.stored = e, .next = e->followers, .after = after, .number = UM_RESPONSE_FIRST_EVENT};
    e->followers = f;
    f->sse = um_sse_new(s->base, x);
    um_exchange_on_close(x, on_close, f);
    send_start(f);
    go_on(f);
}
