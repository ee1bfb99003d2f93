/* sizes: the sizes to which a pass is padded, so that few CUDA graphs serve all passes, the tiles of products, and the
 * memory of a message. Plain arithmetic without CUDA. Any thread. */
#ifndef UM_CUDA_SIZES_H
#define UM_CUDA_SIZES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The sizes of a pass. Passes of the same padded sizes run the same graph. */
typedef struct um_cu_sizes {
    int32_t n_tokens, n_tiles, n_rows;
    int32_t n_pieces; /* pieces of the keys that attention reads, of the span with most of them */
    bool adapts;      /* spans use adapters */
    bool canvas;      /* spans are canvases */
} um_cu_sizes;

/* The largest sizes of a pass, and the most tokens of a tile. */
typedef struct um_cu_limits {
    int32_t max_tokens, max_tiles, max_rows, tile_tokens;
} um_cu_limits;

/* Passes with more tokens run kernel by kernel. They last longer than the start of their kernels, so a graph would gain
 * nothing, and their sizes need not be few. */
#define UM_CU_GRAPH_TOKENS 512

/* Returns the padded sizes of a pass. None is smaller than needed, or larger than its limit. Padded sizes stay as they
 * are. Those of a pass with a graph have few values:
 *
 * tokens  0, 8, 12, 16, 24, 32, 48 ...: two for each power of two, and four from 128 on
 * tiles   a number that follows from the padded tokens, and its doubles
 * rows    0, 64, 96, 128, 160 ..., or the padded tokens when these are fewer: the product of a head with less than 64
 *         rows takes as long as with 64, because it waits for the weights
 * pieces  the powers of two
 *
 * Those of a pass without a graph: tokens are a multiple of 32, rows of 64, tiles and pieces are those needed. */
um_cu_sizes um_cu_pad(const um_cu_limits *l, const um_cu_sizes *needed);
/* Returns the number of tiles of n_tokens tokens that are divided equally among n_spans spans. */
int32_t um_cu_tiles_of(int32_t n_tokens, int32_t n_spans, int32_t tile_tokens);

/* Returns the weight rows of a tile: the number of list [n], which ascends, with which a product of `rows` weight rows
 * and `tokens` tokens ends first on `processors` multiprocessors. Each tile reads its weights from the memory and the
 * activations of all tokens from the L2 cache. */
int32_t um_cu_tile_rows(int32_t rows, int32_t tokens, const int32_t *list, size_t n, int32_t processors);

/* The memory of a message on the device. The places of the bitmaps that the device keeps (um_kept) follow the message.
 */
typedef struct um_cu_message_memory {
    size_t bytes;      /* of the message: tables and edits, and a bitmap of allowed ids for each row */
    int32_t n_kept;    /* places for bitmaps, a multiple of UM_KEPT_WAYS */
    size_t kept_bytes; /* of all places */
} um_cu_message_memory;
/* Returns the memory for passes of up to max_rows rows. */
um_cu_message_memory um_cu_message_memory_of(int32_t max_rows, int32_t vocab);
/* Returns whether the word offsets of a message reach all of its memory. They are int32_t. */
bool um_cu_message_reaches(const um_cu_message_memory *m);

#ifdef __cplusplus
}
#endif
#endif
