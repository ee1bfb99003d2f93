/* The formats of ggml, converted to fp32.
 *
 * All numbers are little-endian. `d` and `m` are the fp16 scales of a group, and q is a code. The order of the fp32
 * operations is part of a format. A product and the sum that follows it are separate statements, so that no compiler
 * fuses them.
 *
 * The loops have fixed lengths and pointers that don't alias, so compilers turn them into vector instructions. */
#include "ops/format.h"

#include "ops/ops.h"

enum { QK = 32, QK_K = 256 }; /* elements of a small group and of a group of the formats *_K */

static float f16_at(const uint8_t *p) { return um_f16_to_f32((uint16_t)(p[0] | p[1] << 8)); }

/* ---- Groups of 32 elements --------------------------------------------------------------------------------------- */

/* d, q[32] as int8 */
static void q8_0(const void *group, float *restrict out) {
    const uint8_t *p = group;
    const float d = f16_at(p);
    for (int i = 0; i < QK; i++) out[i] = (float)(int8_t)p[2 + i] * d;
}

/* d, q[16]: the low halves of the bytes are the codes 0..15, the high halves 16..31 */
static void q4_0(const void *group, float *restrict out) {
    const uint8_t *q = (const uint8_t *)group + 2;
    const float d = f16_at(group);
    for (int i = 0; i < QK / 2; i++) {
        out[i] = d * (float)((q[i] & 15) - 8);
        out[i + QK / 2] = d * (float)((q[i] >> 4) - 8);
    }
}

/* d, m, q[16] as in q4_0 */
static void q4_1(const void *group, float *restrict out) {
    const uint8_t *p = group, *q = p + 4;
    const float d = f16_at(p), m = f16_at(p + 2);
    for (int i = 0; i < QK / 2; i++) {
        const float low = d * (float)(q[i] & 15), high = d * (float)(q[i] >> 4);
        out[i] = low + m;
        out[i + QK / 2] = high + m;
    }
}

/* Reads the codes of 5 bits: the fifth bits of all 32 codes, then their low bits as in q4_0. SSE2 can't shift each
 * element by another number, so the bits are tested with masks. */
static void codes_of_5_bits(const uint8_t *p, int32_t q[restrict QK]) {
    const uint32_t fifth_low = (uint32_t)(p[0] | p[1] << 8), fifth_high = (uint32_t)(p[2] | p[3] << 8);
    uint32_t mask[QK / 2];
    for (int i = 0; i < QK / 2; i++) mask[i] = 1u << i;
    for (int i = 0; i < QK / 2; i++) {
        q[i] = (p[4 + i] & 15) + (fifth_low & mask[i] ? 16 : 0);
        q[i + QK / 2] = (p[4 + i] >> 4) + (fifth_high & mask[i] ? 16 : 0);
    }
}

/* d, bits[4], q[16] */
static void q5_0(const void *group, float *restrict out) {
    const float d = f16_at(group);
    int32_t q[QK];
    codes_of_5_bits((const uint8_t *)group + 2, q);
    for (int i = 0; i < QK; i++) out[i] = d * (float)(q[i] - 16);
}

/* d, m, bits[4], q[16] */
static void q5_1(const void *group, float *restrict out) {
    const uint8_t *p = group;
    const float d = f16_at(p), m = f16_at(p + 2);
    int32_t q[QK];
    codes_of_5_bits(p + 4, q);
    for (int i = 0; i < QK; i++) {
        const float scaled = d * (float)q[i];
        out[i] = scaled + m;
    }
}

/* ---- Groups of 256 elements -------------------------------------------------------------------------------------- */

/* The scales and offsets of the 8 parts of a group of Q4_K and Q5_K, in units of the group's d and m. */
typedef struct part_scales {
    uint8_t scale[8], offset[8];
} part_scales;

/* p[0..3] and p[4..7] have the low 6 bits of the first four scales and offsets. Their top 2 bits are the top bits of
 * the last four, whose low 4 bits are the halves of p[8..11]. */
static part_scales part_scales_at(const uint8_t p[12]) {
    part_scales s;
    for (int i = 0; i < 4; i++) {
        s.scale[i] = p[i] & 63;
        s.offset[i] = p[4 + i] & 63;
        s.scale[4 + i] = (uint8_t)((p[8 + i] & 15) | (p[i] >> 2 & 48));
        s.offset[4 + i] = (uint8_t)(p[8 + i] >> 4 | (p[4 + i] >> 2 & 48));
    }
    return s;
}

/* d, m, scales[12], q[128]. 64 elements share 32 bytes: the low halves are the first 32, the high halves the others. */
static void q4_k(const void *group, float *restrict out) {
    const uint8_t *p = group, *q = p + 16;
    const float d = f16_at(p), m = f16_at(p + 2);
    const part_scales s = part_scales_at(p + 4);
    for (int part = 0; part < 8; part += 2, q += 32, out += 64) {
        const float d0 = d * (float)s.scale[part], m0 = m * (float)s.offset[part];
        const float d1 = d * (float)s.scale[part + 1], m1 = m * (float)s.offset[part + 1];
        for (int i = 0; i < 32; i++) {
            const float low = d0 * (float)(q[i] & 15), high = d1 * (float)(q[i] >> 4);
            out[i] = low - m0;
            out[i + 32] = high - m1;
        }
    }
}

/* d, m, scales[12], bits[32], q[128] as in q4_k. Bit k of bits[i] is the fifth bit of element i of part k. */
static void q5_k(const void *group, float *restrict out) {
    const uint8_t *p = group, *bits = p + 16, *q = p + 48;
    const float d = f16_at(p), m = f16_at(p + 2);
    const part_scales s = part_scales_at(p + 4);
    for (int part = 0; part < 8; part += 2, q += 32, out += 64) {
        const float d0 = d * (float)s.scale[part], m0 = m * (float)s.offset[part];
        const float d1 = d * (float)s.scale[part + 1], m1 = m * (float)s.offset[part + 1];
        for (int i = 0; i < 32; i++) {
            const int fifth = bits[i] >> part;
            const float low = d0 * (float)((q[i] & 15) | (fifth & 1) << 4);
            const float high = d1 * (float)(q[i] >> 4 | (fifth & 2) << 3);
            out[i] = low - m0;
            out[i + 32] = high - m1;
        }
    }
}

/* q[128], bits[64], scales[16] as int8, d. Each half of the group has 64 bytes of q and 32 of bits. Its elements 0..63
 * are the low halves of q, the others the high halves. Each byte of bits has the top 2 bits of four elements that are
 * 32 apart. */
static void q6_k(const void *group, float *restrict out) {
    const uint8_t *q = group, *bits = q + 128, *scale = q + 192;
    const float d = f16_at(q + 208);
    for (int half = 0; half < 2; half++, q += 64, bits += 32)
        for (int part = 0; part < 8; part++, out += 16) { /* 16 elements with a scale of their own */
            const uint8_t *low = q + part % 4 * 16, *top = bits + part % 2 * 16;
            const int low_shift = part / 4 * 4, top_shift = part / 2 * 2;
            const float scaled = d * (float)(int8_t)*scale++;
            for (int i = 0; i < 16; i++)
                out[i] = scaled * (float)(((low[i] >> low_shift & 15) | (top[i] >> top_shift & 3) << 4) - 32);
        }
}

/* scales[16], q[64], d, m. A byte of scales has the scale of 16 elements in its low half and their offset in its high
 * half. Each half of the group has 32 bytes of q, with four elements a byte that are 32 apart. */
static void q2_k(const void *group, float *restrict out) {
    const uint8_t *scale = group, *q = scale + 16;
    const float d = f16_at(scale + 80), m = f16_at(scale + 82);
    for (int part = 0; part < 16; part++, out += 16) {
        const uint8_t *byte = q + part / 8 * 32 + part % 2 * 16;
        const int shift = part / 2 % 4 * 2;
        const float scaled = d * (float)(scale[part] & 15), offset = m * (float)(scale[part] >> 4);
        for (int i = 0; i < 16; i++) {
            const float product = scaled * (float)(byte[i] >> shift & 3);
            out[i] = product - offset;
        }
    }
}

/* bits[32], q[64] as in q2_k, scales[12], d. A bit of 0 subtracts 4 from the code: bit k of bits[i] belongs to element
 * 32 * k + i. The 16 scales have 6 bits and an offset of 32. Their low 4 bits are the low halves of the first 8 bytes,
 * then the high halves. The last 4 bytes have their top 2 bits. */
static void q3_k(const void *group, float *restrict out) {
    const uint8_t *bits = group, *q = bits + 32, *scale = bits + 96;
    const float d = f16_at(bits + 108);
    for (int part = 0; part < 16; part++, out += 16) {
        const uint8_t *byte = q + part / 8 * 32 + part % 2 * 16, *bit = bits + part % 2 * 16;
        const int shift = part / 2 % 4 * 2, k = part / 2;
        const int low = scale[part % 8] >> part / 8 * 4 & 15, top = scale[8 + part % 4] >> part / 4 * 2 & 3;
        const float scaled = d * (float)((low | top << 4) - 32);
        for (int i = 0; i < 16; i++) out[i] = scaled * (float)((byte[i] >> shift & 3) - 4 + ((bit[i] >> k & 1) << 2));
    }
}

/* ---- Codes that are indices of a table --------------------------------------------------------------------------- */

static const float iq4_value[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/* e2m1 (2 bits exponent, 1 bit mantissa), doubled */
static const float e2m1_value[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* Converts 32 codes in the order of q4_0. */
static void look_up(const uint8_t *q, const float value[16], float d, float *restrict out) {
    float scaled[16];
    for (int i = 0; i < 16; i++) scaled[i] = d * value[i];
    for (int i = 0; i < QK / 2; i++) {
        out[i] = scaled[q[i] & 15];
        out[i + QK / 2] = scaled[q[i] >> 4];
    }
}

/* d, q[16] */
static void iq4_nl(const void *group, float *restrict out) {
    look_up((const uint8_t *)group + 2, iq4_value, f16_at(group), out);
}

/* d, the top 2 bits of 8 scales, the low 4 bits of the scales[4], q[128]. The scales have an offset of 32. */
static void iq4_xs(const void *group, float *restrict out) {
    const uint8_t *p = group;
    const float d = f16_at(p);
    const int tops = p[2] | p[3] << 8;
    for (int part = 0; part < 8; part++) {
        const int low = p[4 + part / 2] >> part % 2 * 4 & 15, top = tops >> 2 * part & 3;
        look_up(p + 8 + part * 16, iq4_value, d * (float)((low | top << 4) - 32), out + part * QK);
    }
}

/* exponent, q[16]. The scale is 2^(exponent - 128), because the values of the table are doubled. */
static void mxfp4(const void *group, float *restrict out) {
    const uint8_t *p = group;
    const uint32_t bits = p[0] < 2 ? (uint32_t)0x200000 << p[0] : (uint32_t)(p[0] - 1) << 23;
    float d;
    memcpy(&d, &bits, sizeof d);
    look_up(p + 1, e2m1_value, d, out);
}

/* ---- The tables -------------------------------------------------------------------------------------------------- */

#define FORMAT(id, title, n, size, type)                                                                               \
    const um_format um_format_##id = {.name = title, .elements = n, .bytes = size, .to_f32 = id, .product = type};
FORMAT(q8_0, "Q8_0", QK, 34, UM_Q8)
FORMAT(q4_0, "Q4_0", QK, 18, UM_Q4)
FORMAT(q4_1, "Q4_1", QK, 20, UM_Q8)
FORMAT(q5_0, "Q5_0", QK, 22, UM_Q8)
FORMAT(q5_1, "Q5_1", QK, 24, UM_Q8)
FORMAT(q2_k, "Q2_K", QK_K, 84, UM_Q8)
FORMAT(q3_k, "Q3_K", QK_K, 110, UM_Q8)
FORMAT(q4_k, "Q4_K", QK_K, 144, UM_Q8)
FORMAT(q5_k, "Q5_K", QK_K, 176, UM_Q8)
FORMAT(q6_k, "Q6_K", QK_K, 210, UM_Q8)
FORMAT(iq4_nl, "IQ4_NL", QK, 18, UM_Q8)
FORMAT(iq4_xs, "IQ4_XS", QK_K, 136, UM_Q8)
FORMAT(mxfp4, "MXFP4", QK, 17, UM_Q8)

/* By the numbers of ggml. NULL: a number that ggml no longer uses. */
static const struct {
    const char *name;
    const um_format *format;
} types[] = {
    [0] = {"F32", NULL},
    [1] = {"F16", NULL},
    [2] = {"Q4_0", &um_format_q4_0},
    [3] = {"Q4_1", &um_format_q4_1},
    [6] = {"Q5_0", &um_format_q5_0},
    [7] = {"Q5_1", &um_format_q5_1},
    [8] = {"Q8_0", &um_format_q8_0},
    [9] = {"Q8_1", NULL},
    [10] = {"Q2_K", &um_format_q2_k},
    [11] = {"Q3_K", &um_format_q3_k},
    [12] = {"Q4_K", &um_format_q4_k},
    [13] = {"Q5_K", &um_format_q5_k},
    [14] = {"Q6_K", &um_format_q6_k},
    [15] = {"Q8_K", NULL},
    [16] = {"IQ2_XXS", NULL},
    [17] = {"IQ2_XS", NULL},
    [18] = {"IQ3_XXS", NULL},
    [19] = {"IQ1_S", NULL},
    [20] = {"IQ4_NL", &um_format_iq4_nl},
    [21] = {"IQ3_S", NULL},
    [22] = {"IQ2_S", NULL},
    [23] = {"IQ4_XS", &um_format_iq4_xs},
    [24] = {"I8", NULL},
    [25] = {"I16", NULL},
    [26] = {"I32", NULL},
    [27] = {"I64", NULL},
    [28] = {"F64", NULL},
    [29] = {"IQ1_M", NULL},
    [30] = {"BF16", NULL},
    [31] = {"Q4_0_4_4", NULL}, /* 31..33 and 36..38 were formats of single machines */
    [32] = {"Q4_0_4_8", NULL},
    [33] = {"Q4_0_8_8", NULL},
    [34] = {"TQ1_0", NULL},
    [35] = {"TQ2_0", NULL},
    [36] = {"IQ4_NL_4_4", NULL},
    [37] = {"IQ4_NL_4_8", NULL},
    [38] = {"IQ4_NL_8_8", NULL},
    [39] = {"MXFP4", &um_format_mxfp4},
    [40] = {"NVFP4", NULL},
    [41] = {"Q1_0", NULL},
};

const um_format *um_format_gguf(uint32_t ggml_type) {
    return ggml_type < UM_LEN(types) ? types[ggml_type].format : NULL;
}

const char *um_format_gguf_name(uint32_t ggml_type) {
    const char *name = ggml_type < UM_LEN(types) ? types[ggml_type].name : NULL;
    return name ? name : "unknown";
}
