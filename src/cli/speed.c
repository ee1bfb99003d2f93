/* Histograms, and rates of requests and steps. */
#include "cli/speed.h"

#include <math.h>

#define LEAST_SECONDS 1e-6
#define GROWTH        1.02

double um_ratio(double a, double b) { return b != 0 ? a / b : 0; }

/* ---- Histograms -------------------------------------------------------------------------------------------------- */

void um_histogram_add(um_histogram *h, double seconds) {
    double at = seconds > LEAST_SECONDS ? log(seconds / LEAST_SECONDS) / log(GROWTH) : 0;
    h->bucket[(int)UM_MIN(at, UM_HISTOGRAM_BUCKETS - 1)]++;
    h->min = h->n ? UM_MIN(h->min, seconds) : seconds;
    h->max = h->n ? UM_MAX(h->max, seconds) : seconds;
    h->sum += seconds;
    h->n++;
}

double um_histogram_mean(const um_histogram *h) { return um_ratio(h->sum, (double)h->n); }

/* Returns the middle of the quantile's bucket, clamped to the smallest and largest value. */
double um_histogram_quantile(const um_histogram *h, double q) {
    int64_t rank = UM_MAX((int64_t)ceil(q * (double)h->n), 1), seen = 0;
    for (int i = 0; i < UM_HISTOGRAM_BUCKETS; i++) {
        seen += h->bucket[i];
        if (seen >= rank) return UM_MIN(UM_MAX(LEAST_SECONDS * pow(GROWTH, i + 0.5), h->min), h->max);
    }
    return 0;
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

/* Adds the term a / b to a mean, if b > 0. */
static void add_mean(double *sum, int64_t *n, double a, double b) {
    if (!(b > 0)) return;
    *sum += a / b;
    ++*n;
}

void um_metrics_add(um_metrics *m, const um_result *r) {
    if (r->finish == UM_FINISH_ABORTED) return;
    m->requests++;
    m->tokens += (int64_t)r->n_tokens;
    m->prompt_tokens += r->prompt_tokens;
    m->cached_tokens += r->cached_tokens;
    m->passes += r->nfe;
    um_histogram_add(&m->queue, r->queue_seconds);
    um_histogram_add(&m->total, r->total_seconds);
    add_mean(&m->tpf_sum, &m->n_tpf, (double)r->n_tokens, r->nfe);
    const double ran = r->total_seconds - r->queue_seconds;
    m->run_seconds += ran;
    add_mean(&m->run_tps_sum, &m->n_run_tps, (double)r->n_tokens, ran);
    add_mean(&m->decode_tps_sum, &m->n_decode_tps, r->denoise_tokens, r->decode_seconds);
    if (r->n_tokens == 0) return;
    um_histogram_add(&m->first_token, r->first_token_seconds);
    um_histogram_add(&m->ttft, r->first_token_seconds - r->queue_seconds);
    add_mean(&m->tpot_sum, &m->n_tpot, r->total_seconds - r->first_token_seconds, (double)(r->n_tokens - 1));
}

um_rates um_metrics_rates(const um_metrics *m, const um_stats *before, const um_stats *after) {
    double step = after->step_seconds - before->step_seconds;
    return (um_rates){
        .tpf = um_ratio(m->tpf_sum, (double)m->n_tpf),
        .tpf_all = um_ratio((double)m->tokens, (double)m->passes),
        .ttft = um_histogram_mean(&m->ttft),
        .tpot = um_ratio(m->tpot_sum, (double)m->n_tpot),
        .run_tps = um_ratio(m->run_tps_sum, (double)m->n_run_tps),
        .decode_tps = um_ratio(m->decode_tps_sum, (double)m->n_decode_tps),
        .throughput = um_ratio((double)m->tokens, step),
        .prefill_throughput = um_ratio((double)(after->prefill_tokens - before->prefill_tokens),
                                       after->prefill_seconds - before->prefill_seconds),
        .decode_throughput = um_ratio((double)(after->decode_tokens - before->decode_tokens),
                                      after->decode_seconds - before->decode_seconds),
        .requests_per_step = um_ratio((double)(after->passes - before->passes), (double)(after->steps - before->steps)),
        .overhead = um_ratio(step - (after->forward_seconds - before->forward_seconds), step),
    };
}
