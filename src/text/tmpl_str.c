/* Python's str operations, shared by filters and methods. */
#include <math.h>
#include <utf8proc.h>

#include "text/template.h"
#include "text/tok.h"

/* ---- Case -------------------------------------------------------------------------------------------------------- */

static bool is_letter(uint32_t cp) {
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

um_str um_str_case(um_render *r, um_str s, char how) {
    bool start = true;
    int len;
    um_buf_clear(&r->scratch);
    if (how == 'u') um_to_upper(s, &r->scratch);
    else if (how == 'l') um_to_lower(s, &r->scratch);
    else
        for (size_t i = 0; i < s.n;
             i += (size_t)len) { /* title: upper case at each word's start; capitalize: at the start */
            uint32_t cp = um_cp_at(s.p + i, s.n - i, &len);
            um_str c = {s.p + i, (size_t)len};
            if (start) um_to_upper(c, &r->scratch);
            else um_to_lower(c, &r->scratch);
            start = how == 't' && !is_letter(cp);
        }
    return um_render_copy(r, (um_str){r->scratch.data, r->scratch.len});
}

/* ---- Replacing, centering and splitting -------------------------------------------------------------------------- */

um_str um_str_replace(um_render *r, um_str s, um_str old, um_str by, int64_t count) {
    um_sb out = {.r = r};
    size_t at = 0;
    while (at <= s.n && count != 0) {
        um_render_step(r);
        int len = 1;
        if (old.n == 0) { /* inserts before every character and at the end */
            um_sb_add(&out, by);
            if (at == s.n) return um_sb_str(&out);
            um_cp_at(s.p + at, s.n - at, &len);
            um_sb_add(&out, (um_str){s.p + at, (size_t)len});
            at += (size_t)len;
        } else {
            const char *hit = at < s.n ? (const char *)memmem(s.p + at, s.n - at, old.p, old.n) : NULL;
            if (!hit) break;
            um_sb_add(&out, (um_str){s.p + at, (size_t)(hit - s.p) - at});
            um_sb_add(&out, by);
            at = (size_t)(hit - s.p) + old.n;
        }
        if (count > 0) count--;
    }
    um_sb_add(&out, (um_str){s.p + at, s.n - at});
    return um_sb_str(&out);
}

um_str um_str_center(um_render *r, um_str s, int64_t width, um_str fill) {
    int64_t n = (int64_t)um_cp_count(s), pad = width > n ? width - n : 0, left = pad / 2 + (pad & width & 1);
    um_sb out = {.r = r};
    for (int64_t i = 0; i < pad + 1; i++) {
        if (i == left) um_sb_add(&out, s);
        if (i < pad) um_sb_add(&out, fill);
    }
    return um_sb_str(&out);
}

static void add_part(um_render *r, um_list *l, um_str s, size_t from, size_t to) {
    um_list_push(r, l, um_val_str((um_str){s.p + from, to - from}));
}

/* Splits at runs of white space. Leading and trailing white space gives no empty parts. */
static void split_blank(um_render *r, um_str s, int64_t max, um_list *out) {
    for (;;) {
        s = um_strip(s, NULL, true, false);
        if (s.n == 0) return;
        size_t end = 0;
        int len;
        if (max == 0) {
            um_list_push(r, out, um_val_str(um_strip(s, NULL, false, true)));
            return;
        }
        while (end < s.n && !um_is_blank(um_cp_at(s.p + end, s.n - end, &len))) end += (size_t)len;
        add_part(r, out, s, 0, end);
        s = (um_str){s.p + end, s.n - end};
        if (max > 0) max--;
    }
}

static void rsplit_blank(um_render *r, um_str s, int64_t max, um_list *out) {
    for (;;) {
        s = um_strip(s, NULL, false, true);
        if (s.n == 0) return;
        size_t start = s.n;
        int len;
        if (max == 0) {
            um_list_push(r, out, um_val_str(um_strip(s, NULL, true, false)));
            return;
        }
        while (start > 0 && !um_is_blank(um_cp_before(s.p, start, &len))) start -= (size_t)len;
        add_part(r, out, s, start, s.n);
        s.n = start;
        if (max > 0) max--;
    }
}

static void split_by(um_render *r, um_str s, um_str sep, int64_t max, um_list *out) {
    for (; max != 0 && s.n; max--) {
        const char *hit = (const char *)memmem(s.p, s.n, sep.p, sep.n);
        if (!hit) break;
        size_t at = (size_t)(hit - s.p);
        add_part(r, out, s, 0, at);
        s = (um_str){s.p + at + sep.n, s.n - at - sep.n};
    }
    add_part(r, out, s, 0, s.n);
}

static void rsplit_by(um_render *r, um_str s, um_str sep, int64_t max, um_list *out) {
    size_t at = s.n;
    for (; max != 0; max--) {
        while (at >= sep.n && memcmp(s.p + at - sep.n, sep.p, sep.n) != 0) at--;
        if (at < sep.n) break;
        add_part(r, out, s, at, s.n);
        at -= sep.n;
        s.n = at;
    }
    add_part(r, out, s, 0, s.n);
}

static void turn_around(um_list *l) {
    for (size_t i = 0; i < l->n / 2; i++) {
        um_val v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
}

um_val um_str_split(um_render *r, um_str s, const um_str *sep, int64_t max, bool from_right) {
    um_val out = um_val_list(r, UM_V_LIST, 0);
    if (sep && sep->n == 0) um_render_fail(r, "split: the separator is empty");
    if (!sep) (from_right ? rsplit_blank : split_blank)(r, s, max, out.list);
    else (from_right ? rsplit_by : split_by)(r, s, *sep, max, out.list);
    if (from_right) turn_around(out.list);
    return out;
}

static bool is_line_end(uint32_t cp) {
    return (cp >= 0x0A && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

um_val um_str_splitlines(um_render *r, um_str s) {
    um_val out = um_val_list(r, UM_V_LIST, 0);
    size_t start = 0, i = 0;
    int len;
    while (i < s.n) {
        uint32_t cp = um_cp_at(s.p + i, s.n - i, &len);
        if (is_line_end(cp)) {
            add_part(r, out.list, s, start, i);
            if (cp == '\r' && i + 1 < s.n && s.p[i + 1] == '\n') len = 2;
            start = i + (size_t)len;
        }
        i += (size_t)len;
    }
    if (start < s.n) add_part(r, out.list, s, start, s.n);
    return out;
}

/* ---- Formatting -------------------------------------------------------------------------------------------------- */

static um_val next_arg(um_render *r, const um_arg_values *args, size_t *at) {
    if (*at >= args->n) um_render_fail(r, "formatting: more places than values");
    return args->pos[(*at)++];
}

static void print_number(um_render *r, um_sb *out, char how, um_val v) {
    char text[400];
    if (v.kind == UM_V_UNDEF) um_render_undefined(r, v);
    if (!um_is_numeric(v) || (how == 'x' && v.kind == UM_V_FLOAT))
        um_render_fail(r, "formatting: %%%c needs a number, found %s", how, um_kind_name(v.kind));
    if (how == 'f') snprintf(text, sizeof text, "%f", um_as_double(v));
    else if (v.kind == UM_V_FLOAT) snprintf(text, sizeof text, "%.0f", trunc(v.f));
    else {
        int64_t i = um_as_int(r, v, "the value");
        uint64_t size = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
        snprintf(text, sizeof text, how == 'x' ? "%s%llx" : "%s%llu", i < 0 ? "-" : "", (unsigned long long)size);
    }
    um_sb_puts(out, text);
}

um_str um_str_printf(um_render *r, um_str f, const um_arg_values *args) {
    um_sb out = {.r = r};
    size_t used = 0;
    for (size_t i = 0; i < f.n; i++) {
        if (f.p[i] != '%') {
            um_sb_putc(&out, f.p[i]);
            continue;
        }
        char how = ++i < f.n ? f.p[i] : 0;
        if (how == '%') um_sb_putc(&out, '%');
        else if (how == 's') um_sb_add(&out, um_text(r, next_arg(r, args, &used)));
        else if (how == 'd' || how == 'i' || how == 'f' || how == 'x')
            print_number(r, &out, how, next_arg(r, args, &used));
        else um_render_fail(r, "formatting: only %%s %%d %%i %%f %%x %%%% are supported");
    }
    if (used < args->n) um_render_fail(r, "formatting: more values than places");
    return um_sb_str(&out);
}

/* Returns the value of the field {}, {0} or {name}. */
static um_val field_value(um_render *r, um_str field, const um_arg_values *args, size_t *next) {
    if (field.n == 0) return next_arg(r, args, next);
    size_t index = 0;
    bool number = field.n < 10;
    for (size_t i = 0; i < field.n && number; i++) {
        number = field.p[i] >= '0' && field.p[i] <= '9';
        index = index * 10 + (size_t)(field.p[i] - '0');
    }
    if (number && index < args->n) return args->pos[index];
    for (size_t k = 0; k < args->n_kw; k++)
        if (um_str_eq(args->kw_name[k], field)) return args->kw[k];
    um_render_fail(r, "format: there is no value for {%.*s}; only {}, {0} and {name} are supported",
                   (int)UM_MIN(field.n, 40), field.p);
}

um_str um_str_format(um_render *r, um_str f, const um_arg_values *args) {
    um_sb out = {.r = r};
    size_t next = 0;
    for (size_t i = 0; i < f.n; i++) {
        char c = f.p[i];
        if (c != '{' && c != '}') {
            um_sb_putc(&out, c);
            continue;
        }
        if (i + 1 < f.n && f.p[i + 1] == c) { /* a doubled brace */
            um_sb_putc(&out, c);
            i++;
            continue;
        }
        const char *end = c == '{' ? (const char *)memchr(f.p + i, '}', f.n - i) : NULL;
        if (!end) um_render_fail(r, "format: a single brace in the text");
        um_str field = {f.p + i + 1, (size_t)(end - f.p) - i - 1};
        um_sb_add(&out, um_text(r, field_value(r, field, args, &next)));
        i = (size_t)(end - f.p);
    }
    return um_sb_str(&out);
}
