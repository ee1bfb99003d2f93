/* Products: small ones against the reference, large ones in samples, the bits of rows for different numbers of tokens,
 * graphs, and the time of the preparation. */
#include "check.cuh"

enum { TOKENS_MAX = 2048, SAMPLES = 400, THREADS = 256 };
static const size_t WORKSPACE_BYTES = (size_t)32 << 20;

/* ---- The object under test --------------------------------------------------------------------------------------- */

/* Returns the products of all cases. They stay until the program ends, so that a shape is planned once. */
static um_cu_products *products(check *c, bool deterministic) {
    static um_cu_products *kept[2];
    um_cu_products **p = &kept[deterministic];
    um_err err;
    void *workspace;
    if (*p) return *p;
    check_cuda(c, cudaMalloc(&workspace, WORKSPACE_BYTES), "workspace");
    check_status(c, um_cu_products_new(p, workspace, WORKSPACE_BYTES, deterministic, &err), &err);
    return *p;
}

typedef struct linear_args {
    um_cu_products *p;
    um_cu_matrix w;
    um_cu_rows x;
    bool add;
    um_dtype out_type;
    void *y;
    int32_t stride;
    cudaStream_t stream;
    um_status status;
} linear_args;
static void linear_call(void *arg) {
    linear_args *a = (linear_args *)arg;
    a->status = um_cu_linear(a->p, &a->w, a->x, a->add, a->out_type, a->y, a->stride, a->stream);
}
static void linear(check *c, linear_args *a) {
    linear_call(a);
    check_true(c, a->status == UM_OK, "um_cu_linear returned %d for %d tokens", a->status, a->x.n);
    check_cuda(c, cudaGetLastError(), "linear");
}

static double tolerance(um_dtype type, um_dtype out_type) {
    if (out_type == UM_BF16) return 3e-3;
    if (type == UM_F8) return 1e-3;
    return type == UM_BF16 ? 1e-4 : 3e-6; /* tensor cores do not round their sums to nearest */
}

/* ---- Against the reference --------------------------------------------------------------------------------------- */

/* Draws weights, whose blocks have factors if n[6] of the case is 1. */
static um_cu_matrix draw_weights(check *c, const check_case *k, um_tensor *tensor) {
    *tensor = check_tensor(c, k->n[0], k->n[1], k->type);
    return k->n[6] ? check_matrix_in_blocks(c, tensor, 1) : check_matrix(c, tensor, k->type);
}

/* n: weight rows, columns, 1: added, 1: fp32 output, elements between the rows of y beyond those needed, -, 1: blocks
 * of the weights have factors */
static void run_small(check *c, const check_case *k) {
    static const int32_t tokens[] = {1, 2, 7, 31, 32, 33, 64, 100, 256};
    const int32_t rows = k->n[0], in = k->n[1], most = 256, stride = rows + k->n[4];
    um_tensor tensor;
    float *x = check_floats(c, (size_t)most * in), *before = check_floats(c, (size_t)most * stride);
    um_err err;
    linear_args a = {};
    a.p = products(c, true);
    a.w = draw_weights(c, k, &tensor);
    a.x = check_rows(c, x, most, in, k->type);
    a.add = k->n[2];
    a.out_type = k->n[3] ? UM_F32 : UM_BF16;
    a.stride = stride;
    a.stream = check_stream(c);
    const size_t size = um_dtype_size(a.out_type);
    check_status(c, um_cu_products_prepare(a.p, &a.w, TOKENS_MAX, a.out_type, a.add, false, &err), &err);
    const void *initial = check_operand(c, before, (size_t)most * stride, a.out_type);
    a.y = check_device(c, ((size_t)most + 1) * stride * size);

    um_dev *dev = check_ref(c, k->type);
    um_weight *w = NULL;
    check_status(c, um_ops_ref.weight(dev, &w, &tensor, 1, tensor.type, &err), &err);
    float *sum = (float *)check_host(c, (size_t)most * rows * sizeof(float));
    float *want = (float *)check_host(c, (size_t)most * stride * sizeof(float));
    um_ref_linear(dev, w, NULL, x, most, false, sum);
    um_ops_ref.weight_free(dev, w);
    memcpy(want, before, (size_t)most * stride * sizeof(float));
    for (int32_t t = 0; t < most; t++)
        for (int32_t o = 0; o < rows; o++) {
            float *at = &want[(size_t)t * stride + o];
            *at = (a.add ? *at : 0) + sum[(size_t)t * rows + o];
        }

    const void *first = NULL;
    for (size_t i = 0; i < UM_LEN(tokens); i++) {
        a.x.n = tokens[i];
        check_cuda(c, cudaMemcpy(a.y, initial, (size_t)most * stride * size, cudaMemcpyDeviceToDevice), "copy");
        linear(c, &a);
        const float *got = check_floats_of(c, a.y, (size_t)most * stride, a.out_type);
        const size_t n = (size_t)a.x.n * stride;
        check_close(c, "y", got, want, n, tolerance(k->type, a.out_type));
        check_same(c, "what lies behind y", got + n, before + n, ((size_t)most * stride - n) * sizeof(float));
        for (int32_t t = 0; t < a.x.n && stride > rows; t++)
            check_same(c, "what lies behind a row", got + (size_t)t * stride + rows, before + (size_t)t * stride + rows,
                       (size_t)(stride - rows) * sizeof(float));
        if (first) check_same(c, "the first row", got, first, (size_t)rows * sizeof(float));
        else first = got;
    }
}

/* ---- Large products ---------------------------------------------------------------------------------------------- */

/* Returns the bits of a random float of magnitude 2^-6 up to 1, the same on both machines. Its upper half is a bf16;
 * its sign, exponent and three bits of its mantissa are a number of e4m3. */
static __host__ __device__ uint32_t noise(uint32_t seed, uint64_t i) {
    uint64_t v = (i + 1) * 0x9e3779b97f4a7c15ull ^ (uint64_t)seed << 40;
    v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ull;
    v = (v ^ v >> 27) * 0x94d049bb133111ebull;
    v ^= v >> 31;
    return (uint32_t)(v >> 63) << 31 | (uint32_t)(126 - (v >> 32) % 6) << 23 | ((uint32_t)v & 0x7fffff);
}

static __global__ void fill(void *out, size_t n, um_dtype type, uint32_t seed) {
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < n; i += (size_t)gridDim.x * THREADS) {
        const uint32_t bits = noise(seed, i);
        if (type == UM_F32) ((uint32_t *)out)[i] = bits;
        else if (type == UM_BF16) ((uint16_t *)out)[i] = (uint16_t)(bits >> 16);
        else ((uint8_t *)out)[i] = (uint8_t)(bits >> 31 << 7 | (((bits >> 23 & 255) - 120) << 3) | (bits >> 20 & 7));
    }
}

/* The scales of the rows of `filled` weights and of `filled` activations, for UM_F8. */
static float weight_scale(int32_t row) { return 1 + (float)(row % 7) / 8; }
static float no_scale(int32_t) { return 1; }
static float token_scale(int32_t t) { return 1 / (float)(1 << t % 4); }
/* The factor of the block of row and column. */
static float block_factor(int32_t row, int32_t column) {
    return 1 + (float)((row / UM_CU_BLOCK * 5 + column / UM_CU_BLOCK * 3) % 11) / 16;
}
static float *block_factors(check *c, int32_t rows, int32_t in) {
    float *list = (float *)check_host(c, um_cu_block_bytes(rows, in)), *to = list;
    for (int32_t row = 0; row < rows; row += UM_CU_BLOCK, to += um_cu_block_stride(in))
        for (int32_t k = 0; k < in; k += UM_CU_BLOCK) to[k / UM_CU_BLOCK] = block_factor(row, k);
    return (float *)check_upload(c, list, um_cu_block_bytes(rows, in));
}
static float *scales(check *c, int32_t n, float (*scale)(int32_t i)) {
    float *list = (float *)check_host(c, (size_t)n * sizeof *list);
    for (int32_t i = 0; i < n; i++) list[i] = scale(i);
    return (float *)check_upload(c, list, (size_t)n * sizeof *list);
}

static double value(uint32_t seed, uint64_t i, um_dtype type) {
    uint32_t bits = noise(seed, i);
    float v;
    if (type == UM_BF16) bits &= 0xffff0000u;
    if (type == UM_F8) bits &= 0xfff00000u;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static void *filled(check *c, size_t n, um_dtype type, uint32_t seed) {
    void *p = check_device(c, n * um_dtype_size(type));
    fill<<<1024, THREADS, 0, check_stream(c)>>>(p, n, type, seed);
    return p;
}

enum { SEED_W = 1, SEED_X, SEED_Y };

/* Prepares a product of random matrices; n: weight rows, columns, tokens, 1: added, 1: fp32 output, 1: any order, 1:
 * blocks of the weights have factors. */
static linear_args large(check *c, const check_case *k) {
    const int32_t rows = k->n[0], in = k->n[1];
    um_err err;
    linear_args a = {};
    a.p = products(c, !k->n[5]);
    a.w.rows = rows;
    a.w.in = in;
    a.w.type = k->type;
    a.w.data = filled(c, (size_t)rows * in, k->type, SEED_W);
    a.x = {filled(c, (size_t)k->n[2] * in, k->type, SEED_X), NULL, k->n[2]};
    if (k->type == UM_F8) {
        a.w.scale = scales(c, rows, k->n[6] ? no_scale : weight_scale);
        a.x.scale = scales(c, a.x.n, token_scale);
    }
    if (k->n[6]) a.w.block = block_factors(c, rows, in);
    a.add = k->n[3];
    a.out_type = k->n[4] ? UM_F32 : UM_BF16;
    a.stride = rows;
    a.stream = check_stream(c);
    check_status(c, um_cu_products_prepare(a.p, &a.w, TOKENS_MAX, a.out_type, a.add, false, &err), &err);
    return a;
}

static void run_large(check *c, const check_case *k) {
    linear_args a = large(c, k);
    const int32_t rows = a.w.rows, in = a.w.in;
    const size_t n = (size_t)a.x.n * rows, size = um_dtype_size(k->type), out = um_dtype_size(a.out_type);
    float got[SAMPLES], want[SAMPLES];
    a.y = filled(c, n, a.out_type, SEED_Y);
    linear(c, &a);
    const char *y = (const char *)check_download(c, a.y, n * out);
    for (int i = 0; i < SAMPLES; i++) {
        const int32_t t = i < 4 ? a.x.n - 1 : check_below(c, a.x.n), o = i < 2 ? rows - 1 : check_below(c, rows);
        const size_t at = (size_t)t * rows + o;
        const double by = k->type == UM_F8 ? token_scale(t) * (k->n[6] ? 1 : weight_scale(o)) : 1;
        double sum = a.add ? value(SEED_Y, at, a.out_type) : 0;
        for (int32_t j = 0; j < in; j++)
            sum += by * (k->n[6] ? block_factor(o, j) : 1) * value(SEED_X, (uint64_t)t * in + j, k->type) *
                   value(SEED_W, (uint64_t)o * in + j, k->type);
        want[i] = (float)sum;
        got[i] = out == 4 ? ((const float *)y)[at] : um_bf16_to_f32(((const uint16_t *)y)[at]);
    }
    check_close(c, "sampled elements", got, want, SAMPLES, tolerance(k->type, a.out_type));
    check_time(c, (double)size * ((double)rows * in + (double)a.x.n * in) + (double)n * out * (a.add ? 2 : 1),
               2.0 * rows * in * a.x.n, linear_call, &a);
}

/* All rows of products of the first T tokens, and of tokens from the middle, have the bits of the whole product. n: as
 * for `large`. */
static void run_invariant(check *c, const check_case *k) {
    static const int32_t tokens[] = {1, 2, 7, 9, 31, 32, 33, 64, 65, 100, 128, 129, 200, 256, 300, 512, 1024, 1500};
    linear_args a = large(c, k);
    const int32_t most = a.x.n, from = 76, rows = a.w.rows; /* scales are aligned to 16 bytes */
    const size_t out = um_dtype_size(a.out_type);
    const um_cu_rows all = a.x;
    char *y = (char *)filled(c, (size_t)most * rows, a.out_type, SEED_Y);
    a.y = y;
    linear(c, &a);
    const char *whole = (const char *)check_download(c, a.y, (size_t)most * rows * out);
    for (size_t i = 0; i < 2 * UM_LEN(tokens); i++) {
        const size_t skipped = i % 2 ? from : 0;
        char what[64];
        a.x.n = tokens[i / 2];
        if ((int32_t)skipped + a.x.n > most) continue;
        a.x.data = (const char *)all.data + skipped * a.w.in * um_dtype_size(k->type);
        if (all.scale) a.x.scale = all.scale + skipped;
        fill<<<1024, THREADS, 0, a.stream>>>(y, (size_t)most * rows, a.out_type, SEED_Y);
        a.y = y + skipped * rows * out;
        linear(c, &a);
        const size_t bytes = (size_t)a.x.n * rows * out;
        snprintf(what, sizeof what, "%d tokens from token %d on", a.x.n, (int)skipped);
        check_same(c, what, check_download(c, a.y, bytes), whole + skipped * rows * out, bytes);
    }
}

/* ---- Views, graphs, preparation ---------------------------------------------------------------------------------- */

/* Rows of a larger matrix, as the head uses them: groups of n[2] rows, the last one smaller. n: rows, columns, group,
 * tokens, -, -, 1: blocks of the weights have factors. */
static void run_views(check *c, const check_case *k) {
    const int32_t rows = k->n[0], in = k->n[1], group = k->n[2], T = k->n[3];
    um_tensor tensor;
    const um_cu_matrix whole = draw_weights(c, k, &tensor);
    float *x = check_floats(c, (size_t)T * in), *want = (float *)check_host(c, (size_t)T * rows * sizeof(float));
    um_err err;
    linear_args a = {};
    a.p = products(c, true);
    a.x = check_rows(c, x, T, in, k->type);
    a.out_type = UM_F32;
    a.stride = group;
    a.stream = check_stream(c);
    a.y = check_device(c, (size_t)T * group * sizeof(float));
    um_dev *dev = check_ref(c, k->type);
    um_weight *w = NULL;
    check_status(c, um_ops_ref.weight(dev, &w, &tensor, 1, tensor.type, &err), &err);
    um_ref_linear(dev, w, NULL, x, T, false, want);
    um_ops_ref.weight_free(dev, w);
    for (int32_t first = 0; first < rows; first += group) {
        a.w = whole;
        a.w.rows = UM_MIN(group, rows - first);
        a.w.data = (char *)whole.data + (size_t)first * in * um_dtype_size(k->type);
        if (whole.scale) a.w.scale = whole.scale + first;
        if (whole.block) a.w.block = whole.block + first / UM_CU_BLOCK * um_cu_block_stride(in);
        check_status(c, um_cu_products_prepare(a.p, &a.w, T, a.out_type, false, false, &err), &err);
        linear(c, &a);
        const float *got = check_floats_of(c, a.y, (size_t)T * group, UM_F32);
        for (int32_t t = 0; t < T; t++)
            check_close(c, "y", got + (size_t)t * group, want + (size_t)t * rows + first, (size_t)a.w.rows,
                        10 * tolerance(k->type, UM_F32));
    }
}

/* A recorded product gives the bits of a direct one, also for other inputs at the same place. Neither allocates. n: as
 * for `large`. */
static void run_graph(check *c, const check_case *k) {
    linear_args a = large(c, k);
    const size_t n_x = (size_t)a.x.n * a.w.in, n_y = (size_t)a.x.n * a.w.rows, bytes = n_y * um_dtype_size(a.out_type);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t recorded = NULL;
    a.y = filled(c, n_y, a.out_type, SEED_Y);
    check_cuda(c, cudaSuccess, "inputs");
    const int64_t allocations = um_alloc_count();
    cudaError_t e = cudaStreamBeginCapture(a.stream, cudaStreamCaptureModeThreadLocal);
    linear_call(&a);
    const cudaError_t ended = cudaStreamEndCapture(a.stream, &graph);
    if (e == cudaSuccess) e = ended;
    if (e == cudaSuccess) e = cudaGraphInstantiate(&recorded, graph, 0);
    check_true(c, a.status == UM_OK, "um_cu_linear returned %d", a.status);
    check_true(c, um_alloc_count() == allocations, "um_cu_linear allocated");
    fill<<<1024, THREADS, 0, a.stream>>>((void *)a.x.data, n_x, k->type, 77);
    if (e == cudaSuccess) e = cudaGraphLaunch(recorded, a.stream);
    check_cuda(c, e, "recording");
    const void *got = check_download(c, a.y, bytes);
    a.y = filled(c, n_y, a.out_type, SEED_Y);
    linear(c, &a);
    check_same(c, "the recorded product", got, check_download(c, a.y, bytes), bytes);
    if (recorded) cudaGraphExecDestroy(recorded);
    if (graph) cudaGraphDestroy(graph);
}

/* The shapes of an 8B model are planned in a few seconds, a known shape at once; a product of another shape is
 * refused. */
static void run_prepare(check *c, const check_case *k) {
    static const struct {
        int32_t rows, in;
        um_dtype out_type;
        bool add, gated;
    } shape[] = {{12288, 4096, UM_BF16},         {4096, 4096, UM_F32, true}, {24576, 4096, UM_BF16, false, true},
                 {24, 64, UM_BF16, false, true}, /* no kernel computes 12 rows with their gates */
                 {4096, 12288, UM_F32, true},    {8192, 4096, UM_F32}};
    um_err err;
    um_cu_products *p = NULL;
    um_cu_matrix w = {};
    void *workspace = check_device(c, WORKSPACE_BYTES);
    w.type = k->type;
    w.data = workspace;
    check_status(c, um_cu_products_new(&p, workspace, WORKSPACE_BYTES, true, &err), &err);
    check_true(c, um_cu_linear(p, &w, {workspace, NULL, 0}, false, UM_F32, workspace, 8, check_stream(c)) == UM_OK,
               "a product of no tokens failed");
    um_cu_products_info info = {};
    for (int round = 0; round < 2; round++) {
        const double before = info.seconds;
        for (size_t i = 0; i < UM_LEN(shape); i++) {
            w.rows = shape[i].rows;
            w.in = shape[i].in;
            check_status(
                c, um_cu_products_prepare(p, &w, TOKENS_MAX, shape[i].out_type, shape[i].add, shape[i].gated, &err),
                &err);
        }
        info = um_cu_products_get_info(p);
        check_true(c, round == 0 || info.seconds == before, "known shapes were planned again");
    }
    check_true(c, info.n_shapes == (int)UM_LEN(shape) && info.n_simt == 0 && info.n_grouped == 0,
               "%d shapes, %d without cuBLASLt; %d plans in groups; %d of %d algorithms agree", info.n_shapes,
               info.n_simt, info.n_grouped, info.n_agreed, info.n_tried);
    w.rows = 8;
    check_true(c, um_cu_linear(p, &w, {workspace, NULL, 1}, false, UM_F32, workspace, 8, check_stream(c)) == UM_EINVAL,
               "a shape that was not prepared was computed");
    um_cu_products_free(p);
}

/* ---- Cases ------------------------------------------------------------------------------------------------------- */

#define LARGE(name, rows, in, add, wide, T)                                                                            \
    {name ", " #T " tokens", run_large, {rows, in, T, add, wide}, UM_BF16}, {                                          \
        "fp8 " name ", " #T " tokens", run_large, {rows, in, T, add, wide}, UM_F8                                      \
    }
#define LARGE_ALL(name, rows, in, add, wide)                                                                           \
    LARGE(name, rows, in, add, wide, 32), LARGE(name, rows, in, add, wide, 64), LARGE(name, rows, in, add, wide, 128), \
        LARGE(name, rows, in, add, wide, 512), LARGE(name, rows, in, add, wide, 2048)
#define BLOCKS(name, rows, in, add, wide, T)                                                                           \
    { "fp8 " name " in blocks, " #T " tokens", run_large, {rows, in, T, add, wide, 0, 1}, UM_F8 }
#define BLOCKS_ALL(name, rows, in, add, wide)                                                                          \
    BLOCKS(name, rows, in, add, wide, 32), BLOCKS(name, rows, in, add, wide, 128),                                     \
        BLOCKS(name, rows, in, add, wide, 512), BLOCKS(name, rows, in, add, wide, 2048)
#define FREE(name, rows, in, add, wide, T)                                                                             \
    {name " in any order, " #T " tokens", run_large, {rows, in, T, add, wide, 1}, UM_BF16}, {                          \
        "fp8 " name " in any order, " #T " tokens", run_large, {rows, in, T, add, wide, 1}, UM_F8                      \
    }
#define FREE_ALL(name, rows, in, add, wide)                                                                            \
    FREE(name, rows, in, add, wide, 32), FREE(name, rows, in, add, wide, 128), FREE(name, rows, in, add, wide, 2048)
#define EXACT(rows, in, T)                                                                                             \
    { "product " #rows "x" #in " fp32, " #T " tokens", run_large, {rows, in, T, 0, 1}, UM_F32 }

static const check_case cases[] = {
    {"product prepare, shapes of 8B", run_prepare, {}, UM_BF16},
    {"product 64x64 bf16", run_small, {64, 64, 0, 0}, UM_BF16},
    {"product 64x64 bf16 to fp32, added", run_small, {64, 64, 1, 1}, UM_BF16},
    {"product 96x40 bf16", run_small, {96, 40, 0, 0, 8}, UM_BF16},
    {"product 96x40 bf16 to fp32, added", run_small, {96, 40, 1, 1, 24}, UM_BF16},
    {"product 40x96 bf16 to fp32", run_small, {40, 96, 0, 1, 4}, UM_BF16},
    {"product 344x64 bf16", run_small, {344, 64, 0, 0}, UM_BF16},
    {"product 64x172 bf16 to fp32, added", run_small, {64, 172, 1, 1}, UM_BF16},
    {"product 7x13 bf16", run_small, {7, 13, 0, 0, 3}, UM_BF16},
    {"product 99x512 bf16 to fp32", run_small, {99, 512, 0, 1}, UM_BF16},
    {"product 1x1 fp32", run_small, {1, 1, 0, 1}, UM_F32},
    {"product 64x64 fp32", run_small, {64, 64, 0, 1}, UM_F32},
    {"product 96x40 fp32, added", run_small, {96, 40, 1, 1, 5}, UM_F32},
    {"product 130x71 fp32", run_small, {130, 71, 0, 1}, UM_F32},
    {"product 8x1000 fp32 to bf16, added", run_small, {8, 1000, 1, 0}, UM_F32},
    {"product 256x2048 fp32", run_small, {256, 2048, 0, 1}, UM_F32},
    {"product views 2344x256 bf16", run_views, {2344, 256, 1024, 33}, UM_BF16},
    {"product views 2344x256 fp32", run_views, {2344, 256, 1024, 33}, UM_F32},
    {"product graph 4096x4096 bf16, added, 40 tokens", run_graph, {4096, 4096, 40, 1, 1}, UM_BF16},
    {"product graph 12288x4096 bf16, 32 tokens", run_graph, {12288, 4096, 32, 0, 0}, UM_BF16},
    {"product graph 256x2048 fp32, 32 tokens", run_graph, {256, 2048, 32, 0, 1}, UM_F32},
    {"product invariance qkv 12288x4096", run_invariant, {12288, 4096, 2048, 0, 0}, UM_BF16},
    {"product invariance o 4096x4096, added", run_invariant, {4096, 4096, 2048, 1, 1}, UM_BF16},
    {"product invariance gate_up 24576x4096", run_invariant, {24576, 4096, 2048, 0, 0}, UM_BF16},
    {"product invariance down 4096x12288, added", run_invariant, {4096, 12288, 2048, 1, 1}, UM_BF16},
    {"product invariance head 8192x4096 to fp32", run_invariant, {8192, 4096, 2048, 0, 1}, UM_BF16},
    {"product invariance 2560x2048 bf16", run_invariant, {2560, 2048, 2048, 0, 0}, UM_BF16},
    {"product invariance 200x136 bf16 to fp32", run_invariant, {200, 136, 2048, 0, 1}, UM_BF16},
    {"product invariance 8x8 bf16 to fp32", run_invariant, {8, 8, 2048, 0, 1}, UM_BF16},
    {"product invariance 512x100 bf16 to fp32", run_invariant, {512, 100, 2048, 0, 1}, UM_BF16},
    {"product invariance 256x2048 fp32", run_invariant, {256, 2048, 4096, 0, 1}, UM_F32},
    {"product invariance 2000x1111 fp32, added", run_invariant, {2000, 1111, 2048, 1, 1}, UM_F32},
    {"product invariance 4096x4096 fp32", run_invariant, {4096, 4096, 2048, 0, 1}, UM_F32},
    {"product 4100 tokens, 512x256 bf16", run_large, {512, 256, 4100, 0, 1}, UM_BF16},
    {"fp8 product 64x64", run_small, {64, 64, 0, 0}, UM_F8},
    {"fp8 product 64x64 to fp32, added", run_small, {64, 64, 1, 1}, UM_F8},
    {"fp8 product 96x48, room", run_small, {96, 48, 0, 0, 8}, UM_F8},
    {"fp8 product 352x144 to fp32, added", run_small, {352, 144, 1, 1}, UM_F8},
    {"fp8 product views 2352x256", run_views, {2352, 256, 1024, 33}, UM_F8},
    {"fp8 product graph 4096x4096, added, 40 tokens", run_graph, {4096, 4096, 40, 1, 1}, UM_F8},
    {"fp8 product invariance qkv 12288x4096", run_invariant, {12288, 4096, 2048, 0, 0}, UM_F8},
    {"fp8 product invariance down 4096x12288, added", run_invariant, {4096, 12288, 2048, 1, 1}, UM_F8},
    {"fp8 product invariance head 8192x4096 to fp32", run_invariant, {8192, 4096, 2048, 0, 1}, UM_F8},
    {"fp8 product invariance 208x144 to fp32", run_invariant, {208, 144, 2048, 0, 1}, UM_F8},
    {"fp8 product 4100 tokens, 512x256", run_large, {512, 256, 4100, 0, 1}, UM_F8},
    {"fp8 product 64x64 in blocks", run_small, {64, 64, 0, 0, 0, 0, 1}, UM_F8},
    {"fp8 product 352x144 in blocks to fp32, added", run_small, {352, 144, 1, 1, 0, 0, 1}, UM_F8},
    {"fp8 product 272x1040 in blocks, room", run_small, {272, 1040, 0, 0, 8, 0, 1}, UM_F8},
    {"fp8 product views 2352x256 in blocks", run_views, {2352, 256, 1024, 33, 0, 0, 1}, UM_F8},
    {"fp8 product graph 4096x4096 in blocks, added, 141 tokens", run_graph, {4096, 4096, 141, 1, 1, 0, 1}, UM_F8},
    {"fp8 product invariance qkv 12288x4096 in blocks", run_invariant, {12288, 4096, 2048, 0, 0, 0, 1}, UM_F8},
    {"fp8 product invariance down 4096x12288 in blocks, added", run_invariant, {4096, 12288, 2048, 1, 1, 0, 1}, UM_F8},
    {"fp8 product invariance 208x144 in blocks to fp32", run_invariant, {208, 144, 2048, 0, 1, 0, 1}, UM_F8},
    {"fp8 product 4100 tokens, 512x256 in blocks", run_large, {512, 256, 4100, 0, 1, 0, 1}, UM_F8},
    EXACT(256, 2048, 1),
    EXACT(256, 2048, 32),
    EXACT(256, 2048, 512),
    EXACT(256, 2048, 4096),
    EXACT(12288, 4096, 1),
    EXACT(12288, 4096, 32),
    EXACT(12288, 4096, 64),
    EXACT(12288, 4096, 512),
    LARGE_ALL("product qkv 12288x4096", 12288, 4096, 0, 0),
    LARGE_ALL("product o 4096x4096, added", 4096, 4096, 1, 1),
    LARGE_ALL("product gate_up 24576x4096", 24576, 4096, 0, 0),
    LARGE_ALL("product down 4096x12288, added", 4096, 12288, 1, 1),
    LARGE_ALL("product head 8192x4096 to fp32", 8192, 4096, 0, 1),
    BLOCKS_ALL("product qkv 12288x4096", 12288, 4096, 0, 0),
    BLOCKS_ALL("product o 4096x4096, added", 4096, 4096, 1, 1),
    BLOCKS_ALL("product gate_up 24576x4096", 24576, 4096, 0, 0),
    BLOCKS_ALL("product down 4096x12288, added", 4096, 12288, 1, 1),
    FREE_ALL("product qkv 12288x4096", 12288, 4096, 0, 0),
    FREE_ALL("product o 4096x4096, added", 4096, 4096, 1, 1),
    FREE_ALL("product gate_up 24576x4096", 24576, 4096, 0, 0),
    FREE_ALL("product down 4096x12288, added", 4096, 12288, 1, 1),
};
extern const check_list product_checks = {"check_product", cases, (int)UM_LEN(cases)};
