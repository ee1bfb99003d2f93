/* decode: how masked positions of a request become tokens.
 *
 * A strategy controls a request between forward passes. It plans what the next pass feeds and which positions the pass
 * predicts (plan), and applies the predictions (apply). A sampler is a pure function that decides, from the predictions
 * for one block, which tokens to commit. This room computes no logits, schedules no requests and handles no text. The
 * engine calls plan, runs the batch and calls apply.
 *
 * A request belongs to the engine's thread. plan and apply allocate no memory. */
#ifndef UM_DECODE_H
#define UM_DECODE_H

#include "base/base.h"
#include "ops/batch.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_req um_req;
typedef struct um_edits um_edits;
typedef struct um_fill um_fill;
typedef struct um_strategy um_strategy;
typedef struct um_sampler um_sampler;

/* The properties of a model that decoding depends on. */
typedef struct um_traits {
    int32_t mask_id;
    int32_t eos;         /* the tokenizer's end-of-sequence id, used only with --compat */
    const int32_t *stop; /* [n_stop] ids that end an answer */
    int32_t n_stop;
    int32_t pad;        /* padding id; -1: none */
    const int32_t *ban; /* [n_ban] ids besides the mask that no answer contains */
    int32_t n_ban;
    /* Ids whose prediction deletes a token, or inserts a mask before it. They are among `ban`; -1: none. */
    int32_t delete_id, split_id;
    um_see see;
    int32_t block;                      /* block length of the training; 0: the family has none */
    int32_t page_size;                  /* positions of a KV page; requests share whole pages */
    int32_t blend_ids;                  /* limit on the ids in all blends of a step */
    int32_t step_tokens, step_segments; /* limits on the fed tokens and on the segments of a step */
    int32_t route_block;                /* experts are chosen per block of this many positions; 0: per token */
    int32_t shift;                      /* 1: the row of position i-1 predicts position i */
    bool always_forced;     /* every block may be forced to accept a token, however empty its predecessor is */
    bool prefill_is_silent; /* the prefill pass samples nothing */
    /* Strategy renoising: the longest canvas of a request, 0: the model is not trained for it; and the checkpoint's
     * values of its parameters, NAN or -1: off. */
    int32_t canvas, vocab, canvas_steps, stability;
    float canvas_entropy_bound, t_min, t_max, confidence;
    bool filters_first; /* top-k, top-p and min-p apply before the temperature (um_sampling) */
    float accept_threshold;
    const char *sampler; /* the sampler that `auto` stands for */
} um_traits;

/* Switches that restore the behaviour of Diffulex, whose recorded runs are replayed (--compat diffulex), or that of a
 * checkpoint's own code (--compat checkpoint). All are off by default. Only strategies, samplers and stop conditions
 * read them. */
typedef struct um_compat {
    bool allocated_limits; /* limits count allocated positions, masks included; the answer may end early */
    bool eos_drains;       /* an end of sequence stops growth; running blocks are still decoded to their end */
    bool separate_commit;  /* a block is stored in a separate pass, and so is a prompt that ends at a block boundary */
    bool literal_edits;    /* edit samplers may choose the mask id, ignore edit_threshold, are greedy under a penalty */
    bool merged_commit;    /* dmax stores keys of blended embeddings */
    bool zero_anchor;      /* d2f: blocks lie on a grid from position 0 */
    bool no_remasking;     /* every sampler accepts remask_threshold and ignores it */
    bool keeps_masks;      /* seeded_bd: a block ends after denoising_steps passes, whatever is still masked. Causal
                              strategies may predict the mask id, and write it like any other */
    float threshold;       /* fixed accept_threshold that overrides the option; NAN: none */
} um_compat;

/* Draws that were recorded, in place of random ones: the token of position i of a canvas, when it starts, and in one of
 * its passes if it is accepted or not. */
typedef enum { UM_DRAW_START, UM_DRAW_SAMPLE, UM_DRAW_NOISE } um_draw;
typedef struct um_draws {
    int32_t (*fn)(void *arg, um_draw kind, int32_t canvas, int32_t pass, int32_t i);
    void *arg;
} um_draws;

/* A block that waits for the decision of its registered sampler: its candidates in the pass that has been planned. */
typedef struct um_sampler_call {
    int32_t row, n;       /* rows [row, row + n) of the request */
    int32_t length, pass; /* positions of the block; number of its pass, from 1 */
    bool forced;
    bool failed;       /* decided: the sampler has failed */
    int32_t *position; /* [n] */
    bool *accept;      /* [n] decided: the candidate gets its token */
    void *memory;
} um_sampler_call;

/* ---- Request ----------------------------------------------------------------------------------------------------- */

struct um_req {
    /* fixed at submission */
    const um_traits *traits;
    const um_compat *compat;
    const um_strategy *strategy;
    const um_sampler *sampler; /* chosen by the strategy's init; NULL: the strategy decides without a sampler */
    um_decoding how;
    um_sampling_params sampling;
    uint64_t seed;
    int32_t n_prompt, max_len; /* max_len: positions of prompt and answer together */
    int32_t limit;             /* first position that is never written: min(max_len, n_prompt + max_tokens) */
    int32_t n_suffix;          /* given tokens after the answer; the answer then fills the gap before them */
    int32_t cap;               /* length of the arrays below */
    const int32_t *near_page;  /* page table of layers with a window; NULL: there are none */
    const int32_t *page[2];    /* page tables: one for the request, one for its unconditional copy under guidance */
    int32_t saved;             /* index of the request's saved hidden row */
    int32_t adapter;           /* index of the adapter; -1: none */
    int32_t n_top;             /* likeliest ids kept for each token, 0..UM_TOP_MAX */
    int32_t n_top_asked;       /* likeliest ids computed for each row: n_top, or more if the sampler needs more */
    bool may_choose_mask;      /* the mask id is treated like any other id */
    bool moves_tokens;         /* rows may predict the ids that delete and insert tokens */
    bool replaces_tokens;      /* rows predict written tokens, too, without a sampler that edits */
    const int32_t *stop_ids;   /* [n_stop_ids] ids besides the model's that end the answer */
    int32_t n_stop_ids;

    /* Edits shared by the request's rows (edits.c), in ascending order of id. Rows before min_tokens use early_edit
     * instead. */
    const um_edit *edit, *early_edit;
    int32_t n_edit, n_early_edit;
    um_edits *edits;
    const uint32_t *allow; /* bitmap of the ids that the answer may have; NULL: all */
    uint64_t allow_id;     /* its number (um_row.allow_id) */
    /* Sequences of two or more ids that the answer never has (bad_words.c). */
    const int32_t *bad;     /* all their ids, one sequence after the other */
    const int32_t *bad_end; /* [n_bad] end of each sequence in `bad` */
    int32_t n_bad;
    um_fill *fill;         /* keeps the answer in a language (fill.h); NULL: any text */
    const um_draws *draws; /* NULL: draws are random. Only strategy renoising reads it */
    bool fills_best;       /* each pass decides about the most probable filling of a block (best_filling.h) */

    /* positions: the prompt, then masks that become tokens, then the suffix */
    int32_t *token;    /* [cap]; the mask id where no token is written */
    int32_t *written;  /* [cap] pass that wrote the token, from 1; 0: the token was given; -1: a mask */
    float *logprob;    /* [cap] natural logarithm of the token's probability in that pass; NULL: not kept */
    float *confidence; /* [cap] the token's probability in that pass, NAN for a mask; NULL: not kept */
    um_top *top;       /* [cap, n_top] the likeliest ids in that pass; NULL: not kept */
    int32_t end;       /* first position after the blocks in flight */
    int32_t settled;   /* first position whose token may still change; INT32_MAX when written tokens never change */
    int32_t filled;    /* first answer position that is a mask or may change; tokens before it are final */

    /* Leading positions whose final keys and values lie in the pages. The engine sets it when it admits the request
     * (prefix found, table forked) and clears it when it takes the pages away. The strategy advances it. */
    int32_t stored;
    int32_t storing; /* end of the planned partial pass (um_pass_store); 0: the pass is not partial */

    /* Blocks of the planned pass that wait for a registered sampler. The strategy takes them in order. */
    um_sampler_call *call;
    int32_t n_calls, n_calls_taken;
    bool sampler_failed;

    /* counters */
    int32_t nfe, n_new;     /* passes; tokens written in the last pass */
    int32_t prefill_passes; /* passes among nfe that stored the prompt */
    int32_t run_length;     /* equal tokens at the end of the filled prefix */

    um_finish finish;
    int32_t stop_id;  /* the stop id that ended the answer; -1: none */
    int32_t n_answer; /* tokens of the answer once finished */
    void *state;      /* the strategy's own data, which the strategy frees */
};

static inline bool um_req_masked(const um_req *r, int32_t pos) { return r->written[pos] < 0; }

/* Returns the random key of a draw at `pos` in step `count` of its block. Draws for different uses are independent. */
enum { UM_USE_SAMPLE, UM_USE_REMASK, UM_USE_START, UM_USE_NOISE };
static inline uint64_t um_req_key(const um_req *r, int32_t pos, int32_t count, int use) {
    return um_rng_key(r->seed, (uint64_t)pos, (uint64_t)count, (uint64_t)use);
}

/* Writes a token over a mask, or over a token that is not settled, in the pass that is being applied. `a` is the answer
 * of the row that predicted the position. */
void um_req_write(um_req *r, int32_t pos, int32_t id, const um_answer *a);
/* Turns a token that is not settled back into a mask. */
void um_req_erase(um_req *r, int32_t pos);
/* Moves tokens among the positions [start, start + n), which are not settled. Position start + i gets the token of
 * position start + from[i], with its pass and its probabilities; -1 makes it a mask. The numbers in from [n], apart
 * from -1, ascend. */
void um_req_rearrange(um_req *r, int32_t start, const int32_t *from, int32_t n);
/* Builds the edits of a request whose sampling parameters and cap are known. A bias of -INFINITY bans its id. */
void um_req_edits_new(um_req *r, const um_bias *bias, size_t n_bias, int32_t vocab);
/* Returns whether every row of a request with edits has an id that r->allow allows and no edit bans. */
bool um_req_edits_leave_token(const um_req *r, int32_t vocab);
void um_req_edits_free(um_req *r);
/* Prepares the rows of a pass: penalties count the tokens of [0, start), and a constraint looks at the positions before
 * `end`. A strategy calls it in plan, before it adds rows, with the start of the first block that is being denoised and
 * the end of the last one. */
void um_req_prepare_rows(um_req *r, int32_t start, int32_t end);
/* Returns a number for a new bitmap of allowed ids (um_row.allow_id). Any thread. */
uint64_t um_new_allow_id(void);
/* Returns the bitmap of the ids that a position may have, NULL: all, and its number. It is valid until a token is
 * written. */
const uint32_t *um_req_allowed(um_req *r, int32_t pos, uint64_t *allow_id);
/* Returns whether a token that a sampler has chosen may be written at `pos`, beside the tokens that the pass has
 * written so far: it completes no bad sequence and keeps to the constraint. If so, um_req_write must follow. */
bool um_req_accepts(um_req *r, int32_t pos, int32_t id);
/* Writes the masks of [start, end) for which the constraint leaves only one token. */
void um_req_write_forced(um_req *r, int32_t start, int32_t end);
/* Returns why the constraint ends the answer at r->filled: its text is complete, or its language ran out of memory. */
um_finish um_req_check_constraint(um_req *r);

/* Returns the largest number of edits that keep a row of the request from completing a bad sequence. */
int32_t um_req_bad_edits_max(const um_req *r);
/* Bans the ids that would complete a bad sequence at `pos` with the tokens around it. Returns the number of edits. */
int32_t um_req_list_bad(const um_req *r, int32_t pos, um_edit *out);
/* Makes penalties count the tokens of [0, end). */
void um_req_count_penalties(um_req *r, int32_t end);
/* Returns whether the id would complete a bad sequence at `pos`. A pass writes several tokens, and each may complete a
 * sequence that the one before it has begun. */
bool um_req_is_bad(const um_req *r, int32_t pos, int32_t id);

/* Ends apply: counts the pass, moves `filled` over the new final tokens and finishes the request at the first stop id,
 * repetition run or limit. max_nfe is checked last. */
void um_req_check_stop(um_req *r);
/* Returns why the answer ends before a token with this id; UM_FINISH_NONE: it does not. */
um_finish um_req_stops_at(const um_req *r, int32_t id);
/* Ends the answer at r->filled. Before a suffix the answer is as long as the gap, which the model may pad: stop ids and
 * padding at the end of the gap are not part of the answer. */
void um_req_finish(um_req *r, um_finish why);
/* Returns the first position that may not belong to the answer: r->filled, or the start of the padding before it. */
int32_t um_req_shown_end(const um_req *r);
/* compat: does what um_req_check_stop does, by Diffulex's rules. `allocated` is the end of the block buffer, DUMMY
 * blocks included. `soft` says that every running block is complete. */
void um_req_check_stop_compat(um_req *r, int32_t allocated, bool soft);
/* compat: tells whether a stop condition holds (limits, end of sequence). The last running block is then terminal. */
bool um_req_truncated_compat(const um_req *r, int32_t allocated);
/* compat: tells whether the positions in use contain an end of sequence that ends the answer. */
bool um_req_eos_compat(const um_req *r);

/* Lists the blocks in flight, at most UM_BUFFER_MAX, and returns their number. */
int32_t um_req_blocks(const um_req *r, um_block_view *out);
/* Describes the block at the positions [start, end), without the positions that the request may not write. Returns
 * false if the request may write none of them. */
bool um_req_view_block(const um_req *r, int32_t start, int32_t end, const char *status, um_block_view *out);

/* ---- Pass -------------------------------------------------------------------------------------------------------- */

/* One request's part of the next forward pass. The engine owns the arrays, which have the room that need() asked for.
 * Row and save indices count the tokens of this part from 0. */
typedef struct um_pass {
    um_segment *seg;
    um_row *row;
    int32_t *id, *pos; /* ids and positions of the fed tokens, segment after segment */
    int32_t *vis;      /* visibility indices of the tokens of segments in which they differ from the positions */
    um_edit *edit;     /* edits that belong to a single row */
    um_top *top;       /* likeliest ids of rows */
    um_soft *soft;     /* blends */
    int32_t *soft_id;  /* ids of the blends */
    float *soft_w;     /* weights of these ids */
    um_kv_select *select;
    int32_t *scratch; /* page tables of scratch pages */
    int32_t n_seg, n_rows, n_tokens, n_edits, n_tops, n_softs, n_soft_ids, n_selects, n_scratch;

    int32_t page_size, first_scratch; /* tokens of a page; number of the next free scratch page */
    int32_t budget;                   /* tokens that this pass may feed: at least need().least */
    bool partial; /* set by plan: the pass only stores known tokens (a chunk of the prompt, or keys that were lost). It
                     has no rows, does not count as a pass and is not shown; apply runs without answers */
} um_pass;

/* Called by plan: makes the pass a partial one, which stores the keys of the positions before `end`; end 0: it is none.
 * Returns whether it is. */
static inline bool um_pass_store(um_pass *p, um_req *r, int32_t end) {
    r->storing = end;
    p->partial = end > 0;
    return p->partial;
}

/* Called by apply: counts the keys of a partial pass as stored. Returns false, and does nothing, after another pass. */
static inline bool um_req_store(um_req *r) {
    if (r->storing) r->stored = r->storing;
    return r->storing > 0;
}

/* Appends a segment that feeds the positions [start, end) of the request. Copies their ids. The segment reads the keys
 * of the positions [0, end). */
um_segment *um_pass_add(um_pass *p, um_req *r, um_pass_kind kind, int32_t start, int32_t end, um_visibility rule);
/* Feeds the masks of a segment, which come at position `from` or later, behind its tokens. The visibility indices keep
 * their order, so a token sees those that are fed before it; the positions move with the tokens. */
void um_pass_feed_masks_last(um_pass *p, const um_req *r, um_segment *s, int32_t from);
/* Places the keys of a segment, vis indices [0, end), in scratch pages, so that none of them is stored. */
void um_pass_use_scratch(um_pass *p, um_segment *s, int32_t end);
/* Returns the first visibility index behind n keys of the request where keys in scratch pages may begin: a multiple of
 * the page size and of UM_KEY_GROUP, so that the page size does not change the order in which attention sums up keys.
 */
int32_t um_req_first_scratch(const um_req *r, int32_t n);
/* Appends a row that predicts position pos from hidden row `src`, with the request's sampling parameters, edits,
 * bans of bad sequences and number of likeliest ids. `count` is the block's step (um_block.count), a part of the random
 * key. */
um_row *um_pass_row(um_pass *p, um_req *r, int32_t src, int32_t pos, int32_t count);
/* Reserves n own edits for the row, behind those that it has. The caller fills them in. */
um_edit *um_pass_edits(um_pass *p, um_row *row, int32_t n);
/* Appends a blend of n ids for the segment's token `at`. The caller fills in id and w. Blends must be appended in
 * ascending order of `at`. */
um_soft *um_pass_soft(um_pass *p, um_segment *s, int32_t at, int32_t n, int32_t **id, float **w);
/* Lets the segment keep sparse keys. The caller fills in the result. */
um_kv_select *um_pass_select(um_pass *p, um_segment *s);

/* The resources that a request needs. The first group bounds its next pass, and plan must keep to it. The second group
 * bounds all of its passes: the engine reads it once, after init, to decide whether the request can run. */
typedef struct um_need {
    int32_t tokens, rows; /* fed tokens and rows */
    int32_t least;        /* tokens of the smallest partial pass (a chunk); == tokens: no smaller pass is possible */
    int32_t slots;        /* length of each page table, in positions */
    int32_t scratch;      /* positions in scratch pages over all segments, each rounded up to whole pages */
    int32_t edits, soft;  /* edits that belong to single rows; ids in blends */
    int32_t segments;     /* if there are more than two */
    bool refresh;         /* the pass feeds the whole sequence; the scheduler may spread these passes over steps */

    int32_t tokens_max, rows_max; /* smallest budget with which every pass is possible */
    int32_t slots_max;            /* positions whose keys and values are stored, in each table */
    int32_t scratch_max, edits_max, soft_max;
    int32_t positions_max; /* length of the request's arrays, DUMMY blocks included */
    int32_t tables;        /* page tables: 1, or 2 under guidance; 0: nothing is stored */
} um_need;

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

typedef enum { UM_BLOCK_DUMMY, UM_BLOCK_ACTIVE, UM_BLOCK_TO_CACHE, UM_BLOCK_IN_CACHE } um_block_status;
typedef enum { UM_BLOCK_IN_CONTEXT, UM_BLOCK_LAST_IN_CONTEXT, UM_BLOCK_OUT_OF_CONTEXT } um_block_type;

/* The state of a block: plain data without pointers, so that it can live on a device next to the token array. */
typedef struct um_block {
    int32_t id, start, len;
    um_block_status status;
    um_block_type type;
    int32_t n_masks;
    int32_t editable_start;  /* first index that may be written; the prompt's tail lies before it */
    bool commit_ready;       /* complete: its keys may be stored */
    float same_token_ratio;  /* share of filled positions whose token the model would choose again */
    int32_t count;           /* passes that sampled the block, plus skipped steps; a part of the random key */
    int32_t total_steps;     /* passes that started while the block was ACTIVE */
    int32_t post_edit_steps; /* sampled passes that started while the block had no mask */
} um_block;

const char *um_block_status_name(um_block_status s);
static inline float um_block_progress(const um_block *b) { return (float)(b->len - b->n_masks) / (float)b->len; }

#define UM_BLOCK_MAX  256 /* tokens of a block of block diffusion */
#define UM_BUFFER_MAX 65  /* blocks of a buffer: up to 64 that are denoised, and one that is being stored */

/* Sets an automatic block_size to `otherwise`. UM_ERANGE: it is above UM_BLOCK_MAX. */
um_status um_req_resolve_block_size(um_req *r, int32_t otherwise, um_err *err);

/* A block buffer: consecutive blocks on a grid that starts at anchor. Running blocks come first (TO_CACHE, then
 * ACTIVE), DUMMY blocks follow. Every block before the buffer is IN_CACHE. */
typedef struct um_buffer {
    int32_t n, block_len, run; /* number of blocks; tokens of each; number of running blocks */
    int32_t anchor;            /* start of block 0 */
    int32_t limit;             /* positions from here on are never written, so they don't count as masks */
    bool terminal;             /* compat: the last running block is terminal, no further block may start */
    um_block block[UM_BUFFER_MAX];
} um_buffer;

/* Sets up n blocks after a prompt of n_prompt tokens. If the prompt ends within a block, that block starts ACTIVE. */
void um_buffer_init(um_buffer *b, int32_t n, int32_t block_len, int32_t anchor, int32_t limit, int32_t n_prompt);
static inline int32_t um_buffer_start(const um_buffer *b) { return b->block[0].start; }
/* Returns the first position after the running blocks. */
static inline int32_t um_buffer_end(const um_buffer *b) { return um_buffer_start(b) + b->run * b->block_len; }
/* Returns the first position after all blocks, DUMMY ones included. */
static inline int32_t um_buffer_allocated(const um_buffer *b) { return um_buffer_start(b) + b->n * b->block_len; }
/* Turns the first DUMMY block ACTIVE. */
void um_buffer_grow(um_buffer *b);
/* Drops the first block, which is stored, and appends a DUMMY block, OUT_OF_CONTEXT when `out`. */
void um_buffer_shift(um_buffer *b, bool out);
/* Tells whether no running block has a mask. */
bool um_buffer_complete(const um_buffer *b);
/* Returns the index of the first ACTIVE block, or b->run if there is none. */
int32_t um_buffer_first_active(const um_buffer *b);

/* ---- Samplers ---------------------------------------------------------------------------------------------------- */

/* Schedules: how many positions each pass commits when the number of passes is given. */
typedef enum {
    UM_SCHEDULE_NONE,   /* no schedule: the sampler decides by the predictions, until no mask is left */
    UM_SCHEDULE_EVEN,   /* the same number in every pass; the first passes take the remainder */
    UM_SCHEDULE_LINEAR, /* the number of masks falls linearly, rounded down */
    UM_SCHEDULE_TIME    /* the masked share falls linearly from 1 to eps; a pass commits its share of the masks left */
} um_schedule;

#define UM_MASKED (-1) /* a mask, in place of a token id */

/* The input of a sampler for one block in one pass: the candidates in ascending position. The candidates are the masks
 * of the block or, for samplers that edit, all of its editable positions. */
typedef struct um_sampler_input {
    const um_answer *answer; /* [n]; NULL while the pass is planned */
    const int32_t *position; /* [n] */
    const int32_t *token;    /* [n] the present token, UM_MASKED for a mask */
    int32_t n, n_masks;
    int32_t n_fixed;  /* the first n_fixed candidates belong to the prompt and are never written (--compat, else 0) */
    int32_t previous; /* token before the first candidate if it lies in the same block, else UM_MASKED */
    int32_t block_len;
    const um_decoding *how;
    const um_compat *compat;
    uint64_t seed;
    float temperature; /* temperature of the draws in `answer` */
    int32_t mask_id;
    int32_t count;           /* step of the block; a part of the random key */
    int32_t total_steps;     /* passes that started while the block was ACTIVE */
    int32_t post_edit_steps; /* passes that started while the block had no mask, this one included */
    bool forced;             /* UM_SCHEDULE_NONE: accept the best candidate when no other is accepted */
    int32_t keep;            /* schedules: number of positions to commit */
    double rate;             /* UM_SCHEDULE_TIME: probability with which is_independent samplers commit a position */
    float *score;            /* [n] scratch */
    void *memory;            /* the sampler's memory of the block, zeroed when the block starts; NULL: it has none */
} um_sampler_input;

/* The decision of a sampler about one block. */
typedef struct um_decision {
    int32_t n;   /* decided candidates; the arrays have room for all */
    int32_t *at; /* [n] index of the candidate */
    int32_t *id; /* [n] its new token, or UM_MASKED to turn it back into a mask */
    /* Set by samplers that edit. Blocks of other samplers are complete when no mask is left. */
    bool committable;
    float same_token_ratio;
} um_decision;

/* Decides that candidate i gets its sampled token. */
static inline void um_decide(um_decision *d, const um_sampler_input *c, int32_t i) {
    d->at[d->n] = i;
    d->id[d->n++] = c->answer ? c->answer[i].sample : UM_MASKED;
}

/* A list of option rows over um_decoding. Strategies or samplers that read the same rows point to the same array. */
typedef struct um_params {
    const um_option *rows;
    size_t n;
} um_params;
#define UM_PARAMS_MAX 5

struct um_sampler {
    const char *name, *aliases, *summary, *source;
    um_params params[UM_PARAMS_MAX]; /* option rows of this sampler, in addition to the shared ones */
    um_schedule schedule;
    bool is_independent; /* decides each position separately with probability c->rate instead of committing c->keep */
    bool edits;          /* sees filled positions too; a block lasts until the sampler calls it committable */
    bool block_only;     /* works with block diffusion only, not with whole-sequence decoding */
    /* Resolves and checks the sampler's parameters. NULL: there is nothing to check. */
    um_status (*init)(um_req *r, um_err *err);
    /* Returns the UM_WANT_* bits of the sampler's rows. */
    uint32_t (*want)(const um_req *r);
    /* Returns the number of likeliest ids that the sampler needs for each row. NULL: none. */
    int32_t (*n_top)(const um_req *r);
    /* Returns the bytes of memory for a block of n positions. NULL: none. */
    size_t (*memory)(const um_req *r, int32_t n);
    /* edit fills in edits of candidate i's logits, at most edits_max of them, and returns their number. Both NULL: the
     * sampler edits no logits. */
    int32_t (*edits_max)(const um_req *r);
    int32_t (*edit)(const um_sampler_input *c, int32_t i, um_edit *out);
    /* Fills in the decision, which is empty at first. Writes nothing else but c->score and c->memory. */
    void (*accept)(const um_sampler_input *c, um_decision *d);
    /* A registered sampler decides about all blocks of a step at once (sampler_batch.c) and has no `accept`. NULL: the
     * sampler is built in. */
    const um_sampler_def *def;
    int32_t first_param; /* index of its first parameter in um_decoding.registered */
};
extern const um_sampler *const um_samplers[]; /* the built-in ones; ends with NULL */
/* Returns sampler i, the built-in ones first, then the registered ones; NULL: there are no more. */
const um_sampler *um_sampler_at(size_t i);
/* Checks a definition for itself: version, names, numbers. */
um_status um_sampler_def_check(const um_sampler_def *def, um_err *err);
/* The option rows of the registered samplers. */
um_params um_registered_params(void);
/* Finds a sampler by name or alias. The message of UM_EINVAL lists the names. */
um_status um_sampler_find(const um_sampler **out, const char *name, um_err *err);

/* Samplers that decide by the predictions, one file each. */
extern const um_sampler um_sampler_confidence, um_sampler_dynamic, um_sampler_static, um_sampler_sequential,
    um_sampler_sdar_dynamic, um_sampler_factor, um_sampler_hierarchy, um_sampler_credit, um_sampler_entropy_bound,
    um_sampler_entropy_threshold, um_sampler_entropy_distance;
/* Scheduled samplers (samplers/scheduled.c). */
extern const um_sampler um_sampler_low_confidence, um_sampler_random, um_sampler_origin, um_sampler_maskgit_plus,
    um_sampler_topk_margin, um_sampler_entropy, um_sampler_linear_entropy;

/* Samplers that edit. */
extern const um_sampler um_sampler_edit, um_sampler_dmax;
/* Returns the probability that `dmax` assigns to its new token for candidate i. */
float um_dmax_confidence(const um_sampler_input *c, int32_t i);
/* Option rows of token merging, for the strategy `dmax`. */
extern const um_option um_token_merge_options[5];

/* Remasks filled candidates (remask_threshold), for every sampler that does not edit. Appends to d the candidates whose
 * token the model now gives less than how->remask_threshold (answer.p_id), the least probable first, at most `most`.
 * The caller passes fewer than the pass commits, so that every pass leaves fewer masks. */
void um_remask(const um_sampler_input *filled, int32_t most, um_decision *d);

/* Returns the number of positions to commit in pass `step` of `n` when `masks` of a block's `len` positions are masked.
 * It may be 0. */
int32_t um_schedule_count(um_schedule s, double eps, int32_t step, int32_t n, int32_t masks, int32_t len);
/* Returns the share of the masks that pass `step` of `n` commits under UM_SCHEDULE_TIME; 1 in the last pass. */
double um_schedule_rate(double eps, int32_t step, int32_t n);

/* ---- Retention rules --------------------------------------------------------------------------------------------- */

/* A rule that chooses which keys outside a block the strategy `sparse` keeps: the share retention_ratio with the
 * largest sums of the model's score (um_kv_select) and the rule's prior. */
typedef struct um_retention {
    const char *name, *aliases, *summary, *source;
    bool blind; /* the model's scores are ignored: the prior alone decides */
    /* Fills out [n] with finite values for the positions of prompt and canvas; values inside the block are ignored. It
     * must be pure: after preemption it is called again and must give the same values. NULL: 0 everywhere. */
    void (*prior)(const um_decoding *how, int32_t n_prompt, um_range block, int32_t n, float *out);
} um_retention;
extern const um_retention *const um_retentions[]; /* ends with NULL */
extern const um_retention um_retention_attention;
/* Finds a rule by name or alias. The message of UM_EINVAL lists the names. */
um_status um_retention_find(const um_retention **out, const char *name, um_err *err);

/* ---- Strategies -------------------------------------------------------------------------------------------------- */

/* Room for the arrays of a um_trace. */
typedef struct um_trace_space {
    int32_t block[UM_BUFFER_MAX], masks[UM_BUFFER_MAX];
    const char *status[UM_BUFFER_MAX];
} um_trace_space;

struct um_strategy {
    const char *name, *aliases, *summary, *source;
    um_params params[UM_PARAMS_MAX]; /* option rows of this strategy, in addition to the shared ones */
    bool fills_gaps;                 /* supports a suffix: r->n_suffix tokens may follow the answer */
    /* Resolves automatic values in r->how, sets r->sampler and checks both against the model. Errors name parameter,
     * value and range. */
    um_status (*init)(um_req *r, um_err *err);
    um_need (*need)(const um_req *r);
    void (*plan)(um_req *r, um_pass *pass);
    void (*apply)(um_req *r, const um_answer *answer);
    /* Lists the blocks in flight in ascending order of position in out [UM_BUFFER_MAX], through um_req_view_block, and
     * returns their number. NULL: the strategy has no blocks to show. */
    int32_t (*blocks)(const um_req *r, um_block_view *out);
    /* Describes the last pass in the form of the golden recordings. The arrays of `out` point into `space`. */
    void (*trace)(const um_req *r, um_trace_space *space, um_trace *out);
    /* Tells the strategy that the request has lost its pages; r->stored is 0. The strategy discards its other records
     * of stored keys. Later passes must write the same tokens as without the loss. NULL: r->stored is its only record.
     */
    void (*preempt)(um_req *r);
    /* Tells which stored pages may be shared. Sets *most to the number of leading positions whose keys may come from
     * other requests. Requests for which it returns the same number other than 0 may share them: then the keys of a
     * page depend on nothing but the tokens up to the page's end. With 0 only the answers of one request share them.
     * NULL: nothing is shared. */
    uint64_t (*share)(const um_req *r, int32_t *most);
    void (*free)(um_req *r);
};
extern const um_strategy *const um_strategies[]; /* ends with NULL */
extern const um_strategy um_strategy_multi_bd, um_strategy_d2f, um_strategy_dmax, um_strategy_fast_dllm_v2,
    um_strategy_levenshtein, um_strategy_joint_indel, um_strategy_seeded_bd, um_strategy_autoregressive,
    um_strategy_self_speculation, um_strategy_causal_window, um_strategy_full, um_strategy_prefix_cache,
    um_strategy_dual_cache, um_strategy_sparse, um_strategy_renoising;

/* Tells whether `name` is one of the comma-separated words of `list`, which may be NULL. */
bool um_name_in(const char *list, const char *name);
/* Checks that the strategy or the sampler reads every parameter of the request. Call it after the strategy's init;
 * `given` are the parameters before init. Returns UM_EUNSUPPORTED for a parameter that neither reads. Parameters that
 * have their default, or the value in `usual`, pass. `usual` are the parameters that the request was derived from, NULL
 * if there are none. */
um_status um_req_check_unread_params(const um_req *r, const um_decoding *given, const um_decoding *usual, um_err *err);
/* Finds a strategy by name or alias. The message of UM_EINVAL lists the names. */
um_status um_strategy_find(const um_strategy **out, const char *name, um_err *err);
/* Appends the names that an option accepts, "confidence|dynamic", and the aliases, "threshold|...": those of
 * strategies, samplers or retention rules. Appends nothing for other options. */
void um_decode_put_names(const char *option, um_buf *names, um_buf *aliases);
/* Tells whether the option is among the rows that a strategy or sampler reads in addition to the shared ones. */
bool um_params_have(const um_params *params, const char *option);
/* Appends the names of strategies and samplers whose own rows contain the option, "strategies full, sparse; sampler
 * factor". Appends nothing for a shared or unknown option. */
void um_params_put_readers(const char *option, um_buf *out);

/* Option rows that every strategy reads (over um_decoding), and rows of sampling (over um_sampling_params). */
extern const um_option um_decoding_options[];
extern const size_t um_n_decoding_options;
extern const um_option um_sampling_options[];
extern const size_t um_n_sampling_options;
#define UM_DECODE_SETS_MAX 40
/* Lists all sets of decoding and sampling rows with their bases, including those of strategies and samplers, and
 * returns their number (<= UM_DECODE_SETS_MAX). */
size_t um_decode_option_sets(um_option_set *sets, um_decoding *d, um_sampling_params *s);
/* Sets every row's default. */
void um_decoding_init(um_decoding *d);

#ifdef __cplusplus
}
#endif
#endif
