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
    int32_t n_subtiles;
} um_cu_blend;

/* Adds the embeddings of a tile to the blends of the rows: blend = blend * factor + sum over the tile's ids of
 * exp((z - most) / temperature) E[id]. `most` is the largest logit so far, and the factor turns the blend from the one
 * before to it. The weights are rounded to the type of E, and sums are fp32 in the order of the ids. The first tile
 * starts the blends. Starts its kernels on s. */
void um_cu_blend_add(const um_cu_batch *b, const um_cu_blend *a, cudaStream_t s);
/* Scales the blends by embed_scale / total [rows of the batch], or makes them 0 where the total is 0. */
void um_cu_blend_end(const um_cu_batch *b, const um_cu_head *a, const float *total, cudaStream_t s);

#endif
