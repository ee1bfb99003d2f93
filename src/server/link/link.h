/* link: how frames travel between the frontend and its workers: through memory in one process (local.c), or
 * through ZeroMQ (zmq_hub.c, zmq_port.c). The frontend holds the hub, each worker a port; nobody else knows
 * which kind it is.
 *
 * ZeroMQ: commands go from a ROUTER of the frontend to a DEALER of each worker, whose identity is its number and
 * incarnation; events come from a PUSH of each worker to a PULL of the frontend. High-water marks are off: what is
 * outstanding is bounded where requests are admitted. Sending never blocks.
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

/* In one process, for n workers. */
um_status um_hub_open_local(um_hub **out, int32_t n, um_err *err);
/* Over ZeroMQ. An address that is NULL or "" is made up: ipc in a fresh folder that only this user can enter, below
 * XDG_RUNTIME_DIR, TMPDIR or /tmp. tcp with the port * takes a free one. Errors: UM_EIO with address and reason; a file
 * that is no socket, or a socket that somebody listens at, is left alone. */
um_status um_hub_open_zmq(um_hub **out, int32_t n, const char *command_addr, const char *event_addr, um_err *err);
void um_hub_close(um_hub *h); /* NULL is fine; removes what was made up; the ports of a local one must be closed */
const char *um_hub_command_addr(const um_hub *h); /* what workers connect to; "" for a local one */
const char *um_hub_event_addr(const um_hub *h);

/* Hands a frame to a worker; its content is taken, the buffer is empty afterwards either way. False: the worker is not
 * connected, or the frame is longer than UM_WIRE_FRAME_MAX. */
bool um_hub_send(um_hub *h, uint16_t worker, uint16_t incarnation, um_buf *frame);
/* The next frame that came, valid until the next call; false: none. A worker of which a frame was received can be sent
 * to: its first ones are kept back until its commands would arrive. */
bool um_hub_receive(um_hub *h, um_str *frame);
/* Is readable while um_hub_receive may have something, until it returned false. Borrowed; only to be polled. */
int um_hub_fd(const um_hub *h);
/* Forgets what is on its way to a worker that is dead, and that it was connected. What it had sent may still come; its
 * incarnation tells. */
void um_hub_forget(um_hub *h, uint16_t worker, uint16_t incarnation);

/* A worker's end. A local one may be used and closed by another thread than the hub's. */
um_port *um_port_open_local(um_hub *h, uint16_t worker, uint16_t incarnation);
um_status um_port_open_zmq(um_port **out, const char *command_addr, const char *event_addr, uint16_t worker,
                           uint16_t incarnation, um_err *err);
/* What was sent is delivered first, if that takes no longer than 2 seconds. */
void um_port_close(um_port *p);
void um_port_send(um_port *p, um_buf *frame);    /* the content is taken, the buffer is empty afterwards */
bool um_port_receive(um_port *p, um_str *frame); /* valid until the next call */
/* Sleeps until a frame is there, the hub is lost, the seconds are over, or a signal came. */
void um_port_wait(um_port *p, double seconds);
/* Did the connection to the hub break since this was asked last? Whoever is at the other end from now on may be another
 * hub, which does not know this worker. */
bool um_port_is_lost(um_port *p);
/* Connects as another incarnation, to the same addresses; what was on its way is dropped. For a port that was lost. */
um_status um_port_join_again(um_port *p, uint16_t worker, uint16_t incarnation, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
