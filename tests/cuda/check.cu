/* Compares the operations of the CUDA backend with the reference and times them: check [--time] [--unset] [--only WORD]
 * [--skip WORD] [--part I/N] [--list]. --only runs the cases whose names contain the word, --skip those that don't;
 * --skip may be repeated. --part runs each N-th of them from the I-th on, counted from 0. --unset leaves new device
 * memory without values, so that compute-sanitizer's initcheck can find reads of it. Prints one line for each case:
 * worst relative error, seconds and, with --time, microseconds, GB/s, TFLOP/s and the share of the limit. Cases
 * whose kernels the device lacks are skipped, and counted. Exit status 1 when a case failed. */
#include "check.cuh"

#include <stdarg.h>
#include <time.h>

enum { RUNS = 25, ALLOCATIONS_MAX = 4096, SKIP_MAX = 32 };
static const size_t FLUSH_BYTES = (size_t)256 << 20;

struct check {
    uint64_t seed, counter;
    void *host[ALLOCATIONS_MAX], *device[ALLOCATIONS_MAX];
    int n_host, n_device;
    um_dev *ref[2];
    cudaStream_t stream;
    bool timed, unset, failed;
    const char *missing; /* kernels that the device lacks, so that the case was skipped; NULL: it was not */
    double worst, us, bytes, flops;
    char message[512];
    void *flush;
};

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static void end(const char *what, cudaError_t e) {
    if (e == cudaSuccess) return;
    printf("%s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}

void *check_host(check *c, size_t bytes) {
    assert(c->n_host < ALLOCATIONS_MAX);
    return c->host[c->n_host++] = um_zalloc(bytes + 16);
}

void *check_device(check *c, size_t bytes) {
    void *p = NULL;
    assert(c->n_device < ALLOCATIONS_MAX);
    end("cudaMalloc", cudaMalloc(&p, bytes + 256));
    if (!c->unset) end("cudaMemset", cudaMemset(p, 0xff, bytes + 256));
    return c->device[c->n_device++] = p;
}

void *check_guarded(check *c, size_t bytes) {
    void *p = check_device(c, bytes);
    end("cudaMemset", cudaMemset(p, 0xff, bytes));
    return p;
}

void *check_upload(check *c, const void *p, size_t bytes) {
    void *d = check_device(c, bytes);
    end("cudaMemcpy", cudaMemcpy(d, p, bytes, cudaMemcpyHostToDevice));
    return d;
}

void *check_download(check *c, const void *device, size_t bytes) {
    void *p = check_host(c, bytes);
    check_cuda(c, cudaStreamSynchronize(c->stream), "kernels");
    end("cudaMemcpy", cudaMemcpy(p, device, bytes, cudaMemcpyDeviceToHost));
    return p;
}

static void free_all(check *c) {
    while (c->n_host) um_free(c->host[--c->n_host]);
    while (c->n_device) cudaFree(c->device[--c->n_device]);
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

float check_signed(check *c) { return (float)(2 * um_rng_uniform(c->seed, c->counter++) - 1); }
int32_t check_below(check *c, int32_t n) { return (int32_t)(um_rng_uniform(c->seed, c->counter++) * n); }

float *check_floats(check *c, size_t n) {
    float *x = (float *)check_host(c, n * sizeof(float));
    for (size_t i = 0; i < n; i++) x[i] = check_signed(c);
    return x;
}

void *check_operand(check *c, float *x, size_t n, um_dtype type) {
    if (type == UM_F32) return check_upload(c, x, n * sizeof(float));
    uint16_t *half = (uint16_t *)check_host(c, n * sizeof(uint16_t));
    for (size_t i = 0; i < n; i++) {
        half[i] = um_f32_to_bf16(x[i]);
        x[i] = um_bf16_to_f32(half[i]);
    }
    return check_upload(c, half, n * sizeof(uint16_t));
}

float *check_floats_of(check *c, const void *device, size_t n, um_dtype type) {
    void *raw = check_download(c, device, n * um_dtype_size(type));
    if (type == UM_F32) return (float *)raw;
    float *x = (float *)check_host(c, n * sizeof(float));
    for (size_t i = 0; i < n; i++) x[i] = um_bf16_to_f32(((uint16_t *)raw)[i]);
    return x;
}

um_tensor check_tensor(check *c, int32_t rows, int32_t in, um_dtype type) {
    const size_t n = (size_t)rows * (size_t)in;
    float *x = check_floats(c, n);
    um_tensor t = {};
    for (int32_t i = 0; i < rows && type == UM_F8; i++) check_round_fp8(x + (size_t)i * in, in, false, NULL);
    t.name = "random";
    t.type = type == UM_F8 ? UM_F32 : type;
    t.n_dims = 2;
    t.dim[0] = rows;
    t.dim[1] = in;
    t.data = x;
    if (t.type == UM_F32) return t;
    uint16_t *half = (uint16_t *)check_host(c, n * sizeof(uint16_t));
    for (size_t i = 0; i < n; i++) half[i] = um_f32_to_bf16(x[i]);
    t.data = half;
    return t;
}

/* Rounds the rows of x in place, and uploads their codes and scales. */
static um_cu_coded upload_fp8(check *c, float *x, int32_t n, int32_t in, bool power) {
    uint8_t *code = (uint8_t *)check_host(c, (size_t)n * (size_t)in);
    float *scale = (float *)check_host(c, (size_t)n * sizeof *scale);
    for (int32_t i = 0; i < n; i++) scale[i] = check_round_fp8(x + (size_t)i * in, in, power, code + (size_t)i * in);
    return {(unsigned char *)check_upload(c, code, (size_t)n * (size_t)in),
            (float *)check_upload(c, scale, (size_t)n * sizeof *scale)};
}

um_cu_matrix check_matrix(check *c, const um_tensor *t, um_dtype type) {
    const int32_t rows = (int32_t)t->dim[0], in = (int32_t)t->dim[1];
    if (type == UM_F8) {
        const um_cu_coded w = upload_fp8(c, (float *)t->data, rows, in, false);
        return {rows, in, type, w.code, w.scale};
    }
    return {rows, in, type, check_upload(c, t->data, (size_t)rows * (size_t)in * um_dtype_size(type)), NULL};
}

um_cu_matrix check_matrix_in_blocks(check *c, um_tensor *t, int32_t n) {
    um_cu_matrix m = check_matrix(c, t, UM_F8);
    const int32_t rows = m.rows / n, in = m.in, stride = um_cu_block_stride(in);
    const size_t bytes = um_cu_block_bytes(rows, in);
    float *number = (float *)t->data, *block = (float *)check_host(c, (size_t)n * bytes), *at = block;
    float *scale = (float *)check_download(c, m.scale, (size_t)m.rows * sizeof *scale);
    for (int32_t i = 0; i < n; i++, at += bytes / sizeof *at, number += (size_t)rows * in) {
        for (int32_t k = 0; k < (int32_t)(bytes / sizeof *at); k++)
            if (k % stride < UM_CEIL_DIV(in, UM_CU_BLOCK)) at[k] = exp2f(4 * check_signed(c));
        for (size_t k = 0; k < (size_t)rows * in; k++)
            number[k] *= at[k / in / UM_CU_BLOCK * stride + k % in / UM_CU_BLOCK] / scale[(size_t)i * rows + k / in];
    }
    for (int32_t i = 0; i < m.rows; i++) scale[i] = 1;
    m.scale = (float *)check_upload(c, scale, (size_t)m.rows * sizeof *scale);
    m.block = (float *)check_upload(c, block, (size_t)n * bytes);
    return m;
}

um_cu_rows check_rows(check *c, float *x, int32_t n, int32_t in, um_dtype type) {
    if (type != UM_F8) return {check_operand(c, x, (size_t)n * (size_t)in, type), NULL, n};
    const um_cu_coded rows = upload_fp8(c, x, n, in, true);
    return {rows.code, rows.scale, n};
}

float check_round_fp8(float *x, int32_t n, bool power, uint8_t *code) {
    float most = 0, scale = 1;
    for (int32_t i = 0; i < n; i++) most = UM_MAX(most, fabsf(x[i]));
    if (most > 0x1p-100f) scale = most / 448;
    if (power && most > 0x1p-100f) {
        for (scale = 0x1p-120f; 448 * scale < most;) scale *= 2;
    }
    for (int32_t i = 0; i < n; i++) {
        const uint8_t v = um_f8_code(x[i], scale);
        if (code) code[i] = v;
        x[i] = um_f8_to_f32(v) * scale;
    }
    return scale;
}

um_dev *check_ref(check *c, um_dtype type) {
    um_dev **ref = &c->ref[type == UM_BF16];
    um_dev_config config = {};
    config.threads = 1;
    config.dtype = type == UM_F8 ? UM_F32 : type;
    config.max_tokens = config.max_rows = 16384;
    config.max_in = 32768;
    config.max_head_dim = 512;
    config.max_heads = 128;
    config.max_vocab = 262144;
    config.max_hidden = 16384;
    config.max_experts = 512;
    config.max_top_k = 64;
    config.max_expert_ff = 16384;
    um_err err;
    if (!*ref) check_status(c, um_ops_ref.open(ref, &config, &err), &err);
    return *ref;
}

cudaStream_t check_stream(check *c) { return c->stream; }

um_cu_batch check_batch(check *c, const um_batch *b, const um_message_capacity *capacity, char **host) {
    const size_t size = um_message_bound(b, capacity);
    char *bytes = (char *)check_host(c, size + UM_MESSAGE_ALIGN);
    bytes += UM_MESSAGE_ALIGN - (uintptr_t)bytes % UM_MESSAGE_ALIGN;
    const size_t n = um_message_pack(b, capacity, NULL, bytes, size);
    check_true(c, n > 0 && n <= size, "the message has %zu bytes, at most %zu were expected", n, size);
    if (host) *host = bytes;
    const um_message_layout l = um_message_layout_of(capacity);
    const char *d = (const char *)check_upload(c, bytes, n);
    um_cu_batch out = {};
    out.message = d;
    out.capacity = *capacity;
    out.id = (const int32_t *)(d + l.id);
    out.pos = (const int32_t *)(d + l.pos);
    out.slot = (const int32_t *)(d + l.slot);
    out.near_slot = (const int32_t *)(d + l.near_slot);
    out.seen_end = (const int32_t *)(d + l.seen_end);
    out.span_of = (const int32_t *)(d + l.span_of);
    out.soft = (const int32_t *)(d + l.soft);
    out.route_block = (const int32_t *)(d + l.route_block);
    out.span = (const um_message_span *)(d + l.span);
    out.tile = (const um_message_tile *)(d + l.tile);
    out.row = (const um_message_row *)(d + l.row);
    out.save = (const int32_t(*)[2])(d + l.save);
    return out;
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

static void fail(check *c, const char *fmt, va_list args) {
    if (c->failed) return; /* the first message counts */
    c->failed = true;
    vsnprintf(c->message, sizeof c->message, fmt, args);
}

void check_true(check *c, bool ok, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    if (!ok) fail(c, fmt, args);
    va_end(args);
}

bool check_skips(check *c, bool there, const char *what) {
    c->missing = there ? NULL : what;
    return !there;
}

void check_status(check *c, um_status s, const um_err *err) { check_true(c, s == UM_OK, "%s", s ? err->msg : ""); }

void check_cuda(check *c, cudaError_t e, const char *what) {
    if (e == cudaSuccess) e = cudaStreamSynchronize(c->stream);
    if (e == cudaSuccess) e = cudaGetLastError();
    check_true(c, e == cudaSuccess, "%s: %s", what, cudaGetErrorString(e));
}

void check_close(check *c, const char *what, const float *got, const float *want, size_t n, double most) {
    double difference = 0, length = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)got[i] - want[i];
        if (isnan(got[i])) {
            check_true(c, false, "%s[%zu] is NaN, expected %g", what, i, want[i]);
            return;
        }
        difference += d * d;
        length += (double)want[i] * want[i];
    }
    const double error = length > 0 ? sqrt(difference / length) : sqrt(difference);
    c->worst = fmax(c->worst, error);
    check_true(c, error <= most, "%s: relative error %.2e, at most %.2e is allowed", what, error, most);
}

void check_same(check *c, const char *what, const void *got, const void *want, size_t bytes) {
    const unsigned char *a = (const unsigned char *)got, *b = (const unsigned char *)want;
    for (size_t i = 0; i < bytes; i++)
        if (a[i] != b[i]) {
            check_true(c, false, "%s: byte %zu is %d, expected %d", what, i, a[i], b[i]);
            return;
        }
}

/* ---- Times ------------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

void check_time(check *c, double bytes, double flops, void (*call)(void *arg), void *arg) {
    float ms[RUNS];
    cudaEvent_t from, to;
    if (!c->timed || c->failed) return;
    end("cudaEventCreate", cudaEventCreate(&from));
    end("cudaEventCreate", cudaEventCreate(&to));
    for (int i = -2; i < RUNS; i++) {
        end("cudaMemsetAsync", cudaMemsetAsync(c->flush, i & 255, FLUSH_BYTES, c->stream));
        end("cudaEventRecord", cudaEventRecord(from, c->stream));
        call(arg);
        end("cudaEventRecord", cudaEventRecord(to, c->stream));
        end("cudaEventSynchronize", cudaEventSynchronize(to));
        if (i >= 0) end("cudaEventElapsedTime", cudaEventElapsedTime(&ms[i], from, to));
    }
    qsort(ms, RUNS, sizeof ms[0], by_value);
    c->us = 1000.0 * ms[RUNS / 2];
    c->bytes = bytes;
    c->flops = flops;
    cudaEventDestroy(from);
    cudaEventDestroy(to);
}

static __global__ void read_all(const uint4 *p, size_t n, unsigned *out) {
    uint4 sum = {};
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        const uint4 v = p[i];
        sum.x ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (sum.x == 1) *out = sum.x;
}

/* Returns the rate of reading 1 GiB, in bytes a second. */
static double read_rate(check *c) {
    const size_t n = (size_t)1 << 30;
    uint4 *p = (uint4 *)check_device(c, n);
    unsigned *out = (unsigned *)check_device(c, 4);
    cudaEvent_t from, to;
    float best = 1e9f, ms;
    end("cudaEventCreate", cudaEventCreate(&from));
    end("cudaEventCreate", cudaEventCreate(&to));
    for (int i = 0; i < 10; i++) {
        end("cudaEventRecord", cudaEventRecord(from, c->stream));
        read_all<<<132 * 4, 1024, 0, c->stream>>>(p, n / sizeof *p, out);
        end("cudaEventRecord", cudaEventRecord(to, c->stream));
        end("cudaEventSynchronize", cudaEventSynchronize(to));
        end("cudaEventElapsedTime", cudaEventElapsedTime(&ms, from, to));
        best = fminf(best, ms);
    }
    free_all(c);
    return (double)n / best * 1000;
}

/* ---- The program ------------------------------------------------------------------------------------------------- */

static const check_list *const lists[] = {
    &embed_checks,  &norm_checks,   &product_checks, &stream_checks, &low_rank_checks, &kv_checks,  &attention_checks,
    &select_checks, &router_checks, &moe_checks,     &head_checks,   &fp8_checks,      &rank_checks};

/* Which cases run: those whose name contains `only` and none of the words in `skip`. Of these each parts-th runs, from
 * number `part` on. */
typedef struct choice {
    const char *only, *skip[SKIP_MAX];
    int n_skip;
    int part, parts;
} choice;

static bool is_chosen(const choice *h, const char *name) {
    for (int i = 0; i < h->n_skip; i++)
        if (strstr(name, h->skip[i])) return false;
    return strstr(name, h->only) != NULL;
}

/* The cases that ran, and those of them that failed or were skipped. */
typedef struct counts {
    int run, failed, skipped;
} counts;

static void run_case(check *c, const check_case *k, double rate, counts *n) {
    c->failed = false;
    c->missing = NULL;
    c->worst = c->us = c->bytes = c->flops = 0;
    const uint64_t counter = c->counter;
    const double start = um_now();
    k->run(c, k);
    check_cuda(c, cudaSuccess, "kernels");
    free_all(c);
    printf("%-4s %-56s %9.1e %6.2f s",
           c->failed    ? "FAIL"
           : c->missing ? "skip"
                        : "ok",
           k->name, c->worst, um_now() - start);
    if (c->missing) printf(" the device has no %s", c->missing);
    if (c->us > 0)
        printf(" %9.1f us %7.0f GB/s %7.1f TFLOP/s %4.0f %%", c->us, c->bytes / c->us / 1e3, c->flops / c->us / 1e6,
               100 * c->bytes / rate / (c->us * 1e-6));
    if (c->failed) printf("\n     %s (counter %llu)", c->message, (unsigned long long)counter);
    printf("\n");
    fflush(stdout);
    n->failed += c->failed;
    n->skipped += !c->failed && c->missing;
}

/* Returns the argument behind *i and moves *i there; NULL: none is left. */
static const char *value_of(int argc, char **argv, int *i) { return *i + 1 < argc ? argv[++*i] : NULL; }

/* Reads "I/N" with 0 <= I < N. */
static bool read_part(const char *text, choice *h) {
    return text && sscanf(text, "%d/%d", &h->part, &h->parts) == 2 && h->part >= 0 && h->part < h->parts;
}

/* Returns whether the arguments are good. */
static bool read_arguments(int argc, char **argv, check *c, choice *h, bool *list) {
    for (int i = 1; i < argc; i++) {
        bool ok = true;
        if (!strcmp(argv[i], "--time")) c->timed = true;
        else if (!strcmp(argv[i], "--unset")) c->unset = true;
        else if (!strcmp(argv[i], "--list")) *list = true;
        else if (!strcmp(argv[i], "--verbose")) um_log_set_level(UM_LOG_DEBUG);
        else if (!strcmp(argv[i], "--part")) ok = read_part(value_of(argc, argv, &i), h);
        else if (!strcmp(argv[i], "--only")) ok = (h->only = value_of(argc, argv, &i)) != NULL;
        else if (!strcmp(argv[i], "--skip") && h->n_skip < SKIP_MAX)
            ok = (h->skip[h->n_skip++] = value_of(argc, argv, &i)) != NULL;
        else ok = false;
        if (!ok) return false;
    }
    return true;
}

int main(int argc, char **argv) {
    choice chosen = {.only = "", .parts = 1};
    bool list = false;
    check *c = UM_NEW(check);
    if (!read_arguments(argc, argv, c, &chosen, &list)) {
        fprintf(stderr,
                "usage: check [--time] [--unset] [--only WORD] [--skip WORD] [--part I/N] [--list] [--verbose]\n");
        return 2;
    }
    const char *seed = getenv("UM_TEST_SEED");
    c->seed = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
    double rate = 1;
    if (!list) {
        cudaDeviceProp device;
        end("cudaGetDeviceProperties", cudaGetDeviceProperties(&device, 0));
        end("cudaStreamCreate", cudaStreamCreate(&c->stream));
        if (c->timed) {
            rate = read_rate(c);
            end("cudaMalloc", cudaMalloc(&c->flush, FLUSH_BYTES));
        }
        printf("device %s, sm_%d%d, seed %llu (UM_TEST_SEED)", device.name, device.major, device.minor,
               (unsigned long long)c->seed);
        if (c->timed) printf(", reads %.0f GB/s", rate / 1e9);
        printf("\n");
    }
    int n_chosen = 0;
    counts n = {};
    for (size_t i = 0; i < UM_LEN(lists); i++)
        for (int k = 0; k < lists[i]->n_cases; k++) {
            if (!is_chosen(&chosen, lists[i]->cases[k].name)) continue;
            if (n_chosen++ % chosen.parts != chosen.part) continue;
            n.run++;
            if (list) printf("%s\n", lists[i]->cases[k].name);
            else run_case(c, &lists[i]->cases[k], rate, &n);
        }
    if (!list) printf("%d cases, %d failed, %d skipped\n", n.run, n.failed, n.skipped);
    return n.failed || !n.run;
}
