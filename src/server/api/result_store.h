/* result_store: responses that clients fetch later, in memory: those of /v1/generate and /v1/responses, and
 * conversations, which are finished results with items. A result gets an id at once. It expires --result-ttl seconds
 * after it is ready; of more than --result-max results, or more than a number of bytes, the oldest are deleted. With
 * --state-dir, results with items are also written to a folder, which is read when the server starts (result_files.c).
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
typedef struct um_follower um_follower;
typedef struct um_stored {
    char id[96];
    char owner[UM_KEY_NAME_BYTES];   /* name of the API key that made it, see um_key_owner */
    um_generation *generation;       /* NULL: finished, or not started yet */
    bool is_finished, is_background; /* is_background: the client did not wait for it */
    int status;                      /* the HTTP status of the response */
    um_buf json;                     /* the response, an object */
    um_buf items;           /* what led to the response: an array that a later request continues; empty: nothing does */
    um_buf events;          /* the events of its items, as a stream has them, each with its empty line */
    char *file;             /* name of its record in the folder; NULL: none */
    um_follower *followers; /* clients that receive the events (responses_stream.c) */
    /* Fields of the store. */
    um_result_store *store;
    struct um_stored *next;          /* the next result in the same bucket */
    struct um_stored *older, *newer; /* neighbours in the list of finished results */
    double finished;                 /* um_now() when the result was ready */
} um_stored;

um_result_store *um_result_store_new(um_service *s, size_t bytes_max);
/* Opens the folder below --state-dir, which exists. */
um_status um_result_store_open(um_result_store *r, um_err *err);
/* Removes the results that have not finished, cancels their requests, and finishes the writes. The worker pool and the
 * reader threads must still exist. NULL: does nothing. */
void um_result_store_stop(um_result_store *r);
/* Frees the store. No thread may use it any more. NULL: does nothing. */
void um_result_store_free(um_result_store *r);

/* Adds an unfinished result of an owner. Returns NULL if there is one with this id. */
um_stored *um_stored_add(um_result_store *r, const char *id, const char *owner);
/* Returns the result with this id, or NULL, also if the key `by` may not see it. Deletes expired results first. */
um_stored *um_stored_find(um_result_store *r, const char *id, const um_key *by);
/* Replaces the response of an unfinished result, the state before the end. Takes the bytes. */
void um_stored_set(um_stored *e, um_buf *json);
/* Sets the items. Takes the bytes. */
void um_stored_set_items(um_stored *e, um_buf *items);
/* Adds complete events and tells the followers. */
void um_stored_add_events(um_stored *e, um_str events);
/* Ends a result. Takes the response. May delete older results, never this one. */
void um_stored_finish(um_stored *e, int status, um_buf *json);
/* Replaces the response and the items of a finished result, which becomes the newest. Takes the bytes. */
void um_stored_update(um_stored *e, um_buf *json, um_buf *items);
/* Removes and frees a result. Cancels its generation if it still runs. */
void um_stored_remove(um_stored *e);
/* Copies the response and the items of a finished result of the owner. Returns false if there is none. Any thread. */
bool um_stored_copy(um_result_store *r, const char *id, const char *owner, um_buf *json, um_buf *items);

/* ---- Internal ---------------------------------------------------------------------------------------------------- */

/* Puts a finished result into the list, by the time at which it was ready. */
void um_stored_link(um_stored *e);
/* The folder DIR/responses, which only the server's user can read. Opening it adds its results to the store; records
 * that can't be read are logged and skipped. A response that was not finished when the server ended has failed. UM_EIO.
 */
typedef struct um_result_files um_result_files;
um_status um_result_files_new(um_result_files **out, um_result_store *r, um_service *s, um_err *err);
/* Finishes the writes. NULL is fine. */
void um_result_files_free(um_result_files *f);
/* Write the record of a result, and delete it. Both run on the folder's thread, in the order of the calls. */
void um_result_files_save(um_result_files *f, um_stored *e);
void um_result_files_remove(um_result_files *f, const um_stored *e);
/* Sends the new events of a result to its followers, and the last event when it has finished. */
void um_followers_wake(um_stored *e);
/* Ends the streams of the followers. */
void um_followers_end(um_stored *e);

#ifdef __cplusplus
}
#endif
#endif
