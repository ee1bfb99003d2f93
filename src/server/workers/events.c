/* Passes the events of workers to the listeners of their requests. */
#include "server/workers/internal.h"

/* Frames handled in one turn of the event loop, so that connections get their turn. */
#define FRAMES_MAX 256
/* Frames handled by one drain. The limit is needed because other workers may keep sending. */
#define BACKLOG_MAX 1000000

/* ---- Generations ------------------------------------------------------------------------------------------------- */

/* Returns the submission that an event belongs to; NULL: it was cancelled, or belongs to another worker. */
static um_submission *submission_of(const um_worker_pool *pool, const um_worker_slot *slot, uint64_t rid,
                                    um_msg_type type) {
    um_submission *g = um_worker_pool_find_submission(pool, rid);
    if (g && g->worker == slot->index) return g;
    um_log(UM_LOG_DEBUG, "worker %u: dropped a %s for request %llu, which is not open", slot->index, um_msg_name(type),
           (unsigned long long)rid);
    return NULL;
}

static bool has_ended(const um_submission *g, int32_t index) { return g->ended[index / 8] >> index % 8 & 1; }

/* Returns the submission if the answer exists and has not ended, which listeners rely on; else NULL. */
static um_submission *answer_of(const um_worker_pool *pool, const um_worker_slot *slot, uint64_t rid, int32_t index,
                                um_msg_type type) {
    um_submission *g = submission_of(pool, slot, rid, type);
    if (!g || (index >= 0 && index < g->n && !has_ended(g, index))) return g;
    um_warn("worker %u: dropped a %s for answer %d: it has ended, or is not among the %d of the request", slot->index,
            um_msg_name(type), index, g->n);
    return NULL;
}

/* A listener may change the table, so the submission is not used after the call. */
static void on_text(um_worker_pool *pool, const um_worker_slot *slot, const um_msg_text *t) {
    const um_submission *g = answer_of(pool, slot, t->rid, t->index, UM_MSG_TEXT);
    if (g && g->listener.text) g->listener.text(g->arg, t);
}

static void on_snapshot(um_worker_pool *pool, const um_worker_slot *slot, const um_msg_snapshot *s) {
    const um_submission *g = answer_of(pool, slot, s->rid, s->index, UM_MSG_SNAPSHOT);
    if (g && g->listener.snapshot) g->listener.snapshot(g->arg, s);
}

/* Removes the submission before reporting its last answer, so that its place under max_queue is free. */
static void on_finish(um_worker_pool *pool, const um_worker_slot *slot, const um_msg_finish *f) {
    um_submission *open = answer_of(pool, slot, f->rid, f->index, UM_MSG_FINISH);
    if (!open) return;
    open->ended[f->index / 8] |= (uint8_t)(1U << f->index % 8);
    open->n_ended++;
    um_submission g = *open;
    if (g.n_ended == g.n) um_worker_pool_take_submission(pool, f->rid, &g);
    g.listener.finish(g.arg, f);
}

static void copy_text(char *to, size_t size, um_str from) {
    size_t n = UM_MIN(from.n, size - 1);
    memcpy(to, from.p, n);
    to[n] = '\0';
}

um_err um_worker_pool_error(int32_t status, um_str param, um_str message) {
    um_err err = {0};
    um_fail(&err, status < 0 ? (um_status)status : UM_EIO, "%.*s", (int)message.n, message.p);
    copy_text(err.param, sizeof(err.param), param);
    return err;
}

static void on_error(um_worker_pool *pool, const um_worker_slot *slot, const um_msg_error *e) {
    um_submission g;
    if (!submission_of(pool, slot, e->rid, UM_MSG_ERROR)) return;
    um_worker_pool_take_submission(pool, e->rid, &g);
    um_err err = um_worker_pool_error(e->status, e->param, e->message);
    g.listener.fail(g.arg, um_http_status_of(err.code), &err);
}

/* The counters of a worker start at 0 when it starts, and when it connects again. */
static void on_stats(um_worker_slot *slot, const um_msg_stats *now, um_str frame) {
    static const um_msg_stats none;
    const um_msg_stats *last = slot->stats.msg.type ? &slot->stats.msg.stats : &none;
    double seconds = now->decode_seconds - last->decode_seconds;
    if (seconds > 0) slot->decode_rate = (double)(now->decode_tokens - last->decode_tokens) / seconds;
    um_msg_copy_set(&slot->stats, frame);
}

/* ---- Frames ------------------------------------------------------------------------------------------------------ */

static void on_message(um_worker_pool *pool, um_worker_slot *slot, const um_msg *msg, um_str frame) {
    switch (msg->type) {
    case UM_MSG_LOADING: um_worker_slot_on_loading(slot, &msg->loading); break;
    case UM_MSG_READY: um_worker_slot_on_ready(slot, frame); break;
    case UM_MSG_FAILED: um_worker_slot_on_failed(slot, &msg->failed); break;
    case UM_MSG_TEXT: on_text(pool, slot, &msg->text); break;
    case UM_MSG_SNAPSHOT: on_snapshot(pool, slot, &msg->snapshot); break;
    case UM_MSG_FINISH: on_finish(pool, slot, &msg->finish); break;
    case UM_MSG_ERROR: on_error(pool, slot, &msg->error); break;
    case UM_MSG_STATS: on_stats(slot, &msg->stats, frame); break;
    case UM_MSG_RETURN: um_worker_pool_on_return(pool, slot->index, &msg->ret); break;
    case UM_MSG_HELLO:
    case UM_MSG_PONG: break; /* every frame shows that the worker is alive */
    default: um_warn("worker %u sent a %s, which only the server may send", slot->index, um_msg_name(msg->type));
    }
}

static void on_frame(um_worker_pool *pool, um_str frame) {
    um_msg msg;
    um_err err = {0};
    um_arena_reset(&pool->arena);
    if (um_wire_read(&msg, &pool->arena, frame, &err)) {
        um_warn("dropped a frame from a worker: %s", err.msg);
        return;
    }
    if (msg.worker >= pool->n_slots) {
        um_warn("dropped a frame of worker %u: the workers are 0 to %d", msg.worker, pool->n_slots - 1);
        return;
    }
    um_worker_slot *slot = &pool->slot[msg.worker];
    if (msg.type == UM_MSG_HELLO) um_worker_slot_on_hello(slot, &msg);
    if (msg.incarnation != slot->incarnation || slot->state == UM_WORKER_DEAD || slot->state == UM_WORKER_STOPPED) {
        um_log(UM_LOG_DEBUG, "worker %u: dropped a %s that was sent before it died", slot->index,
               um_msg_name(msg.type));
        return;
    }
    um_worker_slot_on_frame(slot);
    on_message(pool, slot, &msg, frame);
}

static void drain(um_worker_pool *pool, int most) {
    um_str frame;
    for (int n = 0; n < most && um_hub_receive(pool->hub, &frame); n++) on_frame(pool, frame);
}

void um_worker_pool_receive(um_worker_pool *pool) { drain(pool, FRAMES_MAX); }

void um_worker_pool_drain_all(um_worker_pool *pool) { drain(pool, BACKLOG_MAX); }
