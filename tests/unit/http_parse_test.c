/* The HTTP parser: a table of raw requests and the result of each. Every request is fed whole and byte by byte. */
#include "server/http/parse.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

enum { HEAD_MAX = 2000, BODY_MAX = 100 };

/* The result of an input. */
typedef struct outcome {
    int status; /* 0: the message was read, -1: bytes are missing */
    um_buf body;
    char message[160];
    size_t used;
} outcome;

/* Feeds at most `step` bytes at a time, to the end of the first message. */
static void feed(um_http_parser *p, um_str in, size_t step, outcome *out) {
    um_http_got got = UM_HTTP_NEED_MORE;
    size_t end = 0;
    *out = (outcome){.status = -1};
    while (got != UM_HTTP_DONE && got != UM_HTTP_BAD && (got != UM_HTTP_NEED_MORE || end < in.n)) {
        size_t used;
        if (got == UM_HTTP_NEED_MORE) end = UM_MIN(end + step, in.n);
        got = um_http_feed(p, in.p + out->used, end - out->used, &used);
        if (got == UM_HTTP_BODY) um_buf_append(&out->body, p->piece.p, p->piece.n);
        if (got == UM_HTTP_NEED_MORE) assert_int_equal(used, end - out->used);
        out->used += used;
    }
    if (got == UM_HTTP_DONE) out->status = 0;
    if (got != UM_HTTP_BAD) return;
    out->status = p->status;
    snprintf(out->message, sizeof out->message, "%s", p->message);
}

static um_http_parser parser(um_http_kind kind) {
    um_http_parser p;
    um_http_parser_init(&p, kind, (um_http_limits){HEAD_MAX, BODY_MAX});
    return p;
}

/* Parses one input to its end. The caller frees the outcome's body. */
static outcome parse(um_http_kind kind, um_str in, size_t step) {
    um_http_parser p = parser(kind);
    outcome o;
    feed(&p, in, step, &o);
    um_http_parser_free(&p);
    return o;
}

static int status_of(um_http_kind kind, um_str in, size_t step) {
    outcome o = parse(kind, in, step);
    um_buf_free(&o.body);
    return o.status;
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

#define GET  "GET / HTTP/1.1\r\n"
#define POST "POST / HTTP/1.1\r\n"
#define HOST "Host: a\r\n"
#define END  "\r\n"

typedef struct row {
    const char *text;
    int status;       /* 0: accepted; -1: incomplete */
    const char *what; /* accepted: the body; rejected: a part of the error message */
} row;

static const row requests[] = {
    /* accepted */
    {GET HOST END, 0, ""},
    {END GET HOST END, 0, ""},
    {POST HOST "Content-Length: 3\r\n" END "abc", 0, "abc"},
    {POST HOST "content-length:3\t\r\n" END "abc", 0, "abc"},
    {POST HOST "Content-Length: 003\r\n" END "abc", 0, "abc"},
    {POST HOST "Content-Length: 0\r\n" END, 0, ""},
    {POST HOST "Transfer-Encoding: chunked\r\n" END "3\r\nabc\r\n0\r\n\r\n", 0, "abc"},
    {POST HOST "Transfer-Encoding: CHUNKED\r\n" END "00a\r\n0123456789\r\n1\r\n!\r\n0\r\n\r\n", 0, "0123456789!"},
    {POST HOST "Transfer-Encoding: chunked\r\n" END "3;a;b=c;d=\"e \\\" ;\"\r\nabc\r\n0;x\r\nT: 1\r\nU: 2\r\n\r\n", 0,
     "abc"},
    {"GET / HTTP/1.0\r\n" END, 0, ""},
    {"GET http://b:80/x?y HTTP/1.1\r\n" HOST END, 0, ""},
    {"GET http://[::1]:80?y HTTP/1.1\r\n" HOST END, 0, ""},
    {"OPTIONS * HTTP/1.1\r\n" HOST END, 0, ""},
    {"OPTIONS /x HTTP/1.1\r\n" HOST END, 0, ""},
    {"FETCH+1 / HTTP/1.1\r\n" HOST END, 0, ""},
    {GET "Host: [::1]:8000\r\n" END, 0, ""},
    {GET "Host: a-b_c.d:65535\r\n" END, 0, ""},
    {GET HOST "X: \xE2\x82\xAC \xFF\r\nY:\r\n" END, 0, ""},
    {GET HOST "!#$%&'*+-.^_`|~19aZ: x\r\n" END, 0, ""},
    {GET HOST "Expect: 100-Continue\r\n" END, 0, ""},
    {"GET /%E2%82%AC?a=%41&b=[x]|{y}^ HTTP/1.1\r\n" HOST END, 0, ""},
    /* first line */
    {"\x16\x03\x01", 400, "expected HTTP, found byte 0x16"},
    {" GET / HTTP/1.1\r\n" HOST END, 400, "found byte 0x20"},
    {END END GET HOST END, 400, "method"},
    {"GET / HTTP/1.1\n" HOST END, 400, "CR LF"},
    {"GET /\r\n" HOST END, 400, "METHOD TARGET"},
    {"GET  / HTTP/1.1\r\n" HOST END, 400, "METHOD TARGET"},
    {"GET /  HTTP/1.1\r\n" HOST END, 400, "version"},
    {"GET / HTTP/1.1 \r\n" HOST END, 400, "version"},
    {"GET /\tHTTP/1.1\r\n" HOST END, 400, "METHOD TARGET"},
    {"GET\t/ HTTP/1.1\r\n" HOST END, 400, "method"},
    {"G(T / HTTP/1.1\r\n" HOST END, 400, "method"},
    {"GET / http/1.1\r\n" HOST END, 400, "version"},
    {"GET / HTTP/11\r\n" HOST END, 400, "version"},
    {"GET / HTTP/1.10\r\n" HOST END, 400, "version"},
    {"GET / HTTP/1.2\r\n" HOST END, 505, "HTTP/1.2"},
    {"GET / HTTP/0.9\r\n" HOST END, 505, "HTTP/0.9"},
    {"GET / HTTP/2.0\r\n" HOST END, 505, "HTTP/2.0"},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "HTTP/2.0"},
    /* target */
    {"GET x HTTP/1.1\r\n" HOST END, 400, "neither with '/'"},
    {"GET ftp://a/ HTTP/1.1\r\n" HOST END, 400, "neither with '/'"},
    {"GET http:///x HTTP/1.1\r\n" HOST END, 400, "host of the request target"},
    {"GET http://a@b/x HTTP/1.1\r\n" HOST END, 400, "host of the request target"},
    {"GET http://a:99999/ HTTP/1.1\r\n" HOST END, 400, "host of the request target"},
    {"CONNECT a:80 HTTP/1.1\r\n" HOST END, 400, "neither with '/'"},
    {"GET * HTTP/1.1\r\n" HOST END, 400, "OPTIONS"},
    {"GET /a#b HTTP/1.1\r\n" HOST END, 400, "byte 0x23"},
    {"GET /\xC3\xA4 HTTP/1.1\r\n" HOST END, 400, "byte 0xC3"},
    {"GET /\x01 HTTP/1.1\r\n" HOST END, 400, "byte 0x01"},
    {"GET /a\rb HTTP/1.1\r\n" HOST END, 400, "byte 0x0D"},
    {"GET /% HTTP/1.1\r\n" HOST END, 400, "path"},
    {"GET /%4 HTTP/1.1\r\n" HOST END, 400, "path"},
    {"GET /%4g HTTP/1.1\r\n" HOST END, 400, "path"},
    {"GET /%00 HTTP/1.1\r\n" HOST END, 400, "path"},
    {"GET /%0a HTTP/1.1\r\n" HOST END, 400, "path"},
    {"GET /%ff HTTP/1.1\r\n" HOST END, 400, "path"},
    {"GET /%c0%af HTTP/1.1\r\n" HOST END, 400, "path"},
    {"GET /?a=%zz HTTP/1.1\r\n" HOST END, 400, "query"},
    {"GET /?a=%00 HTTP/1.1\r\n" HOST END, 400, "query"},
    {"GET /?a=%80 HTTP/1.1\r\n" HOST END, 400, "query"},
    /* headers */
    {GET HOST "X: a\nY: b\r\n" END, 400, "CR LF"},
    {GET HOST "X: a\n" END, 400, "CR LF"},
    {GET HOST "\n", 400, "CR LF"},
    {GET HOST "X: a\rb\r\n" END, 400, "control byte 0x0D"},
    {GET HOST "X: a\x01\r\n" END, 400, "header X has control byte 0x01"},
    {GET HOST "X: \x7F\r\n" END, 400, "control byte 0x7F"},
    {GET HOST "X : a\r\n" END, 400, "a name followed by a colon"},
    {GET HOST ": a\r\n" END, 400, "a name followed by a colon"},
    {GET HOST "X\r\n" END, 400, "a name followed by a colon"},
    {GET HOST "X y: a\r\n" END, 400, "a name followed by a colon"},
    {GET HOST "X(: a\r\n" END, 400, "a name followed by a colon"},
    {GET HOST "\xC3\xA4: a\r\n" END, 400, "a name followed by a colon"},
    {GET HOST "X: a\r\n b\r\n" END, 400, "a name followed by a colon"},
    {GET HOST "X: a\r\n\tb\r\n" END, 400, "a name followed by a colon"},
    {GET " X: a\r\n" HOST END, 400, "a name followed by a colon"},
    /* host */
    {GET END, 400, "Host is missing"},
    {GET HOST HOST END, 400, "duplicate header Host"},
    {GET "Host:\r\n" END, 400, "not HOST"},
    {GET "Host: a b\r\n" END, 400, "not HOST"},
    {GET "Host: a/b\r\n" END, 400, "not HOST"},
    {GET "Host: a@b\r\n" END, 400, "not HOST"},
    {GET "Host: a, b\r\n" END, 400, "not HOST"},
    {GET "Host: a:\r\n" END, 400, "not HOST"},
    {GET "Host: a:80x\r\n" END, 400, "not HOST"},
    {GET "Host: a:65536\r\n" END, 400, "not HOST"},
    {GET "Host: [::1\r\n" END, 400, "not HOST"},
    {GET "Host: []\r\n" END, 400, "not HOST"},
    {GET "Host: ::1\r\n" END, 400, "not HOST"},
    {"GET http://b/ HTTP/1.1\r\n" END, 400, "Host is missing"},
    {"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n" END, 400, "duplicate header Host"},
    /* length */
    {POST HOST "Content-Length: 3\r\nContent-Length: 4\r\n" END "abcd", 400, "duplicate header Content-Length"},
    {POST HOST "Content-Length: 3\r\nContent-Length: 3\r\n" END "abc", 400, "duplicate header Content-Length"},
    {POST HOST "Content-Length: 3, 3\r\n" END "abc", 400, "not a number"},
    {POST HOST "Content-Length: -3\r\n" END "abc", 400, "not a number"},
    {POST HOST "Content-Length: +3\r\n" END "abc", 400, "not a number"},
    {POST HOST "Content-Length: 3 3\r\n" END "abc", 400, "not a number"},
    {POST HOST "Content-Length: 0x3\r\n" END "abc", 400, "not a number"},
    {POST HOST "Content-Length: 3.0\r\n" END "abc", 400, "not a number"},
    {POST HOST "Content-Length:\r\n" END "abc", 400, "empty"},
    {POST HOST "Content-Length: 9223372036854775808\r\n" END, 400, "not a number"},
    {POST HOST "Content-Length: 18446744073709551619\r\n" END "abc", 400, "not a number"},
    {POST HOST "Content-Length: 101\r\n" END, 413, "101 bytes long; the limit is 100"},
    {POST HOST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n" END "0\r\n\r\n", 400, "exclude each other"},
    {POST HOST "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n" END "0\r\n\r\n", 400, "exclude each other"},
    {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n" END "0\r\n\r\n", 400, "HTTP/1.0"},
    {POST HOST "Transfer-Encoding: gzip, chunked\r\n" END, 501, "only chunked"},
    {POST HOST "Transfer-Encoding: chunked, chunked\r\n" END, 501, "only chunked"},
    {POST HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n" END, 501, "only chunked"},
    {POST HOST "Transfer-Encoding: identity\r\n" END, 501, "only chunked"},
    {POST HOST "Transfer-Encoding: xchunked\r\n" END, 501, "only chunked"},
    {POST HOST "Transfer-Encoding:\r\n" END, 501, "only chunked"},
    {POST HOST "Expect: 200-ok\r\n" END, 417, "100-continue"},
    /* chunks */
    {POST HOST "Transfer-Encoding: chunked\r\n" END "0x3\r\nabc\r\n0\r\n\r\n", 400, "extension"},
    {POST HOST "Transfer-Encoding: chunked\r\n" END "\r\nabc\r\n0\r\n\r\n", 400, "hexadecimal"},
    {POST HOST "Transfer-Encoding: chunked\r\n" END "-3\r\nabc\r\n0\r\n\r\n", 400, "hexadecimal"},
    {POST HOST "Transfer-Encoding: chunked\r\n" END " 3\r\nabc\r\n0\r\n\r\n", 400, "hexadecimal"},
    {POST HOST "Transfer-Encoding: chunked\r\n" END "3 \r\nabc\r\n0\r\n\r\n", 400, "extension"},
    {POST HOST "Transfer-Encoding: chunked\r\n" END "3;\r\nabc\r\n0\r\n\r\n", 400, "extension"},
    {POST HOST "Transfer-Encoding: chunked\r\n" END "3;a=\r\nabc\r\n0\r\n\r\n", 400, "extension"},
    {POST HOST "Transfer-Encoding: chunked\r\n" END "3;a=\"b\r\nabc\r\n0\r\n\r\n", 400, "extension"},
    {POST HOST "Transfer-Encoding: chunked\r\n" END "3;a=\"b\\\r\nabc\r\n0\r\n\r\n", 400, "extension"},
    {POST HOST "Transfer-Encoding: chunked\r\n" END "3;a\rb\r\nabc\r\n0\r\n\r\n", 400, "extension"},
    {POST HOST "Transfer-Encoding: chunked\r\n" END "3\nabc\r\n0\r\n\r\n", 400, "CR LF"},
    {POST HOST "Transfer-Encoding: chunked\r\n" END "3\r\nabcd\r\n0\r\n\r\n", 400, "longer than its size"},
    {POST HOST "Transfer-Encoding: chunked\r\n" END "3\r\nabc\n0\r\n\r\n", 400, "longer than its size"},
    {POST HOST "Transfer-Encoding: chunked\r\n" END "10000000000000000\r\n", 400, "too large"},
    {POST HOST "Transfer-Encoding: chunked\r\n" END "ffffffffffffffff\r\n", 413, "longer than 100"},
    {POST HOST "Transfer-Encoding: chunked\r\n" END "65\r\n", 413, "longer than 100"},
    {POST HOST "Transfer-Encoding: chunked\r\n" END "0\r\nX y\r\n\r\n", 400, "a name followed by a colon"},
    {POST HOST "Transfer-Encoding: chunked\r\n" END "0\r\nX: y\n\r\n", 400, "CR LF"},
    /* incomplete */
    {GET HOST, -1, ""},
    {POST HOST "Content-Length: 3\r\n" END "ab", -1, "ab"},
    {POST HOST "Transfer-Encoding: chunked\r\n" END "3\r\nabc\r\n", -1, "abc"},
    {POST HOST "Transfer-Encoding: chunked\r\n" END "3\r\nabc\r\n0\r\n", -1, "abc"},
};

static void check_row(um_http_kind kind, const row *r, size_t step) {
    outcome o = parse(kind, um_str_of(r->text), step);
    if (o.status != r->status)
        fail_msg("expected %d, got %d (%s), in steps of %zu:\n%s", r->status, o.status, o.message, step, r->text);
    um_buf_append(&o.body, "", 0);
    if (r->status > 0 && !strstr(o.message, r->what)) fail_msg("\"%s\" is not in: %s", r->what, o.message);
    if (r->status <= 0 && !um_streq(o.body.data, r->what)) fail_msg("body \"%s\", not \"%s\"", o.body.data, r->what);
    if (r->status == 0) assert_int_equal(o.used, strlen(r->text));
    um_buf_free(&o.body);
}

static void check_rows(um_http_kind kind, const row *rows, size_t n) {
    const size_t steps[] = {SIZE_MAX / 4, 1, 3};
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < UM_LEN(steps); k++) check_row(kind, &rows[i], steps[k]);
}

static void parses_each_request_of_the_table(void **state) {
    (void)state;
    check_rows(UM_HTTP_REQUEST, requests, UM_LEN(requests));
}

/* These inputs contain a NUL, which the strings of the table can't. */
static void refuses_nul_bytes(void **state) {
    (void)state;
    const um_str in[] = {UM_STR("\0"),
                         UM_STR("GET /\0 HTTP/1.1\r\n"),
                         UM_STR(GET "Host: a\0b\r\n\r\n"),
                         UM_STR(GET HOST "X\0: b\r\n\r\n"),
                         UM_STR(GET HOST "X: \0\r\n\r\n"),
                         UM_STR(POST HOST "Transfer-Encoding: chunked\r\n\r\n3\0\r\nabc")};
    for (size_t i = 0; i < UM_LEN(in); i++) assert_int_equal(status_of(UM_HTTP_REQUEST, in[i], 1000), 400);
}

/* ---- Limits ------------------------------------------------------------------------------------------------------ */

static int status_of_request(const um_buf *in, size_t step) {
    return status_of(UM_HTTP_REQUEST, (um_str){in->data, in->len}, step);
}

/* A head of exactly the limit is accepted, one more byte is rejected, however the bytes are split. */
static void limits_the_head(void **state) {
    (void)state;
    const size_t steps[] = {1, 7, 100000};
    for (size_t k = 0; k < UM_LEN(steps); k++) {
        for (int more = 0; more <= 1; more++) {
            um_buf line = {0}, head = {0};
            const size_t fixed = strlen("GET / HTTP/1.1\r\n");
            um_buf_puts(&line, "GET /");
            while (line.len < HEAD_MAX + (size_t)more - (fixed - 5)) um_buf_putc(&line, 'x');
            um_buf_puts(&line, " HTTP/1.1\r\n");
            assert_int_equal(status_of_request(&line, steps[k]), more ? 414 : -1);
            um_buf_puts(&head, GET HOST "X: ");
            while (head.len < HEAD_MAX + (size_t)more - 4) um_buf_putc(&head, 'x');
            um_buf_puts(&head, "\r\n\r\n");
            assert_int_equal(status_of_request(&head, steps[k]), more ? 431 : 0);
            um_buf_free(&line);
            um_buf_free(&head);
        }
    }
}

static void limits_the_number_of_headers(void **state) {
    (void)state;
    for (int more = 0; more <= 1; more++) {
        um_buf in = {0};
        um_buf_puts(&in, GET HOST);
        for (int i = 1; i < UM_HTTP_FIELDS_MAX + more; i++) um_buf_puts(&in, "X: y\r\n");
        um_buf_puts(&in, END);
        assert_int_equal(status_of_request(&in, 1000), more ? 431 : 0);
        um_buf_free(&in);
    }
}

static void limits_trailers_and_chunk_extensions(void **state) {
    (void)state;
    um_buf trailers = {0}, line = {0}, many = {0};
    um_buf_puts(&trailers, POST HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n");
    for (int i = 0; i < HEAD_MAX / 5; i++) um_buf_puts(&trailers, "T: x\r\n");
    assert_int_equal(status_of_request(&trailers, 1000), 431);
    um_buf_puts(&line, POST HOST "Transfer-Encoding: chunked\r\n\r\n1;");
    for (int i = 0; i < 300; i++) um_buf_putc(&line, 'x');
    assert_int_equal(status_of_request(&line, 1000), 400);
    um_buf_puts(&many, POST HOST "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < BODY_MAX; i++)
        um_buf_printf(&many, "1;%s%s%s\r\nx\r\n",
                      "0123456789012345678901234567890123456789012345678901234567890123456789",
                      "0123456789012345678901234567890123456789012345678901234567890123456789",
                      "0123456789012345678901234567890123456789012345678901234567890123456789");
    assert_int_equal(status_of_request(&many, 1000), 400);
    um_buf_free(&trailers);
    um_buf_free(&line);
    um_buf_free(&many);
}

/* ---- Heads ------------------------------------------------------------------------------------------------------- */

static um_http_parser parse_head(const char *text) {
    um_http_parser p = parser(UM_HTTP_REQUEST);
    size_t used;
    um_http_got got = um_http_feed(&p, text, strlen(text), &used);
    if (got != UM_HTTP_HEAD) fail_msg("%s: %s", p.message, text);
    return p;
}

static void assert_span(const um_http_parser *p, um_http_span s, const char *expected) {
    um_str got = um_http_span_str(&p->head, s);
    if (!um_str_eq(got, um_str_of(expected))) fail_msg("\"%.*s\", not \"%s\"", (int)got.n, got.p, expected);
}

static void splits_the_target_into_path_and_query(void **state) {
    (void)state;
    const struct {
        const char *line, *path, *query;
    } cases[] = {
        {"GET /a/b?c=d?e HTTP/1.1\r\n", "/a/b", "c=d?e"},
        {"GET /%61%2Fb+c?%41+ HTTP/1.1\r\n", "/a/b+c", "%41+"},
        {"GET HTTP://h:1/p?q HTTP/1.1\r\n", "/p", "q"},
        {"GET http://h?q HTTP/1.1\r\n", "/", "q"},
        {"GET http://h HTTP/1.1\r\n", "/", ""},
        {"GET //h/x HTTP/1.1\r\n", "//h/x", ""},
        {"GET /? HTTP/1.1\r\n", "/", ""},
        {"OPTIONS * HTTP/1.1\r\n", "*", ""},
    };
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        char text[200];
        snprintf(text, sizeof text, "%s" HOST END, cases[i].line);
        um_http_parser p = parse_head(text);
        assert_string_equal(p.head.path.data, cases[i].path);
        assert_span(&p, p.head.query, cases[i].query);
        um_http_parser_free(&p);
    }
}

static void finds_headers_without_regard_to_case(void **state) {
    (void)state;
    um_http_parser p = parse_head(GET HOST "X-A: 1 \r\nY: 2\r\nx-a:\t3\r\n" END);
    uint32_t i = 0;
    assert_true(um_str_eq(um_http_head_find(&p.head, "x-A", &i), UM_STR("1")));
    assert_true(um_str_eq(um_http_head_find(&p.head, "x-A", &i), UM_STR("3")));
    assert_null(um_http_head_find(&p.head, "x-A", &i).p);
    i = 0;
    assert_null(um_http_head_find(&p.head, "x", &i).p);
    um_http_parser_free(&p);
}

static void reads_whether_the_connection_is_kept_alive(void **state) {
    (void)state;
    const struct {
        const char *head;
        bool keep_alive;
    } cases[] = {
        {GET HOST END, true},
        {GET HOST "Connection: close\r\n" END, false},
        {GET HOST "Connection: x ,\tClose\r\n" END, false},
        {GET HOST "Connection: x\r\nConnection: close\r\n" END, false},
        {GET HOST "Connection: closed, not-close\r\n" END, true},
        {GET HOST "Connection: keep-alive, close\r\n" END, false},
        {"GET / HTTP/1.0\r\n" END, false},
        {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n" END, true},
    };
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        um_http_parser p = parse_head(cases[i].head);
        if (p.head.keep_alive != cases[i].keep_alive) fail_msg("%s", cases[i].head);
        um_http_parser_free(&p);
    }
}

static void parses_pipelined_requests(void **state) {
    (void)state;
    um_str in = UM_STR(POST HOST "Content-Length: 2\r\n\r\nab" GET HOST "\r\n" GET HOST "X: y\r\n\r\n");
    um_http_parser p = parser(UM_HTTP_REQUEST);
    for (int i = 0; i < 3; i++) {
        outcome o;
        feed(&p, in, 1000, &o);
        assert_int_equal(o.status, 0);
        assert_int_equal(o.body.len, i == 0 ? 2 : 0);
        assert_int_equal(p.head.n_fields, 1 + (i != 1));
        in = (um_str){in.p + o.used, in.n - o.used};
        um_http_parser_next(&p);
        um_buf_free(&o.body);
    }
    assert_int_equal(in.n, 0);
    um_http_parser_free(&p);
}

/* ---- Responses --------------------------------------------------------------------------------------------------- */

static const row responses[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 0, "hi"},
    {"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nhi", 0, "hi"},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 0, "hi"},
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 0, "x"},
    {"HTTP/1.1 204 No Content\r\n\r\n", 0, ""},
    {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 0, ""},
    {"HTTP/1.1 200 OK\r\n\r\nto the end", -1, "to the end"},
    {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "exclude"},
    {"HTTP/1.1 101 Switching Protocols\r\n\r\n", 502, "status 101"},
    {"HTTP/1.1 99 X\r\n\r\n", 502, "status line"},
    {"HTTP/1.1 2000 X\r\n\r\n", 502, "status line"},
    {"HTTP/1.1 600 X\r\n\r\n", 502, "status line"},
    {"HTTP/1.1200 OK\r\n\r\n", 502, "status line"},
    {"HTTP/2.0 200 OK\r\n\r\n", 505, "HTTP/2.0"},
    {"SSH-2.0-x\r\n", 400, "version"},
};

static void parses_each_response_of_the_table(void **state) {
    (void)state;
    check_rows(UM_HTTP_RESPONSE, responses, UM_LEN(responses));
}

static void only_a_response_without_length_ends_with_the_connection(void **state) {
    (void)state;
    const struct {
        const char *text;
        um_http_got got;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\n\r\nabc", UM_HTTP_DONE},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", UM_HTTP_BAD},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", UM_HTTP_BAD},
        {"HTTP/1.1 200 OK\r\n", UM_HTTP_BAD},
        {"", UM_HTTP_BAD},
    };
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        um_http_parser p = parser(UM_HTTP_RESPONSE);
        outcome o;
        feed(&p, um_str_of(cases[i].text), 1000, &o);
        assert_int_equal(um_http_feed_end(&p), cases[i].got);
        um_buf_free(&o.body);
        um_http_parser_free(&p);
    }
}

/* Content-Length is that of the body of a GET response. */
static void expects_no_body_after_a_response_to_head(void **state) {
    (void)state;
    um_http_parser p = parser(UM_HTTP_RESPONSE);
    outcome o;
    p.bodiless = true;
    feed(&p, um_str_of("HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n"), 1000, &o);
    assert_int_equal(o.status, 0);
    um_http_parser_free(&p);
}

static void limits_interim_responses(void **state) {
    (void)state;
    um_buf in = {0};
    for (int i = 0; i <= UM_HTTP_INTERIM_MAX; i++) um_buf_puts(&in, "HTTP/1.1 103 Early Hints\r\n\r\n");
    assert_int_equal(status_of(UM_HTTP_RESPONSE, (um_str){in.data, in.len}, 1000), 502);
    um_buf_free(&in);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses_each_request_of_the_table),
        cmocka_unit_test(refuses_nul_bytes),
        cmocka_unit_test(limits_the_head),
        cmocka_unit_test(limits_the_number_of_headers),
        cmocka_unit_test(limits_trailers_and_chunk_extensions),
        cmocka_unit_test(splits_the_target_into_path_and_query),
        cmocka_unit_test(finds_headers_without_regard_to_case),
        cmocka_unit_test(reads_whether_the_connection_is_kept_alive),
        cmocka_unit_test(parses_pipelined_requests),
        cmocka_unit_test(parses_each_response_of_the_table),
        cmocka_unit_test(only_a_response_without_length_ends_with_the_connection),
        cmocka_unit_test(expects_no_body_after_a_response_to_head),
        cmocka_unit_test(limits_interim_responses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
