/* A real server on a free port whose workers are the test: it sees what is submitted and says what comes of it. One
 * thread, one loop. */
#ifndef UM_TESTS_SERVER_SCRIPTED_H
#define UM_TESTS_SERVER_SCRIPTED_H

#include "server/turn.h"

#include <stdlib.h>

/* ---- The workers ------------------------------------------------------------------------------------------------- */

#define SUBMITTED_MAX 512
typedef struct submitted {
    um_listener listener;
    void *arg;
    uint64_t rid;
    uint32_t events, n_ids;
    int32_t n;
    bool cancelled, aborted;
} submitted; /* of a dismissed one the listener is who hears how it ended */
static submitted script[SUBMITTED_MAX];
static int32_t n_script;
static int32_t script_room = SUBMITTED_MAX; /* submissions that are taken; further ones get 429 */
static bool script_says_ends;               /* the test tells how a dismissed one ended; else its worker can't say it */

struct um_backend {
    int nothing;
};
static struct um_backend the_backend;

um_status um_backend_new(um_backend **out, struct event_base *base, const um_server_config *c,
                         void (*changed)(void *arg, um_backend *b), void *arg, um_err *err) {
    (void)base, (void)c, (void)changed, (void)arg, (void)err;
    *out = &the_backend;
    return UM_OK;
}
void um_backend_free(um_backend *b) { (void)b; }
int32_t um_backend_size(const um_backend *b) { return (void)b, 0; }
um_worker_view um_backend_worker(const um_backend *b, int32_t i) { return (void)b, (void)i, (um_worker_view){0}; }
bool um_backend_is_up(const um_backend *b) { return (void)b, true; }
const char *um_backend_trouble(const um_backend *b) { return (void)b, ""; }
bool um_backend_failed(const um_backend *b, um_err *err) { return (void)b, (void)err, false; }
void um_backend_stats(const um_backend *b, um_msg_stats *out) { (void)b, *out = (um_msg_stats){0}; }
int32_t um_backend_waiting(const um_backend *b) { return (void)b, 0; }
void um_backend_cancel_all(um_backend *b, const um_err *why) { (void)b, (void)why; }
void um_backend_shutdown(um_backend *b, double grace, void (*done)(void *arg), void *arg) {
    (void)b, (void)grace;
    done(arg);
}
void um_backend_call(um_backend *b, int32_t i, const char *name, um_str args, double timeout, um_call_fn done,
                     void *arg) {
    um_err err;
    (void)b, (void)i, (void)args, (void)timeout;
    done(arg, um_fail(&err, UM_ENOENT, "there is no %s", name), NULL, &err);
}
int um_http_status_of(um_status s) { return s == UM_ENOENT ? 404 : s == UM_EIO ? 500 : 400; }

uint64_t um_backend_submit(um_backend *b, um_msg_generate *g, const um_listener *l, void *arg, int *status,
                           um_err *err) {
    (void)b;
    if (n_script >= script_room) {
        *status = 429;
        um_fail(err, UM_ELIMIT, "the queue is full");
        return 0;
    }
    script[n_script] = (submitted){*l, arg, (uint64_t)n_script + 1, g->events, g->n_ids, g->n, false, false};
    return script[n_script++].rid;
}

void um_backend_cancel(um_backend *b, uint64_t rid) {
    (void)b;
    script[rid - 1].cancelled = true;
}

bool um_backend_dismiss(um_backend *b, uint64_t rid, const um_listener *l, void *arg) {
    submitted *s = &script[rid - 1];
    um_backend_cancel(b, rid);
    s->listener = *l;
    s->arg = arg;
    if (!script_says_ends) (l->fail)(arg, 503, NULL); /* cmocka has a macro of this name */
    return true;
}

void um_backend_abort(um_backend *b, uint64_t rid) { (void)b, script[rid - 1].aborted = true; }

/* ---- The server -------------------------------------------------------------------------------------------------- */

static um_server *server;
static um_config engine_config;
static um_server_config server_config;
static char *server_state_dir; /* NULL: no batches */

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
