/* The exchange of results among the ranks of a group: sums, sums with norms, and rows that are gathered. Each rank
 * needs a GPU of its own, so a case has at most as many ranks as there are GPUs. */
#include "check.cuh"

enum { REPEATS = 6, IN_GRAPH = 64 };

/* Ends the program when a call has failed. Unlike check_cuda it waits for no stream: kernels of ranks wait for each
 * other. */
static void must(cudaError_t e) {
    if (e == cudaSuccess) return;
    printf("ranks: %s\n", cudaGetErrorString(e));
    exit(1);
}

/* ---- Ranks ------------------------------------------------------------------------------------------------------- */

typedef struct rank_data {
    int device;
    cudaStream_t stream;
    uint32_t *flag, *count;
    void *part[2];
    char *inbox[2];
    float *x, *y32;
    void *y;
    um_cu_coded coded; /* y in e4m3, of bf16 with a norm */
    cudaGraphExec_t graph;
} rank_data;

typedef struct group {
    check *c;
    int32_t n, rows, H;
    um_dtype type;
    bool normed; /* a norm follows the sum */
    const float *w;
    int32_t *stop;
    rank_data rank[UM_RANKS_MAX];
    const float *weight[UM_RANKS_MAX]; /* w on each device */
    um_cu_gather gather;               /* without a meeting */
    const float *sum[2];               /* of the parts of each turn */
} group;

static void *zeroed(check *c, size_t bytes) {
    void *p = check_guarded(c, bytes);
    must(cudaMemset(p, 0, bytes));
    return p;
}

static void let_read(int from, int to) {
    must(cudaSetDevice(from));
    const cudaError_t e = cudaDeviceEnablePeerAccess(to, 0);
    if (e == cudaErrorPeerAccessAlreadyEnabled) cudaGetLastError();
    else must(e);
}

/* Returns the ranks of a case: those that it wants, or fewer. */
static int32_t ranks_of(const check_case *k) {
    int there = 0;
    must(cudaGetDeviceCount(&there));
    return UM_MIN(k->n[0], there);
}

static void start_group(group *g) {
    check *c = g->c;
    const size_t all = (size_t)g->rows * (size_t)g->H;
    must(cudaHostAlloc((void **)&g->stop, sizeof *g->stop, cudaHostAllocPortable));
    *g->stop = 0;
    for (int32_t r = 0; r < g->n; r++) {
        rank_data *d = &g->rank[r];
        d->device = r;
        for (int32_t k = 0; k < r; k++) let_read(d->device, g->rank[k].device), let_read(g->rank[k].device, d->device);
        must(cudaSetDevice(d->device));
        d->stream = check_stream(c);
        if (r > 0) must(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking));
        d->flag = (uint32_t *)zeroed(c, (size_t)g->n * UM_CU_MEET_BLOCKS * sizeof(uint32_t));
        d->count = (uint32_t *)zeroed(c, UM_CU_MEET_BLOCKS * sizeof(uint32_t));
        for (int k = 0; k < 2; k++) {
            d->part[k] = check_guarded(c, all * sizeof(float));
            d->inbox[k] = (char *)check_guarded(c, (size_t)g->n * UM_CU_PUSH_BYTES);
            must(cudaMemset(d->inbox[k], UM_CU_NOT_THERE, (size_t)g->n * UM_CU_PUSH_BYTES));
        }
        d->y = check_guarded(c, all * sizeof(float));
        d->y32 = (float *)check_guarded(c, all * sizeof(float));
        d->x = (float *)zeroed(c, all * sizeof(float));
        if (g->normed && g->type == UM_BF16)
            d->coded = {(unsigned char *)check_guarded(c, all),
                        (float *)check_guarded(c, (size_t)g->rows * sizeof(float))};
        must(cudaDeviceSynchronize());
        g->weight[r] = g->w ? (const float *)check_upload(c, g->w, (size_t)g->H * sizeof(float)) : NULL;
    }
}

static void end_group(group *g) {
    for (int32_t r = 0; r < g->n; r++) {
        rank_data *d = &g->rank[r];
        must(cudaSetDevice(d->device));
        must(cudaStreamSynchronize(d->stream));
        if (d->graph) cudaGraphExecDestroy(d->graph);
        if (r > 0) cudaStreamDestroy(d->stream);
    }
    must(cudaSetDevice(0));
    cudaFreeHost(g->stop);
}

static um_cu_meeting meeting_of(const group *g, int32_t r) {
    um_cu_meeting m = {r, g->n, g->rank[r].count, {}, g->stop};
    for (int32_t k = 0; k < g->n; k++) m.flag[k] = g->rank[k].flag;
    return m;
}

/* Returns whether each rank computes a part of the rows. */
static bool divides(const group *g) {
    const um_cu_meeting at = meeting_of(g, 0);
    return g->normed && um_cu_divides(&at, g->rows, g->H);
}

static void start_sum(const group *g, int32_t r, int turn) {
    const rank_data *d = &g->rank[r];
    um_cu_partials p = {meeting_of(g, r), {}, g->type, um_cu_pushes((size_t)g->rows * (size_t)g->H, g->type), {}};
    for (int32_t k = 0; k < g->n; k++) p.part[k] = g->rank[k].part[turn], p.inbox[k] = g->rank[k].inbox[turn];
    if (divides(g)) {
        um_cu_copies to = {};
        for (int32_t k = 0; k < g->n; k++)
            to.y[k] = g->rank[k].y, to.y32[k] = g->rank[k].y32, to.coded[k] = g->rank[k].coded;
        um_cu_sum_norm_divided(d->x, &p, g->weight[r], 1e-6f, g->rows, g->H, g->type, &to, d->stream);
    } else if (g->normed)
        um_cu_sum_norm(d->x, &p, g->weight[r], NULL, 1e-6f, g->rows, g->H, g->type, d->y, d->y32,
                       d->coded.code ? &d->coded : NULL, d->stream);
    else um_cu_sum(&p, (size_t)g->rows * (size_t)g->H, true, d->x, d->stream);
}

/* Starts an exchange on all ranks. The last rank starts first, and those before it wait. */
static void exchange(group *g, int turn) {
    for (int32_t r = g->n; r-- > 0;) {
        must(cudaSetDevice(g->rank[r].device));
        start_sum(g, r, turn);
    }
}

/* Brings new results to all ranks, and adds them to want in the order of the kernels. */
static void fill_parts(group *g, int turn, float *want) {
    const size_t all = (size_t)g->rows * (size_t)g->H;
    float *sum = (float *)check_host(g->c, all * sizeof(float));
    for (int32_t r = 0; r < g->n; r++) {
        float *x = check_floats(g->c, all);
        must(cudaSetDevice(g->rank[r].device));
        const void *from = check_operand(g->c, x, all, g->type);
        must(cudaMemcpy(g->rank[r].part[turn], from, all * um_dtype_size(g->type), cudaMemcpyDefault));
        must(cudaDeviceSynchronize());
        for (size_t i = 0; i < all; i++) sum[i] += x[i];
    }
    for (size_t i = 0; i < all; i++) want[i] += sum[i];
    g->sum[turn] = sum;
}

static void synchronize(group *g) {
    for (int32_t r = 0; r < g->n; r++) {
        must(cudaSetDevice(g->rank[r].device));
        must(cudaStreamSynchronize(g->rank[r].stream));
    }
}

/* ---- Sums -------------------------------------------------------------------------------------------------------- */

/* Checks the residual stream of a rank: when the rows are divided, those of the rank. */
static void check_stream_of(group *g, int32_t r, const float *want) {
    const size_t H = (size_t)g->H, all = (size_t)g->rows * H;
    const float *x = check_floats_of(g->c, g->rank[r].x, all, UM_F32);
    const int32_t step = divides(g) ? g->n : 1;
    for (int32_t t = divides(g) ? r : 0; t < g->rows; t += step)
        check_same(g->c, "sums", x + (size_t)t * H, want + (size_t)t * H, H * sizeof(float));
}

/* Checks that the codes are those of um_cu_quantize. */
static void check_codes(group *g, int32_t r) {
    check *c = g->c;
    const rank_data *d = &g->rank[r];
    const size_t rows = (size_t)g->rows, all = rows * (size_t)g->H;
    const um_cu_coded want = {(unsigned char *)check_guarded(c, all), (float *)check_guarded(c, rows * sizeof(float))};
    if (!d->coded.code) return;
    must(cudaDeviceSynchronize()); /* the memory is ready */
    um_cu_quantize((const um_bf16 *)d->y, g->rows, g->H, &want, d->stream);
    must(cudaStreamSynchronize(d->stream));
    check_same(c, "codes", check_download(c, d->coded.code, all), check_download(c, want.code, all), all);
    check_same(c, "scales", check_floats_of(c, d->coded.scale, rows, UM_F32),
               check_floats_of(c, want.scale, rows, UM_F32), rows * sizeof(float));
}

static void check_sums(group *g, const float *want) {
    const size_t all = (size_t)g->rows * (size_t)g->H;
    um_norm norm = {};
    norm.w = g->w;
    norm.eps = 1e-6f;
    float *normed = (float *)check_host(g->c, all * sizeof(float));
    if (g->normed) um_ref_norm(check_ref(g->c, UM_F32), want, &norm, g->rows, g->H, normed);
    for (int32_t r = 0; r < g->n; r++) {
        must(cudaSetDevice(g->rank[r].device));
        check_stream_of(g, r, want);
        if (!g->normed) continue;
        check_close(g->c, "y32", check_floats_of(g->c, g->rank[r].y32, all, UM_F32), normed, all, 1e-5);
        check_close(g->c, "y", check_floats_of(g->c, g->rank[r].y, all, g->type), normed, all,
                    g->type == UM_BF16 ? 3e-3 : 1e-5);
        check_codes(g, r);
    }
}

static void replay(void *arg) {
    group *g = (group *)arg;
    for (int32_t r = g->n; r-- > 0;) {
        must(cudaSetDevice(g->rank[r].device));
        must(cudaGraphLaunch(g->rank[r].graph, g->rank[r].stream));
    }
}

/* Records what a rank does. That also loads its kernels: the driver may wait for the device when it loads one, while
 * kernels wait there for ranks that this thread has not started. */
static cudaGraph_t record(const group *g, int32_t r, void (*start)(const group *g, int32_t r)) {
    cudaGraph_t graph;
    must(cudaSetDevice(g->rank[r].device));
    must(cudaStreamBeginCapture(g->rank[r].stream, cudaStreamCaptureModeThreadLocal));
    start(g, r);
    must(cudaStreamEndCapture(g->rank[r].stream, &graph));
    return graph;
}

static void start_sums(const group *g, int32_t r) {
    for (int i = 0; i < IN_GRAPH; i++) start_sum(g, r, i % 2);
}

static void record_sums(group *g) {
    for (int32_t r = 0; r < g->n; r++) {
        cudaGraph_t graph = record(g, r, start_sums);
        must(cudaGraphInstantiate(&g->rank[r].graph, graph, 0));
        must(cudaGraphDestroy(graph));
    }
    must(cudaSetDevice(0));
}

/* n: ranks, rows, width, 1: with a norm. The time is that of 64 exchanges in a graph. */
static void run_sum(check *c, const check_case *k) {
    group g = {c, ranks_of(k), k->n[1], k->n[2], k->type, k->n[3] != 0};
    const size_t all = (size_t)g.rows * (size_t)g.H;
    float *want = (float *)check_host(c, all * sizeof(float));
    if (g.normed) g.w = check_floats(c, (size_t)g.H);
    start_group(&g);
    record_sums(&g);
    for (int i = 0; i < REPEATS; i++) {
        fill_parts(&g, i % 2, want);
        exchange(&g, i % 2);
        synchronize(&g);
    }
    check_sums(&g, want);
    replay(&g); /* the exchanges follow each other at once */
    synchronize(&g);
    for (int n = 0; n < IN_GRAPH; n++)
        for (size_t i = 0; i < all; i++) want[i] += g.sum[n % 2][i];
    check_sums(&g, want);
    must(cudaSetDevice(0));
    check_time(c, (double)IN_GRAPH * (double)(g.n - 1) * (double)all * um_dtype_size(g.type), 0, replay, &g);
    end_group(&g);
}

/* ---- Rows that rank 0 gathers ------------------------------------------------------------------------------------ */

static void start_gather(const group *g, int32_t r) {
    um_cu_gather a = g->gather;
    a.at = meeting_of(g, r);
    um_cu_gather_rows(&a, g->rank[r].stream);
    um_cu_barrier(&a.at, g->rank[r].stream);
}

/* n: ranks, rows, words of a row. Rank r has the words from r * words / ranks on. */
static void run_gather(check *c, const check_case *k) {
    group g = {c, ranks_of(k), k->n[1], k->n[2], UM_F32};
    const size_t all = (size_t)g.rows * (size_t)g.H;
    float *want = check_floats(c, all);
    start_group(&g);
    um_cu_gather &a = g.gather;
    a.rows = g.rows;
    a.stride = (size_t)g.H;
    for (int32_t r = 0; r < g.n; r++) a.first[r + 1] = g.H * (r + 1) / g.n;
    for (int32_t r = 0; r < g.n; r++) {
        float *own = (float *)check_host(c, all * sizeof(float));
        for (size_t i = 0; i < all; i++) {
            const int32_t word = (int32_t)(i % (size_t)g.H);
            own[i] = word >= a.first[r] && word < a.first[r + 1] ? want[i] : NAN;
        }
        must(cudaSetDevice(g.rank[r].device));
        a.base[r] = (uint32_t *)check_upload(c, own, all * sizeof(float));
    }
    for (int32_t r = 0; r < g.n; r++) must(cudaGraphDestroy(record(&g, r, start_gather)));
    for (int32_t r = g.n; r-- > 0;) {
        must(cudaSetDevice(g.rank[r].device));
        start_gather(&g, r);
    }
    synchronize(&g);
    must(cudaSetDevice(0));
    check_same(c, "rows", check_floats_of(c, a.base[0], all, UM_F32), want, all * sizeof(float));
    end_group(&g);
}

static const check_case cases[] = {
    {"ranks: sum of up to 2, fp32, 3 x 64", run_sum, {2, 3, 64, 0}, UM_F32},
    {"ranks: sum of up to 3, bf16, 5 x 99", run_sum, {3, 5, 99, 0}, UM_BF16},
    {"ranks: sum of up to 4, bf16, 700 x 128", run_sum, {4, 700, 128, 0}, UM_BF16},
    {"ranks: sum of up to 2, bf16, 32 x 4096", run_sum, {2, 32, 4096, 0}, UM_BF16},
    {"ranks: sum of up to 2 and norm, fp32, 5 x 99", run_sum, {2, 5, 99, 1}, UM_F32},
    {"ranks: sum of up to 5 and norm, fp32, 3 x 64", run_sum, {5, 3, 64, 1}, UM_F32},
    {"ranks: sum of up to 2 and norm, fp32, 32 x 2048", run_sum, {2, 32, 2048, 1}, UM_F32},
    {"ranks: sum of up to 2 and norm, bf16, 32 x 4096", run_sum, {2, 32, 4096, 1}, UM_BF16},
    {"ranks: sum of up to 2 and norm, bf16, 128 x 4096", run_sum, {2, 128, 4096, 1}, UM_BF16},
    {"ranks: sum of up to 2 and norm, bf16, 256 x 4096", run_sum, {2, 256, 4096, 1}, UM_BF16},
    {"ranks: sum of up to 2 and norm, bf16, 512 x 4096", run_sum, {2, 512, 4096, 1}, UM_BF16},
    {"ranks: sum of up to 2 and norm, bf16, 2048 x 4096", run_sum, {2, 2048, 4096, 1}, UM_BF16},
    {"ranks: sum of up to 4 and norm, bf16, 32 x 4096", run_sum, {4, 32, 4096, 1}, UM_BF16},
    {"ranks: sum of up to 4 and norm, bf16, 128 x 4096", run_sum, {4, 128, 4096, 1}, UM_BF16},
    {"ranks: sum of up to 4 and norm, bf16, 160 x 4096", run_sum, {4, 160, 4096, 1}, UM_BF16},
    {"ranks: sum of up to 4 and norm, bf16, 512 x 4096", run_sum, {4, 512, 4096, 1}, UM_BF16},
    {"ranks: sum of up to 4 and norm, bf16, 2048 x 4096", run_sum, {4, 2048, 4096, 1}, UM_BF16},
    {"ranks: sum of up to 3 and norm, bf16, 1601 x 2048", run_sum, {3, 1601, 2048, 1}, UM_BF16},
    {"ranks: sum of up to 3 and norm, fp32, 331 x 2048", run_sum, {3, 331, 2048, 1}, UM_F32},
    {"ranks: gather of up to 2, 3 x 10", run_gather, {2, 3, 10}, UM_F32},
    {"ranks: gather of up to 4, 33 x 5003", run_gather, {4, 33, 5003}, UM_F32},
};
extern const check_list rank_checks = {"check_ranks", cases, (int)UM_LEN(cases)};
