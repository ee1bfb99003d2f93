/* The passes of a group of ranks. Every rank has a thread, which runs the same pass as the threads of the others. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "ops/ranks/group.h"
#include "ops/ranks/link.h"

typedef enum { JOB_NONE, JOB_PASS, JOB_WARM, JOB_END } job_kind;

typedef struct member {
    um_forward *group;
    um_forward *forward;
    pthread_t thread;
    bool has_thread;
    _Atomic job_kind job; /* JOB_NONE: the thread waits. Written with the lock of the group. */
} member;

struct um_forward {
    um_device *d;
    um_group_networks networks;
    um_ranks *shared;
    um_remote *remote; /* the ranks in other processes; NULL: this rank is not 0, or there are none */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool spins; /* threads look for work and results for a while before they sleep */
    atomic_int n_busy;
    member member[UM_RANKS_MAX];
    const um_batch *batch;    /* of JOB_PASS: that of the engine, or a copy of it */
    const um_batch *given;    /* that of the engine */
    um_kept_batch *kept;      /* NULL: GPUs have copied the batch when their passes have begun */
    double submitted;         /* um_now() when it was submitted */
    bool owes;                /* the other ranks have not told their times of the pass before */
    const um_pass_size *size; /* [n_sizes] of JOB_WARM */
    int32_t n_sizes;
};

/* ---- The threads ------------------------------------------------------------------------------------------------- */

static um_status run_job(member *m, job_kind job, um_err *err) {
    const um_forward *f = m->group;
    const um_backend *b = f->d->inner;
    if (job == JOB_WARM) return b->warm(m->forward, f->size, f->n_sizes, err);
    um_status s = b->submit(m->forward, f->batch, err);
    return s ? s : b->wait(m->forward, err);
}

/* A thread that sleeps needs some 50 us to wake up, which is much beside a pass of a GPU. */
static const double SPIN_FOR_JOB = 1e-3, SPIN_FOR_RESULT = 10e-3;

static job_kind next_job(member *m) {
    um_forward *f = m->group;
    const double until = um_now() + SPIN_FOR_JOB;
    while (f->spins && atomic_load(&m->job) == JOB_NONE && um_now() < until) continue;
    pthread_mutex_lock(&f->lock);
    while (atomic_load(&m->job) == JOB_NONE) pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
    return atomic_load(&m->job);
}

static void end_job(member *m) {
    um_forward *f = m->group;
    pthread_mutex_lock(&f->lock);
    atomic_store(&m->job, JOB_NONE);
    if (atomic_fetch_sub(&f->n_busy, 1) == 1) pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static void *run_member(void *arg) {
    member *m = (member *)arg;
    const um_rank *at = &m->group->networks.place[m - m->group->member];
    for (job_kind job; (job = next_job(m)) != JOB_END; end_job(m)) {
        um_err err = {0};
        const double start = um_now();
        if (run_job(m, job, &err)) um_ranks_break(at, err.msg);
        if (job == JOB_PASS) um_ranks_add_time(at, um_now() - start, 0);
    }
    return NULL;
}

static void start_job(um_forward *f, job_kind job) {
    pthread_mutex_lock(&f->lock);
    assert(!f->n_busy);
    atomic_store(&f->n_busy, f->d->n);
    for (int32_t r = 0; r < f->d->n; r++) atomic_store(&f->member[r].job, job);
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static const double UNTIL_STUCK = 10, UNTIL_GIVEN_UP = 2;

/* Waits until something has changed, for at most LOOK_NS or SECOND_NS. The caller holds the lock. Where devices
 * exchange results with those of other processes, it then checks whether one of these processes has failed or is late.
 * begin: when the pass began (um_now). */
static void wait_a_moment(um_forward *f, double begin) {
    static const long LOOK_NS = 20000000, SECOND_NS = 1000000000;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += f->d->unites ? LOOK_NS : SECOND_NS;
    t.tv_sec += t.tv_nsec / SECOND_NS;
    t.tv_nsec %= SECOND_NS;
    pthread_cond_timedwait(&f->changed, &f->lock, &t);
    if (!f->d->unites) return;
    pthread_mutex_unlock(&f->lock);
    um_ranks_watch(f->shared, begin);
    pthread_mutex_lock(&f->lock);
}

/* Waits for all ranks of this process. After a failure it waits for at most UNTIL_STUCK seconds more: the thread of a
 * rank that hangs goes on, so the memory that it uses is not freed (um_backend.is_stuck). */
static um_status wait_for_ranks(um_forward *f, double begin, um_err *err) {
    double since = 0;
    const double until = um_now() + SPIN_FOR_RESULT;
    while (f->spins && atomic_load(&f->n_busy) && um_now() < until) continue;
    pthread_mutex_lock(&f->lock);
    while (atomic_load(&f->n_busy)) {
        wait_a_moment(f, begin);
        if (!um_ranks_is_broken(f->shared, err)) continue;
        if (since == 0) since = um_now();
        if (f->d->inner->give_up && f->d->unites && um_now() - since > UNTIL_GIVEN_UP)
            f->d->inner->give_up(f->member[0].forward); /* its thread is blocked, and can't do this */
        if (um_now() - since > UM_MIN(um_ranks_timeout(f->shared), UNTIL_STUCK)) break;
    }
    pthread_mutex_unlock(&f->lock);
    return um_ranks_is_broken(f->shared, err) ? UM_EDEVICE : UM_OK;
}

/* ---- Life -------------------------------------------------------------------------------------------------------- */

static void init_locks(um_forward *f) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static um_status start_member(um_forward *f, int32_t r, um_err *err) {
    member *m = &f->member[r];
    const int code = pthread_create(&m->thread, NULL, run_member, m);
    m->has_thread = !code;
    return code ? um_fail(err, UM_ELIMIT, "can't start the thread of rank %d: %s", r, strerror(code)) : UM_OK;
}

/* Returns whether this process is rank 0 of a group in several processes. */
static bool leads(const um_device *d) { return d->link && d->first == 0; }

/* Ends the group after a failure of the link. *err gets the number of the rank that failed. */
static um_status fail_link(um_forward *f, um_err *err) {
    const um_rank failed = {um_link_failed_rank(f->d->link), f->d->all, f->shared};
    um_err why;
    um_ranks_break(&failed, err ? err->msg : "it has failed");
    (void)um_ranks_is_broken(f->shared, &why);
    return um_fail(err, UM_EDEVICE, "%s", why.msg);
}

/* Where devices exchange results by themselves, nothing goes through the link during a pass. When a rank has finished
 * it, it sends its times. Rank 0 receives them before it sends the next command. */
static um_status settle(um_forward *f, um_err *err) {
    const bool owes = f->owes;
    f->owes = false;
    return owes && um_link_gather(f->d->link, 0, NULL, 0, false, err) ? fail_link(f, err) : UM_OK;
}

/* Makes the um_forward of each member, and starts its thread. */
static um_status start_members(um_forward *f, const um_forward_config *c, um_err *err) {
    const um_device *d = f->d;
    um_status s = UM_OK;
    for (int32_t r = 0; r < d->n && !s; r++)
        s = d->inner->forward_new(&f->member[r].forward, d->member[r], &f->networks.rank[r], c, err);
    for (int32_t r = 0; r < d->n && !s; r++) s = start_member(f, r, err);
    return s;
}

/* Waits until the other ranks have started their members. s is the status of this rank. The answers are received also
 * when this rank has failed, because a later um_forward would take them for its own. */
static um_status await_others(um_forward *f, um_status s, um_err *err) {
    um_err *own = s ? NULL : err; /* the first error counts */
    if (!um_link_collect(f->d->link, UM_FRAME_READY, own)) return s;
    const um_status lost = fail_link(f, own);
    return s ? s : lost;
}

um_status um_group_forward_new(um_forward **out, um_device *d, const um_network *n, const um_forward_config *c,
                               um_err *err) {
    *out = NULL;
    if (d->is_stuck)
        return um_fail(err, UM_EDEVICE, "a rank of the engine before still computes; open the model again");
    um_forward *f = UM_NEW(um_forward);
    um_status s = UM_OK;
    f->d = d;
    f->shared = um_ranks_new(d->all, d->timeout);
    um_ranks_set_link(f->shared, d->link);
    f->spins = !d->shares && um_cpu_count() > 2 * d->n;
    if (leads(d)) f->remote = um_remote_new(d->link, n, c, true, d->unites);
    if (d->shares) f->kept = um_kept_batch_new(n, c);
    um_group_networks_make(&f->networks, n, d, f->shared);
    init_locks(f);
    for (int32_t r = 0; r < d->n; r++) f->member[r].group = f;
    if (leads(d) && um_link_tell(d->link, UM_FRAME_FORWARD, c, sizeof *c, err)) s = fail_link(f, err);
    const bool is_told = leads(d) && !s;
    if (!s) s = start_members(f, c, err);
    if (is_told) s = await_others(f, s, err);
    if (s) {
        um_group_forward_free(f);
        f = NULL;
    }
    *out = f;
    return s;
}

/* Ends the threads. Returns false when one hangs; it then still uses f. */
static bool end_threads(um_forward *f) {
    pthread_mutex_lock(&f->lock);
    const bool hangs = atomic_load(&f->n_busy) > 0;
    for (int32_t r = 0; r < f->d->n && !hangs; r++) atomic_store(&f->member[r].job, JOB_END);
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    for (int32_t r = 0; r < f->d->n && !hangs; r++)
        if (f->member[r].has_thread) pthread_join(f->member[r].thread, NULL);
    return !hangs;
}

void um_group_forward_free(um_forward *f) {
    if (!f) return;
    if (!end_threads(f)) {
        um_warn(
            "a rank still computes after its group has failed; the memory of its engine and its model is not freed");
        f->d->is_stuck = true;
        return;
    }
    for (int32_t r = f->d->n; r-- > 0;) f->d->inner->forward_free(f->member[r].forward);
    um_err lost = {0};
    if (f->remote && !um_ranks_is_broken(f->shared, NULL) && !settle(f, NULL) &&
        um_link_tell(f->d->link, UM_FRAME_FREE, NULL, 0, &lost))
        (void)fail_link(f, &lost);
    um_remote_free(f->remote);
    um_kept_batch_free(f->kept);
    um_group_networks_free(&f->networks);
    um_ranks_free(f->shared);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    um_free(f);
}

/* ---- Passes ------------------------------------------------------------------------------------------------------ */

um_status um_group_submit(um_forward *f, const um_batch *b, um_err *err) {
    if (um_ranks_is_broken(f->shared, err) || settle(f, err)) return UM_EDEVICE;
    if (f->remote && um_remote_pass(f->remote, b, err)) return fail_link(f, err);
    um_group_networks_refresh(&f->networks);
    f->given = b;
    f->batch = f->kept ? um_kept_batch_take(f->kept, b) : b;
    f->submitted = um_now();
    start_job(f, JOB_PASS);
    return UM_OK;
}

um_status um_group_wait(um_forward *f, um_err *err) {
    um_status s = wait_for_ranks(f, f->submitted, err);
    if (!s && f->kept) um_kept_batch_answer(f->kept, f->given);
    f->owes = !s && f->d->unites;
    return f->owes && !leads(f->d) ? settle(f, err) : s;
}

um_status um_group_warm(um_forward *f, const um_pass_size *size, int32_t n, um_err *err) {
    um_link *l = f->d->link;
    if (um_ranks_is_broken(f->shared, err) || settle(f, err)) return UM_EDEVICE;
    if (leads(f->d) && um_link_tell(l, UM_FRAME_WARM, size, (size_t)n * sizeof *size, err)) return fail_link(f, err);
    f->size = size;
    f->n_sizes = n;
    start_job(f, JOB_WARM);
    um_status s = wait_for_ranks(f, INFINITY, err); /* it may take longer than a pass */
    if (s || !l) return s;
    s = leads(f->d) ? um_link_collect(l, UM_FRAME_READY, err) : um_link_answer(l, UM_FRAME_READY, NULL, 0, err);
    return s ? fail_link(f, err) : UM_OK;
}

void um_group_copy_page(um_forward *f, int32_t from, int32_t to, int32_t n) {
    const int32_t copy[3] = {from, to, n};
    um_err err;
    if (f->remote && !um_ranks_is_broken(f->shared, NULL) && !settle(f, &err) &&
        um_link_tell(f->d->link, UM_FRAME_COPY, copy, sizeof copy, &err))
        (void)fail_link(f, &err); /* the next pass reports it */
    for (int32_t r = 0; r < f->d->n; r++) f->d->inner->copy_page(f->member[r].forward, from, to, n);
}

/* A profile belongs to one thread, so it has the operations of rank 0. */
void um_group_profile(um_forward *f, um_profile *p) { f->d->inner->profile(f->member[0].forward, p); }

int32_t um_group_rank_times(const um_forward *f, um_rank_time out[UM_RANKS_MAX]) {
    for (int32_t r = 0; r < f->d->all; r++) out[r] = um_ranks_time(f->shared, r);
    return f->d->all;
}

um_forward_stats um_group_stats(const um_forward *f) { return f->d->inner->stats(f->member[0].forward); }

um_forward_memory um_group_memory(const um_forward *f) {
    um_forward_memory sum = {0};
    for (int32_t r = 0; r < f->d->n; r++) {
        const um_forward_memory m = f->d->inner->memory(f->member[r].forward);
        sum.kv += m.kv;
        sum.workspace += m.workspace;
    }
    return sum;
}

size_t um_group_workspace(um_device *d, const um_network *n, const um_forward_config *c) {
    um_group_networks networks;
    size_t bytes = 0;
    um_group_networks_make(&networks, n, d, NULL);
    for (int32_t r = 0; r < d->n; r++) bytes += d->inner->workspace(d->member[r], &networks.rank[r], c);
    um_group_networks_free(&networks);
    return bytes;
}
