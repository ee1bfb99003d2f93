/* Writes settings as a YAML file that can be read again. */
#include "base/base.h"

typedef struct printer {
    const um_settings *settings;
    um_buf *out;
    um_status status;
    um_err *err;
} printer;

static const um_given *given_of(const um_settings *s, const um_option_set *set, const um_option *row) {
    const um_given *given = s->given;
    for (const um_option_set *p = s->sets; p < set; p++) given += p->n;
    return given + (row - set->rows);
}

static void put_giver(const um_given *g, um_buf *out) {
    static const char *const name[] = {"default", "file ", "file ", "environment ", "command line "};
    um_buf_puts(out, name[g->by]);
    um_yaml_put_comment(out, g->where ? g->where : "");
}

/* Appends a value. An unset text becomes null, which leaves the option unchanged when the file is read. */
static um_status put_value(const um_option *row, const void *base, um_buf *out, um_err *err) {
    bool is_text = row->type == UM_OPT_STR || (row->type == UM_OPT_NAME && !row->choices);
    um_buf value = {0};
    um_buf_puts(&value, "");
    um_option_get_text(row, base, &value);
    um_status st = UM_OK;
    bool is_set = row->type != UM_OPT_STR || *(const char *const *)(const void *)((const char *)base + row->offset);
    size_t bad = um_utf8_check(value.data, value.len);
    if (bad < value.len)
        st = um_fail(err, UM_EINVAL, "%s: byte %zu of the value is not UTF-8, so YAML can't hold it", row->name, bad);
    else if (!is_set) um_buf_puts(out, "null");
    else if (is_text && !(row->autos && um_streq(value.data, "auto"))) um_yaml_put_quoted(out, value.data);
    else um_buf_puts(out, value.data);
    um_buf_free(&value);
    return st;
}

static void put_row(void *arg, const um_option_set *set, const um_option *row, bool opens_group) {
    printer *p = arg;
    if (p->status) return;
    um_buf range = {0};
    um_option_range(row, &range);
    if (opens_group) um_buf_printf(p->out, "\n# ---- %s ----\n", row->group);
    um_buf_printf(p->out, "\n# %s%s%s%s\n", row->help, range.len ? " (" : "", range.len ? range.data : "",
                  range.len ? ")" : "");
    um_buf_printf(p->out, "%s: ", row->name);
    p->status = put_value(row, set->base, p->out, p->err);
    um_buf_puts(p->out, "  # ");
    put_giver(given_of(p->settings, set, row), p->out);
    um_buf_putc(p->out, '\n');
    um_buf_free(&range);
}

um_status um_settings_print(const um_settings *s, um_buf *out, um_err *err) {
    printer p = {s, out, UM_OK, err};
    um_options_each(s->sets, s->n_sets - s->n_outer, put_row, &p);
    return p.status;
}
