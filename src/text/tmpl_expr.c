/* Parses the expressions of a template. Each level of precedence has its own function. */
#include "text/template.h"

static um_node *parse_or(um_compile *c);
static um_node *parse_unary(um_compile *c, bool with_filters);
static um_node *parse_postfix(um_compile *c, um_node *n);

static um_node *node2(um_compile *c, um_node_kind kind, int op, um_node *a, um_node *b) {
    um_node *n = um_node_new(c, kind);
    n->op = op;
    n->a = a;
    n->b = b;
    return um_node_done(c, n);
}

static um_node *constant(um_compile *c, um_val v) {
    um_node *n = um_node_new(c, UM_E_CONST);
    n->val = v;
    return n;
}

/* ---- Arguments and subscripts ------------------------------------------------------------------------------------ */

static void add_keyword(um_compile *c, um_call_args *args, um_str name, um_node *value) {
    um_str *names = (um_str *)um_compile_alloc(c, (args->kw.n + 1) * sizeof *names);
    if (args->kw.n) memcpy(names, args->kw_name, args->kw.n * sizeof *names);
    names[args->kw.n] = name;
    args->kw_name = names;
    um_node_add(c, &args->kw, value);
}

static void parse_arg(um_compile *c, um_call_args *args) {
    um_token *t = um_peek(c);
    if (um_accept_op(c, "**")) args->starstar = um_parse_expr(c);
    else if (um_accept_op(c, "*")) args->star = um_parse_expr(c);
    else if (t->kind == UM_T_NAME && um_is_op(t + 1, "=")) {
        um_take(c);
        um_take(c);
        add_keyword(c, args, t->s, um_parse_expr(c));
    } else {
        if (args->kw.n) um_unexpected(c, "a keyword argument");
        um_node_add(c, &args->pos, um_parse_expr(c));
    }
}

static um_call_args *parse_args(um_compile *c) {
    um_call_args *args = (um_call_args *)um_compile_alloc(c, sizeof *args);
    bool first = true;
    um_nest(c, 1);
    um_expect_op(c, "(");
    while (!um_is_op(um_peek(c), ")")) {
        if (!first) um_expect_op(c, ",");
        if (um_is_op(um_peek(c), ")")) break;
        parse_arg(c, args);
        first = false;
    }
    um_expect_op(c, ")");
    um_nest(c, -1);
    return args;
}

static um_node *parse_call(um_compile *c, um_node *callee) {
    um_node *n = um_node_new(c, UM_E_CALL);
    n->a = callee;
    n->args = parse_args(c);
    return um_node_done(c, n);
}

/* Parses [start:stop:step] after its first bound, which the caller has parsed. */
static um_node *parse_slice(um_compile *c, um_node *of, um_node *start) {
    um_node *n = um_node_new(c, UM_E_SLICE);
    um_node *part[3] = {start, NULL, NULL};
    for (int i = 1; i < 3 && um_accept_op(c, ":"); i++)
        if (!um_is_op(um_peek(c), "]") && !um_is_op(um_peek(c), ":")) part[i] = um_parse_expr(c);
    um_node *none = constant(c, um_val_of(UM_V_NONE));
    for (int i = 0; i < 3; i++) um_node_add(c, &n->list, part[i] ? part[i] : none);
    n->a = of;
    return um_node_done(c, n);
}

static um_node *parse_subscript(um_compile *c, um_node *of) {
    um_nest(c, 1);
    um_node *n, *key = um_is_op(um_peek(c), ":") ? NULL : um_parse_exprs(c, true);
    if (!key || um_is_op(um_peek(c), ":")) n = parse_slice(c, of, key);
    else n = node2(c, UM_E_ITEM, 0, of, key);
    um_expect_op(c, "]");
    um_nest(c, -1);
    return n;
}

static um_node *parse_dot(um_compile *c, um_node *of) {
    um_token *t = um_peek(c);
    if (t->kind == UM_T_INT) {
        um_take(c);
        return node2(c, UM_E_ITEM, 0, of, constant(c, um_val_int(t->i)));
    }
    um_node *n = um_node_new(c, UM_E_ATTR);
    n->s = um_expect_name(c);
    n->a = of;
    return um_node_done(c, n);
}

static um_node *parse_postfix(um_compile *c, um_node *n) {
    for (;;) {
        if (um_accept_op(c, ".")) n = parse_dot(c, n);
        else if (um_accept_op(c, "[")) n = parse_subscript(c, n);
        else if (um_is_op(um_peek(c), "(")) n = parse_call(c, n);
        else return n;
    }
}

/* ---- Primaries --------------------------------------------------------------------------------------------------- */

static um_node *parse_string(um_compile *c) {
    um_token *t = um_take(c);
    um_str s = t->s;
    while (um_peek(c)->kind == UM_T_STR) { /* adjacent literals form one string */
        um_str more = um_take(c)->s;
        char *joined = (char *)um_compile_alloc(c, s.n + more.n + 1);
        memcpy(joined, s.p, s.n);
        memcpy(joined + s.n, more.p, more.n);
        s = (um_str){joined, s.n + more.n};
    }
    return constant(c, um_val_str(s));
}

static um_node *parse_list(um_compile *c) {
    um_node *n = um_node_new(c, UM_E_LIST);
    while (!um_accept_op(c, "]")) {
        if (n->list.n) um_expect_op(c, ",");
        if (um_accept_op(c, "]")) break;
        um_node_add(c, &n->list, um_parse_expr(c));
    }
    return um_node_done(c, n);
}

static um_node *parse_dict(um_compile *c) {
    um_node *n = um_node_new(c, UM_E_DICT);
    while (!um_accept_op(c, "}")) {
        if (n->list.n) um_expect_op(c, ",");
        if (um_accept_op(c, "}")) break;
        um_node_add(c, &n->list, um_parse_expr(c));
        um_expect_op(c, ":");
        um_node_add(c, &n->list, um_parse_expr(c));
    }
    return um_node_done(c, n);
}

static um_node *parse_paren(um_compile *c) {
    um_node *n;
    if (um_is_op(um_peek(c), ")")) n = um_node_new(c, UM_E_TUPLE);
    else n = um_parse_exprs(c, true);
    um_expect_op(c, ")");
    return n;
}

static um_node *parse_bracket(um_compile *c) {
    um_nest(c, 1);
    um_node *n;
    if (um_accept_op(c, "(")) n = parse_paren(c);
    else if (um_accept_op(c, "[")) n = parse_list(c);
    else if (um_accept_op(c, "{")) n = parse_dict(c);
    else um_unexpected(c, "an expression");
    um_nest(c, -1);
    return n;
}

static um_node *parse_name(um_compile *c) {
    um_token *t = um_take(c);
    if (um_is_name(t, "true") || um_is_name(t, "True")) return constant(c, um_val_bool(true));
    if (um_is_name(t, "false") || um_is_name(t, "False")) return constant(c, um_val_bool(false));
    if (um_is_name(t, "none") || um_is_name(t, "None")) return constant(c, um_val_of(UM_V_NONE));
    um_node *n = um_node_new(c, UM_E_NAME);
    n->line = t->line;
    n->sym = um_symbol(c, t->s);
    return n;
}

static um_node *parse_primary(um_compile *c) {
    um_token *t = um_peek(c);
    switch (t->kind) {
    case UM_T_NAME: return parse_name(c);
    case UM_T_STR: return parse_string(c);
    case UM_T_INT: um_take(c); return constant(c, um_val_int(t->i));
    case UM_T_FLOAT: um_take(c); return constant(c, um_val_float(t->f));
    default: return parse_bracket(c);
    }
}

/* ---- Filters and tests ------------------------------------------------------------------------------------------- */

static um_node *parse_filter(um_compile *c, um_node *inner) {
    um_token *t = um_peek(c);
    um_node *n = um_node_new(c, UM_E_FILTER);
    n->s = um_expect_name(c);
    n->op = um_filter_find(n->s);
    if (n->op < 0) um_compile_fail(c, t->line, t->column, "there is no filter '%.*s'", (int)UM_MIN(n->s.n, 40), n->s.p);
    n->a = inner;
    if (um_is_op(um_peek(c), "(")) n->args = parse_args(c);
    return um_node_done(c, n);
}

/* Returns whether the next token begins the argument of a test that is written without parentheses: the 3 of
 * `x is divisibleby 3`. */
static bool has_bare_argument(um_compile *c) {
    const um_token *t = um_peek(c);
    if (um_is_op(t, "[") || um_is_op(t, "{")) return true;
    if (t->kind == UM_T_STR || t->kind == UM_T_INT || t->kind == UM_T_FLOAT) return true;
    if (t->kind != UM_T_NAME || um_is_name(t, "else") || um_is_name(t, "or") || um_is_name(t, "and")) return false;
    if (um_is_name(t, "is")) um_compile_fail(c, t->line, t->column, "two tests behind each other: use 'and'");
    return true;
}

static um_node *parse_test(um_compile *c, um_node *inner) {
    bool negated = um_accept_name(c, "not");
    um_token *t = um_peek(c);
    um_node *n = um_node_new(c, UM_E_TEST);
    n->s = t->kind == UM_T_OP ? um_take(c)->s : um_expect_name(c);
    n->op = um_test_find(n->s);
    if (n->op < 0) um_compile_fail(c, t->line, t->column, "there is no test '%.*s'", (int)UM_MIN(n->s.n, 40), n->s.p);
    n->a = inner;
    if (um_is_op(um_peek(c), "(")) n->args = parse_args(c);
    else if (has_bare_argument(c)) {
        n->args = (um_call_args *)um_compile_alloc(c, sizeof *n->args);
        um_nest(c, 1);
        um_node_add(c, &n->args->pos, parse_postfix(c, parse_primary(c)));
        um_nest(c, -1);
    }
    um_node_done(c, n);
    return negated ? node2(c, UM_E_NOT, 0, n, NULL) : n;
}

um_node *um_parse_filters(um_compile *c, um_node *n, bool inline_start) {
    if (inline_start) n = parse_filter(c, n);
    for (;;) {
        if (um_accept_op(c, "|")) n = parse_filter(c, n);
        else if (um_accept_name(c, "is")) n = parse_test(c, n);
        else if (um_is_op(um_peek(c), "(")) n = parse_call(c, n);
        else return n;
    }
}

/* ---- Operators --------------------------------------------------------------------------------------------------- */

static um_node *parse_unary(um_compile *c, bool with_filters) {
    um_node *n;
    bool minus = um_is_op(um_peek(c), "-");
    if (minus || um_is_op(um_peek(c), "+")) {
        um_nest(c, 1);
        um_take(c);
        n = node2(c, minus ? UM_E_NEG : UM_E_POS, 0, parse_unary(c, false), NULL);
        um_nest(c, -1);
    } else n = parse_primary(c);
    n = parse_postfix(c, n);
    return with_filters ? um_parse_filters(c, n, false) : n;
}

um_node *um_parse_postfix_expr(um_compile *c) { return parse_unary(c, true); }

typedef struct operators {
    const char *text[4];
    um_op op[4];
} operators;

/* The binary operators that bind tighter than comparisons, tightest first. All are left-associative, even the power. */
static const operators levels[] = {
    {{"**"}, {UM_OP_POW}},
    {{"*", "/", "//", "%"}, {UM_OP_MUL, UM_OP_DIV, UM_OP_FLOOR, UM_OP_MOD}},
    {{"~"}, {UM_OP_JOIN}},
    {{"+", "-"}, {UM_OP_ADD, UM_OP_SUB}},
};

static um_node *parse_level(um_compile *c, int level) {
    if (level < 0) return parse_unary(c, true);
    um_node *n = parse_level(c, level - 1);
    for (int i = 0; i < 4 && levels[level].text[i];) {
        if (!um_accept_op(c, levels[level].text[i])) {
            i++;
            continue;
        }
        n = node2(c, UM_E_BINARY, levels[level].op[i], n, parse_level(c, level - 1));
        i = 0;
    }
    return n;
}

static um_node *parse_sum(um_compile *c) { return parse_level(c, UM_LEN(levels) - 1); }

/* Takes a comparison operator and returns it, or returns -1 if none follows. */
static int take_comparison(um_compile *c) {
    static const operators one = {{"==", "!=", "<", "<="}, {UM_OP_EQ, UM_OP_NE, UM_OP_LT, UM_OP_LE}};
    for (int i = 0; i < 4; i++)
        if (um_accept_op(c, one.text[i])) return one.op[i];
    if (um_accept_op(c, ">")) return UM_OP_GT;
    if (um_accept_op(c, ">=")) return UM_OP_GE;
    if (um_accept_name(c, "in")) return UM_OP_IN;
    if (um_is_name(um_peek(c), "not") && um_is_name(um_peek(c) + 1, "in")) {
        um_take(c);
        um_take(c);
        return UM_OP_NOT_IN;
    }
    return -1;
}

static um_node *parse_compare(um_compile *c) {
    um_node *first = parse_sum(c), *n = NULL;
    int op;
    while ((op = take_comparison(c)) >= 0) {
        if (!n) {
            n = um_node_new(c, UM_E_COMPARE);
            n->a = first;
        }
        um_node_add(c, &n->list, parse_sum(c));
        int *ops = (int *)um_compile_alloc(c, n->list.n * sizeof *ops);
        if (n->ops) memcpy(ops, n->ops, (n->list.n - 1) * sizeof *ops);
        ops[n->list.n - 1] = op;
        n->ops = ops;
        if (n->list.n > UM_TMPL_TREE_MAX) um_compile_fail(c, n->line, 1, "a chain of comparisons is too long");
    }
    return n ? um_node_done(c, n) : first;
}

static um_node *parse_not(um_compile *c) {
    int n_not = 0;
    while (um_accept_name(c, "not")) n_not++;
    um_node *n = parse_compare(c);
    while (n_not--) n = node2(c, UM_E_NOT, 0, n, NULL);
    return n;
}

static um_node *parse_and(um_compile *c) {
    um_node *n = parse_not(c);
    while (um_accept_name(c, "and")) n = node2(c, UM_E_AND, 0, n, parse_not(c));
    return n;
}

static um_node *parse_or(um_compile *c) {
    um_node *n = parse_and(c);
    while (um_accept_name(c, "or")) n = node2(c, UM_E_OR, 0, n, parse_and(c));
    return n;
}

um_node *um_parse_expr(um_compile *c) {
    um_nest(c, 1);
    um_node *n = parse_or(c);
    while (um_accept_name(c, "if")) {
        um_node *cond = um_node_new(c, UM_E_COND);
        cond->a = n;
        cond->b = parse_or(c);
        if (um_accept_name(c, "else")) cond->c = um_parse_expr(c);
        n = um_node_done(c, cond);
    }
    um_nest(c, -1);
    return n;
}

static bool at_exprs_end(um_compile *c) {
    const um_token *t = um_peek(c);
    return t->kind == UM_T_PRINT_END || t->kind == UM_T_BLOCK_END || um_is_op(t, ")") || um_is_op(t, "]") ||
           um_is_name(t, "recursive");
}

um_node *um_parse_exprs(um_compile *c, bool conditional) {
    um_node *first = conditional ? um_parse_expr(c) : parse_or(c);
    if (!um_is_op(um_peek(c), ",")) return first;
    um_node *n = um_node_new(c, UM_E_TUPLE);
    um_node_add(c, &n->list, first);
    while (um_accept_op(c, ",") && !at_exprs_end(c))
        um_node_add(c, &n->list, conditional ? um_parse_expr(c) : parse_or(c));
    return um_node_done(c, n);
}
