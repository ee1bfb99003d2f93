/* result_store: responses that clients fetch later, in memory: those of /v1/generate and /v1/responses. A result gets
 * an id at once. It expires --result-ttl seconds after it is ready; of more than --result-max results, or more than a
 * number of bytes, the oldest are deleted.
 *
 * The store belongs to the loop's thread. `lock` guards the table and the fields `json`, `items` and `is_finished` of
 * all results against um_stored_copy, which any thread may call. */
#ifndef UM_RESULT_STORE_H
#define UM_RESULT_STORE_H

#include "server/generate/generation.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limit of the bytes of all finished results together. The newest one is kept even if it is larger. */
#define UM_RESULT_BYTES_MAX ((size_t)256 << 20)

typedef struct um_result_store um_result_store;
typedef struct um_stored {
    char id[96];
    int32_t key;                     /* id of the API key that made it (um_key.id); 0: none */
    um_generation *generation;       /* NULL: finished, or not started yet */
    bool is_finished, is_background; /* is_background: the client did not wait for it */
    int status;                      /* the HTTP status of the response */
    um_buf json;                     /* the response, an object */
    um_buf items; /* what led to the response: an array that a later request continues; empty: nothing does */
    /* Fields of the store. */
    um_result_store *owner;
    struct um_stored *next;          /* the next result in the same bucket */
    struct um_stored *older, *newer; /* neighbours in the list of finished results */
    double finished;                 /* um_now() when the result was ready */
} um_stored;

um_result_store *um_result_store_new(um_service *s, size_t bytes_max);
/* Removes the results that have not finished, and cancels their requests. The worker pool and the reader threads must
 * still exist. NULL: does nothing. */
void um_result_store_stop(um_result_store *r);
/* Frees the store. No thread may use it any more. NULL: does nothing. */
void um_result_store_free(um_result_store *r);

/* Adds an unfinished result of the key with the id `key`. Returns NULL if there is one with this id. */
um_stored *um_stored_add(um_result_store *r, const char *id, int32_t key);
/* Returns the result with this id, or NULL, also if it belongs to another key than `by`, which is no admin's. Deletes
 * expired results first. */
um_stored *um_stored_find(um_result_store *r, const char *id, const um_key *by);
/* Replaces the response of an unfinished result, the state before the end. Takes the bytes. */
void um_stored_set(um_stored *e, um_buf *json);
/* Sets the items. Takes the bytes. */
void um_stored_set_items(um_stored *e, um_buf *items);
/* Ends a result. Takes the response. May delete older results, never this one. */
void um_stored_finish(um_stored *e, int status, um_buf *json);
/* Removes and frees a result. Cancels its generation if it still runs. */
void um_stored_remove(um_stored *e);
/* Copies the response and the items of a finished result of the key. Returns false if there is none. Any thread. */
bool um_stored_copy(um_result_store *r, const char *id, int32_t key, um_buf *json, um_buf *items);

#ifdef __cplusplus
}
#endif
#endif
