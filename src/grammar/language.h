/* A language: the texts of a grammar, written with the tokens of a vocabulary.
 *
 * A state is a place in a text: it stands for all that may follow. A function computes a state, or the tokens that lead
 * from it, at the first call that needs them. It uses memory that um_language_new has reserved, so it allocates
 * nothing. The numbers of the states depend on the order of the calls. So callers may use sets of states, but not the
 * order of their numbers.
 *
 * Where only one text can follow, as between the properties of an object, only the tokens that spell it as the
 * tokenizer does are allowed. So fixed text has one spelling.
 *
 * A language belongs to the thread that holds its lock. */
#ifndef UM_LANGUAGE_H
#define UM_LANGUAGE_H

#include "grammar/grammar.h"
#include "grammar/vocabulary.h"

typedef struct um_language um_language;

#define UM_STATES_MAX 32768 /* states are 1 … UM_STATES_MAX - 1 */
enum { UM_DEAD };           /* no text of the language goes on like this */

/* Tokens, as a list or as a bitmap of all ids, whichever is shorter. */
typedef struct um_tokens {
    int32_t n;
    const int32_t *id;    /* [n], or NULL */
    const uint32_t *bits; /* [ceil(ids / 32)], or NULL */
} um_tokens;

/* The tokens that lead from a state to the state `to`. */
typedef struct um_move {
    int32_t to;
    um_tokens tokens;
} um_move;

/* All moves from a state. Several may have the same `to`; no token is in two of them. */
typedef struct um_moves {
    int32_t n;
    const um_move *move;
} um_moves;

/* Compiles rules that um_rules_check has accepted. They and the vocabulary must outlive the language. depth: largest
 * nesting of recursive rules, 1..UM_DEPTH_MAX. *out is freed with um_language_free. UM_ELIMIT, UM_EINVAL (no text
 * matches), UM_ENOMEM. */
um_status um_language_new(um_language **out, const um_rules *rules, const um_vocabulary *v, int32_t depth, um_err *err);
void um_language_free(um_language *l);

void um_language_lock(um_language *l);
void um_language_unlock(um_language *l);

/* Returns the state of the empty text. */
int32_t um_language_start(const um_language *l);
/* Returns the state after more bytes, UM_DEAD if no text goes on like this. */
int32_t um_language_step(um_language *l, int32_t state, um_str bytes);
/* Returns the bytes of a token; none if it can't be in a text. */
um_str um_language_token(const um_language *l, int32_t id);
/* Returns whether a token that can follow the state is one of its moves: not another spelling of fixed text. */
bool um_language_spells(um_language *l, int32_t state, um_str token);
/* Returns whether the text up to the state is complete. */
bool um_language_accepts(const um_language *l, int32_t state);
/* Returns a number of tokens with which the text can be completed: the least number of bytes, less what the tokens of
 * fixed text save. */
int32_t um_language_rest(um_language *l, int32_t state);
/* Returns the moves from a state. They live as long as the language. */
const um_moves *um_language_moves(um_language *l, int32_t state);
/* Returns the number of recursive rules that the state is in. */
int32_t um_language_depth(const um_language *l, int32_t state);
/* Returns the number of states so far, UM_DEAD included. */
int32_t um_language_size(const um_language *l);
/* Returns whether the reserved memory or the bound of the work is used up. From then on states are missing. */
bool um_language_is_full(const um_language *l);
/* Returns whether more than half of that is used up: new requests should get a new language. */
bool um_language_is_worn(const um_language *l);

#endif
