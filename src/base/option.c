/* Options: converts values from text and to text. */
#include "base/base.h"

#include <math.h>
#include <stdlib.h>
#include <strings.h>

#define OPEN_END 2147483647.0 /* a maximum of at least this is shown as "or more" */

/* ---- Text to value ----------------------------------------------------------------------------------------------- */

static bool has_range(const um_option *row) {
    return row->type >= UM_OPT_INT && row->type <= UM_OPT_FLOAT && (row->min != 0 || row->max != 0);
}

static void put_range(const um_option *row, double open_end, um_buf *out) {
    char min[UM_NUMBER_MAX], max[UM_NUMBER_MAX];
    um_format_double(row->min, min);
    if (row->max >= open_end) {
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

const char *um_option_type(const um_option *row) {
    static const char *const name[] = {"bool", "integer", "integer", "number", "word", "word", "text"};
    return name[row->type];
}

um_str um_option_auto(const um_option *row) {
    const char *equals = row->autos ? strchr(row->autos, '=') : NULL;
    if (equals) return (um_str){row->autos, (size_t)(equals - row->autos)};
    return row->autos ? um_str_of("auto") : (um_str){0};
}

/* Returns the text of the value that the row's word ("auto") stores. */
static const char *auto_value(const um_option *row) {
    const char *equals = strchr(row->autos, '=');
    return equals ? equals + 1 : row->autos;
}

static void put_auto(const um_option *row, um_buf *out) {
    um_str word = um_option_auto(row);
    if (word.n) um_buf_printf(out, ", or %.*s", (int)word.n, word.p);
}

static bool is_list(const um_option *row) { return row->type == UM_OPT_NAME && row->choices && row->max > 1; }

void um_option_range(const um_option *row, um_buf *out) {
    if (is_list(row)) um_buf_puts(out, "one or more of ");
    if (row->choices) put_choices(row->choices, out);
    else if (has_range(row)) put_range(row, OPEN_END, out);
    if (row->choices || has_range(row)) put_auto(row, out);
}

/* Fails for an invalid value. `kind` names the expected kind of value ("an integer"). NULL: the message lists the row's
 * choices. */
static um_status fail_kind(const um_option *row, const char *kind, const char *value, um_err *err) {
    um_buf expected = {0};
    if (kind) um_buf_puts(&expected, kind);
    if (kind && has_range(row)) um_buf_putc(&expected, ' ');
    if (!kind || has_range(row)) um_option_range(row, &expected);
    else put_auto(row, &expected);
    um_status s = um_fail(err, UM_EINVAL, "expected %s, found \"%.80s\"", expected.data, value);
    um_buf_free(&expected);
    return s;
}

/* Fails for a number out of range. A maximum that was exceeded is shown even if it is at least OPEN_END. */
static um_status fail_range(const um_option *row, bool above, const char *value, um_err *err) {
    um_buf range = {0};
    put_range(row, above ? INFINITY : OPEN_END, &range);
    um_status s = um_fail(err, UM_ERANGE, "%.80s is outside %s", value, range.data);
    um_buf_free(&range);
    return s;
}

static um_status set_bool(const um_option *row, void *field, const char *value, um_err *err) {
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < UM_LEN(words); i++) {
        if (strcasecmp(value, words[i]) != 0) continue;
        *(bool *)field = i % 2;
        return UM_OK;
    }
    return fail_kind(row, "true or false", value, err);
}

static um_status set_int(const um_option *row, void *field, const char *value, bool check, um_err *err) {
    int64_t v;
    if (!um_parse_int(value, &v)) return fail_kind(row, "an integer", value, err);
    if (row->type == UM_OPT_INT && v != (int32_t)v) return fail_kind(row, "an integer of 32 bits", value, err);
    if (check && has_range(row) && ((double)v < row->min || (double)v > row->max))
        return fail_range(row, (double)v > row->max, value, err);
    if (row->type == UM_OPT_INT) *(int32_t *)field = (int32_t)v;
    else *(int64_t *)field = v;
    return UM_OK;
}

static um_status set_float(const um_option *row, void *field, const char *value, bool check, um_err *err) {
    double v;
    if (!check && um_streq(value, "nan")) v = (double)NAN;
    else if (!um_parse_double(value, &v) || !isfinite((float)v)) return fail_kind(row, "a number", value, err);
    if (check && has_range(row) && (v < row->min || v > row->max)) return fail_range(row, v > row->max, value, err);
    *(float *)field = (float)v;
    return UM_OK;
}

/* Returns whether the word [n] is a choice "word:N" or "N" with a number in place of N. */
static bool is_numbered(const char *choices, um_str value) {
    char name[64];
    um_str word;
    const char *colon = memchr(value.p, ':', value.n);
    const size_t before = colon ? (size_t)(colon - value.p) + 1 : 0, digits = value.n - before;
    if (digits == 0 || digits > 4 || before > 32) return false;
    for (size_t i = before; i < value.n; i++)
        if (value.p[i] < '0' || value.p[i] > '9') return false;
    snprintf(name, sizeof name, "%.*sN", (int)before, value.p);
    return um_word_index(choices, '|', name, &word) >= 0;
}

/* Returns whether a choice stands for numbers: "N" or "word:N". */
static bool has_number(um_str choice) {
    return choice.n && choice.p[choice.n - 1] == 'N' && (choice.n == 1 || choice.p[choice.n - 2] == ':');
}

/* Appends a word as the row spells it. Returns false when it is none of the row's choices. */
static bool put_word(const um_option *row, um_str value, um_buf *out) {
    um_str word;
    char *text = um_strndup(value.p, value.n);
    bool found = um_word_index(row->choices, '|', text, &word) >= 0 && !has_number(word);
    if (!found && is_numbered(row->choices, value)) {
        word = value;
        found = true;
    }
    if (found) um_buf_append(out, word.p, word.n);
    um_free(text);
    return found;
}

/* Appends the words of a value as the row spells them. Returns false when one is no choice, or when there are too many.
 */
static bool put_words(const um_option *row, const char *value, um_buf *out) {
    if (!is_list(row)) return put_word(row, um_str_of(value), out);
    for (int n = 1;; n++) {
        const size_t length = strcspn(value, ",");
        if (n > (int)row->max || !put_word(row, (um_str){value, length}, out)) return false;
        if (!value[length]) return true;
        um_buf_putc(out, ',');
        value += length + 1;
    }
}

/* Stores a word. If the row has choices, stores the spelling that the row uses. */
static um_status set_name(const um_option *row, void *field, const char *value, bool check, um_err *err) {
    um_buf words = {0};
    um_status s = UM_OK;
    if (!check || !row->choices) um_buf_puts(&words, value);
    else if (!put_words(row, value, &words)) s = fail_kind(row, NULL, value, err);
    if (!s && words.len >= row->size) s = fail_kind(row, "a shorter word", value, err);
    if (!s) {
        memset(field, 0, row->size);
        if (words.len) memcpy(field, words.data, words.len);
    }
    um_buf_free(&words);
    return s;
}

static um_status set_choice(const um_option *row, void *field, const char *value, bool check, um_err *err) {
    um_str word;
    int64_t raw;
    int i = um_word_index(row->choices, '|', value, &word);
    if (i < 0 && !check && um_parse_int(value, &raw)) i = (int)raw;
    else if (i < 0) return fail_kind(row, NULL, value, err);
    *(int32_t *)field = i;
    return UM_OK;
}

/* Parses and stores a value. check is false for the value of "auto", which may be outside the range. */
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
    return um_fail(err, UM_EINVAL, "unknown type of option");
}

bool um_option_is_auto(const um_option *row, const char *text) {
    um_str word = um_option_auto(row);
    return word.n && strlen(text) == word.n && memcmp(text, word.p, word.n) == 0;
}

static bool means_auto(const um_option *row, const char *value) {
    if (!row->autos) return false;
    return um_option_is_auto(row, value) || (um_streq(row->autos, "-1") && um_streq(value, "-1"));
}

static um_status set_field(const um_option *row, void *field, const char *value, um_err *err) {
    if (means_auto(row, value)) return store(row, field, auto_value(row), false, err);
    return store(row, field, value, true, err);
}

um_status um_option_set_as(const um_option *row, void *base, const char *name, const char *label, const char *value,
                           um_err *err) {
    um_err own, *e = err ? err : &own;
    void *parsed = um_zalloc(row->size); /* an invalid value must leave the field unchanged */
    um_status s = set_field(row, parsed, value, e);
    if (!s && base) memcpy((char *)base + row->offset, parsed, row->size);
    um_free(parsed);
    return s ? um_fail_about(e, um_fail_in(e, "%s", label), name) : UM_OK;
}

um_status um_option_set_text(const um_option *row, void *base, const char *value, um_err *err) {
    return um_option_set_as(row, base, row->name, row->name, value, err);
}

void um_options_init(const um_option *rows, size_t n, void *base) {
    for (size_t i = 0; i < n; i++) {
        um_err err;
        assert(rows[i].def || rows[i].type == UM_OPT_STR);
        if (!rows[i].def) {
            *(const char **)((char *)base + rows[i].offset) = NULL;
        } else if (um_option_set_text(&rows[i], base, rows[i].def, &err) != UM_OK) {
            fprintf(stderr, "unmask: default of an option: %s\n", err.msg);
            abort();
        }
    }
}

/* ---- Value to text ----------------------------------------------------------------------------------------------- */

static void put_float(float v, um_buf *out) {
    char text[UM_NUMBER_MAX];
    if (isfinite(v)) um_format_float(v, text);
    else snprintf(text, sizeof text, "%s", isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
    um_buf_puts(out, text);
}

/* Appends the word of an index. A program may have stored an index without a word; then appends the index itself. */
static void put_choice(const char *choices, int32_t index, um_buf *out) {
    const char *p = choices;
    int32_t i = index;
    for (; i > 0 && strchr(p, '|'); i--) p = strchr(p, '|') + 1;
    if (i) um_buf_printf(out, "%d", index);
    else um_buf_append(out, p, strcspn(p, "|"));
}

static void put_value(const um_option *row, const void *field, um_buf *out) {
    switch (row->type) {
    case UM_OPT_BOOL: um_buf_puts(out, *(const bool *)field ? "true" : "false"); return;
    case UM_OPT_INT: um_buf_printf(out, "%d", *(const int32_t *)field); return;
    case UM_OPT_INT64: um_buf_printf(out, "%lld", (long long)*(const int64_t *)field); return;
    case UM_OPT_FLOAT: put_float(*(const float *)field, out); return;
    case UM_OPT_NAME: um_buf_append(out, (const char *)field, strnlen((const char *)field, row->size)); return;
    case UM_OPT_CHOICE: put_choice(row->choices, *(const int32_t *)field, out); return;
    case UM_OPT_STR: um_buf_puts(out, *(const char *const *)field ? *(const char *const *)field : ""); return;
    }
}

/* Returns whether the field holds the value of "auto", and appends the text of the field. Compares the texts of the
 * field and of the stored "auto" value, because NaN does not equal itself. */
static bool holds_auto(const um_option *row, const void *field, um_buf *out) {
    size_t start = out->len;
    put_value(row, field, out);
    if (!row->autos) return false;
    void *other = um_zalloc(row->size);
    um_buf text = {0};
    bool same = store(row, other, auto_value(row), false, NULL) == UM_OK;
    if (same) put_value(row, other, &text);
    same = same && um_streq(text.data, out->data + start);
    um_buf_free(&text);
    um_free(other);
    return same;
}

void um_option_get_text(const um_option *row, const void *base, um_buf *out) {
    size_t start = out->len;
    if (!holds_auto(row, (const char *)base + row->offset, out)) return;
    um_str word = um_option_auto(row);
    out->len = start;
    um_buf_append(out, word.p, word.n);
}

bool um_option_equal(const um_option *row, const void *a, const void *b) {
    const char *field_a = (const char *)a + row->offset, *field_b = (const char *)b + row->offset;
    if (memcmp(field_a, field_b, row->size) == 0) return true;
    um_buf text_a = {0}, text_b = {0};
    put_value(row, field_a, &text_a);
    put_value(row, field_b, &text_b);
    bool same = um_streq(text_a.data, text_b.data);
    um_buf_free(&text_a);
    um_buf_free(&text_b);
    return same;
}

/* ---- Checks of stored values ------------------------------------------------------------------------------------- */

um_status um_options_check(const um_option_set *sets, size_t n_sets, um_err *err) {
    um_buf text = {0};
    um_status st = UM_OK;
    for (size_t i = 0; i < n_sets && !st; i++) {
        for (size_t k = 0; k < sets[i].n && !st; k++) {
            const um_option *row = &sets[i].rows[k];
            um_buf_clear(&text);
            um_option_get_text(row, sets[i].base, &text);
            if (row->type != UM_OPT_STR) st = um_option_set_text(row, NULL, text.data ? text.data : "", err);
        }
    }
    um_buf_free(&text);
    return st;
}
