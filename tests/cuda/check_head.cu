/* Checks of the head: answers and blends of rows with capped logits, temperatures, edits and filters against the
 * reference. A row's answer and blend have the same bits alone and among other rows. Rows without a blend change none.
 * The whole head is timed with the sizes of released models. */
#include "check.cuh"

enum { ROWS, ROOM, VOCAB, HIDDEN, CAPPED }; /* meaning of check_case.n; ROOM: rows with padding */
static const size_t WORKSPACE_BYTES = (size_t)32 << 20;

typedef struct head_data {
    int32_t n, vocab, H;
    um_row *row; /* [n]; every row has a blend of its own, unless it has none */
    um_edit *edit;
    uint32_t *allow;
    um_tensor matrix;
    um_cu_matrix w;
    float *hidden;
    float scale, cap, embed_scale;
} head_data;

static void new_rows(check *c, head_data *d) {
    enum { EDITS = 3 };
    d->row = (um_row *)check_host(c, (size_t)d->n * sizeof *d->row);
    d->edit = (um_edit *)check_host(c, EDITS * sizeof *d->edit);
    d->allow = (uint32_t *)check_host(c, (size_t)UM_CEIL_DIV(d->vocab, 32) * sizeof *d->allow);
    for (int32_t i = 0; i < UM_CEIL_DIV(d->vocab, 32); i++) d->allow[i] = 0xfff0f31eu;
    for (int i = 0; i < EDITS; i++) {
        d->edit[i].id = (int32_t)((int64_t)(d->vocab - 1) * i / (EDITS - 1));
        d->edit[i].add = i ? 2.5f : 0;
        d->edit[i].ban = i == 0;
    }
    for (int32_t i = 0; i < d->n; i++) {
        um_row *r = &d->row[i];
        r->src[0] = d->n - 1 - i;
        r->w[0] = i % 8 == 6 ? 0 : 1; /* 0: all logits are equal but for the edits */
        r->how.top_p = i % 7 == 5 ? 0.5f : 1;
        r->how.temperature = i % 4 == 3 ? 0 : 0.4f + 0.1f * (float)(i % 5);
        r->how.key = (uint64_t)i;
        r->want = UM_WANT_BEST | UM_WANT_SECOND | UM_WANT_SAMPLE | UM_WANT_PROB_OF;
        r->want |= i % 2 ? UM_WANT_ENTROPY : UM_WANT_PLAIN_ENTROPY;
        r->id = i * 7 % d->vocab;
        r->blend = i % 5 == 4 ? 0 : d->n - i;
        if (i % 3 == 0) r->edit = d->edit, r->n_edit = EDITS;
        if (i % 5 == 1) r->allow = d->allow;
    }
}

static head_data new_data(check *c, const check_case *k) {
    head_data d = {};
    d.n = k->n[ROWS];
    d.vocab = k->n[VOCAB];
    d.H = k->n[HIDDEN];
    d.matrix = check_tensor(c, d.vocab + 3, d.H, k->type); /* the last ids are not part of an answer */
    d.w = check_matrix(c, &d.matrix, d.matrix.type);
    d.hidden = check_floats(c, (size_t)d.n * d.H);
    d.scale = 12 / sqrtf((float)d.H);
    d.cap = k->n[CAPPED] ? 5 : 0;
    d.embed_scale = 2.5f;
    new_rows(c, &d);
    return d;
}

/* Returns the products of all cases: they know the shapes that several cases use. */
static um_cu_products *products_of(check *c) {
    static um_cu_products *products;
    void *workspace;
    um_err err;
    if (products) return products;
    check_cuda(c, cudaMalloc(&workspace, WORKSPACE_BYTES), "workspace");
    check_status(c, um_cu_products_new(&products, workspace, WORKSPACE_BYTES, true, &err), &err);
    return products;
}

/* What a run leaves. */
typedef struct head_result {
    const um_answer *answer;
    const float *blend; /* [n + 1, H]; NaN where no row has a blend */
} head_result;

/* Runs the rows [first, first + n) with room for `room` rows. */
static head_result run_rows(check *c, const head_data *d, int32_t first, int32_t n, int32_t room) {
    const size_t H = (size_t)d->H, blends = (size_t)(d->n + 1) * H * sizeof(float);
    const um_message_capacity capacity = {0, 1, 0, room, 16, 0, d->vocab, 32};
    um_batch batch = {};
    um_cu_head a = {};
    um_cu_products *products = products_of(c);
    um_err err;
    batch.row = d->row + first;
    batch.n_rows = n;
    const um_cu_batch b = check_batch(c, &batch, &capacity, NULL);
    a.w = a.embed = &d->w;
    a.hidden = a.saved = (const float *)check_upload(c, d->hidden, (size_t)d->n * H * sizeof(float));
    a.hidden_size = d->H;
    a.vocab = d->vocab;
    a.at.n = 1;
    a.first[1] = d->vocab;
    a.scale = d->scale;
    a.cap = d->cap;
    a.embed_scale = d->embed_scale;
    a.blend = (float *)check_guarded(c, blends);
    a.mixed = check_device(c, (size_t)room * H * um_dtype_size(d->w.type));
    /* initcheck misses the stores of some products of cuBLASLt. A logit that nothing wrote makes an answer NaN. */
    a.scratch = check_guarded(c, um_cu_head_scratch(room, d->vocab));
    a.answer = (um_answer *)check_device(c, (size_t)room * sizeof(um_answer));
    check_status(c, um_cu_head_prepare(&d->w, d->vocab, room, products, &err), &err);
    err.msg[0] = 0;
    check_status(c, um_cu_head_answer(&b, &a, products, check_stream(c)), &err);
    check_cuda(c, cudaGetLastError(), "head");
    return {(const um_answer *)check_download(c, a.answer, (size_t)n * sizeof(um_answer)),
            (const float *)check_download(c, a.blend, blends)};
}

static head_result reference_of(check *c, const head_data *d) {
    um_dev *dev = check_ref(c, d->w.type);
    um_weight *w = NULL;
    um_head h = {};
    um_err err;
    check_status(c, um_ops_ref.weight(dev, &w, &d->matrix, 1, d->w.type, &err), &err);
    h.w = h.embed = w;
    h.hidden = h.saved = d->hidden;
    h.hidden_size = d->H;
    h.vocab = d->vocab;
    h.scale = d->scale;
    h.cap = d->cap;
    h.embed_scale = d->embed_scale;
    h.blend = (float *)check_host(c, (size_t)(d->n + 1) * (size_t)d->H * sizeof(float));
    h.row = d->row;
    h.n_rows = d->n;
    h.answer = (um_answer *)check_host(c, (size_t)d->n * sizeof(um_answer));
    um_ref_head(dev, &h);
    um_ops_ref.weight_free(dev, w);
    return {h.answer, h.blend};
}

/* Returns the logits of a row [vocab]: scaled, capped and edited. */
static float *logits_of(check *c, const head_data *d, const um_row *r) {
    um_dev *dev = check_ref(c, d->w.type);
    um_weight *w = NULL;
    um_err err;
    float *z = (float *)check_host(c, (size_t)d->matrix.dim[0] * sizeof(float));
    float *x = (float *)check_host(c, (size_t)d->H * sizeof(float));
    for (int32_t i = 0; i < d->H; i++) x[i] = r->w[0] * d->hidden[(size_t)r->src[0] * d->H + i];
    check_status(c, um_ops_ref.weight(dev, &w, &d->matrix, 1, d->w.type, &err), &err);
    um_ref_linear(dev, w, NULL, x, 1, false, z);
    um_ops_ref.weight_free(dev, w);
    for (int32_t v = 0; v < d->vocab; v++) {
        z[v] *= d->scale;
        if (d->cap > 0) z[v] = d->cap * tanhf(z[v] / d->cap);
    }
    for (int32_t e = 0; e < r->n_edit; e++)
        z[r->edit[e].id] = r->edit[e].ban ? -INFINITY : z[r->edit[e].id] + r->edit[e].add;
    for (int32_t v = 0; r->allow && v < d->vocab; v++)
        if (!(r->allow[v / 32] >> v % 32 & 1)) z[v] = -INFINITY;
    return z;
}

/* Fails the case unless the id has nearly the largest value but for `without`, and exactly if `exact`: the largest id
 * of those with the largest value. */
static void compare_choice(check *c, const char *what, int32_t id, const float *value, int32_t n, int32_t without,
                           bool exact) {
    int32_t want = -1;
    for (int32_t v = 0; v < n; v++)
        if (v != without && value[v] > -INFINITY && (want < 0 || value[v] >= value[want])) want = v;
    if (id < 0 || id >= n || id == without || want < 0 || exact)
        check_true(c, id == want, "%s is id %d, expected %d", what, id, want);
    else
        check_true(c, value[id] >= value[want] - 1e-2f, "%s is id %d with %g, id %d has %g", what, id, value[id], want,
                   value[want]);
}

static void compare_choices(check *c, const head_data *d, const um_row *r, const um_answer *got) {
    const bool exact = r->w[0] == 0;
    float *z = logits_of(c, d, r);
    compare_choice(c, "best", got->best, z, d->vocab, -1, exact);
    compare_choice(c, "second", got->second, z, d->vocab, got->best, exact);
    for (int32_t v = 0; v < d->vocab && r->how.temperature > 0; v++)
        z[v] = z[v] / r->how.temperature + um_rng_gumbel(r->how.key, (uint64_t)v);
    compare_choice(c, "sample", got->sample, z, d->vocab, -1, exact);
}

static void compare_answer(check *c, const head_data *d, const um_row *r, const um_answer *got, const um_answer *want) {
    if (r->how.top_p < 1) return; /* such rows are answered by um_cu_head_answer_whole */
    check_true(c, fabsf(got->p_best - want->p_best) <= 1e-2f * want->p_best + 1e-6f, "p_best is %g, expected %g",
               got->p_best, want->p_best);
    check_true(c, fabsf(got->q_best - want->q_best) <= 2e-2f * want->q_best + 1e-6f, "q_best is %g, expected %g",
               got->q_best, want->q_best);
    check_true(c, fabsf(got->entropy - want->entropy) <= 2e-3f * want->entropy + 1e-3f, "entropy is %g, expected %g",
               got->entropy, want->entropy);
    check_true(c, fabsf(got->logsumexp - want->logsumexp) <= 1e-2f, "logsumexp is %g, expected %g", got->logsumexp,
               want->logsumexp);
    const float error = got->log_p_id == want->log_p_id ? 0 : fabsf(got->log_p_id - want->log_p_id);
    check_true(c, error <= 1e-2f * fabsf(want->log_p_id) + 1e-2f, "log_p_id is %g, expected %g", got->log_p_id,
               want->log_p_id);
    compare_choices(c, d, r, got);
}

static void run_head(check *c, const check_case *k) {
    const head_data d = new_data(c, k);
    const size_t H = (size_t)d.H;
    const head_result got = run_rows(c, &d, 0, d.n, k->n[ROOM]), want = reference_of(c, &d);
    for (int32_t i = 0; i < d.n; i++) {
        const um_row *r = &d.row[i];
        const size_t at = (size_t)(r->blend - 1) * H;
        compare_answer(c, &d, r, &got.answer[i], &want.answer[i]);
        if (r->blend) check_close(c, "blend", got.blend + at, want.blend + at, H, k->type == UM_BF16 ? 6e-3 : 2e-5);
        else check_true(c, isnan(got.blend[(size_t)(d.n - i - 1) * H]), "row %d without a blend changed one", i);
    }
    check_true(c, isnan(got.blend[(size_t)d.n * H]), "the blend behind the last one was written");
    const int32_t one = check_below(c, d.n);
    const head_result alone = run_rows(c, &d, one, 1, 1);
    if (d.row[one].how.top_p == 1)
        check_same(c, "a row's answer alone", alone.answer, &got.answer[one], offsetof(um_answer, top));
    if (d.row[one].blend) {
        const size_t at = (size_t)(d.row[one].blend - 1) * H;
        check_same(c, "a row's blend alone", alone.blend + at, got.blend + at, H * sizeof(float));
    }
}

/* ---- Times of the whole head ---- */

enum { KIND = CAPPED }; /* another meaning of check_case.n: what the rows want */
enum { GREEDY, DRAWN, ENTROPY };

/* Fills n numbers of random sign and magnitude. */
template <typename E> static __global__ void fill(E *out, size_t n, uint64_t seed) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        uint64_t v = (i + 1) * 0x9e3779b97f4a7c15ull + seed;
        v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ull;
        v = (v ^ v >> 27) * 0x94d049bb133111ebull;
        out[i] = (E)((float)(v >> 40) * 0x1p-23f - 1);
    }
}

template <typename E> static E *filled(check *c, size_t n, uint64_t seed) {
    E *p = (E *)check_device(c, n * sizeof(E));
    fill<<<1024, 256, 0, check_stream(c)>>>(p, n, seed);
    return p;
}

typedef struct head_call {
    check *c;
    um_cu_batch batch;
    um_cu_head head;
    um_status status;
} head_call;
static void call_head(void *arg) {
    head_call *a = (head_call *)arg;
    a->status = um_cu_head_answer(&a->batch, &a->head, products_of(a->c), check_stream(a->c));
}

static um_row timed_row(int32_t i, int32_t kind) {
    um_row r = {};
    r.src[0] = i;
    r.w[0] = 1;
    r.how.top_p = 1;
    r.how.temperature = kind == DRAWN ? 1 : 0;
    r.how.key = (uint64_t)i * 12345;
    r.want = UM_WANT_BEST | UM_WANT_SAMPLE | (kind == ENTROPY ? UM_WANT_ENTROPY : 0);
    return r;
}

/* Makes the call for the rows [first, first + n). */
static head_call timed_call(check *c, const check_case *k, const um_cu_matrix *w, const float *hidden, int32_t first,
                            int32_t n) {
    const um_message_capacity capacity = {0, 1, 0, n, 16, 0, w->rows, 32};
    um_batch batch = {};
    head_call a = {};
    um_row *row = (um_row *)check_host(c, (size_t)n * sizeof *row);
    for (int32_t i = 0; i < n; i++) row[i] = timed_row(first + i, k->n[KIND]);
    batch.row = row;
    batch.n_rows = n;
    a.c = c;
    a.batch = check_batch(c, &batch, &capacity, NULL);
    a.head.w = w;
    a.head.hidden = a.head.saved = hidden;
    a.head.hidden_size = w->in;
    a.head.vocab = a.head.first[1] = w->rows;
    a.head.at.n = 1;
    a.head.scale = 12 / sqrtf((float)w->in);
    a.head.mixed = check_device(c, (size_t)n * (size_t)w->in * sizeof(um_bf16));
    a.head.scratch = check_device(c, um_cu_head_scratch(n, w->rows));
    a.head.answer = (um_answer *)check_device(c, (size_t)n * sizeof(um_answer));
    call_head(&a);
    check_true(c, a.status == UM_OK, "um_cu_head_answer returned %d", a.status);
    return a;
}

/* Times the head. A row has the same answer as alone. */
static void run_time(check *c, const check_case *k) {
    const int32_t n = k->n[ROWS], vocab = k->n[VOCAB], H = k->n[HIDDEN], one = check_below(c, n);
    const size_t numbers = (size_t)vocab * (size_t)H;
    um_cu_matrix w = {vocab, H, UM_BF16, filled<um_bf16>(c, numbers, 1), NULL};
    const float *hidden = filled<float>(c, (size_t)n * (size_t)H, 2);
    um_err err;
    check_status(c, um_cu_head_prepare(&w, vocab, n, products_of(c), &err), &err);
    head_call all = timed_call(c, k, &w, hidden, 0, n), alone = timed_call(c, k, &w, hidden, one, 1);
    const um_answer *got = (const um_answer *)check_download(c, all.head.answer, (size_t)n * sizeof(um_answer));
    check_same(c, "a row's answer alone", check_download(c, alone.head.answer, sizeof(um_answer)), &got[one],
               offsetof(um_answer, top));
    check_time(c, 2.0 * (double)numbers, 2.0 * (double)numbers * n, call_head, &all);
}

#define TIMES(name, vocab, H, rows)                                                                                    \
    {"head of " name ", " #rows " rows, greedy", run_time, {rows, rows, vocab, H, GREEDY}, UM_BF16},                   \
        {"head of " name ", " #rows " rows, temperature 1", run_time, {rows, rows, vocab, H, DRAWN}, UM_BF16}, {       \
        "head of " name ", " #rows " rows, entropy", run_time, {rows, rows, vocab, H, ENTROPY}, UM_BF16                \
    }

static const check_case cases[] = {
    {"head fp32, 1 row, 7 ids", run_head, {1, 1, 7, 16, 1}, UM_F32},
    {"head fp32, 20 rows, 5000 ids, width 33", run_head, {20, 24, 5000, 33, 1}, UM_F32},
    {"head fp32, 9 rows, 40000 ids", run_head, {9, 9, 40000, 64, 0}, UM_F32},
    {"head bf16, 9 rows, 70 ids, width 33", run_head, {9, 9, 70, 33, 1}, UM_BF16},
    {"head bf16, 37 rows, 5000 ids", run_head, {37, 64, 5000, 64, 1}, UM_BF16},
    {"head bf16, 300 rows, 3001 ids, width 136", run_head, {300, 384, 3001, 136, 0}, UM_BF16},
    {"head bf16, 20 rows, 70000 ids, width 264", run_head, {20, 24, 70000, 264, 1}, UM_BF16},
    TIMES("LLaDA2.0-mini", 157184, 2048, 2048),
    TIMES("LLaDA2.0-mini", 157184, 2048, 512),
    TIMES("LLaDA2.0-mini", 157184, 2048, 128),
    TIMES("LLaDA2.0-mini", 157184, 2048, 32),
    TIMES("LLaDA-8B", 126464, 4096, 1056),
    TIMES("LLaDA-8B", 126464, 4096, 128),
    TIMES("LLaDA-8B", 126464, 4096, 32),
};
extern const check_list head_checks = {"check_head", cases, (int)UM_LEN(cases)};
