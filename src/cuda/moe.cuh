/* moe: the products of experts. moe.cu has the operation and the kernels for lists of a few pairs, moe_tiles.cu the
 * kernels for longer lists on Hopper GPUs. */
#ifndef UM_CUDA_MOE_CUH
#define UM_CUDA_MOE_CUH

#include "cuda/kernels.cuh"

/* A product of the experts that are computed, E of them: y[pair] = W[expert] x[pair]. */
typedef struct um_cu_expert_product {
    const void *const *w; /* [E] pointers to [rows, in]; rows: n, or 2 n with gate and up */
    const void *x;        /* gate_up: [T, in] by token; down: [pairs, in] */
    void *y;              /* [pairs, n], of the type of x before it was rounded to e4m3 */
    const int32_t *count, *pair;
    const float *weight;     /* [pairs] factors of the outputs of down */
    int32_t n_tokens, top_k; /* room of a list; pairs of a token */
    int32_t in, n;
    um_act act;
    /* For e4m3: the scales of the experts' rows and blocks, and of the rows of x. Else NULL. */
    const um_cu_factors *w_scale;
    bool in_blocks; /* some experts have factors of blocks; with gate and up n is a multiple of 16 then */
    const float *x_scale;
} um_cu_expert_product;

/* ---- Copies to shared memory ------------------------------------------------------------------------------------- */

/* Copies 16 bytes to shared memory. Writes zeros and reads nothing unless `ok`. A stage has 128 bytes of each row of
 * weights. The hint lets the L2 cache fetch the next 128 bytes of the row as well: HBM reads 256 adjacent bytes at full
 * speed, and 128 at 94 %. */
static __device__ __forceinline__ void um_cu_copy16(uint32_t to, const void *from, bool ok) {
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(ok ? 16 : 0)
                 : "memory");
}

/* ---- Long lists on Hopper GPUs (moe_tiles.cu) -------------------------------------------------------------------- */

/* Returns whether the current device and the sizes suit um_cu_expert_tiles: columns and rows in eights. */
bool um_cu_expert_tiles_suit(const um_cu_expert_product *p, int32_t n_experts);
/* Computes a product of n_experts experts in bf16: gate and up with the activation, or down. */
void um_cu_expert_tiles(const um_cu_expert_product *p, int32_t n_experts, bool gated, cudaStream_t s);

#endif
