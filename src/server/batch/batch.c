/* The folder is opened, its batches go on, and end with the server. */
#include <event2/event.h>
#include <time.h>
#include <unistd.h>

#include "server/batch/store.h"

static const double CLOCK = 1;      /* seconds between two looks at the completion windows */
static const int64_t PATIENCE = 60; /* until another look at the files, lest the clock was set */

/* ---- Advancing --------------------------------------------------------------------------------------------------- */

void um_batches_wake(um_batches *all, double seconds) {
    struct timeval left, now, tv = um_timeval(seconds);
    if (all->stopping) return;
    if (evtimer_pending(all->timer, &left)) {
        struct timeval then;
        event_base_gettimeofday_cached(um_server_base(all->server), &now);
        evutil_timeradd(&now, &tv, &then);
        if (evutil_timercmp(&left, &then, <=)) return; /* it comes sooner */
    }
    evtimer_add(all->timer, &tv);
}

static void expire_files(um_batches *all) {
    int64_t now = (int64_t)time(NULL), next = um_files_expire(all, now);
    if (next != INT64_MAX) um_batches_wake(all, (double)UM_MIN(next - now, PATIENCE));
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    um_batches *all = arg;
    bool open = false;
    (void)fd, (void)what;
    for (size_t i = 0; i < all->n_batches && !all->stopping; i++) {
        um_run_advance(all->batch[i]);
        open |= all->batch[i]->run != NULL;
    }
    if (open) um_batches_wake(all, CLOCK);
    expire_files(all);
}

/* ---- Life -------------------------------------------------------------------------------------------------------- */

static um_status open_all(um_batches *all, um_err *err) {
    um_status st = um_folder_open(all, err);
    if (!st) st = um_jobs_new(&all->disk, um_server_base(all->server), 1, 0, err);
    if (!st) st = um_jobs_new(&all->reader, um_server_base(all->server), 1, 0, err);
    if (!st) st = um_batches_load(all, err);
    if (!st) st = um_files_load(all, err);
    return st;
}

um_status um_batches_new(um_batches **out, um_server *s, um_err *err) {
    um_batches *all = UM_NEW(um_batches);
    all->server = s;
    all->dir = um_strdup(um_server_get_config(s)->state_dir);
    all->file_ttl = um_server_get_config(s)->file_ttl;
    all->lock = -1;
    all->timer = evtimer_new(um_server_base(s), on_timer, all);
    um_status st = open_all(all, err);
    if (st) {
        um_batches_free(all);
        return st;
    }
    for (size_t i = 0; i < all->n_batches; i++)
        if (!um_batch_is_over(all->batch[i]->status)) um_run_new(all->batch[i]);
    um_batches_wake(all, 0);
    *out = all;
    return UM_OK;
}

void um_batches_get_count(const um_batches *all, um_batches_count *out) {
    *out = (um_batches_count){0};
    if (!all) return;
    out->lines_running = all->n_lines;
    out->lines_completed = all->lines_completed;
    out->lines_failed = all->lines_failed;
    for (size_t i = 0; i < all->n_batches; i++) out->batches[all->batch[i]->status]++;
    for (size_t i = 0; i < all->n_files; i++) {
        const um_file *f = all->file[i];
        bool is_input = um_streq(f->purpose, "batch");
        *(is_input ? &out->inputs.n : &out->outputs.n) += 1;
        *(is_input ? &out->inputs.bytes : &out->outputs.bytes) += f->bytes;
    }
}

void um_batches_stop(um_batches *all) {
    if (!all || all->stopping) return;
    all->stopping = true;
    evtimer_del(all->timer);
    for (size_t i = 0; i < all->n_batches; i++) {
        um_run *r = all->batch[i]->run;
        if (r) um_run_give_up(r);
        if (r) um_run_flush(r);
    }
}

void um_batches_free(um_batches *all) {
    if (!all) return;
    um_batches_stop(all);
    um_jobs_free(all->reader);
    um_jobs_free(all->disk);
    for (size_t i = 0; i < all->n_batches; i++) um_batch_free(all->batch[i]);
    for (size_t i = 0; i < all->n_files; i++) um_file_free(all->file[i]);
    um_free(all->batch);
    um_free(all->file);
    if (all->timer) event_free(all->timer);
    if (all->lock >= 0) close(all->lock);
    um_free(all->dir);
    um_free(all);
}
