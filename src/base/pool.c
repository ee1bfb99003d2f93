/* Thread pool.
 *
 * Each thread has a share of a run's tasks, a contiguous range. So a thread works on the same part of the data in every
 * run, which stays in its cache and on its memory node. A thread that has waited for a while after its own share takes
 * tasks from the shares of other threads, so that no run waits for a thread that the system has stopped.
 *
 * The caller starts a run with a single store: the word `go` contains the number of the run and the number of its
 * tasks. The queue of a share is a single word, its ticket: the number of the last run in which a task of the share was
 * taken, and the number of tasks taken in that run. A thread takes a task with one compare-and-swap. A ticket of an
 * earlier run means that no task is taken yet, so nobody rewrites the tickets between runs. A thread that wakes up late
 * compares the run that it has seen with the ticket, finds no task, and touches nothing of a newer run. So the caller
 * waits only for tasks, never for threads to wake up.
 *
 * The end of a run is counted in a tree: tasks in the share, complete shares in a group of GROUP shares, complete
 * groups in the pool. Each counter has a cache line of its own. A thread usually writes only to the line of its own
 * share and once to that of its group, so the time to end a run hardly grows with the number of threads.
 *
 * A forward pass of a small model is a hundred runs, at most a millisecond apart. Threads therefore spin for a while
 * before they sleep, because waking a thread takes 5 to 50 us. They don't spin when there are more threads than CPUs
 * that this process may use. */
#include "base/base.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define SPIN_SECONDS  60e-6
#define STEAL_SECONDS 5e-6 /* a thread waits this long before it takes the tasks of others */
#define THREADS_MAX   1024
#define GROUP         8 /* shares of a group */

/* The words `go` and ticket: the number of a run above TASK_BITS bits. In `go` the lowest bit says that threads take
 * only the tasks of their own shares; the number of tasks follows. */
#define TASK_BITS 20
#define TASKS_MAX ((1 << (TASK_BITS - 1)) - 1)
#define TASK_MASK ((UINT64_C(1) << TASK_BITS) - 1)

typedef struct share {
    _Alignas(64) atomic_uint_least64_t ticket;
    atomic_int n_done; /* tasks of the share that are done; 0 between runs */
} share;

typedef struct counter {
    _Alignas(64) atomic_int n;
} counter;

struct um_pool {
    /* The caller writes these fields before `go`. A thread that has taken a task reads them; they stay valid until the
     * last task is done. */
    _Alignas(64) atomic_uint_least64_t go;
    um_task_fn fn;
    void *arg;
    int first; /* number of the run's first task */

    _Alignas(64) atomic_uint_least64_t finished; /* the last complete run, as in `go` */
    atomic_bool caller_sleeps;
    _Alignas(64) atomic_int n_groups_done; /* complete groups; 0 between runs */
    _Alignas(64) atomic_int n_sleeping;    /* threads that sleep or are about to */
    atomic_bool stop;
    bool spins;
    int n_threads, n_started; /* n_started: threads of the pool, without the caller */
    pthread_t *thread;
    counter *group;       /* [groups] complete shares of each group; 0 between runs */
    pthread_mutex_t lock; /* protects no data, only the wait on the conditions */
    pthread_cond_t wake, done;

    share share[]; /* [n_threads] */
};

typedef struct worker_arg {
    um_pool *pool;
    int thread, cpu;
} worker_arg;

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* ---- Shares ------------------------------------------------------------------------------------------------------ */

static int tasks_of(uint64_t go) { return (int)((go & TASK_MASK) >> 1); }
static bool is_fixed(uint64_t go) { return go & 1; }

/* Returns the first task of a thread's share. For n_threads, returns the end of the last share. */
static int share_begin(const um_pool *p, uint64_t go, int thread) {
    return um_share_begin(tasks_of(go), thread, p->n_threads);
}

static int share_size(const um_pool *p, uint64_t go, int thread) {
    return share_begin(p, go, thread + 1) - share_begin(p, go, thread);
}

/* Takes a task from a thread's share in the run `go` and returns its number in the share, or -1 when none is left. */
static int take(um_pool *p, uint64_t go, int thread, int size) {
    atomic_uint_least64_t *ticket = &p->share[thread].ticket;
    const uint64_t run = go >> TASK_BITS;
    uint64_t t = atomic_load_explicit(ticket, memory_order_relaxed);
    for (;;) {
        const int taken = t >> TASK_BITS == run ? (int)(t & TASK_MASK) : 0;
        if (t >> TASK_BITS > run || taken >= size) return -1;
        const uint64_t next = run << TASK_BITS | (uint64_t)(taken + 1);
        if (atomic_compare_exchange_weak_explicit(ticket, &t, next, memory_order_acquire, memory_order_relaxed))
            return taken;
    }
}

static int n_groups(const um_pool *p) { return UM_CEIL_DIV(p->n_threads, GROUP); }

/* Returns the number of shares of a group that have tasks. */
static int shares_with_tasks(const um_pool *p, uint64_t go, int group) {
    int n = 0, end = UM_MIN((group + 1) * GROUP, p->n_threads);
    if (tasks_of(go) >= p->n_threads) return end - group * GROUP;
    for (int t = group * GROUP; t < end; t++) n += share_size(p, go, t) > 0;
    return n;
}

static int groups_with_tasks(const um_pool *p, uint64_t go) {
    int n = 0;
    if (tasks_of(go) >= p->n_threads) return n_groups(p);
    for (int i = 0; i < n_groups(p); i++) n += shares_with_tasks(p, go, i) > 0;
    return n;
}

/* Adds n to a counter and returns whether it has reached `all`. It then is 0 again for the next run. */
static bool completes(atomic_int *counter, int n, int all) {
    if (atomic_fetch_add(counter, n) + n != all) return false;
    atomic_store_explicit(counter, 0, memory_order_relaxed);
    return true;
}

/* Counts n tasks of a share as done. The thread that completes the run wakes the caller. */
static void finish_tasks(um_pool *p, uint64_t go, int thread, int n, int size) {
    const int group = thread / GROUP;
    if (!completes(&p->share[thread].n_done, n, size)) return;
    if (!completes(&p->group[group].n, 1, shares_with_tasks(p, go, group))) return;
    if (!completes(&p->n_groups_done, 1, groups_with_tasks(p, go))) return;
    atomic_store(&p->finished, go);
    if (!atomic_load(&p->caller_sleeps)) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_signal(&p->done);
    pthread_mutex_unlock(&p->lock);
}

/* Runs the tasks that are left in the share `of`. */
static void run_share(um_pool *p, uint64_t go, int of, int thread) {
    const int size = share_size(p, go, of);
    int n = 0;
    for (int task; (task = take(p, go, of, size)) >= 0; n++)
        p->fn(p->arg, p->first + share_begin(p, go, of) + task, thread);
    if (n) finish_tasks(p, go, of, n, size);
}

/* ---- Waiting ----------------------------------------------------------------------------------------------------- */

/* Whether the thread of a pool that has seen the run `go` may stop waiting. */
typedef bool (*condition_fn)(um_pool *p, uint64_t go);

static bool should_wake(um_pool *p, uint64_t go) { return atomic_load(&p->go) != go || atomic_load(&p->stop); }

static bool is_done(um_pool *p, uint64_t go) { return atomic_load(&p->finished) == go; }

static bool should_wake_or_done(um_pool *p, uint64_t go) { return is_done(p, go) || should_wake(p, go); }

/* Spins until the condition holds, for at most this long. Returns whether it holds. Reads the clock only every 32
 * rounds. */
static bool spin_until(um_pool *p, uint64_t go, condition_fn holds, double seconds) {
    if (holds(p, go)) return true;
    if (!p->spins) return false;
    double end = um_now() + seconds;
    do {
        for (int i = 0; i < 32; i++) {
            relax();
            if (holds(p, go)) return true;
        }
    } while (um_now() < end);
    return false;
}

/* Sleeps until the condition holds.
 *
 * No wakeup is lost: the sleeping thread first announces itself and then tests the condition, and the waking thread
 * (wake_all, finish_tasks) first makes the condition true and then looks for sleepers. At least one of them sees the
 * other. The lock keeps the signal from arriving between the test and the wait. */
static void sleep_until(um_pool *p, uint64_t go, condition_fn holds, pthread_cond_t *cond) {
    pthread_mutex_lock(&p->lock);
    while (!holds(p, go)) pthread_cond_wait(cond, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

/* Runs the thread's own share, and then what other threads have left after a while. All shares are searched once: no
 * task is added to a run. */
static void work(um_pool *p, uint64_t go, int thread) {
    run_share(p, go, thread, thread);
    if (is_fixed(go) || spin_until(p, go, should_wake_or_done, STEAL_SECONDS)) return;
    for (int i = 1; i < p->n_threads; i++) run_share(p, go, (thread + i) % p->n_threads, thread);
}

/* Keeps the calling thread on a CPU. This is only a wish: the CPU may be forbidden in the meantime. */
static void pin_to(int cpu) {
    cpu_set_t set;
    if (cpu < 0 || cpu >= CPU_SETSIZE) return;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void *worker_main(void *v) {
    worker_arg a = *(worker_arg *)v;
    um_free(v);
    um_pool *p = a.pool;
    uint64_t seen = 0;
    pin_to(a.cpu);
    for (;;) {
        if (!spin_until(p, seen, should_wake, SPIN_SECONDS)) {
            atomic_fetch_add(&p->n_sleeping, 1);
            sleep_until(p, seen, should_wake, &p->wake);
            atomic_fetch_sub(&p->n_sleeping, 1);
        }
        if (atomic_load(&p->stop)) return NULL;
        seen = atomic_load(&p->go);
        work(p, seen, a.thread);
    }
}

/* Wakes all sleeping threads. */
static void wake_all(um_pool *p) {
    if (atomic_load(&p->n_sleeping) == 0) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

static void wait_for_tasks(um_pool *p, uint64_t go) {
    if (spin_until(p, go, is_done, SPIN_SECONDS)) return;
    atomic_store(&p->caller_sleeps, true);
    sleep_until(p, go, is_done, &p->done);
    atomic_store(&p->caller_sleeps, false);
}

static void run(um_pool *p, um_task_fn fn, void *arg, int first, int n, bool fixed) {
    const uint64_t last = atomic_load_explicit(&p->go, memory_order_relaxed);
    const uint64_t go = ((last >> TASK_BITS) + 1) << TASK_BITS | (uint64_t)n << 1 | fixed;
    assert(is_done(p, last));
    p->fn = fn;
    p->arg = arg;
    p->first = first;
    atomic_store(&p->go, go);
    wake_all(p);
    work(p, go, 0);
    wait_for_tasks(p, go);
}

void um_pool_run(um_pool *p, um_task_fn fn, void *arg, int n) {
    if (n == 1 || p->n_threads == 1) {
        for (int i = 0; i < n; i++) fn(arg, i, 0);
        return;
    }
    for (int first = 0; first < n; first += TASKS_MAX) run(p, fn, arg, first, UM_MIN(n - first, TASKS_MAX), false);
}

void um_pool_run_fixed(um_pool *p, um_task_fn fn, void *arg, int n) {
    for (int first = 0; first < n; first += TASKS_MAX) run(p, fn, arg, first, UM_MIN(n - first, TASKS_MAX), true);
}

/* ---- Beginning and end --------------------------------------------------------------------------------------------
 */

static um_status start_threads(um_pool *p, const int *cpu, um_err *err) {
    for (int i = 1; i < p->n_threads; i++) {
        worker_arg *a = UM_NEW(worker_arg);
        *a = (worker_arg){p, i, cpu ? cpu[i] : -1};
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

um_status um_pool_new_on(um_pool **out, int n_threads, const int *cpu, um_err *err) {
    *out = NULL;
    const int cpus = um_cpu_count();
    if (n_threads == 0) n_threads = UM_MIN(cpus, THREADS_MAX);
    if (n_threads < 0 || n_threads > THREADS_MAX)
        return um_fail(err, UM_ERANGE, "threads: %d is outside 0..%d", n_threads, THREADS_MAX);
    void *mem = NULL;
    const size_t shares = (size_t)n_threads * sizeof(share), groups = (size_t)UM_CEIL_DIV(n_threads, GROUP);
    um_status s =
        um_try_alloc(&mem, sizeof(um_pool) + shares + groups * sizeof(counter), _Alignof(um_pool), "thread pool", err);
    if (s) return s;
    um_pool *p = (um_pool *)mem;
    p->n_threads = n_threads;
    p->group = (counter *)(void *)((char *)mem + sizeof(um_pool) + shares);
    p->spins = n_threads <= cpus;
    p->thread = UM_NEW_ARRAY(pthread_t, (size_t)n_threads);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);
    s = start_threads(p, cpu, err);
    if (s) um_pool_free(p);
    else *out = p;
    return s;
}

um_status um_pool_new(um_pool **out, int n_threads, um_err *err) { return um_pool_new_on(out, n_threads, NULL, err); }

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
