/* Writes responses and their events. */
#include <jansson.h>
#include <time.h>

#include "server/api/common.h"
#include "server/api/openai.h"
#include "server/api/responses.h"

/* ---- Kinds of items ---------------------------------------------------------------------------------------------- */

/* Words for the text of an item. */
typedef struct part_words {
    const char *item, *id_prefix; /* type and id of the item */
    const char *part, *index;     /* type of its part, and the member with the number of the part */
    const char *added, *delta, *text_done, *part_done;
    bool has_logprobs;
} part_words;

static const part_words message_words = {"message",
                                         "msg_",
                                         "output_text",
                                         "content_index",
                                         "response.content_part.added",
                                         "response.output_text.delta",
                                         "response.output_text.done",
                                         "response.content_part.done",
                                         true};
static const part_words thought_words = {"reasoning",
                                         "rs_",
                                         "reasoning_text",
                                         "content_index",
                                         "response.content_part.added",
                                         "response.reasoning_text.delta",
                                         "response.reasoning_text.done",
                                         "response.content_part.done",
                                         false};
static const part_words summary_words = {"reasoning",
                                         "rs_",
                                         "summary_text",
                                         "summary_index",
                                         "response.reasoning_summary_part.added",
                                         "response.reasoning_summary_text.delta",
                                         "response.reasoning_summary_text.done",
                                         "response.reasoning_summary_part.done",
                                         false};

/* The output of an answer. Its items are written one after the other. */
typedef struct output {
    um_conversation_answer answer;
    const part_words *open; /* of the open item; NULL: none is open */
    char item_id[64];       /* id of the open item, or of the open call */
    char call_id[64];       /* of the open call; "": none is open */
    um_buf name;            /* of the open call */
    um_buf text;            /* text of the open item, or arguments of the open call */
    size_t n_sent;          /* bytes of `text` that were sent */
    um_buf items;           /* the finished items as elements of a JSON array */
    int32_t n_items;
    int32_t n_taken, first_taken; /* tokens that messages have so far; those before the open item */
    int64_t n_thought_ids;        /* tokens of thoughts */
    um_buf event;                 /* the event that is being written */
    um_jw writer;
    int64_t n_events;
    um_buf log;        /* the events of the items, to be stored */
    um_stored *stored; /* the background response that receives them, or NULL */
} output;

static um_str text_of(const um_buf *b) { return (um_str){b->data ? b->data : "", b->len}; }

static bool is_kept(const output *o) { return um_generation_body(o->answer.generation)->items_json != NULL; }

/* A response that is stored has events, too: a client may ask for them later. */
static bool has_events(const output *o) { return um_generation_sse(o->answer.generation) || is_kept(o); }

static bool wants_logprobs(const output *o) { return um_generation_body(o->answer.generation)->top_logprobs >= 0; }

/* Returns the tokens of the open item so far. */
static um_tokens tokens_of_item(const output *o) {
    um_tokens all = um_choice_tokens(o->answer.choice);
    return um_tokens_part(&all, (uint32_t)o->first_taken, (uint32_t)o->n_taken);
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

/* Begins an event, {"type": name, "sequence_number": …}. send() ends it. */
static um_jw *begin_event(output *o, const char *name) {
    um_jw *w = &o->writer;
    um_buf_clear(&o->event);
    um_buf_printf(&o->event, "event: %s\ndata: ", name);
    um_jw_init(w, &o->event);
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "type", name);
    um_jw_put_int(w, "sequence_number", o->n_events++);
    return w;
}

static void send(output *o, um_jw *w) {
    um_sse *sse = um_generation_sse(o->answer.generation);
    um_jw_end_object(w);
    um_buf_puts(&o->event, "\n\n");
    um_str event = text_of(&o->event);
    if (sse) um_sse_send(sse, event);
    if (o->stored) um_stored_add_events(o->stored, event);
    else if (is_kept(o)) um_buf_append(&o->log, event.p, event.n);
}

/* Begins an event about the item that is written now. */
static um_jw *begin_item_event(output *o, const char *name) {
    um_jw *w = begin_event(o, name);
    um_jw_put_int(w, "output_index", o->n_items);
    return w;
}

/* Begins an event about the part of the open item. */
static um_jw *begin_part_event(output *o, const char *name) {
    um_jw *w = begin_item_event(o, name);
    um_jw_put_cstr(w, "item_id", o->item_id);
    if (o->open) um_jw_put_int(w, o->open->index, 0);
    return w;
}

static void put_logprobs(const output *o, const um_tokens *v, um_jw *w) {
    um_jw_key(w, "logprobs");
    if (wants_logprobs(o)) {
        um_put_openai_tokens(o->answer.generation, v, w);
        return;
    }
    um_jw_begin_array(w);
    um_jw_end_array(w);
}

/* ---- Items ------------------------------------------------------------------------------------------------------- */

/* Writes the part of the open item. */
static void put_part(const output *o, um_str text, um_jw *w) {
    um_tokens all = tokens_of_item(o);
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "type", o->open->part);
    um_jw_put_str(w, "text", text);
    if (o->open->has_logprobs) {
        um_jw_key(w, "annotations");
        um_jw_begin_array(w);
        um_jw_end_array(w);
        put_logprobs(o, &all, w);
    }
    um_jw_end_object(w);
}

static void put_list(const output *o, const char *key, bool has_part, um_jw *w) {
    um_jw_key(w, key);
    um_jw_begin_array(w);
    if (has_part) put_part(o, text_of(&o->text), w);
    um_jw_end_array(w);
}

/* Writes the open item, with its part if it is complete. An answer that was cut off is incomplete. */
static void put_item(const output *o, bool is_complete, um_jw *w) {
    const um_choice *c = o->answer.choice;
    bool is_cut = c->finished && um_streq(um_finish_reason(&c->result), "length");
    bool summarizes = o->open == &summary_words;
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "id", o->item_id);
    um_jw_put_cstr(w, "type", o->open->item);
    um_jw_put_cstr(w, "status", !is_complete ? "in_progress" : is_cut ? "incomplete" : "completed");
    if (o->open == &message_words) {
        um_jw_put_cstr(w, "role", "assistant");
        put_list(o, "content", is_complete, w);
    } else {
        put_list(o, "summary", is_complete && summarizes, w);
        if (!summarizes) put_list(o, "content", is_complete, w);
    }
    um_jw_end_object(w);
}

/* Sends the event of an item that begins or has ended. */
static void send_item(output *o, const char *name, um_str json) {
    um_jw *w = begin_item_event(o, name);
    um_jw_key(w, "item");
    um_jw_raw(w, json.p, json.n);
    send(o, w);
}

static void open_item(output *o, const part_words *words) {
    um_buf item = {0};
    um_jw own;
    o->open = words;
    o->first_taken = o->n_taken;
    um_make_id(words->id_prefix, o->item_id);
    if (!has_events(o)) return;
    um_jw_init(&own, &item);
    put_item(o, false, &own);
    send_item(o, "response.output_item.added", text_of(&item));
    um_buf_free(&item);
    um_jw *w = begin_part_event(o, words->added);
    um_jw_key(w, "part");
    put_part(o, UM_STR(""), w);
    send(o, w);
}

/* Sends the text of the open item, or the arguments of the open call, that were not sent yet. */
static void flush(output *o) {
    if (!has_events(o) || o->n_sent == o->text.len) return;
    um_jw *w = begin_part_event(o, o->open ? o->open->delta : "response.function_call_arguments.delta");
    um_jw_put_str(w, "delta", (um_str){o->text.data + o->n_sent, o->text.len - o->n_sent});
    if (o->open && o->open->has_logprobs) {
        um_tokens part = um_conversation_take_tokens(&o->answer, &o->n_taken);
        put_logprobs(o, &part, w);
    }
    send(o, w);
    o->n_sent = o->text.len;
}

/* Adds the item to the finished ones, and sends it. */
static void end_item(output *o, um_str json) {
    if (o->items.len) um_buf_putc(&o->items, ',');
    um_buf_append(&o->items, json.p, json.n);
    if (has_events(o)) send_item(o, "response.output_item.done", json);
    o->n_items++;
}

static void send_part_ends(output *o) {
    um_tokens all = tokens_of_item(o);
    um_jw *w = begin_part_event(o, o->open->text_done);
    um_jw_put_str(w, "text", text_of(&o->text));
    if (o->open->has_logprobs) put_logprobs(o, &all, w);
    send(o, w);
    w = begin_part_event(o, o->open->part_done);
    um_jw_key(w, "part");
    put_part(o, text_of(&o->text), w);
    send(o, w);
}

/* Returns the number of tokens of the item's text, which is encoded again: the parser does not tell where a token's
 * text went. */
static int64_t count_tokens(const output *o) {
    int32_t *ids = NULL;
    size_t n = 0;
    um_model_encode(um_generation_service(o->answer.generation)->setup.model, text_of(&o->text).p, o->text.len, false,
                    &ids, &n, NULL);
    um_free(ids);
    return (int64_t)n;
}

static void forget_text(output *o) {
    um_buf_clear(&o->text);
    o->n_sent = 0;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

/* Writes the open call. */
static void put_call(const output *o, const char *status, um_str arguments, um_buf *out) {
    um_jw w;
    um_buf_clear(out);
    um_jw_init(&w, out);
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "id", o->item_id);
    um_jw_put_cstr(&w, "type", "function_call");
    um_jw_put_cstr(&w, "status", status);
    um_jw_put_cstr(&w, "call_id", o->call_id);
    um_jw_put_str(&w, "name", text_of(&o->name));
    um_jw_put_str(&w, "arguments", arguments);
    um_jw_end_object(&w);
}

static void close_call(output *o) {
    um_buf item = {0};
    flush(o);
    if (has_events(o)) {
        um_jw *w = begin_part_event(o, "response.function_call_arguments.done");
        um_jw_put_str(w, "name", text_of(&o->name));
        um_jw_put_str(w, "arguments", text_of(&o->text));
        send(o, w);
    }
    put_call(o, "completed", text_of(&o->text), &item);
    end_item(o, text_of(&item));
    um_buf_free(&item);
    forget_text(o);
    o->call_id[0] = '\0';
}

/* ---- Parts ------------------------------------------------------------------------------------------------------- */

/* Ends the open item or call. */
static void close_item(output *o) {
    um_buf item = {0};
    um_jw w;
    if (o->call_id[0]) close_call(o);
    if (!o->open) return;
    flush(o);
    if (o->open == &message_words) um_conversation_take_tokens(&o->answer, &o->n_taken);
    else o->n_thought_ids += count_tokens(o);
    if (has_events(o)) send_part_ends(o);
    um_jw_init(&w, &item);
    put_item(o, true, &w);
    end_item(o, text_of(&item));
    um_buf_free(&item);
    forget_text(o);
    o->open = NULL;
}

static void open_call(output *o, um_str name) {
    um_buf item = {0};
    close_item(o);
    um_make_id("fc_", o->item_id);
    um_make_id("call_", o->call_id);
    um_buf_clear(&o->name);
    um_buf_append(&o->name, name.p, name.n);
    if (!has_events(o)) return;
    put_call(o, "in_progress", UM_STR(""), &item);
    send_item(o, "response.output_item.added", text_of(&item));
    um_buf_free(&item);
}

/* Receives the parts of the parser. */
static void append_part(void *arg, const um_answer_part *p) {
    output *o = arg;
    const part_words *words = &message_words;
    if (p->kind == UM_ANSWER_CALL) open_call(o, p->name);
    if (p->kind == UM_ANSWER_CALL || p->kind == UM_ANSWER_ARGUMENTS) {
        um_buf_append(&o->text, p->text.p, p->text.n);
        if (p->kind == UM_ANSWER_CALL && !p->is_open) close_item(o);
        return;
    }
    if (p->kind == UM_ANSWER_REASONING)
        words = um_responses_has_summary(um_generation_body(o->answer.generation)) ? &summary_words : &thought_words;
    if (o->open != words) {
        close_item(o);
        open_item(o, words);
    }
    um_buf_append(&o->text, p->text.p, p->text.n);
}

/* ---- The response ------------------------------------------------------------------------------------------------ */

static const char *status_of(const um_choice *c) {
    if (!c->finished) return "in_progress";
    const char *reason = um_finish_reason(&c->result);
    if (um_streq(reason, "length") || um_streq(reason, "abort")) return "incomplete";
    return um_streq(reason, "error") ? "failed" : "completed";
}

/* Writes a member of the request, or `fallback` if the request does not have it. */
static void put_echo(const um_body *b, const char *key, const char *fallback, um_jw *w) {
    const json_t *v = json_object_get(b->root, key);
    um_buf text = {0};
    if (v && !json_is_null(v)) um_json_put_exact(v, &text);
    else um_buf_puts(&text, fallback);
    um_jw_key(w, key);
    um_jw_raw(w, text.data, text.len);
    um_buf_free(&text);
}

static void put_request(const um_body *b, um_jw *w) {
    static const char *const echoed[][2] = {
        {"instructions", "null"},
        {"metadata", "{}"},
        {"previous_response_id", "null"},
        {"max_output_tokens", "null"},
        {"max_tool_calls", "null"},
        {"parallel_tool_calls", "true"},
        {"tools", "[]"},
        {"tool_choice", "\"auto\""},
        {"truncation", "\"disabled\""},
        {"text", "{\"format\":{\"type\":\"text\"}}"},
        {"reasoning", "{\"effort\":null,\"summary\":null}"},
        {"top_logprobs", "0"},
        {"safety_identifier", "null"},
        {"prompt_cache_key", "null"},
        {"user", "null"},
    };
    for (size_t i = 0; i < UM_LEN(echoed); i++) put_echo(b, echoed[i][0], echoed[i][1], w);
    const char *conversation = um_responses_conversation(b);
    um_jw_key(w, "conversation");
    if (conversation) {
        um_jw_begin_object(w);
        um_jw_put_cstr(w, "id", conversation);
        um_jw_end_object(w);
    } else {
        um_jw_null(w);
    }
    um_jw_key(w, "temperature");
    um_jw_float(w, b->checked.sampling.temperature);
    um_jw_key(w, "top_p");
    um_jw_float(w, b->checked.sampling.top_p);
    um_jw_put_cstr(w, "service_tier", "default");
    um_jw_put_bool(w, "background", um_responses_is_background(b));
    um_jw_put_bool(w, "store", b->items_json != NULL);
}

static void put_usage(const output *o, um_jw *w) {
    const um_choice *c = o->answer.choice;
    int64_t prompt = (int64_t)um_generation_body(o->answer.generation)->prompt[0].n_ids;
    um_jw_begin_object(w);
    um_jw_put_int(w, "input_tokens", prompt);
    um_jw_key(w, "input_tokens_details");
    um_jw_begin_object(w);
    um_jw_put_int(w, "cached_tokens", c->result.cached_tokens);
    um_jw_put_int(w, "cache_write_tokens", 0);
    um_jw_end_object(w);
    um_jw_put_int(w, "output_tokens", c->n_tokens);
    um_jw_key(w, "output_tokens_details");
    um_jw_begin_object(w);
    um_jw_put_int(w, "reasoning_tokens", o->n_thought_ids);
    um_jw_end_object(w);
    um_jw_put_int(w, "total_tokens", prompt + c->n_tokens);
    um_jw_end_object(w);
}

static const char *failure_of(const um_choice *c) {
    if (c->result.finish == UM_FINISH_CONSTRAINT)
        return "the constraint needs more memory or time than a constraint may take, so the answer is incomplete";
    if (c->result.finish == UM_FINISH_SAMPLER) return "the sampler has failed, so the answer is incomplete";
    return "the model predicts no token";
}

/* Writes the members that tell why a response has no complete answer. */
static void put_reasons(const um_choice *c, const char *status, const um_err *err, um_jw *w) {
    bool failed = um_streq(status, "failed");
    um_jw_key(w, "error");
    if (failed) {
        um_jw_begin_object(w);
        um_jw_put_cstr(w, "code", "server_error");
        um_jw_put_cstr(w, "message", err ? err->msg : failure_of(c));
        um_jw_end_object(w);
    } else {
        um_jw_null(w);
    }
    um_jw_key(w, "incomplete_details");
    if (um_streq(status, "incomplete")) {
        um_jw_begin_object(w);
        um_jw_put_cstr(w, "reason", c->result.finish == UM_FINISH_ABORTED ? "aborted" : "max_output_tokens");
        um_jw_end_object(w);
    } else {
        um_jw_null(w);
    }
}

static void put_response(const output *o, const char *status, const um_err *err, um_jw *w) {
    um_generation *g = o->answer.generation;
    bool finished = o->answer.choice->finished;
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "id", um_generation_id(g));
    um_jw_put_cstr(w, "object", "response");
    um_jw_put_int(w, "created_at", um_generation_created(g));
    um_jw_key(w, "completed_at");
    if (um_streq(status, "completed")) um_jw_int(w, (int64_t)time(NULL));
    else um_jw_null(w);
    um_jw_put_cstr(w, "status", status);
    put_reasons(o->answer.choice, status, err, w);
    um_jw_put_cstr(w, "model", um_generation_model(g));
    um_jw_key(w, "output");
    um_jw_begin_array(w);
    if (o->items.len) um_jw_raw(w, o->items.data, o->items.len);
    um_jw_end_array(w);
    put_request(um_generation_body(g), w);
    um_jw_key(w, "usage");
    if (finished) put_usage(o, w);
    else um_jw_null(w);
    if (finished) um_put_extras(g, o->answer.choice, w);
    um_jw_end_object(w);
}

/* ---- Writer ------------------------------------------------------------------------------------------------------ */

/* Returns the output of a choice; the first call creates it. */
static output *output_of(um_generation *g, um_choice *c) {
    output *o = c->own;
    if (o) return o;
    c->own = o = UM_NEW(output);
    o->n_events = UM_RESPONSE_FIRST_EVENT;
    if (um_responses_is_background(um_generation_body(g)))
        o->stored = um_stored_find(um_generation_service(g)->setup.results, um_generation_id(g), NULL);
    um_conversation_begin(&o->answer, g, c, append_part, o);
    return o;
}

static um_status check_answer(um_generation *g, um_choice *c, um_err *err) {
    return um_conversation_end_check(&output_of(g, c)->answer, err);
}

static void forget(um_choice *c) {
    output *o = c->own;
    if (!o) return;
    um_conversation_free(&o->answer);
    um_buf_free(&o->name);
    um_buf_free(&o->text);
    um_buf_free(&o->items);
    um_buf_free(&o->event);
    um_buf_free(&o->log);
}

void um_responses_put_unfinished(um_generation *g, um_jw *w) {
    output o = {.answer = {.generation = g, .choice = um_generation_choice(g, 0)}};
    put_response(&o, "in_progress", NULL, w);
}

static void whole(um_generation *g, um_jw *w) {
    um_choice *c = um_generation_choice(g, 0);
    output *o = output_of(g, c);
    um_conversation_end(&o->answer);
    close_item(o);
    put_response(o, status_of(c), NULL, w);
    um_responses_keep(g, text_of(w->out), text_of(&o->log));
}

/* Sends an event with the whole response, which `out` receives. */
static void send_response(output *o, const char *name, int64_t number, const char *status, const um_err *err,
                          um_buf *out) {
    um_sse *sse = um_generation_sse(o->answer.generation);
    um_buf event = {0};
    um_jw w;
    um_buf_clear(out);
    um_jw_init(&w, out);
    put_response(o, status, err, &w);
    um_response_put_event(&event, name, number, text_of(out));
    um_sse_send(sse, text_of(&event));
    um_buf_free(&event);
}

static void begin(um_generation *g, um_choice *c) {
    output *o = output_of(g, c);
    um_buf json = {0};
    if (o->stored) return;
    send_response(o, "response.created", 0, "in_progress", NULL, &json);
    send_response(o, "response.in_progress", 1, "in_progress", NULL, &json);
    um_buf_free(&json);
}

static void text(um_generation *g, um_choice *c, const um_msg_text *e) {
    output *o = c->own;
    (void)g;
    um_conversation_push(&o->answer, e->text);
    flush(o);
}

static void finish(um_generation *g, um_choice *c) {
    output *o = c->own;
    um_buf json = {0};
    char event[40];
    um_conversation_end(&o->answer);
    close_item(o);
    if (o->stored) return;
    snprintf(event, sizeof event, "response.%s", status_of(c));
    send_response(o, event, o->n_events, status_of(c), NULL, &json);
    um_responses_keep(g, text_of(&json), text_of(&o->log));
    um_buf_free(&json);
}

static void error(um_generation *g, int status, const um_err *err) {
    output *o = um_generation_choice(g, 0)->own;
    um_buf json = {0};
    (void)status;
    send_response(o, "response.failed", o->n_events, "failed", err, &json);
    um_buf_free(&json);
}

const um_response_writer um_responses_writer = {.name = "responses",
                                                .id_prefix = UM_RESPONSE_PREFIX,
                                                .whole = whole,
                                                .begin = begin,
                                                .text = text,
                                                .check = check_answer,
                                                .finish = finish,
                                                .forget = forget,
                                                .error = error};
