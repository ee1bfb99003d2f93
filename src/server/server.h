/* server: the HTTP frontend of unmask. It owns the event loop, the HTTP server, the model's tokenizer and chat
 * template, and the worker pool. One thread runs the loop; other threads parse large bodies and write files. */
#ifndef UM_SERVER_H
#define UM_SERVER_H

#include "server/config/options.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_server um_server;

/* Opens tokenizer and template, listens, and starts the workers. `c` must outlive the server. Errors: UM_EINVAL for
 * `c`, UM_EIO if it can't listen, UM_EMODEL and others for the model. */
um_status um_server_new(um_server **out, const um_server_config *c, um_err *err);
/* Runs the loop until um_server_stop was called and all requests have ended, or until the workers can't be started. */
um_status um_server_run(um_server *s, um_err *err);
/* Shuts down gracefully: running requests have config->shutdown_grace seconds. A second call ends the loop at once.
 * Call it on the loop's thread. */
void um_server_stop(um_server *s);
void um_server_free(um_server *s);
int32_t um_server_port(const um_server *s);

#ifdef __cplusplus
}
#endif
#endif
