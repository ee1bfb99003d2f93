/* The kernels for x86-64 with AMX: products of bf16 panels, and of many rows and q8 or q4 panels, use tiles. Everything
 * else uses AVX-512.
 *
 * A tile register holds 16 rows of 64 bytes. One instruction adds the product of a left tile (16 rows of 16 words) and
 * a right tile (16 words of 16 rows of the panel) to 16 x 16 sums in 16 cycles. From the second-level cache a core
 * reaches 2300 of 2500 GF/s, compared with 90 GF/s for pairs and 170 GF/s for widening to fp32 (family 6 model 167,
 * November 2026). Panels packed for pairs need no change: the two halves of a panel are right tiles whose rows are 128
 * bytes apart.
 *
 * The sum of an element runs over the tiles of words in order. Within a tile, the first and the second elements of the
 * pairs are summed separately, in order, and then added. So a sum depends only on the row and on the panel. Tiles are
 * always whole: words after the last one are zeros, and the results of rows after the last one are discarded. */
#include "ops/cpu/kernels.h"

#if defined(__x86_64__)
#define TARGET                                                                                                         \
    "tune=icelake-server,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vnni,fma,amx-tile,amx-bf16,amx-int8"
#define HAVE_ROUNDING
#define HAVE_DOTS
#include "ops/cpu/vec_avx512.inc"

#include "ops/cpu/kernels_body.inc"

enum { TILE = UM_TILE_WORDS }; /* rows, words and columns of a tile */
_Static_assert(TILE == 16 && UM_TILE_ROWS == 2 * TILE && UM_PANEL == 2 * TILE, "a panel is two tiles wide");
/* Distances between rows of the left operand and of the panel. */
static const size_t X_BYTES = UM_X_STRIDE * sizeof(uint32_t), PANEL_BYTES = UM_PANEL * sizeof(uint32_t);

/* The operand of LDTILECFG: the shapes of the eight tile registers. */
typedef struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_shapes;
_Static_assert(sizeof(tile_shapes) == 64, "the processor defines this layout");

KERNEL void tiles_begin(void) {
    static const tile_shapes whole = {.palette = 1,
                                      .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                      .rows = {TILE, TILE, TILE, TILE, TILE, TILE, TILE, TILE}};
    _tile_loadconfig(&whole);
}

KERNEL void tiles_end(void) { _tile_release(); }

/* A compiler barrier: gcc's tile loads don't declare that they read memory, so earlier stores could move after them.
 */
#define WRITTEN __asm__ volatile("" ::: "memory")

/* Load and store the sums of 16 rows in the tile registers `left` and `right`. */
#define BEGIN_SUMS(left, right, acc)                                                                                   \
    if (first) {                                                                                                       \
        _tile_zero(left);                                                                                              \
        _tile_zero(right);                                                                                             \
    } else {                                                                                                           \
        _tile_loadd(left, acc, acc_bytes);                                                                             \
        _tile_loadd(right, acc + TILE, acc_bytes);                                                                     \
    }
#define END_SUMS(left, right, acc)                                                                                     \
    _tile_stored(left, acc, acc_bytes);                                                                                \
    _tile_stored(right, acc + TILE, acc_bytes);

/* The cache lines of the next panel that are prefetched while a row tile reads the present panel: where they start, and
 * how many for each tile of words. Tile loads jump between the rows of the operands, so the hardware prefetcher does
 * not detect that panels are read in order. */
typedef struct ahead {
    const char *at;
    int lines;
} ahead;

VEC_FN ahead prefetch(ahead a) {
    for (int i = 0; i < a.lines; i++, a.at += 64) __builtin_prefetch(a.at, 0, 2);
    return a;
}

/* Loads the lines of a tile of words of a panel in order and drops the data. So the hardware prefetcher detects the
 * stream, and the tile loads find the lines in the first-level cache. */
VEC_FN void touch(const char *panel) {
    for (size_t i = 0; i < TILE * PANEL_BYTES; i += sizeof(vi)) {
        vi line;
        __asm__ volatile("vmovdqa64 %1, %0" : "=v"(line) : "m"(*(const vi *)(const void *)(panel + i)));
    }
}

/* Multiplies up to 16 rows. is_only: no other rows are multiplied by the panel, so memory limits the product. It then
 * reaches 89 to 97 % of the rate at which a loop of loads reads it, without `touch` 83 %. Software prefetching in its
 * place, 4 to 16 KB ahead, costs up to 5 % (family 6 model 167). */
KERNEL void multiply_tile(const char *panel, const uint32_t *x, int n_words, float *acc, size_t stride, bool first,
                          bool is_only) {
    const size_t acc_bytes = stride * sizeof(float);
    WRITTEN;
    BEGIN_SUMS(0, 1, acc)
    for (int k = 0; k < n_words; k += TILE, panel += TILE * PANEL_BYTES) {
        if (is_only) touch(panel);
        _tile_loadd(4, x + k, X_BYTES);
        _tile_loadd(6, panel, PANEL_BYTES);
        _tile_loadd(7, panel + PANEL_BYTES / 2, PANEL_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
    }
    END_SUMS(0, 1, acc)
}

/* Multiplies up to 32 rows: four products for four loads. With is_only `touch` saves 2 to 10 %. */
KERNEL void multiply_two(const char *panel, ahead next, const uint32_t *x, int n_words, float *acc, size_t stride,
                         bool first, bool is_only) {
    const size_t acc_bytes = stride * sizeof(float);
    const uint32_t *x2 = x + TILE * UM_X_STRIDE;
    float *acc2 = acc + TILE * stride;
    WRITTEN;
    BEGIN_SUMS(0, 1, acc)
    BEGIN_SUMS(2, 3, acc2)
    for (int k = 0; k < n_words; k += TILE, panel += TILE * PANEL_BYTES) {
        next = prefetch(next);
        if (is_only) touch(panel);
        _tile_loadd(4, x + k, X_BYTES);
        _tile_loadd(5, x2 + k, X_BYTES);
        _tile_loadd(6, panel, PANEL_BYTES);
        _tile_loadd(7, panel + PANEL_BYTES / 2, PANEL_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    END_SUMS(0, 1, acc)
    END_SUMS(2, 3, acc2)
}

/* Multiplies the last rows, fewer than 32. Computes their sums in a buffer, because other data may follow them in acc.
 */
static void multiply_rest(const char *panel, ahead next, const uint32_t *x, int n_words, int n_rows, float *acc,
                          size_t stride, bool first, bool is_only) {
    _Alignas(64) float sums[UM_TILE_ROWS * UM_PANEL];
    const size_t bytes = UM_PANEL * sizeof(float);
    for (int i = 0; i < n_rows && !first; i++) memcpy(sums + i * UM_PANEL, acc + (size_t)i * stride, bytes);
    if (n_rows > TILE) multiply_two(panel, next, x, n_words, sums, UM_PANEL, first, is_only);
    else multiply_tile(panel, x, n_words, sums, UM_PANEL, first, is_only);
    for (int i = 0; i < n_rows; i++) memcpy(acc + (size_t)i * stride, sums + i * UM_PANEL, bytes);
}

static void multiply(const void *of_panel, const void *of_next, const uint32_t *x, int n_words, int n_rows, float *acc,
                     size_t stride, bool first) {
    assert(n_rows > 0 && n_words % TILE == 0);
    const char *panel = (const char *)of_panel;
    const int n_tiles = (n_rows + UM_TILE_ROWS - 1) / UM_TILE_ROWS, lines = (int)(TILE * PANEL_BYTES) / 64;
    ahead next = {(const char *)of_next, (lines + n_tiles - 1) / n_tiles};
    const bool is_only = n_tiles == 1;
    int row = 0;
    for (; row + UM_TILE_ROWS <= n_rows; row += UM_TILE_ROWS, acc += UM_TILE_ROWS * stride) {
        multiply_two(panel, next, x + row * UM_X_STRIDE, n_words, acc, stride, first, is_only);
        next.at += n_words / TILE * next.lines * 64;
    }
    if (row == n_rows) return;
    if (row + TILE == n_rows) multiply_tile(panel, x + row * UM_X_STRIDE, n_words, acc, stride, first, is_only);
    else multiply_rest(panel, next, x + row * UM_X_STRIDE, n_words, n_rows - row, acc, stride, first, is_only);
}

static void pack_tiles(const float *x, int at, int n, uint32_t *row) {
    int words = (n + 1) / 2;
    pack_pairs(x, at, n, row);
    memset(row + at / 2 + words, 0, (size_t)(-words & (TILE - 1)) * sizeof *row);
}

#include "ops/cpu/amx_attention.inc"

/* The shapes for products of bytes: left tiles of 16 rows and 8 words, right tiles of 8 words and 16 rows of the panel.
 */
KERNEL void quant_tiles_begin(void) {
    static const tile_shapes shapes = {.palette = 1,
                                       .row_bytes = {64, 64, 64, 64, 32, 32, 64, 64},
                                       .rows = {TILE, TILE, TILE, TILE, TILE, TILE, 8, 8}};
    _tile_loadconfig(&shapes);
}

#include "ops/cpu/amx_quant.inc"

#include "ops/cpu/amx_blend.inc"

const um_kernels um_kernels_amx = {.name = "amx_bf16",
                                   COMMON_KERNELS,
                                   .matrix = multiply,
                                   .matrix_scores = multiply_keys,
                                   .matrix_values = multiply_values,
                                   .pack_matrix = pack_tiles,
                                   .matrix_begin = tiles_begin,
                                   .matrix_end = tiles_end,
                                   .blend_matrix = blend_matrix,
                                   .matrix_q8 = multiply_q8,
                                   .matrix_q4 = multiply_q4};
#endif
