/* POST /v1/chat/completions: answers a conversation. */
#include <jansson.h>

#include "server/api/common.h"
#include "server/api/conversation.h"
#include "server/api/openai.h"

#define OBJECT         "chat.completion"
#define CHUNK_OBJECT   "chat.completion.chunk"
#define DENOISE_OBJECT "diffulex.chat.completion.denoise" /* clients of Diffulex look for this */

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

/* max_completion_tokens is the newer name of max_tokens. If the request gives both, in either order, it wins. */
static um_status take_max_tokens(um_body *b, const json_t *v, um_err *err) {
    static const char newer[] = "max_completion_tokens";
    um_status st = um_body_set_json(b, "max_tokens", "max_tokens", v, err);
    if (st || !um_body_has(b, newer)) return st;
    return um_body_set_json(b, "max_tokens", newer, json_object_get(b->root, newer), err);
}

/* `logprobs` is a boolean here; top_logprobs is the number. They may come in either order. */
static um_status take_logprobs(um_body *b, const json_t *v, um_err *err) {
    bool wanted = false;
    um_status st = um_json_take_bool(v, "\"logprobs\"", &wanted, err);
    if (st || !wanted || um_body_is_set(b, "logprobs")) return st;
    return um_body_set(b, "logprobs", "0", err);
}

static um_status take_top(um_body *b, const json_t *v, um_err *err) {
    if (!json_is_true(json_object_get(b->root, "logprobs")))
        return um_fail(err, UM_EINVAL, "\"top_logprobs\" needs \"logprobs\": true");
    return um_body_set_json(b, "logprobs", "top_logprobs", v, err);
}

#define TEXT_ONLY "the models read and write text only"

static const um_field rows[] = {
    {.name = "max_tokens", .take = take_max_tokens, .types = "integer"},
    {.name = "max_completion_tokens", .option = "max_tokens"},
    {.name = "logprobs", .take = take_logprobs, .types = "boolean"},
    {.name = "top_logprobs", .take = take_top, .types = "integer"},
    {.name = "echo", .neutral = "false", .why = "a response does not repeat the messages"},
    {.name = "modalities", .neutral = "[\"text\"]", .why = TEXT_ONLY},
    {.name = "audio", .neutral = "null", .why = TEXT_ONLY},
    {.name = "prediction", .neutral = "null", .why = "every pass predicts a whole block anyway"},
    {.name = "web_search_options", .neutral = "null", .why = "the server does not search the web"},
    {.name = "verbosity", .neutral = "\"medium\"|null", .why = "the prompt and max_tokens decide about the length"},
    {.name = "documents", .neutral = "[]|null", .why = "chat_template_kwargs has variables of the chat template"},
    {.name = "separate_reasoning", .neutral = "true|null", .why = "--reasoning-parser separates thoughts"},
    {.name = "stream_reasoning", .neutral = "true|null", .why = "thoughts are streamed as they are written"},
    {.name = "thinking_token_budget", .neutral = "null", .why = "the length of thoughts can't be limited apart"},
};
static const um_field_set chat_rows = {rows, UM_LEN(rows)};

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

/* The message of a choice: the parts of its text. In a stream, it holds only the parts of the next chunk. */
typedef struct message {
    um_conversation_answer answer;
    um_buf content, reasoning;
    um_buf calls; /* elements of a JSON array, separated by commas */
    bool streams;
    um_buf name, arguments; /* of the open call: the parts of the next chunk */
    bool opens;             /* the next chunk begins the open call */
} message;

/* Appends a call, or a piece of the call `index`. name p NULL: the call has begun in an earlier chunk. */
static void append_call(message *m, int32_t index, um_str name, um_str arguments) {
    um_jw w;
    if (m->calls.len) um_buf_putc(&m->calls, ',');
    um_jw_init(&w, &m->calls);
    um_jw_begin_object(&w);
    if (m->streams) um_jw_put_int(&w, "index", index);
    if (name.p) {
        char id[64];
        um_make_id("call_", id);
        um_jw_put_cstr(&w, "id", id);
        um_jw_put_cstr(&w, "type", "function");
    }
    um_jw_key(&w, "function");
    um_jw_begin_object(&w);
    if (name.p) um_jw_put_str(&w, "name", name);
    um_jw_put_str(&w, "arguments", arguments);
    um_jw_end_object(&w);
    um_jw_end_object(&w);
}

static um_str text_of(const um_buf *b) { return (um_str){b->data ? b->data : "", b->len}; }

/* Appends what the open call has for the next chunk: one element, because clients join the elements of a call over
 * several chunks, but not within one. */
static void append_piece(message *m) {
    if (!m->opens && !m->arguments.len) return;
    append_call(m, m->answer.n_calls - 1, m->opens ? text_of(&m->name) : (um_str){0}, text_of(&m->arguments));
    m->opens = false;
    um_buf_clear(&m->arguments);
}

static void open_call(message *m, um_str name) {
    m->opens = true;
    um_buf_append(&m->name, name.p, name.n);
}

/* Receives the parts of the parser. */
static void append_part(void *arg, const um_answer_part *p) {
    message *m = arg;
    switch (p->kind) {
    case UM_ANSWER_CONTENT: um_buf_append(&m->content, p->text.p, p->text.n); break;
    case UM_ANSWER_REASONING: um_buf_append(&m->reasoning, p->text.p, p->text.n); break;
    case UM_ANSWER_CALL:
        if (p->is_open) open_call(m, p->name);
        else append_call(m, m->answer.n_calls, p->name, p->text);
        break;
    case UM_ANSWER_ARGUMENTS: um_buf_append(&m->arguments, p->text.p, p->text.n); break;
    }
}

/* Returns the message of a choice; the first call creates it. */
static message *message_of(um_generation *g, um_choice *c) {
    message *m = c->own;
    if (m) return m;
    c->own = m = UM_NEW(message);
    m->streams = um_generation_sse(g) != NULL;
    um_conversation_begin(&m->answer, g, c, append_part, m);
    return m;
}

static void forget(um_choice *c) {
    message *m = c->own;
    if (!m) return;
    um_conversation_free(&m->answer);
    um_buf_free(&m->content);
    um_buf_free(&m->reasoning);
    um_buf_free(&m->calls);
    um_buf_free(&m->name);
    um_buf_free(&m->arguments);
}

static const char *finish_reason(const message *m, const um_msg_finish *r) {
    const char *reason = um_finish_reason(r);
    return m->answer.n_calls && um_streq(reason, "stop") ? "tool_calls" : reason;
}

/* ---- Whole responses --------------------------------------------------------------------------------------------- */

static void put_buf(um_jw *w, const char *key, const um_buf *b) { um_jw_put_str(w, key, (um_str){b->data, b->len}); }

/* An empty content is null in a message with tool calls, else "". */
static void put_message(message *m, um_jw *w) {
    um_jw_key(w, "message");
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "role", "assistant");
    if (m->content.len || !m->answer.n_calls) put_buf(w, "content", &m->content);
    else um_jw_put_null(w, "content");
    um_jw_put_null(w, "refusal");
    if (m->reasoning.len) put_buf(w, "reasoning_content", &m->reasoning);
    if (m->answer.n_calls) {
        um_jw_key(w, "tool_calls");
        um_jw_begin_array(w);
        um_jw_raw(w, m->calls.data, m->calls.len);
        um_jw_end_array(w);
    }
    um_jw_end_object(w);
}

static void put_end(const message *m, um_jw *w) {
    const um_msg_finish *r = &m->answer.choice->result;
    um_jw_put_cstr(w, "finish_reason", finish_reason(m, r));
    um_jw_key(w, "stop_reason");
    um_put_stop_reason(w, r);
    um_jw_put_int(w, "seed", r->seed);
}

static um_status check_answer(um_generation *g, um_choice *c, um_err *err) {
    return um_openai_is_denoise(g) ? UM_OK : um_conversation_end_check(&message_of(g, c)->answer, err);
}

static void put_choice(um_generation *g, um_choice *c, um_jw *w) {
    message *m = message_of(g, c);
    um_conversation_end(&m->answer);
    um_jw_begin_object(w);
    um_jw_put_int(w, "index", c->number);
    put_message(m, w);
    um_openai_put_logprobs(g, c, um_put_chat_logprobs, w);
    put_end(m, w);
    um_put_extras(g, c, w);
    um_jw_end_object(w);
}

static void whole(um_generation *g, um_jw *w) { um_openai_put_response(g, w, OBJECT, put_choice); }

/* ---- Streaming --------------------------------------------------------------------------------------------------- */

static void begin(um_generation *g, um_choice *c) {
    if (um_openai_is_denoise(g)) return;
    um_jw *w = um_openai_begin_chunk(g, c, CHUNK_OBJECT);
    um_jw_key(w, "delta");
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "role", "assistant");
    um_jw_put_cstr(w, "content", "");
    um_jw_end_object(w);
    um_jw_put_null(w, "logprobs");
    um_openai_put_unfinished(w);
    um_openai_send_chunk(g, w);
}

/* Writes the parts of this chunk and clears them. */
static void put_delta(message *m, um_jw *w) {
    um_jw_key(w, "delta");
    um_jw_begin_object(w);
    if (m->reasoning.len) put_buf(w, "reasoning_content", &m->reasoning);
    if (m->content.len) put_buf(w, "content", &m->content);
    if (m->calls.len) {
        um_jw_key(w, "tool_calls");
        um_jw_begin_array(w);
        um_jw_raw(w, m->calls.data, m->calls.len);
        um_jw_end_array(w);
    }
    um_jw_end_object(w);
    um_buf_clear(&m->reasoning);
    um_buf_clear(&m->content);
    um_buf_clear(&m->calls);
}

static void put_tokens(um_generation *g, message *m, um_jw *w) {
    um_tokens part = um_conversation_take_tokens(&m->answer, &m->answer.choice->n_sent);
    um_openai_put_chunk_logprobs(g, m->answer.choice, &part, um_put_chat_logprobs, w);
    if (!um_generation_body(g)->return_token_ids) return;
    um_jw_put_ints(w, "token_ids", part.id, part.n);
}

/* Sends a chunk if there are parts for it. */
static void send_delta(um_generation *g, um_choice *c) {
    message *m = message_of(g, c);
    append_piece(m);
    if (!m->reasoning.len && !m->content.len && !m->calls.len) return;
    um_jw *w = um_openai_begin_chunk(g, c, CHUNK_OBJECT);
    put_delta(m, w);
    put_tokens(g, m, w);
    um_openai_put_unfinished(w);
    um_openai_send_chunk(g, w);
}

static void text(um_generation *g, um_choice *c, const um_msg_text *e) {
    um_conversation_push(&message_of(g, c)->answer, e->text);
    send_delta(g, c);
}

static void snapshot(um_generation *g, um_choice *c, const um_msg_snapshot *s) {
    if (um_openai_is_denoise(g)) {
        um_openai_send_snapshot(g, c, s, DENOISE_OBJECT);
        return;
    }
    um_jw *w = um_openai_begin_chunk(g, c, CHUNK_OBJECT);
    um_jw_key(w, "delta");
    um_jw_begin_object(w);
    um_jw_end_object(w);
    um_openai_put_unfinished(w);
    um_openai_put_provisional(g, c, s, w);
    um_openai_send_chunk(g, w);
}

static void finish(um_generation *g, um_choice *c) {
    message *m = message_of(g, c);
    if (um_openai_is_denoise(g)) {
        um_openai_send_final(g, c, DENOISE_OBJECT, um_finish_reason(&c->result), um_put_chat_logprobs);
        return;
    }
    um_conversation_end(&m->answer);
    send_delta(g, c);
    um_jw *w = um_openai_begin_chunk(g, c, CHUNK_OBJECT);
    put_delta(m, w);
    put_tokens(g, m, w);
    put_end(m, w);
    um_put_stream_extras(g, c, w);
    um_openai_send_chunk(g, w);
}

static void end(um_generation *g) {
    if (!um_openai_is_denoise(g)) um_openai_send_usage(g, CHUNK_OBJECT);
}

static const um_response_writer writer = {.name = "chat",
                                          .id_prefix = "chatcmpl-",
                                          .whole = whole,
                                          .begin = begin,
                                          .text = text,
                                          .check = check_answer,
                                          .snapshot = snapshot,
                                          .finish = finish,
                                          .end = end,
                                          .forget = forget};

/* ---- Endpoint ---------------------------------------------------------------------------------------------------- */

static const um_field_set *const sets[] = {&chat_rows,        &um_openai_chat_fields, &um_chat_fields,
                                           &um_openai_fields, &um_common_fields,      NULL};

const um_api um_api_chat = {"/v1/chat/completions", sets,    "messages", UM_STREAM_BLOCK_APPEND,
                            um_conversation_check,  &writer, NULL};

static void handle(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    um_api_serve(s, x, &um_api_chat);
}

static const um_endpoint endpoints[] = {
    {"POST", "/v1/chat/completions", handle, UM_ENDPOINT_WAITS, "OpenAI", "answer a conversation"},
    {"POST", "/chat/completions", handle, UM_ENDPOINT_WAITS, "llama.cpp", "the same"},
};
const um_endpoint_set um_chat_endpoints = {endpoints, UM_LEN(endpoints)};
