/* product: the parts of um_cu_linear (kernels.cuh). product.cu keeps the plans and starts the products, product_plan.cu
 * chooses the plans of a weight shape, product_simt.cu computes products without cuBLASLt. product_stream.cu and
 * product_many.cu have the kernels of our own for Hopper GPUs. */
#ifndef UM_CUDA_PRODUCT_CUH
#define UM_CUDA_PRODUCT_CUH

#include <cublasLt.h>

#include "cuda/cuda.cuh"
#include "cuda/kernels.cuh"

/* ---- Products by fused multiply-adds in fp32 (product_simt.cu) ---- */

typedef struct um_cu_simt {
    um_dtype type;       /* of the weights and of x: UM_F32, UM_BF16 */
    const void *w, *x;   /* [rows, in], [T, in] */
    void *y;             /* [T, rows], rows at a distance of `stride` elements */
    int32_t rows, in, T; /* T > 0 */
    int32_t stride;
    bool add;
    um_dtype out_type; /* UM_F32, UM_BF16 */
} um_cu_simt;
/* Allows the kernels the shared memory that they need. Called once, before the first product. */
um_status um_cu_simt_prepare(um_err *err);
/* y[t] = W x[t] (+ y[t]). The order of a sum depends only on `in` and the type. n_processors: multiprocessors of the
 * device; they only affect the choice of the tiles. */
void um_cu_simt_product(const um_cu_simt *p, int n_processors, cudaStream_t s);

/* ---- Products of few tokens on Hopper GPUs (product_stream.cu) ---- */

enum { UM_CU_STREAM_TOKENS = UM_CU_FEW_ROWS };
typedef struct um_cu_stream {
    const void *w; /* [rows, in]; with `gated` [2 * rows, in], gate rows above up rows */
    const void *x; /* [T, in], rows at a distance of x_stride elements */
    /* Both are e4m3: the factors of the rows of w and of x, those of x powers of two. NULL: both are bf16. */
    const float *w_scale, *x_scale;
    const float *w_block; /* factors of the blocks of w in e4m3, as um_cu_matrix has them; NULL: none */
    void *y;              /* [T, rows], rows at a distance of `stride` elements */
    int32_t rows, in, T;  /* 0 < T <= UM_CU_STREAM_TOKENS */
    int32_t x_stride, stride;
    bool add, gated;
    um_dtype out_type; /* UM_F32, UM_BF16 */
} um_cu_stream;
/* Returns whether the sizes suit the kernels: even rows, columns a multiple of 8, or of 16 for e4m3. */
bool um_cu_stream_suits(const um_cu_stream *p);
/* y[t] = W x[t] (+ y[t]), or with `gated` y[t] = silu(gate x[t]) * (up x[t]). A sum runs over the columns in ascending
 * order for every shape and T. UM_EDEVICE: the device has no such kernels, or the launch failed. */
um_status um_cu_stream_product(const um_cu_stream *p, int n_processors, cudaStream_t s);
/* The parts of um_cu_stream_product for e4m3, without and with w_block. */
cudaError_t um_cu_stream_fp8(const um_cu_stream *p, int n_processors, cudaStream_t s);
cudaError_t um_cu_stream_blocks(const um_cu_stream *p, int n_processors, cudaStream_t s);

/* ---- Products of more tokens on Hopper GPUs (product_many.cu) ---- */

/* Returns whether the sizes suit the kernel: bf16 to bf16, nothing added, rows and columns a multiple of 8. */
bool um_cu_many_suits(const um_cu_stream *p);
/* As um_cu_stream_product, with the same bits, for any T > 0. */
um_status um_cu_many_product(const um_cu_stream *p, int n_processors, cudaStream_t s);

/* ---- Products by cuBLASLt ---- */

/* A plan serves the numbers of tokens above the bucket before its own, up to its own. Larger products are computed in
 * groups of the last bucket's tokens. */
enum { UM_CU_BUCKETS = 12 };
extern const int32_t um_cu_bucket[UM_CU_BUCKETS];

/* How a product is computed: by a kernel of our own, or by an algorithm of cuBLASLt. */
typedef enum um_cu_kind { UM_CU_LIBRARY, UM_CU_STREAM, UM_CU_MANY } um_cu_kind;
typedef struct um_cu_method {
    um_cu_kind kind;
    cublasLtMatmulAlgo_t algo;
} um_cu_method;

typedef struct um_cu_plan {
    um_cu_method method;
    int32_t rows_at_once; /* tokens that the method computes at a time; 0: there is no plan */
    bool gated;           /* product_many.cu computes product and gate at once */
} um_cu_plan;

/* The plans of all weights of one shape. */
typedef struct um_cu_shape {
    int32_t rows, in;
    um_dtype type, out_type; /* of the weights: UM_BF16 or UM_F8; of y */
    bool blocks;             /* the weights have factors of blocks */
    bool add;
    bool gated;        /* the rows of a gate above those of up, for um_cu_gated */
    bool simt;         /* cuBLASLt has no suitable algorithm: product_simt.cu computes the products */
    bool like_stream;  /* all plans have the bits of product_stream.cu */
    int32_t n_buckets; /* buckets that were planned */
    um_cu_plan plan[UM_CU_BUCKETS];
} um_cu_shape;

struct um_cu_products {
    cublasLtHandle_t lt;
    /* Without the places of scales; product_blocks is for weights with factors of blocks. */
    cublasLtMatmulDescOpaque_t product, product_fp8, product_blocks;
    void *workspace;
    size_t workspace_bytes;
    bool deterministic;
    bool has_stream; /* the device runs product_stream.cu and product_many.cu */
    int n_processors;
    um_cu_shape *shape; /* [info.n_shapes] */
    um_cu_products_info info;
};

/* Descriptions of the matrices of y = W x in the library's terms: column-major, so that y [T, rows] is a matrix of
 * `rows` rows and T columns. */
typedef struct um_cu_layouts {
    cublasLtMatrixLayoutOpaque_t w, x, y;
} um_cu_layouts;
cublasStatus_t um_cu_layouts_init(um_cu_layouts *l, const um_cu_shape *shape, int32_t T, int32_t stride);
/* The operands of a product, and its output. */
typedef struct um_cu_job {
    const um_cu_matrix *w;
    um_cu_rows x;
    void *y;
    int32_t stride; /* elements between the rows of y */
} um_cu_job;
/* Returns the bytes at the start of the workspace that a product with factors of blocks needs for the scales of tokens,
 * once for each UM_CU_BLOCK columns; 0 for other products. */
size_t um_cu_scales_bytes(const um_cu_shape *shape);
/* Returns the description of a product for cuBLASLt with the scales of the job. */
cublasLtMatmulDescOpaque_t um_cu_description(const um_cu_products *p, const um_cu_job *job);
/* Starts y = silu(gate x) * (up x) by product_many.cu, for a job whose weights are gate above up. Both return whether
 * the kernel supports it. */
bool um_cu_gated_suits(const um_cu_job *job);
bool um_cu_gated_start(const um_cu_products *p, const um_cu_job *job, cudaStream_t s);
/* Starts y = W x (+ y), all at once, by this method. With factors of blocks product_stream.cu computes the last tokens
 * of a product by cuBLASLt, three at most. Returns whether the method supports it. */
bool um_cu_method_start(const um_cu_products *p, const um_cu_shape *shape, const um_cu_method *method,
                        const um_cu_job *job, cudaStream_t s);
/* Returns UM_OK for CUBLAS_STATUS_SUCCESS, else UM_EDEVICE with the message "what: the library's text". */
um_status um_cu_lt_check(cublasStatus_t status, const char *what, um_err *err);
/* Fills the plans of the shape for up to max_rows tokens, or sets shape->simt. Adds to p->info. */
um_status um_cu_plan_shape(um_cu_products *p, um_cu_shape *shape, int32_t max_rows, um_err *err);

#endif
