/* The life of the server: opening, running, shutting down. */
#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "server/api/answer.h"
#include "server/api/apis.h"
#include "server/api/result_store.h"
#include "server/batch/batch.h"
#include "server/endpoints.h"
#include "server/frontend.h"
#include "server/generate/intake.h"
#include "server/respond/access.h"
#include "server/respond/reply.h"
#include "server/respond/trace_file.h"

/* After the workers have ended, slow clients have this time to read their responses. */
#define LINGER_SECONDS 5

/* ---- Names ------------------------------------------------------------------------------------------------------- */

/* Without --served-model-name: the last part of the folder's path, or the name of a model in the Hugging Face cache. */
static void name_model(um_server *s) {
    const um_server_config *c = s->service.setup.config;
    um_name_list_parse(&s->service.setup.names, c->served_model_name);
    if (s->service.setup.names.n) return;
    char *folder = um_dir_exists(c->engine->model) ? realpath(c->engine->model, NULL) : NULL;
    char *slash = folder ? strrchr(folder, '/') : NULL;
    um_name_list_free(&s->service.setup.names);
    s->service.setup.names.word = UM_NEW_ARRAY(char *, 1);
    s->service.setup.names.word[s->service.setup.names.n++] =
        um_strdup(slash && slash[1] ? slash + 1 : c->engine->model);
    free(folder); /* allocated by realpath */
}

static void name_root(um_server *s) {
    const char *path = s->service.setup.config->root_path ? s->service.setup.config->root_path : "";
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/') n--;
    s->root_path = um_strndup(path, n);
}

/* Options that connect worker processes make no sense with --in-process. */
static bool is_given(const char *address) { return address && *address; }

/* Workers that are started elsewhere must know both addresses: those that the server chooses are in a folder of its own
 * with a random name. */
static um_status check_addresses(const um_server_config *c, um_err *err) {
    if (!c->remote_workers || (is_given(c->zmq_command_addr) && is_given(c->zmq_event_addr))) return UM_OK;
    return um_fail(err, UM_EINVAL,
                   "--remote-workers needs --zmq-command-addr and --zmq-event-addr, such as tcp://10.0.0.1:7001 and "
                   "tcp://10.0.0.1:7002; the workers get the same two");
}

static um_status check_workers(const um_server_config *c, um_err *err) {
    static const char why[] = "connects worker processes and can't be combined with --in-process";
    if (!c->in_process) return check_addresses(c, err);
    if (c->remote_workers) return um_fail(err, UM_EINVAL, "--remote-workers %s", why);
    if (is_given(c->zmq_command_addr)) return um_fail(err, UM_EINVAL, "--zmq-command-addr %s", why);
    if (is_given(c->zmq_event_addr)) return um_fail(err, UM_EINVAL, "--zmq-event-addr %s", why);
    return UM_OK;
}

/* Whether the folder of adapters can be searched and listed. "/." asks for the first, opendir for the second. */
static um_status check_lora_dir(const char *dir, um_err *err) {
    if (!is_given(dir)) return UM_OK;
    char *inside = um_path_join(dir, ".");
    DIR *d = opendir(inside);
    um_status st =
        d ? UM_OK : um_fail(err, UM_EINVAL, "--lora-dir: cannot read the folder %s: %s", dir, strerror(errno));
    if (d) closedir(d);
    um_free(inside);
    return st;
}

static um_status check_config(um_server *s, um_err *err) {
    const um_server_config *c = s->service.setup.config;
    if (*s->root_path && *s->root_path != '/')
        return um_fail(err, UM_EINVAL, "--root-path: expected a path that begins with \"/\", found \"%.100s\"",
                       c->root_path);
    const um_tool_format *tools;
    const um_reasoning_format *reasoning;
    um_status st = check_workers(c, err);
    if (!st) st = check_lora_dir(c->lora_dir, err);
    if (!st) st = um_cors_check(c->cors_allow_origin, err);
    if (!st) st = um_hosts_check(c->allowed_hosts, err);
    if (!st) st = um_http_nets_parse(&s->proxies, c->trusted_proxies, err);
    if (!st) st = um_tool_format_find(&tools, c->tool_call_parser, err);
    return st ? st : um_reasoning_format_find(&reasoning, c->reasoning_parser, err);
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

static void end_loop(um_server *s) {
    s->has_ended = true;
    event_base_loopbreak(s->service.base);
}

static void end_when_idle(um_server *s) {
    static const struct timeval linger = {.tv_sec = LINGER_SECONDS};
    if (!s->workers_gone) return;
    if (s->service.n_open == 0) end_loop(s);
    else if (!evtimer_pending(s->linger, NULL)) evtimer_add(s->linger, &linger);
}

static void on_linger(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    end_loop(arg);
}

static void on_workers_gone(void *arg) {
    um_server *s = arg;
    s->workers_gone = true;
    end_when_idle(s);
}

static void on_signal(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    um_server_stop(arg);
}

/* Reads files again. Without any, shuts down: closing a terminal may send SIGHUP twice, from the terminal and from its
 * shell. The second one must not end the server at once. */
static void on_hangup(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    um_server *s = arg;
    if (um_server_has_files(s)) um_server_reload(s);
    else if (!s->service.stopping) um_server_stop(s);
}

static void on_exchange_end(void *arg, um_exchange *x, bool complete) {
    um_server *s = arg;
    const um_access_record *record = um_exchange_get_user_data(x);
    bool was_open = !record->refused;
    if (record->key) record->key->n_requests++;
    int status = complete || record->refused ? um_exchange_status(x) : 499;
    double seconds = um_now() - um_exchange_start_time(x);
    um_metrics_count_request(s->service.metrics, record->path, status, seconds);
    um_access_record_end(x, status, seconds, s->service.setup.config->access_log);
    s->service.n_open -= was_open;
    end_when_idle(s);
}

/* Requests that the HTTP server refuses are counted and logged like others when they end. */
static void on_http_error(void *arg, um_exchange *x, int status, const char *message, um_buf *body) {
    um_jw w;
    um_server *s = arg;
    um_access_record_new(x)->refused = um_strdup(message);
    um_cors_allow(&s->origins, x); /* without this header, a page of another origin can't read the error */
    um_jw_init(&w, body);
    um_put_error_body(x, &w, status, NULL, NULL, message);
}

/* If no worker ever was ready, the configuration is wrong and the server ends. Later it stays: /health gives the
 * reason. */
static void on_workers_change(void *arg, um_worker_pool *b) {
    um_server *s = arg;
    um_sleep_on_change(&s->service);
    if (s->was_up || s->service.stopping) return;
    if (um_worker_pool_is_up(b)) {
        s->was_up = true;
        um_log(UM_LOG_INFO, "ready");
    } else if (um_worker_pool_failed(b, &s->failed)) {
        s->failed.code = UM_EMODEL; /* errors in the command line were found before */
        end_loop(s);
    }
}

/* ---- Start and end ----------------------------------------------------------------------------------------------- */

void um_server_http_config(const um_server *s, um_http_config *http) {
    const um_server_config *c = &s->config;
    um_http_config_init(http);
    http->host = c->host;
    http->port = c->port;
    http->unix_socket = c->uds && *c->uds ? c->uds : NULL;
    http->max_connections = c->max_connections;
    http->max_connections_per_peer = c->max_connections_per_peer;
    http->vital_path = "/health";
    http->trusted_proxies = s->proxies;
    http->head_timeout = c->head_timeout;
    http->body_timeout = c->body_timeout;
    http->min_body_rate = c->min_body_rate;
    http->write_timeout = c->write_timeout;
    http->max_body_bytes = (size_t)c->max_body_bytes;
    http->max_bodies_bytes = (size_t)UM_MAX(c->max_body_bytes, c->max_bodies_memory); /* room for one body at least */
    http->idle_timeout = c->keep_alive;
}

static um_status listen_http(um_server *s, um_err *err) {
    um_http_config http;
    um_server_http_config(s, &http);
    um_status st =
        um_http_server_new(&s->service.http, s->service.base, &http, um_server_dispatch, on_http_error, s, err);
    if (st) return st;
    um_http_server_on_end(s->service.http, on_exchange_end);
    um_http_server_on_body(s->service.http, um_server_reads_body);
    return UM_OK;
}

/* nohup starts a program with SIGHUP ignored. */
static bool is_ignored(int number) {
    struct sigaction a;
    return sigaction(number, NULL, &a) == 0 && a.sa_handler == SIG_IGN;
}

static void catch_signals(um_server *s) {
    signal(SIGPIPE, SIG_IGN);
    s->sigterm = evsignal_new(s->service.base, SIGTERM, on_signal, s);
    s->sigint = evsignal_new(s->service.base, SIGINT, on_signal, s);
    s->linger = evtimer_new(s->service.base, on_linger, s);
    event_add(s->sigterm, NULL);
    event_add(s->sigint, NULL);
    if (is_ignored(SIGHUP) && !um_server_has_files(s)) return;
    s->sighup = evsignal_new(s->service.base, SIGHUP, on_hangup, s);
    event_add(s->sighup, NULL);
}

/* Errors in the key file become UM_EINVAL: the model is not at fault. */
static um_status open_keys(um_server *s, um_err *err) {
    const um_server_config *c = s->service.setup.config;
    um_status st = um_keys_new(&s->service.keys, c->api_key, c->api_key_file, err);
    if (st && err) err->code = UM_EINVAL;
    return st ? UM_EINVAL : UM_OK;
}

/* Errors in the model's folder become UM_EMODEL: the command line is not at fault. */
static um_status open_model(um_server *s, um_err *err) {
    um_status st = um_model_open_text(&s->service.setup.model, s->service.setup.config->engine, err);
    bool its_fault = st == UM_ENOENT || st == UM_EIO || st == UM_EPARSE || st == UM_ETEMPLATE || st == UM_ELIMIT;
    if (its_fault) st = UM_EMODEL;
    if (err && st) err->code = st;
    return st;
}

/* The APIs that lines of batches may use. */
static const um_api *const batch_apis[] = {&um_api_chat, &um_api_completions, NULL};

/* Comes before the workers, which take long to start and to end. */
static um_status open_state(um_server *s, um_err *err) {
    const char *dir = s->service.setup.config->state_dir;
    if (!is_given(dir)) return UM_OK;
    um_status st = um_batch_store_new(&s->service.batches, &s->service, batch_apis, err);
    return st ? st : um_result_store_open(s->service.setup.results, err);
}

static um_status open_all(um_server *s, um_err *err) {
    um_status st = check_config(s, err);
    if (!st) st = open_keys(s, err);
    if (!st) st = open_model(s, err);
    if (st) return st;
    name_model(s);
    catch_signals(s);
    st = um_work_queue_new(&s->service.readers, s->service.base, UM_INTAKE_THREADS, UM_INTAKE_QUEUE_BYTES_MAX, err);
    const char *traces = s->service.setup.config->otlp_traces;
    if (!st && traces && *traces) st = um_trace_file_new(&s->service.traces, s->service.base, traces, err);
    if (!st) st = open_state(s, err);
    if (!st) st = listen_http(s, err);
    if (!st)
        st = um_worker_pool_new(&s->service.workers, s->service.base, s->service.setup.config, on_workers_change, s,
                                err);
    return st;
}

um_status um_server_new(um_server **out, const um_server_config *c, um_err *err) {
    um_server *s = UM_NEW(um_server);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    s->config = *c;
    s->service.setup.config = &s->config;
    s->service.held = (um_held_limit){(size_t)c->max_body_memory, (size_t)c->max_bodies_memory, 0};
    s->service.started = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    s->service.base = event_base_new();
    s->service.metrics = um_server_metrics_new();
    s->service.setup.late = um_adapter_list_new();
    if (s->service.base) s->service.setup.results = um_result_store_new(&s->service, UM_RESULT_BYTES_MAX);
    um_name_list_parse(&s->origins, c->cors_allow_origin);
    um_hosts_init(&s->hosts, c, &s->origins);
    name_root(s);
    um_status st =
        s->service.base ? open_all(s, err) : um_fail(err, UM_EIO, "libevent has no event loop for this system");
    if (st) {
        um_server_free(s);
        s = NULL;
    }
    *out = s;
    return st;
}

static bool is_loopback(const char *host) {
    return um_streq(host, "localhost") || um_streq(host, "::1") || strncmp(host, "127.", 4) == 0;
}

static void announce(const um_server *s) {
    const um_server_config *c = s->service.setup.config;
    int32_t n = um_worker_pool_size(s->service.workers);
    bool is_v6 = strchr(c->host, ':') != NULL;
    if (c->uds && *c->uds) um_log(UM_LOG_INFO, "listening at unix:%s", c->uds);
    else
        um_log(UM_LOG_INFO, "listening at http://%s%s%s:%d", is_v6 ? "[" : "", c->host, is_v6 ? "]" : "",
               um_server_port(s));
    if (um_keys_is_empty(s->service.keys) && !(c->uds && *c->uds) && !is_loopback(c->host))
        um_warn("everybody who reaches %s can use the server; --api-key (UNMASK_API_KEY) asks for a key", c->host);
    um_log(UM_LOG_INFO, "model %s, %d worker%s%s; `unmask serve --help` and docs/server.md say more",
           um_setup_model_name(&s->service.setup), n, n == 1 ? "" : "s", c->in_process ? " in this process" : "");
}

um_status um_server_run(um_server *s, um_err *err) {
    announce(s);
    while (!s->has_ended)
        if (event_base_dispatch(s->service.base)) return um_fail(err, UM_EIO, "the event loop failed");
    if (s->failed.code && err) *err = s->failed;
    return s->failed.code;
}

void um_server_stop(um_server *s) {
    if (s->service.stopping) {
        um_log(UM_LOG_INFO, "stopping at once");
        end_loop(s);
        return;
    }
    s->service.stopping = true;
    um_http_server_stop(s->service.http);
    um_batch_store_stop(s->service.batches);
    um_sleep_on_change(&s->service);
    const double grace = (double)s->service.setup.config->shutdown_grace;
    const int32_t n = um_worker_pool_outstanding(s->service.workers) + um_worker_pool_open_calls(s->service.workers);
    if (n) um_log(UM_LOG_INFO, "stopping; %d request%s may run for another %g s", n, n == 1 ? "" : "s", grace);
    else um_log(UM_LOG_INFO, "stopping; no request runs");
    um_worker_pool_shutdown(s->service.workers, grace, on_workers_gone, s);
}

void um_server_free(um_server *s) {
    if (!s) return;
    um_http_server_free(s->service.http); /* first: closing exchanges cancels their generations */
    um_result_store_stop(s->service.setup.results);
    um_batch_store_free(s->service.batches);
    um_work_queue_free(s->service.readers);         /* the intakes of closed exchanges free themselves */
    um_result_store_free(s->service.setup.results); /* after the readers, which copy results */
    um_worker_pool_free(s->service.workers);
    um_trace_file_free(s->service.traces); /* after the last generation */
    um_model_close(s->service.setup.model);
    if (s->sigterm) event_free(s->sigterm);
    if (s->sigint) event_free(s->sigint);
    if (s->sighup) event_free(s->sighup);
    if (s->linger) event_free(s->linger);
    if (s->service.base) event_base_free(s->service.base);
    um_server_metrics_free(s->service.metrics);
    um_name_list_free(&s->service.setup.names);
    um_adapter_list_free(s->service.setup.late);
    um_keys_free(s->service.keys);
    um_name_list_free(&s->origins);
    um_hosts_free(&s->hosts);
    um_http_nets_free(&s->proxies);
    um_arena_free(&s->live_strings);
    um_free(s->root_path);
    um_free(s);
}

int32_t um_server_port(const um_server *s) { return um_http_server_port(s->service.http); }
