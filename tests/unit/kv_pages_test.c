/* kv: page pool and page tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kv/kv.h"

static void allocates_every_page_once(void **state) {
    (void)state;
    um_pages p;
    um_table t;
    bool seen[10] = {false};
    assert_int_equal(um_pages_init(&p, 10, 4, NULL), UM_OK);
    um_table_init(&t, 10);
    assert_true(um_table_grow(&t, &p, 10));
    for (int i = 0; i < 10; i++) {
        assert_in_range(t.page[i], 0, 9);
        assert_false(seen[t.page[i]]);
        seen[t.page[i]] = true;
    }
    um_table_release(&t, &p);
    assert_int_equal(um_pages_available(&p), 10);
    um_table_deinit(&t);
    um_pages_deinit(&p);
}

static void takes_nothing_when_too_few_are_free(void **state) {
    (void)state;
    um_pages p;
    um_table a, b;
    assert_int_equal(um_pages_init(&p, 3, 4, NULL), UM_OK);
    um_table_init(&a, 3);
    um_table_init(&b, 3);
    assert_true(um_table_grow(&a, &p, 2));
    assert_false(um_table_grow(&b, &p, 2));
    assert_int_equal(b.n, 0);
    assert_int_equal(um_pages_available(&p), 1);
    um_table_release(&a, &p);
    um_table_deinit(&a);
    um_table_deinit(&b);
    um_pages_deinit(&p);
}

static void rounds_tokens_up_to_pages(void **state) {
    (void)state;
    um_pages p = {.page_size = 32};
    assert_int_equal(um_pages_for(&p, 0), 0);
    assert_int_equal(um_pages_for(&p, 1), 1);
    assert_int_equal(um_pages_for(&p, 32), 1);
    assert_int_equal(um_pages_for(&p, 33), 2);
}

static void a_truncated_table_keeps_its_beginning(void **state) {
    (void)state;
    um_pages p;
    um_table t;
    assert_int_equal(um_pages_init(&p, 4, 8, NULL), UM_OK);
    um_table_init(&t, 4);
    assert_true(um_table_grow(&t, &p, 4));
    um_table_truncate(&t, &p, 2);
    assert_int_equal(t.n, 2);
    assert_int_equal(um_pages_used(&p), 2);
    assert_int_equal(p.used_max, 4);
    um_table_truncate(&t, &p, 3); /* nothing to truncate */
    assert_int_equal(t.n, 2);
    um_table_release(&t, &p);
    assert_int_equal(um_pages_used(&p), 0);
    um_table_deinit(&t);
    um_pages_deinit(&p);
}

static void pages_at_the_front_are_given_back(void **state) {
    (void)state;
    um_pages p;
    um_table t;
    assert_int_equal(um_pages_init(&p, 4, 8, NULL), UM_OK);
    um_table_init(&t, 8);
    assert_true(um_table_grow(&t, &p, 4));
    const int32_t third = t.page[2];
    um_table_drop_front(&t, &p, 2);
    assert_int_equal(um_pages_used(&p), 2);
    assert_true(t.page[0] == -1 && t.page[1] == -1 && t.page[2] == third);
    um_table_drop_front(&t, &p, 1);        /* nothing more */
    assert_true(um_table_grow(&t, &p, 6)); /* counts the pages that are gone */
    assert_int_equal(um_pages_used(&p), 4);
    um_table_truncate(&t, &p, 1);
    assert_int_equal(um_pages_used(&p), 0);
    assert_int_equal(t.n_gone, 1);
    um_table_release(&t, &p);
    assert_int_equal(t.n_gone, 0);
    um_table_deinit(&t);
    um_pages_deinit(&p);
}

/* A page that was given back is found by the next publication, as long as it is in the index. */
static void pages_that_are_gone_stay_published(void **state) {
    (void)state;
    int32_t ids[16];
    um_pages p;
    um_table t, u;
    for (int32_t i = 0; i < 16; i++) ids[i] = i;
    assert_int_equal(um_pages_init(&p, 4, 4, NULL), UM_OK);
    um_table_init(&t, 4);
    um_table_init(&u, 4);
    assert_true(um_table_grow(&t, &p, 3));
    um_table_publish(&t, &p, 1, ids, 8);
    um_table_drop_front(&t, &p, 2);
    um_table_publish(&t, &p, 1, ids, 12);
    assert_int_equal(um_prefix_match(&p, 1, ids, 16, 16, NULL), 12);
    assert_true(um_table_grow(&u, &p, 2)); /* one free page, and the oldest cached one is evicted */
    um_prefix_flush(&p);
    um_table_publish(&t, &p, 1, ids, 12); /* its first pages can't be published any more */
    assert_int_equal(um_prefix_match(&p, 1, ids, 16, 16, NULL), 0);
    um_table_release(&t, &p);
    um_table_release(&u, &p);
    um_table_deinit(&t);
    um_table_deinit(&u);
    um_pages_deinit(&p);
}

/* Grows and releases tables at random: the pool counts free pages correctly, and no page is in two tables. */
static void no_page_is_lost_or_shared(void **state) {
    (void)state;
    enum { PAGES = 64, TABLES = 8 };
    const char *env = getenv("UM_TEST_SEED");
    uint64_t seed = env ? strtoull(env, NULL, 10) : (uint64_t)um_rng_seed();
    um_pages p;
    um_table t[TABLES];
    print_message("           seed %llu (UM_TEST_SEED repeats it)\n", (unsigned long long)seed);
    assert_int_equal(um_pages_init(&p, PAGES, 4, NULL), UM_OK);
    for (int i = 0; i < TABLES; i++) um_table_init(&t[i], PAGES);
    for (uint64_t step = 0; step < 20000; step++) {
        um_table *one = &t[um_rng_u64(seed, 3 * step) % TABLES];
        if (um_rng_u64(seed, 3 * step + 1) % 3 == 0) um_table_release(one, &p);
        else {
            int32_t n = one->n + (int32_t)(um_rng_u64(seed, 3 * step + 2) % 9);
            (void)um_table_grow(one, &p, UM_MIN(n, PAGES));
        }
        int owner[PAGES] = {0}, used = 0;
        for (int i = 0; i < TABLES; i++)
            for (int k = 0; k < t[i].n; k++) {
                assert_int_equal(owner[t[i].page[k]]++, 0);
                used++;
            }
        assert_int_equal(used + um_pages_available(&p), PAGES);
    }
    for (int i = 0; i < TABLES; i++) {
        um_table_release(&t[i], &p);
        um_table_deinit(&t[i]);
    }
    um_pages_deinit(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocates_every_page_once),         cmocka_unit_test(takes_nothing_when_too_few_are_free),
        cmocka_unit_test(rounds_tokens_up_to_pages),         cmocka_unit_test(a_truncated_table_keeps_its_beginning),
        cmocka_unit_test(pages_at_the_front_are_given_back), cmocka_unit_test(pages_that_are_gone_stay_published),
        cmocka_unit_test(no_page_is_lost_or_shared),
    };
    return cmocka_run_group_tests_name("pages", tests, NULL, NULL);
}
