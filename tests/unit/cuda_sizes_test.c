/* Tests of the padded sizes of passes on a GPU, and of the memory of their messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "cuda/sizes.h"
#include "ops/message.h"

/* Limits of an engine with spans of up to 64 requests. The last ones are no padded sizes. */
static const um_cu_limits limits[] = {
    {4096, 4096 / 64 + 128, 4096, 64},
    {4096, 4096 / 32 + 64, 4096, 32},
    {8192, 8192 / 8 + 8, 8192, 8},
    {1000, 1000 / 16 + 21, 777, 16},
    {5, 5 + 2, 5, 64},
};

static um_cu_sizes pad(const um_cu_limits *l, int32_t tokens, int32_t tiles, int32_t rows, int32_t pieces) {
    const um_cu_sizes needed = {tokens, tiles, rows, pieces, false, false};
    return um_cu_pad(l, &needed);
}

static bool same(const um_cu_sizes *a, const um_cu_sizes *b) {
    return a->n_tokens == b->n_tokens && a->n_tiles == b->n_tiles && a->n_rows == b->n_rows &&
           a->n_pieces == b->n_pieces && a->adapts == b->adapts && a->canvas == b->canvas;
}

/* Calls a check for many passes within each of the limits. */
static void walk(void (*check)(const um_cu_limits *l, const um_cu_sizes *needed)) {
    for (size_t i = 0; i < UM_LEN(limits); i++) {
        const um_cu_limits *l = &limits[i];
        for (int32_t t = 0; t <= l->max_tokens; t += t < 200 ? 1 : 37)
            for (int32_t k = 0; k <= 8; k++) {
                const int32_t least = UM_CEIL_DIV(t, l->tile_tokens), most = UM_MIN(t, l->max_tiles);
                const um_cu_sizes needed = {
                    t,        least + (most - least) * k / 8, UM_MIN(t * k / 8, l->max_rows), 1 + 5 * k, k % 2 == 1,
                    k % 4 > 1};
                check(l, &needed);
            }
        const um_cu_sizes all = {l->max_tokens, l->max_tiles, l->max_rows, 128, true, true};
        check(l, &all);
    }
}

static void check_bounds(const um_cu_limits *l, const um_cu_sizes *n) {
    const um_cu_sizes p = um_cu_pad(l, n);
    assert_in_range(p.n_tokens, n->n_tokens, l->max_tokens);
    assert_in_range(p.n_tiles, n->n_tiles, l->max_tiles);
    assert_in_range(p.n_rows, n->n_rows, l->max_rows);
    assert_in_range(p.n_pieces, n->n_pieces, 2 * n->n_pieces - 1);
    assert_int_equal(p.adapts, n->adapts);
    assert_int_equal(p.canvas, n->canvas);
    if (n->n_tokens >= 128) assert_true(4 * p.n_tokens <= 5 * n->n_tokens);
    if (n->n_tokens > UM_CU_GRAPH_TOKENS) {
        assert_true(p.n_tokens < n->n_tokens + 32 && p.n_rows < n->n_rows + 64);
        assert_true(p.n_tiles == n->n_tiles && p.n_pieces == n->n_pieces);
    } else if (n->n_rows >= 128) assert_true(4 * p.n_rows <= 5 * n->n_rows);
    if (n->n_tokens >= 8) assert_true(2 * p.n_tokens <= 3 * n->n_tokens); /* at most half of them is padding */
}

static void is_enough_and_within_the_limits(void **state) {
    (void)state;
    walk(check_bounds);
}

static void check_twice(const um_cu_limits *l, const um_cu_sizes *n) {
    const um_cu_sizes once = um_cu_pad(l, n), twice = um_cu_pad(l, &once);
    assert_true(same(&once, &twice));
}

static void padded_sizes_stay_as_they_are(void **state) {
    (void)state;
    walk(check_twice);
}

/* One more of a size, with the others as they are, never makes it smaller. */
static void check_step(const um_cu_limits *l, const um_cu_sizes *n) {
    const um_cu_sizes p = um_cu_pad(l, n);
    if (n->n_tokens < l->max_tokens) {
        const um_cu_sizes q = pad(l, n->n_tokens + 1, n->n_tiles, n->n_rows, n->n_pieces);
        assert_true(q.n_tokens >= p.n_tokens && (q.n_tokens > UM_CU_GRAPH_TOKENS || q.n_tiles >= p.n_tiles / 2));
        if (n->n_rows <= n->n_tokens) assert_true(q.n_rows >= p.n_rows);
    }
    if (n->n_tiles < l->max_tiles)
        assert_true(pad(l, n->n_tokens, n->n_tiles + 1, n->n_rows, n->n_pieces).n_tiles >= p.n_tiles);
    if (n->n_rows < l->max_rows)
        assert_true(pad(l, n->n_tokens, n->n_tiles, n->n_rows + 1, n->n_pieces).n_rows >= p.n_rows);
    assert_true(pad(l, n->n_tokens, n->n_tiles, n->n_rows, n->n_pieces + 1).n_pieces >= p.n_pieces);
}

static void larger_passes_get_no_smaller_sizes(void **state) {
    (void)state;
    walk(check_step);
}

/* The passes of a server that have graphs: 1 to 16 requests that denoise blocks of 32 tokens, some of them with a
 * finished block, with 1 to all masks, and contexts up to 16 pieces. */
static void the_passes_of_a_server_have_few_sizes(void **state) {
    enum { SEEN_MAX = 4096 };
    static um_cu_sizes seen[SEEN_MAX];
    const um_cu_limits *l = &limits[0];
    int n = 0, without_pieces = 0;
    (void)state;
    for (int32_t pieces = 1; pieces <= 16; pieces++) {
        for (int32_t reqs = 1; reqs <= 16; reqs++)
            for (int32_t more = 0; more <= reqs && reqs + more <= 128; more += 1 + reqs / 4)
                for (int32_t k = 1; k <= 8; k++) {
                    const int32_t t = 32 * (reqs + more);
                    if (t > UM_CU_GRAPH_TOKENS) continue;
                    const um_cu_sizes p = pad(l, t, um_cu_tiles_of(t, reqs, 64), UM_MAX(1, 32 * reqs * k / 8), pieces);
                    int i = 0;
                    while (i < n && !same(&seen[i], &p)) i++;
                    if (i < n) continue;
                    assert_true(n < SEEN_MAX);
                    seen[n++] = p;
                }
        if (pieces == 1) without_pieces = n;
    }
    assert_in_range(without_pieces, 20, 160);
    assert_int_equal(n, 5 * without_pieces); /* 1, 2, 4, 8, 16 pieces */
}

static void tiles_are_counted_for_each_span(void **state) {
    (void)state;
    assert_int_equal(um_cu_tiles_of(0, 0, 64), 0);
    assert_int_equal(um_cu_tiles_of(32, 1, 64), 1);
    assert_int_equal(um_cu_tiles_of(64, 2, 64), 2);
    assert_int_equal(um_cu_tiles_of(130, 1, 64), 3);
    assert_int_equal(um_cu_tiles_of(130, 2, 64), 4);
}

/* Few large tiles read the activations seldom, and full rounds of the multiprocessors leave none of them idle. */
static void tiles_of_a_product_suit_its_rows_and_tokens(void **state) {
    static const int32_t list[] = {16, 32, 48, 64, 96, 128, 144, 192};
    static const struct {
        int32_t rows, tokens, tile;
    } want[] = {
        {2048, 32, 16},    {4096, 32, 32},    {4096, 128, 32},   {6144, 128, 48},
        {12288, 32, 96},   {12288, 128, 96},  {126464, 32, 192}, {126464, 128, 192}, /* a head */
        {63488, 128, 128}, {63488, 32, 128},                                         /* a half of it */
        {77824, 64, 128},  {51200, 128, 144}, {157184, 32, 48},  {53248, 128, 144},  /* parts of other heads */
        {1, 1, 16},
    };
    (void)state;
    for (size_t i = 0; i < UM_LEN(want); i++)
        assert_int_equal(um_cu_tile_rows(want[i].rows, want[i].tokens, list, UM_LEN(list), 132), want[i].tile);
}

/* A bitmap of the device may be at any place behind the largest message. */
static void word_offsets_reach_all_bitmaps_of_a_message(void **state) {
    static const int32_t vocabs[] = {100, 151936, 262144};
    (void)state;
    for (size_t i = 0; i < UM_LEN(vocabs); i++)
        for (int32_t rows = 1; rows <= 1 << 20; rows *= 2) {
            const um_cu_message_memory m = um_cu_message_memory_of(rows, vocabs[i]);
            const size_t bitmap = (size_t)UM_CEIL_DIV(vocabs[i], 32) * sizeof(uint32_t);
            assert_true(m.bytes >= (size_t)rows * bitmap && m.kept_bytes >= (size_t)m.n_kept * bitmap);
            assert_true(m.n_kept % UM_KEPT_WAYS == 0 && m.n_kept >= UM_MIN(rows, 16384) && m.n_kept <= 16384);
            assert_int_equal(um_cu_message_reaches(&m), m.bytes + m.kept_bytes < (size_t)1 << 33);
        }
    const um_cu_message_memory large = um_cu_message_memory_of(262144, 157184),
                               largest = um_cu_message_memory_of(1048576, 262144);
    assert_true(um_cu_message_reaches(&large));
    assert_false(um_cu_message_reaches(&largest));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_enough_and_within_the_limits),
        cmocka_unit_test(padded_sizes_stay_as_they_are),
        cmocka_unit_test(larger_passes_get_no_smaller_sizes),
        cmocka_unit_test(the_passes_of_a_server_have_few_sizes),
        cmocka_unit_test(tiles_are_counted_for_each_span),
        cmocka_unit_test(tiles_of_a_product_suit_its_rows_and_tokens),
        cmocka_unit_test(word_offsets_reach_all_bitmaps_of_a_message),
    };
    return cmocka_run_group_tests_name("sizes", tests, NULL, NULL);
}
