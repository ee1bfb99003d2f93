/* service: the state that endpoints, batches and generations share: the setup, the event loop, the worker pool, the
 * counters. It belongs to the thread of the loop, except for `setup` and `held`, which any thread may use. The server
 * (server.c) owns it. */
#ifndef UM_SERVICE_H
#define UM_SERVICE_H

#include "server/body/body.h"
#include "server/http/http.h"
#include "server/keys/keys.h"
#include "server/metrics/metrics.h"
#include "server/work/work_queue.h"
#include "server/workers/workers.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_service {
    um_setup setup;
    um_held_limit held; /* any thread may take from it */
    struct event_base *base;
    um_http_server *http;
    um_keys *keys; /* NULL: none */
    um_worker_pool *workers;
    um_work_queue *readers; /* threads that parse and encode large request bodies (generate/intake.h) */
    um_server_metrics *metrics;
    struct um_trace_file *traces;      /* respond/trace_file.h; NULL: none */
    struct um_generation *generations; /* list of running generations, newest first (generate/generation.h) */
    struct um_intake *intakes;         /* list of the bodies that the readers have (generate/intake.h) */
    struct um_batch_store *batches;    /* files and batches (batch/batch.h); NULL without --state-dir */
    double started;                    /* start time of the server, epoch seconds */
    int64_t last_score;                /* number of the last request for scores (api/score.c) */
    int32_t n_scores;                  /* such requests that wait or run */
    int32_t n_open;                    /* exchanges that have not ended */
    struct um_rest_waiter *resting;    /* requests that wait for sleep or for waking (api/sleep.c) */
    bool changes_adapters;             /* the workers load or unload an adapter (api/adapters.c) */
    bool stopping;                     /* the server shuts down and starts no more generations */
} um_service;

/* Returns the limits of the workers' engines as far as they are known now: from the first ready worker, else from the
 * model's configuration. */
um_capacity um_capacity_get(const um_service *s);

/* Bodies up to this many bytes are parsed and freed on the loop's thread. Measured with /apply-template on two cores of
 * a Xeon: a conversation of 64 bytes takes 58 us of the loop's time, headers and response included; 2,048 bytes take
 * 156 us, 4,000 bytes 268 us. A body of 4,200 bytes that a reader's thread parses takes 35 us of the loop and 295 us in
 * all: the hand-over costs 15 us of CPU time. */
#define UM_INLINE_BYTES_MAX ((size_t)2048)
/* Frees data that came from `bytes` bytes of a request: at once if that is little, else on a reader's thread. */
void um_release(um_service *s, size_t bytes, void (*release)(void *arg), void *arg);
/* Frees a body as um_release does. */
void um_body_release(um_service *s, um_body *b);

#ifdef __cplusplus
}
#endif
#endif
