/* Two queues: jobs on their way to the thread, and those that it has done on their way back. */
#include "server/batch/disk.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

typedef struct task {
    um_disk_job job;
    um_status status;
    um_err err;
    struct task *next;
} task;

typedef struct queue {
    task *first, **last;
} queue;

struct um_disk {
    pthread_t thread;
    pthread_mutex_t lock; /* guards the queues and `ends` */
    pthread_cond_t more, less;
    queue given, done;
    bool ends;

    size_t n_open; /* jobs whose `done` was not called; the loop's */
    int wake;      /* eventfd: something is done */
    struct event *event;
};

/* ---- Queues ------------------------------------------------------------------------------------------------------ */

static void push(queue *q, task *t) {
    t->next = NULL;
    *q->last = t;
    q->last = &t->next;
}

static task *pop(queue *q) {
    task *t = q->first;
    if (!t) return NULL;
    q->first = t->next;
    if (!q->first) q->last = &q->first;
    return t;
}

/* ---- The thread -------------------------------------------------------------------------------------------------- */

static task *wait_for_task(um_disk *d) {
    pthread_mutex_lock(&d->lock);
    while (!d->given.first && !d->ends) pthread_cond_wait(&d->more, &d->lock);
    task *t = pop(&d->given);
    pthread_mutex_unlock(&d->lock);
    return t;
}

static void hand_back(um_disk *d, task *t) {
    const uint64_t one = 1;
    pthread_mutex_lock(&d->lock);
    push(&d->done, t);
    pthread_cond_signal(&d->less);
    pthread_mutex_unlock(&d->lock);
    ssize_t n = write(d->wake, &one, sizeof one); /* can only fail when it is full, and then the loop will wake */
    (void)n;
}

static void *run(void *arg) {
    um_disk *d = arg;
    for (task *t; (t = wait_for_task(d));) {
        t->status = t->job.work(t->job.arg, &t->err);
        hand_back(d, t);
    }
    return NULL;
}

/* ---- The loop ---------------------------------------------------------------------------------------------------- */

static task *take_done(um_disk *d, bool wait) {
    pthread_mutex_lock(&d->lock);
    while (wait && !d->done.first) pthread_cond_wait(&d->less, &d->lock);
    task *t = pop(&d->done);
    pthread_mutex_unlock(&d->lock);
    return t;
}

static void finish_task(um_disk *d, task *t) {
    d->n_open--;
    t->job.done(t->job.arg, t->status, &t->err);
    um_free(t);
}

static void on_wake(evutil_socket_t fd, short what, void *arg) {
    uint64_t n;
    (void)what;
    ssize_t got = read(fd, &n, sizeof n);
    (void)got;
    for (task *t; (t = take_done(arg, false));) finish_task(arg, t);
}

void um_disk_do(um_disk *d, const um_disk_job *job) {
    task *t = UM_NEW(task);
    t->job = *job;
    d->n_open++;
    pthread_mutex_lock(&d->lock);
    push(&d->given, t);
    pthread_cond_signal(&d->more);
    pthread_mutex_unlock(&d->lock);
}

/* ---- Life -------------------------------------------------------------------------------------------------------- */

/* Signals are the loop's. */
static int start_thread(um_disk *d) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&d->thread, NULL, run, d);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

static void release(um_disk *d) {
    if (d->event) event_free(d->event);
    if (d->wake >= 0) close(d->wake);
    pthread_cond_destroy(&d->more);
    pthread_cond_destroy(&d->less);
    pthread_mutex_destroy(&d->lock);
    um_free(d);
}

um_status um_disk_new(um_disk **out, struct event_base *base, um_err *err) {
    um_disk *d = UM_NEW(um_disk);
    d->given.last = &d->given.first;
    d->done.last = &d->done.first;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->more, NULL);
    pthread_cond_init(&d->less, NULL);
    d->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int failed = d->wake < 0 ? errno : 0;
    if (!failed) d->event = event_new(base, d->wake, EV_READ | EV_PERSIST, on_wake, d);
    if (!failed && (!d->event || event_add(d->event, NULL))) failed = ENOMEM;
    if (!failed) failed = start_thread(d);
    if (failed) {
        release(d);
        return um_fail(err, UM_EIO, "cannot start the thread that writes files: %s", strerror(failed));
    }
    *out = d;
    return UM_OK;
}

void um_disk_free(um_disk *d) {
    if (!d) return;
    while (d->n_open) finish_task(d, take_done(d, true));
    pthread_mutex_lock(&d->lock);
    d->ends = true;
    pthread_cond_signal(&d->more);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    release(d);
}
