/* The tokens that lead from a state to others: walks through the trie of the vocabulary.
 *
 * Most of a walk stays inside of the rule at the bottom of the stacks, and is the same for all states that share the
 * set of places. It is done once per set. Where that rule can end, the walk leaves the set; each state goes on from
 * these exits. */
#include "grammar/automaton.h"

/* ---- Groups ------------------------------------------------------------------------------------------------------ */

static void start_groups(um_language *l) {
    l->n_pairs = l->n_groups = 0;
    l->n_walks++;
}

static void add_tokens(um_language *l, int32_t node, int32_t to) {
    if (l->group_in[to] != l->n_walks) {
        l->group_in[to] = l->n_walks;
        l->group[to] = l->n_groups;
        l->member[l->n_groups] = to;
        l->n_members[l->n_groups++] = 0;
    }
    for (int32_t i = l->v->first[node]; i < l->v->first[node + 1]; i++) {
        l->pair_to[l->n_pairs] = l->group[to];
        l->pair_id[l->n_pairs++] = l->v->id[i];
        l->n_members[l->group[to]]++;
    }
}

static bool has_tokens(const um_language *l, int32_t node) { return l->v->first[node] < l->v->first[node + 1]; }

/* Reserves the lists of the groups. A group of many tokens gets a bitmap. */
static um_move *take_moves(um_language *l, int32_t spare) {
    const int32_t words = UM_CEIL_DIV(l->v->source.n, 32);
    um_move *move = (um_move *)um_language_take(l, (size_t)(l->n_groups + spare) * sizeof *move);
    for (int32_t k = 0; k < l->n_groups && move; k++) {
        void *list = um_language_take(l, (size_t)UM_MIN(l->n_members[k], words) * sizeof(int32_t));
        move[k].to = l->member[k];
        if (l->n_members[k] <= words) move[k].tokens.id = (const int32_t *)list;
        else move[k].tokens.bits = (const uint32_t *)list;
    }
    return l->full ? NULL : move;
}

/* Stores the groups as moves, followed by room for `spare` more. NULL: no memory. */
static um_move *end_groups(um_language *l, int32_t spare) {
    um_move *move = take_moves(l, spare);
    for (int32_t i = 0; i < l->n_pairs && move; i++) {
        um_tokens *t = &move[l->pair_to[i]].tokens;
        const int32_t id = l->pair_id[i];
        if (t->id) ((int32_t *)(uintptr_t)t->id)[t->n] = id;
        else ((uint32_t *)(uintptr_t)t->bits)[id / 32] |= UINT32_C(1) << id % 32;
        t->n++;
    }
    return move;
}

/* ---- Walks of sets ----------------------------------------------------------------------------------------------- */

/* Walks as far as the rule at the bottom can't have ended. Returns the number of exits. */
static int32_t walk_inside(um_language *l, int32_t set) {
    const um_vocabulary *v = l->v;
    int32_t n_exits = 0;
    l->path[0] = set;
    for (int32_t i = 1; i < v->n_nodes && !l->full;) {
        um_language_work(l, 1);
        const int32_t depth = v->depth[i], before = l->path[depth - 1];
        const int32_t to = um_set_step(l, before, l->g.byte_class[v->byte[i]]);
        if (to && !l->set[to].done) {
            l->path[depth] = to;
            if (has_tokens(l, i)) add_tokens(l, i, to);
            i++;
            continue;
        }
        if (to) l->found_exit[n_exits++] = (um_exit){i, before};
        i = v->skip[i];
    }
    return n_exits;
}

static const um_walk *walk_of(um_language *l, int32_t set) {
    if (l->set[set].walk) return l->set[set].walk;
    start_groups(l);
    const int32_t n_exits = walk_inside(l, set);
    um_walk *w = (um_walk *)um_language_take(l, sizeof *w);
    um_exit *exits = (um_exit *)um_language_take(l, (size_t)n_exits * sizeof *exits);
    um_move *move = end_groups(l, 0);
    if (!w || !exits || !move) return NULL;
    memcpy(exits, l->found_exit, (size_t)n_exits * sizeof *exits);
    *w = (um_walk){l->n_groups, n_exits, move, exits};
    return l->set[set].walk = w;
}

/* ---- Walks of states --------------------------------------------------------------------------------------------- */

/* Walks the trie from `node`, where the state `at` is reached. */
static void walk_from(um_language *l, int32_t node, int32_t at) {
    const um_vocabulary *v = l->v;
    l->path[v->depth[node]] = at;
    if (has_tokens(l, node)) add_tokens(l, node, at);
    for (int32_t i = node + 1; i < v->skip[node] && !l->full;) {
        um_language_work(l, 1);
        const int32_t depth = v->depth[i];
        const int32_t to = um_state_step(l, l->path[depth - 1], l->g.byte_class[v->byte[i]]);
        if (to == UM_DEAD) {
            i = v->skip[i];
            continue;
        }
        l->path[depth] = to;
        if (has_tokens(l, i)) add_tokens(l, i, to);
        i++;
    }
}

/* Walks on from the exits of the state's set. */
static void walk_exits(um_language *l, const um_walk *w, int32_t stack) {
    int32_t set = 0, before = UM_DEAD;
    for (int32_t i = 0; i < w->n_exits; i++) {
        const um_exit x = w->exits[i];
        if (x.set != set) before = um_state_of(l, set = x.set, stack);
        if (!before) continue;
        const int32_t at = um_state_step(l, before, l->g.byte_class[l->v->byte[x.node]]);
        if (at) walk_from(l, x.node, at);
    }
}

static const um_moves *store(um_language *l, const um_move *move, int32_t n) {
    um_moves *m = move ? (um_moves *)um_language_take(l, sizeof *m) : NULL;
    if (m) *m = (um_moves){n, move};
    return m;
}

/* Returns the moves from a state with a text that must follow: the token of its spelling, and if that is the whole
 * text, all tokens that begin with it. */
static const um_moves *forced_moves(um_language *l, int32_t state, const char *text, int32_t behind) {
    const um_str token = {text, (size_t)l->state[state].spelling};
    const int32_t node = um_vocabulary_find(l->v, 0, token);
    if (l->full) return NULL; /* `behind` may be missing */
    start_groups(l);
    if (l->state[state].whole) walk_from(l, node, behind);
    else add_tokens(l, node, um_language_step(l, state, token));
    return store(l, end_groups(l, 0), l->n_groups);
}

static const um_moves *free_moves(um_language *l, int32_t state) {
    const um_state s = l->state[state];
    const um_walk *w = walk_of(l, s.set);
    if (!w) return NULL;
    start_groups(l);
    walk_exits(l, w, s.stack);
    um_move *move = end_groups(l, w->n);
    int32_t n = l->n_groups;
    for (int32_t i = 0; i < w->n && move; i++) {
        const int32_t to = um_state_of(l, w->move[i].to, s.stack);
        if (to) move[n++] = (um_move){to, w->move[i].tokens};
    }
    return store(l, move, n);
}

const um_moves *um_language_moves(um_language *l, int32_t state) {
    static const um_moves none;
    char text[UM_FORCED_MAX];
    int32_t behind;
    if (l->state[state].moves) return l->state[state].moves;
    const int32_t n = um_state_spell(l, state, text, &behind);
    const um_moves *m = n ? forced_moves(l, state, text, behind) : free_moves(l, state);
    if (!m) return &none;
    return l->state[state].moves = m;
}

bool um_language_spells(um_language *l, int32_t state, um_str token) {
    char text[UM_FORCED_MAX];
    int32_t behind;
    const um_state *s = &l->state[state];
    if (s->spelling < 0) um_state_spell(l, state, text, &behind);
    return s->whole ? (int32_t)token.n >= s->spelling : (int32_t)token.n == s->spelling;
}
