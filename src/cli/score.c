/* unmask score: the log-likelihood of given answers, from the command line or from a file of prompts.
 *
 * The lines of a file run through a window: a ring of lines between the input and the router. Their results are printed
 * in the order of the input. */
#include <jansson.h>

#include "cli/cli.h"
#include "cli/requests.h"
#include "cli/result_file.h"
#include "decode/score.h"
#include "model/model.h"
#include "server/link/score_json.h"

typedef struct score_options {
    um_score_params score;
    const char *prompt, *answer, *input, *adapter;
    float progress_interval;
    bool raw, json, quiet;
} score_options;

#define O(field) UM_FIELD(score_options, field)
static const um_option rows[] = {
    {"adapter", NULL, UM_OPT_STR, O(adapter), 0, 0, NULL, NULL, NULL, "NAME", "Model",
     "use this adapter of --lora; a line of --input may name another"},
    {"prompt", "p", UM_OPT_STR, O(prompt), 0, 0, NULL, NULL, NULL, "TEXT", "Input", "the prompt of the answers"},
    {"answer", "a", UM_OPT_STR, O(answer), 0, 0, NULL, NULL, NULL, "TEXT", "Input",
     "an answer; words after the options are further answers"},
    {"input", NULL, UM_OPT_STR, O(input), 0, 0, NULL, NULL, NULL, "FILE", "Input",
     "file of prompts and answers, one JSON object per line, in place of --prompt; - means standard input"},
    {"raw", NULL, UM_OPT_BOOL, O(raw), 0, 0, NULL, "false", NULL, NULL, "Input", UM_RAW_HELP},
    UM_SCORING_ROWS(score_options, score.),
    {"json", NULL, UM_OPT_BOOL, O(json), 0, 0, NULL, "false", NULL, NULL, "Output",
     "print a JSON object, with the share of each token; the results of --input always are JSON"},
    {"progress_interval", "progress_log_interval", UM_OPT_FLOAT, O(progress_interval), 0, 86400, NULL, "10", NULL, "S",
     "Output", "with --input: seconds between progress lines if standard error is not a terminal; 0 means none"},
    {"quiet", "q", UM_OPT_BOOL, O(quiet), 0, 0, NULL, "false", NULL, NULL, "Output",
     "print nothing but results and errors"},
};

/* Lines per place of the engines. Two keep their queues filled; more let short lines finish beside a long one. */
#define LINES_PER_PLACE 4

typedef struct line line;

/* An answer of a line. */
typedef struct part {
    line *of;
    int64_t id; /* of the router; 0: not submitted */
    um_buf json;
    double logprob, standard_error;
    size_t n_tokens;
    int32_t is_greedy, passes;
    um_finish finish;
} part;

/* A line of the input, or the command line as one. */
struct line {
    int64_t number;
    um_buf id; /* as JSON */
    um_err err;
    part *part; /* [n] */
    size_t n, left;
};

typedef struct run {
    score_options opt;
    um_session session;
    um_score_request defaults;
    um_lines in;
    um_progress *bar;
    bool has_template;
    line *ring; /* [cap] the lines first .. next - 1 are read and not printed yet; indices modulo cap */
    int64_t first, next;
    size_t cap;
    bool ended;
    int64_t n_failed;
    um_err input_err;
} run;

static line *line_at(run *r, int64_t number) { return &r->ring[(size_t)number % r->cap]; }

/* ---- Submission -------------------------------------------------------------------------------------------------- */

static void on_score(void *arg, const um_score_result *r) {
    part *p = (part *)arg;
    um_jw w;
    um_jw_init(&w, &p->json);
    um_score_put(&w, r);
    p->logprob = r->logprob;
    p->standard_error = r->standard_error;
    p->n_tokens = r->n_tokens;
    p->is_greedy = r->is_greedy;
    p->passes = r->passes;
    p->finish = r->finish;
    p->id = 0;
    p->of->left--;
}

static void abort_parts(run *r, line *l) {
    for (size_t i = 0; i < l->n; i++)
        if (l->part[i].id) (void)um_router_abort(r->session.router, l->part[i].id, NULL);
}

/* Queues all answers of a line, or none if one of them is refused. */
static void submit(run *r, line *l, const um_score_job *job) {
    um_status st = UM_OK;
    l->n = l->left = job->n_answers;
    l->part = UM_NEW_ARRAY(part, l->n);
    for (size_t i = 0; i < l->n && !st; i++) {
        um_score_request s = um_score_job_get(job, i);
        l->part[i].of = l;
        s.on_score = on_score;
        s.arg = &l->part[i];
        st = um_router_score(r->session.router, &s, &l->part[i].id, &l->err);
        if (st && l->n > 1) (void)um_fail_in(&l->err, "answer %zu", i);
    }
    if (!st) return;
    abort_parts(r, l);
    l->left = 0;
}

static line *new_line(run *r, int64_t number) {
    line *l = line_at(r, r->next++);
    *l = (line){.number = number};
    return l;
}

static void free_line(line *l) {
    for (size_t i = 0; i < l->n; i++) um_buf_free(&l->part[i].json);
    um_free(l->part);
    um_buf_free(&l->id);
    *l = (line){0};
}

static void read_line(run *r, line *l, um_lines_result got, um_str text) {
    um_score_job job = {0};
    json_t *root = NULL;
    um_status st = UM_OK;
    if (got == UM_LINES_TOO_LONG) st = um_fail(&l->err, UM_ELIMIT, "the line is longer than %zu bytes", UM_LINE_MAX);
    if (!st) st = um_line_object(&root, text, &l->err);
    if (!st) st = um_line_id_or_number(root, l->number, &l->id, &l->err);
    if (!st) st = um_score_job_read(&job, root, &r->defaults, r->has_template && !r->opt.raw, "id", &l->err);
    if (!st) submit(r, l, &job);
    um_score_job_free(&job);
    json_decref(root);
}

/* Reads lines while the window has room. Waits for input only if nothing else is left to do. */
static void read_lines(run *r) {
    while (!r->ended && (size_t)(r->next - r->first) < r->cap) {
        const bool idle = um_router_pending(r->session.router) == 0 && r->first == r->next;
        um_str text;
        const um_lines_result got = um_lines_next(&r->in, idle, &text, &r->input_err);
        if (got == UM_LINES_AGAIN) return;
        r->ended = got == UM_LINES_END || got == UM_LINES_FAILED;
        if (!r->ended) read_line(r, new_line(r, r->in.number), got, text);
    }
}

/* The answers of the command line. */
static void read_arguments(run *r, const um_args *args) {
    const score_options *o = &r->opt;
    um_score_job job = {.request = r->defaults, .message = {"user", o->prompt}};
    const size_t n = (size_t)args->n_words + (o->answer != NULL);
    um_score_answer *answer = UM_NEW_ARRAY(um_score_answer, n);
    if (o->answer) answer[job.n_answers++].text = um_str_of(o->answer);
    for (int i = 0; i < args->n_words; i++) answer[job.n_answers++].text = um_str_of(args->word[i]);
    job.answer = answer;
    if (r->has_template && !o->raw) {
        job.request.messages = &job.message;
        job.request.n_messages = 1;
    } else {
        job.request.text = o->prompt;
        job.request.text_len = strlen(o->prompt);
    }
    submit(r, new_line(r, 1), &job);
    um_free(answer);
    r->ended = true;
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

static const char *failure_of(const line *l) {
    if (l->err.code) return l->err.msg;
    for (size_t i = 0; i < l->n; i++)
        if (l->part[i].finish != UM_FINISH_STEPS) return um_cli_failure_of(l->part[i].finish);
    return NULL;
}

static void put_json(const line *l, um_buf *out) {
    um_jw w;
    um_jw_init(&w, out);
    um_jw_begin_object(&w);
    if (l->id.len) {
        um_jw_key(&w, "id");
        um_jw_raw(&w, l->id.data, l->id.len);
    }
    um_jw_key(&w, "scores");
    um_jw_begin_array(&w);
    for (size_t i = 0; i < l->n; i++) um_jw_raw(&w, l->part[i].json.data, l->part[i].json.len);
    um_jw_end_array(&w);
    um_jw_end_object(&w);
    um_buf_putc(out, '\n');
}

static void put_table(const line *l, const um_args *args, const char *first, um_buf *out) {
    static const char *const greedy[] = {"?", "no", "yes"};
    um_buf_puts(out, "     logprob       error  tokens  passes  greedy  answer\n");
    for (size_t i = 0; i < l->n; i++) {
        const part *p = &l->part[i];
        const char *answer = first && i == 0 ? first : args->word[i - (first != NULL)];
        um_buf_printf(out, "%12.4f  %10.4f  %6zu  %6d  %6s  ", p->logprob, p->standard_error, p->n_tokens, p->passes,
                      greedy[p->is_greedy + 1]);
        um_cli_put_safe(out, answer, strlen(answer));
        um_buf_putc(out, '\n');
    }
}

/* Prints a finished line. A failed line of a file is an object with its error. */
static void print_line(run *r, const line *l, const um_args *args) {
    um_buf out = {0};
    const char *failure = failure_of(l);
    if (failure) {
        um_buf safe = {0};
        um_cli_put_safe(&safe, failure, strlen(failure));
        um_progress_hide(r->bar);
        if (r->opt.input) fprintf(stderr, "unmask score: line %lld: %s\n", (long long)l->number, safe.data);
        else fprintf(stderr, "unmask score: %s\n", safe.data);
        um_buf_free(&safe);
        r->n_failed++;
    }
    if (l->err.code && r->opt.input) {
        um_error_line(&out, l->id.len ? l->id.data : NULL, l->number, &l->err);
        um_buf_putc(&out, '\n');
    } else if (!l->err.code && (r->opt.input || r->opt.json)) put_json(l, &out);
    else if (!l->err.code) put_table(l, args, r->opt.answer, &out);
    um_cli_write(&out);
    um_buf_free(&out);
}

static void print_finished(run *r, const um_args *args) {
    for (; r->first < r->next; r->first++) {
        line *l = line_at(r, r->first);
        if (l->left) break;
        print_line(r, l, args);
        free_line(l);
    }
    um_progress_set(r->bar, r->first, NULL);
}

/* ---- The run ----------------------------------------------------------------------------------------------------- */

static um_status run_lines(run *r, const um_args *args, um_err *err) {
    um_status st = UM_OK;
    if (!r->opt.input) read_arguments(r, args);
    while (!st && (!r->ended || r->first < r->next)) {
        if (um_cli_interrupted()) return um_fail(err, UM_ECANCELED, "interrupted");
        read_lines(r);
        print_finished(r, args);
        st = um_router_step(r->session.router, err);
        if (!st) print_finished(r, args);
    }
    if (!st && r->input_err.code) {
        *err = r->input_err;
        st = err->code;
    }
    return st;
}

static void take_defaults(run *r) {
    const um_score_params *own = &r->opt.score;
    um_model_info info;
    um_model_get_info(r->session.model, &info);
    r->has_template = info.has_chat_template;
    um_score_init(r->session.engine, &r->defaults);
    um_score_params *p = &r->defaults.params;
    p->method = own->method;
    p->samples = own->samples;
    p->batch = own->batch;
    p->check_greedy = own->check_greedy;
    r->defaults.adapter = r->opt.adapter;
}

static int run_with_model(const um_command *self, run *r, const um_config *c, const um_args *args) {
    um_err err = {0};
    const bool quiet = r->opt.quiet;
    if (um_cli_open(&r->session, c, quiet, !quiet, &err)) return um_cli_error(self, &err);
    take_defaults(r);
    r->cap = (size_t)c->max_num_reqs * (size_t)um_router_size(r->session.router) * LINES_PER_PLACE;
    r->ring = UM_NEW_ARRAY(line, r->cap);
    if (r->opt.input && !quiet) r->bar = um_progress_new("prompts", -1, 0, r->opt.progress_interval);
    const um_status st = run_lines(r, args, &err);
    um_progress_free(r->bar);
    for (; r->first < r->next; r->first++) {
        abort_parts(r, line_at(r, r->first));
        free_line(line_at(r, r->first));
    }
    um_free(r->ring);
    um_cli_close(&r->session);
    um_cli_flush();
    if (st) return um_cli_error(self, &err);
    return r->n_failed ? UM_EXIT_FAILED : UM_EXIT_OK;
}

static um_status check_options(const score_options *o, const um_args *args, um_err *err) {
    if (o->input && (o->prompt || o->answer || args->n_words))
        return um_fail(err, UM_EINVAL, "--input has prompts and answers; leave out --prompt, --answer and ANSWER");
    if (o->input) return UM_OK;
    if (!o->prompt) return um_fail(err, UM_EINVAL, "--prompt is missing: the text that the answers follow");
    if (!o->answer && !args->n_words)
        return um_fail(err, UM_EINVAL, "no answer: give one or more after the options, or with --answer");
    return UM_OK;
}

static int run_score(const um_command *self, int argc, char **argv) {
    run r = {.in = {.fd = -1}};
    um_config config = {0};
    um_args args;
    um_err err = {0};
    int code;
    um_args_parse(&args, self, argc, argv, &r.opt, &config);
    if (args.done) {
        code = args.exit;
        goto done;
    }
    um_cli_catch_signals();
    um_status st = check_options(&r.opt, &args, &err);
    if (!st) st = um_cli_check_engine_model(&config, &err);
    if (!st && r.opt.input) st = um_lines_open(&r.in, r.opt.input, &err);
    if (!st) code = run_with_model(self, &r, &config, &args);
    else {
        um_cli_error(self, &err);
        code = st == UM_EMODEL ? um_exit_of(st) : UM_EXIT_USAGE;
    }
done:
    um_lines_close(&r.in);
    um_args_free(&args);
    return code;
}

const um_command um_cmd_score = {
    .name = "score",
    .summary = "compute how likely given answers are",
    .usage = "unmask score --model DIR --prompt TEXT [options] ANSWER...\n"
             "unmask score --model DIR --input FILE [options]",
    .description =
        "Prints the natural logarithm of the probability that the model gives to each answer, and the standard error "
        "where it is an estimate (docs/scoring.md). With --input it reads one JSON object per line, with prompt (a "
        "text or token ids) or messages, answer (a text, token ids, or a list of these), and optionally id, adapter, "
        "method, samples, batch, seed, check_greedy, block_size and cfg_scale, and prints one line with a list of "
        "scores for each, in the same order; a line that fails gets an error, and the others continue. All answers "
        "run in the same steps. --seed, --cfg-scale and --block-size hold for scores, too; without --seed the seed is "
        "0. Exit "
        "status: 0 all answers scored, 1 one failed, 2 wrong usage or input, 3 model or device unusable, 130 "
        "interrupted by Ctrl-C.",
    .examples = "unmask score --model models/tiny-block --prompt 'What is 12 + 30?' 42 24\n"
                "unmask score --model models/tiny-full --prompt 'What is 12 + 30?' --answer 42 --method confidence "
                "--json\n"
                "echo '{\"prompt\": \"What is 2 + 3?\", \"answer\": [\"5\", \"6\"]}' | "
                "unmask score --model models/tiny-block --input -\n",
    .options = rows,
    .n_options = UM_LEN(rows),
    .engine_options = true,
    .run = run_score,
};
