/* A hash table of results, and the list of the finished ones. */
#include "server/api/result_store.h"

#include <event2/event.h>
#include <pthread.h>

#define BUCKETS 1024

struct um_result_store {
    um_service *service;
    struct event *timer; /* expires the oldest result */
    pthread_mutex_t lock;
    um_stored *bucket[BUCKETS];
    um_stored *oldest, *newest;
    int32_t n_finished;
    size_t bytes, bytes_max; /* of the finished results */
    um_result_files *files;  /* NULL: results are in memory only */
};

/* Returns the pointer to the result with this id, or the end of its bucket. */
static um_stored **find_slot(um_result_store *r, const char *id) {
    um_stored **at = &r->bucket[um_key_hash(um_str_of(id)) % BUCKETS];
    while (*at && !um_streq((*at)->id, id)) at = &(*at)->next;
    return at;
}

static size_t bytes_of(const um_stored *e) { return sizeof *e + e->json.len + e->items.len + e->events.len; }

static void unlink_finished(um_result_store *r, um_stored *e) {
    if (e->older) e->older->newer = e->newer;
    else r->oldest = e->newer;
    if (e->newer) e->newer->older = e->older;
    else r->newest = e->older;
    r->n_finished--;
    r->bytes -= bytes_of(e);
}

void um_stored_link(um_stored *e) {
    um_result_store *r = e->store;
    e->older = r->newest;
    while (e->older && e->older->finished > e->finished) e->older = e->older->older;
    e->newer = e->older ? e->older->newer : r->oldest;
    *(e->older ? &e->older->newer : &r->oldest) = e;
    *(e->newer ? &e->newer->older : &r->newest) = e;
    r->n_finished++;
    r->bytes += bytes_of(e);
}

/* Frees a result. Its record stays. */
static void forget(um_stored *e) {
    um_result_store *r = e->store;
    pthread_mutex_lock(&r->lock);
    *find_slot(r, e->id) = e->next;
    pthread_mutex_unlock(&r->lock);
    um_followers_end(e);
    if (e->generation) um_generation_cancel(e->generation);
    if (e->is_finished) unlink_finished(r, e);
    um_buf_free(&e->json);
    um_buf_free(&e->items);
    um_buf_free(&e->events);
    um_free(e->file);
    um_free(e);
}

void um_stored_remove(um_stored *e) {
    um_result_files_remove(e->store->files, e);
    forget(e);
}

static double seconds_left(const um_result_store *r) {
    return r->oldest->finished + r->service->setup.config->result_ttl - um_now();
}

static bool is_over_limit(const um_result_store *r) {
    return r->oldest != r->newest && (r->n_finished > r->service->setup.config->result_max || r->bytes > r->bytes_max);
}

/* Deletes the results that are too old or beyond the limits, and sets the timer for the next one. */
static void expire(um_result_store *r) {
    while (r->oldest && (is_over_limit(r) || seconds_left(r) <= 0)) um_stored_remove(r->oldest);
    if (!r->oldest) return;
    struct timeval t = {(time_t)seconds_left(r) + 1, 0};
    event_add(r->timer, &t);
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    expire(arg);
}

um_result_store *um_result_store_new(um_service *s, size_t bytes_max) {
    um_result_store *r = UM_NEW(um_result_store);
    r->service = s;
    r->bytes_max = bytes_max;
    r->timer = evtimer_new(s->base, on_timer, r);
    pthread_mutex_init(&r->lock, NULL);
    return r;
}

um_status um_result_store_open(um_result_store *r, um_err *err) {
    um_status st = um_result_files_new(&r->files, r, r->service, err);
    if (!st) expire(r);
    return st;
}

void um_result_store_stop(um_result_store *r) {
    for (size_t i = 0; r && i < BUCKETS; i++) {
        for (um_stored *e = r->bucket[i], *next; e; e = next) {
            next = e->next;
            if (!e->is_finished) forget(e);
        }
    }
    if (r) um_result_files_free(r->files);
    if (r) r->files = NULL;
}

void um_result_store_free(um_result_store *r) {
    if (!r) return;
    for (size_t i = 0; i < BUCKETS; i++)
        while (r->bucket[i]) forget(r->bucket[i]);
    event_free(r->timer);
    pthread_mutex_destroy(&r->lock);
    um_free(r);
}

um_stored *um_stored_add(um_result_store *r, const char *id, const char *owner) {
    um_stored **slot = find_slot(r, id);
    if (*slot) return NULL;
    um_stored *e = UM_NEW(um_stored);
    snprintf(e->id, sizeof e->id, "%s", id);
    snprintf(e->owner, sizeof e->owner, "%s", owner);
    e->store = r;
    pthread_mutex_lock(&r->lock);
    *slot = e;
    pthread_mutex_unlock(&r->lock);
    return e;
}

um_stored *um_stored_find(um_result_store *r, const char *id, const um_key *by) {
    expire(r);
    um_stored *e = *find_slot(r, id);
    return e && um_key_may_see(by, e->owner) ? e : NULL;
}

static void replace(um_stored *e, um_buf *to, um_buf *from) {
    pthread_mutex_lock(&e->store->lock);
    um_buf_free(to);
    *to = *from;
    pthread_mutex_unlock(&e->store->lock);
    *from = (um_buf){0};
}

void um_stored_set(um_stored *e, um_buf *json) {
    replace(e, &e->json, json);
    um_result_files_save(e->store->files, e);
}

void um_stored_set_items(um_stored *e, um_buf *items) { replace(e, &e->items, items); }

void um_stored_add_events(um_stored *e, um_str events) {
    um_buf_append(&e->events, events.p, events.n);
    um_followers_wake(e);
}

/* Puts a changed result at the end of the list. */
static void renew(um_stored *e) {
    e->finished = um_now();
    um_stored_link(e);
    um_result_files_save(e->store->files, e);
    expire(e->store);
}

void um_stored_finish(um_stored *e, int status, um_buf *json) {
    um_result_store *r = e->store;
    e->generation = NULL;
    e->status = status;
    replace(e, &e->json, json);
    pthread_mutex_lock(&r->lock);
    e->is_finished = true;
    pthread_mutex_unlock(&r->lock);
    renew(e);
    um_followers_wake(e);
}

void um_stored_update(um_stored *e, um_buf *json, um_buf *items) {
    unlink_finished(e->store, e);
    replace(e, &e->json, json);
    replace(e, &e->items, items);
    renew(e);
}

bool um_stored_copy(um_result_store *r, const char *id, const char *owner, um_buf *json, um_buf *items) {
    pthread_mutex_lock(&r->lock);
    const um_stored *e = *find_slot(r, id);
    bool found = e && e->is_finished && um_streq(e->owner, owner);
    if (found) {
        um_buf_append(json, e->json.data, e->json.len);
        um_buf_append(items, e->items.data, e->items.len);
    }
    pthread_mutex_unlock(&r->lock);
    return found;
}
