/* Formats option rows for --help, by group. */
#include "base/base.h"

#define HELP_COLUMN 32 /* first column of the help texts */

static int text_width(const char *s, size_t n) {
    int width = 0;
    uint32_t cp;
    for (size_t i = 0; i < n;) {
        int k = um_utf8_next(s + i, n - i, &cp);
        width += k ? um_utf8_width(cp) : 1;
        i += (size_t)UM_MAX(k, 1);
    }
    return width;
}

/* Writes the words of a text from HELP_COLUMN on. Breaks lines before they exceed `columns`. */
static void put_wrapped(um_buf *out, const char *text, int columns) {
    int column = HELP_COLUMN;
    bool first = true;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, " ");
        int width = text_width(p, n);
        if (!first && column + 1 + width > columns) {
            um_buf_printf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
            first = true;
        }
        if (!first) um_buf_putc(out, ' ');
        um_buf_append(out, p, n);
        column += width + !first;
        first = false;
        p += n + strspn(p + n, " ");
    }
    um_buf_putc(out, '\n');
}

void um_option_put_usage(const um_option *row, const void *base, um_buf *out) {
    bool is_on = row->type == UM_OPT_BOOL && *(const bool *)((const char *)base + row->offset);
    if (um_option_short(row)) um_buf_printf(out, "-%c, ", um_option_short(row));
    um_buf_puts(out, is_on ? "--[no-]" : "--");
    um_option_put_flag(row->name, out);
    if (row->type != UM_OPT_BOOL) um_buf_printf(out, " %s", row->metavar ? row->metavar : "VALUE");
}

/* Writes flag and metavar, and pads to HELP_COLUMN: on the next line if they are too long. */
static void put_head(const um_option *row, const void *base, um_buf *out) {
    size_t start = out->len;
    um_buf_puts(out, "  ");
    um_option_put_usage(row, base, out);
    int width = text_width(out->data + start, out->len - start);
    if (width + 2 > HELP_COLUMN) {
        um_buf_putc(out, '\n');
        width = 0;
    }
    um_buf_printf(out, "%*s", HELP_COLUMN - width, "");
}

void um_option_put_range_and_default(const um_option *row, const void *base, um_buf *out) {
    um_buf range = {0}, def = {0};
    um_buf_puts(&def, "");
    um_option_range(row, &range);
    um_option_get_text(row, base, &def);
    bool has_default = def.len && !um_streq(def.data, "false");
    if (range.len || has_default || row->is_live)
        um_buf_printf(out, " (%s%s%s%s%s%s)", range.len ? range.data : "", range.len && has_default ? "; " : "",
                      has_default ? "default " : "", has_default ? def.data : "",
                      row->is_live && (range.len || has_default) ? "; " : "", row->is_live ? "SIGHUP" : "");
    um_buf_free(&range);
    um_buf_free(&def);
}

typedef struct page {
    int columns;
    um_buf *out;
} page;

static void put_row(void *arg, const um_option_set *set, const um_option *row, bool opens_group) {
    const page *p = arg;
    um_buf text = {0};
    if (opens_group) um_buf_printf(p->out, "%s%s:\n", p->out->len ? "\n" : "", row->group ? row->group : "Options");
    put_head(row, set->base, p->out);
    um_buf_puts(&text, row->help);
    um_option_put_range_and_default(row, set->base, &text);
    put_wrapped(p->out, text.data, p->columns);
    um_buf_free(&text);
}

void um_options_help(const um_option_set *sets, size_t n_sets, int columns, um_buf *out) {
    um_options_each(sets, n_sets, put_row, &(page){UM_MAX(columns, HELP_COLUMN + 24), out});
}
