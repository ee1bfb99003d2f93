/* The embedding: plain tokens, and blends with and without renormalization. */
#include "check.cuh"

enum { PADDING = 5, BLEND_MAX = 70 };

/* Writes a blend of a random number of rows for every second token. Returns the number of blends. */
static int32_t make_blends(check *c, um_soft *soft, int32_t n_tokens, int32_t vocab) {
    int32_t n = 0;
    for (int32_t t = 1; t < n_tokens; t += 2) {
        um_soft *s = &soft[n];
        s->at = t;
        s->n = n == 0 ? BLEND_MAX : 1 + check_below(c, 9);
        int32_t *id = (int32_t *)check_host(c, (size_t)s->n * sizeof *id);
        float *w = check_floats(c, (size_t)s->n);
        for (int32_t k = 0; k < s->n; k++) {
            id[k] = check_below(c, vocab);
            w[k] = n == 1 ? 0 : fabsf(w[k]); /* the second blend is zero */
        }
        s->id = id;
        s->w = w;
        s->renormalize = n % 3 != 2;
        n++;
    }
    return n;
}

typedef struct embed_args {
    um_cu_batch b;
    um_cu_matrix w;
    float scale, *x;
    cudaStream_t stream;
} embed_args;
static void embed_call(void *arg) {
    const embed_args *a = (const embed_args *)arg;
    um_cu_embed(&a->b, &a->w, a->scale, a->x, a->stream);
}

/* n: tokens, vocabulary rows, width, 1: with blends */
static void run_embed(check *c, const check_case *k) {
    const int32_t n = k->n[0], vocab = k->n[1], H = k->n[2], padded = n + PADDING;
    const float scale = k->n[3] ? 3.5f : 1;
    const size_t bytes = (size_t)n * H * sizeof(float);
    int32_t *id = (int32_t *)check_host(c, (size_t)n * sizeof(int32_t));
    int32_t *zero = (int32_t *)check_host(c, (size_t)n * sizeof(int32_t));
    um_soft *soft = (um_soft *)check_host(c, (size_t)n * sizeof(um_soft));
    for (int32_t t = 0; t < n; t++) id[t] = check_below(c, vocab);
    um_span span = {};
    span.n = span.keys.end = n;
    span.page = zero;
    span.adapter = -1;
    um_batch batch = {};
    batch.n_tokens = n;
    batch.n_spans = 1;
    batch.id = id;
    batch.pos = batch.slot = batch.seen_end = zero;
    batch.span = &span;
    batch.soft = soft;
    batch.n_soft = k->n[3] ? make_blends(c, soft, n, vocab) : 0;
    um_message_capacity capacity = {};
    capacity.n_tokens = padded;
    capacity.n_spans = 1;
    capacity.tile_tokens = 16;
    capacity.n_tiles = um_message_tiles(&batch, capacity.tile_tokens);
    capacity.vocab = vocab;
    capacity.page_size = n;

    const um_tensor table = check_tensor(c, vocab, H, k->type);
    embed_args a = {};
    a.b = check_batch(c, &batch, &capacity, NULL);
    a.w = check_matrix(c, &table, table.type);
    a.scale = scale;
    a.x = (float *)check_guarded(c, (size_t)(padded + 1) * H * sizeof(float));
    a.stream = check_stream(c);
    embed_call(&a);
    check_cuda(c, cudaGetLastError(), "embed");
    const float *got = check_floats_of(c, a.x, (size_t)(padded + 1) * H, UM_F32);

    um_dev *dev = check_ref(c, k->type);
    um_weight *w = NULL;
    um_err err;
    check_status(c, um_ops_ref.weight(dev, &w, &table, 1, k->type, &err), &err);
    float *want = (float *)check_host(c, bytes);
    um_ref_embed(dev, w, id, n, scale, want);
    um_ref_embed_soft(dev, w, soft, batch.n_soft, scale, want);
    um_ops_ref.weight_free(dev, w);
    check_close(c, "x", got, want, (size_t)n * H, k->n[3] ? 1e-5 : 0);
    for (int32_t i = 0; i < H; i++)
        check_true(c, isnan(got[(size_t)padded * H + i]), "column %d behind the last row was written", i);
    check_time(c, (double)padded * H * (um_dtype_size(k->type) + 4), 0, embed_call, &a);
}

static const check_case cases[] = {
    {"embed fp32, 1 token, width 1", run_embed, {1, 3, 1, 0}, UM_F32},
    {"embed fp32, 7 tokens, width 100", run_embed, {7, 50, 100, 0}, UM_F32},
    {"embed bf16, 7 tokens, width 97", run_embed, {7, 50, 97, 0}, UM_BF16},
    {"embed bf16, 32 tokens, width 4096", run_embed, {32, 1000, 4096, 0}, UM_BF16},
    {"embed fp32, 3 tokens, width 9000", run_embed, {3, 20, 9000, 0}, UM_F32},
    {"embed fp32, blends, width 8", run_embed, {9, 11, 8, 1}, UM_F32},
    {"embed fp32, blends, width 1030", run_embed, {16, 100, 1030, 1}, UM_F32},
    {"embed bf16, blends, width 97", run_embed, {12, 40, 97, 1}, UM_BF16},
    {"embed bf16, blends, width 9000", run_embed, {6, 20, 9000, 1}, UM_BF16},
    {"embed bf16, blends, 32 tokens, width 4096", run_embed, {32, 1000, 4096, 1}, UM_BF16},
};
extern const check_list embed_checks = {"check_embed", cases, (int)UM_LEN(cases)};
