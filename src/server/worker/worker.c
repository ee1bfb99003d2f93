/* The main loop of a worker: sends HELLO, loads the model, and alternates between commands and steps until SHUTDOWN. */
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "server/worker/internal.h"

/* The time that an idle worker waits for a command before it checks again that its parent lives. */
#define IDLE_SECONDS 1.0
/* How long the log of the start may delay a worker. */
#define LOG_SECONDS 1.0

/* The least time between two LOADING messages, and between two log lines about loading. */
#define LOADING_SECONDS     0.5
#define LOADING_LOG_SECONDS 3.0

/* ---- Sending ----------------------------------------------------------------------------------------------------- */

void um_worker_send(um_worker *w, um_msg *m) {
    m->worker = w->config->index;
    m->incarnation = w->incarnation;
    um_wire_write(&w->frame, m);
    um_port_send(w->port, &w->frame);
}

/* Returns an error message as valid UTF-8, with '?' for bad bytes: it may quote bytes of a command. */
static um_str clean_message(um_worker *w, const um_err *err) {
    size_t n = strlen(err->msg);
    char *copy = um_arena_strndup(&w->event, err->msg, n);
    for (size_t at = 0; (at += um_utf8_check(copy + at, n - at)) < n;) copy[at] = '?';
    return (um_str){copy, n};
}

void um_worker_fail_request(um_worker *w, uint64_t rid, const um_err *why) {
    um_msg m = {
        .type = UM_MSG_ERROR,
        .error = {.rid = rid, .status = why->code, .param = um_str_of(why->param), .message = clean_message(w, why)}};
    um_worker_send(w, &m);
    um_arena_reset(&w->event);
}

void um_worker_return(um_worker *w, uint64_t call_id, um_str result, const um_err *failed) {
    um_msg m = {.type = UM_MSG_RETURN,
                .ret = {.call_id = call_id,
                        .status = failed ? failed->code : UM_OK,
                        .param = um_str_of(failed ? failed->param : ""),
                        .value = failed ? clean_message(w, failed) : result}};
    um_worker_send(w, &m);
    um_arena_reset(&w->event);
}

bool um_worker_is_device_failure(const um_worker *w, const um_result *r) {
    return w->is_stepping && r->finish == UM_FINISH_ABORTED;
}

static void send_hello(um_worker *w) {
    um_msg m = {.type = UM_MSG_HELLO, .hello = {.pid = getpid(), .version = um_str_of(um_version())}};
    um_worker_send(w, &m);
}

static void send_failed(um_worker *w, const um_err *err) {
    um_msg m = {.type = UM_MSG_FAILED, .failed = {.status = err->code, .message = clean_message(w, err)}};
    um_worker_send(w, &m);
    um_arena_reset(&w->event);
}

static void put_adapters(const um_model_info *info, um_buf *out) {
    um_jw w;
    um_jw_init(&w, out);
    um_jw_begin_array(&w);
    for (int32_t i = 0; i < info->n_adapters; i++) {
        um_jw_begin_object(&w);
        um_jw_put_cstr(&w, "name", info->adapter[i].name);
        um_jw_put_cstr(&w, "path", info->adapter[i].path);
        um_jw_put_int(&w, "rank", info->adapter[i].rank);
        um_jw_end_object(&w);
    }
    um_jw_end_array(&w);
}

static void send_ready(um_worker *w) {
    um_model_info model;
    um_engine_info engine;
    um_stats stats;
    um_buf adapters = {0};
    um_model_get_info(w->model, &model);
    um_engine_get_info(um_router_engine(w->router, 0), &engine);
    um_router_get_stats(w->router, &stats);
    put_adapters(&model, &adapters);
    um_msg m = {.type = UM_MSG_READY,
                .ready = {.n_params = model.n_params,
                          .load_seconds = model.load_seconds,
                          .max_model_len = engine.max_model_len,
                          .max_num_reqs = engine.max_num_reqs,
                          .max_num_batched_tokens = engine.max_num_batched_tokens,
                          .page_size = engine.page_size,
                          .pages_total = stats.pages_total,
                          .block_size = engine.block_size,
                          .weight_bytes = (int64_t)stats.weight_bytes,
                          .kv_bytes = (int64_t)stats.kv_bytes,
                          .workspace_bytes = (int64_t)stats.workspace_bytes,
                          .strategy = um_str_of(engine.strategy),
                          .sampler = um_str_of(engine.sampler),
                          .device = um_str_of(engine.device),
                          .dtype = um_str_of(engine.dtype),
                          .family = um_str_of(model.family),
                          .adapters = {adapters.data, adapters.len}}};
    um_worker_send(w, &m);
    um_buf_free(&adapters);
}

static void send_stats(um_worker *w) {
    um_msg m = {.type = UM_MSG_STATS};
    um_worker_get_stats(w, &m.stats);
    um_worker_send(w, &m);
    w->stats_at = um_now();
    w->is_stats_stale = false;
}

/* ---- Commands ---------------------------------------------------------------------------------------------------- */

static void send_pong(um_worker *w, uint64_t number) {
    um_msg m = {.type = UM_MSG_PONG, .ping = {.number = number}};
    um_worker_send(w, &m);
}

/* Reports a command that can't be read. Fails its request or call if the number could be read. */
static void reject(um_worker *w, const um_msg *m, const um_err *err) {
    um_log(UM_LOG_WARN, "rejected a command: %s", err->msg);
    if (m->type == UM_MSG_GENERATE && m->generate.rid) um_worker_fail_request(w, m->generate.rid, err);
    if (m->type == UM_MSG_CALL && m->call.call_id) um_worker_return(w, m->call.call_id, (um_str){0}, err);
}

static void handle_command(um_worker *w, const um_msg *m) {
    switch (m->type) {
    case UM_MSG_GENERATE: um_worker_generate(w, &m->generate); break;
    case UM_MSG_ABORT: um_worker_abort(w, m->abort.rid); break;
    case UM_MSG_CALL: um_worker_call(w, &m->call); break;
    case UM_MSG_PING: send_pong(w, m->ping.number); break;
    case UM_MSG_SHUTDOWN: w->is_shut_down = true; break;
    default: um_log(UM_LOG_WARN, "ignored a message \"%s\", which is not for workers", um_msg_name(m->type));
    }
}

static void receive_commands(um_worker *w) {
    um_str frame;
    while (!w->is_shut_down && um_port_receive(w->port, &frame)) {
        um_msg m;
        um_err err = {0};
        if (um_wire_read(&m, &w->command, frame, &err)) reject(w, &m, &err);
        else handle_command(w, &m);
        um_arena_reset(&w->command);
        w->is_stats_stale = true;
    }
}

/* ---- The loop ---------------------------------------------------------------------------------------------------- */

/* Asks the kernel to kill this process when its parent dies. check_alive notices a parent that has died before. */
static um_status bind_to_parent(const um_worker_config *c, um_err *err) {
    if (c->parent && prctl(PR_SET_PDEATHSIG, SIGKILL))
        return um_fail(err, UM_EIO, "can't ask the kernel to kill the worker with its server: %s", strerror(errno));
    return UM_OK;
}

static um_status check_alive(const um_worker_config *c, um_err *err) {
    if (c->parent && getppid() != c->parent)
        return um_fail(err, UM_ECANCELED, "the server that started this worker, process %lld, has ended",
                       (long long)c->parent);
    if (c->is_stopped && c->is_stopped(c->is_stopped_arg))
        return um_fail(err, UM_ECANCELED, "the worker was told to stop");
    return UM_OK;
}

static void log_model(const um_worker *w) {
    um_model_info m;
    um_engine_info e;
    um_model_get_info(w->model, &m);
    um_engine_get_info(um_router_engine(w->router, 0), &e);
    char weights[32] = "", parameters[UM_COUNT_TEXT], bytes[UM_BYTES_TEXT];
    um_stats stats;
    um_router_get_stats(w->router, &stats);
    if (!um_streq(e.quantization, "none")) snprintf(weights, sizeof weights, " with %s weights", e.quantization);
    um_log(UM_LOG_INFO, "%s is loaded (%s, %s parameters, %s%s on %s, %s, %d pages of %d tokens), %.2f s", m.path,
           m.family, um_count_text(parameters, (double)m.n_params), e.dtype, weights, e.device,
           um_bytes_text(bytes, (double)stats.weight_bytes), e.num_pages, e.page_size, m.load_seconds);
    um_log_flush(LOG_SECONDS); /* before the server says that the worker is up */
}

/* Logs the start of loading, and then how far it is every few seconds. */
static void log_loading(um_worker *w, const um_load_progress *p, double now) {
    char done[UM_BYTES_TEXT], all[UM_BYTES_TEXT];
    um_bytes_text(all, (double)p->bytes_all);
    if (!w->logged_at) um_log(UM_LOG_INFO, "loading %s: %s", p->path, all);
    else if (now - w->logged_at >= LOADING_LOG_SECONDS)
        um_log(UM_LOG_INFO, "loading %s: %d %%, %s of %s", p->path, (int)(100 * p->fraction),
               um_bytes_text(done, (double)p->bytes), all);
    else return;
    w->logged_at = now;
}

static bool on_load(void *arg, const um_load_progress *p) {
    um_worker *w = arg;
    const double now = um_now();
    if (check_alive(w->config, NULL)) return false;
    log_loading(w, p, now);
    if (w->loading_at && now - w->loading_at < LOADING_SECONDS) return true;
    um_msg m = {.type = UM_MSG_LOADING, .loading = {.bytes = (int64_t)p->bytes, .bytes_all = (int64_t)p->bytes_all}};
    um_worker_send(w, &m);
    w->loading_at = now;
    return true;
}

static um_status open_engines(um_worker *w, um_err *err) {
    um_config c = *w->config->engine;
    c.on_load = on_load;
    c.on_load_arg = w;
    um_status st = um_model_open(&w->model, &c, err);
    if (st == UM_ECANCELED) return check_alive(w->config, err); /* on_load has stopped it */
    if (!st) st = um_router_new(&w->router, w->model, w->config->engine, err);
    if (st) return st;
    um_model_info m;
    um_model_get_info(w->model, &m);
    w->n_first_adapters = m.n_adapters;
    w->counts.seen = UM_NEW_ARRAY(um_stats, (size_t)um_router_size(w->router));
    log_model(w);
    return UM_OK;
}

/* Unloads the adapters that were loaded after the start. A new server does not know them. A server that has only lost
 * the connection loads them again. */
static void unload_later_adapters(um_worker *w) {
    um_model_info m;
    um_status st = w->model ? UM_OK : UM_ENOENT;
    while (!st) {
        um_model_get_info(w->model, &m);
        if (m.n_adapters <= w->n_first_adapters) return;
        st = um_model_unload_adapter(w->model, m.adapter[m.n_adapters - 1].name, NULL);
    }
}

static um_status step(um_worker *w, um_err *err) {
    w->is_stepping = true;
    um_status st = um_router_step(w->router, err);
    w->is_stepping = false;
    um_worker_count_steps(w);
    w->is_stats_stale = true;
    if (!um_router_pending(w->router) || um_now() - w->stats_at >= w->config->stats_interval) send_stats(w);
    return st;
}

static void wait_idle(um_worker *w) {
    if (w->is_stats_stale) send_stats(w);
    um_port_wait(w->port, IDLE_SECONDS);
}

static bool has_requests(const um_worker *w) { return w->router && um_router_pending(w->router); }

/* Opens the model of a worker that sleeps. A worker that is awake only says that it is ready. */
static um_status wake(um_worker *w, um_err *err) {
    um_status st = w->router ? UM_OK : open_engines(w, err);
    w->wakes = false;
    if (st) return st;
    send_ready(w);
    send_stats(w);
    return UM_OK;
}

/* Aborts the remaining requests. Each ends with an event, so that its memory is freed. */
static void abort_requests(um_worker *w) {
    um_slot slot;
    while (w->router && um_router_slots(w->router, &slot, 1)) (void)um_router_abort(w->router, slot.id, NULL);
}

/* When the connection is lost, aborts the requests and connects again as a new incarnation, because the server may have
 * been restarted and knows nothing of this worker. A worker with a parent ends with its parent instead. */
static um_status reconnect_if_lost(um_worker *w, um_err *err) {
    if (w->config->parent || !um_port_is_lost(w->port)) return UM_OK;
    um_log(UM_LOG_WARN, "lost the connection to the server; waiting for it to come back");
    abort_requests(w);
    unload_later_adapters(w);
    um_worker_restart_stats(w);
    w->incarnation = (uint16_t)(w->incarnation % UINT16_MAX + 1); /* skips 0, which is not a valid incarnation */
    um_status st = um_port_reconnect(w->port, w->config->index, w->incarnation, err);
    if (st) return st;
    send_hello(w);
    return wake(w, err);
}

static um_status serve(um_worker *w, um_err *err) {
    um_status st = UM_OK;
    for (;;) {
        receive_commands(w);
        if (!w->is_shut_down) st = check_alive(w->config, err);
        if (!w->is_shut_down && !st) st = reconnect_if_lost(w, err);
        if (st || w->is_shut_down) return st;
        if (w->wakes) st = wake(w, err);
        else if (has_requests(w)) st = step(w, err);
        else wait_idle(w);
        if (st) return st;
    }
}

static void close_worker(um_worker *w) {
    abort_requests(w);
    um_router_free(w->router);
    um_model_close(w->model);
    um_free(w->counts.seen);
    um_arena_free(&w->command);
    um_arena_free(&w->event);
    um_buf_free(&w->frame);
    um_free(w);
}

um_status um_worker_run(const um_worker_config *c, um_err *err) {
    um_err own;
    um_worker *w = UM_NEW(um_worker);
    w->config = c;
    w->port = c->port;
    w->incarnation = c->incarnation;
    if (!err) err = &own;
    memset(err, 0, sizeof *err);
    um_status st = bind_to_parent(c, err);
    if (!st) st = check_alive(c, err);
    send_hello(w);
    if (!st) st = open_engines(w, err);
    if (!st) {
        send_ready(w);
        send_stats(w);
        st = serve(w, err);
    }
    if (st) send_failed(w, err);
    close_worker(w);
    return st;
}
