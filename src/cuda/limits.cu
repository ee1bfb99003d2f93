/* limits: measures how fast the device reads its memory, and how fast cuBLASLt computes a large product. Both run for a
 * while before they are timed, so that the rates are those that the device keeps up, not those of a cool one. */
#include <cublasLt.h>
#include <cuda_fp8.h>

#include "cuda/device.cuh"
#include "cuda/product.cuh"

enum { THREADS = 256, LOADS = 8, CANDIDATES = 8, RUNS_MAX = 2000, WIDTH = 8192 };
static const size_t READ_BYTES = (size_t)2 << 30, READ_BYTES_MIN = (size_t)256 << 20;
static const size_t WORKSPACE_BYTES = (size_t)64 << 20;
static const double SECONDS = 0.3, LOAD_SECONDS = 1; /* of a measurement, and of the load before it */

/* Work that is timed: `start` puts it on the stream. */
typedef struct job job;
struct job {
    cudaStream_t s;
    um_status (*start)(job *j, um_err *err);
    /* For reading. */
    const uint4 *data;
    size_t n; /* groups of 16 bytes */
    unsigned *sum;
    int n_blocks;
    /* For products. */
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t layout, out; /* of both factors, and of the product */
    const cublasLtMatmulAlgo_t *algo;
    char *a, *b, *c, *workspace;
};

/* ---- Time -------------------------------------------------------------------------------------------------------- */

static um_status start_runs(job *j, int n, um_err *err) {
    um_status s = UM_OK;
    for (int i = 0; i < n && !s; i++) s = j->start(j, err);
    return s;
}

/* Stores the seconds of a run in a sequence of n. */
static um_status time_runs(job *j, cudaEvent_t from, cudaEvent_t to, int n, double *seconds, um_err *err) {
    float ms = 0;
    UM_CU_TRY(cudaEventRecord(from, j->s), err);
    um_status s = start_runs(j, n, err);
    if (s) return s;
    UM_CU_TRY(cudaEventRecord(to, j->s), err);
    UM_CU_TRY(cudaEventSynchronize(to), err);
    UM_CU_TRY(cudaEventElapsedTime(&ms, from, to), err);
    *seconds = (double)ms / 1000 / n;
    return *seconds > 0 ? UM_OK : um_fail(err, UM_EDEVICE, "a measured run took no time");
}

/* Stores the seconds of a run. With `sustained`, the device has worked for a while when they are taken. */
static um_status measure(job *j, bool sustained, double *seconds, um_err *err) {
    cudaEvent_t from = NULL, to = NULL;
    um_status s = um_cu_check(cudaEventCreate(&from), "cudaEventCreate", err);
    if (!s) s = um_cu_check(cudaEventCreate(&to), "cudaEventCreate", err);
    if (!s) s = time_runs(j, from, to, 1, seconds, err); /* loads the kernel */
    if (!s) s = time_runs(j, from, to, 3, seconds, err);
    if (!s && sustained) {
        const int load = (int)UM_MIN(LOAD_SECONDS / *seconds + 3, (double)RUNS_MAX),
                  n = (int)UM_MIN(SECONDS / *seconds + 3, (double)RUNS_MAX);
        s = time_runs(j, from, to, load, seconds, err);
        if (!s) s = time_runs(j, from, to, n, seconds, err);
    }
    if (from) cudaEventDestroy(from);
    if (to) cudaEventDestroy(to);
    return s;
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* Reads n groups of 16 bytes. A block reads LOADS * THREADS groups at once, with LOADS loads of a thread in flight, and
 * goes on behind those of all other blocks. The sum keeps the compiler from leaving out the loads; it is stored in a
 * case that does not occur. Grid: [any], block: [THREADS]. */
static __global__ __launch_bounds__(THREADS) void read_all(const uint4 *data, size_t n, unsigned *out) {
    unsigned sum = 0;
    const size_t at_once = (size_t)LOADS * THREADS;
    for (size_t i = blockIdx.x * at_once + threadIdx.x; i + at_once <= n + threadIdx.x; i += gridDim.x * at_once) {
        uint4 v[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; k++) v[k] = __ldcs(&data[i + (size_t)k * THREADS]);
#pragma unroll
        for (int k = 0; k < LOADS; k++) sum += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    if (sum == 0x12345678u) *out = sum;
}

/* Returns the i-th pair of normally distributed numbers (Box and Muller). */
static __device__ float2 normal_pair(unsigned long long i) {
    unsigned long long v = (i + 1) * 0x9e3779b97f4a7c15ull;
    v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ull;
    v = (v ^ v >> 27) * 0x94d049bb133111ebull;
    v ^= v >> 31;
    const float uniform = ((float)(unsigned)(v >> 32) + 0.5f) * 0x1p-32f, angle = (float)(unsigned)v * 0x1p-31f;
    const float length = sqrtf(-2 * logf(fminf(uniform, 1)));
    return make_float2(length * cospif(angle), length * sinpif(angle));
}

/* Fills n words with normally distributed numbers, as weights and activations are. The power of products depends on the
 * bits, and the clock depends on the power: with numbers of one exponent they are 8 % faster. */
static __global__ void fill(unsigned *out, size_t n, um_dtype type) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        const float2 a = normal_pair(2 * i), b = normal_pair(2 * i + 1);
        if (type == UM_F32) out[i] = __float_as_uint(a.x);
        else if (type == UM_BF16) {
            const __nv_bfloat162 two = __floats2bfloat162_rn(a.x, a.y);
            out[i] = *(const unsigned *)&two;
        } else { /* the largest numbers of a row are near 448 */
            const float scale = 100;
            const __nv_fp8x4_e4m3 four(make_float4(scale * a.x, scale * a.y, scale * b.x, scale * b.y));
            out[i] = four.__x;
        }
    }
}

static um_status start_read(job *j, um_err *err) {
    read_all<<<(unsigned)j->n_blocks, THREADS, 0, j->s>>>(j->data, j->n, j->sum);
    return um_cu_launched("reading memory", err);
}

/* Allocates READ_BYTES, or less when the device has less: enough that its caches don't matter. */
static um_status alloc_read(char **out, size_t *bytes, um_err *err) {
    um_status s;
    for (*bytes = READ_BYTES;; *bytes /= 2) {
        s = um_cu_alloc((void **)out, *bytes + sizeof(unsigned), "memory to measure its speed", err);
        if (s != UM_ENOMEM || *bytes / 2 < READ_BYTES_MIN) return s;
    }
}

static um_status measure_read(um_device *d, double *rate, um_err *err) {
    char *memory = NULL;
    size_t bytes = 0;
    double seconds = 0;
    um_status s = alloc_read(&memory, &bytes, err);
    if (s) return s;
    job j = {};
    j.s = d->stream;
    j.start = start_read;
    j.data = (const uint4 *)memory;
    j.n = bytes / sizeof(uint4);
    j.sum = (unsigned *)(memory + bytes);
    j.n_blocks = 8 * d->properties.multiProcessorCount;
    fill<<<1024, THREADS, 0, j.s>>>((unsigned *)memory, bytes / sizeof(unsigned), UM_BF16);
    s = um_cu_launched("filling memory", err);
    if (!s) s = measure(&j, true, &seconds, err);
    if (!s) *rate = (double)bytes / seconds;
    cudaStreamSynchronize(j.s);
    cudaFree(memory);
    return s;
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

static um_status start_product(job *j, um_err *err) {
    const float one = 1, zero = 0;
    return um_cu_lt_check(cublasLtMatmul(j->lt, j->product, &one, j->a, j->layout, j->b, j->layout, &zero, j->c, j->out,
                                         j->c, j->out, j->algo, j->workspace, WORKSPACE_BYTES, j->s),
                          "a large product", err);
}

static cudaDataType type_of(um_dtype type) {
    return type == UM_F32 ? CUDA_R_32F : type == UM_F8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
}

static um_status describe_product(job *j, um_dtype type, um_dtype out, um_err *err) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    um_status s = um_cu_lt_check(cublasLtCreate(&j->lt), "cublasLtCreate", err);
    if (!s)
        s = um_cu_lt_check(cublasLtMatmulDescCreate(&j->product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                           "cublasLtMatmulDescCreate", err);
    if (!s)
        s = um_cu_lt_check(
            cublasLtMatmulDescSetAttribute(j->product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
            "cublasLtMatmulDescSetAttribute", err);
    if (!s)
        s = um_cu_lt_check(cublasLtMatrixLayoutCreate(&j->layout, type_of(type), WIDTH, WIDTH, WIDTH),
                           "cublasLtMatrixLayoutCreate", err);
    if (!s)
        s = um_cu_lt_check(cublasLtMatrixLayoutCreate(&j->out, type_of(out), WIDTH, WIDTH, WIDTH),
                           "cublasLtMatrixLayoutCreate", err);
    return s;
}

/* Asks the library for algorithms and stores the time of the fastest. */
static um_status measure_candidates(job *j, double *seconds, um_err *err) {
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    cublasLtMatmulPreference_t preference = NULL;
    int n = 0;
    double best = 0;
    const cublasLtMatmulAlgo_t *fastest = NULL;
    um_status s = um_cu_lt_check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate", err);
    if (s) return s;
    s = um_cu_lt_check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                            &WORKSPACE_BYTES, sizeof WORKSPACE_BYTES),
                       "cublasLtMatmulPreferenceSetAttribute", err);
    if (!s)
        s = um_cu_lt_check(cublasLtMatmulAlgoGetHeuristic(j->lt, j->product, j->layout, j->layout, j->out, j->out,
                                                          preference, CANDIDATES, found, &n),
                           "cublasLtMatmulAlgoGetHeuristic", err);
    cublasLtMatmulPreferenceDestroy(preference);
    if (s) return s;
    for (int i = 0; i < n; i++) {
        j->algo = &found[i].algo;
        if (found[i].state != CUBLAS_STATUS_SUCCESS || measure(j, false, seconds, NULL)) continue;
        if (!fastest || *seconds < best) {
            fastest = j->algo;
            best = *seconds;
        }
    }
    if (!fastest) return um_fail(err, UM_EDEVICE, "cuBLASLt has no algorithm for a product of %d^3", WIDTH);
    j->algo = fastest;
    return measure(j, true, seconds, err);
}

static um_status measure_product(um_device *d, double *rate, um_err *err) {
    const um_dtype type = d->config.weights == UM_F8 ? UM_F8 : d->dtype;
    const size_t bytes = (size_t)WIDTH * WIDTH * um_dtype_size(d->dtype);
    double seconds = 0;
    job j = {};
    j.s = d->stream;
    j.start = start_product;
    um_status s = um_cu_alloc((void **)&j.a, 3 * bytes + WORKSPACE_BYTES, "matrices to measure products", err);
    j.b = j.a + bytes;
    j.c = j.b + bytes;
    j.workspace = j.c + bytes;
    if (!s) s = describe_product(&j, type, d->dtype, err);
    if (!s) {
        fill<<<1024, THREADS, 0, j.s>>>((unsigned *)j.a, 2 * bytes / sizeof(unsigned), type);
        s = um_cu_launched("filling matrices", err);
    }
    if (!s) s = measure_candidates(&j, &seconds, err);
    const double width = WIDTH;
    if (!s) *rate = 2 * width * width * width / seconds;
    cudaStreamSynchronize(j.s);
    if (j.layout) cublasLtMatrixLayoutDestroy(j.layout);
    if (j.out) cublasLtMatrixLayoutDestroy(j.out);
    if (j.product) cublasLtMatmulDescDestroy(j.product);
    if (j.lt) cublasLtDestroy(j.lt);
    if (j.a) cudaFree(j.a);
    return s;
}

um_status um_cu_device_limits(um_device *d, um_device_limits *out, um_err *err) {
    *out = {};
    um_status s = um_cu_use(d, err);
    if (!s) s = measure_read(d, &out->read_bytes, err);
    return s ? s : measure_product(d, &out->operations, err);
}
