/* The metrics page: Prometheus' text format 0.0.4. One row a series. */
#include "server/batch/batch.h"
#include "server/metrics.h"

/* Values of a moment, beside what the tally and the workers hold. */
typedef struct moment {
    double pages_free, page_share, up, workers_up, restarts, connections, open, reading, dropped;
    double graph_replays; /* no device of this version captures graphs: 0 */
} moment;

typedef struct page {
    um_buf *out;
    um_buf model; /* model_name="…" */
    const um_tally *tally;
    um_msg_stats stats; /* sums over the workers, dead ones included where it is a count */
    um_batches_count batches;
    moment now;
} page;

typedef struct series {
    const char *name, *type, *help;
    void (*put)(page *p, const struct series *r, const char *name);
    size_t offset;     /* in the page or in the tally */
    const char *alias; /* what vLLM calls it, or NULL */
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

/* `labels`: further ones, or "". */
static void put_line(page *p, const char *name, const char *suffix, const char *labels, double value) {
    char text[UM_NUMBER_MAX];
    um_format_double(value, text);
    um_buf_printf(p->out, "%s%s{%s%s%s} %s\n", name, suffix, p->model.data, *labels ? "," : "", labels, text);
}

/* A line of a family whose lines differ in one label. */
static void put_of(page *p, const char *name, const char *label, const char *value, int64_t n) {
    um_buf labels = {0};
    put_label(&labels, label, value);
    put_line(p, name, "", labels.data, (double)n);
    um_buf_free(&labels);
}

static const void *in_page(const page *p, const series *r) { return (const char *)p + r->offset; }
static const void *in_tally(const page *p, const series *r) { return (const char *)p->tally + r->offset; }

static void put_value(page *p, const series *r, const char *name) {
    put_line(p, name, "", "", *(const double *)in_page(p, r));
}

static void put_amount(page *p, const series *r, const char *name) {
    put_line(p, name, "", "", *(const int32_t *)in_page(p, r));
}

static void put_counter(page *p, const series *r, const char *name) {
    put_line(p, name, "", "", (double)*(const int64_t *)in_page(p, r));
}

static void put_own_counter(page *p, const series *r, const char *name) {
    put_line(p, name, "", "", (double)*(const int64_t *)in_tally(p, r));
}

static void put_own_value(page *p, const series *r, const char *name) {
    put_line(p, name, "", "", *(const double *)in_tally(p, r));
}

static void put_count(page *p, const char *name, const double *bound, int32_t n, const int64_t *count, double sum,
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
    const um_buckets *b = in_tally(p, r);
    put_count(p, name, b->bounds->at, b->bounds->n, b->count, b->sum, "");
}

static void put_requests(page *p, const series *r, const char *name) {
    (void)r;
    char status[16];
    um_buf labels = {0};
    for (size_t i = 0; i < p->tally->n_answered; i++) {
        const um_answered *a = &p->tally->answered[i];
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
    for (size_t i = 0; i < p->tally->n_aborted; i++)
        put_of(p, name, "reason", p->tally->aborted[i].reason, p->tally->aborted[i].n);
}

static void put_batches(page *p, const series *r, const char *name) {
    static const char *const status[] = {
#define UM_X(symbol, name, time) name,
        UM_BATCH_STATUS_MAP(UM_X)
#undef UM_X
    };
    (void)r;
    for (int i = 0; i < UM_BATCH_N_STATUS; i++) put_of(p, name, "status", status[i], p->batches.batches[i]);
}

static void put_batch_lines(page *p, const series *r, const char *name) {
    (void)r;
    put_of(p, name, "result", "completed", p->batches.lines_completed);
    put_of(p, name, "result", "failed", p->batches.lines_failed);
}

static void put_files(page *p, const series *r, const char *name) {
    (void)r;
    put_of(p, name, "purpose", "batch", p->batches.inputs.n);
    put_of(p, name, "purpose", "batch_output", p->batches.outputs.n);
}

static void put_file_bytes(page *p, const series *r, const char *name) {
    (void)r;
    put_of(p, name, "purpose", "batch", p->batches.inputs.bytes);
    put_of(p, name, "purpose", "batch_output", p->batches.outputs.bytes);
}

static void put_memory(page *p, const series *r, const char *name) {
    (void)r;
    put_of(p, name, "kind", "weights", p->stats.weight_bytes);
    put_of(p, name, "kind", "kv", p->stats.kv_bytes);
    put_of(p, name, "kind", "workspace", p->stats.workspace_bytes);
    put_of(p, name, "kind", "resident", p->stats.resident_bytes);
}

/* Buckets as a worker counted them; it has none before its first word. */
static void put_steps_of(page *p, const char *name, const int64_t *count, uint32_t n, double sum, const double *bound,
                         const char *labels) {
    static const int64_t none[UM_STATS_BUCKETS];
    put_count(p, name, bound, UM_STATS_BUCKETS - 1, n == UM_STATS_BUCKETS ? count : none, sum, labels);
}

static void put_steps(page *p, const series *r, const char *name) {
    (void)r;
    const um_msg_stats *m = &p->stats;
    put_steps_of(p, name, m->prefill_step, m->n_prefill_step, m->prefill_seconds, um_stats_bounds_seconds,
                 "phase=\"prefill\"");
    put_steps_of(p, name, m->decode_step, m->n_decode_step, m->decode_seconds, um_stats_bounds_seconds,
                 "phase=\"decode\"");
}

static void put_step_tokens(page *p, const series *r, const char *name) {
    (void)r;
    const um_msg_stats *m = &p->stats;
    put_steps_of(p, name, m->step_tokens, m->n_step_tokens, (double)m->forward_tokens, um_stats_bounds_tokens, "");
}

/* ---- Series ------------------------------------------------------------------------------------------------------ */

#define NOW(field)       put_value, offsetof(page, now.field)
#define WORKERS(field)   put_counter, offsetof(page, stats.field)
#define AMOUNT(field)    put_amount, offsetof(page, stats.field)
#define OWN(field)       put_own_counter, offsetof(um_tally, field)
#define HISTOGRAM(field) put_histogram, offsetof(um_tally, field)

static const series table[] = {
    {"requests_total", "counter", "HTTP requests that ended, by endpoint and status; 499: the client left",
     put_requests, 0, NULL},
    {"prompt_tokens_total", "counter", "Tokens of prompts of generations that ended", OWN(prompt_tokens), NULL},
    {"generation_tokens_total", "counter", "Tokens of answers", OWN(generation_tokens), NULL},
    {"nfe_total", "counter", "Forward passes of answers", OWN(nfe), NULL},
    {"preemptions_total", "counter", "Times that a request gave up its pages for others", WORKERS(preemptions), NULL},
    {"aborts_total", "counter", "Generations that ended early, by reason", put_aborts, 0, NULL},
    {"prefix_cache_queries_total", "counter", "Prompt tokens looked up among stored beginnings",
     WORKERS(prefix_queries), NULL},
    {"prefix_cache_hits_total", "counter", "Prompt tokens that another request had stored", WORKERS(prefix_hits), NULL},
    {"graph_replays_total", "counter", "Steps replayed from a captured graph", NOW(graph_replays), NULL},
    {"eager_steps_total", "counter", "Steps launched operation by operation", WORKERS(steps), NULL},
    {"worker_restarts_total", "counter", "Times that a worker was started again", NOW(restarts), NULL},
    {"log_lines_dropped_total", "counter", "Lines of the log that nobody took", NOW(dropped), NULL},
    {"requests_running", "gauge", "Answers that share the steps", AMOUNT(requests_running), "num_requests_running"},
    {"requests_waiting", "gauge", "Answers that wait for a place or for pages", AMOUNT(requests_waiting),
     "num_requests_waiting"},
    {"kv_pages_used", "gauge", "KV pages in use", AMOUNT(pages_used), NULL},
    {"kv_pages_free", "gauge", "KV pages that are free", NOW(pages_free), NULL},
    {"kv_cache_usage_ratio", "gauge", "Share of the KV pages in use, 0 to 1", NOW(page_share), "kv_cache_usage_perc"},
    {"tokens_per_forward", "gauge", "Moving mean over answers of tokens fixed in a denoising pass", put_own_value,
     offsetof(um_tally, tokens_per_forward), NULL},
    {"device_memory_bytes", "gauge", "Memory of the workers, by kind", put_memory, 0, NULL},
    {"batches", "gauge", "Batches, by status", put_batches, 0, NULL},
    {"batch_lines_total", "counter", "Lines of batches that were answered, by result", put_batch_lines, 0, NULL},
    {"batch_lines_running", "gauge", "Lines of batches that run", put_counter, offsetof(page, batches.lines_running),
     NULL},
    {"files", "gauge", "Files in --state-dir, by purpose", put_files, 0, NULL},
    {"file_bytes", "gauge", "Their size", put_file_bytes, 0, NULL},
    {"backend_up", "gauge", "1 while some worker takes requests, else 0", NOW(up), NULL},
    {"workers_up", "gauge", "Workers that take requests", NOW(workers_up), NULL},
    {"http_connections", "gauge", "Open connections", NOW(connections), NULL},
    {"http_requests_open", "gauge", "HTTP requests that have not ended", NOW(open), NULL},
    {"bodies_reading", "gauge", "Large bodies that are read beside the loop, or wait for it", NOW(reading), NULL},
    {"http_request_seconds", "histogram", "From the first byte of a request to the last of its answer", HISTOGRAM(http),
     NULL},
    {"time_to_first_token_seconds", "histogram", "From submission to the first settled token", HISTOGRAM(first_token),
     "time_to_first_token_seconds"},
    {"time_per_output_token_seconds", "histogram", "Time behind the first token for each further one",
     HISTOGRAM(token_time), "time_per_output_token_seconds"},
    {"e2e_request_latency_seconds", "histogram", "From submission to the end of the answer", HISTOGRAM(total),
     "e2e_request_latency_seconds"},
    {"request_queue_seconds", "histogram", "From submission to the first step", HISTOGRAM(queue), NULL},
    {"step_seconds", "histogram", "Time of a step in which some request was in this phase", put_steps, 0, NULL},
    {"step_query_tokens", "histogram", "Tokens fed in a step", put_step_tokens, 0, NULL},
    {"nfe_per_request", "histogram", "Forward passes of an answer", HISTOGRAM(passes), NULL},
    {"tokens_per_forward_per_request", "histogram", "Tokens of an answer fixed in a denoising pass", HISTOGRAM(ratio),
     NULL},
    {"request_prompt_tokens", "histogram", "Tokens of a prompt", HISTOGRAM(prompt), NULL},
    {"request_generation_tokens", "histogram", "Tokens of an answer", HISTOGRAM(generation), NULL},
};

/* ---- The page ---------------------------------------------------------------------------------------------------- */

static void take_moment(um_server *s, page *p) {
    moment *m = &p->now;
    const um_msg_stats *stats = &p->stats;
    for (int32_t i = 0; i < um_backend_size(s->backend); i++) {
        um_worker_view v = um_backend_worker(s->backend, i);
        m->restarts += v.restarts;
        m->workers_up += v.state == UM_WORKER_UP;
    }
    m->pages_free = stats->pages_total - stats->pages_used;
    m->page_share = stats->pages_total ? (double)stats->pages_used / stats->pages_total : 0;
    m->up = um_backend_is_up(s->backend);
    m->connections = um_http_server_connections(s->http);
    m->open = s->n_open;
    m->dropped = (double)um_log_dropped();
    m->reading = (double)um_jobs_open(s->readers);
}

static void put_series(page *p, const series *r, const char *prefix, const char *name) {
    char full[96];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    um_buf_printf(p->out, "# HELP %s %s\n# TYPE %s %s\n", full, r->help, full, r->type);
    r->put(p, r, full);
}

void um_put_metrics(um_server *s, um_buf *out) {
    page p = {.out = out, .tally = s->tally};
    um_backend_stats(s->backend, &p.stats);
    um_batches_get_count(s->batches, &p.batches);
    take_moment(s, &p);
    put_label(&p.model, "model_name", um_server_model_name(s));
    for (size_t i = 0; i < UM_LEN(table); i++) put_series(&p, &table[i], "unmask_", table[i].name);
    for (size_t i = 0; i < UM_LEN(table) && s->config->metrics_vllm_aliases; i++)
        if (table[i].alias) put_series(&p, &table[i], "vllm:", table[i].alias);
    um_buf_free(&p.model);
}
