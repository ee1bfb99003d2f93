/* Settings from the environment. */
#include "base/base.h"

#include <ctype.h>
#include <unistd.h>

#define PREFIX "UNMASK_"

/* Returns a name such as "MAX_TOKENS" in lower case, or NULL when it has lower-case letters already. */
static char *name_of(const char *variable, size_t n) {
    char *name = um_strndup(variable, n);
    for (char *p = name; *p; p++) {
        if (islower((unsigned char)*p)) {
            um_free(name);
            return NULL;
        }
        *p = (char)tolower((unsigned char)*p);
    }
    return name;
}

/* Warns about an unknown variable. It may be meant for another program, so it is not an error. */
static void warn_unknown(const um_settings *s, const char *variable, size_t n) {
    char *name = um_strndup(variable + strlen(PREFIX), n - strlen(PREFIX));
    for (char *p = name; *p; p++) *p = (char)tolower((unsigned char)*p);
    const char *near = um_options_nearest(s->sets, s->n_sets, name);
    um_buf right = {0};
    if (near) um_option_put_env(near, &right);
    um_warn("environment variable %.*s: no option has this name%s%s%s", (int)UM_MIN(n, 80), variable,
            near ? "; did you mean " : "", near ? right.data : "", near ? "?" : "");
    um_buf_free(&right);
    um_free(name);
}

/* Reads a variable "UNMASK_NAME=value"; n is the number of bytes before the '='. */
static um_status read_variable(um_settings *s, const char *variable, size_t n, um_err *err) {
    char *name = name_of(variable + strlen(PREFIX), n - strlen(PREFIX)), *where = um_strndup(variable, n);
    const um_written w = {UM_BY_ENV, where, name, variable + n + 1};
    const um_foreign *f = NULL;
    um_setting o;
    um_status st = UM_OK;
    if (name && um_settings_find(s, name, &o)) st = um_settings_set(s, &o, &w, err);
    else if (name && (f = um_settings_find_foreign(s, name))) st = um_settings_set_foreign(s, f, &w, err);
    else if (!name || !s->known || !s->known(NULL, name)) warn_unknown(s, variable, n);
    um_free(where);
    um_free(name);
    return st;
}

um_status um_settings_env(um_settings *s, um_err *err) {
    um_status st = UM_OK;
    for (char **v = environ; v && *v && !st; v++) {
        size_t n = strcspn(*v, "=");
        bool is_set = (*v)[n] == '=' && (*v)[n + 1]; /* an empty variable counts as unset */
        if (is_set && n > strlen(PREFIX) && strncmp(*v, PREFIX, strlen(PREFIX)) == 0) st = read_variable(s, *v, n, err);
    }
    return st;
}
