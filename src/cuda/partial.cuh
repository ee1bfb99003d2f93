/* partial: partial answers of rows from parts of the vocabulary (partial.cu). Used inside the room cuda only. */
#ifndef UM_CUDA_PARTIAL_CUH
#define UM_CUDA_PARTIAL_CUH

#include "cuda/sample.cuh"

/* Logits of a tile of the vocabulary, and where their partial answers go. */
typedef struct um_cu_reduction {
    const float *logits; /* [rows of the group, width], rows aligned to 16 bytes */
    int32_t width;       /* ids of a tile */
    int32_t first_row;   /* of the group */
    int32_t tile, n;     /* first id of the tile; its number of ids */
    int32_t subtile;     /* number of the tile's first subtile */
    int32_t n_subtiles;  /* of all ranks */
    float scale, cap;
    um_cu_partial *partial; /* [rows, n_subtiles] */
} um_cu_reduction;

/* Stores the partial answers of n_rows rows of a group, one for each SUBTILE ids. Bytes: the logits once. Starts its
 * kernel on s. */
void um_cu_reduce(const um_cu_batch *b, const um_cu_reduction *a, int32_t n_rows, cudaStream_t s);
/* Merges the partial answers [rows, n_subtiles] of all rows. total [rows] receives the sums of the weights of blends;
 * NULL: they are not needed. answer [rows] receives the answers. Starts its kernel on s. */
void um_cu_merge_partials(const um_cu_batch *b, const um_cu_partial *partial, int32_t n_subtiles, float *total,
                          um_answer *answer, cudaStream_t s);

#endif
