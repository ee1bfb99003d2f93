/* Element types: names, sizes and exact conversions. */
#include <math.h>

#include "ops/ops.h"

size_t um_dtype_size(um_dtype t) {
    assert(t != UM_Q8 && t != UM_Q4);
    return t == UM_F32 ? 4 : t == UM_F8 ? 1 : 2;
}

const char *um_dtype_name(um_dtype t) {
    static const char *const name[] = {[UM_F32] = "float32",    [UM_BF16] = "bfloat16", [UM_F16] = "float16",
                                       [UM_F8] = "float8_e4m3", [UM_Q8] = "q8",         [UM_Q4] = "q4"};
    assert((size_t)t < UM_LEN(name));
    return name[t];
}

static float float_of_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of_float(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

float um_bf16_to_f32(uint16_t v) { return float_of_bits((uint32_t)v << 16); }

uint16_t um_f32_to_bf16(float v) {
    uint32_t bits = bits_of_float(v);
    /* Rounding could turn a NaN into infinity. Keeps the top bits of the mantissa and makes the NaN quiet. */
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float um_f16_to_f32(uint16_t v) {
    uint32_t sign = (uint32_t)(v & 0x8000) << 16, exponent = v >> 10 & 31, mantissa = v & 0x3ff;
    if (exponent == 31) return float_of_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent) return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float tiny = (float)mantissa * 0x1p-24f; /* subnormal: exact in fp32 */
    return sign ? -tiny : tiny;
}

uint16_t um_f32_to_f16(float v) {
    uint32_t bits = bits_of_float(v), sign = bits >> 16 & 0x8000;
    const float size = fabsf(v);
    if (isnan(v)) return (uint16_t)(sign | 0x7e00);
    if (size >= 65520) return (uint16_t)(sign | 0x7c00); /* the largest number is 65504 */
    /* Subnormal results are multiples of 2^-24. Near 0.5 fp32 numbers are 2^-24 apart, so adding 0.5 rounds. */
    if (size < 0x1p-14f) return (uint16_t)(sign | (bits_of_float(size + 0.5f) - bits_of_float(0.5f)));
    bits &= 0x7fffffffu;
    bits += 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | ((bits >> 13) - (112 << 10)));
}

float um_f8_to_f32(uint8_t v) {
    uint32_t sign = (uint32_t)(v & 0x80) << 24, exponent = v >> 3 & 15, mantissa = v & 7;
    if ((v & 0x7f) == 0x7f) return NAN;
    if (exponent) return float_of_bits(sign | (exponent + 120) << 23 | mantissa << 20);
    float tiny = (float)mantissa * 0x1p-9f;
    return sign ? -tiny : tiny;
}

uint8_t um_f32_to_f8(float v) {
    uint32_t bits = bits_of_float(v), sign = bits >> 24 & 0x80;
    float size = fabsf(v);
    if (isnan(v)) return (uint8_t)(sign | 0x7f);
    if (size > 448) return (uint8_t)(sign | 0x7e);
    /* Subnormal results are multiples of 2^-9. Near 2^14 fp32 numbers are 2^-9 apart, so adding 2^14 rounds. */
    if (size < 0x1p-6f) return (uint8_t)(sign | (bits_of_float(size + 0x1p14f) - bits_of_float(0x1p14f)));
    bits &= 0x7fffffffu;
    bits += 0x7ffff + (bits >> 20 & 1);
    return (uint8_t)(sign | ((bits >> 20) - (120 << 3)));
}

float um_f8_scale(const float *x, size_t n) {
    float largest = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) return NAN;
        largest = UM_MAX(largest, fabsf(x[i]));
    }
    return largest / 448;
}

uint8_t um_f8_code(float v, float scale) { return scale > 0 ? um_f32_to_f8(v / scale) : 0; }
