/* The choice between several engines with the same configuration. */
#include "engine/replica.h"

static int32_t index_of_shortest_queue(const um_replica *replica, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (replica[i].queued < replica[best].queued) best = i;
    return best;
}

static bool has_better_prefix(const um_replica *a, const um_replica *b) {
    return a->cached != b->cached ? a->cached > b->cached : a->queued < b->queued;
}

static int32_t index_of_longest_prefix(const um_replica *replica, int32_t n) {
    int32_t best = index_of_shortest_queue(replica, n);
    const int64_t least = replica[best].queued;
    for (int32_t i = 0; i < n; i++) {
        bool is_too_full = replica[i].queued - least > UM_REPLICA_EXCESS * (int64_t)replica[i].cached;
        if (!is_too_full && has_better_prefix(&replica[i], &replica[best])) best = i;
    }
    return best;
}

int32_t um_replica_choose(int32_t policy, const um_replica *replica, int32_t n, int64_t id) {
    assert(n >= 1 && id >= 0);
    if (policy == UM_ROUTE_ROUND_ROBIN) return (int32_t)(id % n);
    if (policy == UM_ROUTE_LEAST_LOADED) return index_of_shortest_queue(replica, n);
    assert(policy == UM_ROUTE_PREFIX);
    return index_of_longest_prefix(replica, n);
}
