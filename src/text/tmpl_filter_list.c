/* Filters for lists and dicts. Filters that return a generator in Jinja return a list here. The output of a
 * template that prints a generator is not imitated. */
#include "text/template.h"

#define FILTER(name) static um_val name(um_render *r, um_val in, const um_val *a, const um_arg_values *args)
#define UNUSED       (void)r, (void)in, (void)a, (void)args
#define GIVEN(v)     ((v).kind != UM_V_MISSING && (v).kind != UM_V_NONE)

static um_val new_list(um_render *r, size_t cap) { return um_val_list(r, UM_V_LIST, cap); }
static um_val attr_or_self(um_render *r, um_val v, um_val attribute) {
    return GIVEN(attribute) ? um_attr_path(r, v, attribute) : v;
}

static um_val list_of(um_render *r, const um_list *l) {
    um_val out = new_list(r, l->n);
    for (size_t i = 0; i < l->n; i++) um_list_push(r, out.list, l->v[i]);
    return out;
}

/* ---- Elements ---------------------------------------------------------------------------------------------------- */

FILTER(f_list) {
    UNUSED;
    return list_of(r, um_elements(r, in));
}

FILTER(f_first) {
    UNUSED;
    const um_list *l = um_elements(r, in);
    return l->n ? l->v[0] : um_val_undef(UM_STR("the first item of nothing"));
}

FILTER(f_last) {
    UNUSED;
    const um_list *l = um_elements(r, in);
    return l->n ? l->v[l->n - 1] : um_val_undef(UM_STR("the last item of nothing"));
}

FILTER(f_join) {
    UNUSED;
    const um_list *l = um_elements(r, in);
    um_str sep = GIVEN(a[0]) ? um_text(r, a[0]) : UM_STR("");
    um_sb out = {.r = r};
    for (size_t i = 0; i < l->n; i++) {
        if (i) um_sb_add(&out, sep);
        um_sb_add(&out, um_text(r, attr_or_self(r, l->v[i], a[1])));
    }
    return um_val_str(um_sb_str(&out));
}

FILTER(f_items) {
    UNUSED;
    um_val out = new_list(r, 0);
    if (in.kind == UM_V_UNDEF) return out;
    if (in.kind != UM_V_DICT) um_render_fail(r, "items: %s is no dict", um_kind_name(in.kind));
    for (size_t i = 0; i < in.dict->n; i++) um_list_push(r, out.list, um_val_pair(r, in.dict->key[i], in.dict->val[i]));
    return out;
}

FILTER(f_reverse) {
    UNUSED;
    const um_list *l = um_elements(r, in);
    um_val out = new_list(r, l->n);
    um_sb text = {.r = r};
    for (size_t i = l->n; i-- > 0;) {
        if (in.kind == UM_V_STR) um_sb_add(&text, l->v[i].s);
        else um_list_push(r, out.list, l->v[i]);
    }
    return in.kind == UM_V_STR ? um_val_str(um_sb_str(&text)) : out;
}

FILTER(f_attr) {
    UNUSED;
    return um_attr(r, in, um_as_str(r, a[0], "attr: name"));
}

/* ---- Order ------------------------------------------------------------------------------------------------------- */

static um_val folded(um_render *r, um_val v, bool case_sensitive) {
    return v.kind == UM_V_STR && !case_sensitive ? um_val_str(um_str_case(r, v.s, 'l')) : v;
}

static um_val keys_of(um_render *r, const um_list *l, um_val attribute, bool case_sensitive) {
    um_val keys = new_list(r, l->n);
    for (size_t i = 0; i < l->n; i++)
        um_list_push(r, keys.list, folded(r, attr_or_self(r, l->v[i], attribute), case_sensitive));
    return keys;
}

static um_val sorted(um_render *r, const um_list *l, const um_list *keys, bool reverse) {
    size_t *at = (size_t *)um_render_alloc(r, (l->n + 1) * sizeof *at);
    for (size_t i = 0; i < l->n; i++) at[i] = i;
    um_sort(r, keys->v, at, l->n, reverse);
    um_val out = new_list(r, l->n);
    for (size_t i = 0; i < l->n; i++) um_list_push(r, out.list, l->v[at[i]]);
    return out;
}

FILTER(f_sort) {
    UNUSED;
    const um_list *l = um_elements(r, in);
    return sorted(r, l, keys_of(r, l, a[2], um_truth(a[1])).list, um_truth(a[0]));
}

FILTER(f_dictsort) {
    UNUSED;
    um_str by = GIVEN(a[1]) ? um_as_str(r, a[1], "dictsort: by") : UM_STR("key");
    bool value = um_str_eq(by, UM_STR("value"));
    if (!value && !um_str_eq(by, UM_STR("key"))) um_render_fail(r, "dictsort: by must be 'key' or 'value'");
    um_val pairs = f_items(r, in, a, args);
    um_list *keys = keys_of(r, pairs.list, um_val_int(value), um_truth(a[0])).list;
    return sorted(r, pairs.list, keys, um_truth(a[2]));
}

/* Returns the smallest (sign -1) or largest (sign 1) element, the first of several equal ones. */
static um_val extreme(um_render *r, um_val in, const um_val *a, int sign) {
    const um_list *l = um_elements(r, in);
    if (l->n == 0) return um_val_undef(UM_STR("the extreme of nothing"));
    um_list *keys = keys_of(r, l, a[1], um_truth(a[0])).list;
    size_t best = 0;
    for (size_t i = 1; i < l->n; i++)
        if (um_order(r, keys->v[i], keys->v[best]) * sign > 0) best = i;
    return l->v[best];
}

FILTER(f_min) {
    UNUSED;
    return extreme(r, in, a, -1);
}
FILTER(f_max) {
    UNUSED;
    return extreme(r, in, a, 1);
}

FILTER(f_unique) {
    UNUSED;
    const um_list *l = um_elements(r, in);
    um_list *keys = keys_of(r, l, a[1], um_truth(a[0])).list;
    um_val out = new_list(r, 0), seen = um_dict_new(r);
    for (size_t i = 0; i < l->n; i++) {
        if (um_dict_get(r, seen.dict, keys->v[i])) continue;
        um_dict_set(r, seen.dict, keys->v[i], um_val_of(UM_V_NONE));
        um_list_push(r, out.list, l->v[i]);
    }
    return out;
}

FILTER(f_groupby) {
    UNUSED;
    const um_list *l = um_elements(r, in);
    um_list *keys = keys_of(r, l, a[0], um_truth(a[2])).list;
    if (GIVEN(a[1]))
        for (size_t i = 0; i < keys->n; i++)
            if (keys->v[i].kind == UM_V_UNDEF) keys->v[i] = a[1];
    um_list *items = sorted(r, l, keys, false).list, *order = sorted(r, keys, keys, false).list;
    um_val out = new_list(r, 0);
    for (size_t i = 0; i < items->n; i++) {
        bool new_group = i == 0 || !um_equal(r, order->v[i - 1], order->v[i]);
        um_val name = GIVEN(a[1]) ? order->v[i] : um_attr_path(r, items->v[i], a[0]);
        if (new_group) um_list_push(r, out.list, um_val_pair(r, name, new_list(r, 0)));
        um_list_push(r, out.list->v[out.list->n - 1].list->v[1].list, items->v[i]);
    }
    return out;
}

FILTER(f_sum) {
    UNUSED;
    const um_list *l = um_elements(r, in);
    um_val total = a[1].kind == UM_V_MISSING ? um_val_int(0) : a[1];
    for (size_t i = 0; i < l->n; i++) total = um_binary(r, UM_OP_ADD, total, attr_or_self(r, l->v[i], a[0]));
    return total;
}

/* ---- Groups of equal size ---------------------------------------------------------------------------------------- */

static int64_t group_size(um_render *r, um_val v, const char *what) {
    int64_t n = um_as_int(r, v, what);
    if (n < 1 || n > UM_TMPL_RANGE_MAX) um_render_fail(r, "%s must be 1 to %d", what, UM_TMPL_RANGE_MAX);
    return n;
}

FILTER(f_batch) {
    UNUSED;
    const um_list *l = um_elements(r, in);
    size_t n = (size_t)group_size(r, a[0], "batch: the size");
    um_val out = new_list(r, 0), row = new_list(r, 0);
    for (size_t i = 0; i < l->n; i++) {
        if (i % n == 0) {
            row = new_list(r, 0);
            um_list_push(r, out.list, row);
        }
        um_list_push(r, row.list, l->v[i]);
    }
    while (GIVEN(a[1]) && row.list->n && row.list->n < n) um_list_push(r, row.list, a[1]);
    return out;
}

FILTER(f_slice) {
    UNUSED;
    const um_list *l = um_elements(r, in);
    size_t n = (size_t)group_size(r, a[0], "slice: the number"), each = l->n / n, longer = l->n % n, at = 0;
    um_val out = new_list(r, n);
    for (size_t k = 0; k < n; k++) {
        um_val row = new_list(r, 0);
        for (size_t i = 0; i < each + (k < longer); i++) um_list_push(r, row.list, l->v[at++]);
        if (GIVEN(a[1]) && longer && k >= longer) um_list_push(r, row.list, a[1]);
        um_list_push(r, out.list, row);
    }
    return out;
}

/* ---- Filters that apply a filter or a test ----------------------------------------------------------------------- */

/* Returns the arguments without the first `skip` positional ones. */
static um_arg_values args_behind(const um_arg_values *args, size_t skip) {
    um_arg_values rest = *args;
    skip = UM_MIN(skip, rest.n);
    if (skip == 0) return rest; /* pos may be NULL */
    rest.pos += skip;
    rest.n -= skip;
    return rest;
}

static um_val named(const um_arg_values *args, const char *name) {
    for (size_t i = 0; i < args->n_kw; i++)
        if (um_str_eq(args->kw_name[i], um_str_of(name))) return args->kw[i];
    return um_val_of(UM_V_MISSING);
}

static um_val map_attribute(um_render *r, const um_list *l, const um_arg_values *args) {
    um_val out = new_list(r, l->n), attribute = named(args, "attribute"), def = named(args, "default");
    for (size_t i = 0; i < l->n; i++) {
        um_val v = um_attr_path(r, l->v[i], attribute);
        um_list_push(r, out.list, v.kind == UM_V_UNDEF && def.kind != UM_V_MISSING ? def : v);
    }
    return out;
}

FILTER(f_map) {
    UNUSED;
    const um_list *l = um_elements(r, in);
    if (args->n == 0) {
        if (named(args, "attribute").kind == UM_V_MISSING) um_render_fail(r, "map: a filter or attribute= is expected");
        return map_attribute(r, l, args);
    }
    um_str name = um_as_str(r, args->pos[0], "map: the filter");
    int filter = um_filter_find(name);
    if (filter < 0) um_render_fail(r, "map: there is no filter '%.*s'", (int)UM_MIN(name.n, 40), name.p);
    um_arg_values rest = args_behind(args, 1);
    um_val out = new_list(r, l->n);
    if (++r->depth > UM_TMPL_DEPTH_MAX) um_render_fail(r, "evaluation is nested deeper than %d", UM_TMPL_DEPTH_MAX);
    for (size_t i = 0; i < l->n; i++) um_list_push(r, out.list, um_filter_apply(r, filter, l->v[i], &rest));
    r->depth--;
    return out;
}

/* Implements select, reject (with_attr false), selectattr, rejectattr: keeps the elements whose test gives `want`. */
static um_val choose(um_render *r, um_val in, const um_arg_values *args, bool with_attr, bool want) {
    const um_list *l = um_elements(r, in);
    if (with_attr && args->n == 0) um_render_fail(r, "the name of an attribute is expected");
    um_arg_values rest = args_behind(args, with_attr ? 1 : 0);
    int test = -1;
    if (rest.n) {
        um_str name = um_as_str(r, rest.pos[0], "the test");
        test = um_test_find(name);
        if (test < 0) um_render_fail(r, "there is no test '%.*s'", (int)UM_MIN(name.n, 40), name.p);
        rest = args_behind(&rest, 1);
    }
    um_val out = new_list(r, 0);
    for (size_t i = 0; i < l->n; i++) {
        um_val v = with_attr ? um_attr_path(r, l->v[i], args->pos[0]) : l->v[i];
        bool yes = test < 0 ? um_truth(v) : um_test_apply(r, test, v, &rest);
        if (yes == want) um_list_push(r, out.list, l->v[i]);
    }
    return out;
}

FILTER(f_select) {
    UNUSED;
    return choose(r, in, args, false, true);
}
FILTER(f_reject) {
    UNUSED;
    return choose(r, in, args, false, false);
}
FILTER(f_selectattr) {
    UNUSED;
    return choose(r, in, args, true, true);
}
FILTER(f_rejectattr) {
    UNUSED;
    return choose(r, in, args, true, false);
}

const um_filter um_filters_list[] = {
    {"list", "", f_list},
    {"first", "", f_first},
    {"last", "", f_last},
    {"join", "d attribute", f_join},
    {"items", "", f_items},
    {"reverse", "", f_reverse},
    {"attr", "name", f_attr},
    {"sort", "reverse case_sensitive attribute", f_sort},
    {"dictsort", "case_sensitive by reverse", f_dictsort},
    {"min", "case_sensitive attribute", f_min},
    {"max", "case_sensitive attribute", f_max},
    {"unique", "case_sensitive attribute", f_unique},
    {"groupby", "attribute default case_sensitive", f_groupby},
    {"sum", "attribute start", f_sum},
    {"batch", "linecount fill_with", f_batch},
    {"slice", "slices fill_with", f_slice},
    {"map", NULL, f_map},
    {"select", NULL, f_select},
    {"reject", NULL, f_reject},
    {"selectattr", NULL, f_selectattr},
    {"rejectattr", NULL, f_rejectattr},
};
const size_t um_filters_list_n = UM_LEN(um_filters_list);
