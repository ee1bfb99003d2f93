/* metrics: the counters of the frontend. The page /metrics shows them together with the state of the workers and
 * batches (metrics_page.c). They belong to the loop's thread. */
#ifndef UM_SERVER_METRICS_H
#define UM_SERVER_METRICS_H

#include "server/link/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Histograms -------------------------------------------------------------------------------------------------- */

#define UM_BOUNDS_MAX 24
/* Upper bounds of the buckets, ascending. One more bucket counts the values above the last bound. */
typedef struct um_bounds {
    double at[UM_BOUNDS_MAX];
    int32_t n;
} um_bounds;
/* A changed bound is a new time series in the databases that collect the metrics. */
extern const um_bounds um_bounds_latency, um_bounds_token_time, um_bounds_tokens, um_bounds_passes, um_bounds_ratio;

typedef struct um_buckets {
    const um_bounds *bounds;
    int64_t count[UM_BOUNDS_MAX + 1]; /* number of values in each bucket alone, not cumulative */
    double sum;
} um_buckets;
void um_buckets_add(um_buckets *b, double value);

/* ---- Counts ------------------------------------------------------------------------------------------------------ */

/* Answers to requests, by endpoint and status. */
typedef struct um_answered {
    const char *path;
    int status;
    int64_t n;
} um_answered;

#define UM_ABORT_REASONS_MAX 16
typedef struct um_aborted {
    char reason[32];
    int64_t n;
} um_aborted;

typedef struct um_server_metrics {
    um_answered *answered; /* [n_answered] */
    size_t n_answered, cap_answered;
    um_aborted aborted[UM_ABORT_REASONS_MAX];
    size_t n_aborted;
    int64_t prompt_tokens, generation_tokens, nfe;
    double tokens_per_forward; /* moving mean */
    int64_t n_tokens_per_forward;
    um_buckets http, first_token, token_time, total, queue, passes, ratio, prompt, generation;
} um_server_metrics;
um_server_metrics *um_server_metrics_new(void);
void um_server_metrics_free(um_server_metrics *t);
/* Counts an HTTP request that has ended. path: the path in the endpoint's row, a constant. */
void um_metrics_count_request(um_server_metrics *t, const char *path, int status, double seconds);
/* Counts an answer that has ended. why_aborted: NULL unless it was aborted. */
void um_metrics_count_finish(um_server_metrics *t, const um_msg_finish *m, const char *why_aborted);

#ifdef __cplusplus
}
#endif
#endif
