/* Estimates the likelihood of the answers of a file of questions, and prints the report. */
#include <math.h>

#include "cli/likelihood.h"
#include "cli/report.h"
#include "engine/engine.h"

/* ---- Questions --------------------------------------------------------------------------------------------------- */

static um_status encode_prompt(const um_session *s, const um_likelihood_run *r, const um_example *x, int32_t **ids,
                               size_t *n, um_err *err) {
    const um_message message = {"user", x->prompt};
    um_chat_request chat;
    if (r->raw)
        return um_model_encode_prompt(s->model, x->prompt, strlen(x->prompt), UM_SPECIAL_AUTO, true, ids, n, err);
    um_chat_init(&chat);
    chat.messages = &message;
    chat.n_messages = 1;
    return um_model_render_chat(s->model, &chat, NULL, NULL, ids, n, err);
}

/* An answer's first token is predicted from the prompt, so there must be one. */
static um_status check_ids(const um_session *s, const um_example *x, size_t n_prompt, const int32_t *answer, size_t n,
                           um_err *err) {
    if (!n_prompt) return um_fail(err, UM_EINVAL, "question %s: the prompt has no tokens", x->id);
    for (size_t i = 0; i < n; i++)
        if (answer[i] < 0 || answer[i] >= s->model->net.vocab)
            return um_fail(err, UM_ERANGE, "question %s: token %zu of the answer is %d, outside the vocabulary 0..%d",
                           x->id, i, answer[i], s->model->net.vocab - 1);
    return UM_OK;
}

static um_status add_question(const um_session *s, const um_likelihood_run *r, const um_example *x, int32_t adapter,
                              um_likelihood *sum, um_err *err) {
    int32_t *prompt = NULL, *answer = NULL;
    size_t n_prompt = 0, n_answer = 0;
    um_status st = encode_prompt(s, r, x, &prompt, &n_prompt, err);
    if (!st) st = um_model_encode(s->model, x->answer, strlen(x->answer), false, &answer, &n_answer, err);
    if (!st) st = check_ids(s, x, n_prompt, answer, n_answer, err);
    if (!st)
        st = um_likelihood_add(s->engine, prompt, n_prompt, answer, n_answer, adapter, r->n_masks,
                               (uint64_t)(x - r->data->example), sum, err);
    um_free(prompt);
    um_free(answer);
    return st;
}

static um_status write_line(const um_likelihood_run *r, const um_example *x, const um_likelihood *one, um_err *err) {
    um_buf line = {0};
    um_jw w;
    if (r->out->ledger.fd < 0) return UM_OK;
    um_jw_init(&w, &line);
    um_jw_begin_object(&w);
    um_jw_key(&w, "id");
    um_jw_raw(&w, x->id, strlen(x->id));
    um_jw_put_cstr(&w, "kind", x->kind);
    um_jw_put_int(&w, "tokens", one->tokens);
    um_jw_put_double(&w, "nats", one->nats);
    um_jw_end_object(&w);
    um_status s = um_result_file_write(r->out, &line, err);
    um_buf_free(&line);
    return s;
}

static um_status add_all(const um_session *s, const um_likelihood_run *r, um_progress *bar, um_likelihood *sum,
                         um_err *err) {
    int32_t adapter;
    um_status st = um_model_adapter(s->model, r->adapter, &adapter, err);
    for (size_t i = 0; i < r->data->n && !st; i++) {
        um_likelihood one = {0};
        st = add_question(s, r, &r->data->example[i], adapter, &one, err);
        if (!st) st = write_line(r, &r->data->example[i], &one, err);
        if (st) break;
        sum->answers += one.answers;
        sum->tokens += one.tokens;
        sum->passes += one.passes;
        sum->nats += one.nats;
        if (bar) um_progress_set(bar, sum->answers, NULL);
    }
    return st;
}

/* ---- The report -------------------------------------------------------------------------------------------------- */

static double per_token(const um_likelihood *l) { return um_ratio(l->nats, (double)l->tokens); }

static void print_table(const um_session *s, const um_config *c, const um_likelihood_run *r, const um_likelihood *l,
                        double seconds) {
    um_buf changes = {0};
    um_model_info info;
    um_model_get_info(s->model, &info);
    um_report_changes(&changes, c);
    printf("nats per token  %.5f\n", per_token(l));
    printf("perplexity      %.5f\n", exp(per_token(l)));
    printf("\nmodel           %s (%s), %s\n", info.path, info.family, um_model_type_name(s->model));
    printf("questions       %s%s\n", r->path, r->raw ? ", as plain text" : ", through the chat template");
    printf("options         %s\n", changes.data);
    printf("answers         %lld of %lld tokens in %.2f s, %lld passes, %d for each block of an answer\n",
           (long long)l->answers, (long long)l->tokens, seconds, (long long)l->passes, r->n_masks);
    um_buf_free(&changes);
}

static void print_json(const um_session *s, const um_config *c, const um_likelihood_run *r, const um_likelihood *l,
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
    um_likelihood sum = {0};
    um_progress *bar = r->quiet ? NULL : um_progress_new("answers", (int64_t)r->data->n, 0, UM_PROGRESS_INTERVAL);
    const double start = um_now();
    um_status st = add_all(s, r, bar, &sum, err);
    um_progress_free(bar);
    if (!st) st = um_result_file_close(r->out, err);
    if (st) return st;
    if (r->json) print_json(s, c, r, &sum, um_now() - start);
    else print_table(s, c, r, &sum, um_now() - start);
    return UM_OK;
}
