/* Sends requests on one event loop. An open loop sends each request when it is due, however slow the server is; a
 * closed loop sends the next request when one has ended. */
#include <event2/event.h>
#include <jansson.h>
#include <sys/resource.h>

#include "cli/load.h"

#define POLL_SECONDS 0.05 /* time between two checks for Ctrl-C in the event loop */
#define BODY_MAX     ((size_t)64 << 20)

typedef struct run run;

/* A request in flight. */
typedef struct flight {
    run *run;
    size_t index; /* index of its record */
    um_http_call *call;
    um_sse_reader events;
    um_buf body; /* body of a response that is not a stream */
    bool is_stream, is_over;
    double last_chunk;
    int32_t settled; /* settled tokens of the snapshots so far */
    struct flight *prev, *next;
} flight;

struct run {
    const um_load *load;
    um_load_run *out;
    struct event_base *base;
    struct event *timer;
    flight *flights; /* list of the requests in flight */
    double start;
    size_t n_open, n_ended;
};

static double now_of(const run *r) { return um_now() - r->start; }

static um_load_record *record_of(const flight *f) { return &f->run->out->record[f->index]; }

/* ---- Bodies ------------------------------------------------------------------------------------------------------ */

static json_t *prompt_json(const um_load *l, const um_load_prompt *p) {
    if (um_streq(l->prompt_key, "prompt")) return json_string(p->text);
    return json_pack("[{s:s,s:s}]", "role", "user", "content", p->text);
}

static int append(const char *data, size_t n, void *buf) {
    um_buf_append((um_buf *)buf, data, n);
    return 0;
}

static void write_body(const um_load *l, size_t index, um_buf *out) {
    const um_load_prompt *p = &l->prompts->prompt[index % l->prompts->n];
    json_t *body = json_copy((json_t *)l->body);
    json_object_set_new(body, l->prompt_key, prompt_json(l, p));
    if (p->max_tokens) json_object_set_new(body, "max_tokens", json_integer(p->max_tokens));
    json_dump_callback(body, append, out, JSON_COMPACT);
    json_decref(body);
}

/* ---- Responses --------------------------------------------------------------------------------------------------- */

/* Records the arrival of new settled text. */
static void take_chunk(flight *f) {
    um_load_record *r = record_of(f);
    double now = now_of(f->run);
    if (r->first_text < 0) r->first_text = now;
    else um_histogram_add(&f->run->out->gap, now - f->last_chunk);
    f->last_chunk = now;
    r->chunks++;
}

/* Stores the latest usage. 0 passes means that their number is unknown; the earlier number is kept then. */
static void take_usage(um_peer_usage *to, const um_peer_usage *u) {
    int32_t nfe = u->nfe ? u->nfe : to->nfe;
    if (u->is_given) *to = *u;
    to->nfe = nfe;
}

static void fail(flight *f, um_load_outcome outcome, const char *why) {
    um_load_record *r = record_of(f);
    r->outcome = outcome;
    if (!r->error) r->error = um_strdup(why);
    f->is_over = true;
}

/* Returns whether the message has new settled text. */
static bool has_new_text(flight *f, const um_peer_message *s) {
    bool is_new = s->kind == UM_PEER_TEXT;
    if (s->kind == UM_PEER_WHOLE) is_new = s->text.n && record_of(f)->first_text < 0;
    if (s->kind == UM_PEER_SNAPSHOT) {
        is_new = s->n_settled > f->settled;
        f->settled = UM_MAX(f->settled, s->n_settled);
    }
    return is_new;
}

static void take_message(flight *f, um_str data) {
    um_load_record *r = record_of(f);
    um_peer_message s;
    if (f->is_over) return;
    um_peer_read(&s, r->status, data);
    if (s.kind == UM_PEER_ERROR) fail(f, s.is_refusal ? UM_LOAD_REFUSED : UM_LOAD_BROKEN, s.err.msg);
    else take_usage(&r->usage, &s.usage);
    if (s.kind == UM_PEER_DONE) f->is_over = true;
    if (s.kind == UM_PEER_SNAPSHOT && r->first_snapshot < 0) r->first_snapshot = now_of(f->run);
    if (has_new_text(f, &s)) take_chunk(f);
    if (s.finish) r->finish = s.finish_as;
    um_peer_message_free(&s);
}

static void on_event(void *arg, um_str data) { take_message((flight *)arg, data); }

static void on_head(void *arg, const um_http_response *a) {
    flight *f = (flight *)arg;
    record_of(f)->status = a->status;
    f->is_stream = strncmp(a->type, "text/event-stream", 17) == 0;
}

/* ---- The end of a request ---------------------------------------------------------------------------------------- */

static void free_flight(flight *f) {
    if (f->prev) f->prev->next = f->next;
    else f->run->flights = f->next;
    if (f->next) f->next->prev = f->prev;
    um_sse_reader_free(&f->events);
    um_buf_free(&f->body);
    um_free(f);
}

static void send_due(run *r);

static void finish_flight(flight *f) {
    run *r = f->run;
    um_load_record *rec = record_of(f);
    rec->end = now_of(r);
    if (rec->outcome == UM_LOAD_OPEN) rec->outcome = UM_LOAD_ANSWERED;
    free_flight(f);
    r->n_open--;
    r->n_ended++;
    if (r->load->tick) r->load->tick(r->load->arg, r->n_ended);
    send_due(r);
}

/* Ends the call at the end of the stream, because the server may keep the connection open. */
static void on_data(void *arg, const char *bytes, size_t n) {
    flight *f = (flight *)arg;
    um_err err;
    if (!f->is_stream) {
        if (f->body.len + n <= BODY_MAX) um_buf_append(&f->body, bytes, n);
        return;
    }
    if (um_sse_read(&f->events, bytes, n, on_event, f, &err) && !f->is_over) fail(f, UM_LOAD_BROKEN, err.msg);
    if (!f->is_over) return;
    um_http_call_cancel(f->call);
    finish_flight(f);
}

static void on_done(void *arg, um_status st, const um_err *err) {
    flight *f = (flight *)arg;
    um_load_record *r = record_of(f);
    if (st) fail(f, UM_LOAD_BROKEN, err->msg);
    else if (!f->is_stream) take_message(f, (um_str){f->body.data ? f->body.data : "", f->body.len});
    else if (r->finish == UM_FINISH_NONE) fail(f, UM_LOAD_BROKEN, "the stream ended before the answer was complete");
    finish_flight(f);
}

/* ---- Sending ----------------------------------------------------------------------------------------------------- */

static um_load_record *new_record(um_load_run *o) {
    if (o->n == o->cap) {
        o->cap = UM_MAX(2 * o->cap, (size_t)256);
        o->record = um_realloc(o->record, um_mul(o->cap, sizeof *o->record));
    }
    um_load_record *r = &o->record[o->n++];
    *r = (um_load_record){.first_snapshot = -1, .first_text = -1, .end = -1};
    return r;
}

static void send_one(run *r, double due) {
    static const um_http_client_callbacks listener = {on_head, on_data, on_done};
    um_buf body = {0};
    flight *f = UM_NEW(flight);
    *f = (flight){.run = r, .index = r->out->n, .next = r->flights};
    if (r->flights) r->flights->prev = f;
    r->flights = f;
    um_load_record *rec = new_record(r->out);
    write_body(r->load, f->index, &body);
    rec->due = due;
    rec->sent = now_of(r);
    if (due < 0) rec->due = rec->sent; /* closed loop: a request is due when it is sent */
    r->n_open++;
    f->call = um_peer_call(r->load->peer, r->load->path, &body, r->load->timeout, &listener, f);
    um_buf_free(&body);
}

static bool all_sent(const run *r) {
    const um_load *l = r->load;
    if (um_cli_interrupted()) return true;
    if (l->arrivals) return r->out->n == l->arrivals->n;
    return l->requests ? r->out->n >= l->requests : now_of(r) >= l->seconds;
}

/* Returns the seconds until the next arrival, but at most POLL_SECONDS. */
static double seconds_to_wake(const run *r) {
    const um_load *l = r->load;
    double next = l->arrivals && !all_sent(r) ? l->arrivals->at[r->out->n] - now_of(r) : POLL_SECONDS;
    return UM_MIN(next, POLL_SECONDS);
}

static void send_due(run *r) {
    const um_load *l = r->load;
    while (!all_sent(r)) {
        if (l->arrivals && l->arrivals->at[r->out->n] > now_of(r)) break;
        if (!l->arrivals && r->n_open >= (size_t)l->concurrency) break;
        send_one(r, l->arrivals ? l->arrivals->at[r->out->n] : -1);
    }
}

static void start_timer(run *r) {
    struct timeval tv = um_timeval(seconds_to_wake(r));
    event_add(r->timer, &tv);
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    run *r = (run *)arg;
    (void)fd, (void)what;
    send_due(r);
    start_timer(r);
}

/* Raises the limit of open files, because every stream is a socket. */
static void allow_many_files(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* beyond the limit, requests fail and are counted as broken */
}

static void abort_rest(run *r) {
    while (r->flights) {
        flight *f = r->flights;
        record_of(f)->outcome = UM_LOAD_ABORTED;
        record_of(f)->end = now_of(r);
        um_http_call_cancel(f->call);
        free_flight(f);
    }
}

um_status um_load_run_all(const um_load *l, um_load_run *out, um_err *err) {
    run r = {.load = l, .out = out, .base = l->peer->base};
    *out = (um_load_run){0};
    allow_many_files();
    r.timer = event_new(r.base, -1, 0, on_timer, &r);
    assert(r.timer);
    r.start = um_now();
    send_due(&r);
    start_timer(&r);
    while ((r.n_open || !all_sent(&r)) && !um_cli_interrupted()) event_base_loop(r.base, EVLOOP_ONCE);
    abort_rest(&r);
    out->seconds = now_of(&r);
    event_free(r.timer);
    return um_cli_interrupted() ? um_fail(err, UM_ECANCELED, "interrupted") : UM_OK;
}

void um_load_run_free(um_load_run *r) {
    for (size_t i = 0; i < r->n; i++) um_free(r->record[i].error);
    um_free(r->record);
    *r = (um_load_run){0};
}
