/* The addresses, the barrier and the first error that the ranks of a um_forward share. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "ops/ranks.h"
#include "ops/ranks/link.h"

struct um_ranks {
    int32_t n;
    double timeout;
    bool spins;    /* there is a CPU for every rank */
    um_link *link; /* to the ranks in other processes; NULL: all are in this one */
    void *shared[UM_RANKS_SLOTS][UM_RANKS_MAX];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_uint meetings; /* finished ones */
    int32_t n_arrived;
    bool has_arrived[UM_RANKS_MAX];
    um_rank_time time[UM_RANKS_MAX]; /* each written by its rank only */
    atomic_bool is_broken;
    char message[sizeof((um_err *)0)->msg];
};

enum { SPINS = 4000 }; /* about 50 us; a sum of a small model takes less */

um_ranks *um_ranks_new(int32_t n, double timeout) {
    um_ranks *g = UM_NEW(um_ranks);
    pthread_condattr_t monotonic;
    assert(n > 0 && n <= UM_RANKS_MAX);
    g->n = n;
    g->timeout = timeout;
    g->spins = um_cpu_count() >= n;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return g;
}

void um_ranks_free(um_ranks *g) {
    if (!g) return;
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    um_free(g);
}

void um_ranks_set_link(um_ranks *g, um_link *link) { g->link = link; }

um_link *um_ranks_link(const um_ranks *g) { return g->link; }

void um_ranks_add_time(const um_rank *r, double pass_seconds, double exchange_seconds) {
    um_rank_time *t = &r->group->time[r->index];
    t->pass_seconds += pass_seconds;
    t->exchange_seconds += exchange_seconds;
    if (r->group->link) um_link_set_time(r->group->link, t);
}

um_rank_time um_ranks_time(const um_ranks *g, int32_t rank) {
    return g->link && rank != um_link_rank(g->link) ? um_link_time(g->link, rank) : g->time[rank];
}

double um_ranks_timeout(const um_ranks *g) { return g->timeout; }

void um_ranks_publish(const um_rank *r, int slot, void *p) { r->group->shared[slot][r->index] = p; }

void *um_ranks_shared(const um_rank *r, int slot, int32_t rank) { return r->group->shared[slot][rank]; }

/* Keeps the first message. The caller holds the lock. */
static void break_locked(um_ranks *g, int32_t rank, const char *message) {
    if (atomic_load(&g->is_broken)) return;
    snprintf(g->message, sizeof g->message, "rank %d: %.*s", rank, (int)sizeof g->message - 32, message);
    atomic_store(&g->is_broken, true);
    pthread_cond_broadcast(&g->changed);
}

void um_ranks_break(const um_rank *r, const char *message) {
    pthread_mutex_lock(&r->group->lock);
    break_locked(r->group, r->index, message);
    if (r->group->link) um_link_fail(r->group->link, r->index, message);
    pthread_mutex_unlock(&r->group->lock);
}

void um_ranks_watch(um_ranks *g, double since) {
    int32_t rank = 0;
    um_err why;
    pthread_mutex_lock(&g->lock);
    if (!atomic_load(&g->is_broken)) {
        um_status s = um_link_look(g->link, &rank, &why);
        if (!s && um_now() - since > um_link_patience(g->link)) s = um_link_find_late(g->link, &rank, &why);
        if (s) {
            break_locked(g, rank, why.msg);
            um_link_fail(g->link, rank, why.msg);
        }
    }
    pthread_mutex_unlock(&g->lock);
}

bool um_ranks_is_broken(um_ranks *g, um_err *err) {
    if (!atomic_load(&g->is_broken)) return false;
    pthread_mutex_lock(&g->lock);
    um_fail(err, UM_EDEVICE, "%s", g->message);
    pthread_mutex_unlock(&g->lock);
    return true;
}

/* Blames the first rank that has not arrived. The caller holds the lock. */
static void give_up(um_ranks *g) {
    char text[96];
    int32_t missing = 0;
    while (missing < g->n - 1 && g->has_arrived[missing]) missing++;
    snprintf(text, sizeof text, "no answer for %g s (--distributed-timeout-seconds)", g->timeout);
    break_locked(g, missing, text);
}

static struct timespec deadline_of(double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const double all = (double)t.tv_nsec / 1e9 + seconds, whole = (double)(int64_t)all;
    t.tv_sec += (time_t)whole;
    t.tv_nsec = (long)((all - whole) * 1e9);
    return t;
}

/* Waits until the meeting with this number has finished. */
static void wait_for(um_ranks *g, unsigned meeting) {
    for (int i = 0; g->spins && i < SPINS; i++)
        if (atomic_load_explicit(&g->meetings, memory_order_acquire) != meeting) return;
    const struct timespec until = deadline_of(g->timeout);
    pthread_mutex_lock(&g->lock);
    while (atomic_load(&g->meetings) == meeting && !atomic_load(&g->is_broken))
        if (pthread_cond_timedwait(&g->changed, &g->lock, &until)) {
            if (atomic_load(&g->meetings) == meeting) give_up(g);
            break;
        }
    pthread_mutex_unlock(&g->lock);
}

bool um_ranks_meet(const um_rank *r) {
    um_ranks *g = r->group;
    pthread_mutex_lock(&g->lock);
    const unsigned meeting = atomic_load(&g->meetings);
    const bool is_broken = atomic_load(&g->is_broken), is_last = !is_broken && ++g->n_arrived == g->n;
    g->has_arrived[r->index] = true;
    if (is_last) {
        g->n_arrived = 0;
        memset(g->has_arrived, 0, sizeof g->has_arrived);
        atomic_store_explicit(&g->meetings, meeting + 1, memory_order_release);
        pthread_cond_broadcast(&g->changed);
    }
    pthread_mutex_unlock(&g->lock);
    if (!is_broken && !is_last) wait_for(g, meeting);
    return !atomic_load(&g->is_broken);
}
