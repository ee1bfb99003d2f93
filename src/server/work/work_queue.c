/* Two queues: submitted jobs on their way to the threads, and finished jobs on their way back. */
#include "server/work/work_queue.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Chat templates may nest 2,500 evaluations. The default stack of a thread may be too small for that. */
#define STACK_BYTES ((size_t)16 << 20)

/* A job in a queue. */
typedef struct task {
    um_work job;
    um_status status;
    um_err err;
    struct task *next;
} task;

typedef struct queue {
    task *first, **last;
} queue;

struct um_work_queue {
    pthread_t *thread; /* [n_threads] */
    int n_threads;
    pthread_mutex_t lock; /* guards the queues, `waiting` and `is_closing` */
    pthread_cond_t submitted_cond, finished_cond;
    queue submitted, finished;
    size_t waiting; /* total weight of `submitted` */
    bool is_closing;

    size_t most;
    size_t n_open; /* jobs whose `done` was not called; used by the loop's thread only */
    int wake_fd;   /* eventfd, set when a job has finished */
    struct event *event;
};

/* ---- Queues ------------------------------------------------------------------------------------------------------ */

static void push(queue *q, task *t) {
    t->next = NULL;
    *q->last = t;
    q->last = &t->next;
}

/* Removes the task that `link`, a link of the queue, points at; NULL at the end of the queue. */
static task *unlink_task(queue *q, task **link) {
    task *t = *link;
    if (!t) return NULL;
    *link = t->next;
    if (!t->next) q->last = link;
    return t;
}

/* ---- The threads ------------------------------------------------------------------------------------------------- */

static task *wait_for_task(um_work_queue *j) {
    pthread_mutex_lock(&j->lock);
    while (!j->submitted.first && !j->is_closing) pthread_cond_wait(&j->submitted_cond, &j->lock);
    task *t = unlink_task(&j->submitted, &j->submitted.first);
    if (t) j->waiting -= t->job.weight;
    pthread_mutex_unlock(&j->lock);
    return t;
}

static void push_finished(um_work_queue *j, task *t) {
    const uint64_t one = 1;
    pthread_mutex_lock(&j->lock);
    push(&j->finished, t);
    pthread_cond_signal(&j->finished_cond);
    pthread_mutex_unlock(&j->lock);
    /* Fails only when the counter is full, and then the loop wakes anyway. */
    ssize_t n = write(j->wake_fd, &one, sizeof one);
    (void)n;
}

static void *run(void *arg) {
    um_work_queue *j = arg;
    for (task *t; (t = wait_for_task(j));) {
        t->status = t->job.work(t->job.arg, &t->err);
        push_finished(j, t);
    }
    return NULL;
}

/* ---- The loop ---------------------------------------------------------------------------------------------------- */

static task *take_done(um_work_queue *j, bool wait) {
    pthread_mutex_lock(&j->lock);
    while (wait && !j->finished.first) pthread_cond_wait(&j->finished_cond, &j->lock);
    task *t = unlink_task(&j->finished, &j->finished.first);
    pthread_mutex_unlock(&j->lock);
    return t;
}

static void finish_task(um_work_queue *j, task *t) {
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

bool um_work_queue_submit(um_work_queue *j, const um_work *job) {
    task *t = UM_NEW(task);
    t->job = *job;
    pthread_mutex_lock(&j->lock);
    bool fits = j->waiting <= j->most && job->weight <= j->most - j->waiting;
    bool is_accepted = fits || !j->most || !job->weight || !j->waiting;
    if (is_accepted) {
        push(&j->submitted, t);
        j->waiting += job->weight;
        j->n_open++;
        pthread_cond_signal(&j->submitted_cond);
    }
    pthread_mutex_unlock(&j->lock);
    if (!is_accepted) um_free(t);
    return is_accepted;
}

bool um_work_queue_cancel(um_work_queue *j, const void *arg) {
    pthread_mutex_lock(&j->lock);
    task **link = &j->submitted.first;
    while (*link && (*link)->job.arg != arg) link = &(*link)->next;
    task *t = unlink_task(&j->submitted, link);
    if (t) j->waiting -= t->job.weight;
    pthread_mutex_unlock(&j->lock);
    if (!t) return false;
    j->n_open--;
    um_free(t);
    return true;
}

size_t um_work_queue_pending(const um_work_queue *j) { return j ? j->n_open : 0; }

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

/* Starts n threads with all signals blocked, so that signals reach the loop's thread. Returns 0 or an errno. */
static int start_threads(um_work_queue *j, int n) {
    pthread_attr_t attributes;
    sigset_t all_signals, before;
    int failed = 0;
    j->thread = UM_NEW_ARRAY(pthread_t, n);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all_signals);
    pthread_sigmask(SIG_SETMASK, &all_signals, &before);
    while (j->n_threads < n && !failed) {
        failed = pthread_create(&j->thread[j->n_threads], &attributes, run, j);
        if (!failed) j->n_threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return failed;
}

um_status um_work_queue_new(um_work_queue **out, struct event_base *base, int n_threads, size_t most, um_err *err) {
    um_work_queue *j = UM_NEW(um_work_queue);
    j->most = most;
    j->submitted.last = &j->submitted.first;
    j->finished.last = &j->finished.first;
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->submitted_cond, NULL);
    pthread_cond_init(&j->finished_cond, NULL);
    j->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int failed = j->wake_fd < 0 ? errno : 0;
    if (!failed) j->event = event_new(base, j->wake_fd, EV_READ | EV_PERSIST, on_wake, j);
    if (!failed && (!j->event || event_add(j->event, NULL))) failed = ENOMEM;
    if (!failed) failed = start_threads(j, n_threads);
    if (failed) {
        um_work_queue_free(j);
        return um_fail(err, UM_EIO, "can't start a background thread: %s", strerror(failed));
    }
    *out = j;
    return UM_OK;
}

void um_work_queue_free(um_work_queue *j) {
    if (!j) return;
    while (j->n_open) finish_task(j, take_done(j, true));
    pthread_mutex_lock(&j->lock);
    j->is_closing = true;
    pthread_cond_broadcast(&j->submitted_cond);
    pthread_mutex_unlock(&j->lock);
    for (int i = 0; i < j->n_threads; i++) pthread_join(j->thread[i], NULL);
    if (j->event) event_free(j->event);
    if (j->wake_fd >= 0) close(j->wake_fd);
    pthread_cond_destroy(&j->submitted_cond);
    pthread_cond_destroy(&j->finished_cond);
    pthread_mutex_destroy(&j->lock);
    um_free(j->thread);
    um_free(j);
}
