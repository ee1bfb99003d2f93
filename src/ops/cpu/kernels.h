/* The leaf kernels of the cpu backend: what depends on the instruction set, and nothing else. They are written once
 * (kernels_body.inc) in terms of a small vector vocabulary (vec_*.inc) and compiled for each instruction set (isa_*.c).
 *
 * Products. The right operand (weights, keys, values) lies in panels of 32 output rows: for each k the 32 rows'
 * elements stand side by side, so that a vector lane is one output element. Its sum runs over k in order, one addition
 * after the other, whatever stands beside it: that is what makes results independent of batch and threads. (A matrix
 * unit has an order of its own, as fixed: isa_amx.c.)
 *   fp32 panel  [k][32] floats
 *   bf16 panel  [k / 2][32][2]: pairs along k, as the dot product instruction wants them
 * The left operand (activations) is row-major in words of 32 bits: one fp32, or a pair of bf16. It is cut into blocks
 * of UM_BLOCK_WORDS along k, which stay in the first-level cache; rows of a block are UM_X_STRIDE words apart, more
 * than the block, so that they don't all fall into the same cache sets. */
#ifndef UM_OPS_CPU_KERNELS_H
#define UM_OPS_CPU_KERNELS_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    UM_PANEL = 32,          /* output rows of a panel; keys and dims of a KV unit */
    UM_BLOCK_WORDS = 512,   /* words of the left operand that one call of a tile kernel covers */
    UM_X_STRIDE = 512 + 16, /* words between rows of the left operand */
    UM_TILE_ROWS = 32,      /* rows of the left operand that a matrix unit works on together */
    UM_TILE_WORDS = 16      /* words of a tile of a matrix unit; bf16 panels of weights are padded to so many */
};

/* acc[t, r] (+)= sum over k of panel[k, r] * x[t, k], t < n_rows <= tile_rows, r < UM_PANEL.
 * panel         aligned to 64
 * x             [n_rows, UM_X_STRIDE] words
 * n_words       words of x to use, 1..UM_BLOCK_WORDS; even when the panel is bf16 and x fp32
 * acc           [n_rows, UM_PANEL], written when `first`, else added to */
typedef void (*um_tile_fn)(const void *panel, const uint32_t *x, int n_words, int n_rows, float *acc, bool first);

/* The same by a matrix unit: a bf16 panel times bf16 pairs, any number of rows, the sums `stride` floats apart. n_words
 * is a multiple of UM_TILE_WORDS; x is read up to a multiple of UM_TILE_ROWS rows. The thread has called matrix_begin.
 */
typedef void (*um_matrix_fn)(const void *panel, const uint32_t *x, int n_words, int n_rows, float *acc, size_t stride,
                             bool first);

/* Writes x [n] as words of a left operand, a zero behind when n is odd. */
typedef void (*um_pack_fn)(const float *x, int n, uint32_t *out);

/* One step of the online softmax: n_rows queries meet a tile of keys, whose products with them are s [n_rows,
 * UM_PANEL], overwritten. p [n_rows, UM_X_STRIDE] gets exp(scale * s - max) as a left operand where lo <= key <
 * hi[row], and 0 elsewhere. s_scale and p_scale [UM_PANEL], NULL or both, are factors of s before, and of p after that,
 * key by key. max and sum [n_rows] are the queries' running values; what a row accumulated under its old
 * maximum must be multiplied by shrink[row], 1 if that stayed. */
typedef void (*um_softmax_fn)(float *s, int n_rows, float scale, int lo, const int *hi, const float *s_scale,
                              const float *p_scale, float *max, float *sum, float *shrink, uint32_t *p);

typedef struct um_kernels {
    const char *name;
    int tile_rows; /* most rows of the left operand that a tile kernel takes */

    um_tile_fn tile_f32;   /* fp32 panel, fp32 words */
    um_tile_fn tile_bf16;  /* bf16 panel widened exactly, fp32 words */
    um_tile_fn tile_pairs; /* bf16 panel, bf16 pairs; NULL without the instruction */

    um_pack_fn pack_f32;   /* as they are */
    um_pack_fn pack_round; /* rounded to bf16, kept as fp32 */
    um_pack_fn pack_pairs; /* rounded to bf16, in pairs */

    /* NULL without a matrix unit. A thread sets it up before products, and gives it back before it does other things.
     */
    um_matrix_fn matrix;
    um_pack_fn pack_matrix; /* pack_pairs, then zeros up to a multiple of UM_TILE_WORDS words */
    void (*matrix_begin)(void), (*matrix_end)(void);

    /* out[i] is the pair (even[i], odd[i]), rounded to bf16. */
    void (*join_bf16)(const float *even, const float *odd, int n, uint32_t *out);

    /* Pairs of f8 as pairs of bf16; n pairs, a multiple of UM_PANEL. The codes of NaN are not handled. */
    void (*widen_f8)(const unsigned char *pair, int n, uint32_t *out);

    float (*sum)(const float *x, int n);
    /* Sum of (x[i] - mean)^2. */
    float (*sum_squares)(const float *x, float mean, int n);
    /* y[i] = (x[i] - mean) * r * w[i] + bias[i]; bias may be NULL, y may be x. */
    void (*normalize)(const float *x, float mean, float r, const float *w, const float *bias, int n, float *y);
    /* x[i] into [-limit, limit]. */
    void (*clamp)(float *x, float limit, int n);
    /* [x1 | x2] becomes [x1 cos - x2 sin | x2 cos + x1 sin]; x [2 * half]. */
    void (*rotate)(float *x, const float *cos, const float *sin, int half);
    /* y[i] = silu(g[i]) * u[i]; y may be g. */
    void (*gate)(const float *g, const float *u, int n, float *y);
    /* y[i] = x[i] * r; n a multiple of UM_PANEL; y may be x. */
    void (*scale_to)(const float *x, float r, int n, float *y);
    /* y[i] = acc[i] + bias[i], or y[i] + that when `add`; bias may be NULL. */
    void (*finish)(const float *acc, const float *bias, bool add, int n, float *y);

    /* y[i] += scale * acc[i]. */
    void (*add_scaled)(const float *acc, float scale, int n, float *y);

    um_softmax_fn softmax_f32, softmax_round, softmax_pairs; /* by how p is packed */

    /* Reductions over logits; n a multiple of UM_PANEL. */
    float (*max)(const float *z, int n);
    /* *sum = sum of e(i), *weighted = sum of e(i) * x(i), with x = (z - max) * rate and e = exp(x). */
    void (*exp_sums)(const float *z, int n, float max, float rate, float *sum, float *weighted);
    /* The highest i with z[i] >= from; -1: none. */
    int (*last_from)(const float *z, int n, float from);
    /* out[i] = z[i] where that is at least `from`, else minus infinity. */
    void (*cut_below)(const float *z, int n, float from, float *out);
    /* Copies the logits that are at least `from`, in their order; returns how many. out has room for n. */
    int (*select)(const float *z, int n, float from, float *out);
    /* e[i] = exp((z[i] - max) * rate). */
    void (*exps)(const float *z, int n, float max, float rate, float *e);
} um_kernels;

extern const um_kernels um_kernels_c;
#if defined(__x86_64__)
extern const um_kernels um_kernels_avx2, um_kernels_avx512, um_kernels_avx512_bf16, um_kernels_amx;
#endif

/* How far ahead of its reading a product with few rows asks for the panel, in bytes. */
extern size_t um_prefetch_few_rows;

/* The kernels of a device that is opened: of the instruction set that um_cpu_use_isa chose, else of the one that the
 * environment names in UM_CPU_ISA, else the best. UM_EUNSUPPORTED names those that this processor has. */
um_status um_kernels_choose(const um_kernels **out, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
