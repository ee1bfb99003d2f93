/* Reads the fields of a conversation. The content of messages, tools and template variables is checked when the
 * template is rendered. */
#include <jansson.h>

#include "server/body/body.h"

um_status um_body_take_messages(um_body *b, const json_t *v, um_err *err) {
    if (!json_is_array(v)) return um_fail(err, UM_EINVAL, "\"messages\": expected an array, found %s", um_json_kind(v));
    if (json_array_size(v) == 0) return um_fail(err, UM_EINVAL, "messages must not be empty");
    um_prompt *p = um_body_prompts(b, 1, err);
    if (!p) return UM_EINVAL;
    p->kind = UM_PROMPT_CHAT;
    b->one_prompt = true;
    b->chat.messages_json = um_body_dump(b, v);
    return UM_OK;
}

static const char *tool_name(const json_t *tool) {
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

um_status um_body_take_tools(um_body *b, const json_t *v, um_err *err) {
    if (!json_is_array(v)) return um_fail(err, UM_EINVAL, "\"tools\": expected an array, found %s", um_json_kind(v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *tool = json_array_get(v, i), *type = json_object_get(tool, "type");
        if (!json_is_object(tool))
            return um_fail(err, UM_EINVAL, "\"tools\"[%zu]: expected an object, found %s", i, um_json_kind(tool));
        if (type && !um_streq(json_string_value(type), "function"))
            return um_fail(err, UM_EINVAL, "\"tools\"[%zu]: only tools of type \"function\" are supported", i);
    }
    if (json_array_size(v)) b->tools_json = um_body_dump(b, v);
    return UM_OK;
}

/* Returns whether an object has members other than `names`, "a|b". */
static bool has_others(const json_t *object, const char *names) {
    const char *key;
    json_t *value;
    um_str at;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        if (um_word_index(names, '|', key, &at) < 0) return true;
    }
    return false;
}

/* Returns whether the value is {"type": "function", "function": {"name": …}} without other members. The type may be
 * missing. */
static bool names_tool(const json_t *v) {
    const json_t *type = json_object_get(v, "type");
    return tool_name(v) && (!type || um_streq(json_string_value(type), "function")) &&
           !has_others(v, "type|function") && !has_others(json_object_get(v, "function"), "name");
}

/* Returns whether the value is {"type": "allowed_tools", "allowed_tools": {"mode": …, "tools": […]}} and sets the mode:
 * auto or required. */
static bool names_allowed_tools(um_body *b, const json_t *v) {
    const json_t *allowed = json_object_get(v, "allowed_tools"), *tools = json_object_get(allowed, "tools");
    const char *mode = json_string_value(json_object_get(allowed, "mode"));
    if (!um_streq(json_string_value(json_object_get(v, "type")), "allowed_tools") ||
        has_others(v, "type|allowed_tools") || has_others(allowed, "mode|tools") || !json_array_size(tools))
        return false;
    if (!um_streq(mode, "auto") && !um_streq(mode, "required")) return false;
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!names_tool(json_array_get(tools, i))) return false;
    b->allowed_tools = tools;
    b->tool_choice = um_streq(mode, "auto") ? UM_TOOLS_AUTO : UM_TOOLS_REQUIRED;
    return true;
}

/* "none", "auto", "required", allowed tools, or {"type": "function", "function": {"name": …}}. */
static um_status take_tool_choice(um_body *b, const json_t *v, um_err *err) {
    static const char words[] = "auto|none|required";
    um_str at;
    if (names_allowed_tools(b, v)) return UM_OK;
    b->tool_name = names_tool(v) ? tool_name(v) : NULL;
    b->tool_choice = b->tool_name        ? UM_TOOLS_NAMED
                     : json_is_string(v) ? um_word_index(words, '|', json_string_value(v), &at)
                                         : -1;
    if (b->tool_choice >= 0) return UM_OK;
    return um_fail(err, UM_EINVAL,
                   "\"tool_choice\": expected \"auto\", \"none\", \"required\", {\"type\": \"function\", "
                   "\"function\": {\"name\": …}} or {\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\": …, "
                   "\"tools\": […]}}");
}

static um_status take_template(um_body *b, const json_t *v, um_err *err) {
    return um_json_take_text(v, "\"chat_template\"", &b->chat.chat_template, err);
}

static um_status take_kwargs(um_body *b, const json_t *v, um_err *err) {
    if (!json_is_object(v))
        return um_fail(err, UM_EINVAL, "\"chat_template_kwargs\": expected an object, found %s", um_json_kind(v));
    b->chat.kwargs_json = um_body_dump(b, v);
    return UM_OK;
}

static um_status take_effort(um_body *b, const json_t *v, um_err *err) {
    return um_json_take_text(v, "\"reasoning_effort\"", &b->reasoning_effort, err);
}

#define SWITCH(name, field)                                                                                            \
    static um_status take_##name(um_body *b, const json_t *v, um_err *err) {                                           \
        return um_json_take_bool(v, "\"" #name "\"", &b->field, err);                                                  \
    }
SWITCH(add_generation_prompt, chat.add_generation_prompt)
SWITCH(continue_final_message, chat.continue_final_message)
SWITCH(parallel_tool_calls, parallel_tool_calls)
SWITCH(include_reasoning, include_reasoning)

#define OLD_TOOLS "functions are deprecated; use tools"

static const um_field rows[] = {
    {.name = "messages", .take = um_body_take_messages, .types = "array"},
    {.name = "tools", .take = um_body_take_tools, .types = "array"},
    {.name = "tool_choice", .take = take_tool_choice, .types = "string|object"},
    {.name = "parallel_tool_calls", .take = take_parallel_tool_calls, .types = "boolean"},
    {.name = "chat_template", .take = take_template, .types = "string"},
    {.name = "chat_template_kwargs", .take = take_kwargs, .types = "object"},
    {.name = "add_generation_prompt", .take = take_add_generation_prompt, .types = "boolean"},
    {.name = "continue_final_message", .take = take_continue_final_message, .types = "boolean"},
    {.name = "reasoning_effort", .take = take_effort, .types = "string"},
    {.name = "include_reasoning", .take = take_include_reasoning, .types = "boolean"},
    {.name = "functions", .neutral = "[]|null", .why = OLD_TOOLS},
    {.name = "function_call", .neutral = "\"none\"|null", .why = OLD_TOOLS},
    {.name = "messages[].*",
     .is_member = true,
     .why = "the chat template gets every member, such as name, and uses those that it knows"},
    {.name = "messages[].content[].*",
     .is_member = true,
     .why = "most chat templates use only the text of a part; cache_control, for example, has no effect"},
    {.name = "tools[].function.strict",
     .is_member = true,
     .why = "calls that tool_choice requires fit the schema in any case, others are not forced to"},
};
const um_field_set um_chat_fields = {rows, UM_LEN(rows)};

/* ---- The conversation -------------------------------------------------------------------------------------------- */

/* Refuses fields of a conversation in a request without messages, where they would have no effect. */
static um_status check_no_chat_fields(um_body *b, um_err *err) {
    for (size_t i = 0; i < UM_LEN(rows); i++)
        if (rows[i].take && um_body_has(b, rows[i].name))
            return um_fail_about(err, um_fail(err, UM_EINVAL, "\"%s\" needs \"messages\"", rows[i].name), rows[i].name);
    return UM_OK;
}

/* Adds the effort to the template variables. */
static void add_reasoning_effort(um_body *b) {
    const json_t *given = json_object_get(b->root, "chat_template_kwargs");
    if (!b->reasoning_effort) return;
    json_t *all = json_is_object(given) ? json_copy((json_t *)given) : json_object();
    json_object_set_new(all, "reasoning_effort", json_string(b->reasoning_effort));
    b->chat.kwargs_json = um_body_dump(b, all);
    json_decref(all);
}

/* Returns the tool with this name; NULL: none. */
static json_t *find_tool(const json_t *tools, const char *name) {
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (um_streq(tool_name(json_array_get(tools, i)), name)) return json_array_get(tools, i);
    return NULL;
}

/* Keeps only the tool that tool_choice names, or those that it allows, in its order, so that the model sees no other.
 * The entries of allowed tools have the name like a tool, or, in /v1/responses, themselves. */
static um_status keep_tools(um_body *b, um_err *err) {
    json_t *tools = NULL, *kept = json_array();
    um_status st = um_json_parse_exact(&tools, b->tools_json, strlen(b->tools_json), "tools", err);
    size_t n = b->allowed_tools ? json_array_size(b->allowed_tools) : 1;
    for (size_t i = 0; i < n && !st; i++) {
        const json_t *entry = json_array_get(b->allowed_tools, i);
        const char *name = !entry             ? b->tool_name
                           : tool_name(entry) ? tool_name(entry)
                                              : json_string_value(json_object_get(entry, "name"));
        json_t *tool = find_tool(tools, name);
        if (tool) json_array_append(kept, tool);
        else st = um_fail_param(err, UM_EINVAL, "tool_choice", "unknown tool \"%.100s\"", name);
    }
    if (!st) b->tools_json = um_body_dump(b, kept);
    json_decref(tools);
    json_decref(kept);
    return st;
}

static um_status apply_tool_choice(um_body *b, um_err *err) {
    bool forced = b->tool_choice == UM_TOOLS_REQUIRED || b->tool_choice == UM_TOOLS_NAMED;
    um_status st = UM_OK;
    if (forced && !b->tools_json)
        return um_fail_param(err, UM_EINVAL, "tool_choice", "it asks for a call, but the request has no tools");
    if (b->allowed_tools && !b->tools_json)
        return um_fail_param(err, UM_EINVAL, "tool_choice", "the request has no tools");
    if (b->tool_choice == UM_TOOLS_NAMED || b->allowed_tools) st = keep_tools(b, err);
    if (b->tool_choice == UM_TOOLS_NONE) b->tools_json = NULL;
    b->chat.tools_json = b->tools_json;
    return st;
}

um_status um_body_finish_chat(um_body *b, um_err *err) {
    if (!b->chat.messages_json) return check_no_chat_fields(b, err);
    add_reasoning_effort(b);
    /* A request that continues the last message has no generation prompt by default. Asking for both is an error, which
     * the template reports. */
    if (!um_body_has(b, "add_generation_prompt")) b->chat.add_generation_prompt = !b->chat.continue_final_message;
    return apply_tool_choice(b, err);
}
