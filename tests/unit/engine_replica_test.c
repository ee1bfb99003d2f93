/* Tests of the choice of an engine for a request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/replica.h"

enum { REPLICAS_MAX = 4 };

typedef struct route_case {
    int32_t n;
    um_replica replica[REPLICAS_MAX]; /* {queued, cached} */
    int32_t expected;
} route_case;

static void check(int32_t policy, const route_case *cases, size_t n_cases) {
    for (size_t i = 0; i < n_cases; i++) {
        int32_t got = um_replica_choose(policy, cases[i].replica, cases[i].n, 7);
        if (got != cases[i].expected) fail_msg("case %zu: engine %d, expected %d", i, got, cases[i].expected);
    }
}

static void least_loaded_takes_the_shortest_queue_and_the_lowest_of_equals(void **state) {
    (void)state;
    static const route_case cases[] = {
        {1, {{900, 0}}, 0},
        {3, {{0, 0}, {0, 0}, {0, 0}}, 0},
        {3, {{5, 0}, {4, 0}, {4, 0}}, 1},
        {4, {{3, 64}, {2, 64}, {9, 64}, {1, 0}}, 3},
        {2, {{INT64_MAX, 0}, {INT64_MAX - 1, 0}}, 1},
    };
    check(UM_ROUTE_LEAST_LOADED, cases, UM_LEN(cases));
}

static void prefix_takes_the_longest_cached_beginning(void **state) {
    (void)state;
    static const route_case cases[] = {
        {2, {{0, 0}, {0, 32}}, 1},
        {3, {{0, 64}, {0, 32}, {0, 64}}, 0},
        {3, {{50, 64}, {10, 96}, {20, 64}}, 1},
        {3, {{50, 64}, {10, 32}, {20, 64}}, 2}, /* equal prefixes: the shorter queue */
        {2, {{100, 32}, {0, 0}}, 0},
    };
    check(UM_ROUTE_PREFIX, cases, UM_LEN(cases));
}

static void prefix_takes_the_shortest_queue_when_nothing_is_cached(void **state) {
    (void)state;
    static const route_case cases[] = {
        {1, {{900, 0}}, 0},
        {3, {{0, 0}, {0, 0}, {0, 0}}, 0},
        {3, {{5, 0}, {4, 0}, {4, 0}}, 1},
    };
    check(UM_ROUTE_PREFIX, cases, UM_LEN(cases));
}

static void prefix_leaves_an_engine_whose_queue_is_too_long_for_what_it_saves(void **state) {
    (void)state;
    enum { CACHED = 100, LEAST = 1000, MOST = LEAST + UM_REPLICA_EXCESS * CACHED };
    static const route_case cases[] = {
        {2, {{MOST, CACHED}, {LEAST, 0}}, 0},
        {2, {{MOST + 1, CACHED}, {LEAST, 0}}, 1},
        {3, {{MOST + 1, CACHED}, {LEAST, 0}, {LEAST + 10, CACHED / 2}}, 2}, /* the second longest prefix */
        {2, {{INT64_MAX, INT32_MAX}, {0, 0}}, 1},
    };
    check(UM_ROUTE_PREFIX, cases, UM_LEN(cases));
}

static void round_robin_counts_requests(void **state) {
    (void)state;
    static const um_replica replica[3] = {{500, 0}, {0, 96}, {0, 0}};
    for (int64_t id = 0; id < 9; id++)
        assert_int_equal(um_replica_choose(UM_ROUTE_ROUND_ROBIN, replica, 3, id), id % 3);
    assert_int_equal(um_replica_choose(UM_ROUTE_ROUND_ROBIN, replica, 3, INT64_MAX), INT64_MAX % 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(least_loaded_takes_the_shortest_queue_and_the_lowest_of_equals),
        cmocka_unit_test(prefix_takes_the_longest_cached_beginning),
        cmocka_unit_test(prefix_takes_the_shortest_queue_when_nothing_is_cached),
        cmocka_unit_test(prefix_leaves_an_engine_whose_queue_is_too_long_for_what_it_saves),
        cmocka_unit_test(round_robin_counts_requests),
    };
    return cmocka_run_group_tests_name("route", tests, NULL, NULL);
}
