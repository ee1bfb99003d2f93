/* Checks of the mixture of experts: all kinds of routing, odd shapes and padding against the reference; the same bits
 * for a token alone and in a batch; the time of LLaDA2-mini's layer. */
#include "check.cuh"
#include "cuda/route.cuh"
#include "ops/expert_route.h"

enum {
    TOKENS,
    ROOM,
    HIDDEN,
    FF,
    BLOCK,
    ROUTE,
    GEMMA,
    IN_BLOCKS
}; /* meaning of check_case.n; BLOCK: positions of a routing block; IN_BLOCKS: blocks of the weights have factors */

static const um_expert_route routes[] = {
    {4, 1, UM_SCORE_SOFTMAX, UM_BIAS_NONE, false, 1, 0, 1, 1, 0},
    {8, 2, UM_SCORE_SOFTMAX, UM_BIAS_NONE, true, 1, 0, 1, 1, 0},
    {33, 5, UM_SCORE_SIGMOID, UM_BIAS_CHOICE, true, 2.5f, 0, 1, 1, 0},
    {16, 4, UM_SCORE_SOFTMAX, UM_BIAS_SCORE, false, 1, 0, 1, 1, 0},
    {256, 8, UM_SCORE_SIGMOID, UM_BIAS_CHOICE, true, 2.5f, 0, 8, 4, 0},
    {12, 6, UM_SCORE_SIGMOID, UM_BIAS_SCORE, false, 0.5f, 0, 3, 2, 0},
    {24, 6, UM_SCORE_SOFTMAX, UM_BIAS_NONE, true, 1, 0, 1, 1, 9},
    {256, 8, UM_SCORE_SIGMOID, UM_BIAS_CHOICE, true, 2.5f, 0, 1, 1, 48},
    {1, 1, UM_SCORE_SOFTMAX, UM_BIAS_NONE, false, 1, 0, 1, 1, 0},
    {300, 40, UM_SCORE_SIGMOID, UM_BIAS_NONE, true, 1, 0, 100, 30, 0},
    {128, 8, UM_SCORE_SOFTMAX, UM_BIAS_NONE, true, 1, 0.02f, 1, 1, 0},
    {600, 8, UM_SCORE_SIGMOID, UM_BIAS_CHOICE, true, 1, 0, 1, 1, 0},
    {96, 70, UM_SCORE_SIGMOID, UM_BIAS_CHOICE, true, 1, 0, 4, 3, 0},
    {400, 10, UM_SCORE_SOFTMAX, UM_BIAS_NONE, true, 1, 0, 20, 7, 0},
};

typedef struct moe_data {
    um_expert_route r;
    int32_t n, capacity, hidden, ff, length;
    int32_t *pos, *block;         /* [n] */
    float *x, *logits, *bias, *y; /* [room, ...]; NaN for padding, but for y */
    float *expert_scale;          /* [E] or NULL */
    um_dtype type;                /* of the experts */
    bool in_blocks;
    um_tensor gate_up, down; /* all experts */
    um_cu_moe a;
} moe_data;

/* ---- Inputs ------------------------------------------------------------------------------------------------------ */

/* Gives positions to the tokens as two spans, and numbers their routing blocks. */
static void place_tokens(check *c, moe_data *d) {
    d->pos = (int32_t *)check_host(c, (size_t)d->n * sizeof(int32_t));
    d->block = (int32_t *)check_host(c, (size_t)d->n * sizeof(int32_t));
    const int32_t half = d->n / 2, length = UM_MAX(d->length, 1);
    for (int32_t t = 0, number = 0; t < d->n; t++) {
        d->pos[t] = t < half ? t + 5 : t - half;
        if (t == 0 || t == half || d->pos[t] / length != d->pos[t - 1] / length) number++;
        d->block[t] = number;
    }
}

static int32_t *choices_of(check *c, const moe_data *d, const float *logits) {
    const size_t pairs = (size_t)d->n * (size_t)d->r.top_k;
    int32_t *expert = (int32_t *)check_host(c, pairs * sizeof(int32_t));
    float *weight = (float *)check_host(c, pairs * sizeof(float));
    float *scratch = (float *)check_host(c, um_expert_route_scratch(d->r.n_experts) * sizeof(float));
    um_expert_route_tokens(&d->r, logits, d->bias, d->expert_scale, d->block, d->n, scratch, expert, weight);
    return expert;
}

/* Draws logits whose choices survive small changes, because exp may differ in its last bit. */
static void draw_logits(check *c, moe_data *d) {
    const size_t E = (size_t)d->r.n_experts, n = (size_t)d->n * E, pairs = (size_t)d->n * (size_t)d->r.top_k;
    bool stable = false;
    for (int tries = 0; !stable && tries < 50; tries++) {
        d->logits = check_floats(c, (size_t)d->capacity * E);
        float *near = (float *)check_host(c, n * sizeof(float));
        for (size_t i = 0; i < n; i++) d->logits[i] *= d->r.sharpness == 0 ? 3 : 3 / d->r.sharpness;
        for (size_t i = n; i < (size_t)d->capacity * E; i++) d->logits[i] = NAN;
        const int32_t *expert = choices_of(c, d, d->logits);
        stable = true;
        for (int k = 0; stable && k < 3; k++) {
            for (size_t i = 0; i < n; i++) near[i] = d->logits[i] + 1e-6f * check_signed(c);
            stable = !memcmp(expert, choices_of(c, d, near), pairs * sizeof *expert);
        }
    }
    check_true(c, stable, "no logits with clear choices in 50 tries");
}

static moe_data new_data(check *c, const check_case *k) {
    moe_data d = {};
    d.r = routes[k->n[ROUTE]];
    d.n = k->n[TOKENS];
    d.capacity = k->n[ROOM];
    d.hidden = k->n[HIDDEN];
    d.ff = k->n[FF];
    d.length = k->n[BLOCK];
    place_tokens(c, &d);
    d.expert_scale = k->n[GEMMA] ? check_floats(c, (size_t)d.r.n_experts) : NULL;
    d.bias = d.r.bias == UM_BIAS_NONE ? NULL : check_floats(c, (size_t)d.r.n_experts);
    draw_logits(c, &d);
    const size_t used = (size_t)d.n * (size_t)d.hidden, all = (size_t)d.capacity * (size_t)d.hidden;
    d.x = check_floats(c, all);
    d.y = check_floats(c, all);
    for (size_t i = 0; i < used; i++) d.x[i] *= 2 / sqrtf((float)d.hidden);
    for (size_t i = used; i < all; i++) d.x[i] = NAN;
    d.a.route = d.r;
    d.a.bias = d.bias ? (float *)check_upload(c, d.bias, (size_t)d.r.n_experts * sizeof(float)) : NULL;
    d.a.expert_scale =
        d.expert_scale ? (float *)check_upload(c, d.expert_scale, (size_t)d.r.n_experts * sizeof(float)) : NULL;
    d.a.act = k->n[GEMMA] ? UM_ACT_GELU_TANH : UM_ACT_SILU;
    d.a.add = !k->n[GEMMA];
    d.a.y_type = UM_F32;
    d.type = k->type;
    d.in_blocks = k->n[IN_BLOCKS];
    d.a.type = k->type == UM_F8 ? UM_BF16 : k->type;
    d.a.hidden = d.hidden;
    d.a.n_ff = d.ff;
    d.a.n_own = d.r.n_experts;
    return d;
}

/* Returns the device's array of pointers to E matrices that lie one after another. */
static const void *const *pointers_to(check *c, const void *data, int32_t E, size_t bytes) {
    const char **list = (const char **)check_host(c, (size_t)E * sizeof *list);
    for (int32_t e = 0; e < E; e++) list[e] = (const char *)data + (size_t)e * bytes;
    return (const void *const *)check_upload(c, list, (size_t)E * sizeof *list);
}

/* Returns the device's list of the factors of E matrices [rows, in] that lie one after another. */
static const um_cu_factors *factors_of(check *c, const um_cu_matrix *m, int32_t E, int32_t rows) {
    um_cu_factors *list = (um_cu_factors *)check_host(c, (size_t)E * sizeof *list);
    const size_t blocks = um_cu_block_bytes(rows, m->in) / sizeof *m->block;
    for (size_t e = 0; e < (size_t)E; e++)
        list[e] = {m->scale + e * (size_t)rows, m->block ? m->block + e * blocks : NULL};
    return (const um_cu_factors *)check_upload(c, list, (size_t)E * sizeof *list);
}

static void new_weights(check *c, moe_data *d) {
    const int32_t E = d->r.n_experts;
    const size_t expert = (size_t)d->hidden * (size_t)d->ff * um_dtype_size(d->type);
    d->gate_up = check_tensor(c, E * 2 * d->ff, d->hidden, d->type);
    d->down = check_tensor(c, E * d->hidden, d->ff, d->type);
    const um_cu_matrix gate_up =
        d->in_blocks ? check_matrix_in_blocks(c, &d->gate_up, E) : check_matrix(c, &d->gate_up, d->type);
    const um_cu_matrix down =
        d->in_blocks ? check_matrix_in_blocks(c, &d->down, E) : check_matrix(c, &d->down, d->type);
    d->a.gate_up = pointers_to(c, gate_up.data, E, 2 * expert);
    d->a.down = pointers_to(c, down.data, E, expert);
    if (d->type != UM_F8) return;
    d->a.gate_up_scale = factors_of(c, &gate_up, E, 2 * d->ff);
    d->a.down_scale = factors_of(c, &down, E, d->hidden);
    d->a.gate_up_blocks = d->a.down_blocks = d->in_blocks;
}

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

/* Makes the batch of the tokens [first, first + n) with room for `room` tokens. */
static um_cu_batch part_of(check *c, const moe_data *d, int32_t first, int32_t n, int32_t capacity) {
    enum { PAGE = 32, SPANS = 2 };
    const int32_t half = UM_MIN(UM_MAX(d->n / 2 - first, 0), n);
    int32_t *zero = (int32_t *)check_host(c, (size_t)n * sizeof(int32_t));
    int32_t *slot = (int32_t *)check_host(c, (size_t)n * sizeof(int32_t));
    int32_t *seen = (int32_t *)check_host(c, (size_t)n * sizeof(int32_t));
    int32_t *page = (int32_t *)check_host(c, (size_t)UM_CEIL_DIV(d->n + 6, PAGE) * sizeof(int32_t));
    um_span span[SPANS] = {};
    um_batch b = {};
    b.n_tokens = n;
    b.id = zero;
    b.pos = d->pos + first;
    b.slot = slot;
    b.seen_end = seen;
    b.span = span;
    for (int32_t t = 0; t < n; t++) {
        slot[t] = -1;
        seen[t] = d->pos[first + t] + 1;
    }
    for (int i = 0; i < SPANS; i++) {
        const int32_t start = i ? half : 0, size = i ? n - half : half;
        if (!size) continue;
        um_span *s = &span[b.n_spans++];
        s->first = start;
        s->n = size;
        s->page = page;
        s->keys.end = d->pos[first + start + size - 1] + 1;
        s->adapter = -1;
    }
    const um_message_capacity r = {capacity, SPANS, um_message_tiles(&b, 16) + 1, 1, 16, d->length, 1000, PAGE};
    return check_batch(c, &b, &r, NULL);
}

/* The x, logits and y of a run on the device. */
static um_cu_moe prepare(check *c, const moe_data *d, int32_t first, int32_t capacity) {
    um_cu_moe a = d->a;
    const size_t H = (size_t)d->hidden, E = (size_t)d->r.n_experts, at = (size_t)first, n = (size_t)capacity;
    float *x = (float *)check_host(c, n * H * sizeof(float));
    memcpy(x, d->x + at * H, n * H * sizeof(float));
    a.x = check_operand(c, x, n * H, a.type);
    if (a.gate_up_scale) {
        const um_cu_rows rows = check_rows(c, x, capacity, d->hidden, UM_F8);
        a.coded = {(unsigned char *)rows.data, (float *)rows.scale};
    }
    a.logits = (float *)check_upload(c, d->logits + at * E, n * E * sizeof(float));
    a.y = (float *)check_upload(c, d->y + at * H, n * H * sizeof(float));
    a.scratch = check_device(c, um_cu_moe_scratch(&d->r, capacity, d->hidden, d->ff, a.type, a.down_scale != NULL));
    return a;
}

/* Runs the operation for the tokens [first, first + n) and returns their rows of y. */
static float *run_part(check *c, const moe_data *d, int32_t first, int32_t n, int32_t capacity) {
    const um_cu_batch b = part_of(c, d, first, n, capacity);
    const um_cu_moe a = prepare(c, d, first, capacity);
    um_cu_moe_add(&b, &a, check_stream(c));
    return (float *)check_download(c, a.y, (size_t)n * (size_t)d->hidden * sizeof(float));
}

/* Makes the weights of one expert for the reference; part e of all rows. */
static um_weight *expert_of(check *c, um_dev *dev, const um_tensor *all, int32_t e, int32_t rows, um_dtype type) {
    um_tensor t = *all;
    um_weight *w = NULL;
    um_err err;
    t.dim[0] = rows;
    t.data = (const char *)all->data + (size_t)e * (size_t)rows * (size_t)t.dim[1] * um_dtype_size(type);
    check_status(c, um_ops_ref.weight(dev, &w, &t, 1, type, &err), &err);
    return w;
}

/* out [rows] = W x, for W the rows from `first` on. */
static void multiply(const um_tensor *w, int32_t first, int32_t rows, const float *x, float *out) {
    const size_t in = (size_t)w->dim[1];
    for (int32_t i = 0; i < rows; i++) {
        const size_t at = (size_t)(first + i) * in;
        double sum = 0;
        for (size_t k = 0; k < in; k++)
            sum += x[k] * (w->type == UM_BF16 ? (double)um_bf16_to_f32(((const uint16_t *)w->data)[at + k])
                                              : (double)((const float *)w->data)[at + k]);
        out[i] = (float)sum;
    }
}

/* Rounds an input of a product. */
static void round_input(const moe_data *d, float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) x[i] = um_bf16_to_f32(um_f32_to_bf16(x[i]));
    if (d->type == UM_F8) check_round_fp8(x, n, true, NULL);
}

/* The experts in bf16 and e4m3. The reference backend rounds neither the outputs nor, to e4m3, the inputs. */
static float *reference_rounded(check *c, const moe_data *d) {
    um_dev *dev = check_ref(c, d->a.type);
    const size_t H = (size_t)d->hidden, pairs = (size_t)d->n * (size_t)d->r.top_k;
    int32_t *expert = (int32_t *)check_host(c, pairs * sizeof *expert);
    float *weight = (float *)check_host(c, pairs * sizeof *weight);
    float *scratch = (float *)check_host(c, um_expert_route_scratch(d->r.n_experts) * sizeof *scratch);
    float *x = (float *)check_host(c, H * sizeof *x), *out = (float *)check_host(c, H * sizeof *out);
    float *up = (float *)check_host(c, 2 * (size_t)d->ff * sizeof *up);
    float *gated = (float *)check_host(c, (size_t)d->ff * sizeof *gated);
    float *y = (float *)check_host(c, (size_t)d->n * H * sizeof *y);
    if (d->a.add) memcpy(y, d->y, (size_t)d->n * H * sizeof *y);
    um_expert_route_tokens(&d->r, d->logits, d->bias, d->expert_scale, d->r.capacity ? d->block : NULL, d->n, scratch,
                           expert, weight);
    for (size_t p = 0; p < pairs; p++) {
        const size_t t = p / (size_t)d->r.top_k;
        memcpy(x, d->x + t * H, H * sizeof *x);
        round_input(d, x, d->hidden);
        multiply(&d->gate_up, expert[p] * 2 * d->ff, 2 * d->ff, x, up);
        um_ref_gate(dev, d->a.act, up, 1, d->ff, gated);
        round_input(d, gated, d->ff);
        multiply(&d->down, expert[p] * d->hidden, d->hidden, gated, out);
        for (size_t i = 0; i < H; i++) y[t * H + i] += um_bf16_to_f32(um_f32_to_bf16(weight[p] * out[i]));
    }
    return y;
}

static float *reference_of(check *c, const moe_data *d) {
    if (d->type != UM_F32) return reference_rounded(c, d);
    um_dev *dev = check_ref(c, d->a.type);
    const int32_t E = d->r.n_experts;
    um_weight **gate_up = (um_weight **)check_host(c, (size_t)E * sizeof(void *));
    um_weight **down = (um_weight **)check_host(c, (size_t)E * sizeof(void *));
    for (int32_t e = 0; e < E; e++) {
        gate_up[e] = expert_of(c, dev, &d->gate_up, e, 2 * d->ff, d->a.type);
        down[e] = expert_of(c, dev, &d->down, e, d->hidden, d->a.type);
    }
    const size_t bytes = (size_t)d->n * (size_t)d->hidden * sizeof(float);
    float *y = (float *)check_host(c, bytes);
    if (d->a.add) memcpy(y, d->y, bytes);
    const um_moe a = {
        &d->r, d->logits, d->bias,   d->expert_scale, d->a.act, d->r.capacity ? d->block : NULL, gate_up, down,
        d->x,  d->n,      d->hidden, d->ff,           y};
    um_ref_moe(dev, &a);
    for (int32_t e = 0; e < E; e++) {
        um_ops_ref.weight_free(dev, gate_up[e]);
        um_ops_ref.weight_free(dev, down[e]);
    }
    return y;
}

/* Runs the operation as two ranks do, one after the other. Each has half of the experts and knows no matrices of the
 * others. The second one adds to the sums of the first. */
static float *run_halves(check *c, const moe_data *d) {
    const int32_t E = d->r.n_experts, half = E / 2;
    const um_cu_batch b = part_of(c, d, 0, d->n, d->capacity);
    um_cu_moe a = prepare(c, d, 0, d->capacity);
    const void **gate_up = (const void **)check_download(c, a.gate_up, (size_t)E * sizeof(void *)),
               **down = (const void **)check_download(c, a.down, (size_t)E * sizeof(void *));
    for (int r = 0; r < 2; r++) {
        const void **own_gate_up = (const void **)check_host(c, (size_t)E * sizeof(void *)),
                   **own_down = (const void **)check_host(c, (size_t)E * sizeof(void *));
        a.first_own = r ? half : 0;
        a.n_own = r ? E - half : half;
        for (int32_t e = a.first_own; e < a.first_own + a.n_own; e++)
            own_gate_up[e] = gate_up[e], own_down[e] = down[e];
        a.gate_up = (const void *const *)check_upload(c, own_gate_up, (size_t)E * sizeof(void *));
        a.down = (const void *const *)check_upload(c, own_down, (size_t)E * sizeof(void *));
        a.scratch =
            check_device(c, um_cu_moe_scratch(&d->r, d->capacity, d->hidden, d->ff, a.type, a.down_scale != NULL));
        um_cu_moe_add(&b, &a, check_stream(c));
        a.add = true;
    }
    return (float *)check_download(c, a.y, (size_t)d->n * (size_t)d->hidden * sizeof(float));
}

/* ---- Cases ------------------------------------------------------------------------------------------------------- */

/* Runs tokens alone, or with their routing block, and compares their bits with those of the batch. */
static void check_alone(check *c, const moe_data *d, const float *all) {
    const size_t H = (size_t)d->hidden;
    for (int i = 0; i < 4; i++) {
        int32_t first = check_below(c, d->n), end = first + 1;
        while (d->r.capacity && first > 0 && d->block[first - 1] == d->block[first]) first--;
        while (d->r.capacity && end < d->n && d->block[end] == d->block[first]) end++;
        const float *some = run_part(c, d, first, end - first, end - first);
        check_same(c, "tokens alone", some, all + (size_t)first * H, (size_t)(end - first) * H * sizeof(float));
    }
}

static void check_parity(check *c, const check_case *k) {
    moe_data d = new_data(c, k);
    /* An input of the second product near the middle of two codes may be rounded to either. */
    const double close = k->type == UM_F32 ? 5e-6 : k->type == UM_BF16 ? 2e-3 : 1e-2;
    new_weights(c, &d);
    const float *got = run_part(c, &d, 0, d.n, d.capacity);
    check_close(c, "output", got, reference_of(c, &d), (size_t)d.n * (size_t)d.hidden, close);
    const float *again = run_part(c, &d, 0, d.n, d.capacity);
    check_same(c, "second run", again, got, (size_t)d.n * (size_t)d.hidden * sizeof(float));
    check_alone(c, &d, got);
    if (d.r.n_experts < 2) return;
    check_same(c, "halves of the experts", run_halves(c, &d), got, (size_t)d.n * (size_t)d.hidden * sizeof(float));
}

/* The norm that adds the outputs of experts must have the bits of the sum and a norm behind it. */
static void check_norm(check *c, const check_case *k) {
    moe_data d = new_data(c, k);
    const size_t H = (size_t)d.hidden, n = (size_t)d.capacity * H, size = um_dtype_size(d.a.type);
    float *w = check_floats(c, H), *bias = check_floats(c, H);
    new_weights(c, &d);
    w = (float *)check_upload(c, w, H * sizeof *w);
    bias = (float *)check_upload(c, bias, H * sizeof *bias);
    const um_cu_batch b = part_of(c, &d, 0, d.n, d.capacity);
    for (int kind = 0; kind < 3; kind++) { /* all experts; with a bias; some of the experts */
        const float *shift = kind == 1 ? bias : NULL;
        um_cu_moe a[2] = {prepare(c, &d, 0, d.capacity), prepare(c, &d, 0, d.capacity)};
        for (int i = 0; i < 2 && kind == 2; i++) a[i].first_own = d.r.n_experts / 3, a[i].n_own = d.r.n_experts / 3;
        void *y[2] = {check_guarded(c, n * size), check_guarded(c, n * size)};
        float *wide[2] = {(float *)check_guarded(c, n * sizeof(float)), (float *)check_guarded(c, n * sizeof(float))};
        um_cu_moe_add(&b, &a[0], check_stream(c));
        um_cu_norm((const float *)a[0].y, w, shift, 1e-5f, d.capacity, d.hidden, a[0].type, y[0], wide[0], NULL,
                   check_stream(c));
        const um_cu_pairs pairs = um_cu_moe_outputs(&b, &a[1], check_stream(c));
        um_cu_pairs_norm((float *)a[1].y, &pairs, w, shift, 1e-5f, d.capacity, d.hidden, a[1].type, y[1], wide[1], NULL,
                         check_stream(c));
        check_cuda(c, cudaGetLastError(), "norm");
        const size_t used = (size_t)d.n * H;
        check_same(c, "x", check_download(c, a[1].y, n * sizeof(float)), check_download(c, a[0].y, n * sizeof(float)),
                   n * sizeof(float));
        check_same(c, "y", check_download(c, y[1], used * size), check_download(c, y[0], used * size), used * size);
        check_same(c, "y32", check_download(c, wide[1], used * sizeof(float)),
                   check_download(c, wide[0], used * sizeof(float)), used * sizeof(float));
    }
}

/* Outputs that are added to operands have the bits of a sum in fp32 that is rounded once. */
static void check_operands(check *c, const check_case *k) {
    moe_data d = new_data(c, k);
    const size_t H = (size_t)d.hidden, used = (size_t)d.n * H;
    new_weights(c, &d);
    void *y = check_operand(c, d.y, (size_t)d.capacity * H, UM_BF16); /* it also rounds d.y */
    const um_cu_batch b = part_of(c, &d, 0, d.n, d.capacity);
    um_cu_moe a[2] = {prepare(c, &d, 0, d.capacity), prepare(c, &d, 0, d.capacity)};
    a[1].y = y;
    a[1].y_type = UM_BF16;
    for (int i = 0; i < 2; i++) um_cu_moe_add(&b, &a[i], check_stream(c));
    float *want = check_floats_of(c, a[0].y, used, UM_F32);
    for (size_t i = 0; i < used; i++) want[i] = um_bf16_to_f32(um_f32_to_bf16(want[i]));
    check_same(c, "sums", check_floats_of(c, y, used, UM_BF16), want, used * sizeof *want);
}

/* Makes room for the routes of all tokens of the capacity. */
static um_cu_routes new_routes(check *c, const moe_data *d) {
    const size_t n = (size_t)d->capacity, E = (size_t)d->r.n_experts, K = (size_t)d->r.top_k;
    um_cu_routes r = {};
    r.chosen = (uint32_t *)check_guarded(c, n * UM_CEIL_DIV(E, 32) * sizeof(uint32_t));
    r.weight = (float *)check_guarded(c, n * K * sizeof(float));
    r.pool = (uint32_t *)check_guarded(c, n * UM_CEIL_DIV(E, 32) * sizeof(uint32_t));
    r.count = (int32_t *)check_guarded(c, E * sizeof(int32_t));
    r.pair = (int32_t *)check_guarded(c, E * n * sizeof(int32_t));
    return r;
}

/* Many experts have equal scores. The lists must be those of the reference: the lower expert among equals. */
static void check_ties(check *c, const check_case *k) {
    moe_data d = new_data(c, k);
    const size_t E = (size_t)d.r.n_experts, n = (size_t)d.n, K = (size_t)d.r.top_k, room = (size_t)d.capacity;
    for (size_t i = 0; i < n * E; i++) d.logits[i] = roundf(d.logits[i]);
    for (size_t e = 0; d.bias && e < E; e++) d.bias[e] = 0;
    if (d.bias) d.a.bias = (float *)check_upload(c, d.bias, E * sizeof(float));
    const int32_t *expert = choices_of(c, &d, d.logits);
    int32_t *count = (int32_t *)check_host(c, E * sizeof *count), *pair = (int32_t *)check_host(c, E * room * 4);
    for (size_t i = 0; i < n * K; i++) pair[(size_t)expert[i] * room + (size_t)count[expert[i]]++] = (int32_t)i;
    const um_cu_batch b = part_of(c, &d, 0, d.n, d.capacity);
    const um_cu_moe a = prepare(c, &d, 0, d.capacity);
    const um_cu_routes r = new_routes(c, &d);
    um_cu_route(&b, &a, &r, check_stream(c));
    check_cuda(c, cudaGetLastError(), "route");
    check_same(c, "counts", check_download(c, r.count, E * sizeof *count), count, E * sizeof *count);
    const int32_t *lists = (const int32_t *)check_download(c, r.pair, E * room * sizeof *pair);
    for (size_t e = 0; e < E; e++)
        check_same(c, "pairs", lists + e * room, pair + e * room, (size_t)count[e] * sizeof *pair);
}

/* Fills bf16 weights with magnitudes between 1/32 and 1/8. Their bytes are numbers of e4m3 below 2. */
static __global__ void fill_weights(uint16_t *w, size_t n, uint32_t seed) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t h = ((uint32_t)i ^ seed) * 0x9e3779b1u;
        h = (h ^ h >> 15) * 0x85ebca77u;
        w[i] = (uint16_t)(((h ^ h >> 13) & 0x80bf) | 0x3d00);
    }
}

static void *big_weights(check *c, const moe_data *d, size_t n, uint32_t seed) {
    const size_t halves = n * um_dtype_size(d->type) / 2;
    uint16_t *w = (uint16_t *)check_device(c, halves * sizeof *w);
    fill_weights<<<1024, 256, 0, check_stream(c)>>>(w, halves, seed);
    return w;
}

typedef struct timed_call {
    um_cu_batch b;
    um_cu_moe a;
    cudaStream_t stream;
} timed_call;

static void call_moe(void *arg) {
    const timed_call *t = (const timed_call *)arg;
    um_cu_moe_add(&t->b, &t->a, t->stream);
}

/* Counts the experts that have tokens. */
static int32_t touched(check *c, const moe_data *d) {
    const int32_t *expert = choices_of(c, d, d->logits);
    bool *used = (bool *)check_host(c, (size_t)d->r.n_experts);
    int32_t n = 0;
    for (int32_t i = 0; i < d->n * d->r.top_k; i++) {
        n += !used[expert[i]];
        used[expert[i]] = true;
    }
    return n;
}

/* Makes the bias of the choice small beside the scores, so that the tokens spread over the experts as those of a
 * trained model do. */
static void spread_tokens(check *c, moe_data *d) {
    const size_t E = (size_t)d->r.n_experts;
    for (size_t e = 0; e < E; e++) d->bias[e] *= 0.01f;
    d->a.bias = (float *)check_upload(c, d->bias, E * sizeof(float));
}

/* Returns factors of all experts' blocks, or NULL if the case has none. */
static float *blocks_of_ones(check *c, const moe_data *d, int32_t rows, int32_t in) {
    const size_t bytes = um_cu_block_bytes(rows, in) * (size_t)d->r.n_experts;
    float *one = (float *)check_host(c, bytes);
    if (!d->in_blocks) return NULL;
    for (size_t i = 0; i < bytes / sizeof *one; i++) one[i] = 1;
    return (float *)check_upload(c, one, bytes);
}

/* A layer of real size without a reference: finite outputs, equal bits for tokens alone, and the time. */
static void check_layer(check *c, const check_case *k) {
    moe_data d = new_data(c, k);
    spread_tokens(c, &d);
    const size_t expert = (size_t)d.hidden * (size_t)d.ff, E = (size_t)d.r.n_experts;
    const size_t size = um_dtype_size(d.type);
    d.a.gate_up = pointers_to(c, big_weights(c, &d, 2 * E * expert, 1), d.r.n_experts, 2 * expert * size);
    d.a.down = pointers_to(c, big_weights(c, &d, E * expert, 2), d.r.n_experts, expert * size);
    if (d.type == UM_F8) {
        float *one = (float *)check_host(c, E * (size_t)UM_MAX(d.hidden, 2 * d.ff) * sizeof *one);
        for (size_t i = 0; i < E * (size_t)UM_MAX(d.hidden, 2 * d.ff); i++) one[i] = 1;
        float *ones = (float *)check_upload(c, one, E * (size_t)UM_MAX(d.hidden, 2 * d.ff) * sizeof *one);
        const um_cu_matrix gate_up = {2 * d.ff, d.hidden, UM_F8, NULL, ones, blocks_of_ones(c, &d, 2 * d.ff, d.hidden)};
        const um_cu_matrix down = {d.hidden, d.ff, UM_F8, NULL, ones, blocks_of_ones(c, &d, d.hidden, d.ff)};
        d.a.gate_up_scale = factors_of(c, &gate_up, d.r.n_experts, 2 * d.ff);
        d.a.down_scale = factors_of(c, &down, d.r.n_experts, d.hidden);
        d.a.gate_up_blocks = d.a.down_blocks = d.in_blocks;
    }
    const size_t n = (size_t)d.n * (size_t)d.hidden;
    const float *got = run_part(c, &d, 0, d.n, d.capacity);
    size_t n_bad = 0;
    for (size_t i = 0; i < n; i++) n_bad += !isfinite(got[i]);
    check_true(c, n_bad == 0, "%zu outputs are not finite", n_bad);
    check_alone(c, &d, got);
    timed_call t = {part_of(c, &d, 0, d.n, d.capacity), prepare(c, &d, 0, d.capacity), check_stream(c)};
    const double bytes = 3.0 * (double)size * touched(c, &d) * (double)expert + 10.0 * (double)n;
    check_time(c, bytes, 6.0 * d.n * d.r.top_k * (double)expert, call_moe, &t);
}

typedef struct routing_call {
    timed_call t;
    const void *packed; /* the router */
    const float *x;
    um_cu_routes routes;
} routing_call;

static void call_routing(void *arg) {
    const routing_call *r = (const routing_call *)arg;
    const um_cu_moe *a = &r->t.a;
    um_cu_router_product(r->packed, a->route.n_experts, a->hidden, r->x, r->t.b.capacity.n_tokens, (float *)a->logits,
                         r->t.stream);
    um_cu_route(&r->t.b, a, &r->routes, r->t.stream);
}

/* The time of a router with its choice and lists. */
static void check_routing(check *c, const check_case *k) {
    moe_data d = new_data(c, k);
    if (check_skips(c, um_cu_router_suits(d.r.n_experts, d.hidden), "kernel of router.cu")) return;
    const size_t n = (size_t)d.n, E = (size_t)d.r.n_experts, H = (size_t)d.hidden;
    routing_call r = {{part_of(c, &d, 0, d.n, d.capacity), prepare(c, &d, 0, d.capacity), check_stream(c)}};
    void *packed = check_device(c, um_cu_router_bytes(d.r.n_experts, d.hidden));
    check_cuda(c, cudaMemset(packed, 0, um_cu_router_bytes(d.r.n_experts, d.hidden)), "cudaMemset");
    r.packed = packed;
    r.x = (const float *)check_upload(c, d.x, n * H * sizeof(float));
    r.routes = new_routes(c, &d);
    check_time(c, 2.0 * (double)(E * H) + 4.0 * (double)(n * H) + 4.0 * (double)(n * E), 2.0 * (double)(n * E * H),
               call_routing, &r);
}

static const check_case cases[] = {
    {"moe fp32 1 token, 1 expert", check_parity, {1, 1, 1, 1, 0, 8}, UM_F32},
    {"moe fp32 1 of 4 experts", check_parity, {7, 8, 64, 24, 0, 0}, UM_F32},
    {"moe fp32 odd sizes, 4 of 16, score bias", check_parity, {37, 64, 65, 33, 0, 3}, UM_F32},
    {"moe fp32 8 of 256, groups", check_parity, {33, 64, 72, 40, 0, 4}, UM_F32},
    {"moe fp32 many chunks, 2 of 8", check_parity, {200, 256, 48, 40, 0, 1}, UM_F32},
    {"moe fp32 pools of blocks", check_parity, {50, 64, 64, 100, 16, 6}, UM_F32},
    {"moe bf16 1 token, 1 expert, size 1", check_parity, {1, 1, 1, 1, 0, 8}, UM_BF16},
    {"moe bf16 1 token, 2 of 8", check_parity, {1, 4, 64, 24, 0, 1}, UM_BF16},
    {"moe bf16 7 tokens, 1 of 4", check_parity, {7, 8, 64, 24, 0, 0}, UM_BF16},
    {"moe bf16 odd sizes, 5 of 33, choice bias", check_parity, {33, 40, 65, 33, 0, 2}, UM_BF16},
    {"moe bf16 odd ff alone", check_parity, {33, 40, 72, 33, 0, 2}, UM_BF16},
    {"moe bf16 4 of 16, score bias", check_parity, {33, 64, 200, 136, 0, 3}, UM_BF16},
    {"moe bf16 8 of 256, groups", check_parity, {33, 64, 136, 72, 0, 4}, UM_BF16},
    {"moe bf16 6 of 12, score bias, groups", check_parity, {200, 256, 264, 200, 0, 5}, UM_BF16},
    {"moe bf16 pools of blocks", check_parity, {70, 128, 64, 104, 16, 6}, UM_BF16},
    {"moe bf16 pools of 48 of 256", check_parity, {200, 256, 64, 40, 32, 7}, UM_BF16},
    {"moe bf16 one expert, 1024 tokens", check_parity, {1024, 1024, 64, 24, 0, 8}, UM_BF16},
    {"moe bf16 1024 tokens, 8 of 256", check_parity, {1024, 1024, 64, 24, 0, 4}, UM_BF16},
    {"moe bf16 40 of 300, 100 groups", check_parity, {60, 64, 40, 16, 0, 9}, UM_BF16},
    {"moe bf16 8 of 600", check_parity, {40, 64, 40, 16, 0, 11}, UM_BF16},
    {"moe bf16 70 of 96, groups", check_parity, {20, 32, 40, 16, 0, 12}, UM_BF16},
    {"moe bf16 10 of 400, 20 groups", check_parity, {50, 64, 40, 16, 0, 13}, UM_BF16},
    {"moe fp32 gelu, factors, 8 of 128", check_parity, {33, 64, 72, 40, 0, 10, 1}, UM_F32},
    {"moe bf16 gelu, factors, 8 of 128", check_parity, {256, 256, 136, 88, 0, 10, 1}, UM_BF16},
    {"moe bf16 wide, 2 of 8", check_parity, {5, 8, 2048, 512, 0, 1}, UM_BF16},
    {"moe bf16 lists of all lengths, 5 of 33", check_parity, {300, 320, 200, 136, 0, 2}, UM_BF16},
    {"moe bf16 long lists, 2 of 8", check_parity, {600, 640, 264, 328, 0, 1}, UM_BF16},
    {"moe bf16 long lists with rests, 1 of 4", check_parity, {700, 704, 200, 136, 0, 0}, UM_BF16},
    {"moe bf16 long lists, wide, 2 of 8", check_parity, {500, 512, 1032, 520, 0, 1}, UM_BF16},
    {"moe bf16 long lists, gelu, factors, 2 of 8", check_parity, {300, 320, 136, 88, 0, 1, 1}, UM_BF16},
    {"moe bf16 long lists, odd ff alone, 2 of 8", check_parity, {300, 320, 136, 33, 0, 1}, UM_BF16},
    {"fp8 moe 1 token, 2 of 8", check_parity, {1, 4, 64, 32, 0, 1}, UM_F8},
    {"fp8 moe 7 tokens, 1 of 4", check_parity, {7, 8, 64, 48, 0, 0}, UM_F8},
    {"fp8 moe 4 of 16, score bias", check_parity, {33, 64, 208, 144, 0, 3}, UM_F8},
    {"fp8 moe 8 of 256, groups", check_parity, {33, 64, 144, 80, 0, 4}, UM_F8},
    {"fp8 moe 6 of 12, score bias, groups", check_parity, {200, 256, 272, 208, 0, 5}, UM_F8},
    {"fp8 moe pools of blocks", check_parity, {70, 128, 64, 112, 16, 6}, UM_F8},
    {"fp8 moe one expert, 1024 tokens", check_parity, {1024, 1024, 64, 32, 0, 8}, UM_F8},
    {"fp8 moe 4 of 16 in blocks, score bias", check_parity, {33, 64, 208, 144, 0, 3, 0, 1}, UM_F8},
    {"fp8 moe 8 of 256 in blocks, groups", check_parity, {33, 64, 144, 64, 0, 4, 0, 1}, UM_F8},
    {"fp8 moe 6 of 12 in blocks, score bias, groups", check_parity, {200, 256, 272, 384, 0, 5, 0, 1}, UM_F8},
    {"fp8 moe one expert in blocks, 1024 tokens", check_parity, {1024, 1024, 640, 256, 0, 8, 0, 1}, UM_F8},
    {"fp8 moe llada2-mini layer in blocks, 32 tokens", check_layer, {32, 32, 2048, 512, 0, 4, 0, 1}, UM_F8},
    {"fp8 moe llada2-mini layer in blocks, 1024 tokens", check_layer, {1024, 1024, 2048, 512, 0, 4, 0, 1}, UM_F8},
    {"fp8 moe llada2-mini layer, 32 tokens", check_layer, {32, 32, 2048, 512, 0, 4}, UM_F8},
    {"fp8 moe llada2-mini layer, 1024 tokens", check_layer, {1024, 1024, 2048, 512, 0, 4}, UM_F8},
    {"moe norm bf16 8 of 256", check_norm, {33, 64, 136, 72, 0, 4}, UM_BF16},
    {"moe norm bf16 6 of 12, many rows", check_norm, {900, 950, 264, 24, 0, 5}, UM_BF16},
    {"moe norm bf16 40 of 300", check_norm, {60, 64, 40, 16, 0, 9}, UM_BF16},
    {"moe norm fp32 odd sizes, 5 of 33", check_norm, {37, 64, 65, 33, 0, 2}, UM_F32},
    {"moe norm fp32 2 of 8", check_norm, {7, 8, 64, 24, 0, 1}, UM_F32},
    {"moe operands bf16 8 of 256, groups", check_operands, {33, 64, 136, 72, 0, 4}, UM_BF16},
    {"moe operands bf16 odd sizes, 5 of 33", check_operands, {33, 40, 65, 33, 0, 2}, UM_BF16},
    {"moe operands bf16 replaced, 8 of 128", check_operands, {256, 256, 136, 88, 0, 10, 1}, UM_BF16},
    {"fp8 moe operands 6 of 12", check_operands, {200, 256, 272, 208, 0, 5}, UM_F8},
    {"moe ties, 8 of 256, groups", check_ties, {70, 96, 64, 8, 0, 4}, UM_BF16},
    {"moe ties, 5 of 33", check_ties, {300, 320, 64, 8, 0, 2}, UM_BF16},
    {"moe ties, 6 of 12, groups", check_ties, {40, 64, 64, 8, 0, 5}, UM_BF16},
    {"moe ties, pools of 9 of 24", check_ties, {50, 64, 64, 8, 16, 6}, UM_BF16},
    {"moe ties, 40 of 300, 100 groups", check_ties, {40, 64, 64, 8, 0, 9}, UM_BF16},
    {"moe ties, 8 of 600", check_ties, {40, 64, 64, 8, 0, 11}, UM_BF16},
    {"moe ties, 70 of 96, groups", check_ties, {40, 64, 64, 8, 0, 12}, UM_BF16},
    {"moe ties, 10 of 400, 20 groups", check_ties, {1100, 1100, 64, 8, 0, 13}, UM_BF16},
    {"moe routing llada2-mini, 32 tokens", check_routing, {32, 32, 2048, 8, 0, 4}, UM_BF16},
    {"moe routing llada2-mini, 512 tokens", check_routing, {512, 512, 2048, 8, 0, 4}, UM_BF16},
    {"moe routing llada2-mini, 1024 tokens", check_routing, {1024, 1024, 2048, 8, 0, 4}, UM_BF16},
    {"moe routing llada2-mini, 4096 tokens", check_routing, {4096, 4096, 2048, 8, 0, 4}, UM_BF16},
    {"moe bf16 llada2-mini layer, 1 token", check_layer, {1, 1, 2048, 512, 0, 4}, UM_BF16},
    {"moe bf16 llada2-mini layer, 32 tokens", check_layer, {32, 32, 2048, 512, 0, 4}, UM_BF16},
    {"moe bf16 llada2-mini layer, 256 tokens", check_layer, {256, 256, 2048, 512, 0, 4}, UM_BF16},
    {"moe bf16 llada2-mini layer, 512 tokens", check_layer, {512, 512, 2048, 512, 0, 4}, UM_BF16},
    {"moe bf16 llada2-mini layer, 1024 tokens", check_layer, {1024, 1024, 2048, 512, 0, 4}, UM_BF16},
    {"moe bf16 llada2-mini layer, 2048 tokens", check_layer, {2048, 2048, 2048, 512, 0, 4}, UM_BF16},
    {"moe bf16 llada2-mini layer, 4096 tokens", check_layer, {4096, 4096, 2048, 512, 0, 4}, UM_BF16},
    {"moe bf16 llada2-mini pools, 1024 tokens", check_layer, {1024, 1024, 2048, 512, 32, 7}, UM_BF16},
};
extern const check_list moe_checks = {__FILE__, cases, (int)UM_LEN(cases)};
