/* unmask eval: measures the accuracy of answers to known questions, and the tokens per forward pass. With --likelihood
 * it estimates how likely the known answers are (likelihood.h). */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "cli/bulk.h"
#include "cli/cli.h"
#include "cli/dataset.h"
#include "cli/likelihood.h"
#include "cli/report.h"
#include "cli/result_file.h"
#include "model/model.h"

#define KINDS_MAX 256
#define INDENT    16 /* columns of the labels of the report */

typedef struct eval_options {
    const char *data, *set, *output, *adapter;
    int32_t limit, batch, show_failures, likelihood;
    bool json, raw, quiet;
} eval_options;

#define E(field) UM_FIELD(eval_options, field)

static const um_option options[] = {
    {"adapter", NULL, UM_OPT_STR, E(adapter), 0, 0, NULL, NULL, NULL, "NAME", "Model", "use this adapter of --lora"},
    {"data", NULL, UM_OPT_STR, E(data), 0, 0, NULL, NULL, NULL, "FILE", "Evaluation",
     "file of questions, one {\"id\", \"kind\", \"prompt\", \"answer\"} per line; without it, eval.jsonl next to the "
     "model's folder"},
    {"set", NULL, UM_OPT_STR, E(set), 0, 0, NULL, NULL, NULL, "NAME", "Evaluation",
     "ask eval-NAME.jsonl next to the model's folder; for the bundled models: loose (the same kinds of questions as "
     "people type them), foreign (prompts of no kind)"},
    {"limit", "dataset_limit", UM_OPT_INT, E(limit), 0, 1e9, NULL, "0", NULL, "N", "Evaluation",
     "ask only the first N questions; 0 means all"},
    {"batch", NULL, UM_OPT_INT, E(batch), 0, 4096, NULL, "0", NULL, "N", "Evaluation",
     "largest number of questions that run at once; 0 means --max-num-reqs"},
    {"raw", NULL, UM_OPT_BOOL, E(raw), 0, 0, NULL, "false", NULL, NULL, "Evaluation", UM_RAW_HELP},
    {"likelihood", NULL, UM_OPT_INT, E(likelihood), 0, 10000, NULL, "0", NULL, "N", "Evaluation",
     "ask nothing: estimate the likelihood of the known answers, with N passes for each block of an answer; 0 asks the "
     "questions"},
    {"output", "o", UM_OPT_STR, E(output), 0, 0, NULL, NULL, NULL, "FILE", "Evaluation",
     "file for the answers and whether they are right, one JSON object per line; - means standard output, and the "
     "report goes to standard error"},
    {"show_failures", NULL, UM_OPT_INT, E(show_failures), 0, 1e9, NULL, "0", NULL, "N", "Evaluation",
     "print the first N questions with wrong answers"},
    {"json", NULL, UM_OPT_BOOL, E(json), 0, 0, NULL, "false", NULL, NULL, "Evaluation", "print the report as JSON"},
    {"quiet", "q", UM_OPT_BOOL, E(quiet), 0, 0, NULL, "false", NULL, NULL, "Evaluation",
     "print no progress to standard error"},
};

/* Counts for a kind of question, or for all questions. */
typedef struct tally {
    const char *kind;
    int64_t n, correct, failed, honest;
    int64_t total; /* questions of this kind in the file */
    int64_t tokens, forwards, denoise_tokens, denoise_passes;
    /* Sum of tokens per forward pass in billionths, over n_ratios requests. Answers end in any order, and a sum of
     * integers doesn't depend on it. */
    int64_t ratio_sum, n_ratios;
} tally;

typedef struct eval {
    eval_options opt;
    um_dataset data;
    char *found; /* path of the file next to the model's folder, or NULL */
    const char *path;
    um_dataset foreign; /* the first prompt of eval-foreign.jsonl, if that is next to the model's folder */
    um_str honest;      /* its answer: what the model says to a prompt that it was not trained for; p NULL: unknown */
    um_result_file out; /* fd -1: no output file */
    um_session session;
    um_progress *bar;
    um_message message; /* message of the request from `next_question` */
    tally kind[KINDS_MAX], all;
    size_t n_kinds, next;
    size_t n_printed; /* kinds whose row is printed */
    int width;        /* columns of the names of the kinds */
    int64_t n_shown;
    um_buf failures;
    double start, seconds;
} eval;

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

static um_bulk_got next_question(void *arg, um_bulk_request *t, um_request *r, bool wait) {
    eval *v = (eval *)arg;
    (void)t, (void)wait;
    r->adapter = v->opt.adapter;
    if (v->next == v->data.n) return UM_BULK_END;
    const char *prompt = v->data.example[v->next++].prompt;
    v->message = (um_message){"user", prompt};
    if (v->opt.raw) {
        r->text = prompt;
        r->text_len = strlen(prompt);
    } else {
        r->messages = &v->message;
        r->n_messages = 1;
    }
    return UM_BULK_REQUEST;
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static um_str trimmed(const char *s, size_t n) {
    while (n && is_space(s[n - 1])) n--;
    return (um_str){s, n};
}

static bool is_correct(const um_example *x, um_str text) {
    return um_str_eq(trimmed(x->answer, strlen(x->answer)), trimmed(text.p, text.n));
}

/* ---- Counting ---------------------------------------------------------------------------------------------------- */

static tally *tally_of(eval *v, const char *kind) {
    size_t i = 0;
    while (i < v->n_kinds && !um_streq(v->kind[i].kind, kind)) i++;
    if (i == v->n_kinds) v->kind[v->n_kinds++].kind = kind;
    return &v->kind[i];
}

/* Returns whether the answer is the text by which the model says that it can't do what was asked. */
static bool is_honest(const eval *v, const um_result *r) {
    return r && v->honest.p && um_str_eq(v->honest, trimmed(r->text, r->text_len));
}

/* Counts the questions of each kind. The kinds have the order in which the file first has them. */
static void count_kinds(eval *v) {
    v->width = 8;
    for (size_t i = 0; i < v->data.n; i++) tally_of(v, v->data.example[i].kind)->total++;
    for (size_t i = 0; i < v->n_kinds; i++) v->width = UM_MAX(v->width, (int)strlen(v->kind[i].kind));
}

static int by_kind(const void *a, const void *b) { return strcmp(((const tally *)a)->kind, ((const tally *)b)->kind); }

static double per_forward(const tally *y) { return um_ratio((double)y->tokens, (double)y->forwards); }

static double mean_per_forward(const tally *y) { return 1e-9 * um_ratio((double)y->ratio_sum, (double)y->n_ratios); }

static void put_row(um_buf *out, const tally *y, int width) {
    um_buf_printf(out, "%-*s %7lld %9lld %8.1f %% %15.2f\n", width, y->kind, (long long)y->n, (long long)y->correct,
                  100 * um_ratio((double)y->correct, (double)y->n), per_forward(y));
}

/* Prints the rows of the kinds whose questions are all answered, and with `all` those of the others. A row waits for
 * the rows before it, so that the order is the same in every run. */
static void print_finished(eval *v, bool all) {
    const size_t before = v->n_printed;
    um_buf out = {0};
    if (v->opt.json) return;
    while (v->n_printed < v->n_kinds && (all || v->kind[v->n_printed].n == v->kind[v->n_printed].total)) {
        if (v->n_printed == before) um_progress_clear(v->bar);
        if (v->n_printed == 0)
            um_buf_printf(&out, "%-*s %7s %9s %10s %15s\n", v->width, "kind", "asked", "right", "accuracy",
                          "tokens/forward");
        put_row(&out, &v->kind[v->n_printed++], v->width);
    }
    um_cli_write(&out);
    if (out.len) um_cli_flush();
    um_buf_free(&out);
}

/* Counts a result. r NULL: the request failed, which counts as a wrong answer. */
static void count(tally *y, const um_result *r, bool right, bool honest) {
    y->n++;
    y->correct += right;
    y->failed += !r;
    y->honest += honest;
    if (!r) return;
    y->tokens += (int64_t)r->n_tokens;
    y->forwards += r->nfe;
    y->denoise_tokens += r->denoise_tokens;
    y->denoise_passes += r->denoise_passes;
    if (r->nfe == 0) return;
    y->ratio_sum += llround(1e9 * (double)r->n_tokens / r->nfe);
    y->n_ratios++;
}

/* Writes the line of --output. r NULL: the request failed with t->err. */
static void put_answer(const um_example *x, um_bulk_request *t, const um_result *r, bool right) {
    um_jw w;
    um_jw_init(&w, &t->out);
    um_jw_begin_object(&w);
    um_jw_key(&w, "id");
    um_jw_raw(&w, x->id, strlen(x->id));
    um_jw_put_cstr(&w, "kind", x->kind);
    um_jw_put_cstr(&w, "prompt", x->prompt);
    um_jw_put_cstr(&w, "expected", x->answer);
    if (r) {
        um_jw_put_str(&w, "text", (um_str){r->text, r->text_len});
        um_jw_put_int(&w, "completion_tokens", (int64_t)r->n_tokens);
        um_jw_put_int(&w, "nfe", r->nfe);
        um_jw_put_cstr(&w, "finish_reason", um_finish_name(r->finish));
    } else {
        um_jw_put_cstr(&w, "error", t->err.msg);
    }
    um_jw_put_bool(&w, "correct", right);
    um_jw_end_object(&w);
}

static void record_answer(eval *v, um_bulk_request *t, const um_result *r) {
    const um_example *x = &v->data.example[t->number];
    bool right = r && is_correct(x, (um_str){r->text, r->text_len});
    bool honest = is_honest(v, r);
    count(tally_of(v, x->kind), r, right, honest);
    count(&v->all, r, right, honest);
    if (v->out.ledger.fd >= 0) put_answer(x, t, r, right);
    if (right) return;
    /* Stored in the request, so that failures are printed in the order of the questions. */
    um_buf_printf(&t->answer[0].out, "%s (%s)\n  prompt    %s\n  expected  %s\n  %s  %s\n", x->id, x->kind, x->prompt,
                  x->answer, r ? "answered" : "failed  ", r ? r->text : t->err.msg);
}

static void on_event(void *arg, um_bulk_request *t, const um_event *ev) {
    if (ev->type == UM_EVENT_FINISH) record_answer((eval *)arg, t, ev->result);
}

static um_status take_answer(void *arg, um_bulk_request *t, um_err *err) {
    eval *v = (eval *)arg;
    if (t->err.code) record_answer(v, t, NULL);
    const um_buf *failure = &t->answer[0].out;
    if (failure->len && v->n_shown++ < v->opt.show_failures) um_buf_append(&v->failures, failure->data, failure->len);
    return v->out.ledger.fd >= 0 ? um_result_file_write(&v->out, &t->out, err) : UM_OK;
}

static void show_progress(void *arg) {
    eval *v = (eval *)arg;
    char note[64];
    print_finished(v, false);
    snprintf(note, sizeof note, "%.1f %% right  %.0f tok/s", 100 * um_ratio((double)v->all.correct, (double)v->all.n),
             um_ratio((double)v->all.tokens, um_now() - v->start));
    um_progress_set(v->bar, v->all.n, note);
}

/* ---- The report -------------------------------------------------------------------------------------------------- */

static void print_table(eval *v, const um_config *c) {
    um_buf changes = {0}, out = {0};
    um_model_info info;
    um_model_get_info(v->session.model, &info);
    print_finished(v, true);
    put_row(&out, &v->all, v->width);
    um_report_changes(&changes, c);
    um_buf_putc(&out, '\n');
    um_report_linef(&out, "model", INDENT, "%s (%s)", info.path, info.family);
    um_report_linef(&out, "questions", INDENT, "%s%s", v->path,
                    v->opt.raw ? ", as plain text" : ", through the chat template");
    um_report_line(&out, "options", INDENT, changes.data);
    if (v->honest.p)
        um_report_linef(&out, "honest answer", INDENT, "%lld of %lld, %.1f %%", (long long)v->all.honest,
                        (long long)v->all.n, 100 * um_ratio((double)v->all.honest, (double)v->all.n));
    um_report_linef(&out, "failed", INDENT, "%lld", (long long)v->all.failed);
    um_report_linef(&out, "tokens", INDENT, "%lld in %.2f s, %.1f tokens/s", (long long)v->all.tokens, v->seconds,
                    um_ratio((double)v->all.tokens, v->seconds));
    um_report_linef(&out, "forwards", INDENT, "%lld, including %lld denoising passes", (long long)v->all.forwards,
                    (long long)v->all.denoise_passes);
    um_report_linef(&out, "tokens/forward", INDENT,
                    "%.2f (tokens of the answers / all forwards), %.2f as the mean over questions",
                    per_forward(&v->all), mean_per_forward(&v->all));
    um_cli_write(&out);
    um_buf_free(&out);
    um_buf_free(&changes);
}

static void put_tally(um_jw *w, const tally *y, bool with_honest) {
    um_jw_put_int(w, "n", y->n);
    um_jw_put_int(w, "correct", y->correct);
    um_jw_put_int(w, "failed", y->failed);
    um_jw_put_double(w, "accuracy", um_ratio((double)y->correct, (double)y->n));
    um_jw_put_int(w, "tokens", y->tokens);
    um_jw_put_int(w, "forwards", y->forwards);
    um_jw_put_int(w, "denoise_tokens", y->denoise_tokens);
    um_jw_put_int(w, "denoise_passes", y->denoise_passes);
    um_jw_put_double(w, "tokens_per_forward", per_forward(y));
    um_jw_put_double(w, "tokens_per_forward_mean", mean_per_forward(y));
    if (with_honest) um_jw_put_int(w, "honest", y->honest);
}

/* Writes the largest amount of memory that keys and values used at one time, over all engines. */
static void put_memory(um_jw *w, const eval *v) {
    um_stats s;
    um_router_get_stats(v->session.router, &s);
    const int64_t page_bytes = (int64_t)s.kv_bytes / s.pages_total;
    um_jw_put_int(w, "kv_page_bytes", page_bytes);
    um_jw_put_int(w, "kv_pages_used_most", s.pages_used_most);
    um_jw_put_int(w, "kv_bytes_used_most", page_bytes * s.pages_used_most);
}

static void print_json(const eval *v, const um_config *c) {
    um_buf out = {0};
    um_jw w;
    um_model_info info;
    um_model_get_info(v->session.model, &info);
    um_jw_init(&w, &out);
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "model", info.path);
    um_jw_put_cstr(&w, "family", info.family);
    um_jw_put_cstr(&w, "data", v->path);
    put_tally(&w, &v->all, v->honest.p);
    um_jw_put_double(&w, "seconds", v->seconds);
    um_jw_put_double(&w, "tokens_per_second", um_ratio((double)v->all.tokens, v->seconds));
    put_memory(&w, v);
    um_jw_key(&w, "kinds");
    um_jw_begin_array(&w);
    for (size_t i = 0; i < v->n_kinds; i++) {
        um_jw_begin_object(&w);
        um_jw_put_cstr(&w, "kind", v->kind[i].kind);
        put_tally(&w, &v->kind[i], v->honest.p);
        um_jw_end_object(&w);
    }
    um_jw_end_array(&w);
    um_jw_key(&w, "options");
    um_report_options(&w, c);
    um_jw_end_object(&w);
    um_buf_putc(&out, '\n');
    um_cli_write(&out);
    um_buf_free(&out);
}

static void print_report(eval *v, const um_config *c) {
    v->all.kind = "all";
    if (v->opt.json) qsort(v->kind, v->n_kinds, sizeof v->kind[0], by_kind);
    if (v->opt.json) print_json(v, c);
    else print_table(v, c);
    /* Failures go to stderr where stdout has only JSON: the report, or the lines of --output. */
    um_buf safe = {0};
    um_cli_put_safe(&safe, v->failures.data, v->failures.len);
    if (safe.len)
        fprintf(v->opt.json || um_streq(v->opt.output, "-") ? stderr : stdout, "\nanswered wrong (%lld of %lld):\n%s",
                (long long)UM_MIN(v->n_shown, v->opt.show_failures), (long long)(v->all.n - v->all.correct), safe.data);
    um_buf_free(&safe);
}

/* ---- The run ----------------------------------------------------------------------------------------------------- */

static um_status check_kinds(const um_dataset *d, const char *path, um_err *err) {
    const char *seen[KINDS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++) {
        size_t k = 0;
        while (k < n && !um_streq(seen[k], d->example[i].kind)) k++;
        if (k == KINDS_MAX)
            return um_fail(err, UM_ELIMIT,
                           "%s has more than %d kinds of questions; a kind is a group such as \"arithmetic\"", path,
                           KINDS_MAX);
        if (k == n) seen[n++] = d->example[i].kind;
    }
    return UM_OK;
}

/* Reports why there are no questions: the folder is not a model, or the file `name` is missing. */
static um_status fail_without_data(const um_config *c, const char *name, um_err *err) {
    char *folder = NULL;
    um_arch a;
    um_status st = um_model_find(&folder, c->model, err);
    const um_arch_source from = {.dir = folder, .family = c->model_name, .mask_id = c->mask_token_id};
    if (!st) st = um_arch_load(&a, &from, err);
    um_free(folder);
    if (st) return um_cli_explain_model_error(err);
    return um_fail(err, UM_EINVAL, "there is no %s next to %s; name a file of questions with --data", name, c->model);
}

/* Sets `path`: --data, or the file of --set next to the model's folder. */
static um_status find_data(eval *v, const um_config *c, um_err *err) {
    const char *set = v->opt.set;
    um_buf name = {0};
    v->path = v->opt.data;
    if (set && v->opt.data) return um_fail(err, UM_EINVAL, "--data and --set both name questions; use one of them");
    if (set && (!*set || strchr(set, '/')))
        return um_fail(err, UM_EINVAL, "--set: expected a name such as loose or foreign, found \"%.80s\"", set);
    if (v->path) return UM_OK;
    um_buf_printf(&name, "eval%s%s.jsonl", set ? "-" : "", set ? set : "");
    v->path = v->found = um_dataset_find(c->model, name.data);
    um_status st = v->path ? UM_OK : fail_without_data(c, name.data, err);
    um_buf_free(&name);
    return st;
}

/* The prompts of eval-foreign.jsonl all have the same answer, and no other question has it. */
static um_status find_honest_answer(eval *v, const um_config *c, um_err *err) {
    char *path = um_dataset_find(c->model, "eval-foreign.jsonl");
    um_status st = path ? um_dataset_load(&v->foreign, path, 1, err) : UM_OK;
    if (!st && path) v->honest = trimmed(v->foreign.example[0].answer, strlen(v->foreign.example[0].answer));
    um_free(path);
    return st;
}

static um_status open_data(eval *v, const um_config *c, um_err *err) {
    um_status st = find_data(v, c, err);
    if (!st) st = um_dataset_load(&v->data, v->path, (size_t)v->opt.limit, err);
    if (!st) st = find_honest_answer(v, c, err);
    if (!st) st = check_kinds(&v->data, v->path, err);
    if (!st && v->opt.output) st = um_result_file_open(&v->out, v->opt.output, err);
    return st ? st : um_result_file_begin(&v->out, err);
}

static um_status run_questions(eval *v, int32_t places, um_err *err) {
    um_bulk bulk = {.arg = v, .next = next_question, .event = on_event, .take = take_answer, .tick = show_progress};
    if (!v->opt.quiet) v->bar = um_progress_new("questions", (int64_t)v->data.n, 0, UM_PROGRESS_INTERVAL);
    count_kinds(v);
    v->start = um_now();
    um_status st = um_bulk_run(v->session.router, places, &bulk, err);
    v->seconds = um_now() - v->start;
    um_progress_free(v->bar);
    v->bar = NULL;
    return st ? st : um_result_file_close(&v->out, err);
}

static um_status open_session(eval *v, const um_config *c, um_err *err) {
    um_model_info info;
    um_status st = um_cli_open(&v->session, c, v->opt.quiet, !v->opt.quiet, err);
    if (st) return st;
    um_model_get_info(v->session.model, &info);
    v->opt.raw |= !info.has_chat_template;
    return UM_OK;
}

static int run_likelihood(const um_command *self, eval *v, const um_config *c) {
    um_err err = {0};
    const um_likelihood_run run = {.data = &v->data,
                                   .path = v->path,
                                   .adapter = v->opt.adapter,
                                   .n_masks = v->opt.likelihood,
                                   .raw = v->opt.raw,
                                   .json = v->opt.json,
                                   .quiet = v->opt.quiet,
                                   .out = &v->out};
    return um_likelihood_measure(&v->session, c, &run, &err) ? um_cli_error(self, &err) : UM_EXIT_OK;
}

/* Standard output has either the report or the lines of --output. */
static um_status choose_output(const eval *v, um_err *err) {
    if (!um_streq(v->opt.output, "-")) return UM_OK;
    if (v->opt.json)
        return um_fail(err, UM_EINVAL, "--json and --output - both write to standard output; name a file for --output");
    um_cli_write_to_stderr();
    return UM_OK;
}

static int run_eval(const um_command *self, eval *v, const um_args *words, um_config *c) {
    um_err err = {0};
    if (v->opt.batch) c->max_num_reqs = v->opt.batch;
    um_status st = um_cli_no_words(words, "the questions are read from --data", &err);
    if (!st) st = choose_output(v, &err);
    if (!st) st = um_cli_check_model(c->model, &err);
    if (!st) st = open_data(v, c, &err);
    if (st) {
        um_cli_error(self, &err);
        return st == UM_EMODEL ? UM_EXIT_DEVICE : UM_EXIT_USAGE;
    }
    st = open_session(v, c, &err);
    if (st) return um_cli_error(self, &err);
    if (v->opt.likelihood) return run_likelihood(self, v, c);
    st = run_questions(v, c->max_num_reqs, &err);
    if (st) um_cli_error(self, &err);
    if (!st || st == UM_ECANCELED) print_report(v, c); /* after an interrupt, the report has the counts so far */
    if (st) return st == UM_EDEVICE || st == UM_ECANCELED ? um_exit_of(st) : UM_EXIT_FAILED;
    return v->all.failed ? UM_EXIT_FAILED : UM_EXIT_OK;
}

static int run(const um_command *self, int argc, char **argv) {
    eval *v = UM_NEW(eval);
    um_config config = {0};
    um_args args;
    int code;
    v->out.ledger.fd = -1;
    um_args_parse(&args, self, argc, argv, &v->opt, &config);
    if (args.done) {
        code = args.exit;
    } else {
        um_cli_catch_signals();
        code = run_eval(self, v, &args, &config);
    }
    um_cli_close(&v->session);
    (void)um_result_file_close(&v->out, NULL);
    um_dataset_free(&v->data);
    um_dataset_free(&v->foreign);
    um_buf_free(&v->failures);
    um_free(v->found);
    um_args_free(&args);
    um_free(v);
    return code;
}

const um_command um_cmd_eval = {
    .name = "eval",
    .summary = "measure the accuracy of answers to known questions",
    .usage = "unmask eval --model DIR [--data FILE] [options]",
    .description =
        "Asks each question as one user message. Decoding is greedy unless --temperature is set. An answer is right if "
        "it equals the known answer, except for white space at the end. The report has the accuracy for each kind of "
        "question, and the tokens per forward: the tokens of the answers, without end tokens, divided by all forward "
        "passes, prefill and commits included. If eval-foreign.jsonl is next to the model's folder, the report also "
        "counts how often the model gives the answer of that file, which says that it can't do what was asked. Wrong "
        "answers are not an error; the exit status is 1 if a request "
        "failed. --likelihood N masks random positions of the known answers and reports the mean negative logarithm of "
        "their probability per token (arXiv 2502.09992, equation 6). It shows small differences between formats of "
        "weights that leave the accuracy as it is.",
    .examples = "unmask eval --model models/tiny-block\n"
                "unmask eval --model models/tiny-block --limit 50 --show-failures 5\n"
                "unmask eval --model models/tiny-block --set loose\n"
                "unmask eval --model models/tiny-block --accept-threshold 0.7 --json\n"
                "unmask eval --model models/tiny-block --likelihood 8 --quantization q4\n",
    .options = options,
    .n_options = UM_LEN(options),
    .engine_options = true,
    .defaults = {{"temperature", "0"}}, /* greedy decoding, so that runs are reproducible */
    .run = run,
};
