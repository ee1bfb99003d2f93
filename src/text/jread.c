/* Reads large JSON without building a tree. A tree of the 600,000 strings of a vocabulary and its merges would take
 * more time than the rest of opening a tokenizer. These two parts are read from the text; jansson parses the rest. */
#include "text/tok.h"

um_status um_jread_fail(const um_jread *r, size_t at, const char *expected) {
    size_t line = 1, start = 0;
    for (size_t i = 0; i < at && i < r->text.n; i++)
        if (r->text.p[i] == '\n') {
            line++;
            start = i + 1;
        }
    return um_fail(r->err, UM_EPARSE, "%s:%zu:%zu: expected %s", r->path, line, at - start + 1, expected);
}

char um_jread_peek(um_jread *r) {
    const char *s = r->text.p;
    while (r->at < r->text.n && (s[r->at] == ' ' || s[r->at] == '\n' || s[r->at] == '\t' || s[r->at] == '\r')) r->at++;
    return r->at < r->text.n ? s[r->at] : '\0';
}

bool um_jread_take(um_jread *r, char c) {
    bool yes = um_jread_peek(r) == c && r->at < r->text.n;
    r->at += yes;
    return yes;
}

/* Returns the value of the four hexadecimal digits at text[at], or -1. */
static int32_t hex4(const um_jread *r, size_t at) {
    int32_t v = 0;
    if (r->text.n - at < 4) return -1;
    for (size_t i = at; i < at + 4; i++) {
        char c = r->text.p[i], low = (char)(c | 0x20);
        if (c >= '0' && c <= '9') v = v * 16 + (c - '0');
        else if (low >= 'a' && low <= 'f') v = v * 16 + (low - 'a' + 10);
        else return -1;
    }
    return v;
}

/* Decodes \uHHHH, or a surrogate pair of two such escapes. r->at is after the first u. Half a pair is an error. */
static um_status unescape_u(um_jread *r, um_buf *to) {
    char c[4];
    int32_t hi = hex4(r, r->at), lo = -1;
    if (hi < 0) return um_jread_fail(r, r->at, "four hexadecimal digits");
    r->at += 4;
    if (hi >= 0xD800 && hi < 0xDC00 && r->text.n - r->at >= 6 && memcmp(r->text.p + r->at, "\\u", 2) == 0) {
        lo = hex4(r, r->at + 2);
        if (lo >= 0xDC00 && lo < 0xE000) {
            r->at += 6;
            hi = 0x10000 + ((hi - 0xD800) << 10) + (lo - 0xDC00);
        }
    }
    if (hi >= 0xD800 && hi < 0xE000) return um_jread_fail(r, r->at, "both halves of a surrogate pair");
    um_buf_append(to, c, (size_t)um_utf8_put((uint32_t)hi, c));
    return UM_OK;
}

static um_status unescape(um_jread *r, um_buf *to) {
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    char c = r->at < r->text.n ? r->text.p[r->at] : '\0';
    const char *hit = c ? strchr(from, c) : NULL;
    if (hit) um_buf_putc(to, into[hit - from]);
    else if (c != 'u') return um_jread_fail(r, r->at, "one of \"\\/bfnrtu behind a backslash");
    r->at++;
    return hit ? UM_OK : unescape_u(r, to);
}

static size_t plain_end(const um_jread *r, size_t at) {
    const char *s = r->text.p;
    while (at < r->text.n && s[at] != '"' && s[at] != '\\' && (uint8_t)s[at] >= 0x20) at++;
    return at;
}

um_status um_jread_string(um_jread *r, um_buf *scratch, um_str *out) {
    if (um_jread_peek(r) != '"') return um_jread_fail(r, r->at, "a string");
    size_t start = r->at + 1, end = plain_end(r, start);
    if (end < r->text.n && r->text.p[end] == '"') { /* nearly all strings have no escapes */
        *out = (um_str){r->text.p + start, end - start};
        r->at = end + 1;
        return UM_OK;
    }
    um_buf_clear(scratch);
    um_buf_reserve(scratch, 1);
    for (;;) {
        um_buf_append(scratch, r->text.p + start, end - start);
        if (end < r->text.n && r->text.p[end] == '"') break;
        if (end >= r->text.n || r->text.p[end] != '\\') return um_jread_fail(r, end, "a string without line breaks");
        r->at = end + 1;
        um_status st = unescape(r, scratch);
        if (st) return st;
        start = r->at;
        end = plain_end(r, start);
    }
    r->at = end + 1;
    *out = (um_str){scratch->data, scratch->len};
    return UM_OK;
}

um_status um_jread_int(um_jread *r, int64_t *out) {
    char c = um_jread_peek(r);
    bool minus = c == '-';
    size_t at = r->at + minus, first = at;
    int64_t v = 0;
    for (; at < r->text.n && r->text.p[at] >= '0' && r->text.p[at] <= '9' && at - first < 18; at++)
        v = v * 10 + (r->text.p[at] - '0');
    bool zero_first = at - first > 1 && r->text.p[first] == '0';
    bool goes_on = at < r->text.n && (strchr("0123456789.eE", r->text.p[at]) && r->text.p[at]);
    if (at == first || zero_first || goes_on) return um_jread_fail(r, r->at, "an integer");
    r->at = at;
    *out = minus ? -v : v;
    return UM_OK;
}

static void skip_string(um_jread *r) {
    const char *s = r->text.p;
    size_t at = r->at + 1, n = r->text.n;
    while (at < n && s[at] != '"') at += s[at] == '\\' ? 2 : 1;
    r->at = UM_MIN(at + 1, n);
}

um_status um_jread_skip(um_jread *r, int nest) {
    const char *s = r->text.p;
    int depth = nest;
    um_jread_peek(r);
    while (r->at < r->text.n) {
        char c = s[r->at];
        if (c == '"') skip_string(r);
        else if (depth == nest && (c == ',' || c == '}' || c == ']')) break; /* after a number or a literal */
        else {
            depth += c == '{' || c == '[';
            depth -= c == '}' || c == ']';
            r->at++;
        }
        if (depth > UM_JSON_NEST_MAX)
            return um_fail(r->err, UM_ELIMIT, "%s: lists and objects are nested more than %d deep", r->path,
                           UM_JSON_NEST_MAX);
        if (depth == nest && (c == '"' || c == '}' || c == ']')) break;
    }
    return UM_OK;
}

um_status um_json_read(json_t **out, um_str text, const char *path, int flags, um_err *err) {
    json_error_t e;
    um_jread r = {.path = path, .text = text, .err = err};
    *out = NULL;
    um_status st = um_jread_skip(&r, 0);
    if (st) return st;
    *out = json_loadb(text.n ? text.p : "", text.n, JSON_ALLOW_NUL | (size_t)flags, &e);
    return *out ? UM_OK : um_fail(err, UM_EPARSE, "%s:%d:%d: %s", path, UM_MAX(e.line, 1), UM_MAX(e.column, 0), e.text);
}
