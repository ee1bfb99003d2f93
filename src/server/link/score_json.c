/* Converts scoring requests from JSON, and results to JSON. */
#include "server/link/score_json.h"

#include <jansson.h>

#include "engine/options.h"

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static um_status read_ids(um_score_job *job, const json_t *v, const char *what, const int32_t **ids, size_t *n,
                          um_err *err) {
    *n = json_array_size(v);
    int32_t *out = (int32_t *)um_arena_alloc(&job->arena, um_mul(*n + 1, sizeof *out));
    *ids = out;
    return um_json_take_ids(v, what, out, err);
}

static um_status read_prompt(um_score_job *job, const json_t *v, bool in_chat, um_err *err) {
    um_score_request *r = &job->request;
    if (json_is_array(v)) return read_ids(job, v, "\"prompt\"", &r->ids, &r->n_ids, err);
    if (!json_is_string(v))
        return um_fail(err, UM_EINVAL, "\"prompt\": expected a text or a list of token ids, found %s", um_json_kind(v));
    r->text = json_string_value(v);
    r->text_len = json_string_length(v);
    if (!in_chat) return UM_OK;
    if (strlen(r->text) != r->text_len)
        return um_fail(err, UM_EINVAL, "\"prompt\": U+0000 is not allowed in a message of a chat template");
    job->message = (um_message){"user", r->text};
    r->text = NULL;
    r->messages = &job->message;
    r->n_messages = 1;
    return UM_OK;
}

static um_status read_messages(um_score_job *job, const json_t *v, um_err *err) {
    if (!json_is_array(v)) return um_fail(err, UM_EINVAL, "\"messages\": expected a list, found %s", um_json_kind(v));
    um_buf text = {0};
    um_json_put_exact(v, &text);
    char *copy = (char *)um_arena_alloc(&job->arena, text.len + 1);
    memcpy(copy, text.data, text.len);
    um_buf_free(&text);
    um_chat_init(&job->chat);
    job->chat.messages_json = copy;
    job->chat.special_in_content = job->request.special_in_content;
    job->request.chat = &job->chat;
    return UM_OK;
}

static um_status read_one_answer(um_score_job *job, const json_t *v, um_score_answer *a, um_err *err) {
    if (json_is_array(v)) return read_ids(job, v, "\"answer\"", &a->ids, &a->n_ids, err);
    if (!json_is_string(v))
        return um_fail(err, UM_EINVAL, "\"answer\": expected a text or a list of token ids, found %s", um_json_kind(v));
    a->text = (um_str){json_string_value(v), json_string_length(v)};
    return UM_OK;
}

/* A list of numbers is one answer, and so is an empty list. */
static um_status read_answers(um_score_job *job, const json_t *v, um_err *err) {
    const bool is_list = json_array_size(v) > 0 && !json_is_integer(json_array_get(v, 0));
    um_status st = UM_OK;
    job->one_answer = !is_list;
    job->n_answers = is_list ? json_array_size(v) : 1;
    if (job->n_answers > UM_SCORE_ANSWERS_MAX)
        return um_fail(err, UM_ELIMIT, "\"answer\": %zu answers; at most %d are allowed", job->n_answers,
                       UM_SCORE_ANSWERS_MAX);
    job->answer = (um_score_answer *)um_arena_alloc(&job->arena, job->n_answers * sizeof *job->answer);
    for (size_t i = 0; i < job->n_answers && !st; i++)
        st = read_one_answer(job, is_list ? json_array_get(v, i) : v, &job->answer[i], err);
    return st;
}

static um_status read_parameter(um_score_job *job, const char *name, const json_t *v, um_err *err) {
    char number[UM_NUMBER_MAX];
    const char *text;
    const um_option_set set = um_score_option_set(&job->request);
    const um_option *row = um_options_find(set.rows, set.n, name);
    if (!row) return um_fail(err, UM_EINVAL, "unknown field \"%.80s\"", name);
    const um_status st = um_option_json_text(row, name, v, number, &text, err);
    return st ? st : um_option_set_as(row, set.base, name, name, text, err);
}

static um_status read_member(um_score_job *job, const char *name, const json_t *v, bool in_chat, um_err *err) {
    if (um_streq(name, "prompt")) return read_prompt(job, v, in_chat, err);
    if (um_streq(name, "messages")) return read_messages(job, v, err);
    if (um_streq(name, "answer")) return read_answers(job, v, err);
    if (um_streq(name, "adapter")) return um_json_take_text(v, "\"adapter\"", &job->request.adapter, err);
    return read_parameter(job, name, v, err);
}

um_status um_score_job_read(um_score_job *job, const json_t *root, const um_score_request *defaults, bool in_chat,
                            const char *ignored, um_err *err) {
    const char *name;
    json_t *v;
    um_str word;
    job->request = *defaults;
    json_object_foreach((json_t *)(uintptr_t)root, name, v) {
        if ((ignored && um_word_index(ignored, '|', name, &word) >= 0) || json_is_null(v)) continue;
        const um_status st = um_fail_about(err, read_member(job, name, v, in_chat, err), name);
        if (st) return st;
    }
    const um_score_request *r = &job->request;
    const bool has_prompt = r->text || r->ids || r->messages;
    if (has_prompt + (r->chat != NULL) != 1)
        return um_fail_param(err, UM_EINVAL, "prompt", "expected either \"prompt\" or \"messages\", found %s",
                             r->chat ? "both" : "none");
    if (!job->n_answers) return um_fail_param(err, UM_EINVAL, "answer", "the field is missing");
    return UM_OK;
}

void um_score_job_free(um_score_job *job) { um_arena_free(&job->arena); }

um_score_request um_score_job_get(const um_score_job *job, size_t i) {
    const um_score_answer *a = &job->answer[i];
    um_score_request r = job->request;
    r.answer = a->text.p;
    r.answer_len = a->text.n;
    r.answer_ids = a->ids;
    r.n_answer_ids = a->n_ids;
    return r;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

void um_score_put(um_jw *w, const um_score_result *r) {
    um_jw_begin_object(w);
    um_jw_put_double(w, "logprob", r->logprob);
    um_jw_put_double(w, "standard_error", r->standard_error);
    um_jw_put_int(w, "tokens", (int64_t)r->n_tokens);
    if (r->is_greedy < 0) um_jw_put_null(w, "is_greedy");
    else um_jw_put_bool(w, "is_greedy", r->is_greedy);
    um_jw_put_int(w, "passes", r->passes);
    um_jw_put_int(w, "prompt_tokens", r->prompt_tokens);
    um_jw_put_ints(w, "token_ids", r->token_ids, r->n_tokens);
    um_jw_key(w, "token_logprobs");
    um_jw_begin_array(w);
    for (size_t i = 0; i < r->n_tokens; i++) um_jw_double(w, r->token_logprob[i]);
    um_jw_end_array(w);
    um_jw_put_cstr(w, "finish_reason", um_finish_name(r->finish));
    um_jw_end_object(w);
}
