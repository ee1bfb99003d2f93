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

void um_ref_sum(um_dev *dev, const float *const *part, int n_parts, size_t n, bool add, float *y) {
    (void)dev;
    for (size_t i = 0; i < n; i++) {
        float total = part[0][i];
        for (int p = 1; p < n_parts; p++) total += part[p][i];
        y[i] = add ? y[i] + total : total;
    }
}
