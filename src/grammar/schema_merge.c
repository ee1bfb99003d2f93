/* JSON schemas: the keywords type, enum, const and not of a list of schemas, and whether two lists exclude each other.
 */
#include "grammar/schema.h"

#define COMPARED_MAX       1000000 /* pairs of values of two enums */
#define DISJOINT_DEPTH_MAX 4       /* nested properties that may tell two schemas apart */

/* ---- Types ------------------------------------------------------------------------------------------------------- */

unsigned um_json_type_bits(const json_t *v) {
    if (um_json_big_integer(v).p) return UM_TYPE_INTEGER | UM_TYPE_NUMBER;
    switch (json_typeof(v)) {
    case JSON_OBJECT: return UM_TYPE_OBJECT;
    case JSON_ARRAY: return UM_TYPE_ARRAY;
    case JSON_STRING: return UM_TYPE_STRING;
    case JSON_INTEGER: return UM_TYPE_INTEGER | UM_TYPE_NUMBER;
    case JSON_REAL: {
        const double r = json_real_value(v);
        const bool whole = r > -1e15 && r < 1e15 && r == (double)(int64_t)r;
        return whole ? UM_TYPE_INTEGER | UM_TYPE_NUMBER : UM_TYPE_NUMBER;
    }
    case JSON_NULL: return UM_TYPE_NULL;
    default: return UM_TYPE_BOOL;
    }
}

static unsigned named_type(const json_t *v) {
    static const struct {
        const char *name;
        unsigned bits;
    } types[] = {
        {"null", UM_TYPE_NULL},       {"boolean", UM_TYPE_BOOL},
        {"integer", UM_TYPE_INTEGER}, {"number", UM_TYPE_NUMBER | UM_TYPE_INTEGER},
        {"string", UM_TYPE_STRING},   {"array", UM_TYPE_ARRAY},
        {"object", UM_TYPE_OBJECT},
    };
    for (size_t i = 0; json_is_string(v) && i < UM_LEN(types); i++)
        if (um_streq(json_string_value(v), types[i].name)) return types[i].bits;
    return 0;
}

/* Reads the keyword type of one schema. */
static um_status own_types(um_schema *c, const json_t *schema, const char *at, unsigned *types) {
    const json_t *type = json_object_get(schema, "type");
    *types = 0;
    if (!type) return *types = UM_TYPE_ALL, UM_OK;
    const size_t n = json_is_array(type) ? json_array_size(type) : 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *name = json_is_array(type) ? json_array_get(type, i) : type;
        const unsigned bits = named_type(name);
        if (!bits)
            return um_schema_fail(
                c, at, UM_EINVAL,
                "\"type\": expected string, number, integer, boolean, object, array or null, found %.60s",
                json_is_string(name) ? json_string_value(name) : um_json_kind(name));
        *types |= bits;
    }
    /* nullable comes from OpenAPI. */
    if (json_is_true(json_object_get(schema, "nullable"))) *types |= UM_TYPE_NULL;
    return n ? UM_OK : um_schema_never(c, at, "\"type\" is an empty list");
}

/* Supports not with nothing but a type in it. */
static um_status apply_not(um_schema *c, const um_schema_part *p, unsigned *types) {
    const json_t *not = json_object_get(p->schema, "not");
    unsigned excluded;
    if (!not || json_is_false(not )) return UM_OK;
    if (json_is_true(not ) || (json_is_object(not ) && json_object_size(not ) == 0))
        return um_schema_never(c, p->at, "\"not\" excludes everything");
    if (!json_is_object(not ) || json_object_size(not ) != 1 || !json_object_get(not, "type"))
        return um_schema_fail(c, p->at, UM_EUNSUPPORTED, "\"not\" is supported only with a type; use anyOf or enum");
    um_status s = own_types(c, not, p->at, &excluded);
    /* A number that is no integer would be allowed, but the rule of numbers also generates integers. So both types are
     * left out. */
    if (excluded & UM_TYPE_INTEGER) excluded |= UM_TYPE_NUMBER;
    *types &= ~excluded;
    return s;
}

um_status um_schema_types(um_schema *c, const um_conj *j, unsigned *types) {
    um_status s = UM_OK;
    *types = UM_TYPE_ALL;
    for (int32_t i = 0; i < j->n && !s; i++) {
        unsigned own;
        s = own_types(c, j->part[i].schema, j->part[i].at, &own);
        if (!s) *types &= own;
        if (!s) s = apply_not(c, &j->part[i], types);
    }
    if (!s && !*types) s = um_schema_never(c, um_conj_at(j), "the types contradict each other");
    return s;
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

static bool array_has(const json_t *array, const json_t *v) {
    for (size_t i = 0; i < json_array_size(array); i++)
        if (json_equal(json_array_get(array, i), v)) return true;
    return false;
}

/* Keeps the values that are in `allowed`, too. The first list is copied. */
static void intersect(json_t **values, const json_t *allowed) {
    json_t *kept = json_array();
    const json_t *from = *values ? *values : allowed;
    for (size_t i = 0; i < json_array_size(from); i++) {
        json_t *v = json_array_get(from, i);
        if (*values ? array_has(allowed, v) : json_array_size(kept) > 1000 || !array_has(kept, v))
            json_array_append(kept, v);
    }
    json_decref(*values);
    *values = kept;
}

um_status um_schema_enum(um_schema *c, const um_conj *j, json_t **values) {
    *values = NULL;
    for (int32_t i = 0; i < j->n; i++) {
        const um_schema_part *p = &j->part[i];
        json_t *list = json_object_get(p->schema, "enum"), *one = json_object_get(p->schema, "const");
        if (list && !json_is_array(list))
            return um_schema_fail(c, p->at, UM_EINVAL, "\"enum\": expected an array, found %s", um_json_kind(list));
        if (list && json_array_size(list) == 0) return um_schema_never(c, p->at, "\"enum\" is empty");
        if (list && json_array_size(list) > COMPARED_MAX / UM_MAX(json_array_size(*values), 1u))
            return um_schema_fail(c, p->at, UM_ELIMIT, "\"enum\" has too many values");
        if (list) intersect(values, list);
        if (one) {
            json_t *single = json_array();
            json_array_append(single, one);
            intersect(values, single);
            json_decref(single);
        }
    }
    if (*values && json_array_size(*values) == 0)
        return um_schema_never(c, um_conj_at(j), "enum and const contradict each other");
    return UM_OK;
}

/* ---- Disjoint lists ---------------------------------------------------------------------------------------------- */

static bool requires(const um_conj *j, const char *name) {
    for (int32_t i = 0; i < j->n; i++) {
        const json_t *list = json_object_get(j->part[i].schema, "required");
        for (size_t k = 0; k < json_array_size(list); k++)
            if (um_streq(json_string_value(json_array_get(list, k)), name)) return true;
    }
    return false;
}

/* Returns whether the keyword properties of a part has the name. */
static bool lists(const um_conj *j, const char *name) {
    for (int32_t i = 0; i < j->n; i++)
        if (json_object_get(json_object_get(j->part[i].schema, "properties"), name)) return true;
    return false;
}

/* Returns whether a part forbids properties that it does not list. */
static bool forbids(const um_conj *j, const char *name) {
    for (int32_t i = 0; i < j->n; i++) {
        const json_t *s = j->part[i].schema;
        if (json_is_false(json_object_get(s, "additionalProperties")) && !json_object_get(s, "patternProperties") &&
            !json_object_get(json_object_get(s, "properties"), name))
            return true;
        if (json_is_false(json_object_get(json_object_get(s, "properties"), name))) return true;
    }
    return false;
}

/* Returns whether objects of the list may have properties that no part lists. */
static bool is_open(const um_conj *j) {
    return !um_conj_has(j, "properties") || um_conj_has(j, "additionalProperties") ||
           um_conj_has(j, "patternProperties");
}

static um_status property_of(um_schema *c, const um_conj *j, const char *name, um_conj *out) {
    um_status s = UM_OK;
    for (int32_t i = 0; i < j->n && !s; i++) {
        const json_t *v = json_object_get(json_object_get(j->part[i].schema, "properties"), name);
        if (v) s = um_conj_add(c, out, v, um_schema_at(c, j->part[i].at, name), -1);
    }
    return s ? s : um_conj_expand(c, out);
}

/* Returns whether a property that every object of both lists has tells them apart. */
static um_status property_differs(um_schema *c, const um_conj *a, const um_conj *b, int depth, bool *yes) {
    um_status s = UM_OK;
    for (int32_t i = 0; i < a->n && !s && !*yes; i++) {
        const json_t *list = json_object_get(a->part[i].schema, "required");
        for (size_t k = 0; k < json_array_size(list) && !s && !*yes; k++) {
            const char *name = json_string_value(json_array_get(list, k));
            um_conj x = {0}, y = {0};
            if (!name) continue;
            if (forbids(b, name)) return *yes = true, UM_OK;
            if (!lists(a, name) || !lists(b, name)) continue;
            s = property_of(c, a, name, &x);
            if (!s) s = property_of(c, b, name, &y);
            if (!s) s = um_schema_disjoint(c, &x, &y, depth + 1, yes);
            if (s && c->never) s = UM_OK, c->never = false;
        }
    }
    for (int32_t i = 0; i < b->n && !s && !*yes && !is_open(a); i++) {
        const json_t *list = json_object_get(b->part[i].schema, "required");
        for (size_t k = 0; k < json_array_size(list); k++) {
            const char *name = json_string_value(json_array_get(list, k));
            if (name && !lists(a, name) && !requires(a, name)) *yes = true;
        }
    }
    return s;
}

/* Narrows the types to those of the values. */
static unsigned types_of_values(const json_t *values) {
    unsigned types = 0;
    for (size_t i = 0; i < json_array_size(values); i++) types |= um_json_type_bits(json_array_get(values, i));
    return types;
}

static bool have_common_value(const json_t *a, const json_t *b) {
    const unsigned types = types_of_values(b);
    if (json_array_size(b) > COMPARED_MAX / UM_MAX(json_array_size(a), 1u)) return true;
    for (size_t i = 0; i < json_array_size(a); i++) {
        const json_t *v = json_array_get(a, i);
        if (array_has(b, v)) return true;
        /* 1 and 1.0 are equal. Only texts, booleans and null are compared by their bytes. */
        const unsigned t = um_json_type_bits(v);
        if ((t & (UM_TYPE_NUMBER | UM_TYPE_OBJECT | UM_TYPE_ARRAY)) && (types & t)) return true;
    }
    return false;
}

/* Sets *yes when it is certain that no value that is generated for `a` matches `b`. */
um_status um_schema_disjoint(um_schema *c, const um_conj *a, const um_conj *b, int depth, bool *yes) {
    unsigned ta, tb;
    json_t *va = NULL, *vb = NULL;
    *yes = false;
    if (depth > DISJOINT_DEPTH_MAX) return UM_OK;
    um_status s = um_schema_types(c, a, &ta);
    if (!s) s = um_schema_types(c, b, &tb);
    if (!s) s = um_schema_enum(c, a, &va);
    if (!s) s = um_schema_enum(c, b, &vb);
    if (!s) {
        if (va) ta &= types_of_values(va);
        if (vb) tb &= types_of_values(vb);
        *yes = !(ta & tb) || (va && vb && !have_common_value(va, vb));
        if (!*yes && (ta & tb) == UM_TYPE_OBJECT && !va && !vb) s = property_differs(c, a, b, depth, yes);
    }
    json_decref(va);
    json_decref(vb);
    return s;
}
