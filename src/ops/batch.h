/* The flat batch: what one forward pass computes, as data. It is the contract between those who plan (strategies, the
 * engine) and those who compute (transformer.c, the backends), and holds no policy.
 *
 * Positions of a request are numbered from 0. Three numbers belong to a fed token: its rotary position `pos`, its
 * visibility index `vis` (its place in the order in which keys are read; equal to the position in every family so far)
 * and its KV slot. Every fed token's keys and values are written to its slot before attention reads, whether they are
 * final or provisional, so attention knows one source of keys: pages.
 *
 * There are two kinds of pages. Those below n_pages belong to a request's table and live until it gives them back.
 * Scratch pages, numbered from n_pages on, live for one pass and are one layer deep: the keys of a layer are gone when
 * the next one runs. What a later pass never reads (whole-sequence decoding, a sparse refresh) goes there. */
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

/* Slot of visibility index `vis` by a table of pages. */
static inline int64_t um_slot_of(const int32_t *page, int32_t page_size, int32_t vis) {
    return (int64_t)page[vis / page_size] * page_size + vis % page_size;
}

/* Backends that go through keys in groups begin these at multiples of this visibility index: keys that lie on other
 * indices, but equally within such groups, give the same sums bit by bit. */
#define UM_KEY_GROUP 32

/* What is left of `all` without `gone`, ascending and without empty ranges; returns how many there are. */
static inline int um_range_without(um_range all, um_range gone, um_range out[2]) {
    int n = 0;
    if (gone.start >= gone.end) gone.start = gone.end = all.end;
    um_range part[2] = {{all.start, gone.start < all.end ? gone.start : all.end},
                        {gone.end > all.start ? gone.end : all.start, all.end}};
    for (int i = 0; i < 2; i++)
        if (part[i].start < part[i].end) out[n++] = part[i];
    return n;
}

/* Which keys a query sees: those with vis index below a bound that depends on the query's own index alone. */
typedef enum { UM_SEE_FULL, UM_SEE_CAUSAL, UM_SEE_BLOCK_CAUSAL } um_see;
typedef struct um_visibility {
    um_see see;
    /* Block-causal: blocks of this length start at anchor; what lies before is one block, of which the first `prefix`
     * positions see each other alone. 0 <= prefix <= anchor. */
    int32_t block, anchor, prefix;
} um_visibility;

/* First index that the query at `vis` does not see. */
static inline int32_t um_visible_end(um_visibility v, int32_t vis) {
    if (v.see == UM_SEE_FULL) return INT32_MAX;
    if (v.see == UM_SEE_CAUSAL) return vis + 1;
    if (vis < v.prefix) return v.prefix;
    if (vis < v.anchor) return v.anchor;
    return v.anchor + ((vis - v.anchor) / v.block + 1) * v.block;
}

typedef enum { UM_PASS_PREFILL, UM_PASS_DENOISE, UM_PASS_COMMIT } um_pass_kind;

/* A token that is fed as a blend of embeddings in place of its own: x = sum over i of w[i] * E[id[i]], then, with
 * `renormalize`, x is brought to the length sum of w[i] * |E[id[i]]|. Sums run in the order of the list, in fp32. */
typedef struct um_soft {
    int32_t at; /* the token: index in the segment, in the batch its index there */
    int32_t n;
    const int32_t *id; /* [n] */
    const float *w;    /* [n] */
    bool renormalize;
} um_soft;

/* Sparse keys: in every layer, after its attention, the keys that matter most to a block are copied, with their values,
 * to a table of their own. With Q the rotated queries of the block's tokens and qbar[h] their mean, a key k outside the
 * block scores, over all query heads h (or, per_head, as the largest of those that share the KV head),
 *     s[k] = qbar[h] . K[k, KV head of h] / sqrt(d)
 * then s is max-pooled over `pool` neighbours of the ascending list of keys outside the block, and prior[k] is added.
 * The n_keep largest go to the table in falling order of that, ties lower index first; row t at index t: the same keys
 * for all KV heads, or, per_head, each head its own. `blind` leaves the scores out: s is 0. */
typedef struct um_kv_select {
    um_range block; /* vis indices of the block; its tokens are fed in this pass */
    int32_t n_keep, pool;
    bool per_head;
    const int32_t *page; /* table of the kept rows: row t lies in page[t / page_size] */
    const float *prior;  /* by vis index, up to the end of the segment's keys, finite; NULL: 0 */
    bool blind;
} um_kv_select;

struct um_req;

/* A run of tokens of one request in this pass; a request may own several (guidance, branches). */
typedef struct um_segment {
    struct um_req *req;
    um_pass_kind kind;
    int32_t n;                     /* tokens fed */
    const int32_t *id, *pos, *vis; /* [n] token ids, rotary positions, visibility indices */
    const int32_t *page;           /* page table: index vis lies in page[vis / page_size] */
    um_range keys;                 /* vis indices of the keys that exist for this pass, those fed now included */
    um_range hole;                 /* of those, the ones that do not exist; empty: {0, 0} */
    um_visibility rule;
    const um_kv_select *select; /* NULL: nothing is kept */
    const um_soft *soft;        /* [n_soft] by rising `at` */
    int32_t n_soft;
    int32_t adapter; /* index of the adapter (LoRA) that its tokens run through, -1: none */
    int32_t save_src,
        save_to; /* keep final hidden row save_src (index in the segment) as saved row save_to; -1: none */
} um_segment;

/* Edits of a row work in their order (an id may come more than once); within one, scale comes before add. */
typedef struct um_edit {
    int32_t id;
    float add;   /* added to the logit */
    float scale; /* > 0: a positive logit is divided by it, a negative one multiplied (repetition penalty); 0: off */
    bool ban;    /* the id can't be chosen and has no share of the probability */
} um_edit;

/* Filters work in the order top-p, top-k, min-p, on logits divided by the temperature (by 1 when that is 0); the
 * likeliest id always stays. */
typedef struct um_sampling {
    float temperature; /* 0 = greedy */
    float top_p;       /* 1 = off; an id goes when those before it have more than this together */
    float min_p;       /* 0 = off; an id goes when it has less than this share of the likeliest one's probability */
    int32_t top_k;     /* 0 = off; ids equal to the k-th stay */
    uint64_t key;      /* random key; the counter is the vocabulary id */
} um_sampling;

enum {
    UM_WANT_BEST = 1,    /* best id and its probability */
    UM_WANT_SECOND = 2,  /* runner-up */
    UM_WANT_ENTROPY = 4, /* after temperature and filters, nats */
    UM_WANT_SAMPLE = 8,  /* a draw; equals best when temperature is 0 */
    UM_WANT_PROB_OF = 16 /* probability of `id` */
};

#define UM_TOP_MAX 64
/* One of the likeliest ids: probabilities before and after temperature and filters. */
typedef struct um_top {
    int32_t id; /* -1 and all behind it: there are no more */
    float p, q;
} um_top;

/* One wanted prediction. */
typedef struct um_row {
    int32_t src[2]; /* final hidden rows: index in the batch, or -1 - k for saved row k; src[1] unused when w[1] is 0 */
    float w[2];     /* the logits are those of w[0]*row0 + w[1]*row1; guidance g is {1+g, -g} */
    const um_edit *edit; /* [n_edit] what rows of a request share, by rising id; may be thousands */
    int32_t n_edit;
    const um_edit *own; /* [n_own] this row's, in any order; they come after the shared ones */
    int32_t n_own;
    const uint32_t *allow; /* vocabulary bitmap, or NULL: all below the vocabulary limit */
    um_sampling how;
    uint32_t want;
    int32_t id;    /* for UM_WANT_PROB_OF */
    int32_t n_top; /* 0..UM_TOP_MAX likeliest ids, by falling p, ties highest id first */
    um_top *top;   /* [n_top] written by the pass */
} um_row;

/* Ids and probabilities: p before temperature and filters, q after (equal to p when temperature is 0 and no filter is
 * set). Both over the ids that edits and `allow` leave. Ties go to the highest id. */
typedef struct um_answer {
    int32_t best, second, sample; /* -1 when not wanted or when nothing is allowed */
    float p_best, p_second, p_sample, p_id;
    float q_best, q_second, q_sample;
    float entropy, logsumexp;
    const um_top *top; /* the row's likeliest ids; NULL: none were wanted. Set by whoever runs the pass. */
} um_answer;

/* A segment's place in the flat arrays. */
typedef struct um_span {
    int32_t first, n; /* tokens [first, first + n) */
    const int32_t *page;
    um_range keys, hole;
    const um_kv_select *select; /* or NULL */
    int32_t adapter;            /* or -1 */
} um_span;

typedef struct um_batch {
    int32_t n_tokens, n_spans, n_rows, n_saves;
    const int32_t *id, *pos, *slot; /* [n_tokens] */
    const int32_t *seen_end;        /* [n_tokens] first vis index that the token does not see */
    const um_span *span;            /* [n_spans] */
    const um_soft *soft;            /* [n_soft] by rising token */
    int32_t n_soft;
    const um_row *row;        /* [n_rows] */
    const int32_t (*save)[2]; /* [n_saves] {hidden row, saved row}; taken after the answers are computed */
    um_answer *answer;        /* [n_rows] written by the pass */
} um_batch;

#ifdef __cplusplus
}
#endif
#endif
