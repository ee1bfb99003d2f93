/* Compares every operation of every backend with the reference, for several types and shapes: odd sizes, one row, page
 * boundaries. |x - reference| <= atol + rtol * |reference| must hold for every element; prints the worst element. */
#include "ops_cases.h"

/* The tolerance for the rounding of a sum of n terms of magnitude 1 that are added in different orders. */
static tolerance sum_tolerance(int32_t n) { return (tolerance){1e-6 * sqrt(n) + 1e-6, 3e-6}; }

static void check_dtype_conversions(void) {
    assert_true(um_f32_to_bf16(1.00390625f) == 0x3f80); /* a tie is rounded to even, here down */
    assert_true(um_f32_to_bf16(1.01171875f) == 0x3f82); /* and here up */
    assert_true(isinf(um_bf16_to_f32(um_f32_to_bf16(3.4e38f))));
    assert_true(um_f16_to_f32(0x0001) == 0x1p-24f && um_f16_to_f32(0x83ff) == -1023 * 0x1p-24f);
    assert_true(um_f16_to_f32(0xfbff) == -65504 && isinf(um_f16_to_f32(0x7c00)) && isnan(um_f16_to_f32(0x7e00)));
    const uint32_t nans[] = {0x7f800001, 0x7fffffff, 0xff80ffff};
    for (size_t i = 0; i < UM_LEN(nans); i++) {
        float nan;
        memcpy(&nan, &nans[i], sizeof nan);
        assert_true(isnan(um_bf16_to_f32(um_f32_to_bf16(nan))));
    }
}

static void dtype_conversions_are_exact(void **state) {
    (void)state;
    check_dtype_conversions();
    for (uint32_t v = 0; v < 0x10000; v++) { /* every value survives both conversions */
        float wide = um_bf16_to_f32((uint16_t)v);
        if (!isnan(wide)) assert_int_equal(um_f32_to_bf16(wide), v);
    }
    assert_int_equal(um_dtype_size(UM_F32), 4);
    assert_int_equal(um_dtype_size(UM_F16), 2);
    assert_string_equal(um_dtype_name(UM_BF16), "bfloat16");
}

static void unknown_backend_is_refused_with_the_known_ones(void **state) {
    (void)state;
    um_err err;
    const um_backend *backend = NULL;
    int32_t number;
    static const char *const unknown[] = {"gpu", "cpux", "cp", "", ":", "cpu:", "cpu:x", "cpu:-1", "cpu:1x"};
    for (size_t i = 0; i < UM_LEN(unknown); i++) {
        assert_int_equal(um_backend_find(&backend, &number, unknown[i], &err), UM_EUNSUPPORTED);
        assert_non_null(strstr(err.msg, "\"cpu\", \"ref\""));
        assert_non_null(strstr(err.msg, unknown[i]));
    }
    assert_int_equal(um_backend_find(&backend, &number, "ref:12", &err), UM_OK);
    assert_ptr_equal(backend, &um_backend_ref);
    assert_int_equal(number, 12);
}

/* ---- Linear and embed ---- */

typedef struct linear_shape {
    int32_t in, out[3], n_tokens;
    um_dtype type[3];
    bool bias, add, exact; /* exact: UM_F32 arithmetic on any device */
} linear_shape;

static const linear_shape linear_shapes[] = {
    {1, {1}, 1, {UM_F32}, false, false, false},
    {320, {320, 64, 64}, 1, {UM_BF16, UM_BF16, UM_BF16}, false, false, false},
    {320, {320, 64, 64}, 33, {UM_BF16, UM_BF16, UM_BF16}, true, false, false},
    {511, {33}, 12, {UM_BF16}, true, true, false},
    {513, {65}, 13, {UM_F32}, false, true, false},
    {1025, {31, 2, 64}, 7, {UM_F32, UM_F16, UM_BF16}, true, false, false},
    {257, {96}, 300, {UM_F16}, false, false, false},
    {64, {500}, 253, {UM_BF16}, true, true, false},
    {2, {32}, 5, {UM_BF16}, false, false, false},
    {301, {33}, 9, {UM_BF16}, false, false, true},
    {300, {40}, 14, {UM_F32}, true, false, true},
    {64, {32, 5}, 3, {UM_F16, UM_BF16}, false, true, true},
    /* sizes near the tiles of matrix units, 16 and 32 rows and 32 inputs, and near a block of 1024 inputs */
    {31, {64}, 15, {UM_BF16}, false, false, false},
    {32, {32}, 16, {UM_BF16}, true, false, false},
    {33, {65}, 17, {UM_BF16}, false, true, false},
    {1023, {31}, 31, {UM_BF16}, false, false, false},
    {1024, {40}, 32, {UM_BF16}, false, true, false},
    {1057, {96}, 49, {UM_BF16}, true, true, false},
    {1090, {70}, 37, {UM_BF16}, false, true, false},
};

/* Adds the product to y, or writes it there, with weights of its own. */
static void multiply(const world *w, const linear_shape *s, const um_tensor *part, int n_parts, const float *bias,
                     const float *x, float *y) {
    um_weight *m = make_weight_as(w, part, n_parts, s->exact ? UM_F32 : w->weights);
    w->ops->linear(w->dev, m, bias, x, s->n_tokens, s->add, y);
    w->ops->weight_free(w->dev, m);
}

static void check_linear_shape(const world *w, const world *ref, const linear_shape *s) {
    um_tensor part[3];
    int n_parts = 0;
    size_t out = 0, T = (size_t)s->n_tokens;
    for (; n_parts < 3 && s->out[n_parts]; out += (size_t)s->out[n_parts++])
        part[n_parts] = random_tensor(s->type[n_parts], s->out[n_parts], s->in);
    float *x = random_floats(T * (size_t)s->in), *bias = s->bias ? random_floats(out) : NULL;
    float *got = s->add ? random_floats(T * out) : poisoned_floats(T * out);
    const float *want = known_result(T * out);
    if (!want) {
        float *y = copy_floats(got, T * out);
        multiply(ref, s, part, n_parts, bias, x, y);
        want = keep_result(y, T * out);
    }
    multiply(w, s, part, n_parts, bias, x, got);
    compare(w, "linear", got, want, T * out, out, sum_tolerance(s->in));
    for (int i = 0; i < n_parts; i++) free_tensor(&part[i]);
    um_free(x);
    um_free(bias);
    um_free(got);
}

static void check_linear(const world *w, const world *ref) {
    for (size_t i = 0; i < UM_LEN(linear_shapes); i++) check_linear_shape(w, ref, &linear_shapes[i]);
}

static void linear_matches_the_reference(void **state) {
    (void)state;
    begin_worst();
    for_each_world(check_linear);
    print_worst("linear");
}

static void check_embed(const world *w, const world *ref) {
    enum { IN = 77, ROWS = 45, N = 20 };
    for (um_dtype type = UM_F32; type <= UM_F16; type++) {
        um_tensor part = random_tensor(type, ROWS, IN);
        um_weight *m = make_weight(w, &part, 1), *m_ref = make_weight(ref, &part, 1);
        int32_t id[N] = {0, ROWS - 1};
        for (int i = 2; i < N; i++) id[i] = random_below(ROWS);
        float *got = poisoned_floats(N * IN), *want = poisoned_floats(N * IN);
        w->ops->embed(w->dev, m, id, N, 1.5f, got);
        ref->ops->embed(ref->dev, m_ref, id, N, 1.5f, want);
        compare(w, "embed", got, want, N * IN, IN, (tolerance){1e-12, 0});
        w->ops->weight_free(w->dev, m);
        ref->ops->weight_free(ref->dev, m_ref);
        free_tensor(&part);
        um_free(got);
        um_free(want);
    }
}

static void embed_equals_the_reference(void **state) {
    (void)state;
    begin_worst();
    for_each_world(check_embed);
    print_worst("embed");
}

/* Blends of 0 to 4 rows; one row occurs twice. Every second blend has probabilities as weights and is renormalized. */
static void check_embed_soft(const world *w, const world *ref) {
    enum { IN = 1091, ROWS = 45, N = 12, IDS = 4 };
    for (um_dtype type = UM_F32; type <= UM_F16; type++) {
        um_tensor part = random_tensor(type, ROWS, IN);
        um_weight *m = make_weight(w, &part, 1), *m_ref = make_weight(ref, &part, 1);
        um_soft soft[N];
        int32_t id[IDS] = {0, ROWS - 1, 17, 0};
        float weight[N][IDS], *got = random_floats(N * IN), *want = copy_floats(got, N * IN);
        for (int i = 0; i < N; i++) {
            soft[i] = (um_soft){i, i % (IDS + 1), id, weight[i], i % 2};
            for (int k = 0; k < IDS; k++) weight[i][k] = i % 2 ? (float)random_unit() : random_signed();
        }
        w->ops->embed_soft(w->dev, m, soft, N, 1.5f, got);
        ref->ops->embed_soft(ref->dev, m_ref, soft, N, 1.5f, want);
        compare(w, "embed_soft", got, want, N * IN, IN, (tolerance){1e-6, 1e-5});
        w->ops->weight_free(w->dev, m);
        ref->ops->weight_free(ref->dev, m_ref);
        free_tensor(&part);
        um_free(got);
        um_free(want);
    }
}

static void embed_soft_matches_the_reference(void **state) {
    (void)state;
    begin_worst();
    for_each_world(check_embed_soft);
    print_worst("embed_soft");
}

/* ---- Norm, rows and gate ---- */

static void check_norm_size(const world *w, const world *ref, size_t n, bool has_bias) {
    enum { T = 21 };
    float *x = random_floats(T * n), *weight = random_floats(n), *bias = has_bias ? random_floats(n) : NULL;
    for (size_t i = 0; i < T * n; i++) x[i] += 2; /* a mean far from zero, which LayerNorm subtracts */
    float *got = copy_floats(x, T * n), *want = poisoned_floats(T * n);
    const um_norm norm = {weight, bias, 1e-5f};
    w->ops->norm(w->dev, got, &norm, T, (int32_t)n, got); /* in place */
    ref->ops->norm(ref->dev, x, &norm, T, (int32_t)n, want);
    /* The mean is a sum of n terms of magnitude 2 in another order. Its error is divided by a deviation of about 0.6.
     */
    compare(w, has_bias ? "LayerNorm" : "norm", got, want, T * n, n, (tolerance){has_bias ? 6e-6 : 1e-7, 3e-6});
    um_free(x);
    um_free(weight);
    um_free(bias);
    um_free(got);
    um_free(want);
}

static void check_norm(const world *w, const world *ref) {
    static const int32_t sizes[] = {1, 3, 16, 77, 320};
    for (size_t i = 0; i < UM_LEN(sizes); i++) {
        check_norm_size(w, ref, (size_t)sizes[i], false);
        if (sizes[i] > 1) check_norm_size(w, ref, (size_t)sizes[i], true);
    }
}

static void norm_matches_the_reference(void **state) {
    (void)state;
    begin_worst();
    for_each_world(check_norm);
    print_worst("norm");
}

/* Moves rows to the front in place, then back to their places in another array. */
static void check_copy_rows(const world *w, const world *ref) {
    enum { T = 9, N = 4, STRIDE = 21, WIDTH = 17 };
    static const int32_t token[N] = {0, 3, 4, 8};
    (void)ref;
    float *x = random_floats(T * STRIDE), *front = copy_floats(x, T * STRIDE), *back = poisoned_floats(T * STRIDE);
    w->ops->copy_rows(w->dev, front, token, NULL, N, STRIDE, WIDTH, front);
    w->ops->copy_rows(w->dev, front, NULL, token, N, STRIDE, WIDTH, back);
    for (size_t i = 0; i < N; i++) {
        const size_t at = (size_t)token[i] * STRIDE;
        assert_memory_equal(front + i * STRIDE, x + at, WIDTH * sizeof *x);
        assert_memory_equal(front + i * STRIDE + WIDTH, x + i * STRIDE + WIDTH, (STRIDE - WIDTH) * sizeof *x);
        assert_memory_equal(back + at, x + at, WIDTH * sizeof *x);
    }
    um_free(x);
    um_free(front);
    um_free(back);
}

static void copied_rows_are_where_the_lists_say(void **state) {
    (void)state;
    for_each_world(check_copy_rows);
}

static void check_gate(const world *w, const world *ref) {
    static const int32_t sizes[] = {1, 5, 32, 131};
    for (size_t i = 0; i < UM_LEN(sizes); i++) {
        size_t n = (size_t)sizes[i], T = 19;
        float *gu = random_floats(T * 2 * n);
        for (size_t k = 0; k < T * 2 * n; k++) gu[k] *= powf(10, (float)random_below(3)); /* up to +-100 */
        float *got = poisoned_floats(T * n), *want = poisoned_floats(T * n);
        w->ops->gate(w->dev, UM_ACT_SILU, gu, (int32_t)T, (int32_t)n, got);
        ref->ops->gate(ref->dev, UM_ACT_SILU, gu, (int32_t)T, (int32_t)n, want);
        compare(w, "gate", got, want, T * n, n, (tolerance){1e-7, 3e-6});
        w->ops->gate(w->dev, UM_ACT_GELU_TANH, gu, (int32_t)T, (int32_t)n, got);
        ref->ops->gate(ref->dev, UM_ACT_GELU_TANH, gu, (int32_t)T, (int32_t)n, want);
        compare(w, "gate with gelu", got, want, T * n, n, (tolerance){1e-7, 1e-5});
        um_free(gu);
        um_free(got);
        um_free(want);
    }
}

static void gate_matches_the_reference(void **state) {
    (void)state;
    begin_worst();
    for_each_world(check_gate);
    print_worst("gate");
}

static void check_norm_add(const world *w, const world *ref) {
    static const int32_t sizes[] = {1, 5, 32, 131};
    for (size_t i = 0; i < UM_LEN(sizes); i++) {
        const size_t n = (size_t)sizes[i], T = 19;
        float *y = random_floats(T * n), *x = random_floats(T * n), *gain = random_floats(n);
        float *y_ref = UM_NEW_ARRAY(float, T *n), *x_ref = UM_NEW_ARRAY(float, T *n);
        const um_norm norm = {gain, NULL, 1e-6f};
        memcpy(y_ref, y, T * n * sizeof *y);
        memcpy(x_ref, x, T * n * sizeof *x);
        w->ops->norm_add(w->dev, y, &norm, (int32_t)T, (int32_t)n, 0.75f, x);
        ref->ops->norm_add(ref->dev, y_ref, &norm, (int32_t)T, (int32_t)n, 0.75f, x_ref);
        compare(w, "norm_add", x, x_ref, T * n, n, (tolerance){2e-6, 3e-6});
        um_free(y);
        um_free(x);
        um_free(gain);
        um_free(y_ref);
        um_free(x_ref);
    }
}

static void a_branch_is_normed_and_added(void **state) {
    (void)state;
    begin_worst();
    for_each_world(check_norm_add);
    print_worst("norm_add");
}

/* ---- Fused linear and gate ---- */

typedef struct gated_shape {
    int32_t in, n, n_tokens; /* n: gated columns, half of the matrix's rows */
    um_dtype type;
    bool bias;
} gated_shape;

/* The upper half starts at a panel of 32 rows, or inside of a panel and ends in it or in the next one. */
static const gated_shape gated_shapes[] = {
    {320, 64, 32, UM_BF16, false}, {320, 96, 130, UM_BF16, false}, {333, 96, 49, UM_BF16, true},
    {64, 1, 3, UM_BF16, false},    {64, 15, 50, UM_BF16, true},    {96, 33, 17, UM_BF16, false},
    {1057, 47, 60, UM_F32, true},  {64, 80, 270, UM_F16, false},
};

/* Computes linear, then gate. */
static void gate_in_two_steps(const world *w, const gated_shape *s, const um_weight *m, const float *bias,
                              const float *x, float *y) {
    float *z = poisoned_floats((size_t)s->n_tokens * 2 * (size_t)s->n);
    w->ops->linear(w->dev, m, bias, x, s->n_tokens, false, z);
    w->ops->gate(w->dev, UM_ACT_SILU, z, s->n_tokens, s->n, y);
    um_free(z);
}

static void check_gated_shape(const world *w, const world *ref, const gated_shape *s) {
    const size_t n = (size_t)s->n_tokens * (size_t)s->n;
    um_tensor part = random_tensor(s->type, 2 * s->n, s->in);
    um_weight *m = make_weight(w, &part, 1), *m_ref = make_weight(ref, &part, 1);
    float *x = random_floats((size_t)s->n_tokens * (size_t)s->in),
          *bias = s->bias ? random_floats(2 * (size_t)s->n) : NULL;
    float *got = poisoned_floats(n), *steps = poisoned_floats(n), *want = poisoned_floats(n);
    w->ops->linear_gate(w->dev, UM_ACT_SILU, m, bias, x, s->n_tokens, got);
    gate_in_two_steps(w, s, m, bias, x, steps);
    gate_in_two_steps(ref, s, m_ref, bias, x, want);
    same_bits(w, "linear_gate and its two steps", got, steps, n * sizeof *got);
    const double scale = sqrt(s->in); /* magnitude of the products; the gate multiplies two of them */
    compare(w, "linear_gate", got, want, n, (size_t)s->n, (tolerance){4e-6 * scale * scale, 1e-5});
    w->ops->weight_free(w->dev, m);
    ref->ops->weight_free(ref->dev, m_ref);
    free_tensor(&part);
    um_free(x);
    um_free(bias);
    um_free(got);
    um_free(steps);
    um_free(want);
}

static void check_gated(const world *w, const world *ref) {
    for (size_t i = 0; i < UM_LEN(gated_shapes) && w->ops->linear_gate; i++)
        check_gated_shape(w, ref, &gated_shapes[i]);
}

static void linear_gate_equals_its_two_steps(void **state) {
    (void)state;
    assert_non_null(um_ops_cpu.linear_gate);
    begin_worst();
    for_each_world(check_gated);
    print_worst("linear_gate");
}

/* ---- Rotation and KV ---- */

typedef struct rope_shape {
    int32_t n_heads, n_kv_heads, head_dim, rope_dim, n_tokens;
    bool norms;
    float clip;
} rope_shape;

static const rope_shape rope_shapes[] = {
    {1, 1, 2, 2, 1, false, 0},      {4, 2, 64, 64, 37, true, 0}, {6, 3, 40, 24, 18, true, 0.4f},
    {2, 1, 33, 30, 5, false, 0.7f}, {3, 1, 128, 0, 9, true, 0},
};

static void check_rope_shape(const world *w, const world *ref, const rope_shape *s) {
    enum { POSITIONS = 50, PAGE = 8 };
    size_t d = (size_t)s->head_dim, half = (size_t)s->rope_dim / 2, T = (size_t)s->n_tokens;
    size_t width = (size_t)(s->n_heads + 2 * s->n_kv_heads) * d;
    um_kv_shape shape = {
        .n_layers = 1, .n_kv_heads = s->n_kv_heads, .head_dim = s->head_dim, .page_size = PAGE, .n_slots = 10 * PAGE};
    paged p = random_pages(shape, s->n_tokens);
    float *q_norm = random_floats(d), *k_norm = random_floats(d), *angle = random_floats(POSITIONS * (half + 1));
    float *cosine = copy_floats(angle, POSITIONS * half), *sine = copy_floats(angle, POSITIONS * half);
    for (size_t i = 0; i < POSITIONS * half; i++) cosine[i] = cosf(9 * angle[i]), sine[i] = sinf(9 * angle[i]);
    int32_t pos[64], slot[64];
    for (int32_t t = 0; t < s->n_tokens; t++) {
        pos[t] = random_below(POSITIONS);
        slot[t] = t % 5 == 4 ? -1 : slot_of(&p, t);
    }
    float *got = random_floats(T * width), *want = copy_floats(got, T * width);
    um_rope_kv a = {0,
                    s->n_tokens,
                    s->n_heads,
                    s->n_kv_heads,
                    s->head_dim,
                    s->rope_dim,
                    got,
                    s->norms ? q_norm : NULL,
                    s->norms ? k_norm : NULL,
                    s->norms ? q_norm : NULL,
                    1e-6f,
                    s->clip,
                    cosine,
                    sine,
                    s->norms ? angle : NULL, /* any factors */
                    pos,
                    slot};
    um_kv *kv = make_kv(w, &shape), *kv_ref = make_kv(ref, &shape);
    w->ops->rope_kv(w->dev, kv, &a);
    a.qkv = want;
    ref->ops->rope_kv(ref->dev, kv_ref, &a);
    compare(w, "rope_kv", got, want, T * width, width, (tolerance){2e-6, 3e-6});
    w->ops->kv_free(w->dev, kv);
    ref->ops->kv_free(ref->dev, kv_ref);
    um_free(p.page);
    um_free(q_norm);
    um_free(k_norm);
    um_free(angle);
    um_free(cosine);
    um_free(sine);
    um_free(got);
    um_free(want);
}

static void check_rope(const world *w, const world *ref) {
    for (size_t i = 0; i < UM_LEN(rope_shapes); i++) check_rope_shape(w, ref, &rope_shapes[i]);
}

static void rope_matches_the_reference(void **state) {
    (void)state;
    begin_worst();
    for_each_world(check_rope);
    print_worst("rope_kv");
}

/* ---- Attention ---- */

static void compare_attention(const world *w, const world *ref, const attention_case *c, const char *what) {
    const bool exact = strstr(w->label, "float32") != NULL;
    const size_t width = attention_width(c), n = (size_t)c->batch.n_tokens * width;
    float *got = run_attention(w, c, true);
    const float *want = known_result(n);
    if (!want) want = keep_result(run_attention(ref, c, false), n);
    /* Probabilities are rounded to bf16 before or after the division by their sum: two roundings of 2^-9. */
    compare(w, what, got, want, n, width, exact ? (tolerance){2e-6, 1e-5} : (tolerance){4e-3, 4e-3});
    um_free(got);
}

static void check_attention_shape(const world *w, const world *ref, const attention_shape *s, size_t i, int32_t window,
                                  bool canvas) {
    attention_case c = new_attention(s);
    c.window = window;
    for (int32_t k = 0; k < c.batch.n_spans && canvas; k++) {
        c.span[k].canvas = true;
        c.span[k].start = UM_MAX(c.span[k].keys.end - c.span[k].n, c.span[k].keys.start);
    }
    char what[80];
    snprintf(what, sizeof what, "attention shape %zu, KV %s, window %d", i, um_dtype_name(s->kv_type), window);
    compare_attention(w, ref, &c, what);
    free_attention(&c);
}

static void check_attention(const world *w, const world *ref) {
    attention_shape shapes[ATTENTION_SHAPES_MAX];
    const size_t n = attention_shapes(shapes);
    for (size_t i = 0; i < n; i++) check_attention_shape(w, ref, &shapes[i], i, 0, false);
}

/* Windows that end inside of tiles, groups and segments. */
static void check_windows(const world *w, const world *ref) {
    static const int32_t windows[] = {1, 6, 33, 129, 600};
    attention_shape shapes[ATTENTION_SHAPES_MAX];
    const size_t n = attention_shapes(shapes);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < UM_LEN(windows); k++)
            check_attention_shape(w, ref, &shapes[i], i, windows[k], (i + k) % 2 != 0);
}

static void attention_matches_the_reference(void **state) {
    (void)state;
    begin_worst();
    for_each_world(check_attention);
    print_worst("attention");
}

static void attention_in_a_window_matches_the_reference(void **state) {
    (void)state;
    begin_worst();
    for_each_world(check_windows);
    print_worst("attention in a window");
}

/* Adds a multiple of a vector to each key, and the vector to each query, so that the scores of a query rise by about
 * `rise`, as an exponent of 2, in 256 keys. */
static void raise_scores(attention_case *c, float rise) {
    const size_t d = (size_t)c->s.head_dim, n_q = (size_t)(c->batch.n_tokens * c->s.n_heads);
    const float scale = attention_args(c, &c->batch, 0).scale, per_key = rise / 256 / 1.4427f / scale / (float)d;
    for (size_t i = 0; i < n_q * d; i++) c->q[i] = c->q[i] / 8 + (i % 3 ? 1.0f : -1.0f);
    for (size_t k = 0; k < (size_t)c->s.n_keys[0]; k++)
        for (size_t i = 0; i < d; i++) {
            float *x = &c->key[0][k * d + i];
            *x = *x / 8 + per_key * (float)k * (i % 3 ? 1.0f : -1.0f);
        }
}

/* The maximum of a row rises from group to group and from segment to segment, by less and by more than what the softmax
 * allows without scaling the sums. */
static void check_rising(const world *w, const world *ref) {
    static const float rises[] = {5, 11, 18, -18};
    static const um_dtype types[] = {UM_F32, UM_BF16};
    for (size_t i = 0; i < UM_LEN(rises) * UM_LEN(types); i++) {
        const attention_shape s = {3, 1, 96, 32, types[i % 2], {40}, {768}, 0, see_full};
        attention_case c = new_attention(&s);
        raise_scores(&c, rises[i / 2]);
        char what[80];
        snprintf(what, sizeof what, "attention, KV %s, scores rise by %g", um_dtype_name(s.kv_type),
                 (double)rises[i / 2]);
        compare_attention(w, ref, &c, what);
        free_attention(&c);
    }
}

static void attention_with_rising_scores_matches_the_reference(void **state) {
    (void)state;
    begin_worst();
    for_each_world(check_rising);
    print_worst("attention with rising scores");
}

/* ---- Head ---- */

/* Ids must be equal, because random logits differ by more than the errors. (ops_head_test.c tests equal logits.) */
static void compare_answers(const world *w, const um_row *r, const um_answer *got, const um_answer *want, size_t i) {
    const float g[] = {got->p_best, got->p_second, got->p_sample, got->p_id,    got->log_p_id,
                       got->q_best, got->q_second, got->q_sample, got->entropy, got->logsumexp};
    const float f[] = {want->p_best, want->p_second, want->p_sample, want->p_id,    want->log_p_id,
                       want->q_best, want->q_second, want->q_sample, want->entropy, want->logsumexp};
    char what[64];
    snprintf(what, sizeof what, "answer of row %zu, field", i);
    compare(w, what, g, f, UM_LEN(g), UM_LEN(g), (tolerance){2e-6, 1e-4});
    assert_int_equal(got->best, want->best);
    assert_int_equal(got->second, want->second);
    assert_int_equal(got->sample, want->sample);
    assert_true(r->how.temperature > 0 || got->sample == got->best);
}

/* Compares lists of likeliest ids. Ids with almost equal probabilities may be in a different order: among many logits,
 * some are close. */
static void compare_tops(const world *w, const um_row *r, const um_top *got, const um_top *want, size_t i) {
    char what[64];
    snprintf(what, sizeof what, "likeliest ids of row %zu, p", i);
    for (int32_t k = 0; k < r->n_top; k++) {
        compare(w, what, &got[k].p, &want[k].p, 1, 1, (tolerance){2e-6, 1e-4});
        assert_int_equal(got[k].id < 0, want[k].id < 0);
        if (got[k].id != want[k].id) continue;
        compare(w, "their q", &got[k].q, &want[k].q, 1, 1, (tolerance){2e-6, 1e-4});
    }
    for (int32_t k = 0; k < r->n_top && got[k].id >= 0; k++) {
        int32_t same = 0;
        while (same < r->n_top && want[same].id != got[k].id) same++;
        if (same == r->n_top) same = r->n_top - 1; /* another id with an equal probability took the last place */
        compare(w, what, &got[k].p, &want[same].p, 1, 1, (tolerance){2e-6, 1e-4});
    }
    assert_true(r->n_top == 0 || got[0].id == want[0].id);
}

static void check_head_shape(const world *w, const world *ref, um_dtype type, int32_t rows, int32_t vocab, int32_t h,
                             int32_t n) {
    head_case c = new_head(type, rows, vocab, h, n);
    for (int32_t i = 0; i < n; i += 3) c.row[i].blend = 1 + i;
    if (n > 20) c.args.cap = 3;
    um_weight *m = make_weight(w, &c.tensor, 1), *m_ref = make_weight(ref, &c.tensor, 1);
    head_result got = run_head(w, &c, m, 0, n), want = run_head(ref, &c, m_ref, 0, n);
    for (int32_t i = 0; i < n; i++) {
        compare_answers(w, &c.row[i], &got.answer[i], &want.answer[i], (size_t)i);
        compare_tops(w, &c.row[i], got.top[i], want.top[i], (size_t)i);
    }
    const size_t H = (size_t)c.args.hidden_size;
    const bool rounds = !strstr(w->label, "float32"); /* probabilities are rounded to bf16 */
    for (size_t i = 0; i < (size_t)n; i += 3)
        compare(w, "blend", got.blend + i * H, want.blend + i * H, H, H,
                rounds ? (tolerance){4e-3, 4e-3} : (tolerance){2e-6, 3e-6});
    w->ops->weight_free(w->dev, m);
    ref->ops->weight_free(ref->dev, m_ref);
    free_result(&got);
    free_result(&want);
    free_head(&c);
}

/* The head multiplies as linear does. With q8 a difference in the last bit of a weighted sum of hidden rows can become
 * one of a whole step, so the answers can't be compared. */
static void check_head(const world *w, const world *ref) {
    if (um_is_quantized(w->weights)) return;
    check_head_shape(w, ref, UM_F32, 1, 1, 1, 1);
    check_head_shape(w, ref, UM_BF16, 1024, 1001, 320, 50);
    check_head_shape(w, ref, UM_F32, 1333, 1333, 65, 110);
    check_head_shape(w, ref, UM_F16, 300, 256, 40, 16);
}

static void head_matches_the_reference(void **state) {
    (void)state;
    begin_worst();
    for_each_world(check_head);
    print_worst("head");
}

int main(void) {
    seed_world();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtype_conversions_are_exact),
        cmocka_unit_test(unknown_backend_is_refused_with_the_known_ones),
        cmocka_unit_test(linear_matches_the_reference),
        cmocka_unit_test(embed_equals_the_reference),
        cmocka_unit_test(embed_soft_matches_the_reference),
        cmocka_unit_test(norm_matches_the_reference),
        cmocka_unit_test(copied_rows_are_where_the_lists_say),
        cmocka_unit_test(gate_matches_the_reference),
        cmocka_unit_test(linear_gate_equals_its_two_steps),
        cmocka_unit_test(rope_matches_the_reference),
        cmocka_unit_test(attention_matches_the_reference),
        cmocka_unit_test(attention_in_a_window_matches_the_reference),
        cmocka_unit_test(attention_with_rising_scores_matches_the_reference),
        cmocka_unit_test(a_branch_is_normed_and_added),
        cmocka_unit_test(head_matches_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
