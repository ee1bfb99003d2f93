/* peer: a server with OpenAI's API, seen from the client: its address, its model, and the parser of its responses. Used
 * by the thread of its event base only. */
#ifndef UM_CLI_PEER_H
#define UM_CLI_PEER_H

#include "cli/cli.h"
#include "model/model.h"
#include "server/http/http.h"

struct addrinfo;
struct event_base;
struct json_t;

typedef struct um_peer {
    struct event_base *base;
    um_url url;                 /* address of the server; the path is the prefix before /v1 */
    struct addrinfo *addresses; /* addresses of the host, resolved once */
    const char *api_key;
    char *model;            /* model name for requests */
    char *version;          /* "unmask 0.1.0"; "" if unknown */
    um_card card;           /* example prompts, if the server's list of models has them */
    bool is_unmask;         /* the server is unmask: it has denoising streams, and reports passes and speed */
    bool asked_options;     /* GET /options was sent */
    struct json_t *options; /* response to GET /options, or NULL */
} um_peer;
/* Connects to the server and finds its model (`model`; NULL: the first of its list). UM_EINVAL for an invalid URL;
 * UM_EIO with advice if no server answers. On errors the caller must call um_peer_close too. */
um_status um_peer_open(um_peer *p, const char *url, const char *api_key, const char *model, um_err *err);
void um_peer_close(um_peer *p);
/* Sends a request to a path of the server, such as "/v1/chat/completions". body NULL: GET. timeout: seconds without
 * data, 0 = none. */
um_http_call *um_peer_call(um_peer *p, const char *path, const um_buf *body, double timeout,
                           const um_http_client_callbacks *l, void *arg);
/* Checks the value of a parameter (the row's field in `base`) against GET /options of an unmask server: name, range,
 * words. UM_EINVAL, UM_ERANGE. Returns UM_OK if the server does not describe its parameters. */
um_status um_peer_check_option(um_peer *p, const um_option *row, const void *base, um_err *err);
/* Whether the server can render messages. Only a server of unmask tells (GET /props); true if the answer is unknown. */
bool um_peer_has_chat_template(um_peer *p);
/* If the error is a failed connection, adds advice to its message. Returns s. */
um_status um_peer_explain_error(um_status s, const char *url, um_err *err);

/* ---- peer_parse.c: responses and events of a stream ---- */

/* Unknown counts are 0, and no count is negative. */
typedef struct um_peer_usage {
    bool is_given;
    int32_t prompt_tokens, completion_tokens, cached_tokens;
    int32_t nfe; /* other servers don't send it */
} um_peer_usage;
typedef enum {
    UM_PEER_NOTHING,  /* no text: a first chunk, a usage, or an unknown event */
    UM_PEER_TEXT,     /* new settled text; the complete text if the response is not a stream */
    UM_PEER_SNAPSHOT, /* the state of the answer after a pass */
    UM_PEER_WHOLE,    /* the complete text, which replaces what came before */
    UM_PEER_DONE,     /* the end of the stream */
    UM_PEER_ERROR
} um_peer_kind;
typedef struct um_peer_message {
    um_peer_kind kind;
    um_str text, reasoning; /* reasoning is shown, but not part of the answer */
    const char *finish;     /* finish reason as sent; NULL: the answer continues */
    um_finish finish_as;    /* the corresponding um_finish */
    um_peer_usage usage;
    int64_t seed;             /* -1: unknown */
    int32_t n_settled;        /* snapshot: number of tokens that can no longer change */
    const struct json_t *ids; /* token ids, or NULL */
    um_err err;               /* error: the server's message and param */
    bool is_refusal;          /* error: the server refused the request; else the response is malformed */
    bool is_too_long;         /* error: the conversation leaves no room for an answer */
    struct json_t *root;      /* owns the strings and ids above */
} um_peer_message;
/* Parses the data of an event, or a response body with HTTP status `status`. Never fails: data that is not JSON becomes
 * a message of the kind UM_PEER_ERROR. */
void um_peer_read(um_peer_message *out, int status, um_str data);
void um_peer_message_free(um_peer_message *s);

/* Converts snapshots to frames for a view, and reuses its memory. Initialise with zero. */
typedef struct um_peer_frame {
    um_frame frame;
    um_buf settled;
    um_piece *piece;
    size_t cap;
} um_peer_frame;
/* Returns the frame of a snapshot; valid as long as `s`. Ignores entries that contradict each other. */
const um_frame *um_peer_frame_read(um_peer_frame *f, const um_peer_message *s);
void um_peer_frame_free(um_peer_frame *f);

#endif
