/* unmask bench serve: measures a running server under load. This file turns options into points (a request rate or a
 * concurrency) and runs; load*.c sends the requests. */
#include <errno.h>
#include <jansson.h>

#include "cli/client.h"
#include "cli/dataset.h"
#include "cli/load.h"

enum { ENDPOINT_CHAT, ENDPOINT_COMPLETIONS, ENDPOINT_GENERATE, ENDPOINT_AUTO };
enum { WORDS_PROMPTS = 256, WARM_UP_AT_ONCE = 4 };
#define WORDS_DEFAULT       "16..64"
#define CONCURRENCY_DEFAULT "1,8,32"

typedef struct options {
    um_remote_options remote;
    const char *request_rate, *concurrency, *arrivals, *prompts, *prompt_words, *stop, *body, *report, *csv, *plot;
    int32_t requests, warm_up, runs, max_tokens, endpoint;
    int64_t seed;
    float seconds, slo_ttft, slo_tpot, timeout;
    bool stream, quiet;
} options;

#define O(field) UM_FIELD(options, field)
static const um_option rows[] = {
    UM_REMOTE_ROWS(options, remote, "Server"),
    {"endpoint", NULL, UM_OPT_CHOICE, O(endpoint), 0, 0, "chat|completions|generate|auto", "auto", NULL, "NAME",
     "Server",
     "endpoint to measure: /v1/chat/completions, /v1/completions or /generate; auto is chat, or completions for a "
     "model without a chat template"},
    {"timeout", NULL, UM_OPT_FLOAT, O(timeout), 0, 86400, NULL, "300", NULL, "S", "Server",
     "seconds without any data after which a request counts as failed; 0 means no limit"},
    {"request_rate", NULL, UM_OPT_STR, O(request_rate), 0, 0, NULL, NULL, NULL, "R,R", "Load",
     "open loop: average number of requests per second, sent at random times (Poisson); each rate is measured"},
    {"concurrency", NULL, UM_OPT_STR, O(concurrency), 0, 0, NULL, NULL, NULL, "N,N", "Load",
     "closed loop: number of requests that are open at once; each number is measured; 1,8,32 if no load is given"},
    {"arrivals", NULL, UM_OPT_STR, O(arrivals), 0, 0, NULL, NULL, NULL, "FILE", "Load",
     "open loop: file with the time of each request in seconds from the start, one {\"at\", \"prompt\", "
     "\"max_tokens\"} per line"},
    {"requests", NULL, UM_OPT_INT, O(requests), 1, UM_LOAD_REQUESTS_MAX, NULL, "64", NULL, "N", "Load",
     "number of requests per run"},
    {"seconds", NULL, UM_OPT_FLOAT, O(seconds), 0, 86400, NULL, "0", NULL, "S", "Load",
     "send requests for this many seconds, instead of a fixed number; 0 means use --requests"},
    {"warm_up", NULL, UM_OPT_INT, O(warm_up), 0, 1e6, NULL, "4", NULL, "N", "Load",
     "number of requests before the measurement that are not counted"},
    {"runs", NULL, UM_OPT_INT, O(runs), 1, UM_LOAD_RUNS_MAX, NULL, "1", NULL, "N", "Load",
     "number of runs per point; the report has the spread of the rates, and latencies over all runs"},
    {"seed", NULL, UM_OPT_INT64, O(seed), 0, 9007199254740991.0, NULL, "1", NULL, "N", "Load",
     "random seed of arrival times and random words; run i of a point uses seed + i"},
    {"prompts", NULL, UM_OPT_STR, O(prompts), 0, 0, NULL, NULL, NULL, "FILE", "Requests",
     "file of prompts, one {\"prompt\"} per line, used in turn; without it, those next to the bundled models"},
    {"prompt_words", NULL, UM_OPT_STR, O(prompt_words), 0, 0, NULL, NULL, NULL, "N..N", "Requests",
     "use prompts of random words instead, with this range of lengths"},
    {"max_tokens", NULL, UM_OPT_INT, O(max_tokens), 1, 1e9, NULL, "64", NULL, "N", "Requests",
     "largest number of tokens in an answer"},
    {"stop", NULL, UM_OPT_STR, O(stop), 0, 0, NULL, NULL, NULL, "TEXT", "Requests", "end answers before this text"},
    {"body", NULL, UM_OPT_STR, O(body), 0, 0, NULL, NULL, NULL, "JSON", "Requests",
     "JSON object of additional fields for every request, as in {\"stream_mode\": \"denoise\"}"},
    {"stream", NULL, UM_OPT_BOOL, O(stream), 0, 0, NULL, "true", NULL, NULL, "Requests",
     "stream the answers; without it, only whole answers are timed"},
    {"slo_ttft", NULL, UM_OPT_FLOAT, O(slo_ttft), 0, 1e9, NULL, "0", NULL, "MS", "Report",
     "latency goal for goodput: longest time to the first text, in milliseconds; 0 means any"},
    {"slo_tpot", NULL, UM_OPT_FLOAT, O(slo_tpot), 0, 1e9, NULL, "0", NULL, "MS", "Report",
     "latency goal for goodput: longest average time per token after the first text, in milliseconds; 0 means any"},
    {"report", "o", UM_OPT_STR, O(report), 0, 0, NULL, NULL, NULL, "FILE", "Report",
     "file for the report as JSON; - means standard output, and the table goes to standard error"},
    {"csv", NULL, UM_OPT_STR, O(csv), 0, 0, NULL, NULL, NULL, "FILE", "Report",
     "file for a CSV table with a row for each request, or -"},
    {"plot", NULL, UM_OPT_STR, O(plot), 0, 0, NULL, NULL, NULL, "DIR", "Report",
     "folder for SVG plots of latency, throughput and time to the first text; needs gnuplot"},
    {"quiet", "q", UM_OPT_BOOL, O(quiet), 0, 0, NULL, "false", NULL, NULL, "Report",
     "print no progress to standard error"},
};

static const struct {
    const char *path, *prompt_key;
} endpoints[] = {{"/v1/chat/completions", "messages"}, {"/v1/completions", "prompt"}, {"/generate", "prompt"}};

typedef struct bench {
    options opt;
    const char *unit;
    double value[UM_LOAD_POINTS_MAX]; /* [n_values] values of the points */
    size_t n_values;
    um_peer peer;
    um_load_prompts prompts;
    um_arrivals trace;
    json_t *body;
    um_load load; /* the part that is the same for all runs */
    um_load_report report;
    um_buf given; /* the options that were set, for the report */
    um_progress *bar;
    size_t n_before; /* requests of earlier runs */
} bench;

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

static um_status take_words(bench *b, const char *range, um_err *err) {
    int64_t min, max;
    um_status st = um_load_parse_range(range, "prompt-words", &min, &max, err);
    if (!st) um_load_prompts_words(&b->prompts, WORDS_PROMPTS, min, max, (uint64_t)b->opt.seed);
    return st;
}

static um_status open_prompts(bench *b, um_err *err) {
    if (b->prompts.n) return UM_OK; /* the file of --arrivals had the prompts */
    if (b->opt.prompts) return um_load_prompts_file(&b->prompts, b->opt.prompts, err);
    if (b->opt.prompt_words) return take_words(b, b->opt.prompt_words, err);
    char *models = um_cli_bundled(), *path = um_path_join(models, "eval.jsonl");
    um_status st =
        um_file_exists(path) ? um_load_prompts_file(&b->prompts, path, err) : take_words(b, WORDS_DEFAULT, err);
    um_free(models);
    um_free(path);
    return st;
}

static void choose_endpoint(bench *b) {
    if (b->opt.endpoint != ENDPOINT_AUTO) return;
    b->opt.endpoint = um_peer_has_chat_template(&b->peer) ? ENDPOINT_CHAT : ENDPOINT_COMPLETIONS;
}

static um_status make_body(bench *b, um_err *err) {
    const options *o = &b->opt;
    json_t *more = NULL;
    b->body = json_pack("{s:s,s:i,s:b}", "model", b->peer.model, "max_tokens", o->max_tokens, "stream", o->stream);
    if (!b->body) return um_fail(err, UM_EINVAL, "--served-model-name: the name is not UTF-8");
    if (o->endpoint != ENDPOINT_GENERATE) {
        if (o->stream) json_object_set_new(b->body, "stream_options", json_pack("{s:b}", "include_usage", 1));
        if (b->peer.is_unmask) json_object_set_new(b->body, "return_timings", json_true());
    }
    if (o->stop && json_object_set_new(b->body, "stop", json_string(o->stop)))
        return um_fail(err, UM_EINVAL, "--stop: the text is not UTF-8");
    if (!o->body) return UM_OK;
    um_status st = um_json_parse(&more, o->body, strlen(o->body), "--body", err);
    if (!st && !json_is_object(more))
        st = um_fail(err, UM_EINVAL, "--body: expected a JSON object, found %s", um_json_kind(more));
    if (!st) json_object_update(b->body, more);
    json_decref(more);
    return st;
}

/* ---- Points ------------------------------------------------------------------------------------------------------ */

static um_status choose_points(bench *b, um_err *err) {
    options *o = &b->opt;
    int n = (o->request_rate != NULL) + (o->concurrency != NULL) + (o->arrivals != NULL);
    if (n > 1) return um_fail(err, UM_EINVAL, "--request-rate, --concurrency and --arrivals can't be combined");
    b->n_values = 1;
    b->unit = o->arrivals ? "arrivals" : o->request_rate ? "request_rate" : "concurrency";
    if (o->arrivals) return um_load_trace(&b->prompts, &b->trace, o->arrivals, err);
    if (o->request_rate)
        return um_load_parse_points(o->request_rate, "request-rate", false, b->value, &b->n_values, err);
    return um_load_parse_points(o->concurrency ? o->concurrency : CONCURRENCY_DEFAULT, "concurrency", true, b->value,
                                &b->n_values, err);
}

static void tick(void *arg, size_t ended) {
    bench *b = arg;
    if (b->bar) um_progress_set(b->bar, (int64_t)(b->n_before + ended), NULL);
}

static um_status warm_up(bench *b, um_err *err) {
    um_load l = b->load;
    um_load_run run;
    if (!b->opt.warm_up) return UM_OK;
    l.arrivals = NULL;
    l.tick = NULL;
    l.requests = (size_t)b->opt.warm_up;
    l.concurrency = UM_MIN(b->opt.warm_up, WARM_UP_AT_ONCE);
    um_status st = um_load_run_all(&l, &run, err);
    um_load_run_free(&run);
    return st;
}

static um_status run_once(bench *b, um_load_point *p, um_err *err) {
    const options *o = &b->opt;
    um_load l = b->load;
    um_arrivals arrivals = {0};
    if (o->request_rate)
        um_arrivals_poisson(&arrivals, (uint64_t)o->seed + p->n_runs, p->value, (size_t)o->requests,
                            (double)o->seconds);
    l.arrivals = o->arrivals ? &b->trace : o->request_rate ? &arrivals : NULL;
    l.concurrency = (int32_t)p->value;
    um_load_run *run = &p->run[p->n_runs++];
    um_status st = um_load_run_all(&l, run, err);
    um_load_summarise(&p->summary, run, &b->report.slo);
    b->n_before += run->n;
    um_arrivals_free(&arrivals);
    return st;
}

static void print(um_buf *text) {
    um_cli_write(text);
    um_cli_flush();
    um_buf_free(text);
}

static void print_header(const bench *b) {
    um_buf text = {0};
    um_load_put_header(&b->report, &text);
    print(&text);
}

static void print_point(const bench *b, const um_load_point *p) {
    um_buf text = {0};
    um_load_put_point(&b->report, p, &text);
    um_progress_clear(b->bar);
    print(&text);
}

/* Measures all points, and prints each when its runs are done. After an interrupt, the report has only the points that
 * were started. */
static um_status measure(bench *b, um_err *err) {
    size_t n = b->n_values;
    int64_t total = (int64_t)(b->trace.n ? b->trace.n : (size_t)b->opt.requests) * b->opt.runs * (int64_t)n;
    b->report.point = UM_NEW_ARRAY(um_load_point, n);
    um_status st = warm_up(b, err);
    if (!st) print_header(b);
    if (!b->opt.quiet && b->opt.seconds <= 0) b->bar = um_progress_new("requests", total, 0, UM_PROGRESS_INTERVAL);
    for (size_t i = 0; i < n && !st; i++) {
        um_load_point *p = &b->report.point[b->report.n++];
        p->value = b->value[i];
        for (int32_t k = 0; k < b->opt.runs && !st; k++) st = run_once(b, p, err);
        if (!st || st == UM_ECANCELED) print_point(b, p);
    }
    um_progress_free(b->bar);
    return st;
}

/* ---- The report -------------------------------------------------------------------------------------------------- */

/* Appends the options that were set, as in "--request-rate 4 --max-tokens 64". Leaves out options that the report shows
 * elsewhere, and the API key. */
static void list_given(const um_args *args, const options *o, um_buf *out) {
    static const char hidden[] = "url|api_key|report|csv|plot|quiet|config";
    um_str at;
    for (size_t i = 0; i < args->n_given; i++)
        if (um_word_index(hidden, '|', args->given[i].row->name, &at) < 0) {
            um_buf_puts(out, out->len ? " --" : "--");
            um_option_put_flag(args->given[i].row->name, out);
            um_buf_putc(out, ' ');
            um_option_get_text(args->given[i].row, o, out);
        }
}

static um_status write_file(const char *path, void (*put)(const um_load_report *, um_buf *), const um_load_report *r,
                            um_err *err) {
    um_buf text = {0};
    if (!path) return UM_OK;
    put(r, &text);
    um_status st = UM_OK;
    if (!um_streq(path, "-")) st = um_file_replace(path, (um_str){text.data, text.len}, err);
    else if (fwrite(text.data, 1, text.len, stdout) < text.len || fflush(stdout) != 0)
        st = um_fail(err, UM_EIO, "cannot write to standard output: %s", strerror(errno));
    um_buf_free(&text);
    return st;
}

static um_status draw(const um_load_report *r, const char *dir, um_err *err) {
    bool drawn;
    um_status st = um_load_plot(r, dir, &drawn, err);
    if (!st && !drawn)
        fprintf(stderr,
                "unmask bench serve: gnuplot is not installed, so nothing was drawn; run 'gnuplot plot.gp' in %s "
                "later\n",
                dir);
    return st;
}

static um_status write_files(const bench *b, um_err *err) {
    um_status st = write_file(b->opt.report, um_load_put_json, &b->report, err);
    if (!st) st = write_file(b->opt.csv, um_load_put_csv, &b->report, err);
    return st || !b->opt.plot ? st : draw(&b->report, b->opt.plot, err);
}

static int64_t count_answered(const bench *b) {
    int64_t n = 0;
    for (size_t i = 0; i < b->report.n; i++) n += b->report.point[i].summary.outcomes[UM_LOAD_ANSWERED];
    return n;
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

/* The folder of --plot may be missing: um_load_plot makes it. */
static um_status check_plot(const char *dir, um_err *err) {
    const bool exists = dir && (um_dir_exists(dir) || um_file_exists(dir));
    char *inside = exists ? um_path_join(dir, "plot.gp") : NULL;
    um_status st = um_cli_check_output("--plot", exists ? inside : dir, err);
    um_free(inside);
    return st;
}

/* A measurement takes long, so its files are checked first. */
static um_status check_files(const options *o, um_err *err) {
    um_status st = um_cli_check_output("--report", o->report, err);
    if (!st) st = um_cli_check_output("--csv", o->csv, err);
    return st ? st : check_plot(o->plot, err);
}

/* Standard output has the table, or one file. */
static um_status choose_output(const options *o, um_err *err) {
    const bool report = um_streq(o->report, "-"), csv = um_streq(o->csv, "-");
    if (report && csv)
        return um_fail(err, UM_EINVAL,
                       "--report - and --csv - both write to standard output; name a file for one of them");
    if (report || csv) um_cli_write_to_stderr();
    return UM_OK;
}

static um_status prepare(bench *b, const um_args *args, um_err *err) {
    const options *o = &b->opt;
    um_status st = um_cli_no_words(args, "the server is named by --url", err);
    if (!st && !o->remote.url)
        st = um_fail(err, UM_EINVAL, "--url is missing: the URL of a server, as in --url http://127.0.0.1:8000");
    if (!st) st = choose_output(o, err);
    if (!st) st = check_files(o, err);
    if (!st) st = choose_points(b, err);
    if (!st) st = open_prompts(b, err);
    if (!st) st = um_peer_open(&b->peer, o->remote.url, o->remote.api_key, o->remote.served_model_name, err);
    if (!st) choose_endpoint(b);
    if (!st) st = make_body(b, err);
    if (st) return st;
    b->load = (um_load){.peer = &b->peer,
                        .path = endpoints[o->endpoint].path,
                        .prompt_key = endpoints[o->endpoint].prompt_key,
                        .body = b->body,
                        .prompts = &b->prompts,
                        .timeout = (double)o->timeout,
                        .requests = o->seconds > 0 ? 0 : (size_t)o->requests,
                        .seconds = (double)o->seconds,
                        .tick = tick,
                        .arg = b};
    list_given(args, o, &b->given);
    b->report.unit = b->unit;
    b->report.url = o->remote.url;
    b->report.endpoint = endpoints[o->endpoint].path;
    b->report.options = b->given.len ? b->given.data : "none";
    b->report.peer = &b->peer;
    b->report.prompts = &b->prompts;
    b->report.slo = (um_load_slo){1e-3 * (double)o->slo_ttft, 1e-3 * (double)o->slo_tpot};
    return UM_OK;
}

/* Measures, and writes the files of the report. After an interrupt, they have the runs so far. Signals are caught only
 * from here on, so that Ctrl-C ends the program while it connects to a server. */
static int answer(const um_command *self, bench *b) {
    um_err err, report_err;
    um_cli_catch_signals();
    um_status st = measure(b, &err);
    if (st && st != UM_ECANCELED) return um_cli_error(self, &err);
    if (b->report.n && write_files(b, &report_err)) return um_cli_error(self, &report_err);
    if (st) return um_cli_error(self, &err);
    return count_answered(b) ? UM_EXIT_OK : UM_EXIT_FAILED;
}

static void end(bench *b) {
    for (size_t i = 0; i < b->report.n; i++)
        for (size_t k = 0; k < b->report.point[i].n_runs; k++) um_load_run_free(&b->report.point[i].run[k]);
    um_free(b->report.point);
    json_decref(b->body);
    um_load_prompts_free(&b->prompts);
    um_arrivals_free(&b->trace);
    um_buf_free(&b->given);
    um_peer_close(&b->peer);
}

static int run(const um_command *self, int argc, char **argv) {
    bench b = {0};
    um_args args;
    um_err err;
    um_args_parse(&args, self, argc, argv, &b.opt, NULL);
    int status = args.exit;
    if (args.done) goto done;
    status = prepare(&b, &args, &err) ? um_cli_error(self, &err) : answer(self, &b);
done:
    end(&b);
    um_args_free(&args);
    return status;
}

const um_command um_cmd_bench_serve = {
    .name = "bench serve",
    .summary = "measure a running server under load",
    .usage = "unmask bench serve --url URL [--request-rate R,R | --concurrency N,N] [options]",
    .description =
        "Sends requests to a server, `unmask serve` or another one with OpenAI's API, and times the answers. In an "
        "open "
        "loop, requests are due at fixed times, however slow the server is; latencies count from these times, so they "
        "show when the server falls behind. In a closed loop, a fixed number of requests is open all the time. The "
        "report has quantiles of the time to the first text, per token, between chunks and in total, rates with their "
        "spread, failures, and the conditions. Failed requests are part of the measurement; the exit status is 1 if "
        "none was answered. docs/serving-benchmark.md explains the report.",
    .examples =
        "  unmask bench serve --url http://127.0.0.1:8000\n"
        "  unmask bench serve --url http://127.0.0.1:8000 --request-rate 2,4,8 --seconds 60 --slo-ttft 500\n"
        "  unmask bench serve --url http://127.0.0.1:8000 --concurrency 16 --body '{\"stream_mode\": \"denoise\"}'\n",
    .options = rows,
    .n_options = UM_LEN(rows),
    .run = run,
};
