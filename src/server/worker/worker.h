/* A worker: a loop that runs one or more engines for the server. It receives commands between steps, steps the engines
 * while they have requests, and sends events. It knows nothing of HTTP.
 *
 * A worker uses one thread, in its own process or in the server's. It does not touch signal handlers, and returns when
 * it ends. A worker without a parent, as on another host, outlives its server. When it loses the connection, it aborts
 * its requests, unloads the adapters that were loaded later, and connects to the same addresses again as a new
 * incarnation, whose counters start at 0. */
#ifndef UM_WORKER_H
#define UM_WORKER_H

#include "server/link/link.h"
#include "server/link/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_worker um_worker;

typedef struct um_worker_config {
    const um_config *engine; /* the worker runs data_parallel_size engines */
    um_port *port;
    uint16_t index, incarnation; /* incarnation: the number at the start; it changes when the worker reconnects */
    int64_t parent; /* id of the process that the worker must not outlive; 0: none, or the worker is a thread */
    /* Called between steps, and between tensors while the model is loaded. True ends the worker. May be NULL. */
    bool (*is_stopped)(void *arg);
    void *is_stopped_arg;
    double stats_interval; /* seconds between STATS messages while requests run */
} um_worker_config;

/* Opens the model, sends READY, and serves until SHUTDOWN; then returns UM_OK. On an error it sends FAILED and returns
 * the error: UM_ECANCELED when the parent has died or is_stopped returned true. Aborts the requests that are left. */
um_status um_worker_run(const um_worker_config *c, um_err *err);

/* A function that the frontend can call by name. It runs between two steps. `args` is JSON. It either returns its
 * result at once, or keeps call_id and returns the result later through um_worker_return. */
typedef struct um_utility {
    const char *name, *args, *summary; /* args: describes the arguments in error messages and docs/wire.md */
    const char *members; /* known keys of the arguments, separated by '|'; others are errors. NULL: any JSON value */
    /* Sets *later to true when um_worker_return will send the result. */
    um_status (*run)(um_worker *w, uint64_t call_id, const struct json_t *args, um_buf *result, bool *later,
                     um_err *err);
} um_utility;
extern const um_utility *const um_utilities[]; /* NULL ends the list */

/* Sends the result of a call, which is JSON, or the error `failed` if that is not NULL. */
void um_worker_return(um_worker *w, uint64_t call_id, um_str result, const um_err *failed);

#ifdef __cplusplus
}
#endif
#endif
