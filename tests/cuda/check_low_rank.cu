/* Checks of adapters: tokens with different adapters, without one, and layers that an adapter leaves alone, against the
 * two products of the reference. */
#include "check.cuh"

enum { TOKENS, ROOM, IN, OUT, RANK, ROW_TYPE }; /* meaning of check_case.n; RANK: the largest; ROW_TYPE: type of y */
enum { ADAPTERS = 4, SPANS_MAX = 64, PAGE = 32 };

typedef struct low_rank_data {
    um_tensor a[ADAPTERS], b[ADAPTERS]; /* the last adapter does not change the layer */
    um_cu_low_rank device[ADAPTERS];
    um_span span[SPANS_MAX];
    um_batch batch;
    um_cu_batch message;
    float *x, *y; /* [room, ...]; x is NaN for padding */
} low_rank_data;

/* Gives the tokens to spans of 1 to 20 tokens with random adapters. */
static void new_spans(check *c, const check_case *k, low_rank_data *d) {
    const int32_t n = k->n[TOKENS];
    int32_t *zero = (int32_t *)check_host(c, (size_t)n * sizeof(int32_t));
    int32_t *pos = (int32_t *)check_host(c, (size_t)n * sizeof(int32_t));
    int32_t *slot = (int32_t *)check_host(c, (size_t)n * sizeof(int32_t));
    int32_t *seen = (int32_t *)check_host(c, (size_t)n * sizeof(int32_t));
    um_batch *b = &d->batch;
    for (int32_t t = 0; t < n;) {
        um_span *s = &d->span[b->n_spans];
        s->first = t;
        const int32_t drawn = 1 + check_below(c, 20); /* UM_MIN would draw twice */
        s->n = b->n_spans + 1 == SPANS_MAX || n == 1024 ? n - t : UM_MIN(drawn, n - t);
        s->page = (int32_t *)check_host(c, (size_t)UM_CEIL_DIV(s->n, PAGE) * sizeof(int32_t));
        s->keys.end = s->n;
        s->adapter = b->n_spans++ == 0 ? 0 : check_below(c, ADAPTERS + 1) - 1;
        for (int32_t i = 0; i < s->n; i++, t++) {
            pos[t] = i;
            slot[t] = -1;
            seen[t] = i + 1;
        }
    }
    b->n_tokens = n;
    b->id = zero;
    b->pos = pos;
    b->slot = slot;
    b->seen_end = seen;
    b->span = d->span;
    const um_message_capacity capacity = {k->n[ROOM], SPANS_MAX, um_message_tiles(b, 16) + 1, 1, 16, 0, 1000, PAGE};
    d->message = check_batch(c, b, &capacity, NULL);
}

static void new_adapters(check *c, const check_case *k, low_rank_data *d) {
    for (int32_t i = 0; i + 1 < ADAPTERS; i++) {
        const int32_t rank = UM_MAX(1, i == 1 ? k->n[RANK] / 2 : k->n[RANK] - i);
        d->a[i] = check_tensor(c, rank, k->n[IN], k->type);
        d->b[i] = check_tensor(c, k->n[OUT], rank, k->type);
        d->device[i] = {check_matrix(c, &d->a[i], d->a[i].type), check_matrix(c, &d->b[i], d->b[i].type)};
    }
}

static low_rank_data *new_data(check *c, const check_case *k) {
    low_rank_data *d = (low_rank_data *)check_host(c, sizeof *d);
    const size_t in = (size_t)k->n[IN], used = (size_t)k->n[TOKENS] * in, all = (size_t)k->n[ROOM] * in;
    new_spans(c, k, d);
    new_adapters(c, k, d);
    d->x = check_floats(c, all);
    for (size_t i = 0; i < used; i++) d->x[i] *= 1 / sqrtf((float)in);
    for (size_t i = used; i < all; i++) d->x[i] = NAN;
    d->y = check_floats(c, (size_t)k->n[ROOM] * (size_t)k->n[OUT]);
    return d;
}

static um_weight *weight_of(check *c, um_dev *dev, const um_tensor *t) {
    um_weight *w = NULL;
    um_err err;
    check_status(c, um_ops_ref.weight(dev, &w, t, 1, t->type, &err), &err);
    return w;
}

/* Returns y [n_tokens, out] with the products of the adapters added. x and y have been rounded to their types. */
static float *reference_of(check *c, const check_case *k, const low_rank_data *d) {
    um_dev *dev = check_ref(c, k->type);
    const size_t n = (size_t)k->n[TOKENS] * (size_t)k->n[OUT];
    float *y = (float *)check_host(c, n * sizeof(float));
    float *low = (float *)check_host(c, (size_t)k->n[TOKENS] * (size_t)k->n[RANK] * sizeof(float));
    memcpy(y, d->y, n * sizeof(float));
    for (int32_t i = 0; i < d->batch.n_spans; i++) {
        const um_span *s = &d->span[i];
        if (s->adapter < 0 || !d->device[s->adapter].a.data) continue;
        um_weight *a = weight_of(c, dev, &d->a[s->adapter]), *b = weight_of(c, dev, &d->b[s->adapter]);
        um_ref_linear(dev, a, NULL, d->x + (size_t)s->first * (size_t)k->n[IN], s->n, false, low);
        um_ref_linear(dev, b, NULL, low, s->n, true, y + (size_t)s->first * (size_t)k->n[OUT]);
        um_ops_ref.weight_free(dev, a);
        um_ops_ref.weight_free(dev, b);
    }
    return y;
}

typedef struct timed_call {
    um_cu_batch b;
    const um_cu_low_rank *low_rank;
    int32_t in, out, rank;
    um_dtype type, y_type;
    const void *x;
    float *low;
    void *y;
    cudaStream_t stream;
} timed_call;

static void call_low_rank(void *arg) {
    const timed_call *t = (const timed_call *)arg;
    um_cu_low_rank_down(&t->b, t->low_rank, t->in, t->rank, t->type, t->x, t->low, t->stream);
    um_cu_low_rank_up(&t->b, t->low_rank, t->out, t->rank, t->type, t->low, t->y_type, t->y, t->stream);
}

static void check_low_rank(check *c, const check_case *k) {
    low_rank_data *d = new_data(c, k);
    const size_t T = (size_t)k->n[ROOM], in = (size_t)k->n[IN], out = (size_t)k->n[OUT], rank = (size_t)k->n[RANK];
    const um_dtype y_type = (um_dtype)k->n[ROW_TYPE];
    timed_call t = {d->message,
                    (const um_cu_low_rank *)check_upload(c, d->device, sizeof d->device),
                    k->n[IN],
                    k->n[OUT],
                    k->n[RANK],
                    k->type,
                    y_type,
                    check_operand(c, d->x, T * in, k->type),
                    (float *)check_device(c, T * rank * sizeof(float)),
                    check_operand(c, d->y, T * out, y_type),
                    check_stream(c)};
    call_low_rank(&t);
    const size_t n = (size_t)k->n[TOKENS] * out;
    const float *got = check_floats_of(c, t.y, n, y_type);
    const double most = y_type == UM_BF16 ? 4e-3 : k->type == UM_BF16 ? 1e-3 : 5e-6;
    check_close(c, "output", got, reference_of(c, k, d), n, most);
    for (int32_t i = 0; i < d->batch.n_spans; i++) {
        const um_span *s = &d->span[i];
        if (s->adapter >= 0 && s->adapter + 1 < ADAPTERS) continue;
        const size_t at = (size_t)s->first * out;
        check_same(c, "tokens without an adapter", got + at, d->y + at, (size_t)s->n * out * sizeof(float));
    }
    const double bytes = (double)rank * (double)(in + out) * um_dtype_size(k->type) +
                         (double)T * (in * um_dtype_size(k->type) + 2 * out * um_dtype_size(y_type));
    check_time(c, bytes, 2.0 * (double)T * (double)rank * (double)(in + out), call_low_rank, &t);
}

/* Compares the first span alone with the same tokens in the batch. */
static void check_alone(check *c, const check_case *k) {
    low_rank_data *d = new_data(c, k);
    const size_t T = (size_t)k->n[ROOM], in = (size_t)k->n[IN], out = (size_t)k->n[OUT];
    const um_cu_low_rank *low_rank = (const um_cu_low_rank *)check_upload(c, d->device, sizeof d->device);
    const void *x = check_operand(c, d->x, T * in, k->type);
    float *low = (float *)check_device(c, T * (size_t)k->n[RANK] * sizeof(float));
    const int32_t n = d->span[0].n;
    const um_message_capacity capacity = {n, 1, um_message_tiles(&d->batch, 16) + 1, 1, 16, 0, 1000, PAGE};
    um_batch first = d->batch;
    first.n_tokens = n;
    first.n_spans = 1;
    const um_cu_batch message[2] = {d->message, check_batch(c, &first, &capacity, NULL)};
    const float *got[2];
    for (int i = 0; i < 2; i++) {
        float *y = (float *)check_upload(c, d->y, T * out * sizeof(float));
        um_cu_low_rank_down(&message[i], low_rank, k->n[IN], k->n[RANK], k->type, x, low, check_stream(c));
        um_cu_low_rank_up(&message[i], low_rank, k->n[OUT], k->n[RANK], k->type, low, UM_F32, y, check_stream(c));
        got[i] = (const float *)check_download(c, y, (size_t)n * out * sizeof(float));
    }
    check_same(c, "tokens alone", got[1], got[0], (size_t)n * out * sizeof(float));
}

static const check_case cases[] = {
    {"low_rank fp32 1 token, rank 1, size 1", check_low_rank, {1, 1, 1, 1, 1, UM_F32}, UM_F32},
    {"low_rank fp32 odd sizes", check_low_rank, {37, 64, 65, 33, 5, UM_F32}, UM_F32},
    {"low_rank fp32 rank 64", check_low_rank, {33, 64, 256, 520, 64, UM_F32}, UM_F32},
    {"low_rank fp32 rank 16, bf16 output", check_low_rank, {33, 64, 256, 300, 16, UM_BF16}, UM_F32},
    {"low_rank bf16 odd sizes", check_low_rank, {37, 64, 65, 33, 5, UM_F32}, UM_BF16},
    {"low_rank bf16 rank 16, bf16 output", check_low_rank, {200, 256, 264, 520, 16, UM_BF16}, UM_BF16},
    {"low_rank bf16 rank 64", check_low_rank, {100, 128, 512, 300, 64, UM_F32}, UM_BF16},
    {"low_rank bf16 stacked ranks 768", check_low_rank, {20, 32, 512, 300, 768, UM_F32}, UM_BF16},
    {"low_rank bf16 rank 16, 32 tokens, 4096 x 4096", check_low_rank, {32, 32, 4096, 4096, 16, UM_BF16}, UM_BF16},
    {"low_rank bf16 rank 16, 1024 tokens, 4096 x 4096", check_low_rank, {1024, 1024, 4096, 4096, 16, UM_F32}, UM_BF16},
    {"low_rank fp32 first span alone", check_alone, {50, 64, 260, 100, 12, UM_F32}, UM_F32},
    {"low_rank bf16 first span alone", check_alone, {50, 64, 264, 100, 16, UM_F32}, UM_BF16},
};
extern const check_list low_rank_checks = {__FILE__, cases, (int)UM_LEN(cases)};
