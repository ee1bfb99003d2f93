/* Options by name, from the environment and from the command line. */
#include "base/base.h"

#include <ctype.h>
#include <stdlib.h>

static const um_option *find_in(const um_option_set *sets, size_t n_sets, const char *name, void **base) {
    for (size_t i = 0; i < n_sets; i++) {
        const um_option *row = um_options_find(sets[i].rows, sets[i].n, name);
        if (!row) continue;
        *base = sets[i].base;
        return row;
    }
    return NULL;
}

static const char *nearest_name(const um_option_set *sets, size_t n_sets, const char *name) {
    const char *best[2] = {NULL, NULL};
    for (size_t i = 0; i < n_sets; i++) {
        for (size_t k = 0; k < sets[i].n; k++) {
            best[1] = sets[i].rows[k].name;
            const char *nearer = um_nearest(name, best[0] ? best : best + 1, best[0] ? 2 : 1);
            if (nearer) best[0] = nearer;
        }
    }
    return best[0];
}

/* dashes: "--" for a flag, "" for a name in text; the suggestion is written the same way. */
static um_status fail_unknown(const um_option_set *sets, size_t n_sets, const char *dashes, const char *name,
                              um_err *err) {
    const char *near = nearest_name(sets, n_sets, name);
    if (!near) return um_fail(err, UM_EINVAL, "unknown option %s%.80s", dashes, name);
    char *spelt = um_strdup(near);
    for (char *p = spelt; *dashes && *p; p++)
        if (*p == '_') *p = '-';
    um_status s = um_fail(err, UM_EINVAL, "unknown option %s%.80s; did you mean %s%s?", dashes, name, dashes, spelt);
    um_free(spelt);
    return s;
}

um_status um_options_set(const um_option_set *sets, size_t n_sets, const char *name, const char *value, um_err *err) {
    void *base = NULL;
    const um_option *row = find_in(sets, n_sets, name, &base);
    if (!row) return fail_unknown(sets, n_sets, "", name, err);
    return um_option_set_text(row, base, value, err);
}

/* ---- Environment ------------------------------------------------------------------------------------------------- */

static const char *env_of(const um_option *row, um_buf *name) {
    um_buf_clear(name);
    um_buf_puts(name, "UNMASK_");
    for (const char *p = row->name; *p; p++) um_buf_putc(name, (char)toupper((unsigned char)*p));
    return getenv(name->data);
}

/* An empty variable counts as unset, as scripts write it. */
um_status um_options_env(const um_option_set *sets, size_t n_sets, um_err *err) {
    um_err own, *e = err ? err : &own;
    um_buf name = {0};
    um_status s = UM_OK;
    for (size_t i = 0; i < n_sets && !s; i++) {
        for (size_t k = 0; k < sets[i].n && !s; k++) {
            const char *value = env_of(&sets[i].rows[k], &name);
            if (!value || !*value) continue;
            s = um_option_set_text(&sets[i].rows[k], sets[i].base, value, e);
            if (s) um_fail_in(e, "environment variable %s", name.data);
        }
    }
    um_buf_free(&name);
    return s;
}

/* ---- Command line ------------------------------------------------------------------------------------------------ */

typedef struct args {
    const um_option_set *sets;
    size_t n_sets;
    int argc, next; /* argv[next] comes next */
    char **argv;
} args;

/* "--no-name" of a boolean. */
static const um_option *find_negated(const args *a, const char *name, void **base) {
    if (strncmp(name, "no-", 3) != 0) return NULL;
    const um_option *row = find_in(a->sets, a->n_sets, name + 3, base);
    return row && row->type == UM_OPT_BOOL ? row : NULL;
}

/* The value behind a flag: after '=', or the next word. A word that is itself a flag is taken for a forgotten value. */
static um_status take_value(args *a, const char *name, const char *equal, const char **value, um_err *err) {
    const char *next = a->next < a->argc ? a->argv[a->next] : NULL;
    if (equal) {
        *value = equal + 1;
        return UM_OK;
    }
    if (!next) return um_fail(err, UM_EINVAL, "--%s needs a value, found the end of the command line", name);
    if (strncmp(next, "--", 2) == 0)
        return um_fail(err, UM_EINVAL, "--%s needs a value, found %.80s; write --%s=VALUE if that is it", name, next,
                       name);
    *value = next;
    a->next++;
    return UM_OK;
}

/* A message about a value begins with the row's name; on the command line it is called by its flag. */
static um_status set_value(const um_option *row, void *base, const char *value, um_err *err) {
    um_err own;
    um_status s = um_option_set_text(row, base, value, &own);
    if (!s) return UM_OK;
    char *flag = um_strdup(row->name);
    for (char *p = flag; *p; p++)
        if (*p == '_') *p = '-';
    (void)um_fail(err, s, "--%s%s", flag, own.msg + strlen(flag));
    um_free(flag);
    return s;
}

/* flag: behind the dashes, "name" or "name=value". */
static um_status parse_flag(args *a, const char *flag, um_err *err) {
    const char *equal = strchr(flag, '='), *value = "true";
    char *name = equal ? um_strndup(flag, (size_t)(equal - flag)) : um_strdup(flag);
    void *base = NULL;
    um_status s = UM_OK;
    const um_option *row = find_in(a->sets, a->n_sets, name, &base);
    if (!row && (row = find_negated(a, name, &base)) != NULL) {
        if (equal) s = um_fail(err, UM_EINVAL, "--%s takes no value, found \"%.80s\"", name, equal + 1);
        value = "false";
    } else if (!row) {
        s = fail_unknown(a->sets, a->n_sets, "--", name, err);
    } else if (row->type != UM_OPT_BOOL || equal) {
        s = take_value(a, name, equal, &value, err);
    }
    if (!s) s = set_value(row, base, value, err);
    um_free(name);
    return s;
}

um_status um_options_argv(const um_option_set *sets, size_t n_sets, int argc, char **argv, const char **rest,
                          int *n_rest, bool *help, um_err *err) {
    args a = {sets, n_sets, argc, 1, argv};
    bool flags = true;
    um_status s = UM_OK;
    *n_rest = 0;
    *help = false;
    while (a.next < argc && !s) {
        const char *word = argv[a.next++];
        if (!flags || word[0] != '-' || !word[1]) rest[(*n_rest)++] = word;
        else if (um_streq(word, "--")) flags = false;
        else if (um_streq(word, "-h") || um_streq(word, "--help")) *help = true;
        else if (word[1] == '-') s = parse_flag(&a, word + 2, err);
        else s = um_fail(err, UM_EINVAL, "unknown option %.80s; options start with two dashes, text after --", word);
    }
    return s;
}
