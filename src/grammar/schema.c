/* JSON schemas as rules: lists of schemas, references, and the choice of branches. */
#include "grammar/schema.h"

#include <stdlib.h>

#define DEPTH_MAX       100                /* nested schemas */
#define WORK_MAX        100000             /* schemas that apply to a value, over all values */
#define KEY_TEXT_MAX    ((size_t)2000)     /* longest schema that is compared by its text */
#define MATCHING_MAX    (INT64_C(1) << 24) /* steps of matching, about a fifth of a second */
#define COMPILER_MEMORY ((size_t)64 << 20) /* places in messages and lists of schemas */

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

um_status um_schema_fail(um_schema *c, const char *at, um_status code, const char *fmt, ...) {
    char text[UM_ERR_MAX - UM_SCHEMA_AT_MAX - 16];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    c->never = false;
    return um_fail(c->err, code, "%s: %s", at, text);
}

um_status um_schema_never(um_schema *c, const char *at, const char *fmt, ...) {
    char text[UM_ERR_MAX - UM_SCHEMA_AT_MAX - 32];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    c->never = true;
    return um_fail(c->err, UM_EINVAL, "%s: no value can match: %s", at, text);
}

static um_status fail_memory(um_schema *c) {
    c->never = false;
    return um_fail(c->err, UM_ELIMIT, "the schema needs more than %zu MiB while it is compiled", COMPILER_MEMORY >> 20);
}

/* Leaves out the middle of a place that is too long. */
static const char *store_place(um_schema *c, const um_buf *b) {
    const size_t half = UM_SCHEMA_AT_MAX / 2 - 3;
    char text[UM_SCHEMA_AT_MAX + 1];
    if (b->len <= UM_SCHEMA_AT_MAX) snprintf(text, sizeof text, "%s", b->data);
    else snprintf(text, sizeof text, "%.*s...%s", (int)half, b->data, b->data + b->len - half);
    const char *at = um_arena_strndup(&c->arena, text, strlen(text));
    return at ? at : "#";
}

const char *um_schema_at(um_schema *c, const char *at, const char *key) {
    um_buf b = {0};
    um_buf_puts(&b, at);
    um_buf_putc(&b, '/');
    for (const char *p = key; *p; p++) {
        if (*p == '~') um_buf_puts(&b, "~0");
        else if (*p == '/') um_buf_puts(&b, "~1");
        else um_buf_putc(&b, *p);
    }
    const char *place = store_place(c, &b);
    um_buf_free(&b);
    return place;
}

const char *um_schema_at_index(um_schema *c, const char *at, size_t index) {
    char text[24];
    snprintf(text, sizeof text, "%zu", index);
    return um_schema_at(c, at, text);
}

const char *um_conj_at(const um_conj *j) { return j->n ? j->part[0].at : "#"; }

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

static um_status reserve(um_schema *c, um_conj *j, int32_t cap) {
    if (cap <= j->cap) return UM_OK;
    um_schema_part *part = (um_schema_part *)um_arena_alloc(&c->arena, um_mul((size_t)cap, sizeof *part));
    if (!part) return fail_memory(c);
    if (j->n) memcpy(part, j->part, (size_t)j->n * sizeof *part);
    j->part = part;
    j->cap = cap;
    return UM_OK;
}

um_conj um_conj_copy(um_schema *c, const um_conj *j) {
    um_conj copy = *j;
    copy.cap = 0;
    if (reserve(c, &copy, j->n + 4)) copy.n = 0; /* the next um_conj_add fails, too */
    return copy;
}

um_status um_conj_add(um_schema *c, um_conj *j, const json_t *schema, const char *at, int32_t parent) {
    if (json_is_true(schema)) return UM_OK;
    if (json_is_false(schema)) return um_schema_never(c, at, "the schema is false");
    if (!json_is_object(schema) || um_json_big_integer(schema).p)
        return um_schema_fail(c, at, UM_EINVAL, "expected a schema (an object, true or false), found %s",
                              um_json_kind(schema));
    for (int32_t i = parent; i >= 0; i = j->part[i].parent)
        if (j->part[i].schema == schema)
            return um_schema_fail(c, at, UM_EINVAL, "the schema refers to itself without an end");
    for (int32_t i = 0; i < j->n; i++)
        if (j->part[i].schema == schema) return UM_OK;
    um_status s = j->n == j->cap ? reserve(c, j, j->cap ? j->cap * 2 : 4) : UM_OK;
    if (!s) j->part[j->n++] = (um_schema_part){.schema = schema, .at = at, .parent = parent};
    return s;
}

bool um_conj_has_one_head(const um_conj *j) {
    for (int32_t i = 0; i < j->n; i++)
        if (i ? j->part[i].parent < 0 : j->part[i].parent >= 0) return false;
    return true;
}

bool um_conj_has(const um_conj *j, const char *key) {
    for (int32_t i = 0; i < j->n; i++)
        if (json_object_get(j->part[i].schema, key)) return true;
    return false;
}

um_status um_schema_count(um_schema *c, const um_schema_part *p, const char *key, int64_t *out) {
    const json_t *v = json_object_get(p->schema, key);
    const double real = json_is_real(v) ? json_real_value(v) : -1;
    if (!v) return UM_OK;
    if (json_is_integer(v) && json_integer_value(v) >= 0) return *out = json_integer_value(v), UM_OK;
    if (real >= 0 && real < 1e15 && real == (double)(int64_t)real) return *out = (int64_t)real, UM_OK;
    if (um_json_big_integer(v).p && um_json_big_integer(v).p[0] != '-') return *out = INT64_MAX, UM_OK;
    return um_schema_fail(c, p->at, UM_EINVAL, "\"%s\": expected a number of things (0 or more)", key);
}

/* ---- References -------------------------------------------------------------------------------------------------- */

static int hex_value(char h) {
    if (h >= '0' && h <= '9') return h - '0';
    if (h >= 'a' && h <= 'f') return h - 'a' + 10;
    return h >= 'A' && h <= 'F' ? h - 'A' + 10 : -1;
}

/* Decodes one name of a JSON pointer in a URI. */
static bool decode_name(const char *p, size_t n, um_buf *out) {
    um_buf_clear(out);
    um_buf_append(out, "", 0);
    for (size_t i = 0; i < n; i++) {
        char ch = p[i];
        if (ch == '%') {
            if (i + 2 >= n || hex_value(p[i + 1]) < 0 || hex_value(p[i + 2]) < 0) return false;
            ch = (char)(hex_value(p[i + 1]) * 16 + hex_value(p[i + 2]));
            i += 2;
        }
        if (ch == '~') {
            if (i + 1 >= n || (p[i + 1] != '0' && p[i + 1] != '1')) return false;
            ch = p[++i] == '0' ? '~' : '/';
        }
        if (!ch) return false;
        um_buf_putc(out, ch);
    }
    return true;
}

static const json_t *member(const json_t *v, const um_buf *name) {
    int64_t index;
    const char *key = name->len ? name->data : "";
    if (json_is_object(v)) return json_object_get(v, key);
    if (!json_is_array(v) || !um_parse_int(key, &index) || index < 0) return NULL;
    return json_array_get(v, (size_t)index);
}

/* Finds the schema of a reference within this one. */
static um_status resolve(um_schema *c, const char *at, const char *ref, const json_t **out) {
    um_buf name = {0};
    const json_t *v = c->root;
    const char *id = json_string_value(json_object_get(c->root, "$id")), *p = ref;
    const size_t id_len = id ? strcspn(id, "#") : 0;
    if (id_len && strncmp(ref, id, id_len) == 0 && (ref[id_len] == '#' || !ref[id_len])) p = ref + id_len;
    if (*p && *p != '#')
        return um_schema_fail(c, at, UM_EUNSUPPORTED,
                              "$ref \"%.100s\": only references within the schema (\"#/...\") are supported", ref);
    if (p[0] == '#' && p[1] && p[1] != '/')
        return um_schema_fail(c, at, UM_EUNSUPPORTED,
                              "$ref \"%.100s\": anchors are not supported; write the reference as \"#/...\"", ref);
    p += *p == '#';
    while (v && *p == '/') {
        const size_t n = strcspn(p + 1, "/");
        v = decode_name(p + 1, n, &name) ? member(v, &name) : NULL;
        if (v && v != c->root && json_is_string(json_object_get(v, "$id"))) {
            um_buf_free(&name);
            return um_schema_fail(c, at, UM_EUNSUPPORTED, "$ref \"%.100s\" leads to a schema with its own $id", ref);
        }
        p += 1 + n;
    }
    um_buf_free(&name);
    *out = v;
    return v ? UM_OK : um_schema_fail(c, at, UM_EINVAL, "$ref \"%.100s\": there is no such schema", ref);
}

static um_status follow_ref(um_schema *c, um_conj *j, int32_t i) {
    const um_schema_part p = j->part[i];
    const json_t *ref = json_object_get(p.schema, "$ref"), *target = NULL;
    if (!ref) return UM_OK;
    if (!json_is_string(ref))
        return um_schema_fail(c, p.at, UM_EINVAL, "\"$ref\": expected a string, found %s", um_json_kind(ref));
    um_status s = resolve(c, p.at, json_string_value(ref), &target);
    um_buf place = {0};
    if (s) return s;
    um_buf_puts(&place, json_string_value(ref));
    const char *at = place.data[0] == '#' ? store_place(c, &place) : um_schema_at(c, p.at, "$ref");
    um_buf_free(&place);
    return um_conj_add(c, j, target, at, i);
}

static um_status follow_all(um_schema *c, um_conj *j, int32_t i) {
    const um_schema_part p = j->part[i];
    const json_t *all = json_object_get(p.schema, "allOf");
    if (!all) return UM_OK;
    if (!json_is_array(all))
        return um_schema_fail(c, p.at, UM_EINVAL, "\"allOf\": expected an array, found %s", um_json_kind(all));
    const char *at = um_schema_at(c, p.at, "allOf");
    um_status s = UM_OK;
    for (size_t k = 0; k < json_array_size(all) && !s; k++)
        s = um_conj_add(c, j, json_array_get(all, k), um_schema_at_index(c, at, k), i);
    return s;
}

/* Adds to `all` that an object has no property `name`, or has it and matches a schema: a list of required names or a
 * schema. */
static void push_dependency(json_t *all, const char *name, json_t *then) {
    json_t *needed = json_is_array(then) ? json_pack("{sO}", "required", then) : json_incref(then);
    json_array_append_new(all, json_pack("{s[{s{sb}}, {s[s], s[o]}]}", "anyOf", "properties", name, 0, "required", name,
                                         "allOf", needed));
}

/* Returns a schema that means the same as the keywords about dependencies of p, or NULL where it has none. */
static json_t *dependencies_of(um_schema *c, const um_schema_part *p, um_status *s) {
    static const char *const keys[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    char address[32];
    snprintf(address, sizeof address, "%p", (const void *)p->schema);
    json_t *made = json_object_get(c->made, address), *all = NULL;
    for (size_t i = 0; i < UM_LEN(keys) && !made && !*s; i++) {
        json_t *list = json_object_get(p->schema, keys[i]), *then;
        const char *name;
        if (!list) continue;
        if (!json_is_object(list))
            *s = um_schema_fail(c, p->at, UM_EINVAL, "\"%s\": expected an object, found %s", keys[i],
                                um_json_kind(list));
        if (!all) all = json_array();
        json_object_foreach(list, name, then) push_dependency(all, name, then);
    }
    if (!all) return made;
    made = json_pack("{so}", "allOf", all);
    if (!c->made) c->made = json_object();
    json_object_set_new(c->made, address, made);
    return made;
}

/* Adds what a property makes necessary. */
static um_status follow_dependencies(um_schema *c, um_conj *j, int32_t i) {
    um_status s = UM_OK;
    const json_t *made = dependencies_of(c, &j->part[i], &s);
    return made && !s ? um_conj_add(c, j, made, j->part[i].at, i) : s;
}

/* Refuses keywords that hold for values of all types. */
static um_status check_keywords(um_schema *c, const um_schema_part *p) {
    static const char *const refused[] = {"$dynamicRef", "$recursiveRef"};
    for (size_t i = 0; i < UM_LEN(refused); i++)
        if (json_object_get(p->schema, refused[i]))
            return um_schema_fail(c, p->at, UM_EUNSUPPORTED, "\"%s\" is not supported", refused[i]);
    if (p->schema != c->root && json_is_string(json_object_get(p->schema, "$id")))
        return um_schema_fail(c, p->at, UM_EUNSUPPORTED, "\"$id\" is supported only at the root of the schema");
    if (json_object_get(p->schema, "if") && (json_object_get(p->schema, "then") || json_object_get(p->schema, "else")))
        return um_schema_fail(c, p->at, UM_EUNSUPPORTED,
                              "\"if\" with \"then\" or \"else\" is not supported; use anyOf");
    return UM_OK;
}

um_status um_conj_expand(um_schema *c, um_conj *j) {
    um_status s = UM_OK;
    for (int32_t i = 0; i < j->n && !s; i++) {
        if (++c->work > WORK_MAX)
            return um_schema_fail(c, j->part[i].at, UM_ELIMIT, "the schema leads to more than %d combinations",
                                  WORK_MAX);
        s = check_keywords(c, &j->part[i]);
        if (!s) s = follow_ref(c, j, i);
        if (!s) s = follow_all(c, j, i);
        if (!s) s = follow_dependencies(c, j, i);
    }
    return s;
}

/* ---- Branches ---------------------------------------------------------------------------------------------------- */

static um_status value_body(um_schema *c, um_conj *j, const um_expr **out);

/* Compiles the list with each branch in turn. Branches that no value matches are left out. */
static um_status each_branch(um_schema *c, const um_conj *j, int32_t i, const char *key, const um_expr **out) {
    const json_t *branches = json_object_get(j->part[i].schema, key);
    const char *at = um_schema_at(c, j->part[i].at, key);
    um_exprs list = {0};
    um_status s = UM_OK;
    for (size_t k = 0; k < json_array_size(branches) && !s; k++) {
        um_conj branch = um_conj_copy(c, j);
        const um_expr *e = NULL;
        s = um_conj_add(c, &branch, json_array_get(branches, k), um_schema_at_index(c, at, k), i);
        if (!s) s = value_body(c, &branch, &e);
        if (!s) um_exprs_push(&list, e);
        else if (c->never) c->never = false, s = UM_OK;
    }
    const size_t n = list.n;
    *out = um_exprs_either(c->r, &list);
    if (!s && !n) s = um_schema_never(c, at, "none of the schemas allows one");
    return s;
}

/* Checks that no value of one branch of oneOf matches another one. */
static um_status check_one(um_schema *c, const um_conj *j, int32_t i) {
    const json_t *branches = json_object_get(j->part[i].schema, "oneOf");
    const char *at = um_schema_at(c, j->part[i].at, "oneOf");
    const size_t n = json_array_size(branches);
    um_status s = UM_OK;
    for (size_t a = 0; a < n && !s; a++)
        for (size_t b = 0; b < n && !s; b++) {
            um_conj first = um_conj_copy(c, j), second = {0};
            bool yes = false;
            if (a == b) continue;
            s = um_conj_add(c, &first, json_array_get(branches, a), um_schema_at_index(c, at, a), i);
            if (!s) s = um_conj_expand(c, &first);
            if (!s) s = um_conj_add(c, &second, json_array_get(branches, b), um_schema_at_index(c, at, b), -1);
            if (!s) s = um_conj_expand(c, &second);
            if (!s) s = um_schema_disjoint(c, &first, &second, 0, &yes);
            if (s && c->never) c->never = false, s = UM_OK, yes = true;
            if (!s && !yes)
                s = um_schema_fail(
                    c, at, UM_EUNSUPPORTED,
                    "a value might match both schema %zu and schema %zu; oneOf is supported where types, "
                    "constants or required properties tell its schemas apart; use anyOf",
                    a, b);
        }
    return s;
}

/* Compiles the branches of the first anyOf or oneOf that was not compiled yet. *found is false if there is none. */
static um_status branches(um_schema *c, um_conj *j, const um_expr **out, bool *found) {
    *found = true;
    for (int32_t i = 0; i < j->n; i++) {
        um_schema_part *p = &j->part[i];
        const json_t *any = json_object_get(p->schema, "anyOf"), *one = json_object_get(p->schema, "oneOf");
        const bool is_any = any && !p->any_done, is_one = one && !p->one_done;
        if (!is_any && !is_one) continue;
        const char *key = is_any ? "anyOf" : "oneOf";
        if (!json_is_array(is_any ? any : one) || json_array_size(is_any ? any : one) == 0)
            return um_schema_fail(c, p->at, UM_EINVAL, "\"%s\": expected a list of schemas", key);
        *(is_any ? &p->any_done : &p->one_done) = true;
        um_status s = is_any ? UM_OK : check_one(c, j, i);
        return s ? s : each_branch(c, j, i, key, out);
    }
    *found = false;
    return UM_OK;
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

static um_status one_type(um_schema *c, const um_conj *j, unsigned type, const um_expr **out) {
    switch (type) {
    case UM_TYPE_NULL: *out = um_expr_text(c->r, UM_STR("null")); return UM_OK;
    case UM_TYPE_BOOL: *out = um_json_bool(c->r); return UM_OK;
    case UM_TYPE_INTEGER: return um_schema_number(c, j, true, out);
    case UM_TYPE_NUMBER: return um_schema_number(c, j, false, out);
    case UM_TYPE_STRING: return um_schema_string(c, j, out);
    case UM_TYPE_ARRAY: return um_schema_array(c, j, out);
    default: return um_schema_object(c, j, out);
    }
}

static um_status each_type(um_schema *c, const um_conj *j, unsigned types, const um_expr **out) {
    um_exprs list = {0};
    um_status s = UM_OK;
    if (types & UM_TYPE_NUMBER) types &= ~(unsigned)UM_TYPE_INTEGER;
    for (unsigned t = 1; t <= UM_TYPE_OBJECT && !s; t <<= 1) {
        const um_expr *e = NULL;
        if (!(types & t)) continue;
        s = one_type(c, j, t, &e);
        if (!s) um_exprs_push(&list, e);
        else if (c->never && (types & ~t)) c->never = false, s = UM_OK;
    }
    const size_t n = list.n;
    *out = um_exprs_either(c->r, &list);
    if (!s && !n) s = um_schema_never(c, um_conj_at(j), "the keywords contradict each other for every type");
    return s;
}

static const um_expr *text_of(um_schema *c, const json_t *v) {
    um_buf b = {0};
    um_json_put_exact(v, &b);
    const um_expr *e = um_expr_text(c->r, (um_str){b.data, b.len});
    um_buf_free(&b);
    return e;
}

/* Keeps the values of enum and const that the other keywords allow: those whose text is one of the rules that the other
 * keywords make. */
static um_status filter_values(um_schema *c, const um_conj *j, unsigned types, json_t *values) {
    um_rules own;
    const um_expr *e = NULL;
    um_schema inner = *c;
    um_rules_init(&own);
    inner.r = &own;
    inner.memo = NULL;
    inner.memo_n = inner.memo_cap = 0;
    um_status s = each_type(&inner, j, types, &e);
    own.root = um_rule_add(&own, UM_STR("root"));
    if (!s) um_rule_set(&own, own.root, e);
    if (!s) s = um_rules_check(&own, c->err);
    for (size_t i = json_array_size(values); !s && i-- > 0;) {
        um_buf b = {0};
        bool matches = false;
        um_json_put_exact(json_array_get(values, i), &b);
        if (!um_rules_match_within(&own, (um_str){b.data, b.len}, &inner.matching, &matches))
            s = um_schema_fail(c, um_conj_at(j), UM_ELIMIT,
                               "enum or const has values that are too long to compare them with the other keywords");
        if (!matches) json_array_remove(values, i);
        um_buf_free(&b);
    }
    for (int32_t i = 0; i < inner.memo_cap; i++) um_free(inner.memo[i].key);
    um_free(inner.memo);
    um_rules_free(&own);
    c->arena = inner.arena;
    c->made = inner.made;
    c->work = inner.work;
    c->matching = inner.matching;
    c->never = inner.never;
    return s;
}

bool um_conj_is_restricted(const um_conj *j) {
    static const char *const keys[] = {
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
        "unevaluatedProperties",
        "items",
        "prefixItems",
        "additionalItems",
        "minItems",
        "maxItems",
        "uniqueItems",
        "contains",
        "unevaluatedItems",
    };
    for (size_t i = 0; i < UM_LEN(keys); i++)
        if (um_conj_has(j, keys[i])) return true;
    return false;
}

static um_status values_body(um_schema *c, const um_conj *j, unsigned types, json_t *values, const um_expr **out) {
    um_exprs list = {0};
    um_status s = UM_OK;
    for (size_t i = json_array_size(values); i-- > 0;)
        if (!(um_json_type_bits(json_array_get(values, i)) & types)) json_array_remove(values, i);
    if (json_array_size(values) && um_conj_is_restricted(j)) s = filter_values(c, j, types, values);
    if (s) return s;
    if (json_array_size(values) == 0)
        return um_schema_never(c, um_conj_at(j), "the other keywords allow none of the values of enum or const");
    for (size_t i = 0; i < json_array_size(values); i++) um_exprs_push(&list, text_of(c, json_array_get(values, i)));
    *out = um_exprs_either(c->r, &list);
    return UM_OK;
}

static um_status value_body(um_schema *c, um_conj *j, const um_expr **out) {
    bool found;
    unsigned types;
    json_t *values = NULL;
    if (c->depth >= DEPTH_MAX)
        return um_schema_fail(c, um_conj_at(j), UM_ELIMIT, "schemas are nested more than %d deep", DEPTH_MAX);
    c->depth++;
    um_status s = um_conj_expand(c, j);
    if (!s) s = branches(c, j, out, &found);
    if (!s && !found) {
        s = um_schema_types(c, j, &types);
        if (!s) s = um_schema_enum(c, j, &values);
        if (!s && values) s = values_body(c, j, types, values, out);
        else if (!s && types == UM_TYPE_ALL && !um_conj_is_restricted(j)) *out = um_json_any_value(c->r, &c->style);
        else if (!s) s = each_type(c, j, types, out);
    }
    json_decref(values);
    c->depth--;
    return s;
}

/* ---- Rules of values --------------------------------------------------------------------------------------------- */

/* Lists of schemas with the same key mean the same. Short schemas are compared by their text, so that equal parts of a
 * schema become one rule; longer ones by their place in memory. */
static char *key_of(um_schema *c, const um_conj *j) {
    um_buf b = {0};
    for (int32_t i = 0; i < j->n; i++) {
        const size_t size = json_dumpb(j->part[i].schema, NULL, 0, JSON_COMPACT);
        c->work += (int64_t)(size / 10000);
        if (size <= KEY_TEXT_MAX) {
            um_buf_reserve(&b, size + 1);
            json_dumpb(j->part[i].schema, b.data + b.len, size, JSON_COMPACT);
            b.len += size;
            um_buf_putc(&b, '\n');
        } else um_buf_printf(&b, "%p\n", (const void *)j->part[i].schema);
    }
    return um_buf_take(&b);
}

static um_schema_memo *find_memo(um_schema *c, const char *key) {
    size_t i = (size_t)um_key_hash(um_str_of(key)) & ((size_t)c->memo_cap - 1);
    while (c->memo[i].key && !um_streq(c->memo[i].key, key)) i = (i + 1) & ((size_t)c->memo_cap - 1);
    return &c->memo[i];
}

static void grow_memo(um_schema *c) {
    um_schema_memo *old = c->memo;
    const int32_t n = c->memo_cap;
    c->memo_cap = n ? n * 2 : 64;
    c->memo = UM_NEW_ARRAY(um_schema_memo, (size_t)c->memo_cap);
    for (int32_t i = 0; i < n; i++)
        if (old[i].key) *find_memo(c, old[i].key) = old[i];
    um_free(old);
}

/* Returns whether the body is a few texts and calls. Used in place of a call, its texts and those around it become one,
 * which has one spelling in tokens. */
static bool is_short(const um_expr *e) {
    if (e->kind == UM_EXPR_TEXT || e->kind == UM_EXPR_CALL) return true;
    if (e->kind != UM_EXPR_JOIN || e->n > 3) return false;
    for (int32_t i = 0; i < e->n; i++)
        if (e->part[i]->kind != UM_EXPR_TEXT && e->part[i]->kind != UM_EXPR_CALL) return false;
    return true;
}

um_status um_schema_value(um_schema *c, const um_conj *j, const um_expr **out) {
    if (j->n == 0) return *out = um_json_any_value(c->r, &c->style), UM_OK;
    /* Once the rules are full, the rest of the schema can't change the outcome. */
    if (c->r->full) return c->never = false, um_rules_check(c->r, c->err);
    if (c->memo_n * 2 >= c->memo_cap) grow_memo(c);
    char *key = key_of(c, j), name[UM_SCHEMA_AT_MAX + 24];
    um_schema_memo *m = find_memo(c, key);
    if (m->key) {
        um_free(key);
        *out = m->inlined ? m->inlined : um_expr_call(c->r, m->rule);
        return m->never ? um_schema_never(c, um_conj_at(j), "no text matches this schema") : UM_OK;
    }
    snprintf(name, sizeof name, "%s (rule %d)", um_conj_at(j), c->r->n);
    const int32_t rule = um_rule_add(c->r, um_str_of(name));
    *m = (um_schema_memo){.key = key, .rule = rule};
    c->memo_n++;
    um_conj own = um_conj_copy(c, j);
    const um_expr *body = NULL;
    um_status s = value_body(c, &own, &body);
    /* Other schemas may refer to this one, also when no value matches it. */
    um_rule_set(c->r, rule, s ? um_expr_either(c->r, NULL, 0) : body);
    m = find_memo(c, key);
    m->never = s && c->never;
    m->inlined = !s && is_short(body) ? body : NULL;
    *out = m->inlined ? body : um_expr_call(c->r, rule);
    return s;
}

/* ---- The whole schema -------------------------------------------------------------------------------------------- */

static um_status compile(um_schema *c) {
    um_conj j = {0};
    const um_expr *e = NULL;
    /* The rules that most schemas share come first, where they are found at once. */
    um_json_any_integer(c->r);
    um_json_any_value(c->r, &c->style);
    c->r->root = um_rule_add(c->r, UM_STR("root"));
    um_status s = um_conj_add(c, &j, c->root, "#", -1);
    if (!s) s = um_schema_value(c, &j, &e);
    if (s) return s;
    um_rule_set(c->r, c->r->root, e);
    return um_rules_check(c->r, c->err);
}

/* A schema may be just true or false, which the parser of requests refuses. */
static json_t *bool_schema(um_str text) {
    while (text.n && strchr(" \t\r\n", text.p[text.n - 1])) text.n--;
    while (text.n && strchr(" \t\r\n", *text.p)) text.p++, text.n--;
    if (um_str_eq(text, UM_STR("true"))) return json_true();
    return um_str_eq(text, UM_STR("false")) ? json_false() : NULL;
}

um_status um_rules_from_schema(um_rules *r, const char *schema, size_t n, const um_json_style *style, um_err *err) {
    json_t *root = bool_schema((um_str){schema, n});
    um_status s = root ? UM_OK : um_json_parse_request(&root, schema, n, "schema", err);
    if (s) return s;
    /* Branches without a value fail, and others are taken: only the last failure is the caller's. */
    um_err failure = {.code = UM_OK};
    um_schema c = {.r = r, .root = root, .style = *style, .err = &failure, .matching = MATCHING_MAX};
    um_arena_init(&c.arena, COMPILER_MEMORY);
    s = compile(&c);
    if (s && err) *err = failure;
    for (int32_t i = 0; i < c.memo_cap; i++) um_free(c.memo[i].key);
    um_free(c.memo);
    um_arena_free(&c.arena);
    json_decref(c.made);
    json_decref(root);
    return s;
}
