/* POST /v1/score: the log-likelihood of given answers behind a prompt. The frontend encodes prompt and answers, and a
 * worker's utility computes the scores. If the client disconnects, they are aborted. */
#include <jansson.h>

#include "engine/options.h"
#include "server/api/common.h"
#include "server/generate/intake.h"
#include "server/generate/quota.h"
#include "server/link/score_json.h"
#include "server/respond/access.h"

#define SECONDS_MAX   1e6 /* of a call without --request-timeout */
#define ABORT_SECONDS 60.0
/* Most tokens of all answers of a request, each with its prompt. A worker keeps 8 bytes for each until the end. */
#define TOKENS_MAX 1000000

/* A request that waits for its scores. */
typedef struct score_call {
    um_service *service;
    um_exchange *x; /* NULL: the client has disconnected */
    um_quota quota;
    int64_t ticket;
    int64_t n_prompt, n_answers; /* tokens */
    char *model;
} score_call;

/* ---- The body ---------------------------------------------------------------------------------------------------- */

static um_status read_model(um_intake *r, um_err *err) {
    const json_t *v = json_object_get(r->root, "model");
    const um_setup *setup = &r->service->setup;
    um_body *b = &r->body;
    const char *name = NULL, *adapter = NULL;
    if (!v || json_is_null(v)) return UM_OK;
    const um_status st = um_json_take_text(v, "\"model\"", &name, err);
    if (st) return um_fail_about(err, st, "model");
    if (!um_setup_has_model(setup, name, &adapter)) {
        b->error_code = "model_not_found";
        um_fail(err, UM_ENOENT, "the model \"%.100s\" does not exist; this is \"%.100s\", see /v1/models", name,
                um_setup_model_name(setup));
        return um_fail_about(err, UM_ENOENT, "model");
    }
    b->model = um_arena_strndup(&b->arena, name, strlen(name));
    if (adapter) b->generate.adapter = um_str_of(um_arena_strndup(&b->arena, adapter, strlen(adapter)));
    return UM_OK;
}

static um_status encode_prompt(const um_intake *r, const um_score_request *s, int32_t **ids, size_t *n, um_err *err) {
    const um_model *m = r->service->setup.model;
    if (s->chat) return um_fail_about(err, um_model_render_chat(m, s->chat, NULL, NULL, ids, n, err), "messages");
    return um_fail_about(err, um_model_encode_prompt(m, s->text, s->text_len, s->special_in_content, true, ids, n, err),
                         "prompt");
}

/* Checks ids that the client has given. */
static um_status check_ids(const um_intake *r, const int32_t *ids, size_t n, um_err *err) {
    um_model_info info;
    um_model_get_info(r->service->setup.model, &info);
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= info.vocab)
            return um_fail(err, UM_ERANGE, "token %zu is %d, outside the vocabulary 0..%d", i, ids[i], info.vocab - 1);
    return UM_OK;
}

/* Writes the ids of the prompt; *n is their number. */
static um_status put_prompt(um_intake *r, const um_score_request *s, um_jw *w, size_t *n, um_err *err) {
    int32_t *ids = NULL;
    um_status st = UM_OK;
    *n = s->n_ids;
    if (s->ids) st = um_fail_about(err, check_ids(r, s->ids, *n, err), "prompt");
    else st = encode_prompt(r, s, &ids, n, err);
    if (!st && *n == 0)
        st = um_fail_param(err, UM_EINVAL, "prompt", "the prompt is empty; a score needs at least one token");
    if (!st) um_jw_put_ints(w, "prompt", s->ids ? s->ids : ids, *n);
    um_free(ids);
    return st;
}

/* Writes the ids of answer i as an element of an array. */
static um_status put_answer(um_intake *r, const um_score_job *job, size_t i, size_t n_prompt, um_jw *w, size_t *n,
                            um_err *err) {
    const um_score_request s = um_score_job_get(job, i);
    int32_t *ids = NULL;
    um_status st = UM_OK;
    *n = s.n_answer_ids;
    if (s.answer_ids) st = check_ids(r, s.answer_ids, *n, err);
    else
        st = um_model_encode_prompt(r->service->setup.model, s.answer, s.answer_len, s.special_in_content, false, &ids,
                                    n, err);
    if (!st && *n == 0) st = um_fail(err, UM_EINVAL, "answer %zu is empty; a score needs at least one token", i);
    if (!st && n_prompt + *n > (size_t)r->capacity.max_len)
        st = um_fail(err, UM_ELIMIT, "prompt %zu + answer %zu tokens, but max_model_len is %d", n_prompt, *n,
                     r->capacity.max_len);
    if (!st) {
        um_jw_begin_array(w);
        for (size_t k = 0; k < *n; k++) um_jw_int(w, (s.answer_ids ? s.answer_ids : ids)[k]);
        um_jw_end_array(w);
    }
    um_free(ids);
    return um_fail_about(err, st, "answer");
}

/* Sets what um_quota_begin reads of a generation. */
static void fill_body(um_intake *r, size_t n_prompt, size_t n_answers) {
    um_body *b = &r->body;
    b->setup = &r->service->setup;
    b->capacity = r->capacity;
    b->generate.n = 1;
    b->checked.sampling.max_tokens = (int32_t)UM_MIN(n_answers, (size_t)INT32_MAX);
    um_body_prompts(b, 1, NULL)->n_ids = n_prompt;
}

/* Writes the arguments for the worker, except ticket and tenant, to r->out: the member `request`. */
static um_status put_request(um_intake *r, um_score_job *job, um_err *err) {
    size_t n_prompt, n, n_answers = 0;
    um_jw w;
    um_jw_init(&w, &r->out);
    um_jw_begin_object(&w);
    um_status st = put_prompt(r, &job->request, &w, &n_prompt, err);
    if (st) return st;
    um_jw_key(&w, "answer");
    um_jw_begin_array(&w);
    for (size_t i = 0; i < job->n_answers && !st; i++, n_answers += n) {
        n = 0;
        st = put_answer(r, job, i, n_prompt, &w, &n, err);
        if (!st && (i + 1) * n_prompt + n_answers + n > TOKENS_MAX)
            st = um_fail_param(err, UM_ELIMIT, "answer",
                               "%zu answers behind a prompt of %zu tokens; a request may have %d tokens, with the "
                               "prompt counted for each answer; send fewer answers at a time",
                               job->n_answers, n_prompt, TOKENS_MAX);
    }
    if (st) return st;
    um_jw_end_array(&w);
    if (job->request.adapter && *job->request.adapter) um_jw_put_cstr(&w, "adapter", job->request.adapter);
    const um_option_set set = um_score_option_set(&job->request);
    um_put_options(&w, &set, 1);
    um_jw_end_object(&w);
    fill_body(r, n_prompt, n_answers);
    return UM_OK;
}

/* Removes the fields that --ignore-unknown-fields lets pass. */
static void drop_unknown(json_t *root) {
    um_score_request s;
    const um_option_set set = um_score_option_set(&s);
    const char *name;
    json_t *v;
    void *next;
    um_str word;
    json_object_foreach_safe(root, next, name, v) {
        const bool known = um_word_index("model|prompt|messages|answer|adapter", '|', name, &word) >= 0;
        if (!known && !um_options_find(set.rows, set.n, name)) json_object_del(root, name);
    }
}

static um_status read_score(um_intake *r, um_err *err) {
    um_score_request defaults;
    um_score_job job = {0};
    um_body *b = &r->body;
    um_score_init_config(r->service->setup.config->engine, &defaults);
    um_status st = read_model(r, err);
    if (r->service->setup.config->ignore_unknown_fields) drop_unknown(r->root);
    if (!st) st = um_score_job_read(&job, r->root, &defaults, false, "model", err);
    if (!st) {
        if (!job.request.adapter && b->generate.adapter.n) job.request.adapter = b->generate.adapter.p;
        else if (job.request.adapter)
            b->generate.adapter =
                um_str_of(um_arena_strndup(&b->arena, job.request.adapter, strlen(job.request.adapter)));
        st = put_request(r, &job, err);
    }
    um_score_job_free(&job);
    return st;
}

/* ---- The response ------------------------------------------------------------------------------------------------ */

static void drop(void *arg, um_status st, const char *value, const um_err *err) {
    (void)arg, (void)st, (void)value, (void)err;
}

static void abort_scores(const score_call *c) {
    char args[48];
    const int n = snprintf(args, sizeof args, "{\"ticket\":%lld}", (long long)c->ticket);
    um_worker_pool_call(c->service->workers, UM_WORKER_ALL, "abort_scores", (um_str){args, (size_t)n}, ABORT_SECONDS,
                        drop, NULL);
}

static void on_close(void *arg, um_exchange *x, bool complete) {
    score_call *c = (score_call *)arg;
    (void)x, (void)complete;
    c->x = NULL;
    abort_scores(c);
}

/* Splices {"scores": [...]} of the worker into the response. */
static void put_response(const score_call *c, const char *value, um_buf *out) {
    um_jw w;
    um_jw_init(&w, out);
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "object", "score");
    um_jw_put_cstr(&w, "model", c->model);
    um_jw_key(&w, "usage");
    um_jw_begin_object(&w);
    um_jw_put_int(&w, "prompt_tokens", c->n_prompt);
    um_jw_put_int(&w, "completion_tokens", c->n_answers);
    um_jw_put_int(&w, "total_tokens", c->n_prompt + c->n_answers);
    um_jw_end_object(&w);
    um_buf_putc(out, ',');
    um_buf_puts(out, value + 1);
}

static void respond(score_call *c, um_status st, const char *value, const um_err *err) {
    um_buf body = {0};
    const bool is_late = st == UM_ECANCELED && !c->service->stopping;
    const int status = is_late ? 504 : st == UM_EIO ? 503 : um_http_status_of(st);
    um_exchange_on_close(c->x, NULL, NULL);
    if (st) um_reply_error(c->x, status, *err->param ? err->param : NULL, NULL, "%s", err->msg);
    else {
        put_response(c, value, &body);
        um_reply_json(c->x, 200, &body);
    }
    um_buf_free(&body);
}

static void on_done(void *arg, um_status st, const char *value, const um_err *err) {
    score_call *c = (score_call *)arg;
    if (st == UM_ECANCELED && c->x) abort_scores(c); /* the time is up */
    if (!st) um_quota_spend(&c->quota, c->n_prompt, c->n_answers);
    um_quota_end(&c->quota);
    c->service->n_scores--;
    if (c->x) respond(c, st, value, err);
    um_free(c->model);
    um_free(c);
}

/* Checks the limits of the server and of the key. Responds with an error. */
static bool begin(um_intake *r, um_quota *quota) {
    um_service *s = r->service;
    um_err err = {0};
    int status = 429;
    const int32_t most = s->setup.config->max_queue;
    if (most && um_worker_pool_outstanding(s->workers) + s->n_scores >= most) {
        um_reply_error(r->x, 429, NULL, NULL, "%d requests wait or run already (--max-queue); retry later", most);
        return false;
    }
    if (um_quota_begin(quota, r->key, &r->body, r->x, &status, &err) == UM_OK) return true;
    um_reply_error(r->x, status, *err.param ? err.param : NULL, r->body.error_code, "%s", err.msg);
    return false;
}

static void respond_later(um_intake *r) {
    um_service *s = r->service;
    um_quota quota;
    um_buf args = {0};
    const double limit = (double)s->setup.config->request_timeout;
    if (!begin(r, &quota)) return;
    score_call *c = UM_NEW(score_call);
    *c = (score_call){.service = s,
                      .x = r->x,
                      .quota = quota,
                      .ticket = ++s->last_score,
                      .n_prompt = (int64_t)r->body.prompt[0].n_ids,
                      .n_answers = r->body.checked.sampling.max_tokens,
                      .model = um_strdup(r->body.model ? r->body.model : um_setup_model_name(&s->setup))};
    s->n_scores++;
    um_access_record_set_model(r->x, c->model);
    um_exchange_on_close(r->x, on_close, c);
    um_buf_printf(&args, "{\"ticket\":%lld,\"tenant\":%lld,\"request\":", (long long)c->ticket, (long long)r->tenant);
    um_buf_append(&args, r->out.data, r->out.len);
    um_buf_putc(&args, '}');
    um_worker_pool_call(s->workers, UM_WORKER_ANY, "score", (um_str){args.data, args.len},
                        limit > 0 ? limit : SECONDS_MAX, on_done, c);
    um_buf_free(&args);
}

static void post_score(um_service *s, um_exchange *x, const char *id) {
    static const um_intake_handler handler = {.read = read_score, .respond = respond_later};
    (void)id;
    um_intake_start(s, x, &handler, NULL);
}

static const um_endpoint rows[] = {
    {"POST", "/v1/score", post_score, UM_ENDPOINT_WAITS, "unmask", "log-likelihoods of given answers behind a prompt"},
};
const um_endpoint_set um_score_endpoints = {rows, UM_LEN(rows)};
