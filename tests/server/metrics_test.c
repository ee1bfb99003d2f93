/* server: the metrics page: its format, read with a strict parser, and its numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <ctype.h>
#include <math.h>

#include "server/batch/batch.h"
#include "server/metrics_page.h"

/* ---- The sources of the page ------------------------------------------------------------------------------------- */

static um_worker_status workers[2];
static um_msg_stats stats;
static um_batch_store_count batches;
static int32_t connections;
static size_t jobs_open;

int32_t um_worker_pool_size(const um_worker_pool *p) {
    (void)p;
    return 2;
}
um_worker_status um_worker_pool_get_status(const um_worker_pool *p, int32_t i) {
    (void)p;
    static const um_msg_stats none;
    um_worker_status w = workers[i];
    if (!w.stats) w.stats = &none;
    return w;
}
void um_worker_pool_get_stats(const um_worker_pool *p, um_msg_stats *out) {
    (void)p;
    *out = stats;
}
void um_batch_store_get_count(const um_batch_store *store, um_batch_store_count *out) {
    (void)store;
    *out = batches;
}
bool um_worker_pool_is_up(const um_worker_pool *p) {
    (void)p;
    return workers[0].state == UM_WORKER_UP || workers[1].state == UM_WORKER_UP;
}
int32_t um_http_server_connections(const um_http_server *s) {
    (void)s;
    return connections;
}
size_t um_work_queue_pending(const um_work_queue *j) {
    (void)j;
    return jobs_open;
}
static char model_name[] = "a \"quoted\\\nname", *names[] = {model_name};

static um_server_config config;
static um_service service;

static int setup(void **state) {
    (void)state;
    config = (um_server_config){.metrics_vllm_aliases = true};
    service = (um_service){
        .setup = {.config = &config, .names = {names, 1}}, .metrics = um_server_metrics_new(), .n_open = 1};
    stats = (um_msg_stats){0};
    batches = (um_batch_store_count){0};
    connections = 3;
    jobs_open = 0;
    for (int i = 0; i < 2; i++) workers[i] = (um_worker_status){.state = UM_WORKER_UP};
    return 0;
}

static int teardown(void **state) {
    (void)state;
    um_server_metrics_free(service.metrics);
    return 0;
}

static um_msg_finish answer(int32_t n_ids) {
    return (um_msg_finish){.n_ids = (uint32_t)n_ids,
                           .prompt_tokens = 12,
                           .nfe = 8,
                           .denoise_tokens = n_ids,
                           .denoise_passes = 7,
                           .queue_seconds = 0.001,
                           .first_token_seconds = 0.2,
                           .total_seconds = 1.2};
}

/* ---- A strict parser --------------------------------------------------------------------------------------------- */

typedef struct sample {
    char name[96], labels[512]; /* labels without le, as written */
    double le, value;           /* le: NAN if missing */
} sample;

typedef struct reader {
    const char *p;
    int line;
    char family[96], type[96];
    char seen[100][96];
    int n_seen;
    sample last; /* of a histogram's buckets */
} reader;

static void check(const reader *r, bool holds, const char *condition) {
    if (!holds) fail_msg("line %d: %s, at \"%.60s\"", r->line, condition, r->p);
}
#define must(r, condition) check(r, condition, #condition)

static void take(reader *r, const char *text) {
    must(r, strncmp(r->p, text, strlen(text)) == 0);
    r->p += strlen(text);
}

static void take_name(reader *r, char out[96], bool colons) {
    size_t n = 0;
    while (isalnum((unsigned char)r->p[n]) || r->p[n] == '_' || (colons && r->p[n] == ':')) n++;
    must(r, n > 0 && n < 96 && !isdigit((unsigned char)r->p[0]));
    snprintf(out, 96, "%.*s", (int)n, r->p);
    r->p += n;
}

static double take_number(reader *r, char end) {
    char *stop;
    must(r, isdigit((unsigned char)*r->p) || *r->p == '+' || *r->p == '-');
    double v = strtod(r->p, &stop); /* also parses +Inf */
    must(r, *stop == end);
    r->p = stop + 1;
    return v;
}

static void take_quoted(reader *r) {
    take(r, "\"");
    for (; *r->p != '"'; r->p++) {
        must(r, (unsigned char)*r->p >= 0x20);
        if (*r->p == '\\') must(r, strchr("\\\"n", *++r->p) != NULL);
    }
    r->p++;
}

static void take_labels(reader *r, sample *s) {
    char name[96];
    size_t n = 0;
    take(r, "{");
    for (bool first = true; *r->p != '}'; first = false) {
        if (!first) take(r, ",");
        const char *start = r->p;
        take_name(r, name, false);
        take(r, "=");
        const char *value = r->p + 1;
        take_quoted(r);
        if (strcmp(name, "le") == 0) s->le = strncmp(value, "+Inf", 4) ? atof(value) : INFINITY;
        else n += (size_t)snprintf(s->labels + n, sizeof s->labels - n, "%.*s;", (int)(r->p - start), start);
    }
    take(r, "} ");
    must(r, NULL != strstr(s->labels, "model_name=\"a \\\"quoted\\\\\\nname\";"));
}

/* Parses "# HELP name text" and "# TYPE name type". Each family has them once, before its samples. */
static void take_family(reader *r) {
    char again[96];
    take(r, "# HELP ");
    take_name(r, r->family, true);
    for (int i = 0; i < r->n_seen; i++) must(r, strcmp(r->seen[i], r->family) != 0);
    strcpy(r->seen[r->n_seen++], r->family);
    take(r, " ");
    must(r, isupper((unsigned char)*r->p) || isdigit((unsigned char)*r->p));
    r->p += strcspn(r->p, "\n");
    take(r, "\n# TYPE ");
    take_name(r, again, true);
    assert_string_equal(again, r->family);
    take(r, " ");
    take_name(r, r->type, false);
    must(r, !strcmp(r->type, "counter") || !strcmp(r->type, "gauge") || !strcmp(r->type, "histogram"));
    bool is_total = strcmp(r->family + strlen(r->family) - 6, "_total") == 0;
    must(r, is_total == (strcmp(r->type, "counter") == 0));
    take(r, "\n");
    r->line += 2;
    r->last = (sample){.le = NAN};
}

/* Checks that buckets are cumulative and end with +Inf, and that _count equals the last one. */
static void check_histogram(reader *r, const sample *s) {
    const char *suffix = s->name + strlen(r->family);
    bool same = strcmp(r->last.labels, s->labels) == 0 && !isnan(r->last.le);
    if (strcmp(suffix, "_bucket") == 0) {
        must(r, !isnan(s->le));
        must(r, same && !isinf(r->last.le) ? s->le > r->last.le && s->value >= r->last.value : true);
        must(r, same || isnan(r->last.le) || isinf(r->last.le));
        r->last = *s;
    } else if (strcmp(suffix, "_count") == 0) {
        must(r, same && isinf(r->last.le) && s->value == r->last.value);
    } else {
        must(r, strcmp(suffix, "_sum") == 0 && same && isinf(r->last.le));
    }
}

static void take_sample(reader *r) {
    sample s = {.le = NAN};
    take_name(r, s.name, true);
    must(r, strncmp(s.name, r->family, strlen(r->family)) == 0);
    take_labels(r, &s);
    s.value = take_number(r, '\n');
    must(r, isfinite(s.value));
    if (strcmp(r->type, "histogram") == 0) check_histogram(r, &s);
    else must(r, strcmp(s.name, r->family) == 0);
    must(r, strcmp(r->type, "counter") != 0 || s.value >= 0);
    r->line++;
}

static reader read_page(const char *page) {
    reader r = {.p = page, .line = 1};
    while (*r.p) {
        if (*r.p == '#') take_family(&r);
        else take_sample(&r);
    }
    return r;
}

/* Returns the value of a series with these labels, which follow model_name. */
static double value_of(const char *page, const char *name, const char *labels) {
    um_buf key = {0};
    um_buf_printf(&key, "\n%s{model_name=\"a \\\"quoted\\\\\\nname\"%s%s} ", name, *labels ? "," : "", labels);
    const char *at = strstr(page, key.data);
    if (!at) fail_msg("no %s{%s}", name, labels);
    double v = atof(at + key.len);
    um_buf_free(&key);
    return v;
}

static char *get_page(void) {
    um_buf page = {0};
    um_metrics_page_put(&service, &page);
    return um_buf_take(&page);
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

static const char *const series[] = {"requests_total",
                                     "prompt_tokens_total",
                                     "generation_tokens_total",
                                     "nfe_total",
                                     "preemptions_total",
                                     "aborts_total",
                                     "prefix_cache_queries_total",
                                     "prefix_cache_hits_total",
                                     "steps_total",
                                     "requests_running",
                                     "requests_waiting",
                                     "kv_pages_used",
                                     "kv_pages_free",
                                     "kv_cache_usage_ratio",
                                     "tokens_per_forward",
                                     "backend_up",
                                     "time_to_first_token_seconds",
                                     "time_per_output_token_seconds",
                                     "e2e_request_latency_seconds",
                                     "request_queue_seconds",
                                     "step_seconds",
                                     "step_query_tokens",
                                     "nfe_per_request",
                                     "tokens_per_forward_per_request",
                                     "request_prompt_tokens",
                                     "request_generation_tokens",
                                     "batches",
                                     "batch_lines_total",
                                     "batch_lines_running",
                                     "files",
                                     "file_bytes"};

static bool has(const reader *r, const char *prefix, const char *name) {
    char full[128];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    for (int i = 0; i < r->n_seen; i++)
        if (strcmp(r->seen[i], full) == 0) return true;
    return false;
}

static void page_is_well_formed_and_complete(void **state) {
    (void)state;
    int64_t steps[UM_STATS_BUCKETS] = {1, 2, 3};
    um_msg_finish m = answer(30);
    um_metrics_count_request(service.metrics, "/v1/chat/completions", 200, 0.5);
    um_metrics_count_request(service.metrics, "none", 400, 0);
    um_metrics_count_finish(service.metrics, &m, NULL);
    um_metrics_count_finish(service.metrics, &m, "client");
    stats.decode_step = stats.prefill_step = stats.step_tokens = steps;
    stats.n_decode_step = stats.n_prefill_step = stats.n_step_tokens = UM_STATS_BUCKETS;
    char *page = get_page();
    reader r = read_page(page);
    for (size_t i = 0; i < UM_LEN(series); i++)
        if (!has(&r, "unmask_", series[i])) fail_msg("no %s", series[i]);
    assert_true(has(&r, "vllm:", "num_requests_running") && has(&r, "vllm:", "num_requests_waiting"));
    assert_true(has(&r, "vllm:", "kv_cache_usage_perc") && has(&r, "vllm:", "time_to_first_token_seconds"));
    assert_true(has(&r, "vllm:", "time_per_output_token_seconds") && has(&r, "vllm:", "e2e_request_latency_seconds"));
    assert_int_equal((int)value_of(page, "unmask_step_seconds_count", "phase=\"decode\""), 6);
    um_free(page);
}

static void an_empty_page_is_well_formed(void **state) {
    (void)state;
    config.metrics_vllm_aliases = false;
    char *page = get_page();
    reader r = read_page(page);
    assert_false(has(&r, "vllm:", "num_requests_running"));
    assert_int_equal((int)value_of(page, "unmask_backend_up", ""), 1);
    um_free(page);
}

static void answers_are_counted_by_route_status_and_reason(void **state) {
    (void)state;
    um_msg_finish m = answer(24), second = m;
    second.index = 1; /* another answer of the request, whose prompt counts once */
    um_metrics_count_finish(service.metrics, &m, NULL);
    um_metrics_count_finish(service.metrics, &second, NULL);
    m.n_ids = 0;
    um_metrics_count_finish(service.metrics, &m, "timeout");
    um_metrics_count_request(service.metrics, "/generate", 200, 0.5);
    um_metrics_count_request(service.metrics, "/generate", 200, 0.5);
    um_metrics_count_request(service.metrics, "/generate", 499, 0.5);
    char *page = get_page();
    assert_int_equal((int)value_of(page, "unmask_prompt_tokens_total", ""), 24);
    assert_int_equal((int)value_of(page, "unmask_generation_tokens_total", ""), 48);
    assert_int_equal((int)value_of(page, "unmask_nfe_total", ""), 24);
    assert_int_equal((int)value_of(page, "unmask_aborts_total", "reason=\"timeout\""), 1);
    assert_int_equal((int)value_of(page, "unmask_requests_total", "route=\"/generate\",status=\"200\""), 2);
    assert_int_equal((int)value_of(page, "unmask_requests_total", "route=\"/generate\",status=\"499\""), 1);
    assert_float_equal(value_of(page, "unmask_tokens_per_forward", ""), 3, 1e-9);
    assert_float_equal(value_of(page, "unmask_time_per_output_token_seconds_sum", ""), 2.0 / 23, 1e-9);
    assert_int_equal((int)value_of(page, "unmask_time_to_first_token_seconds_bucket", "le=\"0.1\""), 0);
    assert_int_equal((int)value_of(page, "unmask_time_to_first_token_seconds_bucket", "le=\"0.25\""), 2);
    um_free(page);
}

/* Gives all sources of the page values other than 0. */
static void fill_all(int64_t steps[UM_STATS_BUCKETS]) {
    um_msg_finish m = answer(30);
    um_metrics_count_request(service.metrics, "/generate", 200, 0.5);
    um_metrics_count_finish(service.metrics, &m, NULL);
    um_metrics_count_finish(service.metrics, &m, "client");
    stats = (um_msg_stats){.steps = 1, .preemptions = 1, .prefix_queries = 2, .prefix_hits = 1, .forward_tokens = 3};
    stats.prefill_seconds = stats.decode_seconds = 1;
    stats.decode_step = stats.prefill_step = stats.step_tokens = steps;
    stats.n_decode_step = stats.n_prefill_step = stats.n_step_tokens = UM_STATS_BUCKETS;
    stats.pages_total = 20;
    stats.pages_used = 8;
    stats.requests_running = stats.requests_waiting = 1;
    for (int i = 0; i < 2; i++) workers[i] = (um_worker_status){.state = UM_WORKER_UP, .restarts = 1};
    for (int i = 0; i < UM_BATCH_N_STATUS; i++) batches.batches[i] = 1;
    batches.lines_completed = batches.lines_failed = batches.lines_running = 1;
    batches.inputs.n = batches.inputs.bytes = batches.outputs.n = batches.outputs.bytes = 1;
    connections = service.n_open = 1;
    jobs_open = 1;
}

/* Returns whether a line may be equal on both pages: comments; buckets, because _sum and _count are compared instead;
 * and dropped log lines, which tests/server/server.sh tests. */
static bool is_exempt(const char *line) {
    return line[0] == '#' || strstr(line, "_bucket{") || strstr(line, "unmask_log_lines_dropped_total{");
}

static void every_series_changes_with_its_source(void **state) {
    (void)state;
    int64_t steps[UM_STATS_BUCKETS] = {1, 2, 3};
    for (int i = 0; i < 2; i++) workers[i] = (um_worker_status){.state = UM_WORKER_DEAD};
    connections = service.n_open = 0;
    char *empty = get_page();
    fill_all(steps);
    char *full = get_page();
    for (char *line = empty, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        *end = '\0';
        um_buf whole = {0};
        um_buf_printf(&whole, "\n%s\n", line);
        if (!is_exempt(line) && strstr(full, whole.data)) fail_msg("the value is always the same: %s", line);
        um_buf_free(&whole);
    }
    um_free(empty);
    um_free(full);
}

static void reasons_beyond_the_table_are_counted_as_other(void **state) {
    (void)state;
    um_msg_finish m = answer(1);
    char reason[32];
    for (int i = 0; i < 40; i++) {
        snprintf(reason, sizeof reason, "reason %d", i);
        um_metrics_count_finish(service.metrics, &m, reason);
    }
    char *page = get_page();
    read_page(page);
    assert_int_equal((int)value_of(page, "unmask_aborts_total", "reason=\"reason 14\""), 1);
    assert_int_equal((int)value_of(page, "unmask_aborts_total", "reason=\"other\""), 25);
    um_free(page);
}

static void batches_and_files_are_counted_by_status_and_purpose(void **state) {
    (void)state;
    batches.batches[UM_BATCH_IN_PROGRESS] = 2;
    batches.batches[UM_BATCH_CANCELLED] = 3;
    batches.lines_completed = 70;
    batches.lines_failed = 4;
    batches.lines_running = 8;
    batches.inputs.n = 5;
    batches.inputs.bytes = 5000;
    batches.outputs.n = 6;
    batches.outputs.bytes = 60000000000;
    char *page = get_page();
    read_page(page);
    assert_int_equal((int)value_of(page, "unmask_batches", "status=\"in_progress\""), 2);
    assert_int_equal((int)value_of(page, "unmask_batches", "status=\"cancelled\""), 3);
    assert_int_equal((int)value_of(page, "unmask_batches", "status=\"completed\""), 0);
    assert_int_equal((int)value_of(page, "unmask_batch_lines_total", "result=\"completed\""), 70);
    assert_int_equal((int)value_of(page, "unmask_batch_lines_total", "result=\"failed\""), 4);
    assert_int_equal((int)value_of(page, "unmask_batch_lines_running", ""), 8);
    assert_int_equal((int)value_of(page, "unmask_files", "purpose=\"batch\""), 5);
    assert_int_equal((int)value_of(page, "unmask_files", "purpose=\"batch_output\""), 6);
    assert_int_equal((int)value_of(page, "unmask_file_bytes", "purpose=\"batch\""), 5000);
    assert_float_equal(value_of(page, "unmask_file_bytes", "purpose=\"batch_output\""), 6e10, 0);
    um_free(page);
}

static void statistics_of_workers_are_sums_of_the_pool(void **state) {
    (void)state;
    stats = (um_msg_stats){.steps = 160, .preemptions = 2, .prefix_queries = 50, .prefix_hits = 20};
    stats.pages_total = 20;
    stats.pages_used = 8;
    stats.requests_running = 3;
    stats.requests_waiting = 1;
    workers[0] = (um_worker_status){.state = UM_WORKER_DEAD, .restarts = 1};
    char *page = get_page();
    assert_int_equal((int)value_of(page, "unmask_steps_total", ""), 160);
    assert_int_equal((int)value_of(page, "unmask_preemptions_total", ""), 2);
    assert_int_equal((int)value_of(page, "unmask_prefix_cache_hits_total", ""), 20);
    assert_int_equal((int)value_of(page, "unmask_worker_restarts_total", ""), 1);
    assert_int_equal((int)value_of(page, "unmask_kv_pages_used", ""), 8);
    assert_int_equal((int)value_of(page, "unmask_kv_pages_free", ""), 12);
    assert_float_equal(value_of(page, "unmask_kv_cache_usage_ratio", ""), 0.4, 1e-9);
    assert_int_equal((int)value_of(page, "unmask_requests_running", ""), 3);
    assert_int_equal((int)value_of(page, "unmask_requests_waiting", ""), 1);
    assert_int_equal((int)value_of(page, "unmask_workers_up", ""), 1);
    um_free(page);
    workers[1].state = UM_WORKER_SILENT;
    page = get_page();
    assert_int_equal((int)value_of(page, "unmask_backend_up", ""), 0);
    um_free(page);
}

static void devices_are_counted_by_worker_and_kind(void **state) {
    (void)state;
    const um_msg_stats gpu = {.graph_replays = 70,
                              .graphs = 6,
                              .weight_bytes = 16,
                              .kv_bytes = 100,
                              .workspace_bytes = 2,
                              .device_bytes = 141,
                              .device_free_bytes = 20},
                       host = {.graph_replays = 1, .weight_bytes = 3};
    stats = gpu;
    workers[0].stats = &host;
    workers[1].stats = &gpu;
    char *page = get_page();
    reader r = read_page(page);
    assert_true(has(&r, "unmask_", "device_memory_bytes"));
    assert_int_equal((int)value_of(page, "unmask_graph_replays_total", "worker=\"1\""), 70);
    assert_int_equal((int)value_of(page, "unmask_graphs", "worker=\"1\""), 6);
    static const struct {
        const char *labels;
        int value;
    } memory[] = {{"worker=\"1\",kind=\"weights\"", 16},
                  {"worker=\"1\",kind=\"kv\"", 100},
                  {"worker=\"1\",kind=\"workspace\"", 2},
                  {"worker=\"1\",kind=\"free\"", 20},
                  {"worker=\"1\",kind=\"total\"", 141}};
    for (size_t i = 0; i < UM_LEN(memory); i++)
        assert_int_equal((int)value_of(page, "unmask_device_memory_bytes", memory[i].labels), memory[i].value);
    assert_null(strstr(page, "worker=\"0\""));
    um_free(page);
    stats = host; /* no device has memory of its own */
    page = get_page();
    assert_null(strstr(page, "graph"));
    assert_null(strstr(page, "device_memory"));
    um_free(page);
}

static void times_of_ranks_are_counted_by_worker_and_rank(void **state) {
    (void)state;
    static const int64_t pass[] = {3000000, 4000000}, exchange[] = {500000, 250000};
    const um_msg_stats with = {.rank_pass = pass, .rank_exchange = exchange, .n_rank_pass = 2, .n_rank_exchange = 2},
                       without = {0};
    stats = with;
    workers[0].stats = &without;
    workers[1].stats = &with;
    char *page = get_page();
    assert_float_equal(value_of(page, "unmask_rank_pass_seconds_total", "worker=\"1\",rank=\"0\""), 3, 1e-9);
    assert_float_equal(value_of(page, "unmask_rank_pass_seconds_total", "worker=\"1\",rank=\"1\""), 4, 1e-9);
    assert_float_equal(value_of(page, "unmask_rank_exchange_seconds_total", "worker=\"1\",rank=\"0\""), 0.5, 1e-9);
    assert_float_equal(value_of(page, "unmask_rank_exchange_seconds_total", "worker=\"1\",rank=\"1\""), 0.25, 1e-9);
    assert_null(strstr(page, "worker=\"0\",rank"));
    um_free(page);
    workers[1].stats = &without;
    page = get_page();
    assert_null(strstr(page, "rank_"));
    um_free(page);
}

static void bounds_ascend(void **state) {
    (void)state;
    const um_bounds *all[] = {&um_bounds_latency, &um_bounds_token_time, &um_bounds_tokens, &um_bounds_passes,
                              &um_bounds_ratio};
    for (size_t i = 0; i < UM_LEN(all); i++)
        for (int32_t k = 1; k < all[i]->n; k++) assert_true(all[i]->at[k] > all[i]->at[k - 1]);
    for (int32_t k = 1; k < UM_STATS_BUCKETS - 1; k++) {
        assert_true(um_stats_bounds_seconds[k] > um_stats_bounds_seconds[k - 1]);
        assert_true(um_stats_bounds_tokens[k] > um_stats_bounds_tokens[k - 1]);
    }
    assert_int_equal(um_stats_bucket(um_stats_bounds_tokens, 1), 0);
    assert_int_equal(um_stats_bucket(um_stats_bounds_tokens, 1.5), 1);
    assert_int_equal(um_stats_bucket(um_stats_bounds_tokens, 1e9), UM_STATS_BUCKETS - 1);
}

#define CLAIM(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CLAIM(page_is_well_formed_and_complete),
        CLAIM(an_empty_page_is_well_formed),
        CLAIM(answers_are_counted_by_route_status_and_reason),
        CLAIM(reasons_beyond_the_table_are_counted_as_other),
        CLAIM(statistics_of_workers_are_sums_of_the_pool),
        CLAIM(batches_and_files_are_counted_by_status_and_purpose),
        CLAIM(every_series_changes_with_its_source),
        CLAIM(devices_are_counted_by_worker_and_kind),
        CLAIM(times_of_ranks_are_counted_by_worker_and_rank),
        CLAIM(bounds_ascend),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
