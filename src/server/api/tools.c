/* The formats of tool calls in the text of an answer, and their parser. */
#include <ctype.h>
#include <jansson.h>

#include "server/api/answer.h"

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static size_t skip_space(um_str s, size_t i) {
    while (i < s.n && is_space(s.p[i])) i++;
    return i;
}

/* Returns the offset after the string that begins at i. The text is valid JSON. */
static size_t skip_string(um_str s, size_t i) {
    for (i++; i < s.n && s.p[i] != '"'; i++)
        if (s.p[i] == '\\') i++;
    return i + 1;
}

/* Returns the offset after the value that begins at i. */
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

/* Returns a member of an object as it is spelled in the text, so that numbers keep all their digits. p is NULL if the
 * member is missing. */
static um_str member(um_str s, const char *key) {
    size_t i = skip_space(s, 0) + 1, n = strlen(key);
    for (i = skip_space(s, i); i < s.n && s.p[i] == '"'; i = skip_space(s, i + 1)) {
        size_t from = i + 1;
        i = skip_string(s, i);
        bool same = i - 1 - from == n && memcmp(s.p + from, key, n) == 0;
        from = skip_space(s, skip_space(s, i) + 1); /* after the colon */
        i = skip_value(s, from);
        size_t end = i;
        while (end > from && is_space(s.p[end - 1])) end--;
        if (same) return (um_str){s.p + from, end - from};
    }
    return (um_str){NULL, 0};
}

/* Passes on the call {"name": …, "arguments": …}. Llama writes "parameters" for "arguments". The arguments are an
 * object or a string that holds JSON. Returns false if the object is not a call. */
static bool emit_call(um_str text, const json_t *call, um_answer_part_fn fn, void *arg) {
    const char *key = json_object_get(call, "arguments") ? "arguments" : "parameters";
    const json_t *name = json_object_get(call, "name"), *given = json_object_get(call, key);
    um_answer_part part = {.kind = UM_ANSWER_CALL, .text = UM_STR("{}")}; /* arguments may be missing */
    if (!json_is_string(name) || (given && !json_is_object(given) && !json_is_string(given))) return false;
    part.name = (um_str){json_string_value(name), json_string_length(name)};
    if (json_is_object(given)) part.text = member(text, key);
    if (json_is_string(given)) part.text = (um_str){json_string_value(given), json_string_length(given)};
    if (!part.text.p) return false; /* member() doesn't find a key that is written with an escape */
    fn(arg, &part);
    return true;
}

/* Removes n bytes and the white space after them from the front of the text. */
static void skip(um_str *text, size_t n) {
    n = skip_space(*text, n);
    *text = (um_str){text->p + n, text->n - n};
}

/* Removes the marker and the white space after it. Returns false if the text does not begin with it. */
static bool take_marker(um_str *text, const char *marker) {
    size_t n = strlen(marker);
    if (text->n < n || memcmp(text->p, marker, n) != 0) return false;
    skip(text, n);
    return true;
}

/* Takes the object at the front of the text, and its spelling; json_decref. NULL: there is none. */
static json_t *take_object(um_str *text, um_str *spelling) {
    json_error_t where;
    json_t *v = json_loadb(text->p, text->n, JSON_ALLOW_NUL | JSON_DISABLE_EOF_CHECK, &where);
    if (json_is_object(v)) {
        *spelling = (um_str){text->p, (size_t)where.position};
        skip(text, spelling->n);
        return v;
    }
    json_decref(v);
    return NULL;
}

static bool take_call(um_str *text, um_answer_part_fn fn, void *arg) {
    um_str spelling;
    json_t *call = take_object(text, &spelling);
    bool ok = call && emit_call(spelling, call, fn, arg);
    json_decref(call);
    return ok;
}

static void ignore(void *arg, const um_answer_part *p) { (void)arg, (void)p; }

/* A function that passes on the calls of a text and returns whether all of the text is calls. */
typedef bool (*emit_fn)(um_str text, um_answer_part_fn fn, void *arg);

/* Either all of the text is calls, or it is content. The first round only checks. */
static bool emit_all(emit_fn emit, um_str text, um_answer_part_fn fn, void *arg) {
    skip(&text, 0);
    return emit(text, ignore, NULL) && emit(text, fn, arg);
}

static bool parse_hermes(const char *tools, um_str text, um_answer_part_fn fn, void *arg) {
    (void)tools;
    skip(&text, 0);
    um_str rest = text;
    return take_call(&rest, ignore, NULL) && !rest.n && take_call(&text, fn, arg);
}

/* Objects that semicolons may separate. Only one with arguments is a call. */
static bool emit_objects(um_str text, um_answer_part_fn fn, void *arg) {
    bool ok = text.n > 0;
    while (ok && text.n) {
        um_str call = text;
        ok = take_call(&text, fn, arg);
        call.n -= text.n;
        ok = ok && (member(call, "parameters").p || member(call, "arguments").p);
        take_marker(&text, ";");
    }
    return ok;
}

static bool parse_llama3(const char *tools, um_str text, um_answer_part_fn fn, void *arg) {
    (void)tools;
    take_marker(&text, "<|python_tag|>");
    return emit_all(emit_objects, text, fn, arg);
}

/* ---- Mistral ----------------------------------------------------------------------------------------------------- */

/* [{"name": …, "arguments": …}, …] */
static bool emit_array(um_str text, um_answer_part_fn fn, void *arg) {
    bool more = take_marker(&text, "[");
    while (more && take_call(&text, fn, arg)) {
        if (take_marker(&text, "]")) return !text.n;
        more = take_marker(&text, ",");
    }
    return false;
}

static bool is_name_char(char c) { return c == '_' || c == '-' || c == '.' || isalnum((unsigned char)c); }

/* NAME[ARGS]{…}[TOOL_CALLS]NAME{…}…; [ARGS] may be missing. */
static bool emit_named(um_str text, um_answer_part_fn fn, void *arg) {
    do {
        um_answer_part part = {.kind = UM_ANSWER_CALL, .name = {text.p, 0}};
        while (part.name.n < text.n && is_name_char(text.p[part.name.n])) part.name.n++;
        skip(&text, part.name.n);
        take_marker(&text, "[ARGS]");
        json_t *given = take_object(&text, &part.text);
        json_decref(given);
        if (!given || !part.name.n) return false;
        fn(arg, &part);
    } while (take_marker(&text, "[TOOL_CALLS]"));
    return !text.n;
}

static bool parse_mistral(const char *tools, um_str text, um_answer_part_fn fn, void *arg) {
    (void)tools;
    return emit_all(emit_array, text, fn, arg) || emit_all(emit_named, text, fn, arg);
}

/* ---- Formats ----------------------------------------------------------------------------------------------------- */

const um_tool_format um_tool_formats[] = {
    {.name = "hermes",
     .aliases = "qwen|qwen2_5|qwen3|sdar|llada2",
     .begin = "<tool_call>",
     .end = "</tool_call>",
     .parse = parse_hermes,
     .opening = "<tool_call>\n",
     .sign = "<tool_call>"},
    {.name = "llama3_json",
     .aliases = "llama3|llama",
     .starts = "{ <|python_tag|>",
     .parse = parse_llama3,
     .key = "parameters",
     .sign = "<|python_tag|>"},
    {.name = "mistral",
     .begin = "[TOOL_CALLS]",
     .parse = parse_mistral,
     .opening = "[TOOL_CALLS][",
     .sign = "[TOOL_CALLS]",
     .is_special = true},
    {.name = "qwen_xml",
     .aliases = "qwen3_xml|qwen3_coder",
     .begin = "<tool_call>",
     .end = "</tool_call>",
     .parse = um_tool_parse_xml,
     .sign = "<function="},
    {.name = "seed_xml",
     .aliases = "seed_oss|seed",
     .begin = "<seed:tool_call>",
     .end = "</seed:tool_call>",
     .parse = um_tool_parse_xml,
     .sign = "<seed:tool_call>"},
};
const size_t um_n_tool_formats = UM_LEN(um_tool_formats);

const um_tool_format um_tool_format_forced = {.name = "forced", .starts = "{", .parse = parse_llama3};
const um_tool_format um_tool_format_pieces = {.name = "pieces", .in_pieces = true};

/* The signs of later rows are more special: templates of qwen_xml also have the sign of hermes. */
const um_tool_format *um_tool_format_of(const char *name, const char *chat_template) {
    const um_tool_format *f = NULL;
    if (!um_streq(name, "auto")) um_tool_format_find(&f, name, NULL);
    for (size_t i = 0; um_streq(name, "auto") && chat_template && i < um_n_tool_formats; i++)
        if (strstr(chat_template, um_tool_formats[i].sign)) f = &um_tool_formats[i];
    return f;
}

um_status um_tool_format_find(const um_tool_format **out, const char *name, um_err *err) {
    um_str at;
    *out = NULL;
    if (!name || !*name || um_streq(name, "auto") || um_streq(name, "none")) return UM_OK;
    for (size_t i = 0; i < um_n_tool_formats && !*out; i++) {
        const um_tool_format *f = &um_tool_formats[i];
        if (um_streq(name, f->name) || um_word_index(f->aliases, '|', name, &at) >= 0) *out = f;
    }
    if (*out) return UM_OK;
    um_buf names = {0};
    um_buf_puts(&names, "auto, none");
    for (size_t i = 0; i < um_n_tool_formats; i++) um_buf_printf(&names, ", %s", um_tool_formats[i].name);
    um_status st = um_fail_param(err, UM_EINVAL, "tool_call_parser", "unknown format \"%.60s\", expected one of: %s",
                                 name, names.data);
    um_buf_free(&names);
    return st;
}

/* ---- Parsing ----------------------------------------------------------------------------------------------------- */

/* The state of a parser. Formats with markers: OUTSIDE, INSIDE a call. Others: UNDECIDED, MAYBE_CALLS, CONTENT. */
enum { OUTSIDE, INSIDE, UNDECIDED = OUTSIDE, MAYBE_CALLS = INSIDE, CONTENT };

static um_str pending(const um_tool_parser *t) {
    return (um_str){t->pending.data ? t->pending.data : "", t->pending.len};
}

/* Removes the first n pending bytes. */
static void consume(um_tool_parser *t, size_t n) {
    memmove(t->pending.data, t->pending.data + n, t->pending.len - n);
    t->pending.len -= n;
    t->pending.data[t->pending.len] = '\0';
}

static void emit_content(um_tool_parser *t, um_str text, um_answer_part_fn fn, void *arg) {
    um_trimmer_put(&t->trimmer, UM_ANSWER_CONTENT, text, fn, arg);
}

/* Passes on content up to the next begin marker. Returns false if the marker has not come yet. */
static bool parse_content(um_tool_parser *t, um_answer_part_fn fn, void *arg) {
    bool whole;
    size_t at = um_marker_find(pending(t), t->format->begin, &whole);
    bool found = whole && at < t->pending.len;
    emit_content(t, (um_str){pending(t).p, at}, fn, arg);
    if (at || found) consume(t, at + (found ? strlen(t->format->begin) : 0));
    if (found) t->state = INSIDE;
    return found;
}

/* Passes on the text between two markers: as a call if it is one, else as content together with its markers. `end` is
 * the end marker, "" if it is missing. */
static void emit_between(um_tool_parser *t, um_str inside, const char *end, um_answer_part_fn fn, void *arg) {
    if (t->format->parse(t->tools, inside, fn, arg)) {
        um_trimmer_drop(&t->trimmer);
        return;
    }
    emit_content(t, um_str_of(t->format->begin), fn, arg);
    emit_content(t, inside, fn, arg);
    emit_content(t, um_str_of(end), fn, arg);
}

/* Parses the call up to the end marker. Returns false if the marker has not come yet. */
static bool parse_call(um_tool_parser *t, um_answer_part_fn fn, void *arg) {
    bool whole;
    if (!t->format->end) return false;
    size_t at = um_marker_find(pending(t), t->format->end, &whole);
    if (!whole || at == t->pending.len) return false;
    emit_between(t, (um_str){pending(t).p, at}, t->format->end, fn, arg);
    consume(t, at + strlen(t->format->end));
    t->state = OUTSIDE;
    return true;
}

/* Parses a format without markers. An answer that may be calls stays pending until it ends; content is passed on. */
static void push_unmarked(um_tool_parser *t, um_answer_part_fn fn, void *arg) {
    size_t blank = skip_space(pending(t), 0);
    um_str text = {pending(t).p + blank, pending(t).n - blank};
    if (t->state == UNDECIDED && text.n) {
        int begins = um_begins_with(text, t->format->starts);
        if (begins) t->state = begins > 0 ? MAYBE_CALLS : CONTENT;
    }
    if (t->state != CONTENT) return;
    emit_content(t, pending(t), fn, arg);
    um_buf_clear(&t->pending);
}

void um_tool_parser_push(um_tool_parser *t, um_str text, um_answer_part_fn fn, void *arg) {
    if (!t->format) {
        if (text.n) fn(arg, &(um_answer_part){.kind = UM_ANSWER_CONTENT, .text = text});
        return;
    }
    um_buf_append(&t->pending, text.p, text.n);
    if (t->format->in_pieces) {
        um_tool_push_pieces(t, fn, arg);
        return;
    }
    if (!t->format->begin) {
        push_unmarked(t, fn, arg);
        return;
    }
    while (t->state == OUTSIDE ? parse_content(t, fn, arg) : parse_call(t, fn, arg))
        ;
}

/* A complete call without an end marker is a call: max_tokens can cut off the marker alone. */
void um_tool_parser_end(um_tool_parser *t, um_answer_part_fn fn, void *arg) {
    if (!t->format || t->format->in_pieces) return;
    if (t->state == INSIDE && t->format->begin) {
        emit_between(t, pending(t), "", fn, arg);
    } else if (t->pending.len) {
        um_str text = pending(t);
        size_t blank = skip_space(text, 0);
        bool calls =
            t->state == MAYBE_CALLS && t->format->parse(t->tools, (um_str){text.p + blank, text.n - blank}, fn, arg);
        if (!calls) emit_content(t, text, fn, arg);
    }
    um_buf_clear(&t->pending);
    um_trimmer_flush(&t->trimmer, UM_ANSWER_CONTENT, fn, arg);
}

/* Counts the begin marker of a pending call, too. It is no longer in `pending`. */
size_t um_tool_parser_pending(const um_tool_parser *t) {
    size_t marker = t->format && t->format->begin && t->state == INSIDE ? strlen(t->format->begin) : 0;
    return t->trimmer.space.len + marker + t->pending.len;
}
