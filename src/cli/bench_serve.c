/* unmask bench serve: load for a running server, and how it bears it. The machinery is in load*.c; here options become
 * points, points runs. */
#include <jansson.h>

#include "cli/answerer.h"
#include "cli/dataset.h"
#include "cli/load.h"

enum { ENDPOINT_CHAT, ENDPOINT_COMPLETIONS, ENDPOINT_GENERATE };
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
    {"endpoint", NULL, UM_OPT_CHOICE, O(endpoint), 0, 0, "chat|completions|generate", "chat", NULL, "NAME", "Server",
     "which way is asked: /v1/chat/completions, /v1/completions or /generate"},
    {"timeout", NULL, UM_OPT_FLOAT, O(timeout), 0, 86400, NULL, "300", NULL, "S", "Server",
     "seconds without a byte after which a request counts as broken, 0 is none"},
    {"request_rate", NULL, UM_OPT_STR, O(request_rate), 0, 0, NULL, NULL, NULL, "R,R", "Load",
     "open loop: requests a second that are due, at random moments (Poisson), each rate is measured"},
    {"concurrency", NULL, UM_OPT_STR, O(concurrency), 0, 0, NULL, NULL, NULL, "N,N", "Load",
     "closed loop: requests that are open at once, each number is measured; 1,8,32 when nothing else is said"},
    {"arrivals", NULL, UM_OPT_STR, O(arrivals), 0, 0, NULL, NULL, NULL, "FILE", "Load",
     "open loop: requests are due as lines {\"at\": seconds, \"prompt\", \"max_tokens\"} say"},
    {"requests", NULL, UM_OPT_INT, O(requests), 1, UM_LOAD_REQUESTS_MAX, NULL, "64", NULL, "N", "Load",
     "requests of a run"},
    {"seconds", NULL, UM_OPT_FLOAT, O(seconds), 0, 86400, NULL, "0", NULL, "S", "Load",
     "send for so long in place of a number of requests"},
    {"warm_up", NULL, UM_OPT_INT, O(warm_up), 0, 1e6, NULL, "4", NULL, "N", "Load",
     "requests before the first point, which are not counted"},
    {"runs", NULL, UM_OPT_INT, O(runs), 1, UM_LOAD_RUNS_MAX, NULL, "1", NULL, "N", "Load",
     "runs of each point; rates are reported with their spread, latencies of all runs together"},
    {"seed", NULL, UM_OPT_INT64, O(seed), 0, 9007199254740991.0, NULL, "1", NULL, "N", "Load",
     "of arrivals and random words; run i of a point has seed + i"},
    {"prompts", NULL, UM_OPT_STR, O(prompts), 0, 0, NULL, NULL, NULL, "FILE", "Requests",
     "prompts {\"prompt\"} a line, taken in turn; without it those beside the bundled models"},
    {"prompt_words", NULL, UM_OPT_STR, O(prompt_words), 0, 0, NULL, NULL, NULL, "N..N", "Requests",
     "prompts of so many random words instead"},
    {"max_tokens", NULL, UM_OPT_INT, O(max_tokens), 1, 1e9, NULL, "64", NULL, "N", "Requests", "of an answer"},
    {"stop", NULL, UM_OPT_STR, O(stop), 0, 0, NULL, NULL, NULL, "TEXT", "Requests", "end answers before this text"},
    {"body", NULL, UM_OPT_STR, O(body), 0, 0, NULL, NULL, NULL, "JSON", "Requests",
     "an object of further members of every request, as in {\"stream_mode\": \"denoise\"}"},
    {"stream", NULL, UM_OPT_BOOL, O(stream), 0, 0, NULL, "true", NULL, NULL, "Requests",
     "answers come as streams; without it only whole answers are timed"},
    {"slo_ttft", NULL, UM_OPT_FLOAT, O(slo_ttft), 0, 1e9, NULL, "0", NULL, "MS", "Report",
     "goodput counts answers whose first text came within so many milliseconds, 0 is any"},
    {"slo_tpot", NULL, UM_OPT_FLOAT, O(slo_tpot), 0, 1e9, NULL, "0", NULL, "MS", "Report",
     "and whose tokens behind it took no more than this on average"},
    {"report", NULL, UM_OPT_STR, O(report), 0, 0, NULL, NULL, NULL, "FILE", "Report", "write the report as JSON"},
    {"csv", NULL, UM_OPT_STR, O(csv), 0, 0, NULL, NULL, NULL, "FILE", "Report", "write a row for each request"},
    {"plot", NULL, UM_OPT_STR, O(plot), 0, 0, NULL, NULL, NULL, "DIR", "Report",
     "draw latency, throughput and the time to the first text as SVG, with gnuplot"},
    {"quiet", NULL, UM_OPT_BOOL, O(quiet), 0, 0, NULL, "false", NULL, NULL, "Report", "no progress on stderr"},
};

static const struct {
    const char *path, *prompt_key;
} endpoints[] = {{"/v1/chat/completions", "messages"}, {"/v1/completions", "prompt"}, {"/generate", "prompt"}};

typedef struct bench {
    options opt;
    const char *unit;
    double value[UM_LOAD_POINTS_MAX]; /* [n_values] of the points to be measured */
    size_t n_values;
    um_peer peer;
    um_load_prompts prompts;
    um_arrivals trace;
    json_t *body;
    um_load load; /* what all runs share */
    um_load_report report;
    um_buf given; /* options, for the report */
    um_progress *bar;
    size_t n_before; /* requests of the runs before */
} bench;

/* ---- What is asked ----------------------------------------------------------------------------------------------- */

static um_status take_words(bench *b, const char *range, um_err *err) {
    int64_t least, most;
    um_status st = um_load_parse_range(range, "prompt-words", &least, &most, err);
    if (!st) um_load_prompts_words(&b->prompts, WORDS_PROMPTS, least, most, (uint64_t)b->opt.seed);
    return st;
}

static um_status open_prompts(bench *b, um_err *err) {
    if (b->prompts.n) return UM_OK; /* the trace has some */
    if (b->opt.prompts) return um_load_prompts_file(&b->prompts, b->opt.prompts, err);
    if (b->opt.prompt_words) return take_words(b, b->opt.prompt_words, err);
    char *models = um_cli_bundled(), *path = um_path_join(models, "eval.jsonl");
    um_status st =
        um_file_exists(path) ? um_load_prompts_file(&b->prompts, path, err) : take_words(b, WORDS_DEFAULT, err);
    um_free(models);
    um_free(path);
    return st;
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
    if (n > 1) return um_fail(err, UM_EINVAL, "--request-rate, --concurrency and --arrivals exclude each other");
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

/* Points that were not reached are left out. */
static um_status measure(bench *b, um_err *err) {
    size_t n = b->n_values;
    int64_t total = (int64_t)(b->trace.n ? b->trace.n : (size_t)b->opt.requests) * b->opt.runs * (int64_t)n;
    b->report.point = UM_NEW_ARRAY(um_load_point, n);
    um_status st = warm_up(b, err);
    if (!b->opt.quiet && b->opt.seconds <= 0) b->bar = um_progress_new("requests", total, 0, UM_PROGRESS_INTERVAL);
    for (size_t i = 0; i < n && !st; i++) {
        um_load_point *p = &b->report.point[b->report.n++];
        p->value = b->value[i];
        for (int32_t k = 0; k < b->opt.runs && !st; k++) st = run_once(b, p, err);
    }
    um_progress_free(b->bar);
    return st;
}

/* ---- The report -------------------------------------------------------------------------------------------------- */

/* "--request-rate 4 --max-tokens 64", without what the report names anyway, and without the key. */
static void list_given(const um_args *args, const options *o, um_buf *out) {
    static const char unsaid[] = "url|api_key|report|csv|plot|quiet|config";
    um_str at;
    for (size_t i = 0; i < args->n_given; i++)
        if (um_word_index(unsaid, '|', args->given[i].row->name, &at) < 0) {
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
    um_status st = um_file_replace(path, (um_str){text.data, text.len}, err);
    um_buf_free(&text);
    return st;
}

static um_status draw(const um_load_report *r, const char *dir, um_err *err) {
    bool drawn;
    um_status st = um_load_plot(r, dir, &drawn, err);
    if (!st && !drawn)
        fprintf(stderr,
                "unmask bench serve: gnuplot is not installed, so nothing was drawn; 'gnuplot plot.gp' in %s does it "
                "later\n",
                dir);
    return st;
}

static um_status write_report(const bench *b, um_err *err) {
    um_buf text = {0};
    um_load_put_text(&b->report, &text);
    fwrite(text.data, 1, text.len, stdout);
    um_buf_free(&text);
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

static um_status prepare(bench *b, const um_args *args, um_err *err) {
    const options *o = &b->opt;
    um_status st = um_cli_no_words(args, "the server is named by --url", err);
    if (!st && !o->remote.url)
        st = um_fail(err, UM_EINVAL, "no server: --url says where one is, as in --url http://127.0.0.1:8000");
    if (!st) st = choose_points(b, err);
    if (!st) st = open_prompts(b, err);
    if (!st) st = um_peer_open(&b->peer, o->remote.url, o->remote.api_key, o->remote.served_model_name, err);
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

/* An interrupted run is reported as far as it came; before it an interrupt ends the program, as there is nothing to say
 * and looking for a server may take long. */
static int answer(const um_command *self, bench *b) {
    um_err err, report_err;
    um_cli_catch_signals();
    um_status st = measure(b, &err);
    if (st && st != UM_ECANCELED) return um_cli_error(self, &err);
    if (b->report.n && write_report(b, &report_err)) return um_cli_error(self, &report_err);
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
    .summary = "measure how a running server bears load",
    .usage = "unmask bench serve --url URL [--request-rate R,R | --concurrency N,N] [options]",
    .description =
        "Sends requests to a server, `unmask serve` or any other of the OpenAI kind, and times their answers. Open "
        "loop: "
        "requests are due at their moments whatever the server does, and latencies count from there, so that a server "
        "that falls behind shows it. Closed loop: a number of requests is open all the time. The report has quantiles "
        "of the time to the first text, per token, between chunks and in all, rates with their spread, what failed, "
        "and "
        "the conditions. Requests that fail are part of the measurement; the exit status is 1 when none was answered. "
        "docs/serving-benchmark.md tells how to read it.",
    .examples =
        "  unmask bench serve --url http://127.0.0.1:8000\n"
        "  unmask bench serve --url http://127.0.0.1:8000 --request-rate 2,4,8 --seconds 60 --slo-ttft 500\n"
        "  unmask bench serve --url http://127.0.0.1:8000 --concurrency 16 --body '{\"stream_mode\": \"denoise\"}'\n",
    .options = rows,
    .n_options = UM_LEN(rows),
    .run = run,
};
