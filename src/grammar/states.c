/* The states of a language, and the steps between them. */
#include "grammar/automaton.h"

void *um_language_take(um_language *l, size_t n) {
    n = (n + 15) / 16 * 16;
    if (n > l->size - l->used) {
        l->full = true;
        return NULL;
    }
    uint8_t *p = l->memory + l->used;
    l->used += n;
    memset(p, 0, n);
    return p;
}

static int32_t *take_unknown(um_language *l) {
    int32_t *next = (int32_t *)um_language_take(l, (size_t)l->g.n_classes * sizeof *next);
    if (next) memset(next, -1, (size_t)l->g.n_classes * sizeof *next);
    return next;
}

/* ---- Frames ------------------------------------------------------------------------------------------------------ */

static uint32_t hash_of(uint64_t a, uint64_t b) { return (uint32_t)(um_rng_mix(a * UM_RNG_STEP + b) >> 32); }

/* Returns the stack with one more entry. `calls`: 1 if the called rule is recursive. */
static int32_t push(um_language *l, int32_t parent, int32_t back, int32_t calls) {
    const int32_t depth = l->frame[parent].depth + calls;
    uint32_t at = hash_of((uint64_t)(uint32_t)parent << 32 | (uint32_t)back, (uint64_t)calls);
    for (;; at++) {
        int32_t *slot = &l->frames.slot[at & l->frames.mask];
        if (*slot) {
            const um_frame *f = &l->frame[*slot];
            if (f->parent == parent && f->back == back && f->depth == depth) return *slot;
            continue;
        }
        if (l->n_frames == UM_FRAMES_MAX) {
            l->full = true;
            return 0;
        }
        l->frame[l->n_frames] = (um_frame){back, parent, depth};
        return *slot = l->n_frames++;
    }
}

static int32_t calls_of(const um_language *l, int32_t frame) {
    return l->frame[frame].depth - l->frame[l->frame[frame].parent].depth;
}

static int32_t bottom_of(const um_language *l, int32_t stack) {
    while (l->frame[stack].parent) stack = l->frame[stack].parent;
    return stack;
}

/* Lists the entries of a stack, the top first. Returns their number. */
static int32_t list_stack(um_language *l, int32_t stack) {
    int32_t n = 0;
    for (; stack; stack = l->frame[stack].parent) l->trail[n++] = stack;
    return n;
}

/* Returns the stack with the first n entries of the list on top of it. */
static int32_t push_listed(um_language *l, int32_t stack, int32_t n) {
    for (int32_t i = n - 1; i >= 0; i--) stack = push(l, stack, l->frame[l->trail[i]].back, calls_of(l, l->trail[i]));
    return stack;
}

/* Returns the stack on top of one more entry at its bottom. */
static int32_t raise(um_language *l, int32_t stack, int32_t back, int32_t calls) {
    const int32_t n = list_stack(l, stack);
    return push_listed(l, push(l, 0, back, calls), n);
}

/* Returns the stack without the entry at its bottom. */
static int32_t lower(um_language *l, int32_t stack) { return push_listed(l, 0, list_stack(l, stack) - 1); }

/* ---- Closure ----------------------------------------------------------------------------------------------------- */

static void start_closure(um_language *l, int32_t base_depth) {
    l->n_open = l->n_found = 0;
    l->base_depth = base_depth;
    l->done = false;
    l->closure++;
}

/* Remembers a place to visit, unless this closure has seen it. */
static void open_place(um_language *l, int32_t node, int32_t stack) {
    const uint64_t key = (uint64_t)(uint32_t)node << 32 | (uint32_t)stack;
    const uint32_t mask = UM_PLACES_MAX * 2 - 1;
    uint32_t at = hash_of(key, 0);
    while (l->seen_in[at & mask] == l->closure) {
        if (l->seen[at & mask] == key) return;
        at++;
    }
    if (l->n_open == UM_PLACES_MAX) {
        l->full = true;
        return;
    }
    l->seen_in[at & mask] = l->closure;
    l->seen[at & mask] = key;
    l->open[l->n_open++] = (um_place){node, stack};
}

static void open_call(um_language *l, const um_node *k, int32_t stack) {
    const um_graph *g = &l->g;
    const int32_t entry = g->entry[k->index], calls = g->recursive[k->index];
    const int32_t depth = l->base_depth + l->frame[stack].depth;
    /* A call at the end of a rule needs no entry: the caller's end is the caller's. */
    if (g->node[k->next].kind == UM_NODE_END) open_place(l, entry, stack);
    else if (depth + calls <= g->depth && um_distance_at(l, depth, k->next) < UM_FAR)
        open_place(l, entry, push(l, stack, k->next, calls));
}

/* Finds the places of kind BYTES that the open places lead to. */
static void close_places(um_language *l) {
    const um_graph *g = &l->g;
    um_language_work(l, 16);
    for (int32_t i = 0; i < l->n_open; i++) {
        const um_place p = l->open[i];
        const um_node *k = &g->node[p.node];
        um_language_work(l, 4);
        switch (k->kind) {
        case UM_NODE_BYTES:
            if (um_distance_at(l, l->base_depth + l->frame[p.stack].depth, p.node) < UM_FAR) l->found[l->n_found++] = p;
            break;
        case UM_NODE_SPLIT:
            for (int32_t b = 0; b < k->n; b++) open_place(l, g->branch[k->index + b], p.stack);
            break;
        case UM_NODE_CALL: open_call(l, k, p.stack); break;
        case UM_NODE_END:
            if (p.stack) open_place(l, l->frame[p.stack].back, l->frame[p.stack].parent);
            else l->done = true;
        }
    }
}

/* ---- Sets -------------------------------------------------------------------------------------------------------- */

static int compare_places(const void *a, const void *b) {
    const um_place *x = (const um_place *)a, *y = (const um_place *)b;
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    return x->stack < y->stack ? -1 : x->stack > y->stack;
}

/* Sorts in place without memory of its own; most sets have a few places. */
static void sort_places(um_place *p, int32_t n) {
    if (n > 64) {
        for (int32_t gap = n / 2; gap > 0; gap /= 2)
            for (int32_t i = gap; i < n; i++)
                for (int32_t k = i; k >= gap && compare_places(&p[k - gap], &p[k]) > 0; k -= gap) {
                    const um_place t = p[k];
                    p[k] = p[k - gap];
                    p[k - gap] = t;
                }
        return;
    }
    for (int32_t i = 1; i < n; i++)
        for (int32_t k = i; k > 0 && compare_places(&p[k - 1], &p[k]) > 0; k--) {
            const um_place t = p[k];
            p[k] = p[k - 1];
            p[k - 1] = t;
        }
}

int32_t um_place_distance(const um_language *l, int32_t base_depth, um_place p) {
    int32_t d = um_distance_at(l, base_depth + l->frame[p.stack].depth, p.node);
    for (int32_t f = p.stack; f; f = l->frame[f].parent)
        d += um_distance_at(l, base_depth + l->frame[l->frame[f].parent].depth, l->frame[f].back);
    return d;
}

static bool is_deep(const um_language *l) {
    for (int32_t i = 0; i < l->n_found; i++) {
        if (l->g.node[l->found[i].node].deep) return true;
        for (int32_t f = l->found[i].stack; f; f = l->frame[f].parent)
            if (l->g.node[l->frame[f].back].deep) return true;
    }
    return false;
}

/* Returns the set of the found places. */
static int32_t found_set(um_language *l) {
    if (!l->n_found && !l->done) return 0;
    sort_places(l->found, l->n_found);
    const int32_t depth = is_deep(l) ? l->base_depth : 0;
    const size_t bytes = (size_t)l->n_found * sizeof *l->found;
    uint32_t at = hash_of((uint64_t)depth << 1 | l->done, (uint64_t)l->n_found);
    for (int32_t i = 0; i < l->n_found; i++)
        at = hash_of((uint64_t)(uint32_t)l->found[i].node << 32 | (uint32_t)l->found[i].stack, at);
    int32_t *slot = &l->sets.slot[at & l->sets.mask];
    for (; *slot; slot = &l->sets.slot[++at & l->sets.mask]) {
        const um_places *s = &l->set[*slot];
        if (s->n == l->n_found && s->depth == depth && s->done == l->done && !memcmp(s->place, l->found, bytes))
            return *slot;
    }
    um_place *place = (um_place *)um_language_take(l, bytes);
    int32_t *next = take_unknown(l);
    if (l->n_sets == UM_STATES_MAX) l->full = true;
    if (l->full) return 0;
    memcpy(place, l->found, bytes);
    l->set[l->n_sets] = (um_places){.place = place, .n = l->n_found, .depth = depth, .done = l->done, .next = next};
    return *slot = l->n_sets++;
}

int32_t um_set_close(um_language *l) {
    close_places(l);
    return found_set(l);
}

int32_t um_set_step(um_language *l, int32_t set, uint8_t byte_class) {
    int32_t *next = &l->set[set].next[byte_class];
    if (*next >= 0) return *next;
    const um_places s = l->set[set];
    const uint8_t byte = l->g.class_byte[byte_class];
    start_closure(l, s.depth);
    for (int32_t i = 0; i < s.n; i++) {
        const um_node *k = &l->g.node[s.place[i].node];
        if (um_graph_has(&l->g, k->index, byte)) open_place(l, k->next, s.place[i].stack);
    }
    return *next = um_set_close(l);
}

/* ---- States ------------------------------------------------------------------------------------------------------ */

static int32_t get_state(um_language *l, int32_t set, int32_t stack) {
    uint32_t at = hash_of((uint64_t)(uint32_t)set << 32 | (uint32_t)stack, 1);
    int32_t *slot = &l->states.slot[at & l->states.mask];
    for (; *slot; slot = &l->states.slot[++at & l->states.mask])
        if (l->state[*slot].set == set && l->state[*slot].stack == stack) return *slot;
    int32_t *next = take_unknown(l);
    if (l->n_states == UM_STATES_MAX) l->full = true;
    if (l->full) return UM_DEAD;
    l->state[l->n_states] = (um_state){.set = set, .stack = stack, .rest = -1, .spelling = -1, .next = next};
    return *slot = l->n_states++;
}

/* Returns the set that a set becomes when the rule at its bottom may end: the places where the caller continues are
 * added, and all places get the caller's entry. */
static int32_t leave_rule(um_language *l, int32_t set, int32_t stack) {
    const um_places s = l->set[set];
    const um_frame top = l->frame[stack];
    start_closure(l, l->frame[top.parent].depth);
    for (int32_t i = 0; i < s.n; i++)
        open_place(l, s.place[i].node, raise(l, s.place[i].stack, top.back, calls_of(l, stack)));
    open_place(l, top.back, 0);
    return um_set_close(l);
}

/* Returns the entry at the bottom of all stacks of a set, 0 if they have none in common. */
static int32_t common_bottom(const um_language *l, const um_places *s) {
    if (s->done || !s->n) return 0;
    const int32_t bottom = bottom_of(l, s->place[0].stack);
    for (int32_t i = 1; i < s->n && bottom; i++)
        if (bottom_of(l, s->place[i].stack) != bottom) return 0;
    return bottom;
}

/* Returns the set without the entry at the bottom of its stacks. depth: recursive rules below its new bottom. */
static int32_t enter_rule(um_language *l, int32_t set, int32_t depth) {
    const um_places s = l->set[set];
    start_closure(l, depth);
    for (int32_t i = 0; i < s.n; i++) open_place(l, s.place[i].node, lower(l, s.place[i].stack));
    return um_set_close(l);
}

int32_t um_state_of(um_language *l, int32_t set, int32_t stack) {
    while (set && stack && l->set[set].done) {
        set = leave_rule(l, set, stack);
        stack = l->frame[stack].parent;
    }
    for (int32_t bottom; set && (bottom = common_bottom(l, &l->set[set]));) {
        stack = push(l, stack, l->frame[bottom].back, l->frame[bottom].depth);
        set = enter_rule(l, set, l->frame[stack].depth);
    }
    return set && !l->full ? get_state(l, set, stack) : UM_DEAD;
}

int32_t um_state_step(um_language *l, int32_t state, uint8_t byte_class) {
    int32_t *next = &l->state[state].next[byte_class];
    if (*next >= 0) return *next;
    const um_state s = l->state[state];
    return *next = um_state_of(l, um_set_step(l, s.set, byte_class), s.stack);
}

/* ---- Forced text ------------------------------------------------------------------------------------------------- */

/* Returns the only byte that can follow a state, -1 if there are several or the text may end. */
static int only_byte(const um_language *l, int32_t state) {
    const um_places *s = &l->set[l->state[state].set];
    uint64_t all[4] = {0};
    int n = 0, byte = -1;
    if (s->done) return -1;
    for (int32_t i = 0; i < s->n; i++)
        for (int w = 0; w < 4; w++) all[w] |= l->g.set[l->g.node[s->place[i].node].index].bits[w];
    for (int w = 0; w < 4; w++) {
        n += __builtin_popcountll(all[w]);
        if (all[w]) byte = w * 64 + __builtin_ctzll(all[w]);
    }
    return n == 1 ? byte : -1;
}

/* Writes the text that must follow the state, and goes on to the state after it. */
static int32_t forced_text(um_language *l, int32_t *state, char out[UM_FORCED_MAX]) {
    int32_t n = 0;
    for (int byte; n < UM_FORCED_MAX && *state && (byte = only_byte(l, *state)) >= 0; n++) {
        out[n] = (char)byte;
        *state = um_state_step(l, *state, l->g.byte_class[byte]);
    }
    return n;
}

/* Returns the length of the first token of a text that must follow: the tokenizer's, where it ends within a text of the
 * grammar, else the longest. */
static int32_t first_token(um_language *l, int32_t state, um_str text) {
    const um_places *s = &l->set[l->state[state].set];
    const int32_t cut = s->n == 1 ? l->g.node[s->place[0].node].cut : 0;
    if (cut > 0 && cut <= (int32_t)text.n) {
        const int32_t node = um_vocabulary_find(l->v, 0, (um_str){text.p, (size_t)cut});
        if (node > 0 && l->v->first[node] < l->v->first[node + 1]) return cut;
    }
    return um_vocabulary_longest(l->v, text);
}

int32_t um_state_spell(um_language *l, int32_t state, char text[UM_FORCED_MAX], int32_t *behind) {
    *behind = state;
    const int32_t n = forced_text(l, behind, text);
    um_state *s = &l->state[state];
    s->spelling = n ? first_token(l, state, (um_str){text, (size_t)n}) : 0;
    s->whole = s->spelling == n;
    return n;
}
