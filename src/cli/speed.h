/* speed: latencies and rates of many finished requests and of the steps that served them, computed from results and
 * counters. Memory does not grow with the number of requests. A um_metrics is used by one thread. */
#ifndef UM_CLI_SPEED_H
#define UM_CLI_SPEED_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A histogram of seconds from 1 us to 100,000 s. Each bucket is 2 % wider than the one before, so a quantile is at most
 * 1 % off. Smaller and larger values count in the first and last bucket. */
#define UM_HISTOGRAM_BUCKETS 1280
typedef struct um_histogram {
    int64_t n;
    double sum, min, max;
    int32_t bucket[UM_HISTOGRAM_BUCKETS];
} um_histogram;
void um_histogram_add(um_histogram *h, double seconds);
double um_histogram_mean(const um_histogram *h); /* 0 if empty */
/* Returns the quantile q (0..1), which is the ceil(q n)-th smallest value; 0 if empty. */
double um_histogram_quantile(const um_histogram *h, double q);

/* Sums over finished requests. Times count from the submission of a request, unless a comment says otherwise. A zeroed
 * struct has no requests. */
typedef struct um_metrics {
    int64_t requests;
    int64_t tokens, prompt_tokens, cached_tokens, passes;
    /* Sums over the n_tpf, n_tpot, ... requests that have the value. um_rates explains the names. */
    double tpf_sum, tpot_sum, run_tps_sum, decode_tps_sum;
    int64_t n_tpf, n_tpot, n_run_tps, n_decode_tps;
    /* Sum of the times from the first step of a request to its end. A shared step counts for each of its requests. */
    double run_seconds;
    um_histogram queue, first_token, total;
    um_histogram ttft; /* like first_token, but counted from the first step */
} um_metrics;
/* Counts a finished request. Ignores aborted requests. */
void um_metrics_add(um_metrics *m, const um_result *r);

/* Rates. Tokens per forward are the tokens of answers, without end tokens, divided by all forward passes: prefill,
 * denoising and commits. A rate without a value (nothing was prefilled, no request had two tokens) is 0. */
typedef struct um_rates {
    double tpf;                /* mean over requests: tokens of the answer / its forward passes */
    double tpf_all;            /* all tokens / all forward passes */
    double ttft;               /* mean over requests: seconds from the first step to the first settled token */
    double tpot;               /* mean over requests: seconds after the first token / (tokens - 1) */
    double run_tps;            /* mean over requests: tokens / seconds from the first step to the end */
    double decode_tps;         /* mean over requests: tokens accepted in denoising passes / seconds of their steps */
    double throughput;         /* tokens / seconds of steps */
    double prefill_throughput; /* prompt tokens fed / seconds of steps with a prefill pass */
    double decode_throughput;  /* tokens accepted / seconds of steps with a denoising pass */
    double requests_per_step;  /* passes / steps */
    double overhead;           /* share of the steps' time outside of the forward pass */
} um_rates;
/* Computes the rates of the steps between two readings of the engine's counters, and of the requests that ended in
 * between. */
um_rates um_metrics_rates(const um_metrics *m, const um_stats *before, const um_stats *after);

/* Returns a / b, or 0 if b is 0. */
double um_ratio(double a, double b);

#ifdef __cplusplus
}
#endif
#endif
