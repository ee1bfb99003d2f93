/* cpu: which devices pin their threads. */
#include "ops/cpu/dev.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

static void off_and_single_threads_pin_nothing(void **state) {
    (void)state;
    int cpu[UM_CPUS_MAX];
    assert_false(um_cpu_claim(UM_PIN_OFF, 2, cpu));
    assert_false(um_cpu_claim(UM_PIN_ON, 1, cpu));
    assert_false(um_cpu_claim(UM_PIN_AUTO, 1, cpu));
}

static void auto_pins_only_all_of_many_cpus(void **state) {
    (void)state;
    int cpu[UM_CPUS_MAX];
    const int n = um_cpu_usable(cpu);
    assert_false(um_cpu_claim(UM_PIN_AUTO, n - 1, cpu));
    assert_false(um_cpu_claim(UM_PIN_AUTO, n + 1, cpu));
    const bool pins = um_cpu_claim(UM_PIN_AUTO, n, cpu);
    assert_int_equal(pins, n >= 8 && n == um_cpu_count());
    if (pins) um_cpu_unclaim(cpu, n);
}

static void devices_share_no_cpu(void **state) {
    (void)state;
    int cpu[UM_CPUS_MAX], other[UM_CPUS_MAX];
    const int n = um_cpu_usable(cpu);
    if (n < 2) skip();
    assert_true(um_cpu_claim(UM_PIN_ON, n, cpu));
    assert_false(um_cpu_claim(UM_PIN_ON, 2, other));
    um_cpu_unclaim(cpu, n);
    assert_true(um_cpu_claim(UM_PIN_ON, 2, other));
    assert_int_not_equal(other[0], other[1]);
    um_cpu_unclaim(other, 2);
}

/* Opening and closing a device claims and releases its CPUs, also when opening fails. */
static void a_device_releases_its_cpus(void **state) {
    (void)state;
    int cpu[UM_CPUS_MAX];
    const int n = um_cpu_usable(cpu);
    um_err err;
    if (n < 2) skip();
    const um_dev_config c = {.threads = n, .pin = UM_PIN_ON, .dtype = UM_F32, .weights = UM_F32, .max_tokens = 1};
    for (int i = 0; i < 2; i++) {
        um_dev *dev = NULL;
        if (um_ops_cpu.open(&dev, &c, &err)) fail_msg("%s", err.msg);
        assert_false(um_cpu_claim(UM_PIN_ON, n, cpu));
        um_ops_cpu.close(dev);
    }
    um_dev_config too_many = c;
    um_dev *dev = NULL;
    too_many.threads = 100000;
    assert_int_equal(um_ops_cpu.open(&dev, &too_many, &err), UM_ERANGE);
    assert_true(um_cpu_claim(UM_PIN_ON, n, cpu));
    um_cpu_unclaim(cpu, n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(off_and_single_threads_pin_nothing),
        cmocka_unit_test(auto_pins_only_all_of_many_cpus),
        cmocka_unit_test(devices_share_no_cpu),
        cmocka_unit_test(a_device_releases_its_cpus),
    };
    return cmocka_run_group_tests_name("ops_pin", tests, NULL, NULL);
}
