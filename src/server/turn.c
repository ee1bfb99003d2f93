/* One exchange that generates. A turn lives until its exchange is closed (a detached one: until it was answered); the
 * exchange closes when the answer is handed over or the client is gone, so there is one way out, on_close. */
#include "server/turn.h"

#include <event2/event.h>
#include <time.h>

#include "server/frontend.h"
#include "server/reading.h"

/* A stream begins with its first event, so that a request that a worker refuses still gets an error status. Who waits
 * longer than this gets the head of the answer, lest proxies and clients give up on a silent connection. */
#define PATIENCE_SECONDS 1.0

/* The request that a worker has: one for each prompt. */
typedef struct generation {
    um_turn *turn;
    int32_t prompt;
    uint64_t rid; /* 0: it has ended */
    int32_t n_left;
    bool is_aborted; /* by a request for that */
} generation;

/* What the trajectory knows of an answer: the ids of the last snapshot. */
typedef struct film {
    int32_t *ids;
    uint32_t n, cap;
} film;

struct um_turn {
    um_server *server;
    um_turn *next, *prev; /* of the server's */
    um_exchange *x;       /* NULL: detached */
    um_body body;
    const um_shape *shape;
    char id[96];
    int64_t created;
    um_arena results;
    generation *gen;
    um_choice *choice;
    film *film; /* [n_choices] */
    int32_t n_choices, n_finished;
    um_sse *sse;
    struct event *deadline, *patience;
    um_turn_done_fn done;
    void *arg;
    bool is_over;   /* the answer, or an error, was given */
    bool is_spared; /* by aborts that clients ask for */
};

const um_body *um_turn_body(const um_turn *t) { return &t->body; }
um_server *um_turn_server(um_turn *t) { return t->server; }
um_sse *um_turn_sse(um_turn *t) { return t->sse; }
const char *um_turn_id(const um_turn *t) { return t->id; }
int64_t um_turn_created(const um_turn *t) { return t->created; }
int32_t um_turn_n_choices(const um_turn *t) { return t->n_choices; }
um_choice *um_turn_choice(um_turn *t, int32_t i) { return &t->choice[i]; }

const char *um_turn_model(const um_turn *t) { return t->body.model ? t->body.model : um_server_model_name(t->server); }

/* ---- Life -------------------------------------------------------------------------------------------------------- */

static void turn_free(um_turn *t) {
    if (t->prev) t->prev->next = t->next;
    else t->server->turns = t->next;
    if (t->next) t->next->prev = t->prev;
    for (int32_t i = 0; i < t->n_choices; i++) {
        um_choice_free(&t->choice[i]);
        if (t->shape->forget) t->shape->forget(&t->choice[i]);
        um_free(t->choice[i].own);
        um_free(t->film[i].ids);
    }
    if (t->deadline) event_free(t->deadline);
    if (t->patience) event_free(t->patience);
    um_sse_free(t->sse);
    um_arena_free(&t->results);
    um_body_release(&t->body);
    um_free(t->gen);
    um_free(t->choice);
    um_free(t->film);
    um_free(t);
}

static um_turn *turn_new(um_server *s, um_body *b, const um_shape *shape) {
    um_turn *t = UM_NEW(um_turn);
    t->server = s;
    t->next = s->turns;
    if (t->next) t->next->prev = t;
    s->turns = t;
    t->body = *b;
    *b = (um_body){0};
    t->shape = shape;
    t->created = (int64_t)time(NULL);
    um_arena_init(&t->results, 0);
    if (t->body.request_id) snprintf(t->id, sizeof t->id, "%s%s", shape->id_prefix, t->body.request_id);
    else um_make_id(shape->id_prefix, t->id);
    t->n_choices = (int32_t)t->body.n_prompts * t->body.generate.n;
    t->gen = UM_NEW_ARRAY(generation, t->body.n_prompts);
    t->choice = UM_NEW_ARRAY(um_choice, t->n_choices);
    t->film = UM_NEW_ARRAY(film, t->n_choices);
    for (int32_t i = 0; i < t->n_choices; i++)
        t->choice[i] = (um_choice){.number = i, .prompt = i / t->body.generate.n, .index = i % t->body.generate.n};
    return t;
}

/* What is known of an answer that was cut. */
static um_msg_finish cut_of(const um_turn *t, const generation *g, int32_t index) {
    const um_choice *c = &t->choice[g->prompt * t->body.generate.n + index];
    um_msg_finish m = {.rid = g->rid, .index = index, .finish = UM_FINISH_ABORTED, .stop_id = -1, .seed = -1};
    m.prompt_tokens = (int32_t)t->body.prompt[g->prompt].n_ids;
    m.nfe = c->nfe;
    m.n_ids = (uint32_t)c->n_tokens;
    return m;
}

/* A generation that nobody waits for any more. What it cost is counted when its worker says so, since of an answer that
 * is no stream nothing is known before; by what is known, when the worker can't say it. */
typedef struct dismissed {
    um_server *server;
    struct um_note *note; /* of its exchange */
    const char *why;
    int32_t n_left;
    um_msg_finish left[]; /* [n_left] answers that have not ended */
} dismissed;

static dismissed *dismissed_new(um_turn *t, const generation *g, const char *why) {
    int32_t n = t->body.generate.n;
    dismissed *d = um_alloc(sizeof *d + um_mul((size_t)n, sizeof d->left[0]));
    *d = (dismissed){.server = t->server, .note = um_note_hold(t->x), .why = why};
    for (int32_t i = 0; i < n; i++)
        if (!t->choice[g->prompt * n + i].finished) d->left[d->n_left++] = cut_of(t, g, i);
    return d;
}

static void dismissed_free(dismissed *d) {
    um_note_let_go(d->note);
    um_free(d);
}

static void count_cut(const dismissed *d, const um_msg_finish *m) {
    um_count_finish(d->server, m, d->why);
    um_note_add(d->note, m);
}

static void on_dismissed_finish(void *arg, const um_msg_finish *m) {
    dismissed *d = arg;
    count_cut(d, m);
    int32_t i = 0;
    while (i < d->n_left && d->left[i].index != m->index) i++;
    assert(i < d->n_left); /* the backend hands out each answer once, and none that was not asked for */
    d->left[i] = d->left[--d->n_left];
    if (!d->n_left) dismissed_free(d);
}

static void on_dismissed_fail(void *arg, int status, const um_err *err) {
    dismissed *d = arg;
    (void)status, (void)err;
    for (int32_t i = 0; i < d->n_left; i++) count_cut(d, &d->left[i]);
    dismissed_free(d);
}

/* Ends what still runs for this turn; nothing comes to it any more. */
static void cancel_all(um_turn *t, const char *why) {
    static const um_listener listener = {.finish = on_dismissed_finish, .fail = on_dismissed_fail};
    for (size_t i = 0; i < t->body.n_prompts; i++) {
        generation *g = &t->gen[i];
        if (!g->rid) continue;
        dismissed *d = dismissed_new(t, g, why);
        bool is_known = um_backend_dismiss(um_server_backend(t->server), g->rid, &listener, d);
        g->rid = 0;
        if (!is_known) on_dismissed_fail(d, 0, NULL);
    }
}

static void on_close(void *arg, um_exchange *x, bool complete) {
    um_turn *t = arg;
    (void)x;
    (void)complete;
    cancel_all(t, "disconnect");
    turn_free(t);
}

/* ---- The end ----------------------------------------------------------------------------------------------------- */

static void write_error(um_turn *t, um_jw *w, int status, const um_err *err) {
    const char *param = err->param[0] ? err->param : NULL;
    um_jw_begin_object(w);
    um_jw_key(w, "error");
    if (t->sse) um_put_stream_error(w, status, param, t->body.error_code, err->msg);
    else um_put_error(w, status, param, t->body.error_code, err->msg);
    um_jw_end_object(w);
}

static void fail_stream(um_turn *t, int status, const um_err *err) {
    if (t->shape->error) {
        t->shape->error(t, status, err);
    } else {
        write_error(t, um_sse_begin(t->sse), status, err);
        um_sse_append(t->sse);
    }
    um_sse_done(t->sse);
}

/* Hands a detached answer over; the turn is gone behind it. */
static void hand_over(um_turn *t, int status, um_buf *json) {
    um_turn_done_fn done = t->done;
    void *arg = t->arg;
    turn_free(t);
    done(arg, status, json);
    um_buf_free(json);
}

/* The turn ends with an error. It may be gone behind this. */
static void fail(um_turn *t, int status, const um_err *err, const char *why) {
    um_buf json = {0};
    um_jw w;
    if (t->is_over) return;
    t->is_over = true;
    cancel_all(t, why);
    if (t->sse) {
        fail_stream(t, status, err);
    } else if (t->x) {
        um_reply_error(t->x, status, err->param[0] ? err->param : NULL, t->body.error_code, "%s", err->msg);
    } else {
        um_jw_init(&w, &json);
        write_error(t, &w, status, err);
        hand_over(t, status, &json);
    }
}

/* All choices have finished. */
static void complete(um_turn *t) {
    um_buf json = {0};
    um_jw w;
    t->is_over = true;
    if (t->sse) {
        if (t->shape->end) t->shape->end(t);
        um_sse_done(t->sse);
        return;
    }
    um_jw_init(&w, &json);
    t->shape->whole(t, &w);
    if (t->x) {
        um_reply_json(t->x, 200, &json);
        um_buf_free(&json);
    } else {
        hand_over(t, 200, &json);
    }
}

static void on_deadline(evutil_socket_t fd, short what, void *arg) {
    um_turn *t = arg;
    um_err err = {0};
    (void)fd;
    (void)what;
    um_fail(&err, UM_ECANCELED, "no answer within %g seconds (request_timeout); the request was aborted",
            (double)um_server_get_config(t->server)->request_timeout);
    fail(t, 504, &err, "timeout");
}

/* ---- Streaming --------------------------------------------------------------------------------------------------- */

static void begin_stream(um_turn *t) {
    if (t->sse) return;
    t->sse = um_sse_new(um_server_base(t->server), t->x);
    for (int32_t i = 0; i < t->n_choices && t->shape->begin; i++) t->shape->begin(t, &t->choice[i]);
}

static void on_patience(evutil_socket_t fd, short what, void *arg) {
    um_turn *t = arg;
    (void)fd;
    (void)what;
    if (!t->is_over) begin_stream(t);
}

static um_choice *choice_of(const generation *g, int32_t index) {
    int32_t n = g->turn->body.generate.n;
    return index >= 0 && index < n ? &g->turn->choice[g->prompt * n + index] : NULL;
}

static void stream_text(um_turn *t, um_choice *c, const um_msg_text *m) {
    begin_stream(t);
    um_choice_settle(c, m);
    if (t->shape->text) t->shape->text(t, c, m);
}

static void on_text(void *arg, const um_msg_text *m) {
    generation *g = arg;
    um_choice *c = choice_of(g, m->index);
    if (c && !c->finished) stream_text(g->turn, c, m);
}

/* ---- Trajectory -------------------------------------------------------------------------------------------------- */

static int32_t mask_of(um_turn *t) {
    um_model_info info;
    um_model_get_info(um_server_model(t->server), &info);
    return info.mask_id;
}

static bool is_new(const film *f, const um_msg_snapshot *m, uint32_t i) {
    return i < f->n ? f->ids[i] != m->ids[i] : m->ids[i] >= 0;
}

static void put_changes(const film *f, const um_msg_snapshot *m, int32_t mask, um_jw *w) {
    um_jw_key(w, "positions");
    um_jw_begin_array(w);
    for (uint32_t i = 0; i < m->n; i++)
        if (is_new(f, m, i)) um_jw_int(w, i);
    um_jw_end_array(w);
    um_jw_key(w, "token_ids");
    um_jw_begin_array(w);
    for (uint32_t i = 0; i < m->n; i++)
        if (is_new(f, m, i)) um_jw_int(w, m->ids[i] < 0 ? mask : m->ids[i]);
    um_jw_end_array(w);
}

/* One entry a pass: how long the answer is, masks included, and which positions hold another id than before. */
static void record(um_turn *t, um_choice *c, const um_msg_snapshot *m) {
    film *f = &t->film[c->number];
    um_jw w;
    if (c->trajectory.len) um_buf_putc(&c->trajectory, ',');
    um_jw_init(&w, &c->trajectory);
    um_jw_begin_object(&w);
    um_jw_put_int(&w, "nfe", m->nfe);
    um_jw_put_int(&w, "length", m->n);
    put_changes(f, m, mask_of(t), &w);
    um_jw_end_object(&w);
    if (m->n > f->cap) f->ids = um_realloc(f->ids, (f->cap = 2 * m->n) * sizeof *f->ids);
    if (m->n) memcpy(f->ids, m->ids, m->n * sizeof *f->ids);
    f->n = m->n;
}

/* The first one, and one of every so many passes behind it. */
static bool is_due(um_choice *c, const um_msg_snapshot *m, int32_t interval) {
    if (m->nfe < c->next_shown) return false;
    c->next_shown = m->nfe + interval;
    return true;
}

static void on_snapshot(void *arg, const um_msg_snapshot *m) {
    generation *g = arg;
    um_turn *t = g->turn;
    um_choice *c = choice_of(g, m->index);
    if (!c || c->finished) return;
    c->nfe = m->nfe;
    if (t->body.return_trajectory) record(t, c, m);
    if (!t->body.stream || t->body.stream_mode == UM_STREAM_BLOCK_APPEND || !t->shape->snapshot) return;
    if (!is_due(c, m, t->body.snapshot_interval)) return;
    begin_stream(t);
    t->shape->snapshot(t, c, m);
}

/* ---- Finished answers -------------------------------------------------------------------------------------------- */

static void *copy(um_arena *a, const void *p, size_t n, size_t size) {
    void *to = um_arena_alloc(a, um_mul(n, size) + 1);
    if (n) memcpy(to, p, n * size);
    return to;
}

static um_str copy_str(um_arena *a, um_str s) { return (um_str){copy(a, s.p, s.n, 1), s.n}; }

/* The message belongs to the link; the choice keeps its own. */
static void keep_result(um_turn *t, um_choice *c, const um_msg_finish *m) {
    um_arena *a = &t->results;
    um_msg_finish *r = &c->result;
    *r = *m;
    r->ids = copy(a, m->ids, m->n_ids, sizeof *m->ids);
    r->pass = copy(a, m->pass, m->n_ids, sizeof *m->pass);
    r->text_end = copy(a, m->text_end, m->n_ids, sizeof *m->text_end);
    r->logprob = copy(a, m->logprob, m->n_logprob, sizeof *m->logprob);
    r->likeliest_id = copy(a, m->likeliest_id, m->n_likeliest_all, sizeof *m->likeliest_id);
    r->likeliest = copy(a, m->likeliest, m->n_likeliest_all, sizeof *m->likeliest);
    r->text = copy_str(a, m->text);
    r->stop = copy_str(a, m->stop);
}

/* The stop string is part of the text when the request wants it there. */
static void add_stop(um_turn *t, um_choice *c) {
    um_msg_finish *r = &c->result;
    if (!um_body_of(&t->body, (size_t)c->prompt)->include_stop || !r->stop.n) return;
    um_msg_text m = {.rid = r->rid, .index = c->index, .offset = c->n_tokens, .text = r->stop, .nfe = r->nfe};
    m.decode_seconds = r->decode_seconds;
    m.decode_tokens = r->denoise_tokens;
    if (t->sse) stream_text(t, c, &m);
    char *all = um_arena_alloc(&t->results, r->text.n + r->stop.n + 1);
    memcpy(all, r->text.p, r->text.n);
    memcpy(all + r->text.n, r->stop.p, r->stop.n);
    r->text = (um_str){all, r->text.n + r->stop.n};
}

static void on_finish(void *arg, const um_msg_finish *m) {
    generation *g = arg;
    um_turn *t = g->turn;
    um_choice *c = choice_of(g, m->index);
    if (!c || c->finished || t->is_over) return;
    keep_result(t, c, m);
    um_count_finish(t->server, m, g->is_aborted ? "abort_request" : NULL);
    um_note_finish(t->x, m);
    if (t->body.stream) begin_stream(t);
    add_stop(t, c);
    c->finished = true;
    c->n_tokens = (int32_t)m->n_ids;
    c->nfe = m->nfe;
    if (--g->n_left == 0) g->rid = 0;
    if (t->sse && t->shape->finish) t->shape->finish(t, c);
    if (++t->n_finished == t->n_choices) complete(t);
}

static void count_failed(um_turn *t, const generation *g, const char *why) {
    for (int32_t i = 0; i < t->body.generate.n; i++) {
        um_msg_finish m = cut_of(t, g, i);
        if (!choice_of(g, i)->finished) um_count_finish(t->server, &m, why);
    }
}

static void on_fail(void *arg, int status, const um_err *err) {
    generation *g = arg;
    um_err blamed = *err;
    count_failed(g->turn, g, status < 500 ? "refused" : "failed");
    g->rid = 0;
    fail(g->turn, status, &blamed, "failed");
}

/* ---- Aborts ------------------------------------------------------------------------------------------------------ */

static bool is_called(const um_turn *t, const generation *g, const char *id) {
    const char *const *rids = t->body.rids;
    return !id || um_streq(t->id, id) || um_streq(t->body.request_id, id) || (rids && um_streq(rids[g->prompt], id));
}

static size_t abort_turn(um_turn *t, const char *id) {
    size_t n = 0;
    if (t->is_spared) return 0;
    for (size_t i = 0; i < t->body.n_prompts; i++) {
        generation *g = &t->gen[i];
        if (!g->rid || g->is_aborted || !is_called(t, g, id)) continue;
        g->is_aborted = true;
        um_backend_abort(um_server_backend(t->server), g->rid);
        n++;
    }
    return n;
}

/* The workers say with which texts they end. */
size_t um_turns_abort(um_server *s, const um_turn *older, const char *id) {
    size_t n = 0;
    for (um_turn *t = s->turns; t && t != older; t = t->next) n += abort_turn(t, id);
    return n;
}

/* ---- Beginning --------------------------------------------------------------------------------------------------- */

static uint32_t events_of(const um_body *b) {
    uint32_t events = UM_EVENT_FINISH;
    if (b->stream && b->stream_mode != UM_STREAM_DENOISE) events |= UM_EVENT_TEXT;
    if (b->stream && b->stream_mode != UM_STREAM_BLOCK_APPEND) events |= UM_EVENT_SNAPSHOT;
    if (b->return_trajectory) events |= UM_EVENT_SNAPSHOT;
    return events;
}

static bool submit(um_turn *t, int32_t i, int *status, um_err *err) {
    static const um_listener listener = {on_text, on_snapshot, on_finish, on_fail};
    um_msg_generate g = um_body_of(&t->body, (size_t)i)->generate;
    g.events = events_of(&t->body);
    g.ids = t->body.prompt[i].ids;
    g.n_ids = (uint32_t)t->body.prompt[i].n_ids;
    t->gen[i] = (generation){.turn = t, .prompt = i, .n_left = g.n};
    t->gen[i].rid = um_backend_submit(um_server_backend(t->server), &g, &listener, &t->gen[i], status, err);
    return t->gen[i].rid != 0;
}

static struct event *timer(um_turn *t, double seconds, event_callback_fn fn) {
    struct event *e = event_new(um_server_base(t->server), -1, 0, fn, t);
    struct timeval tv = um_timeval(seconds);
    event_add(e, &tv);
    return e;
}

/* What it took to read the request counts. */
static double waited(const um_turn *t) { return t->body.since > 0 ? um_now() - t->body.since : 0; }

/* False: the turn has failed and may be gone. */
static bool start(um_turn *t) {
    um_err err = {0};
    int status = 400;
    float seconds = um_server_get_config(t->server)->request_timeout;
    if (t->body.stream && t->n_choices > UM_SSE_CHOICES_MAX) {
        um_fail(&err, UM_ERANGE, "a stream has at most %d choices, these are %d; ask for them as a whole",
                UM_SSE_CHOICES_MAX, t->n_choices);
        um_fail_about(&err, UM_ERANGE, "stream");
        fail(t, status, &err, "refused");
        return false;
    }
    for (int32_t i = 0; i < (int32_t)t->body.n_prompts; i++) {
        if (submit(t, i, &status, &err)) continue;
        fail(t, status, &err, "refused");
        return false;
    }
    if (t->x && seconds > 0) t->deadline = timer(t, (double)seconds - waited(t), on_deadline);
    if (t->body.stream) t->patience = timer(t, PATIENCE_SECONDS, on_patience);
    return true;
}

void um_turn_begin(um_server *s, um_exchange *x, um_body *b, const um_shape *shape) {
    um_turn *t = turn_new(s, b, shape);
    t->x = x;
    um_note_model(x, um_turn_model(t));
    um_exchange_on_close(x, on_close, t);
    start(t);
}

um_turn *um_turn_detached(um_server *s, um_body *b, const um_shape *shape, um_turn_done_fn done, void *arg) {
    um_turn *t = turn_new(s, b, shape);
    t->body.stream = false;
    t->done = done;
    t->arg = arg;
    return start(t) ? t : NULL;
}

void um_turn_spare(um_turn *t) { t->is_spared = true; }

void um_turn_cancel(um_turn *t) {
    cancel_all(t, "canceled");
    turn_free(t);
}

/* ---- Endpoints --------------------------------------------------------------------------------------------------- */

um_status um_check_place(const um_server *s, size_t n, const char *field, um_err *err) {
    int32_t most = um_server_get_config(s)->max_queue;
    if (!most || n <= (size_t)most) return UM_OK;
    return um_fail_param(err, UM_ERANGE, field, "%zu prompts, but the server has %d places (--max-queue); ask in parts",
                         n, most);
}

um_status um_api_read(const um_api *a, um_server *s, const um_room *room, struct json_t *root, um_body *b,
                      um_err *err) {
    um_status st = um_body_read(b, s, room, root, a->sets, err);
    if (!st && !b->n_prompts)
        st = um_fail_about(err, um_fail(err, UM_EINVAL, "\"%s\" is missing", a->prompt), a->prompt);
    if (!st) st = um_check_place(s, b->n_prompts, b->prompt_name ? b->prompt_name : a->prompt, err);
    if (!st && !um_body_has(b, "stream_mode")) b->stream_mode = a->stream_mode;
    if (!st && a->check) st = a->check(b, err);
    return st ? st : um_body_encode(b, err);
}
