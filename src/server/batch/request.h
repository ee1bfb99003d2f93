/* request: helpers of the endpoints for files and batches: the store, responses after a write, pages of lists. */
#ifndef UM_BATCH_REQUEST_H
#define UM_BATCH_REQUEST_H

#include "server/batch/store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the store. Without --state-dir answers 501 and returns NULL. */
um_batch_store *um_batch_store_of(um_service *s, um_exchange *x);

/* A response that is sent when a write has ended. */
typedef struct um_pending_response {
    um_exchange *x; /* NULL: the client has disconnected */
    um_buf json;    /* the body if the write succeeds */
} um_pending_response;
um_pending_response *um_pending_response_new(um_exchange *x);
/* Sends the response, or 507 if the write failed, and frees it. A um_disk_done_fn; p is the um_pending_response. */
void um_pending_response_send(void *p, um_status s, const um_err *err);

/* Checks the members of OpenAI's expires_after. anchor NULL: not given. UM_EINVAL, about `param`. */
um_status um_expires_after_check(const char *param, const char *anchor, int64_t seconds, um_err *err);

/* The page of a list that a request asks for. */
typedef struct um_list_page {
    size_t limit;
    const char *after; /* id of the entry before the page, or NULL */
    bool ascending;    /* the oldest first */
} um_list_page;
/* Reads limit, after and order from the query. `limit` is the default and `most` the maximum. On failure answers 400
 * and returns false. */
bool um_list_page_read(um_list_page *p, um_exchange *x, size_t limit, size_t most);
/* A list of entries [0, n), the oldest first. */
typedef struct um_list_page_source {
    const void *list;
    size_t n;
    const char *(*id)(const void *list, size_t i);
    bool (*matches)(const void *list, size_t i, const void *filter); /* the other entries do not exist for the client */
    const void *filter;                                              /* argument of `matches` */
    void (*put)(const void *list, size_t i, um_jw *w);               /* writes the entry's object */
} um_list_page_source;
/* Sends the page. Answers 400 if `after` is not in the list. */
void um_list_page_reply(const um_list_page *p, const um_list_page_source *source, um_exchange *x);

#ifdef __cplusplus
}
#endif
#endif
