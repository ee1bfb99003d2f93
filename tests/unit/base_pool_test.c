/* base: the thread pool. */
#include "base/base.h"

#include <sched.h>
#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <unistd.h>

#define TASKS_MAX 300

typedef struct job {
    int n_threads;
    int plain[TASKS_MAX]; /* not atomic: the pool must make the writes visible before um_pool_run returns */
    atomic_int calls, bad_thread;
} job;

static void mark(void *arg, int task, int thread) {
    job *j = (job *)arg;
    j->plain[task]++;
    atomic_fetch_add(&j->calls, 1);
    if (thread < 0 || thread >= j->n_threads) atomic_store(&j->bad_thread, 1);
}

static um_pool *make_pool(int n) {
    um_pool *p = NULL;
    um_err err;
    if (um_pool_new(&p, n, &err) != UM_OK) fail_msg("%s", err.msg);
    return p;
}

static void runs_every_task_once(void **state) {
    (void)state;
    for (int threads = 1; threads <= 19; threads += 1 + threads) { /* 1, 3, 7, 15: up to two groups of shares */
        um_pool *p = make_pool(threads);
        assert_int_equal(um_pool_threads(p), threads);
        for (int n = 0; n <= TASKS_MAX; n += 1 + n / 2) {
            job j = {.n_threads = threads};
            um_pool_run(p, mark, &j, n);
            assert_int_equal(atomic_load(&j.calls), n);
            assert_int_equal(atomic_load(&j.bad_thread), 0);
            for (int i = 0; i < TASKS_MAX; i++) assert_int_equal(j.plain[i], i < n);
        }
        um_pool_free(p);
    }
}

/* Starts runs without a pause, so that late threads of one run see the next one. */
static void survives_many_short_runs(void **state) {
    (void)state;
    um_pool *p = make_pool(4);
    job j = {.n_threads = 4};
    for (int round = 1; round <= 3000; round++) {
        um_pool_run(p, mark, &j, 2 + round % 7);
        assert_int_equal(j.plain[0], round);
        assert_int_equal(j.plain[1], round);
    }
    um_pool_free(p);
}

static void wakes_threads_that_fell_asleep(void **state) {
    (void)state;
    um_pool *p = make_pool(3);
    job j = {.n_threads = 3};
    for (int round = 1; round <= 20; round++) {
        usleep(2000);
        um_pool_run(p, mark, &j, 8);
        assert_int_equal(atomic_load(&j.calls), 8 * round);
    }
    um_pool_free(p);
}

/* Each task waits for the other one, so they finish only when two threads run at the same time. */
static void wait_for_other(void *arg, int task, int thread) {
    (void)task, (void)thread;
    atomic_int *arrived = (atomic_int *)arg;
    atomic_fetch_add(arrived, 1);
    double limit = um_now() + 20;
    while (atomic_load(arrived) < 2 && um_now() < limit) usleep(100);
}

static void runs_tasks_at_the_same_time(void **state) {
    (void)state;
    um_pool *p = make_pool(2);
    atomic_int arrived = 0;
    double start = um_now();
    um_pool_run(p, wait_for_other, &arrived, 2);
    assert_true(um_now() - start < 15);
    um_pool_free(p);
}

static void sleep_in_task(void *arg, int task, int thread) {
    (void)thread;
    usleep(task == 0 ? 100 : 20000);
    atomic_fetch_add((atomic_int *)arg, 1);
}

/* The caller finishes its tasks first and has to sleep. */
static void waits_for_the_slowest_task(void **state) {
    (void)state;
    um_pool *p = make_pool(2);
    atomic_int done = 0;
    um_pool_run(p, sleep_in_task, &done, 3);
    assert_int_equal(atomic_load(&done), 3);
    um_pool_free(p);
}

enum { N_TASKS = 4 };

typedef struct meeting {
    atomic_int arrived;
    int thread[N_TASKS]; /* the thread that ran each task */
} meeting;

/* Waits until all tasks have started, so that each thread gets one task. */
static void wait_for_all(void *arg, int task, int thread) {
    meeting *m = (meeting *)arg;
    m->thread[task] = thread;
    atomic_fetch_add(&m->arrived, 1);
    double limit = um_now() + 20;
    while (atomic_load(&m->arrived) < N_TASKS && um_now() < limit) usleep(100);
}

/* Uses only the first run of a pool, in which no thread can be late from an earlier run. */
static void a_thread_begins_with_its_own_share(void **state) {
    (void)state;
    for (int round = 0; round < 20; round++) {
        um_pool *p = make_pool(N_TASKS);
        meeting m = {0};
        um_pool_run(p, wait_for_all, &m, N_TASKS);
        for (int i = 0; i < N_TASKS; i++) assert_int_equal(m.thread[i], i);
        um_pool_free(p);
    }
}

typedef struct delayed {
    atomic_int done;
    int n;
} delayed;

/* The first task waits for all others, including those of its own share. */
static void delay_first(void *arg, int task, int thread) {
    (void)thread;
    delayed *h = (delayed *)arg;
    double limit = um_now() + 20;
    while (task == 0 && atomic_load(&h->done) < h->n - 1 && um_now() < limit) usleep(100);
    atomic_fetch_add(&h->done, 1);
}

static void a_thread_takes_over_what_others_leave(void **state) {
    (void)state;
    um_pool *p = make_pool(2);
    delayed h = {.n = 10};
    double start = um_now();
    um_pool_run(p, delay_first, &h, h.n);
    assert_int_equal(atomic_load(&h.done), h.n);
    assert_true(um_now() - start < 15);
    um_pool_free(p);
}

static void note_thread(void *arg, int task, int thread) { ((int *)arg)[task] = thread; }

/* In a fixed run each thread runs exactly its own share, even when others are done long before. */
static void a_fixed_run_moves_no_task(void **state) {
    (void)state;
    for (int threads = 1; threads <= 10; threads += 3) {
        um_pool *p = make_pool(threads);
        for (int n = 0; n <= 40; n += 1 + n / 3) {
            int by[64];
            for (int i = 0; i < 64; i++) by[i] = -1;
            um_pool_run_fixed(p, note_thread, by, n);
            for (int t = 0; t < threads; t++)
                for (int i = um_share_begin(n, t, threads); i < um_share_begin(n, t + 1, threads); i++)
                    assert_int_equal(by[i], t);
            for (int i = n; i < 64; i++) assert_int_equal(by[i], -1);
        }
        um_pool_free(p);
    }
}

static void count_task(void *arg, int task, int thread) {
    (void)thread;
    atomic_fetch_add((atomic_llong *)arg, task);
}

/* More tasks than a run of the pool counts. */
static void runs_millions_of_tasks(void **state) {
    (void)state;
    um_pool *p = make_pool(3);
    const long long n = 1200000;
    atomic_llong sum = 0;
    um_pool_run(p, count_task, &sum, (int)n);
    assert_true(atomic_load(&sum) == n * (n - 1) / 2);
    um_pool_free(p);
}

static void note_affinity(void *arg, int task, int thread) {
    cpu_set_t *set = (cpu_set_t *)arg + thread;
    (void)task;
    assert_int_equal(sched_getaffinity(0, sizeof *set, set), 0);
}

/* Thread 0 is the caller, which keeps its affinity. */
static void threads_stay_on_their_cpus(void **state) {
    (void)state;
    int usable[UM_CPUS_MAX];
    cpu_set_t set[3], before, after;
    const int n = um_cpu_usable(usable);
    if (!n) skip();
    const int cpu[3] = {usable[0], usable[n - 1], -1};
    um_pool *p = NULL;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(um_pool_new_on(&p, 3, cpu, NULL), UM_OK);
    um_pool_run_fixed(p, note_affinity, set, 3);
    assert_int_equal(CPU_COUNT(&set[1]), 1);
    assert_true(CPU_ISSET((size_t)usable[n - 1], &set[1]));
    assert_true(CPU_EQUAL(&set[2], &before));
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    um_pool_free(p);
}

static void a_run_allocates_nothing(void **state) {
    (void)state;
    um_pool *p = make_pool(2);
    job j = {.n_threads = 2};
    int64_t before = um_alloc_count();
    um_pool_run(p, mark, &j, 100);
    assert_int_equal(um_alloc_count(), before);
    um_pool_free(p);
}

static void refuses_impossible_numbers_of_threads(void **state) {
    (void)state;
    um_pool *p = NULL;
    um_err err;
    assert_int_equal(um_pool_new(&p, -1, &err), UM_ERANGE);
    assert_int_equal(um_pool_new(&p, 100000, &err), UM_ERANGE);
    assert_non_null(strstr(err.msg, "100000"));
    assert_null(p);
}

static void zero_means_one_thread_per_usable_cpu(void **state) {
    (void)state;
    um_pool *p = make_pool(0);
    assert_int_equal(um_pool_threads(p), um_cpu_count());
    um_pool_free(p);
    um_pool_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_every_task_once),
        cmocka_unit_test(survives_many_short_runs),
        cmocka_unit_test(wakes_threads_that_fell_asleep),
        cmocka_unit_test(runs_tasks_at_the_same_time),
        cmocka_unit_test(waits_for_the_slowest_task),
        cmocka_unit_test(a_thread_begins_with_its_own_share),
        cmocka_unit_test(a_thread_takes_over_what_others_leave),
        cmocka_unit_test(a_fixed_run_moves_no_task),
        cmocka_unit_test(runs_millions_of_tasks),
        cmocka_unit_test(threads_stay_on_their_cpus),
        cmocka_unit_test(a_run_allocates_nothing),
        cmocka_unit_test(refuses_impossible_numbers_of_threads),
        cmocka_unit_test(zero_means_one_thread_per_usable_cpu),
    };
    return cmocka_run_group_tests_name("base_pool", tests, NULL, NULL);
}
