/* message: a um_batch as one block of bytes without pointers, so that it reaches a device in one copy.
 *
 * A message starts with its header. The arrays of the header, the tokens, spans, tiles, rows and saves follow in this
 * order. Their places depend only on the capacity (um_message_capacity), which a caller pads to a few fixed sizes:
 * kernels of a recorded graph find them at the same place in every message of the same capacity. Behind them lie data
 * of any length: page tables, selections, blends, edits, bitmaps. A structure names such data by its word offset: the
 * number of 4-byte words from the start of the message. Data that neighbouring structures share (a request's edits,
 * bitmap, page tables and prior) are stored once.
 *
 * A device may keep bitmaps for later passes, in places behind its message. A message then has only the bitmaps that
 * are in none of them.
 *
 * Padding is harmless: a token beyond the batch has id 0, position 0, slot -1, seen_end 0 and no blend; a span, tile or
 * row beyond it is empty.
 *
 * All types have the same layout for the host and the device. No function allocates. Any thread. */
#ifndef UM_OPS_MESSAGE_H
#define UM_OPS_MESSAGE_H

#include <assert.h>
#include <stddef.h>

#include "ops/batch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Alignment of a message and of each of its arrays, in bytes. */
#define UM_MESSAGE_ALIGN 16

typedef struct um_message_header {
    int32_t n_tokens, n_spans, n_tiles, n_rows, n_saves; /* of the batch, without padding */
    int32_t n_whole; /* rows with a filter or a list of likeliest ids (um_message_row.whole) */
    int32_t n_tops;  /* entries of all lists of likeliest ids */
    int32_t longest; /* largest number of keys that a span reads */
    int64_t bytes;   /* of the message */
} um_message_header;

typedef struct um_message_span {
    int32_t first, n; /* tokens [first, first + n) */
    um_range keys, hole;
    int32_t adapter;   /* -1: none */
    int32_t page;      /* word offset of the page table, which covers the indices below keys.end */
    int32_t select;    /* word offset of a um_message_select; -1: none */
    int32_t settled;   /* the pass writes no key of the span's page table with a visibility index below this */
    int32_t near_page; /* word offset of the page table of layers with a window; may be that of `page` */
    int32_t canvas;    /* 1: the tokens are a canvas, whose first one has the visibility index `start` */
    int32_t start;
    int32_t blend; /* 1 + the blend of the first token of a canvas; 0: it has none */
    int32_t unused[2];
} um_message_span;

/* Queries of one span that attention computes together: the tokens [first, first + n), n at most the capacity's
 * tile_tokens. The tiles of a span start at multiples of tile_tokens from its first token. */
typedef struct um_message_tile {
    int32_t span, first, n; /* n 0: padding */
    int32_t unused;
} um_message_tile;

/* A um_kv_select. */
typedef struct um_message_select {
    um_range block;
    int32_t n_keep, pool, per_head, blind;
    int32_t page;   /* word offset of the table of the kept keys */
    int32_t prior;  /* word offset of the floats by visibility index; -1: none */
    int32_t n_keys; /* number of keys outside of the block (um_select_keys) */
    int32_t token;  /* word offset of int32_t [block.end - block.start]: the tokens of the block (um_select_token) */
} um_message_select;

/* A um_soft. */
typedef struct um_message_soft {
    int32_t n, renormalize;
    int32_t id, w; /* word offsets of int32_t [n] and float [n] */
} um_message_soft;

/* A um_row. */
typedef struct um_message_row {
    um_sampling how;
    int32_t src[2];
    float w[2];
    int32_t edit, n_edit; /* word offset of um_edit [n_edit], by ascending id; aligned to UM_MESSAGE_ALIGN bytes */
    int32_t own, n_own;   /* the same for the edits of this row, in any order */
    int32_t allow;        /* word offset of the bitmap, UM_CEIL_DIV(vocab, 32) words; -1: all ids are allowed */
    uint32_t want;
    int32_t id;
    int32_t blend;      /* see um_row */
    int32_t n_top, top; /* the row's list of likeliest ids is entries [top, top + n_top) of the answers' lists */
    /* The row's number among the rows that need all their logits at once, for a filter or a list of likeliest ids; -1
     * for other rows. Counts from 0 in the order of the rows. */
    int32_t whole;
    int32_t keep; /* word offset of a place behind the message, where the device keeps the bitmap; -1: it does not */
} um_message_row;

/* The compilers of host and device both check these sizes. */
static_assert(sizeof(um_message_header) == 40 && sizeof(um_message_span) == 64 && sizeof(um_message_tile) == 16,
              "sizes of header, span and tile");
static_assert(sizeof(um_message_select) == 40 && sizeof(um_message_soft) == 16 && sizeof(um_message_row) == 96 &&
                  sizeof(um_edit) == 16,
              "sizes of selection, blend, row and edit");

/* The largest sizes of a batch in a message. */
typedef struct um_message_capacity {
    int32_t n_tokens, n_spans, n_tiles, n_rows; /* with padding; there is room for n_spans saves */
    int32_t tile_tokens;                        /* most tokens of a tile */
    int32_t route_block; /* positions of a routing block (um_network.route_block); 0: experts are chosen per token */
    int32_t vocab;       /* number of ids; the bits of a bitmap */
    int32_t page_size;
} um_message_capacity;

/* The byte offsets of the arrays of fixed place. */
typedef struct um_message_layout {
    size_t id, pos, slot, seen_end; /* int32_t [n_tokens] */
    size_t near_slot;               /* int32_t [n_tokens] slots in layers with a window */
    size_t span_of;                 /* int32_t [n_tokens] the token's span; -1: padding */
    size_t soft;                    /* int32_t [n_tokens] word offset of the token's um_message_soft; -1: none */
    size_t route_block;             /* int32_t [n_tokens] number of the token's routing block; adjacent tokens with the
                                       same number share a block. Padding has blocks of its own: one for each token */
    size_t span;                    /* um_message_span [n_spans] */
    size_t tile;                    /* um_message_tile [n_tiles] */
    size_t row;                     /* um_message_row [n_rows] */
    size_t save;                    /* int32_t [n_spans][2] {hidden row, saved row}; {-1, -1}: padding */
    size_t end;                     /* start of the data of any length */
} um_message_layout;

/* The bitmaps that a device keeps. The places of a message's device form groups of UM_KEPT_WAYS; a bitmap's number
 * (um_row.allow_id) says in which group it is. The host knows what the device does: it stores the bitmaps of a pass
 * in the order of the passes. */
#define UM_KEPT_WAYS 4
typedef struct um_kept_place {
    uint64_t id;           /* number of the bitmap; 0: the place is empty */
    uint64_t stored, used; /* numbers of passes */
} um_kept_place;

typedef struct um_kept {
    int32_t first, words; /* word offset of the first place; words of each */
    int32_t n;            /* places, a multiple of UM_KEPT_WAYS */
    uint64_t pass;        /* number of the last pass */
    um_kept_place *place; /* [n] zeroed at the start */
} um_kept;

/* Returns the number of tiles of a batch. */
int32_t um_message_tiles(const um_batch *b, int32_t tile_tokens);
/* Computes the places of the arrays. */
um_message_layout um_message_layout_of(const um_message_capacity *capacity);
/* Returns an upper bound of the bytes of a batch's message. */
size_t um_message_bound(const um_batch *b, const um_message_capacity *capacity);
/* Returns the bytes of a place for a bitmap. */
size_t um_kept_bytes(int32_t vocab);
/* Writes the message to `out`, which is aligned to UM_MESSAGE_ALIGN and holds `size` bytes. Returns its bytes, or 0
 * when it does not fit. The batch must fit into the capacity. kept: the bitmaps that the message's device keeps. That
 * device must get all messages in the order in which they are packed. NULL: it keeps none. A message that does not fit
 * empties all places. */
size_t um_message_pack(const um_batch *b, const um_message_capacity *capacity, um_kept *kept, void *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif
