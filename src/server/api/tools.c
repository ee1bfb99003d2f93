/* Tool calls in the text of an answer. */
#include <jansson.h>

#include "server/api/answer.h"

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static size_t skip_space(um_str s, size_t i) {
    while (i < s.n && strchr(" \n\r\t", s.p[i])) i++;
    return i;
}

/* Behind the string that begins at i. The text is JSON. */
static size_t skip_string(um_str s, size_t i) {
    for (i++; i < s.n && s.p[i] != '"'; i++)
        if (s.p[i] == '\\') i++;
    return i + 1;
}

/* Behind the value that begins at i. */
static size_t skip_value(um_str s, size_t i) {
    int depth = 0;
    for (; i < s.n; i++) {
        char c = s.p[i];
        if (c == '"') i = skip_string(s, i) - 1;
        else if (c == '{' || c == '[') depth++;
        else if (depth == 0 && (c == ',' || c == '}' || c == ']')) break;
        else if (c == '}' || c == ']') depth--;
    }
    return i;
}

/* A member of an object as it is written, so that numbers keep their digits; p NULL when there is none. */
static um_str member(um_str s, const char *key) {
    size_t i = skip_space(s, 0) + 1, n = strlen(key);
    for (i = skip_space(s, i); i < s.n && s.p[i] == '"'; i = skip_space(s, i + 1)) {
        size_t from = i + 1;
        i = skip_string(s, i);
        bool same = i - 1 - from == n && memcmp(s.p + from, key, n) == 0;
        from = skip_space(s, skip_space(s, i) + 1); /* behind the colon */
        i = skip_value(s, from);
        size_t end = i;
        while (end > from && strchr(" \n\r\t", s.p[end - 1])) end--;
        if (same) return (um_str){s.p + from, end - from};
    }
    return (um_str){NULL, 0};
}

/* {"name": …, "arguments": …}; Llama writes "parameters". Arguments are an object, or JSON in a string. */
static bool say_call(um_str text, const json_t *call, um_part_fn fn, void *arg) {
    const char *key = json_object_get(call, "arguments") ? "arguments" : "parameters";
    const json_t *name = json_object_get(call, "name"), *given = json_object_get(call, key);
    um_part part = {.kind = UM_PART_CALL, .text = UM_STR("{}")}; /* between markers they may be missing */
    if (!json_is_string(name) || (given && !json_is_object(given) && !json_is_string(given))) return false;
    part.name = (um_str){json_string_value(name), json_string_length(name)};
    if (json_is_object(given)) part.text = member(text, key);
    if (json_is_string(given)) part.text = (um_str){json_string_value(given), json_string_length(given)};
    if (!part.text.p) return false; /* the key is written with an escape */
    fn(arg, &part);
    return true;
}

static bool read_hermes(um_str text, um_part_fn fn, void *arg) {
    json_t *call = json_loadb(text.p, text.n, JSON_ALLOW_NUL, NULL);
    bool said = json_is_object(call) && say_call(text, call, fn, arg);
    json_decref(call);
    return said;
}

/* Objects one behind the other, perhaps with semicolons between. All of them are calls, or none is: the first round
 * looks, the second says. */
static bool each_object(um_str text, um_part_fn fn, void *arg) {
    size_t n = 0;
    for (size_t i = skip_space(text, 0); i < text.n; i = skip_space(text, i), n++) {
        json_error_t where;
        um_str rest = {text.p + i, text.n - i};
        json_t *call = json_loadb(rest.p, rest.n, JSON_ALLOW_NUL | JSON_DISABLE_EOF_CHECK, &where);
        bool has = json_object_get(call, "parameters") || json_object_get(call, "arguments");
        bool said = has && say_call((um_str){rest.p, (size_t)where.position}, call, fn, arg);
        json_decref(call);
        if (!said) return false;
        i = skip_space(text, i + (size_t)where.position);
        if (i < text.n && text.p[i] == ';') i++;
    }
    return n > 0;
}

static void ignore(void *arg, const um_part *p) { (void)arg, (void)p; }

static bool read_llama3(um_str text, um_part_fn fn, void *arg) {
    static const char tag[] = "<|python_tag|>";
    if (um_begins_with(text, tag) > 0) text = (um_str){text.p + strlen(tag), text.n - strlen(tag)};
    return each_object(text, ignore, NULL) && each_object(text, fn, arg);
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

const um_tool_format um_tool_formats[] = {
    {.name = "hermes",
     .aliases = "qwen|qwen2_5|qwen3|sdar|llada2",
     .summary = "<tool_call>{\"name\": …, \"arguments\": {…}}</tool_call>",
     .begin = "<tool_call>",
     .end = "</tool_call>",
     .read = read_hermes,
     .opening = "<tool_call>\n{\"name\": \"",
     .opening_named = "<tool_call>\n{\"name\": \"%s\", \"arguments\": "},
    {.name = "llama3_json",
     .aliases = "llama3|llama",
     .summary = "the whole answer is {\"name\": …, \"parameters\": {…}}, several behind each other",
     .starts = "{ <|python_tag|>",
     .read = read_llama3,
     .opening = "{\"name\": \"",
     .opening_named = "{\"name\": \"%s\", \"parameters\": "},
};
const size_t um_n_tool_formats = UM_LEN(um_tool_formats);

um_status um_tool_format_find(const um_tool_format **out, const char *name, um_err *err) {
    um_str at;
    *out = NULL;
    if (!name || !*name) return UM_OK;
    for (size_t i = 0; i < um_n_tool_formats && !*out; i++) {
        const um_tool_format *f = &um_tool_formats[i];
        if (um_streq(name, f->name) || um_word_index(f->aliases, '|', name, &at) >= 0) *out = f;
    }
    if (*out) return UM_OK;
    um_buf names = {0};
    for (size_t i = 0; i < um_n_tool_formats; i++)
        um_buf_printf(&names, "%s%s", i ? ", " : "", um_tool_formats[i].name);
    um_status st = um_fail_param(err, UM_EINVAL, "tool_call_parser", "\"%.60s\" is none of %s", name, names.data);
    um_buf_free(&names);
    return st;
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

enum { OUTSIDE, INSIDE, UNDECIDED = OUTSIDE, CALLS = INSIDE, PLAIN };

static um_str held(const um_tool_reader *t) { return (um_str){t->held.data ? t->held.data : "", t->held.len}; }

static void consume(um_tool_reader *t, size_t n) {
    memmove(t->held.data, t->held.data + n, t->held.len - n);
    t->held.len -= n;
    t->held.data[t->held.len] = '\0';
}

static void say_content(um_tool_reader *t, um_str text, um_part_fn fn, void *arg) {
    um_edges_put(&t->edges, UM_PART_CONTENT, text, fn, arg);
}

/* Text up to the next call; false: more is needed. */
static bool to_call(um_tool_reader *t, um_part_fn fn, void *arg) {
    bool whole;
    size_t at = um_marker_find(held(t), t->format->begin, &whole);
    bool found = whole && at < t->held.len;
    say_content(t, (um_str){held(t).p, at}, fn, arg);
    if (at || found) consume(t, at + (found ? strlen(t->format->begin) : 0));
    if (found) t->state = INSIDE;
    return found;
}

/* What is between the markers is a call, or else text with its markers. `end`: the one that was found, or "". */
static void say_inside(um_tool_reader *t, um_str inside, const char *end, um_part_fn fn, void *arg) {
    if (t->format->read(inside, fn, arg)) {
        um_edges_drop(&t->edges);
        return;
    }
    say_content(t, um_str_of(t->format->begin), fn, arg);
    say_content(t, inside, fn, arg);
    say_content(t, um_str_of(end), fn, arg);
}

static bool to_end(um_tool_reader *t, um_part_fn fn, void *arg) {
    bool whole;
    size_t at = um_marker_find(held(t), t->format->end, &whole);
    if (!whole || at == t->held.len) return false;
    say_inside(t, (um_str){held(t).p, at}, t->format->end, fn, arg);
    consume(t, at + strlen(t->format->end));
    t->state = OUTSIDE;
    return true;
}

/* An answer that may be calls as a whole waits for its end; any other goes out as it comes. */
static void push_whole(um_tool_reader *t, um_part_fn fn, void *arg) {
    size_t blank = skip_space(held(t), 0);
    um_str text = {held(t).p + blank, held(t).n - blank};
    if (t->state == UNDECIDED && text.n) {
        int begins = um_begins_with(text, t->format->starts);
        if (begins) t->state = begins > 0 ? CALLS : PLAIN;
    }
    if (t->state != PLAIN) return;
    say_content(t, held(t), fn, arg);
    um_buf_clear(&t->held);
}

void um_tools_push(um_tool_reader *t, um_str text, um_part_fn fn, void *arg) {
    if (!t->format) {
        if (text.n) fn(arg, &(um_part){.kind = UM_PART_CONTENT, .text = text});
        return;
    }
    um_buf_append(&t->held, text.p, text.n);
    if (!t->format->begin) {
        push_whole(t, fn, arg);
        return;
    }
    while (t->state == OUTSIDE ? to_call(t, fn, arg) : to_end(t, fn, arg))
        ;
}

/* A call whose end marker is missing counts when it is whole: the marker is the last thing that a limit cuts off. */
void um_tools_end(um_tool_reader *t, um_part_fn fn, void *arg) {
    if (!t->format) return;
    if (t->state == INSIDE && t->format->begin) {
        say_inside(t, held(t), "", fn, arg);
    } else if (t->held.len) {
        um_str text = held(t);
        size_t blank = skip_space(text, 0);
        bool calls = t->state == CALLS && t->format->read((um_str){text.p + blank, text.n - blank}, fn, arg);
        if (!calls) say_content(t, text, fn, arg);
    }
    um_buf_clear(&t->held);
    um_edges_flush(&t->edges, UM_PART_CONTENT, fn, arg);
}

/* A call waits with its marker, which is not held any more. */
size_t um_tools_waiting(const um_tool_reader *t) {
    size_t marker = t->format && t->format->begin && t->state == INSIDE ? strlen(t->format->begin) : 0;
    return t->edges.space.len + marker + t->held.len;
}
