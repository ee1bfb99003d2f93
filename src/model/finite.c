/* Values of a tensor that are NaN or infinite: all bits of their exponent are set.
 *
 * The scan is a pass over memory that loading reads anyway. It goes by chunks of fixed length, of which it needs only
 * the largest exponent: that loop becomes vector instructions, and runs at the speed of memory. */
#include "model/loader.h"

enum { CHUNK = 1024 };

static bool chunk16(const uint8_t *p, uint16_t exponent) {
    uint16_t v[CHUNK], largest = 0;
    memcpy(v, p, sizeof v); /* data of a file may lie at any address */
    for (int i = 0; i < CHUNK; i++) {
        uint16_t e = v[i] & exponent;
        largest = e > largest ? e : largest;
    }
    return largest == exponent;
}

static bool chunk32(const uint8_t *p, uint32_t exponent) {
    uint32_t v[CHUNK], largest = 0;
    memcpy(v, p, sizeof v);
    for (int i = 0; i < CHUNK; i++) {
        uint32_t e = v[i] & exponent;
        largest = e > largest ? e : largest;
    }
    return largest == exponent;
}

static bool value(const uint8_t *p, size_t item, uint32_t exponent) {
    uint32_t wide = 0;
    uint16_t half = 0;
    if (item == 4) memcpy(&wide, p, 4);
    else memcpy(&half, p, 2);
    return ((item == 4 ? wide : half) & exponent) == exponent;
}

size_t um_not_finite(const um_tensor *t, size_t *first) {
    const uint32_t exponent = t->type == UM_F32 ? 0x7f800000 : t->type == UM_BF16 ? 0x7f80 : 0x7c00;
    const size_t item = um_dtype_size(t->type);
    const uint8_t *p = t->data;
    size_t n = 1, found = 0;
    for (int32_t i = 0; i < t->n_dims; i++) n = um_mul(n, (size_t)t->dim[i]);
    for (size_t at = 0; at < n; at += CHUNK) {
        const size_t end = UM_MIN(n, at + CHUNK);
        const uint8_t *from = p + at * item;
        if (end == at + CHUNK && !(item == 4 ? chunk32(from, exponent) : chunk16(from, (uint16_t)exponent))) continue;
        for (size_t i = at; i < end; i++) {
            if (!value(p + i * item, item, exponent)) continue;
            if (!found++) *first = i;
        }
    }
    return found;
}
