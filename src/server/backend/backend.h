/* backend: the workers as the frontend sees them. It starts them (threads with --in-process, processes otherwise, or it
 * waits for those of other hosts), watches and restarts them, chooses one for each request (engine/route.h), and brings
 * what they say to whoever asked. Belongs to the frontend's thread. */
#ifndef UM_BACKEND_H
#define UM_BACKEND_H

#include "server/link/wire.h"
#include "server/options.h"

#ifdef __cplusplus
extern "C" {
#endif

struct event_base;
typedef struct um_backend um_backend;

typedef enum { UM_WORKER_LOADING, UM_WORKER_UP, UM_WORKER_SILENT, UM_WORKER_DEAD, UM_WORKER_STOPPED } um_worker_state;

/* What is known of a worker; borrowed, valid until the next turn of the loop. */
typedef struct um_worker_view {
    um_worker_state state;
    const char *state_name; /* "loading" */
    bool returns;           /* it is dead and will be started again */
    int64_t pid;            /* 0: a thread */
    int32_t restarts;
    const char *error;         /* its own words, when it died; "" */
    const um_msg_ready *ready; /* NULL before */
    const um_msg_stats *stats; /* the latest; zeros before */
    double decode_rate;        /* tokens a second of denoising, between the last two reports with any; 0: none yet */
    int64_t queued_tokens;     /* of requests that have not ended */
    int32_t n_requests;
} um_worker_view;

/* Starts the workers; returns at once, they load meanwhile. `changed` (may be NULL) is called when a worker's state
 * changes. */
um_status um_backend_new(um_backend **out, struct event_base *base, const um_server_config *c,
                         void (*changed)(void *arg, um_backend *b), void *arg, um_err *err);
/* Ends workers at once: shut down, terminated after 5 s, killed after 5 more. What is open fails: listeners are called.
 */
void um_backend_free(um_backend *b);
int32_t um_backend_size(const um_backend *b);
um_worker_view um_backend_worker(const um_backend *b, int32_t i);
bool um_backend_is_up(const um_backend *b);          /* some worker takes requests */
const char *um_backend_trouble(const um_backend *b); /* why not, for people; "" when it is up */
/* Could nobody start, not even once? Then err (may be NULL) has their words, and the program had better end. */
bool um_backend_failed(const um_backend *b, um_err *err);
/* Sums over the workers' latest. */
void um_backend_stats(const um_backend *b, um_msg_stats *out);

/* Who hears of a generation. `m` and what it points to live until the call returns. After fail, after the last finish,
 * and after a cancellation nothing comes any more. Callbacks may submit and cancel. */
typedef struct um_listener {
    void (*text)(void *arg, const um_msg_text *m);          /* NULL unless UM_EVENT_TEXT is wanted */
    void (*snapshot)(void *arg, const um_msg_snapshot *m);  /* NULL unless UM_EVENT_SNAPSHOT is */
    void (*finish)(void *arg, const um_msg_finish *m);      /* once for each answer */
    void (*fail)(void *arg, int status, const um_err *err); /* all of it failed, with an HTTP status */
} um_listener;

/* Sends a generation to a worker. g->rid is chosen here and returned (> 0); everything is copied. 0: it was not taken,
 * *status says 429 (max_queue) or 503 (no worker) and err why. The listener is never called from inside. */
uint64_t um_backend_submit(um_backend *b, um_msg_generate *g, const um_listener *l, void *arg, int *status,
                           um_err *err);
void um_backend_cancel(um_backend *b, uint64_t rid); /* unknown: nothing */
/* The same, and `l` hears in place of the old listener what became of the answers that had not ended: a finish for
 * each, or one failure. The place in the queue is free at once. False: unknown, so nothing comes. */
bool um_backend_dismiss(um_backend *b, uint64_t rid, const um_listener *l, void *arg);
/* Ends a generation with what it has: its listener gets UM_FINISH_ABORTED for each answer that has not ended. */
void um_backend_abort(um_backend *b, uint64_t rid);
int32_t um_backend_waiting(const um_backend *b);              /* generations that have not ended */
void um_backend_cancel_all(um_backend *b, const um_err *why); /* listeners fail with 503 */

/* Calls a utility of worker i, -1: of all that are up, whose results come as one array. `done` comes once, never from
 * inside, also when the time is over (UM_ECANCELED) or a worker dies (UM_EIO); value is JSON, NUL-terminated. */
typedef void (*um_call_fn)(void *arg, um_status s, const char *value, const um_err *err);
void um_backend_call(um_backend *b, int32_t i, const char *name, um_str args, double timeout, um_call_fn done,
                     void *arg);

/* Lets running requests go on for `grace` seconds, fails the rest, then ends the workers; `done` when they are gone. A
 * second call gives another grace and another `done`. */
void um_backend_shutdown(um_backend *b, double grace, void (*done)(void *arg), void *arg);

/* The HTTP status that belongs to an engine's error: 400 for what a request did wrong, 404 for what it names and is not
 * there, 500 and 503 for the rest. */
int um_http_status_of(um_status s);

#ifdef __cplusplus
}
#endif
#endif
