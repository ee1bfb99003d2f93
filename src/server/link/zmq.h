/* link_zmq: what both ends of a ZeroMQ link share. */
#ifndef UM_LINK_ZMQ_H
#define UM_LINK_ZMQ_H

#include <zmq.h>

#include "server/link/kind.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A socket of the context with the options of ours: any number of messages may wait (they are bounded where requests
 * are admitted), none is longer than a frame may be, and IPv6 works. NULL and UM_EIO when there is none. */
um_status um_zmq_socket(void **out, void *context, int type, int linger_ms, um_err *err);
/* A signal ends ZeroMQ's calls early, those that wait for nothing as well: whether one has to be made again. */
bool um_zmq_is_interrupted(int result);
/* ZeroMQ takes the lower 16 bits of a port that is too large: refuses it with UM_EIO. */
um_status um_zmq_check_addr(const char *addr, um_err *err);
/* Listens and connects. UM_EIO names the address. */
um_status um_zmq_bind(void *socket, const char *addr, um_err *err);
um_status um_zmq_connect(void *socket, const char *addr, um_err *err);
void um_zmq_end(void *context); /* after its sockets are closed; NULL is fine */
/* Sends a part, `flags` ZMQ_SNDMORE or 0; never waits. False: it can't be sent. */
bool um_zmq_send(void *socket, const void *bytes, size_t n, int flags);
/* Receives the next part into `m`, which is initialised; never waits. False: none is there. */
bool um_zmq_receive_part(void *socket, zmq_msg_t *m);
/* Receives a message of one part into `m`, which is initialised; longer ones are dropped. False: none is there. */
bool um_zmq_receive(void *socket, zmq_msg_t *m);
um_str um_zmq_bytes(zmq_msg_t *m);

/* ---- zmq_files.c ---- */
/* ZeroMQ removes whatever file lies at the path of an ipc address that it listens at. A socket that a dead process left
 * may go; UM_EIO for another file, and for a socket that somebody listens at. */
um_status um_zmq_check_file(const char *addr, um_err *err);
void um_zmq_remove_file(const char *addr); /* of an ipc address; NULL is fine */
/* Makes a folder that only this user can enter, for two sockets "commands" and "events"; takes away those of servers
 * that were killed. UM_EIO. */
um_status um_zmq_folder(char **out, um_err *err);

/* The name of a worker at the ROUTER: "3.1" is number 3, incarnation 1. */
#define UM_ZMQ_NAME_MAX 16
void um_zmq_put_name(char out[UM_ZMQ_NAME_MAX], uint16_t worker, uint16_t incarnation);
bool um_zmq_read_name(um_str name, uint16_t *worker, uint16_t *incarnation);

#ifdef __cplusplus
}
#endif
#endif
