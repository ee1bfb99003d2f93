/* Groups of integers with a scale. */
#include "ops/quantize.h"

#include <math.h>

static const float LARGEST_8 = 127, LARGEST_4 = 8;

/* A group, filled up with zeros: loops of fixed length become vector instructions. */
typedef struct group {
    float x[UM_QUANT_GROUP];
} group;

static group group_of(const float *x, int n) {
    group g = {{0}};
    memcpy(g.x, x, (size_t)n * sizeof *x);
    return g;
}

/* Returns the element with the largest magnitude, NaN unless all are finite. */
static float extreme_of(const group *g) {
    enum { LANES = 8 }; /* of maxima that don't wait for each other */
    float most[LANES] = {0}, least[LANES] = {0}, zero[LANES] = {0};
    for (int i = 0; i < UM_QUANT_GROUP; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const float v = g->x[i + k];
            most[k] = v > most[k] ? v : most[k];
            least[k] = v < least[k] ? v : least[k];
            zero[k] += v * 0; /* NaN unless v is finite */
        }
    for (int k = 1; k < LANES; k++) {
        most[0] = UM_MAX(most[0], most[k]);
        least[0] = UM_MIN(least[0], least[k]);
        zero[0] += zero[k];
    }
    return isnan(zero[0]) ? zero[0] : most[0] >= -least[0] ? most[0] : least[0];
}

/* Rounds the elements * by to integers of least..most. Adding 1.5 * 2^23 rounds and leaves the integer in the low bits.
 */
static void round_all(const group *g, float by, float least, float most, int8_t q[UM_QUANT_GROUP]) {
    uint32_t bits[UM_QUANT_GROUP];
    float shifted[UM_QUANT_GROUP];
    for (int i = 0; i < UM_QUANT_GROUP; i++) {
        const float v = g->x[i] * by, cut = v < most ? v : most;
        shifted[i] = (cut > least ? cut : least) + 12582912.0f;
    }
    memcpy(bits, shifted, sizeof bits);
    for (int i = 0; i < UM_QUANT_GROUP; i++) q[i] = (int8_t)(uint8_t)bits[i];
}

uint16_t um_quantize(um_dtype type, const float *x, int n, int8_t q[UM_QUANT_GROUP]) {
    const group g = group_of(x, n);
    const float extreme = extreme_of(&g), largest = type == UM_Q8 ? LARGEST_8 : LARGEST_4;
    const float exact = (type == UM_Q8 ? fabsf(extreme) : -extreme) / largest;
    uint16_t scale = um_f32_to_f16(exact);
    /* Near zero fp16 numbers are far apart. A scale that was rounded down too much would cut the largest element. */
    if (fabsf(extreme) > (largest + 0.5f) * fabsf(um_f16_to_f32(scale))) scale++;
    const float wide = um_f16_to_f32(scale);
    memset(q, 0, UM_QUANT_GROUP);
    if (wide != 0 && !isnan(wide)) round_all(&g, 1 / wide, -largest, type == UM_Q8 ? largest : largest - 1, q);
    return scale;
}

float um_quantize_left(const float *x, int n, int8_t q[UM_QUANT_GROUP]) {
    const group g = group_of(x, n);
    const float largest = fabsf(extreme_of(&g));
    memset(q, 0, UM_QUANT_GROUP);
    if (isnan(largest)) return largest;
    if (!(largest > 1e-30f)) return 0;
    round_all(&g, LARGEST_8 / largest, -LARGEST_8, LARGEST_8, q);
    return largest / LARGEST_8;
}

size_t um_quant_bytes(um_dtype type, int64_t rows, int64_t in) {
    const size_t group = UM_QUANT_GROUP / (type == UM_Q8 ? 1 : 2) + sizeof(uint16_t);
    return um_mul(um_mul((size_t)rows, (size_t)UM_CEIL_DIV(in, UM_QUANT_GROUP)), group);
}
