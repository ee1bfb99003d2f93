/* JSON schemas: strings, with lengths, patterns and formats. */
#include "grammar/schema.h"

/* ---- Formats ----------------------------------------------------------------------------------------------------- */

#define MONTH_DAY                                                                                                      \
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))"
#define DATE    "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-" MONTH_DAY
#define SECONDS "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?"
#define ZONE    "(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define LABEL   "[a-z0-9](?:[a-z0-9-]{0,10}[a-z0-9])?"
#define HOST    LABEL "(?:\\." LABEL "){0,4}"
#define BYTE    "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define HEX16   "[0-9a-fA-F]{1,4}"
#define PATH    "[A-Za-z0-9._~!$&'()*+,;=:@/-]*"
#define URI     "[a-z][a-z0-9+.-]{0,15}://" HOST "(?::[1-9]\\d{0,3})?(?:/" PATH ")?(?:\\?" PATH ")?(?:#" PATH ")?"

/* Each pattern allows some of the texts of its format, the usual ones. The 29th of February is left out. */
static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", DATE},
    {"time", SECONDS ZONE},
    {"date-time", DATE "T" SECONDS ZONE},
    {"duration", "P(?:\\d{1,4}W|\\d{1,4}Y(?:\\d{1,2}M(?:\\d{1,3}D)?)?|\\d{1,4}M(?:\\d{1,3}D)?|\\d{1,4}D(?:T\\d{1,4}H)?|"
                 "T(?:\\d{1,4}H(?:\\d{1,4}M(?:\\d{1,4}S)?)?|\\d{1,4}M(?:\\d{1,4}S)?|\\d{1,4}S))"},
    {"email", "[A-Za-z0-9_+-]{1,32}(?:\\.[A-Za-z0-9_+-]{1,16}){0,3}@" LABEL "(?:\\." LABEL "){1,4}"},
    {"idn-email", "[A-Za-z0-9_+-]{1,32}(?:\\.[A-Za-z0-9_+-]{1,16}){0,3}@" LABEL "(?:\\." LABEL "){1,4}"},
    {"hostname", HOST},
    {"idn-hostname", HOST},
    {"ipv4", BYTE "(?:\\." BYTE "){3}"},
    {"ipv6", "(?:" HEX16 ":){7}" HEX16 "|(?:" HEX16 ":){1,6}:" HEX16 "|::(?:" HEX16 ":){0,5}" HEX16 "|::"},
    {"uri", URI},
    {"uri-reference", URI "|/" PATH},
    {"iri", URI},
    {"iri-reference", URI "|/" PATH},
    {"uri-template", URI},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"json-pointer", "(?:/[A-Za-z0-9_.-]{0,64})*"},
    {"relative-json-pointer", "(?:0|[1-9]\\d{0,3})(?:#|(?:/[A-Za-z0-9_.-]{0,64})*)"},
    {"regex", "[A-Za-z0-9 _-]*"},
};

/* Returns the pattern of a format, or NULL for one that the standard does not define: it restricts nothing. */
static const char *format_pattern(const char *name) {
    for (size_t i = 0; i < UM_LEN(formats); i++)
        if (um_streq(name, formats[i].name)) return formats[i].pattern;
    return NULL;
}

/* ---- Keywords ---------------------------------------------------------------------------------------------------- */

typedef struct string_limits {
    int64_t min, max; /* max -1: none */
    const char *pattern, *at;
    const char *key; /* the keyword of the pattern */
    bool anchored;
} string_limits;

static um_status read_text(um_schema *c, const um_schema_part *p, const char *key, const char **out) {
    const json_t *v = json_object_get(p->schema, key);
    if (v && !json_is_string(v))
        return um_schema_fail(c, p->at, UM_EINVAL, "\"%s\": expected a string, found %s", key, um_json_kind(v));
    if (v && strlen(json_string_value(v)) != json_string_length(v))
        return um_schema_fail(c, p->at, UM_EINVAL, "\"%s\": expected a string without U+0000", key);
    *out = json_string_value(v);
    return UM_OK;
}

/* Stores the pattern of a part. There may be one. */
static um_status take_pattern(um_schema *c, string_limits *l, const char *pattern, const char *at, const char *key,
                              bool anchored) {
    if (l->pattern && um_streq(l->pattern, pattern) && l->anchored == anchored) return UM_OK;
    if (l->pattern)
        return um_schema_fail(c, at, UM_EUNSUPPORTED, "\"%s\" together with another pattern or format", key);
    l->pattern = pattern;
    l->at = at;
    l->key = key;
    l->anchored = anchored;
    return UM_OK;
}

static um_status read_limits(um_schema *c, const um_conj *j, string_limits *l) {
    um_status s = UM_OK;
    *l = (string_limits){.max = -1};
    for (int32_t i = 0; i < j->n && !s; i++) {
        const um_schema_part *p = &j->part[i];
        int64_t min = 0, max = INT64_MAX;
        const char *pattern = NULL, *format = NULL;
        s = um_schema_count(c, p, "minLength", &min);
        if (!s) s = um_schema_count(c, p, "maxLength", &max);
        if (!s) s = read_text(c, p, "pattern", &pattern);
        if (!s) s = read_text(c, p, "format", &format);
        l->min = UM_MAX(l->min, min);
        if (max < INT64_MAX) l->max = l->max < 0 ? max : UM_MIN(l->max, max);
        if (!s && pattern) s = take_pattern(c, l, pattern, p->at, "pattern", false);
        if (!s && format && format_pattern(format))
            s = take_pattern(c, l, format_pattern(format), p->at, "format", true);
    }
    if (!s && l->max >= 0 && l->min > l->max)
        return um_schema_never(c, um_conj_at(j), "minLength %lld is above maxLength %lld", (long long)l->min,
                               (long long)l->max);
    if (!s && l->min > UM_REPEAT_MAX)
        return um_schema_fail(c, um_conj_at(j), UM_ELIMIT, "minLength may be up to %d", UM_REPEAT_MAX);
    if (l->max > UM_REPEAT_MAX) l->max = UM_REPEAT_MAX; /* no answer is longer */
    return s;
}

/* ---- Lengths of patterns ----------------------------------------------------------------------------------------- */

#define LENGTH_ENDLESS INT64_MAX

static int64_t add_lengths(int64_t a, int64_t b) {
    return a == LENGTH_ENDLESS || b > LENGTH_ENDLESS - a ? LENGTH_ENDLESS : a + b;
}

static int64_t times(int64_t a, int64_t n) {
    if (a == 0 || n == 0) return 0;
    return a == LENGTH_ENDLESS || n == LENGTH_ENDLESS || a > LENGTH_ENDLESS / n ? LENGTH_ENDLESS : a * n;
}

/* The least and the greatest number of characters, of an expression of um_regex_parse_lengths. */
static void lengths_of(const um_expr *e, int64_t *min, int64_t *max) {
    int64_t least, most;
    *min = *max = e->kind == UM_EXPR_BYTES;
    switch (e->kind) {
    case UM_EXPR_BYTES:
    case UM_EXPR_TEXT:
    case UM_EXPR_CALL: return;
    case UM_EXPR_REPEAT:
        lengths_of(e->part[0], &least, &most);
        *min = times(least, e->min);
        *max = times(most, e->max < 0 ? LENGTH_ENDLESS : e->max);
        return;
    case UM_EXPR_JOIN:
        for (int32_t i = 0; i < e->n; i++) {
            lengths_of(e->part[i], &least, &most);
            *min = add_lengths(*min, least);
            *max = add_lengths(*max, most);
        }
        return;
    case UM_EXPR_EITHER:
        for (int32_t i = 0; i < e->n; i++) {
            lengths_of(e->part[i], &least, &most);
            *min = i ? UM_MIN(*min, least) : least;
            *max = i ? UM_MAX(*max, most) : most;
        }
    }
}

/* Returns whether e repeats one character. */
static bool repeats_char(const um_expr *e) {
    return e->kind == UM_EXPR_BYTES || (e->kind == UM_EXPR_REPEAT && e->part[0]->kind == UM_EXPR_BYTES);
}

/* Narrows a repetition of one character so that `min` to `max` are left. `e` has the form, `real` the characters. NULL:
 * nothing is left. */
static const um_expr *narrow_repeat(um_schema *c, const um_expr *e, const um_expr *real, int64_t min, int64_t max) {
    const bool one = e->kind == UM_EXPR_BYTES;
    const int64_t least = UM_MAX(min, one ? 1 : e->min);
    const int64_t own_max = one ? 1 : e->max < 0 ? LENGTH_ENDLESS : e->max, most = UM_MIN(max, own_max);
    /* The characters around a pattern that has no ^ or $ are one call. */
    const bool any = real->kind == UM_EXPR_CALL;
    if (least > most || (!one && !any && real->kind != UM_EXPR_REPEAT)) return NULL;
    const um_expr *character = one ? real : any ? um_json_char(c->r) : real->part[0];
    return um_expr_repeat(c->r, character, (int32_t)least, most == LENGTH_ENDLESS ? -1 : (int32_t)most);
}

/* Restricts the pattern's texts to the lengths, where one repetition of a character decides about the length. *out is
 * NULL when this is not so. */
static const um_expr *narrow(um_schema *c, const um_expr *e, const um_expr *real, int64_t min, int64_t max) {
    int32_t varies = -1;
    int64_t fixed = 0;
    if (repeats_char(e)) return narrow_repeat(c, e, real, min, max);
    if (e->kind != UM_EXPR_JOIN || real->kind != UM_EXPR_JOIN || e->n != real->n) return NULL;
    for (int32_t i = 0; i < e->n; i++) {
        int64_t least, most;
        lengths_of(e->part[i], &least, &most);
        if (least == most) fixed = add_lengths(fixed, least);
        else if (varies >= 0) return NULL;
        else varies = i;
    }
    if (varies < 0 || !repeats_char(e->part[varies]) || max < fixed) return NULL;
    const int64_t most = max == LENGTH_ENDLESS ? max : max - fixed;
    const um_expr *part = narrow_repeat(c, e->part[varies], real->part[varies], UM_MAX(min - fixed, 0), most);
    um_exprs list = {0};
    for (int32_t i = 0; i < e->n && part; i++) um_exprs_push(&list, i == varies ? part : real->part[i]);
    return part ? um_exprs_join(c->r, &list) : NULL;
}

/* ---- Strings ----------------------------------------------------------------------------------------------------- */

static um_status fail_pattern(um_schema *c, const string_limits *l, const um_err *e) {
    return um_schema_fail(c, l->at, e->code, "\"%s\": %s", l->key, e->msg);
}

static um_status patterned(um_schema *c, const um_conj *j, const string_limits *l, const um_expr **out) {
    um_err err = {.code = UM_OK};
    const um_expr *real = NULL, *form = NULL;
    const um_str pattern = um_str_of(l->pattern);
    int64_t min, max;
    if (um_regex_parse(c->r, pattern, l->anchored, true, &real, &err)) return fail_pattern(c, l, &err);
    *out = real;
    if (l->min == 0 && l->max < 0) return UM_OK;
    um_rules lengths;
    um_rules_init(&lengths);
    um_status s = um_regex_parse_lengths(&lengths, pattern, l->anchored, &form, &err);
    if (s) s = fail_pattern(c, l, &err);
    if (!s) {
        const int64_t limit = l->max < 0 ? LENGTH_ENDLESS : l->max;
        lengths_of(form, &min, &max);
        if (max < l->min || min > limit)
            s = um_schema_never(c, um_conj_at(j), "no text of the pattern has a length within minLength and maxLength");
        else if (min < l->min || max > limit) *out = narrow(c, form, real, l->min, limit);
    }
    um_rules_free(&lengths);
    if (!s && !*out)
        s = um_schema_fail(
            c, l->at, UM_EUNSUPPORTED,
            "minLength or maxLength with this \"%s\"; write the lengths into the pattern, as in ^[a-z]{1,8}$", l->key);
    return s;
}

um_status um_schema_string(um_schema *c, const um_conj *j, const um_expr **out) {
    string_limits l;
    const um_expr *content = NULL;
    um_status s = read_limits(c, j, &l);
    if (s) return s;
    if (!l.pattern && l.min == 0 && l.max < 0) content = um_json_any_chars(c->r);
    else if (l.pattern) s = patterned(c, j, &l, &content);
    else content = um_expr_repeat(c->r, um_json_char(c->r), (int32_t)l.min, (int32_t)l.max);
    if (s) return s;
    const um_expr *quote = um_expr_text(c->r, UM_STR("\""));
    *out = um_expr_join3(c->r, quote, content, quote);
    return UM_OK;
}

#define PATTERN_STEPS 1000 /* reading a pattern takes as long as so many steps of matching */

um_status um_schema_matches(um_schema *c, const char *pattern, const char *at, const char *text, bool *yes) {
    um_rules r;
    um_err err = {.code = UM_OK};
    const um_expr *e = NULL;
    c->matching -= PATTERN_STEPS + 100 * (int64_t)strlen(pattern);
    if (c->matching < 0) return um_schema_fail(c, at, UM_ELIMIT, "there are too many patterns to compare with names");
    um_rules_init(&r);
    um_status s = um_regex_parse(&r, um_str_of(pattern), false, false, &e, &err);
    if (s) s = um_schema_fail(c, at, s, "pattern: %s", err.msg);
    if (!s) {
        r.root = um_rule_add(&r, UM_STR("root"));
        um_rule_set(&r, r.root, e);
        s = um_rules_check(&r, c->err);
        if (!s && !um_rules_match_within(&r, um_str_of(text), &c->matching, yes))
            s = um_schema_fail(c, at, UM_ELIMIT, "it takes too long to compare the pattern with names");
    }
    um_rules_free(&r);
    return s;
}
