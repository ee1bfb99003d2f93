/* The store's timer, its start and its end. */
#include <event2/event.h>
#include <time.h>
#include <unistd.h>

#include "server/batch/store.h"

static const double CHECK_SECONDS = 1; /* time between two checks of the completion windows while a batch runs */
/* Files are checked at least this often, because the system's clock may be changed. */
static const int64_t FILES_CHECK_SECONDS = 60;

/* ---- Advancing --------------------------------------------------------------------------------------------------- */

void um_batch_store_schedule(um_batch_store *store, double seconds) {
    struct timeval left, now, tv = um_timeval(seconds);
    if (store->stopping) return;
    if (evtimer_pending(store->timer, &left)) {
        struct timeval then;
        event_base_gettimeofday_cached(store->service->base, &now);
        evutil_timeradd(&now, &tv, &then);
        if (evutil_timercmp(&left, &then, <=)) return;
    }
    evtimer_add(store->timer, &tv);
}

static void expire_files(um_batch_store *store) {
    int64_t now = (int64_t)time(NULL), next = um_files_expire(store, now);
    if (next != INT64_MAX) um_batch_store_schedule(store, (double)UM_MIN(next - now, FILES_CHECK_SECONDS));
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    um_batch_store *store = arg;
    bool is_running = false;
    (void)fd, (void)what;
    for (size_t i = 0; i < store->n_batches && !store->stopping; i++) {
        um_batch_run_advance(store->batch[i]);
        is_running |= store->batch[i]->run != NULL;
    }
    if (is_running) um_batch_store_schedule(store, CHECK_SECONDS);
    expire_files(store);
}

/* ---- Life -------------------------------------------------------------------------------------------------------- */

static um_status open_store(um_batch_store *store, um_err *err) {
    um_status st = um_folder_open(store, err);
    if (!st) st = um_work_queue_new(&store->disk, store->service->base, 1, 0, err);
    if (!st) st = um_work_queue_new(&store->reader, store->service->base, 1, 0, err);
    if (!st) st = um_batch_store_load(store, err);
    if (!st) st = um_files_load(store, err);
    return st;
}

um_status um_batch_store_new(um_batch_store **out, um_service *s, const um_api *const *apis, um_err *err) {
    um_batch_store *store = UM_NEW(um_batch_store);
    store->service = s;
    store->apis = apis;
    store->dir = um_strdup(s->setup.config->state_dir);
    store->file_ttl = s->setup.config->file_ttl;
    store->line_memory = (size_t)s->setup.config->max_body_memory;
    store->lock = -1;
    store->timer = evtimer_new(s->base, on_timer, store);
    um_status st = open_store(store, err);
    if (st) {
        um_batch_store_free(store);
        return st;
    }
    for (size_t i = 0; i < store->n_batches; i++)
        if (!um_batch_is_over(store->batch[i]->status)) um_batch_run_new(store->batch[i]);
    um_batch_store_schedule(store, 0);
    *out = store;
    return UM_OK;
}

void um_batch_store_get_count(const um_batch_store *store, um_batch_store_count *out) {
    *out = (um_batch_store_count){0};
    if (!store) return;
    out->lines_running = store->n_lines;
    out->lines_completed = store->lines_completed;
    out->lines_failed = store->lines_failed;
    for (size_t i = 0; i < store->n_batches; i++) out->batches[store->batch[i]->status]++;
    for (size_t i = 0; i < store->n_files; i++) {
        const um_file *f = store->file[i];
        bool is_input = um_streq(f->purpose, "batch");
        *(is_input ? &out->inputs.n : &out->outputs.n) += 1;
        *(is_input ? &out->inputs.bytes : &out->outputs.bytes) += f->bytes;
    }
}

void um_batch_store_stop(um_batch_store *store) {
    if (!store || store->stopping) return;
    store->stopping = true;
    evtimer_del(store->timer);
    for (size_t i = 0; i < store->n_batches; i++) {
        um_batch_run *r = store->batch[i]->run;
        if (r) um_batch_run_abandon(r);
        if (r) um_batch_run_flush(r);
    }
}

void um_batch_store_free(um_batch_store *store) {
    if (!store) return;
    um_batch_store_stop(store);
    um_work_queue_free(store->reader);
    um_work_queue_free(store->disk);
    for (size_t i = 0; i < store->n_batches; i++) um_batch_job_free(store->batch[i]);
    for (size_t i = 0; i < store->n_files; i++) um_file_free(store->file[i]);
    um_free(store->batch);
    um_free(store->file);
    if (store->timer) event_free(store->timer);
    if (store->lock >= 0) close(store->lock);
    um_free(store->dir);
    um_free(store);
}
