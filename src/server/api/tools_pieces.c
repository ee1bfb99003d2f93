/* The parser of a required call in a stream: the text is {"name": NAME, KEY: ARGUMENTS}, as the constraint of the
 * request makes it. The name is passed on first, and then the arguments as they come. */
#include <jansson.h>

#include "server/api/answer.h"

/* The state of the parser: before, inside and after the arguments. */
enum { AT_HEAD, INSIDE, BEHIND };

/* A text and the offset up to which it was read. */
typedef struct reader {
    um_str text;
    size_t at;
} reader;

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static bool sees(reader *r, char c) {
    while (r->at < r->text.n && is_space(r->text.p[r->at])) r->at++;
    return r->at < r->text.n && r->text.p[r->at] == c;
}

static bool take(reader *r, char c) { return sees(r, c) && ++r->at; }

/* Reads a string with its quotes. */
static bool take_string(reader *r, um_str *spelling) {
    if (!sees(r, '"')) return false;
    const size_t from = r->at++;
    while (r->at < r->text.n && r->text.p[r->at] != '"') r->at += r->text.p[r->at] == '\\' ? 2 : 1;
    *spelling = (um_str){r->text.p + from, r->at + 1 - from};
    return r->at++ < r->text.n;
}

/* Passes on the name once the arguments begin. Returns the offset of the arguments, 0 while that needs more text. */
static size_t parse_head(um_tool_parser *t, um_answer_part_fn fn, void *arg) {
    reader r = {{t->pending.data ? t->pending.data : "", t->pending.len}, 0};
    um_str key, name;
    if (!take(&r, '{') || !take_string(&r, &key) || !take(&r, ':') || !take_string(&r, &name)) return 0;
    if (!take(&r, ',') || !take_string(&r, &key) || !take(&r, ':') || !sees(&r, '{')) return 0;
    json_t *text = json_loadb(name.p, name.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (!text) return 0;
    fn(arg, &(um_answer_part){
                .kind = UM_ANSWER_CALL, .name = {json_string_value(text), json_string_length(text)}, .is_open = true});
    json_decref(text);
    t->state = INSIDE;
    return r.at;
}

/* Returns the offset behind the arguments, which end with the bracket that closes their first one. */
static size_t arguments_end(um_tool_parser *t, size_t from) {
    for (size_t i = from; i < t->pending.len; i++) {
        const char c = t->pending.data[i];
        if (t->is_escaped) t->is_escaped = false;
        else if (t->in_string) t->is_escaped = c == '\\', t->in_string = c != '"';
        else if (c == '"') t->in_string = true;
        else if (c == '{' || c == '[') t->depth++;
        else if ((c == '}' || c == ']') && --t->depth == 0) {
            t->state = BEHIND;
            return i + 1;
        }
    }
    return t->pending.len;
}

void um_tool_push_pieces(um_tool_parser *t, um_answer_part_fn fn, void *arg) {
    size_t from = 0;
    if (t->state == AT_HEAD && !(from = parse_head(t, fn, arg))) return;
    if (t->state == INSIDE) {
        const um_str text = {t->pending.data + from, arguments_end(t, from) - from};
        if (text.n) fn(arg, &(um_answer_part){.kind = UM_ANSWER_ARGUMENTS, .text = text});
    }
    um_buf_clear(&t->pending);
}

bool um_answer_parser_is_cut(const um_answer_parser *a) {
    return a->tools.format && a->tools.format->in_pieces && a->tools.state != BEHIND;
}
