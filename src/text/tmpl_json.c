/* Converts the caller's JSON to values, and values to JSON for the filter tojson. */
#include <math.h>
#include <stdlib.h>

#include "text/template.h"
#include "text/tok.h"

um_val um_val_from_json(um_render *r, const json_t *j, int nest) {
    um_val v;
    const json_t *item;
    size_t i;
    if (nest > UM_TMPL_VALUE_MAX) um_render_fail(r, "the variables are nested deeper than %d", UM_TMPL_VALUE_MAX);
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        v = um_val_of(UM_V_BIGINT);
        v.s = um_json_big_integer(j);
        if (v.s.p) return v;
        v = um_dict_new(r);
        for (void *it = json_object_iter((json_t *)j); it; it = json_object_iter_next((json_t *)j, it))
            um_dict_set(r, v.dict, um_val_str((um_str){json_object_iter_key(it), json_object_iter_key_len(it)}),
                        um_val_from_json(r, json_object_iter_value(it), nest + 1));
        return v;
    case JSON_ARRAY:
        v = um_val_list(r, UM_V_LIST, json_array_size(j));
        json_array_foreach(j, i, item) um_list_push(r, v.list, um_val_from_json(r, item, nest + 1));
        return v;
    case JSON_STRING: /* not copied: the variables outlive the run */
        return um_val_str((um_str){json_string_value(j), json_string_length(j)});
    case JSON_INTEGER: return um_val_int(json_integer_value(j));
    case JSON_REAL: return um_val_float(json_real_value(j));
    case JSON_TRUE:
    case JSON_FALSE: return um_val_bool(json_is_true(j));
    default: return um_val_of(UM_V_NONE);
    }
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

typedef struct writer {
    um_sb out;
    bool ascii, sort_keys;
    int indent; /* < 0: one line */
    um_str comma, colon;
} writer;

static void write_value(writer *w, um_val v, int depth);

static void write_escape(writer *w, uint32_t cp) {
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    char text[16];
    const char *simple = cp < 0x80 && cp ? strchr(from, (int)cp) : NULL;
    if (simple) snprintf(text, sizeof text, "\\%c", to[simple - from]);
    else if (cp < 0x10000) snprintf(text, sizeof text, "\\u%04x", (unsigned)cp);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x", (unsigned)(0xD7C0 + (cp >> 10)),
                 (unsigned)(0xDC00 | (cp & 0x3FF)));
    um_sb_puts(&w->out, text);
}

static void write_str(writer *w, um_str s) {
    int len;
    um_sb_putc(&w->out, '"');
    for (size_t i = 0; i < s.n; i += (size_t)len) {
        uint32_t cp = um_cp_at(s.p + i, s.n - i, &len);
        if (cp < 0x20 || cp == '"' || cp == '\\' || (w->ascii && cp >= 0x7F + 1)) write_escape(w, cp);
        else um_sb_add(&w->out, (um_str){s.p + i, (size_t)len});
    }
    um_sb_putc(&w->out, '"');
}

static void write_float(writer *w, double f) {
    if (isnan(f) || isinf(f)) um_sb_puts(&w->out, isnan(f) ? "NaN" : (f < 0 ? "-Infinity" : "Infinity"));
    else um_sb_float(&w->out, f);
}

static void new_line(writer *w, int depth) {
    if (w->indent < 0) return;
    um_sb_putc(&w->out, '\n');
    for (int i = 0; i < depth * w->indent; i++) um_sb_putc(&w->out, ' ');
}

static void write_list(writer *w, const um_list *l, int depth) {
    um_sb_putc(&w->out, '[');
    for (size_t i = 0; i < l->n; i++) {
        if (i) um_sb_add(&w->out, w->comma);
        new_line(w, depth + 1);
        write_value(w, l->v[i], depth + 1);
    }
    if (l->n) new_line(w, depth);
    um_sb_putc(&w->out, ']');
}

/* Writes a key. Other kinds than strings are converted as in Python. */
static void write_key(writer *w, um_val k) {
    um_render *r = w->out.r;
    if (k.kind == UM_V_NONE) write_str(w, UM_STR("null"));
    else if (k.kind == UM_V_BOOL) write_str(w, k.b ? UM_STR("true") : UM_STR("false"));
    else if (k.kind == UM_V_STR || k.kind == UM_V_BIGINT || um_is_numeric(k)) write_str(w, um_text(r, k));
    else um_render_fail(r, "tojson: %s can't be a key", um_kind_name(k.kind));
}

static void write_dict(writer *w, const um_dict *d, int depth) {
    size_t *at = (size_t *)um_render_alloc(w->out.r, (d->n + 1) * sizeof *at);
    for (size_t i = 0; i < d->n; i++) at[i] = i;
    if (w->sort_keys) um_sort(w->out.r, d->key, at, d->n, false);
    um_sb_putc(&w->out, '{');
    for (size_t i = 0; i < d->n; i++) {
        if (i) um_sb_add(&w->out, w->comma);
        new_line(w, depth + 1);
        write_key(w, d->key[at[i]]);
        um_sb_add(&w->out, w->colon);
        write_value(w, d->val[at[i]], depth + 1);
    }
    if (d->n) new_line(w, depth);
    um_sb_putc(&w->out, '}');
}

static void write_value(writer *w, um_val v, int depth) {
    um_render_step(w->out.r);
    if (depth > UM_TMPL_VALUE_MAX)
        um_render_fail(w->out.r, "tojson: a value is nested deeper than %d", UM_TMPL_VALUE_MAX);
    switch (v.kind) {
    case UM_V_NONE: um_sb_puts(&w->out, "null"); break;
    case UM_V_BOOL: um_sb_puts(&w->out, v.b ? "true" : "false"); break;
    case UM_V_INT:
    case UM_V_BIGINT: um_sb_repr(&w->out, v); break;
    case UM_V_FLOAT: write_float(w, v.f); break;
    case UM_V_STR: write_str(w, v.s); break;
    case UM_V_LIST:
    case UM_V_TUPLE: write_list(w, v.list, depth); break;
    case UM_V_DICT: write_dict(w, v.dict, depth); break;
    default: um_render_fail(w->out.r, "tojson: %s is not JSON", um_kind_name(v.kind));
    }
}

um_str um_val_to_json(um_render *r, um_val v, bool ascii, int indent, um_str comma, um_str colon, bool sort_keys) {
    writer w = {
        .out = {.r = r}, .ascii = ascii, .indent = indent, .comma = comma, .colon = colon, .sort_keys = sort_keys};
    write_value(&w, v, 0);
    return um_sb_str(&w.out);
}
