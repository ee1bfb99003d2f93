/* The utilities score and abort_scores: score submits all answers behind a prompt at once, and returns their scores
 * when the last one has ended. */
#include <jansson.h>

#include "server/link/score_json.h"
#include "server/worker/internal.h"

typedef struct part {
    struct um_score_call *call;
    int64_t id;    /* request number of the router; 0: ended or never submitted */
    um_buf result; /* JSON */
} part;

/* A call that has not returned. */
typedef struct um_score_call {
    um_worker *worker;
    struct um_score_call *next; /* in the worker's list */
    uint64_t call_id;
    int64_t ticket;     /* the caller's number for abort_scores; 0: none */
    size_t n, left;     /* parts, and those that have not ended */
    bool is_refused;    /* an answer was refused, and `run` returns the error */
    bool is_aborted;    /* the call returns UM_ECANCELED */
    bool device_failed; /* nothing is returned: the frontend fails the call when the worker ends */
    part part[];
} um_score_call;

/* ---- Results ----------------------------------------------------------------------------------------------------- */

static void free_call(um_score_call *c) {
    for (size_t i = 0; i < c->n; i++) um_buf_free(&c->part[i].result);
    um_free(c);
}

static void unlink_call(um_score_call *c) {
    um_score_call **at = &c->worker->scores;
    while (*at != c) at = &(*at)->next;
    *at = c->next;
}

static void return_scores(const um_score_call *c) {
    um_buf json = {0};
    um_jw j;
    um_jw_init(&j, &json);
    um_jw_begin_object(&j);
    um_jw_key(&j, "scores");
    um_jw_begin_array(&j);
    for (size_t i = 0; i < c->n; i++) um_jw_raw(&j, c->part[i].result.data, c->part[i].result.len);
    um_jw_end_array(&j);
    um_jw_end_object(&j);
    um_worker_return(c->worker, c->call_id, (um_str){json.data, json.len}, NULL);
    um_buf_free(&json);
}

static void end_call(um_score_call *c) {
    um_err err = {0};
    unlink_call(c);
    if (c->is_aborted) {
        um_fail(&err, UM_ECANCELED, "the scores were aborted");
        um_worker_return(c->worker, c->call_id, (um_str){0}, &err);
    } else if (!c->device_failed) return_scores(c);
    free_call(c);
}

static void on_score(void *arg, const um_score_result *r) {
    part *p = (part *)arg;
    um_score_call *c = p->call;
    um_jw j;
    p->id = 0;
    um_jw_init(&j, &p->result);
    um_score_put(&j, r);
    if (r->finish == UM_FINISH_ABORTED) {
        c->device_failed |= c->worker->is_stepping && !c->is_aborted;
        c->is_aborted |= !c->worker->is_stepping;
    }
    if (--c->left == 0 && !c->is_refused) end_call(c);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

/* Aborts the parts that wait or run. The last one ends the call, unless its answers were refused. */
static void abort_parts(um_score_call *c) {
    const size_t n = c->n;
    um_router *router = c->worker->router;
    int64_t *id = UM_NEW_ARRAY(int64_t, n); /* the call is freed with its last part */
    for (size_t i = 0; i < n; i++) id[i] = c->part[i].id;
    for (size_t i = 0; i < n; i++)
        if (id[i]) (void)um_router_abort(router, id[i], NULL);
    um_free(id);
}

/* Submits all answers, or none if one of them is refused. */
static um_status submit(um_worker *w, uint64_t call_id, int64_t ticket, const um_score_job *job, um_err *err) {
    const size_t n = job->n_answers;
    um_score_call *c = (um_score_call *)um_zalloc(sizeof *c + um_mul(n, sizeof(part)));
    um_status st = UM_OK;
    *c = (um_score_call){.worker = w, .call_id = call_id, .ticket = ticket, .n = n, .left = n};
    for (size_t i = 0; i < n && !st; i++) {
        um_score_request s = um_score_job_get(job, i);
        c->part[i].call = c;
        s.on_score = on_score;
        s.arg = &c->part[i];
        st = um_router_score(w->router, &s, &c->part[i].id, err);
        if (st && !job->one_answer) (void)um_fail_in(err, "answer %zu", i);
    }
    if (!st) {
        c->next = w->scores;
        w->scores = c;
        return UM_OK;
    }
    c->is_refused = true;
    abort_parts(c);
    free_call(c);
    return st;
}

static um_status run_score(um_worker *w, uint64_t call_id, const json_t *args, um_buf *result, bool *later,
                           um_err *err) {
    (void)result;
    um_score_request defaults;
    um_score_job job = {0};
    const json_t *request = json_object_get(args, "request");
    if (!json_is_object(request)) return um_fail_param(err, UM_EINVAL, "request", "expected an object");
    um_score_init(um_router_engine(w->router, 0), &defaults);
    defaults.tenant = (uint64_t)json_integer_value(json_object_get(args, "tenant"));
    um_status st = um_score_job_read(&job, request, &defaults, false, NULL, err);
    if (!st) st = submit(w, call_id, json_integer_value(json_object_get(args, "ticket")), &job, err);
    um_score_job_free(&job);
    *later = !st;
    return st;
}

static um_score_call *find_call(const um_worker *w, int64_t ticket) {
    um_score_call *c = w->scores;
    while (c && (c->ticket != ticket || c->is_aborted)) c = c->next;
    return c;
}

/* A ticket that is unknown, or whose call has returned, is no error. */
static um_status run_abort(um_worker *w, uint64_t call_id, const json_t *args, um_buf *result, bool *later,
                           um_err *err) {
    (void)call_id, (void)later;
    const json_t *ticket = json_object_get(args, "ticket");
    if (!json_is_integer(ticket) || json_integer_value(ticket) < 1)
        return um_fail_param(err, UM_EINVAL, "ticket", "expected the number of a call, 1 or more");
    um_score_call *c = find_call(w, json_integer_value(ticket));
    if (c) {
        c->is_aborted = true;
        abort_parts(c);
    }
    um_buf_printf(result, "{\"aborted\":%d}", c != NULL);
    return UM_OK;
}

const um_utility um_utility_score = {
    "score",
    "{request: {prompt: text or ids | messages, answer: text or ids or a list of these, adapter, method, samples, "
    "...}, ticket: number for abort_scores, tenant: number}",
    "computes the log-likelihood of each answer: {scores: [{logprob, standard_error, tokens, is_greedy, ...}, ...]}",
    "request|ticket|tenant", run_score};
const um_utility um_utility_abort_scores = {"abort_scores", "{ticket: number}",
                                            "aborts the call of score with this ticket, if it has not returned",
                                            "ticket", run_abort};
