/* The tests of templates: `x is name`. */
#include "text/template.h"
#include "text/tok.h"

#define TEST(name) static bool name(um_render *r, um_val v, const um_val *a)
#define UNUSED     (void)r, (void)v, (void)a

TEST(t_defined) {
    UNUSED;
    return v.kind != UM_V_UNDEF;
}
TEST(t_undefined) {
    UNUSED;
    return v.kind == UM_V_UNDEF;
}
TEST(t_none) {
    UNUSED;
    return v.kind == UM_V_NONE;
}
TEST(t_boolean) {
    UNUSED;
    return v.kind == UM_V_BOOL;
}
TEST(t_true) {
    UNUSED;
    return v.kind == UM_V_BOOL && v.b;
}
TEST(t_false) {
    UNUSED;
    return v.kind == UM_V_BOOL && !v.b;
}
TEST(t_integer) {
    UNUSED;
    return v.kind == UM_V_INT || v.kind == UM_V_BIGINT;
}
TEST(t_float) {
    UNUSED;
    return v.kind == UM_V_FLOAT;
}
TEST(t_number) {
    UNUSED;
    return um_is_numeric(v) || v.kind == UM_V_BIGINT;
}
TEST(t_string) {
    UNUSED;
    return v.kind == UM_V_STR;
}
TEST(t_mapping) {
    UNUSED;
    return v.kind == UM_V_DICT;
}

TEST(t_sequence) {
    UNUSED;
    return v.kind == UM_V_UNDEF || v.kind == UM_V_STR || v.kind == UM_V_LIST || v.kind == UM_V_TUPLE ||
           v.kind == UM_V_DICT || v.kind == UM_V_RANGE;
}

TEST(t_callable) {
    UNUSED;
    return v.kind == UM_V_MACRO || v.kind == UM_V_GLOBAL || v.kind == UM_V_METHOD || v.kind == UM_V_LOOP ||
           v.kind == UM_V_JOINER;
}

static int64_t remainder_of(um_render *r, um_val v, int64_t by) {
    int64_t n = um_as_int(r, v, "the number");
    if (by == 0) um_render_fail(r, "division by zero");
    return by == -1 ? 0 : n % by;
}

TEST(t_odd) {
    UNUSED;
    return remainder_of(r, v, 2) != 0;
}
TEST(t_even) {
    UNUSED;
    return remainder_of(r, v, 2) == 0;
}
TEST(t_divisibleby) {
    UNUSED;
    return remainder_of(r, v, um_as_int(r, a[0], "divisibleby: the divisor")) == 0;
}

/* Returns true if the text has cased letters and all are lower case (how 'l') or upper case ('u'). */
static bool has_case(um_render *r, um_val v, char how) {
    um_str s = um_text(r, v), same = um_str_case(r, s, how), other = um_str_case(r, s, how == 'l' ? 'u' : 'l');
    return um_str_eq(s, same) && !um_str_eq(same, other);
}

TEST(t_lower) {
    UNUSED;
    return has_case(r, v, 'l');
}
TEST(t_upper) {
    UNUSED;
    return has_case(r, v, 'u');
}
TEST(t_sameas) {
    UNUSED;
    return um_same(v, a[0]);
}
TEST(t_in) {
    UNUSED;
    return um_contains(r, a[0], v);
}
TEST(t_eq) {
    UNUSED;
    return um_compare(r, UM_OP_EQ, v, a[0]);
}
TEST(t_ne) {
    UNUSED;
    return um_compare(r, UM_OP_NE, v, a[0]);
}
TEST(t_lt) {
    UNUSED;
    return um_compare(r, UM_OP_LT, v, a[0]);
}
TEST(t_le) {
    UNUSED;
    return um_compare(r, UM_OP_LE, v, a[0]);
}
TEST(t_gt) {
    UNUSED;
    return um_compare(r, UM_OP_GT, v, a[0]);
}
TEST(t_ge) {
    UNUSED;
    return um_compare(r, UM_OP_GE, v, a[0]);
}

static const struct {
    const char *name;
    int n_args;
    bool (*fn)(um_render *, um_val, const um_val *);
} tests[] = {
    {"defined", 0, t_defined},
    {"undefined", 0, t_undefined},
    {"none", 0, t_none},
    {"boolean", 0, t_boolean},
    {"true", 0, t_true},
    {"false", 0, t_false},
    {"integer", 0, t_integer},
    {"float", 0, t_float},
    {"number", 0, t_number},
    {"string", 0, t_string},
    {"mapping", 0, t_mapping},
    {"sequence", 0, t_sequence},
    {"iterable", 0, t_sequence},
    {"callable", 0, t_callable},
    {"odd", 0, t_odd},
    {"even", 0, t_even},
    {"lower", 0, t_lower},
    {"upper", 0, t_upper},
    {"in", 1, t_in},
    {"divisibleby", 1, t_divisibleby},
    {"sameas", 1, t_sameas},
    {"eq", 1, t_eq},
    {"equalto", 1, t_eq},
    {"==", 1, t_eq},
    {"ne", 1, t_ne},
    {"!=", 1, t_ne},
    {"lt", 1, t_lt},
    {"lessthan", 1, t_lt},
    {"<", 1, t_lt},
    {"le", 1, t_le},
    {"<=", 1, t_le},
    {"gt", 1, t_gt},
    {"greaterthan", 1, t_gt},
    {">", 1, t_gt},
    {"ge", 1, t_ge},
    {">=", 1, t_ge},
};

int um_test_find(um_str name) {
    for (size_t i = 0; i < UM_LEN(tests); i++)
        if (um_str_eq(name, um_str_of(tests[i].name))) return (int)i;
    return -1;
}

bool um_test_apply(um_render *r, int index, um_val in, const um_arg_values *args) {
    um_render_step(r);
    if ((int)args->n != tests[index].n_args || args->n_kw)
        um_render_fail(r, "test '%s' takes %d arguments, found %zu", tests[index].name, tests[index].n_args,
                       args->n + args->n_kw);
    return tests[index].fn(r, in, args->pos);
}
