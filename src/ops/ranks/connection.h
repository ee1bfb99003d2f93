/* connection: frames over one TCP connection. Several connections transfer at the same time (um_transfer). Used by
 * link.c and join.c only. */
#ifndef UM_OPS_RANKS_CONNECTION_H
#define UM_OPS_RANKS_CONNECTION_H

#include "ops/ranks/link.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The header of a frame, in the byte order of the host: ranks of another order are refused by `magic`. */
typedef struct um_frame {
    uint32_t magic, type;
    uint64_t bytes;    /* that follow */
    um_rank_time time; /* of UM_FRAME_DATA */
} um_frame;

#define UM_FRAME_MAGIC     UINT32_C(0x314b5255)
#define UM_FRAME_BYTES_MAX ((size_t)1 << 30)

/* The rank that failed, and its words: the body of UM_FRAME_FAILED. */
typedef struct um_failed {
    int32_t rank;
    char message[UM_ERR_MAX];
} um_failed;

typedef struct um_connection {
    int fd;       /* -1: none */
    int32_t rank; /* at the other end */
    um_frame out; /* the frame that is sent: out_at of its out_all bytes have been */
    const char *data;
    size_t out_at, out_all;
    um_frame in;            /* the frame that is received */
    um_rank_time last_time; /* of the last UM_FRAME_DATA */
    bool receives;
    size_t in_at;
    um_frame_type wanted; /* 0: any */
    void *to;             /* where the bytes of a wanted frame go; NULL: to `body` */
    size_t room;          /* the most bytes of a frame */
    um_buf body;
} um_connection;

/* Begins to send or to receive a frame. Data and space must stay until um_transfer has returned. to NULL: the bytes go
 * to c->body, and room 0 stands for UM_FRAME_BYTES_MAX. */
void um_connection_send(um_connection *c, um_frame_type type, const void *data, size_t n);
void um_connection_send_results(um_connection *c, const float *p, size_t n, um_rank_time time);
void um_connection_receive(um_connection *c, um_frame_type wanted, void *to, size_t room);
/* Drops a frame of which nothing has been sent. Returns false when a part of it has been: no other can be sent then. */
bool um_connection_drop(um_connection *c);
/* Finishes all frames of the connections c [n]. seconds < 0: without a limit. Returns false when a connection is lost,
 * the time is over, or a frame UM_FRAME_FAILED has arrived: *why then has the rank to blame and the words. */
bool um_transfer(um_connection *c, int32_t n, double seconds, um_failed *why);
/* Returns whether the other end is gone, or the next frame says that a rank has failed; *why then has the rank to blame
 * and the words. Takes nothing from the connection. */
bool um_connection_tells_failure(const um_connection *c, um_failed *why);
/* Answers UM_FRAME_PING if it is the next frame, and takes it. */
void um_connection_answer_ping(um_connection *c);
/* Makes a socket fit for frames: no delay, no blocking, probes while it is idle. c takes over fd, also after an error,
 * and is released with um_connection_close. Errors: UM_EIO. */
um_status um_connection_init(um_connection *c, int fd, int32_t rank, um_err *err);
void um_connection_close(um_connection *c);

#ifdef __cplusplus
}
#endif
#endif
