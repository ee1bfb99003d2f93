/* Sets of masks for Monte Carlo scores. */
#include "decode/mask_sets.h"

enum { BATCHES_AUTO = 8 };
enum { USE_COUNT, USE_SET }; /* of random keys */

int32_t um_mask_sets_batch(int32_t samples) {
    int32_t batch = UM_MAX(samples / BATCHES_AUTO, 1);
    while (samples % batch) batch--;
    return batch;
}

void um_mask_sets_init(um_mask_sets *s) {
    assert(s->n > 0 && s->samples > 0 && s->batch > 0 && s->samples % s->batch == 0);
    s->exact = s->n < 31 && (INT64_C(1) << s->n) - 1 <= s->samples;
    s->count = s->exact ? (1 << s->n) - 1 : s->samples;
}

/* Set i has the positions of the bits of i + 1. */
static int32_t get_exact(const um_mask_sets *s, int32_t i, bool *masked, double *weight) {
    const int32_t l = __builtin_popcount((unsigned)i + 1);
    double sets = 1; /* of l tokens */
    for (int32_t k = 0; k < l; k++) sets = sets * (s->n - k) / (k + 1);
    for (int32_t k = 0; k < s->n; k++) masked[k] = (i + 1) >> k & 1;
    *weight = 1 / (l * sets);
    return l;
}

/* Returns the number of masks of sample i. */
static int32_t count_of(const um_mask_sets *s, int32_t i) {
    const uint64_t key = um_rng_key(s->seed, (uint64_t)s->first, (uint64_t)(i / s->batch), USE_COUNT);
    const int64_t start = (int64_t)(um_rng_uniform(key, 0) * s->n), step = (int64_t)(i % s->batch) * s->n / s->batch;
    return (int32_t)(1 + (start + step) % s->n);
}

int32_t um_mask_sets_get(const um_mask_sets *s, int32_t i, bool *masked, double *weight) {
    assert(i >= 0 && i < s->count);
    if (s->exact) return get_exact(s, i, masked, weight);
    const int32_t l = count_of(s, i);
    const uint64_t key = um_rng_key(s->seed, (uint64_t)s->first, (uint64_t)i, USE_SET);
    int32_t left = l; /* a position is chosen with the probability left / positions that are left */
    for (int32_t k = 0; k < s->n; k++) {
        masked[k] = um_rng_uniform(key, (uint64_t)k) * (s->n - k) < left;
        left -= masked[k];
    }
    assert(left == 0);
    *weight = (double)s->n / l / s->samples;
    return l;
}
