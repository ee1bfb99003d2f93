/* Thread pool.
 *
 * Each thread has a share of a run's tasks, a contiguous range. A thread that has finished its share takes tasks from
 * the shares of other threads. So a thread works on the same part of the data in every run, which stays in its cache,
 * and no thread waits for a slow one.
 *
 * The queue of a share is a single atomic word, its ticket. The upper half is the number of the run, the lower half the
 * number of tasks that are not taken yet. A thread takes a task with one compare-and-swap that decrements the ticket. A
 * thread that wakes up late finds an empty ticket or the ticket of a newer run and touches nothing of the old run. So
 * the caller waits only for tasks, never for threads to wake up.
 *
 * A forward pass of a small model is a hundred runs, at most a millisecond apart. Threads therefore spin on their
 * ticket for a while before they sleep, because waking a thread takes 5 to 50 us. They don't spin when there are more
 * threads than CPUs that this process may use. */
#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>

#define SPIN_SECONDS 40e-6
#define THREADS_MAX  1024
#define LEFT_MASK    UINT64_C(0xFFFFFFFF)

typedef struct share {
    _Alignas(64) atomic_uint_least64_t ticket;
} share;

struct um_pool {
    /* The caller writes these fields before the tickets. A thread that has taken a task reads them; they stay valid
     * until the last task is done. */
    um_task_fn fn;
    void *arg;
    int n_tasks;
    uint32_t run;
    bool spins;
    int n_threads, n_started; /* n_started: threads of the pool, without the caller */
    pthread_t *thread;

    _Alignas(64) atomic_int n_undone; /* tasks of the run that are not done */
    atomic_int n_sleeping;            /* threads that sleep or are about to */
    atomic_bool stop, caller_sleeps;
    pthread_mutex_t lock; /* protects no data, only the wait on the conditions */
    pthread_cond_t wake, done;

    share share[]; /* [n_threads] */
};

typedef struct worker_arg {
    um_pool *pool;
    int thread;
} worker_arg;

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Returns the first task of a thread's share. For n_threads, returns the end of the last share. */
static int share_begin(const um_pool *p, int thread) {
    return (int)(((int64_t)p->n_tasks * thread + p->n_threads - 1) / p->n_threads);
}

/* Takes a task from a thread's share in the current run and returns it, or -1 when none is left. */
static int take(um_pool *p, int thread) {
    atomic_uint_least64_t *ticket = &p->share[thread].ticket;
    uint64_t t = atomic_load_explicit(ticket, memory_order_relaxed);
    while (t & LEFT_MASK) {
        if (atomic_compare_exchange_weak_explicit(ticket, &t, t - 1, memory_order_acquire, memory_order_relaxed))
            return share_begin(p, thread + 1) - (int)(t & LEFT_MASK);
    }
    return -1;
}

static void finish_task(um_pool *p) {
    if (atomic_fetch_sub(&p->n_undone, 1) != 1 || !atomic_load(&p->caller_sleeps)) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_signal(&p->done);
    pthread_mutex_unlock(&p->lock);
}

/* Runs the tasks of the thread's own share, then the remaining tasks of other shares. */
static void work(um_pool *p, int thread) {
    for (int i = 0; i < p->n_threads; i++) {
        int of = (thread + i) % p->n_threads;
        for (int task; (task = take(p, of)) >= 0;) {
            p->fn(p->arg, task, thread);
            finish_task(p);
        }
    }
}

typedef bool (*condition_fn)(um_pool *p, int thread);

static bool should_wake(um_pool *p, int thread) {
    return (atomic_load(&p->share[thread].ticket) & LEFT_MASK) || atomic_load(&p->stop);
}

static bool is_done(um_pool *p, int thread) {
    (void)thread;
    return atomic_load(&p->n_undone) == 0;
}

/* Spins until the condition holds, for at most SPIN_SECONDS. Returns whether it holds. Reads the clock only every 32
 * rounds. */
static bool spin_until(um_pool *p, int thread, condition_fn holds) {
    if (holds(p, thread)) return true;
    if (!p->spins) return false;
    double end = um_now() + SPIN_SECONDS;
    do {
        for (int i = 0; i < 32; i++) {
            relax();
            if (holds(p, thread)) return true;
        }
    } while (um_now() < end);
    return false;
}

/* Sleeps until the condition holds.
 *
 * No wakeup is lost: the sleeping thread first announces itself and then tests the condition, and the waking thread
 * (wake_all, finish_task) first makes the condition true and then looks for sleepers. At least one of them sees the
 * other. The lock keeps the signal from arriving between the test and the wait. */
static void sleep_until(um_pool *p, int thread, condition_fn holds, pthread_cond_t *cond) {
    pthread_mutex_lock(&p->lock);
    while (!holds(p, thread)) pthread_cond_wait(cond, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *v) {
    worker_arg a = *(worker_arg *)v;
    um_free(v);
    um_pool *p = a.pool;
    while (!atomic_load(&p->stop)) {
        if (!spin_until(p, a.thread, should_wake)) {
            atomic_fetch_add(&p->n_sleeping, 1);
            sleep_until(p, a.thread, should_wake, &p->wake);
            atomic_fetch_sub(&p->n_sleeping, 1);
        }
        work(p, a.thread);
    }
    return NULL;
}

/* Wakes all sleeping threads. Reads n_sleeping by adding 0, because a read-modify-write orders it with the tickets: a
 * thread that announces itself later sees the tickets that were written before. */
static void wake_all(um_pool *p) {
    if (atomic_fetch_add(&p->n_sleeping, 0) == 0) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

static void wait_for_tasks(um_pool *p) {
    if (spin_until(p, 0, is_done)) return;
    atomic_store(&p->caller_sleeps, true);
    sleep_until(p, 0, is_done, &p->done);
    atomic_store(&p->caller_sleeps, false);
}

void um_pool_run(um_pool *p, um_task_fn fn, void *arg, int n) {
    if (n <= 0) return;
    if (n == 1 || p->n_threads == 1) {
        for (int i = 0; i < n; i++) fn(arg, i, 0);
        return;
    }
    assert(is_done(p, 0));
    p->fn = fn;
    p->arg = arg;
    p->n_tasks = n;
    p->run++;
    atomic_store(&p->n_undone, n);
    for (int t = 0; t < p->n_threads; t++) {
        uint64_t left = (uint64_t)(share_begin(p, t + 1) - share_begin(p, t));
        atomic_store_explicit(&p->share[t].ticket, (uint64_t)p->run << 32 | left, memory_order_release);
    }
    wake_all(p);
    work(p, 0);
    wait_for_tasks(p);
}

static um_status start_threads(um_pool *p, um_err *err) {
    for (int i = 1; i < p->n_threads; i++) {
        worker_arg *a = UM_NEW(worker_arg);
        *a = (worker_arg){p, i};
        int e = pthread_create(&p->thread[i - 1], NULL, worker_main, a);
        if (e) {
            um_free(a);
            return um_fail(err, UM_ELIMIT, "cannot start thread %d of %d: %s; set a lower number with --threads", i + 1,
                           p->n_threads, strerror(e));
        }
        p->n_started++;
    }
    return UM_OK;
}

um_status um_pool_new(um_pool **out, int n_threads, um_err *err) {
    *out = NULL;
    const int cpus = um_cpu_count();
    if (n_threads == 0) n_threads = UM_MIN(cpus, THREADS_MAX);
    if (n_threads < 0 || n_threads > THREADS_MAX)
        return um_fail(err, UM_ERANGE, "threads: %d is outside 0..%d", n_threads, THREADS_MAX);
    void *mem = NULL;
    size_t bytes = sizeof(um_pool) + (size_t)n_threads * sizeof(share);
    um_status s = um_try_alloc(&mem, bytes, _Alignof(um_pool), "thread pool", err);
    if (s) return s;
    um_pool *p = (um_pool *)mem;
    p->n_threads = n_threads;
    p->spins = n_threads <= cpus;
    p->thread = UM_NEW_ARRAY(pthread_t, (size_t)n_threads);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);
    s = start_threads(p, err);
    if (s) um_pool_free(p);
    else *out = p;
    return s;
}

void um_pool_free(um_pool *p) {
    if (!p) return;
    atomic_store(&p->stop, true);
    wake_all(p);
    for (int i = 0; i < p->n_started; i++) pthread_join(p->thread[i], NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    um_free(p->thread);
    um_free(p);
}

int um_pool_threads(const um_pool *p) { return p->n_threads; }
