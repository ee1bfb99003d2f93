/* Counts the values of a tensor that are NaN or infinite. All bits of their exponent are set.
 *
 * The scan reads memory that loading reads anyway. It takes the largest exponent of each chunk of fixed length and
 * looks at single values only in chunks where this exponent has all bits set. The compiler turns the loop over a chunk
 * into vector instructions, so the scan runs at the speed of memory. */
#include "model/loader.h"

enum { CHUNK = 1024 };

static bool has_bad_16(const uint8_t *p, uint16_t exponent) {
    uint16_t v[CHUNK], largest = 0;
    memcpy(v, p, sizeof v); /* the data of a file may be unaligned */
    for (int i = 0; i < CHUNK; i++) {
        uint16_t e = v[i] & exponent;
        largest = e > largest ? e : largest;
    }
    return largest == exponent;
}

static bool has_bad_32(const uint8_t *p, uint32_t exponent) {
    uint32_t v[CHUNK], largest = 0;
    memcpy(v, p, sizeof v);
    for (int i = 0; i < CHUNK; i++) {
        uint32_t e = v[i] & exponent;
        largest = e > largest ? e : largest;
    }
    return largest == exponent;
}

static bool is_bad(const uint8_t *p, size_t item, uint32_t exponent) {
    uint32_t wide = 0;
    uint16_t half = 0;
    if (item == 4) memcpy(&wide, p, 4);
    else memcpy(&half, p, 2);
    return ((item == 4 ? wide : half) & exponent) == exponent;
}

size_t um_count_not_finite(const um_tensor *t, size_t *first) {
    const uint32_t exponent = t->type == UM_F32 ? 0x7f800000 : t->type == UM_BF16 ? 0x7f80 : 0x7c00;
    const size_t item = um_dtype_size(t->type);
    const uint8_t *p = t->data;
    const size_t n = um_tensor_elements(t);
    size_t found = 0;
    for (size_t at = 0; at < n; at += CHUNK) {
        const size_t end = UM_MIN(n, at + CHUNK);
        const uint8_t *from = p + at * item;
        if (end == at + CHUNK && !(item == 4 ? has_bad_32(from, exponent) : has_bad_16(from, (uint16_t)exponent)))
            continue;
        for (size_t i = at; i < end; i++) {
            if (!is_bad(p + i * item, item, exponent)) continue;
            if (!found++) *first = i;
        }
    }
    return found;
}
