/* api: an API that generates: the fields of its request bodies and the writer of its responses. */
#ifndef UM_API_H
#define UM_API_H

#include "server/generate/generation.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_api {
    const char *path;                /* path of the endpoint: "/v1/completions" */
    const um_field_set *const *sets; /* field tables; the first that has a name wins; NULL ends the list */
    const char *prompt;              /* the required field that holds the prompt */
    int32_t stream_mode;             /* UM_STREAM_* of requests that give none */
    /* Checks fields against each other before the prompts are encoded; NULL: nothing to check. On failure err->param
     * names the field. */
    um_status (*check)(um_body *b, um_err *err);
    const um_response_writer *writer;
    const char *or_prompt; /* field that may hold the prompt in its place, or NULL */
} um_api;

/* Refuses more prompts than the queue can ever hold (--max-queue): they would get 429 on every retry, and a line of a
 * batch would wait forever. `field` holds the prompts. Any thread. */
um_status um_check_queue_limit(const um_capacity *c, size_t n, const char *field, um_err *err);
/* Parses, checks and encodes a body. Any thread. Takes `root`. The caller frees `b`, also on failure. */
um_status um_api_read(const um_api *a, const um_setup *setup, const um_capacity *capacity, struct json_t *root,
                      um_body *b, um_err *err);
/* Handles a request of the API: reads its body, then starts its generation. */
void um_api_serve(um_service *s, um_exchange *x, const um_api *a);

#ifdef __cplusplus
}
#endif
#endif
