/* worker: an engine behind a port. It takes commands between steps, steps while requests run, and says what happens.
 * It knows nothing of HTTP.
 *
 * One thread, of a process of its own or of the frontend's: a worker leaves signals alone and returns when it ends. One
 * without a parent, as on another host, outlives its server: when the link breaks it aborts what runs and introduces
 * itself again, as the next incarnation, to whoever listens at the same addresses. */
#ifndef UM_WORKER_H
#define UM_WORKER_H

#include "server/link/link.h"
#include "server/link/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_worker um_worker;

typedef struct um_worker_config {
    const um_config *engine; /* data_parallel_size engines live in this worker */
    um_port *port;
    uint16_t index, incarnation; /* its first one */
    int64_t parent;              /* process that started this one and that it must not outlive, 0 = none, or a thread */
    bool (*is_stopped)(void);    /* asked between steps: end now? NULL: never */
    double stats_interval;       /* seconds between UM_MSG_STATS while it works */
} um_worker_config;

/* Opens the model, says READY, and serves until SHUTDOWN: UM_OK. What could not start or had to end says FAILED before
 * the error is returned; UM_ECANCELED when the parent is gone or is_stopped said so. What is left in the engine then is
 * aborted. */
um_status um_worker_run(const um_worker_config *c, um_err *err);

/* A function that the frontend may call by name. It runs between two steps; `args` is JSON. Either it returns its
 * result at once, or it keeps call_id and answers later through um_worker_return. */
typedef struct um_utility {
    const char *name, *args, *summary; /* args: what it takes, for people */
    const char *members; /* of its arguments, separated by '|'; others are refused. NULL: it takes anything */
    /* UM_OK and *later: the answer follows. */
    um_status (*run)(um_worker *w, uint64_t call_id, const struct json_t *args, um_buf *result, bool *later,
                     um_err *err);
} um_utility;
extern const um_utility *const um_utilities[]; /* NULL ends the list */

/* Answers a call: result is JSON; failed, if not NULL, is why there is none. */
void um_worker_return(um_worker *w, uint64_t call_id, um_str result, const um_err *failed);

#ifdef __cplusplus
}
#endif
#endif
