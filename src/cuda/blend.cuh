/* blend: the blends of embeddings that rows ask for (um_row.blend). Used inside the room cuda only. */
#ifndef UM_CUDA_BLEND_CUH
#define UM_CUDA_BLEND_CUH

#include "cuda/sample.cuh"

/* A tile of the vocabulary whose logits are there for some rows. */
typedef struct um_cu_blend {
    const um_cu_head *head;
    float *logits;                /* [n_rows, UM_CU_VOCAB_TILE]; replaced by the weights of rows that have a blend */
    const um_cu_partial *partial; /* [rows of the batch, n_subtiles]; those up to the end of the tile are there */
    float *factor;                /* [rows of the batch] scratch */
    int32_t first_row, n_rows;    /* rows of the batch */
    int32_t tile, n;              /* first id of the tile; its number of ids */
    int32_t end;                  /* of the ids of this rank */
    int32_t first_subtile, subtile, n_subtiles; /* the first ones of this rank and of the tile; number of all ranks */
} um_cu_blend;

/* Adds the embeddings of a tile to the blends of the rows: blend = blend * factor + sum over the tile's ids of
 * exp((z - most) / temperature) E[id]. `most` is the largest logit so far, and the factor turns the blend from the one
 * before to it. The weights are rounded to the type of E, and sums are fp32 in the order of the ids. The first tile
 * starts the blends. Starts its kernels on s. */
void um_cu_blend_add(const um_cu_batch *b, const um_cu_blend *a, cudaStream_t s);
/* The part of the blends that a rank computes: sums over its own ids, relative to the largest logit of these. */
typedef struct um_cu_blend_part {
    const float *blend;  /* [n_rows, H] */
    float *most, *total; /* [n_rows] the largest logit, the sum of the weights */
} um_cu_blend_part;
/* Stores the largest logit and the sum of the weights of each row with a blend, from its n partial answers of this
 * rank. partial: the first one of row 0; n_subtiles: those of all ranks. */
void um_cu_blend_total(const um_cu_batch *b, const um_cu_partial *partial, int32_t n, int32_t n_subtiles, float *most,
                       float *total, cudaStream_t s);
/* Makes the blends from the parts [a->at.n] of all ranks, in the order of the ranks, on each of them. */
void um_cu_blend_sum(const um_cu_batch *b, const um_cu_head *a, const um_cu_blend_part *part, cudaStream_t s);
/* Scales the blends by embed_scale / total [rows of the batch], or makes them 0 where the total is 0.
 * Without a group. */
void um_cu_blend_end(const um_cu_batch *b, const um_cu_head *a, const float *total, cudaStream_t s);

#endif
