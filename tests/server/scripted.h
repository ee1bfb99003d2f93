/* A real server on a free port with a fake worker pool. It records the submitted requests in `script`, and the test
 * calls their listeners. One thread, one loop. */
#ifndef UM_TESTS_SERVER_SCRIPTED_H
#define UM_TESTS_SERVER_SCRIPTED_H

#include "server/frontend.h"
#include "server/generate/generation.h"

#include <stdlib.h>

/* ---- The workers ------------------------------------------------------------------------------------------------- */

#define SUBMITTED_MAX 512
/* A request that the server submitted. After a cancellation `listener` and `arg` are those that were passed to
 * um_worker_pool_cancel_notify. */
typedef struct submitted {
    um_submission_listener listener;
    void *arg;
    uint64_t rid;
    uint32_t events, n_ids;
    int32_t n;
    bool cancelled, aborted;
} submitted;
static submitted script[SUBMITTED_MAX];
static int32_t n_script;
static int32_t script_limit = SUBMITTED_MAX; /* limit of n_script; further submissions get 429 */
/* True: the test reports the ends of canceled requests. False: they fail at once, as if their worker was lost. */
static bool script_reports_canceled;
static um_pool_rest script_rest; /* what um_worker_pool_get_rest returns */

struct um_worker_pool {
    int nothing;
};
static struct um_worker_pool the_pool;

um_status um_worker_pool_new(um_worker_pool **out, struct event_base *base, const um_server_config *c,
                             void (*changed)(void *arg, um_worker_pool *p), void *arg, um_err *err) {
    (void)base, (void)c, (void)changed, (void)arg, (void)err;
    *out = &the_pool;
    return UM_OK;
}
void um_worker_pool_free(um_worker_pool *p) { (void)p; }
int32_t um_worker_pool_size(const um_worker_pool *p) { return (void)p, 0; }
um_worker_status um_worker_pool_get_status(const um_worker_pool *p, int32_t i) {
    return (void)p, (void)i, (um_worker_status){0};
}
bool um_worker_pool_is_up(const um_worker_pool *p) { return (void)p, true; }
const char *um_worker_pool_down_reason(const um_worker_pool *p) { return (void)p, ""; }
bool um_worker_pool_failed(const um_worker_pool *p, um_err *err) { return (void)p, (void)err, false; }
void um_worker_pool_get_stats(const um_worker_pool *p, um_msg_stats *out) { (void)p, *out = (um_msg_stats){0}; }
int32_t um_worker_pool_outstanding(const um_worker_pool *p) { return (void)p, 0; }
int32_t um_worker_pool_open_calls(const um_worker_pool *p) { return (void)p, 0; }
void um_worker_pool_cancel_all(um_worker_pool *p, const um_err *why) { (void)p, (void)why; }
void um_worker_pool_shutdown(um_worker_pool *p, double grace, void (*done)(void *arg), void *arg) {
    (void)p, (void)grace;
    done(arg);
}
void um_worker_pool_call(um_worker_pool *p, int32_t i, const char *name, um_str args, double timeout, um_call_fn done,
                         void *arg) {
    um_err err;
    (void)p, (void)i, (void)args, (void)timeout;
    done(arg, um_fail(&err, UM_ENOENT, "there is no %s", name), NULL, &err);
}
void um_worker_pool_sleep(um_worker_pool *p) { (void)p; }
void um_worker_pool_wake(um_worker_pool *p) { (void)p; }
um_pool_rest um_worker_pool_get_rest(const um_worker_pool *p) { return (void)p, script_rest; }
void um_worker_pool_remember(um_worker_pool *p, const char *key, const char *name, um_str args) {
    (void)p, (void)key, (void)name, (void)args;
}
void um_worker_pool_forget(um_worker_pool *p, const char *key) { (void)p, (void)key; }
int um_http_status_of(um_status s) { return s == UM_ENOENT ? 404 : s == UM_EIO ? 500 : 400; }

uint64_t um_worker_pool_submit(um_worker_pool *p, um_msg_generate *g, const um_submission_listener *l, void *arg,
                               int *status, um_err *err) {
    (void)p;
    if (n_script >= script_limit) {
        *status = 429;
        um_fail(err, UM_ELIMIT, "the queue is full");
        return 0;
    }
    script[n_script] = (submitted){*l, arg, (uint64_t)n_script + 1, g->events, g->n_ids, g->n, false, false};
    return script[n_script++].rid;
}

void um_worker_pool_cancel(um_worker_pool *p, uint64_t rid) {
    (void)p;
    script[rid - 1].cancelled = true;
}

bool um_worker_pool_cancel_notify(um_worker_pool *p, uint64_t rid, const um_submission_listener *l, void *arg) {
    submitted *s = &script[rid - 1];
    um_worker_pool_cancel(p, rid);
    s->listener = *l;
    s->arg = arg;
    if (!script_reports_canceled) (l->fail)(arg, 503, NULL); /* the parentheses avoid cmocka's macro `fail` */
    return true;
}

void um_worker_pool_abort(um_worker_pool *p, uint64_t rid) { (void)p, script[rid - 1].aborted = true; }

/* ---- The server -------------------------------------------------------------------------------------------------- */

static um_server *server;
static um_config engine_config;
static um_server_config server_config;
static char *server_state_dir; /* NULL: files and batches are off */

static void open_server(void) {
    um_err err;
    um_config_init(&engine_config);
    engine_config.model = "models/tiny-block";
    um_options_init(um_server_options, UM_SERVER_OPTIONS, &server_config);
    server_config.engine = &engine_config;
    server_config.port = 0;
    server_config.access_log = false;
    server_config.state_dir = server_state_dir;
    server_config.tool_call_parser = "hermes";
    server_config.reasoning_parser = "think";
    if (um_server_new(&server, &server_config, &err) == UM_OK) return;
    fprintf(stderr, "%s\n", err.msg);
    abort();
}

#endif
