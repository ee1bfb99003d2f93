/* Random numbers as a function of a key and a counter.
 *
 * The mixer is the output function of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
 * OOPSLA 2014) with David Stafford's constants "Mix13": a bijection of 64 bits in which every input bit flips every
 * output bit with probability close to one half. A key with counters 0, 1, 2, ... is the SplitMix64 sequence whose
 * state starts at the key; that generator passes BigCrush. */
#include "base/base.h"

#include <math.h>
#include <sys/random.h>
#include <time.h>

uint64_t um_rng_u64(uint64_t key, uint64_t counter) { return um_rng_mix(key + UM_RNG_STEP * (counter + 1)); }

/* Mixes in the parts one after another, so that (1, 2) and (2, 1) give different keys. */
uint64_t um_rng_key(uint64_t seed, uint64_t position, uint64_t count, uint64_t use) {
    uint64_t key = um_rng_u64(0, seed);
    key = um_rng_u64(key, position);
    key = um_rng_u64(key, count);
    return um_rng_u64(key, use);
}

/* Returns the middle of one of 2^52 equal intervals of (0, 1). With 2^53 intervals the last middle would round to 1. */
double um_rng_uniform(uint64_t key, uint64_t counter) {
    return ((double)(um_rng_u64(key, counter) >> 12) + 0.5) * 0x1p-52;
}

float um_rng_gumbel(uint64_t key, uint64_t counter) { return (float)-log(-log(um_rng_uniform(key, counter))); }

/* Uses the clock when the system offers no random source (a sandbox may forbid the call). Seeds must differ, but they
 * are not secret. */
int64_t um_rng_seed(void) {
    uint64_t v = 0;
    if (getentropy(&v, sizeof v) != 0) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        v = um_rng_mix((uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec);
    }
    return (int64_t)(v >> 11);
}
