/* For operators: is it well, which version, what does it count, profiles, and calls of worker functions by name. */
#include <event2/event.h>
#include <jansson.h>

#include "server/reading.h"

/* ---- Health ------------------------------------------------------------------------------------------------------ */

static void put_worker(const um_worker_view *v, int32_t i, um_jw *w) {
    um_jw_begin_object(w);
    um_jw_put_int(w, "worker", i);
    um_jw_put_cstr(w, "state", v->state_name);
    um_jw_put_int(w, "restarts", v->restarts);
    um_jw_put_int(w, "requests", v->n_requests);
    if (*v->error) um_jw_put_cstr(w, "error", v->error);
    um_jw_end_object(w);
}

static const char *trouble_of(um_server *s) {
    if (um_server_is_stopping(s)) return "the server is stopping";
    um_backend *b = um_server_backend(s);
    return um_backend_is_up(b) ? NULL : um_backend_trouble(b);
}

/* Probes look at the status; people at the rest. */
static void get_health(um_server *s, um_exchange *x, const char *id) {
    (void)id;
    const char *trouble = trouble_of(s);
    um_backend *b = um_server_backend(s);
    um_buf body = {0};
    um_jw w;
    um_jw_init(&w, &body);
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "status", trouble ? "unavailable" : "ok");
    um_jw_key(&w, "workers");
    um_jw_begin_array(&w);
    for (int32_t i = 0; i < um_backend_size(b); i++) {
        um_worker_view v = um_backend_worker(b, i);
        put_worker(&v, i, &w);
    }
    um_jw_end_array(&w);
    if (trouble) {
        um_jw_key(&w, "error");
        um_put_error(&w, 503, NULL, "unavailable", trouble);
        um_exchange_add_header(x, "Retry-After", "5");
    }
    um_jw_end_object(&w);
    um_exchange_add_header(x, "Cache-Control", "no-store");
    um_reply_json(x, trouble ? 503 : 200, &body);
    um_buf_free(&body);
}

static void get_ping(um_server *s, um_exchange *x, const char *id) {
    (void)s, (void)id;
    um_exchange_send(x, 200, "text/plain; charset=utf-8", "pong\n", 5);
}

static void get_version(um_server *s, um_exchange *x, const char *id) {
    (void)s, (void)id;
    um_buf body = {0};
    um_buf_printf(&body, "{\"version\":\"%s\"}", um_version());
    um_reply_json(x, 200, &body);
    um_buf_free(&body);
}

static void get_metrics(um_server *s, um_exchange *x, const char *id) {
    (void)id;
    um_buf page = {0};
    if (!um_server_get_config(s)->metrics) {
        um_reply_error(x, 404, NULL, NULL, "this server runs with --no-metrics");
        return;
    }
    um_put_metrics(s, &page);
    um_exchange_send(x, 200, "text/plain; version=0.0.4; charset=utf-8", page.data, page.len);
    um_buf_free(&page);
}

/* ---- One token through the engine -------------------------------------------------------------------------------- */

#define PROBE_SECONDS 20

typedef struct probe {
    um_server *server;
    um_exchange *x;
    uint64_t rid;
    struct event *timer;
} probe;

/* The exchange is over, whoever ended it. */
static void probe_closed(void *arg, um_exchange *x, bool complete) {
    probe *p = arg;
    (void)x, (void)complete;
    um_backend_cancel(um_server_backend(p->server), p->rid);
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

static void probe_late(evutil_socket_t fd, short what, void *arg) {
    probe *p = arg;
    (void)fd, (void)what;
    um_backend_cancel(um_server_backend(p->server), p->rid); /* its token must not be a second answer */
    um_reply_error(p->x, 503, NULL, "unavailable", "no token within %d s", PROBE_SECONDS);
}

static um_status probe_submit(probe *p, int *status, um_err *err) {
    static const um_listener listener = {.finish = probe_finished, .fail = probe_failed};
    /* A model that ends at once has made no token to show for it. */
    static const um_pair set[] = {{{"max_tokens", 10}, {"1", 1}}, {{"ignore_eos", 10}, {"true", 4}}};
    int32_t *ids = NULL;
    size_t n = 0;
    *status = 500;
    um_status st = um_model_encode(um_server_model(p->server), "Hello", 5, false, &ids, &n, err);
    if (st) return st;
    um_msg_generate g = {.n = 1, .ids = ids, .n_ids = (uint32_t)n, .set = set, .n_set = UM_LEN(set)};
    p->rid = um_backend_submit(um_server_backend(p->server), &g, &listener, p, status, err);
    um_free(ids);
    return p->rid ? UM_OK : err->code;
}

static void get_health_generate(um_server *s, um_exchange *x, const char *id) {
    static const struct timeval limit = {.tv_sec = PROBE_SECONDS};
    (void)id;
    um_err err = {0};
    int status;
    probe *p = UM_NEW(probe);
    *p = (probe){.server = s, .x = x};
    if (probe_submit(p, &status, &err)) {
        um_reply_error(x, status, NULL, NULL, "%s", err.msg);
        um_free(p);
        return;
    }
    p->timer = evtimer_new(um_server_base(s), probe_late, p);
    evtimer_add(p->timer, &limit);
    um_exchange_on_close(x, probe_closed, p);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

#define CALL_SECONDS     60.0
#define CALL_SECONDS_MAX 86400.0

/* A call goes on when its client leaves: workers have no way to take it back. */
typedef struct call {
    um_exchange *x; /* NULL: the client left */
} call;

static void call_closed(void *arg, um_exchange *x, bool complete) {
    call *c = arg;
    (void)x, (void)complete;
    c->x = NULL;
}

/* What a worker says went wrong with a call: an unknown name is one more path that is not there. */
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

static void begin_call(um_server *s, um_exchange *x, int32_t worker, const char *name, um_str args, double timeout) {
    call *c = UM_NEW(call);
    c->x = x;
    um_exchange_on_close(x, call_closed, c);
    um_backend_call(um_server_backend(s), worker, name, args, timeout, call_done, c);
}

static bool read_worker(um_server *s, um_exchange *x, int32_t *worker) {
    const char *text = um_exchange_query(x, "worker");
    int32_t n = um_backend_size(um_server_backend(s));
    int64_t v = -1;
    if (text && !(um_parse_int(text, &v) && v >= 0 && v < n)) {
        um_reply_error(x, 400, "worker", NULL, "worker: expected 0..%d, found \"%.40s\"", n - 1, text);
        return false;
    }
    *worker = (int32_t)v;
    return true;
}

static bool read_timeout(um_exchange *x, double *timeout) {
    const char *text = um_exchange_query(x, "timeout");
    *timeout = CALL_SECONDS;
    if (!text || (um_parse_double(text, timeout) && *timeout > 0 && *timeout <= CALL_SECONDS_MAX)) return true;
    um_reply_error(x, 400, "timeout", NULL, "timeout: expected seconds, above 0 and at most %g, found \"%.40s\"",
                   CALL_SECONDS_MAX, text);
    return false;
}

/* The arguments are an object, and that is all that is asked of them here. */
static um_status read_args(um_reading *r, um_err *err) { return (void)r, (void)err, UM_OK; }

/* The query was looked at before. */
static void call_with_args(um_reading *r) {
    int32_t worker;
    double timeout;
    if (!read_worker(r->server, r->x, &worker) || !read_timeout(r->x, &timeout)) return;
    const char *name = strrchr(um_exchange_path(r->x), '/') + 1;
    begin_call(r->server, r->x, worker, name, (um_str){r->bytes.data, r->bytes.len}, timeout);
}

/* The body has the call's arguments: none is {}. */
static void post_call(um_server *s, um_exchange *x, const char *name) {
    static const um_reader reader = {.read = read_args, .answer = call_with_args};
    int32_t worker;
    double timeout;
    if (um_streq(name, "start_profile")) /* its `path` may be any file, which is for programs on this machine */
        um_reply_error(x, 404, NULL, NULL,
                       "profiles are started by POST /start_profile, which names their files itself");
    else if (!read_worker(s, x, &worker) || !read_timeout(x, &timeout)) return;
    else if (um_exchange_body(x).n == 0) begin_call(s, x, worker, name, UM_STR("{}"), timeout);
    else um_read(s, x, &reader, NULL);
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
                             "it begins the name of a file and can't hold a slash: \"%.80s\"", *prefix);
    return UM_OK;
}

/* {"profile_prefix": "name"}, or null, or nothing. Answers 400 or 415 itself. */
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

static void post_start_profile(um_server *s, um_exchange *x, const char *id) {
    (void)id;
    um_buf args = {0};
    if (read_prefix(x, &args)) begin_call(s, x, -1, "start_profile", (um_str){args.data, args.len}, CALL_SECONDS);
    um_buf_free(&args);
}

static void post_stop_profile(um_server *s, um_exchange *x, const char *id) {
    (void)id;
    if (um_read_empty(x)) begin_call(s, x, -1, "stop_profile", UM_STR("{}"), CALL_SECONDS);
}

static const um_endpoint rows[] = {
    {"GET", "/health", get_health, UM_ENDPOINT_OPEN, "vLLM, SGLang, llama.cpp",
     "200 while some worker takes requests, else 503 and why"},
    {"GET", "/v1/health", get_health, 0, "dLLM-Serve", "the same"},
    {"GET", "/health_generate", get_health_generate, UM_ENDPOINT_WAITS, "SGLang", "200 once a token was made, in 20 s"},
    {"GET", "/ping", get_ping, UM_ENDPOINT_OPEN, "SageMaker", "200: the server answers"},
    {"GET", "/version", get_version, UM_ENDPOINT_OPEN, "vLLM", "version of the program"},
    {"GET", "/metrics", get_metrics, 0, "Prometheus", "counters, gauges and histograms"},
    {"POST", "/start_profile", post_start_profile, 0, "Diffulex, vLLM", "every worker begins a trace of its steps"},
    {"POST", "/stop_profile", post_stop_profile, 0, "Diffulex, vLLM", "ends the traces"},
    {"POST", "/call/{id}", post_call, 0, "unmask",
     "calls a function of the workers, ?worker=i of one, with ?timeout=seconds; the body holds its arguments"},
};
const um_endpoint_set um_ops_endpoints = {rows, UM_LEN(rows)};
