/* Filters for text and numbers, and the lookup of all filters. */
#include <math.h>
#include <stdlib.h>

#include "text/template.h"
#include "text/tok.h"

#define FILTER(name) static um_val name(um_render *r, um_val in, const um_val *a, const um_arg_values *args)
#define UNUSED       (void)r, (void)in, (void)a, (void)args
#define GIVEN(v)     ((v).kind != UM_V_MISSING && (v).kind != UM_V_NONE)

static int64_t int_or(um_render *r, um_val v, int64_t def, const char *what) {
    return GIVEN(v) ? um_as_int(r, v, what) : def;
}
static um_str str_or(um_render *r, um_val v, um_str def, const char *what) {
    return GIVEN(v) ? um_as_str(r, v, what) : def;
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

FILTER(f_tojson) {
    UNUSED;
    int64_t indent = int_or(r, a[1], -1, "tojson: indent");
    if (indent > 100) um_render_fail(r, "tojson: indent must be at most 100");
    um_str comma = indent < 0 ? UM_STR(", ") : UM_STR(","), colon = UM_STR(": ");
    if (GIVEN(a[2])) {
        const um_list *sep = um_elements(r, a[2]);
        if (sep->n != 2) um_render_fail(r, "tojson: separators must be two strings");
        comma = um_as_str(r, sep->v[0], "tojson: a separator");
        colon = um_as_str(r, sep->v[1], "tojson: a separator");
    }
    return um_val_str(um_val_to_json(r, in, um_truth(a[0]), (int)indent, comma, colon, um_truth(a[3])));
}

FILTER(f_trim) {
    UNUSED;
    um_str chars = str_or(r, a[0], UM_STR(""), "trim: chars"), s = um_text(r, in);
    um_render_scan(r, s.n * chars.n);
    return um_val_str(um_strip(s, GIVEN(a[0]) ? &chars : NULL, true, true));
}

FILTER(f_upper) {
    UNUSED;
    return um_val_str(um_str_case(r, um_text(r, in), 'u'));
}
FILTER(f_lower) {
    UNUSED;
    return um_val_str(um_str_case(r, um_text(r, in), 'l'));
}
FILTER(f_title) {
    UNUSED;
    return um_val_str(um_str_case(r, um_text(r, in), 't'));
}
FILTER(f_capitalize) {
    UNUSED;
    return um_val_str(um_str_case(r, um_text(r, in), 'c'));
}
FILTER(f_string) {
    UNUSED;
    return um_val_str(um_text(r, in));
}
FILTER(f_safe) {
    UNUSED;
    return in;
}

FILTER(f_default) {
    UNUSED;
    bool missing = in.kind == UM_V_UNDEF || (um_truth(a[1]) && !um_truth(in));
    if (!missing) return in;
    return a[0].kind == UM_V_MISSING ? um_val_str(UM_STR("")) : a[0];
}

FILTER(f_replace) {
    UNUSED;
    return um_val_str(um_str_replace(r, um_text(r, in), um_as_str(r, a[0], "replace: old"),
                                     um_as_str(r, a[1], "replace: new"), int_or(r, a[2], -1, "replace: count")));
}

FILTER(f_length) {
    UNUSED;
    return um_val_int((int64_t)um_length(r, in));
}

FILTER(f_escape) {
    UNUSED;
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    um_str s = um_text(r, in);
    um_sb out = {.r = r};
    for (size_t i = 0; i < s.n; i++) {
        const char *hit = s.p[i] ? strchr(from, s.p[i]) : NULL;
        if (hit) um_sb_puts(&out, to[hit - from]);
        else um_sb_putc(&out, s.p[i]);
    }
    return um_val_str(um_sb_str(&out));
}

FILTER(f_urlencode) {
    UNUSED;
    um_str s = um_text(r, in);
    um_sb out = {.r = r};
    for (size_t i = 0; i < s.n; i++) {
        uint8_t c = (uint8_t)s.p[i];
        char text[8];
        bool plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || (c && strchr("-_.~/", c));
        snprintf(text, sizeof text, plain ? "%c" : "%%%02X", c);
        um_sb_puts(&out, text);
    }
    return um_val_str(um_sb_str(&out));
}

FILTER(f_indent) {
    UNUSED;
    um_str s = um_text(r, in), pad = {NULL, 0};
    if (a[0].kind == UM_V_STR) pad = a[0].s;
    else {
        um_sb spaces = {.r = r};
        for (int64_t i = 0, n = int_or(r, a[0], 4, "indent: width"); i < n; i++) um_sb_putc(&spaces, ' ');
        pad = um_sb_str(&spaces);
    }
    um_sb out = {.r = r};
    bool first = um_truth(a[1]), blank = um_truth(a[2]);
    for (size_t at = 0, line = 0;; line++) {
        const char *nl = s.n > at ? (const char *)memchr(s.p + at, '\n', s.n - at) : NULL;
        size_t end = nl ? (size_t)(nl - s.p) : s.n;
        if (line == 0 ? first : (blank || end > at)) um_sb_add(&out, pad);
        um_sb_add(&out, (um_str){s.p + at, end - at});
        if (!nl) break;
        um_sb_putc(&out, '\n');
        at = end + 1;
    }
    return um_val_str(um_sb_str(&out));
}

FILTER(f_wordcount) {
    UNUSED;
    um_str s = um_text(r, in);
    int64_t n = 0;
    int len;
    bool inside = false;
    for (size_t i = 0; i < s.n; i += (size_t)len) {
        bool word = um_is_word(um_cp_at(s.p + i, s.n - i, &len));
        n += word && !inside;
        inside = word;
    }
    return um_val_int(n);
}

FILTER(f_center) {
    UNUSED;
    return um_val_str(um_str_center(r, um_text(r, in), int_or(r, a[0], 80, "center: width"), UM_STR(" ")));
}

FILTER(f_truncate) {
    UNUSED;
    um_str s = um_text(r, in), end = str_or(r, a[2], UM_STR("..."), "truncate: end");
    int64_t length = int_or(r, a[0], 255, "truncate: length"), leeway = int_or(r, a[3], 5, "truncate: leeway");
    int64_t tail = (int64_t)um_cp_count(end), n = (int64_t)um_cp_count(s);
    if (length < tail || leeway < 0) um_render_fail(r, "truncate: length must be at least %lld", (long long)tail);
    if (n <= length || n - length <= leeway) return um_val_str(s);
    um_str kept = um_cp_slice(s, 0, (size_t)(length - tail));
    if (!um_truth(a[1])) { /* cut at a space, not inside a word, if there is a space */
        const char *space = kept.n ? (const char *)memrchr(kept.p, ' ', kept.n) : NULL;
        if (space) kept.n = (size_t)(space - kept.p);
    }
    um_sb out = {.r = r};
    um_sb_add(&out, kept);
    um_sb_add(&out, end);
    return um_val_str(um_sb_str(&out));
}

FILTER(f_format) {
    UNUSED;
    return um_val_str(um_str_printf(r, um_text(r, in), args));
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* Copies s without outer white space, NUL-terminated. Returns false if the text can't be a number. */
static bool number_text(um_str s, char *out, size_t size) {
    s = um_strip(s, NULL, true, true);
    if (s.n == 0 || s.n >= size || memchr(s.p, 0, s.n)) return false;
    memcpy(out, s.p, s.n);
    out[s.n] = 0;
    return strspn(out, "0123456789abcdefABCDEFxXoO+-._infINFtyTYA") == s.n;
}

static bool float_of(um_val in, double *out) {
    char text[128], *end;
    if (um_is_numeric(in)) {
        *out = um_as_double(in);
        return true;
    }
    if (in.kind != UM_V_STR || !number_text(in.s, text, sizeof text) || strpbrk(text, "xX_")) return false;
    *out = strtod(text, &end);
    return *end == 0;
}

static bool int_of(um_val in, int base, int64_t *out) {
    char text[128], *end;
    double f;
    if (in.kind == UM_V_INT || in.kind == UM_V_BOOL) {
        *out = in.kind == UM_V_BOOL ? in.b : in.i;
        return true;
    }
    if (in.kind == UM_V_STR && number_text(in.s, text, sizeof text)) {
        *out = strtoll(text, &end, base);
        if (*end == 0) return true;
    }
    if (!float_of(in, &f) || !(fabs(f) < 9.2e18)) return false;
    *out = (int64_t)f;
    return true;
}

FILTER(f_int) {
    UNUSED;
    int64_t v, base = int_or(r, a[1], 10, "int: base");
    if (base != 0 && (base < 2 || base > 36)) um_render_fail(r, "int: base must be 0 or 2 to 36");
    if (int_of(in, (int)base, &v)) return um_val_int(v);
    return a[0].kind == UM_V_MISSING ? um_val_int(0) : a[0];
}

FILTER(f_float) {
    UNUSED;
    double v;
    if (float_of(in, &v)) return um_val_float(v);
    return a[0].kind == UM_V_MISSING ? um_val_float(0) : a[0];
}

FILTER(f_abs) {
    UNUSED;
    if (in.kind == UM_V_FLOAT) return um_val_float(fabs(in.f));
    int64_t v = um_as_int(r, in, "abs: the value");
    if (v == INT64_MIN) um_render_fail(r, "an integer does not fit into 64 bits");
    return um_val_int(v < 0 ? -v : v);
}

FILTER(f_round) {
    UNUSED;
    int64_t digits = int_or(r, a[0], 0, "round: precision");
    um_str how = str_or(r, a[1], UM_STR("common"), "round: method");
    if (in.kind == UM_V_UNDEF) um_render_undefined(r, in);
    if (!um_is_numeric(in)) um_render_fail(r, "round: %s is no number", um_kind_name(in.kind));
    if (digits < -300 || digits > 300) um_render_fail(r, "round: precision must be within -300..300");
    double x = um_as_double(in), scale = pow(10, (double)digits);
    if (um_str_eq(how, UM_STR("ceil"))) return um_val_float(ceil(x * scale) / scale);
    if (um_str_eq(how, UM_STR("floor"))) return um_val_float(floor(x * scale) / scale);
    if (!um_str_eq(how, UM_STR("common"))) um_render_fail(r, "round: method must be common, ceil or floor");
    if (in.kind != UM_V_FLOAT && digits >= 0) return in;
    if (digits < 0) {
        double v = rint(x * scale) / scale;
        return in.kind == UM_V_FLOAT ? um_val_float(v) : um_val_int((int64_t)v);
    }
    char text[720];                                      /* up to 309 digits before the point and 300 after it */
    snprintf(text, sizeof text, "%.*f", (int)digits, x); /* the C library rounds the exact value, half to even */
    return um_val_float(strtod(text, NULL));
}

const um_filter um_filters_text[] = {
    {"tojson", "ensure_ascii indent separators sort_keys", f_tojson},
    {"trim", "chars", f_trim},
    {"upper", "", f_upper},
    {"lower", "", f_lower},
    {"title", "", f_title},
    {"capitalize", "", f_capitalize},
    {"string", "", f_string},
    {"safe", "", f_safe},
    {"default", "default_value boolean", f_default},
    {"d", "default_value boolean", f_default},
    {"replace", "old new count", f_replace},
    {"length", "", f_length},
    {"count", "", f_length},
    {"escape", "", f_escape},
    {"e", "", f_escape},
    {"urlencode", "", f_urlencode},
    {"indent", "width first blank", f_indent},
    {"wordcount", "", f_wordcount},
    {"center", "width", f_center},
    {"truncate", "length killwords end leeway", f_truncate},
    {"format", NULL, f_format},
    {"int", "default base", f_int},
    {"float", "default", f_float},
    {"abs", "", f_abs},
    {"round", "precision method", f_round},
};
const size_t um_filters_text_n = UM_LEN(um_filters_text);

/* ---- Lookup ------------------------------------------------------------------------------------------------------ */

static const um_filter *filter_at(size_t i) {
    return i < um_filters_text_n ? &um_filters_text[i] : &um_filters_list[i - um_filters_text_n];
}

int um_filter_find(um_str name) {
    for (size_t i = 0; i < um_filters_text_n + um_filters_list_n; i++)
        if (um_str_eq(name, um_str_of(filter_at(i)->name))) return (int)i;
    return -1;
}

um_val um_filter_apply(um_render *r, int index, um_val in, const um_arg_values *args) {
    const um_filter *f = filter_at((size_t)index);
    um_val a[UM_PARAMS_MAX];
    um_render_work(r, in);
    if (f->params) um_args_bind(r, f->name, args, f->params, a);
    return f->fn(r, in, a, args);
}
