/* The request target in the first line, and host names. */
#include "server/http/parse.h"

#include <strings.h>

/* ---- Escapes ----------------------------------------------------------------------------------------------------- */

bool um_http_decode(um_buf *out, um_str s, bool plus_is_space) {
    size_t start = out->len;
    um_buf_reserve(out, s.n);
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '%') {
            int high = i + 1 < s.n ? um_http_hex_digit(s.p[i + 1]) : -1,
                low = i + 2 < s.n ? um_http_hex_digit(s.p[i + 2]) : -1;
            if (high < 0 || low < 0) return false;
            c = (char)(high << 4 | low);
            if (c == 0) return false;
            i += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        um_buf_putc(out, c);
    }
    size_t n = out->len - start;
    return !n || um_utf8_check(out->data + start, n) == n;
}

static bool has_control(um_str s) {
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7F) return true;
    return false;
}

/* ---- Hosts ------------------------------------------------------------------------------------------------------- */

static bool is_port(um_str s) {
    int32_t port = 0;
    if (!s.n || s.n > 5) return false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9') return false;
        port = port * 10 + (s.p[i] - '0');
    }
    return port <= 65535;
}

static bool is_word_char(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

/* Returns the length of the host name or address; 0: none. */
static size_t host_length(um_str s) {
    size_t i = 0;
    if (s.n && s.p[0] == '[') {
        for (i = 1; i < s.n && (um_http_hex_digit(s.p[i]) >= 0 || s.p[i] == ':' || s.p[i] == '.');) i++;
        return i > 1 && i < s.n && s.p[i] == ']' ? i + 1 : 0;
    }
    while (i < s.n && s.p[i] && (is_word_char(s.p[i]) || strchr("-._~!$&'()*+,;=", s.p[i]))) i++;
    return i;
}

bool um_http_is_host(um_str s) {
    size_t n = host_length(s);
    if (!n) return false;
    return n == s.n || (s.p[n] == ':' && is_port((um_str){s.p + n + 1, s.n - n - 1}));
}

/* ---- Target ------------------------------------------------------------------------------------------------------ */

/* Accepts the characters []{}|^, which browsers do not escape and which have only one meaning. */
static bool is_target_char(char c) { return c > 0x20 && c < 0x7F && !strchr("\"#<>\\`", c); }

/* Skips the origin of "http://host/path", the form that clients send to proxies. */
static bool skip_origin(um_http_parser *p, um_str *s) {
    const size_t scheme = sizeof "http://" - 1;
    if (s->n < scheme || strncasecmp(s->p, "http://", scheme) != 0)
        return um_http_reject(p, 400, "the request target begins neither with '/' nor with \"http://\"");
    size_t end = scheme;
    while (end < s->n && s->p[end] != '/' && s->p[end] != '?') end++;
    if (!um_http_is_host((um_str){s->p + scheme, end - scheme}))
        return um_http_reject(p, 400, "the host of the request target is malformed");
    *s = (um_str){s->p + end, s->n - end};
    return true;
}

static bool check_query(um_http_parser *p, um_str query) {
    um_buf decoded = {0};
    bool ok = um_http_decode(&decoded, query, true);
    um_buf_free(&decoded);
    return ok || um_http_reject(p, 400, "the query of the request target has an invalid escape or is not UTF-8");
}

/* Reads the target *, which stands for the server itself and is valid for OPTIONS only. */
static bool read_asterisk(um_http_parser *p) {
    if (!um_str_eq(um_http_span_str(&p->head, p->head.method), UM_STR("OPTIONS")))
        return um_http_reject(p, 400, "the request target * is valid for OPTIONS only");
    um_buf_putc(&p->head.path, '*');
    return true;
}

bool um_http_read_target(um_http_parser *p, um_http_span target) {
    um_http_head *h = &p->head;
    um_str s = um_http_span_str(h, target);
    for (size_t i = 0; i < s.n; i++)
        if (!is_target_char(s.p[i]))
            return um_http_reject(p, 400, "the request target has byte 0x%02X, which must be escaped",
                                  (unsigned char)s.p[i]);
    if (um_str_eq(s, UM_STR("*"))) return read_asterisk(p);
    if ((!s.n || s.p[0] != '/') && !skip_origin(p, &s)) return false;
    const char *mark = s.n ? (const char *)memchr(s.p, '?', s.n) : NULL;
    um_str path = {s.p, mark ? (size_t)(mark - s.p) : s.n}, query = {s.p + s.n, 0};
    if (mark) query = (um_str){mark + 1, s.n - path.n - 1};
    if (!path.n) um_buf_putc(&h->path, '/');
    if (!um_http_decode(&h->path, path, false) || has_control((um_str){h->path.data, h->path.len})) {
        um_buf_clear(&h->path);
        return um_http_reject(p, 400, "the path has an invalid escape or control character, or is not UTF-8");
    }
    h->query = (um_http_span){(uint32_t)(query.p - h->text.data), (uint32_t)query.n};
    return check_query(p, query);
}
