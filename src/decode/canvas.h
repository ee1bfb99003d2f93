/* A canvas: the masks after a prompt that a model with full attention turns into tokens. All strategies of
 * whole-sequence decoding use it. They differ in which tokens a pass feeds and where their keys lie.
 *
 * The canvas is cut into blocks that are filled from left to right. In each pass the sampler commits some masks of the
 * current block: a scheduled number of them, or those that are certain enough. With remask_threshold a pass may also
 * turn tokens of that block back into masks, but fewer than it commits. A pass in which the schedule commits nothing is
 * skipped, because the next pass feeds the same tokens. A request ends as soon as the end of its answer is known, even
 * if masks remain after it.
 *
 * With a suffix the canvas is a gap. Every pass over everything feeds the suffix too. The gap is filled to its last
 * position: the model's stop ids do not end the answer there, because the suffix follows. */
#ifndef UM_CANVAS_H
#define UM_CANVAS_H

#include "decode/candidates.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The default block length: that of Fast-dLLM and of LLaDA's evaluations of its instruct models. */
enum { UM_CANVAS_AUTO_BLOCK = 32 };

/* State of the keys that later passes of a block read but do not write. */
typedef enum {
    UM_KEYS_NONE, /* not computed for this block yet: a pass over everything will do it */
    UM_KEYS_STORED,
    UM_KEYS_LOST /* lost with the pages: must be computed again from the tokens that were fed when they were stored */
} um_keys;

typedef struct um_canvas {
    int32_t end, length; /* first position after the canvas, and after the suffix */
    int32_t n_blocks;
    um_block block; /* the current block; block.count is the step of its schedule */
    um_candidates candidates;
    bool rebuilds; /* the planned pass only computes lost keys */
    um_keys keys;
    int32_t *fed; /* [block_size] the block's tokens in the pass that stored the keys */
} um_canvas;

/* Option rows of all strategies of whole-sequence decoding. */
enum { UM_N_CANVAS_OPTIONS = 3 };
extern const um_option um_canvas_options[UM_N_CANVAS_OPTIONS];

/* Resolves the request's parameters and creates a canvas that holds only masks. `slices` says that some passes will not
 * feed the positions before the block; blocks are then short by default. On failure nothing needs to be freed. */
um_status um_canvas_init(um_canvas *c, um_req *r, bool slices, um_err *err);
void um_canvas_deinit(um_canvas *c);

/* Returns the first position after the current block. */
static inline int32_t um_canvas_stop(const um_canvas *c) { return c->block.start + c->block.len; }

/* Returns the needs of a request whose next pass feeds `tokens` positions: tokens, rows, edits and positions. The
 * strategy adds slots and scratch pages. */
um_need um_canvas_need(const um_canvas *c, const um_req *r, int32_t tokens);
/* Returns the number of positions in scratch pages for a pass that feeds `tokens` positions and keeps their keys there.
 */
int32_t um_canvas_scratch(const um_req *r, int32_t tokens);

/* ---- Planning: feed, then add rows; or rebuild ------------------------------------------------------------------- */

/* Appends the segment of positions [start, stop). Under guidance a second segment follows: it has prompt and suffix
 * masked, and uses the other page table. The keys of both are [0, stop). */
void um_canvas_feed(um_req *r, um_pass *pass, um_pass_kind kind, int32_t start, int32_t stop);
/* Appends the rows of the current block's candidates. `first`: position of the first token that the pass feeds. */
void um_canvas_add_rows(um_canvas *c, um_req *r, um_pass *pass, int32_t first);
/* Saves the block's tokens in c->fed. Called when the pass that stores the keys is planned. */
void um_canvas_save_fed(um_canvas *c, const um_req *r);
/* Plans a partial pass that feeds the same tokens as the pass that stored the lost keys. */
void um_canvas_rebuild(um_canvas *c, um_req *r, um_pass *pass);

/* ---- Applying ---------------------------------------------------------------------------------------------------- */

/* Returns true if the pass was a rebuild: then the keys are stored again, and nothing else is to be applied. */
bool um_canvas_rebuilt(um_canvas *c);
/* Lets the sampler decide from the answers to the rows, writes the tokens, goes on to the next block if this one is
 * complete, and checks the stop conditions. `lead`: the block's first position is written whatever the sampler decides.
 * If a schedule gives the number of tokens, that token counts. */
void um_canvas_apply(um_canvas *c, um_req *r, const um_answer *answer, bool lead);

/* Functions of um_strategy, for strategies whose state begins with a um_canvas. */
int32_t um_canvas_blocks(const um_req *r, um_block_view *out);
void um_canvas_trace(const um_req *r, um_trace_space *space, um_trace *out);
void um_canvas_preempt(um_req *r);
void um_canvas_free(um_req *r);

/* ---- Reuse of stored keys: prefix_cache, dual_cache -------------------------------------------------------------- */

/* The first pass of a block feeds everything and stores all keys. Later passes feed [start of the block, stop),
 * overwrite the keys of those positions, and read the other keys as the first pass left them. */
um_status um_cached_init(um_req *r, um_err *err);
um_need um_cached_need(const um_req *r, int32_t stop);
void um_cached_plan(um_req *r, um_pass *pass, int32_t stop);
void um_cached_apply(um_req *r, const um_answer *answer);

#ifdef __cplusplus
}
#endif
#endif
