/* Parsing of JSON that jansson rejects but that other programs send. Two things are rewritten before jansson sees the
 * text: an integer beyond 64 bits becomes an object with a reserved key, and a lone surrogate becomes U+FFFD. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "base/base.h"

/* The reserved key starts with U+FFFF, which is not a character and so appears in no real key. (U+0000 would not do:
 * jansson does not allow it in keys.) */
#define BIG_KEY                                                                                                        \
    "\xEF\xBF\xBF"                                                                                                     \
    "integer"

size_t um_json_string_end(um_str s, size_t at) {
    while (at < s.n && s.p[at] != '"') at += s.p[at] == '\\' && at + 1 < s.n ? 2 : 1;
    return UM_MIN(at + 1, s.n);
}

/* Returns the code unit of the escape \uXXXX at s[at], or -1 if there is no such escape. */
static int32_t unit_at(um_str s, size_t at) {
    char hex[5] = {0};
    if (s.n - at < 6 || s.p[at] != '\\' || s.p[at + 1] != 'u') return -1;
    memcpy(hex, s.p + at + 2, 4);
    if (strspn(hex, "0123456789abcdefABCDEF") != 4) return -1;
    return (int32_t)strtol(hex, NULL, 16);
}

static bool is_high(int32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
static bool is_low(int32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

/* Copies the string s[from..to) and replaces lone surrogates. */
static void copy_string(um_str s, size_t from, size_t to, um_buf *out) {
    um_str part = {s.p, to};
    for (size_t at = from; at < to;) {
        int32_t unit = unit_at(part, at);
        size_t n = unit >= 0 ? 6 : s.p[at] == '\\' && at + 1 < to ? 2 : 1;
        if (is_high(unit) && to - at > 6 && is_low(unit_at(part, at + 6))) n = 12;
        else if (is_high(unit) || is_low(unit)) {
            um_buf_puts(out, "\\uFFFD");
            at += n;
            continue;
        }
        um_buf_append(out, s.p + at, n);
        at += n;
    }
}

bool um_json_in_number(char c) { return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || (c | 32) == 'e'; }

/* Returns whether `number` is a valid JSON integer that does not fit into 64 bits. */
static bool is_big(um_str number) {
    char text[24];
    size_t sign = number.n && number.p[0] == '-', digits = number.n - sign;
    if (digits < 19 || number.p[sign] == '0') return false;
    for (size_t i = sign; i < number.n; i++)
        if (number.p[i] < '0' || number.p[i] > '9') return false;
    if (digits > 19) return true;
    memcpy(text, number.p, number.n);
    text[number.n] = '\0';
    errno = 0;
    (void)strtoll(text, NULL, 10);
    return errno == ERANGE;
}

static void rewrite(um_str s, um_buf *out) {
    for (size_t at = 0, end; at < s.n; at = end) {
        end = at + 1;
        if (s.p[at] == '"') {
            end = um_json_string_end(s, at + 1);
            copy_string(s, at, end, out);
            continue;
        }
        while (um_json_in_number(s.p[at]) && end < s.n && um_json_in_number(s.p[end])) end++;
        um_str part = {s.p + at, end - at};
        if (is_big(part)) um_buf_printf(out, "{\"" BIG_KEY "\":\"%.*s\"}", (int)part.n, part.p);
        else um_buf_append(out, part.p, part.n);
    }
}

/* Returns the string that ends at `end`, unescaped, or NULL; um_free. jansson reports the position of a duplicate key,
 * but not always the key. */
static char *string_before(um_str s, size_t end) {
    size_t at = 0, after = 0;
    const char *quote;
    while (after < end && (quote = (const char *)memchr(s.p + after, '"', end - after))) {
        at = (size_t)(quote - s.p);
        after = um_json_string_end(s, at + 1);
    }
    json_t *v = after == end ? json_loadb(s.p + at, end - at, JSON_DECODE_ANY, NULL) : NULL;
    char *text = v ? um_strdup(json_string_value(v)) : NULL;
    json_decref(v);
    return text;
}

static um_status fail_duplicate(um_str s, const json_error_t *e, const char *where, um_err *err) {
    char *key = string_before(s, (size_t)e->position);
    const char *quote = key ? "\"" : "";
    um_status st = um_fail(err, UM_EPARSE, "%s: duplicate key %s%.80s%s (line %d, column %d)", where, quote,
                           key ? key : "in an object", quote, e->line, e->column);
    if (key) um_fail_about(err, st, key);
    um_free(key);
    return st;
}

static um_status parse(json_t **out, um_str text, size_t flags, const char *where, um_err *err) {
    um_buf fixed = {0};
    json_error_t e;
    um_status st = UM_OK;
    rewrite(text, &fixed);
    um_str s = {fixed.len ? fixed.data : "", fixed.len};
    *out = json_loadb(s.p, s.n, JSON_ALLOW_NUL | flags, &e);
    if (!*out && json_error_code(&e) == json_error_duplicate_key) st = fail_duplicate(s, &e, where, err);
    else if (!*out)
        st = um_fail(err, UM_EPARSE, "%s: invalid JSON: %s (line %d, column %d)", where, e.text, UM_MAX(e.line, 1),
                     UM_MAX(e.column, 0));
    um_buf_free(&fixed);
    return st;
}

um_status um_json_parse_exact(json_t **out, const char *text, size_t len, const char *where, um_err *err) {
    return parse(out, (um_str){text, len}, 0, where, err);
}

um_status um_json_parse_request(json_t **out, const char *text, size_t len, const char *where, um_err *err) {
    return parse(out, (um_str){text, len}, JSON_REJECT_DUPLICATES, where, err);
}

um_str um_json_big_integer(const json_t *v) {
    const json_t *digits = json_object_size(v) == 1 ? json_object_get(v, BIG_KEY) : NULL;
    um_str s = {json_string_value(digits), json_string_length(digits)};
    return is_big(s) ? s : (um_str){NULL, 0};
}

/* Searches the compact text for the objects of big integers. `begin` can't appear inside a string, where quotes are
 * escaped. */
void um_json_put_exact(const json_t *v, um_buf *out) {
    static const char begin[] = "{\"" BIG_KEY "\":\"", end[] = "\"}";
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    const char *at = text;
    for (const char *found; (found = strstr(at, begin));) {
        um_str digits = {found + strlen(begin), strcspn(found + strlen(begin), "\"")};
        bool big = is_big(digits) && strncmp(digits.p + digits.n, end, strlen(end)) == 0;
        const char *rest = digits.p + (big ? digits.n + strlen(end) : 0);
        um_buf_append(out, at, (size_t)((big ? found : digits.p) - at));
        if (big) um_buf_append(out, digits.p, digits.n);
        at = rest;
    }
    um_buf_puts(out, at);
    free(text);
}
