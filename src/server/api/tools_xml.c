/* Tool calls in the form of XML: <function=NAME><parameter=KEY>VALUE</parameter></function>. Values are not quoted, so
 * that the schema of the tool says whether 12 is a number or a string. */
#include <jansson.h>
#include <strings.h>

#include "server/api/answer.h"

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static void skip_blanks(um_str *s) {
    while (s->n && is_blank(*s->p)) *s = (um_str){s->p + 1, s->n - 1};
}

/* Takes a text from the front of *s. Returns false if *s does not begin with it. */
static bool take(um_str *s, const char *text) {
    size_t n = strlen(text);
    if (s->n < n || memcmp(s->p, text, n) != 0) return false;
    *s = (um_str){s->p + n, s->n - n};
    return true;
}

/* Takes the text up to a marker, and the marker. Returns false if the marker is missing. */
static bool take_until(um_str *s, const char *marker, um_str *out) {
    bool whole;
    size_t at = um_marker_find(*s, marker, &whole);
    if (!whole || at == s->n) return false;
    *out = (um_str){s->p, at};
    *s = (um_str){s->p + at + strlen(marker), s->n - at - strlen(marker)};
    return true;
}

/* ---- Types ------------------------------------------------------------------------------------------------------- */

static bool is_string(const json_t *v, um_str text) {
    return json_is_string(v) && um_str_eq((um_str){json_string_value(v), json_string_length(v)}, text);
}

/* Returns the schema of a function's parameter; NULL: none. */
static const json_t *schema_of(const json_t *tools, um_str function, const char *key) {
    size_t i;
    json_t *tool;
    json_array_foreach((json_t *)(uintptr_t)tools, i, tool) {
        const json_t *f = json_object_get(tool, "function");
        if (!is_string(json_object_get(f, "name"), function)) continue;
        return json_object_get(json_object_get(json_object_get(f, "parameters"), "properties"), key);
    }
    return NULL;
}

/* Returns whether the schema's type is, or has among others, this one. */
static bool has_type(const json_t *schema, const char *type) {
    const json_t *v = json_object_get(schema, "type");
    if (!json_is_array(v)) return is_string(v, um_str_of(type));
    for (size_t i = 0; i < json_array_size(v); i++)
        if (is_string(json_array_get(v, i), um_str_of(type))) return true;
    return false;
}

static bool is_json(um_str text) {
    json_t *v = json_loadb(text.p, text.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    json_decref(v);
    return v != NULL;
}

/* Writes a value: JSON as it is spelled, True and False of Python, or a string. */
static void put_value(um_jw *w, const json_t *schema, um_str text) {
    const bool truth = has_type(schema, "boolean");
    if (truth && text.n == 4 && strncasecmp(text.p, "true", 4) == 0) um_jw_bool(w, true);
    else if (truth && text.n == 5 && strncasecmp(text.p, "false", 5) == 0) um_jw_bool(w, false);
    else if (!has_type(schema, "string") && is_json(text)) um_jw_raw(w, text.p, text.n);
    else um_jw_str(w, text.p, text.n);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

/* Takes <parameter=KEY>VALUE</parameter> and writes it. A line break next to the tags is not part of the value. A key
 * has no NUL, because schemas are looked up by it. */
static bool take_parameter(const json_t *tools, um_str function, um_str *text, um_jw *w) {
    um_str key, value;
    if (!take(text, "<parameter=") || !take_until(text, ">", &key) || !take_until(text, "</parameter>", &value))
        return false;
    if (!key.n || memchr(key.p, '\0', key.n) || um_utf8_check(key.p, key.n) != key.n) return false;
    if (value.n && *value.p == '\n') value = (um_str){value.p + 1, value.n - 1};
    if (value.n && value.p[value.n - 1] == '\n') value.n--;
    char *name = um_strndup(key.p, key.n);
    um_jw_key(w, name);
    put_value(w, schema_of(tools, function, name), value);
    um_free(name);
    skip_blanks(text);
    return true;
}

static bool take_call(const json_t *tools, um_str *text, um_str *function, um_buf *arguments) {
    um_jw w;
    um_jw_init(&w, arguments);
    skip_blanks(text);
    if (!take(text, "<function=") || !take_until(text, ">", function) || !function->n) return false;
    if (um_utf8_check(function->p, function->n) != function->n) return false;
    um_jw_begin_object(&w);
    for (skip_blanks(text); !take(text, "</function>");)
        if (!take_parameter(tools, *function, text, &w)) return false;
    um_jw_end_object(&w);
    skip_blanks(text);
    return true;
}

/* The arguments must be an object without duplicate keys, as those in JSON. */
static bool is_object(const um_buf *arguments) {
    json_t *v = json_loadb(arguments->data, arguments->len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    json_decref(v);
    return v != NULL;
}

bool um_tool_parse_xml(const char *tools, um_str text, um_answer_part_fn fn, void *arg) {
    json_t *known = tools ? json_loads(tools, JSON_ALLOW_NUL, NULL) : NULL;
    um_buf arguments = {0};
    um_str function;
    bool ok = take_call(known, &text, &function, &arguments) && !text.n && is_object(&arguments);
    if (ok)
        fn(arg, &(um_answer_part){.kind = UM_ANSWER_CALL, .name = function, .text = {arguments.data, arguments.len}});
    um_buf_free(&arguments);
    json_decref(known);
    return ok;
}
