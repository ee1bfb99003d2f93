/* Builds the graph of a grammar. */
#include "grammar/graph.h"

/* ---- Nodes and sets ---------------------------------------------------------------------------------------------- */

/* Adds a node and returns its number; the number of the last node once the graph is full. */
static int32_t add_node(um_graph *g, um_node node) {
    if (g->n_nodes == UM_GRAPH_NODES_MAX) return g->n_nodes - 1;
    if (g->n_nodes == g->cap_nodes) {
        g->cap_nodes = UM_MAX(256, g->cap_nodes * 2);
        g->node = um_realloc(g->node, um_mul((size_t)g->cap_nodes, sizeof *g->node));
    }
    g->node[g->n_nodes] = node;
    return g->n_nodes++;
}

static void add_branch(um_graph *g, int32_t node) {
    if (g->n_branches == g->cap_branches) {
        g->cap_branches = UM_MAX(256, g->cap_branches * 2);
        g->branch = um_realloc(g->branch, um_mul((size_t)g->cap_branches, sizeof *g->branch));
    }
    g->branch[g->n_branches++] = node;
}

static int32_t add_set(um_graph *g, um_byte_set set) {
    if (g->n_sets == g->cap_sets) {
        g->cap_sets = UM_MAX(64, g->cap_sets * 2);
        g->set = um_realloc(g->set, um_mul((size_t)g->cap_sets, sizeof *g->set));
    }
    g->set[g->n_sets] = set;
    return g->n_sets++;
}

static int32_t get_set(um_graph *g, const uint64_t bits[4]) {
    um_byte_set set;
    for (int i = 0; i < 4; i++) set.bits[i] = bits[i] & g->alphabet[i];
    for (int32_t k = 0; k < g->n_sets; k++)
        if (memcmp(g->set[k].bits, set.bits, sizeof set.bits) == 0) return k;
    if (g->n_sets < UM_GRAPH_SETS_MAX) return add_set(g, set);
    g->work = -1;
    return 0;
}

static int32_t get_single(um_graph *g, uint8_t byte) {
    if (g->single[byte] >= 0) return g->single[byte];
    uint64_t bits[4] = {0};
    bits[byte / 64] = UINT64_C(1) << byte % 64;
    return g->single[byte] = get_set(g, bits);
}

/* ---- Expressions ------------------------------------------------------------------------------------------------- */

typedef struct builder {
    um_graph *g;
    const um_vocabulary *v;
    um_buf text; /* texts that stand side by side, last one first */
    int32_t *len;
    size_t cap_len;
} builder;

static int32_t build(builder *b, const um_expr *e, int32_t next);

/* Builds the bytes of a text in front of `next`. The vocabulary's spelling of the text gives the cuts; its last token
 * may have to be a longer one, because of what follows. */
static int32_t build_text(builder *b, um_str text, int32_t next) {
    um_graph *g = b->g;
    if (text.n > b->cap_len) {
        b->cap_len = text.n * 2;
        b->len = um_realloc(b->len, um_mul(b->cap_len, sizeof *b->len));
    }
    memset(b->len, 0, text.n * sizeof *b->len);
    size_t n = b->v->source.spell && text.n > 1 ? b->v->source.spell(b->v->source.arg, text, b->len) : 0;
    size_t at = text.n;
    for (size_t left = text.n; left-- > 0;) {
        int32_t cut = 0;
        if (n > 0 && at - (size_t)b->len[n - 1] == left) {
            cut = at < text.n ? b->len[n - 1] : 0;
            at = left;
            n--;
        }
        const um_node node = {
            .kind = UM_NODE_BYTES, .next = next, .index = get_single(g, (uint8_t)text.p[left]), .cut = cut};
        next = add_node(g, node);
    }
    return next;
}

/* Joins are built from their end. Texts that are neighbours become one, so that they are spelled as one. */
static int32_t build_join(builder *b, const um_expr *e, int32_t next) {
    for (int32_t i = e->n; i > 0;) {
        int32_t first = i;
        while (first > 0 && e->part[first - 1]->kind == UM_EXPR_TEXT) first--;
        if (first == i) {
            next = build(b, e->part[--i], next);
            continue;
        }
        um_buf_clear(&b->text);
        for (int32_t k = first; k < i; k++) um_buf_append(&b->text, e->part[k]->text, (size_t)e->part[k]->n);
        next = build_text(b, (um_str){b->text.data, b->text.len}, next);
        i = first;
    }
    return next;
}

static int32_t split(um_graph *g, const int32_t *node, int32_t n) {
    const int32_t first = g->n_branches;
    for (int32_t i = 0; i < n; i++) add_branch(g, node[i]);
    return add_node(g, (um_node){.kind = UM_NODE_SPLIT, .index = first, .n = n});
}

static int32_t build_either(builder *b, const um_expr *e, int32_t next) {
    if (e->n == 1) return build(b, e->part[0], next);
    int32_t *node = UM_NEW_ARRAY(int32_t, (size_t)e->n + 1);
    for (int32_t i = 0; i < e->n; i++) node[i] = build(b, e->part[i], next);
    int32_t at = split(b->g, node, e->n);
    um_free(node);
    return at;
}

static int32_t build_repeat(builder *b, const um_expr *e, int32_t next) {
    um_graph *g = b->g;
    const um_expr *part = e->part[0];
    int32_t at = next;
    if (e->max < 0) {
        at = split(g, (int32_t[]){next, next}, 2);
        int32_t loop = build(b, part, at);
        g->branch[g->node[at].index] = loop;
    }
    for (int32_t i = e->min; i < e->max && g->n_nodes < UM_GRAPH_NODES_MAX; i++) {
        int32_t once = build(b, part, at);
        at = split(g, (int32_t[]){once, next}, 2);
    }
    for (int32_t i = 0; i < e->min && g->n_nodes < UM_GRAPH_NODES_MAX; i++) at = build(b, part, at);
    return at;
}

/* Builds an expression in front of the node `next`, and returns the node that it begins with. */
static int32_t build(builder *b, const um_expr *e, int32_t next) {
    um_graph *g = b->g;
    switch (e->kind) {
    case UM_EXPR_BYTES:
        return add_node(g, (um_node){.kind = UM_NODE_BYTES, .next = next, .index = get_set(g, e->bytes)});
    case UM_EXPR_TEXT: return build_text(b, (um_str){e->text, (size_t)e->n}, next);
    case UM_EXPR_JOIN: return build_join(b, e, next);
    case UM_EXPR_EITHER: return build_either(b, e, next);
    case UM_EXPR_REPEAT: return build_repeat(b, e, next);
    case UM_EXPR_CALL: return add_node(g, (um_node){.kind = UM_NODE_CALL, .next = next, .index = e->rule});
    }
    return next;
}

static void build_rules(um_graph *g, const um_rules *rules, const um_vocabulary *v) {
    builder b = {.g = g, .v = v};
    for (int32_t r = 0; r < rules->n; r++) {
        g->first[r] = g->n_nodes;
        int32_t end = add_node(g, (um_node){.kind = UM_NODE_END});
        g->entry[r] = build(&b, rules->rule[r].body, end);
    }
    g->first[rules->n] = g->n_nodes;
    um_buf_free(&b.text);
    um_free(b.len);
}

/* ---- Classes of bytes -------------------------------------------------------------------------------------------- */

/* Divides the classes until no set contains a part of a class only. */
static void find_classes(um_graph *g) {
    g->n_classes = 1;
    for (int32_t k = 0; k < g->n_sets && g->n_classes < 256; k++) {
        int32_t inside[256], n_before = g->n_classes, size[256] = {0}, hits[256] = {0};
        for (int b = 0; b < 256; b++) {
            size[g->byte_class[b]]++;
            hits[g->byte_class[b]] += um_graph_has(g, k, (uint8_t)b);
        }
        for (int32_t c = 0; c < n_before; c++) inside[c] = hits[c] && hits[c] < size[c] ? g->n_classes++ : c;
        for (int b = 0; b < 256; b++)
            if (um_graph_has(g, k, (uint8_t)b)) g->byte_class[b] = (uint8_t)inside[g->byte_class[b]];
    }
    for (int b = 255; b >= 0; b--) g->class_byte[g->byte_class[b]] = (uint8_t)b;
}

/* ---- Recursion --------------------------------------------------------------------------------------------------- */

/* A rule whose calls are being followed. */
typedef struct visited {
    int32_t rule;
    int32_t node; /* the next one to look at */
    bool cyclic;  /* it calls itself */
} visited;

typedef struct search {
    um_graph *g;
    int32_t *order, *low, *stack; /* [n_rules] */
    int32_t *component;           /* [n_rules] */
    visited *trail;               /* [n_rules] each rule is called by the one before it */
    bool *open, *path;            /* [n_rules] path: the rule is on the trail */
    bool uncounted;               /* follow only the calls that don't count for the depth */
    int32_t n, n_stack, n_trail, n_components;
} search;

static bool ends_rule(const um_graph *g, const um_node *k) { return g->node[k->next].kind == UM_NODE_END; }
static bool counts(const um_graph *g, const um_node *k) { return g->recursive[k->index] && !ends_rule(g, k); }

static void enter(search *s, int32_t r) {
    s->order[r] = s->low[r] = ++s->n;
    s->stack[s->n_stack++] = r;
    s->open[r] = s->path[r] = true;
    s->trail[s->n_trail++] = (visited){.rule = r, .node = s->g->first[r]};
}

/* Gives the caller the facts of a called rule that has been visited: its lowest open rule, and whether it is deep. */
static void join_called(search *s, int32_t caller, int32_t called) {
    if (s->open[called]) s->low[caller] = UM_MIN(s->low[caller], s->low[called]);
    s->g->deep[caller] |= s->g->deep[called];
}

/* Follows the next call of the last rule on the trail. Returns false if there is none. */
static bool follow(search *s) {
    um_graph *g = s->g;
    visited *at = &s->trail[s->n_trail - 1];
    while (at->node < g->first[at->rule + 1]) {
        const um_node *k = &g->node[at->node++];
        if (k->kind != UM_NODE_CALL || (s->uncounted && counts(g, k))) continue;
        at->cyclic |= k->index == at->rule;
        g->recursive[k->index] |= s->path[k->index] && !s->uncounted;
        if (s->order[k->index]) {
            join_called(s, at->rule, k->index);
            continue;
        }
        enter(s, k->index);
        return true;
    }
    return false;
}

/* Takes the last rule from the trail. If it is the first of its component that was entered, the component is complete.
 */
static void leave(search *s) {
    um_graph *g = s->g;
    const visited last = s->trail[--s->n_trail];
    const int32_t r = last.rule;
    s->path[r] = false;
    if (s->low[r] == s->order[r]) {
        const bool cyclic = last.cyclic || s->stack[s->n_stack - 1] != r;
        int32_t member;
        do {
            member = s->stack[--s->n_stack];
            s->open[member] = false;
            s->component[member] = s->n_components;
            g->deep[member] |= cyclic || g->deep[r];
        } while (member != r);
        s->n_components++;
    }
    if (s->n_trail) join_called(s, s->trail[s->n_trail - 1].rule, r);
}

/* Finds the strongly connected components of the calls (Tarjan, 1972), and the rules where their cycles close. */
static void visit(search *s, int32_t r) {
    enter(s, r);
    while (s->n_trail)
        if (!follow(s)) leave(s);
}

/* Finds the components of all calls, or of those that don't count for the depth. Returns their number. */
static int32_t find_components(um_graph *g, bool uncounted, int32_t *component) {
    const size_t n = (size_t)g->n_rules;
    search s = {.g = g,
                .order = UM_NEW_ARRAY(int32_t, n),
                .low = UM_NEW_ARRAY(int32_t, n),
                .stack = UM_NEW_ARRAY(int32_t, n),
                .component = component,
                .trail = UM_NEW_ARRAY(visited, n),
                .open = UM_NEW_ARRAY(bool, n),
                .path = UM_NEW_ARRAY(bool, n),
                .uncounted = uncounted};
    visit(&s, g->root);
    for (int32_t r = 0; r < g->n_rules; r++)
        if (!s.order[r]) visit(&s, r);
    um_free(s.order);
    um_free(s.low);
    um_free(s.stack);
    um_free(s.trail);
    um_free(s.open);
    um_free(s.path);
    return s.n_components;
}

/* A call at the end of a rule does not count, even if the rule is recursive. So another call of the same cycle, which
 * makes the stack grow, must count: the rules that such calls lead to become recursive, too. */
static void count_growth(um_graph *g) {
    int32_t *component = UM_NEW_ARRAY(int32_t, (size_t)g->n_rules);
    bool *grows = UM_NEW_ARRAY(bool, (size_t)g->n_rules);
    find_components(g, true, component);
    for (int32_t r = 0; r < g->n_rules; r++)
        for (int32_t i = g->first[r]; i < g->first[r + 1]; i++) {
            const um_node *k = &g->node[i];
            if (k->kind == UM_NODE_CALL && !ends_rule(g, k) && !counts(g, k) && component[k->index] == component[r])
                grows[k->index] = true;
        }
    for (int32_t r = 0; r < g->n_rules; r++) g->recursive[r] |= grows[r];
    um_free(component);
    um_free(grows);
}

static int32_t find_recursion(um_graph *g) {
    const int32_t n_components = find_components(g, false, g->component);
    count_growth(g);
    bool any = false;
    for (int32_t r = 0; r < g->n_rules; r++) {
        any |= g->recursive[r];
        for (int32_t i = g->first[r]; i < g->first[r + 1]; i++) g->node[i].deep = g->deep[r];
    }
    if (!any) g->depth = 0;
    return n_components;
}

/* ---- Distances --------------------------------------------------------------------------------------------------- */

static int32_t plus(int32_t a, int32_t b) { return UM_MIN(a + b, UM_FAR); }

static int32_t distance_of(const um_graph *g, const um_node *k, int32_t depth) {
    const int32_t *at = g->distance + (size_t)depth * (size_t)g->n_nodes;
    switch (k->kind) {
    case UM_NODE_END: return 0;
    case UM_NODE_BYTES: {
        const um_byte_set *s = &g->set[k->index];
        return s->bits[0] | s->bits[1] | s->bits[2] | s->bits[3] ? plus(1, at[k->next]) : UM_FAR;
    }
    case UM_NODE_SPLIT: {
        int32_t least = UM_FAR;
        for (int32_t i = 0; i < k->n; i++) least = UM_MIN(least, at[g->branch[k->index + i]]);
        return least;
    }
    case UM_NODE_CALL: {
        const int32_t entry = g->entry[k->index];
        if (!counts(g, k)) return plus(at[entry], at[k->next]);
        return depth == g->depth ? UM_FAR : plus(at[g->n_nodes + entry], at[k->next]);
    }
    }
    return UM_FAR;
}

/* Computes the distances of rules that call each other, at one depth. Returns whether the work was bounded. */
static bool relax(um_graph *g, const int32_t *rule, int32_t n, int32_t depth) {
    int32_t *at = g->distance + (size_t)depth * (size_t)g->n_nodes;
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t k = 0; k < n; k++) {
            const int32_t r = rule[k];
            g->work -= g->first[r + 1] - g->first[r];
            for (int32_t i = g->first[r]; i < g->first[r + 1]; i++) {
                int32_t d = distance_of(g, &g->node[i], depth);
                changed |= d != at[i];
                at[i] = d;
            }
        }
        if (g->work < 0) return false;
    }
    return true;
}

/* Computes all distances: called rules first, and the largest depth first. */
static bool find_distances(um_graph *g, int32_t n_components) {
    const size_t n = (size_t)g->n_rules;
    int32_t *rule = UM_NEW_ARRAY(int32_t, n), *start = UM_NEW_ARRAY(int32_t, (size_t)n_components + 2);
    for (size_t r = 0; r < n; r++) start[g->component[r] + 2]++;
    for (int32_t c = 2; c <= n_components; c++) start[c] += start[c - 1];
    for (size_t r = 0; r < n; r++) rule[start[g->component[r] + 1]++] = (int32_t)r;
    bool bounded = true;
    for (int32_t depth = g->depth; depth >= 0; depth--)
        for (int32_t c = 0; c < n_components && bounded; c++)
            bounded = relax(g, rule + start[c], start[c + 1] - start[c], depth);
    um_free(rule);
    um_free(start);
    return bounded;
}

/* ---- Life -------------------------------------------------------------------------------------------------------- */

static um_status check_size(const um_graph *g, um_err *err) {
    if (g->n_nodes < UM_GRAPH_NODES_MAX) return UM_OK;
    return um_fail(err, UM_ELIMIT,
                   "the constraint is too large: it needs more than %d nodes, because of large bounds "
                   "of repetitions or many alternatives",
                   UM_GRAPH_NODES_MAX);
}

static um_status fail_complex(um_err *err) {
    return um_fail(err, UM_ELIMIT,
                   "the constraint is too complex: it has more than %d different classes of characters, "
                   "or its rules call each other in too many ways",
                   UM_GRAPH_SETS_MAX);
}

um_status um_graph_init(um_graph *g, const um_rules *rules, const um_vocabulary *v, int32_t depth, um_err *err) {
    const size_t n = (size_t)rules->n;
    assert(depth >= 1 && depth <= UM_DEPTH_MAX);
    *g = (um_graph){.n_rules = rules->n,
                    .root = rules->root,
                    .first = UM_NEW_ARRAY(int32_t, n + 1),
                    .entry = UM_NEW_ARRAY(int32_t, n),
                    .component = UM_NEW_ARRAY(int32_t, n),
                    .recursive = UM_NEW_ARRAY(bool, n),
                    .deep = UM_NEW_ARRAY(bool, n),
                    .depth = depth,
                    .work = INT64_C(1) << 26};
    memset(g->single, -1, sizeof g->single);
    memcpy(g->alphabet, v->alphabet, sizeof g->alphabet);
    build_rules(g, rules, v);
    um_status st = check_size(g, err);
    if (st) return st;
    if (g->work < 0) return fail_complex(err);
    find_classes(g);
    int32_t n_components = find_recursion(g);
    size_t cells = um_mul((size_t)g->depth + 1, (size_t)g->n_nodes);
    g->distance = um_alloc(um_mul(cells, sizeof *g->distance));
    for (size_t i = 0; i < cells; i++) g->distance[i] = UM_FAR;
    if (!find_distances(g, n_components)) return fail_complex(err);
    if (g->distance[g->entry[g->root]] == UM_FAR) return um_fail(err, UM_EINVAL, "no text matches the constraint");
    return UM_OK;
}

void um_graph_free(um_graph *g) {
    um_free(g->node);
    um_free(g->branch);
    um_free(g->set);
    um_free(g->first);
    um_free(g->entry);
    um_free(g->component);
    um_free(g->recursive);
    um_free(g->deep);
    um_free(g->distance);
}
