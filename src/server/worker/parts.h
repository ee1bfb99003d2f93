/* worker_parts: what the files of a worker share. One thread: the worker's. */
#ifndef UM_WORKER_PARTS_H
#define UM_WORKER_PARTS_H

#include "server/worker/worker.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A request of the frontend that has not ended. It is freed with its last answer. */
typedef struct um_task {
    um_worker *worker;
    uint64_t rid; /* the frontend's number */
    int64_t id;   /* the router's */
    int32_t left; /* answers that have not ended */
    struct um_task *next;
} um_task;
#define UM_TASK_CHAINS 1024 /* power of two */

/* Counts per bucket, of steps since the start. */
typedef struct um_step_counts {
    int64_t prefill[UM_STATS_BUCKETS], decode[UM_STATS_BUCKETS], tokens[UM_STATS_BUCKETS];
    um_stats *seen; /* [engines of the router] their counters when the last step was counted */
} um_step_counts;

struct um_worker {
    const um_worker_config *config;
    um_port *port;
    uint16_t incarnation;
    um_model *model;
    um_router *router;
    um_task *task[UM_TASK_CHAINS]; /* by rid */
    um_arena command, event;       /* what one of them needs */
    um_buf frame;
    um_step_counts counts;
    double stats_at;     /* when the last ones were sent */
    bool is_stats_stale; /* something happened since */
    bool is_over;
};

/* Sends a message as this worker's. */
void um_worker_send(um_worker *w, um_msg *m);
void um_worker_fail_request(um_worker *w, uint64_t rid, const um_err *why);

/* ---- tasks.c: requests of the frontend ---- */
void um_worker_generate(um_worker *w, const um_msg_generate *g);
void um_worker_abort(um_worker *w, uint64_t rid);
/* The frontend's number of a request of the router; 0: it is none of the frontend's. */
uint64_t um_worker_rid(const um_worker *w, int64_t id);

/* ---- stats.c ---- */
void um_worker_count_steps(um_worker *w); /* those since the last call */
/* The current numbers; histograms point into the worker. */
void um_worker_get_stats(const um_worker *w, um_msg_stats *out);

/* ---- utilities.c ---- */
void um_worker_call(um_worker *w, const um_msg_call *c);
extern const um_utility um_utility_generate; /* utility_generate.c */

#ifdef __cplusplus
}
#endif
#endif
