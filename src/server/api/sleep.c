/* Endpoints that put the workers to sleep and wake them. */
#include "server/api/common.h"

/* A request that waits until the workers sleep, or until they are awake. */
typedef struct um_rest_waiter {
    struct um_rest_waiter *next;
    um_service *service;
    um_exchange *x;
    bool for_sleep;
} um_rest_waiter;

static void put_state(um_service *s, um_jw *w) {
    um_jw_begin_object(w);
    um_jw_put_bool(w, "is_sleeping", um_worker_pool_get_rest(s->workers) != UM_POOL_AWAKE);
    um_jw_end_object(w);
}

static void unlink_waiter(um_rest_waiter *r) {
    um_rest_waiter **at = &r->service->resting;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
}

static void on_close(void *arg, um_exchange *x, bool complete) {
    (void)x, (void)complete;
    unlink_waiter(arg);
    um_free(arg);
}

static bool has_loading(const um_worker_pool *b) {
    for (int32_t i = 0; i < um_worker_pool_size(b); i++) {
        um_worker_status v = um_worker_pool_get_status(b, i);
        if (v.state == UM_WORKER_LOADING || v.returns) return true;
    }
    return false;
}

/* Answers a request if the workers are as it wants, or never will be. Returns whether it was answered. */
static bool answer(um_rest_waiter *r) {
    um_service *s = r->service;
    um_exchange *x = r->x;
    um_pool_rest rest = um_worker_pool_get_rest(s->workers);
    bool is_changing = rest == UM_POOL_DROWSY || (rest == UM_POOL_AWAKE && !r->for_sleep && has_loading(s->workers));
    if (is_changing && !s->stopping) return false;
    bool is_up = um_worker_pool_is_up(s->workers);
    bool done = !s->stopping && (r->for_sleep ? rest == UM_POOL_ASLEEP : is_up);
    um_exchange_on_close(x, NULL, NULL);
    unlink_waiter(r);
    um_free(r);
    if (done) um_reply_with(s, x, put_state);
    else if (s->stopping) um_reply_error(x, 503, NULL, "stopping", "the server is stopping");
    else
        um_reply_error(x, 503, NULL, "unavailable", "%s",
                       is_up ? "the workers don't sleep; they were woken or refused"
                             : um_worker_pool_down_reason(s->workers));
    return true;
}

void um_sleep_on_change(um_service *s) {
    for (um_rest_waiter *r = s->resting, *next; r; r = next) {
        next = r->next;
        (void)answer(r);
    }
}

static void wait_for(um_service *s, um_exchange *x, bool for_sleep) {
    um_rest_waiter *r = UM_NEW(um_rest_waiter);
    *r = (um_rest_waiter){s->resting, s, x, for_sleep};
    s->resting = r;
    um_exchange_on_close(x, on_close, r);
    (void)answer(r);
}

/* vLLM's levels: 1 keeps the weights in the memory of the machine, 2 does not. Here the files are the copy. */
static bool read_level(um_exchange *x) {
    const char *text = um_exchange_query(x, "level");
    if (!text || um_streq(text, "1") || um_streq(text, "2")) return true;
    um_reply_error(x, 400, "level", NULL, "level: expected 1 or 2, found \"%.40s\"", text);
    return false;
}

static void post_sleep(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    if (!read_level(x) || !um_read_empty(x)) return;
    if (!s->stopping) um_worker_pool_sleep(s->workers);
    wait_for(s, x, true);
}

static void post_wake(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    if (!um_read_empty(x)) return;
    if (!s->stopping) um_worker_pool_wake(s->workers);
    wait_for(s, x, false);
}

static void get_state(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    um_exchange_add_header(x, "Cache-Control", "no-store");
    um_reply_with(s, x, put_state);
}

static const um_endpoint endpoints[] = {
    {"POST", "/sleep", post_sleep, UM_ENDPOINT_ADMIN, "vLLM",
     "release the memory of weights and KV pages when the running requests have ended"},
    {"POST", "/wake_up", post_wake, UM_ENDPOINT_ADMIN, "vLLM", "load the weights again"},
    {"GET", "/is_sleeping", get_state, 0, "vLLM", "whether the server sleeps"},
};
const um_endpoint_set um_sleep_endpoints = {endpoints, UM_LEN(endpoints)};
