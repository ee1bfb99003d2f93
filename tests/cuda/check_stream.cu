/* Products on Hopper GPUs. Those of few tokens: against the reference, the bits of rows for different numbers of
 * tokens, and times of the shapes of released models. Those of many tokens: the bits of the former. */
#include "check.cuh"
#include "cuda/product.cuh"

enum { TOKENS_MAX = UM_CU_STREAM_TOKENS };

typedef struct stream_args {
    check *c;
    um_cu_stream job;
    int n_processors;
    um_status status;
} stream_args;
static void stream_call(void *arg) {
    stream_args *a = (stream_args *)arg;
    a->status = a->job.T > TOKENS_MAX ? um_cu_many_product(&a->job, a->n_processors, check_stream(a->c))
                                      : um_cu_stream_product(&a->job, a->n_processors, check_stream(a->c));
}
static void stream(stream_args *a) {
    stream_call(a);
    check_true(a->c, a->status == UM_OK, "the product of %d tokens returned %d", a->job.T, a->status);
    check_cuda(a->c, cudaGetLastError(), "stream");
}

/* Returns whether the device has wgmma. Other devices never call these kernels. */
static bool has_stream() {
    int device = 0, major = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major == 9;
}

/* n: rows of y, columns, 1: added, 1: fp32 output, 1: gated, elements between the rows of y beyond those needed, -, 1:
 * blocks of the weights have factors */
static stream_args made(check *c, const check_case *k, const um_cu_matrix *w, const um_cu_rows *x) {
    stream_args a = {};
    int device = 0;
    a.c = c;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&a.n_processors, cudaDevAttrMultiProcessorCount, device);
    a.job.w = w->data, a.job.x = x->data, a.job.w_scale = w->scale, a.job.x_scale = x->scale;
    a.job.w_block = w->block;
    a.job.rows = k->n[0], a.job.in = k->n[1], a.job.T = x->n, a.job.stride = k->n[0] + k->n[5];
    a.job.x_stride = k->n[1];
    a.job.add = k->n[2], a.job.out_type = k->n[3] ? UM_F32 : UM_BF16, a.job.gated = k->n[4];
    return a;
}

static float rounded(float v) { return um_bf16_to_f32(um_f32_to_bf16(v)); }

/* Computes y in fp32 with the reference: [TOKENS_MAX, rows]. */
static float *wanted(check *c, const check_case *k, const um_tensor *tensor, const float *x, const float *before) {
    const int32_t rows = k->n[0], all = k->n[4] ? 2 * rows : rows, stride = rows + k->n[5];
    um_err err;
    um_weight *w = NULL;
    um_dev *dev = check_ref(c, k->type);
    float *sum = (float *)check_host(c, (size_t)TOKENS_MAX * all * sizeof(float));
    float *want = (float *)check_host(c, (size_t)TOKENS_MAX * stride * sizeof(float));
    check_status(c, um_ops_ref.weight(dev, &w, tensor, 1, tensor->type, &err), &err);
    um_ref_linear(dev, w, NULL, x, TOKENS_MAX, false, sum);
    um_ops_ref.weight_free(dev, w);
    memcpy(want, before, (size_t)TOKENS_MAX * stride * sizeof(float));
    for (int32_t t = 0; t < TOKENS_MAX; t++)
        for (int32_t i = 0; i < rows; i++) {
            const float *from = sum + (size_t)t * all;
            const float g = rounded(from[i]);
            float *at = &want[(size_t)t * stride + i];
            if (k->n[4]) *at = g / (1 + expf(-g)) * rounded(from[rows + i]);
            else *at = (k->n[2] ? *at : 0) + from[i];
        }
    return want;
}

static double tolerance(const check_case *k) {
    if (k->n[4]) return 5e-3; /* gate, up and y are rounded to bf16 */
    if (!k->n[3]) return 3e-3;
    return k->type == UM_F8 ? 1e-3 : 1e-4;
}

static um_cu_matrix draw_weights(check *c, const check_case *k, um_tensor *tensor) {
    *tensor = check_tensor(c, k->n[4] ? 2 * k->n[0] : k->n[0], k->n[1], k->type);
    return k->n[7] ? check_matrix_in_blocks(c, tensor, 1) : check_matrix(c, tensor, k->type);
}

static void run_small(check *c, const check_case *k) {
    static const int32_t tokens[] = {TOKENS_MAX, 1, 2, 8, 31, 32, 33, 63, 64, 65, 100};
    const int32_t rows = k->n[0], in = k->n[1], stride = rows + k->n[5];
    if (check_skips(c, has_stream(), "kernels of product_stream.cu and product_many.cu")) return;
    um_tensor tensor;
    const um_cu_matrix w = draw_weights(c, k, &tensor);
    float *x = check_floats(c, (size_t)TOKENS_MAX * in), *before = check_floats(c, (size_t)TOKENS_MAX * stride);
    const um_cu_rows operand = check_rows(c, x, TOKENS_MAX, in, k->type);
    stream_args a = made(c, k, &w, &operand);
    const double close = tolerance(k);
    const size_t size = um_dtype_size(a.job.out_type), n_all = (size_t)TOKENS_MAX * stride;
    const void *initial = check_operand(c, before, n_all, a.job.out_type);
    const float *want = wanted(c, k, &tensor, x, before), *first = NULL;
    a.job.y = check_device(c, n_all * size);
    for (size_t i = 0; i < UM_LEN(tokens); i++) {
        a.job.T = tokens[i];
        check_cuda(c, cudaMemcpy(a.job.y, initial, n_all * size, cudaMemcpyDeviceToDevice), "copy");
        stream(&a);
        const float *got = check_floats_of(c, a.job.y, n_all, a.job.out_type);
        const size_t n = (size_t)a.job.T * stride;
        check_close(c, "y", got, want, n, close);
        check_same(c, "what lies behind y", got + n, before + n, (n_all - n) * sizeof(float));
        if (first) check_same(c, "the rows for another number of tokens", got, first, n * sizeof(float));
        else first = got;
    }
}

/* n: as for run_small, with the number of tokens in n[6]. */
static void run_time(check *c, const check_case *k) {
    const int32_t rows = k->n[0], in = k->n[1], T = k->n[6], all = k->n[4] ? 2 * rows : rows;
    if (check_skips(c, has_stream(), "kernels of product_stream.cu and product_many.cu")) return;
    um_tensor tensor;
    const um_cu_matrix w = draw_weights(c, k, &tensor);
    float *x = check_floats(c, (size_t)T * in);
    const um_cu_rows operand = check_rows(c, x, T, in, k->type);
    stream_args a = made(c, k, &w, &operand);
    const size_t out = um_dtype_size(a.job.out_type);
    a.job.y = check_device(c, (size_t)T * rows * out);
    stream(&a);
    check_time(c,
               (double)um_dtype_size(k->type) * ((double)all * in + (double)T * in) +
                   (double)T * rows * out * (a.job.add ? 2 : 1),
               2.0 * all * in * T, stream_call, &a);
}

/* Computes the tokens [0, T) with the kernels for few tokens. */
static void in_groups(stream_args *a, int32_t T) {
    const um_cu_stream all = a->job;
    const size_t size = um_dtype_size(all.out_type);
    for (int32_t t = 0; t < T; t += TOKENS_MAX) {
        a->job.T = UM_MIN(TOKENS_MAX, T - t);
        a->job.x = (const um_bf16 *)all.x + (size_t)t * all.x_stride;
        a->job.y = (char *)all.y + (size_t)t * all.stride * size;
        stream(a);
    }
    a->job = all;
}

/* product_many.cu gives the bits of product_stream.cu, and writes nothing else. n: as for run_small, with the most
 * tokens in n[6]. */
static void run_many(check *c, const check_case *k) {
    static const int32_t tokens[] = {1, 64, 129, 200, 384, 513, 1056, 2048, 2300};
    const int32_t rows = k->n[0], in = k->n[1], most = k->n[6], stride = rows + k->n[5];
    if (check_skips(c, has_stream(), "kernels of product_stream.cu and product_many.cu")) return;
    const um_tensor tensor = check_tensor(c, k->n[4] ? 2 * rows : rows, in, k->type);
    const um_cu_matrix w = check_matrix(c, &tensor, k->type);
    float *x = check_floats(c, (size_t)most * in), *before = check_floats(c, (size_t)most * stride);
    const um_cu_rows operand = check_rows(c, x, most, in, k->type);
    stream_args a = made(c, k, &w, &operand);
    const size_t bytes = (size_t)most * stride * um_dtype_size(a.job.out_type);
    const void *initial = check_operand(c, before, (size_t)most * stride, a.job.out_type);
    void *y[2] = {check_device(c, bytes), check_device(c, bytes)};
    for (size_t i = 0; i < UM_LEN(tokens) && tokens[i] <= most; i++) {
        check_cuda(c, cudaMemcpy(y[0], initial, bytes, cudaMemcpyDeviceToDevice), "copy");
        check_cuda(c, cudaMemcpy(y[1], initial, bytes, cudaMemcpyDeviceToDevice), "copy");
        a.job.y = y[0];
        in_groups(&a, tokens[i]);
        a.job.y = y[1], a.job.T = tokens[i];
        check_true(c, um_cu_many_suits(&a.job), "the kernel doesn't suit");
        const um_status s = um_cu_many_product(&a.job, a.n_processors, check_stream(c));
        check_true(c, s == UM_OK, "um_cu_many_product returned %d for %d tokens", s, tokens[i]);
        const void *want = check_download(c, y[0], bytes);
        check_same(c, "y of many tokens", check_download(c, y[1], bytes), want, bytes);
    }
}

/* The gate of product_many.cu gives the bits of that of product_stream.cu for all numbers of bf16. */
static void run_gates(check *c, const check_case *) {
    enum { N = 65536, IN = 8, T = TOKENS_MAX + 1, ONE = 0x3f80 };
    if (check_skips(c, has_stream(), "kernels of product_stream.cu and product_many.cu")) return;
    uint16_t *w = (uint16_t *)check_host(c, (size_t)2 * N * IN * sizeof *w), x[T * IN] = {};
    memset(w, 0, (size_t)2 * N * IN * sizeof *w);
    for (int i = 0; i < N; i++) w[i * IN] = (uint16_t)i, w[(N + i) * IN] = ONE;
    for (int t = 0; t < T; t++) x[t * IN] = ONE;
    const um_cu_matrix matrix = {2 * N, IN, UM_BF16, check_upload(c, w, (size_t)2 * N * IN * sizeof *w), NULL};
    const um_cu_rows rows = {check_upload(c, x, sizeof x), NULL, T};
    const check_case sizes = {"", NULL, {N, IN, 0, 0, 1}, UM_BF16};
    stream_args a = made(c, &sizes, &matrix, &rows);
    const size_t bytes = (size_t)T * N * sizeof(uint16_t);
    void *y[2] = {check_device(c, bytes), check_device(c, bytes)};
    a.job.y = y[0];
    in_groups(&a, T);
    a.job.y = y[1];
    check_true(c, um_cu_many_product(&a.job, a.n_processors, check_stream(c)) == UM_OK, "the product failed");
    const void *want = check_download(c, y[0], bytes);
    check_same(c, "the gates", check_download(c, y[1], bytes), want, bytes);
}

#define SMALL_OF(type, word, rows, in, add, wide, gated)                                                               \
    {                                                                                                                  \
        word " " #rows "x" #in ", add " #add ", fp32 " #wide ", gated " #gated, run_small,                             \
            {rows, in, add, wide, gated, 0}, type                                                                      \
    }
#define IN_BLOCKS(rows, in, add, wide, gated)                                                                          \
    {                                                                                                                  \
        "fp8 stream " #rows "x" #in " in blocks, add " #add ", fp32 " #wide ", gated " #gated, run_small,              \
            {rows, in, add, wide, gated, 0, 0, 1}, UM_F8                                                               \
    }
#define MANY(rows, in, gated, room, most)                                                                              \
    { "many " #rows "x" #in ", gated " #gated, run_many, {rows, in, 0, 0, gated, room, most}, UM_BF16 }
#define SMALL(rows, in, add, wide, gated) SMALL_OF(UM_BF16, "stream", rows, in, add, wide, gated)
#define FP8(rows, in, add, wide, gated)   SMALL_OF(UM_F8, "fp8 stream", rows, in, add, wide, gated)
#define TIMES_OF(type, name, rows, in, add, wide, gated)                                                               \
    {name ", 32 tokens", run_time, {rows, in, add, wide, gated, 0, 32}, type},                                         \
        {name ", 64 tokens", run_time, {rows, in, add, wide, gated, 0, 64}, type}, {                                   \
        name ", 128 tokens", run_time, {rows, in, add, wide, gated, 0, 128}, type                                      \
    }
#define MANY_TIMES(name, rows, in, gated)                                                                              \
    {"many " name ", 512 tokens", run_time, {rows, in, 0, 0, gated, 0, 512}, UM_BF16}, {                               \
        "many " name ", 2048 tokens", run_time, {rows, in, 0, 0, gated, 0, 2048}, UM_BF16                              \
    }
#define TIMES(name, rows, in, add, wide, gated)                                                                        \
    TIMES_OF(UM_BF16, "stream " name, rows, in, add, wide, gated),                                                     \
        TIMES_OF(UM_F8, "fp8 stream " name, rows, in, add, wide, gated)

static const check_case cases[] = {
    SMALL(16, 64, 0, 0, 0),
    SMALL(64, 64, 0, 1, 0),
    SMALL(96, 40, 1, 1, 0),
    SMALL(96, 40, 1, 0, 0),
    SMALL(200, 136, 0, 1, 0),
    SMALL(2048, 512, 1, 1, 0),
    SMALL(4096, 768, 1, 1, 0),
    SMALL(6144, 512, 0, 0, 0),
    SMALL(8200, 200, 0, 1, 0),
    SMALL(12288, 256, 0, 0, 0),
    SMALL(16384, 256, 0, 0, 0),
    SMALL(18432, 256, 0, 0, 0),
    SMALL(40000, 128, 0, 1, 0),
    {"stream 1024x256 with room between rows", run_small, {1024, 256, 0, 1, 0, 8}, UM_BF16},
    SMALL(16, 64, 0, 0, 1),
    SMALL(344, 200, 0, 0, 1),
    SMALL(3072, 256, 0, 0, 1),
    SMALL(6144, 256, 0, 0, 1),
    SMALL(8192, 256, 0, 0, 1),
    SMALL(12288, 256, 0, 0, 1),
    SMALL(18944, 128, 0, 0, 1),
    MANY(8, 64, 0, 0, 2300),
    MANY(200, 520, 0, 8, 2300),
    MANY(8200, 136, 0, 0, 1056),
    MANY(12288, 1024, 0, 0, 1056),
    MANY(8, 8, 1, 0, 2300),
    MANY(1000, 576, 1, 0, 2300),
    MANY(6144, 1024, 1, 8, 2300),
    {"many, all gates", run_gates, {}, UM_BF16},
    FP8(16, 128, 0, 0, 0),
    FP8(64, 64, 0, 1, 0),
    FP8(96, 48, 1, 1, 0),
    FP8(208, 144, 1, 0, 0),
    FP8(2048, 512, 1, 1, 0),
    FP8(4096, 768, 1, 1, 0),
    FP8(8208, 208, 0, 1, 0),
    FP8(12288, 256, 0, 0, 0),
    FP8(18432, 256, 0, 0, 0),
    FP8(40000, 128, 0, 1, 0),
    FP8(16, 64, 0, 0, 1),
    FP8(352, 208, 0, 0, 1),
    FP8(3072, 256, 0, 0, 1),
    FP8(8192, 256, 0, 0, 1),
    FP8(12288, 256, 0, 0, 1),
    FP8(18944, 128, 0, 0, 1),
    IN_BLOCKS(16, 128, 0, 0, 0),
    IN_BLOCKS(208, 144, 1, 0, 0),
    IN_BLOCKS(4096, 768, 1, 1, 0),
    IN_BLOCKS(8208, 400, 0, 1, 0),
    IN_BLOCKS(18432, 256, 0, 0, 0),
    IN_BLOCKS(40000, 256, 0, 1, 0),
    IN_BLOCKS(352, 208, 0, 0, 1),
    IN_BLOCKS(8192, 512, 0, 0, 1),
    IN_BLOCKS(12288, 256, 0, 0, 1),
    {"fp8 stream gate_up 12288x4096 in blocks, gated, 32 tokens", run_time, {12288, 4096, 0, 0, 1, 0, 32, 1}, UM_F8},
    {"fp8 stream down 4096x12288 in blocks, added, 32 tokens", run_time, {4096, 12288, 1, 1, 0, 0, 32, 1}, UM_F8},
    {"fp8 stream down 4096x12288 in blocks, added, 128 tokens", run_time, {4096, 12288, 1, 1, 0, 0, 128, 1}, UM_F8},
    MANY_TIMES("qkv 12288x4096", 12288, 4096, 0),
    MANY_TIMES("qkv 6144x4096", 6144, 4096, 0),
    MANY_TIMES("gate_up 12288x4096, gated", 12288, 4096, 1),
    TIMES("qkv 12288x4096", 12288, 4096, 0, 0, 0),
    TIMES("qkv 6144x4096", 6144, 4096, 0, 0, 0),
    TIMES("o 4096x4096, added", 4096, 4096, 1, 1, 0),
    TIMES("gate_up 12288x4096, gated", 12288, 4096, 0, 0, 1),
    TIMES("down 4096x12288, added", 4096, 12288, 1, 1, 0),
    TIMES("o 2048x2048, added", 2048, 2048, 1, 1, 0),
    TIMES("head 126464x4096 to fp32", 126464, 4096, 0, 1, 0),
};
extern const check_list stream_checks = {"check_stream", cases, (int)UM_LEN(cases)};
