/* Tests of the passes for which an engine prepares at the start. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "engine/expect.h"

enum { MOST = 512 };
static um_pass_size size[MOST];

static const um_expectation server = {.max_reqs = 24, .max_tokens = 4096, .max_len = 1500, .block = 32};

/* Returns whether the first n sizes have such a pass. */
static bool has(int32_t n, um_pass_size p) {
    for (int32_t i = 0; i < n; i++)
        if (size[i].n_tokens == p.n_tokens && size[i].n_spans == p.n_spans && size[i].n_rows == p.n_rows &&
            size[i].keys == p.keys && size[i].adapts == p.adapts)
            return true;
    return false;
}

static void requests_double_up_to_the_limit(void **state) {
    (void)state;
    const int32_t n = um_expect_passes(&server, size, MOST);
    for (int32_t r = 1; r <= 16; r *= 2) assert_true(has(n, (um_pass_size){32 * r, r, 32 * r, 256, false}));
    assert_true(has(n, (um_pass_size){32 * 24, 24, 32 * 24, 256, false}));
    assert_false(has(n, (um_pass_size){32 * 32, 32, 32 * 32, 256, false}));
}

static void contexts_double_up_to_the_longest(void **state) {
    (void)state;
    const int32_t n = um_expect_passes(&server, size, MOST);
    for (int32_t keys = 256; keys <= 1024; keys *= 2) assert_true(has(n, (um_pass_size){32, 1, 32, keys, false}));
    assert_true(has(n, (um_pass_size){32, 1, 32, 1500, false}));
    assert_int_equal(size[n - 1].keys, 1500);
}

static void short_contexts_come_first(void **state) {
    (void)state;
    const int32_t n = um_expect_passes(&server, size, MOST);
    for (int32_t i = 1; i < n; i++) assert_true(size[i].keys >= size[i - 1].keys);
}

static void many_rows_are_expected_whole_and_in_half(void **state) {
    (void)state;
    const int32_t n = um_expect_passes(&server, size, MOST);
    assert_true(has(n, (um_pass_size){512, 16, 512, 256, false}));
    assert_true(has(n, (um_pass_size){512, 16, 256, 256, false}));
    assert_false(has(n, (um_pass_size){64, 2, 32, 256, false}));
}

static void no_pass_exceeds_the_limits(void **state) {
    (void)state;
    for (int32_t block = 1; block <= 512; block *= 2)
        for (int32_t tokens = 1; tokens <= 2048; tokens = 3 * tokens + 1) {
            const um_expectation e = {
                .max_reqs = 33, .max_tokens = tokens, .max_len = 999, .block = block, .whole = true, .adapts = true};
            const int32_t n = um_expect_passes(&e, size, MOST);
            assert_true(n < MOST);
            for (int32_t i = 0; i < n; i++) {
                assert_in_range(size[i].n_tokens, 1, tokens);
                assert_in_range(size[i].n_rows, 1, size[i].n_tokens);
                assert_in_range(size[i].n_spans, 1, 33);
                assert_in_range(size[i].keys, 1, 999);
            }
        }
}

static void adapters_and_whole_sequences_add_their_passes(void **state) {
    um_expectation e = server;
    (void)state;
    e.adapts = true;
    int32_t n = um_expect_passes(&e, size, MOST);
    assert_true(has(n, (um_pass_size){32, 1, 32, 256, true}) && has(n, (um_pass_size){32, 1, 32, 256, false}));
    e = server;
    e.whole = true;
    n = um_expect_passes(&e, size, MOST);
    assert_true(has(n, (um_pass_size){1024, 1, 1024, 1024, false}));
    e.max_tokens = 512; /* longer sequences don't fit into a pass */
    n = um_expect_passes(&e, size, MOST);
    assert_true(has(n, (um_pass_size){512, 1, 512, 512, false}));
    assert_false(has(n, (um_pass_size){512, 1, 512, 1024, false}));
}

static void a_short_list_keeps_the_first_passes(void **state) {
    um_pass_size all[MOST];
    (void)state;
    const int32_t n = um_expect_passes(&server, all, MOST);
    assert_true(n > 10);
    assert_int_equal(um_expect_passes(&server, size, 10), 10);
    for (int32_t i = 0; i < 10; i++) assert_int_equal(size[i].n_tokens, all[i].n_tokens);
}

static void a_list_replaces_the_powers_of_two(void **state) {
    um_expectation e = server;
    (void)state;
    assert_true(um_expect_requests(&e, "8,1,64,8,20,0"));
    assert_int_equal(e.n_sizes, 3);
    const int32_t n = um_expect_passes(&e, size, MOST), listed[] = {1, 8, 20};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(e.size[i], listed[i]);
        assert_true(has(n, (um_pass_size){32 * listed[i], listed[i], 32 * listed[i], 1500, false}));
    }
    for (int32_t i = 0; i < n; i++) assert_true(size[i].n_spans == 1 || size[i].n_spans == 8 || size[i].n_spans == 20);
}

static void an_automatic_list_is_powers_of_two(void **state) {
    um_expectation e = server;
    um_pass_size all[MOST];
    (void)state;
    const int32_t n = um_expect_passes(&server, all, MOST);
    assert_true(um_expect_requests(&e, "auto"));
    assert_int_equal(um_expect_passes(&e, size, MOST), n);
    for (int32_t i = 0; i < n; i++) assert_int_equal(size[i].n_spans, all[i].n_spans);
}

static void a_list_can_expect_nothing(void **state) {
    um_expectation e = server;
    (void)state;
    assert_false(um_expect_requests(&e, "none"));
    assert_false(um_expect_requests(&e, "25,0"));
    e.max_tokens = 4;
    assert_false(um_expect_requests(&e, "5"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_double_up_to_the_limit),
        cmocka_unit_test(contexts_double_up_to_the_longest),
        cmocka_unit_test(short_contexts_come_first),
        cmocka_unit_test(many_rows_are_expected_whole_and_in_half),
        cmocka_unit_test(no_pass_exceeds_the_limits),
        cmocka_unit_test(adapters_and_whole_sequences_add_their_passes),
        cmocka_unit_test(a_short_list_keeps_the_first_passes),
        cmocka_unit_test(a_list_replaces_the_powers_of_two),
        cmocka_unit_test(an_automatic_list_is_powers_of_two),
        cmocka_unit_test(a_list_can_expect_nothing),
    };
    return cmocka_run_group_tests_name("expect", tests, NULL, NULL);
}
