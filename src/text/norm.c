/* Normalizers: steps that rewrite the text between added tokens. */
#include <stdlib.h>
#include <utf8proc.h>

#include "text/tok.h"

typedef enum { NORM_FORM, NORM_LOWER, NORM_REPLACE, NORM_PREPEND, NORM_STRIP, NORM_ACCENTS } norm_kind;

typedef struct um_norm_step {
    norm_kind kind;
    int options; /* NORM_FORM: utf8proc's options */
    um_pattern pattern;
    um_str text; /* the text that Replace and Prepend insert */
    bool left, right;
} um_norm_step;

#define NFC (UTF8PROC_STABLE | UTF8PROC_COMPOSE)

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *type;
    norm_kind kind;
    int options;
} kinds[] = {
    {"NFC", NORM_FORM, NFC},
    {"NFD", NORM_FORM, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
    {"NFKC", NORM_FORM, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
    {"NFKD", NORM_FORM, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
    {"Lowercase", NORM_LOWER, 0},
    {"Replace", NORM_REPLACE, 0},
    {"Prepend", NORM_PREPEND, 0},
    {"Strip", NORM_STRIP, 0},
    {"StripAccents", NORM_ACCENTS, 0},
};

static um_status load_text(um_str *out, const json_t *json, const char *key, um_arena *a, const char *where,
                           um_err *err) {
    const json_t *s = json_object_get(json, key);
    if (!json_is_string(s)) return um_fail(err, UM_EPARSE, "%s: normalizer: \"%s\" must be a string", where, key);
    out->n = json_string_length(s);
    out->p = um_arena_strndup(a, json_string_value(s), out->n);
    return UM_OK;
}

static um_status load_fields(um_norm_step *s, const json_t *json, um_arena *a, const char *where, um_err *err) {
    um_status st = UM_OK;
    if (s->kind == NORM_REPLACE) {
        st = um_pattern_load(&s->pattern, json_object_get(json, "pattern"), a, where, err);
        if (!st) st = load_text(&s->text, json, "content", a, where, err);
    } else if (s->kind == NORM_PREPEND) st = load_text(&s->text, json, "prepend", a, where, err);
    else if (s->kind == NORM_STRIP) {
        s->left = s->right = true;
        st = um_json_get_bool(json, "strip_left", where, &s->left, err);
        if (!st) st = um_json_get_bool(json, "strip_right", where, &s->right, err);
    }
    return st;
}

static um_status load_step(um_normalizer *n, const json_t *json, const char *type, um_arena *a, const char *where,
                           um_err *err) {
    size_t k = 0;
    while (k < UM_LEN(kinds) && !um_streq(kinds[k].type, type)) k++;
    if (k == UM_LEN(kinds))
        return um_fail(err, UM_EUNSUPPORTED, "%s: normalizer of type \"%.60s\" is not supported", where, type);
    n->step = (um_norm_step *)um_realloc(n->step, um_mul(n->n + 1, sizeof *n->step));
    um_norm_step *s = &n->step[n->n++];
    *s = (um_norm_step){.kind = kinds[k].kind, .options = kinds[k].options};
    return load_fields(s, json, a, where, err);
}

static um_status load_any(um_normalizer *n, const json_t *json, int nest, um_arena *a, const char *where, um_err *err) {
    if (nest > UM_TOK_NEST_MAX) return um_fail(err, UM_ELIMIT, "%s: normalizers are nested too deeply", where);
    const char *type = json_string_value(json_object_get(json, "type"));
    if (!type) return um_fail(err, UM_EPARSE, "%s: normalizer must be an object with a \"type\", or null", where);
    if (!um_streq(type, "Sequence")) return load_step(n, json, type, a, where, err);
    const json_t *list = json_object_get(json, "normalizers"), *item;
    size_t i;
    if (!json_is_array(list)) return um_fail(err, UM_EPARSE, "%s: normalizer: \"normalizers\" must be a list", where);
    json_array_foreach(list, i, item) {
        um_status st = load_any(n, item, nest + 1, a, where, err);
        if (st) return st;
    }
    return UM_OK;
}

um_status um_norm_load(um_normalizer *n, const json_t *json, um_arena *a, const char *where, um_err *err) {
    memset(n, 0, sizeof *n);
    if (!json || json_is_null(json)) return UM_OK;
    return load_any(n, json, 0, a, where, err);
}

void um_norm_free(um_normalizer *n) {
    for (size_t i = 0; i < n->n; i++) um_pattern_free(&n->step[i].pattern);
    um_free(n->step);
    n->step = NULL;
    n->n = 0;
}

/* ---- Applying ---------------------------------------------------------------------------------------------------- */

/* Appends s in the Unicode normalization form that `options` select. */
static um_status map_form(um_str s, int options, um_buf *out, um_err *err) {
    utf8proc_uint8_t *text = NULL;
    utf8proc_ssize_t n =
        utf8proc_map((const utf8proc_uint8_t *)s.p, (utf8proc_ssize_t)s.n, &text, (utf8proc_option_t)options);
    if (n < 0) return um_fail(err, UM_EINVAL, "Unicode normalization failed: %s", utf8proc_errmsg(n));
    um_buf_append(out, text, (size_t)n);
    free(text); /* utf8proc allocates with malloc */
    return UM_OK;
}

/* Returns true if canonical composition neither changes the character nor combines it with the one before, so that NFC
 * can treat the text before it separately. This holds for all characters below U+0300. utf8proc marks characters that
 * can be the second of a pair by a comb_index of at least 0x8000. */
static bool is_inert(uint32_t cp) {
    if (cp < 0x300) return true;
    if (cp >= 0x1100 && cp <= 0x11FF) return false; /* Hangul letters compose by rule, not by table */
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)cp);
    bool second = p->comb_index >= 0x8000 && p->comb_index != UINT16_MAX;
    return p->combining_class == 0 && p->decomp_seqindex == UINT16_MAX && !second;
}

/* Finds the first stretch at or after `from` that composition may change. Returns its start, the character before the
 * first one that is not inert, and sets *end to the next inert character. Returns s.n if there is no such stretch. */
static size_t next_stretch(um_str s, size_t from, size_t *end) {
    size_t before = from, i = from;
    int len;
    *end = s.n;
    for (;; before = i, i += (size_t)len) {
        while (i < s.n && (uint8_t)s.p[i] < 0x80) before = i++; /* most text is ASCII */
        if (i >= s.n) return s.n;
        if (!is_inert(um_cp_at(s.p + i, s.n - i, &len))) break;
    }
    for (size_t k = i + (size_t)len; k < s.n; k += (size_t)len)
        if (is_inert(um_cp_at(s.p + k, s.n - k, &len))) {
            *end = k;
            break;
        }
    return before;
}

/* Appends s in NFC. NFC runs on every prompt and rarely changes it, so only the stretches that it may change are passed
 * to utf8proc. start..end is the first stretch. */
static um_status apply_nfc(um_str s, size_t start, size_t end, um_buf *out, um_err *err) {
    size_t done = 0;
    while (start < s.n) {
        um_buf_append(out, s.p + done, start - done);
        um_status st = map_form((um_str){s.p + start, end - start}, NFC, out, err);
        if (st) return st;
        done = end;
        start = next_stretch(s, done, &end);
    }
    um_buf_append(out, s.p + done, s.n - done);
    return UM_OK;
}

static bool is_ascii(um_str s) {
    for (size_t i = 0; i < s.n; i++)
        if ((uint8_t)s.p[i] >= 0x80) return false;
    return true;
}

/* Appends s in a normalization form. If the form can't change s, sets *same and appends nothing. */
static um_status apply_form(um_str s, int options, um_buf *out, bool *same, um_err *err) {
    size_t end = 0, start = options == NFC ? next_stretch(s, 0, &end) : 0;
    *same = options == NFC ? start == s.n : is_ascii(s);
    if (*same) return UM_OK;
    return options == NFC ? apply_nfc(s, start, end, out, err) : map_form(s, options, out, err);
}

static void apply_accents(um_str s, um_buf *out) {
    int len;
    for (size_t i = 0; i < s.n; i += (size_t)len) {
        uint32_t cp = um_cp_at(s.p + i, s.n - i, &len);
        if (utf8proc_category((utf8proc_int32_t)cp) != UTF8PROC_CATEGORY_MN) um_buf_append(out, s.p + i, (size_t)len);
    }
}

static um_str stripped(um_str s, bool left, bool right) {
    int len;
    while (left && s.n && um_is_space(um_cp_at(s.p, s.n, &len))) s = (um_str){s.p + len, s.n - (size_t)len};
    while (right && s.n && um_is_space(um_cp_before(s.p, s.n, &len))) s.n -= (size_t)len;
    return s;
}

/* Runs one step. If it sets *same, the result is *s, possibly shortened. Otherwise the result is in out. */
static um_status apply_step(const um_norm_step *st, um_match_state *scan, um_str *s, um_buf *out, bool *same,
                            um_err *err) {
    *same = true;
    if (st->kind == NORM_STRIP) {
        *s = stripped(*s, st->left, st->right);
        return UM_OK;
    }
    *same = false;
    um_buf_clear(out);
    switch (st->kind) {
    case NORM_FORM: return apply_form(*s, st->options, out, same, err);
    case NORM_LOWER: um_to_lower(*s, out); break;
    case NORM_REPLACE: return um_pattern_replace(&st->pattern, scan, *s, st->text, out, err);
    case NORM_PREPEND:
        if (s->n) um_buf_append(out, st->text.p, st->text.n);
        um_buf_append(out, s->p, s->n);
        break;
    default: apply_accents(*s, out); break;
    }
    return UM_OK;
}

um_status um_norm_apply(const um_normalizer *n, um_match_state *scan, um_str s, um_buf buf[2], um_str *out,
                        um_err *err) {
    int at = 0;
    for (size_t i = 0; i < n->n; i++) {
        bool same;
        um_status st = apply_step(&n->step[i], scan, &s, &buf[at], &same, err);
        if (st) return st;
        if (same) continue;
        s = (um_str){buf[at].data ? buf[at].data : "", buf[at].len};
        at ^= 1;
    }
    *out = s;
    return UM_OK;
}
