/* A sampler's view of one block in one pass: which positions it may decide, the rows that ask about them, and what it
 * decides. Strategies that decode block by block share this. */
#ifndef UM_VIEW_H
#define UM_VIEW_H

#include "decode/decode.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Candidates [n] in ascending position, and filled positions [n_filled] that remasking looks at. */
typedef struct um_view {
    um_choice choice; /* answers are there once it has decided */
    int32_t n_filled;
    int32_t position[UM_BLOCK_MAX], token[UM_BLOCK_MAX];
    int32_t filled[UM_BLOCK_MAX], filled_token[UM_BLOCK_MAX];
    float score[UM_BLOCK_MAX];
} um_view;

/* Remasking is on: filled positions of an unfinished block are asked about too. */
bool um_remasks(const um_req *r, const um_sampler *s);

/* Looks at the block b; its masks, or all its editable positions for samplers that edit. `memory`: the sampler's, of
 * this block. Same answer at plan and at apply of a pass. */
void um_view_look(um_view *v, const um_req *r, const um_sampler *s, const um_block *b, int32_t end, void *memory);
/* Rows of the pass that sampler s wants of r, at most, for a block of len positions; own edits likewise. */
int32_t um_view_edits_max(const um_req *r, const um_sampler *s, int32_t len);
/* Appends the rows of the view. `first`: position of the pass's first token; a row before it is the saved one. Returns
 * their number. */
int32_t um_view_ask(const um_view *v, um_req *r, const um_sampler *s, um_pass *pass, int32_t first);
/* Lets the sampler decide by the answers of those rows, writes tokens, takes back what remasking takes. Returns what
 * it decided; its arrays point into `room` [2 * UM_BLOCK_MAX]. b->n_masks follows. */
um_decision um_view_decide(um_view *v, um_req *r, const um_sampler *s, um_block *b, const um_answer *answer,
                           int32_t *room);

#ifdef __cplusplus
}
#endif
#endif
