/* base: measuring. No test is about the length of a time. */
#include "base/base.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

typedef struct counted {
    int calls, next, order;
    bool in_order; /* the rounds were 0, 1, 2, … */
} counted;

static int turns; /* counts the calls of all tasks */

static void count(void *arg, int round) {
    counted *c = (counted *)arg;
    c->in_order = c->in_order && round == c->next;
    c->next = round + 1;
    c->calls++;
    c->order = ++turns;
}

static void spread_has_the_median_between_its_ends(void **state) {
    (void)state;
    counted c = {.in_order = true};
    um_measured t;
    um_measure(&(um_measure_task){count, &c}, 1, 5, 0.001, &t);
    assert_true(t.min > 0 && t.min <= t.median && t.median <= t.max);
    assert_true(t.waited >= 0);
}

static void rounds_count_all_calls(void **state) {
    (void)state;
    counted c = {.in_order = true};
    um_measured t;
    um_measure(&(um_measure_task){count, &c}, 1, 2, 0.001, &t);
    assert_true(c.in_order);
    assert_true(c.calls >= 4); /* a call to warm up and a measured one in each window */
}

static void tasks_take_turns(void **state) {
    (void)state;
    counted c[2] = {{.in_order = true}, {.in_order = true}};
    const um_measure_task task[] = {{count, &c[0]}, {count, &c[1]}};
    um_measured t[2];
    turns = 0;
    um_measure(task, 2, 3, 0.001, t);
    assert_true(c[0].in_order && c[1].in_order);
    /* The first task has its last window before that of the second one, and after the second one's first window. */
    assert_int_equal(c[1].order, turns);
    assert_true(c[0].order > c[0].calls);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spread_has_the_median_between_its_ends),
        cmocka_unit_test(rounds_count_all_calls),
        cmocka_unit_test(tasks_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
