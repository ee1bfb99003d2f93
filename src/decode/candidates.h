/* The candidates of one block in one pass: the positions that the sampler decides about.
 *
 * A strategy owns one um_candidates and uses it for each block that a pass samples:
 *     plan:   find -> add_rows
 *     apply:  find -> decide -> commit
 * A strategy that samples one block per pass skips the second find: the candidates of plan are still there. */
#ifndef UM_CANDIDATES_H
#define UM_CANDIDATES_H

#include "decode/best_filling.h"
#include "decode/decode.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_candidates {
    um_sampler_input input; /* input.n candidates in ascending position */
    um_decision decision;
    int32_t n_filled;          /* filled positions that remasking checks; they follow the candidates in the arrays */
    int32_t n_steps;           /* passes of the block's schedule */
    int32_t *position, *token; /* [block length] */
    float *score;              /* [block length] scratch of the sampler */
    um_best_filling *filling;  /* NULL: the sampler sees each row's own choice */
    um_sampler_call *call;     /* [n_blocks] the blocks of a pass, for a registered sampler; NULL: it is built in */
    int32_t *call_position;    /* [n_blocks, block length] */
    bool *call_accept;         /* [n_blocks, block length] */
    int32_t block_len;         /* longest block */
    int32_t n_blocks;          /* largest number of blocks in flight; each has its own memory */
    size_t memory_bytes;       /* size of the sampler's memory for one block; 0: the sampler has none */
    unsigned char *memory;     /* [n_blocks, memory_bytes] block b uses entry b.id % n_blocks */
} um_candidates;

/* Tells whether remasking is on. A pass then also checks the filled positions of an unfinished block. */
bool um_remasks(const um_req *r);

/* Allocates memory for r->sampler and blocks of at most `len` positions, of which n_blocks are in flight at once. Sets
 * r->n_top_asked, and n_steps to denoising_steps; the owner may change n_steps. */
void um_candidates_init(um_candidates *v, um_req *r, int32_t len, int32_t n_blocks);
void um_candidates_deinit(um_candidates *v);
/* Clears the sampler's memory of block b. Called when the block starts. */
void um_candidates_clear_memory(um_candidates *v, const um_block *b);
/* Returns the largest number of edits that the rows of `len` candidates may need, those of bad sequences included. */
int32_t um_candidates_edits_max(const um_req *r, int32_t len);

/* Finds the candidates of block b before position `end`: its masks or, for samplers that edit, all of its editable
 * positions. plan and apply of a pass find the same candidates. */
void um_candidates_find(um_candidates *v, const um_req *r, const um_block *b, int32_t end);
/* Sets the step of the schedule. um_candidates_find sets it to b->count. */
void um_candidates_set_step(um_candidates *v, const um_req *r, int32_t step);
/* Appends the rows of the candidates, then those of the filled positions. `first` is the position of the first token
 * that the pass feeds. In families that shift, the saved hidden row predicts that position. */
void um_candidates_add_rows(const um_candidates *v, um_req *r, um_pass *pass, int32_t first);
/* Lets the sampler decide from the answers to those rows, which may be NULL if the sampler is_independent. A registered
 * sampler has decided before: its decision is taken. */
um_decision *um_candidates_decide(um_candidates *v, um_req *r, const um_answer *answer);
/* Writes the tokens that the sampler decided, and turns positions back into masks where the decision or
 * remask_threshold says so. Updates b->n_masks, b->count and b->post_edit_steps. */
void um_candidates_commit(um_candidates *v, um_req *r, um_block *b);

#ifdef __cplusplus
}
#endif
#endif
