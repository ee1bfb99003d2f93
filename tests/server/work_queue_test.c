/* The queue of background jobs. A job that must not end yet reads from a pipe, so nothing depends on timing. */
#include <event2/event.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/work/work_queue.h"

typedef struct note {
    int number;
    int children; /* jobs that its `done` submits */
    int begun[2]; /* pipes: the job writes to `begun` when it starts, and waits for a byte of `go`; 0: unused */
    int go[2];
    pthread_t thread;
} note;

static struct event_base *base;
static um_work_queue *jobs;
static int order[128], n_done;

static void open_jobs(int n_threads, size_t most) {
    um_err err;
    base = event_base_new();
    n_done = 0;
    assert_int_equal(um_work_queue_new(&jobs, base, n_threads, most, &err), UM_OK);
}

static void close_jobs(void) {
    um_work_queue_free(jobs);
    event_base_free(base);
}

static um_status work(void *arg, um_err *err) {
    note *t = arg;
    char c = 0;
    t->thread = pthread_self();
    if (t->begun[1] && (write(t->begun[1], &c, 1) != 1 || read(t->go[0], &c, 1) != 1)) return UM_EIO;
    if (t->number % 3) return UM_OK;
    return um_fail(err, UM_EIO, "job %d", t->number);
}

static void done(void *arg, um_status s, const um_err *err) {
    note *t = arg;
    char want[16];
    snprintf(want, sizeof want, "job %d", t->number);
    assert_int_equal(s, t->number % 3 ? UM_OK : UM_EIO);
    if (s) assert_string_equal(err->msg, want);
    order[n_done++] = t->number;
    if (t->children-- > 0) um_work_queue_submit(jobs, &(um_work){work, done, t, 0});
}

static bool give(note *t, int number, size_t weight) {
    *t = (note){.number = number};
    return um_work_queue_submit(jobs, &(um_work){work, done, t, weight});
}

/* Submits a job and waits until a thread has started it. It ends when the test releases it. */
static void hold(note *t, int number) {
    char c;
    *t = (note){.number = number};
    assert_int_equal(pipe(t->begun), 0);
    assert_int_equal(pipe(t->go), 0);
    assert_true(um_work_queue_submit(jobs, &(um_work){work, done, t, 1}));
    assert_int_equal(read(t->begun[0], &c, 1), 1);
}

static void let_go(note *t) {
    int n = n_done;
    assert_int_equal(write(t->go[1], "", 1), 1);
    while (n_done == n) event_base_loop(base, EVLOOP_ONCE);
    for (int i = 0; i < 2; i++) close(t->begun[i]), close(t->go[i]);
}

static void one_thread_ends_them_in_order_and_all_before_the_end(void **state) {
    (void)state;
    note notes[40];
    open_jobs(1, 0);
    for (int i = 0; i < 40; i++) {
        notes[i] = (note){.number = i, .children = i == 39 ? 2 : 0};
        assert_true(um_work_queue_submit(jobs, &(um_work){work, done, &notes[i], 0}));
        if (i == 20)
            while (n_done < 21) event_base_loop(base, EVLOOP_ONCE);
    }
    close_jobs();
    assert_int_equal(n_done, 42);
    for (int i = 0; i < 40; i++) assert_int_equal(order[i], i);
}

static void a_long_job_holds_up_neither_the_loop_nor_other_threads(void **state) {
    (void)state;
    note slow, quick[10];
    open_jobs(2, 0);
    hold(&slow, 1);
    for (int i = 0; i < 10; i++) assert_true(give(&quick[i], 10 + i, 1));
    while (n_done < 10) event_base_loop(base, EVLOOP_ONCE);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(order[i], 10 + i); /* one thread was free */
        assert_false(pthread_equal(quick[i].thread, slow.thread));
        assert_false(pthread_equal(quick[i].thread, pthread_self()));
    }
    assert_int_equal(um_work_queue_pending(jobs), 1);
    let_go(&slow);
    assert_int_equal(order[10], 1);
    close_jobs();
}

static void what_waits_is_bounded(void **state) {
    (void)state;
    note slow, more[6];
    open_jobs(1, 100);
    hold(&slow, 1);
    assert_true(give(&more[0], 2, 1000)); /* nothing is waiting */
    assert_false(give(&more[1], 4, 1));
    assert_true(give(&more[1], 4, 0)); /* weight 0 */
    assert_true(um_work_queue_cancel(jobs, &more[0]));
    assert_true(give(&more[2], 5, 60));
    assert_true(give(&more[3], 7, 40));
    assert_false(give(&more[4], 8, 1));
    assert_true(um_work_queue_cancel(jobs, &more[2]));
    assert_true(give(&more[5], 10, 60));
    assert_int_equal(um_work_queue_pending(jobs), 4);
    let_go(&slow);
    close_jobs();
    assert_int_equal(n_done, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(order[i], ((int[]){1, 4, 7, 10})[i]);
}

static void only_what_has_not_begun_is_taken_back(void **state) {
    (void)state;
    note slow, next, last;
    open_jobs(1, 0);
    hold(&slow, 1);
    assert_true(give(&next, 2, 1));
    assert_true(give(&last, 4, 1));
    assert_false(um_work_queue_cancel(jobs, &slow));
    assert_true(um_work_queue_cancel(jobs, &last)); /* tests the end of the linked list */
    assert_true(give(&last, 5, 1));
    assert_true(um_work_queue_cancel(jobs, &next));
    assert_false(um_work_queue_cancel(jobs, &next));
    let_go(&slow);
    close_jobs();
    assert_int_equal(n_done, 2);
    assert_int_equal(order[1], 5);
}

static void nobody_need_wait_for_one(void **state) {
    (void)state;
    note alone = {.number = 1};
    open_jobs(2, 0);
    assert_true(um_work_queue_submit(jobs, &(um_work){work, NULL, &alone, 0}));
    close_jobs();
    assert_int_equal(n_done, 0);
    assert_false(pthread_equal(alone.thread, pthread_self()));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_ends_them_in_order_and_all_before_the_end),
        cmocka_unit_test(a_long_job_holds_up_neither_the_loop_nor_other_threads),
        cmocka_unit_test(what_waits_is_bounded),
        cmocka_unit_test(only_what_has_not_begun_is_taken_back),
        cmocka_unit_test(nobody_need_wait_for_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
