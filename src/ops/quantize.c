/* Groups of integers with a scale. */
#include "ops/quantize.h"

#include <math.h>

static const float LARGEST_8 = 127, LARGEST_4 = 8;

/* Returns the element of x [n] with the largest magnitude, NaN unless all are finite. */
static float extreme_of(const float *x, int n) {
    float extreme = 0;
    for (int i = 0; i < n; i++) {
        if (!isfinite(x[i])) return NAN;
        if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
    }
    return extreme;
}

static void round_all(const float *x, int n, float by, float least, float most, int8_t *q) {
    for (int i = 0; i < n; i++) q[i] = (int8_t)lrintf(UM_MAX(least, UM_MIN(x[i] * by, most)));
}

uint16_t um_quantize(um_dtype type, const float *x, int n, int8_t q[UM_QUANT_GROUP]) {
    const float extreme = extreme_of(x, n), largest = type == UM_Q8 ? LARGEST_8 : LARGEST_4;
    const float exact = (type == UM_Q8 ? fabsf(extreme) : -extreme) / largest;
    uint16_t scale = um_f32_to_f16(exact);
    /* Near zero fp16 numbers are far apart. A scale that was rounded down too much would cut the largest element. */
    if (fabsf(extreme) > (largest + 0.5f) * fabsf(um_f16_to_f32(scale))) scale++;
    const float wide = um_f16_to_f32(scale);
    memset(q, 0, UM_QUANT_GROUP);
    if (wide != 0 && !isnan(wide)) round_all(x, n, 1 / wide, -largest, type == UM_Q8 ? largest : largest - 1, q);
    return scale;
}

float um_quantize_left(const float *x, int n, int8_t q[UM_QUANT_GROUP]) {
    const float largest = fabsf(extreme_of(x, n));
    memset(q, 0, UM_QUANT_GROUP);
    if (isnan(largest)) return largest;
    if (!(largest > 1e-30f)) return 0;
    round_all(x, n, LARGEST_8 / largest, -LARGEST_8, LARGEST_8, q);
    return largest / LARGEST_8;
}

size_t um_quant_bytes(um_dtype type, int64_t rows, int64_t in) {
    const size_t group = UM_QUANT_GROUP / (type == UM_Q8 ? 1 : 2) + sizeof(uint16_t);
    return um_mul(um_mul((size_t)rows, (size_t)UM_CEIL_DIV(in, UM_QUANT_GROUP)), group);
}
