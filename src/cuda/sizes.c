/* The padded sizes of passes, the tiles of products, and the memory of messages. */
#include "cuda/sizes.h"

#include "base/base.h"
#include "ops/message.h"

enum { TOKENS_LEAST = 8, ROWS_LEAST = 64, FINE = 128, SPAN_TOKENS = 32, LONG_TOKENS = 32, LONG_ROWS = 64 };

/* Returns n, rounded up to one of two sizes per power of two, at least `least`; above FINE to one of four, because the
 * time of a large pass grows with its padding. */
static int32_t rounded(int32_t n, int32_t least) {
    int32_t size = least; /* n is in (size, 2 * size], unless it is smaller */
    while (n > 2 * size) size *= 2;
    if (n <= size) return size;
    const int32_t step = size < FINE ? size / 2 : size / 4;
    return UM_CEIL_DIV(n, step) * step;
}

static int32_t padded_tokens(const um_cu_limits *l, int32_t n) {
    return n ? UM_MIN(rounded(n, TOKENS_LEAST), l->max_tokens) : 0;
}

/* A pass whose spans have SPAN_TOKENS tokens or more needs the first number. */
static int32_t padded_tiles(const um_cu_limits *l, int32_t n, int32_t n_tokens) {
    int32_t size = UM_MAX(1, UM_CEIL_DIV(n_tokens, UM_MIN(l->tile_tokens, SPAN_TOKENS)));
    if (n == 0) return 0;
    while (size < n) size *= 2;
    return UM_MIN(size, l->max_tiles);
}

static int32_t padded_rows(const um_cu_limits *l, int32_t n, int32_t n_tokens) {
    if (n == 0) return 0;
    const int32_t size = rounded(n, ROWS_LEAST);
    return UM_MIN(n <= n_tokens ? UM_MIN(size, n_tokens) : size, l->max_rows);
}

static int32_t multiple(int32_t n, int32_t of, int32_t most) { return UM_MIN(UM_CEIL_DIV(n, of) * of, most); }

static int32_t power_of_two(int32_t n) {
    int32_t size = 1;
    while (size < n) size *= 2;
    return size;
}

/* The sizes of a pass without a graph. */
static um_cu_sizes pad_long(const um_cu_limits *l, const um_cu_sizes *needed) {
    um_cu_sizes s = *needed;
    s.n_tokens = multiple(needed->n_tokens, LONG_TOKENS, l->max_tokens);
    s.n_rows = multiple(needed->n_rows, LONG_ROWS, l->max_rows);
    return s;
}

um_cu_sizes um_cu_pad(const um_cu_limits *l, const um_cu_sizes *needed) {
    if (needed->n_tokens > UM_CU_GRAPH_TOKENS) return pad_long(l, needed);
    const int32_t n_tokens = padded_tokens(l, needed->n_tokens);
    return (um_cu_sizes){.n_tokens = n_tokens,
                         .n_tiles = padded_tiles(l, needed->n_tiles, n_tokens),
                         .n_rows = padded_rows(l, needed->n_rows, n_tokens),
                         .n_pieces = power_of_two(needed->n_pieces),
                         .adapts = needed->adapts,
                         .canvas = needed->canvas};
}

int32_t um_cu_tiles_of(int32_t n_tokens, int32_t n_spans, int32_t tile_tokens) {
    if (n_tokens == 0 || n_spans == 0) return 0;
    return UM_CEIL_DIV(UM_CEIL_DIV(n_tokens, n_spans), tile_tokens) * n_spans;
}

/* ---- Tiles of products ------------------------------------------------------------------------------------------- */

/* A multiprocessor receives weights at its share of the memory's rate, and weights and activations together at about
 * twice this rate. So a tile takes max(2 * rows, rows + tokens) steps. */
int32_t um_cu_tile_rows(int32_t rows, int32_t tokens, const int32_t *list, size_t n, int32_t processors) {
    int64_t least = INT64_MAX;
    int32_t best = 0;
    for (size_t i = 0; i < n; i++) {
        const int64_t tiles = UM_CEIL_DIV(rows, list[i]), each = UM_CEIL_DIV(tiles, processors);
        const int64_t steps = each * (list[i] + UM_MAX(list[i], tokens));
        if (steps > least) continue; /* of equals, larger tiles are fewer starts and ends */
        least = steps;
        best = list[i];
    }
    return best;
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

static const size_t TABLES_BYTES = (size_t)64 << 20; /* page tables and edits */

/* More rows than these share the places. */
enum { KEPT_MAX = 16384 };

um_cu_message_memory um_cu_message_memory_of(int32_t max_rows, int32_t vocab) {
    const size_t bitmap = (size_t)UM_CEIL_DIV(vocab, 32) * sizeof(uint32_t) + UM_MESSAGE_ALIGN;
    const int32_t n_kept = UM_CEIL_DIV(UM_MIN(max_rows, KEPT_MAX), UM_KEPT_WAYS) * UM_KEPT_WAYS;
    return (um_cu_message_memory){.bytes = TABLES_BYTES + um_mul((size_t)max_rows, bitmap),
                                  .n_kept = n_kept,
                                  .kept_bytes = um_mul((size_t)n_kept, um_kept_bytes(vocab))};
}

bool um_cu_message_reaches(const um_cu_message_memory *m) {
    return (m->bytes + m->kept_bytes) / sizeof(int32_t) <= INT32_MAX;
}
