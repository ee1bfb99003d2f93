/* The link between the frontend and its workers: it carries frames through memory in one process (local.c), or through
 * ZeroMQ (zmq_hub.c, zmq_port.c). The frontend has the hub, each worker a port. Callers need not know which kind it is.
 *
 * ZeroMQ: commands go from a ROUTER socket of the frontend to a DEALER socket of each worker, whose identity is the
 * worker's number and incarnation. Events go from a PUSH socket of each worker to a PULL socket of the frontend.
 * High-water marks are off, because the admission of requests bounds the number of waiting frames. Sending never
 * blocks.
 *
 * A hub belongs to the frontend's thread, a port to its worker's. */
#ifndef UM_LINK_H
#define UM_LINK_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_hub um_hub;
typedef struct um_port um_port;

/* Opens a hub for n workers that are threads of this process. */
um_status um_hub_open_local(um_hub **out, int32_t n, um_err *err);
/* Opens a hub over ZeroMQ. For an address that is NULL or "" it makes an ipc socket in a new folder that only this user
 * can enter, below XDG_RUNTIME_DIR, TMPDIR or /tmp. The tcp port * stands for any free port. Errors: UM_EIO with
 * address and reason. A socket that a dead process left at an ipc address is replaced; another file, or a socket in
 * use, is an error. */
um_status um_hub_open_zmq(um_hub **out, int32_t n, const char *command_addr, const char *event_addr, um_err *err);
/* Closes a hub and removes the files of its sockets. The ports of a local hub must be closed before. NULL is fine. */
void um_hub_close(um_hub *h);
/* Return the addresses that workers connect to; "" for a local hub. */
const char *um_hub_command_addr(const um_hub *h);
const char *um_hub_event_addr(const um_hub *h);

/* Sends a frame to a worker. Takes the content: the buffer is empty afterwards, even on failure. Returns false if the
 * worker is not connected or the frame is longer than UM_WIRE_FRAME_MAX. */
bool um_hub_send(um_hub *h, uint16_t worker, uint16_t incarnation, um_buf *frame);
/* Receives the next frame, which is valid until the next call. Returns false if there is none. Holds back the first
 * frames of a worker until its command socket is connected, so um_hub_send works once a frame of the worker was
 * returned. The exception is a FAILED message, which may be returned before that. */
bool um_hub_receive(um_hub *h, um_str *frame);
/* Returns a descriptor that is readable while um_hub_receive may have a frame. It stays readable until um_hub_receive
 * has returned false. Borrowed; for polling only. */
int um_hub_fd(const um_hub *h);
/* Drops the commands for a worker that has died, and marks it as not connected. Frames that it had sent may still
 * arrive; their incarnation shows that they are old. */
void um_hub_disconnect(um_hub *h, uint16_t worker, uint16_t incarnation);

/* Opens a worker's end of a local hub. The port may be used and closed by another thread than the hub's. */
um_port *um_port_open_local(um_hub *h, uint16_t worker, uint16_t incarnation);
/* Opens a worker's end over ZeroMQ. UM_EIO. */
um_status um_port_open_zmq(um_port **out, const char *command_addr, const char *event_addr, uint16_t worker,
                           uint16_t incarnation, um_err *err);
/* Closes a port. Waits up to 2 seconds for the delivery of sent frames. */
void um_port_close(um_port *p);
/* Sends a frame. Takes the content: the buffer is empty afterwards. */
void um_port_send(um_port *p, um_buf *frame);
/* Receives the next command into *frame, which is valid until the next call. Returns false if there is none. */
bool um_port_receive(um_port *p, um_str *frame);
/* Sleeps until a command or a signal arrives, the connection is lost, or the time is over. */
void um_port_wait(um_port *p, double seconds);
/* Tells whether the connection to the hub was lost since the last call. ZeroMQ connects again by itself, but perhaps to
 * another hub, which does not know this worker. */
bool um_port_is_lost(um_port *p);
/* Connects a lost port to the same addresses again, as another incarnation. Drops frames that were not delivered. */
um_status um_port_reconnect(um_port *p, uint16_t worker, uint16_t incarnation, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
