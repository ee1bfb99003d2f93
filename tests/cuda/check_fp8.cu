/* Rounding of rows to e4m3: codes and scales against the host's functions, also from norms; what the rounding costs in
 * products as wide as those of an 8B model. */
#include "check.cuh"
#include "cuda/product.cuh"
#include "ops/plugin.h"

enum { BLOCK = UM_CU_BLOCK };

/* Random rows, whose magnitudes differ by powers of ten; row 1 is zero. */
static float *rows_of(check *c, int32_t n, int32_t in) {
    float *x = check_floats(c, (size_t)n * in);
    for (int32_t t = 0; t < n; t++)
        for (int32_t i = 0; i < in; i++) x[(size_t)t * in + i] *= t == 1 ? 0 : powf(10, (float)(t % 9 - 4));
    return x;
}

static um_cu_coded coded_room(check *c, int32_t n, int32_t in) {
    return {(unsigned char *)check_device(c, (size_t)n * in), (float *)check_device(c, (size_t)n * sizeof(float))};
}

/* Compares codes and scales with those of x, which is rounded. */
static void compare(check *c, const um_cu_coded *got, float *x, int32_t n, int32_t in, bool power) {
    const uint8_t *code = (const uint8_t *)check_download(c, got->code, (size_t)n * in);
    const float *scale = (const float *)check_download(c, got->scale, (size_t)n * sizeof *scale);
    uint8_t *want = (uint8_t *)check_host(c, (size_t)in);
    for (int32_t t = 0; t < n; t++) {
        const float by = check_round_fp8(x + (size_t)t * in, in, power, want);
        check_same(c, "scale", &scale[t], &by, sizeof by);
        check_same(c, "codes", code + (size_t)t * in, want, (size_t)in);
    }
}

/* n: rows, width */
static void run_rows(check *c, const check_case *k) {
    const int32_t n = k->n[0], in = k->n[1];
    float *x = rows_of(c, n, in);
    const void *operand = check_operand(c, x, (size_t)n * in, k->type);
    const um_cu_coded got = coded_room(c, n, in), weights = coded_room(c, n, in);
    um_cu_quantize_weights(operand, k->type, n, in, &weights, check_stream(c));
    check_cuda(c, cudaGetLastError(), "weights");
    float *again = (float *)check_host(c, (size_t)n * in * sizeof *again);
    memcpy(again, x, (size_t)n * in * sizeof *again);
    compare(c, &weights, again, n, in, false);
    if (k->type != UM_BF16) return;
    um_cu_quantize((const um_bf16 *)operand, n, in, &got, check_stream(c));
    check_cuda(c, cudaGetLastError(), "rows");
    compare(c, &got, x, n, in, true);
}

/* A matrix of a checkpoint in blocks keeps its codes. n: rows, width */
static void run_blocks(check *c, const check_case *k) {
    const int32_t rows = k->n[0], in = k->n[1], stride = um_cu_block_stride(in);
    const size_t n = (size_t)rows * in, n_blocks = um_cu_block_bytes(rows, in) / sizeof(float);
    uint8_t *code = (uint8_t *)check_host(c, n);
    float *w = (float *)check_host(c, n * sizeof *w), *block = check_floats(c, n_blocks);
    for (size_t i = 0; i < n_blocks; i++) block[i] = i == 1 ? 0 : exp2f(20 * block[i] - 8);
    for (size_t i = 0; i < n; i++) {
        const float by = block[i / in / BLOCK * stride + i % in / BLOCK];
        code[i] = by == 0 ? 0 : (uint8_t)check_below(c, 256);
        if ((code[i] & 0x7f) == 0x7f) code[i] = 0x80;
        w[i] = um_f8_to_f32(code[i]) * by;
    }
    um_cu_matrix m = {rows, in, UM_F8, check_device(c, n), (float *)check_device(c, (size_t)rows * sizeof(float))};
    m.block = (float *)check_upload(c, block, n_blocks * sizeof *block);
    um_cu_quantize_blocks((const float *)check_upload(c, w, n * sizeof *w), &m, check_stream(c));
    check_cuda(c, cudaGetLastError(), "blocks");
    check_same(c, "codes", check_download(c, m.data, n), code, n);
    const float *scale = (const float *)check_download(c, m.scale, (size_t)rows * sizeof *scale), one = 1;
    for (int32_t i = 0; i < rows; i++) check_same(c, "the scale of a row", &scale[i], &one, sizeof one);
}

/* ---- Checkpoints in blocks --------------------------------------------------------------------------------------- */

extern "C" const um_plugin *um_plugin_get(void); /* src/cuda/device.cu */

/* A matrix of a checkpoint. */
typedef struct stored {
    int32_t rows, in;
    const uint8_t *code;
    const float *scale; /* [blocks of rows, blocks of columns] */
} stored;

static const float *stored_scale(const stored *s, int64_t row, int64_t k) {
    return &s->scale[row / BLOCK * UM_CEIL_DIV(s->in, BLOCK) + k / BLOCK];
}
static void read_stored(const um_tensor *t, int64_t row, int64_t k, int64_t n, float *out) {
    const stored *s = (const stored *)t->extra;
    for (int64_t i = 0; i < n; i++) out[i] = um_f8_to_f32(s->code[row * s->in + k + i]) * *stored_scale(s, row, k + i);
}
static bool read_stored_scales(const um_tensor *t, float *out) {
    const stored *s = (const stored *)t->extra;
    const size_t n = (size_t)UM_CEIL_DIV(s->rows, BLOCK) * (size_t)UM_CEIL_DIV(s->in, BLOCK);
    if (out) memcpy(out, s->scale, n * sizeof *out);
    return true;
}
static const um_format stored_format = {
    .name = "stored", .elements = 1, .read = read_stored, .read_scales = read_stored_scales};

static um_tensor draw_stored(check *c, stored *s, int32_t rows, int32_t in) {
    const size_t n = (size_t)rows * in, blocks = (size_t)UM_CEIL_DIV(rows, BLOCK) * UM_CEIL_DIV(in, BLOCK);
    uint8_t *code = (uint8_t *)check_host(c, n);
    float *scale = check_floats(c, blocks);
    for (size_t i = 0; i < n; i++) code[i] = (uint8_t)(check_below(c, 0x7f) | check_below(c, 2) << 7);
    for (size_t i = 0; i < blocks; i++) scale[i] = exp2f(5 * scale[i] - 8);
    *s = {rows, in, code, scale};
    um_tensor t = {};
    t.name = "stored", t.type = UM_DTYPE_OTHER, t.format = &stored_format, t.extra = s, t.data = code;
    t.n_dims = 2, t.dim[0] = rows, t.dim[1] = in;
    return t;
}

/* Two matrices that the backend loads as one keep their codes and scales, if the blocks of the second one begin where
 * a row of blocks begins. n: rows of each, columns */
static void run_load(check *c, const check_case *k) {
    const um_backend *b = um_plugin_get()->backend;
    const int32_t rows = k->n[0] + k->n[1], in = k->n[2];
    um_dev_config config = {};
    config.dtype = UM_BF16, config.weights = UM_F8;
    um_device *d = NULL;
    um_weight *w = NULL;
    um_err err;
    stored s[2];
    if (check_skips(c, um_cu_fp8_suits(rows, in), "products in e4m3")) return;
    const um_tensor part[] = {draw_stored(c, &s[0], k->n[0], in), draw_stored(c, &s[1], k->n[1], in)};
    check_status(c, b->open(&d, b, &config, &err), &err);
    check_status(c, b->weight(d, &w, part, 2, UM_F8, &err), &err);
    /* The um_weight of this file is that of the reference. That of the device consists of a matrix. */
    const um_cu_matrix *m = (const um_cu_matrix *)w;
    check_true(c, m->rows == rows && m->in == in && m->type == UM_F8, "%d x %d of type %d", m->rows, m->in, m->type);
    check_true(c, (m->block != NULL) == (k->n[0] % BLOCK == 0), "the matrix has blocks: %d", m->block != NULL);
    if (m->block) {
        const float *block = (const float *)check_download(c, m->block, um_cu_block_bytes(rows, in));
        const char *code = (const char *)check_download(c, m->data, (size_t)rows * in);
        const size_t first = (size_t)s[0].rows * in;
        check_same(c, "codes", code, s[0].code, first);
        check_same(c, "codes of the second matrix", code + first, s[1].code, (size_t)s[1].rows * in);
        for (int32_t r = 0; r < rows; r += BLOCK)
            for (int32_t i = 0; i < in; i += BLOCK)
                check_same(c, "scale", &block[r / BLOCK * um_cu_block_stride(in) + i / BLOCK],
                           r < s[0].rows ? stored_scale(&s[0], r, i) : stored_scale(&s[1], r - s[0].rows, i),
                           sizeof(float));
    }
    b->weight_free(d, w);
    b->close(d);
}

/* A norm that also stores codes has those of its output. n: rows, width, 1: with a bias */
static void run_norm(check *c, const check_case *k) {
    const int32_t n = k->n[0], H = k->n[1];
    const size_t all = (size_t)n * H;
    float *x = rows_of(c, n, H), *w = check_floats(c, (size_t)H), *bias = check_floats(c, (size_t)H);
    const float *on_device = (float *)check_upload(c, x, all * sizeof *x);
    const float *scale = (float *)check_upload(c, w, (size_t)H * sizeof *w);
    const float *shift = k->n[2] ? (float *)check_upload(c, bias, (size_t)H * sizeof *bias) : NULL;
    const um_cu_coded got = coded_room(c, n, H);
    void *y = check_device(c, all * sizeof(um_bf16));
    um_cu_norm(on_device, scale, shift, 1e-5f, n, H, UM_BF16, y, NULL, &got, check_stream(c));
    check_cuda(c, cudaGetLastError(), "norm");
    compare(c, &got, check_floats_of(c, y, all, UM_BF16), n, H, true);
}

/* A gate that stores codes has those of its output. n: rows, width */
static void run_gate(check *c, const check_case *k) {
    const int32_t n = k->n[0], width = k->n[1];
    const size_t all = (size_t)n * width;
    float *x = rows_of(c, n, 2 * width);
    const void *gu = check_operand(c, x, 2 * all, UM_BF16);
    const um_cu_coded got = coded_room(c, n, width);
    void *y = check_device(c, all * sizeof(um_bf16));
    um_cu_gate(gu, n, width, UM_ACT_SILU, UM_BF16, check_device(c, all * sizeof(um_bf16)), &got, check_stream(c));
    um_cu_gate(gu, n, width, UM_ACT_SILU, UM_BF16, y, NULL, check_stream(c));
    check_cuda(c, cudaGetLastError(), "gate");
    compare(c, &got, check_floats_of(c, y, all, UM_BF16), n, width, true);
}

/* A row with a value that is not finite has a scale that is none. */
static void run_not_finite(check *c, const check_case *k) {
    const int32_t in = k->n[0];
    float *x = check_floats(c, 3 * (size_t)in);
    x[5] = INFINITY;
    x[in + 7] = NAN;
    const um_cu_coded got = coded_room(c, 3, in);
    um_cu_quantize((const um_bf16 *)check_operand(c, x, 3 * (size_t)in, UM_BF16), 3, in, &got, check_stream(c));
    const float *scale = (const float *)check_download(c, got.scale, 3 * sizeof *scale);
    check_true(c, isnan(scale[0]) && isnan(scale[1]) && isfinite(scale[2]), "scales %g, %g, %g", (double)scale[0],
               (double)scale[1], (double)scale[2]);
}

/* ---- The error of rounding --------------------------------------------------------------------------------------- */

enum { ERROR_TOKENS = 64 };

/* Returns n normally distributed numbers. */
static float *normals(check *c, size_t n, float deviation) {
    float *x = check_floats(c, n);
    for (size_t i = 0; i < n; i++) {
        const float u = 0.5f * (x[i] + 1), v = check_signed(c);
        x[i] = deviation * sqrtf(-2 * logf(UM_MAX(u, 0x1p-24f))) * cosf((float)M_PI * v);
    }
    return x;
}

/* Rounds a matrix as a checkpoint does that has a scale for each block of 128 rows and columns. Stores the scales, as
 * um_cu_matrix has them. */
static void round_blocks(float *w, int32_t rows, int32_t in, float *block) {
    for (int32_t r = 0; r < rows; r += BLOCK)
        for (int32_t k = 0; k < in; k += BLOCK) {
            float most = 0;
            for (int32_t i = 0; i < BLOCK * BLOCK; i++)
                most = UM_MAX(most, fabsf(w[(size_t)(r + i / BLOCK) * in + k + i % BLOCK]));
            for (int32_t i = 0; i < BLOCK * BLOCK; i++) {
                float *at = &w[(size_t)(r + i / BLOCK) * in + k + i % BLOCK];
                *at = um_f8_to_f32(um_f8_code(*at, most / 448)) * (most / 448);
            }
            block[r / BLOCK * um_cu_block_stride(in) + k / BLOCK] = most / 448;
        }
}

/* Computes a product on the device: [ERROR_TOKENS, rows]. */
static const float *product(check *c, um_cu_stream job, int32_t rows, int32_t in) {
    const size_t n = (size_t)ERROR_TOKENS * rows;
    int device = 0, n_processors = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n_processors, cudaDevAttrMultiProcessorCount, device);
    job.rows = job.stride = rows, job.in = job.x_stride = in, job.T = ERROR_TOKENS, job.out_type = UM_F32;
    job.y = check_device(c, n * sizeof(float));
    const um_status s = um_cu_stream_product(&job, n_processors, check_stream(c));
    check_true(c, s == UM_OK, "the product returned %d", s);
    check_cuda(c, cudaGetLastError(), "product");
    return check_floats_of(c, job.y, n, UM_F32);
}

/* The product of rounded weights and activations is close to that in bf16. The table has the difference. n: weight
 * rows, columns, 1: the inputs are outputs of a gate, 1: the weights come from a checkpoint in blocks and are rounded
 * to rows, 2: they come from one and keep its scales. */
static void run_error(check *c, const check_case *k) {
    const int32_t rows = k->n[0], in = k->n[1];
    const size_t n_w = (size_t)rows * in, n_x = (size_t)ERROR_TOKENS * in;
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (check_skips(c, major == 9, "kernels of product_stream.cu")) return;
    float *w = normals(c, n_w, 0.02f), *x = normals(c, n_x, 1);
    float *block = (float *)check_host(c, um_cu_block_bytes(rows, in));
    if (k->n[3]) round_blocks(w, rows, in, block);
    const float *exact = (const float *)check_upload(c, w, n_w * sizeof *w);
    if (k->n[2]) {
        const float *up = normals(c, n_x, 1);
        for (size_t i = 0; i < n_x; i++) x[i] = x[i] / (1 + expf(-x[i])) * up[i];
    }
    um_cu_stream plain = {}, rounded = {};
    plain.w = check_operand(c, w, n_w, UM_BF16), plain.x = check_operand(c, x, n_x, UM_BF16);
    const um_cu_coded w_code = coded_room(c, rows, in), x_code = coded_room(c, ERROR_TOKENS, in);
    um_cu_matrix m = {rows, in, UM_F8, w_code.code, w_code.scale};
    if (k->n[3] == 2) {
        rounded.w_block = m.block = (float *)check_upload(c, block, um_cu_block_bytes(rows, in));
        um_cu_quantize_blocks(exact, &m, check_stream(c));
    } else um_cu_quantize_weights(plain.w, UM_BF16, rows, in, &w_code, check_stream(c));
    um_cu_quantize((const um_bf16 *)plain.x, ERROR_TOKENS, in, &x_code, check_stream(c));
    rounded.w = w_code.code, rounded.w_scale = w_code.scale;
    rounded.x = x_code.code, rounded.x_scale = x_code.scale;
    check_close(c, "the product in fp8", product(c, rounded, rows, in), product(c, plain, rows, in),
                (size_t)ERROR_TOKENS * rows, 0.045);
}

static const check_case cases[] = {
    {"fp8 rows 1x1", run_rows, {1, 1}, UM_BF16},
    {"fp8 rows 20x64", run_rows, {20, 64}, UM_BF16},
    {"fp8 rows 20x100", run_rows, {20, 100}, UM_BF16},
    {"fp8 rows 9x12288", run_rows, {9, 12288}, UM_BF16},
    {"fp8 rows 20x104 fp32", run_rows, {20, 104}, UM_F32},
    {"fp8 blocks 20x64", run_blocks, {20, 64}, UM_F32},
    {"fp8 blocks 300x700", run_blocks, {300, 700}, UM_F32},
    {"fp8 load two matrices in blocks", run_load, {256, 112, 208}, UM_F8},
    {"fp8 load two matrices in blocks that do not meet", run_load, {112, 256, 208}, UM_F8},
    {"fp8 norm 33x64", run_norm, {33, 64, 0}, UM_BF16},
    {"fp8 norm 500x4096", run_norm, {500, 4096, 0}, UM_BF16},
    {"fp8 norm 33x64, bias", run_norm, {33, 64, 1}, UM_BF16},
    {"fp8 norm 33x80", run_norm, {33, 80, 0}, UM_BF16},
    {"fp8 gate 9x64", run_gate, {9, 64}, UM_BF16},
    {"fp8 gate 33x12288", run_gate, {33, 12288}, UM_BF16},
    {"fp8 gate 5x16400", run_gate, {5, 16400}, UM_BF16},
    {"fp8 gate 5x100", run_gate, {5, 100}, UM_BF16},
    {"fp8 rows that are not finite", run_not_finite, {256}, UM_BF16},
    {"fp8 error of qkv, gate and up, 4096 columns", run_error, {1024, 4096, 0, 0}, UM_BF16},
    {"fp8 error of down, 12288 columns", run_error, {1024, 12288, 1, 0}, UM_BF16},
    {"fp8 error of 4096 columns, from blocks to rows", run_error, {1024, 4096, 0, 1}, UM_BF16},
    {"fp8 error of 12288 columns, from blocks to rows", run_error, {1024, 12288, 1, 1}, UM_BF16},
    {"fp8 error of 4096 columns in blocks", run_error, {1024, 4096, 0, 2}, UM_BF16},
    {"fp8 error of 12288 columns in blocks", run_error, {1024, 12288, 1, 2}, UM_BF16},
};
extern const check_list fp8_checks = {"check_fp8", cases, (int)UM_LEN(cases)};
