/* Writes log lines to stderr, directly or through a writer thread. With the thread, a stalled reader (a pager, a full
 * pipe, a hanging disk) blocks only that thread.
 *
 * There are two buffers: new lines are appended to one while the other is written. The thread sleeps between two
 * writes, so that a busy server wakes it at most a hundred times a second and not for every line. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define WRITE_INTERVAL_SECONDS 0.01

static struct {
    pthread_t thread;
    pthread_mutex_t lock; /* guards all fields but `writing` */
    pthread_cond_t more, written, ended;
    um_buf waiting, writing; /* only the thread uses `writing` */
    int64_t missed;          /* lines dropped since the thread last reported it */
    int64_t dropped;         /* lines dropped in all */
    bool runs, idle, writes, stops;
} w = {.lock = PTHREAD_MUTEX_INITIALIZER,
       .more = PTHREAD_COND_INITIALIZER,
       .written = PTHREAD_COND_INITIALIZER,
       .ended = PTHREAD_COND_INITIALIZER};

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

static void put(const char *line, size_t n) {
    if (w.waiting.len + n > UM_LOG_BUFFER_MAX) {
        w.missed++;
        w.dropped++;
        return;
    }
    um_buf_append(&w.waiting, line, n);
    if (w.idle) pthread_cond_signal(&w.more);
}

void um_log_write(const char *line, size_t n) {
    pthread_mutex_lock(&w.lock);
    bool by_thread = w.runs;
    if (by_thread) put(line, n);
    pthread_mutex_unlock(&w.lock);
    if (!by_thread) fwrite(line, 1, n, stderr);
}

int64_t um_log_dropped(void) {
    pthread_mutex_lock(&w.lock);
    int64_t n = w.dropped;
    pthread_mutex_unlock(&w.lock);
    return n;
}

/* ---- The thread -------------------------------------------------------------------------------------------------- */

/* Writes all bytes. Polls when stderr is non-blocking, which the process that started this one may have set. */
static bool write_all(const char *p, size_t n) {
    struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
    while (n) {
        ssize_t got = write(STDERR_FILENO, p, n);
        if (got < 0 && errno == EAGAIN) poll(&ready, 1, -1);
        else if (got < 0 && errno != EINTR) return false;
        if (got > 0) {
            p += got;
            n -= (size_t)got;
        }
    }
    return true;
}

static int64_t count_lines(const um_buf *b) {
    int64_t n = 0;
    for (size_t i = 0; i < b->len; i++) n += b->data[i] == '\n';
    return n;
}

/* Writes the buffer `writing`. Called without the lock. Returns the number of lines that were lost to a write error. */
static int64_t write_out(int64_t missed) {
    if (missed) {
        char text[80];
        snprintf(text, sizeof text, "%lld log lines were dropped because stderr was blocked", (long long)missed);
        um_log_line(UM_LOG_WARN, text, &w.writing);
    }
    int64_t lost = write_all(w.writing.data, w.writing.len) ? 0 : count_lines(&w.writing);
    um_buf_clear(&w.writing);
    return lost;
}

static struct timespec after(double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t ns = t.tv_nsec + (int64_t)(seconds * 1e9);
    return (struct timespec){t.tv_sec + ns / 1000000000, ns % 1000000000};
}

static bool has_work(void) { return w.waiting.len || w.missed; }

static void *run(void *arg) {
    (void)arg;
    pthread_mutex_lock(&w.lock);
    while (!w.stops || has_work()) {
        w.idle = true;
        while (!w.stops && !has_work()) pthread_cond_wait(&w.more, &w.lock);
        w.idle = false;
        um_buf lines = w.waiting;
        int64_t missed = w.missed;
        w.waiting = w.writing;
        w.writing = lines;
        w.missed = 0;
        w.writes = true;
        pthread_mutex_unlock(&w.lock);
        int64_t lost = write_out(missed);
        pthread_mutex_lock(&w.lock);
        w.writes = false;
        w.dropped += lost;
        pthread_cond_broadcast(&w.written);
        struct timespec end = after(WRITE_INTERVAL_SECONDS);
        if (!w.stops) pthread_cond_timedwait(&w.more, &w.lock, &end);
    }
    w.runs = false;
    pthread_cond_signal(&w.ended);
    pthread_mutex_unlock(&w.lock);
    return NULL;
}

/* ---- Start and stop ---------------------------------------------------------------------------------------------- */

/* The thread blocks all signals, so that other threads handle them. */
um_status um_log_start_writer(um_err *err) {
    sigset_t all, before;
    assert(!w.runs);
    um_buf_reserve(&w.waiting, UM_LOG_BUFFER_MAX); /* untouched pages take no memory */
    um_buf_reserve(&w.writing, UM_LOG_BUFFER_MAX);
    w.stops = false;
    w.runs = true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&w.thread, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    w.runs = !failed;
    return failed ? um_fail(err, UM_EIO, "cannot start the thread that writes the log: %s", strerror(failed)) : UM_OK;
}

void um_log_flush(double seconds) {
    struct timespec end = after(seconds);
    int late = 0;
    pthread_mutex_lock(&w.lock);
    pthread_cond_signal(&w.more);
    while (w.runs && (w.writes || has_work()) && !late) late = pthread_cond_timedwait(&w.written, &w.lock, &end);
    pthread_mutex_unlock(&w.lock);
}

/* Abandons a thread whose write may never return. Redirects stderr to /dev/null, so that no other thread blocks there.
 */
static void abandon_thread(void) {
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    pthread_detach(w.thread);
    if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
}

void um_log_stop_writer(double seconds) {
    struct timespec end = after(seconds);
    int late = 0;
    pthread_mutex_lock(&w.lock);
    bool began = w.runs;
    w.stops = true;
    pthread_cond_signal(&w.more);
    while (w.runs && !late) late = pthread_cond_timedwait(&w.ended, &w.lock, &end);
    bool is_stuck = w.runs;
    pthread_mutex_unlock(&w.lock);
    if (!began) return;
    if (is_stuck) {
        abandon_thread();
        return;
    }
    pthread_join(w.thread, NULL);
    um_buf_free(&w.waiting);
    um_buf_free(&w.writing);
}
