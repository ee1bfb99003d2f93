/* Selection of keys: compared with a plain implementation of the definition and with the reference, with different
 * threads, pages and batches. Kept keys are read through attention: a query that sees a single key returns its value.
 */
#include "ops/select.h"
#include "ops_cases.h"

/* ---- Cases ---- */

typedef struct select_shape {
    int32_t n_heads, n_kv_heads, head_dim, page_size;
    um_dtype type;
    int32_t n_keys;
    um_range block, hole;
    int32_t n_keep, pool;
    bool per_head;
    kv_variant where;
    enum { SCORED, WITH_PRIOR, BLIND } rule;
} select_shape;

#define PLAIN                                                                                                          \
    {                                                                                                                  \
        UM_KV_UNIFIED, false, { 0, 0 }                                                                                 \
    }
#define SCRATCH                                                                                                        \
    {                                                                                                                  \
        UM_KV_UNIFIED, true, { 0, 0 }                                                                                  \
    }
#define DISTINCT                                                                                                       \
    {                                                                                                                  \
        UM_KV_DISTINCT, true, { 0, 0 }                                                                                 \
    }
static const select_shape shapes[] = {
    {1, 1, 16, 32, UM_F32, 64, {32, 64}, {0, 0}, 8, 1, false, PLAIN, SCORED},
    {6, 2, 40, 12, UM_F32, 101, {31, 63}, {0, 0}, 30, 3, false, SCRATCH, SCORED},
    {6, 2, 40, 12, UM_F32, 101, {31, 63}, {0, 0}, 30, 3, true, SCRATCH, SCORED},
    {4, 4, 33, 4, UM_BF16, 90, {0, 17}, {0, 0}, 73, 2, true, PLAIN, SCORED},
    {28, 2, 64, 32, UM_BF16, 300, {250, 282}, {0, 0}, 60, 5, false, SCRATCH, SCORED},
    {28, 2, 64, 32, UM_F8, 300, {250, 282}, {0, 0}, 60, 3, true, DISTINCT, SCORED},
    {4, 1, 48, 33, UM_F8, 77, {40, 44}, {0, 0}, 1, 1, false, PLAIN, SCORED},
    {4, 2, 300, 64, UM_F32, 130, {60, 70}, {0, 0}, 20, 7, true, DISTINCT, SCORED},
    {6, 3, 32, 7, UM_BF16, 120, {80, 96}, {20, 43}, 40, 3, false, PLAIN, SCORED},
    {6, 3, 32, 7, UM_F8, 120, {80, 96}, {70, 83}, 40, 3, true, PLAIN, SCORED},
    {6, 2, 40, 12, UM_F32, 101, {31, 63}, {0, 0}, 30, 3, false, SCRATCH, WITH_PRIOR},
    {28, 2, 64, 32, UM_BF16, 300, {250, 282}, {20, 43}, 60, 3, true, PLAIN, WITH_PRIOR},
    {6, 2, 40, 12, UM_F32, 101, {31, 63}, {0, 0}, 30, 3, true, SCRATCH, BLIND},
    {28, 2, 64, 32, UM_F8, 300, {250, 282}, {20, 43}, 60, 3, false, DISTINCT, BLIND},
};

/* A case in which the whole sequence is fed. The kept keys go to spare pages of the pool. */
typedef struct select_case {
    select_shape s;
    attention_case c;
    um_kv_select select;
    float prior[400];
    int32_t *slot, *kept_page;
} select_case;

/* Returns n pages of the pool that the request does not use. */
static int32_t *spare_pages(const attention_case *c, int32_t n) {
    int32_t *page = UM_NEW_ARRAY(int32_t, (size_t)n), found = 0;
    for (int32_t p = (int32_t)(c->pages[0].shape.n_slots / c->s.page_size); p-- > 0 && found < n;) {
        bool taken = false;
        for (int32_t i = 0; i < c->pages[0].n_pages; i++) taken |= c->pages[0].page[i] == p;
        if (!taken) page[found++] = p;
    }
    assert_int_equal(found, n);
    return page;
}

static void free_select(select_case *x) {
    free_attention(&x->c);
    um_free(x->slot);
    um_free(x->kept_page);
}

/* Initializes a case in place, because it contains pointers to itself. */
static void new_select(select_case *x, const select_shape *s) {
    attention_shape shape = {s->n_heads,  s->n_kv_heads, s->head_dim, s->page_size, s->type,
                             {s->n_keys}, {s->n_keys},   0,           see_full};
    kv_variant where = s->where;
    where.hole = s->hole;
    *x = (select_case){.s = *s, .c = new_attention_in(&shape, where)};
    int32_t n_pages = UM_CEIL_DIV(s->n_keep, s->page_size);
    x->c.pages[0].shape.n_slots += (int64_t)n_pages * s->page_size;
    if (where.scratch) /* scratch pages follow those of the pool */
        for (int32_t i = 0; i < x->c.pages[0].n_pages; i++) x->c.pages[0].page[i] += n_pages;
    x->kept_page = spare_pages(&x->c, n_pages);
    for (int32_t i = 0; i < s->n_keys; i++) x->prior[i] = (float)(i % 5) - (float)i / 64;
    x->select = (um_kv_select){.block = s->block,
                               .n_keep = s->n_keep,
                               .pool = s->pool,
                               .per_head = s->per_head,
                               .page = x->kept_page,
                               .prior = s->rule == SCORED ? NULL : x->prior,
                               .blind = s->rule == BLIND};
    x->slot = UM_NEW_ARRAY(int32_t, (size_t)s->n_keys);
    for (int32_t i = 0; i < s->n_keys; i++) x->slot[i] = slot_of(&x->c.pages[0], i);
}

/* Fills new KV and runs the selection. */
static um_kv *run_select(const world *w, select_case *x) {
    um_kv *kv = fill_kv(w, &x->c, true);
    um_batch b = batch_of(&x->c);
    b.slot = x->slot;
    x->c.span[0].select = &x->select;
    um_attention a = attention_args(&x->c, &b, 1);
    w->ops->kv_select(w->dev, kv, &a);
    x->c.span[0].select = NULL;
    return kv;
}

/* Returns the values [n, n_heads * d] of the first n rows of a page table. Query i sees only key i. */
static float *read_rows(const world *w, const um_kv *kv, const select_case *x, const int32_t *page, int32_t n) {
    um_span *span = UM_NEW_ARRAY(um_span, (size_t)n);
    for (int32_t i = 0; i < n; i++) span[i] = (um_span){.first = i, .n = 1, .page = page, .keys = {i, i + 1}};
    um_batch b = batch_of(&x->c);
    b.span = span;
    b.n_spans = n;
    float *out = attend_spans(w, kv, &x->c, &b);
    um_free(span);
    return out;
}

/* ---- The definition ---- */

static bool exists_outside(const select_shape *s, int32_t vis) {
    bool in_block = vis >= s->block.start && vis < s->block.end, in_hole = vis >= s->hole.start && vis < s->hole.end;
    return !in_block && !in_hole;
}

/* Returns a key element, rounded as it is stored. */
static double stored(const select_shape *s, const float *head, int32_t i) {
    if (s->type == UM_F32) return (double)head[i];
    if (s->type == UM_BF16) return (double)um_bf16_to_f32(um_f32_to_bf16(head[i]));
    float scale = um_f8_scale(head, (size_t)s->head_dim);
    return (double)(um_f8_to_f32(um_f8_code(head[i], scale)) * scale);
}

/* Returns qbar[h] . K[vis, KV head of h] / sqrt(d). */
static double head_score(const select_case *x, int32_t h, int32_t vis) {
    const select_shape *s = &x->s;
    int32_t c = h / (s->n_heads / s->n_kv_heads), d = s->head_dim;
    const float *key = x->c.key[0] + (size_t)(vis * s->n_kv_heads + c) * (size_t)d;
    double sum = 0;
    for (int32_t i = 0; i < d; i++) {
        double mean = 0;
        for (int32_t t = s->block.start; t < s->block.end; t++)
            mean += (double)x->c.q[(size_t)(t * s->n_heads + h) * (size_t)d + (size_t)i];
        sum += mean / (s->block.end - s->block.start) * stored(s, key, i);
    }
    return sum / sqrt(d);
}

/* Returns the score of a key for KV head c, or for all heads together. */
static double key_score(const select_case *x, int32_t c, int32_t vis) {
    const select_shape *s = &x->s;
    int32_t group = s->n_heads / s->n_kv_heads;
    double sum = 0, largest = -INFINITY;
    for (int32_t h = 0; h < s->n_heads; h++) {
        if (s->per_head && h / group != c) continue;
        double score = head_score(x, h, vis);
        sum += score;
        largest = fmax(largest, score);
    }
    return s->per_head ? largest : sum;
}

/* Computes the visibility indices of the keys that KV head c keeps. Pooling makes neighbouring scores equal, so there
 * are many ties. */
static void expected_rows(const select_case *x, int32_t c, int32_t *row) {
    const select_shape *s = &x->s;
    int32_t vis[400], n = 0;
    double score[400], pooled[400];
    for (int32_t v = 0; v < s->n_keys; v++)
        if (exists_outside(s, v)) vis[n++] = v;
    for (int32_t i = 0; i < n; i++) score[i] = s->rule == BLIND ? 0 : key_score(x, c, vis[i]);
    for (int32_t i = 0; i < n; i++) {
        pooled[i] = -INFINITY;
        for (int32_t k = i - s->pool / 2; k < i - s->pool / 2 + s->pool; k++)
            if (k >= 0 && k < n) pooled[i] = fmax(pooled[i], score[k]);
        if (s->rule != SCORED) pooled[i] += (double)x->prior[vis[i]];
    }
    for (int32_t t = 0; t < s->n_keep; t++) {
        int32_t best = -1;
        for (int32_t i = 0; i < n; i++)
            if (vis[i] >= 0 && (best < 0 || pooled[i] > pooled[best])) best = i;
        row[t] = vis[best];
        vis[best] = -1;
    }
}

/* Checks for each head that the kept rows have the values of the expected indices. */
static void check_rows(const world *w, const select_case *x, um_kv *kv) {
    const select_shape *s = &x->s;
    int32_t row[400], d = s->head_dim, group = s->n_heads / s->n_kv_heads;
    size_t width = (size_t)(s->n_heads * d);
    float *kept = read_rows(w, kv, x, x->kept_page, s->n_keep);
    float *all = read_rows(w, kv, x, x->c.pages[0].page, s->n_keys);
    for (int32_t h = 0; h < s->n_heads; h++) {
        if (h % group == 0) expected_rows(x, h / group, row);
        for (int32_t t = 0; t < s->n_keep; t++) {
            const float *got = kept + (size_t)t * width + (size_t)(h * d);
            same_bits(w, "value of a kept row", got, all + (size_t)row[t] * width + (size_t)(h * d),
                      (size_t)d * sizeof *got);
        }
    }
    um_free(kept);
    um_free(all);
}

static void check_definition(const world *w, const world *ref) {
    (void)ref;
    for (size_t i = 0; i < UM_LEN(shapes); i++) {
        select_case x;
        new_select(&x, &shapes[i]);
        um_kv *kv = run_select(w, &x);
        check_rows(w, &x, kv);
        w->ops->kv_free(w->dev, kv);
        free_select(&x);
    }
}

static void check_definition_of_both(const world *w, const world *ref) {
    check_definition(w, ref);
    if (um_streq(w->ops->isa(w->dev), um_cpu_isas()[0])) check_definition(ref, ref);
}

static void kept_rows_are_those_of_the_definition(void **state) {
    (void)state;
    for_each_world(check_definition_of_both);
}

/* ---- Attention over kept keys ---- */

static float *attend_kept(const world *w, const um_kv *kv, const select_case *x) {
    um_span span = x->c.span[0];
    um_batch b = batch_of(&x->c);
    span.page = x->kept_page;
    span.keys = (um_range){0, x->s.n_keep};
    span.hole = (um_range){0, 0};
    b.span = &span;
    return attend_spans(w, kv, &x->c, &b);
}

static float *select_and_attend(const world *w, select_case *x) {
    um_kv *kv = run_select(w, x);
    float *out = attend_kept(w, kv, x);
    w->ops->kv_free(w->dev, kv);
    return out;
}

static void check_attention(const world *w, const world *ref) {
    for (size_t i = 0; i < UM_LEN(shapes); i++) {
        select_case x;
        new_select(&x, &shapes[i]);
        const size_t width = attention_width(&x.c), n = (size_t)x.s.n_keys * width;
        const float *want = known_result(n);
        if (!want) want = keep_result(select_and_attend(ref, &x), n);
        float *got = select_and_attend(w, &x);
        compare(w, "attention over kept rows", got, want, n, width,
                w->dtype == UM_F32 ? (tolerance){2e-6, 1e-5} : (tolerance){4e-3, 4e-3});
        um_free(got);
        free_select(&x);
    }
}

static void attention_over_kept_rows_matches_the_reference(void **state) {
    (void)state;
    begin_worst();
    for_each_world(check_attention);
    print_worst("kept rows");
}

/* ---- Invariance ---- */

static void same_kept(const world *a, const um_kv *kv_a, const select_case *x, const world *b, const um_kv *kv_b,
                      const select_case *y) {
    float *want = attend_kept(a, kv_a, x), *got = attend_kept(b, kv_b, y);
    same_bits(b, "kept rows", got, want, (size_t)x->s.n_keys * attention_width(&x->c) * sizeof *got);
    um_free(want);
    um_free(got);
}

static void threads_do_not_change_what_is_kept(void **state) {
    (void)state;
    static const um_dtype types[] = {UM_F32, UM_BF16};
    for (int32_t n = 2; n <= 4; n++) {
        for (size_t t = 0; t < UM_LEN(types); t++) {
            world one = open_world(ops_named("cpu"), NULL, types[t], 1);
            world many = open_world(ops_named("cpu"), NULL, types[t], n);
            for (size_t i = 0; i < UM_LEN(shapes); i++) {
                select_case x;
                new_select(&x, &shapes[i]);
                um_kv *a = run_select(&one, &x), *b = run_select(&many, &x);
                same_kept(&one, a, &x, &many, b, &x);
                one.ops->kv_free(one.dev, a);
                many.ops->kv_free(many.dev, b);
                free_select(&x);
            }
            close_world(&one);
            close_world(&many);
        }
    }
}

/* Compares the same keys and queries in pages of different sizes. */
static void check_pages(const world *w, const world *ref) {
    (void)ref;
    static const int32_t sizes[] = {1, 4, 12, 33, 64};
    static const um_dtype types[] = {UM_F32, UM_BF16, UM_F8};
    for (size_t i = 0; i < UM_LEN(sizes) * UM_LEN(types); i++) {
        select_shape s = {6, 2, 40, 32, types[i % 3], 101, {31, 63}, {0, 0}, 30, 3, i % 2 == 1, SCRATCH, SCORED};
        select_case x, y;
        new_select(&x, &s);
        s.page_size = sizes[i / 3];
        new_select(&y, &s);
        size_t bytes = 101 * 2 * 40 * sizeof(float);
        memcpy(y.c.key[0], x.c.key[0], bytes);
        memcpy(y.c.value[0], x.c.value[0], bytes);
        memcpy(y.c.q, x.c.q, 101 * attention_width(&x.c) * sizeof(float));
        um_kv *a = run_select(w, &x), *b = run_select(w, &y);
        same_kept(w, a, &x, w, b, &y);
        w->ops->kv_free(w->dev, a);
        w->ops->kv_free(w->dev, b);
        free_select(&x);
        free_select(&y);
    }
}

static void pages_do_not_change_what_is_kept(void **state) {
    (void)state;
    for_each_world(check_pages);
}

/* Feeds only the tokens of the block, after another span that also selects keys. */
static void check_neighbours(const world *w, const world *ref) {
    (void)ref;
    enum { KEYS = 101, BLOCK = 31, BLOCK_END = 63, N = BLOCK_END - BLOCK };
    select_shape s = {6, 2, 40, 12, UM_BF16, KEYS, {BLOCK, BLOCK_END}, {0, 0}, 30, 3, true, PLAIN, SCORED};
    select_case x;
    new_select(&x, &s);
    um_kv *alone = run_select(w, &x), *kv = fill_kv(w, &x.c, true);
    int32_t slot[2 * N], other_page[3] = {x.kept_page[0], x.kept_page[1], x.kept_page[2]};
    size_t width = attention_width(&x.c);
    float *q = random_floats(2 * N * width);
    memcpy(q + N * width, x.c.q + BLOCK * width, N * width * sizeof *q);
    for (int32_t i = 0; i < N; i++) slot[i] = x.slot[KEYS - N + i], slot[N + i] = x.slot[BLOCK + i];
    um_kv_select other = x.select;
    other.block = (um_range){KEYS - N, KEYS};
    other.page = other_page;
    um_span span[2] = {x.c.span[0], x.c.span[0]};
    span[0].n = span[1].n = span[1].first = N;
    span[0].select = &other;
    span[1].select = &x.select; /* both keep their rows in the same pages; the later span wins */
    um_batch b = {.n_tokens = 2 * N, .n_spans = 2, .slot = slot, .span = span, .seen_end = x.c.seen_end};
    um_attention a = attention_args(&x.c, &b, 1);
    a.q = q;
    w->ops->kv_select(w->dev, kv, &a);
    same_kept(w, alone, &x, w, kv, &x);
    w->ops->kv_free(w->dev, alone);
    w->ops->kv_free(w->dev, kv);
    um_free(q);
    free_select(&x);
}

static void other_spans_do_not_change_what_is_kept(void **state) {
    (void)state;
    for_each_world(check_neighbours);
}

/* ---- Functions of select.h ---- */

static void keys_outside_the_block_are_listed_without_the_hole(void **state) {
    (void)state;
    const um_kv_select select = {.block = {5, 8}};
    const um_span span = {.keys = {2, 12}, .hole = {7, 10}, .select = &select};
    static const int32_t want[] = {2, 3, 4, 10, 11};
    int32_t vis[12];
    assert_int_equal(um_select_keys(&span, vis), UM_LEN(want));
    assert_memory_equal(vis, want, sizeof want);
}

static void pooling_takes_the_largest_around_each_score(void **state) {
    (void)state;
    const float score[] = {1, 5, 2, 0, NAN, -3}, none = -INFINITY;
    static const struct {
        int32_t pool;
        float want[6];
    } cases[] = {
        {1, {1, 5, 2, 0, 0, -3}}, {2, {1, 5, 5, 2, 0, -3}}, {3, {5, 5, 5, 2, 0, -3}},
        {9, {5, 5, 5, 5, 5, 5}},  {5, {5, 5, 5, 5, 2, 0}},
    };
    float out[6];
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        um_select_pool(score, 6, cases[i].pool, out);
        for (int k = 0; k < 6; k++)
            assert_true(cases[i].pool == 1 && k == 4 ? out[k] == none : out[k] == cases[i].want[k]);
    }
}

static void largest_scores_come_in_falling_order_ties_lower_index_first(void **state) {
    (void)state;
    for (int32_t n = 1; n <= 60; n++) {
        float score[60];
        int32_t order[60];
        bool taken[60] = {false};
        for (int32_t i = 0; i < n; i++) score[i] = (float)random_below(9);
        if (n > 3) score[2] = -INFINITY;
        int32_t n_keep = random_below(n + 1);
        um_select_largest(score, n, n_keep, order);
        for (int32_t t = 0; t < n_keep; t++) {
            int32_t best = -1;
            for (int32_t i = 0; i < n; i++)
                if (!taken[i] && (best < 0 || score[i] > score[best])) best = i;
            assert_int_equal(order[t], best);
            taken[best] = true;
        }
    }
}

static void check_allocations(const world *w, const world *ref) {
    (void)ref;
    select_case x;
    new_select(&x, &shapes[5]);
    um_kv *kv = fill_kv(w, &x.c, false);
    um_batch b = batch_of(&x.c);
    b.slot = x.slot;
    x.c.span[0].select = &x.select;
    um_attention a = attention_args(&x.c, &b, 1);
    int64_t before = um_alloc_count();
    w->ops->kv_select(w->dev, kv, &a);
    w->ops->kv_copy(w->dev, kv, x.kept_page[0], x.kept_page[1], 20);
    assert_int_equal(um_alloc_count(), before);
    w->ops->kv_free(w->dev, kv);
    free_select(&x);
}

static void selection_and_copies_allocate_nothing(void **state) {
    (void)state;
    for_each_world_and_reference(check_allocations);
}

int main(void) {
    seed_world();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_rows_are_those_of_the_definition),
        cmocka_unit_test(attention_over_kept_rows_matches_the_reference),
        cmocka_unit_test(threads_do_not_change_what_is_kept),
        cmocka_unit_test(pages_do_not_change_what_is_kept),
        cmocka_unit_test(other_spans_do_not_change_what_is_kept),
        cmocka_unit_test(keys_outside_the_block_are_listed_without_the_hole),
        cmocka_unit_test(pooling_takes_the_largest_around_each_score),
        cmocka_unit_test(largest_scores_come_in_falling_order_ties_lower_index_first),
        cmocka_unit_test(selection_and_copies_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
