/* POST /v1/messages: Anthropic's API. Its blocks become turns of a conversation, and the parts of an answer become its
 * blocks. */
#include <jansson.h>

#include "server/api/common.h"
#include "server/api/conversation.h"
#include "server/respond/access.h"

/* ---- Blocks of the request --------------------------------------------------------------------------------------- */

/* The place of a block in the request: "messages[1].content[0]". */
typedef struct place {
    const char *list; /* "messages[%zu].content" with its number, or "system" */
    size_t i;
} place;

static um_status fail_block(um_err *err, const place *p, const char *what) {
    return um_fail(err, UM_EINVAL, "%s[%zu]: %s", p->list, p->i, what);
}

/* Reads a block {"type": "text", "text"}. */
static um_status add_text(um_turns *t, const json_t *block, const place *p, um_err *err) {
    const json_t *text = json_object_get(block, "text");
    const char *type = json_string_value(json_object_get(block, "type"));
    if (!um_streq(type, "text"))
        return um_fail(err, UM_EINVAL, "%s[%zu]: \"%.40s\" can't be read here; the models read text only", p->list,
                       p->i, type ? type : "");
    if (!json_is_string(text)) return fail_block(err, p, "expected {\"type\": \"text\", \"text\": \"…\"}");
    um_turns_add_text(t, text);
    return UM_OK;
}

/* Reads a text, or a list of text blocks, into the last turn. */
static um_status add_texts(um_turns *t, const json_t *v, const char *list, um_err *err) {
    place p = {list, 0};
    um_status st = UM_OK;
    if (json_is_string(v)) um_turns_add_text(t, v);
    else if (!json_is_array(v))
        return um_fail(err, UM_EINVAL, "%s: expected a string or a list of blocks, found %s", list, um_json_kind(v));
    for (; p.i < json_array_size(v) && !st; p.i++) st = add_text(t, json_array_get(v, p.i), &p, err);
    return st;
}

static um_status add_call(um_turns *t, const json_t *block, const place *p, um_err *err) {
    const json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name"),
                 *input = json_object_get(block, "input");
    if (!json_is_string(id) || !json_is_string(name) || !json_is_object(input))
        return fail_block(err, p, "a tool_use block has an id, a name and an input, which is an object");
    um_turns_join(t, "assistant");
    um_turns_add_call(t, id, name, input);
    return UM_OK;
}

static um_status add_result(um_turns *t, const json_t *block, const place *p, um_err *err) {
    const json_t *id = json_object_get(block, "tool_use_id"), *content = json_object_get(block, "content");
    char list[96];
    if (!json_is_string(id)) return fail_block(err, p, "a tool_result block has a tool_use_id");
    um_turns_begin_result(t, id);
    if (!content || json_is_null(content)) return UM_OK;
    snprintf(list, sizeof list, "%.60s[%zu].content", p->list, p->i);
    return add_texts(t, content, list, err);
}

static um_status add_thinking(um_turns *t, const json_t *block, const place *p, um_err *err) {
    const json_t *text = json_object_get(block, "thinking");
    if (!json_is_string(text)) return fail_block(err, p, "a thinking block has the text \"thinking\"");
    um_turns_join(t, "assistant");
    um_turns_add_reasoning(t, text);
    return UM_OK;
}

/* Results of calls come in messages of the user; each becomes a turn of its own. Text after them begins a new turn. */
static um_status add_block(um_turns *t, const char *role, const json_t *block, const place *p, um_err *err) {
    const char *type = json_string_value(json_object_get(block, "type"));
    bool answers = um_streq(role, "assistant");
    if (!json_is_object(block) || !type) return fail_block(err, p, "expected an object with a type");
    if (um_streq(type, "tool_use") && answers) return add_call(t, block, p, err);
    if (um_streq(type, "thinking") && answers) return add_thinking(t, block, p, err);
    if (um_streq(type, "tool_result") && um_streq(role, "user")) return add_result(t, block, p, err);
    if (um_streq(type, "text")) um_turns_join(t, role);
    return add_text(t, block, p, err);
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

static um_status add_message(um_turns *t, const json_t *m, size_t i, um_err *err) {
    static const char roles[] = "user|assistant|system";
    const char *role = json_string_value(json_object_get(m, "role"));
    const json_t *content = json_object_get(m, "content");
    char list[40];
    um_str at;
    um_status st = UM_OK;
    if (!role || um_word_index(roles, '|', role, &at) < 0)
        return um_fail(err, UM_EINVAL, "messages[%zu]: role \"%.40s\", expected user or assistant", i,
                       role ? role : "");
    snprintf(list, sizeof list, "messages[%zu].content", i);
    if (!json_is_array(content)) {
        um_turns_begin(t, role);
        return add_texts(t, content, list, err);
    }
    if (!json_array_size(content)) return um_fail(err, UM_EINVAL, "%s: expected at least one block", list);
    place p = {list, 0};
    um_turns_end(t); /* two messages of one role stay two turns */
    for (; p.i < json_array_size(content) && !st; p.i++) st = add_block(t, role, json_array_get(content, p.i), &p, err);
    return st;
}

static um_status add_system(um_turns *t, const json_t *v, um_err *err) {
    if (!v || json_is_null(v)) return UM_OK;
    um_turns_begin(t, "system");
    return um_fail_about(err, add_texts(t, v, "system", err), "system");
}

/* An answer continues a last message of the assistant that has text. */
static bool is_begun_answer(const um_turns *t) {
    return t->last && um_streq(json_string_value(json_object_get(t->last, "role")), "assistant") &&
           json_object_get(t->last, "content") && !json_object_get(t->last, "tool_calls");
}

static um_status take_messages(um_body *b, const json_t *v, um_err *err) {
    um_turns t;
    if (!json_is_array(v) || !json_array_size(v))
        return um_fail(err, UM_EINVAL, "\"messages\": expected a list of at least one message, found %s",
                       json_is_array(v) ? "an empty one" : um_json_kind(v));
    um_turns_init(&t);
    um_status st = add_system(&t, json_object_get(b->root, "system"), err);
    for (size_t i = 0; i < json_array_size(v) && !st; i++) st = add_message(&t, json_array_get(v, i), i, err);
    b->chat.continue_final_message = is_begun_answer(&t);
    um_turns_end(&t);
    if (!st) st = um_body_take_messages(b, t.messages, err);
    um_turns_free(&t);
    return st;
}

/* The text is read together with the messages, because it becomes the first of them. */
static um_status take_system(um_body *b, const json_t *v, um_err *err) {
    (void)v;
    if (um_body_has(b, "messages")) return UM_OK;
    return um_fail(err, UM_EINVAL, "\"system\" needs \"messages\"");
}

/* ---- Tools ------------------------------------------------------------------------------------------------------- */

static um_status take_tools(um_body *b, const json_t *v, um_err *err) {
    if (!json_is_array(v)) return um_fail(err, UM_EINVAL, "\"tools\": expected an array, found %s", um_json_kind(v));
    json_t *tools = json_array();
    um_status st = UM_OK;
    for (size_t i = 0; i < json_array_size(v) && !st; i++) {
        const json_t *tool = json_array_get(v, i), *type = json_object_get(tool, "type");
        if (type && !json_is_null(type) && !um_streq(json_string_value(type), "custom"))
            st = um_fail(err, UM_EINVAL, "\"tools\"[%zu]: the server has no tool of the type \"%.60s\"", i,
                         json_is_string(type) ? json_string_value(type) : "");
        else st = um_turns_add_tool(tools, i, tool, "input_schema", err);
    }
    if (!st) st = um_body_take_tools(b, tools, err);
    json_decref(tools);
    return st;
}

static um_status take_tool_choice(um_body *b, const json_t *v, um_err *err) {
    static const char words[] = "auto|none|any|tool"; /* in the order of UM_TOOLS_* */
    const json_t *single = json_object_get(v, "disable_parallel_tool_use");
    const char *type = json_string_value(json_object_get(v, "type"));
    um_str at;
    bool is_single = false;
    um_status st = um_conversation_check_members(b, v, "tool_choice", "type|name|disable_parallel_tool_use", err);
    if (st) return st;
    b->tool_choice = type ? um_word_index(words, '|', type, &at) : -1;
    b->tool_name = b->tool_choice == UM_TOOLS_NAMED ? json_string_value(json_object_get(v, "name")) : NULL;
    if (b->tool_choice < 0 || (b->tool_choice == UM_TOOLS_NAMED && !b->tool_name))
        return um_fail(err, UM_EINVAL,
                       "\"tool_choice\": expected an object with the type \"auto\", \"any\", \"none\", or \"tool\" and "
                       "the name of the tool");
    if (!single || json_is_null(single)) return UM_OK;
    st = um_json_take_bool(single, "\"disable_parallel_tool_use\"", &is_single, err);
    b->parallel_tool_calls = !is_single;
    return st;
}

/* ---- Other fields ------------------------------------------------------------------------------------------------ */

static um_status take_stops(um_body *b, const json_t *v, um_err *err) {
    if (!json_is_array(v))
        return um_fail(err, UM_EINVAL, "\"stop_sequences\": expected an array of strings, found %s", um_json_kind(v));
    return um_body_take_stop(b, v, err);
}

/* Without the field, Anthropic's API shows no thoughts. */
static um_status take_thinking(um_body *b, const json_t *v, um_err *err) {
    const char *type = json_string_value(json_object_get(v, "type"));
    bool adapts = um_streq(type, "adaptive"), wants = um_streq(type, "enabled");
    um_status st = um_conversation_check_members(b, v, "thinking", "type|budget_tokens|display", err);
    if (st) return st;
    if (!adapts && !wants && !um_streq(type, "disabled"))
        return um_fail(err, UM_EINVAL,
                       "\"thinking\": expected an object with the type \"enabled\", \"adaptive\" or \"disabled\"");
    if (wants && !um_conversation_has_reasoning(b->setup))
        return um_fail(err, UM_EINVAL, "\"thinking\": the server was started without --reasoning-parser");
    return UM_OK;
}

static um_status take_output_format(um_body *b, const json_t *v, um_err *err) {
    return um_body_take_format(b, "output_format", v, v, err);
}

/* {"effort", "format": {"type": "json_schema", "schema"}}. The effort is a variable of the chat template. */
static um_status take_output_config(um_body *b, const json_t *v, um_err *err) {
    const json_t *effort = json_object_get(v, "effort"), *format = json_object_get(v, "format");
    um_status st = um_conversation_check_members(b, v, "output_config", "effort|format", err);
    if (!st && format && !json_is_null(format)) st = um_body_take_format(b, "output_config", format, format, err);
    if (st || !effort || json_is_null(effort)) return st;
    return um_json_take_text(effort, "\"output_config\".effort", &b->reasoning_effort, err);
}

#define ONE_ANSWER "this API returns one answer"

static const um_field rows[] = {
    {.name = "messages", .take = take_messages, .types = "array"},
    {.name = "system", .take = take_system, .types = "string|array"},
    {.name = "stop_sequences", .take = take_stops, .types = "array"},
    {.name = "tools", .take = take_tools, .types = "array"},
    {.name = "tool_choice", .take = take_tool_choice, .types = "object"},
    {.name = "thinking", .take = take_thinking, .types = "object"},
    {.name = "output_config", .take = take_output_config, .types = "object"},
    {.name = "output_format", .take = take_output_format, .types = "object"},
    {.name = "n", .neutral = "1|null", .why = ONE_ANSWER},
    {.name = "logprobs", .neutral = "false|null", .why = "this API has no log-probabilities"},
    {.name = "stream_options", .neutral = "null", .why = "the events of this API have the usage"},
    {.name = "parallel_tool_calls", .neutral = "null", .why = "tool_choice has disable_parallel_tool_use"},
    {.name = "include_reasoning", .neutral = "null", .why = "thinking tells whether the answer shows thoughts"},
    {.name = "container", .neutral = "null", .why = "the server runs no tools"},
    {.name = "mcp_servers", .neutral = "[]|null", .why = "the server runs no tools"},
    {.name = "speed", .neutral = "\"standard\"|null", .why = "the server has one speed"},
    {.name = "diagnostics",
     .neutral = "null",
     .why = "the server has no diagnostics of the cache; /metrics has numbers"},
    {.name = "thread", .neutral = "null", .why = "the server has no threads"},
    {.name = "compaction", .neutral = "null", .why = "the server never cuts a prompt"},
    {.name = "fallbacks", .neutral = "[]|null", .why = "the server has one model"},
    {.name = "user_profile_id", .why = "the server has no profiles; API keys tell clients apart"},
    {.name = "workspace_id", .why = "the server has no workspaces; API keys tell clients apart"},
    {.name = "context_management", .neutral = "null", .why = "the server never cuts a prompt"},
    {.name = "inference_geo", .why = "requests run where the server runs"},
    {.name = "cache_control", .why = "prompts with equal prefixes share the cache without marks"},
    {.name = "messages[].content[].cache_control",
     .is_member = true,
     .why = "prompts with equal prefixes share the cache without marks"},
    {.name = "messages[].content[].is_error",
     .is_member = true,
     .why = "the text of a failed call has to say so; chat templates have no mark for it"},
    {.name = "tools[].eager_input_streaming",
     .is_member = true,
     .why = "a call that tool_choice requires is sent as it is written, others when they are complete"},
    {.name = "tools[].input_examples", .is_member = true, .why = "chat templates don't show them"},
    {.name = "thinking.budget_tokens", .is_member = true, .why = "the length of thoughts can't be limited apart"},
    {.name = "thinking.display", .is_member = true, .why = "thoughts are shown as they are"},
};
static const um_field_set message_rows = {rows, UM_LEN(rows)};
static const um_field_set *const sets[] = {&message_rows, &um_chat_fields, &um_common_fields, NULL};

static um_status check(um_body *b, um_err *err) {
    const char *thinking = json_string_value(json_object_get(json_object_get(b->root, "thinking"), "type"));
    um_status st = um_conversation_check(b, err);
    b->include_reasoning = thinking && !um_streq(thinking, "disabled");
    return st ? st : um_body_streams_text(b, err);
}

/* ---- Blocks of the answer ---------------------------------------------------------------------------------------- */

enum { NO_BLOCK = -1 };

/* The message of the answer. Its blocks are written one after the other. In a stream, each becomes events. */
typedef struct message {
    um_conversation_answer answer;
    int open;       /* kind of the open block, or NO_BLOCK */
    um_buf text;    /* text of the open block that was not written or sent yet */
    um_buf blocks;  /* the closed blocks as elements of a JSON array; unused in a stream */
    int32_t n_open; /* blocks so far */
} message;

static um_str text_of(const um_buf *b) { return (um_str){b->data ? b->data : "", b->len}; }

/* Begins an event, {"type": name, …}. send() ends it. */
static um_jw *begin_event(const message *m, const char *name) {
    um_jw *w = um_sse_begin_event(um_generation_sse(m->answer.generation), name);
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "type", name);
    return w;
}

static void send(const message *m, um_jw *w) {
    um_jw_end_object(w);
    um_sse_append(um_generation_sse(m->answer.generation));
}

static um_jw *begin_block_event(const message *m, const char *name) {
    um_jw *w = begin_event(m, name);
    um_jw_put_int(w, "index", m->n_open - 1);
    return w;
}

/* Sends a piece of the open block: {"type": type, member: text}. */
static void send_delta(const message *m, const char *type, const char *member, um_str text) {
    um_jw *w = begin_block_event(m, "content_block_delta");
    um_jw_key(w, "delta");
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "type", type);
    um_jw_put_str(w, member, text);
    um_jw_end_object(w);
    send(m, w);
}

static bool streams(const message *m) { return um_generation_sse(m->answer.generation) != NULL; }

/* Writes a block of text or thoughts. */
static void put_text_block(um_jw *w, int kind, um_str text) {
    bool thinks = kind == UM_ANSWER_REASONING;
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "type", thinks ? "thinking" : "text");
    um_jw_put_str(w, thinks ? "thinking" : "text", text);
    if (thinks) um_jw_put_cstr(w, "signature", "");
    um_jw_end_object(w);
}

/* Sends the text of the open block that waits. */
static void flush(message *m) {
    if (!streams(m) || !m->text.len) return;
    const um_str text = text_of(&m->text);
    if (m->open == UM_ANSWER_CALL) send_delta(m, "input_json_delta", "partial_json", text);
    else if (m->open == UM_ANSWER_REASONING) send_delta(m, "thinking_delta", "thinking", text);
    else send_delta(m, "text_delta", "text", text);
    um_buf_clear(&m->text);
}

/* Returns the writer of the next element of the blocks, or of the event that begins it. */
static um_jw *begin_block(message *m, um_jw *own) {
    m->n_open++;
    if (streams(m)) {
        um_jw *w = begin_block_event(m, "content_block_start");
        um_jw_key(w, "content_block");
        return w;
    }
    if (m->blocks.len) um_buf_putc(&m->blocks, ',');
    um_jw_init(own, &m->blocks);
    return own;
}

static void open_block(message *m, int kind) {
    m->open = kind;
    if (!streams(m)) return;
    um_jw own, *w = begin_block(m, &own);
    put_text_block(w, kind, UM_STR(""));
    send(m, w);
}

static void close_block(message *m) {
    if (m->open == NO_BLOCK) return;
    if (streams(m)) {
        flush(m);
        send(m, begin_block_event(m, "content_block_stop"));
    } else {
        um_jw own;
        put_text_block(begin_block(m, &own), m->open, text_of(&m->text));
        um_buf_clear(&m->text);
    }
    m->open = NO_BLOCK;
}

/* Returns whether a text is a JSON object. The model may write other arguments as a string. */
static bool is_object(um_str text) {
    json_t *v = json_loadb(text.p, text.n, JSON_ALLOW_NUL, NULL);
    bool ok = json_is_object(v);
    json_decref(v);
    return ok;
}

/* Writes a call as a block. In a stream the block stays open, and its input follows in events of their own. */
static void put_call(message *m, um_str name, um_str input) {
    char id[64];
    close_block(m);
    um_make_id("toolu_", id);
    um_jw own, *w = begin_block(m, &own);
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "type", "tool_use");
    um_jw_put_cstr(w, "id", id);
    um_jw_put_str(w, "name", name);
    um_jw_key(w, "input");
    if (streams(m)) um_jw_raw(w, "{}", 2);
    else um_jw_raw(w, input.p, input.n);
    um_jw_end_object(w);
    if (!streams(m)) return;
    send(m, w);
    m->open = UM_ANSWER_CALL;
    um_buf_append(&m->text, input.p, input.n);
}

/* Receives the parts of the parser. */
static void append_part(void *arg, const um_answer_part *p) {
    message *m = arg;
    if (p->kind == UM_ANSWER_CALL) {
        put_call(m, p->name, p->is_open ? UM_STR("") : is_object(p->text) ? p->text : UM_STR("{}"));
        if (!p->is_open) close_block(m);
        return;
    }
    if (p->kind != UM_ANSWER_ARGUMENTS && m->open != (int)p->kind) {
        close_block(m);
        open_block(m, (int)p->kind);
    }
    um_buf_append(&m->text, p->text.p, p->text.n);
}

static void forget(um_choice *c) {
    message *m = c->own;
    if (!m) return;
    um_conversation_free(&m->answer);
    um_buf_free(&m->text);
    um_buf_free(&m->blocks);
}

/* Returns the message of a choice; the first call creates it. */
static message *message_of(um_generation *g, um_choice *c) {
    message *m = c->own;
    if (m) return m;
    c->own = m = UM_NEW(message);
    m->open = NO_BLOCK;
    um_conversation_begin(&m->answer, g, c, append_part, m);
    return m;
}

static um_status check_answer(um_generation *g, um_choice *c, um_err *err) {
    return um_conversation_end_check(&message_of(g, c)->answer, err);
}

/* ---- The message ------------------------------------------------------------------------------------------------- */

/* Answers that were aborted, or that the model could not continue, have our own words. */
static const char *stop_reason(const message *m) {
    const um_msg_finish *r = &m->answer.choice->result;
    const char *reason = um_finish_reason(r);
    if (um_streq(reason, "length")) return "max_tokens";
    if (!um_streq(reason, "stop")) return reason;
    if (m->answer.n_calls) return "tool_use";
    return r->stop.n ? "stop_sequence" : "end_turn";
}

static void put_stop(const message *m, um_jw *w) {
    const um_msg_finish *r = &m->answer.choice->result;
    um_jw_put_cstr(w, "stop_reason", stop_reason(m));
    um_jw_key(w, "stop_sequence");
    if (r->stop.n) um_jw_str(w, r->stop.p, r->stop.n);
    else um_jw_null(w);
}

/* Tokens that the prefix cache had are not among the input tokens. */
static void put_usage(const message *m, um_jw *w) {
    const um_choice *c = m->answer.choice;
    int64_t cached = c->finished ? c->result.cached_tokens : 0;
    um_jw_key(w, "usage");
    um_jw_begin_object(w);
    um_jw_put_int(w, "input_tokens", (int64_t)um_generation_body(m->answer.generation)->prompt[0].n_ids - cached);
    um_jw_put_int(w, "cache_creation_input_tokens", 0);
    um_jw_put_int(w, "cache_read_input_tokens", cached);
    um_jw_put_int(w, "output_tokens", c->n_tokens);
    um_jw_end_object(w);
}

/* Writes the members of a message up to its content. */
static void put_head(um_generation *g, um_jw *w) {
    um_jw_put_cstr(w, "id", um_generation_id(g));
    um_jw_put_cstr(w, "type", "message");
    um_jw_put_cstr(w, "role", "assistant");
    um_jw_put_cstr(w, "model", um_generation_model(g));
}

static void whole(um_generation *g, um_jw *w) {
    um_choice *c = um_generation_choice(g, 0);
    message *m = message_of(g, c);
    um_conversation_end(&m->answer);
    close_block(m);
    um_jw_begin_object(w);
    put_head(g, w);
    um_jw_key(w, "content");
    um_jw_begin_array(w);
    if (m->blocks.len) um_jw_raw(w, m->blocks.data, m->blocks.len);
    um_jw_end_array(w);
    put_stop(m, w);
    put_usage(m, w);
    um_put_extras(g, c, w);
    um_jw_end_object(w);
}

/* ---- Streaming --------------------------------------------------------------------------------------------------- */

static void begin(um_generation *g, um_choice *c) {
    message *m = message_of(g, c);
    um_jw *w = begin_event(m, "message_start");
    um_jw_key(w, "message");
    um_jw_begin_object(w);
    put_head(g, w);
    um_jw_key(w, "content");
    um_jw_begin_array(w);
    um_jw_end_array(w);
    um_jw_put_null(w, "stop_reason");
    um_jw_put_null(w, "stop_sequence");
    put_usage(m, w);
    um_jw_end_object(w);
    send(m, w);
    send(m, begin_event(m, "ping"));
}

static void text(um_generation *g, um_choice *c, const um_msg_text *e) {
    message *m = c->own;
    (void)g;
    um_conversation_push(&m->answer, e->text);
    flush(m);
}

static void finish(um_generation *g, um_choice *c) {
    message *m = c->own;
    um_conversation_end(&m->answer);
    close_block(m);
    um_jw *w = begin_event(m, "message_delta");
    um_jw_key(w, "delta");
    um_jw_begin_object(w);
    put_stop(m, w);
    um_jw_end_object(w);
    put_usage(m, w);
    um_put_extras(g, c, w);
    send(m, w);
    send(m, begin_event(m, "message_stop"));
}

static void error(um_generation *g, int status, const um_err *err) {
    um_jw *w = um_sse_begin_event(um_generation_sse(g), "error");
    um_put_anthropic_error(w, status, err->param[0] ? err->param : NULL, err->msg);
    um_sse_append(um_generation_sse(g));
}

static const um_response_writer writer = {.name = "messages",
                                          .id_prefix = "msg_",
                                          .whole = whole,
                                          .begin = begin,
                                          .text = text,
                                          .check = check_answer,
                                          .finish = finish,
                                          .forget = forget,
                                          .error = error};

/* ---- Endpoints --------------------------------------------------------------------------------------------------- */

const um_api um_api_messages = {"/v1/messages", sets, "messages", UM_STREAM_BLOCK_APPEND, check, &writer, NULL};

/* Anthropic's clients look for the request's id in this header. */
static void put_request_id(um_exchange *x) {
    const um_access_record *record = um_exchange_get_user_data(x);
    um_exchange_add_header(x, "request-id", record->request_id);
}

static void post_messages(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    put_request_id(x);
    um_api_serve(s, x, &um_api_messages);
}

static um_status read_count(um_intake *r, um_err *err) { return um_conversation_count(r, &um_api_messages, NULL, err); }

static void post_count(um_service *s, um_exchange *x, const char *id) {
    static const um_intake_handler handler = {.read = read_count, .respond = um_intake_send_json};
    (void)id;
    put_request_id(x);
    um_intake_start(s, x, &handler, NULL);
}

static const um_endpoint endpoints[] = {
    {"POST", "/v1/messages", post_messages, UM_ENDPOINT_WAITS, "Anthropic", "answer a conversation"},
    {"POST", "/v1/messages/count_tokens", post_count, 0, "Anthropic", "count the tokens of a conversation"},
};
const um_endpoint_set um_messages_endpoints = {endpoints, UM_LEN(endpoints)};
