/* A generation with an exchange is freed when the exchange closes (on_close): the response is complete, or the client
 * has disconnected. A detached one is freed when its owner gets the response or cancels it. */
#include "server/generate/generation.h"

#include <event2/event.h>
#include <time.h>

#include "server/generate/otlp.h"
#include "server/generate/quota.h"
#include "server/respond/access.h"
#include "server/respond/reply.h"

/* A stream begins with its first event, so that a request that a worker refuses still gets an error status. After this
 * time the head is sent anyway, because proxies and clients give up on a silent connection. */
#define HEAD_DELAY_SECONDS 1.0

/* The worker request of one prompt. */
typedef struct submission {
    um_generation *generation;
    int32_t prompt;
    uint64_t rid;    /* 0 when it has ended */
    int32_t n_left;  /* unfinished answers */
    bool is_aborted; /* /abort_request has aborted it */
} submission;

struct um_generation {
    um_service *service;
    um_generation *next, *prev; /* neighbours in the service's list */
    um_exchange *x;             /* NULL: detached */
    um_body body;
    um_quota quota;
    um_otlp *trace; /* NULL: not traced */
    const um_response_writer *writer;
    char id[96];
    int64_t created;
    um_arena results;
    submission *submission;
    um_choice *choice;
    int32_t n_choices, n_finished;
    um_sse *sse;
    struct event *deadline, *head_delay;
    um_generation_done_fn done;
    void *arg;
    bool has_begun; /* the stream, or that of a background generation */
    bool is_over;   /* the response, or an error, was sent */
    bool is_exempt; /* um_generations_abort skips it */
};

const um_body *um_generation_body(const um_generation *g) { return &g->body; }
um_service *um_generation_service(um_generation *g) { return g->service; }
um_sse *um_generation_sse(um_generation *g) { return g->sse; }
const char *um_generation_id(const um_generation *g) { return g->id; }
int64_t um_generation_created(const um_generation *g) { return g->created; }
int32_t um_generation_n_choices(const um_generation *g) { return g->n_choices; }
um_choice *um_generation_choice(um_generation *g, int32_t i) { return &g->choice[i]; }

const char *um_generation_model(const um_generation *g) {
    return g->body.model ? g->body.model : um_setup_model_name(&g->service->setup);
}

/* ---- Life -------------------------------------------------------------------------------------------------------- */

static void generation_free(um_generation *g) {
    if (g->prev) g->prev->next = g->next;
    else g->service->generations = g->next;
    if (g->next) g->next->prev = g->prev;
    um_quota_end(&g->quota);
    um_otlp_end(g->trace, g);
    for (int32_t i = 0; i < g->n_choices; i++) {
        um_choice_free(&g->choice[i]);
        if (g->writer->forget) g->writer->forget(&g->choice[i]);
        um_free(g->choice[i].own);
    }
    if (g->deadline) event_free(g->deadline);
    if (g->head_delay) event_free(g->head_delay);
    um_sse_free(g->sse);
    um_arena_free(&g->results);
    um_body_release(g->service, &g->body);
    um_free(g->submission);
    um_free(g->choice);
    um_free(g);
}

static um_generation *generation_new(um_service *s, um_exchange *x, um_body *b, const um_response_writer *writer) {
    um_generation *g = UM_NEW(um_generation);
    g->service = s;
    g->x = x;
    g->trace = um_otlp_new(s->traces, x);
    g->next = s->generations;
    if (g->next) g->next->prev = g;
    s->generations = g;
    g->body = *b;
    *b = (um_body){0};
    g->writer = writer;
    g->created = (int64_t)time(NULL);
    um_arena_init(&g->results, 0);
    if (g->body.request_id) snprintf(g->id, sizeof g->id, "%s%s", writer->id_prefix, g->body.request_id);
    else um_make_id(writer->id_prefix, g->id);
    g->n_choices = (int32_t)g->body.n_prompts * g->body.generate.n;
    g->submission = UM_NEW_ARRAY(submission, g->body.n_prompts);
    g->choice = UM_NEW_ARRAY(um_choice, g->n_choices);
    for (int32_t i = 0; i < g->n_choices; i++)
        g->choice[i] = (um_choice){.number = i, .prompt = i / g->body.generate.n, .index = i % g->body.generate.n};
    return g;
}

/* Returns the finish message of an aborted answer, as far as it is known before the worker reports it. */
static um_msg_finish aborted_answer(const um_generation *g, const submission *sub, int32_t index) {
    const um_choice *c = &g->choice[sub->prompt * g->body.generate.n + index];
    um_msg_finish m = {.rid = sub->rid, .index = index, .finish = UM_FINISH_ABORTED, .stop_id = -1, .seed = -1};
    m.prompt_tokens = (int32_t)g->body.prompt[sub->prompt].n_ids;
    m.nfe = c->nfe;
    m.n_ids = (uint32_t)c->n_tokens;
    return m;
}

/* Counts an answer that has ended. The answers of a request share the prompt. */
static void count_finish(um_service *s, um_quota *q, const um_msg_finish *m, const char *why_aborted) {
    um_metrics_count_finish(s->metrics, m, why_aborted);
    um_quota_spend(q, m->index == 0 ? m->prompt_tokens : 0, m->n_ids);
}

/* A canceled worker request. Its tokens are counted when the worker reports them: if the answer does not stream, the
 * server does not know their number before. If the worker fails, the tokens known at the cancellation are counted. */
typedef struct canceled {
    um_service *service;
    um_access_record *record; /* access record of its exchange */
    um_quota quota;           /* nothing is reserved any more */
    const char *why;
    int32_t n_left;
    um_msg_finish left[]; /* [n_left] the unfinished answers */
} canceled;

static canceled *canceled_new(um_generation *g, const submission *sub, const char *why) {
    int32_t n = g->body.generate.n;
    canceled *d = um_alloc(sizeof *d + um_mul((size_t)n, sizeof d->left[0]));
    *d = (canceled){.service = g->service, .record = um_access_record_ref(g->x), .why = why};
    d->quota.key = g->quota.key;
    for (int32_t i = 0; i < n; i++)
        if (!g->choice[sub->prompt * n + i].finished) d->left[d->n_left++] = aborted_answer(g, sub, i);
    return d;
}

static void canceled_free(canceled *d) {
    um_access_record_unref(d->record);
    um_free(d);
}

static void count_answer(canceled *d, const um_msg_finish *m) {
    count_finish(d->service, &d->quota, m, d->why);
    um_access_record_add(d->record, m);
}

static void on_canceled_finish(void *arg, const um_msg_finish *m) {
    canceled *d = arg;
    count_answer(d, m);
    int32_t i = 0;
    while (i < d->n_left && d->left[i].index != m->index) i++;
    assert(i < d->n_left); /* the pool reports each answer once */
    d->left[i] = d->left[--d->n_left];
    if (!d->n_left) canceled_free(d);
}

static void on_canceled_fail(void *arg, int status, const um_err *err) {
    canceled *d = arg;
    (void)status, (void)err;
    for (int32_t i = 0; i < d->n_left; i++) count_answer(d, &d->left[i]);
    canceled_free(d);
}

/* Cancels the worker requests that still run. Their events no longer reach the generation. */
static void cancel_all(um_generation *g, const char *why) {
    static const um_submission_listener listener = {.finish = on_canceled_finish, .fail = on_canceled_fail};
    for (size_t i = 0; i < g->body.n_prompts; i++) {
        submission *sub = &g->submission[i];
        if (!sub->rid) continue;
        canceled *d = canceled_new(g, sub, why);
        bool is_known = um_worker_pool_cancel_notify(g->service->workers, sub->rid, &listener, d);
        sub->rid = 0;
        if (!is_known) on_canceled_fail(d, 0, NULL);
    }
}

static void on_close(void *arg, um_exchange *x, bool complete) {
    um_generation *g = arg;
    (void)x;
    if (!complete) um_otlp_fail(g->trace, 499, "the client has disconnected");
    cancel_all(g, "disconnect");
    generation_free(g);
}

/* ---- The response ------------------------------------------------------------------------------------------------ */

static void write_error(um_generation *g, um_jw *w, int status, const um_err *err) {
    const char *param = err->param[0] ? err->param : NULL;
    um_jw_begin_object(w);
    um_jw_key(w, "error");
    if (g->sse) um_put_stream_error(w, status, param, g->body.error_code, err->msg);
    else um_put_error(w, status, param, g->body.error_code, err->msg);
    um_jw_end_object(w);
}

static void fail_stream(um_generation *g, int status, const um_err *err) {
    if (g->writer->error) {
        g->writer->error(g, status, err);
    } else {
        write_error(g, um_sse_begin(g->sse), status, err);
        um_sse_append(g->sse);
    }
    um_sse_done(g->sse);
}

/* Frees a detached generation and passes its response to the owner. */
static void hand_over(um_generation *g, int status, um_buf *json) {
    um_generation_done_fn done = g->done;
    void *arg = g->arg;
    generation_free(g);
    done(arg, status, json);
    um_buf_free(json);
}

/* Ends the generation with an error. Frees a detached one. */
static void fail(um_generation *g, int status, const um_err *err, const char *why) {
    um_buf json = {0};
    um_jw w;
    if (g->is_over) return;
    g->is_over = true;
    um_otlp_fail(g->trace, status, err->msg);
    cancel_all(g, why);
    if (g->sse) {
        fail_stream(g, status, err);
    } else if (g->x) {
        um_reply_error(g->x, status, err->param[0] ? err->param : NULL, g->body.error_code, "%s", err->msg);
    } else {
        um_jw_init(&w, &json);
        write_error(g, &w, status, err);
        hand_over(g, status, &json);
    }
}

/* Responds when all choices have finished. Frees a detached generation. */
static void complete(um_generation *g) {
    um_buf json = {0};
    um_jw w;
    g->is_over = true;
    if (g->sse) {
        if (g->writer->end) g->writer->end(g);
        um_sse_done(g->sse);
        return;
    }
    um_jw_init(&w, &json);
    g->writer->whole(g, &w);
    if (g->x) {
        um_reply_json(g->x, 200, &json);
        um_buf_free(&json);
    } else {
        hand_over(g, 200, &json);
    }
}

static void on_deadline(evutil_socket_t fd, short what, void *arg) {
    um_generation *g = arg;
    um_err err = {0};
    (void)fd;
    (void)what;
    um_fail(&err, UM_ECANCELED, "no answer within %g seconds (--request-timeout); the request was aborted",
            (double)g->service->setup.config->request_timeout);
    fail(g, 504, &err, "timeout");
}

/* ---- Streaming --------------------------------------------------------------------------------------------------- */

static void begin_stream(um_generation *g) {
    if (g->has_begun) return;
    g->has_begun = true;
    if (g->x) g->sse = um_sse_new(g->service->base, g->x);
    for (int32_t i = 0; i < g->n_choices && g->writer->begin; i++) g->writer->begin(g, &g->choice[i]);
}

static void on_head_delay(evutil_socket_t fd, short what, void *arg) {
    um_generation *g = arg;
    (void)fd;
    (void)what;
    if (!g->is_over) begin_stream(g);
}

static um_choice *choice_of(const submission *sub, int32_t index) {
    int32_t n = sub->generation->body.generate.n;
    return index >= 0 && index < n ? &sub->generation->choice[sub->prompt * n + index] : NULL;
}

static void stream_text(um_generation *g, um_choice *c, const um_msg_text *m) {
    begin_stream(g);
    um_choice_append(c, m);
    if (g->writer->text) g->writer->text(g, c, m);
}

static void on_text(void *arg, const um_msg_text *m) {
    submission *sub = arg;
    um_choice *c = choice_of(sub, m->index);
    if (c && !c->finished) stream_text(sub->generation, c, m);
}

/* ---- Snapshots --------------------------------------------------------------------------------------------------- */

static int32_t mask_id(um_generation *g) {
    um_model_info info;
    um_model_get_info(g->service->setup.model, &info);
    return info.mask_id;
}

/* Returns whether a snapshot is the first one, or at least `interval` passes after the last one shown. */
static bool is_due(um_choice *c, const um_msg_snapshot *m, int32_t interval) {
    if (m->nfe < c->next_shown) return false;
    c->next_shown = m->nfe + interval;
    return true;
}

static void on_snapshot(void *arg, const um_msg_snapshot *m) {
    submission *sub = arg;
    um_generation *g = sub->generation;
    um_choice *c = choice_of(sub, m->index);
    if (!c || c->finished) return;
    c->nfe = m->nfe;
    if (g->body.return_trajectory) um_trajectory_add(&c->trajectory, m, mask_id(g));
    if (!g->body.stream || g->body.stream_mode == UM_STREAM_BLOCK_APPEND || !g->writer->snapshot) return;
    if (!is_due(c, m, g->body.snapshot_interval)) return;
    begin_stream(g);
    g->writer->snapshot(g, c, m);
}

/* ---- Finished answers -------------------------------------------------------------------------------------------- */

static void *copy(um_arena *a, const void *p, size_t n, size_t size) {
    void *to = um_arena_alloc(a, um_mul(n, size) + 1);
    if (n) memcpy(to, p, n * size);
    return to;
}

static um_str copy_str(um_arena *a, um_str s) { return (um_str){copy(a, s.p, s.n, 1), s.n}; }

/* Copies the message, which is valid during the callback only. */
static void keep_result(um_generation *g, um_choice *c, const um_msg_finish *m) {
    um_arena *a = &g->results;
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

/* Appends the stop string to the text if the request asks for it. */
static void add_stop(um_generation *g, um_choice *c) {
    um_msg_finish *r = &c->result;
    if (!um_body_of(&g->body, (size_t)c->prompt)->include_stop || !r->stop.n) return;
    um_msg_text m = {.rid = r->rid, .index = c->index, .offset = c->n_tokens, .text = r->stop, .nfe = r->nfe};
    m.decode_seconds = r->decode_seconds;
    m.decode_tokens = r->denoise_tokens;
    if (g->has_begun) stream_text(g, c, &m);
    char *all = um_arena_alloc(&g->results, r->text.n + r->stop.n + 1);
    memcpy(all, r->text.p, r->text.n);
    memcpy(all + r->text.n, r->stop.p, r->stop.n);
    r->text = (um_str){all, r->text.n + r->stop.n};
}

static void on_finish(void *arg, const um_msg_finish *m) {
    submission *sub = arg;
    um_generation *g = sub->generation;
    um_choice *c = choice_of(sub, m->index);
    if (!c || c->finished || g->is_over) return;
    keep_result(g, c, m);
    count_finish(g->service, &g->quota, m, sub->is_aborted ? "abort_request" : NULL);
    um_access_record_finish(g->x, m);
    if (g->body.stream) begin_stream(g);
    add_stop(g, c);
    c->finished = true;
    c->finished_at = um_now();
    c->n_tokens = (int32_t)m->n_ids;
    c->nfe = m->nfe;
    if (--sub->n_left == 0) sub->rid = 0;
    um_err err = {0};
    if (g->writer->check && g->writer->check(g, c, &err)) {
        g->body.error_code = "unusable_answer";
        fail(g, 422, &err, "failed");
        return;
    }
    if (g->has_begun && g->writer->finish) g->writer->finish(g, c);
    if (++g->n_finished == g->n_choices) complete(g);
}

static void count_failed(um_generation *g, const submission *sub, const char *why) {
    for (int32_t i = 0; i < g->body.generate.n; i++) {
        um_msg_finish m = aborted_answer(g, sub, i);
        if (!choice_of(sub, i)->finished) count_finish(g->service, &g->quota, &m, why);
    }
}

static void on_fail(void *arg, int status, const um_err *err) {
    submission *sub = arg;
    um_err own = *err;
    um_body_name_constraint(&sub->generation->body, &own);
    count_failed(sub->generation, sub, status < 500 ? "refused" : "failed");
    sub->rid = 0;
    fail(sub->generation, status, &own, "failed");
}

/* ---- Aborts ------------------------------------------------------------------------------------------------------ */

static bool has_id(const um_generation *g, const submission *sub, const char *id) {
    const char *const *rids = g->body.rids;
    return !id || um_streq(g->id, id) || um_streq(g->body.request_id, id) || (rids && um_streq(rids[sub->prompt], id));
}

static size_t abort_generation(um_generation *g, const char *id, const um_key *by) {
    size_t n = 0;
    if (g->is_exempt || !(um_key_is_admin(by) || g->body.key == by->id)) return 0;
    for (size_t i = 0; i < g->body.n_prompts; i++) {
        submission *sub = &g->submission[i];
        if (!sub->rid || sub->is_aborted || !has_id(g, sub, id)) continue;
        sub->is_aborted = true;
        um_worker_pool_abort(g->service->workers, sub->rid);
        n++;
    }
    return n;
}

/* The workers report the aborted answers as finished, with their text so far. */
size_t um_generations_abort(um_service *s, const um_generation *older, const char *id, const um_key *by) {
    size_t n = 0;
    for (um_generation *g = s->generations; g && g != older; g = g->next) n += abort_generation(g, id, by);
    return n;
}

size_t um_generations_count(const um_service *s) {
    size_t n = 0;
    for (const um_generation *g = s->generations; g; g = g->next) n += !g->is_over;
    return n;
}

/* ---- Start ------------------------------------------------------------------------------------------------------- */

static uint32_t events_of(const um_body *b) {
    uint32_t events = UM_EVENT_FINISH;
    if (b->stream && b->stream_mode != UM_STREAM_DENOISE) events |= UM_EVENT_TEXT;
    if (b->stream && b->stream_mode != UM_STREAM_BLOCK_APPEND) events |= UM_EVENT_SNAPSHOT;
    if (b->return_trajectory) events |= UM_EVENT_SNAPSHOT;
    return events;
}

static bool submit(um_generation *g, int32_t i, int *status, um_err *err) {
    static const um_submission_listener listener = {on_text, on_snapshot, on_finish, on_fail};
    um_msg_generate m = um_body_of(&g->body, (size_t)i)->generate;
    m.events = events_of(&g->body);
    m.tenant = g->body.generate.tenant;
    m.ids = g->body.prompt[i].ids;
    m.n_ids = (uint32_t)g->body.prompt[i].n_ids;
    g->submission[i] = (submission){.generation = g, .prompt = i, .n_left = m.n};
    g->submission[i].rid = um_worker_pool_submit(g->service->workers, &m, &listener, &g->submission[i], status, err);
    return g->submission[i].rid != 0;
}

static struct event *timer(um_generation *g, double seconds, event_callback_fn fn) {
    struct event *e = event_new(g->service->base, -1, 0, fn, g);
    struct timeval tv = um_timeval(seconds);
    event_add(e, &tv);
    return e;
}

/* Returns the seconds since the body was complete: request_timeout includes its parsing. */
static double elapsed(const um_generation *g) { return g->body.since > 0 ? um_now() - g->body.since : 0; }

/* Returns false if the generation has failed; a detached one is freed then. */
static bool start(um_generation *g) {
    um_err err = {0};
    int status = 400;
    float seconds = g->service->setup.config->request_timeout;
    if (g->body.stream && g->n_choices > UM_SSE_CHOICES_MAX) {
        um_fail(&err, UM_ERANGE, "a stream has at most %d choices, found %d; set \"stream\" to false",
                UM_SSE_CHOICES_MAX, g->n_choices);
        um_fail_about(&err, UM_ERANGE, "stream");
        fail(g, status, &err, "refused");
        return false;
    }
    um_key *key = um_keys_get(g->service->keys, g->body.key);
    if (um_quota_begin(&g->quota, key, &g->body, g->x, &status, &err)) {
        fail(g, status, &err, "refused");
        return false;
    }
    for (int32_t i = 0; i < (int32_t)g->body.n_prompts; i++) {
        if (submit(g, i, &status, &err)) continue;
        fail(g, status, &err, "refused");
        return false;
    }
    if (g->x && seconds > 0) g->deadline = timer(g, (double)seconds - elapsed(g), on_deadline);
    if (g->x && g->body.stream) g->head_delay = timer(g, HEAD_DELAY_SECONDS, on_head_delay);
    return true;
}

void um_generation_start(um_service *s, um_exchange *x, um_body *b, const um_response_writer *writer) {
    um_generation *g = generation_new(s, x, b, writer);
    um_access_record_set_model(x, um_generation_model(g));
    um_exchange_on_close(x, on_close, g);
    start(g);
}

static um_generation *start_without_exchange(um_service *s, um_body *b, const um_response_writer *writer, bool streams,
                                             um_generation_done_fn done, void *arg) {
    um_generation *g = generation_new(s, NULL, b, writer);
    g->body.stream = streams;
    g->done = done;
    g->arg = arg;
    return start(g) ? g : NULL;
}

um_generation *um_generation_start_detached(um_service *s, um_body *b, const um_response_writer *writer,
                                            um_generation_done_fn done, void *arg) {
    return start_without_exchange(s, b, writer, false, done, arg);
}

um_generation *um_generation_start_background(um_service *s, um_body *b, const um_response_writer *writer,
                                              um_generation_done_fn done, void *arg) {
    return start_without_exchange(s, b, writer, true, done, arg);
}

void um_generation_exempt_from_aborts(um_generation *g) { g->is_exempt = true; }

void um_generation_cancel(um_generation *g) {
    um_otlp_fail(g->trace, 499, "canceled");
    cancel_all(g, "canceled");
    generation_free(g);
}
