/* Arrival times of requests. */
#include "cli/load.h"

#include <math.h>

static void push(um_arrivals *a, double at) {
    if (a->n == a->cap) {
        a->cap = UM_MAX(2 * a->cap, (size_t)256);
        a->at = um_realloc(a->at, um_mul(a->cap, sizeof *a->at));
    }
    a->at[a->n++] = at;
}

void um_arrivals_poisson(um_arrivals *a, uint64_t seed, double rate, size_t n, double seconds) {
    uint64_t key = um_rng_key(seed, 0, 0, 0);
    double at = 0;
    size_t most = seconds > 0 ? UM_LOAD_REQUESTS_MAX : n;
    for (size_t i = 0; i < most; i++) {
        at -= log(um_rng_uniform(key, i)) / rate;
        if (seconds > 0 && at >= seconds) break;
        push(a, at);
    }
}

bool um_arrivals_push(um_arrivals *a, double at) {
    if (!isfinite(at) || at < 0 || (a->n && at < a->at[a->n - 1])) return false;
    push(a, at);
    return true;
}

void um_arrivals_free(um_arrivals *a) {
    um_free(a->at);
    *a = (um_arrivals){0};
}
