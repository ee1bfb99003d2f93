/* The search for the most probable filling. */
#include <math.h>

#include "decode/best_filling.h"
#include "decode/fill.h"

enum { NODES = UM_FILLING_STATES };

/* The best way to a state before a position. */
typedef struct node {
    int32_t state;
    int32_t from;   /* node at the position before; -1: the first position */
    int32_t choice; /* entry of the row's list that was taken; -1: the token is written */
    int32_t id;     /* the token */
    double value;   /* sum of the logarithms of the probabilities */
} node;

struct um_best_filling {
    node *node;        /* [len + 1, NODES] before the k-th position */
    int32_t *n;        /* [len + 1] */
    int32_t *index;    /* [UM_STATES_MAX] node of a state before the next position; -1: none */
    int32_t *state;    /* [NODES] */
    um_answer *answer; /* [len] */
};

um_best_filling *um_best_filling_new(int32_t len) {
    um_best_filling *s = UM_NEW(um_best_filling);
    *s = (um_best_filling){.node = UM_NEW_ARRAY(node, um_mul((size_t)len + 1, NODES)),
                           .n = UM_NEW_ARRAY(int32_t, (size_t)len + 1),
                           .index = UM_NEW_ARRAY(int32_t, UM_STATES_MAX),
                           .state = UM_NEW_ARRAY(int32_t, NODES),
                           .answer = UM_NEW_ARRAY(um_answer, (size_t)len)};
    for (int32_t i = 0; i < UM_STATES_MAX; i++) s->index[i] = -1;
    return s;
}

void um_best_filling_free(um_best_filling *s) {
    if (!s) return;
    um_free(s->node);
    um_free(s->n);
    um_free(s->index);
    um_free(s->state);
    um_free(s->answer);
    um_free(s);
}

static node *nodes_at(const um_best_filling *s, int32_t k) { return s->node + (size_t)k * NODES; }

/* Returns whether way a, which ends before position k, comes first among ways of the same value: its last token that
 * differs has the higher id. The numbers of states must not decide, because they depend on other requests. */
static bool comes_first(const um_best_filling *s, int32_t k, const node *a, const node *b) {
    for (; k > 0; k--) {
        if (a->id != b->id) return a->id > b->id;
        if (a->from == b->from) return false;
        a = &nodes_at(s, k - 1)[a->from];
        b = &nodes_at(s, k - 1)[b->from];
    }
    return false;
}

/* Adds a way to a state before position k. Returns false if there are too many states. */
static bool add_way(um_best_filling *s, int32_t k, node way) {
    int32_t *at = &s->index[way.state];
    if (*at < 0) {
        if (s->n[k] == NODES) return false;
        *at = s->n[k]++;
        nodes_at(s, k)[*at] = way;
        return true;
    }
    node *known = &nodes_at(s, k)[*at];
    if (way.value > known->value || (way.value == known->value && comes_first(s, k, &way, known))) *known = way;
    return true;
}

/* Goes on from a node before the k-th position `pos` with one token. */
static bool step(um_best_filling *s, const um_req *r, int32_t k, int32_t from, int32_t pos, int32_t choice,
                 const um_top *t) {
    const node *a = &nodes_at(s, k)[from];
    const int32_t to = um_fill_step(r->fill, a->state, pos, t->id);
    if (to < 0) return true;
    const double value = choice < 0 ? 0 : log((double)fmaxf(t->p, 0x1p-149F));
    return add_way(s, k + 1, (node){to, from, choice, t->id, a->value + value});
}

/* Finds the ways to the states behind the k-th position. `list`: the likeliest tokens of a mask; NULL: a token is
 * written there. */
static bool step_all(um_best_filling *s, const um_req *r, int32_t k, int32_t pos, const um_top *list) {
    bool fits = true;
    s->n[k + 1] = 0;
    for (int32_t i = 0; i < s->n[k] && fits; i++) {
        if (!list) fits = step(s, r, k, i, pos, -1, &(um_top){.id = r->token[pos]});
        for (int32_t t = 0; list && t < UM_FILLING_TOKENS && list[t].id >= 0 && fits; t++)
            fits = step(s, r, k, i, pos, t, &list[t]);
    }
    for (int32_t i = 0; i < s->n[k + 1]; i++) s->index[nodes_at(s, k + 1)[i].state] = -1;
    return fits;
}

static void take(um_answer *a, const um_top *t) {
    if (a->sample == t->id) return;
    a->second = a->best;
    a->p_second = a->p_best;
    a->q_second = a->q_best;
    a->best = a->sample = t->id;
    a->p_best = a->p_sample = t->p;
    a->q_best = a->q_sample = t->q;
}

/* Returns the index of the first candidate that is not final. */
static int32_t first_open(const um_req *r, const um_sampler_input *c) {
    int32_t i = 0;
    while (i < c->n && c->position[i] < r->filled) i++;
    return i;
}

/* Finds the ways through all positions from `start` to the last candidate. `i`: the candidate at `start`. */
static bool search(um_best_filling *s, const um_req *r, const um_sampler_input *c, int32_t i, const um_answer *answer) {
    const int32_t start = c->position[i], end = c->position[c->n - 1] + 1;
    s->n[0] = um_fill_states(r->fill, r, start, s->state, NODES);
    if (s->n[0] > NODES) return false;
    for (int32_t k = 0; k < s->n[0]; k++) nodes_at(s, 0)[k] = (node){.state = s->state[k], .from = -1, .choice = -1};
    for (int32_t p = start; p < end; p++) {
        const bool is_mask = um_req_masked(r, p);
        while (c->position[i] < p) i++;
        if (!step_all(s, r, p - start, p, is_mask ? answer[i].top : NULL) || s->n[p - start + 1] == 0) return false;
    }
    return true;
}

/* Puts the tokens of the best way into the answers. */
static void take_best(um_best_filling *s, const um_req *r, const um_sampler_input *c, int32_t first) {
    const int32_t start = c->position[first];
    int32_t k = c->position[c->n - 1] + 1 - start;
    const node *best = nodes_at(s, k);
    for (const node *a = best + 1; a < nodes_at(s, k) + s->n[k]; a++)
        if (a->value > best->value || (a->value == best->value && comes_first(s, k, a, best))) best = a;
    for (int32_t i = c->n - 1; k > 0; k--) {
        const int32_t p = start + k - 1;
        while (c->position[i] > p) i--;
        if (um_req_masked(r, p)) take(&s->answer[i], &s->answer[i].top[best->choice]);
        best = &nodes_at(s, k - 1)[best->from];
    }
}

const um_answer *um_best_filling_find(um_best_filling *s, const um_req *r, const um_sampler_input *c, int32_t n_more,
                                      const um_answer *answer) {
    const int32_t first = first_open(r, c);
    if (first == c->n) return answer;
    memcpy(s->answer, answer, (size_t)(c->n + n_more) * sizeof *answer);
    um_fill_lock(r->fill);
    if (search(s, r, c, first, answer)) take_best(s, r, c, first);
    um_fill_unlock(r->fill);
    return s->answer;
}
