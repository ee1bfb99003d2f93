/* kernels: the operations of a pass on the device. Each function starts its kernels on a stream and returns; none
 * allocates, none waits. A kernel's launch is checked by the caller of the function with um_cu_launched (cuda.cuh).
 *
 * Shapes in brackets use T for tokens, H for the hidden size, V for vocabulary rows and d for the head size. An operand
 * (the input of a product, queries, keys) has the device's type: float or bf16. The residual stream, norms, biases and
 * scores are fp32, and so are all sums.
 *
 * Invariance: an element of an output depends only on its own inputs. The order of each sum is fixed by the shape of
 * the weights (products) or by the visibility index (attention), never by T or by the other rows.
 *
 * Grids depend only on the arguments, so a recorded graph may be replayed with another message of the same capacity.
 * Rows and tokens beyond the batch are padding: kernels may compute them or skip them, and must not read or write out
 * of bounds for them. */
#ifndef UM_CUDA_KERNELS_CUH
#define UM_CUDA_KERNELS_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "cuda/kv_layout.h"
#include "ops/message.h"
#include "ops/ops.h"
#include "ops/ranks.h"

typedef __nv_bfloat16 um_bf16;

/* ---- The message on the device ---- */
typedef struct um_cu_batch {
    const char *message; /* um_message_header, and the base of all word offsets */
    um_message_capacity capacity;
    /* [capacity.n_tokens] */
    const int32_t *id, *pos, *slot, *near_slot, *seen_end, *span_of, *soft, *route_block;
    const um_message_span *span;
    const um_message_tile *tile;
    const um_message_row *row;
    const int32_t (*save)[2];
} um_cu_batch;

#ifdef __CUDACC__
/* Returns the data at a word offset of the message. */
template <typename E> static __device__ __forceinline__ const E *um_cu_at(const um_cu_batch &b, int32_t words) {
    return (const E *)(b.message + 4 * (size_t)words);
}
static __device__ __forceinline__ const um_message_header *um_cu_header(const um_cu_batch &b) {
    return (const um_message_header *)b.message;
}
static __device__ __forceinline__ float um_cu_float(float v) { return v; }
static __device__ __forceinline__ float um_cu_float(um_bf16 v) { return __bfloat162float(v); }
template <typename E> static __device__ __forceinline__ E um_cu_operand(float v);
template <> __device__ __forceinline__ float um_cu_operand<float>(float v) { return v; }
template <> __device__ __forceinline__ um_bf16 um_cu_operand<um_bf16>(float v) { return __float2bfloat16_rn(v); }
/* Returns act(v). (1 + tanh t) / 2 = 1 / (1 + exp(-2 t)), without the cancellation. */
static __device__ __forceinline__ float um_cu_activate(um_act act, float v) {
    const float t = act == UM_ACT_SILU ? v : 1.5957691216f * (v + 0.044715f * v * v * v);
    return v / (1 + expf(-t));
}
#endif

/* ---- Weights and vectors ---- */
/* A matrix [rows, in], row-major. type is UM_F32, UM_BF16 or UM_F8. */
typedef struct um_cu_matrix {
    int32_t rows, in;
    um_dtype type;
    void *data;   /* device memory, aligned to 256 bytes */
    float *scale; /* [rows] of UM_F8: the factor of the numbers of each row; else NULL */
    /* [ceil(rows / UM_CU_BLOCK), um_cu_block_stride(in)] of UM_F8: the factor of the numbers of each block of
     * UM_CU_BLOCK rows and columns, 0 for padding; then `scale` is 1 for each row. NULL: only rows have factors. */
    float *block;
} um_cu_matrix;

enum { UM_CU_BLOCK = 128 };
/* Returns the number of floats from the factors of a row of blocks to those of the next: cuBLASLt wants a multiple of
 * four. */
static inline __host__ __device__ int32_t um_cu_block_stride(int32_t in) {
    return UM_CEIL_DIV(UM_CEIL_DIV(in, UM_CU_BLOCK), 4) * 4;
}
/* Returns the bytes of the factors of all blocks. */
static inline size_t um_cu_block_bytes(int32_t rows, int32_t in) {
    return (size_t)UM_CEIL_DIV(rows, UM_CU_BLOCK) * (size_t)um_cu_block_stride(in) * sizeof(float);
}

/* The factors of a matrix in e4m3, as um_cu_matrix has them. */
typedef struct um_cu_factors {
    const float *row, *block;
} um_cu_factors;

/* Rows in e4m3 with a scale each: code * scale is the number. */
typedef struct um_cu_coded {
    unsigned char *code; /* [T, n] */
    float *scale;        /* [T] */
} um_cu_coded;
/* Rounds rows of activations [T, n] to e4m3 (elementwise.cu). The scales are powers of two, so that the order in which
 * a product is multiplied by the scales of its two rows does not change it. */
void um_cu_quantize(const um_bf16 *x, int32_t T, int32_t n, const um_cu_coded *out, cudaStream_t s);
/* Rounds weights [rows, in] of UM_BF16 or UM_F32. The largest magnitude of a row becomes 448, so that the codes of rows
 * that were rounded in this way before stay the same. */
void um_cu_quantize_weights(const void *w, um_dtype type, int32_t rows, int32_t in, const um_cu_coded *out,
                            cudaStream_t s);
/* Rounds weights [rows, in] to the factors of their blocks, m->block. Stores the codes m->data, and m->scale, which is
 * 1 for each row. The codes of a checkpoint with these factors stay the same; a block with the factor 0 gets the codes
 * of zeros. */
void um_cu_quantize_blocks(const float *w, const um_cu_matrix *m, cudaStream_t s);
/* Stores the scales of T rows n times: out [n, T]. */
void um_cu_repeat_scales(const float *scale, int32_t T, int32_t n, float *out, cudaStream_t s);

/* ---- Groups of ranks (ranks.cu) ---- */
enum { UM_CU_MEET_BLOCKS = 512 }; /* most blocks of a grid that meets the grids of other ranks */
/* Where the blocks of a kernel meet those of the same kernel on the other ranks. All ranks must start the same kernels
 * that meet, in the same order. */
struct um_cu_comm;
typedef struct um_cu_meeting {
    int32_t index, n; /* this rank, number of ranks */
    uint32_t *count;  /* [UM_CU_MEET_BLOCKS] on this device: meetings of each block */
    /* [n][UM_CU_MEET_BLOCKS] on the device of each rank: the last meeting to which the block of a rank has come */
    uint32_t *flag[UM_RANKS_MAX];
    const volatile int32_t *stop; /* in host memory: 1 when no kernel shall wait any more, because a rank has failed */
    /* The connection to ranks in other processes (comm.cuh). Kernels do not meet then, and count, flag and stop are
     * NULL: before a kernel reads the results of other ranks, its launcher brings them to this device. NULL: the ranks
     * are in one process. */
    struct um_cu_comm *comm;
} um_cu_meeting;
/* Results of all ranks for the same tokens, which are added in the order of the ranks. */
typedef struct um_cu_partials {
    um_cu_meeting at;
    /* On the device of each rank, which the others can read; aligned to 16 bytes. With at.comm they are on this device,
     * at equal distances. */
    const void *part[UM_RANKS_MAX];
    um_dtype type; /* UM_F32 or UM_BF16 */
    /* Small results are pushed: each rank writes its part to the inboxes of the others. inbox: on the device of each
     * rank, [n] parts of UM_CU_PUSH_BYTES, by the rank that sends them. All bytes are UM_CU_NOT_THERE before and after
     * a kernel that adds the parts. Two inboxes are used in turns. */
    bool pushes;
    char *inbox[UM_RANKS_MAX];
} um_cu_partials;
static const size_t UM_CU_PUSH_BYTES = (size_t)1 << 20; /* largest part that is pushed */
#define UM_CU_NOT_THERE 0xff
/* Returns whether parts of n elements are pushed. */
static inline bool um_cu_pushes(size_t n, um_dtype type) {
    return n % 8 == 0 && n * um_dtype_size(type) <= UM_CU_PUSH_BYTES;
}
/* y[i] = the sum of the parts, or y[i] += that, for n elements of fp32. */
void um_cu_sum(const um_cu_partials *p, size_t n, bool add, float *y, cudaStream_t s);
/* y[i] = the sum of the parts of the ranks [first, end), or the largest of them, for n elements of fp32. */
void um_cu_merge(const um_cu_partials *p, int32_t first, int32_t end, bool largest, size_t n, float *y, cudaStream_t s);
/* Copies elements that other ranks have to rank 0, for rows of 4-byte words at the same places on all ranks: row r of
 * a rank starts at word r * stride of its base, and rank i has the words [first[i], first[i + 1]) of each row. Returns
 * when the copies are queued; the other ranks only meet. With at.comm only this rank's base is there, and `exchange` is
 * um_cu_gather_bytes of this device's memory. */
typedef struct um_cu_gather {
    um_cu_meeting at;
    uint32_t *base[UM_RANKS_MAX];
    int32_t first[UM_RANKS_MAX + 1];
    int32_t rows;
    size_t stride;
    void *exchange;
} um_cu_gather;
/* Returns the bytes that the exchange of rows of `words` words takes. */
size_t um_cu_gather_bytes(int32_t rows, size_t words);
void um_cu_gather_rows(const um_cu_gather *g, cudaStream_t s);
/* Waits until all kernels before have ended on all ranks. */
void um_cu_barrier(const um_cu_meeting *at, cudaStream_t s);

/* ---- Embedding, norms, gate (elementwise.cu, norm.cu) ---- */
/* x[t] = scale * W[id[t]], or scale times the blend of a token with a um_message_soft (um_soft of ops/batch.h has the
 * formula; sums in fp32 in the order of the list). x fp32 [T, H]. */
void um_cu_embed(const um_cu_batch *b, const um_cu_matrix *w, float scale, float *x, cudaStream_t s);
/* y[t] = norm(x[t]) for n rows of width H: root mean square norm, or LayerNorm with a bias (um_norm of ops/ops.h). x is
 * fp32. y has the device's type; y32, if not NULL, receives the same in fp32. Either output may be NULL. `coded`, if
 * not NULL, receives y as um_cu_quantize would round it; type is then UM_BF16. */
void um_cu_norm(const float *x, const float *w, const float *bias, float eps, int32_t n, int32_t H, um_dtype type,
                void *y, float *y32, const um_cu_coded *coded, cudaStream_t s);
/* x[t] += the sum of the parts [n, H] of all ranks, and then um_cu_norm of x, in one kernel where H allows it. */
void um_cu_sum_norm(float *x, const um_cu_partials *more, const float *w, const float *bias, float eps, int32_t n,
                    int32_t H, um_dtype type, void *y, float *y32, const um_cu_coded *coded, cudaStream_t s);
/* Where each rank keeps the same rows, on its device; NULL: the output is not wanted. */
typedef struct um_cu_copies {
    void *y[UM_RANKS_MAX];
    float *y32[UM_RANKS_MAX];
    um_cu_coded coded[UM_RANKS_MAX];
} um_cu_copies;
/* Returns whether the ranks divide n rows of width H among them: rank r of k adds and norms the rows r, r + k, ... and
 * writes the outputs to all ranks. Its x has its own rows only, so all exchanges of a pass must do the same. With
 * at.comm the rows of a rank are neighbours, and are copied to the others. */
bool um_cu_divides(const um_cu_meeting *at, int32_t n, int32_t H);
/* The same as um_cu_sum_norm without bias, with rows that the ranks divide; um_cu_divides is true. `type` is that of y,
 * and UM_BF16 if codes are wanted. With at.comm only the outputs of this rank are read from `to`. The outputs have the
 * bits of um_cu_sum_norm. */
void um_cu_sum_norm_divided(float *x, const um_cu_partials *more, const float *w, float eps, int32_t n, int32_t H,
                            um_dtype type, const um_cu_copies *to, cudaStream_t s);
/* A row for each token and each of its experts: outputs of the experts, times the weights of the experts, before they
 * are added, or inputs of their last products. */
typedef struct um_cu_pairs {
    um_cu_batch b;
    const void *out; /* [T, top_k, n] of `type`, aligned to 16 bytes; undefined for padding */
    um_dtype type;
    int32_t top_k;
    /* [ceil(E / 32), T] bitmap of the experts of each token. Only experts from first_own on, n_own of them, have
     * outputs. NULL: all have. */
    const uint32_t *chosen;
    int32_t first_own, n_own;
} um_cu_pairs;
/* Rounds rows of n elements of UM_BF16 as um_cu_quantize does, except those of padding and of experts of other ranks.
 */
void um_cu_quantize_pairs(const um_cu_pairs *pairs, int32_t n, const um_cu_coded *out, cudaStream_t s);
/* x[t] += out[t, k] for all k in ascending order, and then um_cu_norm of x, in one kernel where H allows it. n is the
 * capacity of the batch. `type` is that of the outputs, too. */
void um_cu_pairs_norm(float *x, const um_cu_pairs *pairs, const float *w, const float *bias, float eps, int32_t n,
                      int32_t H, um_dtype type, void *y, float *y32, const um_cu_coded *coded, cudaStream_t s);
/* y[t] = the sum over k of out[t, k] in ascending order, or y[t] += out[t, k] one after the other. The sum is fp32; y
 * [T, H] of `type` is rounded once. `type` is UM_F32 or that of the outputs. */
void um_cu_pairs_add(const um_cu_pairs *pairs, int32_t H, bool add, um_dtype type, void *y, cudaStream_t s);
/* x[t] = (x[t] + norm(y[t])) * scale for all tokens: root mean square norm with the weight w [H]. y and x fp32 [T, H].
 * scale: device values, of tokens in the first mode and of those of a canvas; NULL: 1. */
void um_cu_norm_add(const um_cu_batch *b, const float *y, const float *w, float eps, int32_t H,
                    const float *const scale[2], float *x, cudaStream_t s);
/* y[t] = norm(blend of token t), or 0 for a token without a blend; blend fp32 [n_blends, H], y [T, H] of `type`. */
void um_cu_blend_norm(const um_cu_batch *b, const float *blend, const float *w, float eps, int32_t H, um_dtype type,
                      void *y, cudaStream_t s);
/* x[t] = norm(x[t]) for the tokens of canvases; the others don't change. x fp32 [T, H]. */
void um_cu_canvas_norm(const um_cu_batch *b, const float *w, float eps, int32_t H, float *x, cudaStream_t s);
/* y[t, i] = act(gu[t, i]) * gu[t, n + i]; gu [T, 2n], y [T, n], both of `type`. `coded`, if not NULL, receives y as
 * um_cu_quantize would round it; type is then UM_BF16, and y is scratch. */
void um_cu_gate(const void *gu, int32_t T, int32_t n, um_act act, um_dtype type, void *y, const um_cu_coded *coded,
                cudaStream_t s);
/* y[t, i] += bias[i]; y [T, n] of `type`. */
void um_cu_add_bias(void *y, const float *bias, int32_t T, int32_t n, um_dtype type, cudaStream_t s);
/* saved[to] = hidden[from] for the saves of the batch; fp32 rows of width H. */
void um_cu_save(const um_cu_batch *b, const float *hidden, float *saved, int32_t H, cudaStream_t s);

/* ---- Products (product.cu) ---- */
typedef struct um_cu_products um_cu_products; /* cuBLASLt handle, its plans, its workspace */
/* Prepares products. Allocates. workspace: device memory of workspace_bytes for cuBLASLt, aligned to 256 bytes.
 * deterministic: a row's bits do not depend on the number of rows, and are the same in every process on the same kind
 * of device. Without it, a product of bf16 uses the fastest algorithm for its number of rows. */
um_status um_cu_products_new(um_cu_products **out, void *workspace, size_t workspace_bytes, bool deterministic,
                             um_err *err);
void um_cu_products_free(um_cu_products *p);
/* Chooses the plans for y = W x with this weight shape and up to max_rows rows of x. Called before the first pass;
 * allocates, and waits for the device. The weights are not read. Returns at once for a shape that it knows. The first
 * call for a shape needs temporary device memory: the size of the weights, of x and of y together, and 128 MiB.
 * out_type: UM_F32 or UM_BF16, the type of y. add: the products add to y. gated: the weights are those of um_cu_gated;
 * then the first call needs memory for half of y, too. */
um_status um_cu_products_prepare(um_cu_products *p, const um_cu_matrix *w, int32_t max_rows, um_dtype out_type,
                                 bool add, bool gated, um_err *err);
/* The input of a product: n rows of the type of its weights. */
typedef struct um_cu_rows {
    const void *data;   /* [n, in] */
    const float *scale; /* [n] powers of two, aligned to 16 bytes, for codes of UM_F8; else NULL */
    int32_t n;
} um_cu_rows;
/* y[t] = W x[t] (+ y[t] when `add` is set) for the T rows of x; y [T, rows] of out_type with a distance of `stride`
 * elements between rows. x, y and their rows are aligned to 16 bytes, unless `in` or `rows` is not a multiple of 8; the
 * same for the weights, which may be rows of a larger matrix. T may exceed the max_rows of prepare. fp32 weights: fp32
 * sums in a fixed order (a kernel of our own, no tf32), without prepare. bf16 weights: exact products, fp32 sums.
 * UM_F8: sums of 128 products have fewer bits than fp32, and are added in fp32. Rows of a larger matrix with factors of
 * blocks begin at a multiple of UM_CU_BLOCK. UM_EINVAL for a shape that was not prepared. UM_EDEVICE: cuBLASLt refused
 * the product, or a kernel of our own could not be started. */
um_status um_cu_linear(um_cu_products *p, const um_cu_matrix *w, um_cu_rows x, bool add, um_dtype out_type, void *y,
                       int32_t stride, cudaStream_t s);
/* y = W x for n <= UM_CU_FEW_ROWS rows of x, without prepare, on Hopper GPUs. Weights have an even number of rows, and
 * columns that are a multiple of 8, or of 16 for UM_F8; stride is even. UM_EDEVICE: something else is asked for, or the
 * kernel could not be started. */
enum { UM_CU_FEW_ROWS = 128 };
um_status um_cu_linear_few(const um_cu_products *p, const um_cu_matrix *w, um_cu_rows x, um_dtype out_type, void *y,
                           int32_t stride, cudaStream_t s);
/* Returns whether um_cu_linear_few computes weights like w, with the bits of um_cu_linear for this prepared shape. */
bool um_cu_linear_few_suits(const um_cu_products *p, const um_cu_matrix *w, um_dtype out_type);
/* Returns whether products with UM_F8 exist for the shape on the current device: a Hopper GPU, rows and columns that
 * are multiples of 16. */
bool um_cu_fp8_suits(int64_t rows, int64_t in);
/* y[t] = silu(gate x[t]) * (up x[t]) for weights [2 n, in] of gate above up, prepared for products to bf16; y bf16
 * [T, n]. Gate and up are rounded to bf16 as um_cu_linear and um_cu_gate do. Returns false, and starts nothing, when
 * the plans have no kernel that does both at once. */
bool um_cu_gated(um_cu_products *p, const um_cu_matrix *w, um_cu_rows x, void *y, cudaStream_t s);
/* Counts of the preparations so far. */
typedef struct um_cu_products_info {
    int n_shapes, n_simt;  /* prepared shapes; those without a suitable algorithm of cuBLASLt, which are slow */
    int n_tried, n_agreed; /* algorithms that were tried; those whose rows have the bits of the chosen plans */
    int n_grouped;         /* plans that compute their tokens in smaller groups */
    double seconds;
} um_cu_products_info;
um_cu_products_info um_cu_products_get_info(const um_cu_products *p);

/* ---- Adapters (low_rank.cu) ---- */
/* The matrices of one adapter for one linear layer; a.data NULL: the adapter does not change the layer. */
typedef struct um_cu_low_rank {
    um_cu_matrix a, b; /* [rank, in], [out, rank], both of one type */
} um_cu_low_rank;
/* y[t] += B (A x[t]) for every token whose span has an adapter, in two steps, between which the layer's own product may
 * run: low[t] = A x[t], then y[t] += B low[t]. low_rank [n_adapters] lies in device memory, and `type` is that of all
 * its matrices. The rank of a layer is at most rank_max. low is fp32 [T, rank_max], rounded to bf16 when B is bf16.
 * x [T, in] has the type `type`, y [T, out] has y_type. */
void um_cu_low_rank_down(const um_cu_batch *b, const um_cu_low_rank *low_rank, int32_t in, int32_t rank_max,
                         um_dtype type, const void *x, float *low, cudaStream_t s);
void um_cu_low_rank_up(const um_cu_batch *b, const um_cu_low_rank *low_rank, int32_t out, int32_t rank_max,
                       um_dtype type, const float *low, um_dtype y_type, void *y, cudaStream_t s);

/* ---- Keys and values (kv_layout.h has their places; rope_kv.cu, attention*.cu, select.cu) ---- */
/* Copies the first n slots of a page to another page in all layers. */
void um_cu_kv_copy(const um_cu_kv *kv, int32_t from_page, int32_t to_page, int32_t n, cudaStream_t s);

typedef struct um_cu_rope {
    int32_t layer, n_heads, n_kv_heads, head_dim, rope_dim;
    void *qkv; /* [T, (n_heads + 2 n_kv_heads) * d] of `type`: queries | keys | values; the queries are replaced */
    um_dtype type;
    const float *q_norm, *k_norm, *v_norm; /* [d] or NULL */
    float eps, clip;
    const float *cos, *sin; /* [positions, rope_dim / 2] */
    const float *query;     /* [positions] factor of the rotated queries, or NULL */
    bool near;              /* the layer has a window: keys and values go to near_slot */
} um_cu_rope;
/* The formula of um_rope_kv (ops/ops.h): norm, clamp, rotation of queries and keys; keys and values go to their slots
 * in the KV's type. Arithmetic in fp32; the rotated queries are rounded to `type` when stored. */
void um_cu_rope_kv(const um_cu_batch *b, const um_cu_rope *a, const um_cu_kv *kv, cudaStream_t s);

typedef struct um_cu_attention {
    int32_t layer, n_heads, n_kv_heads, head_dim;
    const void *qkv; /* as um_cu_rope left it */
    um_dtype type;
    void *out; /* [T, n_heads * d] of `type` */
    float scale;
    int32_t window; /* keys that a query sees at most (um_seen_start); 0: no limit */
    /* Keys are cut into pieces of UM_CU_PIECE visibility indices, at fixed multiples; the kernels for Hopper GPUs use
     * larger ones for queries that see many keys (attention_share.cuh). The pieces of a query are merged in their
     * order. n_pieces: most pieces of a span in this pass, counted from index 0; it only limits the grid and never
     * changes a result. */
    int32_t n_pieces;
    /* Scratch. When the pieces of all tiles don't fit, the tiles are computed in groups that do. */
    float *partial;
    size_t partial_bytes;
    bool stream; /* use the kernels for Hopper GPUs where they suit; needs um_cu_attend_stream_exists() */
} um_cu_attention;
/* Returns whether the current device runs the kernels of attention_stream.cu. Their results differ in rounding. */
bool um_cu_attend_stream_exists();
#define UM_CU_PIECE 256
/* The attention of a kind of layers. */
typedef struct um_cu_heads {
    int32_t n_heads, n_kv_heads, head_dim, window;
    um_dtype kv_type;
} um_cu_heads;
/* um_message_capacity.tile_tokens for layers of these n kinds. */
int32_t um_cu_tile_tokens(const um_cu_heads *h, int n, um_dtype type);
/* The largest head size that attention and um_cu_rope_kv compute; head sizes are multiples of 8. */
#define UM_CU_HEAD_DIM_MAX 512
/* Returns the bytes of shared memory that attention needs for a CTA; 0: no more than every device has. */
size_t um_cu_attention_shared(const um_cu_heads *h, um_dtype type);
/* Attention as um_attention (ops/ops.h) defines it; all of its rules are in the message. */
void um_cu_attend(const um_cu_batch *b, const um_cu_attention *a, const um_cu_kv *kv, cudaStream_t s);
/* Scratch of um_cu_select for spans with at most max_keys keys outside of a block. */
size_t um_cu_select_scratch(int32_t n_kv_heads, int32_t n_heads, int32_t head_dim, int32_t max_keys);
/* Executes the selections of all spans that have one (um_kv_select of ops/batch.h), one after another; runs outside of
 * graphs. host: the spans [n_spans] and the selections in host memory, for the sizes of the grids. In a group of ranks,
 * the scores of all ranks' heads are merged through `scores`, fp32 [keys of a selection]; kv_copies ranks have the same
 * KV head. NULL: without a group. */
void um_cu_select(const um_cu_batch *b, const char *host_message, const um_cu_attention *a, const um_cu_kv *kv,
                  const um_cu_partials *scores, int32_t kv_copies, void *scratch, cudaStream_t s);

/* ---- Mixture of experts (moe.cu, route.cu) ---- */
#define UM_CU_EXPERTS_MAX 4096
typedef struct um_cu_moe {
    um_expert_route route;
    const float *logits;       /* [T, E] */
    const float *bias;         /* [E] or NULL */
    const float *expert_scale; /* [E] factors of the experts' weights; NULL: 1 */
    um_act act;
    /* The experts that are computed: all, or those of this rank. The others add nothing, and have no matrices. */
    int32_t first_own, n_own;
    /* Device arrays of the experts' matrices: E pointers to [2 ff, H] and to [H, ff] of `type`. */
    const void *const *gate_up, *const *down;
    /* For experts in e4m3: E factors of the matrices. NULL: the matrices are of `type`. */
    const um_cu_factors *gate_up_scale, *down_scale;
    bool gate_up_blocks, down_blocks; /* some have factors of blocks; those of gate_up need n_ff % 16 == 0 */
    um_dtype type;
    const void *x;     /* [T, H] of `type` */
    um_cu_coded coded; /* x in e4m3, with gate_up_scale */
    int32_t hidden, n_ff;
    void *y;         /* [T, H] of y_type; the outputs are added in ascending order of the experts */
    um_dtype y_type; /* UM_F32 or `type` */
    bool add;        /* to y; otherwise they replace it */
    void *scratch;   /* um_cu_moe_scratch bytes */
} um_cu_moe;
/* codes: the experts have a down_scale. */
size_t um_cu_moe_scratch(const um_expert_route *route, int32_t n_tokens, int32_t hidden, int32_t n_ff, um_dtype type,
                         bool codes);
/* The formula of um_moe (ops/ops.h): routes every token of the capacity, and computes only the experts in use. No help
 * of the host. The routing follows ops/expert_route.c exactly: same order of operations in fp32, lower expert among
 * equals. The outputs of the experts, times their weights, are rounded to `type` and then added in fp32. There are at
 * most UM_CU_EXPERTS_MAX experts. With bf16, x and the weights are aligned to 16 bytes. With e4m3, the columns are
 * multiples of 16. */
void um_cu_moe_add(const um_cu_batch *b, const um_cu_moe *a, cudaStream_t s);
/* The same up to the sum of a token's experts. Returns the outputs that are left to add, which lie in the scratch. y,
 * y_type and `add` are not used. */
um_cu_pairs um_cu_moe_outputs(const um_cu_batch *b, const um_cu_moe *a, cudaStream_t s);

/* ---- Routers (router.cu) ---- */
/* Returns whether the current device, a Hopper GPU, and the sizes suit um_cu_router_product: rows in fours, columns a
 * multiple of 64 up to 6144. */
bool um_cu_router_suits(int32_t rows, int32_t in);
/* Bytes of a router's weights as the product reads them. */
size_t um_cu_router_bytes(int32_t rows, int32_t in);
/* Stores a router's weights of UM_F32 as the product reads them. *exact: bf16 has all of them; otherwise the product
 * can't be used. Waits for the device. */
um_status um_cu_router_pack(const um_cu_matrix *w, void *out, bool *exact, cudaStream_t s, um_err *err);
/* y[t] = W x[t], for packed weights [rows, in]; x [T, in] and y [T, rows] fp32, aligned to 16 bytes. Products are exact
 * and sums fp32, in an order that `in` alone determines. */
void um_cu_router_product(const void *w, int32_t rows, int32_t in, const float *x, int32_t T, float *y, cudaStream_t s);

/* ---- Head (head.cu, filter.cu, blend.cu) ---- */
#define UM_CU_VOCAB_TILE 32768 /* ids whose logits exist at a time */
#define UM_CU_HEAD_ROWS  1024  /* rows whose logits of these ids exist at a time */
#define UM_CU_WHOLE_ROWS 16    /* rows whose logits exist as a whole at a time */
typedef struct um_cu_head {
    const um_cu_matrix *w;       /* [V, H], or the rows of this rank's ids */
    const float *hidden, *saved; /* fp32 [T, H], [n_saved, H] after the final norm */
    int32_t hidden_size, vocab;  /* ids are below vocab; w may have more rows */
    float scale;
    float cap;                 /* > 0: a logit z becomes cap * tanh(z / cap) */
    const um_cu_matrix *embed; /* [V, H] for blends */
    float embed_scale;
    float *blend; /* [n_blends, H] fp32 blends of rows (um_row.blend); NULL: no row has one */
    /* With ranks: [n_rows, H] fp32 on the device of each, scratch that all can read. With at.comm: on this device, one
     * behind the other, each um_cu_blend_part_bytes. */
    float *blend_part[UM_RANKS_MAX];
    void *exchange;    /* with at.comm: um_cu_head_exchange bytes for the results of other ranks */
    void *mixed;       /* [n_rows, H] of w->type, or UM_BF16 for UM_F8: scratch */
    um_cu_coded coded; /* [n_rows, H]: scratch for UM_F8 */
    void *scratch;     /* um_cu_head_scratch bytes */
    /* The ranks of a group divide the ids: rank r has [first[r], first[r + 1]), and first[at.n] is vocab. Rank 0
     * answers; it reads the scratch of the others. All ranks make the blends. Without a group at.n is 1. */
    um_cu_meeting at;
    int32_t first[UM_RANKS_MAX + 1];
    void *rank_scratch[UM_RANKS_MAX];
    /* Called behind the kernels of a part of the head, "head" or "blend"; NULL: nothing is. */
    void (*mark)(void *arg, const char *part);
    void *mark_arg;
    um_answer *answer; /* [n_rows] in pinned host memory mapped into the device; `top` is not written */
    um_top *top;       /* entries of all rows' lists, the same kind of memory */
} um_cu_head;
/* Prepares the products of the head for n ids and up to n_rows rows. */
um_status um_cu_head_prepare(const um_cu_matrix *w, int32_t n, int32_t n_rows, um_cu_products *p, um_err *err);
size_t um_cu_head_scratch(int32_t n_rows, int32_t vocab);
/* Returns the bytes of the results of n_rows rows that ranks in several processes bring to rank 0. */
size_t um_cu_head_exchange(int32_t n_rows, int32_t vocab);
/* Returns the bytes of a rank's part of blends with at.comm. */
size_t um_cu_blend_part_bytes(int32_t n_rows, int32_t H);
/* Computes the answers of all rows with `whole` -1: products tile by tile, edits and bitmaps, and a reduction in a
 * fixed order. Then computes the blends of all rows that have one. Suitable for graphs. Errors: those of um_cu_linear
 * and um_cu_linear_few. */
um_status um_cu_head_answer(const um_cu_batch *b, const um_cu_head *a, um_cu_products *p, cudaStream_t s);
/* Computes the answers of the n_whole rows that need all logits, in groups of UM_CU_WHOLE_ROWS. Runs outside of graphs.
 * Errors: those of um_cu_linear. */
um_status um_cu_head_answer_whole(const um_cu_batch *b, const um_cu_head *a, um_cu_products *p, int32_t n_whole,
                                  cudaStream_t s);

#endif
