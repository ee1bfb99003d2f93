/* generation: a request that generates, from its parsed body to the last byte of its response. It submits one worker
 * request for each prompt, collects the answers or streams their events, and aborts them when the client disconnects or
 * the request times out. A response writer, one for each API, determines the format of the response. Loop's thread
 * only. */
#ifndef UM_GENERATION_H
#define UM_GENERATION_H

#include "server/generate/choice.h"
#include "server/respond/sse.h"
#include "server/service/service.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_generation um_generation;

/* The functions that write the response of an API. Those for streams may send events through um_generation_sse; NULL
 * sends nothing. */
typedef struct um_response_writer {
    const char *name;
    const char *id_prefix; /* prefix of response ids: "chatcmpl-" */
    /* Writes the response when all choices have finished: one JSON value. Not called for a stream. */
    void (*whole)(um_generation *g, um_jw *w);
    void (*begin)(um_generation *g, um_choice *c);
    void (*text)(um_generation *g, um_choice *c, const um_msg_text *m);
    void (*snapshot)(um_generation *g, um_choice *c, const um_msg_snapshot *m);
    /* Checks a finished choice, before `finish` or `whole`. An error ends the generation with the status 422. NULL:
     * nothing to check. */
    um_status (*check)(um_generation *g, um_choice *c, um_err *err);
    void (*finish)(um_generation *g, um_choice *c);
    void (*end)(um_generation *g);                                  /* all choices have finished; [DONE] follows */
    void (*forget)(um_choice *c);                                   /* frees what c->own points to, not c->own itself */
    void (*error)(um_generation *g, int status, const um_err *err); /* NULL sends {"error": {…}} */
} um_response_writer;

/* Starts a generation that answers an exchange. Takes the exchange and the content of the body. Answers failures. */
void um_generation_start(um_service *s, um_exchange *x, um_body *b, const um_response_writer *writer);

/* Receives the response of a generation without an exchange, or its error body, with the status. */
typedef void (*um_generation_done_fn)(void *arg, int status, um_buf *json);
/* Starts a generation without an exchange, for lines of batches and stored results. A body that asks for a stream gets
 * a whole response. Returns NULL if `done` was called already. */
um_generation *um_generation_start_detached(um_service *s, um_body *b, const um_response_writer *writer,
                                            um_generation_done_fn done, void *arg);
/* Does the same, but calls the writer's functions for streams, too, which find no um_generation_sse. */
um_generation *um_generation_start_background(um_service *s, um_body *b, const um_response_writer *writer,
                                              um_generation_done_fn done, void *arg);
/* Aborts a detached generation and frees it; `done` is not called. */
void um_generation_cancel(um_generation *g);
/* Lets um_generations_abort skip a detached generation: its owner has another way to cancel it. */
void um_generation_exempt_from_aborts(um_generation *g);
/* Aborts the generations with this response id or client request id, if the key `by` made them or is an admin's; NULL
 * aborts all but the exempt ones. Aborts only
 * generations that started after `older`, or all when `older` is NULL. Their responses have the settled text and the
 * finish reason UM_FINISH_ABORTED. Returns the number of aborted worker requests. */
size_t um_generations_abort(um_service *s, const um_generation *older, const char *id, const um_key *by);
/* Returns the number of generations that wait or run. */
size_t um_generations_count(const um_service *s);

/* ---- For response writers ---------------------------------------------------------------------------------------- */

const um_body *um_generation_body(const um_generation *g);
um_service *um_generation_service(um_generation *g);
um_sse *um_generation_sse(um_generation *g);
const char *um_generation_id(const um_generation *g);
const char *um_generation_model(const um_generation *g); /* the name that the request gave */
int64_t um_generation_created(const um_generation *g);   /* epoch seconds */
int32_t um_generation_n_choices(const um_generation *g);
um_choice *um_generation_choice(um_generation *g, int32_t i);

#ifdef __cplusplus
}
#endif
#endif
