/* decode: how a request's positions turn from masks into tokens.
 *
 * A strategy owns the life of a request between two forward passes: it plans what to feed and which predictions it
 * wants, and applies the answers. A sampler is a pure function of the answers of one block. Nothing here computes
 * logits, schedules requests or knows text; the engine calls plan, runs the batch, calls apply.
 *
 * A request belongs to the engine's thread. plan and apply allocate nothing. */
#ifndef UM_DECODE_H
#define UM_DECODE_H

#include "base/base.h"
#include "ops/batch.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_req um_req;
typedef struct um_edits um_edits;
typedef struct um_strategy um_strategy;
typedef struct um_sampler um_sampler;

/* What decoding has to know of a model. */
typedef struct um_traits {
    int32_t mask_id;
    int32_t eos;         /* the tokenizer's end of sequence: what --compat looks for */
    const int32_t *stop; /* [n_stop] ids that end an answer */
    int32_t n_stop;
    int32_t pad;        /* id that fills what an answer leaves empty, -1: none */
    const int32_t *ban; /* [n_ban] ids that no answer contains, beside the mask */
    int32_t n_ban;
    um_see see;
    int32_t block;          /* trained block length, 0 when the family has none */
    int32_t page_size;      /* positions of a KV page: what requests share is whole pages */
    int32_t blend_ids;      /* ids in blends that a step has room for */
    int32_t route_block;    /* experts are chosen per block of this many positions, 0: per token */
    int32_t shift;          /* 1: row i-1 predicts position i */
    bool always_forced;     /* every block may be forced to take a token, whatever its predecessor */
    bool prefill_is_silent; /* nothing is sampled in the prefill pass */
    float accept_threshold;
    const char *sampler; /* what `auto` is */
} um_traits;

/* Switches that restore behaviour of the system whose recordings we replay (--compat diffulex). All off by default;
 * read by strategies, samplers and limits only. */
typedef struct um_compat {
    bool allocated_limits; /* limits count allocated slots, masks included; the answer may end early */
    bool eos_drains;       /* end of sequence stops growth, and every running block is still decoded */
    bool separate_commit;  /* a block's commit and the prefill of an aligned prompt are passes of their own */
    bool literal_edits; /* edit samplers may choose the mask id, know no edit_threshold, drop noise under a penalty */
    bool merged_commit; /* dmax stores keys of blended embeddings */
    bool zero_anchor;   /* d2f: blocks lie on a grid from position 0 */
    float threshold;    /* accept_threshold that no option changes, NAN: none */
} um_compat;

/* ---- Request ----------------------------------------------------------------------------------------------------- */

struct um_req {
    /* fixed at submission */
    const um_traits *traits;
    const um_compat *compat;
    const um_strategy *strategy;
    const um_sampler *sampler; /* that its init chose; NULL: it decides without one */
    um_decoding how;
    um_sampling_params sampling;
    uint64_t seed;
    int32_t n_prompt, max_len; /* max_len: positions of prompt and answer together */
    int32_t limit;             /* first position that is never written: min(max_len, n_prompt + max_tokens) */
    int32_t n_suffix;          /* given tokens behind the answer, which fills the gap before them */
    int32_t cap;               /* length of the arrays below */
    const int32_t *page[2];    /* page tables: of the request, and of its unconditional twin under guidance */
    int32_t saved;             /* saved hidden row that is its own */
    int32_t adapter;           /* adapter its tokens run through, -1: none */
    int32_t n_top;             /* likeliest ids kept for each token, 0..UM_TOP_MAX */
    int32_t n_top_asked;       /* likeliest ids that its rows ask for: those, or what its sampler needs */
    bool may_choose_mask;      /* compat: the mask id is an id like others */
    const int32_t *stop_ids;   /* [n_stop_ids] ids that end the answer, beside the model's */
    int32_t n_stop_ids;

    /* What edits its rows share (edits.c), by rising id; rows before min_tokens have a list of their own. */
    const um_edit *edit, *early_edit;
    int32_t n_edit, n_early_edit;
    um_edits *edits;

    /* positions: the prompt, masks that turn into tokens, the suffix */
    int32_t *token;   /* [cap]; the mask id where nothing is written */
    int32_t *written; /* [cap] pass that wrote the token, from 1; 0 it was given; -1 it is a mask */
    float *logprob;   /* [cap] natural logarithm of the token's probability in the pass that wrote it; NULL: not kept */
    float *confidence; /* [cap] that probability, NAN for a mask; NULL: not kept */
    um_top *top;       /* [cap, n_top] the likeliest ids in that pass; NULL: not kept */
    int32_t end;       /* first position behind those in flight */
    int32_t settled; /* positions from here on may still change, filled or not; INT32_MAX when nothing is ever edited */
    int32_t filled;  /* first answer position that is a mask or may change; those before it are final */

    /* Leading positions whose final keys and values lie in the pages. The engine sets it when the request is admitted
     * (prefix found, table forked) and to 0 when it takes the pages away; the strategy moves it on. */
    int32_t stored;

    /* counters */
    int32_t nfe, n_new;     /* passes; tokens written in the last pass */
    int32_t prefill_passes; /* of those, passes that stored the prompt */
    int32_t run_length;     /* equal tokens at the end of the filled prefix */

    um_finish finish;
    int32_t stop_id;  /* the stop id that ended it, or -1 */
    int32_t n_answer; /* tokens of the answer once finished */
    void *state;      /* the strategy's */
};

static inline bool um_req_masked(const um_req *r, int32_t pos) { return r->written[pos] < 0; }

/* Random key of a draw at `pos` in the `count`-th denoising pass of its block. */
enum { UM_USE_SAMPLE, UM_USE_REMASK };
static inline uint64_t um_req_key(const um_req *r, int32_t pos, int32_t count, int use) {
    return um_rng_key(r->seed, (uint64_t)pos, (uint64_t)count, (uint64_t)use);
}

/* Writes a token, in the pass that is being applied: where a mask was, or over a token that is not settled. `a` is the
 * answer it comes from, `top` that row's likeliest ids or NULL. */
void um_req_write(um_req *r, int32_t pos, int32_t id, const um_answer *a);
/* Turns a token that is not settled back into a mask. */
void um_req_erase(um_req *r, int32_t pos);
/* Builds the edits of a request whose sampling parameters and cap are known; bias of ids may be -INFINITY: a ban. */
void um_req_edits_new(um_req *r, const um_bias *bias, size_t n_bias, int32_t vocab);
void um_req_edits_free(um_req *r);
/* Penalties count the tokens of [0, end): strategies call it in plan, before they ask for rows, with the start of the
 * first block that is being denoised. */
void um_req_penalize(um_req *r, int32_t end);

/* Ends apply: counts the pass, moves `filled` over the new final tokens and finishes the request at the first of: a
 * stop id, a repetition run, the limit; the number of passes is checked last. */
void um_req_check_stop(um_req *r);
/* Ends the answer at r->filled. Before a suffix the gap has as many positions as it has, and the model pads what it
 * does not need: the ids at the end of the gap that end a text or pad it are not part of the answer. */
void um_req_finish(um_req *r, um_finish why);
/* First position that may not be part of the answer: r->filled, or the first of such ids before it. */
int32_t um_req_shown(const um_req *r);
/* The same by the rules of um_compat; `allocated` = slots in use, DUMMY blocks included, `soft` = every running block
 * is complete. */
void um_req_check_stop_compat(um_req *r, int32_t allocated, bool soft);
/* compat: a stop condition holds (limits, end of sequence); it names a terminal block. */
bool um_req_truncated_compat(const um_req *r, int32_t allocated);
bool um_req_eos_compat(const um_req *r);

/* The blocks in flight, at most UM_BUFFER_MAX; returns their number. */
int32_t um_req_blocks(const um_req *r, um_block_view *out);
/* The block of positions [start, end), as far as it may be written. False: none of it may. */
bool um_req_view_block(const um_req *r, int32_t start, int32_t end, const char *status, um_block_view *out);

/* ---- Pass -------------------------------------------------------------------------------------------------------- */

/* What one request wants of the next forward pass. The arrays belong to the engine and hold what need() asked for. Row
 * and save indices count the tokens of this pass from 0. */
typedef struct um_pass {
    um_segment *seg;
    um_row *row;
    int32_t *id, *pos; /* token space, shared by the segments in order */
    um_edit *edit;     /* own edits of rows */
    um_top *top;       /* likeliest ids of rows */
    um_soft *soft;     /* and the lists of its entries */
    int32_t *soft_id;
    float *soft_w;
    um_kv_select *select;
    int32_t *scratch; /* page tables of scratch pages */
    int32_t n_seg, n_rows, n_tokens, n_edits, n_tops, n_softs, n_soft_ids, n_selects, n_scratch;

    int32_t page_size, first_scratch; /* tokens of a page; number of the next free scratch page */
    int32_t budget;                   /* tokens that this pass may feed: at least need().least */
    bool partial; /* set by plan: it only stores what is known (a chunk of the prompt, keys that were taken away). It
                     wants no rows, counts as no pass and is not shown; apply runs with no answers */
} um_pass;

/* Appends a segment over positions [start, end) of the request's tokens; ids are copied. keys end at `end`. */
um_segment *um_pass_add(um_pass *p, um_req *r, um_pass_kind kind, int32_t start, int32_t end, um_visibility rule);
/* Lets the keys of a segment, vis indices [0, end), live in scratch pages: nothing of it is stored. */
void um_pass_use_scratch(um_pass *p, um_segment *s, int32_t end);
/* Appends a row that predicts position pos from hidden row `src`, set up for the request's sampling, edits and
 * log-probabilities; count: denoising passes that the position's block has had (part of the random key). */
um_row *um_pass_row(um_pass *p, um_req *r, int32_t src, int32_t pos, int32_t count);
/* Room for n own edits of the row; the caller fills them in. */
um_edit *um_pass_edits(um_pass *p, um_row *row, int32_t n);
/* Appends a blend of n ids for the segment's token `at`; the caller fills in id and w. Entries by rising `at`. */
um_soft *um_pass_soft(um_pass *p, um_segment *s, int32_t at, int32_t n, int32_t **id, float **w);
/* The segment keeps sparse keys. */
um_kv_select *um_pass_select(um_pass *p, um_segment *s);

/* What a request needs. The first group is of the next pass, plan must keep to it; the second holds for its whole life,
 * is asked once after init, and decides admission. */
typedef struct um_need {
    int32_t tokens, rows; /* fed and wanted */
    int32_t least;        /* tokens with which a smaller pass is possible (a chunk); == tokens: none is */
    int32_t slots;        /* length of each page table, in positions */
    int32_t scratch;      /* positions in scratch pages, of all its segments, each rounded up to pages */
    int32_t edits, soft;  /* own edits of rows; ids in blends */
    bool refresh;         /* a pass over everything, among cheap ones: the scheduler may spread these */

    int32_t tokens_max, rows_max; /* least budget with which every pass is possible */
    int32_t slots_max;            /* positions whose keys and values are stored, in each table */
    int32_t scratch_max, edits_max, soft_max;
    int32_t positions_max; /* length of the request's arrays, DUMMY blocks included */
    int32_t tables;        /* page tables: 1, or 2 under guidance */
} um_need;

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

typedef enum { UM_BLOCK_DUMMY, UM_BLOCK_ACTIVE, UM_BLOCK_TO_CACHE, UM_BLOCK_IN_CACHE } um_block_status;
typedef enum { UM_BLOCK_IN_CONTEXT, UM_BLOCK_LAST_IN_CONTEXT, UM_BLOCK_OUT_OF_CONTEXT } um_block_type;

/* A block's state: plain data without pointers, so that it can live on a device beside the token array. */
typedef struct um_block {
    int32_t id, start, len;
    um_block_status status;
    um_block_type type;
    int32_t n_masks;
    int32_t editable_start; /* first index that may be written: the prompt's tail lies before it */
    bool commit_ready;
    float same_token_ratio;  /* share of filled positions that the model would keep */
    int32_t count;           /* passes in which it was sampled: part of the random key */
    int32_t total_steps;     /* passes that it began as ACTIVE */
    int32_t post_edit_steps; /* of those sampled, the ones that began without a mask */
} um_block;

const char *um_block_status_name(um_block_status s);
static inline float um_block_progress(const um_block *b) { return (float)(b->len - b->n_masks) / (float)b->len; }

#define UM_BLOCK_MAX  256 /* tokens of a block */
#define UM_BUFFER_MAX 65  /* blocks of a buffer: 64 that are denoised, one that is stored meanwhile */

/* Block buffer: consecutive blocks on a grid that starts at anchor. The running ones (TO_CACHE first, then ACTIVE)
 * stand before the DUMMY ones; every block before the head is IN_CACHE. */
typedef struct um_buffer {
    int32_t n, block_len, run; /* blocks; tokens of each; blocks that run */
    int32_t anchor;            /* where block 0 starts */
    int32_t limit;             /* positions from here on are never written: they are no masks to fill */
    bool terminal;             /* compat: a terminal block was named, no block grows behind it */
    um_block block[UM_BUFFER_MAX];
} um_buffer;

/* A buffer of n blocks behind a prompt of n_prompt tokens: a block that the prompt's tail cuts is ACTIVE in front. */
void um_buffer_init(um_buffer *b, int32_t n, int32_t block_len, int32_t anchor, int32_t limit, int32_t n_prompt);
static inline int32_t um_buffer_start(const um_buffer *b) { return b->block[0].start; }
/* First position behind the running blocks, and behind the DUMMY ones. */
static inline int32_t um_buffer_end(const um_buffer *b) { return um_buffer_start(b) + b->run * b->block_len; }
static inline int32_t um_buffer_allocated(const um_buffer *b) { return um_buffer_start(b) + b->n * b->block_len; }
/* Turns the first DUMMY block ACTIVE. */
void um_buffer_grow(um_buffer *b);
/* The head was stored: drops it and appends a DUMMY block, OUT_OF_CONTEXT when `out`. */
void um_buffer_shift(um_buffer *b, bool out);
bool um_buffer_complete(const um_buffer *b);        /* no running block has a mask */
int32_t um_buffer_first_active(const um_buffer *b); /* its index; `run` when there is none */

/* ---- Samplers ---------------------------------------------------------------------------------------------------- */

/* How many positions a pass fixes when the number of passes is given. */
typedef enum {
    UM_SCHEDULE_NONE,   /* the sampler decides by what it sees; passes follow until nothing is masked */
    UM_SCHEDULE_EVEN,   /* an even split, the remainder first */
    UM_SCHEDULE_LINEAR, /* what stays masked falls in a line, rounded down */
    UM_SCHEDULE_TIME    /* the masked share falls in a line from 1 to eps; a pass fixes its share of what is masked */
} um_schedule;

#define UM_MASKED (-1) /* in place of a token id: a mask */

/* What a sampler sees of one block in one pass: its candidates in ascending position. These are its masks or, for
 * samplers that edit, all of its editable positions. */
typedef struct um_choice {
    const um_answer *answer; /* [n]; NULL when only edits are asked for */
    const int32_t *position; /* [n] */
    const int32_t *token;    /* [n] what stands there, UM_MASKED for a mask */
    int32_t n, n_masks;
    int32_t n_fixed;  /* the first n_fixed candidates are prompt: seen, never written (--compat only, else 0) */
    int32_t previous; /* token before the first candidate if it lies in the same block, else UM_MASKED */
    int32_t block_len;
    const um_decoding *how;
    const um_compat *compat;
    uint64_t seed;
    float temperature; /* that the answers were drawn at */
    int32_t mask_id;
    int32_t count;           /* pass within the block: part of the random key */
    int32_t total_steps;     /* passes that the block began as ACTIVE */
    int32_t post_edit_steps; /* passes it began without a mask, this one included */
    bool forced;             /* UM_SCHEDULE_NONE: take the best one when none passes */
    int32_t keep;            /* scheduled: how many to fix */
    double rate;             /* UM_SCHEDULE_TIME: probability with which each one is fixed */
    float *score;            /* [n] scratch */
    void *memory;            /* what the sampler remembers of the block, zero when it starts; NULL when it has none */
} um_choice;

/* What it decides. */
typedef struct um_decision {
    int32_t n;
    int32_t *at,
        *id; /* [n], room for the candidates: index of one, and the token it gets or UM_MASKED to take it back */
    /* Samplers that edit say what becomes of the block; others leave it to the count of masks. */
    bool committable;
    float same_token_ratio;
} um_decision;

/* The sampled token of candidate i is written. */
static inline void um_decide(um_decision *d, const um_choice *c, int32_t i) {
    d->at[d->n] = i;
    d->id[d->n++] = c->answer ? c->answer[i].sample : UM_MASKED;
}

/* A run of rows over um_decoding. Strategies or samplers that read the same rows name the same array. */
typedef struct um_params {
    const um_option *rows;
    size_t n;
} um_params;
#define UM_PARAMS_MAX 4

struct um_sampler {
    const char *name, *aliases, *summary, *source;
    um_params params[UM_PARAMS_MAX]; /* what it reads beside the rows that all share */
    um_schedule schedule;
    bool is_independent; /* draws each position by itself with c->rate instead of fixing c->keep */
    bool edits;          /* sees filled positions too; a block lives on until the sampler calls it committable */
    bool block_only;     /* needs the blocks of block diffusion, no whole-sequence decoding */
    /* Resolves and checks its parameters; NULL: nothing to check. */
    um_status (*init)(um_req *r, um_err *err);
    uint32_t (*want)(const um_req *r); /* UM_WANT_* bits of its rows */
    int32_t (*n_top)(const um_req *r); /* likeliest ids it wants of each row; NULL: none */
    /* Bytes of memory for a block of n positions; NULL: none. */
    size_t (*memory)(const um_req *r, int32_t n);
    /* Own edits of candidate i's logits: fills out [edits_max], returns their number. Both NULL: none. */
    int32_t (*edits_max)(const um_req *r);
    int32_t (*edit)(const um_choice *c, int32_t i, um_edit *out);
    /* Decides; d comes empty. Pure but for c->score and c->memory. */
    void (*accept)(const um_choice *c, um_decision *d);
};
extern const um_sampler *const um_samplers[]; /* NULL ends the list */
/* By name or alias; UM_EINVAL names those that exist. */
um_status um_sampler_find(const um_sampler **out, const char *name, um_err *err);

/* Those that decide by what they see, a file each. */
extern const um_sampler um_sampler_confidence, um_sampler_dynamic, um_sampler_static, um_sampler_sequential,
    um_sampler_sdar_dynamic, um_sampler_factor, um_sampler_hierarchy, um_sampler_credit, um_sampler_entropy_bound,
    um_sampler_entropy_threshold;
/* Scheduled ones (samplers/scheduled.c). */
extern const um_sampler um_sampler_low_confidence, um_sampler_random, um_sampler_origin, um_sampler_maskgit_plus,
    um_sampler_topk_margin, um_sampler_entropy, um_sampler_linear_entropy;

/* Samplers that edit. */
extern const um_sampler um_sampler_edit, um_sampler_dmax;
/* What `dmax` takes for the probability of what it makes of candidate i. */
float um_dmax_confidence(const um_choice *c, int32_t i);
/* Rows of token merge, for the strategy `dmax`. */
extern const um_option um_token_merge_options[5];

/* remask_threshold, for every sampler that does not edit: of the filled candidates that the model gives less than
 * how->remask_threshold now (answer.p_id), the least probable first, up to `most` go back to being masks; appended to
 * d. The caller lets `most` be less than what the pass filled, so that every pass leaves fewer masks. */
void um_remask(const um_choice *filled, int32_t most, um_decision *d);

/* Positions to fix in pass `step` of `n`, `masks` of a block's `len` positions being masked; 0 is possible. */
int32_t um_schedule_count(um_schedule s, double eps, int32_t step, int32_t n, int32_t masks, int32_t len);
/* UM_SCHEDULE_TIME: share of the masks that pass `step` of `n` fixes; 1 in the last. */
double um_schedule_rate(double eps, int32_t step, int32_t n);

/* ---- Retention rules --------------------------------------------------------------------------------------------- */

/* Which keys outside a block `sparse` keeps: the best retention_ratio of them by what the model gives them
 * (um_kv_select) plus what the rule does. */
typedef struct um_retention {
    const char *name, *aliases, *summary, *source;
    bool blind; /* the model gives nothing: prior decides alone */
    /* Fills out [n] for the positions of prompt and canvas, finite; those of the block don't count. Pure: it is asked
     * again when kept keys were taken away, and must answer the same. NULL: 0 everywhere. */
    void (*prior)(const um_decoding *how, int32_t n_prompt, um_range block, int32_t n, float *out);
} um_retention;
extern const um_retention *const um_retentions[]; /* NULL ends the list */
extern const um_retention um_retention_attention;
/* By name or alias; UM_EINVAL names those that exist. */
um_status um_retention_find(const um_retention **out, const char *name, um_err *err);

/* ---- Strategies -------------------------------------------------------------------------------------------------- */

/* Room for the arrays of a um_trace. */
typedef struct um_trace_space {
    int32_t block[UM_BUFFER_MAX], masks[UM_BUFFER_MAX];
    const char *status[UM_BUFFER_MAX];
} um_trace_space;

struct um_strategy {
    const char *name, *aliases, *summary, *source;
    um_params params[UM_PARAMS_MAX]; /* what it reads beside the rows that all share */
    bool fills_gaps;                 /* r->n_suffix tokens may follow the answer */
    /* Resolves automatic values in r->how, says r->sampler, and checks them against the model: errors name parameter,
     * value and range. */
    um_status (*init)(um_req *r, um_err *err);
    um_need (*need)(const um_req *r);
    void (*plan)(um_req *r, um_pass *pass);
    void (*apply)(um_req *r, const um_answer *answer);
    /* Blocks in flight by rising position, into out [UM_BUFFER_MAX] through um_req_view_block; returns their number.
     * NULL: it has none to show. */
    int32_t (*blocks)(const um_req *r, um_block_view *out);
    /* The pass in the form of the golden recordings; the arrays of `out` point into `space`. */
    void (*trace)(const um_req *r, um_trace_space *space, um_trace *out);
    /* Its pages were taken away; r->stored is 0. What it knows of stored keys beside that is forgotten; what follows
     * must write the same tokens as if nothing had happened. NULL: r->stored is all it knows. */
    void (*preempt)(um_req *r);
    /* Keys of stored positions depend on the tokens up to the end of their page alone: a number that is equal for
     * requests that may share pages, and 0 for those that may not. *most: leading positions that may come from another
     * request. NULL: it never shares. */
    uint64_t (*share)(const um_req *r, int32_t *most);
    void (*free)(um_req *r);
};
extern const um_strategy *const um_strategies[]; /* NULL ends the list */
extern const um_strategy um_strategy_multi_bd, um_strategy_d2f, um_strategy_dmax, um_strategy_fast_dllm_v2,
    um_strategy_full, um_strategy_prefix_cache, um_strategy_dual_cache, um_strategy_sparse;

/* `name` is one of the comma-separated words of `list`, which may be NULL. */
bool um_name_in(const char *list, const char *name);
/* After its init: UM_EUNSUPPORTED for a parameter of `given`, as it was before init, that neither strategy nor sampler
 * reads. What is as in `usual`, which the request was made from (NULL: none), and what is its row's default passes. */
um_status um_req_check_unread(const um_req *r, const um_decoding *given, const um_decoding *usual, um_err *err);
/* By name or alias; UM_EINVAL names those that exist. */
um_status um_strategy_find(const um_strategy **out, const char *name, um_err *err);
/* The option is one of the rows that a strategy or a sampler reads beside those that all share. */
bool um_params_have(const um_params *params, const char *option);
/* Appends whose rows have it, "strategies full, sparse; sampler factor"; nothing where all read it, or nobody. */
void um_params_put_readers(const char *option, um_buf *out);

/* Decoding rows that every strategy shares (over um_decoding), and sampling rows (over um_sampling_params). */
extern const um_option um_decoding_options[];
extern const size_t um_n_decoding_options;
extern const um_option um_sampling_options[];
extern const size_t um_n_sampling_options;
#define UM_DECODE_SETS_MAX 40
/* All sets of decoding and sampling rows, those of strategies and samplers among them, with their bases; returns their
 * number (<= UM_DECODE_SETS_MAX). */
size_t um_decode_option_sets(um_option_set *sets, um_decoding *d, um_sampling_params *s);
void um_decoding_init(um_decoding *d); /* every row's default */

#ifdef __cplusplus
}
#endif
#endif
