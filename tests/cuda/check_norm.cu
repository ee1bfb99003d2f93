/* Norms, the gate, biases and saved rows. */
#include "check.cuh"

static double tolerance(um_dtype type) { return type == UM_BF16 ? 3e-3 : 1e-5; }

/* ---- Norms ------------------------------------------------------------------------------------------------------- */

typedef struct norm_args {
    const float *x, *w, *bias;
    float eps;
    int32_t n, H;
    um_dtype type;
    void *y;
    float *y32;
    cudaStream_t stream;
} norm_args;
static void norm_call(void *arg) {
    const norm_args *a = (const norm_args *)arg;
    um_cu_norm(a->x, a->w, a->bias, a->eps, a->n, a->H, a->type, a->y, a->y32, NULL, a->stream);
}

/* n: rows, width, 1: with a bias */
static void run_norm(check *c, const check_case *k) {
    const int32_t n = k->n[0], H = k->n[1], last = n - 1;
    const size_t all = (size_t)n * H, size = um_dtype_size(k->type);
    float *x = check_floats(c, all), *w = check_floats(c, (size_t)H), *bias = check_floats(c, (size_t)H);
    for (size_t i = 0; i < all; i++) x[i] = x[i] * 4 + (k->n[2] ? 2 : 0);
    norm_args a = {};
    a.x = (float *)check_upload(c, x, all * sizeof(float));
    a.w = (float *)check_upload(c, w, (size_t)H * sizeof(float));
    a.bias = k->n[2] ? (float *)check_upload(c, bias, (size_t)H * sizeof(float)) : NULL;
    a.eps = 1e-5f;
    a.n = n;
    a.H = H;
    a.type = k->type;
    a.y = check_device(c, all * size);
    a.y32 = (float *)check_device(c, all * sizeof(float));
    a.stream = check_stream(c);
    norm_call(&a);
    check_cuda(c, cudaGetLastError(), "norm");

    um_norm norm = {};
    norm.w = w;
    norm.bias = k->n[2] ? bias : NULL;
    norm.eps = a.eps;
    float *want = (float *)check_host(c, all * sizeof(float));
    um_ref_norm(check_ref(c, UM_F32), x, &norm, n, H, want);
    const float *wide = check_floats_of(c, a.y32, all, UM_F32);
    check_close(c, "y32", wide, want, all, tolerance(UM_F32));
    check_close(c, "y", check_floats_of(c, a.y, all, k->type), want, all, tolerance(k->type));

    /* The last row alone, without the fp32 output; then in place, without the operand. */
    const char *y = (const char *)check_download(c, a.y, all * size);
    norm_args alone = a;
    alone.x += (size_t)last * H;
    alone.n = 1;
    alone.y = check_device(c, (size_t)H * size);
    alone.y32 = NULL;
    norm_call(&alone);
    check_same(c, "the last row alone", check_download(c, alone.y, (size_t)H * size), y + (size_t)last * H * size,
               (size_t)H * size);
    alone.y = NULL;
    alone.y32 = (float *)alone.x;
    norm_call(&alone);
    check_same(c, "the last row in place", check_download(c, alone.y32, (size_t)H * sizeof(float)),
               wide + (size_t)last * H, (size_t)H * sizeof(float));
    a.y32 = NULL;
    check_time(c, (double)all * (4 + size) + H * 4.0, 0, norm_call, &a);
}

/* ---- Norms of branches and canvases ------------------------------------------------------------------------------ */

/* A batch of three spans: a prompt, a canvas with a blend, and a canvas without one; then padding. */
typedef struct canvas_data {
    um_span span[3];
    int32_t room, blend; /* tokens with padding; the canvas's first blend */
    um_cu_batch b;
} canvas_data;

static canvas_data new_canvases(check *c, int32_t n) {
    canvas_data d = {};
    um_batch batch = {};
    int32_t *zero = (int32_t *)check_host(c, 3 * (size_t)n * sizeof(int32_t));
    d.room = 3 * n + 3;
    d.blend = 2;
    for (int32_t i = 0; i < 3; i++) {
        d.span[i].first = i * n;
        d.span[i].n = d.span[i].keys.end = n;
        d.span[i].page = zero;
        d.span[i].adapter = -1;
        d.span[i].canvas = i > 0;
        d.span[i].blend = i == 1 ? 1 + d.blend : 0;
    }
    batch.n_tokens = 3 * n;
    batch.n_spans = 3;
    batch.id = batch.pos = batch.slot = batch.seen_end = zero;
    batch.span = d.span;
    const um_message_capacity capacity = {d.room, 4, um_message_tiles(&batch, 16), 1, 16, 0, 100, n};
    d.b = check_batch(c, &batch, &capacity, NULL);
    return d;
}

/* n: tokens of a span, width */
static void run_branch(check *c, const check_case *k) {
    const int32_t n = k->n[0], H = k->n[1];
    const canvas_data d = new_canvases(c, n);
    const size_t all = (size_t)d.room * H, used = 3 * (size_t)n * H;
    float *x = check_floats(c, all), *y = check_floats(c, all), *w = check_floats(c, (size_t)H),
          factor[] = {0.5f, 1.75f};
    for (size_t i = used; i < all; i++) x[i] = y[i] = NAN;
    const float *scale = (float *)check_upload(c, factor, sizeof factor);
    const float *const by[2][2] = {{scale, scale + 1}, {NULL, NULL}};
    um_norm norm = {};
    norm.w = w;
    norm.eps = 1e-6f;
    for (int i = 0; i < 2; i++) { /* with factors, without */
        float *got = (float *)check_upload(c, x, all * sizeof(float));
        um_cu_norm_add(&d.b, (float *)check_upload(c, y, all * sizeof(float)),
                       (float *)check_upload(c, w, (size_t)H * sizeof(float)), norm.eps, H, by[i], got,
                       check_stream(c));
        check_cuda(c, cudaGetLastError(), "norm_add");
        float *want = (float *)check_host(c, used * sizeof(float)),
              *spent = (float *)check_host(c, used * sizeof(float));
        memcpy(want, x, used * sizeof(float));
        memcpy(spent, y, used * sizeof(float));
        for (int32_t s = 0; s < 3; s++)
            um_ref_norm_add(check_ref(c, UM_F32), spent + (size_t)s * n * H, &norm, n, H, i ? 1 : factor[s > 0],
                            want + (size_t)s * n * H);
        check_close(c, "x", check_floats_of(c, got, used, UM_F32), want, used, tolerance(UM_F32));
    }
}

/* n: tokens of a span, width. Norms of blends, and of the embeddings of canvases. */
static void run_canvas(check *c, const check_case *k) {
    const int32_t n = k->n[0], H = k->n[1];
    const canvas_data d = new_canvases(c, n);
    const size_t all = (size_t)d.room * H, one = (size_t)n * H, rows = (size_t)(n + d.blend) * H;
    float *x = check_floats(c, all), *blend = check_floats(c, rows), *w = check_floats(c, (size_t)H);
    const float *weight = (float *)check_upload(c, w, (size_t)H * sizeof(float));
    void *y = check_device(c, all * um_dtype_size(k->type));
    float *device = (float *)check_upload(c, x, all * sizeof(float));
    um_norm norm = {};
    norm.w = w;
    norm.eps = 1e-6f;
    um_cu_blend_norm(&d.b, (float *)check_upload(c, blend, rows * sizeof(float)), weight, norm.eps, H, k->type, y,
                     check_stream(c));
    um_cu_canvas_norm(&d.b, weight, norm.eps, H, device, check_stream(c));
    check_cuda(c, cudaGetLastError(), "norms of canvases");
    float *want = (float *)check_host(c, 3 * one * sizeof(float));
    um_ref_norm(check_ref(c, UM_F32), blend + (size_t)d.blend * H, &norm, n, H, want + one);
    check_close(c, "normed blends", check_floats_of(c, y, 3 * one, k->type), want, 3 * one, tolerance(k->type));
    memcpy(want, x, 3 * one * sizeof(float));
    um_ref_norm(check_ref(c, UM_F32), x + one, &norm, 2 * n, H, want + one);
    check_close(c, "normed canvases", check_floats_of(c, device, 3 * one, UM_F32), want, 3 * one, tolerance(UM_F32));
}

/* ---- Gate -------------------------------------------------------------------------------------------------------- */

typedef struct gate_args {
    const void *gu;
    int32_t T, n;
    um_dtype type;
    um_act act;
    void *y;
    cudaStream_t stream;
} gate_args;
static void gate_call(void *arg) {
    const gate_args *a = (const gate_args *)arg;
    um_cu_gate(a->gu, a->T, a->n, a->act, a->type, a->y, NULL, a->stream);
}

/* n: tokens, width of the output, function */
static void run_gate(check *c, const check_case *k) {
    const int32_t T = k->n[0], n = k->n[1];
    const size_t all = (size_t)T * n;
    float *gu = check_floats(c, 2 * all);
    for (size_t i = 0; i < 2 * all; i++) gu[i] *= 20;
    if (all > 2) gu[0] = -300, gu[1] = 300; /* exp overflows */
    gate_args a = {};
    a.gu = check_operand(c, gu, 2 * all, k->type);
    a.T = T;
    a.n = n;
    a.type = k->type;
    a.act = (um_act)k->n[2];
    a.y = check_device(c, all * um_dtype_size(k->type));
    a.stream = check_stream(c);
    gate_call(&a);
    check_cuda(c, cudaGetLastError(), "gate");
    float *want = (float *)check_host(c, all * sizeof(float));
    um_ref_gate(check_ref(c, UM_F32), a.act, gu, T, n, want);
    check_close(c, "y", check_floats_of(c, a.y, all, k->type), want, all, tolerance(k->type));
    check_time(c, 3.0 * (double)all * um_dtype_size(k->type), 0, gate_call, &a);
}

/* ---- Biases ------------------------------------------------------------------------------------------------------ */

/* n: tokens, width */
static void run_bias(check *c, const check_case *k) {
    const int32_t T = k->n[0], n = k->n[1];
    const size_t all = (size_t)T * n;
    float *y = check_floats(c, all), *bias = check_floats(c, (size_t)n);
    void *device = check_operand(c, y, all, k->type);
    um_cu_add_bias(device, (float *)check_upload(c, bias, (size_t)n * sizeof(float)), T, n, k->type, check_stream(c));
    check_cuda(c, cudaGetLastError(), "bias");
    for (size_t i = 0; i < all; i++) {
        y[i] += bias[i % (size_t)n];
        if (k->type == UM_BF16) y[i] = um_bf16_to_f32(um_f32_to_bf16(y[i]));
    }
    check_close(c, "y", check_floats_of(c, device, all, k->type), y, all, 0);
}

/* ---- Saved rows -------------------------------------------------------------------------------------------------- */

/* n: saves, room for saves, width, hidden rows. The saves go to every second row, in descending order. */
static void run_save(check *c, const check_case *k) {
    const int32_t n = k->n[0], capacity = k->n[1], H = k->n[2], n_hidden = k->n[3];
    const size_t row = (size_t)H * sizeof(float);
    float *hidden = check_floats(c, (size_t)n_hidden * H), *want = (float *)check_host(c, (size_t)2 * capacity * row);
    int32_t(*save)[2] = (int32_t(*)[2])check_host(c, (size_t)capacity * sizeof *save);
    memset(want, 0xff, (size_t)2 * capacity * row);
    for (int32_t i = 0; i < capacity; i++) {
        save[i][0] = i < n ? check_below(c, n_hidden) : -1;
        save[i][1] = i < n ? 2 * (capacity - 1 - i) : -1;
        if (i < n) memcpy(want + (size_t)save[i][1] * H, hidden + (size_t)save[i][0] * H, row);
    }
    um_cu_batch b = {};
    b.capacity.n_spans = capacity;
    b.save = (const int32_t(*)[2])check_upload(c, save, (size_t)capacity * sizeof *save);
    float *saved = (float *)check_guarded(c, (size_t)2 * capacity * row);
    um_cu_save(&b, (float *)check_upload(c, hidden, (size_t)n_hidden * row), saved, H, check_stream(c));
    check_cuda(c, cudaGetLastError(), "save");
    check_same(c, "saved", check_download(c, saved, (size_t)2 * capacity * row), want, (size_t)2 * capacity * row);
}

static const check_case cases[] = {
    {"norm fp32, 1 x 1", run_norm, {1, 1, 0}, UM_F32},
    {"norm fp32, 5 x 64", run_norm, {5, 64, 0}, UM_F32},
    {"norm fp32, 3 x 1030", run_norm, {3, 1030, 0}, UM_F32},
    {"norm bf16, 3 x 97", run_norm, {3, 97, 0}, UM_BF16},
    {"norm bf16, 2 x 9000", run_norm, {2, 9000, 0}, UM_BF16},
    {"norm bf16, 2 x 16384", run_norm, {2, 16384, 0}, UM_BF16},
    {"norm fp32, with bias, 5 x 64", run_norm, {5, 64, 1}, UM_F32},
    {"norm fp32, with bias, 3 x 2051", run_norm, {3, 2051, 1}, UM_F32},
    {"norm bf16, with bias, 3 x 12288", run_norm, {3, 12288, 1}, UM_BF16},
    {"norm bf16, 1200 x 64", run_norm, {1200, 64, 0}, UM_BF16},
    {"norm fp32, 32 x 4096", run_norm, {32, 4096, 0}, UM_F32},
    {"norm bf16, 32 x 4096", run_norm, {32, 4096, 0}, UM_BF16},
    {"norm bf16, 64 x 2048", run_norm, {64, 2048, 0}, UM_BF16},
    {"norm bf16, 2048 x 4096", run_norm, {2048, 4096, 0}, UM_BF16},
    {"norm_add 3 x 5 x 64", run_branch, {5, 64}, UM_F32},
    {"norm_add 3 x 2 x 99", run_branch, {2, 99}, UM_F32},
    {"norm_add 3 x 2 x 9000", run_branch, {2, 9000}, UM_F32},
    {"norms of canvases fp32, 3 x 64", run_canvas, {3, 64}, UM_F32},
    {"norms of canvases bf16, 3 x 99", run_canvas, {3, 99}, UM_BF16},
    {"norms of canvases bf16, 7 x 2816", run_canvas, {7, 2816}, UM_BF16},
    {"gate fp32, 1 x 1", run_gate, {1, 1}, UM_F32},
    {"gate fp32, 5 x 172", run_gate, {5, 172}, UM_F32},
    {"gate bf16, 5 x 99", run_gate, {5, 99}, UM_BF16},
    {"gate fp32, gelu, 5 x 172", run_gate, {5, 172, UM_ACT_GELU_TANH}, UM_F32},
    {"gate bf16, gelu, 5 x 99", run_gate, {5, 99, UM_ACT_GELU_TANH}, UM_BF16},
    {"gate fp32, 32 x 12288", run_gate, {32, 12288}, UM_F32},
    {"gate bf16, 32 x 12288", run_gate, {32, 12288}, UM_BF16},
    {"gate bf16, 1024 x 12288", run_gate, {1024, 12288}, UM_BF16},
    {"bias fp32, 3 x 5", run_bias, {3, 5}, UM_F32},
    {"bias fp32, 33 x 4096", run_bias, {33, 4096}, UM_F32},
    {"bias bf16, 7 x 99", run_bias, {7, 99}, UM_BF16},
    {"bias bf16, 33 x 5120", run_bias, {33, 5120}, UM_BF16},
    {"save 3 of 8 rows, width 64", run_save, {3, 8, 64, 9}, UM_F32},
    {"save 8 of 8 rows, width 4096", run_save, {8, 8, 4096, 40}, UM_F32},
    {"save 1 of 2 rows, width 99", run_save, {1, 2, 99, 1}, UM_F32},
};
extern const check_list norm_checks = {"check_norm", cases, (int)UM_LEN(cases)};
