/* product_plan: chooses the algorithms of cuBLASLt for a weight shape, one for each bucket of tokens, so that the bits
 * of a row do not depend on the number of tokens.
 *
 * The algorithms of the library differ in the order of their sums, and nothing in the interface tells the order. So
 * each candidate computes one fixed product, and its bits are compared. In this product
 *
 * - row t of x equals row t % PERIOD: an algorithm whose bits depend on the place of a row shows different rows;
 * - the second half of each weight row is the negative of the first half, and x repeats: the true sums are 0, and the
 *   results are nothing but the rounding errors of the sums. Another order gives other errors, so that nearly all
 *   elements differ, even in bf16. In e4m3 the halves are equal, because the matrix units add such products with so few
 *   bits that sums which cancel leave nothing. Other orders show in the elements that are rounded to another bf16.
 *
 * A hash of the first PERIOD rows names the order. Of the orders that candidates of the small buckets have, the one
 * that occurs in most buckets is chosen, then the one with most candidates. The choice does not look at times, the
 * weights or the number of tokens that the caller needs, so every process with the same library and kind of device
 * makes the same one. Among the candidates of the chosen order, the fastest of each bucket becomes its plan. */
#include "cuda/product.cuh"

enum {
    PROPOSALS = 16,
    CANDIDATES = PROPOSALS + 1,
    RUNS = 3,
    PERIOD = 8,
    VOTING_TOKENS = 256,
    THREADS = 256,
    WARP = 32,
    ALIGN = 256
};
enum { MANY_TOKENS = 1024, MANY_PROPOSALS = 8 }; /* products of this size take long: fewer candidates will do */
/* The time that a kernel of our own saves in a pass, where it reads its first weights while the kernel before ends. A
 * single product does not show it. */
static const float EARLY_US = 4;
static const size_t FLUSH_BYTES = (size_t)128 << 20; /* overwritten before each timed run to clear the L2 cache */

/* The bits of the fixed product as an algorithm computes it. */
typedef struct outcome {
    unsigned long long hash[PERIOD]; /* of each of the first rows */
    int uneven;                      /* 1: a row t differs from row t % PERIOD */
} outcome;

typedef struct trial {
    um_cu_method method;
    int bucket;
    bool usable; /* runs for all numbers of tokens of the bucket, with the same bits in all rows */
    bool agrees; /* has the chosen order */
    unsigned long long hash[PERIOD];
} trial;

/* The memory of a test, and its results. */
typedef struct test {
    um_cu_products *p;
    um_cu_shape *shape;
    cudaStream_t stream;
    cudaEvent_t from, to;
    char *memory; /* all of the device memory */
    um_cu_matrix w;
    char *x, *y, *flush;
    char *gate;   /* the output of a gate, for gated shapes */
    float *ones;  /* the scales of all rows, for UM_F8 */
    float *block; /* the factors of the blocks of w, for shapes that have them */
    outcome *result;
    trial *trial; /* [n_trials] */
    int n_trials;
    float us[UM_CU_BUCKETS]; /* times of the plans */
} test;

#define LT_TRY(call, err)                                                                                              \
    do {                                                                                                               \
        const um_status lt_status = um_cu_lt_check((call), #call, err);                                                \
        if (lt_status) return lt_status;                                                                               \
    } while (0)

/* ---- The fixed product ------------------------------------------------------------------------------------------- */

static __device__ uint64_t mix(uint64_t v) {
    v = (v ^ v >> 33) * 0xff51afd7ed558ccdull;
    v = (v ^ v >> 33) * 0xc4ceb9fe1a85ec53ull;
    return v ^ v >> 33;
}

/* Returns a bf16 of random sign, mantissa and magnitude, 2^-12 up to 1. The wide range makes all sums inexact. */
static __device__ um_bf16 noise(uint64_t seed, uint64_t i) {
    const uint64_t r = mix(seed << 48 ^ (i + 1));
    const unsigned sign = (unsigned)(r >> 63), mantissa = (unsigned)(r >> 8) & 127, down = (unsigned)(r >> 32) % 12;
    return __ushort_as_bfloat16((unsigned short)(sign << 15 | (126 - down) << 7 | mantissa));
}

/* Stores a number of e4m3 of random sign, mantissa and magnitude, 2^-6 up to 2^5. */
static __device__ void store_noise(unsigned char *to, uint64_t seed, uint64_t i, bool negative) {
    const uint64_t r = mix(seed << 48 ^ (i + 1));
    const unsigned exponent = 1 + (unsigned)(r >> 32) % 11, mantissa = (unsigned)(r >> 8) & 7;
    *to = (unsigned char)((unsigned)((r >> 63 & 1) ^ negative) << 7 | exponent << 3 | mantissa);
}
static __device__ void store_noise(um_bf16 *to, uint64_t seed, uint64_t i, bool negative) {
    const um_bf16 v = noise(seed, i);
    *to = negative ? __hneg(v) : v;
}

/* Fills an operand [rows, in] whose rows repeat after `period` rows. The second half of a row is the first half, or its
 * negative. Grid: [blocks of a row, rows]; rows beyond the grid are left to further rounds. */
template <typename E>
static __global__ void fill_operand(E *out, int32_t rows, int32_t in, int32_t period, bool negative, uint64_t seed) {
    const int32_t k = blockIdx.x * THREADS + threadIdx.x, half = in / 2;
    if (k >= in) return;
    for (int32_t row = blockIdx.y; row < rows; row += gridDim.y)
        store_noise(&out[(size_t)row * in + k], seed, (uint64_t)(row % period) * half + k % half,
                    negative && k >= half);
}

/* Stores 1, or with `random` numbers from 0.5 to 1.5. */
static __global__ void fill_scales(float *out, int32_t n, bool random) {
    const int32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) out[i] = random ? 0.5f + 0x1p-32f * (float)(mix(i + 1) >> 32) : 1;
}

/* Fills y [T, rows] before a product: with NaN, or with values of the size of the rounding errors for products that add
 * to y. */
static __global__ void fill_output(float *wide, um_bf16 *narrow, int32_t rows, bool add) {
    const int32_t i = blockIdx.x * THREADS + threadIdx.x, t = blockIdx.y;
    if (i >= rows) return;
    const float small = __bfloat162float(noise(3, (uint64_t)(t % PERIOD) * rows + i)) * 0x1p-18f;
    const float v = add ? small : __int_as_float(0x7fffffff);
    const size_t at = (size_t)t * rows + i;
    if (wide) wide[at] = v;
    else narrow[at] = __float2bfloat16_rn(v);
}

static __device__ uint32_t bits_of(const void *y, bool is_wide, size_t at) {
    return is_wide ? ((const uint32_t *)y)[at] : ((const uint16_t *)y)[at];
}

/* Grid: [blocks of a row, T]. The hash of a row is a sum of integers, so its order does not matter. */
static __global__ void inspect(const void *y, bool is_wide, int32_t rows, outcome *out) {
    const int32_t i = blockIdx.x * THREADS + threadIdx.x, t = blockIdx.y;
    uint64_t hash = 0;
    if (i < rows) {
        const uint32_t bits = bits_of(y, is_wide, (size_t)t * rows + i);
        if (t < PERIOD) hash = mix((uint64_t)bits << 32 | (uint32_t)i);
        else if (bits != bits_of(y, is_wide, (size_t)(t % PERIOD) * rows + i)) out->uneven = 1;
    }
    if (t >= PERIOD) return;
    for (int step = WARP / 2; step; step /= 2) hash += __shfl_xor_sync(0xffffffffu, hash, step);
    if (threadIdx.x % WARP == 0) atomicAdd(&out->hash[t], (unsigned long long)hash);
}

static dim3 grid_of(int32_t width, int32_t rows) {
    return dim3((unsigned)UM_CEIL_DIV(width, THREADS), (unsigned)UM_MIN(rows, 32768));
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static size_t rounded(size_t bytes) { return UM_CEIL_DIV(bytes, (size_t)ALIGN) * ALIGN; }

template <typename E> static void fill_operands(const test *e, int32_t T) {
    const int32_t rows = e->shape->rows, in = e->shape->in;
    fill_operand<<<grid_of(in, rows), THREADS, 0, e->stream>>>((E *)e->w.data, rows, in, rows, !e->ones, 1);
    fill_operand<<<grid_of(in, T), THREADS, 0, e->stream>>>((E *)e->x, T, in, PERIOD, false, 2);
}

/* Returns the fixed product for T tokens. */
static um_cu_job job_of(const test *e, int32_t T) { return {&e->w, {e->x, e->ones, T}, e->y, e->shape->rows}; }

static void set_scales(const test *e, float *out, size_t n, bool random) {
    fill_scales<<<(unsigned)UM_CEIL_DIV(n, (size_t)THREADS), THREADS, 0, e->stream>>>(out, (int32_t)n, random);
}

static um_status open_test(test *e, um_cu_products *p, um_cu_shape *shape, um_err *err) {
    const size_t T = (size_t)um_cu_bucket[shape->n_buckets - 1], rows = (size_t)shape->rows, in = (size_t)shape->in;
    const size_t size = um_dtype_size(shape->type), n_ones = shape->type == UM_F8 ? UM_MAX(rows, T) : 0;
    const size_t w_bytes = rounded(um_mul(rows, in) * size), x_bytes = rounded(T * in * size);
    const size_t y_bytes = rounded(T * rows * um_dtype_size(shape->out_type)), ones = rounded(n_ones * sizeof(float));
    const size_t gate_bytes = shape->gated ? rounded(y_bytes / 2) : 0;
    const size_t block_bytes = shape->blocks ? rounded(um_cu_block_bytes(shape->rows, shape->in)) : 0;
    const size_t bytes =
        w_bytes + x_bytes + y_bytes + gate_bytes + ones + block_bytes + FLUSH_BYTES + rounded(sizeof(outcome));
    e->p = p;
    e->shape = shape;
    e->trial = UM_NEW_ARRAY(trial, (size_t)UM_CU_BUCKETS * CANDIDATES);
    if (cudaMalloc(&e->memory, bytes) != cudaSuccess) {
        cudaGetLastError(); /* clears the error */
        return um_fail(err, UM_ENOMEM,
                       "expected %zu MiB of free device memory to plan the products of a %d x %d matrix", bytes >> 20,
                       shape->rows, shape->in);
    }
    e->x = e->memory + w_bytes;
    e->y = e->x + x_bytes;
    e->ones = n_ones ? (float *)(e->y + y_bytes) : NULL;
    e->gate = e->y + y_bytes + ones;
    e->block = shape->blocks ? (float *)(e->gate + gate_bytes) : NULL;
    e->flush = e->gate + gate_bytes + block_bytes;
    e->result = (outcome *)(e->flush + FLUSH_BYTES);
    e->w = {shape->rows, shape->in, shape->type, e->memory, e->ones, e->block};
    UM_CU_TRY(cudaStreamCreateWithFlags(&e->stream, cudaStreamNonBlocking), err);
    UM_CU_TRY(cudaEventCreate(&e->from), err);
    UM_CU_TRY(cudaEventCreate(&e->to), err);
    if (n_ones) {
        set_scales(e, e->ones, n_ones, false);
        if (e->block) set_scales(e, e->block, um_cu_block_bytes(shape->rows, shape->in) / sizeof *e->block, true);
        fill_operands<unsigned char>(e, (int32_t)T);
    } else {
        fill_operands<um_bf16>(e, (int32_t)T);
    }
    return um_cu_launched("the operands of a test", err);
}

static void close_test(test *e) {
    if (e->from) cudaEventDestroy(e->from);
    if (e->to) cudaEventDestroy(e->to);
    if (e->stream) cudaStreamDestroy(e->stream);
    if (e->memory) cudaFree(e->memory);
    um_free(e->trial);
}

/* ---- Candidates -------------------------------------------------------------------------------------------------- */

static bool splits_columns(const cublasLtMatmulAlgo_t *algo) {
    int32_t n = 1;
    size_t written;
    const cublasStatus_t s =
        cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &n, sizeof n, &written);
    return s == CUBLAS_STATUS_SUCCESS && n > 1;
}

/* Sets the demands on an algorithm. */
static um_status set_preference(cublasLtMatmulPreferenceOpaque_t *preference, const test *e, um_err *err) {
    const um_cu_products *p = e->p;
    const size_t workspace = p->workspace_bytes - um_cu_scales_bytes(e->shape);
    static const cublasLtMatmulPreferenceAttributes_t align[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint32_t alignment = 16, no_reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
    LT_TRY(cublasLtMatmulPreferenceInit(preference), err);
    LT_TRY(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                sizeof workspace),
           err);
    for (size_t i = 0; i < UM_LEN(align); i++)
        LT_TRY(cublasLtMatmulPreferenceSetAttribute(preference, align[i], &alignment, sizeof alignment), err);
    if (p->deterministic)
        LT_TRY(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                    &no_reduction, sizeof no_reduction),
               err);
    return UM_OK;
}

/* Appends the kernel of our own to the trials of a bucket: that of product_stream.cu, or for more tokens that of
 * product_many.cu. */
static void propose_own(test *e, int bucket) {
    um_cu_stream job = {};
    job.rows = job.stride = e->shape->rows, job.in = e->shape->in, job.T = um_cu_bucket[bucket];
    job.add = e->shape->add, job.out_type = e->shape->out_type, job.w_scale = e->ones, job.w_block = e->block;
    const bool many = job.T > UM_CU_STREAM_TOKENS;
    if (!e->p->has_stream || !(many ? um_cu_many_suits(&job) : um_cu_stream_suits(&job))) return;
    trial *added = &e->trial[e->n_trials++];
    added->method.kind = many ? UM_CU_MANY : UM_CU_STREAM;
    added->bucket = bucket;
}

/* Appends the library's proposals for a bucket to the trials. */
static um_status propose(test *e, int bucket, um_err *err) {
    cublasLtMatmulHeuristicResult_t found[PROPOSALS];
    cublasLtMatmulPreferenceOpaque_t preference;
    um_cu_layouts l;
    int n = 0;
    const int32_t T = um_cu_bucket[bucket];
    const um_status s = set_preference(&preference, e, err);
    if (s) return s;
    LT_TRY(um_cu_layouts_init(&l, e->shape, T, e->shape->rows), err);
    const um_cu_job job = job_of(e, T);
    cublasLtMatmulDescOpaque_t description = um_cu_description(e->p, &job);
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(e->p->lt, &description, &l.w, &l.x, &l.y, &l.y, &preference,
                                       T >= MANY_TOKENS ? (int)MANY_PROPOSALS : (int)PROPOSALS, found, &n);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return UM_OK;
    LT_TRY(status, err);
    for (int i = 0; i < n; i++) {
        if (found[i].state != CUBLAS_STATUS_SUCCESS ||
            found[i].workspaceSize > e->p->workspace_bytes - um_cu_scales_bytes(e->shape))
            continue;
        if (e->p->deterministic && splits_columns(&found[i].algo)) continue;
        trial *added = &e->trial[e->n_trials++];
        added->method.algo = found[i].algo;
        added->bucket = bucket;
    }
    return UM_OK;
}

/* Computes the fixed product for T tokens. *runs: false when the algorithm does not support it. */
static um_status compute(test *e, const um_cu_method *method, int32_t T, outcome *out, bool *runs, um_err *err) {
    const um_cu_shape *shape = e->shape;
    const bool is_wide = shape->out_type == UM_F32;
    const dim3 grid = grid_of(shape->rows, T);
    fill_output<<<grid, THREADS, 0, e->stream>>>(is_wide ? (float *)e->y : NULL, is_wide ? NULL : (um_bf16 *)e->y,
                                                 shape->rows, shape->add);
    UM_CU_TRY(cudaMemsetAsync(e->result, 0, sizeof *e->result, e->stream), err);
    const um_cu_job job = job_of(e, T);
    *runs = um_cu_method_start(e->p, shape, method, &job, e->stream);
    if (!*runs) cudaGetLastError(); /* a launch with a wrong configuration is no failure of the device */
    inspect<<<grid, THREADS, 0, e->stream>>>(e->y, is_wide, shape->rows, e->result);
    UM_CU_TRY(cudaMemcpyAsync(out, e->result, sizeof *out, cudaMemcpyDeviceToHost, e->stream), err);
    UM_CU_TRY(cudaStreamSynchronize(e->stream), err);
    return um_cu_launched("a test of a product", err);
}

/* Runs a trial with the most and the fewest tokens of its bucket. */
static um_status run_trial(test *e, trial *t, um_err *err) {
    /* With factors of blocks the library computes four of five tokens, and product_stream.cu the last one. */
    const int32_t least = e->shape->blocks ? 5 : 1, most = um_cu_bucket[t->bucket];
    const int32_t fewest = t->bucket ? um_cu_bucket[t->bucket - 1] + 1 : least;
    outcome full, part;
    bool runs;
    um_status s = compute(e, &t->method, most, &full, &runs, err);
    if (s || !runs) return s;
    s = compute(e, &t->method, fewest, &part, &runs, err);
    if (s || !runs) return s;
    memcpy(t->hash, full.hash, sizeof t->hash);
    t->usable = true;
    if (e->p->deterministic)
        t->usable = !full.uneven && !part.uneven &&
                    !memcmp(full.hash, part.hash, (size_t)UM_MIN(fewest, PERIOD) * sizeof full.hash[0]);
    return UM_OK;
}

/* ---- Choice ------------------------------------------------------------------------------------------------------ */

static bool same_order(const trial *a, const trial *b) { return !memcmp(a->hash, b->hash, sizeof a->hash); }

/* Marks the trials of the chosen order. Returns one of them; NULL: there is none. */
static const trial *choose_order(test *e) {
    const trial *chosen = NULL;
    int best_buckets = 0, best_trials = 0;
    for (int i = 0; i < e->n_trials; i++) {
        bool seen[UM_CU_BUCKETS] = {};
        int buckets = 0, trials = 0;
        const trial *a = &e->trial[i];
        if (!a->usable || um_cu_bucket[a->bucket] > VOTING_TOKENS) continue;
        for (int j = 0; j < e->n_trials; j++) {
            const trial *b = &e->trial[j];
            if (!b->usable || um_cu_bucket[b->bucket] > VOTING_TOKENS || !same_order(a, b)) continue;
            buckets += !seen[b->bucket];
            seen[b->bucket] = true;
            trials++;
        }
        if (buckets > best_buckets || (buckets == best_buckets && trials > best_trials)) {
            chosen = a;
            best_buckets = buckets;
            best_trials = trials;
        }
    }
    for (int i = 0; chosen && i < e->n_trials; i++) {
        trial *t = &e->trial[i];
        t->agrees = t->usable && (!e->p->deterministic || same_order(t, chosen));
        e->p->info.n_agreed += t->agrees;
        e->shape->like_stream |= t->method.kind == UM_CU_STREAM && t->agrees;
    }
    return chosen;
}

/* The work that is timed: the product, the product and then the kernel of the gate, or the kernel that computes both.
 */
typedef enum work { PRODUCT, PRODUCT_AND_GATE, GATED_PRODUCT } work;

static um_cu_job gated_job_of(const test *e, int32_t T) {
    um_cu_job job = job_of(e, T);
    job.y = e->gate;
    job.stride = e->shape->rows / 2;
    return job;
}

static bool start_work(const test *e, work what, const um_cu_method *method, int32_t T) {
    const um_cu_job job = job_of(e, T), gated = gated_job_of(e, T);
    if (what == GATED_PRODUCT) return um_cu_gated_start(e->p, &gated, e->stream);
    if (!um_cu_method_start(e->p, e->shape, method, &job, e->stream)) return false;
    if (what == PRODUCT_AND_GATE) um_cu_gate(e->y, T, gated.stride, UM_ACT_SILU, UM_BF16, e->gate, NULL, e->stream);
    return true;
}

/* Measures a method for the largest number of tokens of a bucket: the shortest of a few runs. Gives up early on slow
 * ones: those that take twice `best` microseconds. */
static um_status measure(test *e, work what, const um_cu_method *method, int bucket, float best, float *us,
                         um_err *err) {
    *us = INFINITY;
    for (int i = 0; i < RUNS && (i == 0 || *us < 2 * best); i++) {
        float ms;
        UM_CU_TRY(cudaMemsetAsync(e->flush, i, FLUSH_BYTES, e->stream), err);
        UM_CU_TRY(cudaEventRecord(e->from, e->stream), err);
        if (!start_work(e, what, method, um_cu_bucket[bucket]))
            return um_fail(err, UM_EDEVICE, "a product of %d tokens that ran before failed", um_cu_bucket[bucket]);
        UM_CU_TRY(cudaEventRecord(e->to, e->stream), err);
        UM_CU_TRY(cudaEventSynchronize(e->to), err);
        UM_CU_TRY(cudaEventElapsedTime(&ms, e->from, e->to), err);
        *us = UM_MIN(*us, 1000 * ms);
    }
    if (method->kind != UM_CU_LIBRARY) *us -= EARLY_US;
    return UM_OK;
}

/* Makes the fastest trial of the chosen order the plan of its bucket. */
static um_status take_fastest(test *e, um_err *err) {
    for (int i = 0; i < e->n_trials; i++) {
        const trial *t = &e->trial[i];
        um_cu_plan *plan = &e->shape->plan[t->bucket];
        float us;
        if (!t->agrees) continue;
        const um_status s =
            measure(e, PRODUCT, &t->method, t->bucket, plan->rows_at_once ? e->us[t->bucket] : INFINITY, &us, err);
        if (s) return s;
        if (plan->rows_at_once && us >= e->us[t->bucket]) continue;
        e->us[t->bucket] = us;
        plan->method = t->method;
        plan->rows_at_once = um_cu_bucket[t->bucket];
    }
    return UM_OK;
}

/* Lets product_many.cu compute product and gate at once where that is faster than the plan and the gate. */
static um_status plan_gates(test *e, um_err *err) {
    um_status s = UM_OK;
    for (int i = 0; i < e->n_trials && !s; i++) {
        const trial *t = &e->trial[i];
        um_cu_plan *plan = &e->shape->plan[t->bucket];
        float apart, together;
        const um_cu_job gated = gated_job_of(e, um_cu_bucket[t->bucket]);
        if (!t->agrees || t->method.kind != UM_CU_MANY || !um_cu_gated_suits(&gated)) continue;
        s = measure(e, PRODUCT_AND_GATE, &plan->method, t->bucket, INFINITY, &apart, err);
        if (!s) s = measure(e, GATED_PRODUCT, &t->method, t->bucket, INFINITY, &together, err);
        if (!s) plan->gated = together < apart;
    }
    return s;
}

/* Tries the algorithm of another bucket for a bucket that has no plan. */
static um_status borrow(test *e, int bucket, const um_cu_plan *from, const trial *chosen, um_err *err) {
    trial t = {};
    t.method = from->method;
    t.bucket = bucket;
    const um_status s = run_trial(e, &t, err);
    if (s || !t.usable || (e->p->deterministic && !same_order(&t, chosen))) return s;
    e->shape->plan[bucket].method = from->method;
    e->shape->plan[bucket].rows_at_once = um_cu_bucket[bucket];
    return UM_OK;
}

/* Gives a plan to the buckets without one: the algorithm of the nearest bucket that works for it; else the plan of the
 * next smaller bucket, which then computes the tokens in groups. Without either, the shape goes without cuBLASLt. */
static um_status fill_gaps(test *e, const trial *chosen, um_err *err) {
    um_cu_shape *shape = e->shape;
    um_cu_plan found[UM_CU_BUCKETS];
    memcpy(found, shape->plan, sizeof found);
    for (int b = 0; b < shape->n_buckets; b++) {
        um_cu_plan *plan = &shape->plan[b];
        for (int far = 1; far < shape->n_buckets && !plan->rows_at_once; far++)
            for (int side = -1; side <= 1 && !plan->rows_at_once; side += 2) {
                const int other = b + side * far;
                if (other < 0 || other >= shape->n_buckets || !found[other].rows_at_once) continue;
                const um_status s = borrow(e, b, &found[other], chosen, err);
                if (s) return s;
            }
        if (plan->rows_at_once) continue;
        if (b == 0) {
            shape->simt = true;
            return UM_OK;
        }
        *plan = shape->plan[b - 1];
        e->p->info.n_grouped++;
    }
    return UM_OK;
}

static um_status plan(test *e, um_err *err) {
    um_status s = UM_OK;
    for (int b = 0; b < e->shape->n_buckets && !s; b++) {
        propose_own(e, b);
        s = propose(e, b, err);
    }
    for (int i = 0; i < e->n_trials && !s; i++) s = run_trial(e, &e->trial[i], err);
    if (s) return s;
    e->p->info.n_tried += e->n_trials;
    const trial *chosen = choose_order(e);
    if (!chosen) {
        e->shape->simt = true;
        return UM_OK;
    }
    s = take_fastest(e, err);
    if (!s && e->shape->gated && e->shape->type == UM_BF16 && e->shape->out_type == UM_BF16) s = plan_gates(e, err);
    return s ? s : fill_gaps(e, chosen, err);
}

/* Writes one line to the log: the microseconds of each plan, with s or m for the kernels of our own, and with g where
 * product_many.cu computes the gate as well. */
static void report(const test *e, double seconds) {
    char line[512];
    int n = 0;
    for (int b = 0; b < e->shape->n_buckets && n < (int)sizeof line - 32; b++) {
        const um_cu_plan *plan = &e->shape->plan[b];
        static const char *const kinds[] = {"", "s", "m"};
        n += snprintf(line + n, sizeof line - (size_t)n, " %d:%.1f%s%s", um_cu_bucket[b], (double)e->us[b],
                      kinds[plan->method.kind], plan->gated ? "g" : "");
    }
    um_log(UM_LOG_DEBUG, "products %d x %d%s to %s%s: %d algorithms in %.2f s; tokens:us%s%s", e->shape->rows,
           e->shape->in, e->shape->blocks ? " in blocks" : "", um_dtype_name(e->shape->out_type),
           e->shape->add ? ", added" : "", e->n_trials, seconds, line, e->shape->simt ? "; without cuBLASLt" : "");
}

um_status um_cu_plan_shape(um_cu_products *p, um_cu_shape *shape, int32_t max_rows, um_err *err) {
    const double start = um_now();
    const int32_t most = UM_MAX(max_rows, (int32_t)VOTING_TOKENS);
    test e = {};
    shape->n_buckets = 1;
    while (shape->n_buckets < UM_CU_BUCKETS && um_cu_bucket[shape->n_buckets - 1] < most) shape->n_buckets++;
    um_status s = open_test(&e, p, shape, err);
    if (!s) s = plan(&e, err);
    if (!s) report(&e, um_now() - start);
    close_test(&e);
    return s;
}
