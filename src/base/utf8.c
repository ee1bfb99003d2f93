/* UTF-8: decoding with the checks of Unicode 15, table 3-7, and terminal widths. */
#include "base/base.h"

#include <utf8proc.h>

/* Returns the length of the sequence that starts with byte c, or 0 when no sequence does. [*lo, *hi] is the range of
 * its second byte; narrowed ranges exclude overlong forms, surrogates and code points above U+10FFFF. */
static int lead(unsigned char c, unsigned char *lo, unsigned char *hi) {
    *lo = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
    *hi = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    if (c < 0x80) return 1;
    if (c >= 0xC2 && c <= 0xDF) return 2;
    if (c >= 0xE0 && c <= 0xEF) return 3;
    return c >= 0xF0 && c <= 0xF4 ? 4 : 0;
}

/* Returns the number of bytes at s that are a prefix of a well-formed sequence. *need gets the length of that sequence,
 * or 0 when there is none. */
static size_t well_formed(const char *s, size_t n, int *need) {
    const unsigned char *u = (const unsigned char *)s;
    unsigned char lo = 0, hi = 0;
    *need = n ? lead(u[0], &lo, &hi) : 0;
    if (*need == 0) return 0;
    size_t i = 1;
    for (; i < n && i < (size_t)*need; i++, lo = 0x80, hi = 0xBF)
        if (u[i] < lo || u[i] > hi) break;
    return i;
}

int um_utf8_next(const char *s, size_t n, uint32_t *cp) {
    int need = 0;
    if (well_formed(s, n, &need) != (size_t)need || need == 0) return 0;
    const unsigned char *u = (const unsigned char *)s;
    uint32_t c = need == 1 ? u[0] : u[0] & (0xFFu >> (need + 1));
    for (int i = 1; i < need; i++) c = c << 6 | (u[i] & 0x3Fu);
    *cp = c;
    return need;
}

int um_utf8_put(uint32_t cp, char out[4]) {
    assert(cp <= 0x10FFFF && (cp < 0xD800 || cp > 0xDFFF));
    int n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const unsigned char mark[5] = {0, 0x00, 0xC0, 0xE0, 0xF0};
    for (int i = n - 1; i > 0; i--, cp >>= 6) out[i] = (char)(0x80 | (cp & 0x3F));
    out[0] = (char)(mark[n] | cp);
    return n;
}

size_t um_utf8_check(const char *s, size_t n) {
    size_t i = 0;
    int need;
    while (i < n) {
        uint64_t eight;
        if ((unsigned char)s[i] < 0x80) { /* most text is ASCII: checks eight bytes at a time */
            for (; i + 8 <= n; i += 8) {
                memcpy(&eight, s + i, 8);
                if (eight & 0x8080808080808080u) break;
            }
            while (i < n && (unsigned char)s[i] < 0x80) i++;
            continue;
        }
        if (well_formed(s + i, n - i, &need) != (size_t)need || need == 0) return i;
        i += (size_t)need;
    }
    return n;
}

size_t um_utf8_mark(um_str s) { return s.n >= 3 && memcmp(s.p, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0; }

size_t um_utf8_bad(const char *s, size_t n, bool *incomplete) {
    int need = 0;
    size_t k = well_formed(s, n, &need);
    *incomplete = k > 0 && k == n && k < (size_t)need;
    return UM_MAX(k, (size_t)1);
}

int um_utf8_width(uint32_t cp) {
    int w = utf8proc_charwidth((utf8proc_int32_t)cp);
    return UM_MAX(w, 0);
}

bool um_utf8_is_control(uint32_t cp) {
    if (cp == '\n' || cp == '\t') return false;
    return cp < 0x20 || (cp >= 0x7F && cp < 0xA0) || (cp >= 0x202A && cp <= 0x202E) || (cp >= 0x2066 && cp <= 0x2069);
}
