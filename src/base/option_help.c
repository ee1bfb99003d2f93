/* --help: the option rows as text, by group. */
#include "base/base.h"

#define HELP_COLUMN 32 /* where the sentences start */

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

/* Writes words of text from column `column` on, a new line indented to HELP_COLUMN where `columns` would be passed. */
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

/* "  --flag METAVAR" and the way to HELP_COLUMN, on the next line when the flag is too long. */
static void put_head(const um_option *row, um_buf *out) {
    size_t start = out->len;
    bool is_on = row->type == UM_OPT_BOOL && um_streq(row->def, "true");
    um_buf_puts(out, is_on ? "  --[no-]" : "  --");
    for (const char *p = row->name; *p; p++) um_buf_putc(out, *p == '_' ? '-' : *p);
    if (row->type != UM_OPT_BOOL) um_buf_printf(out, " %s", row->metavar ? row->metavar : "VALUE");
    int width = text_width(out->data + start, out->len - start);
    if (width + 2 > HELP_COLUMN) {
        um_buf_putc(out, '\n');
        width = 0;
    }
    um_buf_printf(out, "%*s", HELP_COLUMN - width, "");
}

/* " (0..1; default 0.5)"; nothing for a flag that is off. */
static void put_facts(const um_option *row, um_buf *out) {
    um_buf range = {0};
    um_option_range(row, &range);
    bool has_default = row->def && *row->def && !um_streq(row->def, "false");
    if (range.len || has_default)
        um_buf_printf(out, " (%s%s%s%s)", range.len ? range.data : "", range.len && has_default ? "; " : "",
                      has_default ? "default " : "", has_default ? row->def : "");
    um_buf_free(&range);
}

static void put_row(const um_option *row, int columns, um_buf *out) {
    um_buf text = {0};
    put_head(row, out);
    um_buf_puts(&text, row->help);
    put_facts(row, &text);
    put_wrapped(out, text.data, columns);
    um_buf_free(&text);
}

/* Has a row before (set, k) the same group? */
static bool seen_before(const um_option_set *sets, size_t set, size_t k) {
    const char *group = sets[set].rows[k].group;
    for (size_t i = 0; i <= set; i++)
        for (size_t j = 0; j < (i == set ? k : sets[i].n); j++)
            if (um_streq(sets[i].rows[j].group, group)) return true;
    return false;
}

static void put_group(const um_option_set *sets, size_t n_sets, const char *group, int columns, um_buf *out) {
    if (out->len) um_buf_putc(out, '\n');
    um_buf_printf(out, "%s:\n", group ? group : "Options");
    for (size_t i = 0; i < n_sets; i++)
        for (size_t k = 0; k < sets[i].n; k++)
            if (um_streq(sets[i].rows[k].group, group)) put_row(&sets[i].rows[k], columns, out);
}

void um_options_help(const um_option_set *sets, size_t n_sets, int columns, um_buf *out) {
    columns = UM_MAX(columns, HELP_COLUMN + 24);
    for (size_t i = 0; i < n_sets; i++)
        for (size_t k = 0; k < sets[i].n; k++)
            if (!seen_before(sets, i, k)) put_group(sets, n_sets, sets[i].rows[k].group, columns, out);
}
