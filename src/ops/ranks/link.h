/* link: TCP connections between the ranks of a group whose ranks are processes. Rank 0 listens, and every other rank
 * connects to it. When all are on one host, results of passes go through memory instead (board.h). Used inside
 * ops/ranks only.
 *
 * Messages are frames: a header and bytes. Frames arrive in the order in which they were sent. TCP says at once when
 * the process at the other end has ended; a host that is gone is noticed by unanswered probes.
 *
 * A link may be used by one thread at a time. Frames are neither encrypted nor authenticated. */
#ifndef UM_OPS_RANKS_LINK_H
#define UM_OPS_RANKS_LINK_H

#include "ops/ranks.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    UM_FRAME_HELLO = 1, /* rank 1.. to 0: um_hello, and the facts */
    UM_FRAME_WELCOME,   /* rank 0 to all: the group is complete; um_board_key */
    UM_FRAME_BOARD,     /* a byte: rank 1.. has opened the board; rank 0: all have, and use it */
    UM_FRAME_REFUSED,   /* rank 0: why the other one can't join */
    UM_FRAME_FORWARD,   /* rank 0: um_forward_config of the following passes */
    UM_FRAME_CARD,      /* rank 1..: its device and memory; rank 0: um_device_card of its own, all devices unite now */
    UM_FRAME_READY,     /* rank 1..: it has obeyed the last command */
    UM_FRAME_PASS,      /* rank 0: a message (message.h) */
    UM_FRAME_WARM,      /* rank 0: um_pass_size [n], see um_backend.warm */
    UM_FRAME_COPY,      /* rank 0: int32_t [3], see um_backend.copy_page */
    UM_FRAME_FREE,      /* rank 0: ends the um_forward */
    UM_FRAME_DATA,      /* floats */
    UM_FRAME_PING,      /* rank 0: asks for UM_FRAME_PONG */
    UM_FRAME_PONG,      /* rank 1..: this process still answers */
    UM_FRAME_FAILED,    /* um_failed: a rank has failed, so the group ends */
    UM_FRAME_END        /* rank 0: the group ends */
} um_frame_type;

typedef struct um_link um_link;

/* Connects all ranks of a group of n (join.c). `launch` must outlive the link. `facts` are those of this rank. *out is
 * released with um_link_close. Errors: see um_ranks_backend_launch. */
um_status um_link_open(um_link **out, const um_launch *launch, int32_t n, const char *facts, double timeout,
                       um_err *err);
/* Closes the connections. Rank 0 tells the others first that the group ends, unless it has failed. l may be NULL. */
void um_link_close(um_link *l);

int32_t um_link_rank(const um_link *l);
/* Returns the rank that the last failed function blames. */
int32_t um_link_failed_rank(const um_link *l);
/* Tells the other ranks that this one has failed, or knows of a rank that has. Later calls do nothing. */
void um_link_fail(um_link *l, int32_t rank, const char *message);

/* The following functions wait at most the timeout of the link, or longer on ranks other than 0, so that rank 0 can
 * report which rank is late. Errors: UM_EDEVICE; a connection is lost, a rank is late or has failed. The message lacks
 * the number of the rank (um_link_failed_rank). */

/* Sends a frame from rank 0 to all others. */
um_status um_link_tell(um_link *l, um_frame_type type, const void *data, size_t n, um_err *err);
/* Waits on rank 0 until every other rank has sent a frame of this type. */
um_status um_link_collect(um_link *l, um_frame_type type, um_err *err);
/* Sends a frame to rank 0. */
um_status um_link_answer(um_link *l, um_frame_type type, const void *data, size_t n, um_err *err);
/* Brings n bytes of every rank to rank 0, in a frame of this type: all [ranks][n], which is unused on other ranks. */
um_status um_link_assemble(um_link *l, um_frame_type type, const void *own, size_t n, void *all, um_err *err);
/* Looks whether a rank has failed, while devices compute, and answers UM_FRAME_PING. Takes nothing else from a
 * connection and does not wait. Errors: UM_EDEVICE; *rank is the rank to blame. */
um_status um_link_look(um_link *l, int32_t *rank, um_err *err);
/* Finds the rank to blame when the devices, which wait for each other, have not finished in time. Rank 0 asks the other
 * processes for UM_FRAME_PONG and blames the first that sends none; the other ranks blame rank 0. The group must end
 * afterwards. Returns UM_EDEVICE, and the words for the user in *err. */
um_status um_link_find_late(um_link *l, int32_t *rank, um_err *err);
/* Returns how long this rank waits for others. */
double um_link_patience(const um_link *l);
/* Receives a frame from rank 0 without a limit of time. *body is valid until the next call. */
um_status um_link_receive(um_link *l, um_frame_type *type, um_str *body, um_err *err);
/* See um_ranks_gather and um_ranks_gathered. own [n] floats. */
um_status um_link_gather(um_link *l, int slot, const float *own, size_t n, bool all, um_err *err);
const float *um_link_gathered(const um_link *l, int slot, int32_t rank);
/* See um_ranks_spread. */
um_status um_link_spread(um_link *l, float *p, size_t n, um_err *err);
/* See um_ranks_mirror. */
um_status um_link_mirror(um_link *l, int slot, size_t bytes, um_err *err);
/* Returns whether a result reaches all ranks at once, so that each can add them: there are two, or they share memory.
 */
bool um_link_is_direct(const um_link *l);
/* Results carry the times of their rank. */
void um_link_set_time(um_link *l, const um_rank_time *own);
um_rank_time um_link_time(const um_link *l, int32_t rank);

#ifdef __cplusplus
}
#endif
#endif
