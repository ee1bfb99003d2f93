/* parse: HTTP/1.1 messages out of bytes that come in pieces of any size. It is strict (RFC 9112): what two programs
 * could read in two ways is refused, so that nothing can be smuggled past a proxy. Whether the bytes come one by one or
 * all at once makes no difference to what it says. Pure: no sockets, no clock. Inside the room only. */
#ifndef UM_HTTP_PARSE_H
#define UM_HTTP_PARSE_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_HTTP_LINE_MAX       ((size_t)8 << 10)  /* request line: 414 */
#define UM_HTTP_HEAD_MAX       ((size_t)32 << 10) /* request line and headers: 431; trailers have the same limit */
#define UM_HTTP_FIELDS_MAX     100                /* headers: 431 */
#define UM_HTTP_CHUNK_LINE_MAX ((size_t)256)      /* size and extensions of a chunk */
#define UM_HTTP_EXTENSIONS_MAX ((size_t)16 << 10) /* of all chunks of a body */
#define UM_HTTP_INTERIM_MAX    16                 /* answers 1xx before the real one */

typedef struct um_http_limits {
    size_t head; /* bytes of a head, at most UINT32_MAX / 2 */
    size_t body;
} um_http_limits;

typedef enum { UM_HTTP_REQUEST, UM_HTTP_RESPONSE } um_http_kind;

/* What feeding gave. */
typedef enum {
    UM_HTTP_NEED_MORE, /* all bytes were used */
    UM_HTTP_HEAD,      /* the head is whole */
    UM_HTTP_BODY,      /* p->piece is a piece of the body, inside of the bytes that were fed */
    UM_HTTP_DONE,      /* the message ended; what follows belongs to the next one */
    UM_HTTP_BAD        /* p->status and p->message say why; nothing more can be read */
} um_http_got;

/* A part of a head's text. */
typedef struct um_http_span {
    uint32_t at, n;
} um_http_span;

typedef struct um_http_field {
    um_http_span name, value;
} um_http_field;

typedef struct um_http_head {
    um_buf text;          /* its lines as they came */
    um_http_field *field; /* [n_fields] */
    uint32_t n_fields, fields_cap;
    int minor;           /* of HTTP/1.x */
    um_http_span method; /* REQUEST */
    um_buf path;         /* decoded: UTF-8 without controls, begins with '/'; "*" for OPTIONS * */
    um_http_span query;  /* behind '?', its escapes checked */
    int status;          /* RESPONSE */
    int64_t length;      /* of Content-Length, -1: there is none */
    bool is_chunked, keep_alive, expects_continue;
} um_http_head;

typedef struct um_http_parser {
    um_http_kind kind;
    um_http_limits limits;
    bool bodiless; /* RESPONSE: it answers HEAD */
    int state;
    um_http_head head;
    um_buf line;       /* chunk size or trailer that is being read */
    size_t line_start; /* of head.text */
    uint64_t left;     /* bytes of the body, or of its chunk, that are still to come */
    uint64_t body;     /* bytes of the body that were announced so far */
    size_t extensions, trailers;
    int n_interim;
    um_str piece;
    int status; /* BAD: the answer's status, for a request */
    char message[160];
} um_http_parser;

/* `limits` are copied. */
void um_http_parser_init(um_http_parser *p, um_http_kind kind, um_http_limits limits);
void um_http_parser_next(um_http_parser *p); /* for the message behind DONE */
void um_http_parser_free(um_http_parser *p);

/* Feeds on bytes, stops at the first thing to report; *used of them are done with. Feed again (perhaps with no bytes)
 * until it says NEED_MORE. */
um_http_got um_http_feed(um_http_parser *p, const char *bytes, size_t n, size_t *used);
/* The peer will send no more: DONE when that ends a response, else BAD. */
um_http_got um_http_feed_end(um_http_parser *p);

/* What a head says. Names in any case. */
um_str um_http_span_str(const um_http_head *h, um_http_span s);
/* Value of the first field of this name, from index *i on, which moves behind it; p NULL: none. */
um_str um_http_head_find(const um_http_head *h, const char *name, uint32_t *i);
bool um_http_name_eq(um_str a, const char *b);

/* ---- Parts (head.c, target.c, chunk.c) --------------------------------------------------------------------------- */

/* Notes why a message is refused; returns false. */
bool um_http_refuse(um_http_parser *p, int status, const char *fmt, ...) UM_PRINTF(3, 4);

bool um_http_is_token_char(char c);
int um_http_hex_digit(char c); /* 0..15, or -1 */
/* Lines come without their CR LF. False: refused. */
bool um_http_read_start_line(um_http_parser *p, um_str line);
bool um_http_read_field(um_http_parser *p, um_str line, um_http_field *out); /* spans count from the line's start */
bool um_http_read_framing(um_http_parser *p);                                /* behind the last field */
/* A size in hexadecimal digits and extensions. */
bool um_http_read_chunk_line(um_http_parser *p, um_str line, uint64_t *size);
/* Method, request target: path and query. */
bool um_http_read_target(um_http_parser *p, um_http_span target);
bool um_http_is_host(um_str s); /* name or address, perhaps with a port */
/* Appends text with its %XX decoded, and '+' as a space; false: a bad escape, a control or no UTF-8. */
bool um_http_decode(um_buf *out, um_str s, bool plus_is_space);

#ifdef __cplusplus
}
#endif
#endif
