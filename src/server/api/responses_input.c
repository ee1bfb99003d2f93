/* Reads the bodies of /v1/responses. */
#include <jansson.h>

#include "server/api/common.h"
#include "server/api/openai.h"
#include "server/api/responses.h"
#include "server/api/result_store.h"

/* As in OpenAI's API. */
#define METADATA_MAX       16
#define METADATA_BYTES_MAX 512

/* ---- Items to turns ---------------------------------------------------------------------------------------------- */

static const char *member(const json_t *v, const char *key) { return json_string_value(json_object_get(v, key)); }

/* Reads {"type": "input_text", "text"} and the parts of answers. */
static um_status add_part(um_turns *t, const json_t *part, size_t k, um_err *err) {
    static const char types[] = "input_text|output_text|text|summary_text|reasoning_text";
    const char *type = member(part, "type");
    const json_t *text = json_object_get(part, "text");
    um_str at;
    if (!type || um_word_index(types, '|', type, &at) < 0)
        return um_fail(err, UM_EINVAL, "part %zu: \"%.40s\" can't be read here; the models read text only", k,
                       type ? type : "");
    if (!json_is_string(text)) return um_fail(err, UM_EINVAL, "part %zu: expected the text in \"text\"", k);
    um_turns_add_text(t, text);
    return UM_OK;
}

static um_status add_content(um_turns *t, const json_t *v, um_err *err) {
    um_status st = UM_OK;
    if (json_is_string(v)) um_turns_add_text(t, v);
    else if (!json_is_array(v))
        return um_fail(err, UM_EINVAL, "expected a string or a list of parts, found %s", um_json_kind(v));
    for (size_t k = 0; k < json_array_size(v) && !st; k++) st = add_part(t, json_array_get(v, k), k, err);
    return st;
}

/* Thoughts that precede a message belong to its turn. */
static um_status add_message(um_turns *t, const json_t *item, um_err *err) {
    static const char roles[] = "user|assistant|system|developer";
    const char *role = member(item, "role");
    um_str at;
    if (!role || um_word_index(roles, '|', role, &at) < 0)
        return um_fail(err, UM_EINVAL, "role \"%.40s\", expected user, assistant, system or developer",
                       role ? role : "");
    if (um_streq(role, "assistant") && t->last && !json_object_get(t->last, "content")) um_turns_join(t, role);
    else um_turns_begin(t, role);
    return add_content(t, json_object_get(item, "content"), err);
}

static um_status add_call(um_turns *t, const json_t *item, um_err *err) {
    const json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name"),
                 *arguments = json_object_get(item, "arguments");
    if (!json_is_string(id) || !json_is_string(name) || !json_is_string(arguments))
        return um_fail(err, UM_EINVAL, "a function_call has the texts call_id, name and arguments");
    um_turns_join(t, "assistant");
    um_turns_add_call(t, id, name, arguments);
    return UM_OK;
}

static um_status add_result(um_turns *t, const json_t *item, um_err *err) {
    const json_t *id = json_object_get(item, "call_id");
    if (!json_is_string(id)) return um_fail(err, UM_EINVAL, "a function_call_output has a call_id");
    um_turns_begin_result(t, id);
    return add_content(t, json_object_get(item, "output"), err);
}

/* The text of thoughts is their content, or else their summary. */
static um_status add_thoughts(um_turns *t, const json_t *item, um_err *err) {
    const json_t *content = json_object_get(item, "content"), *summary = json_object_get(item, "summary");
    const json_t *parts = json_array_size(content) ? content : summary;
    um_turns_begin(t, "assistant");
    for (size_t k = 0; k < json_array_size(parts); k++) {
        const json_t *text = json_object_get(json_array_get(parts, k), "text");
        if (!json_is_string(text)) return um_fail(err, UM_EINVAL, "part %zu: expected the text in \"text\"", k);
        um_turns_add_reasoning(t, text);
    }
    return UM_OK;
}

static const struct {
    const char *type, *id_prefix;
    um_status (*add)(um_turns *t, const json_t *item, um_err *err);
} kinds[] = {
    {"message", "msg_", add_message},
    {"function_call", "fc_", add_call},
    {"function_call_output", "fco_", add_result},
    {"reasoning", "rs_", add_thoughts},
};

/* Returns the index of the kind of an item, or UM_LEN(kinds). */
static size_t kind_of(const json_t *item) {
    const char *type = member(item, "type");
    size_t k = 0;
    if (!type && member(item, "role")) return 0;
    while (k < UM_LEN(kinds) && !um_streq(type, kinds[k].type)) k++;
    return k;
}

static um_status add_item(um_turns *t, const json_t *item, um_err *err) {
    size_t k = kind_of(item);
    if (!json_is_object(item)) return um_fail(err, UM_EINVAL, "expected an object, found %s", um_json_kind(item));
    if (k < UM_LEN(kinds)) return kinds[k].add(t, item, err);
    return um_fail(err, UM_EINVAL, "the server has no items of the type \"%.60s\"",
                   member(item, "type") ? member(item, "type") : "");
}

/* ---- Stored items ------------------------------------------------------------------------------------------------ */

/* Returns a message of the user with this text; a new reference. */
static json_t *message_of(const json_t *text) {
    return json_pack("{s:s, s:s, s:O}", "type", "message", "role", "user", "content", text);
}

/* Returns the item with the members that stored items have: an id, a type, a list as content. */
static json_t *complete_item(const json_t *item) {
    json_t *v = json_copy((json_t *)(uintptr_t)item);
    const json_t *content = json_object_get(v, "content");
    size_t k = kind_of(v);
    char id[64];
    if (k == UM_LEN(kinds)) return v;
    um_make_id(kinds[k].id_prefix, id);
    if (!member(v, "id")) json_object_set_new(v, "id", json_string(id));
    if (!member(v, "type")) json_object_set_new(v, "type", json_string(kinds[k].type));
    if (!member(v, "status")) json_object_set_new(v, "status", json_string("completed"));
    if (k == 0 && json_is_string(content)) {
        const char *type = um_streq(member(v, "role"), "assistant") ? "output_text" : "input_text";
        json_object_set_new(v, "content", json_pack("[{s:s, s:O}]", "type", type, "text", content));
    }
    return v;
}

/* Reads a finished result of the store and its items. *found: whether there is one with this kind of id. */
static um_status load(const um_body *b, const char *id, const char *prefix, bool *found, json_t **result,
                      json_t **items, um_err *err) {
    um_buf json = {0}, text = {0};
    um_status st = UM_OK;
    *found = strncmp(id, prefix, strlen(prefix)) == 0 &&
             um_stored_copy(b->setup->results, id, b->capacity.owner, &json, &text) && text.len;
    if (*found) st = um_json_parse_exact(result, json.data, json.len, "response", err);
    if (*found && !st) st = um_json_parse_exact(items, text.data, text.len, "items", err);
    um_buf_free(&json);
    um_buf_free(&text);
    return st;
}

/* Appends the items of an earlier response, and its output. */
static um_status add_previous(um_body *b, json_t *items, um_err *err) {
    const char *id = member(b->root, "previous_response_id");
    json_t *response = NULL, *earlier = NULL;
    bool found;
    if (!id) return UM_OK;
    um_status st = load(b, id, UM_RESPONSE_PREFIX, &found, &response, &earlier, err);
    const char *status = member(response, "status");
    if (!found) {
        b->error_code = "previous_response_not_found";
        st = um_fail_param(err, UM_EINVAL, "previous_response_id",
                           "there is no finished response \"%.100s\"; it was not stored, or has expired", id);
    } else if (!st && !um_streq(status, "completed") && !um_streq(status, "incomplete")) {
        st = um_fail_param(err, UM_EINVAL, "previous_response_id", "the response is %s and can't be continued",
                           status ? status : "broken");
    }
    if (!st) json_array_extend(items, earlier);
    if (!st) json_array_extend(items, json_object_get(response, "output"));
    json_decref(response);
    json_decref(earlier);
    return st;
}

const char *um_responses_conversation(const um_body *b) {
    const json_t *v = json_object_get(b->root, "conversation");
    return json_is_object(v) ? member(v, "id") : json_string_value(v);
}

/* Appends the items of the conversation. */
static um_status add_conversation(const um_body *b, json_t *items, um_err *err) {
    const char *id = um_responses_conversation(b);
    json_t *conversation = NULL, *earlier = NULL;
    bool found;
    if (!id) return UM_OK;
    if (member(b->root, "previous_response_id"))
        return um_fail_param(err, UM_EINVAL, "conversation", "a response can't have a previous_response_id, too");
    if (json_is_false(json_object_get(b->root, "store")))
        return um_fail_param(err, UM_EINVAL, "conversation", "such a response must be stored");
    um_status st = load(b, id, UM_CONVERSATION_PREFIX, &found, &conversation, &earlier, err);
    if (!found)
        st = um_fail_param(err, UM_EINVAL, "conversation", "there is no conversation \"%.100s\"; it may have expired",
                           id);
    if (!st) json_array_extend(items, earlier);
    json_decref(conversation);
    json_decref(earlier);
    return st;
}

um_status um_response_items_read(json_t *items, const json_t *v, um_err *err) {
    um_turns t;
    um_status st = UM_OK;
    if (!json_is_array(v)) return um_fail(err, UM_EINVAL, "expected a list of items, found %s", um_json_kind(v));
    um_turns_init(&t);
    for (size_t i = 0; i < json_array_size(v) && !st; i++) {
        st = add_item(&t, json_array_get(v, i), err);
        if (st) um_fail_in(err, "items[%zu]", i);
        else json_array_append_new(items, complete_item(json_array_get(v, i)));
    }
    um_turns_end(&t);
    um_turns_free(&t);
    return st;
}

/* The text or the list of the request. */
static um_status add_input(json_t *items, const json_t *v, um_err *err) {
    if (json_is_string(v)) {
        json_t *one = message_of(v);
        json_array_append_new(items, complete_item(one));
        json_decref(one);
        return UM_OK;
    }
    if (!json_is_array(v))
        return um_fail(err, UM_EINVAL, "\"input\": expected a string or a list of items, found %s", um_json_kind(v));
    for (size_t i = 0; i < json_array_size(v); i++) json_array_append_new(items, complete_item(json_array_get(v, i)));
    if (json_array_size(items)) return UM_OK;
    return um_fail(err, UM_EINVAL, "\"input\" must not be empty");
}

static const char *dump_items(um_body *b, const json_t *items) {
    um_buf text = {0};
    um_json_put_exact(items, &text);
    const char *copy = um_arena_strndup(&b->arena, text.data, text.len);
    um_buf_free(&text);
    return copy;
}

/* Checks the size of the items that the conversation would have. The length of the prompt does not bound it, because
 * unknown members of items are stored but not part of the prompt. */
static um_status check_conversation(const um_body *b, um_err *err) {
    const size_t n = um_responses_conversation(b) ? strlen(b->items_json) : 0;
    if (n <= UM_CONVERSATION_BYTES_MAX) return UM_OK;
    return um_fail_param(err, UM_ELIMIT, "conversation", "it would have %zu bytes of items, at most %zu", n,
                         UM_CONVERSATION_BYTES_MAX);
}

/* Instructions come first, and hold for this response only. */
static um_status take_input(um_body *b, const json_t *v, um_err *err) {
    const json_t *instructions = json_object_get(b->root, "instructions");
    json_t *items = json_array();
    um_turns t;
    um_turns_init(&t);
    if (json_is_string(instructions)) {
        um_turns_begin(&t, "system");
        um_turns_add_text(&t, instructions);
    }
    um_status st = add_previous(b, items, err);
    if (!st) st = add_conversation(b, items, err);
    size_t n_before = json_array_size(items);
    if (!st) st = add_input(items, v, err);
    for (size_t i = 0; i < json_array_size(items) && !st; i++) {
        st = add_item(&t, json_array_get(items, i), err);
        if (st) um_fail_in(err, "input[%zu]", i - UM_MIN(n_before, i));
    }
    um_turns_end(&t);
    if (!st) st = um_body_take_messages(b, t.messages, err);
    if (!st && !json_is_false(json_object_get(b->root, "store"))) b->items_json = dump_items(b, items);
    if (!st) st = check_conversation(b, err);
    b->n_earlier_items = (int32_t)n_before;
    b->prompt_name = "input";
    um_turns_free(&t);
    json_decref(items);
    return st;
}

/* ---- Tools ------------------------------------------------------------------------------------------------------- */

static um_status take_tools(um_body *b, const json_t *v, um_err *err) {
    if (!json_is_array(v)) return um_fail(err, UM_EINVAL, "\"tools\": expected an array, found %s", um_json_kind(v));
    json_t *tools = json_array();
    um_status st = UM_OK;
    for (size_t i = 0; i < json_array_size(v) && !st; i++) {
        const json_t *tool = json_array_get(v, i);
        const char *type = member(tool, "type");
        if (!um_streq(type, "function"))
            st = um_fail(err, UM_EINVAL, "\"tools\"[%zu]: the server has no tool of the type \"%.60s\"", i,
                         type ? type : "");
        else st = um_turns_add_tool(tools, i, tool, "parameters", err);
    }
    if (!st) st = um_body_take_tools(b, tools, err);
    json_decref(tools);
    return st;
}

/* Returns whether an object is {"type": "function", "name"}. */
static bool names_function(const json_t *v) { return um_streq(member(v, "type"), "function") && member(v, "name"); }

/* Returns whether the value is {"type": "allowed_tools", "mode", "tools": […]}, and sets the mode: auto or required. */
static bool names_allowed_tools(um_body *b, const json_t *v) {
    const json_t *tools = json_object_get(v, "tools");
    const char *mode = member(v, "mode");
    bool required = um_streq(mode, "required");
    if (!um_streq(member(v, "type"), "allowed_tools") || !json_array_size(tools)) return false;
    if (!required && !um_streq(mode, "auto")) return false;
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!names_function(json_array_get(tools, i))) return false;
    b->allowed_tools = tools;
    b->tool_choice = required ? UM_TOOLS_REQUIRED : UM_TOOLS_AUTO;
    return true;
}

/* "none", "auto", "required", {"type": "function", "name"}, or allowed tools. */
static um_status take_tool_choice(um_body *b, const json_t *v, um_err *err) {
    static const char words[] = "auto|none|required"; /* in the order of UM_TOOLS_* */
    um_str at;
    if (names_allowed_tools(b, v)) return UM_OK;
    b->tool_name = names_function(v) ? member(v, "name") : NULL;
    b->tool_choice = b->tool_name        ? UM_TOOLS_NAMED
                     : json_is_string(v) ? um_word_index(words, '|', json_string_value(v), &at)
                                         : -1;
    if (b->tool_choice >= 0) return UM_OK;
    return um_fail(
        err, UM_EINVAL,
        "\"tool_choice\": expected \"auto\", \"none\", \"required\", {\"type\": \"function\", \"name\": …} or "
        "{\"type\": \"allowed_tools\", \"mode\": …, \"tools\": […]}");
}

/* ---- Other fields ------------------------------------------------------------------------------------------------ */

static um_status check_text(const json_t *v, const char *what, um_err *err) {
    const char *text = NULL;
    return um_json_take_text(v, what, &text, err);
}

static um_status check_bool(const json_t *v, const char *what, um_err *err) {
    bool value = false;
    return um_json_take_bool(v, what, &value, err);
}

#define CHECKED(name, check)                                                                                           \
    static um_status take_##name(um_body *b, const json_t *v, um_err *err) {                                           \
        (void)b;                                                                                                       \
        return check(v, "\"" #name "\"", err);                                                                         \
    }
CHECKED(instructions, check_text)
CHECKED(previous_response_id, check_text)
CHECKED(store, check_bool)
CHECKED(background, check_bool)

um_status um_metadata_check(const json_t *v, um_err *err) {
    const char *key;
    json_t *value;
    if (v && !json_is_object(v))
        return um_fail(err, UM_EINVAL, "\"metadata\": expected an object of texts, found %s", um_json_kind(v));
    if (json_object_size(v) > METADATA_MAX)
        return um_fail(err, UM_ERANGE, "\"metadata\": %zu texts, at most %d", json_object_size(v), METADATA_MAX);
    json_object_foreach((json_t *)(uintptr_t)v, key, value) {
        if (!json_is_string(value) || json_string_length(value) > METADATA_BYTES_MAX)
            return um_fail(err, UM_EINVAL, "\"metadata\"[\"%.40s\"]: expected a string of at most %d bytes", key,
                           METADATA_BYTES_MAX);
    }
    return UM_OK;
}

static um_status take_metadata(um_body *b, const json_t *v, um_err *err) { return (void)b, um_metadata_check(v, err); }

/* The items of a conversation are read together with the input, which they precede. */
static um_status take_conversation(um_body *b, const json_t *v, um_err *err) {
    if (um_responses_conversation(b)) return UM_OK;
    return um_fail(err, UM_EINVAL, "\"conversation\": expected an id or {\"id\": …}, found %s", um_json_kind(v));
}

/* Fails if the member of an object is given and not `neutral`. */
static um_status check_neutral(const json_t *v, const char *field, const char *name, const char *neutral, um_err *err) {
    const json_t *given = json_object_get(v, name);
    if (!given || json_is_null(given) || um_streq(json_string_value(given), neutral)) return UM_OK;
    return um_fail(err, UM_EINVAL, "\"%s\".%s: only \"%s\" is supported", field, name, neutral);
}

/* Returns the summary that the request asks for, under its present or its earlier name. */
static const json_t *summary_of(const um_body *b) {
    const json_t *reasoning = json_object_get(b->root, "reasoning"), *v = json_object_get(reasoning, "summary");
    if (!v || json_is_null(v)) v = json_object_get(reasoning, "generate_summary");
    return json_is_null(v) ? NULL : v;
}

static um_status take_reasoning(um_body *b, const json_t *v, um_err *err) {
    static const char field[] = "reasoning";
    const json_t *effort = json_object_get(v, "effort"), *summary = summary_of(b);
    um_status st = um_conversation_check_members(b, v, field, "effort|summary|generate_summary|mode|context", err);
    if (!st && effort && !json_is_null(effort))
        st = um_json_take_text(effort, "\"reasoning\".effort", &b->reasoning_effort, err);
    if (!st && summary) st = check_text(summary, "\"reasoning\".summary", err);
    if (!st) st = check_neutral(v, field, "mode", "standard", err);
    return st ? st : check_neutral(v, field, "context", "auto", err);
}

/* {"format": {"type": "json_schema", "name", "schema", "strict"}, "verbosity": "medium"} */
static um_status take_text(um_body *b, const json_t *v, um_err *err) {
    const json_t *format = json_object_get(v, "format");
    um_status st = um_conversation_check_members(b, v, "text", "format|verbosity", err);
    if (!st && format && !json_is_null(format)) st = um_body_take_format(b, "text", format, format, err);
    return st ? st : check_neutral(v, "text", "verbosity", "medium", err);
}

static um_status want_logprobs(um_body *b, um_err *err) {
    return um_body_is_set(b, "logprobs") ? UM_OK : um_body_set(b, "logprobs", "0", err);
}

/* Thoughts are never encrypted: their items have the text, which a later request may send back. */
static um_status take_include(um_body *b, const json_t *v, um_err *err) {
    um_status st = UM_OK;
    if (!json_is_array(v)) return um_fail(err, UM_EINVAL, "\"include\": expected an array, found %s", um_json_kind(v));
    for (size_t i = 0; i < json_array_size(v) && !st; i++) {
        const char *word = json_string_value(json_array_get(v, i));
        if (um_streq(word, "message.output_text.logprobs")) st = want_logprobs(b, err);
        else if (!um_streq(word, "reasoning.encrypted_content"))
            st = um_fail(err, UM_EINVAL, "\"include\": the server has no \"%.60s\"", word ? word : "");
    }
    return st;
}

/* include_obfuscation is ignored; its row in the table says why. */
static um_status take_stream_options(um_body *b, const json_t *v, um_err *err) {
    return um_conversation_check_members(b, v, "stream_options", "include_obfuscation", err);
}

#define ONE_ANSWER "this API returns one answer"

static const um_field rows[] = {
    {.name = "input", .take = take_input, .types = "string|array"},
    {.name = "instructions", .take = take_instructions, .types = "string"},
    {.name = "previous_response_id", .take = take_previous_response_id, .types = "string"},
    {.name = "conversation", .take = take_conversation, .types = "string|object"},
    {.name = "max_output_tokens", .option = "max_tokens"},
    {.name = "tools", .take = take_tools, .types = "array"},
    {.name = "tool_choice", .take = take_tool_choice, .types = "string|object"},
    {.name = "reasoning", .take = take_reasoning, .types = "object"},
    {.name = "text", .take = take_text, .types = "object"},
    {.name = "include", .take = take_include, .types = "array"},
    {.name = "top_logprobs", .option = "logprobs"},
    {.name = "store", .take = take_store, .types = "boolean"},
    {.name = "background", .take = take_background, .types = "boolean"},
    {.name = "metadata", .take = take_metadata, .types = "object"},
    {.name = "stream_options", .take = take_stream_options, .types = "object"},
    {.name = "truncation", .neutral = "\"disabled\"|null", .why = "the server never cuts a prompt"},
    {.name = "prompt", .neutral = "null", .why = "the server has no stored prompts"},
    {.name = "messages", .neutral = "null", .why = "the messages of this API are items of input"},
    {.name = "context_management", .neutral = "[]|null", .why = "the server never cuts a prompt"},
    {.name = "background_options",
     .neutral = "{}|{\"completion_window\":\"soonest\"}|null",
     .why = "background responses start as soon as there is room"},
    {.name = "image", .neutral = "null", .why = "the models read and write text only"},
    {.name = "access_programs", .neutral = "{}|null", .why = "the server has no access programs"},
    {.name = "n", .neutral = "1|null", .why = ONE_ANSWER},
    {.name = "max_tool_calls", .why = "it limits calls of tools that a server runs; this server runs none"},
    {.name = "tools[].output_schema", .is_member = true, .why = "results of calls are not checked"},
    {.name = "stream_options.include_obfuscation", .is_member = true, .why = "streams are not padded"},
    {.name = "input[].*",
     .is_member = true,
     .why = "the server stores every member of an item and uses those it knows"},
};
static const um_field_set response_rows = {rows, UM_LEN(rows)};
const um_field_set *const um_responses_sets[] = {&response_rows, &um_openai_chat_fields, &um_chat_fields,
                                                 &um_common_fields, NULL};

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

bool um_responses_is_background(const um_body *b) { return json_is_true(json_object_get(b->root, "background")); }

bool um_responses_has_summary(const um_body *b) { return summary_of(b) != NULL; }

um_status um_responses_check(um_body *b, um_err *err) {
    if (um_responses_is_background(b) && !b->items_json)
        return um_fail_param(err, UM_EINVAL, "background", "such a response must be stored");
    um_status st = um_body_streams_text(b, err);
    return st ? st : um_conversation_check(b, err);
}
