/* Two queues: jobs on their way to the threads, and those that are done on their way back. */
#include "server/jobs/jobs.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A template may nest 2,500 evaluations; the system's default may be less than what the first thread has. */
#define STACK_BYTES ((size_t)16 << 20)

typedef struct task {
    um_job job;
    um_status status;
    um_err err;
    struct task *next;
} task;

typedef struct queue {
    task *first, **last;
} queue;

struct um_jobs {
    pthread_t *thread; /* [n_threads] */
    int n_threads;
    pthread_mutex_t lock; /* guards the queues, their weight and `ends` */
    pthread_cond_t more, less;
    queue given, done;
    size_t waiting; /* weight of what is given */
    bool ends;

    size_t most;
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

/* Takes out what a link of the queue points at. */
static task *unlink_task(queue *q, task **link) {
    task *t = *link;
    if (!t) return NULL;
    *link = t->next;
    if (!t->next) q->last = link;
    return t;
}

/* ---- The threads ------------------------------------------------------------------------------------------------- */

static task *wait_for_task(um_jobs *j) {
    pthread_mutex_lock(&j->lock);
    while (!j->given.first && !j->ends) pthread_cond_wait(&j->more, &j->lock);
    task *t = unlink_task(&j->given, &j->given.first);
    if (t) j->waiting -= t->job.weight;
    pthread_mutex_unlock(&j->lock);
    return t;
}

static void hand_back(um_jobs *j, task *t) {
    const uint64_t one = 1;
    pthread_mutex_lock(&j->lock);
    push(&j->done, t);
    pthread_cond_signal(&j->less);
    pthread_mutex_unlock(&j->lock);
    ssize_t n = write(j->wake, &one, sizeof one); /* can only fail when it is full, and then the loop will wake */
    (void)n;
}

static void *run(void *arg) {
    um_jobs *j = arg;
    for (task *t; (t = wait_for_task(j));) {
        t->status = t->job.work(t->job.arg, &t->err);
        hand_back(j, t);
    }
    return NULL;
}

/* ---- The loop ---------------------------------------------------------------------------------------------------- */

static task *take_done(um_jobs *j, bool wait) {
    pthread_mutex_lock(&j->lock);
    while (wait && !j->done.first) pthread_cond_wait(&j->less, &j->lock);
    task *t = unlink_task(&j->done, &j->done.first);
    pthread_mutex_unlock(&j->lock);
    return t;
}

static void finish_task(um_jobs *j, task *t) {
    j->n_open--;
    if (t->job.done) t->job.done(t->job.arg, t->status, &t->err);
    um_free(t);
}

static void on_wake(evutil_socket_t fd, short what, void *arg) {
    uint64_t n;
    (void)what;
    ssize_t got = read(fd, &n, sizeof n);
    (void)got;
    for (task *t; (t = take_done(arg, false));) finish_task(arg, t);
}

bool um_jobs_give(um_jobs *j, const um_job *job) {
    task *t = UM_NEW(task);
    t->job = *job;
    pthread_mutex_lock(&j->lock);
    bool fits = j->waiting <= j->most && job->weight <= j->most - j->waiting;
    bool taken = fits || !j->most || !job->weight || !j->waiting;
    if (taken) {
        push(&j->given, t);
        j->waiting += job->weight;
        j->n_open++;
        pthread_cond_signal(&j->more);
    }
    pthread_mutex_unlock(&j->lock);
    if (!taken) um_free(t);
    return taken;
}

bool um_jobs_take_back(um_jobs *j, const void *arg) {
    pthread_mutex_lock(&j->lock);
    task **link = &j->given.first;
    while (*link && (*link)->job.arg != arg) link = &(*link)->next;
    task *t = unlink_task(&j->given, link);
    if (t) j->waiting -= t->job.weight;
    pthread_mutex_unlock(&j->lock);
    if (!t) return false;
    j->n_open--;
    um_free(t);
    return true;
}

size_t um_jobs_open(const um_jobs *j) { return j ? j->n_open : 0; }

/* ---- Life -------------------------------------------------------------------------------------------------------- */

/* Signals are the loop's. */
static int start_threads(um_jobs *j, int n) {
    pthread_attr_t how;
    sigset_t all, before;
    int failed = 0;
    j->thread = UM_NEW_ARRAY(pthread_t, n);
    pthread_attr_init(&how);
    pthread_attr_setstacksize(&how, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (j->n_threads < n && !failed) {
        failed = pthread_create(&j->thread[j->n_threads], &how, run, j);
        if (!failed) j->n_threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&how);
    return failed;
}

um_status um_jobs_new(um_jobs **out, struct event_base *base, int n_threads, size_t most, um_err *err) {
    um_jobs *j = UM_NEW(um_jobs);
    j->most = most;
    j->given.last = &j->given.first;
    j->done.last = &j->done.first;
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->more, NULL);
    pthread_cond_init(&j->less, NULL);
    j->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int failed = j->wake < 0 ? errno : 0;
    if (!failed) j->event = event_new(base, j->wake, EV_READ | EV_PERSIST, on_wake, j);
    if (!failed && (!j->event || event_add(j->event, NULL))) failed = ENOMEM;
    if (!failed) failed = start_threads(j, n_threads);
    if (failed) {
        um_jobs_free(j);
        return um_fail(err, UM_EIO, "cannot start a thread beside the loop: %s", strerror(failed));
    }
    *out = j;
    return UM_OK;
}

void um_jobs_free(um_jobs *j) {
    if (!j) return;
    while (j->n_open) finish_task(j, take_done(j, true));
    pthread_mutex_lock(&j->lock);
    j->ends = true;
    pthread_cond_broadcast(&j->more);
    pthread_mutex_unlock(&j->lock);
    for (int i = 0; i < j->n_threads; i++) pthread_join(j->thread[i], NULL);
    if (j->event) event_free(j->event);
    if (j->wake >= 0) close(j->wake);
    pthread_cond_destroy(&j->more);
    pthread_cond_destroy(&j->less);
    pthread_mutex_destroy(&j->lock);
    um_free(j->thread);
    um_free(j);
}
