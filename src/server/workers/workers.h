/* The worker pool of the frontend. It starts workers as threads (--in-process) or processes, or waits for remote
 * workers to connect. It watches and restarts them, chooses a worker for each request (engine/replica.h), and passes
 * the worker's events to the listener of the request. Belongs to the frontend's thread. */
#ifndef UM_WORKERS_H
#define UM_WORKERS_H

#include "server/config/options.h"
#include "server/link/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

struct event_base;
typedef struct um_worker_pool um_worker_pool;

typedef enum {
    UM_WORKER_LOADING,
    UM_WORKER_UP,
    UM_WORKER_ASLEEP,
    UM_WORKER_SILENT,
    UM_WORKER_DEAD,
    UM_WORKER_STOPPED
} um_worker_state;

/* The status of a worker. Pointers are borrowed and valid until the next turn of the event loop. */
typedef struct um_worker_status {
    um_worker_state state;
    const char *state_name; /* "loading" */
    bool returns;           /* the worker is dead and will be restarted */
    int64_t pid;            /* 0: a thread */
    int32_t restarts;
    const char *error;         /* reason of the last death; "": the worker never died, or is up again */
    double loaded;             /* share of the weights that a loading worker has loaded; -1: it is not loading */
    const um_msg_ready *ready; /* NULL until READY */
    const um_msg_stats *stats; /* the latest STATS message; zeros before the first one */
    /* Tokens per second of denoising, between the last two STATS messages in which any were denoised; 0: none yet. */
    double decode_rate;
    int64_t queued_tokens; /* tokens of requests that have not ended */
    int32_t n_requests;
} um_worker_status;

/* Starts the workers and returns while they load. `changed` (may be NULL) is called when a worker's state changes. */
um_status um_worker_pool_new(um_worker_pool **out, struct event_base *base, const um_server_config *c,
                             void (*changed)(void *arg, um_worker_pool *pool), void *arg, um_err *err);
/* Stops the workers and blocks until they have ended: each gets SHUTDOWN, SIGTERM after 5 s, SIGKILL after 5 more. Open
 * generations and calls fail, and their callbacks are called. NULL is fine. */
void um_worker_pool_free(um_worker_pool *pool);
int32_t um_worker_pool_size(const um_worker_pool *pool);
um_worker_status um_worker_pool_get_status(const um_worker_pool *pool, int32_t i);
/* Tells whether some worker takes requests. */
bool um_worker_pool_is_up(const um_worker_pool *pool);
/* Says in words why no worker takes requests; "" when one does. */
const char *um_worker_pool_down_reason(const um_worker_pool *pool);
/* Tells whether every worker failed before any was up, in which case the program should exit. err (may be NULL) gets
 * the first worker's error. Always false with remote workers. */
bool um_worker_pool_failed(const um_worker_pool *pool, um_err *err);
/* Sums the workers' counters, those of dead workers included, and the gauges of the living. */
void um_worker_pool_get_stats(const um_worker_pool *pool, um_msg_stats *out);

/* The callbacks of a generation. `m` and what it points to are valid until the callback returns. Nothing is called
 * after `fail`, after the last `finish`, or after a cancellation. Callbacks may submit and cancel. */
typedef struct um_submission_listener {
    void (*text)(void *arg, const um_msg_text *m);          /* NULL unless UM_EVENT_TEXT is wanted */
    void (*snapshot)(void *arg, const um_msg_snapshot *m);  /* NULL unless UM_EVENT_SNAPSHOT is wanted */
    void (*finish)(void *arg, const um_msg_finish *m);      /* once for each answer */
    void (*fail)(void *arg, int status, const um_err *err); /* the whole generation failed; status: the HTTP status */
} um_submission_listener;

/* Sends a generation to a worker. Chooses g->rid and returns it (> 0). Everything is copied. Returns 0 when the
 * generation is refused: *status is 429 (max_queue) or 503 (no worker), and err says why. Calls no listener. */
uint64_t um_worker_pool_submit(um_worker_pool *pool, um_msg_generate *g, const um_submission_listener *l, void *arg,
                               int *status, um_err *err);
/* Cancels a generation; its listener is no longer called. Ignores unknown numbers. */
void um_worker_pool_cancel(um_worker_pool *pool, uint64_t rid);
/* Cancels a generation and replaces its listener by `l`, which gets the end of the remaining answers: a `finish` for
 * each, or one `fail`. The generation stops counting against max_queue at once. Returns false if the number is unknown;
 * `l` is then not called. */
bool um_worker_pool_cancel_notify(um_worker_pool *pool, uint64_t rid, const um_submission_listener *l, void *arg);
/* Asks the worker to end a generation early. Its listener gets UM_FINISH_ABORTED, with the tokens so far, for each
 * answer that has not ended. */
void um_worker_pool_abort(um_worker_pool *pool, uint64_t rid);
/* Returns the number of generations that have not ended. */
int32_t um_worker_pool_outstanding(const um_worker_pool *pool);
/* Returns the number of calls that have not ended. */
int32_t um_worker_pool_open_calls(const um_worker_pool *pool);
/* Fails all generations with 503. */
void um_worker_pool_cancel_all(um_worker_pool *pool, const um_err *why);

/* Calls a utility of worker i, of all workers that are up (UM_WORKER_ALL), or of the one with the fewest open calls and
 * the shortest queue (UM_WORKER_ANY). The result of UM_WORKER_ALL is an array with a result for each worker.
 *
 * run_diffusion_generation with UM_WORKER_ALL divides the prompts among the workers that are up. Its result is one
 * list, in the order of the prompts. The first failure of a worker fails the call.
 *
 * `done` is called once, never from inside um_worker_pool_call. It gets UM_ECANCELED after a timeout, and UM_EIO when a
 * worker dies. If several workers of UM_WORKER_ALL fail, it gets an error other than UM_EIO if there is one. `value` is
 * JSON and NUL-terminated. */
enum { UM_WORKER_ALL = -1, UM_WORKER_ANY = -2 };
typedef void (*um_call_fn)(void *arg, um_status s, const char *value, const um_err *err);
void um_worker_pool_call(um_worker_pool *pool, int32_t i, const char *name, um_str args, double timeout,
                         um_call_fn done, void *arg);

/* Remembers a call that every worker gets when it comes up, before it gets requests. Nobody sees its result. `key` is
 * the name under which it is forgotten again; a call with the same key is replaced. */
void um_worker_pool_remember(um_worker_pool *pool, const char *key, const char *name, um_str args);
void um_worker_pool_forget(um_worker_pool *pool, const char *key);

/* Puts the workers to sleep: takes no more requests at once, waits until all requests and calls have ended, and then
 * lets the workers release weights and KV pages. `changed` is called when they have. A worker that is restarted
 * meanwhile goes to sleep as soon as it has loaded. Does nothing while the pool sleeps already. */
void um_worker_pool_sleep(um_worker_pool *pool);
/* Wakes the workers, which load the weights again, or stops waiting for requests to end. */
void um_worker_pool_wake(um_worker_pool *pool);
/* AWAKE: takes requests if a worker is up. DROWSY: waits for requests to end, or for workers to release their memory.
 */
typedef enum { UM_POOL_AWAKE, UM_POOL_DROWSY, UM_POOL_ASLEEP } um_pool_rest;
um_pool_rest um_worker_pool_get_rest(const um_worker_pool *pool);

/* Drains and shuts down: running requests and calls get `grace` seconds, the rest fails, then the workers are stopped.
 * Calls `done` when all workers have ended. A second call replaces `grace` and `done`. */
void um_worker_pool_shutdown(um_worker_pool *pool, double grace, void (*done)(void *arg), void *arg);

/* Returns the HTTP status for an error of the engine: 400 for a bad request, 404 for a model or adapter that does not
 * exist, 500 or 503 for failures of the server. */
int um_http_status_of(um_status s);

#ifdef __cplusplus
}
#endif
#endif
