/* Tests of the last layer of the host backend: it computes the rows that are read and leaves out the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model_zoo.h"
#include "ops/host/host.h"
#include "support.h"

enum { SPANS = 2, LENGTH = 24, NEXT = 8, T = SPANS * LENGTH };

/* ---- The list of tokens ------------------------------------------------------------------------------------------ */

/* Two spans of 6 and 4 tokens. */
typedef struct small {
    int32_t seen_end[10], token[10], block[10], end[10];
    um_span in[2], out[2];
    um_final final;
    um_batch batch;
} small;

static void open_small(small *s) {
    static const um_kv_select select = {.n_keep = 1};
    *s = (small){.in = {{.n = 6, .adapter = 3, .select = &select}, {.first = 6, .n = 4, .adapter = -1}}};
    for (int32_t i = 0; i < 10; i++) s->seen_end[i] = 100 + i;
    s->batch = (um_batch){.n_tokens = 10, .n_spans = 2, .span = s->in, .seen_end = s->seen_end};
    s->final = (um_final){.token = s->token, .block = s->block, .seen_end = s->end, .span = s->out};
}

static void finds(small *s, const int32_t *block, int32_t n, const int32_t *want) {
    um_final_find(&s->final, &s->batch, block);
    assert_int_equal(s->final.batch.n_tokens, n);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(s->token[i], want[i]);
        assert_int_equal(s->end[i], 100 + want[i]);
        if (block) assert_int_equal(s->block[i], block[want[i]]);
    }
}

static void tokens_of_rows_and_saves_are_found(void **state) {
    (void)state;
    small s;
    open_small(&s);
    const um_row row[] = {{.src = {7, 3}, .w = {1, 0}},   /* the second source is unused */
                          {.src = {-1, 2}, .w = {2, -1}}, /* a saved row, and one of this pass */
                          {.src = {7, -3}, .w = {2, -1}}};
    const int32_t save[][2] = {{5, 0}};
    s.batch.row = row;
    s.batch.n_rows = 3;
    s.batch.save = save;
    s.batch.n_saves = 1;
    finds(&s, NULL, 3, (int32_t[]){2, 5, 7});
    assert_int_equal(s.final.batch.n_spans, 2);
    assert_true(s.out[0].first == 0 && s.out[0].n == 2 && s.out[0].adapter == 3 && !s.out[0].select);
    assert_true(s.out[1].first == 2 && s.out[1].n == 1 && s.out[1].adapter == -1);
}

static void spans_that_nobody_reads_are_dropped(void **state) {
    (void)state;
    small s;
    open_small(&s);
    s.batch.row = &(um_row){.src = {9, 0}, .w = {1, 0}};
    s.batch.n_rows = 1;
    finds(&s, NULL, 1, (int32_t[]){9});
    assert_int_equal(s.final.batch.n_spans, 1);
    assert_true(s.out[0].first == 0 && s.out[0].n == 1 && s.out[0].adapter == -1);
    s.batch.n_rows = 0;
    finds(&s, NULL, 0, NULL);
    assert_int_equal(s.final.batch.n_spans, 0);
}

static void routing_blocks_are_kept_whole(void **state) {
    (void)state;
    small s;
    const int32_t block[] = {1, 1, 2, 2, 2, 3, 4, 4, 5, 5};
    open_small(&s);
    s.batch.row = (um_row[]){{.src = {3, 0}, .w = {1, 0}}, {.src = {8, 0}, .w = {1, 0}}};
    s.batch.n_rows = 2;
    finds(&s, block, 5, (int32_t[]){2, 3, 4, 8, 9});
}

/* ---- Passes ------------------------------------------------------------------------------------------------------ */

/* A batch of SPANS requests of n tokens each, from position `start` on, whose tokens in `read` are saved. */
typedef struct input {
    int32_t id[T], pos[T], slot[T], end[T], page[SPANS], save[T][2];
    um_span span[SPANS];
    um_batch batch;
} input;

static void fill(input *in, const um_model *m, int32_t start, int32_t n, const bool *read) {
    const um_visibility rule = {.see = m->arch.see, .block = m->arch.block};
    *in = (input){.page = {1, 0}};
    um_batch *b = &in->batch;
    for (int32_t i = 0; i < SPANS; i++) {
        in->span[i] =
            (um_span){.first = b->n_tokens, .n = n, .page = &in->page[i], .keys = {0, start + n}, .adapter = -1};
        for (int32_t p = start; p < start + n; p++) {
            const int32_t t = b->n_tokens++;
            in->id[t] = (31 * i + 7 * p) % 200;
            in->pos[t] = p;
            in->slot[t] = in->page[i] * ZOO_PAGE + p;
            in->end[t] = UM_MIN(um_visible_end(rule, p), start + n);
            if (!read || read[t]) in->save[b->n_saves][0] = t, in->save[b->n_saves][1] = t, b->n_saves++;
        }
    }
    b->n_spans = SPANS;
    b->id = in->id, b->pos = in->pos, b->slot = in->slot, b->seen_end = in->end, b->span = in->span;
    b->save = (const int32_t(*)[2])in->save;
}

static um_forward *new_forward(um_model *m) {
    const um_forward_config c = {
        .max_tokens = T, .max_rows = 1, .n_saved = T, .page_size = ZOO_PAGE, .n_pages = SPANS, .kv_type = UM_F32};
    um_forward *f;
    um_err err = {0};
    if (m->backend->forward_new(&f, m->device, &m->net, &c, &err)) fail_msg("%s", err.msg);
    return f;
}

static const float *run(um_model *m, um_forward *f, int32_t start, int32_t n, const bool *read) {
    static input in;
    fill(&in, m, start, n, read);
    assert_int_equal(m->backend->submit(f, &in.batch, NULL), UM_OK);
    assert_int_equal(m->backend->wait(f, NULL), UM_OK);
    return um_host_hidden(f);
}

/* Compares the rows that are read with those of a pass that reads all rows, in two passes. The second one also reads
 * the keys and values that the first one stored. */
static void compare_passes(const char *config, const char *device, const bool *read, const bool *next_read) {
    zoo z = zoo_new(config);
    zoo_write(&z);
    um_model *m = zoo_model(&z, device);
    um_forward *some = new_forward(m), *all = new_forward(m);
    const size_t H = (size_t)m->arch.hidden;
    for (int pass = 0; pass < 2; pass++) {
        const int32_t start = pass ? LENGTH : 0, n = pass ? NEXT : LENGTH;
        const bool *of = pass ? next_read : read;
        const float *have = run(m, some, start, n, of), *want = run(m, all, start, n, NULL);
        for (int32_t t = 0; t < SPANS * n; t++)
            if (of[t] && memcmp(have + (size_t)t * H, want + (size_t)t * H, H * sizeof *have) != 0)
                fail_msg("%s on %s, pass %d: row %d differs", z.arch.family->name, device, pass, t);
    }
    m->backend->forward_free(some);
    m->backend->forward_free(all);
    zoo_done(&z, m);
}

static void rows_that_are_read_do_not_change(void **state) {
    (void)state;
    static const char *const config[] = {ZOO_ILLADA(""),  ZOO_DREAM,      ZOO_REASONER(""), ZOO_LLADA_MOE_A,
                                         ZOO_LLADA_MOE_B, ZOO_LLADA2(""), ZOO_LLADA22,      ZOO_SDAR_MOE};
    const uint64_t key = test_seed();
    uint64_t n = 0;
    for (size_t i = 0; i < UM_LEN(config); i++) {
        for (const um_ops *const *ops = um_ops_all; *ops; ops++) {
            bool read[T] = {0}, next[T] = {0};
            const uint64_t share = 1 + um_rng_u64(key, n++) % 8;
            for (int32_t t = 0; t < T; t++) {
                read[t] = um_rng_u64(key, n++) % 8 < share - 1; /* none at all for the share 1 */
                next[t] = um_rng_u64(key, n++) % 8 < share;
            }
            next[0] = true;
            compare_passes(config[i], (*ops)->name, read, next);
        }
    }
}

/* ---- Work -------------------------------------------------------------------------------------------------------- */

/* Operations that count their rows. */
static struct {
    const um_ops *ops;
    int32_t linear[16], attention[4], norm[16]; /* rows of each call */
    int n_linear, n_attention, n_norm;
} count;

static void count_linear(um_dev *dev, const um_weight *w, const float *bias, const float *x, int32_t n, bool add,
                         float *y) {
    assert_in_range(count.n_linear, 0, UM_LEN(count.linear) - 1);
    count.linear[count.n_linear++] = n;
    count.ops->linear(dev, w, bias, x, n, add, y);
}

static void count_attention(um_dev *dev, const um_kv *kv, const um_attention *a) {
    assert_in_range(count.n_attention, 0, UM_LEN(count.attention) - 1);
    count.attention[count.n_attention++] = a->batch->n_tokens;
    count.ops->attention(dev, kv, a);
}

static void count_norm(um_dev *dev, const float *x, const um_norm *norm, int32_t n_tokens, int32_t n, float *y) {
    assert_in_range(count.n_norm, 0, UM_LEN(count.norm) - 1);
    count.norm[count.n_norm++] = n_tokens;
    count.ops->norm(dev, x, norm, n_tokens, n, y);
}

/* Runs a pass of a model with two dense layers and counts the rows of its operations. */
static void count_pass(const bool *read) {
    zoo z = zoo_new(ZOO_DREAM);
    zoo_write(&z);
    um_model *m = zoo_model(&z, "ref");
    um_ops counting = *m->device->ops;
    memset(&count, 0, sizeof count);
    count.ops = m->device->ops;
    counting.linear = count_linear;
    counting.attention = count_attention;
    counting.norm = count_norm;
    m->device->ops = &counting;
    um_forward *f = new_forward(m);
    run(m, f, 0, LENGTH, read);
    m->backend->forward_free(f);
    m->device->ops = count.ops;
    zoo_done(&z, m);
}

static void equal(const int32_t *have, int n, const int32_t *want, int n_want) {
    assert_int_equal(n, n_want);
    for (int i = 0; i < n; i++) assert_int_equal(have[i], want[i]);
}

/* A layer multiplies by qkv, o, gate and up together, and down. */
static void the_last_layer_computes_only_the_rows_that_are_read(void **state) {
    (void)state;
    bool read[T] = {0};
    read[3] = read[LENGTH - 1] = read[LENGTH + 2] = true;
    count_pass(read);
    equal(count.linear, count.n_linear, (int32_t[]){T, T, T, T, T, 3, 3, 3}, 8);
    equal(count.attention, count.n_attention, (int32_t[]){T, 3}, 2);
    equal(count.norm, count.n_norm, (int32_t[]){T, T, T, 3, 3}, 5);
}

static void a_pass_without_rows_ends_with_the_last_keys(void **state) {
    (void)state;
    count_pass((bool[T]){0});
    equal(count.linear, count.n_linear, (int32_t[]){T, T, T, T, T}, 5);
    equal(count.attention, count.n_attention, (int32_t[]){T}, 1);
    equal(count.norm, count.n_norm, (int32_t[]){T, T, T}, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_of_rows_and_saves_are_found),
        cmocka_unit_test(spans_that_nobody_reads_are_dropped),
        cmocka_unit_test(routing_blocks_are_kept_whole),
        cmocka_unit_test(rows_that_are_read_do_not_change),
        cmocka_unit_test(the_last_layer_computes_only_the_rows_that_are_read),
        cmocka_unit_test(a_pass_without_rows_ends_with_the_last_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
