/* Languages: memory, and what a state knows about the rest of the text. */
#include "grammar/automaton.h"

/* Bytes reserved for sets, states and moves. The system provides a page of them when it is first written. */
#define MEMORY ((size_t)64 << 20)
/* All work on a language: about half a second. An object of 100 properties takes a tenth of it. */
#define WORK (INT64_C(1) << 27)

static void *array(size_t n, size_t size) { return um_zalloc(um_mul(n, size)); }

static um_table new_table(uint32_t slots) { return (um_table){(int32_t *)array(slots, sizeof(int32_t)), slots - 1}; }

static void allocate(um_language *l) {
    const um_vocabulary *v = l->v;
    l->frame = (um_frame *)array(UM_FRAMES_MAX, sizeof *l->frame);
    l->set = (um_places *)array(UM_STATES_MAX, sizeof *l->set);
    l->state = (um_state *)array(UM_STATES_MAX, sizeof *l->state);
    l->frames = new_table(UM_FRAMES_MAX * 2);
    l->sets = new_table(UM_STATES_MAX * 2);
    l->states = new_table(UM_STATES_MAX * 2);
    l->open = (um_place *)array(UM_PLACES_MAX, sizeof *l->open);
    l->found = (um_place *)array(UM_PLACES_MAX, sizeof *l->found);
    l->seen = (uint64_t *)array(UM_PLACES_MAX * 2, sizeof *l->seen);
    l->seen_in = (uint32_t *)array(UM_PLACES_MAX * 2, sizeof *l->seen_in);
    l->trail = (int32_t *)array(UM_FRAMES_MAX, sizeof *l->trail);
    l->path = (int32_t *)array((size_t)v->longest + 1, sizeof *l->path);
    l->pair_to = (int32_t *)array((size_t)v->n_ids, sizeof *l->pair_to);
    l->pair_id = (int32_t *)array((size_t)v->n_ids, sizeof *l->pair_id);
    l->group = (int32_t *)array(UM_STATES_MAX, sizeof *l->group);
    l->group_in = (int32_t *)array(UM_STATES_MAX, sizeof *l->group_in);
    l->member = (int32_t *)array(UM_STATES_MAX, sizeof *l->member);
    l->n_members = (int32_t *)array(UM_STATES_MAX, sizeof *l->n_members);
    l->found_exit = (um_exit *)array((size_t)v->n_nodes, sizeof *l->found_exit);
    l->n_frames = l->n_sets = l->n_states = 1;
}

/* Finds the state of the empty text: where the root's text begins. */
static int32_t first_state(um_language *l) {
    l->closure++;
    l->open[l->n_open++] = (um_place){l->g.entry[l->g.root], 0};
    return um_state_of(l, um_set_close(l), 0);
}

um_status um_language_new(um_language **out, const um_rules *rules, const um_vocabulary *v, int32_t depth,
                          um_err *err) {
    um_language *l = UM_NEW(um_language);
    l->v = v;
    pthread_mutex_init(&l->lock, NULL);
    um_status st = um_graph_init(&l->g, rules, v, depth, err);
    if (!st) st = um_try_alloc_unset((void **)&l->memory, MEMORY, 64, "states of a constraint", err);
    if (!st) {
        l->size = MEMORY;
        l->work = WORK;
        allocate(l);
        l->start = first_state(l);
        if (l->full) st = um_fail(err, UM_ELIMIT, "the constraint needs too many states at its start");
    }
    if (st) um_language_free(l);
    else *out = l;
    return st;
}

void um_language_free(um_language *l) {
    if (!l) return;
    um_graph_free(&l->g);
    pthread_mutex_destroy(&l->lock);
    um_free(l->memory);
    void *arrays[] = {l->frame,    l->set,    l->state,     l->frames.slot, l->sets.slot, l->states.slot, l->open,
                      l->found,    l->seen,   l->seen_in,   l->path,        l->pair_to,   l->pair_id,     l->group,
                      l->group_in, l->member, l->n_members, l->found_exit,  l->trail};
    for (size_t i = 0; i < UM_LEN(arrays); i++) um_free(arrays[i]);
    um_free(l);
}

void um_language_lock(um_language *l) { pthread_mutex_lock(&l->lock); }
void um_language_unlock(um_language *l) { pthread_mutex_unlock(&l->lock); }

int32_t um_language_start(const um_language *l) { return l->start; }
int32_t um_language_size(const um_language *l) { return l->n_states; }
bool um_language_is_full(const um_language *l) { return l->full; }

bool um_language_is_worn(const um_language *l) {
    return l->full || l->n_states > UM_STATES_MAX / 2 || l->n_sets > UM_STATES_MAX / 2 ||
           l->n_frames > UM_FRAMES_MAX / 2 || l->used > l->size / 2 || l->work < WORK / 2;
}

bool um_language_accepts(const um_language *l, int32_t state) { return l->set[l->state[state].set].done; }
int32_t um_language_depth(const um_language *l, int32_t state) { return l->frame[l->state[state].stack].depth; }

um_str um_language_token(const um_language *l, int32_t id) { return l->v->source.bytes(l->v->source.arg, id); }

int32_t um_language_step(um_language *l, int32_t state, um_str bytes) {
    for (size_t i = 0; i < bytes.n && state; i++) state = um_state_step(l, state, l->g.byte_class[(uint8_t)bytes.p[i]]);
    return state;
}

/* ---- Rest -------------------------------------------------------------------------------------------------------- */

/* Returns the first byte of a shortest rest. */
static uint8_t shortest_byte(const um_language *l, const um_places *s) {
    const um_graph *g = &l->g;
    int32_t least = UM_FAR, node = s->place[0].node;
    for (int32_t i = 0; i < s->n; i++) {
        const int32_t d = um_place_distance(l, s->depth, s->place[i]);
        if (d >= least) continue;
        least = d;
        node = s->place[i].node;
    }
    for (int b = 0; b < 256; b++)
        if (um_graph_has(g, g->node[node].index, (uint8_t)b)) return (uint8_t)b;
    return 0;
}

/* Returns the state after the next token of the text that completes a state. */
static int32_t next_to_end(um_language *l, int32_t state) {
    char text[UM_FORCED_MAX];
    int32_t behind;
    if (um_state_spell(l, state, text, &behind))
        return um_language_step(l, state, (um_str){text, (size_t)l->state[state].spelling});
    return um_state_step(l, state, l->g.byte_class[shortest_byte(l, &l->set[l->state[state].set])]);
}

/* Follows a shortest text to a known rest or to its end, and then once more to store what it has found. */
int32_t um_language_rest(um_language *l, int32_t state) {
    int32_t n = 0, at = state;
    while (at && l->state[at].rest < 0 && !um_language_accepts(l, at)) {
        at = next_to_end(l, at);
        n++;
    }
    if (!at) return UM_FAR;
    n += UM_MAX(l->state[at].rest, 0);
    for (at = state; l->state[at].rest < 0; at = next_to_end(l, at)) {
        l->state[at].rest = n--;
        if (um_language_accepts(l, at)) break;
    }
    return l->state[state].rest;
}
