/* What workers say, brought to whoever asked. */
#include "server/backend/parts.h"

/* Frames of one turn of the loop. Then connections get their turn, too. */
#define FRAMES_MAX 256

/* ---- Generations ------------------------------------------------------------------------------------------------- */

/* The generation that a worker speaks of; NULL: it was cancelled meanwhile, or is none of this worker's. */
static um_generation *generation_of(const um_backend *b, const um_member *m, uint64_t rid, um_msg_type type) {
    um_generation *g = um_backend_find(b, rid);
    if (g && g->worker == m->index) return g;
    um_log(UM_LOG_DEBUG, "worker %u: %s for request %llu, which is not open", m->index, um_msg_name(type),
           (unsigned long long)rid);
    return NULL;
}

static bool has_ended(const um_generation *g, int32_t index) { return g->ended[index / 8] >> index % 8 & 1; }

/* The same, when the answer is one of its own that has not ended: whoever listens relies on that. */
static um_generation *answer_of(const um_backend *b, const um_member *m, uint64_t rid, int32_t index,
                                um_msg_type type) {
    um_generation *g = generation_of(b, m, rid, type);
    if (!g || (index >= 0 && index < g->n && !has_ended(g, index))) return g;
    um_warn("worker %u: %s for answer %d, where %d are wanted and each ends once", m->index, um_msg_name(type), index,
            g->n);
    return NULL;
}

/* Listeners may change the table while they are called: what lies in it is not looked at behind the call. */
static void on_text(um_backend *b, const um_member *m, const um_msg_text *t) {
    const um_generation *g = answer_of(b, m, t->rid, t->index, UM_MSG_TEXT);
    if (g && g->listener.text) g->listener.text(g->arg, t);
}

static void on_snapshot(um_backend *b, const um_member *m, const um_msg_snapshot *s) {
    const um_generation *g = answer_of(b, m, s->rid, s->index, UM_MSG_SNAPSHOT);
    if (g && g->listener.snapshot) g->listener.snapshot(g->arg, s);
}

/* Out of the table before the last answer is told, so that a listener finds the place free that it gave. */
static void on_finish(um_backend *b, const um_member *m, const um_msg_finish *f) {
    um_generation *open = answer_of(b, m, f->rid, f->index, UM_MSG_FINISH);
    if (!open) return;
    open->ended[f->index / 8] |= (uint8_t)(1U << f->index % 8);
    open->n_ended++;
    um_generation g = *open;
    if (g.n_ended == g.n) um_backend_take(b, f->rid, &g);
    g.listener.finish(g.arg, f);
}

static void copy_text(char *to, size_t size, um_str from) {
    size_t n = UM_MIN(from.n, size - 1);
    memcpy(to, from.p, n);
    to[n] = '\0';
}

um_err um_backend_error(int32_t status, um_str param, um_str message) {
    um_err err = {0};
    um_fail(&err, status < 0 ? (um_status)status : UM_EIO, "%.*s", (int)message.n, message.p);
    copy_text(err.param, sizeof(err.param), param);
    return err;
}

static void on_error(um_backend *b, const um_member *m, const um_msg_error *e) {
    um_generation g;
    if (!generation_of(b, m, e->rid, UM_MSG_ERROR)) return;
    um_backend_take(b, e->rid, &g);
    um_err err = um_backend_error(e->status, e->param, e->message);
    g.listener.fail(g.arg, um_http_status_of(err.code), &err);
}

/* Counts begin at 0 with each process. */
static void on_stats(um_member *m, const um_msg_stats *now, um_str frame) {
    static const um_msg_stats none;
    const um_msg_stats *last = m->stats.msg.type ? &m->stats.msg.stats : &none;
    double seconds = now->decode_seconds - last->decode_seconds;
    if (seconds > 0) m->decode_rate = (double)(now->decode_tokens - last->decode_tokens) / seconds;
    um_kept_set(&m->stats, frame);
}

/* ---- Frames ------------------------------------------------------------------------------------------------------ */

static void on_message(um_backend *b, um_member *m, const um_msg *msg, um_str frame) {
    switch (msg->type) {
    case UM_MSG_READY: um_member_said_ready(m, frame); break;
    case UM_MSG_FAILED: um_member_said_failed(m, &msg->failed); break;
    case UM_MSG_TEXT: on_text(b, m, &msg->text); break;
    case UM_MSG_SNAPSHOT: on_snapshot(b, m, &msg->snapshot); break;
    case UM_MSG_FINISH: on_finish(b, m, &msg->finish); break;
    case UM_MSG_ERROR: on_error(b, m, &msg->error); break;
    case UM_MSG_STATS: on_stats(m, &msg->stats, frame); break;
    case UM_MSG_RETURN: um_backend_returned(b, m->index, &msg->ret); break;
    case UM_MSG_HELLO:
    case UM_MSG_PONG: break; /* a sign of life, which every frame is */
    default: um_warn("worker %u sent a %s, which is for workers", m->index, um_msg_name(msg->type));
    }
}

static void on_frame(um_backend *b, um_str frame) {
    um_msg msg;
    um_err err = {0};
    um_arena_reset(&b->arena);
    if (um_wire_read(&msg, &b->arena, frame, &err)) {
        um_warn("a frame from a worker is dropped: %s", err.msg);
        return;
    }
    if (msg.worker >= b->n_members) {
        um_warn("a frame of worker %u is dropped: there are workers 0 to %d", msg.worker, b->n_members - 1);
        return;
    }
    um_member *m = &b->member[msg.worker];
    if (msg.type == UM_MSG_HELLO) um_member_said_hello(m, &msg);
    if (msg.incarnation != m->incarnation || m->state == UM_WORKER_DEAD || m->state == UM_WORKER_STOPPED) {
        um_log(UM_LOG_DEBUG, "worker %u: a %s that was sent before it died", m->index, um_msg_name(msg.type));
        return;
    }
    um_member_heard(m);
    on_message(b, m, &msg, frame);
}

void um_backend_drain(um_backend *b) {
    um_str frame;
    for (int n = 0; n < FRAMES_MAX && um_hub_receive(b->hub, &frame); n++) on_frame(b, frame);
}
