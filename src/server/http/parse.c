/* The state machine of the parser: it decides which line or piece comes next. Other files read the lines. */
#include "server/http/parse.h"

enum {
    AT_START_LINE,
    AT_FIELDS,
    AT_BODY,       /* `left` bytes are missing */
    AT_CLOSE_BODY, /* the body ends when the peer closes */
    AT_CHUNK_SIZE,
    AT_CHUNK,
    AT_CHUNK_END, /* CR LF after the bytes of a chunk */
    AT_TRAILERS,
    AT_END,
    AT_FAILURE
};

/* A state function returns this when the next state can continue with the bytes that are left. */
#define GO_ON (-1)

typedef struct input {
    const char *p;
    size_t n;
} input;

void um_http_parser_init(um_http_parser *p, um_http_kind kind, um_http_limits limits) {
    limits.head = UM_MIN(limits.head, (size_t)UINT32_MAX / 2);
    *p = (um_http_parser){.kind = kind, .limits = limits, .head.length = -1};
}

static void clear_head(um_http_head *h) {
    um_buf_clear(&h->text);
    um_buf_clear(&h->path);
    *h = (um_http_head){.text = h->text, .path = h->path, .field = h->field, .fields_cap = h->fields_cap, .length = -1};
}

void um_http_parser_next(um_http_parser *p) {
    um_http_parser old = *p;
    clear_head(&old.head);
    um_buf_clear(&old.line);
    um_http_parser_init(p, old.kind, old.limits);
    p->head = old.head;
    p->line = old.line;
}

void um_http_parser_free(um_http_parser *p) {
    um_buf_free(&p->head.text);
    um_buf_free(&p->head.path);
    um_free(p->head.field);
    um_buf_free(&p->line);
    *p = (um_http_parser){0};
}

bool um_http_reject(um_http_parser *p, int status, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->message, sizeof p->message, fmt, ap);
    va_end(ap);
    p->status = status;
    p->state = AT_FAILURE;
    return false;
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

typedef enum { LINE_CUT, LINE_WHOLE, LINE_TOO_LONG, LINE_BARE_LF } line_got;

/* Moves bytes up to the next LF from `in` to `to`, where the line begins at `start`. The limit includes the LF, so that
 * the result does not depend on whether the LF has arrived. */
static line_got take_line(um_buf *to, size_t start, size_t limit, input *in) {
    const char *lf = in->n ? (const char *)memchr(in->p, '\n', in->n) : NULL;
    size_t n = lf ? (size_t)(lf - in->p) + 1 : in->n;
    if (n > limit - (to->len - start)) return LINE_TOO_LONG;
    um_buf_append(to, in->p, n);
    in->p += n;
    in->n -= n;
    if (!lf) return LINE_CUT;
    return to->len - start >= 2 && to->data[to->len - 2] == '\r' ? LINE_WHOLE : LINE_BARE_LF;
}

/* Reads the next line of the head. *line is without its CR LF. */
static int head_line(um_http_parser *p, input *in, size_t limit, int status, um_str *line) {
    um_buf *text = &p->head.text;
    switch (take_line(text, p->line_start, limit, in)) {
    case LINE_CUT: return UM_HTTP_NEED_MORE;
    case LINE_TOO_LONG:
        um_http_reject(p, status, "the %s is longer than %zu bytes", status == 414 ? "request line" : "head",
                       status == 414 ? limit : p->limits.head);
        return UM_HTTP_BAD;
    case LINE_BARE_LF: um_http_reject(p, 400, "a line of the head does not end with CR LF"); return UM_HTTP_BAD;
    case LINE_WHOLE: break;
    }
    *line = (um_str){text->data + p->line_start, text->len - p->line_start - 2};
    return GO_ON;
}

/* ---- Head -------------------------------------------------------------------------------------------------------- */

/* Reads the first line. Skips one empty line before a request, which old clients send after a body. Rejects another
 * protocol, such as TLS, by its first byte. */
static int at_start_line(um_http_parser *p, input *in) {
    bool is_first = !p->head.text.len;
    size_t limit = UM_MIN(UM_HTTP_LINE_MAX, p->limits.head - p->line_start);
    um_str line;
    if (is_first && in->n && in->p[0] != '\r' && !um_http_is_token_char(in->p[0])) {
        um_http_reject(p, 400, "expected HTTP, found byte 0x%02X", (unsigned char)in->p[0]);
        return UM_HTTP_BAD;
    }
    int got = head_line(p, in, limit, 414, &line);
    if (got != GO_ON) return got;
    bool skip = !line.n && !p->line_start && p->kind == UM_HTTP_REQUEST;
    p->line_start = p->head.text.len;
    if (skip) return GO_ON;
    if (!um_http_read_start_line(p, line)) return UM_HTTP_BAD;
    p->state = AT_FIELDS;
    return GO_ON;
}

static bool add_field(um_http_parser *p, um_str line) {
    um_http_head *h = &p->head;
    um_http_field f;
    if (!um_http_read_field(p, line, &f)) return false;
    if (h->n_fields == UM_HTTP_FIELDS_MAX) return um_http_reject(p, 431, "more than %d headers", UM_HTTP_FIELDS_MAX);
    if (h->n_fields == h->fields_cap) {
        h->fields_cap = h->fields_cap ? h->fields_cap * 2 : 8;
        h->field = (um_http_field *)um_realloc(h->field, h->fields_cap * sizeof(*h->field));
    }
    f.name.at += (uint32_t)p->line_start;
    f.value.at += (uint32_t)p->line_start;
    h->field[h->n_fields++] = f;
    return true;
}

/* Returns the state in which the body begins. */
static int body_state(const um_http_parser *p) {
    const um_http_head *h = &p->head;
    if (p->kind == UM_HTTP_RESPONSE && (p->bodiless || h->status == 204 || h->status == 304)) return AT_END;
    if (h->is_chunked) return AT_CHUNK_SIZE;
    if (h->length > 0) return AT_BODY;
    return h->length == 0 || p->kind == UM_HTTP_REQUEST ? AT_END : AT_CLOSE_BODY;
}

/* Skips an interim 1xx response. Another head follows it. */
static int skip_interim(um_http_parser *p) {
    if (p->head.status == 101 || ++p->n_interim > UM_HTTP_INTERIM_MAX) {
        um_http_reject(p, 502, "unexpected status %d", p->head.status);
        return UM_HTTP_BAD;
    }
    clear_head(&p->head);
    p->line_start = 0;
    p->state = AT_START_LINE;
    return GO_ON;
}

static int end_head(um_http_parser *p) {
    um_http_head *h = &p->head;
    if (!um_http_read_framing(p)) return UM_HTTP_BAD;
    if (p->kind == UM_HTTP_RESPONSE && h->status < 200) return skip_interim(p);
    p->state = body_state(p);
    if (p->state == AT_BODY) {
        p->left = (uint64_t)h->length;
        if (p->left > p->limits.body) {
            um_http_reject(p, 413, "the body is %lld bytes long; the limit is %zu bytes", (long long)h->length,
                           p->limits.body);
            return UM_HTTP_BAD;
        }
    }
    return UM_HTTP_HEAD;
}

static int at_fields(um_http_parser *p, input *in) {
    um_str line;
    int got = head_line(p, in, p->limits.head - p->line_start, 431, &line);
    if (got != GO_ON) return got;
    if (!line.n) return end_head(p);
    if (!add_field(p, line)) return UM_HTTP_BAD;
    p->line_start = p->head.text.len;
    return GO_ON;
}

/* ---- Body -------------------------------------------------------------------------------------------------------- */

/* Takes a piece of at most `left` bytes. `then` is the state after the last one. */
static int take_piece(um_http_parser *p, input *in, int then) {
    if (!in->n) return UM_HTTP_NEED_MORE;
    p->piece = (um_str){in->p, (size_t)UM_MIN((uint64_t)in->n, p->left)};
    in->p += p->piece.n;
    in->n -= p->piece.n;
    p->left -= p->piece.n;
    if (!p->left) p->state = then;
    return UM_HTTP_BODY;
}

static int at_body(um_http_parser *p, input *in) { return take_piece(p, in, AT_END); }

static int at_close_body(um_http_parser *p, input *in) {
    p->left = UINT64_MAX;
    return take_piece(p, in, AT_CLOSE_BODY);
}

/* ---- Chunks ------------------------------------------------------------------------------------------------------ */

/* Reads a line between chunks. *line is valid until the next call. */
static int chunk_line(um_http_parser *p, input *in, size_t limit, int status, um_str *line) {
    switch (take_line(&p->line, 0, limit, in)) {
    case LINE_CUT: return UM_HTTP_NEED_MORE;
    case LINE_TOO_LONG: um_http_reject(p, status, "a line between chunks is too long"); return UM_HTTP_BAD;
    case LINE_BARE_LF: um_http_reject(p, 400, "a line between chunks does not end with CR LF"); return UM_HTTP_BAD;
    case LINE_WHOLE: break;
    }
    *line = (um_str){p->line.data, p->line.len - 2};
    p->line.len = 0;
    return GO_ON;
}

static int at_chunk_size(um_http_parser *p, input *in) {
    um_str line;
    uint64_t size;
    int got = chunk_line(p, in, UM_HTTP_CHUNK_LINE_MAX, 400, &line);
    if (got != GO_ON) return got;
    if (!um_http_read_chunk_line(p, line, &size)) return UM_HTTP_BAD;
    if (size > p->limits.body - p->body) {
        um_http_reject(p, 413, "the body is longer than %zu bytes", p->limits.body);
        return UM_HTTP_BAD;
    }
    p->body += size;
    p->left = size;
    p->state = size ? AT_CHUNK : AT_TRAILERS;
    return GO_ON;
}

static int at_chunk(um_http_parser *p, input *in) { return take_piece(p, in, AT_CHUNK_END); }

static int at_chunk_end(um_http_parser *p, input *in) {
    for (; in->n && p->line.len < 2; in->p++, in->n--) {
        if (in->p[0] != "\r\n"[p->line.len]) {
            um_http_reject(p, 400, "a chunk is longer than its size says");
            return UM_HTTP_BAD;
        }
        um_buf_putc(&p->line, in->p[0]);
    }
    if (p->line.len < 2) return UM_HTTP_NEED_MORE;
    p->line.len = 0;
    p->state = AT_CHUNK_SIZE;
    return GO_ON;
}

/* Checks trailers like headers, and drops them, because nothing here depends on them. */
static int at_trailers(um_http_parser *p, input *in) {
    um_str line;
    um_http_field f;
    int got = chunk_line(p, in, p->limits.head - p->trailers, 431, &line);
    if (got != GO_ON) return got;
    p->trailers += line.n + 2;
    if (!line.n) p->state = AT_END;
    else if (!um_http_read_field(p, line, &f)) return UM_HTTP_BAD;
    return GO_ON;
}

static int at_end(um_http_parser *p, input *in) {
    (void)p, (void)in;
    return UM_HTTP_DONE;
}

static int at_failure(um_http_parser *p, input *in) {
    (void)p, (void)in;
    return UM_HTTP_BAD;
}

/* ---- Feeding ----------------------------------------------------------------------------------------------------- */

static int (*const states[])(um_http_parser *p, input *in) = {
    [AT_START_LINE] = at_start_line, [AT_FIELDS] = at_fields,         [AT_BODY] = at_body,
    [AT_CLOSE_BODY] = at_close_body, [AT_CHUNK_SIZE] = at_chunk_size, [AT_CHUNK] = at_chunk,
    [AT_CHUNK_END] = at_chunk_end,   [AT_TRAILERS] = at_trailers,     [AT_END] = at_end,
    [AT_FAILURE] = at_failure,
};

um_http_got um_http_feed(um_http_parser *p, const char *bytes, size_t n, size_t *used) {
    input in = {bytes, n};
    int got;
    do got = states[p->state](p, &in);
    while (got == GO_ON);
    *used = n - in.n;
    return (um_http_got)got;
}

um_http_got um_http_feed_end(um_http_parser *p) {
    if (p->state == AT_CLOSE_BODY || p->state == AT_END) return UM_HTTP_DONE;
    if (p->state != AT_FAILURE) um_http_reject(p, 400, "the connection was closed in the middle of a message");
    return UM_HTTP_BAD;
}
