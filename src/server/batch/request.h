/* request: helpers of the endpoints for files and batches: the store, responses after a write. */
#ifndef UM_BATCH_REQUEST_H
#define UM_BATCH_REQUEST_H

#include "server/batch/store.h"
#include "server/respond/list_page.h"

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

#ifdef __cplusplus
}
#endif
#endif
