/* Checks of the router's product on tensor cores: against sums in double, the bits of tokens for different numbers of
 * tokens, weights that bf16 would round, and times. */
#include "check.cuh"

enum { TOKENS, EXPERTS, HIDDEN }; /* meaning of check_case.n */

/* Returns whether the device is a Hopper GPU. Nothing calls the product on others. */
static bool has_router() {
    int device = 0, major = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major == 9;
}

typedef struct router_data {
    int32_t n, rows, in;
    float *w, *x; /* [rows, in] numbers of bf16, [n, in] */
    um_cu_matrix m;
    void *packed;
    float *x_there;
} router_data;

static void pack(check *c, router_data *d, bool exact) {
    um_err err;
    bool was = !exact;
    d->m = {d->rows, d->in, UM_F32, check_upload(c, d->w, (size_t)d->rows * (size_t)d->in * sizeof(float)), NULL};
    d->packed = check_guarded(c, um_cu_router_bytes(d->rows, d->in));
    check_status(c, um_cu_router_pack(&d->m, d->packed, &was, check_stream(c), &err), &err);
    check_true(c, was == exact, "the weights were taken for %s", was ? "exact" : "inexact");
}

/* Magnitudes of x differ, as those of hidden states do. */
static router_data new_router(check *c, const check_case *k) {
    router_data d = {k->n[TOKENS], k->n[EXPERTS], k->n[HIDDEN]};
    const size_t n_w = (size_t)d.rows * (size_t)d.in, n_x = (size_t)d.n * (size_t)d.in;
    d.w = check_floats(c, n_w);
    d.x = check_floats(c, n_x);
    for (size_t i = 0; i < n_w; i++) d.w[i] = um_bf16_to_f32(um_f32_to_bf16(d.w[i]));
    for (size_t i = 0; i < n_x; i++) d.x[i] *= i % 97 ? 1 : 30;
    pack(c, &d, true);
    d.x_there = (float *)check_upload(c, d.x, n_x * sizeof(float));
    return d;
}

/* Computes the tokens [first, first + n). */
static float *run(check *c, const router_data *d, int32_t first, int32_t n) {
    const size_t bytes = (size_t)n * (size_t)d->rows * sizeof(float);
    const float *x =
        (const float *)check_upload(c, d->x + (size_t)first * (size_t)d->in, (size_t)n * (size_t)d->in * sizeof(float));
    float *y = (float *)check_guarded(c, bytes);
    um_cu_router_product(d->packed, d->rows, d->in, x, n, y, check_stream(c));
    check_cuda(c, cudaGetLastError(), "router");
    return (float *)check_download(c, y, bytes);
}

/* Returns the error of a score, in units of the length of its products. */
static double error_of(const router_data *d, int32_t t, int32_t e, float got) {
    const float *w = d->w + (size_t)e * (size_t)d->in, *x = d->x + (size_t)t * (size_t)d->in;
    double sum = 0, square = 0;
    for (int32_t k = 0; k < d->in; k++) {
        const double v = (double)w[k] * x[k];
        sum += v;
        square += v * v;
    }
    return (got - sum) / sqrt(square);
}

/* Sums of fp32 have rounding errors. The mean error would be larger if x had only 16 bits. */
static void check_scores(check *c, const router_data *d, const float *got) {
    const double most = 2e-5, most_mean = 6e-7 + 4e-10 * d->in;
    const size_t n = (size_t)d->n * (size_t)d->rows;
    double square = 0;
    for (size_t i = 0; i < n; i++) {
        const double error = error_of(d, (int32_t)(i / (size_t)d->rows), (int32_t)(i % (size_t)d->rows), got[i]);
        square += error * error;
        check_true(c, fabs(error) <= most, "score %zu: %.9g, error %.1e", i, got[i], error);
        if (!(fabs(error) <= most)) return;
    }
    check_true(c, sqrt(square / (double)n) <= most_mean, "mean error %.1e", sqrt(square / (double)n));
}

static void check_product(check *c, const check_case *k) {
    if (check_skips(c, has_router(), "kernel of router.cu")) return;
    const router_data d = new_router(c, k);
    const size_t row = (size_t)d.rows;
    const float *all = run(c, &d, 0, d.n);
    check_scores(c, &d, all);
    check_same(c, "second run", run(c, &d, 0, d.n), all, (size_t)d.n * row * sizeof(float));
    for (int i = 0; i < 4; i++) {
        const int32_t first = check_below(c, d.n), n = 1 + check_below(c, UM_MIN(d.n - first, 1 << i * 3));
        check_same(c, "some tokens", run(c, &d, first, n), all + (size_t)first * row, (size_t)n * row * sizeof(float));
    }
}

static void check_inexact(check *c, const check_case *k) {
    if (check_skips(c, has_router(), "kernel of router.cu")) return;
    router_data d = new_router(c, k);
    d.w[(size_t)d.rows * (size_t)d.in - 1] = 1 + 1.0f / 512;
    pack(c, &d, false);
}

/* Shapes that product_simt.cu must compute. */
static void check_unsuited(check *c, const check_case *k) {
    (void)k;
    check_true(c, um_cu_router_suits(64, 6144) == has_router(), "6144 columns");
    check_true(c, !um_cu_router_suits(33, 2048), "33 experts");
    check_true(c, !um_cu_router_suits(64, 2048 + 32), "2080 columns");
    check_true(c, !um_cu_router_suits(64, 6208), "6208 columns");
}

typedef struct router_call {
    const router_data *d;
    float *y;
    cudaStream_t stream;
} router_call;
static void call(void *arg) {
    const router_call *a = (const router_call *)arg;
    um_cu_router_product(a->d->packed, a->d->rows, a->d->in, a->d->x_there, a->d->n, a->y, a->stream);
}

static void check_times(check *c, const check_case *k) {
    if (check_skips(c, has_router(), "kernel of router.cu")) return;
    const router_data d = new_router(c, k);
    const double w = (double)d.rows * d.in, x = (double)d.n * d.in, y = (double)d.n * d.rows;
    router_call a = {&d, (float *)check_device(c, (size_t)y * sizeof(float)), check_stream(c)};
    check_time(c, 2 * w + 4 * x + 4 * y, 2.0 * d.n * w, call, &a);
}

static const check_case cases[] = {
    {"router 1 token, 256 experts", check_product, {1, 256, 2048}, UM_F32},
    {"router 200 tokens, 256 experts", check_product, {200, 256, 2048}, UM_F32},
    {"router 65 tokens, 4 experts, 64 columns", check_product, {65, 4, 64}, UM_F32},
    {"router 130 tokens, 300 experts, 576 columns", check_product, {130, 300, 576}, UM_F32},
    {"router 33 tokens, 128 experts, 2816 columns", check_product, {33, 128, 2816}, UM_F32},
    {"router 33 tokens, 256 experts, 4096 columns", check_product, {33, 256, 4096}, UM_F32},
    {"router 17 tokens, 64 experts, 6144 columns", check_product, {17, 64, 6144}, UM_F32},
    {"router with weights that bf16 rounds", check_inexact, {1, 256, 2048}, UM_F32},
    {"router shapes that do not suit", check_unsuited, {}, UM_F32},
    {"router llada2-mini, 32 tokens", check_times, {32, 256, 2048}, UM_F32},
    {"router llada2-mini, 512 tokens", check_times, {512, 256, 2048}, UM_F32},
    {"router llada2-mini, 1024 tokens", check_times, {1024, 256, 2048}, UM_F32},
    {"router llada2-mini, 2048 tokens", check_times, {2048, 256, 2048}, UM_F32},
    {"router llada2-mini, 4096 tokens", check_times, {4096, 256, 2048}, UM_F32},
};
extern const check_list router_checks = {__FILE__, cases, (int)UM_LEN(cases)};
