/* Character classes, case conversion, UTF-8 and the byte table. White space and numbers are looked up in
 * classes_table.c. Word characters, punctuation and case come from utf8proc. */
#include <utf8proc.h>

#include "text/tok.h"

bool um_is_space(uint32_t cp) { return um_class_of(cp) == UM_CLASS_SPACE; }
bool um_is_number(uint32_t cp) { return um_class_of(cp) == UM_CLASS_NUMBER; }

bool um_is_word(uint32_t cp) {
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
    }
}

bool um_is_punct(uint32_t cp) {
    if (cp < 0x80) return cp > ' ' && cp < 0x7F && !(cp >= '0' && cp <= '9') && !((cp | 32) >= 'a' && (cp | 32) <= 'z');
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

_Static_assert(UTF8PROC_CATEGORY_PC < UTF8PROC_CATEGORY_PO && UTF8PROC_CATEGORY_PO - UTF8PROC_CATEGORY_PC == 6,
               "the seven P categories are neighbours");

static void put(uint32_t cp, um_buf *out) {
    char b[4];
    um_buf_append(out, b, (size_t)um_utf8_put(cp, b));
}

void um_to_lower(um_str s, um_buf *out) {
    int len;
    for (size_t i = 0; i < s.n; i += (size_t)len) {
        uint32_t cp = um_cp_at(s.p + i, s.n - i, &len);
        if (cp == 0x130) { /* the only character whose lower case is two characters */
            put('i', out);
            put(0x307, out);
        } else put((uint32_t)utf8proc_tolower((utf8proc_int32_t)cp), out);
    }
}

/* Appends a character in full upper case. If the full upper case has several characters, so has the full case folding,
 * and the upper case of the folding is the result. The two exceptions, U+0130 and U+1E9E, are already upper case. */
static void upper_one(uint32_t cp, um_buf *out) {
    utf8proc_int32_t fold[8];
    int boundary = 0;
    if (cp >= 0x80 && cp != 0x1E9E && cp != 0x130) {
        utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, fold, (utf8proc_ssize_t)UM_LEN(fold),
                                                     UTF8PROC_CASEFOLD, &boundary);
        if (n > 1 && n <= (utf8proc_ssize_t)UM_LEN(fold)) {
            for (utf8proc_ssize_t i = 0; i < n; i++) put((uint32_t)utf8proc_toupper(fold[i]), out);
            return;
        }
    }
    put((uint32_t)utf8proc_toupper((utf8proc_int32_t)cp), out);
}

void um_to_upper(um_str s, um_buf *out) {
    int len;
    for (size_t i = 0; i < s.n; i += (size_t)len) upper_one(um_cp_at(s.p + i, s.n - i, &len), out);
}

uint32_t um_cp_at(const char *p, size_t n, int *len) {
    uint32_t cp = (uint8_t)*p;
    *len = 1;
    if (cp < 0x80) return cp;
    int l = um_utf8_next(p, n, &cp);
    if (l == 0) return 0xFFFD;
    *len = l;
    return cp;
}

uint32_t um_cp_before(const char *p, size_t n, int *len) {
    size_t i = n - 1;
    while (i > 0 && n - i < 4 && ((uint8_t)p[i] & 0xC0) == 0x80) i--;
    uint32_t cp = um_cp_at(p + i, n - i, len);
    *len = (int)(n - i);
    return cp;
}

void um_utf8_repair(um_str s, um_buf *out) {
    size_t i = 0;
    while (i < s.n) {
        size_t good = um_utf8_check(s.p + i, s.n - i);
        um_buf_append(out, s.p + i, good);
        i += good;
        if (i == s.n) break;
        bool incomplete;
        i += um_utf8_bad(s.p + i, s.n - i, &incomplete);
        put(0xFFFD, out);
    }
}

uint32_t um_byte_to_char(uint8_t b) {
    if ((b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE) return b;
    if (b <= 0x20) return 0x100u + b;
    if (b <= 0xA0) return 0x121u + (b - 0x7Fu);
    return 0x143; /* 0xAD */
}

int um_stand_in_byte(uint32_t cp) {
    if (cp < 0x100) return um_byte_to_char((uint8_t)cp) == cp ? (int)cp : -1;
    if (cp <= 0x120) return (int)(cp - 0x100);
    if (cp <= 0x142) return (int)(cp - 0x121 + 0x7F);
    return cp == 0x143 ? 0xAD : -1;
}

bool um_byte_chars_decode(um_str token, um_buf *out) {
    size_t before = out->len;
    int len;
    um_buf_reserve(out, token.n);
    for (size_t i = 0; i < token.n; i += (size_t)len) {
        int b = um_stand_in_byte(um_cp_at(token.p + i, token.n - i, &len));
        if (b < 0) {
            out->len = before;
            return false;
        }
        um_buf_putc(out, (char)b);
    }
    return true;
}

void um_byte_chars_encode(um_str bytes, um_buf *out) {
    for (size_t i = 0; i < bytes.n; i++) put(um_byte_to_char((uint8_t)bytes.p[i]), out);
}
