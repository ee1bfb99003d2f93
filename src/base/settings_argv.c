/* Settings from the command line. */
#include "base/base.h"

typedef struct args {
    um_settings *settings;
    int argc, next; /* argv[next] is parsed next */
    char **argv;
} args;

/* Finds the boolean option that "--no-NAME" turns off. */
static bool find_negated(const args *a, const char *name, um_setting *o) {
    if (strncmp(name, "no-", 3) != 0) return false;
    return um_settings_find(a->settings, name + 3, o) && o->row->type == UM_OPT_BOOL;
}

/* Returns the option that another program calls `name`, or else the one with the nearest name, or NULL. */
static const char *find_meant(const um_settings *s, const char *name) {
    const char *own = s->peer_name ? s->peer_name(name) : NULL;
    um_setting o;
    if (own && um_settings_find(s, strncmp(own, "no_", 3) == 0 ? own + 3 : own, &o)) return own;
    return um_options_nearest(s->sets, s->n_sets, name);
}

/* `dashes` precede the name, as the user wrote it. */
static um_status fail_unknown(const um_settings *s, const char *dashes, const char *name, um_err *err) {
    const char *near = find_meant(s, name);
    um_buf flag = {0};
    if (!near) return um_fail(err, UM_EINVAL, "unknown option %s%.80s", dashes, name);
    um_option_put_flag(near, &flag);
    um_status st = um_fail(err, UM_EINVAL, "unknown option %s%.80s; did you mean --%s?", dashes, name, flag.data);
    um_buf_free(&flag);
    return st;
}

/* Reads the value of a flag: the text after '=', or the next word. If the next word is a flag, the value is missing. */
static um_status read_value(args *a, const char *name, const char *equal, const char **value, um_err *err) {
    const char *next = a->next < a->argc ? a->argv[a->next] : NULL;
    if (equal) {
        *value = equal + 1;
        return UM_OK;
    }
    if (!next) return um_fail(err, UM_EINVAL, "--%s needs a value, found the end of the command line", name);
    if (strncmp(next, "--", 2) == 0)
        return um_fail(err, UM_EINVAL, "--%s needs a value, found %.80s; write --%s=VALUE if this is the value", name,
                       next, name);
    *value = next;
    a->next++;
    return UM_OK;
}

static um_status store_value(args *a, const um_setting *o, const char *name, const char *value, um_err *err) {
    um_buf flag = {0};
    um_buf_printf(&flag, "--%s", name);
    um_status st = um_settings_set(a->settings, o, &(um_written){UM_BY_ARGV, flag.data, name, value}, err);
    um_buf_free(&flag);
    return st;
}

/* Returns the foreign option of a flag, or NULL. Sets *value to "false" when the flag is "no-" and a switch's name. */
static const um_foreign *find_foreign(const args *a, const char *name, const char **value) {
    const um_foreign *f = um_settings_find_foreign(a->settings, name);
    if (f || strncmp(name, "no-", 3) != 0) return f;
    f = um_settings_find_foreign(a->settings, name + 3);
    *value = "false";
    return f && (f->kind == UM_FOREIGN_SWITCH || f->kind == UM_FOREIGN_FOLDER) ? f : NULL;
}

/* Stores the value of a foreign option. After a switch that may name a folder, the next word is its value if such a
 * folder exists, and an ordinary argument otherwise. */
static um_status store_foreign(args *a, const um_foreign *f, const char *name, const char *equal, const char *value,
                               um_err *err) {
    bool is_switch = f->kind == UM_FOREIGN_SWITCH || f->kind == UM_FOREIGN_FOLDER, is_on = um_streq(value, "true");
    um_buf flag = {0};
    um_status st = UM_OK;
    if (!is_on && equal) return um_fail(err, UM_EINVAL, "--%s takes no value, found \"%.80s\"", name, equal + 1);
    if (equal || !is_switch) st = read_value(a, name, equal, &value, err);
    else if (is_on && f->kind == UM_FOREIGN_FOLDER && a->next < a->argc && um_dir_exists(a->argv[a->next]))
        value = a->argv[a->next++];
    um_buf_printf(&flag, "--%s", name);
    if (!st) st = um_settings_set_foreign(a->settings, f, &(um_written){UM_BY_ARGV, flag.data, name, value}, err);
    um_buf_free(&flag);
    return st;
}

/* Parses one flag: "name" or "name=value", without the dashes. */
static um_status parse_flag(args *a, const char *flag, um_err *err) {
    const char *equal = strchr(flag, '='), *value = "true";
    char *name = equal ? um_strndup(flag, (size_t)(equal - flag)) : um_strdup(flag);
    const um_foreign *f = NULL;
    um_setting o;
    um_status st = UM_OK;
    if (um_settings_find(a->settings, name, &o)) {
        if (o.row->type != UM_OPT_BOOL || equal) st = read_value(a, name, equal, &value, err);
    } else if (find_negated(a, name, &o)) {
        if (equal) st = um_fail(err, UM_EINVAL, "--%s takes no value, found \"%.80s\"", name, equal + 1);
        value = "false";
    } else if ((f = find_foreign(a, name, &value))) {
        st = store_foreign(a, f, name, equal, value, err);
    } else {
        st = fail_unknown(a->settings, "--", name, err);
    }
    if (!st && !f) st = store_value(a, &o, name, value, err);
    um_free(name);
    return st;
}

/* Fails for a word such as "-x" or "-model" that is no short option. */
static um_status fail_short(const um_settings *s, const char *word, um_err *err) {
    um_setting o;
    const char *own = s->peer_name ? s->peer_name(word + 1) : NULL;
    bool is_known = um_settings_find(s, word + 1, &o) || (own && um_settings_find(s, own, &o));
    if (is_known) return fail_unknown(s, "-", word + 1, err);
    return um_fail(err, UM_EINVAL,
                   "unknown option %.80s; long options start with two dashes, text that starts with a dash goes after "
                   "--",
                   word);
}

/* Parses a short option: "-q", "-t 4" or "-t4". Only a number may follow the letter in the same word: "-model" is a
 * mistyped --model. */
static um_status parse_short(args *a, const char *word, um_err *err) {
    um_settings *s = a->settings;
    const char *value = word + 2, *next = a->next < a->argc ? a->argv[a->next] : NULL;
    um_setting o, other;
    bool attached = *value >= '0' && *value <= '9';
    if (!um_settings_find_short(s, word[1], &o) || (*value && (!attached || o.row->type == UM_OPT_BOOL)))
        return fail_short(s, word, err);
    if (o.row->type == UM_OPT_BOOL) {
        value = "true";
    } else if (!attached) {
        if (!next) return um_fail(err, UM_EINVAL, "%s needs a value, found the end of the command line", word);
        bool is_flag = strncmp(next, "--", 2) == 0 ||
                       (next[0] == '-' && next[1] && !next[2] && um_settings_find_short(s, next[1], &other));
        if (is_flag) return um_fail(err, UM_EINVAL, "%s needs a value, found %.80s", word, next);
        value = next;
        a->next++;
    }
    const char where[] = {'-', word[1], '\0'};
    return um_settings_set(s, &o, &(um_written){UM_BY_ARGV, where, o.row->name, value}, err);
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
        else st = parse_short(&a, word, err);
    }
    return st;
}
