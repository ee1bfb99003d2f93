/* The limits of the workers' engines, and the release of large data. */
#include "server/service/service.h"

#include "engine/options.h"

/* Returns what the first ready worker reported; NULL if none is ready. All workers run the same configuration. */
static const um_msg_ready *ready_of(um_worker_pool *workers) {
    for (int32_t i = 0; workers && i < um_worker_pool_size(workers); i++) {
        um_worker_status v = um_worker_pool_get_status(workers, i);
        if (v.ready) return v.ready;
    }
    return NULL;
}

static void copy_name(char *to, size_t size, um_str name) { snprintf(to, size, "%.*s", (int)name.n, name.p); }

/* READY has the pages of all engines in the worker together. A request uses the pages of one engine. */
static int32_t pages_of(const um_server_config *c, const um_msg_ready *ready) {
    return c->in_process ? ready->pages_total / UM_MAX(c->engine->data_parallel_size, 1) : ready->pages_total;
}

static um_capacity capacity_of_worker(const um_server_config *c, const um_msg_ready *ready) {
    um_capacity capacity = {.max_len = ready->max_model_len,
                            .pages = pages_of(c, ready),
                            .page_size = ready->page_size,
                            .max_reqs = ready->max_num_reqs,
                            .tokens_per_step = ready->max_num_batched_tokens,
                            .max_queue = c->max_queue};
    capacity.tokens = (int64_t)(capacity.pages - 1) * capacity.page_size;
    copy_name(capacity.strategy, sizeof capacity.strategy, ready->strategy);
    return capacity;
}

um_capacity um_capacity_get(const um_service *s) {
    const um_msg_ready *ready = ready_of(s->workers);
    const um_server_config *c = s->setup.config;
    um_model_info info;
    if (ready) return capacity_of_worker(c, ready);
    um_model_get_info(s->setup.model, &info);
    int32_t max_len = c->engine->max_model_len;
    return (um_capacity){.max_len = max_len ? UM_MIN(max_len, info.max_position) : info.max_position,
                         .tokens = INT64_MAX,
                         .max_queue = c->max_queue};
}

/* ---- Release ----------------------------------------------------------------------------------------------------- */

typedef struct waste {
    void (*release)(void *arg);
    void *arg;
} waste;

static um_status release_work(void *arg, um_err *err) {
    waste *w = arg;
    (void)err;
    w->release(w->arg);
    um_free(w);
    return UM_OK;
}

void um_release(um_service *s, size_t bytes, void (*release)(void *arg), void *arg) {
    if (bytes <= UM_INLINE_BYTES_MAX) {
        release(arg);
        return;
    }
    waste *w = UM_NEW(waste);
    *w = (waste){release, arg};
    um_work_queue_submit(s->readers, &(um_work){release_work, NULL, w, 0});
}

static void free_body(void *arg) {
    um_body_free(arg);
    um_free(arg);
}

void um_body_release(um_service *s, um_body *b) {
    if (b->bytes <= UM_INLINE_BYTES_MAX) {
        um_body_free(b);
        return;
    }
    um_body *own = UM_NEW(um_body);
    *own = *b;
    *b = (um_body){0};
    um_release(s, own->bytes, free_body, own);
}
