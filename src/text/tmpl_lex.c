/* Converts template source to tokens and applies all rules of white space, which chat templates depend on. */
#include <errno.h>
#include <stdlib.h>

#include "text/template.h"
#include "text/tok.h"

void um_compile_fail(um_compile *c, int line, int column, const char *fmt, ...) {
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    um_fail(c->err, UM_ETEMPLATE, "line %d, column %d: %s", line, column, text);
    longjmp(c->jump, 1);
}

void *um_compile_alloc(um_compile *c, size_t n) {
    void *p = um_arena_alloc(&c->t->arena, n);
    if (!p) um_compile_fail(c, c->line, 1, "the template needs more than %zu MiB to compile", UM_TMPL_ARENA_MAX >> 20);
    return p;
}

/* ---- Positions --------------------------------------------------------------------------------------------------- */

typedef struct lexer {
    um_compile *c;
    const char *s;
    size_t n, at;
    size_t counted; /* the offset that line and column refer to */
    int line, column;
    char open[UM_TMPL_NEST_MAX]; /* the open brackets of the current tag */
    int n_open;
    bool line_start; /* the text begins a line: at the source's start, or after a removed newline */
} lexer;

static void count_to(lexer *l, size_t at) {
    for (; l->counted < at; l->counted++) {
        if (l->s[l->counted] == '\n') {
            l->line++;
            l->column = 1;
        } else if (((uint8_t)l->s[l->counted] & 0xC0) != 0x80) l->column++;
    }
}

static _Noreturn void fail(lexer *l, size_t at, const char *what) {
    if (at < l->counted) { /* an earlier position, such as the start of an unclosed tag: recounts */
        l->counted = 0;
        l->line = l->column = 1;
    }
    count_to(l, at);
    um_compile_fail(l->c, l->line, l->column, "%s", what);
}

static um_token *emit(lexer *l, um_token_kind kind, size_t from, size_t to) {
    um_compile *c = l->c;
    count_to(l, from);
    c->line = l->line;
    if (c->n == c->cap) {
        size_t cap = c->cap ? c->cap * 2 : 256;
        um_token *grown = (um_token *)um_compile_alloc(c, cap * sizeof *grown);
        if (c->n) memcpy(grown, c->token, c->n * sizeof *grown);
        c->token = grown;
        c->cap = cap;
    }
    c->token[c->n] = (um_token){.kind = kind, .line = l->line, .column = l->column, .s = {l->s + from, to - from}};
    return &c->token[c->n++];
}

static bool starts(const lexer *l, size_t at, const char *with) {
    size_t n = strlen(with);
    return l->n - at >= n && memcmp(l->s + at, with, n) == 0;
}

static size_t skip_blank(const lexer *l, size_t at) {
    int len;
    while (at < l->n && um_is_blank(um_cp_at(l->s + at, l->n - at, &len))) at += (size_t)len;
    return at;
}

/* ---- Text between tags ------------------------------------------------------------------------------------------- */

/* Returns the end of the text from..to after trimming for the sign of the following tag. '-' removes all trailing white
 * space. Without a sign, the indentation of a block or comment is removed if the tag is the first on its line. */
static size_t trim_text(const lexer *l, size_t from, size_t to, char sign, bool is_print) {
    int len;
    if (sign == '-') {
        while (to > from && um_is_blank(um_cp_before(l->s + from, to - from, &len))) to -= (size_t)len;
        return to;
    }
    if (sign == '+' || is_print) return to;
    size_t line = to;
    while (line > from && l->s[line - 1] != '\n') line--;
    bool starts_line = line > from || l->line_start;
    return starts_line && skip_blank(l, line) >= to ? line : to;
}

static char sign_at(const lexer *l, size_t at) {
    return at < l->n && (l->s[at] == '-' || l->s[at] == '+') ? l->s[at] : 0;
}

/* Moves past a tag that ends at `at`. The sign '-' before its end delimiter removes the white space after it. Without a
 * sign, a newline directly after a block or comment is removed. */
static void finish_tag(lexer *l, size_t at, char sign, bool swallow_newline) {
    size_t end = at;
    if (sign == '-') end = skip_blank(l, at);
    else if (swallow_newline && !sign && at < l->n && l->s[at] == '\n') end++;
    l->line_start = end > at && l->s[end - 1] == '\n';
    l->at = end;
}

static void emit_text(lexer *l, size_t from, size_t to) {
    if (to > from) emit(l, UM_T_DATA, from, to);
}

static void lex_comment(lexer *l, size_t at) {
    const char *end = (const char *)memmem(l->s + at + 2, l->n - at - 2, "#}", 2);
    if (!end) fail(l, at, "a comment has no end: expected '#}'");
    size_t e = (size_t)(end - l->s);
    size_t body = at + 2 + (sign_at(l, at + 2) ? 1 : 0);
    finish_tag(l, e + 2, e > body ? sign_at(l, e - 1) : 0, true);
}

/* Returns the end of the tag at `at` if it consists of `word`, as {% raw %} does, else 0. */
static size_t match_word_tag(const lexer *l, size_t at, const char *word, char *end_sign) {
    size_t i = at + 2;
    if (sign_at(l, i)) i++;
    i = skip_blank(l, i);
    if (!starts(l, i, word)) return 0;
    i = skip_blank(l, i + strlen(word));
    *end_sign = sign_at(l, i);
    if (*end_sign) i++;
    return starts(l, i, "%}") ? i + 2 : 0;
}

static void lex_raw(lexer *l, size_t at, size_t body, char sign) {
    finish_tag(l, body, sign == '-' ? '-' : '+', false);
    body = l->at;
    for (size_t i = body; i + 1 < l->n; i++) {
        size_t end;
        if (!starts(l, i, "{%") || !(end = match_word_tag(l, i, "endraw", &sign))) continue;
        emit_text(l, body, trim_text(l, body, i, sign_at(l, i + 2), false));
        finish_tag(l, end, sign, true);
        return;
    }
    fail(l, at, "a raw block has no end: expected '{% endraw %}'");
}

/* ---- Inside a tag ------------------------------------------------------------------------------------------------ */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_name_start(char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (uint8_t)c >= 0x80;
}

static size_t digits(const lexer *l, size_t at) {
    while (at < l->n && (is_digit(l->s[at]) || (l->s[at] == '_' && at + 1 < l->n && is_digit(l->s[at + 1])))) at++;
    return at;
}

/* Copies a number without its underscores. */
static void plain_number(const lexer *l, size_t from, size_t to, char *out, size_t size) {
    size_t n = 0;
    for (size_t i = from; i < to; i++) {
        if (l->s[i] == '_') continue;
        if (n + 1 >= size) fail((lexer *)l, from, "a number is too long");
        out[n++] = l->s[i];
    }
    out[n] = 0;
}

static void lex_integer(lexer *l, size_t end, int base, size_t skip) {
    char text[96];
    plain_number(l, l->at + skip, end, text, sizeof text);
    errno = 0;
    char *rest;
    long long v = strtoll(text, &rest, base);
    if (errno || *rest || !*text) fail(l, l->at, "an integer is malformed or does not fit into 64 bits");
    emit(l, UM_T_INT, l->at, end)->i = v;
    l->at = end;
}

static void lex_based(lexer *l, int base) {
    size_t end = l->at + 2;
    while (end < l->n && (is_name_start(l->s[end]) || is_digit(l->s[end]))) end++;
    lex_integer(l, end, base, 2);
}

static void lex_number(lexer *l) {
    char mark = l->at + 1 < l->n ? (char)(l->s[l->at + 1] | 32) : 0;
    if (l->s[l->at] == '0' && (mark == 'x' || mark == 'o' || mark == 'b')) {
        lex_based(l, mark == 'x' ? 16 : (mark == 'o' ? 8 : 2));
        return;
    }
    size_t whole = digits(l, l->at), end = whole;
    bool behind_dot = l->c->n && um_is_op(&l->c->token[l->c->n - 1], ".");
    if (!behind_dot && end + 1 < l->n && l->s[end] == '.' && is_digit(l->s[end + 1])) end = digits(l, end + 1);
    if (!behind_dot && end < l->n && (l->s[end] | 32) == 'e') {
        size_t e = end + 1;
        if (sign_at(l, e)) e++;
        if (e < l->n && is_digit(l->s[e])) end = digits(l, e);
    }
    if (end == whole) {
        if (l->s[l->at] == '0' && strspn(l->s + l->at, "0_") < end - l->at) fail(l, l->at, "an integer begins with 0");
        lex_integer(l, end, 10, 0);
        return;
    }
    char text[96];
    plain_number(l, l->at, end, text, sizeof text);
    emit(l, UM_T_FLOAT, l->at, end)->f = strtod(text, NULL);
    l->at = end;
}

static int hex_value(char c) {
    if (is_digit(c)) return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes \x41, \u00e9 or \U0001f600: n digits after the letter at `at`. Returns the offset after them. */
static size_t escape_hex(lexer *l, size_t at, int n, char *out, size_t *len) {
    uint32_t cp = 0;
    for (int k = 1; k <= n; k++) {
        int d = at + (size_t)k < l->n ? hex_value(l->s[at + (size_t)k]) : -1;
        if (d < 0) fail(l, at, "an escape in a string lacks digits");
        cp = cp * 16 + (uint32_t)d;
    }
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF)) fail(l, at, "an escape in a string is no character");
    *len += (size_t)um_utf8_put(cp, out + *len);
    return at + (size_t)n + 1;
}

static size_t escape(lexer *l, size_t at, char *out, size_t *len) {
    static const char from[] = "ntr\\'\"abfv", to[] = "\n\t\r\\'\"\a\b\f\v";
    char c = l->s[at];
    const char *simple = c ? strchr(from, c) : NULL;
    if (simple) {
        out[(*len)++] = to[simple - from];
        return at + 1;
    }
    if (c == '\n') return at + 1;
    if (c == 'x') return escape_hex(l, at, 2, out, len);
    if (c == 'u') return escape_hex(l, at, 4, out, len);
    if (c == 'U') return escape_hex(l, at, 8, out, len);
    if (c >= '0' && c <= '7') {
        uint32_t cp = 0;
        for (int k = 0; k < 3 && at < l->n && l->s[at] >= '0' && l->s[at] <= '7'; k++)
            cp = cp * 8 + (uint32_t)(l->s[at++] - '0');
        *len += (size_t)um_utf8_put(cp, out + *len);
        return at;
    }
    out[(*len)++] = '\\'; /* unknown escape: keeps both characters */
    return at;
}

static void lex_string(lexer *l) {
    char quote = l->s[l->at];
    size_t i = l->at + 1;
    while (i < l->n && l->s[i] != quote) i += l->s[i] == '\\' ? 2 : 1;
    if (i >= l->n) fail(l, l->at, "a string has no end");
    char *text = (char *)um_compile_alloc(l->c, i - l->at + 4);
    size_t n = 0;
    for (size_t k = l->at + 1; k < i;) {
        if (l->s[k] == '\\') k = escape(l, k + 1, text, &n);
        else text[n++] = l->s[k++];
    }
    emit(l, UM_T_STR, l->at, i + 1)->s = (um_str){text, n};
    l->at = i + 1;
}

static void lex_name(lexer *l) {
    size_t i = l->at;
    while (i < l->n && (is_name_start(l->s[i]) || is_digit(l->s[i]))) i++;
    emit(l, UM_T_NAME, l->at, i);
    l->at = i;
}

static void track_bracket(lexer *l, char c) {
    if (c == '(' || c == '[' || c == '{') {
        if (l->n_open == UM_TMPL_NEST_MAX) fail(l, l->at, "brackets are nested too deeply");
        l->open[l->n_open++] = c;
    } else if (c == ')' || c == ']' || c == '}') {
        char want = c == ')' ? '(' : (c == ']' ? '[' : '{');
        if (!l->n_open || l->open[l->n_open - 1] != want) fail(l, l->at, "a closing bracket has no opening one");
        l->n_open--;
    }
}

static void lex_op(lexer *l) {
    static const char *const two[] = {"//", "**", "==", "!=", "<=", ">="};
    size_t n = 1;
    for (size_t i = 0; i < UM_LEN(two); i++)
        if (starts(l, l->at, two[i])) n = 2;
    if (n == 1 && (!l->s[l->at] || !strchr("+-*/%~<>=()[]{},:.|;", l->s[l->at])))
        fail(l, l->at, "unexpected character");
    track_bracket(l, l->s[l->at]);
    emit(l, UM_T_OP, l->at, l->at + n);
    l->at += n;
}

/* Ends the tag if its end delimiter follows. Returns true if it does. */
static bool lex_end(lexer *l, const char *close, bool is_print) {
    if (l->n_open) return false;
    char sign = sign_at(l, l->at);
    if (sign == '+' && is_print) sign = 0;
    size_t at = l->at + (sign ? 1 : 0);
    if (!starts(l, at, close)) return false;
    emit(l, is_print ? UM_T_PRINT_END : UM_T_BLOCK_END, l->at, at + 2);
    finish_tag(l, at + 2, sign, !is_print);
    return true;
}

static void lex_tag(lexer *l, size_t at, bool is_print) {
    const char *close = is_print ? "}}" : "%}";
    emit(l, is_print ? UM_T_PRINT_BEGIN : UM_T_BLOCK_BEGIN, at, at + 2);
    l->at = at + 2 + (sign_at(l, at + 2) ? 1 : 0);
    l->n_open = 0;
    for (;;) {
        l->at = skip_blank(l, l->at);
        if (l->at >= l->n)
            fail(l, at, is_print ? "a '{{' has no end: expected '}}'" : "a '{%' has no end: expected '%}'");
        if (lex_end(l, close, is_print)) return;
        char ch = l->s[l->at];
        if (is_digit(ch)) lex_number(l);
        else if (is_name_start(ch)) lex_name(l);
        else if (ch == '"' || ch == '\'') lex_string(l);
        else lex_op(l);
    }
}

/* ---- The whole source -------------------------------------------------------------------------------------------- */

static size_t next_tag(const lexer *l) {
    for (size_t i = l->at; i + 1 < l->n; i++)
        if (l->s[i] == '{' && (l->s[i + 1] == '{' || l->s[i + 1] == '%' || l->s[i + 1] == '#')) return i;
    return l->n;
}

void um_lex(um_compile *c) {
    lexer l = {.c = c, .s = c->source.p, .n = c->source.n, .line = 1, .column = 1, .line_start = true};
    while (l.at < l.n) {
        size_t text = l.at, tag = next_tag(&l), raw = 0;
        if (tag == l.n) {
            emit_text(&l, text, tag);
            break;
        }
        char kind = l.s[tag + 1], sign = sign_at(&l, tag + 2), raw_sign = 0;
        emit_text(&l, text, trim_text(&l, text, tag, sign, kind == '{'));
        if (kind == '%') raw = match_word_tag(&l, tag, "raw", &raw_sign);
        if (raw) lex_raw(&l, tag, raw, raw_sign);
        else if (kind == '#') lex_comment(&l, tag);
        else lex_tag(&l, tag, kind == '{');
    }
    emit(&l, UM_T_END, l.n, l.n);
}
