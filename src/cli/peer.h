/* peer: a server that speaks the OpenAI way, as its clients see it: where it is, what its model is called, what its
 * answers say. Belongs to the thread of its event base. */
#ifndef UM_CLI_PEER_H
#define UM_CLI_PEER_H

#include "cli/cli.h"
#include "server/http/http.h"

struct addrinfo;
struct event_base;
struct json_t;

typedef struct um_peer {
    struct event_base *base;
    um_url url;                 /* its path is what stands before /v1 */
    struct addrinfo *addresses; /* of its host, looked up once */
    const char *api_key;
    char *model;    /* to ask for */
    char *version;  /* "unmask 0.1.0"; "" when the server does not say */
    bool is_unmask; /* knows denoising streams, and says passes and speed */
} um_peer;
/* Finds the server and its model (`model`; NULL: the first of its list). UM_EINVAL for a url that is none; UM_EIO when
 * nobody answers there, with what to do. */
um_status um_peer_open(um_peer *p, const char *url, const char *api_key, const char *model, um_err *err);
void um_peer_close(um_peer *p);
/* Asks below the address: "/v1/chat/completions". body NULL: GET. timeout: seconds without a byte, 0 = none. */
um_http_call *um_peer_call(um_peer *p, const char *path, const um_buf *body, double timeout, const um_http_listener *l,
                           void *arg);
/* Says what to do when nobody listens; other errors are left alone. */
um_status um_peer_blame(um_status s, const char *url, um_err *err);

/* ---- peer_says.c: what an answer or an event of a stream says ---- */

/* Whatever stands in none of the known places is 0, and nothing is below it. */
typedef struct um_peer_usage {
    bool is_given;
    int32_t prompt_tokens, completion_tokens, cached_tokens;
    int32_t nfe, denoise_tokens, denoise_passes; /* of unmask */
} um_peer_usage;
typedef enum {
    UM_SAYS_NOTHING,  /* a head, a usage, something unknown */
    UM_SAYS_TEXT,     /* settled text that is new; of an answer that is no stream, all of it */
    UM_SAYS_SNAPSHOT, /* the answer as it stands */
    UM_SAYS_WHOLE,    /* the whole answer's text, whatever came before */
    UM_SAYS_DONE,     /* the stream ends */
    UM_SAYS_ERROR
} um_peer_kind;
typedef struct um_peer_says {
    um_peer_kind kind;
    um_str text, reasoning; /* reasoning: shown, and no part of the answer */
    const char *finish;     /* its word, NULL: it goes on */
    um_finish finish_as;    /* the same as ours */
    um_peer_usage usage;
    int64_t seed;             /* -1: not said */
    int32_t n_settled;        /* of a snapshot: tokens that can no longer change */
    const struct json_t *ids; /* of the answer's tokens, or NULL */
    um_err err;               /* of an error: the server's message and param */
    bool is_refusal;          /* the error: the server's own words, not nonsense */
    bool is_too_long;         /* the error: the conversation leaves no room for an answer */
    struct json_t *root;      /* what the others borrow from */
} um_peer_says;
/* Reads the data of an event, or a body that came with `status`. Whatever the bytes are, something is said of them;
 * what is no JSON is an error. */
void um_peer_read(um_peer_says *out, int status, um_str data);
void um_peer_says_free(um_peer_says *s);

/* A snapshot as a frame for a view; memory is kept from one to the next. Zero is a fresh one. */
typedef struct um_peer_frame {
    um_frame frame;
    um_buf settled;
    um_piece *piece;
    size_t cap;
} um_peer_frame;
/* Valid while `s` is. What the snapshot contradicts itself in is left out. */
const um_frame *um_peer_frame_read(um_peer_frame *f, const um_peer_says *s);
void um_peer_frame_free(um_peer_frame *f);

#endif
