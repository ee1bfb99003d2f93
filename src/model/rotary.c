/* The frequencies of rotary embeddings, plain or stretched (YaRN, arXiv 2309.00071). */
#include <math.h>

#include "model/model.h"

/* Returns the index of the pair that turns `turns` times within the original positions. */
static double pair_of(const um_arch *a, double turns) {
    static const double two_pi = 6.283185307179586;
    return a->rope_dim * log(a->yarn.original / (turns * two_pi)) / (2 * log(a->rope_theta));
}

/* Returns how far pair i is on the way from a frequency that stays to one that is divided, 0..1. */
static float ramp_of(const um_arch *a, int32_t i) {
    const double low = fmax(floor(pair_of(a, a->yarn.beta_fast)), 0);
    double high = fmin(ceil(pair_of(a, a->yarn.beta_slow)), a->rope_dim - 1);
    if (high == low) high += 0.001;
    return fminf(fmaxf((float)((i - low) / (high - low)), 0), 1);
}

float um_arch_frequency(const um_arch *a, const um_arch_kind *k, int32_t i) {
    if (i >= k->rope_pairs) return 0;
    const float f = (float)(1 / pow(k->rope_theta, (double)(2 * i) / k->rope_dim) / k->rope_factor);
    if (a->yarn.factor == 0) return f;
    const float ramp = ramp_of(a, i);
    return f * (1 - ramp) + f / (float)a->yarn.factor * ramp;
}

float um_arch_rotary_scale(const um_arch *a) {
    const um_yarn *y = &a->yarn;
    if (y->factor == 0) return 1;
    const double grows = 0.1 * log(y->factor);
    return (float)((grows * y->mscale + 1) / (grows * y->mscale_all_dim + 1));
}
