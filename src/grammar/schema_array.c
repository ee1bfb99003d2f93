/* JSON schemas: arrays. */
#include "grammar/schema.h"

#define PREFIX_MAX   200 /* items with schemas of their own */
#define DISTINCT_MAX 8   /* values of an array without duplicates */

typedef struct array_limits {
    int64_t min, max; /* max -1: none */
    bool unique;
} array_limits;

static um_status check_array_keywords(um_schema *c, const um_conj *j, const um_schema_part *p) {
    const json_t *s = p->schema, *contains = json_object_get(s, "contains");
    const json_t *least = json_object_get(s, "minContains");
    const bool none_needed = json_is_integer(least) && json_integer_value(least) == 0;
    if (contains && !(none_needed && !json_object_get(s, "maxContains")))
        return um_schema_fail(c, p->at, UM_EUNSUPPORTED, "\"contains\" is not supported");
    const json_t *unevaluated = json_object_get(s, "unevaluatedItems");
    /* All items of prefixes and items are evaluated for a schema that describes the array alone. */
    if (unevaluated && !json_is_true(unevaluated) && !(p == j->part && um_conj_has_one_head(j)))
        return um_schema_fail(c, p->at, UM_EUNSUPPORTED,
                              "\"unevaluatedItems\" is supported only where one schema describes the array");
    return UM_OK;
}

static um_status read_limits(um_schema *c, const um_conj *j, array_limits *l) {
    um_status s = UM_OK;
    *l = (array_limits){.max = -1};
    for (int32_t i = 0; i < j->n && !s; i++) {
        int64_t min = 0, max = INT64_MAX;
        s = check_array_keywords(c, j, &j->part[i]);
        if (!s) s = um_schema_count(c, &j->part[i], "minItems", &min);
        if (!s) s = um_schema_count(c, &j->part[i], "maxItems", &max);
        l->min = UM_MAX(l->min, min);
        if (max < INT64_MAX) l->max = l->max < 0 ? max : UM_MIN(l->max, max);
        l->unique = l->unique || json_is_true(json_object_get(j->part[i].schema, "uniqueItems"));
    }
    if (!s && l->max >= 0 && l->min > l->max)
        return um_schema_never(c, um_conj_at(j), "minItems %lld is above maxItems %lld", (long long)l->min,
                               (long long)l->max);
    if (!s && (l->min > UM_REPEAT_MAX || l->max > UM_REPEAT_MAX))
        return um_schema_fail(c, um_conj_at(j), UM_ELIMIT, "minItems and maxItems may be up to %d", UM_REPEAT_MAX);
    return s;
}

/* The schemas of the first items of one part, and of the items behind them. Before draft 2020-12, items was the list
 * and additionalItems the schema of the others. */
static void item_keywords(const json_t *s, const json_t **prefix, const json_t **rest, const char **prefix_key,
                          const char **rest_key) {
    const json_t *items = json_object_get(s, "items");
    *prefix_key = json_is_array(items) ? "items" : "prefixItems";
    *rest_key = json_is_array(items) ? "additionalItems" : "items";
    *prefix = json_object_get(s, *prefix_key);
    *rest = json_object_get(s, *rest_key);
}

static int64_t prefix_length(const um_conj *j) {
    size_t n = 0;
    for (int32_t k = 0; k < j->n; k++) {
        const json_t *prefix, *rest;
        const char *prefix_key, *rest_key;
        item_keywords(j->part[k].schema, &prefix, &rest, &prefix_key, &rest_key);
        n = UM_MAX(n, json_array_size(prefix));
    }
    return (int64_t)n;
}

/* Collects the schemas of item i; i -1: of the items behind all prefixes. */
static um_status item_schemas(um_schema *c, const um_conj *j, int64_t i, um_conj *out) {
    um_status s = UM_OK;
    bool evaluated = i >= 0 && i < prefix_length(j);
    for (int32_t k = 0; k < j->n && !s; k++) {
        const um_schema_part *p = &j->part[k];
        const json_t *prefix, *rest;
        const char *prefix_key, *rest_key;
        item_keywords(p->schema, &prefix, &rest, &prefix_key, &rest_key);
        if (prefix && !json_is_array(prefix))
            return um_schema_fail(c, p->at, UM_EINVAL, "\"%s\": expected a list of schemas", prefix_key);
        if (i >= 0 && (size_t)i < json_array_size(prefix)) {
            const char *at = um_schema_at(c, p->at, prefix_key);
            s = um_conj_add(c, out, json_array_get(prefix, (size_t)i), um_schema_at_index(c, at, (size_t)i), -1);
        } else if (rest) s = um_conj_add(c, out, rest, um_schema_at(c, p->at, rest_key), -1);
        evaluated = evaluated || rest;
    }
    const json_t *others = evaluated || j->n == 0 ? NULL : json_object_get(j->part[0].schema, "unevaluatedItems");
    if (!s && others) s = um_conj_add(c, out, others, um_schema_at(c, j->part[0].at, "unevaluatedItems"), -1);
    return s;
}

/* Compiles an item. *out is NULL when no value matches it: the array then ends before it. */
static um_status compile_item(um_schema *c, const um_conj *j, int64_t i, const um_expr **out) {
    um_conj item = {0};
    *out = NULL;
    um_status s = item_schemas(c, j, i, &item);
    if (!s) s = um_schema_value(c, &item, out);
    if (s && c->never) c->never = false, s = UM_OK, *out = NULL;
    return s;
}

/* The items from number `n` on, which all have one schema. */
static const um_expr *rest_of(um_schema *c, const um_expr *item, int64_t n, int64_t min, int64_t max) {
    const um_expr *more = um_expr_join2(c->r, um_json_comma(c->r, &c->style), item);
    const int32_t least = (int32_t)UM_MAX(min - n, 0), most = max < 0 ? -1 : (int32_t)(max - n);
    if (n > 0) return um_expr_repeat(c->r, more, least, most);
    if (most == 0) return um_expr_nothing(c->r);
    const um_expr *all = um_expr_repeat(c->r, more, UM_MAX(least - 1, 0), most < 0 ? -1 : most - 1);
    return um_expr_repeat(c->r, um_expr_join2(c->r, item, all), least > 0, 1);
}

/* Puts the brackets around the items. */
static const um_expr *bracketed(um_schema *c, const um_expr *items) {
    return um_json_enclosed(c->r, &c->style, '[', items, ']');
}

/* Puts the prefix items in front of the others, the last one first. */
static um_status with_prefix(um_schema *c, const um_conj *j, const array_limits *l, int64_t n, const um_expr **out) {
    const um_expr *rest = NULL, *e = um_expr_nothing(c->r);
    um_status s = l->max < 0 || l->max > n ? compile_item(c, j, -1, &rest) : UM_OK;
    bool has_rest = rest && (um_conj_has(j, "items") || um_conj_has(j, "additionalItems") ||
                             um_conj_has(j, "unevaluatedItems") || l->min > n || n == 0);
    if (l->max >= 0) n = UM_MIN(n, l->max);
    bool reaches = has_rest || l->min <= n; /* the minimum can be reached when all items below are there */
    if (has_rest) e = rest_of(c, rest, n, l->min, l->max);
    for (int64_t i = n; i-- > 0 && !s;) {
        const um_expr *item;
        s = compile_item(c, j, i, &item);
        if (s) return s;
        if (!item) {
            e = um_expr_nothing(c->r);
            reaches = l->min <= i;
            continue;
        }
        const um_expr *comma = i > 0 ? um_json_comma(c->r, &c->style) : um_expr_nothing(c->r);
        e = um_expr_repeat(c->r, um_expr_join3(c->r, comma, item, e), i < l->min, 1);
    }
    if (!s && !reaches)
        return um_schema_never(c, um_conj_at(j), "the schema allows fewer than %lld items", (long long)l->min);
    *out = bracketed(c, e);
    return s;
}

/* ---- Arrays without duplicates ----------------------------------------------------------------------------------- */

typedef struct distinct {
    um_schema *c;
    const json_t *values;
    const array_limits *limits;
    int32_t rule[1 << DISTINCT_MAX]; /* by the set of the values that are left; -1: not made yet */
} distinct;

/* Makes the rule of the items that may follow when the values of the set `left` are left. */
static int32_t distinct_rest(distinct *d, unsigned left) {
    um_rules *r = d->c->r;
    const size_t n = json_array_size(d->values);
    int64_t used = (int64_t)n;
    um_exprs list = {0};
    if (d->rule[left] >= 0) return d->rule[left];
    for (size_t i = 0; i < n; i++) used -= left >> i & 1;
    char name[48];
    snprintf(name, sizeof name, "distinct items %x (rule %d)", left, r->n);
    const int32_t rule = d->rule[left] = um_rule_add(r, um_str_of(name));
    if (used >= d->limits->min) um_exprs_push(&list, um_expr_nothing(r));
    for (size_t i = 0; i < n && (d->limits->max < 0 || used < d->limits->max); i++) {
        um_buf b = {0};
        if (!(left >> i & 1)) continue;
        um_json_put_exact(json_array_get(d->values, i), &b);
        const um_expr *comma = used ? um_json_comma(r, &d->c->style) : um_expr_nothing(r);
        const um_expr *item = um_expr_text(r, (um_str){b.data, b.len});
        um_exprs_push(&list, um_expr_join3(r, comma, item, um_expr_call(r, distinct_rest(d, left & ~(1u << i)))));
        um_buf_free(&b);
    }
    um_rule_set(r, rule, um_exprs_either(r, &list));
    return rule;
}

/* Removes values that are equal as numbers. */
static void keep_distinct(json_t *values) {
    for (size_t i = json_array_size(values); i-- > 0;)
        for (size_t k = 0; k < i; k++) {
            const json_t *a = json_array_get(values, i), *b = json_array_get(values, k);
            const bool numbers = json_is_number(a) && json_is_number(b);
            if (json_equal(a, b) || (numbers && json_number_value(a) == json_number_value(b))) {
                json_array_remove(values, i);
                break;
            }
        }
}

static um_status unique_items(um_schema *c, const um_conj *j, const array_limits *l, const um_expr **out) {
    um_conj item = {0};
    json_t *values = NULL;
    unsigned types = 0;
    um_status s = item_schemas(c, j, -1, &item);
    if (!s) s = um_conj_expand(c, &item);
    if (!s) s = um_schema_types(c, &item, &types);
    if (!s) s = um_schema_enum(c, &item, &values);
    for (size_t i = json_array_size(values); i-- > 0;)
        if (!(um_json_type_bits(json_array_get(values, i)) & types)) json_array_remove(values, i);
    if (values) keep_distinct(values);
    const size_t n = json_array_size(values);
    const bool plain = n > 0 && n <= DISTINCT_MAX && !um_conj_has(&item, "anyOf") && !um_conj_has(&item, "oneOf") &&
                       !um_conj_is_restricted(&item);
    if (!s && (!plain || prefix_length(j) > 0))
        s = um_schema_fail(c, um_conj_at(j), UM_EUNSUPPORTED,
                           "\"uniqueItems\" is supported only for items with an enum of up to %d values", DISTINCT_MAX);
    if (!s && (int64_t)n < l->min)
        s = um_schema_never(c, um_conj_at(j), "there are fewer than %lld different items", (long long)l->min);
    if (!s) {
        distinct d = {.c = c, .values = values, .limits = l};
        memset(d.rule, -1, sizeof d.rule);
        *out = bracketed(c, um_expr_call(c->r, distinct_rest(&d, (1u << n) - 1)));
    }
    json_decref(values);
    return s;
}

um_status um_schema_array(um_schema *c, const um_conj *j, const um_expr **out) {
    array_limits l;
    um_status s = read_limits(c, j, &l);
    const int64_t n = prefix_length(j);
    if (s) return s;
    if (n > PREFIX_MAX)
        return um_schema_fail(c, um_conj_at(j), UM_ELIMIT, "\"prefixItems\" may have up to %d schemas", PREFIX_MAX);
    if (l.unique && l.max != 0 && l.max != 1) return unique_items(c, j, &l, out);
    if (n == 0 && l.min == 0 && l.max < 0 && !um_conj_has(j, "items") && !um_conj_has(j, "additionalItems") &&
        !um_conj_has(j, "unevaluatedItems"))
        return *out = um_json_any_array(c->r, &c->style), UM_OK;
    return with_prefix(c, j, &l, n, out);
}
