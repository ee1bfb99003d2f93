/* Prints facts as text or JSON. */
#include <math.h>

#include "cli/cli.h"
#include "cli/printer.h"

void um_printer_begin(um_printer *s, bool json) {
    *s = (um_printer){.json = json};
    um_jw_init(&s->w, &s->out);
    if (json) um_jw_begin_object(&s->w);
}

void um_printer_end(um_printer *s) {
    if (s->json) {
        um_jw_end_object(&s->w);
        um_buf_putc(&s->out, '\n');
    }
    um_cli_write(&s->out);
    um_buf_free(&s->out);
}

/* ---- Structure --------------------------------------------------------------------------------------------------- */

static void put_heading(um_printer *s, const char *name) {
    if (s->depth == 0 && s->out.len) um_buf_putc(&s->out, '\n');
    um_buf_printf(&s->out, "%*s%s\n", 2 * s->depth, "", name);
    s->depth++;
}

void um_printer_group(um_printer *s, const char *name) {
    if (!s->json) {
        put_heading(s, name);
        return;
    }
    um_jw_key(&s->w, name);
    um_jw_begin_object(&s->w);
}

void um_printer_group_end(um_printer *s) {
    if (s->json) um_jw_end_object(&s->w);
    else s->depth--;
}

void um_printer_list(um_printer *s, const char *name) {
    if (!s->json) {
        put_heading(s, name);
        return;
    }
    um_jw_key(&s->w, name);
    um_jw_begin_array(&s->w);
}

void um_printer_list_end(um_printer *s) {
    if (s->json) um_jw_end_array(&s->w);
    else s->depth--;
}

void um_printer_item(um_printer *s, const char *name, const char *summary) {
    if (s->json) {
        um_jw_begin_object(&s->w);
        um_jw_put_cstr(&s->w, "name", name);
        um_jw_put_cstr(&s->w, "summary", summary);
        return;
    }
    s->n_items += s->depth == 0;
    if (summary) um_buf_printf(&s->out, "%*s%-*s %s\n", 2 * s->depth, "", 26 - 2 * s->depth, name, summary);
    else um_buf_printf(&s->out, "%*s%s\n", 2 * s->depth, "", name);
    s->depth++;
}

void um_printer_note(um_printer *s, const char *text) {
    if (!s->json) um_buf_printf(&s->out, "%*s%s\n", 2 * s->depth, "", text);
}

void um_printer_item_end(um_printer *s) {
    if (s->json) um_jw_end_object(&s->w);
    else s->depth--;
}

/* ---- Facts ------------------------------------------------------------------------------------------------------- */

/* Appends "  name      ", with spaces instead of underscores. */
static void put_label(um_printer *s, const char *name) {
    um_buf_printf(&s->out, "%*s", 2 * s->depth, "");
    for (const char *p = name; *p; p++) um_buf_putc(&s->out, *p == '_' ? ' ' : *p);
    um_buf_printf(&s->out, "%*s ", (int)UM_MAX(26 - (int)strlen(name) - 2 * s->depth, 0), "");
}

void um_printer_str(um_printer *s, const char *name, const char *value) {
    if (s->json) {
        um_jw_put_cstr(&s->w, name, value);
    } else if (value && *value) {
        put_label(s, name);
        um_buf_printf(&s->out, "%s\n", value);
    }
}

void um_printer_int(um_printer *s, const char *name, int64_t value, const char *unit) {
    if (s->json) {
        um_jw_put_int(&s->w, name, value);
        return;
    }
    put_label(s, name);
    um_buf_printf(&s->out, "%lld%s%s\n", (long long)value, unit ? " " : "", unit ? unit : "");
}

void um_printer_number(um_printer *s, const char *name, double value) {
    char text[UM_NUMBER_MAX] = "auto";
    if (value == (double)(float)value) um_format_float((float)value, text);
    else if (isfinite(value)) um_format_double(value, text);
    if (s->json) {
        um_jw_put_double(&s->w, name, isfinite(value) && um_parse_double(text, &value) ? value : (double)NAN);
    } else {
        um_printer_str(s, name, text);
    }
}

void um_printer_bool(um_printer *s, const char *name, bool value) {
    if (s->json) {
        um_jw_put_bool(&s->w, name, value);
        return;
    }
    um_printer_str(s, name, value ? "yes" : "no");
}

void um_printer_bytes(um_printer *s, const char *name, int64_t value) {
    char text[UM_BYTES_TEXT];
    if (s->json) {
        um_jw_put_int(&s->w, name, value);
        return;
    }
    put_label(s, name);
    um_buf_printf(&s->out, "%s\n", um_bytes_text(text, (double)value));
}

void um_printer_count(um_printer *s, const char *name, int64_t value, const char *unit) {
    char text[UM_COUNT_TEXT];
    if (s->json) {
        um_jw_put_int(&s->w, name, value);
        return;
    }
    put_label(s, name);
    um_buf_printf(&s->out, "%s%s%s\n", um_count_text(text, (double)value), unit ? " " : "", unit ? unit : "");
}

void um_printer_words(um_printer *s, const char *name, const char *words, char sep) {
    const char any[] = {sep, '\0'};
    bool first = true;
    if (s->json) {
        um_jw_key(&s->w, name);
        um_jw_begin_array(&s->w);
    } else if (words && *words) {
        put_label(s, name);
    }
    for (const char *p = words ? words : ""; *p;) {
        size_t n = strcspn(p, any);
        if (s->json) um_jw_str(&s->w, p, n);
        else um_buf_printf(&s->out, "%s%.*s", first ? "" : ", ", (int)n, p);
        first = false;
        p += n + (p[n] == sep);
    }
    if (s->json) um_jw_end_array(&s->w);
    else if (!first) um_buf_putc(&s->out, '\n');
}

void um_printer_ints(um_printer *s, const char *name, const int32_t *v, size_t n) {
    if (s->json) {
        um_jw_key(&s->w, name);
        um_jw_begin_array(&s->w);
        for (size_t i = 0; i < n; i++) um_jw_int(&s->w, v[i]);
        um_jw_end_array(&s->w);
        return;
    }
    put_label(s, name);
    for (size_t i = 0; i < n; i++) um_buf_printf(&s->out, "%s%d", i ? ", " : "", v[i]);
    um_buf_puts(&s->out, n ? "\n" : "none\n");
}
