/* Lookup of strategies, samplers and retention rules by name. Each table is in a separate file, so that a program can
 * link its own table instead. */
#include "decode/decode.h"

bool um_name_in(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *p = list; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && strncmp(p, name, n) == 0) return true;
    return false;
}

static bool is_called(const char *name, const char *aliases, const char *wanted) {
    return um_streq(name, wanted) || um_name_in(aliases, wanted);
}

static void add_name(um_buf *names, const char *name) { um_buf_printf(names, "%s%s", names->len ? ", " : "", name); }

/* Also frees the names. */
static um_status fail_unknown(const char *option, const char *what, const char *wanted, um_buf *names, um_err *err) {
    um_status st =
        um_fail_param(err, UM_EINVAL, option, "no %s is named \"%s\"; there are: %s", what, wanted, names->data);
    um_buf_free(names);
    return st;
}

/* The names and the aliases of the rows of a table, each list with its words separated by '|'. */
typedef struct name_lists {
    um_buf *names, *aliases;
} name_lists;

static void put_word(um_buf *out, const char *word, size_t n) {
    um_buf_printf(out, "%s%.*s", out->len ? "|" : "", (int)n, word);
}

/* `aliases` are separated by commas, or NULL. */
static void put_row(const name_lists *to, const char *name, const char *aliases) {
    put_word(to->names, name, strlen(name));
    for (const char *p = aliases; p && *p; p += strcspn(p, ","), p += *p == ',')
        put_word(to->aliases, p, strcspn(p, ","));
}

void um_decode_put_names(const char *option, um_buf *names, um_buf *aliases) {
    const name_lists to = {names, aliases};
    if (um_streq(option, "decoding_strategy"))
        for (const um_strategy *const *s = um_strategies; *s; s++) put_row(&to, (*s)->name, (*s)->aliases);
    if (um_streq(option, "sampler"))
        for (size_t i = 0; um_sampler_at(i); i++) put_row(&to, um_sampler_at(i)->name, um_sampler_at(i)->aliases);
    if (um_streq(option, "retention"))
        for (const um_retention *const *s = um_retentions; *s; s++) put_row(&to, (*s)->name, (*s)->aliases);
}

um_status um_strategy_find(const um_strategy **out, const char *name, um_err *err) {
    um_buf names = {0};
    *out = NULL;
    for (const um_strategy *const *s = um_strategies; *s; s++) {
        if (is_called((*s)->name, (*s)->aliases, name)) *out = *s;
        add_name(&names, (*s)->name);
    }
    if (!*out) return fail_unknown("decoding_strategy", "strategy", name, &names, err);
    um_buf_free(&names);
    return UM_OK;
}

bool um_params_have(const um_params *params, const char *option) {
    for (int i = 0; i < UM_PARAMS_MAX && params[i].rows; i++)
        if (um_options_find(params[i].rows, params[i].n, option)) return true;
    return false;
}

um_status um_sampler_find(const um_sampler **out, const char *name, um_err *err) {
    um_buf names = {0};
    *out = NULL;
    const um_sampler *s;
    for (size_t i = 0; (s = um_sampler_at(i)); i++) {
        if (is_called(s->name, s->aliases, name)) *out = s;
        add_name(&names, s->name);
    }
    if (!*out) return fail_unknown("sampler", "sampler", name, &names, err);
    um_buf_free(&names);
    return UM_OK;
}

um_status um_retention_find(const um_retention **out, const char *name, um_err *err) {
    um_buf names = {0};
    *out = NULL;
    for (const um_retention *const *s = um_retentions; *s; s++) {
        if (is_called((*s)->name, (*s)->aliases, name)) *out = *s;
        add_name(&names, (*s)->name);
    }
    if (!*out) return fail_unknown("retention", "rule", name, &names, err);
    um_buf_free(&names);
    return UM_OK;
}
