/* batch: files and batches of --state-dir: OpenAI's batch API over the generations of this server.
 *
 * A batch is a file of requests, one a line. Its lines run beside the requests of clients, behind them in every queue,
 * and each is answered exactly once whatever ends a process at whatever time: see store.h for how. Belongs to the
 * loop's thread. */
#ifndef UM_BATCH_H
#define UM_BATCH_H

#include "server/server.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Symbol, name, and the member of a record that says when it was entered. */
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
typedef struct um_batches um_batches;

/* Opens the folder, which is made when it is not there, and goes on with the batches in it. The backend is there.
 * UM_EIO; UM_EINVAL when another server has the folder. */
um_status um_batches_new(um_batches **out, um_server *s, um_err *err);
/* No more lines are started; those that run are given up and will run again after the next start. */
void um_batches_stop(um_batches *all);

/* What the metrics page says of them. */
typedef struct um_batches_count {
    int64_t batches[UM_BATCH_N_STATUS];
    int64_t lines_running, lines_completed, lines_failed; /* the latter two since the start */
    struct {
        int64_t n, bytes;
    } inputs, outputs; /* files */
} um_batches_count;
void um_batches_get_count(const um_batches *all, um_batches_count *out); /* all NULL: there are none */

/* Before the backend is freed, and after the HTTP server is. NULL is fine. */
void um_batches_free(um_batches *all);

#ifdef __cplusplus
}
#endif
#endif
