/* Checks of the head: answers and blends of rows with capped logits, temperatures, edits and filters against the
 * reference. A row's blend has the same bits alone and among other rows. Rows without a blend change none. */
#include "check.cuh"

enum { ROWS, ROOM, VOCAB, HIDDEN, CAPPED }; /* meaning of check_case.n; ROOM: rows with padding */
static const size_t WORKSPACE_BYTES = (size_t)32 << 20;

typedef struct head_data {
    int32_t n, vocab, H;
    um_row *row; /* [n]; every row has a blend of its own, unless it has none */
    um_edit *edit;
    um_tensor matrix;
    um_cu_matrix w;
    float *hidden;
    float scale, cap, embed_scale;
} head_data;

static void new_rows(check *c, head_data *d) {
    enum { EDITS = 3 };
    d->row = (um_row *)check_host(c, (size_t)d->n * sizeof *d->row);
    d->edit = (um_edit *)check_host(c, EDITS * sizeof *d->edit);
    for (int i = 0; i < EDITS; i++) {
        d->edit[i].id = (int32_t)((int64_t)(d->vocab - 1) * i / (EDITS - 1));
        d->edit[i].add = i ? 2.5f : 0;
        d->edit[i].ban = i == 0;
    }
    for (int32_t i = 0; i < d->n; i++) {
        um_row *r = &d->row[i];
        r->src[0] = d->n - 1 - i;
        r->w[0] = 1;
        r->how.top_p = i % 7 == 5 ? 0.5f : 1;
        r->how.temperature = i % 4 == 3 ? 0 : 0.4f + 0.1f * (float)(i % 5);
        r->how.key = (uint64_t)i;
        r->want = UM_WANT_BEST | UM_WANT_ENTROPY | UM_WANT_PROB_OF;
        r->id = i * 7 % d->vocab;
        r->blend = i % 5 == 4 ? 0 : d->n - i;
        if (i % 3 == 0) r->edit = d->edit, r->n_edit = EDITS;
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

/* What a run leaves. */
typedef struct head_result {
    const um_answer *answer;
    const float *blend; /* [n + 1, H]; NaN where no row has a blend */
} head_result;

/* Runs the rows [first, first + n) with room for `room` rows. */
static head_result run_rows(check *c, const head_data *d, int32_t first, int32_t n, int32_t room) {
    static um_cu_products *products;
    const size_t H = (size_t)d->H, blends = (size_t)(d->n + 1) * H * sizeof(float);
    const um_message_capacity capacity = {0, 1, 0, room, 16, 0, d->vocab, 32};
    um_batch batch = {};
    um_cu_head a = {};
    um_err err;
    void *workspace;
    if (!products) { /* kept: it knows the shapes that several cases use */
        check_cuda(c, cudaMalloc(&workspace, WORKSPACE_BYTES), "workspace");
        check_status(c, um_cu_products_new(&products, workspace, WORKSPACE_BYTES, true, &err), &err);
    }
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
    a.scratch = check_device(c, um_cu_head_scratch(room, d->vocab));
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

static void compare_answer(check *c, const um_row *r, const um_answer *got, const um_answer *want) {
    if (r->how.top_p < 1) return; /* such rows are answered by um_cu_head_answer_whole */
    check_true(c, fabsf(got->p_best - want->p_best) <= 1e-2f * want->p_best + 1e-6f, "p_best is %g, expected %g",
               got->p_best, want->p_best);
    check_true(c, fabsf(got->entropy - want->entropy) <= 2e-3f * want->entropy + 1e-3f, "entropy is %g, expected %g",
               got->entropy, want->entropy);
    const float error = got->log_p_id == want->log_p_id ? 0 : fabsf(got->log_p_id - want->log_p_id);
    check_true(c, error <= 1e-2f * fabsf(want->log_p_id) + 1e-2f, "log_p_id is %g, expected %g", got->log_p_id,
               want->log_p_id);
}

static void run_head(check *c, const check_case *k) {
    const head_data d = new_data(c, k);
    const size_t H = (size_t)d.H;
    const head_result got = run_rows(c, &d, 0, d.n, k->n[ROOM]), want = reference_of(c, &d);
    for (int32_t i = 0; i < d.n; i++) {
        const um_row *r = &d.row[i];
        const size_t at = (size_t)(r->blend - 1) * H;
        compare_answer(c, r, &got.answer[i], &want.answer[i]);
        if (r->blend) check_close(c, "blend", got.blend + at, want.blend + at, H, k->type == UM_BF16 ? 6e-3 : 2e-5);
        else check_true(c, isnan(got.blend[(size_t)(d.n - i - 1) * H]), "row %d without a blend changed one", i);
    }
    check_true(c, isnan(got.blend[(size_t)d.n * H]), "the blend behind the last one was written");
    const int32_t one = check_below(c, d.n);
    const head_result alone = run_rows(c, &d, one, 1, 1);
    if (d.row[one].blend) {
        const size_t at = (size_t)(d.row[one].blend - 1) * H;
        check_same(c, "a row's blend alone", alone.blend + at, got.blend + at, H * sizeof(float));
    }
}

static const check_case cases[] = {
    {"head fp32, 1 row, 7 ids", run_head, {1, 1, 7, 16, 1}, UM_F32},
    {"head fp32, 20 rows, 5000 ids, width 33", run_head, {20, 24, 5000, 33, 1}, UM_F32},
    {"head fp32, 9 rows, 40000 ids", run_head, {9, 9, 40000, 64, 0}, UM_F32},
    {"head bf16, 9 rows, 70 ids, width 33", run_head, {9, 9, 70, 33, 1}, UM_BF16},
    {"head bf16, 37 rows, 5000 ids", run_head, {37, 64, 5000, 64, 1}, UM_BF16},
    {"head bf16, 300 rows, 3001 ids, width 136", run_head, {300, 384, 3001, 136, 0}, UM_BF16},
    {"head bf16, 20 rows, 70000 ids, width 264", run_head, {20, 24, 70000, 264, 1}, UM_BF16},
};
extern const check_list head_checks = {"check_head", cases, (int)UM_LEN(cases)};
