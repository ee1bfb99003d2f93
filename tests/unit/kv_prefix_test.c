/* kv: prefix index, forks and copy-on-write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kv/kv.h"

enum { TABLES = 4, CAP = 16, SPACE = 7 };

/* A pool and some empty tables. */
typedef struct world {
    um_pages pool;
    um_table t[TABLES];
} world;

static void open_world(world *w, int32_t n_pages, int32_t page_size) {
    assert_int_equal(um_pages_init(&w->pool, n_pages, page_size, NULL), UM_OK);
    for (int i = 0; i < TABLES; i++) um_table_init(&w->t[i], CAP);
}

static void close_world(world *w) {
    for (int i = 0; i < TABLES; i++) {
        um_table_release(&w->t[i], &w->pool);
        um_table_deinit(&w->t[i]);
    }
    assert_int_equal(um_pages_available(&w->pool), w->pool.n_pages);
    um_pages_deinit(&w->pool);
}

/* Simulates a request that reuses nothing: gets pages for n tokens, stores all of them and publishes the full pages. */
static void store(world *w, int table, const int32_t *ids, int32_t n) {
    assert_true(um_table_grow(&w->t[table], &w->pool, um_pages_for(&w->pool, n)));
    um_table_publish(&w->t[table], &w->pool, SPACE, ids, n);
}

static void store_and_release(world *w, int table, const int32_t *ids, int32_t n) {
    store(w, table, ids, n);
    um_table_release(&w->t[table], &w->pool);
}

static int32_t matched(const world *w, const int32_t *ids, int32_t n) {
    return um_prefix_match(&w->pool, SPACE, ids, n, n, NULL);
}

static int32_t reuse(world *w, int table, const int32_t *ids, int32_t n) {
    return um_table_reuse_prefix(&w->t[table], &w->pool, SPACE, ids, n, n);
}

static void count_up(int32_t *ids, int32_t n, int32_t first) {
    for (int32_t i = 0; i < n; i++) ids[i] = first + i;
}

/* ---- Finding pages ----------------------------------------------------------------------------------------------- */

/* Example of the specification: requests with the prompts 1..8, 1..8, 1..9 and 1 2 3 4 6 6 6 6 in succession. */
static void finds_the_leading_pages_that_were_stored_before(void **state) {
    (void)state;
    static const int32_t a[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, d[] = {1, 2, 3, 4, 6, 6, 6, 6};
    world w;
    open_world(&w, 8, 4);
    store_and_release(&w, 0, a, 8);
    assert_int_equal(reuse(&w, 1, a, 8), 8);
    assert_int_equal(w.t[1].n, 2);
    assert_int_equal(reuse(&w, 2, a, 9), 8);
    assert_int_equal(reuse(&w, 3, d, 8), 4);
    assert_int_equal(w.t[2].page[1], w.t[1].page[1]);
    assert_int_equal(w.t[3].page[0], w.t[1].page[0]);
    assert_int_equal(w.t[3].n, 1);
    close_world(&w);
}

static void finds_all_of_a_prompt_that_ends_with_a_page(void **state) {
    (void)state;
    static const int32_t shape[][2] = {{32, 64}, {8, 16}, {1, 5}};
    int32_t ids[64];
    count_up(ids, 64, 100);
    for (size_t i = 0; i < UM_LEN(shape); i++) {
        world w;
        open_world(&w, 8, shape[i][0]);
        store(&w, 0, ids, shape[i][1]);
        assert_int_equal(reuse(&w, 1, ids, shape[i][1]), shape[i][1]);
        assert_int_equal(um_pages_used(&w.pool), w.t[0].n);
        close_world(&w);
    }
}

static void finds_whole_pages_up_to_the_given_position(void **state) {
    (void)state;
    int32_t ids[12];
    world w;
    count_up(ids, 12, 1);
    open_world(&w, 8, 4);
    store(&w, 0, ids, 12);
    static const int32_t expected[] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12};
    for (int32_t most = 0; most <= 12; most++) {
        assert_int_equal(um_prefix_match(&w.pool, SPACE, ids, 12, most, NULL), expected[most]);
        assert_int_equal(um_prefix_match(&w.pool, SPACE, ids, most, 12, NULL), expected[most]);
    }
    assert_int_equal(um_prefix_match(&w.pool, SPACE, ids, 12, -1, NULL), 0);
    close_world(&w);
}

static void a_page_is_found_once_all_of_it_is_stored(void **state) {
    (void)state;
    int32_t ids[12];
    world w;
    count_up(ids, 12, 1);
    open_world(&w, 8, 4);
    assert_true(um_table_grow(&w.t[0], &w.pool, 3));
    for (int32_t stored = 0; stored <= 12; stored++) {
        um_table_publish(&w.t[0], &w.pool, SPACE, ids, stored);
        assert_int_equal(matched(&w, ids, 12), stored / 4 * 4);
    }
    close_world(&w);
}

/* Example of the specification: a table of 2 pages with 128 known tokens grows to 4 pages. Page 2 is published after
 * page 1, page 3 when it is full. */
static void pages_filled_by_an_answer_are_found_after_the_prompt(void **state) {
    (void)state;
    int32_t ids[160];
    world w;
    count_up(ids, 160, 1);
    open_world(&w, 8, 32);
    store(&w, 0, ids, 64);
    assert_true(um_table_grow(&w.t[0], &w.pool, 4));
    um_table_publish(&w.t[0], &w.pool, SPACE, ids, 127);
    assert_int_equal(w.t[0].n_published, 3);
    assert_int_equal(w.pool.page[w.t[0].page[2]].before.page, w.t[0].page[1]);
    assert_false(w.pool.page[w.t[0].page[3]].published);
    assert_true(um_table_grow(&w.t[0], &w.pool, 5));
    um_table_publish(&w.t[0], &w.pool, SPACE, ids, 150);
    assert_int_equal(w.pool.page[w.t[0].page[3]].before.page, w.t[0].page[2]);
    assert_false(w.pool.page[w.t[0].page[4]].published);
    um_table_release(&w.t[0], &w.pool);
    assert_int_equal(matched(&w, ids, 160), 128);
    close_world(&w);
}

static void equal_tokens_after_another_prefix_are_not_found(void **state) {
    (void)state;
    static const int32_t a[] = {1, 1, 5, 5}, b[] = {2, 2, 5, 5}, c[] = {2, 2, 9, 9};
    for (int collide = 0; collide < 2; collide++) {
        world w;
        open_world(&w, 8, 2);
        if (collide) w.pool.hash_mask = 0; /* all hashes are equal, so entries have other contents */
        store(&w, 0, a, 4);
        store(&w, 1, c, 4);
        assert_int_equal(matched(&w, b, 4), 2);
        assert_int_equal(matched(&w, b + 2, 2), 0);
        close_world(&w);
    }
}

static void equal_hashes_do_not_mix_contents(void **state) {
    (void)state;
    int32_t ids[3][8];
    world w;
    open_world(&w, 16, 2);
    w.pool.hash_mask = 0;
    for (int i = 0; i < 3; i++) {
        count_up(ids[i], 8, 10 * i);
        store_and_release(&w, i, ids[i], 8);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(reuse(&w, i, ids[i], 8), 8);
        for (int32_t k = 0; k < 4; k++)
            assert_memory_equal(w.pool.ids + 2 * w.t[i].page[k], ids[i] + 2 * k, 2 * sizeof(int32_t));
    }
    close_world(&w);
}

static void namespaces_do_not_share(void **state) {
    (void)state;
    int32_t ids[8];
    world w;
    count_up(ids, 8, 1);
    open_world(&w, 8, 4);
    store(&w, 0, ids, 8);
    assert_int_equal(um_prefix_match(&w.pool, SPACE + 1, ids, 8, 8, NULL), 0);
    assert_int_equal(um_table_reuse_prefix(&w.t[1], &w.pool, SPACE + 1, ids, 8, 8), 0);
    close_world(&w);
}

static void namespace_0_shares_nothing(void **state) {
    (void)state;
    int32_t ids[8];
    world w;
    count_up(ids, 8, 1);
    open_world(&w, 8, 4);
    assert_true(um_table_grow(&w.t[0], &w.pool, 2));
    um_table_publish(&w.t[0], &w.pool, 0, ids, 8);
    assert_true(um_page_may_write(&w.pool, w.t[0].page[0]));
    assert_int_equal(um_prefix_match(&w.pool, 0, ids, 8, 8, NULL), 0);
    assert_int_equal(um_table_reuse_prefix(&w.t[1], &w.pool, 0, ids, 8, 8), 0);
    close_world(&w);
}

/* ---- Order of eviction ------------------------------------------------------------------------------------------- */

static void free_pages_are_allocated_before_cached_ones_are_evicted(void **state) {
    (void)state;
    int32_t ids[8];
    world w;
    count_up(ids, 8, 1);
    open_world(&w, 4, 4);
    store_and_release(&w, 0, ids, 8);
    assert_int_equal(um_pages_available(&w.pool), 4);
    assert_true(um_table_grow(&w.t[1], &w.pool, 2));
    assert_int_equal(matched(&w, ids, 8), 8);
    assert_true(um_table_grow(&w.t[1], &w.pool, 4));
    assert_int_equal(matched(&w, ids, 8), 0);
    close_world(&w);
}

static void pages_are_evicted_in_order_of_release_and_ends_before_beginnings(void **state) {
    (void)state;
    int32_t a[8], b[8];
    world w;
    count_up(a, 8, 1);
    count_up(b, 8, 11);
    open_world(&w, 4, 4);
    store(&w, 0, a, 8);
    store_and_release(&w, 1, b, 8);
    um_table_release(&w.t[0], &w.pool);
    static const int32_t left[][2] = {{8, 8}, {8, 4}, {8, 0}, {4, 0}, {0, 0}};
    for (int32_t taken = 0; taken <= 4; taken++) {
        assert_true(um_table_grow(&w.t[2], &w.pool, taken));
        assert_int_equal(matched(&w, a, 8), left[taken][0]);
        assert_int_equal(matched(&w, b, 8), left[taken][1]);
    }
    close_world(&w);
}

static void reuse_moves_a_page_to_the_end_of_the_eviction_order(void **state) {
    (void)state;
    int32_t a[4], b[4];
    world w;
    count_up(a, 4, 1);
    count_up(b, 4, 11);
    open_world(&w, 2, 4);
    store_and_release(&w, 0, a, 4);
    store_and_release(&w, 0, b, 4);
    (void)reuse(&w, 1, a, 4);
    um_table_release(&w.t[1], &w.pool);
    assert_true(um_table_grow(&w.t[2], &w.pool, 1));
    assert_int_equal(matched(&w, a, 4), 4);
    assert_int_equal(matched(&w, b, 4), 0);
    close_world(&w);
}

static void a_held_page_is_found_even_when_none_is_available(void **state) {
    (void)state;
    int32_t ids[8], n = -1;
    world w;
    count_up(ids, 8, 1);
    open_world(&w, 2, 4);
    store(&w, 0, ids, 8);
    assert_int_equal(um_pages_available(&w.pool), 0);
    assert_int_equal(um_prefix_match(&w.pool, SPACE, ids, 8, 8, &n), 8);
    assert_int_equal(n, 0);
    assert_int_equal(reuse(&w, 1, ids, 8), 8);
    assert_true(um_table_grow(&w.t[1], &w.pool, 2));
    assert_int_equal(w.pool.page[w.t[0].page[0]].n_holders, 2);
    um_table_release(&w.t[0], &w.pool);
    assert_int_equal(um_pages_available(&w.pool), 0);
    um_table_release(&w.t[1], &w.pool);
    assert_int_equal(um_prefix_match(&w.pool, SPACE, ids, 8, 8, &n), 8);
    assert_int_equal(n, 2);
    close_world(&w);
}

/* ---- Equal pages ------------------------------------------------------------------------------------------------- */

/* Two requests with the same prompt are admitted at the same time. */
static void an_equal_page_is_published_once_and_each_table_keeps_its_own(void **state) {
    (void)state;
    int32_t ids[12];
    world w;
    count_up(ids, 12, 1);
    open_world(&w, 8, 4);
    store(&w, 0, ids, 8);
    store(&w, 1, ids, 8);
    for (int32_t i = 0; i < 2; i++) {
        assert_int_not_equal(w.t[0].page[i], w.t[1].page[i]);
        assert_false(w.pool.page[w.t[1].page[i]].published);
    }
    store(&w, 1, ids, 12); /* the answer of the second request is published after the prompt of the first */
    assert_int_equal(reuse(&w, 2, ids, 12), 12);
    assert_int_equal(w.t[2].page[0], w.t[0].page[0]);
    assert_int_equal(w.t[2].page[2], w.t[1].page[2]);
    close_world(&w);
}

static void a_table_publishes_its_own_pages_when_the_equal_ones_were_evicted(void **state) {
    (void)state;
    int32_t ids[16];
    world w;
    count_up(ids, 16, 1);
    open_world(&w, 6, 4);
    store(&w, 0, ids, 8);
    store(&w, 1, ids, 12);
    um_table_release(&w.t[0], &w.pool);
    assert_true(um_table_grow(&w.t[1], &w.pool, 4)); /* takes the free page */
    assert_true(um_table_grow(&w.t[2], &w.pool, 2)); /* evicts the pages of the first table */
    assert_int_equal(matched(&w, ids, 16), 0);       /* the predecessor of the third page was evicted */
    um_table_publish(&w.t[1], &w.pool, SPACE, ids, 16);
    assert_int_equal(matched(&w, ids, 16), 16);
    close_world(&w);
}

static void successors_of_an_evicted_page_are_not_found_after_its_new_contents(void **state) {
    (void)state;
    static const int32_t a[] = {1, 1, 5, 5}, b[] = {2, 2, 5, 5};
    world w;
    open_world(&w, 3, 2);
    w.pool.hash_mask = 0;
    store(&w, 0, a, 2);
    store(&w, 1, a, 4); /* its second page is published after the page of the first table */
    int32_t first = w.t[0].page[0];
    um_table_release(&w.t[0], &w.pool);
    store(&w, 2, b, 2); /* the same page with other tokens */
    assert_int_equal(w.t[2].page[0], first);
    assert_int_equal(matched(&w, b, 4), 2);
    assert_int_equal(matched(&w, a, 4), 0);
    close_world(&w);
}

static void a_flush_empties_the_index_and_tables_publish_again(void **state) {
    (void)state;
    int32_t a[12], b[8];
    world w;
    count_up(a, 12, 1);
    count_up(b, 8, 21);
    open_world(&w, 8, 4);
    store(&w, 0, a, 8);
    store_and_release(&w, 1, b, 8);
    um_prefix_flush(&w.pool);
    assert_int_equal(matched(&w, a, 8) + matched(&w, b, 8), 0);
    assert_int_equal(w.pool.n_cached, 0);
    assert_int_equal(um_pages_used(&w.pool), 2);
    store(&w, 0, a, 12);
    assert_int_equal(matched(&w, a, 12), 12);
    close_world(&w);
}

/* ---- Forks and writing ------------------------------------------------------------------------------------------- */

static void the_first_to_write_to_a_shared_page_copies_it(void **state) {
    (void)state;
    um_page_copy copy;
    world w;
    open_world(&w, 4, 4);
    assert_true(um_table_grow(&w.t[0], &w.pool, 2));
    um_table_fork(&w.t[1], &w.t[0], &w.pool, 6);
    assert_int_equal(um_pages_used(&w.pool), 2);
    int32_t cut = w.t[0].page[1];
    assert_int_equal(w.t[1].page[1], cut);
    assert_false(um_page_may_write(&w.pool, cut));

    assert_true(um_table_writable(&w.t[1], &w.pool, 6, &copy));
    assert_int_equal(copy.from, cut);
    assert_int_equal(copy.to, w.t[1].page[1]);
    assert_int_equal(copy.n, 2);
    assert_int_equal(w.t[0].page[1], cut);
    assert_true(um_page_may_write(&w.pool, copy.to));

    assert_true(um_table_writable(&w.t[0], &w.pool, 6, &copy)); /* no other table holds it any more */
    assert_int_equal(copy.n, 0);
    assert_int_equal(w.t[0].page[1], cut);
    assert_int_equal(w.t[0].page[0], w.t[1].page[0]);
    close_world(&w);
}

static void a_shared_page_stays_as_it_is_when_no_page_is_available(void **state) {
    (void)state;
    um_page_copy copy;
    world w;
    open_world(&w, 2, 4);
    assert_true(um_table_grow(&w.t[0], &w.pool, 2));
    um_table_fork(&w.t[1], &w.t[0], &w.pool, 6);
    assert_false(um_table_writable(&w.t[1], &w.pool, 6, &copy));
    assert_int_equal(w.t[1].page[1], w.t[0].page[1]);
    um_table_release(&w.t[0], &w.pool);
    assert_true(um_table_writable(&w.t[1], &w.pool, 6, &copy));
    assert_int_equal(copy.n, 0);
    close_world(&w);
}

static void a_fork_at_a_page_boundary_copies_nothing(void **state) {
    (void)state;
    um_page_copy copy;
    world w;
    open_world(&w, 4, 4);
    assert_true(um_table_grow(&w.t[0], &w.pool, 2));
    um_table_fork(&w.t[1], &w.t[0], &w.pool, 4);
    assert_int_equal(w.t[1].n, 1);
    assert_true(um_table_grow(&w.t[1], &w.pool, 2));
    assert_true(um_table_writable(&w.t[1], &w.pool, 4, &copy));
    assert_int_equal(copy.n, 0);
    close_world(&w);
}

static void a_published_page_is_never_written(void **state) {
    (void)state;
    int32_t ids[8];
    um_page_copy copy;
    world w;
    count_up(ids, 8, 1);
    open_world(&w, 4, 4);
    store(&w, 0, ids, 8);
    assert_false(um_page_may_write(&w.pool, w.t[0].page[1]));
    um_table_fork(&w.t[1], &w.t[0], &w.pool, 7);
    assert_true(um_table_writable(&w.t[1], &w.pool, 7, &copy)); /* shared: it is copied and stays published */
    assert_int_equal(copy.n, 3);
    assert_int_equal(matched(&w, ids, 8), 8);
    um_table_release(&w.t[1], &w.pool);

    assert_true(um_table_writable(&w.t[0], &w.pool, 5, &copy)); /* held by one table: it is no longer published */
    assert_int_equal(copy.n, 0);
    assert_true(um_page_may_write(&w.pool, w.t[0].page[1]));
    assert_int_equal(matched(&w, ids, 8), 4);
    ids[6] = 99;
    um_table_publish(&w.t[0], &w.pool, SPACE, ids, 8);
    assert_int_equal(matched(&w, ids, 8), 8);
    close_world(&w);
}

/* The published page belongs to another table. After the table's own page is overwritten, it must not count as equal.
 */
static void an_overwritten_page_is_no_longer_published(void **state) {
    (void)state;
    int32_t ids[12];
    um_page_copy copy;
    world w;
    count_up(ids, 12, 1);
    open_world(&w, 8, 4);
    store(&w, 0, ids, 8);
    store(&w, 1, ids, 8);
    assert_true(um_table_writable(&w.t[1], &w.pool, 5, &copy));
    ids[5] = 55;
    store(&w, 1, ids, 12);
    assert_int_equal(matched(&w, ids, 12), 12);
    ids[5] = 6;
    assert_int_equal(matched(&w, ids, 12), 8);
    close_world(&w);
}

static void forks_publish_what_they_write(void **state) {
    (void)state;
    int32_t a[12], b[12];
    um_page_copy copy;
    world w;
    count_up(a, 12, 1);
    count_up(b, 12, 1);
    b[7] = 77;
    open_world(&w, 8, 4);
    store(&w, 0, a, 6);
    um_table_fork(&w.t[1], &w.t[0], &w.pool, 6);
    for (int i = 0; i < 2; i++) {
        assert_true(um_table_writable(&w.t[i], &w.pool, 6, &copy));
        store(&w, i, i == 0 ? a : b, 12);
    }
    assert_int_equal(matched(&w, a, 12), 12);
    assert_int_equal(matched(&w, b, 12), 12);
    close_world(&w);
}

static void a_cut_table_publishes_what_replaces_its_end(void **state) {
    (void)state;
    int32_t a[12], b[12];
    world w;
    count_up(a, 12, 1);
    count_up(b, 12, 1);
    b[5] = 55;
    open_world(&w, 8, 4);
    store(&w, 0, a, 12);
    um_table_truncate(&w.t[0], &w.pool, 1);
    store(&w, 0, b, 12);
    assert_int_equal(matched(&w, b, 12), 12);
    assert_int_equal(w.pool.page[w.t[0].page[0]].n_holders, 1);
    close_world(&w);
}

static void nothing_allocates_after_creation(void **state) {
    (void)state;
    int32_t ids[16];
    um_page_copy copy;
    world w;
    count_up(ids, 16, 1);
    open_world(&w, 6, 4);
    int64_t before = um_alloc_count();
    for (int32_t i = 0; i < 50; i++) {
        ids[i % 16] = i % 3;
        (void)reuse(&w, 0, ids, 16);
        store(&w, 0, ids, 15);
        um_table_fork(&w.t[1], &w.t[0], &w.pool, 15);
        assert_true(um_table_writable(&w.t[1], &w.pool, 15, &copy));
        store(&w, 1, ids, 16);
        for (int k = 0; k < 2; k++) um_table_release(&w.t[k], &w.pool);
        if (i % 20 == 0) um_prefix_flush(&w.pool);
    }
    assert_int_equal(um_alloc_count(), before);
    close_world(&w);
}

/* A waiting request searches again in every step. It finds the pages found before and the pages published meanwhile,
 * but not those that were removed from the index. */
static void a_repeated_search_continues_from_the_pages_found_before(void **state) {
    (void)state;
    world w;
    int32_t ids[16];
    count_up(ids, 16, 1);
    open_world(&w, 8, 4);
    store_and_release(&w, 0, ids, 8);
    assert_int_equal(reuse(&w, 1, ids, 16), 8);
    um_table_release(&w.t[1], &w.pool);
    store_and_release(&w, 2, ids, 16);
    assert_int_equal(reuse(&w, 1, ids, 16), 16);
    um_table_release(&w.t[1], &w.pool);
    assert_int_equal(reuse(&w, 1, ids, 7), 4); /* fewer positions are wanted */
    um_table_release(&w.t[1], &w.pool);
    assert_int_equal(reuse(&w, 1, ids, 16), 16);
    for (int32_t i = 1; i < 4; i++) assert_true(w.t[1].page[i] != w.t[1].page[i - 1]);
    um_table_release(&w.t[1], &w.pool);
    um_prefix_flush(&w.pool);
    assert_int_equal(reuse(&w, 1, ids, 16), 0);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_leading_pages_that_were_stored_before),
        cmocka_unit_test(finds_all_of_a_prompt_that_ends_with_a_page),
        cmocka_unit_test(finds_whole_pages_up_to_the_given_position),
        cmocka_unit_test(a_page_is_found_once_all_of_it_is_stored),
        cmocka_unit_test(pages_filled_by_an_answer_are_found_after_the_prompt),
        cmocka_unit_test(equal_tokens_after_another_prefix_are_not_found),
        cmocka_unit_test(equal_hashes_do_not_mix_contents),
        cmocka_unit_test(namespaces_do_not_share),
        cmocka_unit_test(namespace_0_shares_nothing),
        cmocka_unit_test(free_pages_are_allocated_before_cached_ones_are_evicted),
        cmocka_unit_test(pages_are_evicted_in_order_of_release_and_ends_before_beginnings),
        cmocka_unit_test(reuse_moves_a_page_to_the_end_of_the_eviction_order),
        cmocka_unit_test(a_held_page_is_found_even_when_none_is_available),
        cmocka_unit_test(an_equal_page_is_published_once_and_each_table_keeps_its_own),
        cmocka_unit_test(a_table_publishes_its_own_pages_when_the_equal_ones_were_evicted),
        cmocka_unit_test(successors_of_an_evicted_page_are_not_found_after_its_new_contents),
        cmocka_unit_test(a_flush_empties_the_index_and_tables_publish_again),
        cmocka_unit_test(the_first_to_write_to_a_shared_page_copies_it),
        cmocka_unit_test(a_shared_page_stays_as_it_is_when_no_page_is_available),
        cmocka_unit_test(a_fork_at_a_page_boundary_copies_nothing),
        cmocka_unit_test(a_published_page_is_never_written),
        cmocka_unit_test(an_overwritten_page_is_no_longer_published),
        cmocka_unit_test(forks_publish_what_they_write),
        cmocka_unit_test(a_cut_table_publishes_what_replaces_its_end),
        cmocka_unit_test(nothing_allocates_after_creation),
        cmocka_unit_test(a_repeated_search_continues_from_the_pages_found_before),
    };
    return cmocka_run_group_tests_name("prefix index", tests, NULL, NULL);
}
