/* A canvas: the masks behind a prompt that a model with full attention turns into tokens. The strategies over whole
 * sequences share it; they differ in what a pass feeds and where its keys live.
 *
 * The canvas is cut into blocks that are filled from left to right. In each pass the sampler fixes some masks of the
 * current block: a scheduled number, or those it is sure of. With remask_threshold a pass may also take tokens of that
 * block back, fewer than it fixed. A pass in which the schedule fixes nothing is not run: what it would feed is what
 * the next one feeds. An answer whose end is known ends the request although the rest is still masked.
 *
 * A suffix makes the canvas a gap: every pass over everything feeds the suffix too, and the gap is filled to its last
 * position, whatever ends a text inside it, since what follows is known. */
#ifndef UM_CANVAS_H
#define UM_CANVAS_H

#include "decode/decode.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The block length of LLaDA's own evaluations of the instruct models, and of Fast-dLLM. */
enum { UM_CANVAS_AUTO_BLOCK = 32 };

/* Keys that later passes of a block read, but do not write. */
typedef enum {
    UM_KEYS_NONE, /* of this block: a pass over everything has to come */
    UM_KEYS_STORED,
    UM_KEYS_LOST /* with the pages: they have to be computed again, from the tokens that were fed then */
} um_keys;

typedef struct um_canvas {
    const um_sampler *sampler;
    int32_t end, length;     /* first position behind it, and behind the suffix: what a pass over everything feeds */
    int32_t n_blocks, block; /* blocks; the current one */
    int32_t pass;            /* passes that the block has had */
    int32_t step, n_steps;   /* place in the block's schedule, and its length */
    bool slices;             /* some passes feed no row before the block */
    bool rebuilds;           /* the planned pass computes lost keys */
    um_keys keys;
    int32_t *fed;              /* [block_size] tokens of the block in the pass that stored the keys */
    int32_t n_masks, n_filled; /* candidates of the planned pass */
    int32_t *position, *token; /* [block_size] theirs: first the masks, then the filled ones */
    float *score;              /* [block_size] of the sampler */
    int32_t *at, *id;          /* [block_size] its decision */
    void *memory;              /* what it remembers of the block; NULL: nothing */
    size_t memory_size;
} um_canvas;

/* Rows that all strategies over whole sequences read. */
enum { UM_N_CANVAS_OPTIONS = 3 };
extern const um_option um_canvas_options[UM_N_CANVAS_OPTIONS];

/* Resolves the request's parameters and makes a canvas of them, all masks. slices: some passes will feed no more than
 * the block and what follows it, which is when blocks are short by default. Nothing is left behind on failure. */
um_status um_canvas_init(um_canvas *c, um_req *r, bool slices, um_err *err);
void um_canvas_deinit(um_canvas *c);

/* First position of block k; of the one behind the last: the end. */
int32_t um_canvas_block(const um_canvas *c, const um_req *r, int32_t k);
static inline int32_t um_canvas_start(const um_canvas *c, const um_req *r) { return um_canvas_block(c, r, c->block); }
static inline int32_t um_canvas_stop(const um_canvas *c, const um_req *r) {
    return um_canvas_block(c, r, c->block + 1);
}

/* What passes of a request need that feed `tokens` now and all of it at most: rows, edits, positions; no keys yet. */
um_need um_canvas_need(const um_canvas *c, const um_req *r, int32_t tokens);
/* Positions in scratch pages of a pass that feeds `tokens` and keeps their keys there. */
int32_t um_canvas_scratch(const um_req *r, int32_t tokens);

/* ---- Planning: feed, then ask; or rebuild ------------------------------------------------------------------------ */

/* Appends the segment of positions [start, stop); under guidance a second one follows, with prompt and suffix masked
 * and the other page table. Their keys are [0, stop). */
void um_canvas_feed(um_req *r, um_pass *pass, um_pass_kind kind, int32_t start, int32_t stop);
/* Wants a prediction for every candidate of the current block. `first`: position of the first token of the pass. */
void um_canvas_ask(um_canvas *c, um_req *r, um_pass *pass, int32_t first);
/* Remembers the block's tokens, before the pass that stores keys. */
void um_canvas_keep(um_canvas *c, const um_req *r);
/* Plans a pass over everything as it was in the pass that stored the lost keys. It wants no rows. */
void um_canvas_rebuild(um_canvas *c, um_req *r, um_pass *pass);

/* ---- Applying ---------------------------------------------------------------------------------------------------- */

/* True when the pass was a rebuild: the keys are there again, and nothing else has changed. */
bool um_canvas_rebuilt(um_canvas *c);
/* Lets the sampler decide by the answers of the rows, writes, moves on to the next block, and ends the request when it
 * is over. `lead`: the block's first position is written whatever the sampler says; where it fixes a given number,
 * that counts as one of them. */
void um_canvas_apply(um_canvas *c, um_req *r, const um_answer *answer, bool lead);

/* Of um_strategy, for those whose state begins with a canvas. */
int32_t um_canvas_blocks(const um_req *r, um_block_view *out);
void um_canvas_trace(const um_req *r, um_trace_space *space, um_trace *out);
void um_canvas_preempt(um_req *r);
void um_canvas_free(um_req *r);

/* ---- Reuse of keys as they are: prefix_cache, dual_cache --------------------------------------------------------- */

/* The first pass of a block feeds everything and stores all keys; later ones feed [start of the block, stop), read the
 * rest as it was, and overwrite what they feed. */
um_status um_cached_init(um_req *r, um_err *err);
um_need um_cached_need(const um_req *r, int32_t stop);
void um_cached_plan(um_req *r, um_pass *pass, int32_t stop);
void um_cached_apply(um_req *r, const um_answer *answer);

#ifdef __cplusplus
}
#endif
#endif
