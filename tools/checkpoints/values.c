/* Random values at the speed of memory: 12 bits of a random number choose one of 4096 levels from a table that fits the
 * first cache. A generator that computes a logarithm per value is ten times as slow. */
#include <math.h>

#include "checkpoint.h"

enum { PER_DRAW = 4 }; /* values from one random number of 64 bits */

/* The x below which a share p of the normal distribution lies, by bisection. */
static double quantile(double p) {
    double low = -8, high = 8;
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        if (erfc(-middle / sqrt(2)) / 2 < p) low = middle;
        else high = middle;
    }
    return low;
}

void um_values_init(um_values *v, um_dtype type) {
    v->type = type;
    for (int i = 0; i < UM_VALUES_LEVELS; i++) {
        v->f32[i] = (float)(UM_VALUES_STD * quantile((i + 0.5) / UM_VALUES_LEVELS));
        v->bf16[i] = um_f32_to_bf16(v->f32[i]);
    }
}

static size_t level(uint64_t draw, size_t i) { return draw >> 16 * i & (UM_VALUES_LEVELS - 1); }

static void fill_bf16(const um_values *v, uint64_t key, uint64_t draw, size_t n, uint16_t *out) {
    for (size_t i = 0; i < n; i += PER_DRAW) {
        const uint64_t bits = um_rng_u64(key, draw++);
        for (size_t k = 0; k < PER_DRAW && i + k < n; k++) out[i + k] = v->bf16[level(bits, k)];
    }
}

static void fill_f32(const um_values *v, uint64_t key, uint64_t draw, size_t n, float *out) {
    for (size_t i = 0; i < n; i += PER_DRAW) {
        const uint64_t bits = um_rng_u64(key, draw++);
        for (size_t k = 0; k < PER_DRAW && i + k < n; k++) out[i + k] = v->f32[level(bits, k)];
    }
}

void um_values_fill(const um_values *v, uint64_t key, uint64_t first, size_t n, void *out) {
    assert(first % PER_DRAW == 0);
    if (v->type == UM_BF16) fill_bf16(v, key, first / PER_DRAW, n, out);
    else fill_f32(v, key, first / PER_DRAW, n, out);
}

void um_values_ones(const um_values *v, size_t n, void *out) {
    const uint16_t one = um_f32_to_bf16(1);
    for (size_t i = 0; i < n; i++) {
        if (v->type == UM_BF16) ((uint16_t *)out)[i] = one;
        else ((float *)out)[i] = 1;
    }
}
