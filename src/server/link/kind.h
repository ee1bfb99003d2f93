/* link_kind: the two kinds of links behind link.h, each a table of functions, and a queue of frames that both use. */
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
    bool (*send)(um_hub *h, uint16_t worker, uint16_t incarnation, um_buf *frame); /* may leave the frame as it is */
    bool (*receive)(um_hub *h, um_str *frame);
    int (*fd)(const um_hub *h);
    void (*forget)(um_hub *h, uint16_t worker, uint16_t incarnation);
} um_hub_kind;

typedef struct um_port_kind {
    void (*close)(um_port *p);
    void (*send)(um_port *p, um_buf *frame);
    bool (*receive)(um_port *p, um_str *frame);
    void (*wait)(um_port *p, double seconds);
    bool (*is_lost)(um_port *p); /* NULL, as the next: never */
    um_status (*join_again)(um_port *p, uint16_t worker, uint16_t incarnation, um_err *err);
} um_port_kind;

/* The first member of what a kind makes. */
struct um_hub {
    const um_hub_kind *kind;
};
struct um_port {
    const um_port_kind *kind;
};

/* Frames in order. Zero is an empty one. */
typedef struct um_frame {
    struct um_frame *next;
    um_buf bytes;
} um_frame;
typedef struct um_frames {
    um_frame *first, *last;
    size_t n;
} um_frames;
void um_frames_push(um_frames *q, um_buf *bytes);     /* takes the content */
bool um_frames_pop(um_frames *q, um_buf *out);        /* hands it over; `out` held nothing */
void um_frames_append(um_frames *q, um_frames *from); /* `from` is empty afterwards */
void um_frames_clear(um_frames *q);

#ifdef __cplusplus
}
#endif
#endif
