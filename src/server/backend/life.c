/* The life of a worker.
 *
 *   LOADING  it was started, or a remote one is awaited, until it says READY. A process that takes too long is killed
 *   UP       takes requests
 *   SILENT   nothing came from it for too long. A process is killed; a thread or a remote one may come back
 *   DEAD     started again after a pause, unless it died too often, could not start at all, or is a remote one
 *   STOPPED  ended because it was told to
 */
#include "server/backend/parts.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#define WORDS_SECONDS    0.3  /* that the last words of a dead worker may take to arrive */
#define HEALTHY_SECONDS  60.0 /* after which earlier deaths do not count any more */
#define PAUSE_SECONDS    0.1  /* before another start, doubled each time */
#define PAUSE_MAX        5.0
#define PATIENCE_SECONDS 5.0 /* between telling, terminating and killing */

static void arm(um_member *m, double seconds) {
    struct timeval t = um_timeval(seconds);
    evtimer_add(m->timer, &t);
}

static void on_end(evutil_socket_t fd, short what, void *arg); /* of a vessel */
static void on_timer(evutil_socket_t fd, short what, void *arg);
static void enter_stopped(um_member *m);

um_status um_member_init(um_member *m, um_backend *b, uint16_t index, um_err *err) {
    *m = (um_member){.backend = b, .index = index, .recent = um_recent_new()};
    m->timer = evtimer_new(b->base, on_timer, m);
    return m->timer ? UM_OK : um_fail(err, UM_EIO, "the event loop refused a worker's timer");
}

void um_member_free(um_member *m) {
    assert(!m->vessel);
    if (m->timer) event_free(m->timer);
    um_kept_free(&m->ready);
    um_kept_free(&m->stats);
    um_recent_free(m->recent);
}

static bool is_process(const um_member *m) { return m->vessel && um_vessel_pid(m->vessel); }

static void enter(um_member *m, um_worker_state state) {
    um_backend *b = m->backend;
    bool new = m->state != state;
    m->state = state;
    um_backend_describe(b);
    if (new && b->changed) b->changed(b->changed_arg, b);
}

/* Tells a worker to end. False: it does not hear it. One that loads does not listen. */
static bool tell_end(um_member *m) {
    bool told = m->incarnation && um_backend_send(m, &(um_msg){.type = UM_MSG_SHUTDOWN});
    return told && !(is_process(m) && m->state == UM_WORKER_LOADING);
}

/* ---- Starting ---------------------------------------------------------------------------------------------------- */

/* Cores that this process may use. */
static int n_cores(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* The value of one of the server's options, as text. */
static void put_option(const um_server_config *c, const char *name, um_buf *out) {
    um_option_get_text(um_options_find(um_server_options, UM_SERVER_OPTIONS, name), c, out);
}

static um_status start_process(um_member *m, um_err *err) {
    um_backend *b = m->backend;
    const um_server_config *c = b->config;
    char threads[24], index[24], incarnation[24], parent[24], share[UM_NUMBER_MAX];
    um_buf level = {0}, format = {0};
    snprintf(threads, sizeof(threads), "%d",
             c->engine->threads ? c->engine->threads : UM_MAX(n_cores() / b->n_members, 1));
    snprintf(index, sizeof(index), "%u", m->index);
    snprintf(incarnation, sizeof(incarnation), "%u", m->incarnation);
    snprintf(parent, sizeof(parent), "%ld", (long)getpid());
    um_format_float(UM_MAX(c->engine->kv_memory_share / (float)b->n_members, 0.001F), share);
    put_option(c, "log_level", &level);
    put_option(c, "log_format", &format);
    const char *const flags[][2] = {
        {"--config", UM_VESSEL_CONFIG_PATH},
        {"--data-parallel-size", "1"},
        {"--threads", threads},
        {"--kv-memory-share", share},
        {"--index", index},
        {"--incarnation", incarnation},
        {"--parent", parent},
        {"--zmq-command-addr", um_hub_command_addr(b->hub)},
        {"--zmq-event-addr", um_hub_event_addr(b->hub)},
        {"--log-level", level.data},
        {"--log-format", format.data},
    };
    const char *argv[2 + 2 * UM_LEN(flags) + 1] = {"unmask", "worker"};
    memcpy(argv + 2, flags, sizeof(flags));
    um_status st = um_vessel_open_process(&m->vessel, "/proc/self/exe", argv, um_str_of(c->engine_yaml), err);
    um_buf_free(&level);
    um_buf_free(&format);
    return st;
}

static um_status start_thread(um_member *m, um_err *err) {
    um_backend *b = m->backend;
    um_worker_config w = {.engine = b->config->engine,
                          .port = um_port_open_local(b->hub, m->index, m->incarnation),
                          .index = m->index,
                          .incarnation = m->incarnation,
                          .stats_interval = UM_STATS_SECONDS};
    um_status st = um_vessel_open_thread(&m->vessel, &w, err);
    if (st) um_port_close(w.port);
    return st;
}

static void close_vessel(um_member *m, um_err *how) {
    evtimer_del(m->timer);
    if (m->ended) event_free(m->ended);
    m->ended = NULL;
    um_vessel_close(m->vessel, how);
    m->vessel = NULL;
}

static um_status watch(um_member *m, um_err *err) {
    um_err how;
    m->pid = um_vessel_pid(m->vessel);
    m->ended = event_new(m->backend->base, um_vessel_fd(m->vessel), EV_READ, on_end, m);
    if (m->ended && !event_add(m->ended, NULL)) return UM_OK;
    tell_end(m);
    um_vessel_signal(m->vessel, SIGKILL);
    close_vessel(m, &how);
    return um_fail(err, UM_EIO, "the event loop refused the end of a worker");
}

static void enter_loading(um_member *m) {
    double most = m->backend->config->start_timeout;
    if (most > 0) arm(m, most);
    enter(m, UM_WORKER_LOADING);
}

/* A remote worker starts by itself, and says HELLO. */
um_status um_member_start(um_member *m, um_err *err) {
    um_backend *b = m->backend;
    m->has_spoken = m->is_late = false;
    m->up_since = m->asked = 0;
    if (b->config->remote_workers) return UM_OK;
    m->incarnation = m->incarnation == UINT16_MAX ? 1 : (uint16_t)(m->incarnation + 1);
    um_status st = b->config->in_process ? start_thread(m, err) : start_process(m, err);
    if (st) return st;
    st = watch(m, err);
    if (!st) enter_loading(m);
    return st;
}

void um_member_said_ready(um_member *m, um_str frame) {
    if (m->state != UM_WORKER_LOADING) return;
    evtimer_del(m->timer);
    um_kept_set(&m->ready, frame);
    m->up_since = um_now();
    m->words = (um_err){0};
    m->is_late = false;
    m->backend->ever_up = true;
    um_log(UM_LOG_INFO, "worker %u is up", m->index);
    enter(m, UM_WORKER_UP);
}

/* ---- Death ------------------------------------------------------------------------------------------------------- */

/* Nobody has ever been up, and everybody tried. */
bool um_backend_failed(const um_backend *b, um_err *err) {
    if (b->ever_up || b->config->remote_workers) return false;
    for (int32_t i = 0; i < b->n_members; i++)
        if (!b->member[i].words.code) return false;
    if (!err) return true;
    *err = b->member[0].words;
    if (!b->member[0].has_spoken) um_fail_in(err, "worker 0");
    return true;
}

/* Says why, and plans another start. */
static void plan_start(um_member *m) {
    um_backend *b = m->backend;
    int most = b->config->restart_backend;
    if (m->up_since && um_now() - m->up_since >= HEALTHY_SECONDS) m->in_a_row = 0;
    if (b->stopping || b->config->remote_workers || um_backend_failed(b, NULL)) return;
    if (m->in_a_row >= most) {
        um_log(UM_LOG_ERROR, "worker %u died: %s; it is not started again after %d times", m->index, m->words.msg,
               most);
        return;
    }
    double pause = PAUSE_SECONDS;
    for (int i = 0; i < m->in_a_row && pause < PAUSE_MAX; i++) pause *= 2;
    m->in_a_row++;
    um_log(UM_LOG_ERROR, "worker %u died: %s; it is started again (%d of %d)", m->index, m->words.msg, m->in_a_row,
           most);
    arm(m, UM_MIN(pause, PAUSE_MAX));
}

/* Takes leave of what the worker had and knew. */
static void forget(um_member *m) {
    um_hub_forget(m->backend->hub, m->index, m->incarnation);
    if (m->stats.msg.type) um_totals_add_counts(&m->backend->past, &m->stats.msg.stats);
    um_kept_forget(&m->ready);
    um_kept_forget(&m->stats);
    m->decode_rate = 0;
    um_recent_clear(m->recent);
    m->pid = 0;
}

static void fail_all(um_member *m) {
    um_err why = {0};
    um_fail(&why, UM_EIO, "worker %u died: %s", m->index, m->words.msg);
    um_backend_fail_open(m->backend, m->index, 503, &why);
    um_backend_fail_calls(m->backend, m->index, &why);
}

static void bury(um_member *m) {
    forget(m);
    plan_start(m);
    enter(m, UM_WORKER_DEAD);
    fail_all(m);
}

void um_member_said_failed(um_member *m, const um_msg_failed *f) {
    um_fail(&m->words, f->status < 0 ? (um_status)f->status : UM_EIO, "%.*s", (int)f->message.n, f->message.p);
    m->has_spoken = true;
    if (m->vessel) {
        arm(m, PATIENCE_SECONDS); /* its end should follow */
        return;
    }
    evtimer_del(m->timer);
    bury(m);
}

static void on_end(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    um_member *m = arg;
    um_err how;
    um_backend_drain(m->backend); /* last words may be there */
    close_vessel(m, &how);
    if (m->backend->ending) {
        enter_stopped(m);
        return;
    }
    if (!m->has_spoken) um_fail(&m->words, how.code ? how.code : UM_EIO, "%s", how.msg);
    /* Words are better than what we can say, and may come later than the end, through another door. One that was up is
     * buried at once, for requests wait. */
    if (m->has_spoken || m->state != UM_WORKER_LOADING) bury(m);
    else arm(m, WORDS_SECONDS);
}

static void start_again(um_member *m) {
    um_err err = {0};
    m->restarts++;
    if (!um_member_start(m, &err)) return;
    m->words = err;
    bury(m);
}

/* ---- Remote workers ---------------------------------------------------------------------------------------------- */

void um_member_said_hello(um_member *m, const um_msg *msg) {
    if (!m->backend->config->remote_workers) return;
    if (msg->incarnation == m->incarnation) return;
    if (m->incarnation) {
        evtimer_del(m->timer);
        um_fail(&m->words, UM_EIO, "another one took its place");
        forget(m);
        m->state = UM_WORKER_DEAD;
        fail_all(m);
        m->restarts++;
    }
    m->incarnation = msg->incarnation;
    m->pid = msg->hello.pid;
    m->asked = m->up_since = 0;
    m->has_spoken = m->is_late = false;
    um_log(UM_LOG_INFO, "worker %u is here: process %lld, version %.*s", m->index, (long long)msg->hello.pid,
           (int)msg->hello.version.n, msg->hello.version.p);
    enter_loading(m);
}

/* ---- Silence ----------------------------------------------------------------------------------------------------- */

void um_member_heard(um_member *m) {
    m->asked = 0;
    if (m->state != UM_WORKER_SILENT || is_process(m)) return;
    m->words = (um_err){0};
    um_log(UM_LOG_INFO, "worker %u has come back", m->index);
    enter(m, UM_WORKER_UP);
}

static void silence(um_member *m) {
    bool kill = is_process(m);
    um_fail(&m->words, UM_EIO, "no sign of life for %g s%s", (double)m->backend->config->backend_timeout,
            kill ? ", so it was killed" : "");
    m->has_spoken = true;
    enter(m, UM_WORKER_SILENT);
    if (kill) um_vessel_signal(m->vessel, SIGKILL); /* which works for a stopped one, too; its end follows */
    else um_log(UM_LOG_ERROR, "worker %u: %s", m->index, m->words.msg);
    fail_all(m);
}

/* It hangs while it loads: it was stopped, or it reads a file that never comes, as from a mount that is dead. A thread
 * or a remote worker can't be ended from here, so it is said, and it may still get ready. */
static void overdue(um_member *m) {
    um_backend *b = m->backend;
    double most = b->config->start_timeout;
    um_backend_drain(b); /* it may just have said READY */
    if (m->state != UM_WORKER_LOADING || m->has_spoken) return;
    if (is_process(m)) {
        um_fail(&m->words, UM_EIO,
                "the model was not loaded within %g s (--start-timeout): process %lld %s; it was killed", most,
                (long long)m->pid, um_vessel_doing(m->vessel));
        m->has_spoken = true;
        um_vessel_signal(m->vessel, SIGKILL); /* its end follows */
        enter(m, UM_WORKER_SILENT);
        return;
    }
    m->is_late = true;
    um_backend_describe(b);
    um_log(UM_LOG_ERROR, "worker %u: the model is not loaded after %g s (--start-timeout)", m->index, most);
}

/* Silence counts from a ping that nothing came after, so that a pause of our own is not taken for the worker's. */
static void beat(um_member *m) {
    double now = um_now();
    if (m->state == UM_WORKER_UP && m->asked && now - m->asked > m->backend->config->backend_timeout) {
        silence(m);
    } else if (m->state == UM_WORKER_UP || (m->state == UM_WORKER_SILENT && !is_process(m))) {
        if (!m->asked) m->asked = now;
        um_backend_send(m, &(um_msg){.type = UM_MSG_PING, .ping = {++m->n_pings}});
    }
}

void um_backend_beat(um_backend *b) {
    um_backend_drain(b);
    for (int32_t i = 0; i < b->n_members; i++) beat(&b->member[i]);
}

/* ---- The end ----------------------------------------------------------------------------------------------------- */

static const int steps[] = {0, SIGTERM, SIGKILL}; /* first it is told; 0 is no signal */

static void enter_stopped(um_member *m) {
    um_backend *b = m->backend;
    enter(m, UM_WORKER_STOPPED);
    for (int32_t i = 0; i < b->n_members; i++)
        if (b->member[i].state != UM_WORKER_STOPPED) return;
    if (b->stopped) b->stopped(b->stopped_arg);
}

/* The next step to end it. A thread can only be waited for. */
static void press(um_member *m) {
    if ((size_t)m->n_steps < UM_LEN(steps)) um_vessel_signal(m->vessel, steps[m->n_steps++]);
    arm(m, PATIENCE_SECONDS);
}

void um_member_end(um_member *m) {
    evtimer_del(m->timer);
    m->n_steps = tell_end(m) ? 0 : 1;
    if (m->vessel) press(m);
    else enter_stopped(m);
}

void um_backend_end_now(um_backend *b) {
    for (int32_t i = 0; i < b->n_members; i++)
        if (b->member[i].vessel && !tell_end(&b->member[i])) um_vessel_signal(b->member[i].vessel, SIGTERM);
    for (size_t k = 0; k < UM_LEN(steps); k++) {
        double end = um_now() + PATIENCE_SECONDS;
        for (int32_t i = 0; i < b->n_members; i++)
            if (b->member[i].vessel) um_vessel_signal(b->member[i].vessel, steps[k]);
        for (int32_t i = 0; i < b->n_members; i++)
            if (b->member[i].vessel) um_vessel_wait(b->member[i].vessel, UM_MAX(end - um_now(), 0));
    }
    um_err how;
    for (int32_t i = 0; i < b->n_members; i++)
        if (b->member[i].vessel) close_vessel(&b->member[i], &how);
}

/* ---- Time -------------------------------------------------------------------------------------------------------- */

/* Somebody is there, and has not said how it went. */
static bool is_loading(const um_member *m) {
    bool is_there = m->vessel || m->backend->config->remote_workers;
    return m->state == UM_WORKER_LOADING && is_there && !m->has_spoken;
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    um_member *m = arg;
    if (m->backend->ending) press(m);
    else if (m->state == UM_WORKER_DEAD) start_again(m);
    else if (is_loading(m)) overdue(m);
    else if (m->vessel) um_vessel_signal(m->vessel, SIGKILL); /* it failed and does not end */
    else bury(m);                                             /* it ended without a word */
}
