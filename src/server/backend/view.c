/* What is known of workers, and sums of their numbers. */
#include "server/backend/parts.h"

/* ---- Messages that are kept -------------------------------------------------------------------------------------- */

void um_kept_set(um_kept *k, um_str frame) {
    um_err err;
    um_buf_clear(&k->frame);
    um_buf_append(&k->frame, frame.p, frame.n);
    um_arena_reset(&k->arena);
    if (um_wire_read(&k->msg, &k->arena, (um_str){k->frame.data, k->frame.len}, &err)) um_kept_forget(k);
}

void um_kept_forget(um_kept *k) { k->msg = (um_msg){0}; }

void um_kept_free(um_kept *k) {
    um_buf_free(&k->frame);
    um_arena_free(&k->arena);
}

/* ---- States ------------------------------------------------------------------------------------------------------ */

const char *um_worker_state_name(um_worker_state s) {
    static const char *const names[] = {[UM_WORKER_LOADING] = "loading",
                                        [UM_WORKER_UP] = "up",
                                        [UM_WORKER_SILENT] = "silent",
                                        [UM_WORKER_DEAD] = "dead",
                                        [UM_WORKER_STOPPED] = "stopped"};
    return names[s];
}

static bool returns(const um_member *m) { return m->state == UM_WORKER_DEAD && evtimer_pending(m->timer, NULL); }

int32_t um_backend_size(const um_backend *b) { return b->n_members; }

um_worker_view um_backend_worker(const um_backend *b, int32_t i) {
    static const um_msg_stats none;
    const um_member *m = &b->member[i];
    return (um_worker_view){.state = m->state,
                            .state_name = um_worker_state_name(m->state),
                            .returns = returns(m),
                            .pid = m->pid,
                            .restarts = m->restarts,
                            .error = m->words.code ? m->words.msg : "",
                            .ready = m->ready.msg.type ? &m->ready.msg.ready : NULL,
                            .stats = m->stats.msg.type ? &m->stats.msg.stats : &none,
                            .decode_rate = m->decode_rate,
                            .queued_tokens = m->queued_tokens,
                            .n_requests = m->n_requests};
}

bool um_backend_is_up(const um_backend *b) {
    for (int32_t i = 0; i < b->n_members; i++)
        if (b->member[i].state == UM_WORKER_UP && !b->stopping) return true;
    return false;
}

const char *um_backend_trouble(const um_backend *b) { return b->trouble.data ? b->trouble.data : ""; }

static void describe_member(const um_member *m, um_buf *out) {
    bool awaited = m->backend->config->remote_workers && !m->incarnation;
    um_buf_printf(out, "%sworker %u is %s", out->len ? "; " : "", m->index,
                  awaited ? "not connected yet" : um_worker_state_name(m->state));
    if (m->words.code) um_buf_printf(out, " (%s)", m->words.msg);
    if (m->is_late) um_buf_printf(out, ", for more than %g s", (double)m->backend->config->start_timeout);
    if (returns(m)) um_buf_puts(out, ", it will be started again");
}

void um_backend_describe(um_backend *b) {
    um_buf_clear(&b->trouble);
    if (b->stopping) um_buf_puts(&b->trouble, "the server is shutting down");
    else if (!um_backend_is_up(b))
        for (int32_t i = 0; i < b->n_members; i++) describe_member(&b->member[i], &b->trouble);
}

/* ---- Sums -------------------------------------------------------------------------------------------------------- */

static void add_histogram(int64_t *sum, uint32_t *n_sum, const int64_t *a, uint32_t n) {
    n = UM_MIN(n, UM_STATS_BUCKETS);
    for (uint32_t i = 0; i < n; i++) sum[i] += a[i];
    *n_sum = UM_MAX(*n_sum, n);
}

#define UM_X(type, name) t->sum.name += s->name;

void um_totals_add_counts(um_totals *t, const um_msg_stats *s) {
    UM_STATS_COUNT_MAP(UM_X)
    add_histogram(t->prefill_step, &t->sum.n_prefill_step, s->prefill_step, s->n_prefill_step);
    add_histogram(t->decode_step, &t->sum.n_decode_step, s->decode_step, s->n_decode_step);
    add_histogram(t->step_tokens, &t->sum.n_step_tokens, s->step_tokens, s->n_step_tokens);
}

void um_totals_add_amounts(um_totals *t, const um_msg_stats *s) {
    UM_STATS_BYTES_MAP(UM_X)
    UM_STATS_AMOUNT_MAP(UM_X)
    t->sum.resident_bytes += s->resident_bytes;
}

#undef UM_X

void um_backend_stats(const um_backend *b, um_msg_stats *out) {
    um_totals *t = b->sums;
    *t = b->past;
    for (int32_t i = 0; i < b->n_members; i++) {
        const um_kept *k = &b->member[i].stats;
        if (!k->msg.type) continue;
        um_totals_add_counts(t, &k->msg.stats);
        um_totals_add_amounts(t, &k->msg.stats);
    }
    *out = t->sum;
    out->prefill_step = t->prefill_step;
    out->decode_step = t->decode_step;
    out->step_tokens = t->step_tokens;
}
