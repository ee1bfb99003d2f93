/* Endpoints for operators: health, version, profiles, and calls of worker utilities by name. */
#include <event2/event.h>
#include <jansson.h>

#include "server/api/apis.h"
#include "server/generate/intake.h"
#include "server/respond/reply.h"

/* ---- Health ------------------------------------------------------------------------------------------------------ */

static void put_worker(const um_worker_status *v, int32_t i, um_jw *w) {
    um_jw_begin_object(w);
    um_jw_put_int(w, "worker", i);
    um_jw_put_cstr(w, "state", v->state_name);
    if (v->loaded >= 0) um_jw_put_double(w, "fraction", v->loaded);
    um_jw_put_int(w, "restarts", v->restarts);
    um_jw_put_int(w, "requests", v->n_requests);
    if (*v->error) um_jw_put_cstr(w, "error", v->error);
    um_jw_end_object(w);
}

/* Returns the reason why the server takes no requests, or NULL if it takes requests. */
static const char *down_reason(um_service *s) {
    if (s->stopping) return "the server is shutting down";
    um_worker_pool *b = s->workers;
    return um_worker_pool_is_up(b) ? NULL : um_worker_pool_down_reason(b);
}

/* Writes the status and, while no worker takes requests and some are loading, how far the first of them is. */
static void put_status(um_service *s, const char *reason, um_jw *w) {
    um_worker_pool *b = s->workers;
    double most = -1;
    for (int32_t i = 0; i < um_worker_pool_size(b) && reason && !s->stopping; i++)
        most = UM_MAX(most, um_worker_pool_get_status(b, i).loaded);
    bool sleeps = um_worker_pool_get_rest(b) != UM_POOL_AWAKE;
    um_jw_put_cstr(w, "status", !reason ? "ok" : sleeps ? "sleeping" : most >= 0 ? "loading" : "unavailable");
    if (most >= 0) um_jw_put_double(w, "fraction", most);
}

/* Health probes read the status code; the body is for people. */
static void get_health(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    const char *reason = down_reason(s);
    um_worker_pool *b = s->workers;
    um_buf body = {0};
    um_jw w;
    um_jw_init(&w, &body);
    um_jw_begin_object(&w);
    put_status(s, reason, &w);
    um_jw_key(&w, "workers");
    um_jw_begin_array(&w);
    for (int32_t i = 0; i < um_worker_pool_size(b); i++) {
        um_worker_status v = um_worker_pool_get_status(b, i);
        put_worker(&v, i, &w);
    }
    um_jw_end_array(&w);
    if (reason) {
        um_jw_key(&w, "error");
        um_put_error(&w, 503, NULL, "unavailable", reason);
        um_exchange_add_header(x, "Retry-After", "5");
    }
    um_jw_end_object(&w);
    um_exchange_add_header(x, "Cache-Control", "no-store");
    um_reply_json(x, reason ? 503 : 200, &body);
    um_buf_free(&body);
}

static void get_ping(um_service *s, um_exchange *x, const char *id) {
    (void)s, (void)id;
    um_exchange_send(x, 200, "text/plain; charset=utf-8", "pong\n", 5);
}

static void get_version(um_service *s, um_exchange *x, const char *id) {
    (void)s, (void)id;
    um_buf body = {0};
    um_buf_printf(&body, "{\"version\":\"%s\"}", um_version());
    um_reply_json(x, 200, &body);
    um_buf_free(&body);
}

/* ---- Health of the engine: generating one token ------------------------------------------------------------------ */

#define PROBE_SECONDS 20

typedef struct probe {
    um_service *service;
    um_exchange *x;
    uint64_t rid;
    struct event *timer;
} probe;

/* Called when the response is complete or the client has disconnected. */
static void probe_closed(void *arg, um_exchange *x, bool complete) {
    probe *p = arg;
    (void)x, (void)complete;
    um_worker_pool_cancel(p->service->workers, p->rid);
    event_free(p->timer);
    um_free(p);
}

static void probe_finished(void *arg, const um_msg_finish *m) {
    probe *p = arg;
    evtimer_del(p->timer);
    um_buf body = {0};
    um_buf_printf(&body, "{\"status\":\"ok\",\"tokens\":%u,\"seconds\":%.6f}", m->n_ids, m->total_seconds);
    um_reply_json(p->x, 200, &body);
    um_buf_free(&body);
}

static void probe_failed(void *arg, int status, const um_err *err) {
    probe *p = arg;
    evtimer_del(p->timer);
    um_reply_error(p->x, status, NULL, NULL, "%s", err->msg);
}

static void probe_timeout(evutil_socket_t fd, short what, void *arg) {
    probe *p = arg;
    (void)fd, (void)what;
    um_worker_pool_cancel(p->service->workers, p->rid); /* a later token must not cause a second response */
    um_reply_error(p->x, 503, NULL, "unavailable", "no token within %d s", PROBE_SECONDS);
}

static um_status probe_submit(probe *p, int *status, um_err *err) {
    static const um_submission_listener listener = {.finish = probe_finished, .fail = probe_failed};
    /* With ignore_eos the answer has a token, even if the model would end it at once. */
    static const um_pair set[] = {{{"max_tokens", 10}, {"1", 1}}, {{"ignore_eos", 10}, {"true", 4}}};
    int32_t *ids = NULL;
    size_t n = 0;
    *status = 500;
    um_status st = um_model_encode(p->service->setup.model, "Hello", 5, false, &ids, &n, err);
    if (st) return st;
    um_msg_generate g = {.n = 1, .ids = ids, .n_ids = (uint32_t)n, .set = set, .n_set = UM_LEN(set)};
    p->rid = um_worker_pool_submit(p->service->workers, &g, &listener, p, status, err);
    um_free(ids);
    return p->rid ? UM_OK : err->code;
}

static void get_health_generate(um_service *s, um_exchange *x, const char *id) {
    static const struct timeval limit = {.tv_sec = PROBE_SECONDS};
    (void)id;
    um_err err = {0};
    int status;
    probe *p = UM_NEW(probe);
    *p = (probe){.service = s, .x = x};
    if (probe_submit(p, &status, &err)) {
        um_reply_error(x, status, NULL, NULL, "%s", err.msg);
        um_free(p);
        return;
    }
    p->timer = evtimer_new(s->base, probe_timeout, p);
    evtimer_add(p->timer, &limit);
    um_exchange_on_close(x, probe_closed, p);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

#define CALL_SECONDS     60.0
#define CALL_SECONDS_MAX 86400.0

/* A call of a utility. Workers can't cancel it, so it runs to its end even if the client disconnects. */
typedef struct call {
    um_exchange *x; /* NULL: the client has disconnected */
} call;

static void call_closed(void *arg, um_exchange *x, bool complete) {
    call *c = arg;
    (void)x, (void)complete;
    c->x = NULL;
}

/* Returns the HTTP status of a failed call. An unknown utility is 404: its name is part of the path. */
static int call_status(um_status s) {
    switch (s) {
    case UM_ENOENT: return 404;
    case UM_ECANCELED: return 504;
    case UM_EUNSUPPORTED:
    case UM_EIO: return 503;
    default: return um_http_status_of(s);
    }
}

static void call_done(void *arg, um_status st, const char *value, const um_err *err) {
    call *c = arg;
    um_exchange *x = c->x;
    um_buf body = {0};
    if (x) {
        um_exchange_on_close(x, NULL, NULL);
        if (st) um_reply_error(x, call_status(st), *err->param ? err->param : NULL, NULL, "%s", err->msg);
        else um_buf_printf(&body, "{\"status\":\"ok\",\"result\":%s}", value);
        if (!st) um_reply_json(x, 200, &body);
    }
    um_buf_free(&body);
    um_free(c);
}

static void begin_call(um_service *s, um_exchange *x, int32_t worker, const char *name, um_str args, double timeout) {
    call *c = UM_NEW(call);
    c->x = x;
    um_exchange_on_close(x, call_closed, c);
    um_worker_pool_call(s->workers, worker, name, args, timeout, call_done, c);
}

/* Parses ?worker=i; -1 if it is missing. Responds with 400 if it is invalid. */
static bool read_worker(um_service *s, um_exchange *x, int32_t *worker) {
    const char *text = um_exchange_query(x, "worker");
    int32_t n = um_worker_pool_size(s->workers);
    int64_t v = -1;
    if (text && !(um_parse_int(text, &v) && v >= 0 && v < n)) {
        um_reply_error(x, 400, "worker", NULL, "worker: expected 0..%d, found \"%.40s\"", n - 1, text);
        return false;
    }
    *worker = (int32_t)v;
    return true;
}

/* Parses ?timeout=seconds. Responds with 400 if it is invalid. */
static bool read_timeout(um_exchange *x, double *timeout) {
    const char *text = um_exchange_query(x, "timeout");
    *timeout = CALL_SECONDS;
    if (!text || (um_parse_double(text, timeout) && *timeout > 0 && *timeout <= CALL_SECONDS_MAX)) return true;
    um_reply_error(x, 400, "timeout", NULL, "timeout: expected seconds, above 0 and at most %g, found \"%.40s\"",
                   CALL_SECONDS_MAX, text);
    return false;
}

/* The arguments need no parsing: the intake has checked that they are an object, and the worker gets their bytes. */
static um_status read_args(um_intake *r, um_err *err) { return (void)r, (void)err, UM_OK; }

/* post_call has checked the query; it is parsed again here. */
static void call_with_args(um_intake *r) {
    int32_t worker;
    double timeout;
    if (!read_worker(r->service, r->x, &worker) || !read_timeout(r->x, &timeout)) return;
    const char *name = strrchr(um_exchange_path(r->x), '/') + 1;
    begin_call(r->service, r->x, worker, name, (um_str){r->bytes.data, r->bytes.len}, timeout);
}

/* The body has the arguments of the call. Without a body they are {}. */
static void post_call(um_service *s, um_exchange *x, const char *name) {
    static const um_intake_handler handler = {.read = read_args, .respond = call_with_args};
    int32_t worker;
    double timeout;
    if (um_streq(name, "start_profile")) /* its `path` could overwrite any file of the server */
        um_reply_error(x, 404, NULL, NULL, "use POST /start_profile, which chooses the file names itself");
    else if (um_streq(name, "sleep") || um_streq(name, "wake_up")) /* the pool must know of it */
        um_reply_error(x, 404, NULL, NULL, "use POST /%s", name);
    else if (strstr(name, "load_lora_adapter")) /* its `path` could lie outside of --lora-dir */
        um_reply_error(x, 404, NULL, NULL, "use POST /v1/%.40s, which checks the folder", name);
    else if (!read_worker(s, x, &worker) || !read_timeout(x, &timeout)) return;
    else if (um_exchange_body(x).n == 0) begin_call(s, x, worker, name, UM_STR("{}"), timeout);
    else um_intake_start(s, x, &handler, NULL);
}

/* ---- Profiles ---------------------------------------------------------------------------------------------------- */

static void put_prefix(um_buf *out, const char *prefix) {
    um_jw w;
    um_jw_init(&w, out);
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "prefix", prefix);
    um_jw_end_object(&w);
}

static um_status take_prefix(const json_t *body, const char **prefix, um_err *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)body, key, value) {
        if (!um_streq(key, "profile_prefix"))
            return um_fail_about(err, um_fail(err, UM_EINVAL, "unknown field \"%.80s\"", key), key);
        um_status st = json_is_null(value) ? UM_OK : um_json_take_text(value, "\"profile_prefix\"", prefix, err);
        if (st) return um_fail_about(err, st, key);
    }
    if (strchr(*prefix, '/'))
        return um_fail_param(err, UM_EINVAL, "profile_prefix",
                             "expected a prefix of a file name without a slash, found \"%.80s\"", *prefix);
    return UM_OK;
}

/* Parses {"profile_prefix": "name"}; the name may be null or missing, the body empty. Responds with errors itself. */
static bool read_prefix(um_exchange *x, um_buf *args) {
    const char *prefix = "";
    um_err err = {0};
    json_t *body = um_exchange_body(x).n ? um_read_object(x) : json_object();
    if (!body) return false;
    um_status st = take_prefix(body, &prefix, &err);
    if (st) um_reply_err(x, &err);
    else put_prefix(args, prefix);
    json_decref(body);
    return !st;
}

static void post_start_profile(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    um_buf args = {0};
    if (read_prefix(x, &args)) begin_call(s, x, -1, "start_profile", (um_str){args.data, args.len}, CALL_SECONDS);
    um_buf_free(&args);
}

static void post_stop_profile(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    if (um_read_empty(x)) begin_call(s, x, -1, "stop_profile", UM_STR("{}"), CALL_SECONDS);
}

static const um_endpoint rows[] = {
    {"GET", "/health", get_health, UM_ENDPOINT_OPEN, "vLLM, SGLang, llama.cpp",
     "200 while a worker takes requests, else 503 with the reason"},
    {"GET", "/v1/health", get_health, UM_ENDPOINT_OPEN, "dLLM-Serve", "the same"},
    {"GET", "/health_generate", get_health_generate, UM_ENDPOINT_WAITS, "SGLang",
     "generate one token: 200, or 503 after 20 s"},
    {"GET", "/ping", get_ping, UM_ENDPOINT_OPEN, "SageMaker", "200 while the server runs"},
    {"GET", "/version", get_version, UM_ENDPOINT_OPEN, "vLLM", "version of the program"},
    {"POST", "/start_profile", post_start_profile, UM_ENDPOINT_ADMIN, "Diffulex, vLLM",
     "start a trace of the steps of every worker"},
    {"POST", "/stop_profile", post_stop_profile, UM_ENDPOINT_ADMIN, "Diffulex, vLLM", "end the traces"},
    {"POST", "/call/{id}", post_call, UM_ENDPOINT_ADMIN, "unmask",
     "call a worker function with the arguments in the body; ?worker=i calls one worker only, ?timeout=seconds"},
};
const um_endpoint_set um_ops_endpoints = {rows, UM_LEN(rows)};
