/* Numbers as text, independent of the locale that a program using the library may have set. */
#include "base/base.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>

bool um_parse_int(const char *s, int64_t *out) {
    const char *digits = s + (*s == '-' || *s == '+');
    if (!*digits || strspn(digits, "0123456789") != strlen(digits)) return false;
    errno = 0;
    long long v = strtoll(s, NULL, 10);
    if (errno) return false;
    *out = v;
    return true;
}

/* strtod in the C locale. Changes the calling thread's locale during the call. */
static double c_strtod(const char *s, char **end) {
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t before = uselocale(c);
    double v = strtod(s, end);
    uselocale(before);
    freelocale(c);
    return v;
}

bool um_parse_double(const char *s, double *out) {
    if (!*s || strspn(s, "0123456789+-.eE") != strlen(s)) return false;
    char *end = NULL;
    double v = c_strtod(s, &end);
    if (*end || !isfinite(v)) return false;
    *out = v;
    return true;
}

/* Replaces the locale's decimal point by '.'. In %g of a finite number, all bytes that are not digits, signs or an 'e'
 * belong to the decimal point, which may be several bytes long. */
static void fix_point(char *s) {
    char *w = s;
    for (const char *r = s; *r; r++) {
        if (strchr("0123456789+-e", *r)) *w++ = *r;
        else if (w == s || w[-1] != '.') *w++ = '.';
    }
    *w = '\0';
}

void um_format_double(double v, char out[UM_NUMBER_MAX]) {
    assert(isfinite(v));
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, UM_NUMBER_MAX, "%.*g", digits, v);
        if (strtod(out, NULL) == v) break;
    }
    fix_point(out);
}

void um_format_float(float v, char out[UM_NUMBER_MAX]) {
    assert(isfinite(v));
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(out, UM_NUMBER_MAX, "%.*g", digits, (double)v);
        if (strtof(out, NULL) == v) break;
    }
    fix_point(out);
}

/* Divides *v by 1000 until at most three digits are left before the point, counting those that rounding adds. Returns
 * the number of divisions, at most `most`. */
static size_t scale(double *v, size_t most) {
    size_t n = 0;
    for (; *v >= 999.5 && n < most; n++) *v /= 1000;
    return n;
}

const char *um_bytes_text(char out[UM_BYTES_TEXT], double bytes) {
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    const size_t unit = scale(&bytes, UM_LEN(units) - 1);
    snprintf(out, UM_BYTES_TEXT, "%.*f %s", unit && bytes < 99.95 ? 1 : 0, bytes, units[unit]);
    return out;
}

const char *um_count_text(char out[UM_COUNT_TEXT], double n) {
    static const char *const units[] = {"", " k", " M", " B", " T"};
    const size_t unit = scale(&n, UM_LEN(units) - 1);
    const int digits = !unit || n >= 99.95 ? 0 : n >= 9.995 ? 1 : 2;
    snprintf(out, UM_COUNT_TEXT, "%.*f%s", digits, n, units[unit]);
    return out;
}
