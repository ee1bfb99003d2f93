/* Puts the workers to sleep and wakes them. */
#include "server/workers/internal.h"

/* Releasing memory takes a worker less time than this, even if much of it is swapped out. */
#define SLEEP_SECONDS 300.0

um_pool_rest um_worker_pool_get_rest(const um_worker_pool *pool) { return pool->rest; }

static void tell_change(um_worker_pool *pool) {
    um_worker_pool_update_down_reason(pool);
    if (pool->on_change) pool->on_change(pool->on_change_arg, pool);
}

static void change(um_worker_pool *pool, um_pool_rest rest) {
    pool->rest = rest;
    tell_change(pool);
}

void um_worker_pool_sleep_if_idle(um_worker_pool *pool) {
    bool is_due =
        pool->rest == UM_POOL_DROWSY && !pool->is_sleep_sent && !pool->is_draining && um_worker_pool_is_idle(pool);
    if (is_due) evtimer_add(pool->sleep_timer, &(struct timeval){0});
}

void um_worker_pool_sleep(um_worker_pool *pool) {
    pool->wakes_then = false;
    if (pool->rest != UM_POOL_AWAKE) return;
    change(pool, UM_POOL_DROWSY);
    um_worker_pool_sleep_if_idle(pool);
}

/* The workers are LOADING before on_change is called. A request that waits for them would end with 503 if it saw an
 * awake pool in which no worker loads. */
static void wake_all(um_worker_pool *pool) {
    pool->rest = UM_POOL_AWAKE;
    for (int32_t i = 0; i < pool->n_slots; i++)
        if (pool->slot[i].state == UM_WORKER_ASLEEP) um_worker_slot_wake(&pool->slot[i]);
    tell_change(pool);
}

void um_worker_pool_wake(um_worker_pool *pool) {
    if (pool->rest == UM_POOL_AWAKE) return;
    if (pool->is_sleep_sent) pool->wakes_then = true;
    else wake_all(pool);
}

/* Workers that are not up have no memory to release, or fall asleep when they have loaded. When a worker refuses, all
 * wake up again. */
static void on_slept(void *arg, um_status st, const char *value, const um_err *err) {
    um_worker_pool *pool = arg;
    (void)value;
    pool->is_sleep_sent = false;
    if (pool->is_draining) return;
    bool failed = st && st != UM_EIO;
    if (failed) um_warn("the workers don't sleep: %s", err->msg);
    for (int32_t i = 0; i < pool->n_slots; i++)
        if (pool->slot[i].state == UM_WORKER_UP) um_worker_slot_on_sleep(&pool->slot[i]);
    if (failed || pool->wakes_then) wake_all(pool);
    else change(pool, UM_POOL_ASLEEP);
}

void um_worker_pool_on_sleep_timer(um_worker_pool *pool) {
    if (pool->rest != UM_POOL_DROWSY || !um_worker_pool_is_idle(pool) || pool->is_sleep_sent) return;
    pool->is_sleep_sent = true;
    um_worker_pool_call(pool, -1, "sleep", UM_STR("{}"), SLEEP_SECONDS, on_slept, pool);
}
