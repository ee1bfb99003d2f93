/* unmask generate: answers a file of requests and writes a file of results.
 *
 * It reads the input twice. The first reading collects the ids, to refuse duplicate ids before any work, and to check
 * that an existing output file belongs to this input. The second reading takes requests as the engines have room. A
 * stream can be read only once, so its ids are checked when each request is read. Memory holds all ids and a window of
 * requests. */
#include <stddef.h>

#include <jansson.h>

#include "cli/bulk.h"
#include "cli/cli.h"
#include "cli/constraint.h"
#include "cli/report.h"
#include "cli/requests.h"
#include "cli/result_file.h"
#include "model/model.h"

typedef struct generate_options {
    const char *input, *output, *adapter, *profile;
    float progress_interval;
    bool raw, trace, step_map, timings, overwrite, quiet;
    um_constraint_options constraint;
} generate_options;

/* Errors that are printed; the others are only in the output. */
#define SHOWN_MAX 3

#define G(field) UM_FIELD(generate_options, field)

static const um_option options[] = {
    {"adapter", NULL, UM_OPT_STR, G(adapter), 0, 0, NULL, NULL, NULL, "NAME", "Model",
     "adapter of --lora for requests that name none"},
    {"input", NULL, UM_OPT_STR, G(input), 0, 0, NULL, NULL, NULL, "FILE", "Files",
     "file of requests, one JSON object per line; - means standard input"},
    {"output", "o", UM_OPT_STR, G(output), 0, 0, NULL, NULL, NULL, "FILE", "Files",
     "file for the results, in the order of the input; - means standard output; an existing file is continued"},
    {"overwrite", NULL, UM_OPT_BOOL, G(overwrite), 0, 0, NULL, "false", NULL, NULL, "Files",
     "replace an existing output file instead of continuing it"},
    {"raw", NULL, UM_OPT_BOOL, G(raw), 0, 0, NULL, "false", NULL, NULL, "Files",
     UM_RAW_HELP
     "; this concerns the \"prompt\" of a line: \"messages\" always need the template, \"prompt_token_ids\" "
     "never use it"},
    {"trace", NULL, UM_OPT_BOOL, G(trace), 0, 0, NULL, "false", NULL, NULL, "Files",
     "add the state after each forward pass to each result"},
    {"step_map", NULL, UM_OPT_BOOL, G(step_map), 0, 0, NULL, "false", NULL, NULL, "Files",
     "add the forward pass that wrote each token, like return_step_map in a request"},
    {"timings", NULL, UM_OPT_BOOL, G(timings), 0, 0, NULL, "false", NULL, NULL, "Files",
     "add times, cached prompt tokens and preemptions, which differ from run to run, like return_timings in a request"},
    UM_CONSTRAINT_ROWS(generate_options, constraint),
    UM_PROFILE_ROW(G(profile), "Files"),
    {"progress_interval", "progress_log_interval", UM_OPT_FLOAT, G(progress_interval), 0, 86400, NULL, "10", NULL, "S",
     "Files", "seconds between progress lines if standard error is not a terminal; 0 means none"},
    {"quiet", "q", UM_OPT_BOOL, G(quiet), 0, 0, NULL, "false", NULL, NULL, "Files", "print errors only"},
};

/* The state of a run. */
typedef struct generate {
    generate_options opt;
    um_lines in;
    um_result_file out;
    um_idset ids;
    um_cli_constraint constraint; /* of requests that have none themselves */
    um_request_line request;      /* the line read last */
    um_progress *bar;
    bool stream;     /* the input is not a file, so it can be read only once */
    int64_t n_lines; /* number of requests in the input; of a stream, number read so far */
    um_err input_err;

    double start;
    const um_model *model;
    int64_t n_done;               /* requests finished by this run */
    int64_t n_written, n_failed;  /* lines written by this run, and the failed ones among them */
    int64_t n_empty, n_empty_raw; /* answers without text, and those of them whose prompt did not use the template */
    um_metrics metrics;
} generate;

/* ---- The first reading ------------------------------------------------------------------------------------------- */

/* Makes the key of a line in the set of ids: its id, or "line N" if it has no usable one. */
static void key_of_line(um_buf *id, int64_t number) {
    if (id->len == 0) um_buf_printf(id, "line %lld", (long long)number);
}

static um_status add_key(generate *g, const char *key, um_err *err) {
    const um_idset_entry *e = um_idset_find(&g->ids, key);
    if (e)
        return um_fail(err, UM_EINVAL,
                       "duplicate id %.80s in lines %lld and %lld of %.200s; each request needs its own id", key,
                       (long long)e->line, (long long)g->in.number, g->in.name);
    (void)um_idset_add(&g->ids, key, g->in.number);
    g->n_lines++;
    return UM_OK;
}

/* Gets the key of a line, for the first reading. */
static void read_key(um_lines_result got, um_str line, int64_t number, um_buf *key) {
    json_t *root = NULL;
    um_buf_clear(key);
    if (got == UM_LINES_LINE && um_line_object(&root, line, NULL) == UM_OK &&
        um_line_id_or_number(root, number, key, NULL) != UM_OK)
        um_buf_clear(key);
    json_decref(root);
    key_of_line(key, number);
}

/* The first reading: collects all keys. */
static um_status scan_input(generate *g, um_err *err) {
    um_buf key = {0};
    um_status st = UM_OK;
    while (!st) {
        um_str line;
        um_lines_result got = um_lines_next(&g->in, true, &line, err);
        if (got == UM_LINES_END) break;
        if (got == UM_LINES_FAILED) st = UM_EIO;
        else if (um_cli_interrupted()) st = um_fail(err, UM_ECANCELED, "interrupted");
        if (st || got == UM_LINES_AGAIN) continue;
        read_key(got, line, g->in.number, &key);
        st = add_key(g, key.data, err);
    }
    um_buf_free(&key);
    return st ? st : um_lines_rewind(&g->in, err);
}

/* Reads the results of an earlier run from the output. */
static um_status check_earlier_results(generate *g, um_err *err) {
    if (!g->out.ledger.file || g->opt.overwrite) return UM_OK;
    if (!g->stream) return um_result_file_resume(&g->out, &g->ids, err);
    um_str line;
    um_lines earlier;
    um_lines_from(&earlier, g->out.ledger.fd, g->out.ledger.name);
    bool empty = um_lines_next(&earlier, true, &line, err) == UM_LINES_END;
    um_buf_free(&earlier.buf);
    if (empty) return UM_OK;
    return um_fail(err, UM_EINVAL,
                   "%s has results, but a stream of requests can't be compared with them; name another output, pass "
                   "--overwrite, or put the requests into a file",
                   g->out.ledger.name);
}

static um_status open_files(generate *g, um_err *err) {
    um_status st = um_lines_open(&g->in, g->opt.input, err);
    if (st) return st;
    g->stream = !um_lines_is_file(&g->in);
    st = g->stream ? UM_OK : scan_input(g, err);
    if (!st) st = um_result_file_open(&g->out, g->opt.output, err);
    if (st) return st;
    if (um_result_file_same(&g->out, &g->in))
        return um_fail(err, UM_EINVAL, "--input and --output name the same file, %s", g->opt.output);
    return check_earlier_results(g, err);
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

/* Fills in the request from the current line. Returns false if an earlier run has answered it. */
static bool fill_request(generate *g, um_bulk_request *t, um_request *r, um_lines_result got, um_str line) {
    um_request_line *q = &g->request;
    r->adapter = g->opt.adapter;
    um_cli_constraint_apply(&g->constraint, r);
    um_buf_clear(&q->id);
    t->line = q->number = g->in.number;
    q->raw = g->opt.raw;
    q->has_template = g->model->chat != NULL;
    q->step_map = g->opt.step_map;
    q->timings = g->opt.timings;
    if (got == UM_LINES_TOO_LONG) um_fail(&t->err, UM_ELIMIT, "the line is longer than %zu bytes", UM_LINE_MAX);
    else (void)um_request_line_parse(q, line, r, &t->err);
    um_buf_append(&t->id, q->id.data, q->id.len);
    key_of_line(&q->id, t->line);
    if (g->stream) {
        if (add_key(g, q->id.data, &t->err)) um_buf_clear(&t->id); /* duplicate id: the error line must not repeat it */
    } else {
        const um_idset_entry *e = um_idset_find(&g->ids, q->id.data);
        if (e && e->answered) return false;
    }
    *r = q->request;
    t->is_raw = r->text || r->ids;
    t->step_map = q->step_map;
    t->timings = q->timings;
    return true;
}

static um_bulk_got next_request(void *arg, um_bulk_request *t, um_request *r, bool wait) {
    generate *g = (generate *)arg;
    for (;;) {
        um_str line;
        um_lines_result got = um_lines_next(&g->in, wait, &line, &g->input_err);
        if (got == UM_LINES_AGAIN) return UM_BULK_LATER;
        if (got == UM_LINES_END || got == UM_LINES_FAILED) return UM_BULK_END;
        if (fill_request(g, t, r, got, line)) return UM_BULK_REQUEST;
        t->err = (um_err){0};
        um_buf_clear(&t->id);
    }
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* Writes an answer: the whole line, or an entry of "choices" if the request has several answers. */
static void put_answer(const generate *g, um_bulk_request *t, const um_result *r) {
    um_bulk_answer *a = &t->answer[r->index];
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

static void count_if_empty(generate *g, const um_bulk_request *t, const um_result *r) {
    if (r->text_len || r->finish == UM_FINISH_ABORTED) return;
    g->n_empty++;
    g->n_empty_raw += t->is_raw;
}

static void on_event(void *arg, um_bulk_request *t, const um_event *ev) {
    generate *g = (generate *)arg;
    um_bulk_answer *a = &t->answer[ev->index];
    if (ev->type == UM_EVENT_TRACE) {
        if (a->trace.len == 0) um_jw_begin_array(&a->writer);
        um_trace_entry(&a->writer, ev->trace);
    }
    if (ev->type != UM_EVENT_FINISH) return;
    if (a->trace.len) um_jw_end_array(&a->writer);
    put_answer(g, t, ev->result);
    um_metrics_add(&g->metrics, ev->result);
    const char *failure = um_cli_failure_of(ev->result->finish);
    if (failure) t->failure = failure;
    else count_if_empty(g, t, ev->result);
    g->n_done += t->n_open == 1;
}

/* Writes {"id", "choices": [...]} with the choices in the order of their index. */
static void put_choices(um_bulk_request *t) {
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

/* Prints the first errors, so that a mistake in all lines is noticed at once. */
static void print_failure(generate *g, const um_bulk_request *t) {
    um_buf safe = {0};
    if (g->n_failed >= SHOWN_MAX) return;
    if (t->err.code) um_cli_put_safe(&safe, t->err.msg, strlen(t->err.msg));
    else um_buf_puts(&safe, t->failure);
    um_progress_hide(g->bar);
    fprintf(stderr, "unmask generate: line %lld: %s\n", (long long)t->line, safe.data);
    um_buf_free(&safe);
}

static um_status take_result(void *arg, um_bulk_request *t, um_err *err) {
    generate *g = (generate *)arg;
    um_buf *line = &t->out;
    if (t->err.code || t->failure) print_failure(g, t);
    if (t->err.code) {
        um_error_line(line, t->id.len ? t->id.data : NULL, t->line, &t->err);
        g->n_done++;
    } else if (t->n_answers > 1) {
        put_choices(t);
    } else {
        line = &t->answer[0].out;
    }
    um_status st = um_result_file_write(&g->out, line, err);
    if (st) return st; /* a request whose line was not written counts as neither answered nor failed */
    g->n_written++;
    g->n_failed += t->err.code || t->failure;
    return UM_OK;
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

/* Says how many answers are empty and why, as far as the way of sending the prompt tells. */
static void print_empty(const generate *g) {
    if (!g->n_empty) return;
    fprintf(stderr, "%lld empty answer%s: ", (long long)g->n_empty, g->n_empty == 1 ? "" : "s");
    if (!g->model->chat)
        fputs("the model has no chat template, so a prompt must be a text that goes on with the answer\n", stderr);
    else if (2 * g->n_empty_raw > g->n_empty)
        fprintf(stderr, "%lld had a raw prompt, but the model has a chat template: %s\n", (long long)g->n_empty_raw,
                g->opt.raw ? "leave out --raw" : "send \"prompt\" or \"messages\"");
    else
        fputs("the prompts went through the chat template; if the model was not trained on chats, use --raw\n", stderr);
}

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
    if (g->n_failed > SHOWN_MAX)
        fprintf(stderr, "only the first %d errors were printed; the others are in the output\n", SHOWN_MAX);
    print_empty(g);
    if (g->metrics.requests) um_report_speed(&speed, &g->metrics, &r);
    if (speed.len) fputs(speed.data, stderr);
    um_buf_free(&speed);
}

static um_status run_requests(generate *g, const um_config *c, um_session *s, um_err *err) {
    um_bulk bulk = {.arg = g,
                    .events = g->opt.trace ? UM_EVENT_TRACE : 0,
                    .next = next_request,
                    .event = on_event,
                    .take = take_result,
                    .tick = show_progress};
    um_status st = um_cli_profile_start(s->router, g->opt.profile, err);
    if (!st) st = um_result_file_begin(&g->out, err);
    if (st) return st;
    if (!g->opt.quiet)
        g->bar = um_progress_new("requests", g->stream ? -1 : g->n_lines, g->out.n_answered, g->opt.progress_interval);
    g->model = s->model;
    g->start = um_now();
    st = um_bulk_run(s->router, c->max_num_reqs, &bulk, err);
    um_progress_free(g->bar);
    if (!st && g->input_err.code) {
        *err = g->input_err;
        st = err->code;
    }
    if (!st) st = um_result_file_close(&g->out, err);
    if (!st) st = um_cli_profile_stop(s->router, g->opt.profile, g->opt.quiet, err);
    print_summary(g, s->router);
    return st;
}

/* After a failed run, prints the number of results, and whether the run can be resumed: the input and output are files,
 * and requests are left. */
static void print_how_to_resume(const generate *g) {
    const int64_t n = g->out.n_answered + g->n_written;
    const bool resumes = g->out.ledger.file && !g->stream && n < g->n_lines;
    fprintf(stderr, "unmask generate: %s has %lld results%s\n", g->out.ledger.name, (long long)n,
            resumes ? "; run the same command again to continue" : "");
}

static int run_with_model(const um_command *self, generate *g, const um_config *c) {
    um_err err = {0};
    um_session s = {0};
    um_status st = um_cli_open(&s, c, g->opt.quiet, !g->opt.quiet, &err);
    if (st) return um_cli_error(self, &err);
    st = run_requests(g, c, &s, &err);
    um_cli_close(&s);
    if (st) {
        um_cli_error(self, &err);
        print_how_to_resume(g);
        return st == UM_EDEVICE || st == UM_ECANCELED ? um_exit_of(st) : UM_EXIT_FAILED;
    }
    return g->n_failed + g->out.n_failed ? UM_EXIT_FAILED : UM_EXIT_OK;
}

/* An earlier run has answered every request. Only removes an incomplete line at the end of the output. */
static int finish_without_work(const um_command *self, generate *g) {
    um_err err;
    um_status st = um_result_file_begin(&g->out, &err);
    if (!st) st = um_result_file_close(&g->out, &err);
    if (st) return um_cli_error(self, &err);
    if (!g->opt.quiet) fprintf(stderr, "%s already has results for all requests\n", g->out.ledger.name);
    return g->out.n_failed ? UM_EXIT_FAILED : UM_EXIT_OK;
}

static um_status check_words(const um_args *a, const generate_options *o, um_err *err) {
    um_status st = um_cli_no_words(a, "requests are read from --input", err);
    if (st) return st;
    if (!o->input) return um_fail(err, UM_EINVAL, "--input is missing: a file of requests, one JSON object per line");
    if (!o->output)
        return um_fail(err, UM_EINVAL, "--output is missing: a file for the results, or - for standard output");
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
    if (!st) st = um_cli_check_engine_model(&config, &err);
    if (!st) st = um_cli_constraint_read(&g.constraint, &g.opt.constraint, &config, &err);
    if (!st) st = um_cli_profile_check(g.opt.profile, &err);
    if (!st) st = open_files(&g, &err);
    if (st) {
        um_cli_error(self, &err);
        code = st == UM_ECANCELED || st == UM_EMODEL ? um_exit_of(st) : UM_EXIT_USAGE;
    } else if (!g.stream && g.out.n_answered == g.n_lines && g.n_lines) {
        code = finish_without_work(self, &g);
    } else {
        code = run_with_model(self, &g, &config);
    }
done:
    um_lines_close(&g.in);
    (void)um_result_file_close(&g.out, NULL);
    um_request_line_free(&g.request);
    um_cli_constraint_free(&g.constraint);
    um_idset_free(&g.ids);
    um_args_free(&args);
    return code;
}

const um_command um_cmd_generate = {
    .name = "generate",
    .summary = "answer a file of requests",
    .usage = "unmask generate --model DIR --input FILE --output FILE [options]",
    .description =
        "Reads requests, one JSON object per line, and writes one result per line in the same order. A request has one "
        "of prompt, prompt_token_ids and messages, an id (without one, the number of its line), and any decoding, "
        "sampling and limit option by its name with underscores; also n, stop, stop_token_ids, logit_bias, bad_words, "
        "allowed_token_ids, cache_salt, adapter, return_step_map and return_timings, and one of the fields that "
        "constrain "
        "an answer, such as response_format, json_schema, regex and grammar. A request with messages may have "
        "tools, tool_choice, chat_template, chat_template_kwargs, add_generation_prompt and continue_final_message. If "
        "a request fails, its result is an error, and the first three errors are also printed; the other requests "
        "continue. After an interrupted run, the same command answers the remaining requests. Exit status: 0 all "
        "requests answered, 1 a request failed, 2 wrong usage or input, 3 model or device unusable, 130 interrupted by "
        "Ctrl-C.",
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
