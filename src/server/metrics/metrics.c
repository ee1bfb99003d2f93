/* Counts requests and answers. */
#include "server/metrics/metrics.h"

/* ---- Histograms -------------------------------------------------------------------------------------------------- */

#define BOUNDS(...)                                                                                                    \
    { {__VA_ARGS__}, sizeof((double[]){__VA_ARGS__}) / sizeof(double) }

const um_bounds um_bounds_latency = BOUNDS(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5,
                                           7.5, 10, 20, 40, 80, 160, 640, 2560);
const um_bounds um_bounds_token_time =
    BOUNDS(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5);
const um_bounds um_bounds_tokens =
    BOUNDS(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000);
const um_bounds um_bounds_passes = BOUNDS(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192);
const um_bounds um_bounds_ratio = BOUNDS(0.5, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64);

void um_buckets_add(um_buckets *b, double value) {
    int32_t i = 0;
    while (i < b->bounds->n && value > b->bounds->at[i]) i++;
    b->count[i]++;
    b->sum += value;
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

um_server_metrics *um_server_metrics_new(void) {
    um_server_metrics *t = UM_NEW(um_server_metrics);
    t->http.bounds = t->first_token.bounds = t->total.bounds = t->queue.bounds = &um_bounds_latency;
    t->token_time.bounds = &um_bounds_token_time;
    t->passes.bounds = &um_bounds_passes;
    t->ratio.bounds = &um_bounds_ratio;
    t->prompt.bounds = t->generation.bounds = &um_bounds_tokens;
    return t;
}

void um_server_metrics_free(um_server_metrics *t) {
    if (!t) return;
    um_free(t->answered);
    um_free(t);
}

/* A linear search is enough: there is one entry for each endpoint and status. */
static um_answered *find_answered(um_server_metrics *t, const char *path, int status) {
    for (size_t i = 0; i < t->n_answered; i++)
        if (t->answered[i].status == status && um_streq(t->answered[i].path, path)) return &t->answered[i];
    if (t->n_answered == t->cap_answered) {
        t->cap_answered = UM_MAX(16, 2 * t->cap_answered);
        t->answered = um_realloc(t->answered, um_mul(t->cap_answered, sizeof *t->answered));
    }
    t->answered[t->n_answered] = (um_answered){.path = path, .status = status};
    return &t->answered[t->n_answered++];
}

void um_metrics_count_request(um_server_metrics *t, const char *path, int status, double seconds) {
    find_answered(t, path, status)->n++;
    um_buckets_add(&t->http, seconds);
}

/* When the table is full, further reasons share its last entry, renamed to "other". */
static void count_abort(um_server_metrics *t, const char *reason) {
    size_t i = 0;
    while (i < t->n_aborted && !um_streq(t->aborted[i].reason, reason)) i++;
    if (i == UM_ABORT_REASONS_MAX) {
        i--;
        reason = "other";
    }
    snprintf(t->aborted[i].reason, sizeof t->aborted[i].reason, "%s", reason);
    t->aborted[i].n++;
    t->n_aborted = UM_MAX(t->n_aborted, i + 1);
}

/* Updates a mean in which each new value has a weight of at least 1/100. */
static void move_mean(double *mean, int64_t *n, double value) {
    *n = UM_MIN(*n + 1, 100);
    *mean += (value - *mean) / (double)*n;
}

static void count_speed(um_server_metrics *t, const um_msg_finish *m) {
    um_buckets_add(&t->queue, m->queue_seconds);
    um_buckets_add(&t->total, m->total_seconds);
    um_buckets_add(&t->passes, m->nfe);
    if (m->n_ids > 0) um_buckets_add(&t->first_token, m->first_token_seconds);
    if (m->n_ids > 1) um_buckets_add(&t->token_time, (m->total_seconds - m->first_token_seconds) / (m->n_ids - 1.0));
    if (m->nfe == 0) return;
    double ratio = (double)m->n_ids / m->nfe;
    um_buckets_add(&t->ratio, ratio);
    move_mean(&t->tokens_per_forward, &t->n_tokens_per_forward, ratio);
}

/* An aborted answer counts its tokens, but no times. */
void um_metrics_count_finish(um_server_metrics *t, const um_msg_finish *m, const char *why_aborted) {
    if (m->index == 0) t->prompt_tokens += m->prompt_tokens; /* the answers of a request share the prompt */
    t->generation_tokens += m->n_ids;
    t->nfe += m->nfe;
    if (m->index == 0) um_buckets_add(&t->prompt, m->prompt_tokens);
    um_buckets_add(&t->generation, m->n_ids);
    if (why_aborted) count_abort(t, why_aborted);
    else count_speed(t, m);
}
