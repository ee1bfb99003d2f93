/* Requests of the frontend: converts commands to engine requests, and engine events to messages. */
#include <math.h>

#include "server/worker/internal.h"

/* ---- The table of tasks ------------------------------------------------------------------------------------------ */

static um_task **place_of(um_worker *w, uint64_t rid) {
    um_task **p = &w->task[rid % UM_TASK_CHAINS];
    while (*p && (*p)->rid != rid) p = &(*p)->next;
    return p;
}

uint64_t um_worker_rid(const um_worker *w, int64_t id) {
    for (size_t i = 0; i < UM_TASK_CHAINS; i++)
        for (const um_task *t = w->task[i]; t; t = t->next)
            if (t->id == id) return t->rid;
    return 0;
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

/* Copies n candidates into two arrays; returns their length. */
static uint32_t put_likeliest(um_arena *arena, const um_logprob *of, size_t n, const int32_t **ids,
                              const float **logprobs) {
    if (!of) return 0;
    int32_t *id = (int32_t *)um_arena_alloc(arena, um_mul(n, sizeof *id));
    float *logprob = (float *)um_arena_alloc(arena, um_mul(n, sizeof *logprob));
    for (size_t i = 0; i < n; i++) {
        id[i] = of[i].id;
        logprob[i] = of[i].logprob;
    }
    *ids = id;
    *logprobs = logprob;
    return (uint32_t)n;
}

static void send_text(const um_task *t, const um_event *ev) {
    um_arena *arena = &t->worker->event;
    um_msg m = {.type = UM_MSG_TEXT,
                .text = {.rid = t->rid,
                         .index = ev->index,
                         .offset = ev->offset,
                         .ids = ev->ids,
                         .text_end = ev->text_end,
                         .n_ids = (uint32_t)ev->n_ids,
                         .logprob = ev->logprob,
                         .n_logprob = ev->logprob ? (uint32_t)ev->n_ids : 0,
                         .n_likeliest = ev->n_likeliest,
                         .text = {ev->text, ev->text_len},
                         .nfe = ev->nfe,
                         .decode_seconds = ev->decode_seconds,
                         .decode_tokens = ev->decode_tokens}};
    um_msg_text *x = &m.text;
    x->n_likeliest_all = put_likeliest(arena, ev->likeliest, um_mul(ev->n_ids, (size_t)ev->n_likeliest),
                                       &x->likeliest_id, &x->likeliest);
    um_worker_send(t->worker, &m);
    um_arena_reset(arena);
}

/* Copies the ids of a snapshot, with -1 for masks: mask ids never leave the engine. */
static const int32_t *visible_ids(um_arena *arena, const um_snapshot *s) {
    int32_t *id = (int32_t *)um_arena_alloc(arena, um_mul(s->n, sizeof *id));
    for (size_t i = 0; i < s->n; i++) id[i] = s->state[i] == UM_TOKEN_MASK ? -1 : s->id[i];
    return id;
}

static void put_blocks(um_arena *arena, const um_snapshot *s, um_msg_snapshot *m) {
    size_t n = (size_t)s->n_blocks;
    int32_t *column = (int32_t *)um_arena_alloc(arena, um_mul(3 * n, sizeof *column));
    for (size_t i = 0; i < n; i++) {
        column[i] = s->block[i].start;
        column[n + i] = s->block[i].length;
        column[2 * n + i] = um_block_number(s->block[i].status);
    }
    m->n_blocks = (uint32_t)n;
    m->block_start = column;
    m->block_length = column + n;
    m->block_status = column + 2 * n;
}

static void send_snapshot(const um_task *t, const um_event *ev) {
    const um_snapshot *s = ev->snapshot;
    um_arena *arena = &t->worker->event;
    um_msg m = {.type = UM_MSG_SNAPSHOT,
                .snapshot = {.rid = t->rid,
                             .index = ev->index,
                             .nfe = s->nfe,
                             .decode_seconds = ev->decode_seconds,
                             .decode_tokens = ev->decode_tokens,
                             .ids = visible_ids(arena, s),
                             .state = s->state,
                             .pass = s->pass,
                             .confidence = s->confidence,
                             .n = (uint32_t)s->n}};
    put_blocks(arena, s, &m.snapshot);
    um_worker_send(t->worker, &m);
    um_arena_reset(arena);
}

static void send_finish(const um_task *t, const um_result *r) {
    um_arena *arena = &t->worker->event;
    um_msg m = {.type = UM_MSG_FINISH,
                .finish = {.rid = t->rid,
                           .index = r->index,
                           .ids = r->token_ids,
                           .pass = r->pass,
                           .text_end = r->text_end,
                           .n_ids = (uint32_t)r->n_tokens,
                           .logprob = r->logprob,
                           .n_logprob = r->logprob ? (uint32_t)r->n_tokens : 0,
                           .n_likeliest = r->n_likeliest,
                           .text = {r->text, r->text_len},
                           .finish = (int32_t)r->finish,
                           .stop = um_str_of(r->stop),
                           .stop_id = r->stop_id,
                           .cached_tokens = r->cached_tokens,
                           .preemptions = r->preemptions,
                           .nfe = r->nfe,
                           .prompt_tokens = r->prompt_tokens,
                           .denoise_tokens = r->denoise_tokens,
                           .denoise_passes = r->denoise_passes,
                           .seed = r->seed,
                           .queue_seconds = r->queue_seconds,
                           .first_token_seconds = r->first_token_seconds,
                           .total_seconds = r->total_seconds,
                           .decode_seconds = r->decode_seconds}};
    um_msg_finish *f = &m.finish;
    f->n_likeliest_all = put_likeliest(arena, r->likeliest, um_mul(r->n_tokens, (size_t)r->n_likeliest),
                                       &f->likeliest_id, &f->likeliest);
    um_worker_send(t->worker, &m);
    um_arena_reset(arena);
}

static void end_answer(um_task *t) {
    if (--t->left > 0) return;
    *place_of(t->worker, t->rid) = t->next;
    um_free(t);
}

static void on_event(void *arg, const um_event *ev) {
    um_task *t = (um_task *)arg;
    switch (ev->type) {
    case UM_EVENT_TEXT: send_text(t, ev); break;
    case UM_EVENT_SNAPSHOT: send_snapshot(t, ev); break;
    case UM_EVENT_FINISH:
        if (!um_worker_is_device_failure(t->worker, ev->result)) send_finish(t, ev->result);
        end_answer(t);
        break;
    default: break;
    }
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

/* Copies a text and adds the NUL that the engine's texts end with. A text with U+0000 is an error. */
static um_status copy_text(um_arena *arena, um_str s, const char *param, const char **out, um_err *err) {
    *out = um_arena_strndup(arena, s.p, s.n);
    if (!s.n || !memchr(s.p, '\0', s.n)) return UM_OK;
    return um_fail_param(err, UM_EINVAL, param, "the text contains U+0000");
}

static um_status set_parameters(um_worker *w, const um_msg_generate *g, um_request *r, um_err *err) {
    um_status st = UM_OK;
    for (uint32_t i = 0; i < g->n_set && !st; i++) {
        const char *name, *value;
        st = copy_text(&w->command, g->set[i].name, "name of a parameter", &name, err);
        if (!st) st = copy_text(&w->command, g->set[i].value, name, &value, err);
        if (!st) st = um_fail_about(err, um_request_set(r, name, value, err), name);
    }
    return st;
}

static um_status copy_texts(um_worker *w, const um_str *from, uint32_t n, const char *what, const char *const **to,
                            size_t *n_to, um_err *err) {
    const char **text = (const char **)um_arena_alloc(&w->command, um_mul(n, sizeof *text));
    um_status st = UM_OK;
    for (uint32_t i = 0; i < n && !st; i++) st = copy_text(&w->command, from[i], what, &text[i], err);
    *to = text;
    *n_to = n;
    return st;
}

static um_status set_stops(um_worker *w, const um_msg_generate *g, um_request *r, um_err *err) {
    um_status st = copy_texts(w, g->stop, g->n_stop, "stop", &r->stop, &r->n_stop, err);
    if (!st) st = copy_texts(w, g->bad_words, g->n_bad_words, "bad_words", &r->bad_words, &r->n_bad_words, err);
    r->allowed_ids = g->allowed_ids;
    r->n_allowed_ids = g->n_allowed_ids;
    r->stop_ids = g->stop_ids;
    r->n_stop_ids = g->n_stop_ids;
    return st;
}

/* Sets *out to NULL for a text of no bytes. */
static um_status copy_optional(um_worker *w, um_str s, const char *param, const char **out, um_err *err) {
    *out = NULL;
    return s.n ? copy_text(&w->command, s, param, out, err) : UM_OK;
}

/* A constraint that needs a text may have an empty one: a regular expression. */
static um_status set_constraint(um_worker *w, const um_msg_generate *g, um_request *r, um_err *err) {
    um_status st = UM_OK;
    r->constraint = g->constraint;
    if (g->constraint > UM_CONSTRAINT_JSON)
        st = copy_text(&w->command, g->constraint_text, "constraint", &r->constraint_text, err);
    if (!st) st = copy_optional(w, g->reasoning_begin, "reasoning_begin", &r->reasoning_begin, err);
    return st ? st : copy_optional(w, g->reasoning_end, "reasoning_end", &r->reasoning_end, err);
}

static void set_bias(um_worker *w, const um_msg_generate *g, um_request *r) {
    um_bias *bias = (um_bias *)um_arena_alloc(&w->command, um_mul(g->n_bias, sizeof *bias));
    for (uint32_t i = 0; i < g->n_bias; i++) bias[i] = (um_bias){g->bias_id[i], g->bias[i]};
    r->bias = bias;
    r->n_bias = g->n_bias;
}

static um_status make_request(um_worker *w, const um_msg_generate *g, um_request *r, um_err *err) {
    um_request_init(um_router_engine(w->router, 0), r);
    r->ids = g->ids;
    r->n_ids = g->n_ids;
    r->suffix = g->n_suffix ? g->suffix : NULL;
    r->n_suffix = g->n_suffix;
    r->n = g->n;
    r->priority = g->priority;
    r->tenant = g->tenant;
    r->cache_salt = g->cache_salt;
    r->keep_special = g->keep_special;
    r->events = (g->events & (UM_EVENT_TEXT | UM_EVENT_SNAPSHOT)) | UM_EVENT_FINISH;
    um_status st = set_parameters(w, g, r, err);
    if (!st) st = set_stops(w, g, r, err);
    if (!st) st = set_constraint(w, g, r, err);
    if (!st && g->adapter.n) st = copy_text(&w->command, g->adapter, "adapter", &r->adapter, err);
    set_bias(w, g, r);
    return st;
}

static um_status add(um_worker *w, const um_msg_generate *g, um_err *err) {
    um_request r;
    um_task **place = place_of(w, g->rid), *t;
    if (*place) return um_fail(err, UM_EINVAL, "duplicate request %llu", (unsigned long long)g->rid);
    um_status st = make_request(w, g, &r, err);
    if (st) return st;
    t = UM_NEW(um_task);
    *t = (um_task){.worker = w, .rid = g->rid, .left = r.n, .next = *place};
    r.on_event = on_event;
    r.arg = t;
    st = um_router_add(w->router, &r, &t->id, err);
    if (st) um_free(t);
    else *place = t;
    return st;
}

void um_worker_generate(um_worker *w, const um_msg_generate *g) {
    um_err err = {0};
    if (!w->router) um_fail(&err, UM_ECANCELED, "the worker sleeps");
    if (err.code || add(w, g, &err)) um_worker_fail_request(w, g->rid, &err);
}

void um_worker_abort(um_worker *w, uint64_t rid) {
    const um_task *t = *place_of(w, rid);
    if (t) (void)um_router_abort(w->router, t->id, NULL);
}
