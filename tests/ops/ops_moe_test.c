/* Mixture of experts: compares every backend with the reference for several routings, shapes and types. Also checks the
 * guarantees of a backend: the output of a token depends only on its own input (with a capacity, on that of its routing
 * block), not on the batch or on threads, and nothing allocates. ops_expert_route_test.c tests the choice of experts.
 */
#include "ops_cases.h"

typedef struct moe_shape {
    int32_t n_tokens, hidden, n_ff;
    um_dtype type; /* type of the stored weights */
    um_expert_route route;
    int32_t block; /* number of tokens of a routing block */
} moe_shape;

static const moe_shape shapes[] = {
    {1, 1, 1, UM_F32, {1, 1, UM_SCORE_SOFTMAX, UM_BIAS_NONE, false, 1, 0, 1, 1, 0}, 0},
    {1, 64, 32, UM_BF16, {32, 8, UM_SCORE_SIGMOID, UM_BIAS_CHOICE, true, 2.5f, 0, 8, 4, 0}, 0},
    {32, 96, 64, UM_BF16, {40, 8, UM_SCORE_SOFTMAX, UM_BIAS_NONE, true, 1, 0, 1, 1, 0}, 0},
    {37, 65, 33, UM_F32, {16, 4, UM_SCORE_SOFTMAX, UM_BIAS_SCORE, false, 1, 0, 1, 1, 0}, 0},   /* incomplete panels */
    {300, 40, 24, UM_F16, {3, 2, UM_SCORE_SIGMOID, UM_BIAS_NONE, true, 1.5f, 0, 1, 1, 0}, 0},  /* experts larger than a
                                                                                                * wave
                                                                                                */
    {600, 32, 16, UM_BF16, {5, 1, UM_SCORE_SOFTMAX, UM_BIAS_CHOICE, false, 1, 0, 1, 1, 0}, 0}, /* several waves */
    {50, 64, 100, UM_F32, {24, 6, UM_SCORE_SOFTMAX, UM_BIAS_NONE, true, 1, 0, 1, 1, 9}, 16}, /* a pool for each block */
    {9, 72, 1095, UM_BF16, {4, 2, UM_SCORE_SOFTMAX, UM_BIAS_NONE, true, 1, 0, 1, 1, 0}, 0},  /* several blocks of inputs
                                                                                              */
    {33, 320, 48, UM_BF16, {12, 10, UM_SCORE_SIGMOID, UM_BIAS_SCORE, false, 0.5f, 0, 3, 3, 0}, 0},
};

typedef struct moe_case {
    moe_shape s;
    um_tensor *part; /* [n_experts][3]: gate, up, down */
    float *x, *logits, *bias, *y;
    int32_t *block;
} moe_case;

static moe_case new_moe(const moe_shape *s) {
    size_t E = (size_t)s->route.n_experts, T = (size_t)s->n_tokens, H = (size_t)s->hidden;
    moe_case c = {.s = *s, .part = (um_tensor *)um_zalloc(3 * E * sizeof(um_tensor))};
    for (size_t e = 0; e < E; e++) {
        for (size_t i = 0; i < 2; i++) c.part[3 * e + i] = random_tensor(s->type, s->n_ff, s->hidden);
        c.part[3 * e + 2] = random_tensor(s->type, s->hidden, s->n_ff);
    }
    c.x = random_floats(T * H);
    for (size_t i = 0; i < T * H; i++) c.x[i] *= 2 / sqrtf((float)H);
    c.logits = random_floats(T * E);
    for (size_t i = 0; i < T * E; i++) c.logits[i] *= 3;
    c.bias = random_floats(E);
    c.y = random_floats(T * H);
    c.block = UM_NEW_ARRAY(int32_t, T);
    for (int32_t t = 0; t < s->n_tokens; t++) c.block[t] = s->block ? 7 - t / s->block : 0;
    return c;
}

static void free_moe(moe_case *c) {
    for (int32_t i = 0; i < 3 * c->s.route.n_experts; i++) free_tensor(&c->part[i]);
    um_free(c->part);
    um_free(c->x);
    um_free(c->logits);
    um_free(c->bias);
    um_free(c->y);
    um_free(c->block);
}

/* The weights of a case on a device. */
typedef struct experts {
    const um_weight **gate_up, **down;
    int32_t n;
} experts;

static experts load_experts(const world *w, const moe_case *c) {
    experts e = {.n = c->s.route.n_experts};
    e.gate_up = (const um_weight **)um_zalloc((size_t)e.n * sizeof(um_weight *));
    e.down = (const um_weight **)um_zalloc((size_t)e.n * sizeof(um_weight *));
    for (int32_t i = 0; i < e.n; i++) {
        e.gate_up[i] = make_weight(w, c->part + 3 * i, 2);
        e.down[i] = make_weight(w, c->part + 3 * i + 2, 1);
    }
    return e;
}

static void free_experts(const world *w, experts *e) {
    for (int32_t i = 0; i < e->n; i++) {
        w->ops->weight_free(w->dev, (um_weight *)e->gate_up[i]);
        w->ops->weight_free(w->dev, (um_weight *)e->down[i]);
    }
    um_free(e->gate_up);
    um_free(e->down);
}

/* Runs the operation for the tokens [first, first + n); it adds to y [n_tokens, H]. */
static void run_moe(const world *w, const moe_case *c, const experts *e, int32_t first, int32_t n, float *y) {
    size_t t = (size_t)first, H = (size_t)c->s.hidden;
    const um_expert_route *r = &c->s.route;
    um_moe a = {r,
                c->logits + t * (size_t)r->n_experts,
                r->bias == UM_BIAS_NONE ? NULL : c->bias,
                NULL,
                UM_ACT_SILU,
                r->capacity ? c->block + t : NULL,
                e->gate_up,
                e->down,
                c->x + t * H,
                n,
                c->s.hidden,
                c->s.n_ff,
                y + t * H};
    w->ops->moe(w->dev, &a);
}

static void check_parity(const world *w, const world *ref) {
    for (size_t i = 0; i < UM_LEN(shapes); i++) {
        moe_case c = new_moe(&shapes[i]);
        size_t H = (size_t)c.s.hidden, n = (size_t)c.s.n_tokens * H;
        experts e = load_experts(w, &c), e_ref = load_experts(ref, &c);
        float *got = copy_floats(c.y, n), *want = copy_floats(c.y, n);
        char what[32];
        snprintf(what, sizeof what, "moe shape %zu", i);
        run_moe(w, &c, &e, 0, c.s.n_tokens, got);
        run_moe(ref, &c, &e_ref, 0, c.s.n_tokens, want);
        /* In bf16 the gated values are rounded. A sum that differs in its last bit may round to another number. */
        compare(w, what, got, want, n, H, w->dtype == UM_F32 ? (tolerance){5e-6, 5e-6} : (tolerance){2e-2, 4e-3});
        free_experts(w, &e);
        free_experts(ref, &e_ref);
        um_free(got);
        um_free(want);
        free_moe(&c);
    }
}

static void moe_matches_the_reference(void **state) {
    (void)state;
    begin_worst();
    for_each_world(check_parity);
    print_worst("moe");
}

/* Loads the experts in turn in the type of the world, in q8 and in q4, and `down` in another type than gate and up. */
static experts load_mixed(const world *w, const moe_case *c) {
    const um_dtype type[] = {w->weights, UM_Q8, UM_Q4};
    experts e = {.n = c->s.route.n_experts};
    e.gate_up = (const um_weight **)um_zalloc((size_t)e.n * sizeof(um_weight *));
    e.down = (const um_weight **)um_zalloc((size_t)e.n * sizeof(um_weight *));
    for (int32_t i = 0; i < e.n; i++) {
        e.gate_up[i] = make_weight_as(w, c->part + 3 * i, 2, type[i % 3]);
        e.down[i] = make_weight_as(w, c->part + 3 * i + 2, 1, type[i / 2 % 3]);
    }
    return e;
}

static void check_mixed(const world *w, const world *ref) {
    const size_t of[] = {2, 4, 7};
    for (size_t i = 0; i < UM_LEN(of); i++) {
        moe_case c = new_moe(&shapes[of[i]]);
        size_t H = (size_t)c.s.hidden, n = (size_t)c.s.n_tokens * H;
        experts e = load_mixed(w, &c), e_ref = load_mixed(ref, &c);
        float *got = copy_floats(c.y, n), *want = copy_floats(c.y, n);
        run_moe(w, &c, &e, 0, c.s.n_tokens, got);
        run_moe(ref, &c, &e_ref, 0, c.s.n_tokens, want);
        compare(w, "moe with experts of several types", got, want, n, H, (tolerance){2e-2, 4e-3});
        free_experts(w, &e);
        free_experts(ref, &e_ref);
        um_free(got);
        um_free(want);
        free_moe(&c);
    }
}

static void moe_takes_experts_of_several_types(void **state) {
    (void)state;
    begin_worst();
    for_each_world(check_mixed);
    print_worst("moe with experts of several types");
}

/* Computes the batch in pieces of 1, 2, 3 ... tokens, or of one routing block. */
static void check_pieces(const world *w, const world *ref) {
    (void)ref;
    for (size_t i = 0; i < UM_LEN(shapes); i++) {
        moe_case c = new_moe(&shapes[i]);
        size_t n = (size_t)c.s.n_tokens * (size_t)c.s.hidden;
        experts e = load_experts(w, &c);
        float *all = copy_floats(c.y, n), *some = copy_floats(c.y, n);
        run_moe(w, &c, &e, 0, c.s.n_tokens, all);
        for (int32_t t = 0, m; t < c.s.n_tokens; t += m) {
            m = UM_MIN(c.s.block ? c.s.block : 1 + t % 14, c.s.n_tokens - t);
            run_moe(w, &c, &e, t, m, some);
        }
        same_bits(w, "moe: tokens in pieces", all, some, n * sizeof *all);
        free_experts(w, &e);
        um_free(all);
        um_free(some);
        free_moe(&c);
    }
}

static void moe_token_is_the_same_alone_and_in_a_batch(void **state) {
    (void)state;
    for_each_world(check_pieces);
}

static void check_threads(const world *one, const world *many) {
    for (size_t i = 0; i < UM_LEN(shapes); i++) {
        moe_case c = new_moe(&shapes[i]);
        size_t n = (size_t)c.s.n_tokens * (size_t)c.s.hidden;
        float *y[2] = {copy_floats(c.y, n), copy_floats(c.y, n)};
        for (int k = 0; k < 2; k++) {
            const world *w = k ? many : one;
            experts e = load_experts(w, &c);
            run_moe(w, &c, &e, 0, c.s.n_tokens, y[k]);
            free_experts(w, &e);
        }
        same_bits(many, "moe: threads", y[0], y[1], n * sizeof(float));
        um_free(y[0]);
        um_free(y[1]);
        free_moe(&c);
    }
}

static void moe_does_not_depend_on_threads(void **state) {
    (void)state;
    for_each_number_of_threads(check_threads);
}

static void check_allocations(const world *w, const world *ref) {
    (void)ref;
    moe_case c = new_moe(&shapes[5]);
    experts e = load_experts(w, &c);
    int64_t before = um_alloc_count();
    run_moe(w, &c, &e, 0, c.s.n_tokens, c.y);
    assert_int_equal(um_alloc_count(), before);
    free_experts(w, &e);
    free_moe(&c);
}

static void moe_allocates_nothing(void **state) {
    (void)state;
    for_each_world_and_reference(check_allocations);
}

int main(void) {
    seed_world();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moe_matches_the_reference),
        cmocka_unit_test(moe_takes_experts_of_several_types),
        cmocka_unit_test(moe_token_is_the_same_alone_and_in_a_batch),
        cmocka_unit_test(moe_does_not_depend_on_threads),
        cmocka_unit_test(moe_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
