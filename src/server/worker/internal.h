/* The parts that the files of a worker share. All belong to the worker's thread. */
#ifndef UM_WORKER_PARTS_H
#define UM_WORKER_PARTS_H

#include "server/worker/worker.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A request of the frontend that has not ended. It is freed when its last answer ends. */
typedef struct um_task {
    um_worker *worker;
    uint64_t rid; /* request number of the frontend */
    int64_t id;   /* request number of the router */
    int32_t left; /* answers that have not ended */
    struct um_task *next;
} um_task;
#define UM_TASK_CHAINS 1024 /* power of two */

/* Histograms of all steps since the last HELLO. */
typedef struct um_step_counts {
    int64_t prefill[UM_STATS_BUCKETS], decode[UM_STATS_BUCKETS], tokens[UM_STATS_BUCKETS];
    int64_t rank_pass[UM_STATS_RANKS_MAX], rank_exchange[UM_STATS_RANKS_MAX]; /* of the last um_worker_get_stats */
    um_stats *seen; /* [engines of the router] their counters at the last call of um_worker_count_steps */
} um_step_counts;

struct um_worker {
    const um_worker_config *config;
    um_port *port;
    uint16_t incarnation;
    um_model *model;               /* NULL while the worker sleeps */
    um_router *router;             /* likewise */
    int32_t n_first_adapters;      /* adapters with which the model was opened; those that follow were loaded later */
    um_msg_stats offset;           /* added to the router's counts: those before a sleep, less those before HELLO */
    bool wakes;                    /* wake_up was called */
    um_task *task[UM_TASK_CHAINS]; /* hash table by rid */
    struct um_score_call *scores;  /* calls of `score` that have not returned */
    um_arena command, event;       /* memory for one command, and for one event */
    um_buf frame;
    um_step_counts counts;
    double stats_at;     /* time of the last STATS message */
    bool is_stats_stale; /* a step has run or a command has come since then */
    bool is_stepping;
    bool is_shut_down;            /* SHUTDOWN was received */
    double loading_at, logged_at; /* times of the last LOADING message, and of the last log line about loading */
};

/* Sends a message with this worker's index and incarnation. */
void um_worker_send(um_worker *w, um_msg *m);
void um_worker_fail_request(um_worker *w, uint64_t rid, const um_err *why);
/* Tells whether an answer ended because the device failed. The worker itself aborts requests only between steps, so an
 * answer that is aborted during a step was lost to the device. The frontend gets no FINISH for such an answer; the
 * FAILED message that follows fails its request. */
bool um_worker_is_device_failure(const um_worker *w, const um_result *r);

/* ---- tasks.c ---- */
void um_worker_generate(um_worker *w, const um_msg_generate *g);
void um_worker_abort(um_worker *w, uint64_t rid);
/* Returns the frontend's number of a request of the router; 0: the request is of a utility. */
uint64_t um_worker_rid(const um_worker *w, int64_t id);

/* ---- stats.c ---- */
/* Adds the steps since the last call to the histograms. Called after every step of the router. */
void um_worker_count_steps(um_worker *w);
/* Returns the counters since the last HELLO. The histograms point into the worker. */
void um_worker_get_stats(um_worker *w, um_msg_stats *out);
/* Starts the counters of a new incarnation at 0: a server keeps those of the previous one and adds them. */
void um_worker_restart_stats(um_worker *w);

/* ---- utilities.c ---- */
void um_worker_call(um_worker *w, const um_msg_call *c);

/* ---- utility_generate.c ---- */
extern const um_utility um_utility_generate;
/* ---- utility_score.c ---- */
extern const um_utility um_utility_score, um_utility_abort_scores;

#ifdef __cplusplus
}
#endif
#endif
