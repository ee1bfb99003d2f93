/* Parses the statements of a template. Also contains the helpers that both halves of the parser share. */
#include "text/template.h"
#include "text/tok.h"

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

um_token *um_peek(um_compile *c) { return &c->token[c->at]; }

um_token *um_take(um_compile *c) {
    um_token *t = &c->token[c->at];
    c->line = t->line;
    if (t->kind != UM_T_END) c->at++;
    return t;
}

bool um_is_op(const um_token *t, const char *op) { return t->kind == UM_T_OP && um_str_eq(t->s, um_str_of(op)); }
bool um_is_name(const um_token *t, const char *name) {
    return t->kind == UM_T_NAME && um_str_eq(t->s, um_str_of(name));
}

bool um_accept_op(um_compile *c, const char *op) {
    bool yes = um_is_op(um_peek(c), op);
    if (yes) um_take(c);
    return yes;
}

bool um_accept_name(um_compile *c, const char *name) {
    bool yes = um_is_name(um_peek(c), name);
    if (yes) um_take(c);
    return yes;
}

void um_unexpected(um_compile *c, const char *wanted) {
    const um_token *t = um_peek(c);
    if (t->kind == UM_T_END)
        um_compile_fail(c, t->line, t->column, "expected %s, found the end of the template", wanted);
    um_compile_fail(c, t->line, t->column, "expected %s, found '%.*s'", wanted, (int)UM_MIN(t->s.n, 40), t->s.p);
}

void um_expect_op(um_compile *c, const char *op) {
    char wanted[8];
    snprintf(wanted, sizeof wanted, "'%s'", op);
    if (!um_accept_op(c, op)) um_unexpected(c, wanted);
}

um_str um_expect_name(um_compile *c) {
    if (um_peek(c)->kind != UM_T_NAME) um_unexpected(c, "a name");
    return um_take(c)->s;
}

static void expect(um_compile *c, um_token_kind kind, const char *what) {
    if (um_peek(c)->kind != kind) um_unexpected(c, what);
    um_take(c);
}

void um_nest(um_compile *c, int by) {
    c->nest += by;
    if (c->nest > UM_TMPL_NEST_MAX)
        um_compile_fail(c, um_peek(c)->line, um_peek(c)->column, "nesting is deeper than %d", UM_TMPL_NEST_MAX);
}

/* ---- Nodes and names --------------------------------------------------------------------------------------------- */

um_node *um_node_new(um_compile *c, um_node_kind kind) {
    um_node *n = (um_node *)um_compile_alloc(c, sizeof *n);
    n->kind = kind;
    n->line = um_peek(c)->line;
    n->depth = 1;
    return n;
}

void um_node_add(um_compile *c, um_block_list *list, um_node *node) {
    if (list->n == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 4;
        um_node **grown = (um_node **)um_compile_alloc(c, cap * sizeof *grown);
        if (list->n) memcpy(grown, list->v, list->n * sizeof *grown);
        list->v = grown;
        list->cap = cap;
    }
    list->v[list->n++] = node;
}

static void deepen(um_node *n, const um_node *child) {
    if (child && child->depth >= n->depth) n->depth = child->depth + 1;
}

static void deepen_list(um_node *n, const um_block_list *list) {
    for (size_t i = 0; i < list->n; i++) deepen(n, list->v[i]);
}

um_node *um_node_done(um_compile *c, um_node *n) {
    deepen(n, n->a);
    deepen(n, n->b);
    deepen(n, n->c);
    deepen_list(n, &n->list);
    if (n->args) {
        deepen_list(n, &n->args->pos);
        deepen_list(n, &n->args->kw);
        deepen(n, n->args->star);
        deepen(n, n->args->starstar);
    }
    if (n->depth > UM_TMPL_TREE_MAX)
        um_compile_fail(c, n->line, 1, "an expression is longer or deeper than %d operations", UM_TMPL_TREE_MAX);
    return n;
}

static void symbols_grow(um_compile *c, um_symbols *s) {
    size_t cap = s->cap ? s->cap * 2 : 64, slots = cap * 2;
    um_str *name = (um_str *)um_compile_alloc(c, cap * sizeof *name);
    if (s->n) memcpy(name, s->name, s->n * sizeof *name);
    s->slot = (uint32_t *)um_compile_alloc(c, slots * sizeof *s->slot);
    for (size_t i = 0; i < s->n; i++) {
        size_t k = um_hash(name[i]) & (slots - 1);
        while (s->slot[k]) k = (k + 1) & (slots - 1);
        s->slot[k] = (uint32_t)i + 1;
    }
    s->name = name;
    s->cap = cap;
    s->slots = slots;
}

int um_symbol(um_compile *c, um_str name) {
    um_symbols *s = &c->t->symbols;
    if (s->n == s->cap) symbols_grow(c, s);
    size_t k = um_hash(name) & (s->slots - 1);
    for (; s->slot[k]; k = (k + 1) & (s->slots - 1))
        if (um_str_eq(s->name[s->slot[k] - 1], name)) return (int)s->slot[k] - 1;
    s->slot[k] = (uint32_t)s->n + 1;
    s->name[s->n] = name;
    return (int)s->n++;
}

/* ---- Bodies ------------------------------------------------------------------------------------------------------ */

static void parse_statement(um_compile *c, um_block_list *out);

static bool at_end_tag(um_compile *c, const char *const *ends) {
    const um_token *t = um_peek(c);
    if (t->kind != UM_T_BLOCK_BEGIN) return false;
    for (; *ends; ends++)
        if (um_is_name(t + 1, *ends)) return true;
    return false;
}

/* Parses up to a tag whose name is one of `ends`. Takes the tag's begin and name and returns the name. */
static um_str parse_body(um_compile *c, um_block_list *out, const char *const *ends) {
    um_nest(c, 1);
    while (!at_end_tag(c, ends)) {
        um_token *t = um_peek(c);
        if (t->kind == UM_T_END) {
            char wanted[48];
            snprintf(wanted, sizeof wanted, "'{%% %s %%}'", ends[0]);
            um_unexpected(c, wanted);
        }
        parse_statement(c, out);
    }
    um_nest(c, -1);
    um_take(c);
    return um_take(c)->s;
}

static void parse_to(um_compile *c, um_block_list *body, const char *end) {
    const char *const ends[] = {end, NULL};
    expect(c, UM_T_BLOCK_END, "'%}'");
    parse_body(c, body, ends);
}

/* ---- set --------------------------------------------------------------------------------------------------------- */

static um_node *name_node(um_compile *c) {
    um_node *n = um_node_new(c, UM_E_NAME);
    um_str name = um_expect_name(c);
    static const char *const constants[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < UM_LEN(constants); i++)
        if (um_str_eq(name, um_str_of(constants[i])))
            um_compile_fail(c, n->line, 1, "'%s' can't be assigned", constants[i]);
    n->sym = um_symbol(c, name);
    return n;
}

/* Parses the target of an assignment: a name or ns.attr. */
static um_node *parse_target(um_compile *c) {
    um_node *n = name_node(c);
    if (!um_accept_op(c, ".")) return n;
    um_node *attr = um_node_new(c, UM_E_ATTR);
    attr->a = n;
    attr->s = um_expect_name(c);
    return um_node_done(c, attr);
}

/* Parses targets: a, b or (a, b). Returns true if they unpack a sequence. */
static bool parse_targets(um_compile *c, um_block_list *list) {
    bool paren = um_accept_op(c, "("), many = false;
    um_node_add(c, list, parse_target(c));
    while (um_accept_op(c, ",")) {
        many = true;
        if (um_peek(c)->kind != UM_T_NAME || um_is_name(um_peek(c), "in")) break;
        um_node_add(c, list, parse_target(c));
    }
    if (paren) um_expect_op(c, ")");
    return many;
}

static um_node *captured(um_compile *c) { return um_node_new(c, UM_E_CAPTURED); }

static void parse_set(um_compile *c, um_node *n) {
    n->kind = UM_N_SET;
    n->op = parse_targets(c, &n->list);
    if (um_accept_op(c, "=")) {
        n->a = um_parse_exprs(c, true);
        return;
    }
    n->kind = UM_N_SETBLOCK;
    if (n->op) um_unexpected(c, "'='");
    if (um_is_op(um_peek(c), "|")) n->a = um_parse_filters(c, captured(c), false);
    parse_to(c, &n->body, "endset");
}

/* ---- for, if ----------------------------------------------------------------------------------------------------- */

static void parse_for(um_compile *c, um_node *n) {
    static const char *const ends[] = {"endfor", "else", NULL};
    n->kind = UM_N_FOR;
    n->op = parse_targets(c, &n->list);
    for (size_t i = 0; i < n->list.n; i++)
        if (n->list.v[i]->kind != UM_E_NAME) um_compile_fail(c, n->line, 1, "a loop can't assign to an attribute");
    if (!um_accept_name(c, "in")) um_unexpected(c, "'in'");
    n->a = um_parse_exprs(c, false);
    if (um_accept_name(c, "if")) n->b = um_parse_expr(c);
    n->flag = um_accept_name(c, "recursive");
    expect(c, UM_T_BLOCK_END, "'%}'");
    c->loops++;
    um_str end = parse_body(c, &n->body, ends);
    c->loops--;
    if (um_str_eq(end, UM_STR("else"))) parse_to(c, &n->other, "endfor");
}

static void parse_if(um_compile *c, um_node *n) {
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    n->kind = UM_N_IF;
    for (;;) { /* each elif becomes an if in the else branch of the previous one */
        n->a = um_parse_expr(c);
        expect(c, UM_T_BLOCK_END, "'%}'");
        um_str end = parse_body(c, &n->body, ends);
        um_node_done(c, n);
        if (um_str_eq(end, UM_STR("endif"))) return;
        if (um_str_eq(end, UM_STR("else"))) break;
        um_node *next = um_node_new(c, UM_N_IF);
        um_node_add(c, &n->other, next);
        n = next;
    }
    parse_to(c, &n->other, "endif");
}

/* ---- macro, call ------------------------------------------------------------------------------------------------- */

static void parse_params(um_compile *c, um_node *n) {
    um_expect_op(c, "(");
    while (!um_is_op(um_peek(c), ")")) {
        if (n->list.n) um_expect_op(c, ",");
        if (um_is_op(um_peek(c), ")")) break;
        um_node *p = name_node(c);
        if (um_accept_op(c, "=")) p->a = um_parse_expr(c);
        else if (n->list.n && n->list.v[n->list.n - 1]->a)
            um_compile_fail(c, p->line, 1, "a parameter without default behind one with a default");
        um_node_add(c, &n->list, um_node_done(c, p));
    }
    um_expect_op(c, ")");
}

static void parse_macro_body(um_compile *c, um_node *n, const char *end) {
    int loops = c->loops;
    size_t from = c->at;
    c->loops = 0; /* break and continue can't leave a macro */
    parse_to(c, &n->body, end);
    c->loops = loops;
    for (size_t i = from; i < c->at; i++) /* extra arguments are allowed only if the body uses them */
        if (um_is_name(&c->token[i], "varargs") || um_is_name(&c->token[i], "kwargs")) n->flag = true;
}

static void parse_macro(um_compile *c, um_node *n) {
    n->kind = UM_N_MACRO;
    n->s = um_peek(c)->s;
    n->sym = name_node(c)->sym;
    parse_params(c, n);
    parse_macro_body(c, n, "endmacro");
}

static void parse_call(um_compile *c, um_node *n) {
    n->kind = UM_N_CALL;
    n->s = UM_STR("caller");
    if (um_is_op(um_peek(c), "(")) parse_params(c, n);
    n->a = um_parse_postfix_expr(c);
    if (n->a->kind != UM_E_CALL) um_compile_fail(c, n->line, 1, "'call' expects a call of a macro");
    parse_macro_body(c, n, "endcall");
}

/* ---- Other statements -------------------------------------------------------------------------------------------- */

static void parse_with(um_compile *c, um_node *n) {
    n->kind = UM_N_WITH;
    while (um_peek(c)->kind != UM_T_BLOCK_END) {
        if (n->list.n) um_expect_op(c, ",");
        um_node *set = um_node_new(c, UM_N_SET);
        um_node_add(c, &set->list, name_node(c));
        um_expect_op(c, "=");
        set->a = um_parse_expr(c);
        um_node_add(c, &n->list, um_node_done(c, set));
    }
    parse_to(c, &n->body, "endwith");
}

static void parse_filter_block(um_compile *c, um_node *n) {
    n->kind = UM_N_FILTER;
    n->a = um_parse_filters(c, captured(c), true);
    parse_to(c, &n->body, "endfilter");
}

static void parse_generation(um_compile *c, um_node *n) {
    n->kind = UM_N_SCOPE;
    parse_to(c, &n->body, "endgeneration");
}

static void parse_jump(um_compile *c, um_node *n, um_node_kind kind) {
    n->kind = kind;
    if (!c->loops) um_compile_fail(c, n->line, 1, "break and continue are for loops only");
}

static void parse_break(um_compile *c, um_node *n) { parse_jump(c, n, UM_N_BREAK); }
static void parse_continue(um_compile *c, um_node *n) { parse_jump(c, n, UM_N_CONTINUE); }

static const struct {
    const char *name;
    void (*parse)(um_compile *, um_node *);
} statements[] = {
    {"set", parse_set},
    {"for", parse_for},
    {"if", parse_if},
    {"macro", parse_macro},
    {"call", parse_call},
    {"with", parse_with},
    {"filter", parse_filter_block},
    {"generation", parse_generation},
    {"break", parse_break},
    {"continue", parse_continue},
};

static void parse_block(um_compile *c, um_block_list *out) {
    um_node *n = um_node_new(c, UM_N_SCOPE);
    um_token *name = um_peek(c);
    if (name->kind != UM_T_NAME) um_unexpected(c, "the name of a statement");
    for (size_t i = 0; i < UM_LEN(statements); i++) {
        if (!um_is_name(name, statements[i].name)) continue;
        um_take(c);
        statements[i].parse(c, n);
        um_node_add(c, out, um_node_done(c, n));
        expect(c, UM_T_BLOCK_END, "'%}'");
        return;
    }
    um_compile_fail(c, name->line, name->column, "'{%% %.*s %%}' is not known here", (int)UM_MIN(name->s.n, 40),
                    name->s.p);
}

static void parse_statement(um_compile *c, um_block_list *out) {
    um_token *t = um_take(c);
    if (t->kind == UM_T_DATA) {
        um_node *n = um_node_new(c, UM_N_TEXT);
        n->s = t->s;
        um_node_add(c, out, n);
    } else if (t->kind == UM_T_PRINT_BEGIN) {
        um_node *n = um_node_new(c, UM_N_PRINT);
        n->a = um_parse_exprs(c, true);
        um_node_add(c, out, um_node_done(c, n));
        expect(c, UM_T_PRINT_END, "'}}'");
    } else parse_block(c, out);
}

void um_parse_template(um_compile *c) {
    while (um_peek(c)->kind != UM_T_END) parse_statement(c, &c->t->body);
}
