/* Settings from the command line. */
#include "base/base.h"

typedef struct args {
    um_settings *settings;
    int argc, next; /* argv[next] comes next */
    char **argv;
} args;

/* "--no-name" of a boolean. */
static bool find_negated(const args *a, const char *name, um_setting *o) {
    if (strncmp(name, "no-", 3) != 0) return false;
    return um_settings_find(a->settings, name + 3, o) && o->row->type == UM_OPT_BOOL;
}

static um_status fail_unknown(const um_settings *s, const char *name, um_err *err) {
    const char *near = um_options_nearest(s->sets, s->n_sets, name);
    um_buf flag = {0};
    if (!near) return um_fail(err, UM_EINVAL, "unknown option --%.80s", name);
    um_option_put_flag(near, &flag);
    um_status st = um_fail(err, UM_EINVAL, "unknown option --%.80s; did you mean --%s?", name, flag.data);
    um_buf_free(&flag);
    return st;
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

static um_status give(args *a, const um_setting *o, const char *name, const char *value, um_err *err) {
    um_buf flag = {0};
    um_buf_printf(&flag, "--%s", name);
    um_status st = um_settings_give(a->settings, o, &(um_written){UM_BY_ARGV, flag.data, name, value}, err);
    um_buf_free(&flag);
    return st;
}

/* flag: behind the dashes, "name" or "name=value". */
static um_status parse_flag(args *a, const char *flag, um_err *err) {
    const char *equal = strchr(flag, '='), *value = "true";
    char *name = equal ? um_strndup(flag, (size_t)(equal - flag)) : um_strdup(flag);
    um_setting o;
    um_status st = UM_OK;
    if (um_settings_find(a->settings, name, &o)) {
        if (o.row->type != UM_OPT_BOOL || equal) st = take_value(a, name, equal, &value, err);
    } else if (find_negated(a, name, &o)) {
        if (equal) st = um_fail(err, UM_EINVAL, "--%s takes no value, found \"%.80s\"", name, equal + 1);
        value = "false";
    } else {
        st = fail_unknown(a->settings, name, err);
    }
    if (!st) st = give(a, &o, name, value, err);
    um_free(name);
    return st;
}

um_status um_settings_argv(um_settings *s, int argc, char **argv, const char **rest, int *n_rest, bool *help,
                           um_err *err) {
    args a = {s, argc, 1, argv};
    bool flags = true;
    um_status st = UM_OK;
    *n_rest = 0;
    *help = false;
    while (a.next < argc && !st) {
        const char *word = argv[a.next++];
        if (!flags || word[0] != '-' || !word[1]) rest[(*n_rest)++] = word;
        else if (um_streq(word, "--")) flags = false;
        else if (um_streq(word, "-h") || um_streq(word, "--help")) *help = true;
        else if (word[1] == '-') st = parse_flag(&a, word + 2, err);
        else st = um_fail(err, UM_EINVAL, "unknown option %.80s; options start with two dashes, text after --", word);
    }
    return st;
}
