/* Searches the tree of a template for a loop over the parts of a message's content. If there is one, the template gets
 * a list of parts unchanged, otherwise it gets a string. The search recognizes loops over `….content`, over a variable
 * set from it, and over any variable named `content`, the usual name of a macro's parameter. */
#include "text/template.h"
#include "text/tok.h"

typedef struct scan {
    const um_template *t;
    bool *from_content; /* [symbols] the variable was set from a content */
    bool loops;         /* second pass: checks loops, now that all variables are known */
    bool found;
} scan;

static bool is_content(const scan *s, const um_node *n) {
    if (!n) return false;
    switch (n->kind) {
    case UM_E_NAME: return s->from_content[n->sym] || um_str_eq(s->t->symbols.name[n->sym], UM_STR("content"));
    case UM_E_ATTR: return um_str_eq(n->s, UM_STR("content"));
    case UM_E_ITEM:
        return n->b->kind == UM_E_CONST && n->b->val.kind == UM_V_STR && um_str_eq(n->b->val.s, UM_STR("content"));
    case UM_E_FILTER:
    case UM_E_SLICE: return is_content(s, n->a);
    case UM_E_AND:
    case UM_E_OR: return is_content(s, n->a) || is_content(s, n->b);
    case UM_E_COND: return is_content(s, n->a) || is_content(s, n->c);
    default: return false;
    }
}

static void look_at_body(scan *s, const um_block_list *body);

static void look_at(scan *s, const um_node *n) {
    if (n->kind == UM_N_SET && !n->op && n->list.v[0]->kind == UM_E_NAME && is_content(s, n->a))
        s->from_content[n->list.v[0]->sym] = true;
    if (n->kind == UM_N_FOR && s->loops && is_content(s, n->a)) s->found = true;
    if (n->kind == UM_N_WITH) look_at_body(s, &n->list);
    look_at_body(s, &n->body);
    look_at_body(s, &n->other);
}

static void look_at_body(scan *s, const um_block_list *body) {
    for (size_t i = 0; i < body->n && !s->found; i++) look_at(s, body->v[i]);
}

bool um_template_reads_parts(const um_template *t) {
    scan s = {.t = t, .from_content = UM_NEW_ARRAY(bool, t->symbols.n + 1)};
    look_at_body(&s, &t->body);
    s.loops = true;
    look_at_body(&s, &t->body);
    um_free(s.from_content);
    return s.found;
}
