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

typedef struct um_batches um_batches;

/* Opens the folder, which is made when it is not there, and goes on with the batches in it. The backend is there.
 * UM_EIO; UM_EINVAL when another server has the folder. */
um_status um_batches_new(um_batches **out, um_server *s, um_err *err);
/* No more lines are started; those that run are given up and will run again after the next start. */
void um_batches_stop(um_batches *all);
/* Before the backend is freed, and after the HTTP server is. NULL is fine. */
void um_batches_free(um_batches *all);

#ifdef __cplusplus
}
#endif
#endif
