/* Block diffusion: what multi_bd, d2f and dmax share.
 *
 * Behind a prompt lie blocks of B positions. Keys of the prompt are stored once; from then on a window of running
 * blocks is fed in every pass: finished ones (TO_CACHE), whose keys this pass stores for good, then those that are
 * being denoised (ACTIVE), at most buffer_size of them. A block sees itself and what lies before it, never a later one,
 * so what is stored does not depend on what follows: it may be stored in the same pass as the next block starts, in
 * chunks, again after its pages were taken away, or come from another request, and is the same every time.
 *
 * A pass feeds everything from r->stored to the end of the window:
 *     plan:   prepare (a block may start) -> segment -> rows
 *     apply:  decide (samplers write) -> transition (blocks move on) -> stop */
#ifndef UM_STRATEGY_BLOCKS_H
#define UM_STRATEGY_BLOCKS_H

#include "decode/view.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_blocks um_blocks;

/* What distinguishes the strategies. */
typedef struct um_block_rules {
    /* Where block 0 starts, at most the prompt's length. */
    int32_t (*anchor)(const um_req *r, int32_t block_len);
    /* Who sees whom. `storing_prompt`: the first pass, or one that stores the prompt again. */
    um_visibility (*see)(const um_req *r, const um_blocks *s, bool storing_prompt);
    /* Positions of the prompt that only one pass can store, 0 when it can be cut at any block. */
    int32_t (*whole)(const um_req *r, const um_blocks *s);
    /* Blends in place of ids, or NULL. `first`: position of the segment's first token. */
    void (*feed)(um_req *r, um_blocks *s, um_pass *pass, um_segment *seg, int32_t first);
    /* A sampler has decided by c, and what it decided is written. Or NULL. */
    void (*decided)(um_req *r, um_blocks *s, const um_choice *c);
} um_block_rules;

struct um_blocks {
    const um_block_rules *rules;
    const um_sampler *sampler;
    um_buffer buffer;
    bool prefilled;        /* the first pass that counts is done */
    int32_t chunk;         /* of a partial pass: positions stored when it is done */
    unsigned char *memory; /* [n] x memory_bytes: the sampler's, of block id % n */
    size_t memory_bytes;
    void *own; /* the strategy's; released with um_free */
};

/* Rows that they share, over um_decoding. */
extern const um_option um_block_options[4];

/* Resolves and checks parameters; r->state becomes a um_blocks. `sampler`: NULL takes the request's. */
um_status um_blocks_init(um_req *r, const um_block_rules *rules, const um_sampler *sampler, um_err *err);
um_need um_blocks_need(const um_req *r);
void um_blocks_plan(um_req *r, um_pass *pass);
void um_blocks_apply(um_req *r, const um_answer *answer);
int32_t um_blocks_list(const um_req *r, um_block_view *out);
void um_blocks_trace(const um_req *r, um_trace_space *space, um_trace *out);
uint64_t um_blocks_share(const um_req *r, int32_t *most);
void um_blocks_free(um_req *r);

/* Rules of most. */
int32_t um_blocks_anchor_zero(const um_req *r, int32_t block_len);
um_visibility um_blocks_see(const um_req *r, const um_blocks *s, bool storing_prompt);
int32_t um_blocks_whole_none(const um_req *r, const um_blocks *s);

#ifdef __cplusplus
}
#endif
#endif
