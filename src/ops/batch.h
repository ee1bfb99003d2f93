/* The flat batch: a description of one forward pass as plain data. Strategies and the engine build it; a
 * backend computes it. It contains no policy.
 *
 * Positions of a request count from 0. A fed token has three numbers: its rotary position `pos`, its visibility index
 * `vis` and its KV slot. The visibility index is the token's place in the order in which keys are read. It equals the
 * position unless a strategy feeds tokens in another order than that of the text (causal_window). The keys and values
 * of every fed token, final or provisional, are written to its slot before attention reads, so attention reads keys
 * from pages only.
 *
 * There are two kinds of pages. Pages below n_pages belong to a request's table until it releases them. Scratch pages,
 * numbered from n_pages on, are valid for one pass and hold a single layer: each layer overwrites the keys of the layer
 * before. Keys that no later pass reads (whole-sequence decoding, a sparse refresh) are stored there. */
#ifndef UM_OPS_BATCH_H
#define UM_OPS_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_range {
    int32_t start, end; /* [start, end) */
} um_range;

/* Returns the slot of visibility index `vis` in a page table. */
static inline int64_t um_slot_of(const int32_t *page, int32_t page_size, int32_t vis) {
    return (int64_t)page[vis / page_size] * page_size + vis % page_size;
}

/* Backends that read keys in groups start the groups at multiples of this visibility index. Moving keys by a multiple
 * of it therefore leaves the sums bit-identical. The kernels for Hopper GPUs keep this for queries that see keys up to
 * the index 4,096; beyond it the size of their groups follows from the last key that the query sees. */
#define UM_KEY_GROUP 256

/* Writes the parts of `all` that are outside of `gone`, in ascending order and without empty ranges. Returns their
 * number. */
static inline int um_range_without(um_range all, um_range gone, um_range out[2]) {
    int n = 0;
    if (gone.start >= gone.end) gone.start = gone.end = all.end;
    um_range part[2] = {{all.start, gone.start < all.end ? gone.start : all.end},
                        {gone.end > all.start ? gone.end : all.start, all.end}};
    for (int i = 0; i < 2; i++)
        if (part[i].start < part[i].end) out[n++] = part[i];
    return n;
}

/* The rule that says which keys a query sees: those whose visibility index is below a bound. The bound depends only on
 * the query's own index. */
typedef enum { UM_SEE_FULL, UM_SEE_CAUSAL, UM_SEE_BLOCK_CAUSAL } um_see;
typedef struct um_visibility {
    um_see see;
    /* For UM_SEE_BLOCK_CAUSAL: blocks of this length start at anchor. The positions before anchor are one block; of
     * these, the first `prefix` positions see only each other. 0 <= prefix <= anchor. */
    int32_t block, anchor, prefix;
} um_visibility;

/* Returns the first index that the query at `vis` does not see. */
static inline int32_t um_visible_end(um_visibility v, int32_t vis) {
    if (v.see == UM_SEE_FULL) return INT32_MAX;
    if (v.see == UM_SEE_CAUSAL) return vis + 1;
    if (vis < v.prefix) return v.prefix;
    if (vis < v.anchor) return v.anchor;
    return v.anchor + ((vis - v.anchor) / v.block + 1) * v.block;
}

typedef enum { UM_PASS_PREFILL, UM_PASS_DENOISE, UM_PASS_COMMIT } um_pass_kind;

/* A token that is fed as a blend of embeddings in place of its own embedding: x = sum over i of w[i] * E[id[i]]. With
 * `renormalize`, x is then scaled to the length sum over i of w[i] * |E[id[i]]|. Sums are fp32, in the order of the
 * list. */
typedef struct um_soft {
    int32_t at; /* index of the token in its segment, or in the batch for um_batch.soft */
    int32_t n;
    const int32_t *id; /* [n] */
    const float *w;    /* [n] */
    bool renormalize;
} um_soft;

/* A selection of sparse keys. In every layer, after attention, the keys that matter most to a block are copied with
 * their values to a separate page table.
 *
 * Let qbar[h] be the mean of the rotated queries of the block's tokens in query head h. The score of a key k outside
 * the block is the sum over all query heads h of
 *     s[k] = qbar[h] . K[k, KV head of h] / sqrt(d)
 * With per_head, it is the largest value among the query heads that share the KV head. The scores are then max-pooled
 * over `pool` neighbours in the ascending list of keys outside the block, and prior[k] is added. With `blind` all
 * scores are 0 before the prior is added.
 *
 * The n_keep keys with the largest results are copied in descending order, the lower index first among equals: the t-th
 * key to index t of the table. All KV heads keep the same keys, or with per_head each KV head keeps its own. */
typedef struct um_kv_select {
    um_range block; /* visibility indices of the block; its tokens are fed in this pass */
    int32_t n_keep, pool;
    bool per_head;
    const int32_t *page; /* page table of the kept keys: the t-th is in page[t / page_size] */
    const float *prior;  /* by visibility index, up to the end of the segment's keys; finite; NULL: 0 */
    bool blind;
} um_kv_select;

struct um_req;

/* A run of tokens of one request in this pass. A request may have several segments (guidance, branches). */
typedef struct um_segment {
    struct um_req *req;
    um_pass_kind kind;
    int32_t n;                     /* tokens fed */
    const int32_t *id, *pos, *vis; /* [n] token ids, rotary positions, visibility indices */
    const int32_t *page;           /* page table: visibility index vis is in page[vis / page_size] */
    um_range keys;                 /* visibility indices of the keys that attention reads, including those fed now */
    um_range hole;                 /* indices within `keys` that attention skips; empty: {0, 0} */
    um_visibility rule;
    const um_kv_select *select; /* NULL: no selection */
    const um_soft *soft;        /* [n_soft] by ascending `at` */
    int32_t n_soft;
    int32_t adapter; /* index of the adapter (LoRA) applied to the tokens; -1: none */
    bool canvas;     /* see um_span */
    int32_t blend;   /* see um_span */
    /* Store the final hidden row of token save_src (index in the segment) as saved row save_to; -1: none. */
    int32_t save_src, save_to;
} um_segment;

/* An edit of a logit. A row's edits are applied in their order, and an id may occur more than once. Within one edit,
 * scale is applied before add. */
typedef struct um_edit {
    int32_t id;
    float add;   /* added to the logit */
    float scale; /* > 0: divides a positive logit, multiplies a negative one (repetition penalty); 0: off */
    bool ban;    /* the id can't be chosen and has probability 0 */
} um_edit;

/* Sampling parameters of a row. The filters are applied to the logits divided by the temperature (by 1 when the
 * temperature is 0). Each counts the probabilities of all ids. The likeliest id is never dropped.
 *
 * With filters_first they are applied to the logits before the temperature, and top-p counts the probabilities of the
 * ids that top-k keeps. */
typedef struct um_sampling {
    float temperature; /* 0 = greedy */
    float top_p;       /* 1 = off; drops an id when the likelier ids together exceed this probability */
    float min_p;       /* 0 = off; drops an id below this share of the likeliest id's probability */
    int32_t top_k;     /* 0 = off; keeps all ids whose logit equals the k-th */
    bool filters_first;
    uint64_t key; /* random key; the counter is the vocabulary id */
} um_sampling;

enum {
    UM_WANT_BEST = 1,          /* best id and its probability */
    UM_WANT_SECOND = 2,        /* second best id and its probability */
    UM_WANT_ENTROPY = 4,       /* entropy after temperature and filters, in nats */
    UM_WANT_SAMPLE = 8,        /* a sampled id; the best id when the temperature is 0 */
    UM_WANT_PROB_OF = 16,      /* probability of `id`, and its logarithm */
    UM_WANT_PLAIN_ENTROPY = 32 /* entropy before temperature and filters; replaces that after them */
};

#define UM_TOP_MAX 64
/* One of the likeliest ids, with its probability before (p) and after (q) temperature and filters. */
typedef struct um_top {
    int32_t id; /* -1: this entry and all later ones are unused */
    float p, q;
} um_top;

/* A request for one prediction. */
typedef struct um_row {
    /* The logits are those of the hidden row w[0] * row0 + w[1] * row1. src are the final hidden rows: index in the
     * batch, or -1 - k for saved row k; src[1] is unused when w[1] is 0. Guidance g is {1 + g, -g}. */
    int32_t src[2];
    float w[2];
    const um_edit *edit; /* [n_edit] edits that the rows of a request share, by ascending id; may be thousands */
    int32_t n_edit;
    const um_edit *own; /* [n_own] edits of this row in any order, applied after the shared ones */
    int32_t n_own;
    const uint32_t *allow; /* bitmap of the allowed vocabulary ids; NULL: all */
    uint64_t allow_id;     /* number of the bitmap: those of the same number have the same bits; 0: it has none */
    um_sampling how;
    uint32_t want;
    int32_t id;    /* the id of UM_WANT_PROB_OF */
    int32_t blend; /* 1 + the blend that receives sum over ids of q(id) E[id]; 0: none. q has no filters */
    int32_t n_top; /* number of likeliest ids, 0..UM_TOP_MAX, by descending p; the highest id first among equals */
    um_top *top;   /* [n_top] written by the pass */
} um_row;

/* The prediction of a row. p are probabilities before temperature and filters, q after them; they are equal when the
 * temperature is 0 and no filter is set. Both cover only the ids that the edits and `allow` permit. Of equal logits the
 * highest id wins. */
typedef struct um_answer {
    int32_t best, second, sample; /* -1 when not wanted or when no id is allowed */
    float p_best, p_second, p_sample, p_id;
    float q_best, q_second, q_sample;
    float log_p_id; /* natural logarithm of p_id; finite also where p_id is too small for a float */
    float entropy, logsumexp;
    const um_top *top; /* the row's likeliest ids; NULL: none were wanted. The engine sets it. */
} um_answer;

/* The part of the flat arrays that belongs to one segment. */
typedef struct um_span {
    int32_t first, n; /* tokens [first, first + n) */
    const int32_t *page;
    const int32_t *near_page; /* page table of layers with a window; NULL: `page` */
    um_range keys, hole;
    const um_kv_select *select; /* NULL: no selection */
    int32_t adapter;            /* index of the adapter; -1: none */
    /* The tokens are a canvas: the model runs in its second mode, if it has two. In layers with a window, all of them
     * see the same keys: the last ones before the canvas, and the canvas. */
    bool canvas;
    int32_t start; /* visibility index of the first token of a canvas */
    /* 1 + the blend that is mixed into the embedding of the first token; the other tokens follow. 0: none is. Only for
     * a canvas. */
    int32_t blend;
} um_span;

/* Returns the page table of layers with this window. Pages that no token of the span sees may be -1. */
static inline const int32_t *um_span_page(const um_span *s, int32_t window) {
    return window > 0 && s->near_page ? s->near_page : s->page;
}

/* Returns the first visibility index that a token of the span sees in a layer with a window of this many keys; 0: the
 * layer has no window. The window of a token ends at the last key that it sees, and that of a canvas at its first. */
static inline int32_t um_seen_start(const um_span *s, int32_t window, int32_t seen_end) {
    const int32_t end = s->canvas ? s->start + 1 : seen_end;
    return window > 0 && end > window ? end - window : 0;
}

typedef struct um_batch {
    int32_t n_tokens, n_spans, n_rows, n_saves;
    const int32_t *id, *pos, *slot; /* [n_tokens] */
    const int32_t *near_slot;       /* [n_tokens] slots in layers with a window; NULL: `slot` */
    const int32_t *seen_end;        /* [n_tokens] first visibility index that the token does not see */
    const um_span *span;            /* [n_spans] */
    const um_soft *soft;            /* [n_soft] by ascending token */
    int32_t n_soft;
    const um_row *row;        /* [n_rows] */
    const int32_t (*save)[2]; /* [n_saves] {hidden row, saved row}; copied after the answers are computed */
    um_answer *answer;        /* [n_rows] written by the pass */
} um_batch;

#ifdef __cplusplus
}
#endif
#endif
