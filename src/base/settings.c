/* Settings: options and the sources of their values. */
#include "base/base.h"

void um_settings_init(um_settings *s) {
    size_t n = 1;
    for (size_t i = 0; i < s->n_sets; i++) n += s->sets[i].n;
    s->given = UM_NEW_ARRAY(um_given, n);
    s->foreign_given = UM_NEW_ARRAY(um_foreign_given, s->n_foreign + 1);
}

void um_settings_free(um_settings *s) {
    um_free(s->given);
    um_free(s->foreign_given);
    s->given = NULL;
    s->foreign_given = NULL;
}

bool um_settings_find(const um_settings *s, const char *name, um_setting *out) {
    um_given *given = s->given;
    for (size_t i = 0; i < s->n_sets; i++) {
        const um_option_set *set = &s->sets[i];
        const um_option *row = um_options_find(set->rows, set->n, name);
        if (row) {
            *out = (um_setting){row, set->base, given + (row - set->rows), i + s->n_outer >= s->n_sets};
            return true;
        }
        given += set->n;
    }
    return false;
}

bool um_settings_find_short(const um_settings *s, char letter, um_setting *out) {
    for (size_t i = 0; i < s->n_sets; i++)
        for (size_t k = 0; k < s->sets[i].n; k++)
            if (um_option_short(&s->sets[i].rows[k]) == letter)
                return um_settings_find(s, s->sets[i].rows[k].name, out);
    return false;
}

/* For a file, the label is position and name. For other sources, `where` already is the name. */
void um_written_put_label(const um_written *w, um_buf *out) {
    bool is_file = w->by == UM_BY_FILE || w->by == UM_BY_SECTION;
    um_buf_printf(out, "%s%s%.80s", w->where, is_file ? ": " : "", is_file ? w->name : "");
}

um_status um_settings_set(um_settings *s, const um_setting *o, const um_written *w, um_err *err) {
    um_buf label = {0};
    um_status st;
    um_written_put_label(w, &label);
    if (o->given->by == w->by && w->by != UM_BY_ARGV) {
        st = um_fail(err, UM_EINVAL, "%s: the option %s is given twice, first at %s", label.data, o->row->name,
                     o->given->where);
    } else {
        bool counts = w->by >= o->given->by;
        st = um_option_set_as(o->row, counts ? o->base : NULL, w->name, label.data, w->value, err);
        if (!st && counts) *o->given = (um_given){w->by, um_arena_strndup(s->strings, w->where, strlen(w->where))};
    }
    um_buf_free(&label);
    return st;
}
