/* base: durations for timers. */
#include "base/base.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

static void a_time_of_a_timer_is_never_below_zero(void **state) {
    (void)state;
    const struct {
        double seconds;
        struct timeval t;
    } cases[] = {{0, {0, 0}}, {0.25, {0, 250000}}, {3, {3, 0}}, {86400.5, {86400, 500000}}, {-0.5, {0, 0}}};
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        struct timeval t = um_timeval(cases[i].seconds);
        assert_int_equal(t.tv_sec, cases[i].t.tv_sec);
        assert_int_equal(t.tv_usec, cases[i].t.tv_usec);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_time_of_a_timer_is_never_below_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
