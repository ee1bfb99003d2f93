/* The kernels of the cpu backend: all code that depends on the instruction set. They are written once
 * (kernels_body.inc) with a small set of vector functions (vec_*.inc) and compiled for each instruction set (isa_*.c).
 *
 * Products. The right operand (weights, keys, values) is stored in panels of 32 output rows. For each k, the elements
 * of the 32 rows are adjacent, so that a vector lane is one output element. Its sum runs over k in order, one addition
 * after another, independent of the other lanes. This makes results independent of batch and threads. (A matrix unit
 * has another order, which is also fixed: isa_amx.c.)
 *   fp32 panel  [k][32] floats
 *   bf16 panel  [k / 2][32][2]: pairs along k, as the dot product instruction needs them
 *   q8 panel    [k / 32] groups: quads along k [8][32][4], each byte 128 more than its integer, then [32] fp16 scales
 *   q4 panel    the same with quads [8][16][4], whose low halves of bytes are those of the rows 0..15, and whose high
 *               halves are those of the rows 16..31; each is 8 more than its integer
 * The left operand (activations) is row-major in words of 32 bits: one fp32, or a pair of bf16. It is divided into
 * blocks along k, which stay in the first-level cache. The rows of a block are UM_X_STRIDE words apart. This is more
 * than a block, so that the rows don't all use the same cache sets. For a q8 or q4 panel a row of a block has 8 words
 * of quads for each of UM_QUANT_BLOCK groups, then their fp32 scales, then for each group -128 times the sum of its
 * integers, with which the sums of the group start. */
#ifndef UM_OPS_CPU_KERNELS_H
#define UM_OPS_CPU_KERNELS_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    UM_PANEL = 32,                        /* output rows of a panel; keys and dims of a KV unit */
    UM_GROUP_UNITS = 8,                   /* most KV units that attention processes together */
    UM_BLOCK_WORDS = 512,                 /* words of the left operand that one call of a tile kernel covers */
    UM_X_STRIDE = 512 + 16,               /* words between rows of the left operand */
    UM_QUANT_WORDS = 8,                   /* words of quads of a group of the left operand for a q8 or q4 panel */
    UM_Q8_PANEL_BYTES = 32 * 32 + 32 * 2, /* of a group of a q8 panel */
    UM_Q4_PANEL_BYTES = 16 * 32 + 32 * 2, /* the same of a q4 panel */
    UM_QUANT_BLOCK = 16,                  /* groups of a block */
    UM_QUANT_SCALE = UM_QUANT_BLOCK * UM_QUANT_WORDS,  /* the first word of the scales of a row of a block */
    UM_QUANT_START = UM_QUANT_SCALE + UM_QUANT_BLOCK,  /* the first word of the starts of its sums */
    UM_QUANT_STRIDE = UM_QUANT_START + UM_QUANT_BLOCK, /* UM_X_STRIDE for q8 and q4 panels */
    UM_QUANT_TILE_LEAST = 11, /* least rows of the left operand for which a matrix unit multiplies q8 and q4 panels */
    UM_TILE_ROWS = 32,        /* rows of the left operand that a matrix unit multiplies together */
    UM_TILE_WORDS = 16        /* words of a matrix unit's tile; bf16 panels of weights are padded to a multiple */
};

/* Computes acc[t, r] = sum over k of panel[k, r] * x[t, k], t < n_rows <= tile_rows, r < UM_PANEL.
 * panel         aligned to 64
 * x             [n_rows, UM_X_STRIDE] words; [n_rows, UM_QUANT_STRIDE] for a q8 or q4 panel
 * n_words       words of x to use, 1..UM_BLOCK_WORDS; even when the panel is bf16 and x fp32. For a q8 or q4 panel:
 *               groups, 1..UM_QUANT_BLOCK
 * acc           [n_rows, UM_PANEL], written when `first`, else added to */
typedef void (*um_tile_fn)(const void *panel, const uint32_t *x, int n_words, int n_rows, float *acc, bool first);

/* Does the same with a matrix unit for a bf16 panel and bf16 pairs, for any number of rows. The rows of acc are
 * `stride` floats apart. n_words is a multiple of UM_TILE_WORDS. x is read up to a multiple of UM_TILE_ROWS rows.
 * `next` is the panel that the thread multiplies next; it is prefetched and may be any address. The thread must have
 * called matrix_begin. */
typedef void (*um_matrix_fn)(const void *panel, const void *next, const uint32_t *x, int n_words, int n_rows,
                             float *acc, size_t stride, bool first);

/* Computes acc [n_rows, UM_PANEL] as um_tile_fn does for a q8 or q4 panel, with a matrix unit and for any number of
 * rows and groups. The blocks of x are x_block words apart. x is read up to a multiple of 16 rows. `next` is as in
 * um_matrix_fn. Calls matrix_begin and matrix_end itself, so the thread must not be between them. */
typedef void (*um_matrix_quant_fn)(const void *panel, const void *next, const uint32_t *x, size_t x_block, int n_groups,
                                   int n_rows, float *acc, bool first);

/* Writes x [n] as the elements from `at` on of a row of a block of a left operand, followed by a zero when n is odd, or
 * by zeros up to a whole group. `at` is a multiple of UM_PANEL. */
typedef void (*um_pack_fn)(const float *x, int at, int n, uint32_t *row);

/* A part of a panel that a chain multiplies: n_words words of panel with the words of x from `at` on. */
typedef struct um_piece {
    const void *panel;
    int at, n_words;
} um_piece;

/* Adds the products of several pieces, one after another, to acc [n_rows, UM_PANEL], n_rows <= tile_rows. The words are
 * those of the tile kernels. */
typedef void (*um_chain_fn)(const um_piece *piece, int n_pieces, const uint32_t *x, int n_rows, float *acc);

/* The products of attention with a matrix unit: up to UM_TILE_ROWS queries and up to UM_GROUP_UNITS units of bf16 keys
 * and values. Rows are computed up to a multiple of UM_TILE_WORDS, which all operands must have. */
typedef struct um_attend {
    const unsigned char *key[UM_GROUP_UNITS], *value[UM_GROUP_UNITS]; /* panels of the units */
    int n_units, n_rows;
    int head_dim;           /* a multiple of UM_PANEL, at most 2 * UM_BLOCK_WORDS */
    bool is_cold;           /* keys and values come from memory */
    bool first;             /* `out` is written, not added to */
    const uint32_t *query;  /* [n_rows, UM_X_STRIDE] pairs */
    float *score;           /* [n_units, UM_TILE_ROWS, UM_PANEL] */
    const uint32_t *weight; /* [n_rows, UM_X_STRIDE] pairs */
    float *out;             /* [head_dim / UM_PANEL][n_rows, UM_PANEL]; panels are `out_panel` floats apart */
    size_t out_panel;
} um_attend;
typedef void (*um_attend_fn)(const um_attend *a);

/* The maximum of a row stays as it is while larger scores exceed it by at most this much. Then the weights are up to
 * 2^8, and the sums of the row need no scaling. The first maximum is exact, so the weight of a single key is 1. */
#define UM_SOFTMAX_SLACK 8.0f

/* Does one step of the online softmax for n_rows queries and n_keys keys, which are n_keys / UM_PANEL panels.
 *
 * s                 products of queries and keys; those of a row are UM_PANEL floats for each panel, `stride` floats
 *                   apart. The next row is UM_PANEL floats away. Overwritten
 * scale             > 0; the product of the scale of attention and log2 e
 * s_scale, p_scale  [n_keys] factors of each key, applied to s before and to p after the exponential; both or neither
 *                   may be NULL
 * p                 [n_rows, UM_X_STRIDE] gets 2^(scale * s - max) as a left operand where lo <= key < hi[row], and 0
 *                   elsewhere
 * max, sum          [n_rows] running values of the queries; max is the largest scale * s, or up to UM_SOFTMAX_SLACK
 * less shrink            [n_rows] factors for the sums that the rows accumulated with their old maximum; 1 if the
 * maximum did not change or no key was seen yet */
typedef void (*um_softmax_fn)(float *s, size_t stride, int n_rows, float scale, int lo, const int *hi, int n_keys,
                              const float *s_scale, const float *p_scale, float *max, float *sum, float *shrink,
                              uint32_t *p);

/* A part of the blends of embeddings:
 *     sums[row][k][l] += sum over the listed panels p and their rows i with i % UM_BLEND_LANES == l of
 *                        weight[row][UM_PANEL p + i] * element (i, k) of panel p
 * Each sum has the order of p and i, whatever the other rows are. */
enum { UM_BLEND_LANES = 16 };
typedef struct um_blend {
    const char *first; /* column 0 of panel 0 */
    size_t stride;     /* bytes between panels */
    const int32_t *panel;
    int n_panels;
    const float *const *weight; /* [n_rows] */
    int n_rows, n_columns;      /* n_columns: even */
    int n_held;  /* columns of fp32 panels: n_columns, or one less; then the sums of the last column are junk */
    float *sums; /* [n_rows, n_columns, UM_BLEND_LANES] */
} um_blend;

typedef struct um_kernels {
    const char *name;
    int tile_rows; /* largest number of rows of the left operand that a tile kernel takes */

    um_tile_fn tile_f32;   /* fp32 panel, fp32 words */
    um_tile_fn tile_bf16;  /* bf16 panel, widened exactly; fp32 words */
    um_tile_fn tile_pairs; /* bf16 panel, bf16 pairs; NULL without the instruction */
    um_tile_fn tile_q8;    /* q8 panel */
    um_tile_fn tile_q4;    /* q4 panel */
    int tile_quant_rows;   /* tile_rows of tile_q8 and tile_q4 */

    um_chain_fn chain_f32, chain_bf16, chain_pairs; /* tile_f32 and so on for several panels */

    um_pack_fn pack_f32;   /* copies fp32 words unchanged */
    um_pack_fn pack_round; /* rounds to bf16 and stores fp32 words */
    um_pack_fn pack_pairs; /* rounds to bf16 and stores pairs */
    um_pack_fn pack_quant; /* quantizes as um_quantize_left does */

    /* The matrix unit; NULL without one. A thread calls matrix_begin before products and matrix_end after them. */
    um_matrix_fn matrix;
    um_attend_fn matrix_scores; /* score = query x key */
    um_attend_fn matrix_values; /* out = or += weight x value */
    um_pack_fn pack_matrix;     /* pack_pairs, then zeros up to a multiple of UM_TILE_WORDS words */
    void (*matrix_begin)(void), (*matrix_end)(void);
    um_matrix_quant_fn matrix_q8, matrix_q4;

    /* out[i] = the pair (even[i], odd[i]), rounded to bf16. */
    void (*join_bf16)(const float *even, const float *odd, int n, uint32_t *out);

    /* Widens n pairs of f8 to pairs of bf16; n is a multiple of UM_PANEL. Codes of NaN are not supported. */
    void (*widen_f8)(const unsigned char *pair, int n, uint32_t *out);

    float (*sum)(const float *x, int n);
    /* Returns the sum of (x[i] - mean)^2. */
    float (*sum_squares)(const float *x, float mean, int n);
    /* y[i] = (x[i] - mean) * r * w[i] + bias[i]; bias may be NULL, y may be x. */
    void (*normalize)(const float *x, float mean, float r, const float *w, const float *bias, int n, float *y);
    /* Clamps x[i] to [-limit, limit]. */
    void (*clamp)(float *x, float limit, int n);
    /* [x1 | x2] becomes [x1 cos - x2 sin | x2 cos + x1 sin]; x [2 * half]. */
    void (*rotate)(float *x, const float *cos, const float *sin, int half);
    /* y[i] = act(g[i]) * u[i] for silu and for gelu; y may be g. */
    void (*gate)(const float *g, const float *u, int n, float *y);
    void (*gate_gelu)(const float *g, const float *u, int n, float *y);
    /* y[i] = x[i] * r; n is a multiple of UM_PANEL; y may be x. */
    void (*scale_to)(const float *x, float r, int n, float *y);
    /* x[i] = cap * tanh(x[i] / cap); n is a multiple of UM_PANEL. */
    void (*cap)(float *x, float cap, int n);
    /* y[i] = acc[i] + bias[i], or y[i] += that when `add` is set; bias may be NULL. */
    void (*finish)(const float *acc, const float *bias, bool add, int n, float *y);

    /* Add a part of the blends of embeddings, whose panels hold bf16 pairs or fp32 numbers (um_panel_at). */
    void (*blend_pairs)(const um_blend *b);
    void (*blend_f32)(const um_blend *b);
    /* The same from bf16 panels for weights that are bf16 numbers: sums[row][k] += sum over p and i. sums is
     * [UM_TILE_ROWS, n_columns], with junk below the last row; n_columns is a multiple of UM_PANEL. NULL: there is
     * none. */
    void (*blend_matrix)(const um_blend *b);

    /* y[i] += scale * acc[i]. */
    void (*add_scaled)(const float *acc, float scale, int n, float *y);
    /* y = x * r, and y += x * r, for n panels [UM_PANEL] of x and y. The panels of x are x_stride floats apart, those
     * of y y_stride. y may be x. */
    void (*scale_panels)(const float *x, size_t x_stride, float r, size_t n, float *y, size_t y_stride);
    void (*add_panels)(const float *x, size_t x_stride, float r, size_t n, float *y, size_t y_stride);

    um_softmax_fn softmax_f32, softmax_round, softmax_pairs; /* each packs p with its namesake */

    /* Reductions over logits; n is a multiple of UM_PANEL. */
    float (*max)(const float *z, int n);
    /* *sum = sum of e(i), *weighted = sum of e(i) * x(i), with x = (z - max) * rate and e = exp(x). */
    void (*exp_sums)(const float *z, int n, float max, float rate, float *sum, float *weighted);
    /* Returns the highest i with z[i] >= from, or -1. */
    int (*last_from)(const float *z, int n, float from);
    /* out[i] = z[i] where z[i] >= from, else minus infinity. */
    void (*cut_below)(const float *z, int n, float from, float *out);
    /* Copies the logits that are at least `from` in their order and returns their number. out has space for n. */
    int (*select)(const float *z, int n, float from, float *out);
    /* bound[i] >= z[i] / temperature + um_rng_gumbel(key, counter + i), apart from rounding. */
    void (*noise_bounds)(const float *z, int n, float temperature, uint64_t key, uint64_t counter, float *bound);
    /* Returns a mask of the i < UM_PANEL with z[i] >= from. */
    uint32_t (*mask_from)(const float *z, float from);
    /* e[i] = exp((z[i] - max) * rate). */
    void (*exps)(const float *z, int n, float max, float rate, float *e);
} um_kernels;

extern const um_kernels um_kernels_c;
#if defined(__x86_64__)
extern const um_kernels um_kernels_avx2, um_kernels_avx512, um_kernels_avx512_bf16, um_kernels_amx;
#elif defined(__aarch64__)
extern const um_kernels um_kernels_neon, um_kernels_neon_dot;
#endif

/* The prefetch distances in bytes of products with few rows: of fp32 and bf16 panels, and of q8 panels. */
extern size_t um_prefetch_few_rows, um_prefetch_q8;

/* Chooses the kernels for a new device: those of the instruction set set by um_cpu_use_isa, else of the one that the
 * environment variable UM_CPU_ISA names, else the best. UM_EUNSUPPORTED when UM_CPU_ISA names one that is not
 * available; the message lists the available ones. */
um_status um_kernels_choose(const um_kernels **out, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
