/* base: allocation, sizes, arenas, buffers. */
#include "base/base.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

static bool is_zero(const void *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (((const char *)p)[i]) return false;
    return true;
}

static void counts_every_allocation(void **state) {
    (void)state;
    int64_t before = um_alloc_count();
    void *a = um_alloc(3), *b = um_zalloc(8), *c = NULL;
    a = um_realloc(a, 100);
    assert_int_equal(um_try_alloc(&c, 10, 64, "test", NULL), UM_OK);
    char *d = um_strdup("x");
    assert_int_equal(um_alloc_count() - before, 5);
    um_free(a);
    um_free(b);
    um_free(c);
    um_free(d);
    assert_int_equal(um_alloc_count() - before, 5);
}

static void zalloc_zeroes(void **state) {
    (void)state;
    int64_t *p = UM_NEW_ARRAY(int64_t, 100);
    assert_true(is_zero(p, 800));
    um_free(p);
}

static void empty_allocations_are_valid(void **state) {
    (void)state;
    void *p = um_alloc(0);
    assert_non_null(p);
    um_free(p);
    um_free(NULL);
}

static void try_alloc_aligns_and_zeroes(void **state) {
    (void)state;
    for (size_t align = 1; align <= 4096; align *= 2) {
        void *p = NULL;
        assert_int_equal(um_try_alloc(&p, 1000, align, "test", NULL), UM_OK);
        assert_int_equal((uintptr_t)p % align, 0);
        assert_true(is_zero(p, 1000));
        um_free(p);
    }
}

static void try_alloc_refuses_what_the_system_lacks(void **state) {
    (void)state;
    um_err err;
    void *p = &err;
    assert_int_equal(um_try_alloc(&p, (size_t)1 << 46, 64, "KV pages", &err), UM_ENOMEM);
    assert_null(p);
    assert_non_null(strstr(err.msg, "KV pages: 70.4 TB needed, "));
}

static void system_says_how_much_memory_is_left(void **state) {
    (void)state;
    assert_in_range(um_memory_available(), (size_t)1 << 20, (size_t)1 << 50);
    assert_int_equal(um_memory_available_beside((size_t)1 << 60), 1);
    assert_int_equal(um_memory_available_beside(SIZE_MAX), 1);
}

static void sizes_that_overflow_are_refused(void **state) {
    (void)state;
    size_t n;
    assert_true(um_mul_ok(SIZE_MAX / 2, 2, &n));
    assert_int_equal(n, SIZE_MAX - 1);
    assert_false(um_mul_ok(SIZE_MAX / 2 + 1, 2, &n));
    assert_true(um_add_ok(SIZE_MAX - 1, 1, &n));
    assert_false(um_add_ok(SIZE_MAX, 1, &n));
}

static void arena_memory_is_aligned_zeroed_and_apart(void **state) {
    (void)state;
    um_arena a;
    um_arena_init(&a, 0);
    char *p[200];
    for (size_t i = 0; i < UM_LEN(p); i++) {
        p[i] = (char *)um_arena_alloc(&a, i * 7 + 1);
        assert_int_equal((uintptr_t)p[i] % 16, 0);
        assert_true(is_zero(p[i], i * 7 + 1));
        memset(p[i], (int)i + 1, i * 7 + 1);
    }
    for (size_t i = 0; i < UM_LEN(p); i++) assert_int_equal((unsigned char)p[i][i * 7], i + 1);
    um_arena_free(&a);
}

static void arena_refuses_more_than_its_limit(void **state) {
    (void)state;
    um_arena a;
    um_arena_init(&a, 64);
    assert_non_null(um_arena_alloc(&a, 40));
    assert_null(um_arena_alloc(&a, 32));
    assert_non_null(um_arena_alloc(&a, 16));
    assert_null(um_arena_alloc(&a, 1));
    assert_null(um_arena_alloc(&a, SIZE_MAX));
    um_arena_reset(&a);
    assert_non_null(um_arena_alloc(&a, 64));
    um_arena_free(&a);
}

static void arena_reset_keeps_the_largest_chunk(void **state) {
    (void)state;
    um_arena a;
    um_arena_init(&a, 0);
    um_arena_alloc(&a, 100);
    um_arena_alloc(&a, 500000);
    um_arena_alloc(&a, 100);
    um_arena_reset(&a);
    int64_t before = um_alloc_count();
    char *p = (char *)um_arena_alloc(&a, 500000);
    assert_int_equal(um_alloc_count(), before);
    assert_true(is_zero(p, 500000));
    um_arena_free(&a);
}

static void arena_copies_strings(void **state) {
    (void)state;
    um_arena a;
    um_arena_init(&a, 0);
    assert_string_equal(um_arena_strndup(&a, "abcdef", 3), "abc");
    assert_string_equal(um_arena_strndup(&a, NULL, 0), "");
    um_arena_free(&a);
}

static void buffer_is_terminated_after_each_append(void **state) {
    (void)state;
    um_buf b = {0};
    for (int i = 0; i < 1000; i++) {
        um_buf_putc(&b, (char)('a' + i % 26));
        assert_int_equal(strlen(b.data), i + 1);
    }
    um_buf_append(&b, "x\0y", 3);
    assert_int_equal(b.len, 1003);
    assert_memory_equal(b.data + 1000, "x\0y", 4);
    um_buf_clear(&b);
    assert_string_equal(b.data, "");
    um_buf_free(&b);
    assert_null(b.data);
}

static void buffer_formats_text_of_any_length(void **state) {
    (void)state;
    um_buf b = {0};
    um_buf_puts(&b, "<");
    um_buf_printf(&b, "%0500d", 7);
    um_buf_printf(&b, "%s", ">");
    assert_int_equal(b.len, 502);
    assert_string_equal(b.data + 499, "07>");
    um_buf_free(&b);
}

static void buffer_hands_over_a_string_even_when_empty(void **state) {
    (void)state;
    um_buf b = {0};
    char *s = um_buf_take(&b);
    assert_string_equal(s, "");
    um_free(s);
    um_buf_puts(&b, "mine");
    s = um_buf_take(&b);
    assert_null(b.data);
    assert_string_equal(s, "mine");
    um_free(s);
}

static void strings_compare_by_bytes(void **state) {
    (void)state;
    assert_true(um_str_eq(UM_STR("a\0b"), (um_str){"a\0bc", 3}));
    assert_false(um_str_eq(UM_STR("a\0b"), UM_STR("a\0c")));
    assert_true(um_str_eq((um_str){NULL, 0}, UM_STR("")));
    assert_true(um_streq(NULL, NULL));
    assert_false(um_streq(NULL, ""));
    assert_int_equal(um_str_of("four").n, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_every_allocation),
        cmocka_unit_test(zalloc_zeroes),
        cmocka_unit_test(empty_allocations_are_valid),
        cmocka_unit_test(try_alloc_aligns_and_zeroes),
        cmocka_unit_test(try_alloc_refuses_what_the_system_lacks),
        cmocka_unit_test(system_says_how_much_memory_is_left),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(arena_memory_is_aligned_zeroed_and_apart),
        cmocka_unit_test(arena_refuses_more_than_its_limit),
        cmocka_unit_test(arena_reset_keeps_the_largest_chunk),
        cmocka_unit_test(arena_copies_strings),
        cmocka_unit_test(buffer_is_terminated_after_each_append),
        cmocka_unit_test(buffer_formats_text_of_any_length),
        cmocka_unit_test(buffer_hands_over_a_string_even_when_empty),
        cmocka_unit_test(strings_compare_by_bytes),
    };
    return cmocka_run_group_tests_name("base_mem", tests, NULL, NULL);
}
