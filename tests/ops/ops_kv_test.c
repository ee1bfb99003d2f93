/* Keys and values: scratch pages, holes, layouts, 8-bit elements, copies of pages. Each is compared with the reference,
 * alone and in a batch, with different numbers of threads and with different pages. Unwritten slots contain NaN. */
#include "ops_cases.h"

static attention_shape shapes[ATTENTION_SHAPES_MAX];
static size_t n_shapes;

/* Lists the shapes of attention, and half of them again with 8-bit keys and values. */
static void list_shapes(void) {
    n_shapes = attention_shapes(shapes);
    for (size_t i = 0, n = n_shapes; i < n; i += 2) {
        shapes[n_shapes] = shapes[i];
        shapes[n_shapes++].kv_type = UM_F8;
    }
}

static const kv_variant variants[] = {
    {UM_KV_UNIFIED, false, {0, 0}},  {UM_KV_DISTINCT, false, {0, 0}}, {UM_KV_UNIFIED, true, {0, 0}},
    {UM_KV_DISTINCT, true, {7, 40}}, {UM_KV_UNIFIED, false, {3, 4}},  {UM_KV_UNIFIED, true, {32, 64}},
};

static const char *label_of(size_t shape, size_t variant) {
    static char text[96];
    snprintf(text, sizeof text, "attention shape %zu, KV %s, variant %zu", shape, um_dtype_name(shapes[shape].kv_type),
             variant);
    return text;
}

static size_t out_bytes(const attention_case *c) {
    return (size_t)c->batch.n_tokens * attention_width(c) * sizeof(float);
}

/* ---- Every variant of attention ---- */

static void for_each_case(const world *w, const world *ref,
                          void (*check)(const world *w, const world *ref, const attention_case *c, const char *label)) {
    for (size_t i = 0; i < n_shapes; i++) {
        for (size_t v = 0; v < UM_LEN(variants); v++) {
            attention_case c = new_attention_in(&shapes[i], variants[v]);
            check(w, ref, &c, label_of(i, v));
            free_attention(&c);
        }
    }
}

static void compare_with_reference(const world *w, const world *ref, const attention_case *c, const char *label) {
    const size_t n = out_bytes(c) / sizeof(float);
    float *got = run_attention(w, c, true);
    const float *want = known_result(n);
    if (!want) want = keep_result(run_attention(ref, c, true), n);
    bool exact = w->dtype == UM_F32;
    /* Probabilities are rounded to bf16 before or after the division by their sum: two roundings of 2^-9. */
    compare(w, label, got, want, n, attention_width(c), exact ? (tolerance){2e-6, 1e-5} : (tolerance){4e-3, 4e-3});
    um_free(got);
}

static void check_parity(const world *w, const world *ref) { for_each_case(w, ref, compare_with_reference); }

static void every_kind_of_kv_matches_the_reference(void **state) {
    (void)state;
    begin_worst();
    for_each_world(check_parity);
    print_worst("attention");
}

static void compare_alone(const world *w, const world *ref, const attention_case *c, const char *label) {
    (void)ref;
    size_t width = attention_width(c);
    um_kv *kv = fill_kv(w, c, true);
    um_batch b = batch_of(c);
    float *all = attend_spans(w, kv, c, &b);
    for (int i = 0; i < c->batch.n_spans; i++) {
        for (int32_t t = c->span[i].first; t < c->span[i].first + c->span[i].n; t++) {
            um_span one = c->span[i];
            one.first = t;
            one.n = 1;
            b.span = &one;
            b.n_spans = 1;
            float *alone = attend_spans(w, kv, c, &b);
            same_bits(w, label, all + (size_t)t * width, alone + (size_t)t * width, width * sizeof *all);
            um_free(alone);
        }
    }
    um_free(all);
    w->ops->kv_free(w->dev, kv);
}

static void check_alone(const world *w, const world *ref) { for_each_case(w, ref, compare_alone); }

static void every_kind_of_kv_is_the_same_alone_and_in_a_batch(void **state) {
    (void)state;
    for_each_world(check_alone);
}

/* Compares the same keys, values and queries in both layouts. */
static void compare_layouts(const world *w, const world *ref, const attention_shape *s, um_range hole) {
    (void)ref;
    attention_case a = new_attention_in(s, (kv_variant){UM_KV_UNIFIED, false, hole});
    um_kv_shape distinct = shape_of(s, (kv_variant){UM_KV_DISTINCT, false, hole});
    float *want = run_attention(w, &a, true);
    for (int i = 0; i < a.batch.n_spans; i++) a.pages[i].shape = distinct;
    float *got = run_attention(w, &a, true);
    same_bits(w, "attention: layouts", got, want, out_bytes(&a));
    um_free(got);
    um_free(want);
    free_attention(&a);
}

static void check_layouts(const world *w, const world *ref) {
    for (size_t i = 0; i < n_shapes; i++) {
        compare_layouts(w, ref, &shapes[i], (um_range){0, 0});
        compare_layouts(w, ref, &shapes[i], (um_range){5, 33});
    }
}

static void layouts_give_the_same_bits(void **state) {
    (void)state;
    for_each_world(check_layouts);
}

/* ---- Threads and pages ---- */

static void same_with_threads(const world *one, const world *many) {
    static const um_dtype types[] = {UM_F32, UM_BF16, UM_F8};
    for (size_t i = 0; i < UM_LEN(types); i++) {
        attention_shape shape = {6, 2, 64, 12, types[i], {60, 17, 3}, {130, 99, 70}, 0, see_blocks};
        attention_case c = new_attention_in(&shape, (kv_variant){UM_KV_UNIFIED, true, {20, 51}});
        float *a = run_attention(one, &c, true), *b = run_attention(many, &c, true);
        same_bits(many, "attention: threads", a, b, out_bytes(&c));
        um_free(a);
        um_free(b);
        free_attention(&c);
    }
}

/* With few queries of a long context, threads share the keys. With two threads, the segments take several rounds. */
static void same_with_shared_keys(const world *one, const world *many) {
    static const um_dtype types[] = {UM_F32, UM_BF16, UM_F8};
    for (size_t i = 0; i < UM_LEN(types); i++) {
        attention_shape shape = {6, 3, 16, 32, types[i], {3}, {2600}, 0, see_blocks};
        attention_case c = new_attention_in(&shape, (kv_variant){UM_KV_UNIFIED, false, {500, 1100}});
        float *a = run_attention(one, &c, true), *b = run_attention(many, &c, true);
        same_bits(many, "attention: shared keys", a, b, out_bytes(&c));
        um_free(a);
        um_free(b);
        free_attention(&c);
    }
}

static void attention_does_not_depend_on_threads(void **state) {
    (void)state;
    for_each_number_of_threads(same_with_threads);
    for_each_number_of_threads(same_with_shared_keys);
}

/* Compares the same request in pages of different sizes, order and place. */
static void compare_pages(const world *w, um_dtype type, um_range hole) {
    static const int32_t sizes[] = {1, 4, 5, 12, 16, 33, 64};
    attention_shape shape = {4, 2, 48, 32, type, {13}, {77}, 3, {.see = UM_SEE_CAUSAL}};
    attention_case first = new_attention_in(&shape, (kv_variant){UM_KV_UNIFIED, false, hole});
    float *want = run_attention(w, &first, true);
    for (size_t i = 0; i < 2 * UM_LEN(sizes); i++) {
        shape.page_size = sizes[i / 2];
        attention_case c = new_attention_in(&shape, (kv_variant){UM_KV_UNIFIED, i % 2 == 1, hole});
        size_t n = 77 * 2 * 48 * sizeof(float);
        memcpy(c.key[0], first.key[0], n);
        memcpy(c.value[0], first.value[0], n);
        memcpy(c.q, first.q, out_bytes(&c));
        float *got = run_attention(w, &c, true);
        same_bits(w, "attention: page sizes", got, want, out_bytes(&c));
        um_free(got);
        free_attention(&c);
    }
    um_free(want);
    free_attention(&first);
}

static void check_pages(const world *w, const world *ref) {
    (void)ref;
    static const um_dtype types[] = {UM_F32, UM_BF16, UM_F8};
    for (size_t i = 0; i < UM_LEN(types); i++) {
        compare_pages(w, types[i], (um_range){0, 0});
        compare_pages(w, types[i], (um_range){9, 46});
    }
}

static void attention_does_not_depend_on_pages(void **state) {
    (void)state;
    for_each_world(check_pages);
}

/* ---- Holes and scratch ---- */

/* Pages inside of the hole have no valid number. The reference must give the same bits as for a request without these
 * keys. */
static void hole_is_as_if_its_keys_were_never_there(void **state) {
    (void)state;
    enum { KEYS = 90, HOLE = 35, HOLE_END = 71, WIDTH = 2 * 16 };
    world ref = open_world(ops_named("ref"), NULL, UM_F32, 1);
    attention_shape shape = {4, 2, 16, 4, UM_F32, {6}, {KEYS}, 2, see_full};
    attention_case c = new_attention_in(&shape, (kv_variant){UM_KV_UNIFIED, false, {HOLE, HOLE_END}});
    shape.n_keys[0] = KEYS - (HOLE_END - HOLE);
    attention_case without = new_attention(&shape);
    size_t before = HOLE * WIDTH, gone = (HOLE_END - HOLE) * WIDTH, behind = (KEYS - HOLE_END) * WIDTH;
    float *from[] = {c.key[0], c.value[0]}, *to[] = {without.key[0], without.value[0]};
    for (int i = 0; i < 2; i++) {
        memcpy(to[i], from[i], before * sizeof(float));
        memcpy(to[i] + before, from[i] + before + gone, behind * sizeof(float));
    }
    memcpy(without.q, c.q, out_bytes(&c));
    um_kv *kv = fill_kv(&ref, &c, true);
    for (int32_t i = UM_CEIL_DIV(HOLE, 4); i < HOLE_END / 4; i++) c.pages[0].page[i] = -1;
    um_batch b = batch_of(&c);
    float *got = attend_spans(&ref, kv, &c, &b), *want = run_attention(&ref, &without, true);
    same_bits(&ref, "attention: hole", got, want, out_bytes(&c));
    ref.ops->kv_free(ref.dev, kv);
    um_free(got);
    um_free(want);
    free_attention(&c);
    free_attention(&without);
    close_world(&ref);
}

static void check_missing_pages(const world *w, const world *ref) {
    (void)ref;
    for (size_t i = 0; i < n_shapes; i++) {
        um_range hole = {shapes[i].page_size, 3 * shapes[i].page_size};
        attention_case c = new_attention_in(&shapes[i], (kv_variant){UM_KV_UNIFIED, false, hole});
        um_kv *kv = fill_kv(w, &c, true);
        um_batch b = batch_of(&c);
        float *want = attend_spans(w, kv, &c, &b);
        for (int s = 0; s < b.n_spans; s++)
            for (int32_t k = 1; k < UM_MIN(c.pages[s].n_pages, 3); k++) c.pages[s].page[k] = -1;
        float *got = attend_spans(w, kv, &c, &b);
        same_bits(w, "attention: pages of a hole", got, want, out_bytes(&c));
        w->ops->kv_free(w->dev, kv);
        um_free(got);
        um_free(want);
        free_attention(&c);
    }
}

static void pages_of_a_hole_are_not_looked_up(void **state) {
    (void)state;
    for_each_world(check_missing_pages);
}

/* Request 0 is in scratch, request 1 in the pool. In scratch, layer 0 reads the keys that layer 1 has written; in the
 * pool it reads its own. */
static void check_scratch(const world *w, const world *ref) {
    (void)ref;
    attention_shape shape = {4, 2, 32, 12, UM_BF16, {5, 5}, {50, 50}, 0, see_full};
    attention_case c = new_attention_in(&shape, (kv_variant){.scratch = true});
    size_t n = 5 * attention_width(&c);
    um_kv *kv = make_kv(w, &c.pages[0].shape);
    um_batch b = batch_of(&c);
    for (int i = 0; i < 2; i++) write_keys(w, kv, &c.pages[i], 0, c.value[i], c.key[i]);
    float *first = attend_layer(w, kv, &c, &b, 0);
    for (int i = 0; i < 2; i++) write_keys(w, kv, &c.pages[i], 1, c.key[i], c.value[i]);
    float *layer0 = attend_layer(w, kv, &c, &b, 0), *layer1 = attend_layer(w, kv, &c, &b, 1);
    same_bits(w, "attention: scratch in both layers", layer0, layer1, n * sizeof(float));
    assert_true(memcmp(first, layer0, n * sizeof(float)) != 0);
    assert_true(memcmp(layer0 + n, layer1 + n, n * sizeof(float)) != 0);
    same_bits(w, "attention: layer 0 of the pool", layer0 + n, first + n, n * sizeof(float));
    w->ops->kv_free(w->dev, kv);
    um_free(first);
    um_free(layer0);
    um_free(layer1);
    free_attention(&c);
}

static void scratch_is_one_layer_deep(void **state) {
    (void)state;
    for_each_world_and_reference(check_scratch);
}

static void bytes_of_scratch_are_counted_apart(void **state) {
    (void)state;
    for (const um_ops *const *ops = um_ops_all; *ops; ops++) {
        um_kv_shape shape = {.n_layers = 3, .n_kv_heads = 2, .head_dim = 32, .page_size = 32, .n_slots = 64};
        size_t without = (*ops)->kv_bytes(&shape);
        assert_int_equal(without, 3 * 2 * 2 * 32 * 64 * sizeof(float));
        assert_int_equal((*ops)->kv_scratch_bytes(&shape), 0);
        shape.n_scratch_slots = 96;
        assert_int_equal((*ops)->kv_bytes(&shape), without);
        assert_int_equal((*ops)->kv_scratch_bytes(&shape), 2 * 2 * 32 * 96 * sizeof(float));
        shape.layout = UM_KV_DISTINCT;
        assert_int_equal((*ops)->kv_bytes(&shape), without);
    }
    um_kv_shape bytes = {.n_layers = 1, .n_kv_heads = 1, .head_dim = 32, .page_size = 32, .n_slots = 32, .type = UM_F8};
    assert_int_equal(ops_named("cpu")->kv_bytes(&bytes), 2 * (32 * 32 + 32 * sizeof(float)));
}

/* ---- Copies of pages ---- */

/* Returns attention of the case's queries over the keys [start, end) of a page table. */
static float *read_keys(const world *w, const um_kv *kv, const attention_case *c, int32_t layer, const int32_t *page,
                        int32_t start, int32_t end) {
    um_span span = c->span[0];
    um_batch b = batch_of(c);
    span.page = page;
    span.keys = (um_range){start, end};
    b.span = &span;
    return attend_layer(w, kv, c, &b, layer);
}

/* Copies a full page and the first n slots of a second page. In both layers the copied slots must read the same as the
 * originals, and the slots after them must be unchanged. */
static void compare_copies(const world *w, um_dtype type, um_kv_layout layout, int32_t page_size, int32_t n) {
    const int32_t last = page_size + n, end = 2 * page_size;
    attention_shape shape = {4, 2, 40, page_size, type, {3}, {2 * page_size}, 0, see_full};
    attention_case c = new_attention_in(&shape, (kv_variant){.layout = layout});
    um_kv *kv = make_kv(w, &c.pages[0].shape);
    int32_t copy[2], *page = c.pages[0].page, n_copies = 0;
    paged spare = c.pages[0];
    spare.page = copy;
    for (int32_t p = 0; p < 4; p++)
        if (p != page[0] && p != page[1]) copy[n_copies++] = p;
    float *before[2], *kept[2];
    for (int32_t layer = 0; layer < 2; layer++) {
        write_keys(w, kv, &spare, layer, c.value[0], c.value[0]);
        write_keys(w, kv, &c.pages[0], layer, layer ? c.key[0] : c.value[0], layer ? c.value[0] : c.key[0]);
        before[layer] = read_keys(w, kv, &c, layer, page, 0, last);
        kept[layer] = read_keys(w, kv, &c, layer, copy, last, end);
    }
    w->ops->kv_copy(w->dev, kv, page[0], copy[0], page_size);
    w->ops->kv_copy(w->dev, kv, page[1], copy[1], n);
    for (int32_t layer = 0; layer < 2; layer++) {
        float *copied = read_keys(w, kv, &c, layer, copy, 0, last),
              *rest = read_keys(w, kv, &c, layer, copy, last, end);
        same_bits(w, "copied slots", copied, before[layer], out_bytes(&c));
        same_bits(w, "slots after them", rest, kept[layer], out_bytes(&c));
        um_free(copied);
        um_free(rest);
        um_free(before[layer]);
        um_free(kept[layer]);
    }
    w->ops->kv_free(w->dev, kv);
    free_attention(&c);
}

static void check_copies(const world *w, const world *ref) {
    (void)ref;
    static const int32_t sizes[][2] = {{4, 3}, {12, 5}, {12, 12}, {32, 31}, {64, 33}, {96, 64}, {33, 1}};
    static const um_dtype types[] = {UM_F32, UM_BF16, UM_F8};
    for (size_t i = 0; i < UM_LEN(sizes); i++)
        for (size_t t = 0; t < UM_LEN(types); t++)
            compare_copies(w, types[t], i % 2 ? UM_KV_DISTINCT : UM_KV_UNIFIED, sizes[i][0], sizes[i][1]);
}

static void copy_of_a_page_has_its_first_slots_in_all_layers(void **state) {
    (void)state;
    for_each_world_and_reference(check_copies);
}

/* ---- Numbers ---- */

static void prefix_of_the_anchor_sees_itself_alone(void **state) {
    (void)state;
    const um_visibility v = {.see = UM_SEE_BLOCK_CAUSAL, .block = 4, .anchor = 9, .prefix = 5};
    static const int32_t end[] = {5, 5, 5, 5, 5, 9, 9, 9, 9, 13, 13, 13, 13, 17};
    for (int32_t vis = 0; vis < (int32_t)UM_LEN(end); vis++) assert_int_equal(um_visible_end(v, vis), end[vis]);
    assert_int_equal(um_visible_end((um_visibility){.see = UM_SEE_BLOCK_CAUSAL, .block = 4, .anchor = 9}, 3), 9);
}

static void range_without_another_is_what_lies_beside_it(void **state) {
    (void)state;
    static const struct {
        um_range all, gone;
        int n;
        um_range left[2];
    } cases[] = {
        {{3, 9}, {0, 0}, 1, {{3, 9}}},  {{3, 9}, {5, 5}, 1, {{3, 9}}},         {{3, 9}, {0, 3}, 1, {{3, 9}}},
        {{3, 9}, {9, 12}, 1, {{3, 9}}}, {{3, 9}, {3, 4}, 1, {{4, 9}}},         {{3, 9}, {8, 9}, 1, {{3, 8}}},
        {{3, 9}, {3, 9}, 0, {{0, 0}}},  {{3, 9}, {5, 6}, 2, {{3, 5}, {6, 9}}}, {{3, 3}, {1, 2}, 0, {{0, 0}}},
        {{3, 9}, {0, 30}, 0, {{0, 0}}}, {{3, 9}, {20, 30}, 1, {{3, 9}}},
    };
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        um_range left[2];
        assert_int_equal(um_range_without(cases[i].all, cases[i].gone, left), cases[i].n);
        assert_memory_equal(left, cases[i].left, (size_t)cases[i].n * sizeof(um_range));
    }
}

/* The definition of e4m3: bias 7, subnormal steps of 2^-9, no infinity, NaN when all bits except the sign are set. */
static double value_of_code(int code) {
    int exponent = code >> 3 & 15, mantissa = code & 7;
    double size = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return code & 0x80 ? -size : size;
}

static void codes_of_8_bits_are_exact(void **state) {
    (void)state;
    for (int code = 0; code < 256; code++) {
        float v = um_f8_to_f32((uint8_t)code);
        if ((code & 0x7f) == 0x7f) {
            assert_true(isnan(v) && isnan(um_f8_to_f32(um_f32_to_f8(v))));
            continue;
        }
        assert_true((double)v == value_of_code(code) && !signbit(v) == !(code & 0x80));
        assert_int_equal(um_f32_to_f8(v), code);
    }
    assert_int_equal(um_dtype_size(UM_F8), 1);
    assert_string_equal(um_dtype_name(UM_F8), "float8_e4m3");
}

static void rounding_to_8_bits_takes_the_nearest_and_of_two_the_even(void **state) {
    (void)state;
    for (int code = 0; code < 0x7e; code++) {
        float low = um_f8_to_f32((uint8_t)code), high = um_f8_to_f32((uint8_t)(code + 1)), middle = (low + high) / 2;
        int even = code + code % 2;
        assert_int_equal(um_f32_to_f8(middle), even);
        assert_int_equal(um_f32_to_f8(-middle), even | 0x80);
        assert_int_equal(um_f32_to_f8(nextafterf(middle, 0)), code);
        assert_int_equal(um_f32_to_f8(nextafterf(middle, 1000)), code + 1);
    }
    assert_int_equal(um_f32_to_f8(449), 0x7e);
    assert_int_equal(um_f32_to_f8(-1e30f), 0xfe);
    assert_int_equal(um_f32_to_f8(INFINITY), 0x7e);
    assert_int_equal(um_f32_to_f8(1e-30f), 0);
}

static void vector_of_8_bits_has_its_largest_element_at_448(void **state) {
    (void)state;
    const float x[] = {0.5f, -7, 3, 0}, zero[3] = {0}, bad[] = {1, NAN, 2}, endless[] = {1, -INFINITY};
    assert_true(um_f8_scale(x, 4) == 7.0f / 448);
    assert_int_equal(um_f8_code(-7, um_f8_scale(x, 4)), 0xfe);
    assert_true(um_f8_scale(zero, 3) == 0 && um_f8_code(0, 0) == 0);
    assert_true(isnan(um_f8_scale(bad, 3)) && isnan(um_f8_scale(endless, 2)));
    assert_int_equal(um_f8_code(1, NAN), 0);
}

/* Reads single values through attention over one key. A step of the type is at most 1/8 of the element, so the rounding
 * error is at most 1/16. */
static void check_stored_values(const world *w, const world *ref) {
    (void)ref;
    attention_shape shape = {2, 2, 40, 12, UM_F8, {1}, {20}, 0, see_full};
    attention_case c = new_attention(&shape);
    um_kv *kv = fill_kv(w, &c, true);
    for (int32_t i = 0; i < 20; i++) {
        float *got = read_keys(w, kv, &c, 1, c.pages[0].page, i, i + 1), *want = c.value[0] + i * 80;
        compare(w, "8-bit value", got, want, 80, 40, (tolerance){1.0 / 448 / 512, w->dtype == UM_F32 ? 0.0626 : 0.067});
        um_free(got);
    }
    w->ops->kv_free(w->dev, kv);
    free_attention(&c);
}

static void value_in_8_bits_is_off_by_a_sixteenth_at_most(void **state) {
    (void)state;
    begin_worst();
    for_each_world_and_reference(check_stored_values);
    print_worst("8 bits");
}

/* Elements that are not finite must not become numbers. */
static void check_bad_values(const world *w, const world *ref) {
    (void)ref;
    attention_shape shape = {2, 2, 40, 12, UM_F8, {1}, {20}, 0, see_full};
    attention_case c = new_attention(&shape);
    c.value[0][3 * 80 + 50] = INFINITY;
    um_kv *kv = fill_kv(w, &c, false);
    float *got = read_keys(w, kv, &c, 1, c.pages[0].page, 0, 20);
    for (int i = 0; i < 80; i++) assert_true(isnan(got[i]) == (i >= 40));
    w->ops->kv_free(w->dev, kv);
    um_free(got);
    free_attention(&c);
}

static void vector_with_infinity_in_8_bits_reads_as_nan(void **state) {
    (void)state;
    for_each_world_and_reference(check_bad_values);
}

int main(void) {
    seed_world();
    list_shapes();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_kv_matches_the_reference),
        cmocka_unit_test(every_kind_of_kv_is_the_same_alone_and_in_a_batch),
        cmocka_unit_test(layouts_give_the_same_bits),
        cmocka_unit_test(attention_does_not_depend_on_threads),
        cmocka_unit_test(attention_does_not_depend_on_pages),
        cmocka_unit_test(hole_is_as_if_its_keys_were_never_there),
        cmocka_unit_test(pages_of_a_hole_are_not_looked_up),
        cmocka_unit_test(scratch_is_one_layer_deep),
        cmocka_unit_test(bytes_of_scratch_are_counted_apart),
        cmocka_unit_test(copy_of_a_page_has_its_first_slots_in_all_layers),
        cmocka_unit_test(prefix_of_the_anchor_sees_itself_alone),
        cmocka_unit_test(range_without_another_is_what_lies_beside_it),
        cmocka_unit_test(codes_of_8_bits_are_exact),
        cmocka_unit_test(rounding_to_8_bits_takes_the_nearest_and_of_two_the_even),
        cmocka_unit_test(vector_of_8_bits_has_its_largest_element_at_448),
        cmocka_unit_test(value_in_8_bits_is_off_by_a_sixteenth_at_most),
        cmocka_unit_test(vector_with_infinity_in_8_bits_reads_as_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
