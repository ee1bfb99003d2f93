/* unmask generate: a file of requests to a file of answers.
 *
 * The input is read twice: first for its ids alone, so that a doubled id is refused before any work and the answers of
 * an interrupted run can be told from those of another one; then request by request, as the engine has room. A stream
 * is read once and checked on the way. Memory holds the ids and a window of requests, whatever the length of the file.
 */
#include <stddef.h>

#include <jansson.h>

#include "cli/cli.h"
#include "cli/feed.h"
#include "cli/report.h"
#include "cli/requests.h"
#include "cli/results.h"
#include "model/model.h"

typedef struct generate_options {
    const char *input, *output, *adapter, *profile;
    float progress_interval;
    bool trace, step_map, timings, overwrite, quiet;
} generate_options;

#define G(field) UM_FIELD(generate_options, field)

static const um_option options[] = {
    {"adapter", NULL, UM_OPT_STR, G(adapter), 0, 0, NULL, NULL, NULL, "NAME", "Model",
     "adapter of --lora for requests that name none"},
    {"input", NULL, UM_OPT_STR, G(input), 0, 0, NULL, NULL, NULL, "FILE", "Files",
     "requests, one JSON object a line; - is standard input"},
    {"output", NULL, UM_OPT_STR, G(output), 0, 0, NULL, NULL, NULL, "FILE", "Files",
     "results in the order of the input; - is standard output; a file that is there is resumed"},
    {"overwrite", NULL, UM_OPT_BOOL, G(overwrite), 0, 0, NULL, "false", NULL, NULL, "Files",
     "start anew when the output is there already"},
    {"trace", NULL, UM_OPT_BOOL, G(trace), 0, 0, NULL, "false", NULL, NULL, "Files",
     "add the state after each forward pass to each result"},
    {"step_map", NULL, UM_OPT_BOOL, G(step_map), 0, 0, NULL, "false", NULL, NULL, "Files",
     "add the forward pass that fixed each token, as return_step_map in a request does"},
    {"timings", NULL, UM_OPT_BOOL, G(timings), 0, 0, NULL, "false", NULL, NULL, "Files",
     "add what depends on the run: seconds, cached prompt tokens, preemptions, as return_timings in a request does"},
    UM_PROFILE_ROW(G(profile), "Files"),
    {"progress_interval", "progress_log_interval", UM_OPT_FLOAT, G(progress_interval), 0, 86400, NULL, "10", NULL, "S",
     "Files", "where standard error is no terminal, a line of progress every so many seconds; 0 is never"},
    {"quiet", NULL, UM_OPT_BOOL, G(quiet), 0, 0, NULL, "false", NULL, NULL, "Files", "print errors only"},
};

/* The state of a run. */
typedef struct generate {
    generate_options opt;
    um_lines in;
    um_results out;
    um_idset ids;
    um_request_line request; /* the one read last */
    um_progress *bar;
    bool stream;     /* the input can't be read twice */
    int64_t n_lines; /* requests of the input; of a stream: so far */
    um_err input_err;

    double start;
    const um_model *model;
    int64_t n_done, n_written, n_failed; /* requests of this run: finished, of them with a line in the output, failed */
    um_metrics metrics;
} generate;

/* ---- Before the engine is there ---------------------------------------------------------------------------------- */

/* What stands in the set of ids for a line: its id, or its number when it has none. */
static void key_of_line(um_buf *id, int64_t number) {
    if (id->len == 0) um_buf_printf(id, "line %lld", (long long)number);
}

static um_status add_key(generate *g, const char *key, um_err *err) {
    const um_idset_entry *e = um_idset_find(&g->ids, key);
    if (e)
        return um_fail(err, UM_EINVAL,
                       "id %.80s is doubled: lines %lld and %lld of %.200s; each request needs its own id", key,
                       (long long)e->line, (long long)g->in.number, g->in.name);
    (void)um_idset_add(&g->ids, key, g->in.number);
    g->n_lines++;
    return UM_OK;
}

/* The id of a line, for the first reading. */
static void read_key(um_lines_got got, um_str line, int64_t number, um_buf *key) {
    json_t *root = NULL;
    um_buf_clear(key);
    if (got == UM_LINES_LINE && um_line_object(&root, line, NULL) == UM_OK && um_line_id(root, key, NULL) != UM_OK)
        um_buf_clear(key);
    json_decref(root);
    key_of_line(key, number);
}

/* The first reading: every id. */
static um_status scan_input(generate *g, um_err *err) {
    um_buf key = {0};
    um_status st = UM_OK;
    while (!st) {
        um_str line;
        um_lines_got got = um_lines_next(&g->in, true, &line, err);
        if (got == UM_LINES_END) break;
        if (got == UM_LINES_FAILED) st = UM_EIO;
        else if (um_cli_interrupted()) st = um_fail(err, UM_ECANCELED, "interrupted");
        if (st || got == UM_LINES_LATER) continue;
        read_key(got, line, g->in.number, &key);
        st = add_key(g, key.data, err);
    }
    um_buf_free(&key);
    return st ? st : um_lines_rewind(&g->in, err);
}

/* Finds what an earlier run left in the output. */
static um_status look_back(generate *g, um_err *err) {
    if (!g->out.ledger.file || g->opt.overwrite) return UM_OK;
    if (!g->stream) return um_results_resume(&g->out, &g->ids, err);
    um_str line;
    um_lines earlier;
    um_lines_from(&earlier, g->out.ledger.fd, g->out.ledger.name);
    bool empty = um_lines_next(&earlier, true, &line, err) == UM_LINES_END;
    um_buf_free(&earlier.buf);
    if (empty) return UM_OK;
    return um_fail(err, UM_EINVAL,
                   "%s holds results, and requests that come from a stream cannot be compared with them; name another "
                   "output, pass --overwrite, or give the requests as a file to resume",
                   g->out.ledger.name);
}

static um_status open_files(generate *g, um_err *err) {
    um_status st = um_lines_open(&g->in, g->opt.input, err);
    if (st) return st;
    g->stream = !um_lines_is_file(&g->in);
    st = g->stream ? UM_OK : scan_input(g, err);
    if (!st) st = um_results_open(&g->out, g->opt.output, err);
    if (st) return st;
    if (um_results_same(&g->out, &g->in))
        return um_fail(err, UM_EINVAL, "--input and --output name the same file, %s", g->opt.output);
    return look_back(g, err);
}

/* ---- Requests in ------------------------------------------------------------------------------------------------- */

/* Fills in the ticket from the line at hand; false when an earlier run answered it. */
static bool fill_ticket(generate *g, um_ticket *t, um_request *r, um_lines_got got, um_str line) {
    um_request_line *q = &g->request;
    r->adapter = g->opt.adapter;
    um_buf_clear(&q->id);
    t->line = g->in.number;
    q->step_map = g->opt.step_map;
    q->timings = g->opt.timings;
    if (got == UM_LINES_TOO_LONG) um_fail(&t->err, UM_ELIMIT, "the line is longer than %zu bytes", UM_LINE_MAX);
    else (void)um_request_line_parse(q, line, r, &t->err);
    um_buf_append(&t->id, q->id.data, q->id.len);
    key_of_line(&q->id, t->line);
    if (g->stream) {
        if (add_key(g, q->id.data, &t->err)) um_buf_clear(&t->id); /* the id has its answer */
    } else {
        const um_idset_entry *e = um_idset_find(&g->ids, q->id.data);
        if (e && e->answered) return false;
    }
    *r = q->request;
    t->step_map = q->step_map;
    t->timings = q->timings;
    return true;
}

static um_feed_got next_request(void *arg, um_ticket *t, um_request *r, bool wait) {
    generate *g = (generate *)arg;
    for (;;) {
        um_str line;
        um_lines_got got = um_lines_next(&g->in, wait, &line, &g->input_err);
        if (got == UM_LINES_LATER) return UM_FEED_LATER;
        if (got == UM_LINES_END || got == UM_LINES_FAILED) return UM_FEED_END;
        if (fill_ticket(g, t, r, got, line)) return UM_FEED_REQUEST;
        t->err = (um_err){0};
        um_buf_clear(&t->id);
    }
}

/* ---- Results out ------------------------------------------------------------------------------------------------- */

/* One answer: the line itself or, of several, an entry of its choices. */
static void put_answer(const generate *g, um_ticket *t, const um_result *r) {
    um_gathered *a = &t->answer[r->index];
    const um_result_extras extras = {
        .tok = g->model->tok, .step_map = t->step_map, .timings = t->timings, .trace = {a->trace.data, a->trace.len}};
    um_jw w;
    um_jw_init(&w, &a->out);
    um_jw_begin_object(&w);
    um_jw_key(&w, t->n_answers > 1 ? "index" : "id");
    if (t->n_answers > 1) um_jw_int(&w, r->index);
    else um_jw_raw(&w, t->id.data, t->id.len);
    um_result_put(&w, r, &extras);
    um_jw_end_object(&w);
}

static void on_event(void *arg, um_ticket *t, const um_event *ev) {
    generate *g = (generate *)arg;
    um_gathered *a = &t->answer[ev->index];
    if (ev->type == UM_EVENT_TRACE) {
        if (a->trace.len == 0) um_jw_begin_array(&a->writer);
        um_trace_entry(&a->writer, ev->trace);
    }
    if (ev->type != UM_EVENT_FINISH) return;
    if (a->trace.len) um_jw_end_array(&a->writer);
    put_answer(g, t, ev->result);
    um_metrics_add(&g->metrics, ev->result);
    if (ev->result->finish == UM_FINISH_NO_PREDICTION) t->broken = true;
    g->n_done += t->n_open == 1;
}

/* {"id", "choices": [...]}, the choices in their order, whichever came first. */
static void put_choices(um_ticket *t) {
    um_jw w;
    um_jw_init(&w, &t->out);
    um_jw_begin_object(&w);
    um_jw_key(&w, "id");
    um_jw_raw(&w, t->id.data, t->id.len);
    um_jw_key(&w, "choices");
    um_jw_begin_array(&w);
    for (int32_t i = 0; i < t->n_answers; i++) um_jw_raw(&w, t->answer[i].out.data, t->answer[i].out.len);
    um_jw_end_array(&w);
    um_jw_end_object(&w);
}

static um_status take_result(void *arg, um_ticket *t, um_err *err) {
    generate *g = (generate *)arg;
    um_buf *line = &t->out;
    if (t->err.code) {
        um_error_line(line, t->id.len ? t->id.data : NULL, t->line, &t->err);
        g->n_done++;
    } else if (t->n_answers > 1) {
        put_choices(t);
    } else {
        line = &t->answer[0].out;
    }
    g->n_failed += t->err.code || t->broken;
    um_status st = um_results_write(&g->out, line, err);
    g->n_written += !st;
    return st;
}

static void show_progress(void *arg) {
    generate *g = (generate *)arg;
    const um_metrics *m = &g->metrics;
    char note[64];
    snprintf(note, sizeof note, "%.0f tok/s  %.2f tok/forward", um_ratio((double)m->tokens, um_now() - g->start),
             um_ratio((double)m->tokens, (double)m->passes));
    um_progress_set(g->bar, g->out.n_answered + g->n_done, m->tokens ? note : NULL);
}

/* ---- The run ----------------------------------------------------------------------------------------------------- */

static void print_summary(const generate *g, const um_router *router) {
    static const um_stats none;
    um_buf speed = {0};
    um_stats stats;
    if (g->opt.quiet) return;
    um_router_get_stats(router, &stats);
    um_rates r = um_metrics_rates(&g->metrics, &none, &stats);
    double seconds = um_now() - g->start;
    if (g->out.n_answered)
        fprintf(stderr, "answered before %lld, failed %lld\n", (long long)(g->out.n_answered - g->out.n_failed),
                (long long)g->out.n_failed);
    fprintf(stderr, "answered %lld, failed %lld; %lld tokens in %.1f s, %.1f tokens/s, %.2f tokens per forward\n",
            (long long)(g->n_written - g->n_failed), (long long)g->n_failed, (long long)g->metrics.tokens, seconds,
            um_ratio((double)g->metrics.tokens, seconds), r.tpf_all);
    if (g->metrics.requests) um_report_speed(&speed, &g->metrics, &r);
    if (speed.len) fputs(speed.data, stderr);
    um_buf_free(&speed);
}

static um_status run_requests(generate *g, const um_config *c, um_session *s, um_err *err) {
    um_feed feed = {.arg = g,
                    .events = g->opt.trace ? UM_EVENT_TRACE : 0,
                    .next = next_request,
                    .event = on_event,
                    .take = take_result,
                    .tick = show_progress};
    um_status st = um_cli_profile_start(s->router, g->opt.profile, err);
    if (!st) st = um_results_begin(&g->out, err);
    if (st) return st;
    if (!g->opt.quiet)
        g->bar = um_progress_new("requests", g->stream ? -1 : g->n_lines, g->out.n_answered, g->opt.progress_interval);
    g->model = s->model;
    g->start = um_now();
    st = um_feed_run(s->router, c->max_num_reqs, &feed, err);
    um_progress_free(g->bar);
    if (!st && g->input_err.code) {
        *err = g->input_err;
        st = err->code;
    }
    if (!st) st = um_results_close(&g->out, err);
    if (!st) st = um_cli_profile_stop(s->router, g->opt.profile, g->opt.quiet, err);
    print_summary(g, s->router);
    return st;
}

/* Says how far a run got that ended early. Only a file can go on from there. */
static void print_how_to_resume(const generate *g) {
    fprintf(stderr, "unmask generate: %s holds %lld results%s\n", g->out.ledger.name,
            (long long)(g->out.n_answered + g->n_written),
            g->out.ledger.file && !g->stream ? "; the same command goes on from there" : "");
}

static int run_with_model(const um_command *self, generate *g, const um_config *c) {
    um_err err = {0};
    um_session s = {0};
    um_status st = um_cli_open(&s, c, g->opt.quiet, &err);
    if (st) return um_cli_error(self, &err);
    st = run_requests(g, c, &s, &err);
    um_cli_close(&s);
    if (st) {
        um_cli_error(self, &err);
        print_how_to_resume(g);
        return st == UM_EDEVICE ? UM_EXIT_DEVICE : UM_EXIT_FAILED;
    }
    return g->n_failed + g->out.n_failed ? UM_EXIT_FAILED : UM_EXIT_OK;
}

static um_status check_words(const um_args *a, const generate_options *o, um_err *err) {
    um_status st = um_cli_no_words(a, "requests are read from --input", err);
    if (st) return st;
    if (!o->input) return um_fail(err, UM_EINVAL, "--input is missing: a file of requests, one JSON object a line");
    if (!o->output)
        return um_fail(err, UM_EINVAL, "--output is missing: the file for the results, or - for the screen");
    return UM_OK;
}

static int run(const um_command *self, int argc, char **argv) {
    generate g = {.in = {.fd = -1}, .out = {.ledger = {.fd = -1}}};
    um_config config = {0};
    um_args args;
    um_err err = {0};
    int code = UM_EXIT_OK;
    um_args_parse(&args, self, argc, argv, &g.opt, &config);
    if (args.done) {
        code = args.exit;
        goto done;
    }
    um_cli_catch_signals();
    um_status st = check_words(&args, &g.opt, &err);
    if (!st) st = um_cli_need_model(config.model, &err);
    if (!st) st = open_files(&g, &err);
    if (st) {
        um_cli_error(self, &err);
        code = st == UM_ECANCELED ? UM_EXIT_FAILED : UM_EXIT_USAGE;
    } else if (!g.stream && g.out.n_answered == g.n_lines && g.n_lines) {
        if (!g.opt.quiet) fprintf(stderr, "%s answers every request already\n", g.out.ledger.name);
        (void)um_results_begin(&g.out, NULL);
        code = g.out.n_failed ? UM_EXIT_FAILED : UM_EXIT_OK;
    } else {
        code = run_with_model(self, &g, &config);
    }
done:
    um_lines_close(&g.in);
    (void)um_results_close(&g.out, NULL);
    um_request_line_free(&g.request);
    um_idset_free(&g.ids);
    um_args_free(&args);
    return code;
}

const um_command um_cmd_generate = {
    .name = "generate",
    .summary = "answer a file of requests",
    .usage = "unmask generate --model DIR --input FILE --output FILE [options]",
    .description =
        "Reads requests, one JSON object a line, and writes one result a line in the same order. A request has an "
        "id, one of prompt, prompt_token_ids and messages, and any decoding, sampling and limit option by its name "
        "with underscores; also n, stop, stop_token_ids, logit_bias, cache_salt, adapter, return_step_map and "
        "return_timings. With messages go tools, tool_choice, chat_template, chat_template_kwargs, "
        "add_generation_prompt and continue_final_message. A request that fails gets an error in place of an answer; "
        "the others go on. When a run is interrupted, the same command answers what is left. Exit status: 0 all "
        "answered, 1 some failed or the run was interrupted, 2 bad usage or input, 3 model or device could not be "
        "used.",
    .examples = "unmask generate --model models/tiny-block --input examples/requests.jsonl --output results.jsonl\n"
                "echo '{\"id\": 1, \"messages\": [{\"role\": \"user\", \"content\": \"What is 2 + 3?\"}]}' | "
                "unmask generate --model models/tiny-block --input - --output -\n"
                "unmask generate --model models/tiny-block --input examples/requests.jsonl --output results.jsonl "
                "--overwrite --trace\n",
    .options = options,
    .n_options = UM_LEN(options),
    .engine_options = true,
    .run = run,
};
