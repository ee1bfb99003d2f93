/* The common parts of the two kinds of links: the tables of functions that link.h calls, and a queue of frames. */
#ifndef UM_LINK_KIND_H
#define UM_LINK_KIND_H

#include "server/link/link.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_hub_kind {
    void (*close)(um_hub *h);
    const char *(*command_addr)(const um_hub *h);
    const char *(*event_addr)(const um_hub *h);
    bool (*send)(um_hub *h, uint16_t worker, uint16_t incarnation, um_buf *frame); /* need not clear the frame */
    bool (*receive)(um_hub *h, um_str *frame);
    int (*fd)(const um_hub *h);
    void (*forget)(um_hub *h, uint16_t worker, uint16_t incarnation);
} um_hub_kind;

typedef struct um_port_kind {
    void (*close)(um_port *p);
    void (*send)(um_port *p, um_buf *frame);
    bool (*receive)(um_port *p, um_str *frame);
    void (*wait)(um_port *p, double seconds);
    /* NULL for links that can't be lost. */
    bool (*is_lost)(um_port *p);
    um_status (*join_again)(um_port *p, uint16_t worker, uint16_t incarnation, um_err *err);
} um_port_kind;

/* The first member of every hub and port. */
struct um_hub {
    const um_hub_kind *kind;
};
struct um_port {
    const um_port_kind *kind;
};

/* A first-in first-out queue of frames. A zeroed struct is an empty queue. */
typedef struct um_queued_frame {
    struct um_queued_frame *next;
    um_buf bytes;
} um_queued_frame;
typedef struct um_frame_queue {
    um_queued_frame *first, *last;
    size_t n;
} um_frame_queue;
/* Moves the content of the buffer into the queue, and leaves the buffer empty. */
void um_frame_queue_push(um_frame_queue *q, um_buf *bytes);
/* Moves the first frame into `out`, which must be empty; um_buf_free. Returns false if the queue is empty. */
bool um_frame_queue_pop(um_frame_queue *q, um_buf *out);
/* Moves all frames of `from` to the end of `q`. */
void um_frame_queue_append(um_frame_queue *q, um_frame_queue *from);
void um_frame_queue_clear(um_frame_queue *q);

#ifdef __cplusplus
}
#endif
#endif
