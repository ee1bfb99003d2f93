/* Options: rows, their values, and the names people mistype. */
#include "base/base.h"

#include <math.h>
#include <stdlib.h>

#define OPEN_END 2147483647.0 /* a maximum from here on is no limit that a person should read */

static void *field_of(const um_option *row, void *base) { return (char *)base + row->offset; }

/* ---- Names ------------------------------------------------------------------------------------------------------- */

/* Compares a with the n bytes at b; '-' and '_' are the same. */
static bool same_name(const char *a, const char *b, size_t n) {
    size_t i = 0;
    for (; a[i] && i < n; i++)
        if ((a[i] == '-' ? '_' : a[i]) != (b[i] == '-' ? '_' : b[i])) return false;
    return !a[i] && i == n;
}

/* Place of `word` in a list with separators, or -1. *at, *n: the list's own spelling. */
static int index_in(const char *list, char separator, const char *word, const char **at, size_t *n) {
    int i = 0;
    for (const char *p = list; p; i++) {
        const char *end = strchr(p, separator);
        *at = p;
        *n = end ? (size_t)(end - p) : strlen(p);
        if (same_name(word, p, *n)) return i;
        p = end ? end + 1 : NULL;
    }
    return -1;
}

const um_option *um_options_find(const um_option *rows, size_t n, const char *name) {
    const char *at;
    size_t len;
    for (size_t i = 0; i < n; i++) {
        if (same_name(name, rows[i].name, strlen(rows[i].name))) return &rows[i];
        if (rows[i].alias && index_in(rows[i].alias, ',', name, &at, &len) >= 0) return &rows[i];
    }
    return NULL;
}

/* Distance of Levenshtein: the least number of letters to put in, take out or replace. One row of the table is kept;
 * row[j] is the distance of the letters of a so far to the first j of b. */
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

/* Near: at most one letter in three is wrong. */
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

/* ---- Text to value ----------------------------------------------------------------------------------------------- */

static bool has_range(const um_option *row) {
    return row->type >= UM_OPT_INT && row->type <= UM_OPT_FLOAT && (row->min != 0 || row->max != 0);
}

static void put_range(const um_option *row, um_buf *out) {
    char min[UM_NUMBER_MAX], max[UM_NUMBER_MAX];
    um_format_double(row->min, min);
    if (row->max >= OPEN_END) {
        um_buf_printf(out, "%s or more", min);
        return;
    }
    um_format_double(row->max, max);
    um_buf_printf(out, "%s..%s", min, max);
}

static void put_choices(const char *choices, um_buf *out) {
    for (const char *p = choices; *p;) {
        size_t n = strcspn(p, "|");
        if (p != choices) um_buf_puts(out, p[n] ? ", " : " or ");
        um_buf_append(out, p, n);
        p += n + (p[n] == '|');
    }
}

void um_option_range(const um_option *row, um_buf *out) {
    if (row->choices) put_choices(row->choices, out);
    else if (has_range(row)) put_range(row, out);
    if (row->autos && (row->choices || has_range(row))) um_buf_puts(out, ", or auto");
}

/* kind: what was expected; for a row with choices NULL, they say it themselves. */
static um_status fail_kind(const um_option *row, const char *kind, const char *value, um_err *err) {
    um_buf expected = {0};
    if (kind) um_buf_puts(&expected, kind);
    if (kind && has_range(row)) um_buf_putc(&expected, ' ');
    if (!kind || has_range(row)) um_option_range(row, &expected);
    else if (row->autos) um_buf_puts(&expected, ", or auto");
    um_status s = um_fail(err, UM_EINVAL, "%s: expected %s, found \"%.80s\"", row->name, expected.data, value);
    um_buf_free(&expected);
    return s;
}

static um_status fail_range(const um_option *row, const char *value, um_err *err) {
    um_buf range = {0};
    put_range(row, &range);
    um_status s = um_fail(err, UM_ERANGE, "%s: %s is outside %s", row->name, value, range.data);
    um_buf_free(&range);
    return s;
}

static um_status set_bool(const um_option *row, void *field, const char *value, um_err *err) {
    bool yes = um_streq(value, "true") || um_streq(value, "1");
    if (!yes && !um_streq(value, "false") && !um_streq(value, "0")) return fail_kind(row, "true or false", value, err);
    *(bool *)field = yes;
    return UM_OK;
}

static um_status set_int(const um_option *row, void *field, const char *value, bool check, um_err *err) {
    int64_t v;
    if (!um_parse_int(value, &v)) return fail_kind(row, "an integer", value, err);
    if (row->type == UM_OPT_INT && v != (int32_t)v) return fail_kind(row, "an integer of 32 bits", value, err);
    if (check && has_range(row) && ((double)v < row->min || (double)v > row->max)) return fail_range(row, value, err);
    if (row->type == UM_OPT_INT) *(int32_t *)field = (int32_t)v;
    else *(int64_t *)field = v;
    return UM_OK;
}

static um_status set_float(const um_option *row, void *field, const char *value, bool check, um_err *err) {
    double v;
    if (!check && um_streq(value, "nan")) v = (double)NAN;
    else if (!um_parse_double(value, &v) || !isfinite((float)v)) return fail_kind(row, "a number", value, err);
    if (check && has_range(row) && (v < row->min || v > row->max)) return fail_range(row, value, err);
    *(float *)field = (float)v;
    return UM_OK;
}

/* A word with choices is stored in the table's spelling. */
static um_status set_name(const um_option *row, void *field, const char *value, bool check, um_err *err) {
    const char *at = value;
    size_t n = strlen(value);
    if (check && row->choices && index_in(row->choices, '|', value, &at, &n) < 0)
        return fail_kind(row, NULL, value, err);
    if (n >= row->size) return fail_kind(row, "a shorter word", value, err);
    memcpy(field, at, n);
    memset((char *)field + n, 0, row->size - n);
    return UM_OK;
}

static um_status set_choice(const um_option *row, void *field, const char *value, bool check, um_err *err) {
    const char *at;
    size_t n;
    int64_t raw;
    int i = index_in(row->choices, '|', value, &at, &n);
    if (i < 0 && !check && um_parse_int(value, &raw)) i = (int)raw;
    else if (i < 0) return fail_kind(row, NULL, value, err);
    *(int32_t *)field = i;
    return UM_OK;
}

/* check: the text comes from outside; what "auto" stores may lie outside the range. */
static um_status store(const um_option *row, void *field, const char *value, bool check, um_err *err) {
    switch (row->type) {
    case UM_OPT_BOOL: return set_bool(row, field, value, err);
    case UM_OPT_INT:
    case UM_OPT_INT64: return set_int(row, field, value, check, err);
    case UM_OPT_FLOAT: return set_float(row, field, value, check, err);
    case UM_OPT_NAME: return set_name(row, field, value, check, err);
    case UM_OPT_CHOICE: return set_choice(row, field, value, check, err);
    case UM_OPT_STR: *(const char **)field = value; return UM_OK;
    }
    return um_fail(err, UM_EINVAL, "%s: unknown type of option", row->name);
}

um_status um_option_set_text(const um_option *row, void *base, const char *value, um_err *err) {
    void *field = field_of(row, base);
    if (row->autos && um_streq(value, "auto")) return store(row, field, row->autos, false, err);
    return store(row, field, value, true, err);
}

void um_options_init(const um_option *rows, size_t n, void *base) {
    for (size_t i = 0; i < n; i++) {
        um_err err;
        assert(rows[i].def || rows[i].type == UM_OPT_STR);
        if (!rows[i].def) {
            *(const char **)field_of(&rows[i], base) = NULL;
        } else if (um_option_set_text(&rows[i], base, rows[i].def, &err) != UM_OK) {
            fprintf(stderr, "unmask: default of an option: %s\n", err.msg);
            abort();
        }
    }
}

/* ---- Value to text ----------------------------------------------------------------------------------------------- */

static void put_value(const um_option *row, const void *field, um_buf *out) {
    char text[UM_NUMBER_MAX] = "nan";
    const char *p = row->choices;
    switch (row->type) {
    case UM_OPT_BOOL: um_buf_puts(out, *(const bool *)field ? "true" : "false"); return;
    case UM_OPT_INT: um_buf_printf(out, "%d", *(const int32_t *)field); return;
    case UM_OPT_INT64: um_buf_printf(out, "%lld", (long long)*(const int64_t *)field); return;
    case UM_OPT_FLOAT:
        if (isfinite(*(const float *)field)) um_format_float(*(const float *)field, text);
        um_buf_puts(out, text);
        return;
    case UM_OPT_NAME: um_buf_puts(out, (const char *)field); return;
    case UM_OPT_CHOICE:
        for (int32_t i = *(const int32_t *)field; i > 0 && strchr(p, '|'); i--) p = strchr(p, '|') + 1;
        um_buf_append(out, p, strcspn(p, "|"));
        return;
    case UM_OPT_STR: um_buf_puts(out, *(const char *const *)field ? *(const char *const *)field : ""); return;
    }
}

/* Two fields of equal text are equal, so "auto" is recognised by storing it aside and writing both. */
static bool holds_auto(const um_option *row, const void *field, um_buf *out) {
    size_t start = out->len;
    put_value(row, field, out);
    if (!row->autos) return false;
    void *other = um_zalloc(row->size);
    um_buf text = {0};
    bool same = store(row, other, row->autos, false, NULL) == UM_OK;
    if (same) put_value(row, other, &text);
    same = same && um_streq(text.data, out->data + start);
    um_buf_free(&text);
    um_free(other);
    return same;
}

void um_option_get_text(const um_option *row, const void *base, um_buf *out) {
    size_t start = out->len;
    if (!holds_auto(row, (const char *)base + row->offset, out)) return;
    out->len = start;
    um_buf_puts(out, "auto");
}
