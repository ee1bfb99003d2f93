/* Responses after a write, and pages of lists. */
#include "server/batch/request.h"
#include "server/respond/reply.h"

um_batch_store *um_batch_store_of(um_service *s, um_exchange *x) {
    um_batch_store *store = s->batches;
    if (!store)
        um_reply_error(x, 501, NULL, NULL,
                       "files and batches are off; start the server with --state-dir DIR to enable them");
    return store;
}

um_status um_expires_after_check(const char *param, const char *anchor, int64_t seconds, um_err *err) {
    if (um_streq(anchor, "created_at") && seconds >= 1 && seconds <= UM_FILE_TTL_MAX) return UM_OK;
    return um_fail_param(err, UM_EINVAL, param, "expected the anchor created_at and 1..%d seconds", UM_FILE_TTL_MAX);
}

/* ---- Responses after a write ------------------------------------------------------------------------------------- */

static void on_close(void *arg, um_exchange *x, bool complete) {
    (void)x, (void)complete;
    ((um_pending_response *)arg)->x = NULL;
}

um_pending_response *um_pending_response_new(um_exchange *x) {
    um_pending_response *p = UM_NEW(um_pending_response);
    p->x = x;
    um_exchange_on_close(x, on_close, p);
    return p;
}

void um_pending_response_send(void *arg, um_status s, const um_err *err) {
    um_pending_response *p = arg;
    um_exchange *x = p->x;
    if (s) um_warn("%s", err->msg);
    if (x) {
        um_exchange_on_close(x, NULL, NULL);
        /* The message contains paths of this machine, so it is written to the log only. */
        if (s)
            um_reply_error(x, 507, NULL, "storage_error", "the server can't write its files; its log has the reason");
        else um_reply_json(x, 200, &p->json);
    }
    um_buf_free(&p->json);
    um_free(p);
}
