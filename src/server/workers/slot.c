/* The states of a worker.
 *
 *   LOADING  started but not READY yet, or a remote worker that has not connected. A process that loads for too long is
 *            killed
 *   UP       takes requests
 *   ASLEEP   has released weights and KV pages until it is woken
 *   SILENT   sent nothing for too long. A process is killed; a thread or a remote worker may come back
 *   DEAD     restarted after a delay, unless it died too often, all workers failed to start, or it is remote
 *   STOPPED  ended because the server shuts down */
#include "server/workers/internal.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

/* The time that the pool waits for the last frames of a worker that has ended. */
#define LAST_FRAMES_SECONDS 0.3
/* The pause after which no more of these frames are expected. */
#define QUIET_MS 20
/* A worker that was up for this long starts a new count of restarts. */
#define HEALTHY_SECONDS 60.0
/* The delay before a restart. It doubles with each restart. */
#define RESTART_DELAY     0.1
#define RESTART_DELAY_MAX 5.0
/* The time between SHUTDOWN, SIGTERM and SIGKILL. */
#define STOP_STEP_SECONDS 5.0

static void set_timer(um_worker_slot *slot, double seconds) {
    struct timeval t = um_timeval(seconds);
    evtimer_add(slot->timer, &t);
}

static void on_exit_event(evutil_socket_t fd, short what, void *arg);
static void on_timer(evutil_socket_t fd, short what, void *arg);
static void enter_stopped(um_worker_slot *slot);

um_status um_worker_slot_init(um_worker_slot *slot, um_worker_pool *pool, uint16_t index, um_err *err) {
    const um_server_config *c = pool->config;
    *slot = (um_worker_slot){.pool = pool, .index = index, .hints = um_prefix_hints_new()};
    slot->timer = evtimer_new(pool->base, on_timer, slot);
    if (!slot->timer) return um_fail(err, UM_EIO, "can't add a worker's timer to the event loop");
    if (c->in_process || c->remote_workers) return UM_OK; /* these workers choose their devices themselves */
    return um_config_engine_device(c->engine, index, slot->device, &slot->n_sharing, err);
}

void um_worker_slot_free(um_worker_slot *slot) {
    assert(!slot->instance);
    if (slot->timer) event_free(slot->timer);
    um_msg_copy_free(&slot->ready);
    um_msg_copy_free(&slot->stats);
    um_prefix_hints_free(slot->hints);
}

static bool is_process(const um_worker_slot *slot) { return slot->instance && um_worker_instance_pid(slot->instance); }

static void enter(um_worker_slot *slot, um_worker_state state) {
    um_worker_pool *pool = slot->pool;
    bool new = slot->state != state;
    slot->state = state;
    um_worker_pool_update_down_reason(pool);
    if (new && pool->on_change) pool->on_change(pool->on_change_arg, pool);
}

/* Sends SHUTDOWN to a worker. Returns false if the worker will not act on it, because it is not connected, or because
 * it is loading and reads no commands. A remote worker reads SHUTDOWN when it has loaded the model. */
static bool send_shutdown(um_worker_slot *slot) {
    bool is_sent = slot->incarnation && um_worker_pool_send(slot, &(um_msg){.type = UM_MSG_SHUTDOWN});
    return is_sent && !(slot->instance && slot->state == UM_WORKER_LOADING);
}

/* ---- Starting ---------------------------------------------------------------------------------------------------- */

/* Appends the value of one of the server's options as text. */
static void put_option(const um_server_config *c, const char *name, um_buf *out) {
    um_option_get_text(um_options_find(um_server_options, UM_SERVER_OPTIONS, name), c, out);
}

/* Starts the worker process. Options that the workers share divide what the server's options name: threads, memory and
 * devices. */
static um_status start_process(um_worker_slot *slot, um_err *err) {
    um_worker_pool *pool = slot->pool;
    const um_server_config *c = pool->config;
    char threads[24], index[24], incarnation[24], parent[24], share[UM_NUMBER_MAX], gpu_share[UM_NUMBER_MAX];
    um_buf level = {0}, format = {0};
    static const char *const pin_names[] = {[UM_PIN_AUTO] = "auto", [UM_PIN_ON] = "on", [UM_PIN_OFF] = "off"};
    snprintf(threads, sizeof(threads), "%d",
             c->engine->threads ? c->engine->threads : UM_MAX(um_cpu_count() / pool->n_slots, 1));
    snprintf(index, sizeof(index), "%u", slot->index);
    snprintf(incarnation, sizeof(incarnation), "%u", slot->incarnation);
    snprintf(parent, sizeof(parent), "%ld", (long)getpid());
    um_format_float(UM_MAX(c->engine->kv_memory_share / (float)pool->n_slots, 0.001F), share);
    um_format_float(UM_MAX(c->engine->gpu_memory_utilization / (float)slot->n_sharing, 0.01F), gpu_share);
    put_option(c, "log_level", &level);
    put_option(c, "log_format", &format);
    const char *const flags[][2] = {
        {"--config", UM_WORKER_INSTANCE_CONFIG_PATH},
        {"--data-parallel-size", "1"},
        {"--device", slot->device},
        {"--device-ids", "auto"},
        {"--threads", threads},
        {"--pin", pool->n_slots > 1 ? "off" : pin_names[c->engine->pin]}, /* they would choose the same CPUs */
        {"--kv-memory-share", share},
        {"--gpu-memory-utilization", gpu_share},
        {"--index", index},
        {"--incarnation", incarnation},
        {"--parent", parent},
        {"--zmq-command-addr", um_hub_command_addr(pool->hub)},
        {"--zmq-event-addr", um_hub_event_addr(pool->hub)},
        {"--log-level", level.data},
        {"--log-format", format.data},
    };
    const char *argv[2 + 2 * UM_LEN(flags) + 1] = {"unmask", "worker"};
    memcpy(argv + 2, flags, sizeof(flags));
    um_status st =
        um_worker_instance_open_process(&slot->instance, "/proc/self/exe", argv, um_str_of(c->engine_yaml), err);
    um_buf_free(&level);
    um_buf_free(&format);
    return st;
}

static um_status start_thread(um_worker_slot *slot, um_err *err) {
    um_worker_pool *pool = slot->pool;
    um_worker_config w = {.engine = pool->config->engine,
                          .port = um_port_open_local(pool->hub, slot->index, slot->incarnation),
                          .index = slot->index,
                          .incarnation = slot->incarnation,
                          .stats_interval = UM_STATS_SECONDS};
    um_status st = um_worker_instance_open_thread(&slot->instance, &w, err);
    if (st) um_port_close(w.port);
    return st;
}

static void close_instance(um_worker_slot *slot, um_err *how) {
    evtimer_del(slot->timer);
    if (slot->exit_event) event_free(slot->exit_event);
    slot->exit_event = NULL;
    um_worker_instance_close(slot->instance, how);
    slot->instance = NULL;
}

static um_status watch(um_worker_slot *slot, um_err *err) {
    um_err how;
    slot->pid = um_worker_instance_pid(slot->instance);
    slot->exit_event = event_new(slot->pool->base, um_worker_instance_fd(slot->instance), EV_READ, on_exit_event, slot);
    if (slot->exit_event && !event_add(slot->exit_event, NULL)) return UM_OK;
    send_shutdown(slot);
    um_worker_instance_signal(slot->instance, SIGKILL);
    close_instance(slot, &how);
    return um_fail(err, UM_EIO, "can't add the end of a worker to the event loop");
}

static void enter_loading(um_worker_slot *slot) {
    slot->loading = (um_msg_loading){0};
    double timeout = slot->pool->config->start_timeout;
    if (timeout > 0) set_timer(slot, timeout);
    enter(slot, UM_WORKER_LOADING);
}

/* Calls a utility without arguments. Number 0 is that of no call, so that the result is dropped. */
static void send_call(um_worker_slot *slot, const char *name) {
    um_worker_pool_send(slot, &(um_msg){.type = UM_MSG_CALL, .call = {0, um_str_of(name), UM_STR("{}")}});
}

/* Starts a worker. A remote worker is started by its operator and sends HELLO. */
um_status um_worker_slot_start(um_worker_slot *slot, um_err *err) {
    um_worker_pool *pool = slot->pool;
    slot->is_error_final = slot->is_overdue = false;
    slot->up_since = 0;
    slot->n_unanswered = 0;
    if (pool->config->remote_workers) return UM_OK;
    slot->incarnation = slot->incarnation == UINT16_MAX ? 1 : (uint16_t)(slot->incarnation + 1);
    um_status st = pool->config->in_process ? start_thread(slot, err) : start_process(slot, err);
    if (st) return st;
    st = watch(slot, err);
    if (!st) enter_loading(slot);
    return st;
}

void um_worker_slot_on_loading(um_worker_slot *slot, const um_msg_loading *l) {
    if (slot->state != UM_WORKER_LOADING) return;
    slot->loading = *l;
    um_worker_pool_update_down_reason(slot->pool);
}

/* Returns whether the worker has to sleep, because the others do. */
static bool must_sleep(const um_worker_slot *slot) {
    return slot->pool->rest == UM_POOL_ASLEEP || slot->pool->is_sleep_sent;
}

static void send_to_sleep(um_worker_slot *slot) {
    send_call(slot, "sleep");
    enter(slot, UM_WORKER_ASLEEP);
}

void um_worker_slot_on_ready(um_worker_slot *slot, um_str frame) {
    if (slot->state != UM_WORKER_LOADING) return;
    evtimer_del(slot->timer);
    um_msg_copy_set(&slot->ready, frame);
    slot->up_since = um_now();
    slot->error = (um_err){0};
    slot->is_overdue = false;
    slot->pool->ever_up = true;
    um_log(UM_LOG_INFO, "worker %u is up", slot->index);
    if (must_sleep(slot)) {
        send_to_sleep(slot);
        return;
    }
    um_worker_slot_call_remembered(slot);
    enter(slot, UM_WORKER_UP);
}

void um_worker_slot_on_sleep(um_worker_slot *slot) {
    um_log(UM_LOG_INFO, "worker %u sleeps", slot->index);
    um_prefix_hints_clear(slot->hints);
    enter(slot, UM_WORKER_ASLEEP);
}

void um_worker_slot_wake(um_worker_slot *slot) {
    send_call(slot, "wake_up");
    enter_loading(slot);
}

/* ---- Failure ----------------------------------------------------------------------------------------------------- */

bool um_worker_pool_failed(const um_worker_pool *pool, um_err *err) {
    if (pool->ever_up || pool->config->remote_workers) return false;
    for (int32_t i = 0; i < pool->n_slots; i++)
        if (!pool->slot[i].error.code) return false;
    if (!err) return true;
    *err = pool->slot[0].error;
    if (!pool->slot[0].is_error_final) um_fail_in(err, "worker 0");
    return true;
}

/* Logs why a worker died, and schedules a restart unless there were too many. */
static void schedule_restart(um_worker_slot *slot) {
    um_worker_pool *pool = slot->pool;
    int max_restarts = pool->config->restart_backend;
    if (slot->up_since && um_now() - slot->up_since >= HEALTHY_SECONDS) slot->restarts_in_a_row = 0;
    if (pool->is_draining || pool->config->remote_workers || um_worker_pool_failed(pool, NULL)) return;
    if (slot->restarts_in_a_row >= max_restarts) {
        um_log(UM_LOG_ERROR, "worker %u died: %s; not restarted after %d attempts", slot->index, slot->error.msg,
               max_restarts);
        return;
    }
    double delay = RESTART_DELAY;
    for (int i = 0; i < slot->restarts_in_a_row && delay < RESTART_DELAY_MAX; i++) delay *= 2;
    slot->restarts_in_a_row++;
    um_log(UM_LOG_ERROR, "worker %u died: %s; restarting (%d of %d)", slot->index, slot->error.msg,
           slot->restarts_in_a_row, max_restarts);
    set_timer(slot, UM_MIN(delay, RESTART_DELAY_MAX));
}

/* Clears the state of the incarnation that died, and adds its counters to past_totals. */
static void clear_incarnation(um_worker_slot *slot) {
    um_hub_disconnect(slot->pool->hub, slot->index, slot->incarnation);
    if (slot->stats.msg.type) um_totals_add_counts(&slot->pool->past_totals, &slot->stats.msg.stats);
    um_msg_copy_clear(&slot->ready);
    um_msg_copy_clear(&slot->stats);
    slot->decode_rate = 0;
    um_prefix_hints_clear(slot->hints);
    slot->pid = 0;
}

static void fail_all(um_worker_slot *slot) {
    um_err why = {0};
    um_fail(&why, UM_EIO, "worker %u died: %s", slot->index, slot->error.msg);
    um_worker_pool_fail_submissions(slot->pool, slot->index, 503, &why);
    um_worker_pool_fail_calls(slot->pool, slot->index, &why);
}

static void mark_dead(um_worker_slot *slot) {
    clear_incarnation(slot);
    schedule_restart(slot);
    enter(slot, UM_WORKER_DEAD);
    fail_all(slot);
}

void um_worker_slot_on_failed(um_worker_slot *slot, const um_msg_failed *f) {
    um_fail(&slot->error, f->status < 0 ? (um_status)f->status : UM_EIO, "%.*s", (int)f->message.n, f->message.p);
    slot->is_error_final = true;
    if (slot->instance) {
        set_timer(slot, STOP_STEP_SECONDS); /* the instance should end before the timer fires */
        return;
    }
    evtimer_del(slot->timer);
    mark_dead(slot);
}

/* Handles the frames that the worker sent before it ended. They may finish answers, or say why it failed. Frames of a
 * process may still be on their way through ZeroMQ's I/O thread, so this waits for FAILED, a pause, or a timeout. */
static void drain_last_frames(um_worker_slot *slot) {
    um_worker_pool *pool = slot->pool;
    bool may_come = is_process(slot) && slot->state == UM_WORKER_UP && !pool->is_stopping;
    struct pollfd p = {.fd = um_hub_fd(pool->hub), .events = POLLIN};
    double end = um_now() + LAST_FRAMES_SECONDS;
    do um_worker_pool_drain_all(pool);
    while (may_come && !slot->is_error_final && um_now() < end && poll(&p, 1, QUIET_MS) != 0);
}

static void on_exit_event(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    um_worker_slot *slot = arg;
    um_err how;
    drain_last_frames(slot);
    close_instance(slot, &how);
    if (slot->pool->is_stopping) {
        enter_stopped(slot);
        return;
    }
    if (!slot->is_error_final) um_fail(&slot->error, how.code ? how.code : UM_EIO, "%s", how.msg);
    /* FAILED has a better message than the exit status, and may arrive after the process has ended. A worker that was
     * up is marked dead without waiting for it, because its requests wait. */
    if (slot->is_error_final || slot->state != UM_WORKER_LOADING) mark_dead(slot);
    else set_timer(slot, LAST_FRAMES_SECONDS);
}

static void restart(um_worker_slot *slot) {
    um_err err = {0};
    slot->restarts++;
    if (!um_worker_slot_start(slot, &err)) return;
    slot->error = err;
    mark_dead(slot);
}

/* ---- Remote workers ---------------------------------------------------------------------------------------------- */

void um_worker_slot_on_hello(um_worker_slot *slot, const um_msg *msg) {
    if (!slot->pool->config->remote_workers || slot->pool->is_stopping) return;
    if (msg->incarnation == slot->incarnation) return;
    if (slot->incarnation) {
        evtimer_del(slot->timer);
        um_fail(&slot->error, UM_EIO, "another worker took its place");
        clear_incarnation(slot);
        slot->state = UM_WORKER_DEAD;
        fail_all(slot);
        slot->restarts++;
    }
    slot->incarnation = msg->incarnation;
    slot->pid = msg->hello.pid;
    slot->up_since = 0;
    slot->n_unanswered = 0;
    slot->is_error_final = slot->is_overdue = false;
    um_log(UM_LOG_INFO, "worker %u has connected: process %lld, version %.*s", slot->index, (long long)msg->hello.pid,
           (int)msg->hello.version.n, msg->hello.version.p);
    enter_loading(slot);
}

/* ---- Silence ----------------------------------------------------------------------------------------------------- */

/* While a worker was SILENT, it may have fallen asleep or missed the loading of an adapter. So "wake_up" is called when
 * it responds again. A sleeping worker opens the model then, an awake one does nothing, and both send READY. After
 * READY the adapters are loaded. */
void um_worker_slot_on_frame(um_worker_slot *slot) {
    slot->n_unanswered = 0;
    if (slot->state != UM_WORKER_SILENT || is_process(slot)) return;
    slot->error = (um_err){0};
    slot->is_error_final = false;
    um_log(UM_LOG_INFO, "worker %u responds again", slot->index);
    if (must_sleep(slot)) send_to_sleep(slot);
    else um_worker_slot_wake(slot);
}

/* Returns the seconds of silence after which a worker fails. A worker is silent while its ranks wait for each other. It
 * ends by itself within 10 s of --distributed-timeout-seconds and says which rank is missing, so it gets this time. */
static double silence_limit(const um_worker_slot *slot) {
    enum { RANKS_END_WITHIN = 15 };
    const um_server_config *c = slot->pool->config;
    const bool has_ranks = c->engine && (c->engine->tensor_parallel_size > 1 || c->engine->nnodes != 1);
    const double ranks = has_ranks ? (double)c->engine->distributed_timeout_seconds + RANKS_END_WITHIN : 0;
    return UM_MAX((double)c->backend_timeout, ranks);
}

static void mark_silent(um_worker_slot *slot) {
    bool kill = is_process(slot);
    um_fail(&slot->error, UM_EIO, "no sign of life for %g s%s", silence_limit(slot), kill ? ", so it was killed" : "");
    slot->is_error_final = true;
    enter(slot, UM_WORKER_SILENT);
    if (kill) um_worker_instance_signal(slot->instance, SIGKILL); /* on_exit_event follows */
    else um_log(UM_LOG_ERROR, "worker %u: %s", slot->index, slot->error.msg);
    fail_all(slot);
}

/* The worker did not load within --start-timeout. It may be stopped, or hang on a dead network mount. A process is
 * killed. For a thread or a remote worker, which can't be killed, this logs an error. It may still get ready. */
static void on_load_timeout(um_worker_slot *slot) {
    um_worker_pool *pool = slot->pool;
    double timeout = pool->config->start_timeout;
    um_worker_pool_drain_all(pool); /* READY may have just arrived */
    if (slot->state != UM_WORKER_LOADING || slot->is_error_final) return;
    if (is_process(slot)) {
        um_fail(&slot->error, UM_EIO,
                "the model was not loaded within %g s (--start-timeout): process %lld %s; it was killed", timeout,
                (long long)slot->pid, um_worker_instance_process_state(slot->instance));
        slot->is_error_final = true;
        um_worker_instance_signal(slot->instance, SIGKILL); /* on_exit_event follows */
        enter(slot, UM_WORKER_SILENT);
        return;
    }
    slot->is_overdue = true;
    um_worker_pool_update_down_reason(pool);
    um_log(UM_LOG_ERROR, "worker %u: the model is not loaded after %g s (--start-timeout)", slot->index, timeout);
}

/* Pings a worker, or fails it when it has been silent for too long. Silence is counted in unanswered pings and not by
 * the clock. A frontend that was stopped or delayed sent no pings and read no answers in that time, so the time is no
 * silence of the worker. */
static void check_heartbeat(um_worker_slot *slot) {
    const double silence = (double)slot->n_unanswered * slot->pool->heartbeat_interval;
    if (slot->state == UM_WORKER_UP && silence > silence_limit(slot)) {
        mark_silent(slot);
    } else if (slot->state == UM_WORKER_UP || (slot->state == UM_WORKER_SILENT && !is_process(slot))) {
        slot->n_unanswered++;
        um_worker_pool_send(slot, &(um_msg){.type = UM_MSG_PING, .ping = {++slot->n_pings}});
    }
}

void um_worker_pool_heartbeat(um_worker_pool *pool) {
    um_worker_pool_drain_all(pool);
    for (int32_t i = 0; i < pool->n_slots; i++) check_heartbeat(&pool->slot[i]);
}

/* ---- Stopping ---------------------------------------------------------------------------------------------------- */

/* Signal 0 stands for SHUTDOWN, which was sent before. */
static const int stop_signals[] = {0, SIGTERM, SIGKILL};

static void enter_stopped(um_worker_slot *slot) {
    um_worker_pool *pool = slot->pool;
    enter(slot, UM_WORKER_STOPPED);
    for (int32_t i = 0; i < pool->n_slots; i++)
        if (pool->slot[i].state != UM_WORKER_STOPPED) return;
    if (pool->on_stopped) pool->on_stopped(pool->on_stopped_arg);
}

/* Takes the next step to stop a worker. */
static void stop_next(um_worker_slot *slot) {
    if ((size_t)slot->n_stop_steps < UM_LEN(stop_signals))
        um_worker_instance_signal(slot->instance, stop_signals[slot->n_stop_steps++]);
    set_timer(slot, STOP_STEP_SECONDS);
}

void um_worker_slot_stop(um_worker_slot *slot) {
    evtimer_del(slot->timer);
    slot->n_stop_steps = send_shutdown(slot) ? 0 : 1;
    if (slot->instance) stop_next(slot);
    else enter_stopped(slot);
}

void um_worker_pool_stop_now(um_worker_pool *pool) {
    for (int32_t i = 0; i < pool->n_slots; i++)
        if (pool->slot[i].instance && !send_shutdown(&pool->slot[i]))
            um_worker_instance_signal(pool->slot[i].instance, SIGTERM);
    for (size_t k = 0; k < UM_LEN(stop_signals); k++) {
        double end = um_now() + STOP_STEP_SECONDS;
        for (int32_t i = 0; i < pool->n_slots; i++)
            if (pool->slot[i].instance) um_worker_instance_signal(pool->slot[i].instance, stop_signals[k]);
        for (int32_t i = 0; i < pool->n_slots; i++)
            if (pool->slot[i].instance) um_worker_instance_wait(pool->slot[i].instance, UM_MAX(end - um_now(), 0));
    }
    um_err how;
    for (int32_t i = 0; i < pool->n_slots; i++)
        if (pool->slot[i].instance) close_instance(&pool->slot[i], &how);
}

/* ---- The timer --------------------------------------------------------------------------------------------------- */

/* Tells whether the worker is running, or is remote, and has reported neither READY nor FAILED. */
static bool is_loading(const um_worker_slot *slot) {
    bool is_running = slot->instance || slot->pool->config->remote_workers;
    return slot->state == UM_WORKER_LOADING && is_running && !slot->is_error_final;
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    um_worker_slot *slot = arg;
    if (slot->pool->is_stopping) stop_next(slot);
    else if (slot->state == UM_WORKER_DEAD) restart(slot);
    else if (is_loading(slot)) on_load_timeout(slot);
    else if (slot->instance) um_worker_instance_signal(slot->instance, SIGKILL); /* sent FAILED but does not end */
    else mark_dead(slot);                                                        /* ended without FAILED */
}
