/* The doors of link.h, and the queue of frames. */
#include "server/link/kind.h"
#include "server/link/wire.h"

void um_hub_close(um_hub *h) {
    if (h) h->kind->close(h);
}

const char *um_hub_command_addr(const um_hub *h) { return h->kind->command_addr(h); }
const char *um_hub_event_addr(const um_hub *h) { return h->kind->event_addr(h); }

bool um_hub_send(um_hub *h, uint16_t worker, uint16_t incarnation, um_buf *frame) {
    bool is_sent = frame->len <= UM_WIRE_FRAME_MAX && h->kind->send(h, worker, incarnation, frame);
    if (!is_sent) um_buf_free(frame);
    return is_sent;
}

bool um_hub_receive(um_hub *h, um_str *frame) { return h->kind->receive(h, frame); }
int um_hub_fd(const um_hub *h) { return h->kind->fd(h); }
void um_hub_forget(um_hub *h, uint16_t worker, uint16_t incarnation) { h->kind->forget(h, worker, incarnation); }

void um_port_close(um_port *p) {
    if (p) p->kind->close(p);
}

void um_port_send(um_port *p, um_buf *frame) {
    if (frame->len <= UM_WIRE_FRAME_MAX) {
        p->kind->send(p, frame);
        return;
    }
    um_log(UM_LOG_ERROR, "a frame of %zu bytes is dropped; at most %zu are sent", frame->len, UM_WIRE_FRAME_MAX);
    um_buf_free(frame);
}

bool um_port_receive(um_port *p, um_str *frame) { return p->kind->receive(p, frame); }
void um_port_wait(um_port *p, double seconds) { p->kind->wait(p, seconds); }
bool um_port_is_lost(um_port *p) { return p->kind->is_lost && p->kind->is_lost(p); }

um_status um_port_join_again(um_port *p, uint16_t worker, uint16_t incarnation, um_err *err) {
    assert(p->kind->join_again);
    return p->kind->join_again(p, worker, incarnation, err);
}

/* ---- Frames in order --------------------------------------------------------------------------------------------- */

void um_frames_push(um_frames *q, um_buf *bytes) {
    um_frame *f = UM_NEW(um_frame);
    f->bytes = *bytes;
    *bytes = (um_buf){0};
    if (q->last) q->last->next = f;
    else q->first = f;
    q->last = f;
    q->n++;
}

bool um_frames_pop(um_frames *q, um_buf *out) {
    um_frame *f = q->first;
    if (!f) return false;
    *out = f->bytes;
    q->first = f->next;
    if (!q->first) q->last = NULL;
    q->n--;
    um_free(f);
    return true;
}

void um_frames_append(um_frames *q, um_frames *from) {
    if (!from->first) return;
    if (q->last) q->last->next = from->first;
    else q->first = from->first;
    q->last = from->last;
    q->n += from->n;
    *from = (um_frames){0};
}

void um_frames_clear(um_frames *q) {
    um_buf bytes;
    while (um_frames_pop(q, &bytes)) um_buf_free(&bytes);
}
