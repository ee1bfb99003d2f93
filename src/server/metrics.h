/* metrics: the numbers behind /metrics: what the frontend counts itself (metrics.c), beside what the backend knows of
 * its workers. metrics_page.c writes them down. */
#ifndef UM_SERVER_METRICS_H
#define UM_SERVER_METRICS_H

#include "server/frontend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Histograms -------------------------------------------------------------------------------------------------- */

#define UM_BOUNDS_MAX 24
/* Upper bounds of buckets, ascending; above them is one more. */
typedef struct um_bounds {
    double at[UM_BOUNDS_MAX];
    int32_t n;
} um_bounds;
/* All that there are: a changed bound is a new series to whoever stores them. */
extern const um_bounds um_bounds_latency, um_bounds_token_time, um_bounds_tokens, um_bounds_passes, um_bounds_ratio;

typedef struct um_buckets {
    const um_bounds *bounds;
    int64_t count[UM_BOUNDS_MAX + 1]; /* not cumulative */
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

struct um_tally {
    um_answered *answered; /* [n_answered] */
    size_t n_answered, cap_answered;
    um_aborted aborted[UM_ABORT_REASONS_MAX];
    size_t n_aborted;
    int64_t prompt_tokens, generation_tokens, nfe;
    double tokens_per_forward; /* moving mean */
    int64_t n_tokens_per_forward;
    um_buckets http, first_token, token_time, total, queue, passes, ratio, prompt, generation;
};
#ifdef __cplusplus
}
#endif
#endif
