/* The guarantees of a backend besides correct values. On one device and build, an output depends only on its own
 * inputs, bit for bit. It does not depend on the rest of the batch or on the number of threads. Operations allocate
 * nothing. ops_kv_test.c tests these guarantees for attention with every kind of KV. */
#include "ops_cases.h"

/* ---- Neighbours ---- */

static void check_linear_rows(const world *w, um_dtype type, int32_t in, int32_t out, int32_t n_tokens, bool add) {
    size_t T = (size_t)n_tokens, K = (size_t)in, N = (size_t)out;
    um_tensor part = random_tensor(type, out, in);
    um_weight *m = make_weight(w, &part, 1);
    float *x = random_floats(T * K), *all = add ? random_floats(T * N) : poisoned_floats(T * N);
    float *some = copy_floats(all, T * N);
    w->ops->linear(w->dev, m, NULL, x, n_tokens, add, all);
    for (int32_t t = 0; t < n_tokens;) { /* pieces of 1 to 35 rows */
        int32_t n = UM_MIN(1 + t % 35, n_tokens - t);
        w->ops->linear(w->dev, m, NULL, x + (size_t)t * K, n, add, some + (size_t)t * N);
        t += n;
    }
    same_bits(w, "linear: rows in pieces", all, some, T * N * sizeof *all);
    w->ops->weight_free(w->dev, m);
    free_tensor(&part);
    um_free(x);
    um_free(all);
    um_free(some);
}

static void check_linear(const world *w, const world *ref) {
    (void)ref;
    for (int i = 0; i < 6; i++)
        check_linear_rows(w, i % 2 ? UM_F32 : UM_BF16, 1 + random_below(1100), 1 + random_below(200),
                          1 + random_below(90), i % 3 == 0);
    check_linear_rows(w, UM_BF16, 700, 40, 600, false);
    check_linear_rows(w, UM_BF16, 1090, 64, 290, true);
    check_linear_rows(w, UM_BF16, 320, 64, 47, true); /* whole tiles of inputs, incomplete tiles of rows */
}

static void linear_row_is_the_same_alone_and_in_a_batch(void **state) {
    (void)state;
    for_each_world(check_linear);
}

static void check_head(const world *w, const world *ref) {
    (void)ref;
    enum { N = 110, H = 320 };
    head_case c = new_head(UM_BF16, 1024, 1001, H, N);
    for (int32_t i = 0; i < N; i += 3) c.row[i].blend = 1 + i;
    um_weight *m = make_weight(w, &c.tensor, 1);
    head_result all = run_head(w, &c, m, 0, N);
    for (int32_t i = 0; i < N; i++) {
        head_result alone = run_head(w, &c, m, i, 1);
        same_answers(w, "head: one row alone", &all.answer[i], alone.answer, 1);
        same_bits(w, "head: likeliest ids of one row alone", all.top[i], alone.top, sizeof(top_list));
        same_bits(w, "head: blend of one row alone", all.blend + i * H, alone.blend + i * H, H * sizeof(float));
        free_result(&alone);
    }
    w->ops->weight_free(w->dev, m);
    free_result(&all);
    free_head(&c);
}

static void head_row_is_the_same_alone_and_in_a_batch(void **state) {
    (void)state;
    for_each_world(check_head);
}

static void check_top_beside(const world *w, const world *ref) {
    (void)ref;
    enum { N = 60 };
    head_case c = new_head(UM_F32, 1333, 1333, 65, N);
    um_weight *m = make_weight(w, &c.tensor, 1);
    head_result with = run_head(w, &c, m, 0, N);
    for (int32_t i = 0; i < N; i++) c.row[i].n_top = 0;
    head_result without = run_head(w, &c, m, 0, N);
    same_answers(w, "head: answers with and without the likeliest ids", with.answer, without.answer, N);
    w->ops->weight_free(w->dev, m);
    free_result(&with);
    free_result(&without);
    free_head(&c);
}

static void wanting_the_likeliest_ids_changes_nothing_else(void **state) {
    (void)state;
    for_each_world(check_top_beside);
}

/* ---- Blends of embeddings ---- */

enum { SOFT_ROWS = 70, SOFT_IN = 1091, SOFT_N = 40, SOFT_IDS = 5 };

typedef struct soft_case {
    um_tensor tensor;
    um_soft soft[SOFT_N];
    int32_t id[SOFT_N][SOFT_IDS];
    float w[SOFT_N][SOFT_IDS];
} soft_case;

static void set_soft(soft_case *c) {
    c->tensor = random_tensor(UM_BF16, SOFT_ROWS, SOFT_IN);
    for (int i = 0; i < SOFT_N; i++) {
        c->soft[i] = (um_soft){2 * i + 1, 1 + i % SOFT_IDS, c->id[i], c->w[i], i % 2};
        for (int k = 0; k < SOFT_IDS; k++) {
            c->id[i][k] = random_below(SOFT_ROWS);
            c->w[i][k] = (float)random_unit();
        }
    }
}

static float *run_soft(const world *w, const soft_case *c, const um_weight *m, int first, int n) {
    float *x = poisoned_floats(2 * SOFT_N * SOFT_IN);
    w->ops->embed_soft(w->dev, m, c->soft + first, n, 1.5f, x);
    return x;
}

static void check_soft(const world *w, const world *ref) {
    (void)ref;
    soft_case c;
    set_soft(&c);
    um_weight *m = make_weight(w, &c.tensor, 1);
    float *all = run_soft(w, &c, m, 0, SOFT_N);
    for (int i = 0; i < SOFT_N; i++) {
        float *alone = run_soft(w, &c, m, i, 1);
        size_t at = (size_t)c.soft[i].at * SOFT_IN;
        same_bits(w, "embed_soft: one token alone", all + at, alone + at, SOFT_IN * sizeof *all);
        um_free(alone);
        for (size_t k = at - SOFT_IN; k < at; k++) assert_true(isnan(all[k])); /* a token that is not blended */
    }
    w->ops->weight_free(w->dev, m);
    um_free(all);
    free_tensor(&c.tensor);
}

static void blend_is_the_same_alone_and_in_a_batch(void **state) {
    (void)state;
    for_each_world(check_soft);
}

/* ---- Threads ---- */

static void same_with_threads(const world *a, const world *b) {
    um_tensor part = random_tensor(UM_BF16, 330, 700);
    float *x = random_floats(50 * 700), *y[2] = {poisoned_floats(50 * 330), poisoned_floats(50 * 330)};
    head_case h = new_head(UM_BF16, 1024, 1001, 320, 40);
    attention_shape shape = {6, 2, 64, 32, UM_BF16, {60, 17}, {130, 99}, 0, {.see = UM_SEE_BLOCK_CAUSAL, .block = 8}};
    attention_case c = new_attention(&shape);
    soft_case soft;
    set_soft(&soft);
    head_result answer[2];
    float *out[2], *blend[2];
    for (int i = 0; i < 2; i++) {
        const world *w = i ? b : a;
        um_weight *m = make_weight(w, &part, 1), *vocab = make_weight(w, &h.tensor, 1),
                  *embed = make_weight(w, &soft.tensor, 1);
        w->ops->linear(w->dev, m, NULL, x, 50, false, y[i]);
        answer[i] = run_head(w, &h, vocab, 0, 40);
        out[i] = run_attention(w, &c, false);
        blend[i] = run_soft(w, &soft, embed, 0, SOFT_N);
        w->ops->weight_free(w->dev, embed);
        w->ops->weight_free(w->dev, m);
        w->ops->weight_free(w->dev, vocab);
    }
    same_bits(b, "linear: threads", y[0], y[1], 50 * 330 * sizeof(float));
    same_answers(b, "head: threads", answer[0].answer, answer[1].answer, 40);
    same_bits(b, "likeliest ids: threads", answer[0].top, answer[1].top, 40 * sizeof(top_list));
    same_bits(b, "embed_soft: threads", blend[0], blend[1], 2 * SOFT_N * SOFT_IN * sizeof(float));
    same_bits(b, "attention: threads", out[0], out[1], (size_t)c.batch.n_tokens * attention_width(&c) * sizeof(float));
    for (int i = 0; i < 2; i++) {
        um_free(y[i]);
        free_result(&answer[i]);
        um_free(out[i]);
        um_free(blend[i]);
    }
    um_free(x);
    free_tensor(&part);
    free_tensor(&soft.tensor);
    free_attention(&c);
    free_head(&h);
}

/* Uses enough rows for a group per thread and for more than one wave. */
static void same_rows_with_threads(const world *a, const world *b) {
    enum { T = 597, IN = 90, OUT = 130, BYTES = T * OUT * sizeof(float) };
    um_tensor part = random_tensor(UM_BF16, OUT, IN);
    float *x = random_floats(T * IN), *y[2], *gated[2];
    for (int i = 0; i < 2; i++) {
        const world *w = i ? b : a;
        um_weight *m = make_weight(w, &part, 1);
        y[i] = poisoned_floats(T * OUT);
        gated[i] = poisoned_floats(T * OUT / 2);
        w->ops->linear(w->dev, m, NULL, x, T, false, y[i]);
        w->ops->linear(w->dev, m, NULL, x, T, true, y[i]);
        w->ops->linear_gate(w->dev, UM_ACT_SILU, m, NULL, x, T, gated[i]);
        w->ops->weight_free(w->dev, m);
    }
    same_bits(b, "linear: threads, many rows", y[0], y[1], BYTES);
    same_bits(b, "linear_gate: threads, many rows", gated[0], gated[1], BYTES / 2);
    for (int i = 0; i < 2; i++) um_free(y[i]), um_free(gated[i]);
    um_free(x);
    free_tensor(&part);
}

static void results_do_not_depend_on_threads(void **state) {
    (void)state;
    for_each_number_of_threads(same_with_threads);
    for_each_number_of_threads(same_rows_with_threads);
}

/* ---- Memory ---- */

static void check_allocations(const world *w, const world *ref) {
    (void)ref;
    head_case h = new_head(UM_BF16, 1024, 1001, 320, 60);
    um_weight *m = make_weight(w, &h.tensor, 1);
    h.args.w = m;
    h.args.answer = UM_NEW_ARRAY(um_answer, 60);
    attention_shape shape = {6, 2, 64, 5, UM_BF16, {60, 17}, {130, 99}, 0, {.see = UM_SEE_CAUSAL}};
    attention_case c = new_attention(&shape);
    um_kv *kv = fill_kv(w, &c, false);
    um_batch b = batch_of(&c);
    float *x = random_floats(60 * 640), *y = poisoned_floats(60 * 1024), *gain = random_floats(640);
    float *out = poisoned_floats((size_t)b.n_tokens * attention_width(&c));
    int32_t id[60] = {0}, slot[60];
    for (int32_t t = 0; t < 60; t++) slot[t] = t;
    um_attention a = {.layer = 1,
                      .n_heads = 6,
                      .n_kv_heads = 2,
                      .head_dim = 64,
                      .page_size = 5,
                      .stride = 6 * 64,
                      .q = c.q,
                      .out = out,
                      .scale = 1,
                      .batch = &b};
    um_rope_kv r = {0, 60, 6, 2, 64, 64, x, gain, gain, gain, 1e-6f, 0, gain, gain, NULL, id, slot};
    const um_soft soft = {.at = 3, .n = 60, .id = slot, .w = x, .renormalize = true};
    int64_t before = um_alloc_count();
    w->ops->embed(w->dev, m, id, 60, 1, y);
    w->ops->embed_soft(w->dev, m, &soft, 1, 1, y);
    w->ops->norm(w->dev, y, &(um_norm){gain, NULL, 1e-6f}, 60, 320, y);
    w->ops->linear(w->dev, m, NULL, x, 60, false, y);
    w->ops->rope_kv(w->dev, kv, &r);
    w->ops->attention(w->dev, kv, &a);
    w->ops->gate(w->dev, UM_ACT_SILU, x, 60, 320, y);
    if (w->ops->linear_gate) w->ops->linear_gate(w->dev, UM_ACT_SILU, m, NULL, x, 60, y);
    w->ops->head(w->dev, &h.args);
    assert_int_equal(um_alloc_count(), before);
    w->ops->kv_free(w->dev, kv);
    w->ops->weight_free(w->dev, m);
    um_free(h.args.answer);
    um_free(x);
    um_free(y);
    um_free(gain);
    um_free(out);
    free_attention(&c);
    free_head(&h);
}

static void operations_allocate_nothing(void **state) {
    (void)state;
    for_each_world_and_reference(check_allocations);
}

static void sizes_are_reported_and_buffers_are_zero(void **state) {
    (void)state;
    for (const um_ops *const *ops = um_ops_all; *ops; ops++) {
        world w = open_world(*ops, NULL, UM_F32, 1);
        um_tensor part = random_tensor(UM_F32, 64, 32);
        um_weight *m = make_weight(&w, &part, 1);
        um_kv_shape shape = {.n_layers = 2, .n_kv_heads = 2, .head_dim = 32, .page_size = 4, .n_slots = 64};
        void *p = NULL;
        assert_int_equal(w.ops->buffer(w.dev, &p, 1000, "test", NULL), UM_OK);
        for (int i = 0; i < 1000; i++) assert_int_equal(((char *)p)[i], 0);
        assert_int_equal(w.ops->weight_bytes(m), 64 * 32 * sizeof(float));
        assert_int_equal(w.ops->kv_bytes(&shape), 2 * 2 * 2 * 32 * 64 * sizeof(float));
        assert_true(w.ops->scratch_bytes(w.dev) > 0);
        w.ops->buffer_free(w.dev, p);
        w.ops->weight_free(w.dev, m);
        free_tensor(&part);
        close_world(&w);
        w.ops->close(NULL);
    }
}

static void arithmetic_in_f16_is_refused(void **state) {
    (void)state;
    for (const um_ops *const *ops = um_ops_all; *ops; ops++) {
        um_dev_config c = world_config;
        um_dev *dev = NULL;
        um_err err;
        c.dtype = UM_F16;
        assert_int_equal((*ops)->open(&dev, &c, &err), UM_EUNSUPPORTED);
        assert_non_null(strstr(err.msg, "float16"));
        assert_null(dev);
    }
}

int main(void) {
    seed_world();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_row_is_the_same_alone_and_in_a_batch),
        cmocka_unit_test(head_row_is_the_same_alone_and_in_a_batch),
        cmocka_unit_test(wanting_the_likeliest_ids_changes_nothing_else),
        cmocka_unit_test(blend_is_the_same_alone_and_in_a_batch),
        cmocka_unit_test(results_do_not_depend_on_threads),
        cmocka_unit_test(operations_allocate_nothing),
        cmocka_unit_test(sizes_are_reported_and_buffers_are_zero),
        cmocka_unit_test(arithmetic_in_f16_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
