/* POST /v1/completions: prompts that are texts or ids, and infill. */
#include <jansson.h>

#include "server/api/openai.h"

#define OBJECT         "text_completion"
#define DENOISE_OBJECT "text_completion.denoise"
#define TOP_MAX        5
#define TOKENS         "16" /* of an answer, as OpenAI's API has it */

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

static um_status take_suffix(um_body *b, const json_t *v, um_err *err) {
    if (!json_is_string(v)) return um_fail(err, UM_EINVAL, "\"suffix\": expected a string, found %s", um_json_kind(v));
    b->suffix = (um_str){json_string_value(v), json_string_length(v)};
    return UM_OK;
}

static um_status take_echo(um_body *b, const json_t *v, um_err *err) {
    return um_json_take_bool(v, "\"echo\"", &b->echo, err);
}

static um_status take_logprobs(um_body *b, const json_t *v, um_err *err) {
    char number[UM_NUMBER_MAX];
    int64_t n = 0;
    um_status st = um_json_take_int(v, "\"logprobs\"", 0, TOP_MAX, &n, err);
    snprintf(number, sizeof number, "%lld", (long long)n);
    return st ? st : um_body_set(b, "logprobs", number, err);
}

static const um_field rows[] = {
    {.name = "prompt", .take = um_body_take_prompt},
    {.name = "suffix", .take = take_suffix},
    {.name = "echo", .take = take_echo},
    {.name = "logprobs", .take = take_logprobs},
};
static const um_field_set completion_rows = {rows, UM_LEN(rows)};
static const um_field_set *const sets[] = {&completion_rows, &um_openai_fields, &um_common_fields, NULL};

/* Entries without a number for the prompt would pass for an answer until somebody adds them up, as lm-eval does. */
static um_status check(um_body *b, um_err *err) {
    if (b->echo && b->top_logprobs >= 0)
        return um_fail_param(err, UM_EINVAL, "logprobs",
                             "with echo they would be the prompt's too, and its tokens have none: they are given, and "
                             "read in both directions. Leave out echo for those of the answer; what needs the "
                             "likelihood of a given text, as tasks of lm-eval with loglikelihood do, can't be run");
    if (b->checked.sampling.max_tokens) return UM_OK;
    return um_body_set(b, "max_tokens", TOKENS, err);
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* The prompt that an answer repeats in front of it. */
static void put_echo(um_turn *t, const um_choice *c, um_buf *out) {
    const um_body *b = um_turn_body(t);
    const um_prompt *p = &b->prompt[c->prompt];
    char *text = NULL;
    size_t n = 0;
    if (!b->echo) return;
    if (p->kind == UM_PROMPT_TEXT) {
        um_buf_append(out, p->text.p, p->text.n);
        return;
    }
    um_model_decode(um_server_model(um_turn_server(t)), p->ids, p->n_ids, b->keep_special, &text, &n, NULL);
    um_buf_append(out, text, n);
    um_free(text);
}

static void put_end(const um_msg_finish *m, um_jw *w) {
    um_jw_put_cstr(w, "finish_reason", um_finish_reason(m));
    um_jw_key(w, "stop_reason");
    um_put_stop_reason(w, m);
    um_jw_put_null(w, "prompt_logprobs");
    um_jw_put_int(w, "seed", m->seed);
}

static void put_choice(um_turn *t, um_choice *c, um_jw *w) {
    um_buf all = {0};
    put_echo(t, c, &all);
    um_buf_append(&all, c->result.text.p, c->result.text.n);
    um_jw_begin_object(w);
    um_jw_put_int(w, "index", c->number);
    um_jw_put_str(w, "text", (um_str){all.data, all.len});
    um_openai_logprobs(t, c, um_put_completion_logprobs, w);
    put_end(&c->result, w);
    um_put_extras(t, c, w);
    um_jw_end_object(w);
    um_buf_free(&all);
}

static void whole(um_turn *t, um_jw *w) { um_openai_whole(t, w, OBJECT, put_choice); }

/* ---- Streaming --------------------------------------------------------------------------------------------------- */

static um_jw *begin_chunk(um_turn *t, um_choice *c, um_str text) {
    um_jw *w = um_openai_chunk(t, c, OBJECT);
    um_jw_put_str(w, "text", text);
    return w;
}

static void go_on(um_turn *t, const um_choice *c, const um_tokens *v, um_jw *w) {
    um_openai_chunk_logprobs(t, c, v, um_put_completion_logprobs, w);
    um_openai_goes_on(w);
    um_openai_send(t, w);
}

static void begin(um_turn *t, um_choice *c) {
    um_buf echo = {0};
    if (um_openai_is_denoise(t)) return;
    put_echo(t, c, &echo);
    if (echo.len) go_on(t, c, &(um_tokens){0}, begin_chunk(t, c, (um_str){echo.data, echo.len}));
    um_buf_free(&echo);
}

static void text(um_turn *t, um_choice *c, const um_msg_text *m) {
    const um_body *b = um_turn_body(t);
    bool names_tokens = b->return_token_ids || b->top_logprobs >= 0;
    if (!m->text.n && !(names_tokens && m->n_ids)) return;
    um_tokens all = um_choice_tokens(c), part = um_tokens_part(&all, all.n - m->n_ids, all.n);
    um_jw *w = begin_chunk(t, c, m->text);
    if (b->return_token_ids) {
        um_jw_put_ints(w, "token_ids", part.id, part.n);
    }
    go_on(t, c, &part, w);
}

static void snapshot(um_turn *t, um_choice *c, const um_msg_snapshot *s) {
    if (um_openai_is_denoise(t)) {
        um_openai_snapshot(t, c, s, DENOISE_OBJECT);
        return;
    }
    um_jw *w = begin_chunk(t, c, UM_STR(""));
    um_openai_provisional(t, c, s, w);
    go_on(t, c, &(um_tokens){0}, w);
}

/* The last text has named the tokens that were left. */
static void finish(um_turn *t, um_choice *c) {
    if (um_openai_is_denoise(t)) {
        um_openai_final(t, c, DENOISE_OBJECT, um_finish_reason(&c->result), um_put_completion_logprobs);
        return;
    }
    um_jw *w = begin_chunk(t, c, UM_STR(""));
    um_openai_chunk_logprobs(t, c, &(um_tokens){0}, um_put_completion_logprobs, w);
    put_end(&c->result, w);
    um_put_stream_extras(t, c, w);
    um_openai_send(t, w);
}

static void end(um_turn *t) {
    if (!um_openai_is_denoise(t)) um_openai_usage_chunk(t, OBJECT);
}

static const um_shape shape = {.name = "completions",
                               .id_prefix = "cmpl-",
                               .whole = whole,
                               .begin = begin,
                               .text = text,
                               .snapshot = snapshot,
                               .finish = finish,
                               .end = end};

/* ---- Endpoint ---------------------------------------------------------------------------------------------------- */

const um_api um_api_completions = {"/v1/completions", sets, "prompt", UM_STREAM_BLOCK_APPEND, check, &shape};

static void handle(um_server *s, um_exchange *x, const char *id) {
    (void)id;
    um_api_serve(s, x, &um_api_completions);
}

static const um_endpoint endpoints[] = {
    {"POST", "/v1/completions", handle, UM_ENDPOINT_WAITS, "OpenAI", "a text or ids are gone on with, or a gap filled"},
};
const um_endpoint_set um_completions_endpoints = {endpoints, UM_LEN(endpoints)};
