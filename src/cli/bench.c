/* unmask bench: measures the speed of a model on this machine.
 *
 * The time of a run is from the submission of the first prompt to the end of the last answer. It includes tokenizing,
 * scheduling, all forward passes and converting ids to text; it excludes loading, creating the engine, and the warm-up.
 * Each batch size gets a new engine and answers the same prompts. All sizes produce the same tokens, because an answer
 * does not depend on the other requests. */
#include <math.h>
#include <stddef.h>

#include "cli/bulk.h"
#include "cli/cli.h"
#include "cli/dataset.h"
#include "cli/report.h"
#include "model/model.h"

#if __has_include("commit.h")
#include "commit.h"
#endif
#ifndef UM_COMMIT
#define UM_COMMIT "unknown"
#endif

enum { BATCHES_MAX = 16, RUNS_MAX = 1000, RANDOM_PROMPTS = 32, RANDOM_TOKENS = 64, INDENT = 10 };

typedef struct bench_options {
    const char *batch, *prompts, *adapter, *profile;
    int32_t runs, requests;
    bool json, raw, quiet;
} bench_options;

#define B(field) UM_FIELD(bench_options, field)

static const um_option options[] = {
    {"adapter", NULL, UM_OPT_STR, B(adapter), 0, 0, NULL, NULL, NULL, "NAME", "Model", "use this adapter of --lora"},
    {"batch", NULL, UM_OPT_STR, B(batch), 0, 0, NULL, "1,8,32", NULL, "N,N", "Measurement",
     "batch sizes to measure: numbers of requests that run at once"},
    {"requests", NULL, UM_OPT_INT, B(requests), 1, 1e6, NULL, "64", NULL, "N", "Measurement",
     "number of requests per run; prompts are repeated if there are fewer"},
    {"runs", NULL, UM_OPT_INT, B(runs), 1, RUNS_MAX, NULL, "3", NULL, "N", "Measurement",
     "number of timed runs for each batch size, after one warm-up run"},
    {"prompts", NULL, UM_OPT_STR, B(prompts), 0, 0, NULL, NULL, NULL, "FILE", "Measurement",
     "file of prompts, one {\"id\", \"kind\", \"prompt\", \"answer\"} per line; without it, eval.jsonl next to the "
     "model's folder, or random tokens"},
    {"raw", NULL, UM_OPT_BOOL, B(raw), 0, 0, NULL, "false", NULL, NULL, "Measurement", UM_RAW_HELP},
    UM_PROFILE_ROW(B(profile), "Measurement"),
    {"json", NULL, UM_OPT_BOOL, B(json), 0, 0, NULL, "false", NULL, NULL, "Measurement", "print the report as JSON"},
    {"quiet", "q", UM_OPT_BOOL, B(quiet), 0, 0, NULL, "false", NULL, NULL, "Measurement",
     "print no progress to standard error"},
};

/* The counts of a run. */
typedef struct sample {
    double seconds;
    int64_t tokens, passes, steps;
    int32_t engines;
    int64_t rows; /* tokens fed to the model */
} sample;

typedef struct point {
    int32_t batch;
    sample run[RUNS_MAX];
    um_metrics metrics; /* metrics of all timed runs together */
    um_rates rates;
} point;

typedef struct bench {
    bench_options opt;
    int32_t batch[BATCHES_MAX];
    int n_batches;
    um_dataset data; /* prompts; empty: random tokens */
    char *default_path;
    const char *path;
    int32_t (*random)[RANDOM_TOKENS]; /* [RANDOM_PROMPTS] */
    bool has_template;
    um_model *model;
    double load_seconds;
    um_progress *bar;
    int64_t n_answered; /* answers of all runs */

    /* The current run. */
    int32_t next;
    um_message message;
    sample now;
    um_metrics *metrics;

    point *point; /* [n_batches] */
} bench;

/* ---- Prompts ----------------------------------------------------------------------------------------------------- */

/* Makes random prompts, the same on every machine. Leaves out special tokens, which might end the answer or be the
 * mask. */
static void make_random(bench *b) {
    const um_model *m = b->model;
    uint64_t key = um_rng_key(1, 0, 0, 0), counter = 0;
    b->random = (int32_t(*)[RANDOM_TOKENS])um_zalloc(sizeof(int32_t[RANDOM_PROMPTS][RANDOM_TOKENS]));
    for (int i = 0; i < RANDOM_PROMPTS; i++) {
        for (int k = 0; k < RANDOM_TOKENS; k++) {
            int32_t id;
            do id = (int32_t)(um_rng_u64(key, counter++) % (uint64_t)m->net.vocab);
            while (!um_tok_exists(m->tok, id) || um_tok_is_special(m->tok, id) || id == m->arch.mask_id);
            b->random[i][k] = id;
        }
    }
}

static um_bulk_got next_prompt(void *arg, um_bulk_request *t, um_request *r, bool wait) {
    bench *b = (bench *)arg;
    (void)t, (void)wait;
    r->adapter = b->opt.adapter;
    if (b->next == b->opt.requests) return UM_BULK_END;
    int32_t i = b->next++;
    if (b->random) {
        r->ids = b->random[i % RANDOM_PROMPTS];
        r->n_ids = RANDOM_TOKENS;
        return UM_BULK_REQUEST;
    }
    const char *prompt = b->data.example[(size_t)i % b->data.n].prompt;
    b->message = (um_message){"user", prompt};
    if (b->has_template) {
        r->messages = &b->message;
        r->n_messages = 1;
    } else {
        r->text = prompt;
        r->text_len = strlen(prompt);
    }
    return UM_BULK_REQUEST;
}

static void describe_prompts(const bench *b, um_buf *out) {
    if (b->random) um_buf_printf(out, "%d prompts of %d random tokens", RANDOM_PROMPTS, RANDOM_TOKENS);
    else um_buf_printf(out, "%s, %s", b->path, b->has_template ? "through the chat template" : "as plain text");
}

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

static void on_event(void *arg, um_bulk_request *t, const um_event *ev) {
    bench *b = (bench *)arg;
    (void)t;
    if (ev->type != UM_EVENT_FINISH) return;
    b->now.tokens += (int64_t)ev->result->n_tokens;
    um_metrics_add(b->metrics, ev->result);
    b->n_answered++;
}

static um_status take_answer(void *arg, um_bulk_request *t, um_err *err) {
    (void)arg;
    return t->err.code ? um_fail(err, t->err.code, "%s", t->err.msg) : UM_OK;
}

static void show_progress(void *arg) {
    bench *b = (bench *)arg;
    um_progress_set(b->bar, b->n_answered, NULL);
}

static um_status run_once(bench *b, um_router *r, int32_t batch, sample *out, um_err *err) {
    um_bulk bulk = {.arg = b, .next = next_prompt, .event = on_event, .take = take_answer, .tick = show_progress};
    um_stats before, after;
    b->next = 0;
    b->now = (sample){0};
    um_router_get_stats(r, &before);
    double start = um_now();
    um_status st = um_bulk_run(r, batch, &bulk, err);
    b->now.seconds = um_now() - start;
    um_router_get_stats(r, &after);
    b->now.passes = after.passes - before.passes;
    b->now.steps = after.steps - before.steps;
    b->now.engines = um_router_size(r);
    b->now.rows = after.forward_tokens - before.forward_tokens;
    *out = b->now;
    return st;
}

static um_status measure(bench *b, const um_config *c, point *p, um_err *err) {
    um_config mine = *c;
    um_router *r = NULL;
    um_metrics cold = {0};
    um_stats before, after;
    sample warm_up;
    b->metrics = &cold;
    mine.max_num_reqs = p->batch;
    um_status st = um_router_new(&r, b->model, &mine, err);
    if (!st) st = run_once(b, r, p->batch, &warm_up, err);
    b->metrics = &p->metrics;
    if (!st) um_router_get_stats(r, &before);
    if (!st) st = um_cli_profile_start(r, b->opt.profile, err);
    for (int i = 0; i < b->opt.runs && !st; i++) st = run_once(b, r, p->batch, &p->run[i], err);
    if (!st) um_router_get_stats(r, &after);
    if (!st) p->rates = um_metrics_rates(&p->metrics, &before, &after);
    if (!st) st = um_cli_profile_stop(r, b->opt.profile, b->opt.quiet, err);
    um_router_free(r);
    return st;
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

static double tokens_per_second(const sample *s) { return um_ratio((double)s->tokens, s->seconds); }
static double passes_per_second(const sample *s) { return um_ratio((double)s->passes, s->seconds); }
static double tokens_per_pass(const sample *s) { return um_ratio((double)s->tokens, (double)s->passes); }
static double requests_per_step(const sample *s) { return um_ratio((double)s->passes, (double)s->steps); }
/* Several engines run their steps at the same time. */
static double ms_per_step(const sample *s) { return 1e3 * um_ratio(s->seconds * s->engines, (double)s->steps); }
static double us_per_row(const sample *s) { return 1e6 * um_ratio(s->seconds, (double)s->rows); }

static const struct {
    const char *key, *format;
    double (*of)(const sample *);
} columns[] = {
    {"tokens_per_second", "%10.1f", tokens_per_second},
    {"forwards_per_second", "%11.1f", passes_per_second},
    {"tokens_per_forward", "%8.2f", tokens_per_pass},
    {"forwards_per_step", "%9.1f", requests_per_step},
    {"ms_per_step", "%9.2f", ms_per_step},
    {"us_per_row", "%8.1f", us_per_row},
};

static um_spread spread_of(const bench *b, const point *p, size_t column) {
    double v[RUNS_MAX];
    for (int i = 0; i < b->opt.runs; i++) v[i] = columns[column].of(&p->run[i]);
    return um_spread_of(v, (size_t)b->opt.runs);
}

static void print(um_buf *out) {
    um_cli_write(out);
    um_cli_flush();
    um_buf_free(out);
}

/* ---- The report -------------------------------------------------------------------------------------------------- */

static const char timed[] = "from the submission of the first prompt to the end of the last answer, "
                            "without loading and warm-up";

static void print_conditions(const bench *b, const um_config *c) {
    um_machine machine;
    um_model_info info;
    um_buf prompts = {0}, changes = {0}, out = {0};
    const um_model *m = b->model;
    um_device_info device;
    char parameters[UM_COUNT_TEXT];
    m->backend->info(m->device, &device);
    um_machine_get(&machine);
    um_model_get_info(m, &info);
    describe_prompts(b, &prompts);
    um_report_changes(&changes, c);
    um_report_line(&out, "timed", INDENT, timed);
    um_report_linef(&out, "machine", INDENT, "%s, %d cores, %s", machine.cpu, machine.cores, device.name);
    um_report_linef(&out, "program", INDENT, "unmask %s, commit %s", um_version(), UM_COMMIT);
    um_report_linef(&out, "model", INDENT, "%s (%s), %s parameters, %s on %s, %d threads%s", info.path, info.family,
                    um_count_text(parameters, (double)info.n_params), um_model_type_name(m), c->device, device.threads,
                    c->data_parallel_size > 1 ? " for each engine" : "");
    um_report_linef(&out, "loading", INDENT, "%.3f s", b->load_seconds);
    um_report_linef(&out, "requests", INDENT, "%d per run: %s", b->opt.requests, prompts.data);
    um_report_line(&out, "options", INDENT, changes.data);
    um_buf_puts(&out, "\nbatch  tokens/s        min..max  forwards/s tok/fwd fwd/step  ms/step  us/row\n");
    print(&out);
    um_buf_free(&prompts);
    um_buf_free(&changes);
}

static void print_point(const bench *b, const point *p) {
    um_buf out = {0};
    um_buf_printf(&out, "%5d", p->batch);
    for (size_t i = 0; i < UM_LEN(columns); i++) {
        um_spread s = spread_of(b, p, i);
        um_buf_printf(&out, columns[i].format, s.median);
        if (i == 0) um_buf_printf(&out, " %8.1f..%-8.1f", s.min, s.max);
    }
    um_buf_putc(&out, '\n');
    um_progress_clear(b->bar);
    print(&out);
}

static void put_latencies(const point *p, um_buf *out) {
    const um_rates *r = &p->rates;
    um_buf_printf(out, "%5d %8.1f %8.2f %9.1f %9.1f %7.2f%%", p->batch, 1e3 * r->ttft, 1e3 * r->tpot,
                  r->prefill_throughput, r->decode_throughput, 1e2 * r->overhead);
    for (size_t i = 0; i < UM_LEN(um_report_quantiles); i++)
        um_buf_printf(out, " %6.3f", um_histogram_quantile(&p->metrics.total, um_report_quantiles[i]));
    um_buf_putc(out, '\n');
}

/* Prints the part of the report that follows the table of speeds. */
static void print_end(const bench *b) {
    um_buf out = {0};
    um_buf_puts(&out, "\nbatch  ttft ms  tpot ms prefill/s  decode/s overhead    p50    p90    p95    p99\n");
    for (int i = 0; i < b->n_batches; i++) put_latencies(&b->point[i], &out);
    um_buf_putc(&out, '\n');
    um_report_linef(
        &out, "", 0,
        "Medians of %d runs. A forward (fwd) is a forward pass of one request; a step runs the passes of a "
        "batch; a row is a token that is fed. tok/fwd counts the tokens of answers and all passes. The second table is "
        "over all runs: ttft and tpot are means over requests, prefill and decode are tokens/s, overhead "
        "is the share of the steps' time outside of the forward pass, p50 to p99 are quantiles of the "
        "seconds of an answer.",
        b->opt.runs);
    print(&out);
}

static void put_conditions(const bench *b, const um_config *c, um_jw *w) {
    um_machine machine;
    um_model_info info;
    um_buf prompts = {0};
    um_device_info device;
    b->model->backend->info(b->model->device, &device);
    um_machine_get(&machine);
    um_model_get_info(b->model, &info);
    describe_prompts(b, &prompts);
    um_jw_put_cstr(w, "timed", timed);
    um_jw_put_cstr(w, "cpu", machine.cpu);
    um_jw_put_int(w, "cores", machine.cores);
    um_jw_put_cstr(w, "isa", device.name);
    um_jw_put_cstr(w, "version", um_version());
    um_jw_put_cstr(w, "commit", UM_COMMIT);
    um_jw_put_cstr(w, "model", info.path);
    um_jw_put_cstr(w, "family", info.family);
    um_jw_put_int(w, "parameters", info.n_params);
    um_jw_put_cstr(w, "dtype", um_dtype_name(b->model->dtype));
    um_jw_put_cstr(w, "weight_type", um_dtype_name(b->model->weight_type));
    um_jw_put_int(w, "threads", device.threads);
    um_jw_put_double(w, "load_seconds", b->load_seconds);
    um_jw_put_cstr(w, "prompts", prompts.data);
    um_jw_put_int(w, "requests", b->opt.requests);
    um_jw_put_int(w, "runs", b->opt.runs);
    um_jw_key(w, "options");
    um_report_options(w, c);
    um_buf_free(&prompts);
}

static void put_point(const bench *b, const point *p, um_jw *w) {
    um_jw_begin_object(w);
    um_jw_put_int(w, "batch", p->batch);
    um_jw_put_int(w, "tokens", p->run[0].tokens);
    um_jw_put_int(w, "forwards", p->run[0].passes);
    um_jw_put_int(w, "rows", p->run[0].rows);
    for (size_t i = 0; i < UM_LEN(columns); i++) {
        um_spread s = spread_of(b, p, i);
        um_jw_key(w, columns[i].key);
        um_jw_begin_object(w);
        um_jw_put_double(w, "median", s.median);
        um_jw_put_double(w, "min", s.min);
        um_jw_put_double(w, "max", s.max);
        um_jw_end_object(w);
    }
    um_report_put_speed(w, &p->metrics, &p->rates);
    um_jw_end_object(w);
}

static void print_json(const bench *b, const um_config *c) {
    um_buf out = {0};
    um_jw w;
    um_jw_init(&w, &out);
    um_jw_begin_object(&w);
    put_conditions(b, c, &w);
    um_jw_key(&w, "batches");
    um_jw_begin_array(&w);
    for (int i = 0; i < b->n_batches; i++) put_point(b, &b->point[i], &w);
    um_jw_end_array(&w);
    um_jw_end_object(&w);
    um_buf_putc(&out, '\n');
    um_cli_write(&out);
    um_buf_free(&out);
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

static um_status check_profile(const bench *b, um_err *err) {
    if (!b->opt.profile || b->n_batches == 1) return um_cli_profile_check(b->opt.profile, err);
    return um_fail(err, UM_EINVAL, "--profile writes a single trace; set a single batch size, as in --batch 16");
}

/* Parses --batch, as in "1,8,32". */
static um_status parse_batches(bench *b, um_err *err) {
    for (const char *p = b->opt.batch; *p;) {
        size_t n = strcspn(p, ",");
        char *word = um_strndup(p, n);
        int64_t v = 0;
        bool ok = um_parse_int(word, &v) && v >= 1 && v <= 4096 && b->n_batches < BATCHES_MAX;
        um_free(word);
        if (!ok) break;
        b->batch[b->n_batches++] = (int32_t)v;
        p += n + (p[n] == ',');
        if (!*p && p[-1] != ',') return check_profile(b, err);
    }
    return um_fail(err, UM_EINVAL, "--batch: expected up to %d numbers 1..4096, separated by commas, found \"%.80s\"",
                   BATCHES_MAX, b->opt.batch);
}

static um_status open_prompts(bench *b, const um_config *c, um_err *err) {
    if (!b->opt.prompts) b->default_path = um_dataset_find(c->model, "eval.jsonl");
    b->path = b->opt.prompts ? b->opt.prompts : b->default_path;
    return b->path ? um_dataset_load(&b->data, b->path, 0, err) : UM_OK;
}

static um_status open_model(bench *b, um_config *c, um_err *err) {
    um_model_info info;
    um_config mine = *c;
    um_loading loading;
    double start = um_now();
    um_loading_begin(&loading, &mine, b->opt.quiet);
    um_status st = um_model_open(&b->model, &mine, err);
    um_loading_end(&loading);
    if (st) return um_cli_explain_model_error(err);
    b->load_seconds = um_now() - start;
    um_model_get_info(b->model, &info);
    b->has_template = info.has_chat_template && !b->opt.raw;
    if (b->path) return UM_OK;
    make_random(b);
    c->sampling.ignore_eos = true; /* answers to random tokens may end anywhere; this makes their lengths equal */
    return UM_OK;
}

static um_status measure_all(bench *b, const um_config *c, um_err *err) {
    um_status st = UM_OK;
    int64_t n = (int64_t)b->n_batches * (b->opt.runs + 1) * b->opt.requests;
    if (!b->opt.quiet) b->bar = um_progress_new("requests", n, 0, UM_PROGRESS_INTERVAL);
    b->point = UM_NEW_ARRAY(point, (size_t)b->n_batches);
    if (!b->opt.json) print_conditions(b, c);
    for (int i = 0; i < b->n_batches && !st; i++) {
        b->point[i].batch = b->batch[i];
        st = measure(b, c, &b->point[i], err);
        if (!st && !b->opt.json) print_point(b, &b->point[i]);
    }
    um_progress_free(b->bar);
    return st;
}

static int run_bench(const um_command *self, bench *b, const um_args *words, um_config *c) {
    um_err err = {0};
    um_status st = um_cli_no_words(words, "the prompts are read from --prompts", &err);
    if (!st) st = parse_batches(b, &err);
    if (!st) st = um_cli_check_engine_model(c, &err);
    if (!st) st = open_prompts(b, c, &err);
    if (st) {
        um_cli_error(self, &err);
        return st == UM_EMODEL ? UM_EXIT_DEVICE : UM_EXIT_USAGE;
    }
    st = open_model(b, c, &err);
    if (!st) st = measure_all(b, c, &err);
    if (st) return um_cli_error(self, &err);
    if (b->opt.json) print_json(b, c);
    else print_end(b);
    return UM_EXIT_OK;
}

static int run(const um_command *self, int argc, char **argv) {
    bench b = {0};
    um_config config = {0};
    um_args args;
    int code;
    um_args_parse(&args, self, argc, argv, &b.opt, &config);
    if (args.done) {
        code = args.exit;
    } else {
        um_cli_catch_signals();
        code = run_bench(self, &b, &args, &config);
    }
    um_model_close(b.model);
    um_dataset_free(&b.data);
    um_free(b.default_path);
    um_free(b.random);
    um_free(b.point);
    um_args_free(&args);
    return code;
}

const um_command um_cmd_bench = {
    .name = "bench",
    .summary = "measure the speed of a model on this machine",
    .usage = "unmask bench --model DIR [--batch 1,8,32] [options]",
    .description =
        "Answers a fixed set of prompts with each batch size: once to warm up, then --runs times. The report has the "
        "median of the runs with its spread, and the conditions: machine, commit, number type, threads. The time runs "
        "from the submission of the first prompt to the end of the last answer; loading is timed separately. Decoding "
        "is greedy unless --temperature is set.",
    .examples = "unmask bench --model models/tiny-block\n"
                "unmask bench --model models/tiny-block --batch 1,2,4,8 --runs 5\n"
                "unmask bench --model models/tiny-block --batch 1 --threads 1 --json\n",
    .options = options,
    .n_options = UM_LEN(options),
    .engine_options = true,
    .arguments = "engine|ops|serve",
    .defaults = {{"temperature", "0"}}, /* greedy decoding, so that every run does the same work */
    .run = run,
};
