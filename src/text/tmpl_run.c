/* Compiles and renders a template and runs its statements. */
#include <time.h>

#include "text/template.h"
#include "text/tok.h"

typedef enum { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE } flow;

/* ---- Errors, limits, memory -------------------------------------------------------------------------------------- */

void um_render_fail(um_render *r, const char *fmt, ...) {
    char text[UM_ERR_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    um_fail(r->err, UM_ETEMPLATE, "line %d: %s", r->line, text);
    longjmp(r->jump, 1);
}

void um_render_undefined(um_render *r, um_val v) {
    um_render_fail(r, "'%.*s' is undefined", (int)UM_MIN(v.s.n, 80), v.s.n ? v.s.p : "");
}

void *um_render_alloc(um_render *r, size_t n) {
    void *p = n <= UM_TMPL_ARENA_MAX ? um_arena_alloc(&r->arena, n ? n : 1) : NULL;
    if (!p) um_render_fail(r, "rendering needs more than %zu MiB", UM_TMPL_ARENA_MAX >> 20);
    return p;
}

um_str um_render_copy(um_render *r, um_str s) {
    char *p = (char *)um_render_alloc(r, s.n + 1);
    if (s.n) memcpy(p, s.p, s.n);
    return (um_str){p, s.n};
}

void um_render_step(um_render *r) {
    if (++r->steps > UM_TMPL_STEPS_MAX) um_render_fail(r, "rendering takes more than %d steps", UM_TMPL_STEPS_MAX);
}

void um_render_scan(um_render *r, size_t bytes) {
    r->steps += (int64_t)(bytes / 8);
    um_render_step(r);
}

void um_render_work(um_render *r, um_val v) {
    if (v.kind == UM_V_LIST || v.kind == UM_V_TUPLE) r->steps += (int64_t)v.list->n;
    else if (v.kind == UM_V_DICT) r->steps += (int64_t)v.dict->n;
    um_render_scan(r, v.kind == UM_V_STR ? v.s.n : 0);
}

static void write_out(um_render *r, um_str s) {
    if (r->out->len - r->out_start + s.n > UM_TMPL_OUTPUT_MAX)
        um_render_fail(r, "the output is longer than %zu MiB", UM_TMPL_OUTPUT_MAX >> 20);
    if (s.n) um_buf_append(r->out, s.p, s.n);
}

/* ---- Scopes ------------------------------------------------------------------------------------------------------ */

static um_scope *frame_new(um_render *r, um_scope *parent) {
    um_scope *f = (um_scope *)um_render_alloc(r, sizeof *f);
    f->parent = parent;
    return f;
}

static void frame_set(um_render *r, um_scope *f, int sym, um_val v) {
    for (int i = 0; i < f->n; i++)
        if (f->var[i].sym == sym) {
            f->var[i].v = v;
            return;
        }
    if (f->n == f->cap) {
        int cap = f->cap ? f->cap * 2 : 4;
        um_var *grown = (um_var *)um_render_alloc(r, (size_t)cap * sizeof *grown);
        if (f->n) memcpy(grown, f->var, (size_t)f->n * sizeof *grown);
        f->var = grown;
        f->cap = cap;
    }
    f->var[f->n++] = (um_var){sym, v};
}

static void assign(um_render *r, const um_node *target, um_val v) {
    if (target->kind == UM_E_ATTR) {
        um_val space = um_eval(r, target->a);
        if (space.kind != UM_V_NAMESPACE) um_render_fail(r, "only attributes of a namespace can be set");
        um_dict_set(r, space.dict, um_val_str(target->s), v);
    } else if (r->frame) frame_set(r, r->frame, target->sym, v);
    else r->global[target->sym] = v;
}

static void assign_all(um_render *r, const um_block_list *targets, bool unpack, um_val v) {
    if (!unpack) {
        assign(r, targets->v[0], v);
        return;
    }
    const um_list *parts = um_elements(r, v);
    if (parts->n != targets->n) um_render_fail(r, "%zu values for %zu names", parts->n, targets->n);
    for (size_t i = 0; i < parts->n; i++) assign(r, targets->v[i], parts->v[i]);
}

/* ---- Bodies ------------------------------------------------------------------------------------------------------ */

static flow run_node(um_render *r, const um_node *n);

static flow run_body(um_render *r, const um_block_list *body) {
    flow f = FLOW_NEXT;
    for (size_t i = 0; i < body->n && f == FLOW_NEXT; i++) f = run_node(r, body->v[i]);
    return f;
}

static flow run_scoped(um_render *r, const um_block_list *body) {
    um_scope *outer = r->frame;
    r->frame = frame_new(r, outer);
    flow f = run_body(r, body);
    r->frame = outer;
    return f;
}

/* Renders a body in its own scope. Stores its text in *text instead of the output. */
static flow run_captured(um_render *r, const um_block_list *body, um_val *text) {
    size_t start = r->out->len;
    flow f = run_scoped(r, body);
    *text = um_val_str(um_render_copy(r, (um_str){r->out->data ? r->out->data + start : "", r->out->len - start}));
    r->out->len = start;
    return f;
}

static um_val filtered(um_render *r, const um_node *filters, um_val text) {
    if (!filters) return text;
    r->captured = text;
    return um_eval(r, filters);
}

static flow run_set_block(um_render *r, const um_node *n) {
    um_val text;
    flow f = run_captured(r, &n->body, &text);
    if (f == FLOW_NEXT) assign(r, n->list.v[0], filtered(r, n->a, text));
    return f;
}

static flow run_filter_block(um_render *r, const um_node *n) {
    um_val text;
    flow f = run_captured(r, &n->body, &text);
    write_out(r, um_text(r, filtered(r, n->a, text)));
    return f;
}

static flow run_with(um_render *r, const um_node *n) {
    um_scope *outer = r->frame, *inner = frame_new(r, outer);
    r->frame = inner;
    for (size_t i = 0; i < n->list.n; i++) { /* each value can use the names set before it */
        um_val v = um_eval(r, n->list.v[i]->a);
        frame_set(r, inner, n->list.v[i]->list.v[0]->sym, v);
    }
    flow f = run_body(r, &n->body);
    r->frame = outer;
    return f;
}

/* ---- for --------------------------------------------------------------------------------------------------------- */

static um_list *kept_items(um_render *r, const um_node *n, um_list *items) {
    um_list *kept = um_val_list(r, UM_V_LIST, 0).list;
    um_scope *outer = r->frame;
    r->frame = frame_new(r, outer);
    for (size_t i = 0; i < items->n; i++) {
        r->frame->n = 0;
        assign_all(r, &n->list, n->op, items->v[i]);
        if (um_truth(um_eval(r, n->b))) um_list_push(r, kept, items->v[i]);
    }
    r->frame = outer;
    return kept;
}

um_val um_loop_item(const um_loop *loop, size_t i) {
    return loop->items ? loop->items->v[i] : um_val_int(loop->range->start + (int64_t)i * loop->range->step);
}

/* Sets the elements of a loop. A range is not expanded to a list: nested loops over ranges would fill the arena. */
static void loop_begin(um_render *r, const um_node *n, um_val over, um_loop *loop) {
    if (over.kind == UM_V_RANGE && !n->b) {
        loop->range = over.range;
        loop->n = (size_t)over.range->n;
        return;
    }
    loop->items = um_elements(r, over);
    if (n->b) loop->items = kept_items(r, n, loop->items);
    loop->n = loop->items->n;
}

static flow run_loop(um_render *r, const um_node *n, um_val over, int depth) {
    um_val v = um_val_of(UM_V_LOOP);
    um_loop *loop = v.loop = (um_loop *)um_render_alloc(r, sizeof *loop);
    *loop = (um_loop){.depth = depth, .node = n->flag ? n : NULL, .changed = um_val_of(UM_V_MISSING)};
    loop_begin(r, n, over, loop);
    if (loop->n == 0) return run_scoped(r, &n->other);
    um_scope *outer = r->frame, *inner = frame_new(r, outer);
    for (size_t i = 0; i < loop->n; i++) {
        um_render_step(r);
        r->frame = inner;
        inner->n = 0; /* each iteration starts with an empty scope */
        loop->at = i;
        frame_set(r, inner, r->t->sym_loop, v);
        assign_all(r, &n->list, n->op, um_loop_item(loop, i));
        if (run_body(r, &n->body) == FLOW_BREAK) break;
    }
    r->frame = outer;
    return FLOW_NEXT;
}

um_val um_loop_recurse(um_render *r, um_loop *loop, um_val items) {
    if (!loop->node) um_render_fail(r, "a loop that is called must be marked 'recursive'");
    if (++r->macros > UM_TMPL_MACRO_MAX)
        um_render_fail(r, "macros and loops are nested deeper than %d", UM_TMPL_MACRO_MAX);
    size_t start = r->out->len;
    run_loop(r, loop->node, items, loop->depth + 1);
    um_val text =
        um_val_str(um_render_copy(r, (um_str){r->out->data ? r->out->data + start : "", r->out->len - start}));
    r->out->len = start;
    r->macros--;
    return text;
}

/* ---- Macros ------------------------------------------------------------------------------------------------------ */

static int param_index(const um_render *r, const um_node *n, um_str name) {
    for (size_t i = 0; i < n->list.n; i++)
        if (um_str_eq(r->t->symbols.name[n->list.v[i]->sym], name)) return (int)i;
    return -1;
}

static void bind_extra(um_render *r, const um_node *n, const um_arg_values *args) {
    um_val more = um_val_list(r, UM_V_TUPLE, 0), named = um_dict_new(r);
    for (size_t i = n->list.n; i < args->n; i++) um_list_push(r, more.list, args->pos[i]);
    for (size_t i = 0; i < args->n_kw; i++) {
        if (um_str_eq(args->kw_name[i], UM_STR("caller"))) frame_set(r, r->frame, r->t->sym_caller, args->kw[i]);
        else if (param_index(r, n, args->kw_name[i]) < 0)
            um_dict_set(r, named.dict, um_val_str(args->kw_name[i]), args->kw[i]);
    }
    if (!n->flag && (more.list->n || named.dict->n))
        um_render_fail(r, "macro '%.*s' takes %zu arguments, and not the ones given", (int)n->s.n, n->s.p, n->list.n);
    if (!n->flag) return;
    frame_set(r, r->frame, r->t->sym_varargs, more);
    frame_set(r, r->frame, r->t->sym_kwargs, named);
}

static void bind_params(um_render *r, const um_node *n, const um_arg_values *args) {
    for (size_t i = 0; i < n->list.n; i++) {
        const um_node *p = n->list.v[i];
        um_str name = r->t->symbols.name[p->sym];
        um_val v = i < args->n ? args->pos[i] : um_val_of(UM_V_MISSING);
        for (size_t k = 0; k < args->n_kw; k++) {
            if (!um_str_eq(args->kw_name[k], name)) continue;
            if (v.kind != UM_V_MISSING) um_render_fail(r, "two values for '%.*s'", (int)name.n, name.p);
            v = args->kw[k];
        }
        if (v.kind == UM_V_MISSING) v = p->a ? um_eval(r, p->a) : um_val_undef(name);
        frame_set(r, r->frame, p->sym, v);
    }
    bind_extra(r, n, args);
}

um_val um_call_macro(um_render *r, const um_macro *m, const um_arg_values *args) {
    if (++r->macros > UM_TMPL_MACRO_MAX)
        um_render_fail(r, "macros and loops are nested deeper than %d", UM_TMPL_MACRO_MAX);
    um_scope *outer = r->frame;
    int line = r->line;
    um_val text;
    r->frame = frame_new(r, m->frame);
    bind_params(r, m->node, args);
    run_captured(r, &m->node->body, &text);
    r->frame = outer;
    r->line = line;
    r->macros--;
    return text;
}

static um_val macro_value(um_render *r, const um_node *n, um_scope *frame) {
    um_val v = um_val_of(UM_V_MACRO);
    v.macro = (um_macro *)um_render_alloc(r, sizeof *v.macro);
    *v.macro = (um_macro){n, frame};
    return v;
}

/* Runs {% call m(x) %}: calls m with the body as the keyword argument `caller`. The argument is added to a copy of the
 * call, so that the tree is not modified. */
static void run_call(um_render *r, const um_node *n) {
    um_call_args with = *n->a->args;
    um_node self = {.kind = UM_E_CONST, .line = n->line, .val = macro_value(r, n, r->frame)};
    um_node call = *n->a;
    um_node **kw = (um_node **)um_render_alloc(r, (with.kw.n + 1) * sizeof *kw);
    um_str *names = (um_str *)um_render_alloc(r, (with.kw.n + 1) * sizeof *names);
    if (with.kw.n) {
        memcpy(kw, with.kw.v, with.kw.n * sizeof *kw);
        memcpy(names, with.kw_name, with.kw.n * sizeof *names);
    }
    kw[with.kw.n] = &self;
    names[with.kw.n] = UM_STR("caller");
    with.kw.v = kw;
    with.kw.n++;
    with.kw_name = names;
    call.args = &with;
    write_out(r, um_text(r, um_eval(r, &call)));
}

/* ---- Statements -------------------------------------------------------------------------------------------------- */

static flow run_statement(um_render *r, const um_node *n) {
    switch (n->kind) {
    case UM_N_TEXT: write_out(r, n->s); break;
    case UM_N_PRINT: write_out(r, um_text(r, um_eval(r, n->a))); break;
    case UM_N_SET: assign_all(r, &n->list, n->op, um_eval(r, n->a)); break;
    case UM_N_SETBLOCK: return run_set_block(r, n);
    case UM_N_FOR: return run_loop(r, n, um_eval(r, n->a), 1);
    case UM_N_IF: return run_body(r, um_truth(um_eval(r, n->a)) ? &n->body : &n->other);
    case UM_N_MACRO: assign(r, &(um_node){.kind = UM_E_NAME, .sym = n->sym}, macro_value(r, n, NULL)); break;
    case UM_N_CALL: run_call(r, n); break;
    case UM_N_SCOPE: return run_scoped(r, &n->body);
    case UM_N_WITH: return run_with(r, n);
    case UM_N_FILTER: return run_filter_block(r, n);
    case UM_N_BREAK: return FLOW_BREAK;
    default: return FLOW_CONTINUE;
    }
    return FLOW_NEXT;
}

static flow run_node(um_render *r, const um_node *n) {
    um_render_step(r);
    r->line = n->line;
    if (++r->depth > UM_TMPL_DEPTH_MAX) um_render_fail(r, "evaluation is nested deeper than %d", UM_TMPL_DEPTH_MAX);
    flow f = run_statement(r, n);
    r->depth--;
    return f;
}

/* ---- The public functions ---------------------------------------------------------------------------------------- */

/* Converts line ends to \n and removes one at the end of the source, which Jinja does first too. */
static um_str normal_source(um_arena *a, um_str s) {
    char *p = (char *)um_arena_alloc(a, s.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '\r' && i + 1 < s.n && s.p[i + 1] == '\n') continue;
        p[n++] = s.p[i] == '\r' ? '\n' : s.p[i];
    }
    if (n && p[n - 1] == '\n') n--;
    return (um_str){p, n};
}

static um_status check_source(um_str source, um_err *err) {
    if (source.n > UM_TMPL_SOURCE_MAX)
        return um_fail(err, UM_ELIMIT, "%zu bytes of source, at most %zu are allowed", source.n, UM_TMPL_SOURCE_MAX);
    size_t good = um_utf8_check(source.p, source.n);
    if (good < source.n) return um_fail(err, UM_ETEMPLATE, "not valid UTF-8 at byte %zu", good);
    return UM_OK;
}

static um_status compile(um_compile *c) {
    if (setjmp(c->jump)) return UM_ETEMPLATE;
    um_lex(c);
    c->t->sym_loop = um_symbol(c, UM_STR("loop"));
    c->t->sym_caller = um_symbol(c, UM_STR("caller"));
    c->t->sym_varargs = um_symbol(c, UM_STR("varargs"));
    c->t->sym_kwargs = um_symbol(c, UM_STR("kwargs"));
    um_parse_template(c);
    return UM_OK;
}

um_status um_template_new(um_template **out, um_str source, um_err *err) {
    *out = NULL;
    um_status st = check_source(source, err);
    if (st) return st;
    um_template *t = UM_NEW(um_template);
    um_arena_init(&t->arena, UM_TMPL_ARENA_MAX);
    um_compile c = {.t = t, .err = err, .source = normal_source(&t->arena, source), .line = 1};
    if ((st = compile(&c))) um_template_free(t);
    else *out = t;
    return st;
}

void um_template_free(um_template *t) {
    if (!t) return;
    um_arena_free(&t->arena);
    um_free(t);
}

static um_status render(um_render *r) {
    if (setjmp(r->jump)) return UM_ETEMPLATE;
    r->global = (um_val *)um_render_alloc(r, (r->t->symbols.n + 1) * sizeof *r->global);
    run_body(r, &r->t->body);
    return UM_OK;
}

um_status um_template_render_at(const um_template *t, const json_t *vars, int64_t now, um_buf *out, um_err *err) {
    um_render r = {.t = t, .vars = vars, .out = out, .out_start = out->len, .err = err, .now = now, .line = 1};
    um_arena_init(&r.arena, UM_TMPL_ARENA_MAX);
    um_status st = render(&r);
    if (st) out->len = r.out_start; /* an error discards the output */
    um_arena_free(&r.arena);
    um_buf_free(&r.scratch);
    return st;
}

um_status um_template_render(const um_template *t, const json_t *vars, um_buf *out, um_err *err) {
    return um_template_render_at(t, vars, (int64_t)time(NULL), out, err);
}
