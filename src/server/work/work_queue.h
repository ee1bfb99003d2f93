/* A queue of background jobs, and the threads that run them, for work that would block the event loop too long: parsing
 * large bodies, writing files. Jobs are submitted on the event loop's thread. An eventfd tells that thread when a job
 * has ended. All functions and callbacks except `work` run on that thread. */
#ifndef UM_WORK_QUEUE_H
#define UM_WORK_QUEUE_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct event_base;
typedef struct um_work_queue um_work_queue;

typedef struct um_work {
    um_status (*work)(void *arg, um_err *err); /* runs on a background thread; no other thread may use its data then */
    void (*done)(void *arg, um_status s, const um_err *err); /* runs on the loop's thread afterwards; may be NULL */
    void *arg;
    size_t weight; /* counts against `most` while the job waits; 0: the job is never refused */
} um_work;

/* Starts the threads. Jobs are started in the order of submission; with one thread they also end in this order. `most`:
 * limit on the total weight of waiting jobs, 0 for none. */
um_status um_work_queue_new(um_work_queue **out, struct event_base *base, int n_threads, size_t most, um_err *err);
/* Submits a job. Returns false if the waiting jobs would exceed `most`. When no weight waits, any job is accepted. */
bool um_work_queue_submit(um_work_queue *j, const um_work *job);
/* Cancels the job with this arg if no thread has started it. Returns true if the job was canceled; no callback is
 * called then. */
bool um_work_queue_cancel(um_work_queue *j, const void *arg);
/* Returns the number of jobs that were submitted and whose `done` has not been called; NULL: 0. */
size_t um_work_queue_pending(const um_work_queue *j);
/* Finishes all jobs, also those that `done` callbacks submit, then ends the threads. NULL is fine. */
void um_work_queue_free(um_work_queue *j);

#ifdef __cplusplus
}
#endif
#endif
