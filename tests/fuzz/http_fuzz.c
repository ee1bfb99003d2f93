/* Fuzzes the HTTP parser, URLs and event streams. The first bytes choose the target, the limits and how the input is
 * split. The parser must give the same result for whole and split input. Accepted messages must keep the promises of
 * parse.h. A head that is written again from its parsed parts must be parsed to the same parts. */
#include <stdlib.h>

#include "server/http/http.h"
#include "server/http/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool claim) {
    if (!claim) abort();
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

typedef struct verdict {
    um_buf said; /* a line for each result, and the bytes of bodies */
    int n_messages;
} verdict;

static void check_head(const um_http_parser *p) {
    const um_http_head *h = &p->head;
    require(h->text.len <= p->limits.head && h->n_fields <= UM_HTTP_FIELDS_MAX);
    require(!(h->length >= 0 && h->is_chunked));
    if (p->kind == UM_HTTP_RESPONSE) {
        require(h->status >= 200 && h->status <= 599);
        return;
    }
    require(h->length <= (int64_t)p->limits.body);
    require(h->path.len && strlen(h->path.data) == h->path.len);
    require(h->path.data[0] == '/' || um_streq(h->path.data, "*"));
    require(um_utf8_check(h->path.data, h->path.len) == h->path.len);
    um_buf query = {0};
    require(um_http_decode(&query, um_http_span_str(h, h->query), true));
    um_buf_free(&query);
    for (uint32_t i = 0; i < h->n_fields; i++) {
        um_str name = um_http_span_str(h, h->field[i].name), value = um_http_span_str(h, h->field[i].value);
        require(name.n && name.p >= h->text.data && value.p + value.n <= h->text.data + h->text.len);
        for (size_t k = 0; k < value.n; k++) require(value.p[k] != '\r' && value.p[k] != '\n' && value.p[k]);
    }
}

static void put_fields(um_buf *out, const um_http_head *h) {
    for (uint32_t i = 0; i < h->n_fields; i++) {
        um_str name = um_http_span_str(h, h->field[i].name), value = um_http_span_str(h, h->field[i].value);
        um_buf_append(out, name.p, name.n);
        um_buf_puts(out, ": ");
        um_buf_append(out, value.p, value.n);
        um_buf_puts(out, "\r\n");
    }
}

static void put_head(um_buf *out, const um_http_parser *p) {
    const um_http_head *h = &p->head;
    um_str method = um_http_span_str(h, h->method), query = um_http_span_str(h, h->query);
    um_buf_printf(out, "head %.*s %s ?%.*s %d %d %lld %d%d%d\n", (int)method.n, method.p,
                  h->path.len ? h->path.data : "", (int)query.n, query.p, h->minor, h->status, (long long)h->length,
                  h->is_chunked, h->keep_alive, h->expects_continue);
    put_fields(out, h);
}

/* Writes the head again, with every byte of the path escaped, and parses it. The request line may become too long. */
static void read_again(const um_http_parser *p) {
    const um_http_head *h = &p->head;
    um_buf text = {0}, first = {0}, second = {0};
    um_str method = um_http_span_str(h, h->method), query = um_http_span_str(h, h->query);
    um_http_parser again;
    size_t used;
    um_buf_printf(&text, "%.*s ", (int)method.n, method.p);
    for (size_t i = 0; i < h->path.len; i++)
        um_buf_printf(&text, strchr("/*", h->path.data[i]) ? "%c" : "%%%02X", (unsigned char)h->path.data[i]);
    um_buf_printf(&text, "?%.*s HTTP/1.%d\r\n", (int)query.n, query.p, h->minor);
    if (h->path.data[0] == '*') um_buf_clear(&text), um_buf_printf(&text, "OPTIONS * HTTP/1.%d\r\n", h->minor);
    put_fields(&text, h);
    um_buf_puts(&text, "\r\n");
    um_http_parser_init(&again, UM_HTTP_REQUEST, (um_http_limits){text.len, p->limits.body});
    um_http_got got = um_http_feed(&again, text.data, text.len, &used);
    if (got == UM_HTTP_HEAD) {
        put_head(&first, p);
        put_head(&second, &again);
        require(used == text.len && um_str_eq((um_str){first.data, first.len}, (um_str){second.data, second.len}));
    } else {
        require(got == UM_HTTP_BAD && again.status == 414);
    }
    um_http_parser_free(&again);
    um_buf_free(&text);
    um_buf_free(&first);
    um_buf_free(&second);
}

/* The lengths of the pieces into which the input is split. They repeat after the last one. */
typedef struct cuts {
    const uint8_t *length;
    size_t n, at;
} cuts;

static size_t next_cut(cuts *c, size_t left) {
    if (!c->n) return left;
    size_t n = c->length[c->at++ % c->n];
    return UM_MIN(UM_MAX(n, (size_t)1), left);
}

static void note(verdict *v, const um_http_parser *p, um_http_got got) {
    switch (got) {
    case UM_HTTP_NEED_MORE: break;
    case UM_HTTP_HEAD:
        check_head(p);
        put_head(&v->said, p);
        if (p->kind == UM_HTTP_REQUEST) read_again(p);
        break;
    case UM_HTTP_BODY:
        require(p->piece.n > 0);
        um_buf_append(&v->said, p->piece.p, p->piece.n);
        break;
    case UM_HTTP_DONE: um_buf_printf(&v->said, "\ndone %d\n", ++v->n_messages); break;
    case UM_HTTP_BAD:
        require(p->status >= 400 && p->status <= 599 && p->message[0]);
        um_buf_printf(&v->said, "\nbad %d %s\n", p->status, p->message);
        break;
    }
}

/* Parses all messages of the input. Each piece has its own block, so that a sanitizer notices reads beyond it. */
static void read_messages(verdict *v, um_http_kind kind, um_http_limits limits, um_str in, cuts c) {
    um_http_parser p;
    um_http_got got = UM_HTTP_NEED_MORE;
    um_http_parser_init(&p, kind, limits);
    while (in.n && got != UM_HTTP_BAD) {
        size_t n = next_cut(&c, in.n), at = 0, used;
        char *piece = um_strndup(in.p, n);
        do {
            got = um_http_feed(&p, piece + at, n - at, &used);
            require(used <= n - at);
            at += used;
            note(v, &p, got);
            if (got == UM_HTTP_DONE) um_http_parser_next(&p);
        } while (got != UM_HTTP_BAD && (got != UM_HTTP_NEED_MORE || at < n));
        um_free(piece);
        in = (um_str){in.p + n, in.n - n};
    }
    note(v, &p, um_http_feed_end(&p));
    um_http_parser_free(&p);
}

static void compare_cuts(um_http_kind kind, um_http_limits limits, um_str in, cuts c) {
    verdict whole = {0}, cut = {0};
    read_messages(&whole, kind, limits, in, (cuts){0});
    read_messages(&cut, kind, limits, in, c);
    require(whole.n_messages == cut.n_messages);
    require(um_str_eq((um_str){whole.said.data, whole.said.len}, (um_str){cut.said.data, cut.said.len}));
    um_buf_free(&whole.said);
    um_buf_free(&cut.said);
}

/* ---- URLs and events --------------------------------------------------------------------------------------------- */

static void read_url(um_str in) {
    um_url u;
    um_err err = {0};
    char *text = um_strndup(in.p, in.n);
    if (um_url_parse(&u, text, &err)) require(err.msg[0]);
    else require(u.host[0] && u.port >= 0 && u.port <= 65535 && (!u.path[0] || u.path[0] == '/'));
    um_free(text);
}

static void put_event(void *arg, um_str data) {
    um_buf *out = (um_buf *)arg;
    um_buf_printf(out, "%zu ", data.n);
    um_buf_append(out, data.p, data.n);
}

static void compare_events(um_str in, cuts c) {
    um_sse_reader a = {0}, b = {0};
    um_buf whole = {0}, cut = {0};
    require(um_sse_read(&a, in.p, in.n, put_event, &whole, NULL) == UM_OK);
    while (in.n) {
        size_t n = next_cut(&c, in.n);
        require(um_sse_read(&b, in.p, n, put_event, &cut, NULL) == UM_OK);
        in = (um_str){in.p + n, in.n - n};
    }
    require(um_str_eq((um_str){whole.data, whole.len}, (um_str){cut.data, cut.len}));
    um_sse_reader_free(&a);
    um_sse_reader_free(&b);
    um_buf_free(&whole);
    um_buf_free(&cut);
}

/* Byte 0 chooses the target, byte 1 the limits, the next eight bytes are the lengths of the pieces. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { SETTINGS = 10 };
    if (size < SETTINGS) return 0;
    um_str in = {(const char *)data + SETTINGS, size - SETTINGS};
    cuts c = {data + 2, 8, 0};
    um_http_limits limits = {data[1] & 1 ? 64 + data[1] : UM_HTTP_HEAD_MAX, data[1] & 2 ? data[1] : (size_t)1 << 20};
    switch (data[0] % 8) {
    case 0: compare_events(in, c); break;
    case 1: read_url(in); break;
    case 2: compare_cuts(UM_HTTP_RESPONSE, limits, in, c); break;
    default: compare_cuts(UM_HTTP_REQUEST, limits, in, c); break;
    }
    return 0;
}
