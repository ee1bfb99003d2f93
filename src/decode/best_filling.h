/* The most probable filling of a block under a constraint: of all choices of a token for each mask, among the likeliest
 * tokens of its row, that can be completed to a text of the language, the one with the largest product of
 * probabilities.
 *
 * A sampler that sees each row alone prefers the likeliest token of each. Some of these may exclude each other, and
 * then the one that comes later in the sampler's order stays a mask. With the tokens of the best filling all fit
 * together.
 *
 * The search goes through the block from left to right and keeps, for each state that the tokens so far lead to, the
 * best way to it (Viterbi). */
#ifndef UM_BEST_FILLING_H
#define UM_BEST_FILLING_H

#include "decode/decode.h"

#define UM_FILLING_TOKENS 16   /* likeliest tokens of a row that the search looks at */
#define UM_FILLING_STATES 1024 /* states before a position that the search keeps */

typedef struct um_best_filling um_best_filling;

/* Creates a search for blocks of up to `len` positions. */
um_best_filling *um_best_filling_new(int32_t len);
void um_best_filling_free(um_best_filling *s);
/* Returns the answers [c->n + n_more] with the tokens of the best filling in place of the samples of the masks. The
 * answers behind the candidates are copied. All answers are unchanged where no filling is found: none of the likeliest
 * tokens fit together, or they lead to more than UM_FILLING_STATES states. */
const um_answer *um_best_filling_find(um_best_filling *s, const um_req *r, const um_sampler_input *c, int32_t n_more,
                                      const um_answer *answer);

#endif
