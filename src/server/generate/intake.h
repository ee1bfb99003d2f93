/* intake: the steps that turn the bytes of a request's body into the data that its handler needs: JSON, parameters,
 * token ids, a response. A body of 16 MiB takes the tokenizer a second and the JSON parser up to six; a chat template
 * that comes with the request may take half a second. Such bodies are handled on reader threads, so that streams and
 * other requests don't wait. Short ones are handled on the loop's thread at once (UM_INLINE_BYTES_MAX). An intake
 * belongs to the loop's thread except while a reader thread runs its `read`. */
#ifndef UM_INTAKE_H
#define UM_INTAKE_H

#include "server/generate/api.h"
#include "server/http/coding.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limit of the bytes of all bodies that wait for the readers: some seconds of work. Further bodies get 429. */
#define UM_INTAKE_QUEUE_BYTES_MAX ((size_t)128 << 20)
/* The weight in that queue of a body with a chat template, and of one that continues a response. */
#define UM_INTAKE_TEMPLATE_WEIGHT ((size_t)4 << 20)
#define UM_INTAKE_THREADS         2 /* with two, one huge body does not delay the next one */
/* Limit of the ids that um_intakes_abort notes in an intake, in bytes. Ids beyond it are ignored. */
#define UM_INTAKE_ABORTED_BYTES_MAX ((size_t)4096)

typedef struct um_intake um_intake;
typedef struct um_intake_handler {
    /* Turns `root` into `body`, `bodies` or `out`. Any thread: it may use r->service->setup and r->capacity only. */
    um_status (*read)(um_intake *r, um_err *err);
    /* Responds. On the loop's thread, if `read` succeeded and the client is still connected. */
    void (*respond)(um_intake *r);
    bool generates; /* `respond` starts generations */
} um_intake_handler;

struct um_intake {
    um_service *service;
    um_exchange *x; /* NULL: the client has disconnected */
    const um_intake_handler *handler;
    const void *arg; /* the argument of um_intake_start */
    um_capacity capacity;
    um_key *key;      /* of the request; NULL: none */
    double since;     /* um_now() when the body was complete */
    um_coding coding; /* of `bytes`; NONE once they are decoded */
    uint64_t tenant;  /* of the request */
    um_buf bytes;
    um_held *held;       /* the memory of `root`, or NULL */
    int refused;         /* status of a body whose values need too much memory; 0: none */
    struct json_t *root; /* a JSON object; `read` may take ownership */
    const um_api *api;   /* set by `read` */
    um_body body, *bodies;
    size_t n_bodies; /* number of entries in `bodies` */
    um_buf out;      /* a response in JSON */
    /* The place in the service's list while a reader has the body. link: the pointer to this intake. */
    um_intake *next, **link;
    bool is_aborted; /* a request to abort everything has arrived */
    um_buf aborted;  /* ids to abort, each with its NUL; `read` shows whether one of them is the request's id */
};

/* Returns the tenant of a request: that of its API key (`key` counts from 1), or without a key (0) that of the client's
 * address; 0, nobody in particular, if there is no exchange either. */
uint64_t um_tenant_of(int32_t key, const um_exchange *x);
/* Reads the body of an exchange and responds, now or later. Answers errors. `arg` must outlive the server. */
void um_intake_start(um_service *s, um_exchange *x, const um_intake_handler *handler, const void *arg);
/* Does what um_generations_abort does, for the requests whose bodies the readers have: their generations are aborted as
 * soon as they have started. Returns the number of requests that will certainly be aborted. With an id, returns 0,
 * because the id of a request is in its body, which has not been read yet. */
size_t um_intakes_abort(um_service *s, const char *id, const um_key *by);

/* ---- For handlers ------------------------------------------------------------------------------------------------ */

/* Reads `root`, which it takes, by an API's tables into `body`, which the intake owns. */
um_status um_intake_read_body(um_intake *r, const um_api *a, struct json_t *root, um_body *body, um_err *err);
/* Reads the intake's `root` into its `body`. */
um_status um_intake_read_api(um_intake *r, const um_api *a, um_err *err);
/* Starts the generation of `body`. */
void um_intake_generate(um_intake *r);
/* Sends `out` with the status 200. */
void um_intake_send_json(um_intake *r);

#ifdef __cplusplus
}
#endif
#endif
