/* JSON writing: directly into a buffer, without a tree. comma[depth] is set when the next value at that depth needs a
 * comma before it. */
#include "base/base.h"

#include <math.h>

void um_jw_init(um_jw *w, um_buf *out) { *w = (um_jw){.out = out}; }

static void begin_value(um_jw *w) {
    if (w->comma[w->depth]) um_buf_putc(w->out, ',');
    w->comma[w->depth] = true;
}

static void open_level(um_jw *w, char c) {
    begin_value(w);
    um_buf_putc(w->out, c);
    w->depth++;
    assert((size_t)w->depth < UM_LEN(w->comma));
    w->comma[w->depth] = false;
}

static void close_level(um_jw *w, char c) {
    assert(w->depth > 0);
    w->depth--;
    um_buf_putc(w->out, c);
}

void um_jw_begin_object(um_jw *w) { open_level(w, '{'); }
void um_jw_end_object(um_jw *w) { close_level(w, '}'); }
void um_jw_begin_array(um_jw *w) { open_level(w, '['); }
void um_jw_end_array(um_jw *w) { close_level(w, ']'); }

static void put_escape(um_buf *b, unsigned char c) {
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    const char *p = c ? strchr(from, c) : NULL;
    if (p) um_buf_printf(b, "\\%c", to[p - from]);
    else um_buf_printf(b, "\\u%04x", c);
}

/* Returns whether c is an ASCII character that needs no escape. */
static bool is_plain(unsigned char c) { return c >= 0x20 && c < 0x80 && c != '"' && c != '\\'; }

/* Appends a quoted string. Copies runs of characters that need no escape as a whole. */
static void put_string(um_buf *b, const char *s, size_t n) {
    um_buf_putc(b, '"');
    size_t i = 0, from = 0;
    for (;;) {
        while (i < n && is_plain((unsigned char)s[i])) i++;
        if (i == n) break;
        unsigned char c = (unsigned char)s[i];
        uint32_t cp;
        size_t step = (size_t)um_utf8_next(s + i, n - i, &cp);
        if (step && c >= 0x20 && c != '"' && c != '\\') {
            i += step;
            continue;
        }
        bool incomplete;
        um_buf_append(b, s + from, i - from);
        if (step) put_escape(b, c);
        else um_buf_puts(b, "\xEF\xBF\xBD");
        i += step ? step : um_utf8_bad(s + i, n - i, &incomplete);
        from = i;
    }
    um_buf_append(b, s + from, n - from);
    um_buf_putc(b, '"');
}

void um_jw_key(um_jw *w, const char *key) {
    begin_value(w);
    put_string(w->out, key, strlen(key));
    um_buf_putc(w->out, ':');
    w->comma[w->depth] = false;
}

void um_jw_str(um_jw *w, const char *s, size_t n) {
    begin_value(w);
    put_string(w->out, n ? s : "", n);
}

void um_jw_cstr(um_jw *w, const char *s) {
    if (s) um_jw_str(w, s, strlen(s));
    else um_jw_null(w);
}

/* Formats without printf for speed: a snapshot contains hundreds of integers. */
void um_jw_int(um_jw *w, int64_t v) {
    char text[24], *p = text + sizeof text;
    uint64_t rest = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do *--p = (char)('0' + rest % 10);
    while (rest /= 10);
    if (v < 0) *--p = '-';
    begin_value(w);
    um_buf_append(w->out, p, (size_t)(text + sizeof text - p));
}

/* Negative zero is written as "-0.0": a parser reads "-0" as an integer and loses the sign. */
void um_jw_double(um_jw *w, double v) {
    char text[UM_NUMBER_MAX] = "null";
    if (isfinite(v)) um_format_double(v, text);
    begin_value(w);
    um_buf_puts(w->out, v == 0 && signbit(v) ? "-0.0" : text);
}

void um_jw_float(um_jw *w, float v) {
    char text[UM_NUMBER_MAX] = "null";
    if (isfinite(v)) um_format_float(v, text);
    begin_value(w);
    um_buf_puts(w->out, text);
}

/* Formats six decimals with integer arithmetic. This takes a tenth of the time of um_jw_double. */
void um_jw_share(um_jw *w, double v) {
    char text[] = "0.000000";
    if (!(v >= 0 && v <= 1)) {
        um_jw_double(w, v);
        return;
    }
    int32_t n = (int32_t)(v * 1e6 + 0.5);
    size_t end = sizeof text - 1;
    text[0] = (char)('0' + n / 1000000);
    for (size_t i = end - 1; i > 1; i--, n /= 10) text[i] = (char)('0' + n % 10);
    while (text[end - 1] == '0' && end > 2) end--;
    if (end == 2) end = 1;
    begin_value(w);
    um_buf_append(w->out, text, end);
}

void um_jw_bool(um_jw *w, bool v) {
    begin_value(w);
    um_buf_puts(w->out, v ? "true" : "false");
}

void um_jw_null(um_jw *w) {
    begin_value(w);
    um_buf_puts(w->out, "null");
}

void um_jw_raw(um_jw *w, const char *json, size_t n) {
    begin_value(w);
    um_buf_append(w->out, json, n);
}

void um_jw_ints(um_jw *w, const int32_t *v, size_t n) {
    um_jw_begin_array(w);
    for (size_t i = 0; i < n; i++) um_jw_int(w, v[i]);
    um_jw_end_array(w);
}

void um_jw_put_str(um_jw *w, const char *key, um_str v) {
    um_jw_key(w, key);
    um_jw_str(w, v.p, v.n);
}

void um_jw_put_cstr(um_jw *w, const char *key, const char *v) {
    um_jw_key(w, key);
    um_jw_cstr(w, v);
}

void um_jw_put_int(um_jw *w, const char *key, int64_t v) {
    um_jw_key(w, key);
    um_jw_int(w, v);
}

void um_jw_put_double(um_jw *w, const char *key, double v) {
    um_jw_key(w, key);
    um_jw_double(w, v);
}

void um_jw_put_seconds(um_jw *w, const char *key, double seconds) {
    char text[UM_NUMBER_MAX];
    um_jw_key(w, key);
    if (!(seconds >= 0 && seconds < 1e12)) {
        um_jw_double(w, seconds);
        return;
    }
    const long long us = llround(1e6 * seconds);
    int n = snprintf(text, sizeof text, "%lld.%06lld", us / 1000000, us % 1000000);
    um_jw_raw(w, text, (size_t)n);
}

void um_jw_put_ratio(um_jw *w, const char *key, double a, double b) {
    um_jw_put_double(w, key, a > 0 && b > 0 ? a / b : NAN);
}

void um_jw_put_bool(um_jw *w, const char *key, bool v) {
    um_jw_key(w, key);
    um_jw_bool(w, v);
}

void um_jw_put_null(um_jw *w, const char *key) {
    um_jw_key(w, key);
    um_jw_null(w);
}

void um_jw_put_ints(um_jw *w, const char *key, const int32_t *v, size_t n) {
    um_jw_key(w, key);
    um_jw_ints(w, v, n);
}

void um_jw_put_bytes(um_jw *w, const char *key, um_str v) {
    um_jw_key(w, key);
    um_jw_begin_array(w);
    for (size_t i = 0; i < v.n; i++) um_jw_int(w, (uint8_t)v.p[i]);
    um_jw_end_array(w);
}
