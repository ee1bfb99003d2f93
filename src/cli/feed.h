/* feed: pushes many requests through engines and takes what came of them in the order they were read.
 *
 * No more than a window of requests is in memory: a few per place in the engines, finished ones that wait for an
 * earlier one included. One thread. */
#ifndef UM_CLI_FEED_H
#define UM_CLI_FEED_H

#include "base/base.h"

/* What a caller gathers of one answer of a request; empty when `next` gets the ticket. */
typedef struct um_gathered {
    um_buf out, trace;
    um_jw writer; /* over `trace` */
} um_gathered;

/* One request on its way. */
typedef struct um_ticket {
    int64_t number; /* place in the order of reading, from 0 */
    um_err err;     /* code UM_OK until the request failed: in `next`, or when the engine refused it */

    /* The caller's; empty when `next` gets the ticket. */
    int64_t line;
    bool step_map, timings; /* what its results say beside the answers */
    bool broken;            /* the model predicted nothing */
    um_buf id, out;
    um_gathered *answer; /* [n_answers] by um_event.index */
    int32_t n_answers;   /* that the request asks for */

    int64_t engine_id; /* 0: not in the engine */
    int32_t n_open;    /* answers that have not ended */
    int32_t n_room;    /* of `answer`, which is kept for later requests */
    struct um_feed_state *state;
} um_ticket;

typedef enum { UM_FEED_REQUEST, UM_FEED_LATER, UM_FEED_END } um_feed_got;

typedef struct um_feed {
    void *arg;
    unsigned events; /* UM_EVENT_* that `event` wants; FINISH always comes */
    /* Fills in the next request, set up with um_request_init before; its strings live until the next call. t->err set:
     * the request failed before it reached the engine. `wait`: may block, as nothing else is to be done. */
    um_feed_got (*next)(void *arg, um_ticket *t, um_request *r, bool wait);
    void (*event)(void *arg, um_ticket *t, const um_event *ev);
    /* A finished or failed request, in the order of `next`. What it returns, if not UM_OK, ends the run. */
    um_status (*take)(void *arg, um_ticket *t, um_err *err);
    void (*tick)(void *arg); /* after each step; may be NULL */
} um_feed;

/* Runs until `next` has no more, with up to `places` requests running at once in each of the router's engines. Errors:
 * that of `take`, that of the device; UM_ECANCELED when a signal came. What is unfinished then is aborted without an
 * event. */
um_status um_feed_run(um_router *r, int32_t places, const um_feed *f, um_err *err);

#endif
