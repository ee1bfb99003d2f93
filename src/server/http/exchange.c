/* An exchange: a request and its response. */
#include <event2/buffer.h>

#include "server/http/internal.h"

um_exchange *um_exchange_new(um_http_conn *c) {
    um_exchange *x = UM_NEW(um_exchange);
    const um_http_head *h = &c->parser.head;
    x->conn = c;
    x->keep_alive = h->keep_alive && c->server->config.idle_timeout > 0 && !c->refused;
    x->is_head = um_str_eq(um_http_span_str(h, h->method), UM_STR("HEAD"));
    um_arena_init(&x->strings, 0);
    return x;
}

void um_exchange_close(um_exchange *x, bool complete) {
    um_http_server *s = x->conn->server;
    x->ended = true;
    if (x->on_close) x->on_close(x->close_arg, x, complete);
    if ((x->is_handled || um_exchange_has_begun(x)) && s->on_end) s->on_end(s->arg, x, complete);
    s->bodies_bytes -= x->body.len;
    um_buf_free(&x->body);
    um_buf_free(&x->headers);
    um_arena_free(&x->strings);
    um_free(x);
}

/* ---- Request ----------------------------------------------------------------------------------------------------- */

static um_http_head *head_of(const um_exchange *x) { return &x->conn->parser.head; }

um_str um_exchange_method(const um_exchange *x) { return um_http_span_str(head_of(x), head_of(x)->method); }
const char *um_exchange_path(const um_exchange *x) { return head_of(x)->path.len ? head_of(x)->path.data : ""; }
um_str um_exchange_body(const um_exchange *x) { return (um_str){x->body.data, x->body.len}; }
um_buf um_exchange_take_body(um_exchange *x) {
    um_buf body = x->body;
    x->conn->server->bodies_bytes -= body.len;
    x->body = (um_buf){0};
    return body;
}

const char *um_exchange_peer(const um_exchange *x) { return x->conn->client.text; }
uint64_t um_exchange_peer_number(const um_exchange *x) {
    const unsigned char *a = x->conn->client.address;
    uint64_t half[2];
    memcpy(half, a, sizeof half);
    /* An IPv4 address is in the second half, behind 0000:0000:0000:0000:0000:ffff. */
    const bool is_v4 = half[0] == 0 && a[8] == 0 && a[9] == 0 && a[10] == 0xFF && a[11] == 0xFF;
    return um_rng_key(is_v4 ? half[1] : half[0], is_v4, 0, 0) | (uint64_t)1 << 63;
}

double um_exchange_start_time(const um_exchange *x) { return x->conn->began; }

void um_exchange_set_user_data(um_exchange *x, void *user_data) { x->user_data = user_data; }
void *um_exchange_get_user_data(const um_exchange *x) { return x->user_data; }

/* Takes "name=value" up to the next '&' from the front of *rest. */
static um_str next_pair(um_str *rest) {
    const char *end = (const char *)memchr(rest->p, '&', rest->n);
    um_str pair = {rest->p, end ? (size_t)(end - rest->p) : rest->n};
    size_t used = pair.n + (end != NULL);
    *rest = (um_str){rest->p + used, rest->n - used};
    return pair;
}

const char *um_exchange_query(um_exchange *x, const char *name) {
    um_str rest = um_http_span_str(head_of(x), head_of(x)->query);
    um_buf text = {0};
    const char *value = NULL;
    while (rest.n && !value) {
        um_str pair = next_pair(&rest);
        const char *equals = (const char *)memchr(pair.p, '=', pair.n);
        size_t n = equals ? (size_t)(equals - pair.p) : pair.n, from = equals ? n + 1 : n;
        um_buf_clear(&text);
        um_http_decode(&text, (um_str){pair.p, n}, true);
        if (!um_str_eq(um_str_of(name), (um_str){text.data, text.len})) continue;
        um_buf_clear(&text);
        um_http_decode(&text, (um_str){pair.p + from, pair.n - from}, true);
        value = um_arena_strndup(&x->strings, text.data, text.len);
    }
    um_buf_free(&text);
    return value;
}

/* Terminates a single value in place: the byte after it is a blank or CR, which is no longer needed. */
const char *um_exchange_header(um_exchange *x, const char *name) {
    um_http_head *h = head_of(x);
    uint32_t i = 0;
    um_str first = um_http_head_find(h, name, &i), next = first.p ? um_http_head_find(h, name, &i) : first;
    if (!first.p) return NULL;
    if (!next.p) {
        h->text.data[first.p - h->text.data + (ptrdiff_t)first.n] = '\0';
        return first.p;
    }
    um_buf all = {0};
    um_buf_append(&all, first.p, first.n);
    for (; next.p; next = um_http_head_find(h, name, &i)) {
        um_buf_puts(&all, ", ");
        um_buf_append(&all, next.p, next.n);
    }
    const char *joined = um_arena_strndup(&x->strings, all.data, all.len);
    um_buf_free(&all);
    return joined;
}

/* ---- Head of the response ---------------------------------------------------------------------------------------- */

static const struct {
    int status;
    const char *reason;
} reasons[] = {
    {100, "Continue"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
};

const char *um_http_reason(int status) {
    for (size_t i = 0; i < UM_LEN(reasons); i++)
        if (reasons[i].status == status) return reasons[i].reason;
    return "Unknown";
}

/* Replaces control characters by '?'. A value may come from a request, and a line break in it would start another
 * header. */
void um_exchange_add_header(um_exchange *x, const char *name, const char *value) {
    um_buf_puts(&x->headers, name);
    um_buf_puts(&x->headers, ": ");
    for (const char *p = value; *p; p++) um_buf_putc(&x->headers, (unsigned char)*p < 0x20 || *p == 0x7F ? '?' : *p);
    um_buf_puts(&x->headers, "\r\n");
}

/* The value of an added header has no line breaks, so each line of the buffer begins with a name. */
bool um_exchange_has_header(const um_exchange *x, const char *name) {
    size_t n = strlen(name);
    const char *line = x->headers.data;
    while (line && *line) {
        if (strncasecmp(line, name, n) == 0 && line[n] == ':') return true;
        line = strchr(line, '\n');
        if (line) line++;
    }
    return false;
}

static bool has_body(int status) { return status >= 200 && status != 204 && status != 304; }

/* Writes the head into the server's buffer. length < 0: unknown, for a body that is written piece by piece. */
static const um_buf *put_head(um_exchange *x, int status, const char *type, int64_t length) {
    um_http_server *s = x->conn->server;
    um_buf *h = &s->head;
    x->status = status;
    x->keep_alive = x->keep_alive && s->listener;
    um_buf_clear(h);
    um_buf_printf(h, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, um_http_reason(status), um_http_date(s));
    if (type) um_buf_printf(h, "Content-Type: %s\r\n", type);
    if (!has_body(status)) x->is_chunked = false;
    else if (length >= 0) um_buf_printf(h, "Content-Length: %lld\r\n", (long long)length);
    else if (x->is_chunked) um_buf_puts(h, "Transfer-Encoding: chunked\r\n");
    if (!x->keep_alive) um_buf_puts(h, "Connection: close\r\n");
    else if (!head_of(x)->minor) um_buf_puts(h, "Connection: keep-alive\r\n");
    um_buf_append(h, x->headers.data, x->headers.len);
    um_buf_puts(h, "\r\n");
    return h;
}

/* ---- Response ---------------------------------------------------------------------------------------------------- */

static bool sends_body(const um_exchange *x) { return !x->is_head && has_body(x->status); }

static struct iovec vec(const void *data, size_t n) { return (struct iovec){(void *)(uintptr_t)data, n}; }

void um_exchange_send(um_exchange *x, int status, const char *type, const void *body, size_t n) {
    assert(!um_exchange_has_begun(x));
    const um_buf *head = put_head(x, status, type, (int64_t)n);
    struct iovec v[] = {vec(head->data, head->len), vec(body, sends_body(x) ? n : 0)};
    um_http_conn_write(x->conn, v, 2);
    x->sent = (int64_t)v[1].iov_len;
    um_exchange_end(x);
}

/* HTTP/1.0 has no chunks, so the end of the connection ends the response. */
void um_exchange_begin(um_exchange *x, int status, const char *type) {
    assert(!um_exchange_has_begun(x));
    x->is_chunked = head_of(x)->minor > 0;
    if (!x->is_chunked) x->keep_alive = false;
    const um_buf *head = put_head(x, status, type, -1);
    struct iovec v = vec(head->data, head->len);
    um_http_conn_write(x->conn, &v, 1);
}

/* Skips empty data, because an empty chunk ends the body. */
void um_exchange_write(um_exchange *x, const void *data, size_t n) {
    assert(um_exchange_has_begun(x));
    if (x->ended || x->aborted || !n || !sends_body(x)) return;
    char size[24];
    int digits = x->is_chunked ? snprintf(size, sizeof size, "%zx\r\n", n) : 0;
    struct iovec v[] = {vec(size, (size_t)digits), vec(data, n), vec("\r\n", x->is_chunked ? 2 : 0)};
    um_http_conn_write(x->conn, v, 3);
    x->sent += (int64_t)n;
    x->has_written = true;
    if (x->on_drain && !um_exchange_buffered(x)) um_http_conn_drain_soon(x->conn);
    if (um_exchange_buffered(x) > x->conn->server->config.max_unread_bytes) um_exchange_abort(x);
}

void um_exchange_end(um_exchange *x) {
    assert(um_exchange_has_begun(x));
    if (x->ended || x->aborted) return;
    if (x->is_chunked && sends_body(x)) {
        struct iovec v = vec("0\r\n\r\n", 5);
        um_http_conn_write(x->conn, &v, 1);
    }
    x->ended = true;
    um_http_conn_finish_soon(x->conn);
}

void um_exchange_abort(um_exchange *x) {
    if (x->ended || x->aborted) return;
    x->aborted = true;
    um_http_conn_finish_soon(x->conn);
}

void um_exchange_reject(um_exchange *x, int status, const char *message) {
    um_http_server *s = x->conn->server;
    um_buf body = {0};
    x->keep_alive = false;
    if (s->error) s->error(s->arg, x, status, message, &body);
    else um_buf_printf(&body, "%s\n", message);
    um_exchange_send(x, status, s->error ? "application/json" : "text/plain; charset=utf-8", body.data, body.len);
    um_buf_free(&body);
}

bool um_exchange_has_begun(const um_exchange *x) { return x->status != 0; }
int um_exchange_status(const um_exchange *x) { return x->status; }
int64_t um_exchange_sent(const um_exchange *x) { return x->sent; }
size_t um_exchange_buffered(const um_exchange *x) { return um_http_conn_unread(x->conn); }

void um_exchange_on_close(um_exchange *x, um_exchange_close_fn fn, void *arg) {
    x->on_close = fn;
    x->close_arg = arg;
}

void um_exchange_on_drain(um_exchange *x, um_exchange_drain_fn fn, void *arg) {
    x->on_drain = fn;
    x->drain_arg = arg;
}
