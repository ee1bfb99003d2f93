/* turn: one exchange that generates, from its body to the last byte. It submits a generation for each prompt, collects
 * answers or streams events, cancels when the client hangs up, counts, and ends with an error in the right form. What
 * the bytes look like is said by a shape: a small table of writers, one file per API in api/. */
#ifndef UM_TURN_H
#define UM_TURN_H

#include "server/body.h"
#include "server/sse.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_turn um_turn;

/* Tokens of an answer, one behind the other. They are the choice's and live until its next event. */
typedef struct um_tokens {
    const int32_t *id;
    const int32_t *text_end;     /* [n] bytes of the answer's text behind each; a stop string may have cut the last */
    const float *logprob;        /* [n], or NULL: not asked for */
    const int32_t *likeliest_id; /* [n, n_likeliest] -1: no more */
    const float *likeliest;
    uint32_t n;
    int32_t n_likeliest;
    int32_t text_start; /* bytes in front of the first */
} um_tokens;

/* What came of an answer that streams: its text, and the columns of um_tokens. */
typedef struct um_settled {
    um_buf text, id, text_end, logprob, likeliest_id, likeliest;
    int32_t n_likeliest;
} um_settled;

/* One answer: choice number prompt * n + index. */
typedef struct um_choice {
    int32_t number, prompt, index;
    bool finished;
    um_msg_finish result; /* copied into the turn when finished */
    um_settled settled;   /* so far, when it streams */
    int32_t n_tokens;     /* settled so far */
    int32_t nfe;          /* so far */
    int32_t next_shown;   /* pass from which on a snapshot is streamed again */
    um_buf trajectory;    /* JSON array elements, when asked for */
    void *own;            /* of the shape; um_alloc'd, freed with the turn */
} um_choice;

typedef struct um_shape {
    const char *name;
    const char *id_prefix; /* of its ids: "chatcmpl-" */
    /* The body of the answer when all choices have finished: one JSON value. */
    void (*whole)(um_turn *t, um_jw *w);
    /* Streaming; each may send events through um_turn_sse. NULL: nothing. */
    void (*begin)(um_turn *t, um_choice *c);
    void (*text)(um_turn *t, um_choice *c, const um_msg_text *m);
    void (*snapshot)(um_turn *t, um_choice *c, const um_msg_snapshot *m);
    void (*finish)(um_turn *t, um_choice *c);
    void (*end)(um_turn *t);                                  /* all finished, before [DONE] */
    void (*forget)(um_choice *c);                             /* releases what own points to, not own itself */
    void (*error)(um_turn *t, int status, const um_err *err); /* in a stream; NULL: {"error": {…}} */
} um_shape;

/* An API that generates: how its bodies are read, and how its answers are written. */
typedef struct um_api {
    const char *path;                /* of its endpoint: "/v1/completions" */
    const um_field_set *const *sets; /* of its fields, the first that has a name wins; NULL ends them */
    const char *prompt;              /* field without which there is nothing to do, named when it is missing */
    int32_t stream_mode;             /* UM_STREAM_* of requests that do not say it */
    /* What the fields mean together, before prompts are encoded; NULL: nothing more. On failure it names the field in
     * err->param. */
    um_status (*check)(um_body *b, um_err *err);
    const um_shape *shape;
} um_api;
extern const um_api um_api_chat, um_api_completions;

/* Are there places for so many prompts when the server does nothing else? Else they would be answered with 429 for
 * ever, and a line of a batch would wait for ever. `field` has them. Any thread. */
um_status um_check_place(const um_server *s, size_t n, const char *field, um_err *err);
/* Reads, checks and encodes a body; any thread. It takes `root`; `b` is to be freed, also on failure. */
um_status um_api_read(const um_api *a, um_server *s, const um_room *room, struct json_t *root, um_body *b, um_err *err);
/* All that the handler of such an endpoint does (reading.c). */
void um_api_serve(um_server *s, um_exchange *x, const um_api *a);

/* Takes the exchange and the body (which is emptied) and sees them through. Failures are answered here. */
void um_turn_begin(um_server *s, um_exchange *x, um_body *b, const um_shape *shape);

/* A generation outside of an exchange (batches) uses the same path; `done` gets what would have been the whole answer,
 * or the error body with its status. */
typedef void (*um_turn_done_fn)(void *arg, int status, um_buf *json);
/* Returns a handle for um_turn_cancel, or NULL when done was called already. A body that asks for a stream is answered
 * as a whole. */
um_turn *um_turn_detached(um_server *s, um_body *b, const um_shape *shape, um_turn_done_fn done, void *arg);
void um_turn_cancel(um_turn *t); /* of a detached one; done is not called */
void um_turn_spare(um_turn *t);  /* um_turns_abort passes over it: who began it has another way to end it */
/* Ends what goes by this id (of an answer, or as its request called it), NULL: everything that is not spared, of the
 * turns that are newer than `older`, NULL: of all. Answers have what has settled, and the reason UM_FINISH_ABORTED.
 * Returns how many generations that were. */
size_t um_turns_abort(um_server *s, const um_turn *older, const char *id);

/* ---- For shapes -------------------------------------------------------------------------------------------------- */
const um_body *um_turn_body(const um_turn *t);
um_server *um_turn_server(um_turn *t);
um_sse *um_turn_sse(um_turn *t);
const char *um_turn_id(const um_turn *t);
const char *um_turn_model(const um_turn *t); /* as the request names it */
int64_t um_turn_created(const um_turn *t);   /* epoch seconds */
int32_t um_turn_n_choices(const um_turn *t);
um_choice *um_turn_choice(um_turn *t, int32_t i);

/* The text and the tokens of an answer: all of it when it has finished, else what has settled. */
um_str um_choice_text(const um_choice *c);
um_tokens um_choice_tokens(const um_choice *c);
um_tokens um_tokens_part(const um_tokens *t, uint32_t from, uint32_t to); /* [from, to), as far as there are so many */

/* ---- For turn.c (choice.c) --------------------------------------------------------------------------------------- */
void um_choice_settle(um_choice *c, const um_msg_text *m); /* keeps what came */
void um_choice_free(um_choice *c);

/* Writers that APIs share (api/put.c). */
void um_put_usage(um_turn *t, um_jw *w);                   /* the usage object, sums over the choices so far */
const char *um_finish_reason(const um_msg_finish *m);      /* OpenAI's word: "stop", "length" … */
void um_put_stop_reason(um_jw *w, const um_msg_finish *m); /* string, id or null */
/* The members of a snapshot, without braces. */
void um_put_snapshot(um_turn *t, um_choice *c, const um_msg_snapshot *m, um_jw *w);
/* What a request may ask for beside the answer: token ids, step map, trajectory, timings; members of a choice. In a
 * stream, whose chunks have named the ids, all but these. */
void um_put_extras(um_turn *t, um_choice *c, um_jw *w);
void um_put_stream_extras(um_turn *t, um_choice *c, um_jw *w);

#ifdef __cplusplus
}
#endif
#endif
