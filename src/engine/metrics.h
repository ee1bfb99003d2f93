/* metrics: what many finished requests and the steps that served them say of speed. Pure arithmetic over results and
 * counters; memory does not grow with the number of requests. A um_metrics belongs to one thread. */
#ifndef UM_METRICS_H
#define UM_METRICS_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Seconds from 1 us to 100,000 s in buckets that grow by 2 %, so a quantile is off by 1 % at most. Values outside count
 * in the first and last bucket. */
#define UM_HISTOGRAM_BUCKETS 1280
typedef struct um_histogram {
    int64_t n;
    double sum, min, max;
    int32_t bucket[UM_HISTOGRAM_BUCKETS];
} um_histogram;
void um_histogram_add(um_histogram *h, double seconds);
double um_histogram_mean(const um_histogram *h); /* 0 of nothing */
/* The value that a share q (0..1) of the values does not exceed: the ceil(q n)-th; 0 of nothing. */
double um_histogram_quantile(const um_histogram *h, double q);

/* Requests that ended. Seconds of a request are counted from its submission, or, where the comment says so, from its
 * first step. Zero is none. */
typedef struct um_metrics {
    int64_t requests;
    int64_t tokens, prompt_tokens, cached_tokens, passes;
    /* of the n_tpf, n_tpot ... requests that have them */
    double tpf_sum, tpot_sum, run_tps_sum, decode_tps_sum;
    int64_t n_tpf, n_tpot, n_run_tps, n_decode_tps;
    double run_seconds; /* from the first step of each to its end: steps that they share count for each of them */
    um_histogram queue, first_token, total;
    um_histogram ttft; /* of first_token, from the first step */
} um_metrics;
/* Counts a finished request; one that was aborted says nothing of speed and is left out. */
void um_metrics_add(um_metrics *m, const um_result *r);

/* The formulas; what has no value (nothing was prefilled, no request had two tokens) is 0. */
typedef struct um_rates {
    double tpf;                /* mean over requests of tokens accepted in denoising passes / these passes */
    double tpf_all;            /* tokens / passes, prefill included, of all requests together */
    double ttft;               /* mean over requests: from the first step to the first visible token, seconds */
    double tpot;               /* mean over requests of (seconds behind the first token) / (tokens - 1) */
    double run_tps;            /* mean over requests of tokens / seconds from the first step to the end */
    double decode_tps;         /* mean over requests of tokens accepted in denoising passes / seconds of their steps */
    double throughput;         /* tokens / seconds of steps */
    double prefill_throughput; /* prompt tokens fed / seconds of steps in which some request prefilled */
    double decode_throughput;  /* tokens accepted / seconds of steps in which some request denoised */
    double requests_per_step;  /* passes / steps */
    double overhead;           /* share of the steps' seconds that is not the forward pass */
} um_rates;
/* Of the steps between two readings of an engine's counters, and the requests that ended there. */
um_rates um_metrics_rates(const um_metrics *m, const um_stats *before, const um_stats *after);

/* a / b, 0 when b is 0. */
double um_ratio(double a, double b);

#ifdef __cplusplus
}
#endif
#endif
