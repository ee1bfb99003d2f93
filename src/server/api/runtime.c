/* Endpoints that show and change the running server: its load. */
#include "server/api/common.h"

/* ---- Load -------------------------------------------------------------------------------------------------------- */

static void put_load(um_service *s, um_jw *w) {
    um_jw_begin_object(w);
    um_jw_put_int(w, "server_load", (int64_t)um_generations_count(s));
    um_jw_end_object(w);
}

/* Workers report waiting requests once a second, so their number may lag behind that of all requests. */
static void put_worker_loads(um_service *s, um_jw *w) {
    um_worker_pool *b = s->workers;
    um_jw_begin_array(w);
    for (int32_t i = 0; i < um_worker_pool_size(b); i++) {
        um_worker_status v = um_worker_pool_get_status(b, i);
        um_jw_begin_object(w);
        um_jw_put_int(w, "dp_rank", i);
        um_jw_put_int(w, "num_reqs", v.n_requests);
        um_jw_put_int(w, "num_waiting_reqs", v.n_requests ? v.stats->requests_waiting : 0);
        um_jw_put_int(w, "num_tokens", v.queued_tokens);
        um_jw_end_object(w);
    }
    um_jw_end_array(w);
}

static void get_load(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    um_exchange_add_header(x, "Cache-Control", "no-store");
    um_reply_with(s, x, put_load);
}

static void get_worker_loads(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    um_exchange_add_header(x, "Cache-Control", "no-store");
    um_reply_with(s, x, put_worker_loads);
}

/* ---- Endpoints --------------------------------------------------------------------------------------------------- */

static const um_endpoint endpoints[] = {
    {"GET", "/load", get_load, 0, "vLLM", "count the requests that run or wait"},
    {"GET", "/get_load", get_worker_loads, 0, "SGLang", "the same for each worker, with their tokens"},
};
const um_endpoint_set um_runtime_endpoints = {endpoints, UM_LEN(endpoints)};
