/* Settings: options of other engines. Values that would change nothing in this program are accepted and logged. */
#include "base/base.h"

static bool has_option(const um_option_set *sets, size_t n_sets, const char *name) {
    bool found = false;
    for (size_t i = 0; i < n_sets && !found; i++) found = um_options_find(sets[i].rows, sets[i].n, name);
    return found;
}

const char *um_foreign_option(const um_foreign *f) {
    return f->option && *f->option == '!' ? f->option + 1 : f->option;
}

const um_foreign *um_foreign_find(const um_foreign *rows, size_t n, const um_option_set *sets, size_t n_sets,
                                  const char *name) {
    um_str at;
    for (size_t i = 0; i < n; i++) {
        if (um_word_index(rows[i].names, ',', name, &at) < 0) continue;
        return !rows[i].option || has_option(sets, n_sets, um_foreign_option(&rows[i])) ? &rows[i] : NULL;
    }
    return NULL;
}

const um_foreign *um_settings_find_foreign(const um_settings *s, const char *name) {
    return um_foreign_find(s->foreign, s->n_foreign, s->sets, s->n_sets, name);
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

static um_status check_type(um_opt_type type, const um_written *w, const char *label, um_err *err) {
    const um_option row = {.name = w->name, .type = type, .size = sizeof(const char *)};
    return um_option_set_as(&row, NULL, w->name, label, w->value, err);
}

static bool is_bool(const char *value) {
    return check_type(UM_OPT_BOOL, &(um_written){.name = "", .value = value}, "", NULL) == UM_OK;
}

static bool to_bool(const char *value) {
    static const um_option row = {.name = "", .type = UM_OPT_BOOL, .size = sizeof(bool)};
    bool on = false;
    um_option_set_text(&row, &on, value, NULL);
    return on;
}

/* Fails with "LABEL: 2 is not supported, only 1: NOTE". */
static um_status fail_value(const um_foreign *f, const char *label, const char *value, um_err *err) {
    um_buf words = {0};
    for (const char *p = f->neutral; *p; p++) {
        if (*p != '|') um_buf_putc(&words, *p);
        else if (p[1]) um_buf_puts(&words, " or ");
    }
    um_status st =
        um_fail(err, UM_EUNSUPPORTED, "%s: %.80s is not supported, only %s: %s", label, value, words.data, f->note);
    um_buf_free(&words);
    return st;
}

static bool is_neutral(const um_foreign *f, const char *value) {
    um_str word;
    double given, neutral;
    if (!f->neutral || um_word_index(f->neutral, '|', value, &word) >= 0) return true;
    if (f->kind != UM_FOREIGN_NUMBER) return false;
    return um_parse_double(value, &given) && um_parse_double(f->neutral, &neutral) && given == neutral;
}

static um_status check(const um_foreign *f, const um_written *w, const char *label, um_err *err) {
    static const um_opt_type types[] = {UM_OPT_BOOL, UM_OPT_FLOAT, UM_OPT_STR, UM_OPT_STR};
    um_status st = check_type(types[f->kind], w, label, err);
    if (st) return st;
    const char *value = f->kind != UM_FOREIGN_SWITCH ? w->value : to_bool(w->value) ? "true" : "false";
    return is_neutral(f, value) ? UM_OK : fail_value(f, label, value, err);
}

/* ---- Storing ----------------------------------------------------------------------------------------------------- */

/* Stores the value in the option of this program that the foreign option maps to, if there is one. */
static um_status store_own(um_settings *s, const um_foreign *f, const um_written *w, um_err *err) {
    um_setting o;
    um_written own = *w;
    if (!f->option || (f->kind == UM_FOREIGN_FOLDER && is_bool(w->value))) return UM_OK;
    bool found = um_settings_find(s, um_foreign_option(f), &o);
    assert(found);
    (void)found;
    if (*f->option == '!') own.value = to_bool(w->value) ? "false" : "true";
    return um_settings_set(s, &o, &own, err);
}

um_status um_settings_set_foreign(um_settings *s, const um_foreign *f, const um_written *w, um_err *err) {
    um_foreign_given *given = &s->foreign_given[f - s->foreign];
    um_buf label = {0};
    um_written_put_label(w, &label);
    um_status st = check(f, w, label.data, err);
    if (st) um_fail_about(err, st, w->name);
    else st = store_own(s, f, w, err);
    if (!st && w->by >= given->by)
        *given = (um_foreign_given){w->by, um_arena_strndup(s->strings, label.data, label.len),
                                    um_arena_strndup(s->strings, w->value, strlen(w->value))};
    um_buf_free(&label);
    return st;
}

/* Fails when a switch contradicts the option that holds its folder: it is on without a folder, or off with one. */
static um_status check_folder(const um_settings *s, const um_foreign *f, const um_foreign_given *given, um_err *err) {
    um_setting o;
    um_buf folder = {0};
    um_status st = UM_OK;
    if (f->kind != UM_FOREIGN_FOLDER || !um_settings_find(s, f->option, &o)) return UM_OK;
    um_option_get_text(o.row, o.base, &folder);
    if (to_bool(given->value) && !folder.len)
        st = um_fail_param(err, UM_EINVAL, f->option, "%s needs a folder; name one with --%s", given->label, f->option);
    else if (is_bool(given->value) && !to_bool(given->value) && folder.len)
        st = um_fail_param(err, UM_EINVAL, f->option, "%s contradicts --%s %.80s; leave one of them out", given->label,
                           f->option, folder.data);
    um_buf_free(&folder);
    return st;
}

um_status um_settings_finish(um_settings *s, um_err *err) {
    for (size_t i = 0; i < s->n_foreign; i++) {
        const um_foreign_given *given = &s->foreign_given[i];
        if (given->by == UM_BY_DEFAULT) continue;
        um_status st = check_folder(s, &s->foreign[i], given, err);
        if (st) return st;
        bool is_flag = given->by == UM_BY_ARGV && is_bool(given->value) && s->foreign[i].kind != UM_FOREIGN_NUMBER;
        um_warn("%s%s%s is accepted: %s", given->label, is_flag ? "" : " ", is_flag ? "" : given->value,
                s->foreign[i].note);
    }
    return UM_OK;
}
