/* The server's life: what it opens, how it starts, how it ends. */
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "server/api/answer.h"
#include "server/api/results.h"
#include "server/batch/batch.h"
#include "server/frontend.h"
#include "server/reading.h"

/* Once the workers are gone: for clients that have not taken their answers yet. */
#define LINGER_SECONDS 5

/* ---- Names ------------------------------------------------------------------------------------------------------- */

/* The last part of a folder's path, or the name of a model in the cache. */
static void name_model(um_server *s) {
    const um_server_config *c = s->config;
    um_words_split(&s->names, c->served_model_name);
    if (s->names.n) return;
    char *folder = um_dir_exists(c->engine->model) ? realpath(c->engine->model, NULL) : NULL;
    char *slash = folder ? strrchr(folder, '/') : NULL;
    um_words_free(&s->names);
    s->names.word = UM_NEW_ARRAY(char *, 1);
    s->names.word[s->names.n++] = um_strdup(slash && slash[1] ? slash + 1 : c->engine->model);
    free(folder); /* realpath's */
}

static void name_root(um_server *s) {
    const char *path = s->config->root_path ? s->config->root_path : "";
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/') n--;
    s->root_path = um_strndup(path, n);
}

/* An engine in this process has no use for what joins processes: one of the two is a mistake. */
static um_status check_workers(const um_server_config *c, um_err *err) {
    static const char why[] = "goes with workers that are processes, and not with --in-process";
    if (!c->in_process) return UM_OK;
    if (c->remote_workers) return um_fail(err, UM_EINVAL, "--remote-workers %s", why);
    if (c->zmq_command_addr && *c->zmq_command_addr) return um_fail(err, UM_EINVAL, "--zmq-command-addr %s", why);
    if (c->zmq_event_addr && *c->zmq_event_addr) return um_fail(err, UM_EINVAL, "--zmq-event-addr %s", why);
    return UM_OK;
}

static um_status check_config(const um_server *s, um_err *err) {
    const um_server_config *c = s->config;
    if (*s->root_path && *s->root_path != '/')
        return um_fail(err, UM_EINVAL, "--root-path: expected a path that begins with \"/\", found \"%.100s\"",
                       c->root_path);
    if (c->api_key && *c->api_key && s->keys.n == 0)
        return um_fail(err, UM_EINVAL, "--api-key: expected keys, found only commas and blanks");
    const um_tool_format *tools;
    const um_reasoning_format *reasoning;
    um_status st = check_workers(c, err);
    if (!st) st = um_tool_format_find(&tools, c->tool_call_parser, err);
    return st ? st : um_reasoning_format_find(&reasoning, c->reasoning_parser, err);
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

static void end_loop(um_server *s) {
    s->has_ended = true;
    event_base_loopbreak(s->base);
}

static void end_when_idle(um_server *s) {
    static const struct timeval linger = {.tv_sec = LINGER_SECONDS};
    if (!s->backend_gone) return;
    if (s->n_open == 0) end_loop(s);
    else if (!evtimer_pending(s->linger, NULL)) evtimer_add(s->linger, &linger);
}

static void on_linger(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    end_loop(arg);
}

static void on_backend_gone(void *arg) {
    um_server *s = arg;
    s->backend_gone = true;
    end_when_idle(s);
}

static void on_signal(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    um_server_stop(arg);
}

/* A terminal that is closed may hang up twice, once itself and once by its shell: the second time asks for no haste. */
static void on_hangup(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    if (!um_server_is_stopping(arg)) um_server_stop(arg);
}

static void on_exchange_end(void *arg, um_exchange *x, bool complete) {
    um_server *s = arg;
    const um_note *note = um_exchange_get_note(x);
    bool was_open = !note->refused;
    int status = complete || note->refused ? um_exchange_status(x) : 499;
    double seconds = um_now() - um_exchange_began(x);
    um_count_request(s, note->path, status, seconds);
    um_note_end(x, status, seconds);
    s->n_open -= was_open;
    end_when_idle(s);
}

/* What HTTP itself refuses is counted and logged like any other when it ends. */
static void on_http_error(void *arg, um_exchange *x, int status, const char *message, um_buf *body) {
    um_jw w;
    um_server *s = arg;
    um_note_new(s, x)->refused = um_strdup(message);
    um_cors_allow(&s->origins, x); /* or a page of another origin can't read what is wrong */
    um_jw_init(&w, body);
    um_jw_begin_object(&w);
    um_jw_key(&w, "error");
    um_put_error(&w, status, NULL, NULL, message);
    um_jw_end_object(&w);
}

/* A server that never was up has a mistake in its configuration, and ends. One that was stays, and tells whoever asks
 * /health what happened. */
static void on_backend_change(void *arg, um_backend *b) {
    um_server *s = arg;
    if (s->was_up || s->n_stops) return;
    if (um_backend_is_up(b)) {
        s->was_up = true;
        um_log(UM_LOG_INFO, "ready");
    } else if (um_backend_failed(b, &s->failed)) {
        s->failed.code = UM_EMODEL; /* what was wrong in the command line was found before */
        end_loop(s);
    }
}

/* ---- Start and end ----------------------------------------------------------------------------------------------- */

static um_status listen_http(um_server *s, um_err *err) {
    const um_server_config *c = s->config;
    um_http_config http;
    um_http_config_init(&http);
    http.host = c->host;
    http.port = c->port;
    http.max_connections = c->max_connections;
    http.max_body_bytes = (size_t)c->max_body_bytes;
    http.idle_timeout = c->keep_alive;
    um_status st = um_http_server_new(&s->http, s->base, &http, um_server_dispatch, on_http_error, s, err);
    if (!st) um_http_server_on_end(s->http, on_exchange_end);
    return st;
}

/* Who starts a program with nohup wants it to outlive the terminal. */
static bool is_ignored(int number) {
    struct sigaction a;
    return sigaction(number, NULL, &a) == 0 && a.sa_handler == SIG_IGN;
}

static void catch_signals(um_server *s) {
    signal(SIGPIPE, SIG_IGN);
    s->sigterm = evsignal_new(s->base, SIGTERM, on_signal, s);
    s->sigint = evsignal_new(s->base, SIGINT, on_signal, s);
    s->linger = evtimer_new(s->base, on_linger, s);
    event_add(s->sigterm, NULL);
    event_add(s->sigint, NULL);
    if (is_ignored(SIGHUP)) return;
    s->sighup = evsignal_new(s->base, SIGHUP, on_hangup, s);
    event_add(s->sighup, NULL);
}

/* What is missing or malformed in its folder is the model's fault, and not that of how the server was started. */
static um_status open_model(um_server *s, um_err *err) {
    um_status st = um_model_open_text(&s->model, s->config->engine, err);
    bool its_fault = st == UM_ENOENT || st == UM_EIO || st == UM_EPARSE || st == UM_ETEMPLATE || st == UM_ELIMIT;
    if (its_fault) st = UM_EMODEL;
    if (err && st) err->code = st;
    return st;
}

static um_status open_all(um_server *s, um_err *err) {
    um_status st = check_config(s, err);
    if (!st) st = open_model(s, err);
    if (st) return st;
    name_model(s);
    catch_signals(s);
    st = um_jobs_new(&s->readers, s->base, UM_READ_THREADS, UM_READ_WAITING_MAX, err);
    if (!st) st = listen_http(s, err);
    if (!st) st = um_backend_new(&s->backend, s->base, s->config, on_backend_change, s, err);
    const char *dir = s->config->state_dir;
    if (!st && dir && *dir) st = um_batches_new(&s->batches, s, err);
    return st;
}

um_status um_server_new(um_server **out, const um_server_config *c, um_err *err) {
    um_server *s = UM_NEW(um_server);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    s->config = c;
    s->began = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    s->base = event_base_new();
    s->tally = um_tally_new();
    um_words_split(&s->keys, c->api_key);
    um_words_split(&s->origins, c->cors_allow_origin);
    name_root(s);
    um_status st = s->base ? open_all(s, err) : um_fail(err, UM_EIO, "libevent has no event loop for this system");
    if (st) {
        um_server_free(s);
        s = NULL;
    }
    *out = s;
    return st;
}

static void announce(const um_server *s) {
    const um_server_config *c = s->config;
    int32_t n = um_backend_size(s->backend);
    bool is_v6 = strchr(c->host, ':') != NULL;
    um_log(UM_LOG_INFO, "listening at http://%s%s%s:%d", is_v6 ? "[" : "", c->host, is_v6 ? "]" : "",
           um_server_port(s));
    um_log(UM_LOG_INFO, "model %s, %d worker%s%s; `man unmask` and docs/server.md say more", um_server_model_name(s), n,
           n == 1 ? "" : "s", c->in_process ? " in this process" : "");
}

um_status um_server_run(um_server *s, um_err *err) {
    announce(s);
    while (!s->has_ended)
        if (event_base_dispatch(s->base)) return um_fail(err, UM_EIO, "the event loop failed");
    if (s->failed.code && err) *err = s->failed;
    return s->failed.code;
}

void um_server_stop(um_server *s) {
    if (s->n_stops++) {
        um_log(UM_LOG_INFO, "stopping at once");
        end_loop(s);
        return;
    }
    um_http_server_stop(s->http);
    um_batches_stop(s->batches);
    um_log(UM_LOG_INFO, "stopping; %d requests may run for another %g s", um_backend_waiting(s->backend),
           (double)s->config->shutdown_grace);
    um_backend_shutdown(s->backend, s->config->shutdown_grace, on_backend_gone, s);
}

void um_server_free(um_server *s) {
    if (!s) return;
    um_http_server_free(s->http); /* first: exchanges that end cancel their generations */
    um_results_free(s->results);
    um_batches_free(s->batches);
    um_jobs_free(s->readers); /* what they read comes to nothing by now */
    um_backend_free(s->backend);
    um_model_close(s->model);
    if (s->sigterm) event_free(s->sigterm);
    if (s->sigint) event_free(s->sigint);
    if (s->sighup) event_free(s->sighup);
    if (s->linger) event_free(s->linger);
    if (s->base) event_base_free(s->base);
    um_tally_free(s->tally);
    um_words_free(&s->names);
    um_words_free(&s->keys);
    um_words_free(&s->origins);
    um_free(s->root_path);
    um_free(s);
}

/* ---- What endpoints ask ------------------------------------------------------------------------------------------ */

int32_t um_server_port(const um_server *s) { return um_http_server_port(s->http); }
const um_server_config *um_server_get_config(const um_server *s) { return s->config; }
um_backend *um_server_backend(um_server *s) { return s->backend; }
um_model *um_server_model(um_server *s) { return s->model; }
struct um_batches *um_server_batches(um_server *s) {
    return s->batches;
}
struct event_base *um_server_base(um_server *s) {
    return s->base;
}
const char *um_server_model_name(const um_server *s) { return s->names.word[0]; }
const char *um_server_served_name(const um_server *s, size_t i) { return i < s->names.n ? s->names.word[i] : NULL; }
bool um_server_is_stopping(const um_server *s) { return s->n_stops > 0; }
double um_server_began(const um_server *s) { return s->began; }

/* A merged adapter is in every answer, so its name is one more for the model. */
bool um_server_has_model(const um_server *s, const char *name, const char **adapter) {
    um_model_info info;
    *adapter = NULL;
    if (um_words_have(&s->names, name)) return true;
    um_model_get_info(s->model, &info);
    for (int32_t i = 0; i < info.n_adapters; i++) {
        if (!um_streq(info.adapter[i].name, name)) continue;
        if (!info.adapter[i].merged) *adapter = info.adapter[i].name;
        return true;
    }
    return false;
}
