/* JSON schemas: objects. Properties come in the order of the schema; optional ones may be left out. */
#include <stdlib.h>

#include "grammar/schema.h"

#define NAME_MAX_CHARS 200   /* characters of a name when other properties are allowed beside it */
#define COUNTED_MAX    20000 /* properties times counts, with minProperties or maxProperties */
#define RULE_EVERY     4     /* optional properties in front of which a rule begins */

/* A property, or the others together. */
typedef struct item {
    const um_expr *first, *later; /* without and with a comma in front */
    bool required;
} item;

typedef struct object {
    um_schema *c;
    const um_conj *j;
    json_t *names; /* name -> true if it is required, in the order of the schema */
    item *items;   /* [n] */
    int32_t n;
    const um_expr *other, *other_later; /* another property; NULL: there are none */
    int64_t min, max;                   /* number of properties; max -1: none */
} object;

/* ---- Keywords ---------------------------------------------------------------------------------------------------- */

static um_status check_object_keywords(um_schema *c, const um_conj *j, const um_schema_part *p) {
    const json_t *unevaluated = json_object_get(p->schema, "unevaluatedProperties");
    /* All properties that the list names are evaluated for a schema that describes the object alone. */
    if (unevaluated && !json_is_true(unevaluated) && !(p == j->part && um_conj_has_one_head(j)))
        return um_schema_fail(c, p->at, UM_EUNSUPPORTED,
                              "\"unevaluatedProperties\" is supported only where one schema describes the object");
    static const char *const objects[] = {"properties", "patternProperties"};
    for (size_t i = 0; i < UM_LEN(objects); i++) {
        const json_t *v = json_object_get(p->schema, objects[i]);
        if (v && !json_is_object(v))
            return um_schema_fail(c, p->at, UM_EINVAL, "\"%s\": expected an object, found %s", objects[i],
                                  um_json_kind(v));
    }
    const json_t *required = json_object_get(p->schema, "required");
    /* In old drafts, required was true or false beside the property. */
    if (required && !json_is_array(required) && !json_is_boolean(required))
        return um_schema_fail(c, p->at, UM_EINVAL, "\"required\": expected a list of names");
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_is_string(json_array_get(required, i)) ||
            strlen(json_string_value(json_array_get(required, i))) != json_string_length(json_array_get(required, i)))
            return um_schema_fail(c, p->at, UM_EINVAL, "\"required\": expected names without U+0000");
    return UM_OK;
}

static um_status read_keywords(object *o) {
    um_status s = UM_OK;
    o->max = -1;
    for (int32_t i = 0; i < o->j->n && !s; i++) {
        const um_schema_part *p = &o->j->part[i];
        int64_t min = 0, max = INT64_MAX;
        s = check_object_keywords(o->c, o->j, p);
        if (!s) s = um_schema_count(o->c, p, "minProperties", &min);
        if (!s) s = um_schema_count(o->c, p, "maxProperties", &max);
        o->min = UM_MAX(o->min, min);
        if (max < INT64_MAX) o->max = o->max < 0 ? max : UM_MIN(o->max, max);
    }
    if (!s && o->max >= 0 && o->min > o->max)
        return um_schema_never(o->c, um_conj_at(o->j), "minProperties %lld is above maxProperties %lld",
                               (long long)o->min, (long long)o->max);
    return s;
}

/* Collects the names: first the listed ones in their order, then those that are only required. */
static void collect_names(object *o) {
    o->names = json_object();
    for (int32_t i = 0; i < o->j->n; i++) {
        const char *name;
        json_t *v;
        json_object_foreach(json_object_get(o->j->part[i].schema, "properties"), name,
                            v) if (!json_object_get(o->names, name)) json_object_set_new(o->names, name, json_false());
    }
    for (int32_t i = 0; i < o->j->n; i++) {
        const json_t *required = json_object_get(o->j->part[i].schema, "required");
        for (size_t k = 0; k < json_array_size(required); k++)
            json_object_set_new(o->names, json_string_value(json_array_get(required, k)), json_true());
    }
}

/* Returns the schema of properties that the part does not name, or NULL. */
static const json_t *others_of(const um_schema_part *p, const char **key) {
    const json_t *v = json_object_get(p->schema, "additionalProperties");
    *key = v ? "additionalProperties" : "unevaluatedProperties";
    return v ? v : json_object_get(p->schema, *key);
}

/* ---- Properties with names --------------------------------------------------------------------------------------- */

/* Adds the schemas that a part has for a property. */
static um_status add_schemas(object *o, const um_schema_part *p, const char *name, um_conj *out) {
    um_schema *c = o->c;
    const json_t *own = json_object_get(json_object_get(p->schema, "properties"), name), *others;
    const char *pattern, *key;
    json_t *v;
    bool found = own != NULL;
    um_status s = UM_OK;
    if (own) s = um_conj_add(c, out, own, um_schema_at(c, um_schema_at(c, p->at, "properties"), name), -1);
    json_object_foreach(json_object_get(p->schema, "patternProperties"), pattern, v) {
        const char *at = um_schema_at(c, um_schema_at(c, p->at, "patternProperties"), pattern);
        bool matches = false;
        if (!s) s = um_schema_matches(c, pattern, at, name, &matches);
        if (!s && matches) s = um_conj_add(c, out, v, at, -1);
        found = found || matches;
    }
    others = found ? NULL : others_of(p, &key);
    /* The other schemas of the list may evaluate the property, and this function does not look at them. */
    if (others && um_streq(key, "unevaluatedProperties") && json_object_get(o->names, name)) {
        bool listed = false;
        for (int32_t i = 0; i < o->j->n; i++)
            listed = listed || json_object_get(json_object_get(o->j->part[i].schema, "properties"), name);
        if (listed) others = NULL;
    }
    if (!s && others) s = um_conj_add(c, out, others, um_schema_at(c, p->at, key), -1);
    return s;
}

/* Compiles a property. One that no value matches is left out, unless it is required. */
static um_status push_property(object *o, const char *name, bool required) {
    um_schema *c = o->c;
    um_conj j = {0};
    const um_expr *value = NULL;
    um_status s = UM_OK;
    for (int32_t i = 0; i < o->j->n && !s; i++) s = add_schemas(o, &o->j->part[i], name, &j);
    if (!s) s = um_schema_value(c, &j, &value);
    if (s && c->never && !required) return c->never = false, UM_OK;
    if (s) return s;
    const um_str text = um_str_of(name);
    o->items[o->n++] = (item){
        .first = um_expr_join2(c->r, um_json_key(c->r, &c->style, false, text), value),
        .later = um_expr_join2(c->r, um_json_key(c->r, &c->style, true, text), value),
        .required = required,
    };
    return UM_OK;
}

static um_status push_properties(object *o) {
    const char *name;
    json_t *required;
    um_status s = UM_OK;
    o->items = UM_NEW_ARRAY(item, json_object_size(o->names) + 1);
    json_object_foreach(o->names, name, required) {
        if (!s) s = push_property(o, name, json_is_true(required));
    }
    return s;
}

/* ---- Other properties -------------------------------------------------------------------------------------------- */

/* Names of the object by their beginnings: those in [from, to) of the sorted list begin with the same `at` bytes. */
typedef struct name_list {
    const char **name;
    size_t n;
} name_list;

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* The rest of a name that is none of the list, behind a beginning that [from, to) share. Escapes that JSON does not
 * require are left out, so that a name has one text. */
static const um_expr *other_rest(um_rules *r, const um_expr *any, const name_list *l, size_t from, size_t to,
                                 size_t at) {
    um_exprs list = {0};
    um_charset taken = {0};
    bool is_name = false;
    for (size_t i = from; i < to;) {
        uint32_t c;
        const char *p = l->name[i] + at;
        size_t end = i + 1;
        if (!*p) {
            is_name = true;
            i++;
            continue;
        }
        const size_t len = (size_t)UM_MAX(um_utf8_next(p, strlen(p), &c), 1);
        while (end < to && strncmp(l->name[end] + at, p, len) == 0) end++;
        um_charset_add(&taken, c, c);
        const um_expr *rest = other_rest(r, any, l, i, end, at + len);
        um_exprs_push(&list, um_expr_join2(r, um_json_chars(r, &(um_chars){c, c}, 1, false), rest));
        i = end;
    }
    um_exprs_push(&list, um_expr_join2(r, um_json_chars(r, taken.range, taken.n, true), any));
    if (!is_name) um_exprs_push(&list, um_expr_nothing(r));
    um_charset_free(&taken);
    return um_exprs_either(r, &list);
}

static um_status other_names(object *o, const um_expr **out) {
    um_rules *r = o->c->r;
    name_list l = {.name = (const char **)um_alloc((json_object_size(o->names) + 1) * sizeof *l.name)};
    const char *name;
    json_t *v;
    const um_expr *any = um_expr_repeat(r, um_json_chars(r, NULL, 0, true), 0, -1),
                  *quote = um_expr_text(r, UM_STR("\""));
    um_status s = UM_OK;
    json_object_foreach(o->names, name, v) {
        if (strlen(name) > NAME_MAX_CHARS)
            s = um_schema_fail(o->c, um_conj_at(o->j), UM_ELIMIT,
                               "the name \"%.40s...\" has more than %d bytes, beside additionalProperties", name,
                               NAME_MAX_CHARS);
        l.name[l.n++] = name;
    }
    qsort(l.name, l.n, sizeof *l.name, by_text);
    if (!s) *out = um_expr_join3(r, quote, l.n ? other_rest(r, any, &l, 0, l.n, 0) : any, quote);
    um_free(l.name);
    return s;
}

/* Names that the keyword propertyNames allows. */
static um_status restricted_names(object *o, const um_expr **out) {
    um_conj names = {0};
    um_status s = UM_OK;
    static const char only_text[] = "{\"type\":\"string\"}";
    json_t *string = json_loads(only_text, 0, NULL);
    for (int32_t i = 0; i < o->j->n && !s; i++) {
        const json_t *v = json_object_get(o->j->part[i].schema, "propertyNames");
        if (v) s = um_conj_add(o->c, &names, v, um_schema_at(o->c, o->j->part[i].at, "propertyNames"), -1);
    }
    if (!s && json_object_size(o->names))
        s = um_schema_fail(o->c, um_conj_at(o->j), UM_EUNSUPPORTED,
                           "\"propertyNames\" is supported only without properties and required");
    if (!s && names.n == 0) s = other_names(o, out);
    else if (!s) s = um_conj_add(o->c, &names, string, names.part[0].at, -1);
    if (!s && names.n) s = um_schema_value(o->c, &names, out);
    json_decref(string);
    return s;
}

/* Stores the other properties: a name, a colon and a value of the list. */
static um_status set_other(object *o, const um_expr *name, const um_conj *values) {
    um_schema *c = o->c;
    const um_expr *value = NULL;
    um_status s = um_schema_value(c, values, &value);
    if (s && c->never) return c->never = false, UM_OK;
    if (s) return s;
    o->other = um_expr_join3(c->r, name, um_json_mark(c->r, &c->style, true, UM_STR(":"), true), value);
    o->other_later = um_expr_join2(c->r, um_json_comma(c->r, &c->style), o->other);
    return UM_OK;
}

/* Properties whose names match the only pattern, when no name of the schema matches it. */
static um_status pattern_names(object *o) {
    um_schema *c = o->c;
    const char *only = NULL, *at = NULL, *pattern, *name;
    um_conj values = {0};
    json_t *v, *required;
    um_status s = UM_OK;
    for (int32_t i = 0; i < o->j->n && !s; i++) {
        const um_schema_part *p = &o->j->part[i];
        json_t *patterns = json_object_get(p->schema, "patternProperties");
        json_object_foreach(patterns, pattern, v) {
            at = um_schema_at(c, um_schema_at(c, p->at, "patternProperties"), pattern);
            if (only && !um_streq(only, pattern))
                return um_schema_fail(c, at, UM_EUNSUPPORTED, "\"patternProperties\" with more than one pattern");
            only = pattern;
            if (!s) s = um_conj_add(c, &values, v, at, -1);
        }
        const char *key;
        const json_t *others = patterns && json_object_size(patterns) ? NULL : others_of(p, &key);
        if (!s && others) s = um_conj_add(c, &values, others, um_schema_at(c, p->at, key), -1);
    }
    if (s && c->never) return c->never = false, UM_OK;
    if (s) return s;
    json_object_foreach(o->names, name, required) {
        bool matches = false;
        s = um_schema_matches(c, only, at, name, &matches);
        if (s || matches) return s;
    }
    um_err err = {.code = UM_OK};
    const um_expr *e = NULL, *quote = um_expr_text(c->r, UM_STR("\""));
    if (um_conj_has(o->j, "propertyNames"))
        return um_schema_fail(c, at, UM_EUNSUPPORTED, "\"propertyNames\" beside \"patternProperties\"");
    if (um_regex_parse(c->r, um_str_of(only), false, true, &e, &err))
        return um_schema_fail(c, at, err.code, "pattern: %s", err.msg);
    return set_other(o, um_expr_join3(c->r, quote, e, quote), &values);
}

/* Returns whether a property may be there. */
static bool names_some(json_t *properties) {
    const char *name;
    json_t *v;
    bool some = properties && json_object_size(properties) == 0;
    json_object_foreach(properties, name, v) some = some || !json_is_false(v);
    return some;
}

/* Decides about properties that the schema does not name. They are left out where it names some and says nothing of
 * others. */
static um_status push_others(object *o) {
    um_schema *c = o->c;
    um_conj values = {0};
    bool said = false, listed = false;
    um_status s = UM_OK;
    const um_expr *name = NULL;
    for (int32_t i = 0; i < o->j->n; i++) {
        const json_t *patterns = json_object_get(o->j->part[i].schema, "patternProperties");
        if (patterns && json_object_size(patterns)) return pattern_names(o);
    }
    for (int32_t i = 0; i < o->j->n && !s; i++) {
        const um_schema_part *p = &o->j->part[i];
        const char *key;
        const json_t *others = others_of(p, &key);
        said = said || others;
        listed = listed || names_some(json_object_get(p->schema, "properties"));
        if (others) s = um_conj_add(c, &values, others, um_schema_at(c, p->at, key), -1);
    }
    if (s && c->never) return c->never = false, UM_OK;
    if (s || (listed && !said)) return s;
    s = um_conj_has(o->j, "propertyNames") ? restricted_names(o, &name) : other_names(o, &name);
    if (s && c->never) return c->never = false, UM_OK;
    return s ? s : set_other(o, name, &values);
}

/* ---- Joining ----------------------------------------------------------------------------------------------------- */

/* The other properties behind `count` properties. NULL: the limits don't allow them. */
static const um_expr *others_after(const object *o, int64_t count) {
    um_rules *r = o->c->r;
    const int64_t min = UM_MAX(o->min - count, 0), max = o->max < 0 ? -1 : o->max - count;
    const int32_t most = max < 0 ? -1 : (int32_t)UM_MIN(max, UM_REPEAT_MAX);
    if (!o->other || max == 0) return min == 0 ? um_expr_nothing(r) : NULL;
    /* Two of them may have the same name, and count as one. */
    if (min > 1) return NULL;
    if (count > 0) return um_expr_repeat(r, o->other_later, (int32_t)min, most);
    const um_expr *more = um_expr_repeat(r, o->other_later, 0, most < 0 ? -1 : most - 1);
    return um_expr_repeat(r, um_expr_join2(r, o->other, more), (int32_t)min, 1);
}

static const um_expr *as_rule(object *o, const um_expr *e, int32_t i) {
    char name[UM_SCHEMA_AT_MAX + 64];
    snprintf(name, sizeof name, "%s: from property %d on (rule %d)", um_conj_at(o->j), i, o->c->r->n);
    const int32_t rule = um_rule_add(o->c->r, um_str_of(name));
    um_rule_set(o->c->r, rule, e);
    return um_expr_call(o->c->r, rule);
}

/* Property i followed by `taken`, or `left` without the property. Both may be NULL. */
static const um_expr *with_item(object *o, int32_t i, bool comma, const um_expr *taken, const um_expr *left) {
    um_rules *r = o->c->r;
    const item *t = &o->items[i];
    const um_expr *with = taken ? um_expr_join2(r, comma ? t->later : t->first, taken) : NULL;
    if (t->required || !left) return with;
    return with ? um_expr_either2(r, with, left) : left;
}

/* Properties without limits to their number. Behind the first required one they are a plain sequence. */
static const um_expr *join_free(object *o) {
    um_rules *r = o->c->r;
    int32_t first = 0;
    um_exprs tail = {0};
    while (first < o->n && !o->items[first].required) first++;
    for (int32_t i = first + 1; i < o->n; i++)
        um_exprs_push(&tail, um_expr_repeat(r, o->items[i].later, o->items[i].required, 1));
    if (first < o->n) um_exprs_push(&tail, others_after(o, 1));
    const um_expr *after = um_exprs_join(r, &tail), *none, *some;
    if (first < o->n) {
        none = um_expr_join2(r, o->items[first].first, after);
        some = um_expr_join2(r, o->items[first].later, after);
    } else {
        none = others_after(o, 0);
        some = others_after(o, 1);
    }
    for (int32_t i = first; i-- > 0;) {
        none = with_item(o, i, false, some, none);
        some = um_expr_join2(r, um_expr_repeat(r, o->items[i].later, 0, 1), some);
        if (i % RULE_EVERY == 0 && i > 0) {
            none = as_rule(o, none, i);
            some = as_rule(o, some, i);
        }
    }
    return none;
}

/* Properties whose number is counted. after[k]: the rest when k properties are there. */
static um_status join_counted(object *o, const um_expr **out) {
    const int64_t most = o->max < 0 ? o->n : UM_MIN(o->max, o->n);
    if (most * o->n > COUNTED_MAX)
        return um_schema_fail(o->c, um_conj_at(o->j), UM_ELIMIT, "minProperties or maxProperties with %d properties",
                              o->n);
    const um_expr **after = UM_NEW_ARRAY(const um_expr *, (size_t)most + 2);
    for (int64_t k = 0; k <= most; k++) after[k] = others_after(o, k);
    for (int32_t i = o->n; i-- > 0;)
        for (int64_t k = 0; k <= UM_MIN(most, i); k++) {
            after[k] = with_item(o, i, k > 0, k < most ? after[k + 1] : NULL, after[k]);
            if (after[k] && i % RULE_EVERY == 0 && i > 0) after[k] = as_rule(o, after[k], i);
        }
    *out = after[0];
    um_free(after);
    if (*out) return UM_OK;
    if (o->other && o->min > 1)
        return um_schema_fail(
            o->c, um_conj_at(o->j), UM_EUNSUPPORTED,
            "\"minProperties\" %lld: at most one property may be needed that the schema does not name",
            (long long)o->min);
    return um_schema_never(o->c, um_conj_at(o->j), "the number of properties can't be reached");
}

static um_status join(object *o, const um_expr **out) {
    int64_t n_required = 0;
    const um_expr *all = NULL;
    um_status s = UM_OK;
    for (int32_t i = 0; i < o->n; i++) n_required += o->items[i].required;
    const bool has_min = o->min > n_required, has_max = o->max >= 0 && (o->other || o->max < o->n);
    if (!has_max) o->max = -1;
    if (!has_min) o->min = 0;
    if (has_min || has_max) s = join_counted(o, &all);
    else all = join_free(o);
    if (!s) *out = um_json_enclosed(o->c->r, &o->c->style, '{', all, '}');
    return s;
}

um_status um_schema_object(um_schema *c, const um_conj *j, const um_expr **out) {
    static const char *const keys[] = {"properties",    "required",      "additionalProperties",  "patternProperties",
                                       "minProperties", "maxProperties", "unevaluatedProperties", "propertyNames"};
    bool is_free = true;
    for (size_t i = 0; i < UM_LEN(keys); i++) is_free = is_free && !um_conj_has(j, keys[i]);
    if (is_free) return *out = um_json_any_object(c->r, &c->style), UM_OK;
    object o = {.c = c, .j = j};
    um_status s = read_keywords(&o);
    collect_names(&o);
    if (!s) s = push_properties(&o);
    if (!s) s = push_others(&o);
    if (!s) s = join(&o, out);
    json_decref(o.names);
    um_free(o.items);
    return s;
}
