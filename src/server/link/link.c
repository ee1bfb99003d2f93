/* The functions of link.h, which call those of the kind, and the queue of frames. */
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
void um_hub_disconnect(um_hub *h, uint16_t worker, uint16_t incarnation) { h->kind->forget(h, worker, incarnation); }

void um_port_close(um_port *p) {
    if (p) p->kind->close(p);
}

void um_port_send(um_port *p, um_buf *frame) {
    if (frame->len <= UM_WIRE_FRAME_MAX) {
        p->kind->send(p, frame);
        return;
    }
    um_log(UM_LOG_ERROR, "dropped a frame of %zu bytes; the limit is %zu", frame->len, UM_WIRE_FRAME_MAX);
    um_buf_free(frame);
}

bool um_port_receive(um_port *p, um_str *frame) { return p->kind->receive(p, frame); }
void um_port_wait(um_port *p, double seconds) { p->kind->wait(p, seconds); }
bool um_port_is_lost(um_port *p) { return p->kind->is_lost && p->kind->is_lost(p); }

um_status um_port_reconnect(um_port *p, uint16_t worker, uint16_t incarnation, um_err *err) {
    assert(p->kind->join_again);
    return p->kind->join_again(p, worker, incarnation, err);
}

/* ---- Queue of frames --------------------------------------------------------------------------------------------- */

void um_frame_queue_push(um_frame_queue *q, um_buf *bytes) {
    um_queued_frame *f = UM_NEW(um_queued_frame);
    f->bytes = *bytes;
    *bytes = (um_buf){0};
    if (q->last) q->last->next = f;
    else q->first = f;
    q->last = f;
    q->n++;
}

bool um_frame_queue_pop(um_frame_queue *q, um_buf *out) {
    um_queued_frame *f = q->first;
    if (!f) return false;
    *out = f->bytes;
    q->first = f->next;
    if (!q->first) q->last = NULL;
    q->n--;
    um_free(f);
    return true;
}

void um_frame_queue_append(um_frame_queue *q, um_frame_queue *from) {
    if (!from->first) return;
    if (q->last) q->last->next = from->first;
    else q->first = from->first;
    q->last = from->last;
    q->n += from->n;
    *from = (um_frame_queue){0};
}

void um_frame_queue_clear(um_frame_queue *q) {
    um_buf bytes;
    while (um_frame_queue_pop(q, &bytes)) um_buf_free(&bytes);
}
