/* POST /v1/chat/completions. */
#include <jansson.h>

#include "server/api/answer.h"
#include "server/api/openai.h"

#define OBJECT         "chat.completion"
#define CHUNK_OBJECT   "chat.completion.chunk"
#define DENOISE_OBJECT "diffulex.chat.completion.denoise" /* its clients look for it */
#define TOP_MAX        20

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

/* max_completion_tokens is the newer name and wins, whichever comes first. */
static um_status take_max_tokens(um_body *b, const json_t *v, um_err *err) {
    static const char newer[] = "max_completion_tokens";
    um_status st = um_body_set_json(b, "max_tokens", "max_tokens", v, err);
    if (st || !um_body_has(b, newer)) return st;
    return um_body_set_json(b, "max_tokens", newer, json_object_get(b->root, newer), err);
}

/* A switch; top_logprobs is the number beside it, and either may come first. */
static um_status take_logprobs(um_body *b, const json_t *v, um_err *err) {
    bool wanted = false;
    um_status st = um_json_take_bool(v, "\"logprobs\"", &wanted, err);
    if (st || !wanted || um_body_is_set(b, "logprobs")) return st;
    return um_body_set(b, "logprobs", "0", err);
}

static um_status take_top(um_body *b, const json_t *v, um_err *err) {
    char number[UM_NUMBER_MAX];
    int64_t n = 0;
    um_status st = um_json_take_int(v, "\"top_logprobs\"", 0, TOP_MAX, &n, err);
    if (st) return st;
    if (!json_is_true(json_object_get(b->root, "logprobs")))
        return um_fail(err, UM_EINVAL, "\"top_logprobs\" goes with \"logprobs\": true");
    snprintf(number, sizeof number, "%lld", (long long)n);
    return um_body_set(b, "logprobs", number, err);
}

#define TEXT_ONLY "these models read and write text"

static const um_field rows[] = {
    {.name = "max_tokens", .take = take_max_tokens},
    {.name = "max_completion_tokens", .option = "max_tokens"},
    {.name = "logprobs", .take = take_logprobs},
    {.name = "top_logprobs", .take = take_top},
    {.name = "echo", .neutral = "false", .why = "the messages are not said again"},
    {.name = "modalities", .neutral = "[\"text\"]", .why = TEXT_ONLY},
    {.name = "audio", .neutral = "null", .why = TEXT_ONLY},
    {.name = "prediction", .neutral = "null", .why = "every block is guessed at once anyway"},
    {.name = "web_search_options", .neutral = "null", .why = "nothing is looked up"},
};
static const um_field_set chat_rows = {rows, UM_LEN(rows)};

/* ---- What the fields mean together ------------------------------------------------------------------------------- */

/* The formats that the server was started with; their names were checked then. */
static const um_tool_format *tool_format(um_server *s) {
    const um_tool_format *f = NULL;
    um_tool_format_find(&f, um_server_get_config(s)->tool_call_parser, NULL);
    return f;
}

static const um_reasoning_format *reasoning_format(um_server *s) {
    const um_reasoning_format *f = NULL;
    um_reasoning_format_find(&f, um_server_get_config(s)->reasoning_parser, NULL);
    return f;
}

/* A name goes into the opening as JSON writes it, which is as it stands. */
static bool is_plain_name(const char *name) {
    return *name && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == strlen(name);
}

/* A call that must come is begun by us; the model goes on with it. */
static um_status force_call(um_body *b, um_err *err) {
    const um_tool_format *f = tool_format(b->server);
    bool named = b->tool_choice == UM_TOOLS_NAMED;
    if (!named && b->tool_choice != UM_TOOLS_REQUIRED) return UM_OK;
    if (!f)
        return um_fail_param(err, UM_EINVAL, "tool_choice",
                             "a call can't be asked for, the server was started without --tool-call-parser");
    if (b->chat.continue_final_message)
        return um_fail_param(err, UM_EINVAL, "tool_choice", "a message that is continued can't become a call");
    if (named && !is_plain_name(b->tool_name))
        return um_fail_param(err, UM_EINVAL, "tool_choice",
                             "expected a name of letters, digits, '_', '-' and '.', found \"%.60s\"", b->tool_name);
    size_t n = strlen(f->opening_named) + strlen(f->opening) + (named ? strlen(b->tool_name) : 0) + 1;
    char *text = um_arena_alloc(&b->arena, n);
    snprintf(text, n, named ? f->opening_named : "%s", named ? b->tool_name : f->opening);
    b->opening = um_str_of(text);
    return UM_OK;
}

static um_status check(um_body *b, um_err *err) {
    b->fills = true;
    if (!b->include_reasoning && !reasoning_format(b->server))
        return um_fail_param(err, UM_EINVAL, "include_reasoning",
                             "reasoning can't be left out, the server was started without --reasoning-parser");
    return force_call(b, err);
}

/* ---- An answer's parts ------------------------------------------------------------------------------------------- */

typedef struct message {
    um_turn *turn;
    um_choice *choice;
    um_answer_reader reader;
    um_buf content, reasoning; /* as a whole, or of the chunk that is gathered */
    um_buf calls;              /* elements of a JSON array */
    uint32_t n_named;          /* tokens that chunks have named */
    int32_t n_calls;
    bool streams;
} message;

static message *message_of(um_turn *t, um_choice *c) {
    const um_body *b = um_turn_body(t);
    message *m = c->own;
    if (m) return m;
    c->own = m = UM_NEW(message);
    m->turn = t;
    m->choice = c;
    m->streams = um_turn_sse(t) != NULL;
    um_answer_init(&m->reader, b->tools_json ? tool_format(um_turn_server(t)) : NULL,
                   b->opening.n ? NULL : reasoning_format(um_turn_server(t)));
    return m;
}

static void forget(um_choice *c) {
    message *m = c->own;
    if (!m) return;
    um_answer_free(&m->reader);
    um_buf_free(&m->content);
    um_buf_free(&m->reasoning);
    um_buf_free(&m->calls);
}

static void put_call(message *m, const um_part *p) {
    char id[64];
    um_jw w;
    um_make_id("call_", id);
    if (m->calls.len) um_buf_putc(&m->calls, ',');
    um_jw_init(&w, &m->calls);
    um_jw_begin_object(&w);
    if (m->streams) um_jw_put_int(&w, "index", m->n_calls);
    um_jw_put_cstr(&w, "id", id);
    um_jw_put_cstr(&w, "type", "function");
    um_jw_key(&w, "function");
    um_jw_begin_object(&w);
    um_jw_put_str(&w, "name", p->name);
    um_jw_put_str(&w, "arguments", p->text);
    um_jw_end_object(&w);
    um_jw_end_object(&w);
    m->n_calls++;
}

static void gather(void *arg, const um_part *p) {
    message *m = arg;
    const um_body *b = um_turn_body(m->turn);
    switch (p->kind) {
    case UM_PART_CONTENT: um_buf_append(&m->content, p->text.p, p->text.n); break;
    case UM_PART_REASONING:
        if (b->include_reasoning) um_buf_append(&m->reasoning, p->text.p, p->text.n);
        break;
    case UM_PART_CALL:
        if (b->parallel_tool_calls || m->n_calls == 0) put_call(m, p);
        break;
    }
}

/* Reads the text of an answer; the first of it may be ours. */
static void read_text(message *m, um_str opening, um_str text) {
    um_answer_push(&m->reader, opening, gather, m);
    um_answer_push(&m->reader, text, gather, m);
}

static const char *finish_reason(const message *m, const um_msg_finish *r) {
    const char *reason = um_finish_reason(r);
    return m->n_calls && um_streq(reason, "stop") ? "tool_calls" : reason;
}

/* ---- Whole ------------------------------------------------------------------------------------------------------- */

static void put_buf(um_jw *w, const char *key, const um_buf *b) { um_jw_put_str(w, key, (um_str){b->data, b->len}); }

/* Beside calls, what was said may be nothing at all. */
static void put_message(message *m, um_jw *w) {
    um_jw_key(w, "message");
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "role", "assistant");
    if (m->content.len || !m->n_calls) put_buf(w, "content", &m->content);
    else um_jw_put_null(w, "content");
    um_jw_put_null(w, "refusal");
    if (m->reasoning.len) put_buf(w, "reasoning_content", &m->reasoning);
    if (m->n_calls) {
        um_jw_key(w, "tool_calls");
        um_jw_begin_array(w);
        um_jw_raw(w, m->calls.data, m->calls.len);
        um_jw_end_array(w);
    }
    um_jw_end_object(w);
}

static void put_end(const message *m, um_jw *w) {
    const um_msg_finish *r = &m->choice->result;
    um_jw_put_cstr(w, "finish_reason", finish_reason(m, r));
    um_jw_key(w, "stop_reason");
    um_put_stop_reason(w, r);
    um_jw_put_int(w, "seed", r->seed);
}

static void put_choice(um_turn *t, um_choice *c, um_jw *w) {
    message *m = message_of(t, c);
    read_text(m, um_turn_body(t)->opening, c->result.text);
    um_answer_end(&m->reader, gather, m);
    um_jw_begin_object(w);
    um_jw_put_int(w, "index", c->number);
    put_message(m, w);
    um_openai_logprobs(t, c, um_put_chat_logprobs, w);
    put_end(m, w);
    um_put_extras(t, c, w);
    um_jw_end_object(w);
}

static void whole(um_turn *t, um_jw *w) { um_openai_whole(t, w, OBJECT, put_choice); }

/* ---- Streaming --------------------------------------------------------------------------------------------------- */

static void begin(um_turn *t, um_choice *c) {
    if (um_openai_is_denoise(t)) return;
    message *m = message_of(t, c);
    um_answer_push(&m->reader, um_turn_body(t)->opening, gather, m);
    um_jw *w = um_openai_chunk(t, c, CHUNK_OBJECT);
    um_jw_key(w, "delta");
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "role", "assistant");
    um_jw_put_cstr(w, "content", "");
    um_jw_end_object(w);
    um_jw_put_null(w, "logprobs");
    um_openai_goes_on(w);
    um_openai_send(t, w);
}

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

/* A token belongs to the chunk that brings the end of its text, which may wait for what follows: a marker that begins
 * there, a call that is not whole. What waits behind the last text of an answer was nothing. */
static um_tokens take_tokens(message *m) {
    um_tokens all = um_choice_tokens(m->choice);
    size_t said = um_choice_text(m->choice).n, waiting = um_answer_waiting(&m->reader);
    uint32_t from = m->n_named;
    said -= UM_MIN(waiting, said); /* the opening may wait too, which is ours */
    if (m->choice->finished) m->n_named = all.n;
    while (m->n_named < all.n && (size_t)all.text_end[m->n_named] <= said) m->n_named++;
    return um_tokens_part(&all, from, m->n_named);
}

static void put_tokens(um_turn *t, message *m, um_jw *w) {
    um_tokens part = take_tokens(m);
    um_openai_chunk_logprobs(t, m->choice, &part, um_put_chat_logprobs, w);
    if (!um_turn_body(t)->return_token_ids) return;
    um_jw_put_ints(w, "token_ids", part.id, part.n);
}

/* What was gathered, if anything was. */
static void send_gathered(um_turn *t, um_choice *c) {
    message *m = message_of(t, c);
    if (!m->reasoning.len && !m->content.len && !m->calls.len) return;
    um_jw *w = um_openai_chunk(t, c, CHUNK_OBJECT);
    put_delta(m, w);
    put_tokens(t, m, w);
    um_openai_goes_on(w);
    um_openai_send(t, w);
}

static void text(um_turn *t, um_choice *c, const um_msg_text *e) {
    message *m = message_of(t, c);
    um_answer_push(&m->reader, e->text, gather, m);
    send_gathered(t, c);
}

static void snapshot(um_turn *t, um_choice *c, const um_msg_snapshot *s) {
    if (um_openai_is_denoise(t)) {
        um_openai_snapshot(t, c, s, DENOISE_OBJECT);
        return;
    }
    um_jw *w = um_openai_chunk(t, c, CHUNK_OBJECT);
    um_jw_key(w, "delta");
    um_jw_begin_object(w);
    um_jw_end_object(w);
    um_openai_goes_on(w);
    um_openai_provisional(t, c, s, w);
    um_openai_send(t, w);
}

static void finish(um_turn *t, um_choice *c) {
    message *m = message_of(t, c);
    if (um_openai_is_denoise(t)) {
        um_openai_final(t, c, DENOISE_OBJECT, um_finish_reason(&c->result), um_put_chat_logprobs);
        return;
    }
    um_answer_end(&m->reader, gather, m);
    send_gathered(t, c);
    um_jw *w = um_openai_chunk(t, c, CHUNK_OBJECT);
    put_delta(m, w);
    put_tokens(t, m, w);
    put_end(m, w);
    um_put_stream_extras(t, c, w);
    um_openai_send(t, w);
}

static void end(um_turn *t) {
    if (!um_openai_is_denoise(t)) um_openai_usage_chunk(t, CHUNK_OBJECT);
}

static const um_shape shape = {.name = "chat",
                               .id_prefix = "chatcmpl-",
                               .whole = whole,
                               .begin = begin,
                               .text = text,
                               .snapshot = snapshot,
                               .finish = finish,
                               .end = end,
                               .forget = forget};

/* ---- Endpoint ---------------------------------------------------------------------------------------------------- */

static const um_field_set *const sets[] = {&chat_rows, &um_chat_fields, &um_openai_fields, &um_common_fields, NULL};

const um_api um_api_chat = {"/v1/chat/completions", sets, "messages", UM_STREAM_BLOCK_APPEND, check, &shape};

static void handle(um_server *s, um_exchange *x, const char *id) {
    (void)id;
    um_api_serve(s, x, &um_api_chat);
}

static const um_endpoint endpoints[] = {
    {"POST", "/v1/chat/completions", handle, UM_ENDPOINT_WAITS, "OpenAI", "an answer to a conversation"},
};
const um_endpoint_set um_chat_endpoints = {endpoints, UM_LEN(endpoints)};
