/* Values of templates. Truth, equality, order and text are those of Python. */
#include <math.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "text/template.h"
#include "text/tok.h"

/* ---- Construction ------------------------------------------------------------------------------------------------ */

um_val um_val_of(um_kind k) {
    um_val v;
    memset(&v, 0, sizeof v);
    v.kind = k;
    return v;
}

um_val um_val_bool(bool b) {
    um_val v = um_val_of(UM_V_BOOL);
    v.b = b;
    return v;
}

um_val um_val_int(int64_t i) {
    um_val v = um_val_of(UM_V_INT);
    v.i = i;
    return v;
}

um_val um_val_float(double f) {
    um_val v = um_val_of(UM_V_FLOAT);
    v.f = f;
    return v;
}

um_val um_val_str(um_str s) {
    um_val v = um_val_of(UM_V_STR);
    v.s = s;
    return v;
}

um_val um_val_undef(um_str name) {
    um_val v = um_val_of(UM_V_UNDEF);
    v.s = name;
    return v;
}

um_val um_val_list(um_render *r, um_kind kind, size_t cap) {
    um_val v = um_val_of(kind);
    v.list = (um_list *)um_render_alloc(r, sizeof *v.list);
    if (cap) v.list->v = (um_val *)um_render_alloc(r, um_mul(cap, sizeof(um_val)));
    v.list->cap = cap;
    return v;
}

um_val um_val_pair(um_render *r, um_val a, um_val b) {
    um_val v = um_val_list(r, UM_V_TUPLE, 2);
    um_list_push(r, v.list, a);
    um_list_push(r, v.list, b);
    return v;
}

void um_list_push(um_render *r, um_list *l, um_val v) {
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 8;
        um_val *grown = (um_val *)um_render_alloc(r, cap * sizeof *grown);
        if (l->n) memcpy(grown, l->v, l->n * sizeof *grown);
        l->v = grown;
        l->cap = cap;
    }
    l->v[l->n++] = v;
}

const char *um_kind_name(um_kind k) {
    static const char *const names[] = {
        "nothing", "undefined", "none",  "boolean",  "integer", "float", "string",   "list",     "tuple",  "dict",
        "range",   "namespace", "macro", "function", "method",  "loop",  "function", "function", "integer"};
    _Static_assert(UM_LEN(names) == UM_V_BIGINT + 1, "one name a kind");
    return names[k];
}

/* ---- Truth, conversion and iteration ----------------------------------------------------------------------------- */

bool um_truth(um_val v) {
    switch (v.kind) {
    case UM_V_MISSING:
    case UM_V_UNDEF:
    case UM_V_NONE: return false;
    case UM_V_BOOL: return v.b;
    case UM_V_INT: return v.i != 0;
    case UM_V_FLOAT: return v.f != 0;
    case UM_V_STR: return v.s.n != 0;
    case UM_V_LIST:
    case UM_V_TUPLE: return v.list->n != 0;
    case UM_V_DICT: return v.dict->n != 0;
    case UM_V_RANGE: return v.range->n != 0;
    default: return true;
    }
}

bool um_is_numeric(um_val v) { return v.kind == UM_V_INT || v.kind == UM_V_FLOAT || v.kind == UM_V_BOOL; }
double um_as_double(um_val v) { return v.kind == UM_V_FLOAT ? v.f : (double)(v.kind == UM_V_BOOL ? v.b : v.i); }

int64_t um_as_int(um_render *r, um_val v, const char *what) {
    if (v.kind == UM_V_UNDEF) um_render_undefined(r, v);
    if (v.kind == UM_V_BOOL) return v.b;
    if (v.kind == UM_V_BIGINT) um_render_fail(r, "%s: an integer beyond 64 bits can only be printed", what);
    if (v.kind != UM_V_INT) um_render_fail(r, "%s must be an integer, found %s", what, um_kind_name(v.kind));
    return v.i;
}

um_str um_as_str(um_render *r, um_val v, const char *what) {
    if (v.kind == UM_V_UNDEF) um_render_undefined(r, v);
    if (v.kind != UM_V_STR) um_render_fail(r, "%s must be a string, found %s", what, um_kind_name(v.kind));
    return v.s;
}

size_t um_length(um_render *r, um_val v) {
    switch (v.kind) {
    case UM_V_UNDEF: return 0;
    case UM_V_STR: return um_cp_count(v.s);
    case UM_V_LIST:
    case UM_V_TUPLE: return v.list->n;
    case UM_V_DICT: return v.dict->n;
    case UM_V_RANGE: return (size_t)v.range->n;
    case UM_V_LOOP: return v.loop->n;
    default: um_render_fail(r, "%s has no length", um_kind_name(v.kind));
    }
}

static um_list *characters(um_render *r, um_str s) {
    um_val l = um_val_list(r, UM_V_LIST, um_cp_count(s));
    int len;
    for (size_t i = 0; i < s.n; i += (size_t)len) {
        um_cp_at(s.p + i, s.n - i, &len);
        um_list_push(r, l.list, um_val_str((um_str){s.p + i, (size_t)len}));
    }
    return l.list;
}

um_list *um_elements(um_render *r, um_val v) {
    um_val l;
    switch (v.kind) {
    case UM_V_LIST:
    case UM_V_TUPLE: return v.list;
    case UM_V_UNDEF: return um_val_list(r, UM_V_LIST, 0).list;
    case UM_V_STR: return characters(r, v.s);
    case UM_V_DICT:
        l = um_val_list(r, UM_V_LIST, v.dict->n);
        for (size_t i = 0; i < v.dict->n; i++) um_list_push(r, l.list, v.dict->key[i]);
        return l.list;
    case UM_V_RANGE:
        l = um_val_list(r, UM_V_LIST, (size_t)v.range->n);
        for (int64_t i = 0; i < v.range->n; i++)
            um_list_push(r, l.list, um_val_int(v.range->start + i * v.range->step));
        return l.list;
    default: um_render_fail(r, "%s can't be iterated", um_kind_name(v.kind));
    }
}

/* ---- Equality and order ------------------------------------------------------------------------------------------ */

static void check_depth(um_render *r, int depth) {
    if (depth > UM_TMPL_VALUE_MAX) um_render_fail(r, "a value is nested deeper than %d", UM_TMPL_VALUE_MAX);
    um_render_step(r);
}

static bool equal(um_render *r, um_val a, um_val b, int depth);

static bool equal_lists(um_render *r, const um_list *a, const um_list *b, int depth) {
    if (a == b) return true;
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (!equal(r, a->v[i], b->v[i], depth + 1)) return false;
    return true;
}

static bool equal_dicts(um_render *r, const um_dict *a, const um_dict *b, int depth) {
    if (a == b) return true;
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        um_val *other = um_dict_get(r, b, a->key[i]);
        if (!other || !equal(r, a->val[i], *other, depth + 1)) return false;
    }
    return true;
}

static bool equal_numbers(um_val a, um_val b) {
    if (a.kind == UM_V_FLOAT || b.kind == UM_V_FLOAT) return um_as_double(a) == um_as_double(b);
    return (a.kind == UM_V_BOOL ? a.b : a.i) == (b.kind == UM_V_BOOL ? b.b : b.i);
}

bool um_same(um_val a, um_val b) {
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case UM_V_NONE:
    case UM_V_UNDEF: return true;
    case UM_V_BOOL: return a.b == b.b;
    case UM_V_INT:
    case UM_V_GLOBAL: return a.i == b.i;
    case UM_V_FLOAT: return a.f == b.f;
    case UM_V_STR:
    case UM_V_BIGINT: return um_str_eq(a.s, b.s);
    default: return a.list == b.list;
    }
}

static bool equal(um_render *r, um_val a, um_val b, int depth) {
    check_depth(r, depth);
    if (um_is_numeric(a) && um_is_numeric(b)) return equal_numbers(a, b);
    if (a.kind != b.kind) return false;
    if (a.kind == UM_V_STR) um_render_work(r, a);
    if (a.kind == UM_V_LIST || a.kind == UM_V_TUPLE) return equal_lists(r, a.list, b.list, depth);
    if (a.kind == UM_V_DICT) return equal_dicts(r, a.dict, b.dict, depth);
    if (a.kind == UM_V_RANGE) return equal_lists(r, um_elements(r, a), um_elements(r, b), depth);
    return um_same(a, b);
}

bool um_equal(um_render *r, um_val a, um_val b) { return equal(r, a, b, 0); }

static int order_bytes(um_str a, um_str b) { /* UTF-8 bytes sort like code points */
    int c = memcmp(a.p, b.p, UM_MIN(a.n, b.n));
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

static int order(um_render *r, um_val a, um_val b, int depth) {
    check_depth(r, depth);
    if (a.kind == UM_V_UNDEF) um_render_undefined(r, a);
    if (b.kind == UM_V_UNDEF) um_render_undefined(r, b);
    if (um_is_numeric(a) && um_is_numeric(b)) {
        if (a.kind == UM_V_INT && b.kind == UM_V_INT) return (a.i > b.i) - (a.i < b.i);
        double x = um_as_double(a), y = um_as_double(b);
        return (x > y) - (x < y);
    }
    if (a.kind == UM_V_STR && b.kind == UM_V_STR) {
        um_render_work(r, a);
        return order_bytes(a.s, b.s);
    }
    if (a.kind == UM_V_BIGINT || b.kind == UM_V_BIGINT)
        um_render_fail(r, "an integer beyond 64 bits can only be printed");
    if (a.kind != b.kind || (a.kind != UM_V_LIST && a.kind != UM_V_TUPLE))
        um_render_fail(r, "%s and %s have no order", um_kind_name(a.kind), um_kind_name(b.kind));
    size_t n = UM_MIN(a.list->n, b.list->n);
    for (size_t i = 0; i < n; i++)
        if (!equal(r, a.list->v[i], b.list->v[i], depth + 1)) return order(r, a.list->v[i], b.list->v[i], depth + 1);
    return (a.list->n > b.list->n) - (a.list->n < b.list->n);
}

int um_order(um_render *r, um_val a, um_val b) { return order(r, a, b, 0); }

/* A stable merge sort. qsort can't be used: a comparison may fail, and its longjmp would leave a library function. */
static void merge_sort(um_render *r, const um_val *key, size_t *at, size_t *spare, size_t n, bool reverse) {
    if (n < 2) return;
    size_t half = n / 2, i = 0, j = half, k = 0;
    merge_sort(r, key, at, spare, half, reverse);
    merge_sort(r, key, at + half, spare, n - half, reverse);
    memcpy(spare, at, n * sizeof *at);
    while (i < half && j < n) {
        int c = um_order(r, key[spare[i]], key[spare[j]]);
        at[k++] = (reverse ? c >= 0 : c <= 0) ? spare[i++] : spare[j++];
    }
    while (i < half) at[k++] = spare[i++];
    while (j < n) at[k++] = spare[j++];
}

void um_sort(um_render *r, const um_val *key, size_t *at, size_t n, bool reverse) {
    size_t *spare = (size_t *)um_render_alloc(r, (n + 1) * sizeof *spare);
    merge_sort(r, key, at, spare, n, reverse);
}

/* ---- Strings in the arena ---------------------------------------------------------------------------------------- */

void um_sb_add(um_sb *b, um_str s) {
    if (b->n + s.n > b->cap) {
        size_t cap = b->cap ? b->cap : 64;
        while (cap < b->n + s.n) cap *= 2;
        char *grown = (char *)um_render_alloc(b->r, cap);
        if (b->n) memcpy(grown, b->p, b->n);
        b->p = grown;
        b->cap = cap;
    }
    if (s.n) memcpy(b->p + b->n, s.p, s.n);
    b->n += s.n;
}

void um_sb_puts(um_sb *b, const char *s) { um_sb_add(b, um_str_of(s)); }
void um_sb_putc(um_sb *b, char c) { um_sb_add(b, (um_str){&c, 1}); }
um_str um_sb_str(const um_sb *b) { return (um_str){b->p ? b->p : "", b->n}; }

/* Formats the shortest digits that read back as f, in plain or exponent form by Python's rule. */
void um_sb_float(um_sb *b, double f) {
    char e[40], digits[24];
    if (isnan(f) || isinf(f)) {
        um_sb_puts(b, isnan(f) ? "nan" : (f < 0 ? "-inf" : "inf"));
        return;
    }
    for (int prec = 0; prec <= 17; prec++) {
        snprintf(e, sizeof e, "%.*e", prec, f);
        if (strtod(e, NULL) == f) break;
    }
    const char *p = e, *mark = strchr(e, 'e');
    int exp = atoi(mark + 1), n = 0;
    if (*p == '-') um_sb_putc(b, *p++);
    for (; p < mark; p++)
        if (*p != '.') digits[n++] = *p;
    digits[n] = 0;
    if (exp < -4 || exp >= 16) {
        um_sb_add(b, (um_str){digits, 1});
        if (n > 1) um_sb_putc(b, '.');
        um_sb_puts(b, digits + 1);
        snprintf(e, sizeof e, "e%c%02d", exp < 0 ? '-' : '+', abs(exp));
        um_sb_puts(b, e);
        return;
    }
    if (exp < 0) um_sb_puts(b, "0.");
    for (int i = exp; i < -1; i++) um_sb_putc(b, '0');
    for (int i = 0; i < n || i <= exp; i++) {
        um_sb_putc(b, i < n ? digits[i] : '0');
        if (i == exp) um_sb_putc(b, '.');
    }
    if (exp >= 0 && n <= exp + 1) um_sb_putc(b, '0');
}

static bool is_printable(uint32_t cp) {
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return cp == ' ';
    default: return true;
    }
}

static void repr_char(um_sb *b, uint32_t cp, um_str raw, char quote) {
    char text[16];
    if (cp == '\\' || cp == (uint8_t)quote) snprintf(text, sizeof text, "\\%c", (char)cp);
    else if (cp == '\n' || cp == '\r' || cp == '\t')
        snprintf(text, sizeof text, "\\%c", cp == '\n' ? 'n' : (cp == '\r' ? 'r' : 't'));
    else if (is_printable(cp)) {
        um_sb_add(b, raw);
        return;
    } else snprintf(text, sizeof text, cp < 0x100 ? "\\x%02x" : (cp < 0x10000 ? "\\u%04x" : "\\U%08x"), (unsigned)cp);
    um_sb_puts(b, text);
}

static void repr_str(um_sb *b, um_str s) {
    char quote = s.n && memchr(s.p, '\'', s.n) && !memchr(s.p, '"', s.n) ? '"' : '\'';
    int len;
    um_sb_putc(b, quote);
    for (size_t i = 0; i < s.n; i += (size_t)len) {
        uint32_t cp = um_cp_at(s.p + i, s.n - i, &len);
        repr_char(b, cp, (um_str){s.p + i, (size_t)len}, quote);
    }
    um_sb_putc(b, quote);
}

static void repr(um_sb *b, um_val v, int depth);

static void repr_list(um_sb *b, const um_list *l, const char *brackets, int depth) {
    um_sb_putc(b, brackets[0]);
    for (size_t i = 0; i < l->n; i++) {
        if (i) um_sb_puts(b, ", ");
        repr(b, l->v[i], depth + 1);
    }
    if (l->n == 1 && brackets[0] == '(') um_sb_putc(b, ',');
    um_sb_putc(b, brackets[1]);
}

static void repr_dict(um_sb *b, const um_dict *d, int depth) {
    um_sb_putc(b, '{');
    for (size_t i = 0; i < d->n; i++) {
        if (i) um_sb_puts(b, ", ");
        repr(b, d->key[i], depth + 1);
        um_sb_puts(b, ": ");
        repr(b, d->val[i], depth + 1);
    }
    um_sb_putc(b, '}');
}

static void plain(um_sb *b, um_val v) {
    char text[80];
    switch (v.kind) {
    case UM_V_NONE: um_sb_puts(b, "None"); break;
    case UM_V_BOOL: um_sb_puts(b, v.b ? "True" : "False"); break;
    case UM_V_INT:
        snprintf(text, sizeof text, "%lld", (long long)v.i);
        um_sb_puts(b, text);
        break;
    case UM_V_FLOAT: um_sb_float(b, v.f); break;
    case UM_V_BIGINT: um_sb_add(b, v.s); break;
    default:
        snprintf(text, sizeof text, "<%s>", um_kind_name(v.kind));
        um_sb_puts(b, text);
        break;
    }
}

static void repr(um_sb *b, um_val v, int depth) {
    check_depth(b->r, depth);
    if (v.kind == UM_V_STR) repr_str(b, v.s);
    else if (v.kind == UM_V_LIST) repr_list(b, v.list, "[]", depth);
    else if (v.kind == UM_V_TUPLE) repr_list(b, v.list, "()", depth);
    else if (v.kind == UM_V_DICT) repr_dict(b, v.dict, depth);
    else if (v.kind == UM_V_UNDEF) um_sb_puts(b, "Undefined");
    else plain(b, v);
}

void um_sb_repr(um_sb *b, um_val v) { repr(b, v, 0); }

um_str um_text(um_render *r, um_val v) {
    if (v.kind == UM_V_STR) return v.s;
    if (v.kind == UM_V_UNDEF) return UM_STR("");
    um_sb b = {.r = r};
    um_sb_repr(&b, v);
    return um_sb_str(&b);
}

/* ---- Code points ------------------------------------------------------------------------------------------------- */

size_t um_cp_count(um_str s) {
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) n += ((uint8_t)s.p[i] & 0xC0) != 0x80;
    return n;
}

static size_t cp_offset(um_str s, size_t index) {
    size_t i = 0;
    for (; i < s.n; i++)
        if (((uint8_t)s.p[i] & 0xC0) != 0x80 && index-- == 0) break;
    return i;
}

um_str um_cp_slice(um_str s, size_t from, size_t to) {
    if (from >= to) return UM_STR("");
    size_t start = cp_offset(s, from);
    um_str rest = {s.p + start, s.n - start};
    return (um_str){rest.p, cp_offset(rest, to - from)};
}

bool um_is_blank(uint32_t cp) { return um_is_space(cp) || (cp >= 0x1C && cp <= 0x1F); }

static bool is_stripped(uint32_t cp, um_str raw, const um_str *chars) {
    if (!chars) return um_is_blank(cp);
    return raw.n && memmem(chars->p, chars->n, raw.p, raw.n);
}

um_str um_strip(um_str s, const um_str *chars, bool left, bool right) {
    int len;
    while (left && s.n) {
        uint32_t cp = um_cp_at(s.p, s.n, &len);
        if (!is_stripped(cp, (um_str){s.p, (size_t)len}, chars)) break;
        s = (um_str){s.p + len, s.n - (size_t)len};
    }
    while (right && s.n) {
        uint32_t cp = um_cp_before(s.p, s.n, &len);
        if (!is_stripped(cp, (um_str){s.p + s.n - len, (size_t)len}, chars)) break;
        s.n -= (size_t)len;
    }
    return s;
}
