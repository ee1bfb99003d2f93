/* What a worker counts. */
#include <unistd.h>

#include "server/worker/parts.h"

/* A router's step is at most one of each of its engines. */
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

/* Bytes of memory that the process holds, 0 if unknown. */
static int64_t resident_bytes(void) {
    long long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f) return 0;
    if (fscanf(f, "%lld %lld", &size, &resident) != 2) resident = 0;
    fclose(f);
    return resident * sysconf(_SC_PAGESIZE);
}

void um_worker_get_stats(const um_worker *w, um_msg_stats *out) {
    um_stats s;
    um_router_get_stats(w->router, &s);
    *out = (um_msg_stats){.steps = s.steps,
                          .passes = s.passes,
                          .tokens = s.tokens,
                          .requests = s.requests,
                          .forward_tokens = s.forward_tokens,
                          .preemptions = s.preemptions,
                          .aborted = s.aborted,
                          .prefix_queries = s.prefix_queries,
                          .prefix_hits = s.prefix_hits,
                          .prefill_tokens = s.prefill_tokens,
                          .decode_tokens = s.decode_tokens,
                          .decode_passes = s.decode_passes,
                          .step_seconds = s.step_seconds,
                          .forward_seconds = s.forward_seconds,
                          .prefill_seconds = s.prefill_seconds,
                          .decode_seconds = s.decode_seconds,
                          .schedule_seconds = s.schedule_seconds,
                          .apply_seconds = s.apply_seconds,
                          .weight_bytes = (int64_t)s.weight_bytes,
                          .kv_bytes = (int64_t)s.kv_bytes,
                          .workspace_bytes = (int64_t)s.workspace_bytes,
                          .resident_bytes = resident_bytes(),
                          .pages_total = s.pages_total,
                          .pages_used = s.pages_used,
                          .pages_used_most = s.pages_used_most,
                          .requests_running = s.requests_running,
                          .requests_waiting = s.requests_waiting,
                          .prefill_step = w->counts.prefill,
                          .decode_step = w->counts.decode,
                          .step_tokens = w->counts.tokens,
                          .n_prefill_step = UM_STATS_BUCKETS,
                          .n_decode_step = UM_STATS_BUCKETS,
                          .n_step_tokens = UM_STATS_BUCKETS};
}
