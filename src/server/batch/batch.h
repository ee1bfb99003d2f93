/* batch: OpenAI's files and batches API. A batch is an uploaded file of requests, one a line. Its lines run at the same
 * time as the requests of clients, but with lower priority. Each line is answered exactly once, even if the server or a
 * worker is killed; store.h says how. Files and batches are kept in --state-dir. Loop's thread only. */
#ifndef UM_BATCH_H
#define UM_BATCH_H

#include "server/generate/api.h"
#include "server/service/endpoint.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Symbol, name, and the member of the batch object that has the time at which the status began. The final statuses are
 * COMPLETED and those after it. */
#define UM_BATCH_STATUS_MAP(X)                                                                                         \
    X(VALIDATING, "validating", "created_at")                                                                          \
    X(IN_PROGRESS, "in_progress", "in_progress_at")                                                                    \
    X(FINALIZING, "finalizing", "finalizing_at")                                                                       \
    X(CANCELLING, "cancelling", "cancelling_at")                                                                       \
    X(COMPLETED, "completed", "completed_at")                                                                          \
    X(FAILED, "failed", "failed_at")                                                                                   \
    X(EXPIRED, "expired", "expired_at")                                                                                \
    X(CANCELLED, "cancelled", "cancelled_at")

typedef enum um_batch_status {
#define UM_X(symbol, name, time) UM_BATCH_##symbol,
    UM_BATCH_STATUS_MAP(UM_X)
#undef UM_X
        UM_BATCH_N_STATUS
} um_batch_status;
typedef struct um_batch_store um_batch_store;

/* Opens --state-dir, which is created if it is missing, and continues the batches in it. The worker pool must exist.
 * UM_EIO; UM_EINVAL if another server uses the folder. */
um_status um_batch_store_new(um_batch_store **out, um_service *s, const um_api *const *apis, um_err *err);
/* Starts no more lines and cancels those that run. The canceled lines run again after the next start. NULL is fine. */
void um_batch_store_stop(um_batch_store *store);

/* Counts for the metrics page. */
typedef struct um_batch_store_count {
    int64_t batches[UM_BATCH_N_STATUS];
    int64_t lines_running;
    int64_t lines_completed, lines_failed; /* number of lines since the server's start */
    struct {
        int64_t n, bytes;
    } inputs, outputs; /* files */
} um_batch_store_count;
/* Returns the counts; zeros without a store (NULL). */
void um_batch_store_get_count(const um_batch_store *store, um_batch_store_count *out);

extern const um_endpoint_set um_batches_endpoints, um_files_endpoints;

/* Finishes the writes and frees the store. Call it after the HTTP server is freed and before the worker pool is. NULL
 * is fine. */
void um_batch_store_free(um_batch_store *store);

#ifdef __cplusplus
}
#endif
#endif
