/* vessel: what a worker lives in, a thread of this program or a process of its own. The frontend can watch it for its
 * end, send a process signals, and learns how it ended. Belongs to the frontend's thread. */
#ifndef UM_VESSEL_H
#define UM_VESSEL_H

#include "server/worker/worker.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_vessel um_vessel;

/* Runs um_worker_run in a thread, which takes no signals. `c` is copied, what it points to outlives the vessel; the
 * port is closed when the worker has ended. UM_EIO: there is no thread, and the port is the caller's still. */
um_status um_vessel_open_thread(um_vessel **out, const um_worker_config *c, um_err *err);

/* Where the process finds its configuration file. */
#define UM_VESSEL_CONFIG_FD   3
#define UM_VESSEL_CONFIG_PATH "/proc/self/fd/3"
/* Starts a process: `program` with the arguments `argv`, the first one its name, NULL behind the last; `config` becomes
 * a file in memory. Standard error is ours, standard input empty, other descriptors are closed, variables UNMASK_* are
 * taken out of the environment: file and arguments say it all. It is in a process group of its own, so that Ctrl-C at a
 * terminal leaves the order of events to the frontend, and is killed when the frontend dies. UM_EIO. */
um_status um_vessel_open_process(um_vessel **out, const char *program, const char *const *argv, um_str config,
                                 um_err *err);

int um_vessel_fd(const um_vessel *v);      /* readable once it has ended */
int64_t um_vessel_pid(const um_vessel *v); /* 0: a thread */
/* What a process does: "is stopped", "waits for a disk"; of a thread nothing is known. */
const char *um_vessel_doing(const um_vessel *v);
void um_vessel_signal(const um_vessel *v, int sig);      /* a thread gets none */
bool um_vessel_wait(const um_vessel *v, double seconds); /* has it ended? Waits so long for it */
/* Takes a vessel apart, once it has ended: waits for that. *how says what a process died of, or how a thread's worker
 * failed; code UM_OK and "ended" for an end without failure. NULL is fine. */
void um_vessel_close(um_vessel *v, um_err *how);

#ifdef __cplusplus
}
#endif
#endif
