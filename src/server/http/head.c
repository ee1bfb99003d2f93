/* The lines of a head: request and status line, fields, and the framing of the body. */
#include "server/http/parse.h"

#include <strings.h>

/* ---- Tokens and names -------------------------------------------------------------------------------------------- */

int um_http_hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool um_http_is_token_char(char c) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c)) return true;
    return c && strchr("!#$%&'*+-.^_`|~", c);
}

static size_t token_length(um_str s) {
    size_t n = 0;
    while (n < s.n && um_http_is_token_char(s.p[n])) n++;
    return n;
}

um_str um_http_span_str(const um_http_head *h, um_http_span s) {
    return s.at || s.n ? (um_str){h->text.data + s.at, s.n} : UM_STR("");
}

bool um_http_name_eq(um_str a, const char *b) { return strlen(b) == a.n && strncasecmp(a.p, b, a.n) == 0; }

um_str um_http_head_find(const um_http_head *h, const char *name, uint32_t *i) {
    while (*i < h->n_fields) {
        const um_http_field *f = &h->field[(*i)++];
        if (um_http_name_eq(um_http_span_str(h, f->name), name)) return um_http_span_str(h, f->value);
    }
    return (um_str){NULL, 0};
}

/* ---- First line -------------------------------------------------------------------------------------------------- */

/* Reads "HTTP/1.1" or "HTTP/1.0". Other versions give 505, anything else 400. */
static bool read_version(um_http_parser *p, um_str s) {
    if (s.n != 8 || memcmp(s.p, "HTTP/", 5) != 0 || !is_digit(s.p[5]) || s.p[6] != '.' || !is_digit(s.p[7]))
        return um_http_reject(p, 400, "the first line has no HTTP version such as HTTP/1.1");
    if (s.p[5] != '1' || s.p[7] > '1')
        return um_http_reject(p, 505, "unsupported version HTTP/%c.%c; expected HTTP/1.1 or HTTP/1.0", s.p[5], s.p[7]);
    p->head.minor = s.p[7] - '0';
    return true;
}

/* Reads "POST /path HTTP/1.1": three parts with single spaces between them. Checks the version before the target, whose
 * form may differ in other versions. */
static bool read_request_line(um_http_parser *p, um_str line) {
    size_t method = token_length(line);
    if (!method || method == line.n || line.p[method] != ' ')
        return um_http_reject(p, 400, "the request line does not begin with a method and a space");
    um_str rest = {line.p + method + 1, line.n - method - 1};
    const char *space = (const char *)memchr(rest.p, ' ', rest.n);
    size_t target = space ? (size_t)(space - rest.p) : rest.n;
    if (!space || !target) return um_http_reject(p, 400, "the request line is not METHOD TARGET HTTP/1.1");
    if (!read_version(p, (um_str){space + 1, rest.n - target - 1})) return false;
    uint32_t at = (uint32_t)(line.p - p->head.text.data);
    p->head.method = (um_http_span){at, (uint32_t)method};
    return um_http_read_target(p, (um_http_span){at + (uint32_t)method + 1, (uint32_t)target});
}

/* Reads "HTTP/1.1 200 OK". The reason phrase, and the space before it, may be missing. */
static bool read_status_line(um_http_parser *p, um_str line) {
    if (!read_version(p, (um_str){line.p, UM_MIN(line.n, (size_t)8)})) return false;
    const char *s = line.p + 8;
    if (line.n < 12 || s[0] != ' ' || s[1] < '1' || s[1] > '5' || !is_digit(s[2]) || !is_digit(s[3]) ||
        (line.n > 12 && s[4] != ' '))
        return um_http_reject(p, 502, "the status line is not HTTP/1.1 STATUS REASON");
    p->head.status = (s[1] - '0') * 100 + (s[2] - '0') * 10 + (s[3] - '0');
    return true;
}

bool um_http_read_start_line(um_http_parser *p, um_str line) {
    return p->kind == UM_HTTP_REQUEST ? read_request_line(p, line) : read_status_line(p, line);
}

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

/* Rejects a line that begins with a blank, the obsolete continuation of the line before, since it has no name. */
bool um_http_read_field(um_http_parser *p, um_str line, um_http_field *out) {
    size_t name = token_length(line), begin = name + 1, end = line.n;
    if (!name || name == line.n || line.p[name] != ':')
        return um_http_reject(p, 400, "a header does not begin with a name followed by a colon");
    while (begin < end && is_blank(line.p[begin])) begin++;
    while (end > begin && is_blank(line.p[end - 1])) end--;
    for (size_t i = begin; i < end; i++) {
        unsigned char c = (unsigned char)line.p[i];
        if ((c < 0x20 && c != '\t') || c == 0x7F)
            return um_http_reject(p, 400, "header %.*s has control byte 0x%02X", (int)UM_MIN(name, (size_t)40), line.p,
                                  c);
    }
    *out = (um_http_field){{0, (uint32_t)name}, {(uint32_t)begin, (uint32_t)(end - begin)}};
    return true;
}

/* ---- Framing ----------------------------------------------------------------------------------------------------- */

/* Reads the value of a field that must not be repeated. value->p is NULL if the field is missing. Returns false if the
 * message was rejected. */
static bool read_single(um_http_parser *p, const char *name, um_str *value) {
    uint32_t i = 0;
    *value = um_http_head_find(&p->head, name, &i);
    if (!value->p || !um_http_head_find(&p->head, name, &i).p) return true;
    return um_http_reject(p, 400, "duplicate header %s", name);
}

/* Reads Content-Length. Accepts only digits, because other programs read a sign, a space or a list differently. */
static bool read_length(um_http_parser *p) {
    um_str v;
    int64_t n = 0;
    if (!read_single(p, "Content-Length", &v)) return false;
    if (!v.p) return true;
    for (size_t i = 0; i < v.n; i++) {
        if (!is_digit(v.p[i]) || n > (INT64_MAX - 9) / 10)
            return um_http_reject(p, 400, "Content-Length is not a number of bytes");
        n = n * 10 + (v.p[i] - '0');
    }
    if (!v.n) return um_http_reject(p, 400, "Content-Length is empty");
    p->head.length = n;
    return true;
}

static bool read_coding(um_http_parser *p) {
    um_http_head *h = &p->head;
    uint32_t i = 0;
    um_str v = um_http_head_find(h, "Transfer-Encoding", &i);
    if (!v.p) return true;
    if (h->length >= 0) return um_http_reject(p, 400, "Content-Length and Transfer-Encoding exclude each other");
    if (!h->minor) return um_http_reject(p, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (!um_http_name_eq(v, "chunked") || um_http_head_find(h, "Transfer-Encoding", &i).p)
        return um_http_reject(p, 501, "unsupported Transfer-Encoding; only chunked is supported");
    h->is_chunked = true;
    return true;
}

static bool read_host(um_http_parser *p) {
    um_str v;
    if (!read_single(p, "Host", &v)) return false;
    if (!v.p) return !p->head.minor || um_http_reject(p, 400, "header Host is missing");
    return um_http_is_host(v) || um_http_reject(p, 400, "header Host is not HOST or HOST:PORT");
}

static bool read_expectation(um_http_parser *p) {
    uint32_t i = 0;
    um_str v = um_http_head_find(&p->head, "Expect", &i);
    if (!v.p || !p->head.minor) return true;
    if (!um_http_name_eq(v, "100-continue") || um_http_head_find(&p->head, "Expect", &i).p)
        return um_http_reject(p, 417, "unsupported Expect; only 100-continue is supported");
    p->head.expects_continue = true;
    return true;
}

/* Tells whether a comma-separated list contains a word. */
static bool has_word(um_str list, const char *word) {
    for (size_t i = 0; i < list.n;) {
        const char *comma = (const char *)memchr(list.p + i, ',', list.n - i);
        size_t end = comma ? (size_t)(comma - list.p) : list.n, from = i, to = end;
        while (from < to && is_blank(list.p[from])) from++;
        while (to > from && is_blank(list.p[to - 1])) to--;
        if (um_http_name_eq((um_str){list.p + from, to - from}, word)) return true;
        i = end + 1;
    }
    return false;
}

/* HTTP/1.1 keeps a connection unless the message says close, HTTP/1.0 closes it unless the message says keep-alive. */
static void read_connection(um_http_head *h) {
    uint32_t i = 0;
    bool closes = false, keeps = h->minor > 0;
    for (um_str v; (v = um_http_head_find(h, "Connection", &i)).p;) {
        closes |= has_word(v, "close");
        keeps |= has_word(v, "keep-alive");
    }
    h->keep_alive = keeps && !closes;
}

bool um_http_read_framing(um_http_parser *p) {
    if (!read_length(p) || !read_coding(p)) return false;
    read_connection(&p->head);
    return p->kind == UM_HTTP_RESPONSE || (read_host(p) && read_expectation(p));
}
