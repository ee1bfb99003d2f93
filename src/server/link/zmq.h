/* Functions that both ends of a ZeroMQ link share. */
#ifndef UM_LINK_ZMQ_H
#define UM_LINK_ZMQ_H

#include <zmq.h>

#include "server/link/kind.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a socket with the common options: no high-water marks (the admission of requests bounds the messages), no
 * message longer than UM_WIRE_FRAME_MAX, IPv6 on. On UM_EIO *out is NULL. */
um_status um_zmq_socket(void **out, void *context, int type, int linger_ms, um_err *err);
/* Tells whether a signal interrupted a ZeroMQ call, which must then be repeated. Non-blocking calls can be interrupted,
 * too. */
bool um_zmq_is_interrupted(int result);
/* Checks the port of a tcp address: ZeroMQ would use the low 16 bits of one that is too large. UM_EIO. */
um_status um_zmq_check_addr(const char *addr, um_err *err);
/* Listen on an address, and connect to one. UM_EIO names the address. */
um_status um_zmq_bind(void *socket, const char *addr, um_err *err);
um_status um_zmq_connect(void *socket, const char *addr, um_err *err);
void um_zmq_end(void *context); /* call it after all sockets of the context are closed; NULL is fine */
/* Sends a part of a message without blocking; `flags` is ZMQ_SNDMORE or 0. Returns false if the part can't be sent. */
bool um_zmq_send(void *socket, const void *bytes, size_t n, int flags);
/* Receives the next part into `m`, which must be initialised, without blocking. Returns false if none has arrived. */
bool um_zmq_receive_part(void *socket, zmq_msg_t *m);
/* Receives a message of one part into `m`, which must be initialised, without blocking. Drops messages of several
 * parts. Returns false if none has arrived. */
bool um_zmq_receive(void *socket, zmq_msg_t *m);
um_str um_zmq_bytes(zmq_msg_t *m);

/* ---- zmq_files.c ---- */
/* Checks that it is safe to listen on an ipc address, because ZeroMQ removes any file at its path. A socket that a dead
 * process left may be removed. UM_EIO: another file, or a socket in use. */
um_status um_zmq_check_file(const char *addr, um_err *err);
/* Removes the socket of an ipc address. Does nothing for other addresses and NULL. */
void um_zmq_remove_file(const char *addr);
/* Creates a folder that only this user can enter, for the sockets "commands" and "events". Removes such folders of
 * servers that were killed. UM_EIO. */
um_status um_zmq_folder(char **out, um_err *err);

/* The identity of a worker at the ROUTER: "3.1" is worker 3, incarnation 1. */
#define UM_ZMQ_NAME_MAX 16
void um_zmq_put_name(char out[UM_ZMQ_NAME_MAX], uint16_t worker, uint16_t incarnation);
bool um_zmq_read_name(um_str name, uint16_t *worker, uint16_t *incarnation);

#ifdef __cplusplus
}
#endif
#endif
