/* Settings from a YAML file. */
#include "base/base.h"

/* The section in which configuration files of Diffulex group the thresholds. Here the grouping has no meaning. */
#define THRESHOLDS "decoding_thresholds"

typedef struct file {
    um_settings *settings;
    const char *path;
    const um_yaml_entry *e;
    um_err *err;
} file;

static um_status fail_key(const file *f, const char *fmt, ...) UM_PRINTF(2, 3);
static um_status fail_key(const file *f, const char *fmt, ...) {
    char text[UM_ERR_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return um_fail(f->err, UM_EINVAL, "%s:%d:%d: %s", f->path, f->e->key_line, f->e->key_column, text);
}

/* ---- Sections ---------------------------------------------------------------------------------------------------- */

static bool is_command(const um_settings *s, const char *name) {
    return um_streq(name, s->command) || (s->known && s->known(name, NULL));
}

/* Returns the command of a section: "run" for "run.decoding_thresholds". Empty for a section for all commands. um_free.
 */
static char *owner_of(const um_settings *s, const char *section) {
    char *first = um_strndup(section, strcspn(section, "."));
    if (!is_command(s, first)) *first = '\0';
    return first;
}

/* Returns whether the entry's name is a section. At the top level these are `engine`, the names of commands and
 * `decoding_thresholds`; the first two may contain `decoding_thresholds`. */
static bool is_section(const file *f) {
    const um_yaml_entry *e = f->e;
    bool top = !*e->section, second = !top && !strchr(e->section, '.') && !um_streq(e->section, THRESHOLDS);
    if (um_streq(e->key, THRESHOLDS)) return top || second;
    return top && (um_streq(e->key, "engine") || is_command(f->settings, e->key));
}

static um_status fail_section(const file *f) {
    um_setting o;
    if (um_settings_find(f->settings, f->e->key, &o))
        return fail_key(f, "%.80s: expected a value, found a mapping", f->e->key);
    return fail_key(f, "unknown section %.80s; expected engine, " THRESHOLDS " or a command", f->e->key);
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

static um_status fail_unknown(const file *f, const char *owner) {
    const um_settings *s = f->settings;
    const char *near = um_options_nearest(s->sets, s->n_sets - s->n_outer, f->e->key);
    if (*owner && !um_streq(owner, s->command)) return fail_key(f, "%.80s is not an option of %.80s", f->e->key, owner);
    if (near) return fail_key(f, "unknown option %.80s; did you mean %s?", f->e->key, near);
    return fail_key(f, "unknown option %.80s", f->e->key);
}

static um_status store_value(const file *f, const um_setting *o, bool is_own) {
    const um_yaml_entry *e = f->e;
    bool is_scalar = o->row->type == UM_OPT_BOOL || o->row->type == UM_OPT_INT || o->row->type == UM_OPT_INT64 ||
                     o->row->type == UM_OPT_FLOAT;
    if (o->is_outer) return fail_key(f, "%.80s belongs on the command line or in the environment", e->key);
    if (e->kind == UM_YAML_NULL) return UM_OK;
    if (e->kind == UM_YAML_QUOTED && is_scalar && !um_streq(e->value, "auto"))
        return um_fail(f->err, UM_EINVAL,
                       "%s:%d:%d: %.80s: expected a value of type %s, found the text \"%.80s\"; remove the quotes",
                       f->path, e->line, e->column, e->key, um_option_type(o->row), e->value);
    um_buf where = {0};
    um_buf_printf(&where, "%s:%d:%d", f->path, e->line, e->column);
    um_status st = um_settings_set(
        f->settings, o, &(um_written){is_own ? UM_BY_SECTION : UM_BY_FILE, where.data, e->key, e->value}, f->err);
    um_buf_free(&where);
    return st;
}

static um_status store_foreign(const file *f, const um_foreign *foreign, bool is_own) {
    const um_yaml_entry *e = f->e;
    um_buf where = {0};
    if (e->kind == UM_YAML_NULL) return UM_OK;
    um_buf_printf(&where, "%s:%d:%d", f->path, e->line, e->column);
    const um_written w = {is_own ? UM_BY_SECTION : UM_BY_FILE, where.data, e->key, e->value};
    um_status st = um_settings_set_foreign(f->settings, foreign, &w, f->err);
    um_buf_free(&where);
    return st;
}

static um_status read_entry(const file *f) {
    um_settings *s = f->settings;
    const um_foreign *foreign = NULL;
    um_setting o;
    um_status st;
    if (f->e->kind == UM_YAML_SECTION) return is_section(f) ? UM_OK : fail_section(f);
    if (f->e->kind == UM_YAML_NULL && is_section(f)) return UM_OK; /* an empty section */
    char *owner = owner_of(s, f->e->section);
    bool is_own = um_streq(owner, s->command);
    bool is_mine = is_own || !*owner;
    if (is_mine && um_settings_find(s, f->e->key, &o)) st = store_value(f, &o, is_own);
    else if (is_mine && (foreign = um_settings_find_foreign(s, f->e->key))) st = store_foreign(f, foreign, is_own);
    else if (s->known && s->known(*owner ? owner : NULL, f->e->key)) st = UM_OK;
    else st = fail_unknown(f, owner);
    um_free(owner);
    return st;
}

um_status um_settings_yaml(um_settings *s, const char *text, size_t len, const char *where, um_err *err) {
    um_yaml yaml = {0};
    file f = {s, where, NULL, err};
    um_status st = um_yaml_parse(&yaml, s->strings, text, len, where, err);
    for (size_t i = 0; i < yaml.n && !st; i++) {
        f.e = &yaml.entry[i];
        st = read_entry(&f);
    }
    um_yaml_free(&yaml);
    return st;
}

um_status um_settings_file(um_settings *s, const char *path, um_err *err) {
    um_buf text = {0};
    um_status st = um_file_read(path, UM_YAML_BYTES_MAX, &text, err);
    if (!st) st = um_settings_yaml(s, text.data, text.len, path, err);
    um_buf_free(&text);
    return st;
}
