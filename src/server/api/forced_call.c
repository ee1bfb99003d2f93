/* Forced calls: if the request requires a tool call, the answer is the JSON of one, by the schemas of the tools. */
#include <jansson.h>

#include "server/api/conversation.h"

/* ---- References -------------------------------------------------------------------------------------------------- */

static bool is_word(const char *words, const char *key) {
    um_str at;
    return um_word_index(words, '|', key, &at) >= 0;
}

/* Puts the place of a tool's schema in front of a reference into this schema: "#/$defs/x". */
static void move_reference(json_t *schema, const char *place) {
    const char *to = json_string_value(json_object_get(schema, "$ref"));
    um_buf moved = {0};
    if (!to || *to != '#') return;
    um_buf_printf(&moved, "%s%s", place, to + 1);
    json_object_set_new(schema, "$ref", json_stringn(moved.data, moved.len));
    um_buf_free(&moved);
}

static void move_references(json_t *v, const char *place, bool is_schema) {
    const char *key;
    json_t *value;
    for (size_t i = 0; i < json_array_size(v); i++) move_references(json_array_get(v, i), place, true);
    if (!json_is_object(v)) return;
    if (is_schema) move_reference(v, place);
    json_object_foreach(v, key, value) {
        if (is_schema && is_word("const|enum|default|examples", key)) continue; /* values, not schemas */
        move_references(value, place,
                        !is_schema || !is_word("properties|patternProperties|dependentSchemas|$defs|definitions", key));
    }
}

/* ---- The schema -------------------------------------------------------------------------------------------------- */

/* Returns the schema of a tool's arguments. A function without parameters takes none. */
static json_t *arguments_of(const json_t *function, const char *place) {
    json_t *given = json_object_get(function, "parameters");
    if (!given || json_is_null(given))
        return json_pack("{s:s, s:{}, s:b}", "type", "object", "properties", "additionalProperties", 0);
    json_t *schema = json_deep_copy(given);
    move_references(schema, place, true);
    return schema;
}

/* Returns the schema of {"name": …, key: …} for a tool; `root` is its place. */
static json_t *call_of(const json_t *tool, const char *root, const char *key) {
    const json_t *function = json_object_get(tool, "function");
    um_buf place = {0};
    um_buf_printf(&place, "%s/properties/%s", root, key);
    json_t *call = json_pack("{s:s, s:{s:{s:O}, s:o}, s:[s, s], s:b}", "type", "object", "properties", "name", "const",
                             json_object_get(function, "name"), key, arguments_of(function, place.data), "required",
                             "name", key, "additionalProperties", 0);
    um_buf_free(&place);
    return call;
}

/* Returns the schema of a call of any of the tools. */
static json_t *calls_of(const json_t *tools, const char *key) {
    const size_t n = json_array_size(tools);
    if (n == 1) return call_of(json_array_get(tools, 0), "#", key);
    json_t *calls = json_array();
    for (size_t i = 0; i < n; i++) {
        char place[40];
        snprintf(place, sizeof place, "#/anyOf/%zu", i);
        json_array_append_new(calls, call_of(json_array_get(tools, i), place, key));
    }
    return json_pack("{s:o}", "anyOf", calls);
}

static um_status check_names(const json_t *tools, um_err *err) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *name = json_object_get(json_object_get(json_array_get(tools, i), "function"), "name");
        if (!json_is_string(name))
            return um_fail_param(err, UM_EINVAL, "tools", "tool %zu has no name, so no call of it can be required", i);
    }
    return UM_OK;
}

um_status um_conversation_force_call(um_body *b, const um_tool_format *format, um_err *err) {
    json_t *tools = NULL;
    um_status st = um_json_parse_exact(&tools, b->tools_json, strlen(b->tools_json), "tools", err);
    if (!st) st = check_names(tools, err);
    if (!st) {
        json_t *schema = calls_of(tools, format && format->key ? format->key : "arguments");
        st = um_body_constrain_json(b, "tools", schema, err);
        json_decref(schema);
    }
    json_decref(tools);
    b->forces_call = true;
    b->opening = um_str_of(format ? format->opening : NULL);
    return st;
}
