/* The counters of a worker. */
#include <unistd.h>

#include "server/worker/internal.h"

/* A step of the router is at most one step of each engine, so the difference of two counters is one step. */
void um_worker_count_steps(um_worker *w) {
    um_step_counts *c = &w->counts;
    for (int32_t i = 0; i < um_router_size(w->router); i++) {
        um_stats now, *last = &c->seen[i];
        um_engine_get_stats(um_router_engine(w->router, i), &now);
        if (now.steps > last->steps) {
            double seconds = now.step_seconds - last->step_seconds;
            int32_t bucket = um_stats_bucket(um_stats_bounds_seconds, seconds);
            c->prefill[bucket] += now.prefill_seconds > last->prefill_seconds;
            c->decode[bucket] += now.decode_seconds > last->decode_seconds;
            c->tokens[um_stats_bucket(um_stats_bounds_tokens, (double)(now.forward_tokens - last->forward_tokens))]++;
        }
        *last = now;
    }
}

/* Returns the resident memory of the process in bytes; 0: unknown. */
static int64_t resident_bytes(void) {
    long long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f) return 0;
    if (fscanf(f, "%lld %lld", &size, &resident) != 2) resident = 0;
    fclose(f);
    return resident * sysconf(_SC_PAGESIZE);
}

/* Adds up the memory of the devices of all engines. Engines may share a device. */
static void add_devices(const um_worker *w, um_msg_stats *out) {
    const int32_t n = um_router_size(w->router);
    for (int32_t i = 0; i < n; i++) {
        um_engine_info info, other;
        bool is_first = true;
        um_engine_get_info(um_router_engine(w->router, i), &info);
        if (!info.device_bytes) return;
        for (int32_t k = 0; k < i && is_first; k++) {
            um_engine_get_info(um_router_engine(w->router, k), &other);
            is_first = !um_streq(info.device, other.device);
        }
        if (!is_first) continue;
        out->device_bytes += (int64_t)info.device_bytes;
        out->device_free_bytes += (int64_t)info.device_free_bytes;
    }
}

/* Reports the ranks of the first engine. */
static void put_ranks(um_worker *w, um_msg_stats *out) {
    um_rank_times t[UM_STATS_RANKS_MAX];
    const int32_t n =
        UM_MIN(um_engine_get_ranks(um_router_engine(w->router, 0), t, UM_STATS_RANKS_MAX), UM_STATS_RANKS_MAX);
    for (int32_t r = 0; r < n; r++) {
        w->counts.rank_pass[r] = (int64_t)(1e6 * t[r].pass_seconds);
        w->counts.rank_exchange[r] = (int64_t)(1e6 * t[r].exchange_seconds);
    }
    out->rank_pass = w->counts.rank_pass;
    out->rank_exchange = w->counts.rank_exchange;
    out->n_rank_pass = out->n_rank_exchange = (uint32_t)n;
}

void um_worker_get_stats(um_worker *w, um_msg_stats *out) {
    um_stats s = {0};
    if (w->router) um_router_get_stats(w->router, &s);
    *out = (um_msg_stats){.resident_bytes = resident_bytes(),
                          .prefill_step = w->counts.prefill,
                          .decode_step = w->counts.decode,
                          .step_tokens = w->counts.tokens,
                          .n_prefill_step = UM_STATS_BUCKETS,
                          .n_decode_step = UM_STATS_BUCKETS,
                          .n_step_tokens = UM_STATS_BUCKETS};
#define UM_X(type, name) out->name = (type)s.name;
    UM_STATS_COUNT_MAP(UM_X)
    UM_STATS_BYTES_MAP(UM_X)
    UM_STATS_AMOUNT_MAP(UM_X)
#undef UM_X
#define UM_X(type, name) out->name += w->offset.name;
    UM_STATS_COUNT_MAP(UM_X)
#undef UM_X
    if (!w->router) return;
    add_devices(w, out);
    put_ranks(w, out);
}

void um_worker_restart_stats(um_worker *w) {
    um_stats s = {0};
    um_step_counts *c = &w->counts;
    if (w->router) um_router_get_stats(w->router, &s);
#define UM_X(type, name) w->offset.name = -(type)s.name;
    UM_STATS_COUNT_MAP(UM_X)
#undef UM_X
    memset(c->prefill, 0, sizeof c->prefill);
    memset(c->decode, 0, sizeof c->decode);
    memset(c->tokens, 0, sizeof c->tokens);
}
