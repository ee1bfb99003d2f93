/* Evaluates the expressions of a template. */
#include <math.h>

#include "text/template.h"
#include "text/tok.h"

/* ---- Names ------------------------------------------------------------------------------------------------------- */

static um_val top_level(um_render *r, int sym) {
    um_val *v = &r->global[sym];
    if (v->kind != UM_V_MISSING) return *v;
    um_str name = r->t->symbols.name[sym];
    const json_t *given = json_object_getn(r->vars, name.p, name.n);
    int builtin = given ? -1 : um_global_find(name);
    if (given) *v = um_val_from_json(r, given, 0);
    else if (builtin >= 0) {
        *v = um_val_int(builtin);
        v->kind = UM_V_GLOBAL;
    } else return um_val_undef(name);
    return *v;
}

static um_val lookup(um_render *r, int sym) {
    for (const um_scope *f = r->frame; f; f = f->parent)
        for (int i = f->n - 1; i >= 0; i--)
            if (f->var[i].sym == sym) return f->var[i].v;
    return top_level(r, sym);
}

/* ---- Attributes and items ---------------------------------------------------------------------------------------- */

static um_val item_at(const um_list *l, int64_t i, um_str name) {
    if (i < 0) i += (int64_t)l->n;
    return i >= 0 && i < (int64_t)l->n ? l->v[i] : um_val_undef(name);
}

static um_val loop_attr(const um_loop *l, um_str name) {
    int64_t at = (int64_t)l->at, n = (int64_t)l->n;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"index", at + 1},         {"index0", at},      {"length", n},           {"revindex", n - at},
                   {"revindex0", n - at - 1}, {"depth", l->depth}, {"depth0", l->depth - 1}};
    for (size_t i = 0; i < UM_LEN(numbers); i++)
        if (um_str_eq(name, um_str_of(numbers[i].name))) return um_val_int(numbers[i].value);
    if (um_str_eq(name, UM_STR("first"))) return um_val_bool(at == 0);
    if (um_str_eq(name, UM_STR("last"))) return um_val_bool(at == n - 1);
    if (um_str_eq(name, UM_STR("previtem"))) return at > 0 ? um_loop_item(l, l->at - 1) : um_val_undef(name);
    if (um_str_eq(name, UM_STR("nextitem"))) return at + 1 < n ? um_loop_item(l, l->at + 1) : um_val_undef(name);
    return um_val_undef(name);
}

static um_val bound(um_render *r, um_val self, const um_method *m) {
    um_val v = um_val_of(UM_V_METHOD);
    v.bound = (um_bound *)um_render_alloc(r, sizeof *v.bound);
    *v.bound = (um_bound){self, m};
    return v;
}

um_val um_attr(um_render *r, um_val obj, um_str name) {
    if (obj.kind == UM_V_UNDEF) um_render_undefined(r, obj);
    if (name.n && name.p[0] == '_') return um_val_undef(name); /* Python's internal attributes are not reachable */
    const um_method *m = um_method_find(obj.kind, name);
    if (m) return bound(r, obj, m);
    if (obj.kind == UM_V_LOOP) return loop_attr(obj.loop, name);
    if (obj.kind == UM_V_CYCLER && um_str_eq(name, UM_STR("current"))) return obj.list->v[obj.list->at];
    if (obj.kind == UM_V_DICT || obj.kind == UM_V_NAMESPACE) {
        um_val *v = um_dict_get_str(r, obj.dict, name);
        if (v) return *v;
    }
    return um_val_undef(name);
}

um_val um_item(um_render *r, um_val obj, um_val key) {
    if (obj.kind == UM_V_UNDEF) um_render_undefined(r, obj);
    if (key.kind == UM_V_UNDEF) return key;
    bool index = key.kind == UM_V_INT || key.kind == UM_V_BOOL;
    int64_t i = key.kind == UM_V_BOOL ? key.b : key.i;
    if (obj.kind == UM_V_DICT && key.kind != UM_V_LIST && key.kind != UM_V_DICT) {
        um_val *v = um_dict_get(r, obj.dict, key);
        if (v) return *v;
    }
    if (index && (obj.kind == UM_V_LIST || obj.kind == UM_V_TUPLE)) return item_at(obj.list, i, UM_STR("list item"));
    if (index && obj.kind == UM_V_RANGE) return item_at(um_elements(r, obj), i, UM_STR("range item"));
    if (index && obj.kind == UM_V_STR) {
        um_render_work(r, obj);
        int64_t n = (int64_t)um_cp_count(obj.s);
        if (i < 0) i += n;
        if (i < 0 || i >= n) return um_val_undef(UM_STR("character"));
        return um_val_str(um_cp_slice(obj.s, (size_t)i, (size_t)i + 1));
    }
    return key.kind == UM_V_STR ? um_attr(r, obj, key.s) : um_val_undef(UM_STR("item"));
}

um_val um_attr_path(um_render *r, um_val obj, um_val path) {
    if (path.kind == UM_V_INT) return um_item(r, obj, path);
    um_str rest = um_as_str(r, path, "an attribute");
    for (;;) {
        const char *dot = rest.n ? (const char *)memchr(rest.p, '.', rest.n) : NULL;
        um_str part = {rest.p, dot ? (size_t)(dot - rest.p) : rest.n};
        bool number = part.n > 0 && part.n < 10;
        int64_t index = 0;
        for (size_t i = 0; i < part.n && number; i++) {
            number = part.p[i] >= '0' && part.p[i] <= '9';
            index = index * 10 + (part.p[i] - '0');
        }
        obj = um_item(r, obj, number ? um_val_int(index) : um_val_str(part));
        if (!dot) return obj;
        rest = (um_str){dot + 1, rest.n - part.n - 1};
    }
}

/* ---- Slices ------------------------------------------------------------------------------------------------------ */

static int64_t slice_bound(um_render *r, um_val v, int64_t n, int64_t step, bool is_start) {
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    if (v.kind == UM_V_NONE) return is_start == (step > 0) ? low : high;
    int64_t i = um_as_int(r, v, "a slice bound");
    if (i < 0) i = i < -n ? low : i + n;
    return i < low ? low : (i > high ? high : i);
}

static um_val slice(um_render *r, um_val obj, um_val start, um_val stop, um_val by) {
    if (obj.kind == UM_V_UNDEF) um_render_undefined(r, obj);
    if (obj.kind != UM_V_STR && obj.kind != UM_V_LIST && obj.kind != UM_V_TUPLE && obj.kind != UM_V_RANGE)
        um_render_fail(r, "%s can't be sliced", um_kind_name(obj.kind));
    um_render_work(r, obj);
    int64_t n = (int64_t)um_length(r, obj), step = by.kind == UM_V_NONE ? 1 : um_as_int(r, by, "a slice step");
    if (step == 0) um_render_fail(r, "a slice step can't be 0");
    if (step > n + 1) step = n + 1;
    if (step < -n - 1) step = -n - 1;
    int64_t from = slice_bound(r, start, n, step, true), to = slice_bound(r, stop, n, step, false);
    if (obj.kind == UM_V_STR && step == 1)
        return um_val_str(um_cp_slice(obj.s, (size_t)from, (size_t)UM_MAX(from, to)));
    const um_list *l = um_elements(r, obj);
    um_val out = um_val_list(r, obj.kind == UM_V_TUPLE ? UM_V_TUPLE : UM_V_LIST, 0);
    um_sb text = {.r = r};
    for (int64_t i = from; step > 0 ? i < to : i > to; i += step) {
        if (obj.kind == UM_V_STR) um_sb_add(&text, l->v[i].s);
        else um_list_push(r, out.list, l->v[i]);
    }
    return obj.kind == UM_V_STR ? um_val_str(um_sb_str(&text)) : out;
}

/* ---- Arithmetic -------------------------------------------------------------------------------------------------- */

static _Noreturn void bad_operands(um_render *r, const char *op, um_val a, um_val b) {
    if (a.kind == UM_V_UNDEF) um_render_undefined(r, a);
    if (b.kind == UM_V_UNDEF) um_render_undefined(r, b);
    if (a.kind == UM_V_BIGINT || b.kind == UM_V_BIGINT)
        um_render_fail(r, "an integer beyond 64 bits can only be printed");
    um_render_fail(r, "%s %s %s is not possible", um_kind_name(a.kind), op, um_kind_name(b.kind));
}

static um_val overflow(um_render *r) { um_render_fail(r, "an integer does not fit into 64 bits"); }

static int64_t int_power(um_render *r, int64_t base, int64_t exp) {
    int64_t out = 1;
    while (exp > 0) {
        if ((exp & 1) && __builtin_mul_overflow(out, base, &out)) overflow(r);
        exp >>= 1;
        if (exp && __builtin_mul_overflow(base, base, &base)) overflow(r);
    }
    return out;
}

static um_val int_divide(um_render *r, int op, int64_t a, int64_t b) {
    if (b == 0) um_render_fail(r, "division by zero");
    if (op == UM_OP_DIV) return um_val_float((double)a / (double)b);
    if (b == -1) { /* INT64_MIN / -1 is the only quotient that does not fit into 64 bits */
        if (op == UM_OP_MOD) return um_val_int(0);
        return a == INT64_MIN ? overflow(r) : um_val_int(-a);
    }
    int64_t q = a / b, m = a % b;
    if (m && (m < 0) != (b < 0)) { /* Python rounds down; the remainder has the sign of the divisor */
        q--;
        m += b;
    }
    return um_val_int(op == UM_OP_MOD ? m : q);
}

static um_val int_binary(um_render *r, int op, int64_t a, int64_t b) {
    int64_t v = 0;
    bool over = false;
    switch (op) {
    case UM_OP_ADD: over = __builtin_add_overflow(a, b, &v); break;
    case UM_OP_SUB: over = __builtin_sub_overflow(a, b, &v); break;
    case UM_OP_MUL: over = __builtin_mul_overflow(a, b, &v); break;
    case UM_OP_POW:
        if (b < 0 && a == 0) um_render_fail(r, "division by zero");
        if (b < 0) return um_val_float(pow((double)a, (double)b));
        v = int_power(r, a, b);
        break;
    default: return int_divide(r, op, a, b);
    }
    return over ? overflow(r) : um_val_int(v);
}

static um_val float_binary(um_render *r, int op, double a, double b) {
    if (b == 0 && (op == UM_OP_DIV || op == UM_OP_FLOOR || op == UM_OP_MOD)) um_render_fail(r, "division by zero");
    double m;
    switch (op) {
    case UM_OP_ADD: return um_val_float(a + b);
    case UM_OP_SUB: return um_val_float(a - b);
    case UM_OP_MUL: return um_val_float(a * b);
    case UM_OP_DIV: return um_val_float(a / b);
    case UM_OP_POW: return um_val_float(pow(a, b));
    default:
        m = fmod(a, b);
        if (m != 0 && (m < 0) != (b < 0)) m += b;
        if (op == UM_OP_MOD) return um_val_float(m == 0 ? copysign(0, b) : m);
        return um_val_float(round((a - m) / b)); /* (a - m) / b is an integer except for rounding errors */
    }
}

static um_val concat(um_render *r, um_str a, um_str b) {
    um_sb s = {.r = r};
    um_sb_add(&s, a);
    um_sb_add(&s, b);
    return um_val_str(um_sb_str(&s));
}

static um_val join_lists(um_render *r, um_val a, um_val b) {
    um_val out = um_val_list(r, a.kind, a.list->n + b.list->n);
    for (size_t i = 0; i < a.list->n; i++) um_list_push(r, out.list, a.list->v[i]);
    for (size_t i = 0; i < b.list->n; i++) um_list_push(r, out.list, b.list->v[i]);
    return out;
}

static um_val repeat(um_render *r, um_val what, um_val times) {
    int64_t n = um_as_int(r, times, "a repetition");
    um_val out = um_val_list(r, what.kind == UM_V_STR ? UM_V_LIST : what.kind, 0);
    um_sb s = {.r = r};
    for (int64_t i = 0; i < n; i++) {
        um_render_step(r);
        if (what.kind == UM_V_STR) um_sb_add(&s, what.s);
        else
            for (size_t k = 0; k < what.list->n; k++) um_list_push(r, out.list, what.list->v[k]);
    }
    return what.kind == UM_V_STR ? um_val_str(um_sb_str(&s)) : out;
}

static bool is_sequence(um_val v) { return v.kind == UM_V_STR || v.kind == UM_V_LIST || v.kind == UM_V_TUPLE; }

um_val um_binary(um_render *r, int op, um_val a, um_val b) {
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
    if (op == UM_OP_JOIN) return concat(r, um_text(r, a), um_text(r, b));
    if (um_is_numeric(a) && um_is_numeric(b)) {
        if (a.kind == UM_V_FLOAT || b.kind == UM_V_FLOAT) return float_binary(r, op, um_as_double(a), um_as_double(b));
        return int_binary(r, op, um_as_int(r, a, "it"), um_as_int(r, b, "it"));
    }
    if (op == UM_OP_ADD && a.kind == b.kind && is_sequence(a))
        return a.kind == UM_V_STR ? concat(r, a.s, b.s) : join_lists(r, a, b);
    if (op == UM_OP_MUL && is_sequence(a) && b.kind == UM_V_INT) return repeat(r, a, b);
    if (op == UM_OP_MUL && is_sequence(b) && a.kind == UM_V_INT) return repeat(r, b, a);
    if (op == UM_OP_MOD && a.kind == UM_V_STR) {
        um_arg_values args = {.pos = b.kind == UM_V_TUPLE ? b.list->v : &b, .n = b.kind == UM_V_TUPLE ? b.list->n : 1};
        return um_val_str(um_str_printf(r, a.s, &args));
    }
    bad_operands(r, names[op], a, b);
}

/* ---- Comparison -------------------------------------------------------------------------------------------------- */

bool um_contains(um_render *r, um_val in, um_val x) {
    switch (in.kind) {
    case UM_V_UNDEF: return false;
    case UM_V_STR: {
        um_str s = um_as_str(r, x, "what is looked for in a string");
        um_render_work(r, in);
        return s.n == 0 || memmem(in.s.p, in.s.n, s.p, s.n) != NULL;
    }
    case UM_V_DICT: return um_dict_get(r, in.dict, x) != NULL;
    case UM_V_LIST:
    case UM_V_TUPLE:
    case UM_V_RANGE: {
        const um_list *l = um_elements(r, in);
        for (size_t i = 0; i < l->n; i++)
            if (um_equal(r, l->v[i], x)) return true;
        return false;
    }
    default: um_render_fail(r, "'in' is not possible with %s", um_kind_name(in.kind));
    }
}

bool um_compare(um_render *r, int op, um_val a, um_val b) {
    switch (op) {
    case UM_OP_EQ: return um_equal(r, a, b);
    case UM_OP_NE: return !um_equal(r, a, b);
    case UM_OP_LT: return um_order(r, a, b) < 0;
    case UM_OP_LE: return um_order(r, a, b) <= 0;
    case UM_OP_GT: return um_order(r, a, b) > 0;
    case UM_OP_GE: return um_order(r, a, b) >= 0;
    case UM_OP_IN: return um_contains(r, b, a);
    default: return !um_contains(r, b, a);
    }
}

static bool eval_compare(um_render *r, const um_node *n) {
    um_val left = um_eval(r, n->a);
    for (size_t i = 0; i < n->list.n; i++) {
        um_val right = um_eval(r, n->list.v[i]);
        if (!um_compare(r, n->ops[i], left, right)) return false;
        left = right;
    }
    return true;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

void um_args_bind(um_render *r, const char *what, const um_arg_values *args, const char *params,
                  um_val out[UM_PARAMS_MAX]) {
    size_t n = 0;
    for (size_t i = 0; i < UM_PARAMS_MAX; i++) out[i] = um_val_of(UM_V_MISSING);
    bool used[64] = {false};
    for (const char *p = params; *p; n++) {
        size_t len = strcspn(p, " ");
        if (n < args->n) out[n] = args->pos[n];
        for (size_t k = 0; k < args->n_kw && k < UM_LEN(used); k++)
            if (um_str_eq(args->kw_name[k], (um_str){p, len})) {
                out[n] = args->kw[k];
                used[k] = true;
            }
        p += len + (p[len] == ' ');
    }
    if (args->n > n) um_render_fail(r, "%s takes at most %zu arguments, found %zu", what, n, args->n);
    for (size_t k = 0; k < args->n_kw; k++)
        if (k >= UM_LEN(used) || !used[k])
            um_render_fail(r, "%s has no argument '%.*s'", what, (int)UM_MIN(args->kw_name[k].n, 40),
                           args->kw_name[k].p);
}

static void args_push_named(um_render *r, um_arg_values *out, um_str name, um_val v) {
    um_val *kw = (um_val *)um_render_alloc(r, (out->n_kw + 1) * sizeof *kw);
    um_str *names = (um_str *)um_render_alloc(r, (out->n_kw + 1) * sizeof *names);
    if (out->n_kw) {
        memcpy(kw, out->kw, out->n_kw * sizeof *kw);
        memcpy(names, out->kw_name, out->n_kw * sizeof *names);
    }
    kw[out->n_kw] = v;
    names[out->n_kw++] = name;
    out->kw = kw;
    out->kw_name = names;
}

static um_arg_values eval_args(um_render *r, const um_call_args *a) {
    um_arg_values out = {NULL, 0, NULL, NULL, 0};
    if (!a) return out;
    um_val pos = um_val_list(r, UM_V_LIST, a->pos.n);
    for (size_t i = 0; i < a->pos.n; i++) um_list_push(r, pos.list, um_eval(r, a->pos.v[i]));
    if (a->star) {
        const um_list *more = um_elements(r, um_eval(r, a->star));
        for (size_t i = 0; i < more->n; i++) um_list_push(r, pos.list, more->v[i]);
    }
    out.pos = pos.list->v;
    out.n = pos.list->n;
    for (size_t i = 0; i < a->kw.n; i++) args_push_named(r, &out, a->kw_name[i], um_eval(r, a->kw.v[i]));
    if (!a->starstar) return out;
    um_val more = um_eval(r, a->starstar);
    if (more.kind != UM_V_DICT) um_render_fail(r, "behind ** a dict is expected, found %s", um_kind_name(more.kind));
    for (size_t i = 0; i < more.dict->n; i++)
        args_push_named(r, &out, um_as_str(r, more.dict->key[i], "the name of an argument"), more.dict->val[i]);
    return out;
}

um_val um_call(um_render *r, um_val f, const um_arg_values *args) {
    switch (f.kind) {
    case UM_V_MACRO: return um_call_macro(r, f.macro, args);
    case UM_V_METHOD: return um_method_call(r, f.bound, args);
    case UM_V_GLOBAL: return um_global_call(r, (int)f.i, args);
    case UM_V_LOOP:
        if (args->n != 1 || args->n_kw) um_render_fail(r, "a loop is called with one argument");
        return um_loop_recurse(r, f.loop, args->pos[0]);
    case UM_V_JOINER: {
        um_str sep = f.joiner->used ? f.joiner->sep : UM_STR("");
        f.joiner->used = true;
        return um_val_str(sep);
    }
    case UM_V_UNDEF: um_render_undefined(r, f);
    default: um_render_fail(r, "%s can't be called", um_kind_name(f.kind));
    }
}

static um_val eval_call(um_render *r, const um_node *n) {
    um_val f = um_eval(r, n->a);
    um_arg_values args = eval_args(r, n->args);
    return um_call(r, f, &args);
}

/* ---- Other expressions ------------------------------------------------------------------------------------------- */

static um_val eval_list(um_render *r, const um_node *n, um_kind kind) {
    um_val v = um_val_list(r, kind, n->list.n);
    for (size_t i = 0; i < n->list.n; i++) um_list_push(r, v.list, um_eval(r, n->list.v[i]));
    return v;
}

static um_val eval_dict(um_render *r, const um_node *n) {
    um_val v = um_dict_new(r);
    for (size_t i = 0; i + 1 < n->list.n; i += 2) {
        um_val key = um_eval(r, n->list.v[i]);
        um_dict_set(r, v.dict, key, um_eval(r, n->list.v[i + 1]));
    }
    return v;
}

static um_val eval_sign(um_render *r, const um_node *n) {
    um_val v = um_eval(r, n->a);
    if (v.kind == UM_V_UNDEF) um_render_undefined(r, v);
    if (!um_is_numeric(v)) um_render_fail(r, "%s has no sign", um_kind_name(v.kind));
    if (v.kind == UM_V_FLOAT) return um_val_float(n->kind == UM_E_NEG ? -v.f : v.f);
    return int_binary(r, n->kind == UM_E_NEG ? UM_OP_SUB : UM_OP_ADD, 0, um_as_int(r, v, "it"));
}

static um_val eval_deciding(um_render *r, const um_node *n) {
    um_val v = um_eval(r, n->a);
    return um_truth(v) == (n->kind == UM_E_OR) ? v : um_eval(r, n->b);
}

static um_val eval_cond(um_render *r, const um_node *n) {
    if (um_truth(um_eval(r, n->b))) return um_eval(r, n->a);
    return n->c ? um_eval(r, n->c) : um_val_undef(UM_STR("the missing else of an if"));
}

static um_val eval_slice(um_render *r, const um_node *n) {
    um_val obj = um_eval(r, n->a), part[3];
    for (int i = 0; i < 3; i++) part[i] = um_eval(r, n->list.v[i]);
    return slice(r, obj, part[0], part[1], part[2]);
}

static um_val eval_filter(um_render *r, const um_node *n) {
    um_val in = um_eval(r, n->a);
    um_arg_values args = eval_args(r, n->args);
    return um_filter_apply(r, n->op, in, &args);
}

static um_val eval_test(um_render *r, const um_node *n) {
    um_val in = um_eval(r, n->a);
    um_arg_values args = eval_args(r, n->args);
    return um_val_bool(um_test_apply(r, n->op, in, &args));
}

static um_val eval_binary(um_render *r, const um_node *n) {
    um_val a = um_eval(r, n->a);
    return um_binary(r, n->op, a, um_eval(r, n->b));
}

static um_val eval_item(um_render *r, const um_node *n) {
    um_val a = um_eval(r, n->a);
    return um_item(r, a, um_eval(r, n->b));
}

static um_val eval(um_render *r, const um_node *n) {
    switch (n->kind) {
    case UM_E_CONST: return n->val;
    case UM_E_NAME: return lookup(r, n->sym);
    case UM_E_CAPTURED: return r->captured;
    case UM_E_LIST: return eval_list(r, n, UM_V_LIST);
    case UM_E_TUPLE: return eval_list(r, n, UM_V_TUPLE);
    case UM_E_DICT: return eval_dict(r, n);
    case UM_E_ATTR: return um_attr(r, um_eval(r, n->a), n->s);
    case UM_E_ITEM: return eval_item(r, n);
    case UM_E_SLICE: return eval_slice(r, n);
    case UM_E_CALL: return eval_call(r, n);
    case UM_E_FILTER: return eval_filter(r, n);
    case UM_E_TEST: return eval_test(r, n);
    case UM_E_NEG:
    case UM_E_POS: return eval_sign(r, n);
    case UM_E_NOT: return um_val_bool(!um_truth(um_eval(r, n->a)));
    case UM_E_BINARY: return eval_binary(r, n);
    case UM_E_COMPARE: return um_val_bool(eval_compare(r, n));
    case UM_E_AND:
    case UM_E_OR: return eval_deciding(r, n);
    default: return eval_cond(r, n);
    }
}

um_val um_eval(um_render *r, const um_node *n) {
    um_render_step(r);
    if (++r->depth > UM_TMPL_DEPTH_MAX) um_render_fail(r, "evaluation is nested deeper than %d", UM_TMPL_DEPTH_MAX);
    um_val v = eval(r, n);
    r->depth--;
    return v;
}
