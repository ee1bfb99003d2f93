/* product: y = W x. The plans of product_plan.cu choose cuBLASLt or a kernel of our own for weights in bf16 and e4m3.
 * product_simt.cu computes fp32 weights, and shapes that cuBLASLt does not support. Whether there are plans depends
 * only on the shape and the type of the weights, never on T. */
#include "cuda/product.cuh"

const int32_t um_cu_bucket[UM_CU_BUCKETS] = {8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096};

um_status um_cu_lt_check(cublasStatus_t status, const char *what, um_err *err) {
    if (status == CUBLAS_STATUS_SUCCESS) return UM_OK;
    return um_fail(err, UM_EDEVICE, "%s: %s", what, cublasLtGetStatusString(status));
}

/* ---- The object -------------------------------------------------------------------------------------------------- */

/* Sets an attribute of a description of products. */
static um_status set_attribute(cublasLtMatmulDescOpaque_t *d, cublasLtMatmulDescAttributes_t which, const void *value,
                               size_t bytes, um_err *err) {
    return um_cu_lt_check(cublasLtMatmulDescSetAttribute(d, which, value, bytes), "cublasLtMatmulDescSetAttribute",
                          err);
}

static um_status describe_products(um_cu_products *p, um_err *err) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cublasLtMatmulMatrixScale_t of_rows = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
                                      of_blocks = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
                                      of_chunks = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    um_status s = um_cu_lt_check(cublasLtMatmulDescInit(&p->product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                                 "cublasLtMatmulDescInit", err);
    if (!s) s = set_attribute(&p->product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed, err);
    p->product_fp8 = p->product_blocks = p->product;
    if (!s) s = set_attribute(&p->product_fp8, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &of_rows, sizeof of_rows, err);
    if (!s) s = set_attribute(&p->product_fp8, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &of_rows, sizeof of_rows, err);
    if (!s) s = set_attribute(&p->product_blocks, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &of_blocks, sizeof of_blocks, err);
    if (!s) s = set_attribute(&p->product_blocks, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &of_chunks, sizeof of_chunks, err);
    return s;
}

static um_status open_library(um_cu_products *p, um_err *err) {
    int device;
    UM_CU_TRY(cudaGetDevice(&device), err);
    UM_CU_TRY(cudaDeviceGetAttribute(&p->n_processors, cudaDevAttrMultiProcessorCount, device), err);
    int major;
    UM_CU_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), err);
    p->has_stream = major == 9; /* wgmma belongs to Hopper alone */
    um_status s = um_cu_lt_check(cublasLtCreate(&p->lt), "cublasLtCreate", err);
    if (!s) s = describe_products(p, err);
    return s ? s : um_cu_simt_prepare(err);
}

um_status um_cu_products_new(um_cu_products **out, void *workspace, size_t workspace_bytes, bool deterministic,
                             um_err *err) {
    um_cu_products *p = UM_NEW(um_cu_products);
    p->workspace = workspace;
    p->workspace_bytes = workspace_bytes;
    p->deterministic = deterministic;
    *out = NULL;
    const um_status s = open_library(p, err);
    if (s) um_cu_products_free(p);
    else *out = p;
    return s;
}

void um_cu_products_free(um_cu_products *p) {
    if (!p) return;
    if (p->lt) cublasLtDestroy(p->lt);
    um_free(p->shape);
    um_free(p);
}

um_cu_products_info um_cu_products_get_info(const um_cu_products *p) { return p->info; }

/* ---- Plans ------------------------------------------------------------------------------------------------------- */

/* Returns whether a product goes through cuBLASLt. The library's fast kernels need rows of x and y that are aligned to
 * 16 bytes. */
static bool suits_library(const um_cu_matrix *w) {
    return w->type == UM_F8 || (w->type == UM_BF16 && w->in % 8 == 0 && w->rows % 8 == 0);
}

bool um_cu_fp8_suits(int64_t rows, int64_t in) {
    int device = 0, major = 0;
    return rows % 16 == 0 && in % 16 == 0 && cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major == 9;
}

/* Returns the part of a product that its operands determine. */
static um_cu_stream stream_of(const um_cu_matrix *w, const um_cu_rows *x) {
    um_cu_stream job = {};
    job.w = w->data, job.x = x->data, job.w_scale = w->scale, job.x_scale = x->scale, job.w_block = w->block;
    job.in = job.x_stride = w->in, job.T = x->n;
    return job;
}

static um_cu_shape *find_shape(const um_cu_products *p, const um_cu_matrix *w, um_dtype out_type, bool add) {
    for (int i = 0; i < p->info.n_shapes; i++) {
        um_cu_shape *shape = &p->shape[i];
        if (shape->rows == w->rows && shape->in == w->in && shape->type == w->type &&
            shape->blocks == (w->block != NULL) && shape->out_type == out_type && shape->add == add)
            return shape;
    }
    return NULL;
}

um_status um_cu_products_prepare(um_cu_products *p, const um_cu_matrix *w, int32_t max_rows, um_dtype out_type,
                                 bool add, bool gated, um_err *err) {
    if (!suits_library(w)) return UM_OK;
    um_cu_shape *shape = find_shape(p, w, out_type, add);
    gated |= shape && shape->gated;
    if (shape && shape->gated == gated &&
        (shape->n_buckets == UM_CU_BUCKETS || um_cu_bucket[shape->n_buckets - 1] >= max_rows))
        return UM_OK;
    um_cu_shape planned = {};
    planned.rows = w->rows;
    planned.in = w->in;
    planned.type = w->type;
    planned.out_type = out_type;
    planned.add = add;
    planned.gated = gated;
    planned.blocks = w->block;
    if (um_cu_scales_bytes(&planned) > p->workspace_bytes)
        return um_fail(err, UM_EUNSUPPORTED, "expected at most %zu columns of weights in FP8 blocks, found %d",
                       p->workspace_bytes / um_cu_bucket[UM_CU_BUCKETS - 1] / sizeof(float) * UM_CU_BLOCK, w->in);
    const double start = um_now();
    const um_status s = um_cu_plan_shape(p, &planned, max_rows, err);
    p->info.seconds += um_now() - start;
    if (s) return s;
    if (!shape) {
        const size_t n = (size_t)p->info.n_shapes + 1;
        p->shape = (um_cu_shape *)um_realloc(p->shape, um_mul(n, sizeof *p->shape));
        shape = &p->shape[p->info.n_shapes++];
        p->info.n_simt += planned.simt;
    }
    *shape = planned;
    return UM_OK;
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

cublasStatus_t um_cu_layouts_init(um_cu_layouts *l, const um_cu_shape *shape, int32_t T, int32_t stride) {
    const uint64_t rows = (uint64_t)shape->rows, in = (uint64_t)shape->in, n = (uint64_t)T;
    const cudaDataType type = shape->type == UM_F8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    const cudaDataType out = shape->out_type == UM_F32 ? CUDA_R_32F : CUDA_R_16BF;
    cublasStatus_t s = cublasLtMatrixLayoutInit(&l->w, type, in, rows, shape->in);
    if (s == CUBLAS_STATUS_SUCCESS) s = cublasLtMatrixLayoutInit(&l->x, type, in, n, shape->in);
    if (s == CUBLAS_STATUS_SUCCESS) s = cublasLtMatrixLayoutInit(&l->y, out, rows, n, stride);
    return s;
}

size_t um_cu_scales_bytes(const um_cu_shape *shape) {
    const size_t T = (size_t)um_cu_bucket[UM_CU_BUCKETS - 1];
    return shape->blocks ? (size_t)UM_CEIL_DIV(shape->in, UM_CU_BLOCK) * T * sizeof(float) : 0;
}

cublasLtMatmulDescOpaque_t um_cu_description(const um_cu_products *p, const um_cu_job *job) {
    if (job->w->type != UM_F8) return p->product;
    const bool blocks = job->w->block != NULL;
    cublasLtMatmulDescOpaque_t d = blocks ? p->product_blocks : p->product_fp8;
    const void *w_scale = blocks ? job->w->block : job->w->scale, *x_scale = blocks ? p->workspace : job->x.scale;
    cublasLtMatmulDescSetAttribute(&d, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &w_scale, sizeof w_scale);
    cublasLtMatmulDescSetAttribute(&d, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &x_scale, sizeof x_scale);
    return d;
}

static bool start_library(const um_cu_products *p, const um_cu_shape *shape, const cublasLtMatmulAlgo_t *algo,
                          const um_cu_job *job, cudaStream_t s) {
    const float one = 1, keep = shape->add ? 1.0f : 0.0f;
    cublasLtMatmulDescOpaque_t description = um_cu_description(p, job);
    um_cu_layouts l;
    if (um_cu_layouts_init(&l, shape, job->x.n, job->stride) != CUBLAS_STATUS_SUCCESS) return false;
    const size_t used = um_cu_scales_bytes(shape);
    if (shape->blocks)
        um_cu_repeat_scales(job->x.scale, job->x.n, UM_CEIL_DIV(shape->in, UM_CU_BLOCK), (float *)p->workspace, s);
    return cublasLtMatmul(p->lt, &description, &one, job->w->data, &l.w, job->x.data, &l.x, &keep, job->y, &l.y, job->y,
                          &l.y, algo, (char *)p->workspace + used, p->workspace_bytes - used,
                          s) == CUBLAS_STATUS_SUCCESS;
}

static bool start_own(const um_cu_products *p, const um_cu_shape *shape, um_cu_kind kind, const um_cu_job *job,
                      cudaStream_t s) {
    um_cu_stream own = stream_of(job->w, &job->x);
    own.y = job->y, own.rows = shape->rows, own.stride = job->stride;
    own.add = shape->add, own.out_type = shape->out_type;
    if (kind == UM_CU_MANY) return um_cu_many_suits(&own) && um_cu_many_product(&own, p->n_processors, s) == UM_OK;
    return um_cu_stream_suits(&own) && um_cu_stream_product(&own, p->n_processors, s) == UM_OK;
}

/* Returns the job without its first n tokens. */
static um_cu_job skip_tokens(const um_cu_shape *shape, um_cu_job job, int32_t n) {
    job.x.data = (const char *)job.x.data + (size_t)n * (size_t)shape->in * um_dtype_size(shape->type);
    if (job.x.scale) job.x.scale += n;
    job.x.n -= n;
    job.y = (char *)job.y + (size_t)n * (size_t)job.stride * um_dtype_size(shape->out_type);
    return job;
}

bool um_cu_method_start(const um_cu_products *p, const um_cu_shape *shape, const um_cu_method *method,
                        const um_cu_job *job, cudaStream_t s) {
    enum { TOGETHER = 4 }; /* with factors of blocks the library computes multiples of so many tokens */
    if (method->kind != UM_CU_LIBRARY) return start_own(p, shape, method->kind, job, s);
    const int32_t rest = shape->blocks ? job->x.n % TOGETHER : 0, n = job->x.n - rest;
    um_cu_job most = *job;
    most.x.n = n;
    if (n && !start_library(p, shape, &method->algo, &most, s)) return false;
    const um_cu_job last = skip_tokens(shape, *job, n);
    return !rest || start_own(p, shape, UM_CU_STREAM, &last, s);
}

static um_cu_stream gated_of(const um_cu_job *job) {
    um_cu_stream own = stream_of(job->w, &job->x);
    own.y = job->y, own.rows = job->w->rows / 2, own.stride = job->stride, own.gated = true, own.out_type = UM_BF16;
    return own;
}

bool um_cu_gated_suits(const um_cu_job *job) {
    const um_cu_stream own = gated_of(job);
    return um_cu_many_suits(&own);
}

bool um_cu_gated_start(const um_cu_products *p, const um_cu_job *job, cudaStream_t s) {
    const um_cu_stream own = gated_of(job);
    return um_cu_many_suits(&own) && um_cu_many_product(&own, p->n_processors, s) == UM_OK;
}

/* Returns the plan for the first tokens of T. */
static const um_cu_plan *plan_of(const um_cu_shape *shape, int32_t T) {
    int bucket = 0;
    while (bucket + 1 < shape->n_buckets && um_cu_bucket[bucket] < T) bucket++;
    return &shape->plan[bucket];
}

static um_status planned_product(const um_cu_products *p, const um_cu_shape *shape, um_cu_job job, cudaStream_t s) {
    assert((uintptr_t)job.w->data % 16 == 0 && (uintptr_t)job.x.data % 16 == 0 && (uintptr_t)job.y % 16 == 0);
    assert((size_t)job.stride * um_dtype_size(shape->out_type) % 16 == 0 && job.stride >= shape->rows);
    while (job.x.n) {
        const um_cu_plan *plan = plan_of(shape, job.x.n);
        um_cu_job first = job;
        first.x.n = UM_MIN(job.x.n, plan->rows_at_once);
        if (!um_cu_method_start(p, shape, &plan->method, &first, s)) return UM_EDEVICE;
        job = skip_tokens(shape, job, first.x.n);
    }
    return UM_OK;
}

um_status um_cu_linear(um_cu_products *p, const um_cu_matrix *w, um_cu_rows x, bool add, um_dtype out_type, void *y,
                       int32_t stride, cudaStream_t s) {
    if (x.n == 0 || w->rows == 0) return UM_OK;
    if (suits_library(w)) {
        const um_cu_shape *shape = find_shape(p, w, out_type, add);
        if (!shape) return UM_EINVAL;
        if (!shape->simt) return planned_product(p, shape, {w, x, y, stride}, s);
    }
    if (w->type == UM_F8) return UM_EDEVICE;
    um_cu_simt job = {};
    job.type = w->type, job.w = w->data, job.x = x.data, job.y = y;
    job.rows = w->rows, job.in = w->in, job.T = x.n;
    job.stride = stride, job.add = add, job.out_type = out_type;
    um_cu_simt_product(&job, p->n_processors, s);
    return UM_OK;
}

/* um_cu_gated for more tokens than product_stream.cu computes. */
static bool gated_many(const um_cu_products *p, const um_cu_shape *shape, um_cu_job job, cudaStream_t s) {
    for (int32_t left = job.x.n; left > 0; left -= plan_of(shape, left)->rows_at_once)
        if (!plan_of(shape, left)->gated) return false;
    for (int32_t left = job.x.n; left;) {
        const um_cu_plan *plan = plan_of(shape, left);
        job.x.n = UM_MIN(left, plan->rows_at_once);
        if (!um_cu_gated_start(p, &job, s)) return false;
        job.x.data = (const um_bf16 *)job.x.data + (size_t)job.x.n * (size_t)shape->in;
        job.y = (um_bf16 *)job.y + (size_t)job.x.n * (size_t)job.stride;
        left -= job.x.n;
    }
    return true;
}

bool um_cu_gated(um_cu_products *p, const um_cu_matrix *w, um_cu_rows x, void *y, cudaStream_t s) {
    if (x.n == 0 || !suits_library(w)) return false;
    const um_cu_shape *shape = find_shape(p, w, UM_BF16, false);
    if (!shape || shape->simt) return false;
    const int32_t rows = w->rows / 2;
    if (x.n > UM_CU_STREAM_TOKENS) return w->type == UM_BF16 && gated_many(p, shape, {w, x, y, rows}, s);
    if (plan_of(shape, x.n)->method.kind != UM_CU_STREAM) return false;
    um_cu_stream job = stream_of(w, &x);
    job.y = y, job.rows = rows, job.stride = rows, job.gated = true, job.out_type = UM_BF16;
    return um_cu_stream_suits(&job) && um_cu_stream_product(&job, p->n_processors, s) == UM_OK;
}

um_status um_cu_linear_few(const um_cu_products *p, const um_cu_matrix *w, um_cu_rows x, um_dtype out_type, void *y,
                           int32_t stride, cudaStream_t s) {
    if (x.n == 0 || w->rows == 0) return UM_OK;
    um_cu_stream job = stream_of(w, &x);
    job.y = y, job.rows = w->rows, job.stride = stride, job.out_type = out_type;
    return um_cu_stream_suits(&job) ? um_cu_stream_product(&job, p->n_processors, s) : UM_EDEVICE;
}

bool um_cu_linear_few_suits(const um_cu_products *p, const um_cu_matrix *w, um_dtype out_type) {
    const um_cu_shape *shape = suits_library(w) ? find_shape(p, w, out_type, false) : NULL;
    return shape && !shape->simt && shape->like_stream;
}
