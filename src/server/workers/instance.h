/* A worker instance: the thread or process that a worker runs in. The frontend can wait for its end, send it signals,
 * and learn how it ended. Belongs to the frontend's thread. */
#ifndef UM_WORKER_INSTANCE_H
#define UM_WORKER_INSTANCE_H

#include "server/worker/worker.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_worker_instance um_worker_instance;

/* Runs um_worker_run in a thread that blocks all signals. Copies `c`, without is_stopped. What `c` points to must
 * outlive the instance. The thread closes the port when the worker has ended. UM_EIO: no thread could be started, and
 * the caller still owns the port. */
um_status um_worker_instance_open_thread(um_worker_instance **out, const um_worker_config *c, um_err *err);

/* The path of the configuration file in the worker process. */
#define UM_WORKER_INSTANCE_CONFIG_FD   3
#define UM_WORKER_INSTANCE_CONFIG_PATH "/proc/self/fd/3"
/* Starts a process: `program` with the arguments `argv`, of which the first is its name and NULL ends the list.
 * `config` becomes an in-memory file. Errors: UM_EIO.
 *
 * The process inherits standard error; its standard input is empty, and all other descriptors are closed. UNMASK_*
 * variables are removed from its environment, so that the file and the arguments decide everything. The process has its
 * own process group: Ctrl-C at a terminal does not reach it, and the frontend controls the order of the shutdown. It is
 * killed when the frontend dies. */
um_status um_worker_instance_open_process(um_worker_instance **out, const char *program, const char *const *argv,
                                          um_str config, um_err *err);

/* Returns a descriptor that is readable once the instance has ended. */
int um_worker_instance_fd(const um_worker_instance *instance);
/* Returns the process id; 0: a thread. */
int64_t um_worker_instance_pid(const um_worker_instance *instance);
/* Describes what a process is doing, such as "is stopped"; "is in an unknown state" for a thread. */
const char *um_worker_instance_process_state(const um_worker_instance *instance);
/* Sends a signal to a process. Any signal but 0 tells a thread to end: it does so before the next step of an engine, or
 * before it loads the next tensor. */
void um_worker_instance_signal(um_worker_instance *instance, int sig);
/* Waits up to `seconds` for the end; returns whether the instance has ended. */
bool um_worker_instance_wait(const um_worker_instance *instance, double seconds);
/* Waits for the end and frees the instance. *how gets the signal or exit status of a process, or the error of a
 * thread's worker; code UM_OK and "ended" when there was no failure. NULL is fine. */
void um_worker_instance_close(um_worker_instance *instance, um_err *how);

#ifdef __cplusplus
}
#endif
#endif
