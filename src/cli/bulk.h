/* bulk: runs many requests on the engines of a router and delivers the results in the order of the requests.
 *
 * Memory holds a limited window of requests, a few per slot of the engines. The window includes finished requests that
 * wait for an earlier one. Single-threaded. */
#ifndef UM_CLI_BULK_H
#define UM_CLI_BULK_H

#include "base/base.h"

/* Buffers for the caller, one for each answer of a request. They are empty when `next` is called. */
typedef struct um_bulk_answer {
    um_buf out, trace;
    um_jw writer; /* writes to `trace` */
} um_bulk_answer;

/* A request of the window. */
typedef struct um_bulk_request {
    int64_t number; /* index of the request, from 0 */
    um_err err;     /* error of `next` or of the submission; code UM_OK: none */

    /* For the caller. Zero or empty when `next` is called. */
    int64_t line;
    bool step_map, timings; /* optional parts of the result */
    const char *failure;    /* why an answer is of no use; NULL: none is */
    bool is_raw;            /* the prompt did not go through a chat template */
    um_buf id, out;
    um_bulk_answer *answer; /* [n_answers], indexed by um_event.index */
    int32_t n_answers;      /* number of answers that the request asks for */

    int64_t engine_id; /* id from um_router_add; 0: not submitted */
    int32_t n_open;    /* answers that have not finished */
    int32_t n_room;    /* allocated entries of `answer`, which later requests reuse */
    struct um_bulk_state *state;
} um_bulk_request;

/* The result of `next`: a request, no request at the moment, or the end of the requests. */
typedef enum { UM_BULK_REQUEST, UM_BULK_LATER, UM_BULK_END } um_bulk_got;

typedef struct um_bulk {
    void *arg;
    unsigned events; /* UM_EVENT_* that `event` receives in addition to FINISH */
    /* Fills in the next request, which was set up with um_request_init. Its strings must live until the next call. If
     * the request is invalid, sets t->err. `wait`: the function may block, because nothing else is running. */
    um_bulk_got (*next)(void *arg, um_bulk_request *t, um_request *r, bool wait);
    void (*event)(void *arg, um_bulk_request *t, const um_event *ev);
    /* Takes a finished or failed request, in the order of `next`. A status other than UM_OK ends the run. */
    um_status (*take)(void *arg, um_bulk_request *t, um_err *err);
    void (*tick)(void *arg); /* called after each step; may be NULL */
} um_bulk;

/* Runs until `next` reports the end, with up to `places` requests at once in each engine of the router. Errors: that of
 * `take`, that of the device; UM_ECANCELED after a signal. On an error, unfinished requests are aborted. `event` gets
 * their FINISH only if the device failed. */
um_status um_bulk_run(um_router *r, int32_t places, const um_bulk *bulk, um_err *err);

#endif
