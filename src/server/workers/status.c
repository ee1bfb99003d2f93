/* The status of workers, and sums of their counters. */
#include "server/workers/internal.h"

/* ---- Copies of messages ------------------------------------------------------------------------------------------ */

void um_msg_copy_set(um_msg_copy *k, um_str frame) {
    um_err err;
    um_buf_clear(&k->frame);
    um_buf_append(&k->frame, frame.p, frame.n);
    um_arena_reset(&k->arena);
    if (um_wire_read(&k->msg, &k->arena, (um_str){k->frame.data, k->frame.len}, &err)) um_msg_copy_clear(k);
}

void um_msg_copy_clear(um_msg_copy *k) { k->msg = (um_msg){0}; }

void um_msg_copy_free(um_msg_copy *k) {
    um_buf_free(&k->frame);
    um_arena_free(&k->arena);
}

/* ---- States ------------------------------------------------------------------------------------------------------ */

const char *um_worker_state_name(um_worker_state s) {
    static const char *const names[] = {
        [UM_WORKER_LOADING] = "loading", [UM_WORKER_UP] = "up",     [UM_WORKER_ASLEEP] = "asleep",
        [UM_WORKER_SILENT] = "silent",   [UM_WORKER_DEAD] = "dead", [UM_WORKER_STOPPED] = "stopped"};
    return names[s];
}

static bool returns(const um_worker_slot *slot) {
    return slot->state == UM_WORKER_DEAD && evtimer_pending(slot->timer, NULL);
}

/* A remote worker that has never connected has no incarnation. */
static double loaded_share(const um_worker_slot *slot) {
    const um_msg_loading *l = &slot->loading;
    if (slot->state != UM_WORKER_LOADING || !slot->incarnation) return -1;
    return l->bytes_all ? (double)l->bytes / (double)l->bytes_all : 0;
}

int32_t um_worker_pool_size(const um_worker_pool *pool) { return pool->n_slots; }

um_worker_status um_worker_pool_get_status(const um_worker_pool *pool, int32_t i) {
    static const um_msg_stats none;
    const um_worker_slot *slot = &pool->slot[i];
    return (um_worker_status){.state = slot->state,
                              .state_name = um_worker_state_name(slot->state),
                              .returns = returns(slot),
                              .pid = slot->pid,
                              .restarts = slot->restarts,
                              .error = slot->error.code ? slot->error.msg : "",
                              .loaded = loaded_share(slot),
                              .ready = slot->ready.msg.type ? &slot->ready.msg.ready : NULL,
                              .stats = slot->stats.msg.type ? &slot->stats.msg.stats : &none,
                              .decode_rate = slot->decode_rate,
                              .queued_tokens = slot->queued_tokens,
                              .n_requests = slot->n_requests};
}

bool um_worker_pool_is_up(const um_worker_pool *pool) {
    for (int32_t i = 0; i < pool->n_slots; i++)
        if (pool->slot[i].state == UM_WORKER_UP && !pool->is_draining && pool->rest == UM_POOL_AWAKE) return true;
    return false;
}

const char *um_worker_pool_down_reason(const um_worker_pool *pool) {
    return pool->down_reason.data ? pool->down_reason.data : "";
}

static void describe_slot(const um_worker_slot *slot, um_buf *out) {
    bool awaited = slot->pool->config->remote_workers && !slot->incarnation;
    um_buf_printf(out, "%sworker %u is %s", out->len ? "; " : "", slot->index,
                  awaited ? "not connected yet" : um_worker_state_name(slot->state));
    char done[UM_BYTES_TEXT], all[UM_BYTES_TEXT];
    if (loaded_share(slot) >= 0 && slot->loading.bytes_all)
        um_buf_printf(out, ", %d %%: %s of %s", (int)(100 * loaded_share(slot)),
                      um_bytes_text(done, (double)slot->loading.bytes),
                      um_bytes_text(all, (double)slot->loading.bytes_all));
    if (slot->error.code) um_buf_printf(out, " (%s)", slot->error.msg);
    if (slot->is_overdue) um_buf_printf(out, ", for more than %g s", (double)slot->pool->config->start_timeout);
    if (returns(slot)) um_buf_puts(out, ", restarting");
}

void um_worker_pool_update_down_reason(um_worker_pool *pool) {
    um_buf_clear(&pool->down_reason);
    if (pool->is_draining) um_buf_puts(&pool->down_reason, "the server is shutting down");
    else if (pool->rest != UM_POOL_AWAKE) um_buf_puts(&pool->down_reason, "the server sleeps; POST /wake_up wakes it");
    else if (!um_worker_pool_is_up(pool))
        for (int32_t i = 0; i < pool->n_slots; i++) describe_slot(&pool->slot[i], &pool->down_reason);
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
    UM_STATS_DEVICE_MAP(UM_X)
    t->sum.resident_bytes += s->resident_bytes;
}

#undef UM_X

void um_worker_pool_get_stats(const um_worker_pool *pool, um_msg_stats *out) {
    um_totals *t = pool->sums;
    *t = pool->past_totals;
    for (int32_t i = 0; i < pool->n_slots; i++) {
        const um_msg_copy *k = &pool->slot[i].stats;
        if (!k->msg.type) continue;
        um_totals_add_counts(t, &k->msg.stats);
        if (pool->slot[i].state != UM_WORKER_SILENT) um_totals_add_amounts(t, &k->msg.stats);
    }
    *out = t->sum;
    out->prefill_step = t->prefill_step;
    out->decode_step = t->decode_step;
    out->step_tokens = t->step_tokens;
}
