/* A parser of HTTP/1.1 messages that takes bytes in pieces of any size. It is strict (RFC 9112): it rejects anything
 * that two programs could read differently, so that no request can be smuggled past a proxy. The result does not depend
 * on how the bytes are split. It uses no sockets and no clock. Only this folder includes this header. */
#ifndef UM_HTTP_PARSE_H
#define UM_HTTP_PARSE_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limits, with the status of the response when a request exceeds them. */
#define UM_HTTP_LINE_MAX       ((size_t)8 << 10)  /* bytes of the request line: 414 */
#define UM_HTTP_HEAD_MAX       ((size_t)32 << 10) /* bytes of request line and headers, or of all trailers: 431 */
#define UM_HTTP_FIELDS_MAX     100                /* headers: 431 */
#define UM_HTTP_CHUNK_LINE_MAX ((size_t)256)      /* bytes of the size and extensions of a chunk: 400 */
#define UM_HTTP_EXTENSIONS_MAX ((size_t)16 << 10) /* bytes of the extensions of all chunks of a body: 400 */
#define UM_HTTP_INTERIM_MAX    16                 /* 1xx responses before the final response */

typedef struct um_http_limits {
    size_t head; /* bytes of a head, at most UINT32_MAX / 2 */
    size_t body;
} um_http_limits;

typedef enum { UM_HTTP_REQUEST, UM_HTTP_RESPONSE } um_http_kind;

/* The results of um_http_feed. */
typedef enum {
    UM_HTTP_NEED_MORE, /* all bytes were used */
    UM_HTTP_HEAD,      /* the head is complete */
    UM_HTTP_BODY,      /* p->piece is a piece of the body, and points into the bytes that were fed */
    UM_HTTP_DONE,      /* the message is complete; further bytes belong to the next one */
    UM_HTTP_BAD        /* p->status and p->message have the reason; the parser can't continue */
} um_http_got;

/* A part of the text of a head. */
typedef struct um_http_span {
    uint32_t at, n;
} um_http_span;

typedef struct um_http_field {
    um_http_span name, value;
} um_http_field;

typedef struct um_http_head {
    um_buf text;          /* lines of the head as they arrived */
    um_http_field *field; /* [n_fields] */
    uint32_t n_fields, fields_cap;
    int minor;           /* minor version: HTTP/1.x */
    um_http_span method; /* REQUEST */
    um_buf path;         /* decoded: UTF-8 without control characters, begins with '/'; "*" for OPTIONS * */
    um_http_span query;  /* the text after '?', not decoded, with valid escapes */
    int status;          /* RESPONSE */
    int64_t length;      /* Content-Length; -1: missing */
    bool is_chunked, keep_alive, expects_continue;
} um_http_head;

typedef struct um_http_parser {
    um_http_kind kind;
    um_http_limits limits;
    bool bodiless; /* RESPONSE: the request was HEAD */
    int state;
    um_http_head head;
    um_buf line;                 /* the chunk line or trailer that is being read */
    size_t line_start;           /* start of the current line in head.text */
    uint64_t left;               /* bytes of the body, or of the current chunk, that have not arrived */
    uint64_t body;               /* sum of the chunk sizes so far */
    size_t extensions, trailers; /* their bytes so far */
    int n_interim;
    um_str piece;
    int status; /* BAD: status of the error response, for a request */
    char message[160];
} um_http_parser;

/* Initialises a parser; copies `limits`. */
void um_http_parser_init(um_http_parser *p, um_http_kind kind, um_http_limits limits);
/* Prepares the parser for the next message after DONE. Keeps its memory. */
void um_http_parser_next(um_http_parser *p);
void um_http_parser_free(um_http_parser *p);

/* Parses bytes up to the first result. *used receives the number of parsed bytes. Call it again with the rest, even if
 * that is empty, until it returns NEED_MORE. */
um_http_got um_http_feed(um_http_parser *p, const char *bytes, size_t n, size_t *used);
/* Called when the peer will send no more. Returns DONE if that ends a response, else BAD. */
um_http_got um_http_feed_end(um_http_parser *p);

/* Reading a head. Names may be in any case. */
um_str um_http_span_str(const um_http_head *h, um_http_span s);
/* Returns the value of the first field of this name from index *i on, and moves *i past it. p is NULL if none. */
um_str um_http_head_find(const um_http_head *h, const char *name, uint32_t *i);
bool um_http_name_eq(um_str a, const char *b);

/* ---- Parts (head.c, target.c, chunk.c) --------------------------------------------------------------------------- */

/* Sets the status and message of an invalid message; returns false. */
bool um_http_reject(um_http_parser *p, int status, const char *fmt, ...) UM_PRINTF(3, 4);

bool um_http_is_token_char(char c);
int um_http_hex_digit(char c); /* 0..15, or -1 */
/* These functions read a part of a message. Lines are without their CR LF. They return false after um_http_reject. */
bool um_http_read_start_line(um_http_parser *p, um_str line);
/* Reads a header or trailer; the spans count from the start of the line. */
bool um_http_read_field(um_http_parser *p, um_str line, um_http_field *out);
/* Reads the fields that determine the body and the connection. Called after the last field. */
bool um_http_read_framing(um_http_parser *p);
/* Reads the size of a chunk in hexadecimal digits, and checks its extensions. */
bool um_http_read_chunk_line(um_http_parser *p, um_str line, uint64_t *size);
/* Reads path and query from the request target. */
bool um_http_read_target(um_http_parser *p, um_http_span target);
/* Tells whether a text is a host name or address, with or without a port. */
bool um_http_is_host(um_str s);
/* Appends text with %XX decoded, and with '+' as a space if plus_is_space. Returns false for an invalid escape, U+0000,
 * and text that is not UTF-8. */
bool um_http_decode(um_buf *out, um_str s, bool plus_is_space);

#ifdef __cplusplus
}
#endif
#endif
