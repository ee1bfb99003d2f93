/* Block diffusion: the common part of multi_bd, d2f and dmax.
 *
 * The answer is cut into blocks of block_size positions. The prompt's keys are stored once. After that every pass feeds
 * a window of running blocks: complete ones (TO_CACHE), whose final keys the pass stores, then the blocks that are
 * being denoised (ACTIVE), at most buffer_size of them. A block sees itself and everything before it, but no later
 * block, so stored keys do not depend on what follows. They may therefore be stored in the same pass in which the next
 * block starts, in chunks, again after preemption, or by another request, and are the same every time.
 *
 * A pass feeds everything from r->stored to the end of the window:
 *     plan:   prepare (a block may start) -> segment -> rows
 *     apply:  decide (samplers write) -> transition (blocks change status) -> stop conditions */
#ifndef UM_STRATEGY_BLOCKS_H
#define UM_STRATEGY_BLOCKS_H

#include "decode/candidates.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_blocks um_blocks;

/* The differences between the strategies. */
typedef struct um_block_rules {
    /* Returns the start of block 0, at most the prompt's length. */
    int32_t (*anchor)(const um_req *r, int32_t block_len);
    /* Returns the visibility of a pass. `storing_prompt`: it is the first pass, or one that stores the prompt again. */
    um_visibility (*see)(const um_req *r, const um_blocks *s, bool storing_prompt);
    /* Returns the number of leading positions of the prompt that one pass must store together; 0: the prompt can be cut
     * at any block. */
    int32_t (*whole)(const um_req *r, const um_blocks *s);
    /* Appends the blends that the segment feeds in place of ids. `first`: position of its first token. NULL: the
     * strategy feeds no blends. */
    void (*feed)(um_req *r, um_blocks *s, um_pass *pass, um_segment *seg, int32_t first);
    /* Called when the tokens that the sampler chose among the candidates c have been written. May be NULL. */
    void (*decided)(um_req *r, um_blocks *s, const um_sampler_input *c);
} um_block_rules;

struct um_blocks {
    const um_block_rules *rules;
    um_buffer buffer;
    um_candidates candidates; /* candidates of one block at a time */
    bool prefilled;           /* the first pass that is not partial is done */
    void *own;                /* the strategy's own data; freed with um_free */
};

/* Option rows of these strategies, over um_decoding. */
extern const um_option um_block_options[4];

/* Resolves and checks parameters, and makes r->state a um_blocks. `sampler`: NULL takes the request's. */
um_status um_blocks_init(um_req *r, const um_block_rules *rules, const um_sampler *sampler, um_err *err);
um_need um_blocks_need(const um_req *r);
void um_blocks_plan(um_req *r, um_pass *pass);
void um_blocks_apply(um_req *r, const um_answer *answer);
int32_t um_blocks_list(const um_req *r, um_block_view *out);
void um_blocks_trace(const um_req *r, um_trace_space *space, um_trace *out);
uint64_t um_blocks_share(const um_req *r, int32_t *most);
void um_blocks_free(um_req *r);

/* The usual rules: a grid from position 0, plain block-causal attention, a prompt that can be cut anywhere. */
int32_t um_blocks_anchor_zero(const um_req *r, int32_t block_len);
um_visibility um_blocks_see(const um_req *r, const um_blocks *s, bool storing_prompt);
int32_t um_blocks_whole_none(const um_req *r, const um_blocks *s);

#ifdef __cplusplus
}
#endif
#endif
