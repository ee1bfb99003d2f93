/* jobs: threads beside the loop, for what takes too long on it: large bodies are read there, files are written. A job
 * goes in on the loop's thread, its end comes back to it over an eventfd. Everything but `work` belongs to that thread.
 */
#ifndef UM_JOBS_H
#define UM_JOBS_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct event_base;
typedef struct um_jobs um_jobs;

typedef struct um_job {
    um_status (*work)(void *arg, um_err *err);               /* on some thread; what it touches is left alone */
    void (*done)(void *arg, um_status s, const um_err *err); /* on the loop's, afterwards; NULL: nobody waits for it */
    void *arg;
    size_t weight; /* what it counts for while it waits; 0: it is always taken */
} um_job;

/* Jobs are begun in the order in which they were given, and with one thread end in it. `most`: the weight that may
 * wait, 0 is any. */
um_status um_jobs_new(um_jobs **out, struct event_base *base, int n_threads, size_t most, um_err *err);
/* False: too much waits. What nothing waits in front of is taken however heavy it is. */
bool um_jobs_give(um_jobs *j, const um_job *job);
/* Takes a job back by its arg: true when no thread has begun it; then neither work nor done is called. */
bool um_jobs_take_back(um_jobs *j, const void *arg);
size_t um_jobs_open(const um_jobs *j); /* given, and not done yet; NULL: 0 */
/* Finishes what was given, and what the `done` of that gives; all have been called behind this. NULL is fine. */
void um_jobs_free(um_jobs *j);

#ifdef __cplusplus
}
#endif
#endif
