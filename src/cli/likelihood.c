/* Estimates the likelihood of the answers of a file of questions, and prints the report. */
#include "cli/likelihood.h"

#include <math.h>

#include "cli/report.h"
#include "engine/engine.h"

/* Scores in the engines' queues, per place. */
#define QUEUED_PER_PLACE 2

/* The score of an answer. */
typedef struct answer {
    bool is_done;
    um_finish finish;
    int64_t tokens, passes;
    double nats, standard_error; /* of -log p */
} answer;

/* Sums over answers. */
typedef struct sums {
    int64_t answers, tokens, passes;
    double nats, variance;
} sums;

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

static void on_score(void *arg, const um_score_result *r) {
    *(answer *)arg = (answer){.is_done = true,
                              .finish = r->finish,
                              .tokens = (int64_t)r->n_tokens,
                              .passes = r->passes,
                              .nats = -r->logprob,
                              .standard_error = r->standard_error};
}

/* Queues the answer of question i. */
static um_status submit(const um_session *s, const um_likelihood_run *r, size_t i, answer *out, um_err *err) {
    const um_example *x = &r->data->example[i];
    const um_message message = {"user", x->prompt};
    um_score_request q;
    um_score_init(s->engine, &q);
    if (r->raw) {
        q.text = x->prompt;
        q.text_len = strlen(x->prompt);
    } else {
        q.messages = &message;
        q.n_messages = 1;
    }
    q.answer = x->answer;
    q.answer_len = strlen(x->answer);
    q.special_in_content = UM_SPECIAL_AUTO;
    q.adapter = r->adapter;
    q.params.samples = r->n_masks;
    q.params.seed = (int64_t)i;
    q.on_score = on_score;
    q.arg = out;
    const um_status st = um_router_score(s->router, &q, NULL, err);
    return st ? um_fail_in(err, "question %s", x->id) : UM_OK;
}

static um_status write_line(const um_likelihood_run *r, const um_example *x, const answer *a, um_err *err) {
    um_buf line = {0};
    um_jw w;
    if (r->out->ledger.fd < 0) return UM_OK;
    um_jw_init(&w, &line);
    um_jw_begin_object(&w);
    um_jw_key(&w, "id");
    um_jw_raw(&w, x->id, strlen(x->id));
    um_jw_put_cstr(&w, "kind", x->kind);
    um_jw_put_int(&w, "tokens", a->tokens);
    um_jw_put_double(&w, "nats", a->nats);
    um_jw_put_double(&w, "standard_error", a->standard_error);
    um_jw_end_object(&w);
    um_status s = um_result_file_write(r->out, &line, err);
    um_buf_free(&line);
    return s;
}

/* Adds a finished answer to the sums, and writes its line. */
static um_status take(const um_likelihood_run *r, size_t i, const answer *a, sums *sum, um_err *err) {
    const um_example *x = &r->data->example[i];
    if (a->finish != UM_FINISH_STEPS)
        return um_fail(err, UM_EMODEL, "question %s: %s", x->id, um_cli_failure_of(a->finish));
    sum->answers++;
    sum->tokens += a->tokens;
    sum->passes += a->passes;
    sum->nats += a->nats;
    sum->variance += a->standard_error * a->standard_error;
    return write_line(r, x, a, err);
}

/* Runs all answers; the results are taken in the order of the questions. */
static um_status run_all(const um_session *s, const um_config *c, const um_likelihood_run *r, um_progress *bar,
                         answer *list, sums *sum, um_err *err) {
    const size_t most = (size_t)c->max_num_reqs * (size_t)um_router_size(s->router) * QUEUED_PER_PLACE;
    size_t next = 0, first = 0;
    um_status st = UM_OK;
    while (!st && first < r->data->n) {
        if (um_cli_interrupted()) return um_fail(err, UM_ECANCELED, "interrupted");
        for (; !st && next < r->data->n && um_router_pending(s->router) < most; next++)
            st = submit(s, r, next, &list[next], err);
        if (!st) st = um_router_step(s->router, err);
        for (; !st && first < next && list[first].is_done; first++) st = take(r, first, &list[first], sum, err);
        if (bar) um_progress_set(bar, sum->answers, NULL);
    }
    return st;
}

/* ---- The report -------------------------------------------------------------------------------------------------- */

static double per_token(const sums *l) { return um_ratio(l->nats, (double)l->tokens); }

/* NAN: the passes over an answer are one batch. */
static double error_per_token(const sums *l) { return um_ratio(sqrt(l->variance), (double)l->tokens); }

static void print_table(const um_session *s, const um_config *c, const um_likelihood_run *r, const sums *l,
                        double seconds) {
    um_buf changes = {0};
    um_model_info info;
    um_model_get_info(s->model, &info);
    um_report_changes(&changes, c);
    printf("nats per token  %.5f", per_token(l));
    if (!isnan(error_per_token(l))) printf(" +- %.5f", error_per_token(l));
    putchar('\n');
    printf("perplexity      %.5f\n", exp(per_token(l)));
    printf("\nmodel           %s (%s), %s\n", info.path, info.family, um_model_type_name(s->model));
    printf("questions       %s%s\n", r->path, r->raw ? ", as plain text" : ", through the chat template");
    printf("options         %s\n", changes.data);
    printf("answers         %lld of %lld tokens in %.2f s, %lld passes, at most %d for each block of an answer\n",
           (long long)l->answers, (long long)l->tokens, seconds, (long long)l->passes, r->n_masks);
    um_buf_free(&changes);
}

static void print_json(const um_session *s, const um_config *c, const um_likelihood_run *r, const sums *l,
                       double seconds) {
    um_buf out = {0};
    um_jw w;
    um_model_info info;
    um_model_get_info(s->model, &info);
    um_jw_init(&w, &out);
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "model", info.path);
    um_jw_put_cstr(&w, "family", info.family);
    um_jw_put_cstr(&w, "types", um_model_type_name(s->model));
    um_jw_put_cstr(&w, "data", r->path);
    um_jw_put_int(&w, "n", l->answers);
    um_jw_put_int(&w, "tokens", l->tokens);
    um_jw_put_int(&w, "masks", r->n_masks);
    um_jw_put_int(&w, "passes", l->passes);
    um_jw_put_double(&w, "nats_per_token", per_token(l));
    um_jw_put_double(&w, "standard_error", error_per_token(l));
    um_jw_put_double(&w, "perplexity", exp(per_token(l)));
    um_jw_put_double(&w, "seconds", seconds);
    um_jw_key(&w, "options");
    um_report_options(&w, c);
    um_jw_end_object(&w);
    um_buf_putc(&out, '\n');
    um_cli_write(&out);
    um_buf_free(&out);
}

um_status um_likelihood_measure(const um_session *s, const um_config *c, const um_likelihood_run *r, um_err *err) {
    sums sum = {0};
    um_progress *bar = r->quiet ? NULL : um_progress_new("answers", (int64_t)r->data->n, 0, UM_PROGRESS_INTERVAL);
    answer *list = UM_NEW_ARRAY(answer, r->data->n);
    const double start = um_now();
    um_status st = run_all(s, c, r, bar, list, &sum, err);
    um_progress_free(bar);
    um_free(list);
    if (!st) st = um_result_file_close(r->out, err);
    if (st) return st;
    if (r->json) print_json(s, c, r, &sum, um_now() - start);
    else print_table(s, c, r, &sum, um_now() - start);
    return UM_OK;
}
