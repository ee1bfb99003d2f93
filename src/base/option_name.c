/* Options: finding them by name and alias, their flags and variables, and suggestions for mistyped names. */
#include "base/base.h"

#include <ctype.h>

/* Compares a with the n bytes at b; '-' and '_' are equal. */
static bool same_name(const char *a, const char *b, size_t n) {
    size_t i = 0;
    for (; a[i] && i < n; i++)
        if ((a[i] == '-' ? '_' : a[i]) != (b[i] == '-' ? '_' : b[i])) return false;
    return !a[i] && i == n;
}

int um_word_index(const char *list, char separator, const char *word, um_str *at) {
    int i = 0;
    for (const char *p = list; p; i++) {
        const char *end = strchr(p, separator);
        *at = (um_str){p, end ? (size_t)(end - p) : strlen(p)};
        if (same_name(word, at->p, at->n)) return i;
        p = end ? end + 1 : NULL;
    }
    return -1;
}

/* Moves *p behind the next name of a list and sets *name to it. Returns false at the end of the list. */
static bool next_name(const char **p, um_str *name) {
    if (!*p || !**p) return false;
    *name = (um_str){*p, strcspn(*p, ",")};
    *p += name->n + ((*p)[name->n] == ',');
    return true;
}

bool um_option_alias(const um_option *row, size_t i, um_str *name) {
    const char *p = row->alias;
    while (next_name(&p, name))
        if (name->n > 1 && i-- == 0) return true;
    return false;
}

char um_option_short(const um_option *row) {
    const char *p = row->alias;
    um_str name;
    while (next_name(&p, &name))
        if (name.n == 1) return *name.p;
    return '\0';
}

const um_option *um_options_find(const um_option *rows, size_t n, const char *name) {
    um_str alias;
    for (size_t i = 0; i < n; i++) {
        if (same_name(name, rows[i].name, strlen(rows[i].name))) return &rows[i];
        for (size_t k = 0; um_option_alias(&rows[i], k, &alias); k++)
            if (same_name(name, alias.p, alias.n)) return &rows[i];
    }
    return NULL;
}

void um_option_put_flag(const char *name, um_buf *out) {
    for (const char *p = name; *p; p++) um_buf_putc(out, *p == '_' ? '-' : *p);
}

void um_option_put_env(const char *name, um_buf *out) {
    um_buf_puts(out, "UNMASK_");
    for (const char *p = name; *p; p++) um_buf_putc(out, *p == '-' ? '_' : (char)toupper((unsigned char)*p));
}

/* ---- Mistyped names ---------------------------------------------------------------------------------------------- */

/* Returns the Levenshtein distance: the least number of letters to insert, delete or replace. Keeps one row of the
 * table: row[j] is the distance between the letters of a so far and the first j letters of b. */
static size_t edit_distance(const char *a, const char *b, size_t nb) {
    size_t row[65];
    for (size_t j = 0; j <= nb; j++) row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < nb; j++) {
            size_t replaced = diagonal + !same_name((char[]){a[i], 0}, b + j, 1);
            diagonal = row[j + 1];
            row[j + 1] = UM_MIN(replaced, UM_MIN(row[j], row[j + 1]) + 1);
        }
    }
    return row[nb];
}

/* A word is near when at most one letter in three is wrong. */
const char *um_nearest(const char *word, const char *const *words, size_t n) {
    const char *best = NULL;
    size_t best_distance = (strlen(word) + 2) / 3 + 1;
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(words[i]);
        if (len > 64 || strlen(word) > 64) continue;
        size_t d = edit_distance(word, words[i], len);
        if (d < best_distance) {
            best = words[i];
            best_distance = d;
        }
    }
    return best;
}

const char *um_options_nearest(const um_option_set *sets, size_t n_sets, const char *name) {
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

um_status um_options_set(const um_option_set *sets, size_t n_sets, const char *name, const char *value, um_err *err) {
    for (size_t i = 0; i < n_sets; i++) {
        const um_option *row = um_options_find(sets[i].rows, sets[i].n, name);
        if (row) return um_option_set_as(row, sets[i].base, name, name, value, err);
    }
    const char *near = um_options_nearest(sets, n_sets, name);
    um_status s = near ? um_fail(err, UM_EINVAL, "unknown option %.80s; did you mean %s?", name, near)
                       : um_fail(err, UM_EINVAL, "unknown option %.80s", name);
    return um_fail_about(err, s, name);
}

/* ---- Groups ------------------------------------------------------------------------------------------------------ */

/* Returns whether a row before row k of the set has the same group. */
static bool seen_before(const um_option_set *sets, size_t set, size_t k) {
    const char *group = sets[set].rows[k].group;
    for (size_t i = 0; i <= set; i++)
        for (size_t j = 0; j < (i == set ? k : sets[i].n); j++)
            if (um_streq(sets[i].rows[j].group, group)) return true;
    return false;
}

static void each_of_group(const um_option_set *sets, size_t n_sets, const char *group, um_option_fn fn, void *arg) {
    bool opens_group = true;
    for (size_t i = 0; i < n_sets; i++) {
        for (size_t k = 0; k < sets[i].n; k++) {
            if (!um_streq(sets[i].rows[k].group, group)) continue;
            fn(arg, &sets[i], &sets[i].rows[k], opens_group);
            opens_group = false;
        }
    }
}

void um_options_each(const um_option_set *sets, size_t n_sets, um_option_fn fn, void *arg) {
    for (size_t i = 0; i < n_sets; i++)
        for (size_t k = 0; k < sets[i].n; k++)
            if (!seen_before(sets, i, k)) each_of_group(sets, n_sets, sets[i].rows[k].group, fn, arg);
}
