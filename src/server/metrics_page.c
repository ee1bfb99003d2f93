/* The page /metrics in the text format 0.0.4 of Prometheus. Each series is a row of one table. */
#include "server/metrics_page.h"

#include "server/batch/batch.h"

/* Values that are read when the page is written. The others are in the metrics and in the workers' statistics. */
typedef struct gauges {
    double pages_free, page_share, up, workers_up, restarts, connections, open, bodies, dropped;
} gauges;

typedef struct page {
    um_buf *out;
    um_buf model; /* model_name="…" */
    const um_server_metrics *metrics;
    um_msg_stats stats; /* sums over the workers; counts include workers that have died */
    um_batch_store_count batches;
    gauges now;
    const um_worker_pool *workers;
    const um_keys *keys;
} page;

typedef struct series {
    const char *name, *type, *help;
    void (*put)(page *p, const struct series *r, const char *name);
    size_t offset;     /* in the page, in um_server_metrics or in um_key */
    const char *alias; /* vLLM's name for the series, or NULL */
} series;

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

static void put_label(um_buf *out, const char *name, const char *value) {
    um_buf_printf(out, "%s%s=\"", out->len ? "," : "", name);
    for (const char *p = value; *p; p++) {
        if (*p == '\n') um_buf_puts(out, "\\n");
        else if (*p == '"' || *p == '\\') um_buf_printf(out, "\\%c", *p);
        else um_buf_putc(out, *p);
    }
    um_buf_putc(out, '"');
}

/* `labels`: those after model_name, or "". */
static void put_line(page *p, const char *name, const char *suffix, const char *labels, double value) {
    char text[UM_NUMBER_MAX];
    um_format_double(value, text);
    um_buf_printf(p->out, "%s%s{%s%s%s} %s\n", name, suffix, p->model.data, *labels ? "," : "", labels, text);
}

/* Writes a line with one further label. */
static void put_labeled(page *p, const char *name, const char *label, const char *value, int64_t n) {
    um_buf labels = {0};
    put_label(&labels, label, value);
    put_line(p, name, "", labels.data, (double)n);
    um_buf_free(&labels);
}

static const void *in_page(const page *p, const series *r) { return (const char *)p + r->offset; }
static const void *in_metrics(const page *p, const series *r) { return (const char *)p->metrics + r->offset; }

static void put_value(page *p, const series *r, const char *name) {
    put_line(p, name, "", "", *(const double *)in_page(p, r));
}

static void put_int32(page *p, const series *r, const char *name) {
    put_line(p, name, "", "", *(const int32_t *)in_page(p, r));
}

static void put_counter(page *p, const series *r, const char *name) {
    put_line(p, name, "", "", (double)*(const int64_t *)in_page(p, r));
}

static void put_metrics_counter(page *p, const series *r, const char *name) {
    put_line(p, name, "", "", (double)*(const int64_t *)in_metrics(p, r));
}

static void put_metrics_value(page *p, const series *r, const char *name) {
    put_line(p, name, "", "", *(const double *)in_metrics(p, r));
}

static void put_buckets(page *p, const char *name, const double *bound, int32_t n, const int64_t *count, double sum,
                        const char *labels) {
    char text[UM_NUMBER_MAX], le[128];
    int64_t below = 0;
    const char *comma = *labels ? "," : "";
    for (int32_t i = 0; i < n; i++) {
        below += count[i];
        um_format_double(bound[i], text);
        snprintf(le, sizeof le, "%s%sle=\"%s\"", labels, comma, text);
        put_line(p, name, "_bucket", le, (double)below);
    }
    below += count[n];
    snprintf(le, sizeof le, "%s%sle=\"+Inf\"", labels, comma);
    put_line(p, name, "_bucket", le, (double)below);
    put_line(p, name, "_sum", labels, sum);
    put_line(p, name, "_count", labels, (double)below);
}

static void put_histogram(page *p, const series *r, const char *name) {
    const um_buckets *b = in_metrics(p, r);
    put_buckets(p, name, b->bounds->at, b->bounds->n, b->count, b->sum, "");
}

static void put_requests(page *p, const series *r, const char *name) {
    (void)r;
    char status[16];
    um_buf labels = {0};
    for (size_t i = 0; i < p->metrics->n_answered; i++) {
        const um_answered *a = &p->metrics->answered[i];
        um_buf_clear(&labels);
        snprintf(status, sizeof status, "%d", a->status);
        put_label(&labels, "route", a->path);
        put_label(&labels, "status", status);
        put_line(p, name, "", labels.data, (double)a->n);
    }
    um_buf_free(&labels);
}

static void put_aborts(page *p, const series *r, const char *name) {
    (void)r;
    for (size_t i = 0; i < p->metrics->n_aborted; i++)
        put_labeled(p, name, "reason", p->metrics->aborted[i].reason, p->metrics->aborted[i].n);
}

static void put_batches(page *p, const series *r, const char *name) {
    static const char *const status[] = {
#define UM_X(symbol, name, time) name,
        UM_BATCH_STATUS_MAP(UM_X)
#undef UM_X
    };
    (void)r;
    for (int i = 0; i < UM_BATCH_N_STATUS; i++) put_labeled(p, name, "status", status[i], p->batches.batches[i]);
}

static void put_batch_lines(page *p, const series *r, const char *name) {
    (void)r;
    put_labeled(p, name, "result", "completed", p->batches.lines_completed);
    put_labeled(p, name, "result", "failed", p->batches.lines_failed);
}

static void put_files(page *p, const series *r, const char *name) {
    (void)r;
    put_labeled(p, name, "purpose", "batch", p->batches.inputs.n);
    put_labeled(p, name, "purpose", "batch_output", p->batches.outputs.n);
}

static void put_file_bytes(page *p, const series *r, const char *name) {
    (void)r;
    put_labeled(p, name, "purpose", "batch", p->batches.inputs.bytes);
    put_labeled(p, name, "purpose", "batch_output", p->batches.outputs.bytes);
}

/* Writes the buckets that the workers counted. There are none before the first STATS message. */
static void put_worker_buckets(page *p, const char *name, const int64_t *count, uint32_t n, double sum,
                               const double *bound, const char *labels) {
    static const int64_t none[UM_STATS_BUCKETS];
    put_buckets(p, name, bound, UM_STATS_BUCKETS - 1, n == UM_STATS_BUCKETS ? count : none, sum, labels);
}

static void put_steps(page *p, const series *r, const char *name) {
    (void)r;
    const um_msg_stats *m = &p->stats;
    put_worker_buckets(p, name, m->prefill_step, m->n_prefill_step, m->prefill_seconds, um_stats_bounds_seconds,
                       "phase=\"prefill\"");
    put_worker_buckets(p, name, m->decode_step, m->n_decode_step, m->decode_seconds, um_stats_bounds_seconds,
                       "phase=\"decode\"");
}

static void put_step_tokens(page *p, const series *r, const char *name) {
    (void)r;
    const um_msg_stats *m = &p->stats;
    put_worker_buckets(p, name, m->step_tokens, m->n_step_tokens, (double)m->forward_tokens, um_stats_bounds_tokens,
                       "");
}

/* ---- Devices ----------------------------------------------------------------------------------------------------- */

/* Writes a line for each worker whose device has memory of its own. */
static void put_of_workers(page *p, const char *name, const char *more, int64_t (*value)(const um_msg_stats *m)) {
    char labels[96];
    for (int32_t i = 0; i < um_worker_pool_size(p->workers); i++) {
        const um_msg_stats *m = um_worker_pool_get_status(p->workers, i).stats;
        snprintf(labels, sizeof labels, "worker=\"%d\"%s%s", i, *more ? "," : "", more);
        if (m->device_bytes) put_line(p, name, "", labels, (double)value(m));
    }
}

static int64_t replays_of(const um_msg_stats *m) { return m->graph_replays; }
static int64_t graphs_of(const um_msg_stats *m) { return m->graphs; }
static int64_t weights_of(const um_msg_stats *m) { return m->weight_bytes; }
static int64_t kv_of(const um_msg_stats *m) { return m->kv_bytes; }
static int64_t workspace_of(const um_msg_stats *m) { return m->workspace_bytes; }
static int64_t free_of(const um_msg_stats *m) { return m->device_free_bytes; }
static int64_t bytes_of(const um_msg_stats *m) { return m->device_bytes; }

static void put_replays(page *p, const series *r, const char *name) {
    (void)r;
    put_of_workers(p, name, "", replays_of);
}

static void put_graphs(page *p, const series *r, const char *name) {
    (void)r;
    put_of_workers(p, name, "", graphs_of);
}

static void put_device_memory(page *p, const series *r, const char *name) {
    (void)r;
    put_of_workers(p, name, "kind=\"weights\"", weights_of);
    put_of_workers(p, name, "kind=\"kv\"", kv_of);
    put_of_workers(p, name, "kind=\"workspace\"", workspace_of);
    put_of_workers(p, name, "kind=\"free\"", free_of);
    put_of_workers(p, name, "kind=\"total\"", bytes_of);
}

/* Writes a line in seconds for each rank of each worker. */
static void put_of_ranks(page *p, const char *name, bool exchange) {
    char labels[96];
    for (int32_t i = 0; i < um_worker_pool_size(p->workers); i++) {
        const um_msg_stats *m = um_worker_pool_get_status(p->workers, i).stats;
        for (uint32_t r = 0; r < m->n_rank_pass; r++) {
            snprintf(labels, sizeof labels, "worker=\"%d\",rank=\"%u\"", i, r);
            put_line(p, name, "", labels, 1e-6 * (double)(exchange ? m->rank_exchange : m->rank_pass)[r]);
        }
    }
}

static void put_rank_pass(page *p, const series *r, const char *name) {
    (void)r;
    put_of_ranks(p, name, false);
}

static void put_rank_exchange(page *p, const series *r, const char *name) {
    (void)r;
    put_of_ranks(p, name, true);
}

/* ---- API keys ---------------------------------------------------------------------------------------------------- */

/* The number of names is bounded (UM_KEYS_MAX). Removed names stay, because a counter must not start again at 0. */
static void put_key_counter(page *p, const series *r, const char *name) {
    for (int32_t id = 1; id <= um_keys_count(p->keys); id++) {
        const um_key *key = um_keys_get(p->keys, id);
        put_labeled(p, name, "key", key->name, *(const int64_t *)((const char *)key + r->offset));
    }
}

/* ---- Series ------------------------------------------------------------------------------------------------------ */

#define NOW(field)       put_value, offsetof(page, now.field)
#define WORKERS(field)   put_counter, offsetof(page, stats.field)
#define AMOUNT(field)    put_int32, offsetof(page, stats.field)
#define METRICS(field)   put_metrics_counter, offsetof(um_server_metrics, field)
#define HISTOGRAM(field) put_histogram, offsetof(um_server_metrics, field)

static const series table[] = {
    {"requests_total", "counter", "HTTP requests that have ended, by endpoint and status; 499: the client disconnected",
     put_requests, 0, NULL},
    {"prompt_tokens_total", "counter", "Prompt tokens of generations that have ended", METRICS(prompt_tokens), NULL},
    {"generation_tokens_total", "counter", "Generated tokens", METRICS(generation_tokens), NULL},
    {"nfe_total", "counter", "Forward passes, summed over the answers", METRICS(nfe), NULL},
    {"preemptions_total", "counter", "Preemptions of requests to free their pages", WORKERS(preemptions), NULL},
    {"aborts_total", "counter", "Aborted answers, by reason", put_aborts, 0, NULL},
    {"prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache", WORKERS(prefix_queries),
     NULL},
    {"prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache", WORKERS(prefix_hits), NULL},
    {"steps_total", "counter", "Engine steps", WORKERS(steps), NULL},
    {"worker_restarts_total", "counter", "Worker restarts", NOW(restarts), NULL},
    {"log_lines_dropped_total", "counter", "Log lines dropped because the reader of the log stalled", NOW(dropped),
     NULL},
    {"requests_running", "gauge", "Answers being generated", AMOUNT(requests_running), "num_requests_running"},
    {"requests_waiting", "gauge", "Answers waiting for a slot or for pages", AMOUNT(requests_waiting),
     "num_requests_waiting"},
    {"kv_pages_used", "gauge", "KV pages in use", AMOUNT(pages_used), NULL},
    {"kv_pages_free", "gauge", "Free KV pages", NOW(pages_free), NULL},
    {"kv_cache_usage_ratio", "gauge", "Share of the KV pages in use, 0 to 1", NOW(page_share), "kv_cache_usage_perc"},
    {"tokens_per_forward", "gauge", "Tokens of an answer per forward pass, as a moving mean over answers",
     put_metrics_value, offsetof(um_server_metrics, tokens_per_forward), NULL},
    {"batches", "gauge", "Batches, by status", put_batches, 0, NULL},
    {"batch_lines_total", "counter", "Batch lines answered, by result", put_batch_lines, 0, NULL},
    {"batch_lines_running", "gauge", "Batch lines being generated", put_counter, offsetof(page, batches.lines_running),
     NULL},
    {"files", "gauge", "Files in --state-dir, by purpose", put_files, 0, NULL},
    {"file_bytes", "gauge", "Bytes of the files in --state-dir, by purpose", put_file_bytes, 0, NULL},
    {"backend_up", "gauge", "1 while at least one worker takes requests, else 0", NOW(up), NULL},
    {"workers_up", "gauge", "Workers that take requests", NOW(workers_up), NULL},
    {"http_connections", "gauge", "Open connections", NOW(connections), NULL},
    {"http_requests_open", "gauge", "HTTP requests that have not ended", NOW(open), NULL},
    {"bodies_reading", "gauge", "Large request bodies being parsed or waiting to be parsed", NOW(bodies), NULL},
    {"http_request_seconds", "histogram", "Time from the first byte of a request to the last byte of its response",
     HISTOGRAM(http), NULL},
    {"time_to_first_token_seconds", "histogram", "Time from submission to the first committed token",
     HISTOGRAM(first_token), "time_to_first_token_seconds"},
    {"time_per_output_token_seconds", "histogram", "Time per output token after the first", HISTOGRAM(token_time),
     "time_per_output_token_seconds"},
    {"e2e_request_latency_seconds", "histogram", "Time from submission to the end of the answer", HISTOGRAM(total),
     "e2e_request_latency_seconds"},
    {"request_queue_seconds", "histogram", "Time from submission to the first step", HISTOGRAM(queue), NULL},
    {"step_seconds", "histogram", "Duration of the steps with a request in this phase", put_steps, 0, NULL},
    {"step_query_tokens", "histogram", "Input tokens per step", put_step_tokens, 0, NULL},
    {"nfe_per_request", "histogram", "Forward passes per answer", HISTOGRAM(passes), NULL},
    {"tokens_per_forward_per_request", "histogram", "Tokens of an answer per forward pass", HISTOGRAM(ratio), NULL},
    {"request_prompt_tokens", "histogram", "Tokens per prompt", HISTOGRAM(prompt), NULL},
    {"request_generation_tokens", "histogram", "Tokens per answer", HISTOGRAM(generation), NULL},
};

/* Series of workers whose devices have memory of their own. A CPU has none of them. */
static const series device_table[] = {
    {"graph_replays_total", "counter", "Passes that replayed a CUDA graph, by worker", put_replays, 0, NULL},
    {"graphs", "gauge", "Recorded CUDA graphs, by worker", put_graphs, 0, NULL},
    {"device_memory_bytes", "gauge",
     "Memory of the worker's devices: weights, KV pages, workspace; free and total, other programs included",
     put_device_memory, 0, NULL},
};

#define KEY(field) put_key_counter, offsetof(um_key, field), NULL

/* Series of workers with ranks. */
static const series rank_table[] = {
    {"rank_pass_seconds_total", "counter", "Duration of the passes of each rank, by worker", put_rank_pass, 0, NULL},
    {"rank_exchange_seconds_total", "counter",
     "Of these, the exchange of results between ranks, with the wait for slower ranks", put_rank_exchange, 0, NULL},
};

/* Series of API keys. A server without keys has none of them. */
static const series key_table[] = {
    {"key_requests_total", "counter", "HTTP requests that have ended, by API key", KEY(n_requests)},
    {"key_limited_total", "counter", "Requests beyond a rate or the number of generations of their API key",
     KEY(n_limited)},
    {"key_prompt_tokens_total", "counter", "Prompt tokens of generations that have ended, by API key",
     KEY(prompt_tokens)},
    {"key_generation_tokens_total", "counter", "Generated tokens, by API key", KEY(generation_tokens)},
    {"key_generations", "gauge", "Generations that wait or run, by API key", KEY(n_running)},
};

/* ---- The page ---------------------------------------------------------------------------------------------------- */

static void read_gauges(const um_service *s, page *p) {
    gauges *m = &p->now;
    const um_msg_stats *stats = &p->stats;
    for (int32_t i = 0; i < um_worker_pool_size(s->workers); i++) {
        um_worker_status v = um_worker_pool_get_status(s->workers, i);
        m->restarts += v.restarts;
        m->workers_up += v.state == UM_WORKER_UP;
    }
    m->pages_free = stats->pages_total - stats->pages_used;
    m->page_share = stats->pages_total ? (double)stats->pages_used / stats->pages_total : 0;
    m->up = um_worker_pool_is_up(s->workers);
    m->connections = um_http_server_connections(s->http);
    m->open = s->n_open;
    m->dropped = (double)um_log_dropped();
    m->bodies = (double)um_work_queue_pending(s->readers);
}

static bool has_ranks(const page *p) {
    bool has = false;
    for (int32_t i = 0; i < um_worker_pool_size(p->workers); i++)
        has |= um_worker_pool_get_status(p->workers, i).stats->n_rank_pass > 0;
    return has;
}

static void put_series(page *p, const series *r, const char *prefix, const char *name) {
    char full[96];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    um_buf_printf(p->out, "# HELP %s %s\n# TYPE %s %s\n", full, r->help, full, r->type);
    r->put(p, r, full);
}

void um_metrics_page_put(const um_service *s, um_buf *out) {
    page p = {.out = out, .metrics = s->metrics, .workers = s->workers, .keys = s->keys};
    um_worker_pool_get_stats(s->workers, &p.stats);
    um_batch_store_get_count(s->batches, &p.batches);
    read_gauges(s, &p);
    put_label(&p.model, "model_name", um_setup_model_name(&s->setup));
    for (size_t i = 0; i < UM_LEN(table); i++) put_series(&p, &table[i], "unmask_", table[i].name);
    for (size_t i = 0; i < UM_LEN(device_table) && p.stats.device_bytes; i++)
        put_series(&p, &device_table[i], "unmask_", device_table[i].name);
    for (size_t i = 0; i < UM_LEN(rank_table) && has_ranks(&p); i++)
        put_series(&p, &rank_table[i], "unmask_", rank_table[i].name);
    for (size_t i = 0; i < UM_LEN(key_table) && !um_keys_is_empty(s->keys); i++)
        put_series(&p, &key_table[i], "unmask_", key_table[i].name);
    for (size_t i = 0; i < UM_LEN(table) && s->setup.config->metrics_vllm_aliases; i++)
        if (table[i].alias) put_series(&p, &table[i], "vllm:", table[i].alias);
    um_buf_free(&p.model);
}
