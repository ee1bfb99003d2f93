/* Scheduled acceptance: a fixed number of positions per pass, those of largest score. */
#include <math.h>

#include "decode/decode.h"

void um_choose_largest(float *score, int32_t n_all, int32_t n, int32_t *chosen) {
    assert(n <= n_all);
    for (int32_t k = 0; k < n; k++) {
        int32_t best = 0;
        for (int32_t i = 1; i < n_all; i++)
            if (score[i] > score[best]) best = i;
        chosen[k] = best;
        score[best] = -INFINITY;
    }
}
