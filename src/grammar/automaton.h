/* The parts of a language (language.h).
 *
 * A place in the graph has a node, and a stack of the nodes where the rules that are being spelled were called. A state
 * is the set of all places where the text so far may end. The stacks of a state have the same bottom; a state is stored
 * as that bottom, its stack, and a set of places relative to it. States inside of the same rule share the set, and with
 * it all work that does not depend on where the rule was called (walk.c): the content of a string is walked through
 * once, not once for each property. */
#ifndef UM_AUTOMATON_H
#define UM_AUTOMATON_H

#include <pthread.h>

#include "grammar/graph.h"
#include "grammar/language.h"

/* An entry of a stack. Frame 0 is the empty stack. Equal stacks have equal numbers. */
typedef struct um_frame {
    int32_t back;   /* node where the caller continues */
    int32_t parent; /* the rest of the stack */
    int32_t depth;  /* recursive rules on the stack */
} um_frame;

typedef struct um_place {
    int32_t node;  /* always of kind BYTES */
    int32_t stack; /* a frame; relative to the bottom */
} um_place;

typedef struct um_exit {
    int32_t node; /* of the trie */
    int32_t set;  /* before the last byte of the node */
} um_exit;

/* The tokens behind a set, as far as they stay above its bottom. */
typedef struct um_walk {
    int32_t n, n_exits;
    const um_move *move;  /* [n] to sets */
    const um_exit *exits; /* [n_exits] where the rule at the bottom can end */
} um_walk;

/* A set of places. Set 0 is empty. */
typedef struct um_places {
    const um_place *place; /* [n] ascending */
    int32_t n;
    int32_t depth; /* recursive rules below the bottom; 0 when it makes no difference */
    bool done;     /* the rule at the bottom may end here */
    int32_t *next; /* [classes] set after a byte; -1: unknown */
    const um_walk *walk;
} um_places;

typedef struct um_state {
    int32_t set, stack;
    int32_t rest; /* um_language_rest; -1: unknown */
    /* Bytes of the token that spells the text that must follow. 0: several texts can follow; -1: unknown. `whole`: the
     * token is that text, and so are the beginnings of longer ones. */
    int32_t spelling;
    bool whole;
    int32_t *next; /* [classes] state after a byte; -1: unknown */
    const um_moves *moves;
} um_state;

/* A hash table of numbers of entries. */
typedef struct um_table {
    int32_t *slot;
    uint32_t mask;
} um_table;

enum { UM_FORCED_MAX = 256 }; /* bytes of a text that must follow that are looked at */
enum { UM_FRAMES_MAX = 1 << 16, UM_PLACES_MAX = 1 << 14 };

struct um_language {
    const um_vocabulary *v;
    um_graph g;
    pthread_mutex_t lock;
    int32_t start;
    bool full;
    int64_t work;    /* steps that are left: places of closures, and nodes of the trie that walks look at */
    uint8_t *memory; /* everything below that grows */
    size_t used, size;
    um_frame *frame;
    um_places *set;
    um_state *state;
    int32_t n_frames, n_sets, n_states;
    um_table frames, sets, states;
    /* scratch of the closure (states.c) */
    int32_t *trail; /* [UM_FRAMES_MAX] entries of a stack */
    um_place *open, *found;
    int32_t n_open, n_found, base_depth;
    bool done;
    uint64_t *seen; /* [UM_PLACES_MAX * 2] places with the number of the closure that has seen them */
    uint32_t *seen_in, closure;
    /* scratch of the walks (walk.c) */
    int32_t *path;                      /* [longest token + 1] sets or states of the bytes of a token */
    int32_t *pair_to, *pair_id;         /* [ids] */
    int32_t *group, *group_in, *member; /* [states] of the walk: the group of a target, and targets by group */
    int32_t *n_members;                 /* [states] tokens of a group */
    int32_t n_pairs, n_groups, n_walks;
    um_exit *found_exit; /* [trie nodes] */
};

/* Counts work. A language that has taken too much is full, so that no pattern can keep a thread busy. */
static inline void um_language_work(um_language *l, int32_t n) {
    l->work -= n;
    l->full |= l->work < 0;
}
/* Reserves memory, zeroed, or sets l->full and returns NULL. */
void *um_language_take(um_language *l, size_t n);
/* Returns the set of the places that the open ones lead to, after a new number of the closure. */
int32_t um_set_close(um_language *l);
/* Returns the least number of bytes from a node to the end of its rule, `depth` recursive rules deep. */
static inline int32_t um_distance_at(const um_language *l, int32_t depth, int32_t node) {
    const um_graph *g = &l->g;
    return g->distance[(size_t)UM_MIN(depth, g->depth) * (size_t)g->n_nodes + (size_t)node];
}
/* Returns the least number of bytes from a place to the end of the rule at the bottom of its stack. */
int32_t um_place_distance(const um_language *l, int32_t base_depth, um_place p);
/* Return the set or state after a byte of a class; 0: none. */
int32_t um_set_step(um_language *l, int32_t set, uint8_t byte_class);
int32_t um_state_step(um_language *l, int32_t state, uint8_t byte_class);
/* Returns the state with the places of a set above a stack. */
int32_t um_state_of(um_language *l, int32_t set, int32_t stack);
/* Finds the spelling of a state. `text` receives the text that must follow, and *behind the state after it, if they are
 * not NULL. Returns the length of the text. */
int32_t um_state_spell(um_language *l, int32_t state, char text[UM_FORCED_MAX], int32_t *behind);

#endif
