/* y[to[i]] = x[from[i]] */
#include "ops/ref/ref.h"

void um_ref_copy_rows(um_dev *dev, const float *x, const int32_t *from, const int32_t *to, int32_t n_rows,
                      int32_t stride, int32_t n, float *y) {
    (void)dev;
    for (int32_t i = 0; i < n_rows; i++) {
        const float *row = x + (size_t)(from ? from[i] : i) * (size_t)stride;
        float *copy = y + (size_t)(to ? to[i] : i) * (size_t)stride;
        for (int32_t k = 0; k < n; k++) copy[k] = row[k];
    }
}
