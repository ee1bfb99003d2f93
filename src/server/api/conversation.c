/* Checks, parsers and messages of conversations. */
#include "server/api/conversation.h"

#include <jansson.h>

#include "server/api/common.h"

/* ---- Checks across fields ---------------------------------------------------------------------------------------- */

/* The formats that --tool-call-parser and --reasoning-parser name. Both names were checked when the server started. */
static const um_tool_format *tool_format(const um_setup *s) {
    um_model_info info;
    um_model_get_info(s->model, &info);
    return um_tool_format_of(s->config->tool_call_parser, info.chat_template);
}

static const um_reasoning_format *reasoning_format(const um_setup *s) {
    const um_reasoning_format *f = NULL;
    um_reasoning_format_find(&f, s->config->reasoning_parser, NULL);
    return f;
}

/* Returns whether the text is a special token: then answers have it on request only. */
static bool is_special(const um_model *m, const char *text) {
    int32_t *ids = NULL;
    char *shown = NULL;
    size_t n = 0, len = 1;
    um_status st = um_model_encode(m, text, strlen(text), true, &ids, &n, NULL);
    if (!st && n == 1) um_model_decode(m, ids, n, false, &shown, &len, NULL);
    um_free(ids);
    um_free(shown);
    return len == 0;
}

/* Returns whether answers must have special tokens, because parsers look for them. */
static bool parses_special(const um_body *b) {
    const um_tool_format *tools = b->tools_json ? tool_format(b->setup) : NULL;
    const um_reasoning_format *r = reasoning_format(b->setup);
    return (tools && tools->is_special) ||
           (r && (is_special(b->setup->model, r->begin) || is_special(b->setup->model, r->end)));
}

bool um_conversation_has_reasoning(const um_setup *s) { return reasoning_format(s) != NULL; }

/* If the request requires a tool call, constrains the answer to one. */
static um_status force_call(um_body *b, um_err *err) {
    if (b->tool_choice != UM_TOOLS_NAMED && b->tool_choice != UM_TOOLS_REQUIRED) return UM_OK;
    if (b->chat.continue_final_message)
        return um_fail_param(err, UM_EINVAL, "tool_choice",
                             "a tool call can't be required together with continue_final_message");
    return um_conversation_force_call(b, tool_format(b->setup), err);
}

um_status um_conversation_check_members(um_body *b, const json_t *v, const char *field, const char *names,
                                        um_err *err) {
    const char *key;
    json_t *value;
    um_str at;
    if (!json_is_object(v))
        return um_fail(err, UM_EINVAL, "\"%s\": expected an object, found %s", field, um_json_kind(v));
    json_object_foreach((json_t *)(uintptr_t)v, key, value) {
        if (um_word_index(names, '|', key, &at) < 0 && !um_body_ignores(b, key))
            return um_fail(err, UM_EINVAL, "\"%s\": unknown member \"%.40s\"", field, key);
    }
    return UM_OK;
}

/* Puts the reasoning in front of the constrained text. Tools that the model may call or not would never be called. */
static um_status check_constrained(um_body *b, um_err *err) {
    const um_reasoning_format *f = reasoning_format(b->setup);
    if (b->tools_json)
        return um_fail_param(err, UM_EINVAL, "tools",
                             "no tool can be called while \"%s\" constrains the answer; leave out one of the two, or "
                             "set tool_choice to \"none\"",
                             b->constraint_field);
    if (!f) return UM_OK;
    b->generate.reasoning_end = um_str_of(f->end);
    if (!f->is_open) b->generate.reasoning_begin = um_str_of(f->begin);
    return UM_OK;
}

um_status um_conversation_check(um_body *b, um_err *err) {
    b->fills = true;
    if (!b->include_reasoning && !reasoning_format(b->setup))
        return um_fail_param(err, UM_EINVAL, "include_reasoning",
                             "reasoning can't be left out: the server was started without --reasoning-parser");
    if (parses_special(b)) b->keep_special = b->generate.keep_special = true;
    um_status st = b->constraint_field ? check_constrained(b, err) : UM_OK;
    return st ? st : force_call(b, err);
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

/* Returns whether a part belongs to the response. */
static bool is_shown(const um_conversation_answer *a, const um_answer_part *p) {
    const um_body *b = um_generation_body(a->generation);
    switch (p->kind) {
    case UM_ANSWER_CONTENT: return !b->forces_call || a->n_calls;
    case UM_ANSWER_REASONING: return b->include_reasoning;
    case UM_ANSWER_CALL: return b->parallel_tool_calls || !a->n_calls;
    case UM_ANSWER_ARGUMENTS: return true;
    }
    return false;
}

static void receive(void *arg, const um_answer_part *p) {
    um_conversation_answer *a = arg;
    if (!is_shown(a, p)) return;
    a->fn(a->arg, p);
    a->n_calls += p->kind == UM_ANSWER_CALL;
}

void um_conversation_begin(um_conversation_answer *a, um_generation *g, um_choice *c, um_answer_part_fn fn, void *arg) {
    const um_body *b = um_generation_body(g);
    const um_setup *s = &um_generation_service(g)->setup;
    *a = (um_conversation_answer){.generation = g, .choice = c, .fn = fn, .arg = arg};
    const um_tool_format *forced = b->stream ? &um_tool_format_pieces : &um_tool_format_forced;
    if (b->forces_call) um_answer_parser_init(&a->parser, forced, NULL);
    else um_answer_parser_init(&a->parser, b->tools_json ? tool_format(s) : NULL, reasoning_format(s));
    a->parser.tools.tools = b->tools_json;
}

void um_conversation_free(um_conversation_answer *a) { um_answer_parser_free(&a->parser); }

void um_conversation_push(um_conversation_answer *a, um_str text) {
    um_answer_parser_push(&a->parser, text, receive, a);
}

void um_conversation_end(um_conversation_answer *a) {
    if (a->has_ended) return;
    a->has_ended = true;
    if (!um_generation_body(a->generation)->stream) um_conversation_push(a, a->choice->result.text);
    um_answer_parser_end(&a->parser, receive, a);
}

um_status um_conversation_end_check(um_conversation_answer *a, um_err *err) {
    const um_msg_finish *r = &a->choice->result;
    um_conversation_end(a);
    if (!um_generation_body(a->generation)->forces_call) return UM_OK;
    if (a->n_calls && !um_answer_parser_is_cut(&a->parser)) return UM_OK;
    return um_fail_param(err, UM_EUNSUPPORTED, "tool_choice",
                         "the answer of %d tokens (finish reason %s) ended before the required tool call was complete",
                         (int)r->n_ids, um_finish_reason(r));
}

um_tokens um_conversation_take_tokens(const um_conversation_answer *a, int32_t *n_taken) {
    um_tokens all = um_choice_tokens(a->choice);
    size_t n_emitted = um_choice_text(a->choice).n, n_pending = um_answer_parser_pending(&a->parser);
    uint32_t from = (uint32_t)*n_taken, to = from;
    n_emitted -= UM_MIN(n_pending, n_emitted);
    if (a->choice->finished) to = all.n;
    while (to < all.n && (size_t)all.text_end[to] <= n_emitted) to++;
    *n_taken = (int32_t)to;
    return um_tokens_part(&all, from, to);
}

/* ---- Counting ---------------------------------------------------------------------------------------------------- */

um_status um_conversation_count(um_intake *r, const um_api *a, const char *object, um_err *err) {
    json_t *root = r->root;
    um_body *b = &r->body;
    int32_t *ids = NULL;
    size_t n = 0;
    um_jw w;
    r->root = NULL;
    um_status st = um_body_read(b, &r->service->setup, &r->capacity, root, a->sets, err);
    if (!st && !b->n_prompts) st = um_fail_param(err, UM_EINVAL, a->prompt, "the field is missing");
    if (!st)
        st = um_fail_about(err, um_model_render_chat(b->setup->model, &b->chat, NULL, NULL, &ids, &n, err), a->prompt);
    um_free(ids);
    if (st) return st;
    um_jw_init(&w, &r->out);
    um_jw_begin_object(&w);
    if (object) um_jw_put_cstr(&w, "object", object);
    um_jw_put_int(&w, "input_tokens", (int64_t)n);
    um_jw_end_object(&w);
    return UM_OK;
}

/* ---- Turns ------------------------------------------------------------------------------------------------------- */

void um_turns_init(um_turns *t) { *t = (um_turns){.messages = json_array()}; }

void um_turns_free(um_turns *t) {
    json_decref(t->messages);
    um_buf_free(&t->reasoning);
    *t = (um_turns){0};
}

/* Returns a new reference to a string; "" for other values. */
static json_t *text_of(const json_t *v) {
    return json_is_string(v) ? json_incref((json_t *)(uintptr_t)v) : json_string("");
}

void um_turns_end(um_turns *t) {
    if (t->reasoning.len)
        json_object_set_new(t->last, "reasoning_content", json_stringn(t->reasoning.data, t->reasoning.len));
    um_buf_clear(&t->reasoning);
    t->last = NULL;
}

void um_turns_begin(um_turns *t, const char *role) {
    um_turns_end(t);
    t->last = json_pack("{s:s}", "role", role);
    json_array_append_new(t->messages, t->last);
}

void um_turns_join(um_turns *t, const char *role) {
    if (!t->last || !um_streq(json_string_value(json_object_get(t->last, "role")), role)) um_turns_begin(t, role);
}

static json_t *part_of(json_t *text) { return json_pack("{s:s, s:o}", "type", "text", "text", text); }

/* One text is the content as it stands. Several become a list of parts. */
void um_turns_add_text(um_turns *t, const json_t *text) {
    json_t *content = json_object_get(t->last, "content");
    if (!content) {
        json_object_set_new(t->last, "content", text_of(text));
        return;
    }
    if (json_is_string(content)) {
        json_object_set_new(t->last, "content", json_pack("[o]", part_of(json_incref(content))));
        content = json_object_get(t->last, "content");
    }
    json_array_append_new(content, part_of(text_of(text)));
}

void um_turns_add_reasoning(um_turns *t, const json_t *text) {
    um_buf_append(&t->reasoning, json_string_value(text), json_string_length(text));
}

void um_turns_add_call(um_turns *t, const json_t *id, const json_t *name, const json_t *arguments) {
    json_t *calls = json_object_get(t->last, "tool_calls");
    if (!calls) {
        calls = json_array();
        json_object_set_new(t->last, "tool_calls", calls);
    }
    json_t *given = json_is_object(arguments) ? json_incref((json_t *)(uintptr_t)arguments) : text_of(arguments);
    json_array_append_new(calls, json_pack("{s:o, s:s, s:{s:o, s:o}}", "id", text_of(id), "type", "function",
                                           "function", "name", text_of(name), "arguments", given));
}

void um_turns_begin_result(um_turns *t, const json_t *call_id) {
    um_turns_begin(t, "tool");
    json_object_set_new(t->last, "tool_call_id", text_of(call_id));
}

/* Returns what a tool asks for that the server can't do, or NULL. */
static const char *unsupported_wish(const json_t *tool) {
    const json_t *callers = json_object_get(tool, "allowed_callers");
    bool direct = !json_array_size(callers);
    for (size_t i = 0; i < json_array_size(callers); i++)
        direct |= um_streq(json_string_value(json_array_get(callers, i)), "direct");
    if (!direct) return "allowed_callers without \"direct\": only the model calls tools";
    return json_is_true(json_object_get(tool, "defer_loading")) ? "defer_loading: the model sees all tools" : NULL;
}

um_status um_turns_add_tool(json_t *tools, size_t i, const json_t *tool, const char *parameters, um_err *err) {
    static const char *const kept[] = {"name", "description", "strict"};
    const char *wish = unsupported_wish(tool);
    if (!json_is_string(json_object_get(tool, "name")))
        return um_fail(err, UM_EINVAL, "\"tools\"[%zu]: expected an object with a name", i);
    if (wish) return um_fail(err, UM_EINVAL, "\"tools\"[%zu]: %s", i, wish);
    json_t *function = json_object(), *schema = json_object_get(tool, parameters);
    for (size_t k = 0; k < UM_LEN(kept); k++) {
        json_t *v = json_object_get(tool, kept[k]);
        if (v && !json_is_null(v)) json_object_set(function, kept[k], v);
    }
    if (schema && !json_is_null(schema)) json_object_set(function, "parameters", schema);
    json_array_append_new(tools, json_pack("{s:s, s:o}", "type", "function", "function", function));
    return UM_OK;
}
