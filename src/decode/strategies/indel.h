/* Blocks whose tokens move (LLaDA2.2): a position may predict that its token is deleted, or that a mask is inserted
 * before it. This file has the rules that decide a pass of one block. They know neither requests nor positions of the
 * text. indel.c is the strategy around them.
 *
 * A block always has n tokens. Where tokens are deleted, masks fill its end. Where masks are inserted, tokens fall off
 * its end. A mask that was there when the block began is an original one. The flag of an original mask stays with the
 * token that is written over it and moves with it. */
#ifndef UM_STRATEGY_INDEL_H
#define UM_STRATEGY_INDEL_H

#include "decode/decode.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { UM_INDEL_LEVENSHTEIN, UM_INDEL_JOINT } um_indel_rule;

/* The parameters of a rule. */
typedef struct um_indel_how {
    um_indel_rule rule;
    float threshold;                      /* a mask is filled when the probability of its token is greater */
    float edit_threshold;                 /* a token is replaced when the probability of another is greater */
    int32_t max_post;                     /* passes without an original mask after which a block ends */
    int32_t steps, max_steps;             /* levenshtein: passes that fill the masks; most passes of a block */
    int32_t mask_id, delete_id, split_id; /* split_id: a mask is inserted before the token */
} um_indel_how;

typedef struct um_indel {
    um_indel_how how;
    int32_t n;       /* tokens of the block */
    int32_t n_fixed; /* the first n_fixed tokens belong to the prompt and are never written */
    int32_t n_kept;  /* the first n_kept tokens stay in place, whatever they are, and have no prediction */
    int32_t *token;  /* [n] before the pass; UM_MASKED for a mask */
    bool *original;  /* [n] */

    /* The decision of the last step: position i receives the token `id[i]`, UM_MASKED for a mask. It was at from[i]
     * before the pass, or is written over the token that was there; -1: the mask is new. from ascends. */
    int32_t *from, *id; /* [n] */

    int32_t first_masks; /* masks when the block began */
    int32_t count, post; /* passes; of these, those that count against max_post */
    bool final;          /* the next step needs no answers: it only finds the block finished */

    uint64_t *seen; /* [n_seen] hashes of the states that the block was in */
    int32_t n_seen, cap_seen;
    int32_t *tried; /* joint: [n, cap_tried] ids that were written at each position */
    int32_t *n_tried, cap_tried;

    /* scratch of a step [n] */
    int32_t *best;    /* the predicted token */
    float *p;         /* its probability */
    int32_t *written; /* token after the pass, before it moves */
    bool *writes;     /* the position is written */
} um_indel;

/* Allocates the arrays of a block of at most n tokens. how is set and stays. */
void um_indel_init(um_indel *b, const um_indel_how *how, int32_t n);
void um_indel_deinit(um_indel *b);
/* Begins a block of n tokens, which are in b->token. */
void um_indel_begin(um_indel *b, int32_t n, int32_t n_fixed, int32_t n_kept);
/* Returns the number of likeliest ids that the next step needs of each answer. */
int32_t um_indel_n_top(const um_indel *b);
/* Returns the largest value of um_indel_n_top. */
int32_t um_indel_n_top_max(const um_indel *b);
/* Decides a pass: reads b->token, and fills b->from and b->id. answer [n - n_kept] are the predictions of the tokens
 * from n_kept on; a.top has n_top entries. Returns whether the block is finished: nothing changes, and the keys of the
 * pass are final. */
bool um_indel_step(um_indel *b, const um_answer *answer, int32_t n_top);

#ifdef __cplusplus
}
#endif
#endif
