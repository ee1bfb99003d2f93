/* POST /v1/completions: continues a text or token ids, or fills a gap in a text. */
#include <jansson.h>

#include "server/api/common.h"
#include "server/api/openai.h"

#define OBJECT             "text_completion"
#define DENOISE_OBJECT     "text_completion.denoise"
#define DEFAULT_MAX_TOKENS "16" /* as in OpenAI's API */

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

static um_status take_suffix(um_body *b, const json_t *v, um_err *err) {
    if (!json_is_string(v)) return um_fail(err, UM_EINVAL, "\"suffix\": expected a string, found %s", um_json_kind(v));
    b->suffix = (um_str){json_string_value(v), json_string_length(v)};
    return UM_OK;
}

static um_status take_echo(um_body *b, const json_t *v, um_err *err) {
    return um_json_take_bool(v, "\"echo\"", &b->echo, err);
}

static const um_field rows[] = {
    {.name = "prompt", .take = um_body_take_prompt, .types = "string|array"},
    {.name = "suffix", .take = take_suffix, .types = "string"},
    {.name = "echo", .take = take_echo, .types = "boolean"},
};
static const um_field_set completion_rows = {rows, UM_LEN(rows)};
static const um_field_set *const sets[] = {&completion_rows, &um_openai_fields, &um_common_fields, NULL};

/* With echo, log-probabilities of the prompt are expected, too. Null entries for the prompt would not help: clients
 * such as lm-eval would add them up. */
static um_status check(um_body *b, um_err *err) {
    if (b->echo && b->top_logprobs >= 0)
        return um_fail_param(err, UM_EINVAL, "logprobs",
                             "not possible with echo: the tokens of the prompt have no log-probabilities, because "
                             "the model sees the whole prompt at once. Leave out echo to get those of the answer. "
                             "Tasks that score a given text, such as lm-eval's loglikelihood tasks, can't be run");
    if (b->checked.sampling.max_tokens) return UM_OK;
    return um_body_set(b, "max_tokens", DEFAULT_MAX_TOKENS, err);
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* Appends the prompt if the request asks for it in front of the answer. */
static void append_echo(um_generation *g, const um_choice *c, um_buf *out) {
    const um_body *b = um_generation_body(g);
    const um_prompt *p = &b->prompt[c->prompt];
    char *text = NULL;
    size_t n = 0;
    if (!b->echo) return;
    if (p->kind == UM_PROMPT_TEXT) {
        um_buf_append(out, p->text.p, p->text.n);
        return;
    }
    um_model_decode(um_generation_service(g)->setup.model, p->ids, p->n_ids, b->keep_special, &text, &n, NULL);
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

static void put_choice(um_generation *g, um_choice *c, um_jw *w) {
    um_buf all = {0};
    append_echo(g, c, &all);
    um_buf_append(&all, c->result.text.p, c->result.text.n);
    um_jw_begin_object(w);
    um_jw_put_int(w, "index", c->number);
    um_jw_put_str(w, "text", (um_str){all.data, all.len});
    um_openai_put_logprobs(g, c, um_put_completion_logprobs, w);
    put_end(&c->result, w);
    um_put_extras(g, c, w);
    um_jw_end_object(w);
    um_buf_free(&all);
}

static void whole(um_generation *g, um_jw *w) { um_openai_put_response(g, w, OBJECT, put_choice); }

/* ---- Streaming --------------------------------------------------------------------------------------------------- */

static um_jw *begin_chunk(um_generation *g, um_choice *c, um_str text) {
    um_jw *w = um_openai_begin_chunk(g, c, OBJECT);
    um_jw_put_str(w, "text", text);
    return w;
}

/* Ends and sends a chunk that is not the last of its choice. */
static void send_chunk(um_generation *g, const um_choice *c, const um_tokens *v, um_jw *w) {
    um_openai_put_chunk_logprobs(g, c, v, um_put_completion_logprobs, w);
    um_openai_put_unfinished(w);
    um_openai_send_chunk(g, w);
}

static void begin(um_generation *g, um_choice *c) {
    um_buf echo = {0};
    if (um_openai_is_denoise(g)) return;
    append_echo(g, c, &echo);
    if (echo.len) send_chunk(g, c, &(um_tokens){0}, begin_chunk(g, c, (um_str){echo.data, echo.len}));
    um_buf_free(&echo);
}

static void text(um_generation *g, um_choice *c, const um_msg_text *m) {
    const um_body *b = um_generation_body(g);
    bool has_tokens = b->return_token_ids || b->top_logprobs >= 0;
    if (!m->text.n && !(has_tokens && m->n_ids)) return;
    c->n_sent = c->n_tokens;
    um_tokens all = um_choice_tokens(c), part = um_tokens_part(&all, all.n - m->n_ids, all.n);
    um_jw *w = begin_chunk(g, c, m->text);
    if (b->return_token_ids) {
        um_jw_put_ints(w, "token_ids", part.id, part.n);
    }
    send_chunk(g, c, &part, w);
}

static void snapshot(um_generation *g, um_choice *c, const um_msg_snapshot *s) {
    if (um_openai_is_denoise(g)) {
        um_openai_send_snapshot(g, c, s, DENOISE_OBJECT);
        return;
    }
    um_jw *w = begin_chunk(g, c, UM_STR(""));
    um_openai_put_provisional(g, c, s, w);
    send_chunk(g, c, &(um_tokens){0}, w);
}

/* The chunk of the last text had the last tokens, so this one has none. */
static void finish(um_generation *g, um_choice *c) {
    if (um_openai_is_denoise(g)) {
        um_openai_send_final(g, c, DENOISE_OBJECT, um_finish_reason(&c->result), um_put_completion_logprobs);
        return;
    }
    c->n_sent = c->n_tokens;
    um_jw *w = begin_chunk(g, c, UM_STR(""));
    um_openai_put_chunk_logprobs(g, c, &(um_tokens){0}, um_put_completion_logprobs, w);
    put_end(&c->result, w);
    um_put_stream_extras(g, c, w);
    um_openai_send_chunk(g, w);
}

static void end(um_generation *g) {
    if (!um_openai_is_denoise(g)) um_openai_send_usage(g, OBJECT);
}

static const um_response_writer writer = {.name = "completions",
                                          .id_prefix = "cmpl-",
                                          .whole = whole,
                                          .begin = begin,
                                          .text = text,
                                          .snapshot = snapshot,
                                          .finish = finish,
                                          .end = end};

/* ---- Endpoint ---------------------------------------------------------------------------------------------------- */

const um_api um_api_completions = {"/v1/completions", sets, "prompt", UM_STREAM_BLOCK_APPEND, check, &writer, NULL};

static void handle(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    um_api_serve(s, x, &um_api_completions);
}

static const um_endpoint endpoints[] = {
    {"POST", "/v1/completions", handle, UM_ENDPOINT_WAITS, "OpenAI", "continue a text or token ids, or fill a gap"},
    {"POST", "/completions", handle, UM_ENDPOINT_WAITS, "llama.cpp", "the same"},
};
const um_endpoint_set um_completions_endpoints = {endpoints, UM_LEN(endpoints)};
